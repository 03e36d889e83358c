"""Spec 001, `Reranker`: every test quotes the sentence it checks and says what is expected."""

# The prototypes of reranker functions stand here with the annotations that the specification gives
# them. ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

import pytest

import lazyrag
from lazyrag import DocNode, Document, Reranker, Retriever, register_reranker
from lazyrag.errors import ConfigError, LazyRAGError, NotRegisteredError
from lazyrag.retrieval import rerankers
from tests.tiny_models import write_cross_encoder

LINES = (
    "绿茶要低温存放",
    "绿茶不要发酵",
    "红茶要发酵",
    "Green tea is kept cool",
    "Iced tea is green tea, too",
)


@pytest.fixture
def docs(folder):
    """One file, its lines in the group line."""
    docs = Document(folder({"a.txt": "\n".join(LINES)}))
    docs.create_node_group("line", transform=lambda d: d.split("\n"))
    return docs


@pytest.fixture
def found(docs):
    """All lines as nodes, in the file's order."""
    return docs.get_nodes("line")


def texts(nodes):
    """What nodes hold, in their order."""
    return [node.text for node in nodes]


def longest(query, documents, top_n):
    """Stands for a model: the longer a text, the better."""
    scores = [(index, float(len(text))) for index, text in enumerate(documents)]
    return sorted(scores, key=lambda pair: -pair[1])[:top_n]


def common_letters(query, documents, top_n):
    """Stands for a model: the more of the query's letters a text holds, the better."""
    scores = [(index, float(len(set(query) & set(text)))) for index, text in enumerate(documents)]
    return sorted(scores, key=lambda pair: -pair[1])[:top_n]


def test_a_reranker_orders_what_was_found(docs):
    """「接下来就可以进一步对这些文档进行排序，选出更贴合用户查询内容的文档。这一步工作由 `Reranker` 来完成」

    What a retriever found comes back in the order of the reranker's model, with the model's scores.
    """
    query = "红茶发酵"
    found = Retriever(docs, "line", similarity="bm25_chinese")(query)
    assert len(found) == 3
    ranked = Reranker("ModuleReranker", model=longest)(found, query=query)
    assert [(node.text, node.score) for node in ranked] == [
        ("绿茶要低温存放", 7.0),
        ("绿茶不要发酵", 6.0),
        ("红茶要发酵", 5.0),
    ]
    assert texts(ranked) != texts(found)


def test_the_sample_names_a_model(found, tmp_path, monkeypatch):
    """「reranker = Reranker('ModuleReranker', model='bge-reranker-large', topk=1)」

    A folder of that name holds a cross-encoder, and the one best node comes back with its score.
    """
    monkeypatch.chdir(tmp_path)
    write_cross_encoder(tmp_path / "bge-reranker-large")
    reranker = Reranker("ModuleReranker", model="bge-reranker-large", topk=1)
    assert texts(reranker(found, query="green tea")) == ["Iced tea is green tea, too"]


