"""The plug-in of pytest: a stranger's store is tested from its own project."""

from __future__ import annotations

import configparser
import re

import pytest

from tests.interpreter import ROOT, python

KIT = ("--pyargs", "lazyrag.testing.suites")
STORES = """
from sqlite_store import SqliteSegmentStore

from lazyrag.stores.memory import MapVectorStore


class Disorderly(SqliteSegmentStore):
    def get(self, collection, keys):
        return super().get(collection, sorted(keys))


def elsewhere(place):
    return SqliteSegmentStore(place.with_name("elsewhere"))


def in_memory(place):
    assert not place.exists()
    return MapVectorStore()


number = 7
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the store of the page and some others, in which pytest has the plug-in and no
    other.
    """
    page = (ROOT / "docs" / "write-a-store.md").read_text(encoding="utf-8")
    [store] = re.findall(r"```python\n(# sqlite_store\.py\n.+?)```", page, re.DOTALL)
    (tmp_path / "sqlite_store.py").write_text(store, encoding="utf-8")
    (tmp_path / "stores.py").write_text(STORES, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return tmp_path


def conformance(project, *options: str):
    """A run of pytest in a project: how it ended, and all that it said."""
    always = ("-q", "-p", "no:cacheprovider", "--basetemp", str(project / "temporary"))
    done = python(
        "-m", "pytest", "-p", "lazyrag.testing.plugin", *always, *KIT, *options, cwd=project
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_the_store_of_the_page_passes(project):
    """A class that takes a path is named as it is; the contract of vectors is left out."""
    code, said = conformance(project, "--lazyrag-segment-store", "sqlite_store:SqliteSegmentStore")
    assert code == 0, said
    assert re.search(r"[5-9]\d passed, 1\d\d deselected", said)


@pytest.mark.slow
def test_stores_of_both_kinds_are_tested_in_one_run(project):
    """Each contract has its own option."""
    names = (
        "--lazyrag-segment-store",
        "sqlite_store:SqliteSegmentStore",
        "--lazyrag-vector-store",
        "stores:in_memory",
    )
    code, said = conformance(project, *names, "-k", "opening or topk_below")
    assert code == 0, said
    assert "4 passed" in said


@pytest.mark.slow
def test_a_broken_store_fails(project):
    """A store that gives rows in another order ends the run with 1, and with the name of what it
    does not keep.
    """
    code, said = conformance(project, "--lazyrag-segment-store", "stores:Disorderly")
    assert code == 1
    assert [line for line in said.splitlines() if line.startswith("FAILED")] == [
        line
        for line in said.splitlines()
        if "test_get_answers_in_the_order_asked" in line and "FAILED" in line
    ]


@pytest.mark.slow
def test_a_store_is_reopened_as_the_option_says(project):
    """What the second option makes is what a later program finds; where that is nothing, the
    contract fails.
    """
    same = ("--lazyrag-segment-store", "sqlite_store:SqliteSegmentStore", "-k", "declared")
    reopened = "--lazyrag-reopen-segment-store"
    assert conformance(project, *same, reopened, "sqlite_store:SqliteSegmentStore")[0] == 0
    assert conformance(project, *same, reopened, "stores:elsewhere")[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "none is named.*MODULE:CALLABLE.*pytest -p lazyrag.testing.plugin --pyargs"),
        (("--lazyrag-segment-store", "stores"), "must be MODULE:CALLABLE.*got 'stores'"),
        (
            ("--lazyrag-segment-store", "nowhere:make"),
            "No module named 'nowhere'.*python -m pytest",
        ),
        (
            ("--lazyrag-vector-store", "stores:makes"),
            r"must be a function or class.*stores\.py does not have it",
        ),
        (("--lazyrag-vector-store", "stores:number"), "must be a function or class; it is 7"),
        (
            ("--lazyrag-reopen-vector-store", "stores:in_memory"),
            "needs --lazyrag-vector-store.*Give both",
        ),
    ],
)
def test_a_wrong_option_is_a_usage_error(project, options, told):
    """The run ends with 4, before any test, and says what was given, what is allowed, and what to
    do.
    """
    code, said = conformance(project, *options)
    assert code == 4, said
    assert re.search(told, said)
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_kit_without_the_plug_in_says_so(project):
    """Whoever leaves the plug-in out and asks for the contracts is told what they need."""
    done = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", *KIT, "-k", "opening", cwd=project
    )
    assert done.returncode == 1
    assert "Run pytest with -p lazyrag.testing.plugin" in done.stdout


def test_no_entry_point_offers_the_plug_in():
    """An entry point would load it, and numpy, in every run of pytest where lazyrag is
    installed.
    """
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert "pytest11" not in setup["options.entry_points"]


@pytest.mark.slow
def test_a_conftest_may_name_the_plug_in(project):
    """``pytest_plugins`` loads it without an option, and a failing contract shows the values that
    it compared.
    """
    (project / "conftest.py").write_text(
        'pytest_plugins = ["lazyrag.testing.plugin"]\n', encoding="utf-8"
    )
    names = (
        "--rootdir",
        ".",
        "-c",
        "pytest.ini",
        "--lazyrag-segment-store",
        "stores:Disorderly",
        "-k",
        "order_asked",
    )
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", ".", *KIT, *names, cwd=project)
    assert done.returncode == 1, done.stdout
    assert "At index 0 diff" in done.stdout
