"""Spec 000, the stages: what each appends, as the document's examples show it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import AnswerWarning, ConfigError, GenerationError, RetrievalError
from lazyrag.generation import Refiner
from lazyrag.operators import (
    BGEReranker,
    ChromaRetriever,
    LLMbased_Reranker,
    MilvusRetriever,
    OpenAIGenerator,
    QAPromptor,
    RefinerOperator,
    RerankOperator,
    RetrieveOperator,
    Wiki18FAISSRetriever,
)

TEXTS = {
    "绿茶.txt": "绿茶用八十度的水冲泡。茶园在很高的山上。",
    "红茶.txt": "红茶用沸水冲泡。",
    "白茶.txt": "白茶用七十度的水冲泡。",
}


def embed(text):
    """Counts of five characters."""
    return [0.1 + text.count(character) for character in "绿红白茶水"]


@pytest.fixture
def docs():
    """Three texts with embeddings."""
    docs = Document(embed=embed)
    docs.add_texts(TEXTS)
    return docs


@pytest.fixture
def data():
    """What a retrieval left."""
    return {
        "query": "绿茶用几度的水?",
        "retrieval_results": [
            {"text": "山上有云。", "score": 0.9, "metadata": {"page": 1}, "id": "a"},
            {"text": "绿茶用八十度的水。", "score": 0.8, "metadata": {"page": 2}, "id": "b"},
        ],
        "retrieval_docs": ["山上有云。", "绿茶用八十度的水。"],
        "retrieval_time": 0.1,
    }


@pytest.mark.parametrize("kind", [Wiki18FAISSRetriever, ChromaRetriever, MilvusRetriever])
def test_every_retriever_searches_a_document(docs, kind):
    """「**算子**: `Wiki18FAISSRetriever`, `ChromaRetriever`, `MilvusRetriever` 等」: all search a
    Document.
    """
    found = kind(docs, topk=2)({"query": "绿茶的水"})
    nodes = Retriever(docs, "FineChunk", "cosine", topk=2)("绿茶的水")
    assert [(row["id"], row["score"]) for row in found["retrieval_results"]] == [
        (node.uid, node.score) for node in nodes
    ]


def test_results_have_text_score_and_metadata(docs):
    """「`retrieval_results`: List[Dict] - 完整的检索结果,包含文本、分数、元数据等」."""
    [row, *_] = RetrieveOperator(Retriever(docs, "FineChunk", "bm25_chinese"))({"query": "绿茶"})[
        "retrieval_results"
    ]
    assert row["text"] == TEXTS["绿茶.txt"]
    assert row["score"] > 0
    assert row["metadata"]["file_name"] == row["source"] == "绿茶.txt"


def test_docs_are_bare_texts(docs):
    """「`retrieval_docs`: List[str] - 纯文本文档列表,方便后续算子直接使用」."""
    found = RetrieveOperator(Retriever(docs, "FineChunk", "bm25_chinese"))({"query": "绿茶"})
    assert found["retrieval_docs"] == [row["text"] for row in found["retrieval_results"]]
    assert {type(text) for text in found["retrieval_docs"]} == {str}


@pytest.mark.parametrize("stage", ["retrieval", "reranking", "refining", "generation"])
def test_times_are_seconds(docs, stage):
    """「`retrieval_time`: float - 检索操作耗时」, and likewise of the other stages: seconds."""
    found = RetrieveOperator(Retriever(docs, "FineChunk", "bm25_chinese")) >> RerankOperator(
        lambda q, documents, top_n: [(0, 1)]
    )
    answering = (
        found >> RefinerOperator() >> QAPromptor() >> OpenAIGenerator(lambda prompt: "八十度。")
    )
    seconds = answering({"query": "绿茶"})[f"{stage}_time"]  # type: ignore[literal-required]
    assert isinstance(seconds, float)
    assert 0 <= seconds < 60


def test_the_question_is_optional(docs):
    """「"question": {...}  # 可选」: without it the same is found."""
    retrieve = RetrieveOperator(Retriever(docs, "FineChunk", "bm25_chinese"))
    assert (
        retrieve({"query": "绿茶"})["retrieval_docs"]
        == retrieve({"query": "绿茶", "question": {"id": 1}})["retrieval_docs"]
    )


def test_reranking_changes_the_order_and_has_new_scores(data):
    """「重排序后的结果,包含新的相关性分数」: best first, each text's id and metadata still with it."""
    reranked = RerankOperator(lambda query, documents, top_n: [(1, 0.97), (0, 0.92)])(data)
    assert reranked["reranking_results"] == [
        {"text": "绿茶用八十度的水。", "score": 0.97, "metadata": {"page": 2}, "id": "b"},
        {"text": "山上有云。", "score": 0.92, "metadata": {"page": 1}, "id": "a"},
    ]
    assert reranked["reranking_docs"] == ["绿茶用八十度的水。", "山上有云。"]


