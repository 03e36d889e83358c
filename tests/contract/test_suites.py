"""The suites themselves: a store that declares more than it keeps does not pass."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from lazyrag.data.filters import matches
from lazyrag.data.segment import content_text
from lazyrag.errors import ConfigError, StoreError, UnsupportedError
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.protocol import VectorSchema
from lazyrag.testing import SegmentStoreContract, VectorStoreContract
from lazyrag.testing import suites as segment_store
from lazyrag.testing import suites as vector_store
from lazyrag.testing.samples import DIMENSION, SCHEMA, make_rows, make_segments
from lazyrag.text.analyzers import analysers
from lazyrag.validation import validate_integer

SUITES = [(SegmentStoreContract, MapSegmentStore), (VectorStoreContract, MapVectorStore)]
SUITE = pytest.mark.parametrize(("suite", "base"), SUITES, ids=["segments", "vectors"])


def declaring(base, *features: str, loses: bool = False):
    """A store class over a dict that outlives it, as others keep a file, which declares
    features.
    """

    class Store(base):
        """Keeps its rows in the dict; or loses them when it is closed."""

        def __init__(self, kept: dict):
            super().__init__()
            self.features = frozenset(features)
            self.kept = self._collections = kept

        def close(self):
            """Keep the rows, or lose them."""
            if loses:
                self.kept.clear()

    return Store


def run(suite, store_class, *, reopen=None) -> None:
    """Run a suite's test of features on a filled store, as a third party's test class does."""

    class TestStore(suite):
        """The third party's test class."""

        def make_store(self):
            """A new store."""
            return store_class({})

    if reopen is not None:
        TestStore.reopen_store = lambda self, store: reopen(store)
    contract = TestStore()
    store = contract.make_store()
    store.open()
    if suite is SegmentStoreContract:
        store.create(segment_store.C, SCHEMA)
        store.upsert(segment_store.C, make_segments())
    else:
        store.create(vector_store.VECTORS, VectorSchema(DIMENSION, "cosine", SCHEMA))
        store.upsert(vector_store.VECTORS, make_rows())
    contract.test_what_is_declared_is_kept(store)


def again(store):
    """Another store object over the same rows."""
    return type(store)(store.kept)


@SUITE
def test_a_persistent_store_passes(suite, base):
    """A store whose rows outlive it passes the test of the feature that it declares."""
    run(suite, declaring(base, "persistent"), reopen=again)


@SUITE
def test_a_store_that_forgets_its_rows_is_not_persistent(suite, base):
    """Rows that are lost when the store is closed fail the suite; undeclared, they are the store's
    own affair.
    """
    with pytest.raises(StoreError, match="no collection"):
        run(suite, declaring(base, "persistent", loses=True), reopen=again)
    run(suite, declaring(base, loses=True), reopen=again)


@SUITE
def test_rows_that_live_only_as_long_as_the_object_are_not_persistent(suite, base):
    """A store in memory that gives its rows after close and open, but not to the next program,
    fails the suite.
    """
    with pytest.raises(AssertionError):
        run(suite, declaring(base, "persistent"), reopen=lambda store: type(store)({}))


@SUITE
def test_a_declared_persistence_must_be_tested(suite, base):
    """A test class that does not say how to reopen the store fails, and so does one that hands back
    the old object.
    """
    with pytest.raises(
        pytest.fail.Exception, match=r"declares the feature 'persistent'.*reopen_store\(store\)"
    ):
        run(suite, declaring(base, "persistent"))
    with pytest.raises(AssertionError, match="must make another store"):
        run(suite, declaring(base, "persistent"), reopen=lambda store: store)


@SUITE
@pytest.mark.parametrize("feature", ["shared", "exact text", "persistant"])
def test_a_feature_without_a_test_is_not_passed_over(suite, base, feature):
    """Declaring what the suite cannot test fails it, with the features that it can test."""
    with pytest.raises(
        pytest.fail.Exception, match=rf"feature '{feature}'.*no test.*tests for: .*persistent"
    ):
        run(suite, declaring(base, feature))


def test_a_store_without_sparse_vectors_says_so():
    """One that takes a sparse schema without declaring the feature fails the suite; one that
    refuses it passes.
    """

    class Refusing(declaring(MapVectorStore)):
        """Keeps dense vectors only."""

        def create(self, collection, schema):
            """Refuse what is sparse."""
            if schema.is_sparse:
                msg = "This store keeps dense vectors only. Use the map store."
                raise UnsupportedError(msg, store="refusing")
            super().create(collection, schema)

    suite = VectorStoreContract()
    for kind, fails in ((declaring(MapVectorStore), True), (Refusing, False)):
        store = kind({})
        store.create("lr_contract_vectors_0", VectorSchema(8, "cosine", SCHEMA))
        store.upsert("lr_contract_vectors_0", make_rows())
        with pytest.raises(pytest.fail.Exception) if fails else nullcontext():
            suite.test_a_store_that_does_not_declare_sparse_refuses_such_a_schema(store)


