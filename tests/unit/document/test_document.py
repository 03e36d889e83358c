"""`Document` from outside: its arguments, its nodes and the ways between them."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
import time

import pytest

from lazyrag import Condition, DataType, DocField, DocNode, Document, LazyRAGError, Retriever
from lazyrag.errors import (
    ConfigError,
    DatasetPathError,
    NotRegisteredError,
    StaleNodeError,
    UnknownKeywordError,
)

FILES = {
    "a.txt": "One is first. Two is second.\nThree is third.",
    "b/c.txt": "Green tea. Black tea.\nCoffee. Milk. Water.",
    "d.md": "# Title\nLast line.",
}


@pytest.fixture
def docs(folder):
    """Three files, in lines, sentences of lines and words."""
    made = Document(folder(FILES))
    made.create_node_group("line", transform=lambda text: text.split("\n"))
    made.create_node_group("sentence", transform=lambda line: line.split(". "), parent="line")
    made.create_node_group("word", transform=lambda text: text.split())
    return made


def embed(text):
    """A vector for a text."""
    return [float(len(text)), 1.0]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_document_is_not_copied(docs, duplicate):
    """Two objects would write the same open stores; the error names what serves instead, also of
    what holds one.
    """
    for one in (docs, docs.restricted({"file_name": "a.txt"}), [docs]):
        if one is not docs and duplicate is copy.copy and isinstance(one, list):
            continue  # a shallow copy of a list holds the same Document
        with pytest.raises(ConfigError, match="restricted"):
            duplicate(one)
    assert len(docs.get_nodes("line")) == 6


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("part", ["versions", "tables", "maintenance", "reader"])
def test_a_part_of_a_document_is_not_copied(docs, duplicate, part):
    """The error is that of the Document."""
    with pytest.raises(ConfigError, match="A Document cannot be copied or pickled"):
        duplicate(getattr(docs, part))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"manager": "page"},
            ConfigError,
            "manager must be True, False, 'ui' or a port; got 'page'",
        ),
        ({"manager": 70_000}, ConfigError, "manager must be an integer from 1 to 65535"),
        ({"read_only": True}, ConfigError, "Pass its store_conf, such as store_conf='tea.db'"),
        ({"manager": 0}, ConfigError, "manager must be an integer from 1 to 65535; got 0"),
        ({"files": {}}, ConfigError, "files must be a FileSelection or None; got {}"),
        ({"launcher": object()}, ConfigError, "launcher must be None, an integer"),
        ({"launcher": 0}, ConfigError, "launcher must be an integer >= 1"),
        (
            {"launcher": 2, "embed": lambda text: [1.0]},
            ConfigError,
            "<lambda>, which other processes cannot import",
        ),
        ({"embed": "bge-large"}, ConfigError, "not on this machine.*lazyrag model fetch"),
        ({"embed": {}}, ConfigError, "embed must be a callable"),
        ({"embed": {"a": embed, "b": 5}}, ConfigError, "embed of key 'b'"),
        ({"embed": {"": embed}}, ConfigError, "mapping of names"),
        ({"embed": {5: embed}}, ConfigError, "mapping of names"),
        ({"embed": [embed]}, ConfigError, "callable"),
        ({"name": ""}, ConfigError, "name must be a string"),
        ({"name": "  "}, ConfigError, "name must be a string"),
        ({"name": 5}, ConfigError, "name must be a string"),
        ({"doc_fields": {"file_name": DocField(DataType.VARCHAR)}}, ConfigError, "built-in"),
        (
            {"doc_fields": {"publish year": DocField(DataType.INT32)}},
            ConfigError,
            "'publish year'",
        ),
        (
            {"doc_fields": {"year": DataType.INT32}},
            ConfigError,
            r"doc_fields\['year'\] must be a DocField",
        ),
        ({"doc_fields": {"year": int}}, ConfigError, r"doc_fields\['year'\] must be a DocField"),
        (
            {"doc_fields": {5: DocField(DataType.INT32)}},
            ConfigError,
            "names of doc_fields must be .* 5",
        ),
        ({"doc_fields": ["author"]}, ConfigError, "doc_fields"),
        ({"doc_fields": "author"}, ConfigError, "doc_fields"),
        ({"doc_fields": 5}, ConfigError, "doc_fields"),
        ({"store_conf": "map"}, ConfigError, "store_conf must be a mapping"),
        (
            {"store_conf": {"segment": {}}},
            ConfigError,
            "key 'segment'.*Did you mean 'segment_store'",
        ),
        ({"store_conf": {"vector_store": {"type": "milvs"}}}, ConfigError, "Did you mean 'milvus'"),
        (
            {"store_conf": {"vector_store": {"type": "milvus", "kwargs": {"uri": "x"}}}},
            ConfigError,
            "uri",
        ),
        (
            {"datset_path": "x"},
            ConfigError,
            "no argument 'datset_path'.*Did you mean 'dataset_path'",
        ),
        ({"embeds": embed}, ConfigError, "no argument 'embeds'.*Did you mean 'embed'"),
    ],
)
def test_wrong_arguments(arguments, error, words):
    """A wrong argument is refused at once with what was given, what is allowed and what to do."""
    with pytest.raises(error, match=words) as caught:
        Document(**arguments)
    assert isinstance(caught.value, LazyRAGError)


@pytest.mark.parametrize(
    "arguments",
    [
        {
            "manager": False,
            "launcher": None,
            "embed": None,
            "store_conf": None,
            "doc_fields": None,
            "name": None,
        },
        {"embed": embed},
        {"embed": {"short": embed, "long": embed}},
        {"store_conf": {}},
        {
            "store_conf": {
                "segment_store": {"type": "map"},
                "vector_store": {"type": "map", "kwargs": {}},
            }
        },
        {"doc_fields": {"作者": DocField(DataType.VARCHAR), "year": DocField(DataType.INT32)}},
        {"name": "my documents / 我的"},
    ],
    ids=" ".join,
)
def test_right_arguments(folder, arguments):
    """Every argument in each of its forms makes a Document that answers."""
    docs = Document(folder(FILES), **arguments)
    assert [hit.path for hit in Retriever(docs, "FineChunk", similarity="bm25")("coffee")] == [
        "b/c.txt"
    ]


def test_arguments_by_position(folder):
    """The first six arguments can be given by position, in spec 001's order."""
    fields = {"year": DocField(DataType.INT32)}
    docs = Document(folder(FILES), embed, False, None, {"segment_store": {"type": "map"}}, fields)
    assert Retriever(docs, "FineChunk")("tea")[0].score is not None
    assert docs.get_nodes(filters={"year": 2001}) == []


