"""Filters: what every operator says of every type, the laws they obey, what is refused."""

from __future__ import annotations

import datetime as dt
import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import And, Condition, DataType, DocField, Not, Or
from lazyrag.data.fields import check_value, make_schema
from lazyrag.data.filters import OPERATORS, bind_filter, both, matches, parse_filter
from lazyrag.errors import ConfigError

INT32, INT64, FLOAT, DOUBLE = DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE
BOOLEAN, VARCHAR, DATE, ARRAY = DataType.BOOLEAN, DataType.VARCHAR, DataType.DATE, DataType.ARRAY

# Three values of each ordered type, ascending, as users may write them.
ORDERED = {
    INT32: (-5, 0, 2**31 - 1),
    INT64: (-(2**63), 7, 2**63 - 1),
    FLOAT: (-0.5, 0.1, 3),
    DOUBLE: (-1e300, 0.1, 1e300),
    VARCHAR: ("B", "a", "茶"),  # by code point: upper case before lower case before Chinese
    DATE: ("1999-12-31", dt.date(2000, 1, 1), "2024-05-01"),
}

LOW, MID, HIGH, MISSING = "low", "mid", "high", "missing"
ALL = {LOW, MID, HIGH, MISSING}

# Operator, operand as positions in the three values (None stands for a missing value), rows that it
# lets through.
SAID_OF_ORDERED = [
    ("eq", 1, {MID}),
    ("eq", None, {MISSING}),
    ("ne", 1, {LOW, HIGH, MISSING}),
    ("ne", None, {LOW, MID, HIGH}),
    ("in", [1, 2], {MID, HIGH}),
    ("in", [1, None], {MID, MISSING}),
    ("in", [None], {MISSING}),
    ("in", [], set()),
    ("not in", [1, 2], {LOW, MISSING}),
    ("not in", [1, None], {LOW, HIGH}),
    ("not in", [None], {LOW, MID, HIGH}),
    ("not in", [], ALL),
    ("gt", 1, {HIGH}),
    ("gt", 2, set()),
    ("ge", 1, {MID, HIGH}),
    ("lt", 1, {LOW}),
    ("lt", 0, set()),
    ("le", 1, {LOW, MID}),
    ("in range", [0, 2], {LOW, MID}),
    ("exists", True, {LOW, MID, HIGH}),
    ("exists", False, {MISSING}),
]


def _let_through(condition: Condition, field: DocField, rows: dict) -> set:
    """Names of the rows that a condition on the field ``f`` lets through; a row with None may also
    lack the field.
    """
    bound = bind_filter(condition, make_schema({"f": field}))
    stored = {name: check_value("f", field, value) for name, value in rows.items()}
    found = {name for name, value in stored.items() if matches(bound, {"f": value, "other": 1})}
    if any(value is None for value in stored.values()):
        assert matches(bound, {}) == any(stored[name] is None for name in found)
    return found


@pytest.mark.sample(6)
@pytest.mark.parametrize("data_type", ORDERED, ids=lambda one: one.name)
@pytest.mark.parametrize(("op", "operand", "expected"), SAID_OF_ORDERED)
def test_operators_on_ordered_types(data_type, op, operand, expected):
    """Every operator says the same of every ordered type; a missing value is below, above and equal
    to nothing.
    """
    values = ORDERED[data_type]

    def value(at):
        return None if at is None else values[at]

    if op != "exists":
        operand = [value(at) for at in operand] if isinstance(operand, list) else value(operand)
    rows = dict(zip((LOW, MID, HIGH), values, strict=True)) | {MISSING: None}
    assert _let_through(Condition("f", op, operand), DocField(data_type), rows) == expected


