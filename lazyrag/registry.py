"""One registry for everything that has a name."""

from __future__ import annotations

import functools
import importlib
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from lazyrag.errors import (
    AlreadyRegisteredError,
    ConfigError,
    NotRegisteredError,
    known_names,
    missing_package,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


_NOT_LOADED: Any = object()


@dataclass(slots=True, eq=False)
class LazyTarget:
    """Where an entry can be imported from, which extra installs what it needs, and what it is once
    it is imported.
    """

    target: str
    extra: str | None = None
    loaded: Any = field(default=_NOT_LOADED, repr=False)

    def load(self, kind: str, name: str) -> Any:
        """Import the target; MissingDependencyError, with the install command, if a package is
        missing.
        """
        module_name, _, attribute = self.target.partition(":")
        try:
            return operator.attrgetter(attribute)(importlib.import_module(module_name))
        except ModuleNotFoundError as exc:
            is_ours = self.extra is not None or module_name.startswith("lazyrag.")
            if not is_ours or (exc.name or "").startswith("lazyrag"):
                raise
            raise missing_package(f"{kind} {name!r}", exc.name, self.extra or "") from exc


class Registry(Generic[T]):
    """Names to objects, some of them imported only when they are asked for.

    It is no Mapping on purpose: ``items()`` would import every backend. Several threads may use it
    at once; nothing is imported while its lock is held, as a module's body may use the registry
    itself.

    Args:
        kind: What is registered, for messages: ``"vector store"``.
        entry_point_group: Installed packages may add entries under this entry point group; they are
            listed by name and loaded on first use. A built-in name wins over an entry point of the
            same name.

    Example:
        >>> colours: Registry[int] = Registry("colour")
        >>> colours.register("red", 0xFF0000)
        16711680
        >>> colours["red"]
        16711680
        >>> "blue" in colours
        False
    """

    def __init__(self, kind: str, *, entry_point_group: str | None = None) -> None:
        self.kind = kind
        self._a_kind = f"{'An' if kind[0] in 'aeiou' else 'A'} {kind}"
        self.revision = 0  # grows whenever a name may mean something else
        self._entry_point_group = entry_point_group
        self._entries: dict[str, T | LazyTarget] = {}
        self._entry_points: dict[str, EntryPoint] | None = None
        self._lock = threading.RLock()

    @overload
    def register(self, name: str, obj: T, *, replace: bool = False) -> T: ...
    @overload
    def register(self, name: str, *, replace: bool = False) -> Callable[[T], T]: ...
    def register(
        self, name: str, obj: T | None = None, *, replace: bool = False
    ) -> T | Callable[[T], T]:
        """Enter an object under a name, as a call or as a decorator.

        A definition that is run again, such as a notebook's cell, takes its earlier self's place,
        as ``def`` does: a function or class of the same module and qualified name, which is none
        inside a function.

        Args:
            name: A non-empty name.
            obj: The object; left out, a decorator is returned.
            replace: Take the name over from another object.

        Returns:
            The object itself, unchanged.

        Raises:
            AlreadyRegisteredError: If another object has the name and ``replace`` is false.
            ConfigError: If the name is not a non-empty string.
        """
        self._check_name(name)
        if obj is None:
            return lambda decorated: self.register(name, decorated, replace=replace)
        while True:
            present = self._entries.get(name)
            entry: T | LazyTarget = obj
            if present is not None and not replace:
                if not _same_object(self.kind, name, present, obj):
                    raise self._taken(name, present)
                if isinstance(present, LazyTarget):  # what was declared may be declared again
                    entry = LazyTarget(present.target, present.extra, loaded=obj)
            with self._lock:
                if self._entries.get(name) is present:
                    self._entries[name] = entry
                    self.revision += 1
                    return obj

    def declare(
        self, name: str, target: str, *, extra: str | None = None, replace: bool = False
    ) -> None:
        """Enter a name whose object is imported on first use. The same target again changes
        nothing.

        Args:
            name: A non-empty name.
            target: ``"package.module:attribute"``.
            extra: The extra of this package that installs what the target needs.
            replace: Take the name over from another target or object.

        Raises:
            AlreadyRegisteredError: If another target or object has the name and ``replace`` is
                false.
            ConfigError: If the name is not a non-empty string, or the target names no attribute of
                a module.
        """
        self._check_name(name)
        if not all(target.partition(":")):
            raise ConfigError(
                f"The {self.kind} {name!r} is declared as {target!r}; give"
                " 'package.module:attribute'."
            )
        with self._lock:
            present = self._entries.get(name)
            if present is None or replace:
                self._entries[name] = LazyTarget(target, extra)
                self.revision += 1
            elif target != (
                present.target if isinstance(present, LazyTarget) else _definition(present)
            ):
                raise self._taken(name, present)

    def __getitem__(self, name: str) -> T:
        entry = self._entries.get(name) if isinstance(name, str) else None
        if entry is None:
            point = self._third_party().get(name) if isinstance(name, str) else None
            if point is None:
                raise NotRegisteredError(
                    f"No {self.kind} is registered as {name!r}. {known_names(str(name), self)}"
                )
            loaded = LazyTarget(point.value, loaded=point.load())
            with self._lock:  # its module, or another thread, may have entered the name meanwhile
                self._entries.setdefault(name, loaded)
            return self[name]
        if not isinstance(entry, LazyTarget):
            return entry
        if entry.loaded is _NOT_LOADED:
            value = entry.load(self.kind, name)
            with self._lock:
                if entry.loaded is _NOT_LOADED:
                    entry.loaded = value
            if self._entries.get(name, entry) is not entry:
                return self[name]
        return cast("T", entry.loaded)

    def target(self, name: str) -> str | None:
        """Where a declared entry is imported from, without importing it; None for no entry, and for
        an object.

        Example:
            >>> colours: Registry[type] = Registry("colour")
            >>> colours.declare("red", "paints.bright:Red")
            >>> colours.target("red")
            'paints.bright:Red'
        """
        entry = self._entries.get(name)
        if entry is None:
            point = self._third_party().get(name)
            return None if point is None else point.value
        return entry.target if isinstance(entry, LazyTarget) else None

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._third_party()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._entries, *self._third_party()}))

    def __len__(self) -> int:
        return len({*self._entries, *self._third_party()})

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}: {', '.join(self)})"

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Undo on exit whatever is registered inside; for tests."""
        with self._lock:
            saved = dict(self._entries)
        try:
            yield
        finally:
            with self._lock:
                if self._entries != saved:
                    self._entries = saved
                    self.revision += 1

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{self._a_kind} needs a non-empty name, not {name!r}.")

    def _taken(self, name: str, present: object) -> AlreadyRegisteredError:
        return AlreadyRegisteredError(
            f"{self._a_kind} named {name!r} is registered already ({_describe(present)}). "
            "Choose another name, or pass replace=True to take this one over."
        )

    def _third_party(self) -> dict[str, EntryPoint]:
        if self._entry_points is None:
            self._entry_points = {}
            if self._entry_point_group is not None:
                # costs as much to import as all of this package's values
                from importlib.metadata import entry_points

                points = entry_points(group=self._entry_point_group)
                self._entry_points = {point.name: point for point in points}
        return self._entry_points


def _same_object(kind: str, name: str, present: object, new: object) -> bool:
    """Whether an entry is a new object, the target that leads to it, or what the same definition
    made earlier.
    """
    definition = _definition(new)
    if isinstance(present, LazyTarget):
        if present.target == definition:
            return True  # not loaded: the definition may be the one that is running
        try:
            present = present.load(kind, name) if present.loaded is _NOT_LOADED else present.loaded
        except (ImportError, AttributeError):
            return False
    return (
        present is new
        or present == new
        or (definition is not None and _definition(present) == definition)
    )


def _definition(obj: object) -> str | None:
    """``"module:qualified.name"`` of a function or class, or of the one that an object wraps as its
    ``func``.

    None where that does not tell definitions apart: for other objects, partial functions, methods
    of an instance, and what was defined inside of a function.
    """
    obj = _unwrapped(obj)
    if isinstance(obj, MethodType) and not isinstance(obj.__self__, type):
        return None
    module = getattr(obj, "__module__", None)
    name = getattr(obj, "__qualname__", None)
    return (
        f"{module}:{name}"
        if isinstance(module, str) and isinstance(name, str) and "<" not in name
        else None
    )


def _unwrapped(obj: object) -> object:
    """The function inside of what a registry stores for it."""
    return obj if isinstance(obj, (type, functools.partial)) else getattr(obj, "func", obj)


def _describe(entry: object) -> str:
    """Describe an entry for an error message: where it was defined, and for other objects their
    class.
    """
    if isinstance(entry, LazyTarget):
        return entry.target
    inner = _unwrapped(entry)
    named: Any = inner if hasattr(inner, "__qualname__") else type(inner)
    location = f"{getattr(named, '__module__', None) or 'builtins'}:{named.__qualname__}"
    return location if named is inner else f"an object of {location}"


services: Registry[Callable[..., Any]] = Registry("service")
"""What serves a Document or answers from it. The package declares them, since they are above it."""
