"""Asking an embedder: distinct texts, whole batches, every result checked."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast, get_args

import numpy as np

from lazyrag.errors import ConfigError, EmbeddingError, MissingDependencyError, NotBuiltError, StoreError, known_names
from lazyrag.models.protocols import (
    Embedded,
    EmbeddedBatch,
    Embedder,
    InputType,
    is_batch_embedder,
    is_embedder,
    lacking,
)
from lazyrag.types import SPARSE, Embedding, Embeddings, Matrix, SparseVector
from lazyrag.validation import keyword_names

_DEFAULT_BATCH_SIZE = 64
_WITNESSES = 8  # parts of a batch

NOT_THE_TEXTS_FAULT = (MissingDependencyError, NotBuiltError, StoreError)
"""What an embedder raises where no text would do better."""


class CheckedEmbedder:
    """An embedder as the package asks it: each distinct text once, and every result checked.

    Args:
        embedder: What answers.
        name: Who it is, for messages: ``"The embed of key 'dense'"``.
        key: Its embed key, for errors; "" where it has none.
    """

    def __init__(self, embedder: Embedder, name: str = "The embedder", key: str = "") -> None:
        self.embedder = embedder
        self.given: object = getattr(embedder, "function", embedder)  # what the user holds; Documents may share it
        self.name = name
        self.key = key

    def embed(self, texts: Sequence[str], dimension: int = 0, input_type: InputType = "document") -> Embeddings:
        """Embed texts, all or nothing.

        Args:
            texts: n texts, none of them blank.
            dimension: The length that vectors must have, or `SPARSE`; 0 where it is not known yet.
            input_type: Whether they are questions, or what is searched.

        Returns:
            (n, dim) float32, finite, as the embedder gave them; or a list of n sparse vectors.

        Raises:
            EmbeddingError: If a text has no vector; the error of the first one.
        """
        return collected(self.embed_each(texts, dimension, input_type), self.name, dimension)

    def embed_each(
        self, texts: Sequence[str], dimension: int = 0, input_type: InputType = "document"
    ) -> list[Embedded]:
        """For each text its vector, or the error that says why it has none; see `embed`."""
        given = listed_texts(texts)
        distinct = list(dict.fromkeys(text for text in given if isinstance(text, str)))
        found: dict[str, Embedded] = {}
        for batch in self.batches(distinct, dimension, input_type):
            found.update((distinct[at], result) for at, result in zip(batch.positions, batch.results, strict=True))
        return [found[text] if isinstance(text, str) else blank_error(text) for text in given]

    def batches(
        self, texts: Sequence[str], dimension: int = 0, input_type: InputType = "document"
    ) -> Iterator[EmbeddedBatch]:
        """Batches as they get done, checked; each of the texts comes in exactly one of them.

        A text whose vector is not one, is not finite, is not as long as the others or not sparse as they are, fails
        alone; an answer with another number of vectors than texts says nothing about any of them, and fails its batch;
        an embedder that gives up fails those texts that it has not answered.

        Raises:
            ConfigError: If texts are no list, or the input type is unknown.
            MissingDependencyError: If the embedder needs a package that is not installed.
            StoreError: If its cache cannot be read.
        """
        given = listed_texts(texts)
        checked_input_type(input_type)
        blank = [place for place, text in enumerate(given) if is_blank(text)]
        if blank:
            yield EmbeddedBatch(blank, [blank_error(given[place]) for place in blank])
        embeddable = [place for place, text in enumerate(given) if not is_blank(text)]
        for batch in self._batches([given[place] for place in embeddable], dimension, input_type):
            yield EmbeddedBatch([embeddable[place] for place in batch.positions], batch.results)

    def _batches(self, texts: Sequence[str], dimension: int, input_type: InputType) -> Iterator[EmbeddedBatch]:
        missing = dict.fromkeys(range(len(texts)))
        dimension = dimension or self.embedder.dimension or 0
        failure = None
        try:
            for batch in self._asked(texts, input_type):
                places = list(batch.positions)
                if not missing.keys() >= set(places) or not len(set(places)) == len(places) == len(batch.results):
                    failure = self._error(
                        f"gave {len(batch.results)} results for the texts {places!r:.60} of {len(texts)}; "
                        "every text's place comes exactly once, with one result"
                    )
                    break
                results = [self._vector(result) for result in batch.results]
                dimension = dimension or _usual_length(results)
                for place in places:
                    del missing[place]
                yield EmbeddedBatch(places, [self._of_length(result, dimension) for result in results])
        except NOT_THE_TEXTS_FAULT:
            raise
        except Exception as exc:  # noqa: BLE001  whatever it is, it is the result of the texts that are left
            failure = self._raised(exc)
        if missing:
            failure = failure or self._error(f"left out {len(missing)} of {len(texts)} texts")
            yield EmbeddedBatch(list(missing), [failure] * len(missing))

    def _asked(self, texts: Sequence[str], input_type: InputType) -> Iterator[EmbeddedBatch]:
        """Ask, whichever of the two Protocols is spoken."""
        if not texts:
            return
        if is_batch_embedder(self.embedder):
            yield from self.embedder.embed_batches(texts, input_type)
            return
        told = getattr(self.embedder, "batch_size", None)
        size = told if isinstance(told, int) and told > 0 else _DEFAULT_BATCH_SIZE
        is_down = False
        for start in range(0, len(texts), size):
            batch = range(start, min(start + size, len(texts)))
            is_down = yield from self._narrowed(texts, batch, input_type, whole=is_down)

    def _narrowed(
        self, texts: Sequence[str], batch: range, input_type: InputType, *, whole: bool
    ) -> Generator[EmbeddedBatch, None, bool]:
        """Ask for a batch; where that fails, for its halves and so on, so that only the texts at fault fail.

        Where all eight eighths fail as well, it is not the texts: the rest is not asked for, and following batches are
        tried as a whole until one succeeds.

        Returns:
            Whether the model seems to be down.
        """
        parts = [batch]
        accepted = hopeless = False
        while parts:
            failed = []
            for part in parts:
                results = self._call([texts[place] for place in part], input_type)
                if isinstance(results, EmbeddingError):
                    failed.append((part, results))
                else:
                    accepted = True
                    yield EmbeddedBatch(part, results)
            hopeless = bool(failed) and not accepted and (whole or len(failed) >= _WITNESSES)
            for part, error in failed:
                if len(part) == 1 or hopeless:
                    yield EmbeddedBatch(part, [error] * len(part))
            parts = [] if hopeless else [half for part, _ in failed if len(part) > 1 for half in _halves(part)]
        return hopeless

    def _call(self, batch: Sequence[str], input_type: InputType) -> Sequence[Any] | EmbeddingError:
        try:
            returned = self.embedder.embed(batch, input_type)
        except NOT_THE_TEXTS_FAULT:
            raise
        except Exception as exc:  # noqa: BLE001  whatever it is, it is these texts' result
            return self._raised(exc)
        if isinstance(returned, Mapping) or not hasattr(returned, "__len__") or len(returned) != len(batch):
            return self._error(
                f"got {len(batch)} texts and returned {shown(returned)}; a list with one vector for each is needed"
            )
        return list(returned)

    def _vector(self, result: Any) -> Embedded:
        if isinstance(result, BaseException):
            return self._raised(result)
        try:
            return as_vector(result)
        except ValueError as exc:
            return self._error(str(exc), exc.__cause__)

    def _of_length(self, result: Embedded, dimension: int) -> Embedded:
        if isinstance(result, EmbeddingError) or length_of(result) == dimension:
            return result
        return self._error(_difference(length_of(result), dimension))

    def _raised(self, error: BaseException) -> EmbeddingError:
        if isinstance(error, EmbeddingError):  # one of ours says all there is to say
            return error if error.embed_key == self.key else self._error(f"failed: {error}".rstrip("."), error)
        return self._error(f"raised {type(error).__name__}: {error}", error)

    def _error(self, what: str, cause: BaseException | None = None) -> EmbeddingError:
        error = EmbeddingError(f"{self.name} {what}.", embed_key=self.key)
        error.__cause__ = cause
        return error


def listed_texts(texts: Any) -> list[Any]:
    """Texts to be embedded as a list; what is in it is checked text by text, see `is_blank`.

    Raises:
        ConfigError: If it is one text, or no iterable.

    Example:
        >>> listed_texts(text for text in ("tea", "coffee"))
        ['tea', 'coffee']
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        msg = f"texts is {shown(texts)}; give a list of texts."
        raise ConfigError(msg)
    return list(texts)


