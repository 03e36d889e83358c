"""What a backend author writes: a segment store, a vector store.

Both keep rows in collections and know nothing of trees, files or queries in words. The contract suites in
`lazyrag.testing` hold every backend to the sentences here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np

from lazyrag.data.fields import Schema
from lazyrag.data.filters import And, Condition, Filter, Not, both, matches
from lazyrag.data.segment import EMPTY, Segment, digest
from lazyrag.errors import ConfigError, SchemaMismatchError
from lazyrag.indexes.dense import DenseBlock, DenseIndex, DenseState, Room, checked_queries
from lazyrag.indexes.postings import Mask
from lazyrag.indexes.sparse import SparseIndex, SparsePart, SparseState
from lazyrag.registry import Registry
from lazyrag.storage.arrays import Arrays
from lazyrag.types import SPARSE, Embedding, Embeddings, Fields, Matrix, Metric, Ranking, SparseVector, Vector

_UNSAFE = re.compile(r"[^a-z0-9]+")
_READABLE = 11  # "lr", two readable parts and 32 digits, joined by "_", stay within 60


def collection_name(document: str, group: str, fingerprint: str, embed_key: str | None = None) -> str:
    """The name of the collection that holds a group's segments, or its vectors under an embed key.

    At most 60 characters of a-z, 0-9 and ``_``, a letter first: what Milvus, Chroma, OpenSearch and SQL all take.
    Different arguments give different names, whatever characters they hold: the readable parts are for people, a
    digest of all four tells names apart (128 bits).

    Args:
        document: Name of the Document.
        group: Name of the node group.
        fingerprint: Of the group and those above it.
        embed_key: None for segments.

    Example:
        >>> name = collection_name("default", "doc-summary", "f1")
        >>> name.startswith("lr_default_doc_summary_"), name == collection_name("default", "doc_summary", "f1")
        (True, False)
    """
    kind = "s" if embed_key is None else "v"
    told = "_".join(part for part in (_readable(document), _readable(group)) if part)
    full = digest([document, group, fingerprint, kind, embed_key or ""])
    return "_".join(part for part in ("lr", told, full) if part)


def _readable(text: str) -> str:
    return _UNSAFE.sub("_", text.lower())[:_READABLE].strip("_")


Feature: TypeAlias = Literal[
    "persistent", "shared", "exact", "exact when small", "sparse", "approximate", "native vectors", "native text"
]
"""What a store can do beyond the contract; the suites in `lazyrag.testing` fail a store for one they cannot test.

