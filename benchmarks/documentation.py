"""Questions about documentation trees: is the right page first, and which fields of a node are
worth indexing?

    python benchmarks/documentation.py [--only md-en ...] [--hybrid] [--check]

The shared trees (Markdown in English and Chinese, reStructuredText) have hand-written questions
with the file, heading and a quote of the answer. The lines are choices of chunks and of
`index_fields`, searched by BM25, with --hybrid also by hybrid search with the shared English model,
the built-in group by the chain as well:

- file@1, file@5: share of the questions whose first file, or one of the first five files, is right;
  files by their best chunk.
- quote@1, quote@5: share of the questions whose first chunk, or one of the first five, holds the
  quote.
- screen@1, screen@6: of the built-in group by BM25, share of the questions whose quote the command
  line shows, in the first hit or in six, at 80 columns; lines: the median of their lines.

There are 30 questions in each tree: a difference under .15 is noise. With --check, the exit status
is 1 where the built-in group finds fewer files first than the bound. It needs the shared data
beside the checkout; LAZYRAG_SHARED names another folder. docs/quality.md is written by
benchmarks/report.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results

from lazyrag import (
    DocNode,
    Document,
    HybridRetriever,
    OnnxEmbedder,
    RetrievalChain,
    Retriever,
    SentenceSplitter,
)
from lazyrag.cli.output import hits_lines
from lazyrag.transforms import SectionSplitter
from tests.shared import SHARED

os.environ |= {"COLUMNS": "80", "NO_COLOR": "1"}

TREES = SHARED / "data" / "documentation"
SETS = ("md-en", "rst-en", "md-zh")
LEAST = 0.6
"""Share of the questions whose file BM25 must find first."""
LEAST_SHOWN = 0.5
"""Share of the questions whose quote the command line must show among six hits."""
DEPTH = 60
RERANKED = 15
"""What the chain reranks by default: its files are those of so many chunks."""
BEFORE = SentenceSplitter(256, 25, counter="utf8")
SECTIONS = SectionSplitter(256, 25)
GROUPS: dict[str, tuple[Any, list[str]]] = {
    "release 0.1: 256 by bytes": (BEFORE, []),
    "built-in chunks, text alone": (SECTIONS, []),
    "built-in chunks, path": (SECTIONS, ["path"]),
    "built-in chunks, headings": (SECTIONS, ["headings"]),
}
BUILT_IN = "built-in group"


def squeezed(text: str) -> str:
    """Without white space, which readers may change."""
    return re.sub(r"\s+", "", text)


def questions_of(name: str) -> list[dict[str, Any]]:
    """The questions about a tree."""
    return [
        json.loads(line)
        for line in (TREES / name / "questions.jsonl").read_text("utf-8").splitlines()
    ]


def row(
    ask: Callable[[str], Sequence[DocNode]], questions: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """The figures of one way to search."""
    files, quotes = [], []
    for one in questions:
        nodes = ask(one["question"])
        right = {one["file"], *one["also"]}
        names = list(dict.fromkeys(node.path for node in nodes))
        files.append(next((at for at, name in enumerate(names) if name in right), DEPTH))
        holds = [squeezed(one["quote"]) in squeezed(node.text) for node in nodes]
        quotes.append(holds.index(True) if True in holds else DEPTH)
    return {
        f"{what}@{rank}": sum(at < rank for at in found) / len(questions)
        for what, found in (("file", files), ("quote", quotes))
        for rank in (1, 5)
    }


def shown(question: dict[str, Any], nodes: Sequence[DocNode]) -> tuple[list[bool], int]:
    """Whether the command line shows the quote in each hit, and the lines of all."""
    hits = hits_lines(nodes, question["question"])
    texts = [letters("".join(lines[1:])) for lines in hits]
    return [letters(question["quote"]) in text for text in texts], sum(map(len, hits)) + 5


def letters(text: str) -> str:
    """Letters and digits alone, as marks and markup differ."""
    return "".join(filter(str.isalnum, text))


def screen(
    ask: Callable[[str], Sequence[DocNode]], questions: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """What the command line shows of six hits."""
    screens = [shown(question, ask(question["question"])[:6]) for question in questions]
    count = len(questions)
    return {
        "screen@1": sum(hits[:1] == [True] for hits, _ in screens) / count,
        "screen@6": sum(any(hits) for hits, _ in screens) / count,
        "lines": statistics.median(lines for _, lines in screens),
    }


def measured(name: str, *, hybrid: bool) -> list[results.Row]:
    """A line for each group and way to search a tree."""
    questions = questions_of(name)
    is_hybrid = hybrid and not name.endswith("zh")
    embed = {"embed": OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")} if is_hybrid else {}
    rows: list[results.Row] = []
    with Document(TREES / name / "corpus", **embed) as docs:
        for label, (splitter, fields) in GROUPS.items():
            docs.create_node_group(label, splitter, index_fields=fields)
        for label in (*GROUPS, BUILT_IN):
            group = Document.MediumChunk if label == BUILT_IN else label
            ways: dict[str, Any] = {
                "bm25": Retriever(docs, group, similarity="bm25_chinese", topk=DEPTH)
            }
            if is_hybrid:
                ways["hybrid"] = HybridRetriever.over(docs, group, topk=DEPTH)
            if is_hybrid and label == BUILT_IN:
                ways["chain"] = RetrievalChain.over(docs, group, topk=RERANKED)
            for way, ask in ways.items():
                rows.append({"set": name, "search": way, "chunks": label} | row(ask, questions))
                if label == BUILT_IN and way == "bm25":
                    rows[-1] |= screen(ask, questions)
                print(
                    "  ".join(
                        f"{one:.2f}" if isinstance(one, float) else one for one in rows[-1].values()
                    ),
                    flush=True,
                )
    return rows


def main() -> int:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=SETS, choices=SETS)
    parser.add_argument(
        "--hybrid", action="store_true", help="also by hybrid search, with the shared English model"
    )
    parser.add_argument("--check", action="store_true", help="fail below the bound")
    given = parser.parse_args()
    rows = [one for name in given.only for one in measured(name, hybrid=given.hybrid)]
    if not given.check:
        print(results.save("documentation", rows))
    missed = [
        one
        for one in rows
        if one["chunks"] == BUILT_IN
        and (one["file@1"] < LEAST or one.get("screen@6", 1) < LEAST_SHOWN)
    ]
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
