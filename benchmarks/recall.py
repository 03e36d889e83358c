"""Recall of BM25 at paragraph level on XQuAD (twelve languages) and CMRC 2018 (Chinese), through the
Retriever.

    python benchmarks/recall.py [--check]

Each paragraph is one file and one root node; the paragraph that a question was asked about is its
one right answer. A plain BM25 (no stemming; bigrams in Chinese) has recall@1 / @5 of .922 / .988 on
XQuAD in English, .939 / .989 in Chinese, and .967 / .996 on CMRC: these are the bounds there. In the
other languages they are what was reached, less .002. With --check a lower figure (to three decimals)
is a failure. It reads the shared data beside the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results

from lazyrag import LAZY_ROOT_NAME, Document, Retriever
from tests.shared import SHARED, read_squad

RETRIEVAL = SHARED / "data" / "retrieval"

SETS = (
    ("XQuAD en", "xquad/xquad.en.json", "bm25", (0.922, 0.988)),
    ("XQuAD zh", "xquad/xquad.zh.json", "bm25_chinese", (0.939, 0.989)),
    ("CMRC zh", "cmrc2018/cmrc2018_dev_half0.json", "bm25_chinese", (0.967, 0.996)),
    ("XQuAD zh", "xquad/xquad.zh.json", "bm25", None),
    ("XQuAD en", "xquad/xquad.en.json", "bm25_chinese", None),
    ("XQuAD ar", "xquad/xquad.ar.json", "bm25", (0.882, 0.976)),
    ("XQuAD de", "xquad/xquad.de.json", "bm25", (0.888, 0.978)),
    ("XQuAD el", "xquad/xquad.el.json", "bm25", (0.907, 0.976)),
    ("XQuAD es", "xquad/xquad.es.json", "bm25", (0.921, 0.986)),
    ("XQuAD hi", "xquad/xquad.hi.json", "bm25", (0.916, 0.982)),
    ("XQuAD ro", "xquad/xquad.ro.json", "bm25", (0.929, 0.985)),
    ("XQuAD ru", "xquad/xquad.ru.json", "bm25", (0.904, 0.978)),
    ("XQuAD th", "xquad/xquad.th.json", "bm25", (0.933, 0.992)),
    ("XQuAD tr", "xquad/xquad.tr.json", "bm25", (0.913, 0.977)),
    ("XQuAD vi", "xquad/xquad.vi.json", "bm25", (0.927, 0.983)),
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
    """Print the table; with --check compare it with the bounds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail below a bound")
    options = parser.parse_args()
    if not RETRIEVAL.exists():
        print(f"no {RETRIEVAL}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    low = False
    rows: list[results.Row] = []
    print(f"{'set':10} {'similarity':14} {'questions':>9} {'recall@1':>9} {'recall@5':>9}   bound")
    for name, file, similarity, bound in SETS:
        questions, first, fifth = measure(RETRIEVAL / file, similarity)
        rows.append({"set": name, "similarity": similarity, "recall@1": first, "recall@5": fifth})
        beside = "" if bound is None else f"{bound[0]:.3f} / {bound[1]:.3f}"
        print(f"{name:10} {similarity:14} {questions:9} {first:9.3f} {fifth:9.3f}   {beside}")
        low |= bound is not None and (round(first, 3) < bound[0] or round(fifth, 3) < bound[1])
    results.save("recall", rows)
    return int(low and options.check)


if __name__ == "__main__":
    sys.exit(main())
