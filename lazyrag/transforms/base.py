"""What a transform is, and what it may return."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Content, Span, check_content
from lazyrag.errors import ConfigError, NotRegisteredError, TransformError, UnknownKeywordError, known_names, sentence
from lazyrag.registry import Registry
from lazyrag.validation import function_name, known_arguments, known_keywords, whole_number

PathPattern: TypeAlias = "str | Callable[[str], Any]"
"""Which documents: as in ``fnmatch``, upper and lower case alike; or a function of the path that says yes or no."""


@known_arguments
@dataclass(frozen=True, slots=True)
class TransformArgs:
    """A transform with all that belongs to it, for ``create_node_group(transform=...)``, alone or in a list.

    In a list, the first entry whose pattern fits a document's path makes that document's nodes. A document that none
    fits gets no nodes in the group; an entry without pattern at the end takes the rest.

    Args:
        f: A function of a node's content; a `NodeTransform` class or instance; the name of a registered transform.
        trans_node: Give the function the DocNode instead of its content; None for what create_node_group says.
        num_workers: At most so many calls of it at a time; 0 for no limit but the Document's ``workers``. It decides
            nothing about the nodes: another number builds nothing anew.
        kwargs: Parameters of a transform class.
        pattern: Which documents: ``"*.md"``, as in ``fnmatch``, upper and lower case alike, on the document's path
            (relative to the dataset, with forward slashes), ``".md"`` means the same; or a function of that path.
            None: all.
        name: What messages call it; left out, its own name.

    Raises:
        ConfigError: If an argument is of the wrong kind.

    Example:
        >>> markdown = TransformArgs("MarkdownSplitter", kwargs={"chunk_size": 256}, pattern="*.md")
        >>> markdown["pattern"], markdown["num_workers"]
        ('*.md', 0)
    """

    f: Any
    trans_node: bool | None = None
    num_workers: int = 0
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    pattern: PathPattern | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not (callable(self.f) or isinstance(self.f, str)):
            msg = (
                f"TransformArgs has f={self.f!r:.80}; give a function, a NodeTransform or the name of a registered one."
            )
            raise ConfigError(msg)
        if self.trans_node not in (None, True, False):
            msg = f"TransformArgs has trans_node={self.trans_node!r:.80}; give True, False or None."
            raise ConfigError(msg)
        whole_number("num_workers", self.num_workers, 0)
        if not isinstance(self.kwargs, Mapping) or not all(isinstance(key, str) for key in self.kwargs):
            msg = f"TransformArgs has kwargs={self.kwargs!r:.80}; give a mapping of parameters, {{'chunk_size': 256}}."
            raise ConfigError(msg)
        object.__setattr__(self, "kwargs", dict(self.kwargs))
        if self.pattern is not None and not callable(self.pattern) and not (self.pattern and _is_text(self.pattern)):
            msg = f"TransformArgs has pattern={self.pattern!r:.80}; give such as '*.md', a function of a path, or None."
            raise ConfigError(msg)
        if self.name is not None and not _is_text(self.name):
            msg = f"TransformArgs has name={self.name!r:.80}; give a text or None."
            raise ConfigError(msg)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> TransformArgs:
        """The arguments out of a mapping.

        Raises:
            UnknownKeywordError: If it has another key; the message names the nearest.
            ConfigError: If it has no ``f``, or a value is of the wrong kind.

        Example:
            >>> TransformArgs.from_dict({"f": "MarkdownSplitter", "pattern": "*.md"}).pattern
            '*.md'
        """
        for key in given:
            if key not in _NAMES:
                raise UnknownKeywordError(f"TransformArgs takes no {key!r}. {known_names(str(key), _NAMES)}")
        if "f" not in given:
            msg = f"A transform is given as {dict(given)!r:.80}, which has no 'f': the function, class or name itself."
            raise ConfigError(msg)
        return cls(**given)

    def __getitem__(self, key: str) -> Any:
        """An argument by its name."""
        if key not in _NAMES:
            raise NotRegisteredError(f"TransformArgs has no {key!r}. {known_names(str(key), _NAMES)}")
        return getattr(self, key)

    def label(self) -> str:
        """What messages call it."""
        named = self.name or (self.f if isinstance(self.f, str) else getattr(self.f, "__name__", None))
        return str(named or type(self.f).__name__)


_NAMES = tuple(one.name for one in fields(TransformArgs))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def listed_transforms(name: str, transform: Any) -> list[TransformArgs] | None:
    """What a user gave for a group as entries; None where it is no `TransformArgs`, mapping or list of those.

    Raises:
        ConfigError: If a list is empty, or has something else in it.
    """
    if isinstance(transform, TransformArgs):
        return [transform]
    if isinstance(transform, Mapping):
        return [TransformArgs.from_dict(transform)]
    if not isinstance(transform, (list, tuple)):
        return None
    if not transform:
        msg = f"The transform of {name!r} is an empty list; give at least one TransformArgs(f, pattern='*.md')."
        raise ConfigError(msg)
    entries = []
    for one in transform:
        if isinstance(one, TransformArgs):
            entries.append(one)
        else:
            entries.append(TransformArgs.from_dict(one) if isinstance(one, Mapping) else TransformArgs(one))
    return entries


class Entry:
    """One transform of a list, ready to be called.

    Args:
        on_node: From a node to what a transform returns.
        args: What the user gave for it.
        given: The transform itself, instantiated.
    """

    def __init__(self, on_node: Callable[[DocNode], Any], args: TransformArgs, given: Any) -> None:
        self._on_node = on_node
        self.args = args
        self.given = given
        self._limit: AbstractContextManager[Any] = (
            threading.BoundedSemaphore(args.num_workers) if args.num_workers else nullcontext()
        )

    def fits(self, path: str) -> bool:
        """Whether it is for the document of this path."""
        pattern = self.args.pattern
        if pattern is None:
            return True
        if not isinstance(pattern, str):
            try:
                return bool(pattern(path))
            except Exception as exc:
                msg = f"The pattern of {self.args.label()} raised {type(exc).__name__} for {path!r:.80}: {exc}"
                raise TransformError(sentence(msg)) from exc
        wanted = pattern.casefold()
        # As for add_reader, ".md" is a suffix: no path of a document begins with a dot.
        forms = (wanted, f"*{wanted}") if wanted.startswith(".") else (wanted,)
        # The slash in front: "*/docs/*.md" also means the folder at the top.
        return any(fnmatchcase(one.casefold(), form) for one in (path, f"/{path}") for form in forms)

    def __call__(self, node: DocNode) -> Any:
        """What the transform makes of a node."""
        with self._limit:
            returned = self._on_node(node)
            # A generator works while it is read, which is to be within the limit as well.
            return list(returned) if self.args.num_workers and isinstance(returned, Iterator) else returned

    def transform_all(self, nodes: Sequence[DocNode]) -> Iterator[Any]:
        """What it makes of each of a file's nodes: of all together, if the transform can and no limit is set."""
        together = getattr(type(self._on_node), "transform_all", None)
        if together is None or self.args.num_workers:
            return map(self, nodes)
        return iter(together(self._on_node, nodes))


