"""`Document`: the collection of files that a user holds."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    overload,
)

from lazyrag.data.fields import DocField, Schema, make_schema
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.changes import Dataset, FileMetadata, PathLike, make_dataset
from lazyrag.document.export import export, import_from
from lazyrag.document.groups import (
    Definitions,
    GroupGraph,
    Step,
    built_in_groups,
    embed_identity,
    group_name,
    make_group,
)
from lazyrag.document.indexer import Builder
from lazyrag.document.ingest import TargetMaker
from lazyrag.document.ledger import Ledger
from lazyrag.document.load_files import AddReader, Readers, add_reader, resident_bytes
from lazyrag.document.nodes import NodeStore
from lazyrag.document.reader import Reader
from lazyrag.document.report import IngestReport, OnProgress, Options, Problem
from lazyrag.document.snapshot import LocalSnapshot, merged_windows, windows
from lazyrag.document.sync import (
    MAX_DELETED,
    DocumentVersion,
    Plan,
    add_files,
    add_texts,
    delete_files,
    make_plan,
    retry_failed,
    roll_back,
    sync,
    synchronise,
    update_metadata,
    versions_of,
    would_sync,
)
from lazyrag.document.verify import DocumentStatus, canonical_dump, repair, status_of, verified
from lazyrag.document.watch import OnError as OnWatchError
from lazyrag.document.watch import OnReport, Patience, Watcher, open_watcher
from lazyrag.errors import ConfigError, NotBuiltError, known_names
from lazyrag.loaders.base import DEFAULT_LIMITS, LoadLimits
from lazyrag.models.embedding import CheckedEmbedder, EmbedCallable, make_embedders
from lazyrag.models.embedding_cache import CachedEmbedder, EmbeddingCache
from lazyrag.models.protocols import Embedder
from lazyrag.stores.config import StoreConf
from lazyrag.validation import known_arguments, known_keywords, whole_number, yes_or_no

if TYPE_CHECKING:
    from typing import Self


OnError = Literal["collect", "raise"]


class MaintainedDocument:
    """What a `Document` offers beside reading: to sync, to take in and let go of, to look after its store.

    None of it but `retry_failed` can be asked of a view that `Document.restricted` made: it concerns what such a view
    does not see.
    """

    _builder: Builder
    _reader: Reader

    @known_keywords
    def sync(
        self,
        *,
        dry_run: bool = False,
        on_error: OnError = "collect",
        max_deleted: float = MAX_DELETED,
        max_calls: int | None = None,
        wait_s: float = 30.0,
    ) -> IngestReport:
        """Bring in what changed in the dataset, and try once more whatever failed.

        Files are known by size, time of modification and inode, and hashed where these leave a doubt. What changed is
        loaded, transformed and embedded as far as it is new, beside what is live, and becomes live document by document
        as a whole. A file that fails leaves what was live of it as it was. The first use of a Document syncs by itself.
        Groups and embeddings that nothing has asked for yet are no part of it: they are made when something asks.

        Args:
            dry_run: Only report what would be done, as far as files tell.
            on_error: ``"collect"`` reports what fails, ``"raise"`` stops after the batch in which something does.
            max_deleted: Share of the known files in [0, 1] that may be gone at once, if more than ten. Where more are
                gone, or all, they are kept and reported as withheld: a folder that is not mounted looks just like that.
                1 lets all of them go.
            max_calls: Do nothing if `plan` says that more calls of models would be made.
            wait_s: How long to wait for another program that writes, in seconds.

        Raises:
            DatasetPathError: If the dataset's folder cannot be listed.
            IngestionError: If every file failed, or if one did and ``on_error`` is ``"raise"``.
            StoreBusyError: If another program writes the store.
            ConfigError: If an argument is out of its range, or more calls are planned than ``max_calls``.

        Example:
            >>> from lazyrag import Document
            >>> print(Document().sync())
            0 added, 0 failed, 0 skipped
        """
        if on_error not in get_args(OnError):
            msg = f"on_error is {on_error!r}. {known_names(str(on_error), get_args(OnError))}"
            raise ConfigError(msg)
        builder = self._whole("sync")
        if isinstance(wait_s, bool) or not isinstance(wait_s, (int, float)) or not wait_s >= 0:
            msg = f"wait_s is {wait_s!r}; give a number of seconds, at least 0."
            raise ConfigError(msg)
        if yes_or_no("dry_run", dry_run):
            return would_sync(builder, max_deleted=max_deleted)
        if max_calls is not None:
            allowed = whole_number("max_calls", max_calls, 0)
            planned = make_plan(builder, max_deleted)
            if planned.calls > allowed:
                msg = (
                    f"A sync would make about {planned.calls} calls of models, and max_calls is {allowed}. Nothing was "
                    "done. plan() tells what they are for; call sync() with a larger max_calls, or without."
                )
                raise ConfigError(msg)
        return sync(builder, max_deleted=max_deleted, raises=on_error == "raise", wait_s=wait_s)

    @known_keywords
    def plan(self, *, max_deleted: float = MAX_DELETED) -> Plan:
        """What `sync` would do and cost. Changed files are loaded for it; no transform and no model is called.

        Example:
            >>> from lazyrag import Document
            >>> Document().plan().calls
            0
        """
        return make_plan(self._whole("plan"), max_deleted)

    def retry_failed(self) -> IngestReport:
        """Try once more whatever failed: files, transforms, embeddings. Returns the new `last_report`.

        What fails again, even for every file, stands in the report; nothing is raised.

        Example:
            >>> from lazyrag import Document
            >>> Document().retry_failed().failed
            ()
        """
        retry_failed(self._builder)
        return self._reader.report() or IngestReport()

    def status(self) -> DocumentStatus:
        """What it holds: documents, nodes, indexes, failures. Nothing is loaded or built for it.

        Example:
            >>> from lazyrag import Document
            >>> print(Document().status())
            default: 0 documents, 0 failed steps
        """
        return status_of(self._whole("status"))

    def verify(self) -> tuple[Problem, ...]:
        """Compare the ledger with what the stores and files really hold; all of it is read.

        Returns:
            What is wrong; () for nothing. Kept versions before the live ones are not looked at; `rollback` does that.

        Raises:
            StoreBusyError: If another program writes all the time.

        Example:
            >>> from lazyrag import Document
            >>> Document().verify()
            ()
        """
        return tuple(verified(self._whole("verify")).problems)

    def repair(self) -> tuple[Problem, ...]:
        """Mend what `verify` finds: what has a source is made anew, what nobody knows of is removed.

        Done once more, it changes nothing.

        Returns:
            What is still wrong, since it has no source any longer.

        Raises:
            StoreBusyError: If another program writes the store.

        Example:
            >>> from lazyrag import Document
            >>> Document().repair()
            ()
        """
        return repair(self._whole("repair"))

    @known_keywords
    def versions(self, document: str) -> list[DocumentVersion]:
        """The versions of a document that are kept, oldest first; see ``keep_versions``.

        Args:
            document: Its path relative to the dataset, or its id.

        Raises:
            ConfigError: If there is no such document.
        """
        return versions_of(self._whole("versions"), document)

    @known_keywords
    def rollback(self, document: str, version: int | None = None) -> DocumentVersion:
        """Make an earlier version of a document live again, until its file changes.

        Nothing is loaded or embedded for it. The version becomes the newest one; the one that was live is kept as an
        earlier one.

        Args:
            document: Its path relative to the dataset, or its id.
            version: Its number; the one before the live one where it is left out.

        Raises:
            ConfigError: If there is no such document, or the version is not kept.
            StoreBusyError: If another program writes the store.
        """
        number = None if version is None else whole_number("version", version, 1)
        return roll_back(self._whole("rollback"), document, number)

    @known_keywords
    def add_files(
        self,
        files: Sequence[PathLike] | Mapping[str, PathLike],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> IngestReport:
        """Take in single files; one that is known already is read again if it changed.

        A file in the dataset's folder keeps its place there. Another one is not looked after by `sync`: its document
        stays as it is until it is added again or deleted.

        Args:
            files: Paths, whose file names are their identities, or a mapping of ids of your own to paths.
            metadata: What to add to the metadata of some of them, by file name or id.

        Returns:
            What became of these files.

        Raises:
            DatasetPathError: If a path is not there.
            ConfigError: If an argument is of the wrong kind.
            StoreBusyError: If another program writes the store.
        """
        return add_files(self._whole("add_files"), files, metadata)

    @known_keywords
    def add_texts(
        self, texts: Mapping[str, str], metadata: Mapping[str, Mapping[str, Any]] | None = None
    ) -> IngestReport:
        """Take in texts that are no files; a text of a known id takes the old one's place.

        Args:
            texts: Ids of your own to texts, neither of them blank.
            metadata: Metadata of some of them, by id.

        Returns:
            What became of these texts.

        Raises:
            ConfigError: If an argument is of the wrong kind, or an id is that of a file.
            StoreBusyError: If another program writes the store.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> print(docs.add_texts({"note-1": "Green tea is not roasted."}))
            1 added, 0 failed, 0 skipped
        """
        return add_texts(self._whole("add_texts"), texts, metadata)

    @known_keywords
    def delete_files(self, documents: Iterable[str]) -> IngestReport:
        """Let go of documents: hidden at once, removed from the stores after that.

        The files themselves are not touched; those in the dataset's folder stay away until `add_files` names them.

        Args:
            documents: Their paths relative to the dataset, or their ids.

        Raises:
            ConfigError: If there is no such document; then nothing is deleted.
            StoreBusyError: If another program writes the store.
        """
        return delete_files(self._whole("delete_files"), documents)

    @known_keywords
    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]]) -> IngestReport:
        """Change documents' metadata. They go before ``file_metadata`` and what loaders find, and stay over a sync.

        Nothing is loaded or embedded; transforms that are given whole nodes, and may read metadata, run again.

        Args:
            changes: By path relative to the dataset, or id: names to values. None takes back what was changed before.

        Raises:
            ConfigError: If there is no such document, a name is built in, or a value cannot be kept.
            StoreBusyError: If another program writes the store.
        """
        return update_metadata(self._whole("update_metadata"), changes)

    @known_keywords
    def export(self, folder: PathLike) -> Path:
        """Write what is live into a new folder: documents and nodes as JSON lines, vectors as arrays.

        `import_from` reads it, on any machine, without loading or embedding anything.

        Args:
            folder: Where; nothing may be there yet.

        Returns:
            The folder.

        Raises:
            ConfigError: If something is there.
            StoreError: If it cannot be written; nothing of it is kept then.
        """
        return export(self._whole("export"), folder)

    @known_keywords
    def import_from(self, folder: PathLike) -> int:
        """Bring in what `export` wrote, into a Document that holds nothing yet.

        Nothing is loaded, transformed or embedded for it. Groups whose definitions differ from the exported ones are
        built anew when something asks for them.

        Returns:
            How many documents came in.

        Raises:
            ConfigError: If the folder holds no export, or one with other ``doc_fields``, or this Document is not empty.
            StoreBusyError: If another program writes the store.
        """
        return import_from(self._whole("import_from"), folder)

    def dump(self) -> Iterator[str]:
        """What is live, as lines of JSON that are equal wherever the Document is equal: for tests and snapshots.

        See `lazyrag.document.verify.canonical_dump`. Nothing is loaded or built for it.

        Example:
            >>> from lazyrag import Document
            >>> list(Document().dump())
            []
        """
        return canonical_dump(self._whole("dump"))

    def _whole(self, what: str) -> Builder:
        if self._reader.scope is not None:
            msg = f"{what}() concerns all of a Document, and this one is restricted. Ask the one that it is a view of."
            raise ConfigError(msg)
        return self._builder


class NavigableDocument:
    """What a `Document` offers to reach nodes by their places in the tree: of a group, above, below, beside.

    All of it may be asked of a view that `Document.restricted` made, and shows nothing that the view does not see.
    """

    _builder: Builder
    _reader: Reader

    @known_keywords
    def get_nodes(
        self,
        group: str = LAZY_ROOT_NAME,
        *,
        uids: Iterable[str] | None = None,
        document_ids: Iterable[str] | None = None,
        numbers: Iterable[int] | None = None,
        filters: FilterLike | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[DocNode]:
        """Nodes of a group, document by document in order of path, in order of number.

        Args:
            group: The group; whole documents by default.
            uids: Only nodes with these uids.
            document_ids: Only nodes of these documents (uids of root nodes).
            numbers: Only nodes with these ordinals in their document, from 1.
            filters: Only nodes that satisfy these filters.
            limit: At most so many.
            offset: Leave out so many first.

        Raises:
            NotRegisteredError: If the group is not defined.
            ConfigError: If limit or offset is no whole number or negative, or a filter does not fit the fields.

        Example:
            >>> from lazyrag import Document
            >>> Document().get_nodes("FineChunk", limit=10)
            []
        """
        first = whole_number("offset", offset, 0)
        last = None if limit is None else first + whole_number("limit", limit, 0)
        wanted = [
            (attribute, _value_set(name, values))
            for attribute, name, values in (
                ("uid", "uids", uids),
                ("document_id", "document_ids", document_ids),
                ("number", "numbers", numbers),
            )
            if values is not None
        ]
        name = self._known(group)
        self._reader.bind(filters)  # refuses what does not fit

        def matching(snapshot: LocalSnapshot) -> list[DocNode]:
            found = (
                node
                for node in snapshot.walk(name, filters)
                if all(getattr(node, attribute) in values for attribute, values in wanted)
            )
            return list(itertools.islice(found, first, last))

        return self._reader.read(matching, frozenset([Step(name)]))

    def find(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to the related nodes of another group, through the lowest group above both.

        The result keeps the nodes' order, names each once, and carries the score of the node that led there.

        Example:
            >>> from lazyrag import Document
            >>> Document().find("CoarseChunk")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(_node_list(nodes), name)

    def find_parent(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to their ancestors in a group above theirs; see `find`.

        Example:
            >>> from lazyrag import Document
            >>> Document().find_parent("lazyllm_root")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(self._line_checked(nodes, name, above=True), name)

    def find_children(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to their descendants in a group below theirs; see `find`.

        Example:
            >>> from lazyrag import Document
            >>> Document().find_children("FineChunk")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(self._line_checked(nodes, name, above=False), name)

    @overload
    def window(
        self, node: DocNode, before: int = ..., after: int = ..., *, merge: Literal[False] = ...
    ) -> list[DocNode]: ...
    @overload
    def window(self, node: DocNode, before: int = ..., after: int = ..., *, merge: Literal[True]) -> DocNode: ...
    @overload
    def window(
        self, node: Sequence[DocNode], before: int = ..., after: int = ..., *, merge: bool = ...
    ) -> list[DocNode]: ...
    @known_keywords
    def window(
        self, node: DocNode | Sequence[DocNode], before: int = 1, after: int = 1, *, merge: bool = False
    ) -> DocNode | list[DocNode]:
        """A node with its neighbours: those before and behind it in its group and document, in order.

        At the document's ends there are fewer. For several nodes, such as hits, windows that overlap or touch are one;
        windows come in the order of the first node that leads to each, so that each node is named once. A node that was
        given keeps its score, its neighbours carry that of the first node which led there.

        Args:
            node: A node of this Document, or several.
            before: How many neighbours before each, at least 0.
            after: How many behind each, at least 0.
            merge: Give each window as one node: its text repeats no overlap where spans tell it, its `span` is that of
                all of it where all of it stands in the source, `merged_from` names its nodes. Where no spans are,
                texts are joined by line ends.

        Returns:
            The nodes; with ``merge``, one node for one, and a list of them for several.

        Raises:
            StaleNodeError: If a node does not stand in the live tree any more, or cannot be seen here.
            ConfigError: If it belongs to another Document, or a number is none.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Pick it. Wither it. Roll it. Dry it."})
            >>> docs.create_node_group("step", transform="SentenceWindow")
            >>> [node.text for node in docs.window(docs.get_nodes("step")[2], before=1, after=5)]
            ['Wither it. ', 'Roll it. ', 'Dry it.']
            >>> docs.window(docs.get_nodes("step")[2], merge=True).text
            'Wither it. Roll it. Dry it.'
        """
        reach = whole_number("before", before, 0), whole_number("after", after, 0)
        listed = _node_list(node)
        if not yes_or_no("merge", merge):
            return self._reader.read(lambda snapshot: windows(snapshot, listed, *reach))
        merged = self._reader.read(lambda snapshot: merged_windows(snapshot, listed, *reach))
        return merged[0] if isinstance(node, DocNode) else merged

    def get_window_nodes(
        self, node: DocNode, span: tuple[int, int] = (-5, 5), merge: bool = False
    ) -> DocNode | list[DocNode]:
        """`window` as other systems call it: from five neighbours before a node to five behind it.

        Args:
            node: A node of this Document.
            span: The first and the last neighbour, counted from the node: (-5, 5).
            merge: See `window`.

        Raises:
            ConfigError: If the span is no pair of a number up to 0 and one from 0.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Pick it. Wither it. Roll it. Dry it."})
            >>> docs.create_node_group("step", transform="SentenceWindow")
            >>> docs.get_window_nodes(docs.get_nodes("step")[0], (0, 1), merge=True).text
            'Pick it. Wither it. '
        """
        if not isinstance(span, (tuple, list)) or len(span) != 2:
            msg = f"span is {span!r}; give the first and the last neighbour, such as (-5, 5)."
            raise ConfigError(msg)
        before = -whole_number("span[0]", span[0], -sys.maxsize, 0)
        after = whole_number("span[1]", span[1], 0)
        return self.window(node, before, after, merge=True) if merge else self.window(node, before, after)

    def _known(self, name: str) -> str:
        name = group_name(name)
        self._reader.line(name)
        return name

    def _line_checked(self, nodes: Sequence[DocNode], target: str, *, above: bool) -> list[DocNode]:
        checked = _node_list(nodes)
        for node in checked:
            lower, upper = (node.group, target) if above else (target, node.group)
            if upper not in self._reader.line(lower)[1:]:
                kind = "above" if above else "below"
                msg = f"The group {target!r} does not stand {kind} {node.group!r}. Use find({target!r})."
                raise ConfigError(msg)
        return checked


def _value_set(name: str, values: Any) -> frozenset[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        msg = f"get_nodes got {name}={values!r}; give a list of values."
        raise ConfigError(msg)
    return frozenset(values)


def _node_list(nodes: Any) -> list[DocNode]:
    if isinstance(nodes, DocNode):
        nodes = [nodes]
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        msg = f"Give a node or a list of nodes to follow, not {nodes!r:.80}."
        raise ConfigError(msg)
    listed = list(nodes)
    stray = [one for one in listed if not isinstance(one, DocNode) or not one.group]
    if stray:
        msg = f"Only nodes of a Document can be followed through its tree, not {stray[0]!r}."
        raise ConfigError(msg)
    return listed


_GRACE_S = 10.0  # longer than a query takes; who reads for longer does it again
_MOST_WORKERS = 4


def make_options(
    *,
    workers: int | None,
    processes: int,
    keep_versions: int,
    read_only: bool,
    on_progress: OnProgress | None,
    limits: LoadLimits | None,
    readers: Readers,
) -> Options:
    """A Document's arguments on how it ingests, checked."""
    if on_progress is not None and not callable(on_progress):
        msg = f"on_progress is {on_progress!r}; give a function that takes a Progress, or None."
        raise ConfigError(msg)
    threads = min(_MOST_WORKERS, os.cpu_count() or 1) if workers is None else whole_number("workers", workers, 1)
    processes = whole_number("processes", processes, 0)
    return Options(
        workers=threads,
        processes=processes,
        limits=_checked_limits(limits, processes),
        readers=readers,
        keep_versions=whole_number("keep_versions", keep_versions, 0),
        read_only=yes_or_no("read_only", read_only),
        on_progress=on_progress,
    )


