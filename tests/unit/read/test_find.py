"""`find` and `target=`: through the tree and back, in memory, in a
file, restarted.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import Condition, DataType, DocField, DocNode, Document, Retriever
from lazyrag.errors import NotRegisteredError, StaleNodeError
from lazyrag.retrieval import auto_merge

ROOT = "lazyllm_root"
GROUPS = ("part", "line", "word", "loud", "letter")
TEXTS = {"a": "green tea;black tea|white tea", "b": "coffee;green|milk tea"}


def define(docs: Document) -> Document:
    """Parts, lines and words in a line; shouted parts and their letters in a branch of its own."""
    docs.create_node_group("part", transform=lambda text: text.split("|"))
    docs.create_node_group("line", transform=lambda text: text.split(";"), parent="part")
    docs.create_node_group("word", transform=str.split, parent="line")
    docs.create_node_group("loud", transform=str.upper, parent="part")
    docs.create_node_group(
        "letter", transform=lambda text: [one for one in text if one.isalpha()], parent="loud"
    )
    return docs


@pytest.fixture(params=["memory", "file", "restarted"])
def docs(request, tmp_path):
    """The same tree in memory, in a file, and in a file that another Document wrote."""
    conf = (
        {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / "s.db"}}}
        if request.param != "memory"
        else None
    )
    if request.param == "restarted":
        with define(Document(store_conf=conf)) as first:
            first.add_texts(TEXTS)
            first.activate_group(*GROUPS)
    with define(Document(store_conf=conf)) as made:
        if request.param != "restarted":
            made.add_texts(TEXTS)
        yield made


def named(docs: Document, group: str, text: str) -> DocNode:
    """The first node of a group with that text."""
    return next(node for node in docs.get_nodes(group) if node.text == text)


def told(nodes) -> list[tuple[str, float | None]]:
    """Texts and scores."""
    return [(node.text, node.score) for node in nodes]


def test_up(docs):
    """Ancestors come in the order of the nodes that lead there, each once, with the first one's
    score.
    """
    hits = [
        named(docs, "word", one).with_score(score)
        for one, score in (("milk", 3.0), ("white", 2.0), ("tea", 1.0))
    ]
    again = named(docs, "word", "black").with_score(0.5)
    assert told(docs.find("line")([*hits, again])) == [
        ("milk tea", 3.0),
        ("white tea", 2.0),
        ("green tea", 1.0),
        ("black tea", 0.5),
    ]
    assert told(docs.find("part")([*hits, again])) == [
        ("milk tea", 3.0),
        ("white tea", 2.0),
        ("green tea;black tea", 1.0),
    ]
    assert told(docs.find(ROOT)([*hits, again])) == [(TEXTS["b"], 3.0), (TEXTS["a"], 2.0)]


def test_a_parent_has_the_score_of_its_best_child(docs):
    """In whatever order the children come; where none has a score, it has none."""
    words = [named(docs, "word", one) for one in ("green", "black", "tea")]
    hits = [word.with_score(score) for word, score in zip(words, (0.5, None, 3.0), strict=True)]
    assert told(docs.find("part")(hits)) == [("green tea;black tea", 3.0)]
    assert told(docs.find("loud")(hits[::-1])) == [("GREEN TEA;BLACK TEA", 3.0)]
    assert told(docs.find("part")(words)) == [("green tea;black tea", None)]


def test_down(docs):
    """Descendants come parent by parent, in the order of the document, with their ancestor's
    score.
    """
    parts = [
        named(docs, "part", "white tea").with_score(2.0),
        named(docs, "part", "coffee;green").with_score(1.0),
    ]
    assert told(docs.find("word")(parts)) == [
        ("white", 2.0),
        ("tea", 2.0),
        ("coffee", 1.0),
        ("green", 1.0),
    ]


def test_across(docs):
    """To another branch it goes over the lowest group above both, here the part, not over the
    document.
    """
    hit = named(docs, "word", "black").with_score(1.0)
    assert told(docs.find("loud")([hit])) == [("GREEN TEA;BLACK TEA", 1.0)]
    assert "".join(node.text for node in docs.find("letter")([hit])) == "GREENTEABLACKTEA"
    letter = docs.find("letter")([named(docs, "word", "milk")])[0].with_score(2.0)
    assert told(docs.find("word")([letter])) == [("milk", 2.0), ("tea", 2.0)]


def test_groups_of_several_kinds_at_once(docs):
    """Nodes of different groups are followed each from its own."""
    mixed = [named(docs, "word", "milk"), named(docs, "part", "white tea"), docs.get_nodes(ROOT)[1]]
    assert told(docs.find("line")(mixed)) == [
        ("milk tea", None),
        ("white tea", None),
        ("coffee", None),
        ("green", None),
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("group", [ROOT, *GROUPS])
def test_target_of_a_retriever_is_find_of_its_hits(docs, group):
    """Retriever(target=) gives what find(target) makes of the hits, in their order, with their
    scores.
    """
    hits = Retriever(docs, "word", similarity="bm25", topk=4)("tea milk")
    mapped = Retriever(docs, "word", similarity="bm25", topk=4, target=group)("tea milk")
    assert len(hits) == 4
    assert [(node, node.score) for node in mapped] == [
        (node, node.score) for node in docs.find(group)(hits)
    ]
    assert [node.score for node in mapped] == sorted((node.score for node in mapped), reverse=True)
    assert len({*mapped}) == len(mapped)


def test_wrong_groups(docs):
    """A group that is not there is refused, with what to do."""
    with pytest.raises(NotRegisteredError, match="Did you mean 'line'"):
        docs.find("lines")
    with pytest.raises(NotRegisteredError, match="Did you mean 'line'"):
        Retriever(docs, "word", similarity="bm25", target="lines")


def test_windows_and_merges_are_those_of_memory(docs):
    """What is beside and above a node is the same in every store."""
    words = [named(docs, "word", one).with_score(1.0) for one in ("green", "tea", "black")]
    assert [node.text for node in docs.window(words[2])] == ["tea", "black", "tea"]
    assert docs.window(words[0], 0, 9, merge=True).text == "green tea;black tea|white tea"
    hits = [node.with_score(1.0) for node in docs.get_nodes("word", limit=4)]
    assert [node.text for node in auto_merge(hits, up_to="part")] == ["green tea;black tea"]


def test_after_a_change(docs):
    """Nodes of a document that was changed are stale for every way, those of others go on."""
    old, kept = named(docs, "word", "milk"), named(docs, "word", "white")
    docs.add_texts({"b": "water"})
    for way in (docs.find("letter"), docs.find("line"), docs.window, auto_merge):
        with pytest.raises(StaleNodeError, match="Retrieve the node again"):
            way([old])
        assert way([kept])


# The one place for a mandatory filter


def labelled() -> Document:
    """Documents and lines with an access of their own, and chunks of the whole beside them."""
    made = Document(doc_fields={"access": DocField(DataType.VARCHAR)})

    def lines(node):
        start = 0
        for line in node.text.splitlines(keepends=True):
            own = {"access": line.split()[0]} if line.split()[0] in ("secret", "public") else {}
            yield DocNode(text=line, metadata=own, span=(start, start + len(line)))
            start += len(line)

    made.create_node_group("line", transform=lines, trans_node=True)
    made.create_node_group("word", transform=str.split, parent="line")
    made.create_node_group("chunk", transform="TokenSplitter", chunk_size=6, chunk_overlap=2)
    made.add_texts(
        {
            "mixed": "public tea one\nsecret tea two\npublic tea three\n",
            "closed": "tea four\npublic tea five\nsecret tea six\n",
            "open": "tea seven\nsecret tea eight\ntea nine\n",
        },
        {
            "closed": {"access": "secret"},
            "open": {"access": "public"},
            "mixed": {"access": "secret"},
        },
    )
    return made


SEEN = Condition("access", "eq", "public")


def ways(docs: Document) -> dict:
    """Every way from some nodes to others."""
    return {
        "window": lambda nodes: docs.window(nodes, 9, 9),
        "merged window": lambda nodes: docs.window(nodes, 9, 9, merge=True),
        "merge": lambda nodes: auto_merge(nodes, ratio=0.01, least=1),
        "merge to lines": lambda nodes: auto_merge(nodes, ratio=0.01, least=1, up_to="line"),
        **{f"find {group}": docs.find(group) for group in (ROOT, "line", "word", "chunk")},
        "parent": lambda nodes: [node.parent for node in nodes if has_parent(node)],
        "children": lambda nodes: [
            child for node in nodes for some in node.children.values() for child in some
        ],
    }


def has_parent(node: DocNode) -> bool:
    """Whether a node has a parent that may be seen."""
    try:
        return node.parent is not None
    except StaleNodeError:
        return False


@pytest.mark.sample(4)
@pytest.mark.parametrize("way", [*ways(labelled())])
@pytest.mark.parametrize("group", [ROOT, "line", "word", "chunk"])
def test_nothing_leaves_a_view_that_its_filter_hides(group, way):
    """From every hit of a view, by every way and once more from there, only nodes come that satisfy
    its filter.
    """
    docs = labelled()
    view = docs.restricted(SEEN)
    allowed = {
        node
        for one in (ROOT, "line", "word", "chunk")
        for node in docs.get_nodes(one, filters=SEEN)
    }
    hidden = {
        node for one in (ROOT, "line", "word", "chunk") for node in docs.get_nodes(one)
    } - allowed
    assert hidden
    assert allowed
    hits = Retriever(view, group, similarity="bm25", topk=99)("tea public secret")
    assert hits
    reached = ways(view)[way](hits)
    stored = [
        node
        for node in reached
        if not node.merged_from or way.startswith("merge ") or way == "merge"
    ]
    assert {*stored} <= allowed
    for node in reached:
        assert not node.merged_from or {*node.merged_from} <= {one.uid for one in allowed}
        if way == "merged window" and group in ("line", "word"):
            assert not {"two", "four", "six", "eight"} & {*node.text.split()}
    for other in ways(view).values():
        further = other([node for node in stored if "window" not in way])
        assert not {*further} & hidden
    if (
        way not in ("parent", "merged window")
        and (group, way) != ("word", "children")
        and group != "chunk"
    ):
        assert {*ways(docs)[way](docs.get_nodes(group))} & hidden, (
            "without the view there is something to hide"
        )


def test_a_view_s_filter_and_a_question_s_are_both_kept():
    """With target=, windows and merges after it, a view's filter holds for all, the question's for
    the hits.
    """
    view = labelled().restricted(SEEN)
    asked = Retriever(view, "word", similarity="bm25", target="line", topk=99)
    lines = asked("tea", filters={"file_name": ["open", "mixed"]})
    assert {line.text.split()[-1] for line in lines} == {"one", "three", "seven", "nine"}
    assert {node.text.split()[-1] for node in view.window(lines, 9, 9)} == {
        "one",
        "three",
        "seven",
        "nine",
    }
    assert {node.path for node in auto_merge(lines, ratio=0.1, least=1)} == {"open", "mixed"}


# There and back


trees = st.lists(
    st.lists(
        st.lists(st.sampled_from(["ab", "c", "def"]), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=3,
).map(lambda tree: "|".join(";".join(" ".join(line) for line in part) for part in tree))


@settings(max_examples=settings.default.max_examples // 3)
@given(st.lists(trees, min_size=1, max_size=2), st.data())
def test_there_and_back(texts, data):
    """Back from any group the start is among what is found; all is related, each once, in the
    nodes' order.
    """
    docs = define(Document())
    docs.add_texts({f"d{number}": text for number, text in enumerate(texts)})
    start, target = (
        data.draw(st.sampled_from([ROOT, *GROUPS])),
        data.draw(st.sampled_from([ROOT, *GROUPS])),
    )
    nodes = data.draw(st.lists(st.sampled_from(docs.get_nodes(start)), max_size=4))
    nodes = [node.with_score(float(-rank)) for rank, node in enumerate(nodes)]
    there = docs.find(target)(nodes)
    assert {*nodes} <= {*docs.find(start)(there)}
    assert len({*there}) == len(there)
    assert [node.score for node in there] == sorted((node.score for node in there), reverse=True)
    alone = [docs.find(target)(node) for node in nodes]
    assert there == list(dict.fromkeys(node for some in alone for node in some))
    for node, some in zip(nodes, alone, strict=True):
        assert some, "every group has a node beneath every node here"
        assert {one.document_id for one in some} == {node.document_id}
    if nodes and start != target:
        lines = {group: line_of(docs, group) for group in (start, target)}
        if target in lines[start] or start in lines[target]:
            assert docs.find(target)(nodes) == there


def line_of(docs: Document, group: str) -> list[str]:
    """A group and those above it."""
    node = docs.get_nodes(group)[0]
    line = [node.group]
    while node.parent is not None:
        node = node.parent
        line.append(node.group)
    return line
