"""Near-duplicate texts: sets of shingles, MinHash sketches of them, and pairs by locality-sensitive
hashing.

A shingle is a run of eight bytes of a text: eight Latin letters, or nearly three Chinese ones. Case
and white space do not count. Two texts are near-duplicates if their sets of shingles have a Jaccard
similarity of at least a threshold. Sketches only propose pairs; every pair is verified by the sets
themselves.

Source:
    Broder: On the Resemblance and Containment of Documents, 1997, doi:10.1109/SEQUEN.1997.666900
    (shingles, MinHash); Li, Owen, Zhang: One Permutation Hashing, NIPS 2012; Shrivastava, Li:
    Densifying One Permutation Hashing via Rotation, ICML 2014, arXiv:1406.4784; Indyk, Motwani:
    Approximate Nearest Neighbors, STOC 1998, doi:10.1145/276698.276876 (bands).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from lazyrag.types import Int64Array, UInt32Array, UInt64Array
from lazyrag.validation import validate_range

Sketches: TypeAlias = UInt32Array

THRESHOLD = 0.8
"""Default similarity of near-duplicates: one English word of 20 was replaced, or one Chinese letter
of 40."""

_WIDTH = 8
# 16 bands: 99.98 % of the pairs with a similarity of 0.8 share one, 98.8 % of those with 0.7
_BINS = 64
_BAND = 4
_MARGIN = 0.25  # four standard deviations of the similarity of two sketches
_NEIGHBOURS = 16  # per text and band: as many equal texts as one likes take linear time
_EMPTY = 0xFFFFFFFF


def validate_threshold(value: Any) -> float:
    """Return a threshold of similarity."""
    return validate_range("threshold", value, 0.5, 1)


def similarity(text: str, other: str) -> float:
    """Jaccard similarity of the shingles of two texts, from 0 to 1.

    Example:
        >>> similarity("Green tea", "GREEN  TEA"), similarity("green tea", "black coffee")
        (1.0, 0.0)
    """
    return _jaccard(_shingles(text), _shingles(other))


def distinct(texts: Sequence[str], threshold: float = THRESHOLD) -> list[int]:
    """Positions of the texts that are no near-duplicate of an earlier one of them.

    Example:
        >>> texts = "Green tea needs 80 degrees.", "Coffee needs 92.", "Green tea  needs 80 degrees"
        >>> distinct(texts)
        [0, 1]
    """
    table = sketches(texts)
    distinct_rows = list[int]()
    sets = lru_cache(None)(lambda at: _shingles(texts[at]))
    for at, row in enumerate(table):
        near = np.flatnonzero((table[distinct_rows] == row).mean(1) >= threshold - _MARGIN)
        if all(_jaccard(sets(at), sets(distinct_rows[position])) < threshold for position in near):
            distinct_rows.append(at)
    return distinct_rows


def sketches(texts: Sequence[str]) -> Sketches:
    """MinHash sketches of texts, a row each: the share of equal columns of two rows estimates their
    similarity.
    """
    if not texts:
        return np.empty((0, _BINS), np.uint32)
    windows = [_windows(text) for text in texts]
    hashes = _mixed(np.concatenate(windows))
    bins = np.repeat(np.arange(len(texts)) * _BINS, [*map(len, windows)])
    bins += (hashes >> 58).astype(np.intp)
    lowest = np.full(len(texts) * _BINS, _EMPTY, np.uint32)
    np.minimum.at(lowest, bins, (hashes & 0x7FFFFFFF).astype(np.uint32))
    table = lowest.reshape(-1, _BINS)
    short = np.flatnonzero((table == _EMPTY).any(1))
    part = table[short]
    # an empty bin takes the value of the next one
    for at in (*reversed(range(_BINS)), *reversed(range(_BINS))):
        following = part[:, (at + 1) % _BINS]
        part[:, at] = np.where(
            (part[:, at] == _EMPTY) & (following != _EMPTY), following + 0x9E3779B1, part[:, at]
        )
    table[short] = part
    return table


def similar_pairs(table: Sketches, threshold: float = THRESHOLD) -> Int64Array:
    """Pairs of rows that are probably similar enough, sorted: those to verify."""
    pairs = [np.empty(0, np.int64)]
    for begin in range(0, _BINS, _BAND):
        keys = np.zeros(len(table), np.uint64)
        for column in table.T[begin : begin + _BAND]:
            keys = _mixed(keys ^ column)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        for step in range(1, _NEIGHBOURS + 1):
            equal = keys[step:] == keys[:-step]
            if not equal.any():
                break
            first = order[:-step][equal]
            second = order[step:][equal]
            is_near = (table[first] == table[second]).mean(1) >= threshold - _MARGIN
            pairs.append(first[is_near] * len(table) + second[is_near])
    return np.stack(np.divmod(np.unique(np.concatenate(pairs)), max(len(table), 1)), axis=1)


def clusters(
    pairs: Int64Array, text_of: Callable[[int], str], threshold: float = THRESHOLD
) -> list[list[int]]:
    """Clusters of near-duplicates: verified pairs, and what is connected by them. All in ascending
    order.

    Args:
        pairs: Candidates; see `similar_pairs`.
        text_of: Returns the text of a position.
        threshold: The least similarity.
    """
    sets = lru_cache(4096)(lambda at: _shingles(text_of(at)))
    root: dict[int, int] = {}

    def find(at: int) -> int:
        while root.setdefault(at, at) != at:
            root[at] = at = root[root[at]]
        return at

    for first, second in pairs.tolist():
        lower, higher = sorted((find(first), find(second)))
        if lower != higher and _jaccard(sets(first), sets(second)) >= threshold:
            root[higher] = lower
    members: dict[int, list[int]] = {}
    for at in sorted(root):
        members.setdefault(find(at), []).append(at)
    return [cluster for cluster in members.values() if len(cluster) > 1]


def _jaccard(first: UInt64Array, other: UInt64Array) -> float:
    both = len(np.intersect1d(first, other, assume_unique=True))
    return both / (len(first) + len(other) - both)


def _shingles(text: str) -> UInt64Array:
    return np.unique(_windows(text))


def _windows(text: str) -> UInt64Array:
    """All runs of bytes of a text, as numbers."""
    data = " ".join(text.casefold().split()).encode("utf-8", "replace").ljust(_WIDTH, b"\0")
    return np.ndarray((len(data) - _WIDTH + 1,), np.dtype("<u8"), data, strides=(1,))


def _mixed(numbers: UInt64Array) -> UInt64Array:
    """Each number scrambled: the finalizer of MurmurHash3."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(33))
