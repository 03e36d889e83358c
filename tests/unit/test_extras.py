"""Optional packages: where one is missing, the extra that brings it is named; none is imported before it is needed."""

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
    """In an interpreter that finds none of the packages, each part that needs one names its extra."""
    script = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({PACKAGES!r}))  # None: not to be found
runpy.run_path({str(ROOT / "tests" / "missing_extras.py")!r}, run_name="__main__")
"""
    done = python("-c", script)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.count("pip install") == 26


@pytest.mark.sample(30)
@pytest.mark.parametrize(
    "name", ["OnnxEmbedder", "HttpEmbedder", "CachedEmbedder", "models.SentenceTransformerEmbedder", "Retriever"]
)
def test_naming_a_part_imports_no_optional_package(name):
    """Only making one does."""
    packages = (*PACKAGES, "openpyxl", "yaml")  # the last two are always there, and slow to import
    script = f"import sys, lazyrag; lazyrag.{name}; print(sorted(set({packages!r}) & set(sys.modules)))"
    done = python("-c", script)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
