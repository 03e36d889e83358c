"""What ingestion did, file by file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from lazyrag.data.segment import Segment
from lazyrag.document.groups import Step
from lazyrag.document.load_files import Readers
from lazyrag.errors import IngestionError, IngestionWarning, LazyRAGError, NoReaderError, sentence, warn_user
from lazyrag.loaders.base import DEFAULT_LIMITS, LoadLimits
from lazyrag.stores.protocol import VectorRow

if TYPE_CHECKING:
    from typing import Self


ProblemKind: TypeAlias = Literal["missing", "orphan", "stale", "dimension", "dangling", "damaged"]
"""What can be wrong:

- ``missing``: the ledger lists it, and the store or the index does not hold it;
- ``orphan``: a store holds it, and the ledger knows nothing of it;
- ``stale``: it was not made of what stands above it now;
- ``dimension``: a vector of another length or kind than its collection's, or with a number that is not finite;
- ``dangling``: it names a parent or a document that is not live;
- ``damaged``: it cannot be read, or is not what was written.
"""

R = TypeVar("R", Segment, VectorRow)

_PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as the ledger says.

    Args:
        kind: What is wrong, see `ProblemKind`.
        where: The group, and the index over it if it is that.
        document: The document; "" where it is not known.
        what: The rest, for people.
    """

    kind: ProblemKind
    where: str
    document: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}{', ' + self.document if self.document else ''}: {self.what}"


@dataclass(slots=True)
class Findings:
    """What is wrong, and what has to be made anew for it.

    Args:
        problems: For people.
        builds: Live builds that are not what they should be, with all that was made of them.
        uncovered: Pairs (space, build) that a space does not hold as it should.
        parts: Parts of lexical indexes that cannot be used.
        spaces: Collections of vectors that cannot be used, by the space's row.
        segment_orphans: Keys by collection of segments.
        vector_orphans: Keys by collection of vectors.
    """

    problems: list[Problem] = field(default_factory=list)
    builds: set[int] = field(default_factory=set)
    uncovered: set[tuple[int, int]] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    spaces: dict[int, str] = field(default_factory=dict)
    segment_orphans: dict[str, list[str]] = field(default_factory=dict)
    vector_orphans: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: ProblemKind, where: str, document: str, what: str) -> None:
        """Enter a problem."""
        self.problems.append(Problem(kind, where, document, what))


