"""Samples: one question with what was found, answered and expected, in the twelve fields of RAGAS."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from lazyrag.errors import ConfigError, missing_package

if TYPE_CHECKING:
    from ragas import EvaluationDataset, SingleTurnSample

_TEXTS = ("user_input", "response", "reference", "persona_name", "query_style", "query_length")
_LISTS = ("retrieved_contexts", "reference_contexts", "multi_responses")
_IDS = ("retrieved_context_ids", "reference_context_ids")


@dataclass(frozen=True, slots=True)
class Sample:
    """One question with what was found, answered and expected: RAGAS's ``SingleTurnSample``, without that package.

    What is not known is None. An empty list says something else: that there is nothing. Lists are held by reference.

    Args:
        user_input: The question.
        retrieved_contexts: The texts that were found, best first.
        reference_contexts: The texts that should be found.
        retrieved_context_ids: The ids of what was found.
        reference_context_ids: The ids of what should be found.
        response: The answer.
        multi_responses: Candidates, where several were asked for.
        reference: The answer that is expected.
        rubrics: What a judge gives points for, by score.
        persona_name: Who asks.
        query_style: How the question is put.
        query_length: How long it is: ``"short"``.

    Raises:
        ConfigError: If a field has another type.

    Example:
        >>> Sample("How hot?", retrieved_context_ids=["n1"]).to_dict()
        {'user_input': 'How hot?', 'retrieved_context_ids': ['n1']}
    """

    user_input: str | None = None
    retrieved_contexts: Sequence[str] | None = None
    reference_contexts: Sequence[str] | None = None
    retrieved_context_ids: Sequence[str | int] | None = None
    reference_context_ids: Sequence[str | int] | None = None
    response: str | None = None
    multi_responses: Sequence[str] | None = None
    reference: str | None = None
    rubrics: Mapping[str, str] | None = None
    persona_name: str | None = None
    query_style: str | None = None
    query_length: str | None = None

    def __post_init__(self) -> None:
        for names, is_right, needed in (
            (_TEXTS, _is_text, "a text"),
            (_LISTS, _is_texts, "a list of texts"),
            (_IDS, _is_ids, "a list of ids: texts or whole numbers"),
            (("rubrics",), _is_rubrics, "a mapping from text to text"),
        ):
            for name in names:
                value = getattr(self, name)
                if value is not None and not is_right(value):
                    msg = f"A sample's {name} is {value!r:.80}; give {needed}, or None where it is not known."
                    raise ConfigError(msg)

    def to_dict(self) -> dict[str, Any]:
        """The fields that are known, by reference; as RAGAS's samples write themselves."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    def to_ragas(self) -> SingleTurnSample:
        """The same as a sample of the package ragas.

        Raises:
            MissingDependencyError: If ragas is not installed: ``pip install "lazyrag[ragas]"``.
        """
        try:
            from ragas import SingleTurnSample  # seconds, and half a gigabyte of packages
        except ModuleNotFoundError as exc:
            raise missing_package("Sample.to_ragas", exc, "ragas") from exc
        plain = self.to_dict()
        for name in _IDS:
            if name in plain:  # numbers of numpy are none to it
                plain[name] = [one if isinstance(one, str) else int(one) for one in plain[name]]
        return SingleTurnSample(**plain)


FIELDS = tuple(one.name for one in fields(Sample))
"""The twelve fields, in RAGAS's order."""


def to_ragas_dataset(samples: Sequence[Sample]) -> EvaluationDataset:
    """Samples as a data set of the package ragas, for ``ragas.evaluate``.

    Args:
        samples: At least one; RAGAS wants the same fields known in all of them.

    Raises:
        MissingDependencyError: If ragas is not installed: ``pip install "lazyrag[ragas]"``.
        ConfigError: If there is none.
    """
    if not samples:
        msg = "to_ragas_dataset got no sample; give at least one."
        raise ConfigError(msg)
    converted = [sample.to_ragas() for sample in samples]
    from ragas import EvaluationDataset  # there, as the samples have been made

    return EvaluationDataset(samples=converted)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(one, (str, numbers.Integral)) and not isinstance(one, bool) for one in value
    )


def _is_rubrics(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_texts([*value, *value.values()])