def test_nothing_is_read_before_it_is_needed(folder):
    """Making a Document, groups and a Retriever reads no file; there is no report before the first
    use.
    """
    root = folder(FILES)
    docs = Document(root)
    docs.create_node_group("line", transform=str.splitlines)
    Retriever(docs, "line", similarity="bm25")
    assert docs.last_report is None
    (root / "late.txt").write_text("late", encoding="utf-8")
    docs.activate_group("line")
    assert docs.last_report.added == ("a.txt", "b/c.txt", "d.md", "late.txt")


def test_names(folder):
    """The name tells Documents apart for people, too."""
    assert (Document().name, Document(name="tea").name) == ("default", "tea")
    assert "tea" in repr(Document(name="tea"))


def test_documents_with_equal_relative_names(folder, tmp_path):
    """Two Documents whose files have equal names do not mix: each has its own text, asked alone or
    together.
    """
    first = Document(folder({"a.txt": "green tea leaves"}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("green tea cups", encoding="utf-8")
    second = Document(tmp_path / "other")
    assert first.get_nodes()[0].uid == second.get_nodes()[0].uid
    for docs, text in ((first, "green tea leaves"), (second, "green tea cups")):
        assert [hit.text for hit in Retriever(docs, "FineChunk", similarity="bm25")("tea")] == [
            text
        ]
    both = Retriever([first, second], "FineChunk", similarity="bm25")("tea")
    assert sorted(hit.text for hit in both) == ["green tea cups", "green tea leaves"]
    assert sorted(hit.parent.text for hit in both) == ["green tea cups", "green tea leaves"]
    nodes = [first.get_nodes()[0], second.get_nodes()[0]]
    assert nodes[0] != nodes[1]
    assert len({*nodes, *nodes}) == 2
    assert (
        nodes[0]
        == first.get_nodes()[0]
        == both[[hit.text for hit in both].index("green tea leaves")].parent
    )


def test_two_documents_over_one_folder(folder):
    """Two Documents over one folder, also of one name, have their own groups and answers."""
    root = folder(FILES)
    first, second = Document(root), Document(root)
    first.create_node_group("g", transform=lambda text: text.upper())
    second.create_node_group("g", transform=lambda text: text.lower())
    assert first.get_nodes("g")[0].text == FILES["a.txt"].upper()
    assert second.get_nodes("g")[0].text == FILES["a.txt"].lower()


def test_root_nodes_hold_whole_files(docs):
    """The root group has one node for each file, with its whole text; both spellings of its name
    mean it.
    """
    nodes = docs.get_nodes()
    assert [(node.path, node.text) for node in nodes] == sorted(FILES.items())
    assert docs.get_nodes("lazyllm_root") == docs.get_nodes("lazyllm-root") == nodes
    assert {node.group for node in nodes} == {"lazyllm_root"}
    assert all(
        node.parent is None and node.root == node and node.document_id == node.uid for node in nodes
    )


def test_nodes_come_in_order_of_path_then_number(docs):
    """The nodes of a group come document by document in order of path, in order of number."""
    assert [(node.path, node.text) for node in docs.get_nodes("line")] == [
        (path, line) for path, text in sorted(FILES.items()) for line in text.split("\n")
    ]
    assert docs.get_nodes("word") == docs.get_nodes("word")


def test_numbers_count_from_1_in_each_document_and_group(docs):
    """A node's number is its ordinal among its group's nodes in its document, through all
    parents.
    """
    sentences = [(node.path, node.number) for node in docs.get_nodes("sentence")]
    assert sentences == [("a.txt", n) for n in (1, 2, 3)] + [
        ("b/c.txt", n) for n in (1, 2, 3, 4, 5)
    ] + [("d.md", n) for n in (1, 2)]
    assert [node.number for node in docs.get_nodes()] == [1, 1, 1]


def test_parents_and_roots(docs):
    """A node's parent is the one it was made of, its root the whole document."""
    for node in docs.get_nodes("sentence"):
        assert node.text in node.parent.text
        assert node.parent.group == "line"
        assert node.parent.parent == node.root
        assert node.root.text == FILES[node.path]
        assert node.root.uid == node.document_id


def test_children_by_group(docs):
    """A node's children are grouped by the groups that are built, in order; leaves have none."""
    [root, *_] = docs.get_nodes()
    assert root.children == {}
    docs.activate_group("sentence", "word")
    assert {group: [node.text for node in nodes] for group, nodes in root.children.items()} == {
        "line": ["One is first. Two is second.", "Three is third."],
        "word": FILES["a.txt"].split(),
    }
    line = root.children["line"][0]
    assert [node.text for node in line.children["sentence"]] == ["One is first", "Two is second."]
    assert [node.parent for node in line.children["sentence"]] == [line, line]
    assert line.children["sentence"][0].children == {}


def test_many_children(folder):
    """All of a thousand children are there, in order."""
    docs = Document(folder({"a.txt": " ".join(f"w{number}" for number in range(1000))}))
    docs.create_node_group("word", transform=str.split)
    docs.activate_group("word")
    children = docs.get_nodes()[0].children["word"]
    assert [node.text for node in children] == [f"w{number}" for number in range(1000)]
    assert children == docs.get_nodes("word")


def test_a_parent_without_children(folder):
    """A node that a transform makes nothing of has no children in that group, and the group none
    from it.
    """
    docs = Document(folder({"a.txt": "keep", "b.txt": "drop"}))
    docs.create_node_group("kept", transform=lambda text: text if text == "keep" else None)
    assert [node.text for node in docs.get_nodes("kept")] == ["keep"]
    assert [root.children["kept"] for root in docs.get_nodes()] == [docs.get_nodes("kept"), []]


def test_get_nodes_by_uid(docs):
    """Only the nodes with the given uids come, in the group's order whatever order they are given
    in.
    """
    nodes = docs.get_nodes("word")
    wanted = [nodes[5].uid, nodes[2].uid]
    assert docs.get_nodes("word", uids=wanted) == [nodes[2], nodes[5]]
    assert docs.get_nodes("word", uids=iter(wanted)) == [nodes[2], nodes[5]]
    assert docs.get_nodes("word", uids=["no such"]) == docs.get_nodes("word", uids=[]) == []
    assert docs.get_nodes("line", uids=wanted) == []


def test_get_nodes_by_document(docs):
    """Only the nodes of the given documents come."""
    tea = docs.get_nodes()[1]
    assert [node.text for node in docs.get_nodes("line", document_ids=[tea.uid])] == FILES[
        "b/c.txt"
    ].split("\n")
    assert {
        node.path
        for node in docs.get_nodes("word", document_ids={node.uid for node in docs.get_nodes()[:2]})
    } == {
        "a.txt",
        "b/c.txt",
    }


def test_get_nodes_by_number(docs):
    """Only the nodes with the given ordinals come, of each document."""
    assert [node.text for node in docs.get_nodes("line", numbers=[2])] == [
        "Three is third.",
        "Coffee. Milk. Water.",
        "Last line.",
    ]
    assert {node.number for node in docs.get_nodes("word", numbers=range(2, 4))} == {2, 3}
    assert docs.get_nodes("line", numbers=[0]) == []


def test_get_nodes_by_filters(docs):
    """Only the nodes that satisfy the filters come, given as a mapping or as a condition."""
    by_mapping = docs.get_nodes("word", filters={"file_type": [".md"]})
    assert {node.path for node in by_mapping} == {"d.md"}
    assert docs.get_nodes("word", filters=Condition("file_name", "eq", "d.md")) == by_mapping
    assert (
        len(docs.get_nodes("word", filters={})) == len(docs.get_nodes("word")) > len(by_mapping) > 0
    )


def test_get_nodes_by_several_arguments(docs):
    """Arguments together mean all of them; limit and offset count what is left."""
    tea = docs.get_nodes()[1].uid
    chosen = docs.get_nodes(
        "word", document_ids=[tea], numbers=[1, 3, 5, 7], filters={"file_name": "c.txt"}
    )
    assert [node.text for node in chosen] == ["Green", "Black", "Coffee.", "Water."]
    again = docs.get_nodes("word", document_ids=[tea], numbers=[1, 3, 5, 7], limit=2, offset=1)
    assert [node.text for node in again] == ["Black", "Coffee."]


@pytest.mark.parametrize(
    ("limit", "offset"), [(None, 0), (2, 0), (0, 0), (3, 4), (100, 2), (None, 3), (5, 100)]
)
def test_limit_and_offset(docs, limit, offset):
    """Pages of nodes are slices of all of them."""
    every = docs.get_nodes("word")
    assert len(every) > 10
    assert docs.get_nodes("word", limit=limit, offset=offset) == every[offset:][:limit]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"group": "lines"}, NotRegisteredError, "no node group 'lines'.*Did you mean 'line'"),
        ({"group": ""}, ConfigError, "not blank"),
        ({"group": None}, ConfigError, "not blank"),
        ({"limit": -1}, ConfigError, "limit"),
        ({"limit": "3"}, ConfigError, "limit"),
        ({"limit": True}, ConfigError, "limit"),
        ({"offset": 1.5}, ConfigError, "offset"),
        ({"filter": {}}, ConfigError, "Did you mean 'filters'"),
        ({"offset": -1}, ConfigError, "offset"),
        (
            {"filters": {"author": "Li"}},
            ConfigError,
            "Unknown filter field 'author'.*file_name.*doc_fields",
        ),
        ({"filters": {"file_size": "big"}}, ConfigError, "Field 'file_size' is INT64"),
        ({"filters": "file_name"}, ConfigError, "filters must be"),
        ({"uids": "0123"}, ConfigError, "uids"),
        ({"document_ids": "0123"}, ConfigError, "document_ids"),
        ({"numbers": 2}, ConfigError, "numbers"),
    ],
)
def test_wrong_arguments_of_get_nodes(docs, arguments, error, words):
    """A wrong argument is refused with what was given and what is allowed."""
    with pytest.raises(error, match=words):
        docs.get_nodes(**arguments)


