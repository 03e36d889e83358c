"""`python -m lazyrag`: the command line."""

from lazyrag.cli.main import main

main()
