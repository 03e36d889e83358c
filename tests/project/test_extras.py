"""Optional packages: where one is missing, the extra that brings it is named; none is imported
before it is needed.
"""

from __future__ import annotations

import pytest

from tests.interpreter import ROOT, python

PACKAGES = (
    "chromadb",
    "httpx",
    "httpx2",
    "huggingface_hub",
    "langchain_core",
    "llama_index",
    "onnxruntime",
    "pymilvus",
    "ragas",
    "sentence_transformers",
    "tenacity",
    "tokenizers",
    "faiss",
    "fastapi",
    "mcp",
    "uvicorn",
    "opensearchpy",
    "duckdb",
    "sqlalchemy",
    "olefile",
    "tree_sitter",
    "xlrd",
)


@pytest.mark.slow
def test_every_part_says_which_extra_it_needs():
    """In an interpreter that finds none of the packages, each part that needs one names its
    extra.
    """
    script = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({PACKAGES!r}))  # None: not to be found
runpy.run_path({str(ROOT / "tests" / "missing_extras.py")!r}, run_name="__main__")
"""
    done = python("-c", script)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.count("pip install") == 28


@pytest.mark.sample(30)
@pytest.mark.parametrize(
    "name",
    [
        "OnnxEmbedder",
        "HttpEmbedder",
        "CachedEmbedder",
        "models.SentenceTransformerEmbedder",
        "Retriever",
    ],
)
def test_naming_a_part_imports_no_optional_package(name):
    """Only making one does."""
    packages = (*PACKAGES, "openpyxl", "yaml")  # the last two are always there, and slow to import
    script = (
        f"import sys, lazyrag; lazyrag.{name}; print(sorted(set({packages!r}) & set(sys.modules)))"
    )
    done = python("-c", script)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_text_format_without_its_package_is_read_as_text(tmp_path):
    """YAML without PyYAML, HTML without lxml: the text is found, and a note says what is missing; a
    plan knows it.
    """
    for name, text in {
        "a.yaml": "tea: green\n",
        "b.html": "<p>black tea</p>",
        "c.txt": "white tea",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = f"""
import sys, warnings
sys.modules.update(yaml=None, lxml=None)
warnings.simplefilter("error")
from lazyrag import Document
with Document({str(tmp_path)!r}) as docs:
    plan = docs.plan()
    report = docs.sync()
    print(report.added, report.failed, plan.files.added, [(one.kind, one.how) for one in plan.formats])
    print(report.notes["a.yaml"], report.notes["b.html"])
    print([node.text for node in docs.get_nodes()])
"""
    done = python("-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    files, notes, texts = done.stdout.splitlines()
    names = "('a.yaml', 'b.html', 'c.txt')"
    assert files == f"{names} () {names} [('.html', 'text'), ('.txt', 'text'), ('.yaml', 'text')]"
    assert (
        notes.count("read as plain text") == notes.count("Install it with: pip install -e .") == 2
    )
    assert texts == "['tea: green\\n', '<p>black tea</p>', 'white tea']"


def test_a_workbook_without_its_package_fails_with_the_command(tmp_path):
    """What is no text cannot be read as text; PyYAML and openpyxl come with the package itself."""
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04")
    script = f"""
import sys
sys.modules.update(openpyxl=None)
from lazyrag.loaders import load_file
load_file({str(tmp_path / "a.xlsx")!r})
"""
    done = python("-c", script)
    assert (
        "needs the package 'openpyxl', which is not installed. Install it with: pip install -e ."
        in done.stderr
    )
