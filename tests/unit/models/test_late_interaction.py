"""Late interaction, beside a plain double loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, EmbeddingCache, OnnxEmbedder, Reranker
from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.models import MaxSimModel, RerankModel
from lazyrag.models.onnx import models as late_interaction
from lazyrag.models.onnx.models import max_sim, max_sims
from tests.shared import read_squad, shared
from tests.tiny_models import TABLE, ids_of, write_embedder

_lengths = st.lists(st.integers(1, 9), max_size=12)


def by_loops(query: np.ndarray, document: np.ndarray) -> float:
    """The definition: for each token of the query its best cosine, added up."""
    total = 0.0
    for asked in query.astype(float):
        total += max(
            asked @ told / np.linalg.norm(asked) / np.linalg.norm(told)
            for told in document.astype(float)
        )
    return total


@given(st.integers(1, 6), _lengths, st.integers(0, 1000))
def test_all_documents_at_once_are_each_one_alone(tokens, lengths, seed):
    """Any numbers of tokens, rows of any length: what the double loop says."""
    chance = np.random.default_rng(seed)
    query = chance.normal(size=(tokens, 8)).astype(np.float32)
    documents = [chance.normal(size=(length, 8)).astype(np.float32) for length in lengths]
    found = max_sims(query, documents)
    assert found.shape == (len(documents),)
    np.testing.assert_allclose(
        found, [by_loops(query, document) for document in documents], atol=1e-5
    )
    assert found.tolist() == [max_sim(query, document) for document in documents]


@pytest.mark.parametrize("size", [1, 24, 72, 10_000])
def test_products_of_any_size_give_the_same(monkeypatch, size):
    """A document is read in pieces: at least a row, 1, 3 or all of them here."""
    chance = np.random.default_rng(1)
    query = chance.normal(size=(3, 8)).astype(np.float32)
    documents = [
        chance.normal(size=(length, 8)).astype(np.float32) for length in (5, 1, 2, 9, 1, 1, 4)
    ]
    expected = max_sims(query, documents)
    monkeypatch.setattr(late_interaction, "_PRODUCT", size)
    np.testing.assert_allclose(max_sims(query, documents), expected, atol=1e-6)


def test_a_token_without_length_is_like_nothing():
    """Its cosine is 0, not nan."""
    assert max_sim(np.zeros((1, 2), np.float32), np.eye(2, dtype=np.float32)) == 0.0
    assert max_sim(np.eye(2, dtype=np.float32), np.zeros((1, 2), np.float32)) == 0.0


@pytest.mark.parametrize(
    ("query", "document", "message"),
    [
        ((2,), (1, 2), r"The query has the shape \(2,\); give \(tokens, dim\)"),
        ((0, 2), (1, 2), "at least one token"),
        ((1, 2), (0, 2), r"A document has the shape \(0, 2\); give \(tokens, 2\)"),
        ((1, 2), (1, 3), r"A document has the shape \(1, 3\)"),
    ],
)
def test_other_shapes_are_refused(query, document, message):
    """With those that are allowed."""
    with pytest.raises(ConfigError, match=message):
        max_sim(np.ones(query, np.float32), np.ones(document, np.float32))


@pytest.fixture
def tiny(tmp_path) -> MaxSimModel:
    """Over a model whose token vectors are known."""
    return MaxSimModel(
        OnnxEmbedder(write_embedder(tmp_path / "tiny", pooling={"pooling_mode": "mean"}))
    )


DOCUMENTS = ["tea", "late frost", "a cup of green tea", "", "green tea " * 60]


def test_scores_are_means_of_best_cosines(tiny):
    """Of the query's tokens, in [-1, 1], best first; a blank document has the lowest."""
    query = TABLE[ids_of("green tea")]
    expected = [by_loops(query, TABLE[ids_of(text)]) / 2 if text else -1.0 for text in DOCUMENTS]
    ranked = tiny("green tea", DOCUMENTS)
    assert dict(ranked) == pytest.approx(dict(enumerate(expected)), abs=1e-6)
    assert [index for index, _ in ranked[:2]] == [2, 4]
    assert ranked[-1] == (3, -1.0)
    assert all(-1.0 <= score <= 1.0 for _, score in ranked)
    assert tiny("green tea", DOCUMENTS, top_n=1) == ranked[:1]
    assert tiny("green tea", []) == []


def test_equal_documents_tie_by_index(tiny):
    """To the last bit, wherever they stand."""
    ranked = tiny("green tea", ["late frost", "tea", "late frost", "tea"])
    assert [index for index, _ in ranked] == [1, 3, 0, 2]
    assert ranked[0][1] == ranked[1][1]


