"""Every planted fault is found, none is found where there is none, and repairing gives what was
there before.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import Document, IngestionWarning, Retriever
from lazyrag.data.fields import make_schema
from lazyrag.data.segment import LAZY_ROOT_NAME, Segment, child_uids
from lazyrag.document import Problem
from lazyrag.document import open as opening
from lazyrag.errors import ConfigError, StoreError
from lazyrag.ingest import term_index
from lazyrag.stores import sqlite_vectors as map_vectors
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.sqlite import MapFileSegmentStore, StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from tests.shelf import ShelfOfWords

FILES = {
    "a.txt": "green tea\nblack tea",
    "b.txt": "hot coffee\ncold milk",
    "c.txt": "still water\nred wine",
}
GROUPS = (LAZY_ROOT_NAME, "line", "word")


class FaultyShelf(ShelfOfWords):
    """One in whose store there may be faults; its dataset may be that of others as well."""

    def __init__(self, root, dataset, **arguments):
        """Take the dataset as it is."""
        super().__init__(root, {}, **arguments)
        self.dataset = dataset

    def plant(self, *faults):
        """Have faults in the store file, while nobody has it open."""
        with closing(StoreFile(self.store)) as file:
            for fault in faults:
                fault.plant(file)


def asked(docs):
    """Have both groups with both kinds of indexes."""
    docs.sync()
    return answers(docs)


def answers(docs):
    """What can be read, by kind of reading; StoreError where the store says that something is
    wrong.
    """
    found = {}
    for group in GROUPS[1:]:
        for name, chosen in {"terms": {"similarity": "bm25"}, "vectors": {}}.items():
            found[f"{name} of {group}"] = _read(
                lambda group=group, chosen=chosen: [
                    (hit.text, hit.score) for hit in Retriever(docs, group, topk=4, **chosen)("tea")
                ]
            )
    for group in GROUPS:
        found[f"nodes of {group}"] = _read(
            lambda group=group: [node.text for node in docs.get_nodes(group)]
        )
    found["children"] = _read(
        lambda: [[one.text for one in node.children["word"]] for node in docs.get_nodes("line")]
    )
    return found


def _read(read):
    try:
        return read()
    except StoreError:
        return StoreError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Three files of two lines each, too old for any doubt whether they changed since."""
    folder = tmp_path_factory.mktemp("dataset")
    for name, text in FILES.items():
        (folder / name).write_text(text)
        os.utime(folder / name, (1.6e9, 1.6e9))
    return folder


@dataclass
class Made:
    """A store that is whole, closed, with what it answers and holds."""

    shelf: FaultyShelf
    answers: dict
    dump: list

    def copied(self, folder):
        """The same store at another place."""
        shelf = FaultyShelf(folder, self.shelf.dataset)
        for suffix in ("", ".embeddings"):
            shutil.copy(f"{self.shelf.store}{suffix}", f"{shelf.store}{suffix}")
        if Path(f"{self.shelf.store}.d").exists():
            shutil.copytree(f"{self.shelf.store}.d", f"{shelf.store}.d")
        return shelf


def _made(dataset, folder):
    shelf = FaultyShelf(folder, dataset)
    with shelf.open() as docs:
        return Made(shelf, asked(docs), list(docs.maintenance.dump()))


