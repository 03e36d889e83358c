"""From the outputs of a model to one vector of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lazyrag.errors import ConfigError
from lazyrag.models.onnx.folder import ModelFolder
from lazyrag.models.onnx.session import Output, Row, TooLong
from lazyrag.models.protocols import InputType
from lazyrag.types import Matrix, Vector
from lazyrag.validation import require, validate_boolean, validate_choice, validate_integer

# By the name in older configurations, in the order in which several of them are concatenated.
_OLDER_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


POOLINGS = tuple(_OLDER_NAMES.values())
_SUPPORTED_MODULES = {
    "Transformer",
    "Pooling",
    "Normalize",
    "Dropout",
}  # modules that need no step here; dropout is for training


_SMALLEST = 1e-12  # a shorter vector is left as it is: torch.nn.functional.normalize does so too


@dataclass(frozen=True, slots=True)
class PoolingSettings:
    """How a model folder turns token vectors into one vector.

    Args:
        poolings: Names from `POOLINGS`, concatenated in this order; () if the folder does not say.
        normalise: Whether the result is brought to length 1; None if the folder does not say.
        with_prefix: Whether the tokens of a prefix, and the special ones before it, are pooled.
        others: Classes of modules that only the graph itself can compute.
    """

    poolings: tuple[str, ...] = ()
    normalise: bool | None = None
    with_prefix: bool = True
    others: tuple[str, ...] = ()


def read_pooling_settings(folder: ModelFolder) -> PoolingSettings:
    """The steps that modules.json and the pooling's config.json name.

    Raises:
        ConfigError: If a file is broken, or a pooling unknown.
    """
    modules = folder.modules()
    if modules is None:  # some exports keep the pooling's folder only
        return _pooled(folder, "1_Pooling")
    # A module is known by its class alone: the packages around it have moved from release to
    # release.
    by_class = {
        str(module.get("type")).rpartition(".")[2]: str(module.get("path") or "")
        for module in modules
    }
    steps = _pooled(folder, by_class["Pooling"]) if "Pooling" in by_class else PoolingSettings()
    others = tuple(name for name in by_class if name not in _SUPPORTED_MODULES)
    return replace(steps, normalise="Normalize" in by_class, others=others)


def checked_poolings(option: str, names: Any) -> tuple[str, ...]:
    """Poolings by name: one, or several in a list.

    Raises:
        ConfigError: If one is unknown.

    Example:
        >>> checked_poolings("pooling", "mean"), checked_poolings("pooling", ["cls", "max"])
        (('mean',), ('cls', 'max'))
    """
    listed = [names] if isinstance(names, str) else names
    require(
        isinstance(listed, (list, tuple)) and len(listed) > 0,
        option,
        names,
        f"one or several of {POOLINGS}",
    )
    return tuple(validate_choice(option, name, POOLINGS) for name in listed)


def pooled(hidden: Matrix, poolings: Sequence[str], start: int = 0) -> Vector:
    """One vector for a text from those of its tokens.

    Args:
        hidden: (tokens, dim) float32, without padding.
        poolings: Names from `POOLINGS`; several are concatenated.
        start: The first token that takes part, below their number.

    Returns:
        (dim x number of poolings,) float32.

    Source:
        sentence-transformers, Pooling; weightedmean: Muennighoff, SGPT, arXiv:2202.08904, section
        3.1.

    Example:
        >>> pooled(np.array([[1, 2], [3, 6]], np.float32), ["mean", "max"])
        array([2., 4., 3., 6.], dtype=float32)
    """
    return np.concatenate([_pool(hidden, start, name) for name in poolings])


def normalised(vectors: Matrix) -> Matrix:
    """Vectors brought to length 1; one without length stays as it is.

    Args:
        vectors: (..., dim) float32.

    Example:
        >>> normalised(np.array([[3, 4], [0, 0]], np.float32))
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Matrix = vectors / np.maximum(lengths, np.float32(_SMALLEST))
    return scaled


def _pooled(folder: ModelFolder, path: str) -> PoolingSettings:
    name = f"{path}/config.json"
    config = folder.read_json_object(name)
    if not config:
        return PoolingSettings()
    named = config.get("pooling_mode") or [
        mode for key, mode in _OLDER_NAMES.items() if config.get(key) is True
    ]
    poolings = checked_poolings(f"pooling in {folder.path / name}", named or "mean")
    return PoolingSettings(poolings, with_prefix=config.get("include_prompt", True) is not False)


