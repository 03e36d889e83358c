"""The configuration of the service: a TOML file in which everything has a default."""

from __future__ import annotations

import fnmatch
import functools
import importlib
import itertools
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from lazyrag.errors import ConfigError, DatasetPathError, known_names, sentence
from lazyrag.models.defaults import api_key, base_url, read_defaults
from lazyrag.project import Project, label_fields, new_project
from lazyrag.types import JsonObject
from lazyrag.validation import without_none

if TYPE_CHECKING:
    from lazyrag.document import Document

DEFAULT_PORT = 8400
STATE_FOLDER = ".lazyrag/serve"
ROOT_PATH = r"(?:/[\w.~-]+)+"

SET_NAME = r"\w(?:[\w. -]*[\w.-])?"
"""Name of a set: no space begins or ends it."""

_ROOT_PATH = f"^({ROOT_PATH})?$"
_FUNCTION = r"^([\w.]+:\w+)?$"
_SET = f"^{SET_NAME}$"
_CHAT = r"^(openai:\S+|[\w.]+:\w+)?$"
_EXPECTED = {
    _ROOT_PATH: "must be a path such as '/rag'",
    _FUNCTION: "must be 'module:function'",
    _SET: "must be letters, digits, '_', '-', '.' and spaces within",
    _CHAT: "must be 'openai:NAME' or 'module:attribute'",
    "path_type": "must be a path",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
}
"""What values must be, by pattern or type of error, where pydantic's words are for programmers."""


def _resolve_path(path: Path, info: ValidationInfo) -> Path:
    return info.context / path.expanduser() if info.context else path


Located = Annotated[Path, AfterValidator(_resolve_path)]
"""A path that is relative to the configuration file."""


