"""Answers of `RAGPipeline` with a real local server: whole, in pieces, malformed, failing,
cancelled, many at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import warnings

import pytest

from lazyrag import (
    Answer,
    BM25Retriever,
    CitationManager,
    ContextBuilder,
    Document,
    Generator,
    Hit,
    HttpChatModel,
    RAGContext,
    RAGPipeline,
)
from lazyrag.errors import AnswerWarning, ConfigError, GenerationError, RetrievalError
from lazyrag.generation import AnswerDelta
from lazyrag.models import ChatOptions
from lazyrag.pipeline.run import NOT_FOUND
from tests.model_server import PATIENCE_S, RawServer, answered, event, failed, head, piece, streamed

pytestmark = pytest.mark.usefixtures("quick_endpoints")

TEXTS = {
    "green.txt": "Green tea wants water of 80 degrees. It is steamed in spring.",
    "black.txt": "Black tea wants boiling water.",
}
QUESTION = "How hot is the water for green tea?"
CHOICE = {"index": 0, "message": {"content": "Hot [1]."}, "finish_reason": "stop"}


@pytest.fixture
def docs():
    """Two documents."""
    docs = Document()
    docs.add_texts(TEXTS)
    return docs


@pytest.fixture
def chat(model):
    """A chat model at the server."""
    with HttpChatModel(model.url, "m", timeout_s=PATIENCE_S, retries=0) as one:
        yield one


@pytest.fixture
def pipeline(docs, chat):
    """Over both."""
    return RAGPipeline.over(docs, "FineChunk", generator=chat)


def says(*texts, finish_reason="stop"):
    """A server's answer with candidates."""
    choices = [
        {"index": at, "message": {"content": text}, "finish_reason": finish_reason}
        for at, text in enumerate(texts)
    ]
    return answered({"choices": choices})


def says_in_pieces(*pieces):
    """A server's stream."""
    return streamed(*map(piece, pieces), piece("", finish_reason="stop"), "[DONE]")


async def collected(deltas):
    """All pieces."""
    return [delta async for delta in deltas]