- ``persistent``: what was acknowledged is there after close and open.
- ``shared``: other processes can read what was acknowledged.
- ``exact``: search returns the true nearest rows, whatever their number.
- ``exact when small``: the same in collections of at most `ExactWhenSmall.exact_rows` rows, which it then has.
- ``sparse``: it keeps collections of sparse vectors; without it, it refuses their schema.
- ``approximate``: a vector store is `Approximate`, too.
- ``native vectors``: a vector store is `NativeVectors`, too: its own search gives other answers than ``search``.
- ``native text``: a segment store is `NativeText`, too.
"""


@dataclass(frozen=True, slots=True)
class VectorSchema:
    """What the rows of a vector collection look like.

    Args:
        dimension: Length of every vector, at least 1; `lazyrag.types.SPARSE` where vectors are sparse.
        metric: What `VectorStore.search` ranks by; higher is always closer. Sparse vectors are ranked by ``"ip"``.
        fields: The fields that filters may read.
        embed_key: The embed key of a Document whose vectors these are, for stores whose settings depend on it. It is
            no part of what schemas are compared by.
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
        fields: What filters read.
    """

    key: str
    vector: Embedding
    fields: Fields = field(default_factory=lambda: EMPTY)


class Store(Protocol):
    """What both kinds of store share.

    Every method may be called from several threads at once. A store raises `StoreError` and its subclasses only, and
    ConfigError for arguments that no store could take.
    """

    @property
    def features(self) -> frozenset[Feature]:
        """What it can do beyond the contract; known once it is open."""

    def open(self) -> None:
        """Connect. Opening an open store changes nothing."""

    def close(self) -> None:
        """Let go of files and connections. Closing a closed store changes nothing."""

    def drop(self, collection: str) -> None:
        """Remove a collection and its rows; one that is not there is fine."""

    def count(self, collection: str) -> int:
        """Number of rows; 0 for a collection without rows. StoreError for one that was never created."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store keeps its rows.

    Args:
        address: Path of a file or a folder, or the address of a server.
        is_server: Whether it is a server, which programs on other machines may use as well.
    """

    address: str
    is_server: bool


class Located(Protocol):
    """A store that tells where its rows are before it is opened: the ledger of a Document lies beside a file or folder.

    A Document on a server must have a name, and its ledger a path in ``store_conf``.
    """

    @property
    def location(self) -> Location | None:
        """Where; None for a store in memory."""


@runtime_checkable
class Checkable(Protocol):
    """A store that can tell whether what lies on its disk is what was written."""

    def damage(self, collection: str) -> str:
        """What is wrong with a collection, all of which is read; "" for nothing."""


class SegmentStore(Store, Protocol):
    """Keeps segments by key, in collections (spec 001's ``segment_store``)."""

    def create(self, collection: str, schema: Schema) -> None:
        """Make a collection ready; one that is there stays as it is. SchemaMismatchError if it has another schema."""

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """Write rows whole, by key: a present key is replaced, never merged. On return they are readable by all."""

    def get(self, collection: str, keys: Sequence[str]) -> list[Segment]:
        """The rows of those keys that are present, in the order asked for."""

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[Segment]:
        """The next ``limit`` rows behind the one with the key ``after``, or the first ones. Pages cover all rows once.

        They come in an order of the store's own, which follows from the keys alone: that of the texts, or that of the
        builds. So a row that is gone still tells where a page begins.
        """

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> int:
        """Delete by keys or by a bound filter, exactly one of them; returns how many rows went.

        An unknown key is no error. An empty list of keys deletes nothing.
        """


class VectorStore(Store, Protocol):
    """Keeps vectors by key, in collections, and finds the nearest (spec 001's ``vector_store``)."""

    def create(self, collection: str, schema: VectorSchema) -> None:
        """Make a collection ready; one that is there stays as it is. SchemaMismatchError if it has another schema.

        UnsupportedError for a sparse one, if the store does not declare ``"sparse"``; ConfigError for a metric that the
        vectors cannot be ranked by.
        """

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """Write rows whole, by key.

        SchemaMismatchError, and nothing written, if a vector has another dimension or is of the other kind.
        """

    def get(self, collection: str, keys: Sequence[str]) -> list[VectorRow]:
        """The rows of those keys that are present, in the order asked for."""

    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[VectorRow]:
        """The next ``limit`` rows in key order whose key is greater than ``after``. Pages cover all rows once."""

    def delete(
        self,
        collection: str,
        *,
        keys: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> int:
        """Delete by keys or by a bound filter, exactly one of them; returns how many rows went."""

    def search(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[Ranking]:
        """For each of n vectors a ranking of at most topk (key, score): best first, ties by key.

        The vectors are the rows of an array (n, dimension), or a list of dicts where the collection is sparse. Higher
        is closer under every metric: cosine in [-1, 1], inner product, 1 / (1 + distance) for L2. Only rows that
        satisfy the bound filter are ranked, and sparse ones only if they have a dimension in common with the query,
        whatever their score. ConfigError if topk is below 1, or a vector does not go with the collection.
        """


@runtime_checkable
class Approximate(Protocol):
    """A vector store that can also search faster than exactly. It declares the feature ``approximate``."""

    def search_approximately(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[Ranking]:
        """As `VectorStore.search`, but that some of the nearest rows may be missing, and others stand for them.

        As many rows as there are in an exact ranking, with their exact scores, best first, ties by key. It may take
        long once, for what it builds. ConfigError for sparse vectors.
        """


@runtime_checkable
class NativeVectors(Protocol):
    """A vector store whose own search can be had as it comes. It declares the feature ``native vectors``."""

    def search_natively(
        self,
        collection: str,
        vectors: Embeddings,
        topk: int,
        filter: Filter | None = None,  # noqa: A002
    ) -> list[Ranking]:
        """What the backend finds, by its own scores, as far as it finds anything; the filter holds exactly.

        Scores mean what they mean in `VectorStore.search`, as the backend rounds them; ties by key among what it gave.
        """


@runtime_checkable
class ExactWhenSmall(Protocol):
    """A vector store that declares ``exact when small``."""

    @property
    def exact_rows(self) -> int:
        """How many rows a collection may have for `VectorStore.search` to be exact."""


@runtime_checkable
class NativeText(Protocol):
    """A segment store that ranks by text itself, for ``index="native"``. It declares the feature ``native text``."""

    def search_text(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None = None,  # noqa: A002
    ) -> Ranking:
        """At most topk pairs (key, score) of rows that share a term with the query: best first, ties by key.

        By the store's own BM25 over the terms that the named analyser makes of a row's content; `upsert` indexes them.
        The query's terms come from the same analyser. The filter holds exactly; scores are the store's, and higher is
        better. UnsupportedError where the collection does not index that analyser's terms, ConfigError if topk is
        below 1.
        """


def check_deletion(keys: Sequence[str] | None, filter: Filter | None) -> None:  # noqa: A002
    """Refuse a `SegmentStore.delete` or `VectorStore.delete` that does not say what is to go.

    Raises:
        ConfigError: If both or neither of keys and a filter are given.

    Example:
        >>> check_deletion([], None)
    """
    if (keys is None) == (filter is None):
        msg = "delete() takes keys= or filter=: give exactly one of them. To remove everything, drop the collection."
        raise ConfigError(msg)


segment_stores: Registry[type[SegmentStore]] = Registry("segment store", entry_point_group="lazyrag.segment_stores")
vector_stores: Registry[type[VectorStore]] = Registry("vector store", entry_point_group="lazyrag.vector_stores")
segment_stores.declare("map", "lazyrag.stores.memory:MapSegmentStore")
segment_stores.declare("opensearch", "lazyrag.stores.opensearch:OpenSearchSegmentStore", extra="opensearch")
vector_stores.declare("chromadb", "lazyrag.stores.chroma:ChromaVectorStore", extra="chroma")
vector_stores.declare("map", "lazyrag.stores.memory:MapVectorStore")
vector_stores.declare("milvus", "lazyrag.stores.milvus:MilvusVectorStore", extra="milvus")


T = TypeVar("T")


class Dialect(Protocol[T]):
    """A backend's language of filters. What is written in it means exactly what `matches` says, or is not written.

    Values reach the backend through `condition` alone: that is the place where they are escaped.
    """

    def condition(self, condition: Condition) -> T | None:
        """The same condition; None where the language cannot say it."""

    def all_of(self, parts: Sequence[T]) -> T:
        """What holds where each of at least two parts does."""

    def any_of(self, parts: Sequence[T]) -> T:
        """What holds where any of at least two parts does."""

    def negated(self, part: T) -> T | None:
        """What holds where a part does not; None where the language cannot say it."""

    def never(self) -> T | None:
        """What holds nowhere; None where the language cannot say it."""


@dataclass(frozen=True, slots=True)
class Pushed(Generic[T]):
    """A filter, divided between a backend and us; both parts must hold.

    Args:
        native: What the backend looks at; None where that is nothing.
        rest: What is looked at row by row, by `matches`; None where that is nothing.
    """

    native: T | None = None
    rest: Filter | None = None


def pushed_down(filter: Filter | None, dialect: Dialect[T]) -> Pushed[T]:  # noqa: A002  the word of the domain
    """Divide a bound filter: as much as possible for the backend, the rest for us.

    Args:
        filter: A bound filter; None lets everything through.
        dialect: The backend's language.

    Returns:
        Parts that together mean the same.
    """
    if filter is None:
        return Pushed()
    if isinstance(filter, Condition):
        return _native_or_rest(dialect.condition(filter), filter)
    if isinstance(filter, Not):
        return _native_or_rest(_negated(pushed_down(filter.filter, dialect), dialect), filter)
    parts = [pushed_down(part, dialect) for part in filter.filters]
    if isinstance(filter, And):
        rest = functools.reduce(both, (part.rest for part in parts), None)
        return Pushed(_joined([part.native for part in parts if part.native is not None], dialect.all_of), rest)
    return _any_of(filter, parts, dialect)


def _native_or_rest(native: T | None, filter: Filter) -> Pushed[T]:  # noqa: A002
    return Pushed(rest=filter) if native is None else Pushed(native)


def _negated(inner: Pushed[T], dialect: Dialect[T]) -> T | None:
    if inner == Pushed():  # it always holds
        return dialect.never()
    return None if inner.native is None or inner.rest is not None else dialect.negated(inner.native)


def _any_of(filter: Filter, parts: Sequence[Pushed[T]], dialect: Dialect[T]) -> Pushed[T]:  # noqa: A002
    if not parts:
        return _native_or_rest(dialect.never(), filter)
    if any(part == Pushed() for part in parts):
        return Pushed()  # one alternative always holds
    natives = [part.native for part in parts if part.native is not None]
    if len(natives) < len(parts):
        return Pushed(rest=filter)
    # Where an alternative has a rest, the backend lets through too much, and the whole is looked at again.
    is_whole = all(part.rest is None for part in parts)
    return Pushed(_joined(natives, dialect.any_of), None if is_whole else filter)


def _joined(parts: Sequence[T], join: Callable[[Sequence[T]], T]) -> T | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else join(parts)


Part: TypeAlias = "DenseBlock | SparsePart"
"""Some rows of a collection; those of one are of one kind."""

State: TypeAlias = "DenseState | SparseState"
"""What a search reads."""

Index: TypeAlias = "DenseIndex | SparseIndex"
"""A collection in memory."""


def check_schema(schema: VectorSchema) -> None:
    """Refuse a schema that no vectors have.

    Raises:
        ConfigError: If the dimension is out of its range, or the metric is unknown or not for that kind of vectors.

    Example:
        >>> check_schema(VectorSchema(SPARSE, "ip", {}))
    """
    state_of([], [], schema.dimension, schema.metric)


def other_schema(
    collection: str, dimension: int, metric: Metric, asked: VectorSchema, *, store: str = "map"
) -> SchemaMismatchError:
    """The error for a collection that is there with another schema than asked for."""
    msg = (
        f"Collection {collection!r} holds {_held(dimension)} under the metric {metric!r}; "
        f"asked for were {_held(asked.dimension)} under {asked.metric!r}, or other fields."
    )
    return SchemaMismatchError(msg, store=store, collection=collection)


def state_of(parts: Sequence[Part], alive: Sequence[Mask | None], dimension: int, metric: Metric) -> State:
    """What a search over some parts of a collection reads; see `DenseState` and `SparseState`."""
    if dimension != SPARSE:
        return DenseState(cast("Sequence[DenseBlock]", parts), alive, dimension, metric)
    if metric != "ip":
        msg = f"Sparse vectors are ranked by the inner product, 'ip'; the schema's metric is {metric!r}."
        raise ConfigError(msg)
    return SparseState(cast("Sequence[SparsePart]", parts), alive)


def index_of(schema: VectorSchema) -> Index:
    """An empty collection in memory."""
    return SparseIndex() if schema.is_sparse else DenseIndex(schema.dimension, schema.metric)


def add_rows(index: Index, rows: Sequence[VectorRow]) -> None:
    """Add rows, which `check_vectors` has let through, to a collection in memory."""
    keys, fields = [row.key for row in rows], [row.fields for row in rows]
    if isinstance(index, SparseIndex):
        index.add(keys, _sparse(rows), fields)
    else:
        index.add(keys, _stacked(rows), fields)


def part_of_rows(rows: Sequence[VectorRow], dimension: int) -> Part:
    """At least one row, all of them let through by `check_vectors`, as a part."""
    keys, fields = [row.key for row in rows], [row.fields for row in rows]
    if dimension == SPARSE:
        return SparsePart.of_rows(keys, _sparse(rows), fields)
    return DenseBlock.of_rows(keys, _stacked(rows), fields)


def part_of_arrays(arrays: Arrays, dimension: int) -> Part:
    """A part of which `arrays()` was written.

    Raises:
        StoreError: If the arrays are those of the other kind, or of no part.
    """
    return SparsePart.from_arrays(arrays) if dimension == SPARSE else DenseBlock.from_arrays(arrays)


def joined_parts(parts: Sequence[Part], kept: Sequence[Mask | None], dimension: int, room: Room) -> Part:
    """Several parts as one; see `SparsePart.joined` and, also for the room, `DenseBlock.joined`."""
    if dimension == SPARSE:
        return SparsePart.joined(cast("Sequence[SparsePart]", parts), kept)
    return DenseBlock.joined(cast("Sequence[DenseBlock]", parts), kept, room)


def searched(state: State, vectors: Embeddings, topk: int, filter: Filter | None) -> list[Ranking]:  # noqa: A002
    """See `VectorStore.search`.

    Raises:
        ConfigError: If a vector is of the other kind, or as the states say.
    """
    _check_kind(vectors, is_sparse=isinstance(state, SparseState))
    if isinstance(state, SparseState):
        return [state.search(one, topk, filter=filter) for one in cast("Sequence[SparseVector]", vectors)]
    return state.search_many(cast("Matrix", vectors), topk, filter=filter)


def check_queries(schema: VectorSchema, vectors: Embeddings, topk: int) -> None:
    """Refuse the queries that `searched` refuses: for stores whose rows are not here.

    Raises:
        ConfigError: If topk is below 1, or a vector does not go with the collection.

    Example:
        >>> check_queries(VectorSchema(2, "cosine", {}), np.ones((1, 2), np.float32), 10)
    """
    if schema.is_sparse:
        searched(state_of([], [], schema.dimension, schema.metric), vectors, topk, None)
        return
    _check_kind(vectors, is_sparse=False)
    checked_queries(np.asarray(vectors), topk, schema.dimension)


def only_dense(state: State, vectors: Embeddings) -> tuple[DenseState, Matrix]:
    """What an approximate search reads, and its queries.

    Raises:
        ConfigError: If either is sparse.
    """
    if isinstance(state, SparseState) or not isinstance(vectors, np.ndarray):
        raise ConfigError("Dense vectors are searched approximately; sparse ones have only the exact search().")
    return state, vectors


def check_vectors(collection: str, dimension: int, rows: Iterable[VectorRow], *, store: str = "map") -> None:
    """Refuse rows that do not go with a collection.

    Raises:
        SchemaMismatchError: If a vector is of the other kind, or of another length.
    """
    for row in rows:
        if isinstance(row.vector, dict):
            is_right, told = dimension == SPARSE, "a sparse one"
        else:
            is_right, told = row.vector.shape == (dimension,), f"one of shape {row.vector.shape}"
        if not is_right:
            msg = f"Collection {collection!r} holds {_held(dimension)}; row {row.key!r} has {told}."
            raise SchemaMismatchError(msg, store=store, collection=collection)


def _check_kind(vectors: Embeddings, *, is_sparse: bool) -> None:
    wrong = [one for one in vectors if isinstance(one, dict) != is_sparse]
    if wrong:
        kind, given = ("sparse", "dense") if is_sparse else ("dense", "sparse")
        msg = f"search() got a {given} vector, {wrong[0]!r:.60}; the vectors of this collection are {kind}."
        raise ConfigError(msg)


def _held(dimension: int) -> str:
    return "sparse vectors" if dimension == SPARSE else f"vectors of {dimension} numbers"


def _sparse(rows: Sequence[VectorRow]) -> list[SparseVector]:
    return [cast("SparseVector", row.vector) for row in rows]


def _stacked(rows: Sequence[VectorRow]) -> Matrix:
    return np.stack([cast("Vector", row.vector) for row in rows])


_SPARE = 16  # rows beyond those asked for, so that a boundary without ties is seen at the first look
_WIDER = 4  # times as many candidates where those before did not settle it
_ROUNDING = 2.0**-24  # of one float32 operation
_OPERATIONS = 64.0  # by which two float32 products of some hundred numbers differ at most, as it turns out


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row as a backend ranked it.

    Args:
        row: The row, with the vector that is stored and all its fields.
        worth: What the backend ranked it by, higher being nearer: the cosine, the inner product, or for L2 the negative
            square of the distance.
    """

    row: VectorRow
    worth: float


Fetch: TypeAlias = Callable[[int], Sequence[Candidate]]
"""The n nearest rows as a backend ranks them, best first: fewer only where there are no more."""


def exact_ranking(
    query: Embedding,
    topk: int,
    schema: VectorSchema,
    fetch: Fetch,
    *,
    rest: Filter | None = None,
    rounding: float = 0.0,
) -> Ranking:
    """The ranking that the ``map`` store gives, if the backend's is right but for rounding and the order of ties.

    Candidates are fetched until the worth of the last one is below that of the topk-th by more than both can be off;
    then they are scored in float64 from the stored vectors, and ordered by score and key.

    Args:
        query: (dimension,) finite, or a dict where the collection is sparse; checked.
        topk: At least 1.
        schema: Of the collection.
        fetch: The backend's search.
        rest: The part of a bound filter that the backend has not looked at.
        rounding: By how much a worth may be off beside the errors of float32 products: where a backend tells one minus
            the product, what that difference loses.

    Returns:
        See `VectorStore.search`.
    """
    depth = topk + _SPARE
    while True:
        found = fetch(depth)
        kept = [one for one in found if rest is None or matches(rest, one.row.fields)]
        if len(found) < depth or _is_settled(query, topk, schema, found, kept, rounding):
            return ranking_of(query, topk, schema, [one.row for one in kept])
        depth *= _WIDER


def ranking_of(query: Embedding, topk: int, schema: VectorSchema, rows: Sequence[VectorRow]) -> Ranking:
    """The best of some rows by our own kernel; see `VectorStore.search`."""
    if not rows:
        return []
    state = state_of([part_of_rows(rows, schema.dimension)], [None], schema.dimension, schema.metric)
    [ranking] = searched(state, [query] if isinstance(query, dict) else query[None], topk, None)
    return ranking


def _is_settled(
    query: Embedding,
    topk: int,
    schema: VectorSchema,
    found: Sequence[Candidate],
    kept: Sequence[Candidate],
    rounding: float,
) -> bool:
    """Whether no row behind the last candidate can be among the topk best of those that are kept."""
    if len(kept) < topk:
        return False
    largest = max(_length(one.row.vector) for one in found)
    length = _length(query)
    scale = {"cosine": 1.0, "ip": length * largest, "l2": (length + largest) ** 2}[schema.metric]
    return kept[topk - 1].worth - found[-1].worth > 2.0 * (_OPERATIONS * _ROUNDING * scale + rounding)


def _length(vector: Embedding) -> float:
    numbers = np.fromiter(vector.values(), np.float64) if isinstance(vector, dict) else vector.astype(np.float64)
    return float(np.linalg.norm(numbers))
