"""Rerank models by folder or name: found on this machine, loaded once."""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from lazyrag import DocNode, Reranker
from lazyrag.errors import ConfigError, MissingDependencyError
from lazyrag.models import OnnxCrossEncoder
from lazyrag.models import local as local_rerank
from lazyrag.models.local import local_rerank_model
from tests.tiny_models import VOCABULARY, WEIGHTS, write_cross_encoder, write_embedder, write_json

TEXTS = ["late frost", "a cup of green tea", "tea"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub, with a function that puts a cross-encoder into it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(name):
        at = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        (at / "refs").mkdir(parents=True)
        (at / "refs" / "main").write_text("0" * 40, encoding="utf-8")
        return write_cross_encoder(at / "snapshots" / ("0" * 40))

    return put


def test_a_folder_is_a_cross_encoder(tmp_path):
    """Its scores are those of an OnnxCrossEncoder of that folder, in a Reranker too."""
    folder = write_cross_encoder(tmp_path / "m")
    expected = OnnxCrossEncoder(folder)("green tea", TEXTS)
    assert local_rerank_model(str(folder))("green tea", TEXTS) == expected
    nodes = [DocNode(text=text) for text in TEXTS]
    for model in (folder, str(folder)):
        found = Reranker("ModuleReranker", model=model)(nodes, query="green tea")
        assert [(TEXTS.index(node.text), node.score) for node in found] == expected


def test_a_name_is_looked_up_on_this_machine(hub, monkeypatch):
    """In the hub's cache, without a connection."""
    hub("org/reranker")
    monkeypatch.setattr("socket.socket.connect", None)
    nodes = [DocNode(text=text) for text in TEXTS]
    [best] = Reranker("ModuleReranker", model="org/reranker", topk=1)(nodes, query="green tea")
    assert best.text == "a cup of green tea"
    assert local_rerank_model("org/reranker").name == "reranker"


def test_a_name_without_its_organisation(hub):
    """As spec 001 writes it: the only model of that name; of several the error lists the ids."""
    hub("org/reranker")
    assert local_rerank_model("reranker").name == "reranker"
    hub("other/reranker")
    with pytest.raises(ConfigError, match="Give one id: org/reranker, other/reranker"):
        local_rerank_model("reranker")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("layout", ["models", ".", "hub/models"])
def test_a_name_is_looked_up_in_modelscopes_cache(tmp_path, monkeypatch, layout):
    """In each of its layouts, where "." in a name is written as "___"."""
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "modelscope"))
    write_cross_encoder(tmp_path / "modelscope" / layout / "org" / "reranker-v1___5")
    for name in ("org/reranker-v1.5", "org/reranker-v1___5"):
        assert local_rerank_model(name)("green tea", TEXTS)


@pytest.mark.usefixtures("hub")
def test_the_error_says_how_to_get_a_model_behind_a_mirror(monkeypatch):
    """The commands with the mirror that is configured, ModelScope's, and a folder."""
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    with pytest.raises(
        ConfigError, match=r"HF_ENDPOINT=https://mirror\.example lazyrag model fetch org/other"
    ) as caught:
        local_rerank_model("org/other")
    assert "modelscope download --model org/other" in str(caught.value)
    assert "Or pass a folder" in str(caught.value)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["org/other", "bge-reranker-large", "no such folder"])
def test_a_name_that_is_not_here_is_refused(name):
    """With what to do; nothing is fetched."""
    with pytest.raises(
        ConfigError, match=rf"no rerank model '{name}' on this machine.*download=True"
    ):
        local_rerank_model(name)


@pytest.mark.parametrize("model", ["", "  ", None, 3])
def test_what_names_nothing_is_refused(model):
    """With what may be given."""
    with pytest.raises(ConfigError, match="give a folder, or an id"):
        local_rerank_model(model)


def test_a_file_is_no_folder(tmp_path):
    """The message says what to give instead."""
    folder = write_cross_encoder(tmp_path / "m")
    with pytest.raises(ConfigError, match="is a file; give the model's folder"):
        local_rerank_model(folder / "model.onnx")


def test_it_is_loaded_once(tmp_path, monkeypatch):
    """For all threads and all ways to write the folder; another folder is another model."""
    folder, other = (write_cross_encoder(tmp_path / name) for name in ("m", "other"))
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        models = list(threads.map(local_rerank_model, [folder, str(folder), "m", "./m"] * 5))
    assert {id(one) for one in models} == {id(local_rerank_model(folder))}
    assert local_rerank_model(other) is not models[0]


def test_a_folder_that_changed_is_loaded_anew(tmp_path):
    """So that nobody gets the scores of files that are gone; a Reranker that holds the old one
    keeps it.
    """
    folder = write_cross_encoder(tmp_path / "m")
    nodes = [DocNode(text=text) for text in TEXTS]
    old = Reranker("ModuleReranker", model=folder)
    before = [node.score for node in old(nodes, query="green tea")]
    weights = WEIGHTS.copy()
    weights[VOCABULARY["tea"]] *= 2
    shutil.rmtree(folder)
    write_cross_encoder(folder, weights=weights)
    os.utime(folder / "model.onnx", ns=(1, 1))
    assert [node.score for node in old(nodes, query="green tea")] == before
    assert [
        node.score for node in Reranker("ModuleReranker", model=folder)(nodes, query="green tea")
    ] != before


def test_a_folder_with_weights_for_torch_alone_goes_to_sentence_transformers(tmp_path, monkeypatch):
    """And where that package is not installed, the error says which extra brings it."""
    folder = write_cross_encoder(tmp_path / "m")
    (folder / "model.onnx").unlink()
    (folder / "model.safetensors").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[sentence-transformers\]"):
        local_rerank_model(folder)


def test_a_model_for_torch_needs_no_file_of_a_tokenizer(hub, monkeypatch):
    """To be found in the hub's cache: older ones have none of that name."""
    folder = hub("org/older")
    (folder / "model.onnx").unlink()
    (folder / "tokenizer.json").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[sentence-transformers\]"):
        local_rerank_model("org/older")


def test_the_packages_it_needs_are_named(tmp_path, monkeypatch):
    """The one that looks into the hub's cache, too."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match=r"no folder 'org/m'.*\.\[onnx\]"):
        local_rerank_model("org/m")
    assert local_rerank_model(write_cross_encoder(tmp_path / "m"))


def test_other_folders_are_refused(tmp_path):
    """Without any weights, of several labels, of an embedding model."""
    empty = tmp_path / "empty"
    write_json(empty / "config.json", {})
    with pytest.raises(ConfigError, match="neither an ONNX file nor torch weights"):
        local_rerank_model(empty)
    with pytest.raises(ConfigError, match="has 3 labels"):
        local_rerank_model(write_cross_encoder(tmp_path / "labels", labels=3))
    with pytest.raises(ConfigError, match="Is it an embedding model"):
        local_rerank_model(write_embedder(tmp_path / "embedder", pooling={"pooling_mode": "mean"}))


def test_a_model_by_folder_takes_no_keywords(tmp_path):
    """A misspelt one does not get lost."""
    with pytest.raises(ConfigError, match="instruction"):
        Reranker("ModuleReranker", model=write_cross_encoder(tmp_path / "m"), instruction="x")


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """What a test loads is gone afterwards."""
    monkeypatch.setattr(local_rerank, "_loaded", {})
