"""How a Document ingests."""

from __future__ import annotations

from dataclasses import dataclass, field

from lazyrag.document.progress import OnProgress
from lazyrag.document.readers import Readers
from lazyrag.loaders.limits import DEFAULT_LIMITS, LoadLimits


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
