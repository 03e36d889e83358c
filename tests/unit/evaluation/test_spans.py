"""Measures on source spans: what they are, beside counting characters one by one, and where spans
come from.
"""

from __future__ import annotations

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, Document, Retriever
from lazyrag.errors import ConfigError
from lazyrag.evaluation import (
    SourceSpan,
    char_f1,
    char_iou,
    char_precision,
    char_recall,
    evaluate,
    measure,
    source_span,
    span_precision,
    span_recall,
    span_reciprocal_rank,
    span_success,
)

SPANS = st.builds(
    lambda path, start, length: SourceSpan(path, start, start + length),
    st.sampled_from("ab"),
    st.integers(0, 30),
    st.integers(1, 12),
)
RUNS = st.lists(SPANS, max_size=6)
LABELS = st.dictionaries(SPANS, st.sampled_from([0, 1, 2]), max_size=4)


def characters(spans):
    """Every character of spans, one by one."""
    return {(span.path, at) for span in spans for at in range(span.start, span.end)}


@given(RUNS, LABELS, st.sampled_from([None, 1, 3, 10]))
def test_measures_by_characters_are_those_of_sets(found, grades, k):
    """However spans overlap, the values are those of the sets of characters, counted one by one."""
    f = characters(found if k is None else found[:k])
    r = characters(span for span, grade in grades.items() if grade >= 1)
    assert char_recall(found, grades, k) == (len(f & r) / len(r) if r else 0.0)
    assert char_precision(found, grades, k) == (len(f & r) / len(f) if f else 0.0)
    assert char_iou(found, grades, k) == (len(f & r) / len(f | r) if f | r else 0.0)
    assert char_f1(found, grades, k) == (2 * len(f & r) / (len(f) + len(r)) if f or r else 0.0)


@given(RUNS, LABELS, st.integers(1, 8))
def test_measures_by_hits_are_those_of_their_definition(found, grades, k):
    """A hit meets a label if they share half of the shorter one; recall counts labels, the others
    hits.
    """

    def meets(one, other):
        return len(characters([one]) & characters([other])) >= 0.5 * min(one.length, other.length)

    labels = [span for span, grade in grades.items() if grade >= 1]
    right = [any(meets(one, label) for label in labels) for one in found[:k]]
    met = [any(meets(one, label) for one in found[:k]) for label in labels]
    assert span_precision(found, grades, k) == sum(right) / k
    assert span_recall(found, grades, k) == (sum(met) / len(met) if met else 0.0)
    assert span_success(found, grades, k) == float(any(right))
    assert span_reciprocal_rank(found, grades, k) == (
        1 / (right.index(True) + 1) if any(right) else 0.0
    )


@given(st.permutations(range(6)), st.sets(st.integers(0, 7), min_size=1))
def test_where_labels_are_chunks_spans_measure_what_ids_do(order, relevant):
    """Labels that are the very chunks, apart from each other: the values are those of ids, and of
    ir_measures.
    """
    chunks = [SourceSpan("a", 10 * number, 10 * number + 10) for number in range(8)]
    by_span = {"q": [(chunks[number], 1.0 - rank / 10) for rank, number in enumerate(order)]}
    by_id = {"q": [(str(number), 1.0 - rank / 10) for rank, number in enumerate(order)]}
    names = ["recall@3", "precision@3", "success@3", "MRR@3"]
    spans = evaluate(
        by_span, {"q": {chunks[one]: 1 for one in relevant}}, [f"span_{name}" for name in names]
    ).means
    ids = evaluate(by_id, {"q": {str(one): 1 for one in relevant}}, names).means
    theirs = [ir_measures.R @ 3, ir_measures.P @ 3, ir_measures.Success @ 3, ir_measures.RR @ 3]
    oracle = ir_measures.calc_aggregate(
        theirs, {"q": {str(one): 1 for one in relevant}}, {"q": dict(by_id["q"])}
    )
    assert (
        list(spans.values()) == list(ids.values()) == pytest.approx([oracle[one] for one in theirs])
    )


