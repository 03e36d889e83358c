"""Vector store on OpenSearch with its k-NN plug-in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from lazyrag.data.filters import Filter
from lazyrag.errors import StoreError, UnsupportedError
from lazyrag.stores.opensearch import MAX_HITS, PAGE, OpenSearchRows, index_action
from lazyrag.stores.opensearch_client import STORE
from lazyrag.stores.opensearch_encoding import (
    KEY,
    VECTOR,
    FilterDialect,
    Query,
    Shape,
    decode_vector,
    encode_vector,
    ranked_vector,
    space_of,
)
from lazyrag.stores.protocol import (
    Candidate,
    Feature,
    Match,
    VectorRow,
    VectorSchema,
    check_queries,
    check_schema,
    check_vectors,
    exact_ranking,
    native_ranking,
    push_down,
)
from lazyrag.types import Embeddings, Ranking, Vector
from lazyrag.validation import validate_mapping

_ROUNDING = 2.0**-22  # of the sum that a score of the server is
_MISSING_PLUGIN = "[index.knn]"  # the setting that a server without it refuses


class OpenSearchVectorStore(OpenSearchRows[VectorRow]):
    """Vector store on an OpenSearch cluster with the plug-in ``opensearch-knn``.

    The cluster searches Lucene's graphs (HNSW), with filters. `search` has the cluster compare all
    vectors instead, and scores the best again from the stored ones; where the nearest inner
    products are below -1,000, it may take near ones for nearest.

    Args:
        uris: See `lazyrag.stores.opensearch.OpenSearchSegmentStore`.
        client_kwargs: See there.
        index_kwargs: ``settings`` and ``mappings``, see there.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> sorted(OpenSearchVectorStore("localhost:9200").features)
        ['exact', 'native vectors', 'persistent', 'server', 'shared']
    """

    features: frozenset[Feature] = frozenset(
        ["persistent", "shared", "exact", "native vectors", "server"]
    )

    def __init__(
        self,
        uris: str | Sequence[str],
        client_kwargs: Mapping[str, Any] | None = None,
        index_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        options = validate_mapping("index_kwargs", index_kwargs or {}, ("mappings", "settings"))
        super().__init__(uris, client_kwargs, {**options, "analysers": []})

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`.

        Raises:
            UnsupportedError: Also if the cluster lacks the plug-in.
        """
        check_schema(schema)
        if schema.is_sparse:
            msg = "OpenSearch stores dense vectors here. Use the map store for sparse ones."
            raise UnsupportedError(msg, store=STORE, collection=collection)
        shape = Shape(schema.fields, dimension=schema.dimension, metric=schema.metric)
        try:
            self._create(collection, shape)
        except StoreError as exc:
            if _MISSING_PLUGIN not in str(exc):
                raise
            raise UnsupportedError(
                "The OpenSearch cluster has no k-NN plug-in, which vectors need. Install"
                " opensearch-knn on its nodes, or name another vector_store.",
                store=STORE,
                collection=collection,
            ) from exc

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`."""
        shape = self._shape(collection)
        last = {row.key: row for row in rows}  # the last row of a repeated key counts
        check_vectors(collection, shape.dimension, last.values(), store=STORE)
        actions = (index_action(key, encode_vector(row, shape)) for key, row in last.items())
        self._write(collection, shape, actions)

    def search(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `VectorStore.search`. The time grows with the number of rows."""
        schema = self._checked(collection, vectors, topk)
        pushed = push_down(filter, FilterDialect(schema.fields))
        rows = pushed.native or {"match_all": {}}

        def rank(vector: Vector) -> Ranking:
            params = {
                "field": VECTOR,
                "query_value": ranked_vector(vector, schema.metric).tolist(),
                "space_type": space_of(schema.metric),
            }
            script = {"lang": "knn", "source": "knn_score", "params": params}
            query = {"script_score": {"query": rows, "script": script}}

            def fetch(depth: int) -> list[Candidate]:
                return [
                    Candidate(self._decode(hit["_source"]), _raw_score(hit, schema))
                    for hit in self._best(collection, query, depth, source=True)
                ]

            return exact_ranking(vector, topk, schema, fetch, rest=pushed.rest, rounding=_ROUNDING)

        return [rank(vector) for vector in np.asarray(vectors)]

    def search_natively(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`. At most 10,000 rows."""
        schema = self._checked(collection, vectors, topk)
        pushed = push_down(filter, FilterDialect(schema.fields))

        def rank(vector: Vector) -> Ranking:
            nearest: Query = {"vector": ranked_vector(vector, schema.metric).tolist()}
            if pushed.native is not None:
                nearest["filter"] = pushed.native

            def fetch(depth: int) -> list[Match]:
                query = {"knn": {VECTOR: {**nearest, "k": depth}}}
                hits = self._best(collection, query, depth, source=pushed.rest is not None)
                return [
                    (hit["_id"], _raw_score(hit, schema)) if self._meets(hit, pushed.rest) else None
                    for hit in hits
                ]

            return native_ranking(topk, schema.metric, fetch, MAX_HITS)

        return [rank(vector) for vector in np.asarray(vectors)]

    def _checked(self, collection: str, vectors: Embeddings, topk: int) -> VectorSchema:
        """The schema of a collection for queries that fit it; refreshes what this object wrote."""
        shape = self._shape(collection)
        schema = VectorSchema(shape.dimension, shape.metric, shape.schema)
        check_queries(schema, vectors, topk)
        self.refresh_written([collection])
        return schema

    def _best(
        self, collection: str, query: Query, depth: int, *, source: bool
    ) -> Iterator[dict[str, Any]]:
        """The hits that a query scores best."""
        body = {"query": query, "sort": [{"_score": "desc"}, {KEY: "asc"}], "_source": source}
        hits = self._hits(collection, body, page=min(depth, PAGE if source else MAX_HITS))
        return islice(hits, depth)

    def _decode(self, source: Mapping[str, Any]) -> VectorRow:
        return decode_vector(source)


def _raw_score(hit: Mapping[str, Any], schema: VectorSchema) -> float:
    """What a score of the plug-in was made from, see `Candidate`."""
    score: float = hit["_score"]
    if schema.metric == "l2":
        return 1.0 - 1.0 / score
    return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score