@pytest.mark.parametrize(
    ("op", "operand", "expected"),
    [
        ("eq", True, {"yes"}),
        ("eq", False, {"no"}),
        ("eq", None, {MISSING}),
        ("ne", True, {"no", MISSING}),
        ("ne", None, {"yes", "no"}),
        ("in", [True], {"yes"}),
        ("in", [False, None], {"no", MISSING}),
        ("not in", [True], {"no", MISSING}),
        ("not in", [True, False], {MISSING}),
        ("exists", True, {"yes", "no"}),
        ("exists", False, {MISSING}),
    ],
)
def test_operators_on_booleans(op, operand, expected):
    """False is a value, not a missing one."""
    rows = {"yes": True, "no": False, MISSING: None}
    assert _let_through(Condition("f", op, operand), DocField(BOOLEAN), rows) == expected


@pytest.mark.parametrize(
    ("op", "operand", "expected"),
    [
        ("contains", "green", {"tea"}),
        ("contains", "Green", {"shout"}),
        ("contains", "绿", {"zh"}),
        ("contains", "%", {"wild"}),
        ("contains", "_", {"wild"}),
        ("contains", ".*", set()),
        ("contains", "", {"tea", "shout", "zh", "wild", "empty"}),
        ("eq", "", {"empty"}),
        ("ne", "", {"tea", "shout", "zh", "wild", MISSING}),
        ("exists", True, {"tea", "shout", "zh", "wild", "empty"}),
    ],
)
def test_text_is_searched_as_it_is(op, operand, expected):
    """On text, contains means substring: case kept, no wild cards, never in a missing one; empty
    text is a value.
    """
    rows = {
        "tea": "green tea",
        "shout": "Green TEA",
        "zh": "绿茶",
        "wild": "50%_off",
        "empty": "",
        MISSING: None,
    }
    assert _let_through(Condition("f", op, operand), DocField(VARCHAR), rows) == expected


ELEMENTS = {**ORDERED, BOOLEAN: (False, True, None)}

