"""`lazyrag.values.dataclass` makes the classes that the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from dataclasses import field
from typing import Any

import pytest

from lazyrag.values import dataclass

OPTIONS = [
    {"frozen": True, "slots": True},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"eq": False, "repr": False},
    {},
]


def make(decorate: Any, options: dict[str, bool]) -> Any:
    """The same class by either decorator."""

    @decorate(**options)
    class Tea:
        """A tea."""

        name: str
        grams: int = 5
        tags: list[str] = field(default_factory=list, compare=False)
        secret: str = field(default="", repr=False)
        made: int = field(default=7, init=False)
        note: str = field(default="", hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "made", self.grams * 2)

    return Tea


def outcome(function: Any) -> Any:
    """What a call returns, or its error's type and text."""
    try:
        return function()
    except Exception as exc:  # noqa: BLE001  compared
        return type(exc), str(exc)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_as_the_standard_library(options: dict[str, bool]):
    """Construction, text, equality, hashes, changes, copies and signatures are those of `dataclasses.dataclass`."""
    ours, theirs = make(dataclass, options), make(dataclasses.dataclass, options)
    frozen, eq = options.get("frozen", False), options.get("eq", True)
    for arguments in ((), ("oolong",), ("oolong", 3, ["a"], "s", "n"), ("a", 1, [], "", "", 6)):
        found = [outcome(lambda cls=cls, given=arguments: dataclasses.astuple(cls(*given))) for cls in (ours, theirs)]
        assert found[0] == found[1]
    tea, same, other = ours("oolong", 3, ["a"]), ours("oolong", 3, ["b"]), ours("green")
    assert tea.made == 6
    assert (tea == same) is eq
    assert tea != other
    assert tea != theirs("oolong", 3)
    assert (repr(tea) == repr(theirs("oolong", 3, ["a"]))) is options.get("repr", True)
    if frozen and eq:
        assert hash(tea) == hash(same) == hash(theirs("oolong", 3)) == hash(dataclasses.replace(tea, note="n"))
    assert (ours.__hash__ is None) is (theirs.__hash__ is None) is (eq and not frozen)
    found = [outcome(lambda cls=cls: setattr(cls("oolong"), "grams", 1)) for cls in (ours, theirs)]
    assert (
        found[0]
        == found[1]
        == ((dataclasses.FrozenInstanceError, "cannot assign to field 'grams'") if frozen else None)
    )
    if frozen:
        with pytest.raises(dataclasses.FrozenInstanceError):
            tea.unknown = 1
    assert dataclasses.asdict(copy.deepcopy(tea)) == dataclasses.asdict(copy.copy(tea)) == dataclasses.asdict(tea)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]
    assert hasattr(tea, "__dict__") is not options.get("slots", False)


def test_subclasses():
    """Dataclasses and plain classes may inherit; what is frozen stays so, and only a frozen dataclass inherits it."""
    tea = make(dataclass, {"frozen": True, "slots": True})

    @dataclasses.dataclass(frozen=True)
    class Iced(tea):
        ice: int = 1

    class Plain(tea):
        pass

    assert Iced("green", ice=2) != Iced("green")
    assert Plain("green").made == 10
    plain = Plain("green")
    plain.free = 1  # a subclass's own
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain.grams = 1
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        dataclass(type("Warm", (tea,), {"__annotations__": {"heat": int}, "heat": 1}))


def test_own_methods_stay():
    """Methods that a class defines itself are not replaced."""

    @dataclass(frozen=True)
    class Own:
        a: int

        def __init__(self) -> None:
            object.__setattr__(self, "a", 1)

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 3

    assert (repr(Own()), Own() == 1, hash(Own()), Own().a) == ("own", True, 3, 1)
