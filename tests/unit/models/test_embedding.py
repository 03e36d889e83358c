"""How embedders are asked, and what of their answers is let through."""

from __future__ import annotations

import math
import traceback
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError, EmbeddingError, MissingDependencyError, StoreError
from lazyrag.models import Embedder
from lazyrag.models.embedding import (
    CallableEmbedder,
    CheckedEmbedder,
    as_vector,
    stack_dense,
    stack_embeddings,
)
from lazyrag.models.protocols import BatchEmbedder, EmbeddedBatch
from lazyrag.types import SPARSE

TEXTS = st.lists(st.text("abc", min_size=1, max_size=3), max_size=40)


def right(text):
    """A vector that tells its text."""
    return [float(len(text)), float(text.count("a"))]


class Whole:
    """An Embedder of lists of texts: some texts make it raise, some get something else than a
    vector.
    """

    identity = "whole"
    dimension = None
    max_tokens = None
    normalised = False

    def __init__(self, refused=(), odd=(), size=8):
        self.refused = set(refused)
        self.odd = set(odd)
        self.batch_size = size
        self.calls = []

    def embed(self, texts, input_type="document"):
        """Vectors, unless a refused text is among the texts."""
        self.calls.append((list(texts), input_type))
        if self.refused.intersection(texts):
            raise RuntimeError("too long")
        return [[math.nan, 0.0] if text in self.odd else right(text) for text in texts]


