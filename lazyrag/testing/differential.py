"""Stores beside a plain-Python reference: schemas, rows, filters and queries as Hypothesis draws them.

Unlike the contract, which `lazyrag.testing` has without it, this needs Hypothesis.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from lazyrag.data.segment import Segment
from lazyrag.stores.protocol import SegmentStore, VectorRow, VectorStore
from lazyrag.testing.beside import (
    COLLECTION,
    EVERY,
    Beside,
    Case,
    Delete,
    Get,
    Remove,
    Scan,
    Search,
    VectorsBeside,
    Write,
)
from lazyrag.testing.drawn import (
    SegmentWorld,
    VectorWorld,
    embeddings,
    filters,
    segment_worlds,
    segments,
    vector_rows,
    vector_worlds,
)
from lazyrag.types import Fields

if TYPE_CHECKING:
    import pytest

R = TypeVar("R", Segment, VectorRow)
W = TypeVar("W")


class _Differential(Generic[R]):
    """What both kinds of store have in common.

    Collections are made and filled once, since that takes a server long; each case leaves them as they were, so that
    Hypothesis can look for a smaller one that fails.
    """

    schemas = 20
    """How many collections are made, each with a schema and rows of its own: one test for each."""

    cases = 50
    """How many questions each of them is asked."""

    seed = 0
    """Another number draws other schemas, rows and cases; the same one draws the same."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """A test for each of the schemas."""
        if "number" in metafunc.fixturenames:
            metafunc.parametrize("number", range(self.schemas))

    def _seed(self, number: int) -> int:
        """Of one of the schemas."""
        return (self.seed << 20) + number

    def _ask(self, beside: Beside[R], number: int, cases: st.SearchStrategy[Case]) -> None:
        """Ask a collection as many questions as each of them is asked."""

        @seed(self._seed(number))
        @settings(max_examples=self.cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(cases)
        def check(case: Case) -> None:
            note(f"The rows are {[*beside.rows.values()]!r}")
            beside.check(case)

        with _large_reprs():
            check()


class SegmentStoreDifferential(_Differential[Segment]):
    """Subclass it as ``TestSomething`` and override `make_store`; `schemas` and `cases` say how much is tested."""

    def make_store(self) -> SegmentStore:
        """A new, empty, closed store."""
        msg = f"{type(self).__name__} overrides no make_store(self): return a new, empty, closed store there."
        raise NotImplementedError(msg)

    def test_answers_are_those_of_the_reference(self, number: int) -> None:
        """Whatever is written, deleted by key or filter, got or paged, the rows are those of a dict, value by value."""
        world = _drawn(segment_worlds(), self._seed(number))
        store = self.make_store()
        store.open()
        try:
            store.create(COLLECTION, world.schema)
            self._ask(Beside(store, world.rows), number, _segment_cases(world))
            store.drop(COLLECTION)
        finally:
            store.close()


class VectorStoreDifferential(_Differential[VectorRow]):
    """The same for vectors. Sparse ones are drawn, too, for a store that declares them."""

    def make_store(self) -> VectorStore:
        """A new, empty, closed store."""
        msg = f"{type(self).__name__} overrides no make_store(self): return a new, empty, closed store there."
        raise NotImplementedError(msg)

    def test_answers_are_those_of_the_reference(self, number: int) -> None:
        """The same, and searches find exactly what a ranking in exact arithmetic has, in its order, ties by key."""
        store = self.make_store()
        store.open()
        try:
            world = _drawn(vector_worlds(sparse="sparse" in store.features), self._seed(number))
            store.create(COLLECTION, world.schema)
            self._ask(VectorsBeside(store, world), number, _vector_cases(world))
            store.drop(COLLECTION)
        finally:
            store.close()


def _drawn(worlds: st.SearchStrategy[W], number: int) -> W:
    """One of them, for a number always the same."""
    found: list[W] = []

    # The first one is the simplest of all, the second as any other; more would be variations of those before.
    @seed(number)
    @settings(
        max_examples=2,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(worlds)
    def collect(world: W) -> None:
        found.append(world)

    with _large_reprs():
        collect()
    return found[-1]


@contextmanager
def _large_reprs() -> Iterator[None]:
    """Hypothesis warns of values that are as long as ours are meant to be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Generating overly large repr", HypothesisWarning)
        yield


def _segment_cases(world: SegmentWorld) -> st.SearchStrategy[Case]:
    keys, written = _keys(world.rows), st.lists(_rewritten(segments(world.schema), world.rows), max_size=4)
    deleted = filters(world.schema, _fields(world.rows)).map(Delete)
    afters = st.just("") | keys if world.rows else st.just("")
    return _often(
        (5, deleted),
        (1, st.lists(keys, max_size=6, unique=True).map(Get)),
        # In the store's own order, so that only keys of rows tell where a page begins.
        (1, st.builds(Scan, afters.filter(lambda key: not key or key in {row.key for row in world.rows}), _limits)),
        (1, st.lists(keys, max_size=6).map(Remove)),
        (1, written.map(Write)),
    )


def _vector_cases(world: VectorWorld) -> st.SearchStrategy[Case]:
    schema, keys = world.schema, _keys(world.rows)
    chosen = filters(schema.fields, _fields(world.rows))
    near = embeddings(schema.dimension)
    if world.rows:
        near |= st.sampled_from([row.vector for row in world.rows])
    searched = st.builds(Search, st.lists(near, min_size=1, max_size=2), _limits, st.none() | chosen | chosen)
    return _often(
        (12, searched),
        (1, chosen.map(Delete)),
        (2, st.lists(keys, max_size=6, unique=True).map(Get)),
        (2, st.builds(Scan, st.just("") | keys, _limits)),
        (1, st.lists(keys, max_size=6).map(Remove)),
        (1, st.lists(_rewritten(vector_rows(schema), world.rows), max_size=4).map(Write)),
    )


_limits = st.integers(1, 8) | st.sampled_from([100, EVERY])


def _often(*weighted: tuple[int, st.SearchStrategy[Case]]) -> st.SearchStrategy[Case]:
    """Each of the strategies as often as its weight says."""
    many = [strategy for weight, strategy in weighted for _ in range(weight)]
    return st.sampled_from(range(len(many))).flatmap(many.__getitem__)  # one_of() would look into the strategies


def _keys(rows: Sequence[R]) -> st.SearchStrategy[str]:
    """Keys of rows, and others."""
    others = st.sampled_from(["unknown-0", "'", '"', "\\", "*", "k' or '1' == '1"])
    return others | st.sampled_from([row.key for row in rows]) if rows else others


def _fields(rows: Sequence[R]) -> list[Fields]:
    return [row.fields for row in rows]


def _rewritten(row: st.SearchStrategy[R], rows: Sequence[R]) -> st.SearchStrategy[R]:
    """New rows, and other ones under a present key."""
    if not rows:
        return row
    return row | st.builds(_under_key_of, row, st.sampled_from([*rows]))


def _under_key_of(row: R, other: R) -> R:
    if isinstance(row, Segment):
        return row._replace(uid=other.uid, build=other.build)
    return VectorRow(other.key, row.vector, row.fields)
