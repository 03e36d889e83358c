"""`make demo`: index a small bilingual folder and query it. No model, no configuration.

The index is stored in build/demo below the current folder: the next run opens it and answers at once.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable
from pathlib import Path

from lazyrag import DocNode, Document, Reranker, Retriever
from lazyrag.text.analyzers import chinese_terms
from lazyrag.text.sentences import sentence_spans

CORPUS = Path(__file__).parent / "corpus"
STORE = Path("build", "demo", "store.db")


def show(title: str, query: str, nodes: Iterable[DocNode], *, whole: bool = False) -> None:
    """Print ranked nodes: score, file, location, and the best matching sentence, or the complete text."""
    print(f"\n{title}\n  {query}")
    terms = set(chinese_terms(query))
    for rank, node in enumerate(nodes, start=1):
        sentences = (node.text[start:end] for start, end in sentence_spans(node.text))
        best = " ".join(max(sentences, key=lambda sentence: len(terms & set(chinese_terms(sentence)))).split())
        print(f"  {rank}. {node.score:5.2f}  {node.path}, {node.location}")
        text = " ".join(node.text.split()) if whole else best
        print(f"            {textwrap.shorten(text, 320, placeholder=' ...')}")


def share_of_terms(query: str, documents: list[str], top_n: int) -> list[tuple[int, float]]:
    """A small rerank model: the fraction of the query's terms that a text contains."""
    terms = set(chinese_terms(query))
    shares = [len(terms & set(chinese_terms(text))) / len(terms) for text in documents]
    return sorted(enumerate(shares), key=lambda pair: -pair[1])[:top_n]


def main() -> None:
    """Load or open, search, map to the parent group, filter, rerank."""
    STORE.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with Document(CORPUS, store_conf={"segment_store": {"type": "map", "kwargs": {"uri": STORE}}}) as docs:
        ask(docs, started)
    print(f"\nEverything is stored in {STORE}. Run it again: nothing is read, split or indexed.")


def ask(docs: Document, started: float) -> None:
    """Run queries; the first one loads and builds what is missing."""
    docs.create_node_group("section", transform=lambda text: text.split("\n\n"))
    docs.create_node_group("sentence", transform="SentenceSplitter", parent="section", chunk_size=60, chunk_overlap=0)

    chinese = Retriever(docs, "FineChunk", similarity="bm25_chinese", topk=3)
    english = Retriever(docs, "FineChunk", similarity="bm25", topk=3)

    query = "What ratio of petrol and oil goes into a brush cutter?"
    hits = english(query)
    print(f"{docs.last_report}. First answer {time.perf_counter() - started:.2f} s after the start.")
    show("bm25", query, hits)

    query = "采摘工采一公斤单芽能拿多少钱？"
    show("bm25_chinese (the first query of a program loads the dictionary)", query, chinese(query))

    query = "How much water fits into the reservoir above the terraces?"
    hits = Retriever(docs, "sentence", similarity="bm25", topk=1)(query)
    show("bm25 on single sentences", query, hits)
    show(
        "... and its parent: the section that contains the sentence",
        query,
        docs.find_parent("section")(hits),
        whole=True,
    )

    query = "dryer temperature"
    show("bm25, only PDF files", query, english(query, filters={"file_type": [".pdf"]}))

    query = "茶园里的杀虫灯一个晚上应该开多久？"
    show("bm25_chinese", query, chinese(query))
    rerank = Reranker("ModuleReranker", model=share_of_terms, topk=3)
    show(
        "... ten candidates, reranked by the fraction of the query's terms",
        query,
        rerank(chinese(query, topk=10), query),
    )


if __name__ == "__main__":
    main()
