"""`Document`: the collection of files that a user holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar

from lazyrag.arguments import known_arguments, known_keywords, whole_number
from lazyrag.data.fields import DocField, make_schema
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.consistency import consistent_read
from lazyrag.document.dataset import FileMetadata, PathLike, make_dataset
from lazyrag.document.group import GroupGraph, built_in_groups, group_name, make_group
from lazyrag.document.maintenance import MaintainedDocument
from lazyrag.document.opening import make_options, open_builder
from lazyrag.document.progress import OnProgress
from lazyrag.document.reader import Reader
from lazyrag.document.report import IngestReport
from lazyrag.errors import ConfigError, NotBuiltError
from lazyrag.models.callables import EmbedCallable, make_embedders
from lazyrag.models.protocol import Embedder
from lazyrag.stores.conf import StoreConf

if TYPE_CHECKING:
    from typing_extensions import Self

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
class Document(MaintainedDocument):
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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
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
        options = make_options(
            workers=workers,
            processes=processes,
            keep_versions=keep_versions,
            read_only=read_only,
            on_progress=on_progress,
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
        name, bound = self._known(group), self._reader.bind(filters)

        def read() -> list[DocNode]:
            found = (
                node
                for node in self._reader.walk(name, bound)
                if all(getattr(node, attribute) in values for attribute, values in wanted)
            )
            return list(itertools.islice(found, first, last))

        return consistent_read([self._builder], read)

    def find(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to the related nodes of another group, through the lowest group above both.

        The result keeps the nodes' order, names each once, and carries the score of the node that led there.

        Example:
            >>> Document().find("CoarseChunk")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(_node_list(nodes), name)

    def find_parent(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to their ancestors in a group above theirs; see `find`.

        Example:
            >>> Document().find_parent("lazyllm_root")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(self._line_checked(nodes, name, above=True), name)

    def find_children(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to their descendants in a group below theirs; see `find`.

        Example:
            >>> Document().find_children("FineChunk")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(self._line_checked(nodes, name, above=False), name)

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

        A Document is also a context manager that closes itself.

        Example:
            >>> with Document() as docs:
            ...     docs.get_nodes()
            []
        """
        if self._reader.scope is None:
            self._builder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self._builder.where}>"

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
    if not isinstance(nodes, Iterable):
        msg = f"Give a node or a list of nodes to follow, not {nodes!r}."
        raise ConfigError(msg)
    listed = list(nodes)
    stray = [one for one in listed if not isinstance(one, DocNode) or not one.group]
    if stray:
        msg = f"Only nodes of a Document can be followed through its tree, not {stray[0]!r}."
        raise ConfigError(msg)
    return listed
