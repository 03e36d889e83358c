"""Results and progress of ingestion, and its options; problems that `Maintenance.verify` finds."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

from lazyrag.data.segment import Segment
from lazyrag.errors import IngestionError, IngestionWarning, NoReaderError, sentence, warn_user
from lazyrag.groups.node_group import Step
from lazyrag.ingest.load_files import Readers
from lazyrag.loaders.base import DEFAULT_LIMITS, LoadLimits
from lazyrag.progress.calls import raise_if_canceled
from lazyrag.stores.protocol import VectorRow
from lazyrag.types import PathReasons


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed step of one document.

    Args:
        path: The file's path relative to the dataset, or the user's id.
        stage: ``"load"``, ``"metadata"``, ``"transform <group>"``,
            ``"embed <group> with <embed key>"`` or ``"index <group> with <analyser>"``.
        error: The exception; failures of the same path and stage are equal.
    """

    path: str
    stage: str
    error: Exception = field(compare=False)

    def __str__(self) -> str:
        return f"{self.path} ({self.stage}): {self.error}"


_USUAL = {"hidden", "lock file of an office program"}
_EXPECTED = {"bytes", "date"}  # reasons of updated and touched files
# of a report as text
_MAX_LINES = 4
_MAX_MESSAGE = 240
_COUNTED = ("updated", "touched", "moved", "deleted", "withheld", "repaired", "unchanged")


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Result of ingestion for every file.

    Args:
        added: Files that were loaded for the first time, by path relative to the dataset.
        failed: Failures in order of path, then stage. A file whose transform failed may be in
            ``added`` as well; the previous version of a failed file stays live.
        skipped: Pairs (path, reason) of files that are not ingested, and have not failed: hidden,
            excluded, empty, of an unknown binary format, or a picture, sound or film without a
            media reader.
        updated: Files with changed content or metadata.
        touched: Files with the same content and other dates, which their documents have now.
        unchanged: Files for which nothing had to be done.
        deleted: Missing files, whose documents were deleted.
        moved: Pairs (from, to) of files with the same content at another path.
        withheld: Missing files, so many at once that their documents are kept until
            ``sync(max_deleted=1)``.
        repaired: Groups (``"line"``) and their vectors (``"line by dense"``) that a store on this
            machine had lost or could not read, and that were rebuilt from files, nodes and cached
            embeddings.
        reasons: Why known files were done again, by path: ``"bytes"``, ``"date"``, ``"metadata"``,
            ``"reader"``, ``"incomplete"`` (it failed, or a group, an index or a store lacks it),
            ``"asked for"``.
        rebuilt: Why groups and indexes were built for every file, by step:
            ``"code of function f"``, ``"parameter p: 1 -> 2"``, ``"model a -> b"``, ``"missing"``,
            ``"asked for"``.
        notes: What loaders noted of files that were read, by path:
            ``"encoding: guessed cp1251, confidence 0.48"``, ``"PGP message left out"``.

    Example:
        >>> print(IngestReport(added=("tea.txt",), skipped=((".git", "hidden"),)))
        1 added, 0 failed, 1 skipped
    """

    added: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    skipped: PathReasons = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)
    rebuilt: Mapping[str, str] = field(default_factory=dict, compare=False)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        """At most thirteen lines: counts, a note of a file, why files are skipped, the first
        failures.
        """
        lists = {name: len(getattr(self, name)) for name in _COUNTED}
        counts = [
            f"{len(self.added)} added",
            *(f"{count} {name}" for name, count in lists.items() if count),
            f"{len(self.failed)} failed",
            f"{len(self.skipped)} skipped",
        ]
        lines = [", ".join(counts)]
        again = self._again()
        if again:
            lines.append(f"  {_shortened(f'again: {again}')}")
        if self.notes:
            path, notes = next(iter(self.notes.items()))
            text = f"{len(self.notes)} noted: {path} ({'; '.join(notes)})"
            lines.append(f"  {_shortened(text)}")
        reasons = Counter(reason for _, reason in self.skipped)
        if set(reasons) - _USUAL or not (self.added or any(lists.values())):
            lines += _first(
                f"  {count} skipped: {reason}" for reason, count in reasons.most_common()
            )
        alike: dict[tuple[str, str], list[str]] = {}
        for failure in self.failed:
            alike.setdefault((failure.stage, str(failure.error)), []).append(failure.path)
        return "\n".join([*lines, *_first(itertools.starmap(_describe_alike, alike.items()))])

    def _again(self) -> str:
        """Why files and steps were done again; "" for the usual reasons."""
        counts = Counter(self.reasons.values())
        rebuilt = [(step, reason) for step, reason in self.rebuilt.items() if reason != "missing"]
        if not rebuilt and counts.keys() <= _EXPECTED:
            return ""
        first_steps = {reason: step for step, reason in reversed(rebuilt)}
        again = [f"{count} {reason}" for reason, count in counts.most_common()]
        again += [f"{step} ({reason})" for reason, step in reversed(first_steps.items())]
        return ", ".join(again)

    def __repr__(self) -> str:
        return f"<IngestReport: {str(self).splitlines()[0]}>"

    def _repr_html_(self) -> str:
        from lazyrag.data.notebook import lines_html

        first, *others = str(self).splitlines()
        return lines_html(first, others)


def _shortened(text: str) -> str:
    return textwrap.shorten(text, _MAX_MESSAGE, placeholder=" ...")


def _first(lines: Iterable[str]) -> list[str]:
    """The first few lines, and the number of the others."""
    listed = list(lines)
    more = len(listed) - _MAX_LINES
    if more <= 1:
        return listed
    return [*listed[:_MAX_LINES], f"  and {more} more kinds, see the report's lists"]


def _describe_alike(step: tuple[str, str], paths: list[str]) -> str:
    stage, message = step
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"  failed: {paths[0]}{others} ({stage}): {_shortened(message)}"


class Failures:
    """Failures in this process that were not retried yet.

    Args:
        where: The Document, as messages name it.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._by_step: dict[tuple[Step, str], Failure] = {}  # by step and the document's identity
        self._new: dict[Step, list[Failure]] = {}
        self.misnamed: dict[str, Failure] = {}  # keys of file_metadata that match no file

    def __iter__(self) -> Iterator[Failure]:
        failed = [failure for failure in self._by_step.values() if not is_skip(failure)]
        return iter([*failed, *self.misnamed.values()])

    def items(self) -> list[tuple[Step, str, Exception]]:
        """Return the step, the document's identity and the error of each, with skipped files."""
        return [(step, name, failure.error) for (step, name), failure in self._by_step.items()]

    def skipped(self) -> list[tuple[str, str]]:
        """Return pairs (path, reason) of files without text, or that nothing reads: they have not
        failed.
        """
        failures = {failure.path: failure for failure in self._by_step.values()}
        return skip_reasons(failures.values())

    def add(self, step: Step, identity: str, error: Exception) -> None:
        """Add a failure."""
        failure = self._by_step[step, identity] = Failure(identity, str(step), error)
        self._new.setdefault(step, []).append(failure)

    def has(self, steps: Collection[Step], identity: str) -> bool:
        """Whether a document failed in one of the steps."""
        return any((step, identity) in self._by_step for step in steps)

    def steps(self) -> set[Step]:
        """Return the steps with failures."""
        return {step for step, _ in self._by_step}

    def forget(self, is_obsolete: Callable[[Step, str], bool]) -> None:
        """Remove failures that are retried or obsolete."""
        self._by_step = {
            key: failure for key, failure in self._by_step.items() if not is_obsolete(*key)
        }

    def warn_or_raise(
        self, step: Step, count_done: Callable[[Collection[str] | None], int]
    ) -> None:
        """Warn of new failures in a step; raise if it succeeded for no document.

        Args:
            step: The step.
            count_done: Counts the documents for which it succeeded, now or for an earlier version:
                those of some identities, or all.

        Raises:
            IngestionError: If every document failed.
        """
        failed = [failure for (at, _), failure in self._by_step.items() if at == step]
        new = self._new.pop(step, [])
        if not (failed or new):
            return
        done = count_done(None)
        names = {failure.path for failure in failed}
        total = done + len(names) - count_done(names)
        if not done and not all(map(is_skip, failed)):
            self._raise_all_failed(step, failed)
        new_failures = [failure for failure in new if not is_skip(failure)]
        skips = skip_reasons(new)
        skipped = ""
        if skips:
            path, reason = skips[0]
            skipped = f"Skipped {len(skips)} of {total} files; the first is {path}: {reason}."
        if new_failures:
            others = "the others were ingested"
            if len(new_failures) == total:
                others = "their earlier versions stay"
            msg = (
                f"{len(new_failures)} of {total} files failed to {step}; {others}."
                f" The first: {new_failures[0]} ({self.where}: last_report lists all failures,"
                " sync() retries them)"
            )
            warn_user(f"{msg} {skipped}" if skips else msg, IngestionWarning)
        elif skips:
            warn_user(f"{skipped} ({self.where})", IngestionWarning)

    def _raise_all_failed(self, step: Step, failed: Sequence[Failure]) -> NoReturn:
        first = f"The only file failed to {step}:"
        if len(failed) > 1:
            first = f"All {len(failed)} files failed to {step}. The first:"
        hint = f"Fix the cause, then call sync(). ({self.where})"
        raise IngestionError(f"{first} {sentence(failed[0])} {hint}") from failed[0].error


