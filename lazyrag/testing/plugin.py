"""A plug-in of pytest that tests a store named on the command line::

pytest -p lazyrag.testing.plugin --pyargs lazyrag.testing.suites --lazyrag-vector-store
my_package.store:make_store
"""

from __future__ import annotations

import importlib
import sys

import pytest

from lazyrag.testing.factories import FACTORIES, KINDS, MakeStore, StoreFactory

SUITES = "lazyrag.testing.suites"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: for each kind of store, what makes and what reopens one."""
    group = parser.getgroup("lazyrag", f"contracts of lazyrag's stores, with --pyargs {SUITES}")
    for kind in KINDS:
        group.addoption(
            f"--lazyrag-{kind}-store",
            metavar="MODULE:CALLABLE",
            help=f"test the {kind} stores that this makes from an unused path",
        )
        group.addoption(
            f"--lazyrag-reopen-{kind}-store",
            metavar="MODULE:CALLABLE",
            help=(
                "makes another such store over the rows of the first; by default the same callable"
            ),
        )


def pytest_configure(config: pytest.Config) -> None:
    """Import what the options name.

    Raises:
        UsageError: If it cannot be imported or called.
    """
    factories = {}
    for kind in KINDS:
        make = f"--lazyrag-{kind}-store"
        reopen = f"--lazyrag-reopen-{kind}-store"
        if name := config.getoption(make):
            loaded = _import(make, name)
            reopen_name = config.getoption(reopen)
            factories[kind] = StoreFactory(
                loaded, _import(reopen, reopen_name) if reopen_name else loaded
            )
        elif config.getoption(reopen):
            raise pytest.UsageError(
                f"{reopen} needs {make}: it reopens the stores of that one. Give both."
            )
    config.stash[FACTORIES] = factories


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the contract of a kind that no option names.

    Raises:
        UsageError: If contracts are collected, and no store is named.
    """
    suites = sys.modules[SUITES]
    kinds = {suites.TestSegmentStore: "segment", suites.TestVectorStore: "vector"}
    collected = [item for item in items if getattr(item, "cls", None) in kinds]
    if collected and not config.stash[FACTORIES]:
        options = " or ".join(f"--lazyrag-{kind}-store" for kind in KINDS)
        usage = (
            f"pytest -p {__name__} --pyargs {SUITES} --lazyrag-segment-store"
            " my_package.store:make_store"
        )
        msg = f"{SUITES} tests a store, and none is named. Pass {options} MODULE:CALLABLE: {usage}"
        raise pytest.UsageError(msg)
    left_out = {
        item
        for item in collected
        if kinds[getattr(item, "cls", None)] not in config.stash[FACTORIES]
    }
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


def _import(option: str, name: str) -> MakeStore:
    """Import the callable that an option names."""
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise pytest.UsageError(
            f"{option} must be MODULE:CALLABLE, such as my_package.store:make_store; got {name!r}."
        )
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        raise pytest.UsageError(
            f"{option} is {name!r}: {exc}. Python must be able to import it."
            " Install its project, run python -m pytest in its folder, or set pythonpath in pytest's"
            " settings."
        ) from exc
    make_store: MakeStore | None = getattr(loaded, attribute, None)
    if not callable(make_store):
        problem = (
            f"it is {make_store!r}"
            if hasattr(loaded, attribute)
            else f"{loaded.__file__} does not have it"
        )
        raise pytest.UsageError(
            f"{option} is {name!r}: {attribute} must be a function or class; {problem}."
        )
    return make_store
