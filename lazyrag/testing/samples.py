"""Rows, filters and queries of the contracts, and the ranking that a store must give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lazyrag.data.fields import DataType, DocField, Schema, make_schema
from lazyrag.data.filters import And, Condition, Filter, Not, Or, bind_filter, matches
from lazyrag.data.segment import Content, Segment
from lazyrag.stores.protocol import VectorRow
from lazyrag.types import Embedding, Fields, Matrix, Metric, Ranking, SparseVector, Vector

SCHEMA: Schema = make_schema(
    {
        "author": DocField(DataType.VARCHAR, max_size=64),
        "year": DocField(DataType.INT32),
        "rating": DocField(DataType.DOUBLE),
        "public": DocField(DataType.BOOLEAN),
        "tags": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
    }
)


HARD_TEXTS = (
    "plain",
    "quote ' and \" and `",
    "back\\slash \\n \\u0041",
    "percent % under_score {brace} $var",
    "绿茶与红茶",
    "emoji 🍵👨‍👩‍👧",
    "line\nbreak\ttab",
    "x == 1 or 1 == 1",
)
"""Texts that a store might interpret; they must come back unchanged."""


FIELDS: tuple[Fields, ...] = tuple(
    {
        "file_name": f"f{number}.txt",
        "file_type": "text/plain" if number % 3 else "application/pdf",
        "file_size": 100 * number,
        "creation_date": f"2024-0{number % 9 + 1}-01",
        "last_modified_date": f"2024-0{number % 9 + 1}-02",
        "last_accessed_date": f"2024-0{number % 9 + 1}-03",
        "author": None if number % 9 == 8 else HARD_TEXTS[number % len(HARD_TEXTS)],
        "year": None if number % 5 == 4 else 2000 + number % 7,
        "rating": None if number % 6 == 5 else number / 4,
        "public": None if number % 7 == 6 else number % 2 == 0,
        "tags": None if number % 8 == 7 else HARD_TEXTS[: number % 3],
    }
    for number in range(24)
)


FILTERS: tuple[Filter, ...] = tuple(
    bind_filter(condition, SCHEMA)
    for condition in (
        Condition("author", "eq", "绿茶与红茶"),
        Condition("author", "eq", "quote ' and \" and `"),
        Condition("author", "eq", "x == 1 or 1 == 1"),
        Condition("author", "ne", "plain"),
        Condition("author", "eq", None),
        Condition("author", "in", ["plain", "back\\slash \\n \\u0041"]),
        Condition("author", "in", ["plain", None]),
        Condition("author", "not in", ["plain", "绿茶与红茶"]),
        Condition("author", "contains", "_"),
        Condition("author", "exists"),
        Condition("author", "exists", False),
        Condition("year", "eq", 2003),
        Condition("year", "gt", 2003),
        Condition("year", "ge", 2003),
        Condition("year", "lt", 2003),
        Condition("year", "le", 2003),
        Condition("rating", "gt", 2.25),
        Condition("rating", "eq", 2.5),
        Condition("public", "eq", False),
        Condition("public", "ne", True),
        Condition("year", "in range", [2001, 2004]),
        Condition("tags", "in range", ["p", "q"]),
        Condition("tags", "contains", "plain"),
        Condition("tags", "in", ["quote ' and \" and `", "nothing"]),
        Condition("tags", "not in", ["plain"]),
        Condition("tags", "eq", []),
        Condition("creation_date", "ge", "2024-05-01"),
        Condition("file_type", "eq", ".pdf"),
        And(Condition("year", "ge", 2001), Condition("public", "eq", True)),
        Or(Condition("year", "eq", 2001), Condition("author", "eq", "plain")),
        Not(Condition("year", "gt", 2003)),
        Not(Or(Condition("public", "eq", True), Condition("tags", "contains", "plain"))),
    )
)
"""Each of them lets some of `FIELDS` through, and not all."""


def make_segments() -> list[Segment]:
    """A segment for each of `FIELDS`, with content of every kind."""
    contents: list[Content] = [*HARD_TEXTS, 0, 7, 2.5, False, {"名": [1, None]}, ["a", 1]]
    return [
        Segment(
            uid=f"{number:032x}",
            build=number % 3,
            group="block",
            document_id=f"{number % 4:032x}",
            path=f"目录/f{number % 4}.txt",
            parent=f"{number % 4:032x}",
            number=number + 1,
            content=contents[number % len(contents)],
            metadata=(
                {}
                if number % 2
                else {"note": HARD_TEXTS[number % len(HARD_TEXTS)], "nothing": None}
            ),
            fields=fields,
            span=(number, number + 5) if number % 2 else None,
        )
        for number, fields in enumerate(FIELDS)
    ]


def met(filter: Filter) -> set[int]:
    """Positions of the `FIELDS` that a filter lets through, by the reference evaluator; never none,
    never all.
    """
    matching = {number for number, fields in enumerate(FIELDS) if matches(filter, fields)}
    assert 0 < len(matching) < len(FIELDS), (
        f"The filter {filter!r} tests nothing: {len(matching)} rows meet it."
    )
    return matching


DIMENSION = 8


METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2")


def make_rows() -> list[VectorRow]:
    """A seeded vector for each of `FIELDS`, two of them equal and one of length 0."""
    vectors = np.random.default_rng(7).normal(size=(len(FIELDS), DIMENSION)).astype(np.float32)
    vectors[9] = vectors[3]
    vectors[20] = 0.0
    return _with_fields(vectors)


def make_sparse_rows() -> list[VectorRow]:
    """A seeded sparse vector for each of `FIELDS`: two of them equal, one empty, weights of either
    sign.
    """
    chance = np.random.default_rng(17)
    vectors = []
    for _ in FIELDS:
        dimensions = chance.choice(12, chance.integers(1, 7), replace=False).tolist()
        weights = chance.normal(size=len(dimensions)).astype(np.float32).tolist()
        vectors.append(dict(zip(dimensions, weights, strict=True)))
    vectors[4][2**63 + 5] = 0.5
    vectors[9] = dict(vectors[3])
    vectors[20] = {}
    return _with_fields(vectors)


def _with_fields(vectors: Iterable[Embedding]) -> list[VectorRow]:
    return [
        VectorRow(f"{number:032x}-{number % 3}", vector, fields)
        for number, (vector, fields) in enumerate(zip(vectors, FIELDS, strict=True))
    ]


def queries(n: int) -> Matrix:
    """N seeded queries."""
    return np.random.default_rng(11).normal(size=(n, DIMENSION)).astype(np.float32)


def sparse_queries(n: int) -> list[SparseVector]:
    """N seeded sparse queries."""
    chance = np.random.default_rng(19)
    return [
        dict.fromkeys(chance.choice(12, 3, replace=False).tolist(), 1.0) | {2**63 + 5: -2.0}
        for _ in range(n)
    ]


def reference(query: Embedding, metric: Metric, rows: Sequence[VectorRow] | None = None) -> Ranking:
    """The ranking of `make_rows`, or of other rows, by a plain computation in float64."""
    scores = [
        (row.key, _score(query, row, metric)) for row in (make_rows() if rows is None else rows)
    ]
    ranking = [(key, score) for key, score in scores if score is not None]
    return sorted(ranking, key=lambda pair: (-round(pair[1], 9), pair[0]))


def _score(query: Embedding, row: VectorRow, metric: Metric) -> float | None:
    """The score of a row; None for a sparse one that shares no dimension with the query."""
    if isinstance(query, dict):
        vector = sparse(row)
        shared = sorted(vector.keys() & query.keys())
        return float(sum(query[at] * vector[at] for at in shared)) if shared else None
    x = dense(row).astype(np.float64)
    q = query.astype(np.float64)
    if metric == "l2":
        return 1.0 / (1.0 + float(np.linalg.norm(x - q)))
    lengths = float(np.linalg.norm(x) * np.linalg.norm(q)) if metric == "cosine" else 1.0
    return float(x @ q) / lengths if lengths else 0.0


def dense(row: VectorRow) -> Vector:
    """The vector of a row, which must be dense."""
    assert isinstance(row.vector, np.ndarray), (
        f"row {row.key!r} has {row.vector!r:.60} instead of an array"
    )
    return row.vector


def sparse(row: VectorRow) -> SparseVector:
    """The vector of a row, which must be sparse."""
    assert isinstance(row.vector, dict), f"row {row.key!r} has {row.vector!r:.60} instead of a dict"
    return row.vector
