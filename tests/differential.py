"""Differential tests: a store and a plain-Python reference get the same random requests, and must
agree.

Hypothesis draws schemas, rows, filters and queries. Unlike the contracts of `lazyrag.testing`, this
needs it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from lazyrag import DataType, DocField
from lazyrag.data.fields import Schema, check_value, make_schema
from lazyrag.data.filters import And, Condition, Filter, Not, Or, bind_filter, matches
from lazyrag.data.segment import EMPTY, Content, Segment
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.testing.samples import HARD_TEXTS, METRICS, dense, sparse
from lazyrag.testing.suites import assert_same_ranking
from lazyrag.types import (
    SPARSE,
    Embedding,
    Fields,
    FieldValue,
    Metric,
    Ranking,
    Scalar,
    SparseVector,
    Vector,
)

if TYPE_CHECKING:
    import pytest

R = TypeVar("R", Segment, VectorRow)

COLLECTION = "lr_differential_0"
EVERY = 1000
"""More rows than there are."""


@dataclass(frozen=True)
class World(Generic[R]):
    """A collection: its schema and its rows."""

    schema: Any
    rows: tuple[R, ...]


Case: TypeAlias = "tuple[str, tuple[Any, ...]]"
"""A request: the name of a method of `_Reference`, and its arguments."""


class _Differential:
    """The common part of both kinds of store.

    Collections are created and filled once, since that takes a server long; each case restores
    them, so that Hypothesis can look for a smaller failing one.
    """

    schemas = 20
    """The number of collections, each with its own schema and rows, and its own test."""

    cases = 50
    """The number of requests to each of them."""

    seed = 0
    """Another number draws other schemas, rows and requests; the same one draws the same."""

    def make_store(self) -> Any:
        """A new, empty, closed store."""
        msg = f"{type(self).__name__} must override make_store(self): return a new, empty, closed store."
        raise NotImplementedError(msg)

    def _worlds(self, store: Any) -> st.SearchStrategy[World[Any]]:
        raise NotImplementedError

    def _requests(self, world: World[Any]) -> st.SearchStrategy[Case]:
        raise NotImplementedError

    def _reference(self, store: Any, world: World[Any]) -> _Reference[Any]:
        return _Reference(store, world)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """A test for each of the schemas."""
        if "number" in metafunc.fixturenames:
            metafunc.parametrize("number", range(self.schemas))

    def test_answers_are_those_of_the_reference(self, number: int) -> None:
        """After any writes, deletions, reads and searches, the answers are those of a dict, value
        by value.
        """
        number += self.seed << 20
        store = self.make_store()
        store.open()
        try:
            world = _draw(self._worlds(store), number)
            store.create(COLLECTION, world.schema)
            reference = self._reference(store, world)

            @seed(number)
            @settings(_SETTINGS, max_examples=self.cases)
            @given(self._requests(world))
            def compare(case: Case) -> None:
                note(f"The rows are {[*reference.rows.values()]!r}")
                reference.compare(case)

            with _large_reprs():
                compare()
            store.drop(COLLECTION)
        finally:
            store.close()


class SegmentStoreDifferential(_Differential):
    """Subclass it as ``TestSomething`` and override `make_store`; `schemas` and `cases` say how
    much is tested.
    """

    def _worlds(self, _: Any) -> st.SearchStrategy[World[Segment]]:
        return segment_worlds()

    def _requests(self, world: World[Segment]) -> st.SearchStrategy[Case]:
        keys = _row_keys(world.rows)
        # Pages are in the store's own order, in which only keys of rows have a place.
        afters = st.sampled_from(["", *(row.key for row in world.rows)])
        return _weighted(
            (5, "delete", filters(world.schema, _fields(world.rows))),
            (1, "get", st.lists(keys, max_size=6, unique=True)),
            (1, "scan", afters, _limits),
            (1, "remove", st.lists(keys, max_size=6)),
            (1, "write", st.lists(_rewritten(segments(world.schema), world.rows), max_size=4)),
        )


class VectorStoreDifferential(_Differential):
    """The same for vectors: searches find exactly what a ranking in exact arithmetic has, in its
    order, ties by key.

    Sparse ones are drawn, too, for a store that declares them.
    """

    def _worlds(self, store: Any) -> st.SearchStrategy[World[VectorRow]]:
        return vector_worlds(sparse="sparse" in store.features)

    def _reference(self, store: Any, world: World[VectorRow]) -> _Reference[VectorRow]:
        return _VectorReference(store, world)

    def _requests(self, world: World[VectorRow]) -> st.SearchStrategy[Case]:
        schema, keys = world.schema, _row_keys(world.rows)
        chosen = filters(schema.fields, _fields(world.rows))
        near = embeddings(schema.dimension) | st.sampled_from([row.vector for row in world.rows])
        return _weighted(
            (
                12,
                "search",
                st.lists(near, min_size=1, max_size=2),
                _limits,
                st.none() | chosen | chosen,
            ),
            (1, "delete", chosen),
            (2, "get", st.lists(keys, max_size=6, unique=True)),
            (2, "scan", st.just("") | keys, _limits),
            (1, "remove", st.lists(keys, max_size=6)),
            (1, "write", st.lists(_rewritten(vector_rows(schema), world.rows), max_size=4)),
        )


_SETTINGS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
_limits = st.integers(1, 8) | st.sampled_from([100, EVERY])


def _draw(worlds: st.SearchStrategy[World[R]], number: int) -> World[R]:
    """A world for a number, always the same."""
    found: list[World[R]] = []

    # The first one is the simplest of all, the second as any other; more would be variations of
    # those before.
    @seed(number)
    @settings(_SETTINGS, max_examples=2, phases=[Phase.generate])
    @given(worlds)
    def collect(world: World[R]) -> None:
        found.append(world)

    with _large_reprs():
        collect()
    return found[-1]


@contextmanager
def _large_reprs() -> Iterator[None]:
    """Silence Hypothesis's warnings of long values, which are on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Generating overly large repr", HypothesisWarning)
        yield


