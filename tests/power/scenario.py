"""The programs that lose power: each step of a Document's life, and the program that starts after
it.

See `tests.crash.scenario`, from which the files, groups and queries are, and `tests.forked`.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import traceback
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from lazyrag import Document, migrate, register_loader
from lazyrag.document import open as opening
from lazyrag.errors import IngestionWarning, LazyRAGError, StoreBusyError, StoreError
from lazyrag.ingest import engine as ingest
from lazyrag.ingest import term_index
from lazyrag.ingest.verify import repair_lost
from lazyrag.ledger import lease
from lazyrag.storage import arrays
from lazyrag.storage.database import Database
from lazyrag.stores import sqlite as store_file
from lazyrag.stores import sqlite_vectors
from tests.crash.kills import VECTOR_STORES
from tests.crash.scenario import EMBEDDERS, LINES, QUESTIONS, CrashLoader, _set, ask, pieces
from tests.forked import serve

# which each process would import anew
for _name in ("multiprocessing.synchronize", "numpy.ma", "subprocess"):
    import_module(_name)

PATIENCE_S = 120  # a process that takes longer hangs, and is ended by its alarm
_BATCH = 4  # documents that become live together
_CHECKPOINT_PAGES = 100  # after so many SQLite moves what was committed from its log to its file

LAYOUTS = {
    "one file": {"nodes": "store.db", "vectors": "store.db"},
    "split files": {"nodes": "nodes.db", "vectors": "vectors.db"},
    "three files": {"ledger": "ledger.db", "nodes": "nodes.db", "vectors": "vectors.db"},
}
FOREIGN = {"chroma": "chromadb", "milvus": "milvus_lite pymilvus pandas pyarrow scipy.sparse"}
"""Layouts with vectors in a store of another kind, beside a store file of the nodes and the ledger;
their packages."""


@dataclass(frozen=True, slots=True)
class Step:
    """One program.

    Args:
        name: Its name.
        run: The program; it may be repeated if it was interrupted.
        after: The step whose store it goes on with; "" for none.
        files: Which state of the files it finds: ``"first"`` or ``"edited"``.
        target: Prefix of the store's files that it changes.
        prepare: Changes the store before the program begins.
        is_damaged: Whether the store is damaged before.
    """

    name: str
    run: Callable[[Place], None]
    after: str = "ingest"
    files: str = "first"
    target: str = ""
    prepare: Callable[[Place], None] = lambda _: None
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A store folder, its layout, and the files that are ingested."""

    step: Step
    layout: str
    files: Path
    store: Path

    @property
    def exported(self) -> Path:
        """The folder of the export."""
        return self.store / "exported"

    def conf(self, prefix: str) -> dict[str, Any]:
        """The store_conf."""
        if self.layout in FOREIGN:
            nodes = {"type": "map", "kwargs": {"uri": str(self.store / f"{prefix}nodes.db")}}
            return {"segment_store": nodes, "vector_store": VECTOR_STORES[self.layout](self.store)}
        uris = {
            part: str(self.store / (prefix + name)) for part, name in LAYOUTS[self.layout].items()
        }
        ledger = {"ledger": uris["ledger"]} if "ledger" in uris else {}
        stores = {"segment_store": uris["nodes"], "vector_store": uris["vectors"]}
        return {
            **ledger,
            **{part: {"type": "map", "kwargs": {"uri": uri}} for part, uri in stores.items()},
        }

    def open(self, prefix: str | None = "", *, read_only: bool = False) -> Document:
        """The Document; in memory for None. Beside that of the files, Documents only have what is
        copied to them.
        """
        docs = Document(
            str(self.files / self.step.files) if prefix == "" else None,
            embed={
                key: made()
                for key, made in EMBEDDERS.items()
                if key == "dense" or self.layout != "chroma"
            },
            store_conf=None if prefix is None else self.conf(prefix),
            read_only=read_only,
            keep_versions=2,
            workers=1,
        )
        docs.create_node_group("line", transform=LINES[1])
        docs.create_node_group("piece", transform=pieces, parent="line")
        return docs

    @property
    def questions(self) -> list[tuple[str, str, str]]:
        """Those that the store can answer: Chroma has no sparse vectors."""
        return [one for one in QUESTIONS if one[1] != "sparse" or self.layout != "chroma"]

    def note_return(self) -> None:
        """Note in the record that the program's last call has returned; the store is still open."""
        with suppress(FileNotFoundError):
            (self.store / ".mark-returned").unlink()


def _sync(place: Place) -> None:
    with place.open() as docs:
        docs.sync()
        for question in place.questions:
            ask(docs, question)
        place.note_return()


def _delete(place: Place) -> None:
    with place.open() as docs:
        listed = {json.loads(line).get("identity") for line in docs.maintenance.dump()}
        docs.delete_files([name for name in ("gone.txt", "old.txt", "long.txt") if name in listed])
        # has no nodes: no file goes, for which all would be flushed
        docs.delete_files(listed & {"hidden.txt"})
        place.note_return()


def _rollback(place: Place) -> None:
    with place.open() as docs:
        for name in ("edited.txt", "茶.txt"):
            if len(docs.versions.list(name)) == 2:
                docs.versions.rollback(name, 1)
        place.note_return()


