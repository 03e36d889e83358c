"""Embed callables: how they are called, what they may return."""

from __future__ import annotations

import functools
import threading
import time

import numpy as np
import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError, EmbeddingError
from lazyrag.models.embedding import (
    DEFAULT_EMBED_KEY,
    CallableEmbedder,
    CheckedEmbedder,
    make_embedders,
)
from lazyrag.models.embedding_cache import CachedEmbedder, EmbeddingCache


class Batched:
    """Gets lists of at most so many texts, and remembers them."""

    def __init__(self, batch_size, answer=lambda texts: [[float(len(text))] for text in texts]):
        self.batch_size = batch_size
        self.answer = answer
        self.calls = []

    def __call__(self, texts):
        """The answer to them."""
        self.calls.append(texts)
        return self.answer(texts)


def checked(key, function):
    """A callable as a Document asks it."""
    return make_embedders({key: function})[key]


def _shown(value) -> str:
    """A parameter as it is written, without its address, which differs from run to run."""
    return repr(value).partition(" at 0x")[0][:30]


def test_a_bare_callable_gets_one_text_at_a_time():
    """A str, never a list."""
    calls = []

    def embed(text):
        calls.append(text)
        return [float(len(text)), 1.0]

    matrix = checked("k", embed).embed(["tea", "绿茶"])
    assert calls == ["tea", "绿茶"]
    assert matrix.tolist() == [[3.0, 1.0], [2.0, 1.0]]
    assert matrix.dtype == np.float32


def test_a_batch_size_above_1_means_lists():
    """At most so many at once, in order, the last one shorter."""
    embed = Batched(2)
    matrix = checked("k", embed).embed(["a", "bb", "ccc", "dddd", "eeeee"])
    assert embed.calls == [["a", "bb"], ["ccc", "dddd"], ["eeeee"]]
    assert matrix.tolist() == [[1.0], [2.0], [3.0], [4.0], [5.0]]


@pytest.mark.parametrize("size", [1, 0, -3, True, "8", None, 2.5])
def test_anything_else_as_batch_size_means_one_text(size):
    """Only a whole number above 1 asks for lists."""
    embed = Batched(size, lambda text: [float(len(text))])
    checked("k", embed).embed(["a", "bb"])
    assert embed.calls == ["a", "bb"]


@pytest.mark.parametrize("size", [1, 3])
def test_equal_texts_are_embedded_once(size):
    """The rows come back for each text, in the order asked for."""
    embed = Batched(size, (lambda text: [float(len(text))]) if size == 1 else Batched(2).answer)
    matrix = checked("k", embed).embed(["a", "bb", "a", "a", "bb"])
    assert matrix.ravel().tolist() == [1.0, 2.0, 1.0, 1.0, 2.0]
    assert sum(len(call) if size > 1 else 1 for call in embed.calls) == 2


@pytest.mark.parametrize(
    "vector",
    [
        [1, 2],
        (1.0, 2.0),
        np.array([1, 2]),
        np.array([1, 2], np.float16),
        np.array([1, 2], np.float64),
        [np.float32(1), np.int64(2)],
        [True, 2],
    ],
    ids=repr,
)
def test_a_vector_is_any_list_of_numbers(vector):
    """Lists, tuples and arrays of any number type become float32."""
    matrix = checked("k", lambda text: vector).embed(["a"])
    assert matrix.tolist() == [[1.0, 2.0]]
    assert matrix.dtype == np.float32


def test_vectors_stay_as_the_callable_gave_them():
    """Nothing is normalised."""
    matrix = checked("k", lambda text: [3.0, 4.0]).embed(["a"])
    assert matrix.tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize(
    "vectors",
    [[[1.0], [2.0]], np.array([[1.0], [2.0]]), ([1.0], [2.0]), [np.array([1.0]), (2.0,)]],
    ids=repr,
)
def test_a_batch_is_any_list_of_vectors(vectors):
    """Also a matrix."""
    assert checked("k", Batched(2, lambda texts: vectors)).embed(["a", "b"]).tolist() == [
        [1.0],
        [2.0],
    ]


