"""What must hold of a store after its program was ended: what readers see, and what lies there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Space: TypeAlias = tuple[str, str, str]
Holds: TypeAlias = "dict[str, Any]"


@dataclass(slots=True)
class Part:
    """A document in one group: its nodes as told, and what each index over the group holds of
    them.
    """

    fingerprint: str
    nodes: list[dict[str, Any]] = field(default_factory=list)
    spaces: dict[Space, Holds] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    """A canonical dump, document by document, then group by group."""

    documents: dict[str, dict[str, Part]]
    parents: dict[str, str | None]
    fingerprints: dict[str, str]
    spaces: dict[str, set[Space]]

    @classmethod
    def of(cls, dump: Sequence[str]) -> State:
        """A dump, read."""
        told = [json.loads(line) for line in dump]
        documents: dict[str, dict[str, Part]] = {
            one["identity"]: {} for one in told if one["is"] == "document"
        }
        state = cls(documents, {}, {}, {})
        group, space = "", ("", "", "")
        paths: dict[str, str] = {}
        for one in told:
            if one["is"] == "group":
                group = one["name"]
                state.parents[group], state.fingerprints[group] = one["parent"], one["fingerprint"]
                state.spaces[group] = set()
                for parts in documents.values():
                    parts[group] = Part(one["fingerprint"])
            elif one["is"] == "node":
                paths[one["uid"]] = one["path"]
                documents[one["path"]][group].nodes.append(one)
            elif one["is"] == "space":
                space = (one["kind"], one["name"], one["identity"])
                state.spaces[group].add(space)
                for parts in documents.values():
                    parts[group].spaces[space] = {}
            elif one["is"] != "document":
                documents[paths[one["uid"]]][group].spaces[space][one["uid"]] = one["holds"]
        return state

    def line(self, group: str | None) -> list[str]:
        """A group and those above it."""
        return [] if group is None else [group, *self.line(self.parents.get(group))]

    def nodes(self, group: str) -> dict[str, str]:
        """Texts of a group's nodes, by uid."""
        parts = [parts[group] for parts in self.documents.values() if group in parts]
        return {node["uid"]: node["content"] for part in parts for node in part.nodes}

    def held(self, group: str, by: str) -> Holds:
        """What an index over a group holds, by uid: that of its terms, or of its vectors under an
        embed key.
        """
        found: Holds = {}
        for parts in self.documents.values():
            for space, holds in parts[group].spaces.items() if group in parts else ():
                found.update(holds if _serves(space, by) else {})
        return found


def mixtures(seen: State, before: State, after: State, moved: Mapping[str, str]) -> Iterator[str]:
    """Documents that are neither as they were nor as they will be, whole; those that are in two
    places, or in none.

    Args:
        seen: What a reader saw.
        before: The state before the program began.
        after: The state after it has ended.
        moved: From where a document was moved, and to where.
    """
    for path in sorted({*seen.documents, *before.documents, *after.documents}):
        if not any(_fits(seen, state, before, path) for state in (before, after)):
            what = "is missing" if path not in seen.documents else "is of no one version"
            yield f"{path} {what}"
    for source, target in moved.items():
        if (source in before.documents) and (source in seen.documents) == (
            target in seen.documents
        ):
            yield f"{source}, moved to {target}, is in {'both' if source in seen.documents else 'neither'}"


def _fits(seen: State, state: State, before: State, path: str) -> bool:
    """Whether a document is as in a state; what was never there before may be there later than the
    rest.
    """
    parts, wanted = seen.documents.get(path), state.documents.get(path)
    if parts is None or wanted is None:
        return parts is wanted
    if (
        not parts.keys() <= wanted.keys()
        or not wanted.keys() & before.fingerprints.keys() <= parts.keys()
    ):
        return False
    for group, part in parts.items():
        full = wanted[group]
        if (part.fingerprint, part.nodes) != (full.fingerprint, full.nodes):
            return False
        if not full.spaces.keys() & before.spaces.get(group, set()) <= part.spaces.keys():
            return False
        if any(holds != full.spaces.get(space) for space, holds in part.spaces.items()):
            return False
    return True


def wrong_answers(
    seen: State,
    fingerprints: Mapping[str, str],
    questions: Sequence[tuple[str, str, str]],
    answers: Sequence[Any],
) -> Iterator[str]:
    """Answers that do not name exactly the nodes that are live and fit, and refusals where there
    are such.

    Args:
        seen: What the reader saw.
        fingerprints: Of the groups that it defines.
        questions: Group, ``"bm25"`` or an embed key, and a query of one term.
        answers: Uid, text and score of all hits; or why there are none.
    """
    for (group, by, query), answer in zip(questions, answers, strict=True):
        there = group in seen.fingerprints and any(
            _serves(space, by) for space in seen.spaces[group]
        )
        current = all(
            seen.fingerprints.get(name) == fingerprints.get(name) for name in seen.line(group)
        )
        if isinstance(answer, str):
            if there and current:
                yield f"{by} over {group} was refused: {answer}"
            continue
        held, texts = seen.held(group, by), seen.nodes(group)
        expected = {uid for uid, holds in held.items() if by != "bm25" or query in holds}
        found = {uid: text for uid, text, _ in answer}
        if found.keys() != expected:
            yield f"{by} over {group} found {len(found)} nodes instead of {len(expected)} for {query!r}"
        if any(texts.get(uid) != text for uid, text in found.items()):
            yield f"{by} over {group} found a node that is not live"


