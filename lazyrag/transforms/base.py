"""Base of transforms, the transforms of a node group, and how their results become nodes."""

from __future__ import annotations

import contextvars
import inspect
import itertools
import re
import threading
from abc import ABCMeta
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, overload

from lazyrag.data.node import SOURCE_LOCATION, DocNode
from lazyrag.data.segment import EMPTY, Content, Span, check_content
from lazyrag.errors import (
    ConfigError,
    NotRegisteredError,
    TransformError,
    known_names,
    raise_if_stopped,
    sentence,
    stop_event,
)
from lazyrag.registry import Registry
from lazyrag.types import AnyCallable, Keywords, Metadata
from lazyrag.validation import (
    function_name,
    is_list_of,
    known_arguments,
    known_keywords,
    require,
    validate_integer,
)

PathPattern: TypeAlias = "str | Callable[[str], Any]"
"""Selects documents: an ``fnmatch`` pattern, case-insensitive, or a predicate on the path."""


@known_arguments
@dataclass(frozen=True, slots=True)
class TransformArgs:
    """A transform with its parameters, for ``create_node_group(transform=...)``, alone or in a
    list.

    In a list, the first entry whose pattern matches a document's path creates its nodes. A document
    that no entry matches gets no nodes; an entry without pattern at the end takes the rest.

    Args:
        f: A function of a node's content; a `NodeTransform` class or instance; the name of a
            registered transform.
        trans_node: Whether to pass the DocNode instead of its content; None: as create_node_group
            says.
        num_workers: Maximum number of concurrent calls, over all files; a file's nodes are
            transformed by so many threads. 0: one node of a file after the other, and as many files
            as the Document has ``workers``. It does not affect the nodes, so changing it rebuilds
            nothing.
        kwargs: Parameters of a transform class.
        pattern: Selects documents: ``"*.md"``, as in ``fnmatch``, case-insensitive, on the
            document's path (relative to the dataset, with forward slashes); ``".md"`` means the
            same; or a predicate on that path. None: all.
        name: Name in messages; by default its own.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> markdown = TransformArgs("MarkdownSplitter", kwargs={"chunk_size": 256}, pattern="*.md")
        >>> markdown["pattern"], markdown["num_workers"]
        ('*.md', 0)
    """

    f: Any
    trans_node: bool | None = None
    num_workers: int = 0
    kwargs: Keywords = field(default_factory=dict)
    pattern: PathPattern | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        f = self.f
        pattern = self.pattern
        kwargs = self.kwargs
        require(
            callable(f) or isinstance(f, str),
            "f",
            f,
            "a function, a NodeTransform or a registered name",
        )
        require(
            self.trans_node in (None, True, False),
            "trans_node",
            self.trans_node,
            "True, False or None",
        )
        validate_integer("num_workers", self.num_workers, 0)
        is_valid = isinstance(kwargs, Mapping) and is_list_of([*kwargs], str)
        require(is_valid, "kwargs", kwargs, "a mapping of parameters, such as {'chunk_size': 256}")
        object.__setattr__(self, "kwargs", dict(kwargs))
        is_valid = (
            pattern is None or callable(pattern) or (isinstance(pattern, str) and pattern != "")
        )
        require(
            is_valid, "pattern", pattern, "a pattern such as '*.md', a function of a path, or None"
        )
        require(isinstance(self.name, (str, type(None))), "name", self.name, "a string or None")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformArgs:
        """Create it from a mapping.

        Raises:
            UnknownKeywordError: If it has an unknown key; the message names the nearest.
            ConfigError: If it has no ``f``, or a value is invalid.

        Example:
            >>> TransformArgs.from_dict({"f": "MarkdownSplitter", "pattern": "*.md"}).pattern
            '*.md'
        """
        if "f" not in values:
            raise ConfigError(
                f"A transform needs 'f', the function, class or name; got {dict(values)!r:.80}."
            )
        return cls(**values)

    def __getitem__(self, key: str) -> Any:
        """Return an argument by name."""
        if key not in _NAMES:
            raise NotRegisteredError(
                f"TransformArgs has no {key!r}. {known_names(str(key), _NAMES)}"
            )
        return getattr(self, key)

    def label(self) -> str:
        """Return the name for messages."""
        named = self.name or (
            self.f if isinstance(self.f, str) else getattr(self.f, "__name__", None)
        )
        return str(named or type(self.f).__name__)