def _weighted(*requests: tuple[Any, ...]) -> st.SearchStrategy[Case]:
    """Requests (weight, method, strategies of its arguments) in proportion to their weights."""
    many = [
        st.tuples(st.just(method), st.tuples(*arguments))
        for weight, method, *arguments in requests
        for _ in range(weight)
    ]
    # one_of() would look into the strategies
    return st.sampled_from(range(len(many))).flatmap(many.__getitem__)


def _row_keys(rows: Sequence[R]) -> st.SearchStrategy[str]:
    """Keys of rows, and others."""
    others = st.sampled_from(["unknown-0", "'", '"', "\\", "*", "k' or '1' == '1"])
    return others | st.sampled_from([row.key for row in rows])


def _fields(rows: Sequence[R]) -> list[Fields]:
    return [row.fields for row in rows]


def _rewritten(row: st.SearchStrategy[R], rows: Sequence[R]) -> st.SearchStrategy[R]:
    """New rows, and others under a present key."""
    return row | st.builds(_under_key_of, row, st.sampled_from([*rows]))


def _under_key_of(row: R, other: R) -> R:
    if isinstance(row, Segment):
        return row._replace(uid=other.uid, build=other.build)
    return VectorRow(other.key, row.vector, row.fields)


# --- Worlds: schemas and rows

NAMES = (
    *(
        "author",
        "Author",
        "作者",
        "año",
        "ﬁ",
        "fi",
        "_",
        "__init__",
        "_id",
        "f0",
        "x_00e9",
        "n" * 200,
    ),
    *("not", "and", "or", "in", "like", "exists", "true", "null", "None", "NaN", "select"),
    *(
        "id",
        "key",
        "vector",
        "row",
        "fields",
        "keys",
        "uid",
        "build",
        "content",
        "metadata",
        "document",
    ),
)
"""Names of fields: words of query languages and of stores, and names that differ by little."""

