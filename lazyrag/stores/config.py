"""``store_conf``: checked before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lazyrag.errors import ConfigError, StoreError, known_names
from lazyrag.registry import Registry
from lazyrag.stores.protocol import Located, Location, SegmentStore, VectorStore, segment_stores, vector_stores
from lazyrag.stores.sqlite import MapFileSegmentStore, StoreFile
from lazyrag.validation import check_keywords, required_names

T = TypeVar("T", SegmentStore, VectorStore)

_PARTS = ("segment_store", "vector_store", "ledger")
_ENTRY_KEYS = ("type", "kwargs")

# What spec 001 names for each type: required, then optional keyword arguments.
_SPEC_KWARGS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "map": ((), ("uri", "timeout_s")),
    "opensearch": (("uris", "client_kwargs"), ("index_kwargs",)),
    "chromadb": ((), ("uri", "dir", "index_kwargs", "client_kwargs", "exact_rows", "timeout_s")),
    "milvus": (("uri",), ("db_name", "client_kwargs", "index_kwargs")),
}
_SPEC_TYPES = {"segment_store": ("map", "opensearch"), "vector_store": ("map", "chromadb", "milvus")}
_TIMEOUT_S = 30.0
_ALIASES = {"chroma": "chromadb"}


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """One store as configured: its registered type and its keyword arguments."""

    type: str = "map"
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenStores:
    """What a Document keeps its nodes in.

    Args:
        segments: The open segment store.
        vectors: The open vector store.
        files: The open store files behind them, that of the ledger first.
    """

    segments: SegmentStore
    vectors: VectorStore
    files: tuple[StoreFile, ...]

    @property
    def ledger(self) -> StoreFile:
        """The file that the ledger lies in."""
        return self.files[0]

    def close(self) -> None:
        """Let go of all of it; twice does no harm."""
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
        ledger: Path of the ledger's file; None where it lies with the ``map`` segment store.
        vectors_named: Whether the vector store was chosen, or follows from the segment store.
    """

    segment: StoreChoice = StoreChoice()
    vector: StoreChoice = StoreChoice()
    ledger: str | None = None
    vectors_named: bool = True

    @classmethod
    def parse(cls, store_conf: Mapping[str, Any] | None) -> StoreConf:
        """Read spec 001's ``{"segment_store": {"type", "kwargs"}, "vector_store": {"type", "kwargs"}}``.

        Args:
            store_conf: Either part may be left out: it is ``map``, in memory. None means both.

        Raises:
            ConfigError: If a key, a type or a keyword argument is unknown, or a required one is missing.
            MissingDependencyError: If a store of others needs a package that is not installed.

        Example:
            >>> StoreConf.parse({"vector_store": {"type": "map"}}).segment.type
            'map'
        """
        if store_conf is None:
            return cls()
        if not isinstance(store_conf, Mapping):
            msg = f"store_conf is {store_conf!r}; give a mapping with the keys segment_store and vector_store."
            raise ConfigError(msg)
        _check_keys("store_conf", store_conf, _PARTS)
        parts = [part for part in _PARTS[:2] if part in store_conf]
        choices = {part: _choice(part, store_conf[part]) for part in parts}
        segment, vector = choices.get("segment_store"), choices.get("vector_store")
        ledger = _ledger_path(store_conf.get("ledger"))
        named = vector is not None
        # The one that is not named, or that names no file, lies with the other one.
        segment = _placed(segment or StoreChoice(), vector or StoreChoice(), ledger)
        vector = _placed(vector or StoreChoice(), segment, ledger)
        places = [place for place in map(_location, (segment, vector)) if place is not None]
        if ledger is None and segment.type != "map":
            ledger = _uri(vector) or next((_file_beside(place) for place in places if not place.is_server), None)
        if places and ledger is None and _uri(segment) is None:
            msg = (
                f"store_conf keeps nodes or vectors at {places[0].address}, and names no file for the ledger, which "
                "lists what is there. Give store_conf['ledger'], the path of a file on this machine, or a segment "
                "store of type 'map' with a 'uri'."
            )
            raise ConfigError(msg)
        if ledger is not None and (_in_memory(segment) or _in_memory(vector)):
            msg = (
                "store_conf names a ledger, which is kept, and a store that lies in memory and is not: the ledger "
                "would list what is gone. Give the map store a 'uri', or leave the ledger out."
            )
            raise ConfigError(msg)
        return cls(segment, vector, ledger, named)

    @property
    def ledger_file(self) -> Path | None:
        """Where the ledger lies; None if that is in memory."""
        path = self.ledger or _uri(self.segment)
        return None if path is None else _resolved(path)

    @property
    def places(self) -> list[Path]:
        """The files and folders of this machine that it names: that of the ledger, and those of the stores."""
        stores = (self.segment, self.vector)
        held = [place.address for place in map(_location, stores) if place is not None and not place.is_server]
        named = [self.ledger, *map(_uri, stores), *held]
        return list(dict.fromkeys(_resolved(path) for path in named if path is not None))

    def check_use(self, name: str | None, *, embeds: bool) -> None:
        """Whether a Document can be kept there.

        Args:
            name: Its name, None if it was given none.
            embeds: Whether it has embeddings.

        Raises:
            ConfigError: If it shares a server with others and has no name of its own, or nowhere to keep vectors.
        """
        servers = [place for place in map(_location, (self.segment, self.vector)) if place and place.is_server]
        if servers and name is None:
            msg = (
                f"The Document has no name, and its nodes or vectors lie on the server at {servers[0].address}: "
                "collections there are called after their Document, and nobody could tell whose these are. "
                "Give Document(name=...)."
            )
            raise ConfigError(msg)
        if embeds and self.segment.type != "map" and not self.vectors_named:
            msg = (
                f"The Document has an embed, and its store_conf names the segment store {self.segment.type!r} and no "
                "vector store. Name one: 'chromadb', 'milvus', or 'map' with a 'uri', the path of a file."
            )
            raise ConfigError(msg)

    def open(self, *, read_only: bool = False) -> OpenStores:
        """Make both stores and open them, and the ledger's file; what is open is closed again if another one fails.

        Raises:
            StoreError: If a file or a server cannot be reached, or is damaged.
        """
        with ExitStack() as undo:
            files: dict[str | None, StoreFile] = {}

            waits = [
                one.kwargs["timeout_s"]
                for one in (self.segment, self.vector)
                if one.type == "map" and "timeout_s" in one.kwargs
            ]
            timeout_s = float(waits[0]) if waits else _TIMEOUT_S

            def file_of(uri: str | None) -> StoreFile:
                place = None if uri is None else os.path.abspath(os.path.expanduser(uri))  # noqa: PTH100, PTH111  texts
                if place not in files:
                    files[place] = undo.enter_context(
                        StoreFile(place, read_only=read_only and place is not None, timeout_s=timeout_s)
                    )
                return files[place]

            # What may not be there or not answer comes first: no file is made for it.
            segments = _opened(self.segment, segment_stores, undo)
            vectors = _opened(self.vector, vector_stores, undo)
            uri = _uri(self.segment)
            file_of(self.ledger or uri)
            if segments is None:
                segments = MapFileSegmentStore(file_of(uri))
            if vectors is None:
                vectors = _vector_store(file_of(_uri(self.vector)))
            undo.pop_all()
        return OpenStores(segments, vectors, tuple(files.values()))