_NAMES = tuple(field.name for field in fields(TransformArgs))


def listed_transforms(name: str, transform: Any) -> list[TransformArgs] | None:
    """Return the entries of a group's transform; None if it is no `TransformArgs`, mapping or list
    of those.

    Raises:
        ConfigError: If a list is empty, or an item is invalid.
    """
    if isinstance(transform, TransformArgs):
        return [transform]
    if isinstance(transform, Mapping):
        return [TransformArgs.from_dict(transform)]
    if not isinstance(transform, (list, tuple)):
        return None
    if not transform:
        raise ConfigError(
            f"The transform of {name!r} must be a list with at least one TransformArgs; got []."
        )
    entries = []
    for item in transform:
        if isinstance(item, TransformArgs):
            entries.append(item)
        else:
            entries.append(
                TransformArgs.from_dict(item) if isinstance(item, Mapping) else TransformArgs(item)
            )
    return entries


T = TypeVar("T")
R = TypeVar("R")

_POLL_S = 0.05  # how often a waiting thread checks whether its work was cancelled


class BoundedCalls:
    """Limits concurrent calls, over all threads that make them.

    Args:
        limit: Maximum number of calls, at least 1.
    """

    identity = "Calls/1"  # does not affect results

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = threading.Semaphore(limit)

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Call a function with each item concurrently; yields the results in order.

        Calls run in daemon threads, so the caller can leave in the middle of a call. After an
        error, or when the caller has left, no further call begins.

        Raises:
            Exception: The first one that the function raises, immediately.
            KeyboardInterrupt: If the work of this thread was cancelled.
        """
        if len(items) == 1 and stop_event() is None:  # the main thread: Ctrl-C arrives here
            with self._free:
                result = function(items[0])
            yield result
            return
        run = _ThreadedMap(function, items, self._free)
        try:
            run.start(min(self.limit, len(items)))
            for index in range(len(items)):
                yield run.result(index)
        finally:
            run.stop()


class _ThreadedMap(Generic[T, R]):
    """The items of one caller, and the threads that process them."""

    def __init__(
        self, function: Callable[[T], R], items: Sequence[T], free: threading.Semaphore
    ) -> None:
        self._function = function
        self._items = items
        self._free = free
        self._changed = threading.Condition()
        self._begun = 0
        self._results: dict[int, R] = {}
        self._error: BaseException | None = None
        self._is_stopped = False

    def start(self, threads: int) -> None:
        for _ in range(threads):
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run, args=(self._work,), name="lazyrag call", daemon=True
            ).start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True

    def result(self, index: int) -> R:
        while True:
            with self._changed:
                if self._error is not None:
                    raise self._error
                if index in self._results:
                    return self._results.pop(index)
                self._changed.wait(_POLL_S)
            raise_if_stopped()

    def _work(self) -> None:
        while True:
            with self._free:
                with self._changed:
                    if self._is_stopped or self._begun == len(self._items):
                        return
                    index = self._begun
                    self._begun += 1
                try:
                    result = self._function(self._items[index])
                except BaseException as exc:  # noqa: BLE001  raised where it is waited for
                    with self._changed:
                        self._error = self._error or exc
                        self._is_stopped = True
                        self._changed.notify_all()
                    return
            with self._changed:
                self._results[index] = result
                self._changed.notify_all()


TransformCallable: TypeAlias = Callable[[DocNode], Any]
"""Makes the nodes of a group, or their texts, of a node."""


def call_all(transform: TransformCallable, nodes: Sequence[DocNode]) -> Iterator[Any]:
    """Transform several nodes, in order: together if the transform has a method
    ``transform_all(nodes)``.
    """
    # of the class: some objects have every attribute
    together = getattr(type(transform), "transform_all", None)
    return map(transform, nodes) if together is None else iter(together(transform, nodes))


class Limited:
    """A transform that is called by several threads, up to a limit.

    Args:
        on_node: Takes a node; returns what a transform returns.
        limit: Maximum number of concurrent calls, at least 1.
    """

    def __init__(self, on_node: TransformCallable, limit: int) -> None:
        self._on_node = on_node
        self._calls = BoundedCalls(limit)

    def __reduce__(self) -> tuple[Any, ...]:
        return Limited, (self._on_node, self._calls.limit)

    def __call__(self, node: DocNode) -> Any:
        """Transform a node."""
        return next(self._calls.map(self._read, [node]))

    def transform_all(self, nodes: Sequence[DocNode]) -> Iterator[Any]:
        """Transform the nodes of a file, in order."""
        return self._calls.map(self._read, nodes)

    def _read(self, node: DocNode) -> Any:
        returned = self._on_node(node)
        # A generator works while it is read, so it is read within the limit.
        return list(returned) if isinstance(returned, Iterator) else returned


class Memo:
    """A transform that is called once for each text, with nodes that have nothing but their text.

    Args:
        on_node: Takes a node; returns what a transform returns.
    """

    def __init__(self, on_node: TransformCallable) -> None:
        self._on_node = on_node
        self._results: dict[tuple[str, str], list[Any]] = {}  # of the last texts

    def __reduce__(self) -> tuple[Any, ...]:
        return Memo, (self._on_node,)

    def __call__(self, node: DocNode) -> Any:
        """Transform a node."""
        return next(self.transform_all([node]))

    def transform_all(self, nodes: Sequence[DocNode]) -> Iterator[Any]:
        """Transform the nodes of a file, in order."""
        for key in list(self._results)[:-_MEMOIZED]:
            self._results.pop(key, None)
        keys = [(type(node.content).__name__, node.text) for node in nodes]
        done = {key: results for key in keys if (results := self._results.get(key)) is not None}
        new = {
            key: _TextNode(node.content)
            for key, node in zip(keys, nodes, strict=True)
            if key not in done
        }
        pending = zip(new, call_all(self._on_node, list(new.values())), strict=True)
        for key in keys:
            while key not in done:
                done_key, returned = next(pending)
                results = list(_results(returned))
                self._results[done_key] = results
                done[done_key] = results
            yield done[key]


_MEMOIZED = 10_000  # texts


class _TextNode(DocNode):
    """A node of which only the text can be read."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("content", "text", "get_text"):
            return super().__getattribute__(name)
        raise TransformError(
            "With memo=True a transform may read only the node's text, and this one reads"
            f" node.{name}: a cached result could be wrong. Leave out memo, or use node.text alone."
        )

    def __repr__(self) -> str:
        return f"DocNode(text={self.text!r:.40})"


