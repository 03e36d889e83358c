"""Nodes: content, metadata, vectors, places, neighbours."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from lazyrag import LAZY_ROOT_NAME, DocNode, Document, Hit, Retriever, register_loader
from lazyrag.data.segment import Location, Segment
from lazyrag.errors import ConfigError, StaleNodeError
from lazyrag.loaders import LoadedFile


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("绿茶", "绿茶"),
        ("", ""),
        (0, "0"),
        (-7, "-7"),
        (2.5, "2.5"),
        (True, "True"),
        (False, "False"),
        ({"名": [1, None]}, '{"名": [1, null]}'),
        (["茶", 1], '["茶", 1]'),
    ],
)
def test_content_keeps_its_type_and_has_a_text(content, text):
    """Numbers, mappings and lists stay what they are; their text is what Python or JSON writes."""
    node = DocNode(content)
    assert node.content == content
    assert isinstance(node.content, bool) == isinstance(content, bool)
    assert node.text == node.get_text() == text


def test_a_tuple_becomes_a_list():
    """Stores keep JSON, which knows lists only."""
    assert DocNode((1, 2)).content == [1, 2]
    assert DocNode((1, 2)).text == "[1, 2]"


@pytest.mark.parametrize(
    ("scalar", "python"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array(4), 4),
        (np.str_("茶"), "茶"),
    ],
)
def test_a_numpy_scalar_becomes_pythons(scalar, python):
    """Stores keep JSON, which knows no numpy."""
    content = DocNode(scalar).content
    assert content == python
    assert type(content) is type(python)


@pytest.mark.parametrize(
    "content",
    [
        object(),
        {1, 2},
        b"bytes",
        float("nan"),
        float("inf"),
        [float("nan")],
        {"a": object()},
        np.zeros(2),
        {(1,): 2},
    ],
    ids=lambda one: repr(one).partition(" at 0x")[0],
)
def test_content_that_is_no_json_value_is_refused(content):
    """The error shows the value and its type."""
    with pytest.raises(ConfigError, match="JSON value"):
        DocNode(content)


@pytest.mark.parametrize(
    "arguments", [{}, {"content": "a", "text": "a"}, {"content": None}, {"text": None}]
)
def test_a_node_has_exactly_one_content(arguments):
    """content= and text= are two names of one argument."""
    with pytest.raises(ConfigError, match="exactly one"):
        DocNode(**arguments)


def test_both_names_of_the_content_make_the_same_node():
    """DocNode("a"), DocNode(content="a") and DocNode(text="a") are one."""
    assert DocNode("a") == DocNode(content="a") == DocNode(text="a")


def test_a_free_node_belongs_nowhere():
    """Outside a tree there is no group, document, number, parent, child, place or file."""
    node = DocNode(text="tea")
    assert (node.group, node.document_id, node.path, node.number) == ("", "", "", 0)
    assert node.parent is None
    assert node.children == {}
    assert (node.span, node.source, node.locations, node.location) == (None, None, (), "")
    assert dict(node.global_metadata) == {}
    assert node.score is None
    with pytest.raises(StaleNodeError, match="belongs to no document"):
        _ = node.root


def test_a_free_node_may_name_its_span():
    """The span is kept for the transform that made it; without a parent there is no source and no
    place.
    """
    node = DocNode(text="tea", span=(6, 9))
    assert node.span == (6, 9)
    assert (node.source, node.locations, node.location) == (None, (), "")


def test_a_free_nodes_uid_comes_of_content_and_metadata():
    """The same text and metadata give the same uid, whatever their order; another of either gives
    another.
    """
    node = DocNode(text="tea", metadata={"a": 1, "b": 2})
    assert node.uid == DocNode(text="tea", metadata={"b": 2, "a": 1}).uid
    others = [
        DocNode(text="tea"),
        DocNode(text="Tea", metadata={"a": 1, "b": 2}),
        DocNode(text="tea", metadata={"a": 1, "b": "2"}),
        DocNode(text="tea", metadata={"a": 1}),
    ]
    assert len({node.uid, *(other.uid for other in others)}) == 5
    assert DocNode(text="tea", uid="mine").uid == "mine"


@pytest.mark.parametrize(
    ("one", "other"), [(1, "1"), (True, "True"), ({"a": 1}, '{"a": 1}'), (1, 1.5), (1, True)]
)
def test_nodes_of_different_content_are_different(one, other):
    """A number and its digits are two contents, so two uids."""
    assert DocNode(one) != DocNode(other)


def test_metadata_whose_names_are_no_text_is_refused():
    """As in a tree: the error names what is wrong, instead of failing on the way."""
    with pytest.raises(ConfigError, match="strings"):
        DocNode(text="tea", metadata={1: "a", "b": 2})


def test_nodes_are_equal_when_their_uids_are():
    """Score, vectors and group do not count, so sets and dicts of nodes work."""
    node = DocNode(text="tea", uid="u")
    same = DocNode(text="other", uid="u", score=0.5)
    assert node == same
    assert hash(node) == hash(same)
    assert {node, same, DocNode(text="tea", uid="v")} == {same, DocNode(text="x", uid="v")}
    assert node != "u"
    assert node != DocNode(text="tea", uid="v")


@pytest.mark.parametrize(
    "name", ["uid", "content", "score", "group", "number", "span", "embedding", "note"]
)
def test_nothing_else_can_be_set_on_a_node(name):
    """Neither what it has nor what it has not."""
    with pytest.raises(AttributeError):
        setattr(DocNode(text="tea"), name, 1)


def test_a_node_of_ones_own_is_writable_and_computes_its_uid_again():
    """Text and metadata can be changed, one by one or as a whole; equal nodes stay equal, copies
    stay as they were.
    """
    mine = {"year": 2002}
    node = DocNode(text="tea", metadata=mine, span=(0, 3))
    before, scored = node.uid, node.with_score(0.5)
    mine["year"] = 1
    assert node.metadata == {"year": 2002}
    node.metadata["year"] = 2003
    node.text = "green tea"
    node.metadata["season"] = "spring"
    assert node == DocNode(text="green tea", metadata={"year": 2003, "season": "spring"})
    assert (node.uid != before, node.span, scored.text, scored.metadata) == (
        True,
        None,
        "tea",
        {"year": 2002},
    )
    node.metadata = {}
    assert (node.metadata, node.segment.metadata) == ({}, {})
    copied = copy.deepcopy(node)
    copied.text = "black tea"
    assert node.text == "green tea"
    with pytest.raises(ConfigError, match="text"):
        node.text = 5


def test_a_node_of_a_document_stays_read_only(docs):
    """Neither its text nor its metadata can be set; the error says what to do."""
    node = docs.get_nodes("line")[0]
    for name, value in (("text", "x"), ("metadata", {}), ("global_metadata", {})):
        with pytest.raises(AttributeError, match="read-only"):
            setattr(node, name, value)
    for mapping in (node.metadata, node.global_metadata):
        with pytest.raises(TypeError, match="read-only"):
            mapping["year"] = 1


def test_a_copy_carries_the_score_and_the_original_does_not():
    """Scores belong to the copies that a search hands out."""
    node = DocNode(text="tea", metadata={"a": 1}, embeddings={"k": np.ones(2, np.float32)})
    scored = node.with_score(0.25)
    assert (scored.score, node.score) == (0.25, None)
    assert scored == node
    assert (scored.text, dict(scored.metadata), list(scored.embeddings)) == ("tea", {"a": 1}, ["k"])
    assert scored.with_score(None).score is None


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (DocNode(text="tea"), "DocNode(no group#0: 'tea')"),
        (DocNode(text="tea", score=0.5), "DocNode(no group#0: 'tea', score=0.5000)"),
        (DocNode(text="x" * 41), f"DocNode(no group#0: '{'x' * 37}...')"),
        (DocNode(7), "DocNode(no group#0: '7')"),
        (
            DocNode.from_segment(Segment("u", 1, "block", "d", "dir/a.txt", "d", 3, "a\nb"), None),
            r"DocNode(block dir/a.txt#3: 'a\nb')",
        ),
    ],
)
def test_a_node_shows_where_it_stands_and_how_it_begins(node, shown):
    """Group, file, number, the first 40 characters, the score."""
    assert repr(node) == shown


def test_the_only_vector_is_the_embedding():
    """With one vector there is no need to name its key."""
    vector = np.array([1, 2], np.float32)
    node = DocNode(text="tea", embeddings={"default": vector})
    assert node.embedding.tolist() == [1.0, 2.0]
    assert list(node.embeddings) == ["default"]


def test_several_vectors_have_to_be_named():
    """The error lists the keys; each can be read by its own."""
    node = DocNode(
        text="tea", embeddings={"zh": np.zeros(2, np.float32), "en": np.ones(3, np.float32)}
    )
    with pytest.raises(ConfigError, match=r"with one of: en, zh"):
        _ = node.embedding
    assert node.embeddings["en"].shape == (3,)


def test_no_vector_is_an_error_that_says_why():
    """A group that no search by embedding has asked for has none."""
    with pytest.raises(ConfigError, match="no embedding"):
        _ = DocNode(text="tea").embedding
    assert dict(DocNode(text="tea").embeddings) == {}


def test_the_mapping_of_vectors_is_read_only():
    """A vector cannot be slipped under a node."""
    node = DocNode(text="tea", embeddings={"k": np.ones(2, np.float32)})
    with pytest.raises(TypeError):
        node.embeddings["other"] = np.ones(2, np.float32)


GUIDE = (
    "intro\n\n# Tea\n\nGreen tea.\nBlack tea is\nfermented.\n\n## Picking\n\nIn April.  By hand.\n"
)


class _Pages:
    """Pages are separated by form feeds; the third has no number of its own on paper."""

    def load(self, path):
        for number, page in enumerate(path.read_text(encoding="utf-8").split("\f"), start=1):
            yield DocNode(text=page, metadata={"page": number})


@pytest.fixture
def docs(folder):
    """A guide in Markdown with headings, and a book in pages; lines, sentences of lines, and
    rewritten lines.
    """
    register_loader(".pages")(_Pages)
    files = {"dir/guide.md": GUIDE, "book.pages": "first page\nends\fsecond page\fthird page"}
    docs = Document(
        folder(files), file_metadata={"book.pages": {"author": "陆羽", "tags": ["tea"]}}
    )
    docs.create_node_group("line", transform=lambda d: d.splitlines())
    docs.create_node_group("sentence", transform=lambda d: d.split(". "), parent="line")
    docs.create_node_group("shout", transform=lambda d: d.upper(), parent="line")
    docs.create_node_group("word", transform=lambda d: d.split(), parent="shout")
    docs.create_node_group("whole", transform=lambda d: d)
    return docs


def _only(docs: Document, group: str, text: str) -> DocNode:
    [node] = [node for node in docs.get_nodes(group) if node.text == text]
    return node


def test_a_node_knows_its_document(docs):
    """Path, document id, number and root lead to the file; numbers count from 1 in each
    document.
    """
    node = _only(docs, "line", "second page")
    root = docs.get_nodes(LAZY_ROOT_NAME)[0]
    assert (node.path, node.group, node.number) == ("book.pages", "line", 3)
    assert node.document_id == root.uid
    assert node.root == node.parent == root
    assert root.root == root
    assert (root.parent, root.number, root.document_id) == (None, 1, root.uid)
    assert [one.number for one in docs.get_nodes("line") if one.path == "dir/guide.md"] == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]


def test_a_span_counts_in_the_whole_document(docs):
    """The text of a node, and of a node of that node, stands at its span in the root's text."""
    nodes = [*docs.get_nodes("line"), *docs.get_nodes("sentence"), *docs.get_nodes("whole")]
    assert len(nodes) > 20
    for node in nodes:
        start, end = node.span
        assert node.source == node.root
        assert node.root.text[start:end] == node.text


