"""`Document`: a collection of files as a tree of node groups. Its methods call the modules that do
the work.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Literal, SupportsIndex, cast, overload

import lazyrag.ingest.documents as editing
import lazyrag.ingest.sync as syncing
import lazyrag.read.catalogue as listing
from lazyrag.data.fields import DocField, Schema, make_schema
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, Location, Span
from lazyrag.errors import ConfigError, IngestionWarning, count, warn_user
from lazyrag.groups.node_group import (
    Definitions,
    GroupGraph,
    GroupOptions,
    Step,
    built_in_groups,
    group_name,
    make_group,
)
from lazyrag.ingest.changes import MAX_DELETED, ingest_changes
from lazyrag.ingest.dataset import Dataset, FileMetadata, PathLike, make_dataset
from lazyrag.ingest.indexer import Indexer, report_of
from lazyrag.ingest.load_files import AddReader, Readers, add_reader
from lazyrag.ingest.model_identity import check_probes, find_identities, next_identity
from lazyrag.ingest.plan import BuildPlanner
from lazyrag.ingest.report import IngestReport, Options, Problem
from lazyrag.ingest.sync import OnError, SyncPlan
from lazyrag.ledger.lease import WAIT_S
from lazyrag.ledger.ledger import Ledger
from lazyrag.loaders.base import DEFAULT_LIMITS, LoadLimits
from lazyrag.loaders.process import resident_bytes
from lazyrag.models.embedding import CheckedEmbedder, EmbedCallable, make_embedders
from lazyrag.models.protocols import Embedder
from lazyrag.progress.calls import OnProgress, during_call
from lazyrag.read.nodes import NodeStore
from lazyrag.read.scope import Reader
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.read.versions import DocumentVersion, list_versions
from lazyrag.read.windows import build_windows
from lazyrag.registry import Registry
from lazyrag.stores.config import StoreConf
from lazyrag.stores.protocol import collection_prefix
from lazyrag.text.analyzers import term_function
from lazyrag.validation import (
    known_arguments,
    known_keywords,
    require,
    validate_boolean,
    validate_choice,
    validate_integer,
    validate_text,
    validate_texts,
)

if TYPE_CHECKING:
    from typing import Self

    from lazyrag.document.tables import SqlRow, Table
    from lazyrag.ingest.verify import DocumentStatus
    from lazyrag.ingest.watch import OnError as OnWatchError
    from lazyrag.ingest.watch import OnReport, Watcher
    from lazyrag.maintain.certificate import DeletionCertificate
    from lazyrag.models.embedding_cache import EmbeddingCache
    from lazyrag.read.catalogue import DocumentInfo, TextMatch, VersionDiff
    from lazyrag.read.marks import Marks


services: Registry[Callable[..., Any]] = Registry("service")
"""What serves a Document from this program."""
services.declare("http", "lazyrag.server.supervisor:HostedService", extra="server")

_GRACE_S = 10.0  # longer than a query takes; a read that takes longer starts again
_MAX_WORKERS = 4


if TYPE_CHECKING:
    # A checker can match it with a protocol's member, which a descriptor of our own it cannot.
    _class_or_instance = classmethod
else:

    class _class_or_instance:  # noqa: N801  a decorator
        """Descriptor of a method that receives the instance it is called on, or the class."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._function = function
            self.__doc__ = function.__doc__

        def __get__(self, instance: object | None, owner: type) -> Callable[..., Any]:
            return self._function.__get__(owner if instance is None else instance)