VALUES: Mapping[DataType, tuple[Scalar, ...]] = {
    DataType.VARCHAR: (
        *HARD_TEXTS,
        *("", " ", "a", "A", "ab", "茶", "绿茶", "null", "None", "true", "0", "2024-02-29", "[]"),
        *(
            "*",
            "a*",
            "?",
            "%",
            "_",
            "\\",
            "\\\\",
            "'",
            '"',
            "\\'",
            '\\"',
            "\\u8336",
            "\\x00",
            "#",
            "--",
            "/*",
            ";",
        ),
        *(
            "{{author}}",
            "{author}",
            "${author}",
            "$in",
            "%s",
            "[a TO b]",
            "a OR b",
            "a && b",
            "') or ('' == '",
        ),
        *("\0", "a\0b", "\n", "\u2028", "\ud7ff", "\ud83c", "a\ud83cb", "\ue000", "é", "e\u0301"),
        *("茶" * 256, "茶" * 300, "茶" * 300 + "a", "y" * 40_000),
    ),
    DataType.DATE: ("0001-01-01", "1999-12-31", "2024-02-29", "9999-12-31"),
    DataType.INT32: (-(2**31), -1, 0, 1, 2**31 - 1),
    DataType.INT64: (-(2**63), -(2**53) - 1, 0, 2**53, 2**53 + 1, 2**63 - 1),
    DataType.FLOAT: (-0.0, 0.0, 0.10000000149011612, -1.5, 3.4028234663852886e38),
    DataType.DOUBLE: (-1e300, -0.0, 0.0, 0.1, 5e-324, 1e300),
    DataType.BOOLEAN: (False, True),
}
"""Values of each type as they are stored, for rows and filters."""

_MIME_TYPES = ("text/plain", "application/pdf", "a/b' or \"c\\")

_scalar_types = st.sampled_from([*VALUES])
_doc_fields = _scalar_types.map(DocField) | st.builds(
    DocField, st.just(DataType.ARRAY), _scalar_types
)
schemas: st.SearchStrategy[Schema] = st.dictionaries(
    st.sampled_from(NAMES), _doc_fields, max_size=8
).map(make_schema)
"""The built-in fields and up to eight others, of every type."""


def scalars(name: str, field: DocField) -> st.SearchStrategy[Scalar]:
    """Values of a field, or of the elements of an ARRAY."""
    if name == "file_type":  # a filter takes anything else for a suffix
        return st.sampled_from(_MIME_TYPES)
    data_type = field.element_type or field.data_type
    chosen = st.sampled_from(VALUES[data_type])
    return (
        chosen | st.text(st.characters(codec=None), max_size=4)
        if data_type is DataType.VARCHAR
        else chosen
    )


def fields_of(schema: Schema) -> st.SearchStrategy[Fields]:
    """The fields of a row, checked; each of them may be missing, as None or altogether."""
    return st.fixed_dictionaries(
        {},
        optional={name: st.none() | _field_values(name, field) for name, field in schema.items()},
    )


def filters(schema: Schema, rows: Sequence[Fields] = ()) -> st.SearchStrategy[Filter]:
    """Bound filters of every operator, nested; many of their values are those of the rows."""
    return st.recursive(
        st.one_of([_conditions(name, field, rows) for name, field in schema.items()]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda parts: And(*parts)),
            st.lists(inner, max_size=3).map(lambda parts: Or(*parts)),
            inner.map(Not),
        ),
        max_leaves=5,
    ).map(lambda filter_: bind_filter(filter_, schema))


@st.composite
def segment_worlds(draw: st.DrawFn) -> World[Segment]:
    """A schema and 3 to 24 segments."""
    schema = draw(schemas)
    return World(schema, tuple(_unique(draw, segments(schema))))