def test_a_rewritten_text_has_no_span(docs):
    """Without span there is no source, no place and no page, but a parent."""
    node = _only(docs, "shout", "SECOND PAGE")
    assert (node.span, node.source, node.locations, node.location) == (None, None, (), "")
    assert node.parent.text == "second page"


def test_below_a_rewritten_text_the_span_counts_in_that(docs):
    """The source is the nearest ancestor in whose text the span counts; pages of another text are
    not guessed.
    """
    [node] = [one for one in docs.get_nodes("word") if one.text == "SECOND"]
    assert node.span == (0, 6)
    assert node.source == node.parent
    assert (node.source.group, node.source.text[0:6]) == ("shout", "SECOND")
    assert (node.locations, node.location) == ((), "")


def test_a_place_is_a_page_where_there_are_pages(docs):
    """A node on one page names it; the root names all of them."""
    node = _only(docs, "sentence", "second page")
    assert [(location.kind, location.label) for location in node.locations] == [("page", "2")]
    assert node.location == "page 2"
    assert [location.label for location in node.root.locations] == ["1", "2", "3"]
    assert _only(docs, "whole", node.root.text).location == "pages 1-3"


def test_the_places_of_a_root_are_stretches_of_its_text(docs):
    """Each page's stretch holds that page's text."""
    root = _only(docs, "line", "second page").root
    assert [root.text[location.start : location.end] for location in root.locations] == [
        "first page\nends",
        "second page",
        "third page",
    ]
    assert root.location == ""


