"""Node groups: how they are defined, what transforms may return, where their nodes stand."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import (
    DataType,
    DocField,
    DocNode,
    Document,
    IngestionWarning,
    NodeTransform,
    Retriever,
    SentenceSplitter,
    register_loader,
    register_similarity,
    register_transform,
)
from lazyrag.errors import (
    AlreadyRegisteredError,
    ConfigError,
    IngestionError,
    NotRegisteredError,
    StaleNodeError,
    TransformError,
)
from lazyrag.transforms.base import run_transform

TEXT = "Green tea. Black tea.\nCoffee. Milk."


@pytest.fixture
def docs(folder):
    """A Document of one short file."""
    return Document(folder({"a.txt": TEXT}))


def texts(docs: Document, group: str) -> list[str]:
    """The texts of a group's nodes."""
    return [node.text for node in docs.get_nodes(group)]


def contents(docs: Document, group: str) -> list:
    """The contents of a group's nodes, with their types."""
    return [node.content for node in docs.get_nodes(group)]


def test_built_in_groups(docs):
    """Every Document has three groups of chunks, which are children of whole documents."""
    for group in (Document.FineChunk, Document.MediumChunk, Document.CoarseChunk):
        assert texts(docs, group) == [TEXT]
        assert docs.get_nodes(group)[0].parent == docs.get_nodes()[0]


def test_an_instance_s_group_is_its_own(docs):
    """A group defined on one Document is unknown to others."""
    docs.create_node_group("line", transform=str.splitlines)
    assert len(docs.get_nodes("line")) == 2
    with pytest.raises(NotRegisteredError, match="no node group 'line'"):
        Document().get_nodes("line")


def test_a_class_s_group_is_there_for_all(docs):
    """A group defined on the class is there for every Document, also for those that exist and were
    asked already.
    """
    docs.get_nodes("FineChunk")
    Document.create_node_group("line", transform=str.splitlines)
    docs.create_node_group("word", transform=str.split, parent="line")
    assert len(docs.get_nodes("line")) == 2
    assert len(docs.get_nodes("word")) == 6
    assert Document().get_nodes("line") == []


def test_an_instance_s_group_shadows_the_class_s(docs, folder):
    """An instance may define a group that the class has, built-in ones too; other Documents keep
    the class's.
    """
    Document.create_node_group("line", transform=str.splitlines)
    docs.create_node_group("line", transform=str.upper)
    docs.create_node_group("FineChunk", transform=str.lower)
    other = Document(folder({}))
    assert (texts(docs, "line"), texts(docs, "FineChunk")) == ([TEXT.upper()], [TEXT.lower()])
    assert (texts(other, "line"), texts(other, "FineChunk")) == (TEXT.splitlines(), [TEXT])


def test_a_group_on_the_class_behind_an_instance_s_one(docs):
    """What is defined on the class later does not change an instance that has its own group of that
    name.
    """
    docs.create_node_group("line", transform=str.upper)
    Document.create_node_group("line", transform=str.splitlines)
    assert texts(docs, "line") == [TEXT.upper()]


def test_groups_beneath_a_shadowed_one(docs, folder):
    """A group of the class whose parent an instance shadows is built there from the instance's
    parent.
    """
    Document.create_node_group("line", transform=str.splitlines)
    Document.create_node_group("word", transform=str.split, parent="line")
    docs.create_node_group("line", transform=str.upper)
    assert texts(docs, "word") == TEXT.upper().split()
    assert texts(Document(folder({})), "word") == TEXT.split()


def test_a_subclass_has_its_own_groups(folder):
    """What is defined on a subclass is there for its Documents, not for others; what the base has
    is there for both.
    """

    class Notes(Document):
        """A kind of Document."""

    Notes.create_node_group("line", transform=str.splitlines)
    Document.create_node_group("whole", transform=str.upper)
    root = folder({"a.txt": TEXT})
    assert texts(Notes(root), "line") == TEXT.splitlines()
    assert texts(Notes(root), "whole") == texts(Document(root), "whole") == [TEXT.upper()]
    with pytest.raises(NotRegisteredError):
        Document(root).get_nodes("line")


@pytest.mark.slow
def test_the_same_definition_again_changes_nothing(docs):
    """Defining a group again by the same code, as a notebook's cell does, is no error and builds
    nothing anew.
    """
    calls = Counter()

    def count(text):
        calls["made"] += 1
        return text

    for _ in range(2):
        docs.create_node_group("same", transform=count)
        docs.create_node_group("line", transform=lambda text: text.splitlines())
        assert texts(docs, "same") == [TEXT]
    assert calls["made"] == 1


@pytest.mark.parametrize(
    "other",
    [
        {"transform": str.lower},
        {"transform": str.upper, "parent": "FineChunk"},
        {"transform": str.upper, "version": "2"},
        {"transform": lambda node: node.text.upper(), "trans_node": True},
        {"transform": SentenceSplitter},
    ],
)
def test_another_definition_needs_replace(docs, other):
    """Another transform, parent, version or kind of transform under a taken name is refused and
    changes nothing.
    """
    docs.create_node_group("group", transform=str.upper)
    with pytest.raises(AlreadyRegisteredError, match=r"'group' is defined already.*replace=True"):
        docs.create_node_group("group", **other)
    assert texts(docs, "group") == [TEXT.upper()]
    docs.create_node_group("group", replace=True, **other)
    assert len(docs.get_nodes("group")) == 1


def test_a_notebook_cell_that_runs_again_replaces_its_group(docs):
    """An edited cell defines the group anew, directly or in a function of the notebook; a program
    that a notebook imports does not.
    """
    cell = """
def define(transform):
    docs.create_node_group("group", transform)
define(str.upper)
docs.create_node_group("chunk", "SentenceSplitter", chunk_size=8, chunk_overlap=0)
"""
    notebook = {"__name__": "__main__", "get_ipython": object, "docs": docs}
    exec(cell, notebook)  # noqa: S102
    assert texts(docs, "group") == [TEXT.upper()]
    exec(cell.replace("upper", "lower").replace("size=8", "size=4"), notebook)  # noqa: S102
    assert texts(docs, "group") == [TEXT.lower()]
    with pytest.raises(AlreadyRegisteredError, match="replace=True"):
        exec(cell, {**notebook, "__name__": "my_module"})  # noqa: S102


def test_replace_on_the_class_reaches_documents_that_exist(docs):
    """A class's group that is replaced is built anew in Documents that have built it already."""
    Document.create_node_group("group", transform=str.upper)
    assert texts(docs, "group") == [TEXT.upper()]
    Document.create_node_group("group", transform=str.lower, replace=True)
    assert texts(docs, "group") == [TEXT.lower()]