def _opened(choice: StoreChoice, registry: Registry[type[T]], undo: ExitStack) -> T | None:
    """A store that brings its own place, open; None for one that lies in a store file."""
    if _uri(choice) is not None:
        return None
    store = registry[choice.type](**choice.kwargs)
    undo.callback(_close, store)
    store.open()
    return store


def _in_memory(choice: StoreChoice) -> bool:
    """A ``map`` store without a file; how long it would wait for one says nothing."""
    return choice.type == "map" and _uri(choice) is None


def _uri(choice: StoreChoice) -> str | None:
    """The file of a ``map`` store; None for one in memory, and for others."""
    uri = choice.kwargs.get("uri") if choice.type == "map" else None
    return None if uri is None else os.fspath(uri)


def _resolved(path: str) -> Path:
    return Path(path).expanduser().resolve()


def _close(store: SegmentStore | VectorStore) -> None:
    """After another failure, which is what the user must hear."""
    with suppress(StoreError):
        store.close()


def _vector_store(file: StoreFile) -> VectorStore:
    from lazyrag.stores.sqlite import (
        MapFileVectorStore,  # with it numpy's index, which the other one needs as well
    )

    return MapFileVectorStore(file)


def _placed(choice: StoreChoice, other: StoreChoice, ledger: str | None) -> StoreChoice:
    """A ``map`` store without a file gets that of the other store, or of the ledger, if there is one."""
    if not _in_memory(choice):
        return choice
    if other.type == "map":
        path = _uri(other)
    else:
        place = _location(other)
        path = ledger or (None if place is None or place.is_server else _file_beside(place))
    return StoreChoice() if path is None else StoreChoice("map", {**choice.kwargs, "uri": path})


