"""Sparse search beside the lexical index: one run, the same nodes and terms, interleaved, medians
and ratios.

    python benchmarks/sparse.py [--nodes 100000]

The nodes and queries are those of benchmarks/lexical.py: real English paragraphs, drawn with
repetition. As "words" a node is the weights that BM25 gives its terms, and a query is 1 for each of
its terms, so that both indexes add up the same postings and find the same nodes, which is checked.
As "expanded" it is more like what learned models make of it: a node has as many dimensions again,
drawn by their frequency, and a query has 20 to 40 of one node with their weights.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

import numpy as np
from corpus import make_corpus, make_queries
from engines.lexical import TOPK
from timing import interleaved, median_ms

from lazyrag.indexes.bm25 import LexicalIndex
from lazyrag.indexes.sparse import SparseIndex
from lazyrag.text.analyzers import english_terms
from lazyrag.types import SparseVector

QUERIES = 200


def bm25_weights(terms: list[list[str]], numbers: dict[str, int]) -> list[SparseVector]:
    """What BM25 (Lucene's, k1 1.5, b 0.75) gives each term of each node."""
    frequencies = Counter(term for own in terms for term in {*own})
    mean = sum(map(len, terms)) / len(terms)
    idf = {
        term: float(np.log1p((len(terms) - df + 0.5) / (df + 0.5)))
        for term, df in frequencies.items()
    }
    return [
        {
            numbers[term]: idf[term] * count / (count + 1.5 * (0.25 + 0.75 * len(own) / mean))
            for term, count in Counter(own).items()
        }
        for own in terms
    ]


def expanded(vectors: list[SparseVector]) -> list[SparseVector]:
    """The same with as many dimensions again, drawn by their frequency, at half of the weights."""
    chance = np.random.default_rng(3)
    common = np.concatenate([np.fromiter(vector, np.int64) for vector in vectors])
    found = []
    for vector in vectors:
        added = chance.choice(common, len(vector)).tolist()
        found.append(
            {**dict(zip(added, (weight / 2 for weight in vector.values()), strict=True)), **vector}
        )
    return found


def made(keys: list[str], vectors: list[SparseVector]) -> SparseIndex:
    """An index of all of them, written in one go."""
    index = SparseIndex()
    started = time.perf_counter()
    index.add(keys, vectors)
    weights = sum(map(len, vectors))
    print(
        f"{len(keys)} rows with {weights} weights indexed in {time.perf_counter() - started:.1f} s"
    )
    return index


def run(count: int) -> None:
    """Measure at one size."""
    corpus = make_corpus("en", count)
    terms = [english_terms(text) for text in corpus.texts()]
    keys = [f"{number:08d}" for number in range(count)]
    numbers = {
        term: number for number, term in enumerate(sorted({term for own in terms for term in own}))
    }
    lexical = LexicalIndex()
    lexical.add(keys, terms)
    plain = bm25_weights(terms, numbers)
    richer = expanded(plain)
    sparse, learned = made(keys, plain), made(keys, richer)
    chance = random.Random(4)
    queries: list[dict[str, object]] = []
    for words in make_queries(corpus, QUERIES):
        asked = english_terms(words)
        some = chance.sample(sorted(chance.choice(richer).items()), chance.randint(20, 40))
        queries.append(
            {
                "LexicalIndex": asked,
                "SparseIndex, words": Counter(map(numbers.__getitem__, asked)),
                "expanded": dict(some),
            }
        )
    for query in queries[:20]:
        best = lexical.state.search(query["LexicalIndex"], TOPK)
        same = sparse.state.search(
            {key: float(value) for key, value in query["SparseIndex, words"].items()}, TOPK
        )
        assert np.allclose([score for _, score in best], [score for _, score in same], rtol=1e-5)
    seconds = interleaved(
        {
            "LexicalIndex": lambda query: lexical.state.search(query, TOPK),
            "SparseIndex, words": lambda query: sparse.state.search(query, TOPK),
            "expanded": lambda query: learned.state.search(query, TOPK),
        },
        queries,
    )
    base = median_ms(seconds["LexicalIndex"])
    for name, found in seconds.items():
        p95 = 1000 * float(np.quantile(found, 0.95))
        print(
            f"{name:20} p50 {median_ms(found):7.3f} ms   p95 {p95:7.3f} ms   {median_ms(found) / base:5.2f} x"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=100_000)
    run(parser.parse_args().nodes)
