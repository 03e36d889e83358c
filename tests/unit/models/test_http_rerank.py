"""Reranking by a real local server."""

from __future__ import annotations

import asyncio

import pytest

from lazyrag import DocNode, HttpRerankModel, Reranker
from lazyrag.errors import AnswerWarning, ConfigError, RetrievalError, UnknownKeywordError
from lazyrag.models import RerankModel
from tests.model_server import KEY, PATIENCE_S, RawServer, answered, everything_shown, failed

pytestmark = pytest.mark.usefixtures("quick_endpoints")

TEAS = ["green", "iced tea with milk", "black tea", "oolong tea"]


def scored(*scores):
    """An answer with these scores, in this order."""
    return answered(
        {"results": [{"index": index, "relevance_score": score} for index, score in scores]}
    )


def test_it_is_a_rerank_model():
    """With URL and model as identity, and no secret in how it shows itself."""
    one = HttpRerankModel("http://localhost:1/v1/", "bge", api_key=KEY)
    assert isinstance(one, RerankModel)
    assert one.identity == "http:http://localhost:1/v1:bge"
    assert KEY not in f"{one!r} {vars(one)}"


def test_documents_come_best_first(model):
    """What is sent is the common shape; what comes back are pairs of index and score."""
    with HttpRerankModel(model.url, "m", api_key=KEY) as one:
        assert one("tea?", TEAS) == [(1, 18.0), (3, 10.0), (2, 9.0), (0, 5.0)]
        assert one("tea?", TEAS, top_n=2) == [(1, 18.0), (3, 10.0)]
        assert one("tea?", TEAS, top_n=9) == one("tea?", TEAS)
    assert model.bodies[1] == {"model": "m", "query": "tea?", "documents": TEAS, "top_n": 2}


def test_it_reranks_in_any_event_loop(model):
    """Several at once."""

    async def several():
        with HttpRerankModel(model.url, "m") as one:
            return await asyncio.gather(
                one.arerank("tea?", TEAS, 1), one.arerank("tea?", TEAS[2:], 1)
            )

    assert asyncio.run(several()) == [[(1, 18.0)], [(1, 10.0)]]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4])
def test_many_documents_go_in_several_requests(model, batch_size):
    """The result is as if they had gone in one."""
    with HttpRerankModel(model.url, "m", batch_size=batch_size) as one:
        assert one("tea?", TEAS, top_n=3) == [(1, 18.0), (3, 10.0), (2, 9.0)]
    assert len(model.requests) == -(-len(TEAS) // batch_size)


def test_ties_come_by_index_and_order_does_not_count(model):
    """However the server orders them."""
    model.faults = [scored((3, 1), (0, 0.5), (1, 1.0), (2, 0.5))]
    with HttpRerankModel(model.url, "m") as one:
        assert one("tea?", TEAS) == [(1, 1.0), (3, 1.0), (0, 0.5), (2, 0.5)]


def test_a_server_that_ignores_top_n_is_cut(model):
    """More than was asked for is no harm."""
    model.faults = [scored((3, 1.0), (0, 0.5), (1, 2.0), (2, 0.5))]
    with HttpRerankModel(model.url, "m") as one:
        assert one("tea?", TEAS, top_n=1) == [(1, 2.0)]


def test_no_documents_need_no_call(model):
    """Nothing is nothing."""
    with HttpRerankModel(model.url, "m") as one:
        assert one("tea?", []) == []
    assert model.requests == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (scored(), "holds 0 results"),
        (scored((0, 1.0), (0, 0.5)), "repeated"),
        (scored((0, 1.0), (2, 0.5)), "out of range"),
        (scored((0, 1.0), (-1, 0.5)), "out of range"),
        (scored((0, 1.0), (1, float("nan"))), "not finite"),
        (scored((0, 1.0), (1, float("inf"))), "not finite"),
        (scored((0, 1.0), (1, None)), "must be {'results'"),
        (scored((0, 1.0), (True, 1.0)), "must be {'results'"),
        (scored((0, 1.0), (1, "0.5")), "must be {'results'"),
        (answered({"results": "none"}), "must be {'results'"),
        (answered([{"index": 0, "score": 1.0}]), "must be {'results'"),
        (failed(404, "no such model"), "Check base_url"),
    ],
    ids=repr,
)
def test_an_answer_that_is_no_ranking_is_an_error(model, answer, told):
    """The error names model, URL and what is wrong."""
    model.faults = [answer] * 9
    with (
        HttpRerankModel(model.url, "m", api_key=KEY) as one,
        pytest.raises(RetrievalError) as caught,
    ):
        one("tea?", TEAS[:2])
    assert told in str(caught.value)
    assert f"The rerank model 'm' at {model.url}" in str(caught.value)
    assert KEY not in everything_shown(caught.value)


