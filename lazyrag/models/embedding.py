"""Validated embedding: distinct texts, batches, every result checked; callables as embedders."""

from __future__ import annotations

import json
import operator
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias, cast

import numpy as np

from lazyrag.errors import (
    CanceledError,
    ConfigError,
    EmbeddingError,
    IngestionError,
    MissingDependencyError,
    StoreError,
)
from lazyrag.models.concurrency import map_in_threads
from lazyrag.models.protocols import (
    Embedded,
    EmbeddedBatch,
    Embedder,
    InputType,
    is_batch_embedder,
    is_embedder,
    missing_members,
)
from lazyrag.types import SPARSE, Embedding, Embeddings, Matrix, SparseVector
from lazyrag.validation import keyword_names, require, validate_choice

_DEFAULT_BATCH_SIZE = 64
_MAX_FAILED_PARTS = 8  # of a batch; if all fail, the model is down
_WORTH_THREADS_S = 0.002
# results of single calls, or those of a second: a cache writes them in one transaction
_TOGETHER = 32
_TOGETHER_S = 1.0

UNREAD_SHARE = 0.2
"""A model that does not know this share of a query's letters cannot rank by it: docs/quality.md."""

NON_TEXT_ERRORS = (CanceledError, IngestionError, MissingDependencyError, StoreError)
"""Errors of an embedder that no other text would avoid."""


