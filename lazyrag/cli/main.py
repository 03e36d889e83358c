"""Entry point of the command ``lazyrag``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command with the program's arguments (entry point of setup.cfg)."""
    if sys.argv[1:] == ["--version"]:  # faster than parsing
        from lazyrag._version import __version__

        sys.stdout.write(f"lazyrag {__version__}\n")
        return
    from lazyrag.cli.commands import run

    sys.exit(run(sys.argv[1:]))
