"""Documents: collections of files as trees of node groups, kept in sync with their files and stores.

Read it in this order. `document` is the class that users hold. Writing: `sync` compares the files (`changes`) with the
`ledger`, `ingest` loads (`load_files`), transforms and embeds documents batch by batch, and the ledger makes each of
them live; `indexer` builds what a query needs for the first time. `groups` and `fingerprint` tell definitions apart.
Reading: `reader` and `snapshot`. Maintenance: `verify`, `export`, `migration`, `watch`; results are in `report`.
"""

from lazyrag.document.document import Document
from lazyrag.document.migration import Migration, migrate
from lazyrag.document.report import Failure, IngestReport, Problem, Progress
from lazyrag.document.sync import DocumentVersion, PlannedStep, SyncPlan
from lazyrag.document.verify import DocumentStatus, GroupStatus
from lazyrag.document.watch import Watcher

__all__ = [
    "Document",
    "DocumentStatus",
    "DocumentVersion",
    "Failure",
    "GroupStatus",
    "IngestReport",
    "Migration",
    "PlannedStep",
    "Problem",
    "Progress",
    "SyncPlan",
    "Watcher",
    "migrate",
]