SAID_OF_ARRAYS = [
    ("contains", 0, {"two"}),
    ("contains", 1, {"one", "two"}),
    ("in", [0], {"two"}),
    ("in", [0, 1], {"one", "two"}),
    ("in", [0, None], {"two", MISSING}),
    ("in", [], set()),
    ("in", [None], {MISSING}),
    ("not in", [0], {"empty", "one", MISSING}),
    ("not in", [1, None], {"empty"}),
    ("not in", [], {"empty", "one", "two", MISSING}),
    ("eq", [1], {"one"}),
    ("eq", [0, 1], {"two"}),
    ("eq", [1, 0], set()),
    ("eq", [0, 1, 1], set()),
    ("eq", [], {"empty"}),
    ("eq", None, {MISSING}),
    ("ne", [1], {"empty", "two", MISSING}),
    ("ne", [], {"one", "two", MISSING}),
    ("ne", None, {"empty", "one", "two"}),
    ("exists", True, {"empty", "one", "two"}),
    ("exists", False, {MISSING}),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("element_type", ELEMENTS, ids=lambda one: one.name)
@pytest.mark.parametrize(("op", "operand", "expected"), SAID_OF_ARRAYS)
def test_operators_on_arrays(element_type, op, operand, expected):
    """On an array, in means overlap, contains means element, eq means the whole array in its
    order.
    """
    values = ELEMENTS[element_type]

    def value(at):
        return None if at is None else values[at]

    if op != "exists" and operand is not None:
        operand = [value(at) for at in operand] if isinstance(operand, list) else value(operand)
    rows = {"empty": [], "one": [values[1]], "two": [values[0], values[1]], MISSING: None}
    assert (
        _let_through(Condition("f", op, operand), DocField(ARRAY, element_type), rows) == expected
    )


def test_a_range_of_an_array():
    """It is true if any element is in it; booleans have no order, and a range has two bounds."""
    rows, field = {"none": [], "one": [1], "far": [0, 9], MISSING: None}, DocField(ARRAY, INT32)
    assert _let_through(Condition("f", "in range", [1, 9]), field, rows) == {"one"}
    assert _let_through(Condition("f", "in range", [9, 1]), field, rows) == set()
    with pytest.raises(ConfigError, match="two bounds"):
        Condition("f", "in range", [1, 2, 3])
    with pytest.raises(ConfigError, match="ordered"):
        bind_filter(
            Condition("f", "in range", [True, False]), make_schema({"f": DocField(BOOLEAN)})
        )


def test_a_part_of_a_mime_type_can_be_asked_for():
    """Contains means substring on file_type as on any text: all images, whatever their suffix."""
    rows = {"photo": "image/jpeg", "text": "text/plain", MISSING: None}
    bound = bind_filter(Condition("file_type", "contains", "image"), make_schema(None))
    assert {name for name, value in rows.items() if matches(bound, {"file_type": value})} == {
        "photo"
    }


def test_operators_have_symbols():
    """Each symbol means the operator it stands for, and an operator is stored under its one
    name.
    """
    symbols = {"==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
    assert {symbol: Condition("year", symbol, 1).op for symbol in symbols} == symbols
    assert Condition("year", ">=", 2002) == Condition("year", "ge", 2002)
    assert set(symbols.values()) < set(OPERATORS)


def test_a_negated_ordering_matches_a_missing_value():
    """Logic is two-valued: what is not above 2000 need not be below it."""
    schema = make_schema({"year": DocField(INT32)})
    above = bind_filter(Condition("year", ">", 2000), schema)
    assert not matches(above, {"year": None})
    assert matches(Not(above), {"year": None})
    assert not matches(bind_filter(Condition("year", "<=", 2000), schema), {"year": None})


SCHEMA = make_schema(
    {
        "public_year": DocField(INT32),
        "size": DocField(INT64),
        "weight": DocField(FLOAT),
        "rating": DocField(DOUBLE),
        "author": DocField(VARCHAR, max_size=4),
        "day": DocField(DATE),
        "public": DocField(BOOLEAN),
        "tags": DocField(ARRAY, VARCHAR, max_size=3),
        "days": DocField(ARRAY, DATE),
        "marks": DocField(ARRAY, FLOAT, max_size=2),
    }
)

NARROW = 0.10000000149011612  # 0.1 in 32 bits


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        (Condition("weight", "eq", 0.1), NARROW),
        (Condition("weight", "in", [0.1, None]), (NARROW, None)),
        (Condition("weight", "gt", 1), 1.0),
        (Condition("rating", "eq", 0.1), 0.1),
        (Condition("public_year", "eq", np.int64(2002)), 2002),
        (Condition("day", "ge", dt.date(2024, 5, 1)), "2024-05-01"),
        (Condition("day", "in", [dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)]), ("2024-05-01",)),
        (Condition("days", "contains", dt.date(2024, 5, 1)), "2024-05-01"),
        (Condition("days", "eq", [dt.date(2024, 5, 1)]), ("2024-05-01",)),
        (Condition("marks", "eq", [0.1]), (NARROW,)),
        (Condition("marks", "contains", 0.1), NARROW),
        (Condition("tags", "eq", ["a", "b"]), ("a", "b")),
        (Condition("tags", "in", (one for one in "ab")), ("a", "b")),
        (Condition("file_type", "eq", ".pdf"), "application/pdf"),
        (Condition("file_type", "eq", "PDF"), "application/pdf"),
        (Condition("file_type", "in", ["md", "text/plain"]), ("text/markdown", "text/plain")),
        (Condition("file_type", "not in", [".TXT"]), ("text/plain",)),
        (Condition("file_type", "eq", "application/octet-stream"), "application/octet-stream"),
        (Condition("file_type", "eq", None), None),
        (Condition("creation_date", "lt", dt.date(2024, 5, 1)), "2024-05-01"),
    ],
)
def test_bound_values_have_the_stored_form(condition, value):
    """Floats are rounded to the field's width, dates are ISO days, suffixes are MIME types, lists
    are tuples.
    """
    bound = bind_filter(condition, SCHEMA)
    assert bound.value == value
    assert type(bound.value) is type(value)
    assert (bound.field, bound.op) == (condition.field, condition.op)


