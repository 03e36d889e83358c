"""Does it help to search a question part by part?

    python benchmarks/parts.py [--only md-en financebench ...] [--hybrid] [--store FOLDER] [--single]

The questions of benchmarks/data/parts.jsonl have two or three parts, each with the quotes or pages
that answer it. Each is searched by BM25 (with --hybrid in English also by hybrid search with the
shared model), with `parts` off and auto:

- all@6: share of the questions of whose parts each has a quote, or in FinanceBench a page, among
  the first six chunks; first, second: the same in the two halves.
- parts@6: share of the parts. files@6: share of the questions with a right file for each part.
- covered: share of the parts with a quote among six that `explain` calls covered.
- nothing: share of the parts of questions about the other English tree that are called uncovered.

With --single, the sets of benchmarks/fields.py, whose questions have one answer: how many of them
are split, and of those how many have a right document among six. It needs the shared data beside
the checkout; LAZYRAG_SHARED names another folder. --store keeps the ingested filings in a folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import documentation
import fields
import results

from lazyrag import CachedEmbedder, DocNode, Document, OnnxEmbedder
from lazyrag.loaders.pdf import PdfLoader
from lazyrag.retrieval.hybrid import default_retriever
from lazyrag.text.question_parts import find_coverage, split_question
from tests.shared import SHARED

QUESTIONS = Path(__file__).with_name("data") / "parts.jsonl"
SETS = (*fields.TREES, "financebench")
TOPK = 6


def questions_of(name: str) -> list[dict[str, Any]]:
    """The questions about a set."""
    return [
        record for record in fields.read_lines(QUESTIONS) if record["id"].rpartition("-")[0] == name
    ]


def answers(node: DocNode, answer: Mapping[str, Any]) -> bool:
    """Whether a chunk holds the quote, or is on one of the pages."""
    if node.path != answer["file"]:
        return False
    if "pages" in answer:
        return bool(fields.pages_of(node) & set(answer["pages"]))
    return documentation.squeezed(answer["quote"]) in documentation.squeezed(node.text)


def found_parts(question: Mapping[str, Any], nodes: Sequence[DocNode]) -> list[bool]:
    """Whether each part is answered by one of the chunks."""
    return [
        any(answers(node, answer) for node in nodes for answer in part["answers"])
        for part in question["parts"]
    ]


def found_files(question: Mapping[str, Any], nodes: Sequence[DocNode]) -> bool:
    """Whether each part has a right file."""
    paths = {node.path for node in nodes}
    return all(
        any(answer["file"] in paths for answer in part["answers"]) for part in question["parts"]
    )


def coverage_of(question: Mapping[str, Any], nodes: Sequence[DocNode]) -> list[bool]:
    """Whether `explain` calls each part covered, as it was split."""
    texts = [f"{node.path} {node.text}" for node in nodes]
    return list(map(bool, find_coverage(split_question(question["question"]), texts).values()))


def foreign_coverage(docs: Document, name: str) -> list[bool]:
    """Whether parts about the other English tree are called covered."""
    other = {"md-en": "rst-en", "rst-en": "md-en"}.get(name, "")
    marks = []
    for question in questions_of(other):
        coverage = coverage_of(question, docs.search(question["question"], TOPK))
        marks += coverage if len(coverage) > 1 else []
    return marks


def share(marks: Sequence[bool]) -> float | None:
    """The share of those that are true."""
    return sum(marks) / len(marks) if marks else None


def measured(docs: Document, name: str, search: str) -> Iterator[results.Row]:
    """A line for each way to search the questions of a set."""
    questions = questions_of(name)
    for way in ("off", "auto"):
        retriever = default_retriever(docs, Document.MediumChunk, TOPK, parts=way)
        found = []
        files = []
        covered = []
        for question in questions:
            nodes = retriever(question["question"])
            marks = found_parts(question, nodes)
            found.append(marks)
            files.append(found_files(question, nodes))
            coverage = coverage_of(question, nodes)
            if len(coverage) == len(marks):
                covered += [ranks for ranks, mark in zip(coverage, marks, strict=True) if mark]
        complete = [all(marks) for marks in found]
        yield {
            "set": name,
            "search": search,
            "parts": way,
            "questions": len(questions),
            "all@6": share(complete),
            "first": share(complete[::2]),
            "second": share(complete[1::2]),
            "parts@6": share([mark for marks in found for mark in marks]),
            "files@6": share(files),
            "covered": share(covered),
            "nothing": share([not ranks for ranks in foreign_coverage(docs, name)]),
        }


def measured_single(name: str) -> results.Row:
    """How many questions of a set are split, and how many of those find a right document."""
    test_set = fields.read_set(name)
    split = [question for question in test_set.questions if len(split_question(question.text)) > 1]
    row: results.Row = {"set": name, "questions": len(test_set.questions), "split": len(split)}
    if split and name != "financebench":
        with test_set.open() as docs:
            for way in ("off", "auto"):
                hits = [docs.search(question.text, TOPK, parts=way) for question in split]
                row[way] = sum(
                    any(node.path in question.documents for node in nodes)
                    for question, nodes in zip(split, hits, strict=True)
                )
    return row


def main() -> int:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=sorted({*SETS, *fields.SETS}))
    parser.add_argument("--hybrid", action="store_true", help="the English trees by hybrid search")
    parser.add_argument("--store", type=Path, help="keep the ingested filings here")
    parser.add_argument("--single", action="store_true", help="sets of questions with one answer")
    options = parser.parse_args()
    rows: list[results.Row] = []
    if options.single:
        rows += map(measured_single, options.only or fields.SETS)
        print(results.table(rows, ["set", "questions", "split", "off", "auto"]))
        return 0
    (results.FOLDER / "cache").mkdir(parents=True, exist_ok=True)
    for name in options.only or SETS:
        conf: dict[str, Any] = {}
        if options.hybrid:
            onnx = OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")
            conf["embed"] = CachedEmbedder(onnx, results.FOLDER / "cache" / "quality.db")
        if name == "financebench" and options.store is not None:
            conf["store_conf"] = str(options.store / "financebench.db")
        with closing(fields.read_set(name).open(**conf)) as docs:
            docs.add_reader("*.pdf", PdfLoader(max_seconds=6_000))  # the machine may be busy
            rows += measured(docs, name, "hybrid" if options.hybrid else "bm25")
    print(results.table(rows, list(rows[0])))
    print(results.save("question_parts-hybrid" if options.hybrid else "question_parts", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