class TestAnswer:
    """`answer`."""

    def test_an_answer_has_its_citations(self, pipeline, model):
        """With the file, the node and the sentence that the answer rests on."""
        model.faults.append(says("Of 80 degrees [1]."))
        answer = pipeline.sync.answer(QUESTION)
        assert isinstance(answer, Answer)
        assert (answer.query, answer.text, answer.problems) == (QUESTION, "Of 80 degrees [1].", ())
        [citation] = answer.citations
        assert (citation.index, citation.source) == (1, "green.txt")
        assert citation.text_snippet == "Green tea wants water of 80 degrees."
        assert citation.uid == answer.context.sources[0].id

    def test_the_model_reads_the_context(self, pipeline, model):
        """As the user's message, behind the system's."""
        model.faults.append(says("So [1]."))
        answer = pipeline.sync.answer(QUESTION)
        messages = model.bodies[0]["messages"]
        assert [message["role"] for message in messages] == ["system", "user"]
        assert messages[1]["content"] == answer.context.context
        assert answer.context.context == pipeline.sync.retrieve_with_context(QUESTION).context

    def test_seconds_of_every_stage(self, pipeline, model):
        """Retrieval, context and generation."""
        model.faults.append(says("So [1]."))
        assert set(pipeline.sync.answer(QUESTION).metadata["seconds"]) == {
            "retrieve",
            "hits",
            "context",
            "generate",
        }

    def test_candidates_and_confidence(self, docs, chat, model):
        """The candidate that agrees most with the others, and how far."""
        model.faults.append(says("Of 80 degrees [1].", "Boiling.", "Of 80 degrees [1]."))
        answer = RAGPipeline.over(docs, "FineChunk", generator=Generator(chat, n=3)).sync.answer(
            QUESTION
        )
        assert answer.text == "Of 80 degrees [1]."
        assert answer.confidence == answer.generation.confidence == pytest.approx(0.5)
        assert len(answer.generation.multi_responses) == 3

    def test_a_bare_callable_answers(self, docs):
        """It gets one text."""
        seen = []
        pipeline = RAGPipeline.over(
            docs, "FineChunk", generator=lambda text: seen.append(text) or "So [1]."
        )
        assert pipeline.sync.answer(QUESTION).text == "So [1]."
        assert "Green tea wants water" in seen[0]

    @pytest.mark.parametrize(
        ("question", "language"), [("zebra?", "en"), ("斑马？", "zh"), ("  ", "en")]
    )
    def test_where_nothing_is_found_the_model_is_not_asked(
        self, pipeline, model, question, language
    ):
        """The answer says so, in the language of the question."""
        answer = pipeline.sync.answer(question)
        assert (answer.text, answer.citations, answer.problems) == (NOT_FOUND[language], (), ())
        assert not answer.context.sources
        assert model.requests == []
        assert [delta.text for delta in pipeline.sync.stream(question)] == [NOT_FOUND[language], ""]

    def test_without_a_generator_the_answer_is_quoted(self, docs):
        """With its exact words as the citation, complete and in pieces."""
        pipeline = RAGPipeline.over(docs, "FineChunk")
        answer = pipeline.sync.answer(QUESTION)
        words = "Green tea wants water of 80 degrees."
        assert answer.text == f"“{words}” [1]"
        assert answer.citations[0].source == "green.txt"
        assert answer.citations[0].text_snippet.startswith(words)
        [quote, *_] = answer.generation.metadata["quotes"]
        assert (
            answer.context.sources[quote["index"] - 1].text[slice(*quote["span"])]
            == (quote["text"])
        )
        assert not answer.weak
        pieces = asyncio.run(collected(pipeline.astream(QUESTION)))
        assert "".join(piece.text for piece in pieces) == answer.text
        assert pieces[-1].answer.citations == answer.citations

    def test_without_a_generator_neighbours_of_the_best_passages_are_read(self):
        """The answer is in the passage behind the only hit."""
        docs = Document()
        sentences = "The mill of Shimen has a wheel. The wheel was built in 1869. It is old."
        docs.add_texts({"mill.txt": sentences})
        docs.create_node_group("sentence", transform="SentenceWindow")
        pipeline = RAGPipeline.over(docs, "sentence")
        answer = pipeline.sync.answer("When was the wheel of the mill of Shimen built?", top_k=1)
        assert "1869" in answer.text
        assert len(pipeline.sync.retrieve_with_context("the mill", top_k=1).sources) == 1

    def test_a_question_that_the_library_does_not_answer_is_weak(self, pipeline, model):
        """The model is called all the same, unless the pipeline abstains."""
        model.faults = [answered({"choices": [CHOICE]})]
        question = "Which tea did Marco Polo sell in Venice?"
        assert pipeline.sync.answer(question).weak
        assert len(model.requests) == 1

    def test_abstaining_quotes_what_is_closest_without_the_model(self, docs, chat, model):
        """Below the probability; also in pieces. Other questions reach the model."""
        pipeline = RAGPipeline.over(docs, "FineChunk", generator=chat, abstain_at=0.5)
        question = "Which tea did Marco Polo sell in Venice?"
        answer = pipeline.sync.answer(question)
        assert answer.weak
        assert answer.text.startswith("No answer found; the closest passages:")
        assert [delta.text for delta in pipeline.sync.stream(question)] == [answer.text, ""]
        assert model.requests == []
        model.faults = [answered({"choices": [CHOICE]})]
        assert pipeline.sync.answer(QUESTION).text == "Hot [1]."

    @pytest.mark.parametrize("value", [-0.1, 2, "often", True])
    def test_a_probability_to_abstain_at_is_from_0_to_1(self, docs, value):
        """The error names the argument."""
        with pytest.raises(ConfigError, match="abstain_at"):
            RAGPipeline.over(docs, "FineChunk", abstain_at=value)


MALFORMED = {
    "blank": (says(""), "blank"),
    "cut": (says("Of 80 degrees [1], and", finish_reason="length"), "incomplete"),
    "filtered": (says("Of 80 degrees [1].", finish_reason="content_filter"), "content filter"),
    "thoughts only": (says("<think>Tea, so it is hot."), "still thinking"),
    "control characters": (says("Of 80\x00 degrees [1]."), "Control characters"),
    "no such source": (says("Of 80 degrees [99]."), r"\[99\]"),
    "zero": (says("Of 80 degrees [0]."), r"\[0\]"),
    "unclosed": (says("Of 80 degrees [1"), r"\[1"),
    "reversed": (says("Of 80 degrees [3-1]."), r"\[3-1\]"),
    "endless": (says("Of 80 degrees [1-99999999]."), "99999999"),
    "negative": (says("Of 80 degrees [-1]."), r"\[-1\]"),
    "invented quotation": (says('It says "water of ninety nine degrees" [1].'), "ninety nine"),
}


