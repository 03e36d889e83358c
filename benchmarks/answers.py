"""Answers without a model: how often the answer is in what is quoted, and how long that is.

    python benchmarks/answers.py [--only xquad-en ...] [--check]

The questions are those of XQuAD (English, Chinese), CMRC 2018 and the documentation trees, whose
answer is a quote; each paragraph is one file. `RAGPipeline.over(docs, "MediumChunk")` answers by
keyword search, as `lazyrag ask` does. A line for each half of the questions: settings were chosen
by the even ones, with the figures of the odd ones in view, so neither half is unseen.

- one, two: share of the questions whose answer is in the best unit (a sentence, an item, a row, a
  block of code), or in one of the best two, of what was retrieved.
- answer: share whose answer is in a quotation of the answer. White space and case do not count.
- median, longest: characters of the quotations of an answer.
- ms: processor time of choosing the quotations.

With --check, the exit status is 1 where a share is below its bound. It needs the shared data beside
the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import documentation
import results

from lazyrag import Document, RAGPipeline
from lazyrag.data.result import RAGContext
from lazyrag.generation.extractive import choose_quotes, rank_units, ranks_of
from tests.shared import SHARED

SQUAD = {
    "xquad-en": SHARED / "data" / "retrieval" / "xquad" / "xquad.en.json",
    "xquad-zh": SHARED / "data" / "retrieval" / "xquad" / "xquad.zh.json",
    "cmrc-zh": SHARED / "data" / "retrieval" / "cmrc2018" / "cmrc2018_dev_half0.json",
}
SETS = (*SQUAD, *documentation.SETS)
BOUNDS = {"xquad-en": 0.87, "xquad-zh": 0.88, "cmrc-zh": 0.83, "md-en": 0.3, "rst-en": 0.3}
COLUMNS = ("set", "half", "questions", "one", "two", "answer", "median", "longest", "ms")
TOPK = 6


class Judged(NamedTuple):
    """A question, texts of which one must be quoted, and the files with the answer."""

    question: str
    answers: list[str]
    files: frozenset[str]


def library(name: str) -> tuple[Document, list[Judged]]:
    """The Document of a set, and its questions. The files of a question are all of its article."""
    if name not in SQUAD:
        questions = [
            Judged(entry["question"], [entry["quote"]], frozenset([entry["file"], *entry["also"]]))
            for entry in documentation.questions_of(name)
        ]
        return Document(documentation.TREES / name / "corpus"), questions
    texts: dict[str, str] = {}
    questions = []
    for article in json.loads(SQUAD[name].read_text(encoding="utf-8"))["data"]:
        first = len(texts)
        qas = []
        for paragraph in article["paragraphs"]:
            texts[f"{len(texts):05d}.txt"] = paragraph["context"]
            qas += paragraph["qas"]
        files = frozenset([*texts][first:])
        for entry in qas:
            answers = sorted({answer["text"] for answer in entry["answers"]})
            questions.append(Judged(entry["question"], answers, files))
    docs = Document()
    docs.add_texts(texts)
    return docs, questions


def squeezed(text: str) -> str:
    """Without white space and case."""
    return "".join(text.split()).casefold()


def has_answer(judged: Judged, texts: Sequence[str]) -> bool:
    """Whether an answer of a question is in one of some texts."""
    answers = [squeezed(answer) for answer in judged.answers]
    return any(answer in squeezed(text) for text in texts for answer in answers)


def measure(judged: Judged, context: RAGContext) -> dict[str, float]:
    """The figures of one answer."""
    texts = context.sources.contexts
    ranks = ranks_of(context.sources)
    best = [
        texts[ranked.source][ranked.unit.start : ranked.unit.end]
        for ranked in rank_units(judged.question, texts, ranks)[:2]
    ]
    begun = time.process_time()
    quotes = choose_quotes(judged.question, context.sources)
    seconds = time.process_time() - begun
    quoted = [texts[quote.source][quote.start : quote.end] for quote in quotes]
    return {
        "one": has_answer(judged, best[:1]),
        "two": has_answer(judged, best),
        "answer": has_answer(judged, quoted),
        "size": sum(quote.size for quote in quotes),
        "ms": 1000 * seconds,
    }


def rows_of(name: str) -> list[results.Row]:
    """A line for each half of a set."""
    docs, questions = library(name)
    pipeline = RAGPipeline.over(docs, Document.MediumChunk)
    figures = [
        measure(judged, pipeline.sync.answer(judged.question, TOPK).context) for judged in questions
    ]
    rows: list[results.Row] = []
    for half, some in (("even", figures[::2]), ("odd", figures[1::2])):
        row: results.Row = {"set": name, "half": half, "questions": len(some)}
        for column in ("one", "two", "answer", "ms"):
            row[column] = statistics.fmean(entry[column] for entry in some)
        row["median"] = statistics.median(entry["size"] for entry in some)
        row["longest"] = max(entry["size"] for entry in some)
        rows.append(row)
    return rows


def main() -> int:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--check", action="store_true", help="fail below the bounds")
    options = parser.parse_args()
    if not SHARED.exists():
        print(f"no {SHARED}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    rows: list[results.Row] = []
    for name in options.only:
        rows += rows_of(name)
    print(results.table(rows, COLUMNS))
    if not options.check:
        print(results.save("answers", rows))
    missed = [row for row in rows if row["answer"] < BOUNDS.get(row["set"], 0.0)]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