class InBatches(Whole):
    """A BatchEmbedder that hands over what it was made with."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def embed_batches(self, texts, input_type="document"):
        """The batches; an exception among them is raised in its turn."""
        for batch in self.batches:
            if isinstance(batch, Exception):
                raise batch
            yield EmbeddedBatch(*batch)


def test_the_protocols_are_told_apart():
    """A class with the members is an Embedder; with embed_batches as well it is a BatchEmbedder; a
    function is none.
    """
    assert isinstance(Whole(), Embedder)
    assert not isinstance(Whole(), BatchEmbedder)
    assert isinstance(InBatches([]), BatchEmbedder)
    assert isinstance(CallableEmbedder(right), Embedder)
    assert not isinstance(right, Embedder)


@given(TEXTS, st.sets(st.text("abc", min_size=1, max_size=3), max_size=4), st.integers(1, 16))
def test_one_bad_vector_fails_its_own_text(texts, odd, size):
    """Whatever stands beside a text whose vector is nan: every other text has its own vector, that
    one an error.
    """
    found = CheckedEmbedder(Whole(odd=odd, size=size)).embed_each(texts)
    assert len(found) == len(texts)
    for text, result in zip(texts, found, strict=True):
        assert isinstance(result, EmbeddingError) if text in odd else result.tolist() == right(text)


@given(TEXTS, st.text("abc", min_size=1, max_size=3), st.integers(1, 16))
def test_a_text_that_makes_the_model_raise_fails_alone(texts, refused, size):
    """A failing batch is narrowed down by halves: the others have their vectors, at 2 log2(size)
    calls more.
    """
    embedder = Whole(refused=[refused], size=size)
    found = CheckedEmbedder(embedder).embed_each(texts)
    for text, result in zip(texts, found, strict=True):
        assert (
            isinstance(result, EmbeddingError)
            if text == refused
            else result.tolist() == right(text)
        )
    distinct = len(set(texts))
    assert len(embedder.calls) <= math.ceil(distinct / size) + 2 * math.ceil(
        math.log2(size) if size > 1 else 0
    )


def test_a_model_that_is_down_is_not_asked_text_by_text():
    """Where batch, halves, quarters and eighths all fail, the rest fails without a call; the next
    batch costs one.
    """
    texts = [f"text {number}" for number in range(64)]
    embedder = Whole(refused=texts, size=32)
    found = CheckedEmbedder(embedder).embed_each(texts)
    assert [type(one) for one in found] == [EmbeddingError] * 64
    assert len(embedder.calls) == 1 + 2 + 4 + 8 + 1


def test_a_model_that_is_up_again_is_asked_as_usual():
    """After a batch that failed whole, one that succeeds ends the suspicion: the next is narrowed
    down again.
    """
    texts = [f"text {number}" for number in range(48)]
    embedder = Whole(refused=[*texts[:16], texts[40]], size=16)
    found = CheckedEmbedder(embedder).embed_each(texts)
    assert [position for position, one in enumerate(found) if isinstance(one, EmbeddingError)] == [
        *range(16),
        40,
    ]


def test_a_few_bad_texts_in_a_batch_fail_alone():
    """Four of 64, one in each quarter."""
    texts = [f"text {number}" for number in range(64)]
    bad = {texts[position] for position in (3, 20, 37, 60)}
    found = CheckedEmbedder(Whole(refused=bad, size=64)).embed_each(texts)
    assert {
        text for text, one in zip(texts, found, strict=True) if isinstance(one, EmbeddingError)
    } == bad


@pytest.mark.parametrize("texts", ["tea", b"tea", None, 5])
def test_texts_are_a_list(texts):
    """One text is not taken for a list of letters."""
    with pytest.raises(ConfigError, match=r"texts must be a list"):
        CheckedEmbedder(Whole()).embed(texts)


def test_texts_may_be_read_once_only():
    """A generator is read once; each text has its vector."""
    found = CheckedEmbedder(Whole()).embed(text for text in ("a", "bb"))
    assert found.tolist() == [right("a"), right("bb")]


@pytest.mark.parametrize("blank", ["", " \n", None, 5, ["a"]])
def test_blank_texts_are_never_asked_for(blank):
    """They fail alone, with what they are in the message; so does what is no text."""
    embedder = Whole()
    found = CheckedEmbedder(embedder).embed_each(["a", blank, "b"])
    assert [isinstance(one, EmbeddingError) for one in found] == [False, True, False]
    assert embedder.calls == [(["a", "b"], "document")]
    assert "not blank" in str(found[1])


def test_an_unknown_input_type_is_refused():
    """The known ones are named."""
    with pytest.raises(ConfigError, match=r"input_type 'doc'\. Known: document, query"):
        CheckedEmbedder(Whole()).embed(["a"], input_type="doc")


def test_a_number_too_large_fails_its_own_text():
    """A vector with a whole number beyond any float is no vector; its neighbours have theirs."""
    found = CheckedEmbedder(
        CallableEmbedder(lambda text: [10**400] if text == "b" else [1.0])
    ).embed_each(["a", "b", "c"])
    assert [isinstance(one, EmbeddingError) for one in found] == [False, True, False]


def test_one_error_of_many_texts_does_not_grow():
    """Raised for each document in turn, the error of a failed batch shows one traceback, not all
    before it.
    """
    failed = CheckedEmbedder(Whole(refused=["a", "b"])).embed_each(["a", "b"])
    for _ in range(50):
        with pytest.raises(EmbeddingError, match="too long") as caught:
            stack_dense(failed, "The embedder")
    assert len(list(traceback.walk_tb(caught.value.__traceback__))) < 5


def test_each_distinct_text_is_asked_for_once():
    """Equal texts share one call, and each place gets its own vector, in order."""
    embedder = Whole()
    matrix = CheckedEmbedder(embedder).embed(["aa", "b", "aa", "aa"])
    assert embedder.calls == [(["aa", "b"], "document")]
    assert matrix.tolist() == [right("aa"), right("b"), right("aa"), right("aa")]
    assert matrix.dtype == np.float32


def test_no_texts_mean_no_call():
    """An empty list gives an array of no rows, of the known width, and the model is not asked."""
    embedder = Whole()
    assert CheckedEmbedder(embedder).embed([], dimension=3).shape == (0, 3)
    assert embedder.calls == []


def test_the_input_type_reaches_the_model():
    """An Embedder is told whether texts are questions; a callable only if it has such a
    parameter.
    """
    embedder = Whole()
    CheckedEmbedder(embedder).embed(["a"], input_type="query")
    assert embedder.calls == [(["a"], "query")]
    told = []

    def asymmetric(text, input_type):
        told.append((text, input_type))
        return [1.0]

    CheckedEmbedder(CallableEmbedder(asymmetric)).embed(["a"], input_type="query")
    CheckedEmbedder(CallableEmbedder(asymmetric)).embed(["b"])
    assert told == [("a", "query"), ("b", "document")]


@given(st.permutations(range(6)), st.integers(1, 6))
def test_batches_may_come_in_any_order(order, size):
    """Results go by their positions, not by the order in which batches get done."""
    texts = ["a" * (position + 1) for position in range(6)]
    batches = [
        (
            order[start : start + size],
            [right(texts[position]) for position in order[start : start + size]],
        )
        for start in range(0, 6, size)
    ]
    found = CheckedEmbedder(InBatches(batches)).embed(texts)
    assert found.tolist() == [right(text) for text in texts]


@pytest.mark.parametrize(
    ("batches", "answered", "words"),
    [
        ([([0, 1], [[1.0], [2.0]])], {0, 1}, "left out 1 of 3 texts"),
        ([([0, 1], [[1.0], [2.0]]), RuntimeError("gone")], {0, 1}, "raised RuntimeError: gone"),
        (
            [([0], [[1.0]]), ([0, 1], [[1.0], [2.0]])],
            {0},
            r"2 results for the positions \[0, 1\] of 3",
        ),
        ([([0, 0], [[1.0], [2.0]])], set(), "exactly once"),
        ([([0, 3], [[1.0], [2.0]])], set(), "exactly once"),
        ([([2], [[1.0]]), ([0, 1], [[1.0]])], {2}, "1 results for the positions"),
    ],
)
def test_a_batch_embedder_that_breaks_its_word(batches, answered, words):
    """Places left out, given twice, out of range or without result fail; what was answered rightly
    before stays.
    """
    found = CheckedEmbedder(InBatches(batches)).embed_each(["a", "b", "c"])
    assert {
        position for position, result in enumerate(found) if not isinstance(result, EmbeddingError)
    } == answered
    errors = [result for result in found if isinstance(result, EmbeddingError)]
    with pytest.raises(EmbeddingError, match=words):
        raise errors[0]


@pytest.mark.parametrize(
    "error", [StoreError("The cache is gone."), MissingDependencyError("Install it.")]
)
def test_what_is_no_texts_fault_is_raised(error):
    """A cache that cannot be read, or a missing package, comes out as it is, and fails no text."""
    with pytest.raises(type(error)) as caught:
        CheckedEmbedder(InBatches([error])).embed_each(["a"])
    assert caught.value is error

    def embed(text):
        raise error

    with pytest.raises(type(error)) as caught:
        CheckedEmbedder(CallableEmbedder(embed)).embed_each(["a"])
    assert caught.value is error


def test_the_length_that_most_have_is_the_right_one():
    """Where no length is known yet, the odd vector out fails, even if it is the first."""
    found = CheckedEmbedder(InBatches([([0, 1, 2], [[1.0], [1.0, 2.0], [3.0, 4.0]])])).embed_each(
        ["a", "b", "c"]
    )
    assert isinstance(found[0], EmbeddingError)
    assert "1 instead of 2 numbers" in str(found[0])
    assert [one.tolist() for one in found[1:]] == [[1.0, 2.0], [3.0, 4.0]]


def test_a_known_length_binds():
    """Vectors of another length than the one asked for, or declared by the model, all fail."""
    assert {type(one) for one in CheckedEmbedder(Whole()).embed_each(["a", "b"], dimension=3)} == {
        EmbeddingError
    }
    embedder = Whole()
    embedder.dimension = 5
    assert {type(one) for one in CheckedEmbedder(embedder).embed_each(["a", "b"])} == {
        EmbeddingError
    }


def test_errors_name_the_key():
    """An error of the model under an embed key carries that key, the model's own words and its
    cause.
    """
    [error] = CheckedEmbedder(Whole(refused=["a"]), "The embed of key 'zh'", "zh").embed_each(["a"])
    assert str(error) == "The embed of key 'zh' raised RuntimeError: too long."
    assert error.embed_key == "zh"
    assert isinstance(error.__cause__, RuntimeError)
    own = EmbeddingError("The endpoint is gone.")
    [error] = CheckedEmbedder(InBatches([([0], [own])]), "The embed of key 'zh'", "zh").embed_each(
        ["a"]
    )
    assert str(error) == "The embed of key 'zh' failed: The endpoint is gone."
    assert error.__cause__ is own


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.sampled_from([list, tuple, np.array]))
def test_any_list_of_numbers_is_a_vector(numbers, kind):
    """Lists, tuples and arrays give the same float32 values."""
    assert as_vector(kind(numbers)).tolist() == np.array(numbers, np.float32).tolist()


@given(
    st.dictionaries(st.integers(0, 2**31), NUMBERS, max_size=8),
    st.sampled_from([int, str, np.int64]),
)
def test_a_mapping_is_a_sparse_vector(weights, kind):
    """Keys may be whole numbers of any kind or their digits; weights that are 0 are left out."""
    found = as_vector({kind(key): weight for key, weight in weights.items()})
    assert found == {key: weight for key, weight in weights.items() if weight}


def test_the_weights_of_a_sparse_vector_are_float32():
    """They are rounded as the numbers of dense vectors are, and those that become 0 are left
    out.
    """
    assert as_vector({5: 0.1, 6: 1e-60}) == {5: float(np.float32(0.1))}


@pytest.mark.parametrize(
    "value",
    [
        {-1: 0.5},
        {"x": 0.5},
        {1.5: 0.5},
        {1: "much"},
        {1: math.nan},
        {1: math.inf},
        {"-2": 1.0},
        {None: 1.0},
        {1: 1e39},
        {2**64: 1.0},
    ],
)
def test_what_is_no_sparse_vector_is_refused(value):
    """Negative, too large or other keys; weights that are no finite numbers, as float32 either."""
    with pytest.raises(ValueError, match="sparse vector"):
        as_vector(value)


def test_sparse_results_come_through_each_for_its_text():
    """An embedder of dicts gives checked sparse vectors, in a list; a dense array of them there is
    not.
    """
    embedder = CheckedEmbedder(CallableEmbedder(lambda text: {str(len(text)): 0.5, 7: 0}))
    found = embedder.embed_each(["a", "bb"])
    assert found == embedder.embed(["a", "bb"]) == [{1: 0.5}, {2: 0.5}]
    assert embedder.embed([], SPARSE) == []
    with pytest.raises(EmbeddingError, match="must return dense vectors"):
        stack_dense(found, "The embedder")


@pytest.mark.parametrize(
    ("answers", "dimension", "wrong"),
    [
        ([{1: 0.5}, {2: 0.5}, [1.0]], 0, {2: "a dense vector where the others are sparse"}),
        ([[1.0], {2: 0.5}, [1.0]], 0, {1: "a sparse vector where the others are dense"}),
        ([{1: 0.5}, [1.0], [2.0]], SPARSE, {1: "a dense vector", 2: "a dense vector"}),
        ([{1: 0.5}, [1.0], [2.0]], 1, {0: "a sparse vector"}),
    ],
)
def test_a_vector_of_the_other_kind_fails_alone(answers, dimension, wrong):
    """What most texts of the first batch have, or what was there before, is right; the others say
    what is wrong.
    """

    def embed(texts):
        return answers

    embed.batch_size = 8
    embedder = CheckedEmbedder(CallableEmbedder(embed), "The embed", "k")
    found = embedder.embed_each(["a", "b", "c"], dimension)
    assert {
        at: str(one) for at, one in enumerate(found) if isinstance(one, EmbeddingError)
    }.keys() == wrong.keys()
    for at, told in wrong.items():
        assert told in str(found[at])
        assert found[at].embed_key == "k"


def test_results_of_several_kinds_are_not_put_together():
    """Neither vectors of two lengths nor a sparse one beside a dense one: an EmbeddingError says
    what was given.
    """
    with pytest.raises(EmbeddingError, match="different lengths: 2 instead of 1"):
        stack_embeddings([np.ones(1, np.float32), np.ones(2, np.float32)], "The embedder")
    with pytest.raises(EmbeddingError, match="a sparse vector where the others are dense"):
        stack_embeddings([np.ones(1, np.float32), {1: 0.5}], "The embedder")
    with pytest.raises(EmbeddingError, match="a dense vector where the others are sparse"):
        stack_embeddings([np.ones(1, np.float32)], "The embedder", SPARSE)


def test_every_text_is_in_one_batch():
    """The batches that a cache sees hold every place exactly once, failures included."""
    texts = [chr(ord("a") + position) for position in range(20)]
    batches = CheckedEmbedder(Whole(refused=["c", "q"], odd=["d"], size=6)).batches(texts)
    positions = Counter(position for batch in batches for position in batch.positions)
    assert positions == Counter(range(20))
