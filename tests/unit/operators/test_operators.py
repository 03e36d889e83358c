"""Operators beyond specification 000's sentences: many at once, event loops, errors, indexes of
others.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import Document, Hit, RAGPipeline, Reranker, Retriever
from lazyrag.errors import ConfigError, EvaluationError, GenerationError, RetrievalError
from lazyrag.evaluation import MeasureReport, PipelineRAG
from lazyrag.operators import (
    AccuracyEvaluate,
    BGEReranker,
    ChromaRetriever,
    LatencyEvaluate,
    MilvusRetriever,
    OpenAIGenerator,
    Operator,
    OperatorChain,
    QAPromptor,
    RefinerOperator,
    RerankOperator,
    RetrieveOperator,
    TokenCountEvaluate,
    Wiki18FAISSRetriever,
    evaluate_traces,
    latest_results,
)
from lazyrag.pipeline import PipelineSettings
from lazyrag.pipeline.external import ChromaFinder, FaissFinder
from lazyrag.pipeline.search import RetrieverFinder

DOCS = [
    "Green tea wants water of 80 degrees.",
    "Black tea wants boiling water.",
    "Hills are far away.",
]


@pytest.fixture
def docs():
    """Three texts."""
    docs = Document()
    docs.add_texts({f"{at}.txt": text for at, text in enumerate(DOCS)})
    return docs


@pytest.fixture
def flow(docs):
    """From a question to an answer that repeats the prompt's last line but one."""
    found = RetrieveOperator(Retriever(docs, "FineChunk", "bm25")) >> RerankOperator(
        Reranker("BM25Reranker"), topk=2
    )
    answer = OpenAIGenerator(lambda prompt: prompt.splitlines()[-2])
    return found >> RefinerOperator("tree", budget=20) >> QAPromptor() >> answer


class TestRunning:
    """One, many, in a loop, in chains."""

    def test_all_ways_to_run_give_the_same(self, flow):
        """A call, execute, aexecute, batch and abatch differ in nothing but the seconds."""
        data = {"query": "How hot is the water for green tea?"}

        async def both():
            return [await flow.aexecute(data), *await flow.abatch([data])]

        told = [flow(data), flow.execute(data), *flow.batch([data]), *asyncio.run(both())]
        bare = [
            {name: value for name, value in one.items() if not name.endswith("_time")}
            for one in told
        ]
        assert bare == [bare[0]] * 5
        assert bare[0]["generated"] == "Question: How hot is the water for green tea?"

    def test_a_batch_keeps_its_order_and_its_bound(self):
        """Sixteen traces, three at once at most, each in its place."""
        running, most, lock = 0, 0, threading.Lock()

        def step(data):
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            threading.Event().wait(0.01)
            with lock:
                running -= 1
            return {**data, "custom_n": int(data["query"]) * 2}

        many = OperatorChain(step).batch([{"query": str(n)} for n in range(16)], concurrency=3)
        assert [one["custom_n"] for one in many] == [2 * n for n in range(16)]
        assert 1 < most <= 3

    def test_an_error_stands_in_its_place(self, flow):
        """With "collect" the others are answered; by default the error is raised."""
        many = [{"query": "green tea"}, {}, {"query": "black tea"}]
        first, error, last = flow.batch(many, on_error="collect")
        assert "generated" in first
        assert isinstance(error, ConfigError)
        assert "generated" in last
        with pytest.raises(ConfigError, match="query must be a string; got None"):
            flow.batch(many)

    def test_a_blank_question_finds_nothing_and_breaks_nothing(self, flow):
        """Every stage is there, empty; the prompt says that there is nothing."""
        data = flow({"query": " "})
        assert [data[f"{stage}_docs"] for stage in ("retrieval", "reranking", "refining")] == [
            [],
            [],
            [],
        ]
        assert "(none)" in data["prompt"]

    def test_cancelling_ends_the_models_call(self, docs):
        """An asynchronous function within a chain gets the cancellation."""
        ended = []

        async def slow(data):
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)
            return data

        async def main():
            task = asyncio.ensure_future(OperatorChain(slow).aexecute({"query": "tea"}))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert ended == [True]

    def test_an_asynchronous_function_is_a_step(self):
        """Awaited by execute as by aexecute."""

        async def later(data):
            return {**data, "custom_later": True}

        assert OperatorChain(later)({"query": "tea"})["custom_later"]  # type: ignore[typeddict-item]
        assert asyncio.run(OperatorChain(later).aexecute({"query": "tea"}))["custom_later"]  # type: ignore[typeddict-item]

    def test_chains_of_chains_are_one_chain(self, flow):
        """Parentheses change nothing."""
        assert len((flow >> (QAPromptor() >> QAPromptor())).operators) == len(flow.operators) + 2

    @pytest.mark.slow
    @settings(max_examples=50)
    @given(
        data=st.dictionaries(
            st.sampled_from(["retrieval_docs", "reranking_docs", "refining_docs"]),
            st.lists(st.text(max_size=8), max_size=4),
        ),
        query=st.text(max_size=8),
    )
    def test_nothing_that_was_there_changes(self, data, query):
        """Whatever texts there are: each value is the same object after each stage, and the given
        dict is unchanged.
        """
        trace: Any = {"query": query, **data, "custom": object()}
        before = dict(trace)
        for one in (
            RefinerOperator("extractive", budget=5),
            RerankOperator(Reranker("BM25Reranker")),
            QAPromptor(),
        ):
            after: Any = one.execute(trace)
            own = set(one.writes)
            assert all(after[name] is value for name, value in trace.items() if name not in own)
            assert trace == before
            for stage in ("reranking", "refining"):
                if f"{stage}_results" in after:
                    assert [row["text"] for row in after[f"{stage}_results"]] == after[
                        f"{stage}_docs"
                    ]


