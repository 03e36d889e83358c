"""Map stores with one fault each, and the shipped suites over them; `test_mutants.py` looks at
which tests notice.

Every fault is one that a store on a server easily has. Pytest finds this module only by its name.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from lazyrag.data.filters import And, Condition, Not, Or, matches
from lazyrag.stores import memory as map_store
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.testing import SegmentStoreContract, VectorStoreContract


def over_leaves(change):
    """A translation of filters that does something to each condition."""

    def translated(filter):  # noqa: A002
        if isinstance(filter, Condition):
            return change(filter)
        if isinstance(filter, Not):
            return Not(translated(filter.filter))
        return type(filter)(*map(translated, filter.filters))

    return translated


def without_not(filter):  # noqa: A002
    """Forget negations."""
    if isinstance(filter, Condition):
        return filter
    if isinstance(filter, Not):
        return without_not(filter.filter)
    return type(filter)(*map(without_not, filter.filters))


def or_as_and(filter):  # noqa: A002
    """Join with the wrong word."""
    if isinstance(filter, (And, Or)):
        return And(*map(or_as_and, filter.filters))
    return Not(or_as_and(filter.filter)) if isinstance(filter, Not) else filter


def changed_texts(change):
    """Change each text of a condition's value."""

    def changed(value):
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return change(value) if isinstance(value, str) else value

    return over_leaves(lambda one: Condition(one.field, one.op, changed(one.value)))


def unescaped(text):
    """What a parser makes of a text whose backslashes nobody has doubled."""
    return (
        text.encode("ascii", "backslashreplace").decode("unicode_escape") if "\\" in text else text
    )


def open_below(one):
    """Take "at least" for "more than"."""
    return Condition(one.field, "gt", one.value) if one.op == "ge" else one


def any_as_all(one):
    """Take "not any of these" on a list for "not all of these"."""
    if one.op == "not in":
        return Not(And(*(Condition(one.field, "in", (value,)) for value in one.value)))
    return one


def named(filter):  # noqa: A002
    """The fields that a filter names."""
    if isinstance(filter, Condition):
        return {filter.field} if filter.op != "exists" else set()
    return set().union(*map(named, [filter.filter] if isinstance(filter, Not) else filter.filters))


def like_sql(filter, fields):  # noqa: A002
    """A comparison with a missing field is neither true nor false, and nothing made of it is
    true.
    """
    return all(fields.get(name) is not None for name in named(filter)) and matches(filter, fields)


def like_wildcards(filter, fields):  # noqa: A002
    """In a text, the underscore of `contains` stands for any character."""
    loose = over_leaves(
        lambda one: (
            Condition(one.field, "ne", "") if (one.op, one.value) == ("contains", "_") else one
        )
    )
    return matches(loose(filter), fields)


def translating(base, translate):
    """A store that sees filters through a translation."""

    class Store(base):
        """Its deletions and searches."""

        def delete(self, collection, *, keys=None, filter=None):  # noqa: A002
            """With another filter."""
            return super().delete(
                collection, keys=keys, filter=None if filter is None else translate(filter)
            )

        def search(self, collection, vectors, topk, filter=None):  # noqa: A002
            """With another filter."""
            return super().search(
                collection, vectors, topk, None if filter is None else translate(filter)
            )

    return Store


@contextmanager
def evaluated_by(evaluator):
    """The map store's evaluator of filters is another one."""
    kept, map_store.matches = map_store.matches, evaluator
    try:
        yield
    finally:
        map_store.matches = kept


def evaluating(evaluator):
    """A segment store with an evaluator of its own."""

    class Store(MapSegmentStore):
        """Its deletions."""

        def delete(self, collection, *, keys=None, filter=None):  # noqa: A002
            """By the other evaluator."""
            with evaluated_by(evaluator):
                return super().delete(collection, keys=keys, filter=filter)

    return Store


