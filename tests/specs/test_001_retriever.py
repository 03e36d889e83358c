"""Spec 001, `Retriever`: every test quotes the sentence it checks and says what is expected."""

# The prototypes of similarity functions stand here with the annotations that the specification
# gives them. ruff: noqa: UP006, UP035

from __future__ import annotations

import functools
import inspect
import math
import os
import time
from pathlib import Path

import pytest

import lazyrag
from lazyrag import (
    LAZY_ROOT_NAME,
    DataType,
    DocField,
    DocNode,
    Document,
    Hit,
    Retriever,
    register_similarity,
)
from lazyrag.errors import ConfigError, NotRegisteredError, RetrievalError, StoreError
from lazyrag.retrieval import similarities
from lazyrag.text import register_chinese_analyser
from lazyrag.text.analyzers import analysers, term_function

CORPUS = Path(__file__).resolve().parents[2] / "cookbook" / "corpus"
PICKING = "茶园/采摘须知.txt"
TOOLS = "handbook/tools-and-vehicles.txt"
SENTENCES = (
    "绿茶低温存放",
    "绿茶不要发酵",
    "红茶要发酵",
    "白茶晒干就好",
    "cold brew takes a night",
    "咖啡要烘焙",
    "早餐七点开始",
    "客人四点入住",
)


def letters(text):
    """A model small enough for tests: how often characters of 16 kinds occur in a text."""
    vector = [0.0] * 16
    for character in text:
        vector[ord(character) % 16] += 1.0
    return vector


def plane(text):
    """A model whose vectors can be read: the two numbers that a text holds."""
    return [float(number) for number in text.split()]


def cosine(one, other):
    """The cosine of the angle between two vectors."""
    return (
        sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)
    )


@pytest.fixture
def documents(folder):
    """One file, its lines in the group sentence."""
    return lines(folder({"茶.txt": "\n".join(SENTENCES)}))


def lines(path, embed=letters, **arguments):
    """A Document whose group sentence has the lines of its files."""
    docs = Document(path, embed=embed, **arguments)
    docs.create_node_group("sentence", transform=lambda d: d.split("\n"))
    return docs


def texts(nodes):
    """What nodes hold, in their order."""
    return [node.text for node in nodes]


def real(*names):
    """Real files of the sample corpus, by name."""
    return {name: (CORPUS / name).read_bytes() for name in names}


def test_a_retriever_picks_what_the_query_is_about(folder):
    """「接下来我们要使用 `Retriever` 从 `Document` 中筛选出和用户查询相关的文档」

    Of real files in two languages only paragraphs that share words with the question come back, the
    answer first.
    """
    docs = lines(folder(real(PICKING, TOOLS)))
    found = Retriever(docs, "sentence", similarity="bm25_chinese", topk=50)(
        "采摘工采一公斤单芽能拿多少钱？"
    )
    assert {node.path for node in found} == {PICKING}
    assert "特级只采单芽，芽长不超过2.5厘米，每公斤90元" in found[0].text
    assert 0 < len(found) < len(docs.get_nodes("sentence"))


def test_the_sample_searches_sentences_by_vector(documents):
    """「表示在 `sentence` 这个节点组中执行向量检索，计算用户查询的内容 `query` 和每个节点（`Node`）的相似度」

    The sample gives the three sentences whose vectors lie nearest to the query's, with their
    cosines, best first.
    """
    retriever = Retriever(documents, group_name="sentence", similarity="cosine", topk=3)
    query = "红茶发酵多久"
    expected = sorted(
        ((cosine(letters(query), letters(one)), one) for one in SENTENCES), reverse=True
    )
    found = retriever(query)
    assert texts(found) == [sentence for _, sentence in expected[:3]]
    assert [node.score for node in found] == pytest.approx(
        [score for score, _ in expected[:3]], abs=1e-6
    )
    assert {node.group for node in found} == {"sentence"}


def test_the_sample_searches_several_documents(folder, tmp_path):
    """「retriever = Retriever([document1, document2, ...], group_name="sentence",
    similarity="cosine", topk=3)」

    The other form of the sample gives the three best of both Documents together, each from where it
    lies.
    """
    path = folder({"one/a.txt": "1 0\n0 1\n-1 0", "two/b.txt": "9 1\n1 1"})
    document1, document2 = lines(path / "one", plane), lines(path / "two", plane)
    retriever = Retriever(
        [document1, document2], group_name="sentence", similarity="cosine", topk=3
    )
    assert [(node.text, node.path) for node in retriever("1 0")] == [
        ("1 0", "a.txt"),
        ("9 1", "b.txt"),
        ("1 1", "b.txt"),
    ]


def test_topk_bounds_the_nodes(documents):
    """「`topk` 表示最多取最相近的多少个节点」

    A smaller topk gives the beginning of what a larger one gives, and one beyond the group's size
    gives all its nodes.
    """
    everything = texts(Retriever(documents, "sentence", topk=100)("红茶"))
    assert sorted(everything) == sorted(SENTENCES)
    for topk in (1, 2, 5):
        assert texts(Retriever(documents, "sentence", topk=topk)("红茶")) == everything[:topk]


def test_doc_is_a_document(folder):
    """「`doc`：要从哪个 `Document` 中检索文档，或者要从哪些 `Document` 列表中检索文档」

    A retriever finds only what is in the Document it was given.
    """
    path = folder({"one/a.txt": "绿茶", "two/b.txt": "绿茶和红茶"})
    found = {
        name: Retriever(lines(path / name), "sentence", similarity="bm25_chinese")
        for name in ("one", "two")
    }
    assert texts(found["one"]("绿茶")) == ["绿茶"]
    assert texts(found["two"]("绿茶")) == ["绿茶和红茶"]


