"""`RAGPipeline`: hits, reranked hits and contexts, in event loops and threads, over whatever finds
hits.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time

import pytest

from lazyrag import (
    BM25Retriever,
    ContextBuilder,
    Document,
    Hit,
    HybridRetriever,
    RAGContext,
    RAGPipeline,
    Reranker,
    RetrievalResult,
    Retriever,
)
from lazyrag.errors import ConfigError, RetrievalError, UnknownKeywordError
from lazyrag.models import AsyncReranker
from lazyrag.pipeline import MilvusCollection, PipelineSettings
from lazyrag.retrieval.stages import callable_name
from tests.model_server import PATIENCE_S
from tests.tiny_models import write_cross_encoder

TEXTS = {
    "green.txt": "Green tea wants water of 80 degrees.",
    "black.txt": "Black tea wants boiling water.",
    "white.txt": "White tea wants water of 70 degrees.",
    "coffee.txt": "Coffee wants water of 92 degrees.",
}
WORDS = "green black white coffee tea water".split()


@pytest.fixture
def docs():
    """Four documents, by words."""
    docs = Document()
    docs.add_texts(TEXTS)
    return docs


@pytest.fixture
def embedded():
    """The same with embeddings."""
    docs = Document(embed=lambda text: [0.1 + text.lower().count(word) for word in WORDS])
    docs.add_texts(TEXTS)
    return docs


def told(result):
    """A result as a ranking."""
    return [(hit.id, hit.score) for hit in result]


class TestRetrieve:
    """`retrieve`."""

    def test_it_gives_the_retrievers_nodes_as_hits(self, docs):
        """The same nodes, scores and order; a hit knows its file."""
        retriever = Retriever(docs, "FineChunk", "bm25")
        result = RAGPipeline(retriever=retriever).sync.retrieve("green tea", top_k=2)
        assert isinstance(result, RetrievalResult)
        assert told(result) == [(node.uid, node.score) for node in retriever("green tea", topk=2)]
        assert result[0].source == "green.txt"

    def test_hits_know_their_place(self, tmp_path):
        """Lines of the file stand among the metadata, unless the file's own metadata use the
        name.
        """
        (tmp_path / "tea.txt").write_text(
            "Intro.\n\nGreen tea wants water of 80 degrees.", encoding="utf-8"
        )
        docs = Document(tmp_path)
        docs.create_node_group(
            "block", transform="SentenceSplitter", chunk_size=12, chunk_overlap=0
        )
        hit = RAGPipeline.over(docs, "block").sync.retrieve("80 degrees", top_k=1)[0]
        assert hit.metadata["location"] == "line 3"

    def test_the_result_says_the_question_and_the_seconds(self, docs):
        """Both stand in its metadata."""
        result = RAGPipeline.over(docs, "FineChunk").sync.retrieve("green tea")
        assert result.metadata["query"] == "green tea"
        assert set(result.metadata["seconds"]) == {"retrieve", "hits"}
        assert 0 < result.metadata["seconds"]["retrieve"] < PATIENCE_S

    def test_top_k_is_that_of_the_call_then_of_the_settings(self, docs):
        """Five unless anything is said."""
        for number in range(10):
            docs.add_texts({f"tea {number}.txt": f"tea number {number}"})
        retriever = Retriever(docs, "FineChunk", "bm25")
        assert len(RAGPipeline(retriever=retriever).sync.retrieve("tea")) == 5
        pipeline = RAGPipeline(
            retriever=retriever, settings=PipelineSettings(rag_top_k=7, rag_use_reranker=False)
        )
        assert len(pipeline.sync.retrieve("tea")) == 7
        assert len(pipeline.sync.retrieve("tea", top_k=2)) == 2

    def test_filters_reach_the_retriever(self, docs):
        """Only what satisfies them is found, and not everything does."""
        pipeline = RAGPipeline.over(docs, "FineChunk")
        found = pipeline.sync.retrieve("water", filters={"file_name": ["black.txt"]})
        assert [hit.source for hit in found] == ["black.txt"]

    def test_a_blank_question_finds_nothing(self, docs):
        """As with retrievers."""
        assert list(RAGPipeline.over(docs, "FineChunk").sync.retrieve("  ")) == []

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"query": 7}, "7"),
            ({"query": "tea", "top_k": 0}, "top_k"),
            ({"query": "tea", "filters": {"colour": "green"}}, "colour"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, docs, arguments, message):
        """With what was given."""
        with pytest.raises(ConfigError, match=message):
            asyncio.run(RAGPipeline.over(docs, "FineChunk").retrieve(**arguments))

    def test_an_unknown_keyword_names_the_nearest(self, docs):
        """Spec 001's ``topk`` is ``top_k`` here."""
        with pytest.raises(UnknownKeywordError, match="Did you mean 'top_k'"):
            asyncio.run(RAGPipeline.over(docs, "FineChunk").retrieve("tea", topk=3))

    def test_its_methods_are_coroutine_functions(self):
        """Frameworks that look for that await them."""
        names = (
            "retrieve",
            "retrieve_and_rerank",
            "build_context",
            "retrieve_with_context",
            "answer",
            "batch_answer",
        )
        assert all(inspect.iscoroutinefunction(getattr(RAGPipeline, name)) for name in names)


