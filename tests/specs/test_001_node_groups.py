"""Spec 001, nodes and node groups: every test quotes the sentence it checks and says what is
expected.
"""

from __future__ import annotations

import json
import re
import threading
from itertools import pairwise
from pathlib import Path

import pytest

import lazyrag
from lazyrag import LAZY_ROOT_NAME, Document, LLMParser, NodeTransform, Retriever
from lazyrag.errors import AlreadyRegisteredError, ConfigError, IngestionError
from lazyrag.transforms import TransformArgs

CORPUS = Path(__file__).resolve().parents[2] / "cookbook" / "corpus"
MANUAL = "workshop/machine-maintenance-manual.pdf"
TEA = "采摘从清晨开始。露水干了再下山。\n鲜叶当天炒制。锅温先高后低。出锅摊凉。\n成品装箱入库。"
HOUSE = "小院冬天关门。\n客人四点以后入住。早餐七点开始。"
GROUPS = ("block", "doc-summary", "sentence", "block-summary", "keyword", "sentence-len")


def summary_llm(text):
    """Stands for a model: says how much it was given at once, and how that begins."""
    return f"{len(text)}字：{text[:4]}"


def keyword_llm(text):
    """Stands for a model: those of its words that occur in a text, each by itself."""
    return [word for word in ("采摘", "露水", "鲜叶", "成品", "客人", "早餐") if word in text]


def define_the_six(docs):
    """The example of the specification, as it stands there."""
    # (1)
    docs.create_node_group(name="block", transform=lambda d: d.split("\n"))

    # (2)
    docs.create_node_group(name="doc-summary", transform=lambda d: summary_llm(d))  # noqa: PLW0108  as it stands there

    # (3)
    docs.create_node_group(name="sentence", transform=lambda b: b.split("。"), parent="block")

    # (4)
    docs.create_node_group(
        name="block-summary",
        transform=lambda b: summary_llm(b),  # noqa: PLW0108
        parent="block",
    )

    # (4), the second of that number
    docs.create_node_group(
        name="keyword",
        transform=lambda b: keyword_llm(b),  # noqa: PLW0108
        parent="block",
    )

    # (6)
    docs.create_node_group(name="sentence-len", transform=lambda s: len(s), parent="sentence")  # noqa: PLW0108


@pytest.fixture
def tea(folder):
    """A Document of one file, with the six groups of the example."""
    docs = Document(folder({"茶.txt": TEA}))
    define_the_six(docs)
    return docs


@pytest.fixture
def two(folder):
    """A Document of two files, with the six groups of the example."""
    docs = Document(folder({"a茶.txt": TEA, "b小院.txt": HOUSE}))
    define_the_six(docs)
    return docs


def contents(docs, group):
    """What a group's nodes hold, in order."""
    return [node.content for node in docs.get_nodes(group)]


def test_files_are_divided_by_the_rule_of_a_group(folder):
    """「会按照指定的规则（在 `LazyLLM` 中被称为 `变换（Transform）`），被进一步细分成不同粒度切片节点（`Node`）」

    Two transforms divide one file into pieces of two sizes.
    """
    docs = Document(folder({"a.txt": "一，二。三，四。"}))
    docs.create_node_group("coarse", transform=lambda d: d.split("。"))
    docs.create_node_group("fine", transform=lambda d: d.replace("。", "，").split("，"))
    assert contents(docs, "coarse") == ["一，二", "三，四"]
    assert contents(docs, "fine") == ["一", "二", "三", "四"]


def test_nodes_are_kept_in_their_group(tea):
    """「并存至对于的节点组（`Node Group`）当中」

    Every node knows the group it is kept in, and a group gives out its own nodes only.
    """
    for group in GROUPS:
        nodes = tea.get_nodes(group)
        assert nodes
        assert {node.group for node in nodes} == {group}


def test_users_create_groups_on_a_document(folder):
    """「用户可以通过 `Document.create_node_group()` 来创建自己的 `Node Group`」

    A group made on one Document is there for that one and not for another.
    """
    path = folder({"a.txt": "一\n二"})
    docs, other = Document(path), Document(path)
    docs.create_node_group(name="block", transform=lambda d: d.split("\n"))
    assert contents(docs, "block") == ["一", "二"]
    with pytest.raises(KeyError, match="There is no node group 'block'"):
        other.get_nodes("block")


