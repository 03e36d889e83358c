"""ONNX models: cross-encoder, embedder, and late interaction (MaxSim) of token vectors."""

from __future__ import annotations

import itertools
import struct
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast, get_args

import numpy as np

from lazyrag.errors import (
    CacheWarning,
    ConfigError,
    EmbeddingError,
    RetrievalError,
    StoreError,
    sentence,
    warn_user,
)
from lazyrag.models.embedding import (
    UNREAD_SHARE,
    CheckedEmbedder,
    blank_error,
    is_embeddable,
    shown,
    stack_dense,
    unknown_share,
    validate_embed_texts,
)
from lazyrag.models.embedding_cache import EmbeddingCache, VectorSpace
from lazyrag.models.onnx.folder import ModelFolder
from lazyrag.models.onnx.hub import find_model
from lazyrag.models.onnx.pooling import normalised, settle
from lazyrag.models.onnx.session import Ids, Output, Row, TextModel, TooLong, run_batches, windows
from lazyrag.models.protocols import Embedded, EmbeddedBatch, InputType
from lazyrag.models.rerank import checked_documents, checked_query, rank_scores
from lazyrag.types import FloatArray, Matrix, PathLike, PlaceRanking, Vector
from lazyrag.validation import (
    entry_of,
    known_arguments,
    require,
    sendable,
    validate_choice,
    validate_integer,
    validate_string,
)

Activation = Literal["sigmoid", "softmax", "identity"]

_Logits: TypeAlias = "FloatArray"  # (labels,)


@known_arguments
class OnnxCrossEncoder:
    """Cross-encoder that scores a query and a document together: a `RerankModel`.

    A pair that exceeds the model's limit is never truncated: the document is read in windows, each
    with the whole query, and the best window counts. Scores do not depend on the other documents.
    Thread-safe.

    Args:
        model: A folder, or an id on the hub (``"organisation/name"``), looked up on this machine
            only.
        download: Whether to download missing files from the hub. Nothing else opens a connection.
        revision: A branch, tag or commit on the hub; None for the main branch.
        file: The ONNX file in the folder; None means ``model.onnx`` or ``onnx/model.onnx``, else
            the only one.
        activation: What makes a score of the model's numbers: ``"sigmoid"``, ``"identity"``, or, of
            several labels, ``"softmax"``. None means what the folder says; where it says nothing,
            sigmoid for one label, as in sentence-transformers, and softmax for several.
        label: The number of the label whose score counts; needed where a model has several.
        max_tokens: Maximum number of input tokens, with special ones; None for the model's own
            limit.
        batch_size: Maximum number of pairs in a batch; None for 32, or 1 for graphs with
            dynamically quantised activations, where pairs of a batch affect each other's scores.
        threads: Number of threads for one call; None for one per core.
        providers: Execution providers of onnxruntime, the preferred one first, such as
            ``["CUDAExecutionProvider", "CPUExecutionProvider"]`` with the package onnxruntime-gpu;
            None for the CPU.

    Raises:
        ConfigError: If a file is missing, broken or ambiguous, or an argument is invalid.
        MissingDependencyError: If the extra ``onnx`` is not installed.

    Source:
        The best window: Dai, Callan: Deeper Text Understanding for IR with Contextual Neural
            Language Modeling (MaxP),
        SIGIR 2019, doi:10.1145/3331184.3331303.
    """

    def __init__(
        self,
        model: PathLike,
        *,
        download: bool = False,
        revision: str | None = None,
        file: str | None = None,
        activation: Activation | None = None,
        label: int | None = None,
        max_tokens: int | None = None,
        batch_size: int | None = None,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
    ) -> None:
        folder = find_model(model, download=download, revision=revision, file=file)
        self.name = folder.name
        self._model = TextModel(
            "OnnxCrossEncoder",
            folder,
            file=file,
            max_tokens=max_tokens,
            threads=threads,
            providers=providers,
        )
        self.max_tokens = self._model.max_tokens
        self._output = _output(folder, self._model)
        labels = _count_labels(self._model, self._output)
        self._label = _label(folder, labels, label)
        self._activation = _activation(folder, labels, activation)
        self._rows_at_once, self._batch_dependent = self._model.rows_at_once(
            self._output, self._model.two, batch_size
        )

    def __repr__(self) -> str:
        return f"OnnxCrossEncoder({self.name!r}, max_tokens={self.max_tokens})"

    @property
    def identity(self) -> str:
        """Name of the model, with a hash of its files and of all settings that affect scores.

        Raises:
            ConfigError: If a file has changed since the model was loaded.
        """
        settings = {
            "activation": self._activation,
            "label": self._label,
            "output": self._output,
            "swayed": self._batch_dependent,
        }
        return self._model.identity(self.name, settings)

    def __call__(
        self, query: str, documents: Sequence[str], top_n: int | None = None
    ) -> PlaceRanking:
        """Rank documents; see `RerankModel`.

        Scores are in [0, 1], except for the activation ``"identity"``, and comparable across
        queries. A query that leaves no room for a document is a ConfigError.
        """
        passages, limit = checked_documents(documents, top_n)
        distinct = list(dict.fromkeys(passages))
        rows = self._rows(query, distinct)
        scores: dict[str, float] = {}
        for batch in run_batches(rows, self._scores, self._rows_at_once, self._model.threads):
            # np.max propagates nan, which checked_ranking reports.
            scores.update((distinct[number], float(np.max(windows))) for number, windows in batch)
        return rank_scores((scores[passage] for passage in passages), limit, repr(self))

    def _rows(self, query: str, documents: Sequence[str]) -> list[tuple[int, Row]]:
        """The windows of each document beside the query, with its number."""
        checked_query(query)
        query_ids, *document_ids = self._model.ids([query, *documents])
        room = self.max_tokens - self._model.two.size - len(query_ids)
        if room < 1:
            raise ConfigError(
                f"The query has {len(query_ids)} tokens, and {self.name!r} reads {self.max_tokens}"
                " at once, those of a document and special ones among them. Shorten the query."
            )
        rows = []
        for number, ids in enumerate(document_ids):
            rows += [
                (number, self._model.two.row(query_ids, window))
                for window in windows(ids, room, full_last=True)
            ]
        return rows

    def _scores(self, rows: Sequence[Row]) -> list[float]:
        try:
            outputs = self._model.run(rows, self._output)
        except Exception as exc:
            raise RetrievalError(f"{self!r} failed: {sentence(exc)}") from exc
        activate = _ACTIVATIONS[self._activation]
        return [float(activate(output.astype(np.float64))[self._label]) for output in outputs]