@pytest.mark.parametrize(
    ("group", "text", "location"),
    [
        ("line", "intro", "line 1"),
        ("line", "# Tea", "Tea, line 3"),
        ("line", "Green tea.", "Tea, line 5"),
        ("line", "## Picking", "Tea > Picking, line 9"),
        ("sentence", "In April", "Tea > Picking, line 11"),
        ("sentence", " By hand.", "Tea > Picking, line 11"),
        ("whole", GUIDE, "lines 1-11"),
    ],
)
def test_a_place_is_a_heading_and_lines(docs, group, text, location):
    """Without pages, the deepest heading that covers it and its lines, counted from 1."""
    assert _only(docs, group, text).location == location


@pytest.mark.parametrize(
    ("span", "labels", "location"),
    [
        ((3, 10), ["2"], "page 2"),  # white space at the ends touches pages 1 and 3, ink does not
        ((0, 1), ["1"], "page 1"),
        ((0, 6), ["1", "2"], "pages 1-2"),
        ((0, 11), ["1", "2", "3"], "pages 1-3"),
    ],
)
def test_only_ink_makes_a_place(folder, span, labels, location):
    """White space at a node's ends does not put it on its neighbour's page."""

    @register_loader(".three")
    class ThreePages:
        def load(self, path):
            locations = (
                Location(0, 5, "page", "1"),
                Location(5, 10, "page", "2"),
                Location(10, 11, "page", "3"),
            )
            return LoadedFile(path.read_text(encoding="utf-8"), locations)

    docs = Document(folder({"a.three": "a a\n\nb c\n\nd"}))
    docs.create_node_group(
        "piece", lambda node: DocNode(text=node.text[slice(*span)], span=span), trans_node=True
    )
    [node] = docs.get_nodes("piece")
    assert [one.label for one in node.locations] == labels
    assert node.location == location


