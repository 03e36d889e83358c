"""Every kind of retriever, by name: how it is made over a `Library`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag import (
    BM25Retriever,
    Condition,
    DocNode,
    HybridRetriever,
    Reranker,
    RetrievalChain,
    Retriever,
)
from lazyrag.ranking import KeywordSetting, VectorSetting, Weights
from lazyrag.retrieval import (
    MMR,
    AutoMerge,
    FeedbackRetriever,
    MultiQueryRetriever,
    RetrievalMethod,
    ScoreThreshold,
    Windows,
    retriever_for,
)
from tests.behaviour.library import Library

EXACT = None
ROUNDED = 6
"""Decimals of scores in which products of vectors count: their last bits depend on the machine."""


@dataclass(frozen=True)
class Case:
    """A retriever.

    Args:
        make: Makes it over a library.
        decimals: To how many its scores are rounded; None for not at all.
        filters: Whether it is asked with filters.
        explains: Whether it is asked why.
        is_sparse: Whether it needs the Document with sparse vectors.
        is_native: Whether it asks the vector store's own search, whose scores are promised for
            `map` alone.
    """

    make: Callable[[Library], Any]
    decimals: int | None = EXACT
    filters: bool = True
    explains: bool = True
    is_sparse: bool = False
    is_native: bool = False


def rewritten(query: str) -> list[str]:
    """A deterministic rewriter: the query's first word, and its words in reverse."""
    words = query.split()
    return [words[0], " ".join(reversed(words))]


def overlap(query: str, documents: Sequence[str], top_n: int) -> list[tuple[int, float]]:
    """A rerank model: how many words a text shares with the query."""
    words = set(query.casefold().split())
    return [
        (index, float(len(words & set(text.casefold().split()))))
        for index, text in enumerate(documents)
    ]


def one_per_file(nodes: list[DocNode], query: str) -> list[DocNode]:
    """A user's step: the best node of each file."""
    best: dict[str, DocNode] = {}
    for node in nodes:
        best.setdefault(node.path, node)
    return list(best.values())


def own_search(lib: Library) -> Callable[..., list[DocNode]]:
    """A user's retriever: a function."""

    def lines_with(query: str, filters: Any = None, topk: int | None = None) -> list[DocNode]:
        words = query.casefold().split()
        found = [
            node.with_score(float(len(words)) / (1 + node.number))
            for node in lib.docs.get_nodes("line", filters=filters)
            if any(word in node.text.casefold() for word in words)
        ]
        return sorted(found, key=lambda node: (-(node.score or 0), node.uid))[:topk]

    return lines_with


def english(lib: Library, **more: Any) -> Any:
    """By words, English."""
    return Retriever(lib.docs, "line", similarity="bm25", **{"topk": 4, **more})


def chinese(lib: Library, **more: Any) -> Any:
    """By words, Chinese."""
    return Retriever(lib.docs, "line", similarity="bm25_chinese", **{"topk": 4, **more})


def dense(lib: Library, **more: Any) -> Any:
    """By one embed key."""
    return Retriever(lib.docs, "line", **{"topk": 4, "embed_keys": ["letters"], **more})


def hybrid(lib: Library, **more: Any) -> Any:
    """By words and one embed key."""
    return HybridRetriever(dense(lib), chinese(lib), **{"topk": 4, **more})


def in_memory(lib: Library) -> BM25Retriever:
    """Without a Document's index: texts that are handed over."""
    made = BM25Retriever(topk=4)
    made.index_documents(
        [
            {"id": f"text-{number}", "text": node.text}
            for number, node in enumerate(lib.docs.get_nodes("line"))
        ]
    )
    return made