class TestMalformed:
    """Answers that something is wrong with."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("kind", MALFORMED)
    def test_it_is_survived_with_one_warning(self, pipeline, model, kind):
        """The answer is handed out, and what is wrong is warned of once, at the caller's line, and
        told.
        """
        response, told = MALFORMED[kind]
        model.faults.append(response)
        with pytest.warns(AnswerWarning, match=told) as caught:
            answer = pipeline.sync.answer(QUESTION)
        assert [warning.filename for warning in caught] == [__file__]
        assert len(answer.problems) == 1
        assert answer.context.sources

    def test_openais_own_markers_are_read(self, pipeline, model):
        """And those that echo the context's headings."""
        model.faults += [says("Of 80 degrees 【1†source】."), says("Of 80 degrees [Source 1].")]
        for _ in range(2):
            assert [one.index for one in pipeline.sync.answer(QUESTION).citations] == [1]

    def test_warnings_of_a_coroutine_name_its_callers_line(self, pipeline, model):
        """As those of threads do."""
        model.faults.append(says("Of 80 degrees [99]."))

        async def ask():
            return await pipeline.answer(QUESTION)

        with pytest.warns(AnswerWarning, match="99") as caught:
            asyncio.run(ask())
        assert [warning.filename for warning in caught] == [__file__]

    def test_a_stream_warns_as_well(self, pipeline, model):
        """With its last piece."""
        model.faults.append(says_in_pieces("Of 80 ", "degrees [9", "9]."))
        with pytest.warns(AnswerWarning, match="99"):
            pieces = list(pipeline.sync.stream(QUESTION))
        assert pieces[-1].answer.problems


class TestFailures:
    """A model or a retriever that fails."""

    def test_a_model_that_answers_with_garbage_raises_and_keeps_the_context(self, pipeline, model):
        """What was found is not lost."""
        model.faults.append(answered("{not json"))
        with pytest.raises(GenerationError, match="'m'") as caught:
            pipeline.sync.answer(QUESTION)
        assert isinstance(caught.value.context, RAGContext)
        assert caught.value.context.sources[0].source == "green.txt"

    @pytest.mark.parametrize("response", [failed(500), answered({"choices": []}), answered({})])
    def test_other_garbage_raises(self, pipeline, model, response):
        """An error of the model's own."""
        model.faults.append(response)
        with pytest.raises(GenerationError):
            pipeline.sync.answer(QUESTION)

    def test_a_model_that_times_out_raises(self, docs):
        """After the time that it was given."""
        silent = RawServer(b"", hold=True)
        with silent as server, HttpChatModel(server.url, "m", timeout_s=0.1, retries=0) as chat:
            pipeline = RAGPipeline.over(docs, "FineChunk", generator=chat)
            with pytest.raises(GenerationError, match=r"(?i)time") as caught:
                pipeline.sync.answer(QUESTION)
        assert caught.value.context.query == QUESTION

    def test_a_stream_that_is_cut_raises_after_its_pieces(self, pipeline, model):
        """They were handed out, and the context is kept."""
        model.faults.append(streamed(piece("Of 80 "), piece("degrees")))
        pieces = []
        with pytest.raises(GenerationError) as caught:
            pieces.extend(delta.text for delta in _each(pipeline.sync.stream(QUESTION), pieces))
        assert "".join(pieces).startswith("Of 80")
        assert caught.value.context.sources

    def test_a_retriever_that_fails_is_an_error_of_retrieval(self, chat):
        """No model is asked."""

        def fails(query, filters=None, topk=None):
            raise RetrievalError("no index")

        with pytest.raises(RetrievalError, match="no index"):
            RAGPipeline(retriever=fails, generator=chat).sync.answer(QUESTION)


def _each(deltas, pieces):
    """The pieces, each noted at once."""
    for delta in deltas:
        pieces.append(delta.text)
        yield AnswerDelta("")