class CheckedEmbedder:
    """Embeds each distinct text once and validates every result.

    Args:
        embedder: The embedder.
        name: Its name in messages: ``"The embed of key 'dense'"``.
        key: Its embed key, for errors; "" if it has none.
        workers: Threads that call a function of one text, when a call takes more than a moment;
            None means one per core and four more, at most 32.
    """

    def __init__(
        self,
        embedder: Embedder,
        name: str = "The embedder",
        key: str = "",
        workers: int | None = None,
    ) -> None:
        self.embedder = embedder
        self.user_object: object = getattr(embedder, "function", embedder)  # Documents may share it
        self.name = name
        self.key = key
        self.workers = min(32, (os.cpu_count() or 1) + 4) if workers is None else workers
        self._batch_embedder = embedder if is_batch_embedder(embedder) else None

    def embed(
        self, texts: Sequence[str], dimension: int = 0, input_type: InputType = "document"
    ) -> Embeddings:
        """Embed texts, all or nothing.

        Args:
            texts: n texts, none of them blank.
            dimension: Required length of vectors, or `SPARSE`; 0 if unknown yet.
            input_type: Whether they are queries or documents.

        Returns:
            (n, dim) float32, finite; or a list of n sparse vectors.

        Raises:
            EmbeddingError: If a text cannot be embedded; the error of the first one.
        """
        return stack_embeddings(self.embed_each(texts, dimension, input_type), self.name, dimension)

    def embed_each(
        self, texts: Sequence[str], dimension: int = 0, input_type: InputType = "document"
    ) -> list[Embedded]:
        """Return for each text its vector, or an error; see `embed`."""
        checked = validate_embed_texts(texts)
        distinct = list(dict.fromkeys(text for text in checked if isinstance(text, str)))
        embedded = {}
        for batch in self.batches(distinct, dimension, input_type):
            for at, result in zip(batch.positions, batch.results, strict=True):
                embedded[distinct[at]] = result
        return [embedded[text] if isinstance(text, str) else blank_error(text) for text in checked]

    def batches(
        self, texts: Sequence[str], dimension: int = 0, input_type: InputType = "document"
    ) -> Iterator[EmbeddedBatch]:
        """Yield validated batches as they finish; each text is in exactly one of them.

        A vector that is invalid, not finite, or of another length or kind fails its text alone. A
        batch with a wrong number of vectors fails as a whole. If the embedder raises, the remaining
        texts fail.

        Raises:
            ConfigError: If texts are no list, or the input type is unknown.
            MissingDependencyError: If the embedder needs a package that is not installed.
            StoreError: If its cache cannot be read.
        """
        checked = validate_embed_texts(texts)
        validate_input_type(input_type)
        embeddable, blank = split_blank(checked)
        if blank is not None:
            yield blank
        good = [checked[position] for position in embeddable]
        for batch in self._batches(good, dimension, input_type):
            positions = [embeddable[position] for position in batch.positions]
            yield EmbeddedBatch(positions, batch.results)

    def _batches(
        self, texts: Sequence[str], dimension: int, input_type: InputType
    ) -> Iterator[EmbeddedBatch]:
        missing = dict.fromkeys(range(len(texts)))
        dimension = dimension or self.embedder.dimension or 0
        failure = None
        embedded = self._embed(texts, input_type)
        while True:
            try:
                batch = next(embedded, None)
            except NON_TEXT_ERRORS:
                raise
            except Exception as exc:  # noqa: BLE001  the result of the remaining texts
                failure = self._raised(exc)
                break
            if batch is None:
                break
            positions = list(batch.positions)
            distinct = set(positions)
            is_valid = len(distinct) == len(positions) == len(batch.results)
            if not (is_valid and missing.keys() >= distinct):
                failure = self._error(
                    f"returned {len(batch.results)} results for the positions {positions!r:.60} of"
                    f" {len(texts)} texts; every position must come exactly once"
                )
                break
            results = [self._vector(result) for result in batch.results]
            dimension = dimension or _usual_length(results)
            for position in positions:
                del missing[position]
            yield EmbeddedBatch(
                positions, [self._of_length(result, dimension) for result in results]
            )
        if missing:
            failure = failure or self._error(f"left out {len(missing)} of {len(texts)} texts")
            yield EmbeddedBatch(list(missing), [failure] * len(missing))

    def _embed(self, texts: Sequence[str], input_type: InputType) -> Iterator[EmbeddedBatch]:
        """Call the embedder, by either of the two protocols."""
        if not texts:
            return
        if self._batch_embedder is not None:
            yield from self._batch_embedder.embed_batches(texts, input_type)
            return
        batch_size = getattr(self.embedder, "batch_size", None)
        size = batch_size if isinstance(batch_size, int) and batch_size > 0 else _DEFAULT_BATCH_SIZE
        if size == 1 and isinstance(self.embedder, CallableEmbedder):
            yield from self._one_by_one(texts, input_type)
            return
        is_down = False
        for start in range(0, len(texts), size):
            batch = range(start, min(start + size, len(texts)))
            is_down = yield from self._bisect(texts, batch, input_type, skip_bisection=is_down)

    def _one_by_one(self, texts: Sequence[str], input_type: InputType) -> Iterator[EmbeddedBatch]:
        """Embed each text by a call of its own; a text that fails fails alone."""
        results: list[Embedded] = []
        start = 0
        since = time.monotonic()
        interrupt = None
        with closing(self._single_calls(texts, input_type)) as calls:
            while start + len(results) < len(texts) and interrupt is None:
                try:
                    results.append(next(calls))
                except BaseException as exc:  # noqa: BLE001  raised after the results before it
                    interrupt = exc
                is_due = len(results) == _TOGETHER or time.monotonic() - since > _TOGETHER_S
                if results and (
                    is_due or interrupt is not None or start + len(results) == len(texts)
                ):
                    yield EmbeddedBatch(range(start, start + len(results)), results)
                    start = start + len(results)
                    results = []
                    since = time.monotonic()
        if interrupt is not None:
            raise interrupt

    def _single_calls(
        self, texts: Sequence[str], input_type: InputType
    ) -> Generator[Embedded, None, None]:
        """Yield the results of the calls in order; they run in threads from the first one that
        takes long.
        """

        def call(text: str) -> Embedded:
            returned = self._call([text], input_type)
            result = returned if isinstance(returned, EmbeddingError) else returned[0]
            return self._vector(result)  # a copy: the embedder may reuse a buffer

        for position, text in enumerate(texts):
            started = time.perf_counter()
            result = call(text)
            took = time.perf_counter() - started
            yield result
            if self.workers > 1 and took > _WORTH_THREADS_S:
                yield from map_in_threads(call, texts[position + 1 :], self.workers)
                return

    def _bisect(
        self, texts: Sequence[str], batch: range, input_type: InputType, *, skip_bisection: bool
    ) -> Generator[EmbeddedBatch, None, bool]:
        """Embed a batch; if that fails, its halves and so on, so that only the texts at fault fail.

        If all eight eighths fail, the texts are not at fault: the rest is skipped, and following
        batches are tried as a whole until one succeeds.

        Returns:
            Whether the model seems to be down.
        """
        parts = [batch]
        accepted = model_down = False
        while parts:
            failed = []
            for part in parts:
                results = self._call([texts[position] for position in part], input_type)
                if isinstance(results, EmbeddingError):
                    failed.append((part, results))
                else:
                    accepted = True
                    yield EmbeddedBatch(part, results)
            model_down = (
                bool(failed)
                and not accepted
                and (skip_bisection or len(failed) >= _MAX_FAILED_PARTS)
            )
            parts = []
            for part, error in failed:
                if len(part) == 1 or model_down:
                    yield EmbeddedBatch(part, [error] * len(part))
                else:
                    parts += _halves(part)
        return model_down

    def _call(self, batch: Sequence[str], input_type: InputType) -> Sequence[Any] | EmbeddingError:
        try:
            returned = self.embedder.embed(batch, input_type)
        except NON_TEXT_ERRORS:
            raise
        except Exception as exc:  # noqa: BLE001  the result of these texts
            return self._raised(exc)
        if (
            isinstance(returned, Mapping)
            or not hasattr(returned, "__len__")
            or len(returned) != len(batch)
        ):
            return self._error(
                f"must return a list with one vector for each of {len(batch)} texts; got"
                f" {shown(returned)}"
            )
        return list(returned)

    def _vector(self, result: Any) -> Embedded:
        if isinstance(result, BaseException):
            return self._raised(result)
        try:
            vector = as_vector(result)
        except ValueError as exc:
            return self._error(str(exc), exc.__cause__)
        if isinstance(vector, np.ndarray) and not vector.any():
            return self._error(
                f"returned a vector of {len(vector)} zeros, which is similar to nothing"
            )
        return vector

    def _of_length(self, result: Embedded, dimension: int) -> Embedded:
        if isinstance(result, EmbeddingError) or length_of(result) == dimension:
            return result
        return self._error(_difference(length_of(result), dimension))

    def _raised(self, error: BaseException) -> EmbeddingError:
        if isinstance(error, EmbeddingError):
            if error.embed_key == self.key:
                return error
            return self._error(f"failed: {error}".rstrip("."), error)
        return self._error(f"raised {type(error).__name__}: {error}", error)

    def _error(self, problem: str, cause: BaseException | None = None) -> EmbeddingError:
        error = EmbeddingError(f"{self.name} {problem}.", embed_key=self.key)
        error.__cause__ = cause
        return error