def test_other_parameters_are_another_definition(docs):
    """A class with other parameters, and a function over another value, are other definitions."""
    docs.create_node_group("chunk", transform=SentenceSplitter, chunk_size=8, chunk_overlap=0)
    docs.create_node_group("chunk", transform=SentenceSplitter, chunk_size=8, chunk_overlap=0)
    with pytest.raises(AlreadyRegisteredError):
        docs.create_node_group("chunk", transform=SentenceSplitter, chunk_size=4, chunk_overlap=0)

    def splitter(mark):
        return lambda text: text.split(mark)

    docs.create_node_group("split", transform=splitter("."))
    docs.create_node_group("split", transform=splitter("."))
    with pytest.raises(AlreadyRegisteredError):
        docs.create_node_group("split", transform=splitter(","))


def test_replace_rebuilds_descendants_and_nothing_else(folder):
    """A replaced group and those beneath it are built anew; its parents and siblings keep what they
    have.
    """
    calls = Counter()

    def counted(name, function):
        def transform(text):
            calls[name] += 1
            return function(text)

        return transform

    docs = Document(folder({"a.txt": TEXT, "b.txt": "Water."}))
    docs.create_node_group("line", transform=counted("line", str.splitlines))
    docs.create_node_group("upper", transform=counted("upper", str.upper), parent="line")
    docs.create_node_group("word", transform=counted("word", str.split), parent="upper")
    docs.create_node_group("sibling", transform=counted("sibling", str.split), parent="line")
    docs.create_node_group("other", transform=counted("other", str.split))
    groups = ("line", "upper", "word", "sibling", "other")
    docs.activate_group(*groups)
    first = dict(calls)
    assert first == {"line": 2, "upper": 3, "word": 3, "sibling": 3, "other": 2}
    before = {group: docs.get_nodes(group) for group in groups}

    docs.create_node_group(
        "upper",
        transform=counted("upper", lambda text: text.upper() + " END"),
        parent="line",
        replace=True,
    )
    docs.activate_group(*groups)
    assert dict(calls) == {"line": 2, "upper": 6, "word": 6, "sibling": 3, "other": 2}
    assert len(docs.get_nodes("word")) == len(before["word"]) + 3
    assert all(docs.get_nodes(group) == before[group] for group in ("line", "sibling", "other"))
    assert Retriever(docs, "word", similarity="bm25")("END")[0].text == "END"


def test_replace_with_an_object_that_cannot_be_seen_into(docs):
    """A function over another list looks the same from outside; with replace=True it is built anew
    all the same.
    """

    def finder(words):
        return lambda text: [word for word in words if word in text]

    docs.create_node_group("found", transform=finder(["Coffee"]))
    assert texts(docs, "found") == ["Coffee"]
    with pytest.raises(AlreadyRegisteredError):
        docs.create_node_group("found", transform=finder(["Milk"]))
    docs.create_node_group("found", transform=finder(["Milk"]), replace=True)
    assert texts(docs, "found") == ["Milk"]


def test_replace_with_the_same_code_and_another_version(docs):
    """A new version of what cannot be seen, such as a model, is told by version= and built anew."""
    answers = iter(["first", "second"])

    def ask(text):
        return next(answers)

    docs.create_node_group("summary", transform=ask, version="1")
    assert texts(docs, "summary") == ["first"]
    docs.create_node_group("summary", transform=ask, version="1")
    assert texts(docs, "summary") == ["first"]
    docs.create_node_group("summary", transform=ask, version="2", replace=True)
    assert texts(docs, "summary") == ["second"]


def test_going_back_to_an_earlier_definition(docs):
    """A group that is replaced and then replaced by its first definition has that one's nodes."""
    docs.create_node_group("group", transform=str.upper)
    docs.create_node_group("below", transform=str.split, parent="group")
    first = texts(docs, "below")
    docs.create_node_group("group", transform=str.lower, replace=True)
    assert texts(docs, "below") == TEXT.lower().split()
    docs.create_node_group("group", transform=str.upper, replace=True)
    assert texts(docs, "below") == first == TEXT.upper().split()


def test_unknown_parents_name_the_nearest(docs):
    """A parent that is not defined is refused at definition, with the known groups and the nearest
    one.
    """
    with pytest.raises(
        NotRegisteredError,
        match=r"no node group 'FineChunks'. Known: CoarseChunk, FineChunk.*'FineChunk'",
    ):
        docs.create_node_group("group", transform=str.upper, parent="FineChunks")
    with pytest.raises(NotRegisteredError):
        Document.create_node_group("group", transform=str.upper, parent="nothing like it")


def test_an_instance_s_group_is_no_parent_for_the_class(docs):
    """A group of the class cannot stand on one that only an instance has."""
    docs.create_node_group("own", transform=str.upper)
    with pytest.raises(NotRegisteredError):
        Document.create_node_group("group", transform=str.upper, parent="own")


@pytest.mark.parametrize("parent", ["a", "b", "c"])
def test_circles_are_refused(docs, parent):
    """A group cannot stand on itself or on a group beneath it; the message shows the circle, and
    nothing changes.
    """
    docs.create_node_group("a", transform=str.upper)
    docs.create_node_group("b", transform=str.lower, parent="a")
    docs.create_node_group("c", transform=str.title, parent="b")
    with pytest.raises(ConfigError, match=r"'a' would be its own ancestor: a <- .*a"):
        docs.create_node_group("a", transform=str.upper, parent=parent, replace=True)
    assert texts(docs, "c") == [TEXT.title()]


def test_a_new_group_cannot_be_its_own_parent(docs):
    """A name that is not defined yet cannot be its own parent."""
    with pytest.raises(ConfigError, match="'group' would be its own ancestor"):
        docs.create_node_group("group", transform=str.upper, parent="group")


def test_a_circle_of_class_and_instance(docs):
    """A circle that definitions of class and instance make together is an error for its groups
    only.
    """
    Document.create_node_group("a", transform=str.upper)
    Document.create_node_group("b", transform=str.lower)
    docs.create_node_group("a", transform=str.title, parent="b")
    assert texts(docs, "a") == [TEXT.title()]
    Document.create_node_group("b", transform=str.lower, parent="a", replace=True)
    with pytest.raises(ConfigError, match="form a circle"):
        docs.get_nodes("a")
    assert texts(docs, "FineChunk") == [TEXT]
    assert texts(docs, "lazyllm_root") == [TEXT]


