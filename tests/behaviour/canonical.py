"""Canonical JSON for golden comparisons."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lazyrag import DocNode, Document

VOLATILE = ("creation_date", "last_accessed_date")
"""Metadata that no copy of a file keeps."""


def as_json(value: Any) -> str:
    """One line, keys in order, every language's letters as they are."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(texts: Iterable[str]) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of lines."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def number(score: float | None, decimals: int | None) -> str | None:
    """A score as text: rounded, or with twelve digits, as the last bits of a logarithm depend on
    the C library.
    """
    if score is None:
        return None
    return f"{score:.12g}" if decimals is None else repr(round(score, decimals) + 0.0)


def plain(value: Any, decimals: int | None = None) -> Any:
    """What JSON can hold, without times and days that no two runs share."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return number(value, decimals)
    if isinstance(value, DocNode):
        return node(value, decimals)
    if isinstance(value, Mapping):
        return {
            str(key): "*" if key in VOLATILE else plain(item, decimals)
            for key, item in value.items()
            if key != "seconds"
        }
    if isinstance(value, Sequence):
        return [plain(item, decimals) for item in value]
    return repr(value)


def node(found: DocNode, decimals: int | None = None) -> list[Any]:
    """A hit: uid, score, and the uids that it stands for where there are any."""
    row = [found.uid, number(found.score, decimals)]
    return [*row, list(found.merged_from), found.text] if found.merged_from else row


def result(found: Any, decimals: int | None = None) -> str:
    """Whatever a retriever returned."""
    return as_json(plain(found, decimals))


def brief(found: Any, decimals: int | None = None) -> Any:
    """The same for people: uids and texts are cut."""
    if isinstance(found, str):
        return found[:120]
    if isinstance(found, list) and all(isinstance(one, DocNode) for one in found):
        return [[one.uid[:8], number(one.score, decimals)] for one in found]
    return [
        {"id": one["id"][:8], "score": number(one["score"], decimals)}
        if isinstance(one, dict)
        else one[:60]
        for one in found
    ]


def stage(given: Any, decimals: int | None = None) -> dict[str, Any]:
    """A stage of a trace, and those it was made of."""
    contributions = {
        str(getattr(key, "uid", key)): plain(list(value), decimals)
        for key, value in dict(given.contributions).items()
    }
    return {
        "kind": given.kind,
        "name": given.name,
        "nodes": [node(one, decimals) for one in given.nodes],
        "inputs": [stage(one, decimals) for one in given.inputs],
        "contributions": contributions,
        "settings": plain(given.settings, decimals),
    }


def reason(given: Any, decimals: int | None = None) -> dict[str, Any]:
    """What `why_not` found, without its sentence."""
    return {
        "uid": given.uid,
        "stage": given.stage,
        "cause": given.cause,
        "rank": given.rank,
        "score": number(given.score, decimals),
        "inputs": [reason(one, decimals) for one in given.inputs],
    }


def printed(text: str) -> list[str]:
    """A printed explanation without its widths and times."""
    rows = [re.sub(r" +", " ", row).strip() for row in text.splitlines()]
    return [re.sub(r"^(\d+ \S.* \d+ \d+) \d+\.\d(?= |$)", r"\1 *", row) for row in rows]


def dump(docs: Document) -> list[dict[str, Any]]:
    """The rows of `Maintenance.dump`, in its order, without days that no copy keeps."""
    return [json.loads(row, object_hook=_steady) for row in docs.maintenance.dump()]


def _steady(found: dict[str, Any]) -> dict[str, Any]:
    return {key: "*" if key in VOLATILE else value for key, value in found.items()}
