"""Documents: collections of files as trees of node groups, kept in step with their files and stores.

`document`, `navigation` and `maintenance` are what users hold: one defines, one goes through the tree, one looks
after the store. A question goes through `reader`, `relatives` and `consistency` to a view of the tree (`views`,
`nodes`), windows of neighbours through `windows`; what is not there yet, `builder`
builds. What is to be built is told by `definitions` (what the user defined), `ledger` (what is live) and `targets`
(the difference). Building goes from `sync`, `upkeep` or `builder` through `bringing` (all documents) to `ingestion`
and `indexing` (one batch), and carries each document in a `work`; `purge` removes what is live no more. `verify`,
`repair`, `versions`, `transfer` and `dump` look at all of it, and `migration` copies it to other stores. `watching`
asks for a sync where `file_events` tells that files have changed.
"""

from lazyrag.document.document import Document
from lazyrag.document.migration import Migration, migrate
from lazyrag.document.report import Failure, IngestReport, Problem, Progress
from lazyrag.document.sync import DocumentVersion, Plan, PlannedStep
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
    "Plan",
    "PlannedStep",
    "Problem",
    "Progress",
    "Watcher",
    "migrate",
]
