"""`auto_merge`: enough children become their parent, nothing found is lost, nothing comes twice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import DataType, DocField, DocNode, Document, Retriever, register_similarity
from lazyrag.errors import ConfigError, NotRegisteredError, StaleNodeError
from lazyrag.retrieval import auto_merge
from lazyrag.stores.memory import MapSegmentStore

GROUPS = ("part", "line", "word", "letters")
TEXT = "a b c d|e f;g h;i j"


def define(docs: Document) -> Document:
    """Three levels, one below the other, and a branch beside the lowest one."""
    docs.create_node_group("part", transform=lambda text: text.split("|"))
    docs.create_node_group("line", transform=lambda text: text.split(";"), parent="part")
    docs.create_node_group("word", transform=str.split, parent="line")
    docs.create_node_group(
        "letters", transform=lambda text: list(text.replace(" ", "")), parent="line"
    )
    return docs


@pytest.fixture
def docs():
    """One document: a part of one line, and one of three lines."""
    made = define(Document())
    made.add_texts({"one": TEXT})
    return made


def words(docs: Document, text: str, *scores: float) -> list[DocNode]:
    """Word nodes as hits: from 1 downwards, if no scores are given."""
    found = {node.text: node for node in docs.get_nodes("word")}
    scores = scores or tuple(1 / rank for rank in range(1, len(text.split()) + 1))
    return [found[word].with_score(score) for word, score in zip(text.split(), scores, strict=True)]


def told(nodes) -> list[tuple[str, str, float | None]]:
    """What tests look at."""
    return [(node.group, node.text, node.score) for node in nodes]


def test_enough_children_become_their_parent(docs):
    """Two of four words, half of them, become their line; its score is the best of theirs, the rest
    stays.
    """
    hits = words(docs, "a c e", 0.5, 0.75, 0.25)
    merged = auto_merge(hits, up_to="line")
    assert told(merged) == [("line", "a b c d", 0.75), ("word", "e", 0.25)]
    assert merged[0].merged_from == (hits[0].uid, hits[1].uid)
    assert merged[1] is hits[2]


def test_too_few_children_stay(docs):
    """A child too few for the ratio leaves all as it is, best first."""
    hits = words(docs, "a c", 0.5, 0.75)
    assert auto_merge(hits, ratio=0.51) == [hits[1], hits[0]]
    assert auto_merge(hits, ratio=0.5, least=3) == [hits[1], hits[0]]


def test_it_goes_on_upwards(docs):
    """Lines that came from words count for their part, parts for the document; an only child is not
    lifted.
    """
    assert told(auto_merge(words(docs, "e f g h"), ratio=0.6)) == [("part", "e f;g h;i j", 1.0)]
    every = auto_merge(words(docs, "a b c d e f g h"), ratio=0.6, least=1)
    assert told(every) == [("lazyllm_root", TEXT, 1.0)]
    assert len(every[0].merged_from) == 8
    assert told(auto_merge(words(docs, "a b c d"), ratio=1)) == [("line", "a b c d", 1.0)]


def test_an_only_child_is_lifted_where_one_is_enough(docs):
    """With least=1 and a ratio that one child fulfils, it goes up by as many levels as that
    holds.
    """
    assert told(auto_merge(words(docs, "a"), ratio=0.25, least=1, up_to="part")) == [
        ("part", "a b c d", 1.0)
    ]


def test_a_ratio_holds_exactly(docs):
    """A ratio that is written as a fraction holds exactly there: one of three lines at 1 / 3."""
    [line] = [node for node in docs.get_nodes("line") if node.text == "g h"]
    assert told(auto_merge([line], ratio=1 / 3, least=1, up_to="part")) == [
        ("part", "e f;g h;i j", None)
    ]
    assert auto_merge([line], ratio=0.334, least=1) == [line]


def test_a_child_of_a_hit_goes_into_it(docs):
    """A hit beneath another one is no result of its own, and lends it its score if that is
    better.
    """
    line = next(node for node in docs.get_nodes("line") if node.text == "e f").with_score(0.25)
    [word] = words(docs, "e", 0.5)
    [merged] = auto_merge([line, word])
    assert (merged, merged.score, merged.merged_from) == (line, 0.5, (word.uid,))
    root = docs.get_nodes()[0].with_score(0.75)
    assert told(auto_merge([word, root])) == [("lazyllm_root", TEXT, 0.75)]


def test_groups_beside_each_other_count_by_themselves(docs):
    """A word and a letter of one line are not two of its words; beneath a line that is lifted, both
    go into it.
    """
    letters = [node.with_score(0.1) for node in docs.get_nodes("letters") if node.text in "ef"]
    [word] = words(docs, "f")
    assert auto_merge([word, letters[0]], ratio=0.51) == [word, letters[0]]
    [line] = auto_merge([word, *letters], ratio=0.51)
    assert (line.text, line.score) == ("e f", 1.0)
    assert {*line.merged_from} == {word.uid, *(letter.uid for letter in letters)}


def test_smaller_scores_may_be_better(docs):
    """With descend=False the smallest score is the parent's, and comes first."""

    @register_similarity(mode="text", batch=False, descend=False)
    def place(query, node):
        return float("abcdefghij".index(node.text))

    hits = Retriever(docs, "word", similarity="place", topk=3)("anything")
    assert [hit.text for hit in hits] == ["a", "b", "c"]
    assert told(auto_merge(hits, descend=False, up_to="line")) == [("line", "a b c d", 0.0)]


