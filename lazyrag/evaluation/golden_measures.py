"""The measures that thresholds may name, and what of a question each of them reads."""

from __future__ import annotations

from dataclasses import dataclass

from lazyrag.errors import ConfigError
from lazyrag.evaluation.measures import measure

_OF_IDS: tuple[str, ...] = ("ids",)
_OF_PLACES: tuple[str, ...] = ("spans", "texts")
_OF_ANSWERS: tuple[str, ...] = ("references",)


@dataclass(frozen=True, slots=True)
class GoldenMeasure:
    """A measure, and what it reads.

    Args:
        name: As tables show it: ``"span_recall@5"``.
        reads: The labels that it compares with; a question that has none of them does not count.
        depth: How many nodes it looks at; None for all.
    """

    name: str
    reads: tuple[str, ...]
    depth: int | None

    def is_told_by(self, question: object) -> bool:
        """Whether a `GoldenQuestion` has something that it reads."""
        return any(getattr(question, label) for label in self.reads)

    @property
    def of_answers(self) -> bool:
        """Whether it looks for an answer in the texts."""
        return self.reads == _OF_ANSWERS

    @property
    def of_places(self) -> bool:
        """Whether it compares source spans."""
        return self.reads == _OF_PLACES


def golden_measure(name: str) -> GoldenMeasure:
    """A measure by its name: one that `lazyrag.evaluation.measure` knows, or ``answer@k``, see `has_answer`.

    Raises:
        ConfigError: If there is no such measure.

    Example:
        >>> golden_measure("char_recall@5").reads, golden_measure("answer@3").reads, golden_measure("mrr").reads
        (('spans', 'texts'), ('references',), ('ids',))
    """
    metric, at, depth = name.partition("@")
    if metric.lower() == "answer":
        if at and not (depth.isdecimal() and int(depth) >= 1):
            msg = f"The measure {name!r} needs a whole number of at least 1 after the @, such as answer@10."
            raise ConfigError(msg)
        named, reads = "answer" + (f"@{int(depth)}" if at else ""), _OF_ANSWERS
    else:
        named = measure(name).name
        reads = _OF_PLACES if named.startswith(("char_", "span_")) else _OF_IDS
    return GoldenMeasure(named, reads, int(depth) if at else None)
