"""Access to the service: tokens, browser sessions, the audit log, and the middleware that guards
every route.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyrag.errors import ConfigError, NotRegisteredError, StoreError, known_names
from lazyrag.server.core.config import make_state
from lazyrag.server.core.principal import SCOPES, Principal
from lazyrag.storage.database import Database, FileFormat
from lazyrag.validation import require, validate_choice, validate_texts

COOKIE = "lazyrag_session"
SESSION_S = 43_200
"""Longest life of a browser session, in seconds; that of its token ends it too."""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")

_TOKEN = re.compile(r"lrg_([0-9a-f]{12})_[0-9a-f]{48}")
_PERIOD = re.compile(r"([1-9][0-9]{0,4})([hdw])")
# Uploads have limits of their own; texts and the reader protocol carry more than a form.

_SCHEMA = """
CREATE TABLE token (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, labels TEXT, created INTEGER NOT NULL,
    expires INTEGER, revoked INTEGER, used TEXT, digest TEXT NOT NULL
);
CREATE TABLE session (digest TEXT PRIMARY KEY, token TEXT NOT NULL REFERENCES token, expires INTEGER NOT NULL);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, own INTEGER NOT NULL, time_ms INTEGER NOT NULL, principal TEXT NOT NULL,
    address TEXT NOT NULL, action TEXT NOT NULL, dataset TEXT NOT NULL, documents TEXT NOT NULL, status INTEGER,
    request TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE INDEX audit_own ON audit (principal, own);
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
ACCESS_FORMAT = FileFormat(
    "access file",
    application_id=int.from_bytes(b"lzAX", "big"),
    migrations=(_SCHEMA, "ALTER TABLE audit ADD COLUMN text TEXT NOT NULL DEFAULT '';"),
    when_damaged="Restore it from a backup, or delete it and create new tokens.",
)
_SELECT_TOKENS = (
    "SELECT id, name, scope, labels, created, expires, revoked, used FROM token ORDER BY created,"
    " rowid"
)
_COLUMNS = (
    "id, own, time_ms, principal, address, action, dataset, documents, status, request, text, hash"
)
_SELECT_AUDIT = f"SELECT {_COLUMNS} FROM audit"  # noqa: S608
_NEXT_OWN = "SELECT 1 + ifnull(max(own), 0) FROM audit WHERE principal = ?"
_INSERT_AUDIT = (
    f"INSERT INTO audit ({_COLUMNS})"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_VALID = "token.revoked IS NULL AND ifnull(token.expires, 1e12) > ?"


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret.

    Args:
        id: Its public part.
        name: For people.
        scope: ``"read"``, ``"write"`` or ``"admin"``; each includes those before it.
        labels: Only documents with one of these labels exist for it; None for all.
        created: When, in seconds since 1970.
        expires: When it ends; None for never.
        revoked: When it was revoked.
        used: The last day of use, such as ``"2026-11-26"``.
    """

    id: str
    name: str
    scope: str
    labels: tuple[str, ...] | None
    created: int
    expires: int | None
    revoked: int | None
    used: str | None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row of the audit log: before a request that changes something, and after each one that did
    or was denied.

    Args:
        id: Number of the row; for principals with labels its number among their own.
        time_ms: When, in milliseconds since 1970.
        principal: Who: the id of a token, ``"local"`` or ``"anonymous"``.
        address: Address of the client.
        action: Method and path.
        dataset: Name of the set; "" for none.
        documents: Ids of documents.
        status: The HTTP status; None before the request was handled.
        request: Id of the request.
        text: The body of a query, if the service records them; "" for none.
        hash: SHA-256 of the previous row's hash and this row's content; "" for principals with
            labels.
    """

    id: int
    time_ms: int
    principal: str
    address: str
    action: str
    dataset: str
    documents: tuple[str, ...]
    status: int | None
    request: str
    text: str
    hash: str


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """Result of a check of the audit log's chain of hashes.

    Args:
        rows: Number of rows that were read.
        head: Hash of the last one. Compare it with a stored one to see that no rows at the end are
            missing.
        damaged: Number of the first row that does not fit; None for none.
    """

    rows: int
    head: str
    damaged: int | None


class Access:
    """The tokens, sessions and the audit log of a service, in a file that all its processes share.

    Args:
        state: The service's state folder.
        hosts: Names for the header ``Host``, beside those of this machine.
        requests_per_s: Rate limit of each principal, per process.
        texts: Whether the audit log has queries, too, with their bodies.

    Raises:
        StoreError: If the file cannot be opened.
    """

    def __init__(
        self,
        state: Path,
        *,
        hosts: Iterable[str] = (),
        requests_per_s: float = 1_000.0,
        texts: bool = False,
    ) -> None:
        make_state(state)
        self.path = state / "access.db"
        # Two connections: lookups never wait for a write.
        self._writer = Database(self.path, ACCESS_FORMAT)
        self._reader = Database(self.path, ACCESS_FORMAT)
        self.hosts = frozenset(host.lower() for host in (*LOCAL_HOSTS, *hosts))
        self.requests = Buckets(requests_per_s, 2 * requests_per_s)
        self.denials = Buckets(1.0, 50.0)
        self.streams = Counter[str]()
        self.texts = texts
        self._is_closed = False

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
        self._reader.close()

    # Tokens

    def create(
        self,
        scope: str = "read",
        *,
        name: str = "",
        labels: Iterable[str] | None = None,
        expires: str | None = None,
        by: str = "local",
    ) -> tuple[Token, str]:
        """Create a token, and return it with its text, which is stored nowhere.

        Args:
            scope: ``"read"``, ``"write"`` or ``"admin"``.
            name: For people.
            labels: Only documents with one of these labels exist for it; None for all.
            expires: After how long it ends: ``"12h"``, ``"90d"``, ``"8w"``; None for never.
            by: Who creates it, for the audit log.

        Raises:
            ConfigError: If an argument is not valid.
        """
        validate_choice("scope", scope, SCOPES)
        require(
            name.isprintable() and len(name) <= 100, "name", name, "up to 100 printable characters"
        )
        checked_labels = None
        if labels is not None:
            checked_labels = tuple(sorted(set(validate_texts("labels", list(labels)))))
            require(
                bool(checked_labels), "labels", [], "a list of texts, or None for all documents"
            )
        now = int(time.time())
        token = Token(
            secrets.token_hex(6), name, scope, checked_labels, now, _end(now, expires), None, None
        )
        text = f"lrg_{token.id}_{secrets.token_hex(24)}"
        stored = None if checked_labels is None else json.dumps(checked_labels)
        with self._writer.writing(durable=True) as connection:
            connection.execute(
                "INSERT INTO token VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (token.id, name, scope, stored, now, token.expires, None, None, _digest(text)),
            )
            self._append(connection, by, f"create token {token.id}", status=200)
        return token, text

    def tokens(self) -> list[Token]:
        """All tokens, oldest first, revoked ones too."""
        with self._reader.reading() as connection:
            rows = connection.execute(_SELECT_TOKENS).fetchall()
        return [
            Token(token_id, name, scope, _labels(labels), *rest)
            for token_id, name, scope, labels, *rest in rows
        ]

    def revoke(self, token_id: str, *, by: str = "local") -> None:
        """Revoke a token and its sessions, from the next request of any process on.

        Raises:
            NotRegisteredError: If there is no such token.
        """
        with self._writer.writing(durable=True) as connection:
            token_ids = [identity for (identity,) in connection.execute("SELECT id FROM token")]
            if token_id not in token_ids:
                raise NotRegisteredError(
                    f"There is no token {token_id!r}. {known_names(token_id, token_ids)}"
                )
            now = int(time.time())
            connection.execute(
                "UPDATE token SET revoked = ? WHERE id = ? AND revoked IS NULL", (now, token_id)
            )
            connection.execute("DELETE FROM session WHERE token = ?", (token_id,))
            self._append(connection, by, f"revoke token {token_id}", status=200)

    def is_closed(self) -> bool:
        """Whether requests need a token: as soon as the first one exists, for ever."""
        if not self._is_closed:
            with self._reader.reading() as connection:
                self._is_closed = (
                    connection.execute("SELECT 1 FROM token LIMIT 1").fetchone() is not None
                )
        return self._is_closed

    def of_token(self, text: str) -> Principal | None:
        """The principal of a token; None if it is forged, expired or revoked."""
        match = _TOKEN.fullmatch(text)
        return (
            self._principal("token WHERE token.id = ?", "token.digest", text, match[1])
            if match
            else None
        )

    def of_session(self, text: str) -> Principal | None:
        """The principal of a browser session; None if there is none, or its token is no longer
        valid.
        """
        source = (
            "session JOIN token ON token.id = session.token WHERE session.expires > ? AND"
            " session.digest = ?"
        )
        return self._principal(source, "session.digest", text, int(time.time()), _digest(text))

    def _principal(self, source: str, column: str, text: str, *keys: Any) -> Principal | None:
        now = int(time.time())
        with self._reader.reading() as connection:
            query = (
                f"SELECT token.id, scope, labels, used, {column} FROM {source}"  # noqa: S608
                f" AND {_VALID}"
            )
            row = connection.execute(query, (*keys, now)).fetchone()
        if not hmac.compare_digest(row[4] if row else "", _digest(text)):
            return None
        today = time.strftime("%Y-%m-%d", time.gmtime(now))
        if row[3] != today:
            # A full disk must not lock readers out.
            with suppress(StoreError), self._writer.writing() as connection:
                connection.execute("UPDATE token SET used = ? WHERE id = ?", (today, row[0]))
        return Principal(row[0], row[1], _labels(row[2]))

    def take_once(self, text: str) -> Principal | None:
        """The principal of a token whose text is valid this one time; its sessions go on until it
        expires.
        """
        principal = self.of_token(text)
        if principal is not None:
            with self._writer.writing(durable=True) as connection:
                query = "UPDATE token SET digest = '' WHERE id = ? AND digest = ?"
                # another one was faster
                if not connection.execute(query, (principal.id, _digest(text))).rowcount:
                    return None
        return principal

    def open_session(self, principal: Principal) -> str:
        """Begin a browser session of a token, and return its secret id."""
        now = int(time.time())
        text = secrets.token_hex(32)
        with self._writer.writing() as connection:
            connection.execute("DELETE FROM session WHERE expires <= ?", (now,))
            connection.execute(
                "INSERT INTO session VALUES (?, ?, ?)",
                (_digest(text), principal.id, now + SESSION_S),
            )
        return text

    def end_session(self, text: str) -> None:
        """End a browser session."""
        with self._writer.writing() as connection:
            connection.execute("DELETE FROM session WHERE digest = ?", (_digest(text),))

    # Audit log

    def record(self, principal: str, action: str, **more: Any) -> None:
        """Append a row to the audit log; see `AuditRow`.

        Raises:
            StoreError: If it cannot be written: then the request must be refused.
        """
        with self._writer.writing() as connection:
            self._append(connection, principal, action, **more)

    @staticmethod
    def _append(
        connection: Any,
        principal: str,
        action: str,
        *,
        address: str = "",
        dataset: str = "",
        documents: Iterable[str] = (),
        status: int | None = None,
        request: str = "",
        text: str = "",
    ) -> None:
        last, previous = connection.execute(
            "SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1"
        ).fetchone() or (0, "")
        [own_number] = connection.execute(_NEXT_OWN, (principal,)).fetchone()
        ids = json.dumps(list(documents))
        now = int(time.time() * 1000)
        content = [
            last + 1,
            own_number,
            now,
            principal,
            address,
            action,
            dataset,
            ids,
            status,
            request,
            text,
        ]
        connection.execute(_INSERT_AUDIT, (*content, _chain_hash(previous, content)))

    def audit(
        self,
        principal: Principal,
        *,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
        before: int = 2**53,
        by: str = "",
        action: str = "",
    ) -> list[AuditRow]:
        """Rows of the audit log that a principal sees, oldest first; with labels only its own.

        Args:
            principal: Who looks.
            after: Only rows with a higher number.
            limit: At most so many.
            newest: The newest first.
            before: Only rows with a lower number.
            by: Only those of this principal.
            action: Only those whose action has this text.
        """
        sees_all = principal.is_unrestricted
        number, author = ("id", by) if sees_all else ("own", principal.id)
        # A hash would depend on the rows of others.
        select = _SELECT_AUDIT if sees_all else _SELECT_AUDIT.replace("hash", "''")
        where = f"{number} > ? AND {number} < ? AND ? IN (principal, '') AND instr(action, ?)"
        statement = f"{select} WHERE {where} ORDER BY id{' DESC' if newest else ''} LIMIT ?"
        with self._reader.reading() as connection:
            rows = connection.execute(statement, (after, before, author, action, limit)).fetchall()
        return [_audit_row(row, sees_all=sees_all) for row in rows]

    def verify_audit(self) -> AuditCheck:
        """Check the chain of hashes."""
        count = 0
        previous = ""
        with Database(self.path, ACCESS_FORMAT) as database, database.reading() as connection:
            for *content, digest in connection.execute(f"{_SELECT_AUDIT} ORDER BY id"):
                count += 1
                if content[0] != count or _chain_hash(previous, content) != digest:
                    return AuditCheck(count, digest, count)
                previous = digest
        return AuditCheck(count, previous, None)


def _audit_row(row: tuple[Any, ...], *, sees_all: bool) -> AuditRow:
    number, own_number, at, author, address, action, dataset, documents, *others = row
    ids = tuple(json.loads(documents))
    number = number if sees_all else own_number
    return AuditRow(number, at, author, address, action, dataset, ids, *others)


def _digest(text: str) -> str:
    # The secrets are random and long: a slow hash would add nothing.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _chain_hash(previous: str, content: Sequence[Any]) -> str:
    # Rows without a text have the hash that they had before there was that column.
    return _digest(
        f"{previous}\n{json.dumps(content if content[-1] else content[:-1], ensure_ascii=False)}"
    )


def _labels(stored: str | None) -> tuple[str, ...] | None:
    return None if stored is None else tuple(json.loads(stored))


def _end(now: int, expires: str | None) -> int | None:
    match = _PERIOD.fullmatch(expires or "")
    require(
        expires is None or match is not None,
        "expires",
        expires,
        "a period such as '12h', '90d' or '8w'",
    )
    if match is None:
        return None
    seconds = {"h": 3600, "d": 86_400, "w": 604_800}[match[2]]
    return now + int(match[1]) * seconds


class Buckets:
    """Token buckets by key: a rate limiter of one process.

    Args:
        rate: Requests per second.
        burst: Requests at once.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> float:
        """Take one request out of a bucket; returns the seconds to wait, 0 if it is allowed."""
        now = time.monotonic()
        level, since = self._levels.pop(key, (self.burst, now))
        level = min(self.burst, level + (now - since) * self.rate)
        allowed = level >= 1
        self._levels[key] = level - allowed, now
        if len(self._levels) > 10_000:  # the one that was used least recently
            del self._levels[next(iter(self._levels))]
        return 0.0 if allowed else (1 - level) / self.rate


def check_bind(host: str, access: Access, at: Path) -> None:
    """Check that a service without tokens listens on this machine only.

    Args:
        host: The address.
        access: The tokens.
        at: The served folder, or the configuration file.

    Raises:
        ConfigError: If it would listen on another address.
    """
    now = time.time()
    if is_local(host) or any(
        token.revoked is None and (token.expires or now + 1) > now for token in access.tokens()
    ):
        return
    msg = f"host must be 127.0.0.1 or ::1 as long as there is no token; got {host!r}."
    raise ConfigError(f"{msg} Create one first: lazyrag token create --scope admin --at {at}")


@functools.lru_cache(maxsize=1_024)
def is_local(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[] ")).is_loopback
    except ValueError:
        return False
