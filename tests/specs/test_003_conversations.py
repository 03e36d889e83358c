"""Conversations of `RAGPipeline`, beyond spec 003: a follow-up is searched as a query that is clear
without them.
"""

from __future__ import annotations

import asyncio
import json

import pytest

import lazyrag
from lazyrag.errors import AnswerWarning, ConfigError, GenerationError
from lazyrag.models import ChatOptions
from tests.model_server import PATIENCE_S, answered, failed, piece, streamed

pytestmark = pytest.mark.usefixtures("quick_endpoints")

PAGES = {
    "boat-summer.txt": "In summer the boat lies at the jetty. Its cover is taken off in May.",
    "boat-winter.txt": "In winter the boat stands on trestles in the shed, and its tank is drained.",
    "garden-winter.txt": "And in winter? In winter the garden rests, and in winter the roses are covered.",
    "船-夏天.txt": "夏天船停在码头，五月取下船罩。",
    "船-冬天.txt": "船在寒冬时节放进棚子里的架子上，油箱要放空。",
    "花园-冬天.txt": "那冬天呢？冬天花园休息，冬天玫瑰要盖好。",
}
TALKS = {
    "en": (
        [
            {"role": "user", "content": "Where is the boat in summer?"},
            {"role": "assistant", "content": "At the jetty [1]."},
        ],
        "And in winter?",
        "Where does the boat stand in winter?",
        "boat-winter.txt",
    ),
    "zh": (
        [
            {"role": "user", "content": "夏天船停在哪里？"},
            {"role": "assistant", "content": "停在码头[1]。"},
        ],
        "那冬天呢？",
        "寒冬时节船放在哪里？",
        "船-冬天.txt",
    ),
}
HISTORY, FOLLOW_UP, STANDALONE, PAGE = TALKS["en"]
ANSWER = "There it is [1]."


@pytest.fixture
def docs():
    """Pages of a boat and of a garden, for summer and winter."""
    docs = lazyrag.Document()
    docs.add_texts(PAGES)
    return docs


@pytest.fixture
def pipeline(docs, model):
    """Over them, with a chat model at a server."""
    with lazyrag.HttpChatModel(model.url, "m", timeout_s=PATIENCE_S, retries=0) as chat:
        yield lazyrag.RAGPipeline.over(docs, "FineChunk", generator=chat)


def says(text):
    """An answer of the server."""
    return answered(
        {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}
    )


def script(model, standalone=STANDALONE):
    """The query, then the answer."""
    model.faults += [says(standalone), says(ANSWER)]


@pytest.mark.parametrize("language", TALKS)
def test_a_follow_up_finds_what_it_is_about(pipeline, model, language):
    """“And in winter?” after a question about a boat finds the boat's winter page, and alone the
    garden's.
    """
    history, follow_up, standalone, page = TALKS[language]
    assert pipeline.sync.retrieve(follow_up)[0].source.removesuffix(".txt") in (
        "garden-winter",
        "花园-冬天",
    )
    script(model, standalone)
    answer = pipeline.sync.answer(follow_up, history=history)
    assert answer.citations[0].source == page
    assert (answer.query, answer.text, answer.problems) == (follow_up, ANSWER, ())
    assert answer.context.metadata["search_query"] == standalone
    assert {"condense", "retrieve", "generate"} <= answer.metadata["seconds"].keys()


@pytest.mark.parametrize(
    ("language", "word"), [("en", "continue"), ("en", "Please go on."), ("zh", "请继续。")]
)
def test_continue_has_the_passages_of_the_question_before(pipeline, model, language, word):
    """In the same order, so with the same numbers; also after several of them, and of a follow-up
    question, which is written anew.
    """
    history, follow_up, standalone, _ = TALKS[language]
    expected = pipeline.sync.retrieve_with_context(history[0]["content"])
    model.faults += [says(ANSWER)]
    again = [*history, {"role": "user", "content": word}, {"role": "assistant", "content": "..."}]
    answer = pipeline.sync.answer(word, history=again)
    assert answer.context.sources.context_ids == expected.sources.context_ids
    assert answer.context.metadata["search_query"] == history[0]["content"]
    script(model, standalone)
    turns = [*history, {"role": "user", "content": follow_up}]
    answer = pipeline.sync.answer(word, history=turns)
    assert answer.context.metadata["search_query"] == standalone


