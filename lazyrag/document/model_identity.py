"""Whether stored vectors are those of the present embedding models: by fingerprints, and by the vector of a probe."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyrag.document.fingerprint import Fingerprint, changed_parts, fingerprint
from lazyrag.document.groups import embed_identity, model_identity
from lazyrag.document.ledger import Ledger
from lazyrag.errors import EmbeddingError, IngestionWarning, sentence, warn_user
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.types import Embedding

PROBE = "The quick brown fox jumps over the lazy dog. 敏捷的棕色狐狸跳过了懒狗。"
"""The text whose vector is stored and compared."""

_MIN_COSINE = 0.999  # quantised models, and batches of other texts, change a vector a little
_REPEATED = " embedded="


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """What is stored of an embedding model with its vectors.

    Args:
        name: For people.
        fingerprint: Of the user's embed function; "" for a model with an ``identity``.
        parts: What the fingerprint covers, see `lazyrag.document.fingerprint.changed_parts`.
        probe: The vector of `PROBE`; None if it was not embedded.
    """

    name: str
    fingerprint: str
    parts: Mapping[str, str]
    probe: list[float] | dict[str, float] | None = None


def find_identities(ledger: Ledger, embedders: Mapping[str, CheckedEmbedder]) -> dict[str, str]:
    """Return the identities of the present models, by embed key, as the ledger stores them.

    Vectors of an earlier release, which stored no fingerprints, count as those of the present function of that name
    and code.
    """
    records = ledger.groups.model_records() if embedders else []
    found = {}
    for key, one in embedders.items():
        present = embed_identity(one.user_object, one.embedder.identity)
        name, _, digits = present.partition("/") if not one.embedder.identity else (present, "", "")
        stored = [(model_identity(identity), record) for own, identity, record in records if own == key]
        known = [identity for identity, _ in stored if identity.partition(_REPEATED)[0] == present]
        adopted = [name for identity, record in stored if identity == name and _fingerprint_of(record) in ("", digits)]
        found[key] = ([*adopted, *known] or [present])[-1]
    return found


def next_identity(identity: str) -> str:
    """Return another identity of the same model, so that everything is embedded again."""
    return f"{identity.partition(_REPEATED)[0]}{_REPEATED}{time.time_ns():x}"


def changed_model(ledger: Ledger, key: str, old: str, now: CheckedEmbedder) -> str:
    """Return the difference of an embed function from the one with an identity; "" if what is stored shows none."""
    texts = [
        text for own, identity, text in ledger.groups.model_records() if own == key and model_identity(identity) == old
    ]
    record = read_record(texts[-1]) if texts else None
    seen = _function_fingerprint(now)
    return changed_parts(record.parts, seen.parts) if record is not None and record.parts and seen is not None else ""


def note_models(ledger: Ledger, embedders: Mapping[str, CheckedEmbedder], identities: Mapping[str, str]) -> None:
    """Store the records of models whose vector indexes have none yet. The caller holds the lease."""
    if ledger.file.path is None:  # in memory: no other program opens it
        return
    missing = [(key, identity) for key, identity, text in ledger.groups.model_records() if not text]
    for key, one in embedders.items():
        names = [name for own, name in missing if own == key and model_identity(name) == identities[key]]
        record = _describe_model(one) if names else None
        if record is not None:
            ledger.groups.note_model(key, names, json.dumps(record))


def _describe_model(one: CheckedEmbedder) -> dict[str, Any] | None:
    """Return the fields of a model's `ModelRecord`; None if the probe cannot be embedded now."""
    seen = _function_fingerprint(one)
    probe: Any = None
    if _is_probed(one):
        try:
            probe = _probe_vector(one)
        except EmbeddingError:
            return None
        probe = {str(at): value for at, value in probe.items()} if isinstance(probe, dict) else probe.tolist()
    digits, parts = ("", {}) if seen is None else (seen.value, dict(seen.parts))
    return {"name": _name_of(one), "fingerprint": digits, "parts": parts, "probe": probe}


def _function_fingerprint(one: CheckedEmbedder) -> Fingerprint | None:
    """Return the fingerprint of a user's embed function; None for a model with an ``identity``."""
    inner = getattr(one.embedder, "embedder", one.embedder)  # behind a cache
    return None if inner.identity else fingerprint(getattr(inner, "function", inner), is_model=True)


def _name_of(one: CheckedEmbedder) -> str:
    function = one.user_object
    return one.embedder.identity or getattr(function, "__qualname__", type(function).__qualname__)


def check_probes(
    where: str, ledger: Ledger, embedders: Mapping[str, CheckedEmbedder], identities: Mapping[str, str]
) -> None:
    """Warn of models that give the probe another vector than the one stored with their vectors."""
    records = ledger.groups.model_records() if any(map(_is_probed, embedders.values())) else []
    stored = {(key, model_identity(identity)): text for key, identity, text in records if text}
    for key, one in embedders.items():
        record = read_record(stored.get((key, identities[key]), ""))
        if record is None or record.probe is None or not _is_probed(one):
            continue
        what = f"embed key {key!r} of {where}"
        try:
            cosine = _cosine(record.probe, _probe_vector(one))
        except EmbeddingError as exc:
            msg = f"Could not check whether the model of {what} is the one of the stored vectors: {sentence(exc)}"
            warn_user(msg, IngestionWarning)
            continue
        if cosine < _MIN_COSINE:
            warn_user(
                f"The stored vectors of {what} were made by {record.name!r}, and {_name_of(one)!r} gives another one "
                f"for the same text now (cosine {cosine:.3f}). To embed again, call repair(embed_keys=[{key!r}]); if "
                "the model is the same, set probe = False on the embedder.",
                IngestionWarning,
            )


def read_record(text: str) -> ModelRecord | None:
    """Return a stored record; None if there is none."""
    return ModelRecord(**json.loads(text)) if text else None


def _fingerprint_of(text: str) -> str:
    record = read_record(text)
    return "" if record is None else record.fingerprint


def _is_probed(one: CheckedEmbedder) -> bool:
    embedder: Any = one.embedder
    while embedder is not None:
        if getattr(embedder, "probe", None) is False:
            return False
        embedder = getattr(embedder, "embedder", None) or getattr(embedder, "function", None)
    return True


def _probe_vector(one: CheckedEmbedder) -> Embedding:
    """Embed the probe, past a cache."""
    inner = getattr(one.embedder, "embedder", one.embedder)
    [vector] = CheckedEmbedder(inner, one.name, one.key).embed_each([PROBE])
    if isinstance(vector, EmbeddingError):
        raise vector
    return vector


def _cosine(stored: list[float] | dict[str, float], vector: Embedding) -> float:
    """Return the cosine of two vectors; 0 if they are of different kinds or lengths."""
    if isinstance(stored, dict) or isinstance(vector, dict):
        if not isinstance(stored, dict) or not isinstance(vector, dict):
            return 0.0
        keys = sorted({*stored, *map(str, vector)})
        known = {str(at): value for at, value in vector.items()}
        first, second = (np.array([one.get(at, 0.0) for at in keys], np.float64) for one in (stored, known))
    else:
        first, second = np.array(stored, np.float64), np.asarray(vector, np.float64)
    if first.shape != second.shape:
        return 0.0
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / lengths if lengths else float(np.array_equal(first, second))
