"""Embeddings from a real local server: batches, order, checks, refusals, cancellation."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy as np
import pytest

from lazyrag import HttpEmbedder
from lazyrag.errors import ConfigError, EmbeddingError, UnknownKeywordError
from lazyrag.models import Endpoint
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.protocols import BatchEmbedder
from tests.model_server import (
    KEY,
    PATIENCE_S,
    RawServer,
    answered,
    everything_shown,
    failed,
    head,
    item,
)

pytestmark = pytest.mark.usefixtures("quick_endpoints")

LONG = "a text that is far too long for this model"


def results(embedder, texts, input_type="document"):
    """What became of each text, by its place: a list, or the text of its error."""
    found = {}
    for batch in embedder.embed_batches(texts, input_type):
        for position, result in zip(batch.positions, batch.results, strict=True):
            assert position not in found
            failed_alone = isinstance(result, EmbeddingError)
            assert not failed_alone or KEY not in everything_shown(result)
            found[position] = str(result) if failed_alone else result.tolist()
    assert sorted(found) == list(range(len(texts)))
    return [found[position] for position in range(len(texts))]


def embedder_of(model, **options):
    """An embedder with a key."""
    return HttpEmbedder(model.url, "m", api_key=KEY, **options)


def test_it_is_a_batch_embedder():
    """With what the Protocol asks of it, and no secret in how it shows itself."""
    one = HttpEmbedder(
        "http://localhost:1/v1", "bge-m3", api_key=KEY, dimension=3, max_tokens=9, normalised=True
    )
    assert isinstance(one, BatchEmbedder)
    assert (one.dimension, one.max_tokens, one.normalised) == (3, 9, True)
    assert KEY not in f"{one!r} {one.identity} {vars(one)}"
    assert HttpEmbedder("http://localhost:1/v1", "bge-m3").dimension is None


def test_its_identity_holds_what_vectors_depend_on():
    """URL, model, dimension, prefixes; and nothing of how the server is asked."""
    url = "http://localhost:1/v1"
    assert (
        HttpEmbedder(url + "/", "a", batch_size=3, timeout_s=5).identity
        == "http:http://localhost:1/v1:a"
    )
    others = [
        HttpEmbedder(url, "b"),
        HttpEmbedder(url, "a", dimension=256),
        HttpEmbedder(url, "a", query_prefix="x"),
        HttpEmbedder(url, "a", document_prefix="x"),
        HttpEmbedder("http://localhost:2/v1", "a"),
        HttpEmbedder(url, "a"),
    ]
    assert len({one.identity for one in others}) == len(others)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimension": 0},
        {"max_tokens": 1.5},
        {"batch_size": 0},
        {"model": " "},
        {"model": None},
        {"query_prefix": 3},
    ],
    ids=repr,
)
def test_values_out_of_range_are_refused(wrong):
    """The message names the value."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        HttpEmbedder(**{"base_url": "http://localhost", "model": "m", **wrong})


@pytest.mark.parametrize(("wrong", "near"), [("dimensions", "dimension"), ("timeout", "timeout_s")])
def test_an_unknown_keyword_names_the_nearest(wrong, near):
    """Whether it is the embedder's or the endpoint's."""
    with pytest.raises(UnknownKeywordError, match=f"HttpEmbedder takes no .*Did you mean '{near}'"):
        HttpEmbedder("http://localhost", "m", **{wrong: 3})


def test_an_endpoint_is_shared_and_takes_no_settings_beside_it(model):
    """Closing a model leaves it to its owner."""
    with Endpoint(model.url, KEY) as one:
        with HttpEmbedder(one, "a") as first:
            assert first.endpoint is one
        assert len(HttpEmbedder(one, "b").embed(["tea"])) == 1
        with pytest.raises(ConfigError, match="an Endpoint, and api_key, timeout_s beside it"):
            HttpEmbedder(one, "a", api_key="x", timeout_s=3)
    with pytest.raises(EmbeddingError, match="is closed"):
        HttpEmbedder(one, "a").embed(["tea"])


