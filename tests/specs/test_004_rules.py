"""Specification 004, section 3 and 9: processing rules. Each docstring quotes the sentence that it
tests.
"""

from __future__ import annotations

import itertools

import pytest

from lazyrag import Document, Retriever
from lazyrag.transforms import ParentMode, PreProcessingRules, Rule, Segmentation
from lazyrag.transforms import dify_rules as rules


def test_the_classes_of_the_section():
    """「处理规则类：`Rule`、`Segmentation`」, with `PreProcessingRules` and `ParentMode` of the diagram."""
    assert (rules.Rule, rules.Segmentation) == (Rule, Segmentation)
    assert (rules.PreProcessingRules, rules.ParentMode) == (PreProcessingRules, ParentMode)


def test_a_rule_is_made_of_three_parts():
    """「+Segmentation segmentation +PreProcessingRules pre_processing_rules +ParentMode
    parent_mode」.
    """
    rule = Rule(
        Segmentation(500, 50), [{"id": "remove_extra_spaces", "enabled": True}], "paragraph"
    )
    assert isinstance(rule.segmentation, Segmentation)
    assert isinstance(rule.pre_processing_rules, PreProcessingRules)
    assert isinstance(rule.parent_mode, ParentMode)


def test_the_defaults_of_a_rule():
    """「segmentation: Optional[Segmentation] = None」「预处理规则列表 默认 []」「父子模式 默认 "paragraph"」."""
    rule = Rule()
    assert rule.segmentation is None
    assert rule.pre_processing_rules == []
    assert list(rule.pre_processing_rules) == []
    assert rule.parent_mode == "paragraph"


def test_a_segmentation_by_position_and_by_name():
    """「__init__(max_tokens, chunk_overlap, separator)」."""
    assert Segmentation(500, 50, "\n") == Segmentation(
        max_tokens=500, chunk_overlap=50, separator="\n"
    )


def test_the_separator_is_an_empty_line_unless_it_is_said():
    r"""「separator: str = "\n\n"」."""
    assert Segmentation(500, 50).separator == "\n\n"


@pytest.mark.parametrize("max_tokens", [49, 2001, 0, -500])
def test_the_range_of_max_tokens(max_tokens):
    """「max_tokens must be between 50 and 2000」, a ValueError."""
    with pytest.raises(ValueError, match=r"^max_tokens must be between 50 and 2000; got"):
        Segmentation(max_tokens, 0)


@pytest.mark.parametrize("max_tokens", [50, 2000])
def test_the_ends_of_the_range_belong_to_it(max_tokens):
    """「50 <= max_tokens <= 2000」."""
    assert Segmentation(max_tokens, 0).max_tokens == max_tokens


@pytest.mark.parametrize("overlap", [-1, 251, 500])
def test_the_range_of_chunk_overlap(overlap):
    """「chunk_overlap must be between 0 and max_tokens * 0.5」, a ValueError."""
    with pytest.raises(
        ValueError, match=r"^chunk_overlap must be between 0 and max_tokens \* 0\.5; got"
    ):
        Segmentation(500, overlap)


@pytest.mark.parametrize("overlap", [0, 250])
def test_the_ends_of_the_range_of_chunk_overlap(overlap):
    """「0 <= chunk_overlap <= max_tokens * 0.5」."""
    assert Segmentation(500, overlap).chunk_overlap == overlap


def test_a_separator_is_not_empty():
    """「separator 是 非空字符串」."""
    with pytest.raises(ValueError, match="not empty"):
        Segmentation(500, 50, "")


@pytest.mark.parametrize("separator", ["\n\n", "\n", ". "])
def test_separators_of_the_table(separator):
    r"""「分隔符（`\n\n`、`\n`、`. ` 等）」: chunks end at them where they fit."""
    docs = Document()
    docs.add_texts({"a": separator.join(["word " * 20 + "end"] * 6)})
    Rule(Segmentation(50, 0, separator)).create_groups(docs, "chunk")
    chunks = docs.get_nodes("chunk")
    assert len(chunks) == 6
    assert all(node.text.endswith("end" + separator) for node in chunks[:-1])


def test_the_overlap_is_the_bound_of_what_neighbours_share():
    """「分块重叠 token 数」: neighbours share text, and no more than that."""
    docs = Document()
    docs.add_texts({"a": "绿茶很好。" * 60})
    Rule(Segmentation(50, 20)).create_groups(docs, "chunk")
    nodes = docs.get_nodes("chunk")
    shared = [one.span[1] - other.span[0] for one, other in itertools.pairwise(nodes)]
    assert 0 < max(shared) <= 20


def test_the_modes_of_parents():
    """「class ParentMode { <<enumeration>> PARAGRAPH FULL_DOC }」."""
    assert [mode.name for mode in ParentMode] == ["PARAGRAPH", "FULL_DOC"]
    with pytest.raises(ValueError, match="parent_mode"):
        Rule(parent_mode="chapter")


def test_pre_processing_rules_apply_to_a_text():
    """「class PreProcessingRules { +list[PreProcessingRule] rules +apply(text: str) str }」."""
    made = PreProcessingRules([{"id": "remove_urls_emails", "enabled": True}])
    assert made.apply("见https://a.com。") == "见。"
    assert [(rule.id, rule.enabled) for rule in made.rules] == [("remove_urls_emails", True)]


@pytest.mark.parametrize("mode", ["paragraph", "full-doc"])
def test_the_mode_is_used_by_the_index_of_parents_and_children(mode):
    """「父子模式（仅父子索引器使用）」: children are searched, their parents are returned."""
    docs = Document()
    docs.add_texts({"a": "绿茶用八十度的水。" * 8 + "\n\n" + "红茶用沸水。" * 8})
    rule = Rule(
        Segmentation(80, 0), parent_mode=mode, subchunk_segmentation=Segmentation(50, 0, "。")
    )
    groups = rule.create_groups(docs)
    [child] = Retriever(docs, groups.child, similarity="bm25_chinese", topk=1)("红茶")
    [parent] = Retriever(
        docs, groups.child, similarity="bm25_chinese", topk=1, target=groups.parent
    )("红茶")
    assert child.text in parent.text
    assert (parent.text == parent.root.text) is (mode == "full-doc")
    assert parent.score == child.score
