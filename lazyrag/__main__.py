"""`python -m lazyrag`: the command line."""

from lazyrag.cli import main

main()