def test_users_create_groups_on_the_class(folder):
    """「用户可以通过 `Document.create_node_group()` 来创建自己的 `Node Group`」

    Written on the class, as the sentence has it, the group is there for every Document, also for an
    earlier one.
    """
    earlier = Document(folder({"a.txt": "一\n二"}))
    Document.create_node_group(name="block", transform=lambda d: d.split("\n"))
    assert contents(earlier, "block") == ["一", "二"]
    assert contents(Document(folder({})), "block") == ["一", "二"]


def test_name_is_the_groups_name(folder):
    """「`name`：节点组的名字」

    The name given is the one by which the group is asked for, Chinese names included.
    """
    docs = Document(folder({"a.txt": "一\n二"}))
    docs.create_node_group(name="段落", transform=lambda d: d.split("\n"))
    assert contents(docs, "段落") == ["一", "二"]
    assert [
        node.text for node in Retriever(docs, group_name="段落", similarity="bm25_chinese")("二")
    ] == ["二"]


def test_transform_is_a_node_transform_class(folder):
    """「支持传入基于[NodeTransform][lazyllm.tool.rag.NodeTransform]的变换类」

    A class based on NodeTransform is given as it is, its parameters beside it, and sees the nodes.
    """

    class Pieces(NodeTransform):
        def __init__(self, separator="\n"):
            self.separator = separator

        def transform(self, node):
            return [f"{node.path}:{piece}" for piece in node.get_text().split(self.separator)]

    docs = Document(folder({"a.txt": "一\n二，三"}))
    docs.create_node_group(name="line", transform=Pieces)
    docs.create_node_group(name="clause", transform=Pieces, separator="，")
    docs.create_node_group(name="instance", transform=Pieces("，"))
    assert contents(docs, "line") == ["a.txt:一", "a.txt:二，三"]
    assert contents(docs, "clause") == contents(docs, "instance") == ["a.txt:一\n二", "a.txt:三"]


def test_a_transform_class_defines_forward_or_transform(folder):
    """「支持传入基于[NodeTransform][lazyllm.tool.rag.NodeTransform]的变换类」

    `forward` is the method's newer name, also in a subclass of a class with the other one; a class
    defines one of the two. The base takes num_workers, which changes no node.
    """

    class Pieces(NodeTransform):
        def __init__(self, workers=0):
            super().__init__(num_workers=workers)

        def forward(self, node):
            return node.get_text().split("，")

    class Marked(Pieces):
        def transform(self, node):
            return [f"<{piece}>" for piece in super().forward(node)]

    docs = Document(folder({"a.txt": "一，二"}))
    docs.create_node_group("piece", transform=Pieces)
    docs.create_node_group("piece", transform=Pieces, workers=4)  # the same definition
    docs.create_node_group("marked", transform=Marked)
    docs.create_node_group(
        "class", transform=type("Plain", (NodeTransform,), {"forward": lambda _, node: node.text})
    )
    assert contents(docs, "piece") == ["一", "二"]
    assert contents(docs, "marked") == ["<一>", "<二>"]
    assert contents(docs, "class") == ["一，二"]
    both = {name: lambda _, node: node.text for name in ("forward", "transform")}
    with pytest.raises(ConfigError, match="Define one"):
        type("Both", (NodeTransform,), both)


def test_transform_is_a_lambda_on_the_content(tea):
    """「同时支持传入一个`lambda`函数，用于操作传入节点的实际内容」

    A lambda gets what the node really holds: text of a text node, the number of a node that holds a
    number.
    """
    tea.create_node_group(name="type", transform=lambda s: type(s).__name__)
    tea.create_node_group(name="twice", transform=lambda n: 2 * n, parent="sentence-len")
    assert contents(tea, "type") == ["str"]
    assert contents(tea, "twice") == [14, 14, 12, 12, 8, 12]


def test_parent_is_the_group_that_is_transformed(tea):
    """「`parent`：当前定义节点组的父节点组，用于指定本次转换是基于哪个节点组进行的」

    The transform is given each node of the parent group, one at a time.
    """
    tea.create_node_group(name="seen-sentence", transform=lambda s: f"<{s}>", parent="sentence")
    assert contents(tea, "seen-sentence") == [
        f"<{sentence}>" for sentence in contents(tea, "sentence")
    ]
    assert [node.parent.text for node in tea.get_nodes("seen-sentence")] == contents(
        tea, "sentence"
    )


