"""Filterable fields: declarations, checks, stored forms."""

from __future__ import annotations

import datetime as dt
import math
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField, Document
from lazyrag.data.fields import BUILT_IN_FIELDS, check_value, make_schema
from lazyrag.errors import ConfigError

INT32, INT64, FLOAT, DOUBLE = DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE
BOOLEAN, VARCHAR, DATE, ARRAY = DataType.BOOLEAN, DataType.VARCHAR, DataType.DATE, DataType.ARRAY


def test_spec_001_declares_fields_like_this():
    """Spec 001's doc_fields are legal as they stand."""
    schema = make_schema(
        {
            "author": DocField(data_type=VARCHAR, max_size=128, default_value=" "),
            "public_year": DocField(data_type=INT32),
        }
    )
    assert schema["author"].default_value == " "
    assert schema["public_year"].default_value is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data_type": "varchar"}, "DataType.VARCHAR"),
        ({"data_type": str}, "DataType.INT32"),
        ({"data_type": ARRAY}, "element_type"),
        ({"data_type": VARCHAR, "element_type": INT32}, "for an ARRAY only"),
        ({"data_type": ARRAY, "element_type": ARRAY}, "another type than ARRAY"),
        ({"data_type": ARRAY, "element_type": "int32"}, "'int32'"),
        ({"data_type": VARCHAR, "max_size": 0}, "max_size"),
        ({"data_type": VARCHAR, "max_size": -5}, "-5"),
        ({"data_type": VARCHAR, "max_size": True}, "True"),
        ({"data_type": VARCHAR, "max_size": 1.5}, "1.5"),
        ({"data_type": VARCHAR, "max_size": "5"}, "'5'"),
        ({"data_type": INT32, "default_value": "2002"}, "default_value"),
        ({"data_type": VARCHAR, "max_size": 3, "default_value": "long"}, "max_size"),
        ({"data_type": ARRAY, "element_type": VARCHAR, "default_value": "tag"}, "a list"),
    ],
)
def test_a_declaration_whose_parts_do_not_fit_is_refused(arguments, said):
    """Types, sizes and defaults are checked when the field is declared, not when the first file is
    loaded.
    """
    with pytest.raises(ConfigError) as caught:
        DocField(**arguments)
    assert said in str(caught.value)


def test_a_default_is_kept_in_its_stored_form():
    """What is filled in at write is what filters compare with."""
    assert DocField(FLOAT, default_value=0.1).default_value == float(np.float32(0.1))
    assert DocField(DATE, default_value=dt.date(2024, 5, 1)).default_value == "2024-05-01"
    assert DocField(ARRAY, VARCHAR, default_value=["a", "b"]).default_value == ("a", "b")


def test_a_declaration_cannot_be_changed():
    """A field is a value."""
    field = DocField(INT32)
    with pytest.raises(AttributeError):
        field.max_size = 3


KEPT = [
    (BOOLEAN, True, True),
    (BOOLEAN, np.bool_(False), False),
    (INT32, 2002, 2002),
    (INT32, -(2**31), -2147483648),
    (INT32, 2**31 - 1, 2147483647),
    (INT32, np.int64(7), 7),
    (INT64, -(2**63), -9223372036854775808),
    (INT64, 2**63 - 1, 9223372036854775807),
    (FLOAT, 1, 1.0),
    (FLOAT, 0.1, 0.10000000149011612),
    (FLOAT, np.float64(0.1), 0.10000000149011612),
    (FLOAT, 16777217, 16777216.0),
    (DOUBLE, 0.1, 0.1),
    (DOUBLE, 3, 3.0),
    (DOUBLE, 1e300, 1e300),
    (VARCHAR, "绿茶", "绿茶"),
    (VARCHAR, "", ""),
    (VARCHAR, np.str_("tea"), "tea"),
    (DATE, "2024-05-01", "2024-05-01"),
    (DATE, dt.date(2024, 5, 1), "2024-05-01"),
    (DATE, dt.datetime(2024, 5, 1, 23, 59), "2024-05-01"),  # noqa: DTZ001  a day needs no zone
    (DATE, dt.datetime(2024, 5, 1, 23, 59, tzinfo=dt.UTC), "2024-05-01"),
    (DATE, np.datetime64("2024-05-01"), "2024-05-01"),
]