class Entry:
    """A transform of a list, ready to be called.

    Args:
        on_node: Takes a node; returns what a transform returns.
        args: The user's arguments.
        given: The transform itself, instantiated.
    """

    def __init__(self, on_node: TransformCallable, args: TransformArgs, transform: Any) -> None:
        self._on_node = on_node
        self.args = args
        self.transform = transform

    def fits(self, path: str) -> bool:
        """Whether its pattern matches the path of a document."""
        pattern = self.args.pattern
        if pattern is None:
            return True
        if not isinstance(pattern, str):
            try:
                return bool(pattern(path))
            except Exception as exc:
                msg = (
                    f"The pattern of {self.args.label()} raised {type(exc).__name__} for"
                    f" {path!r:.80}: {exc}"
                )
                raise TransformError(sentence(msg)) from exc
        pattern = pattern.casefold()
        # As in add_reader, ".md" is a suffix: no document's path begins with a dot.
        patterns = (pattern, f"*{pattern}") if pattern.startswith(".") else (pattern,)
        path = path.casefold()
        # With a leading slash, "*/docs/*.md" also matches the folder at the top.
        return any(fnmatchcase(path, form) or fnmatchcase(f"/{path}", form) for form in patterns)

    def __call__(self, node: DocNode) -> Any:
        """Transform a node."""
        return self._on_node(node)

    def transform_all(self, nodes: Sequence[DocNode]) -> Iterator[Any]:
        """Transform the nodes of a file: together, if the transform can."""
        return call_all(self._on_node, nodes)