class TestStream:
    """`astream` and ``sync.stream``."""

    def test_pieces_are_the_answer(self, pipeline, model):
        """Joined; and the last one has the whole, as `answer` gives it."""
        model.faults += [says_in_pieces("Of 80 ", "degrees ", "[1", "].")]
        pieces = asyncio.run(collected(pipeline.astream(QUESTION)))
        assert (
            "".join(delta.text for delta in pieces)
            == pieces[-1].answer.text
            == "Of 80 degrees [1]."
        )
        assert [delta.answer is None for delta in pieces] == [True] * (len(pieces) - 1) + [False]
        model.faults.append(says("Of 80 degrees [1]."))
        whole = pipeline.sync.answer(QUESTION)
        assert pieces[-1].answer.citations == whole.citations
        assert pieces[-1].answer.context.context == whole.context.context
        assert set(pieces[-1].answer.metadata["seconds"]) == {
            "retrieve",
            "hits",
            "context",
            "generate",
        }

    def test_citations_come_as_they_complete(self, pipeline, model):
        """Each source once, before the answer ends; all of them are the answer's."""
        model.faults.append(
            says_in_pieces("Hot [", "1] ", "and [1] ", "boiling [2", "]", ". So ", "it is.")
        )
        pieces = list(pipeline.sync.stream("water for green tea, black tea"))
        when = [
            (at, citation.index) for at, delta in enumerate(pieces) for citation in delta.citations
        ]
        assert [index for _, index in when] == [1, 2]
        assert [at for at, _ in when] == sorted(at for at, _ in when)
        assert when[-1][0] < len(pieces) - 2
        assert (
            tuple(one for delta in pieces for one in delta.citations) == pieces[-1].answer.citations
        )

    def test_a_citation_at_the_very_end_is_not_lost(self, pipeline, model):
        """It comes with the last piece."""
        model.faults.append(says_in_pieces("Hot [1]"))
        pieces = list(pipeline.sync.stream(QUESTION))
        assert [citation.index for delta in pieces for citation in delta.citations] == [1]

    def test_thoughts_are_no_pieces(self, pipeline, model):
        """They stand in the generation's metadata."""
        model.faults.append(says_in_pieces("<think>Tea", ", so.</think>", "Hot [1]."))
        pieces = list(pipeline.sync.stream(QUESTION))
        assert "".join(delta.text for delta in pieces) == "Hot [1]."
        assert pieces[-1].answer.generation.metadata["reasoning"] == "Tea, so."

    def test_leaving_a_stream_ends_the_models_call(self, docs):
        """The server sees the connection go, in loops and in threads."""
        begun = head("text/event-stream") + event(piece("Of 80 degrees [1] and "))
        for kind in ("async", "sync"):
            with (
                RawServer(begun, hold=True) as server,
                HttpChatModel(server.url, "m", retries=0) as chat,
            ):
                pipeline = RAGPipeline.over(docs, "FineChunk", generator=chat)
                if kind == "sync":
                    stream = pipeline.sync.stream(QUESTION)
                    assert next(stream).text
                    stream.close()
                else:
                    asyncio.run(self._first(pipeline))
                assert server.gone.wait(PATIENCE_S)

    async def _first(self, pipeline):
        async with contextlib.aclosing(pipeline.astream(QUESTION)) as deltas:
            async for delta in deltas:
                assert delta.text
                return

    def test_several_candidates_cannot_be_streamed(self, docs, chat):
        """The generator says what to do instead."""
        pipeline = RAGPipeline.over(docs, "FineChunk", generator=Generator(chat, n=2))
        with pytest.raises(ConfigError, match="streaming gives one answer"):
            list(pipeline.sync.stream(QUESTION))


async def until(reached):
    """Wait for a thread's event on a loop."""
    assert await asyncio.to_thread(reached.wait, PATIENCE_S)


class Gate:
    """A stage that waits until it is let through, and tells when it was reached."""

    def __init__(self):
        self.reached = threading.Event()
        self.opened = threading.Event()

    def wait(self):
        """What a stage does."""
        self.reached.set()
        assert self.opened.wait(PATIENCE_S)


