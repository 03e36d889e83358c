"""Rules of spec 004: what they accept, the groups they write, and answers from parents."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import Document, Retriever
from lazyrag.errors import AlreadyRegisteredError, ConfigError
from lazyrag.retrieval import auto_merge
from lazyrag.text.tokens import token_counters
from lazyrag.transforms import ParentMode, PreProcessingRules, Rule, Segmentation
from lazyrag.transforms.dify_rules import PreProcessingRule

COUNT = token_counters["utf8"].count
GUIDE = (
    "绿茶用八十度的水。第一泡倒掉。第二泡等半分钟。详见https://tea.cn/green。\n\n"
    "红茶用沸水冲泡，可以加牛奶，也可以加柠檬。红茶可以存放三年，要避光。\n\n"
    "Black tea takes boiling water. Milk goes in last.  Lemon goes without milk.\n\n\n\n"
    "Oolong stands between the two. It is rolled by hand. It keeps for two years.\n"
)


def kept(tmp_path, name: str = "store.db") -> dict:
    """A store_conf of a file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / name}}}


@pytest.fixture
def docs():
    """Two documents."""
    made = Document()
    made.add_texts({"guide": GUIDE, "other": "Coffee is no tea.\n\nCocoa is no tea."})
    return made


SMALL = Rule(Segmentation(50, 0), subchunk_segmentation=Segmentation(50, 0, "。"))


# Values


def test_a_segmentation_takes_both_spellings():
    """Names of spec 004 and of Dify's JSON give the same; a separator may be spelt with a
    backslash, as people do.
    """
    expected = Segmentation(500, 50, "\n")
    for values in (
        {"max_tokens": 500, "chunk_overlap": 50, "separator": "\n"},
        {"max_tokens": 500, "chunk_overlap": 50, "delimiter": "\\n"},
        {"max_length": 500, "chunk_overlap": 50, "delimiter": "\n"},
    ):
        assert Segmentation.from_dict(values) == expected
    assert Segmentation.from_dict({"max_tokens": 500, "separator": None}) == Segmentation(
        500, 0, "\n\n"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_tokens": 49}, "max_tokens"),
        ({"max_tokens": 2001}, "max_tokens"),
        ({"max_tokens": 50.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 51, "chunk_overlap": 26}, "chunk_overlap"),
        ({"max_tokens": 50, "chunk_overlap": -1}, "got -1"),
        ({"max_tokens": 50, "separator": ""}, "a string that is not empty"),
        ({"max_tokens": 50, "separator": 5}, "a string that is not empty"),
        ({}, "needs max_tokens"),
        ({"max_token": 50}, "Did you mean 'max_tokens'"),
        ({"max_tokens": 50, "max_length": 50}, "max_tokens under two names"),
        ("50", "must be a mapping"),
    ],
)
def test_a_segmentation_has_limits(values, message):
    """What is out of range, unknown or given twice is refused by an error that both kinds of code
    catch.
    """
    with pytest.raises(ConfigError, match=message) as caught:
        Segmentation.from_dict(values)
    assert isinstance(caught.value, ValueError)


def test_the_limits_themselves_are_allowed():
    """50 and 2000 tokens, no overlap and half of it."""
    assert [Segmentation(50, 25).chunk_overlap, Segmentation(2000, 1000).max_tokens] == [25, 2000]
    assert Segmentation(50, 0).chunk_overlap == 0


@pytest.mark.parametrize(
    "spelling", ["full-doc", "FULL_DOC", "full_doc", "Full-Doc", ParentMode.FULL_DOC]
)
def test_the_parent_mode_in_all_spellings(spelling):
    """The value, the name and mixtures of them are one mode, equal to its text."""
    rule = Rule(parent_mode=spelling)
    assert rule.parent_mode is ParentMode.FULL_DOC
    assert rule.parent_mode == "full-doc"


