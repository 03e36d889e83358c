"""The command ``lazyrag``: index a folder, search it, ask it questions, keep it in sync.

`commands` has the commands, `project` the folder ``.lazyrag`` with the store and what ``lazyrag index`` was given,
`output` what the commands print, `terminal` how it fits a terminal.
"""

from __future__ import annotations

import sys

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses: done; failed, or a check that is not passed; invalid arguments; Ctrl-C."""


def main() -> None:
    """Run the command with the program's arguments (entry point of setup.cfg)."""
    if sys.argv[1:] == ["--version"]:  # faster than parsing
        from lazyrag._version import __version__

        sys.stdout.write(f"lazyrag {__version__}\n")
        return
    from lazyrag.cli.commands import run

    sys.exit(run(sys.argv[1:]))
