"""`Document.window`: a node among its neighbours, as nodes or as one text."""

from __future__ import annotations

import contextlib
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import DataType, DocField, DocNode, Document, Retriever
from lazyrag.errors import ConfigError, StaleNodeError

STEPS = "Pick it. Wither it. Roll it. Dry it. Keep it."


@pytest.fixture
def docs():
    """Two documents in sentences; the sentences' spans cover their text."""
    made = Document()
    made.create_node_group("step", transform="SentenceWindow")
    made.add_texts({"a": STEPS, "b": "Boil. Cool. Pour."})
    return made


def texts(nodes) -> list[str]:
    """The texts, without white space at their ends."""
    return [node.text.strip() for node in nodes]


def step(docs: Document, number: int, path: str = "a") -> DocNode:
    """A sentence by its number."""
    return next(
        node for node in docs.get_nodes("step") if (node.path, node.number) == (path, number)
    )


@pytest.mark.parametrize(
    ("number", "before", "after", "expected"),
    [
        (3, 1, 1, [2, 3, 4]),
        (3, 0, 0, [3]),
        (3, 0, 1, [3, 4]),
        (1, 2, 1, [1, 2]),
        (5, 1, 9, [4, 5]),
        (2, 99, 99, [1, 2, 3, 4, 5]),
    ],
)
def test_neighbours_stand_in_order_and_end_with_the_document(docs, number, before, after, expected):
    """A window has so many neighbours on each side, fewer at the document's ends, none of another
    document.
    """
    found = docs.window(step(docs, number), before, after)
    assert [(node.path, node.number) for node in found] == [("a", one) for one in expected]
    assert found == [
        node for node in docs.get_nodes("step") if node.path == "a" and node.number in expected
    ]


def test_by_default_there_is_one_on_each_side(docs):
    """Without numbers the window reaches one neighbour in each direction."""
    assert texts(docs.window(step(docs, 2, "b"))) == ["Boil.", "Cool.", "Pour."]


def test_a_merged_window_is_one_text_with_its_place(docs):
    """The text is that of the source between the span's ends; the node names what it was made
    of.
    """
    middle = step(docs, 3).with_score(0.5)
    merged = docs.window(middle, merge=True)
    assert merged.text == "Wither it. Roll it. Dry it. "
    assert merged.source.text[merged.span[0] : merged.span[1]] == merged.text
    assert merged.merged_from == tuple(node.uid for node in docs.window(middle))
    assert (merged.path, merged.group, merged.number, merged.score) == ("a", "step", 2, 0.5)
    assert (merged.root, merged.parent) == (middle.root, middle.parent)
    assert merged.uid not in {node.uid for node in docs.get_nodes("step")}
    assert docs.window(middle, merge=True) == merged


def test_a_window_of_one_is_the_node(docs):
    """Nothing is made anew where nothing is merged."""
    merged = docs.window(step(docs, 3).with_score(0.5), 0, 0, merge=True)
    assert (merged, merged.score, merged.merged_from) == (step(docs, 3), 0.5, ())


def test_overlaps_are_not_repeated():
    """Chunks that share their ends give each character of the source once."""
    docs = Document()
    text = "One two three four five six seven eight nine ten eleven twelve. " * 6
    docs.create_node_group("chunk", transform="TokenSplitter", chunk_size=30, chunk_overlap=10)
    docs.add_texts({"numbers": text})
    nodes = docs.get_nodes("chunk")
    assert sum(len(node.text) for node in nodes) > len(text)
    merged = docs.window(nodes[2], 99, 99, merge=True)
    assert (merged.text, merged.span) == (text, (0, len(text)))


def test_white_space_that_no_node_holds_comes_back():
    """What stands between two nodes of the source, if it is no letter or digit, stands in the
    merged text too.
    """
    docs = Document()
    docs.add_texts({"a": "one\n\ntwo\n---\nthree"})
    docs.create_node_group(
        "word", transform=lambda text: [one for one in text.split("\n") if one.isalpha()]
    )
    merged = docs.window(docs.get_nodes("word")[0], 0, 2, merge=True)
    assert (merged.text, merged.span) == ("one\n\ntwo\n---\nthree", (0, 18))


def test_letters_between_nodes_stay_away():
    """Where the source has letters between two nodes, they are joined by a line end, and there is
    no span.
    """
    docs = Document()
    docs.create_node_group(
        "kept",
        transform=lambda node: [
            DocNode(text=node.text[:3], span=(0, 3)),
            DocNode(text=node.text[-3:], span=(8, 11)),
        ],
        trans_node=True,
    )
    docs.add_texts({"a": "one two 333"})
    merged = docs.window(docs.get_nodes("kept")[0], merge=True)
    assert (merged.text, merged.span) == ("one\n333", None)


def test_without_spans_texts_are_joined_by_line_ends():
    """What a transform wrote anew has no overlap that could be known; the texts come one after the
    other.
    """
    docs = Document()
    docs.create_node_group("loud", transform=lambda text: [one.upper() for one in text.split()])
    docs.add_texts({"a": "one two one"})
    merged = docs.window(docs.get_nodes("loud")[1], merge=True)
    assert (merged.text, merged.span) == ("ONE\nTWO\nONE", None)


