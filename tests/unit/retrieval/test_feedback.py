"""Queries that are moved towards nodes, and retrievers that do so by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, HybridRetriever, Retriever
from lazyrag.errors import ConfigError
from lazyrag.retrieval import FeedbackRetriever
from lazyrag.retrieval.similarity import shift_query_vector

WORDS = "tea leaf garden kettle steam cup water spring harvest roast green black".split()


class Embedder:
    """A bag of words in numbers, which counts how often it is asked for a query."""

    identity = "bag"
    dimension = None
    max_tokens = None
    normalised = False

    def __init__(self) -> None:
        self.queries: list[str] = []

    def embed(self, texts, input_type="document"):
        """One number for each word."""
        if input_type == "query":
            self.queries += texts
        return [[0.1 + text.split().count(word) for word in WORDS] for text in texts]


@pytest.fixture
def embedder():
    """A new one."""
    return Embedder()


@pytest.fixture
def docs(embedder):
    """Sixty seeded texts."""
    chance = np.random.default_rng(0)
    docs = Document(embed=embedder)
    docs.add_texts({f"{at:02d}": " ".join(chance.choice(WORDS, 1 + at % 9)) for at in range(60)})
    return docs


def told(nodes):
    """What a result comes down to."""
    return [(node.uid, node.score) for node in nodes]


def by_words_alone(docs):
    """A hybrid without vectors."""
    return HybridRetriever(
        Retriever(docs, "FineChunk", "bm25"), Retriever(docs, "FineChunk", "bm25_chinese")
    )


def by_hand(embedder, docs, query, nodes, weight):
    """The ranking by cosine of the moved query, straight from the formula."""
    every = list(docs.get_nodes("FineChunk"))
    vectors = np.array(embedder.embed([node.text for node in every]))
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    first = np.array(embedder.embed([node.text for node in nodes]))
    mean = (first / np.linalg.norm(first, axis=1)[:, None]).mean(axis=0)
    plain = np.array(embedder.embed([query])[0])
    target = plain / np.linalg.norm(plain) + weight * mean / np.linalg.norm(mean)
    scores = vectors @ target / np.linalg.norm(target)
    return {node.uid: score for node, score in zip(every, scores, strict=True)}


@pytest.mark.slow
def test_a_moved_query_ranks_by_the_formula(docs, embedder):
    """Scores are the cosines with the moved vector, as computed by hand; the best node is the best
    by hand.
    """
    retriever = Retriever(docs, "FineChunk", topk=60)
    chosen = retriever("tea kettle", topk=3)
    expected = by_hand(embedder, docs, "tea kettle", chosen, 0.7)
    found = retriever.with_feedback(chosen)("tea kettle")
    assert {node.uid: node.score for node in found} == pytest.approx(expected, abs=1e-6)
    assert told(found) != told(retriever("tea kettle"))


def test_the_retriever_itself_stays_as_it_was(docs):
    """Moving makes another retriever; the one that it was made of answers as before."""
    retriever = Retriever(docs, "FineChunk")
    before = told(retriever("green tea"))
    retriever.with_feedback(retriever("water", topk=2))("green tea")
    assert told(retriever("green tea")) == before


@pytest.mark.parametrize("weight", [0, 0.0])
def test_a_weight_of_nothing_moves_nothing(docs, weight):
    """With weight 0 the result is the retriever's own."""
    retriever = Retriever(docs, "FineChunk")
    assert told(retriever.with_feedback(retriever("water"), weight)("tea")) == told(
        retriever("tea")
    )


@pytest.mark.slow
def test_nodes_of_other_documents_move_nothing(docs):
    """Another Document's vectors may be of another model: they are left out."""
    other = Document(embed=lambda text: [1.0, float(len(text))])
    other.add_texts({"a": "tea"})
    strangers = Retriever(other, "FineChunk")("tea")
    retriever = Retriever(docs, "FineChunk")
    assert strangers
    assert told(retriever.with_feedback(strangers)("tea")) == told(retriever("tea"))


def test_documents_that_embed_otherwise_do_not_move_each_other():
    """Bare callables are other models: each query vector is moved towards nodes of its own Document
    alone.
    """
    wide = Document(embed=lambda text: [1.0, float(len(text)), 2.0])
    wide.add_texts({"a": "tea", "b": "green tea"})
    slim = Document(embed=lambda text: [float(len(text)), 1.0])
    slim.add_texts({"c": "black", "d": "oolong tea"})
    alone = Retriever(wide, "FineChunk")
    expected = dict(told(alone.with_feedback(alone("kettle", topk=1), 1)("kettle")))
    both = Retriever([wide, slim], "FineChunk", topk=4)
    moved_by_both = both.with_feedback(
        [*alone("kettle", topk=1), *Retriever(slim, "FineChunk")("kettle", topk=1)], 1
    )
    assert {
        uid: score for uid, score in told(moved_by_both("kettle")) if uid in expected
    } == pytest.approx(expected)


def test_words_are_asked_for_as_they_are(docs):
    """A retriever by words has no vector to move."""
    retriever = Retriever(docs, "FineChunk", "bm25")
    assert told(retriever.with_feedback(retriever("water"))("tea")) == told(retriever("tea"))