@known_arguments
class Document:
    """A collection of files as a tree of node groups (spec 001).

    Nothing is loaded until a query, `get_nodes` or `activate_group` needs it; then all files are
    loaded, and each group is built once. A file that fails is recorded in `last_report` with one
    warning; the others are ingested. If ``store_conf`` names a file, everything is stored there and
    the next program continues with it; otherwise it is kept in memory.

    Args:
        dataset_path: A folder, or one file. None creates an empty Document.
        embed: A callable from one text to one vector (numbers, or a dict from dimension to weight),
            or several of them by embed key. It is called by several threads, see ``workers``: it
            must be thread-safe, or pass ``workers=1``. A callable with an attribute ``batch_size``
            above 1 receives lists of texts, one at a time.
        manager: True serves the Document over HTTP from this program, on 127.0.0.1, until it is
            closed: `url` has the address, and a thread runs `jobs`. ``"ui"`` also opens the page in
            the browser. Needs lazyrag[server].
        launcher: Where files are loaded, nodes are transformed and documents are embedded: None for
            threads of this program, an integer for so many processes, any
            `concurrent.futures.Executor` (such as dask.distributed's ``client.get_executor()``),
            ``"dask://HOST:PORT"``, ``"ray"`` or ``"ray://HOST:PORT"``. Queries, the stores and the
            ledger stay here. Loaders, transforms and models must be importable there, and the files
            must have the same paths. See docs/scale.md.
        store_conf: Where segments and vectors are stored. The default is memory;
            ``{"segment_store": {"type": "map", "kwargs": {"uri": "store.db"}}}`` stores them in a
            file and a folder beside it. ``timeout_s`` beside ``uri`` limits how long to wait for
            another program's lock on the file (30 s). Other stores are configured in the same way;
            on a server they need a path for the ``"ledger"``, by default ``.lazyrag/ledger.db`` in
            the dataset's folder.
        doc_fields: Fields that filters may use beside the built-in ones, by name.
        name: Distinguishes Documents in one store. None means ``"default"``, and on a server a name
            made of the path of the dataset's folder.
        doc_files: Single files instead of a folder: paths (a file's name is its identity), or a
            mapping of your own ids to paths.
        file_metadata: Metadata of the files: a mapping from path relative to the dataset (or id) to
            metadata, or a function of the file's `pathlib.Path` that returns metadata or None. It
            takes precedence over metadata extracted by loaders.
        read_only: Query what another program stores in ``store_conf``'s file, and write nothing.
        keep_versions: Number of earlier versions of a document that are stored, for `rollback`.
        workers: Threads that call loaders, transforms and embed functions of one text, when a call
            takes more than a moment; None means one per core, at most four, and for embed functions
            four more, at most 32. Pass 1 for functions that are not thread-safe.
        processes: Processes that load files, within limits of time and memory. Loaders that cannot
            be imported by name run in this process. PDF files are always read in another one.
        limits: Limits on loading one file, see `LoadLimits`; None for the default limits.
        on_progress: Called with a `Progress` at every step of ingestion; a terminal also shows a
            progress bar.
        follow_links: Read symbolic links in the folder that lead to files outside of it. By default
            they are skipped, and reported in `IngestReport.skipped`. Links to folders are never
            followed.
        include: Only files of the folder that match one of these patterns of gitignore, such as
            ``["*.md", "docs/"]``; [] for all. With exclude and use_gitignore it is stored in the
            store's file; None is what was stored.
        exclude: Not these files and folders. A file ``.lazyragignore`` in the folder or below has
            such patterns, too; ``node_modules``, ``__pycache__``, virtual environments and minified
            CSS and JavaScript are left out.
        use_gitignore: Leave out what the folder's ``.gitignore`` files name.
        server: Port to serve at, see ``manager``; None for a free one.

    Raises:
        DatasetPathError: If a path does not exist.
        ConfigError: If an argument has the wrong type, or two arguments contradict each other.
        MissingDependencyError: If a store needs a package that is not installed.
        StoreConnectionError: If a store's server does not answer.

    Example:
        >>> docs = Document()
        >>> docs.create_node_group("block", transform=lambda d: d.splitlines())
        >>> docs.get_nodes("block")
        []
    """

    FineChunk: ClassVar[str] = "FineChunk"
    """Built-in group: chunks of at most 128 tokens with an overlap of 12."""
    MediumChunk: ClassVar[str] = "MediumChunk"
    """Built-in group: chunks of at most 256 tokens with an overlap of 25."""
    CoarseChunk: ClassVar[str] = "CoarseChunk"
    """Built-in group: chunks of at most 1024 tokens with an overlap of 100."""

    _graph: GroupGraph = built_in_groups()
    _file_readers: Readers = Readers()
    _watcher: Watcher | None = None
    _service: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._file_readers = Readers(cls._file_readers)
        # definitions on a subclass do not apply to other Documents
        cls._graph = GroupGraph(cls._graph)

    def __init__(
        self,
        dataset_path: PathLike | None = None,
        embed: Embedder | EmbedCallable | Mapping[str, Embedder | EmbedCallable] | None = None,
        manager: bool | Literal["ui"] = False,
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
        follow_links: bool = False,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        use_gitignore: bool | None = None,
        server: int | None = None,
    ) -> None:
        host = self._host(manager, server)
        name = None if name is None else validate_text("name", name)
        workers = None if workers is None else validate_integer("workers", workers, 1)
        embedders = make_embedders(embed, workers)
        schema = make_schema(doc_fields)
        follow_links = validate_boolean("follow_links", follow_links)
        dataset = make_dataset(dataset_path, doc_files, file_metadata, follow_links=follow_links)
        require(
            on_progress is None or callable(on_progress),
            "on_progress",
            on_progress,
            "a function or None",
        )
        self._file_readers = Readers(self._file_readers)
        processes = validate_integer("processes", processes, 0)
        launched = None if launcher is None else _launcher(launcher)
        if launched is not None:
            processes = launched.processes or processes
            embedders = {key: launched.embedder(one) for key, one in embedders.items()}
        default_workers = min(_MAX_WORKERS, os.cpu_count() or 1)
        options = Options(
            workers=workers or default_workers,
            processes=processes,
            limits=_load_limits(limits, processes),
            readers=self._file_readers,
            keep_versions=validate_integer("keep_versions", keep_versions, 0),
            read_only=validate_boolean("read_only", read_only),
            on_progress=on_progress,
            launcher=launched,
        )
        conf = StoreConf.parse(store_conf, dataset.folder)
        _refuse_shards(conf)
        self.name = conf.check_use(name, dataset.folder, embeds=bool(embedders))
        self._graph = GroupGraph(self._graph)
        chosen = {"include": include, "exclude": exclude, "use_gitignore": use_gitignore}
        self._indexer = _open_indexer(
            self.name, dataset, self._graph, schema, embedders, conf, options, chosen
        )
        self._reader = Reader(self._indexer)
        if launched is not None:
            launched.bind(self._indexer)
        if name is None and self.name != "default":
            _warn_of_namesake(self._indexer)
        host()

    # Definitions

    @_class_or_instance
    def create_node_group(
        self_or_class: Any,  # noqa: N805  on the class there is no self
        /,
        name: str,
        transform: Any,
        parent: str = LAZY_ROOT_NAME,
        trans_node: bool = False,
        *,
        ref: str | None = None,
        num_workers: int = 0,
        memo: bool = False,
        index_fields: Sequence[str] | Mapping[str, Sequence[str]] = (),
        index_text: Callable[[DocNode], str] | str | None = None,
        replace: bool = False,
        version: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Define a node group: every node of the parent group, transformed (spec 001).

        Called on the class, the group is defined for every Document, existing ones included; called
        on an instance, for that Document only, where it shadows the class's definition. The group
        is built at its first use. Repeating a definition has no effect.

        Args:
            name: Its name.
            transform: A function of a node's content; a `NodeTransform` class or instance; the name
                of a registered transform; `TransformArgs`, or a mapping of its arguments. It
                returns a str, a DocNode, a number or mapping, None, or an iterable of those. With a
                list of any of these, each document uses the first entry whose pattern matches its
                path, and has no nodes if none does.
            parent: The group it is made from; the root group by default.
            trans_node: Pass the DocNode to the function instead of its content.
            ref: Another group, to combine nodes across the tree: the transform takes a second
                argument ``ref``, the list of that group's nodes below the lowest group above both.
                They are the descendants of the node, or for ``parent="summary", ref="sentence"``,
                both made of the root group, those of the same document.
            num_workers: Maximum number of concurrent calls, see `TransformArgs`. A transform class
                with a parameter of this name receives it.
            memo: Cache results by text: nodes of unchanged texts are used again when their file is
                edited, and equal texts call the transform once. For functions that are slow or cost
                money, such as calls of a model. The transform may read nothing but the text; other
                attributes of a node raise a TransformError.
            index_fields: What keyword indexes and embeddings read before a node's text: ``"path"``,
                the words of the file's path; ``"title"``; ``"headings"``, the headings above it; or
                the name of metadata of the node or its file. ``node.text`` and ``span`` do not
                change. A mapping gives separate fields for embed keys, for keyword search
                (``"bm25"``) and for all others (``"*"``). The built-in groups have
                ``{"*": ["title", "headings"], "bm25": ["path", "title", "headings"]}``.
            index_text: What they read in place of the node's text: a function of the node, called
                once for each index; or the name of a group below it, such as summaries by a model,
                whose texts they read before the node's.
            replace: Replace another definition of that name; the groups below it are rebuilt.
            version: Distinguishes definitions that look the same: the version of a model or a
                prompt.
            kwargs: Parameters of a transform class.

        Raises:
            NotRegisteredError: If the parent or the named transform is unknown.
            AlreadyRegisteredError: If another definition has the name and ``replace`` is false.
            ConfigError: If the group would be its own ancestor, or an argument has the wrong type.

        Example:
            >>> docs = Document()
            >>> docs.create_node_group("chunk", transform="SentenceSplitter", chunk_size=64, chunk_overlap=8)
        """
        if isinstance(self_or_class, Document) and isinstance(index_fields, Mapping):
            keys = ["*", "bm25", *self_or_class.embed_keys]
            unknown = [key for key in index_fields if key not in keys]
            require(not unknown, "The keys of index_fields", unknown, f"among {keys}")
        options = GroupOptions(
            trans_node, version, num_workers, memo, ref, index_fields, index_text
        )
        group = make_group(name, transform, parent, kwargs, options)
        self_or_class._graph.define(group, replace=replace)

    add_reader = cast("AddReader", _class_or_instance(add_reader))

    @property
    def reader(self) -> Reader:
        """The query side, for retrievers."""
        return self._reader

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the defined node groups, sorted, the root group last."""
        return (*self._graph, LAZY_ROOT_NAME)

    @property
    def embed_keys(self) -> tuple[str, ...]:
        """Names of the embed callables; () without any."""
        return tuple(self._indexer.embedders)

    @property
    def fields(self) -> Mapping[str, DocField]:
        """Fields that filters may use, by name: the built-in and the declared ones."""
        return self._reader.schema

    @property
    def url(self) -> str | Any:  # None is the exception, see `DocNode.score`
        """Address of the service, see ``manager``; None without one."""
        return None if self._service is None else self._service.url

    @property
    def last_report(self) -> IngestReport | Any:  # None is the exception, see `DocNode.score`
        """Cumulative result of ingestion, file by file; None before the first use.

        A restricted Document reports only the files that are visible through it.
        """
        return self._report()

    # Ingestion

    @known_keywords
    def sync(
        self,
        *,
        dry_run: bool = False,
        on_error: OnError = "collect",
        max_deleted: float = MAX_DELETED,
        max_calls: int | None = None,
        wait_s: float = WAIT_S,
        verify: Literal["counts"] | None = None,
        on_progress: OnProgress | None = None,
        cancel: Event | None = None,
    ) -> IngestReport:
        """Ingest what changed in the dataset, and retry failed steps.

        Files are compared by size, modification time and inode, and hashed in case of doubt.
        Changed files are loaded, transformed and embedded as far as their content is new, and
        become visible document by document in one step. If a file fails to load, its previous
        version stays searchable. The first use of a Document syncs automatically. Groups and
        embeddings that have not been used yet are not built; they are built at first use.

        Args:
            dry_run: Only report what would be done, as far as the files show.
            on_error: ``"collect"`` reports failures, ``"raise"`` stops after the batch with the
                first one.
            max_deleted: Share of the known files in [0, 1] that may disappear at once, if more than
                ten do. If more, or all, are missing, they are kept and reported as withheld: an
                unmounted folder looks the same. Pass 1 to allow any deletion.
            max_calls: Do nothing if `plan` estimates more model calls.
            wait_s: How long to wait for another writing program, in seconds. The default outlasts a
                lost one.
            verify: ``"counts"`` first compares the numbers of rows in the stores with the ledger,
                and repairs with a warning if a store has lost some. The method `verify` compares
                the rows themselves.
            on_progress: Called with a `Progress` at every step, instead of the Document's function.
            cancel: An event that stops the call at the next safe point once it is set. What was
                finished is stored, and the next sync does the rest.

        Raises:
            DatasetPathError: If the dataset's folder cannot be listed.
            IngestionError: If every file failed, or if one did and ``on_error`` is ``"raise"``.
            StoreBusyError: If another program writes the store.
            ConfigError: If an argument is invalid, or more calls than ``max_calls`` are planned.
            CanceledError: If ``cancel`` is set.

        Example:
            >>> from lazyrag import Document
            >>> print(Document().sync())
            0 added, 0 failed, 0 skipped
        """
        indexer = self._unrestricted("sync")
        if verify is not None:
            validate_choice("verify", verify, ("counts",))
        from lazyrag.ingest.verify import repair_lost

        with during_call(on_progress, cancel):
            return syncing.sync(
                indexer,
                dry_run=dry_run,
                on_error=on_error,
                max_deleted=max_deleted,
                max_calls=max_calls,
                wait_s=wait_s,
                first=None if verify is None else functools.partial(repair_lost, counts=True),
            )

    @known_keywords
    def plan(self, *, max_deleted: float = MAX_DELETED, diff: bool = False) -> SyncPlan:
        """Estimate what `sync` would do and cost, and why; `SyncPlan.formats` says how it would
        read each kind of file.

        Loads at most 50 changed files of a kind, to count tokens, and none that needs OCR, another
        program or a reader of yours. Calls no transform and no model.

        Args:
            max_deleted: As for `sync`.
            diff: Run the transforms of built groups that call no model, to count the chunks that
                stay, come and go, and the texts to embed. Nothing is written.

        Example:
            >>> from lazyrag import Document
            >>> Document().plan().calls
            0
        """
        return syncing.plan_sync(
            self._unrestricted("plan"), max_deleted, diff=validate_boolean("diff", diff)
        )

    def retry_failed(self) -> IngestReport:
        """Retry failed files, transforms and embeddings. Return the new `last_report`.

        Repeated failures are reported, never raised, even if every file fails.

        Example:
            >>> from lazyrag import Document
            >>> Document().retry_failed().failed
            ()
        """
        syncing.retry_failed(self._indexer)
        return self._report() or IngestReport()

    @known_keywords
    def add_files(
        self,
        files: Sequence[PathLike] | Mapping[str, PathLike],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        on_progress: OnProgress | None = None,
        cancel: Event | None = None,
    ) -> IngestReport:
        """Ingest single files; a known file is loaded again if it changed.

        A file inside the dataset's folder keeps its path there. `sync` does not track files outside
        of it: their documents stay unchanged until you add or delete them again.

        Args:
            files: Paths, identified by their file names, or a mapping of your own ids to paths. An
                id with the suffix of the path is the file's name, too: the metadata ``file_name``.
            metadata: Additional metadata by file name or id.
            on_progress: As for `sync`.
            cancel: As for `sync`.

        Returns:
            The result for these files.

        Raises:
            DatasetPathError: If a path does not exist.
            ConfigError: If an argument has the wrong type.
            StoreBusyError: If another program writes the store.
            CanceledError: If ``cancel`` is set.
        """
        with during_call(on_progress, cancel):
            return editing.add_files(self._unrestricted("add_files"), files, metadata)

    @known_keywords
    def add_texts(
        self,
        texts: Mapping[str, str],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        on_progress: OnProgress | None = None,
        cancel: Event | None = None,
    ) -> IngestReport:
        """Ingest texts that are not files; a text with a known id replaces the old one.

        Args:
            texts: Your own ids to texts, neither of them blank.
            metadata: Metadata by id.
            on_progress: As for `sync`.
            cancel: As for `sync`.

        Returns:
            The result for these texts.

        Raises:
            ConfigError: If an argument has the wrong type, or an id belongs to a file.
            StoreBusyError: If another program writes the store.
            CanceledError: If ``cancel`` is set.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> print(docs.add_texts({"note-1": "Green tea is not roasted."}))
            1 added, 0 failed, 0 skipped
        """
        with during_call(on_progress, cancel):
            return editing.add_texts(self._unrestricted("add_texts"), texts, metadata)

    @known_keywords
    def delete_files(
        self,
        documents: Iterable[str],
        *,
        on_progress: OnProgress | None = None,
        cancel: Event | None = None,
    ) -> IngestReport:
        """Delete documents. They disappear from queries immediately; storage is reclaimed later.

        The files themselves are not touched. A file in the dataset's folder is not ingested again
        until you pass it to `add_files`, unless it was never ingested. Failures of the documents
        are forgotten.

        Args:
            documents: Paths relative to the dataset, or ids.
            on_progress: As for `sync`.
            cancel: As for `sync`: either all of them are deleted or none.

        Raises:
            ConfigError: If a document does not exist; then nothing is deleted.
            StoreBusyError: If another program writes the store.
            CanceledError: If ``cancel`` was set before the documents were hidden.
        """
        with during_call(on_progress, cancel):
            return editing.delete_files(self._unrestricted("delete_files"), documents)

    @known_keywords
    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]]) -> IngestReport:
        """Change documents' metadata. It takes precedence over ``file_metadata`` and loaders, and
        survives a sync.

        No file is loaded. Transforms that receive whole nodes, and may read metadata, run again;
        texts are embedded again only if a field that their index reads has changed, such as the
        title: see `create_node_group`.

        Args:
            changes: By path relative to the dataset, or id: names to values. None removes an
                earlier change.

        Raises:
            ConfigError: If a document does not exist, a name is built in, or a value cannot be
                stored.
            StoreBusyError: If another program writes the store.
        """
        return editing.update_metadata(self._unrestricted("update_metadata"), changes)

    @known_keywords
    def activate_group(
        self,
        *names: str | Sequence[str],
        embed_keys: Sequence[str] = (),
        analysers: Sequence[str] = (),
    ) -> None:
        """Build groups, their vectors and their term indexes now instead of at the first query.

        Syncs keep them up to date, and a Document that opens the store with ``read_only=True``
        finds them.

        Args:
            names: Groups, or lists of them.
            embed_keys: Embed keys of the vectors to build, for each of the groups.
            analysers: Analysers of the term indexes to build: ``"en"`` for ``similarity="bm25"``,
                ``"zh"`` for ``"bm25_chinese"``.

        Raises:
            NotRegisteredError: If a group is not defined, or an analyser is not registered.
            ConfigError: If an embed key is unknown.
            IngestionError: If every file fails.

        Example:
            >>> docs = Document()
            >>> docs.activate_group("FineChunk", "CoarseChunk", analysers=["en"])
            >>> print(docs.last_report)
            0 added, 0 failed, 0 skipped
        """
        groups = [
            self._defined(one)
            for name in names
            for one in ([name] if isinstance(name, str) else name)
        ]
        keys = validate_texts("embed_keys", embed_keys)
        if keys:
            self._reader.embedders(keys)  # raises for an unknown one
        for name in validate_texts("analysers", analysers):
            term_function(name)  # raises for an unknown one
        steps = [Step(group) for group in groups]
        steps += [Step(group, embed_key=key) for group in groups for key in keys]
        steps += [Step(group, analyser=name) for group in groups for name in analysers]
        self._reader.build(frozenset(steps))

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
        """Sync in a background thread whenever the dataset's files change, until the watcher or the
        Document closes.

        Starts with a sync of earlier changes; no later change is missed. The guarantees of `sync`
        hold: a query sees one version of each document, and a crash loses nothing. Failed files are
        reported and retried with the next change; a failed sync is retried after 1 s, 2 s, 4 s ...
        up to a minute.

        Args:
            debounce_s: Start a sync after this many seconds without a change, at least 0. A lone
                change, after as many seconds without any, is synced after a twentieth of a second.
            max_wait_s: Longest time that a change waits in a busy folder, at least ``debounce_s``
                seconds.
            poll_s: Compare all files every ``poll_s`` seconds, more than 0, instead of using file
                system events: for network folders, which have none, and for links whose targets are
                elsewhere.
            max_deleted: As for `sync`.
            on_report: Called with the `IngestReport` of every sync, in the watcher's thread.
            on_error: Called with every exception of a sync, in the same thread. Without it the
                first error in a row becomes a warning; `Watcher.errors` lists all of them.

        Raises:
            ConfigError: If there are no files to watch, the Document is read-only, restricted or
                already watched, or an argument is invalid.
            MissingDependencyError: If watchfiles is not installed and ``poll_s`` is not given.
            DatasetPathError: If the operating system refuses to watch.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder, Document(folder) as docs:
            ...     with docs.watch() as watcher:
            ...         print(watcher.wait_for_sync(timeout_s=60))
            0 added, 0 failed, 0 skipped
        """
        from lazyrag.ingest.watch import make_watcher

        indexer = self._unrestricted("watch")
        if self._watcher is not None and self._watcher.is_running:
            raise ConfigError(
                f"{indexer.where} already has an active Watcher. Close it before calling watch()"
                " again."
            )
        watcher = make_watcher(
            indexer, self.sync, debounce_s, max_wait_s, poll_s, max_deleted, on_report, on_error
        )
        self._watcher = watcher  # before it starts: on_report may close the Document
        return watcher.start()

    # Maintenance

    def status(self) -> DocumentStatus:
        """Summarise documents, nodes, indexes and failures. Nothing is loaded or built.

        Example:
            >>> from lazyrag import Document
            >>> print(Document().status())
            default: 0 documents, 0 failed steps
        """
        from lazyrag.ingest.verify import describe_status

        return describe_status(self._unrestricted("status"))

    def verify(self) -> tuple[Problem, ...]:
        """Compare the ledger with the actual contents of the stores and files; everything is read.

        Returns:
            The problems found. Earlier versions are not checked; `rollback` does that.

        Raises:
            StoreBusyError: If another program keeps writing.

        Example:
            >>> from lazyrag import Document
            >>> Document().verify()
            ()
        """
        from lazyrag.ingest.verify import verify

        return tuple(verify(self._unrestricted("verify")).problems)

    @known_keywords
    def repair(
        self,
        *,
        embed_keys: Sequence[str] = (),
        on_progress: OnProgress | None = None,
        cancel: Event | None = None,
    ) -> tuple[Problem, ...]:
        """Fix what `verify` finds: rebuild everything that has a source, delete unknown rows.
        Idempotent.

        Args:
            embed_keys: Embed keys whose vectors are embedded again, as their model has changed.
                Other programs that have the store open must open it again.
            on_progress: As for `sync`.
            cancel: As for `sync`; the next repair does the rest.

        Returns:
            The problems that remain because the source is gone.

        Raises:
            StoreBusyError: If another program writes the store.
            CanceledError: If ``cancel`` is set.

        Example:
            >>> from lazyrag import Document
            >>> Document().repair()
            ()
        """
        from lazyrag.ingest.verify import repair

        keys = validate_texts("embed_keys", embed_keys)
        indexer = self._unrestricted("repair")
        if keys:
            self._reader.embedders(keys)  # raises for an unknown one
        with during_call(on_progress, cancel):
            for key in keys:
                _embed_again(indexer, key)
            return repair(indexer)

    def compact(self) -> None:
        """Give back the space of what is not live any more: superseded nodes and vectors, dropped
        groups, free pages.

        A sync removes superseded rows as well, but store files keep their size, and the embedding
        cache keeps vectors of superseded texts and models until nobody used them for 90 days. What
        was superseded in the last ten seconds stays for running queries until the next sync or
        call. It may be interrupted at any point. The files are rewritten, which takes their size on
        the disk meanwhile; other programs wait with their writes.

        Raises:
            StoreBusyError: If another program writes the store.
            StoreError: If the disk is full, or a reader keeps a file locked.

        Example:
            >>> from lazyrag import Document
            >>> Document().compact()
        """
        from lazyrag.ingest.verify import compact

        compact(self._unrestricted("compact"))

    @known_keywords
    def purge(self, document: str, *, folders: Sequence[PathLike] = ()) -> DeletionCertificate:
        """Delete a document so that no byte of it remains in the stores, and certify that.

        All of its versions go at once: reads of other programs that still use them are repeated.
        Then everything is done that `compact` does, keyword indexes are written anew without its
        words, and all files of the stores are searched. Takes about as long as reading and writing
        the stores. Chroma in a folder and Milvus Lite are closed for a moment, in which queries of
        other threads by vectors fail with a StoreError.

        Args:
            document: Its path relative to the dataset, or its id.
            folders: Other files and folders to search, such as uploads and logs; nothing is removed
                from them.

        Returns:
            What was searched, what was found, and what cannot be checked. It is not clean if
            something remains: a reader keeps a file locked, or its path has to stay because its
            file is still in the dataset's folder.

        Raises:
            ConfigError: If there never was such a document, or nothing is left of it.
            StoreBusyError: If another program writes the store.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"note-1": "Green tea is not roasted."})
            >>> docs.purge("note-1").is_clean
            True
        """
        from lazyrag.maintain.certificate import purge

        return purge(self._unrestricted("purge"), document, folders)

    @known_keywords
    def deletion_certificate(
        self,
        document: str,
        *,
        text: str | None = None,
        file: PathLike | None = None,
        folders: Sequence[PathLike] = (),
    ) -> DeletionCertificate:
        """Search all stores for a document that is gone; nothing is changed. `purge` returns such a
        certificate, too.

        Args:
            document: The path or id that it had.
            text: Its text, or a part of it: what to search for.
            file: Its file, or a copy of it, instead.
            folders: As for `purge`.

        Raises:
            ConfigError: If the document is live, or neither text nor file is given.
            LoadError: If the file cannot be read.
        """
        from lazyrag.maintain.certificate import certify

        return certify(self._unrestricted("deletion_certificate"), document, text, file, folders)

    @known_keywords
    def documents(
        self,
        after: str | None = None,
        limit: int = 100,
        status: str | None = None,
        filters: FilterLike | None = None,
    ) -> list[DocumentInfo]:
        """List the documents and their states, a page at a time, sorted by id. Nothing is loaded or
        built.

        Deleted documents are listed with ``status="DELETING"`` or ``"DELETED"`` only. A restricted
        Document lists the live documents that are visible through it.

        Args:
            after: The last id of the page before; None for the first page.
            limit: At most so many documents, at least 1.
            status: Only documents in this state: ``"WAITING"``, ``"WORKING"``, ``"SUCCESS"``,
                ``"FAILED"``, ``"DELETING"`` or ``"DELETED"``; see `DocumentInfo`.
            filters: A filter on the fields of live documents. Declared fields are in the ledger;
                for built-in ones the root nodes of documents are read, up to the end of the page.

        Raises:
            ConfigError: If an argument is invalid.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Green tea.", "coffee": "Coffee."})
            >>> [(one.id, one.status, one.version) for one in docs.documents()]
            [('coffee', 'SUCCESS', 1), ('tea', 'SUCCESS', 1)]
        """
        return listing.list_documents(self._reader, after, limit, status, filters)

    def document(self, document: str) -> DocumentInfo:
        """Return the state of one document.

        Args:
            document: Its path relative to the dataset, or its id.

        Raises:
            DatasetPathError: If the document does not exist, or is not visible here.
        """
        return listing.find_document(self._reader, document)

    @known_keywords
    def versions(self, document: str) -> list[DocumentVersion]:
        """List the stored versions of a document, oldest first; see ``keep_versions``.

        A restricted Document lists those whose text is visible through it.

        Args:
            document: Its path relative to the dataset, or its id.

        Raises:
            ConfigError: If the document does not exist.
        """
        if self._reader.scope is not None:
            return listing.visible_versions(self._reader, document)
        return list_versions(self._indexer, document)

    @known_keywords
    def diff(self, document: str, before: int, after: int | None = None) -> VersionDiff:
        """Compare two stored versions of a document: nodes that were added, removed or moved, and
        lines of its text.

        Args:
            document: Its path relative to the dataset, or its id.
            before: Number of the one version.
            after: Number of the other one; None for the live version.

        Raises:
            ConfigError: If the document does not exist, or a version is not stored.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document(keep_versions=1)
            >>> _ = docs.add_texts({"tea": "Pick it. Dry it."}), docs.add_texts({"tea": "Pick it. Roll it."})
            >>> print(docs.diff("tea", 1))
            tea, version 1 to 2
              lazyllm_root: 1 added, 1 removed, 0 moved
        """
        return listing.diff_versions(self._reader, document, before, after)

    @known_keywords
    def rollback(self, document: str, version: int | None = None) -> DocumentVersion:
        """Make an earlier version of a document live again, until its file changes.

        Nothing is loaded or embedded. The restored version becomes the newest one; the live one
        becomes an earlier one.

        Args:
            document: Its path relative to the dataset, or its id.
            version: Its number; the one before the live one by default.

        Raises:
            ConfigError: If the document does not exist, or the version is not stored.
            StoreBusyError: If another program writes the store.
        """
        number = None if version is None else validate_integer("version", version, 1)
        return editing.roll_back(self._unrestricted("rollback"), document, number)

    @known_keywords
    def export(self, folder: PathLike) -> Path:
        """Write the live state into a new folder: documents and nodes as JSON lines, vectors as
        arrays.

        A manifest lists the row count and SHA-256 of each file. `import_from` reads the folder on
        any machine, without loading or embedding anything.

        Args:
            folder: The folder to create.

        Returns:
            The folder.

        Raises:
            ConfigError: If the path exists already.
            StoreError: If it cannot be written; then no part of it remains.
        """
        from lazyrag.maintain.export import Exporter, export

        indexer = self._unrestricted("export")
        return export(lambda unfinished: Exporter(indexer, unfinished).run(), folder)

    @known_keywords
    def import_from(self, folder: PathLike) -> int:
        """Import the folder that `export` wrote into an empty Document, all or nothing.

        All files are checked against the manifest before anything is written. Nothing is loaded,
        transformed or embedded. Groups whose definitions differ from the exported ones are rebuilt
        at first use.

        Returns:
            The number of imported documents.

        Raises:
            ConfigError: If the folder is not an export, has other ``doc_fields``, or this Document
                is not empty.
            StoreError: If a file of the export is missing, cut short or altered.
            StoreBusyError: If another program writes the store.
        """
        from lazyrag.maintain.export import import_from

        return import_from(self._unrestricted("import_from"), folder)

    def dump(self) -> Iterator[str]:
        """Yield the live state as lines of JSON, equal for equal Documents: for tests and
        snapshots.

        See `lazyrag.maintain.export.canonical_dump`. Nothing is loaded or built.

        Example:
            >>> from lazyrag import Document
            >>> list(Document().dump())
            []
        """
        from lazyrag.maintain.export import canonical_dump

        return canonical_dump(self._unrestricted("dump"))

    # Search and navigation

    @known_keywords
    def search(
        self,
        query: str,
        topk: int = 6,
        filters: FilterLike | None = None,
        *,
        group: str = "MediumChunk",
    ) -> list[DocNode]:
        """Find the best chunks, by hybrid search if the Document has `embed`, else by keyword
        search.

        Both serve Chinese and English. For other ways to search, make a `Retriever` or a
        `HybridRetriever`.

        Args:
            query: A question or keywords.
            topk: At most so many nodes, at least 1.
            filters: A filter: ``{"file_type": [".pdf"]}`` or a `Condition`.
            group: The node group to search.

        Raises:
            ConfigError: If an argument is out of its range.
            NotRegisteredError: If the group is not defined.
            RetrievalError: If a query cannot be embedded, or a store fails.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Green tea is not fermented.", "coffee": "Coffee is roasted."})
            >>> [node.path for node in docs.search("How is coffee made?")]
            ['coffee']
        """
        from lazyrag.retrieval.hybrid import default_retriever  # not needed to ingest

        return list(default_retriever(self, group, topk)(query, filters=filters))

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
        """Return nodes of a group, by document in order of path, then by number.

        Args:
            group: The group; whole documents by default.
            uids: Only nodes with these uids.
            document_ids: Only nodes of these documents (uids of root nodes).
            numbers: Only nodes with these ordinals in their document, from 1.
            filters: Only nodes that satisfy these filters.
            limit: The maximum number of nodes.
            offset: The number of nodes to skip.

        Raises:
            NotRegisteredError: If the group is not defined.
            ConfigError: If limit or offset is not an integer >= 0, or a filter does not fit the
                fields.

        Example:
            >>> from lazyrag import Document
            >>> Document().get_nodes("FineChunk", limit=10)
            []
        """
        first = validate_integer("offset", offset, 0)
        last = None if limit is None else first + validate_integer("limit", limit, 0)
        given = {
            "uid": ("uids", uids),
            "document_id": ("document_ids", document_ids),
            "number": ("numbers", numbers),
        }
        wanted = {
            attribute: _value_set(*values)
            for attribute, values in given.items()
            if values[1] is not None
        }
        name = self._defined(group)
        self._reader.bind(filters)  # raises before anything is built

        def select(snapshot: LocalSnapshot) -> list[DocNode]:
            return list(itertools.islice(snapshot.walk(name, filters, wanted), first, last))

        return self._reader.read(select, frozenset([Step(name)]))

    def outline(self, path: str) -> list[Location]:
        """Return the headings, pages or other locations of a document, with their spans in its
        text.

        Args:
            path: Its path relative to the dataset, or its id.

        Raises:
            DatasetPathError: If the document does not exist, or is not visible here.
        """
        return listing.outline(self._reader, path)

    @known_keywords
    def read(self, path: str, span: tuple[int, int] | None = None) -> str:
        """Return the text of a document, or a part of it.

        Args:
            path: Its path relative to the dataset, or its id.
            span: First character and one past the last one; a span may reach beyond the end. None
                for the whole text.

        Raises:
            DatasetPathError: If the document does not exist, or is not visible here.
            ConfigError: If the span is invalid.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Pick it. Dry it."})
            >>> docs.read("tea", (9, 100))
            'Dry it.'
        """
        return listing.read_text_of(self._reader, path, span)

    @known_keywords
    def grep(
        self,
        text: str,
        filters: FilterLike | None = None,
        *,
        limit: int = 100,
        ignore_case: bool = False,
    ) -> list[TextMatch]:
        """Find a literal text in the documents, by document in order of path. No pattern: it takes
        linear time.

        Invisible characters, such as soft hyphens, and the encoding of accents do not count.

        Args:
            text: The text, of at most 1,000 characters.
            filters: Only in documents that satisfy this filter.
            limit: At most so many matches, from 1 to 1,000.
            ignore_case: Also find it in other cases.

        Raises:
            ConfigError: If an argument is invalid.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Pick it. Dry it."})
            >>> docs.grep("dry", ignore_case=True)[0].span
            (9, 12)
        """
        return listing.grep(self._reader, text, filters, limit, ignore_case=ignore_case)

    def tables(self) -> list[Table]:
        r"""Return the tables of the documents, by document in order of path.

        They are the nodes of the built-in group ``table``, which retrievers search by any of their
        cells.

        Raises:
            IngestionError: If every document fails.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"prices.md": "| tea | EUR |\n|---|---|\n| green | 4.5 |"})
            >>> [(table.name, table.columns, table.rows) for table in docs.tables()]
            [('prices', ('tea', 'eur'), [['green', '4.5']])]
        """
        from lazyrag.document.tables import list_tables

        return list_tables(self)

    @known_keywords
    def sql(self, query: str, *, limit: int = 1_000) -> list[SqlRow]:
        """Run a SELECT statement over the `tables`. It can read nothing else: no file, no network,
        no variable.

        Each row of the result has ``locations``: where the rows of the tables are that it was made
        of. Columns of numbers, dates and booleans have these types, empty cells are NULL. Needs
        lazyrag[sql], which installs DuckDB.

        Args:
            query: One SELECT statement in the dialect of DuckDB; names as in `tables`.
            limit: At most so many rows.

        Raises:
            ConfigError: If it is not one SELECT statement, or fails.
            MissingDependencyError: If DuckDB is not installed.
        """
        from lazyrag.document.tables import run_sql

        return run_sql(self, query, limit)

    def related(self, uid: str, topk: int = 6) -> list[DocNode]:
        """Return the nodes of a node's group that are nearest to it: by its stored vector, else by
        its rarest terms.

        Args:
            uid: Of the node.
            topk: At most so many nodes, at least 1.

        Raises:
            StaleNodeError: If there is no such node, or it is not visible here.
            ConfigError: If an argument is invalid.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"a": "green tea", "b": "black tea", "c": "coffee"})
            >>> [node.path for node in docs.related(docs.get_nodes("FineChunk")[0].uid)]
            ['b']
        """
        return listing.related_nodes(self._reader, uid, topk)

    def near_duplicates(
        self,
        group: str = LAZY_ROOT_NAME,
        *,
        threshold: float = 0.8,
        filters: FilterLike | None = None,
    ) -> list[list[DocNode]]:
        """Find nodes of a group with nearly the same text: copies and revisions.

        100,000 passages take about 7 s of processor time. Texts are compared without regard to case
        and white space.

        Args:
            group: The group; whole documents by default.
            threshold: From 0.5 to 1: the least Jaccard similarity of the texts' runs of eight
                bytes. 0.8 allows about one replaced word in 20, or one Chinese letter in 40. Of
                pairs with just this similarity, one in 5,000 may be missed at 0.8, one in 80 at
                0.7, one in 3 at 0.5.
            filters: Only nodes that satisfy these filters.

        Returns:
            Clusters of at least two nodes, in the group's order, like the nodes of each. Two nodes
            of a cluster may be connected by others that are similar to both.

        Raises:
            NotRegisteredError: If the group is not defined.
            ConfigError: If the threshold is out of its range, or a filter does not fit the fields.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"a": "Tea needs 80 degrees.", "b": "Coffee.", "c": "tea needs  80 degrees."})
            >>> [[node.path for node in own] for own in docs.near_duplicates()]
            [['a', 'c']]
        """
        return listing.near_duplicates(self._reader, self._defined(group), threshold, filters)

    def find(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """Return a function from nodes to related nodes of another group, through the lowest group
        above both.

        The result keeps the nodes' order, contains each node once, and carries the highest score of
        those that led there: a parent that of its best child.

        Example:
            >>> from lazyrag import Document
            >>> Document().find("CoarseChunk")([])
            []
        """
        name = self._defined(target)
        return lambda nodes: self._reader.related(_node_list(nodes), name)

    def find_parent(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """Return a function from nodes to their ancestors in a group above theirs; see `find`.

        Example:
            >>> from lazyrag import Document
            >>> Document().find_parent("lazyllm_root")([])
            []
        """
        name = self._defined(target)
        return lambda nodes: self._reader.related(self._nodes_in_line(nodes, name, "above"), name)

    def find_children(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """Return a function from nodes to their descendants in a group below theirs; see `find`.

        Example:
            >>> from lazyrag import Document
            >>> Document().find_children("FineChunk")([])
            []
        """
        name = self._defined(target)
        return lambda nodes: self._reader.related(self._nodes_in_line(nodes, name, "below"), name)

    @overload
    def window(
        self, node: DocNode, before: int = ..., after: int = ..., *, merge: Literal[False] = ...
    ) -> list[DocNode]: ...
    @overload
    def window(
        self, node: DocNode, before: int = ..., after: int = ..., *, merge: Literal[True]
    ) -> DocNode: ...
    @overload
    def window(
        self, node: Sequence[DocNode], before: int = ..., after: int = ..., *, merge: bool = ...
    ) -> list[DocNode]: ...
    @known_keywords
    def window(
        self,
        node: DocNode | Sequence[DocNode],
        before: int = 1,
        after: int = 1,
        *,
        merge: bool = False,
    ) -> DocNode | list[DocNode]:
        """Return a node with its neighbours before and after it in its group and document, in
        order.

        Fewer neighbours exist at a document's ends. For several nodes, such as hits, windows that
        overlap or touch are joined; windows come in the order of the first node that leads to each,
        and each node appears once. A given node keeps its score; its neighbours carry that of the
        first node that led there.

        Args:
            node: A node of this Document, or several.
            before: Number of neighbours before each, at least 0.
            after: Number of neighbours after each, at least 0.
            merge: Return each window as one node. Its text repeats no overlap where spans are
                known, its `span` covers all of it if all of it is in the source, and `merged_from`
                lists its nodes. Without spans, texts are joined by line ends.

        Returns:
            The nodes; with ``merge``, one node for one, and a list of nodes for several.

        Raises:
            StaleNodeError: If a node is no longer in the live tree, or not visible here.
            ConfigError: If it belongs to another Document, or a number is invalid.

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
        reach = validate_integer("before", before, 0), validate_integer("after", after, 0)
        nodes = _node_list(node)
        merged = validate_boolean("merge", merge)
        found = self._reader.read(
            lambda snapshot: build_windows(snapshot, nodes, *reach, merge=merged)
        )
        listed = [one for _, window in found for one in window]
        return listed[0] if merged and isinstance(node, DocNode) else listed

    def get_window_nodes(
        self, node: DocNode, span: tuple[int, int] = (-5, 5), merge: bool = False
    ) -> DocNode | list[DocNode]:
        """`window` under the name of other systems: five neighbours before and after by default.

        Args:
            node: A node of this Document.
            span: The first and the last neighbour, counted from the node: (-5, 5).
            merge: See `window`.

        Raises:
            ConfigError: If the span is not a pair of an integer <= 0 and one >= 0.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Pick it. Wither it. Roll it. Dry it."})
            >>> docs.create_node_group("step", transform="SentenceWindow")
            >>> docs.get_window_nodes(docs.get_nodes("step")[0], (0, 1), merge=True).text
            'Pick it. Wither it. '
        """
        require(
            isinstance(span, (tuple, list)) and len(span) == 2,
            "span",
            span,
            "a pair of integers such as (-5, 5)",
        )
        before = -validate_integer("span[0]", span[0], -sys.maxsize, 0)
        after = validate_integer("span[1]", span[1], 0)
        return (
            self.window(node, before, after, merge=True)
            if merge
            else self.window(node, before, after)
        )

    @known_keywords
    def marks(self, path: str, span: Span | Location, *, file: PathLike | None = None) -> Marks:
        """Find where a span of a document's text is shown: for highlighting a hit or a citation.

        For a PDF, the result has boxes around exactly the characters of the span, line by line.
        Nothing is stored for it: the file is read again. For other formats, and for files in
        archives and mails, it is the range in the document's text, which is what a program can show
        of them: the text of its root node.

        Args:
            path: The document's path relative to the dataset, or its id.
            span: Start and end in the document's text, such as `DocNode.span` of a node whose
                source is the root node; or one of `DocNode.locations`.
            file: The document's file, where this program does not know it: it was added by
                `add_files` in another one.

        Raises:
            ConfigError: If there is no such document here, the span is not in it, or its file is
                not known.
            LoadError: If the file is gone or has changed since it was ingested, or a page has no
                places of words.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Green tea is not roasted."})
            >>> docs.marks("tea", (6, 9)).text
            'tea'
        """
        from lazyrag.read.marks import find_marks

        return find_marks(self._reader, path, span, file)

    @known_keywords
    def page_image(
        self, path: str, page: int, *, width: int = 1000, file: PathLike | None = None
    ) -> bytes:
        """Render a page of a PDF as PNG, on which the boxes of `marks` fit.

        Args:
            path: The document's path relative to the dataset, or its id.
            page: Number of the page, from 1.
            width: In pixels, at most 10,000; less for a page of more than 40 megapixels.
            file: As for `marks`.

        Raises:
            ConfigError: If there is no such document or page here, or it is not a PDF.
            LoadError: If the file is gone, or has changed since it was ingested.
        """
        from lazyrag.read.marks import render_page

        return render_page(self._reader, path, page, width, file)

    # Scope and life

    def restricted(self, filters: FilterLike) -> Self:
        """Return a view of this Document that contains only the nodes that satisfy a filter.

        Hits, parents, children, `get_nodes` and `last_report` are limited to them, for every query,
        and depend on nothing else: scores, explanations and errors are those of a Document without
        the hidden nodes. A node's fields are those of what it was made from, overlaid with its own.
        Groups defined on the view belong to the Document, and so do the stores: closing the view
        closes nothing. Warnings address the program's operator and may name every file.

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
        """Close the service, the watcher, files and connections. Waits for a running build.
        Idempotent.

        A Document is also a context manager that closes itself.

        Example:
            >>> with Document() as docs:
            ...     docs.get_nodes()
            []
        """
        if self._reader.scope is None:
            if self._service is not None:
                self._service.close()
            if self._watcher is not None:
                self._watcher.close()
            self._indexer.close()

    def __enter__(self) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Refuse `copy.copy`, `copy.deepcopy` and pickle: both objects would write to the same open
        stores.
        """
        raise ConfigError(
            "A Document cannot be copied or pickled: it holds open stores. Share this one among"
            " threads, make a view of it with restricted(filters), or open its stores again with"
            " Document(..., read_only=True)."
        )

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._reader.scope is not None:
            return f"<{self._indexer.where}, restricted>"
        return (
            f"<{self._indexer.where}:"
            f" {count(len(self._indexer.ledger.tree.documents), 'document')}>"
        )

    def _repr_html_(self) -> str:
        from lazyrag.data.notebook import tree_html

        nodes = (
            {}
            if self._reader.scope is not None
            else {one.name: one.nodes for one in self.status().groups}
        )
        labels = {
            name: f"{name}: {count(nodes[name], 'node')}" if name in nodes else name
            for name in self.groups
        }
        children: dict[str, list[str]] = {}
        for name in self.groups:
            if name != LAZY_ROOT_NAME:
                children.setdefault(self._reader.line(name)[1], []).append(name)
        return tree_html(repr(self), children, labels, LAZY_ROOT_NAME)

    def _host(self, manager: bool | Literal["ui"], server: int | None) -> Callable[[], None]:
        """Check what serves this Document over HTTP, and return a function that starts it."""
        require(manager in (True, False, "ui"), "manager", manager, "True, False or 'ui'")
        port = None if server is None else validate_integer("server", server, 0, 65535)

        def start() -> None:
            if manager or server is not None:
                self._service = services["http"](self, port, opens=manager == "ui")

        return start

    def _report(self) -> IngestReport | None:
        visible = None if self._reader.scope is None else self._reader.visible_documents()
        return report_of(self._indexer, visible)

    def _unrestricted(self, method: str) -> Indexer:
        """Return the indexer, unless this is a view, which cannot see all that the method
        concerns.
        """
        if self._reader.scope is not None:
            raise ConfigError(
                f"{method}() is not available on a restricted Document. Call it on the original"
                " one."
            )
        return self._indexer

    def _defined(self, name: str) -> str:
        name = group_name(name)
        self._reader.line(name)
        return name

    def _nodes_in_line(
        self, nodes: Sequence[DocNode], target: str, side: Literal["above", "below"]
    ) -> list[DocNode]:
        checked = _node_list(nodes)
        for node in checked:
            lower, upper = (node.group, target) if side == "above" else (target, node.group)
            if upper not in self._reader.line(lower)[1:]:
                raise ConfigError(
                    f"The group {target!r} is not {side} {node.group!r}. Use find({target!r})."
                )
        return checked


def indexer_of(docs: Document) -> Indexer:
    """What builds and writes a Document, for jobs and services."""
    return docs._indexer


def _launcher(launcher: Any) -> Any:
    from lazyrag.launchers.work import Launcher  # not needed without one

    return Launcher(launcher)


def _value_set(name: str, values: Any) -> frozenset[Any]:
    require(
        isinstance(values, Iterable) and not isinstance(values, str),
        name,
        values,
        "a list of values",
    )
    return frozenset(values)


def _node_list(nodes: Any) -> list[DocNode]:
    if isinstance(nodes, DocNode):
        nodes = [nodes]
    require(
        isinstance(nodes, Iterable) and not isinstance(nodes, str),
        "nodes",
        nodes,
        "a DocNode or a list of them",
    )
    listed = list(nodes)
    for node in listed:
        require(
            isinstance(node, DocNode) and bool(node.group), "nodes", node, "nodes of a Document"
        )
    return listed


def _load_limits(limits: LoadLimits | None, processes: int) -> LoadLimits:
    """Return the limits of one file. Limits that nothing could enforce are refused, except for the
    default ones.
    """
    if limits is None:
        return DEFAULT_LIMITS
    require(isinstance(limits, LoadLimits), "limits", limits, "a LoadLimits or None")
    for name in ("time_s", "memory_bytes"):
        value = getattr(limits, name)
        if value in (None, getattr(DEFAULT_LIMITS, name)):
            continue
        if not processes:
            msg = f"limits has {name}={value!r}, which only a separate process can enforce."
            raise ConfigError(f"{msg} Pass processes=1 or more, or {name}=0.")
        if name == "memory_bytes" and not resident_bytes(os.getpid()):
            raise ConfigError(
                f"limits has {name}={value!r}, which this system cannot measure. Pass {name}=0."
            )
    return limits


def _refuse_shards(conf: StoreConf) -> None:
    """Refuse a store that an earlier release distributed over several files."""
    marker = Path(f"{conf.ledger_file}.shards")
    if conf.ledger_file is not None and marker.exists():
        msg = (
            f"{conf.ledger_file} is distributed over several stores, which lazyrag 0.2 made and"
            " reads."
        )
        raise ConfigError(
            f"{msg} Run `lazyrag reshard --shards 1` with that release, then open it with this one."
        )


def _open_indexer(
    name: str,
    dataset: Dataset,
    graph: GroupGraph,
    schema: Schema,
    embedders: Mapping[str, CheckedEmbedder],
    conf: StoreConf,
    options: Options,
    chosen: Mapping[str, Any],
) -> Indexer:
    """Open a Document's stores and its ledger.

    Raises:
        ConfigError: If a read-only Document would be in memory.
        StoreError: If a store cannot be opened.
    """
    with ExitStack() as undo:
        stores = conf.open(read_only=options.read_only)
        undo.callback(stores.close)
        file = stores.ledger
        if options.read_only and file.path is None:
            msg = (
                "read_only=True opens the files of another program, but this Document is in memory."
                " Pass store_conf={'segment_store': {'type': 'map', 'kwargs': {'uri': ...}}}."
            )
            raise ConfigError(msg)
        dataset = dataset.selected(file, name, **chosen)
        ledger = Ledger(file, name)
        nodes = NodeStore(stores.segments, stores.vectors, schema)
        definitions = Definitions(name, lambda: ledger.token, graph, schema)
        identities = find_identities(ledger, embedders)
        cached = dict(embedders)
        cache = None
        if file.path is not None and embedders and not options.read_only:
            from lazyrag.models.embedding_cache import EmbeddingCache

            cache = undo.enter_context(EmbeddingCache(Path(f"{file.path}.embeddings")))
            cached = {
                key: _with_cache(one, cache, identities[key]) for key, one in embedders.items()
            }
        planner = BuildPlanner(definitions, ledger, nodes, cached, identities)
        if file.path is not None:
            options = replace(options, grace_s=_GRACE_S)
        if not options.read_only:
            undo.callback(lambda: ledger.unclaim() if file.is_in_place else None)
        check_probes(f"Document {name!r}", ledger, embedders, identities)
        close = undo.pop_all().close
        return Indexer(
            name,
            dataset,
            definitions,
            nodes,
            ledger,
            embedders,
            planner,
            options,
            close,
            cache,
            sync=ingest_changes,
            repair_lost=_repair_lost,
        )


def _warn_of_namesake(indexer: Indexer) -> None:
    """Warn if another ledger has collections under a name that was derived from the dataset's
    path.
    """
    collections = getattr(indexer.nodes.segments, "collections", None)
    if collections is None or indexer.ledger.tree.groups:  # those of the own ledger
        return
    found = collections(collection_prefix(indexer.name))
    if found:
        warn_user(
            f"Another ledger has collections of a Document named {indexer.name!r} on the server,"
            f" such as {found[0]!r}. Those of this Document stay separate. Pass Document(name=...)"
            " to tell them apart, or store_conf['ledger'], if it is the ledger of the same"
            " Document.",
            IngestionWarning,
        )


def _repair_lost(indexer: Indexer) -> tuple[str, ...]:
    if not indexer.ledger.tree.groups:  # nothing to lose yet
        return ()
    from lazyrag.ingest.verify import repair_lost

    return repair_lost(indexer)


def _embed_again(indexer: Indexer, key: str) -> None:
    """Embed again what is embedded with a key."""
    planner = indexer.planner
    embedder = indexer.embedders[key]
    with indexer.writing():
        view = indexer.now()
        steps = [
            step
            for name in view.groups
            if planner.live_index(view, step := Step(name, embed_key=key))
        ]
        planner.identities[key] = identity = next_identity(embedder)
        if indexer.cache is not None:
            planner.embedders[key] = _with_cache(embedder, indexer.cache, identity)
        for step in steps:
            indexer.build(step)


def _with_cache(embedder: CheckedEmbedder, cache: EmbeddingCache, identity: str) -> CheckedEmbedder:
    """Return an embedder that never embeds a text twice, even across restarts."""
    from lazyrag.models.embedding_cache import CachedEmbedder

    if isinstance(embedder.embedder, CachedEmbedder):
        return embedder
    cached = CachedEmbedder(embedder.embedder, cache, identity=identity)
    cached.checked_embedder.workers = embedder.workers
    return CheckedEmbedder(cached, embedder.name, embedder.key)
