"""How an embedder makes vectors: what its model's folder says and what its user says, settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from lazyrag.errors import ConfigError, known_names
from lazyrag.models.onnx.files import ModelFolder
from lazyrag.models.onnx.pooling import POOLINGS, Steps, checked_poolings, normalised, pooled, read_steps
from lazyrag.models.onnx.token_rows import Output, Row
from lazyrag.models.protocol import InputType
from lazyrag.types import Vector
from lazyrag.validation import whole_number, yes_or_no

TooLong = Literal["split", "raise", "cut"]

_READY = "sentence_embedding"
_HIDDEN = ("last_hidden_state", "token_embeddings")


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a vector depends on beside the files of its model.

    Args:
        output: Which of the graph's outputs.
        hidden: Whether that has a vector for each token, or one for each text.
        poolings: How token vectors become one, by name; () where the graph has done it.
        normalise: Whether vectors are brought to length 1.
        with_prefix: Whether the tokens of a prefix are pooled.
        dimension: How many first numbers are kept; None keeps all.
        query_prefix: Put before queries.
        document_prefix: Put before documents.
        too_long: What becomes of a text that is longer than the model reads.
    """

    output: str
    hidden: bool
    poolings: tuple[str, ...]
    normalise: bool
    with_prefix: bool
    dimension: int | None
    query_prefix: str
    document_prefix: str
    too_long: TooLong

    def prefix(self, input_type: InputType) -> str:
        """What is put before a text of this type."""
        return self.query_prefix if input_type == "query" else self.document_prefix

    def of_row(self, row: Row, output: Output) -> tuple[int, Vector]:
        """How many tokens of its text a row has, and its vector, from what the graph says: (tokens, dim), or (dim,)."""
        first = row.start if row.prefixed and not self.with_prefix else 0
        vector = pooled(output, self.poolings, first) if self.hidden else output
        return row.stop - row.start, normalised(vector) if self.normalise else vector

    def of_text(self, rows: Sequence[tuple[int, Vector]]) -> Vector:
        """The vector of a text from those of its windows: their average, weighted by their numbers of tokens.

        Source:
            OpenAI Cookbook, "Embedding texts that are longer than the model's maximum context length".
        """
        weights, vectors = zip(*rows, strict=True)
        whole = vectors[0] if len(rows) == 1 else np.average(vectors, axis=0, weights=weights).astype(np.float32)
        kept: Vector = whole[: self.dimension]
        return normalised(kept) if self.normalise else kept


def settle(
    folder: ModelFolder,
    ranks: Mapping[str, int],
    *,
    pooling: str | Sequence[str] | None = None,
    normalise: bool | None = None,
    dimension: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    too_long: TooLong = "split",
) -> Recipe:
    """One recipe from what the folder, the graph and the user say.

    Args:
        folder: Where the model lies.
        ranks: How many axes each of the graph's outputs has.
        pooling: This and the rest: see `lazyrag.models.onnx.OnnxEmbedder`. None leaves it to the folder.
        normalise: See there.
        dimension: See there.
        query_prefix: See there.
        document_prefix: See there.
        too_long: See there.

    Raises:
        ConfigError: If nobody says how to pool, or what they say cannot be done.
    """
    if too_long not in get_args(TooLong):
        raise ConfigError(f"too_long is {too_long!r}. {known_names(str(too_long), get_args(TooLong))}")
    for name, prefix in (("query_prefix", query_prefix), ("document_prefix", document_prefix)):
        if not isinstance(prefix, (str, type(None))):
            raise ConfigError(f"{name} is {prefix!r:.80}; give a text, or None for the model's own.")
    steps = read_steps(folder)
    poolings = steps.poolings if pooling is None else checked_poolings("pooling", pooling)
    output = _output(folder, ranks, asked=pooling is not None)
    hidden = ranks[output] == 3
    if hidden:
        _check_pooled(folder, steps, poolings)
    return Recipe(
        output=output,
        hidden=hidden,
        poolings=poolings if hidden else (),
        normalise=steps.normalise is not False if normalise is None else yes_or_no("normalise", normalise),
        with_prefix=steps.with_prefix,
        dimension=folder.dimension if dimension is None else whole_number("dimension", dimension, 1),
        query_prefix=folder.prefix("query") if query_prefix is None else query_prefix,
        document_prefix=folder.prefix("document") if document_prefix is None else document_prefix,
        too_long=too_long,
    )


def _output(folder: ModelFolder, ranks: Mapping[str, int], *, asked: bool) -> str:
    """The output to use: what is pooled already, unless a pooling was asked for, else the tokens'."""
    hidden = [name for name in (*_HIDDEN, *ranks) if ranks.get(name) == 3]
    if ranks.get(_READY) == 2 and not (asked and hidden):
        return _READY
    if hidden:
        return hidden[0]
    if len(ranks) == 1 and [*ranks.values()] == [2]:
        return next(iter(ranks))
    shapes = ", ".join(f"{name} with {rank} axes" for name, rank in ranks.items())
    msg = (
        f"The graph of {folder.path} gives {shapes}; an embedding model gives {_HIDDEN[0]} with 3 axes (batch, tokens, "
        f"dimension), or {_READY} with 2. Is it a cross-encoder, or a model that writes?"
    )
    raise ConfigError(msg)


def _check_pooled(folder: ModelFolder, steps: Steps, poolings: tuple[str, ...]) -> None:
    if steps.others:
        msg = (
            f"{folder.path / 'modules.json'} has the steps {', '.join(steps.others)}, which the graph does not take. "
            f"Export the model with them, so that it gives {_READY!r}, or use SentenceTransformerEmbedder."
        )
        raise ConfigError(msg)
    if not poolings:
        # A wrong guess works, only worse: nobody would notice.
        msg = (
            f"{folder.path} does not say how token vectors become one: it has no modules.json. Fetch that and "
            f"1_Pooling/config.json from where the model comes from, or pass pooling=..., one of {', '.join(POOLINGS)}."
        )
        raise ConfigError(msg)
