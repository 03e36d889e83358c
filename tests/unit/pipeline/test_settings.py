"""Settings from files and the environment: what is read, what is refused, and what is never
shown.
"""

from __future__ import annotations

import pytest

from lazyrag import Document, RAGPipeline
from lazyrag.errors import ConfigError, UnknownKeywordError
from lazyrag.pipeline import PipelineSettings, Settings
from lazyrag.pipeline.settings import read_settings


def test_variables_of_others_are_left_alone(tmp_path):
    """A file that other programs read, too, is read for ours."""
    file = tmp_path / ".env"
    file.write_text(
        "OPENAI_API_KEY=sk-secret\nLAZYRAG_API_KEY=another\nLAZYRAG_RAG_TOP_K=8\n", encoding="utf-8"
    )
    assert read_settings(file) == PipelineSettings(rag_top_k=8)


def test_a_misspelt_variable_of_a_file_is_told_without_its_value(tmp_path):
    """With its name as it is written, the file, and the nearest one."""
    file = tmp_path / "settings.env"
    file.write_text("LAZYRAG_RAG_TOPK=secret\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_settings(str(file))
    told = str(caught.value)
    assert "settings.env" in told
    assert "Did you mean 'LAZYRAG_RAG_TOP_K'?" in told
    assert "secret" not in told


def test_a_file_that_is_not_there_is_told(tmp_path):
    """It was named, so its settings were meant to hold."""
    with pytest.raises(ConfigError, match=r"nope\.env"):
        read_settings(tmp_path / "nope.env")


def test_a_misspelt_argument_is_told():
    """By both classes, with the nearest field."""
    with pytest.raises(UnknownKeywordError, match="Did you mean 'rag_top_k'"):
        PipelineSettings(rag_topk=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="Did you mean 'rag_top_k'"):
        Settings(rag_topk=5)


def test_messages_end_as_sentences_do(monkeypatch):
    """One full stop, also behind words of others."""
    for value in ("0", "many"):
        monkeypatch.setenv("LAZYRAG_RAG_TOP_K", value)
        with pytest.raises(ConfigError) as caught:
            read_settings()
        assert not str(caught.value).endswith("..")


def test_weights_that_would_do_nothing_are_refused():
    """Under a fusion without weights, other weights than the usual are a mistake; under "weighted"
    they hold.
    """
    docs = Document(embed=lambda text: [float(len(text)), 1.0])
    docs.add_texts({"a": "green tea"})
    given = {"rag_use_hybrid_search": True, "rag_use_reranker": False, "hybrid_vector_weight": 0.9}
    with pytest.raises(ConfigError, match="'weighted'"):
        RAGPipeline.over(docs, "FineChunk", settings=PipelineSettings(**given))
    RAGPipeline.over(
        docs, "FineChunk", settings=PipelineSettings(**given, hybrid_fusion_method="weighted")
    )
