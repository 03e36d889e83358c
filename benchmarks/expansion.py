"""Keyword search without a model, for questions in other words: do expansion, proximity or vectors
of the corpus help?

    python benchmarks/expansion.py [--sets md-en ...]

Each way reorders or expands the default keyword search, with what the library itself has: RM3
(Lavrenko and Croft 2001; Abdul-Jaleel et al. 2004), terms that occur together with those of the
question (normalised pointwise mutual information, Bouma 2009), a bonus for words of the question
that stand close to each other, and latent semantic analysis (Deerwester et al. 1990) fused with it.
The figures are file@1 of all and of the paraphrase questions of the documentation trees, and
nDCG@10 of the judged sets, of even / odd questions. A way is worth its place if it gains .03 on
paraphrases and loses nowhere.

It needs the shared data beside the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import documentation
import quality
import results

from lazyrag import DocNode, Document, Retriever
from lazyrag.evaluation import evaluate
from lazyrag.text.analyzers import chinese_terms
from tests.judged import SETS as JUDGED
from tests.judged import judged_set

SETS = (*documentation.SETS, *JUDGED)
DEPTH = 60
TOPK = 10
FIGURE = "nDCG@10"
NEW_TERMS = 10
REPEATED = 10
"""How often the words of a question are repeated, so that others can have smaller weights."""
WINDOW = 5
DIMENSIONS = 100


class Library:
    """The nodes of a group with their terms.

    Args:
        docs: The Document.
        group: The group.
    """

    def __init__(self, docs: Document, group: str) -> None:
        self.search = Retriever(docs, group, "bm25_chinese", topk=DEPTH)
        self.nodes = docs.get_nodes(group)
        self.terms = {node.uid: chinese_terms(node.get_text()) for node in self.nodes}
        self.holders: dict[str, set[int]] = defaultdict(set)
        for number, node in enumerate(self.nodes):
            for term in self.terms[node.uid]:
                self.holders[term].add(number)

    def rarity(self, term: str) -> float:
        """The inverse document frequency of a term."""
        return math.log1p(len(self.nodes) / (1 + len(self.holders[term])))

    def expanded(self, question: str, weights: Mapping[str, float], share: float) -> str:
        """A question with other terms, which have a share of its weight, as a text."""
        terms = chinese_terms(question)
        words = [question] * REPEATED
        total = math.fsum(weights.values()) or 1.0
        mass = REPEATED * len(terms) * share / (1 - share)
        for term, weight in weights.items():
            words += [term] * round(mass * weight / total)
        return " ".join(words)


def best_new(weights: Mapping[str, float], question: str) -> dict[str, float]:
    """The heaviest terms that a question does not have."""
    known = set(chinese_terms(question))
    others = [(term, weight) for term, weight in weights.items() if term not in known]
    return dict(sorted(others, key=lambda pair: -pair[1])[:NEW_TERMS])


def rm3(library: Library, count: int, share: float) -> quality.Ask:
    """The question with the terms of its first nodes."""

    def ask(question: str) -> Sequence[DocNode]:
        first = library.search(question)[:count]
        weights: Counter[str] = Counter()
        for node in first:
            terms = library.terms[node.uid]
            for term in terms:
                weights[term] += (node.score or 0.0) / len(terms)
        informative = {term: weight * library.rarity(term) for term, weight in weights.items()}
        return library.search(library.expanded(question, best_new(informative, question), share))

    return ask


def together(library: Library, share: float) -> quality.Ask:
    """The question with the terms that occur with its own more often than by chance."""
    count = len(library.nodes)

    def ask(question: str) -> Sequence[DocNode]:
        weights: Counter[str] = Counter()
        for term in set(chinese_terms(question)):
            own = library.holders.get(term, set())
            if not 2 <= len(own) <= count / 10:
                continue
            others = Counter(
                other for number in own for other in set(library.terms[library.nodes[number].uid])
            )
            for other, both in others.items():
                if both < 2:
                    continue
                expected = len(own) * len(library.holders[other]) / count
                bits = math.log(both / expected) / -math.log(both / count)
                weights[other] += max(0.0, bits) * library.rarity(term)
        return library.search(library.expanded(question, best_new(weights, question), share))

    return ask


def nearness(question: Sequence[str], text: Sequence[str]) -> float:
    """How many neighbours of a question stand close to each other in a text, from 0 to 1."""
    places: dict[str, list[int]] = defaultdict(list)
    for number, term in enumerate(text):
        places[term].append(number)
    pairs = list(itertools.pairwise(question))
    close = 0.0
    for first, second in pairs:
        gaps = [abs(at - other) for at in places[first] for other in places[second]]
        nearest = min((gap for gap in gaps if gap), default=WINDOW + 1)
        close += 1 / nearest if nearest <= WINDOW else 0.0
    return close / len(pairs) if pairs else 0.0


def close_words(library: Library, weight: float) -> quality.Ask:
    """The first nodes, with a bonus for words that are close to each other."""

    def ask(question: str) -> Sequence[DocNode]:
        terms = chinese_terms(question)
        scored = [
            node.with_score(
                (node.score or 0.0) * (1 + weight * nearness(terms, library.terms[node.uid]))
            )
            for node in library.search(question)
        ]
        return sorted(scored, key=lambda node: -(node.score or 0.0))

    return ask


def latent(library: Library) -> Callable[[str], np.ndarray]:
    """Similarities of a question to all nodes by latent semantic analysis."""
    columns = {term: number for number, term in enumerate(library.holders)}
    rarities = np.array([library.rarity(term) for term in columns], np.float32)

    def row(terms: Iterable[str]) -> np.ndarray:
        vector = np.zeros(len(columns), np.float32)
        for term, count in Counter(terms).items():
            if term in columns:
                vector[columns[term]] = 1 + math.log(count)
        vector *= rarities
        return vector / (np.linalg.norm(vector) or 1.0)

    matrix = np.stack([row(library.terms[node.uid]) for node in library.nodes])
    sample = matrix @ np.random.default_rng(0).standard_normal(
        (len(columns), DIMENSIONS + 20), np.float32
    )
    for _ in range(2):  # power iterations of the randomised decomposition, Halko et al. 2011
        sample, _ = np.linalg.qr(matrix @ (matrix.T @ sample))
    _, _, basis = np.linalg.svd(sample.T @ matrix, full_matrices=False)
    basis = basis[:DIMENSIONS].T
    nodes = matrix @ basis
    nodes /= np.linalg.norm(nodes, axis=1, keepdims=True) + 1e-9

    def similarities(question: str) -> np.ndarray:
        vector = row(chinese_terms(question)) @ basis
        return nodes @ (vector / (np.linalg.norm(vector) + 1e-9))

    return similarities


def fused(
    library: Library, similarities: Callable[[str], np.ndarray], weight: float
) -> quality.Ask:
    """Keyword search and latent vectors, each divided by its best score."""

    def ask(question: str) -> Sequence[DocNode]:
        scores = similarities(question)
        words = {node.uid: node.score or 0.0 for node in library.search(question)}
        best = max(words.values(), default=1.0)
        top = float(scores.max()) or 1.0
        candidates = set(np.argsort(-scores)[:DEPTH].tolist())
        nodes = [
            node.with_score(
                (1 - weight) * words.get(node.uid, 0.0) / best
                + weight * float(scores[number]) / top
            )
            for number, node in enumerate(library.nodes)
            if number in candidates or node.uid in words
        ]
        return sorted(nodes, key=lambda node: -(node.score or 0.0))[:DEPTH]

    return ask


def ways(library: Library) -> dict[str, quality.Ask]:
    """What is compared."""
    similarities = latent(library)
    return {
        "bm25_chinese": library.search,
        **{
            f"RM3, {count} nodes, {share}": rm3(library, count, share)
            for count in (3, 10)
            for share in (0.2, 0.4)
        },
        **{f"together, {share}": together(library, share) for share in (0.1, 0.2)},
        **{f"close words, {weight}": close_words(library, weight) for weight in (0.2, 0.5)},
        **{
            f"latent vectors, {weight}": fused(library, similarities, weight)
            for weight in (0.2, 0.4)
        },
    }


def halves(values: Sequence[float]) -> str:
    """The means of even and odd questions."""
    means = [math.fsum(part) / len(part) for part in (values[::2], values[1::2])]
    return " / ".join(f"{mean:.3f}" for mean in means)


def measured(name: str, ask: quality.Ask) -> dict[str, str]:
    """The figures of a way to search a set."""
    if name in documentation.SETS:
        questions = documentation.questions_of(name)
        hits = [documentation.row(ask, [question])["file@1"] for question in questions]
        others = [
            hit
            for hit, question in zip(hits, questions, strict=True)
            if question["kind"] == "paraphrase"
        ]
        return {"file@1": halves(hits), "paraphrases": halves(others)}
    questions = judged_set(name).questions
    judged = {number: grades for number, (_, grades) in enumerate(questions)}
    run, _ = quality.asked(lambda question: ask(question)[:TOPK], questions)
    return {FIGURE: halves([*evaluate(run, judged, [FIGURE]).values[FIGURE].values()])}


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    options = parser.parse_args()
    for name in options.sets:
        rows: list[results.Row] = []
        with quality.opened_set(name, None) as (docs, group):
            for way, ask in ways(Library(docs, group)).items():
                rows.append({"set": name, "way": way, **measured(name, ask)})
        print(results.table(rows, list(rows[0])), flush=True)
        results.save(f"expansion-{name}", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