class MergedMetadata(MapSegmentStore):
    """What a row had and the new one lacks, stays."""

    def upsert(self, collection, rows):
        """Merge."""
        old = {row.key: row for row in self.get(collection, [row.key for row in rows])}
        merged = [
            row._replace(metadata={**old[row.key].metadata, **row.metadata})
            if row.key in old
            else row
            for row in rows
        ]
        super().upsert(collection, merged)


class FirstOfAKey(MapSegmentStore):
    """Of rows with one key in a call the first is written."""

    def upsert(self, collection, rows):
        """Backwards."""
        super().upsert(collection, [*rows][::-1])


class LostBatch(MapSegmentStore):
    """A call writes only its first ten rows."""

    def upsert(self, collection, rows):
        """Cut off."""
        super().upsert(collection, [*rows][:10])


class KeyWithoutBuild(MapSegmentStore):
    """A new build takes the place of the old one."""

    def upsert(self, collection, rows):
        """Delete other builds."""
        for row in rows:
            others = [one.key for one in self.scan(collection) if one.uid == row.uid]
            self.delete(collection, keys=others)
        super().upsert(collection, rows)


class ContentAsText(MapSegmentStore):
    """Whatever a node holds comes back as text."""

    def get(self, collection, keys):
        """As text."""
        return [row._replace(content=str(row.content)) for row in super().get(collection, keys)]


class NoPlaces(MapSegmentStore):
    """Pages and headings are not kept."""

    def upsert(self, collection, rows):
        """Without them."""
        super().upsert(collection, [row._replace(locations=()) for row in rows])


class StoreOrder(MapSegmentStore):
    """Rows come in the store's order, not in the one asked for."""

    def get(self, collection, keys):
        """Sorted."""
        return super().get(collection, sorted(keys))


class SkippedBoundary(MapSegmentStore):
    """A page begins one row too late."""

    def scan(self, collection, *, after="", limit=1000):
        """Without the first row behind a key."""
        page = super().scan(collection, after=after, limit=limit + bool(after))
        return page[1:] if after else page


class RepeatedBoundary(MapSegmentStore):
    """A page begins with the last row of the page before."""

    def scan(self, collection, *, after="", limit=1000):
        """From the key on."""
        return [
            *self.get(collection, [after]),
            *super().scan(collection, after=after, limit=limit),
        ][:limit]


class CountedUnknownKeys(MapSegmentStore):
    """A deletion counts the keys it got."""

    def delete(self, collection, *, keys=None, filter=None):  # noqa: A002
        """Too many."""
        gone = super().delete(collection, keys=keys, filter=filter)
        return gone if keys is None else len(keys)


class DeletedAreCounted(MapSegmentStore):
    """The count includes rows that are gone."""

    def __init__(self):
        super().__init__()
        self.gone = 0

    def delete(self, collection, *, keys=None, filter=None):  # noqa: A002
        """And remember how many went."""
        deleted = super().delete(collection, keys=keys, filter=filter)
        self.gone += deleted
        return deleted

    def count(self, collection):
        """Too many."""
        return super().count(collection) + self.gone


class NoKeysAreAll(MapSegmentStore):
    """A deletion without a key is one without a condition."""

    def delete(self, collection, *, keys=None, filter=None):  # noqa: A002
        """Of everything."""
        if keys is not None and not keys:
            keys = [row.key for row in self.scan(collection)]
        return super().delete(collection, keys=keys, filter=filter)


class KeptOnDrop(MapSegmentStore):
    """Dropping a collection leaves its rows."""

    def drop(self, collection):
        """Nothing goes."""


class AnySchema(MapSegmentStore):
    """A collection that is there is taken as it is."""

    def create(self, collection, schema):
        """Whatever its fields."""
        if collection not in self._collections:
            super().create(collection, schema)


