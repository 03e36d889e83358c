"""The public names: complete, documented, and free to import."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import lazyrag

SOURCE = Path(lazyrag.__file__)


def _type_checking_imports() -> dict[str, str]:
    """Public name to module, as type checkers see them."""
    [block] = [node for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
    return {
        alias.asname or alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_all_is_sorted_and_names_nothing_twice():
    """Constants first, then classes, then functions, as isort orders names."""
    names = lazyrag.__all__

    def order(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert names == sorted(set(names), key=order)
    assert len(names) > 20


def test_what_checkers_see_is_what_programs_get():
    """The imports for type checkers, the table of homes and __all__ agree, name by name and module by module."""
    assert _type_checking_imports() == lazyrag._HOMES
    assert {*lazyrag._HOMES, "__version__"} == set(lazyrag.__all__)


@pytest.mark.parametrize("name", lazyrag.__all__)
def test_every_public_name_is_there(name):
    """It is an attribute, the very object of its home module, and dir() lists it."""
    found = getattr(lazyrag, name)
    assert found is not None
    assert name in dir(lazyrag)
    if name in lazyrag._HOMES:
        assert found is getattr(importlib.import_module(lazyrag._HOMES[name]), name)


def test_every_public_class_and_function_is_exported():
    """What spec 001 and the package's own rooms offer to users: nothing that a room's __all__ shows is left behind."""
    for room in ("lazyrag.document", "lazyrag.retrieval", "lazyrag.transforms", "lazyrag.loaders"):
        shown = importlib.import_module(room).__all__
        classes = [name for name in shown if inspect.isclass(getattr(importlib.import_module(room), name))]
        registering = [name for name in shown if name.startswith("register_")]
        # A Protocol for type checkers, and what methods return and nobody makes.
        told = "Failure DocumentStatus DocumentVersion GroupStatus Migration Plan PlannedStep Problem Progress".split()
        missing = {*classes, *registering} - set(lazyrag.__all__) - {"DataLoader", *told}
        assert missing == set(), room


@pytest.mark.parametrize("name", [one for one in lazyrag.__all__ if callable(getattr(lazyrag, one))])
def test_every_public_name_is_documented(name):
    """A docstring of its own, not the base class's, and one for each public method and property."""
    found = getattr(lazyrag, name)
    assert found.__doc__
    assert len(found.__doc__.split()) > 3
    assert not found.__doc__.startswith(f"{name}(")  # what dataclasses write where there is none
    if inspect.isclass(found):
        bare = [
            member
            for member, value in vars(found).items()
            if not member.startswith("_")
            and (inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod)))
            and not inspect.getdoc(getattr(found, member) if not isinstance(value, property) else value)
        ]
        assert bare == []


@pytest.mark.parametrize(
    ("name", "near"),
    [("Documents", "Document"), ("retriever", "Retriever"), ("DocumentNode", "Document"), ("Hits", "Hit")],
)
def test_an_unknown_name_names_the_nearest(name, near):
    """A misspelt import says what was meant and what there is."""
    with pytest.raises(AttributeError) as caught:
        getattr(lazyrag, name)
    assert repr(name) in str(caught.value)
    assert f"Did you mean {near!r}?" in str(caught.value)
    assert "Retriever" in str(caught.value)
    assert not hasattr(lazyrag, name)


def test_the_version_is_one():
    """The installed package and the module say the same, in the form of PEP 440."""
    from importlib.metadata import version

    assert lazyrag.__version__ == version("lazyrag")
    assert [part.isdigit() for part in lazyrag.__version__.split(".")[:2]] == [True, True]


_WATCH = """
import json, logging, os, sys

class Watched(type(os.environ)):
    read = []
    def __getitem__(self, key):
        note(key)
        return super().__getitem__(key)
    def __contains__(self, key):
        note(key)
        return super().__contains__(key)
    def get(self, key, default=None):
        note(key)
        return super().get(key, default)

def note(key):
    frame = sys._getframe(2)
    while frame is not None:
        if os.sep + "lazyrag" + os.sep in frame.f_code.co_filename:
            Watched.read.append(str(key))
            return
        frame = frame.f_back

os.environ.__class__ = Watched
logged, opened = [], []

class Keep(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())

logging.getLogger().addHandler(Keep())
logging.getLogger().setLevel(0)

def audit(event, arguments):
    if event == "open" and not str(arguments[0]).endswith((".py", ".pyc", ".so", ".pyd")):
        opened.append(str(arguments[0]))
    elif event in ("socket.connect", "subprocess.Popen", "os.system", "shutil.rmtree", "os.mkdir", "os.remove"):
        opened.append(event)

before = set(sys.modules)
sys.addaudithook(audit)
STATEMENT
found = {"modules": sorted(set(sys.modules) - before), "read": Watched.read, "logged": logged, "opened": opened}
print(json.dumps(found))
"""


def _after(statement: str) -> dict:
    """What a statement did in a fresh interpreter: modules imported, environment read, lines logged, files opened."""
    program = _WATCH.replace("STATEMENT", statement)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=SOURCE.parents[1],
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return json.loads(run.stdout)


HEAVY = {
    *("jieba", "rjieba", "docx", "pypdf", "lxml", "charset_normalizer", "Stemmer", "tqdm", "rank_bm25"),
    *("hypothesis", "pytest"),
}


def test_the_watch_sees_what_it_watches():
    """The check below would notice: a statement that opens, reads, logs and imports is caught at all four."""
    statement = "import logging, jieba; logging.getLogger('x').info('hello'); open(os.devnull).close()"
    found = _after(f"import warnings; warnings.simplefilter('ignore'); {statement}")
    assert "jieba" in found["modules"]
    assert found["logged"] == ["hello"]
    assert "/dev/null" in found["opened"] or "nul" in found["opened"]


def test_import_lazyrag_does_nothing_but_import():
    """No optional or heavy package, no file but code, no log line, no look at the environment."""
    found = _after("import lazyrag")
    assert "lazyrag" in found["modules"]
    assert HEAVY.isdisjoint(name.partition(".")[0] for name in found["modules"])
    assert found["read"] == []
    assert found["logged"] == []
    assert found["opened"] == []


def test_the_usual_names_import_no_format_library_and_no_dictionary():
    """Document and Retriever come without jieba and without a reader of any file format: those wait for their use."""
    found = _after("from lazyrag import Document, Retriever, Reranker, SentenceSplitter")
    lazy = {"jieba", "rjieba", "docx", "pypdf", "lxml", "charset_normalizer", "tqdm", "rank_bm25", "pytest"}
    assert "numpy" in found["modules"]
    assert lazy.isdisjoint(name.partition(".")[0] for name in found["modules"])
    assert found["logged"] == []


def test_the_registries_are_no_modules_of_the_same_name():
    """``rerankers`` and its siblings stay registries after an entry was loaded, whose module might bear that name."""
    program = """
from lazyrag import Document, Reranker, Retriever
Reranker("KeywordFilter", required_keys=["tea"])
Retriever(Document(), "FineChunk", "bm25_chinese")
from lazyrag.registry import Registry
from lazyrag.retrieval import rerankers, similarities
import lazyrag.loaders, lazyrag.retrieval, lazyrag.transforms
print([type(one) is Registry for one in (
    rerankers, similarities, lazyrag.retrieval.rerankers, lazyrag.loaders.loaders, lazyrag.transforms.transforms)])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str([True] * 5)
