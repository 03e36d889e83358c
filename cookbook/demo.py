"""`make demo`: index a small bilingual folder, search it, and answer with citations. No
configuration.

Keyword search without a model; hybrid search if LAZYRAG_EMBED_MODEL, or one of `MODELS`, is on this
machine. The index is stored in build/demo below the current folder: the next run opens it and
answers at once.
"""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

began = time.perf_counter()
# imports take a while
print("Searching the 20 files of cookbook/corpus, in English and Chinese ...", flush=True)

from lazyrag import DocNode, Document, OnnxEmbedder, RAGPipeline, Retriever  # noqa: E402
from lazyrag.errors import ConfigError, MissingDependencyError  # noqa: E402
from lazyrag.generation.extractive import rank_units  # noqa: E402

# Models that read both languages, with the prefixes that they expect of queries and documents.
MODELS = {"intfloat/multilingual-e5-small": ("query: ", "passage: "), "BAAI/bge-m3": ("", "")}
CORPUS = Path(__file__).parent / "corpus"
STORE = Path("build", "demo", "store.db")


def show(query: str, nodes: Iterable[DocNode], how: str) -> None:
    """Print ranked nodes: file, location and the best matching sentence."""
    print(f"\n{query}   ({how})")
    for rank, node in enumerate(nodes, start=1):
        print(f"  {rank}. {node.path}, {node.location}")
        best = rank_units(query, [node.text])[0].unit
        sentence = textwrap.shorten(node.text[best.start : best.end], 140, placeholder=" ...")
        print(textwrap.indent(textwrap.fill(sentence, 74), "     "))


def fetched_model() -> OnnxEmbedder | None:
    """An embedding model on this machine; nothing is downloaded."""
    if own := os.environ.get("LAZYRAG_EMBED_MODEL"):
        return OnnxEmbedder(own)
    for name, (query, document) in MODELS.items():
        with suppress(ConfigError, MissingDependencyError):
            return OnnxEmbedder(name, query_prefix=query, document_prefix=document)
    return None


def main() -> None:
    """Load or open, search, filter, map to the parent group, answer."""
    STORE.parent.mkdir(parents=True, exist_ok=True)
    model = fetched_model()
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": STORE}}}
    with Document(CORPUS, embed=model, store_conf=conf) as docs:
        print(f"{docs.sync()} ({time.perf_counter() - began:.1f} s)")
        if model is None:
            print("Keyword search. For hybrid search, fetch a model and run this again:")
            print(
                f'  .venv/bin/pip install ".[onnx]" && .venv/bin/lazyrag model fetch {next(iter(MODELS))}'
            )
        else:
            print(
                f"Hybrid search with {model.name}. The first search embeds the chunks, once ...",
                flush=True,
            )
        search(docs, "keyword search" if model is None else "hybrid search")
        # one group with embeddings is enough
        answer(docs, "FineChunk" if model is None else "MediumChunk")
    print(f"\nThe index is in {STORE}; a second run only opens it. Now your own folder:")
    print("  .venv/bin/lazyrag index FOLDER")


def search(docs: Document, how: str) -> None:
    """Search chunks in two languages, single sentences, and PDF files only."""
    for query in (
        "What ratio of petrol and oil goes into a brush cutter?",
        "采摘工采一公斤单芽能拿多少钱？",
    ):
        show(query, docs.search(query, topk=2), how)
    query = "dryer temperature"
    show(
        query, docs.search(query, topk=2, filters={"file_type": [".pdf"]}), f"{how}, only PDF files"
    )

    docs.create_node_group("section", transform=lambda text: text.split("\n\n"))
    docs.create_node_group(
        "sentence", transform="SentenceSplitter", parent="section", chunk_size=60, chunk_overlap=0
    )
    query = "How much water fits into the reservoir above the terraces?"
    hits = Retriever(docs, "sentence", similarity="bm25", topk=1)(query)
    show(query, hits, "single sentences")
    print("     its parent, the section:")
    print(textwrap.indent(textwrap.fill(" ".join(hits[0].parent.text.split()), 75), "       "))


def answer(docs: Document, group: str) -> None:
    """Answer with citations. Without a chat model an answer is a quotation."""
    pipeline = RAGPipeline.over(docs, group)
    for query in (
        "What ratio of petrol and oil goes into a brush cutter?",
        "茶园里的杀虫灯一个晚上应该开多久？",
    ):
        print(f"\n{query}   (answer with citations)")
        found = pipeline.sync.answer(query)
        print(textwrap.indent(textwrap.fill(found.text, 76), "  "))
        for citation in found.citations:
            print(f"  [{citation.index}] {citation.label}")


if __name__ == "__main__":
    main()
