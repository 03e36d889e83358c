"""Sets that are made at run time: rows in the state folder, which every process of the service
follows.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from lazyrag.errors import LazyRAGError, StoreError
from lazyrag.groups.node_group import INDEX_FIELDS
from lazyrag.server.core.body import Body
from lazyrag.server.core.config import SET_NAME, SetConfig, open_set
from lazyrag.server.core.guard import worker_of
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.core.runtime_sets import RuntimeSet, RuntimeSets, name_is_taken
from lazyrag.server.core.service import Administrator, Service, service_of
from lazyrag.server.jobs import Jobs
from lazyrag.storage.database import Database, FileFormat
from lazyrag.transforms.splitters import SectionSplitter
from lazyrag.types import JsonObject

if TYPE_CHECKING:
    from lazyrag.data.node import DocNode
    from lazyrag.document import Document

router = APIRouter(prefix="/api/v1", tags=["documents"])
log = logging.getLogger("lazyrag.server")

CHUNK_SIZES = (256, 25)
"""Tokens of a chunk, and of what two of them share, unless the metadata ``chunking`` of a file has
others."""

_MOST_LETTERS = 100
_LOOK_S = 0.1
_CLOSE_S = 10.0  # for requests that read a set which was deleted


def runtime_sets(service: Service) -> RuntimeSets:
    """The table of a service."""
    table = service.runtime_sets = service.runtime_sets or RuntimeSets(service.state)
    return table


def unopened_sets(service: Service) -> list[str]:
    """Why this process is not ready: a sentence for each set of before its start that it has not
    opened yet.
    """
    listed = service.runtime_sets.list() if service.runtime_sets else []
    names = {
        runtime_set.name
        for runtime_set in listed
        if runtime_set.created <= service.began and not runtime_set.deleted
    }
    return ["A set is being opened." for _ in names - service.sets.keys()]  # anyone may read it


def create_set(service: Service, name: str, principal: Principal) -> RuntimeSet:
    """Create an empty set. All processes have it within a second; until then requests about it get
    a 503.

    Args:
        service: The service.
        name: 1 to 100 letters, digits, spaces and ``._-``; it begins with a letter or digit, and
            ends with no space.
        principal: Who creates it: an administrator of all documents.

    Raises:
        ProblemError: 403 if the principal may not, 409 if the name is taken, 422 if it is no name.
    """
    _require_administrator(principal)
    if len(name) > _MOST_LETTERS or not re.fullmatch(SET_NAME, name):
        remedy = (
            "Use 1 to 100 letters, digits, spaces, '.', '_' or '-', beginning with a letter or"
            " digit."
        )
        raise ProblemError(422, f"The name of a set cannot be {name!a:.120}.", remedy)
    table = runtime_sets(service)
    if name in service.sets.keys() | service.pending.keys() and table.find(name) is None:
        raise name_is_taken(name)
    return table.add(name)


def delete_set(service: Service, name: str, principal: Principal) -> None:
    """Delete a set that was made at run time, with all its documents and files.

    Raises:
        ProblemError: 403 if the principal may not, 404 if there is none, 409 if the configuration
            has it.
    """
    _require_administrator(principal)
    runtime_set = runtime_sets(service).find(name)
    if runtime_set is not None and runtime_sets(service).delete(name):
        service.forget(name)
        for query in ("DELETE FROM attached WHERE store = ?", "DELETE FROM store WHERE id = ?"):
            records(service).write(query, f"vs_{runtime_set.id}")
    elif name in service.sets:
        raise ProblemError(409, f"The configuration has the set {name!r}.", "Remove it there.")
    else:
        raise ProblemError(404, f"There is no set {name!a:.120}.", "GET /api/v1/sets lists them.")


# Records of the OpenAI API, which its modules share; they go with the set that they are about.

_RECORDS = """
CREATE TABLE file (id TEXT PRIMARY KEY, labels TEXT, filename TEXT, purpose TEXT, bytes INTEGER, created INTEGER,
    expires INTEGER, content_hash TEXT);
CREATE TABLE upload (id TEXT PRIMARY KEY, principal TEXT, filename TEXT, purpose TEXT, bytes INTEGER, created INTEGER,
    lasts INTEGER, status TEXT, file TEXT);
CREATE TABLE store (id TEXT PRIMARY KEY, created INTEGER, active INTEGER, details TEXT);
CREATE TABLE attached (number INTEGER PRIMARY KEY, store TEXT, file TEXT, identity TEXT, labels TEXT, bytes INTEGER,
    metadata TEXT, batch TEXT, job TEXT, created INTEGER);
