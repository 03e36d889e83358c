"""Rows and filters that a store on a server is likely to get wrong, for tests beside the reference
evaluator.
"""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from lazyrag import DataType, DocField
from lazyrag.data.fields import Schema, make_schema
from lazyrag.data.filters import And, Condition, Filter, Not, Or, bind_filter
from lazyrag.types import Fields

SCALARS = {
    "name": DataType.VARCHAR,
    "day": DataType.DATE,
    "small": DataType.INT32,
    "large": DataType.INT64,
    "single": DataType.FLOAT,
    "double": DataType.DOUBLE,
    "public": DataType.BOOLEAN,
}
ARRAYS = {
    "names": DataType.VARCHAR,
    "numbers": DataType.DOUBLE,
    "counts": DataType.INT64,
    "marks": DataType.BOOLEAN,
}
SCHEMA: Schema = make_schema(
    {name: DocField(kind) for name, kind in SCALARS.items()}
    | {name: DocField(DataType.ARRAY, kind) for name, kind in ARRAYS.items()}
)

_LONG = "茶" * 300
VALUES = {
    DataType.VARCHAR: (
        "",
        " ",
        "a",
        "A",
        "茶",
        "绿茶",
        "🍵",
        "\ud7fe",
        "\ud7ff",  # the mark that OpenSearch's store cuts with
        "\ud83c",  # half of a surrogate pair
        "a\ud83c",
        "a\ud83cb",
        "\ue000",
        _LONG[:256],
        _LONG,
        _LONG + "a",
        "y" * 40_000,
        "*",
        "a*",
        "?",
        "\\",
        '"',
        "{{name}}",
        "${name}",
        "[a TO b]",
        "a OR b",
        "null",
        "None",
        "line\nbreak\0",
    ),
    DataType.DATE: ("0001-01-01", "1999-12-31", "2024-02-29", "9999-12-31"),
    DataType.INT32: (-(2**31), -1, 0, 1, 2**31 - 1),
    DataType.INT64: (-(2**63), -(2**53) - 1, 0, 2**53, 2**53 + 1, 2**63 - 1),
    DataType.FLOAT: (-0.0, 0.0, 0.10000000149011612, 3.4028234663852886e38),
    DataType.DOUBLE: (-1e300, -0.0, 0.0, 0.1, 5e-324, 1e300),
    DataType.BOOLEAN: (False, True),
}


def rows() -> list[Fields]:
    """Rows in which each value of each type stands beside values of the others, and each field is
    missing in some.
    """
    made: list[Fields] = []
    longest = max(map(len, VALUES.values()))
    for number in range(longest + 3):
        row: dict = {name: _pick(VALUES[kind], number, 3) for name, kind in SCALARS.items()}
        for name, kind in ARRAYS.items():
            length = number % 5 - 1  # missing, empty, then up to three
            values = VALUES[kind]
            row[name] = (
                None
                if length < 0
                else tuple(values[(number + at) % len(values)] for at in range(length))
            )
        made.append({name: row.get(name) for name in SCHEMA})
    return made


def _pick(values: tuple, number: int, missing: int):
    """One value after another; then as often none."""
    return (*values, *itertools.repeat(None, missing))[number % (len(values) + missing)]


@st.composite
def _conditions(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from([*SCALARS, *ARRAYS]))
    kind = SCALARS.get(name) or ARRAYS[name]
    one = st.sampled_from(VALUES[kind])
    if kind is DataType.VARCHAR:
        one |= st.text(st.characters(codec=None), max_size=4)
    operators = ["eq", "ne", "in", "not in", "exists"]
    if name in ARRAYS or kind is DataType.VARCHAR:
        operators.append("contains")
    if name in SCALARS and kind is not DataType.BOOLEAN:
        operators += ["gt", "ge", "lt", "le"]
    operator = draw(st.sampled_from(operators))
    if operator == "exists":
        return Condition(name, operator, draw(st.booleans()))
    if operator in ("in", "not in"):
        return Condition(name, operator, draw(st.lists(one | st.none(), max_size=3)))
    if operator in ("eq", "ne"):
        return Condition(
            name, operator, draw(st.none() | (st.lists(one, max_size=3) if name in ARRAYS else one))
        )
    return Condition(name, operator, draw(one))


FILTERS: st.SearchStrategy[Filter] = st.recursive(
    _conditions(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: And(*parts)),
        st.lists(inner, max_size=3).map(lambda parts: Or(*parts)),
        inner.map(Not),
    ),
    max_leaves=4,
).map(lambda one: bind_filter(one, SCHEMA))
"""Bound filters over `SCHEMA`, with values from the rows and others."""