@pytest.mark.parametrize("name", ["", "  ", None, 5, "lazyllm_root", "lazyllm-root"])
def test_wrong_names(docs, name):
    """A group's name is a text that is not blank and not the root group's."""
    with pytest.raises(
        ConfigError, match=r"must be a string that is not blank|is the group of whole documents"
    ):
        docs.create_node_group(name, transform=str.upper)


@pytest.mark.parametrize(
    "name", ["doc-summary", "段落", "a b", "x" * 300, "UPPER", "upper", "a/b.c"]
)
def test_any_other_name(docs, name):
    """A group may have any other name, also one that no store would take."""
    docs.create_node_group(name, transform=str.split)
    assert texts(docs, name) == TEXT.split()
    assert Retriever(docs, name, similarity="bm25")("coffee")[0].group == name


def test_names_that_differ_little_are_different_groups(docs):
    """Names that differ in case or in a sign only are names of different groups."""
    names = ["a-b", "a_b", "A-b", "a b"]
    for name in names:
        docs.create_node_group(name, transform=lambda text, name=name: f"of {name}")
    assert [texts(docs, name) for name in names] == [["of a-b"], ["of a_b"], ["of A-b"], ["of a b"]]


@pytest.mark.parametrize("version", [5, 1.0, ["a"]])
def test_wrong_versions(docs, version):
    """A version is a text."""
    with pytest.raises(ConfigError, match="version must be a text"):
        docs.create_node_group("group", transform=str.upper, version=version)


def test_groups_after_the_first_query(docs):
    """Groups can be added and asked after others were, on the instance and on the class, on built
    and new parents.
    """
    assert Retriever(docs, "FineChunk", similarity="bm25")("coffee")
    docs.create_node_group("line", transform=str.splitlines)
    assert texts(docs, "line") == TEXT.splitlines()
    docs.create_node_group("word", transform=str.split, parent="line")
    assert Retriever(docs, "word", similarity="bm25")("coffee")[0].parent.text == "Coffee. Milk."
    Document.create_node_group("chunk word", transform=str.split, parent="FineChunk")
    assert len(docs.get_nodes("chunk word")) == 6


class Upper(NodeTransform):
    """Upper case, with an end."""

    def __init__(self, end: str = "", *, times: int = 1):
        """Keep the parameters."""
        self.end = end
        self.times = times

    def transform(self, node):
        """The node's text in upper case."""
        return [node.get_text().upper() + self.end] * self.times


class Callable:
    """An object that can be called with text."""

    def __call__(self, text):
        """The text in lower case."""
        return text.lower()

    def method(self, text):
        """The text's words."""
        return text.split()


def generate(text):
    """A generator of lines."""
    yield from text.splitlines()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("transform", "options", "expected"),
    [
        (str.upper, {}, [TEXT.upper()]),
        (lambda text: text.split(". "), {}, TEXT.split(". ")),
        (generate, {}, TEXT.splitlines()),
        (lambda text: (line for line in text.splitlines()), {}, TEXT.splitlines()),
        (lambda text: map(str.upper, text.splitlines()), {}, TEXT.upper().splitlines()),
        (lambda text: tuple(text.splitlines()), {}, TEXT.splitlines()),
        (lambda node: node.text.upper(), {"trans_node": True}, [TEXT.upper()]),
        (
            lambda node: f"{node.path} {node.number} {node.global_metadata['file_size']}",
            {"trans_node": True},
            ["a.txt 1 35"],
        ),
        (Upper, {}, [TEXT.upper()]),
        (Upper, {"end": "!"}, [TEXT.upper() + "!"]),
        (Upper, {"end": "?", "times": 2}, [TEXT.upper() + "?"] * 2),
        (Upper("!"), {}, [TEXT.upper() + "!"]),
        (Upper("!"), {"trans_node": True}, [TEXT.upper() + "!"]),
        (Callable(), {}, [TEXT.lower()]),
        (Callable, {}, [TEXT.lower()]),
        (Callable().method, {}, TEXT.split()),
        (functools.partial(str.split, sep=". "), {}, TEXT.split(". ")),
        (functools.partial(lambda mark, text: text.split(mark), "\n"), {}, TEXT.split("\n")),
        (len, {}, ["35"]),
        (
            "SentenceSplitter",
            {"chunk_size": 8, "chunk_overlap": 0},
            ["Green tea. Black tea.\n", "Coffee. Milk."],
        ),
        (
            SentenceSplitter(chunk_size=8, chunk_overlap=0),
            {},
            ["Green tea. Black tea.\n", "Coffee. Milk."],
        ),
    ],
)
def test_transforms_of_every_kind(docs, transform, options, expected):
    """Functions on text or nodes, generators, classes, instances, callables and registered names
    work.
    """
    docs.create_node_group("group", transform, **options)
    assert texts(docs, "group") == expected


def test_registered_transforms(docs):
    """Functions and classes that are registered can be named, under their own name or another."""
    register_transform(generate)
    register_transform(name="shout")(Upper)
    docs.create_node_group("line", transform="generate")
    docs.create_node_group("loud", transform="shout", end="!", parent="line")
    assert texts(docs, "loud") == [line.upper() + "!" for line in TEXT.splitlines()]


@pytest.mark.parametrize(
    ("transform", "options", "error", "words"),
    [
        ("SentencSplitter", {}, NotRegisteredError, "Did you mean 'SentenceSplitter'"),
        (None, {}, ConfigError, "transform of 'group' must be a function"),
        (5, {}, ConfigError, "transform of 'group' must be a function"),
        ([], {}, ConfigError, "at least one TransformArgs"),
        ([5], {}, ConfigError, "f must be a function"),
        (["SentencSplitter"], {}, NotRegisteredError, "Did you mean 'SentenceSplitter'"),
        (
            Upper,
            {"ende": "!"},
            ConfigError,
            "Upper cannot be made with.*Its parameters: end, times. Did you mean 'end'",
        ),
        (Upper, {"end": "!", "chunk_size": 5}, ConfigError, "Upper cannot be made with"),
        (
            str.upper,
            {"chunk_size": 5},
            ConfigError,
            "'chunk_size', which only a transform class takes",
        ),
        (
            str.upper,
            {"parnet": "FineChunk"},
            ConfigError,
            "'parnet', which only .*Did you mean 'parent'",
        ),
        (Upper("!"), {"end": "?"}, ConfigError, "'end', which only a transform class takes"),
        (SentenceSplitter, {"chunk_size": 0}, ConfigError, "chunk_size"),
        (SentenceSplitter, {"chunk_size": 8, "chunk_overlap": 8}, ConfigError, "chunk_overlap"),
        (SentenceSplitter, {"chunk_sise": 8}, ConfigError, "Did you mean 'chunk_size'"),
    ],
)
def test_wrong_transforms(docs, transform, options, error, words):
    """What cannot transform, and wrong parameters, are refused at definition with what is
    allowed.
    """
    with pytest.raises(error, match=words):
        docs.create_node_group("group", transform, **options)
    with pytest.raises(NotRegisteredError):
        docs.get_nodes("group")