class TestFinders:
    """What finds hits."""

    def test_an_asynchronous_retriever_is_awaited(self):
        """A coroutine function, or an object whose call is one."""

        async def found(query, filters=None, topk=None):
            await asyncio.sleep(0)
            return [Hit("1", query, 1.0)]

        class Finder:
            async def __call__(self, query, filters=None, topk=None):
                return await found(query)

        for retriever in (found, Finder(), lambda query, filters=None, topk=None: found(query)):
            assert RAGPipeline(retriever=retriever).sync.retrieve("tea")[0].text == "tea"

    def test_no_more_than_top_k(self):
        """Also of a retriever that does not count."""
        hits = [Hit(str(number), "tea", 1.0) for number in range(9)]
        result = RAGPipeline(retriever=lambda query, filters=None, topk=None: hits).sync.retrieve(
            "tea", top_k=3
        )
        assert [hit.id for hit in result] == ["0", "1", "2"]

    @pytest.mark.parametrize("returned", [None, "tea", ["tea"], [Hit("1", "tea", 1.0), "tea"]])
    def test_something_else_than_hits_is_an_error(self, returned):
        """It names the retriever, and what came."""

        def finds(query, filters=None, topk=None):
            return returned

        with pytest.raises(RetrievalError, match="'finds' returned"):
            RAGPipeline(retriever=finds).sync.retrieve("tea")

    def test_what_a_retriever_raises_is_told(self):
        """As a RetrievalError that names it, with the exception as its cause."""

        def fails(query, filters=None, topk=None):
            raise KeyError(query)

        with pytest.raises(RetrievalError, match="'fails' raised KeyError: 'tea'") as caught:
            RAGPipeline(retriever=fails).sync.retrieve("tea")
        assert isinstance(caught.value.__cause__, KeyError)

    def test_a_failure_of_one_question_leaves_the_others(self):
        """With on_error="collect" it stands in its question's place, whatever the retriever
        raised.
        """

        def fails(query, filters=None, topk=None):
            if query == "b":
                raise ConnectionError(query)
            return []

        first, error, last = RAGPipeline(retriever=fails).sync.batch_retrieve(
            ["a", "b", "c"], on_error="collect"
        )
        assert isinstance(error, RetrievalError)
        assert [len(first), len(last)] == [0, 0]

    def test_a_blank_question_asks_nobody(self):
        """A callable is not called for it, and the model is not asked."""
        pipeline = RAGPipeline(
            retriever=lambda query, filters=None, topk=None: 1 / 0, generator=lambda prompt: 1 / 0
        )
        assert pipeline.sync.answer("  ").citations == ()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "got nothing to find hits with"),
            ({"embedding_manager": len}, "got embedding_manager to find"),
            ({"retriever": len, "milvus_client": object()}, "got milvus_client, retriever to find"),
            ({"retriever": 7}, "retriever must be .* got 7"),
            ({"retriever": Document}, "RAGPipeline.over"),
            ({"retriever": lambda query: []}, "cannot be called with"),
            ({"embedding_manager": len, "milvus_client": object()}, "has no search"),
        ],
    )
    def test_one_way_to_find_hits_is_needed(self, arguments, message):
        """The error says which were given, and what may be."""
        with pytest.raises(ConfigError, match=message):
            RAGPipeline(**arguments)

    def test_a_retriever_of_texts_is_refused(self, docs):
        """Hits are made of nodes."""
        with pytest.raises(ConfigError, match="output_format='content'"):
            RAGPipeline(retriever=Retriever(docs, "FineChunk", "bm25", output_format="content"))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"reranker": 7}, "reranker must be .* got 7"),
            ({"context_builder": "utf8"}, "context_builder must be .* got 'utf8'"),
            ({"settings": {"rag_top_k": 5}}, "settings must be PipelineSettings"),
            ({"name": ""}, "name must be .* got ''"),
            ({"capture_content": "yes"}, "capture_content"),
            ({"generator": 7}, "7"),
        ],
    )
    def test_parts_of_another_kind_are_refused(self, docs, arguments, message):
        """When the pipeline is made."""
        with pytest.raises(ConfigError, match=message):
            RAGPipeline(retriever=Retriever(docs, "FineChunk", "bm25"), **arguments)