@pytest.fixture(scope="module")
def made(dataset, tmp_path_factory):
    """A whole store whose parts all lie in the SQLite file, as small ones do."""
    return _made(dataset, tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def made_in_files(dataset, tmp_path_factory):
    """A whole store whose parts lie in array files, as large ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(map_vectors, "_SMALL_BYTES", 0)
        patch.setattr(term_index, "_SMALL_BYTES", 0)
        return _made(dataset, tmp_path_factory.mktemp("made_in_files"))


@dataclass(frozen=True)
class Fault:
    """Something that can be wrong.

    Args:
        name: For people.
        plant: Makes it so, in an open store file.
        kind: How `verify` calls it.
        where: The group or index that it names.
        document: The document that it names.
        unnoticed: Readings that may give something else without an error: nothing but all of the
            store tells them.
    """

    name: str
    plant: Callable[[StoreFile], None]
    kind: str
    where: str
    document: str = "b.txt"
    unnoticed: tuple[str, ...] = ()


_OWN = (
    "SELECT segment.id FROM segment JOIN segment_origin ON segment_origin.id = segment.origin "
    "WHERE node_group = ? AND path = 'b.txt' ORDER BY segment.id"
)
_OWN_KEYS = (
    "SELECT key FROM segment JOIN segment_origin ON segment_origin.id = segment.origin "
    "WHERE node_group = ? AND path = 'b.txt' ORDER BY number"
)


def _segments(statement, group, *values, limit=-1):
    """A statement on the segments of b.txt in a group."""

    def plant(file):
        with file.writing() as connection:
            connection.execute(f"{statement} WHERE id IN ({_OWN} LIMIT ?)", (*values, group, limit))

    return plant


_OF_GROUP = (
    " WHERE node_group = (SELECT id FROM node_group WHERE name = ?) "
    "AND document = (SELECT id FROM document WHERE identity = 'b.txt')"
)
_OF_SPACE = (
    " WHERE space = (SELECT space.id FROM space JOIN node_group ON node_group.id = node_group "
    "WHERE kind = ? AND node_group.name = ?)"
)


def _of_group(statement, *values):
    """A statement on the ledger's rows of b.txt in a group; the group comes last among the
    values.
    """

    def plant(file):
        with file.writing() as connection:
            connection.execute(statement + _OF_GROUP, values)

    return plant


def _of_index(statement, kind, group):
    """A statement on all that a space of a group has."""

    def plant(file):
        with file.writing() as connection:
            connection.execute(statement + _OF_SPACE, (kind, group))

    return plant


def _collection(file, group):
    with file.reading() as connection:
        return connection.execute(
            "SELECT collection FROM node_group WHERE name = ?", (group,)
        ).fetchone()[0]


def _vectors(file, group):
    with file.reading() as connection:
        return connection.execute(
            "SELECT space.collection FROM space JOIN node_group ON node_group.id = node_group "
            "WHERE kind = 'vectors' AND node_group.name = ?",
            (group,),
        ).fetchone()[0]


def _own_keys(file, group):
    with file.reading() as connection:
        rows = connection.execute(_OWN_KEYS, (group,))
        return [key for (key,) in rows]


def _copy_segment(group, change):
    """A segment more: one of b.txt with a change."""

    def plant(file):
        store, collection = MapFileSegmentStore(file), _collection(file, group)
        [row] = store.get(collection, _own_keys(file, group)[:1])
        store.upsert(collection, [change(row)])

    return plant


def _drop_segments(group):
    return lambda file: MapFileSegmentStore(file).drop(_collection(file, group))


def _drop_vectors(group):
    return lambda file: MapFileVectorStore(file).drop(_vectors(file, group))


def _delete_vectors(group, count):
    return lambda file: MapFileVectorStore(file).delete(
        _vectors(file, group), keys=_own_keys(file, group)[:count]
    )


def _copy_vector(group):
    def plant(file):
        store, collection = MapFileVectorStore(file), _vectors(file, group)
        [row] = store.get(collection, _own_keys(file, group)[:1])
        store.upsert(collection, [replace(row, key=row.key.rpartition("-")[0] + "-99999")])

    return plant


def _other_vectors(group, change, dimension):
    """The same collection with other vectors in it, written as rows and read as they lie there."""

    def plant(file):
        store, collection = MapFileVectorStore(file), _vectors(file, group)
        rows = store.scan(collection)
        store.drop(collection)
        store.create(collection, VectorSchema(dimension, "cosine", make_schema(None)))
        store.upsert(
            collection, [VectorRow(row.key, change(row.vector), row.fields) for row in rows]
        )

    return plant


def _no_vector_parts(group):
    def plant(file):
        name = _vectors(file, group)
        with file.writing() as connection:
            connection.execute(
                "DELETE FROM vector_part WHERE collection = (SELECT id FROM vector_collection WHERE name = ?)",
                (name,),
            )

    return plant


_TERM_PARTS = (
    "SELECT term_part.id, arrays, file FROM term_part JOIN space ON space.id = space JOIN node_group "
    "ON node_group.id = node_group WHERE node_group.name = ?"
)
_VECTOR_PARTS = (
    "SELECT vector_part.id, content, arrays FROM vector_part JOIN vector_collection ON vector_collection.id = "
    "vector_part.collection JOIN space ON space.collection = vector_collection.name JOIN node_group "
    "ON node_group.id = node_group WHERE node_group.name = ?"
)
_PARTS = {
    "terms": (_TERM_PARTS, "UPDATE term_part SET arrays = ? WHERE id = ?"),
    "vectors": (_VECTOR_PARTS, "UPDATE vector_part SET content = ? WHERE id = ?"),
}


def _flip(kind, group, at):
    """One byte of a part is another one, in the SQLite file or in an array file."""

    def plant(file):
        select, update = _PARTS[kind]
        with file.reading() as connection:
            number, content, name = connection.execute(select, (group,)).fetchone()
        if content is None:
            path = file.arrays.folder / name
            path.write_bytes(_flipped(path.read_bytes(), at))
        else:
            with file.writing() as connection:
                connection.execute(update, (_flipped(content, at), number))

    return plant


def _flipped(content, at):
    return content[:at] + bytes([content[at] ^ 0xFF]) + (content[at + 1 :] if at != -1 else b"")


def _array_file(kind, group, change):
    def plant(file):
        with file.reading() as connection:
            _, _, name = connection.execute(_PARTS[kind][0], (group,)).fetchone()
        change(file.arrays.folder / name)

    return plant


def _beneath(group):
    """What reads a group's nodes through another group."""
    return ("children",) if group == "word" else ()


def _segment_faults():
    for group in GROUPS:
        read = tuple(f"{what} of {one}" for one in GROUPS[1:] for what in ("terms", "vectors"))
        yield Fault(
            "one node deleted",
            _segments("DELETE FROM segment", group, limit=1),
            "missing",
            group,
            unnoticed=(*read, *_beneath(group)),
        )
        yield Fault(
            "all nodes deleted",
            _segments("DELETE FROM segment", group),
            "missing",
            group,
            unnoticed=(*read, *_beneath(group)),
        )
        yield Fault("collection gone", _drop_segments(group), "missing", group, unnoticed=read)
        yield Fault(
            "build nobody knows",
            _copy_segment(group, lambda row: row._replace(build=99999)),
            "orphan",
            group,
            "",
        )
        yield Fault(
            "made of something else",
            _of_group("UPDATE build SET input = 'another'", group),
            "stale",
            group,
        )
    for group in GROUPS[1:]:
        yield Fault(
            "another parent",
            _segments("UPDATE segment SET parent = ?", group, "nobody", limit=1),
            "dangling",
            group,
        )
        yield Fault(
            "made of another build",
            _of_group("UPDATE build SET parent = 99999", group),
            "dangling",
            group,
        )


def _index_faults():
    for group in GROUPS[1:]:
        terms, vectors = f"{group} by en", f"{group} by default"
        own = (f"vectors of {group}",)
        yield Fault(
            "one vector deleted", _delete_vectors(group, 1), "missing", vectors, unnoticed=own
        )
        yield Fault(
            "all vectors of a file deleted",
            _delete_vectors(group, 9),
            "missing",
            vectors,
            unnoticed=own,
        )
        yield Fault("all vectors gone", _no_vector_parts(group), "missing", vectors, unnoticed=own)
        yield Fault("vectors' collection gone", _drop_vectors(group), "damaged", vectors, "")
        yield Fault("vector nobody knows", _copy_vector(group), "orphan", vectors, "")
        yield Fault(
            "shorter vectors",
            _other_vectors(group, lambda one: one[:5].copy(), 5),
            "dimension",
            vectors,
        )
        yield Fault(
            "terms gone",
            _of_index("DELETE FROM term_part", "terms", group),
            "missing",
            terms,
            unnoticed=(f"terms of {group}",),
        )


def _part_faults():
    for group in GROUPS[1:]:
        for kind, name in (("terms", "en"), ("vectors", "default")):
            where = f"{group} by {name}"
            yield Fault(f"{kind}: first byte", _flip(kind, group, 0), "damaged", where, "")
            yield Fault(
                f"{kind}: a byte of the header", _flip(kind, group, 20), "damaged", where, ""
            )
            for at in (-1, -40):
                yield Fault(
                    f"{kind}: byte {at}",
                    _flip(kind, group, at),
                    "damaged",
                    where,
                    "",
                    unnoticed=(f"{kind} of {group}",),
                )


def _file_faults():
    for group in GROUPS[1:]:
        for kind, name in (("terms", "en"), ("vectors", "default")):
            where = f"{group} by {name}"
            yield Fault(
                f"{kind}: file gone", _array_file(kind, group, Path.unlink), "damaged", where, ""
            )
            yield Fault(
                f"{kind}: file cut",
                _array_file(kind, group, lambda path: os.truncate(path, 900)),
                "damaged",
                where,
                "",
            )
            yield Fault(
                f"{kind}: empty file",
                _array_file(kind, group, lambda path: os.truncate(path, 0)),
                "damaged",
                where,
                "",
            )


def _ids(fault):
    return f"{fault.where}: {fault.name}"


FAULTS = [*_segment_faults(), *_index_faults(), *_part_faults()]


def told(problems):
    """Kind, place and document of each problem."""
    return {(one.kind, one.where, one.document) for one in problems}


def found_and_mended(made, shelf, docs, fault):
    """A fault is named, no reading gives what is wrong unless it cannot know, and repairing mends
    it for good.
    """
    assert (fault.kind, fault.where, fault.document) in told(docs.maintenance.verify())
    is_total = fault.name in {"collection gone", "all vectors gone", "vectors' collection gone"}
    # the first query rebuilds it
    with pytest.warns(IngestionWarning, match="had lost") if is_total else nullcontext():
        read = answers(docs)
    wrong = {
        name: value for name, value in read.items() if value not in (StoreError, made.answers[name])
    }
    assert set(wrong) <= set(fault.unnoticed)
    shelf.embed.calls.clear()
    assert docs.maintenance.repair() == ()
    assert list(docs.maintenance.dump()) == made.dump
    assert docs.maintenance.verify() == ()
    assert docs.maintenance.repair() == ()
    assert list(docs.maintenance.dump()) == made.dump
    assert shelf.embed.calls == []
    assert answers(docs) == made.answers


@pytest.mark.sample(25)
@pytest.mark.parametrize("fault", FAULTS, ids=_ids)
def test_a_fault_in_a_store_file(made, tmp_path, fault):
    """It is found, told with its place, and repaired: the dump is what it was, and nothing is
    embedded for it.
    """
    shelf = made.copied(tmp_path)
    shelf.plant(fault)
    with shelf.open() as docs:
        found_and_mended(made, shelf, docs, fault)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "fault",
    [
        one
        for one in (*_part_faults(), *_file_faults())
        if one.where in {"line by en", "word by default"}
    ],
    ids=_ids,
)
def test_a_fault_in_an_array_file(made_in_files, tmp_path, fault, monkeypatch):
    """The same where parts are large enough for files of their own."""
    monkeypatch.setattr(map_vectors, "_SMALL_BYTES", 0)
    monkeypatch.setattr(term_index, "_SMALL_BYTES", 0)
    shelf = made_in_files.copied(tmp_path)
    shelf.plant(fault)
    with shelf.open() as docs:
        found_and_mended(made_in_files, shelf, docs, fault)


