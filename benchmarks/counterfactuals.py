"""Statements of true answers, and their passages altered to state another answer.

The questions are those of XQuAD (English) and CMRC 2018 (Chinese) whose answer is a number, a date
or a name. A few patterns make a statement of a question and its answer; questions that fit none are
left out. In an altered passage, another answer of the same type is in every place of the true one.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.shared import SHARED

RETRIEVAL = SHARED / "data" / "retrieval"
SETS = {
    "en": RETRIEVAL / "xquad" / "xquad.en.json",
    "zh": RETRIEVAL / "cmrc2018" / "cmrc2018_dev_half0.json",
}
SEED = 20261130
"""Fixed: every run draws the same questions and the same other answers."""

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
NUMBER_WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
NAME = r"[A-Z][\w'-]+(?: (?:of |de |the |von )?[A-Z][\w'-]+){0,4}"
KINDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "en": {
        "date": (
            "When|(?:In )?(?:[Ww]hat|[Ww]hich) year",
            rf"(?:(?:{MONTHS}) )?(?:\d\d?, )?\d{{4}}",
        ),
        "number": ("^(?:How|What)", rf"[$£€]?(?:\d[\d,.]*|{NUMBER_WORDS})%?(?: [a-z]+){{0,2}}"),
        "person": ("Who", NAME),
        "name": ("What", NAME),
    },
    "zh": {
        "date": ("哪一?年|什么时候|什么时间|何时", r"\d{3,4}年(?:\d+月)?(?:\d+日)?"),
        "number": ("多少|几|多[长高大重远]", r"(?:\d[\d,.]*|[二三四五六七八九十])[^\W\d]{1,3}"),
        "person": ("谁|哪位", r"[^\W\d_a-z]{2,7}"),
        "place": ("哪里|什么地方|哪个国家|哪个城市", r"[^\W\d_a-z]{2,7}"),
        "name": ("什么|哪[个一部本]", "《[^》]+》"),
    },
}
"""For each kind: what a question that asks for it has, and the form of its answer."""

NUMBERS = {"en": NUMBER_WORDS.split("|"), "zh": list("二三四五六七八九十")}
IRREGULAR = dict(
    pair.split()
    for pair in (
        "begin began,become became,build built,buy bought,come came,fall fell,find found,get got,"
        "give gave,go went,hold held,lead led,leave left,lose lost,make made,meet met,pay paid,"
        "run ran,sell sold,send sent,speak spoke,take took,win won,write wrote"
    ).split(",")
)
AUXILIARIES = r"\b(?:is|was|are|were|did|do|does|has|have|had|can|could|would|will|should)\b"
IN_YEAR = re.compile(r"(?:When|(?:In )?(?:what|which) year) did (.+)", re.IGNORECASE)
PASSIVE = re.compile(
    r"(?:When|(?:In )?(?:what|which) year) (was|were) (.+) (\w+(?:ed|en|wn|ld|nd|de|ght))( .+)?",
    re.IGNORECASE,
)
WHO_IS = re.compile(r"Who ((?:is|was|are|were) .+)")
WHAT_IS = re.compile(r"What (is|was|are|were) (.+)")
SUBJECT = re.compile(r"(?:Who|How many|What percentage) (.+)")


class Counterfactual(NamedTuple):
    """A statement, the passage that supports it, and one that states another answer."""

    language: str
    kind: str
    statement: str
    passage: str
    altered: str
    answer: str
    other: str
    title: str


def kind_of(question: str, answer: str, language: str) -> str | None:
    """The kind of a question, if its answer has the form of that kind."""
    for kind, (asked, form) in KINDS[language].items():
        if re.search(asked, question) and re.fullmatch(form, answer):
            return kind
    return None


def past_tense(clause: str, passage: str) -> str | None:
    """A clause such as "Tesla receive a bid", in the past tense.

    Its verb is an irregular one, or one whose past tense is in the passage.
    """
    words = clause.split()
    for index, word in enumerate(words[1:], 1):
        stem = re.sub("([^aeiou])y$", r"\1i", word)
        regular = stem + ("d" if word.endswith("e") else "ed")
        past = regular if re.search(rf"\b{re.escape(regular)}\b", passage) else IRREGULAR.get(word)
        if past:
            return " ".join([*words[:index], past, *words[index + 1 :]])
    return None


def english_statement(question: str, answer: str, passage: str) -> str | None:
    """The statement that a question and its answer make, or None where no pattern fits."""
    if match := IN_YEAR.fullmatch(question):
        clause = past_tense(match[1], passage)
        return clause and f"{clause} in {answer}"
    if match := PASSIVE.fullmatch(question):
        return f"{match[2]} {match[1]} {match[3]}{match[4] or ''} in {answer}"
    if match := WHO_IS.fullmatch(question):
        return f"{answer} {match[1]}"
    if match := WHAT_IS.fullmatch(question):
        return f"{match[2]} {match[1]} {answer}"
    match = SUBJECT.fullmatch(question)
    if match and not re.search(AUXILIARIES, match[1]):
        return f"{answer} {match[1]}"
    return None


def chinese_statement(question: str, answer: str, kind: str) -> str | None:
    """The question with the answer in place of what it asks for; see `english_statement`."""
    matches = list(re.finditer(KINDS["zh"][kind][0], question))
    if len(matches) != 1 or re.search("为什么|怎[样么]|如何", question):
        return None
    before, after = question[: matches[0].start()], question[matches[0].end() :]
    sizes = range(len(answer), -1, -1)
    overlap = next(size for size in sizes if after.startswith(answer[len(answer) - size :]))
    return before + answer + after[overlap:]


def questions_of(language: str) -> Iterator[tuple[str, str, str, str]]:
    """Each question with its answer, its passage and the title of its article."""
    for article in json.loads(SETS[language].read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                asked = question["question"].strip().rstrip("?？ ")
                answer = question["answers"][0]["text"]
                yield asked, answer, paragraph["context"], article["title"]


def another_number(answer: str, language: str, rng: random.Random) -> str:
    """The answer with another number: other digits, or another number word."""
    number = re.search(r"[\d,.]*\d", answer)
    if number:
        other = re.sub(
            r"\d", lambda digit: str((int(digit[0]) + rng.randint(1, 8)) % 9 + 1), number[0]
        )
        return answer.replace(number[0], other, 1)
    words = NUMBERS[language]
    word = next(word for word in words if word in answer)
    return answer.replace(word, words[(words.index(word) + rng.randint(1, 6)) % len(words)], 1)


def candidates(language: str) -> Iterator[Counterfactual]:
    """Every question that makes a statement, its passage not altered yet."""
    for question, answer, passage, title in questions_of(language):
        kind = kind_of(question, answer, language)
        if kind is None:
            continue
        statement = (
            english_statement(question, answer, passage)
            if language == "en"
            else chinese_statement(question, answer, kind)
        )
        if statement:
            yield Counterfactual(language, kind, statement, passage, passage, answer, "", title)


def draw(language: str, count: int) -> list[Counterfactual]:
    """Draw statements, at most `count`, and alter their passages."""
    rng = random.Random(SEED)
    pool = list(candidates(language))
    drawn: list[Counterfactual] = []
    for item in rng.sample(pool, len(pool)):
        if item.kind == "number":
            other = another_number(item.answer, language, rng)
        else:
            answers = [each.answer for each in pool if each.kind == item.kind]
            other = rng.choice([answer for answer in answers if answer not in item.passage])
        place = rf"(?<![A-Za-z\d]){re.escape(item.answer)}(?![A-Za-z\d])"
        altered = re.sub(place, other, item.passage)
        if item.answer not in altered and len(drawn) < count:
            drawn.append(item._replace(altered=altered, other=other))
    return drawn
