"""Questions about documentation trees: is the right page first, and what fields of a node are worth indexing?

    python benchmarks/documentation.py [--only md-en ...] [--fields path,title,headings ...] [--hybrid] [--check]

The shared trees (Markdown in English and Chinese, reStructuredText) have hand-written questions with the file, heading
and a quote of the answer. Each line of the table is one choice of `index_fields` over chunks of the built-in size:

- file@1, file@5: questions whose first file, or one of the first five files, is right; files by their best chunk.
- quote@1, quote@5: questions whose first chunk, or one of the first five, holds the quote.
- heading: of the chunks that hold a quote, those whose location names its heading.

There are 30 questions in each tree: a difference under .15 is noise. With --check, the exit status is 1 where the
built-in group finds fewer files first than the bounds below. It needs the shared data beside the checkout;
LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lazyrag import DocNode, Document, HybridRetriever, OnnxEmbedder, Retriever
from tests.shared import SHARED

TREES = SHARED / "data" / "documentation"
GROUP = Document.MediumChunk
BOUNDS = {"md-en": 0.6, "rst-en": 0.6, "md-zh": 0.6}
"""Share of the questions whose file BM25 must find first."""
DEPTH = 60


def squeezed(text: str) -> str:
    """Without white space, which readers may change."""
    return re.sub(r"\s+", "", text)


def titled(location: str, heading: str) -> bool:
    """Whether a location names a heading, but for its marks."""
    return re.sub(r"\W+", "", heading) in re.sub(r"\W+", "", location)


def row(docs: Document, questions: Sequence[dict[str, str]], group: str, *, hybrid: bool) -> dict[str, float]:
    """The figures of one group."""
    retriever = (
        HybridRetriever.over(docs, group, topk=DEPTH)
        if hybrid
        else Retriever(docs, group, similarity="bm25_chinese", topk=DEPTH)
    )
    files, quotes = [], []
    for one in questions:
        nodes: list[DocNode] = retriever(one["question"])
        right = {one["file"], *one["also"]}
        names = list(dict.fromkeys(node.path for node in nodes))
        files.append(next((at for at, name in enumerate(names) if name in right), DEPTH))
        holds = [squeezed(one["quote"]) in squeezed(node.text) for node in nodes]
        quotes.append(holds.index(True) if True in holds else DEPTH)
    named = []
    by_file: dict[str, list[DocNode]] = {}
    for node in docs.get_nodes(group=group):
        by_file.setdefault(node.path, []).append(node)
    for one in questions:
        named += [
            titled(node.location, one["heading"])
            for node in by_file[one["file"]]
            if squeezed(one["quote"]) in squeezed(node.text)
        ]
    count = len(questions)
    return {
        "file@1": sum(at < 1 for at in files) / count,
        "file@5": sum(at < 5 for at in files) / count,
        "quote@1": sum(at < 1 for at in quotes) / count,
        "quote@5": sum(at < 5 for at in quotes) / count,
        "heading": sum(named) / len(named),
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(BOUNDS), choices=list(BOUNDS))
    parser.add_argument("--fields", nargs="*", default=[], help="lists of fields to compare, such as path,headings")
    parser.add_argument("--hybrid", action="store_true", help="BM25 and the shared English model")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    missed = 0
    for name in given.only:
        lines = (TREES / name / "questions.jsonl").read_text("utf-8").splitlines()
        questions = [json.loads(line) for line in lines]
        embed = {"embed": OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")} if given.hybrid else {}
        with Document(TREES / name / "corpus", **embed) as docs:
            groups = {"built-in": GROUP}
            for fields in given.fields:
                label = f"index_fields={fields}"
                groups[label] = "with " + (fields or "none")
                splitter = docs._graph[GROUP].given
                docs.create_node_group(groups[label], splitter, index_fields=[one for one in fields.split(",") if one])
            for label, group in groups.items():
                found = row(docs, questions, group, hybrid=given.hybrid)
                shown = "  ".join(f"{key} {value:.2f}" for key, value in found.items())
                print(f"{name:7} {'hybrid' if given.hybrid else 'bm25':7} {label:40} {shown}", flush=True)
                if label == "built-in" and given.check and found["file@1"] < BOUNDS[name]:
                    missed += 1
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
