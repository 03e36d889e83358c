"""Near-duplicates that `lazyrag.read.near_duplicates` finds among real texts, of copies with seeded
edits; and its time.

    python benchmarks/near_duplicates.py [--passages 100000]

Every third text of Cranfield, XQuAD (English and Chinese) and CMRC 2018 gets a copy with edits:
replaced words (letters in Chinese) from other texts of its set, or a sentence cut out. All texts of
a language are in one Document. A pair is found if a text and its copy are in one cluster. Other
pairs are texts of one cluster that are no copies of each other, those of the data sets themselves
among them. The time is that of a Document in memory with passages of 170 words drawn from
Cranfield.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lazyrag.read import near_duplicates

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results
from results import Row

from lazyrag import Document
from lazyrag.text.near_duplicates import similarity
from lazyrag.text.sentences import sentence_spans
from tests.judged import judged_set

SETS = {"en": ("cranfield", "xquad-en"), "zh": ("xquad-zh", "cmrc-zh")}
THRESHOLDS = (0.8, 0.7)
WORDS = 170

Edit = Callable[[str, Sequence[str], random.Random], str]


def units(text: str, language: str) -> list[str]:
    """Words, or Chinese letters."""
    return text.split(" ") if language == "en" else list(text)


def replaced(share: float, language: str) -> Edit:
    """Replace a share of the words."""

    def edit(text: str, others: Sequence[str], rng: random.Random) -> str:
        changed = [
            rng.choice(others) if rng.random() < share else one for one in units(text, language)
        ]
        return (" " if language == "en" else "").join(changed)

    return edit


def without_sentence(text: str, _: Sequence[str], rng: random.Random) -> str:
    """Cut one sentence out."""
    start, end = rng.choice(list(sentence_spans(text)))
    return text[:start] + text[end:]


def edits(language: str) -> Mapping[str, Edit]:
    """Each kind of edit."""
    return {
        "case and white space": lambda text, _others, _rng: (
            "\n".join(text.upper().split(" ")) + "\n"
        ),
        **{
            f"{share:.0%} of the words": replaced(share, language)
            for share in (0.01, 0.02, 0.05, 0.1)
        },
        "one sentence cut out": without_sentence,
    }


def measured(language: str) -> list[Row]:
    """A row for each kind of edit."""
    rng = random.Random(0)
    texts = {
        f"{name}/{key}": text
        for name in SETS[language]
        for key, text in judged_set(name).texts.items()
    }
    others = [one for text in texts.values() for one in units(text, language)]
    rows: list[Row] = []
    for kind, edit in edits(language).items():
        copies = {f"{key} copy": edit(text, others, rng) for key, text in list(texts.items())[::3]}
        # some have one sentence
        copies = {key: text for key, text in copies.items() if text.strip()}
        similar = {
            key: similarity(texts[key.removesuffix(" copy")], text) for key, text in copies.items()
        }
        row: Row = {"language": language, "edit": kind, "texts": len(texts), "copies": len(copies)}
        row["similarity"] = statistics.median(similar.values())
        with Document() as docs:
            docs.add_texts({**texts, **copies})
            for threshold in THRESHOLDS:
                found = [
                    {str(node.path) for node in own}
                    for own in near_duplicates(docs, threshold=threshold)
                ]
                paired = {
                    key
                    for own in found
                    for key in own & copies.keys()
                    if key.removesuffix(" copy") in own
                }
                due = {key for key, value in similar.items() if value >= threshold}
                originals = [{key.removesuffix(" copy") for key in own} for own in found]
                row[f"found_{threshold}"] = len(paired) / len(copies)
                row[f"of_due_{threshold}"] = len(paired & due) / len(due) if due else None
                row[f"others_{threshold}"] = sum(len(own) - 1 for own in originals)
        rows.append(row)
        print(row, flush=True)
    return rows


def timed(passages: int) -> Row:
    """Seconds of processor time for a number of passages, one in fifty a copy."""
    rng = random.Random(0)
    words = [word for text in judged_set("cranfield").texts.values() for word in text.split()]
    texts = {str(at): " ".join(rng.choices(words, k=WORDS)) for at in range(passages)}
    texts |= {str(at): texts[str(at - 1)] + " again" for at in range(1, passages, 50)}
    with Document() as docs:
        docs.add_texts(texts)
        begun, cpu = time.perf_counter(), time.process_time()
        found = near_duplicates(docs)
        row: Row = {"passages": passages, "characters": sum(map(len, texts.values())) // passages}
        row |= {
            "clusters": len(found),
            "s": time.perf_counter() - begun,
            "cpu_s": time.process_time() - cpu,
        }
        begun, cpu = time.perf_counter(), time.process_time()
        read = sum(len(node.text) for node in docs.get_nodes())
        row |= {"cpu_s_of_reading": time.process_time() - cpu, "read": read}
    print(row, flush=True)
    return row


def main() -> int:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--passages", type=int, default=100_000, help="for the time; 0 leaves it out"
    )
    options = parser.parse_args()
    rows = [row for language in SETS for row in measured(language)]
    results.save(
        "near_duplicates", rows, timed=timed(options.passages) if options.passages else None
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
