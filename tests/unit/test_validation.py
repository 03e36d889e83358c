"""Checks of what users pass: one wording for numbers, lists, names and keywords, wherever they are
passed.
"""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
import pytest

from lazyrag import (
    DataType,
    DocField,
    DocNode,
    Document,
    Reranker,
    Retriever,
    SentenceSplitter,
    register_reranker,
    register_similarity,
    register_transform,
)
from lazyrag.errors import ConfigError, LazyRAGError, UnknownKeywordError
from lazyrag.retrieval import rerankers, similarities
from lazyrag.transforms import transforms
from lazyrag.validation import (
    check_keywords,
    function_name,
    keyword_names,
    known_arguments,
    known_keywords,
    required_names,
    validate_choice,
    validate_integer,
    validate_range,
    validate_texts,
)


@pytest.mark.parametrize("value", [1, 5, np.int8(5), np.uint64(5)])
def test_a_whole_number_is_one_also_when_numpy_counted_it(value):
    """What comes back is Python's own int."""
    number = validate_integer("topk", value, 1, 5)
    assert number == value
    assert type(number) is int


@pytest.mark.parametrize(
    "value", [0, 6, -1, True, False, 2.0, "3", None, np.float64(2), np.bool_(True), [2]]
)
def test_anything_else_is_no_whole_number(value):
    """Out of range, truth values, floats and texts: the error says what was given and what is
    allowed.
    """
    with pytest.raises(ConfigError, match=r"^topk must be an integer from 1 to 5; got"):
        validate_integer("topk", value, 1, 5)


def test_a_bound_may_be_open():
    """Without a largest number the message names the least only."""
    assert validate_integer("offset", 10**30, 0) == 10**30
    with pytest.raises(ConfigError, match="offset must be an integer >= 0; got -1"):
        validate_integer("offset", -1, 0)


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.25)])
def test_a_number_may_be_either_bound_of_its_range(value):
    """What comes back is Python's own float."""
    number = validate_range("share", value, 0, 1)
    assert number == value
    assert type(number) is float


@pytest.mark.parametrize("value", [-0.1, 1.5, True, "1", None, float("nan"), float("inf")])
def test_anything_else_is_no_number_of_the_range(value):
    """The message names both bounds; without a largest number the least only, and no infinity."""
    with pytest.raises(ConfigError, match=r"^share must be a number from 0 to 1; got"):
        validate_range("share", value, 0, 1)
    with pytest.raises(ConfigError, match=r"^share must be a number >= 2; got"):
        validate_range("share", value, 2)


@pytest.mark.parametrize("choices", [("rank", "document"), Literal["rank", "document"]])
def test_choices_may_be_a_literal(choices):
    """The names of a `Literal` are the same choices as a tuple of them."""
    assert validate_choice("order", "rank", choices) == "rank"
    with pytest.raises(ConfigError, match=r"Known: document, rank\. Did you mean 'rank'"):
        validate_choice("order", "rnak", choices)


def test_a_list_of_texts_becomes_a_tuple():
    """Lists and tuples are taken, and can be empty."""
    assert validate_texts("keys", ["a", "茶"]) == validate_texts("keys", ("a", "茶")) == ("a", "茶")
    assert validate_texts("keys", []) == ()


@pytest.mark.parametrize(
    "value", ["ab", {"a"}, {"a": 1}, iter(["a"]), None, 5, ["a", ""], ["a", " "], ["a", 5], [b"a"]]
)
def test_anything_else_is_no_list_of_texts(value):
    """A single text, what can be read once only, and blank or other items are refused."""
    with pytest.raises(ConfigError, match="keys must be a list of strings"):
        validate_texts("keys", value)


def test_the_name_of_a_function():
    """The given name goes before the function's own."""
    assert function_name("register", len, None) == "len"
    assert function_name("register", len, "size") == "size"
    assert function_name("register", functools.partial(len), "size") == "size"
    with pytest.raises(ConfigError, match="register got 5; give a function or a class"):
        function_name("register", 5, "five")
    with pytest.raises(ConfigError, match=r"no name of its own\. Pass name='\.\.\.'"):
        function_name("register", functools.partial(len), None)


def test_keywords_of_a_function():
    """Positional-only and skipped parameters cannot be given by name; those without default are
    required.
    """

    def function(nodes, only, /, model, topk=3, *rest, deep, wide=1, **more):
        """Take one of each kind."""

    assert keyword_names(function, skip=1) == (["model", "topk", "deep", "wide"], True)
    assert required_names(function, skip=1) == ["model", "deep"]
    assert keyword_names(lambda query, node: 0, skip=2) == ([], False)
    assert keyword_names(dict, skip=0) == ([], True)  # written in C, it does not tell
    assert required_names(dict, skip=0) == []


