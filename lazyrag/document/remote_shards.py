"""Shards on several machines: `Document(url=[...])` reads the shards that services have as one Document.

The shards are asked at the same time, over connections that stay open. A shard may have replicas: a read takes the
first one that answers. With ``partial=True`` a read leaves out a shard that is down, and names it.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from urllib.parse import quote

from lazyrag.data.encoding import ErrorInfo
from lazyrag.data.fields import read_schema
from lazyrag.data.filters import FilterLike, parse_filter
from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY
from lazyrag.document.catalogue import DocumentInfo, TextMatch
from lazyrag.document.changes import make_dataset
from lazyrag.document.groups import GroupGraph
from lazyrag.document.jobs import Job, Jobs
from lazyrag.document.load_files import Readers
from lazyrag.document.remote import (
    _ROUTES,
    Connection,
    RemoteDocument,
    RemoteEmbedder,
    RemoteIndexer,
    RemoteReader,
    RemoteSnapshot,
    RemoteView,
    StateGoneError,
    Turn,
    encode_filter,
)
from lazyrag.document.shards import ShardedDocument
from lazyrag.document.snapshot import Needs
from lazyrag.document.sync import DocumentVersion
from lazyrag.document.verify import DocumentStatus, GroupStatus
from lazyrag.errors import ConfigError, StoreConnectionError, warn_user
from lazyrag.indexes.bm25 import BM25, Statistics
from lazyrag.models.embedding import make_embedders
from lazyrag.validation import is_list_of, known_arguments, require, validate_boolean, validate_text

if TYPE_CHECKING:
    from lazyrag.document.document import Document
    from lazyrag.document.snapshot import ActiveRead, DocumentState, LocalSnapshot
    from lazyrag.document.tree import View

R = TypeVar("R")

_MOST_TERMS = 100_000
_MOST_SCOPES = 100


def _retry_time(begun: float) -> float:
    """When a service that did not answer is asked again: after a second, or three times as long as noticing it took."""
    now = time.monotonic()
    return now + max(1.0, 3 * (now - begun))


_missing: ContextVar[set[str]] = ContextVar("lazyrag_missing_shards")


def missing_shards() -> set[str]:
    """A new set, to which the addresses of the shards are added that the next answers in this context lack.

    Example:
        >>> missing_shards()
        set()
    """
    found: set[str] = set()
    _missing.set(found)
    return found


def map_shards(function: Callable[..., R], *columns: Iterable[Any]) -> list[R]:
    """The results of a function that asks services, called for all of them at the same time."""
    return [one.result() for one in [Turn(function, *given) for given in zip(*columns, strict=True)]]


class ReplicatedConnection:
    """Connections to the replicas of a shard: a read takes the first one that answers, and stays with it.

    Args:
        urls: Of the replicas, the preferred one first.
        token: See `Connection`.
    """

    def __init__(self, urls: Sequence[str], token: str | None) -> None:
        self._replicas = [Connection(url, token) for url in urls]
        self._retry_at = [0.0] * len(urls)
        self.url = ", ".join(one.url for one in self._replicas)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """See `Connection.post`. The name of a state begins with the number of the replica that has it."""
        if body.get("state") is not None:
            number, _, state = body["state"].partition(":")
            try:
                return {**self._post(int(number), path, {**body, "state": state}), "state": body["state"]}
            except StoreConnectionError as exc:
                if len(self._replicas) == 1:
                    raise
                raise StateGoneError(str(exc)) from exc
        now = time.monotonic()
        order = sorted(range(len(self._replicas)), key=lambda at: self._retry_at[at] > now)
        for at in order:
            try:
                answer = self._post(at, path, body)
            except StoreConnectionError:
                if at == order[-1]:
                    raise
            else:
                has_state = isinstance(answer, dict) and "state" in answer
                return {**answer, "state": f"{at}:{answer['state']}"} if has_state else answer
        raise AssertionError  # the last one raises

    def is_down(self) -> bool:
        """Whether no replica answered a moment ago."""
        return min(self._retry_at) > time.monotonic()

    def _post(self, at: int, path: str, body: Mapping[str, Any]) -> Any:
        begun = time.monotonic()
        try:
            return self._replicas[at].post(path, body)
        except StoreConnectionError:
            self._retry_at[at] = _retry_time(begun)
            raise

    def close(self) -> None:
        """Close the connections."""
        for one in self._replicas:
            one.close()


class _NoRows:
    """The rows of documents in a ledger, which are the service's."""

    def named(self, *_: Any) -> dict[Any, Any]:
        """None of them."""
        return {}

    all = created = content_hashes = failures = named