def is_skip(failure: Failure) -> bool:
    """Whether a file has not failed: it has no text, or nothing reads it."""
    return isinstance(failure.error, NoReaderError)


def skip_reasons(failures: Iterable[Failure]) -> list[tuple[str, str]]:
    """Return pairs (path, reason) of files without text, or that nothing reads."""
    return [
        (failure.path, failure.error.reason)
        for failure in failures
        if isinstance(failure.error, NoReaderError)
    ]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of ingestion.

    Args:
        workers: Threads that call loaders and transforms; 1 for none.
        processes: Processes that load files whose loaders can be imported; 0 for none.
        keep_versions: Number of earlier versions of a document that are stored.
        grace_s: How long dead rows stay in the stores for running queries.
        read_only: Whether nothing may be written.
        limits: Limits of loading one file.
        readers: The user's readers by file name.
        launcher: The `lazyrag.launchers.work.Launcher` that loads, transforms and embeds elsewhere;
            None for none.
        writers: The `lazyrag.launchers.workers.Workers` that write the stores; None for none.
    """

    workers: int = 1
    processes: int = 0
    keep_versions: int = 0
    grace_s: float = 0.0
    read_only: bool = False
    limits: LoadLimits = DEFAULT_LIMITS
    readers: Readers = field(default_factory=Readers)
    launcher: Any = None
    writers: Any = None


ProblemKind: TypeAlias = Literal["missing", "orphan", "stale", "dimension", "dangling", "damaged"]
"""Kinds of problems:

- ``missing``: in the ledger, and not in the store or the index;
- ``orphan``: in a store, and unknown to the ledger;
- ``stale``: not made from its present parents;
- ``dimension``: a vector with another length or kind than its collection's, or with a number that
  is not finite;
- ``dangling``: its parent or document is not live;
- ``damaged``: unreadable, or not what was written.
"""

R = TypeVar("R", Segment, VectorRow)

_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference between the ledger and the stores.

    Args:
        kind: The kind, see `ProblemKind`.
        where: The group, and the index over it if the problem is there.
        document: The document; "" if unknown.
        what: Details for people.
    """

    kind: ProblemKind
    where: str
    document: str
    what: str

    def __str__(self) -> str:
        document = f", {self.document}" if self.document else ""
        return f"{self.kind}: {self.where}{document}: {self.what}"


@dataclass(slots=True)
class Findings:
    """Problems, and what has to be rebuilt or deleted to fix them.

    Args:
        problems: For people.
        builds: Live builds that are wrong, with everything made from them.
        uncovered: Pairs (index, build) that an index does not contain as it should.
        parts: Unusable parts of lexical indexes.
        indexes: Unusable collections of vectors, by the index's row.
        segment_orphans: Keys by collection of segments.
        vector_orphans: Keys by collection of vectors.
        has_miscounts: Whether what the ledger counts differs from what is live.
    """

    problems: list[Problem] = field(default_factory=list)
    builds: set[int] = field(default_factory=set)
    uncovered: set[tuple[int, int]] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    indexes: dict[int, str] = field(default_factory=dict)
    segment_orphans: dict[str, list[str]] = field(default_factory=dict)
    vector_orphans: dict[str, list[str]] = field(default_factory=dict)
    has_miscounts: bool = False

    def add(self, kind: ProblemKind, where: str, document: str, details: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(kind, where, document, details))


def pages(scan: Callable[..., list[R]]) -> Iterator[list[R]]:
    """Yield all rows of a collection in pages."""
    after = ""
    while page := scan(after=after, limit=_PAGE):
        raise_if_canceled()
        yield page
        if len(page) < _PAGE:
            return
        after = page[-1].key
