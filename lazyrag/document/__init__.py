"""Documents: collections of files as trees of node groups, kept in sync with their files and
stores.

`document` is the class that users hold. What it does is in the packages below: `lazyrag.ingest`
compares, loads, transforms and embeds files, `lazyrag.ledger` makes them live, `lazyrag.groups`
compares definitions, `lazyrag.read` reads, and `lazyrag.maintain` copies.
"""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.data.encoding": "ErrorInfo",
        "lazyrag.read.catalogue": "ChangedText DocumentInfo VersionDiff",
        "lazyrag.read.explore": "TextMatch",
        "lazyrag.maintain.certificate": "CheckedPlace DeletionCertificate",
        "lazyrag.document.collect": "CollectedItem CollectedPage",
        "lazyrag.document.document": "Document",
        "lazyrag.document.maintenance": "Maintenance",
        "lazyrag.document.versions": "Versions",
        "lazyrag.ingest.dataset": "FileSelection",
        "lazyrag.ingest.dry_run": "PlannedFormat",
        "lazyrag.read.page_marks": "Marks PageBox",
        "lazyrag.maintain.migration": "Migration migrate",
        "lazyrag.progress.calls": "Progress",
        "lazyrag.ingest.report": "Failure IngestReport Problem",
        "lazyrag.read.versions": "DocumentVersion",
        "lazyrag.ingest.sync": "GroupDiff PlannedStep SyncPlan",
        "lazyrag.document.tables": "SqlRow Table TableLocation Tables",
        "lazyrag.ingest.verify": "DocumentStatus GroupStatus",
        "lazyrag.ingest.watch": "Watcher",
    },
)
