"""The rows, fields and filters that the store contracts work with."""

from __future__ import annotations

from lazyrag.data.fields import DataType, DocField, Schema, make_schema
from lazyrag.data.filters import And, Condition, Filter, Not, Or, bind_filter, matches
from lazyrag.data.segment import Content, Segment
from lazyrag.stores.protocol import SegmentStore
from lazyrag.types import Fields

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
"""Texts that a store might interpret; it must keep them as they are."""

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
        "tags": None if number % 8 == 7 else tuple(HARD_TEXTS[at] for at in range(number % 3)),
    }
    for number in range(24)
)

FILTERS: tuple[Filter, ...] = tuple(
    bind_filter(one, SCHEMA)
    for one in (
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
"""Each of them is met by some of `FIELDS` and not by all."""


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
            metadata={} if number % 2 else {"note": HARD_TEXTS[number % len(HARD_TEXTS)], "nothing": None},
            fields=fields,
            span=(number, number + 5) if number % 2 else None,
        )
        for number, fields in enumerate(FIELDS)
    ]


def by_key(row: Segment) -> str:
    """What tests sort segments by, where a store's own order does not matter."""
    return row.key


def all_rows(store: SegmentStore, collection: str) -> list[Segment]:
    """Every row of a collection, in the order of keys."""
    return sorted(store.scan(collection), key=by_key)


def met(filter: Filter) -> set[int]:  # noqa: A002
    """Positions of the `FIELDS` that a filter lets through, by the reference evaluator; never none, never all."""
    found = {number for number, fields in enumerate(FIELDS) if matches(filter, fields)}
    if not 0 < len(found) < len(FIELDS):
        msg = f"The filter {filter!r} tests nothing: it is met by {len(found)} of {len(FIELDS)} rows."
        raise ValueError(msg)
    return found