class TestRefusals:
    """What cannot be run is refused, with what to do."""

    def test_what_no_step_can_be(self):
        """A number, a class, nothing at all."""
        for wrong in (3, dict, None):
            with pytest.raises(ConfigError, match="function from a dict to a dict"):
                QAPromptor() >> wrong  # type: ignore[operator]
        with pytest.raises(ConfigError, match="no operators"):
            OperatorChain()

    def test_what_functions_must_return(self):
        """Not None, and not less than they got."""
        with pytest.raises(ConfigError, match="return the dict"):
            OperatorChain(lambda data: None)({"query": "tea"})
        with pytest.raises(ConfigError, match="without 'query'"):
            OperatorChain(lambda data: {})({"query": "tea"})

    def test_a_subclass_may_not_overwrite_either(self):
        """The class is named."""

        class Rude(Operator):
            def process(self, data):
                """Another question."""
                return {"query": "coffee?"}

        with pytest.raises(ConfigError, match="Rude would overwrite 'query'"):
            Rude()({"query": "tea?"})

    @pytest.mark.parametrize(
        ("call", "told"),
        [
            (lambda: RetrieveOperator(3), "retriever must be a callable"),
            (lambda: RetrieveOperator(lambda query, filters=None, topk=None: [], 0), "topk"),
            (lambda: RetrieveOperator(Document()), "Retriever\\(docs"),
            (lambda: ChromaRetriever(Document(), top_k=3), "Did you mean 'topk'"),
            (lambda: RerankOperator(3), "reranker must be .* got 3"),
            (lambda: RerankOperator("BM25Reranker"), "Reranker\\('BM25Reranker'"),
            (lambda: BGEReranker("no/such/folder"), "no/such/folder"),
            (lambda: RefinerOperator(3), "refiner must be .* got 3"),  # type: ignore[arg-type]
            (lambda: RefinerOperator("tree", budgte=3), "budget"),
            (lambda: QAPromptor("no place for the texts"), "sources"),
            (lambda: QAPromptor(language="de"), "auto, en, zh"),  # type: ignore[arg-type]
            (lambda: OpenAIGenerator("name"), "base_url"),
            (lambda: OpenAIGenerator(len, "http://localhost"), "base_url"),
            (lambda: ChromaRetriever(3), "get_collection"),
            (lambda: MilvusRetriever(3, len), "MilvusClient"),
            (lambda: Wiki18FAISSRetriever(3), "documents="),
            (lambda: ChromaRetriever(Document(), len), "embeddings of its own"),
            (lambda: QAPromptor().batch({"query": "tea"}), "list of dicts"),  # type: ignore[arg-type]
            (lambda: QAPromptor()({"query": 3}), "query must be a string; got 3"),
            (lambda: QAPromptor()({"query": "tea", "retrieval_docs": "tea"}), "list of strings"),
            (lambda: evaluate_traces([{}], [len]), "EvaluateOperator"),  # type: ignore[list-item]
            (
                lambda: latest_results({"retrieval_docs": ["a"], "retrieval_results": [{}, {}]}),
                "one dict for each",
            ),
        ],
    )
    def test_wrong_arguments_are_told(self, call, told):
        """Each by a ConfigError that says what is allowed."""
        with pytest.raises(ConfigError, match=told):
            call()

    def test_wrong_values_in_an_evaluation_are_told(self):
        """Times, thresholds, answers and reports."""
        for call in (
            lambda: LatencyEvaluate().measure({"refining_time": -1}),
            lambda: AccuracyEvaluate(threshold=0),
            lambda: AccuracyEvaluate().measure({"generated": 3}),
            lambda: MeasureReport(["a"], []),
            lambda: MeasureReport(["a"], [{"f1": float("nan")}]),
        ):
            with pytest.raises(EvaluationError):
                call()

    def test_counters_are_named(self):
        """A counter of one's own stands in the measure's name."""

        class Letters:
            name = "letters"

            def count(self, text):
                """Of a text."""
                return len(text)

        assert TokenCountEvaluate(Letters()).measure({"retrieval_docs": ["tea"]}) == {
            "token_count_letters": 3
        }

    def test_a_model_that_fails_is_told(self):
        """Not as an empty answer."""

        def broken(prompt):
            raise OSError("no such host")

        with pytest.raises(GenerationError, match="no such host"):
            OpenAIGenerator(broken)({"prompt": "tea?"})