def test_it_is_a_rerank_model(tiny):
    """It goes into a Reranker, and says what it depends on."""
    assert isinstance(tiny, RerankModel)
    assert tiny.identity == f"maxsim:{tiny.embedder.identity}"
    nodes = [DocNode(text=text) for text in DOCUMENTS[:3]]
    [best] = Reranker("ModuleReranker", model=tiny, topk=1)(nodes, query="green tea")
    assert best.text == DOCUMENTS[2]


@pytest.mark.parametrize("query", ["", "  ", None])
def test_a_blank_query_is_refused(tiny, query):
    """It has no tokens to compare."""
    with pytest.raises(ConfigError, match="not blank"):
        tiny(query, ["tea"])


def test_an_embedder_that_fails_is_a_retrieval_error(tmp_path):
    """A text that it refuses is named."""
    folder = write_embedder(tmp_path / "m", pooling={"pooling_mode": "mean"}, max_tokens=6)
    model = MaxSimModel(OnnxEmbedder(folder, too_long="raise"))
    with pytest.raises(RetrievalError, match=r"'a b c d e'.*has 5 tokens"):
        model("tea", ["a b c d e"])


def test_an_embedder_must_give_token_vectors():
    """A callable that gives one vector for a text cannot."""
    with pytest.raises(ConfigError, match="an embedder with token_embeddings"):
        MaxSimModel(len)


def test_token_vectors_are_stored_with_the_vectors_of_texts(tmp_path, monkeypatch):
    """Another program reranks what the first one embedded: the model reads no passage again, scores
    hardly differ.
    """
    folder = write_embedder(tmp_path / "m", pooling={"pooling_mode": "mean"})
    plain = OnnxEmbedder(folder)
    storing = OnnxEmbedder(folder, token_cache=tmp_path / "tokens.db")
    texts = [text for text in DOCUMENTS if text]
    assert storing.identity == plain.identity
    assert np.array_equal(storing.embed(texts), plain.embed(texts))
    computed = dict(MaxSimModel(plain)("green tea", texts))
    reading = OnnxEmbedder(folder, token_cache=tmp_path / "tokens.db")
    rows, run = [], reading._model.run
    monkeypatch.setattr(
        reading._model, "run", lambda some, output: rows.extend(some) or run(some, output)
    )
    stored = dict(MaxSimModel(reading, cache_bytes=0)("green tea", texts))
    assert len(rows) == 1  # the query
    assert stored == pytest.approx(computed, abs=0.01)
    assert dict(
        MaxSimModel(reading, cache_bytes=0)("green tea", ["new frost", *texts])
    ) == pytest.approx(
        {0: dict(MaxSimModel(plain)("green tea", ["new frost"]))[0]}
        | {at + 1: score for at, score in stored.items()},
        abs=0.01,
    )
    assert len(rows) == 3  # the query again, and the new passage
    assert [len(one) for one in reading.token_embeddings(["new frost"])] == [2]
    assert len(rows) == 3


def test_stored_token_vectors_belong_to_their_model(tmp_path):
    """Another model in the same file has its own; rows have length 1, whether they were computed or
    read.
    """
    cache = EmbeddingCache(tmp_path / "tokens.db")
    folder = write_embedder(tmp_path / "m", pooling={"pooling_mode": "mean"})
    one, two = (
        OnnxEmbedder(folder, document_prefix=prefix, token_cache=cache) for prefix in ("", "late ")
    )
    first = one.token_embeddings(["green tea"])[0]
    assert np.array_equal(first, one.token_embeddings(["green tea"])[0])
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)
    before = len(cache)
    two.embed(["green tea"])
    assert (before, len(cache)) == (1, 2)


@pytest.mark.shared
@pytest.mark.slow
def test_it_finds_more_than_single_vectors_do():
    """On 120 questions of XQuAD and 30 paragraphs, more of the right ones come first than by
    cosine.
    """
    embedder = OnnxEmbedder(shared("models", "all-minilm-l6-v2"))
    paragraphs, questions = read_squad(shared("data", "retrieval", "xquad", "xquad.en.json"))
    paragraphs = paragraphs[:30]
    questions = [(question, right) for question, right in questions if right < 30][:120]
    asked = [question for question, _ in questions]
    right = np.array([number for _, number in questions])
    by_vector = embedder.embed(asked, "query") @ embedder.embed(paragraphs).T
    told = embedder.token_embeddings(paragraphs)
    by_token = np.array(
        [max_sims(tokens, told) for tokens in embedder.token_embeddings(asked, "query")]
    )
    hits_by_vector = (by_vector.argmax(axis=1) == right).mean()
    hits_by_token = (by_token.argmax(axis=1) == right).mean()
    assert hits_by_token > hits_by_vector > 0.8