def test_asynchronous_functions_are_refused_at_definition(docs):
    """Coroutine functions and asynchronous generators are refused at definition."""

    async def later(text):
        """Answers later."""
        return text

    async def one_by_one(text):
        """Yields later."""
        yield text

    for transform in (later, one_by_one):
        with pytest.raises(ConfigError, match="asynchronous"):
            docs.create_node_group("group", transform)


def test_a_class_that_needs_parameters(docs):
    """A class that cannot be made without parameters is refused at definition with its
    parameters.
    """

    class Needy(NodeTransform):
        """Needs a model."""

        def __init__(self, model):
            """Keep the model."""
            self.model = model

        def transform(self, node):
            """What the model says."""
            return self.model(node.text)

    with pytest.raises(ConfigError, match="Its parameters: model"):
        docs.create_node_group("group", Needy)
    docs.create_node_group("group", Needy, model=str.upper)
    assert texts(docs, "group") == [TEXT.upper()]


def test_a_node_transform_needs_transform():
    """A subclass of NodeTransform that does not override transform is refused when it is
    written.
    """
    with pytest.raises(ConfigError, match="transform"):
        type("Empty", (NodeTransform,), {})


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("text", ["text"]),
        (["a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        (5, [5]),
        (0, [0]),
        (2.5, [2.5]),
        (False, [False]),
        (True, [True]),
        ([0, False, 0.0, 1], [0, False, 0.0, 1]),
        (None, []),
        ("", []),
        (" \n\u3000", []),
        ([], []),
        (["a", None, "", " ", "b"], ["a", "b"]),
        ([None], []),
        ({"title": "茶", "pages": [1, 2]}, [{"title": "茶", "pages": [1, 2]}]),
        ([{"a": 1}, {"b": 2}], [{"a": 1}, {"b": 2}]),
        ({"a": 1}.values(), [1]),
        (range(3), [0, 1, 2]),
        (np.int64(7), [7]),
        (np.array([1.5, 2.5]), [1.5, 2.5]),
        (np.bool_(False), [False]),
        (DocNode(text="node"), ["node"]),
        ([DocNode(text="node"), "text", 3], ["node", "text", 3]),
        (DocNode(content={"a": 1}), [{"a": 1}]),
        (DocNode(content=0), [0]),
        ([DocNode(text=" "), "a"], ["a"]),
    ],
    ids=str,
)
def test_what_transforms_may_return(docs, returned, expected):
    """Text, numbers, 0 and False, mappings, nodes and iterables of these become nodes; None and
    blank text do not.
    """
    docs.create_node_group("group", transform=lambda text: returned)
    found = contents(docs, "group")
    assert found == expected
    assert [type(one) for one in found] == [type(one) for one in expected]
    assert [node.number for node in docs.get_nodes("group")] == list(range(1, len(expected) + 1))


@pytest.mark.parametrize(
    ("content", "text"), [(0, "0"), (False, "False"), (2.5, "2.5"), ({"名": [1]}, '{"名": [1]}')]
)
def test_content_keeps_its_type_and_text_is_its_str(docs, content, text):
    """A node's content is what the transform returned, its text is that as text, by which it can be
    found.
    """
    docs.create_node_group("group", transform=lambda _: [content])
    [node] = docs.get_nodes("group")
    assert (node.content, node.text, node.get_text()) == (content, text, text)


def test_content_reaches_the_next_group(docs):
    """A function gets its parent's content with its type, not its text."""
    docs.create_node_group("length", transform=len)
    docs.create_node_group("double", transform=lambda length: 2 * length, parent="length")
    docs.create_node_group("record", transform=lambda text: {"first": text[0], "length": len(text)})
    docs.create_node_group("field", transform=lambda record: record["length"], parent="record")
    assert contents(docs, "double") == [2 * len(TEXT)]
    assert contents(docs, "field") == [len(TEXT)]


def test_a_transform_cannot_change_its_parent(docs):
    """A transform that takes the mapping it gets apart leaves the parent's content as it was, as
    does who reads it.
    """
    docs.create_node_group("record", transform=lambda text: {"first": text[0], "tags": ["tea"]})
    docs.create_node_group(
        "field", transform=lambda record: [record.pop("first"), *record["tags"]], parent="record"
    )
    assert contents(docs, "field") == ["G", "tea"]
    docs.get_nodes("record")[0].content["tags"].append("late")
    assert contents(docs, "record") == [{"first": "G", "tags": ["tea"]}]


async def _coroutine():
    """A text, later."""
    return "text"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (lambda text: {"a", "b"}, r"returned a set, whose order changes.*sorted"),
        (lambda text: frozenset("ab"), "returned a set"),
        (lambda text: b"bytes", "returned bytes. Allowed: str"),
        (lambda text: bytearray(b"x"), "returned bytearray"),
        (lambda text: [b"bytes"], "iterable with bytes in it"),
        (lambda text: [["a", "b"], ["c"]], "iterable with list in it"),
        (lambda text: [("a", 1)], "iterable with tuple in it"),
        (lambda text: ["a", {"b"}], "iterable with set in it"),
        (lambda text: object(), "returned object"),
        (lambda text: [object()], "iterable with object in it"),
        (lambda text: _coroutine(), "asynchronous"),
        (lambda text: float("nan"), "JSON"),
        (lambda text: {"a": object()}, "JSON"),
        (lambda text: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda text: text.no_such_method(), "raised AttributeError"),
        (lambda text: DocNode(), "raised ConfigError: A DocNode takes"),
        (lambda text: [DocNode(text="Milk", span=(0, 4))], r"parent's"),
        (lambda text: [DocNode(text="Milk", span=(0, 4000))], "text"),
        (lambda text: [DocNode(text="Milk", span="here")], "span"),
        (lambda text: [DocNode(text="Milk", span=(30,))], "span"),
        (lambda text: [DocNode(text="x", metadata={"handle": object()})], "JSON value"),
        (lambda a, b: a, "raised TypeError"),
        (lambda: "x", "raised TypeError"),
    ],
    ids=range(23),
)
def test_what_transforms_may_not_return(folder, transform, words):
    """Whatever else a transform returns or raises is a TransformError that names group and file,
    not another error.
    """
    docs = Document(folder({"a.txt": TEXT}))
    docs.create_node_group("group", transform=transform)
    with pytest.raises(IngestionError, match=words) as caught:
        docs.get_nodes("group")
    assert isinstance(caught.value.__cause__, TransformError)
    assert caught.value.__cause__.group == "group"
    [failure] = docs.last_report.failed
    assert (failure.path, failure.stage) == ("a.txt", "transform group")