class AdaptiveTransform:
    """Calls the first of several transforms that matches the path of a node's document.

    Args:
        entries: The transforms in order; at least one.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)

    def __call__(self, node: DocNode) -> Any:
        """Transform a node with the matching entry; None if there is none."""
        entry = self._entry(node.path)
        return None if entry is None else entry(node)

    def transform_all(self, nodes: Sequence[DocNode]) -> Iterator[Any]:
        """Transform the nodes of a file, in order; a model processes several at once."""
        for path, group in itertools.groupby(nodes, key=lambda node: node.path):
            some = list(group)
            entry = self._entry(path)
            yield from [None] * len(some) if entry is None else entry.transform_all(some)

    def _entry(self, path: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.fits(path)), None)

    @property
    def chunk_size(self) -> int | None:
        """Largest chunk size of the entries; None if none has one."""
        sizes = [getattr(entry.transform, "chunk_size", None) for entry in self.entries]
        return max((size for size in sizes if isinstance(size, int)), default=None)

    @property
    def reads_source(self) -> bool:
        """Whether an entry reads source text."""
        return any(getattr(entry.transform, "reads_source", False) for entry in self.entries)

    @property
    def calls_per_node(self) -> int:
        """Maximum number of model calls per node, for plans."""
        return max(int(getattr(entry.transform, "calls_per_node", 0)) for entry in self.entries)

    def path_key(self, path: str) -> str:
        """Return what of a document's path affects the result: the number of its entry, and what
        that returns.
        """
        try:
            number = next(
                (number for number, entry in enumerate(self.entries) if entry.fits(path)), None
            )
        except Exception as exc:  # noqa: BLE001  reported when the transform runs
            return f"{path} {type(exc).__name__}"
        if number is None:
            return "none"
        path_key = getattr(self.entries[number].transform, "path_key", None)
        return f"{number} {path_key(path) if path_key is not None else ''}".rstrip()


C = TypeVar("C", bound=Callable[..., Any])


class NodeTransform:
    """Base of transforms that read whole nodes and may have parameters (spec 001).

    A subclass defines `transform`, or `forward`, which is the same method by its newer name; one
    that derives from `abc.ABC`, too, may leave it to its own subclasses. Its
    source and its attributes with plain values make its fingerprint; name anything else that
    affects the result (a model, a client) in ``identity`` or in ``create_node_group(version=...)``.
    Define ``transform_all(nodes)`` to process the nodes of a file together, for models that handle
    batches: it yields for each, in order, what `transform` would return.
    A file that moves is not transformed again. If a subclass reads ``node.path``, define
    ``path_key(path)``, which returns the part of the path that affects the result as a string; if
    that changes, the nodes are created again.

    Args:
        num_workers: See `TransformArgs`, for groups that set none.

    Example:
        >>> class Words(NodeTransform):
        ...     def forward(self, node):
        ...         return node.get_text().split()
        >>> Words()(DocNode(text="green tea"))
        ['green', 'tea']
    """

    _num_workers = 0

    identity: str | None = None
    """Name of everything that affects the result; None takes the class's source and attributes."""

    reads_text_only: bool = False
    """Whether the transform reads only the text of a node. Then no other change of its file makes
    it run again, and with a model, texts that an edit does not change keep their nodes. It applies
    to the `transform` of the same class: a subclass that overrides `transform` has to set it
    again."""

    reads_source: bool | str = False
    """Whether the transform reads source text. As a child of the root group it then receives the
    decoded text of a file (HTML, XML, JSON, YAML, CSV) instead of the text that its loader
    rendered; of an archive or mail, the text of each file inside in turn, with a path such as
    ``"teas.zip > green.json"``. Of such text, chunks have no span but their place in the metadata
    ``source_location``. Where a loader renders nothing, source and text are the same."""

    source_suffixes: tuple[str, ...] = ()
    """The only files inside of an archive or mail that a transform with `reads_source` receives; ()
    for all."""

    def __init__(self, num_workers: int = 0) -> None:
        super().__init__()
        if type(self).transform is NodeTransform.transform:
            raise ConfigError(
                f"{type(self).__name__} is a base class: make a subclass that overrides"
                " transform(self, node)."
            )
        self._num_workers = validate_integer("num_workers", num_workers, 0)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        match [name for name in ("transform", "forward") if name in vars(cls)]:
            case [name]:
                cls.transform = cls.forward = vars(cls)[name]  # type: ignore[method-assign]
            case [_, _]:
                raise ConfigError(
                    f"{cls.__name__} defines transform and forward, which are one method. Define"
                    " one of them."
                )
        if cls.transform is NodeTransform.transform and not isinstance(cls, ABCMeta):
            raise ConfigError(
                f"{cls.__name__} must override transform(self, node), or forward(self, node)."
            )

    def transform(self, node: DocNode) -> Any:
        """Turn one node of the parent group into nodes of this group.

        Args:
            node: A node of the parent group. With ``create_node_group(ref=...)`` the method takes
                ``ref``, too.

        Returns:
            A str, a DocNode, a plain value, or an iterable of those, such as a generator. None and
            blank text create no node.
        """
        raise NotImplementedError

    forward = transform

    def __call__(self, node: DocNode) -> Any:
        """Transform a node.

        Raises:
            ConfigError: If it is no node.
        """
        require(
            isinstance(node, DocNode),
            f"The argument of {type(self).__name__}",
            node,
            "a DocNode",
            "Wrap text in DocNode(text=...).",
        )
        kind = self.reads_source
        texts = (
            node.reader.source_texts(node.segment, kind) if kind and node.reader is not None else ()
        )
        return self._transform_source(node, texts) if texts else self.transform(node)

    def _transform_source(self, node: DocNode, texts: Sequence[tuple[str, str]]) -> Iterator[Any]:
        """Transform the source texts of a node's file."""
        is_container = any(name for name, _ in texts)
        file_text = node.get_text()
        starts = {location.label: location.start for location in node.locations}
        for name, text in texts:
            if (
                is_container
                and self.source_suffixes
                and not name.lower().endswith(self.source_suffixes)
            ):
                continue
            path = f"{node.path} > {name}" if name else node.path
            part = DocNode.from_segment(node.segment._replace(content=text, path=path), node.reader)
            start = (
                starts[name]
                if name in starts and file_text.startswith(text, starts[name])
                else None
            )
            breaks = [match.start() for match in re.finditer("\n", text)]
            try:
                for result in _results(self.transform(part)):
                    yield _placed(result, name, start, breaks)
            except TransformError as exc:
                raise TransformError(f"{name}: {exc}" if name else str(exc)) from exc