def _held(nodes, tree, group):
    """Where the nodes of a group lie, and the keys of those of b.txt."""
    [document] = [one.uid for one in tree.documents() if one.identity == "b.txt"]
    return nodes.segments, tree.groups[group].collection, tree.build_of(group, document).keys


def _held_vectors(nodes, tree, group):
    """Where its vectors lie, and the same keys."""
    [collection] = [
        one.collection for one in tree.groups[group].indexes.values() if one.kind == "vectors"
    ]
    return nodes.vectors, collection, _held(nodes, tree, group)[2]


def _rewrite(store, collection, keys, **changes):
    [row] = store.get(collection, keys[:1])
    changed = row._replace(**changes) if isinstance(row, Segment) else replace(row, **changes)
    store.upsert(collection, [changed])


MEMORY_FAULTS = {
    "a node deleted": (_held, lambda store, at, keys: store.delete(at, keys=keys[:1]), "missing"),
    "all nodes deleted": (_held, lambda store, at, keys: store.delete(at, keys=keys), "missing"),
    "collection gone": (_held, lambda store, at, keys: store.drop(at), "missing"),
    "build nobody knows": (
        _held,
        lambda store, at, keys: _rewrite(store, at, keys, build=99999),
        "orphan",
    ),
    "another parent": (
        _held,
        lambda store, at, keys: _rewrite(store, at, keys, parent="nobody"),
        "dangling",
    ),
    "a vector deleted": (
        _held_vectors,
        lambda store, at, keys: store.delete(at, keys=keys[:1]),
        "missing",
    ),
    "all vectors deleted": (
        _held_vectors,
        lambda store, at, keys: store.delete(at, keys=keys),
        "missing",
    ),
    "vectors' collection gone": (_held_vectors, lambda store, at, keys: store.drop(at), "damaged"),
    "vector nobody knows": (
        _held_vectors,
        lambda store, at, keys: _rewrite(store, at, keys, key="no-99999"),
        "orphan",
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("group", GROUPS[1:])
@pytest.mark.parametrize("name", MEMORY_FAULTS)
def test_a_fault_in_memory(dataset, made, tmp_path, name, group):
    """In memory as well; without a cache the texts of what is damaged may be embedded again, and no
    others.
    """
    held, plant, kind = MEMORY_FAULTS[name]
    shelf = FaultyShelf(tmp_path, dataset, in_memory=True)
    with shelf.open() as docs:
        asked(docs)
        engine = docs.reader.indexer
        plant(*held(engine.nodes, engine.ledger.tree, group))
        where = f"{group} by default" if held is _held_vectors else group
        assert (kind, where) in {(one.kind, one.where) for one in docs.maintenance.verify()}
        shelf.embed.calls.clear()
        assert docs.maintenance.repair() == ()
        assert list(docs.maintenance.dump()) == made.dump
        damaged = FILES.values() if name.endswith("gone") else [FILES["b.txt"]]
        assert set(shelf.embed.calls) <= {
            one for text in damaged for one in (*text.splitlines(), *text.split())
        }
        assert answers(docs) == made.answers


@pytest.mark.sample(3)
@pytest.mark.parametrize("group", GROUPS)
def test_a_changed_text(made, tmp_path, group):
    """A node whose text is not what was written is found in whatever group it is, and gets its text
    back.
    """
    shelf = made.copied(tmp_path)
    shelf.plant(
        Fault("", _segments("UPDATE segment SET content = ?", group, "hot cocoa", limit=1), "", "")
    )
    with shelf.open() as docs:
        assert {(one.where, one.document) for one in docs.maintenance.verify()} >= {
            (group, "b.txt")
        }
        assert docs.maintenance.repair() == ()
        assert list(docs.maintenance.dump()) == made.dump


@pytest.mark.parametrize("group", GROUPS[1:])
def test_a_node_more_than_was_made(made, tmp_path, group):
    """A node that carries the number of a live build, and was never made by it, is an orphan and
    goes.
    """
    shelf = made.copied(tmp_path)
    extra = _copy_segment(
        group, lambda row: row._replace(uid=child_uids(row.parent, group, [3])[0], number=9)
    )
    shelf.plant(Fault("", extra, "", ""))
    with shelf.open() as docs:
        assert ("orphan", group) in {(one.kind, one.where) for one in docs.maintenance.verify()}
        assert docs.maintenance.repair() == ()
        assert answers(docs) == made.answers


@pytest.mark.sample(3)
@pytest.mark.parametrize("group", GROUPS)
def test_a_document_that_is_live_nowhere(made, tmp_path, group):
    """Where the ledger itself lost the row that makes nodes live, they are missing, and made live
    again.
    """
    shelf = made.copied(tmp_path)
    shelf.plant(Fault("", _of_group("UPDATE build SET until = 0", group), "", ""))
    with shelf.open() as docs:
        assert ("missing", group, "b.txt") in told(docs.maintenance.verify())
        answers(docs)  # nothing but a StoreError
        assert docs.maintenance.repair() == ()
        assert list(docs.maintenance.dump()) == made.dump
        assert answers(docs) == made.answers


def test_a_touched_file_without_a_root(made, tmp_path, dataset):
    """A file that is only looked at, whose root node the ledger lost, is read again: there is
    nothing to go on with.
    """
    own = tmp_path / "dataset"
    shutil.copytree(dataset, own)
    shelf = made.copied(tmp_path)
    shelf.dataset = own
    shelf.plant(Fault("", _of_group("UPDATE build SET until = 0", LAZY_ROOT_NAME), "", ""))
    os.utime(own / "b.txt", (1.5e9, 1.5e9))
    with shelf.open() as docs:
        answers(docs)  # nothing but a StoreError
        assert docs.maintenance.repair() == ()
        assert [node.text for node in docs.get_nodes()] == list(FILES.values())


@pytest.mark.sample(3)
@pytest.mark.parametrize("counts", ["[1]", "[3]", "[1, 1, 1]"])
@pytest.mark.parametrize("group", GROUPS[1:])
def test_a_wrong_number_of_nodes(made, tmp_path, group, counts):
    """A build of which the ledger tells another number of nodes than there are is found, and made
    anew.
    """
    shelf = made.copied(tmp_path)
    shelf.plant(Fault("", _of_group("UPDATE build SET counts = ?", counts, group), "", ""))
    with shelf.open() as docs:
        assert (group, "b.txt") in {(one.where, one.document) for one in docs.maintenance.verify()}
        assert docs.maintenance.repair() == ()
        assert list(docs.maintenance.dump()) == made.dump


@pytest.mark.parametrize("group", GROUPS[1:])
def test_nothing_is_indexed_twice(made, tmp_path, group):
    """Where the ledger forgot that an index holds documents, they do not stand in it twice after a
    sync.
    """
    shelf = made.copied(tmp_path)
    shelf.plant(Fault("", _of_index("DELETE FROM covered", "terms", group), "", ""))
    with shelf.open() as docs:
        docs.sync()
        assert answers(docs) == made.answers
        assert docs.maintenance.repair() == ()
        assert answers(docs) == made.answers


def test_vectors_that_are_no_numbers(made_in_files, tmp_path, monkeypatch):
    """A vector with nan in it, which no store takes but a broken disk may give, is told as one, and
    made anew.
    """
    monkeypatch.setattr(map_vectors, "_SMALL_BYTES", 0)
    shelf = made_in_files.copied(tmp_path)

    def plant(file):
        with file.reading() as connection:
            number, _, name = connection.execute(_PARTS["vectors"][0], ("line",)).fetchone()
        arrays = {one: array.copy() for one, array in file.arrays.open(name).items()}
        arrays["matrix"][:] = np.nan
        written = file.arrays.write(arrays)
        with file.writing() as connection:
            connection.execute("UPDATE vector_part SET arrays = ? WHERE id = ?", (written, number))

    shelf.plant(Fault("", plant, "", ""))
    with shelf.open() as docs:
        assert told(docs.maintenance.verify()) == {
            ("dimension", "line by default", name) for name in FILES
        }
        assert "are not finite" in str(docs.maintenance.verify()[0])
        assert docs.maintenance.repair() == ()
        assert shelf.embed.calls == []
        assert list(docs.maintenance.dump()) == made_in_files.dump


def test_a_store_refuses_what_is_no_vector(made, tmp_path):
    """Nan cannot be planted through a store at all."""
    with (
        closing(StoreFile(made.copied(tmp_path).store)) as file,
        pytest.raises(ConfigError, match="finite"),
    ):
        _other_vectors("line", lambda one: one * np.float32("nan"), 8)(file)


def test_a_damaged_store_file(made, tmp_path):
    """What SQLite itself finds wrong with the file is told."""
    shelf = made.copied(tmp_path)
    with closing(StoreFile(shelf.store)) as file, file.reading() as connection:
        [page] = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'failure'"
        ).fetchone()
        [size] = connection.execute("PRAGMA page_size").fetchone()
    with shelf.store.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 64)
    with shelf.open(read_only=True) as docs:
        assert ("damaged", "the store file", "") in told(docs.maintenance.verify())


