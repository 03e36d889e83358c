"""The embedding model of these scripts: a real one where there is one, else pairs of letters.

Set LAZYRAG_EMBED_MODEL to a folder with an ONNX model, such as all-MiniLM-L6-v2 (needs the extra
onnx). Pairs of letters compare spelling, not meaning: enough to see how a script works, offline and
without a download.
"""

from __future__ import annotations

import os
import zlib
from itertools import pairwise

import numpy as np

from lazyrag import OnnxEmbedder


def letter_pairs(text: str) -> np.ndarray:
    """Count pairs of neighbouring letters in 1,024 buckets."""
    pairs = ["".join(pair) for pair in pairwise(" ".join(text.casefold().split()))]
    return np.bincount([zlib.crc32(pair.encode()) % 1024 for pair in pairs] or [0], minlength=1024)


def embedding_model():
    """Return what `Document(embed=...)` takes."""
    folder = os.environ.get("LAZYRAG_EMBED_MODEL")
    return OnnxEmbedder(folder) if folder else letter_pairs
