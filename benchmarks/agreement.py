"""Hybrid search with vectors that do not suit the texts: what agreement with their words saves.

    python benchmarks/agreement.py [--sets cranfield ...]

Each text of Cranfield, XQuAD (English, Spanish, Hindi, Chinese) and CMRC 2018 is a node. Vectors are
those of the shared English model, of the shared Chinese model, and random ones, which depend on the
text alone; or those of the English model beside random ones, under two embed keys. The default
hybrid, which measures the agreement of vectors and words (`lazyrag.read.agreement`), is compared
with the same weights as a fixed choice, and with its two parts, on each half of the questions,
every second one. The share is the part of the vectors' weight that stays.

It needs the shared data beside the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import quality
import results

from lazyrag import (
    LAZY_ROOT_NAME,
    CachedEmbedder,
    Document,
    HybridRetriever,
    OnnxEmbedder,
)
from lazyrag.evaluation import evaluate
from lazyrag.types import Vector
from tests.judged import Judged, judged_set
from tests.shared import SHARED, read_squad, shared

SETS = ("cranfield", "xquad-en", "xquad-es", "xquad-hi", "xquad-zh", "cmrc-zh")
FIGURES = ("recall@1", "nDCG@10")


def test_set(name: str) -> Judged:
    """The texts and questions of a set."""
    if name not in ("xquad-es", "xquad-hi"):
        return judged_set(name)
    path = shared("data", "retrieval", "xquad", f"xquad.{name[-2:]}.json")
    paragraphs, asked = read_squad(path)
    texts = {f"{number}.txt": text for number, text in enumerate(paragraphs)}
    return Judged(texts, [(question, {f"{number}.txt": 1}) for question, number in asked])


def random_vector(text: str) -> Vector:
    """A vector that only equal texts share."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest())
    return np.random.default_rng(seed).standard_normal(384).astype(np.float32)


def embedders() -> Mapping[str, Any]:
    """The models, with their vectors kept for later runs."""
    cache = results.FOLDER / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    english = OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")
    chinese = OnnxEmbedder(
        SHARED / "models" / "bge-small-zh-v1.5",
        pooling="cls",
        query_prefix="为这个句子生成表示以用于检索相关文章：",
        document_prefix="",
        max_tokens=512,
    )
    models: dict[str, Any] = {
        "English model": CachedEmbedder(english, cache / "agreement.db"),
        "Chinese model": CachedEmbedder(chinese, cache / "agreement.db"),
        "random": random_vector,
    }
    both = {"good": models["English model"], "broken": models["random"]}
    return {**models, "English model and random": both}


def measure(name: str, vectors: str, embedder: Any) -> list[results.Row]:
    """A row for each half of the questions and figure."""
    judged = test_set(name)
    grades = {number: answers for number, (_, answers) in enumerate(judged.questions)}
    rows: list[results.Row] = []
    with Document(embed=embedder) as docs:
        docs.add_texts(judged.texts)
        hybrid = HybridRetriever.over(docs, LAZY_ROOT_NAME, topk=quality.TOPK)
        systems = {
            "vector": quality.by(None)(docs),
            "keyword": quality.by("bm25_chinese")(docs),
            "fixed": HybridRetriever.over(
                docs, LAZY_ROOT_NAME, topk=quality.TOPK, weights=[0.6, 0.4]
            ),
            "hybrid": hybrid,
        }
        values = {
            system: evaluate(quality.asked(ask, judged.questions)[0], grades, FIGURES).values
            for system, ask in systems.items()
        }
        fused = hybrid.trace(judged.questions[0][0])
        share = dict(fused.inputs[0].settings if fused.inputs else {}).get("agreement", 1.0)
    for figure in FIGURES:
        for half in ("even", "odd"):
            row: results.Row = {"set": name, "vectors": vectors, "share": share}
            row |= {"figure": figure, "half": half}
            for system in systems:
                per_question = [values[system][figure][number] for number in grades]
                picked = per_question[half == "odd" :: 2]
                row[system] = round(math.fsum(picked) / len(picked), 4)
            rows.append(row)
    return rows


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    rows: list[results.Row] = []
    models = embedders()
    for name in parser.parse_args().sets:
        for vectors, embedder in models.items():
            rows += measure(name, vectors, embedder)
            print(results.table(rows[-4:], list(rows[-1])), flush=True)
    results.save("agreement", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