@st.composite
def vector_worlds(draw: st.DrawFn, *, sparse: bool = False) -> World[VectorRow]:
    """A schema of dense vectors, or sometimes of sparse ones, and 3 to 24 rows."""
    fields = draw(schemas)
    drawn = st.builds(VectorSchema, st.integers(2, 6), st.sampled_from(METRICS), st.just(fields))
    schema = draw(drawn | drawn | st.just(VectorSchema(SPARSE, "ip", fields)) if sparse else drawn)
    return World(schema, tuple(_unique(draw, vector_rows(schema))))


def segments(schema: Schema) -> st.SearchStrategy[Segment]:
    """Segments with content and metadata of every kind."""
    texts = st.sampled_from(VALUES[DataType.VARCHAR]).map(str)
    json_values: st.SearchStrategy[Content] = st.sampled_from(
        [0, 7, 2.5, False, [], ["a", 1], {"名": [1, None]}]
    )
    return st.builds(
        Segment,
        uid=_keys,
        build=st.integers(0, 2),
        group=texts,
        document_id=_keys,
        path=texts,
        parent=st.none() | _keys,
        number=st.integers(1, 9),
        content=texts | json_values,
        metadata=st.dictionaries(texts, st.none() | texts, max_size=2),
        fields=fields_of(schema),
        span=st.none() | st.tuples(st.integers(0, 5), st.integers(5, 9)),
    )


def vector_rows(schema: VectorSchema) -> st.SearchStrategy[VectorRow]:
    """Rows with `embeddings` for vectors."""
    return st.builds(
        VectorRow, key=_keys, vector=embeddings(schema.dimension), fields=fields_of(schema.fields)
    )


def embeddings(dimension: int) -> st.SearchStrategy[Embedding]:
    """Vectors of which many are equal, parallel, opposite or zero, and others random.

    Scores that are equal in exact arithmetic are equal in floating point, too: components of the
    first kind are -1, 0 or 1 times one power of two, and dimensions are few, so that rational
    ratios of lengths are powers of two.
    """
    if dimension == SPARSE:
        positions = st.integers(0, 5) | st.sampled_from([2**32, 2**63 + 5])
        return st.dictionaries(positions, st.sampled_from([-1.0, -0.5, 0.5, 1.0, 2.0]), max_size=5)
    signs = st.lists(st.sampled_from([0.0, 1.0, -1.0]), min_size=dimension, max_size=dimension)
    scaled = st.builds(
        lambda row, power: np.array(row, np.float32) * np.float32(2.0**power),
        signs,
        st.integers(-2, 2),
    )
    other = st.integers(0, 2**16).map(
        lambda seed: np.random.default_rng(seed).normal(size=dimension).astype(np.float32)
    )
    return scaled | other


_keys: st.SearchStrategy[str] = st.one_of(
    st.integers(0, 255).map("{:032x}-1".format),
    st.sampled_from(HARD_TEXTS),
    # A store need not take a key that ends in a NUL, or that is not UTF-8.
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(
        lambda text: not text.endswith("\0")
    ),
)


def _field_values(name: str, field: DocField) -> st.SearchStrategy[FieldValue]:
    value = scalars(name, field)
    drawn = value if field.element_type is None else st.lists(value, max_size=3)
    return drawn.map(lambda value: check_value(name, field, value))


def _conditions(name: str, field: DocField, rows: Sequence[Fields]) -> st.SearchStrategy[Condition]:
    """Conditions on one field that suit its type."""
    is_array, is_text = field.element_type is not None, field.data_type is DataType.VARCHAR
    present = [value for row in rows if (value := row.get(name)) is not None]
    elements = [
        element
        for value in present
        for element in (value if isinstance(value, tuple) else (value,))
    ]
    scalar: st.SearchStrategy[Any] = scalars(name, field)
    scalar |= st.sampled_from(elements) if elements else st.nothing()
    complete = st.lists(scalar, max_size=3).map(tuple) if is_array else scalar
    complete |= st.sampled_from(present) if present else st.nothing()

    def condition(
        operators: Sequence[str], values: st.SearchStrategy[Any]
    ) -> st.SearchStrategy[Condition]:
        return st.builds(Condition, st.just(name), st.sampled_from(operators), values)

    conditions = [
        condition(["eq", "ne"], st.none() | complete),
        condition(["in", "not in"], st.lists(st.none() | scalar, max_size=3)),
        condition(["exists"], st.booleans()),
    ]
    if is_array or is_text:
        conditions.append(condition(["contains"], scalar))
    if is_text:
        starts = scalar.flatmap(
            lambda text: st.integers(0, max(len(str(text)) - 2, 0)).map(lambda at: str(text)[at:])
        )
        conditions.append(condition(["contains"], starts.map(lambda text: text[:2])))
    if not is_array and field.data_type is not DataType.BOOLEAN:
        conditions.append(condition(["gt", "ge", "lt", "le"], scalar))
    return st.one_of(conditions)


