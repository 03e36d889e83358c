"""Parse ``store_conf``, and open the stores that it names."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from lazyrag.data.segment import digest
from lazyrag.errors import ConfigError, StoreDamagedError, StoreError, known_names
from lazyrag.registry import Registry
from lazyrag.storage.arrays import locked, torn_marks
from lazyrag.storage.database import DatabaseUrl, is_server
from lazyrag.stores.protocol import (
    EXACT_ROWS,
    SearchPlace,
    SegmentStore,
    StoreLocation,
    VectorStore,
    local_path,
    segment_stores,
    set_aside,
    vector_stores,
)
from lazyrag.stores.sqlite import MapFileSegmentStore, StoreFile
from lazyrag.types import Keywords, PathLike
from lazyrag.validation import (
    check_keywords,
    require,
    required_names,
    validate_choice,
    validate_integer,
    validate_mapping,
    validate_range,
)

T = TypeVar("T", SegmentStore, VectorStore)

_TIMEOUT_S = 30.0
_ANALYSERS = ("en", "zh")  # whose terms a store in PostgreSQL indexes by default
_URLS = {"milvus": "uri", "opensearch": "uris"}  # and the argument with the address
_PLACES = {"chromadb": "dir", "map": "uri", **_URLS}
"""The argument with the place of a store, by type."""
_BESIDE = ("ledger", "search", "exact_rows")
_ALIASES = {"chroma": "chromadb", "memory": "map", "postgresql": "map", "sqlite": "map"}


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """One store as configured: its registered type and its keyword arguments."""

    type: str = "map"
    kwargs: Keywords = field(default_factory=dict)

    @property
    def uri(self) -> str | None:
        """The file or URL of a ``map`` store; None for one in memory, and for other types."""
        uri = self.kwargs.get("uri") if self.type == "map" else None
        return None if uri is None else os.fspath(uri)

    @property
    def is_in_memory(self) -> bool:
        """Whether it is lost when the program ends: ``map`` without a file, Chroma without a server
        or a folder.
        """
        if self.type == "chromadb":
            return not {"uri", "dir"}.intersection(self.kwargs)
        return self.type == "map" and self.uri is None

    @property
    def location(self) -> StoreLocation | None:
        """The location of a store of another type than ``map``, if it has one. Making the store
        checks its kwargs.
        """
        if self.type == "map":
            return None
        registry: Registry[Any] = segment_stores if self.type in segment_stores else vector_stores
        store_class = registry[self.type]
        if not hasattr(store_class, "location"):
            return None
        location: StoreLocation | None = store_class(**self.kwargs).location
        return location

    def placed_with(self, other: StoreChoice, ledger: str | None) -> StoreChoice:
        """Put a ``map`` store without a file into that of the other store, or of the ledger, if
        there is one.
        """
        if self.type != "map" or self.uri is not None:
            return self
        path = other.uri
        if other.type != "map":
            location = other.location
            path = ledger or (
                None if location is None or location.is_server else _file_beside(location)
            )
        return StoreChoice() if path is None else StoreChoice("map", {**self.kwargs, "uri": path})


@dataclass(frozen=True, slots=True)
class OpenStores:
    """The open stores of a Document.

    Args:
        segments: The segment store.
        vectors: The vector store.
        files: The open store files behind them, that of the ledger first.
    """

    segments: SegmentStore
    vectors: VectorStore
    files: tuple[StoreFile, ...]

    @property
    def ledger(self) -> StoreFile:
        """The file of the ledger."""
        return self.files[0]

    def close(self) -> None:
        """Close all of them. Idempotent."""
        with ExitStack() as stack:  # each is closed, even if another one cannot be
            for file in self.files:
                stack.callback(file.close)
            stack.callback(self.segments.close)
            stack.callback(self.vectors.close)


@dataclass(frozen=True, slots=True)
class StoreConf:
    """Both stores of a Document, and its ledger.

    Args:
        segment: The segment store.
        vector: The vector store.
        ledger: Path of the ledger's file; None where the ``map`` segment store has it.
        vectors_named: Whether the vector store was configured, or follows from the segment store.
        search: Where queries are ranked; None: where each store does it by default.
        exact_rows: How many nodes of a group an exact search may read from a server.
    """

    segment: StoreChoice = StoreChoice()
    vector: StoreChoice = StoreChoice()
    ledger: str | None = None
    vectors_named: bool = True
    search: SearchPlace | None = None
    exact_rows: int = EXACT_ROWS

    @classmethod
    def parse(
        cls,
        store_conf: Mapping[str, Any] | PathLike | None,
        dataset: Path | None = None,
    ) -> StoreConf:
        """Parse spec 001's ``{"segment_store": {"type", "kwargs"},
        "vector_store": {"type", "kwargs"}}``.

        A part that is missing, or names no file, is stored with the other one. Beside them:
        ``"ledger"``, the file of the ledger; ``"search"``, ``"exact"`` or ``"server"``; and
        ``"exact_rows"``, how many nodes of a group on a server an exact search may read.

        Args:
            store_conf: The default of both parts, and of None, is ``map`` in memory. A path or a
                URL of PostgreSQL is the ``uri`` of a ``map`` store;
                ``milvus://[USER:PASSWORD@]HOST:PORT`` and
                ``opensearch://[USER:PASSWORD@]HOST:PORT``, over TLS with a password, name these. A
                flat mapping with a ``"type"`` has the keyword arguments of one store beside it.
            dataset: The dataset's folder; with a server and no other place for the ledger it is in
                ``.lazyrag`` there.

        Raises:
            ConfigError: If a key, a type or a keyword argument is unknown, or a required one is
                missing.
            MissingDependencyError: If a third party's store needs a package that is not installed.

        Example:
            >>> StoreConf.parse({"vector_store": {"type": "map"}}).segment.type
            'map'
        """
        if store_conf is None:
            return cls()
        if isinstance(store_conf, (str, os.PathLike)):
            return cls.parse(_conf_of_uri(os.fspath(store_conf)), dataset)
        if isinstance(store_conf, Mapping) and "type" in store_conf:
            store_conf = _conf_of_flat(store_conf)
        parts = ("segment_store", "vector_store", *_BESIDE)
        conf: Mapping[str, Any] = validate_mapping("store_conf", store_conf, parts)
        segment = _parse_store("segment_store", conf, segment_stores)
        vector = _parse_store("vector_store", conf, vector_stores)
        search = conf.get("search")
        if search is not None:
            validate_choice("store_conf['search']", search, ("exact", "server"))
        exact_rows = conf.get("exact_rows", EXACT_ROWS)
        if exact_rows is not EXACT_ROWS:
            validate_integer("store_conf['exact_rows']", exact_rows, 0)
        ledger = conf.get("ledger")
        if ledger is not None:
            ledger = _path("store_conf['ledger']", ledger)
        segment = segment.placed_with(vector, ledger)
        vector = vector.placed_with(segment, ledger)
        locations = list(filter(None, (segment.location, vector.location)))
        if ledger is None and segment.type != "map":
            ledger = vector.uri or _file_beside_any(locations)
        if locations and ledger is None and segment.uri is None:
            if dataset is not None:
                return cls.parse({**conf, "ledger": dataset / ".lazyrag" / "ledger.db"})
            raise ConfigError(
                f"store_conf stores nodes or vectors at {locations[0].address}, and no file for the"
                " ledger, which lists them. Give store_conf['ledger'], the path of a file on this"
                " machine, a segment store of type 'map' with a 'uri', or"
                " Document(dataset_path=...), a folder."
            )
        parsed = cls(segment, vector, ledger, "vector_store" in conf, search, exact_rows)
        parsed._check_memory()
        return parsed

    def _check_memory(self) -> None:
        """Refuse a ledger in a file beside a store in memory."""
        is_in_file = (self.ledger or self.segment.uri) is not None
        if is_in_file and (self.segment.is_in_memory or self.vector.is_in_memory):
            raise ConfigError(
                "store_conf has a ledger in a file, and a store in memory, which is lost when the"
                " program ends. Give the map store a 'uri', chromadb a 'dir', or leave the file"
                " out."
            )

    @property
    def ledger_file(self) -> Path | None:
        """The file of the ledger; None if it is in memory."""
        path = self.ledger or self.segment.uri
        return None if path is None else _resolve(path)

    @property
    def paths(self) -> list[Path]:
        """The files and folders on this machine: that of the ledger, and those of the stores."""
        locations = (self.segment.location, self.vector.location)
        folders = [
            location.address
            for location in locations
            if location is not None and not location.is_server
        ]
        paths = [self.ledger, self.segment.uri, self.vector.uri, *folders]
        return list(
            dict.fromkeys(
                _resolve(path) for path in paths if path is not None and not is_server(path)
            )
        )

    def check_use(self, name: str | None, dataset: Path | None = None, *, embeds: bool) -> str:
        """Check that the configuration suits a Document, and return its name.

        Args:
            name: Its name, None if it has none.
            dataset: The dataset's folder; on a server it gives the name.
            embeds: Whether it has embeddings.

        Raises:
            ConfigError: If it is on a shared server and has no name, or has no store for its
                vectors.
        """
        locations = (self.segment.location, self.vector.location)
        servers = [
            location for location in locations if location is not None and location.is_server
        ]
        if servers and name is None and dataset is not None:
            # All of it is in the readable part of the names of collections.
            name = f"{dataset.name[:4]}-{digest([str(dataset)])[:6]}"
        if servers and name is None:
            raise ConfigError(
                "The Document has no name, and its nodes or vectors are on the server at"
                f" {servers[0].address}, where collections are named after their Document. Give"
                " Document(name=...), or a folder as dataset_path."
            )
        if embeds and self.segment.type != "map" and not self.vectors_named:
            raise ConfigError(
                "The Document has an embed, and its store_conf names the segment store"
                f" {self.segment.type!r} and no vector store. Name one: 'chromadb', 'milvus', or"
                " 'map' with a 'uri', the path of a file."
            )
        return name or "default"

    def open(self, *, read_only: bool = False) -> OpenStores:
        """Open both stores and the file of the ledger; if one fails, those that are open are closed
        again.

        Raises:
            StoreError: If a file or a server cannot be reached, or is damaged.
        """
        waits = [
            choice.kwargs["timeout_s"]
            for choice in (self.segment, self.vector)
            if choice.type == "map" and "timeout_s" in choice.kwargs
        ]
        timeout_s = float(waits[0]) if waits else _TIMEOUT_S
        with ExitStack() as undo:
            files = {}

            def file_of(uri: str | None) -> StoreFile:
                path = (
                    uri
                    if uri is None or is_server(uri)
                    else os.path.abspath(os.path.expanduser(uri))  # noqa: PTH100, PTH111
                )
                if path not in files:
                    file = StoreFile(
                        path, read_only=read_only and path is not None, timeout_s=timeout_s
                    )
                    files[path] = undo.enter_context(file)
                return files[path]

            # Stores that may be unreachable come first: no file is created for them.
            segments = _open(self.segment, segment_stores, undo, read_only=read_only)
            vectors = _open(self.vector, vector_stores, undo, read_only=read_only)
            file_of(self.ledger or self.segment.uri)
            if segments is None:
                segments = _segments_in(file_of(self.segment.uri), self.segment)
            if vectors is None:
                vectors = _vectors_in(file_of(self.vector.uri))
            StoreFile.keep_in_order(tuple(files.values()))
            undo.pop_all()
        return OpenStores(segments, vectors, tuple(files.values()))


def _conf_of_uri(uri: str) -> dict[str, Any]:
    """Spec 001's form of a path or a URL."""
    hint = "Or pass {'type': ..., 'uri': ...}, of OpenSearch 'uris'."
    is_type = uri in segment_stores or uri in vector_stores
    conf = "a mapping with the keys segment_store and vector_store, a path or a URL"
    require(not is_type, "store_conf", uri, conf, hint)
    scheme, _, rest = uri.partition("://")
    if scheme not in _URLS:
        return _conf_of_flat({"type": "map", "uri": uri})
    login, _, address = rest.rpartition("@")
    expected = "milvus://HOST:PORT or opensearch://HOST:PORT"
    is_address = bool(address) and not {*"/?"}.intersection(address)
    require(is_address, "store_conf", DatabaseUrl(uri), expected, hint)
    names = zip(("user", "password"), map(unquote, login.split(":", 1)), strict=False)
    client = dict(names) if login else {}
    if login:  # no password goes over plain HTTP
        address = f"https://{address}"
    return _conf_of_flat({"type": scheme, _URLS[scheme]: address, "client_kwargs": client})