def test_order_is_by_score_and_uid_whatever_came_first(docs):
    """Equal scores are ordered by uid; what has none comes last; the order of the input does not
    count.
    """
    nodes = [
        *words(docs, "a e g", 0.5, 0.5, 0.5),
        *[node for node in docs.get_nodes("word") if node.text == "i"],
    ]
    once = auto_merge(nodes)
    assert once == auto_merge(nodes[::-1])
    assert [node.uid for node in once[:3]] == sorted(node.uid for node in nodes[:3])
    assert once[3].score is None


def test_equal_nodes_count_once(docs):
    """The same node twice is one child, with the better score."""
    [a] = words(docs, "a", 0.5)
    assert told(auto_merge([a, a.with_score(0.75), a])) == [("word", "a", 0.75)]


def test_scores_are_kept_when_a_merged_node_is_given_another(docs):
    """with_score keeps what a node stands for; other nodes stand for themselves alone."""
    [line] = auto_merge(words(docs, "a b c"), up_to="line")
    assert line.with_score(2.0).merged_from == line.merged_from
    assert line.parent is not None
    assert line.parent.merged_from == docs.get_nodes("line")[0].merged_from == ()


def test_several_documents(docs):
    """Nodes of several Documents are merged each in its own, ranked together; equal uids stay two
    nodes.
    """
    other = define(Document())
    other.add_texts({"one": TEXT})
    hits = [*words(docs, "a b", 0.5, 0.5), *words(other, "a e", 0.75, 0.5)]
    assert told(auto_merge(hits)) == [("word", "a", 0.75), *told(auto_merge([*hits[:2], hits[3]]))]


def test_nothing_gives_nothing():
    """No hits, no result."""
    assert auto_merge([]) == []


@pytest.mark.parametrize("ratio", [0, -1, 1.01, True, "half", None, math.nan])
def test_a_ratio_is_a_share(ratio):
    """A ratio is above 0 and up to 1."""
    with pytest.raises(ConfigError, match="above 0 and up to 1"):
        auto_merge([], ratio=ratio)


def test_other_arguments_are_checked(docs):
    """Least is a whole number from 1, up_to a group of the Document, descend True or False;
    keywords are known.
    """
    with pytest.raises(ConfigError, match="least"):
        auto_merge([], least=0)
    with pytest.raises(NotRegisteredError, match="There is no node group 'lines'"):
        auto_merge(words(docs, "a"), up_to="lines")
    with pytest.raises(ConfigError, match="descend"):
        auto_merge([], descend="no")
    with pytest.raises(ConfigError, match="Did you mean 'ratio'"):
        auto_merge([], ration=0.5)


@pytest.mark.parametrize(
    "nodes", ["text", [DocNode(text="free")], ["text"], None, DocNode(text="one")]
)
def test_only_nodes_of_documents_are_merged(nodes):
    """Anything else is refused, with what to do."""
    with pytest.raises(ConfigError, match="nodes"):
        auto_merge(nodes)


def test_stale_nodes_are_refused(docs):
    """A node whose document was changed meanwhile leads nowhere."""
    hits = words(docs, "a b")
    docs.add_texts({"one": "x y|z"})
    with pytest.raises(StaleNodeError, match="Retrieve the node again"):
        auto_merge(hits)


# Views

FIELDS = {"access": DocField(DataType.VARCHAR)}


@pytest.fixture
def labelled():
    """A document whose second line is public though what stands above it is not, and one that is
    public.
    """
    made = Document(doc_fields=FIELDS)
    made.create_node_group("part", transform=lambda text: text.split("|"))

    def lines(node):
        marks = {"s": "secret", "p": "public"}
        return [
            DocNode(text=one, metadata={"access": marks[one[0]]}) for one in node.text.split(";")
        ]

    made.create_node_group("line", transform=lines, parent="part", trans_node=True)
    made.add_texts(
        {"mixed": "s one;p two;p three", "open": "p four;p five"}, {"open": {"access": "public"}}
    )
    made.update_metadata({"mixed": {"access": "secret"}})
    return made


def test_a_parent_out_of_sight_takes_nobody_s_place(labelled):
    """In a view, children are never replaced by a parent that the view does not show."""
    view = labelled.restricted({"access": "public"})
    hits = Retriever(view, "line", similarity="bm25_chinese", topk=9)("p")
    assert sorted(hit.text for hit in hits) == ["p five", "p four", "p three", "p two"]
    assert sorted((node.group, node.path) for node in auto_merge(hits)) == [
        ("line", "mixed"),
        ("line", "mixed"),
        ("part", "open"),
    ]
    whole = auto_merge(labelled.find("line")(labelled.get_nodes("line")))
    assert sorted((node.group, node.path) for node in whole) == [
        ("part", "mixed"),
        ("part", "open"),
    ]