def _unique(draw: st.DrawFn, row: st.SearchStrategy[R]) -> list[R]:
    count = draw(st.integers(3, 24))
    return draw(st.lists(row, min_size=count, max_size=count, unique_by=lambda row: row.key))


# --- The reference


class _Reference(Generic[R]):
    """A dict with the rows of a store's collection. Every case restores both."""

    def __init__(self, store: Any, world: World[R]) -> None:
        self.store = store
        self.schema = world.schema
        self.rows: dict[str, R] = {row.key: row for row in world.rows}
        self.order: list[str] = []
        store.upsert(COLLECTION, world.rows)
        self.same_state()

    def compare(self, case: Case) -> None:
        """Send a request to both; on a difference the store gets its rows back before the error."""
        rows, order = dict(self.rows), self.order
        method, arguments = case
        try:
            getattr(self, method)(*arguments)
            if method in ("delete", "remove", "write"):
                self.same_state()
                self.store.delete(COLLECTION, keys=[key for key in self.rows if key not in rows])
                self.store.upsert(
                    COLLECTION, [row for key, row in rows.items() if self.rows.get(key) is not row]
                )
        except BaseException:
            self.store.delete(
                COLLECTION, keys=[row.key for row in self.store.scan(COLLECTION, limit=EVERY)]
            )
            self.store.upsert(COLLECTION, list(rows.values()))
            raise
        finally:
            self.rows, self.order = rows, order

    def get(self, keys: list[str]) -> None:
        """Get rows by keys, some of them present."""
        _same_rows(
            self.store.get(COLLECTION, keys), [self.rows[key] for key in keys if key in self.rows]
        )

    def scan(self, after: str, limit: int) -> None:
        """Read the page behind a key, which for segments is present: their order is the store's
        own.
        """
        if after in self.rows:
            behind = self.order[self.order.index(after) + 1 :]
        else:
            behind = [key for key in self.order if key > after]
        page = self.store.scan(COLLECTION, after=after, limit=limit)
        _same_rows(page, [self.rows[key] for key in behind[:limit]])

    def delete(self, condition: Filter) -> None:
        """Delete the rows that meet a filter."""
        deleted = [key for key, row in self.rows.items() if matches(condition, row.fields)]
        assert self.store.delete(COLLECTION, filter=condition) == len(deleted)
        self._forget(deleted)

    def remove(self, keys: list[str]) -> None:
        """Delete by keys, some of them present, some repeated."""
        deleted = [key for key in dict.fromkeys(keys) if key in self.rows]
        assert self.store.delete(COLLECTION, keys=keys) == len(deleted)
        self._forget(deleted)

    def write(self, rows: list[R]) -> None:
        """Write rows, some of which replace others, or one another."""
        self.store.upsert(COLLECTION, rows)
        self.rows.update((row.key, row) for row in rows)
        self.order = []  # the store's own

    def same_state(self) -> None:
        """Check that the store has the dict's rows, and counts as many."""
        found = self.store.scan(COLLECTION, limit=EVERY)
        keys = [row.key for row in found]
        self.order = self.order or keys
        assert keys == self.order
        assert sorted(keys) == sorted(self.rows)
        _same_rows(found, [self.rows[key] for key in keys])
        assert self.store.count(COLLECTION) == len(self.rows)

    def _forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.rows[key]
        self.order = [key for key in self.order if key in self.rows]


