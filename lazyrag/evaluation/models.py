"""Change the embedding model of a Document, after both were compared."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.data.segment import content_text
from lazyrag.document.document import Document, indexer_of
from lazyrag.errors import ConfigError
from lazyrag.evaluation.golden import GoldenReport, judge, read_golden
from lazyrag.evaluation.metrics import compare
from lazyrag.groups.node_group import Step
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.report import pages
from lazyrag.ledger.ledger import Ledger
from lazyrag.progress.calls import raise_if_canceled
from lazyrag.retrieval.retriever import Retriever
from lazyrag.text.tokens import token_counters
from lazyrag.types import PathLike
from lazyrag.validation import require, validate_integer


@dataclass(frozen=True, slots=True)
class ModelChange:
    """Result of `change_model`.

    Args:
        embed_key: The embed key.
        candidate: The embed key whose model was compared with the one that serves it.
        groups: The groups with vectors of both.
        tokens: Approximate number of tokens that were embedded: those of texts that no cache had.
        measures: By measure of the questions: the means ``"old"`` and ``"new"``, their
            ``"difference"`` with its p-value ``"p"``, and the numbers of questions with a better,
            worse and equal value: ``"wins"``, ``"losses"``, ``"ties"``; see
            `lazyrag.evaluation.Comparison`.
        is_switched: Whether the candidate serves the embed key now.
    """

    embed_key: str
    candidate: str
    groups: tuple[str, ...]
    tokens: int
    measures: Mapping[str, Mapping[str, float]]
    is_switched: bool


def change_model(
    docs: Document,
    embed_key: str,
    candidate: str,
    *,
    group: str | None = None,
    questions: PathLike | None = None,
    token_budget: int | None = None,
    switch: bool | None = None,
) -> ModelChange:
    """Embed with another model while the present one serves, compare both, and switch in one
    transaction.

    Both are embed callables of the Document: ``Document(embed={"default": old, "new": new})``. Once
    switched, queries by ``"default"`` use the model and the vectors of ``"new"``, in every program
    that has opened the store with both, from its next query on; retrievers stay as they are. Syncs
    keep both up to date, so that ``change_model(docs, "default", "default")`` switches back at
    once. Name the embed keys of retrievers: without ``embed_keys=`` they use all of them.

    As a job, it lets other jobs go first, and goes on where it stopped.

    Args:
        docs: The Document.
        embed_key: The embed key.
        candidate: Another one; the same one to switch back to its own model.
        group: The group to embed; None for all groups that are embedded with the embed key.
        questions: A file of golden questions, see `lazyrag.evaluation.read_golden`, that both
            answer by vector search.
        token_budget: Embed nothing if it would take more tokens, approximately.
        switch: Whether to switch; None for yes, unless the candidate is worse in a measure.

    Raises:
        ConfigError: If an embed key is unknown, nothing is embedded with it, or the budget is too
            small.
        IngestionError: If a text cannot be embedded, or all of them.
    """
    embedders = docs.reader.embedders([embed_key, candidate])
    embed_key, candidate = (embedder.key for embedder in embedders)

    indexer = indexer_of(docs)
    view = indexer.now()
    planner = indexer.planner
    is_other = candidate != embed_key
    is_switched = is_other and candidate in view.tree.switched
    require(not is_switched, "candidate", candidate, "a key that is not switched")
    groups: list[str] = []
    for name in view.groups if group is None else view.groups.keys() & {group}:
        step = Step(name, embed_key=embed_key)
        key: Any = planner.index_key(step)
        index = planner.live_index(view, step) if is_other else view.groups[name].indexes.get(key)
        if index is not None and index.complete:
            groups.append(name)
    expected = "one with which a group is embedded"
    require(bool(groups), "embed_key", embed_key, expected, "Embed it with activate_group.")
    tokens = 0
    measures = {}
    if is_other:
        tokens = sum(_count_tokens(indexer, name, candidate) for name in groups)
        if token_budget is not None and tokens > validate_integer("token_budget", token_budget, 0):
            raise ConfigError(
                f"The embed of key {candidate!r} would read about {tokens} tokens, and token_budget"
                f" is {token_budget}. Nothing was embedded; raise it to allow them."
            )
        docs.activate_group(*groups, embed_keys=[candidate])
        if questions is not None:
            measures = _compared(docs, groups, embed_key, candidate, questions)
    if switch is None:
        switch = all(values["difference"] >= 0 for values in measures.values())
    raise_if_canceled()
    if switch:
        with indexer.writing():
            _switch(indexer.ledger, embed_key, candidate)
    return ModelChange(embed_key, candidate, tuple(groups), tokens, measures, switch)


def _count_tokens(indexer: Indexer, group: str, embed_key: str) -> int:
    """The tokens of a group's texts that no cache has a vector of, approximately."""
    embedder: Any = indexer.planner.embedders[embed_key].embedder
    state = indexer.now().groups[group]
    key = indexer.planner.index_key(Step(group, embed_key=embed_key))
    if key is not None and key in state.indexes and state.indexes[key].complete:
        return 0
    total = 0
    for rows in pages(functools.partial(indexer.nodes.segments.scan, state.collection)):
        texts = {content_text(row.content) for row in rows}
        texts -= embedder.cached(texts) if hasattr(embedder, "cached") else set()
        total += sum(map(token_counters["utf8"].count, texts))
    return total


def _compared(
    docs: Document,
    groups: Sequence[str],
    embed_key: str,
    candidate: str,
    questions: PathLike,
) -> dict[str, dict[str, float]]:
    """The means of two models' answers to golden questions, by measure, with the significance of
    their differences.
    """
    golden = read_golden(os.fspath(questions))
    group = golden.settings.group if golden.settings.group in groups else groups[0]
    retriever = functools.partial(Retriever, docs, group)
    topk = golden.settings.topk
    old = judge(golden, docs, retriever(embed_keys=[embed_key], topk=topk))
    new = judge(golden, docs, retriever(embed_keys=[candidate], topk=topk))
    measures: dict[str, dict[str, float]] = {}
    for before, after in zip(old.verdicts, new.verdicts, strict=True):
        name = before.measure
        comparison = compare(_values_of(old, name), _values_of(new, name))
        means = {"old": before.value, "new": after.value}
        measures[name] = means | dataclasses.asdict(comparison)
    return measures


def _values_of(report: GoldenReport, measure: str) -> dict[str, float]:
    return {
        question.question: question.values[measure]
        for question in report.questions
        if measure in question.values
    }


def _switch(ledger: Ledger, embed_key: str, candidate: str) -> None:
    """Let an embed key be served by another one, in one transaction; reads that overlap it are
    repeated.
    """
    with ledger.writing(durable=True) as connection:
        [text] = connection.execute(
            "SELECT switched FROM ledger WHERE id = ?", (ledger.id,)
        ).fetchone()
        present = json.loads(text)
        switched = {key: other for key, other in present.items() if key != embed_key}
        if candidate != embed_key:
            switched[embed_key] = candidate
        if switched != present:
            ledger.next_change(connection)
            query = "UPDATE ledger SET switched = ?, removals = removals + 1 WHERE id = ?"
            connection.execute(query, (json.dumps(switched), ledger.id))