def test_a_callable_may_use_its_array_again():
    """A model that writes each answer into the same buffer does not overwrite the vectors
    before.
    """
    buffer = np.zeros(1, np.float32)

    def embed(text):
        buffer[0] = len(text)
        return buffer

    assert checked("k", embed).embed(["a", "bb", "ccc"]).tolist() == [[1.0], [2.0], [3.0]]


NO_VECTORS = [
    None,
    5,
    2.5,
    "text",
    ["a", "b"],
    [],
    [[1.0, 2.0]],
    np.zeros((1, 2)),
    np.zeros((2, 2)),
    [float("nan")],
    [1.0, float("inf")],
    [None, 1.0],
    [[1.0], [2.0, 3.0]],
    object(),
    [1j],
    (one for one in [1.0]),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("returned", NO_VECTORS, ids=_shown)
def test_what_is_no_finite_vector_is_refused(returned):
    """The error carries the embed key and says what came."""
    with pytest.raises(EmbeddingError, match="embed of key 'zh' returned") as caught:
        checked("zh", lambda text: returned).embed(["a"])
    assert caught.value.embed_key == "zh"


@pytest.mark.sample(3)
@pytest.mark.parametrize("returned", NO_VECTORS, ids=_shown)
def test_a_batch_with_one_that_is_no_vector_is_refused(returned):
    """The vectors beside it do not help."""
    with pytest.raises(EmbeddingError, match="embed of key 'zh' returned"):
        checked("zh", Batched(2, lambda texts: [[1.0], returned])).embed(["a", "b"])


@pytest.mark.parametrize(
    "returned",
    [
        None,
        5,
        [],
        [[1.0]] * 3,
        np.zeros((3, 1)),
        np.float32(1),
        (one for one in [[1.0], [2.0]]),
        object(),
    ],
    ids=_shown,
)
def test_a_batch_needs_one_vector_for_each_text(returned):
    """Too few, too many, or no list at all, however few are asked for: an EmbeddingError that says
    so.
    """
    with pytest.raises(EmbeddingError, match="for each of 1 texts; got"):
        checked("k", Batched(2, lambda texts: returned)).embed(["a", "b"])


def test_vectors_of_one_key_have_one_length():
    """A callable whose answers differ in length is refused; the error names the lengths."""
    with pytest.raises(EmbeddingError, match=r"different lengths: 2 instead of 1"):
        checked("k", lambda text: [1.0] * len(text)).embed(["a", "bb"])


@pytest.mark.parametrize(
    "embed",
    [lambda text: {1: 0.5}, Batched(2, lambda texts: [{1: 0.5}] * len(texts))],
    ids=["one", "batch"],
)
def test_a_mapping_is_a_sparse_vector(embed):
    """A callable that returns mappings gives sparse vectors."""
    assert checked("k", embed).embed(["a", "b"]) == [{1: 0.5}, {1: 0.5}]


def test_what_a_callable_raises_is_an_embedding_error_with_its_cause():
    """The key and the first words of the cause are in the message."""

    def embed(text):
        raise TimeoutError("no answer")

    with pytest.raises(EmbeddingError, match="'zh' raised TimeoutError: no answer") as caught:
        checked("zh", embed).embed(["a"])
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert caught.value.embed_key == "zh"


def test_a_documents_embed_may_be_nothing_one_or_several():
    """One callable gets the default key; several keep their keys, in order."""
    one, other = (lambda text: [1.0]), (lambda text: [2.0])
    assert make_embedders(None) == {}
    single = make_embedders(one)
    assert list(single) == [DEFAULT_EMBED_KEY]
    assert single[DEFAULT_EMBED_KEY].user_object is one
    several = make_embedders({"zh": one, "en": other})
    assert [(key, embedder.key, embedder.user_object) for key, embedder in several.items()] == [
        ("zh", "zh", one),
        ("en", "en", other),
    ]


@pytest.mark.parametrize(
    "embed",
    [
        5,
        "bge",
        [lambda text: [1.0]],
        {},
        {"": lambda text: [1.0]},
        {5: lambda text: [1.0]},
        {"zh": "bge"},
        {"zh": None},
    ],
)
def test_any_other_embed_is_refused(embed):
    """The error says that a callable, or names with callables, are needed."""
    with pytest.raises(ConfigError, match="callable"):
        make_embedders(embed)


def test_an_embedder_that_lacks_a_member_is_told_which():
    """Embed alone does not make one."""

    class Half:
        """Knows its identity only."""

        identity = "half"
        dimension = None

        def embed(self, texts, input_type="document"):
            """Nothing."""

    with pytest.raises(
        ConfigError,
        match="embed of key 'zh' must be an Embedder; Half has no max_tokens, normalised",
    ):
        make_embedders({"zh": Half()})


def test_handing_over_an_embedder_computes_nothing():
    """Its identity may be costly, and is asked for when it is needed, on every Python."""

    class Lazy:
        """An Embedder whose identity must not be asked for."""

        dimension = max_tokens = None
        normalised = False

        @property
        def identity(self):
            """Costly."""
            raise AssertionError

        def embed(self, texts, input_type="document"):
            """One vector for each."""
            return [[1.0]] * len(texts)

    assert checked("k", Lazy()).embed(["a"]).tolist() == [[1.0]]


class TestThreads:
    """A function of one text is called by several threads once a call takes long."""

    @staticmethod
    def slow(threads):
        """An embed function that takes a moment and notes its thread and how many calls run."""
        running = 0
        lock = threading.Lock()

        def embed(text):
            nonlocal running
            with lock:
                running += 1
                threads.append((threading.get_ident(), running))
            time.sleep(0.01)
            with lock:
                running -= 1
            if text == "bad":
                raise ValueError(text)
            return [float(len(text)), 1.0]

        return embed

    def test_calls_run_at_the_same_time_and_results_keep_their_order(self):
        """The first text goes alone; of the others several are embedded at a time."""
        threads = []
        texts = [f"{'x' * n}" for n in range(1, 41)]
        found = CheckedEmbedder(CallableEmbedder(self.slow(threads)), workers=8).embed(texts)
        assert found[:, 0].tolist() == list(range(1, 41))
        assert threads[0] == (threading.get_ident(), 1)
        assert max(running for _, running in threads) > 2

    def test_with_one_worker_there_is_no_thread(self):
        """``workers=1`` is for functions that are not thread-safe."""
        threads = []
        docs = Document(embed={"a": self.slow(threads), "b": self.slow(threads)}, workers=1)
        docs.add_texts({str(n): f"text {n}" for n in range(4)})
        assert len(Retriever(docs, "FineChunk")("text")) == 4
        assert {thread for thread, _ in threads} == {threading.get_ident()}

    def test_a_text_that_fails_fails_alone(self):
        """The calls after it go on."""
        found = CheckedEmbedder(CallableEmbedder(self.slow([])), workers=4).embed_each(
            ["a", "bad", "bb", "bad"]
        )
        assert [isinstance(one, EmbeddingError) for one in found] == [False, True, False, True]

    def test_the_keys_of_a_query_are_embedded_at_the_same_time(self):
        """Two models take as long as one."""
        threads = []
        embed = self.slow(threads)
        docs = Document(embed={"a": embed, "b": functools.partial(embed)})
        docs.add_texts({"a": "tea"})
        retriever = Retriever(docs, "FineChunk")
        retriever("tea")
        threads.clear()
        retriever("coffee")
        assert sorted(running for _, running in threads) == [1, 2]

    def test_a_cache_stores_vectors_together(self, tmp_path, monkeypatch):
        """Calls of one text do not write one transaction each."""
        written = []
        put_many = EmbeddingCache.put_many

        def counted(cache, space, vectors):
            written.append(len(vectors))
            put_many(cache, space, vectors)

        monkeypatch.setattr(EmbeddingCache, "put_many", counted)
        with CachedEmbedder(
            lambda text: [float(len(text))], tmp_path / "cache.db", identity="length"
        ) as embedder:
            embedder.embed([f"text {n}" for n in range(100)])
        assert sum(written) == 100
        assert len(written) < 10


def test_the_json_text_of_a_vector_is_a_vector():
    """Services answer with it; other text is an error that says so."""
    assert checked("k", lambda text: "[1, 2.5]").embed(["tea"]).tolist() == [[1.0, 2.5]]
    assert checked("k", lambda text: '{"7": 0.5}').embed(["tea"]) == [{7: 0.5}]
    with pytest.raises(EmbeddingError, match="JSON"):
        checked("k", lambda text: "no vector").embed(["tea"])