def test_doc_is_a_list_of_documents(folder):
    """「`doc`：要从哪个 `Document` 中检索文档，或者要从哪些 `Document` 列表中检索文档」

    Several Documents together give the same texts with the same BM25 scores as one Document with
    all their files.
    """
    path = folder({"one/a.txt": "绿茶存放\n白茶\n牛奶", "two/b.txt": "绿茶炒制\n咖啡\n绿茶绿茶"})
    several = Retriever(
        [lines(path / "one"), lines(path / "two")], "sentence", similarity="bm25_chinese"
    )("绿茶")
    one = Retriever(lines(path), "sentence", similarity="bm25_chinese")("绿茶")
    assert set(texts(one)) == {"绿茶存放", "白茶", "绿茶炒制", "绿茶绿茶"}
    assert {node.text: node.score for node in several} == pytest.approx(
        {node.text: node.score for node in one}
    )


def test_doc_is_nothing_else(documents):
    """「`doc`：要从哪个 `Document` 中检索文档，或者要从哪些 `Document` 列表中检索文档」

    A path, or a list with something else in it, is a configuration mistake.
    """
    for doc in ("folder", [documents, "folder"], []):
        with pytest.raises(ConfigError, match="doc must be a Document or a list of Documents"):
            Retriever(doc, "sentence")


def test_group_name_says_which_group(documents):
    """「`group_name`：要使用文档的哪个 `Node Group` 来检索」

    The nodes that come back are of the group that was named; a name that is none is refused when it
    is given.
    """
    documents.create_node_group("first", transform=lambda s: s[:2], parent="sentence")
    assert texts(Retriever(documents, "first", similarity="bm25_chinese")("咖啡")) == ["咖啡"]
    assert texts(Retriever(documents, "sentence", similarity="bm25_chinese")("咖啡")) == [
        "咖啡要烘焙"
    ]
    with pytest.raises(
        NotRegisteredError, match=r"no node group 'sentences'.*Did you mean 'sentence'"
    ):
        Retriever(documents, "sentences")


@pytest.mark.parametrize("spelling", [LAZY_ROOT_NAME, "lazyllm_root", "lazyllm-root"])
def test_the_root_group_is_the_documents_themselves(folder, spelling):
    """「使用 `LAZY_ROOT_NAME` 表示在原始文档内容中进行检索」

    By the constant and by both spellings whole documents are searched and found, with all their
    text.
    """
    docs = lines(folder({"a.txt": "绿茶\n存放", "b.txt": "红茶\n发酵"}))
    [node] = Retriever(docs, spelling, similarity="bm25_chinese")("发酵")
    assert (node.path, node.text, node.group) == ("b.txt", "红茶\n发酵", LAZY_ROOT_NAME)


def test_bm25_is_built_in(folder):
    """「`LazyLLM` 内置的相似度计算函数有 `bm25`，`bm25_chinese` 和 `cosine`」

    bm25 finds the English paragraph that answers, over other word forms, and nothing that shares no
    word.
    """
    docs = lines(folder(real(TOOLS, PICKING)))
    found = Retriever(docs, "sentence", similarity="bm25", topk=100)("Who drives the minibus?")
    assert "The minibus with twelve seats is driven by Wei Guoqiang" in found[0].text
    assert all(any(word in node.text.lower() for word in ("driv", "minibus")) for node in found)
    scores = [node.score for node in found]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0


def test_bm25_chinese_is_built_in(folder):
    """「`LazyLLM` 内置的相似度计算函数有 `bm25`，`bm25_chinese` 和 `cosine`」

    bm25_chinese finds the Chinese paragraph that answers, without spaces between the words.
    """
    docs = lines(folder(real(TOOLS, PICKING)))
    found = Retriever(docs, "sentence", similarity="bm25_chinese")("采摘卡遗失了怎么补办？")
    assert "卡片遗失的，凭收青站的存根补办，补办费5元" in found[0].text
    scores = [node.score for node in found]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0


def test_bm25_chinese_takes_words_and_synonyms(tmp_path):
    """「`LazyLLM` 内置的相似度计算函数有 `bm25`，`bm25_chinese` 和 `cosine`」

    The analyser of bm25_chinese takes words that its dictionary lacks, and synonyms, which find
    each other in both directions and languages. Both are part of the index: with others it is built
    anew.
    """
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "food.db")}}}
    texts = {
        "1": "马铃薯要削皮。",
        "2": "Potato soup.",
        "3": "番茄汤。",
        "4": "凤凰单丛香。",
        "5": "单丛和凤凰。",
    }
    with analysers.isolated():
        plain = register_chinese_analyser("zh-food")
        ours = register_chinese_analyser(
            "zh-ours", words=["凤凰单丛"], synonyms={"土豆": ["马铃薯", "potato"]}
        )
        assert "凤凰单丛" in ours.terms("凤凰单丛香")
        assert "凤凰单丛" not in plain.terms("凤凰单丛香")
        assert plain.terms(texts["1"]) == term_function("zh")(texts["1"])

        def found(docs, query):
            return sorted(
                node.path
                for node in Retriever(docs, LAZY_ROOT_NAME, "bm25_chinese", analyser="zh-food")(
                    query
                )
            )

        with Document(store_conf=conf) as docs:
            docs.add_texts(texts)
            assert found(docs, "土豆") == []
            register_chinese_analyser(
                "zh-food", synonyms={"土豆": ["马铃薯", "potato"]}, replace=True
            )
            assert found(docs, "土豆") == found(docs, "potatoes and POTATO") == ["1", "2"]
        with Document(store_conf=conf) as docs:
            assert found(docs, "马铃薯") == ["1", "2"]
        joined = register_chinese_analyser(
            "zh-joined", synonyms={"电脑": ["计算机"], "cat": ["猫"], "微机": ["计算机"]}
        )
        for group in (["电脑", "计算机", "微机"], ["Cats", "cat's", "猫"]):
            assert len({joined.terms(text)[-1] for text in group}) == 1
        assert not [term for term in joined.terms("茶 catalogue") if term.startswith("=")]
        synonyms = (
            {"土豆": "马铃薯"},
            {"": ["马铃薯"]},
            {3: ["马铃薯"]},
            {"土豆": [3]},
            ["土豆", "马铃薯"],
        )
        wrongs = (
            {"words": ["tea"]},
            {"words": ["茶"]},
            {"words": "凤凰"},
            *({"synonyms": one} for one in synonyms),
        )
        for wrong in wrongs:
            with pytest.raises(ConfigError, match=r"words|synonyms"):
                register_chinese_analyser("zh-wrong", **wrong)