def test_children_of_rewritten_parents_join_within_each_parent():
    """Spans in different parents' texts are not mixed up: within a parent overlaps are known,
    between two are none.
    """
    docs = Document()
    docs.create_node_group("loud", transform=lambda text: [one.upper() for one in text.split("|")])
    docs.create_node_group("word", transform=str.split, parent="loud")
    docs.add_texts({"a": "one two|three four"})
    nodes = docs.get_nodes("word")
    assert docs.window(nodes[0], 0, 9, merge=True).text == "ONE TWO\nTHREE FOUR"
    first = docs.window(nodes[0], 0, 1, merge=True)
    assert (first.text, first.span, first.source) == ("ONE TWO", (0, 7), nodes[0].parent)


def test_metadata_that_all_share_stays():
    """A merged window has the metadata in which its nodes agree."""
    docs = Document()
    docs.create_node_group("part", transform="MarkdownSplitter", chunk_size=5)
    docs.add_texts({"a": "# Tea\n\nPick it now.\n\nDry it now.\n\n# Water\n\nBoil it now."})
    nodes = docs.get_nodes("part")
    assert {node.metadata["heading"] for node in nodes} == {"Tea", "Water"}
    assert docs.window(nodes[0], 0, 1, merge=True).metadata == {"heading": "Tea"}
    assert docs.window(nodes[0], 0, 99, merge=True).metadata == {}


def test_windows_of_hits_that_meet_are_one(docs):
    """Windows that overlap or touch are one; they come in the hits' order, each node once, hits
    with their scores.
    """
    hits = [
        step(docs, 3, "b").with_score(3.0),
        step(docs, 5).with_score(2.0),
        step(docs, 3).with_score(1.0),
    ]
    found = docs.window(hits)
    assert [(node.path, node.number, node.score) for node in found] == [
        ("b", 2, 3.0),
        ("b", 3, 3.0),
        ("a", 2, 2.0),
        ("a", 3, 1.0),
        ("a", 4, 2.0),
        ("a", 5, 2.0),
    ]
    merged = docs.window(hits, merge=True)
    assert [(node.path, node.text, node.score) for node in merged] == [
        ("b", "Cool. Pour.", 3.0),
        ("a", "Wither it. Roll it. Dry it. Keep it.", 2.0),
    ]
    apart = docs.window([step(docs, 1), step(docs, 4)], 0, 1)
    assert [node.number for node in apart] == [1, 2, 4, 5]
    assert len(docs.window([step(docs, 1), step(docs, 4)], 0, 1, merge=True)) == 2
    assert len(docs.window([step(docs, 1), step(docs, 3)], 0, 1, merge=True)) == 1


def test_windows_after_a_retriever(docs):
    """Hits of a retriever go in as they come; none give none."""
    hits = Retriever(docs, "step", similarity="bm25", topk=1)("wither")
    assert texts(docs.window(hits)) == ["Pick it.", "Wither it.", "Roll it."]
    assert docs.window([]) == docs.window([], merge=True) == []


def test_whole_documents_have_no_neighbours(docs):
    """The root group has one node in each document."""
    assert docs.window(docs.get_nodes()[0], 5, 5) == docs.get_nodes()[:1]


@pytest.mark.parametrize(
    "wrong", [{"before": -1}, {"after": 1.5}, {"before": None}, {"merge": 1}, {"befor": 1}]
)
def test_arguments_are_checked(docs, wrong):
    """Numbers are whole and not negative, merge is True or False, keywords are known."""
    with pytest.raises(ConfigError):
        docs.window(step(docs, 3), **wrong)


@pytest.mark.parametrize("stray", [DocNode(text="free"), "text", None, [DocNode(text="free")]])
def test_only_nodes_of_documents_have_windows(docs, stray):
    """Anything else is refused."""
    with pytest.raises(ConfigError):
        docs.window(stray)


def test_nodes_of_another_document_are_refused(docs):
    """A node is followed in the Document that it came from."""
    other = Document()
    other.create_node_group("step", transform="SentenceWindow")
    other.add_texts({"a": STEPS})
    with pytest.raises(ConfigError, match="another Document"):
        docs.window(step(other, 1))


def test_stale_nodes_are_refused(docs):
    """A node of a document that was changed has no neighbours any more, and one of another document
    keeps its own.
    """
    old, kept = step(docs, 3), step(docs, 2, "b")
    docs.add_texts({"a": "Something else. Entirely."})
    with pytest.raises(StaleNodeError, match="Retrieve the node again"):
        docs.window(old)
    assert len(docs.window(kept)) == 3
    docs.delete_files(["b"])
    with pytest.raises(StaleNodeError):
        docs.window(kept, merge=True)


def test_what_stands_where_it_stood_goes_on(docs):
    """A node whose document only grew behind it has the new neighbours."""
    old = step(docs, 4)
    docs.add_texts({"a": STEPS + " Brew it."})
    assert texts(docs.window(old, 1, 9)) == ["Roll it.", "Dry it.", "Keep it.", "Brew it."]