def _sigmoid(logits: _Logits) -> _Logits:
    # Of the negative half, so that nothing overflows.
    powers = np.exp(-np.abs(logits))
    scores: _Logits = np.where(logits >= 0, 1.0, powers) / (1.0 + powers)
    return scores


def _softmax(logits: _Logits) -> _Logits:
    powers = np.exp(logits - logits.max())
    scores: _Logits = powers / powers.sum()
    return scores


_ACTIVATIONS: dict[Activation, Callable[[_Logits], _Logits]] = {
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "identity": lambda logits: logits,
}


def _output(folder: ModelFolder, model: TextModel) -> str:
    is_only = len(model.ranks) == 1
    outputs = [
        name for name, rank in model.ranks.items() if rank < 3 and (is_only or name == "logits")
    ]
    types = {str(module.get("type")).rpartition(".")[2] for module in folder.modules() or []}
    others = sorted(types - {"Transformer"})
    if others or not outputs:
        has = f"the {'steps' if others else 'outputs'} {', '.join(others or model.ranks)}"
        raise ConfigError(
            f"{folder.path} has {has}; a cross-encoder is a sequence classification model with the"
            " output 'logits'. Is it an embedding model?"
        )
    return outputs[0]


def _count_labels(model: TextModel, output: str) -> int:
    return len(model.run([model.two.row(*model.ids(["a", "a"]))], output)[0])


def _label(folder: ModelFolder, labels: int, label: int | None) -> int:
    if label is not None:
        return validate_integer("label", label, 0, labels - 1)
    if labels > 1:
        names = folder.read_json_object("config.json").get("id2label")
        listed = f": {names}" if isinstance(names, dict) else ""
        raise ConfigError(
            f"{folder.path} has {labels} labels{listed}. Pass label=, the number of the relevant"
            " label."
        )
    return 0


