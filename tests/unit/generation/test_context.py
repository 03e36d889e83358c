"""Context and citations: the structures of spec 003."""

from __future__ import annotations

import dataclasses

import pytest

from lazyrag import Citation, Hit, RAGContext, RetrievalResult
from lazyrag.errors import ConfigError

HITS = [
    Hit("u1", "green tea", 0.9, "tea.txt", "d1", 1),
    Hit("u2", "black tea", 0.5, "tea.txt", "d1", 2),
]


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (Citation, ["index", "source", "document_id", "chunk_id", "text_snippet"]),
        (RAGContext, ["query", "context", "sources", "total_tokens", "metadata"]),
    ],
)
def test_fields_are_spec_003s_in_its_order(cls, names):
    """Code written for spec 003 can make them by position and read them by name; fields of ours
    come after them.
    """
    fields = dataclasses.fields(cls)
    assert [field.name for field in fields][: len(names)] == names
    assert all(field.default == "" for field in fields[len(names) :])


def test_a_citation_says_where_its_words_stand():
    """Index, document and chunk are kept as given."""
    citation = Citation(1, "tea.txt", "d1", 2, "black tea")
    assert dataclasses.asdict(citation) == {
        "index": 1,
        "source": "tea.txt",
        "document_id": "d1",
        "chunk_id": 2,
        "text_snippet": "black tea",
        "uid": "",
        "location": "",
        "superseded": "",
    }


@pytest.mark.parametrize("index", [0, -1])
def test_citations_count_from_one(index):
    """[0] is no citation."""
    with pytest.raises(ConfigError, match="index must be"):
        Citation(index, "tea.txt", "d1", 2, "black tea")


def test_a_context_holds_its_sources_as_one_result():
    """Spec 003 iterates over the sources; spec 002 reads their columns: both on the one object, not
    copied.
    """
    sources = RetrievalResult.from_hits(HITS)
    context = RAGContext("which tea?", "[1] green tea\n[2] black tea", sources, 12)
    assert context.sources is sources
    assert [hit.chunk_id for hit in context.sources] == [1, 2]
    assert context.sources.contexts == ["green tea", "black tea"]
    assert context.total_tokens == 12


def test_contexts_do_not_share_metadata():
    """What one context is told is not told to another."""
    one = RAGContext("q", "c", RetrievalResult([]), 0)
    other = RAGContext("q", "c", RetrievalResult([]), 0)
    assert one == other
    one.metadata["seen"] = True
    assert other.metadata == {}


@pytest.mark.parametrize(
    "value",
    [Citation(1, "s", "d", 1, "t"), RAGContext("q", "c", RetrievalResult(["a"]), 1)],
    ids=["Citation", "RAGContext"],
)
def test_they_cannot_be_changed(value):
    """Both are values."""
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, 2)