def _validate_loading(text: str) -> str:
    from lazyrag.ingest.load_files import parse_loading

    parse_loading(text)
    return text


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class ServerConfig(_Section):
    """``[server]``: how the service listens, and its processes."""

    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback address needs a token."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """Port; by default 8400, or a free one if that is taken. 0 for a free one."""
    processes: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
    """Number of web processes; by default one per core, at most four."""
    root_path: str = Field(default="", pattern=_ROOT_PATH)
    """Path of a proxy in front of the service, such as ``/rag``."""
    allowed_hosts: list[str] = []
    """Names in the header Host, beside those of this machine."""
    proxies: list[str] = []
    """Addresses and networks of proxies whose ``X-Forwarded-*`` headers count."""
    state: Located = Path(STATE_FOLDER)
    """Folder for tokens, uploads and the audit log."""
    audit_texts: bool = False
    """Whether the audit log has queries and questions, with their bodies up to 2,000 bytes."""
    log: Literal["text", "json"] = "text"
    """Format of the log on the standard error output; ``json`` for JSON lines."""
    shutdown_s: float = Field(default=10.0, gt=0, le=600)
    """Longest time of a shutdown, in seconds; then what still runs is killed, and continues at the
    next start."""


class LimitsConfig(_Section):
    """``[limits]``: what one client may use."""

    threads: int = Field(default=8, ge=1, le=256)
    """Number of searches and other blocking calls at a time, per web process."""
    connections: int = Field(default=1000, ge=1)
    """Number of connections at a time, per web process."""
    requests_per_s: float = Field(default=1000, gt=0)
    """Requests of one client, per web process."""
    upload_mb: int = Field(default=8192, ge=1)
    """Size of an uploaded file."""


class ModelsConfig(_Section):
    """``[models]``: the models of all sets."""

    chat: str = Field(default="", pattern=_CHAT)
    """Chat model for answers: ``openai:NAME``, or ``module:attribute``; "" to return the cited
    passages."""
    embed: str = ""
    """Embedding model of sets that are made at run time: as for ``lazyrag index --embed``, or
    ``module:attribute``."""
    url: str = ""
    """Endpoint of ``openai:NAME``; by default OPENAI_BASE_URL, else that of `lazyrag config`. The
    key is OPENAI_API_KEY, else that of `lazyrag config` for its endpoint."""
    rerank: str = ""
    """Rerank model beside BM25: ``openai:NAME``, a cross-encoder on this machine, or
    ``module:attribute``."""


class SetConfig(_Section):
    """``[sets.NAME]``: a Document, served under a name."""

    path: Located | None = None
    """Folder of files; without one, the set has only uploads."""
    store: Located | None = None
    """Folder of the index instead of ``.lazyrag`` in ``path``, as for ``lazyrag index``."""
    store_conf: JsonObject | None = None
    """The `store_conf` of the Document instead."""
    name: str | None = None
    """Name of the Document in ``store_conf``; by default the same one."""
    launcher: int | str | None = None
    """Where to load, chunk and embed, as for ``lazyrag index --launcher``."""
    loading: Annotated[str, AfterValidator(_validate_loading)] = ""
    """How child processes read files, as for ``lazyrag index --loading``; ``processes=0`` for
    none."""
    embed: str | None = None
    """Embedding model: as for ``lazyrag index --embed``, or ``module:attribute``."""
    setup: str = Field(default="", pattern=_FUNCTION)
    """``module:function`` that gets the Document, to define groups and readers."""
    groups: list[str] = Field(default=["MediumChunk"], min_length=1)
    """Node groups to build with their indexes."""
    analysers: list[str] = ["zh", "en"]
    """Analysers of their keyword indexes."""
    include: list[str] | None = None
    """Only files that match one of these patterns of gitignore."""
    exclude: list[str] | None = None
    """Not these files and folders."""
    watch: bool = True
    """Sync when files change; otherwise only at the start, and by jobs."""
    keep_versions: int = Field(default=1, ge=0)
    """Number of earlier versions of a document that are stored, to compare and restore."""
    statistics: Literal["visible", "shared"] = "visible"
    """``shared``: hidden documents may influence scores, see `Document.restricted`."""
    labels: list[str] | dict[str, list[str]] = []
    """Labels of the files, or of those that match a pattern: ``{"hr/*" = ["hr"]}``."""

    @model_validator(mode="after")
    def _check(self) -> SetConfig:
        if self.store_conf is not None and self.store is not None:
            raise ValueError("must have store or store_conf, not both")
        if self.name is not None and self.store_conf is None:
            raise ValueError("must have a name only with store_conf")
        return self

    def label_overlaps(self) -> Iterator[str]:
        """A sentence for each pair of patterns with different labels that can match the same
        file.
        """
        rules = self.labels.items() if isinstance(self.labels, dict) else ()
        for (first, labels), (second, others) in itertools.combinations(rules, 2):
            if set(labels) != set(others) and _can_match_both(
                _any_letter(first), _any_letter(second)
            ):
                yield (
                    f"A file that matches {first!r} and {second!r} has the labels of both:"
                    f" {', '.join(sorted({*labels, *others}))}. A token with any of them sees it."
                    " To restrict it, let only one of the patterns match."
                )

    def build_arguments(self, docs: Document) -> JsonObject:
        """The arguments of the job that builds its groups."""
        embed_keys = list(docs.reader.embed_keys)
        return {"names": self.groups, "analysers": self.analysers, "embed_keys": embed_keys}

    def labels_of(self, path: Path) -> JsonObject | None:
        """Metadata of a file: its labels, for `file_metadata`."""
        patterns = self.labels if isinstance(self.labels, dict) else {"*": self.labels}
        name = path.name
        if self.path:
            name = path.absolute().relative_to(self.path.absolute()).as_posix()
        labels: dict[str, None] = {}
        for pattern, names in patterns.items():
            if fnmatch.fnmatch(name, pattern):
                labels.update(dict.fromkeys(names))
        return {"labels": list(labels)} if labels else None


_any_letter = functools.partial(re.compile(r"\[!?\]?[^\]]*\]").sub, "?")  # in place of brackets


@functools.cache
def _can_match_both(first: str, second: str) -> bool:
    """Whether there is a name that two patterns of `*`, `?` and letters match."""
    if not first or not second:
        return not (first + second).strip("*")
    if "*" in (first[0], second[0]):
        return _can_match_both(first[1:], second) or _can_match_both(first, second[1:])
    is_equal = first[0] == second[0] or "?" in (first[0], second[0])
    return is_equal and _can_match_both(first[1:], second[1:])


class Config(_Section):
    """The configuration."""

    server: ServerConfig
    limits: LimitsConfig = LimitsConfig()
    models: ModelsConfig = ModelsConfig()
    sets: dict[Annotated[str, Field(pattern=_SET)], SetConfig] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Config:
        if self.server.state.resolve() in {
            chosen.path.resolve() for chosen in self.sets.values() if chosen.path
        }:
            raise ValueError("server.state must not be the folder of a set")
        stores = [
            (chosen.store or chosen.path, chosen.store_conf)
            for chosen in self.sets.values()
            if chosen.store or chosen.path
        ]
        if any(stores.count(store) > 1 for store in stores):
            raise ValueError("sets must have a store each, and two have the same; set their store")
        return self


def read_config(path: Path, *, store: Path | None = None, **server: Any) -> Config:
    """The configuration of a file, or the one that serves a folder. Its paths are absolute.

    Args:
        path: A TOML file, or a folder. Relative paths in the file are relative to it.
        store: Folder of the index instead of ``.lazyrag`` in the folder.
        server: Values that take precedence in ``[server]``; None for what the file has.

    Raises:
        ConfigError: If a key is unknown or has a wrong value; the message names it.
    """
    path = path.expanduser().absolute()
    overrides = without_none(server)
    if not path.is_file():
        if not path.is_dir():
            raise DatasetPathError(f"There is no folder or configuration file {path}.")
        state = (
            path / STATE_FOLDER
            if store is None
            else store.expanduser().absolute() / Path(STATE_FOLDER).name
        )
        name = re.sub(r"[^\w.-]+", "-", path.name).strip(".-") or "files"
        chat = os.environ.get("LAZYRAG_MODEL", read_defaults().get("chat", ""))
        table = {
            "server": {"state": state, **overrides},
            "models": {"chat": f"openai:{chat}" if chat else ""},
            "sets": {name: {"path": path, "store": store}},
        }
        return _validate("", table, Path.cwd())
    if store is not None:
        raise ConfigError(
            f"--store is for a folder; got it with the file {path}. Set sets.NAME.store there."
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path.name} cannot be read as TOML: {sentence(str(exc))}") from exc
    if isinstance(table.get("server", {}), dict):
        table["server"] = {**table.get("server", {}), **overrides}
    return _validate(f"{path.name}: ", table, path.parent)


def _validate(where: str, table: Mapping[str, Any], folder: Path) -> Config:
    try:
        return Config.model_validate(table, context=folder)
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
    place = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        section: Any = SetConfig if place[0] == "sets" else Config
        if len(place) == 2:  # noqa: PLR2004
            section = Config.model_fields[place[0]].annotation
        raise ConfigError(
            f"{where}Unknown key {'.'.join(place)}. {known_names(place[-1], section.model_fields)}"
        )
    if error["type"] == "missing":
        raise ConfigError(
            f"{where}{'.'.join(place)} is missing. A set is a table such as [sets.notes] with a"
            " path."
        )
    # pydantic's own
    name = ".".join(part for part in place if not re.match(r"(list|dict)\[|\[key\]", part))
    raise ConfigError(
        f"{where}{name} {expectation(error).replace('an object', 'a table')}.".replace(":  ", ": ")
    )


def expectation(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, of an error of pydantic: ``must be a valid integer; got 'x'``."""
    expected = _EXPECTED.get(error.get("ctx", {}).get("pattern", error["type"]))
    if expected is None:
        expected = re.sub(
            r"^(Value error, )?(Input|String|List|Dictionary)? ?(should|must)", "must", error["msg"]
        )
        expected = re.sub(
            r"^Value error, |, unable to .*| after validation, not \d+$", "", expected
        )
    value = error["input"]
    return (
        f"{expected}; got {value!r}"
        if isinstance(value, (str, int, float)) and len(str(value)) <= 80
        else expected
    )


