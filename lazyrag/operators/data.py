"""`RAGData`, the trace of a question through operators (spec 000): its fields, and which are read first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Dict, Final, List, TypedDict  # noqa: UP035  as the specification writes them

from lazyrag.errors import ConfigError, known_names


class RAGData(TypedDict, total=False):
    """What operators read and append to, as spec 000 writes it. Fields of your own may stand beside these."""

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
"""The stages that take time, in the order in which they usually come."""

TO_RERANK: Final = ("refining", "retrieval")
TO_REFINE: Final = ("reranking", "retrieval")
TO_READ: Final = ("refining", "reranking", "retrieval")
"""Which stage's documents are read: the first one that has some."""

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


def latest_docs(data: Mapping[str, Any], order: Sequence[str] = TO_READ) -> tuple[str, list[str]]:
    """The documents to read, and the stage they are of.

    Args:
        data: A trace.
        order: Stages, the first one to be preferred. A stage without documents falls through to the next.

    Returns:
        The stage and its documents; ``("", [])`` where no stage has any.

    Raises:
        ConfigError: If what stands there is no list of texts.

    Example:
        >>> latest_docs({"refining_docs": [], "retrieval_docs": ["tea"]})
        ('retrieval', ['tea'])
    """
    for stage in order:
        docs = data.get(f"{stage}_docs") or []
        if not isinstance(docs, list) or not all(isinstance(one, str) for one in docs):
            msg = f"{stage}_docs is {docs!r:.60} ({type(docs).__name__}); give a list of texts."
            raise ConfigError(msg)
        if docs:
            return stage, docs
    return "", []


def latest_results(data: Mapping[str, Any], order: Sequence[str] = TO_READ) -> list[dict[str, Any]]:
    """The same documents with all that their stage says of them: ``text`` and perhaps ``score``, ``metadata`` and more.

    Raises:
        ConfigError: If the stage's results are not one for each document.
    """
    stage, docs = latest_docs(data, order)
    results = data.get(f"{stage}_results") or [{} for _ in docs]
    if len(results) != len(docs) or not all(isinstance(one, Mapping) for one in results):
        msg = (
            f"{stage}_docs has {len(docs)} texts and {stage}_results is {results!r:.60}; give one dict for each text, "
            f"or no {stage}_results."
        )
        raise ConfigError(msg)
    return [{**one, "text": text} for one, text in zip(results, docs, strict=True)]


def query_of(data: Mapping[str, Any]) -> str:
    """The question of a trace; a blank one is a question, too, to which nothing is found.

    Raises:
        ConfigError: If there is none.
    """
    query = data.get("query")
    if not isinstance(query, str):
        msg = f"query is {query!r:.60} ({type(query).__name__}); give data = {{'query': 'a question'}}."
        raise ConfigError(msg)
    return query


def references_of(data: Mapping[str, Any]) -> list[str]:
    """The right answers of a trace: its ``references``, else those of its ``question``; [] where there are none.

    Raises:
        ConfigError: If they are no list of texts.

    Example:
        >>> references_of({"question": {"id": "q1", "references": ["80 degrees"]}})
        ['80 degrees']
    """
    question = data.get("question")
    inside = question.get("references") if isinstance(question, Mapping) else None
    references = data.get("references") or inside or []
    if not isinstance(references, list) or not all(isinstance(one, str) for one in references):
        msg = f"references is {references!r:.60} ({type(references).__name__}); give a list of texts."
        raise ConfigError(msg)
    return references


def checked_data(data: Any) -> RAGData:
    """A trace as it is.

    Raises:
        ConfigError: If it is a tuple, or has fields of the older formats: they were given up because one name meant
            several things. `from_legacy` renames them.
    """
    if isinstance(data, (tuple, list)):
        msg = f"Operators got {data!r:.60}; (query, docs) is given up. Give {{'query': ..., 'retrieval_docs': [...]}}."
        raise ConfigError(msg)
    if not isinstance(data, dict):
        msg = f"Operators got {data!r:.60} ({type(data).__name__}); give a dict, such as {{'query': 'a question'}}."
        raise ConfigError(msg)
    nested = next((name for name in data if isinstance(name, str) and _NESTED.fullmatch(name)), None)
    if nested is not None and isinstance(data[nested], Mapping):
        msg = (
            f"The data has nested metrics, {nested!r}: {data[nested]!r:.60}. They are given up, as every stage has a "
            "field of its own for its time: write refining_time, not refine_metrics.refine_time."
        )
        raise ConfigError(msg)
    old = next((name for name in ("results", *_RENAMED) if name in data), None)
    if old is not None:
        new = _RENAMED.get(old, "retrieval_results or refining_results")
        msg = f"The data has {old!r}, which is {new} now. Call from_legacy(data) once, before the first operator."
        raise ConfigError(msg)
    return data  # type: ignore[return-value]  # a TypedDict is a dict at run time


def appended(data: RAGData, fields: Mapping[str, Any], owned: Sequence[str], by: str) -> RAGData:
    """A trace with more fields, as a new dict: what stood there stays, and so does the dict that was given.

    Args:
        data: The trace.
        fields: What is added.
        owned: The standard fields that whoever adds them may write again, as a second reranking does.
        by: Who adds them, for the message.

    Raises:
        ConfigError: If a standard field that has a value would be lost.

    Example:
        >>> appended({"query": "tea?"}, {"prompt": "Say it: tea?"}, (), "an example")
        {'query': 'tea?', 'prompt': 'Say it: tea?'}
    """
    lost = next(
        (
            name
            for name, value in fields.items()
            if name in _STANDARD and name not in owned and name in data and _differs(data[name], value)  # type: ignore[literal-required]
        ),
        None,
    )
    if lost is not None:
        msg = (
            f"{by} would overwrite {lost!r}, which has a value; operators append. Give it a name of its own, such as "
            f"'custom_{lost}'."
        )
        raise ConfigError(msg)
    return {**data, **fields}  # type: ignore[typeddict-item]  # fields of users' own may stand in a trace


def _differs(before: Any, after: Any) -> bool:
    return before is not after and before != after


def from_legacy(data: Mapping[str, Any], *, results_of: str | None = None) -> RAGData:
    """A trace in the older names, as a new one: the migration table of spec 000.

    Args:
        data: With names such as ``pred``. It stays as it is; other fields are taken over.
        results_of: ``"retrieval"`` or ``"refining"``: whose ``results`` are. None needs no ``results`` in the data, as
            the name meant both.

    Raises:
        ConfigError: If it is no mapping, has nested metrics, a name in both spellings, or ``results`` without
            ``results_of``.

    Example:
        >>> from_legacy({"query": "tea?", "golds": ["tea"], "pred": "Tea."})
        {'query': 'tea?', 'references': ['tea'], 'generated': 'Tea.'}
    """
    if not isinstance(data, Mapping):
        msg = f"from_legacy got {data!r:.60}; give a dict with a query; tuples are given up."
        raise ConfigError(msg)
    if results_of not in (None, "retrieval", "refining"):
        msg = f"results_of is {results_of!r:.60}. {known_names(str(results_of), ('retrieval', 'refining'))}"
        raise ConfigError(msg)
    if "results" in data and results_of is None:
        msg = "The data has 'results', which meant two things; say results_of='retrieval' or results_of='refining'."
        raise ConfigError(msg)
    names = {**_RENAMED, "results": f"{results_of}_results"}
    found: dict[str, Any] = {}
    for name, value in data.items():
        new = names.get(name, name)
        if new in found:
            msg = f"The data has {new!r} and an older name of it; leave one of them out."
            raise ConfigError(msg)
        found[new] = value
    return checked_data(found)