def _activation(folder: ModelFolder, labels: int, activation: Activation | None) -> Activation:
    if activation is not None:
        allowed = get_args(Activation) if labels > 1 else ("sigmoid", "identity")
        return cast(
            "Activation", validate_choice(f"activation for {labels} labels", activation, allowed)
        )
    if labels > 1:
        return "softmax"
    declared = _declared_activation(folder)
    name = "sigmoid" if declared is None else str(declared).rpartition(".")[2].lower()
    if name not in {"sigmoid", "identity"}:
        raise ConfigError(
            f"{folder.path} has the unknown activation {declared!r}. Pass activation='identity'."
        )
    return cast("Activation", name)


def _declared_activation(folder: ModelFolder) -> Any:
    """Return the activation class in the folder's configuration, where releases of
    sentence-transformers put it.
    """
    config = folder.read_json_object("config.json")
    nested = config.get("sentence_transformers")
    positions: tuple[Any, ...] = (
        folder.read_json_object("config_sentence_transformers.json").get("activation_fn"),
        entry_of(nested, "activation_fn"),
        config.get("sbert_ce_default_activation_function"),
    )
    return next((declared for declared in positions if declared is not None), None)


T = TypeVar("T")
TokenMatrices: TypeAlias = dict[str, Matrix]
"""For each text the vectors of its tokens."""

# texts whose batches are made together: enough to sort by length, and bounded memory
_SORTED_AT_ONCE = 1024