def _checked_limits(limits: LoadLimits | None, processes: int) -> LoadLimits:
    """Limits of one file; those that nothing would hold are refused, but for the default ones."""
    if limits is None:
        return DEFAULT_LIMITS
    if not isinstance(limits, LoadLimits):
        msg = f"limits is {limits!r}; give a LoadLimits, or None for the default ones."
        raise ConfigError(msg)
    for name in ("time_s", "memory_bytes"):
        value = getattr(limits, name)
        if value in (None, getattr(DEFAULT_LIMITS, name)):
            continue
        if not processes:
            msg = (
                f"limits has {name}={value!r}, and only another process can be held to it. "
                f"Give processes=1 or more, or {name}=0."
            )
            raise ConfigError(msg)
        if name == "memory_bytes" and not resident_bytes(os.getpid()):
            msg = f"limits has memory_bytes={value!r}, and this system does not tell it. Give memory_bytes=0."
            raise ConfigError(msg)
    return limits


def open_builder(
    name: str,
    dataset: Dataset,
    graph: GroupGraph,
    schema: Schema,
    embedders: Mapping[str, CheckedEmbedder],
    conf: StoreConf,
    options: Options,
) -> Builder:
    """Open a Document's stores and its ledger.

    Raises:
        ConfigError: If it is to be read only and lies in memory.
        StoreError: If a store cannot be opened.
    """
    with ExitStack() as undo:
        stores = conf.open(read_only=options.read_only)
        undo.callback(stores.close)
        file = stores.ledger
        if options.read_only and file.path is None:
            msg = (
                "read_only=True opens what another program keeps on disk, and this Document lies in memory. "
                "Give store_conf={'segment_store': {'type': 'map', 'kwargs': {'uri': ...}}}."
            )
            raise ConfigError(msg)
        ledger = Ledger(file, name)
        nodes = NodeStore(stores.segments, stores.vectors, schema)
        definitions = Definitions(name, lambda: ledger.token, graph, schema)
        identities = {key: embed_identity(one.given, one.embedder.identity) for key, one in embedders.items()}
        remembering = dict(embedders)
        if file.path is not None and embedders and not options.read_only:
            cache = undo.enter_context(EmbeddingCache(Path(f"{file.path}.embeddings")))
            remembering = {key: _remembering(one, cache, identities[key]) for key, one in embedders.items()}
        targets = TargetMaker(definitions, ledger, nodes, remembering, identities)
        if file.path is not None:
            options = replace(options, grace_s=_GRACE_S)
        closing = undo.pop_all()

        def close() -> None:
            with closing:
                if not options.read_only:
                    ledger.unclaim()

        builder = Builder(name, dataset, definitions, nodes, ledger, embedders, targets, options, close)
        builder.on_sync = lambda: synchronise(builder)
        return builder