def test_ref_adds_the_nodes_of_another_group(two):
    """「`parent`：当前定义节点组的父节点组，用于指定本次转换是基于哪个节点组进行的」

    With ref the transform also gets the nodes of a second group: those below the node, or those of
    the same document. It follows that group's changes, in its files and in its definition, and is
    told apart from one without ref.
    """
    seen = []

    def numbered(block, ref):
        seen.append(block)
        return f"{block[:2]}{len(ref)}"

    class Counted(NodeTransform):
        def forward(self, node, ref):
            return "".join(
                one.text[0] for one in ref if one.group == "sentence" and one.path == node.path
            )

    two.create_node_group("below", transform=numbered, parent="block", ref="sentence")
    two.create_node_group("beside", transform=Counted, parent="doc-summary", ref="sentence")
    assert contents(two, "below") == ["采摘2", "鲜叶3", "成品1", "小院1", "客人2"]
    assert contents(two, "beside") == ["采露鲜锅出成", "小客早"]
    two.create_node_group("sentence", transform=lambda b: b, parent="block", replace=True)
    assert contents(two, "below") == ["采摘1", "鲜叶1", "成品1", "小院1", "客人1"]
    assert two.maintenance.verify() == ()
    seen.clear()
    with pytest.raises(AlreadyRegisteredError, match="another ref"):
        two.create_node_group("below", transform=numbered, parent="block", ref="keyword")
    with pytest.raises(ConfigError, match="its own ancestor"):
        two.create_node_group(
            "sentence", transform=numbered, parent="block", ref="below", replace=True
        )
    with pytest.raises(ConfigError, match="a parameter ref"):
        two.create_node_group("other", transform=len, parent="block", ref="sentence")
    for ref in ("block", "other"):
        with pytest.raises(ConfigError, match="ref must be a group other than"):
            two.create_node_group("other", transform=numbered, parent="block", ref=ref)
    with pytest.raises(KeyError, match="no node group 'absent'"):
        two.create_node_group("other", transform=numbered, parent="block", ref="absent")


def test_nodes_with_ref_are_made_again_only_where_something_changed(folder):
    """「`parent`：当前定义节点组的父节点组，用于指定本次转换是基于哪个节点组进行的」

    An edited file calls the transform for its own nodes, a moved one calls nothing, and a restart
    neither.
    """
    path, seen = folder({"a.txt": "一二\n三", "b.txt": "四"}), []
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(path.parent / "store.db")}}}

    def opened():
        docs = Document(path, store_conf=conf)
        docs.create_node_group("line", transform=lambda d: d.split("\n"))
        docs.create_node_group("letter", transform=lambda line: [*line], parent="line")
        docs.create_node_group(
            "sum",
            transform=lambda line, ref: seen.append(line) or len(ref),
            parent="line",
            ref="letter",
        )
        return docs

    with opened() as docs:
        assert contents(docs, "sum") == [2, 1, 1]
    seen.clear()
    with opened() as docs:
        (path / "a.txt").rename(path / "c.txt")
        docs.sync()
        assert contents(docs, "sum") == [1, 2, 1]
        assert seen == []
        (path / "b.txt").write_text("四五", encoding="utf-8")
        docs.sync()
        assert (contents(docs, "sum"), seen) == ([2, 2, 1], ["四五"])
        assert docs.maintenance.verify() == ()


def test_the_parent_is_the_whole_document_by_default(two):
    """「默认是整篇文档（名为 `lazyllm-root` 的根节点组）」

    Without a parent the transform is given each whole document.
    """
    two.create_node_group(name="whole", transform=lambda d: f"<{d}>")
    assert contents(two, "whole") == [f"<{TEA}>", f"<{HOUSE}>"]
    assert {node.parent.group for node in two.get_nodes("whole")} == {LAZY_ROOT_NAME}


@pytest.mark.parametrize("spelling", ["lazyllm-root", "lazyllm_root", LAZY_ROOT_NAME])
def test_the_root_group_has_two_spellings(two, spelling):
    """「默认是整篇文档（名为 `lazyllm-root` 的根节点组）」

    The dashed name of this sentence and the underscored one of later sentences both name the root
    group.
    """
    two.create_node_group(name="whole", transform=lambda d: f"<{d}>", parent=spelling)
    assert contents(two, "whole") == [f"<{TEA}>", f"<{HOUSE}>"]
    assert contents(two, spelling) == [TEA, HOUSE]