class Index:
    """Two methods of a faiss index, exact, by inner product; tests/ann asks the real one."""

    def __init__(self, vectors, metric_type=0):
        self.vectors = np.asarray(vectors, np.float32)
        self.ntotal, self.d = self.vectors.shape
        self.metric_type = metric_type

    def search(self, asked, k):
        """The best rows."""
        by_distance = -((self.vectors - asked[0]) ** 2).sum(1)
        scores = by_distance if self.metric_type else self.vectors @ asked[0]
        best = np.argsort(-scores, kind="stable")[:k]
        return np.abs(scores[best])[None], best[None]


class TestIndexesOfOthers:
    """Rows that another program indexed become hits."""

    ROWS = (
        {"id": "g", "contents": "Green tea.", "title": "Teas"},
        {"contents": "Black tea.", "source": "b.txt", "chunk_id": 4},
    )

    def test_a_faiss_index_with_a_file_of_lines(self, tmp_path):
        """Texts, ids, titles and scores; a row without id has its number."""
        path = tmp_path / "wiki.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in self.ROWS), encoding="utf-8")
        retrieve = Wiki18FAISSRetriever(Index([[1, 0], [0, 1]]), path, lambda text: [0.25, 1.0])
        data = retrieve({"query": "black"})
        rows = data["retrieval_results"]
        assert [(row["id"], row["text"], row["score"]) for row in rows] == [
            ("1", "Black tea.", 1.0),
            ("g", "Green tea.", 0.25),
        ]
        assert [(row["source"], row["chunk_id"]) for row in rows] == [("b.txt", 4), ("Teas", 0)]

    def test_distances_become_scores(self):
        """Of an index by L2 the nearest is first, with 1 / (1 + distance)."""
        retrieve = Wiki18FAISSRetriever(
            Index([[1, 0], [0, 1]], metric_type=1), self.ROWS, lambda text: [0.0, 1.0]
        )
        assert [row["score"] for row in retrieve({"query": "black"})["retrieval_results"]] == [
            1.0,
            pytest.approx(1 / 3),
        ]

    def test_what_does_not_fit_together_is_told(self, tmp_path):
        """Another number of texts, other vectors, a filter, a line without a text, no such file."""
        index = Index([[1, 0], [0, 1]])
        for call, told in (
            (lambda: FaissFinder(len, index, self.ROWS[:1]), "2 vectors, and 1 documents"),
            (lambda: FaissFinder(len, index, [{"contents": "a"}, {"body": "b"}]), "Document 1"),
            (lambda: FaissFinder(len, index, tmp_path / "none.jsonl"), "none.jsonl"),
            (
                lambda: Wiki18FAISSRetriever(index, self.ROWS, lambda text: [1.0])({"query": "a"}),
                "1 numbers",
            ),
        ):
            with pytest.raises(ConfigError, match=told):
                call()
        with pytest.raises(ConfigError, match="cannot filter"):
            asyncio.run(
                FaissFinder(lambda text: [1.0, 0.0], index, self.ROWS).find("a", 1, {"a": 1})
            )

    def test_filters_for_chroma_are_checked(self):
        """Names to values or lists of them; all else is refused before Chroma is asked."""

        class Collection:
            name = "teas"
            asked: dict[str, Any]

            def query(self, **asked):
                """One row, without a text."""
                Collection.asked = asked
                return {
                    "ids": [["a"]],
                    "documents": [[None]],
                    "metadatas": [[None]],
                    "distances": [[0.5]],
                }

        finder = ChromaFinder(None, Collection())
        with pytest.raises(ConfigError, match="field: value"):
            asyncio.run(finder.find("tea", 1, [("a", 1)]))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="'a'"):
            asyncio.run(finder.find("tea", 1, {"a": [None]}))
        with pytest.raises(RetrievalError, match=r"'a'.*teas.*no document"):
            asyncio.run(finder.find("tea", 1, {"year": 2024, "kind": ["a", "b"]}))
        assert Collection.asked["where"] == {
            "$and": [{"year": {"$in": [2024]}}, {"kind": {"$in": ["a", "b"]}}]
        }

    def test_a_function_over_ones_own_index_needs_no_class(self):
        """A callable that gives hits is a retriever."""
        retrieve = RetrieveOperator(
            lambda query, filters=None, topk=None: [Hit("1", "Tea.", float("nan"))]
        )
        assert retrieve({"query": "tea"})["retrieval_results"][0]["score"] is None
        assert isinstance(retrieve._finder, RetrieverFinder)


