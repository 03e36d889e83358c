"""A Document as plain files, JSON lines and arrays, and back again: to move it, to keep it, to look at it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from lazyrag.data.segment import LAZY_ROOT_NAME, Place, Segment, root_uid
from lazyrag.document.groups import schema_digest
from lazyrag.document.indexer import Builder
from lazyrag.document.ingest import output_digest
from lazyrag.document.ledger import BuildRow, DocumentRow, Flip
from lazyrag.document.tree import LiveGroup, LiveSpace
from lazyrag.errors import ConfigError, StoreError
from lazyrag.stores.protocol import VectorRow, collection_name
from lazyrag.stores.sqlite import schema_text
from lazyrag.types import SPARSE, Embedding, Embeddings, SparseVector, Vector


def write_vectors(folder: Path, name: str, vectors: Sequence[Embedding], dimension: int) -> str:
    """Write vectors of one kind, in their order.

    Dense ones become ``<name>.npy``: (n, dimension) float32. Sparse ones become ``<name>.npz``: ``starts``, (n + 1,)
    int64, where each one begins; ``dimensions``, uint64, which ascend in each; ``weights``, float32, one for each.

    Args:
        folder: Where to.
        name: Of the file, without its suffix.
        vectors: Any number of them.
        dimension: The length of each, or `SPARSE`.

    Returns:
        The file's name.
    """
    if dimension != SPARSE:
        dense = cast("Sequence[Vector]", vectors)
        matrix = np.stack(dense) if dense else np.empty((0, dimension), np.float32)
        np.save(folder / f"{name}.npy", matrix.astype("<f4"), allow_pickle=False)
        return f"{name}.npy"
    rows = [sorted(vector.items()) for vector in cast("Sequence[SparseVector]", vectors)]
    np.savez(
        folder / f"{name}.npz",
        starts=np.cumsum([0, *map(len, rows)]).astype("<i8"),
        dimensions=np.array([at for row in rows for at, _ in row], "<u8"),
        weights=np.array([weight for row in rows for _, weight in row], "<f4"),
    )
    return f"{name}.npz"


def read_vectors(path: Path, count: int, dimension: int) -> Embeddings:
    """What `write_vectors` wrote.

    Args:
        path: The file.
        count: How many there must be.
        dimension: The length of each, or `SPARSE`.

    Raises:
        ConfigError: If they are more or less, or others.
    """
    if dimension != SPARSE:
        matrix = np.load(path, allow_pickle=False, mmap_mode="r")
        if matrix.shape != (count, dimension):
            msg = f"{path.name} has shape {matrix.shape} for {count} nodes of dimension {dimension}."
            raise ConfigError(msg)
        return cast("Embeddings", matrix)
    with np.load(path, allow_pickle=False) as arrays:
        starts, dimensions, weights = (arrays[name] for name in ("starts", "dimensions", "weights"))
    if len(starts) != count + 1 or not len(dimensions) == len(weights) == starts[-1]:
        msg = f"{path.name} has {len(starts) - 1} sparse vectors with {len(weights)} weights for {count} nodes."
        raise ConfigError(msg)
    pairs = list(zip(dimensions.tolist(), weights.tolist(), strict=True))
    ends = starts.tolist()
    return [dict(pairs[start:end]) for start, end in pairwise(ends)]


_VERSION = 1
_AT_ONCE = 200  # documents; bounds what is in memory
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class _Space:
    """Vectors as they are exported."""

    name: str
    identity: str
    dimension: int
    vectors: str
    uids: str


@dataclass(frozen=True, slots=True)
class _Group:
    """A group as it is exported."""

    name: str
    parent: str | None
    fingerprint: str
    nodes: str
    spaces: tuple[_Space, ...]


def export(builder: Builder, folder: str | os.PathLike[str]) -> Path:
    """Write what is live into a new folder, all or nothing.

    Raises:
        ConfigError: If something is there already.
        StoreError: If the folder cannot be written.
    """
    target = _path(folder, "export").absolute()
    if target.exists():
        msg = f"{target} exists already. Give the path of a folder that export() is to make."
        raise ConfigError(msg)
    unfinished = target.with_name(target.name + ".unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _write(builder, unfinished)
        unfinished.replace(target)
    except OSError as exc:
        shutil.rmtree(unfinished, ignore_errors=True)
        msg = f"The export to {target} cannot be written: {exc.strerror or exc}. Nothing of it was kept."
        raise StoreError(msg, store=str(target)) from exc
    return target


def _path(folder: Any, what: str) -> Path:
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
        msg = f"{what}() got {folder!r}; give the path of a folder."
        raise ConfigError(msg)
    return Path(folder).expanduser()


def _write(builder: Builder, folder: Path) -> None:
    tree = builder.ledger.tree
    inputs: dict[str, dict[str, str]] = {uid: {} for uid in tree.documents}
    groups = []
    for number, group in enumerate(tree.groups.values()):
        uids = {document.id: uid for uid, document in tree.documents.items()}
        for row in builder.ledger.builds.live_in(group.id):
            inputs[uids[row.document]][group.name] = row.input
        with (folder / f"nodes-{number}.jsonl").open("w", encoding="utf-8") as file:
            for build in tree.builds(group):
                for segment in builder.nodes.of_build(group.collection, build):
                    _line(file, _node_to_json(segment))
        spaces = [
            _write_vectors(builder, folder, f"{number}-{at}", group, space)
            for at, space in enumerate(group.spaces.values())
            if space.kind == "vectors" and space.whole and space.dimension
        ]
        groups.append(_Group(group.name, group.parent, group.fingerprint, f"nodes-{number}.jsonl", tuple(spaces)))
    rows = builder.ledger.documents.all()
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
        for uid, document in tree.documents.items():
            _line(file, {**_row_to_json(rows[document.identity]), "inputs": inputs[uid]})
    manifest = {
        "lazyrag export": _VERSION,
        "name": builder.name,
        "fields": schema_digest(builder.nodes.schema),
        "groups": [_group_to_json(one) for one in groups],
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _write_vectors(builder: Builder, folder: Path, number: str, group: LiveGroup, space: LiveSpace) -> _Space:
    uids: list[str] = []
    vectors = []
    for build in builder.ledger.tree.builds(group):
        found = {row.key: row.vector for row in builder.nodes.vectors.get(space.collection, build.keys)}
        for uid, key in zip(build.uids, build.keys, strict=True):
            if key in found:
                uids.append(uid)
                vectors.append(found[key])
    written = write_vectors(folder, f"vectors-{number}", vectors, space.dimension)
    (folder / f"vectors-{number}.json").write_text(json.dumps(uids), encoding="utf-8")
    return _Space(space.name, space.identity, space.dimension, written, f"vectors-{number}.json")


def import_from(builder: Builder, folder: str | os.PathLike[str]) -> int:
    """Bring in what `export` wrote, into a Document that holds nothing yet.

    Nothing is loaded, transformed or embedded for it. Lexical indexes are made when something asks for them.

    Returns:
        How many documents came in.

    Raises:
        ConfigError: If the folder holds no export, or one with other fields, or the Document holds documents.
        StoreBusyError: If another program writes.
    """
    source = _path(folder, "import_from")
    groups = _read_manifest(builder, source)
    with builder.writing():
        builder.open_root()
        if builder.ledger.tree.documents:
            msg = f"{builder.where} holds documents already. Import into one that is empty, or of another name."
            raise ConfigError(msg)
        rows = _open_groups(builder, groups)
        vectors = {(group.name, space.name): _read_vectors(source, space) for group in groups for space in group.spaces}
        opened = _open_spaces(builder, groups, rows)
        nodes = {group.name: _Nodes(source / group.nodes) for group in groups}
        flips: list[Flip] = []
        for some in _chunks(_lines(source / "documents.jsonl")):
            flips += _brought(builder, some, groups, rows, nodes, vectors, opened)
        builder.ledger.flip(flips)  # all of it in one moment: what was interrupted before is as if it had never begun
        builder.ledger.switch(
            [number for name, (number, _) in rows.items() if name != LAZY_ROOT_NAME],
            [one[0] for one in opened.values()],
            [],
        )
    return len(flips)


def _read_manifest(builder: Builder, folder: Path) -> list[_Group]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        version = manifest["lazyrag export"]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        msg = f"{folder} holds no export ({_MANIFEST} is missing or is none). Give a folder that export() wrote."
        raise ConfigError(msg) from exc
    if version != _VERSION:
        msg = f"The export in {folder} has format {version}, and this release reads format {_VERSION}."
        raise ConfigError(msg)
    if manifest["fields"] != schema_digest(builder.nodes.schema):
        msg = f"The export in {folder} was written with other doc_fields. Give this Document the same ones."
        raise ConfigError(msg)
    return [
        _Group(**{**group, "spaces": tuple(_Space(**space) for space in group["spaces"])})
        for group in manifest["groups"]
    ]


def _open_groups(builder: Builder, groups: Sequence[_Group]) -> dict[str, tuple[int, str]]:
    """Rows and collections of the groups, by name."""
    root = builder.ledger.tree.groups[LAZY_ROOT_NAME]
    rows = {LAZY_ROOT_NAME: (root.id, root.collection)}
    token = builder.ledger.token
    fields = schema_text(builder.nodes.schema)
    for group in groups:
        if group.parent is None:
            continue

        def name_of(suffix: str, group: _Group = group) -> str:
            return collection_name(builder.name, group.name, token + group.fingerprint + suffix)

        above = rows[group.parent][0]
        rows[group.name] = builder.ledger.groups.open(group.name, above, group.fingerprint, fields, name_of)
        builder.nodes.segments.create(rows[group.name][1], builder.nodes.schema)
    return rows


def _open_spaces(
    builder: Builder, groups: Sequence[_Group], rows: Mapping[str, tuple[int, str]]
) -> dict[tuple[str, str], tuple[int, str]]:
    """Rows and collections of the vectors, by group and embed key."""
    opened = {}
    for group in groups:
        for space in group.spaces:
            row = rows[group.name][0]
            collection = collection_name(
                builder.name, group.name, f"{builder.ledger.token}{group.fingerprint}{space.identity}/{row}", space.name
            )
            number, _ = builder.ledger.groups.open_space(row, "vectors", space.name, space.identity, collection)
            builder.nodes.create_vectors(collection, space.dimension, space.name)
            builder.ledger.groups.set_dimension(number, space.dimension)
            opened[group.name, space.name] = number, collection
    return opened


def _brought(
    builder: Builder,
    documents: Sequence[dict[str, Any]],
    groups: Sequence[_Group],
    rows: Mapping[str, tuple[int, str]],
    nodes: Mapping[str, _Nodes],
    vectors: Mapping[tuple[str, str], Mapping[str, Embedding]],
    spaces: Mapping[tuple[str, str], tuple[int, str]],
) -> list[Flip]:
    """Write some documents; what has to become live of them."""
    ledger = builder.ledger
    registered = ledger.documents.register([_row_from_json(one) for one in documents])
    numbers = iter(ledger.builds.reserve(len(documents) * len(groups)))
    made: dict[str, dict[str, BuildRow]] = {row.uid: {} for row in registered}
    above: dict[tuple[str, str], list[str]] = {}  # uids by document and group
    covered: dict[str, list[tuple[int, int]]] = {row.uid: [] for row in registered}
    for group in groups:
        new: list[BuildRow] = []
        segments: list[Segment] = []
        for row, told in zip(registered, documents, strict=True):
            if group.name not in told["inputs"]:
                continue
            own = nodes[group.name].of_document(row.uid)
            above[row.uid, group.name] = [one["uid"] for one in own]
            number = next(numbers)
            parent = made[row.uid].get(group.parent) if group.parent is not None else None
            counts = _counts(own, above.get((row.uid, group.parent or ""), []))
            root = parent.root if parent is not None else number
            build = BuildRow(
                number,
                row.id,
                rows[group.name][0],
                None if parent is None else parent.number,
                root,
                told["inputs"][group.name],
                json.dumps(counts),
            )
            of_build = [_node_from_json(one, number) for one in own]
            build = build._replace(output=output_digest(of_build))
            made[row.uid][group.name] = build
            new.append(build)
            segments += of_build
        ledger.builds.begin(new)
        builder.nodes.segments.upsert(rows[group.name][1], segments)
        ledger.builds.acknowledge(one.number for one in new)
        for space in group.spaces:
            known = vectors[group.name, space.name]
            number, collection = spaces[group.name, space.name]
            held = [VectorRow(one.key, known[one.uid], one.fields) for one in segments if one.uid in known]
            builder.nodes.vectors.upsert(collection, held)
            whole = {one.document_id for one in segments if one.uid in known}
            for uid in whole:
                covered[uid].append((number, made[uid][group.name].number))
    return [
        Flip(
            row,
            {build.node_group: build.number for build in made[row.uid].values()},
            covered[row.uid],
            made[row.uid][LAZY_ROOT_NAME].number,
        )
        for row in registered
    ]


class _Nodes:
    """The nodes of a group, document by document, in the order in which documents were exported."""

    def __init__(self, path: Path) -> None:
        self._lines = _lines(path)
        self._next = next(self._lines, None)

    def of_document(self, uid: str) -> list[dict[str, Any]]:
        """The nodes of the next document."""
        own = []
        while self._next is not None and self._next["document_id"] == uid:
            own.append(self._next)
            self._next = next(self._lines, None)
        return own


def _counts(nodes: Sequence[Mapping[str, Any]], parents: Sequence[str]) -> list[int]:
    if not parents:
        return [len(nodes)]
    counts = dict.fromkeys(parents, 0)
    for node in nodes:
        counts[node["parent"]] += 1
    return list(counts.values())


def _read_vectors(folder: Path, space: _Space) -> dict[str, Embedding]:
    uids = json.loads((folder / space.uids).read_text(encoding="utf-8"))
    vectors = read_vectors(folder / space.vectors, len(uids), space.dimension)
    return dict(zip(uids, vectors, strict=True))


def _line(file: TextIO, value: Mapping[str, Any]) -> None:
    file.write(json.dumps(value) + "\n")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _chunks(lines: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    some: list[dict[str, Any]] = []
    for line in lines:
        some.append(line)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _group_to_json(group: _Group) -> dict[str, Any]:
    spaces = [{name: getattr(one, name) for name in _Space.__slots__} for one in group.spaces]
    return {**{name: getattr(group, name) for name in _Group.__slots__}, "spaces": spaces}


def _row_to_json(row: DocumentRow) -> dict[str, Any]:
    told = {name: getattr(row, name) for name in ("identity", "origin", "content_hash", "mark")}
    return {**told, **{name: json.loads(getattr(row, name)) for name in ("loaded", "said", "updates")}}


def _row_from_json(told: Mapping[str, Any]) -> DocumentRow:
    return DocumentRow(
        0,
        root_uid(told["identity"]),
        told["identity"],
        told["origin"],
        seen_ns=-1,  # its file has not been looked at here: a sync compares the content
        content_hash=told["content_hash"],
        mark=told["mark"],
        loaded=json.dumps(told["loaded"]),
        said=json.dumps(told["said"]),
        updates=json.dumps(told["updates"]),
    )


def _node_to_json(segment: Segment) -> dict[str, Any]:
    told = {name: getattr(segment, name) for name in Segment._fields if name not in {"build", "places"}}
    places = [[one.start, one.end, one.kind, one.label] for one in segment.places]
    return {**told, "metadata": dict(segment.metadata), "fields": dict(segment.fields), "places": places}


def _node_from_json(told: Mapping[str, Any], build: int) -> Segment:
    span = told["span"]
    places = tuple(Place(*one) for one in told["places"])
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in told["fields"].items()}
    own = {"build": build, "fields": fields, "span": None if span is None else tuple(span), "places": places}
    return Segment(**{**told, **own})