def test_find_goes_up(docs):
    """find maps nodes to those above them in any group on their line, each once, in the
    nodes' order.
    """
    sentences = docs.get_nodes("sentence")
    assert docs.find("line")(sentences) == docs.get_nodes("line")
    assert docs.find("lazyllm-root")(sentences[::-1]) == docs.get_nodes()[::-1]
    assert docs.find("line")([sentences[4], sentences[0], sentences[3]]) == [
        sentences[4].parent,
        sentences[0].parent,
    ]


def test_find_goes_down(docs):
    """find maps nodes to all those below them, also across groups in between, building
    what is not built.
    """
    roots = docs.get_nodes()
    assert [node.text for node in docs.find("sentence")([roots[1]])] == [
        "Green tea",
        "Black tea.",
        "Coffee",
        "Milk",
        "Water.",
    ]
    lines = docs.get_nodes("line")
    assert docs.find("sentence")([lines[3]]) == docs.get_nodes("sentence")[5:8]


def test_find_across_siblings(docs):
    """find maps nodes to another branch through the lowest group above both."""
    words = docs.get_nodes("word", document_ids=[docs.get_nodes()[2].uid])
    assert [node.text for node in docs.find("sentence")([words[0]])] == ["# Title", "Last line."]
    docs.create_node_group("upper", transform=str.upper, parent="line")
    sentences = docs.get_nodes("sentence")
    assert [node.text for node in docs.find("upper")([sentences[4]])] == ["GREEN TEA. BLACK TEA."]


