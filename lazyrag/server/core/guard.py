"""What the service adds to a job where it runs: who submitted it still sees the documents, and
answers go with them.
"""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazyrag.errors import ConfigError
from lazyrag.server.jobs import Jobs, Worker, documents_of
from lazyrag.storage.database import Database, FileFormat
from lazyrag.types import JsonObject

if TYPE_CHECKING:
    import sqlite3

    from lazyrag.document import Document

KEPT_S = 900.0
"""How long an answer can be read again; it quotes documents, so it is not stored longer."""
BOOK = "answers.db"
BOOK_TABLES = """
    CREATE TABLE answer (id TEXT PRIMARY KEY, owner TEXT, question TEXT, created REAL, followed REAL);
    CREATE TABLE event (answer TEXT REFERENCES answer ON DELETE CASCADE, number INTEGER, name TEXT, data TEXT,
        PRIMARY KEY (answer, number)) WITHOUT ROWID;
    CREATE TABLE record (kind TEXT, set_name TEXT, id TEXT, principal TEXT, created REAL, body TEXT,
        PRIMARY KEY (kind, set_name, id)) WITHOUT ROWID;
"""
BOOK_FORMAT = FileFormat(
    "service's notebook", 0x6C726E62, (BOOK_TABLES,), "Move it away: feedback is in it."
)

ADD_EVENT = (
    "INSERT OR IGNORE INTO event SELECT ?1, ?2, ?3, ?4 FROM answer WHERE id = ?1 "
    "AND coalesce((SELECT name FROM event WHERE answer = ?1 ORDER BY number DESC LIMIT 1), '')"
    " <> 'done'"
)
"""Nothing follows the end of an answer, which a purge brings about, too: it has the largest number.
"""

_READ = (
    "SELECT answer.id, event.data FROM answer LEFT JOIN event ON answer = id AND name IN ('done',"
    " ?) WHERE json_extract(owner, '$[0]') IN (?, '/v1/responses')"
)
_KEY = re.compile(r"(\[.*\]):[0-9a-f]{32}")
_MARK = """INSERT INTO answer VALUES (hex(randomblob(16)), '["purge"]', '', ?1, ?1)"""
_GONE = {"detail": "A document that the answer may quote was deleted.", "remedy": "Ask again."}
_END: JsonObject = {
    "state": "CANCELED",
    "question": "",
    "text": None,
    "citations": [],
    "problems": [_GONE],
}
_END |= {"hits": [], "measures": {}}
_LAST = 2**62  # number of the event that ends an answer from outside


def job_key(principal: str, labels: Sequence[str] | None, nonce: str) -> str:
    """The idempotency key of a service's job: it names who submits it, and the labels that
    `guarded` checks.

    Example:
        >>> job_key("local", None, "7f")
        '["local", null]:7f'
    """
    return f"{json.dumps([principal, labels])}:{nonce}"


def open_book(state: Path) -> Database:
    """Open the file of answers, feedback, golden questions and evaluations, which all processes
    share.
    """
    book = Database(state / BOOK, BOOK_FORMAT)
    with book.reading() as connection:
        # answers quote documents, which may be deleted
        connection.execute("PRAGMA secure_delete = ON")
    return book


def worker_of(name: str, docs: Document, state: Path) -> Worker:
    """The worker of a set's jobs."""
    return Worker(docs, functools.partial(guarded, name, docs, state))


def delete_old_answers(state: Path, stop: threading.Event) -> None:
    """Delete answers that are no longer kept, until an event is set."""
    with open_book(state) as book:
        while not stop.wait(KEPT_S / 60):
            with book.writing() as connection:
                connection.execute("DELETE FROM answer WHERE created < ?", (time.time() - KEPT_S,))


@contextmanager
def guarded(
    name: str, docs: Document, state: Path, kind: str, arguments: JsonObject, key: str | None
) -> Iterator[None]:
    """Run a job of a set in this block; see `lazyrag.document.Worker`.

    Raises:
        DatasetPathError: If documents have been hidden from the job's principal since it submitted
            the job.
        ConfigError: If their labels have changed, which the job would undo.
    """
    documents = documents_of(kind, arguments)
    match = _KEY.fullmatch(key or "")
    labels = json.loads(match[1])[1] if match else None
    if labels is not None:
        seen = docs.restricted({"labels": labels})
        rows = Jobs(docs).ledger.documents.named(documents)
        for document in documents:
            present = (
                seen.documents(ids=[document])[0].labels
                if document in rows and rows[document].status == "live"
                else ()
            )
            requested = arguments.get("metadata", {}).get(document, {}).get("labels", present)
            if present and set(requested) != set(present):
                raise ConfigError(
                    f"The labels of {document!r} have changed meanwhile. Send the request again."
                )
    if kind == "purge":  # before the certificate, and after it for those that were begun meanwhile
        forget_answers(name, state, documents)
    yield
    if kind in ("purge", "delete_files"):
        forget_answers(name, state, documents, is_purge=kind == "purge")


def forget_answers(
    name: str, state: Path, documents: Sequence[str] | None = None, *, is_purge: bool = True
) -> None:
    """Empty the answers of a set that have read some documents.

    Args:
        name: The set.
        state: The service's state folder.
        documents: Paths or ids; None for all, also where nothing was read.
        is_purge: Whether to end those that are being written, too, and to delete records about the
            documents.
    """
    quoted = [""]
    if documents is not None:
        names = {*documents, *(document.rpartition("/")[2] for document in documents)}
        quoted = [json.dumps(quoted_name, ensure_ascii=False) for quoted_name in names]
    with open_book(state) as book:
        with book.writing(durable=True) as connection:
            answers = connection.execute(_READ, ("done" if is_purge else "", name)).fetchall()
            # one without text yet may come to quote them
            ids = [
                (answer,)
                for answer, text in answers
                if (_has_any(text, quoted) if text else is_purge)
            ]
            connection.executemany(
                "DELETE FROM answer WHERE id = ? AND owner LIKE '[\"/v1/responses\",%'", ids
            )
            connection.executemany("DELETE FROM event WHERE answer = ?", ids)
            connection.executemany("UPDATE answer SET question = '' WHERE id = ?", ids)
            ends = [
                (answer, _LAST, "done", json.dumps({"id": answer, **_END})) for (answer,) in ids
            ]
            connection.executemany(ADD_EVENT, ends)
            if is_purge:  # responses that are being written look for it
                connection.execute(_MARK, (time.time(),))
                _delete_records(connection, name, quoted, ids)
        if is_purge or ids:
            book.shrink()  # also the log


def _delete_records(
    connection: sqlite3.Connection, name: str, quoted: Sequence[str], answers: Sequence[Any]
) -> None:
    """Delete the records of a set that name documents, or have the id of an answer."""
    query = "SELECT id, body FROM record WHERE set_name = ?"
    records = connection.execute(query, (name,)).fetchall()
    ids = [(record,) for record, text in records if (record,) in answers or _has_any(text, quoted)]
    connection.executemany("DELETE FROM record WHERE id = ?", ids)


def _has_any(text: str, parts: Iterable[str]) -> bool:
    return any(part in text for part in parts)