class TestCancel:
    """Cancelling a question in each of its stages."""

    def _stages(self, docs, gate, stage):
        """A pipeline that waits in one stage."""
        retriever = BM25Retriever(docs, "FineChunk")

        def finds(query, filters=None, topk=None):
            if stage == "retrieve":
                gate.wait()
            return retriever(query, filters=filters, topk=topk)

        def reranks(query, documents, top_n):
            if stage == "rerank":
                gate.wait()
            return [(at, 1.0) for at in range(len(documents))]

        class Counter:
            name = "waiting"

            def count(self, text):
                if stage == "context":
                    gate.wait()
                return len(text)

        def answers(prompt):
            if stage == "generate":
                gate.wait()
            return "So [1]."

        builder = ContextBuilder(counter=Counter())
        return RAGPipeline(
            retriever=finds, reranker=reranks, generator=answers, context_builder=builder
        )

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("stage", ["retrieve", "rerank", "context", "generate"])
    @pytest.mark.parametrize("how", ["answer", "astream"])
    def test_it_leaves_at_once(self, docs, stage, how):
        """Whatever a thread is still doing; no task is left, and the loop ends while the thread
        still works.
        """
        gate = Gate()
        pipeline = self._stages(docs, gate, stage)

        async def main():
            work = (
                pipeline.answer(QUESTION)
                if how == "answer"
                else collected(pipeline.astream(QUESTION))
            )
            task = asyncio.ensure_future(work)
            await until(gate.reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return asyncio.all_tasks() - {asyncio.current_task()}

        try:
            assert asyncio.run(main()) == set()
        finally:
            gate.opened.set()

    def test_it_ends_the_models_call(self, docs):
        """The server sees the connection go."""
        with (
            RawServer(head() + b'{"choi', hold=True) as server,
            HttpChatModel(server.url, "m", retries=0) as chat,
        ):
            pipeline = RAGPipeline.over(docs, "FineChunk", generator=chat)

            async def main():
                task = asyncio.ensure_future(pipeline.answer(QUESTION))
                await until(server.asked)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

            asyncio.run(main())
            assert server.gone.wait(PATIENCE_S)

    def test_the_pipeline_still_answers_afterwards(self, docs):
        """A cancelled question takes nothing with it."""
        gate = Gate()
        pipeline = self._stages(docs, gate, "rerank")

        async def main():
            task = asyncio.ensure_future(pipeline.answer(QUESTION))
            await until(gate.reached)
            task.cancel()
            await asyncio.wait([task])
            gate.opened.set()
            return await pipeline.answer(QUESTION)

        assert asyncio.run(main()).text == "So [1]."


class TestBatches:
    """`batch_retrieve`, `batch_retrieve_with_context`, `batch_answer`."""

    def test_results_stand_in_the_order_of_the_questions(self, docs):
        """Whichever is done first."""

        def finds(query, filters=None, topk=None):
            time.sleep(0.002 * (5 - int(query)))
            return [Hit(query, f"text {query}", 1.0)]

        pipeline = RAGPipeline(retriever=finds, generator=lambda prompt: "So [1].")
        questions = [str(number) for number in range(5)]
        assert [result[0].id for result in pipeline.sync.batch_retrieve(questions)] == questions
        assert [
            one.query for one in pipeline.sync.batch_retrieve_with_context(questions)
        ] == questions
        assert [one.citations[0].uid for one in pipeline.sync.batch_answer(questions)] == questions

    @pytest.mark.slow
    def test_no_more_at_once_than_asked_for(self, docs, chat, model):
        """The server sees it."""
        model.hold_s = 0.02
        pipeline = RAGPipeline.over(docs, "FineChunk", generator=chat)
        with warnings.catch_warnings():
            # the echo of a prompt is not much of an answer
            warnings.simplefilter("ignore", AnswerWarning)
            pipeline.sync.batch_answer([QUESTION] * 12, concurrency=3)
        assert model.most_at_once <= 3
        assert len(model.requests) == 12

    @pytest.mark.slow
    def test_fifty_questions_at_once_at_a_server(self, docs, chat, model):
        """All are answered, as many at once as were asked for."""
        model.hold_s = 0.05
        model.faults += [says("Hot [1].")] * 50
        answers = RAGPipeline.over(docs, "FineChunk", generator=chat).sync.batch_answer(
            [QUESTION] * 50, concurrency=50
        )
        assert [answer.text for answer in answers] == ["Hot [1]."] * 50
        assert model.most_at_once > 1

    def test_an_error_ends_all(self):
        """By default; those that wait are not asked."""
        asked = []

        def finds(query, filters=None, topk=None):
            asked.append(query)
            if query == "bad":
                raise RetrievalError("no index")
            return []

        pipeline = RAGPipeline(retriever=finds)
        with pytest.raises(RetrievalError, match="no index"):
            pipeline.sync.batch_retrieve(["good", "bad", "other", "another"], concurrency=1)
        assert asked == ["good", "bad"]

    def test_or_stands_in_its_place(self, pipeline, model):
        """Where that is asked for."""
        model.faults += [says("Hot [1]."), failed(400), says("Hot [1].")]
        answers = pipeline.sync.batch_answer([QUESTION] * 3, concurrency=1, on_error="collect")
        assert [type(one) for one in answers] == [Answer, GenerationError, Answer]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"queries": "tea"}, "queries must be .* got 'tea'"),
            ({"queries": ["tea", 7]}, "list of strings"),
            ({"queries": ["tea"], "concurrency": 0}, "concurrency"),
            ({"queries": ["tea"], "on_error": "ignore"}, "Unknown on_error 'ignore'"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, pipeline, arguments, message):
        """With what was given."""
        with pytest.raises(ConfigError, match=message):
            pipeline.sync.batch_retrieve(**arguments)

    def test_cancelling_ends_all(self, docs):
        """No task is left."""
        gate = Gate()

        def finds(query, filters=None, topk=None):
            gate.wait()
            return []

        async def main():
            task = asyncio.ensure_future(
                RAGPipeline(retriever=finds).batch_retrieve(["a"] * 9, concurrency=3)
            )
            await until(gate.reached)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return asyncio.all_tasks() - {asyncio.current_task()}

        try:
            assert asyncio.run(main()) == set()
        finally:
            gate.opened.set()