REFUSED = [
    (BOOLEAN, 1),
    (BOOLEAN, 0),
    (BOOLEAN, "true"),
    (INT32, True),
    (INT32, 2002.0),
    (INT32, "2002"),
    (INT32, 2**31),
    (INT32, -(2**31) - 1),
    (INT64, 2**63),
    (INT64, -(2**63) - 1),
    (INT64, 1.0),
    (FLOAT, 1e39),
    (FLOAT, 10**400),
    (FLOAT, math.nan),
    (FLOAT, "1.0"),
    (FLOAT, True),
    (DOUBLE, math.inf),
    (DOUBLE, math.nan),
    (DOUBLE, 10**400),
    (DOUBLE, 1j),
    (VARCHAR, 5),
    (VARCHAR, b"tea"),
    (VARCHAR, ["tea"]),
    (DATE, "2024-5-1"),
    (DATE, "20240501"),
    (DATE, "2024-W18-3"),
    (DATE, "2024-02-30"),
    (DATE, "2024-05-01T00:00"),
    (DATE, "yesterday"),
    (DATE, 1714521600),
]


@pytest.mark.parametrize(("data_type", "value", "stored"), KEPT)
def test_a_value_is_brought_to_its_stored_form(data_type, value, stored):
    """Floats are rounded to their width, dates become ISO days, numpy scalars become Python's."""
    found = check_value("f", DocField(data_type), value)
    assert found == stored
    assert type(found) in {bool, int, float, str, np.str_}
    assert isinstance(found, bool) == isinstance(stored, bool)


@pytest.mark.parametrize(("data_type", "value"), REFUSED)
def test_a_value_of_another_type_or_out_of_range_is_refused(data_type, value):
    """The error names the field, its type, the value and what is allowed; nothing is converted by
    guess.
    """
    with pytest.raises(ConfigError, match=rf"Field 'year' is {data_type.name};.*Give ") as caught:
        check_value("year", DocField(data_type), value)
    assert repr(value)[:20] in str(caught.value)


def test_a_missing_value_stays_missing():
    """None is no value of any type, and no error of any type."""
    assert [check_value("f", DocField(one), None) for one in DataType if one is not ARRAY] == [
        None
    ] * 7
    assert check_value("f", DocField(ARRAY, INT32), None) is None


@pytest.mark.parametrize(
    ("element_type", "value", "stored"),
    [
        (VARCHAR, ["a", "b"], ("a", "b")),
        (VARCHAR, (), ()),
        (VARCHAR, (one for one in "ab"), ("a", "b")),
        (VARCHAR, np.array(["a", "b"]), ("a", "b")),
        (INT32, np.array([1, 2]), (1, 2)),
        (FLOAT, [0.1], (0.10000000149011612,)),
        (DATE, [dt.date(2024, 5, 1), "2024-06-01"], ("2024-05-01", "2024-06-01")),
        (BOOLEAN, [True, False], (True, False)),
    ],
)
def test_an_array_is_kept_as_a_tuple_of_checked_elements(element_type, value, stored):
    """Any ordered iterable is taken, element by element, in its order."""
    found = check_value("tags", DocField(ARRAY, element_type), value)
    assert found == stored
    assert isinstance(found, tuple)


@pytest.mark.parametrize(
    ("element_type", "value"),
    [
        (VARCHAR, "tag"),
        (VARCHAR, b"tag"),
        (VARCHAR, {"a": 1}),
        (VARCHAR, {"a", "b"}),
        (VARCHAR, 5),
        (VARCHAR, ["a", None]),
        (VARCHAR, ["a", 5]),
        (INT32, [1, True]),
        (INT32, [[1]]),
        (FLOAT, [1e39]),
    ],
)
def test_what_is_no_list_of_its_elements_is_refused(element_type, value):
    """One text is not taken for its letters, a set not for a list, and every element is checked."""
    with pytest.raises(ConfigError, match="'tags'"):
        check_value("tags", DocField(ARRAY, element_type), value)


