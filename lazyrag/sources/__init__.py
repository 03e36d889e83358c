"""Sources: databases, HTTP APIs, Notion and websites, as files of a folder that a Document reads."""

from lazyrag.sources.database import DatabaseSource
from lazyrag.sources.extract import ExtractSetting, extract
from lazyrag.sources.folder import FetchReport, fetch
from lazyrag.sources.http_records import HttpRecordsSource
from lazyrag.sources.items import CutShort, FailedItem, LoadedItem, Source, SourceItem
from lazyrag.sources.manifest import metadata_of
from lazyrag.sources.notion import NotionSource
from lazyrag.sources.paging import Cursor, LinkHeader, NextLink, Offset, PageNumber
from lazyrag.sources.website import WebsiteSource

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