def test_a_touched_file_takes_no_wrong_text_over(made, tmp_path, dataset):
    """A root node is made anew of the one before only if that is what was written: a damage is
    never made official.
    """
    own = tmp_path / "dataset"
    shutil.copytree(dataset, own)
    shelf = made.copied(tmp_path)
    shelf.dataset = own
    with shelf.open() as docs:
        docs.sync()
    shelf.plant(
        Fault("", _segments("UPDATE segment SET content = ?", LAZY_ROOT_NAME, "hot cocoa"), "", "")
    )
    os.utime(own / "b.txt", (1.5e9, 1.5e9))
    with shelf.open() as docs:
        try:
            docs.sync()
        except StoreError:
            assert docs.maintenance.repair() == ()
        docs.maintenance.repair()
        assert [node.text for node in docs.get_nodes()] == list(FILES.values())


def test_a_healthy_store(made, tmp_path):
    """A whole store has no problem, and repairing changes nothing and calls nobody."""
    shelf = made.copied(tmp_path)
    with shelf.open() as docs:
        assert docs.maintenance.verify() == ()
        assert docs.maintenance.repair() == ()
        assert list(docs.maintenance.dump()) == made.dump
        assert shelf.embed.calls == []


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in a file", "in memory"])
def test_nothing_is_found_after_any_work(tmp_path, monkeypatch, where):
    """Edits, moves, deletions, texts, metadata, rollbacks and other definitions leave a store
    without a problem.
    """
    monkeypatch.setattr(opening, "_GRACE_S", 0.0)
    shelf = ShelfOfWords(tmp_path, FILES, in_memory=where == "in memory")

    def edit():
        (shelf.dataset / "b.txt").write_text("iced coffee\nwarm milk\nrum")
        docs.sync()

    def move():
        (shelf.dataset / "c.txt").rename(shelf.dataset / "d.txt")
        docs.sync()

    def redefine():
        docs.create_node_group(
            "line", transform=lambda text: text.upper().splitlines(), replace=True
        )
        docs.activate_group("line", "word")
        Retriever(docs, "line")("tea")

    works = [
        edit,
        move,
        lambda: docs.versions.rollback("b.txt"),
        lambda: docs.add_texts({"note": "one more\ntext"}),
        lambda: docs.update_metadata({"note": {"year": 2024}, "a.txt": {"year": 2023}}),
        redefine,
        lambda: docs.delete_files(["note"]),
        lambda: docs.sync(),  # noqa: PLW0108  docs is not there yet
    ]
    with shelf.open(keep_versions=1) as docs:
        assert docs.maintenance.verify() == ()
        asked(docs)
        for work in works:
            assert docs.maintenance.verify() == ()
            work()
        assert docs.maintenance.verify() == ()


