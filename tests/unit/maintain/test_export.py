"""Exports prove themselves: what was cut, altered or points elsewhere is refused before anything is
written.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sqlite3
import threading
from contextlib import closing

import numpy as np
import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError, StoreError
from lazyrag.maintain import export

TEXTS = {"a": "green tea\nblack tea", "b": "hot coffee", "c": "still water\nred wine"}


def embed(text):
    """A vector for a text."""
    return [float(len(text)), float(text.count("e")), 1.0]


def weigh(text):
    """A sparse vector for a text."""
    return {len(word): float(text.count(word)) for word in text.split()}


def shown(text):
    """The lines of a text that are not hidden."""
    return [line for line in text.splitlines() if not line.startswith("~")]


EMBED = {"dense": embed, "sparse": weigh}


def opened(**arguments):
    """A Document with a group of lines."""
    docs = Document(embed=EMBED, **arguments)
    docs.create_node_group("line", transform=str.splitlines)
    return docs


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A folder that was exported, and the dump of what it holds."""
    with opened() as docs:
        docs.add_texts(TEXTS, {"b": {"kind": "drink"}})
        for key in EMBED:
            Retriever(docs, "line", embed_keys=[key])("tea")
        return docs.maintenance.export(tmp_path_factory.mktemp("export") / "out"), list(
            docs.maintenance.dump()
        )


@pytest.fixture
def copy(original, tmp_path):
    """A copy of the folder that a test may damage."""
    target = tmp_path / "copy"
    target.mkdir()
    for path in original[0].iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def manifest_of(folder):
    """The manifest as it is."""
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def write_manifest(folder, manifest):
    """Write a manifest with a digest that fits, as somebody who forges one would."""
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    manifest["sha256"] = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def downgrade(folder):
    """Make it an export of format 1, which had no checksums."""
    manifest = manifest_of(folder)
    del manifest["files"], manifest["sha256"]
    manifest["lazyrag export"] = 1
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def check_refused(folder, original, error, words):
    """Importing raises an error, nothing is live, and the Document can import a sound export
    afterwards.
    """
    with opened() as docs:
        with pytest.raises(error, match=words):
            docs.maintenance.import_from(folder)
        assert [line for line in docs.maintenance.dump() if '"is": "group"' not in line] == []
        assert docs.maintenance.verify() == ()
        assert docs.maintenance.import_from(original[0]) == len(TEXTS)
        assert nodes(docs.maintenance.dump()) == nodes(original[1])


def nodes(dump):
    """The lines of documents, nodes and vectors of a dump."""
    return [line for line in dump if json.loads(line)["is"] in ("document", "node", "vectors")]


def test_the_manifest_lists_rows_and_digests(original):
    """Every file but the manifest is in it, with its rows and its SHA-256."""
    folder, _ = original
    files = manifest_of(folder)["files"]
    assert {*files, "manifest.json"} == {path.name for path in folder.iterdir()}
    for name, told in files.items():
        assert told["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert {
        name: files[name]["rows"] for name in ("documents.jsonl", "nodes-0.jsonl", "nodes-1.jsonl")
    } == {
        "documents.jsonl": 3,
        "nodes-0.jsonl": 3,
        "nodes-1.jsonl": 5,
    }
    assert sorted(told["rows"] for name, told in files.items() if name.startswith("vectors")) == [
        5,
        5,
        5,
        5,
    ]


def test_a_sound_export(original):
    """It gives the same nodes and vectors, without calling the embed callables."""
    with opened() as docs:
        assert docs.maintenance.import_from(original[0]) == len(TEXTS)
        assert nodes(docs.maintenance.dump()) == nodes(original[1])
        assert docs.maintenance.verify() == ()


def test_the_order_in_which_indexes_were_made_is_not_in_an_export(tmp_path):
    """The same files, whatever index came first."""

    def exported(name, *activations):
        with opened() as docs:
            docs.add_texts(TEXTS)
            for activation in activations:
                docs.activate_group("line", **activation)
            folder = docs.maintenance.export(tmp_path / name)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    terms = {"analysers": ["en"]}
    vectors = {"embed_keys": ["dense"]}
    assert exported("a", terms, vectors) == exported("b", vectors, terms)