def _pool(hidden: Matrix, start: int, pooling: str) -> Vector:
    tokens = hidden[start:]
    result: Vector
    if pooling == "cls":
        result = tokens[0]
    elif pooling == "lasttoken":
        result = tokens[-1]
    elif pooling == "max":
        result = tokens.max(axis=0)
    elif pooling == "weightedmean":  # later tokens of a decoder have seen more of the text
        positions = np.arange(start + 1, len(hidden) + 1, dtype=np.float32)
        result = positions @ tokens / positions.sum()
    else:
        result = tokens.sum(axis=0) / np.float32(
            len(tokens) if pooling == "mean" else len(tokens) ** 0.5
        )
    return result


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
        """How many tokens of its text a row has, and its vector, from what the graph says: (tokens,
        dim), or (dim,).
        """
        first = row.start if row.prefixed and not self.with_prefix else 0
        vector = pooled(output, self.poolings, first) if self.hidden else output
        return row.stop - row.start, normalised(vector) if self.normalise else vector

    def of_text(self, rows: Sequence[tuple[int, Vector]]) -> Vector:
        """The vector of a text from those of its windows: their average, weighted by their numbers
        of tokens.

        Source:
            OpenAI Cookbook, "Embedding texts that are longer than the model's maximum context
            length".
        """
        weights, vectors = zip(*rows, strict=True)
        average = (
            vectors[0]
            if len(rows) == 1
            else np.average(vectors, axis=0, weights=weights).astype(np.float32)
        )
        truncated: Vector = average[: self.dimension]
        return normalised(truncated) if self.normalise else truncated


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
        pooling: This and the rest: see `lazyrag.models.onnx.OnnxEmbedder`. None leaves it to the
            folder.
        normalise: See there.
        dimension: See there.
        query_prefix: See there.
        document_prefix: See there.
        too_long: See there.

    Raises:
        ConfigError: If nobody says how to pool, or what they say cannot be done.
    """
    validate_choice("too_long", too_long, TooLong)
    for name, prefix in (("query_prefix", query_prefix), ("document_prefix", document_prefix)):
        require(isinstance(prefix, (str, type(None))), name, prefix, "a string or None")
    steps = read_pooling_settings(folder)
    poolings = steps.poolings if pooling is None else checked_poolings("pooling", pooling)
    output = _output(folder, ranks, needs_tokens=pooling is not None)
    hidden = ranks[output] == 3
    if hidden:
        _check_pooled(folder, steps, poolings)
    return Recipe(
        output=output,
        hidden=hidden,
        poolings=poolings if hidden else (),
        normalise=(
            steps.normalise is not False
            if normalise is None
            else validate_boolean("normalise", normalise)
        ),
        with_prefix=steps.with_prefix,
        dimension=(
            folder.dimension if dimension is None else validate_integer("dimension", dimension, 1)
        ),
        query_prefix=folder.prefix("query") if query_prefix is None else query_prefix,
        document_prefix=folder.prefix("document") if document_prefix is None else document_prefix,
        too_long=too_long,
    )


def _output(folder: ModelFolder, ranks: Mapping[str, int], *, needs_tokens: bool) -> str:
    """The output to use: what is pooled already, unless a pooling was asked for, else the
    tokens'.
    """
    hidden = [name for name in (*_HIDDEN, *ranks) if ranks.get(name) == 3]
    if ranks.get(_READY) == 2 and not (needs_tokens and hidden):
        return _READY
    if hidden:
        return hidden[0]
    if len(ranks) == 1 and [*ranks.values()] == [2]:
        return next(iter(ranks))
    shapes = ", ".join(f"{name} with {rank} axes" for name, rank in ranks.items())
    raise ConfigError(
        f"The graph of {folder.path} gives {shapes}; an embedding model gives {_HIDDEN[0]} with 3"
        f" axes (batch, tokens, dimension), or {_READY} with 2. Is it a cross-encoder, or a model"
        " that writes?"
    )


def _check_pooled(folder: ModelFolder, steps: PoolingSettings, poolings: tuple[str, ...]) -> None:
    if steps.others:
        raise ConfigError(
            f"{folder.path / 'modules.json'} has the steps {', '.join(steps.others)}, which the"
            f" graph does not take. Export the model with them, so that it gives {_READY!r}, or use"
            " SentenceTransformerEmbedder."
        )
    if not poolings:
        # A wrong guess works, only worse: nobody would notice.
        raise ConfigError(
            f"{folder.path} does not say how token vectors become one: it has no modules.json."
            " Fetch that and 1_Pooling/config.json from where the model comes from, or pass"
            f" pooling=..., one of {', '.join(POOLINGS)}."
        )