def test_a_failing_document_is_no_fault(tmp_path):
    """What a step failed for is a failure that the report tells, and no problem of the store."""
    (tmp_path / "dataset").mkdir()
    for name, text in FILES.items():
        (tmp_path / "dataset" / name).write_text(text)

    def lines(text):
        if "coffee" in text:
            raise ValueError(text)
        return text.splitlines()

    docs = Document(
        tmp_path / "dataset",
        store_conf={"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "s.db")}}},
    )
    with docs:
        docs.create_node_group("line", transform=lines)
        with pytest.warns(Warning, match=r"b\.txt"):
            docs.activate_group("line")
        assert docs.maintenance.verify() == ()
        assert docs.maintenance.repair() == ()
        assert [node.path for node in docs.get_nodes("line")] == [
            "a.txt",
            "a.txt",
            "c.txt",
            "c.txt",
        ]


def _lose_root(document):
    def plant(file):
        with file.writing() as connection:
            connection.execute(
                "DELETE FROM segment WHERE id IN (SELECT segment.id FROM segment JOIN segment_origin "
                "ON segment_origin.id = segment.origin WHERE node_group = ? AND path = ?)",
                (LAZY_ROOT_NAME, document),
            )

    return Fault("", plant, "missing", LAZY_ROOT_NAME, document)


@pytest.mark.slow
def test_a_text_that_is_lost_stays_a_problem(made, tmp_path):
    """What was added as text has no source: it is told by every repair, until it is added again or
    deleted.
    """
    shelf = made.copied(tmp_path)
    with shelf.open() as docs:
        docs.add_texts({"note": "rose hip", "other": "mint"})
        whole = list(docs.maintenance.dump())
    shelf.plant(_lose_root("note"))
    with shelf.open() as docs:
        assert ("missing", LAZY_ROOT_NAME, "note") in told(docs.maintenance.verify())
        for _ in range(2):
            [left] = docs.maintenance.repair()
            assert (left.kind, left.where, left.document) == ("missing", LAZY_ROOT_NAME, "note")
            assert "its source is gone" in str(left)
        assert "rose hip" not in [node.text for node in docs.get_nodes("line")]
        assert "mint" in [node.text for node in docs.get_nodes("line")]
        docs.add_texts({"note": "rose hip"})
        assert docs.maintenance.verify() == ()
        assert list(docs.maintenance.dump()) == whole


def test_a_lost_text_can_be_deleted(made, tmp_path):
    """Whoever has no copy of a lost text lets it go, and the store is whole again."""
    shelf = made.copied(tmp_path)
    with shelf.open() as docs:
        docs.add_texts({"note": "rose hip"})
    shelf.plant(_lose_root("note"))
    with shelf.open() as docs:
        docs.maintenance.repair()
        docs.delete_files(["note"])
        assert docs.maintenance.verify() == ()
        assert list(docs.maintenance.dump()) == made.dump


def test_a_lost_file_that_is_gone_is_deleted(made, tmp_path, dataset):
    """A document whose root node and whose file are both gone is deleted like any other whose file
    is gone.
    """
    own = tmp_path / "dataset"
    shutil.copytree(dataset, own)
    shelf = made.copied(tmp_path)
    shelf.dataset = own
    shelf.plant(_lose_root("b.txt"))
    (own / "b.txt").unlink()
    with shelf.open() as docs:
        assert docs.maintenance.repair() == ()
        assert [node.path for node in docs.get_nodes()] == ["a.txt", "c.txt"]


def test_other_programs_see_what_was_repaired(made, tmp_path):
    """A reader that found a hole reads what the repair of another program made."""
    shelf = made.copied(tmp_path)
    shelf.plant(Fault("", _segments("DELETE FROM segment", "line"), "", ""))
    with shelf.open(read_only=True) as reader:
        with pytest.raises(StoreError, match=r"2 nodes of group 'line'.*repair\(\)"):
            reader.get_nodes("line")
        assert told(reader.maintenance.verify()) >= {("missing", "line", "b.txt")}
        with shelf.open() as docs:
            docs.maintenance.repair()
        assert answers(reader) == made.answers
        assert reader.maintenance.verify() == ()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{}, {"read_only": True}], ids=["a writer", "a reader"])
