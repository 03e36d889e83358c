"""The one tree of errors.

    LazyRAGError
    ├── ConfigError(ValueError)              a value we were given is out of its range or unknown
    │   ├── DatasetPathError(FileNotFoundError)
    │   └── UnknownKeywordError(TypeError)   a keyword that the callable does not take
    ├── NotRegisteredError(KeyError)
    ├── AlreadyRegisteredError(ValueError)
    ├── MissingDependencyError(ImportError)
    ├── StaleNodeError(LookupError)          its tree has changed, or is out of scope
    ├── IngestionError                       every file failed in a step
    ├── CanceledError                        the caller's `cancel` event was set
    ├── LoadError                            .path .loader
    │   ├── NoReaderError                    .reason; a folder skips such a file
    │   └── LoaderEndedError                 its process crashed, or exceeded its memory or time
    ├── TransformError                       .group .uid
    ├── EmbeddingError                       .embed_key
    ├── RetrievalError                       a similarity or reranker function broke its contract
    ├── StoreError                           .store .collection
    │   ├── AccessError(PermissionError)     a service refuses the token
    │   ├── StoreConnectionError(ConnectionError)
    │   ├── SchemaMismatchError
    │   ├── StoreBusyError                   another program is writing
    │   ├── StoreDamagedError                data on this machine that is unreadable or lost
    │   ├── ReadOnlyError                    a read-only Document lacks what a query needs
    │   └── UnsupportedError(NotImplementedError)
    ├── GenerationError
    └── EvaluationError
        └── InterfaceError(TypeError)        a class lacks a method, or one returns something else

Each error is also the builtin a caller would expect. A message says what was given, what is allowed
and what to do.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class LazyRAGError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(LazyRAGError, ValueError):
    """A value we were given is unknown or out of its range."""


class DatasetPathError(ConfigError, FileNotFoundError):
    """A path that a user named is not there, or not of the kind that is needed."""


class UnknownKeywordError(ConfigError, TypeError):
    """A keyword argument that the callable does not take; the message lists those it takes."""


class NotRegisteredError(LazyRAGError, KeyError):
    """A name that no registry entry has."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; ours is a sentence.
        return str(self.args[0]) if self.args else ""


class AlreadyRegisteredError(LazyRAGError, ValueError):
    """A name is taken by another object and ``replace=True`` was not given."""


class MissingDependencyError(LazyRAGError, ImportError):
    """An optional package is needed and not installed."""


class StaleNodeError(LazyRAGError, LookupError):
    """A node points to one that is gone, or that the reader may not see."""


class IngestionError(LazyRAGError):
    """Every file failed in a step of ingestion, so that nothing is left to answer from."""


class CanceledError(LazyRAGError):
    """A call was stopped by its ``cancel`` event. What was finished is stored, and the next call
    does the rest.
    """