def reads_text_only(transform: object) -> bool:
    """Whether a transform declares, for its own method `transform`, that it reads only texts.

    Example:
        >>> class Loud(NodeTransform):
        ...     reads_text_only = True
        ...     def transform(self, node):
        ...         return node.get_text().upper()
        >>> class Titled(Loud):
        ...     def transform(self, node):
        ...         return node.metadata["title"]
        >>> reads_text_only(Loud()), reads_text_only(Titled())
        (True, False)
    """
    if getattr(transform, "reads_text_only", False) is not True:
        return False
    if "reads_text_only" in getattr(transform, "__dict__", {}):
        return True
    classes = type(transform).__mro__
    return "reads_text_only" in vars(
        next(class_ for class_ in classes if {"reads_text_only", "transform"} & vars(class_).keys())
    )


transforms: Registry[AnyCallable] = Registry("transform", entry_point_group="lazyrag.transforms")
"""Transform classes and functions by name, for ``create_node_group(transform="name")``."""

for _module, _splitters in (
    (
        "splitters",
        "CharacterSplitter RecursiveSplitter SectionSplitter SemanticSplitter SentenceSplitter",
    ),
    ("splitters", "SentenceWindow TokenSplitter"),
    (
        "structured",
        "CodeSplitter HTMLSplitter JSONSplitter MarkdownSplitter XMLSplitter YAMLSplitter",
    ),
):
    for _name in _splitters.split():
        transforms.declare(_name, f"lazyrag.transforms.{_module}:{_name}")
