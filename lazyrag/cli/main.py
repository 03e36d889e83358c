"""Entry point of the command ``lazyrag``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command with the program's arguments (entry point of setup.cfg)."""
    if sys.argv[1:] == ["--version"]:  # faster than parsing
        from lazyrag._version import __version__

        sys.stdout.write(f"lazyrag {__version__}\n")
        return
    try:
        from lazyrag.cli.commands import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # of the imports; `run` has its own message
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