class TestTraces:
    """Spans of a question."""

    def test_a_span_for_each_step(self, pipeline, model, spans):
        """All of them beneath the question's own, without any text."""
        model.faults.append(says("Of 80 degrees [1]."))
        pipeline.sync.answer(QUESTION)
        found = {span.name: span for span in spans.get_finished_spans()}
        assert set(found) == {
            "invoke_workflow rag",
            "retrieval Retriever",
            "build_context",
            "chat m",
        }
        whole = found["invoke_workflow rag"].context.span_id
        assert {
            span.parent.span_id for name, span in found.items() if not name.startswith("invoke")
        } == {whole}
        told = json.dumps([dict(span.attributes) for span in found.values()], default=str)
        assert "degrees" not in told
        assert "How hot" not in told

    def test_a_stream_has_the_same_spans(self, pipeline, model, spans):
        """Also where the caller's task reads it piece by piece."""
        model.faults.append(says_in_pieces("Of 80 ", "degrees [1]."))
        asyncio.run(collected(pipeline.astream(QUESTION)))
        names = {span.name for span in spans.get_finished_spans()}
        assert names == {"invoke_workflow rag", "retrieval Retriever", "build_context", "chat m"}

    def test_content_is_there_where_it_is_asked_for(self, docs, chat, model, spans):
        """Question, texts and answer."""
        model.faults.append(says("Of 80 degrees [1]."))
        RAGPipeline.over(docs, "FineChunk", generator=chat, capture_content=True).sync.answer(
            QUESTION
        )
        told = json.dumps(
            [dict(span.attributes) for span in spans.get_finished_spans()], default=str
        )
        assert "How hot" in told
        assert "Of 80 degrees" in told


def test_options_of_the_generator_reach_the_server(docs, chat, model):
    """As they are given."""
    model.faults.append(says("So [1]."))
    generator = Generator(chat, options=ChatOptions(temperature=0, max_tokens=9))
    RAGPipeline.over(docs, "FineChunk", generator=generator).sync.answer(QUESTION)
    assert (model.bodies[0]["temperature"], model.bodies[0]["max_tokens"]) == (0, 9)


def test_a_source_can_be_taken_out_and_asked_again(docs, chat, model):
    """Its number moves on to the next one, in the context and in an answer."""
    builder, manager = ContextBuilder(), CitationManager()
    pipeline = RAGPipeline.over(docs, "FineChunk", generator=chat, context_builder=builder)
    context = pipeline.sync.retrieve_with_context("water for tea")
    fewer = builder.without(context, 1)
    assert [hit.id for hit in fewer.sources] == [hit.id for hit in context.sources][1:]
    assert manager.renumber("Hot [1], boiling [2].", {1: None, 2: 1}) == "Hot, boiling [1]."


def test_what_does_not_fit_is_not_taken_for_nothing():
    """Hits of which nothing goes into the context are told as such, in the context's language, and
    counted.
    """
    hit = Hit("1", "x" * 9000, 1.0, "table.csv")
    pipeline = RAGPipeline(
        retriever=lambda query, filters=None, topk=None: [hit],
        generator=lambda prompt: 1 / 0,
        context_builder=ContextBuilder(counter="utf8", language="zh"),
    )
    with pytest.warns(AnswerWarning, match="None of 1 hits fits into max_tokens=200"):
        answer = pipeline.sync.answer("tea?", max_tokens=200)
    assert answer.text == "找到了资料，但上下文中放不下。"
    assert answer.metadata["found"] == 1
    assert len(answer.problems) == 1