def test_reranking_keeps_all_fields_of_retrieval(data):
    """「# ...继承所有 retrieval_* 字段」: none is changed."""
    reranked: Any = BGEReranker(lambda query, documents, top_n: [(1, 0.97)])(data)
    assert {name: reranked[name] for name in data} == data


def test_a_chat_model_reranks(data):
    """「**算子**: `BGEReranker`, `LLMbased_Reranker`」: the latter asks a chat model about each
    text.
    """
    reranked = LLMbased_Reranker(lambda prompt: "yes" if "八十度" in prompt else "no", topk=1)(data)
    assert reranked["reranking_docs"] == ["绿茶用八十度的水。"]


def test_refining_says_how_much_is_left(docs):
    """「精炼结果,包含压缩信息」: lengths in tokens, and refined divided by original, aligned with the texts."""
    data = {"query": "绿茶用几度的水?", "retrieval_docs": [TEXTS["绿茶.txt"], "云。" * 20]}
    refined = RefinerOperator("extractive", budget=11)(data)
    [row] = refined["refining_results"]
    assert refined["refining_docs"] == [row["text"]] == ["绿茶用八十度的水冲泡。"]
    assert row["original_length"] > row["refined_length"]
    assert row["compression_ratio"] == row["refined_length"] / row["original_length"]


def test_refined_texts_are_shorter_and_closer_to_the_question():
    """「精炼后的文档列表(通常更短,更相关)」: by the tree as well as by sentences, the sentence that answers is
    left.
    """
    long = "# 泡茶\n\n绿茶用八十度的水。\n\n# 山\n\n山很高。路很远。云很白。"
    for refiner in ("tree", "extractive"):
        [text] = RefinerOperator(refiner, budget=12)(
            {"query": "绿茶用几度的水?", "retrieval_docs": [long]}
        )["refining_docs"]
        assert "八十度" in text
        assert len(text) < len(long)


def test_refining_stops_at_unrelated_text():
    """「精炼后的文档列表(通常更短,更相关)」: what is left below the best sentence does not fill the budget."""
    related = "绿茶用八十度的水冲泡。水太烫会发苦。"
    texts = [related + "船停在港口。票价是十元。" * 20, "足球比赛在周日举行。" * 20]
    for refiner in ("tree", "extractive", "long_refiner"):
        data = RefinerOperator(refiner, budget=300)(
            {"query": "绿茶用几度的水冲泡?", "retrieval_docs": texts}
        )
        [text] = data["refining_docs"]
        assert text.replace("\n", "").startswith(related)
        assert "足球" not in text
        assert data["refining_results"][0]["refined_length"] < 60


BOOK = (
    "# 泡茶\n\n先烧水。\n\n再放茶叶。\n\n# 港口\n\n船很多。\n\n票价是十元。\n\n# 足球\n\n周日比赛。"
    + "球场很大。" * 40
)


def test_long_refiner_analyses_the_query_and_selects_titles():
    """「**算子**: `RefinerOperator` (使用 LongRefiner 算法)」: with a chat model, for a detail the
    sentences of the sections it selects, for an overview the complete sections; without one, the
    tree as it is.
    """
    prompts = []

    def chat(scope, sections):
        def answer(prompt):
            prompts.append(prompt)
            return json.dumps({"scope": scope, "sections": sections})

        return answer

    data = {"query": "坐船要多少钱?", "retrieval_docs": [BOOK]}
    for scope, expected in (
        ("local", ["船很多。\n票价是十元。"]),
        ("global", ["# 港口\n\n船很多。\n\n票价是十元。"]),
    ):
        operator = RefinerOperator(
            "long_refiner", model=chat(scope, ["2", 99]), budget=16 if scope == "global" else 12
        )
        assert operator(data)["refining_docs"] == expected
    assert [line for line in prompts[0].splitlines() if line[:1].isdigit()] == [
        "1. 泡茶",
        "2. 港口",
        "3. 足球",
    ]
    plain = RefinerOperator("long_refiner", budget=30)(data)["refining_docs"]
    assert plain == RefinerOperator("tree", budget=30)(data)["refining_docs"]
    for unreadable in (
        "section 3",
        "",
        '{"scope": "local", "sections": null}',
        '{"sections": ["tea"]}',
    ):
        operator = RefinerOperator(
            "long_refiner", model=lambda prompt, answer=unreadable: answer, budget=30
        )
        with pytest.warns(AnswerWarning, match="scope and sections"):
            assert operator(data)["refining_docs"] == plain
    for name in ("long_refiner", "chat"):
        with pytest.raises(ConfigError, match="gpt"):
            RefinerOperator(name, model="gpt")


