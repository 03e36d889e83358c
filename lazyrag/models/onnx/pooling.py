"""From the vectors of a text's tokens to one vector: which way a model's folder names, and the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyrag.errors import ConfigError, known_names
from lazyrag.models.onnx.files import ModelFolder
from lazyrag.types import Matrix, Vector

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

_SMALLEST = 1e-12  # a shorter vector is left as it is: torch.nn.functional.normalize does so too


@dataclass(frozen=True, slots=True)
class Steps:
    """What becomes of a text's token vectors.

    Args:
        poolings: Names from `POOLINGS`, concatenated in this order; () where the folder does not say.
        normalise: Whether the result is brought to length 1; None where the folder does not say.
        with_prefix: Whether the tokens of a prefix, and the special ones before it, take part.
        others: Steps that only the graph itself can take: the classes of the modules.
    """

    poolings: tuple[str, ...] = ()
    normalise: bool | None = None
    with_prefix: bool = True
    others: tuple[str, ...] = ()


def read_steps(folder: ModelFolder) -> Steps:
    """The steps that modules.json and the pooling's config.json name.

    Raises:
        ConfigError: If a file is broken, or a pooling unknown.
    """
    modules = folder.modules()
    if modules is None:  # some exports keep the pooling's folder only
        return _pooled(folder, "1_Pooling")
    # A module is known by its class alone: the packages around it have moved from release to release.
    by_class = {str(module.get("type")).rpartition(".")[2]: str(module.get("path") or "") for module in modules}
    steps = _pooled(folder, by_class["Pooling"]) if "Pooling" in by_class else Steps()
    known = {"Transformer", "Pooling", "Normalize", "Dropout"}  # dropout is for training
    return Steps(
        steps.poolings,
        "Normalize" in by_class,
        steps.with_prefix,
        tuple(name for name in by_class if name not in known),
    )


def checked_poolings(what: str, names: Any) -> tuple[str, ...]:
    """Poolings by name: one, or several in a list.

    Raises:
        ConfigError: If one is unknown.

    Example:
        >>> checked_poolings("pooling", "mean"), checked_poolings("pooling", ["cls", "max"])
        (('mean',), ('cls', 'max'))
    """
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, (list, tuple)) or not listed:
        raise ConfigError(f"{what} is {names!r}; give one or several of {', '.join(POOLINGS)}.")
    for name in listed:
        if name not in POOLINGS:
            raise ConfigError(f"{what} is {names!r}. {known_names(str(name), POOLINGS)}")
    return tuple(listed)


def pooled(hidden: Matrix, poolings: Sequence[str], start: int = 0) -> Vector:
    """One vector for a text from those of its tokens.

    Args:
        hidden: (tokens, dim) float32, without padding.
        poolings: Names from `POOLINGS`; several are concatenated.
        start: The first token that takes part, below their number.

    Returns:
        (dim x number of poolings,) float32.

    Source:
        sentence-transformers, Pooling; weightedmean: Muennighoff, SGPT, arXiv:2202.08904, section 3.1.

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


def _pooled(folder: ModelFolder, path: str) -> Steps:
    name = f"{path}/config.json"
    config = folder.described(name)
    if not config:
        return Steps()
    named = config.get("pooling_mode") or [mode for key, mode in _OLDER_NAMES.items() if config.get(key) is True]
    poolings = checked_poolings(f"The pooling in {folder.path / name}", named or "mean")
    return Steps(poolings, with_prefix=config.get("include_prompt", True) is not False)


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
        result = tokens.sum(axis=0) / np.float32(len(tokens) if pooling == "mean" else len(tokens) ** 0.5)
    return result