def test_find_keeps_the_group_itself(docs):
    """find from a group to itself gives the nodes themselves."""
    lines = docs.get_nodes("line")
    assert docs.find("line")([lines[3], lines[1]]) == [lines[3], lines[1]]


def test_find_keeps_order_and_scores(docs):
    """Each node that is found carries the score of the first node that led there, in the order of
    the nodes.
    """
    sentences = docs.get_nodes("sentence")
    hits = [
        sentences[4].with_score(3.0),
        sentences[0].with_score(2.0),
        sentences[3].with_score(1.0),
    ]
    assert [(node.text, node.score) for node in docs.find("line")(hits)] == [
        ("Green tea. Black tea.", 3.0),
        ("One is first. Two is second.", 2.0),
    ]
    down = docs.find("sentence")([node.with_score(0.5) for node in docs.get_nodes("line")[2:3]])
    assert [(node.text, node.score) for node in down] == [("Green tea", 0.5), ("Black tea.", 0.5)]


def test_find_takes_one_node_or_none(docs):
    """find takes a single node and an empty list, too."""
    sentence = docs.get_nodes("sentence")[0]
    assert docs.find("line")(sentence) == [sentence.parent]
    assert docs.find("line")([]) == []


def test_find_from_hits(docs):
    """A retriever's hits can be followed through the tree, with their scores."""
    hits = Retriever(docs, "sentence", similarity="bm25")("coffee")
    [line] = docs.find("line")(hits)
    assert (line.text, line.score) == ("Coffee. Milk. Water.", hits[0].score)