def test_an_asynchronous_generator_that_is_returned(docs):
    """An asynchronous generator that a plain function returns is refused, too."""

    async def later():
        """Answers later."""
        yield "text"

    docs.create_node_group("group", transform=lambda text: later())
    with pytest.raises(IngestionError, match="asynchronous"):
        docs.get_nodes("group")


def test_a_transform_error_names_the_parent(folder):
    """A transform's failure tells the uid of the node that it failed on, and keeps what was raised
    as its cause.
    """
    docs = Document(folder({"a.txt": "good\nbad\ngood", "b.txt": "good"}))
    docs.create_node_group("line", transform=str.splitlines)
    docs.create_node_group("checked", transform=lambda line: {"good": "fine"}[line], parent="line")
    with pytest.warns(IngestionWarning, match="raised KeyError: 'bad'"):
        assert [node.path for node in docs.get_nodes("checked")] == ["b.txt"]
    [failure] = docs.last_report.failed
    assert failure.error.uid == docs.get_nodes("line")[1].uid
    assert isinstance(failure.error.__cause__, KeyError)


def test_nodes_with_metadata_and_span(docs):
    """Nodes that a transform makes keep their metadata and their span, and get group, number and
    parent.
    """

    def mark(text):
        start = text.index("Coffee")
        yield DocNode(text="Coffee", metadata={"drink": True}, span=(start, start + 6))

    docs.create_node_group("group", transform=mark)
    [node] = docs.get_nodes("group")
    assert (node.text, dict(node.metadata), node.group, node.number) == (
        "Coffee",
        {"drink": True},
        "group",
        1,
    )
    assert node.source.text[slice(*node.span)] == "Coffee"
    assert node.location == "line 2"


def _placed(docs: Document, group: str) -> list[str]:
    """What stands at each node's span in its source."""
    return [node.source.text[node.span[0] : node.span[1]] for node in docs.get_nodes(group)]


@pytest.mark.parametrize(
    "split",
    [
        lambda text: text.split("\n"),
        lambda text: text.split(". "),
        lambda text: text.split(),
        lambda text: text.replace("!", "").split(". "),
        lambda text: [text],
        lambda text: [line.strip() for line in text.split("\n")],
        lambda text: list(text),  # noqa: PLW0108  the class list would be taken for a transform class
        lambda text: [text[:7], text[7:]],
        lambda text: text.splitlines(keepends=True),
    ],
    ids=range(9),
)
def test_pieces_of_a_split_know_their_place(docs, split):
    """The pieces that a splitting function returns stand exactly where their text is in the
    document.
    """
    docs.create_node_group("piece", transform=split)
    nodes = docs.get_nodes("piece")
    assert _placed(docs, "piece") == [node.text for node in nodes]
    spans = [node.span for node in nodes]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_repeated_pieces_have_their_own_places(folder):
    """Pieces of equal text each stand at their own place."""
    docs = Document(folder({"a.txt": "tea\ntea\n\ntea\n"}))
    docs.create_node_group("line", transform=str.splitlines)
    assert [node.span for node in docs.get_nodes("line")] == [(0, 3), (4, 7), (9, 12)]
    assert [node.location for node in docs.get_nodes("line")] == ["line 1", "line 2", "line 4"]


@pytest.mark.parametrize(
    "rewrite",
    [
        str.upper,
        lambda text: "A summary.",
        lambda text: "Coffee",
        lambda text: ["Coffee", "Green tea"],
        lambda text: ["Milk", "Milk"],
        lambda text: text + "!",
        lambda text: ["Green tea", "Coffee. Milk"],
        lambda text: 35,
        lambda text: text.replace("tea", "TEA").splitlines(),
    ],
    ids=range(9),
)
def test_rewritten_text_has_no_place(docs, rewrite):
    """Summaries, keywords, changed text and numbers claim no place in the document."""
    docs.create_node_group("group", transform=rewrite)
    nodes = docs.get_nodes("group")
    assert nodes
    assert [(node.span, node.source, node.location, node.locations) for node in nodes] == [
        (None, None, "", ())
    ] * len(nodes)


def test_spans_go_through_to_the_document(docs):
    """Pieces of pieces have spans in the whole document's text, however many groups lie between."""
    docs.create_node_group("line", transform=str.splitlines)
    docs.create_node_group("sentence", transform=lambda line: line.split(". "), parent="line")
    docs.create_node_group("word", transform=str.split, parent="sentence")
    words = docs.get_nodes("word")
    assert [node.text for node in words] == ["Green", "tea", "Black", "tea.", "Coffee", "Milk."]
    assert _placed(docs, "word") == [node.text for node in words]
    assert {node.source.group for node in words} == {"lazyllm_root"}
    assert [node.location for node in words] == ["line 1"] * 4 + ["line 2"] * 2


def test_spans_below_a_rewriting_group(docs):
    """Beneath a group that rewrites text, spans count in that group's nodes; no place is
    claimed.
    """
    docs.create_node_group("line", transform=str.splitlines)
    docs.create_node_group(
        "summary", transform=lambda line: f"Said: {line.upper()} And more.", parent="line"
    )
    docs.create_node_group("sentence", transform=lambda text: text.split(". "), parent="summary")
    docs.create_node_group("word", transform=str.split, parent="sentence")
    summaries = docs.get_nodes("summary")
    words = docs.get_nodes("word")
    assert [node.span for node in summaries] == [None, None]
    assert _placed(docs, "word") == [node.text for node in words]
    assert {node.source for node in words} == set(summaries)
    assert {(node.location, node.locations) for node in words} == {("", ())}


def test_a_node_that_is_returned_as_it_is(docs):
    """A transform that gives back the node it got keeps its text and place."""
    docs.create_node_group("line", transform=str.splitlines)
    docs.create_node_group("same", transform=lambda node: node, trans_node=True, parent="line")
    assert texts(docs, "same") == TEXT.splitlines()
    assert _placed(docs, "same") == TEXT.splitlines()
    assert {node.group for node in docs.get_nodes("same")} == {"same"}


