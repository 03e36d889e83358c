"""What a backend author writes: a segment store, a vector store.

Both keep rows in collections and know nothing of trees, files or queries in words. The contract suites in
`lazyrag.testing` hold every backend to the sentences here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from lazyrag.data.fields import Schema
from lazyrag.data.filters import Filter
from lazyrag.data.segment import EMPTY, Segment
from lazyrag.errors import ConfigError
from lazyrag.registry import Registry
from lazyrag.types import SPARSE, Embedding, Embeddings, Fields, Metric, Ranking

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
segment_stores.declare("map", "lazyrag.stores.map:MapSegmentStore")
segment_stores.declare("opensearch", "lazyrag.stores.opensearch:OpenSearchSegmentStore", extra="opensearch")
vector_stores.declare("chromadb", "lazyrag.stores.chroma:ChromaVectorStore", extra="chroma")
vector_stores.declare("map", "lazyrag.stores.map:MapVectorStore")
vector_stores.declare("milvus", "lazyrag.stores.milvus:MilvusVectorStore", extra="milvus")
