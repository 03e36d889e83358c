"""Spec 003, task 6, the settings: each test quotes what it checks."""

from __future__ import annotations

import dataclasses
import os

import pytest

import lazyrag
from lazyrag.errors import ConfigError
from lazyrag.pipeline.settings import read_settings
from tests.tiny_models import write_cross_encoder

SPEC = {
    "rag_top_k": (int, 5),
    "rag_rerank_top_k": (int, 3),
    "rag_max_context_tokens": (int, 2000),
    "rag_use_reranker": (bool, True),
    "rag_use_hybrid_search": (bool, False),
    "reranker_model": (str, "BAAI/bge-reranker-large"),
    "reranker_batch_size": (int, 32),
    "hybrid_vector_weight": (float, 0.7),
    "hybrid_bm25_weight": (float, 0.3),
    "hybrid_fusion_method": (str, "rrf"),
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    """Nothing of the environment but what a test sets."""
    for name in list(os.environ):
        if name.startswith("LAZYRAG_RAG") or name.upper().removeprefix("LAZYRAG_").lower() in SPEC:
            monkeypatch.delenv(name)


@pytest.mark.parametrize("name", SPEC)
def test_a_setting_has_its_default(name):
    """「class Settings(BaseSettings): rag_top_k: int = 5 …」: each of the ten, with its type."""
    kind, value = SPEC[name]
    for settings in (lazyrag.pipeline.Settings(), lazyrag.pipeline.PipelineSettings()):
        assert getattr(settings, name) == value
        assert type(getattr(settings, name)) is kind


def test_both_classes_have_these_fields_and_no_others():
    """「class Settings(BaseSettings)」, and the plain value that a pipeline works with."""
    from pydantic_settings import BaseSettings

    assert issubclass(lazyrag.pipeline.Settings, BaseSettings)
    assert set(lazyrag.pipeline.Settings.model_fields) == set(SPEC)
    assert [field.name for field in dataclasses.fields(lazyrag.pipeline.PipelineSettings)] == list(
        SPEC
    )


def test_they_come_from_the_environment(monkeypatch):
    """「BaseSettings」: a variable for each, with the prefix LAZYRAG_; what is given in the program
    goes before it.
    """
    monkeypatch.setenv("LAZYRAG_RAG_TOP_K", "8")
    monkeypatch.setenv("LAZYRAG_RAG_USE_HYBRID_SEARCH", "true")
    monkeypatch.setenv("LAZYRAG_HYBRID_FUSION_METHOD", "weighted")
    settings = lazyrag.pipeline.Settings(rag_rerank_top_k=4)
    assert (settings.rag_top_k, settings.rag_use_hybrid_search, settings.rag_rerank_top_k) == (
        8,
        True,
        4,
    )
    assert read_settings() == lazyrag.pipeline.PipelineSettings(
        rag_top_k=8, rag_use_hybrid_search=True, hybrid_fusion_method="weighted"
    )


def test_a_file_is_read_where_it_is_named_and_only_there(monkeypatch, tmp_path):
    """Whatever lies in the folder a program runs in."""
    (tmp_path / ".env").write_text("LAZYRAG_RAG_TOP_K=9\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert lazyrag.pipeline.Settings().rag_top_k == 5
    assert read_settings(str(tmp_path / ".env")).rag_top_k == 9


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LAZYRAG_RAG_TOP_K", "many", "LAZYRAG_RAG_TOP_K is 'many'"),
        ("LAZYRAG_RAG_TOP_K", "0", "LAZYRAG_RAG_TOP_K: rag_top_k "),
        (
            "LAZYRAG_HYBRID_VECTOR_WEIGHT",
            "-1",
            "LAZYRAG_HYBRID_VECTOR_WEIGHT: hybrid_vector_weight must be .*-1.0",
        ),
        (
            "LAZYRAG_HYBRID_FUSION_METHOD",
            "rrff",
            "LAZYRAG_HYBRID_FUSION_METHOD.*Did you mean 'rrf'",
        ),
        ("LAZYRAG_RERANKER_MODEL", " ", "LAZYRAG_RERANKER_MODEL: reranker_model must be .*' '"),
        ("LAZYRAG_RAG_TOPK", "8", "no setting LAZYRAG_RAG_TOPK.*Did you mean 'LAZYRAG_RAG_TOP_K'"),
    ],
)
def test_what_does_not_fit_is_refused(monkeypatch, name, value, message):
    """With what was given, and where."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        read_settings()


def test_weights_cannot_both_be_nothing():
    """「hybrid_vector_weight: float = 0.7, hybrid_bm25_weight: float = 0.3」"""
    with pytest.raises(ConfigError, match="both 0"):
        lazyrag.pipeline.PipelineSettings(hybrid_vector_weight=0, hybrid_bm25_weight=0)


def test_an_explicit_settings_obeys_its_defaults(tmp_path):
    """「rag_use_reranker: bool = True, rag_use_hybrid_search: bool = False」「rag_top_k: int = 5 …」

    Vector search alone, five hits, three of them left by the cross-encoder; only the model's folder
    is named.
    """
    docs = lazyrag.Document(embed=lambda text: [1.0, float(text.count("tea"))])
    docs.add_texts({f"{number}.txt": "green tea " * number for number in range(1, 10)})
    folder = write_cross_encoder(tmp_path / "bge-reranker-large")
    pipeline = lazyrag.RAGPipeline.over(
        docs, "FineChunk", settings=lazyrag.pipeline.Settings(reranker_model=str(folder))
    )
    expected = lazyrag.Retriever(docs, "FineChunk", "cosine")("tea", topk=5)
    assert [hit.id for hit in pipeline.sync.retrieve("tea")] == [node.uid for node in expected]
    context = pipeline.sync.retrieve_with_context("tea")
    assert pipeline.reranks
    assert len(context.sources) == 3
    assert {hit.id for hit in context.sources} < {node.uid for node in expected}
    assert context.metadata["max_tokens"] == 2000


def test_a_setting_that_cannot_act_is_refused():
    """「rag_use_hybrid_search: bool = False」 on a pipeline whose retriever is passed: not
    ignored.
    """
    retriever = lazyrag.BM25Retriever()
    settings = lazyrag.pipeline.Settings(rag_use_hybrid_search=True, rag_use_reranker=False)
    with pytest.raises(ConfigError, match="rag_use_hybrid_search=True has no effect"):
        lazyrag.RAGPipeline(retriever=retriever, settings=settings)


def test_a_pipeline_takes_both(monkeypatch):
    """Settings of the environment are as good as the plain value."""
    docs = lazyrag.Document()
    docs.add_texts({f"{number}.txt": "green tea" for number in range(9)})
    monkeypatch.setenv("LAZYRAG_RAG_TOP_K", "2")
    monkeypatch.setenv("LAZYRAG_RAG_USE_RERANKER", "false")
    for settings in (lazyrag.pipeline.Settings(), read_settings()):
        pipeline = lazyrag.RAGPipeline.over(docs, "FineChunk", settings=settings)
        assert len(pipeline.sync.retrieve("tea")) == 2
