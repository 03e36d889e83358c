"""The pages of ``--help``: commands in the order in which people work, in Chinese where the locale
is Chinese, as is what is said of weak results.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from lazyrag.cli import terminal

SECTIONS = {
    "Search and ask": "index search ask chat collect",
    "Keep in sync": "sync status watch",
    "Serve": "serve mcp token worker",
    "Check and move": "verify repair eval export import",
    "Set up": "config model completion",
}
"""The commands of ``lazyrag --help`` by heading."""
_WIDEST = 28  # of the names of commands and options


@functools.cache
def translations() -> Any:
    """The Chinese texts of the pages by the English ones."""
    return json.loads(Path(__file__).with_name("help.zh.json").read_text(encoding="utf-8"))


def translate(text: str) -> str:
    """Return a text of a page in the language of the locale."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    language = next(filter(None, map(os.environ.get, names)), "")
    return str(translations().get(text, text)) if language.startswith("zh") else text


class LocalizedCommand(click.Command):
    """A command whose ``--help`` is translated and grouped."""

    def get_help(self, ctx: click.Context) -> str:
        """Format the help page."""
        usage = self.get_usage(ctx).replace("Usage:", translate("Usage:"), 1)
        lines = [usage, *_paragraphs(self.help)]
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = [option.get_help_record(ctx) for option in options]
        lines += _section("Options", filter(None, records))
        if isinstance(self, click.Group):
            only = {"Commands": " ".join(self.commands)}
            for heading, names in (only if ctx.parent else SECTIONS).items():
                rows = [(name, self.commands[name].help) for name in names.split()]
                lines += _section(heading, rows)
        return "\n".join([*lines, *_paragraphs(self.epilog)])


def _paragraphs(text: str | None) -> list[str]:
    r"""The paragraphs of a text; one that begins with ``\b`` keeps its lines."""
    lines = []
    for paragraph in translate(inspect.cleandoc(text or "")).split("\n\n"):
        if paragraph.startswith("\b"):
            lines += ["", *(f"  {line}" for line in paragraph.splitlines()[1:])]
        elif paragraph:
            lines += ["", *terminal.wrap(paragraph, first="  ", rest="  ")]
    return lines


def _section(heading: str, rows: Iterable[tuple[str, Any]]) -> list[str]:
    """Options or commands with the first lines of their descriptions."""
    rows = list(rows)
    widest = min(_WIDEST, max(terminal.cells(name) for name, _ in rows))
    rest = " " * (widest + 4)
    lines = ["", f"{translate(heading)}:"]
    for name, text in rows:
        first = terminal.pad(f"  {name}", len(rest))
        if terminal.cells(name) > widest:
            lines.append(f"  {name}")
            first = rest
        summary = translate(inspect.cleandoc(text)).partition("\n")[0]
        lines += terminal.wrap(summary, first=first, rest=rest)
    return lines