def test_fine_chunks_have_their_length(folder):
    """「`FineChunk`：长度为 128 个 token，overlap 为 12 的节点组」

    Where no sentence ends a chunk has exactly 128 tokens, 12 of them in common with the next;
    elsewhere no more.
    """
    check_chunks(folder, "FineChunk", tokens=128, overlap=12)


def test_medium_chunks_have_their_length(folder):
    """「`MediumChunk`：长度为 256 个 token，overlap 为 25 的节点组」

    Where no sentence ends a chunk has exactly 256 tokens, 25 of them in common with the next;
    elsewhere no more.
    """
    check_chunks(folder, "MediumChunk", tokens=256, overlap=25)


def test_coarse_chunks_have_their_length(folder):
    """「`CoarseChunk`：长度为 1024 个 token，overlap 为 100 的节点组」

    Where no sentence ends a chunk has exactly 1024 tokens, 100 of them in common with the next;
    elsewhere no more.
    """
    check_chunks(folder, "CoarseChunk", tokens=1024, overlap=100)


@pytest.mark.parametrize("group", ["FineChunk", "MediumChunk", "CoarseChunk"])
def test_the_built_in_groups_need_no_definition(folder, group):
    """「对于以上三种节点组，用户无需手动创建，即可在后续的检索中使用」

    Each of the three is searched in a new Document, of which nothing was defined.
    """
    docs = Document(folder({MANUAL: (CORPUS / MANUAL).read_bytes()}))
    [best] = Retriever(docs, group, similarity="bm25", topk=1)(
        "the pocket edition for the workshop crew"
    )
    assert best.group == group
    assert best.number == 1
    assert "Pocket edition for the workshop crew" in best.text


def test_the_sample_defines_six_groups_without_a_dataset():
    """「我们可以通过以下例子，了解节点组是如何创建的」

    The sample runs as it stands on a Document without a dataset, and all six groups are defined and
    empty.
    """
    docs = Document()
    define_the_six(docs)
    assert {group: docs.get_nodes(group) for group in GROUPS} == {group: [] for group in GROUPS}


def test_statement_1_makes_every_paragraph_a_block(two):
    """「语句 1 以换行符为分割符，将所有文档都拆成了一个个的段落块，每个块就是 1 个 `Node`，
    这些 `Node` 构成了名为 `block` 的 `Node Group`」

    Every line of every document is one node of the group block, in order.
    """
    assert contents(two, "block") == [
        "采摘从清晨开始。露水干了再下山。",
        "鲜叶当天炒制。锅温先高后低。出锅摊凉。",
        "成品装箱入库。",
        "小院冬天关门。",
        "客人四点以后入住。早餐七点开始。",
    ]


def test_statement_2_summarises_each_document(two):
    """「语句 2 使用一个可以提取摘要的大模型把每个文档的摘要作为一个名为 `doc-summary` 的 `Node Group`」

    The group holds the summary of each document, made from its whole text.
    """
    assert contents(two, "doc-summary") == [f"{len(TEA)}字：采摘从清", f"{len(HOUSE)}字：小院冬天"]
    assert [node.path for node in two.get_nodes("doc-summary")] == ["a茶.txt", "b小院.txt"]


def test_statement_2_makes_one_node(tea):
    """「这个 `Node Group` 中只有一个 `Node`，内容就是整个文档的摘要」

    Of one document there is one summary.
    """
    [node] = tea.get_nodes("doc-summary")
    assert node.get_text() == f"{len(TEA)}字：采摘从清"


def test_statement_2_makes_one_node_of_many_pages(folder):
    """「这个 `Node Group` 中只有一个 `Node`，内容就是整个文档的摘要」

    A PDF of four pages has one summary, too, made of the text of all its pages at once.
    """
    docs = Document(folder({MANUAL: (CORPUS / MANUAL).read_bytes()}))
    define_the_six(docs)
    [root] = docs.get_nodes()
    [node] = docs.get_nodes("doc-summary")
    pages = [location for location in root.locations if location.kind == "page"]
    assert [location.label for location in pages] == ["1", "2", "3", "4"]
    assert len(root.text) > max(location.end - location.start for location in pages) > 0
    assert node.content == f"{len(root.text)}字：Mach"


