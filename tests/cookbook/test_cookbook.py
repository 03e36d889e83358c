"""The cookbook's scripts run as a reader would run them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.interpreter import ROOT, python
from tests.model_server import answered
from tests.shared import shared

SCRIPTS = sorted((ROOT / "cookbook").glob("[0-9][0-9]_*.py"))
# What each needs that is not there; tests/live and tests/scale run them where it is.
ON_STORES = {
    "08_chroma": 'pip install -e ".[chroma]"',
    "09_milvus": 'pip install -e ".[milvus]"',
    "28_dask": 'pip install "lazyrag[dask]"',
}
QUICK = {"05_restart_and_sync"}  # the others are for CI
WITH_MODEL = (
    "04_models",
    "07_from_a_laptop_to_servers",
    "13_compare_retrievers",
    "14_explain_a_rank",
)
REAL_ANSWER = "16_real_answer"  # from an endpoint that the environment names
RUN_WITHOUT_CLIENTS = """
import pathlib, runpy, sys

# Importing them fails, installed or not.
sys.modules.update(dict.fromkeys(["chromadb", "pymilvus", "opensearchpy", "distributed"]))
sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(script, marks=[] if script.stem in QUICK else pytest.mark.slow)
        for script in SCRIPTS
        if script.stem not in ON_STORES
    ],
    ids=lambda script: script.stem,
)
def test_a_script_runs_in_a_fresh_interpreter_from_any_folder(script: Path, tmp_path: Path):
    """A script ends with exit status 0, says something, and warns of nothing."""
    done = python(str(script), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert not list(tmp_path.iterdir()), "a script leaves nothing behind"


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_STORES)
def test_a_script_on_another_store_says_what_it_needs(name: str, tmp_path: Path):
    """Without the store's package, or a server that it cannot do without, a script ends with what
    to do.
    """
    done = python("-c", RUN_WITHOUT_CLIENTS, str(ROOT / "cookbook" / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 1
    assert ON_STORES[name] in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir()), "a script leaves nothing behind"


@pytest.mark.share(3)
@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_MODEL)
def test_a_script_runs_with_a_real_embedding_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With a model's folder named, vectors are the model's, and what the script asserts is true of
    them, too.
    """
    monkeypatch.setenv("LAZYRAG_EMBED_MODEL", str(shared("models", "all-minilm-l6-v2")))
    done = python(str(ROOT / "cookbook" / f"{name}.py"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"04_models": "ONNX: How", "13_compare_retrievers": "default chain"}.get(
        name, ""
    ) in done.stdout


@pytest.mark.slow
def test_the_script_on_a_real_model_asks_the_endpoint_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model
):
    """It asks for three candidates, and shows the answer with the file it cites."""
    choices = [
        {"index": number, "message": {"content": "90元 [1]。"}, "finish_reason": "stop"}
        for number in range(3)
    ]
    model.faults = [answered({"choices": choices})] * 2
    monkeypatch.setenv("LAZYRAG_CHAT_URL", model.url)
    monkeypatch.setenv("LAZYRAG_CHAT_MODEL", "m")
    done = python(str(ROOT / "cookbook" / f"{REAL_ANSWER}.py"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "茶园/采摘须知.txt" in done.stdout
    assert "100% agreement of 3 candidates" in done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_says_what_it_shows_and_ends_in_assertions(script: Path):
    """A script begins with a docstring, ends with an assert, and can be read on a screen or two."""
    source = script.read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert ast.get_docstring(tree)
    assert isinstance(tree.body[-1], ast.Assert)
    assert len(source.splitlines()) <= 110


def test_the_cookbook_has_no_gap():
    """The scripts are numbered from 01 without a gap."""
    assert [int(script.name[:2]) for script in SCRIPTS] == list(range(1, len(SCRIPTS) + 1))
    assert SCRIPTS


@pytest.mark.share(3)
@pytest.mark.slow
def test_the_demo_says_how_to_get_hybrid_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without a model: keyword search, a cited answer, the line for a model, and what to type next;
    then at once.
    """
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "modelscope"))
    monkeypatch.delenv("LAZYRAG_EMBED_MODEL", raising=False)
    done = python(str(ROOT / "cookbook" / "demo.py"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "20 added, 0 failed" in lines[1]
    assert any("lazyrag model fetch" in line for line in lines)
    assert any(line.startswith("  [1] handbook/tools-and-vehicles.txt, lines ") for line in lines)
    assert lines[-1] == "  .venv/bin/lazyrag index FOLDER"
    again = python(str(ROOT / "cookbook" / "demo.py"), cwd=tmp_path).stdout.splitlines()
    assert "20 unchanged" in again[1]
    assert again[2:] == lines[2:]


@pytest.mark.share(3)
@pytest.mark.shared
@pytest.mark.slow
def test_the_demo_is_hybrid_with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A model on this machine is used, and the answer is cited from the same file."""
    monkeypatch.setenv("LAZYRAG_EMBED_MODEL", str(shared("models", "all-minilm-l6-v2")))
    done = python(str(ROOT / "cookbook" / "demo.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Hybrid search with all-minilm-l6-v2." in done.stdout
    assert "  [1] handbook/tools-and-vehicles.txt" in done.stdout
