"""What ingestion did, file by file."""

from __future__ import annotations

from dataclasses import dataclass


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