@pytest.mark.parametrize("language", TALKS)
def test_the_model_reads_the_history(pipeline, model, language):
    """First to write the query, in the question's language; then between the system message and the
    context.
    """
    history, follow_up, standalone, _ = TALKS[language]
    script(model, standalone)
    answer = pipeline.sync.answer(follow_up, history=history)
    condensing, answering = (body["messages"] for body in model.bodies)
    assert all(message["content"] in condensing[0]["content"] for message in history)
    assert condensing[0]["content"].endswith(follow_up)
    assert condensing[0]["content"].startswith(
        {"en": "Rewrite the last question", "zh": "请为搜索引擎改写"}[language]
    )
    assert [message["role"] for message in answering] == ["system", "user", "assistant", "user"]
    assert answering[1] == history[0]
    assert answering[2]["content"] == {"en": "At the jetty.", "zh": "停在码头。"}[language]
    assert answering[3]["content"] == answer.context.context
    assert follow_up in answer.context.context


def test_numbers_of_earlier_answers_do_not_reach_the_model(pipeline, model):
    """They cite other sources than the context's; code and brackets of the user stay."""
    earlier = "On trestles [1][2], in `rows[1]` 【3】\n- with its tank [4, 5] drained"
    script(model)
    talk = [{"role": "user", "content": "What of [1]?"}, {"role": "assistant", "content": earlier}]
    answer = pipeline.sync.answer(FOLLOW_UP, history=talk)
    sent = [message["content"] for message in model.bodies[1]["messages"][1:3]]
    assert sent == ["What of [1]?", "On trestles, in `rows[1]`\n- with its tank drained"]
    assert answer.context.metadata["history"] == talk


def test_without_a_history_the_prompt_is_that_of_the_specification(pipeline, model):
    """「基于以下参考资料回答问题：… 问题：{query}」: one request, the same with an empty history as without one."""
    for arguments in ({}, {"history": None}, {"history": []}):
        model.faults.append(says(ANSWER))
        pipeline.sync.answer("冬天船放在哪里？", **arguments)
    first, *others = model.bodies
    assert len(others) == 2
    assert all(body == first for body in others)
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][1]["content"].startswith(
        "基于以下参考资料回答问题：\n\n[资料1] 来源："
    )


def test_without_a_chat_model_the_question_stands_as_it_is(docs):
    """A pipeline without a generator searches the question itself."""
    context = lazyrag.RAGPipeline.over(docs, "FineChunk").sync.retrieve_with_context(
        FOLLOW_UP, history=HISTORY
    )
    assert context.metadata["search_query"] == FOLLOW_UP
    assert context.metadata["history"] == HISTORY
    assert context.sources[0].source == "garden-winter.txt"


def test_a_context_is_of_the_query_too(pipeline, model):
    """`retrieve_with_context` takes a history as `answer` does."""
    model.faults.append(says(f"Standalone question: “{STANDALONE}”"))
    context = pipeline.sync.retrieve_with_context(FOLLOW_UP, history=HISTORY)
    assert context.sources[0].source == PAGE
    assert context.metadata["search_query"] == STANDALONE


def test_the_reranker_reads_the_query(docs, model):
    """Which is clear without the conversation, as the question is not."""
    asked = []

    def rerank(query, documents, top_n):
        asked.append(query)
        return [(at, 1.0) for at in range(len(documents))]

    with lazyrag.HttpChatModel(model.url, "m", retries=0) as chat:
        script(model)
        lazyrag.RAGPipeline.over(docs, "FineChunk", generator=chat, reranker=rerank).sync.answer(
            FOLLOW_UP, history=HISTORY
        )
    assert asked == [STANDALONE]


def test_a_plain_function_reads_one_text(docs):
    """With the history before the context, each message after its role."""
    prompts = []

    def chat(prompt):
        prompts.append(prompt)
        return STANDALONE if len(prompts) == 1 else ANSWER

    answer = lazyrag.RAGPipeline.over(docs, "FineChunk", generator=chat).sync.answer(
        FOLLOW_UP, history=HISTORY
    )
    assert answer.citations[0].source == PAGE
    talk = "user: Where is the boat in summer?\n\nassistant: At the jetty."
    assert prompts[1].endswith(f"\n\n{talk}\n\n{answer.context.context}")