def _serves(space: tuple[str, ...], by: str) -> bool:
    """Whether an index answers questions of a sort."""
    kind, name, *_ = space
    return kind == "terms" if by == "bm25" else (kind, name) == ("vectors", by)


def has_ledger(store: Path) -> bool:
    """Whether there is anything to be read in a store yet."""
    path = store / "store.db"
    if not path.exists() or not _rows(path, "SELECT 1 FROM sqlite_master WHERE name = 'ledger'"):
        return False
    return bool(_rows(path, "SELECT 1 FROM ledger"))


def damage(store: Path) -> Iterator[str]:
    """What SQLite finds wrong with the files."""
    for name in ("store.db", "store.db.embeddings"):
        if (store / name).exists():
            for pragma in ("integrity_check", "foreign_key_check"):
                found = [row for row in _rows(store / name, f"PRAGMA {pragma}") if row != ("ok",)]
                if found:
                    yield f"{pragma} of {name}: {found[:5]}"


# ruff: noqa: S608
_LIVE = "SELECT number FROM build WHERE until = 4611686018427387904"
_LEFT_OVER = {
    "builds that are not live": f"SELECT number, status FROM build WHERE number NOT IN ({_LIVE})",
    "groups that are not live": "SELECT name, status FROM node_group WHERE status <> 'live'",
    "indexes that are not live": "SELECT name, status FROM space WHERE status <> 'live'",
    "nodes of no live build": f"SELECT key FROM segment WHERE build NOT IN ({_LIVE})",
    "origins of no node": "SELECT path, node_group FROM segment_origin WHERE id NOT IN (SELECT origin FROM segment)",
    "collections of no group": (
        "SELECT name FROM segment_collection WHERE name NOT IN (SELECT collection FROM node_group)"
    ),
    "vectors of no index": "SELECT name FROM vector_collection WHERE name NOT IN (SELECT collection FROM space)",
    "coverage of no live build": f"SELECT space, build FROM covered WHERE build NOT IN ({_LIVE})",
    "parts of no index": "SELECT id FROM term_part WHERE space NOT IN (SELECT id FROM space)",
    "versions of no live build": f"SELECT document, number FROM version WHERE root NOT IN ({_LIVE})",
    "programs that have ended": "SELECT told FROM program",
    "a lease that nobody holds": "SELECT holder_told FROM ledger WHERE holder <> ''",
}


def leftovers(store: Path) -> Iterator[str]:
    """Rows that serve nobody: none after a sync that was not ended, once nobody can be reading what
    is dead.
    """
    path = store / "store.db"
    for what, query in _LEFT_OVER.items():
        found = _rows(path, query)
        if found:
            yield f"left over are {len(found)} {what}: {found[:3]}"
    [live] = _rows(
        path,
        "SELECT coalesce(sum(value), 0) FROM build, json_each(counts) WHERE until = 4611686018427387904",
    )
    [kept] = _rows(path, "SELECT count(*) FROM segment")
    if live != kept:
        yield f"the ledger knows of {live[0]} nodes, and {kept[0]} are kept"
    parts = _rows(path, "SELECT size, dead FROM vector_part")
    vectors = sum(size - sum(byte.bit_count() for byte in dead or b"") for size, dead in parts)
    [covered] = _rows(
        path,
        "SELECT coalesce(sum(value), 0) FROM covered JOIN space ON space.id = covered.space "
        "JOIN build ON number = build, json_each(counts) WHERE kind = 'vectors'",
    )
    if vectors != covered[0]:
        yield f"the ledger knows of {covered[0]} vectors, and {vectors} are kept"


def unnamed_files(store: Path) -> list[str]:
    """Array files that nothing names, and half-written ones."""
    path = store / "store.db"
    named = {
        name for (name,) in _rows(path, "SELECT arrays FROM vector_part WHERE content IS NULL")
    }
    named |= {name for (name,) in _rows(path, "SELECT file FROM term_part WHERE arrays IS NULL")}
    return sorted({one.name for one in (store / "store.db.d").glob("*")} - named)


def missing_files(store: Path) -> Iterator[str]:
    """Array files that something names, and that are not there."""
    path = store / "store.db"
    if has_ledger(store):
        named = _rows(path, "SELECT arrays FROM vector_part WHERE content IS NULL")
        named += _rows(path, "SELECT file FROM term_part WHERE arrays IS NULL")
        for (name,) in named:
            if not (store / "store.db.d" / name).exists():
                yield f"the array file {name} is named and not there"


def known(store: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What the ledger knows of files and failures, but for numbers and times."""
    path = store / "store.db"
    return {
        "documents": _rows(
            path,
            "SELECT identity, uid, origin, status, size, mtime_ns, inode, content_hash, mark, loaded, said, updates "
            "FROM document WHERE status <> 'new' ORDER BY identity",
        ),
        "failures": _rows(
            path, "SELECT identity, stage, kind, message FROM failure ORDER BY identity, stage"
        ),
    }


def changes(store: Path) -> int:
    """The ledger's counter of changes to what is live."""
    [[found]] = _rows(store / "store.db", "SELECT changes FROM ledger")
    return int(found)


def _rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()