def test_cosine_is_built_in(folder):
    """「`LazyLLM` 内置的相似度计算函数有 `bm25`，`bm25_chinese` 和 `cosine`」

    cosine scores by the angle between the vectors, whatever their lengths: from 1 for the same
    direction to -1.
    """
    docs = lines(folder({"a.txt": "5 0\n1 1\n0 2\n-3 0"}), plane)
    found = Retriever(docs, "sentence", similarity="cosine")("2 0")
    assert texts(found) == ["5 0", "1 1", "0 2", "-3 0"]
    assert [node.score for node in found] == pytest.approx(
        [1.0, math.sqrt(0.5), 0.0, -1.0], abs=1e-6
    )


def test_similarity_is_a_functions_name(documents):
    """「`similarity`：指定用来计算 `Node` 和用户查询内容之间的相似度的函数名称」

    The name decides which function scores; a name that is none is refused when it is given, the
    known ones named.
    """
    by_terms = Retriever(documents, "sentence", similarity="bm25_chinese", topk=1)("红茶要")
    by_vector = Retriever(documents, "sentence", similarity="cosine", topk=1)("红茶要")
    assert texts(by_terms) == texts(by_vector) == ["红茶要发酵"]
    assert by_vector[0].score == pytest.approx(cosine(letters("红茶要"), letters("红茶要发酵")))
    assert by_terms[0].score != by_vector[0].score
    with pytest.raises(
        NotRegisteredError, match=r"Known: .*bm25, bm25_chinese, .*cosine, .*Did you mean 'cosine'"
    ):
        Retriever(documents, "sentence", similarity="cosin")


def test_users_define_similarities(documents):
    """「用户也可以自定义自己的计算函数」

    A function of one's own is chosen by its name like the built-in ones, and decides the order.
    """

    @register_similarity(mode="text", batch=False)
    def same_length(query, node):
        return -abs(len(query) - len(node.get_text()))

    found = Retriever(documents, "sentence", similarity="same_length", topk=2)("五个字的句")
    assert [(len(node.text), node.score) for node in found] == [(5, 0.0), (5, 0.0)]


def test_the_default_is_search_by_vector(documents):
    """「如果不指定则默认使用向量检索」

    Without a similarity the nodes and scores are those of cosine.
    """
    default = [(node.text, node.score) for node in Retriever(documents, "sentence")("红茶")]
    named = [
        (node.text, node.score)
        for node in Retriever(documents, "sentence", similarity="cosine")("红茶")
    ]
    by_terms = [
        (node.text, node.score)
        for node in Retriever(documents, "sentence", similarity="bm25_chinese")("红茶")
    ]
    assert default == named != by_terms


def test_search_by_vector_needs_an_embed(folder):
    """「如果不指定则默认使用向量检索」

    On a Document without embed that default is a configuration mistake, which names both ways out.
    """
    with pytest.raises(ConfigError, match=r"Document\(embed=\.\.\.\), or a text similarity"):
        Retriever(lines(folder({"a.txt": "茶"}), embed=None), "sentence")


def test_nothing_is_cut_off_by_default(folder):
    """「`similarity_cut_off`：丢弃相似度小于指定值的结果，默认为 `-inf`，表示不丢弃」

    Left out, even the node that points the other way comes back.
    """
    docs = lines(folder({"a.txt": "1 0\n0 1\n-1 0"}), plane)
    assert inspect.signature(Retriever).parameters["similarity_cut_off"].default == -math.inf
    assert texts(Retriever(docs, "sentence")("1 0")) == ["1 0", "0 1", "-1 0"]


def test_what_is_below_the_cut_off_is_dropped(folder):
    """「`similarity_cut_off`：丢弃相似度小于指定值的结果，默认为 `-inf`，表示不丢弃」

    What scores less is dropped; what scores exactly as much stays; 0 is a cut-off like any other.
    """
    docs = lines(folder({"a.txt": "1 0\n3 4\n0 1\n-1 0"}), plane)
    kept = {
        cut: texts(Retriever(docs, "sentence", similarity_cut_off=cut)("1 0"))
        for cut in (0.61, 0.5, 0, -1)
    }
    assert kept == {
        0.61: ["1 0"],
        0.5: ["1 0", "3 4"],
        0: ["1 0", "3 4", "0 1"],
        -1: ["1 0", "3 4", "0 1", "-1 0"],
    }


def test_a_cut_off_holds_for_text_similarities(documents):
    """「`similarity_cut_off`：丢弃相似度小于指定值的结果，默认为 `-inf`，表示不丢弃」

    With bm25_chinese, too: at the second node's score that node stays, and what scores less goes.
    """
    every = Retriever(documents, "sentence", similarity="bm25_chinese")("红茶发酵")
    assert every[1].score > every[2].score
    cut = Retriever(
        documents, "sentence", similarity="bm25_chinese", similarity_cut_off=every[1].score
    )("红茶发酵")
    assert texts(cut) == texts(every[:2])


@pytest.fixture
def two_keys(folder):
    """Three nodes: left is near to the query by the first embed key, right by the second, neither
    by none.
    """
    first = {"left": [1.0, 0.0], "query": [1.0, 0.0]}
    second = {"right": [1.0, 0.0], "query": [1.0, 0.0]}
    embed = {
        "first": lambda text: first.get(text, [0.0, 1.0]),
        "second": lambda text: second.get(text, [0.0, 1.0]),
    }
    return lines(folder({"a.txt": "neither\nright\nleft"}), embed)


