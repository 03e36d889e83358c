"""Does it help to prefer the documents that a question names by values of their fields?

    python benchmarks/fields.py [--only financebench md-en ...] [--hybrid] [--store FOLDER] [--misses]

Each set is searched by BM25 (with --hybrid also by hybrid search with the shared English model),
with `infer_filters` off and on:

- financebench: 37 filings as PDF, 59 questions of analysts; also with the right document given.
  Companies before the letter J are one half, the others the second half.
- md-en, rst-en, md-zh: questions about documentation trees.
- xquad-LANGUAGE: paragraphs under the titles of their articles.
- cranfield: abstracts with their titles. codebases: chunks of code, of which any right one counts.

document@1, document@5: share of the questions with a right document first, or among the documents
of the first five chunks. page@5 (financebench): share with the right page among the pages of the
first five chunks. first, second: the same in the two halves. It needs the shared data beside the
checkout; LAZYRAG_SHARED names another folder. --store keeps the ingested filings in a folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results

from lazyrag import DocNode, Document, OnnxEmbedder
from lazyrag.data.filters import Condition
from lazyrag.retrieval.base import hits_of
from lazyrag.retrieval.hybrid import default_retriever
from tests.shared import SHARED

DATA = SHARED / "data"
TREES = ("md-en", "rst-en", "md-zh")
XQUAD = tuple(
    f"xquad-{path.suffixes[0][1:]}" for path in sorted(DATA.glob("retrieval/xquad/*.json"))
)
SETS = ("financebench", *TREES, *XQUAD, "cranfield", "codebases")
TOPK = 5
_PAGES = re.compile(r"pages? (\d+)(?:\s*[-–]\s*(\d+))?")


@dataclass(frozen=True)
class Question:
    """A question.

    Args:
        text: Its words.
        documents: The right documents.
        pages: The right pages.
        half: In which half it is: 0 or 1.
    """

    text: str
    documents: frozenset[str]
    pages: frozenset[int] = frozenset()
    half: int = 0


@dataclass(frozen=True)
class TestSet:
    """Documents and questions.

    Args:
        questions: The questions.
        folder: Of the documents' files; None for texts.
        texts: Ids to texts.
        metadata: Ids to metadata.
    """

    questions: Sequence[Question]
    folder: Path | None = None
    texts: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)

    def open(self, **options: Any) -> Document:
        """Ingest the documents."""
        docs = Document(self.folder, **options)
        if self.texts:
            docs.add_texts(self.texts, self.metadata)
        return docs


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSON lines file."""
    for line in path.read_text("utf-8").splitlines():
        yield json.loads(line)


def read_set(name: str) -> TestSet:
    """A set by its name."""
    if name == "financebench":
        questions = [
            Question(
                record["question"],
                frozenset([record["document"]]),
                frozenset(record["pages"]),
                int(record["document"] >= "J"),
            )
            for record in read_lines(DATA / name / "questions.jsonl")
        ]
        return TestSet(questions, DATA / name / "pdf")
    if name in TREES:
        tree = DATA / "documentation" / name
        records = read_lines(tree / "questions.jsonl")
        return TestSet(
            [
                Question(record["question"], frozenset([record["file"], *record["also"]]))
                for record in records
            ],
            tree / "corpus",
        )
    if name == "cranfield":
        return read_cranfield(DATA / "retrieval" / name)
    if name == "codebases":
        return read_codebases(DATA / name)
    return read_xquad(name.removeprefix("xquad-"))


def read_cranfield(folder: Path) -> TestSet:
    """Abstracts with titles; documents of grade 1 and better are right."""
    records = [record for record in read_lines(folder / "corpus.jsonl") if record["text"].strip()]
    right: dict[str, set[str]] = {}
    for line in (folder / "qrels.tsv").read_text("utf-8").splitlines():
        query, _, document, grade = line.split("\t")
        if int(grade) > 0:
            right.setdefault(query, set()).add(document)
    questions = [
        Question(record["text"], frozenset(right[record["id"]]))
        for record in read_lines(folder / "queries.jsonl")
        if record["id"] in right
    ]
    texts = {record["id"]: record["text"] for record in records}
    return TestSet(
        questions, None, texts, {record["id"]: {"title": record["title"]} for record in records}
    )


def read_codebases(folder: Path) -> TestSet:
    """Chunks of code, each a document."""
    texts = {}
    for document in json.loads((folder / "chunks.json").read_text("utf-8")):
        for chunk in document["chunks"]:
            texts[f"{document['original_uuid']}-{chunk['original_index']}"] = chunk["content"]
    questions = []
    for record in read_lines(folder / "questions.jsonl"):
        golden = frozenset(f"{uid}-{number}" for uid, number in record["golden"])
        questions.append(Question(record["question"], golden))
    return TestSet(questions, None, {key: text for key, text in texts.items() if text.strip()})


