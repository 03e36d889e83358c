"""Vectors of texts in several languages.

A multilingual model places texts of one language close together, so that the nearest nodes of a
query are in its own language. Projecting the mean vector of each language out of the query removes
this bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from lazyrag.indexes.bm25 import BM25
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.text.scripts import LANGUAGES, Language, frequent_terms, main_language
from lazyrag.text.stop_words import STOP_MARK
from lazyrag.types import Embedding, Vector

_SAMPLE = 64  # nodes of a language: their mean has a cosine of .98 with that of all (tried)
_LEAST_SAMPLE = 16
_LEAST_SIZE = 1e-6  # of an axis beside the largest: below it, a mean is a multiple of others

LanguageMeans: TypeAlias = "Mapping[Language, Vector]"


def language_means(part: LocalSnapshot, group: str, analyser: str, embed_key: str) -> LanguageMeans:
    """The mean vectors of the visible nodes of each language.

    A language's nodes are those among the best 64 by its frequent words whose text is in it by
    `main_language`; one with fewer than 16 is left out.

    Args:
        part: Of one Document.
        group: The group.
        analyser: ``"en"`` or ``"zh"``, whose terms are indexed.
        embed_key: Of dense vectors.
    """
    means = {}
    for language in LANGUAGES:
        words = frequent_terms(language)
        terms = [*words, *(STOP_MARK + word for word in words)]  # not all are stop words
        hits = part.rank_terms(group, analyser, terms, _SAMPLE, None, BM25())
        if len(hits) >= _LEAST_SAMPLE:
            segments = [
                node.segment
                for node in part.nodes(group, hits)
                if (main_language(node.get_text()) or "en") == language
            ]
            vectors = part.vectors(segments, embed_key)
            dense = [vector for vector in vectors if isinstance(vector, np.ndarray)]
            if len(dense) >= _LEAST_SAMPLE:
                means[language] = np.mean(dense, axis=0)
    return means


def without_languages(vector: Embedding, means: LanguageMeans) -> Embedding:
    """A query's vector without the directions of the means of languages: without what it has in
    common with all texts of one of them. A sparse vector stays as it is.

    Example:
        >>> means = {"en": np.array([1.0, 0.0]), "zh": np.array([-1.0, 0.0])}
        >>> without_languages(np.array([-0.8, 0.6]), means).tolist()
        [0.0, 0.6]
    """
    if isinstance(vector, dict) or not means:
        return vector
    _, sizes, axes = np.linalg.svd(np.array([*means.values()], np.float64), full_matrices=False)
    axes = axes[sizes > _LEAST_SIZE * sizes[0]]
    rest: Vector = (vector - axes.T @ (axes @ vector)).astype(vector.dtype)
    return rest