class LoadError(LazyRAGError):
    """A file could not be turned into text.

    Args:
        message: What was given, what is allowed, what to do.
        path: The file.
        loader: Name of the loader that failed, "" where none could be chosen.
    """

    def __init__(self, message: str, *, path: str = "", loader: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.loader = loader


class NoReaderError(LoadError):
    """A file has no text, or is of a kind that nothing reads. In a folder it is skipped; it has not
    failed.

    Args:
        message: As of `LoadError`.
        reason: Why it is skipped, in a few words for reports.
        path: The file.
        loader: Name of the loader, "" where none could be chosen.
    """

    def __init__(self, message: str, *, reason: str = "", path: str = "", loader: str = "") -> None:
        super().__init__(message, path=path, loader=loader)
        self.reason = reason


class LoaderEndedError(LoadError):
    """The process that loaded a file crashed, or exceeded its memory or time."""

    quarantine = ""
    """What has to change before a sync reads the file again, as a digest; "" for nothing."""


class TransformError(LazyRAGError):
    """A transform raised, or returned something that cannot be a node."""

    def __init__(self, message: str, *, group: str = "", uid: str = "") -> None:
        super().__init__(message)
        self.group = group
        self.uid = uid


class EmbeddingError(LazyRAGError):
    """An embed callable raised, or returned something that is not a vector."""

    def __init__(self, message: str, *, embed_key: str = "") -> None:
        super().__init__(message)
        self.embed_key = embed_key


class RetrievalError(LazyRAGError):
    """A registered similarity or reranker function broke its contract."""


class StoreError(LazyRAGError):
    """A segment or vector store refused or failed."""

    def __init__(self, message: str, *, store: str = "", collection: str = "") -> None:
        super().__init__(message)
        self.store = store
        self.collection = collection


class AccessError(StoreError, PermissionError):
    """A service needs a token, or the token does not allow what was requested."""


class StoreConnectionError(StoreError, ConnectionError):
    """A store could not be reached."""


class SchemaMismatchError(StoreError):
    """Rows or vectors do not fit the collection they are written to."""


class StoreBusyError(StoreError):
    """Another program writes the store, or works with other definitions; the message names it."""


class StoreDamagedError(StoreError):
    """A store on this machine cannot read its own data, or has lost it. A sync rebuilds what the
    ledger knows.
    """


class ReadOnlyError(StoreError):
    """A read-only Document lacks what a query needs, and builds nothing itself."""


class UnsupportedError(StoreError, NotImplementedError):
    """A store was asked for a feature that it does not declare."""


class GenerationError(LazyRAGError):
    """A chat model failed or answered with something unusable.

    From a pipeline, ``context`` is the `lazyrag.RAGContext` that the model was given, so that what
    was found is not lost, and ``text`` what came of the answer; else they are None and "".
    """

    context: Any = None
    text: str = ""


class EvaluationError(LazyRAGError):
    """An evaluation cannot be computed from what was given."""


class InterfaceError(EvaluationError, TypeError):
    """A class under evaluation lacks a method that it needs, or one of its methods returns
    something else.
    """


class IngestionWarning(UserWarning):
    """Some files or nodes could not be ingested; the report names each of them."""


class CacheWarning(UserWarning):
    """Vectors or graphs could not be written to a cache; they are in use, and will have to be
    computed again.
    """


class AnswerWarning(UserWarning):
    """Some of a model's answers could not be read, or are missing; the message says how many and
    what was done.
    """


def missing_package(feature: str, module: str | None, extra: str) -> MissingDependencyError:
    """The error for an optional package that is not installed, with the command that installs it.

    Args:
        feature: What needs it: ``"OnnxEmbedder"``.
        module: A module of the package, as `ModuleNotFoundError` names it.
        extra: The extra of this package that brings it; "" for a package that every installation
            has.

    Example:
        >>> error = missing_package("This", "httpx", "openai")
        >>> print(str(error).partition(". ")[0])
        This needs the package 'httpx', which is not installed
    """
    package = (module or "").partition(".")[0]
    msg = (
        f"{feature} needs the package {package!r}, which is not installed. Install it with:"
        f" {install_command(extra)}"
    )
    return MissingDependencyError(msg, name=package)


@contextmanager
def optional_package(feature: str, extra: str) -> Iterator[None]:
    """Import optional packages in a block; see `missing_package`.

    Raises:
        MissingDependencyError: If one is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        raise missing_package(feature, exc.name, extra) from exc


def install_command(extra: str) -> str:
    """The command that installs this package with an extra, or without one for "": in a checkout,
    the command for its folder.
    """
    if Path(__file__).parents[1].joinpath("setup.cfg").is_file():
        return f'pip install -e ".[{extra}]"' if extra else "pip install -e ."
    return f'pip install "lazyrag[{extra}]"' if extra else "pip install lazyrag"


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the user's own line: the nearest caller outside of this package."""
    level, _ = _user_frame()
    warnings.warn(message, category, stacklevel=level)


def is_notebook_cell() -> bool:
    """Whether the nearest caller outside of this package is a cell of IPython or Jupyter."""
    _, namespace = _user_frame()
    return namespace.get("__name__") == "__main__" and "get_ipython" in namespace


def _user_frame() -> tuple[int, Mapping[str, Any]]:
    """The nearest caller outside of this package: the `stacklevel` of a warning by the calling
    function, and its global names.
    """
    frame = sys._getframe(2)
    level = 2
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == "lazyrag"
    ):
        frame = frame.f_back
        level = level + 1
    return level, frame.f_globals