class ShardIndexer(RemoteIndexer):
    """See `RemoteIndexer`; of one of several shards.

    Args:
        connection: To the shard.
        name: Name of the set.
        embed: Embed callables of all shards.
        known: What the service answered about fields, groups and models.
        is_optional: Whether reads leave the shard out if it is down.
    """

    others: Sequence[ShardIndexer] = ()
    documents = _NoRows()

    def __init__(
        self, connection: ReplicatedConnection, name: str, embed: Any, known: Mapping[str, Any], is_optional: bool
    ) -> None:
        self._given: Mapping[str, Any] | None = known
        self.is_optional = is_optional
        self.down = ""  # or the error
        self.term_counts: dict[Any, tuple[str, int, int, dict[str, int]]] = {}
        super().__init__(cast("Any", connection), name, embed)

    def _load(self) -> None:
        known, self._given = self._given, None
        if known is None:
            super()._load()
        else:
            self._known, self.schema = known, read_schema(known["fields"])

    def _is_down(self) -> bool:
        """Whether it did not answer a moment ago; one that failed long ago may answer again."""
        return bool(self.down) and cast("Any", self._connection).is_down()

    def is_left_out(self) -> bool:
        """Whether a read that begins now leaves the shard out, with a warning.

        Raises:
            StoreConnectionError: If no shard is left.
        """
        if not self._is_down():
            return False
        if all(one._is_down() for one in self.others):
            urls = "; ".join(one.url for one in self.others)
            raise StoreConnectionError(f"None of the shards of Document {self.name!r} answers: {urls}.")
        warn_user(f"The answer lacks the shard {self.url}. {self.down}", UserWarning)
        _missing.get(set()).add(self.url)
        return True

    def post(self, route: str, body: Mapping[str, Any]) -> Any:
        """See `RemoteIndexer.post`."""
        answer = super().post(route, body)
        self.down = ""
        return answer


class ShardView(RemoteView):
    """See `RemoteView`. A state that an earlier read has seen must still be the latest one."""

    is_assumed = False

    def __init__(self, indexer: ShardIndexer, needs: Needs) -> None:
        super().__init__(indexer, needs)
        self.is_missing = indexer.is_left_out()


class ShardReader(RemoteReader):
    """See `RemoteReader`."""

    def build(self, needs: Needs) -> View:
        """See `RemoteReader.build`."""
        return cast("View", ShardView(self.indexer, needs))

    def snapshot(self, read: ActiveRead, state: DocumentState) -> LocalSnapshot:
        """See `Reader.snapshot`."""
        return ShardSnapshot(self, read, state)


class ShardSnapshot(RemoteSnapshot):
    """See `RemoteSnapshot`. Of a missing shard it is empty."""

    __slots__ = ()
    map_calls = staticmethod(map_shards)

    @property
    def missing(self) -> str:
        """See `LocalSnapshot.missing`."""
        return self.indexer.url if cast("ShardView", self._view).is_missing else ""

    def _ask(self, route: str, body: Mapping[str, Any]) -> Any:
        if self.missing:
            if route == "statistics":
                return 0, 0, [0] * len(set(body["terms"])), {}  # of distinct terms
            pages: dict[str, Any] = {"hits": [], "nodes": [], "next": None, "behind": None}
            return pages if route in ("rank", "scan", "walk") else []
        view = cast("ShardView", self._view)
        try:
            answer = super()._ask(route, {**body, "latest": True} if view.is_assumed else body)
        except StateGoneError:
            self.indexer.term_counts.clear()
            raise
        except StoreConnectionError as exc:
            if not self.indexer.is_optional:
                raise
            self.indexer.down = str(exc)
            self._view.removals = -1  # the read begins again
            raise StateGoneError(str(exc)) from exc
        view.is_assumed = False
        return answer

    def term_statistics(self, group: str, analyser: str, terms: Sequence[str], model: BM25) -> Statistics:
        """See `Snapshot.term_statistics`. Counts of terms that earlier reads met are known, as long as the state is the
        same, which the ranking checks: that saves one of two requests.
        """
        view, known, distinct = cast("ShardView", self._view), self.indexer.term_counts, dict.fromkeys(terms)
        key = self._scope, group, analyser, model
        state, rows, tokens, counts = known.get(key, ("", 0, 0, {}))
        if state and view.state in (None, state) and counts.keys() >= distinct.keys() and not self.missing:
            view.is_assumed, view.state = view.is_assumed or view.state is None, state
            return Statistics(rows, tokens, tuple(counts[term] for term in distinct))
        found = super().term_statistics(group, analyser, terms, model)
        if view.state is not None and not found.vocabulary:
            if len(known) > _MOST_SCOPES:
                known.clear()
            counts = counts if state == view.state and len(counts) <= _MOST_TERMS else {}
            counts.update(zip(distinct, found.frequencies, strict=True))
            known[key] = view.state, found.rows, found.tokens, counts
        return found

    def walk(self, group: str, filters: FilterLike | None, wanted: Mapping[str, Any] = EMPTY) -> Iterator[DocNode]:
        """See `RemoteSnapshot.walk`. The first page is requested at once."""
        walk = super().walk

        def begin() -> tuple[DocNode | None, Iterator[DocNode]]:
            nodes = walk(group, filters, wanted)
            return next(nodes, None), nodes

        first = Turn(begin)

        def rest() -> Iterator[DocNode]:
            node, nodes = first.result()
            if node is not None:
                yield node
                yield from nodes

        return rest()