for _name in ("LLMParser", "llm"):
    transforms.declare(_name, "lazyrag.transforms.llm:LLMParser")


@overload
def register_transform(func: C, *, name: str | None = None, replace: bool = False) -> C: ...
@overload
def register_transform(*, name: str | None = None, replace: bool = False) -> Callable[[C], C]: ...
@known_keywords
def register_transform(
    func: C | None = None, *, name: str | None = None, replace: bool = False
) -> Any:
    """Register a transform class or function, so that groups can name it.

    Args:
        func: A NodeTransform class, or a function on text. Left out, a decorator is returned.
        name: Its name; by default ``func.__name__``.
        replace: Whether to replace another transform of that name.

    Returns:
        The class or function, unchanged.

    Raises:
        ConfigError: If func is no callable, or has no name and none is given.
        AlreadyRegisteredError: If the name is taken.

    Example:
        >>> @register_transform
        ... def shout(text: str) -> str:
        ...     return text.upper()
        >>> shout("tea")
        'TEA'
    """

    def enter(transform: C) -> C:
        transforms.register(
            function_name("register_transform", transform, name), transform, replace=replace
        )
        return transform

    return enter if func is None else enter(func)


class Draft(NamedTuple):
    """A new node, before it is part of a tree.

    Args:
        content: Text that is not blank, or another JSON value.
        metadata: Its own metadata.
        span: Span in its parent's text.
    """

    content: Content
    metadata: Metadata = EMPTY
    span: Span | None = None


def run_transform(transform: TransformCallable, parent: DocNode) -> list[Draft]:
    """Call a transform on a node and convert the result to drafts.

    Texts that follow one another in the parent's text, with only white space and punctuation
    between them, get spans, so splitting functions need not compute any.

    Args:
        transform: Takes the node.
        parent: A node of the parent group.

    Returns:
        The drafts in order, without None and blank texts; 0 and False are values.

    Raises:
        TransformError: If the transform raised or returned something that cannot be a node.
    """
    try:
        # One by one: a generator may write its next text into the same node.
        drafts = [
            draft
            for result in _results(transform(parent))
            if (draft := _draft(result, parent)) is not None
        ]
    except TransformError:
        raise
    except Exception as exc:
        msg = sentence(f"The transform raised {type(exc).__name__}: {exc}")
        if (
            isinstance(exc, AttributeError)
            and isinstance(exc.obj, str)
            and hasattr(DocNode, str(exc.name))
        ):
            msg += (
                " Its argument is the node's text; create_node_group(trans_node=True) gives it the"
                " DocNode."
            )
        raise TransformError(msg) from exc
    unplaced = [draft for draft in drafts if draft.span is None]
    if not unplaced or len(unplaced) < len(drafts):
        return drafts
    spans = _spans_of_pieces([draft.content for draft in drafts], parent.get_text())
    if spans is None:
        return drafts
    return [
        Draft(draft.content, draft.metadata, span)
        for draft, span in zip(drafts, spans, strict=True)
    ]


def run_transforms(
    transform: TransformCallable, parents: Sequence[DocNode]
) -> Iterator[list[Draft]]:
    """Call a transform on several nodes; together if it has a method ``transform_all(nodes)``.

    Args:
        transform: Takes a node; its ``transform_all`` takes all nodes and yields the result of
            each, in order.
        parents: Nodes of the parent group.

    Yields:
        The drafts of each.

    Raises:
        TransformError: If the transform raised or returned something that cannot be a node.
    """
    results = call_all(transform, parents) if hasattr(type(transform), "transform_all") else None
    for parent in parents:
        yield run_transform(transform if results is None else lambda _: next(results), parent)


