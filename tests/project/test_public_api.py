"""The public names: complete, documented, and free to import."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lazyrag

SOURCE = Path(lazyrag.__file__)


_LAZY = "document evaluation generation interop.dify models operators pipeline ranking retrieval text transforms"
PACKAGES = ("lazyrag", *(f"lazyrag.{name}" for name in _LAZY.split()))


def names_of_stub(package: str) -> dict[str, str]:
    """Public name to module, as type checkers see them."""
    stub = Path(importlib.import_module(package).__file__).with_suffix(".pyi")
    return {
        alias.asname: statement.module
        for statement in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_what_checkers_see_is_what_programs_get(package):
    """The stub lists the names of the package, each from a module where it is the same object."""
    module = importlib.import_module(package)
    stub = names_of_stub(package)
    assert set(stub) == set(module.__all__)
    for name, home in stub.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
        assert name in dir(module)


def test_there_are_few_names_at_the_top():
    """The names of everyday use; the rest is in subpackages, which are attributes."""
    assert len(lazyrag.__all__) <= 50
    assert lazyrag.transforms.MarkdownSplitter


def test_dir_shows_what_the_documentation_teaches():
    """The public names, and the subpackages that a page or a script imports; `testing` needs
    pytest.
    """
    root = SOURCE.parents[1]
    pages = [
        *root.glob("README*.md"),
        *(root / "docs").glob("*.md"),
        *(root / "docs" / "how-to").glob("*.md"),
        *(root / "cookbook").glob("*.py"),
    ]
    imported = re.compile(r"^\s*(?:from|import) lazyrag\.(\w+)", re.MULTILINE)
    taught = {name for page in pages for name in imported.findall(page.read_text(encoding="utf-8"))}
    assert {"models", "transforms", "testing"} < taught
    assert dir(lazyrag) == sorted({*lazyrag.__all__, *taught} - {"testing"})


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (package, name)
        for package in (*PACKAGES, "lazyrag.loaders")
        for name in importlib.import_module(package).__all__
        if callable(getattr(importlib.import_module(package), name))
    ],
)
def test_every_public_name_is_documented(package, name):
    """A docstring of its own, not the base class's, and one for each public method and property."""
    found = getattr(importlib.import_module(package), name)
    assert found.__doc__
    assert len(found.__doc__.split()) > 3
    assert not found.__doc__.startswith(f"{name}(")  # what dataclasses write where there is none
    if inspect.isclass(found):
        bare = [
            member
            for member, value in vars(found).items()
            if not member.startswith("_")
            and (
                inspect.isfunction(value)
                or isinstance(value, (property, classmethod, staticmethod))
            )
            and not inspect.getdoc(
                getattr(found, member) if not isinstance(value, property) else value
            )
        ]
        assert bare == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Documents", "Document"),
        ("retriever", "Retriever"),
        ("DocumentNode", "Document"),
        ("Hits", "Hit"),
    ],
)
def test_an_unknown_name_names_the_nearest(name, near):
    """A misspelt import names the nearest names, the best first, and no others."""
    with pytest.raises(AttributeError) as caught:
        getattr(lazyrag, name)
    assert repr(name) in str(caught.value)
    assert f"Did you mean {near}" in str(caught.value)
    assert len(str(caught.value)) < 160
    assert not hasattr(lazyrag, name)


def test_a_name_of_a_subpackage_is_found():
    """A name that is imported from the wrong place says from where."""
    with pytest.raises(AttributeError, match=r"from lazyrag\.retrieval import MMR"):
        getattr(lazyrag, "MMR")  # noqa: B009  the name is what matters


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
    """What a statement did in a fresh interpreter: modules imported, environment read, lines
    logged, files opened.
    """
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
    *("jieba", "rjieba", "docx", "pypdf", "pypdfium2", "lxml", "Stemmer"),
    *("tqdm", "rank_bm25", "hypothesis", "pytest"),
}


@pytest.mark.slow
def test_the_watch_sees_what_it_watches():
    """The check below would notice: a statement that opens, reads, logs and imports is caught at
    all four.
    """
    statement = (
        "import logging, jieba; logging.getLogger('x').info('hello'); open(os.devnull).close()"
    )
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
    """Document and Retriever come without jieba and without a reader of any file format: those wait
    for their use.
    """
    found = _after("from lazyrag import Document, Retriever, Reranker, SentenceSplitter")
    lazy = {
        "jieba",
        "rjieba",
        "docx",
        "pypdf",
        "pypdfium2",
        "lxml",
        "tqdm",
        "rank_bm25",
        "pytest",
    }
    assert "numpy" in found["modules"]
    assert lazy.isdisjoint(name.partition(".")[0] for name in found["modules"])
    assert found["logged"] == []


LATER = {
    *(
        "asyncio",
        "csv",
        "difflib",
        "email",
        "html",
        "importlib.metadata",
        "secrets",
        "ssl",
        "tempfile",
        "zipfile",
    ),
    *("lazyrag.maintain.export", "lazyrag.loaders.detect", "lazyrag.models.embedding_cache"),
    *("lazyrag.retrieval.explain", "lazyrag.text.structure", "lazyrag.transforms.dify_rules"),
}


@pytest.mark.slow
def test_what_few_programs_need_is_imported_on_first_use():
    """An import of the names of everyday use takes half a second of CPU, of which numpy is half."""
    assert LATER.isdisjoint(_after("from lazyrag import Document, Retriever")["modules"])


@pytest.mark.slow
def test_the_registries_are_no_modules_of_the_same_name():
    """``rerankers`` and its siblings stay registries after an entry was loaded, whose module might
    bear that name.
    """
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
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str([True] * 5)