def test_cut_offs_are_given_by_embed_key(two_keys):
    """「在多 embedding 场景下，如果需要对不同的 embedding 指定不同的值，则该参数需要以字典的方式指定，
    key 表示指定的是哪个 embedding， value 表示相应的阈值」

    Each embed key's ranking is cut by its own value, and a key that is none is a configuration
    mistake.
    """
    by_first = Retriever(two_keys, "sentence", similarity_cut_off={"first": 0.5, "second": 2.0})
    by_second = Retriever(two_keys, "sentence", similarity_cut_off={"first": 2.0, "second": 0.5})
    assert texts(by_first("query")) == ["left"]
    assert texts(by_second("query")) == ["right"]
    with pytest.raises(ConfigError, match=r"embed key 'frist'.*Did you mean 'first'"):
        Retriever(two_keys, "sentence", similarity_cut_off={"frist": 0.5})


def test_one_cut_off_holds_for_all_embed_keys(two_keys):
    """「如果所有 embedding 使用同一个阈值，则此参数只传一个数值即可」

    One number cuts every embed key's ranking: what is near by either stays, the node near by
    neither goes.
    """
    assert sorted(texts(Retriever(two_keys, "sentence")("query"))) == ["left", "neither", "right"]
    assert sorted(texts(Retriever(two_keys, "sentence", similarity_cut_off=0.5)("query"))) == [
        "left",
        "right",
    ]


def test_index_is_default(documents):
    """「`index`：在哪个索引上进行查找，目前只支持 `default` 和 `smart_embedding_index`」

    default is what is searched without the parameter.
    """
    named = Retriever(documents, "sentence", index="default")("红茶")
    assert [(node.uid, node.score) for node in named] == [
        (node.uid, node.score) for node in Retriever(documents, "sentence")("红茶")
    ]
    assert len(named) == 6


def test_index_is_smart_embedding_index(documents):
    """「`index`：在哪个索引上进行查找，目前只支持 `default` 和 `smart_embedding_index`」

    smart_embedding_index is the vector store's own search: on map the same nodes with the same
    scores.
    """
    smart = Retriever(documents, "sentence", similarity="cosine", index="smart_embedding_index")(
        "红茶"
    )
    default = Retriever(documents, "sentence", similarity="cosine", index="default")("红茶")
    assert [(node.uid, node.score) for node in smart] == [
        (node.uid, node.score) for node in default
    ]
    assert len(smart) == 6


def test_smart_embedding_index_searches_no_text(documents):
    """「`index`：在哪个索引上进行查找，目前只支持 `default` 和 `smart_embedding_index`」

    Together with a text similarity, which searches no vector store, it is a configuration mistake.
    """
    with pytest.raises(ConfigError, match="the similarity 'bm25' does not"):
        Retriever(documents, "sentence", similarity="bm25", index="smart_embedding_index")


def test_index_is_nothing_else(documents):
    """「`index`：在哪个索引上进行查找，目前只支持 `default` 和 `smart_embedding_index`」

    Another name is a configuration mistake, answered with the nearest known one.
    """
    with pytest.raises(NotRegisteredError, match=r"'smart_index'.*default.*smart_embedding_index"):
        Retriever(documents, "sentence", index="smart_index")


def test_topk_is_six_by_default(documents):
    """「`topk`：表示返回最相关的文档数，默认值为 6」

    Of eight nodes the best six come back where topk is left out.
    """
    everything = texts(Retriever(documents, "sentence", topk=8)("红茶"))
    assert len(everything) == 8
    assert texts(Retriever(documents, "sentence")("红茶")) == everything[:6]


def test_topk_is_the_total_over_several_documents(documents):
    """「`topk`：表示返回最相关的文档数，默认值为 6」

    Over two Documents there are as many nodes as over one, the best of both together.
    """
    other = Document()
    other.add_texts({"a": "红茶 红茶", "b": "红茶"})
    other.create_node_group("sentence", transform=lambda text: text)
    both = Retriever([documents, other], "sentence", similarity="bm25_chinese", topk=2)
    assert sorted(texts(both("红茶"))) == ["红茶", "红茶 红茶"]
    assert (
        len(texts(Retriever([documents, other], "sentence", similarity="bm25_chinese")("茶"))) == 6
    )


def test_embed_keys_say_which_embeddings(two_keys):
    """「`embed_keys`：表示通过哪些 embedding 做检索，不指定表示用全部 embedding 进行检索」

    The ranking is that of the embed keys named, with their scores; a key that is none is a
    configuration mistake.
    """
    first = Retriever(two_keys, "sentence", embed_keys=["first"], topk=1)("query")
    second = Retriever(two_keys, "sentence", embed_keys=["second"], topk=1)("query")
    assert [(node.text, node.score) for node in first] == [("left", 1.0)]
    assert [(node.text, node.score) for node in second] == [("right", 1.0)]
    with pytest.raises(ConfigError, match=r"no embed key 'third'\. Known: first, second"):
        Retriever(two_keys, "sentence", embed_keys=["third"])


def test_all_embeddings_are_used_by_default(two_keys):
    """「`embed_keys`：表示通过哪些 embedding 做检索，不指定表示用全部 embedding 进行检索」

    Left out, both rankings count: the nodes that are near by one key each stand before the one near
    by neither.
    """
    default = [(node.text, node.score) for node in Retriever(two_keys, "sentence")("query")]
    named = Retriever(two_keys, "sentence", embed_keys=["first", "second"])("query")
    assert default == [(node.text, node.score) for node in named]
    assert {text for text, _ in default[:2]} == {"left", "right"}
    assert default[2][0] == "neither"