@pytest.mark.parametrize("status", [400, 413, 500])
def test_a_passage_that_the_model_refuses_has_no_score(model, status):
    """The others are ranked as without it, and a warning names the status and how many are left
    out.
    """

    def answer(request):
        body = request.get_json()
        is_refused = any("milk" in text for text in body["documents"])
        return failed(status, "input is too large") if is_refused else model.rerank(body)

    model.faults = [answer] * 50
    with HttpRerankModel(model.url, "m", retries=1) as one:
        with pytest.warns(AnswerWarning, match=f"cannot rank 1 of 4 passages.*{status} "):
            assert one("tea?", TEAS) == [(3, 10.0), (2, 9.0), (0, 5.0)]
        nodes = [DocNode(text=text) for text in TEAS]
        with pytest.warns(AnswerWarning) as warned:
            found = Reranker("ModuleReranker", model=one)(nodes, query="tea?")
    assert "the others rank last" in str(warned[-1].message)
    assert [node.text for node in found] == [TEAS[3], TEAS[2], TEAS[0], TEAS[1]]


def test_a_limit_of_passages_in_a_request_is_kept(model):
    """A request with more than the server takes is sent in halves, with the same result."""

    def answer(request):
        body = request.get_json()
        return (
            model.rerank(body) if len(body["documents"]) <= 2 else failed(422, "batch size 4 > 2")
        )

    model.faults = [answer] * 50
    with HttpRerankModel(model.url, "m") as one:
        assert one("tea?", TEAS, top_n=3) == [(1, 18.0), (3, 10.0), (2, 9.0)]


def test_a_server_that_is_down_is_asked_few_times(model):
    """A request, its retries, and three passages alone; then it is an error."""
    model.faults = [failed(503, "overloaded")] * 50
    with (
        HttpRerankModel(model.url, "m", retries=1) as one,
        pytest.raises(RetrievalError, match="503"),
    ):
        one("tea?", [f"tea {number}" for number in range(40)])
    assert len(model.requests) == 5


def test_one_request_that_fails_ends_the_others():
    """The server sees the connection go that it still holds."""
    calls = []

    def answer(connection):
        calls.append(connection)
        if len(calls) == 2:
            connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
            connection.close()

    with (
        RawServer(answer, hold=True) as server,
        HttpRerankModel(server.url, "m", batch_size=1) as one,
    ):
        with pytest.raises(RetrievalError, match="401 Unauthorized"):
            one("tea?", ["a", "b"])
        assert server.gone.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("", ["a"]), "query"),
        (("q", "text"), "documents"),
        (("q", ["a", 1]), "documents"),
        (("q", ["a"], 0), "top_n"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, told):
    """Before anything is sent."""
    with pytest.raises(ConfigError, match=told):
        HttpRerankModel("http://localhost:1", "m")(*arguments)
    with pytest.raises(UnknownKeywordError, match="Did you mean 'batch_size'"):
        HttpRerankModel("http://localhost:1", "m", batchsize=3)


def test_it_is_a_model_for_the_reranker(model):
    """ModuleReranker takes it as it takes any callable."""
    nodes = [DocNode(text=text) for text in TEAS]
    with HttpRerankModel(model.url, "m") as one:
        found = Reranker("ModuleReranker", model=one, topk=2)(nodes, query="tea?")
    assert [(node.text, node.score) for node in found] == [
        ("iced tea with milk", 18.0),
        ("oolong tea", 10.0),
    ]


@pytest.fixture
def tei(server):
    """A server that speaks as text-embeddings-inference does: longer is better. Its URL, and what
    it was asked.
    """
    asked = []

    def rerank(request):
        body = request.get_json()
        asked.append(body)
        scores = sorted(
            ((len(text), index) for index, text in enumerate(body["texts"])), reverse=True
        )
        return answered([{"index": index, "score": float(score)} for score, index in scores])

    server.clear()
    server.expect_request("/rerank", method="POST").respond_with_handler(rerank)
    return server.url_for("").rstrip("/"), asked


def test_text_embeddings_inference_is_asked_in_its_way(tei):
    """Texts in the question, a list as the answer, at most 32 texts at once."""
    url, asked = tei
    with HttpRerankModel(url, "bge", api="tei") as one:
        assert one("tea?", TEAS, top_n=2) == [(1, 18.0), (3, 10.0)]
        assert asked == [{"query": "tea?", "texts": TEAS}]
        many = [f"tea number {number}" for number in range(70)]
        assert len(one("tea?", many)) == 70
        assert sorted(len(body["texts"]) for body in asked[1:]) == [6, 32, 32]
        nodes = [DocNode(text=text) for text in TEAS]
        assert Reranker("ModuleReranker", model=one, topk=1)(nodes, query="tea?")[0].text == TEAS[1]


@pytest.mark.parametrize(
    "value",
    [
        {"results": []},
        [{"index": 0, "relevance_score": 1.0}],
        [[0, 1.0]],
        [{"index": "0", "score": 1.0}],
        None,
    ],
)
def test_another_answer_than_text_embeddings_inference_gives_is_refused(server, value):
    """With what was expected."""
    server.clear()
    server.expect_request("/rerank", method="POST").respond_with_json(value)
    with (
        HttpRerankModel(server.url_for("").rstrip("/"), "bge", api="tei") as one,
        pytest.raises(RetrievalError, match=r"must be \[\{'index', 'score'\}, \.\.\.\]"),
    ):
        one("tea?", ["tea"])


def test_another_api_is_refused():
    """With those that are known."""
    with pytest.raises(ConfigError, match=r"api 'cohere'\. Known: common, tei"):
        HttpRerankModel("http://localhost:1", "m", api="cohere")