def test_binding_reaches_every_part_of_a_nested_filter():
    """A suffix below Not and Or is translated like one on top."""
    nested = Not(Or(Condition("file_type", "eq", "pdf"), And(Condition("weight", "eq", 0.1))))
    expected = Not(
        Or(Condition("file_type", "eq", "application/pdf"), And(Condition("weight", "eq", NARROW)))
    )
    assert bind_filter(nested, SCHEMA) == expected


def test_a_bound_float_is_found_among_stored_ones():
    """0.1 in a filter equals 0.1 in a 32-bit field, which plain Python denies."""
    stored = check_value("weight", SCHEMA["weight"], 0.1)
    assert stored != 0.1
    assert matches(bind_filter(Condition("weight", "eq", 0.1), SCHEMA), {"weight": stored})
    assert not matches(bind_filter(Condition("weight", "gt", 0.1), SCHEMA), {"weight": stored})


def test_a_mapping_means_and_of_in():
    """Spec 001: every field must have one of its values; a scalar is a list of one, None a missing
    value.
    """
    found = parse_filter({"author": ["A", "B"], "public_year": 2002, "day": None})
    assert found == And(
        Condition("author", "in", ("A", "B")),
        Condition("public_year", "in", (2002,)),
        Condition("day", "in", (None,)),
    )


@pytest.mark.parametrize(
    ("filters", "parsed"),
    [
        (None, None),
        ({}, None),
        ({"author": "A"}, Condition("author", "in", ("A",))),
        ({"author": ("A", "B")}, Condition("author", "in", ("A", "B"))),
        ({"author": (one for one in "AB")}, Condition("author", "in", ("A", "B"))),
        ({"author": []}, Condition("author", "in", ())),
        (And(), And()),
        (Condition("author", "eq", "A"), Condition("author", "eq", "A")),
    ],
)
def test_what_a_filter_argument_may_be(filters, parsed):
    """Nothing, a mapping of values or lists, or a filter, which stays as it is."""
    assert parse_filter(filters) == parsed