@sendable
@known_arguments
class OnnxEmbedder:
    """A sentence-embedding model in a folder, as sentence-transformers and the Hugging Face hub lay
    it out.

    Pooling, normalisation, prompts and length come from the folder or from the arguments; nothing
    is guessed. A text's vector does not depend on the other texts of a batch. It is a
    `BatchEmbedder`, and thread-safe.

    Args:
        model: A folder, or an id on the hub (``"organisation/name"``), looked up on this machine
            only.
        download: Whether to download missing files from the hub. Nothing else opens a connection.
        revision: A branch, tag or commit on the hub; None for the main branch.
        file: The ONNX file in the folder; None means ``model.onnx`` or ``onnx/model.onnx``, else
            the only one.
        pooling: ``"mean"``, ``"cls"``, ``"max"``, ``"lasttoken"``, ``"weightedmean"``,
            ``"mean_sqrt_len_tokens"``, or several in a list; None means what the folder says, and
            it must say it.
        normalise: Whether to scale vectors to unit length; None: as modules.json says, and True
            without one.
        dimension: Truncate vectors to this length, for models that were trained for it; None keeps
            all numbers.
        query_prefix: Text before queries; None for the folder's own prompt, often none.
        document_prefix: Text before documents, likewise.
        max_tokens: Maximum number of input tokens, with special ones; None for the model's own
            limit.
        too_long: How to handle a longer text: ``"split"`` embeds it in windows and averages the
            vectors, weighted by tokens; ``"raise"`` fails it; ``"cut"`` truncates it.
        batch_size: Maximum number of texts in a batch; None for 32, or 1 for graphs with
            dynamically quantised activations, where texts of a batch affect each other's vectors:
            larger batches are faster and less exact.
        threads: Number of threads for one call; None for one per core.
        providers: Execution providers of onnxruntime, the preferred one first, such as
            ``["CUDAExecutionProvider", "CPUExecutionProvider"]`` with the package onnxruntime-gpu;
            None for the CPU. The `identity` is the same on all of them.
        token_cache: An `EmbeddingCache`, or the path of one, for token vectors of documents, which
            a `MaxSimReranker` reads: `embed` stores them as well, without further computation, in
            one byte per number.

    Raises:
        ConfigError: If a file is missing, broken or ambiguous, or an argument is invalid.
        MissingDependencyError: If the extra ``onnx`` is not installed.
        StoreError: If the cache cannot be opened.

    Source:
        Averaged windows: OpenAI Cookbook, "Embedding texts that are longer than the model's maximum
            context length".
        First numbers of a vector: Kusupati and others, Matryoshka Representation Learning,
            arXiv:2205.13147.
    """

    def __init__(
        self,
        model: PathLike,
        *,
        download: bool = False,
        revision: str | None = None,
        file: str | None = None,
        pooling: str | Sequence[str] | None = None,
        normalise: bool | None = None,
        dimension: int | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        max_tokens: int | None = None,
        too_long: TooLong = "split",
        batch_size: int | None = None,
        threads: int | None = None,
        token_cache: EmbeddingCache | PathLike | None = None,
        providers: Sequence[str] | None = None,
    ) -> None:
        folder = find_model(model, download=download, revision=revision, file=file)
        self.name = folder.name
        self._model = TextModel(
            "OnnxEmbedder",
            folder,
            file=file,
            max_tokens=max_tokens,
            threads=threads,
            providers=providers,
        )
        self.max_tokens = self._model.max_tokens
        self._recipe = settle(
            folder,
            self._model.ranks,
            pooling=pooling,
            normalise=normalise,
            dimension=dimension,
            query_prefix=query_prefix,
            document_prefix=document_prefix,
            too_long=too_long,
        )
        self.normalised = self._recipe.normalise
        self.too_long: TooLong = self._recipe.too_long
        self._prefix_ids = {"query": self._prefix("query"), "document": self._prefix("document")}
        self._rows_at_once, self._batch_dependent = self._model.rows_at_once(
            self._recipe.output, self._model.one, batch_size
        )
        self.dimension = self._dimension(dimension)
        self.token_cache: EmbeddingCache | None = None
        self._tokens: TokenVectors | None = None
        if token_cache is not None:
            self._require_tokens()
            if not isinstance(token_cache, EmbeddingCache):
                token_cache = EmbeddingCache(token_cache)
            self.token_cache = token_cache
            self._tokens = TokenVectors(self.token_cache, self.identity)

    probe = False
    """Its identity covers its files: no Document need compare a vector."""

    def __repr__(self) -> str:
        return (
            f"OnnxEmbedder({self.name!r}, dimension={self.dimension}, max_tokens={self.max_tokens})"
        )

    @property
    def identity(self) -> str:
        """Name of the model, with a hash of its files and of all settings that affect vectors.

        The location of the folder does not count. The hash is computed on first use: 15 ms for 23
        MB, a second or two for 2 GB.

        Raises:
            ConfigError: If a file has changed since the model was loaded.
        """
        return self._model.identity(
            self.name, {**asdict(self._recipe), "swayed": self._batch_dependent}
        )

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Matrix:
        """Embed texts, all or nothing.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are queries or documents.

        Returns:
            (n, dimension) float32, in the order of the texts; rows of length 1 if `normalised`.

        Raises:
            EmbeddingError: If a text cannot be embedded; the error of the first one.
        """
        checked = CheckedEmbedder(self, repr(self))
        return stack_dense(
            checked.embed_each(texts, self.dimension, input_type), checked.name, self.dimension
        )

    def embed_batches(
        self, texts: Sequence[str], input_type: InputType = "document"
    ) -> Iterator[EmbeddedBatch]:
        """Embed texts; yields batches as they finish, long texts first. A bad text fails alone."""
        stored = self._tokens if input_type == "document" else None

        def of_row(row: Row, output: Output) -> tuple[tuple[int, Vector], Matrix | None]:
            return self._recipe.of_row(row, output), (
                None if stored is None else _token_vectors(row, output)
            )

        for batch in self._computed(texts, input_type, of_row):
            results: list[Embedded] = []
            tokens: TokenMatrices = {}
            for position, rows in batch:
                if isinstance(rows, EmbeddingError):
                    results.append(rows)
                    continue
                results.append(self._recipe.of_text([row for row, _ in rows]))
                if stored is not None:
                    tokens[texts[position]] = np.concatenate(
                        [matrix for _, matrix in rows if matrix is not None]
                    )
            if stored is not None:
                stored.put(tokens)
            yield EmbeddedBatch([position for position, _ in batch], results)

    def token_embeddings(
        self, texts: Sequence[str], input_type: InputType = "document"
    ) -> list[Matrix]:
        """Return a vector for each token of each text, for late interaction.

        Without special tokens and those of a prefix, so that each row represents a piece of the
        text. MaxSim is equally good with them: .955 of XQuAD's English questions find their
        paragraph first, without them .956.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are queries or documents.

        Returns:
            n arrays of shape (tokens, full dimension), float32, rows of length 1.

        Raises:
            ConfigError: If the graph gives no vectors of tokens.
            EmbeddingError: If a text cannot be embedded; the error of the first one.
        """
        self._require_tokens()
        if self._tokens is not None and input_type == "document":
            vectors = self._tokens.get(validate_embed_texts(texts))
            new = [text for text in dict.fromkeys(texts) if text not in vectors]
            embedded = self._token_embeddings(new, input_type)
            vectors |= self._tokens.put(dict(zip(new, embedded, strict=True)))
            return [vectors[text] for text in texts]
        return self._token_embeddings(texts, input_type)

    def _token_embeddings(self, texts: Sequence[str], input_type: InputType) -> list[Matrix]:
        results: dict[int, list[Matrix] | EmbeddingError] = {}
        for batch in self._computed(texts, input_type, _token_vectors):
            results.update(batch)
        arrays = []
        for position in range(len(texts)):
            rows = results[position]
            if isinstance(rows, EmbeddingError):
                raise rows
            arrays.append(np.concatenate(rows))
        return arrays

    def _require_tokens(self) -> None:
        if not self._recipe.hidden:
            raise ConfigError(
                f"The graph of {self.name!r} gives one vector for each text and none for its"
                " tokens. Give another file."
            )

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, without special tokens, prefix and limit.

        Raises:
            ConfigError: If it is no string.
        """
        validate_string("text", text)
        return len(self._model.ids([text])[0])

    def unknown_share(self, text: str) -> float:
        """Return the share of a text's letters that the model's vocabulary lacks, from 0 to 1.

        It is high for a language that the model never learned: .66 for Chinese and
        all-MiniLM-L6-v2.
        """
        return self._model.unknown_share(text)

    def _prefix(self, input_type: InputType) -> Ids:
        """Return the tokens of a prefix, which must leave room for a text."""
        prefix = self._recipe.prefix(input_type)
        ids = self._model.ids([prefix])[0]
        if self._room(len(ids)) < 1:
            raise ConfigError(
                f"{self.name!r} reads {self.max_tokens} tokens at once; the {input_type}_prefix"
                f" {prefix!r:.60} and the {self._model.one.size} special tokens leave no room for a"
                " text. Shorten it, or raise max_tokens."
            )
        return ids

    def _room(self, prefix: int) -> int:
        return self.max_tokens - self._model.one.size - prefix

    def _dimension(self, requested: int | None) -> int:
        """Return the length of a vector, measured on one."""
        row = self._model.one.row(*self._model.ids(["a"]))
        length = len(self._recipe.of_row(row, self._model.run([row], self._recipe.output)[0])[1])
        if requested is not None and requested > length:
            raise ConfigError(
                f"dimension is {requested}; {self.name!r} gives vectors of {length} numbers. Give"
                " at most so many, or None."
            )
        return min(length, self._recipe.dimension or length)

    def _computed(
        self, texts: Sequence[str], input_type: InputType, of_row: Callable[[Row, Output], T]
    ) -> Iterator[list[tuple[int, list[T] | EmbeddingError]]]:
        """Yield finished texts batch by batch: position, and the results of its rows or an
        error.
        """

        def run(rows: Sequence[Row]) -> list[T | EmbeddingError]:
            try:
                outputs = self._model.run(rows, self._recipe.output)
            except Exception as exc:  # noqa: BLE001  any error of the runtime fails its texts
                if len(rows) > 1:  # perhaps of one of them only
                    return list(itertools.chain.from_iterable(run([row]) for row in rows))
                return [_failure(f"{self!r} failed: {sentence(exc)}", exc)]
            return [of_row(row, output) for row, output in zip(rows, outputs, strict=True)]

        texts = validate_embed_texts(texts)
        validate_choice("input_type", input_type, self._prefix_ids)
        for first in range(0, len(texts), _SORTED_AT_ONCE):
            rows = []
            lines = self._lines(texts[first : first + _SORTED_AT_ONCE], input_type)
            for position, line in enumerate(lines, first):
                if isinstance(line, EmbeddingError):
                    yield [(position, line)]
                else:
                    rows += [(position, row) for row in line]
            for batch in run_batches(rows, run, self._rows_at_once, self._model.threads):
                yield [(position, _rows_or_error(results)) for position, results in batch]

    def _lines(
        self, texts: Sequence[str], input_type: InputType
    ) -> list[list[Row] | EmbeddingError]:
        """Return the rows of each text, several for one that is too long, or an error."""
        prefix = self._recipe.prefix(input_type)
        ids = iter(self._model.ids([prefix + text for text in texts if is_embeddable(text)]))
        lines = []
        for text in texts:
            if is_embeddable(text):
                lines.append(self._rows(text, next(ids), self._prefix_ids[input_type]))
            else:
                lines.append(blank_error(text))
        return lines

    def _rows(self, text: str, ids: Ids, prefix: Ids) -> list[Row] | EmbeddingError:
        """Return the rows of a text; each begins with the prefix."""
        # Alone, a prefix may end in another token than before a text: the space of "query: " often
        # joins the next word.
        both = min(len(ids), len(prefix))
        differs = np.flatnonzero(ids[:both] != prefix[:both])
        shared = int(differs[0]) if len(differs) else both
        room = self._room(shared)
        rest = ids[shared:]
        if not len(rest):
            return _failure(
                f"The text {shown(text)} has nothing in it that {self.name!r} reads; leave it out."
            )
        if len(rest) > room and self._recipe.too_long == "raise":
            return _failure(
                f"The text {shown(text)} has {len(rest)} tokens and {self.name!r} reads {room} at"
                " once. Make smaller chunks, or say too_long='split' or 'cut'."
            )
        if self._recipe.too_long == "cut":
            rest = rest[:room]
        return [
            self._model.one.row(np.concatenate([ids[:shared], window]), prefix=shared)
            for window in windows(rest, room)
        ]


def _token_vectors(row: Row, output: Output) -> Matrix:
    return normalised(output[row.start : row.stop])


class TokenVectors:
    """Token vectors of documents on disk: a byte for each number, of the largest one in its row
    127ths.

    The scale of a row is not stored: only directions count for MaxSim.

    Args:
        cache: Where they are.
        identity: Of the model.
    """

    def __init__(self, cache: EmbeddingCache, identity: str) -> None:
        self._cache = cache
        self._space = VectorSpace(f"tokens:{identity}")

    def get(self, texts: Sequence[str]) -> TokenMatrices:
        """The vectors of those texts that have some: rows of length 1."""
        stored: Mapping[str, Any] = self._cache.get_many(self._space, texts)
        return {text: _from_codes(codes) for text, codes in stored.items()}

    def put(self, vectors: TokenMatrices) -> TokenMatrices:
        """Store vectors; returns them as `get` will. If the file cannot be written, that is a
        `CacheWarning`.
        """
        codes = {text: _codes(rows) for text, rows in vectors.items()}
        try:
            self._cache.put_many(self._space, codes)
        except StoreError as exc:
            warn_user(f"Could not store token vectors: {sentence(exc)}", CacheWarning)
        return {text: _from_codes(text_codes) for text, text_codes in codes.items()}


def _codes(rows: Matrix) -> bytes:
    """Rows in one byte per number, behind their length."""
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    scaled = rows * (127 / largest)
    codes: bytes = np.rint(scaled).astype(np.int8).tobytes()
    return struct.pack("<I", rows.shape[1]) + codes


def _from_codes(codes: bytes) -> Matrix:
    [width] = struct.unpack_from("<I", codes)
    rows = np.frombuffer(codes, np.int8, offset=4).reshape(-1, width).astype(np.float32)
    rows /= _lengths(rows)[:, None]
    return rows


def _rows_or_error(results: list[T | EmbeddingError]) -> list[T] | EmbeddingError:
    """Return the results of a text's rows, or the first error among them."""
    rows = []
    for result in results:
        if isinstance(result, EmbeddingError):
            return result
        rows.append(result)
    return rows


