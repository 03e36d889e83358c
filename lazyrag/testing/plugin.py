"""The plug-in of pytest that tests a store which the command line names::

    pytest --pyargs lazyrag.testing.suites --lazyrag-vector-store my_package.store:make_store

The entry point ``lazyrag`` of the group ``pytest11`` offers it to every run of pytest where lazyrag is installed. So it
imports nothing but pytest until one of its options is given.
"""

from __future__ import annotations

import importlib
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

MakeStore: TypeAlias = Callable[[Path], Any]
"""A new, closed store over what lies at a path, or on a server under the path's last part; nothing at first."""

KINDS = ("segment", "vector")
CONFORMANCE = "lazyrag.testing.suites"


@dataclass(frozen=True)
class Makers:
    """How stores of one kind are made.

    Args:
        make: Makes an empty store, of a path at which nothing lies yet.
        reopen: Makes another one over what the first has kept, of the same path.
    """

    make: MakeStore
    reopen: MakeStore


_NAMED = pytest.StashKey[dict[str, Makers]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, for each kind of store: what makes one, and what makes another one over its rows."""
    group = parser.getgroup("lazyrag", f"a store's contract with lazyrag, with --pyargs {CONFORMANCE}")
    for kind in KINDS:
        group.addoption(
            f"--lazyrag-{kind}-store",
            metavar="MODULE:CALLABLE",
            help=f"test the {kind} stores that this makes; it is given a path at which nothing lies yet",
        )
        group.addoption(
            f"--lazyrag-reopen-{kind}-store",
            metavar="MODULE:CALLABLE",
            help="what makes another such store over the rows of the first; without it the same callable",
        )


def pytest_configure(config: pytest.Config) -> None:
    """Find what the options name.

    Raises:
        UsageError: If that is nothing that can be called.
    """
    named: dict[str, Makers] = {}
    for kind in KINDS:
        make, reopen = f"--lazyrag-{kind}-store", f"--lazyrag-reopen-{kind}-store"
        if given := config.getoption(make):
            found = _resolve(make, given)
            again = config.getoption(reopen)
            named[kind] = Makers(found, _resolve(reopen, again) if again else found)
        elif config.getoption(reopen):
            msg = f"{reopen} is given without {make}. It says how the stores of that one are reopened. Give both."
            raise pytest.UsageError(msg)
    config.stash[_NAMED] = named


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the contract of a kind that no option names.

    Raises:
        UsageError: If contracts are asked for, and no store is named.
    """
    conformance = sys.modules.get(CONFORMANCE)
    if conformance is None:
        return
    kinds = {conformance.TestSegmentStore: "segment", conformance.TestVectorStore: "vector"}
    asked = [item for item in items if getattr(item, "cls", None) in kinds]
    if asked and not config.stash[_NAMED]:
        options = " or ".join(f"--lazyrag-{kind}-store" for kind in KINDS)
        msg = (
            f"{CONFORMANCE} tests a store, and none is named. {options} takes MODULE:CALLABLE, which makes one. "
            f"Write: pytest --pyargs {CONFORMANCE} --lazyrag-segment-store my_package.store:make_store"
        )
        raise pytest.UsageError(msg)
    left_out = {item for item in asked if kinds[getattr(item, "cls", None)] not in config.stash[_NAMED]}
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


@dataclass(frozen=True)
class NamedStore:
    """The store of one test.

    Args:
        makers: How it is made.
        place: Where it keeps its rows: nothing lies there at first, and the last part is no other test's, ever.
    """

    makers: Makers
    place: Path

    def make(self) -> Any:
        """An empty one."""
        return self.makers.make(self.place)

    def reopen(self) -> Any:
        """Another one over its rows."""
        return self.makers.reopen(self.place)


def named_store(config: pytest.Config, kind: str, folder: Path) -> NamedStore:
    """What the command line names, for one test.

    Args:
        config: The run's.
        kind: One of `KINDS`.
        folder: An empty folder that pytest removes.

    Raises:
        pytest.fail.Exception: If the plug-in was left out, so that no option could name a store.
    """
    if _NAMED not in config.stash:
        msg = f"{CONFORMANCE} needs the plug-in that gave pytest its options. Run it without -p no:lazyrag."
        pytest.fail(msg, pytrace=False)
    return NamedStore(config.stash[_NAMED][kind], folder / f"store_{uuid.uuid4().hex}")


def _resolve(option: str, given: str) -> MakeStore:
    """The callable that an option names.

    Raises:
        UsageError: If there is none.
    """
    module, colon, attribute = given.partition(":")
    if not (module and colon and attribute):
        msg = f"{option} is {given!r}. It takes MODULE:CALLABLE. Write it as in {option} my_package.store:make_store"
        raise pytest.UsageError(msg)
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        msg = (
            f"{option} is {given!r}: {exc}. The module must be one that Python can import in this run. "
            "Install its project, run python -m pytest in the module's folder, or set pythonpath in pytest's settings."
        )
        raise pytest.UsageError(msg) from exc
    found: MakeStore | None = getattr(loaded, attribute, None)
    if not callable(found):
        lacks = f"is {found!r} there" if hasattr(loaded, attribute) else f"does not stand in {loaded.__file__}"
        msg = f"{option} is {given!r}: {attribute} {lacks}. It takes a callable. Name a function or class of it."
        raise pytest.UsageError(msg)
    return found
