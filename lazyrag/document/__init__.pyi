# The names of the package, for type checkers and editors.

from lazyrag.data.encoding import ErrorInfo as ErrorInfo
from lazyrag.document.catalogue import ChangedText as ChangedText
from lazyrag.document.catalogue import DocumentInfo as DocumentInfo
from lazyrag.document.catalogue import TextMatch as TextMatch
from lazyrag.document.catalogue import VersionDiff as VersionDiff
from lazyrag.document.certificate import CheckedPlace as CheckedPlace
from lazyrag.document.certificate import DeletionCertificate as DeletionCertificate
from lazyrag.document.document import Document as Document
from lazyrag.document.jobs import Job as Job
from lazyrag.document.jobs import Jobs as Jobs
from lazyrag.document.jobs import Worker as Worker
from lazyrag.document.marks import Marks as Marks
from lazyrag.document.marks import PageBox as PageBox
from lazyrag.document.migration import Migration as Migration
from lazyrag.document.migration import migrate as migrate
from lazyrag.document.report import Failure as Failure
from lazyrag.document.report import IngestReport as IngestReport
from lazyrag.document.report import Problem as Problem
from lazyrag.document.report import Progress as Progress
from lazyrag.document.sync import DocumentVersion as DocumentVersion
from lazyrag.document.sync import GroupDiff as GroupDiff
from lazyrag.document.sync import PlannedStep as PlannedStep
from lazyrag.document.sync import SyncPlan as SyncPlan
from lazyrag.document.verify import DocumentStatus as DocumentStatus
from lazyrag.document.verify import GroupStatus as GroupStatus
from lazyrag.document.watch import Watcher as Watcher