def test_similarity_kw_reaches_the_function(documents):
    """「`similarity_kw`：需要透传给 `similarity` 函数的参数」

    What is given arrives in the function as keyword arguments, of one's own function and of a
    built-in one.
    """

    @register_similarity(mode="text", batch=False)
    def counted(query, node, *, letter="茶", times=1.0):
        return times * node.get_text().count(letter)

    default = Retriever(documents, "sentence", similarity="counted", topk=1)("?")
    given = {"letter": "发", "times": 0.5}
    passed = Retriever(
        documents, "sentence", similarity="counted", similarity_kw=given, similarity_cut_off=0.5
    )("?")
    assert default[0].score == 1.0
    assert {node.text: node.score for node in passed} == {"绿茶不要发酵": 0.5, "红茶要发酵": 0.5}

    flat = Retriever(documents, "sentence", similarity="bm25_chinese", similarity_kw={"b": 0.0})(
        "绿茶"
    )
    assert flat[0].score == flat[1].score  # b=0 leaves the text's length out
    with pytest.raises(
        ConfigError, match=r"'bm25' takes no keyword 'k_1'\. Known: .*Did you mean 'k1'"
    ):
        Retriever(documents, "sentence", similarity="bm25", similarity_kw={"k_1": 1.2})


def test_functions_are_registered(documents):
    """「用户可以通过使用 `LazyLLM` 提供的 `register_similarity()` 函数来注册自己的相似度计算函数」

    Under its own name a registered function is a similarity, a second one under that name is
    refused, and the function itself stays what it was.
    """

    def shortest(query, node):
        return -len(node.get_text())

    assert register_similarity(shortest) is shortest
    assert set(texts(Retriever(documents, "sentence", similarity="shortest", topk=2)("?"))) == {
        "红茶要发酵",
        "咖啡要烘焙",
    }
    with pytest.raises(lazyrag.LazyRAGError, match="'shortest' is registered already"):
        register_similarity(lambda query, node: 0.0, name="shortest")


def test_func_computes_the_similarity(documents):
    """「`func`：用于计算相似度的函数」

    Given as the argument func, the function computes the scores that the nodes carry.
    """

    def length(query, node):
        return float(len(node.get_text()))

    register_similarity(func=length, mode="text", batch=False)
    found = Retriever(documents, "sentence", similarity="length")("?")
    assert [node.score for node in found] == [23.0, 6.0, 6.0, 6.0, 6.0, 6.0]


def test_mode_is_text_or_embedding():
    """「`mode`：计算模式，支持 `text` 和 `embedding` 两种，会影响传给 `func` 的参数」

    Another mode is refused when it is registered.
    """
    with pytest.raises(
        ConfigError, match=r"mode 'embeddings'\. Known: embedding, text\. Did you mean 'embedding'"
    ):
        register_similarity(mode="embeddings", batch=True)


def test_higher_is_better_by_default(documents):
    """「`decend`：是否降序排列，默认为 `True`」

    Left out, the highest score comes first.
    """

    @register_similarity(mode="text", batch=False)
    def length(query, node):
        return float(len(node.get_text()))

    scores = [
        node.score for node in Retriever(documents, "sentence", similarity="length", topk=8)("?")
    ]
    assert scores == [23.0, 6.0, 6.0, 6.0, 6.0, 6.0, 5.0, 5.0]


def test_decend_false_means_lower_is_better(documents):
    """「`decend`：是否降序排列，默认为 `True`」

    With decend=False the lowest score comes first and a cut-off drops what is higher.
    """

    @register_similarity(mode="text", batch=False, decend=False)
    def length(query, node):
        return float(len(node.get_text()))

    scores = [
        node.score for node in Retriever(documents, "sentence", similarity="length", topk=8)("?")
    ]
    assert scores == [5.0, 5.0, 6.0, 6.0, 6.0, 6.0, 6.0, 23.0]
    kept = Retriever(documents, "sentence", similarity="length", similarity_cut_off=5.0)("?")
    assert [node.score for node in kept] == [5.0, 5.0]


def test_similarity_may_be_a_function(documents):
    """「`similarity`：指定用来计算 `Node` 和用户查询内容之间的相似度的函数名称」

    The function itself does, too. What it takes is read off its parameters: ``nodes`` or a list is
    a batch function, a query of floats makes it one over embeddings.
    """

    def longest(query, node):
        return float(len(node.get_text()))

    def longest_of(query, nodes):
        return [(node, float(len(node.get_text()))) for node in nodes]

    def by_annotation(query: str, found: list[DocNode]) -> list[tuple[DocNode, float]]:
        return longest_of(query, found)

    by_name = [node.score for node in Retriever(documents, "sentence", similarity=longest)("?")]
    assert by_name == [23.0, 6.0, 6.0, 6.0, 6.0, 6.0]
    for function in (longest_of, by_annotation, functools.partial(longest)):
        assert [
            node.score for node in Retriever(documents, "sentence", similarity=function)("?")
        ] == by_name


def test_the_mode_follows_the_annotation_of_the_query():
    """「`mode`：计算模式，支持 `text` 和 `embedding` 两种，会影响传给 `func` 的参数」

    Explicit values win.
    """

    def dot(query: list[float], node: DocNode) -> float:
        return sum(a * b for a, b in zip(query, node.embedding, strict=True))

    docs = Document(embed=lambda text: [float(len(text)), 1.0])
    docs.add_texts({"a": "tea", "b": "coffee"})
    assert [node.score for node in Retriever(docs, "FineChunk", similarity=dot)("tea")] == [
        19.0,
        10.0,
    ]
    register_similarity(dot, mode="text", name="dot of texts")
    assert similarities["dot of texts"].mode == "text"


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda query, node: list(node), "batch=True"),
        (lambda query, node: [(node, 1.0)], "batch=True"),
        (lambda query, nodes: nodes[0].score.real, "batch=True"),
        (lambda query, nodes: 3.0, "pairs"),
    ],
)
def test_a_function_of_another_shape_is_told_the_fix(documents, function, named):
    """「根据 `mode` 和 `batch` 不同的取值，用户自定义的相似度计算函数的原型有以下几种形式」

    The error of the first call names what the function was called with and how to register it.
    """
    with pytest.raises(RetrievalError, match=named):
        Retriever(documents, "sentence", similarity=function)("?")


def test_a_function_without_a_query_and_a_lambda_without_a_name_are_refused():
    """「`func`：用于计算相似度的函数」"""
    with pytest.raises(ConfigError, match="query, node"):
        register_similarity(lambda node: 1.0, name="one parameter")
    with pytest.raises(ConfigError, match="name="):
        register_similarity(lambda query, node: 1.0)


