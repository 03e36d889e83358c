"""The protocols of segment stores and vector stores, and helpers to write one.

Both store rows in collections and do not depend on trees, files or query texts. The contract suites
in `lazyrag.testing` check every store against the sentences here.
"""

from __future__ import annotations

import functools
import math
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    runtime_checkable,
)

import numpy as np

from lazyrag.data.fields import DataType, DocField, Schema
from lazyrag.data.filters import And, Condition, Filter, Not, both, matches
from lazyrag.data.segment import EMPTY, Segment, digest
from lazyrag.errors import (
    ConfigError,
    IngestionWarning,
    SchemaMismatchError,
    StoreError,
    known_names,
    sentence,
    warn_user,
)
from lazyrag.indexes.dense import (
    DenseBlock,
    DenseIndex,
    DenseState,
    checked_queries,
)
from lazyrag.indexes.postings import Allocate, Masks
from lazyrag.indexes.sparse import SparseIndex, SparsePart, SparseState
from lazyrag.registry import Registry
from lazyrag.storage.arrays import Arrays
from lazyrag.types import (
    SPARSE,
    Embedding,
    Embeddings,
    Fields,
    FieldValue,
    Matrix,
    Metric,
    Ranking,
    SparseVector,
)

_FEW_BUILDS = 100  # of one node: its versions, and what waits to be purged
_UNSAFE = re.compile(r"[^a-z0-9]+")
_READABLE = 11  # "lr", two readable parts and 32 digits, joined by "_", stay within 60


def collection_name(
    document: str, group: str, fingerprint: str, embed_key: str | None = None
) -> str:
    """The name of the collection of a group's segments, or of its vectors under an embed key.

    At most 60 characters of a-z, 0-9 and ``_``, a letter first: valid in Milvus, Chroma, OpenSearch
    and SQL. Different arguments give different names, whatever characters they contain: beside
    readable parts there is a digest of all four (128 bits).

    Args:
        document: Name of the Document.
        group: Name of the node group.
        fingerprint: Of the group and those above it.
        embed_key: None for segments.

    Example:
        >>> name = collection_name("default", "doc-summary", "f1")
        >>> name.startswith("lr_default_doc_summary_")
        True
        >>> name == collection_name("default", "doc_summary", "f1")
        False
    """
    kind = "s" if embed_key is None else "v"
    full = digest([document, group, fingerprint, kind, embed_key or ""])
    return "_".join(part for part in ("lr", _readable(document), _readable(group), full) if part)


def collection_prefix(document: str) -> str:
    """The beginning of the names of a Document's collections, which may be that of others.

    Example:
        >>> collection_prefix("tea")
        'lr_tea_'
    """
    return f"lr_{_readable(document)}_"


def _readable(text: str) -> str:
    return _UNSAFE.sub("_", text.lower())[:_READABLE].strip("_")


Feature: TypeAlias = Literal[
    "persistent",
    "shared",
    "exact",
    "exact when small",
    "sparse",
    "approximate",
    "native vectors",
    "native text",
    "server",
]
"""Features beyond the contract; the suites in `lazyrag.testing` fail a store that declares one they
cannot test.

- ``persistent``: acknowledged writes are there after close and open.
- ``shared``: other processes can read acknowledged writes.
- ``exact``: search returns the true nearest rows, whatever their number.
- ``exact when small``: the same in collections of at most `ExactWhenSmall.exact_rows` rows.
- ``sparse``: there can be collections of sparse vectors; without it, their schema is refused.
- ``approximate``: the vector store is also `Approximate`.
- ``native vectors``: the vector store is also `NativeVectors`: its own search gives other answers
  than ``search``.
- ``native text``: the segment store is also `NativeText`.
- ``server``: its own ranking is the default search of a Document, see `SearchPlace`.
"""

SearchPlace: TypeAlias = Literal["exact", "server"]
"""Where queries are ranked: ``"exact"`` here, with the same scores and order on every store;
``"server"`` by the store, with its scores and its order.
"""

EXACT_ROWS = 1_000_000
"""Default of ``store_conf["exact_rows"]``."""


