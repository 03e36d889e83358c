"""`Document`: a collection of files as a tree of node groups. Its methods call the modules that do
the work.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, SupportsIndex, cast, overload

import lazyrag.ingest.documents as editing
import lazyrag.ingest.sync as syncing
from lazyrag.data.fields import BUILT_IN_FIELDS, DocField, make_schema
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.maintenance import Maintenance
from lazyrag.document.open import open_indexer, warn_of_namesake
from lazyrag.document.tables import Tables
from lazyrag.document.versions import Versions
from lazyrag.errors import ConfigError, StoreError, count, is_notebook_cell, nearest
from lazyrag.groups.node_group import (
    GroupGraph,
    GroupOptions,
    Step,
    built_in_groups,
    group_name,
    make_group,
)
from lazyrag.ingest.changes import MAX_DELETED
from lazyrag.ingest.dataset import FileMetadata, FileSelection, make_dataset
from lazyrag.ingest.indexer import Indexer, report_of, unrestricted
from lazyrag.ingest.load_files import AddReader, Readers, add_reader
from lazyrag.ingest.report import IngestReport, Options
from lazyrag.ingest.sync import OnError, SyncPlan
from lazyrag.ledger.lease import WAIT_S
from lazyrag.loaders.base import LoadLimits
from lazyrag.models.concurrency import in_thread
from lazyrag.models.defaults import load_embedders, make_chat_model
from lazyrag.models.embedding import EmbedCallable, make_embedders
from lazyrag.models.protocols import ChatModel, Embedder
from lazyrag.progress.calls import OnProgress, during_call
from lazyrag.read.catalogue import DocumentInfo, find_document, list_documents, read_text_of
from lazyrag.read.field_values import count_values
from lazyrag.read.scope import Reader
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.read.windows import build_windows
from lazyrag.registry import services
from lazyrag.stores.config import StoreConf
from lazyrag.text.analyzers import term_function
from lazyrag.text.field_values import DERIVED_FIELDS
from lazyrag.types import Closable, DayLike, FieldValue, InferFilters, Metadata, Parts, PathLike
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
    from lazyrag.data.result import Answer
    from lazyrag.document.collect import CollectedPage
    from lazyrag.generation.claims import Judge
    from lazyrag.generation.generator import Generator
    from lazyrag.ingest.verify import DocumentStatus
    from lazyrag.ingest.watch import OnError as OnWatchError
    from lazyrag.ingest.watch import OnReport, Watcher
    from lazyrag.models.chat import ChatCallable
    from lazyrag.models.protocols import ChatModel, History
    from lazyrag.retrieval.base import NodeList, OutputFormat


_MAX_WORKERS = 4

# Where names and arguments of release 0.2 are now, for the errors that their uses raise.
_MOVED_NAMES = {
    "compact": "docs.maintenance.compact(...)",
    "deletion_certificate": "docs.maintenance.deletion_certificate(...)",
    "diff": "docs.versions.diff(...)",
    "document": "docs.documents(ids=[...])",
    "dump": "docs.maintenance.dump()",
    "embed_keys": "docs.reader.embed_keys",
    "export": "docs.maintenance.export(...)",
    "fields": "docs.reader.fields",
    "find_children": "docs.find(...)",
    "find_parent": "docs.find(...)",
    "get_window_nodes": "docs.window(...)",
    "grep": "grep(docs, ...), from lazyrag.read",
    "import_from": "docs.maintenance.import_from(...)",
    "jobs": "Jobs(docs), from lazyrag.server.jobs",
    "marks": "marks(docs, ...), from lazyrag.read",
    "near_duplicates": "near_duplicates(docs, ...), from lazyrag.read",
    "outline": "outline(docs, ...), from lazyrag.read",
    "page_image": "page_image(docs, ...), from lazyrag.read",
    "purge": "docs.maintenance.purge(...)",
    "related": "related(docs, ...), from lazyrag.read",
    "repair": "docs.maintenance.repair(...)",
    "retry_failed": "docs.sync(retry=True)",
    "rollback": "docs.versions.rollback(...)",
    "sql": "docs.tables.sql(...)",
    "url": "docs.status().url",
    "verify": "docs.maintenance.verify()",
}
_MOVED_ARGUMENTS = {
    "exclude": "files=FileSelection(exclude=...), from lazyrag.document",
    "follow_links": "files=FileSelection(follow_links=...), from lazyrag.document",
    "include": "files=FileSelection(include=...), from lazyrag.document",
    "on_progress": "on_progress= to sync(...) and other calls",
    "processes": "limits=LoadLimits(processes=...), from lazyrag.loaders",
    "server": "manager=PORT",
    "token": "token= to lazyrag.connect(...)",
    "url": "url= to lazyrag.connect(...)",
    "use_gitignore": "files=FileSelection(use_gitignore=...), from lazyrag.document",
}


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
class Document(Closable):
    """A collection of files as a tree of node groups (spec 001).

    Nothing is loaded until a query, `get_nodes` or `activate_group` needs it; then all files are
    loaded, and each group is built once. A file that fails is recorded in `last_report` with one
    warning; the others are ingested. If ``store_conf`` names a file, everything is stored there and
    the next program continues with it; otherwise it is kept in memory.

    Args:
        dataset_path: A folder, or one file; or the URL of a folder in object storage, such as
            ``"s3://bucket/teas"``. None creates an empty Document.
        embed: A callable from one text to one vector (numbers, or a dict from dimension to weight),
            or several of them by embed key. It is called by several threads, see ``workers``: it
            must be thread-safe, or pass ``workers=1``. A callable with an attribute ``batch_size``
            above 1 receives lists of texts, one at a time. Or the folder of an ONNX model, the id
            of a fetched one, or ``"openai:NAME"`` at the endpoint of OPENAI_BASE_URL.
        manager: True serves the Document over HTTP from this program, on 127.0.0.1, until it is
            closed: ``docs.status().url`` is the address, and a thread runs jobs. A number is the
            port to serve at, instead of a free one. ``"ui"`` also opens the page in the browser.
            Needs lazyrag[server].
        launcher: Where files are loaded, nodes are transformed and documents are embedded: None for
            threads of this program, an integer for so many processes, any
            `concurrent.futures.Executor` (such as dask.distributed's ``client.get_executor()``),
            ``"dask://HOST:PORT"``, ``"ray"`` or ``"ray://HOST:PORT"``. Queries, the stores and the
            ledger stay here. Loaders, transforms and models must be importable there, and the files
            must have the same paths. `lazyrag.launchers.workers.Workers` also write the stores, if
            these are in PostgreSQL. See docs/scale.md.
        store_conf: Where segments and vectors are stored. The default is memory. A path such as
            ``"store.db"``, or the URL of a PostgreSQL database, is short for
            ``{"segment_store": {"type": "map", "kwargs": {"uri": "store.db"}}}``: all is stored in
            a file and a folder beside it. So are ``"milvus://HOST:PORT"``,
            ``"opensearch://HOST:PORT"`` and ``{"type": "chromadb", "dir": "vectors"}``.
            ``timeout_s`` beside ``uri`` limits how long to wait for another program's lock on the
            file (30 s). Other stores are configured in the same way; on a server they need a path
            for the ``"ledger"``, by default ``.lazyrag/ledger.db`` in
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
        keep_versions: Number of earlier versions of a document that are stored, for
            `Versions.rollback`.
        workers: Threads that call loaders, transforms and embed functions of one text, when a call
            takes more than a moment; None means one per core, at most four, and for embed functions
            four more, at most 32. Pass 1 for functions that are not thread-safe.
        limits: Limits on loading one file, and how many processes load files, see `LoadLimits`;
            None for the default limits.
        files: Which files of the folder are read, see `FileSelection`; None for what the store has,
            by default all.

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
    _make_chat_model: Callable[[], Any] | None = None
    _moved_arguments = _MOVED_ARGUMENTS

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._file_readers = Readers(cls._file_readers)
        # definitions on a subclass do not apply to other Documents
        cls._graph = GroupGraph(cls._graph)

    def __init__(
        self,
        dataset_path: PathLike | None = None,
        embed: (
            Embedder
            | EmbedCallable
            | PathLike
            | Mapping[str, Embedder | EmbedCallable | PathLike]
            | None
        ) = None,
        manager: bool | int | Literal["ui"] = False,
        launcher: Any = None,
        store_conf: Mapping[str, Any] | PathLike | None = None,
        doc_fields: Mapping[str, DocField] | None = None,
        name: str | None = None,
        doc_files: Sequence[PathLike] | Mapping[str, PathLike] | None = None,
        file_metadata: FileMetadata = None,
        *,
        read_only: bool = False,
        keep_versions: int = 0,
        workers: int | None = None,
        limits: LoadLimits | None = None,
        files: FileSelection | None = None,
    ) -> None:
        port = _port(manager)
        name = None if name is None else validate_text("name", name)
        if workers is not None:
            workers = validate_integer("workers", workers, 1)
        embedders = make_embedders(load_embedders(embed), workers)
        schema = make_schema(doc_fields)
        files = FileSelection() if files is None else files
        require(isinstance(files, FileSelection), "files", files, "a FileSelection or None")
        dataset = make_dataset(
            dataset_path, doc_files, file_metadata, follow_links=files.follow_links
        )
        self._file_readers = Readers(self._file_readers)
        limits = LoadLimits() if limits is None else limits
        require(isinstance(limits, LoadLimits), "limits", limits, "a LoadLimits or None")
        processes = limits.processes or 0
        launched, writers = _launcher(launcher)
        if launched is not None:
            processes = launched.processes or processes
            embedders = {key: launched.embedder(embedder) for key, embedder in embedders.items()}
        options = Options(
            workers=workers or min(_MAX_WORKERS, os.cpu_count() or 1),
            processes=processes,
            limits=limits,
            readers=self._file_readers,
            keep_versions=validate_integer("keep_versions", keep_versions, 0),
            read_only=validate_boolean("read_only", read_only),
            launcher=launched,
            writers=writers,
        )
        conf = StoreConf.parse(store_conf, dataset.folder)
        self.name = conf.check_use(name, dataset.folder, embeds=bool(embedders))
        self._graph = GroupGraph(self._graph)
        self._indexer = open_indexer(
            self.name, dataset, self._graph, schema, embedders, conf, options, files
        )
        self._reader = Reader(self._indexer)
        for bound in filter(None, (launched, writers)):
            bound.bind(self._indexer)
        if name is None and self.name != "default":
            warn_of_namesake(self._indexer)
        if manager:
            self._service = services["http"](self, port, opens=manager == "ui")

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
                the words of the file's path; ``"title"``; ``"headings"``, the headings above it, in
                source code the first lines of the blocks around it, and the caption and column
                names of the table that it begins in; or the name of metadata of the node or its
                file. ``node.text`` and ``span`` do not
                change. A mapping gives separate fields for embed keys, for keyword search
                (``"bm25"``) and for all others (``"*"``). The built-in groups have
                ``{"*": ["title", "headings"], "bm25": ["path", "title", "headings"]}``.
            index_text: What they read in place of the node's text: a function of the node, called
                once for each index; or the name of a group below it, such as summaries by a model,
                whose texts they read before the node's.
            replace: Replace another definition of that name; the groups below it are rebuilt. Cells
                of a notebook replace it without this.
            version: Distinguishes definitions that look the same: the version of a model or a
                prompt.
            kwargs: Parameters of a transform class.

        Raises:
            NotRegisteredError: If the parent or the named transform is unknown.
            AlreadyRegisteredError: If another definition has the name and ``replace`` is false.
            ConfigError: If the group would be its own ancestor, or an argument has the wrong type.

        Example:
            >>> docs = Document()
            >>> docs.create_node_group("chunk", transform="SentenceSplitter", chunk_size=64)
        """
        if isinstance(self_or_class, Document) and isinstance(index_fields, Mapping):
            keys = ["*", "bm25", *self_or_class.reader.embed_keys]
            unknown = [key for key in index_fields if key not in keys]
            require(not unknown, "The keys of index_fields", unknown, f"among {keys}")
        options = GroupOptions(
            trans_node, version, num_workers, memo, ref, index_fields, index_text
        )
        group = make_group(name, transform, parent, kwargs, options)
        self_or_class._graph.define(group, replace=replace or is_notebook_cell())

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
    def versions(self) -> Versions:
        """Lists, compares and restores the stored versions of documents."""
        return Versions(self._reader)

    @property
    def tables(self) -> Tables:
        """The tables of the documents, and SQL over them."""
        return Tables(self)

    @property
    def maintenance(self) -> Maintenance:
        """Verifies, repairs, compacts, purges, exports and imports."""
        return Maintenance(self._reader)

    @property
    def last_report(self) -> IngestReport | Any:  # None is the exception, see `DocNode.score`
        """Cumulative result of ingestion, file by file; None before the first use.

        A restricted Document reports only the files that are visible through it.
        """
        visible = None if self._reader.scope is None else self._reader.visible_documents()
        return report_of(self._indexer, visible)

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
        retry: bool = False,
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
                and repairs with a warning if a store has lost some. `Maintenance.verify`
                compares the rows themselves.
            retry: Also read files again that ended their loading process. Other failures are
                retried by every sync.
            on_progress: Called with a `Progress` at every step; a terminal also shows a progress
                bar.
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
        indexer = unrestricted(self._reader, "sync")
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
                retry=validate_boolean("retry", retry),
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
            unrestricted(self._reader, "plan"), max_deleted, diff=validate_boolean("diff", diff)
        )

    @known_keywords
    def add_files(
        self,
        files: Sequence[PathLike] | Mapping[str, PathLike],
        metadata: Mapping[str, Metadata] | None = None,
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
            return editing.add_files(unrestricted(self._reader, "add_files"), files, metadata)

    @known_keywords
    def add_texts(
        self,
        texts: Mapping[str, str],
        metadata: Mapping[str, Metadata] | None = None,
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
            return editing.add_texts(unrestricted(self._reader, "add_texts"), texts, metadata)

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
            return editing.delete_files(unrestricted(self._reader, "delete_files"), documents)

    @known_keywords
    def update_metadata(self, changes: Mapping[str, Metadata]) -> IngestReport:
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
        return editing.update_metadata(unrestricted(self._reader, "update_metadata"), changes)

    @known_keywords
    def activate_group(
        self,
        *names: str | Sequence[str],
        embed_keys: Sequence[str] = (),
        analysers: Sequence[str] = (),
        on_progress: OnProgress | None = None,
        cancel: Event | None = None,
    ) -> None:
        """Build groups, their vectors and their term indexes now instead of at the first query.

        Syncs keep them up to date, and a Document that opens the store with ``read_only=True``
        finds them.

        Args:
            names: Groups, or lists of them.
            embed_keys: Embed keys of the vectors to build, for each of the groups.
            analysers: Analysers of the term indexes to build: ``"en"`` for ``similarity="bm25"``,
                ``"zh"`` for ``"bm25_chinese"``.
            on_progress: As for `sync`.
            cancel: As for `sync`.

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
        groups: list[str] = []
        for name in names:
            groups += map(self._defined, [name] if isinstance(name, str) else name)
        keys = validate_texts("embed_keys", embed_keys)
        if keys:
            self._reader.embedders(keys)  # raises for an unknown one
        for analyser in validate_texts("analysers", analysers):
            term_function(analyser)  # raises for an unknown one
        steps = [Step(group) for group in groups]
        for group in groups:
            steps += [Step(group, embed_key=key) for key in keys]
            steps += [Step(group, analyser=analyser) for analyser in analysers]
        with during_call(on_progress, cancel):
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

        indexer = unrestricted(self._reader, "watch")
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

    def status(self) -> DocumentStatus:
        """Summarise documents, nodes, indexes and failures. Nothing is loaded or built.

        Example:
            >>> from lazyrag import Document
            >>> print(Document().status())
            default: 0 documents, 0 failed steps
        """
        from lazyrag.ingest.verify import describe_status

        status = describe_status(unrestricted(self._reader, "status"))
        return status if self._service is None else replace(status, url=self._service.url)

    @known_keywords
    def documents(
        self,
        after: str | None = None,
        limit: int = 100,
        status: str | None = None,
        filters: FilterLike | None = None,
        *,
        ids: Sequence[str] | None = None,
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
            ids: These documents, in any state and in this order, instead of a page: paths relative
                to the dataset, or ids.

        Raises:
            ConfigError: If an argument is invalid.
            DatasetPathError: If one of ``ids`` does not exist, or is not visible here.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Green tea.", "coffee": "Coffee."})
            >>> [(document.id, document.status, document.version) for document in docs.documents()]
            [('coffee', 'SUCCESS', 1), ('tea', 'SUCCESS', 1)]
        """
        if ids is None:
            return list_documents(self._reader, after, limit, status, filters)
        require(
            after is None and status is None and filters is None,
            "ids",
            ids,
            "passed without after, status and filters",
        )
        names = validate_texts("ids", ids)
        return [find_document(self._reader, name) for name in names]

    # Search and navigation

    @overload
    def search(
        self,
        query: str,
        topk: int = ...,
        filters: FilterLike | None = ...,
        *,
        group: str = ...,
        infer_filters: InferFilters = ...,
        parts: Parts = ...,
        as_of: DayLike = ...,
        output_format: Literal["node"] | None = ...,
    ) -> NodeList: ...
    @overload
    def search(
        self,
        query: str,
        topk: int = ...,
        filters: FilterLike | None = ...,
        *,
        group: str = ...,
        infer_filters: InferFilters = ...,
        parts: Parts = ...,
        as_of: DayLike = ...,
        output_format: OutputFormat | None = ...,
        join: bool | str = ...,
    ) -> Any: ...
    @known_keywords
    def search(
        self,
        query: str,
        topk: int = 6,
        filters: FilterLike | None = None,
        *,
        group: str = "MediumChunk",
        infer_filters: InferFilters = True,
        parts: Parts = "auto",
        as_of: DayLike = None,
        output_format: OutputFormat | None = None,
        join: bool | str = False,
    ) -> Any:
        """Find the best chunks, by hybrid search if the Document has `embed`, else by keyword
        search.

        Both serve Chinese and English. For other ways to search, make a `Retriever` or a
        `HybridRetriever`.

        Args:
            query: A question or keywords.
            topk: At most so many nodes, at least 1.
            filters: A filter: ``{"file_type": [".pdf"]}`` or a `Condition`.
            group: The node group to search.
            infer_filters: Whether documents come first that the question names by values of
                fields, such as a company and a year; see `field_values`. A list has values that are
                not to be inferred, ``["-year: 2018"]``, or the only ones, ``["name"]``.
            parts: ``"auto"``: a question with several parts, such as a comparison, is searched part
                by part; see `PartsRetriever`. ``"off"``: all questions are searched as they are.
            as_of: A day, as `datetime.date` or ISO text: documents dated after it are left out, and
                before an older version of a document comes the one in force; see `AsOfRetriever`.
                Without a day the metadata of older hits have ``superseded_by``, too.
            output_format: As of a `Retriever`: None or ``"node"``, ``"content"``, ``"dict"``.
            join: As of a `Retriever`.

        Returns:
            Nodes, best first, or the form that ``output_format`` names.

        Raises:
            ConfigError: If an argument is out of its range.
            NotRegisteredError: If the group is not defined.
            RetrievalError: If a query cannot be embedded, or a store fails.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Tea is not fermented.", "coffee": "Coffee is roasted."})
            >>> [node.path for node in docs.search("How is coffee made?")]
            ['coffee']
            >>> docs.search("How is coffee made?", output_format="content", join=True)
            'Coffee is roasted.'
        """
        # not needed to ingest
        from lazyrag.retrieval.base import checked_output, render
        from lazyrag.retrieval.hybrid import default_retriever

        form, join = checked_output(output_format, join)
        retriever = default_retriever(
            self, group, topk, infer_filters=infer_filters, parts=parts, as_of=as_of
        )
        return render(retriever(query, filters=filters), form, join)

    @overload
    async def asearch(
        self,
        query: str,
        topk: int = ...,
        filters: FilterLike | None = ...,
        *,
        group: str = ...,
        infer_filters: InferFilters = ...,
        parts: Parts = ...,
        as_of: DayLike = ...,
        output_format: Literal["node"] | None = ...,
    ) -> NodeList: ...
    @overload
    async def asearch(
        self,
        query: str,
        topk: int = ...,
        filters: FilterLike | None = ...,
        *,
        group: str = ...,
        infer_filters: InferFilters = ...,
        parts: Parts = ...,
        as_of: DayLike = ...,
        output_format: OutputFormat | None = ...,
        join: bool | str = ...,
    ) -> Any: ...
    @known_keywords
    async def asearch(
        self,
        query: str,
        topk: int = 6,
        filters: FilterLike | None = None,
        *,
        group: str = "MediumChunk",
        infer_filters: InferFilters = True,
        parts: Parts = "auto",
        as_of: DayLike = None,
        output_format: OutputFormat | None = None,
        join: bool | str = False,
    ) -> Any:
        """Call `search` in a thread, so that an event loop goes on."""
        search = functools.partial(
            self.search, group=group, infer_filters=infer_filters, parts=parts, as_of=as_of
        )
        return await in_thread(search, query, topk, filters, output_format=output_format, join=join)

    @known_keywords
    def ask(
        self,
        question: str,
        topk: int = 6,
        filters: FilterLike | None = None,
        *,
        generator: Generator | ChatModel | ChatCallable | None = None,
        history: History | None = None,
        group: str = "MediumChunk",
        as_of: DayLike = None,
    ) -> Answer:
        """Answer a question from the chunks that `search` finds, with citations.

        For streams, rerankers and other ways to search, make a `RAGPipeline`.

        Args:
            question: The question.
            topk: At most so many passages, at least 1.
            filters: As of `search`.
            generator: A `Generator`, a chat model, or a callable from a text to a text. None: the
                sentences that answer best are quoted, without a model; after `lazyrag.open`, the
                chat model of LAZYRAG_MODEL or ``lazyrag config`` answers, if there is one.
            history: Earlier messages of the conversation, with a chat model.
            group: The node group to search.
            as_of: As of `search`.

        Returns:
            The answer: ``text``, ``citations``, and ``statements`` with their verdicts; it is
            ``weak`` if the library does not seem to answer the question.

        Raises:
            ConfigError: If an argument is out of its range.
            NotRegisteredError: If the group is not defined.
            RetrievalError: As of `search`.
            GenerationError: If the model fails.

        Warns:
            AnswerWarning: For each of the answer's ``problems``.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea.txt": "Green tea wants water of 80 degrees."})
            >>> docs.ask("How hot is the water for green tea?").text
            '“Green tea wants water of 80 degrees.” [1]'
        """
        pipeline = self._pipeline(topk, generator, group, as_of)
        answer: Answer = pipeline.sync.answer(question, topk, filters=filters, history=history)
        return answer

    @known_keywords
    async def aask(
        self,
        question: str,
        topk: int = 6,
        filters: FilterLike | None = None,
        *,
        generator: Generator | ChatModel | ChatCallable | None = None,
        history: History | None = None,
        group: str = "MediumChunk",
        as_of: DayLike = None,
    ) -> Answer:
        """Answer as `ask`, without blocking an event loop; cancelling it ends the model's call."""
        pipeline = self._pipeline(topk, generator, group, as_of)
        answer: Answer = await pipeline.answer(question, topk, filters=filters, history=history)
        return answer

    def _pipeline(self, topk: int, generator: Any, group: str, as_of: Any) -> Any:
        """The `RAGPipeline` of `ask`."""
        from lazyrag.retrieval.hybrid import default_retriever  # not needed to ingest

        retriever = default_retriever(self, group, topk, as_of=as_of)
        if generator is None and self._make_chat_model is not None:
            generator = self._make_chat_model()
        return services["answers"](retriever=retriever, generator=generator)

    @known_keywords
    def field_values(self, name: str) -> dict[FieldValue, int]:
        """The values of a field, each with the number of documents that have it, the most frequent
        first.

        They are the dictionary in which `search` looks up what a question names. A restricted
        Document has the values of visible documents only. No file is loaded.

        Args:
            name: A declared field; or ``"name"`` for the words of paths and titles, such as
                companies, products and versions; ``"year"``, ``"quarter"`` and ``"date"``, which
                are read from paths, titles and declared fields; ``"title"`` or ``"file_name"``.

        Raises:
            ConfigError: If there is no such field.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"Acme 2018": "Sales grew.", "Acme 2019": "Sales fell."})
            >>> docs.field_values("year"), docs.field_values("name")
            ({2018: 1, 2019: 1}, {'Acme': 2})
        """
        known = (self._reader.fields.keys() - BUILT_IN_FIELDS) | set(DERIVED_FIELDS)
        validate_choice("name", name, sorted(known))
        return count_values(self._reader, name)

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
        lists = (
            ("uid", "uids", uids),
            ("document_id", "document_ids", document_ids),
            ("number", "numbers", numbers),
        )
        selected = {
            attribute: _value_set(argument, values)
            for attribute, argument, values in lists
            if values is not None
        }
        name = self._defined(group)
        self._reader.bind(filters)  # raises before anything is built

        def select(snapshot: LocalSnapshot) -> list[DocNode]:
            return list(itertools.islice(snapshot.walk(name, filters, selected), first, last))

        return self._reader.read(select, frozenset([Step(name)]))

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
        return read_text_of(self._reader, path, span)

    @known_keywords
    def collect(
        self,
        query: str = "",
        filters: FilterLike | None = None,
        *,
        per: Literal["document", "node", "row"] = "document",
        group: str = "MediumChunk",
        limit: int = 100,
        after: str | None = None,
        judge: Judge | ChatModel | None = None,
        dry_run: bool = False,
    ) -> CollectedPage:
        """Find all that has the words of a query, not only the best: documents, passages or table
        rows, with a count.

        A passage matches if its own text has every content word of the query: English words by
        their stems, Chinese words by their pairs of neighbouring characters; stop words do not
        count. ``"green tea"`` in quotation marks must also occur in the text, in any letter case
        and with any white space. ``OR`` separates alternatives, one of which must match. Words
        that ask for a list, such as "how many", do not count. A table row has the words of the
        table's title, sheet and path, too, and of the names of columns in which it has a value
        other than "no".

        Args:
            query: Words, phrases in quotation marks, alternatives; "" for all that satisfies the
                filters.
            filters: Only in documents and nodes that satisfy this filter.
            per: ``"document"`` lists each document with a matching passage, ``"node"`` each
                passage, ``"row"`` each table row that matches.
            group: The node group of the passages.
            limit: At most so many items on a page, from 1 to 1,000.
            after: The ``next`` of the page before; None for the first page.
            judge: Reads the matches of the page, and leaves out those that are not about the query:
                a chat model, or a function of the query and a text that returns ``"supported"`` for
                those to keep. One call for each text, until one of a document is supported.
            dry_run: Do not call the judge; ``calls`` and ``tokens`` of the page tell its price.

        Raises:
            ConfigError: If an argument is invalid, or the query has only stop words.
            NotRegisteredError: If the group is not defined.

        Example:
            >>> docs = Document()
            >>> _ = docs.add_texts({"a": "Green teas.", "b": "Black tea.", "c": "Green paint."})
            >>> page = docs.collect("green tea OR paint")
            >>> page.total, [item.path for item in page.items]
            (2, ['a', 'c'])
        """
        from lazyrag.document.collect import collect  # not needed to ingest

        return collect(self, query, filters, per, group, limit, after, judge, dry_run=dry_run)

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
        first = validate_integer("before", before, 0)
        last = validate_integer("after", after, 0)
        nodes = _node_list(node)
        merged = validate_boolean("merge", merge)
        windows = self._reader.read(
            lambda snapshot: build_windows(snapshot, nodes, first, last, merge=merged)
        )
        members = list(itertools.chain.from_iterable(window for _, window in windows))
        return members[0] if merged and isinstance(node, DocNode) else members

    # Scope and life

    def restricted(
        self, filters: FilterLike, *, statistics: Literal["visible", "shared"] = "visible"
    ) -> Self:
        """Return a view of this Document that contains only the nodes that satisfy a filter.

        Hits, parents, children, `get_nodes` and `last_report` are limited to them, for every query,
        and depend on nothing else: scores, explanations and errors are those of a Document without
        the hidden nodes. A node's fields are those of what it was made from, overlaid with its own.
        Groups defined on the view belong to the Document, and so do the stores: closing the view
        closes nothing. Warnings address the program's operator and may name every file.

        Args:
            filters: What every visible node satisfies.
            statistics: ``"visible"``: as above; a search that counts hidden nodes, such as that of
                a search server, is refused. ``"shared"``: every search is possible, and hidden
                texts influence scores and order, though they are never shown.

        Raises:
            ConfigError: If the filter is None or empty, or does not fit the fields; or if
                statistics are to be shared that this view hides.

        Example:
            >>> Document().restricted({"file_type": ".pdf"}).get_nodes()
            []
        """
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        validate_choice("statistics", statistics, ("visible", "shared"))
        view._reader = self._reader.narrowed(filters, shares_statistics=statistics == "shared")
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

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Refuse `copy.copy`, `copy.deepcopy` and pickle."""
        return self._reader.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        is_closed = self._indexer.is_closed
        if is_closed or self._reader.scope is not None:
            return f"<{self._indexer.where}, {'closed' if is_closed else 'restricted'}>"
        try:
            documents = count(self._indexer.ledger.tree.document_count, "document")
        except StoreError:  # which a debugger or a log must not raise
            documents = "unreadable"
        return f"<{self._indexer.where}: {documents}>"

    def _repr_html_(self) -> str:
        from lazyrag.data.notebook import tree_html

        is_open = not self._indexer.is_closed and self._reader.scope is None
        nodes = {group.name: group.nodes for group in self.status().groups} if is_open else {}
        labels = {
            name: f"{name}: {count(nodes[name], 'node')}" if name in nodes else name
            for name in self.groups
        }
        children: dict[str, list[str]] = {}
        for name in self.groups:
            if name != LAZY_ROOT_NAME:
                children.setdefault(self._reader.line(name)[1], []).append(name)
        return tree_html(repr(self), children, labels, LAZY_ROOT_NAME)

    if not TYPE_CHECKING:  # a checker would accept any name

        def __getattr__(self, name: str) -> Any:
            owner = type(self)
            if hasattr(owner, name):  # a property whose body raised an AttributeError: again
                return object.__getattribute__(self, name)
            if name in _MOVED_NAMES:
                msg = f"Document has no {name!r}. Use {_MOVED_NAMES[name]}."
            elif name in ("_indexer", "_reader"):
                msg = f"The Document is not open. Call super().__init__() in {owner.__name__}."
            else:
                msg = f"Document has no attribute {name!r}."
                if not name.startswith("_"):
                    near = nearest(name, dir(owner))
                    msg += f" Did you mean {near!r}?" if near else " See dir(docs)."
            raise AttributeError(msg, name=name, obj=self)

    def _defined(self, name: str) -> str:
        name = group_name(name)
        self._reader.line(name)
        return name


def use_default_chat_model(docs: Document) -> None:
    """Let a Document answer with the user's default chat model, made at the first answer."""
    docs._make_chat_model = functools.cache(make_chat_model)


def indexer_of(docs: Document) -> Indexer:
    """What builds and writes a Document, for jobs and services."""
    return docs._indexer


def _port(manager: Any) -> int | None:
    """Return the port that ``manager=`` names; None for a free one."""
    if isinstance(manager, bool) or manager == "ui":
        return None
    is_number = isinstance(manager, int)
    require(is_number, "manager", manager, "True, False, 'ui' or a port")
    return validate_integer("manager", manager, 1, 65535)


def _launcher(launcher: Any) -> tuple[Any, Any]:
    """A launcher, or workers that write the stores; None for each that is not there."""
    if launcher is None:
        return None, None
    from lazyrag.launchers.work import Launcher  # not needed without one
    from lazyrag.launchers.workers import Workers

    if isinstance(launcher, Workers):
        return None, launcher
    return Launcher(launcher), None


def _value_set(name: str, values: Any) -> frozenset[Any]:
    is_list = isinstance(values, Iterable) and not isinstance(values, str)
    require(is_list, name, values, "a list of values")
    return frozenset(values)


def _node_list(nodes: Any) -> list[DocNode]:
    if isinstance(nodes, DocNode):
        nodes = [nodes]
    is_list = isinstance(nodes, Iterable) and not isinstance(nodes, str)
    require(is_list, "nodes", nodes, "a DocNode or a list of them")
    listed = list(nodes)
    for node in listed:
        has_group = isinstance(node, DocNode) and bool(node.group)
        require(has_group, "nodes", node, "nodes of a Document")
    return listed
