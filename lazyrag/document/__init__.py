"""Documents: collections of files as trees of node groups, and what they report."""

from lazyrag.document.document import Document
from lazyrag.document.findings import Problem
from lazyrag.document.plan import Plan, PlannedStep
from lazyrag.document.progress import Progress
from lazyrag.document.report import Failure, IngestReport
from lazyrag.document.status import DocumentStatus, GroupStatus
from lazyrag.document.versions import DocumentVersion

__all__ = [
    "Document",
    "DocumentStatus",
    "DocumentVersion",
    "Failure",
    "GroupStatus",
    "IngestReport",
    "Plan",
    "PlannedStep",
    "Problem",
    "Progress",
]