def test_what_is_sent(model):
    """Model, texts with their prefix, the format; the dimension only where it was given."""
    with embedder_of(model, query_prefix="Q: ", document_prefix="D: ") as one:
        one.embed(["tea"])
        one.embed(["tea", "茶"], "query")
    with HttpEmbedder(model.url, "m", dimension=2) as one:
        one.embed(["tea"])
    assert model.bodies == [
        {"model": "m", "input": ["D: tea"], "encoding_format": "float"},
        {"model": "m", "input": ["Q: tea", "Q: 茶"], "encoding_format": "float"},
        {"model": "m", "input": ["tea"], "encoding_format": "float", "dimensions": 2},
    ]
    assert [request.headers.get("Authorization") for request in model.requests] == [
        f"Bearer {KEY}"
    ] * 2 + [None]


def test_many_texts_go_in_batches_at_the_same_time(model):
    """Each text gets its own vector, equal ones are asked for once, and no more calls run than
    allowed.
    """
    model.hold_s = 0.02
    texts = ["x" * (1 + number % 90) for number in range(100)]
    with embedder_of(model, batch_size=7, concurrency=3) as one:
        vectors = one.embed(texts)
    assert [vector.tolist() for vector in vectors] == [[float(len(text)), 1.0] for text in texts]
    assert all(vector.dtype == np.float32 for vector in vectors)
    assert sum(len(body["input"]) for body in model.bodies) == 90
    assert len(model.bodies) == 13
    assert 1 < model.most_at_once <= 3


def test_no_texts_need_no_call(model):
    """Nothing is nothing."""
    with embedder_of(model) as one:
        assert list(one.embed([])) == []
        assert results(one, []) == []
    assert model.requests == []


def test_answers_are_put_in_order_by_their_index(model):
    """However the server orders them."""
    model.faults = [answered({"data": [item(2, "ccc"), item(0, "a"), item(1, "bb")]})]
    with embedder_of(model) as one:
        assert results(one, ["a", "bb", "ccc"]) == [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "texts has 0 vectors"),
        ([item(0, "a"), item(1, "bb"), item(2, "c")], "texts has 3 vectors"),
        ([item(0, "a"), item(0, "bb")], "indices [0, 0]"),
        ([item(0, "a"), item(2, "bb")], "indices [0, 2]"),
        ([item(0, "a"), item(True, "bb")], "indices"),
        ([item(0, "a"), {"embedding": [1.0]}], "indices [0, None]"),
        ([item(0, "a"), {"index": 1}], "must be {'data'"),
        ([item(0, "a"), 7], "must be {'data'"),
        ("no list", "must be {'data'"),
        (None, "must be {'data'"),
    ],
    ids=str,
)
def test_an_answer_that_is_not_one_vector_for_each_text_fails_its_batch(model, data, told):
    """None of its vectors can be trusted; the other batch has its own."""

    def answer(request):
        return (
            model.embeddings(request.get_json())
            if "ccc" in request.get_json()["input"]
            else answered({"data": data})
        )

    with embedder_of(model, batch_size=2, concurrency=1) as one:
        model.faults = [answer] * 9
        first, second, third = results(one, ["a", "bb", "ccc"])
    assert first == second
    assert told in first
    assert first.startswith(f"The embedding model 'm' at {model.url} failed: ")
    assert third == [3.0, 1.0]


@pytest.mark.parametrize("answer", ["[]", "7", "null"])
def test_json_of_another_kind_is_an_error(model, answer):
    """It is told as what it is."""
    model.faults = [answered(answer)]
    with embedder_of(model) as one, pytest.raises(EmbeddingError, match=r"must be \{'data'"):
        one.embed(["tea"])


@pytest.mark.parametrize(
    "bad",
    [[1.0, float("nan")], [1.0, None], None, [], ["x", 1.0], [[1.0, 1.0]], "QUJD", {"0": 1.0}],
    ids=repr,
)
def test_one_bad_vector_fails_its_own_text(model, bad):
    """Its neighbours keep their vectors."""
    data = {"data": [item(0, "a"), {"index": 1, "embedding": bad}, item(2, "ccc")]}
    model.faults = [answered(json.dumps(data))]
    with embedder_of(model) as one:
        first, second, third = results(one, ["a", "bb", "ccc"])
    assert (first, third) == ([1.0, 1.0], [3.0, 1.0])
    assert "The embedding model 'm'" in second