class TestOver:
    """`RAGPipeline.over`."""

    def test_by_words_where_there_are_no_embeddings(self, docs):
        """As ``bm25_chinese`` ranks them."""
        result = RAGPipeline.over(docs, "FineChunk").sync.retrieve("green tea")
        expected = Retriever(docs, "FineChunk", "bm25_chinese")("green tea", topk=5)
        assert told(result) == [(node.uid, node.score) for node in expected]

    def test_hybrid_search_where_there_are(self, embedded):
        """As `HybridRetriever.over` ranks them; also where the embedder has token embeddings, which
        are not asked.
        """
        expected = HybridRetriever.over(embedded, "FineChunk")("green tea", topk=5)
        pipeline = RAGPipeline.over(embedded, "FineChunk")
        assert told(pipeline.sync.retrieve("green tea")) == [
            (node.uid, node.score) for node in expected
        ]
        assert not pipeline.reranks

    def test_a_registered_reranker_of_the_settings_reranks(self, embedded):
        """By its name, such as that of the late-interaction reranker, which needs a model with
        token embeddings.
        """
        settings = PipelineSettings(reranker_model="BM25Reranker", rag_use_hybrid_search=True)
        pipeline = RAGPipeline.over(embedded, "FineChunk", settings=settings)
        assert pipeline.reranks
        assert pipeline.sync.retrieve_and_rerank("green tea").metadata["reranker"] == "BM25Reranker"
        with pytest.raises(ConfigError, match="no embedder gives token embeddings"):
            RAGPipeline.over(
                embedded, "FineChunk", settings=PipelineSettings(reranker_model="MaxSimReranker")
            ).sync.retrieve_with_context("green tea")

    @pytest.mark.parametrize(
        ("parts", "settings", "message"),
        [
            (
                {},
                {"rag_use_hybrid_search": True},
                "rag_use_hybrid_search=True has no effect: the retriever",
            ),
            ({}, {"hybrid_vector_weight": 0.5}, "hybrid_vector_weight=0.5 has no effect"),
            (
                {},
                {"hybrid_fusion_method": "weighted"},
                "hybrid_fusion_method='weighted' has no effect",
            ),
            ({}, {"rag_use_reranker": True}, "no rerank model 'BAAI/bge-reranker-large'"),
            (
                {"reranker": Reranker("BM25Reranker")},
                {"reranker_model": "m"},
                "reranker_model='m' has no effect",
            ),
            (
                {"reranker": Reranker("BM25Reranker")},
                {"reranker_batch_size": 2},
                "reranker_batch_size=2 has no effect",
            ),
            (
                {},
                {"reranker_model": "BM25Reranker", "reranker_batch_size": 2},
                "reranker_batch_size=2 has no effect",
            ),
        ],
    )
    def test_a_setting_that_cannot_act_is_refused(
        self, docs, monkeypatch, tmp_path, parts, settings, message
    ):
        """On a pipeline of parts, which has its retriever, and with a reranker of its own."""
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
        retriever = Retriever(docs, "FineChunk", "bm25")
        with pytest.raises(ConfigError, match=message):
            RAGPipeline(retriever=retriever, settings=PipelineSettings(**settings), **parts)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"hybrid_vector_weight": 0.5},
                "hybrid_vector_weight=0.5 has no effect: rag_use_hybrid_search is False",
            ),
            ({"hybrid_fusion_method": "weighted"}, "hybrid_fusion_method='weighted' has no effect"),
            (
                {"reranker_model": "m"},
                "reranker_model='m' has no effect: rag_use_reranker is False",
            ),
            ({"reranker_batch_size": 2}, "reranker_batch_size=2 has no effect"),
            (
                {"rag_use_hybrid_search": True, "hybrid_vector_weight": 0.5},
                r"specification 003's RRF takes none.*HybridRetriever\(..., weights=\[0.5, 0.3\]\)",
            ),
        ],
    )
    def test_a_setting_without_the_search_or_reranker_it_is_for_is_refused(
        self, embedded, settings, message
    ):
        """Also over Documents; `rag_rerank_top_k` acts in `retrieve_and_rerank`, which always
        reranks.
        """
        quiet = PipelineSettings(rag_use_reranker=False, rag_rerank_top_k=1)
        pipeline = RAGPipeline.over(embedded, "FineChunk", settings=quiet)
        assert len(pipeline.sync.retrieve_and_rerank("green tea")) == 1
        with pytest.raises(ConfigError, match=message):
            RAGPipeline.over(
                embedded,
                "FineChunk",
                settings=PipelineSettings(**{"rag_use_reranker": False} | settings),
            )

    def test_several_documents(self, docs, embedded):
        """They are asked together; one without embeddings makes it by words."""
        other = Document()
        other.add_texts({"oolong.txt": "Oolong tea wants water of 95 degrees."})
        result = RAGPipeline.over([docs, other], "FineChunk").sync.retrieve("oolong")
        assert [hit.source for hit in result] == ["oolong.txt"]

    def test_settings_say_by_meaning_alone(self, embedded):
        """As they do by default, where they are given."""
        settings = PipelineSettings(rag_use_reranker=False)
        result = RAGPipeline.over(embedded, "FineChunk", settings=settings).sync.retrieve(
            "green tea"
        )
        expected = Retriever(embedded, "FineChunk", "cosine")("green tea", topk=5)
        assert told(result) == [(node.uid, node.score) for node in expected]

    @pytest.mark.parametrize("method", ["rrf", "weighted"])
    def test_settings_say_a_hybrid(self, embedded, method):
        """With their method and weights."""
        own = (
            {"hybrid_vector_weight": 0.2, "hybrid_bm25_weight": 0.8} if method == "weighted" else {}
        )
        settings = PipelineSettings(
            rag_use_hybrid_search=True, rag_use_reranker=False, hybrid_fusion_method=method, **own
        )
        result = RAGPipeline.over(embedded, "FineChunk", settings=settings).sync.retrieve(
            "green tea"
        )
        weights = {"weights": [0.2, 0.8]} if method == "weighted" else {}
        vector, words = (
            Retriever(embedded, "FineChunk", "cosine"),
            Retriever(embedded, "FineChunk", "bm25_chinese"),
        )
        expected = HybridRetriever(vector, words, fusion_method=method, **weights)(
            "green tea", topk=5
        )
        assert told(result) == [(node.uid, node.score) for node in expected]

    def test_a_hybrid_needs_embeddings(self, docs):
        """Else the settings cannot be followed."""
        settings = PipelineSettings(rag_use_hybrid_search=True, rag_use_reranker=False)
        with pytest.raises(ConfigError, match="has no embeddings"):
            RAGPipeline.over(docs, "FineChunk", settings=settings)

    def test_the_cross_encoder_of_the_settings_reranks(self, docs, tmp_path):
        """A folder on this machine; contexts are made of what it leaves."""
        folder = write_cross_encoder(tmp_path / "cross-encoder")
        settings = PipelineSettings(
            reranker_model=str(folder), reranker_batch_size=2, rag_rerank_top_k=2
        )
        pipeline = RAGPipeline.over(docs, "FineChunk", settings=settings)
        reranked = pipeline.sync.retrieve_and_rerank("water", top_k=4)
        assert len(reranked) == 2
        context = pipeline.sync.retrieve_with_context("water", top_k=4)
        assert told(context.sources) == told(reranked)
        assert set(context.metadata["seconds"]) == {"retrieve", "rerank", "hits", "context"}

    def test_a_cross_encoder_that_is_not_there_is_an_error(self, docs, monkeypatch, tmp_path):
        """Nothing is downloaded; the message says what may be done."""
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(ConfigError, match="rag_use_reranker to False"):
            RAGPipeline.over(docs, "FineChunk", settings=PipelineSettings())

    def test_something_else_than_documents_is_refused(self):
        """By name."""
        with pytest.raises(ConfigError, match="a Document or a list"):
            RAGPipeline.over("folder", "FineChunk")