def test_find_names_unknown_groups_at_once(docs):
    """An unknown target is refused before there are nodes to map."""
    with pytest.raises(
        NotRegisteredError, match=r"no node group 'sentance'.*Did you mean 'sentence'"
    ):
        docs.find("sentance")


@pytest.mark.parametrize("stray", [DocNode(text="free"), "text", 5, None])
def test_find_refuses_what_is_no_node_of_a_document(docs, stray):
    """What stands in no tree cannot be followed."""
    with pytest.raises(ConfigError, match="nodes must be nodes of a Document"):
        docs.find("line")([stray])
    with pytest.raises(ConfigError, match="nodes must be a DocNode or a list of them; got 'text'"):
        docs.find("line")("text")


def test_nodes_of_another_document_are_not_followed(docs, tmp_path):
    """A node of another Document is refused, with the Document to ask instead."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("Nothing of the kind.", encoding="utf-8")
    other = Document(tmp_path / "other")
    other.create_node_group("line", transform=lambda text: text.split("\n"))
    docs.activate_group("sentence")
    foreign = other.get_nodes("line")
    for way in (
        docs.find("sentence"),
        docs.find("lazyllm_root"),
        docs.find("sentence"),
    ):
        with pytest.raises(ConfigError, match="belongs to another Document"):
            way(foreign)


def _uids(docs: Document) -> dict[str, list[tuple[str, str]]]:
    """Path and uid of the nodes of three groups."""
    return {
        group: [(node.path, node.uid) for node in docs.get_nodes(group)]
        for group in ("lazyllm_root", "line", "FineChunk")
    }


def _in_lines(root) -> Document:
    """A Document with a group of lines."""
    docs = Document(root)
    docs.create_node_group("line", transform=lambda text: text.split("\n"))
    return docs


def test_uids_are_equal_wherever_the_folder_lies(folder, tmp_path):
    """Two folders of equal content in different places give equal uids, as two machines would."""
    here = _uids(_in_lines(folder(FILES)))
    for path, text in FILES.items():
        (tmp_path / "there" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / path).write_text(text, encoding="utf-8")
    assert _uids(_in_lines(tmp_path / "there")) == here
    assert len({uid for nodes in here.values() for _, uid in nodes}) == sum(map(len, here.values()))


def test_other_files_do_not_change_uids(folder):
    """Files that come before or after a file leave its nodes' uids as they are."""
    before = _uids(_in_lines(folder({"m.txt": FILES["a.txt"]})))
    after = _uids(_in_lines(folder({"a.txt": "x\ny", "m.txt": FILES["a.txt"], "z.txt": "z"})))
    for group, nodes in before.items():
        assert [one for one in after[group] if one[0] == "m.txt"] == nodes
        assert len(after[group]) > len(nodes)