def test_nothing_is_found_beside_a_writer(tmp_path, arguments):
    """While another program edits and syncs again and again, what it is at is never taken for a
    fault.
    """
    shelf = ShelfOfWords(tmp_path, FILES)
    ended, synced, errors = threading.Event(), threading.Event(), []

    def work():
        try:
            for number in itertools.count():
                (shelf.dataset / "a.txt").write_text(f"tea {number}\nmilk")
                docs.sync()
                synced.set()
                if ended.is_set():
                    return
        except Exception as exc:  # noqa: BLE001  a thread's errors are asserted on below
            errors.append(exc)

    with shelf.open() as docs:
        asked(docs)
        with shelf.open(**arguments) as looking:
            thread = threading.Thread(target=work)
            thread.start()
            try:
                assert synced.wait(30)
                for _ in range(8):
                    assert looking.maintenance.verify() == ()
            finally:
                ended.set()
                thread.join()
        assert errors == []


def test_a_reader_repairs_nothing(made, tmp_path):
    """With read_only=True a store can be verified, and a repair is refused."""
    shelf = made.copied(tmp_path)
    with shelf.open(read_only=True) as docs:
        assert docs.maintenance.verify() == ()
        with pytest.raises(StoreError, match="read_only"):
            docs.maintenance.repair()