def read_xquad(language: str) -> TestSet:
    """Paragraphs named by the titles of their articles."""
    data = json.loads((DATA / f"retrieval/xquad/xquad.{language}.json").read_text("utf-8"))
    texts = {}
    questions = []
    for article in data["data"]:
        for number, paragraph in enumerate(article["paragraphs"]):
            name = f"{article['title']}/{number}"
            texts[name] = paragraph["context"]
            right = frozenset([name])
            questions += [Question(record["question"], right) for record in paragraph["qas"]]
    return TestSet(questions, None, texts)


def pages_of(node: DocNode) -> set[int]:
    """The pages that a node is on."""
    pages: set[int] = set()
    [hit] = hits_of([node])
    for first, last in _PAGES.findall(str(hit.metadata.get("location", ""))):
        pages.update(range(int(first), int(last or first) + 1))
    return pages


def measure(
    ask: Callable[[Question], Sequence[DocNode]], questions: Sequence[Question]
) -> tuple[dict[str, float], list[Question]]:
    """The figures of one way to search, and the questions whose document was not among five."""
    hits: dict[str, list[bool]] = {"document@1": [], "document@5": [], "page@5": []}
    begun = time.process_time()
    answers = [ask(question)[:TOPK] for question in questions]
    cpu = (time.process_time() - begun) / len(questions)
    for question, nodes in zip(questions, answers, strict=True):
        right = [node.path in question.documents for node in nodes]
        on_page = [
            is_right and bool(pages_of(node) & question.pages)
            for node, is_right in zip(nodes, right, strict=True)
            if question.pages
        ]
        hits["document@1"].append(any(right[:1]))
        hits["document@5"].append(any(right))
        hits["page@5"].append(any(on_page))
    halves = {question.half for question in questions}
    figures = {}
    for name, marks in hits.items():
        if name == "page@5" and not any(question.pages for question in questions):
            continue
        figures[name] = sum(marks) / len(marks)
        for half in sorted(halves) if len(halves) > 1 else ():
            part = [
                mark
                for mark, question in zip(marks, questions, strict=True)
                if question.half == half
            ]
            figures[f"{name} {('first', 'second')[half]}"] = sum(part) / len(part)
    figures["CPU ms"] = 1000 * cpu
    missed = [
        question for question, mark in zip(questions, hits["document@5"], strict=True) if not mark
    ]
    return figures, missed


def main() -> int:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--hybrid", action="store_true", help="also by hybrid search")
    parser.add_argument("--store", type=Path, help="keep the ingested filings here")
    parser.add_argument("--misses", action="store_true", help="print questions without a hit")
    options = parser.parse_args()
    rows: list[results.Row] = []
    for name in options.only:
        test_set = read_set(name)
        embedders: list[Any] = [None]
        if options.hybrid:
            embedders.append(OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2"))
        for embed in embedders:
            conf: dict[str, Any] = {} if embed is None else {"embed": embed}
            if name == "financebench" and options.store is not None:
                suffix = "" if embed is None else "-hybrid"
                conf["store_conf"] = str(options.store / f"{name}{suffix}.db")
            with test_set.open(**conf) as docs:
                rows += measured(
                    name, "bm25" if embed is None else "hybrid", docs, test_set, options
                )
    print(results.save("fields", rows))
    return 0


def measured(
    name: str, search: str, docs: Document, test_set: TestSet, options: argparse.Namespace
) -> Iterator[results.Row]:
    """A line for each way to search a set."""
    plain = default_retriever(docs, Document.MediumChunk, TOPK, infer_filters=False)
    inferring = default_retriever(docs, Document.MediumChunk, TOPK, infer_filters=True)
    ways: dict[str, Callable[[Question], Sequence[DocNode]]] = {
        "off": lambda question: plain(question.text),
        "on": lambda question: inferring(question.text),
    }
    if name == "financebench":
        ways["document given"] = lambda question: plain(
            question.text, Condition("file_name", "in", sorted(question.documents))
        )
    plain("warm")
    inferring("warm")
    for way, ask in ways.items():
        figures, missed = measure(ask, test_set.questions)
        cells = [f"{key} {value:.3f}" for key, value in figures.items()]
        print(f"{name:<13} {search:<7} {way:<15}", *cells, sep="  ", flush=True)
        if options.misses and way == "on":
            for question in missed:
                print("   ", *sorted(question.documents), "|", question.text[:120])
        yield {"set": name, "search": search, "infer_filters": way} | figures


if __name__ == "__main__":
    sys.exit(main())
