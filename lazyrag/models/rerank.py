"""Rerank models: the check of what they return, and bare callables as models."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from lazyrag.errors import ConfigError, RetrievalError
from lazyrag.models.embedding import shown
from lazyrag.models.protocol import RerankModel, lacking
from lazyrag.validation import whole_number

RerankCallable: TypeAlias = Callable[..., Any]
"""Called as ``function(query, documents=[...], top_n=n)``, returns pairs (index into documents, score)."""


class CallableRerankModel:
    """A bare callable as a `RerankModel`.

    Args:
        function: ``function(query, documents=[...], top_n=n) -> [(index, score), ...]``, higher scores being better. It
            may return them in any order, and fewer or more than n (see `lazyrag.retrieval.reranking.step.ModelStep`
            for what becomes of the others). Its attribute ``identity`` (or ``model_name``), a
            text, says which model it is.

    Raises:
        ConfigError: If it is no callable.

    Example:
        >>> model = CallableRerankModel(lambda query, documents, top_n: [(i, len(d)) for i, d in enumerate(documents)])
        >>> model("tea?", ["tea", "green tea", "iced tea"], top_n=2)
        [(1, 9.0), (2, 8.0)]
    """

    def __init__(self, function: RerankCallable) -> None:
        if not callable(function):
            msg = f"The rerank model is {function!r:.80}; give a callable function(query, documents=[...], top_n=n)."
            raise ConfigError(msg)
        self.function = function

    @property
    def identity(self) -> str:
        """What the callable says of itself; "" where it says nothing."""
        told = (getattr(self.function, name, None) for name in ("identity", "model_name"))
        return next((name for name in told if isinstance(name, str) and name), "")

    def __call__(
        self, query: str, documents: Sequence[str], top_n: int | None = None, **keywords: Any
    ) -> list[tuple[int, float]]:
        """Rank documents; further keywords are the callable's own.

        Raises:
            ConfigError: If the query is blank, or no texts are given.
            RetrievalError: If the callable raises, or returns something else.
        """
        checked_query(query)
        documents, top_n = checked_documents(documents, top_n)
        if not documents:
            return []
        try:
            returned = self.function(query, documents=documents, top_n=top_n, **keywords)
        except Exception as exc:
            msg = f"The rerank model raised {type(exc).__name__}: {exc}."
            raise RetrievalError(msg) from exc
        return checked_ranking(returned, len(documents))[:top_n]


def as_rerank_model(model: RerankModel | RerankCallable) -> RerankModel:
    """A `RerankModel` as it is, a bare callable behind a `CallableRerankModel`.

    Raises:
        ConfigError: If it is neither.
    """
    is_model = not isinstance(model, type) and callable(model) and not lacking(model, ["identity"])
    return cast("RerankModel", model) if is_model else CallableRerankModel(model)


def checked_ranking(returned: Any, count: int, name: str = "The rerank model") -> list[tuple[int, float]]:
    """What a rerank model returned, checked and ordered.

    Args:
        returned: Pairs (index, score) in any order.
        count: How many documents it was given.
        name: Which model, for messages.

    Returns:
        The pairs, best first, ties by index.

    Raises:
        RetrievalError: If it is something else, an index is out of range or comes twice, or a score is not finite.

    Example:
        >>> checked_ranking([(0, 1), (2, 5), (1, 1)], 3)
        [(2, 5.0), (0, 1.0), (1, 1.0)]
    """
    try:
        returned = list(returned)  # a generator could not be shown any more
        pairs = [(operator.index(index), float(score)) for index, score in returned]
    except (TypeError, ValueError, OverflowError) as exc:
        msg = f"{name} returned {returned!r:.80}; a list of pairs (index, score) is needed."
        raise RetrievalError(msg) from exc
    wrong = any(not 0 <= index < count or not math.isfinite(score) for index, score in pairs)
    if wrong or len(dict(pairs)) < len(pairs):
        msg = (
            f"{name} got {count} documents and returned {returned!r:.80}: an index is out of range or comes twice, "
            "or a score is not finite."
        )
        raise RetrievalError(msg)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def checked_query(query: Any) -> str:
    """A query to rank documents for.

    Raises:
        ConfigError: If it is no text, or a blank one.
    """
    if not isinstance(query, str) or not query.strip():
        msg = f"query is {shown(query)}; give a text that is not blank."
        raise ConfigError(msg)
    return query


def checked_documents(documents: Any, top_n: Any) -> tuple[list[str], int]:
    """Documents to be ranked, and how many of them are wanted.

    Raises:
        ConfigError: If they are no texts, or ``top_n`` is out of its range.
    """
    if not isinstance(documents, (list, tuple)) or not all(isinstance(one, str) for one in documents):
        msg = f"documents is {documents!r:.80}; give a list of texts."
        raise ConfigError(msg)
    found = list(documents)
    most = len(found) if top_n is None else min(whole_number("top_n", top_n, 1), len(found))
    return found, most