class TestPipelineRAG:
    """A pipeline as a system under evaluation, and answers from hits at hand."""

    def test_it_reranks_where_the_pipeline_does(self, docs):
        """The contexts are those of an answer: the reranker's where there is one and it is on, else
        the finder's.
        """
        retriever = Retriever(docs, "FineChunk", "bm25")

        def backwards(query, documents, top_n):
            return [(at, float(at)) for at in range(len(documents))][::-1]

        plain, reranked = (
            RAGPipeline(retriever=retriever),
            RAGPipeline(retriever=retriever, reranker=backwards),
        )
        off = RAGPipeline(
            retriever=retriever,
            reranker=backwards,
            settings=PipelineSettings(rag_use_reranker=False, rag_top_k=2),
        )
        assert [one.reranks for one in (plain, reranked, off)] == [False, True, False]
        found = PipelineRAG(plain, top_k=2).retrieve("water tea")
        assert len(found) == 2
        assert PipelineRAG(reranked, top_k=2).retrieve("water tea") == found[::-1]
        assert PipelineRAG(off).retrieve("water tea") == found

    def test_generations_are_the_generators_own(self, docs):
        """Candidates, confidence and metadata are handed on; without contexts it says that it found
        nothing.
        """
        pipeline = RAGPipeline.over(
            docs, "FineChunk", generator=lambda prompt: "Of 80 degrees [1]."
        )
        rag = PipelineRAG(pipeline)
        result = rag.generate_with_metadata("How hot?", [DOCS[0]])
        assert result.response == "Of 80 degrees [1]."
        assert result.metadata["language"] == "en"
        assert rag.generate("How hot?", []).startswith("No source was found")

    def test_an_answer_from_hits_cites_them(self, docs):
        """Their sources are cited; the question is that of the results, or the one that is given;
        without one none.
        """
        pipeline = RAGPipeline.over(
            docs, "FineChunk", generator=lambda prompt: "Of 80 degrees [1]."
        )
        found = pipeline.sync.retrieve("How hot is water for green tea?", top_k=1)
        answer = asyncio.run(pipeline.answer_from(found))
        assert (answer.query, answer.citations[0].source) == (
            "How hot is water for green tea?",
            "0.txt",
        )
        assert pipeline.sync.answer_from(list(found), query="Hot?").query == "Hot?"
        with pytest.raises(ConfigError, match="There is no question"):
            pipeline.sync.answer_from(list(found))
        quoting = RAGPipeline(retriever=Retriever(docs, "FineChunk", "bm25"))
        assert "80 degrees" in quoting.sync.answer_from(found).text

    def test_what_is_no_pipeline_is_refused(self):
        """With the name of what takes a retriever."""
        with pytest.raises(ConfigError, match="RetrieverRAG"):
            PipelineRAG(len)  # type: ignore[arg-type]