@pytest.mark.parametrize("wrong", ["full", "", None, 1])
def test_another_parent_mode_is_refused(wrong):
    """The error names both modes."""
    with pytest.raises(ConfigError, match=r"parent_mode .*full-doc, paragraph"):
        Rule(parent_mode=wrong)


def test_pre_processing_rules_in_all_forms():
    """Ids, mappings and rules are the same; a rule that is off is kept and does nothing."""
    expected = PreProcessingRules(["remove_extra_spaces"])
    assert PreProcessingRules([{"id": "remove_extra_spaces", "enabled": True}]) == expected
    assert PreProcessingRules([PreProcessingRule("remove_extra_spaces")]) == expected
    assert expected == [{"id": "remove_extra_spaces"}]
    assert expected != ["remove_nothing"]
    off = PreProcessingRules(
        [
            {"id": "remove_extra_spaces", "enabled": False},
            {"id": "remove_stopwords", "enabled": False},
        ]
    )
    assert (off.apply("a  b"), off.enabled, len(off)) == ("a  b", (), 2)
    assert off != expected
    assert eval(repr(off)) == off  # noqa: S307  that is what the test is about
    assert len({off, expected, PreProcessingRules(["remove_extra_spaces"])}) == 2
    assert (off[0].id, off[:1]) == ("remove_extra_spaces", (off[0],))


def test_addresses_go_before_spaces():
    """The space that an address leaves is an extra one, whatever the order of the rules."""
    for rules in (
        ["remove_extra_spaces", "remove_urls_emails"],
        ["remove_urls_emails", "remove_extra_spaces"],
    ):
        assert PreProcessingRules(rules).apply("see https://a.com for it") == "see for it"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["remove_stopwords"], "'remove_stopwords' is not supported: without 'not'"),
        (
            ["remove_url"],
            "Unknown pre-processing rule 'remove_url'.*Did you mean 'remove_urls_emails'",
        ),
        ([{"id": "remove_extra_spaces", "enabled": "yes"}], "enabled"),
        ([{"name": "remove_extra_spaces"}], "A pre-processing rule has no 'name'"),
        ([{}], "Unknown pre-processing rule ''"),
        ([5], "Unknown pre-processing rule 5"),
        ("remove_extra_spaces", "must be a list"),
        ({"id": "remove_extra_spaces"}, "must be a list"),
    ],
)
def test_other_pre_processing_rules_are_refused(rules, message):
    """Nothing is passed over in silence: what is not done is refused, with what to do."""
    with pytest.raises(ConfigError, match=message):
        Rule(pre_processing_rules=rules)


def test_a_rule_from_dify_s_json():
    """What Dify's API takes and gives as process_rule, in its three modes."""
    rules = {
        "pre_processing_rules": [
            {"id": "remove_extra_spaces", "enabled": True},
            {"id": "remove_urls_emails", "enabled": False},
        ],
        "segmentation": {"separator": "\\n\\n", "max_tokens": 500},
        "parent_mode": "full-doc",
        "subchunk_segmentation": {"separator": "\\n", "max_tokens": 200, "chunk_overlap": None},
    }
    expected = Rule(
        Segmentation(500), rules["pre_processing_rules"], "full-doc", Segmentation(200, 0, "\n")
    )
    assert Rule.from_dict({"mode": "hierarchical", "rules": rules}) == expected
    assert Rule.from_dict({"mode": "custom", "rules": rules, "limits": {"x": 4000}}) == expected
    assert Rule.from_dict(rules) == expected
    automatic = Rule(Segmentation(500, 50, "\n"), ["remove_extra_spaces"])
    assert (
        Rule.from_dict({"mode": "automatic", "rules": None})
        == Rule.from_dict({"mode": "automatic"})
        == automatic
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "auto"}, "mode of a process rule 'auto'.*Did you mean 'automatic'"),
        ({"mode": "custom", "rules": {}}, "'custom' needs segmentation"),
        (
            {"mode": "hierarchical", "rules": {"segmentation": {"max_tokens": 99}}},
            "needs subchunk_segmentation",
        ),
        ({"mode": "custom", "rule": {}}, "A process rule has no 'rule'"),
        ({"segmentations": {}}, "A rule has no 'segmentations'"),
        ({"segmentation": 500}, "segmentation must be"),
        ({"counter": "words"}, "A rule has no 'counter'"),
        ([], "must be a mapping"),
        ({"mode": "custom", "rules": ["x"]}, "must be a mapping"),
    ],
)
def test_json_that_says_something_else_is_refused(values, message):
    """Unknown names and modes, and rules that lack what their mode needs."""
    with pytest.raises(ConfigError, match=message):
        Rule.from_dict(values)


