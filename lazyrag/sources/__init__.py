"""Sources: databases, HTTP APIs, Notion and websites, as files of a folder that a Document
reads.
"""

from lazyrag.sources.base import (
    CutShort,
    FailedItem,
    FetchReport,
    LoadedItem,
    Source,
    SourceItem,
    fetch,
    metadata_of,
)
from lazyrag.sources.database import DatabaseSource
from lazyrag.sources.extract import ExtractSetting, extract
from lazyrag.sources.http_records import (
    Cursor,
    HttpRecordsSource,
    LinkHeader,
    NextLink,
    Offset,
    PageNumber,
)
from lazyrag.sources.notion import NotionSource
from lazyrag.sources.web import WebsiteSource

__all__ = [
    "Cursor",
    "CutShort",
    "DatabaseSource",
    "ExtractSetting",
    "FailedItem",
    "FetchReport",
    "HttpRecordsSource",
    "LinkHeader",
    "LoadedItem",
    "NextLink",
    "NotionSource",
    "Offset",
    "PageNumber",
    "Source",
    "SourceItem",
    "WebsiteSource",
    "extract",
    "fetch",
    "metadata_of",
]