def _failure(message: str, cause: BaseException | None = None) -> EmbeddingError:
    error = EmbeddingError(message)
    error.__cause__ = cause
    return error


# characters of a document, of which the model knows some if it reads anything of most documents
_BEGINNING = 64
# Multiplications in one product: OpenBLAS spreads larger ones over threads, which wait longer than
# they work.
_PRODUCT = 1 << 18

TOKEN_CACHE_BYTES = 128 << 20
"""Cached token vectors of an embedder: 87,000 tokens with vectors of 384 numbers."""


class TokenEmbedder(Protocol):
    """Embedder that returns a vector for each token, such as `OnnxEmbedder`."""

    @property
    def identity(self) -> str:
        """What the vectors depend on; see `lazyrag.models.protocols.Embedder`."""
        ...

    def token_embeddings(
        self, texts: Sequence[str], input_type: InputType = "document"
    ) -> Sequence[Matrix]:
        """For each of n texts, none of them blank, an array of shape (tokens, dim), at least one
        token.
        """
        ...


def max_sim(query: Matrix, document: Matrix) -> float:
    """Sum over the query's tokens of the best cosine similarity with a token of the document.

    Args:
        query: (query tokens, dim) float32, a row for each token.
        document: (document tokens, dim) float32, at least one row.

    Returns:
        A number in [-query tokens, query tokens].

    Raises:
        ConfigError: If a shape is invalid.

    Source:
        Khattab, Zaharia: ColBERT, SIGIR 2020, doi:10.1145/3397271.3401075, section 3.3.

    Example:
        >>> max_sim(np.eye(2, dtype=np.float32), np.array([[3, 0], [0, -2]], np.float32))
        1.0
    """
    return float(max_sims(query, [document])[0])