def test_blocks_and_summary_are_children_of_the_root(tea):
    """「由于 `block` 和 `doc-summary` 都是从 `lazyllm_root` 这个根节点经过不同的规则转换得到的，
    所以它俩都是 `lazyllm_root` 的子节点」

    The root node is the parent of every block and of the summary, and has exactly these children.
    """
    tea.activate_group(*GROUPS)
    [root] = tea.get_nodes("lazyllm_root")
    assert root.children == {
        "block": tea.get_nodes("block"),
        "doc-summary": tea.get_nodes("doc-summary"),
    }
    assert len(root.children["block"]) == 3
    for node in (*root.children["block"], *root.children["doc-summary"]):
        assert node.parent == root


def test_statement_3_makes_every_sentence_a_node(tea):
    """「语句 3 在 `block` 这个 `Node Group` 的基础上进一步转换，使用中文句号作为分割符而得到一个个句子，
    每个句子都是一个 `Node`」

    Every sentence is a node below the block it stands in; the emptiness behind the last full stop
    is none.
    """
    sentences = {
        block.text: [node.text for node in block.children["sentence"]]
        for block in _built(tea, "block")
    }
    assert sentences == {
        "采摘从清晨开始。露水干了再下山。": ["采摘从清晨开始", "露水干了再下山"],
        "鲜叶当天炒制。锅温先高后低。出锅摊凉。": ["鲜叶当天炒制", "锅温先高后低", "出锅摊凉"],
        "成品装箱入库。": ["成品装箱入库"],
    }
    assert contents(tea, "sentence") == [text for texts in sentences.values() for text in texts]


def test_statement_4_summarises_every_block(tea):
    """「使用可以抽取摘要的大模型对其中的每个 `Node` 做处理，从而得到的每个段落摘要的 `Node`，组成了 `block-summary`」

    There is one summary for each block, made from that block alone and standing below it.
    """
    assert contents(tea, "block-summary") == ["16字：采摘从清", "19字：鲜叶当天", "7字：成品装箱"]
    assert [node.parent for node in tea.get_nodes("block-summary")] == tea.get_nodes("block")


def test_statement_5_makes_every_keyword_a_node(tea):
    """「将每个段落都抽取出来一些关键词，每个段落的关键词是一个个的 `Node`，共同组成了 `keyword` 这个 `Node Group`」

    Every keyword is a node by itself, below the block it was taken from.
    """
    assert contents(tea, "keyword") == ["采摘", "露水", "鲜叶", "成品"]
    keywords = [[node.text for node in block.children["keyword"]] for block in _built(tea, "block")]
    assert keywords == [["采摘", "露水"], ["鲜叶"], ["成品"]]


def test_statement_6_makes_lengths_of_sentences(tea):
    """「最后语句 6 在 `sentence` 的基础上，统计了每个句子的长度，
    得到了一个包含每个句子长度的名为 `sentence-len` 的 `Node Group`」

    The group holds numbers, not text, each equal to the length of the sentence above it.
    """
    nodes = tea.get_nodes("sentence-len")
    assert [node.content for node in nodes] == [7, 7, 6, 6, 4, 6]
    assert {type(node.content) for node in nodes} == {int}
    assert [node.content for node in nodes] == [len(node.parent.text) for node in nodes]
    assert nodes[0].get_text() == "7"


def test_the_groups_form_the_tree_of_the_figure(two):
    """「这些 `Node Group` 的关系如下图所示」

    Downwards each node has children in exactly the groups made of its group; upwards the parents
    lead to its root.
    """
    below = {
        LAZY_ROOT_NAME: {"block", "doc-summary"},
        "block": {"sentence", "block-summary", "keyword"},
        "sentence": {"sentence-len"},
        "doc-summary": set(),
        "block-summary": set(),
        "keyword": set(),
        "sentence-len": set(),
    }
    for group, expected in below.items():
        nodes = _built(two, group)
        assert nodes
        assert {frozenset(node.children) for node in nodes} == {frozenset(expected)}
        for child_group in expected:
            children = [child for node in nodes for child in node.children[child_group]]
            assert children == two.get_nodes(child_group)
            assert all(child in child.parent.children[child_group] for child in children)
    deepest = two.get_nodes("sentence-len")[-1]
    line = [deepest, deepest.parent, deepest.parent.parent, deepest.parent.parent.parent]
    assert [node.group for node in line] == ["sentence-len", "sentence", "block", LAZY_ROOT_NAME]
    assert line[-1].parent is None
    assert line[-1].text == HOUSE


