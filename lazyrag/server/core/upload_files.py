"""Files that clients upload: receiving, storing and removing them.

Names of files are never paths. A received file is stored under the digest of its content, below the
service's state folder, so that another web process or a restart continues, and equal files are
stored once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
import unicodedata
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from pydantic import BaseModel, Field
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MAX_BOUNDARY_LENGTH, MultipartParser, parse_options_header

from lazyrag.document import Document
from lazyrag.read.rows import document_table
from lazyrag.server.core.problems import ProblemError
from lazyrag.server.jobs import Jobs
from lazyrag.storage.arrays import sync_folder
from lazyrag.types import JsonObject
from lazyrag.validation import normal_name

KEPT_S = 24 * 3600
"""How long idempotency keys, unfinished uploads and files of failed jobs are kept."""
MOST_FILES = 1_000
"""In one multipart request."""
_MOST_FIELDS = 100
MOST_PARTS = 100_000
_GRACE_S = 60  # from the storing of a file to its job
BLOCK = 1 << 20
_METADATA_BYTES = 1 << 20
_NAME_BYTES = 255
_SUFFIX = re.compile(r"(\.[A-Za-z0-9]{1,10}){1,2}$")
_ESCAPED = re.compile("%(?:22|0A|0D)")
"""What browsers send for a quotation mark and line breaks in the name of a file; they escape no
``%``."""
_OVERRIDES = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that let a name look like another one."""

# Names and places


def checked_name(name: str) -> str:
    """The name of a file as the id of a document, in composed characters (NFC): a Mac sends
    decomposed ones.

    Raises:
        ProblemError: 422 if it leads elsewhere, or has characters that no name needs.

    Example:
        >>> checked_name("teas/green.md")
        'teas/green.md'
    """
    name = normal_name(name)
    printed = ascii(name[:80])
    remedy = "Use a relative name of at most 255 bytes with forward slashes."
    if not name.strip() or len(name.encode("utf-8", "surrogatepass")) > _NAME_BYTES:
        raise ProblemError(
            422, f"The name of a file must have 1 to {_NAME_BYTES} bytes; got {printed}.", remedy
        )
    categories = set(map(unicodedata.category, name))
    if categories & {"Cc", "Cs", "Zl", "Zp"} or _OVERRIDES & set(name):
        raise ProblemError(422, f"The name {printed} contains control characters.", remedy)
    if "\\" in name or {"", ".", ".."} & set(name.split("/")):
        raise ProblemError(422, f"The name {printed} is no relative name.", remedy)
    return name


def stored_path(folder: Path, content_hash: str, name: str) -> Path:
    """Where a received file is stored; loaders need its suffix."""
    suffix = _SUFFIX.search(name)
    return folder / "files" / f"{content_hash}{suffix.group().lower() if suffix else ''}"


class FileResult(BaseModel):
    """What became of a file of a request: the id of its document, or the problem for which it is
    refused.
    """

    name: str
    id: str | None = None
    bytes: int = 0
    problem: JsonObject | None = None
    content_hash: str = Field(default="", exclude=True)

    def refuse(self, problem: ProblemError) -> None:
        """Note why it is refused."""
        self.problem = {
            "status": problem.status,
            "detail": problem.detail,
            "remedy": problem.remedy,
        }


class Form:
    """A multipart request: files go to disk while they arrive, other fields to memory."""

    def __init__(self, content_type: str, folder: Path, limit: int) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or b"boundary" not in options:
            raise ProblemError(
                415, "Files must be sent as multipart/form-data.", "curl -F file=@tea.pdf does so."
            )
        self.files: list[FileResult] = []
        self.fields: dict[str, bytes] = {}
        self.is_complete = False
        self._folder = folder
        self._limit = limit
        # not among the files before there is a job for them
        self._drafts = folder / "incoming" / uuid.uuid4().hex
        self._out: BinaryIO | None = None
        self._hash = hashlib.blake2b(digest_size=16)
        self._field = ""
        self._line = b""
        self._disposition = b""
        names = "header_field header_value header_end headers_finished part_data part_end end"
        calls: Any = {f"on_{name}": getattr(self, f"_{name}") for name in names.split()}
        self._parser = MultipartParser(options[b"boundary"][:MAX_BOUNDARY_LENGTH], calls)

    def write(self, data: bytes) -> None:
        """Take a block of the body."""
        try:
            self._parser.write(data)
        except FormParserError as exc:
            raise ProblemError(
                422, f"The multipart body is malformed: {exc}.", "Send it again."
            ) from exc

    def store(self) -> None:
        """Give the accepted files their names."""
        (self._folder / "files").mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(self.files):
            if file.problem is None:
                os.utime(self._drafts / str(number))  # for `sweep`
                (self._drafts / str(number)).replace(
                    stored_path(self._folder, file.content_hash, file.name)
                )
        sync_folder(self._folder / "files")

    def close(self) -> None:
        """Remove what was not stored."""
        if self._out is not None:
            self._out.close()
        shutil.rmtree(self._drafts, ignore_errors=True)

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._line += data[start:end]

    _header_value = _header_field

    def _header_end(self) -> None:
        name = b"content-disposition"
        if self._line[: len(name)].lower() == name:
            self._disposition = self._line[len(name) :]
        self._line = b""

    def _headers_finished(self) -> None:
        options = parse_options_header(self._disposition)[1]
        self._disposition = b""
        self._field = (
            "" if b"filename" in options else options.get(b"name", b"").decode("utf-8", "replace")
        )
        if b"filename" not in options:
            if len(self.fields) > _MOST_FIELDS:
                raise ProblemError(
                    413, f"The form has more than {_MOST_FIELDS} fields.", "Send fewer."
                )
            return
        if len(self.files) == MOST_FILES:
            raise ProblemError(
                413, f"A request has at most {MOST_FILES} files.", "Send several requests."
            )
        sent = options[b"filename"].decode("utf-8", "replace")
        file = FileResult(name=_ESCAPED.sub(lambda match: unquote(match.group()), sent))
        self.files.append(file)
        try:
            file.name = checked_name(file.name)
        except ProblemError as problem:
            file.refuse(problem)
            return
        self._hash = hashlib.blake2b(digest_size=16)
        self._drafts.mkdir(parents=True, exist_ok=True)
        self._out = (self._drafts / str(len(self.files) - 1)).open("xb")

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field:
            self.fields[self._field] = self.fields.get(self._field, b"") + data[start:end]
            if sum(map(len, self.fields.values())) > _METADATA_BYTES:
                raise ProblemError(
                    413, f"The field {self._field!a:.80} is too large.", "At most 1 MiB is allowed."
                )
        elif self._out is not None:
            file = self.files[-1]
            file.bytes += end - start
            if file.bytes <= self._limit:
                write_block(self._out, memoryview(data)[start:end], self._hash)
            elif file.problem is None:
                file.refuse(too_large(self._limit))
                self._out.truncate(0)

    def _part_end(self) -> None:
        if self._out is not None:
            self.files[-1].content_hash = self._hash.hexdigest()
            self._out.flush()
            os.fsync(self._out.fileno())
            self._out.close()
            self._out = None

    def _end(self) -> None:
        self.is_complete = True


