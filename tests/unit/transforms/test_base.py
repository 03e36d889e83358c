"""What a transform may return, and the spans that its pieces get."""

from __future__ import annotations

import asyncio
import datetime as dt
from abc import ABC, abstractmethod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, Document, NodeTransform, register_transform
from lazyrag.data.segment import Segment
from lazyrag.errors import AlreadyRegisteredError, ConfigError, TransformError
from lazyrag.transforms import transforms
from lazyrag.transforms.base import run_transform

TEXT = "green tea. black tea. oolong"
NODE = DocNode(text=TEXT)


def _contents(returned):
    return [draft.content for draft in run_transform(lambda node: returned, NODE)]


@pytest.mark.parametrize(
    ("returned", "contents"),
    [
        ("one", ["one"]),
        (["a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        ((one for one in "ab"), ["a", "b"]),
        (iter(["a"]), ["a"]),
        (map(str.upper, "ab"), ["A", "B"]),
        ({"a": 1}.keys(), ["a"]),
        (DocNode(text="a"), ["a"]),
        ([DocNode(text="a"), "b", 3], ["a", "b", 3]),
        (0, [0]),
        (False, [False]),
        ([0, False, 0.0], [0, False, 0.0]),
        (2.5, [2.5]),
        ({"a": [1]}, [{"a": [1]}]),
        ([{"a": 1}, {"b": 2}], [{"a": 1}, {"b": 2}]),
        (np.int64(3), [3]),
        (np.array([1, 2]), [1, 2]),
        (np.array(["a", "b"]), ["a", "b"]),
        ([np.float32(0.5)], [0.5]),
        (None, []),
        ("", []),
        (" \n\t\u3000", []),
        ([], []),
        ([None, "", "a", "  ", None], ["a"]),
        ([DocNode(text=" "), DocNode(0)], [0]),
    ],
    ids=lambda one: repr(one).partition(" at 0x")[0],
)
def test_what_a_transform_may_return(returned, contents):
    """Texts, nodes, plain values and any iterable of them; None and blank texts make no node, 0 and
    False do.
    """
    found = _contents(returned)
    assert found == contents
    assert [isinstance(one, bool) for one in found] == [isinstance(one, bool) for one in contents]
    assert all(
        isinstance(one, type(expected)) for one, expected in zip(found, contents, strict=True)
    )


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (object(), "object"),
        (b"bytes", "bytes"),
        (bytearray(b"x"), "bytearray"),
        ({"a", "b"}, "set, whose order changes"),
        (frozenset("a"), "set, whose order changes"),
        ([["a"]], "list in it"),
        ([("a",)], "tuple in it"),
        (["a", object()], "object in it"),
        ([b"a"], "bytes in it"),
        ([dt.date(2024, 5, 1)], "date in it"),
        (float("nan"), "nan"),
        ([{"a": object()}], "JSON value"),
        (np.zeros((2, 2)), "ndarray in it"),
        (lambda node: node, "function"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_what_cannot_be_a_node_is_refused(returned, said):
    """The error names the kind of what came, and says what is allowed."""
    with pytest.raises(TransformError) as caught:
        _contents(returned)
    assert said in str(caught.value)


def test_an_asynchronous_transform_is_refused():
    """A coroutine or an asynchronous generator is no node; no warning of one never awaited is left
    behind.
    """

    async def later(node):
        await asyncio.sleep(0)
        return "text"

    async def stream(node):
        yield "text"

    for transform in (later, stream):
        with pytest.raises(TransformError, match="asynchronous"):
            run_transform(transform, NODE)


def test_what_a_transform_raises_is_a_transform_error_with_its_cause():
    """Also in the middle of a generator; a TransformError passes as it is."""

    def generator(node):
        yield "fine"
        raise ZeroDivisionError("by zero")

    for transform in (lambda node: 1 // 0, generator):
        with pytest.raises(TransformError, match="raised ZeroDivisionError") as caught:
            run_transform(transform, NODE)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    own = TransformError("mine", group="g")

    def failing(node):
        raise own

    with pytest.raises(TransformError) as caught:
        run_transform(failing, NODE)
    assert caught.value is own


def test_a_transform_gets_the_node():
    """Text, metadata and neighbours are there to be used."""
    drafts = run_transform(
        lambda node: f"{node.text}/{node.metadata['kind']}",
        DocNode(text="a", metadata={"kind": "b"}),
    )
    assert [draft.content for draft in drafts] == ["a/b"]


def test_a_returned_node_keeps_its_metadata_and_not_its_place():
    """Its metadata are the new node's own; its uid and score are not."""
    [draft] = run_transform(
        lambda node: DocNode(text="x", metadata={"page": 3}, uid="mine", score=1.0), NODE
    )
    assert dict(draft.metadata) == {"page": 3}
    assert draft.span is None


@pytest.mark.parametrize(
    ("text", "pieces", "spans"),
    [
        ("他走了。她走了。", ["他走了", "她走了"], [(0, 3), (4, 7)]),
        ("a\nb\n\nc", ["a", "b", "c"], [(0, 1), (2, 3), (5, 6)]),
        ("tea tea tea", ["tea", "tea", "tea"], [(0, 3), (4, 7), (8, 11)]),
        ("  a  ", ["a"], [(2, 3)]),
        ("a-b", ["a", "-b"], [(0, 1), (1, 3)]),
        ("whole", ["whole"], [(0, 5)]),
        ("a b c", ["a", "c"], None),  # a word is missing in between
        ("a b c", ["b", "c"], None),  # before
        ("a b c", ["a", "b"], None),  # behind
        ("a b", ["b", "a"], None),  # not in the text's order
        ("a b", ["A", "b"], None),  # rewritten
        ("a b", ["a", 1], None),  # a number has no place
        ("ab", ["ab", "ab"], None),  # said twice
    ],
)
def test_pieces_that_follow_one_another_get_spans(text, pieces, spans):
    """Splitting functions need not compute spans; where a letter or digit is lost or moved, no span
    is guessed.
    """
    drafts = run_transform(lambda node: pieces, DocNode(text=text))
    assert [draft.span for draft in drafts] == (spans or [None] * len(pieces))


@given(
    st.text("ab1茶。, \n", max_size=20), st.sampled_from(["\n", "。", " ", ", ", "a", "1", "茶"])
)
def test_the_text_stands_at_the_span(text, separator):
    """Whatever a text is split by: the parent's text at the span is the node's text."""
    for draft in run_transform(lambda node: node.text.split(separator), DocNode(text=text)):
        if draft.span is not None:
            assert text[draft.span[0] : draft.span[1]] == draft.content


@given(st.text("ab1茶。, \n", max_size=20), st.sampled_from(["\n", "。", " ", ", "]))
def test_splitting_at_what_is_no_letter_always_gives_spans(text, separator):
    """Lines, sentences and words as plain functions make them have their places."""
    drafts = run_transform(lambda node: node.text.split(separator), DocNode(text=text))
    assert all(draft.span is not None for draft in drafts)
    spans = [draft.span for draft in drafts]
    assert spans == sorted(spans)


def test_a_returned_span_is_checked():
    """A node may name its span in its parent; one at which the text does not stand is an error."""
    [draft] = run_transform(lambda node: DocNode(text="black", span=(11, 16)), NODE)
    assert draft.span == (11, 16)
    for span in ((10, 15), (0, 5), (11, 17), (90, 95)):
        with pytest.raises(TransformError, match=r"differs from its text"):
            run_transform(lambda node, span=span: DocNode(text="black", span=span), NODE)


def test_a_node_from_elsewhere_in_the_tree_does_not_keep_its_span():
    """Its span counts in another node's text."""
    stored = DocNode.from_segment(
        Segment("u", 1, "line", "d", "a.txt", "d", 1, "black", span=(0, 5)), None
    )
    [draft] = run_transform(lambda node: [stored], NODE)
    assert draft.span is None


def test_where_some_nodes_name_spans_the_others_are_not_guessed():
    """A transform that knows its spans is left alone."""
    drafts = run_transform(lambda node: [DocNode(text="green", span=(0, 5)), "tea"], NODE)
    assert [draft.span for draft in drafts] == [(0, 5), None]


class Words(NodeTransform):
    """Splits at a separator."""

    def __init__(self, separator=" "):
        self.separator = separator

    def transform(self, node):
        """The pieces."""
        return node.get_text().split(self.separator)


def test_a_transform_class_is_called_like_a_function():
    """Calling is transforming, with the parameters of the instance."""
    assert Words()(DocNode(text="a b")) == ["a", "b"]
    assert Words("-")(DocNode(text="a-b")) == ["a", "b"]


def test_a_generator_may_use_one_node_again():
    """Every text is what the node held when it was yielded."""

    def steps(_):
        node = DocNode(text="x")
        for number in range(3):
            node.text, node.metadata["number"] = f"step {number}", number
            yield node

    drafts = run_transform(steps, DocNode(text="all"))
    assert [(draft.content, draft.metadata) for draft in drafts] == [
        (f"step {n}", {"number": n}) for n in range(3)
    ]


def test_a_transform_class_without_transform_is_refused():
    """The error comes when the class is written; a subclass of a complete one is complete."""
    with pytest.raises(ConfigError, match=r"Empty must override transform"):

        class Empty(NodeTransform):
            pass

    class Louder(Words):
        pass

    assert Louder()(DocNode(text="a b")) == ["a", "b"]


def test_an_abstract_transform_class_leaves_transform_to_its_subclasses(folder):
    """A class that derives from ABC may be a base of others, and makes no group itself."""

    class Split(NodeTransform, ABC):
        @abstractmethod
        def separator(self) -> str: ...

    class SplitText(Split):
        def separator(self):
            return "-"

        def transform(self, node):
            return node.get_text().split(self.separator())

    class Unfinished(Split):
        def separator(self):
            return "-"

    docs = Document(folder({"a.txt": "a-b"}))
    docs.create_node_group("part", transform=SplitText)
    assert [node.text for node in docs.get_nodes("part")] == ["a", "b"]
    with pytest.raises(TypeError, match="abstract class Split"):
        docs.create_node_group("other", transform=Split)
    for base in (Unfinished, NodeTransform):
        with pytest.raises(ConfigError, match=f"{base.__name__} is a base class"):
            docs.create_node_group("other", transform=base)


def test_a_registered_transform_is_named_in_a_group(folder):
    """Classes and functions, under their own names and others, are found by create_node_group."""
    assert register_transform(Words) is Words

    @register_transform(name="by-line")
    def lines(text):
        return text.splitlines()

    assert transforms["Words"] is Words
    docs = Document(folder({"a.txt": "a-b\nc"}))
    docs.create_node_group("word", transform="Words", separator="-")
    docs.create_node_group("line", transform="by-line")
    assert [node.text for node in docs.get_nodes("word")] == ["a", "b\nc"]
    assert [node.text for node in docs.get_nodes("line")] == ["a-b", "c"]
    assert lines("x\ny") == ["x", "y"]


def test_a_taken_transform_name_is_refused():
    """Unless replace=True takes it over."""
    register_transform(Words)
    with pytest.raises(AlreadyRegisteredError, match="transform named 'Words'"):
        register_transform(name="Words")(str.split)
    register_transform(name="Words", replace=True)(str.split)
    assert transforms["Words"] is str.split


def test_a_forgotten_trans_node_is_named():
    """A function that asks a text for what a node has is told of trans_node=True; another slip is
    not.
    """
    with pytest.raises(
        TransformError, match=r"create_node_group\(trans_node=True\) gives it the DocNode"
    ):
        run_transform(lambda node: "text".metadata, NODE)
    for slip in (lambda node: "text".no_such, lambda node: node.no_such, lambda node: (1).metadata):
        with pytest.raises(TransformError, match="raised AttributeError") as caught:
            run_transform(slip, NODE)
        assert "trans_node" not in str(caught.value)


@pytest.mark.parametrize("given", ["绿茶", ["绿茶"], None])
@pytest.mark.parametrize("name", ["SentenceSplitter", "MarkdownSplitter", "SentenceWindow"])
def test_a_transform_is_called_on_a_node(name, given):
    """Called on a text or a list, a transform says what it takes, generators too."""
    with pytest.raises(ConfigError, match=f"{name} must be a DocNode; got .*DocNode"):
        transforms[name]()(given)