def test_a_rule_is_a_value():
    """Equal rules are equal and hash alike, and nothing in one can be changed."""
    assert Rule(Segmentation(99)) == Rule({"max_tokens": 99})
    assert hash(Rule(Segmentation(99))) == hash(Rule({"max_tokens": 99}))
    with pytest.raises(AttributeError):
        Rule().segmentation = Segmentation(99)
    with pytest.raises(ConfigError, match="Did you mean 'segmentation'"):
        Rule(segmentatoin=Segmentation(99))
    with pytest.raises(ConfigError, match="counter"):
        Rule(counter=5)


# Groups


def test_paragraphs_are_packed_into_parents_and_cut_into_children(docs):
    """Parents hold as many paragraphs as fit, children stand in their parent, all of it within the
    bounds.
    """
    groups = Rule(
        Segmentation(110, 0), subchunk_segmentation=Segmentation(50, 0, "。")
    ).create_groups(docs, "tea")
    assert groups == ("tea", "tea-child")
    parents, children = docs.get_nodes("tea"), docs.get_nodes("tea-child")
    assert "".join(node.text for node in parents if node.path == "guide") == GUIDE
    assert any(node.text.count("\n\n") > 1 for node in parents)
    assert all(COUNT(node.text) <= 110 for node in parents)
    assert all(COUNT(node.text) <= 50 and node.text in node.parent.text for node in children)
    for node in (*parents, *children):
        assert node.source == node.root
        assert node.root.text[node.span[0] : node.span[1]] == node.text


def test_paragraph_mode_finds_the_child_and_returns_the_parent(docs):
    """The best child leads to its parent, each parent comes once, in the children's order, with the
    best score.
    """
    groups = Rule(Segmentation(110), subchunk_segmentation=Segmentation(50, 0, "。")).create_groups(
        docs
    )
    query = "红茶 牛奶 tea milk lemon"
    children = Retriever(docs, groups.child, similarity="bm25_chinese", topk=4)(query)
    parents = Retriever(
        docs, groups.child, similarity="bm25_chinese", topk=4, target=groups.parent
    )(query)
    expected: dict = {}
    for child in children:
        expected.setdefault(child.parent, child.score)
    assert 1 < len(expected) < len(children)
    assert [(parent, parent.score) for parent in parents] == list(expected.items())
    assert all(parent.group == "part" for parent in parents)


def test_full_doc_mode_finds_the_child_and_returns_the_document(docs):
    """The one parent is the whole document, not cut anywhere; children are found by their own
    words.
    """
    rule = Rule(parent_mode="full-doc", subchunk_segmentation=Segmentation(50, 0, "。"))
    groups = rule.create_groups(docs)
    [hit] = Retriever(docs, groups.child, similarity="bm25", topk=1)("oolong rolled")
    assert hit.text in GUIDE != hit.text
    [parent] = Retriever(docs, groups.child, similarity="bm25", topk=1, target=groups.parent)(
        "oolong rolled"
    )
    assert (parent.text, parent.span, parent.parent, parent.score) == (
        GUIDE,
        (0, len(GUIDE)),
        docs.get_nodes()[0],
        hit.score,
    )
    assert [node.path for node in docs.get_nodes(groups.parent)] == ["guide", "other"]