NAMES = (
    "documents.jsonl",
    "nodes-0.jsonl",
    "nodes-1.jsonl",
    "vectors-1-0.npy",
    "vectors-1-1.npz",
    "vectors-1-0.json",
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["cut in half", "altered", "longer", "missing"])
def test_a_damaged_file(copy, original, name, damage):
    """Each is refused by its name, before anything is written."""
    path = copy / name
    data = path.read_bytes()
    if damage == "cut in half":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "altered":
        path.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
    elif damage == "longer":
        path.write_bytes(data + data)
    else:
        path.unlink()
    with opened() as docs:
        writes = []
        docs.reader.indexer.nodes.segments.create = lambda *arguments: writes.append(arguments)
        with pytest.raises(
            StoreError, match=rf"{name} of the export.*is damaged.*Copy the export again"
        ):
            docs.maintenance.import_from(copy)
        assert writes == []
        assert list(docs.maintenance.dump()) == []


@pytest.mark.parametrize("cut", [0.5, 0.95])
def test_a_manifest_that_was_cut(copy, original, cut):
    """It is no export any more."""
    path = copy / "manifest.json"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * cut)])
    check_refused(copy, original, ConfigError, "is not an export")


def test_a_manifest_that_was_altered(copy, original):
    """Its own digest does not fit."""
    path = copy / "manifest.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"line"', '"lime"'), encoding="utf-8")
    check_refused(
        copy, original, StoreError, r"manifest\.json of the export.*differs from its SHA-256"
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name",
    ["../secret.jsonl", "sub/../../secret.jsonl", "..", "", ".", "a\\b.jsonl", "C:x", 7, None],
)
@pytest.mark.parametrize("format_", [1, 2])
def test_a_path_that_leaves_the_folder(copy, original, name, format_):
    """Relative paths with parts, and what is no name at all, are refused in both formats."""
    (copy.parent / "secret.jsonl").write_bytes((copy / "nodes-1.jsonl").read_bytes())
    manifest = manifest_of(copy)
    known = manifest["files"]["nodes-1.jsonl"]
    manifest["groups"][1]["nodes"] = name
    manifest["files"][str(name)] = known
    write_manifest(copy, manifest)
    if format_ == 1:
        downgrade(copy)
    check_refused(copy, original, StoreError, "is not a file in the folder itself|is missing")


def test_an_absolute_path(copy, original, tmp_path):
    """It is refused, though its file has the right digest."""
    secret = tmp_path / "secret.jsonl"
    secret.write_bytes((copy / "nodes-1.jsonl").read_bytes())
    manifest = manifest_of(copy)
    manifest["groups"][1]["nodes"] = str(secret)
    manifest["files"][str(secret)] = manifest["files"]["nodes-1.jsonl"]
    write_manifest(copy, manifest)
    check_refused(copy, original, StoreError, "is not a file in the folder itself")


@pytest.mark.parametrize("name", ["nodes-1.jsonl", "manifest.json", "vectors-1-0.npy"])
@pytest.mark.parametrize("format_", [1, 2])
def test_a_symbolic_link(copy, original, tmp_path, name, format_):
    """It may lead anywhere, so it is refused, though what it leads to is right."""
    if format_ == 1:
        downgrade(copy)
    (copy / name).rename(tmp_path / name)
    (copy / name).symlink_to(tmp_path / name)
    check_refused(copy, original, StoreError, "is not a file in the folder itself")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none here")
@pytest.mark.parametrize("name", ["nodes-1.jsonl", "manifest.json"])
def test_a_pipe(copy, original, name):
    """Reading it would wait for ever, so it is refused."""
    (copy / name).unlink()
    os.mkfifo(copy / name)
    check_refused(copy, original, StoreError, "is not a file in the folder itself")


def test_a_file_without_a_checksum(copy, original):
    """A group's file that the manifest does not list is refused."""
    manifest = manifest_of(copy)
    del manifest["files"]["nodes-1.jsonl"]
    write_manifest(copy, manifest)
    check_refused(copy, original, StoreError, r"no checksum of 'nodes-1\.jsonl'")


@pytest.mark.parametrize(
    "name", ["documents.jsonl", "nodes-1.jsonl", "vectors-1-0.npy", "vectors-1-1.npz"]
)
def test_numbers_of_rows_that_do_not_fit(copy, original, name):
    """They are compared with what is read."""
    manifest = manifest_of(copy)
    manifest["files"][name]["rows"] += 1
    write_manifest(copy, manifest)
    check_refused(copy, original, StoreError, "is damaged")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda manifest: manifest.pop("groups"), "KeyError"),
        (lambda manifest: manifest.update(groups=[5]), "TypeError"),
        (lambda manifest: manifest["groups"][1].update(parent="nobody"), "do not form a tree"),
        (lambda manifest: manifest["groups"][1].update(parent=None), "do not form a tree"),
        (lambda manifest: manifest["groups"].reverse(), "do not form a tree"),
        (lambda manifest: manifest.update(files=[]), "no checksum"),
    ],
)
def test_a_manifest_that_makes_no_sense(copy, original, change, words):
    """What was forged with care is refused as damaged, too."""
    manifest = manifest_of(copy)
    change(manifest)
    write_manifest(copy, manifest)
    check_refused(copy, original, StoreError, words)