def is_blank(text: Any) -> bool:
    """Whether something cannot be embedded: a blank text, or no text."""
    return not isinstance(text, str) or not text.strip()


def blank_error(text: Any) -> EmbeddingError:
    """What becomes of a blank text, or of what is none."""
    return EmbeddingError(f"A text is {shown(text)}; give one that is not blank.")


def checked_input_type(input_type: Any) -> InputType:
    """What texts are to an embedder.

    Raises:
        ConfigError: If it is neither ``"query"`` nor ``"document"``.
    """
    if input_type not in get_args(InputType):
        msg = f"input_type is {input_type!r}. {known_names(str(input_type), get_args(InputType))}"
        raise ConfigError(msg)
    checked: InputType = input_type
    return checked


def as_vector(value: Any) -> Embedding:
    """What an embed callable returned for one text, checked.

    Args:
        value: Numbers in a list, a tuple or an array; or a mapping from dimension to weight, whose keys may also be
            digits, as models that speak JSON write them.

    Returns:
        A copy: (dim,) float32, finite; or dimensions below 2**64 to weights, which are rounded to float32 as well,
        without those that are 0.

    Raises:
        ValueError: If it is something else, saying what.

    Example:
        >>> as_vector([1, 2]), as_vector({"7": 0.5, "9": 0})
        (array([1., 2.], dtype=float32), {7: 0.5})
    """
    if isinstance(value, Mapping):
        return _sparse(value)
    try:
        vector = np.array(value, dtype=np.float32)  # a copy: a model may use its buffer again
    except (TypeError, ValueError, OverflowError) as exc:
        msg = f"returned {shown(value)}, not a list of numbers"
        raise ValueError(msg) from exc
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        msg = (
            f"returned {value!r:.60}, shape {vector.shape}; "
            "a vector is one-dimensional, not empty, and all its numbers are finite"
        )
        raise ValueError(msg)
    return vector


