"""Texts with questions whose right answers are known, of the shared data."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.shared import read_squad, shared

SETS = ("cranfield", "xquad-en", "xquad-zh", "cmrc-zh")

_SQUAD = {
    "xquad-en": ("xquad", "xquad.en.json"),
    "xquad-zh": ("xquad", "xquad.zh.json"),
    "cmrc-zh": ("cmrc2018", "cmrc2018_dev_half0.json"),
}


@dataclass(frozen=True)
class Judged:
    """A set of texts, and questions whose right answers are known.

    Args:
        texts: By the name of a file.
        questions: Each with the grades of the files that answer it, above 0.
    """

    texts: Mapping[str, str]
    questions: Sequence[tuple[str, Mapping[str, int]]]


def write(texts: Mapping[str, str], folder: Path) -> None:
    """Make a file of each text."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@functools.cache
def judged_set(name: str) -> Judged:
    """One of `SETS`. Two texts of Cranfield are empty, and are left out, as an answer too."""
    if name == "cranfield":
        return _cranfield(shared("data", "retrieval", "cranfield"))
    paragraphs, asked = read_squad(shared("data", "retrieval", *_SQUAD[name]))
    texts = {f"{number}.txt": text for number, text in enumerate(paragraphs)}
    return Judged(texts, [(question, {f"{number}.txt": 1}) for question, number in asked])


def pooled(
    names: Sequence[str],
) -> tuple[dict[str, str], dict[str, list[tuple[str, Mapping[str, int]]]]]:
    """The texts of several sets together, each set in a folder of its name; and each set's
    questions.
    """
    texts: dict[str, str] = {}
    questions: dict[str, list[tuple[str, Mapping[str, int]]]] = {}
    for name in names:
        one = judged_set(name)
        texts |= {f"{name}/{path}": text for path, text in one.texts.items()}
        questions[name] = [
            (asked, {f"{name}/{path}": grade for path, grade in grades.items()})
            for asked, grades in one.questions
        ]
    return texts, questions


def _cranfield(folder: Path) -> Judged:
    texts = {
        f"{one['id']}.txt": one["text"]
        for one in _lines(folder / "corpus.jsonl")
        if one["text"].strip()
    }
    grades: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines():
        query, _, found, grade = line.split("\t")
        if int(grade) > 0:
            grades.setdefault(query, {})[f"{found}.txt"] = int(grade)
    return Judged(
        texts, [(one["text"], grades[one["id"]]) for one in _lines(folder / "queries.jsonl")]
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
