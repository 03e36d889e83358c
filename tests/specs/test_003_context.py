"""Spec 003, task 4 `ContextBuilder`: every test quotes the sentence it checks and says what is
expected.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

import lazyrag
from lazyrag.text.sentences import sentence_ends


@dataclass
class RetrievalResult:
    """The class of a hit as the specification writes it."""

    id: str
    text: str
    score: float
    source: str
    document_id: str
    chunk_id: int
    metadata: dict[str, Any]


RESULTS = [
    RetrievalResult("1", "绿茶用八十度的水。泡两分钟。", 0.9, "绿茶.txt", "d1", 1, {}),
    RetrievalResult("2", "红茶用沸水。", 0.5, "红茶.txt", "d2", 1, {}),
]
DEFAULT = """\
基于以下参考资料回答问题：

[资料1] 来源：绿茶.txt
绿茶用八十度的水。泡两分钟。

[资料2] 来源：红茶.txt
红茶用沸水。

问题：绿茶用多热的水？

请基于上述资料回答，并在回答中标注引用来源（如[1]、[2]）。"""


@pytest.fixture
def builder():
    """Made with nothing but the model's name."""
    return lazyrag.ContextBuilder(model="gpt-3.5-turbo")


def test_init_takes_a_model():
    """「model: str = "gpt-3.5-turbo"」: by position, by name or not at all."""
    for made in (
        lazyrag.ContextBuilder(),
        lazyrag.ContextBuilder("gpt-3.5-turbo"),
        lazyrag.ContextBuilder(model="gpt-3.5-turbo"),
    ):
        assert made.model == "gpt-3.5-turbo"


def test_it_has_the_encoding_of_its_model(tmp_path, monkeypatch):
    """「self.encoding = tiktoken.encoding_for_model(model)」: tiktoken's, if the vocabulary is on
    this machine.

    Nothing is downloaded: without it the error says where to save it, and tokens are counted all
    the same.
    """
    import tiktoken

    encoding = tiktoken.Encoding(
        "made_here",
        pat_str=r".",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={},
    )
    builder = lazyrag.ContextBuilder(counter=lazyrag.text.TiktokenCounter(encoding))
    assert builder.encoding is encoding
    assert len(builder.encoding.encode("tea")) == builder.count_tokens("tea") == 3
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    bare = lazyrag.ContextBuilder("gpt-3.5-turbo")
    assert bare.count_tokens("tea") > 0
    with pytest.raises(lazyrag.LazyRAGError, match="nothing is downloaded"):
        _ = bare.encoding


SPLITTERS = [
    "CharacterSplitter",
    "CodeSplitter",
    "HTMLSplitter",
    "JSONSplitter",
    "MarkdownSplitter",
    "RecursiveSplitter",
    "SectionSplitter",
    "SentenceSplitter",
    "TokenSplitter",
    "XMLSplitter",
    "YAMLSplitter",
]


@pytest.mark.parametrize("name", SPLITTERS)
def test_a_groups_counter_is_part_of_its_fingerprint(name, monkeypatch):
    """「Token计数（使用tiktoken）」 is for contexts; the chunks of a group never depend on what is
    installed.

    The default is the same with tiktoken and without it. Another counter is another definition of
    the group, which is refused under the same name.
    """
    splitter = getattr(lazyrag.transforms, name)
    default = inspect.signature(splitter).parameters["counter"].default
    docs = lazyrag.Document()
    docs.create_node_group("block", transform=splitter(chunk_size=9))
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    docs.create_node_group("block", transform=splitter(chunk_size=9))
    docs.create_node_group("block", transform=splitter(chunk_size=9, counter=default))
    with pytest.raises(lazyrag.LazyRAGError, match="block"):
        docs.create_node_group("block", transform=splitter(chunk_size=9, counter="estimate"))


def test_these_are_all_that_count():
    """A new splitter with a counter is tested, too; SemanticSplitter and Rule have the same
    default.
    """
    counting = {
        name: inspect.signature(getattr(lazyrag.transforms, name)).parameters.get("counter")
        for name in lazyrag.transforms.__all__
        if inspect.isclass(getattr(lazyrag.transforms, name))
    }
    found = {name: counter.default for name, counter in counting.items() if counter is not None}
    assert found == {
        **dict.fromkeys([*SPLITTERS, "SemanticSplitter", "Rule"], "utf8"),
        "SectionSplitter": "average",
    }