@pytest.mark.parametrize("filters", ["author == 'A'", ["author"], 5, ("author", "A")])
def test_anything_else_is_no_filter(filters):
    """The error shows what a filter looks like."""
    with pytest.raises(ConfigError, match="a mapping"):
        parse_filter(filters)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (None, None, None),
        (Condition("public_year", "eq", 1), None, Condition("public_year", "eq", 1)),
        (None, Condition("public_year", "eq", 1), Condition("public_year", "eq", 1)),
        (Or(), And(), And(Or(), And())),
    ],
)
def test_both_never_drops_a_filter(first, second, together):
    """The one place where a mandatory filter is added keeps it whatever the other one is."""
    assert both(first, second) == together


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (("public_year", "eq", "2002"), ["'public_year' is INT32", "'2002'", "2147483647"]),
        (("public_year", "in", [2002, "2003"]), ["INT32", "'2003'"]),
        (("public_year", "gt", 2002.5), ["INT32", "2002.5"]),
        (("public_year", "eq", True), ["INT32", "True"]),
        (("public_year", "eq", 2**31), ["INT32", "2147483648"]),
        (("public_year", "gt", None), ["INT32", "None"]),
        (("public_year", "eq", [2002]), ["INT32"]),
        (("size", "eq", 2**63), ["INT64", "64 bits"]),
        (("weight", "eq", 1e39), ["FLOAT", "32 bits"]),
        (("weight", "eq", float("nan")), ["FLOAT", "finite"]),
        (("rating", "lt", float("inf")), ["DOUBLE", "finite"]),
        (("author", "eq", 5), ["VARCHAR", "Give text"]),
        (("author", "contains", None), ["VARCHAR", "None"]),
        (("author", "contains", ["A"]), ["VARCHAR"]),
        (("day", "eq", "2024-5-1"), ["DATE", "'2024-05-01'"]),
        (("day", "in", ["20240501"]), ["DATE"]),
        (("public", "eq", 1), ["BOOLEAN", "True or False"]),
        (("public", "gt", True), ["'gt' must be ordered", "BOOLEAN"]),
        (("public", "contains", True), ["text or an array", "BOOLEAN"]),
        (("public_year", "contains", 2), ["text or an array", "INT32"]),
        (("day", "contains", "2024"), ["text or an array", "DATE"]),
        (("tags", "gt", "a"), ["'gt' must be ordered", "ARRAY"]),
        (("tags", "eq", "a"), ["ARRAY of VARCHAR", "must be a list"]),
        (("tags", "eq", ["a", 5]), ["VARCHAR", "5"]),
        (("tags", "contains", 5), ["VARCHAR", "5"]),
        (("tags", "in", ["a", 5]), ["VARCHAR", "5"]),
        (("marks", "contains", "a"), ["FLOAT", "'a'"]),
        (("file_type", "eq", ".pfd"), ["'.pfd'", "Did you mean '.pdf'?"]),
        (
            ("file_type", "in", [".txt", "texd"]),
            ["'texd'", "neither a MIME type nor a known suffix"],
        ),
        (("file_size", "gt", "1 MB"), ["'file_size' is INT64", "'1 MB'"]),
    ],
)
def test_a_value_that_does_not_suit_the_field_is_refused(condition, said):
    """Wrong types and values out of range are errors before any store is asked; the message says
    what is allowed.
    """
    with pytest.raises(ConfigError) as caught:
        bind_filter(Condition(*condition), SCHEMA)
    assert [part for part in said if part not in str(caught.value)] == []


def test_an_undeclared_field_is_refused():
    """Spec 001 declares public_year and filters publish_year: the error names what is known and the
    nearest.
    """
    with pytest.raises(ConfigError) as caught:
        bind_filter(
            parse_filter({"publish_year": [2002]}), make_schema({"public_year": DocField(INT32)})
        )
    message = str(caught.value)
    assert "'publish_year'" in message
    assert "file_name" in message
    assert "Did you mean 'public_year'?" in message
    assert "doc_fields" in message


@pytest.mark.parametrize("name", [5, None, ("year",)])
def test_a_field_that_is_no_name_is_refused(name):
    """A key that is no text is an unknown field like any other."""
    with pytest.raises(ConfigError, match="Known: author"):
        bind_filter(parse_filter({name: ["a"]}), SCHEMA)
    with pytest.raises(ConfigError, match="Known: author"):  # of JSON, which cannot be hashed
        bind_filter(Condition([name], "eq", "a"), SCHEMA)


@pytest.mark.parametrize(
    "wrap", [Not, And, Or, lambda one: And(Not(Or(one)))], ids=["Not", "And", "Or", "nested"]
)
def test_an_error_is_found_at_any_depth(wrap):
    """A wrong field inside a group is refused like one on top."""
    with pytest.raises(ConfigError, match="publish_year"):
        bind_filter(wrap(Condition("publish_year", "eq", 2002)), SCHEMA)


@pytest.mark.parametrize(
    ("op", "near"),
    [
        ("contain", "contains"),
        ("IN", "in"),
        ("not_in", "not in"),
        ("exist", "exists"),
        ("NE", "ne"),
    ],
)
def test_an_unknown_operator_names_the_nearest(op, near):
    """All operators are listed, and the one that was meant is named."""
    with pytest.raises(ConfigError) as caught:
        Condition("year", op, 1)
    message = str(caught.value)
    assert repr(op) in message
    assert "contains, eq, exists, ge, gt, in, in range, le, lt, ne, not in" in message
    assert f"Did you mean {near!r}?" in message