@pytest.mark.parametrize("batch", [True, False])
def test_batch_changes_arguments_and_result(documents, batch):
    """「`batch`：是否多 batch，会影响传给 `func` 的参数和返回值」

    One function in its two forms, all nodes at once or one by one, gives the same nodes with the
    same scores.
    """

    def single(query, node):
        return float(node.get_text().count(query))

    def together(query, nodes):
        return [(node, single(query, node)) for node in nodes]

    register_similarity(together if batch else single, batch=batch, name="counted")
    found = Retriever(documents, "sentence", similarity="counted", similarity_cut_off=1)("发酵")
    assert {node.text: node.score for node in found} == {"绿茶不要发酵": 1.0, "红茶要发酵": 1.0}


def test_registered_functions_work_without_an_external_store(folder):
    """「外接存储引擎一般不支持自定义相似度计算函数，只有不使用外部存储引擎时，注册的`similarity` 参数才有效」

    On the map stores, the only ones there are today, a registered function ranks the nodes that
    pass the filters.
    """

    @register_similarity(mode="embedding", batch=False)
    def dot(query, node):
        return float(sum(a * b for a, b in zip(query, node.embedding, strict=True)))

    store_conf = {"segment_store": {"type": "map"}, "vector_store": {"type": "map"}}
    docs = lines(folder({"a.txt": "1 0\n9 9", "b.txt": "2 2\n0 3"}), plane, store_conf=store_conf)
    found = Retriever(docs, "sentence", similarity="dot")("1 1", filters={"file_name": ["b.txt"]})
    assert [(node.text, node.score) for node in found] == [("2 2", 4.0), ("0 3", 3.0)]


def test_text_mode_works_on_contents(documents):
    """「当 `mode` 的取值为 `text` 时表示使用 `Node` 的内容，计算函数的参数 `query` 的类型为 `str`，
    即需要和 `Node` 比较的文本内容，`Node` 的内容可以通过 `node.get_text()` 获取」

    The function gets the query as it was asked and nodes whose get_text() gives the group's texts.
    """
    seen = []

    @register_similarity(mode="text", batch=False)
    def watched(query, node):
        seen.append((query, node.get_text()))
        return 0.0

    Retriever(documents, "sentence", similarity="watched")("红茶？")
    assert seen == [("红茶？", sentence) for sentence in SENTENCES]


def test_embedding_mode_works_on_vectors(documents):
    """「若为 `embedding` 则表示使用 `Document` 初始化时指定的 `embed` 函数转换得到的向量来计算，
    此时 `query` 的类型为 `List[float]`，
    `Node` 的向量可以通过 `node.embedding` 来获取」

    The function gets the query's vector as a list of floats and nodes whose embedding is the vector
    of their text.
    """
    seen = []

    @register_similarity(mode="embedding", batch=False)
    def watched(query, node):
        seen.append((query, node.get_text(), list(node.embedding)))
        return 0.0

    Retriever(documents, "sentence", similarity="watched")("红茶？")
    assert seen == [(letters("红茶？"), sentence, letters(sentence)) for sentence in SENTENCES]
    assert {(type(query), type(number)) for query, _, _ in seen for number in query} == {
        (list, float)
    }


def test_embedding_mode_works_on_each_embed_key(two_keys):
    """「`Node` 的向量可以通过 `node.embedding` 来获取」

    With several embed keys the function is asked once for each, and node.embedding is that key's
    vector.
    """

    @register_similarity(mode="embedding", batch=False)
    def dot(query, node):
        return float(sum(a * b for a, b in zip(query, node.embedding, strict=True)))

    first = Retriever(two_keys, "sentence", similarity="dot", embed_keys=["first"], topk=1)("query")
    second = Retriever(two_keys, "sentence", similarity="dot", embed_keys=["second"], topk=1)(
        "query"
    )
    assert (texts(first), texts(second)) == (["left"], ["right"])


def test_the_returned_float_is_the_score(documents):
    """「返回值中的 `float` 表示文档的得分」

    The number that a function returns for a node is the score that the node comes back with, and
    orders it.
    """
    given = {sentence: number / 8 for number, sentence in enumerate(SENTENCES)}

    @register_similarity(mode="text", batch=True)
    def listed(query, nodes):
        return [(node, given[node.get_text()]) for node in nodes]

    found = Retriever(documents, "sentence", similarity="listed", topk=8)("?")
    assert [(node.text, node.score) for node in found] == list(given.items())[::-1]


def test_a_batch_function_gets_a_list_of_nodes(documents):
    """「当 `batch` 为 `True` 时，计算函数的参数有 `nodes`，类型为 `List[DocNode]`，
    返回值类型为 `List[(DocNode, float)]`」

    It gets all nodes of the group as one list of DocNodes and returns pairs; a node it leaves out
    is not found.
    """
    seen = []

    @register_similarity(mode="text", batch=True)
    def first_two(query: str, nodes: list[DocNode], **kwargs) -> list[tuple[DocNode, float]]:
        seen.append((type(nodes), {type(node) for node in nodes}, texts(nodes)))
        return [(node, 1.0) for node in nodes[:2]]

    found = Retriever(documents, "sentence", similarity="first_two")("?")
    assert seen == [(list, {DocNode}, list(SENTENCES))]
    assert sorted(texts(found)) == sorted(SENTENCES[:2])


def test_a_single_function_gets_one_node(documents):
    """「若为 `False` 时，计算函数的参数有 `node`，类型为 `DocNode`，返回值类型为 `float`，表示文档的得分」

    It gets every node of the group by itself and returns that node's score.
    """
    seen = []

    @register_similarity(mode="text", batch=False)
    def watched(query: str, node: DocNode, **kwargs) -> float:
        seen.append((type(node), node.get_text()))
        return float(len(node.get_text()))

    found = Retriever(documents, "sentence", similarity="watched", topk=8)("?")
    assert seen == [(DocNode, sentence) for sentence in SENTENCES]
    assert {node.text: node.score for node in found} == {
        sentence: len(sentence) for sentence in SENTENCES
    }


