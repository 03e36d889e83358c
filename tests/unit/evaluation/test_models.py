"""Samples, what is made of records, and our own parts as a system under evaluation."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from lazyrag import (
    Document,
    GenerationResult,
    HttpChatModel,
    HybridRetriever,
    RAGInterface,
    RAGPipeline,
    RetrievalChain,
    RetrievalResult,
    Retriever,
)
from lazyrag.errors import (
    AnswerWarning,
    ConfigError,
    GenerationError,
    InterfaceError,
    RetrievalError,
)
from lazyrag.evaluation import (
    PipelineRAG,
    RetrieverRAG,
    Sample,
    evaluate,
    make_sample,
    prepare,
    to_ragas_dataset,
)
from lazyrag.evaluation.interface import FIELDS, passages_prompt
from lazyrag.models import ChatOptions

TEXTS = {
    "tea.txt": "Steep green tea at 80 degrees.",
    "coffee.txt": "Roast coffee at 200 degrees.",
    "绿茶.txt": "水温八十度。",
}


@pytest.fixture
def docs():
    """Three documents with a small embedding."""
    docs = Document(embed=lambda text: [1.0 + text.count(letter) for letter in "aeiou"])
    docs.add_texts(TEXTS)
    return docs


@pytest.fixture
def retriever(docs):
    """By words."""
    return Retriever(docs, "FineChunk", "bm25_chinese", topk=2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user_input", 3),
        ("retrieved_contexts", "one text"),
        ("reference_contexts", [1]),
        ("retrieved_context_ids", "n1"),
        ("reference_context_ids", [1.5]),
        ("reference_context_ids", [True]),
        ("multi_responses", {"a"}),
        ("rubrics", {"score1": 1}),
        ("query_length", 3),
    ],
)
def test_a_field_of_another_type_is_refused(field, value):
    """The message names the field, what was given and what is needed."""
    with pytest.raises(ConfigError, match=rf"Sample\.{field} must be "):
        Sample(**{field: value})


def test_what_is_unknown_is_left_out_and_what_is_empty_is_not():
    """As RAGAS's to_dict: None says that nobody knows, [] that there is nothing. Lists are the very
    ones.
    """
    contexts = ["a"]
    sample = Sample("q", retrieved_contexts=contexts, reference_context_ids=[])
    assert sample.to_dict() == {
        "user_input": "q",
        "retrieved_contexts": ["a"],
        "reference_context_ids": [],
    }
    assert sample.to_dict()["retrieved_contexts"] is contexts
    assert len(FIELDS) == 12


def test_a_dataset_of_nothing_is_refused():
    """RAGAS would say so with an index that is out of range."""
    with pytest.raises(ConfigError, match="at least one sample"):
        to_ragas_dataset([])


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"question": "q"}, "'user_input' of record 2 must be a string; got None"),
        (
            {"user_input": "q", "response": "r"},
            "Record 2 has the field 'response', which the system fills",
        ),
        ({"reference": "r"}, "'user_input' of record 2 must be a string; got None"),
        ({"user_input": 3}, "'user_input' of record 2 must be a string; got 3"),
        (
            {"user_input": "q", "reference_context_ids": "n1"},
            "Record 2: Sample.reference_context_ids must be .*'n1'",
        ),
        ("q", "Record 2 must be a mapping .*; got 'q'"),
    ],
)
def test_a_record_that_is_none_is_told_by_its_number(retriever, record, said):
    """Before anything that it says would be lost."""
    with pytest.raises(ConfigError, match=said):
        prepare([{"user_input": "first"}, record], RetrieverRAG(retriever), generate=False)


def test_what_is_no_system_is_refused(retriever):
    """A retriever alone, and systems whose batches return something else."""
    with pytest.raises(InterfaceError, match="an instance of a subclass of RAGInterface"):
        prepare([{"user_input": "q"}], retriever)

    class Short(RetrieverRAG):
        def batch_retrieve_with_metadata(self, queries):
            return [RetrievalResult([])]

    class Texts(RetrieverRAG):
        def retrieve_with_metadata(self, query):
            return ["a"]

    for broken in (Short, Texts):
        with pytest.raises(
            InterfaceError, match="return a list of 2 items, each a RetrievalResult"
        ):
            prepare([{"user_input": "q"}, {"user_input": "r"}], broken(retriever), generate=False)


def test_retrieval_alone_can_be_prepared(retriever):
    """Without a model nothing is asked of one, and the answers are None; asking for them says what
    to do.
    """
    rag = RetrieverRAG(retriever)
    [sample] = prepare([{"user_input": "How hot is green tea?"}], rag, generate=False)
    assert sample.retrieved_contexts[0] == TEXTS["tea.txt"]
    assert (sample.response, sample.multi_responses, sample.reference_context_ids) == (
        None,
        None,
        None,
    )
    with pytest.raises(ConfigError, match="generate=False"):
        prepare([{"user_input": "q"}], rag)


def test_results_at_hand_make_a_sample():
    """Columns and candidates by reference, nothing invented."""
    found, answer = RetrievalResult(["a"], ["1"]), GenerationResult("x", ["x", "y"])
    sample = make_sample({"user_input": "q", "reference": "y"}, found, answer)
    assert sample.retrieved_context_ids is found.context_ids
    assert sample.multi_responses is answer.multi_responses
    assert make_sample({"user_input": "q"}) == Sample("q")


@pytest.mark.parametrize("kind", ["retriever", "hybrid", "chain", "function"])
def test_any_retriever_is_a_system(docs, retriever, kind):
    """Texts, uids and scores of its nodes, best first, and the files that they are of."""
    made = {
        "retriever": retriever,
        "hybrid": HybridRetriever.over(docs, "FineChunk"),
        "chain": RetrievalChain(retriever, topk=2),
        "function": lambda query, filters=None, topk=None: retriever(query, filters, topk),
    }[kind]
    rag = RetrieverRAG(made, topk=2)
    nodes = made("green tea", topk=2)
    found = rag.retrieve_with_metadata("green tea")
    assert found.context_ids == [node.uid for node in nodes]
    assert found.contexts == [node.text for node in nodes]
    assert found.scores == [node.score for node in nodes]
    assert found.metadata["sources"] == [node.path for node in nodes]
    assert found.metadata["retrieval_time"] >= 0
    assert rag.retrieve_with_metadata("  ").contexts == []


def test_ids_of_a_system_are_measured_as_any_run(retriever):
    """Uids and scores are a ranking for evaluate."""
    rag = RetrieverRAG(retriever)
    found = rag.retrieve_with_metadata("green tea degrees")
    run = {"q": [(hit.id, hit.score) for hit in found]}
    assert evaluate(run, {"q": {found.context_ids[1]: 1}}, ["MRR"]).means == {"MRR": 0.5}


def test_a_model_behind_an_endpoint_answers(retriever, model, quick_endpoints):
    """Its tokens, its name, its reason to stop and all candidates are told."""
    chat = HttpChatModel(model.url, "tea-model")
    rag = RetrieverRAG(retriever, chat, options=ChatOptions(n=2))
    [sample] = prepare([{"user_input": "How hot is green tea?"}], rag)
    assert len(sample.multi_responses) == 2
    assert sample.multi_responses[0] == sample.response
    told = rag.generate_with_metadata("How hot?", ["80 degrees."]).metadata
    assert {*told} == {
        "model",
        "prompt_tokens",
        "completion_tokens",
        "finish_reason",
        "generation_time",
    }
    assert told["model"]
    assert told["generation_time"] > 0


def test_a_model_that_tells_nothing_leaves_it_unknown(retriever):
    """A bare callable: no candidates, no tokens, no confidence."""
    rag = RetrieverRAG(retriever, lambda text: "80 degrees")
    answer = rag.generate_with_metadata("How hot?", ["80 degrees."])
    assert (answer.response, answer.multi_responses, answer.confidence) == (
        "80 degrees",
        None,
        None,
    )
    assert (answer.metadata["model"], answer.metadata["prompt_tokens"]) == ("", None)


def test_what_a_model_is_asked_can_be_written_by_hand(retriever):
    """The question and the contexts, in one's own words; by default in the question's language."""
    asked = []

    def model(text):
        asked.append(text)
        return "yes"

    RetrieverRAG(retriever, model, prompt=lambda query, contexts: f"{query}|{contexts}").generate(
        "q", ["a", "b"]
    )
    assert asked == ["q|['a', 'b']"]
    assert (
        passages_prompt("多热？", ["八十度。"])[1].content == "资料：\n[1] 八十度。\n\n问题：多热？"
    )
    assert "Passages:\n[1] a\n[2] b\n\nQuestion: q" in passages_prompt("q", ["a", "b"])[1].content


def test_what_fails_is_raised(docs, retriever):
    """A retriever that gives texts, a model that raises, arguments that are none."""
    with pytest.raises(RetrievalError, match="list of nodes"):
        RetrieverRAG(lambda query, filters=None, topk=None: ["tea"]).retrieve("green tea")
    with pytest.raises(ConfigError, match="output_format='content'"):
        RetrieverRAG(Retriever(docs, "FineChunk", "bm25", output_format="content"))
    with pytest.raises(GenerationError):
        RetrieverRAG(retriever, lambda text: 1 / 0).generate("q", [])
    for arguments in (
        {"retriever": 3},
        {"model": 3},
        {"topk": 0},
        {"prompt": "{query}"},
        {"promt": None},
    ):
        with pytest.raises(ConfigError):
            RetrieverRAG(**{"retriever": retriever, **arguments})


def test_the_adapter_is_an_interface(retriever):
    """Everything that takes a RAGInterface takes it; its old methods give the same."""
    rag = RetrieverRAG(retriever, lambda text: "x")
    assert isinstance(rag, RAGInterface)
    assert rag.retrieve("green tea") == rag.retrieve_with_metadata("green tea").contexts
    assert rag.batch_generate(["q", "r"], [[], []]) == ["x", "x"]


class TestManyQuestions:
    """Adapters answer several questions at a time, and keep the answers of the others when one
    fails.
    """

    QUESTIONS = tuple(f"How hot is tea {number}?" for number in range(12))

    @staticmethod
    def system(docs, chat, **keywords):
        """A retriever and a chat function as a system."""
        return RetrieverRAG(Retriever(docs, "FineChunk", "bm25"), chat, **keywords)

    @pytest.fixture
    def docs(self):
        """Two texts."""
        made = Document()
        made.add_texts(
            {"tea.txt": "Tea takes water of 80 degrees.", "coffee.txt": "Coffee takes 95."}
        )
        return made

    def test_answers_are_generated_at_the_same_time(self, docs):
        """``workers=1`` is for a model that is not thread-safe; the order is that of the
        records.
        """
        lock, running, most = threading.Lock(), [0], [0]

        def chat(text):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.02)
            with lock:
                running[0] -= 1
            return text.rpartition(" ")[2]

        records = [{"user_input": question} for question in self.QUESTIONS]
        answers = [sample.response for sample in prepare(records, self.system(docs, chat))]
        assert answers == [f"{number}?" for number in range(12)]
        assert most[0] > 2
        most[0] = 0
        prepare(records, self.system(docs, chat, workers=1))
        assert most[0] == 1

    def test_one_answer_that_fails_does_not_lose_the_others(self, docs):
        """It is None, and a warning names the record; if all fail, that is an error."""

        def chat(text):
            if " 3?" in text:
                raise TimeoutError
            return "80 degrees"

        records = [{"user_input": question} for question in self.QUESTIONS]
        with pytest.warns(AnswerWarning, match="1 of 12 answers failed, of record 4"):
            samples = prepare(records, self.system(docs, chat))
        assert [sample.response for sample in samples].count("80 degrees") == 11
        assert samples[3].response is None
        assert samples[3].retrieved_contexts == ["Tea takes water of 80 degrees."]
        with pytest.raises(GenerationError):
            prepare([records[3]], self.system(docs, chat))

    def test_a_pipeline_answers_from_the_hits_that_it_found(self, docs):
        """Its prompt has the files' names, as in `RAGPipeline.answer`."""
        prompts = []

        def chat(prompt):
            prompts.append(prompt)
            return "80 degrees [1]."

        pipeline = RAGPipeline.over(docs, "FineChunk", generator=chat)
        rag = PipelineRAG(pipeline)
        found = rag.retrieve_with_metadata("How hot is tea?")
        assert rag.generate("How hot is tea?", found.contexts) == "80 degrees [1]."
        assert "tea.txt" in prompts[0]

    def test_a_system_may_be_asynchronous(self):
        """Its coroutines run concurrently."""

        class System(RAGInterface):
            """Both steps as coroutine functions."""

            async def retrieve(self, query):
                """One text."""
                await asyncio.sleep(0.01)
                return [query.upper()]

            async def generate_with_metadata(self, query, contexts):
                """The text."""
                await asyncio.sleep(0.01)
                return GenerationResult(contexts[0])

        samples = prepare([{"user_input": question} for question in self.QUESTIONS], System())
        assert [sample.response for sample in samples] == [
            question.upper() for question in self.QUESTIONS
        ]

    @pytest.mark.parametrize("is_async", [True, False])
    def test_old_forms_run_together_and_keep_what_is_answered(self, is_async):
        """Coroutines of the old forms run concurrently; an error in one answer loses no other
        one.
        """
        running = [0]
        most = [0]

        class System(RAGInterface):
            """Both old forms."""

            def retrieve(self, query):
                """One text."""
                return [query.upper()]

            def generate(self, query, contexts):
                """The text, but for one question."""
                if " 3?" in query:
                    raise ValueError("three")
                return contexts[0]

        class AsyncSystem(System):
            """The same as coroutine functions."""

            async def retrieve(self, query):
                """One text."""
                running[0] += 1
                most[0] = max(most[0], running[0])
                await asyncio.sleep(0.05)
                running[0] -= 1
                return super().retrieve(query)

            async def generate(self, query, contexts):
                """The text, but for one question."""
                return super().generate(query, contexts)

        records = [{"user_input": question} for question in self.QUESTIONS]
        rag = AsyncSystem() if is_async else System()
        with pytest.warns(
            AnswerWarning,
            match="1 of 12 answers failed, of record 4. The first error: ValueError: three",
        ):
            samples = prepare(records, rag)
        expected = [None if " 3?" in question else question.upper() for question in self.QUESTIONS]
        assert [sample.response for sample in samples] == expected
        assert most[0] > 2 or not is_async
        with pytest.raises(ValueError, match="three"):
            rag.batch_generate(self.QUESTIONS, [["x"]] * 12)
