"""The class of error that a wrong call raises, and one word of its message; the sentence is free to
change.
"""

from __future__ import annotations

import pytest

from lazyrag import (
    BM25Retriever,
    Condition,
    DataType,
    DocField,
    DocNode,
    Document,
    HybridRetriever,
    Reranker,
    RetrievalChain,
    Retriever,
    SentenceSplitter,
    explain,
    migrate,
    register_reranker,
    register_similarity,
    why_not,
)
from lazyrag.ranking import KeywordSetting, VectorSetting, Weights
from lazyrag.retrieval import (
    MMR,
    AutoMerge,
    FeedbackRetriever,
    MultiQueryRetriever,
    ScoreThreshold,
    Windows,
    retriever_for,
)
from tests.behaviour.retrievers import dense, english, hybrid, own_search


def _fails(query, documents=(), top_n=None):
    msg = "out of order"
    raise OSError(msg)


def _ask(lib, function, **how):
    """Ask by a user's similarity."""
    register_similarity(function, name="of a test", replace=True, **how)
    return Retriever(lib.docs, "line", similarity="of a test")("tea")


CALLS = {
    # Documents
    "a folder that is not there": (
        lambda lib: Document("no such folder"),
        "DatasetPathError",
        "no such folder",
    ),
    "a keyword nobody takes": (lambda lib: Document(embd=len), "UnknownKeywordError", "embed"),
    "the manager": (lambda lib: Document(manager="page"), "ConfigError", "manager"),
    "the launcher": (lambda lib: Document(launcher="cluster"), "ConfigError", "launcher"),
    "a blank name": (lambda lib: Document(name=" "), "ConfigError", "name"),
    "no callable as embed": (lambda lib: Document(embed=3), "ConfigError", "embed"),
    "no workers": (lambda lib: Document(workers=0), "ConfigError", "workers"),
    "an unknown store": (
        lambda lib: Document(store_conf={"segment_store": {"type": "mapp"}}),
        "ConfigError",
        "mapp",
    ),
    "an unknown part of store_conf": (
        lambda lib: Document(store_conf={"store": {}}),
        "ConfigError",
        "store",
    ),
    "a field without the type of its elements": (
        lambda lib: DocField(DataType.ARRAY),
        "ConfigError",
        "element_type",
    ),
    "a restriction without a condition": (
        lambda lib: lib.docs.restricted({}),
        "ConfigError",
        "restrict",
    ),
    "a restriction of None": (lambda lib: lib.docs.restricted(None), "ConfigError", "None"),
    # groups
    "an unknown group": (lambda lib: lib.docs.get_nodes("lines"), "NotRegisteredError", "lines"),
    "activating an unknown group": (
        lambda lib: lib.docs.activate_group("lines"),
        "NotRegisteredError",
        "lines",
    ),
    "another definition": (
        lambda lib: lib.docs.create_node_group("line", transform=lambda text: text.split(",")),
        "AlreadyRegisteredError",
        "line",
    ),
    "an unknown parent": (
        lambda lib: lib.docs.create_node_group("mine", transform=str.split, parent="lines"),
        "NotRegisteredError",
        "lines",
    ),
    "an unknown transform": (
        lambda lib: lib.docs.create_node_group("mine", transform="SentenceSpliter"),
        "NotRegisteredError",
        "SentenceSplitter",
    ),
    "a chunk of no size": (lambda lib: SentenceSplitter(chunk_size=0), "ConfigError", "chunk_size"),
    "an overlap as large as a chunk": (
        lambda lib: SentenceSplitter(chunk_size=10, chunk_overlap=10),
        "ConfigError",
        "chunk_overlap",
    ),
    "a limit below 0": (lambda lib: lib.docs.get_nodes("line", limit=-1), "ConfigError", "limit"),
    # retrievers
    "a Retriever of an unknown group": (
        lambda lib: Retriever(lib.docs, "lines", similarity="bm25"),
        "NotRegisteredError",
        "lines",
    ),
    "an unknown similarity": (
        lambda lib: english(lib, similarity_kw={"similarity": 1}),
        "UnknownKeywordError",
        "simil",
    ),
    "an unknown similarity's name": (
        lambda lib: Retriever(lib.docs, "line", similarity="bm52"),
        "NotRegisteredError",
        "bm52",
    ),
    "topk 0": (lambda lib: english(lib, topk=0), "ConfigError", "topk"),
    "topk True": (lambda lib: english(lib, topk=True), "ConfigError", "topk"),
    "topk of a call": (lambda lib: english(lib)("tea", topk=-1), "ConfigError", "topk"),
    "top_k": (lambda lib: english(lib, top_k=3), "UnknownKeywordError", "topk"),
    "an unknown target": (lambda lib: english(lib, target="lines"), "NotRegisteredError", "lines"),
    "an unknown output": (
        lambda lib: english(lib, output_format="text"),
        "ConfigError",
        "output_format",
    ),
    "joined nodes": (lambda lib: english(lib, join=True), "ConfigError", "join"),
    "an unknown index": (lambda lib: dense(lib, index="fast"), "NotRegisteredError", "fast"),
    "the server's own ranking": (
        lambda lib: english(lib, index="server")("tea"),
        "UnsupportedError",
        "index='server'",
    ),
    "embed keys of words": (
        lambda lib: english(lib, embed_keys=["letters"]),
        "ConfigError",
        "embed_keys",
    ),
    "an unknown embed key": (
        lambda lib: dense(lib, embed_keys=["letter"]),
        "ConfigError",
        "letter",
    ),
    "an inner product of dense vectors": (
        lambda lib: dense(lib, similarity="ip")("tea"),
        "ConfigError",
        "ip",
    ),
    "a cosine of sparse vectors": (
        lambda lib: Retriever(lib.sparse, "line", similarity="cosine")("tea"),
        "ConfigError",
        "cosine",
    ),
    "a cut-off that is a text": (
        lambda lib: english(lib, similarity_cut_off="1"),
        "ConfigError",
        "similarity_cut_off",
    ),
    "k1 below 0": (lambda lib: english(lib, k1=-1), "ConfigError", "k1"),
    "an unknown variant": (lambda lib: english(lib, variant="plus"), "ConfigError", "variant"),
    "a query that is no text": (lambda lib: english(lib)(3), "ConfigError", "3"),
    "no Document": (lambda lib: Retriever(None, "line", similarity="bm25"), "ConfigError", "None"),
    "one Document twice": (
        lambda lib: Retriever([lib.docs, lib.docs], "line", similarity="bm25"),
        "ConfigError",
        "twice",
    ),
    "no Documents": (
        lambda lib: Retriever([], "line", similarity="bm25"),
        "ConfigError",
        "Document",
    ),
    "no embed": (lambda lib: Retriever(Document(), "FineChunk"), "ConfigError", "embed"),
    # filters
    "an undeclared field": (
        lambda lib: english(lib)("tea", {"yaer": [2024]}),
        "ConfigError",
        "year",
    ),
    "a value of another type": (
        lambda lib: english(lib)("tea", {"year": ["2024"]}),
        "ConfigError",
        "year",
    ),
    "a number that contains": (
        lambda lib: english(lib)("tea", Condition("year", "contains", 2)),
        "ConfigError",
        "contains",
    ),
    "an unknown operator": (lambda lib: Condition("year", "~", 2), "ConfigError", "~"),
    "a condition as a truth": (lambda lib: bool(Condition("year", "==", 2)), "ConfigError", "&"),
    "a filter that is a text": (lambda lib: english(lib)("tea", "year"), "ConfigError", "year"),
    "a filter for texts in memory": (
        lambda lib: BM25Retriever()("tea", {"year": 2024}),
        "ConfigError",
        "filter",
    ),
    # several retrievers
    "a hybrid of nothing": (lambda lib: HybridRetriever(), "ConfigError", "HybridRetriever"),
    "an unknown fusion": (
        lambda lib: hybrid(lib, fusion_method="sum"),
        "NotRegisteredError",
        "sum",
    ),
    "a weight too few": (lambda lib: hybrid(lib, weights=[1]), "ConfigError", "weight"),
    "weights below 0": (lambda lib: hybrid(lib, weights=[1, -1]), "ConfigError", "weight"),
    "weights of a call": (lambda lib: hybrid(lib)("tea", weights=[0, 0]), "ConfigError", "weight"),
    "weights that add up to 2": (
        lambda lib: Weights(VectorSetting(1.0, "a", "b"), KeywordSetting(1.0)),
        "ConfigError",
        "1",
    ),
    "an unknown dedupe": (lambda lib: hybrid(lib, dedupe="uid"), "ConfigError", "dedupe"),
    "a hybrid of contents": (
        lambda lib: HybridRetriever(english(lib, output_format="content"), dense(lib)),
        "ConfigError",
        "output_format",
    ),
    "added distances": (
        lambda lib: HybridRetriever(
            dense(lib, similarity="distance"),
            english(lib),
            fusion_method="weighted",
            normalise="max",
        )("tea"),
        "ConfigError",
        "max",
    ),
    "a hybrid without embeddings": (
        lambda lib: HybridRetriever.over(Document(), "FineChunk"),
        "ConfigError",
        "embed",
    ),
    "an unknown method": (
        lambda lib: retriever_for("fuzzy", lib.docs, "line"),
        "ConfigError",
        "fuzzy",
    ),
    "a rewriter that is no callable": (
        lambda lib: MultiQueryRetriever(english(lib), "shorter"),
        "ConfigError",
        "rewrite",
    ),
    "a rewriter that gives no texts": (
        lambda lib: MultiQueryRetriever(english(lib), lambda query: 7)("tea"),
        "RetrievalError",
        "7",
    ),
    "feedback by words": (
        lambda lib: FeedbackRetriever(english(lib)),
        "ConfigError",
        "FeedbackRetriever",
    ),
    "a retriever that gives no nodes": (
        lambda lib: HybridRetriever(lambda query, filters=None, topk=None: ["tea"], english(lib))(
            "tea"
        ),
        "RetrievalError",
        "tea",
    ),
    "a function without scores, added": (
        lambda lib: HybridRetriever(
            lambda query, filters=None, topk=None: [DocNode(text="tea")],
            english(lib),
            fusion_method="weighted",
        )("tea"),
        "RetrievalError",
        "score",
    ),
    # users' similarities
    "a similarity that fails": (
        lambda lib: _ask(lib, _fails, batch=True),
        "RetrievalError",
        "out of order",
    ),
    "a similarity that gives a text": (
        lambda lib: _ask(lib, lambda query, node, **kwargs: "high"),
        "RetrievalError",
        "high",
    ),
    "a similarity with a node of its own": (
        lambda lib: _ask(
            lib, lambda query, nodes, **kwargs: [(DocNode(text="a"), 1.0)], batch=True
        ),
        "RetrievalError",
        "of a test",
    ),
    "an unknown mode": (
        lambda lib: register_similarity(_fails, mode="vector"),
        "ConfigError",
        "mode",
    ),
    "a taken name": (
        lambda lib: register_similarity(_fails, name="bm25"),
        "AlreadyRegisteredError",
        "bm25",
    ),
    # rerankers, chains, explanations
    "an unknown reranker": (lambda lib: Reranker("KeyFilter"), "NotRegisteredError", "KeyFilter"),
    "a reranker's unknown keyword": (
        lambda lib: Reranker("KeywordFilter", required=["tea"]),
        "UnknownKeywordError",
        "required_keys",
    ),
    "a reranker without its model": (
        lambda lib: Reranker("ModuleReranker"),
        "ConfigError",
        "model",
    ),
    "a model that fails": (
        lambda lib: RetrievalChain(english(lib), Reranker("ModuleReranker", model=_fails))("tea"),
        "RetrievalError",
        "ModuleReranker",
    ),
    "a weight above 1": (
        lambda lib: Reranker("ModuleReranker", model=_fails, weight=2),
        "ConfigError",
        "weight",
    ),
    "a registered reranker's name": (
        lambda lib: register_reranker(_fails, name="KeywordFilter"),
        "AlreadyRegisteredError",
        "KeywordFilter",
    ),
    "a chain without a retriever": (lambda lib: RetrievalChain(None), "ConfigError", "None"),
    "a step that is no callable": (
        lambda lib: RetrievalChain(english(lib), "MMR"),
        "ConfigError",
        "MMR",
    ),
    "a step that gives no nodes": (
        lambda lib: RetrievalChain(english(lib), lambda nodes, query: 3)("tea"),
        "RetrievalError",
        "3",
    ),
    "a threshold behind distances": (
        lambda lib: RetrievalChain(dense(lib, similarity="distance"), ScoreThreshold(3.0)),
        "ConfigError",
        "descend",
    ),
    "MMR's lam": (lambda lib: MMR(lam=2), "ConfigError", "lam"),
    "a window below 0": (lambda lib: Windows(before=-1), "ConfigError", "before"),
    "a ratio of 0": (lambda lib: AutoMerge(ratio=0), "ConfigError", "ratio"),
    "explaining no text": (lambda lib: explain(english(lib), None), "ConfigError", "None"),
    "explaining no retriever": (lambda lib: explain("bm25", "tea"), "ConfigError", "bm25"),
    "why not no uid": (lambda lib: why_not(english(lib), 3, "tea"), "ConfigError", "3"),
    "a function's filter": (lambda lib: own_search(lib)("tea", {"yaer": 1}), "ConfigError", "year"),
    # upkeep
    "a rollback of nothing": (
        lambda lib: lib.docs.versions.rollback("no such file"),
        "ConfigError",
        "no such file",
    ),
    "an import of nothing": (
        lambda lib: Document().maintenance.import_from("no such folder"),
        "ConfigError",
        "no such folder",
    ),
    "a migration from memory": (lambda lib: migrate({}, {}), "ConfigError", "store"),
    "a text without an id": (lambda lib: lib.docs.add_texts({"": "tea"}), "ConfigError", "id"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CALLS)
def test_wrong_calls(library_on, name):
    """The very class, not one above it."""
    call, error, word = CALLS[name]
    with pytest.raises(Exception) as caught:
        call(library_on("memory"))
    assert (type(caught.value).__name__, word in str(caught.value)) == (error, True), str(
        caught.value
    )
