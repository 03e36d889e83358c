"""Transforms told in full, and lists of them of which each document takes the one for its path."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.errors import (
    ConfigError,
    NotRegisteredError,
    TransformError,
    UnknownKeywordError,
    known_names,
    sentence,
)
from lazyrag.validation import known_arguments, whole_number

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