class TestRerank:
    """`retrieve_and_rerank`."""

    def shortest(self, query, documents, top_n):
        """A rerank model: the shorter the better."""
        return [(at, -float(len(text))) for at, text in enumerate(documents)]

    def test_hits_have_the_rerankers_scores_and_order(self, docs):
        """As a callable, a `Reranker` over nodes, and an asynchronous reranker: all three alike."""
        retriever = BM25Retriever(docs, "FineChunk")
        rerankers = (
            self.shortest,
            Reranker("ModuleReranker", model=self.shortest),
            AsyncReranker(self.shortest),
        )
        results = [
            told(
                RAGPipeline(retriever=retriever, reranker=one).sync.retrieve_and_rerank(
                    "water", 4, 2
                )
            )
            for one in rerankers
        ]
        assert results[0] == results[1] == results[2]
        assert [score for _, score in results[0]] == [-30.0, -33.0]

    def test_three_are_left_unless_told(self, docs):
        """Spec 003's default."""
        pipeline = RAGPipeline(retriever=BM25Retriever(docs, "FineChunk"), reranker=self.shortest)
        assert len(pipeline.sync.retrieve_and_rerank("water")) == 3

    def test_a_reranker_over_nodes_reranks_hits_too(self):
        """Those of a collection, for one, which have no nodes."""
        hits = [
            Hit("1", "iced tea", 0.9, "a.txt", metadata={"k": 1}),
            Hit("2", "green tea", 0.1, "b.txt"),
        ]
        reranker = Reranker("KeywordFilter", exclude_keys=["iced"])
        pipeline = RAGPipeline(
            retriever=lambda query, filters=None, topk=None: hits, reranker=reranker
        )
        assert list(pipeline.sync.retrieve_and_rerank("tea")) == [hits[1]]

    def test_hits_of_one_id_are_reranked_each(self):
        """Ids are the collection's own."""
        hits = [Hit("1", "black tea", 0.9), Hit("1", "green tea", 0.1), Hit("", "coffee", 0.1)]
        pipeline = RAGPipeline(
            retriever=lambda query, filters=None, topk=None: hits,
            reranker=Reranker("ModuleReranker", model=self.shortest),
        )
        found = pipeline.sync.retrieve_and_rerank("tea")
        assert [(hit.text, hit.score) for hit in found] == [
            ("coffee", -6.0),
            ("black tea", -9.0),
            ("green tea", -9.0),
        ]

    def test_nothing_found_is_nothing_to_rerank(self, docs):
        """The model is not asked."""

        def never(query, documents, top_n):
            raise AssertionError

        pipeline = RAGPipeline(retriever=BM25Retriever(docs, "FineChunk"), reranker=never)
        assert list(pipeline.sync.retrieve_and_rerank("zebra")) == []

    def test_without_a_reranker_it_is_bm25(self, docs, embedded):
        """The result names it; contexts are not reranked."""
        for pipeline in (
            RAGPipeline.over(docs, "FineChunk"),
            RAGPipeline.over(embedded, "FineChunk"),
            RAGPipeline(
                retriever=lambda query, filters=None, topk=None: [
                    Hit("1", "tea", 1.0),
                    Hit("2", "water", 0.5),
                ]
            ),
        ):
            found = pipeline.sync.retrieve("water")
            reranked = pipeline.sync.retrieve_and_rerank("water", rerank_top_k=1)
            assert reranked.metadata["reranker"] == "BM25Reranker"
            assert "water" in reranked[0].text
            assert len(reranked) == 1
            assert not pipeline.reranks
            assert told(pipeline.sync.retrieve_with_context("water").sources) == told(found)

    def test_what_a_reranker_raises_goes_on(self, docs):
        """As an error of retrieval."""

        def fails(query, documents, top_n):
            raise OSError("gone")

        pipeline = RAGPipeline(retriever=BM25Retriever(docs, "FineChunk"), reranker=fails)
        with pytest.raises(RetrievalError, match="gone"):
            pipeline.sync.retrieve_and_rerank("tea")

    def test_settings_can_leave_it_out_of_contexts(self, docs):
        """`retrieve_and_rerank` still reranks."""
        retriever = BM25Retriever(docs, "FineChunk")
        settings = PipelineSettings(rag_use_reranker=False)
        pipeline = RAGPipeline(retriever=retriever, reranker=self.shortest, settings=settings)
        context = pipeline.sync.retrieve_with_context("water")
        assert told(context.sources) == told(pipeline.sync.retrieve("water"))
        assert told(pipeline.sync.retrieve_and_rerank("water")) != told(context.sources)[:3]


