"""Results of a query and of a generation: the structures of specs 002 and 003."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Sequence
from typing import Any, TypedDict

import pytest

from lazyrag import DocNode, Document, GenerationResult, Hit, RetrievalResult, Retriever
from lazyrag.errors import ConfigError

HITS = [
    Hit("u1", "green tea", 0.9, "tea.txt", "d1", 1, {"year": 2002}),
    Hit("u2", "black tea", 0.5, "tea.txt", "d1", 2, {"year": 2003}),
    Hit("u3", "coffee", 0.1, "coffee.txt", "d2", 1, {}),
]


def test_a_hit_has_spec_003s_seven_fields_in_their_order():
    """Spec 003: id, text, score, source, document_id, chunk_id, metadata."""
    names = [field.name for field in dataclasses.fields(Hit)]
    assert names == ["id", "text", "score", "source", "document_id", "chunk_id", "metadata"]


def test_a_hit_as_a_dict_has_its_seven_fields():
    """The dict is plain, and its metadata is one of its own."""
    shown = HITS[0].to_dict()
    assert shown == {
        "id": "u1",
        "text": "green tea",
        "score": 0.9,
        "source": "tea.txt",
        "document_id": "d1",
        "chunk_id": 1,
        "metadata": {"year": 2002},
    }
    shown["metadata"]["year"] = 1
    assert HITS[0].metadata == {"year": 2002}


def test_a_hit_cannot_be_changed():
    """Hits are values."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        HITS[0].score = 1.0


def test_a_retrieved_node_becomes_a_hit(folder):
    """Source is the file, document_id its root, chunk_id the number from 1; own metadata goes
    before the file's.
    """
    docs = Document(
        folder({"tea.txt": "green tea\nblack tea"}),
        file_metadata={"tea.txt": {"year": 2002, "kind": "x"}},
    )
    docs.create_node_group(
        "line",
        lambda node: [
            DocNode(text=line, metadata={"year": 2024}) for line in node.get_text().splitlines()
        ],
        trans_node=True,
    )
    [node] = Retriever(docs, "line", similarity="bm25", topk=1)("black")
    hit = Hit.from_node(node)
    assert (hit.id, hit.text, hit.score) == (node.uid, "black tea", node.score)
    assert (hit.source, hit.document_id, hit.chunk_id) == ("tea.txt", node.root.uid, 2)
    assert (hit.metadata["year"], hit.metadata["kind"], hit.metadata["file_name"]) == (
        2024,
        "x",
        "tea.txt",
    )


def test_a_node_without_a_score_becomes_a_hit_with_nan():
    """A missing score is not taken for 0."""
    hit = Hit.from_node(DocNode(text="tea"))
    assert math.isnan(hit.score)
    assert (hit.source, hit.document_id, hit.chunk_id, hit.metadata) == ("", "", 0, {})
    assert Hit.from_node(DocNode(text="tea", score=0.0)).score == 0.0


def test_a_retrieval_result_needs_contexts_only():
    """Spec 002: contexts is required; context_ids, scores and metadata are optional and None where
    missing.
    """
    with pytest.raises(TypeError, match="contexts"):
        RetrievalResult()
    bare = RetrievalResult(["a", "b"])
    assert (bare.contexts, bare.context_ids, bare.scores, bare.metadata) == (
        ["a", "b"],
        None,
        None,
        None,
    )
    whole = RetrievalResult(["a"], ["1"], [0.5], {"source": "x"})
    assert (whole.context_ids, whole.scores, whole.metadata) == (["1"], [0.5], {"source": "x"})


def test_a_retrieval_result_copies_nothing():
    """Spec 002: use references; the lists are the caller's own, there and back."""
    contexts, ids, scores, metadata = ["a"], ["1"], [0.5], {"t": object()}
    result = RetrievalResult(contexts, ids, scores, metadata)
    assert result.contexts is contexts
    shown = result.to_dict()
    assert all(
        shown[name] is value
        for name, value in zip(shown, (contexts, ids, scores, metadata), strict=True)
    )
    again = RetrievalResult.from_dict(shown)
    assert again == result
    assert again.contexts is contexts