def test_transforms_may_look_around(docs):
    """A transform on nodes sees their parents, roots and their file's metadata."""

    def with_context(node):
        return f"{node.root.text[:5]}/{node.parent.text[:6]}/{node.text}/{node.global_metadata['file_name']}"

    docs.create_node_group("line", transform=str.splitlines)
    docs.create_node_group("word", transform=str.split, parent="line")
    docs.create_node_group("context", transform=with_context, trans_node=True, parent="word")
    assert texts(docs, "context")[-1] == "Green/Coffee/Milk./a.txt"


def test_own_metadata_go_before_the_file_s_in_filters(folder):
    """A node's own value of a declared field counts in filters, else its file's; its children have
    their own again.
    """
    fields = {
        "season": DocField(DataType.VARCHAR),
        "year": DocField(DataType.INT32, default_value=0),
    }

    def seasons(text):
        for line in text.splitlines():
            season, _, rest = line.partition(": ")
            yield DocNode(
                text=rest, metadata={"season": season, "free": 1} if season != "-" else {}
            )

    docs = Document(
        folder({"a.txt": "spring: green\n-: black", "b.txt": "-: coffee"}),
        doc_fields=fields,
        file_metadata={"a.txt": {"season": "autumn", "year": 2001}},
    )
    docs.create_node_group("line", transform=seasons)

    def found(**filters):
        return [node.text for node in docs.get_nodes("line", filters=filters)]

    assert found(season="spring") == ["green"]
    assert found(season="autumn") == ["black"]
    assert found(year=2001) == ["green", "black"]
    assert found(year=0) == ["coffee"]
    assert [
        node.text
        for node in Retriever(docs, "line", similarity="bm25")(
            "green black", {"season": ["spring"]}
        )
    ] == ["green"]
    assert docs.get_nodes("line")[0].global_metadata["season"] == "autumn"


@pytest.mark.parametrize("season", [5, "much too long for the field"])
def test_own_metadata_that_break_a_field_fail_that_file_only(folder, season):
    """A node whose own metadata break a field's declaration fails its file; the others are in."""
    docs = Document(
        folder({"a.txt": "good", "b.txt": "bad"}),
        doc_fields={"season": DocField(DataType.VARCHAR, max_size=10)},
    )
    docs.create_node_group(
        "group",
        lambda text: DocNode(text=text, metadata={"season": season if text == "bad" else "x"}),
    )
    with pytest.warns(IngestionWarning, match="Field 'season'"):
        assert texts(docs, "group") == ["good"]
    assert [(one.path, one.stage) for one in docs.last_report.failed] == [
        ("b.txt", "transform group")
    ]


def test_own_metadata_may_not_change_built_in_fields(folder):
    """A node's own metadata under a built-in field's name does not move it to another file in
    filters.
    """
    docs = Document(folder({"a.txt": "text"}))
    docs.create_node_group(
        "group", lambda text: DocNode(text=text, metadata={"file_name": "b.txt"})
    )
    assert len(docs.get_nodes("group", filters={"file_name": "a.txt"})) == 1
    assert docs.get_nodes("group", filters={"file_name": "b.txt"}) == []


def test_spec_001_s_six_groups(folder):
    """The six groups of the specification's example work as it describes them."""
    docs = Document(folder({"a.txt": "春天采茶。味道鲜爽。\n夏天采茶。", "b.txt": "秋天。"}))
    docs.create_node_group(name="block", transform=lambda d: d.split("\n"))
    docs.create_node_group(name="doc-summary", transform=lambda d: f"{d[:2]}…")
    docs.create_node_group(name="sentence", transform=lambda b: b.split("。"), parent="block")
    docs.create_node_group(
        name="block-summary", transform=lambda b: f"{len(b)} letters", parent="block"
    )
    docs.create_node_group(name="keyword", transform=lambda b: [b[:2], b[2:4]], parent="block")
    docs.create_node_group(name="sentence-len", transform=lambda s: len(s), parent="sentence")  # noqa: PLW0108
    assert texts(docs, "doc-summary") == ["春天…", "秋天…"]
    assert texts(docs, "sentence") == ["春天采茶", "味道鲜爽", "夏天采茶", "秋天"]
    assert contents(docs, "sentence-len") == [4, 4, 4, 2]
    assert texts(docs, "keyword") == ["春天", "采茶", "夏天", "采茶", "秋天", "。"]
    assert len(docs.get_nodes("block-summary")) == len(docs.get_nodes("block")) == 3


PIECES = st.lists(st.text("ab茶é \n.。，\U0001f375", max_size=6), min_size=1, max_size=12)


@given(PIECES, st.sampled_from(["\n", "。", ". ", " ", "\r\n"]))
def test_every_split_finds_its_place(pieces, mark):
    """However a text is split, each piece that claims a place stands exactly there, in order."""
    text = mark.join(pieces)
    parts = [part for part in text.split(mark) if part.strip()]
    if not parts:
        return
    drafts = run_transform(lambda node: node.text.split(mark), DocNode(text=text))
    assert [draft.content for draft in drafts] == parts
    spans = [draft.span for draft in drafts if draft.span is not None]
    assert [text[start:end] for start, end in spans] in (parts, [])
    assert spans == sorted(spans)


LINES = {"a.txt": "Green tea\nBlack tea", "b.txt": "Tea cup"}


def vector(text):
    """A vector for a text."""
    return [float(len(text)), 1.0]


def upper(text):
    """The lines of a text, in capitals."""
    return text.upper().splitlines()


def lower(text):
    """The lines of a text, in small letters."""
    return text.lower().splitlines()


UPPER = sorted(line for text in LINES.values() for line in upper(text))
LOWER = sorted(line for text in LINES.values() for line in lower(text))


@pytest.mark.parametrize("at", ["the question", "Green tea", "GREEN TEA", "TEA CUP"])
def test_a_group_redefined_while_it_is_embedded(folder, at):
    """An embed callable that redefines the group: that question answers from one definition, the
    next from the new.
    """
    done = []

    def embed(text):
        if text == at and not done:
            done.append(text)
            docs.create_node_group("line", transform=lower, replace=True)
        return vector(text)

    docs = Document(folder(LINES), embed=embed)
    docs.create_node_group("line", transform=upper)
    retriever = Retriever(docs, "line", topk=10)
    assert sorted(hit.text for hit in retriever("the question")) in (UPPER, LOWER)
    assert sorted(hit.text for hit in retriever("the question")) == (LOWER if done else UPPER)
    assert bool(done) == (at != "Green tea")


@pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese", "cosine"])
def test_a_group_redefined_while_files_are_loaded(folder, similarity):
    """A loader that redefines the group, and a parent of it: the question is answered from the new
    definitions.
    """

    @register_loader(".redefining")
    class Redefining:
        """Redefines two groups while it loads."""

        def load(self, path):
            """The file's text."""
            docs.create_node_group("whole", transform=str.lower, replace=True)
            docs.create_node_group("line", transform=str.splitlines, parent="whole", replace=True)
            return path.read_text(encoding="utf-8")

    docs = Document(folder({**LINES, "c.redefining": "No tea"}), embed=vector)
    docs.create_node_group("whole", transform=str.upper)
    docs.create_node_group("line", transform=str.split, parent="whole")
    for _ in range(2):
        hits = Retriever(docs, "line", similarity, topk=10)("tea")
        assert sorted(hit.text for hit in hits) == sorted([*LOWER, "no tea"])


def test_a_group_redefined_by_its_own_transform(folder):
    """A transform that redefines its own group: what is handed out is what the new definition
    makes.
    """
    done = []

    def first(text):
        if not done:
            done.append(text)
            docs.create_node_group("line", transform=lower, replace=True)
        return upper(text)

    docs = Document(folder(LINES))
    docs.create_node_group("line", transform=first)
    assert sorted(texts(docs, "line")) == LOWER
    assert sorted(hit.text for hit in Retriever(docs, "line", "bm25")("tea")) == LOWER


@pytest.mark.sample(3)
@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("mode", ["text", "embedding"])
@pytest.mark.parametrize("target", [None, "lazyllm_root"])
def test_a_group_redefined_inside_a_similarity(folder, batch, mode, target):
    """An own similarity that redefines the group: the question is answered from one definition, and
    never empty.
    """
    done = []

    def score(query, nodes):
        if not done:
            done.append(query)
            docs.create_node_group("line", transform=lower, replace=True)
        return [(node, 1.0) for node in nodes] if batch else 1.0

    register_similarity(score, mode, batch=batch, name="redefining")
    docs = Document(folder(LINES), embed=vector)
    docs.create_node_group("line", transform=upper)
    retriever = Retriever(docs, "line", "redefining", topk=10, target=target)
    expected = [LOWER, UPPER] if target is None else [sorted(LINES.values())]
    assert sorted(hit.text for hit in retriever("tea")) in expected
    assert sorted(hit.text for hit in retriever("tea")) == expected[0]
    assert done


@pytest.mark.parametrize("way", ["parent", "root"])
def test_a_similarity_that_looks_around_in_a_redefined_group(folder, way):
    """A node whose group was redefined under a running own similarity does not fail the
    question.
    """
    done = []

    def score(query, node):
        if not done:
            done.append(query)
            docs.create_node_group("whole", transform=str.lower, replace=True)
        return float(len(getattr(node, way).text))

    register_similarity(score, name="looking")
    docs = Document(folder(LINES))
    docs.create_node_group("whole", transform=str.upper)
    docs.create_node_group("line", transform=str.splitlines, parent="whole")
    retriever = Retriever(docs, "line", "looking", topk=10)
    assert sorted(hit.text for hit in retriever("tea")) in (UPPER, LOWER)
    assert sorted(hit.text for hit in retriever("tea")) == LOWER


def test_a_similarity_that_always_redefines(folder):
    """An own similarity that redefines the group at every call: each question is answered from one
    definition.
    """
    turns = itertools.cycle([lower, upper])

    def score(query, nodes):
        docs.create_node_group("line", transform=next(turns), replace=True)
        return [(node, 1.0) for node in nodes]

    register_similarity(score, name="restless", batch=True)
    docs = Document(folder(LINES))
    docs.create_node_group("line", transform=upper)
    for similarity in ("restless", "restless", "bm25"):
        assert sorted(hit.text for hit in Retriever(docs, "line", similarity, topk=10)("tea")) in (
            UPPER,
            LOWER,
        )