def test_a_function_that_calls_a_model_summarises_and_extracts(tea):
    """「语句 2，4，5 用到的提供摘要（summary）和关键词（keywords）抽取的功能，可以使用 `LazyLLM` 内置的 `LLMParser`」

    Any object that calls a model will do as well, here one that keeps its client.
    """

    class Summary:
        def __init__(self, client):
            self.client = client

        def __call__(self, text):
            return self.client(f"Summarise: {text}")

    tea.create_node_group(
        "model-summary", transform=Summary(lambda prompt: prompt[:14]), parent="block"
    )
    assert contents(tea, "model-summary") == [
        "Summarise: 采摘从",
        "Summarise: 鲜叶当",
        "Summarise: 成品装",
    ]


def test_llm_parser_is_what_the_sample_calls(folder):
    """「用法可以参考 [LLMParser 的使用说明]」

    The sample's own statements (2), (4) and (5) run with two LLMParsers as `summary_llm` and
    `keyword_llm`: a summary of the whole document, one of each paragraph, and every keyword a node.
    """

    def model(prompt):
        text = re.search(r"<text>\n(.*)\n</text>", prompt, re.DOTALL)[1]
        return (
            json.dumps(keyword_llm(text), ensure_ascii=False)
            if "关键词" in prompt
            else f"摘要：{text[:4]}。"
        )

    summary_llm = LLMParser(model, "zh", "summary")
    keywords_llm = LLMParser(model, "zh", "keywords")
    docs = Document(folder({"tea.txt": TEA}))
    docs.create_node_group("block", transform=lambda d: d.split("\n"))
    docs.create_node_group("doc-summary", transform=lambda d: summary_llm(d))  # noqa: PLW0108  as it stands there
    docs.create_node_group("block-summary", transform=lambda b: summary_llm(b), parent="block")  # noqa: PLW0108
    docs.create_node_group("keyword", transform=lambda b: keywords_llm(b), parent="block")  # noqa: PLW0108
    assert contents(docs, "doc-summary") == ["采摘从清。"]
    assert contents(docs, "block-summary") == ["采摘从清。", "鲜叶当天。", "成品装箱。"]
    assert contents(docs, "keyword") == ["采摘", "露水", "鲜叶", "成品"]
    assert [node.parent.number for node in docs.get_nodes("keyword")] == [1, 1, 2, 3]


def test_groups_show_different_sides_of_a_document(tea):
    """「`Node Group` 的拆分粒度和规则各不相同，反映了文档不同方面的特征」

    One query finds the whole document, the paragraph, the sentence or the keyword, by the group
    that is searched.
    """
    found = {
        group: [
            node.text for node in Retriever(tea, group, similarity="bm25_chinese", topk=1)("露水")
        ]
        for group in (LAZY_ROOT_NAME, "block", "sentence", "keyword")
    }
    assert found == {
        LAZY_ROOT_NAME: [TEA],
        "block": ["采摘从清晨开始。露水干了再下山。"],
        "sentence": ["露水干了再下山"],
        "keyword": ["露水"],
    }


