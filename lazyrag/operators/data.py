"""`RAGData`, the trace of a question through operators (spec 000), and functions that read and
extend it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import (
    Any,
    Dict,
    Final,
    List,
    TypeAlias,
    TypedDict,
)

from lazyrag.errors import ConfigError
from lazyrag.types import JsonObject
from lazyrag.validation import is_list_of, require, validate_choice

Trace: TypeAlias = Mapping[str, Any]
"""A `RAGData`, or a part of one, as any mapping."""


class RAGData(TypedDict, total=False):
    """The fields that operators read and append, as spec 000 writes them. You may add fields of
    your own.
    """

    query: str
    question: Dict[str, Any]  # noqa: UP006
    references: List[str]  # noqa: UP006
    retrieval_results: List[Dict[str, Any]]  # noqa: UP006
    retrieval_docs: List[str]  # noqa: UP006
    retrieval_time: float
    reranking_results: List[Dict[str, Any]]  # noqa: UP006
    reranking_docs: List[str]  # noqa: UP006
    reranking_time: float
    refining_results: List[Dict[str, Any]]  # noqa: UP006
    refining_docs: List[str]  # noqa: UP006
    refining_time: float
    prompt: str
    generated: str
    generation_time: float
    input: Any


STAGES: Final = ("retrieval", "reranking", "refining", "generation")
"""The stages that take time, in their usual order."""

TO_RERANK: Final = ("refining", "retrieval")
TO_REFINE: Final = ("reranking", "retrieval")
TO_READ: Final = ("refining", "reranking", "retrieval")
"""Stages in the order in which their documents are read: the first one that has some."""

_STANDARD: Final = frozenset(RAGData.__annotations__)
_NESTED: Final = re.compile(
    r"(?:retrieve|retrieval|rerank|reranking|refine|refining|generate|generation)_metrics|metrics"
)
_RENAMED: Final = {
    "retrieved_docs": "retrieval_docs",
    "refined_docs": "refining_docs",
    "refine_time": "refining_time",
    "generate_time": "generation_time",
    "pred": "generated",
    "golds": "references",
}


def latest_docs(data: Trace, order: Sequence[str] = TO_READ) -> tuple[str, list[str]]:
    """Return the documents to read, and their stage.

    Args:
        data: A trace.
        order: Stages, the preferred one first. A stage without documents falls through to the next.

    Returns:
        The stage and its documents; ``("", [])`` if no stage has any.

    Raises:
        ConfigError: If a stage's documents are not a list of strings.

    Example:
        >>> latest_docs({"refining_docs": [], "retrieval_docs": ["tea"]})
        ('retrieval', ['tea'])
    """
    for stage in order:
        docs = data.get(f"{stage}_docs") or []
        require(
            isinstance(docs, list) and is_list_of(docs, str),
            f"{stage}_docs",
            docs,
            "a list of strings",
        )
        if docs:
            return stage, docs
    return "", []


def latest_results(data: Trace, order: Sequence[str] = TO_READ) -> list[JsonObject]:
    """Return the same documents as rows with ``text`` and, where known, ``score``, ``metadata`` and
    other fields.

    Raises:
        ConfigError: If the stage's results are not one for each document.
    """
    stage, docs = latest_docs(data, order)
    results = data.get(f"{stage}_results") or [{} for _ in docs]
    is_valid = is_list_of(results, Mapping) and len(results) == len(docs)
    require(
        is_valid,
        f"{stage}_results",
        results,
        f"one dict for each of the {len(docs)} texts of {stage}_docs",
    )
    return [{**row, "text": text} for row, text in zip(results, docs, strict=True)]


def query_of(data: Trace) -> str:
    """Return the query of a trace; it may be blank.

    Raises:
        ConfigError: If there is none.
    """
    query = data.get("query")
    require(
        isinstance(query, str), "query", query, "a string", "Pass data = {'query': 'a question'}."
    )
    return query  # type: ignore[return-value]  # validated above


def references_of(data: Trace) -> list[str]:
    """Return the reference answers of a trace: its ``references``, else those of its ``question``,
    else [].

    Raises:
        ConfigError: If they are not a list of strings.

    Example:
        >>> references_of({"question": {"id": "q1", "references": ["80 degrees"]}})
        ['80 degrees']
    """
    question = data.get("question")
    nested = question.get("references") if isinstance(question, Mapping) else None
    references: list[str] = data.get("references") or nested or []
    require(
        isinstance(references, list) and is_list_of(references, str),
        "references",
        references,
        "a list of strings",
    )
    return references


def validate_data(data: Any) -> RAGData:
    """Return a trace unchanged.

    Raises:
        ConfigError: If it is a tuple, or has fields of the older formats, which were ambiguous.
            `from_legacy` renames them.
    """
    hint = (
        "A tuple (query, docs) is no longer supported: pass {'query': ..., 'retrieval_docs':"
        " [...]}."
    )
    require(isinstance(data, dict), "data", data, "a dict such as {'query': 'a question'}", hint)
    for name, value in data.items():
        if isinstance(name, str) and _NESTED.fullmatch(name) and isinstance(value, Mapping):
            hint = (
                "Each stage has a field for its time: write refining_time instead of"
                " refine_metrics.refine_time."
            )
            raise ConfigError(
                f"Nested metrics such as {name!r} ({value!r:.60}) are no longer supported. {hint}"
            )
    for name in ("results", *_RENAMED):
        if name in data:
            new = _RENAMED.get(name, "retrieval_results or refining_results")
            raise ConfigError(
                f"The field {name!r} is now {new}. Call from_legacy(data) before the first"
                " operator."
            )
    return data  # type: ignore[no-any-return]  # a TypedDict is a dict at run time


def append_fields(data: RAGData, fields: Trace, owned: Sequence[str], by: str) -> JsonObject:
    """Return a new trace with more fields; the given dict stays unchanged.

    Args:
        data: The trace.
        fields: The new fields.
        owned: Standard fields that may be overwritten, as by a second reranking.
        by: The operator, for messages.

    Raises:
        ConfigError: If another standard field that has a value would be overwritten.

    Example:
        >>> append_fields({"query": "tea?"}, {"prompt": "Say it: tea?"}, (), "an example")
        {'query': 'tea?', 'prompt': 'Say it: tea?'}
    """
    before: Trace = data
    for name, value in fields.items():
        if (
            name in _STANDARD
            and name not in owned
            and name in before
            and _differs(before[name], value)
        ):
            msg = f"Operators append fields. Use a name of your own, such as 'custom_{name}'."
            raise ConfigError(f"{by} would overwrite {name!r}, which has a value. {msg}")
    return {**data, **fields}


def _differs(before: Any, after: Any) -> bool:
    return before is not after and before != after


def from_legacy(data: Trace, *, results_of: str | None = None) -> JsonObject:
    """Return a trace in the older names as a new one (migration table of spec 000).

    Args:
        data: A trace with names such as ``pred``. It stays unchanged; other fields are copied.
        results_of: ``"retrieval"`` or ``"refining"``: the stage of the field ``results``, which was
            ambiguous. None if the data has no ``results``.

    Raises:
        ConfigError: If it is not a mapping, has nested metrics, a name in both spellings, or
            ``results`` without ``results_of``.

    Example:
        >>> from_legacy({"query": "tea?", "golds": ["tea"], "pred": "Tea."})
        {'query': 'tea?', 'references': ['tea'], 'generated': 'Tea.'}
    """
    require(
        isinstance(data, Mapping),
        "data",
        data,
        "a dict with a query",
        "Tuples are no longer supported.",
    )
    if results_of is not None:
        validate_choice("results_of", results_of, ("retrieval", "refining"))
    elif "results" in data:
        raise ConfigError(
            "The field 'results' is ambiguous; pass results_of='retrieval' or"
            " results_of='refining'."
        )
    names = {**_RENAMED, "results": f"{results_of}_results"}
    renamed = {}
    for name, value in data.items():
        new = names.get(name, name)
        if new in renamed:
            raise ConfigError(f"The data has {new!r} and an older name of it; remove one of them.")
        renamed[new] = value
    validate_data(renamed)
    return renamed