class AdaptiveTransform:
    """Calls, for each node, the first of several transforms that fits its document's path.

    Args:
        entries: In order; at least one.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)

    def __call__(self, node: DocNode) -> Any:
        """What the entry for the node's document makes of it; nothing where none fits."""
        entry = self._entry(node.path)
        return None if entry is None else entry(node)

    def transform_all(self, nodes: Sequence[DocNode]) -> Iterator[Any]:
        """What comes of each of a file's nodes, in order; a model is asked about several at once."""
        for path, group in itertools.groupby(nodes, key=lambda node: node.path):
            some, entry = list(group), self._entry(path)
            yield from [None] * len(some) if entry is None else entry.transform_all(some)

    def _entry(self, path: str) -> Entry | None:
        return next((one for one in self.entries if one.fits(path)), None)

    @property
    def chunk_size(self) -> int | None:
        """The largest of its entries' chunk sizes; None where none has one."""
        sizes = [getattr(one.given, "chunk_size", None) for one in self.entries]
        return max((size for size in sizes if isinstance(size, int)), default=None)

    @property
    def calls_per_node(self) -> int:
        """Most calls of a model that a node costs, for plans."""
        return max(int(getattr(one.given, "calls_per_node", 0)) for one in self.entries)

    def path_told(self, path: str) -> str:
        """What of a document's path decides about the result: which entry it takes, and what that one reads of it."""
        try:
            number = next((number for number, one in enumerate(self.entries) if one.fits(path)), None)
        except Exception as exc:  # noqa: BLE001  it is reported with the file, when the transform runs
            return f"{path} {type(exc).__name__}"
        if number is None:
            return "none"
        told = getattr(self.entries[number].given, "path_told", None)
        return f"{number} {told(path) if told is not None else ''}".rstrip()