def test_an_export_of_the_format_before(copy, original):
    """Without checksums it is read as ever."""
    downgrade(copy)
    with opened() as docs:
        assert docs.maintenance.import_from(copy) == len(TEXTS)
        assert nodes(docs.maintenance.dump()) == nodes(original[1])
        assert docs.maintenance.verify() == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_the_format_before_that_was_cut(copy, original, name):
    """It is refused where it cannot be decoded or counted, and nothing of it is live."""
    downgrade(copy)
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[: len(data) // 2])
    check_refused(copy, original, StoreError, "is damaged")


def test_documents_that_the_format_before_lost(copy, original):
    """A line fewer leaves nodes behind, which is detected."""
    downgrade(copy)
    path = copy / "documents.jsonl"
    path.write_text(
        "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8"
    )
    check_refused(copy, original, StoreError, "lacks documents that have nodes")


@pytest.mark.parametrize("number", [0, 3, "2", None])
def test_another_format(copy, original, number):
    """The error says which formats are read."""
    manifest = manifest_of(copy)
    manifest["lazyrag export"] = number
    write_manifest(copy, manifest)
    check_refused(copy, original, ConfigError, "reads 1 and 2")


def test_no_objects_are_unpickled(copy, original):
    """An array of objects would be a program to run: it is refused."""
    downgrade(copy)
    np.save(copy / "vectors-1-0.npy", np.array([print] * 5, object), allow_pickle=True)
    check_refused(copy, original, StoreError, "is damaged")


def test_a_document_without_nodes_is_imported(tmp_path):
    """A document that a group left out, in the group below it as well: the copy is sound."""
    for name in ("original", "copy"):
        with Document() as docs:
            docs.create_node_group("line", transform=shown)
            docs.create_node_group("word", transform=str.split, parent="line")
            if name == "original":
                docs.add_texts({**TEXTS, "hidden": "~ nothing of it"})
                docs.activate_group("word")
                docs.maintenance.export(tmp_path / "out")
                expected = list(docs.maintenance.dump())
            else:
                docs.maintenance.import_from(tmp_path / "out")
                assert list(docs.maintenance.dump()) == expected
            assert docs.maintenance.verify() == ()


def test_an_import_that_is_interrupted_can_be_repeated(copy, monkeypatch):
    """Documents appear in the last transaction: before it the Document is empty."""
    from lazyrag.ledger.ledger import Ledger

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    with opened() as docs:
        with monkeypatch.context() as patched:
            for name in ("flip", "switch"):
                patched.setattr(Ledger, name, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    docs.maintenance.import_from(copy)
                patched.undo()
        assert docs.maintenance.import_from(copy) == len(TEXTS)
        assert docs.maintenance.verify() == ()


def test_documents_that_are_removed_meanwhile(tmp_path, monkeypatch):
    """An export has the documents that were live when it began; where they are purged before it has
    read them, an error says so.
    """
    monkeypatch.setattr("lazyrag.document.open._GRACE_S", 0)
    with opened(store_conf=str(tmp_path / "store.db")) as docs:
        docs.add_texts(TEXTS)
        docs.activate_group("line")
        builds = docs.reader.indexer.ledger.builds
        rows = builds.rows

        def purging(numbers):
            docs.delete_files(["a"])
            docs.maintenance.purge("b")
            return rows(numbers)

        monkeypatch.setattr(builds, "rows", purging)
        with pytest.raises(StoreError, match=r"were removed while.*export\(\) again"):
            docs.maintenance.export(tmp_path / "out")
        monkeypatch.undo()
        assert not (tmp_path / "out").exists()
        folder = docs.maintenance.export(tmp_path / "out")
    assert (folder / "documents.jsonl").read_text(encoding="utf-8").count("\n") == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE segment SET content = 'red tea' WHERE content = 'black tea'",
        "DELETE FROM segment WHERE content = 'black tea'",
    ],
)
def test_nodes_that_differ_from_those_that_were_written(tmp_path, damage):
    """An export is no copy of damage: it says which group, and what to do; nothing of it stays."""
    store = str(tmp_path / "store.db")
    with opened(store_conf=store) as docs:
        docs.add_texts(TEXTS)
        docs.activate_group("line")
    with closing(sqlite3.connect(store)) as connection, connection:
        assert connection.execute(damage).rowcount == 1
    with opened(store_conf=store) as docs:
        with pytest.raises(StoreError, match=r"rows of group 'line'.*verify\(\) and repair"):
            docs.maintenance.export(tmp_path / "out")
        assert list(tmp_path.glob("out*")) == []
        assert docs.maintenance.repair() == ()
        docs.maintenance.export(tmp_path / "out")


