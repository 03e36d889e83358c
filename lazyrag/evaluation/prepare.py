"""From records to samples: a system is asked each record's question, and what it says goes beside what is expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lazyrag.data.result import GenerationResult, RetrievalResult
from lazyrag.errors import ConfigError, InterfaceError, known_names
from lazyrag.evaluation.interface import RAGInterface
from lazyrag.evaluation.samples import FIELDS, Sample

FOUND = ("retrieved_contexts", "retrieved_context_ids", "response", "multi_responses")
"""What a system gives; a record gives the other fields."""

_OF_RECORDS = tuple(name for name in FIELDS if name not in FOUND)


def prepare(records: Sequence[Mapping[str, Any]], rag: RAGInterface[Any], *, generate: bool = True) -> list[Sample]:
    """Ask a system each record's question, and make a sample of each.

    Everything is asked through the batch methods: first what is found for all questions, then all answers.

    Args:
        records: What is expected, in RAGAS's names: ``user_input``, the question, always; ``reference``,
            ``reference_contexts``, ``reference_context_ids``, ``rubrics``, ``persona_name``, ``query_style`` and
            ``query_length`` where they are known.
        rag: The system. Ids of contexts and candidates that it gives are handed on; what it does not give is None.
        generate: Whether to ask for answers; without, only retrieval can be evaluated.

    Returns:
        A sample for each record, in order.

    Raises:
        ConfigError: If a record has no question, or a field of another name or type; the message says which record.
        InterfaceError: If the system is none, or returns something else than its methods do.

    Example:
        >>> class Tea(RAGInterface):
        ...     def retrieve_with_metadata(self, query): return RetrievalResult(["80 degrees."], ["n1"])
        ...     def generate(self, query, contexts): return contexts[0]
        >>> [sample] = prepare([{"user_input": "How hot?", "reference_context_ids": ["n1"]}], Tea())
        >>> sample.retrieved_context_ids, sample.response, sample.multi_responses
        (['n1'], '80 degrees.', None)
    """
    if not isinstance(rag, RAGInterface):
        msg = f"prepare got the system {rag!r:.80}; give an object of a subclass of RAGInterface."
        raise InterfaceError(msg)
    expected = [_expected(number, record) for number, record in enumerate(records, start=1)]
    queries = [record["user_input"] for record in expected]
    found = _many(
        rag, "batch_retrieve_with_metadata", rag.batch_retrieve_with_metadata(queries), RetrievalResult, queries
    )
    answers: Sequence[GenerationResult[Any] | None] = [None] * len(queries)
    if generate:
        for number, (record, retrieval) in enumerate(zip(expected, found, strict=True), start=1):
            _sample(number, record, retrieval, None)  # what cannot be used is told before any model is paid for
        given = rag.batch_generate_with_metadata(queries, [one.contexts for one in found])
        answers = _many(rag, "batch_generate_with_metadata", given, GenerationResult, queries)
    return [
        _sample(number, record, retrieval, generation)
        for number, (record, retrieval, generation) in enumerate(zip(expected, found, answers, strict=True), start=1)
    ]


def make_sample(
    record: Mapping[str, Any],
    retrieval: RetrievalResult[Any] | None = None,
    generation: GenerationResult[Any] | None = None,
) -> Sample:
    """A sample of results that are at hand.

    Args:
        record: What is expected, see `prepare`.
        retrieval: What was found; None where nobody asked.
        generation: What was answered; None where nobody asked.

    Raises:
        ConfigError: If the record has no question, or a field of another name or type.

    Example:
        >>> make_sample({"user_input": "How hot?"}, RetrievalResult(["80 degrees."])).retrieved_context_ids
    """
    return _sample(1, _expected(1, record), retrieval, generation)


def _expected(number: int, record: Any) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        msg = f"Record {number} is {record!r:.80}; give a mapping with the question as 'user_input'."
        raise ConfigError(msg)
    for name in record:
        if name in FOUND:
            msg = f"Record {number} has the field {name!r}, which the system gives. Leave it out, or make a Sample."
            raise ConfigError(msg)
        if name not in _OF_RECORDS:
            msg = f"Record {number} has no field {name!r}. {known_names(str(name), _OF_RECORDS)}"
            raise ConfigError(msg)
    if not isinstance(record.get("user_input"), str):
        msg = f"Record {number} has the question {record.get('user_input')!r:.80}; give a text as 'user_input'."
        raise ConfigError(msg)
    return record


def _sample(
    number: int,
    record: Mapping[str, Any],
    retrieval: RetrievalResult[Any] | None,
    generation: GenerationResult[Any] | None,
) -> Sample:
    try:
        return Sample(
            **record,
            retrieved_contexts=None if retrieval is None else retrieval.contexts,
            retrieved_context_ids=None if retrieval is None else retrieval.context_ids,
            response=None if generation is None else generation.response,
            multi_responses=None if generation is None else generation.multi_responses,
        )
    except ConfigError as exc:
        msg = f"Record {number}: {exc}"
        raise ConfigError(msg) from exc


def _many(rag: object, method: str, given: Any, kind: type[Any], queries: Sequence[str]) -> Sequence[Any]:
    """Results of a batch method, if there is one of the right kind for each question."""
    right = isinstance(given, (list, tuple)) and len(given) == len(queries)
    if not right or not all(isinstance(one, kind) for one in given):
        msg = (
            f"{type(rag).__name__}.{method}() returned {given!r:.80}; return a list of {len(queries)} "
            f"{kind.__name__}s, one for each question."
        )
        raise InterfaceError(msg)
    return given  # type: ignore[no-any-return]  # checked above