def _sparse(value: Mapping[Any, Any]) -> SparseVector:
    try:
        weights = {_dimension(key): float(weight) for key, weight in value.items()}
    except (TypeError, ValueError, OverflowError) as exc:
        msg = f"returned {shown(value)}; a sparse vector maps whole numbers from 0 to 2**64 - 1 to numbers"
        raise ValueError(msg) from exc
    with np.errstate(over="ignore"):  # found below
        rounded = np.array(list(weights.values()), np.float64).astype(np.float32)
    if not np.isfinite(rounded).all():
        msg = f"returned {shown(value)}; the weights of a sparse vector are finite, as float32 too"
        raise ValueError(msg)
    return {key: weight for key, weight in zip(weights, rounded.tolist(), strict=True) if weight}


def _dimension(key: Any) -> int:
    dimension = int(key) if isinstance(key, str) else operator.index(key)
    if not 0 <= dimension < 2**64:
        raise ValueError(key)
    return dimension


def length_of(vector: Embedding) -> int:
    """How many numbers a dense vector has; `SPARSE` for a sparse one.

    Example:
        >>> length_of(as_vector([1, 2])), length_of({7: 0.5}) == SPARSE
        (2, True)
    """
    return SPARSE if isinstance(vector, dict) else len(vector)


def _difference(length: int, expected: int) -> str:
    """Why a vector does not go with the others, as a part of a message."""
    if SPARSE in (length, expected):
        one, others = ("sparse", "dense") if length == SPARSE else ("dense", "sparse")
        return f"returned a {one} vector where the others are {others}; vectors of one embed key are of one kind"
    return f"returned vectors of different lengths: {length} instead of {expected} numbers"


def collected(results: Sequence[Embedded], name: str, dimension: int = 0) -> Embeddings:
    """Vectors of one kind, all or nothing.

    Args:
        results: What became of n texts.
        name: Who embedded them, for messages.
        dimension: The length that they must have, or `SPARSE`; 0 for that of the first one.

    Returns:
        (n, dim) float32; or a list of n sparse vectors.

    Raises:
        EmbeddingError: The first error among them; or one of them is of another length or kind.
    """
    dense, sparse = [], []
    for result in results:
        if isinstance(result, EmbeddingError):
            # A copy: one error may be the result of many texts, and each raise makes its traceback longer.
            raise EmbeddingError(str(result), embed_key=result.embed_key) from result.__cause__
        dimension = dimension or length_of(result)
        if length_of(result) != dimension:
            raise EmbeddingError(f"{name} {_difference(length_of(result), dimension)}.")
        if isinstance(result, dict):
            sparse.append(result)
        else:
            dense.append(result)
    if dimension == SPARSE:
        return sparse
    return np.stack(dense) if dense else np.empty((0, dimension), np.float32)


def stacked(results: Sequence[Embedded], name: str, dimension: int = 0) -> Matrix:
    """Dense vectors as the rows of one array; see `collected`.

    Raises:
        EmbeddingError: The first error among them; or one of them is of another length, or sparse.
    """
    vectors = collected(results, name, dimension)
    if not isinstance(vectors, np.ndarray):
        raise EmbeddingError(f"{name} returned sparse vectors; dense ones are needed here.")
    return vectors


def batch_size_of(embedder: object, default: int) -> int:
    """How many texts an embedder or a callable takes at once: its ``batch_size`` if that is a whole number above 1."""
    size = getattr(embedder, "batch_size", default)
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 1 else default


def _halves(part: range) -> tuple[range, range]:
    middle = len(part) // 2
    return part[:middle], part[middle:]


def shown(value: object) -> str:
    """The beginning of a value, and its type, for messages."""
    return f"{value!r:.60} ({type(value).__name__})"


def _usual_length(results: Sequence[Embedded]) -> int:
    """The length that most vectors have, the first of those that come equally often; 0 where there is none."""
    lengths = Counter(length_of(one) for one in results if not isinstance(one, EmbeddingError))
    return lengths.most_common(1)[0][0] if lengths else 0


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
