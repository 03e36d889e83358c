"""Bare callables as rerank models, and the check of what rerank models return."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.models import AsyncReranker, CallableRerankModel, RerankModel
from lazyrag.models.rerank import as_rerank_model, checked_ranking


def by_length(query, documents, top_n):
    """Longer is better; in no order, and all of them."""
    return [(index, len(text)) for index, text in enumerate(documents)]


def test_a_callable_ranks():
    """Its pairs come best first, ties by index, and no more than asked for."""
    model = CallableRerankModel(by_length)
    documents = ["aa", "b", "cc", "dddd"]
    assert model("q", documents) == [(3, 4.0), (0, 2.0), (2, 2.0), (1, 1.0)]
    assert model("q", tuple(documents), top_n=2) == [(3, 4.0), (0, 2.0)]


def test_how_it_is_called():
    """documents and top_n by keyword, as spec 001 writes it; further keywords are passed on."""
    seen = []

    def model(query, *, documents, top_n, prompt="none"):
        seen.append((query, documents, top_n, prompt))
        return []

    CallableRerankModel(model)("q", ["a", "b"])
    CallableRerankModel(model)("q", ["a", "b"], top_n=9)
    CallableRerankModel(model)("q", ["a", "b"], 1, prompt="p")
    assert seen == [
        ("q", ["a", "b"], 2, "none"),
        ("q", ["a", "b"], 2, "none"),
        ("q", ["a", "b"], 1, "p"),
    ]


def test_no_documents_need_no_call():
    """And a model may leave documents out."""
    assert CallableRerankModel(lambda *args, **kwargs: 1 / 0)("q", []) == []
    assert CallableRerankModel(lambda query, documents, top_n: [(1, 0.5)])("q", ["a", "b"]) == [
        (1, 0.5)
    ]


def test_what_it_raises_is_the_cause():
    """In a RetrievalError that names it."""
    with pytest.raises(RetrievalError, match="raised ZeroDivisionError") as caught:
        CallableRerankModel(lambda *args, **kwargs: 1 / 0)("q", ["a"])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "wrong", [("q", "text"), ("q", [1]), ("q", ["a"], 0), ("q", ["a"], True)], ids=repr
)
def test_arguments_that_make_no_sense_are_refused(wrong):
    """One text for documents, things that are no texts, a top_n below 1."""
    with pytest.raises(ConfigError, match=r"documents|top_n"):
        CallableRerankModel(by_length)(*wrong)


def test_a_rerank_model_stays_as_it_is():
    """A callable becomes one, anything else is refused."""
    model = as_rerank_model(by_length)
    assert isinstance(model, RerankModel)
    assert model.identity == ""
    assert as_rerank_model(model) is model
    with pytest.raises(ConfigError, match="The rerank model must be"):
        as_rerank_model("bge")


def test_who_says_which_model_it_is():
    """identity, or model_name."""

    def model(query, documents, top_n):
        return []

    model.model_name = "bge"
    assert CallableRerankModel(model).identity == "bge"


@pytest.mark.parametrize(
    "returned",
    [
        None,
        7,
        "ab",
        [1],
        [("a", 1)],
        [(0.0, 1.0)],
        [(0, None)],
        [(0, 10**400)],
        [(3, 1.0)],
        [(-1, 1.0)],
        [(0, 1.0), (0, 1.0)],
        [(0, float("nan"))],
        [(0, float("-inf"))],
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_ranking_is_refused(returned):
    """Pairs, whole indices in range that come once, finite scores; the message names the model."""
    with pytest.raises(RetrievalError, match=r"My model .*return"):
        checked_ranking(returned, 3, "My model")


@given(st.dictionaries(st.integers(0, 19), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_ranking_is_the_same_pairs_in_order(scores):
    """Any scores, numpy's numbers too: best first, ties by index, nothing lost."""
    ranking = checked_ranking(
        [(np.int64(index), np.float64(score)) for index, score in scores.items()], 20
    )
    assert dict(ranking) == scores
    assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
    assert all(type(index) is int and type(score) is float for index, score in ranking)


@pytest.mark.parametrize("query", ["", " ", 3, None], ids=repr)
def test_a_blank_query_is_refused(query):
    """By the model and by each method of an AsyncReranker over it, also where there is nothing to
    rank.
    """
    model = CallableRerankModel(by_length)
    faced = AsyncReranker(by_length)
    for documents in (["a"], []):
        for ask in (
            lambda documents: model(query, documents),
            lambda documents: faced.get_scores(query, documents),
            lambda documents: asyncio.run(faced.aget_scores(query, documents)),
            lambda documents: asyncio.run(faced.rerank(query, documents)),
        ):
            with pytest.raises(ConfigError, match=r"query must be a string that is not blank"):
                ask(documents)