def test_an_interrupted_import_is_continued(original, tmp_path, monkeypatch):
    """What it has written keeps its number and is not written again, also by another program."""
    folder, expected = original
    monkeypatch.setattr("lazyrag.maintain.export.BATCH_ROWS", 1)
    written = []

    def observed(docs, last):
        segments = docs.reader.indexer.nodes.segments
        upsert = segments.upsert

        def write(collection, rows):
            if len(written) >= last:
                raise KeyboardInterrupt
            written.extend(row.key for row in rows)
            upsert(collection, rows)

        monkeypatch.setattr(segments, "upsert", write)

    with opened(store_conf=str(tmp_path / "copy.db")) as docs:
        observed(docs, 4)
        with pytest.raises(KeyboardInterrupt):
            docs.maintenance.import_from(folder)
    with opened(store_conf=str(tmp_path / "copy.db")) as docs:
        assert docs.status().documents == 0
        observed(docs, 100)
        assert docs.maintenance.import_from(folder) == len(TEXTS)
        assert nodes(docs.maintenance.dump()) == nodes(expected)
        assert docs.maintenance.verify() == ()
    assert len(written) == len(set(written)) == 8  # three root nodes, five lines


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A store file, and a Document that writes it and removes what is deleted at once."""
    monkeypatch.setattr("lazyrag.document.open._GRACE_S", 0.0)
    path = str(tmp_path / "store.db")
    with opened(store_conf=path) as writer:
        writer.add_texts({f"{number:02}": f"tea {number}\nmilk" for number in range(20)})
        Retriever(writer, "line", similarity="bm25")("tea")
        Retriever(writer, "line", embed_keys=["dense"])("tea")
        yield path, writer


def remove(writer):
    """Delete documents, and what stores have of them; in another thread, as another program does."""

    def work():
        writer.delete_files(["03", "15"])
        writer.maintenance.compact()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize("lines", [1, 5, 25, 60])
def test_documents_that_are_removed_during_a_dump(shared, lines):
    """The dump ends with an error, and the next one is whole."""
    path, writer = shared
    with opened(store_conf=path, read_only=True) as reader:
        rest = reader.maintenance.dump()
        for _ in range(lines):
            next(rest)
        remove(writer)
        with pytest.raises(StoreError, match=r"removed while .* Call dump\(\) again"):
            list(rest)
        assert list(reader.maintenance.dump()) == list(writer.maintenance.dump())


def test_documents_that_change_during_a_dump(shared):
    """They are dumped as they were while nothing of them is removed."""
    path, writer = shared
    before = list(writer.maintenance.dump())
    with opened(store_conf=path, read_only=True) as reader:
        rest = reader.maintenance.dump()
        lines = [next(rest)]
        writer.add_texts({"new": "coffee"})
        assert [*lines, *rest] == before


@pytest.mark.parametrize("calls", range(3))
def test_documents_that_are_removed_during_an_export(shared, tmp_path, monkeypatch, calls):
    """The export fails, whichever of its files it writes, and leaves nothing."""
    path, writer = shared
    read_builds = export.read_builds
    numbers = itertools.count()

    def read_after_removal(*arguments):
        if next(numbers) == calls:
            remove(writer)
        return read_builds(*arguments)

    monkeypatch.setattr(export, "read_builds", read_after_removal)
    with opened(store_conf=path, read_only=True) as reader:
        with pytest.raises(StoreError, match=r"removed while .* Call export\(\) again"):
            reader.maintenance.export(tmp_path / "out")
        assert not (tmp_path / "out").exists()
        folder = reader.maintenance.export(tmp_path / "again")
    with opened() as other:
        other.maintenance.import_from(folder)
        assert other.maintenance.verify() == ()
        assert len(other.documents()) == 18


def test_the_order_of_a_dump():
    """Documents come as Python sorts their ids, those with half a surrogate pair among them."""
    ids = ["z", "A", "é", "x\ud800", "xz", "\ud7ff", "\ue000", "😀", "x\udfff", "xa", "a\x00", "a"]
    with opened() as docs:
        docs.add_texts(dict.fromkeys(ids, "tea"))
        lines = map(json.loads, docs.maintenance.dump())
        dumped = [line["identity"] for line in lines if line["is"] == "document"]
        assert dumped == sorted(ids)
        root, *_ = docs.get_nodes("line")
        assert root.path == dumped[0]
