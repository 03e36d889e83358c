"""When a dataset's files change: told by the operating system through watchfiles, or found by looking."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lazyrag.document.dataset import Dataset
from lazyrag.errors import DatasetPathError, missing_package
from lazyrag.loaders.directory import Signature

_STEP_S = 0.05
_SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system in use counts in steps of two seconds


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """What is watched, and which events in it concern a dataset.

    Args:
        folder: The dataset's folder; None for single files.
        files: The single files.
        store: Path with which those of the store's own files begin; "" where it lies in memory.
    """

    folder: str | None
    files: frozenset[str]
    store: str = ""

    @classmethod
    def of(cls, dataset: Dataset, store: Path | None) -> WatchedFiles:
        """Those of a dataset.

        Args:
            dataset: With a folder, or files.
            store: The store's file; None where it lies in memory.
        """
        # Systems tell events by real paths, whatever path was given to be watched.
        own = "" if store is None else os.path.realpath(store)
        if dataset.folder is not None:
            return cls(os.path.realpath(dataset.folder), frozenset(), own)
        files = (file.path for file in dataset.list_files().found)
        return cls(None, frozenset(str(one.parent.resolve() / one.name) for one in files), own)

    @property
    def places(self) -> tuple[str, ...]:
        """Folders to watch: the dataset's with all beneath it, or those that its single files lie in.

        A file is watched through its folder, as most programs save by putting a new file in the old one's place.
        """
        if self.folder is not None:
            return (self.folder,)
        return tuple(sorted({str(Path(one).parent) for one in self.files}))

    def concerns(self, path: str) -> bool:
        """Whether an event at a path may change what a sync finds: not in hidden files, nor in the store's own."""
        if self.store and path.startswith(self.store):
            return False
        if self.folder is None:
            return path in self.files
        # The folder itself is ".", and hidden by that: what is new in it is told by its own name.
        parts = os.path.relpath(path, self.folder).split(os.sep)  # noqa: PTH206  Path has no part for "."
        return not any(part.startswith((".", "~$")) for part in parts)


def events_of_system(watched: WatchedFiles, stop: threading.Event, tick_s: float) -> Iterator[bool]:
    """Whether something has changed, again and again, as the operating system tells it.

    What changes between two steps is not lost: it is told by the next. A folder that goes away is waited for.

    Args:
        watched: What is to be watched.
        stop: Ends it, within a moment.
        tick_s: After so many seconds there is a step, though nothing has changed.

    Yields:
        At the first step, that watching has begun (False); whether anything that concerns the dataset has changed since
        the step before.

    Raises:
        MissingDependencyError: If watchfiles is not installed.
        DatasetPathError: If the system refuses to watch.
    """
    try:
        from watchfiles import watch
    except ModuleNotFoundError as exc:
        raise missing_package("Document.watch without poll_s", exc, "watch") from exc

    missed = False  # whether something may have changed while nobody watched
    while not stop.is_set():
        seen = _inodes(watched.places)
        if None in seen:
            yield not missed  # once: that it went away is a change, too
            missed = True
            stop.wait(tick_s)
            continue
        changes = watch(
            *watched.places,
            watch_filter=None,  # what it holds back, it does not step for
            step=round(1000 * min(_STEP_S, tick_s)),
            debounce=round(1000 * tick_s),
            rust_timeout=round(1000 * tick_s),
            yield_on_timeout=True,
            stop_event=stop,
            debug=False,
            raise_interrupt=False,
            force_polling=False,
            recursive=watched.folder is not None,
            ignore_permission_denied=True,
        )
        try:
            changed, missed = missed, True
            for paths in changes:
                yield changed or any(watched.concerns(path) for _, path in paths)
                changed = False
                if _inodes(watched.places) != seen:  # the system watches folders, not what has their names later
                    yield True
                    break
        except FileNotFoundError:  # gone since it was looked for
            stop.wait(tick_s)
        except (OSError, RuntimeError) as exc:
            msg = (
                f"{', '.join(watched.places)} cannot be watched ({exc}). Raise the system's limit of watched files "
                "(on Linux fs.inotify.max_user_watches), or pass poll_s=, which looks by itself."
            )
            raise DatasetPathError(msg) from exc
        finally:
            changes.close()


def events_by_looking(
    dataset: Dataset, watched: WatchedFiles, stop: threading.Event, tick_s: float, poll_s: float
) -> Iterator[bool]:
    """The same, found by listing all files every so often: for network folders, whose systems tell of no event.

    It looks by the same signatures as a sync does, and follows links. A file counts as changed once more when its
    modification is two seconds old: before that, another one may have left the same signature.

    Args:
        dataset: Its files are listed.
        watched: Which of them concern it.
        stop: Ends it.
        tick_s: Seconds from step to step, at most.
        poll_s: Seconds from look to look.
    """
    seen = _look(dataset, watched)
    yield False
    left_s = poll_s
    while not stop.wait(min(tick_s, left_s)):
        left_s -= min(tick_s, left_s)
        if left_s > 0:
            yield False
            continue
        before, seen = seen, _look(dataset, watched)
        left_s = poll_s
        yield seen != before


def _inodes(places: tuple[str, ...]) -> list[tuple[int, int] | None]:
    """Which folders these are now; None for one that is not there."""
    found: list[tuple[int, int] | None] = []
    for place in places:
        try:
            status = os.stat(place)  # noqa: PTH116  many times a second
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    return found


def _look(dataset: Dataset, watched: WatchedFiles) -> dict[str, tuple[Signature | None, bool]] | None:
    """Every file's signature, and whether it can be trusted; None if the folder cannot be listed."""
    try:
        listing = dataset.list_files()
    except DatasetPathError:
        return None
    return {
        os.fspath(file.place): (
            file.signature,
            file.signature is not None and listing.seen_ns - file.signature.mtime_ns >= _SETTLED_NS,
        )
        for file in listing.found
        if not (watched.store and os.path.realpath(file.place).startswith(watched.store))
    }