def too_large(limit: int) -> ProblemError:
    """The problem of a file above the service's limit."""
    return ProblemError(
        413, f"The file has more than {limit:,} bytes.", "Split it, or raise the service's limit."
    )


@contextlib.contextmanager
def draft(folder: Path) -> Iterator[BinaryIO]:
    """A file in the making, which is removed unless it is stored."""
    path = folder / "incoming" / uuid.uuid4().hex
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as out:
            yield out
    finally:
        path.unlink(missing_ok=True)


def write_block(out: BinaryIO, block: bytes | memoryview, *digests: Any) -> None:
    """Write a block of a file, and add it to its digests."""
    out.write(block)
    for digest in digests:
        digest.update(block)


def store_file(out: BinaryIO, path: Path) -> None:
    """Give a complete file its name, durably."""
    out.flush()
    os.fsync(out.fileno())
    path.parent.mkdir(parents=True, exist_ok=True)
    Path(out.name).replace(path)
    sync_folder(path.parent)


def assemble(
    folder: Path, parts: Iterable[Path], name: str, digest: Any, expected: str | None
) -> str:
    """Put parts together to a stored file, and return its content hash.

    Args:
        folder: Of the uploads.
        parts: Files with the parts.
        name: Of the file.
        digest: A new object of `hashlib`.
        expected: The digest of the whole; None for any.

    Raises:
        ProblemError: 422 if it has another digest.
    """
    content = hashlib.blake2b(digest_size=16)
    with draft(folder) as out:
        for part_path in parts:
            with part_path.open("rb") as part:
                while block := part.read(BLOCK):
                    write_block(out, block, content, digest)
        if expected not in {None, digest.hexdigest()}:
            msg = f"The file has another digest ({digest.name}) than was declared."
            raise ProblemError(422, msg, "Delete the upload and begin again.")
        store_file(out, stored_path(folder, content.hexdigest(), name))
    return content.hexdigest()


def save_json(folder: Path, path: Path, value: Any) -> None:
    """Write a JSON file, complete or not at all."""
    with draft(folder) as out:
        out.write(json.dumps(value).encode())
        store_file(out, path)


# Removal


def sweep(folder: Path, state: Path, docs: Document, *, every_s: float) -> None:
    """Remove what is not needed any more of a set's uploads: unfinished ones, and files of deleted
    documents.

    Args:
        folder: The folder of the uploads.
        state: The folder of the service.
        docs: The set.
        every_s: Do nothing if this or another process did so less than so many seconds ago.
    """
    stamp = folder / "swept"
    if age_of(stamp) < every_s or not folder.exists():
        return
    stamp.touch()
    for pattern in ("unfinished/*", "incoming/*"):
        _remove_old(folder.glob(pattern))
    _remove_old(state.glob("keys/*"))
    files = [path for path in folder.glob("files/*") if age_of(path) > _GRACE_S]
    if not files:
        return
    needed: set[str] = set()
    for job_state in _PENDING:
        needed.update(_job_files(docs, job_state))
    hashes = document_table(docs.reader).content_hashes()
    for path in files:
        is_needed = path.name.partition(".")[0] in hashes or str(path) in needed
        if not is_needed and age_of(path) > _GRACE_S:
            path.unlink(missing_ok=True)


def _remove_old(paths: Iterable[Path]) -> None:
    for path in paths:
        if age_of(path) <= KEPT_S:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


_PENDING = ("WAITING", "WORKING", "FAILED", "CANCELED")


def _job_files(docs: Document, state: Any) -> Iterator[str]:
    """The files of jobs that wait, or may be retried."""
    after = None
    while page := Jobs(docs).list(after=after, limit=500, state=state):
        for job in page:
            if job.kind == "add_files" and (
                state in _PENDING[:2] or time.time() - job.updated.timestamp() < KEPT_S
            ):
                yield from job.arguments["files"].values()
        after = page[-1].id


def age_of(path: Path) -> float:
    """Seconds since a file was changed; no end of them for one that does not exist."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