def test_children_stand_below_their_parent_by_group_and_in_order(docs):
    """Only what is built is there; each child's parent is the node."""
    docs.activate_group("sentence", "word")
    root = _only(docs, "line", "second page").root
    children = root.children
    assert list(children) == ["line"]
    assert [child.text for child in children["line"]] == [
        "first page",
        "ends",
        "second page",
        "third page",
    ]
    assert all(child.parent == root for child in children["line"])
    below = children["line"][2].children
    assert {name: [one.text for one in nodes] for name, nodes in below.items()} == {
        "sentence": ["second page"],
        "shout": ["SECOND PAGE"],
    }
    assert below["sentence"][0].children == {}


def test_a_node_has_its_own_metadata_and_its_files(docs):
    """A root's own metadata are its file's; nodes below reach them as global_metadata."""
    node = _only(docs, "line", "second page")
    assert dict(node.metadata) == {}
    assert node.global_metadata["author"] == "陆羽"
    assert node.global_metadata["file_name"] == "book.pages"
    assert dict(node.root.metadata) == dict(node.global_metadata)
    with pytest.raises(TypeError):
        node.global_metadata["author"] = "someone"


def test_uids_do_not_depend_on_where_the_dataset_lies(tmp_path):
    """The same files in another folder give the same uids, in every group; another name gives
    others.
    """
    uids = []
    for name in ("here", "over/there"):
        path = tmp_path / name / "dataset"
        path.mkdir(parents=True)
        (path / "a.txt").write_text("tea\ncoffee", encoding="utf-8")
        docs = Document(path)
        docs.create_node_group("line", transform=lambda d: d.splitlines())
        uids.append(
            [
                node.uid
                for group in (LAZY_ROOT_NAME, "line", "FineChunk")
                for node in docs.get_nodes(group)
            ]
        )
    assert len(set(uids[0])) == 4
    assert uids[0] == uids[1]
    (path / "a.txt").rename(path / "b.txt")
    assert set(uids[0]).isdisjoint(node.uid for node in Document(path).get_nodes("FineChunk"))


