"""Questions about code: do the definitions around a chunk help to find it?

    python benchmarks/codebases.py

The 737 chunks of nine codebases and half of the 248 questions that Anthropic published for its
contextual retrieval, as files of text and as files of code. Indexes read before a chunk of code the
first lines of the blocks around it. Pass@k: the share of a question's right chunks among the first
k, the mean over questions; of every second question as well. It needs the shared data beside the
checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results

from lazyrag import DocNode, Document, HybridRetriever, OnnxEmbedder, RetrievalChain, Retriever
from lazyrag.groups.node_group import INDEX_FIELDS
from tests.shared import SHARED

DATA = SHARED / "data" / "codebases"
CUTS = (5, 10, 20)
SUFFIXES = (
    (".java", r"^package [\w.]+;"),
    (".cpp", r"^#include|^namespace "),
    (".rs", r"^\s*(?:pub )?(?:fn|use|impl|mod) "),
    (".py", r"^\s*(?:def|import|from) "),
)
"""The files have no names: their language is recognised by a line."""


def suffix_of(code: str) -> str:
    """The suffix of a file of code."""
    for suffix, line in SUFFIXES:
        if re.search(line, code, re.MULTILINE):
            return suffix
    return ".js"


def measure(
    ask: Callable[[str], Sequence[DocNode]], chunks: Mapping[tuple[str, int], tuple[str, int]]
) -> Iterator[tuple[str, list[float]]]:
    """The figures of all questions, and of each half."""
    passed = []
    for line in (DATA / "questions.jsonl").read_text("utf-8").splitlines():
        question = json.loads(line)
        golden = {(uid, number) for uid, number in question["golden"]}
        ranking = [chunks[node.path, node.number] for node in ask(question["question"])]
        passed.append([len(golden & set(ranking[:cut])) / len(golden) for cut in CUTS])
    for half, rows in (("all", passed), ("even", passed[::2]), ("odd", passed[1::2])):
        yield half, [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def main() -> int:
    """Measure, and write the figures."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    embedder = OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")
    files = json.loads((DATA / "chunks.json").read_text("utf-8"))
    pieces: dict[str, list[str]] = {}
    rows: list[results.Row] = []
    for kind in ("text", "code"):
        with tempfile.TemporaryDirectory() as folder:
            chunks: dict[tuple[str, int], tuple[str, int]] = {}
            for file in files:
                content = file["content"]
                suffix = suffix_of(content) if kind == "code" else ".txt"
                path = Path(folder, file["doc_id"] + suffix)
                path.write_text(content, "utf-8")
                kept = [chunk for chunk in file["chunks"] if chunk["content"].strip()]
                pieces[content] = [chunk["content"] for chunk in kept]
                for number, chunk in enumerate(kept, 1):
                    chunks[path.name, number] = file["original_uuid"], chunk["original_index"]
            docs = Document(folder, embed=embedder)
            docs.create_node_group("chunk", pieces.__getitem__, index_fields=INDEX_FIELDS)
            searches = {
                "keyword": Retriever(docs, "chunk", similarity="bm25_chinese", topk=max(CUTS)),
                "vector": Retriever(docs, "chunk", topk=max(CUTS)),
                "hybrid": HybridRetriever.over(docs, "chunk", topk=max(CUTS)),
                "chain": RetrievalChain.over(docs, "chunk", topk=max(CUTS)),
            }
            for search, ask in searches.items():
                for half, figures in measure(ask, chunks):
                    row = dict(zip([f"Pass@{cut}" for cut in CUTS], figures, strict=True))
                    rows.append({"files": kind, "search": search, "half": half} | row)
                shown = [f"{figure:.3f}" for row in rows[-3:] for figure in list(row.values())[3:]]
                print(f"{kind:<5} {search:<8}", *shown, sep="  ", flush=True)
            docs.close()
    print(results.save("codebases", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