def test_labels_survive_another_cutting():
    """The same label is found by chunks of any size; a uid of one size is unknown to the others."""
    text = " ".join(f"Step {number}: wither the leaves for {number} hours." for number in range(40))
    docs = Document()
    docs.add_texts({"tea.txt": text, "other.txt": "Nothing of leaves."})
    start = text.index("Step 17:")
    label = {SourceSpan("tea.txt", start, text.index("Step 18:")): 1}
    uids = []
    for name, size in (("small", 20), ("large", 120)):
        docs.create_node_group(name, transform="SentenceSplitter", chunk_size=size, chunk_overlap=0)
        nodes = Retriever(docs, name, "bm25", topk=5)("Step 17")
        run = {"q": [(source_span(node), node.score) for node in nodes]}
        assert evaluate(run, {"q": label}, ["span_success@1", "char_recall@5"]).means == {
            "span_success@1": 1.0,
            "char_recall@5": 1.0,
        }
        uids.append({node.uid for node in nodes})
    assert not uids[0] & uids[1]


def test_a_node_comes_from_where_its_span_counts_in_the_document():
    """Of every group below the root: the document's text there is the node's text."""
    docs = Document()
    docs.add_texts({"tea.txt": "Pick it. Wither it. Roll it. Dry it.\n\n" * 30})
    docs.create_node_group("step", transform="SentenceWindow", parent="CoarseChunk")
    [root] = docs.get_nodes()
    nodes = docs.get_nodes("step")
    assert len(nodes) > 20
    for node in nodes:
        span = source_span(node)
        assert (span.path, root.text[span.start : span.end]) == ("tea.txt", node.text)
    assert source_span(root) == SourceSpan("tea.txt", 0, len(root.text))


def test_what_was_rewritten_comes_from_the_nearest_ancestor_that_was_not():
    """A summary of a sentence stands for the sentence; one of the whole document, and what is cut
    of it, for that.
    """
    docs = Document()
    docs.add_texts({"tea.txt": "Pick it. Dry it."})
    docs.create_node_group("step", transform="SentenceWindow")
    docs.create_node_group("shout", transform=lambda text: text.upper() + "!", parent="step")
    docs.create_node_group("digest", transform=lambda text: "All of it. In two sentences.")
    docs.create_node_group("digested", transform="SentenceWindow", parent="digest")
    assert [source_span(node) for node in docs.get_nodes("shout")] == [
        SourceSpan("tea.txt", 0, 9),
        SourceSpan("tea.txt", 9, 16),
    ]
    assert {source_span(node) for node in docs.get_nodes("digested")} == {
        SourceSpan("tea.txt", 0, 16)
    }


def test_a_node_of_no_document_comes_from_nowhere():
    """It is refused: no path would be right."""
    with pytest.raises(ConfigError, match="belongs to no Document"):
        source_span(DocNode(text="tea"))


@pytest.mark.parametrize(
    ("path", "start", "end"), [("", 0, 1), ("a", -1, 1), ("a", 3, 3), ("a", 1.5, 3), (None, 0, 1)]
)
def test_a_span_that_is_none_is_refused(path, start, end):
    """Empty spans, spans of nothing, and numbers that are not whole."""
    with pytest.raises(ConfigError):
        SourceSpan(path, start, end)


def test_spans_and_ids_do_not_mix():
    """A measure of spans that gets uids says what to give."""
    with pytest.raises(ConfigError, match=r"must be SourceSpan\(path, start, end\); got 'n1'"):
        evaluate({"q": [("n1", 1.0)]}, {"q": {SourceSpan("a", 0, 1): 1}}, ["char_recall"])
    with pytest.raises(ConfigError, match="SourceSpan"):
        evaluate({"q": []}, {"q": {"n1": 1}}, ["span_MRR"])


def test_spans_are_measured_by_name():
    """Names in any case; precision needs its k."""
    assert measure("CHAR_IOU@5").name == "char_iou@5"
    assert measure("span_mrr").name == "span_MRR"
    with pytest.raises(ConfigError, match="needs an integer"):
        measure("span_precision")