def test_a_vector_of_another_length_fails_its_own_text(model):
    """Where the dimension was given it counts; else the length that most of them have."""
    data = {"data": [item(0, "a"), {"index": 1, "embedding": [1.0]}, item(2, "ccc")]}
    model.faults = [answered(data), answered(data)]
    with embedder_of(model, dimension=2) as one:
        first, second, third = results(one, ["a", "bb", "ccc"])
    assert (first, third) == ([1.0, 1.0], [3.0, 1.0])
    assert "dimension is 2" in second
    with embedder_of(model) as one:
        each = CheckedEmbedder(one).embed_each(["a", "bb", "ccc"])
    assert [isinstance(result, EmbeddingError) for result in each] == [False, True, False]


@pytest.mark.parametrize("guilty", [[0], [3], [0, 1]], ids=str)
def test_a_batch_that_fails_for_good_fails_its_texts_at_fault(model, guilty):
    """They have its error, with status, message and tries; the error of the first one is raised by
    embed.
    """
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    refused = [texts[at] for at in guilty]

    def answer(request):
        is_refused = not {*refused}.isdisjoint(request.get_json()["input"])
        return failed(500, "tea break") if is_refused else model.embeddings(request.get_json())

    model.faults = [answer] * 99
    with embedder_of(model, batch_size=2, concurrency=1, retries=1) as one:
        found = results(one, texts)
        with pytest.raises(EmbeddingError, match="tea break") as caught:
            one.embed(texts)
    assert [at for at, result in enumerate(found) if isinstance(result, str)] == guilty
    assert "failed: 500 Internal Server Error: tea break. It was tried 2 times." in found[guilty[0]]
    assert KEY not in everything_shown(caught.value)


def test_a_server_that_fails_later_on_is_asked_few_times(model):
    """A text that was accepted before is tried again alone: it fails, so the texts are not at
    fault.
    """
    model.faults = [model.embeddings({"input": ["x"] * 32}), *[failed(503, "overloaded")] * 99]
    with embedder_of(model, batch_size=32, concurrency=1, retries=0) as one:
        found = results(one, [f"text {number}" for number in range(96)])
    assert sum("503" in result for result in found if isinstance(result, str)) == 64
    assert len(model.requests) == 1 + 2 * 2


def refusing(*, status=400):
    """A fault for each request: texts longer than 30 characters are refused."""

    def answer(request):
        texts = request.get_json()["input"]
        longest = max(map(len, texts))
        if longest > 30:
            return failed(status, f"at most 30 characters, not {longest}")
        return answered({"data": [item(index, text) for index, text in enumerate(texts)]})

    return [answer] * 1000


@pytest.mark.sample(3)
@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("guilty", [[0], [31], [63], [5, 6], []], ids=str)
def test_a_refused_batch_is_narrowed_down_to_the_texts_at_fault(model, status, guilty):
    """Only they fail, after a number of calls that grows as the logarithm of the batch."""
    texts = [LONG + str(number) if number in guilty else f"text {number}" for number in range(64)]
    model.faults = refusing(status=status)
    with embedder_of(model) as one:
        found = results(one, texts)
    assert [position for position, result in enumerate(found) if isinstance(result, str)] == guilty
    assert all(
        f"{status} " in found[position] and "at most 30" in found[position] for position in guilty
    )
    assert all(
        result == [float(len(text)), 1.0]
        for text, result in zip(texts, found, strict=True)
        if result[1] == 1
    )
    assert len(model.requests) <= 1 + 14 * len(guilty)