def test_tokens_are_counted_by_tiktoken():
    """「Token计数（使用tiktoken）」: with one of tiktoken's encodings, a count is the number of its
    tokens.
    """
    import tiktoken

    encoding = tiktoken.Encoding(
        "made_here",
        pat_str=r"\s+|\S+",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)}
        | {"茶".encode()[:2]: 256, "茶".encode(): 257},
        special_tokens={},
    )
    counter = lazyrag.text.TiktokenCounter(encoding)
    assert (
        lazyrag.ContextBuilder(counter=counter).count_tokens("茶茶")
        == len(encoding.encode("茶茶"))
        == 2
    )


def test_count_tokens(builder):
    """「计算token数量」: a whole number, 0 for no text, and more for more."""
    assert builder.count_tokens("") == 0
    assert 0 < builder.count_tokens("绿茶") < builder.count_tokens("绿茶用八十度的水。")


def test_build_context_has_the_specified_signature():
    """「query, results, max_tokens: int = 2000, template: Optional[str] = None」: these names, order
    and defaults.
    """
    parameters = inspect.signature(lazyrag.ContextBuilder.build_context).parameters
    assert list(parameters) == ["self", "query", "results", "max_tokens", "template"]
    assert (parameters["max_tokens"].default, parameters["template"].default) == (2000, None)


def test_the_default_template(builder):
    """「默认模板」: word for word, with sources and question in their places."""
    assert builder.build_context("绿茶用多热的水？", RESULTS) == DEFAULT


def test_whole_sentences_are_kept(builder):
    """「智能截断（保留完整句子）」: under a smaller and smaller budget, every text ends where a sentence of it
    does.
    """
    seen = set()
    for less in range(0, 40, 2):
        try:
            context = builder.build(
                "绿茶用多热的水？", RESULTS, builder.count_tokens(DEFAULT) - less
            )
        except lazyrag.LazyRAGError:
            break
        for hit in context.sources:
            whole = next(one.text for one in RESULTS if one.id == hit.id)
            ends = [0, *sentence_ends(whole)]
            sentences = [whole[start:end].strip() for start, end in pairwise(ends)]
            pieces = [
                hit.text[start:end].strip()
                for start, end in pairwise([0, *sentence_ends(hit.text)])
            ]
            assert set(pieces) <= set(sentences)
            seen.add(hit.text)
    assert "绿茶用八十度的水。" in seen


@pytest.mark.parametrize("max_tokens", [80, 95, 110, 2000])
def test_the_context_keeps_to_max_tokens(builder, max_tokens):
    """「上下文构建符合token限制」: the whole text, template and question included."""
    many = [
        RetrievalResult(str(n), f"第{n}种茶用热水。泡{n}分钟。", 0.5, "茶.txt", "d", n, {})
        for n in range(200)
    ]
    text = builder.build_context("怎么泡茶？", many, max_tokens=max_tokens)
    assert builder.count_tokens(text) <= max_tokens
    assert text.endswith("（如[1]、[2]）。")


def test_a_template_of_ones_own(builder):
    """「上下文模板」: a text with the places of sources and question."""
    text = builder.build_context("多热？", RESULTS[1:], template="资料：\n{sources}\n{query}")
    assert text == "资料：\n[1] 红茶.txt\n红茶用沸水。\n多热？"


def test_citations_are_added(builder):
    """「添加引用标注」: the context, then each source under its number."""
    assert (
        builder.add_citations(DEFAULT, RESULTS)
        == DEFAULT + "\n\n参考来源：\n[1] 绿茶.txt\n[2] 红茶.txt"
    )


def test_the_result_is_a_rag_context(builder):
    """「query, context, sources, total_tokens, metadata」: `build` gives the five fields of
    RAGContext.
    """
    context = builder.build("绿茶用多热的水？", RESULTS)
    assert (context.query, context.context) == ("绿茶用多热的水？", DEFAULT)
    assert [hit.source for hit in context.sources] == ["绿茶.txt", "红茶.txt"]
    assert context.total_tokens == builder.count_tokens(DEFAULT)
    assert context.metadata["counter"] == builder.counter.name
