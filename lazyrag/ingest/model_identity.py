"""Whether stored vectors are those of the present embedding models: by fingerprints, and by the
vector of a probe.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping

from lazyrag.errors import EmbeddingError, IngestionWarning, LazyRAGError, sentence, warn_user
from lazyrag.groups.node_group import embed_identity, model_identity
from lazyrag.ledger.ledger import Ledger
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.protocols import single_try
from lazyrag.types import JsonObject

PROBE = "The quick brown fox jumps over the lazy dog. 敏捷的棕色狐狸跳过了懒狗。"
"""The text whose vector is stored and compared."""

_REPEATED = " embedded="
_MIN_COSINE = 0.999  # quantised models, and batches of other texts, change a vector a little


def find_identities(ledger: Ledger, embedders: Mapping[str, CheckedEmbedder]) -> dict[str, str]:
    """Return the identities under which the ledger has the vectors of the present models, by embed
    key.

    Vectors of an earlier release, which stored no fingerprints, count as those of the present
    function of that name and code.
    """
    identities = {}
    for key, checked in embedders.items():
        present = _present_identity(checked)
        accepted = {present, present if checked.embedder.identity else present.partition("/")[0]}
        stored = [
            identity
            for identity, record in _stored(ledger, key)
            if record.get("model", identity) in accepted
        ]
        identities[key] = [present, *stored][-1]
    return identities


def next_identity(checked: CheckedEmbedder) -> str:
    """Return an identity under which no vectors of a model are stored, so that everything is
    embedded again.
    """
    return f"{_present_identity(checked)}{_REPEATED}{time.time_ns():x}"


def note_models(
    ledger: Ledger, embedders: Mapping[str, CheckedEmbedder], identities: Mapping[str, str]
) -> bool:
    """Store what makes up the models whose vectors have no record yet. The caller holds the lease.

    Returns:
        Whether all have one now: False where a model failed, for the next write to try again.
    """
    if ledger.file.path is None:  # in memory: no other program opens it
        return True
    is_complete = True
    for key, checked in embedders.items():
        rows = ledger.groups.model_records(key)
        missing = [
            name for name, text in rows if not text and model_identity(name) == identities[key]
        ]
        if missing:
            model = identities[key].partition(_REPEATED)[0]
            present = _present_identity(checked)
            if model == present.partition("/")[0]:  # vectors of an earlier release
                model = present
            try:
                record = {
                    "model": model,
                    "name": _name_of(checked),
                    "probe": _probe_vector(checked),
                }
            except EmbeddingError:
                is_complete = False
                continue
            ledger.groups.note_model(key, missing, json.dumps(record))
    return is_complete


def check_probes(
    where: str,
    ledger: Ledger,
    embedders: Mapping[str, CheckedEmbedder],
    identities: Mapping[str, str],
) -> None:
    """Warn of models that give the probe another vector than the one stored with their vectors."""
    for key, checked in embedders.items():
        record = dict(_stored(ledger, key)).get(identities[key], {})
        before = record.get("probe")
        if not before:
            continue
        subject = f"embed key {key!r} of {where}"
        token = single_try.set(True)
        try:
            now = _probe_vector(checked)
        except LazyRAGError as exc:
            msg = (
                f"Could not check whether the model of {subject} is the one of the stored vectors:"
                f" {sentence(exc)}"
            )
            warn_user(msg, IngestionWarning)
            continue
        finally:
            single_try.reset(token)
        product = sum(before[at] * now.get(at, 0.0) for at in before)
        norms = math.hypot(*before.values()) * math.hypot(*now.values())
        cosine = product / (norms or 1.0)
        if now and cosine < _MIN_COSINE:
            warn_user(
                f"The stored vectors of {subject} were made by {record['name']!r}, and"
                f" {_name_of(checked)!r} gives another one for the same text now (cosine"
                f" {cosine:.3f}). To embed again, call repair(embed_keys=[{key!r}]); if the model"
                " is the same, set probe = False on the embedder.",
                IngestionWarning,
            )


def _stored(ledger: Ledger, key: str) -> list[tuple[str, JsonObject]]:
    """Identities of models with stored vectors of an embed key, oldest first, and their records; {}
    for none.
    """
    rows = ledger.groups.model_records(key)
    return [(model_identity(identity), json.loads(text or "{}")) for identity, text in rows]


def _present_identity(checked: CheckedEmbedder) -> str:
    return embed_identity(checked.user_object, checked.embedder.identity)


def _name_of(checked: CheckedEmbedder) -> str:
    function = checked.user_object
    return checked.embedder.identity or getattr(
        function, "__qualname__", type(function).__qualname__
    )


def _probe_vector(checked: CheckedEmbedder) -> dict[str, float]:
    """Embed the probe, past a cache; {} if the embedder has none.

    Raises:
        EmbeddingError: If the model fails.
    """
    inner = getattr(checked.embedder, "embedder", checked.embedder)
    if False in (getattr(checked.user_object, "probe", True), getattr(inner, "probe", True)):
        return {}
    vector = CheckedEmbedder(inner, checked.name, checked.key).embed([PROBE])[0]
    pairs = vector.items() if isinstance(vector, dict) else enumerate(vector.tolist())
    return {str(at): value for at, value in pairs}