C = TypeVar("C", bound=Callable[..., Any])


class NodeTransform:
    """Base of transforms that look at the whole node and may keep parameters (spec 001).

    A subclass overrides `transform`. Its class source and its attributes that are plain values make its fingerprint;
    what they cannot tell (a model, a client) belongs into ``identity`` or into ``create_node_group(version=...)``.
    With a method ``transform_all(nodes)`` it gets all nodes of a file together, and yields for each, in order, what
    `transform` would return: for models that answer several questions at once.
    A file that moves is not transformed again. Where a subclass reads ``node.path``, a method ``path_told(path)`` gives
    as a text what of it decides; where that changes, the nodes are made anew.

    Example:
        >>> class Words(NodeTransform):
        ...     def transform(self, node):
        ...         return node.get_text().split()
        >>> Words()(DocNode(text="green tea"))
        ['green', 'tea']
    """

    identity: str | None = None
    """Names everything that decides about the result; None lets the class's source and attributes speak."""

    reads_text_only: bool = False
    """Whether a node's text is all that the transform looks at: then no other change of its file makes it run again,
    and, where each call asks a model, texts that an edit leaves as they were keep the nodes that were made of them. It
    speaks for the `transform` of its own class: a subclass that overrides that says it again, or is not believed."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.transform is NodeTransform.transform:
            msg = f"{cls.__name__} overrides no transform(self, node): a NodeTransform needs one."
            raise ConfigError(msg)

    def transform(self, node: DocNode) -> Any:
        """Turn one node of the parent group into nodes of this group.

        Args:
            node: A node of the parent group.

        Returns:
            A str, a DocNode, a plain value, or any iterable of those, generators included; None and blank text make
            no node.
        """
        msg = "NodeTransform is a base class: make a subclass that overrides transform(self, node)."
        raise NotImplementedError(msg)

    def __call__(self, node: DocNode) -> Any:
        """The same as `transform`.

        Raises:
            ConfigError: If it is called on something else than a node.
        """
        if not isinstance(node, DocNode):
            msg = f"{type(self).__name__} takes a DocNode, not {node!r:.60} ({type(node).__name__})."
            raise ConfigError(f"{msg} Of a text, make DocNode(text=...).")
        return self.transform(node)


def reads_text_only(transform: object) -> bool:
    """Whether a transform says, of the method `transform` that it has, that it looks at nothing but texts.

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
        next(one for one in classes if {"reads_text_only", "transform"} & vars(one).keys())
    )


transforms: Registry[Callable[..., Any]] = Registry("transform", entry_point_group="lazyrag.transforms")
"""Transform classes and functions by the name that ``create_node_group(transform="name")`` takes."""

# Imported on first use: what it asks models with needs an event loop.
transforms.declare("LLMParser", "lazyrag.transforms.llm:LLMParser")
transforms.declare("llm", "lazyrag.transforms.llm:LLMParser")