def _repair(place: Place) -> None:
    with place.open() as docs:
        docs.maintenance.repair()
        place.note_return()


def _compact(place: Place) -> None:
    with place.open() as docs:
        docs.maintenance.compact()
        place.note_return()


def _damage(place: Place) -> None:
    """Take nodes, vectors and an array file away."""
    names = LAYOUTS[place.layout]
    for name, statement in (
        (names["nodes"], "DELETE FROM segment WHERE id % 9 = 0"),
        (names["vectors"], "DELETE FROM vector_part WHERE id = (SELECT min(id) FROM vector_part)"),
    ):
        with closing(sqlite3.connect(place.store / name)) as connection, connection:
            connection.execute(statement)
    for folder in place.store.glob("*.db.d"):
        for path in sorted(folder.glob("*.arr"))[:1]:
            path.unlink()


def _migrate(place: Place) -> None:
    try:
        migrate(place.conf(""), place.conf("new-"))
    except StoreError as exc:
        if "nothing left to do" not in str(exc):
            raise
    place.note_return()


def _export_import(place: Place) -> None:
    with place.open("new-") as docs:
        if docs.status().documents:
            return
        with place.open() as source:
            if not place.exported.exists():
                source.maintenance.export(place.exported)
        docs.maintenance.import_from(place.exported)
        place.note_return()


STEPS = {
    step.name: step
    for step in (
        Step("ingest", _sync, after=""),
        Step("sync", _sync, files="edited"),
        Step("delete", _delete),
        Step("rollback", _rollback, after="sync", files="edited"),
        Step("compact", _compact, after="sync", files="edited"),
        Step("repair", _repair, prepare=_damage, is_damaged=True),
        Step("migrate", _migrate, target="new-"),
        Step("export and import", _export_import, target="new-"),
    )
}


def run(place: Place) -> dict[str, Any]:
    """The program, to its end."""
    place.step.run(place)
    return {}


def look(place: Place) -> dict[str, Any]:
    """The program that starts next: whether it can, what it sees, and what is wrong."""
    prefix = place.step.target
    try:
        with place.open(prefix) as docs:
            if place.layout in FOREIGN:  # as each sync begins, without what it would ingest then
                indexer = docs._indexer
                with indexer.writing():
                    repair_lost(indexer)
            problems = [str(problem) for problem in docs.maintenance.verify()]
        with place.open(prefix, read_only=True) as docs:
            answers = [_answer(docs, question) for question in place.questions]
            found = {
                "dump": list(docs.maintenance.dump()),
                "answers": answers,
                "problems": problems,
            }
    except StoreBusyError as exc:
        if prefix and "copy" in str(exc):  # migrate() was interrupted, and is to be called again
            return {"dump": [], "answers": [str(exc)] * len(place.questions), "problems": []}
        raise
    if prefix:
        with place.open() as docs:
            found["source"] = list(docs.maintenance.dump())
    if place.exported.exists():
        with place.open(None) as docs:
            docs.maintenance.import_from(place.exported)
            found["exported"] = list(docs.maintenance.dump())
    return found


def finish(place: Place) -> dict[str, Any]:
    """Repeat the program; what is there then."""
    place.step.run(place)
    return look(place)


def _answer(docs: Document, question: tuple[str, str, str]) -> Any:
    try:
        return ask(docs, question)
    except LazyRAGError as exc:
        return str(exc)


def _configure() -> None:
    """Bring sizes and waiting times down to those of a small dataset."""
    _set(ingest, "_BATCH", _BATCH)
    _set(term_index, "_SMALL_BYTES", 2048)
    _set(sqlite_vectors, "_SMALL_BYTES", 2048)
    _set(store_file, "YOUNG_S", 0.0)
    _set(opening, "_GRACE_S", 0.0)
    connect = sqlite3.connect

    def often_moved(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES:d}")
        return connection

    sqlite3.connect = often_moved


def _write_without_waiting() -> None:
    begin = Database._begin
    _set(Database, "_begin", lambda database, *, durable: begin(database, durable=False))


BREAKS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "no durable transactions": _write_without_waiting,
    "no flush of other files": lambda: _set(Database, "flush", lambda _: None),
    "no flush of folders": lambda: _set(arrays, "sync_folder", lambda _: None),
}
"""What may be taken from the product, so that power cuts must find it."""


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    signal.alarm(PATIENCE_S)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", IngestionWarning)
    if request["do"] in {"look", "finish"}:  # the machine was started again
        for module in (lease, arrays):
            _set(module, "boot_id", lambda: "after the power cut")
    place = Place(
        STEPS[request["step"]], request["layout"], Path(request["files"]), Path(request["store"])
    )
    try:
        if request["do"] == "prepare":
            place.step.prepare(place)
            return {}
        return {"run": run, "look": look, "finish": finish}[request["do"]](place)
    except BaseException:  # noqa: BLE001  reported to the test
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    register_loader(".crash")(CrashLoader)
    for _name in os.environ.get("POWER_PACKAGES", "").split():
        import_module(_name)
    _configure()
    BREAKS[os.environ.get("POWER_BREAK", "")]()
    serve(_reply)
