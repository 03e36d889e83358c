"""Whether the vectors of a group agree with the words of its texts.

A working embedding model places texts that share rare words closer together than others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from lazyrag.read.scope import Reader
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.text.analyzers import term_function
from lazyrag.types import FloatArray

ANALYSER = "zh"
"""Of the default hybrid search."""
_SAMPLE = 64  # nodes: random vectors then agree by 0, with a standard deviation of .02
_LEAST_SAMPLE = 48  # different texts
_LEAST_ALIKE = 200  # of 64 x 64 pairs of texts with a word in common
_CHANCE = 0.1  # correlations that random vectors may have; see docs/quality.md
_LEAST_LENGTH = 1e-9  # equal vectors agree with nothing
_WORKING = 0.3  # of each model that knows the language of the texts


def agreement(part: LocalSnapshot, group: str, analyser: str, embed_key: str) -> float:
    """How far the vectors of the visible nodes of a group agree with the words of their texts, from
    0, by chance alone, to 1, as those of a model that works; 1 where too few texts tell.

    It is the correlation, over pairs of texts, of the cosines of dense vectors and those of the
    rare words. The sample are the nodes nearest to a fixed direction: close to a random choice, and
    the same for the same vectors.

    Args:
        part: Of one Document.
        group: The group.
        analyser: Name of the registered analyser.
        embed_key: Of the vectors.
    """
    dimension = part.vector_index(group, embed_key).dimension
    if dimension <= 0:  # sparse, or none
        return 1.0
    hits = part.rank_vectors(group, embed_key, [np.ones(dimension, np.float32)], _SAMPLE, None)
    by_text = {node.get_text(): node.segment for node in part.nodes(group, hits)}
    words = _term_weights([*map(term_function(analyser, is_query=True), by_text)])
    if len(by_text) < _LEAST_SAMPLE or np.count_nonzero(words @ words.T) < _LEAST_ALIKE:
        return 1.0
    vectors = np.array(part.vectors([*by_text.values()], embed_key), np.float64)
    correlation = _similarities(words) @ _similarities(vectors)
    return round(float(np.interp(correlation, (_CHANCE, _WORKING), (0.0, 1.0))), 2)


def measure_agreement(reader: Reader, group: str, embed_key: str) -> float:
    """Measure the agreement of vectors that are built, as a hybrid search would."""
    return reader.read(lambda part: part.measured(agreement, group, ANALYSER, embed_key))


def _term_weights(texts: Sequence[Sequence[str]]) -> FloatArray:
    """(n, terms) the idf of the terms that each text has."""
    columns = {
        term: column for column, term in enumerate(dict.fromkeys(chain.from_iterable(texts)))
    }
    has_term = np.zeros((len(texts), len(columns)))
    for row, terms in zip(has_term, texts, strict=True):
        row[[columns[term] for term in terms]] = 1
    weights: FloatArray = has_term * np.log(len(texts) / has_term.sum(axis=0))
    return weights


def _similarities(vectors: FloatArray) -> FloatArray:
    """The cosine of each pair, less what either has with others on average, brought to length 1."""
    rows = _unit(vectors)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, np.nan)
    means = np.nanmean(cosines, axis=0)
    rest = cosines - means - means[:, None] + means.mean()
    return _unit(rest[np.triu_indices(len(rows), 1)])


def _unit(vectors: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: FloatArray = vectors / np.maximum(lengths, _LEAST_LENGTH)
    return unit