def test_many_long_texts_before_the_others_do_not_condemn_them(model):
    """The first batches are refused whole, and the last texts still have their vectors."""
    texts = [f"{LONG} {number}" for number in range(6)] + ["tea", "milk"]
    model.faults = refusing()
    with embedder_of(model, batch_size=2, concurrency=1) as one:
        found = results(one, texts)
    assert [isinstance(result, str) for result in found] == [True] * 6 + [False] * 2


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_request_that_is_refused_whatever_its_texts_is_not_narrowed_down(model, batch_size):
    """When the two shortest texts are refused alike too, every text gets that error, and no more
    calls are made.
    """
    model.faults = [failed(400, "this model takes no encoding_format")] * 1000
    with embedder_of(model, batch_size=batch_size, concurrency=2) as one:
        found = results(one, [f"text {number}" for number in range(200)])
    assert all("takes no encoding_format" in result for result in found)
    assert len(model.requests) <= 6


@pytest.mark.sample(3)
@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_no_text_can_change_is_asked_once(model, status):
    """A wrong key, or an unknown model, ends the work."""
    model.faults = [failed(status)] * 100
    with embedder_of(model, batch_size=1, concurrency=2) as one:
        found = results(one, [f"text {number}" for number in range(50)])
    assert all(f"{status} " in result for result in found)
    assert len(model.requests) <= 2


def test_a_text_that_is_no_unicode_fails_alone(model):
    """Half a surrogate pair cannot be sent; its neighbours can."""
    with embedder_of(model) as one:
        found = results(one, ["a", "bb", "broken \ud800", "dddd"])
    assert [isinstance(result, str) for result in found] == [False, False, True, False]


def test_leaving_the_batches_ends_the_calls_under_way():
    """One batch is answered, and the server sees the connection of the other one go."""
    body = json.dumps({"data": [item(0, "a")]}).encode()
    with RawServer(head(Content_Length=len(body)) + body, b"", hold=True) as server:
        one = HttpEmbedder(server.url, "m", batch_size=1, concurrency=2)
        batches = one.embed_batches(["a", "b"])
        next(batches)
        batches.close()
        assert server.gone.wait(PATIENCE_S)


def test_dropping_the_batches_asks_for_no_more(model):
    """What was not begun is never asked for."""
    with embedder_of(model, batch_size=1, concurrency=1) as one:
        batches = one.embed_batches([f"text {number}" for number in range(100)])
        next(batches)
        del batches
        one.embed(["last"])
    assert len(model.requests) < 20


@pytest.mark.slow
def test_a_slow_consumer_is_not_run_ahead_of(model):
    """A few batches wait for it, however many there are."""
    with embedder_of(model, batch_size=1, concurrency=2) as one:
        batches = one.embed_batches([f"text {number}" for number in range(100)])
        next(batches)
        for _ in range(10):
            one.embed(["another"])
        assert len([body for body in model.bodies if body["input"] != ["another"]]) < 10
        assert len(list(batches)) == 99


def test_one_embedder_serves_threads_and_loops_at_once(model):
    """Two event loops and four threads get the right vectors."""
    found = []

    def work(text):
        found.append((text, one.embed([text])[0][0]))

    def loop(text):
        async def in_thread():
            await asyncio.gather(asyncio.to_thread(work, text), asyncio.to_thread(work, text + "!"))

        asyncio.run(in_thread())

    with embedder_of(model) as one:
        threads = [threading.Thread(target=work, args=("x" * number,)) for number in range(1, 5)]
        threads += [threading.Thread(target=loop, args=("y" * number,)) for number in range(5, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8
    assert all(length == len(text) for text, length in found)


def test_halves_are_not_retried_but_single_texts_are(model):
    """So a poisoned text costs a request for each half, and what fails for a moment is found by
    retrying it alone.
    """

    def answer(request):
        texts = request.get_json()["input"]
        return failed(500) if "bb" in texts else model.embeddings({"input": texts})

    model.faults = [answer] * 99
    with embedder_of(model, batch_size=16, retries=2) as one:
        found = results(one, ["bb", *("c" * number for number in range(3, 18))])
    assert [at for at, result in enumerate(found) if isinstance(result, str)] == [0]
    failing = [len(body["input"]) for body in model.bodies if "bb" in body["input"]]
    # alone as a probe, then with two retries
    assert sorted(failing) == [1, 1, 1, 1, 2, 4, 8, 16, 16, 16]