CASES: dict[str, Case] = {
    "bm25": Case(english),
    "bm25 okapi": Case(lambda lib: english(lib, variant="okapi", k1=1.2, b=0.5)),
    "bm25 analyser zh": Case(lambda lib: english(lib, analyser="zh")),
    "bm25 cut-off": Case(lambda lib: english(lib, similarity_cut_off=2.0, topk=8)),
    "bm25 target section": Case(lambda lib: english(lib, target="section")),
    "bm25 target word": Case(lambda lib: english(lib, target="word", topk=1)),
    "bm25 target root": Case(lambda lib: english(lib, target="lazyllm_root")),
    "bm25 FineChunk": Case(lambda lib: Retriever(lib.docs, "FineChunk", similarity="bm25", topk=4)),
    "bm25 root": Case(lambda lib: Retriever(lib.docs, "lazyllm_root", similarity="bm25", topk=4)),
    "bm25 dated": Case(lambda lib: Retriever(lib.docs, "dated", similarity="bm25", topk=4)),
    "bm25 content": Case(lambda lib: english(lib, output_format="content"), explains=False),
    "bm25 joined": Case(
        lambda lib: english(lib, output_format="content", join=" | "), explains=False
    ),
    "bm25 dict": Case(lambda lib: english(lib, output_format="dict"), explains=False),
    "bm25 two Documents": Case(
        lambda lib: Retriever([lib.docs, lib.notes], "line", similarity="bm25", topk=6),
    ),
    "bm25 two Documents dict": Case(
        lambda lib: Retriever(
            [lib.notes, lib.docs], "line", similarity="bm25", topk=6, output_format="dict"
        ),
        explains=False,
    ),
    "bm25_chinese": Case(chinese),
    "bm25_chinese sentence": Case(
        lambda lib: Retriever(lib.docs, "sentence", similarity="bm25_chinese", topk=4)
    ),
    "cosine": Case(dense, ROUNDED),
    "cosine pairs": Case(lambda lib: dense(lib, embed_keys=["pairs"]), ROUNDED),
    "cosine all keys": Case(lambda lib: Retriever(lib.docs, "line", topk=4)),
    "cosine cut-off": Case(lambda lib: dense(lib, similarity_cut_off=0.9), ROUNDED),
    "cosine cut-offs": Case(
        lambda lib: Retriever(
            lib.docs, "line", topk=4, similarity_cut_off={"letters": 0.8, "pairs": 0.5}
        )
    ),
    "cosine target root": Case(lambda lib: dense(lib, target="lazyllm_root"), ROUNDED),
    "cosine two Documents": Case(
        lambda lib: Retriever([lib.docs, lib.notes], "line", topk=6, embed_keys=["letters"]),
        ROUNDED,
    ),
    "cosine smart": Case(
        lambda lib: dense(lib, index="smart_embedding_index"), ROUNDED, is_native=True
    ),
    "cosine towards": Case(
        lambda lib: dense(lib).with_feedback(lib.docs.get_nodes("line", limit=2), weight=0.5),
        ROUNDED,
    ),
    "sparse": Case(lambda lib: Retriever(lib.sparse, "line", topk=4), is_sparse=True),
    "sparse ip cut-off": Case(
        lambda lib: Retriever(lib.sparse, "line", "ip", topk=4, similarity_cut_off=2.0),
        is_sparse=True,
    ),
    "shared_characters": Case(
        lambda lib: dense(lib, similarity="shared_characters", embed_keys=None)
    ),
    "all_words": Case(lambda lib: dense(lib, similarity="all_words", embed_keys=None)),
    "distance": Case(lambda lib: dense(lib, similarity="distance"), ROUNDED),
    "products": Case(lambda lib: dense(lib, similarity="products"), ROUNDED),
    "climbing": Case(lambda lib: Retriever(lib.docs, "sentence", similarity="climbing", topk=4)),
    "BM25Retriever": Case(lambda lib: BM25Retriever(lib.docs, "line", 4)),
    "BM25Retriever in memory": Case(in_memory, filters=False),
    "hybrid rrf": Case(hybrid),
    "hybrid rrf weights": Case(lambda lib: hybrid(lib, weights=[2, 1], k=20, depth=5)),
    "hybrid weighted": Case(
        lambda lib: hybrid(lib, fusion_method="weighted", weights=[0.6, 0.4]), ROUNDED
    ),
    "hybrid weighted Weights": Case(
        lambda lib: hybrid(
            lib,
            fusion_method="weighted",
            normalise="max",
            weights=Weights(VectorSetting(0.7, "provider", "model"), KeywordSetting(0.3)),
        ),
        ROUNDED,
    ),
    "hybrid comb_max": Case(lambda lib: hybrid(lib, fusion_method="comb_max"), ROUNDED),
    "hybrid comb_mnz": Case(lambda lib: hybrid(lib, fusion_method="comb_mnz"), ROUNDED),
    "hybrid dedupe": Case(lambda lib: hybrid(lib, dedupe="text")),
    "hybrid zero weight": Case(lambda lib: hybrid(lib, weights=[0, 1])),
    "hybrid two Documents": Case(
        lambda lib: HybridRetriever(
            english(lib), Retriever(lib.notes, "line", similarity="bm25_chinese"), topk=4
        )
    ),
    "hybrid with a function": Case(
        lambda lib: HybridRetriever(english(lib), own_search(lib), topk=4)
    ),
    "HybridRetriever.over": Case(
        lambda lib: HybridRetriever.over(lib.docs, "line", topk=4), ROUNDED
    ),
    "HybridRetriever.over letters": Case(
        lambda lib: HybridRetriever.over(
            lib.docs, "line", topk=4, embed_keys=["letters"], similarity="bm25"
        ),
        ROUNDED,
    ),
    "retriever_for keyword": Case(
        lambda lib: retriever_for(RetrievalMethod.KEYWORD_SEARCH, lib.docs, "line", topk=4)
    ),
    "retriever_for hybrid": Case(
        lambda lib: retriever_for(RetrievalMethod.HYBRID_SEARCH, lib.docs, "line", topk=4), ROUNDED
    ),
    "MultiQuery": Case(lambda lib: MultiQueryRetriever(english(lib), rewritten, topk=4)),
    "MultiQuery over hybrid": Case(
        lambda lib: MultiQueryRetriever(hybrid(lib), rewritten, n=1, topk=4)
    ),
    "Feedback": Case(lambda lib: FeedbackRetriever(dense(lib), nodes=2), ROUNDED),
    "Feedback over hybrid": Case(lambda lib: FeedbackRetriever(hybrid(lib), nodes=1, weight=0.4)),
    "chain": Case(lambda lib: RetrievalChain(english(lib), topk=3)),
    "chain dict": Case(
        lambda lib: RetrievalChain(english(lib), output_format="dict"), explains=False
    ),
    "RetrievalChain.over": Case(lambda lib: RetrievalChain.over(lib.docs, "line", topk=4), ROUNDED),
    "chain AutoMerge": Case(
        lambda lib: RetrievalChain(
            Retriever(lib.docs, "sentence", similarity="bm25", topk=8),
            AutoMerge(ratio=0.3, up_to="section"),
        )
    ),
    "chain Windows": Case(lambda lib: RetrievalChain(english(lib), Windows(before=1, after=1))),
    "chain Windows apart": Case(
        lambda lib: RetrievalChain(english(lib, topk=2), Windows(1, 0, merge=False))
    ),
    "chain MMR": Case(
        lambda lib: RetrievalChain(dense(lib, topk=8), MMR(lam=0.6, embed_key="letters", topk=3)),
        ROUNDED,
    ),
    "chain ScoreThreshold": Case(lambda lib: RetrievalChain(english(lib), ScoreThreshold(1.5))),
    "chain ScoreThreshold of best": Case(
        lambda lib: RetrievalChain(english(lib), ScoreThreshold(of_best=0.7))
    ),
    "chain KeywordFilter": Case(
        lambda lib: RetrievalChain(
            hybrid(lib),
            Reranker("KeywordFilter", required_keys=["tea"], exclude_keys=["hail"]),
            topk=3,
        )
    ),
    "chain ModuleReranker": Case(
        lambda lib: RetrievalChain(english(lib), Reranker("ModuleReranker", model=overlap), topk=3)
    ),
    "chain ModuleReranker weight": Case(
        lambda lib: RetrievalChain(
            hybrid(lib), Reranker("ModuleReranker", model=overlap, weight=0.5, topk=3)
        ),
        ROUNDED,
    ),
    "chain BM25Reranker": Case(
        lambda lib: RetrievalChain(dense(lib), Reranker("BM25Reranker", topk=3))
    ),
    "chain FusionReranker": Case(
        lambda lib: RetrievalChain(
            hybrid(lib),
            Reranker(
                "FusionReranker",
                rerankers=["BM25Reranker", Reranker("ModuleReranker", model=overlap)],
                topk=3,
            ),
        )
    ),
    "chain of all": Case(
        lambda lib: RetrievalChain(
            hybrid(lib),
            one_per_file,
            Reranker("ModuleReranker", model=overlap),
            MMR(lam=0.7, embed_key="pairs", topk=3),
            Windows(before=0, after=1),
            topk=2,
        ),
        ROUNDED,
    ),
    "chain in a hybrid": Case(
        lambda lib: HybridRetriever(
            RetrievalChain(english(lib), ScoreThreshold(of_best=0.5)), dense(lib), topk=4
        )
    ),
}

SCOPES: dict[str, Any] = {
    "authors": {"author": ["邓守义", "Luo Chunmei"]},
    "years": Condition("year", ">=", 2024),
    "one file": {"file_name": ["log-2023.txt"]},
}

RESTRICTED = (
    "bm25",
    "bm25_chinese",
    "bm25 target section",
    "cosine",
    "cosine all keys",
    "climbing",
    "hybrid rrf",
    "hybrid weighted",
    "MultiQuery",
    "Feedback",
    "chain AutoMerge",
    "chain Windows",
    "chain of all",
)