def _remembering(embedder: CheckedEmbedder, cache: EmbeddingCache, identity: str) -> CheckedEmbedder:
    """An embedder that never embeds a text twice, whatever becomes of this process."""
    if isinstance(embedder.embedder, CachedEmbedder):
        return embedder
    return CheckedEmbedder(CachedEmbedder(embedder.embedder, cache, identity=identity), embedder.name, embedder.key)


P = ParamSpec("P")
R = TypeVar("R")


class _ClassOrInstance(Generic[P, R]):
    """A method that gets the instance it is called on, or the class."""

    def __init__(self, function: Callable[Concatenate[Any, P], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object | None, owner: type) -> Callable[P, R]:
        bound: Callable[P, R] = self._function.__get__(owner if instance is None else instance)
        return bound


@known_arguments
class Document(MaintainedDocument, NavigableDocument):
    """A collection of files as a tree of node groups (spec 001).

    Nothing is read until a question, `get_nodes` or `activate_group` needs it; then every file is loaded, and a group
    is built, once. A file that fails is reported in `last_report` with one warning; the others go on. Where
    ``store_conf`` names a file, all of it is kept there, and the next program goes on with it; else it lives in memory.

    Args:
        dataset_path: A folder, or one file. None makes an empty Document.
        embed: A callable that turns one text into one vector (numbers, or a dict from dimension to weight), or several
            by embed key. With an attribute ``batch_size`` above 1 it gets lists of texts.
        manager: Must be False: the service is not built yet.
        launcher: Must be None: clusters are not built yet.
        store_conf: Where segments and vectors are kept: in memory, if it is left out; in a file and a folder beside it,
            with ``{"segment_store": {"type": "map", "kwargs": {"uri": "store.db"}}}``. ``timeout_s`` beside ``uri``
            says how long to wait for another program's lock on the file (30 s). Stores of others are named in the same
            way; on a server they need a ``name``, and a path for the ``"ledger"``.
        doc_fields: Fields beyond the built-in ones that filters may read, by name.
        name: Tells Documents in one store apart. None means ``"default"``.
        doc_files: Single files instead of a folder: paths (each file's name is its identity), or a mapping of ids of
            your own to paths.
        file_metadata: What you know of the files: a mapping from path relative to the dataset (or id) to metadata, or
            a function of the file's `pathlib.Path` that returns metadata or None. It goes before what loaders find.
        read_only: Ask what another program keeps in ``store_conf``'s file, and write nothing.
        keep_versions: How many versions of a document before the live one are kept, for `rollback`.
        workers: Threads that call loaders and transforms where one call takes more than a moment; None means one for
            each core, at most four. 1 calls them one after the other, for those that cannot be called by several.
        processes: Processes that load files, for many PDF or docx. Only loaders that can be imported by name; the
            others are called here. As always with processes, a program that asks for them does so under
            ``if __name__ == "__main__":``.
        limits: What one file may take while it is loaded, see `LoadLimits`; None for the default limits.
        on_progress: Called with a `Progress` at every step of ingestion; a terminal shows a bar anyhow.

    Raises:
        DatasetPathError: If a path is not there.
        ConfigError: If an argument is of the wrong kind, or two do not go together.
        MissingDependencyError: If a store needs a package that is not installed.
        StoreConnectionError: If a store's server does not answer.
        NotBuiltError: If something is asked for that this release does not contain.

    Example:
        >>> docs = Document()
        >>> docs.create_node_group("block", transform=lambda d: d.splitlines())
        >>> docs.get_nodes("block")
        []
    """

    FineChunk: ClassVar[str] = "FineChunk"
    """Built-in group: chunks of at most 128 tokens, 12 of overlap."""
    MediumChunk: ClassVar[str] = "MediumChunk"
    """Built-in group: chunks of at most 256 tokens, 25 of overlap."""
    CoarseChunk: ClassVar[str] = "CoarseChunk"
    """Built-in group: chunks of at most 1024 tokens, 100 of overlap."""

    _graph: GroupGraph = built_in_groups()
    _file_readers: Readers = Readers()
    _watcher: Watcher | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._file_readers = Readers(cls._file_readers)
        cls._graph = GroupGraph(cls._graph)  # what is defined on a subclass is not there for other Documents

    def __init__(
        self,
        dataset_path: PathLike | None = None,
        embed: Embedder | EmbedCallable | Mapping[str, Embedder | EmbedCallable] | None = None,
        manager: bool = False,
        launcher: Any = None,
        store_conf: Mapping[str, Any] | None = None,
        doc_fields: Mapping[str, DocField] | None = None,
        name: str | None = None,
        doc_files: Sequence[PathLike] | Mapping[str, PathLike] | None = None,
        file_metadata: FileMetadata = None,
        *,
        read_only: bool = False,
        keep_versions: int = 0,
        workers: int | None = None,
        processes: int = 0,
        on_progress: OnProgress | None = None,
        limits: LoadLimits | None = None,
    ) -> None:
        if manager is not False:
            msg = f"manager is {manager!r}: the managing service is not built yet. Leave it False."
            raise NotBuiltError(msg)
        if launcher is not None:
            msg = f"launcher is {launcher!r}: running on a cluster is not built yet. Leave it None."
            raise NotBuiltError(msg)
        if name is not None and (not isinstance(name, str) or not name.strip()):
            msg = f"name is {name!r}; give a non-empty text, or None."
            raise ConfigError(msg)
        self.name = name or "default"
        embedders = make_embedders(embed)
        schema = make_schema(doc_fields)
        dataset = make_dataset(dataset_path, doc_files, file_metadata)
        self._file_readers = Readers(type(self)._file_readers)
        options = make_options(
            workers=workers,
            processes=processes,
            keep_versions=keep_versions,
            read_only=read_only,
            on_progress=on_progress,
            limits=limits,
            readers=self._file_readers,
        )
        conf = StoreConf.parse(store_conf)
        conf.check_use(name, embeds=bool(embedders))
        self._graph = GroupGraph(type(self)._graph)
        self._builder = open_builder(self.name, dataset, self._graph, schema, embedders, conf, options)
        self._reader = Reader(self._builder)

    @_ClassOrInstance
    def create_node_group(
        self_or_class: Any,  # noqa: N805  on the class there is no self
        /,
        name: str,
        transform: Any,
        parent: str = LAZY_ROOT_NAME,
        trans_node: bool = False,
        *,
        replace: bool = False,
        version: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Define a node group: every node of the parent group, transformed (spec 001).

        On the class it is there for every Document, also for those that exist; on an instance for that one, where it
        shadows the class's. It is built when something first asks for it, at any time. The same definition again
        changes nothing.

        Args:
            name: Its name.
            transform: A function of a node's content; a `NodeTransform` class or instance; the name of a registered
                transform; `TransformArgs`, or a mapping of its arguments. It returns a str, a DocNode, a number or
                mapping, None, or an iterable of those. A list of any of these: each document takes the first entry
                whose pattern fits its path, and has no nodes where none does.
            parent: The group it is made of; the root group by default.
            trans_node: Give the function the DocNode instead of its content.
            replace: Take the place of another definition of that name; the groups beneath are built anew.
            version: Tells definitions apart that look the same: the version of a model, of a prompt.
            kwargs: Parameters of a transform class.

        Raises:
            NotRegisteredError: If the parent or the named transform is unknown.
            AlreadyRegisteredError: If the name is taken by another definition and ``replace`` is false.
            ConfigError: If the group would stand above itself, or an argument is of the wrong kind.

        Example:
            >>> docs = Document()
            >>> docs.create_node_group("chunk", transform="SentenceSplitter", chunk_size=64, chunk_overlap=8)
        """
        group = make_group(name, transform, parent, trans_node=trans_node, version=version, kwargs=kwargs)
        self_or_class._graph.define(group, replace=replace)

    add_reader = cast("AddReader", _ClassOrInstance(add_reader))

    @property
    def reader(self) -> Reader:
        """The query side, for retrievers."""
        return self._reader

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the node groups that are defined, sorted, the root group last."""
        return (*self._graph, LAZY_ROOT_NAME)

    @property
    def embed_keys(self) -> tuple[str, ...]:
        """Names of the embed callables; () where there is none."""
        return tuple(self._builder.embedders)

    @property
    def fields(self) -> Mapping[str, DocField]:
        """The fields that filters may read, by name: the built-in and the declared ones."""
        return self._reader.schema

    @property
    def last_report(self) -> IngestReport | None:
        """What became of every file so far; None before the first use.

        A restricted Document's names only the files that can be seen through it.
        """
        return self._reader.report()

    def activate_group(self, *names: str) -> None:
        """Build groups now instead of at the first question.

        Raises:
            NotRegisteredError: If one is not defined.
            IngestionError: If every file fails.

        Example:
            >>> docs = Document()
            >>> docs.activate_group("FineChunk", "CoarseChunk")
            >>> print(docs.last_report)
            0 added, 0 failed, 0 skipped
        """
        for name in names:
            self._builder.group(self._known(name))

    @known_keywords
    def watch(
        self,
        *,
        debounce_s: float = 0.5,
        max_wait_s: float = 10.0,
        poll_s: float | None = None,
        max_deleted: float = MAX_DELETED,
        on_report: OnReport | None = None,
        on_error: OnWatchError | None = None,
    ) -> Watcher:
        """Sync whenever the dataset's files change, in a thread of its own, until the watcher or the Document closes.

        It begins with a sync of what changed before; nothing that changes from then on is missed. What a sync
        guarantees stays as it is: a question sees one version of each document, and a crash loses nothing. Files that
        fail stand in the report, and are tried again with the next change; where a whole sync fails it is tried again
        by itself, after 1 s, 2 s, 4 s ... up to a minute.

        Args:
            debounce_s: A sync begins when nothing has changed for so many seconds, at least 0.
            max_wait_s: However busy the folder is, a change waits no longer than so many seconds, at least
                ``debounce_s``.
            poll_s: Look at all files every so many seconds, more than 0, instead of waiting for the system's events:
                for network folders, which have none, and for links whose targets lie elsewhere.
            max_deleted: As for `sync`.
            on_report: Called with the `IngestReport` of every sync, in the watcher's thread.
            on_error: Called with what a sync raises, in the same thread. Without it the first error of a row is told
                by a warning; `Watcher.errors` keeps them anyhow.

        Raises:
            ConfigError: If there are no files to watch, the Document is read-only, restricted or watched already, or an
                argument is out of its range.
            MissingDependencyError: If watchfiles is not installed and ``poll_s`` is not given.
            DatasetPathError: If the system refuses to watch.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, Document(folder) as docs:
            ...     with docs.watch() as watcher:
            ...         print(watcher.wait_for_sync(timeout_s=60))
            0 added, 0 failed, 0 skipped
        """
        builder = self._whole("watch")
        if self._watcher is not None and self._watcher.is_running:
            msg = f"{builder.where} is watched already. Use that watcher, or close it before another one begins."
            raise ConfigError(msg)
        self._watcher = open_watcher(
            builder,
            Patience(debounce_s, max_wait_s),
            poll_s=poll_s,
            max_deleted=max_deleted,
            on_report=on_report,
            on_error=on_error,
        )
        return self._watcher

    def restricted(self, filters: FilterLike) -> Self:
        """The same Document, of which only the nodes can be seen that satisfy a filter.

        Hits, parents, children, `get_nodes`, `last_report`: nothing else leaves it, whatever a question asks for. A
        node has the fields of what it was made of, overlaid with its own. Groups defined on the view are the
        Document's, and so are the stores: closing the view closes nothing. Warnings are for who runs the program: they
        name every file.

        Raises:
            ConfigError: If the filter is None or empty, or does not fit the fields.

        Example:
            >>> Document().restricted({"file_type": ".pdf"}).get_nodes()
            []
        """
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._reader = self._reader.narrowed(filters)
        return view

    def close(self) -> None:
        """Let go of files and connections, after what another thread may be building; twice does no harm.

        Its watcher, if there is one, is closed before.

        A Document is also a context manager that closes itself.

        Example:
            >>> with Document() as docs:
            ...     docs.get_nodes()
            []
        """
        if self._reader.scope is None:
            if self._watcher is not None:
                self._watcher.close()
            self._builder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self._builder.where}>"