@pytest.mark.parametrize("op", [None, 5, "", "between"])
def test_an_operator_that_is_none_is_refused(op):
    """Whatever it is, the error lists the operators."""
    with pytest.raises(ConfigError, match="Known: contains, eq"):
        Condition("year", op, 1)


@pytest.mark.parametrize("op", ["in", "not in"])
@pytest.mark.parametrize("value", ["abc", b"abc", 5, None, {"a": 1}])
def test_in_takes_a_list(op, value):
    """A text is not taken for the list of its letters."""
    with pytest.raises(ConfigError, match="a list of values"):
        Condition("author", op, value)


@pytest.mark.parametrize("value", ["yes", 1, None, []])
def test_exists_takes_true_or_false(value):
    """A value in its place is a slip, not a yes."""
    with pytest.raises(ConfigError, match="True or False"):
        Condition("author", "exists", value)


@pytest.mark.parametrize("part", ["year > 2000", {"year": [2000]}, None, 5])
@pytest.mark.parametrize(
    "join",
    [
        And,
        Or,
        Not,
        lambda one: Condition("year", "eq", 1) & one,
        lambda one: Condition("year", "eq", 1) | one,
    ],
    ids=["And", "Or", "Not", "&", "|"],
)
def test_only_filters_can_be_joined(join, part):
    """A mapping or a text inside a group is refused where it is written."""
    with pytest.raises(ConfigError, match="Condition, And, Or or Not"):
        join(part)


_SCALARS = {
    BOOLEAN: st.booleans(),
    INT32: st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    FLOAT: st.sampled_from([-1.0, 0.0, 0.1, 0.5, 1e30]) | st.floats(-1e38, 1e38),
    DOUBLE: st.sampled_from([-1.0, -0.0, 0.1, 1e300])
    | st.floats(allow_nan=False, allow_infinity=False),
    VARCHAR: st.text("ab茶", max_size=2),
    DATE: st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 5)),
}


@functools.cache
def _values(field: DocField):
    if field.element_type is None:
        return _SCALARS[field.data_type]
    return st.lists(_SCALARS[field.element_type], max_size=3)


@functools.cache
def _conditions(name: str, field: DocField):
    scalars = _SCALARS[field.element_type or field.data_type]
    several = st.lists(st.none() | scalars, max_size=3)
    kinds = [("eq", st.none() | _values(field)), ("in", several), ("exists", st.booleans())]
    kinds += [("ne", kinds[0][1]), ("not in", several)]
    if field.element_type is None and field.data_type is not BOOLEAN:
        kinds += [(op, scalars) for op in ("gt", "ge", "lt", "le", ">", "<=")]
    if (field.element_type or field.data_type) is not BOOLEAN:
        kinds.append(("in range", st.lists(scalars, min_size=2, max_size=2)))
    if field.element_type is not None or field.data_type is VARCHAR:
        kinds.append(("contains", scalars))
    return st.one_of([values.map(functools.partial(Condition, name, op)) for op, values in kinds])


def _draw_filter(draw, fields: dict, depth: int):
    kind = draw(st.integers(0, 5)) if depth else 0
    if kind < 3:
        name = draw(_NAMES[tuple(fields)])
        return draw(_conditions(name, fields[name]))
    if kind == 3:
        return Not(_draw_filter(draw, fields, depth - 1))
    parts = [_draw_filter(draw, fields, depth - 1) for _ in range(draw(st.integers(0, 3)))]
    return And(*parts) if kind == 4 else Or(*parts)


_FIELD = st.sampled_from(
    [DocField(one) for one in _SCALARS] + [DocField(ARRAY, one) for one in _SCALARS]
)
_NAMES = {names: st.sampled_from(names) for names in (("a",), ("a", "年"), ("a", "年", "file"))}