def test_a_merged_window_has_no_window(docs):
    """It is no node of the group, so it has no place among them."""
    merged = docs.window(step(docs, 3), merge=True)
    with pytest.raises(StaleNodeError):
        docs.window(merged)


# Views


@pytest.fixture
def labelled():
    """A document with a secret line between two public ones."""
    made = Document(doc_fields={"access": DocField(DataType.VARCHAR)})

    def lines(node):
        start = 0
        for line in node.text.splitlines(keepends=True):
            access = "secret" if line.startswith("secret") else "public"
            yield DocNode(text=line, span=(start, start + len(line)), metadata={"access": access})
            start += len(line)

    made.create_node_group("line", transform=lines, trans_node=True)
    made.add_texts({"a": "open one\nsecret two\n...\nopen four\n"}, {"a": {"access": "secret"}})
    return made


@pytest.mark.parametrize("merge", [False, True])
def test_a_view_s_windows_hold_nothing_else(labelled, merge):
    """Neighbours out of sight are left out, from lists and from merged texts, also where those
    would span them.
    """
    view = labelled.restricted({"access": "public"})
    assert "secret" in labelled.window(labelled.get_nodes("line")[0], 0, 3, merge=True).text
    for node in view.get_nodes("line"):
        found = view.window(node, 9, 9, merge=merge)
        if merge:
            assert (found.text, found.span) == ("open one\n...\nopen four\n", None)
        else:
            assert texts(found) == ["open one", "...", "open four"]
            assert secret_free(found)


def secret_free(nodes) -> bool:
    """Whether no node holds what is secret."""
    return not [node for node in nodes if "secret" in node.text]


def test_a_node_out_of_sight_leads_nowhere(labelled):
    """A node that someone kept, and that the view does not show, has no window there."""
    view = labelled.restricted({"access": "public"})
    with pytest.raises(StaleNodeError, match="hides it"):
        view.window(labelled.get_nodes("line")[1])


# Any documents, any nodes


@settings(max_examples=settings.default.max_examples // 2)
@given(
    st.lists(
        st.lists(st.sampled_from(["Tea. ", "茶好。", "Yes! ", "🍵 it. "]), min_size=1, max_size=8),
        max_size=3,
    ),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 4)), max_size=6),
    st.integers(0, 3),
    st.integers(0, 3),
    st.booleans(),
)
def test_windows_are_contiguous(documents, chosen, before, after, overlapping):
    """Windows name each node once, in unbroken rows around the hits; merged, each is its stretch of
    the source.
    """
    docs = Document()
    if overlapping:
        docs.create_node_group("step", transform="TokenSplitter", chunk_size=4, chunk_overlap=2)
    else:
        docs.create_node_group("step", transform="SentenceWindow")
    docs.add_texts({f"d{number}": "".join(one) for number, one in enumerate(documents)})
    nodes = docs.get_nodes("step")
    hits = (
        [nodes[at % len(nodes)].with_score(float(score)) for at, score in chosen] if nodes else []
    )
    found = docs.window(hits, before, after)
    assert len({*found}) == len(found)
    sizes = {node.path: sum(one.path == node.path for one in nodes) for node in nodes}
    reached = {
        (hit.path, number)
        for hit in hits
        for number in range(
            max(1, hit.number - before), min(sizes[hit.path], hit.number + after) + 1
        )
    }
    assert {(node.path, node.number) for node in found} == reached
    merged = docs.window(hits, before, after, merge=True)
    rows = [one.merged_from or (one.uid,) for one in merged]
    assert [uid for row in rows for uid in row] == [node.uid for node in found]
    by_uid = {node.uid: node for node in nodes}
    for one, row in zip(merged, rows, strict=True):
        own = [by_uid[uid] for uid in row]
        assert [node.number for node in own] == list(range(own[0].number, own[-1].number + 1))
        assert one.span == (own[0].span[0], max(node.span[1] for node in own))
        assert one.source.text[one.span[0] : one.span[1]] == one.text
    ends = {(by_uid[row[-1]].path, by_uid[row[-1]].number + 1) for row in rows}
    assert not ends & reached


@pytest.mark.slow
def test_a_window_is_of_one_version():
    """While a document is replaced all the time, a window is of one of its versions, or the node is
    stale.
    """
    docs = Document()
    docs.create_node_group("line", transform=str.splitlines)

    def write(version: int) -> None:
        docs.add_texts(
            {"a": "\n".join(["always", *[f"v{version} step {number}" for number in range(9)]])}
        )

    write(0)
    done = threading.Event()
    seen: set[str] = set()

    def replace() -> None:
        for version in range(1, 40):
            write(version)
        done.set()

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        while not done.is_set():
            first, *_, last = docs.get_nodes("line")
            found = docs.window(first, 9, 9, merge=True)  # it stands in every version
            with contextlib.suppress(StaleNodeError):
                assert docs.window(last, 9, 9, merge=True).text.endswith(last.text)
            versions = {word for word in found.text.split() if word.startswith("v")}
            assert len(versions) == 1
            assert found.text.count("step") == 9
            seen |= versions
    finally:
        thread.join()
    assert seen