def test_a_moved_file_has_other_uids(folder):
    """The same content under another path gives other uids in every group."""
    docs = _in_lines(folder({"a.txt": FILES["a.txt"], "b/a.txt": FILES["a.txt"]}))
    for nodes in _uids(docs).values():
        uids = [uid for _, uid in nodes]
        assert len(set(uids)) == len(uids) >= 2


def test_groups_have_uids_of_their_own(folder):
    """Two groups that make the same text of one file have different uids."""
    docs = Document(folder({"a.txt": "text"}))
    docs.create_node_group("one", transform=lambda text: text)
    docs.create_node_group("two", transform=lambda text: text)
    assert len({docs.get_nodes(group)[0].uid for group in ("one", "two", "lazyllm_root")}) == 3


def test_nodes_are_equal_when_their_uids_are(docs):
    """Nodes fetched twice are equal and hash alike, with scores or without; others are not."""
    first, second = docs.get_nodes("line"), docs.get_nodes("line")
    assert set(first) == set(second)
    assert first[0] == second[0].with_score(1.0)
    assert first[0] != first[1]
    assert second[0].score is None


def test_a_node_beneath_a_rebuilt_group_follows_it_or_says_it_is_stale(docs):
    """After a group was redefined, a node that was made of one that is gone says so; so do its
    source and parents.
    """
    old = docs.get_nodes("sentence")
    docs.create_node_group("line", transform=lambda text: text.split("\n")[:1], replace=True)
    docs.activate_group("line")
    gone = [
        node
        for node in old
        if node.text in {"Three is third.", "Coffee", "Milk", "Water.", "Last line."}
    ]
    assert len(gone) == 5
    for node in gone:
        with pytest.raises(StaleNodeError, match="Retrieve the node again"):
            _ = node.parent