@dataclass(frozen=True, slots=True)
class VectorSchema:
    """The schema of a vector collection.

    Args:
        dimension: Length of every vector, at least 1; `lazyrag.types.SPARSE` where vectors are
            sparse.
        metric: The metric of `VectorStore.search`; higher scores are always closer. Sparse vectors
            need ``"ip"``.
        fields: The fields that filters may read.
        embed_key: The embed key of the vectors, for stores whose settings depend on it. Equality
            ignores it.
    """

    dimension: int
    metric: Metric
    fields: Schema
    embed_key: str = field(default="", compare=False)

    @property
    def is_sparse(self) -> bool:
        """Whether vectors are sparse."""
        return self.dimension == SPARSE


@dataclass(frozen=True, slots=True)
class VectorRow:
    """One stored vector.

    Args:
        key: The node's physical key.
        vector: (dimension,) float32, finite; or a dict from dimension to weight.
        fields: The fields that filters read.
    """

    key: str
    vector: Embedding
    fields: Fields = field(default_factory=lambda: EMPTY)


class Store(Protocol):
    """The common part of both kinds of store.

    Several threads may call every method at once. A store raises only `StoreError` and its
    subclasses, and ConfigError for arguments that are invalid in every store.
    """

    @property
    def features(self) -> frozenset[Feature]:
        """Its features beyond the contract; known once it is open."""

    def open(self) -> None:
        """Connect. Idempotent."""

    def close(self) -> None:
        """Close files and connections. Idempotent."""

    def drop(self, collection: str) -> None:
        """Remove a collection and its rows, if it exists."""

    def count(self, collection: str) -> int:
        """Number of rows; 0 for a collection without rows. StoreError for one that was never
        created.
        """

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """Delete by keys or by a bound filter, exactly one of them; returns the number of deleted
        rows.

        Unknown keys are ignored. An empty list of keys deletes nothing.
        """


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The location of a store's rows.

    Args:
        address: Path of a file or a folder, or the address of a server.
        is_server: Whether it is a server, which programs on other machines may use as well.
    """

    address: str
    is_server: bool


class Located(Protocol):
    """A store whose location is known before it is opened: the ledger of a Document lies beside a
    file or folder.

    A Document on a server must have a name, and its ledger a path in ``store_conf``.
    """

    @property
    def location(self) -> StoreLocation | None:
        """The location; None in memory."""


_TRANSIENT = (
    "lock",
    "space",
    "full",
    "permission",
    "read-only",
    "readonly",
    "too many",
    "memory",
    "i/o",
    "unable to open",
)


def is_damage(message: str) -> bool:
    """Whether the failure of a store on this machine means damaged data: not a lock, a full disk,
    or missing rights.

    Example:
        >>> is_damage("database disk image is malformed"), is_damage("database is locked")
        (True, False)
    """
    return not any(cause in message.lower() for cause in _TRANSIENT)


def local_path(store: object) -> str | None:
    """The file or folder of a store on this machine that is not a store file of lazyrag; None for
    any other.
    """
    location: StoreLocation | None = getattr(store, "location", None)
    return None if location is None or location.is_server else location.address


def set_aside(store: Store, why: str) -> None:
    """Rename the unreadable file or folder of a store on this machine, and open an empty one in its
    place.
    """
    path = Path(local_path(store) or "")
    store.close()
    renamed = path.rename(f"{path}.damaged-{time.time_ns()}")
    store.open()
    warn_user(
        f"{path} is unreadable and is rebuilt; the old one is {renamed.name}. {sentence(why)}",
        IngestionWarning,
    )


@runtime_checkable
class Checkable(Protocol):
    """A store that can check its data on disk."""

    def damage(self, collection: str) -> str:
        """Read a whole collection and describe its damage; "" for none."""


@runtime_checkable
class Compactable(Protocol):
    """A store that keeps deleted rows until it is asked to give their space back."""

    def compact(self, collection: str) -> None:
        """Rewrite a collection without its deleted rows."""


class SegmentStore(Store, Protocol):
    """Stores segments by key, in collections (spec 001's ``segment_store``)."""

    def create(self, collection: str, schema: Schema) -> None:
        """Create a collection, unless it exists. SchemaMismatchError if it exists with another
        schema.
        """

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """Write rows by key: a present row is replaced, never merged. On return they are readable
        by all.
        """

    def get(self, collection: str, keys: Sequence[str]) -> list[Segment]:
        """The present rows of some keys, in the order of the keys."""

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Segment]:
        """The next ``limit`` rows behind the one with the key ``after``, or the first ones. Pages
        cover all rows once.

        Their order is the store's own and depends on the keys alone (that of the texts, or that of
        the builds), so a page can begin behind a deleted row.
        """

    def builds_of(self, collection: str, uid: str) -> list[int]:
        """The builds of the present rows of a node, ascending."""