CREATE INDEX attached_file ON attached (store, file);
CREATE INDEX attached_batch ON attached (batch);
"""
_LOST_RECORDS = (
    "Restore it from a backup, or delete it: files must be uploaded again, sets keep their"
    " documents."
)
_RECORDS_FORMAT = FileFormat(
    "file of OpenAI objects",
    int.from_bytes(b"lzOA", "big"),
    (_RECORDS,),
    when_damaged=_LOST_RECORDS,
)


class Records:
    """Files, uploads, and what vector stores have beside their sets, in a file that all processes
    share.
    """

    def __init__(self, service: Service) -> None:
        service.state.mkdir(parents=True, exist_ok=True)
        self.folder = service.state / "uploads" / ".openai"
        self._file = Database(service.state / "openai.db", _RECORDS_FORMAT)

    def select(self, query: str, *values: Any) -> list[JsonObject]:
        """Rows as mappings."""
        with self._file.reading() as connection:
            cursor = connection.execute(query, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def write(self, statement: str, *values: Any) -> None:
        """Run a statement that writes."""
        with self._file.writing() as connection:
            connection.execute(statement, values)

    def insert(self, table: str, rows: Iterable[JsonObject]) -> None:
        """Insert rows, or replace those with their keys."""
        with self._file.writing(durable=True) as connection:
            for row in rows:
                columns = ", ".join(row)
                values = ", ".join(f":{column}" for column in row)
                connection.execute(
                    f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({values})",  # noqa: S608
                    row,
                )


def records(service: Service) -> Records:
    """The records of a service."""
    opened: Records = service.records or Records(service)
    service.records = opened
    return opened


def _require_administrator(principal: Principal) -> None:
    if not principal.is_administrator:
        msg = "Sets are created and deleted by administrators of all documents."
        raise ProblemError(403, msg, "Use a token with the scope admin and without labels.")


class NewSet(Body):
    """A set to create."""

    name: Annotated[str, Field(max_length=100)]


class SetName(Body):
    """A set that was created."""

    name: str


@router.post("/sets", status_code=201)
async def post_set(body: NewSet, request: Request, principal: Administrator) -> SetName:
    """Create an empty set with the embedding model of the configuration; it answers within a
    second.
    """
    service = service_of(request)
    await service.run(create_set, service, body.name, principal)
    return SetName(name=body.name)


@router.delete("/sets/{set}", status_code=204)
async def delete_a_set(
    set: str,  # noqa: A002
    request: Request,
    principal: Administrator,
) -> Response:
    """Delete a set that was created at run time, with its documents and uploaded files."""
    service = service_of(request)
    await service.run(delete_set, service, set, principal)
    return Response(status_code=204)


# In every process


class FileSplitter(SectionSplitter):
    """Splits as the built-in groups do, a file with the metadata ``chunking`` in sizes of its
    own.
    """

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """Split a document."""
        sizes = node.global_metadata.get("chunking") or node.metadata.get("chunking")
        return super().transform(node) if sizes is None else SectionSplitter(*sizes).transform(node)


class SetFollower:
    """Opens the sets of a table in this process, and closes those that are deleted.

    Args:
        table: The table.
        service: Where they are read; None in the writer process.
        write: Whether this process writes them: then it runs their jobs, and removes the files of
            deleted ones.
    """

    def __init__(self, table: RuntimeSets, service: Service | None, *, write: bool) -> None:
        self.table = table
        self.service = service
        self.write = write
        self._open: dict[str, _OpenSet] = {}
        self._failing: dict[str, str] = {}

    def run(self, stop: threading.Event) -> None:
        """Follow the table until an event is set; then end what runs, and close."""
        while not stop.wait(_LOOK_S):
            try:
                self.look()
            except StoreError as exc:
                self._note("", exc)
        for opened in self._open.values():
            opened.stop.set()
        for opened in self._open.values():
            opened.close()

    def look(self) -> None:
        """Follow the table once."""
        listed = self.table.list()
        for runtime_set in listed:
            if not runtime_set.deleted and runtime_set.id not in self._open:
                try:
                    self._open[runtime_set.id] = self._open_one(runtime_set)
                    self._failing.pop(runtime_set.name, None)
                except (LazyRAGError, OSError) as exc:
                    self._note(runtime_set.name, exc)
        for set_id in self._open.keys() - {
            runtime_set.id for runtime_set in listed if not runtime_set.deleted
        }:
            opened = self._open.pop(set_id)
            if self.service is not None:
                self.service.forget(opened.name)
            if self.write:
                opened.close()
            else:  # requests may still read it
                timer = threading.Timer(_CLOSE_S, opened.close)
                timer.daemon = True
                timer.start()
        for runtime_set in listed:
            if runtime_set.deleted and self.write:
                self.table.remove(runtime_set)

    def _open_one(self, runtime_set: RuntimeSet) -> _OpenSet:
        """Open a set; for reading, as soon as the writer process has built its groups."""
        chosen = SetConfig(
            store=self.table.folder(runtime_set), embed=runtime_set.embed or None, watch=False
        )
        docs = open_set(runtime_set.name, chosen, self.table.state, write=self.write)
        docs.create_node_group("MediumChunk", FileSplitter(*CHUNK_SIZES), index_fields=INDEX_FIELDS)
        try:
            if not self.write:
                for group in chosen.groups:
                    docs.get_nodes(group, limit=0)
            opened = _OpenSet(
                runtime_set.name, docs, self.table.state, chosen if self.write else None
            )
        except LazyRAGError:
            docs.close()
            raise
        if self.service is not None:
            self.service.sets[runtime_set.name] = docs
        return opened

    def _note(self, name: str, error: Exception) -> None:
        # which says that it is not built
        if type(error) is not StoreError and self._failing.get(name) != str(error):
            self._failing[name] = str(error)
            log.warning("set %s: %s", name, error, exc_info=not isinstance(error, LazyRAGError))


class _OpenSet:
    """An open set; with a configuration, and a thread that runs its jobs."""

    def __init__(
        self, name: str, docs: Document, state: Path, chosen: SetConfig | None = None
    ) -> None:
        self.name = name
        self.docs = docs
        self.stop = threading.Event()
        self._thread: threading.Thread | None = None
        if chosen is not None:
            Jobs(docs).submit("activate_group", chosen.build_arguments(docs))
            run = functools.partial(worker_of(name, docs, state).run, self.stop)
            self._thread = threading.Thread(target=run, name=f"lazyrag jobs {name}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Hand back the running job, and close. Idempotent."""
        self.stop.set()
        if self._thread is not None:
            self._thread.join()
        self.docs.close()