def test_mapping_stale_nodes_says_so(docs):
    """Following a node whose parent is gone to another group is an error, not an empty answer."""
    old = [node for node in docs.get_nodes("sentence") if node.text == "Three is third."]
    docs.create_node_group("line", transform=lambda text: text.split("\n")[:1], replace=True)
    with pytest.raises(StaleNodeError):
        docs.find("line")(old)


def test_a_kept_node_keeps_its_text(docs):
    """A node that was fetched before its group was redefined keeps text, metadata and root."""
    [old, *_] = docs.get_nodes("line")
    docs.create_node_group("line", transform=lambda text: text.upper().split("\n"), replace=True)
    [new, *_] = docs.get_nodes("line")
    assert (old.text, new.text) == ("One is first. Two is second.", "ONE IS FIRST. TWO IS SECOND.")
    assert old.root.text == new.root.text == FILES["a.txt"]
    assert old.global_metadata["file_name"] == "a.txt"


def test_all_seven_arguments_of_the_specification_by_position(folder):
    """The name is the seventh argument, behind the declared fields."""
    docs = Document(folder(FILES), None, False, None, None, None, "tea")
    assert (docs.name, len(docs.get_nodes())) == ("tea", 3)


def test_what_a_document_has(docs):
    """groups, embed_keys and fields tell what may be asked of a Document, before anything is
    read.
    """
    built_in = ("CoarseChunk", "FineChunk", "MediumChunk")
    assert docs.groups == (*built_in, "image", "line", "sentence", "table", "word", "lazyllm_root")
    assert docs.reader.embed_keys == ()
    made = Document(embed={"b": embed, "a": embed}, doc_fields={"year": DocField(DataType.INT32)})
    assert made.reader.embed_keys == ("b", "a")
    assert Document(embed=embed).reader.embed_keys == ("default",)
    assert {"year", "file_name", "file_type"} <= set(made.reader.fields)
    assert "year" not in docs.reader.fields
    assert docs.last_report is None
    assert [group for group in docs.groups if not docs.get_nodes(group)] == ["image", "table"]


def test_a_document_has_few_names():
    """What is used rarely is in small objects and in functions; a name that moved says where to."""
    public = [name for name in dir(Document) if not name.startswith("_")]
    assert len(public) <= 34
    assert len(inspect.signature(Document).parameters) <= 14
    docs = Document()
    for name, place in (
        ("rollback", r"docs\.versions\.rollback"),
        ("find_parent", r"docs\.find\("),
        ("grep", r"grep\(docs, \.\.\.\), from lazyrag.read"),
        ("jobs", r"Jobs\(docs\), from lazyrag\.server\.jobs"),
        ("serch", r"Did you mean 'search'"),
    ):
        with pytest.raises(AttributeError, match=place):
            getattr(docs, name)
    assert not hasattr(docs, "_none")
    for name, argument in (
        ("include", r"files=FileSelection\(include=\.\.\.\), from lazyrag\.document"),
        ("processes", r"limits=LoadLimits\(processes=\.\.\.\), from lazyrag\.loaders"),
        ("on_progress", r"on_progress= to sync\("),
        ("server", "manager=PORT"),
        ("url", r"url= to lazyrag\.connect"),
    ):
        with pytest.raises(TypeError, match=f"{name}.*Pass {argument}"):
            Document(**{name: None})
    for old, new in (
        (docs.versions, r"docs\.versions\.list"),
        (docs.tables, r"docs\.tables\.list"),
    ):
        with pytest.raises(TypeError, match=new):
            old(document="tea")


