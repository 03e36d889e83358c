"""The pages of --help in Chinese."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
import pytest

from lazyrag.cli import terminal
from lazyrag.cli.base import app
from lazyrag.cli.commands import run as lazyrag
from lazyrag.cli.help import SECTIONS, translations
from lazyrag.cli.output import WEAK


def texts(command: click.Command, context: click.Context) -> Iterator[str]:
    """The English texts of a page and of those below it."""
    if command.help:
        yield inspect.cleandoc(command.help)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            yield record[1]
    if command.epilog:
        yield command.epilog
    for name, part in getattr(command, "commands", {}).items():
        yield from texts(part, click.Context(part, parent=context, info_name=name))


def test_every_text_is_translated():
    """And no translation is of a text that is gone."""
    used = {"Usage:", "Options", "Commands", WEAK, *SECTIONS, *texts(app, click.Context(app))}
    assert used ^ translations().keys() == set()


@pytest.mark.parametrize("name", ["", *sorted(app.commands)])
def test_pages_are_chinese_where_the_locale_is(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Within 80 columns; LC_ALL takes precedence over LANG."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.delenv("LC_MESSAGES", raising=False)
    assert lazyrag([*filter(None, [name]), "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("用法： lazyrag")
    assert [line for line in page.splitlines() if terminal.cells(line) > 80] == []
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert lazyrag([*filter(None, [name]), "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: lazyrag")