def test_a_node_whose_group_was_built_anew_follows_it_or_says_so(docs):
    """Where an equal node took its place, its neighbours are that one's; where none did, the error
    says what to do.
    """
    first, last = docs.get_nodes("sentence")[0], _only(docs, "sentence", "third page")
    assert (first.parent.text, last.parent.number) == ("first page", 4)
    docs.create_node_group(
        "line", transform=lambda d: d.split("\n"), replace=True, version="empty lines, too"
    )
    docs.activate_group("sentence")
    assert first.parent == docs.get_nodes("line")[0]
    assert first.parent.children["sentence"] == [first]
    docs.create_node_group("line", transform=lambda d: d.split("\n\n"), replace=True)
    with pytest.raises(StaleNodeError, match="Retrieve the node again"):
        _ = first.parent  # its group is not there before something asks for it
    docs.activate_group("sentence")
    with pytest.raises(StaleNodeError, match="Retrieve the node again"):
        _ = last.parent
    with pytest.raises(StaleNodeError, match="Retrieve the node again"):
        _ = last.children
    assert last.text == "third page"


def test_a_node_never_has_another_ones_neighbours(folder):
    """Where a group above was redefined, an old node's place is taken by another text: it is stale,
    not misled.
    """
    docs = Document(folder({"a.txt": "one two. three four. five six. seven eight"}))
    docs.create_node_group("block", transform=lambda d: d.upper().split("."))
    docs.create_node_group("word", transform=str.split, parent="block")
    block, word = docs.get_nodes("block")[1], docs.get_nodes("word")[2]
    assert (block.text, word.text, word.source) == (" THREE FOUR", "THREE", block)
    docs.create_node_group("block", transform=lambda d: d.upper().split(), replace=True)
    docs.activate_group("word")
    for ask in (
        lambda: word.parent,
        lambda: word.source,
        lambda: block.children,
        lambda: docs.find("word")([block]),
    ):
        with pytest.raises(StaleNodeError):
            ask()


def test_vectors_of_a_tree_are_those_that_a_search_has_asked_for(folder):
    """Before, a node has none; after, the key that was searched by; a copy, so that the store's
    stays.
    """
    embed = {"length": lambda text: [float(len(text)), 1.0], "ones": lambda text: [1.0]}
    docs = Document(folder({"a.txt": "green tea"}), embed=embed)
    assert dict(docs.get_nodes("FineChunk")[0].embeddings) == {}
    [node] = Retriever(docs, "FineChunk", similarity="cosine", embed_keys=["length"])("tea")
    assert {key: vector.tolist() for key, vector in node.embeddings.items()} == {
        "length": [9.0, 1.0]
    }
    assert node.embedding.dtype == np.float32
    node.embedding[0] = 0.0
    assert node.embedding.tolist() == [9.0, 1.0]