def make_state(state: Path) -> None:
    """Make the state folder, for this user only, even if it is in one that others can read, or that
    is served.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in ("keys", "sets", "uploads"):
        (state / name).mkdir(exist_ok=True, mode=0o700)
    for name in ("access.db", "answers.db", "openai.db", "sets.db"):
        (state / name).touch(mode=0o600)
    if not (ignored := state / ".lazyragignore").exists():
        ignored.write_text("*\n", encoding="ascii")


def load_object(target: str) -> Any:
    """The object that ``module:attribute`` names.

    Raises:
        ConfigError: If it cannot be imported.
    """
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        msg = f"{target!r} must name an importable object as module:attribute; {exc}."
        raise ConfigError(
            f"{msg} Modules are found beside the configuration file and where Python finds them."
        ) from exc


def open_set(
    name: str, chosen: SetConfig, state: Path, *, write: bool, fields: str | None = "labels"
) -> Document:
    """Open the Document of a set.

    Args:
        name: Of the set.
        chosen: Its configuration.
        state: The folder of the service, where sets without files have their stores.
        write: Open it for writing, or read-only.
        fields: Field to declare in the index of a folder; None for what it has.

    Raises:
        StoreError: If there is nothing to read yet.
        ConfigError: If the embedding model is not on this machine.
    """
    from lazyrag.text.analyzers import term_function

    # Readers have the files, too: to send them, and to estimate a sync.
    has_files = chosen.path is not None and (write or chosen.path.is_dir())
    options: dict[str, Any] = {"file_metadata": None}
    if chosen.labels and has_files:
        options["file_metadata"] = chosen.labels_of
    if write:
        options |= {"keep_versions": chosen.keep_versions, "launcher": chosen.launcher}
        if has_files:
            from lazyrag.document import FileSelection

            options["files"] = FileSelection(chosen.include, chosen.exclude)
    if chosen.path is None or chosen.store_conf is not None or _is_python_object(chosen.embed):
        docs = _open_store(name, chosen, state, options, write=write, has_files=has_files)
    else:
        project = new_project(chosen.path, chosen.store)
        project = project.with_options(embed=chosen.embed, fields=fields)
        docs = project.open(write=write, with_files=has_files, loading=chosen.loading, **options)
        if write:
            project.save()
    if chosen.setup:
        load_object(chosen.setup)(docs)
    if write:
        for group in chosen.groups:
            docs.reader.line(group)  # raises if there is no such group
        for analyser in chosen.analysers:
            term_function(analyser)
    return docs


def _is_python_object(embed: str | None) -> bool:
    """Whether an embedding model is given as ``module:attribute``."""
    return embed is not None and ":" in embed and not embed.startswith("openai:")


def _open_store(
    name: str,
    chosen: SetConfig,
    state: Path,
    options: dict[str, Any],
    *,
    write: bool,
    has_files: bool,
) -> Document:
    """Open the Document of a set that is no project of the command line."""
    from lazyrag.document import Document
    from lazyrag.ingest.load_files import parse_loading

    embed: Any = chosen.embed or None
    if _is_python_object(chosen.embed):
        embed = load_object(chosen.embed or "")
    folder = chosen.store or (chosen.path / ".lazyrag" if chosen.path else state / "sets" / name)
    if write and chosen.store_conf is None:
        folder.mkdir(parents=True, exist_ok=True)
    return Document(
        chosen.path if has_files else None,
        embed,
        store_conf=chosen.store_conf or Project(folder, folder).store_conf,
        name=chosen.name,
        doc_fields=label_fields(),
        read_only=not write,
        **options,
        **parse_loading(chosen.loading),
    )


def open_chat(chosen: ModelsConfig) -> Any:
    """The chat model; None without one."""
    from lazyrag.models import HttpChatModel

    return _open_model(chosen.chat, chosen.url, HttpChatModel)


def open_rerank(chosen: ModelsConfig) -> Any:
    """The rerank model; None without one."""
    from lazyrag.models import HttpRerankModel
    from lazyrag.models.local import local_rerank_model

    if chosen.rerank and ":" not in chosen.rerank:
        return local_rerank_model(chosen.rerank)
    return _open_model(chosen.rerank, chosen.url, HttpRerankModel)


def _open_model(target: str, url: str, of_endpoint: Any) -> Any:
    kind, _, name = target.partition(":")
    if kind != "openai":
        return load_object(target) if target else None
    address = url or base_url()
    return of_endpoint(address, name, api_key=api_key(address))
