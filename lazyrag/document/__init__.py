"""Documents: collections of files as trees of node groups, kept in sync with their files and stores.

Read it in this order. `document` is the class that users hold. Writing: `sync` compares the files (`changes`) with the
`ledger`, `ingest` loads (`load_files`), transforms and embeds documents batch by batch, and the ledger makes each of
them live; `indexer` builds what a query needs for the first time. `groups` and `fingerprint` compare definitions.
Reading: `reader` and `snapshot`. Maintenance: `verify`, `export`, `migration`, `watch`, `jobs`;
results are in `report`.
"""

from lazyrag._exports import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.data.encoding": "ErrorInfo",
        "lazyrag.document.catalogue": "ChangedText DocumentInfo TextMatch VersionDiff",
        "lazyrag.document.certificate": "CheckedPlace DeletionCertificate",
        "lazyrag.document.document": "Document",
        "lazyrag.document.format_report": "PlannedFormat",
        "lazyrag.document.jobs": "Job Jobs ModelChange Worker change_model",
        "lazyrag.document.marks": "Marks PageBox",
        "lazyrag.document.migration": "Migration migrate",
        "lazyrag.document.report": "Failure IngestReport Problem Progress",
        "lazyrag.document.sync": "DocumentVersion GroupDiff PlannedStep SyncPlan",
        "lazyrag.document.tables": "SqlRow Table TableLocation",
        "lazyrag.document.verify": "DocumentStatus GroupStatus",
        "lazyrag.document.watch": "Watcher",
    },
)