SEGMENT_FAULTS = {
    "NotForgotten": translating(MapSegmentStore, without_not),
    "OrAsAnd": translating(MapSegmentStore, or_as_and),
    "BackslashesUnescaped": translating(MapSegmentStore, changed_texts(unescaped)),
    "QuotesLost": translating(
        MapSegmentStore, changed_texts(lambda text: text.replace("'", "").replace('"', ""))
    ),
    "GreaterForAtLeast": translating(MapSegmentStore, over_leaves(open_below)),
    "AnyAsAll": translating(MapSegmentStore, over_leaves(any_as_all)),
    "MissingLikeSql": evaluating(like_sql),
    "WildcardsInTexts": evaluating(like_wildcards),
    **{
        one.__name__: one
        for one in (
            *(
                MergedMetadata,
                FirstOfAKey,
                LostBatch,
                KeyWithoutBuild,
                ContentAsText,
                NoPlaces,
                StoreOrder,
            ),
            *(
                SkippedBoundary,
                RepeatedBoundary,
                CountedUnknownKeys,
                DeletedAreCounted,
                NoKeysAreAll,
                KeptOnDrop,
                AnySchema,
            ),
        )
    },
}


class OneTooMany(MapVectorStore):
    """A ranking has a row more than was asked for."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Of topk + 1."""
        return super().search(collection, vectors, topk + (topk > 0), filter)


class TiesAsTheyCome(MapVectorStore):
    """Equal scores are in no order of keys."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """The later keys first."""
        rankings = super().search(collection, vectors, max(topk, 0) and 10_000, filter)
        return [
            sorted(one, key=lambda pair: pair[1], reverse=True)[:topk]
            for one in [[*one[::-1]] for one in rankings]
        ]


class TiesCutOff(MapVectorStore):
    """The best rows are chosen by the store's own order of equal ones; only then they are
    sorted.
    """

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Sorted after the cut."""
        rankings = super().search(collection, vectors, max(topk, 0) and 10_000, filter)
        cut = [
            sorted(one, key=lambda pair: (pair[1], pair[0]), reverse=True)[:topk]
            for one in rankings
        ]
        return [sorted(one, key=lambda pair: (-pair[1], pair[0])) for one in cut]


class CosineWithoutLength(MapVectorStore):
    """A cosine collection is ranked by inner products."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Not divided by lengths."""
        if self._collections[collection].schema.metric != "cosine":
            return super().search(collection, vectors, topk, filter)
        other = MapVectorStore()
        other.create("c", VectorSchema(vectors.shape[1], "ip", {}))
        other.upsert("c", self.scan(collection))
        return other.search("c", vectors, topk, filter)


class ZeroNotFound(MapVectorStore):
    """A vector without length has no cosine, and is never found."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Without it."""
        rankings = super().search(collection, vectors, topk, filter)
        rows = {
            row.key
            for row in self.scan(collection)
            if isinstance(row.vector, dict) or row.vector.any()
        }
        return [[pair for pair in one if pair[0] in rows] for one in rankings]


class Distances(MapVectorStore):
    """Under L2 the score is the distance."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Less is closer."""
        rankings = super().search(collection, vectors, topk, filter)
        if self._collections[collection].schema.metric != "l2":
            return rankings
        return [[(key, 1 / score - 1) for key, score in one] for one in rankings]


class FilteredAfterwards(MapVectorStore):
    """The best rows are chosen, and then those that meet the filter."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Too few."""
        fields = self._collections[collection].by_key
        rankings = super().search(collection, vectors, topk)
        return [
            [pair for pair in one if filter is None or matches(filter, fields[pair[0]])]
            for one in rankings
        ]


class HalfPrecision(MapVectorStore):
    """Vectors are kept as 16 bits a number."""

    def upsert(self, collection, rows):
        """Rounded."""
        rounded = [
            row
            if isinstance(row.vector, dict)
            else VectorRow(row.key, row.vector.astype(np.float16).astype(np.float32), row.fields)
            for row in rows
        ]
        super().upsert(collection, rounded)


class OldFields(MapVectorStore):
    """A row that is written again keeps the fields it had."""

    def upsert(self, collection, rows):
        """With them."""
        old = {row.key: row.fields for row in self.get(collection, [row.key for row in rows])}
        super().upsert(
            collection,
            [VectorRow(row.key, row.vector, old.get(row.key, row.fields)) for row in rows],
        )