def pages(scan: Callable[..., list[R]]) -> Iterator[list[R]]:
    """All rows of a collection, in pages."""
    after = ""
    while True:
        page = scan(after=after, limit=_PAGE)
        if page:
            yield page
            after = page[-1].key
        if len(page) < _PAGE:
            return


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a piece of work is.

    Args:
        what: The work: ``"sync"``, ``"transform <group>"``, ``"embed <group> with <embed key>"``,
            ``"copy <group>"``, ...
        step: What was done last.
        done: For how many documents all is done; a document in the making counts by its steps. Of a copy: rows.
        total: How many documents, or rows, there are.
    """

    what: str
    step: str
    done: float
    total: int


OnProgress: TypeAlias = Callable[[Progress], None]
"""Called in the thread that ingests, often: it should take no time. What it raises stops the work."""


class ProgressMeter:
    """Tells how far a piece of work is.

    Args:
        what: The work.
        total: How many documents there are.
        steps: How many steps each of them takes, at most.
        on_progress: Told of every step; None for nobody.
        unit: What is counted.
    """

    def __init__(
        self, what: str, total: int, steps: int, on_progress: OnProgress | None, *, unit: str = "file"
    ) -> None:
        from tqdm import tqdm  # a tenth of the time that importing all of this package takes

        self._what = what
        self._total = total
        self._share = 1.0 / max(1, steps)
        self._on_progress = on_progress
        self._done = 0.0
        # For what takes longer than two seconds, where someone is watching.
        self._bar = tqdm(total=total, desc=what, unit=unit, delay=2, leave=False, disable=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    def tick(self, step: Step) -> None:
        """One document has taken one step."""
        self._tell(str(step), min(self._total, self._done + self._share))

    def reach(self, done: int) -> None:
        """So many documents are done with all steps, and live."""
        self._tell(self._what, done)

    def _tell(self, step: str, done: float) -> None:
        self._bar.update(done - self._done)
        self._done = done
        if self._on_progress is not None:
            self._on_progress(Progress(self._what, step, done, self._total))


@dataclass(frozen=True, slots=True)
class Options:
    """How a Document ingests.

    Args:
        workers: Threads that call loaders and transforms; 1: none.
        processes: Processes that load files, as far as their loaders can be imported; 0: none.
        keep_versions: Versions of a document before the live one that are kept.
        grace_s: How long what is live no more stays for those who are reading it.
        read_only: Whether nothing is to be written.
        on_progress: Told how far ingestion is.
        limits: What one file may take while it is loaded.
        readers: What reads files of certain names.
    """

    workers: int = 1
    processes: int = 0
    keep_versions: int = 0
    grace_s: float = 0.0
    read_only: bool = False
    on_progress: OnProgress | None = None
    limits: LoadLimits = DEFAULT_LIMITS
    readers: Readers = field(default_factory=Readers)


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that could not be ingested.

    Args:
        path: The file's path relative to the dataset, or the id a user gave.
        stage: ``"load"``, ``"metadata"``, ``"transform <group>"``, ``"embed <group> with <embed key>"`` or
            ``"index <group> with <analyser>"``.
        error: What was raised.
    """

    path: str
    stage: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.path} ({self.stage}): {self.error}"


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of every file.

    Args:
        added: Files that were loaded for the first time, by path relative to the dataset.
        failed: What failed, in order of path, then stage. A file whose transform failed may stand in ``added`` as well;
            one that was there before and failed stays as it was.
        skipped: Pairs (path, reason) of what was passed over on purpose, such as hidden files.
        updated: Files whose content or metadata is another now.
        unchanged: Files for which nothing had to be done.
        deleted: Files that are gone, and their documents with them.
        moved: Pairs (from, to) of files that have the same content elsewhere.
        withheld: Files that are gone, so many at once that their documents stay until ``sync(max_deleted=1)``.

    Example:
        >>> print(IngestReport(added=("tea.txt",), skipped=((".git", "hidden"),)))
        1 added, 0 failed, 1 skipped
    """

    added: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    withheld: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = [f"{len(self.added)} added"]
        others = {name: len(getattr(self, name)) for name in ("updated", "moved", "deleted", "withheld", "unchanged")}
        told += [f"{count} {name}" for name, count in others.items() if count]
        counts = ", ".join([*told, f"{len(self.failed)} failed", f"{len(self.skipped)} skipped"])
        return "\n".join([counts, *(f"  failed: {failure}" for failure in self.failed)])


class Failures:
    """What failed in this process, until it is tried again.

    Args:
        where: The Document, as messages name it.
    """

    def __init__(self, where: Callable[[], str]) -> None:
        self._where = where
        self._by_step: dict[tuple[Step, str], Failure] = {}  # by step and the document's identity
        self._new: dict[Step, list[Failure]] = {}
        self.misnamed: dict[str, Failure] = {}  # keys of file_metadata that name no file

    def __iter__(self) -> Iterator[Failure]:
        return iter([*self._by_step.values(), *self.misnamed.values()])

    def add(self, step: Step, identity: str, error: LazyRAGError) -> Failure:
        """Enter a failure."""
        failure = Failure(identity, str(step), error)
        self._by_step[step, identity] = failure
        self._new.setdefault(step, []).append(failure)
        return failure

    def has(self, steps: Collection[Step], identity: str) -> bool:
        """Whether a document failed in one of some steps."""
        return any((step, identity) in self._by_step for step in steps)

    def steps(self) -> set[Step]:
        """The steps in which something failed."""
        return {step for step, _ in self._by_step}

    def of_step(self, step: Step) -> list[Failure]:
        """What failed in a step."""
        return [failure for (at, _), failure in self._by_step.items() if at == step]

    def forget(self, wanted: Callable[[Step, str], bool]) -> None:
        """Forget what is to be tried again, or does not count any more."""
        self._by_step = {at: failure for at, failure in self._by_step.items() if not wanted(*at)}

    def check(self, step: Step, done: int) -> None:
        """Warn of what has failed in a step since the last check; raise if nothing at all was done in it.

        Args:
            step: What was done.
            done: For how many documents it is done.

        Raises:
            IngestionError: If every document failed.
        """
        failed = self.of_step(step)
        new = self._new.pop(step, [])
        total = done + len(failed)
        if failed and not done:
            msg = (
                f"All {total} files failed to {step}, so there is nothing to answer from. The first: "
                f"{sentence(failed[0])} Mend the cause, then call retry_failed(). ({self._where()})"
            )
            raise IngestionError(msg) from failed[0].error
        without_text = [failure for failure in new if isinstance(failure.error, NoReaderError)]
        new = [failure for failure in new if not isinstance(failure.error, NoReaderError)]
        aside = f"{len(without_text)} of {total} files are pictures, sound or films, and are left out."
        if new:
            msg = (
                f"{len(new)} of {total} files failed to {step}; the others are in. The first: {new[0]} "
                f"({self._where()}: last_report names them all, retry_failed() tries them again)"
            )
            warn_user(f"{msg} {aside}" if without_text else msg, IngestionWarning)
        elif without_text:  # nobody's mistake
            warn_user(f"{aside} The first: {without_text[0]} ({self._where()})", IngestionWarning)
