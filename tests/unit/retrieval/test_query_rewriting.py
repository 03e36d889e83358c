"""MultiQueryRetriever and QueryRewriter: one question in several ways."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DocNode, Document, HttpChatModel, Retriever
from lazyrag.errors import ConfigError, GenerationError, RetrievalError
from lazyrag.models import CallableChatModel, ChatOptions
from lazyrag.ranking.fusion import rrf
from lazyrag.retrieval import MultiQueryRetriever, QueryRewriter
from lazyrag.retrieval.query_rewriting import PROMPTS, read_queries
from tests.model_server import answered, failed

pytestmark = pytest.mark.usefixtures("quick_endpoints")

TEXTS = {
    "a": "green tea from Wuyi",
    "b": "matcha is ground tea",
    "c": "coffee beans",
    "d": "oolong leaves",
    "e": "茶",
}


@pytest.fixture
def bm25():
    """A retriever over five short texts."""
    docs = Document()
    docs.add_texts(TEXTS)
    return Retriever(docs, "FineChunk", "bm25")


def told(nodes):
    """What a result comes down to."""
    return [(node.uid, node.score) for node in nodes]


class TestFusion:
    """What is asked, and what comes of it."""

    def test_the_result_is_the_queries_results_fused(self, bm25):
        """RRF over what the retriever finds for the question and for each rewritten one."""
        retriever = MultiQueryRetriever(bm25, lambda query: ["matcha", "oolong leaves"])
        expected = rrf(
            [told(bm25(query, topk=50)) for query in ("green tea", "matcha", "oolong leaves")]
        )
        assert told(retriever("green tea")) == expected
        assert len(expected) == 3

    def test_the_question_itself_is_always_asked(self, bm25):
        """Also where the rewriting gives nothing, or only blank texts."""
        for given_ in ([], ["", "  "]):
            retriever = MultiQueryRetriever(bm25, lambda query, given_=given_: given_)
            assert retriever.queries("tea") == ["tea"]
            assert [node.uid for node in retriever("tea")] == [node.uid for node in bm25("tea")]

    def test_at_most_n_others_each_once(self, bm25):
        """Repetitions, also of the question, do not count; the rest is left out."""
        retriever = MultiQueryRetriever(bm25, lambda query: ["TEA ", "x", "x", " y", "z", "w"], n=3)
        assert retriever.queries("tea") == ["tea", "x", " y", "z"]

    def test_a_blank_question_is_not_rewritten(self, bm25):
        """Nobody is asked about white space."""

        def never(query):
            raise AssertionError

        retriever = MultiQueryRetriever(bm25, never)
        assert retriever(" ") == []
        assert retriever.trace("\n").nodes == ()

    def test_filters_topk_and_fusion(self, bm25):
        """They hold for every query; topk bounds the fused result."""
        retriever = MultiQueryRetriever(
            bm25, lambda query: ["coffee", "oolong"], topk=2, fusion_method="weighted"
        )
        assert len(retriever("tea")) == 2
        assert [node.path for node in retriever("tea", {"file_name": ["c", "e"]}, 5)] == ["c"]

    def test_the_trace_names_the_queries(self, bm25):
        """A stage of queries over one leaf for each; shares add up; the nodes are those of a
        call.
        """
        retriever = MultiQueryRetriever(bm25, lambda query: ["matcha"])
        last = retriever.trace("green tea")
        [stage] = last.inputs
        assert (stage.kind, stage.settings["queries"]) == ("queries", ["green tea", "matcha"])
        assert told(last.nodes) == told(retriever("green tea"))
        assert [math.fsum(stage.contributions[node.uid]) for node in stage.nodes] == [
            node.score for node in stage.nodes
        ]
        assert [hit.uid for hit in retriever.explain("green tea")] == [
            node.uid for node in last.nodes
        ]
        coffee = next(node for node in bm25("coffee"))
        assert retriever.why_not(coffee.uid, "green tea").stage == "rrf"

    @pytest.mark.parametrize("returned", ["tea", None, [3], {"a": 1}])
    def test_what_is_no_list_of_texts_is_refused(self, bm25, returned):
        """The rewriting is not guessed at."""
        with pytest.raises(RetrievalError, match="list of texts"):
            MultiQueryRetriever(bm25, lambda query: returned)("tea")

    def test_an_error_of_the_rewriting_is_told(self, bm25):
        """Nothing is left out in silence: the error says what raised, and for which question."""

        def broken(query):
            raise OSError("no dictionary")

        for asked in (MultiQueryRetriever(bm25, broken), MultiQueryRetriever(bm25, broken).trace):
            with pytest.raises(
                RetrievalError, match="rewriting of 'tea' raised OSError: no dictionary"
            ) as told:
                asked("tea")
            assert isinstance(told.value.__cause__, OSError)

    def test_what_is_refused(self, bm25):
        """Weights, impossible numbers, what is no retriever or no rewriting."""
        for message, kwargs in (
            ("no weights", {"weights": [1, 2]}),
            ("n must be", {"n": 0}),
            ("topk", {"topk": 0}),
            ("depth", {"depth": 0}),
            ("Did you mean 'topk'", {"top_k": 1}),
        ):
            with pytest.raises(ConfigError, match=message):
                MultiQueryRetriever(bm25, lambda query: [], **kwargs)
        for keywords in (
            {"normalise": "theoretical", "lowest": [-1, 0]},
            {"normalise": ["max", "max"]},
            {"normalise": ["max", "max", "max"]},
        ):
            with pytest.raises(ConfigError):
                MultiQueryRetriever(bm25, lambda query: [], fusion_method="weighted", **keywords)
        assert MultiQueryRetriever(
            bm25, lambda query: ["x", "y"], fusion_method="weighted", normalise="max"
        )("tea")
        with pytest.raises(ConfigError, match="rewrite"):
            MultiQueryRetriever(bm25, "rephrase")
        with pytest.raises(ConfigError, match="MultiQueryRetriever"):
            MultiQueryRetriever(3, lambda query: [])
        with pytest.raises(ConfigError, match="query must be a string"):
            MultiQueryRetriever(bm25, lambda query: [])(3)


class TestModel:
    """Rewriting by a model behind an OpenAI-compatible endpoint."""

    @pytest.fixture
    def chat(self, model):
        """The model behind the local server, which answers with two other wordings."""
        answer = {"role": "assistant", "content": "1. matcha\n2. oolong leaves"}
        rewritten = answered(
            {"choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
        )
        model.faults = [rewritten]
        with HttpChatModel(model.url, "rewriter") as one:
            yield one

    def test_a_chat_model_rewrites(self, bm25, chat, model):
        """It is asked once, with the question in the prompt; its lines are searched for beside the
        question.
        """
        retriever = MultiQueryRetriever(bm25, chat, n=2)
        expected = rrf(
            [told(bm25(query, topk=50)) for query in ("green tea", "matcha", "oolong leaves")]
        )
        assert told(retriever("green tea")) == expected
        [body] = model.bodies
        prompt = body["messages"][-1]["content"]
        assert "Question: green tea" in prompt
        assert "Write 2 other ways" in prompt

    def test_a_failing_model_is_an_error(self, bm25, chat, model):
        """The question is not asked alone in silence."""
        model.faults = [failed(400, "no such model")] * 9
        with pytest.raises(GenerationError, match="no such model"):
            MultiQueryRetriever(bm25, chat)("green tea")

    def test_an_answer_without_a_question_is_an_error(self, bm25):
        """What a model says instead is told."""
        for answer in ("", "...", "Here they are:", "<think>hm"):
            rewriter = QueryRewriter(lambda prompt, answer=answer: answer)
            with pytest.raises(GenerationError, match="cannot be used"):
                MultiQueryRetriever(bm25, rewriter)("green tea")


class TestRewriter:
    """Prompts and answers."""

    @pytest.mark.parametrize("task", ["rephrase", "split", "passage"])
    def test_the_prompt_is_in_the_questions_language(self, task):
        """Chinese for a Chinese question, English for others, or as asked for."""
        seen = []
        model = CallableChatModel(lambda prompt: seen.append(prompt) or "茶")
        for language, query in (
            ("auto", "怎么泡绿茶？"),
            ("auto", "How hot?"),
            ("zh", "How hot?"),
            ("en", "怎么泡？"),
        ):
            QueryRewriter(model, task, language=language)(query)
        assert ["问题：怎么泡绿茶？" in seen[0], "Question: How hot?" in seen[1]] == [True, True]
        assert ["问题：How hot?" in seen[2], "Question: 怎么泡？" in seen[3]] == [True, True]
        assert {
            (one, language) for one in ("rephrase", "split", "passage") for language in ("en", "zh")
        } == set(PROMPTS)

    def test_a_passage_is_one_text(self):
        """HyDE: lines are no list."""
        rewriter = QueryRewriter(
            lambda prompt: "<think>so</think>Tea is hot.\nVery hot.", "passage"
        )
        assert rewriter("How hot?") == ["Tea is hot.\nVery hot."]

    def test_a_prompt_of_ones_own(self):
        """It goes before the task's, with {query} and {n}; braces of the question are text."""
        seen = []
        rewriter = QueryRewriter(
            lambda prompt: seen.append(prompt) or "x", n=4, prompt="{n} of {query} {{}}"
        )
        rewriter("{tea}")
        assert seen == ["4 of {tea} {}"]

    def test_options_reach_the_model(self):
        """Such as the temperature."""
        seen = {}

        def model(prompt, temperature=None):
            seen["temperature"] = temperature
            return "x"

        QueryRewriter(model, options=ChatOptions(temperature=0.5))("tea")
        assert seen == {"temperature": 0.5}

    def test_what_is_refused(self):
        """Unknown tasks and languages, prompts without the question, n below 1."""
        for message, kwargs in (
            ("Did you mean 'split'", {"task": "splits"}),
            ("language", {"language": "fr"}),
            ("must have the field {query}", {"prompt": "tea"}),
            ("unknown field .text.", {"prompt": "{query} {text}"}),
            ("for braces", {"prompt": "{query"}),
            ("for braces", {"prompt": 3}),
            ("n must be", {"n": 0}),
            ("options", {"options": {"temperature": 1}}),
            ("Did you mean 'task'", {"tasks": "split"}),
        ):
            with pytest.raises(ConfigError, match=message):
                QueryRewriter(lambda prompt: "x", **kwargs)
        with pytest.raises(ConfigError, match="chat model"):
            QueryRewriter(3)

    @pytest.mark.parametrize(
        "answer",
        [
            "How hot?\nWhich water?",
            "1. How hot?\n2. Which water?",
            "1) How hot?\n\n2) Which water?\n\nLet me know if you need more!",
            "- How hot?\n* Which water?",
            "① How hot?\n② Which water?",
            "Here are two:\n\nHow hot?\nWhich water?",
            'Sure:\n"How hot?"\n"Which water?"',
            "Q1: How hot?\nQ2: Which water?",
            "Query: How hot?\nquestion 2：Which water?",
            "**How hot?**\n**Which water?**",
            '["How hot?", "Which water?"]',
            '```json\n{"queries": ["How hot?", "Which water?"]}\n```',
            '[{"query": "How hot?"}, {"query": "Which water?"}]',
            "```\nHow hot?\nWhich water?\n```",
            "<think>hm, 1. maybe</think>\nHow hot?\nHOW  HOT?\nWhich water?",
            '[{"query": "How hot?", "why": "heat"}, {"query": "Which water?", "why": "taste"}]',
            '[{"id": 1, "question": "How hot?"}, {"id": 2, "text": "Which water?"}]',
            '{"q1": "How hot?", "q2": "Which water?"}',
            '{"1": "How hot?", "2": "Which water?"}',
            '{"alternative_1": "How hot?", "alternative_2": "Which water?"}',
            'Sure, ["How hot?", "Which water?"]',
            'Here: [\n  "How hot?",\n  "Which water?"\n]\nEnjoy.',
            '{"query_1": "How hot?", "reason": "heat", "query_2": "Which water?"}',
            '{"question": "tea?", "queries": ["How hot?", "Which water?"]}',
            '{"queries": {"q1": "How hot?", "q2": "Which water?"}}',
            '[["How hot?"], ["Which water?"]]',
            '[{"text": "How hot?", "tags": ["heat"]}, {"text": "Which water?", "tags": ["taste"]}]',
            "Sure!\nHow hot?\nWhich water?\nI hope this helps!",
            "Certainly, here are some ways to put it.\nHow hot?\nWhich water?\nLet me know if you need more.",
        ],
    )
    def test_lists_in_any_shape_are_read(self, answer):
        """Numbers, bullets, quotes, JSON, with prose around."""
        assert read_queries(answer) == ["How hot?", "Which water?"]

    @pytest.mark.parametrize(
        "query",
        [
            "FAQ: opening hours",
            "老师问：水温多少",
            "IQ: how is it measured?",
            "Is there a Q: drive?",
            "我查询：余额",
            "Sure-fire ways to brew tea",
            "OK button does nothing",
            "I'm looking for warm tea",
            "I cannot log in, what now?",
            "当然节气是哪天",
            "如果水太热怎么办？",
            "How hot [1] is the water?",
            "How do I sort ['b', 'a'] in Python?",
            "[1] How hot is the water?",
            "What does {'x': 'y'} mean in a dictionary?",
        ],
    )
    def test_what_only_looks_like_a_label_stays(self, query):
        """A question is asked as the model wrote it: alone, in a list, in JSON."""
        assert read_queries(query) == [query]
        assert read_queries(f"1. {query}") == [query]
        assert read_queries(json.dumps([query])) == [query]

    @pytest.mark.parametrize(
        "answer",
        [
            "I'm sorry, but I can't help with that.",
            "I cannot rephrase this question.",
            "Sure! As an AI, I have no opinion.",
            "抱歉，我无法回答这个问题。",
            "我无法提供这类信息",
            '{"error": {"code": 3}}',
            '{"queries": [], "note": "none", "more": "none"}',
            '{"kind": "none", "code": "3"}',
            '{"error": "rate limit"}',
            '{"queries": ["How h',
            "Certainly!",
            "Let me know if you need more.",
        ],
    )
    def test_what_is_no_list_of_questions_is_an_error(self, answer):
        """Refusals, politeness alone and JSON of other kinds are not searched for."""
        with pytest.raises(GenerationError, match="cannot be used"):
            QueryRewriter(lambda prompt: answer)("tea?")

    def test_the_question_itself_takes_no_place(self):
        """What the model repeats is asked anyway; alone, it is what the model gave."""
        rewriter = QueryRewriter(lambda prompt: "Tea?\nHow hot?\nWhich water?", n=2)
        assert rewriter("tea?") == ["How hot?", "Which water?"]
        assert QueryRewriter(lambda prompt: "Tea?", "split", n=2)("tea?") == ["Tea?"]

    def test_chinese_answers_are_read(self):
        """Marks of Chinese lists are no part of a question."""
        assert read_queries("好的，以下是：\n1、水温多少？\n2、用什么水？") == [
            "水温多少？",
            "用什么水？",
        ]
        assert read_queries("问题1：水温多少？\n问题2：用什么水？") == ["水温多少？", "用什么水？"]

    def test_what_was_cut_is_left_out(self):
        """A model that was stopped at its limit has not finished its last question."""
        assert read_queries("1. How hot?\n2. Which wa", is_cut=True) == ["How hot?"]

    @given(
        st.lists(
            st.text(st.sampled_from("abc xyz茶水"), min_size=1).filter(str.strip),
            min_size=1,
            max_size=5,
        )
    )
    def test_plain_json_comes_back(self, queries):
        """What a model writes as JSON is what is asked, each once."""
        expected = list(
            {
                " ".join(one.split()).casefold(): " ".join(one.split()) for one in reversed(queries)
            }.values()
        )
        assert sorted(read_queries(json.dumps(queries))) == sorted(expected)


def test_a_callable_retriever_is_asked_for_each_query():
    """Any retriever of nodes goes."""
    asked = []

    def retriever(query, filters=None, topk=None):
        asked.append((query, topk))
        return [DocNode(text=query, uid=query)]

    found = MultiQueryRetriever(retriever, lambda query: ["y"], depth=7)("x")
    assert [node.uid for node in found] == ["x", "y"]
    assert asked == [("x", 7), ("y", 7)]