def max_sims(query: Matrix, documents: Sequence[Matrix]) -> FloatArray:
    """Compute `max_sim` of a query with many documents; no score depends on the other documents.

    Args:
        query: (query tokens, dim) float32.
        documents: n arrays of shape (document tokens, dim) float32, at least one row in each.

    Returns:
        (n,) float64, in the order of the documents.

    Raises:
        ConfigError: If a shape is invalid.
    """
    _check("The query", query, None)
    for document in documents:
        _check("A document", document, query.shape[1])
    columns = np.ascontiguousarray(normalised(query).T)
    step = max(1, _PRODUCT // columns.size)
    sums = np.empty(len(documents))
    for number, document in enumerate(documents):
        products = [
            document[first : first + step] @ columns for first in range(0, len(document), step)
        ]
        cosines = np.concatenate(products) / _lengths(document)[:, None]
        sums[number] = np.clip(cosines.max(axis=0), -1.0, 1.0).sum(dtype=np.float64)
    return sums


def _lengths(rows: Matrix) -> Vector:
    """The rows' lengths, without a copy of them; that of a row of zeros is tiny."""
    squares: Vector = np.einsum("ij,ij->i", rows, rows)
    return np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))


class MaxSimModel:
    """Late interaction (MaxSim) with the token vectors of an embedding model: a `RerankModel`.

    The score is `max_sim` divided by the number of query tokens: a mean of cosines, in [-1, 1]. A
    document without tokens, such as a blank one, scores -1. If the embedder does not know a fifth
    of the query's letters, all documents score 0 and keep their order. Thread-safe.

    Token vectors of documents are cached in memory, least recently used first out. All models over
    one embedder share the cache. Scores do not depend on it.

    Args:
        embedder: Embedder with token vectors, such as `lazyrag.models.onnx.models.OnnxEmbedder`.
        cache_bytes: Size of a cache of its own, at least 0; 0 embeds documents in each call. None
            shares 128 MiB with other models over the embedder.

    Raises:
        ConfigError: If an argument is invalid.

    Source:
        Khattab, Zaharia: ColBERT, SIGIR 2020, doi:10.1145/3397271.3401075.
    """

    def __init__(self, embedder: TokenEmbedder, *, cache_bytes: int | None = None) -> None:
        has_tokens = callable(getattr(embedder, "token_embeddings", None))
        hint = "Of a CachedEmbedder, pass its .embedder."
        expected = "an embedder with token_embeddings, such as an OnnxEmbedder"
        require(has_tokens, "embedder", embedder, expected, hint)
        self.embedder = embedder
        if cache_bytes is None:
            self._cached = _shared_cache(embedder)
        else:
            self._cached = _TokenCache(validate_integer("cache_bytes", cache_bytes, 0))

    def __repr__(self) -> str:
        return f"MaxSimModel({self.embedder!r})"

    @property
    def identity(self) -> str:
        """That of the embedder with a prefix; "" if it has none."""
        return f"maxsim:{self.embedder.identity}" if self.embedder.identity else ""

    def __call__(
        self, query: str, documents: Sequence[str], top_n: int | None = None
    ) -> PlaceRanking:
        """Rank documents; see `RerankModel`."""
        checked_query(query)
        passages, limit = checked_documents(documents, top_n)
        if (unknown_share(self.embedder, query) or 0.0) >= UNREAD_SHARE:
            return [(position, 0.0) for position in range(len(passages))][:limit]
        try:
            [query_vectors] = self.embedder.token_embeddings([query], "query")
            vectors = self._vectors(list(dict.fromkeys(passages)))
        except EmbeddingError as exc:
            raise RetrievalError(f"{self!r} failed: {sentence(exc)}") from exc
        similarities = max_sims(query_vectors, list(vectors.values())) / len(query_vectors)
        scores = dict(zip(vectors, similarities, strict=True))
        return rank_scores((scores.get(passage, -1.0) for passage in passages), limit, repr(self))

    def _vectors(self, documents: Sequence[str]) -> TokenMatrices:
        """The token vectors of those documents that have tokens: what is kept, and the others from
        the embedder.
        """
        cached = self._cached.get(documents)
        new = [
            document
            for document in documents
            if document not in cached and self._has_tokens(document)
        ]
        embedded = {}
        if new:
            vectors = self.embedder.token_embeddings(new, "document")
            embedded = dict(zip(new, vectors, strict=True))
        self._cached.put(embedded)
        together = {**cached, **embedded}
        return {document: together[document] for document in documents if document in together}

    def _has_tokens(self, document: str) -> bool:
        """Some texts are not blank, and hold nothing that a model reads: a zero-width space, for
        example.
        """
        count = getattr(self.embedder, "count_tokens", len)
        return bool(document.strip()) and (count(document[:_BEGINNING]) > 0 or count(document) > 0)