def test_feedback_is_asking_twice(docs):
    """FeedbackRetriever gives what one gets by moving the query towards the first nodes by hand."""
    hybrid = HybridRetriever.over(docs, "FineChunk", topk=10)
    first = hybrid("green tea", topk=2)
    expected = told(hybrid.with_feedback(first, 0.7)("green tea", topk=5))
    assert told(FeedbackRetriever(hybrid, nodes=2, weight=0.7)("green tea", topk=5)) == expected
    assert expected != told(hybrid("green tea", topk=5))


@pytest.mark.slow
def test_the_query_is_embedded_once(docs, embedder):
    """The second time takes the vector of the first time, also in hybrids; the next question is
    embedded anew.
    """
    retriever = FeedbackRetriever(HybridRetriever.over(docs, "FineChunk"))
    retriever("green tea")
    assert embedder.queries == ["green tea"]
    retriever("green tea")
    assert embedder.queries == ["green tea", "green tea"]


def test_filters_hold_both_times(docs):
    """Neither what is found nor what the query is moved towards is outside of the filter."""
    every = [node.global_metadata["file_name"] for node in docs.get_nodes("FineChunk")]
    allowed = every[::3]
    retriever = FeedbackRetriever(Retriever(docs, "FineChunk"), nodes=3)
    stage = retriever.trace("green tea", filters={"file_name": allowed})
    names = {node.uid: node.global_metadata["file_name"] for node in docs.get_nodes("FineChunk")}
    assert stage.nodes
    assert {names[node.uid] for node in stage.nodes} <= set(allowed)
    assert {names[uid] for uid in stage.settings["feedback"]} <= set(allowed)


@pytest.mark.slow
def test_explain_tells_the_nodes(docs):
    """The stage says towards which nodes the query was moved; the nodes are those of a call."""
    retriever = FeedbackRetriever(HybridRetriever.over(docs, "FineChunk"), nodes=2)
    stage = retriever.trace("green tea")
    assert stage.name == "feedback"
    assert len(stage.settings["feedback"]) == 2
    assert told(stage.nodes) == told(retriever("green tea"))
    explanation = retriever.explain("green tea")
    assert [hit.uid for hit in explanation] == [node.uid for node in stage.nodes]
    lost = next(
        node
        for node in docs.get_nodes("FineChunk")
        if node.uid not in {one.uid for one in stage.nodes}
    )
    assert retriever.why_not(lost.uid, "green tea").stage != "result"


@pytest.mark.parametrize("query", ["", "  "])
def test_a_blank_query_finds_nothing(docs, query):
    """As everywhere."""
    retriever = FeedbackRetriever(Retriever(docs, "FineChunk"))
    assert retriever(query) == []
    assert retriever.trace(query).nodes == ()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda docs: FeedbackRetriever(len), "cannot be called"),
        (lambda docs: FeedbackRetriever(Retriever), "retriever must be"),
        (
            lambda docs: FeedbackRetriever(Retriever(docs, "FineChunk", "bm25")),
            "so that queries can be moved",
        ),
        (lambda docs: FeedbackRetriever(by_words_alone(docs)), "so that queries can be moved"),
        (
            lambda docs: FeedbackRetriever(Retriever(docs, "FineChunk", target="CoarseChunk")),
            "without target=",
        ),
        (lambda docs: FeedbackRetriever(Retriever(docs, "FineChunk"), nodes=0), "nodes"),
        (lambda docs: FeedbackRetriever(Retriever(docs, "FineChunk"), weight=-1), "weight"),
        (
            lambda docs: FeedbackRetriever(Retriever(docs, "FineChunk"), weight=float("nan")),
            "weight",
        ),
        (
            lambda docs: FeedbackRetriever(Retriever(docs, "FineChunk", output_format="dict")),
            "output_format",
        ),
        (lambda docs: Retriever(docs, "FineChunk").with_feedback("tea"), "list of nodes"),
        (
            lambda docs: Retriever(docs, "FineChunk").with_feedback(docs.get_nodes("FineChunk")[0]),
            "list of nodes",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(docs, make, said):
    """The message names what was wrong."""
    with pytest.raises(ConfigError, match=said):
        make(docs)


_numbers = st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3).map(
    lambda row: np.array(row, np.float32)
)


@given(_numbers, st.lists(_numbers, max_size=4), st.floats(0, 5))
def test_moving_keeps_the_length_and_goes_towards(vector, with_feedback, weight):
    """A moved vector is finite and as long as before; its cosine with the nodes' mean direction is
    no smaller.
    """
    found = shift_query_vector(vector, with_feedback, weight)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(vector), rel=1e-5, abs=1e-30)
    units = [
        one / length for one in with_feedback if (length := np.linalg.norm(one.astype(np.float64)))
    ]
    mean = np.sum(units, axis=0) if units else np.zeros(3)
    if np.linalg.norm(mean) > 1e-3 and np.linalg.norm(vector) > 1e-3:
        assert found @ mean >= vector @ mean - 1e-3 * np.linalg.norm(vector)