@overload
def register_transform(func: C, *, name: str | None = None, replace: bool = False) -> C: ...
@overload
def register_transform(*, name: str | None = None, replace: bool = False) -> Callable[[C], C]: ...
@known_keywords
def register_transform(func: C | None = None, *, name: str | None = None, replace: bool = False) -> Any:
    """Register a transform class or function, so that groups can name it.

    Args:
        func: A NodeTransform class, or a function on text. Left out, a decorator is returned.
        name: Its name; left out, ``func.__name__``.
        replace: Take the name over from another transform.

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
        transforms.register(function_name("register_transform", transform, name), transform, replace=replace)
        return transform

    return enter if func is None else enter(func)


class Draft(NamedTuple):
    """A node to be: what a transform returned, read, before the tree gives it a place.

    Args:
        content: Text, never blank, or another JSON value.
        metadata: Its own metadata.
        span: Where it stands in its parent's text.
    """

    content: Content
    metadata: Mapping[str, Any] = EMPTY
    span: Span | None = None


def run_transform(transform: Callable[[DocNode], Any], parent: DocNode) -> list[Draft]:
    """Call a transform on one node and read what it returns.

    Texts that stand in their parent's text one after the other, with nothing but white space and punctuation between
    them, get spans: splitting functions need not compute any.

    Args:
        transform: Takes the node.
        parent: A node of the parent group.

    Returns:
        The drafts in order. None and blank texts are left out; 0 and False are not.

    Raises:
        TransformError: If the transform raised or returned something that cannot be a node.
    """
    try:
        results = list(_results(transform(parent)))
    except TransformError:
        raise
    except Exception as exc:
        msg = sentence(f"The transform raised {type(exc).__name__}: {exc}")
        if isinstance(exc, AttributeError) and isinstance(exc.obj, str) and hasattr(DocNode, str(exc.name)):
            msg += " It was given the node's text; create_node_group(trans_node=True) gives it the DocNode."
        raise TransformError(msg) from exc
    drafts = [draft for result in results if (draft := _draft(result, parent)) is not None]
    unplaced = [draft for draft in drafts if draft.span is None]
    if not unplaced or len(unplaced) < len(drafts):
        return drafts
    spans = _spans_of_pieces([draft.content for draft in drafts], parent.get_text())
    if spans is None:
        return drafts
    return [Draft(draft.content, draft.metadata, span) for draft, span in zip(drafts, spans, strict=True)]


def run_transforms(transform: Callable[[DocNode], Any], parents: Sequence[DocNode]) -> Iterator[list[Draft]]:
    """Call a transform on several nodes; all at once if it has a method ``transform_all(nodes)``.

    Args:
        transform: Takes a node; ``transform_all`` takes them all, and yields for each, in order, what `run_transform`
            reads.
        parents: Nodes of the parent group.

    Yields:
        The drafts of each.

    Raises:
        TransformError: If the transform raised or returned something that cannot be a node.
    """
    together = getattr(type(transform), "transform_all", None)  # not of any object that has every attribute
    results = None if together is None else iter(together(transform, parents))
    for parent in parents:
        yield run_transform(transform if results is None else lambda _: next(results), parent)


def _results(returned: Any) -> Iterable[Any]:
    if returned is None or isinstance(returned, (str, DocNode, Mapping)) or _is_scalar(returned):
        return [returned]
    if inspect.isawaitable(returned) or hasattr(returned, "__aiter__"):
        msg = f"The transform is asynchronous and returned {returned!r}. Give a function that returns its nodes."
        if inspect.iscoroutine(returned):
            returned.close()
        raise TransformError(msg)
    if isinstance(returned, (set, frozenset)):
        msg = "The transform returned a set, whose order changes from run to run. Return sorted(...) or a list."
        raise TransformError(msg)
    if isinstance(returned, (bytes, bytearray)) or not isinstance(returned, Iterable):
        msg = (
            f"The transform returned {type(returned).__name__}. "
            "Allowed: str, DocNode, a number, a mapping, None, or an iterable of those."
        )
        raise TransformError(msg)
    return returned


def _draft(result: Any, parent: DocNode) -> Draft | None:
    if type(result) is str:  # as it nearly always is
        return None if not result or result.isspace() else Draft(result)
    if result is None or (isinstance(result, str) and not result.strip()):
        return None
    if isinstance(result, DocNode):
        text = result.get_text()
        if not text or text.isspace():
            return None
        # A node that already stands in a tree has its span in another node's text.
        span = result.span if not result.group else None
        if span is not None and parent.get_text()[span[0] : span[1]] != text:
            msg = f"The transform returned a node with span {span}, at which its parent's text does not hold its text."
            raise TransformError(msg)
        return Draft(result.content, result.metadata, span)
    if not (isinstance(result, (str, Mapping)) or _is_scalar(result)):
        msg = (
            f"The transform returned an iterable with {type(result).__name__} in it ({result!r:.60}). "
            "Allowed: str, DocNode, a number, a mapping or None."
        )
        raise TransformError(msg)
    try:
        return Draft(check_content(result))
    except ConfigError as exc:
        raise TransformError(str(exc)) from exc


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "ndim", None) == 0)


def _spans_of_pieces(pieces: list[Content], text: str) -> list[Span] | None:
    """Spans of pieces that follow one another in the text with no letter or digit between them; None otherwise."""
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