def unknown_share(embedder: Any, text: str) -> float | None:
    """Return the share of a text's letters that an embedder does not know, by its method
    ``unknown_share(text)``.

    None if it, and the embedder behind its cache or the user's function, has no such method.
    """
    while embedder is not None:
        if callable(share := getattr(embedder, "unknown_share", None)):
            return cast("float | None", share(text))
        embedder = getattr(embedder, "embedder", None) or getattr(embedder, "function", None)
    return None


def validate_embed_texts(texts: Any) -> list[Any]:
    """Return the texts to embed as a list; its items are checked one by one, see `is_embeddable`.

    Raises:
        ConfigError: If it is a string, or no iterable.

    Example:
        >>> validate_embed_texts(text for text in ("tea", "coffee"))
        ['tea', 'coffee']
    """
    is_list = isinstance(texts, Iterable) and not isinstance(texts, (str, bytes))
    require(is_list, "texts", texts, "a list of strings")
    return list(texts)


def is_embeddable(text: Any) -> bool:
    """Whether a value can be embedded: a string that is not blank."""
    return isinstance(text, str) and bool(text.strip())


def blank_error(text: Any) -> EmbeddingError:
    """Create the error for a value that cannot be embedded."""
    return EmbeddingError(f"A text must be a string that is not blank; got {shown(text)}.")


def split_blank(texts: Sequence[Any]) -> tuple[list[int], EmbeddedBatch | None]:
    """The positions of the texts that can be embedded, and the errors of the others, if any."""
    embeddable = [position for position, text in enumerate(texts) if is_embeddable(text)]
    blank = [position for position, text in enumerate(texts) if not is_embeddable(text)]
    if not blank:
        return embeddable, None
    return embeddable, EmbeddedBatch(blank, [blank_error(texts[position]) for position in blank])


def validate_input_type(input_type: Any) -> InputType:
    """Return ``"query"`` or ``"document"``.

    Raises:
        ConfigError: If it is neither.
    """
    return cast("InputType", validate_choice("input_type", input_type, InputType))


