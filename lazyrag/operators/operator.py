"""What every operator has in common: run, run for many, run in an event loop, and one after the other by ``>>``."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

from lazyrag.errors import ConfigError
from lazyrag.models import background
from lazyrag.models.threads import in_thread
from lazyrag.operators.data import RAGData, appended, checked_data
from lazyrag.pipeline.batches import OnError, each
from lazyrag.retrieval.stages import callable_name


class Operator(abc.ABC):
    """A step over `RAGData`: it reads fields of a trace, and appends its own.

    The dict that is given stays as it is; what comes back is another one, with the same values and more. A subclass
    says in `process` what it appends.

    Example:
        >>> class Shout(Operator):
        ...     def process(self, data):
        ...         return {"custom_shout": data["query"].upper()}
        >>> Shout()({"query": "tea?"})
        {'query': 'tea?', 'custom_shout': 'TEA?'}
    """

    writes: ClassVar[tuple[str, ...]] = ()
    """The standard fields that it writes, again where they have a value already."""

    @abc.abstractmethod
    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The fields that it appends to a trace, which it does not change."""

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """The same in any event loop; by default `process` in a thread."""
        return await in_thread(self.process, data)

    def execute(self, data: Mapping[str, Any]) -> RAGData:
        """The trace with this operator's fields.

        Args:
            data: A dict with at least a ``query``.

        Returns:
            A new dict. What was there is in it, the same objects.

        Raises:
            ConfigError: If the data are a tuple, in a format that was given up (see `from_legacy`), lack what the
                operator reads, or would lose a field.
            LazyRAGError: What the operator's own work raises: nothing becomes an empty list in silence.
        """
        given = checked_data(data)
        return appended(given, self.process(given), self.writes, repr(self))

    async def aexecute(self, data: Mapping[str, Any]) -> RAGData:
        """See `execute`; in any event loop."""
        given = checked_data(data)
        return appended(given, await self.aprocess(given), self.writes, repr(self))

    def __call__(self, data: Mapping[str, Any]) -> RAGData:
        """See `execute`."""
        return self.execute(data)

    def batch(
        self, many: Sequence[Mapping[str, Any]], *, concurrency: int = 8, on_error: OnError = "raise"
    ) -> list[RAGData]:
        """`execute` for many traces, in their order.

        Args:
            many: The traces.
            concurrency: How many at once, at least 1.
            on_error: ``"raise"``: the first error ends the others. ``"collect"``: it stands in its trace's place.
        """
        return background.run(self.abatch(many, concurrency=concurrency, on_error=on_error))

    async def abatch(
        self, many: Sequence[Mapping[str, Any]], *, concurrency: int = 8, on_error: OnError = "raise"
    ) -> list[RAGData]:
        """See `batch`; in any event loop."""
        if isinstance(many, (str, Mapping)) or not isinstance(many, Sequence):
            msg = f"batch got {many!r:.60} ({type(many).__name__}); give a list of dicts."
            raise ConfigError(msg)
        return cast("list[RAGData]", await each(self.aexecute, many, concurrency, on_error))

    def __rshift__(self, after: Operator | Callable[[Any], Any]) -> OperatorChain:
        """Chain: another operator, or a function from a trace to a trace, on what this one gives."""
        return OperatorChain(self, after)

    def __rrshift__(self, before: Callable[[Any], Any]) -> OperatorChain:
        """Chain: this operator on what a function from a trace to a trace gives."""
        return OperatorChain(before, self)

    def __repr__(self) -> str:
        return type(self).__name__


class FunctionOperator(Operator):
    """A function from a trace to a trace, as spec 000 writes custom operators, as a step.

    It gets a dict of its own: what it appends to that, by ``data.update(...)`` for example, is appended.

    Args:
        function: The function; it may be asynchronous.

    Raises:
        ConfigError: If it is none.

    Example:
        >>> def count(data):
        ...     data.update({"custom_count": len(data["retrieval_docs"])})
        ...     return data
        >>> FunctionOperator(count)({"query": "tea?", "retrieval_docs": ["a", "b"]})["custom_count"]
        2
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        if not callable(function) or isinstance(function, type):
            msg = f"An operator is {function!r:.60}; give an Operator, or a function from a dict to a dict."
            raise ConfigError(msg)
        self.function = function

    def __repr__(self) -> str:
        return f"The operator {callable_name(self.function)!r}"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """What the function gives."""
        given = self.function({**data})
        return background.run(self._awaited(given, data)) if inspect.isawaitable(given) else self._fields(given, data)

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """What the function gives; one that is not asynchronous runs in a thread."""
        return await self._awaited(await in_thread(self.function, {**data}), data)

    async def _awaited(self, given: Any, data: RAGData) -> Mapping[str, Any]:
        return self._fields(await given if inspect.isawaitable(given) else given, data)

    def _fields(self, given: Any, data: RAGData) -> Mapping[str, Any]:
        if not isinstance(given, Mapping):
            msg = f"{self!r} returned {given!r:.60} ({type(given).__name__}); return the dict, with fields appended."
            raise ConfigError(msg)
        gone = next((name for name in data if name not in given), None)
        if gone is not None:
            msg = f"{self!r} returned a dict without {gone!r}, which it was given; operators append, and keep the rest."
            raise ConfigError(msg)
        return given


class OperatorChain(Operator):
    """Operators one after the other; ``a >> b >> c`` makes one.

    Args:
        operators: At least one: operators, chains of them, functions from a trace to a trace.

    Raises:
        ConfigError: If there is none, or one is neither.

    Example:
        >>> chain = (lambda data: {**data, "custom_a": 1}) >> FunctionOperator(lambda data: {**data, "custom_b": 2})
        >>> chain.execute({"query": "tea?"})
        {'query': 'tea?', 'custom_a': 1, 'custom_b': 2}
    """

    def __init__(self, *operators: Operator | Callable[[Any], Any]) -> None:
        self.operators: tuple[Operator, ...] = tuple(one for given in operators for one in _steps(given))
        if not self.operators:
            msg = "A chain has no operators; give at least one."
            raise ConfigError(msg)

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.operators))

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """What all of them append."""
        for one in self.operators:
            data = one.execute(data)
        return data

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """What all of them append, in any event loop."""
        for one in self.operators:
            data = await one.aexecute(data)
        return data

    def execute(self, data: Mapping[str, Any]) -> RAGData:
        """The trace with the fields of all of them; see `Operator.execute`."""
        return cast("RAGData", self.process(checked_data(data)))

    async def aexecute(self, data: Mapping[str, Any]) -> RAGData:
        """See `execute`; in any event loop."""
        return cast("RAGData", await self.aprocess(checked_data(data)))


def _steps(given: Any) -> tuple[Operator, ...]:
    if isinstance(given, OperatorChain):
        return given.operators
    return (given,) if isinstance(given, Operator) else (FunctionOperator(given),)
