"""Models as users give them, bare callables, behind the Protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from lazyrag.errors import ConfigError
from lazyrag.models.embedding import CheckedEmbedder, batch_size_of
from lazyrag.models.protocol import Embedder, InputType, is_embedder, lacking
from lazyrag.validation import keyword_names

EmbedCallable: TypeAlias = Callable[..., Any]
"""Called with one text, returns one vector (numbers in a list or an array, or a dict from dimension to weight). With an
attribute ``batch_size`` above 1 it is called with a list of at most so many texts and returns as many vectors."""

DEFAULT_EMBED_KEY = "default"
"""The embed key of a Document that was given one callable and no name for it."""


class CallableEmbedder:
    """A bare callable as an `Embedder`.

    Args:
        function: Called with ONE text; with lists only if its attribute ``batch_size`` is above 1. Its attribute
            ``identity`` (or ``model_name``), a text, says which model it is. If it has a parameter ``input_type``, that
            gets ``"query"`` or ``"document"``.
        what: What it was given as, for messages.

    Raises:
        ConfigError: If it is no callable.

    Example:
        >>> CallableEmbedder(lambda text: [len(text), 1.0]).embed(["tea", "green"])
        [[3, 1.0], [5, 1.0]]
    """

    dimension = None
    max_tokens = None
    normalised = False

    def __init__(self, function: EmbedCallable, what: str = "embed") -> None:
        if not callable(function):
            msg = (
                f"The {what} is {function!r}; give a callable that turns a text into a list of numbers, or an Embedder."
            )
            raise ConfigError(msg)
        self.function = function
        self.batch_size = batch_size_of(function, 1)
        self._asks_type = "input_type" in keyword_names(function, skip=1)[0]

    @property
    def identity(self) -> str:
        """What the callable says of itself; "" where it says nothing."""
        told = (getattr(self.function, name, None) for name in ("identity", "model_name"))
        return next((name for name in told if isinstance(name, str) and name), "")

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any]:
        """The callable's own answers, unchecked: of one call for at most ``batch_size`` texts where that is above 1."""
        keywords = {"input_type": input_type} if self._asks_type else {}
        if self.batch_size == 1:
            return [self.function(text, **keywords) for text in texts]
        answer: Sequence[Any] = self.function(list(texts), **keywords)
        return answer


def as_embedder(embed: Embedder | EmbedCallable, what: str = "embed") -> Embedder:
    """An `Embedder` as it is, a bare callable behind a `CallableEmbedder`.

    Raises:
        ConfigError: If it is neither.
    """
    if is_embedder(embed):
        return embed
    if not isinstance(embed, type) and not callable(embed) and hasattr(embed, "embed"):
        missing = ", ".join(lacking(embed, ("identity", "dimension", "max_tokens", "normalised")))
        msg = f"The {what} is a {type(embed).__name__}, which has no {missing}; an Embedder has these beside embed."
        raise ConfigError(msg)
    return CallableEmbedder(cast("EmbedCallable", embed), what)


def make_embedders(
    embed: Embedder | EmbedCallable | Mapping[str, Embedder | EmbedCallable] | None,
) -> dict[str, CheckedEmbedder]:
    """A Document's embed argument by embed key.

    Raises:
        ConfigError: If it is neither a callable, an `Embedder`, nor a mapping of non-empty names to those.
    """
    if embed is None:
        return {}
    if isinstance(embed, Mapping):
        wrong = [key for key in embed if not isinstance(key, str) or not key]
        if wrong or not embed:
            msg = f"embed is {dict(embed)!r}; give a callable, or a mapping of names to callables with one at least."
            raise ConfigError(msg)
        return {key: _under(key, one) for key, one in embed.items()}
    return {DEFAULT_EMBED_KEY: _under(DEFAULT_EMBED_KEY, embed)}


def _under(key: str, embed: Embedder | EmbedCallable) -> CheckedEmbedder:
    what = f"embed of key {key!r}"
    return CheckedEmbedder(as_embedder(embed, what), f"The {what}", key)