def _results(returned: Any) -> Iterable[Any]:
    if returned is None or isinstance(returned, (str, DocNode, Mapping)) or _is_scalar(returned):
        return [returned]
    if inspect.isawaitable(returned) or hasattr(returned, "__aiter__"):
        msg = (
            f"The transform is asynchronous and returned {returned!r}. Give a function that returns"
            " its nodes."
        )
        if inspect.iscoroutine(returned):
            returned.close()
        raise TransformError(msg)
    if isinstance(returned, (set, frozenset)):
        raise TransformError(
            "The transform returned a set, whose order changes from run to run. Return sorted(...)"
            " or a list."
        )
    if isinstance(returned, (bytes, bytearray)) or not isinstance(returned, Iterable):
        raise TransformError(
            f"The transform returned {type(returned).__name__}. "
            "Allowed: str, DocNode, a number, a mapping, None, or an iterable of those."
        )
    return returned


def _draft(result: Any, parent: DocNode) -> Draft | None:
    if type(result) is str:  # as it nearly always is
        return None if not result or result.isspace() else Draft(result)
    if result is None or (isinstance(result, str) and not result.strip()):
        return None
    if isinstance(result, DocNode):
        return _node_draft(result, parent)
    if not (isinstance(result, (str, Mapping)) or _is_scalar(result)):
        raise TransformError(
            f"The transform returned an iterable with {type(result).__name__} in it"
            f" ({result!r:.60}). Allowed: str, DocNode, a number, a mapping or None."
        )
    try:
        return Draft(check_content(result))
    except ConfigError as exc:
        raise TransformError(str(exc)) from exc


def _node_draft(node: DocNode, parent: DocNode) -> Draft | None:
    text = node.get_text()
    if not text or text.isspace():
        return None
    # The span of a node of a tree refers to another text.
    span = node.span if not node.group else None
    if span is not None and parent.get_text()[span[0] : span[1]] != text:
        raise TransformError(
            f"The transform returned a node with span {span}, where its parent's text differs"
            " from its text."
        )
    return Draft(node.content, dict(node.metadata) if node.has_metadata else EMPTY, span)


def _placed(result: Any, name: str, start: int | None, breaks: Sequence[int]) -> Any:
    """A transform's result of a source text, with its place there instead of a span, or with a span
    in its parent.

    Args:
        result: What the transform returned.
        name: Name of the source text.
        start: Where the parent has the same text; None if it has not.
        breaks: Where the lines of the source text end.
    """
    node = DocNode(text=result) if isinstance(result, str) and name and result.strip() else result
    if not isinstance(node, DocNode):
        return node
    metadata = node.metadata
    places = [name]
    if node.span is not None and start is not None:
        return DocNode(
            node.content, metadata=metadata, span=(node.span[0] + start, node.span[1] + start)
        )
    places += [
        str(metadata[label]) for label in ("heading", "path", "definition") if label in metadata
    ]
    if node.span is not None:
        text = node.text
        first = bisect_left(breaks, node.span[0] + len(text) - len(text.lstrip())) + 1
        last = max(first, bisect_left(breaks, node.span[0] + len(text.rstrip())) + 1)
        places.append(f"line {first}" if first == last else f"lines {first}-{last}")
    place = ", ".join(filter(None, places))
    return DocNode(
        node.content, metadata={**metadata, SOURCE_LOCATION: place} if place else metadata
    )


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float)) or (
        hasattr(value, "item") and getattr(value, "ndim", None) == 0
    )


def _spans_of_pieces(pieces: list[Content], text: str) -> list[Span] | None:
    """Return the spans of pieces that follow one another with no letter or digit between them; None
    otherwise.
    """
    spans = []
    position = 0
    for piece in pieces:
        if not isinstance(piece, str):
            return None
        start = text.find(piece, position)
        if start < 0 or (start > position and _has_ink(text, position, start)):
            return None
        position = start + len(piece)
        spans.append((start, position))
    return None if _has_ink(text, position, len(text)) else spans


def _has_ink(text: str, start: int, end: int) -> bool:
    return any(character.isalnum() for character in text[start:end])
