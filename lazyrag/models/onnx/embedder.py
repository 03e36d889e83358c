"""Embedding models in a folder with an ONNX file, run by onnxruntime: no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TypeVar

import numpy as np

from lazyrag.errors import ConfigError, EmbeddingError, known_names, sentence
from lazyrag.models.embedding import CheckedEmbedder, blank_error, is_blank, listed_texts, shown, stacked
from lazyrag.models.onnx.folder import find_model
from lazyrag.models.onnx.pooling import normalised
from lazyrag.models.onnx.recipe import TooLong, settle
from lazyrag.models.onnx.session import TextModel, rows_at_once
from lazyrag.models.onnx.token_rows import Ids, Output, Row, computed, windows
from lazyrag.models.protocol import EmbeddedBatch, InputType
from lazyrag.types import Matrix
from lazyrag.validation import known_arguments

T = TypeVar("T")

_SORTED_AT_ONCE = 1024  # texts whose batches are made together: enough to sort by length, and bounded memory


@known_arguments
class OnnxEmbedder:
    """A sentence-embedding model in a folder, as sentence-transformers and the Hugging Face hub lay it out.

    How vectors are made, pooling, normalising, prompts and length, is what the folder says or what the arguments say;
    nothing is guessed. A text's vector does not depend on what is embedded beside it: a cache, a restart, another order
    of files give the same. It is a `BatchEmbedder`, and several threads may use it at once.

    Args:
        model: A folder, or an id on the hub (``"organisation/name"``), which is looked up on this machine only.
        download: Whether to fetch from the hub what is not on this machine. Nothing else opens a connection.
        revision: A branch, tag or commit on the hub; None means its main branch.
        file: The ONNX file in the folder; None means ``model.onnx`` or ``onnx/model.onnx``, else the only one.
        pooling: ``"mean"``, ``"cls"``, ``"max"``, ``"lasttoken"``, ``"weightedmean"``, ``"mean_sqrt_len_tokens"``, or
            several in a list; None means what the folder says, and it must say it.
        normalise: Whether vectors are brought to length 1; None means what modules.json says, and True without one.
        dimension: Keep so many first numbers of each vector, for models that were trained for it; None keeps all.
        query_prefix: Put before queries; None means the folder's own prompt, often none.
        document_prefix: Put before documents, likewise.
        max_tokens: At most so many tokens at once, special ones included; None means the model's own limit.
        too_long: What becomes of a longer text: ``"split"`` embeds it window by window and averages the vectors,
            weighted by tokens; ``"raise"`` fails it; ``"cut"`` drops the rest.
        batch_size: At most so many texts at once. None means 32, but 1 where texts would sway each other's vectors: in
            graphs with dynamically quantised activations. Those are faster with a batch size, and less exact.
        threads: Threads that share the work of one call; None means one for each core.

    Raises:
        ConfigError: If a file is missing, broken or ambiguous, or a value is out of its range.
        MissingDependencyError: If the extra ``onnx`` is not installed.

    Source:
        Averaged windows: OpenAI Cookbook, "Embedding texts that are longer than the model's maximum context length".
        First numbers of a vector: Kusupati and others, Matryoshka Representation Learning, arXiv:2205.13147.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
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
    ) -> None:
        folder = find_model(model, download=download, revision=revision, file=file)
        self.name = folder.name
        self._model = TextModel("OnnxEmbedder", folder, file=file, max_tokens=max_tokens, threads=threads)
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
        self._prefix_ids = {"query": self._prefix("query"), "document": self._prefix("document")}
        sways = self._model.sways(self._recipe.output, self._model.one)
        self._rows_at_once = rows_at_once(batch_size, sways=sways)
        self._swayed = sways and self._rows_at_once > 1
        self.dimension = self._dimension(dimension)

    def __repr__(self) -> str:
        return f"OnnxEmbedder({self.name!r}, dimension={self.dimension}, max_tokens={self.max_tokens})"

    @property
    def too_long(self) -> TooLong:
        """What becomes of a text that is longer than ``max_tokens``."""
        return self._recipe.too_long

    @cached_property
    def identity(self) -> str:
        """The model's name, and a hash of its files and of all settings that vectors depend on.

        Where the folder lies does not count. The hash is made when it is first asked for, from the files as they lie
        on the disk: 15 ms for 23 MB, a second or two for 2 GB.

        Raises:
            ConfigError: If a file has changed since it was loaded.
        """
        settings = {**asdict(self._recipe), **self._model.settings, "swayed": self._swayed}
        return f"onnx:{self.name}:{self._model.contents.digest(settings)}"

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Matrix:
        """Embed texts, all or nothing.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are questions, or what is searched.

        Returns:
            (n, dimension) float32, in the order of the texts; rows of length 1 if `normalised`.

        Raises:
            EmbeddingError: If a text has no vector; the error of the first one.
        """
        asked = CheckedEmbedder(self, repr(self))
        return stacked(asked.embed_each(texts, self.dimension, input_type), asked.name, self.dimension)

    def embed_batches(self, texts: Sequence[str], input_type: InputType = "document") -> Iterator[EmbeddedBatch]:
        """Embed texts; each batch when it is done, long texts first. One bad text fails itself only."""
        for batch in self._computed(texts, input_type, self._recipe.of_row):
            results = [rows if isinstance(rows, EmbeddingError) else self._recipe.of_text(rows) for _, rows in batch]
            yield EmbeddedBatch([place for place, _ in batch], results)

    def token_embeddings(self, texts: Sequence[str], input_type: InputType = "document") -> list[Matrix]:
        """A vector for each token of each text, for late interaction.

        Special tokens and those of a prefix are left out, so that each row stands for a piece of the text. With them
        MaxSim is neither better nor worse: .955 of XQuAD's English questions find their paragraph first, without .956.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are questions, or what is searched.

        Returns:
            n arrays of shape (tokens, full dimension), float32, rows of length 1.

        Raises:
            ConfigError: If the graph gives no vectors of tokens.
            EmbeddingError: If a text has none; the error of the first one.
        """
        if not self._recipe.hidden:
            msg = (
                f"The graph of {self.name!r} gives one vector for each text and none for its tokens. Give another file."
            )
            raise ConfigError(msg)
        found: dict[int, list[Matrix] | EmbeddingError] = {}
        for batch in self._computed(texts, input_type, _token_vectors):
            found.update(batch)
        arrays = []
        for place in range(len(texts)):
            rows = found[place]
            if isinstance(rows, EmbeddingError):
                raise rows
            arrays.append(np.concatenate(rows))
        return arrays

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has for this model: without special ones, without a prefix, without a limit.

        Raises:
            ConfigError: If it is no text.
        """
        if not isinstance(text, str):
            raise ConfigError(f"text is {shown(text)}; give a text.")
        return len(self._model.ids([text])[0])

    def _prefix(self, input_type: InputType) -> Ids:
        """The tokens of a prefix, which must leave room for a text."""
        prefix = self._recipe.prefix(input_type)
        ids = self._model.ids([prefix])[0]
        if self._room(len(ids)) < 1:
            msg = (
                f"{self.name!r} reads {self.max_tokens} tokens at once; the {input_type}_prefix {prefix!r:.60} and the "
                f"{self._model.one.size} special tokens leave no room for a text. Shorten it, or raise max_tokens."
            )
            raise ConfigError(msg)
        return ids

    def _room(self, prefix: int) -> int:
        return self.max_tokens - self._model.one.size - prefix

    def _dimension(self, wanted: int | None) -> int:
        """The length of a vector, seen on one."""
        row = self._model.one.row(*self._model.ids(["a"]))
        whole = len(self._recipe.of_row(row, self._model.run([row], self._recipe.output)[0])[1])
        if wanted is not None and wanted > whole:
            msg = (
                f"dimension is {wanted}; {self.name!r} gives vectors of {whole} numbers. Give at most so many, or None."
            )
            raise ConfigError(msg)
        return min(whole, self._recipe.dimension or whole)

    def _computed(
        self, texts: Sequence[str], input_type: InputType, of_row: Callable[[Row, Output], T]
    ) -> Iterator[list[tuple[int, list[T] | EmbeddingError]]]:
        """Batch by batch the texts that are done, by place: what was made of the rows of each, or why it has none."""

        def run(rows: Sequence[Row]) -> list[T | EmbeddingError]:
            try:
                outputs = self._model.run(rows, self._recipe.output)
            except Exception as exc:  # noqa: BLE001  whatever the runtime raises is what becomes of a text
                if len(rows) > 1:  # perhaps of one of them only
                    return [one for row in rows for one in run([row])]
                return [_failure(f"{self!r} failed: {sentence(exc)}", exc)]
            return [of_row(row, output) for row, output in zip(rows, outputs, strict=True)]

        texts = listed_texts(texts)
        if input_type not in self._prefix_ids:
            raise ConfigError(f"input_type is {input_type!r}. {known_names(str(input_type), self._prefix_ids)}")
        for first in range(0, len(texts), _SORTED_AT_ONCE):
            rows = []
            for place, line in enumerate(self._lines(texts[first : first + _SORTED_AT_ONCE], input_type), first):
                if isinstance(line, EmbeddingError):
                    yield [(place, line)]
                else:
                    rows += [(place, row) for row in line]
            for batch in computed(rows, run, self._rows_at_once):
                yield [(place, _whole(results)) for place, results in batch]

    def _lines(self, texts: Sequence[str], input_type: InputType) -> list[list[Row] | EmbeddingError]:
        """What the model reads for each text: one row, or several of a text that is longer, or why it cannot."""
        prefix = self._recipe.prefix(input_type)
        good = [not is_blank(text) for text in texts]
        ids = iter(self._model.ids([prefix + text for text, is_good in zip(texts, good, strict=True) if is_good]))
        return [
            self._rows(text, next(ids), self._prefix_ids[input_type]) if is_good else blank_error(text)
            for text, is_good in zip(texts, good, strict=True)
        ]

    def _rows(self, text: str, ids: Ids, prefix: Ids) -> list[Row] | EmbeddingError:
        """The rows of one text; each of them begins with the prefix."""
        # Alone, a prefix may end in another token than before a text: the space of "query: " often joins the next word.
        both = min(len(ids), len(prefix))
        differs = np.flatnonzero(ids[:both] != prefix[:both])
        own = int(differs[0]) if len(differs) else both
        room, rest = self._room(own), ids[own:]
        if not len(rest):
            return _failure(f"The text {shown(text)} has nothing in it that {self.name!r} reads; leave it out.")
        if len(rest) > room and self._recipe.too_long == "raise":
            return _failure(
                f"The text {shown(text)} has {len(rest)} tokens and {self.name!r} reads {room} at once. Make smaller "
                "chunks, or say too_long='split' or 'cut'."
            )
        if self._recipe.too_long == "cut":
            rest = rest[:room]
        return [self._model.one.row(np.concatenate([ids[:own], one]), prefix=own) for one in windows(rest, room)]


def _token_vectors(row: Row, output: Output) -> Matrix:
    return normalised(output[row.start : row.stop])


def _whole(results: list[T | EmbeddingError]) -> list[T] | EmbeddingError:
    """The results of a text's rows, or the first error among them."""
    errors = (one for one in results if isinstance(one, EmbeddingError))
    return next(errors, None) or [one for one in results if not isinstance(one, EmbeddingError)]


def _failure(message: str, cause: BaseException | None = None) -> EmbeddingError:
    error = EmbeddingError(message)
    error.__cause__ = cause
    return error