def test_misspelt_keywords_of_a_function_that_takes_any():
    """A keyword that looks like a known one is a slip also where any other keyword is taken."""

    def function(query, nodes, boost=1, **more):
        """Take any keyword."""

    check_keywords("It", function, {"boost": 2, "colour": 3}, skip=2, also_known=["topk"])
    with pytest.raises(
        UnknownKeywordError, match=r"It takes no keyword 'bosst'.*Did you mean 'boost'\?"
    ):
        check_keywords("It", function, {"bosst": 2}, skip=2)
    with pytest.raises(UnknownKeywordError, match=r"Did you mean 'topk'\?"):
        check_keywords("It", function, {"topK": 2}, skip=2, also_known=["topk"])


def test_known_keywords_changes_nothing_else():
    """The decorated function keeps name and docstring, and Python's own errors for what is missing
    or given twice.
    """

    @known_keywords
    def search(query, /, topk=6, *, deep=False):
        """Search."""
        return query, topk, deep

    assert (search.__name__, search.__doc__) == ("search", "Search.")
    assert search("tea", 3, deep=True) == ("tea", 3, True)
    for wrong in (search, lambda: search("a", 1, topk=2), lambda: search("a", 1, 2)):
        with pytest.raises(TypeError) as caught:
            wrong()
        assert not isinstance(caught.value, LazyRAGError)


def test_known_arguments_checks_a_constructor():
    """An unknown argument of the class names the class and the nearest argument; subclasses may
    take their own.
    """

    @known_arguments
    class Kettle:
        """Holds water."""

        def __init__(self, litres=1):
            self.litres = litres

    class Samovar(Kettle):
        """Has a tap."""

        def __init__(self, litres, taps):
            super().__init__(litres=litres)
            self.taps = taps

    assert Kettle(2).litres == Kettle(litres=2).litres == Samovar(2, taps=1).litres == 2
    with pytest.raises(
        UnknownKeywordError, match=r"Kettle takes no argument 'liters'.*Did you mean 'litres'\?"
    ):
        Kettle(liters=2)


@pytest.mark.parametrize(
    ("call", "near"),
    [
        (
            lambda: Retriever(Document(), "FineChunk", "bm25")("q", filter={}),
            "Did you mean 'filters'",
        ),
        (lambda: Retriever(Document(), "FineChunk", "bm25")("q", top_k=3), "Did you mean 'topk'"),
        (lambda: Document().get_nodes(filter={}), "Did you mean 'filters'"),
        (lambda: Document(embedding=len), "Did you mean 'embed'"),
        (lambda: Reranker("KeywordFilter")([], top_k=3), "Known: nodes, query, topk"),
        (lambda: Reranker("KeywordFilter", required_key=["a"]), "Did you mean 'required_keys'"),
        (lambda: register_similarity(mod="text"), "Did you mean 'mode'"),
        (lambda: register_reranker(batched=True), "Did you mean 'batch'"),
        (lambda: register_transform(nam="a"), "Did you mean 'name'"),
        (lambda: DocField(DataType.VARCHAR, max_length=3), "max_size"),
        (lambda: DocNode(txt="a"), "Did you mean 'text'"),
        (lambda: SentenceSplitter(chunk_sizes=3), "Did you mean 'chunk_size'"),
    ],
)
def test_an_unknown_keyword_names_the_known_ones(call, near):
    """Everywhere in the public interface it is a ConfigError and a TypeError that says what was
    meant.
    """
    with pytest.raises(UnknownKeywordError, match=near) as caught:
        call()
    assert isinstance(caught.value, ConfigError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("register", "registry"),
    [
        (register_similarity, similarities),
        (register_reranker, rerankers),
        (register_transform, transforms),
    ],
)
def test_a_partial_needs_a_name(register, registry):
    """A partial has no name of its own: the error says name=, and with it the partial is
    registered.
    """
    nameless = functools.partial(lambda first, *rest: first)
    with pytest.raises(ConfigError, match=r"Pass name='\.\.\.'"):
        register(nameless)
    assert register(nameless, name="mine") is nameless
    assert "mine" in registry


def test_methods_are_called_by_the_class_that_users_hold():
    """An unknown keyword of a Document's method does not name the base that the method comes
    from.
    """
    with pytest.raises(UnknownKeywordError, match=r"^Document\.window takes no argument 'size'"):
        Document().window([], size=3)