def test_children_out_of_sight_do_not_count(labelled):
    """The ratio is of the children that can be seen, so that it tells nothing of the others."""
    labelled.update_metadata({"mixed": {"access": "public"}})
    view = labelled.restricted({"access": "public"})
    hits = [node for node in view.get_nodes("line") if node.path == "mixed"]
    assert len(hits) == 2
    assert [node.group for node in auto_merge(hits, ratio=1)] == ["part"]
    outside = [
        node for node in labelled.get_nodes("line") if node.path == "mixed" and node.text[0] == "p"
    ]
    assert [node.group for node in auto_merge(outside, ratio=1)] == ["line", "line"]


def test_nodes_of_two_views_do_not_mix(labelled):
    """Nodes that may be seen for different reasons are not merged into one."""
    view = labelled.restricted({"access": "public"})
    with pytest.raises(ConfigError, match="different filters"):
        auto_merge([*view.get_nodes("line"), *labelled.get_nodes("line")])


# Any tree, any hits

texts = st.lists(
    st.lists(
        st.integers(1, 4).map(lambda count: " ".join(["w"] * count)), min_size=1, max_size=3
    ).map(";".join),
    min_size=1,
    max_size=3,
).map("|".join)


@st.composite
def found(draw):
    """A Document and hits of all its groups."""
    made = define(Document())
    made.add_texts(
        {
            f"d{number}": text
            for number, text in enumerate(draw(st.lists(texts, min_size=1, max_size=2)))
        }
    )
    nodes = [node for group in ("lazyllm_root", *GROUPS) for node in made.get_nodes(group)]
    chosen = draw(st.lists(st.sampled_from(nodes), max_size=25))
    scores = draw(st.lists(st.integers(0, 4), min_size=len(chosen), max_size=len(chosen)))
    return made, [node.with_score(score / 4) for node, score in zip(chosen, scores, strict=True)]


def above(node: DocNode) -> list[DocNode]:
    """A node's ancestors."""
    return [] if node.parent is None else [node.parent, *above(node.parent)]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    found(),
    st.sampled_from([0.1, 0.34, 0.5, 0.75, 1.0]),
    st.integers(1, 3),
    st.sampled_from([None, "part", "word"]),
)
def test_whatever_was_found(case, ratio, least, up_to):
    """No node comes twice or with its ancestor, nothing is lost or added, order is total, again
    changes nothing.
    """
    _, hits = case
    merged = auto_merge(hits, ratio=ratio, least=least, up_to=up_to)
    result = {*merged}
    assert len(result) == len(merged)
    assert not any(result & {*above(node)} for node in merged)
    for hit in hits:
        [home] = result & {hit, *above(hit)}
        [home] = [node for node in merged if node == home]
        assert home.score >= hit.score
        assert home == hit or hit.uid in home.merged_from
    given_uids = {hit.uid for hit in hits}
    assert all(
        {*node.merged_from} <= given_uids and (node.merged_from or node in hits) for node in merged
    )
    assert [(-node.score, node.uid) for node in merged] == sorted(
        (-node.score, node.uid) for node in merged
    )
    assert max((node.score for node in merged), default=0) == max(
        (hit.score for hit in hits), default=0
    )
    again = auto_merge(merged, ratio=ratio, least=least, up_to=up_to)
    assert [(one, one.score, one.merged_from) for one in again] == [
        (one, one.score, one.merged_from) for one in merged
    ]
    assert auto_merge(hits[::-1], ratio=ratio, least=least, up_to=up_to) == merged


def test_a_large_document_is_not_read_for_a_few_hits(monkeypatch: pytest.MonkeyPatch):
    """Of a parent with far more children than hits, no more are read than it takes to know that."""
    docs = define(Document())
    docs.add_texts({"large": " ".join(["w"] * 5000)})
    hits = [node.with_score(1.0) for node in docs.get_nodes("word", limit=6)]
    read: list[str] = []
    get = MapSegmentStore.get
    monkeypatch.setattr(
        MapSegmentStore,
        "get",
        lambda self, where, keys: (read.extend(keys), get(self, where, keys))[1],
    )
    assert auto_merge(hits) == sorted(hits, key=lambda node: node.uid)
    assert len(read) < 200, "nor is their parent looked up for each of them"


def test_parents_are_read_together(monkeypatch: pytest.MonkeyPatch):
    """Hits in forty lines are one look at the store; the documents above, none of them in the
    result, stay unread.
    """
    docs = define(Document())
    docs.add_texts({f"d{number}": "a b c;d e f|g" for number in range(40)})
    hits = [node.with_score(1.0) for node in docs.get_nodes("word") if node.text == "a"]
    docs.get_nodes("line")
    looks: list[list[str]] = []
    get = MapSegmentStore.get
    monkeypatch.setattr(
        MapSegmentStore,
        "get",
        lambda self, where, keys: (looks.append(list(keys)), get(self, where, keys))[1],
    )
    assert {*auto_merge(hits)} == {*hits}
    assert len(hits) == 40
    assert [len(keys) for keys in looks] == [40]