@pytest.mark.parametrize("work", ["verify", "repair"])
def test_a_restricted_view_looks_after_nothing(made, tmp_path, work):
    """Both concern all of a Document: a view of a part is told to ask the whole."""
    with made.copied(tmp_path).open() as docs:
        view = docs.restricted({"file_name": "a.txt"})
        with pytest.raises(ConfigError, match=rf"{work}\(\) is not available on a restricted"):
            getattr(view.maintenance, work)()


def test_a_problem_as_a_sentence():
    """Kind, place, document where it is known, and what."""
    assert str(Problem("orphan", "line", "", "2 nodes")) == "orphan: line: 2 nodes"
    assert (
        str(Problem("missing", "line by en", "a.txt", "all")) == "missing: line by en, a.txt: all"
    )


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.sampled_from(FAULTS), min_size=2, max_size=4, unique_by=id))
def test_several_faults_at_once(made, tmp_path_factory, faults):
    """Whatever is wrong together: something is found, and one repair makes the store what it
    was.
    """
    shelf = made.copied(tmp_path_factory.mktemp("several"))
    with closing(StoreFile(shelf.store)) as file:
        for fault in faults:
            try:
                fault.plant(file)
            except (StoreError, TypeError, ValueError):
                continue  # what it would change is gone by another one
    with shelf.open() as docs:
        assert docs.maintenance.verify() != ()
        assert docs.maintenance.repair() == ()
        assert list(docs.maintenance.dump()) == made.dump
        assert answers(docs) == made.answers


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE node_group SET documents = documents + 1",
        "UPDATE node_group SET nodes = nodes - 1",
        "UPDATE node_group SET filled = 0",
        "UPDATE space SET nodes = nodes + 1",
        "UPDATE term_state SET live = live - 1, dead = x'80'",
        "UPDATE term_state SET tokens = tokens + 1",
    ],
)
def test_a_wrong_count_of_what_is_live(made, tmp_path, change):
    """It is found, and counted again."""
    shelf = made.copied(tmp_path)

    def plant(file):
        with file.writing() as connection:
            connection.execute(change)

    shelf.plant(Fault("", plant, "", ""))
    with shelf.open() as docs:
        assert {one.kind for one in docs.maintenance.verify()} == {"damaged"}
        assert docs.maintenance.repair() == ()
        assert list(docs.maintenance.dump()) == made.dump
        assert answers(docs) == made.answers


def _statement(statement):
    """Run a statement in the store file."""

    def plant(file):
        with file.writing() as connection:
            connection.execute(statement)

    return plant