def test_a_long_document_is_not_cut_in_full_doc_mode():
    """However long a document is, its parent is all of it."""
    docs = Document()
    docs.add_texts({"long": "绿茶很好。" * 20_000})
    groups = Rule(parent_mode="full-doc", subchunk_segmentation=Segmentation(2000)).create_groups(
        docs
    )
    [parent] = docs.get_nodes(groups.parent)
    assert len(parent.text) == 100_000


def test_without_children_the_parents_are_searched(docs):
    """A rule without subchunks writes one group, which is both to be found and to be read."""
    groups = Rule(Segmentation(60)).create_groups(docs, "chunk")
    assert groups == ("chunk", "chunk")
    assert (
        Retriever(docs, groups.child, similarity="bm25", target=groups.parent)("oolong")[0].group
        == "chunk"
    )


def test_cleaned_parents_have_spans_where_they_are_as_they_were(docs):
    """What was rewritten has no span, its neighbours keep theirs; children of both tell their place
    in their source.
    """
    rule = Rule(
        Segmentation(50),
        ["remove_urls_emails", "remove_extra_spaces"],
        subchunk_segmentation=Segmentation(50, 0, "。"),
    )
    groups = rule.create_groups(docs)
    parents = [node for node in docs.get_nodes(groups.parent) if node.path == "guide"]
    assert "https" not in "".join(node.text for node in parents)
    assert {node.span is None for node in parents} == {True, False}
    for node in parents:
        assert node.span is None or node.root.text[node.span[0] : node.span[1]] == node.text
        assert (node.span is None) == (node.text not in GUIDE)
    for child in docs.get_nodes(groups.child):
        assert child.source == (child.parent if child.parent.span is None else child.root)
        assert child.source.text[child.span[0] : child.span[1]] == child.text


def test_rules_of_full_documents_clean_them(docs):
    """In full-doc mode, too, children are cut from the cleaned text, and the parent is that
    text.
    """
    rule = Rule(None, ["remove_urls_emails"], "full-doc", Segmentation(50))
    groups = rule.create_groups(docs)
    [parent] = docs.get_nodes(groups.parent, limit=1)
    assert parent.text == GUIDE.replace("https://tea.cn/green", "")
    assert parent.span is None


def test_the_class_gets_groups_for_all_documents(docs):
    """On the class the groups are there for every Document, also for those that exist."""
    groups = SMALL.create_groups(Document, "everywhere")
    assert docs.get_nodes(groups.child)
    assert {"everywhere", "everywhere-child"} < {*Document().groups}


def test_the_same_rule_again_changes_nothing_and_another_needs_replace(docs):
    """Rules are compared by what they do, so that a restart of the program rebuilds nothing."""
    SMALL.create_groups(docs)
    before = docs.get_nodes("part-child")
    SMALL.create_groups(docs)
    Rule.from_dict(
        {
            "segmentation": {"max_tokens": 50},
            "subchunk_segmentation": {"max_tokens": 50, "delimiter": "。"},
        }
    ).create_groups(docs)
    assert docs.get_nodes("part-child") == before
    other = Rule(
        Segmentation(50), ["remove_extra_spaces"], subchunk_segmentation=Segmentation(50, 0, "。")
    )
    with pytest.raises(AlreadyRegisteredError, match="replace=True"):
        other.create_groups(docs)
    other.create_groups(docs, replace=True)
    assert "  Lemon" not in "".join(node.text for node in docs.get_nodes("part"))


