"""Documents: collections of files as trees of node groups, kept in sync with their files and stores.

Read it in this order. `document` is the class that users hold. Writing: `sync` compares the files (`changes`) with the
`ledger`, `ingest` loads (`load_files`), transforms and embeds documents batch by batch, and the ledger makes each of
them live; `indexer` builds what a query needs for the first time. `groups` and `fingerprint` compare definitions.
Reading: `reader` and `snapshot`. Maintenance: `verify`, `export`, `migration`, `watch`, `jobs`;
results are in `report`.
"""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.data.encoding": "ErrorInfo",
        "lazyrag.read.catalogue": "ChangedText DocumentInfo TextMatch VersionDiff",
        "lazyrag.maintain.certificate": "CheckedPlace DeletionCertificate",
        "lazyrag.document.document": "Document",
        "lazyrag.ingest.dry_run": "PlannedFormat",
        "lazyrag.read.marks": "Marks PageBox",
        "lazyrag.maintain.migration": "Migration migrate",
        "lazyrag.progress.calls": "Progress",
        "lazyrag.ingest.report": "Failure IngestReport Problem",
        "lazyrag.read.versions": "DocumentVersion",
        "lazyrag.ingest.sync": "GroupDiff PlannedStep SyncPlan",
        "lazyrag.document.tables": "SqlRow Table TableLocation",
        "lazyrag.ingest.verify": "DocumentStatus GroupStatus",
        "lazyrag.ingest.watch": "Watcher",
    },
)
