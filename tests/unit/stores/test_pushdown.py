"""What a backend cannot say is left to us: both parts together mean what the filter means, whatever
it can say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag.data.filters import And, Condition, Filter, Not, Or, matches
from lazyrag.stores.protocol import Pushed, push_down
from lazyrag.types import Fields

ROWS: list[Fields] = [
    {"year": year, "name": name} for year in (None, 2000, 2001) for name in (None, "a", "b")
]


class _Functions:
    """A language whose words are functions of a row; it lacks some operators, and perhaps negation
    and falsehood.
    """

    def __init__(self, operators: frozenset[str], *, negates: bool, has_never: bool) -> None:
        self._operators = operators
        self._negates = negates
        self._has_never = has_never

    def condition(self, condition: Condition) -> Callable[[Fields], bool] | None:
        """Known operators only."""
        return (lambda row: matches(condition, row)) if condition.op in self._operators else None

    def all_of(self, parts: Sequence[Callable[[Fields], bool]]) -> Callable[[Fields], bool]:
        """Of two or more parts."""
        assert len(parts) > 1
        return lambda row: all(part(row) for part in parts)

    def any_of(self, parts: Sequence[Callable[[Fields], bool]]) -> Callable[[Fields], bool]:
        """Of two or more parts."""
        assert len(parts) > 1
        return lambda row: any(part(row) for part in parts)

    def negated(self, part: Callable[[Fields], bool]) -> Callable[[Fields], bool] | None:
        """If it can."""
        return (lambda row: not part(row)) if self._negates else None

    def never(self) -> Callable[[Fields], bool] | None:
        """If it can."""
        return (lambda _: False) if self._has_never else None


_conditions = st.one_of(
    st.builds(
        Condition,
        st.just("year"),
        st.sampled_from(["eq", "ne"]),
        st.sampled_from([None, 2000, 2001]),
    ),
    st.builds(
        Condition, st.just("year"), st.sampled_from(["gt", "le"]), st.sampled_from([2000, 2001])
    ),
    st.builds(Condition, st.just("name"), st.just("exists"), st.booleans()),
    st.builds(
        Condition,
        st.just("name"),
        st.just("in"),
        st.lists(st.sampled_from(["a", "b", None]), max_size=2),
    ),
)
_filters = st.recursive(
    _conditions,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: And(*parts)),
        st.lists(inner, max_size=3).map(lambda parts: Or(*parts)),
        inner.map(Not),
    ),
    max_leaves=8,
)
_dialects = st.builds(
    _Functions,
    st.frozensets(st.sampled_from(["eq", "ne", "gt", "le", "exists", "in"])),
    negates=st.booleans(),
    has_never=st.booleans(),
)


# the cases that matter are rare, and cheap
@settings(max_examples=10 * settings.default.max_examples)
@given(_filters, _dialects)
def test_both_parts_together_mean_the_filter(wanted: Filter, dialect: _Functions) -> None:
    """A row passes the backend's part and ours exactly where it satisfies the filter."""
    pushed = push_down(wanted, dialect)
    for row in ROWS:
        by_parts = (pushed.native is None or pushed.native(row)) and (
            pushed.rest is None or matches(pushed.rest, row)
        )
        assert by_parts == matches(wanted, row)


@given(_filters)
def test_a_language_that_says_everything_leaves_nothing(wanted: Filter) -> None:
    """With all operators, negation and falsehood there is no rest."""
    every = frozenset(["eq", "ne", "gt", "le", "exists", "in"])
    assert push_down(wanted, _Functions(every, negates=True, has_never=True)).rest is None


def test_what_can_be_said_is_said() -> None:
    """Of a conjunction the backend gets the parts that it knows, and only the others are left."""
    known, unknown = Condition("year", "gt", 2000), Condition("name", "contains", "a")
    pushed = push_down(
        And(known, unknown), _Functions(frozenset(["gt"]), negates=True, has_never=True)
    )
    assert pushed.native is not None
    assert pushed.rest == unknown


def test_an_alternative_that_is_said_in_part_is_checked_again() -> None:
    """Of a disjunction with an alternative that the backend knows in part, every row is checked
    again.
    """
    wanted = Or(
        And(Condition("year", "gt", 2000), Condition("name", "eq", "a")),
        Condition("year", "le", 2000),
    )
    pushed = push_down(wanted, _Functions(frozenset(["gt", "le"]), negates=True, has_never=True))
    assert pushed.native is not None
    assert pushed.native({"year": 2001, "name": "b"}), "the backend lets too much through"
    assert pushed.rest == wanted


@pytest.mark.parametrize("wanted", [None, And(), Or(And(), Condition("year", "eq", 2000))])
def test_no_condition_is_no_restriction(wanted: Filter | None) -> None:
    """A filter that always holds asks nothing of anybody."""
    assert push_down(wanted, _Functions(frozenset(), negates=False, has_never=False)) == Pushed()