@pytest.mark.slow
def test_threads_that_ask_while_another_redefines(folder):
    """For a second one thread redefines a group and three ask it: none raises, is empty or mixes
    definitions.
    """
    register_similarity(lambda query, node: 1.0, name="own")
    docs = Document(folder(LINES), embed=vector)
    docs.create_node_group("line", transform=upper)
    end = time.monotonic() + 1.0
    wrong, asked = [], Counter()

    def redefine():
        for transform in itertools.cycle([lower, upper]):
            docs.create_node_group("line", transform=transform, replace=True)
            if time.monotonic() > end:
                return

    def ask(similarity):
        retriever = Retriever(docs, "line", similarity, topk=10)
        while time.monotonic() < end or not asked[similarity]:
            asked[similarity] += 1
            try:
                found = sorted(hit.text for hit in retriever("tea"))
            except Exception as exc:  # noqa: BLE001  whatever it is, it is wrong
                found = [repr(exc)]
            if found not in (UPPER, LOWER):
                wrong.append((similarity, found))

    threads = [threading.Thread(target=redefine)]
    threads += [threading.Thread(target=ask, args=(one,)) for one in ("bm25", "cosine", "own")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong[:3] == []
    assert min(asked.values()) >= 1
    assert len(asked) == 3


def find_words(words):
    """A transform over a list, which no fingerprint sees into."""
    return lambda text: [word for word in words if word in text]


@pytest.mark.parametrize("owner", ["instance", "class"])
@pytest.mark.parametrize("asked_before", [True, False])
def test_definitions_that_differ_in_an_unseen_object_only(docs, owner, asked_before):
    """Redefined to something else and then to the same code over another object, a group has the
    last one's nodes.
    """
    holder = docs if owner == "instance" else Document
    holder.create_node_group("found", transform=find_words(["Coffee"]))
    if asked_before:
        assert texts(docs, "found") == ["Coffee"]
    holder.create_node_group("found", transform=str.upper, replace=True)
    holder.create_node_group("found", transform=find_words(["Milk"]), replace=True)
    assert texts(docs, "found") == ["Milk"]
    assert [hit.text for hit in Retriever(docs, "found", "bm25")("milk coffee")] == ["Milk"]


def test_an_instance_s_definition_over_another_unseen_object(docs, folder):
    """An instance's group shadows the class's also where the two differ only in an object that
    cannot be seen.
    """
    Document.create_node_group("found", transform=find_words(["Coffee"]))
    assert texts(docs, "found") == ["Coffee"]
    docs.create_node_group("found", transform=find_words(["Milk"]))
    assert texts(docs, "found") == ["Milk"]
    assert texts(Document(folder({"a.txt": TEXT})), "found") == ["Coffee"]


def test_the_same_code_and_version_is_the_same_definition(docs):
    """version= speaks for what cannot be seen: with it there is no error, without it the error
    names the object.
    """
    docs.create_node_group("found", transform=find_words(["Coffee"]), version="1")
    docs.create_node_group("found", transform=find_words(["Milk"]), version="1")
    assert texts(docs, "found") == ["Coffee"]
    docs.create_node_group("other", transform=find_words(["Coffee"]))
    with pytest.raises(
        AlreadyRegisteredError, match=r"same code over other objects \('words'\).*version='\.\.\.'"
    ):
        docs.create_node_group("other", transform=find_words(["Milk"]))
    assert texts(docs, "other") == ["Coffee"]


def test_a_splitter_of_one_s_own(docs):
    """A subclass of SentenceSplitter that overrides transform has its own result beside the
    built-in's.
    """

    class Shouting(SentenceSplitter):
        """Chunks in capitals."""

        def transform(self, node):
            """The chunks, in capitals."""
            return [chunk.text.upper() for chunk in super().transform(node)]

    docs.create_node_group("plain", transform=SentenceSplitter, chunk_size=64, chunk_overlap=0)
    docs.create_node_group("shouting", transform=Shouting, chunk_size=64, chunk_overlap=0)
    assert texts(docs, "plain") == [TEXT]
    assert texts(docs, "shouting") == [TEXT.upper()]
    with pytest.raises(AlreadyRegisteredError):
        docs.create_node_group("plain", transform=Shouting, chunk_size=64, chunk_overlap=0)
    docs.create_node_group(
        "plain", transform=Shouting, chunk_size=64, chunk_overlap=0, replace=True
    )
    assert texts(docs, "plain") == [TEXT.upper()]


def test_a_forgotten_trans_node(docs):
    """A function that treats its text as a node is told of trans_node=True, with which it works."""
    docs.create_node_group("path", transform=lambda node: node.path)
    with pytest.raises(IngestionError, match=r"create_node_group\(trans_node=True\)") as caught:
        docs.get_nodes("path")
    assert isinstance(caught.value.__cause__, TransformError)
    docs.create_node_group("path", transform=lambda node: node.path, trans_node=True, replace=True)
    assert texts(docs, "path") == ["a.txt"]


def test_a_transform_that_asks_another_document_locks_nobody_out(folder):
    """A question that is disturbed again and again waits for no build that itself waits for the
    other Document.
    """
    path = folder({"a.txt": "tea"})
    first, second = Document(path, name="one"), Document(path, name="two")
    if id(first.reader.indexer) < id(second.reader.indexer):
        first, second = second, first
    building, go_on, calls = threading.Event(), threading.Event(), itertools.count(1)

    def asks_the_other(text):
        building.set()
        go_on.wait(60)
        time.sleep(0.05)
        second.get_nodes("word")
        return text

    def score(query, nodes):
        call = next(calls)
        if call % 2 == 0 and call <= 6:  # each of the first three tries is disturbed
            second.create_node_group(
                "other", lambda text: f"{text}{call}", version=str(call), replace=True
            )
            second.get_nodes("other")
        if call == 6:
            threading.Thread(target=first.get_nodes, args=("asking",)).start()
            building.wait(60)
            go_on.set()
        return [(node, 1.0) for node in nodes]

    register_similarity(score, name="disturbed", batch=True)
    first.create_node_group("asking", asks_the_other)
    second.create_node_group("word", str.split)
    second.create_node_group("other", str.split)
    for docs in (first, second):
        docs.create_node_group("line", str.splitlines)
        docs.get_nodes("line")
    second.get_nodes("other")
    answers = []
    retriever = Retriever([first, second], "line", "disturbed")
    asking = threading.Thread(target=lambda: answers.append(retriever("tea")), daemon=True)
    asking.start()
    asking.join(60)
    assert [hit.text for hit in answers[0]] == ["tea", "tea"]


def test_a_retry_passes_over_what_cannot_be_defined_any_more(folder):
    """A circle that definitions of class and instance form together keeps nothing else from being
    tried again.
    """
    docs = Document(folder({"a.txt": "tea"}))
    Document.create_node_group("upper", transform=str.upper)
    docs.create_node_group("lower", transform=str.lower, parent="upper")
    docs.get_nodes("lower")
    Document.create_node_group("lower", transform=str.strip)
    Document.create_node_group("upper", transform=str.split, parent="lower", replace=True)
    assert docs.sync().failed == ()


def test_neighbours_while_a_group_is_redefined(folder):
    """Parents, children and relatives are there or stale, whatever another thread defines
    meanwhile.
    """
    docs = Document(folder(LINES))
    docs.create_node_group("line", transform=upper)
    docs.create_node_group("word", transform=str.split, parent="line")
    docs.get_nodes("word")
    end = time.monotonic() + 0.5

    def redefine():
        for transform in itertools.cycle([lower, upper]):
            docs.create_node_group("line", transform=transform, replace=True)
            docs.activate_group("word")
            if time.monotonic() > end:
                return

    def look_round(node):
        assert node in node.parent.children["word"]
        assert docs.find("line")([node]) == [node.parent]

    thread = threading.Thread(target=redefine)
    thread.start()
    while time.monotonic() < end:
        for node in docs.get_nodes("word"):
            # no "word" among the children before it is built again
            with contextlib.suppress(StaleNodeError, KeyError):
                look_round(node)
    thread.join()
    words = docs.get_nodes("word")
    assert words
    for node in words:  # nobody defines anything any more: how busy the machine is does not matter
        look_round(node)


@pytest.mark.parametrize("says_again", [False, True])
def test_who_overrides_a_splitter_may_look_at_more_than_texts(tmp_path, says_again):
    """New metadata of a file reach such a transform, unless its class says itself that it reads
    texts only.
    """

    class Titled(SentenceSplitter):
        def transform(self, node):
            return [f"{node.root.global_metadata.get('title')}: {node.get_text()}"]

    if says_again:
        Titled.reads_text_only = True
    (tmp_path / "a.txt").write_text("Pour water.", encoding="utf-8")
    titles = {"a.txt": {"title": "Tea"}}
    docs = Document(
        tmp_path, file_metadata=titles, doc_fields={"title": DocField(DataType.VARCHAR)}
    )
    docs.create_node_group("titled", transform=Titled, version="1")
    docs.create_node_group("plain", transform=SentenceSplitter)
    assert [node.text for node in docs.get_nodes(group="titled")] == ["Tea: Pour water."]
    titles["a.txt"]["title"] = "Coffee"
    docs.sync()
    title = "Tea" if says_again else "Coffee"
    assert [node.text for node in docs.get_nodes(group="titled")] == [f"{title}: Pour water."]
    assert [node.text for node in docs.get_nodes(group="plain")] == ["Pour water."]