def check_chunks(folder, group, *, tokens, overlap):
    """Check a built-in group on Chinese text, by the counter that its splitter has."""
    count = lazyrag.transforms.SectionSplitter().counter.count
    text = "茶" * (3 * tokens)
    [first, second, *_] = Document(folder({"a.txt": text})).get_nodes(group)
    start, end = second.span[0], first.span[1]
    assert (
        count(text[:end]) == count(text[start : second.span[1]]) == tokens < count(text[: end + 1])
    )
    assert count(text[start:end]) <= overlap < count(text[start - 1 : end])

    sentences = "春天的茶叶当天采摘。露水干了再下山。" * (tokens // 3)
    nodes = Document(folder({"a.txt": sentences})).get_nodes(group)
    shared = [sentences[following.span[0] : one.span[1]] for one, following in pairwise(nodes)]
    assert len(nodes) > 2
    assert tokens - 12 < max(count(node.text) for node in nodes) <= tokens
    assert all(node.text.endswith("。") for node in nodes)
    assert 0 < max(map(count, shared)) <= overlap


def _built(docs, group):
    """A group's nodes, when all groups are built: a node has children in those groups that
    something asked for.
    """
    docs.activate_group(*GROUPS)
    return docs.get_nodes(group)


EIGHT = "\n".join(f"第{number}段。" for number in range(8))


@pytest.mark.parametrize("kind", ["function", "class"])
def test_memo_calls_a_model_once_for_each_text(folder, kind):
    """「使用可以抽取摘要的大模型对其中的每个 `Node` 做处理，从而得到的每个段落摘要的 `Node`」

    With memo an edit of one of eight paragraphs calls the model once, also after a restart; a moved
    file, equal texts of another file and a repeated definition call it for nothing new.
    """
    path, calls = folder({"a.txt": EIGHT}), []
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(path.parent / "store.db")}}}

    class Summary(NodeTransform):
        def forward(self, node):
            calls.append(node.text)
            return summary_llm(node.text)

    def opened():
        docs = Document(path, store_conf=conf)
        docs.create_node_group("block", transform=lambda d: d.split("\n"))
        function = lambda b: calls.append(b) or summary_llm(b)  # noqa: E731
        given, workers = (Summary, 4) if kind == "class" else (function, 0)
        # the same nodes: memo adds to it
        docs.create_node_group("summary", given, parent="block", version="1")
        docs.create_node_group(
            "summary", given, parent="block", memo=True, num_workers=workers, version="1"
        )
        return docs

    with opened() as docs:
        assert len(docs.get_nodes("summary")) == len(calls) == 8
    with opened() as docs:
        for edited in ("改了。", "又改了。"):
            (path / "a.txt").write_text(EIGHT.replace("第3段。", edited), encoding="utf-8")
            docs.sync()
            assert calls[8:] == [edited]
            del calls[8:]
        assert contents(docs, "summary")[3] == summary_llm("又改了。")
        (path / "a.txt").rename(path / "b.txt")
        docs.sync()
        assert (len(docs.get_nodes("summary")), calls[8:]) == (8, [])
        (path / "c.txt").write_text("又改了。\n新的。\n新的。", encoding="utf-8")
        docs.sync()
        assert (len(docs.get_nodes("summary")), calls[8:]) == (11, ["新的。"])
        assert docs.maintenance.verify() == ()


@pytest.mark.parametrize(
    "name", ["path", "parent", "metadata", "children", "number", "global_metadata", "root"]
)
def test_memo_refuses_a_transform_that_reads_more_than_the_text(folder, name):
    """「使用可以抽取摘要的大模型对其中的每个 `Node` 做处理，从而得到的每个段落摘要的 `Node`」

    A result that depends on more than the text could be wrong elsewhere: the error names what was
    read.
    """
    docs = Document(folder({"a.txt": "一"}))
    docs.create_node_group(
        "more", lambda node: str(getattr(node, name)), trans_node=True, memo=True
    )
    with pytest.raises(IngestionError, match=rf"memo=True .* reads node\.{name}"):
        docs.get_nodes("more")
    with pytest.raises(ConfigError, match="memo must be False with ref"):
        docs.create_node_group(
            "other", lambda text, ref: text, parent="FineChunk", ref="MediumChunk", memo=True
        )
    for wrong in ("HTMLSplitter", "YAMLSplitter", [TransformArgs("CodeSplitter", pattern="*.py")]):
        with pytest.raises(ConfigError, match=r"memo must be False for .* reads the file's source"):
            docs.create_node_group("other", wrong, memo=True)
    docs.create_node_group("shown", repr, trans_node=True, memo=True)
    assert contents(docs, "shown") == ["DocNode(text='一')"]


@pytest.mark.parametrize("kind", ["function", "class", "instance"])
def test_num_workers_calls_a_transform_for_several_nodes_at_once(folder, kind):
    """「将每个段落都抽取出来一些关键词，每个段落的关键词是一个个的 `Node`」

    The nodes of one file are transformed four at a time, in their order; each of the four waits for
    the others.
    """
    together = threading.Barrier(4, timeout=60)

    class Keyword(NodeTransform):
        def forward(self, node):
            together.wait()
            return node.text.strip("。")

    docs = Document(folder({"a.txt": EIGHT}))
    docs.create_node_group("block", transform=lambda d: d.split("\n"))
    given = {
        "function": lambda b: together.wait() * 0 or b.strip("。"),
        "class": Keyword,
        "instance": Keyword(4),
    }[kind]
    workers = {} if kind == "instance" else {"num_workers": 4}
    docs.create_node_group("keyword", transform=given, parent="block", **workers)
    assert contents(docs, "keyword") == [f"第{number}段" for number in range(8)]
    with pytest.raises(ConfigError, match="num_workers"):
        docs.create_node_group("other", transform=len, num_workers=-1)