class _AnyShard:
    """Asks one shard after the other, until one answers: all have the same models."""

    def __init__(self, connections: Sequence[ReplicatedConnection], name: str) -> None:
        self._connections, self._path = connections, _ROUTES.format(name=quote(name, safe=""), route="embed")

    def post(self, _: str, body: Mapping[str, Any]) -> Any:
        """See `RemoteIndexer.post`."""
        *others, last = sorted(self._connections, key=ReplicatedConnection.is_down)
        for one in others:
            with suppress(StoreConnectionError):
                return one.post(self._path, body)
        return last.post(self._path, body)


class NoJobs(Jobs):
    """The jobs of a Document that others write."""

    def __init__(self, docs: Document) -> None:
        self._docs = docs

    def list(self, *_: Any, **__: Any) -> list[Job]:
        """None of them."""
        return []

    def working(self) -> dict[str, Any]:
        """None of them."""
        return {}

    def submit(self, kind: str, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the services write."""
        raise ConfigError(f"{self._docs!r} only reads, and cannot {kind}. Call the service that writes.")

    get = cancel = retry = wait = submit  # type: ignore[assignment]  # there is no job to name


class RemoteShard(RemoteDocument):
    """One shard of `RemoteShards`."""

    def __init__(self, indexer: ShardIndexer) -> None:
        self.name = indexer.name
        self._indexer = cast("Any", indexer)
        self._reader = ShardReader(cast("Any", indexer))

    def documents(self, after: Any = None, limit: int = 100, status: Any = None, where: Any = None) -> Any:
        """See `Document.documents`."""
        return list(map(_info, self._ask("documents", [after, limit, status], where) or ()))

    def document(self, document: str) -> DocumentInfo:
        """See `Document.document`."""
        return _info(self._ask("document", [document], named=True))

    def versions(self, document: str) -> list[DocumentVersion]:
        """See `Document.versions`."""
        read_time, found = dt.datetime.fromisoformat, self._ask("versions", [document], named=True)
        return [DocumentVersion(**{**one, "created_at": read_time(one["created_at"])}) for one in found]

    def grep(self, text: str, where: Any = None, **options: Any) -> list[TextMatch]:
        """See `Document.grep`."""
        found = self._ask("grep", [text], where, options=options) or ()
        return [TextMatch(**{**one, "span": tuple(one["span"])}) for one in found]

    def status(self) -> DocumentStatus:
        """See `Document.status`."""
        found = self._ask("status", [])
        if found is None:
            return DocumentStatus(self.name, 0, (), (), 0, "")
        groups = tuple(GroupStatus(**{**one, "indexes": tuple(one["indexes"])}) for one in found["groups"])
        errors = tuple(ErrorInfo(**one) for one in found.get("errors", ()))
        return DocumentStatus(
            **{**found, "groups": groups, "failed": tuple(map(tuple, found["failed"])), "errors": errors}
        )

    def _ask(
        self,
        method: str,
        arguments: Sequence[Any],
        where: Any = None,
        *,
        named: bool = False,
        options: Mapping[str, Any] = EMPTY,
    ) -> Any:
        """Call a method of the service's Document; None of a shard that is left out, unless a document is named."""
        indexer = cast("ShardIndexer", self._indexer)
        if not named and indexer.is_left_out():
            return None
        filters = None if where is None else encode_filter(parse_filter(where))
        scope = encode_filter(self._reader.scope)
        body = {"method": method, "arguments": arguments, "options": options, "scope": scope, "where": filters}
        try:
            return indexer.post("catalogue", body)
        except StoreConnectionError as exc:
            if named or not indexer.is_optional:
                raise
            indexer.down = str(exc)
            return self._ask(method, arguments, where, options=options)


def _info(row: Mapping[str, Any]) -> DocumentInfo:
    error = None if row["error"] is None else ErrorInfo(**row["error"])
    return DocumentInfo(**{**row, "labels": tuple(row["labels"]), "error": error})


@known_arguments
class RemoteShards(ShardedDocument):
    """See `Document`, ``url`` with a list. It reads; the services write."""

    def __init__(
        self,
        *files: object,
        url: Sequence[str | Sequence[str]],
        name: str | None = None,
        token: str | Sequence[str] | None = None,
        embed: Any = None,
        partial: bool = False,
    ) -> None:
        require(not files, "dataset", files, "left out with url: the services have the files")
        is_listed = isinstance(url, Sequence) and all(isinstance(one, str) or is_list_of(one, str) for one in url)
        urls = [[one] if isinstance(one, str) else list(one) for one in url] if is_listed else []
        expected = "a list that has for each shard an address, or a list of the addresses of its replicas"
        require(bool(urls) and all(urls), "url", url, expected)
        self.name = "default" if name is None else validate_text("name", name)
        self.partial = validate_boolean("partial", partial)
        self._graph, self._file_readers = GroupGraph(self._graph), Readers(self._file_readers)
        with ExitStack() as undo:
            tokens = [token] * len(urls) if token is None or isinstance(token, str) else list(token)
            require(len(tokens) == len(urls), "token", "a list", "a text, or a list with one for each shard")
            connections = list(map(ReplicatedConnection, urls, tokens))
            for one in connections:
                undo.callback(one.close)
            self._open(connections, embed)
            undo.pop_all()

    def _open(self, connections: Sequence[ReplicatedConnection], embed: Any) -> None:
        path = _ROUTES.format(name=quote(self.name, safe=""), route="schema")

        def schema(connection: ReplicatedConnection) -> Any:
            try:
                return connection.post(path, {})
            except StoreConnectionError as exc:
                if not self.partial:
                    raise
                return exc

        answers = map_shards(schema, connections)
        known = next((one for one in answers if isinstance(one, dict)), None)
        if known is None:
            raise answers[0]
        _check_alike(dict(zip((one.url for one in connections), answers, strict=True)))
        order = _shard_order([one.url for one in connections], answers)
        connections, answers = ([some[at] for at in order] for some in (connections, answers))
        any_shard = cast("Any", _AnyShard(connections, self.name))
        models = {key: RemoteEmbedder(any_shard, key, known) for key in known["embed"]}
        own = {key: one.user_object for key, one in make_embedders(embed, None).items()}
        indexers = []
        for connection, answer in zip(connections, answers, strict=True):
            given = answer if isinstance(answer, dict) else known
            indexers.append(ShardIndexer(connection, self.name, {**models, **own} or None, given, self.partial))
            indexers[-1].down = "" if given is answer else str(answer)
        for one in indexers:
            one.others = indexers
        self._join([RemoteShard(one) for one in indexers], make_dataset(None, None, None, follow_links=False))
        self._indexer.where = f"Document {self.name!r} ({self.url})"

    create_node_group = add_reader = activate_group = RemoteDocument._refuse
    jobs = property(NoJobs)
    __repr__ = RemoteDocument.__repr__

    @property
    def groups(self) -> tuple[str, ...]:
        """See `Document.groups`."""
        return self.shards[0].groups

    @property
    def url(self) -> str:
        """The addresses of the shards."""
        return "; ".join(shard.url for shard in self.shards)

    @property
    def missing(self) -> tuple[str, ...]:
        """The addresses of the shards that are down, as of the last reads."""
        return tuple(shard.url for shard in self.shards if cast("Any", shard)._indexer.down)


RemoteShards.__name__ = "Document"  # as errors name it


def _check_alike(answers: Mapping[str, Any]) -> None:
    """Check that shards have the same fields and models, by their addresses."""
    known = {url: one for url, one in answers.items() if isinstance(one, dict)}
    (first, wanted), *others = known.items()
    for url, one in others:
        for what in ("fields", "embed"):
            if one[what] != wanted[what]:
                msg = f"The shards have different {what}: {first} has {wanted[what]!s:.200}, {url} {one[what]!s:.200}."
                raise ConfigError(f"{msg} Configure them alike.")


def _shard_order(urls: Sequence[str], answers: Sequence[Any]) -> list[int]:
    """Which address has each shard; one that does not answer has one of those that are left.

    Raises:
        ConfigError: If the services do not have the shards of one Document.
    """
    numbers: dict[int, int] = {}
    for at, answer in enumerate(answers):
        if not isinstance(answer, dict):
            continue
        number, shards = answer["shard"] or (0, 1)
        if shards != len(urls) or number in numbers:
            what = "is not a shard" if shards == 1 else f"is shard {number} of {shards}"
            other = f", as {urls[numbers[number]]} is" if number in numbers else ""
            msg = "url must have one address for each shard of a Document; "
            msg += f"got {len(urls)}, and {urls[at]} {what}{other}. "
            raise ConfigError(
                f"{msg}Replicas of a shard are a list in the list; several Documents are one for Retriever."
            )
        numbers[number] = at
    others = iter(at for at in range(len(urls)) if at not in numbers.values())
    return [numbers[one] if one in numbers else next(others) for one in range(len(urls))]