@pytest.mark.parametrize(
    ("field", "fits", "too_large"),
    [
        (DocField(VARCHAR, max_size=3), "绿茶茶", "绿茶茶叶"),
        (DocField(ARRAY, VARCHAR, max_size=3), ["abc"] * 9, ["abcd"]),
        (DocField(ARRAY, INT32, max_size=3), [1, 2, 3], [1, 2, 3, 4]),
    ],
)
def test_max_size_bounds_characters_or_elements(field, fits, too_large):
    """A value at the bound is kept, one above it is refused; nothing is cut off."""
    assert check_value("f", field, fits) == (fits if isinstance(fits, str) else tuple(fits))
    with pytest.raises(ConfigError, match="max_size"):
        check_value("f", field, too_large)


def _values(data_type: DataType):
    return {
        BOOLEAN: st.booleans(),
        INT32: st.integers(-(2**31), 2**31 - 1),
        INT64: st.integers(-(2**63), 2**63 - 1),
        FLOAT: st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(-1e38, 1e38),
        DOUBLE: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
        VARCHAR: st.text(),
        DATE: st.dates() | st.datetimes() | st.dates().map(dt.date.isoformat),
    }[data_type]


@given(
    st.sampled_from([one for one in DataType if one is not ARRAY]).flatmap(
        lambda t: st.tuples(st.just(t), _values(t))
    )
)
def test_the_stored_form_is_a_fixed_point(case):
    """Checking a stored value again changes nothing, alone or in an array: stores may check what
    they read.
    """
    data_type, value = case
    field = DocField(data_type)
    stored = check_value("f", field, value)
    again = check_value("f", field, stored)
    assert again == stored
    assert type(again) is type(stored)
    assert check_value("f", DocField(ARRAY, data_type), [value, stored]) == (stored, stored)


@given(st.floats(-3e38, 3e38))
def test_a_float_field_holds_what_32_bits_hold(value):
    """FLOAT is rounded as numpy's float32 rounds."""
    assert check_value("f", DocField(FLOAT), value) == float(np.float32(value))


def test_the_six_built_in_fields_are_always_there():
    """Spec 001's six fields can be filtered without being declared."""
    names = [
        "creation_date",
        "file_name",
        "file_size",
        "file_type",
        "last_accessed_date",
        "last_modified_date",
    ]
    assert sorted(make_schema(None)) == names
    assert sorted(BUILT_IN_FIELDS) == names
    assert {name: field.data_type for name, field in make_schema({}).items()} == {
        "file_name": VARCHAR,
        "file_type": VARCHAR,
        "file_size": INT64,
        "creation_date": DATE,
        "last_modified_date": DATE,
        "last_accessed_date": DATE,
    }


@pytest.mark.parametrize(
    ("doc_fields", "said"),
    [
        ({"public-year": DocField(INT32)}, "public-year"),
        ({"": DocField(INT32)}, "identifier"),
        ({"2year": DocField(INT32)}, "2year"),
        ({5: DocField(INT32)}, "5"),
        ({"file_name": DocField(VARCHAR)}, "built-in"),
        ({"year": INT32}, "DocField"),
        ({"year": int}, "DocField"),
    ],
)
def test_a_schema_with_a_wrong_name_or_field_is_refused(doc_fields, said):
    """The error shows the name and what a field looks like."""
    with pytest.raises(ConfigError) as caught:
        make_schema(doc_fields)
    assert said in str(caught.value)


@pytest.mark.parametrize("doc_fields", [["author"], "author", 5])
def test_doc_fields_that_are_no_mapping_are_refused(doc_fields):
    """A Document's argument of the wrong kind is a ConfigError, whatever kind it is."""
    with pytest.raises(ConfigError, match="doc_fields"):
        Document(doc_fields=doc_fields)


def test_a_field_may_have_a_chinese_name():
    """Names are identifiers in Python's sense."""
    assert make_schema({"作者": DocField(VARCHAR)})["作者"].data_type is VARCHAR


def test_a_schema_does_not_change_with_the_mapping_it_was_made_of():
    """Later changes of the caller's dict do not reach the schema, and the schema itself is
    read-only.
    """
    declared = {"year": DocField(INT32)}
    schema = make_schema(declared)
    declared["author"] = DocField(VARCHAR)
    assert "author" not in schema
    assert isinstance(schema, MappingProxyType)