class Ranking(declaring(MapSegmentStore, "native text")):
    """Ranks by how many terms of the query a row has."""

    sees_filters = True

    def search_text(self, collection, analyser, terms, topk, filter=None):  # noqa: A002
        """Every row with its count, best first."""
        validate_integer("topk", topk, 1)
        if analyser not in ("en", "zh"):
            msg = f"The analyser {analyser!r} is unknown."
            raise UnsupportedError(msg, store="ranking")
        hits = []
        for row in self.scan(collection):
            shared = {*terms} & {*analysers[analyser].terms(content_text(row.content))}
            if shared and (filter is None or not self.sees_filters or matches(filter, row.fields)):
                hits.append((row.key, float(len(shared))))
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:topk]


def test_a_store_that_ranks_by_text_is_tested():
    """One that finds what it should passes; one without the method, or that overlooks the filter,
    fails.
    """

    class Overlooking(Ranking):
        """Finds rows that no filter lets through."""

        sees_filters = False

    run(SegmentStoreContract, Ranking)
    for wrong in (Overlooking, declaring(MapSegmentStore, "native text")):
        with pytest.raises(AssertionError):
            run(SegmentStoreContract, wrong)


@pytest.mark.slow
def test_an_approximate_search_is_not_exact():
    """A vector store that misses one of the nearest rows among many fails the test of the feature
    it declares.
    """

    class Approximate(declaring(MapVectorStore, "exact")):
        """Looks at nine rows of ten once there are many."""

        def search(self, collection, vectors, topk, filter=None):  # noqa: A002
            """Rankings without every tenth row."""
            found = super().search(collection, vectors, 2 * topk, filter)
            few = self.count(collection) < 1000
            return [
                [pair for pair in one if few or not pair[0].endswith("0")][:topk] for one in found
            ]

    run(VectorStoreContract, declaring(MapVectorStore, "exact"))
    with pytest.raises(AssertionError):
        run(VectorStoreContract, Approximate)


class ExactSearch:
    """What a store of both features has beside the map store's methods."""

    exact_rows = 1500

    def search_natively(self, collection, vectors, topk, filter=None):  # noqa: A002
        """The exact rankings, as a backend rounds them."""
        rounded = [
            [(key, float(np.float16(score))) for key, score in one]
            for one in self.nearest(vectors, filter)
        ]
        return [
            sorted(one, key=lambda pair: (-pair[1], pair[0]))[: self.checked(topk)]
            for one in rounded
        ]

    def nearest(self, vectors, filter):  # noqa: A002
        """All rows of the contract's collection, best first."""
        return self.search(vector_store.VECTORS, vectors, 1000, filter)

    def checked(self, topk):
        """A topk that is at least 1."""
        if topk < 1:
            raise ConfigError(f"topk is {topk}; give at least 1.")
        return topk


class Unreached(ExactSearch):
    """A graph that does not reach every second one of equal rows."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Rankings without the second of two rows with the same score, and so on."""
        found = super().search(collection, vectors, 10_000, filter)
        if len(found[0]) < 100:
            return [one[:topk] for one in found]
        return [
            [pair for at, pair in enumerate(one) if not at or pair[1] != one[at - 1][1]][:topk]
            for one in found
        ]


class Unfiltered(ExactSearch):
    """Its own search does not look at the filter."""

    def nearest(self, vectors, filter):  # noqa: A002
        """All rows."""
        return super().nearest(vectors, None)


class Reversed(ExactSearch):
    """Its own search tells distances, of which less is closer."""

    def nearest(self, vectors, filter):  # noqa: A002
        """All rows, each with its distance."""
        return [
            [(key, 1.0 - score) for key, score in one] for one in super().nearest(vectors, filter)
        ]


class Tiny(ExactSearch):
    """Exact only in collections that nobody has."""

    exact_rows = 5


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("kind", "fails"),
    [
        (ExactSearch, False),
        (Unreached, True),
        (Unfiltered, True),
        (Reversed, True),
        (Tiny, True),
        (object, True),
    ],
)
def test_exact_when_small_and_native_vectors_are_looked_at(kind, fails):
    """A store passes that is exact up to its size and has a search of its own; one that is not does
    not.
    """
    base = declaring(MapVectorStore, "exact when small", "native vectors")
    with pytest.raises(AssertionError) if fails else nullcontext():
        run(
            VectorStoreContract,
            type(kind.__name__, (kind, base) if kind is not object else (base,), {}),
        )


@pytest.mark.parametrize("contract", [SegmentStoreContract, VectorStoreContract])
def test_a_suite_without_a_store_says_what_to_override(contract):
    """A store's author who forgets make_store is told what it returns."""
    with pytest.raises(NotImplementedError, match="make_store"):
        contract().make_store()
