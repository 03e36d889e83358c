"""`Document`: the collection of files that a user holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, cast

from lazyrag.data.fields import DocField, make_schema
from lazyrag.data.filters import FilterLike
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.dataset import FileMetadata, PathLike, make_dataset
from lazyrag.document.group import GroupGraph, built_in_groups, make_group
from lazyrag.document.maintenance import MaintainedDocument
from lazyrag.document.navigation import NavigableDocument
from lazyrag.document.opening import make_options, open_builder
from lazyrag.document.progress import OnProgress
from lazyrag.document.reader import Reader
from lazyrag.document.readers import AddReader, Readers, add_reader
from lazyrag.document.report import IngestReport
from lazyrag.document.sync import MAX_DELETED
from lazyrag.document.watching import OnError, OnReport, Patience, Watcher, open_watcher
from lazyrag.errors import ConfigError, NotBuiltError
from lazyrag.loaders.limits import LoadLimits
from lazyrag.models.callables import EmbedCallable, make_embedders
from lazyrag.models.protocol import Embedder
from lazyrag.stores.conf import StoreConf
from lazyrag.validation import known_arguments, known_keywords

if TYPE_CHECKING:
    from typing import Self

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
        on_error: OnError | None = None,
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
