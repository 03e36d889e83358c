"""Models in use: in a Document, with a Retriever and a Reranker, against a real local server."""

from __future__ import annotations

import numpy as np
import pytest

from lazyrag import (
    CachedEmbedder,
    Document,
    HttpChatModel,
    HttpEmbedder,
    HttpRerankModel,
    IngestionWarning,
    OnnxEmbedder,
    Reranker,
    Retriever,
)
from lazyrag.errors import ConfigError, EmbeddingError, GenerationError, RetrievalError
from lazyrag.ingest import engine as vectors
from lazyrag.models import ChatOptions, Endpoint, MaxSimModel
from tests.interpreter import python
from tests.model_server import KEY, answered, everything_shown, failed
from tests.shared import shared

pytestmark = pytest.mark.usefixtures("quick_endpoints")

FILES = {"a.txt": "late frost", "b.txt": "early harvest", "c.txt": "green tea"}


RUN_AGAIN = """
import sys
from lazyrag import CachedEmbedder, Document, HttpEmbedder, Retriever
with HttpEmbedder(sys.argv[1], "m") as embedder, CachedEmbedder(embedder, sys.argv[2]) as cached:
    docs = Document(sys.argv[3], embed=cached)
    print([node.path for node in Retriever(docs, "FineChunk")("frost")])
"""


@pytest.mark.slow
def test_a_run_again_with_a_warm_cache_makes_no_call(folder, model, tmp_path):
    """Another process, with the same files, question and cache, asks the endpoint for nothing, and
    answers alike.
    """
    path = folder(FILES)
    with (
        HttpEmbedder(model.url, "m") as embedder,
        CachedEmbedder(embedder, tmp_path / "embeddings.db") as cached,
    ):
        found = [
            node.path for node in Retriever(Document(path, embed=cached), "FineChunk")("frost")
        ]
    calls = len(model.requests)
    assert calls >= 2
    again = python("-c", RUN_AGAIN, model.url, str(tmp_path / "embeddings.db"), str(path))
    assert (again.stdout.strip(), again.stderr) == (str(found), "")
    assert len(model.requests) == calls


def test_texts_of_several_files_share_a_request(folder, model):
    """Three files of one chunk each are one request, and the question is another."""
    with HttpEmbedder(model.url, "m") as embedder:
        Retriever(Document(folder(FILES), embed=embedder), "FineChunk")("frost")
    assert [len(body["input"]) for body in model.bodies] == [3, 1]


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_files_are_embedded_a_bounded_number_of_nodes_at_a_time(folder, monkeypatch, at_once):
    """Whatever the bound, every node of every file gets its own vector, texts that stand in two
    files included.
    """
    monkeypatch.setattr(vectors, "_BATCH_SIZE", at_once)
    docs = Document(
        folder({**FILES, "d.txt": "late frost"}), embed=lambda text: [float(len(text)), 1.0]
    )
    nodes = Retriever(docs, "FineChunk", topk=10)("frost")
    assert sorted((node.path, node.embedding.tolist()) for node in nodes) == sorted(
        (path, [float(len(text)), 1.0]) for path, text in {**FILES, "d.txt": "late frost"}.items()
    )


def test_a_refused_text_fails_its_file_only(folder, model):
    """Also where two are refused and they are the shortest: the files at fault are in the report,
    with the reason.
    """
    path = folder({**FILES, "x.txt": "ab", "y.txt": "cd"})

    def refuses(request):
        short = any(len(text) < 3 for text in request.get_json()["input"])
        return failed(400, "too short") if short else model.embeddings(request.get_json())

    model.faults = [refuses] * 100
    with HttpEmbedder(model.url, "m") as embedder:
        docs = Document(path, embed=embedder)
        with pytest.warns(IngestionWarning, match="2 of 5 files"):
            nodes = Retriever(docs, "FineChunk", topk=10)("frost")
    assert {node.path for node in nodes} == set(FILES)
    assert [one.path for one in docs.last_report.failed] == ["x.txt", "y.txt"]
    assert "too short" in str(docs.last_report.failed[0].error)