def test_it_streams(pipeline, model):
    """In event loops and without one; the query is written before the first piece."""
    for _ in range(2):
        pieces = [piece("There "), piece("it is [1]."), piece("", finish_reason="stop"), "[DONE]"]
        model.faults += [says(STANDALONE), streamed(*pieces)]

    async def collected():
        return [delta async for delta in pipeline.astream(FOLLOW_UP, history=HISTORY)]

    for deltas in (
        list(pipeline.sync.stream(FOLLOW_UP, history=HISTORY)),
        asyncio.run(collected()),
    ):
        assert "".join(delta.text for delta in deltas) == ANSWER
        assert deltas[-1].answer.citations[0].source == PAGE
    assert [body.get("stream", False) for body in model.bodies] == [False, True] * 2


def test_batches_have_a_history_for_each_question(pipeline, model):
    """Or None; a list of another length is refused."""
    script(model)
    model.faults.append(says(ANSWER))
    answers = pipeline.sync.batch_answer(
        [FOLLOW_UP, "Which roses are covered?"], histories=[HISTORY, None], concurrency=1
    )
    assert [answer.citations[0].source for answer in answers] == [PAGE, "garden-winter.txt"]
    script(model)
    [answer] = asyncio.run(pipeline.batch_answer([FOLLOW_UP], histories=[HISTORY]))
    assert answer.citations[0].source == PAGE
    with pytest.raises(ConfigError, match="each of the 1 queries"):
        pipeline.sync.batch_answer([FOLLOW_UP], histories=[HISTORY, None])


@pytest.mark.parametrize("unusable", ["I'm sorry, I cannot help with that.", " ", "<think>hm"])
def test_a_query_that_is_unusable_is_a_problem_of_the_answer(pipeline, model, unusable):
    """The question is searched as it is, and the answer says so."""
    script(model, unusable)
    with pytest.warns(AnswerWarning, match="searched as it is"):
        answer = pipeline.sync.answer(FOLLOW_UP, history=HISTORY)
    assert answer.context.metadata["search_query"] == FOLLOW_UP
    assert answer.context.metadata["problems"] == [*answer.problems]
    assert len(answer.problems) == 1


def test_a_model_that_fails_costs_the_query_alone(pipeline, model):
    """The question is searched as it is; an answer fails only if the model fails there, too."""
    model.faults.append(failed(400))
    context = pipeline.sync.retrieve_with_context(FOLLOW_UP, history=HISTORY)
    assert context.metadata["search_query"] == FOLLOW_UP
    [problem] = context.metadata["problems"]
    assert problem.startswith("The question was searched as it is. The model failed: ")
    model.faults += [failed(400), failed(400)]
    with pytest.raises(GenerationError) as raised:
        pipeline.sync.answer(FOLLOW_UP, history=HISTORY)
    assert raised.value.context.metadata["search_query"] == FOLLOW_UP


def test_the_query_is_written_with_the_options_of_the_generator(docs, model):
    """But for the number of candidates, and what is about the answer's form."""
    options = ChatOptions(
        n=2, temperature=0.5, extra={"top_k": 7}, logprobs=True, json_schema={"type": "object"}
    )
    with lazyrag.HttpChatModel(model.url, "m", options=ChatOptions(seed=3), retries=0) as chat:
        for generator in (lazyrag.Generator(chat, n=2, options=options), chat):
            model.faults.append(says(STANDALONE))
            pipeline = lazyrag.RAGPipeline.over(docs, "FineChunk", generator=generator)
            pipeline.sync.retrieve_with_context(FOLLOW_UP, history=HISTORY)
    own, models_own = (
        {name: body[name] for name in body if name not in ("model", "messages")}
        for body in model.bodies
    )
    assert own == {"temperature": 0.5, "top_k": 7}
    assert models_own == {"seed": 3}


@pytest.mark.parametrize(
    "history",
    [
        "Where is the boat?",
        [("Where is the boat?", "At the jetty.")],
        [{"role": "system", "content": "Be brief."}],
        [{"role": "user"}],
        [{"role": "user", "content": ""}],
        7,
    ],
)
def test_what_is_no_conversation_is_refused(pipeline, model, history):
    """Before anything is asked: a text, pairs, system messages."""
    with pytest.raises(ConfigError, match=r"^(history|A message) must "):
        pipeline.sync.answer(FOLLOW_UP, history=history)
    assert model.bodies == []


def test_a_context_of_a_conversation_can_be_stored(pipeline, model):
    """Its history is plain data."""
    script(model)
    answer = pipeline.sync.answer(
        FOLLOW_UP, history=[lazyrag.models.Message(**one) for one in HISTORY]
    )
    assert json.loads(json.dumps(answer.context.metadata["history"])) == HISTORY
