"""What a transform is, and what it may return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, overload

from lazyrag.data.node import DocNode
from lazyrag.data.segment import EMPTY, Content, Span, check_content
from lazyrag.errors import ConfigError, TransformError, sentence
from lazyrag.registry import Registry
from lazyrag.validation import function_name, known_keywords

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
