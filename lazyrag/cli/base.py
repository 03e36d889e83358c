"""The group of commands, their class and errors, and what several of them share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lazyrag._version import __version__
from lazyrag.cli import output, terminal
from lazyrag.cli.help import LocalizedCommand
from lazyrag.cli.output import FAILED, USAGE, Output
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import ConfigError, LazyRAGError, known_names

if TYPE_CHECKING:
    from lazyrag.document import Document
    from lazyrag.project import Project

ANALYSER = "zh"
"""Analyser of the retriever ``bm25_chinese``, which finds English as well."""
_EPILOGUE = (
    "Exit status: 0 done, 1 failed or nothing found, 2 invalid arguments, 130 interrupted. See"
    " docs/command-line.md."
)
_FAIL_WITH_2 = ("search", "collect", "ask", "eval")
"""Commands that fail with 2: as in grep, 1 means that nothing is found or a threshold is missed."""


def keyword_analysers(docs: Document) -> list[str]:
    """The analysers of the keyword index that searches need; none where a server ranks."""
    return [] if docs.reader.indexer.nodes.ranks_text else [ANALYSER]


def complain(text: str) -> None:
    """Print a line on the standard error output."""
    sys.stderr.write(f"{terminal.printable(text)}\n")
    sys.stderr.flush()


class _Command(LocalizedCommand):
    """A command whose function returns an `Output`; its errors are one line, or JSON."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        help_json = "Print one JSON object for programs."
        self.params += [
            click.Option(["--json", "as_json"], is_flag=True, help=help_json),
            click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."),
        ]

    def invoke(self, ctx: click.Context) -> int:
        """Call the function, and print what it returns."""
        as_json = ctx.params.pop("as_json")
        debug = ctx.params.pop("debug")
        ctx.obj = as_json
        name = ctx.command_path.partition(" ")[2]
        try:
            outcome: Output = super().invoke(ctx)
            text = [output.as_json(name, outcome.result)] if as_json else outcome.lines
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as exc:
            if debug:
                raise
            if as_json:
                output.write([output.as_json(name, output.incomplete_dict(exc), exc)])
            else:
                complain(f"Error: {message_of(exc)}")
            return USAGE if name in _FAIL_WITH_2 else FAILED
        output.write(text)
        return outcome.status


def message_of(exc: Exception) -> str:
    """An error in one line."""
    if isinstance(exc, LazyRAGError):
        return output.at_command_line(str(exc))
    if isinstance(exc, OSError) and exc.strerror:
        return f"{exc.strerror}: {exc.filename}" if exc.filename else exc.strerror
    return f"{type(exc).__name__}: {exc} (run it with --debug for the traceback)"


class _CommandGroup(LocalizedCommand, click.Group):
    command_class = _Command
    group_class = type


@click.group(
    cls=_CommandGroup,
    epilog=_EPILOGUE,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, message="lazyrag %(version)s")
def app() -> None:
    """Search a folder of files, and answer questions from it with citations.

    \b
    lazyrag index            index the current folder, or PATH
    lazyrag search "tea"     find passages
    lazyrag sync             ingest what changed
    """  # noqa: D301  click's mark of a paragraph to leave as it is


PATH = click.Path(path_type=Path, readable=False)  # the commands say what cannot be read
store_option = click.option("--store", type=PATH, help="Folder of the index, or an indexed folder.")


def require_group(docs: Document, group: str) -> None:
    """Check that a Document has a node group of passages.

    Raises:
        ConfigError: If it has not.
    """
    groups = [name for name in docs.groups if name != LAZY_ROOT_NAME]  # whole files are no passages
    if group not in groups:
        raise ConfigError(f"Unknown node group {group!r}. {known_names(group, groups)}")


def build_group(docs: Document, group: str) -> None:
    """Build a node group with its indexes: of keywords first, which needs no model."""
    docs.activate_group(group, analysers=keyword_analysers(docs))
    if docs.reader.embed_keys:
        docs.activate_group(group, embed_keys=docs.reader.embed_keys)


def ensure_built(docs: Document, project: Project, needed: set[str]) -> set[str]:
    """Build the node group of a project if some of the needed indexes are missing, as in a new
    index of Python.

    Returns:
        The indexes that it has.

    Raises:
        ConfigError: If there is no such group, or another program writes the index.
    """
    group = project.group
    require_group(docs, group)
    indexes = _indexes_of(docs, group)
    if (indexes is None or not needed <= indexes) and not docs.status().writer:
        complain(f"Note: indexing the node group {group}, once.")
        with project.open(write=True, embeds=bool(docs.reader.embed_keys)) as writer:
            build_group(writer, group)
        indexes = _indexes_of(docs, group)
    if indexes is None or not needed <= indexes:
        raise ConfigError(
            f"The node group {group} is not indexed yet. Run: lazyrag index --group {group}"
        )
    return indexes


def _indexes_of(docs: Document, group: str) -> set[str] | None:
    """The indexes of a group; None if it is not built for all documents."""
    complete = {state.name: state for state in docs.status().groups if state.is_complete}
    return set(complete[group].indexes) if group in complete else None