class TestContext:
    """`build_context` and `retrieve_with_context`."""

    def test_a_context_of_results_has_their_question(self, docs):
        """It stands in the result's metadata; another one may be given; a plain list has none."""
        pipeline = RAGPipeline.over(docs, "FineChunk")
        results = pipeline.sync.retrieve("green tea")
        assert "Question: green tea" in pipeline.sync.build_context(results)
        assert "Question: which?" in pipeline.sync.build_context(results, query="which?")
        assert "Question" not in pipeline.sync.build_context(list(results))

    def test_it_is_the_builders(self, docs):
        """The same text, within the same budget."""
        builder = ContextBuilder(counter="utf8", order="lost_in_the_middle")
        pipeline = RAGPipeline(retriever=BM25Retriever(docs, "FineChunk"), context_builder=builder)
        results = pipeline.sync.retrieve("water")
        assert pipeline.sync.build_context(results, 120) == builder.build_context(
            "water", results, 120
        )

    def test_retrieval_and_context_in_one(self, docs):
        """The sources are the hits in the order of their numbers, and the seconds of each stage are
        told.
        """
        pipeline = RAGPipeline.over(docs, "FineChunk")
        context = pipeline.sync.retrieve_with_context("green tea", top_k=2, max_tokens=300)
        assert isinstance(context, RAGContext)
        assert context.query == "green tea"
        assert told(context.sources) == told(pipeline.sync.retrieve("green tea", top_k=2))
        assert context.total_tokens == ContextBuilder().count_tokens(context.context) <= 300
        assert set(context.metadata["seconds"]) == {"retrieve", "hits", "context"}

    def test_a_budget_that_is_too_small_is_an_error(self, docs):
        """With both numbers."""
        with pytest.raises(ConfigError, match="max_tokens"):
            RAGPipeline.over(docs, "FineChunk").sync.retrieve_with_context(
                "green tea", max_tokens=5
            )