def builds_by_key(store: SegmentStore, collection: str, uid: str) -> list[int]:
    """`SegmentStore.builds_of` for a store whose order of rows is that of the keys as text."""
    builds = []
    after = f"{uid}-"
    while page := store.scan(collection, after=after, limit=_FEW_BUILDS):
        builds += [row.build for row in page if row.uid == uid]
        after = page[-1].key
        if page[-1].uid != uid:
            break
    return sorted(builds)


class VectorStore(Store, Protocol):
    """Stores vectors by key, in collections, and searches them (spec 001's ``vector_store``)."""

    def create(self, collection: str, schema: VectorSchema) -> None:
        """Create a collection, unless it exists. SchemaMismatchError if it exists with another
        schema.

        UnsupportedError for a sparse one, if the store does not declare ``"sparse"``; ConfigError
        for a metric that does not suit the vectors.
        """

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """Write rows by key: a present row is replaced.

        SchemaMismatchError, and nothing written, if a vector has another dimension or is of the
        other kind.
        """

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """The present rows of some keys, in the order of the keys."""

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """The next ``limit`` rows in key order whose key is greater than ``after``. Pages cover all
        rows once.
        """

    def search(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """For each of n vectors a ranking of at most topk (key, score): best first, ties by key.

        The vectors are the rows of an array (n, dimension), or a list of dicts where the collection
        is sparse. Higher scores are closer under every metric: cosine in [-1, 1], inner product, 1
        / (1 + distance) for L2. Only rows that meet the bound filter are ranked, and sparse ones
        only if they share a dimension with the query, whatever their score. ConfigError if topk is
        below 1, or a vector does not fit the collection.
        """


@runtime_checkable
class Approximate(Protocol):
    """A vector store that can also search faster than exactly. It declares the feature
    ``approximate``.
    """

    def search_approximately(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """As `VectorStore.search`, but other rows may take the places of some of the nearest ones.

        The number of rows is that of an exact ranking, and their scores are exact: best first, ties
        by key. The first search may build an index. ConfigError for sparse vectors.
        """


@runtime_checkable
class NativeVectors(Protocol):
    """A vector store that also offers its backend's own search. It declares the feature
    ``native vectors``.
    """

    def search_natively(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """The backend's own ranking, which may be short; the filter is exact.

        Scores mean the same as in `VectorStore.search`, as the backend rounds them; ties by key.
        """


@runtime_checkable
class ExactWhenSmall(Protocol):
    """A vector store that declares ``exact when small``."""

    @property
    def exact_rows(self) -> int:
        """Up to how many rows of a collection `VectorStore.search` is exact."""


@runtime_checkable
class ExactInScope(ExactWhenSmall, Protocol):
    """One that is also exact among few rows of a larger collection: those that a filter admits."""

    def is_exact(self, collection: str, filter: Filter | None = None) -> bool:  # noqa: A002
        """Whether searches within a filter are exact: at most `exact_rows` rows satisfy it.

        They are those with the filter, or with a conjunction of it and another one, until rows
        change.
        """


@runtime_checkable
class NativeText(Protocol):
    """A segment store with its own keyword search, for ``index="server"``. It declares the feature
    ``native text``.
    """

    def search_text(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None = None,
    ) -> Ranking:
        """At most topk pairs (key, score) of rows that share a term with the query: best first,
        ties by key.

        By the store's own BM25 over the terms that the named analyser makes of a row's content;
        `upsert` indexes them. The query's terms come from the same analyser. The filter is exact;
        scores are the store's, higher ones better. UnsupportedError where the collection does not
        index that analyser's terms, ConfigError if topk is below 1.
        """


class ScopeSize(NamedTuple):
    """What is counted in a scope: its rows, and the mean number of their terms."""

    rows: int
    mean_length: float


@dataclass(frozen=True, slots=True)
class RowScope:
    """The rows of one state of the ledger that a filter admits.

    Args:
        filter: A bound filter.
        changes: The ledger's counter of changes in that state.
    """

    filter: Filter
    changes: int


@runtime_checkable
class RanksInScope(NativeText, Protocol):
    """One in the ledger's database: no row outside of a scope influences its ranking there."""

    def measure(self, collection: str, analyser: str, scope: RowScope) -> ScopeSize:
        """Count the rows in scope. UnsupportedError as in `search_text`."""

    def search_scope(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        scope: RowScope,
        size: ScopeSize,
        filter: Filter | None = None,
    ) -> Ranking:
        """As `search_text`, with all statistics of BM25 of the rows in scope, which are of that
        size; the filter only narrows the hits.
        """


@runtime_checkable
class FindsRows(NativeText, Protocol):
    """One that returns the rows with their ranking, in one request."""

    def find_rows(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None = None,
    ) -> list[tuple[Segment, float]]:
        """As `search_text`, with the rows in place of their keys."""


class DeferredSearchError(Exception):
    """Raised by a search that is sent later, see `BatchesSearches`."""


@runtime_checkable
class BatchesSearches(Protocol):
    """A store whose server answers several searches in one request."""

    def batch_searches(
        self, searches: Iterable[Callable[[], object]]
    ) -> AbstractContextManager[None]:
        """Call searches to learn their requests, and send these together; within, the same searches
        get the answers. Searches let `DeferredSearchError` pass.
        """


@runtime_checkable
class Refreshable(Protocol):
    """A store whose own search finds the rows that others wrote only after a refresh."""

    def refresh(self, collection: str) -> None:
        """Let searches find all rows that are acknowledged. Idempotent."""


@runtime_checkable
class Published(Protocol):
    """A store on a server, whose rows other tools read as well."""

    def publish(self, collections: Iterable[str]) -> None:
        """Show live collections to other tools; called at the end of a write."""


def check_deletion(keys: Sequence[str] | None, filter: Filter | None) -> None:
    """Check the arguments of `Store.delete`.

    Raises:
        ConfigError: If both or neither of keys and a filter are given.

    Example:
        >>> check_deletion([], None)
    """
    if (keys is None) == (filter is None):
        raise ConfigError(
            "delete() takes keys= or filter=: give exactly one of them. To remove everything, drop"
            " the collection."
        )


segment_stores: Registry[type[SegmentStore]] = Registry(
    "segment store", entry_point_group="lazyrag.segment_stores"
)
vector_stores: Registry[type[VectorStore]] = Registry(
    "vector store", entry_point_group="lazyrag.vector_stores"
)
segment_stores.declare("map", "lazyrag.stores.memory:MapSegmentStore")
segment_stores.declare(
    "opensearch", "lazyrag.stores.opensearch:OpenSearchSegmentStore", extra="opensearch"
)
vector_stores.declare(
    "opensearch", "lazyrag.stores.opensearch_vectors:OpenSearchVectorStore", extra="opensearch"
)
vector_stores.declare("chromadb", "lazyrag.stores.chroma:ChromaVectorStore", extra="chroma")
vector_stores.declare("map", "lazyrag.stores.memory:MapVectorStore")
vector_stores.declare("milvus", "lazyrag.stores.milvus:MilvusVectorStore", extra="milvus")


T = TypeVar("T")
R = TypeVar("R", Segment, VectorRow)


class Dialect(Protocol[T]):
    """A backend's filter language. A translated filter means exactly the same as `matches`, or is
    None.

    Values reach the backend through `condition` alone, which escapes them.
    """

    def condition(self, condition: Condition) -> T | None:
        """Translate a condition; None if the language has no equivalent.

        `push_down` negates ``eq`` and ``in`` where ``ne`` and ``not in`` are not translated.
        """

    def all_of(self, parts: Sequence[T]) -> T:
        """The conjunction of at least two parts."""

    def any_of(self, parts: Sequence[T]) -> T:
        """The disjunction of at least two parts."""

    def negated(self, part: T) -> T | None:
        """The negation of a part; None if the language has none."""

    def never(self) -> T | None:
        """A condition that no row meets; None if the language has none."""


_POSITIVE = {"ne": "eq", "not in": "in"}


@dataclass(frozen=True, slots=True)
class Pushed(Generic[T]):
    """A filter, split between a backend and us; a row must meet both parts.

    Args:
        native: The backend's part; None for none.
        rest: Our part, evaluated row by row by `matches`; None for none.
    """

    native: T | None = None
    rest: Filter | None = None


def push_down(filter: Filter | None, dialect: Dialect[T]) -> Pushed[T]:
    """Split a bound filter: as much as possible for the backend, the rest for us.

    Args:
        filter: A bound filter; None lets all rows through.
        dialect: The backend's language.

    Returns:
        Parts that together mean the same.
    """
    if filter is None:
        return Pushed()
    if isinstance(filter, Condition):
        native = dialect.condition(filter)
        if native is None and filter.op in _POSITIVE:
            positive = Condition(filter.field, _POSITIVE[filter.op], filter.value)
            native = _negate(push_down(positive, dialect), dialect)
        return _native_or_rest(native, filter)
    if isinstance(filter, Not):
        return _native_or_rest(_negate(push_down(filter.filter, dialect), dialect), filter)
    parts = [push_down(part, dialect) for part in filter.filters]
    if isinstance(filter, And):
        rest = functools.reduce(both, (part.rest for part in parts), None)
        natives = [part.native for part in parts if part.native is not None]
        return Pushed(join_parts(natives, dialect.all_of), rest)
    return _push_down_or(filter, parts, dialect)


def _push_down_or(filter: Filter, parts: Sequence[Pushed[T]], dialect: Dialect[T]) -> Pushed[T]:
    if not parts:
        return _native_or_rest(dialect.never(), filter)
    if any(part == Pushed() for part in parts):
        return Pushed()  # one alternative always holds
    natives = [part.native for part in parts if part.native is not None]
    if len(natives) < len(parts):
        return Pushed(rest=filter)
    # Where an alternative has a rest, the backend lets too many rows through: all of them are
    # checked again.
    is_complete = all(part.rest is None for part in parts)
    return Pushed(join_parts(natives, dialect.any_of), None if is_complete else filter)


def _native_or_rest(native: T | None, filter: Filter) -> Pushed[T]:
    return Pushed(rest=filter) if native is None else Pushed(native)


def _negate(inner: Pushed[T], dialect: Dialect[T]) -> T | None:
    if inner == Pushed():  # it always holds
        return dialect.never()
    return None if inner.native is None or inner.rest is not None else dialect.negated(inner.native)


def join_parts(parts: Sequence[T], join: Callable[[Sequence[T]], T]) -> T | None:
    """The parts joined if they are several; the only one, or None, as it is."""
    if len(parts) > 1:
        return join(parts)
    return parts[0] if parts else None


Part: TypeAlias = "DenseBlock | SparsePart"
"""Some rows of a collection, all dense or all sparse."""

State: TypeAlias = "DenseState | SparseState"
"""The input of a search."""

Index: TypeAlias = "DenseIndex | SparseIndex"
"""A collection in memory."""


def check_schema(schema: VectorSchema) -> None:
    """Check a schema.

    Raises:
        ConfigError: If the dimension is out of range, or the metric is unknown or not for that kind
            of vectors.

    Example:
        >>> check_schema(VectorSchema(SPARSE, "ip", {}))
    """
    state_of_rows([], schema)


def unknown_collection(
    collection: str, names: Iterable[str], error: type[StoreError] = StoreError
) -> StoreError:
    """The error for a collection that a ``map`` store does not have."""
    hint = known_names(collection, names)
    msg = f"There is no collection {collection!r}. {hint} Create it first."
    return error(msg, store="map", collection=collection)


def other_fields(
    collection: str, names: Iterable[str], *, store: str = "map"
) -> SchemaMismatchError:
    """The error for a collection of segments that exists with other fields."""
    listed = ", ".join(sorted(names))
    msg = f"Collection {collection!r} has other fields than requested: {listed}."
    return SchemaMismatchError(msg, store=store, collection=collection)


def other_schema(
    collection: str, dimension: int, metric: Metric, requested: VectorSchema, *, store: str = "map"
) -> SchemaMismatchError:
    """The error for a collection that exists with another schema."""
    msg = (
        f"Collection {collection!r} has {_describe(dimension)} under the metric {metric!r}; got a"
        f" schema with {_describe(requested.dimension)} under {requested.metric!r}, or with other"
        " fields."
    )
    return SchemaMismatchError(msg, store=store, collection=collection)


def state_of(parts: Sequence[Part], alive: Masks, dimension: int, metric: Metric) -> State:
    """The input of a search over some parts of a collection; see `DenseState` and `SparseState`."""
    if dimension != SPARSE:
        return DenseState(cast("Sequence[DenseBlock]", parts), alive, dimension, metric)
    if metric != "ip":
        raise ConfigError(
            f"The metric of sparse vectors must be 'ip', the inner product; got {metric!r}."
        )
    return SparseState(cast("Sequence[SparsePart]", parts), alive)


def state_of_rows(rows: Sequence[VectorRow], schema: VectorSchema) -> State:
    """The input of a search over some rows, which `check_vectors` has accepted."""
    parts = [part_of_rows(rows, schema.dimension)] if rows else []
    return state_of(parts, [None] * len(parts), schema.dimension, schema.metric)


def index_of(schema: VectorSchema) -> Index:
    """An empty collection in memory."""
    return SparseIndex() if schema.is_sparse else DenseIndex(schema.dimension, schema.metric)


def add_rows(index: Index, rows: Sequence[VectorRow]) -> None:
    """Add rows, which `check_vectors` has accepted, to a collection in memory."""
    index.add(*_columns(rows, is_sparse=isinstance(index, SparseIndex)))


def part_of_rows(rows: Sequence[VectorRow], dimension: int) -> Part:
    """A part of at least one row, which `check_vectors` has accepted."""
    kind = SparsePart if dimension == SPARSE else DenseBlock
    return kind.of_rows(*_columns(rows, is_sparse=dimension == SPARSE))


def _columns(rows: Sequence[VectorRow], *, is_sparse: bool) -> tuple[list[str], Any, list[Fields]]:
    """The keys, the vectors and the fields of rows."""
    vectors: Any = [row.vector for row in rows]
    return (
        [row.key for row in rows],
        vectors if is_sparse else np.stack(vectors),
        [row.fields for row in rows],
    )


def part_of_arrays(arrays: Arrays, dimension: int) -> Part:
    """Read a part from the arrays that its `arrays()` returned.

    Raises:
        StoreError: If the arrays are of the other kind, or not of a part.
    """
    return SparsePart.from_arrays(arrays) if dimension == SPARSE else DenseBlock.from_arrays(arrays)


def joined_parts(parts: Sequence[Part], alive: Masks, dimension: int, allocate: Allocate) -> Part:
    """Join several parts; see `SparsePart.joined` and, also for ``allocate``,
    `DenseBlock.joined`.
    """
    if dimension == SPARSE:
        return SparsePart.joined(cast("Sequence[SparsePart]", parts), alive)
    return DenseBlock.joined(cast("Sequence[DenseBlock]", parts), alive, allocate)


def searched(state: State, vectors: Embeddings, topk: int, filter: Filter | None) -> list[Ranking]:
    """Search a state; see `VectorStore.search`.

    Raises:
        ConfigError: If a vector is of the other kind, or the states refuse it.
    """
    _check_kind(vectors, is_sparse=isinstance(state, SparseState))
    if isinstance(state, SparseState):
        return [
            state.search(vector, topk, filter=filter)
            for vector in cast("Sequence[SparseVector]", vectors)
        ]
    return state.search_many(cast("Matrix", vectors), topk, filter=filter)


def check_queries(schema: VectorSchema, vectors: Embeddings, topk: int) -> None:
    """Check the queries of a search, as `searched` does: for stores whose rows are elsewhere.

    Raises:
        ConfigError: If topk is below 1, or a vector does not fit the collection.

    Example:
        >>> check_queries(VectorSchema(2, "cosine", {}), np.ones((1, 2), np.float32), 10)
    """
    if schema.is_sparse:
        searched(state_of_rows([], schema), vectors, topk, None)
        return
    _check_kind(vectors, is_sparse=False)
    checked_queries(np.asarray(vectors), topk, schema.dimension)


def only_dense(state: State, vectors: Embeddings) -> tuple[DenseState, Matrix]:
    """The input of an approximate search and its queries.

    Raises:
        ConfigError: If either is sparse.
    """
    if isinstance(state, SparseState) or not isinstance(vectors, np.ndarray):
        raise ConfigError("Approximate search needs dense vectors; for sparse ones use search().")
    return state, vectors


def check_vectors(
    collection: str, dimension: int, rows: Iterable[VectorRow], *, store: str = "map"
) -> None:
    """Check that rows fit a collection.

    Raises:
        SchemaMismatchError: If a vector is of the other kind, or of another length.
    """
    for row in rows:
        if isinstance(row.vector, dict):
            is_right = dimension == SPARSE
            kind = "a sparse one"
        else:
            is_right = row.vector.shape == (dimension,)
            kind = f"one of shape {row.vector.shape}"
        if not is_right:
            raise SchemaMismatchError(
                f"Collection {collection!r} has {_describe(dimension)}; row {row.key!r} has"
                f" {kind}.",
                store=store,
                collection=collection,
            )


def _check_kind(vectors: Embeddings, *, is_sparse: bool) -> None:
    wrong = [vector for vector in vectors if isinstance(vector, dict) != is_sparse]
    if wrong:
        kind = "sparse" if is_sparse else "dense"
        raise ConfigError(
            f"Vectors to search this collection must be {kind}; got {wrong[0]!r:.60}."
        )


def _describe(dimension: int) -> str:
    return "sparse vectors" if dimension == SPARSE else f"vectors of {dimension} numbers"


LAYOUT = 2
"""Version of the layout of rows in Chroma, Milvus and OpenSearch."""


def check_layout(version: int, backend: str, store: str, collection: str) -> None:
    """Check that this version of lazyrag can read the rows of a collection.

    Raises:
        SchemaMismatchError: If another version of lazyrag has written them.
    """
    if version != LAYOUT:
        raise SchemaMismatchError(
            f"Collection {collection!r} in {backend} has rows of layout {version}, written by"
            f" another version of lazyrag; this one reads {LAYOUT}. Drop it and read the files"
            " again, or use the version that wrote it.",
            store=store,
            collection=collection,
        )


_PYTHON_TYPES = {
    DataType.BOOLEAN: bool,
    DataType.INT32: int,
    DataType.INT64: int,
    DataType.FLOAT: float,
    DataType.DOUBLE: float,
    DataType.VARCHAR: str,
    DataType.DATE: str,
}


def has_type(field: DocField, value: FieldValue) -> bool:
    """Whether the type of a field tells that of its value; a backend that orders numbers loses the
    sign of -0.0.

    Example:
        >>> [has_type(DocField(DataType.DOUBLE), value) for value in (1.0, 1, -0.0)]
        [True, False, False]
    """
    return type(value) is _PYTHON_TYPES.get(field.data_type) and repr(value) != "-0.0"


def foreign_collection(collection: str, where: str, store: str) -> SchemaMismatchError:
    """The error for a collection that lazyrag did not create."""
    msg = (
        f"Collection {collection!r} in {where} was not made by lazyrag. Drop it, or give the"
        " Document another name."
    )
    return SchemaMismatchError(msg, store=store, collection=collection)


def batches(
    items: Iterable[T], most: int, most_bytes: int = 0, size_of: Callable[[T], int] | None = None
) -> Iterator[list[T]]:
    """Cut items into batches for requests.

    Args:
        items: The items.
        most: Their number in a batch.
        most_bytes: Their size in a batch, if ``size_of`` is given; a batch of one item may exceed
            it.
        size_of: The size of an item.

    Example:
        >>> [*batches("abcd", 3)], [*batches(["aa", "b", "c"], 9, 2, len)]
        ([['a', 'b', 'c'], ['d']], [['aa'], ['b', 'c']])
    """
    batch: list[T] = []
    total = 0
    for item in items:
        size = size_of(item) if size_of is not None else 0
        if batch and (len(batch) == most or total + size > most_bytes):
            yield batch
            batch = []
            total = 0
        batch.append(item)
        total += size
    if batch:
        yield batch


TRANSIENT_STATUSES = frozenset([429, 502, 503, 504])
"""HTTP statuses of servers and proxies after which a later try may succeed."""


_MAX_PAUSE_S = 10.0


def backoff_s(tries: int, first_s: float = 0.2) -> float:
    """Seconds to wait after the first, second ... try (0, 1 ...): doubling, and of each wait a
    random half.
    """
    pause_s = min(first_s * 2.0**tries, _MAX_PAUSE_S)
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311  no secret


def score_of(raw_score: float, metric: Metric) -> float:
    """The score, as `VectorStore.search` defines it, of a raw score, as `Candidate` does.

    Example:
        >>> score_of(-4.0, "l2"), score_of(1.0000001, "cosine")
        (0.3333333333333333, 1.0)
    """
    if metric == "l2":
        return 1.0 / (1.0 + math.sqrt(max(-raw_score, 0.0)))
    return min(max(raw_score, -1.0), 1.0) if metric == "cosine" else raw_score


def last_rows(rows: Sequence[R]) -> list[R]:
    """Some rows without those that a later one of the same key replaces."""
    return list({row.key: row for row in rows}.values())


def best_first(ranking: Ranking) -> Ranking:
    """Order a ranking: best first, ties by key.

    Example:
        >>> best_first([("b", 1.0), ("a", 1.0), ("c", 2.0)])
        [('c', 2.0), ('a', 1.0), ('b', 1.0)]
    """
    return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))


Match: TypeAlias = "tuple[str, float] | None"
"""The key of a row and its raw score, see `Candidate`; None for one that does not meet our part of
a filter."""


def native_ranking(
    topk: int, metric: Metric, fetch: Callable[[int], Sequence[Match]], most: int | None = None
) -> Ranking:
    """A backend's own ranking of the rows that meet our part of a filter too, fetching more where
    it leaves too few.

    Args:
        topk: At least 1.
        metric: Of the collection.
        fetch: The n nearest rows as the backend ranks them: fewer only where there are no more.
        most: The largest n; None for no bound.
    """
    depth = topk if most is None else min(topk, most)
    while True:
        candidates = fetch(depth)
        matching = [match for match in candidates if match is not None]
        if len(matching) >= topk or len(candidates) < depth or depth == most:
            ranking = [(key, score_of(raw_score, metric)) for key, raw_score in matching[:topk]]
            return best_first(ranking)
        depth = _WIDER * depth if most is None else min(_WIDER * depth, most)


_SPARE = 16  # more rows than needed, so that the first fetch shows a boundary without ties
_WIDER = 4  # times as many candidates after a fetch that does not settle the ranking
_ROUNDING = 2.0**-24  # of one float32 operation
# largest difference seen of two float32 products of some hundred numbers, in roundings
_OPERATIONS = 64.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row as a backend ranked it.

    Args:
        row: The row, with its stored vector and all its fields.
        raw_score: The backend's measure, higher being nearer: the cosine, the inner product, or for
            L2 the negative square of the distance.
    """

    row: VectorRow
    raw_score: float


Fetch: TypeAlias = Callable[[int], Sequence[Candidate]]
"""Fetches the n nearest rows as a backend ranks them, best first: fewer only where there are no
more."""


def exact_ranking(
    query: Embedding,
    topk: int,
    schema: VectorSchema,
    fetch: Fetch,
    *,
    rest: Filter | None = None,
    rounding: float = 0.0,
) -> Ranking:
    """The ranking of the ``map`` store, from a backend's that is correct but for rounding and the
    order of ties.

    Candidates are fetched until the raw score of the last one is below that of the topk-th by more
    than their rounding errors; then they are scored in float64 from the stored vectors, and ordered
    by score and key.

    Args:
        query: (dimension,) finite, or a dict where the collection is sparse; checked.
        topk: At least 1.
        schema: Of the collection.
        fetch: The backend's search.
        rest: Our part of a bound filter.
        rounding: The error of a raw score beside that of float32 products: where a backend returns
            one minus the product, that of the difference.

    Returns:
        See `VectorStore.search`.
    """
    depth = topk + _SPARE
    while True:
        candidates = fetch(depth)
        matching = [
            candidate
            for candidate in candidates
            if rest is None or matches(rest, candidate.row.fields)
        ]
        is_complete = len(candidates) < depth
        if is_complete or _is_settled(query, topk, schema, candidates, matching, rounding):
            return rank_rows(query, topk, schema, [candidate.row for candidate in matching])
        depth *= _WIDER


def rank_rows(
    query: Embedding, topk: int, schema: VectorSchema, rows: Sequence[VectorRow]
) -> Ranking:
    """Rank some rows here; see `VectorStore.search`."""
    if not rows:
        return []
    queries = [query] if isinstance(query, dict) else query[None]
    [ranking] = searched(state_of_rows(rows, schema), queries, topk, None)
    return ranking


def _is_settled(
    query: Embedding,
    topk: int,
    schema: VectorSchema,
    candidates: Sequence[Candidate],
    matching: Sequence[Candidate],
    rounding: float,
) -> bool:
    """Whether no row behind the last candidate can be among the topk best."""
    if len(matching) < topk:
        return False
    scale = 1.0
    if schema.metric != "cosine":
        largest = max(_length(candidate.row.vector) for candidate in candidates)
        length = _length(query)
        scale = length * largest if schema.metric == "ip" else (length + largest) ** 2
    return matching[topk - 1].raw_score - candidates[-1].raw_score > 2.0 * (
        _OPERATIONS * _ROUNDING * scale + rounding
    )


def _length(vector: Embedding) -> float:
    numbers = [*vector.values()] if isinstance(vector, dict) else vector
    return float(np.linalg.norm(np.asarray(numbers, np.float64)))