class _VectorReference(_Reference[VectorRow]):
    """The same for vectors, which are searched, too, and paged in the order of their keys."""

    def search(self, vectors: list[Embedding], topk: int, condition: Filter | None) -> None:
        """Search for the rows nearest to some vectors."""
        queries: Any = vectors if self.schema.is_sparse else np.stack(vectors)  # type: ignore[arg-type]
        found = self.store.search(COLLECTION, queries, topk, condition)
        assert len(found) == len(vectors)
        for query, ranking in zip(vectors, found, strict=True):
            expected = true_ranking(query, self.schema.metric, [*self.rows.values()], condition)
            assert_same_ranking(ranking, expected[:topk])

    def same_state(self) -> None:
        """Also check the order of keys, and that a search finds all rows."""
        self.order = sorted(self.rows)
        super().same_state()
        for row in [*self.rows.values()][:1]:
            self.search([row.vector], EVERY, None)


def _same_rows(found: Sequence[R], expected: Sequence[R]) -> None:
    assert [_plain(row) for row in found] == [_plain(row) for row in expected]


def _plain(row: Segment | VectorRow) -> tuple[Any, ...]:
    """A row for comparison, with the types of values; a field that is None equals a missing one."""
    fields = {
        name: (type(value).__name__, value)
        for name, value in row.fields.items()
        if value is not None
    }
    if isinstance(row, Segment):
        return row._replace(fields=EMPTY), fields, type(row.content).__name__
    return row.key, row.vector if isinstance(row.vector, dict) else row.vector.tobytes(), fields


def true_ranking(
    query: Embedding,
    metric: Metric,
    rows: Sequence[VectorRow],
    filter: Filter | None = None,  # noqa: A002
) -> Ranking:
    """The ranking that `VectorStore.search` must return for all rows, in exact arithmetic, with
    scores in float64.

    Args:
        query: (dimension,), or a dict where the rows' vectors are sparse.
        metric: ``"ip"`` for sparse ones.
        rows: In any order.
        filter: A bound filter.

    Example:
        >>> rows = [VectorRow(key, np.array(vector, np.float32)) for key, vector in (("b", [1, 1]), ("a", [2, 2]))]
        >>> true_ranking(np.array([3, 3], np.float32), "cosine", rows)
        [('a', 1.0), ('b', 1.0)]
    """
    found = []
    for row in rows:
        if filter is None or matches(filter, row.fields):
            worth = _shared(query, row) if isinstance(query, dict) else _worth(query, row, metric)
            if worth is not None:
                found.append((row.key, worth))
    found.sort(key=lambda pair: (-pair[1], pair[0]))
    return [(key, _score(worth, metric)) for key, worth in found]


def _worth(query: Vector, row: VectorRow, metric: Metric) -> Fraction:
    """A number in the order of scores: product, squared cosine with its sign, or squared distance
    below 0.
    """
    x, q = ([Fraction(float(component)) for component in vector] for vector in (dense(row), query))
    if metric == "l2":
        return -sum(((a - b) ** 2 for a, b in zip(x, q, strict=True)), Fraction())
    product = _dot(x, q)
    if metric == "ip":
        return product
    squares = _dot(x, x) * _dot(q, q)
    return product * abs(product) / squares if squares else Fraction()


def _shared(query: SparseVector, row: VectorRow) -> Fraction | None:
    """The product over the dimensions that both have; None without any."""
    vector = sparse(row)
    shared = query.keys() & vector.keys()
    return (
        sum((Fraction(query[at]) * Fraction(vector[at]) for at in shared), Fraction())
        if shared
        else None
    )


def _score(worth: Fraction, metric: Metric) -> float:
    if metric == "ip":
        return float(worth)
    root = math.sqrt(abs(worth))
    return math.copysign(root, worth) if metric == "cosine" else 1.0 / (1.0 + root)


def _dot(x: Sequence[Fraction], q: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(x, q, strict=True)), Fraction())