class _TokenCache:
    """Least-recently-used cache of token vectors by text, up to a number of bytes.

    Args:
        most: So many bytes of vectors and of texts.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._rows: OrderedDict[str, Matrix] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, texts: Iterable[str]) -> TokenMatrices:
        """The cached vectors of some texts."""
        with self._lock:
            cached = {text: self._rows[text] for text in texts if text in self._rows}
            for text in cached:
                self._rows.move_to_end(text)
            return cached

    def put(self, vectors: TokenMatrices) -> None:
        """Add vectors, and evict the least recently used."""
        with self._lock:
            for text, rows in vectors.items():
                size = _size(text, rows)
                if size <= self._most and text not in self._rows:
                    self._rows[text] = rows
                    self._bytes += size
            while self._bytes > self._most:
                self._bytes -= _size(*self._rows.popitem(last=False))


# by the embedder's id while it exists: embedders may be equal, and not hashable
_shared: dict[int, _TokenCache] = {}
_sharing = threading.RLock()  # an embedder may go while it is held


def can_share(embedder: object) -> bool:
    """Whether all models over an embedder can share its vectors: weak references to it must be
    possible.
    """
    try:
        weakref.ref(embedder)
    except TypeError:
        return False
    return True


def _shared_cache(embedder: object) -> _TokenCache:
    """The vectors that all models over an embedder share."""
    if not can_share(embedder):
        return _TokenCache(TOKEN_CACHE_BYTES)
    with _sharing:
        shared = _shared.get(id(embedder))
        if shared is None:
            shared = _shared[id(embedder)] = _TokenCache(TOKEN_CACHE_BYTES)
            weakref.finalize(embedder, _shared.pop, id(embedder), None).atexit = False
        return shared


def _size(text: str, rows: Matrix) -> int:
    return rows.nbytes + 4 * len(text)  # Python takes up to 4 bytes for a letter


def _check(name: str, tokens: Matrix, dimension: int | None) -> None:
    if tokens.ndim != 2 or not len(tokens) or dimension not in {None, tokens.shape[1]}:
        allowed = "(tokens, dim)" if dimension is None else f"(tokens, {dimension})"
        raise ConfigError(
            f"{name} has the shape {tokens.shape}; give {allowed}, at least one token."
        )
