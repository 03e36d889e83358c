"""Real sentence embeddings, made once, and as many more as a benchmark needs.

The real ones are all-MiniLM-L6-v2's of about 20,000 stretches of 20 words of the English texts, and
of the questions of XQuAD and Cranfield as queries; they are kept in build/bench/cache. Beyond that
number each further vector is a real one, drawn at random, plus half of a random draw that has the
real ones' covariance, of length 1 again: clusters, and a spectrum as the real ones have it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from corpus import RETRIEVAL, paragraphs
from results import FOLDER

from lazyrag.models.onnx import OnnxEmbedder
from tests.shared import SHARED, read_squad

MODEL = SHARED / "models/all-minilm-l6-v2"
CACHE = FOLDER / "cache"
WORDS, STEP = 20, 12
NOISE = 0.5
HOW = f"each a real one plus {NOISE:g} of a draw with their covariance, normalised"


def real_texts() -> list[str]:
    """Stretches of 20 words, one every 12."""
    words = [text.split() for text in paragraphs("en")]
    return [
        " ".join(own[at : at + WORDS])
        for own in words
        for at in range(0, len(own) - WORDS // 2, STEP)
    ]


def questions() -> list[str]:
    """What people ask of these texts."""
    with (RETRIEVAL / "cranfield/queries.jsonl").open(encoding="utf-8") as lines:
        asked = [json.loads(line)["text"] for line in lines]
    return asked + [question for question, _ in read_squad(RETRIEVAL / "xquad/xquad.en.json")[1]]


def embedded(name: str, texts: list[str]) -> np.ndarray:
    """(n, 384) float32 of length 1, from the cache if it is there."""
    path = CACHE / f"{name}-{len(texts)}.npy"
    if not path.exists():
        print(f"embedding {len(texts):,} texts, once", flush=True)
        found = np.asarray(
            OnnxEmbedder(MODEL, batch_size=32, too_long="cut").embed(texts), np.float32
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npy")
        np.save(part, found)
        part.replace(path)
    return np.asarray(np.load(path))


def make_vectors(count: int) -> tuple[np.ndarray, int]:
    """(count, 384) float32 of length 1, and how many of them are real: those at the beginning."""
    real = embedded("minilm", real_texts())
    chance = np.random.default_rng(0)
    real = real[chance.permutation(len(real))]
    if count <= len(real):
        return real[:count], count
    factor = np.linalg.cholesky(np.cov(real.T) + 1e-9 * np.eye(real.shape[1])).astype(np.float32)
    vectors = np.empty((count, real.shape[1]), np.float32)
    vectors[: len(real)] = real
    for start in range(len(real), count, 50_000):
        rows = vectors[start : start + 50_000]
        draw = chance.standard_normal(rows.shape, np.float32) @ factor.T
        rows[:] = real[chance.integers(0, len(real), len(rows))] + np.float32(NOISE) * draw
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return vectors, len(real)


def make_queries(count: int) -> np.ndarray:
    """(count, 384) of questions, drawn at random."""
    vectors = embedded("minilm-questions", questions())
    return np.asarray(vectors[np.random.default_rng(1).permutation(len(vectors))[:count]])


def save(folder: Path, vectors: np.ndarray, queries: np.ndarray) -> dict[str, str]:
    """Both as files for engines."""
    paths = {"vectors": str(folder / "vectors.npy"), "queries": str(folder / "queries.npy")}
    np.save(paths["vectors"], vectors)
    np.save(paths["queries"], queries)
    return paths