def test_a_subclass_reports_its_own_mistakes():
    """An AttributeError in a property names what is missing, and so does a constructor that opens
    nothing.
    """

    class Shelf(Document):
        @property
        def title(self):
            return self.titel

    class Unopened(Document):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match=r"no attribute 'titel'\. Did you mean 'title'"):
        _ = Shelf().title
    for use in (
        lambda: Unopened().versions,
        lambda: Unopened().search("tea"),
        lambda: repr(Unopened()),
    ):
        with pytest.raises(
            AttributeError, match=r"not open\. Call super\(\).__init__\(\) in Unopened"
        ):
            use()


def test_documents_by_id(docs):
    """They come in the given order; one that does not exist is an error."""
    docs.add_texts({"a": "tea", "b": "milk"})
    assert [info.id for info in docs.documents(ids=["b", "a"])] == ["b", "a"]
    with pytest.raises(DatasetPathError, match="no document 'c'"):
        docs.documents(ids=["a", "c"])
    with pytest.raises(ConfigError, match="ids must be passed without"):
        docs.documents(ids=["a"], status="FAILED")


def test_a_path_is_short_for_a_store(tmp_path):
    """A path, or a URL, is the uri of the map store."""
    with Document(store_conf=tmp_path / "store.db") as docs:
        docs.add_texts({"tea": "Green tea."})
    with Document(store_conf=str(tmp_path / "store.db"), read_only=True) as docs:
        assert docs.read("tea") == "Green tea."


def test_a_limit_reads_no_more_than_it_needs(folder):
    """The first node of a large group comes after one call of the transform for each file, and no
    second build.
    """
    calls = []

    def words(text):
        calls.append(text)
        return text.split()

    docs = Document(folder({"a.txt": " ".join(f"w{n}" for n in range(3000)), "b.txt": "last"}))
    docs.create_node_group("word", transform=words)
    assert [node.text for node in docs.get_nodes("word", limit=1)] == ["w0"]
    assert [node.text for node in docs.get_nodes("word", limit=1, offset=2999)] == ["w2999"]
    assert [node.text for node in docs.get_nodes("word", limit=2, offset=3000)] == ["last"]
    assert len(calls) == 2


@pytest.mark.parametrize("wrong", [{"filter": {}}, {"topk": 3}])
def test_unknown_keywords_of_get_nodes(docs, wrong):
    """An unknown keyword is a ConfigError and, as Python has it, a TypeError."""
    with pytest.raises(UnknownKeywordError) as caught:
        docs.get_nodes(**wrong)
    assert isinstance(caught.value, ConfigError)
    assert isinstance(caught.value, TypeError)


def test_one_worker_embeds_one_text_at_a_time(tmp_path):
    """With workers=1 and a store, no two threads call an embed function, which need not be
    thread-safe.
    """
    threads = set()

    def slow(text):
        threads.add(threading.get_ident())
        time.sleep(0.005)
        return [len(text), 1.0]

    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(embed=slow, workers=1, store_conf=conf) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.add_texts({"a": "\n".join(f"tea {number}" for number in range(10))})
        docs.activate_group("line", embed_keys=docs.reader.embed_keys)
    assert threads == {threading.get_ident()}