@st.composite
def _cases(draw):
    """A schema, rows of stored values (some missing, some absent) and two unbound filters."""
    fields = {name: draw(_FIELD) for name in draw(st.sampled_from(list(_NAMES)))}
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        row = {
            name: check_value(name, field, draw(st.none() | _values(field)))
            for name, field in fields.items()
        }
        rows.append(
            {name: value for name, value in row.items() if value is not None or draw(st.booleans())}
        )
    return (
        make_schema(fields),
        fields,
        rows,
        _draw_filter(draw, fields, 2),
        _draw_filter(draw, fields, 2),
    )


@given(_cases())
def test_groups_obey_the_laws_of_logic(case):
    """De Morgan, double negation, order and the empty groups, for any filters on any rows."""
    schema, _, rows, p, q = case
    p, q = bind_filter(p, schema), bind_filter(q, schema)
    for row in rows:
        one, other = matches(p, row), matches(q, row)
        assert type(one) is bool
        assert matches(Not(p), row) is (not one)
        assert matches(Not(Not(p)), row) is one
        assert matches(Not(And(p, q)), row) is matches(Or(Not(p), Not(q)), row)
        assert matches(Not(Or(p, q)), row) is matches(And(Not(p), Not(q)), row)
        assert matches(And(p, q), row) is matches(q & p, row) is (one and other)
        assert matches(Or(p, q), row) is matches(q | p, row) is (one or other)
        assert matches(~p | p, row) is True
        assert matches(p & ~p, row) is False
        assert matches(And(), row) is True
        assert matches(Or(), row) is False


@given(_cases())
def test_negated_operators_are_negations(case):
    """Ne is not eq, not in is not in, and a missing value is what neither exists nor differs from
    None.
    """
    schema, fields, rows, p, q = case
    leaves = [one for one in (p, q) if isinstance(one, Condition)]
    for row in rows:
        for leaf in leaves:
            opposite = {"eq": "ne", "in": "not in", "ne": "eq", "not in": "in"}.get(leaf.op)
            if opposite:
                other = bind_filter(Condition(leaf.field, opposite, leaf.value), schema)
                assert matches(bind_filter(leaf, schema), row) is not matches(other, row)
        for name in fields:
            missing = row.get(name) is None
            assert matches(Condition(name, "exists", False), row) is missing
            assert matches(Condition(name, "exists"), row) is not missing
            assert matches(bind_filter(Condition(name, "eq", None), schema), row) is missing
            assert matches(bind_filter(Condition(name, "in", [None]), schema), row) is missing


@given(_cases(), st.data())
def test_orderings_split_what_is_there(case, data):
    """Of below, equal and above exactly one holds for a value, none for a missing one; ge and le
    join two of them.
    """
    schema, fields, rows, _, _ = case
    for name, field in fields.items():
        if field.element_type is not None or field.data_type is BOOLEAN:
            continue
        value = data.draw(_values(field))
        says = {
            op: bind_filter(Condition(name, op, value), schema)
            for op in ("lt", "eq", "gt", "le", "ge")
        }
        for row in rows:
            holds = {op: matches(one, row) for op, one in says.items()}
            assert holds["lt"] + holds["eq"] + holds["gt"] == (row.get(name) is not None)
            assert holds["le"] == (holds["lt"] or holds["eq"])
            assert holds["ge"] == (holds["gt"] or holds["eq"])


@given(_cases(), st.data())
def test_in_is_or(case, data):
    """In a list means equal to one of its values; on an array, that it contains one of them."""
    schema, fields, rows, _, _ = case
    for name, field in fields.items():
        values = data.draw(
            st.lists(st.none() | _SCALARS[field.element_type or field.data_type], max_size=3)
        )
        listed = bind_filter(Condition(name, "in", values), schema)
        op = "eq" if field.element_type is None else "contains"
        one_by_one = Or(
            *(Condition(name, "eq" if value is None else op, value) for value in values)
        )
        for row in rows:
            assert matches(listed, row) is matches(bind_filter(one_by_one, schema), row)


