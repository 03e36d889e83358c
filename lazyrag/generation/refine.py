"""Refiners: texts shortened to what answers a question, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, GenerationError, LazyRAGError, known_names
from lazyrag.models.rerank import checked_documents, checked_query
from lazyrag.registry import Registry
from lazyrag.text.tokens import TokenCounter, token_counters
from lazyrag.validation import check_keywords, function_name, known_keywords, required_names, whole_number

RefineFunction: TypeAlias = Callable[..., Any]
"""Called as ``function(query, texts, budget=..., counter=...)``; gives one text for each, "" where nothing is left."""

refiners: Registry[RefineFunction] = Registry("refiner", entry_point_group="lazyrag.refiners")
refiners.declare("chat", "lazyrag.generation.chat_refiner:refine_by_chat")
refiners.declare("extractive", "lazyrag.generation.extractive:refine_by_sentences")
refiners.declare("tree", "lazyrag.generation.tree_refiner:refine_by_parts")


@dataclass(frozen=True, slots=True)
class Refined:
    """What is left of one text.

    Args:
        index: Which of the texts that were given, from 0.
        text: What is left, not blank.
        original_length: Tokens before.
        refined_length: Tokens after.

    Example:
        >>> Refined(0, "tea", 10, 3).compression_ratio
        0.3
    """

    index: int
    text: str
    original_length: int
    refined_length: int

    @property
    def compression_ratio(self) -> float:
        """Tokens after divided by tokens before; 1.0 where there were none before."""
        return self.refined_length / self.original_length if self.original_length else 1.0


@known_keywords
def register_refiner(func: RefineFunction | None = None, *, name: str | None = None, replace: bool = False) -> Any:
    """Register a refiner function, as a call or as a decorator.

    It is called as ``func(query, texts, budget=..., counter=...)``, with the keywords that its `Refiner` was made with,
    and returns as many texts, "" where nothing is left of one. Their tokens together are at most the budget.

    Args:
        func: The function; left out, a decorator is returned.
        name: Its name; left out, ``func.__name__``.
        replace: Take the name over from another refiner.

    Returns:
        The function, unchanged.

    Raises:
        ConfigError: If func is no function.
        AlreadyRegisteredError: If the name is taken.

    Example:
        >>> @register_refiner(replace=True)
        ... def first_words(query, texts, *, budget, counter):
        ...     return [text.split()[0] for text in texts]
        >>> [one.text for one in Refiner("first_words", budget=4)("tea?", ["Green tea.", "Black tea."])]
        ['Green', 'Black']
    """

    def enter(function: RefineFunction) -> RefineFunction:
        return refiners.register(function_name("register_refiner", function, name), function, replace=replace)

    return enter if func is None else enter(func)


class Refiner:
    """Shortens texts by a registered function.

    Texts that fit together are left as they are.

    Args:
        name: Of a registered refiner: ``"tree"``, ``"extractive"``, ``"chat"``.
        budget: Tokens that all texts together may have at most, at least 1.
        counter: Counts them; the name of a registered counter, or an object with ``name`` and ``count(text)``.
        keywords: Passed to the function: ``model=`` for example, a rerank model for the first two, a chat model for
            ``"chat"``.

    Raises:
        NotRegisteredError: If the name, or the counter's, is unknown.
        ConfigError: If the budget is out of its range, or the function takes no such keyword.

    Example:
        >>> refiner = Refiner("extractive", budget=8)
        >>> [one.text for one in refiner("How hot?", ["Tea grows on hills. Hot water helps."])]
        ['Hot water helps.']
    """

    def __init__(
        self, name: str = "tree", *, budget: int = 2048, counter: TokenCounter | str = "utf8", **keywords: Any
    ) -> None:
        self._function = refiners[name]
        self.name = name
        self.budget = whole_number("budget", budget, 1)
        self.counter = as_counter(counter)
        check_keywords(f"The refiner {name!r}", self._function, keywords, skip=2)
        missing = {*required_names(self._function, skip=2)} - {*keywords, "budget", "counter"}
        if missing:
            msg = f"The refiner {name!r} needs {', '.join(sorted(missing))}: Refiner({name!r}, {min(missing)}=...)."
            raise ConfigError(msg)
        self._keywords = keywords

    def __repr__(self) -> str:
        return f"Refiner({self.name!r}, budget={self.budget})"

    def __call__(self, query: str, texts: Sequence[str]) -> list[Refined]:
        """Shorten texts.

        Args:
            query: What they are to answer.
            texts: n texts.

        Returns:
            What is left of each, in the texts' order, without those of which nothing is.

        Raises:
            ConfigError: If the query is blank, or no texts are given.
            GenerationError: If the function fails, or gives more than the budget.
        """
        checked_query(query)
        given, _ = checked_documents(texts, None)
        before = [self.counter.count(text) for text in given]
        kept = given if sum(before) <= self.budget else self._refined(query, given)
        after = [self.counter.count(text) for text in kept]
        if sum(after) > self.budget:
            msg = f"The refiner {self.name!r} gave {sum(after)} tokens; the budget is {self.budget}."
            raise GenerationError(msg)
        rows = enumerate(zip(kept, before, after, strict=True))
        return [Refined(at, text, was, left) for at, (text, was, left) in rows if text.strip()]

    def _refined(self, query: str, texts: list[str]) -> list[str]:
        try:
            kept = self._function(query, list(texts), budget=self.budget, counter=self.counter, **self._keywords)
        except LazyRAGError:
            raise
        except Exception as exc:
            msg = f"The refiner {self.name!r} raised {type(exc).__name__}: {exc}"
            raise GenerationError(msg) from exc
        is_list = isinstance(kept, (list, tuple)) and all(isinstance(one, str) for one in kept)
        if not is_list or len(kept) != len(texts):
            msg = f"The refiner {self.name!r} returned {kept!r:.80}; a list of {len(texts)} texts is needed."
            raise GenerationError(msg)
        return list(kept)


def as_counter(counter: Any) -> TokenCounter:
    """A counter of tokens, by name or as it is.

    Raises:
        NotRegisteredError: If no counter has the name.
        ConfigError: If it is no counter.
    """
    if isinstance(counter, str):
        return token_counters[counter]
    if not callable(getattr(counter, "count", None)) or not isinstance(getattr(counter, "name", None), str):
        known = known_names("", token_counters)
        msg = f"counter is {counter!r:.60}; give a name, or an object with name and count(text). {known}"
        raise ConfigError(msg)
    found: TokenCounter = counter
    return found