def test_documents_of_different_models_are_not_ranked_together(folder, model):
    """Their scores do not compare; the error names both. Models that do not say what they are, are
    let through.
    """
    path = folder(FILES)
    with HttpEmbedder(model.url, "one") as one, HttpEmbedder(model.url, "two") as two:
        with pytest.raises(ConfigError, match=r"different"):
            Retriever([Document(path, embed=one), Document(path, embed=two)], "FineChunk")
        both = [Document(path, embed=one, name="first"), Document(path, embed=one, name="second")]
        assert len(Retriever(both, "FineChunk", topk=6)("frost")) == 6
    bare = [Document(path, embed=lambda text: [1.0]), Document(path, embed=lambda text: [2.0])]
    assert len(Retriever(bare, "FineChunk", topk=6)("frost")) == 6


def test_a_query_is_embedded_as_one(folder, model):
    """The question goes with the query's prefix, documents with theirs."""
    with HttpEmbedder(
        model.url, "m", query_prefix="query: ", document_prefix="passage: "
    ) as embedder:
        Retriever(Document(folder({"a.txt": "green tea"}), embed=embedder), "FineChunk")("frost")
    assert [body["input"] for body in model.bodies] == [["passage: green tea"], ["query: frost"]]


@pytest.mark.slow
@pytest.mark.shared
def test_late_interaction_reranks_what_was_found(folder):
    """With the model that embeds; a file that holds nothing the model reads comes last, and fails
    nothing.
    """
    embedder = OnnxEmbedder(shared("models", "all-minilm-l6-v2"))
    docs = Document(folder({**FILES, "d.txt": "\u200b"}))
    nodes = docs.get_nodes("FineChunk")
    ranked = Reranker("ModuleReranker", model=MaxSimModel(embedder))(
        nodes, query="cold spring nights harm the buds"
    )
    assert [node.path for node in ranked][:1] == ["a.txt"]
    assert (ranked[-1].path, ranked[-1].score) == ("d.txt", -1.0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", ["", " ", None, 7])
@pytest.mark.parametrize("cached", [False, True])
def test_blank_texts_reach_no_endpoint_and_no_cache(model, tmp_path, text, cached):
    """They fail alone; the text beside them is embedded."""
    with HttpEmbedder(model.url, "m", document_prefix="passage: ") as remote:
        embedder = CachedEmbedder(remote, tmp_path / "e.db") if cached else remote
        [first, second] = [None, None]
        for batch in embedder.embed_batches([text, "tea"]):
            for position, result in zip(batch.positions, batch.results, strict=True):
                first, second = (result, second) if position == 0 else (first, result)
        assert isinstance(first, EmbeddingError)
        assert np.asarray(second).tolist() == [float(len("passage: tea")), 1.0]
        assert [body["input"] for body in model.bodies] == [["passage: tea"]]
        if cached:
            assert len(embedder.cache) == 1
            embedder.close()


@pytest.mark.parametrize("texts", ["tea", None, 5])
def test_one_text_is_no_list_of_letters(model, tmp_path, texts):
    """Every embedder refuses it, and nothing is asked or stored."""
    with (
        HttpEmbedder(model.url, "m") as remote,
        CachedEmbedder(remote, tmp_path / "e.db") as cached,
    ):
        for embedder in (remote, cached):
            with pytest.raises(ConfigError, match=r"must be a list of strings"):
                embedder.embed(texts)
        assert len(cached.cache) == 0
    assert model.requests == []


class TestSecrets:
    """Nothing that a server repeats shows a key or a header."""

    def shown(self, call, error):
        """All that can be seen of the error that a call raises."""
        with pytest.raises(error) as caught:
            call()
        return everything_shown(caught.value)

    @pytest.mark.sample(3)
    @pytest.mark.parametrize(
        "repeats",
        [
            answered({"message": f"bad key {KEY}"}),
            answered({"data": [{"index": 0, "embedding": KEY}]}),
            answered({"choices": [{"message": {"content": None, "refusal": f"your key {KEY}"}}]}),
            answered({"results": [KEY]}),
            failed(307, Location=f"http://elsewhere/{KEY}"),
            failed(400, f"bad key {KEY}"),
        ],
    )
    def test_in_an_answer_of_any_shape(self, model, repeats):
        """Of embeddings, chat and reranking: three stars stand in its place."""
        calls = (
            (
                lambda: HttpEmbedder(model.url, "m", api_key=KEY, retries=0).embed(["tea"]),
                EmbeddingError,
            ),
            (
                lambda: HttpChatModel(model.url, "m", api_key=KEY, retries=0).chat("tea?"),
                GenerationError,
            ),
            (
                lambda: HttpRerankModel(model.url, "m", api_key=KEY, retries=0)("tea?", ["tea"]),
                RetrievalError,
            ),
        )
        for call, error in calls:
            model.faults = [repeats] * 4
            assert KEY not in self.shown(call, error)

    def test_every_part_of_a_header(self, model):
        """A cookie of several values, a key of two words, and one of three letters."""
        headers = {"Cookie": "sid=topsecretvalue; theme=dark", "X-Key": "my secretkey99"}
        echo = failed(400, "bad: sid=topsecretvalue; theme=dark, my secretkey99, Bearer abc")
        model.faults = [echo] * 4
        told = self.shown(
            lambda: HttpEmbedder(model.url, "m", api_key="abc", headers=headers, retries=0).embed(
                ["tea"]
            ),
            EmbeddingError,
        )
        assert not any(
            secret in told.split("bad:")[1][:80] for secret in ("topsecret", "secretkey99", "abc")
        )


def test_what_is_used_up_is_asked_for_once(model):
    """Out of quota, each further request would be refused alike."""
    body = {"error": {"message": "You have no credit left.", "code": "insufficient_quota"}}
    model.faults = [answered(body, 429)] * 100
    embedder = HttpEmbedder(model.url, "m", batch_size=1, concurrency=1)
    with embedder, pytest.raises(EmbeddingError, match="no credit left"):
        embedder.embed([f"text {number}" for number in range(50)])
    assert len(model.requests) == 1


def test_a_pause_that_the_server_asks_for_holds_for_all_calls(model):
    """No other call of the endpoint starts before it is over."""
    model.faults = [failed(429, "slow down", Retry_After="1")]
    with Endpoint(model.url, concurrency=1) as endpoint:
        embedder = HttpEmbedder(endpoint, "m", batch_size=1)
        assert embedder.embed(["a", "b", "c"]).shape == (3, 2)
    first, *others = model.times
    assert len(others) == 3
    assert min(others) - first >= 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda url: HttpChatModel(url, "m", options={"temperature": 0}),
        lambda url: HttpChatModel(url, "m").chat("tea?", {"temperature": 0}),
        lambda url: ChatOptions(temperature="0"),
        lambda url: ChatOptions(extra=["a"]),
        lambda url: ChatOptions(seed="a"),
        lambda url: ChatOptions(logprobs="yes"),
        lambda url: HttpEmbedder(url, "m", headers="Authorization: x"),
        lambda url: HttpEmbedder(url, "m", normalised="no"),
        lambda url: HttpEmbedder(url, "m").embed(["a"], "doc"),
        lambda url: HttpEmbedder("http://[v1.x]/v1", "m"),
        lambda url: HttpRerankModel(url, "m")("tea?", None),
    ],
)
def test_ordinary_mistakes_are_config_errors(model, make):
    """Before anything is sent, in a sentence that says what to give."""
    with pytest.raises(ConfigError):
        make(model.url)
    assert model.requests == []