@given(_cases())
def test_binding_twice_is_binding_once(case):
    """A bound filter is a filter in stored form; equal filters are equal keys."""
    schema, _, _, p, _ = case
    bound = bind_filter(p, schema)
    again = bind_filter(bound, schema)
    assert again == bound
    assert hash(again) == hash(bound)
    assert {bound: 1}[again] == 1


@given(_cases(), st.data())
def test_a_mapping_lets_through_what_its_lists_name(case, data):
    """Spec 001's mapping lets a row through where every field has one of its values."""
    schema, fields, rows, _, _ = case
    scalar = {name: field for name, field in fields.items() if field.element_type is None}
    wanted = {
        name: data.draw(st.lists(_values(field), min_size=1, max_size=3))
        for name, field in scalar.items()
    }
    parsed = parse_filter(wanted)
    if parsed is None:
        return
    bound = bind_filter(parsed, schema)
    for row in rows:
        kept = {
            name: [check_value(name, scalar[name], one) for one in values]
            for name, values in wanted.items()
        }
        assert matches(bound, row) is all(row.get(name) in values for name, values in kept.items())


def test_groups_of_equal_parts_are_different_filters():
    """And, Or and another order are told apart: masks are cached by filter."""
    a, b = Condition("year", "eq", 1), Condition("year", "eq", 2)
    assert len({And(a, b), Or(a, b), And(b, a), Not(a), a, b}) == 6
    assert And(a, b) == a & b
    assert Or(a, b) == a | b
    assert Not(a) == ~a


def test_a_filter_shows_how_it_is_written():
    """The repr of a filter, read as Python, is the filter."""
    whole = Not(
        And(
            Condition("year", ">=", 2002),
            Or(Condition("author", "in", ["A", None]), Condition("x", "exists")),
        )
    )
    assert eval(repr(whole)) == whole  # noqa: S307  our own text


@pytest.mark.parametrize(
    "one",
    [
        Condition("year", "eq", 1),
        And(),
        Or(Condition("year", "eq", 1)),
        Not(Condition("year", "eq", 1)),
    ],
)
def test_filters_are_neither_true_nor_false(one):
    """``a and b`` would be b alone and ``not a`` a mere False: asking a filter for its truth names
    the signs to use.
    """
    with pytest.raises(ConfigError, match=r"& \| ~"):
        bool(one)
    with pytest.raises(ConfigError, match="neither true nor false"):
        one and Condition("author", "eq", "A")


@pytest.mark.parametrize("op", ["eq", "!=", ">", "in", "not in", "contains"])
def test_a_forgotten_value_is_refused(op):
    """Only exists may be written without a value; elsewhere a forgotten one would mean None."""
    with pytest.raises(ConfigError, match="on 'year' is missing"):
        Condition("year", op)
    assert Condition("year", "exists") == Condition("year", "exists", True)


@pytest.mark.parametrize("op", [["eq"], {"eq": 1}, {"eq"}])
def test_an_operator_that_cannot_be_hashed_is_refused(op):
    """A list where the operator stands is a ConfigError like any other wrong operator, not Python's
    TypeError.
    """
    with pytest.raises(ConfigError, match="Known: contains, eq"):
        Condition("year", op, 1)


def test_the_syntax_of_other_stores_names_condition():
    """A mapping as a field's value is refused with the Condition to write, not looked for as a
    value.
    """
    with pytest.raises(
        ConfigError, match=r"write a Condition, such as Condition\('year', '>', 2000\)"
    ):
        parse_filter({"year": {"$gt": 3}})


@pytest.mark.parametrize("field", ["author", "tags"])
def test_contains_with_a_list_names_in(field):
    """contains takes one value; for several the message names in."""
    schema = make_schema({"author": DocField(VARCHAR), "tags": DocField(ARRAY, VARCHAR)})
    with pytest.raises(ConfigError, match=r"one VARCHAR.*use 'in'"):
        bind_filter(Condition(field, "contains", ["a", "b"]), schema)