def test_metadata_is_anything():
    """Spec 002: any keys and values, of any type the caller likes."""
    for metadata in ({"tokens": 5, 1: object(), "nested": {"a": [None]}}, ["a"], "text", 7, None):
        assert RetrievalResult(["a"], metadata=metadata).metadata is metadata
        assert GenerationResult("a", metadata=metadata).metadata is metadata


@pytest.mark.parametrize(
    "columns",
    [{"context_ids": ["1"]}, {"scores": [0.1, 0.2, 0.3]}, {"context_ids": []}, {"hits": HITS}],
)
def test_columns_of_another_length_are_refused(columns):
    """Every context has its id and its score, or none has; the error names the column."""
    [name] = columns
    with pytest.raises(ConfigError, match=rf"{name}.*2 contexts"):
        RetrievalResult(["a", "b"], **columns)


def test_one_text_is_no_list_of_contexts():
    """A text would be taken for its letters."""
    with pytest.raises(ConfigError, match="a list of texts"):
        RetrievalResult("abc")


def test_an_unknown_field_is_refused():
    """A misspelt name in a stored result does not get lost."""
    with pytest.raises(ConfigError, match=r"no field 'context'.*Did you mean 'contexts'"):
        RetrievalResult.from_dict({"contexts": ["a"], "context": ["b"]})
    with pytest.raises(ConfigError, match="no field 'answer'"):
        GenerationResult.from_dict({"response": "a", "answer": "b"})


def test_a_result_of_hits_has_the_columns_of_spec_002():
    """Both specs' calling code works on the one object."""
    result = RetrievalResult.from_hits(HITS, {"took": 0.1})
    assert result.contexts == ["green tea", "black tea", "coffee"]
    assert result.context_ids == ["u1", "u2", "u3"]
    assert result.scores == [0.9, 0.5, 0.1]
    assert result.metadata == {"took": 0.1}
    assert [hit.source for hit in result] == ["tea.txt", "tea.txt", "coffee.txt"]
    assert result[0] is HITS[0]


def test_a_result_of_columns_has_the_hits_of_spec_003():
    """Hits made of columns carry what the columns say, and nothing they do not say."""
    first, second = RetrievalResult(["a", "b"], context_ids=["x", "y"], scores=[0.9, 0.1])
    assert (first.id, first.text, first.score) == ("x", "a", 0.9)
    assert (second.id, second.text, second.score) == ("y", "b", 0.1)
    assert (first.source, first.document_id, first.chunk_id, dict(first.metadata)) == (
        "",
        "",
        0,
        {},
    )
    bare = RetrievalResult(["a", "b"])
    assert [hit.text for hit in bare] == ["a", "b"]
    assert len({hit.id for hit in bare}) == 2
    assert all(math.isnan(hit.score) for hit in bare)


@pytest.mark.parametrize(
    "result",
    [RetrievalResult.from_hits(HITS), RetrievalResult(["green tea", "black tea", "coffee"])],
)
def test_a_result_is_a_sequence_of_hits(result):
    """Length, index, slice, iteration, membership and reversal are those of a list."""
    listed = list(result)
    assert isinstance(result, Sequence)
    assert len(result) == len(listed) == 3
    assert result[-1].text == "coffee"
    assert [hit.text for hit in result[1:]] == ["black tea", "coffee"]
    assert [hit.text for hit in result[::-1]] == ["coffee", "black tea", "green tea"]
    assert [hit.text for hit in reversed(result)] == ["coffee", "black tea", "green tea"]
    assert [hit.text for hit in result[5:]] == []
    for beyond in (3, -4):
        with pytest.raises(IndexError):
            result[beyond]


def test_membership_and_truth_of_a_result():
    """A hit is in its result; a result without hits is false."""
    result = RetrievalResult.from_hits(HITS[:2])
    assert HITS[1] in result
    assert HITS[2] not in result
    assert result.index(HITS[1]) == 1
    assert result
    assert not RetrievalResult([])