class WrittenBeforeRefused(MapVectorStore):
    """Rows are written one by one until a wrong one comes."""

    def upsert(self, collection, rows):
        """One by one."""
        for row in rows:
            super().upsert(collection, [row])


class AnyMetric(MapVectorStore):
    """A collection that is there is taken as it is."""

    def create(self, collection, schema):
        """Whatever its schema."""
        if collection not in self._collections:
            super().create(collection, schema)


class Graveyard(MapVectorStore):
    """A store that remembers what is gone."""

    def __init__(self):
        super().__init__()
        self.gone = {}

    def delete(self, collection, *, keys=None, filter=None):  # noqa: A002
        """And remember what went."""
        before = {row.key: row for row in self.scan(collection)}
        deleted = super().delete(collection, keys=keys, filter=filter)
        left = {row.key for row in super().scan(collection)}
        self.gone.update({key: row for key, row in before.items() if key not in left})
        return deleted


class DeletedVectorsAreCounted(Graveyard):
    """The count includes rows that are gone."""

    def count(self, collection):
        """Too many."""
        return super().count(collection) + len(self.gone)


class DeletedAreFound(Graveyard):
    """A search ranks rows that are gone."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Among all that ever were."""
        other = MapVectorStore()
        other.create("c", self._collections[collection].schema)
        other.upsert("c", [*self.gone.values(), *self.scan(collection)])
        return other.search("c", vectors, topk, filter)


class WrittenOrder(MapVectorStore):
    """Pages follow the order in which rows were written."""

    def scan(self, collection, *, after="", limit=1000):
        """As they came."""
        keys = [*self._collections[collection].by_key] if collection in self._collections else []
        first = keys.index(after) + 1 if after in keys else 0 if not after else len(keys)
        super().scan(collection, limit=1)
        return self.get(collection, keys[first : first + limit])


class SharedByAllRows(MapVectorStore):
    """Sparse rows that share no dimension with the query are ranked, with 0."""

    def search(self, collection, vectors, topk, filter=None):  # noqa: A002
        """Filled up."""
        rankings = super().search(collection, vectors, topk, filter)
        if not self._collections[collection].schema.is_sparse:
            return rankings
        fields = self._collections[collection].by_key
        every = [
            (key, 0.0) for key in sorted(fields) if filter is None or matches(filter, fields[key])
        ]
        return [
            [*one, *(pair for pair in every if pair[0] not in dict(one))][:topk] for one in rankings
        ]


VECTOR_FAULTS = {
    "NotForgotten": translating(MapVectorStore, without_not),
    "OrAsAnd": translating(MapVectorStore, or_as_and),
    "BackslashesUnescaped": translating(MapVectorStore, changed_texts(unescaped)),
    "FilterIgnored": translating(MapVectorStore, lambda _: And()),
    **{
        one.__name__: one
        for one in (
            *(
                OneTooMany,
                TiesAsTheyCome,
                TiesCutOff,
                CosineWithoutLength,
                ZeroNotFound,
                Distances,
                FilteredAfterwards,
            ),
            *(
                HalfPrecision,
                OldFields,
                WrittenBeforeRefused,
                AnyMetric,
                DeletedVectorsAreCounted,
                DeletedAreFound,
            ),
            *(WrittenOrder, SharedByAllRows),
        )
    },
}


def suite_over(contract, store_class):
    """A third party's test class."""
    return type(contract.__name__, (contract,), {"make_store": lambda self: store_class()})


globals().update(
    {
        f"TestSegments{name}": suite_over(SegmentStoreContract, one)
        for name, one in SEGMENT_FAULTS.items()
    }
)
globals().update(
    {
        f"TestVectors{name}": suite_over(VectorStoreContract, one)
        for name, one in VECTOR_FAULTS.items()
    }
)
