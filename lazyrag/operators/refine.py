"""Refining as a step: texts shortened to what answers, as ``refining_results`` and ``refining_docs``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from lazyrag.errors import ConfigError
from lazyrag.generation.refine import Refiner
from lazyrag.operators.data import TO_REFINE, RAGData, latest_results, query_of
from lazyrag.operators.operator import Operator


class RefinerOperator(Operator):
    """Shortens texts to what answers, within a budget of tokens (spec 000's refining stage).

    It reads ``reranking_docs``, else ``retrieval_docs``. Each of ``refining_results`` is the row that the text had
    before, with the shorter text and ``original_length``, ``refined_length`` (tokens) and ``compression_ratio``
    (refined divided by original) in it. Texts of which nothing is left are left out.

    Args:
        refiner: A `Refiner`, or the name of a registered one: ``"tree"``, ``"extractive"``, ``"chat"``.
        keywords: With a name, those of `Refiner`: ``budget``, ``counter``, ``model`` and so on.

    Raises:
        ConfigError: If there are keywords beside a `Refiner`, or one is unknown.
        NotRegisteredError: If there is no such refiner.

    Example:
        >>> data = {"query": "How hot?", "retrieval_docs": ["Tea grows on hills. Hot water of 80 degrees."]}
        >>> data = RefinerOperator("extractive", budget=9)(data)
        >>> data["refining_docs"], data["refining_results"][0]["compression_ratio"] < 1
        (['Hot water of 80 degrees.'], True)
    """

    writes: ClassVar = ("refining_results", "refining_docs", "refining_time")

    def __init__(self, refiner: Refiner | str = "tree", **keywords: Any) -> None:
        if isinstance(refiner, Refiner) and keywords:
            msg = f"RefinerOperator got a Refiner and {', '.join(keywords)}; give these to the Refiner."
            raise ConfigError(msg)
        if not isinstance(refiner, (Refiner, str)):
            msg = f"refiner is {refiner!r:.60}; give a Refiner, or the name of a registered one."
            raise ConfigError(msg)
        self.refiner = refiner if isinstance(refiner, Refiner) else Refiner(refiner, **keywords)

    def __repr__(self) -> str:
        return f"RefinerOperator({self.refiner!r})"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The shorter texts.

        Raises:
            GenerationError: If the refiner fails.
        """
        query, rows = query_of(data), latest_results(data, TO_REFINE)
        begun = time.perf_counter()
        refined = self.refiner(query, [row["text"] for row in rows]) if rows and query.strip() else []
        seconds = time.perf_counter() - begun
        results = [
            {
                **rows[one.index],
                "text": one.text,
                "original_length": one.original_length,
                "refined_length": one.refined_length,
                "compression_ratio": one.compression_ratio,
            }
            for one in refined
        ]
        return {
            "refining_results": results,
            "refining_docs": [one.text for one in refined],
            "refining_time": seconds,
        }
