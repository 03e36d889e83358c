"""Real texts of the shared data, and as many nodes of them as a benchmark needs.

A node is a stretch of consecutive pieces: 60 words of English paragraphs (Cranfield and XQuAD), or
Chinese between two punctuation marks until there are 100 characters (XQuAD and CMRC 2018). Each
begins anywhere, so beyond the size of the texts, which `Corpus.real_nodes` tells, nodes overlap:
the texts are resampled.
"""

from __future__ import annotations

import json
import random
import re
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag.text.analyzers import term_function
from tests.shared import SHARED, read_squad

RETRIEVAL = SHARED / "data" / "retrieval"
LANGUAGES = {"en": "bm25", "zh": "bm25_chinese"}
WORDS = 60
CHARACTERS = 100
_PUNCTUATION = re.compile(r"(?<=[，。！？；：、!?;])|(?<=,)(?!\d)")
_HAN_WORD = re.compile(r"[\u4e00-\u9fff]{2,}")


def paragraphs(language: str) -> list[str]:
    """The paragraphs of a language, without empty ones."""
    if language == "en":
        with (RETRIEVAL / "cranfield/corpus.jsonl").open(encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]
        texts += read_squad(RETRIEVAL / "xquad/xquad.en.json")[0]
    else:
        texts = read_squad(RETRIEVAL / "cmrc2018/cmrc2018_dev_half0.json")[0]
        texts += read_squad(RETRIEVAL / "xquad/xquad.zh.json")[0]
    return [text for text in texts if text.strip()]


@dataclass(frozen=True)
class Corpus:
    """Nodes drawn from a language's texts.

    Args:
        language: ``"en"`` or ``"zh"``.
        pieces: What nodes are made of.
        bounds: (n, 2) for each node its first piece and the one behind its last.
        vocabulary: The distinct terms.
        ids: Their numbers in the nodes, one node after the other, int32.
        starts: (n + 1,) where each node's terms begin in ``ids``.
        real_nodes: How many nodes the texts make without an overlap.
    """

    language: str
    pieces: list[str]
    bounds: np.ndarray
    vocabulary: list[str]
    ids: np.ndarray
    starts: np.ndarray
    real_nodes: int

    def __len__(self) -> int:
        return len(self.bounds)

    def text(self, row: int) -> str:
        """A node's text."""
        return next(stretches(self.language, self.pieces, self.bounds[row : row + 1]))

    def texts(self) -> list[str]:
        """All nodes' texts."""
        return list(stretches(self.language, self.pieces, self.bounds))

    def label(self) -> str:
        """What the nodes are, for tables."""
        return "real" if len(self) <= self.real_nodes else f"resampled from {self.real_nodes:,}"

    def save(self, path: Path) -> Path:
        """Vocabulary and terms as a file that engines read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = np.frombuffer("\n".join(self.vocabulary).encode(), np.uint8)
        np.savez(path, vocabulary=text, ids=self.ids, starts=self.starts)
        return path


def make_corpus(language: str, count: int) -> Corpus:
    """That many nodes, with the terms of each."""
    pieces = [piece for text in paragraphs(language) for piece in split(language, text)]
    bounds, real_nodes = draw(language, pieces, count)
    terms_of = term_function(language)
    numbers: dict[str, int] = {}
    ids = array("i")
    starts = [0]
    for text in stretches(language, pieces, bounds):
        ids.extend(numbers.setdefault(term, len(numbers)) for term in terms_of(text))
        starts.append(len(ids))
    flat = np.frombuffer(ids, np.int32)
    return Corpus(language, pieces, bounds, list(numbers), flat, np.array(starts), real_nodes)


def stretches(language: str, pieces: list[str], bounds: np.ndarray) -> Iterator[str]:
    """The nodes' texts."""
    joint = " " if language == "en" else ""
    for first, behind in bounds.tolist():
        yield joint.join(pieces[first:behind])


def split(language: str, text: str) -> list[str]:
    """The pieces of a text: its words; in Chinese what ends with a punctuation mark."""
    if language == "en":
        return text.split()
    # A full stop behind each paragraph: words do not reach from one into the next.
    return [piece for piece in _PUNCTUATION.split("".join(text.split()) + "。") if piece]


def draw(language: str, pieces: list[str], count: int) -> tuple[np.ndarray, int]:
    """Bounds of nodes that begin anywhere, and how many there are without an overlap."""
    chance = np.random.default_rng(1)
    if language == "en":
        firsts = chance.integers(0, len(pieces) - WORDS, count)
        return np.stack([firsts, firsts + WORDS], 1), len(pieces) // WORDS
    ends = np.cumsum([0, *map(len, pieces)])
    last = int(ends.searchsorted(ends[-1] - 2 * CHARACTERS))
    firsts = chance.integers(0, last, count)
    behind = ends.searchsorted(ends[firsts] + CHARACTERS)
    return np.stack([firsts, behind], 1), int(ends[-1]) // CHARACTERS


def make_queries(corpus: Corpus, count: int) -> list[str]:
    """Questions in words: 3 to 12 distinct English words, or 2 to 5 Chinese ones, of one node
    each.
    """
    chance = random.Random(2)
    terms_of = term_function(corpus.language)
    fewest, most = (3, 12) if corpus.language == "en" else (2, 5)
    queries = []
    while len(queries) < count:
        row = chance.randrange(len(corpus))
        if corpus.language == "en":
            words = [word for word in corpus.text(row).split() if len(terms_of(word)) == 1]
        else:
            own = corpus.ids[corpus.starts[row] : corpus.starts[row + 1]]
            words = [
                word for number in own if _HAN_WORD.fullmatch(word := corpus.vocabulary[number])
            ]
        words = list(dict.fromkeys(words))
        wanted = chance.randint(fewest, most)
        if len(words) >= wanted:
            queries.append(" ".join(chance.sample(words, wanted)))
    return queries