def test_prototype_1_text_batch(documents):
    """「@lazyllm.tools.rag.register_similarity(mode='text', batch=True)
    def dummy_similarity_func(query: str, nodes: List[DocNode], **kwargs) -> List[Tuple[DocNode,
    float]]:」

    A function of this form ranks.
    """

    @lazyrag.register_similarity(mode="text", batch=True)
    def dummy_similarity_func(
        query: str, nodes: list[DocNode], **kwargs
    ) -> list[tuple[DocNode, float]]:
        return [(node, float(node.get_text().count(query))) for node in nodes]

    [best] = Retriever(documents, "sentence", similarity="dummy_similarity_func", topk=1)("咖啡")
    assert (best.text, best.score) == ("咖啡要烘焙", 1.0)


def test_prototype_2_text_single(documents):
    """「@lazyllm.tools.rag.register_similarity(mode='text', batch=False)
    def dummy_similarity_func(query: str, nodes: List[DocNode], **kwargs) -> float:」

    A function of this form ranks; what it calls nodes is one node, since batch is False.
    """

    @lazyrag.register_similarity(mode="text", batch=False)
    def dummy_similarity_func(query: str, nodes: list[DocNode], **kwargs) -> float:
        return float(nodes.get_text().count(query))

    [best] = Retriever(documents, "sentence", similarity="dummy_similarity_func", topk=1)("咖啡")
    assert (best.text, best.score) == ("咖啡要烘焙", 1.0)


def test_prototype_3_embedding_batch(documents):
    """「@lazyllm.tools.rag.register_similarity(mode='embedding', batch=True)
    def dummy_similarity_func(query: List[float], nodes: List[DocNode], **kwargs) ->
    List[Tuple[DocNode, float]]:」

    A function of this form ranks.
    """

    @lazyrag.register_similarity(mode="embedding", batch=True)
    def dummy_similarity_func(
        query: list[float], nodes: list[DocNode], **kwargs
    ) -> list[tuple[DocNode, float]]:
        return [(node, cosine(query, node.embedding)) for node in nodes]

    [best] = Retriever(documents, "sentence", similarity="dummy_similarity_func", topk=1)(
        "咖啡要烘焙"
    )
    assert best.text == "咖啡要烘焙"
    assert best.score == pytest.approx(1.0)


def test_prototype_4_embedding_single(documents):
    """「@lazyllm.tools.rag.register_similarity(mode='embedding', batch=False)
    def dummy_similarity_func(query: List[float], node: DocNode, **kwargs) -> float:」

    A function of this form ranks.
    """

    @lazyrag.register_similarity(mode="embedding", batch=False)
    def dummy_similarity_func(query: list[float], node: DocNode, **kwargs) -> float:
        return cosine(query, node.embedding)

    [best] = Retriever(documents, "sentence", similarity="dummy_similarity_func", topk=1)(
        "咖啡要烘焙"
    )
    assert best.text == "咖啡要烘焙"
    assert best.score == pytest.approx(1.0)


BOOKS = {"1.txt": "茶 一", "2.txt": "茶 二", "3.txt": "茶 三", "4.txt": "茶 四", "5.txt": "水 五"}
SAID = {
    "1.txt": {"author": "A", "publish_year": 2002},
    "2.txt": {"author": "B", "publish_year": 1999},
    "3.txt": {"author": "D", "publish_year": 2003},
    "4.txt": {"author": "C", "publish_year": 2004},
    "5.txt": {"author": "A"},
}


@pytest.fixture
def books(folder):
    """Files with an author and, but for one, a year."""
    doc_fields = {
        "author": DocField(data_type=DataType.VARCHAR, max_size=128, default_value=" "),
        "publish_year": DocField(data_type=DataType.INT32),
    }
    return lines(folder(BOOKS), doc_fields=doc_fields, file_metadata=SAID)


def paths(docs, filters, query="茶"):
    """Paths of what a query finds under a filter, sorted."""
    return sorted(node.path for node in Retriever(docs, "sentence")(query, filters=filters))


def test_a_retriever_is_called_with_a_query(documents):
    """「`Retriever` 实例使用时需要传入要查询的 `query` 字符串」

    By position or by name the query is a text; nothing, or something else, is refused.
    """
    retriever = Retriever(documents, "sentence", similarity="bm25_chinese", topk=1)
    assert texts(retriever("咖啡")) == texts(retriever(query="咖啡")) == ["咖啡要烘焙"]
    with pytest.raises(ConfigError, match="query must be a string; got None"):
        retriever(None)


def test_filters_are_optional(books):
    """「还有可选的过滤器 `filters` 用于字段过滤」

    Without filters every file can be found, with one only those it lets through.
    """
    everything = sorted(node.path for node in Retriever(books, "sentence")("茶"))
    assert everything == sorted(BOOKS)
    assert paths(books, None) == paths(books, {}) == everything
    assert paths(books, {"author": ["A"]}) == ["1.txt", "5.txt"]


def test_any_value_of_the_list_will_do(books):
    """「`filters` 是一个 dict，其中 key 是要过滤的字段，value 是一个可取值列表，
    表示只要该字段的值匹配列表中的任意一个值即可」

    A node is found if its field has any of the values.
    """
    assert paths(books, {"author": ["A", "B"]}) == ["1.txt", "2.txt", "5.txt"]
    assert paths(books, {"publish_year": [1999, 2004, 2050]}) == ["2.txt", "4.txt"]


def test_all_conditions_must_hold(books):
    """「只有当所有的条件都满足该 node 才会被返回」

    A node that satisfies one condition and not the other is not found; a missing value satisfies
    none.
    """
    assert paths(books, {"author": ["A", "B", "D"]}) == ["1.txt", "2.txt", "3.txt", "5.txt"]
    assert paths(books, {"publish_year": [2002, 2004]}) == ["1.txt", "4.txt"]
    assert paths(books, {"author": ["A", "B", "D"], "publish_year": [2002, 2004]}) == ["1.txt"]


@pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese", "cosine"])
def test_the_sample_filters(books, similarity):
    """「`filters` 的用法如下方代码所示」

    The sample finds, by every built-in similarity, what is about the query, has one of the authors
    and of the years.
    """
    retriever = Retriever(books, "sentence", similarity=similarity)
    query = "茶"
    filters = {
        "author": ["A", "B", "C"],
        "publish_year": [2002, 2003, 2004],
    }
    doc_list = retriever(query=query, filters=filters)
    assert sorted(node.path for node in doc_list) == ["1.txt", "4.txt"]


@pytest.mark.parametrize("stored", ["memory", "file"])
def test_hits_keep_what_they_showed_when_the_document_is_closed(tmp_path, stored):
    """「`doc_list = retriever(query=query, filters=filters)`」

    After the with block a hit has its text, metadata, score, location and file's metadata, and its
    parent if that was read; so has a copy with another score. What was never read is an error that
    says so.
    """
    text = "# 茶\n\n绿茶低温存放。\n\n## 水\n\n水温八十度。"
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    conf = (
        {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "s.db")}}}
        if stored == "file"
        else None
    )
    with Document(tmp_path / "a.md", store_conf=conf) as docs:
        docs.create_node_group("line", transform=lambda d: d.split("\n"))
        retriever = Retriever(docs, "line", similarity="bm25_chinese", topk=1)
        [read], [unread] = retriever("绿茶"), retriever("水温")
        [root] = docs.find(LAZY_ROOT_NAME)([unread])
        [seen] = docs.restricted({"file_name": "a.md"}).get_nodes("line", limit=1)
        shown = read.location, read.parent.text, dict(read.global_metadata)
        scored, score = read.with_score(7.0), read.score
    for node in (read, scored):
        assert (node.text, node.metadata, node.score) == (
            "绿茶低温存放。",
            {},
            score if node is read else 7.0,
        )
        assert (node.location, node.parent.text, node.global_metadata) == shown
    assert unread.location == "茶 > 水, line 7"
    assert [location.label for location in unread.locations][-1] == "茶 > 水"
    assert (unread.global_metadata["file_name"], root.text) == ("a.md", text)
    assert Hit.from_node(unread).metadata["location"] == unread.location
    for name in ("parent", "children", "root", "source"):
        with pytest.raises(StoreError, match=f"is closed, so its {name} cannot be read"):
            getattr(unread, name)
    assert (seen.text, seen.metadata, root.location) == ("# 茶", {}, "")
    with pytest.raises(StoreError, match="is closed, so its location cannot be read"):
        _ = seen.location
    with pytest.raises(StoreError, match="closed"):
        retriever("绿茶")


def test_filters_come_before_topk(books):
    """「只有当所有的条件都满足该 node 才会被返回」

    The best nodes among those that satisfy the filter are found, also where better ones do not
    satisfy it.
    """
    best = Retriever(books, "sentence", topk=1)
    assert texts(best("水 五")) == ["水 五"]
    assert texts(best("水 五", filters={"author": ["D"]})) == ["茶 三"]


def test_the_keys_of_filters_are_declared(folder):
    """「其中 `filters` 的键值可以在初始化`Document`时传入`doc_fields`参数进行自定义」

    The specification's own slip, public_year declared and publish_year filtered, is the error that
    names both.
    """
    doc_fields = {
        "author": DocField(data_type=DataType.VARCHAR, max_size=128, default_value=" "),
        "public_year": DocField(data_type=DataType.INT32),
    }
    filters = {
        "author": ["A", "B", "C"],
        "publish_year": [2002, 2003, 2004],
    }
    retriever = Retriever(lines(folder(BOOKS), doc_fields=doc_fields), "sentence")
    with pytest.raises(
        ConfigError, match=r"field 'publish_year'.*Did you mean 'public_year'\?.*doc_fields"
    ):
        retriever(query="茶", filters=filters)


def day(year, month, date):
    """Noon of a day, as the file system counts it."""
    return time.mktime((year, month, date, 12, 0, 0, 0, 0, -1))


@pytest.fixture
def files(folder):
    """Files that differ in all six built-in fields, one of them old."""
    path = folder({"a.txt": "茶", "b.md": "茶和水", "c.txt": "茶叶"})
    os.utime(path / "c.txt", (day(2019, 5, 6), day(2018, 3, 4)))
    return lines(path)


def test_filters_by_file_name(files):
    """「`filters`也支持通过以下内置元数据进行过滤，分别是：file_name（文件名）」

    The name of the file without its folders.
    """
    assert paths(files, {"file_name": ["a.txt", "b.md"]}) == ["a.txt", "b.md"]


def test_filters_by_file_type(files):
    """「file_type（文件类型）」

    The MIME type, for which a suffix may stand.
    """
    assert paths(files, {"file_type": ["text/plain"]}) == ["a.txt", "c.txt"]
    assert paths(files, {"file_type": [".md"]}) == ["b.md"]


def test_filters_by_file_size(files):
    """「file_size（文件大小）」

    The number of bytes: three for a Chinese character.
    """
    assert paths(files, {"file_size": [3]}) == ["a.txt"]
    assert paths(files, {"file_size": [6, 9]}) == ["b.md", "c.txt"]


def test_filters_by_creation_date(files):
    """「creation_date（创建日期）」

    The ISO day on which the file was made: where the system does not keep it, that of the earliest
    change known.
    """
    assert paths(files, {"creation_date": ["2018-03-04"]}) == ["c.txt"]


def test_filters_by_last_modified_date(files):
    """「last_modified_date（最终修改日期）」

    The ISO day on which the content last changed.
    """
    assert paths(files, {"last_modified_date": ["2018-03-04"]}) == ["c.txt"]


def test_filters_by_last_accessed_date(files):
    """「last_accessed_date（最后访问日期）」

    The ISO day on which the file was last read before it was loaded.
    """
    assert paths(files, {"last_accessed_date": ["2019-05-06"]}) == ["c.txt"]
