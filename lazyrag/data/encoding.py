"""Values as JSON: one encoder for all value classes, and errors with their way out in a field of
its own.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.data.result import RetrievalResult
from lazyrag.types import JsonObject

# First words of the sentences with which errors of this package name the way out.
_REMEDIES = frozenset(
    "Accept Add Allowed Ask Available Build Call Change Check Choose Close Compare Copy Correct"
    " Create Define Delete Did Do Drop End Export Fetch Fix Flatten For Free Give If Implement"
    " Import Index Install Join Keep Known Leave Let Limit List Load Look Make Move Name Omit Open"
    " Or Pass Put Raise Read Redefine Remove Rename Repair Repeat Replace Restore Retrieve Retry"
    " Run Save Say Scale Search See Send Set Shorten Split Try Unpack Unset Use Wait Write".split()
)
_SENTENCE_END = re.compile(r"""(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)\s+(?=(\w+))""")


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error for programs and for people.

    Args:
        type: Name of its class.
        detail: What is wrong.
        remedy: The way out; "" if the message names none.

    Example:
        >>> ErrorInfo.of(ValueError("topk must be an integer >= 1; got 0. Pass topk=5.")).remedy
        'Pass topk=5.'
    """

    type: str
    detail: str
    remedy: str = ""

    @classmethod
    def of(cls, error: BaseException) -> ErrorInfo:
        """Describe an exception."""
        return cls.from_message(type(error).__name__, str(error))

    @classmethod
    def from_message(cls, kind: str, message: str) -> ErrorInfo:
        """Split a message into what is wrong and the sentences with the way out, which come last.

        Args:
            kind: Name of the error's class.
            message: The message.
        """
        for end in _SENTENCE_END.finditer(message):
            if end[1] in _REMEDIES:
                return cls(kind, message[: end.start()], message[end.end() :])
        return cls(kind, message)

    def __str__(self) -> str:
        return f"{self.detail} {self.remedy}".strip()


def to_dict(value: Any) -> Any:
    """Convert a value, or a collection of values, to JSON types.

    A dataclass becomes a dict of its fields, and so does a named tuple. An error becomes the fields
    of `ErrorInfo`, a `RetrievalResult` its hits and metadata, a node its text, location and score.
    A class with a `to_dict` decides itself. Arrays become lists, floats keep their exact value, nan
    and infinity become None, dates ISO text, functions their names; anything else becomes its text.

    Example:
        >>> from lazyrag import Citation
        >>> to_dict(Citation(1, "tea.txt", "", 3, "Water of 80 degrees"))["chunk_id"]
        3
    """
    for kinds, encode in _ENCODERS:
        if isinstance(value, kinds):
            return encode(value)
    # of a value class, an array or number of numpy, a named tuple
    for method in ("to_dict", "tolist", "_asdict"):
        if hasattr(value, method):
            return to_dict(getattr(value, method)())
    if dataclasses.is_dataclass(value):
        return {
            field.name: to_dict(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.repr
        }
    if isinstance(value, (list, tuple)):
        return [to_dict(element) for element in value]
    text = str(value)
    is_bare = callable(value) or " at 0x" in text  # whose text is other in each run
    return getattr(value, "__name__", type(value).__name__) if is_bare else text


def _node_dict(node: DocNode) -> JsonObject:
    names = (
        "uid",
        "group",
        "document_id",
        "path",
        "number",
        "text",
        "score",
        "span",
        "location",
        "hidden_text",
        "merged_from",
    )
    encoded = {
        name: to_dict(getattr(node, name)) for name in (*names, "metadata", "global_metadata")
    }
    return (
        encoded if isinstance(node.content, str) else encoded | {"content": to_dict(node.content)}
    )


_ENCODERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (enum.Enum, lambda value: to_dict(value.value)),
    ((bool, int, type(None)), lambda value: value),
    ((str, type), str),
    (float, lambda value: float(value) if math.isfinite(value) else None),
    (Mapping, lambda value: {str(name): to_dict(member) for name, member in value.items()}),
    ((set, frozenset), lambda value: sorted(map(to_dict, value), key=repr)),
    (DocNode, _node_dict),
    (
        RetrievalResult,
        lambda value: {
            "hits": [to_dict(hit) for hit in value],
            "metadata": to_dict(value.metadata),
        },
    ),
    (BaseException, lambda value: to_dict(ErrorInfo.of(value))),
    ((dt.date, dt.time), lambda value: value.isoformat()),
)