def test_a_result_of_nodes_keeps_their_order(folder):
    """The nodes of a retriever, as they come, with ids that RAGAS can use."""
    docs = Document(folder({"a.txt": "tea tea tea", "b.txt": "tea and coffee and much more"}))
    nodes = Retriever(docs, "FineChunk", similarity="bm25")("tea")
    result = RetrievalResult.from_nodes(nodes, {"query": "tea"})
    assert result.contexts == [node.text for node in nodes]
    assert result.context_ids == [node.uid for node in nodes]
    assert result.scores == [node.score for node in nodes]
    assert [hit.source for hit in result] == ["a.txt", "b.txt"]


def test_results_compare_by_what_they_hold():
    """Equal columns are equal, whether hits are at hand or not; another score is another result."""
    columns = RetrievalResult(["a"], ["1"], [0.5])
    assert columns == RetrievalResult.from_hits([Hit("1", "a", 0.5, "tea.txt")])
    assert columns != RetrievalResult(["a"], ["1"], [0.6])
    assert columns != RetrievalResult(["a"])


class _Timing(TypedDict):
    seconds: float


@pytest.mark.parametrize("kind", [dict[str, Any], _Timing, int])
def test_the_type_of_metadata_is_the_parameter_of_the_class(kind):
    """Spec 002, generics: a result may be made through its parametrised class."""
    assert RetrievalResult[kind](["a"], metadata=None).contexts == ["a"]
    assert GenerationResult[kind]("a", metadata=None).response == "a"


@pytest.mark.parametrize(
    "result", [RetrievalResult(["a"]), GenerationResult("a")], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize("name", ["metadata", "anything_else"])
def test_a_result_cannot_be_changed(result, name):
    """Results are values: neither a field nor anything else can be set."""
    with pytest.raises((AttributeError, TypeError)):
        setattr(result, name, 1)
    assert result.metadata is None


@pytest.mark.parametrize(
    "result",
    [RetrievalResult.from_hits(HITS), GenerationResult("a", ["a", "b"], 0.5, {"tokens": 3})],
)
def test_a_result_goes_to_another_process(result):
    """Pickling gives an equal result."""
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301  our own bytes


def test_a_generation_result_needs_a_response_only():
    """Spec 002: response is required; multi_responses, confidence and metadata are optional."""
    with pytest.raises(TypeError, match="response"):
        GenerationResult()
    bare = GenerationResult("42")
    assert bare.to_dict() == {
        "response": "42",
        "multi_responses": None,
        "confidence": None,
        "metadata": None,
    }
    whole = GenerationResult("42", ["42", "41"], 0.9, {"tokens": 3})
    assert (whole.multi_responses, whole.confidence, whole.metadata) == (
        ["42", "41"],
        0.9,
        {"tokens": 3},
    )
    assert GenerationResult.from_dict(whole.to_dict()) == whole
    assert GenerationResult.from_dict(whole.to_dict()).multi_responses is whole.multi_responses


@pytest.mark.parametrize("confidence", [-0.01, 1.01, math.nan, math.inf, 90])
def test_a_confidence_lies_between_0_and_1(confidence):
    """Spec 002: 置信度应当在0-1之间."""
    with pytest.raises(ConfigError, match="from 0 to 1"):
        GenerationResult("a", confidence=confidence)


@pytest.mark.parametrize("confidence", [0, 0.0, 1, 1.0, 0.5, None])
def test_both_ends_are_confidences(confidence):
    """0 and 1 belong to the range."""
    assert GenerationResult("a", confidence=confidence).confidence == confidence


@pytest.mark.parametrize("confidence", ["0.9", [0.9]])
def test_a_confidence_is_a_number(confidence):
    """Another type is a ConfigError like another value."""
    with pytest.raises(ConfigError, match="confidence"):
        GenerationResult("a", confidence=confidence)
