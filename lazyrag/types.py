"""Types that several packages share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    import datetime as dt
    import os
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray


PathLike: TypeAlias = "str | os.PathLike[str]"
"""The path of a file or folder."""
InferFilters: TypeAlias = "bool | Sequence[str]"
"""Whether values are inferred from a question; or which: see `Document.search`."""
DayLike: TypeAlias = "dt.date | str | None"
"""A day, as a date or its ISO text; None for no day."""
Parts: TypeAlias = Literal["auto", "off"]
"""Whether the parts of a question are searched one by one."""


class Closable:
    """Base of objects that a ``with`` block closes."""

    def close(self) -> None:
        """Close files and connections. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Vector: TypeAlias = "NDArray[np.float32]"
"""One dense embedding: shape (dim,), float32."""

Matrix: TypeAlias = "NDArray[np.float32]"
"""Dense embeddings, one per row: shape (n, dim), float32."""

FloatArray: TypeAlias = "NDArray[np.float64]"
"""Scores and other numbers that are calculated with in double precision."""

Float32Array: TypeAlias = "NDArray[np.float32]"
"""Scores and weights in single precision."""

Int32Array: TypeAlias = "NDArray[np.int32]"
"""Numbers of rows and of terms."""

Int64Array: TypeAlias = "NDArray[np.int64]"
"""Numbers of builds, offsets and other large integers."""

UInt64Array: TypeAlias = "NDArray[np.uint64]"
"""Hashes, and dimensions of sparse vectors."""

AnyFloatArray: TypeAlias = "NDArray[np.floating]"
"""Numbers in single or double precision."""

ByteArray: TypeAlias = "NDArray[np.uint8]"
"""Encoded texts, and small numbers."""

BoolArray: TypeAlias = "NDArray[np.bool_]"
"""For each of several things, whether it is so."""

AnyIntArray: TypeAlias = "NDArray[np.integer[Any]]"
"""Integers of any size."""

AnyArray: TypeAlias = "NDArray[Any]"
"""An array of any kind of numbers."""

KeyArray: TypeAlias = "NDArray[np.bytes_]"
"""Keys of rows, encoded."""

Int8Array: TypeAlias = "NDArray[np.int8]"
"""Codes of vectors."""

UInt32Array: TypeAlias = "NDArray[np.uint32]"
"""Sketches of texts, and places in lists of weights."""

IndexArray: TypeAlias = "NDArray[np.intp]"
"""Places in another array."""

SparseVector: TypeAlias = "dict[int, float]"
"""One sparse embedding: dimensions, from 0 to 2**64 - 1, to weights: float32 numbers, finite and
not 0."""

Embedding: TypeAlias = "Vector | SparseVector"
"""One embedding of either kind."""

Embeddings: TypeAlias = "Matrix | Sequence[SparseVector]"
"""Embeddings of one kind."""

SPARSE: Final = -1
"""Stands where the length of dense vectors stands, for sparse ones: they have none."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object: the body of a request or a response, or a part of one."""

JsonMapping: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""

Metadata: TypeAlias = Mapping[str, Any]
"""Names to values; what filters read is checked against declared fields, the rest is free."""

Keywords: TypeAlias = Mapping[str, Any]
"""Keyword arguments by name."""

AnyCallable: TypeAlias = Callable[..., Any]
"""A function of any arguments."""
FunctionT = TypeVar("FunctionT", bound=AnyCallable)
"""The type of a function that a decorator returns."""

Headers: TypeAlias = Mapping[str, str]
"""Headers of an HTTP request or response by name."""

PathReasons: TypeAlias = tuple[tuple[str, str], ...]
"""Paths of files, each with a reason."""

Scalar: TypeAlias = "str | int | float | bool"
"""One value of a filterable field, checked."""

FieldValue: TypeAlias = "Scalar | tuple[Scalar, ...] | None"
"""What a filterable field holds; a tuple for ARRAY, None where it is missing."""

Fields: TypeAlias = Mapping[str, FieldValue]
"""The filterable fields of one node, checked against the schema."""

Ranking: TypeAlias = "list[tuple[str, float]]"
"""Uids (or a store's keys) with their scores, best first."""

PlaceRanking: TypeAlias = "list[tuple[int, float]]"
"""Places in a list of texts, from 0, with scores, best first: what a rerank model returns."""

Metric: TypeAlias = Literal["cosine", "ip", "l2"]
"""How close two vectors are: cosine in [-1, 1], inner product, 1 / (1 + distance) for L2. Higher is
closer."""

State: TypeAlias = Literal[
    "WAITING", "WORKING", "SUCCESS", "FAILED", "CANCELED", "DELETING", "DELETED"
]
"""State of a job or a document. Jobs that delete documents are DELETING while they run, and DELETED
at the end."""