def as_vector(value: Any) -> Embedding:
    """Validate the vector that an embedder returned for a text.

    Args:
        value: Numbers in a list, a tuple or an array; or a mapping from dimension to weight, whose
            keys may be strings of digits, as in JSON. Or the JSON text of either, as services
            return it.

    Returns:
        A copy: (dim,) float32, finite; or a dict from dimensions below 2**64 to weights rounded to
        float32, without zeros.

    Raises:
        ValueError: If it is something else.

    Example:
        >>> as_vector([1, 2]), as_vector({"7": 0.5, "9": 0})
        (array([1., 2.], dtype=float32), {7: 0.5})
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as exc:
            raise ValueError(
                f"returned {shown(value)}, not a list of numbers, nor its JSON text"
            ) from exc
    if isinstance(value, Mapping):
        return _sparse(value)
    if isinstance(value, Sequence) and any(isinstance(number, (str, bytes)) for number in value):
        raise ValueError(f"returned {shown(value)}, which holds strings, not numbers")
    try:
        vector = np.array(value, dtype=np.float32)  # a copy: a model may reuse its buffer
    except (TypeError, ValueError, OverflowError) as exc:
        raise ValueError(f"returned {shown(value)}, not a list of numbers") from exc
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise ValueError(
            f"returned {value!r:.60}, shape {vector.shape}; "
            "a vector is one-dimensional, not empty, and all its numbers are finite"
        )
    return vector


def _sparse(value: Mapping[Any, Any]) -> SparseVector:
    try:
        weights = {_dimension(key): float(weight) for key, weight in value.items()}
    except (TypeError, ValueError, OverflowError) as exc:
        raise ValueError(
            f"returned {shown(value)}; a sparse vector maps integers from 0 to 2**64 - 1 to numbers"
        ) from exc
    with np.errstate(over="ignore"):  # found below
        rounded = np.array(list(weights.values()), np.float64).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise ValueError(
            f"returned {shown(value)}; the weights of a sparse vector are finite, as float32 too"
        )
    return {key: weight for key, weight in zip(weights, rounded.tolist(), strict=True) if weight}


def _dimension(key: Any) -> int:
    dimension = int(key) if isinstance(key, str) else operator.index(key)
    if not 0 <= dimension < 2**64:
        raise ValueError(key)
    return dimension


def other_length_error(embed_key: str, of_query: int, of_nodes: int) -> EmbeddingError:
    """The error for a query's vector that has another length or kind than the nodes' vectors."""
    msg = (
        f"The query's embedding under {embed_key!r} is {_describe_length(of_query)} and the nodes'"
        f" are {_describe_length(of_nodes)}: the embed callable returned vectors of different"
        f" lengths or kinds. {MODEL_CHANGED}."
    )
    return EmbeddingError(msg, embed_key=embed_key)


def _describe_length(dimension: int) -> str:
    return "sparse" if dimension == SPARSE else f"of {dimension} numbers"


def length_of(vector: Embedding) -> int:
    """Return the length of a dense vector; `SPARSE` for a sparse one.

    Example:
        >>> length_of(as_vector([1, 2])), length_of({7: 0.5}) == SPARSE
        (2, True)
    """
    return SPARSE if isinstance(vector, dict) else len(vector)


MODEL_CHANGED = (
    "If the model was changed, give the embed another `identity`, so that all vectors are built"
    " again"
)
"""Way out, as the end of a message without its period, where vectors do not fit those in an
index."""


def _difference(length: int, expected: int) -> str:
    """Describe how a vector differs from the others, as a part of a message."""
    if SPARSE in (length, expected):
        kind, others = ("sparse", "dense") if length == SPARSE else ("dense", "sparse")
        return (
            f"returned a {kind} vector where the others are {others}; vectors of one embed key are"
            " of one kind"
        )
    return (
        f"returned vectors of different lengths: {length} instead of {expected} numbers."
        f" {MODEL_CHANGED}"
    )


def stack_embeddings(results: Sequence[Embedded], name: str, dimension: int = 0) -> Embeddings:
    """Stack vectors of one kind, all or nothing.

    Args:
        results: Results of n texts.
        name: Name of the embedder, for messages.
        dimension: Required length, or `SPARSE`; 0 for that of the first one.

    Returns:
        (n, dim) float32; or a list of n sparse vectors.

    Raises:
        EmbeddingError: The first error among them; or if one is of another length or kind.
    """
    dense = []
    sparse = []
    for result in results:
        if isinstance(result, EmbeddingError):
            # A copy: one error may be the result of many texts, and each raise extends its
            # traceback.
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


def stack_dense(results: Sequence[Embedded], name: str, dimension: int = 0) -> Matrix:
    """Stack dense vectors in one array; see `stack_embeddings`.

    Raises:
        EmbeddingError: The first error among them; or if one is of another length, or sparse.
    """
    vectors = stack_embeddings(results, name, dimension)
    if not isinstance(vectors, np.ndarray):
        raise EmbeddingError(f"{name} must return dense vectors here; got sparse ones.")
    return vectors


def batch_size_of(embedder: object) -> int:
    """Return the ``batch_size`` of an embedder or a callable if it is an integer > 1, else 1."""
    size = getattr(embedder, "batch_size", 1)
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 1 else 1


def _halves(part: range) -> tuple[range, range]:
    middle = len(part) // 2
    return part[:middle], part[middle:]


def shown(value: object) -> str:
    """Format the beginning of a value and its type, for messages."""
    return f"{value!r:.60} ({type(value).__name__})"


def _usual_length(results: Sequence[Embedded]) -> int:
    """Return the most common length of vectors, the first of several; 0 if there is no vector."""
    lengths = Counter(
        length_of(vector) for vector in results if not isinstance(vector, EmbeddingError)
    )
    return lengths.most_common(1)[0][0] if lengths else 0


EmbedCallable: TypeAlias = Callable[..., Any]
"""Takes a text; returns a vector (a list or an array of numbers, or a dict from dimension to
weight). With an attribute ``batch_size`` > 1 it takes a list of at most so many texts and returns
as many vectors."""

DEFAULT_EMBED_KEY = "default"
"""Embed key of a Document with one embedder and no name for it."""


class CallableEmbedder:
    """Adapts a callable to the `Embedder` protocol.

    Args:
        function: Takes ONE text; takes lists only if its attribute ``batch_size`` is > 1. Its
            attribute ``identity`` (or ``model_name``), a string, names the model. If it has a
            parameter ``input_type``, that gets ``"query"`` or ``"document"``.
        what: Name of the argument, for messages.

    Raises:
        ConfigError: If it is not callable.

    Example:
        >>> CallableEmbedder(lambda text: [len(text), 1.0]).embed(["tea", "green"])
        [[3, 1.0], [5, 1.0]]
    """

    dimension = None
    max_tokens = None
    normalised = False

    def __init__(self, function: EmbedCallable, name: str = "embed") -> None:
        way_out = (
            "Name a model by OnnxEmbedder('folder') or HttpEmbedder('http://localhost:8000/v1',"
            " 'name')."
        )
        is_model = "an Embedder, or a callable from text to list of numbers"
        require(callable(function), f"The {name}", function, is_model, way_out)
        self.function = function
        self.batch_size = batch_size_of(function)
        self._asks_type = "input_type" in keyword_names(function, skip=1)[0]

    @property
    def identity(self) -> str:
        """Identity of the callable; "" if it has none."""
        return callable_identity(self.function)

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any]:
        """Call the callable with each text, or with all if its ``batch_size`` is > 1; results are
        not validated.
        """
        keywords = {"input_type": input_type} if self._asks_type else {}
        if self.batch_size == 1:
            return [self.function(text, **keywords) for text in texts]
        vectors: Sequence[Any] = self.function(list(texts), **keywords)
        return vectors


def callable_identity(function: object, *more: str) -> str:
    """Return the ``identity``, the ``model_name`` or another attribute of a callable; "" if it has
    none.
    """
    names = (getattr(function, name, None) for name in ("identity", "model_name", *more))
    return next((name for name in names if isinstance(name, str) and name), "")


def as_embedder(embed: Embedder | EmbedCallable, name: str = "embed") -> Embedder:
    """Return an `Embedder` as it is, and wrap any other callable in a `CallableEmbedder`.

    Raises:
        ConfigError: If it is neither.
    """
    if is_embedder(embed):
        return embed
    if not isinstance(embed, type) and not callable(embed) and hasattr(embed, "embed"):
        missing = ", ".join(
            missing_members(embed, ("identity", "dimension", "max_tokens", "normalised"))
        )
        raise ConfigError(
            f"The {name} must be an Embedder; {type(embed).__name__} has no {missing}."
        )
    return CallableEmbedder(cast("EmbedCallable", embed), name)


def make_embedders(
    embed: Embedder | EmbedCallable | Mapping[str, Embedder | EmbedCallable] | None,
    workers: int | None = None,
) -> dict[str, CheckedEmbedder]:
    """Return the embedders of a Document's embed argument, by embed key; for ``workers`` see
    `CheckedEmbedder`.

    Raises:
        ConfigError: If it is neither a callable, an `Embedder`, nor a mapping of non-empty names to
            those.
    """
    if embed is None:
        return {}
    if isinstance(embed, Mapping):
        is_valid = len(embed) > 0 and all(isinstance(key, str) and key for key in embed)
        require(
            is_valid,
            "embed",
            dict(embed),
            "a callable, an Embedder, or a non-empty mapping of names to those",
        )
        return {key: _under(key, embedder, workers) for key, embedder in embed.items()}
    return {DEFAULT_EMBED_KEY: _under(DEFAULT_EMBED_KEY, embed, workers)}


def _under(key: str, embed: Embedder | EmbedCallable, workers: int | None) -> CheckedEmbedder:
    name = f"embed of key {key!r}"
    return CheckedEmbedder(as_embedder(embed, name), f"The {name}", key, workers)