def test_the_default_model_of_bge_reranker(tmp_path, monkeypatch):
    """「**算子**: `BGEReranker`」: made without a model, the error names the default model and how to
    get it.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HUB_CACHE", "MODELSCOPE_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(ConfigError, match=r"modelscope download --model BAAI/bge-reranker-large"):
        BGEReranker()


def test_a_refiner_made_before_is_taken():
    """「**算子**: `RefinerOperator` (使用 LongRefiner 算法)」: by default our tree, else any refiner."""
    assert RefinerOperator().refiner.name == "tree"
    own = Refiner("extractive", budget=5)
    assert RefinerOperator(own).refiner is own
    with pytest.raises(ConfigError, match="budget"):
        RefinerOperator(own, budget=3)


def test_the_prompt_is_the_documents_own():
    r"""「根据以下上下文回答问题:\n上下文: 压缩后的文档1...\n问题: 什么是机器学习?\n答案:」, letter by letter."""
    prompt = QAPromptor()(
        {"query": "什么是机器学习?", "refining_docs": ["压缩后的文档1", "压缩后的文档2"]}
    )["prompt"]
    assert (
        prompt
        == "根据以下上下文回答问题:\n上下文: 压缩后的文档1\n压缩后的文档2\n问题: 什么是机器学习?\n答案:"
    )


def test_texts_are_no_templates():
    """「生成的完整提示词,包含上下文和问题」: braces in them stay as they are."""
    prompt = QAPromptor("{sources}|{query}")(
        {"query": "{sources}?", "retrieval_docs": ["{query}"]}
    )["prompt"]
    assert prompt == "{query}|{sources}?"


def test_the_model_answers_the_prompt():
    """「`generated`: str - 模型生成的答案文本」: the model is sent the prompt alone."""
    seen = []
    data = OpenAIGenerator(lambda prompt: seen.append(prompt) or "八十度。")(
        {"query": "几度?", "prompt": "答: 几度?"}
    )
    assert (data["generated"], seen) == ("八十度。", ["答: 几度?"])


def test_an_endpoint_answers_the_prompt(model, quick_endpoints):
    """「**算子**: `OpenAIGenerator`」: a real server of OpenAI's protocol gets one message of the
    user.
    """
    data = OpenAIGenerator("qwen", model.url, "key")({"query": "几度?", "prompt": "答: 几度?"})
    assert data["generated"] == "答: 几度?"  # it repeats what it is sent
    assert model.bodies[-1]["model"] == "qwen"
    assert model.bodies[-1]["messages"] == [{"role": "user", "content": "答: 几度?"}]


def test_a_generator_needs_a_prompt():
    """「继承前序阶段的输出 (必须包含 `prompt` 字段)」: the error says which operator writes it."""
    with pytest.raises(ConfigError, match="QAPromptor"):
        OpenAIGenerator(lambda prompt: "八十度。")({"query": "几度?"})


def test_the_whole_flow(docs):
    """「完整数据流示例」: from a question with its references to an answer, all fields one after the
    other.
    """
    data: Any = {
        "query": "绿茶用几度的水?",
        "question": {"id": "q001", "references": ["八十度"]},
        "references": ["八十度"],
    }
    retriever = ChromaRetriever(docs, topk=3)
    flow = (
        retriever
        >> RerankOperator(lambda query, documents, top_n: [(0, 0.9), (1, 0.5)])
        >> RefinerOperator()
    )
    done: Any = (flow >> QAPromptor() >> OpenAIGenerator(lambda prompt: "八十度。"))(data)
    assert list(done) == [
        *data,
        "retrieval_results",
        "retrieval_docs",
        "retrieval_time",
        "reranking_results",
        "reranking_docs",
        "reranking_time",
        "refining_results",
        "refining_docs",
        "refining_time",
        "prompt",
        "generated",
        "generation_time",
    ]
    assert len(done["reranking_docs"]) == 2


def test_failures_are_raised(data):
    """No stage becomes an empty list in silence: what a retriever, a reranker or a model raises is
    told.
    """

    def broken(*args, **kwargs):
        message = "the server is gone"
        raise OSError(message)

    with pytest.raises(RetrievalError, match="gone"):
        RetrieveOperator(broken)({"query": "茶"})
    with pytest.raises(RetrievalError, match="gone"):
        RerankOperator(broken)(data)
    with pytest.raises(GenerationError, match="gone"):
        OpenAIGenerator(broken)({"prompt": "茶?"})
