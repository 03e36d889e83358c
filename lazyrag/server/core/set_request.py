"""A request about a set: what its principal sees, and the jobs that it submits."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import (
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request
from starlette.background import BackgroundTask
from starlette.responses import Response

from lazyrag.data.encoding import to_dict
from lazyrag.data.node import DocNode
from lazyrag.data.segment import TABLE
from lazyrag.document import Document
from lazyrag.errors import ConfigError, NotRegisteredError, ReadOnlyError, StaleNodeError
from lazyrag.ledger.tables import DocumentTable
from lazyrag.read.rows import document_table
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.retrieval.dated import AsOfRetriever
from lazyrag.server.core.body import SearchOptions
from lazyrag.server.core.guard import job_key
from lazyrag.server.core.names import file_name
from lazyrag.server.core.notebook import Notebook, owner_of
from lazyrag.server.core.principal import Principal
from lazyrag.server.core.problems import ProblemError, public_error, try_again
from lazyrag.server.core.service import Reader, Service, location_of, needs, service_of
from lazyrag.server.core.upload_files import KEPT_S, age_of, draft, sweep
from lazyrag.server.jobs import Jobs, documents_of
from lazyrag.types import JsonObject
from lazyrag.validation import normal_name

R = TypeVar("R")
log = logging.getLogger("lazyrag.server")

MAX_TEXT = 10_000_000
"""Characters of the nodes in one response."""
_BUILD_WAIT_S = 5.0
_TOGETHER = 64  # hits whose parents are read with one request; of many they would take memory


def digest_of(*parts: Any) -> str:
    """A digest of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def reply(value: Any, status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON; ASCII, as file names may have bytes that are no UTF-8."""
    return Response(json.dumps(to_dict(value)), status, dict(headers or {}), "application/json")


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response of JSON types. They are not validated: tests hold them to the OpenAPI
    document.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, headers, "application/json")


def validate_size(passages: Iterable[Any], subject: str, remedy: str) -> None:
    """Check that the texts of a response are not too long together.

    Raises:
        ProblemError: 413 if they are.
    """
    if sum(len(passage.text) for passage in passages) > MAX_TEXT:
        raise ProblemError(413, f"{subject} more than {MAX_TEXT:,} characters.", remedy)


def _read_again(find: Callable[..., Any], *args: Any) -> Any:
    """Read; once more, if a document was deleted or changed between the search and the reading of
    its nodes.
    """
    with suppress(StaleNodeError):
        return find(*args)
    return find(*args)


IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]


@dataclass(frozen=True, slots=True)
class SetRequest:
    """A request about a set.

    Args:
        service: The service.
        principal: Who sends it.
        name: The set.
        docs: The set as the principal sees it.
        request: The HTTP request.
        idempotency_key: The header ``Idempotency-Key``.
    """

    service: Service
    principal: Principal
    name: str
    docs: Document
    request: Request
    idempotency_key: str | None = None

    @property
    def unrestricted(self) -> Document:
        """The set with everything in it: for jobs, and for what was checked before."""
        return self.service.sets[self.name]

    @property
    def jobs(self) -> Jobs:
        """The jobs of the set."""
        return Jobs(self.unrestricted)

    @property
    def book(self) -> Notebook:
        """The answers and records of the service."""
        return self.service.book

    @property
    def table(self) -> DocumentTable:
        """The ledger's documents, with those that the principal does not see."""
        return document_table(self.unrestricted.reader)

    @property
    def folder(self) -> Path:
        """The folder of the set's uploads; hidden, as a sync of a folder around it must not see
        it.
        """
        return self.service.state / "uploads" / f".set-{file_name(self.name)}"

    async def run(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """See `Service.run`."""
        return await self.service.run(function, *args, **kwargs)

    async def run_slow(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Run what takes seconds, a few calls at a time."""
        async with self.service.slow:
            return await self.service.run(function, *args, **kwargs)

    def retriever(self, options: SearchOptions) -> AsOfRetriever:
        """The retriever of some options. The last ones are used again: making one costs more than a
        search.
        """
        keys = None if options.embed_keys is None else tuple(options.embed_keys)
        retriever = self.service.retriever(
            self.docs,
            options.group,
            options.retriever,
            keys,
            options.target,
            infer_filters=options.infer_filters,
            parts=options.parts,
        )
        return AsOfRetriever(retriever, options.as_of or None)

    async def respond(
        self, find: Callable[..., Any], *args: Any, status: int = 200, slow: bool = False
    ) -> Response:
        """Run blocking work, and respond with its result as JSON; of slow work only a few at a
        time.
        """
        async with self.service.slow if slow else nullcontext():
            return as_json(await self.run(_read_again, find, *args), status)

    def ensure_tables(self) -> None:
        """Let the set's writer build the tables of its documents on first use: their cells are
        stored again, which a set without such queries need not pay for.

        Raises:
            ProblemError: 503 while they are being built.
            ReadOnlyError: If nothing builds them: there is no service, or the build has failed.
        """
        try:
            self.docs.get_nodes(TABLE, limit=0)
        except ReadOnlyError:
            if self.request is None:  # MCP on stdio
                raise
            # a failed build is not repeated by each query
            job = self.jobs.submit("activate_group", {"names": [TABLE]}, key="tables")
            log.info("set %s: job %s stores the tables of all documents", self.name, job.id)
            if not self.jobs.wait(job.id, _BUILD_WAIT_S).is_finished:
                raise try_again(503, "The tables of the set are being built.") from None

    def nodes(self, nodes: Sequence[DocNode]) -> list[JsonObject]:
        """Convert nodes to JSON types, in one state of the set."""
        validate_size(nodes, "The nodes have", "Ask for fewer.")

        def read(snapshot: LocalSnapshot) -> list[JsonObject]:
            snapshot.prefetch_parents([node.segment for node in nodes[:_TOGETHER]])
            records: list[JsonObject] = to_dict(nodes)
            return records

        return self.docs.reader.read(read)

    def node(self, uid: str, group: str | None = None) -> DocNode:
        """Return a node by uid.

        Raises:
            ProblemError: 404 if there is none that the principal sees.
        """
        for segment in self.docs.reader.held(uid):
            if group in (None, segment.group):
                return self.docs.reader.show(segment)
        raise ProblemError(
            404, f"There is no node {uid!r:.80}.", "Uids change with the text: search again."
        )

    def find(self, identity: str) -> Any:
        """A visible document; None if there is none."""
        try:
            return self.hide_error_details(self.docs.documents(ids=[identity])[0])
        except (ConfigError, NotRegisteredError):
            return None

    def hide_error_details(self, document: Any) -> Any:
        """A document with its error as the principal may see it."""
        return replace(
            document, error=public_error(document.error, is_operator=self.principal.may("admin"))
        )

    async def require_visible(self, *identities: str) -> Any:
        """The last of some documents.

        Raises:
            ProblemError: 404; a hidden document is an unknown one.
        """
        document = None
        for identity in identities:
            document = await self.run(self.find, identity)
            if document is None:
                raise ProblemError(
                    404, f"There is no document {identity!a}.", "List the documents of the set."
                )
        return document

    def key(self, *parts: Any) -> str:
        """The key of a job that the principal submits; for 24 hours the same one for the same
        ``Idempotency-Key``.

        See `job_key`; `owns` recognises it.

        Args:
            parts: What the request wants.

        Raises:
            ProblemError: 422 if the key came with another request before.
        """
        nonce = uuid.uuid4().hex
        if self.idempotency_key is not None:
            digest = digest_of(self.name, *parts)
            name = hashlib.sha256(
                f"{self.principal.id}\0{self.idempotency_key}".encode()
            ).hexdigest()
            path = self.service.state / "keys" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # a missing one may be another request's a moment later
            if KEPT_S < age_of(path) < float("inf"):
                path.unlink(missing_ok=True)
            with draft(self.folder) as out, suppress(FileExistsError):
                out.write(f"{digest} {nonce}".encode())
                out.flush()
                os.link(out.name, path)  # complete at once, and only if there is none
            before, nonce = path.read_text(encoding="ascii").split()
            if before != digest:
                msg = "This Idempotency-Key was sent with another request."
                raise ProblemError(422, msg, "Send a new key with each new request.")
        return self.key_of(nonce)

    def key_of(self, nonce: str) -> str:
        """The key of a job of the principal."""
        return job_key(self.principal.id, self.principal.labels, nonce)

    def owns(self, job: Any) -> bool:
        """Whether the principal may see a job: its own, or, as an administrator of all documents,
        any.
        """
        if self.principal.is_administrator:
            return True
        return str(job.key or "").startswith(self.key_of(""))

    def job(self, job_id: str) -> Any:
        """A job that the principal may see; None if there is none."""
        jobs = self.jobs
        if not self.principal.is_unrestricted:
            return jobs.find(self.key_of(job_id))
        with suppress(NotRegisteredError):
            job = jobs.get(job_id)
            return job if self.owns(job) else None
        return None

    def job_id(self, job: Any) -> str:
        """The id under which the principal knows a job: numbers would count the jobs of others."""
        return str(job.id if self.principal.is_unrestricted else job.key.rpartition(":")[2])

    def describe_job(self, job: Any) -> JsonObject:
        """A job as JSON, without its key and the server's paths."""
        fields: JsonObject = to_dict(job) | {"id": self.job_id(job)}
        del fields["key"]
        fields["arguments"].pop("folders", None)
        if isinstance(fields["arguments"].get("files"), dict):
            fields["arguments"]["files"] = list(fields["arguments"]["files"])
        return fields

    def question_of(self, answer: str) -> str:
        """The question of an answer, see `Notebook.question`."""
        return self.book.question(owner_of(self.principal, self.name), answer)

    def add_record(self, kind: str, body: JsonObject) -> JsonObject:
        """Store a record, and return it. Ids are in the order of time, and tell nothing of others'
        records.
        """
        number = f"{time.time_ns():016x}{uuid.uuid4().hex[-8:]}"
        created = time.time()
        principal = self.principal.id
        text = json.dumps(body, ensure_ascii=False)
        row = (kind, self.name, number, principal, created, text)
        self.book.write("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?)", row, durable=True)
        return {"id": number, "created": created, "principal": principal, **body}

    def records(
        self,
        kind: str,
        after: str = "",
        limit: int = 1_000,
        record_id: str | None = None,
        *,
        is_own: bool = False,
    ) -> list[JsonObject]:
        """Return records, oldest first: with labels the principal's own, as others may have seen
        more than it does.
        """
        owner = self.principal.id if is_own or not self.principal.is_unrestricted else None
        query = (
            "SELECT id, created, principal, body FROM record WHERE kind = ? AND set_name = ? AND id"
            " > ? AND id = coalesce(?, id) AND principal = coalesce(?, principal) ORDER BY id"
            " LIMIT ?"
        )
        rows = self.book.rows(query, kind, self.name, after, record_id, owner, limit)
        return [
            {"id": number, "created": created, "principal": principal, **json.loads(body)}
            for number, created, principal, body in rows
        ]

    def record(self, kind: str, number: str) -> JsonObject:
        """Return a record.

        Raises:
            ProblemError: 404 if there is none that the principal sees.
        """
        for record in self.records(kind, record_id=number):
            return record
        raise ProblemError(
            404,
            f"There is no record {number!r:.80} in {kind}.",
            "List them to see which there are.",
        )

    def sweep(self, *, every_s: float = 60) -> None:
        """See `upload_files.sweep`."""
        sweep(self.folder, self.service.state, self.unrestricted, every_s=every_s)

    async def submit_job(self, kind: str, arguments: JsonObject) -> Response:
        """Submit a job, and answer 202 with it."""

        def submit() -> Any:
            return self.jobs.submit(kind, dict(arguments), key=self.key(kind, arguments))

        return self.job_response(await self.run(submit))

    def job_response(self, job: Any, **more: Any) -> Response:
        """The response with a submitted job; what is not needed any more of the uploads is removed
        after it.
        """
        self.request.state.documents = documents_of(job.kind, job.arguments)  # for the audit log
        headers = location_of(self.request, "get_job", set=self.name, job_id=self.job_id(job))
        fields = self.describe_job(job)
        response = reply({**more, "job": fields} if more else fields, 202, headers=headers)
        response.background = BackgroundTask(self.run_slow, self.sweep)
        return response

    def authorize_addition(
        self, name: str, metadata: JsonObject, key: str
    ) -> tuple[str, JsonObject]:
        """The id and the metadata with which the principal adds a document.

        A principal with labels replaces only what it sees. Everything else it adds gets a new id,
        whether or not there is a hidden document of that name, and its labels.

        Raises:
            ProblemError: 403 for labels that it does not have.
        """
        name = normal_name(name)
        if self.principal.labels is None:
            return name, dict(metadata)
        existing = self.find(name)
        mine = set(self.principal.labels if existing is None else existing.labels)
        labels = metadata.get("labels", sorted(mine))
        is_list = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
        is_allowed = is_list and labels and set(labels) <= mine
        if not is_allowed or (existing is not None and set(labels) != mine):
            raise ProblemError(
                403,
                "The token does not allow these labels.",
                f"Allowed: {', '.join(sorted(mine))}.",
            )
        prefix = hashlib.blake2b(f"{key}/{name}".encode(), digest_size=4).hexdigest()
        identity = name if existing is not None else f"~{prefix}/{name}"
        return identity, {**metadata, "labels": labels}


def _dependency(scope: str) -> Any:
    allowed = needs(scope)

    async def make(
        request: Request,
        set: str,  # noqa: A002  the word of the paths
        principal: Principal = allowed,
        idempotency_key: IdempotencyKey = None,
    ) -> SetRequest:
        service = service_of(request)
        docs = service.view(set, principal)
        return SetRequest(service, principal, set, docs, request, idempotency_key)

    return Depends(make)


async def _search(
    set: str,  # noqa: A002
    request: Request,
    principal: Reader,
) -> SetRequest:
    service = service_of(request)
    return SetRequest(service, principal, set, service.view(set, principal), request)


Searching = Annotated[SetRequest, Depends(_search)]
"""A request that submits no job."""
Reading = Annotated[SetRequest, _dependency("read")]
Writing = Annotated[SetRequest, _dependency("write")]
Administration = Annotated[SetRequest, _dependency("admin")]