class TestLoops:
    """Event loops and threads."""

    def test_the_loop_is_not_held_up(self, docs):
        """While a retriever works, other tasks of the loop go on."""
        asked = threading.Event()
        let_go = threading.Event()

        def slow(query, filters=None, topk=None):
            asked.set()
            assert let_go.wait(PATIENCE_S)
            return []

        async def main():
            retrieving = asyncio.ensure_future(RAGPipeline(retriever=slow).retrieve("tea"))
            assert await asyncio.to_thread(asked.wait, PATIENCE_S)
            ticks = 0
            for _ in range(20):
                await asyncio.sleep(0)
                ticks += 1
            let_go.set()
            await retrieving
            return ticks

        assert asyncio.run(main()) == 20

    def test_a_sync_call_inside_of_a_running_loop(self, docs):
        """As in a notebook, whose cells run in one."""
        pipeline = RAGPipeline.over(docs, "FineChunk")

        async def cell():
            return pipeline.sync.retrieve("green tea")[0].source

        assert asyncio.run(cell()) == "green.txt"

    @pytest.mark.slow
    def test_fifty_questions_at_once(self, docs):
        """Each gets its own answer."""
        docs.add_texts({f"tea {number}.txt": f"tea numbered {number}" for number in range(50)})
        pipeline = RAGPipeline.over(docs, "FineChunk", generator=lambda prompt: "It is so [1].")

        async def ask():
            return await asyncio.gather(
                *(pipeline.answer(f"numbered {number}", top_k=1) for number in range(50))
            )

        answers = asyncio.run(ask())
        assert [answer.citations[0].source for answer in answers] == [
            f"tea {number}.txt" for number in range(50)
        ]

    def test_context_variables_reach_the_retriever(self):
        """Of the caller, in the thread it works in."""
        who = contextvars.ContextVar("who", default="nobody")

        def finds(query, filters=None, topk=None):
            return [Hit(who.get(), "tea", 1.0)]

        who.set("the caller")
        assert RAGPipeline(retriever=finds).sync.retrieve("tea")[0].id == "the caller"

    def test_seconds_are_those_of_the_stage(self):
        """A retriever that takes its time is seen to."""

        def slow(query, filters=None, topk=None):
            time.sleep(0.02)
            return [Hit("1", "tea", 1.0)]

        context = RAGPipeline(retriever=slow).sync.retrieve_with_context("tea")
        assert context.metadata["seconds"]["retrieve"] >= 0.02