def _location(choice: StoreChoice) -> Location | None:
    """Where a store of another type than ``map`` is, if that is known; its arguments are checked by that."""
    if choice.type == "map":
        return None
    registry: Registry[Any] = segment_stores if choice.type in segment_stores else vector_stores
    of_type = registry[choice.type]
    if not hasattr(of_type, "location"):
        return None
    store: Located = of_type(**choice.kwargs)
    return store.location


def _file_beside(place: Location) -> str:
    """The file for what a store that lies on the disk does not keep."""
    return f"{os.path.normpath(place.address)}.lazyrag.db"


def _ledger_path(entry: Any) -> str | None:
    if entry is None:
        return None
    if isinstance(entry, (str, os.PathLike)):
        return os.fspath(entry)
    msg = f"store_conf['ledger'] is {entry!r}; give the path of the file that the ledger is to lie in."
    raise ConfigError(msg)


def _choice(part: str, entry: Any) -> StoreChoice:
    where = f"store_conf[{part!r}]"
    if not isinstance(entry, Mapping):
        msg = f"{where} is {entry!r}; give {{'type': ..., 'kwargs': {{...}}}}."
        raise ConfigError(msg)
    _check_keys(where, entry, _ENTRY_KEYS)
    given = entry.get("type", "map")
    kind = _ALIASES.get(given, given) if isinstance(given, str) else given
    registry = segment_stores if part == "segment_store" else vector_stores
    if not isinstance(kind, str) or (kind not in registry and kind not in _SPEC_TYPES[part]):
        known = {*registry, *_SPEC_TYPES[part]}
        msg = f"{where}['type'] is {given!r}. {known_names(str(given), known)}"
        raise ConfigError(msg)
    kwargs = {} if entry.get("kwargs") is None else entry["kwargs"]
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        msg = f"{where}['kwargs'] is {kwargs!r}; give a mapping of keyword arguments."
        raise ConfigError(msg)
    where = f"{where}['kwargs']"
    if kind in _SPEC_KWARGS:
        required, optional = _SPEC_KWARGS[kind]
        _check_keys(where, kwargs, (*required, *optional))
    else:
        required = tuple(required_names(registry[kind], skip=0))
        check_keywords(f"{where}: a store of type {kind!r}", registry[kind], kwargs, skip=0)
    missing = [name for name in required if name not in kwargs]
    if missing:
        msg = f"{where} lacks {missing[0]!r}, which a store of type {kind!r} needs."
        raise ConfigError(msg)
    if kind in _SPEC_KWARGS:
        _check_spec_values(where, kind, kwargs)
    return StoreChoice(kind, dict(kwargs))


def _check_spec_values(where: str, kind: str, kwargs: Mapping[str, Any]) -> None:
    if kind == "map" and "uri" in kwargs and not (isinstance(kwargs["uri"], (str, os.PathLike)) and kwargs["uri"]):
        msg = f"{where}['uri'] is {kwargs['uri']!r}; give the path of a file, which is made where there is none."
        raise ConfigError(msg)
    timeout_s = kwargs.get("timeout_s", _TIMEOUT_S)
    if kind == "map" and (isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or timeout_s < 0):
        msg = f"{where}['timeout_s'] is {timeout_s!r}; give how many seconds to wait for another program's lock."
        raise ConfigError(msg)
    if kind == "chromadb" and ("uri" in kwargs) == ("dir" in kwargs):
        msg = f"{where} for chromadb takes 'uri' for a server or 'dir' for a folder: give exactly one of them."
        raise ConfigError(msg)
    for name in ("client_kwargs", "index_kwargs"):
        value = kwargs.get(name, {})
        several = isinstance(value, (list, tuple)) and name == "index_kwargs" and kind == "milvus"
        if not all(isinstance(one, Mapping) for one in (value if several else [value])):
            allowed = "a mapping, or a list of mappings" if kind == "milvus" else "a mapping"
            msg = f"{where}[{name!r}] is {value!r}; give {allowed}."
            raise ConfigError(msg)


def _check_keys(where: str, given: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for name in given:
        if name not in allowed:
            msg = f"{where} has the key {name!r}. {known_names(str(name), allowed)}"
            raise ConfigError(msg)
