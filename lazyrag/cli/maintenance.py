"""The commands that check and copy an index, fetch models, store defaults, and complete command
lines.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lazyrag.cli import output, terminal
from lazyrag.cli.base import PATH, app, complain, keyword_analysers, store_option
from lazyrag.cli.output import FAILED, OK, Output
from lazyrag.errors import ConfigError, LazyRAGError
from lazyrag.models.defaults import DEFAULTS, defaults_file, read_defaults, write_default
from lazyrag.project import find_project, new_project


def _problem_output(problems: Sequence[Any], summary: str) -> Output:
    lines = []
    for problem in problems[:20]:
        lines += terminal.wrap(terminal.printable(str(problem)), rest="  ")
    lines += [*output.more_lines(len(problems), 20), summary]
    return Output({"problems": problems}, lines, FAILED if problems else OK)


@app.command()
@store_option
def verify(store: Path | None) -> Output:
    """Check the index against its files and stores.

    The exit status is 1 if something is missing or damaged.
    """
    project = find_project(store)
    with project.open(embeds=False) as docs:
        problems = docs.maintenance.verify()
    count = len(problems)
    return _problem_output(
        problems, f"{count} problems. Run: lazyrag repair" if problems else "No problems."
    )


@app.command()
@store_option
def repair(store: Path | None) -> Output:
    """Rebuild what verify finds missing or damaged."""
    project = find_project(store)
    with project.open(write=True) as docs:
        problems = docs.maintenance.repair()
    summary = (
        f"{len(problems)} problems remain: their source is gone."
        if problems
        else "No problems remain."
    )
    return _problem_output(problems, summary)


@app.command("export")
@click.argument("folder", type=PATH)
@store_option
def export_(folder: Path, store: Path | None) -> Output:
    """Write the index to the new folder FOLDER."""
    project = find_project(store)
    place = folder.expanduser().resolve()
    if place.is_relative_to(project.folder.resolve()) and not place.is_relative_to(
        project.store.resolve()
    ):
        raise ConfigError(
            f"The next sync would index {folder}: pass a folder outside of {project.folder}."
        )
    with project.open(embeds=False) as docs:
        exported = docs.maintenance.export(folder)
        count = docs.status().documents
    replace(project, store=exported, folder=exported).save()
    lines = terminal.wrap(f"Exported {count} files to {terminal.home(exported)}.")
    return Output({"export": str(exported), "documents": count}, lines)


@app.command("import")
@click.argument("export", type=PATH)
@click.argument("path", default=".", type=PATH)
@store_option
def import_(export: Path, path: Path, store: Path | None) -> Output:
    """Create the index of PATH from a folder that export wrote.

    PATH is the current folder by default. No file is loaded, and nothing is embedded.
    """
    project = new_project(path, store)
    is_new = not project.store.exists()
    if is_new and (export.expanduser() / "config.json").is_file():
        try:
            project = replace(
                find_project(export.expanduser()), store=project.store, folder=project.folder
            )
        except ConfigError as exc:
            complain(f"Note: the settings of the export are not used. {exc}")
    try:
        with project.open(write=True, with_files=False, embeds=False) as docs:
            count = docs.maintenance.import_from(export)
            docs.activate_group(project.group, analysers=keyword_analysers(docs))
        project.save()
    except LazyRAGError:
        if is_new:
            import shutil

            shutil.rmtree(project.store, ignore_errors=True)
        raise
    lines = terminal.wrap(f"Imported {count} files into {terminal.home(project.store)}.")
    return Output({"store": str(project.store), "documents": count}, lines)


@app.group()
def model() -> None:
    """Fetch embedding and rerank models."""


@model.command("fetch")
@click.argument("name")
@click.option(
    "--file", help="ONNX file to fetch instead of the usual one, such as a smaller, quantised one."
)
def fetch(name: str, file: str | None) -> Output:
    """Download a model: its ONNX file, tokenizer and settings.

    NAME is an id on the Hugging Face hub. HF_ENDPOINT names a mirror, HF_HOME the folder of models,
    HF_TOKEN a key.

    \b
    lazyrag model fetch sentence-transformers/all-MiniLM-L6-v2    English, 91 MB
    lazyrag model fetch intfloat/multilingual-e5-small            100 languages
    """  # noqa: D301  see `app`
    from lazyrag.models.onnx.hub import find_model

    model_folder = find_model(name, download=True, file=file, on_fetch=complain)
    graph = model_folder.graph(file)
    lines = [
        f"{name} is in",
        f"  {terminal.home(model_folder.path)}",
        f"Next: lazyrag index --embed {name}",
    ]
    return Output(
        {
            "name": name,
            "folder": str(model_folder.path),
            "file": str(graph.relative_to(model_folder.path)),
        },
        lines,
    )


_LEAST_SHOWN = 20  # characters of a key of which the last four are shown


@app.group()
def config() -> None:
    """Store default models, their endpoint and its key."""


@config.command("list")
def list_defaults() -> Output:
    """List what is stored; of the key, its last characters."""
    stored = read_defaults()
    if "key" in stored:
        key = stored["key"]
        stored["key"] = f"…{key[-4:]}" if len(key) >= _LEAST_SHOWN else "…"
    path = defaults_file()
    rows = [[name, terminal.printable(stored.get(name, "-"))] for name in DEFAULTS]
    lines = [*terminal.table(rows), *terminal.wrap(f"Stored in {terminal.home(path)}.")]
    return Output({"defaults": stored, "file": str(path)}, lines)


@config.command("set")
@click.argument("name", metavar="NAME", type=click.Choice(DEFAULTS))
@click.argument("value", required=False)
def set_default(name: str, value: str | None) -> Output:
    """Store the VALUE of a NAME: chat, embed, key or url; '' removes it.

    \b
    chat   chat model of ask, chat and serve; LAZYRAG_MODEL comes first
    embed  embedding model of new indexes, as for lazyrag index --embed
    url    OpenAI-compatible endpoint; OPENAI_BASE_URL comes first
    key    its API key; OPENAI_API_KEY comes first

    Without a VALUE, it is read from the terminal or the standard input: lazyrag config set key
    """  # noqa: D301  see `app`
    if value is None:
        value = _read_value(name)
    drops_key = write_default(name, value)
    lines = ["Stored." if value.strip() else "Removed."]
    if drops_key:
        lines.append(
            "Removed the key of the previous endpoint. Store a new one: lazyrag config set key"
        )
    return Output({"name": name, "key_removed": drops_key}, lines)


def _read_value(name: str) -> str:
    """A value from the terminal, or the first line of the standard input."""
    if sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(name, hide_input=name == "key"))
    line = "" if sys.stdin is None else sys.stdin.readline()
    if not line:
        raise click.UsageError(f"The standard input is empty. Pass a VALUE; '' removes {name}.")
    return line


@app.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> Output:
    """Print a completion script for SHELL.

    \b
    eval "$(lazyrag completion bash)"     in ~/.bashrc; likewise for zsh
    lazyrag completion fish | source      in config.fish
    """  # noqa: D301  see `app`
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise ConfigError(f"Unknown shell {shell!r}.")
    script = kind(app, {}, "lazyrag", "_LAZYRAG_COMPLETE").source()
    return Output({"script": script}, [script])