def _conf_of_flat(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Spec 001's form of ``{"type": "milvus", "uri": "localhost:19530"}``."""
    kwargs = dict(flat)
    beside = {name: kwargs.pop(name) for name in _BESIDE if name in flat}
    kind = kwargs.pop("type")
    store_type = _store_type("store_conf['type']", kind, {*segment_stores, *vector_stores})
    part = "segment_store" if store_type in segment_stores else "vector_store"
    nested = validate_mapping("store_conf['kwargs']", kwargs.pop("kwargs", None) or {})
    repeated = sorted(map(str, nested.keys() & kwargs.keys()))
    if repeated:
        raise ConfigError(
            f"store_conf has {repeated[0]!r} twice: beside 'kwargs' and in it. Remove one of them."
        )
    kwargs |= nested
    return {part: {"type": store_type, "kwargs": kwargs}, **beside}


def _segments_in(file: StoreFile, choice: StoreChoice) -> SegmentStore:
    if not file.is_server:
        return MapFileSegmentStore(file)
    from lazyrag.stores.postgres import PostgresSegmentStore

    return PostgresSegmentStore(file, choice.kwargs.get("analysers", _ANALYSERS))


def _vectors_in(file: StoreFile) -> VectorStore:
    from lazyrag.stores.sqlite_vectors import MapFileVectorStore

    if not file.is_server:
        return MapFileVectorStore(file)
    from lazyrag.stores.postgres import PostgresVectorStore

    return PostgresVectorStore(file)


def _open(
    choice: StoreChoice, registry: Registry[type[T]], undo: ExitStack, *, read_only: bool
) -> T | None:
    """Open a store, an empty one if it cannot be read: a sync rebuilds it. None for one in a store
    file.
    """
    if choice.uri is not None:
        return None
    store = registry[choice.type](**choice.kwargs)
    undo.callback(_close, store)
    path = local_path(store)
    torn = torn_marks(path) if path is not None else []
    if torn and read_only:
        raise StoreDamagedError(
            f"A power cut may have torn the store {path}. Open the Document without read_only=True:"
            " that rebuilds it.",
            store=str(path),
        )
    with locked(Path(f"{path}").parent) if torn else nullcontext():
        # another program may have set the store aside meanwhile
        torn = [mark for mark in torn if mark.exists()]
        if torn and Path(f"{path}").exists():
            set_aside(store, "A power cut ended the program that wrote it.")
        else:
            _open_or_set_aside(store, can_rebuild=not read_only and path is not None)
        for mark in torn:
            mark.unlink(missing_ok=True)
    return store


def _open_or_set_aside(store: SegmentStore | VectorStore, *, can_rebuild: bool) -> None:
    try:
        store.open()
    except StoreDamagedError as exc:
        if not can_rebuild:
            raise
        damage = str(exc)
    else:
        return
    set_aside(store, damage)


def _close(store: SegmentStore | VectorStore) -> None:
    """Close a store after another failure, which is the one to report."""
    with suppress(StoreError):
        store.close()


def _resolve(path: str) -> Path:
    if is_server(path):
        from lazyrag.storage.postgres import local_copy

        return local_copy(path)
    return Path(path).expanduser().resolve()


def _file_beside(location: StoreLocation) -> str:
    """The file for the other data of a Document with a store on this machine."""
    return f"{os.path.normpath(location.address)}.lazyrag.db"


def _path(name: str, value: Any) -> str:
    if is_server(value):
        return DatabaseUrl(value)
    is_other_url = isinstance(value, str) and re.match(r"[a-zA-Z][\w+.-]*://", value) is not None
    hint = ""
    if is_other_url:
        hint = "For a server pass store_conf='milvus://HOST:PORT' or 'opensearch://HOST:PORT'."
        value = DatabaseUrl(value)
    if value == ":memory:":
        hint = "For a store in memory leave it out."
    is_path = isinstance(value, (str, os.PathLike)) and bool(value) and not hint
    expected = "the path of a file, created if missing, or the URL of a PostgreSQL database"
    require(is_path, name, value, expected, hint)
    return str(os.fspath(value))


def _parse_store(part: str, store_conf: Mapping[str, Any], registry: Registry[Any]) -> StoreChoice:
    if part not in store_conf:
        return StoreChoice()
    where = f"store_conf[{part!r}]"
    entry = store_conf[part]
    validate_mapping(where, entry, ("type", "kwargs"))
    type_name = entry.get("type", "map")
    kind = _store_type(f"{where}['type']", type_name, registry)
    where = f"{where}['kwargs']"
    kwargs = {} if entry.get("kwargs") is None else validate_mapping(where, entry["kwargs"])
    require(
        all(isinstance(name, str) for name in kwargs),
        where,
        kwargs,
        "a mapping of keyword arguments",
    )
    misnamed = next((name for name in ("path", "file", "url") if name in kwargs), None)
    if kind in _PLACES and misnamed is not None:
        place = _PLACES[kind]
        raise ConfigError(f"{where} has the unknown key {misnamed!r}. Did you mean {place!r}?")
    if kind == "map":
        kwargs = _parse_map_kwargs(where, kwargs, in_memory=type_name == "memory")
    else:
        check_keywords(f"{where}: a store of type {kind!r}", registry[kind], kwargs, skip=0)
    for name in _required(type_name, registry):
        if name not in kwargs:
            raise ConfigError(f"{where} lacks {name!r}, which a store of type {type_name!r} needs.")
    if kind == "chromadb" and {"uri", "dir"} <= kwargs.keys():
        raise ConfigError(
            f"{where} for chromadb takes 'uri' (a server) or 'dir' (a folder), or none of them for"
            " memory."
        )
    return StoreChoice(kind, dict(kwargs))


def _file_beside_any(locations: Iterable[StoreLocation]) -> str | None:
    """A file for the ledger beside the first store on this machine."""
    for location in locations:
        if not location.is_server:
            return _file_beside(location)
    return None


def _store_type(where: str, type_name: Any, registry: Collection[str]) -> str:
    """The registered type that a configuration names, by its name or an alias."""
    if isinstance(type_name, str):
        kind = type_name if type_name in registry else _ALIASES.get(type_name, type_name)
        if kind in registry:
            return kind
    aliases = {alias for alias, name in _ALIASES.items() if name in registry}
    hint = known_names(str(type_name), {*registry, *aliases})
    raise ConfigError(f"{where} is unknown: {type_name!r}. {hint}")


def _parse_map_kwargs(where: str, kwargs: Keywords, *, in_memory: bool) -> Keywords:
    """Check the keyword arguments of the map store, and resolve its path."""
    # Accepted empty, as of every type, so that a program can switch types; a store file has no
    # client.
    if kwargs.get("client_kwargs") in ({}, None):
        kwargs = {name: value for name, value in kwargs.items() if name != "client_kwargs"}
    names = ("timeout_s",) if in_memory else ("uri", "timeout_s")
    if is_server(kwargs.get("uri")):
        names = (*names, "analysers")
    validate_mapping(where, kwargs, names)
    if "uri" in kwargs:
        kwargs = {**kwargs, "uri": _path(f"{where}['uri']", kwargs["uri"])}
    validate_range(f"{where}['timeout_s']", kwargs.get("timeout_s", _TIMEOUT_S), 0)
    return kwargs


def _required(type_name: str, registry: Registry[Any]) -> list[str]:
    """The required keyword arguments of a type or an alias."""
    if type_name in registry and type_name != "map":
        spec_names = ["client_kwargs"] if type_name == "opensearch" else []  # required by spec 001
        return [*required_names(registry[type_name], skip=0), *spec_names]
    return ["uri"] if type_name in ("postgresql", "sqlite") else []