def _of_documents(change):
    """A change of the document b.txt."""
    return _statement(f"UPDATE document SET {change} WHERE identity = 'b.txt'")  # noqa: S608


def _of_builds(change, *groups):
    """A change of the builds of b.txt in some groups."""
    change = f"UPDATE build SET {change}"  # noqa: S608

    def plant(file):
        for group in groups:
            _of_group(change, group)(file)

    return plant


_FOREVER = 1 << 62


@pytest.mark.parametrize(
    "plant",
    [
        _of_documents("until = 0"),
        _of_documents("until = 1"),
        _of_documents("since = 1000000"),
        _statement("UPDATE ledger SET changes = 1"),
        _of_builds("since = 1000000", "line"),
        _of_builds("since = 1000000", LAZY_ROOT_NAME),
        _of_builds("until = 1000000", "line"),
        _of_builds("until = 1000000", LAZY_ROOT_NAME),
        _of_builds("until = 0", LAZY_ROOT_NAME),
        _of_builds("status = 'writing'", "line"),
        _of_builds("status = 'writing'", LAZY_ROOT_NAME),
    ],
)
def test_a_damaged_interval(made_of_texts, tmp_path, plant):
    """It is found, and corrected by the status and the counter of changes: a text has no other
    source.
    """
    shelf = made_of_texts.copied(tmp_path)
    shelf.plant(Fault("", plant, "", ""))
    with shelf.open() as docs:
        assert "damaged" in {problem.kind for problem in docs.maintenance.verify()}
        assert docs.maintenance.repair() == ()
        assert docs.maintenance.verify() == ()
        assert list(docs.maintenance.dump()) == made_of_texts.dump
        assert answers(docs) == made_of_texts.answers


@pytest.mark.parametrize(
    "plant",
    [
        _of_documents(f"until = {_FOREVER}"),
        _of_documents("until = 1000000"),
        _of_builds(f"until = {_FOREVER}, since = 1", *GROUPS),
        _of_builds("until = 1000000", *GROUPS),
    ],
)
def test_a_deleted_document_that_is_seen_again(made_of_texts, tmp_path, plant):
    """Whoever deleted it must not find it again."""
    shelf = made_of_texts.copied(tmp_path)
    with shelf.open() as docs:
        docs.delete_files(["b.txt"])
        without = list(docs.maintenance.dump())
    shelf.plant(Fault("", plant, "", ""))
    with shelf.open() as docs:
        assert "damaged" in {problem.kind for problem in docs.maintenance.verify()}
        assert docs.maintenance.repair() == ()
        assert docs.maintenance.verify() == ()
        assert list(docs.maintenance.dump()) == without


@pytest.fixture(scope="module")
def made_of_texts(tmp_path_factory):
    """A whole store of texts, which have no files."""
    folder = tmp_path_factory.mktemp("made_of_texts")
    shelf = FaultyShelf(folder, None)
    with shelf.open() as docs:
        docs.add_texts(FILES)
        return Made(shelf, answers(docs), list(docs.maintenance.dump()))


@pytest.mark.parametrize("group", GROUPS[1:])
def test_a_part_without_its_row_of_live_rows(made, tmp_path, group):
    """Nobody knows which of its rows are live: an error says so, until it is repaired."""
    shelf = made.copied(tmp_path)
    state = "DELETE FROM term_state WHERE part IN (SELECT id FROM term_part{})"
    where = _OF_SPACE.replace("?", "'{}'").format("terms", group)
    shelf.plant(Fault("", _statement(state.format(where)), "", ""))
    with shelf.open() as docs:
        for call in (
            lambda: Retriever(docs, group, similarity="bm25")("tea"),
            lambda: docs.delete_files(["a.txt"]),
        ):
            with pytest.raises(StoreError, match=r"verify\(\) and repair\(\)"):
                call()
        [problem] = docs.maintenance.verify()
        assert (problem.kind, problem.where) == ("damaged", f"{group} by en")
        assert docs.maintenance.repair() == ()
        assert docs.maintenance.verify() == ()
        assert list(docs.maintenance.dump()) == made.dump
        assert answers(docs) == made.answers


@pytest.mark.parametrize("is_gone", [True, False])
def test_documents_are_added_beside_a_damaged_part(made_in_files, tmp_path, is_gone):
    """Verify names it, and repair makes it again."""
    shelf = made_in_files.copied(tmp_path)
    change = Path.unlink if is_gone else lambda path: path.write_bytes(path.read_bytes()[:100])
    shelf.plant(Fault("", _array_file("terms", "line", change), "", ""))
    with shelf.open() as docs:
        assert docs.add_texts({"d": "green tea\ncold water"}).added == ("d",)
        damaged = [one for one in docs.maintenance.verify() if one.kind == "damaged"]
        assert {problem.where for problem in damaged} == {"line by en"}
        assert docs.maintenance.repair() == ()
        hits = Retriever(docs, "line", topk=9, similarity="bm25")("tea")
        assert sorted(node.path for node in hits) == ["a.txt", "a.txt", "d"]
        docs.delete_files(["d"])
        assert list(docs.maintenance.dump()) == made_in_files.dump
        assert answers(docs) == made_in_files.answers