def sentence(text: object) -> str:
    """A text that ends as a sentence does, so that another may follow.

    Example:
        >>> sentence("division by zero"), sentence("Why?")
        ('division by zero.', 'Why?')
    """
    stripped = str(text).rstrip()
    return stripped if stripped.endswith((".", "!", "?", "。", "！", "？")) else stripped + "."


@contextmanager
def errors_of(who: str, error: type[LazyRAGError]) -> Iterator[None]:
    """Replace errors of user code by one that names its origin; errors of this package pass
    unchanged.

    Args:
        who: What runs: ``"The step 'shorten'"``.
        error: The class of the error.

    Example:
        >>> with errors_of("The step 'cut'", RetrievalError):
        ...     _ = 1 / 0
        Traceback (most recent call last):
        ...
        lazyrag.errors.RetrievalError: The step 'cut' raised ZeroDivisionError: division by zero.
    """
    try:
        yield
    except LazyRAGError:
        raise
    except Exception as exc:
        raise error(f"{who} raised {type(exc).__name__}: {sentence(exc)}") from exc


def known_names(name: str, candidates: Iterable[str]) -> str:
    """Say which names are known and which one is nearest, for the end of an error message.

    Args:
        name: What was given.
        candidates: The allowed names, in any order.

    Returns:
        ``"Known: a, b, c. Did you mean 'b'?"``, without the question where nothing is near.

    Example:
        >>> known_names("chromdb", ["map", "chromadb"])
        "Known: chromadb, map. Did you mean 'chromadb'?"
    """
    names = sorted(candidates)
    listed = ", ".join(names) if names else "none"
    near = nearest(name, names)
    return f"Known: {listed}." + (f" Did you mean {near!r}?" if near else "")


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that a misspelt one most likely meant, or None; it is as similar as the
    cutoff, at most 1.

    Example:
        >>> nearest("topK", ["topk", "target"])
        'topk'
    """
    import difflib

    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[matches[0]] if matches else None


# Interrupts of worker threads. Ctrl-C reaches the main thread alone: code that starts worker
# threads gives each an event and sets it on Ctrl-C; a worker checks it while it waits.

_of_this_thread = threading.local()


def set_stop_event(event: threading.Event) -> None:
    """Set the event that stops this worker thread."""
    _of_this_thread.stop_event = event


def stop_event() -> threading.Event | None:
    """Return the event that stops this thread; None outside of worker threads.

    Example:
        >>> stop_event() is None
        True
    """
    event: threading.Event | None = getattr(_of_this_thread, "stop_event", None)
    return event


def raise_if_stopped() -> None:
    """Stop this worker thread if its event is set.

    Raises:
        KeyboardInterrupt: If it is.
    """
    event = stop_event()
    if event is not None and event.is_set():
        raise KeyboardInterrupt


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 hit", "2 hits"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def preview(text: str, length: int = 60) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


# attributes that pass between processes
_CARRIED = ("path", "loader", "reason", "uid", "group", "embed_key", "quarantine")


def describe_error(error: Exception) -> dict[str, Any]:
    """An error as JSON, for `remade_error`."""
    attributes = {name: getattr(error, name) for name in _CARRIED if getattr(error, name, "")}
    return {"type": type(error).__name__, "message": str(error), "own": attributes}


def remade_error(stored: dict[str, Any]) -> Exception:
    """The error that `describe_error` described; one of another package has its name and
    message.
    """
    error_class = globals().get(stored["type"])
    is_known = isinstance(error_class, type) and issubclass(error_class, LazyRAGError)
    kind: Any = error_class if is_known else type(stored["type"], (Exception,), {})
    error: Exception = kind(stored["message"])
    for name, value in stored["own"].items():
        setattr(error, name, value)
    return error