class FakeClient:
    """What `MilvusCollection` looks for in a client; the real ones are asked in tests/live."""

    def search(self, **_):
        """Rows."""

    describe_collection = list_collections = describe_index = list_indexes = search


def test_a_collection_shows_what_it_lacks():
    """A client without a method is no client; one with all of them is taken."""
    assert MilvusCollection(FakeClient(), "articles").name == "articles"
    with pytest.raises(ConfigError, match="has no search"):
        MilvusCollection("http://localhost:19530")
    with pytest.raises(ConfigError, match="embedding_manager must be"):
        RAGPipeline(7, FakeClient())


def test_a_pipeline_shows_its_parts(docs):
    """What finds, what reranks, what generates."""
    retriever = Retriever(docs, "FineChunk", "bm25")
    pipeline = RAGPipeline(retriever=retriever, reranker=Reranker("BM25Reranker"))
    assert (
        repr(pipeline)
        == f"RAGPipeline({callable_name(retriever)!r}, reranker='BM25Reranker', generator=None)"
    )
    assert repr(pipeline.sync).endswith(".sync")


def test_the_waiting_methods_name_unknown_keywords_too():
    """As the coroutines do; and a stream refuses a question that is no text when it is asked, not
    when it is read.
    """
    pipeline = RAGPipeline(
        retriever=lambda query, filters=None, topk=None: [], generator=lambda prompt: "x"
    )
    with pytest.raises(UnknownKeywordError, match="Did you mean 'top_k'"):
        pipeline.sync.retrieve("tea", topk=3)
    with pytest.raises(ConfigError, match="12"):
        pipeline.sync.stream(12)
    with pytest.raises(ConfigError, match="a Document or a list"):
        RAGPipeline.over("corpus", "FineChunk")