def test_a_restart_builds_nothing_anew(tmp_path):
    """Opened again with the same rule, nothing is transformed, and answers are the same."""
    asked = {}
    for time in range(2):
        with Document(store_conf=kept(tmp_path)) as docs:
            if not time:
                docs.add_texts({"guide": GUIDE})
            groups = SMALL.create_groups(docs)
            ask = Retriever(docs, groups.child, similarity="bm25_chinese", target=groups.parent)
            asked[time] = [
                (node.uid, node.text, node.score, node.span) for node in ask("红茶 milk")
            ]
            assert docs.plan().calls == 0
            if time:
                assert [step for step in docs.plan().steps if step.nodes] == []
    assert asked[0] == asked[1] != []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule(), "needs segmentation="),
        (Rule(subchunk_segmentation=Segmentation(50)), "needs segmentation="),
        (Rule(Segmentation(50), parent_mode="full-doc"), "needs subchunk_segmentation="),
    ],
)
def test_a_rule_that_does_not_say_how_to_cut_writes_no_groups(rule, message):
    """It can be held, and says what it lacks when groups are asked of it."""
    with pytest.raises(ConfigError, match=message):
        rule.create_groups(Document())


def test_a_counter_of_one_s_own_counts(docs):
    """The rule's counter bounds parents and children."""

    class Characters:
        name = "characters"

        def count(self, text):
            return len(text)

    groups = Rule(
        Segmentation(60), subchunk_segmentation=Segmentation(50), counter=Characters()
    ).create_groups(docs)
    assert max(len(node.text) for node in docs.get_nodes(groups.parent)) <= 60
    assert max(len(node.text) for node in docs.get_nodes(groups.child)) <= 50


def test_children_of_a_rule_merge_into_their_parents(docs):
    """What a rule writes is a tree like any other: auto_merge lifts its children."""
    groups = Rule(
        Segmentation(2000), subchunk_segmentation=Segmentation(50, 0, "。")
    ).create_groups(docs)
    hits = Retriever(docs, groups.child, similarity="bm25_chinese", topk=20)(
        "红茶 绿茶 tea milk oolong 泡"
    )
    assert [
        node.group for node in auto_merge(hits, up_to=groups.parent) if node.path == "guide"
    ] == ["part"]


PIECES = [
    "绿茶很好。",
    "Tea is good. ",
    "\n\n",
    "\n\n\n\n",
    "  ",
    "见https://a.com/x，",
    "me@tea.org ",
    "🍵",
    "x" * 70,
]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.sets(st.sampled_from(["remove_urls_emails", "remove_extra_spaces"])).map(sorted),
    st.sampled_from(["paragraph", "full-doc"]),
    st.integers(0, 25),
)
def test_every_rule_on_every_text(text, rules, mode, overlap):
    """Bounds hold, spans are true, children cover their parents, parents the cleaned text, whatever
    the text is.
    """
    docs = Document()
    docs.add_texts({"x": "a" + text})
    rule = Rule(Segmentation(60, 0), rules, mode, Segmentation(50, overlap, "。"))
    groups = rule.create_groups(docs)
    whole = PreProcessingRules(rules).apply("a" + text)
    parents = docs.get_nodes(groups.parent)
    assert "".join("".join(node.text.split()) for node in parents) == "".join(whole.split())
    for node in parents:
        assert mode == "full-doc" or COUNT(node.text) <= 60
        assert node.span is None or node.source.text[node.span[0] : node.span[1]] == node.text
        children = node.children.get(groups.child) or docs.find(groups.child)(node)
        assert all(COUNT(child.text) <= 50 and child.parent == node for child in children)
        assert docs.window(children, 0, 0, merge=True)[0].text.split() == node.text.split()
        assert all(
            child.source.text[child.span[0] : child.span[1]] == child.text for child in children
        )


def test_groups_are_created_on_a_document(docs):
    """Something else than a Document is named."""
    with pytest.raises(ConfigError, match="docs must be a Document"):
        Rule(Segmentation(100)).create_groups("docs")


def test_a_rule_is_no_transform(docs):
    """Given as one, it says how it writes its groups."""
    with pytest.raises(ConfigError, match=r"create_groups"):
        docs.create_node_group("part", transform=Rule(Segmentation(100)))
