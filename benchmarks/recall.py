"""Recall of BM25 at paragraph level on XQuAD (English, Chinese) and CMRC 2018 (Chinese), through
the Retriever.

    python benchmarks/recall.py [--check]

Each paragraph is one file and one root node; the paragraph that a question was asked about is its
one right answer. A plain BM25 (no stemming; bigrams in Chinese) has recall@1 / @5 of .922 / .988 on
XQuAD in English, .939 / .989 in Chinese, and .967 / .996 on CMRC. With --check a lower figure than
these (to three decimals) is a failure. It reads the shared data beside the checkout; LAZYRAG_SHARED
names another folder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag import LAZY_ROOT_NAME, Document, Retriever
from tests.shared import SHARED, read_squad

RETRIEVAL = SHARED / "data" / "retrieval"

SETS = (
    ("XQuAD en", "xquad/xquad.en.json", "bm25", (0.922, 0.988)),
    ("XQuAD zh", "xquad/xquad.zh.json", "bm25_chinese", (0.939, 0.989)),
    ("CMRC zh", "cmrc2018/cmrc2018_dev_half0.json", "bm25_chinese", (0.967, 0.996)),
    ("XQuAD zh", "xquad/xquad.zh.json", "bm25", None),
    ("XQuAD en", "xquad/xquad.en.json", "bm25_chinese", None),
)


def measure(path: Path, similarity: str) -> tuple[int, float, float]:
    """Number of questions, recall@1, recall@5."""
    paragraphs, questions = read_squad(path)
    with tempfile.TemporaryDirectory() as folder:
        for number, paragraph in enumerate(paragraphs):
            (Path(folder) / f"{number:05d}.txt").write_text(paragraph, encoding="utf-8")
        retriever = Retriever(Document(folder), LAZY_ROOT_NAME, similarity, topk=5)
        ranks = []
        for question, number in questions:
            found = [node.path for node in retriever(question)]
            right = f"{number:05d}.txt"
            ranks.append(found.index(right) + 1 if right in found else 0)
    return (
        len(ranks),
        sum(rank == 1 for rank in ranks) / len(ranks),
        sum(rank > 0 for rank in ranks) / len(ranks),
    )


def main() -> int:
    """Print the table; with --check compare it with a plain BM25."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="fail below the figures of a plain BM25"
    )
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    low = False
    print(
        f"{'set':10} {'similarity':14} {'questions':>9} {'recall@1':>9} {'recall@5':>9}   plain BM25"
    )
    for name, file, similarity, plain in SETS:
        questions, first, fifth = measure(RETRIEVAL / file, similarity)
        beside = "" if plain is None else f"{plain[0]:.3f} / {plain[1]:.3f}"
        print(f"{name:10} {similarity:14} {questions:9} {first:9.3f} {fifth:9.3f}   {beside}")
        low |= plain is not None and (round(first, 3) < plain[0] or round(fifth, 3) < plain[1])
    return int(low and options.check)


if __name__ == "__main__":
    sys.exit(main())