def test_a_model_that_is_not_on_this_machine_is_refused(tmp_path, monkeypatch):
    """「reranker = Reranker('ModuleReranker', model='bge-reranker-large', topk=1)」

    Nothing is fetched: without such a folder or an entry of that name in the cache of the hub or of
    ModelScope the Reranker cannot be made, and the error says how to get the model, also behind a
    mirror, and what to give instead.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"HF_ENDPOINT=.* fetch .*/bge-reranker-large.*modelscope download "
    ):
        Reranker("ModuleReranker", model="bge-reranker-large", topk=1)
    with pytest.raises(
        ConfigError, match=r"no rerank model 'bge-reranker-large' on this machine.*download=True"
    ):
        Reranker("ModuleReranker", model="bge-reranker-large", topk=1)


def test_the_sample_with_a_model_at_hand(found):
    """「reranker = Reranker('ModuleReranker', model='bge-reranker-large', topk=1)」

    The sample with a callable in the place of the name gives the one best node.
    """
    reranker = Reranker("ModuleReranker", model=common_letters, topk=1)
    assert texts(reranker(found, query="红茶发酵")) == ["红茶要发酵"]


def test_several_retrievers_results_are_ranked_together(docs):
    """「来创建一个 `Reranker` 对所有 `Retriever` 返回的文档再做一次排序」

    The nodes of two retrievers, one list after the other, are ranked as one list.
    """
    chinese = Retriever(docs, "line", similarity="bm25_chinese")("红茶")
    english = Retriever(docs, "line", similarity="bm25")("iced")
    ranked = Reranker("ModuleReranker", model=longest)(chinese + english, query="tea")
    assert texts(ranked)[:2] == ["Iced tea is green tea, too", "绿茶要低温存放"]
    assert sorted(texts(ranked)) == sorted(texts(chinese + english))


def test_name_is_a_rerankers_name(found):
    """「`name`：指定用来排序的函数名称，`LazyLLM` 内置的函数有 `ModuleReranker` 和 `KeywordFilter`」

    Both built-in functions are there by these names; another name is refused, and the known ones
    are named.
    """
    assert len(Reranker("ModuleReranker", model=longest)(found, query="茶")) == len(LINES)
    assert (
        len(Reranker("KeywordFilter", required_keys=["绿茶"], exclude_keys=[])(found, query="茶"))
        == 2
    )
    with pytest.raises(
        NotRegisteredError,
        match=r"Known: .*KeywordFilter, .*ModuleReranker.*\. Did you mean 'KeywordFilter'",
    ):
        Reranker("KeywordFilters")


def test_kwargs_reach_the_function(found):
    """「`kwargs`：透传给排序函数的参数」

    What the Reranker is made with arrives in the function at every call, and the query with it.
    """
    seen = []

    @register_reranker(batch=True)
    def watched(nodes, **kwargs):
        seen.append(kwargs)
        return nodes

    reranker = Reranker("watched", depth=3, label="茶")
    reranker(found, query="红茶")
    reranker(found, query="绿茶")
    assert seen == [
        {"depth": 3, "label": "茶", "query": "红茶"},
        {"depth": 3, "label": "茶", "query": "绿茶"},
    ]


def test_module_reranker_works_with_any_model(found):
    """「其中内置的 `ModuleReranker` 是一个支持使用指定模型来排序的通用函数」

    The model that is given decides: another one gives another order of the same nodes.
    """
    by_length = texts(Reranker("ModuleReranker", model=longest)(found, query="绿茶低温"))
    by_letters = texts(Reranker("ModuleReranker", model=common_letters)(found, query="绿茶低温"))
    assert by_length[0] == "Iced tea is green tea, too"
    assert by_letters[0] == "绿茶要低温存放"
    assert sorted(by_length) == sorted(by_letters) == sorted(LINES)


def test_module_reranker_needs_a_model(found):
    """「def ModuleReranker(
        nodes: List[DocNode],
        model: str,
        query: str,
        topk: int = -1,
        **kwargs
    ) -> List[DocNode]:」

    The model has no default: a ModuleReranker without one is a configuration mistake.
    """
    with pytest.raises(ConfigError, match="model"):
        Reranker("ModuleReranker")(found, query="茶")


def test_module_reranker_returns_all_by_default(found):
    """「def ModuleReranker(
        nodes: List[DocNode],
        model: str,
        query: str,
        topk: int = -1,
        **kwargs
    ) -> List[DocNode]:」

    topk left out, or -1, means all: the model is asked for all of them and none is dropped.
    """
    seen = []

    def model(query, documents, top_n):
        seen.append(top_n)
        return longest(query, documents, top_n)

    for arguments in ({}, {"topk": -1}):
        assert sorted(
            texts(Reranker("ModuleReranker", model=model, **arguments)(found, query="茶"))
        ) == sorted(LINES)
    assert seen == [len(LINES), len(LINES)]


def test_module_reranker_gives_the_model_query_and_texts(found):
    """「表示使用指定的模型 `model`，结合用户输入的内容 `query`，对文档列表 `nodes` 进行排序」

    The model is called with the query and with the nodes' texts in their order, and what it says
    orders them.
    """
    seen = []

    def model(query, documents, top_n):
        seen.append((query, documents))
        return [(2, 0.5), (0, 0.25), (1, 0.75)]

    ranked = Reranker("ModuleReranker", model=model)(found[:3], query="茶？")
    assert seen == [("茶？", list(LINES[:3]))]
    assert [(node.text, node.score) for node in ranked] == [
        (LINES[1], 0.75),
        (LINES[2], 0.5),
        (LINES[0], 0.25),
    ]


def test_module_reranker_returns_the_best_topk(found):
    """「返回相似度最高的 `topk` 篇文档」

    The nodes with the highest scores come back, at most topk, also from a model that returns more
    than it is asked for.
    """

    def generous(query, documents, top_n):
        return [(index, float(len(text))) for index, text in enumerate(documents)]

    for model in (longest, generous):
        ranked = Reranker("ModuleReranker", model=model, topk=2)(found, query="茶")
        assert texts(ranked) == ["Iced tea is green tea, too", "Green tea is kept cool"]
    assert len(Reranker("ModuleReranker", model=longest, topk=50)(found, query="茶")) == len(LINES)


def test_module_reranker_passes_kwargs_to_the_model(found):
    """「`kwargs` 就是 `Reranker` 构造函数中透传过来的参数」

    What the Reranker was made with, and ModuleReranker does not use itself, reaches the model.
    """

    def model(query, documents, top_n, *, instruction):
        return [(index, float(text.count(instruction))) for index, text in enumerate(documents)]

    ranked = Reranker("ModuleReranker", model=model, instruction="发酵", topk=2)(found, query="茶")
    assert texts(ranked) == ["绿茶不要发酵", "红茶要发酵"]


def test_keyword_filter_keeps_and_drops_by_keywords(found):
    """「内置的 `KeywordFilter` 用于过滤包含或不包含指定关键词的文档」

    With required keywords the nodes stay that hold them, with excluded ones those that do not, each
    in their order.
    """
    with_key = Reranker("KeywordFilter", required_keys=["绿茶"], exclude_keys=[])(found, query="茶")
    without_key = Reranker("KeywordFilter", required_keys=[], exclude_keys=["绿茶"])(
        found, query="茶"
    )
    assert texts(with_key) == ["绿茶要低温存放", "绿茶不要发酵"]
    assert texts(without_key) == [
        "红茶要发酵",
        "Green tea is kept cool",
        "Iced tea is green tea, too",
    ]


def test_keyword_filter_is_called_as_its_prototype_says(found):
    """「def KeywordFilter(
        node: DocNode,
        required_keys: List[str],
        exclude_keys: List[str],
        language: str = "en",
        **kwargs
    ) -> Optional[DocNode]:」

    The function takes one node, then the required and the excluded keywords, then the language, in
    this order.
    """
    keyword_filter = rerankers["KeywordFilter"].func
    assert keyword_filter(found[1], ["发酵"], ["红茶"], "zh") is found[1]
    assert keyword_filter(found[1], ["红茶"], ["发酵"], "zh") is None
    assert keyword_filter(node=found[4], required_keys=["tea"], exclude_keys=["coffee"]) is found[4]


def test_keyword_filter_requires_all_keywords(found):
    """「如果 `node` 中包含 `required_keys` 中的所有关键词」

    A node that lacks one of several required keywords is dropped.
    """
    chinese = Reranker("KeywordFilter", required_keys=["绿茶", "发酵"], exclude_keys=[])
    english = Reranker("KeywordFilter", required_keys=["green", "iced"], exclude_keys=[])
    assert texts(chinese(found, query="茶")) == ["绿茶不要发酵"]
    assert texts(english(found, query="tea")) == ["Iced tea is green tea, too"]


def test_keyword_filter_excludes_any_keyword(found):
    """「并且不包含 `exclude_keys` 中的任意一个关键词」

    A node that holds one of several excluded keywords is dropped, though it holds what is required.
    """
    chinese = Reranker("KeywordFilter", required_keys=["茶"], exclude_keys=["低温", "红茶"])
    english = Reranker(
        "KeywordFilter", required_keys=["green tea"], exclude_keys=["coffee", "iced"]
    )
    assert texts(chinese(found, query="茶")) == ["绿茶不要发酵"]
    assert texts(english(found, query="tea")) == ["Green tea is kept cool"]


def test_keyword_filter_returns_the_node_or_none(found):
    """「就返回 `node` 本身；否则返回 `None`」

    The function itself, called as its prototype says, returns the very node, or None.
    """
    keyword_filter = rerankers["KeywordFilter"].func
    assert keyword_filter(found[0], ["绿茶"], ["发酵"], language="zh") is found[0]
    assert keyword_filter(found[1], ["绿茶"], ["发酵"], language="zh") is None
    [kept] = Reranker("KeywordFilter", required_keys=["低温"], exclude_keys=[])(found, query="茶")
    assert kept is found[0]


def test_keyword_filter_knows_languages(found):
    """「参数 `language` 表示文档的语言种类」

    Chinese and English are known, "en" where it is left out, and another language is a
    configuration mistake.
    """
    expected = {"zh": ["红茶要发酵"], "en": ["Iced tea is green tea, too"]}
    for language, key in (("zh", "红茶"), ("en", "iced")):
        reranker = Reranker(
            "KeywordFilter", required_keys=[key], exclude_keys=[], language=language
        )
        assert texts(reranker(found, query="茶")) == expected[language]
    left_out = Reranker("KeywordFilter", required_keys=["iced"], exclude_keys=[])
    assert texts(left_out(found, query="tea")) == expected["en"]
    with pytest.raises(ConfigError, match="language"):
        Reranker("KeywordFilter", required_keys=["iced"], exclude_keys=[], language="english")(
            found, query="tea"
        )


def test_keyword_filter_takes_its_keys_from_the_constructor():
    """「`kwargs` 就是 `Reranker` 构造函数中头传过来的参数」

    They are checked there: a misspelt one is a configuration mistake, answered with the nearest
    known one.
    """
    with pytest.raises(
        ConfigError, match=r"no keyword 'excluded_keys'\. .*Did you mean 'exclude_keys'\?"
    ):
        Reranker("KeywordFilter", required_keys=["茶"], excluded_keys=["红茶"])


def test_users_register_rerankers(found):
    """「用户还可以通过 `LazyLLM` 提供的 `register_reranker()` 来注册自己的排序函数」

    Under its own name a registered function is a reranker, and a second one under that name is
    refused.
    """

    @register_reranker(batch=True)
    def backwards(nodes, **kwargs):
        return nodes[::-1]

    assert texts(Reranker("backwards")(found, query="茶")) == list(LINES[::-1])
    with pytest.raises(LazyRAGError, match="'backwards' is registered already"):
        register_reranker(lambda nodes, **kwargs: nodes, batch=True, name="backwards")


def test_func_is_the_function_that_orders(found):
    """「`func`：用于排序的函数」

    Given as the argument func, the function orders, and is itself returned unchanged.
    """

    def shortest_first(nodes, **kwargs):
        return sorted(nodes, key=lambda node: len(node.text))

    assert register_reranker(func=shortest_first, batch=True) is shortest_first
    assert texts(Reranker("shortest_first")(found, query="茶"))[0] == "红茶要发酵"


@pytest.mark.parametrize("batch", [True, False])
def test_batch_says_whether_there_are_several_nodes(found, batch):
    """「`batch`：是否是多 batch」

    One filter in its two forms, all nodes at once or one by one, keeps the same nodes.
    """

    def single(node, **kwargs):
        return node if "发酵" in node.text else None

    def together(nodes, **kwargs):
        return [node for node in nodes if "发酵" in node.text]

    register_reranker(together if batch else single, batch=batch, name="fermented")
    assert texts(Reranker("fermented")(found, query="茶")) == ["绿茶不要发酵", "红茶要发酵"]


def test_a_batch_function_gets_all_nodes(found):
    """「当 `batch` 为 `True` 时，`func` 的参数 `nodes` 是一个 `DocNode` 列表，表示需要排序的所有文档，
    返回值也是一个 `DocNode` 列表，表示排序后的文档列表」

    It gets one list of all nodes, and the list it returns is the result, in its order and with no
    others.
    """
    seen = []

    @register_reranker(batch=True)
    def last_two(nodes, **kwargs):
        seen.append((type(nodes), {type(node) for node in nodes}, texts(nodes)))
        return [nodes[4], nodes[3]]

    assert texts(Reranker("last_two")(found, query="茶")) == [LINES[4], LINES[3]]
    assert seen == [(list, {DocNode}, list(LINES))]


def test_a_batch_function_returns_nodes(found):
    """「返回值也是一个 `DocNode` 列表，表示排序后的文档列表」

    A function that returns something else is named in an error.
    """

    @register_reranker(batch=True)
    def as_texts(nodes, **kwargs):
        return texts(nodes)

    with pytest.raises(LazyRAGError, match=r"'as_texts' must return a list of nodes"):
        Reranker("as_texts")(found, query="茶")


def test_a_single_function_gets_one_node(found):
    """「当 `batch` 为 `False` 时，参数是一个待处理的 `DocNode`，返回值是一个 `Optional[DocNode]`」

    It gets each node by itself, in their order.
    """
    seen = []

    @register_reranker(batch=False)
    def watched(node, **kwargs):
        seen.append((type(node), node.text))
        return node

    assert texts(Reranker("watched")(found, query="茶")) == list(LINES)
    assert seen == [(DocNode, line) for line in LINES]


def test_a_single_function_filters(found):
    """「此时 `Reranker` 可作为过滤器使用，如果传入的文档符合要求，可返回传入的 `DocNode`，
    否则返回 `None` 表示丢弃该 `Node`」

    The nodes it returns stay in their order, those for which it returns None are dropped.
    """

    @register_reranker(batch=False)
    def short(node, **kwargs):
        return node if len(node.text) < 7 else None

    assert texts(Reranker("short")(found, query="茶")) == ["绿茶不要发酵", "红茶要发酵"]


def test_prototype_1_batch(found):
    """「@lazyllm.tools.rag.register_reranker(batch=True)
    def dummy_reranker(nodes: List[DocNode], **kwargs) -> List[DocNode]:」

    A function of this form reranks.
    """

    @lazyrag.register_reranker(batch=True)
    def dummy_reranker(nodes: list[DocNode], **kwargs) -> list[DocNode]:
        return sorted(nodes, key=lambda node: kwargs["query"] not in node.get_text())

    assert texts(Reranker("dummy_reranker")(found, query="红茶")) == [
        LINES[2],
        LINES[0],
        LINES[1],
        LINES[3],
        LINES[4],
    ]


def test_prototype_2_single(found):
    """「@lazyllm.tools.rag.register_reranker(batch=False)
    def dummy_reranker(node: DocNode, **kwargs) -> Optional[DocNode]:」

    A function of this form filters.
    """

    @lazyrag.register_reranker(batch=False)
    def dummy_reranker(node: DocNode, **kwargs) -> DocNode | None:
        return node if kwargs["query"] in node.get_text() else None

    assert texts(Reranker("dummy_reranker")(found, query="红茶")) == ["红茶要发酵"]


def test_the_sample_calls_a_reranker(docs):
    """「doc_list = reranker(doc_list, query=query)」

    The sample takes what a retriever returned and gives nodes again, which a second reranker takes.
    """
    query = "绿茶"
    doc_list = Retriever(docs, "line", similarity="bm25_chinese")(query)
    reranker = Reranker("ModuleReranker", model=longest)
    doc_list = reranker(doc_list, query=query)
    assert [type(node) for node in doc_list] == [DocNode] * 3
    doc_list = Reranker("KeywordFilter", required_keys=["绿茶"], exclude_keys=["发酵"])(
        doc_list, query=query
    )
    assert texts(doc_list) == ["绿茶要低温存放"]


def test_the_result_is_what_the_model_ordered(found):
    """「表示使用 `Reranker` 创建时指定的模型排序并返回排序后的结果」

    The model given when the Reranker was made orders at each call, and the nodes passed in stay
    what they were.
    """
    reranker = Reranker("ModuleReranker", model=common_letters, topk=1)
    assert texts(reranker(found, query="红茶发酵")) == ["红茶要发酵"]
    assert texts(reranker(found, query="低温存放")) == ["绿茶要低温存放"]
    assert texts(found) == list(LINES)
    assert [node.score for node in found] == [None] * len(LINES)


def test_output_format_and_join_are_those_of_a_retriever(found):
    """「表示使用 `Reranker` 创建时指定的模型排序并返回排序后的结果」

    The reference system's examples end a pipeline with the texts, as a Retriever gives them.
    """
    for output, expected in [("node", LINES), ("content", list(LINES)), (None, LINES)]:
        given = Reranker("KeywordFilter", output_format=output)(found)
        assert (texts(given) if output != "content" else given) == list(expected)
    joined = Reranker("ModuleReranker", model=longest, topk=2, output_format="content", join=True)(
        found, query="茶"
    )
    assert joined == "Iced tea is green tea, too\nGreen tea is kept cool"
    assert Reranker("KeywordFilter", output_format="content", join=" | ")(found[:2]) == " | ".join(
        LINES[:2]
    )
    [first, *_] = Reranker("KeywordFilter", output_format="dict")(found)
    assert first["text"] == LINES[0]
    with pytest.raises(ConfigError, match="join"):
        Reranker("KeywordFilter", join=True)


def test_topk_is_for_every_reranker_and_for_each_call(found):
    """「返回相似度最高的 `topk` 篇文档」

    A reranker that takes no topk of its own is cut; a call may set another one.
    """
    assert texts(Reranker("KeywordFilter", exclude_keys=["红茶"], topk=2)(found)) == list(LINES[:2])
    reranker = Reranker("ModuleReranker", model=longest, topk=1)
    assert len(reranker(found, query="茶")) == 1
    assert (
        texts(reranker(found, query="茶", topk=3))
        == texts(Reranker("ModuleReranker", model=longest)(found, "茶"))[:3]
    )
    assert len(reranker(found, query="茶", topk=-1)) == len(LINES)

    @register_reranker(batch=True, name="counted", replace=True)
    def counted(nodes: list[DocNode], topk: int = 4, **kwargs) -> list[DocNode]:
        return nodes[:topk]

    assert [len(Reranker("counted")(found, topk=topk)) for topk in (None, 2)] == [4, 2]


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"model": longest, "top_k": 3}, "topk"),
        ({"model": longest, "instruction": "x"}, "instruction"),
        ({"model": lambda query, documents, top_n, instruct="": [], "instrct": "x"}, "instruct"),
    ],
)
def test_a_keyword_that_nobody_takes_is_refused(keywords, named):
    """「`kwargs`：透传给排序函数的参数」

    A keyword goes to the function, or to the model behind it; what neither takes would vanish.
    """
    with pytest.raises(ConfigError, match=named):
        Reranker("ModuleReranker", **keywords)


class Model:
    """A rerank model that is an object."""

    def rank(self, query, documents, top_n):
        """As of a model."""
        return longest(query, documents, top_n)


@pytest.mark.parametrize("model", [Model, Model.rank, len])
def test_what_cannot_be_called_is_refused_when_it_is_given(model):
    """「结合用户输入的内容 `query`，对文档列表 `nodes` 进行排序」

    A class, a method without its object, or another function fails when the Reranker is made, not
    when it is asked.
    """
    with pytest.raises(ConfigError, match="model"):
        Reranker("ModuleReranker", model=model)
    with pytest.raises(LazyRAGError):
        Reranker(
            register_reranker(Model.rank, batch=True, name="unbound", replace=True) and "unbound"
        )