def test_what_a_node_hands_out_cannot_change_the_tree(folder):
    """Nothing about a node can be changed in place: lists inside content and metadata are the
    reader's own.
    """
    docs = Document(folder({"a.txt": "tea"}), file_metadata={"a.txt": {"tags": ["green"]}})
    docs.create_node_group("json", transform=lambda d: {"kinds": [d]})
    node = docs.get_nodes("json")[0]
    for held in (node.content["kinds"], node.global_metadata["tags"], node.root.metadata["tags"]):
        try:
            held.append("changed")
        except (AttributeError, TypeError):
            continue
    again = docs.get_nodes("json")[0]
    assert again.content == {"kinds": ["tea"]}
    assert list(again.global_metadata["tags"]) == ["green"]


def test_copies_of_a_node_are_the_node(docs):
    """A Document's node is a value, so copying it, alone or in a list, gives it back; one's own has
    an equal copy.
    """
    for node in (DocNode(text="tea", metadata={"tags": ["a"]}), docs.get_nodes("line")[0]):
        assert (copy.copy(node) is node) == (copy.deepcopy(node) is node) == bool(node.group)
        assert copy.deepcopy([node, {"node": node}]) == [node, {"node": node}]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_free_node_can_be_pickled(protocol):
    """Outside a tree a node goes through pickle with all it has."""
    node = DocNode(
        {"名": 1},
        metadata={"tags": ["a"]},
        score=0.5,
        span=(1, 3),
        embeddings={"k": np.ones(2, np.float32)},
    )
    again = pickle.loads(pickle.dumps(node, protocol))  # noqa: S301  our own bytes
    assert again == node
    assert (again.content, again.metadata, again.score, again.span) == (
        {"名": 1},
        {"tags": ["a"]},
        0.5,
        (1, 3),
    )
    assert again.embedding.tolist() == [1.0, 1.0]
    again.metadata["tags"] = []
    assert node.metadata == {"tags": ["a"]}


def test_a_node_of_a_tree_cannot_be_pickled_and_its_hit_can(docs):
    """What hangs on an open Document is refused with the name of what can be sent instead."""
    node = docs.get_nodes("line")[0]
    with pytest.raises(TypeError, match=r"Hit\.from_node"):
        pickle.dumps(node)
    hit = Hit.from_node(node.with_score(1.0))
    again = pickle.loads(pickle.dumps(hit))  # noqa: S301  our own bytes
    assert again == hit
    assert again.to_dict() == hit.to_dict()
    assert again.metadata["author"] == "陆羽"


def test_metadata_are_json_and_refuse_every_change(docs):
    """A node's metadata are written as JSON like any dict, and no method of a dict changes them."""
    root = docs.get_nodes()[0]
    assert json.loads(json.dumps(root.metadata, ensure_ascii=False))["author"] == "陆羽"
    assert json.loads(json.dumps(dict(root.global_metadata)))["tags"] == ["tea"]
    before = dict(root.metadata)
    changes = [
        lambda: root.metadata.__setitem__("author", "x"),
        lambda: root.metadata.__delitem__("author"),
        lambda: root.metadata.update(author="x"),
        lambda: root.metadata.pop("author"),
        root.metadata.popitem,
        lambda: root.metadata.setdefault("more", 1),
        root.metadata.clear,
        lambda: root.metadata.__ior__({"author": "x"}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="read-only"):
            change()
    assert dict(root.metadata) == dict(docs.get_nodes()[0].metadata) == before
    own = root.metadata.copy()
    own["author"] = "x"
    assert root.metadata["author"] == "陆羽"


class Tagged(DocNode):
    """A node of a user's own kind."""


def test_a_subclass_keeps_its_own(folder):
    """Pickling and with_score keep the class and what it was given."""
    node = Tagged(text="tea", metadata={"a": 1})
    node.language = "en"
    for copied in (pickle.loads(pickle.dumps(node)), node.with_score(0.5)):  # noqa: S301  our own bytes
        assert (type(copied), copied.language, copied.text, copied.metadata) == (
            Tagged,
            "en",
            "tea",
            {"a": 1},
        )
