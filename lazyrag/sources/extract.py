"""`ExtractSetting` of specification 004, and `extract`."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Unpack

from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders import load_file
from lazyrag.sources.base import LoadedItem
from lazyrag.sources.http import WebOptions
from lazyrag.sources.notion import NotionSource
from lazyrag.sources.web import WebsiteSource
from lazyrag.validation import (
    known_arguments,
    require,
    validate_choice,
    validate_mapping,
    validate_text,
)

_REQUIRED = {"upload_file": "upload_file", "notion_import": "notion_info", "website_crawl": "url"}
_NOTION_KINDS = {"page": "pages", "database": "databases", "data_source": "data_sources"}
_NOTION_KEYS = (
    "notion_access_token notion_obj_id notion_page_type notion_workspace_id credential_id tenant_id"
    " base_url".split()
)
_UNSAFE = re.compile(r"[^\w.-]")


@known_arguments
@dataclass(frozen=True, slots=True)
class ExtractSetting:
    """What to extract, and from where (specification 004, section 2).

    Args:
        datasource_type: ``"upload_file"``, ``"notion_import"`` or ``"website_crawl"``.
        upload_file: For the first: a path; an object with ``filename`` or ``name``, and ``file`` or
            ``read()``; or, as in Dify, an object with ``key``, the file's key in the ``storage`` of
            `extract`, and optionally ``name``.
        notion_info: For the second: ``notion_access_token``, ``notion_obj_id`` and
            ``notion_page_type`` (``"page"``, ``"database"``), and ``base_url`` if it is not
            Notion's. It is not shown.
        document_model: The parser; only the default is available.
        url: For the third: the first page of the website.

    Raises:
        ConfigError: If the type is unknown, or its argument is missing. It is a ValueError.

    Example:
        >>> ExtractSetting("website_crawl")
        Traceback (most recent call last):
        ...
        lazyrag.errors.ConfigError: url is required for datasource_type 'website_crawl'
    """

    datasource_type: str
    upload_file: Any = None
    notion_info: Mapping[str, Any] | None = field(default=None, repr=False)
    document_model: str | None = "parse_by_server"
    url: str | None = None

    def __post_init__(self) -> None:
        needed = _REQUIRED[validate_choice("datasource_type", self.datasource_type, _REQUIRED)]
        if not getattr(self, needed):
            raise ConfigError(f"{needed} is required for datasource_type {self.datasource_type!r}")


def extract(
    setting: ExtractSetting, *, storage: Any = None, max_pages: int = 100, **web: Unpack[WebOptions]
) -> list[LoadedItem]:
    """Extract the texts of a setting. Pages that fail are skipped with a warning.

    To store them and follow changes, fill a folder with `lazyrag.sources.fetch` and make a Document
    of it.

    Args:
        setting: The setting.
        storage: For an uploaded file with a ``key``: an object whose ``load(key)`` returns its
            bytes.
        max_pages: Maximum of pages of Notion or a website.
        web: For Notion and websites, the keywords of `lazyrag.sources.http.WebClient`.

    Returns:
        The file as one item, identified by its name; or the pages in the order of their source.

    Raises:
        ConfigError: If the setting is invalid.
        LoadError: If the file, or the first page, cannot be read.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tea.txt")
        ...     _ = path.write_text("Sencha", encoding="utf-8")
        ...     [item] = extract(ExtractSetting("upload_file", upload_file=path))
        >>> item.identity, item.text
        ('tea.txt', 'Sencha')
    """
    require(isinstance(setting, ExtractSetting), "setting", type(setting), "an ExtractSetting")
    is_parsed_here = setting.document_model in (None, "", "parse_by_server")
    require(
        is_parsed_here,
        "document_model",
        setting.document_model,
        "'parse_by_server'",
        "Leave it out.",
    )
    if setting.datasource_type == "upload_file":
        return [_uploaded(setting.upload_file, storage)]
    if setting.datasource_type == "notion_import":
        return list(_notion(setting.notion_info, max_pages, web).load())
    return list(WebsiteSource(setting.url or "", max_pages=max_pages, **web).load())


def _uploaded(file: Any, storage: Any) -> LoadedItem:
    """Load a file of the disk, of a storage, or an upload of a web framework."""
    if isinstance(file, (str, os.PathLike)):
        loaded = load_file(Path(file).expanduser())
        return LoadedItem(Path(file).name, loaded.text, loaded.locations, loaded.metadata)
    stream = getattr(file, "file", file)  # Starlette's own read is a coroutine
    key = getattr(file, "key", None)
    filename = getattr(file, "filename", None) or getattr(file, "name", None) or key
    if isinstance(key, str) and not hasattr(stream, "read"):
        require(
            callable(getattr(storage, "load", None)),
            "storage",
            storage,
            "an object with load(key)",
            "Pass extract(setting, storage=...).",
        )
        stream = io.BytesIO(storage.load(key))
    is_upload = isinstance(filename, str) and callable(getattr(stream, "read", None))
    require(
        is_upload,
        "upload_file",
        type(file),
        "a path, or have filename or name and read(), or have key",
    )
    name = PurePath(str(filename).replace("\\", "/")).name  # some browsers send the complete path
    content = stream.read()
    require(
        isinstance(content, (bytes, bytearray)),
        "upload_file",
        type(content),
        "opened in binary mode",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(
            folder, "upload" + _UNSAFE.sub("_", "".join(PurePath(name).suffixes[-2:]))[-40:]
        )
        path.write_bytes(content)
        try:
            loaded = load_file(path)
        except LoadError as exc:
            raise LoadError(str(exc), path=name, loader=exc.loader) from exc
    return LoadedItem(name, loaded.text, loaded.locations, loaded.metadata)


def _notion(info: Any, max_pages: int, web: WebOptions) -> NotionSource:
    is_mapping = isinstance(info, Mapping)
    require(
        is_mapping,
        "notion_info",
        type(info),
        "a mapping with notion_access_token and notion_obj_id",
    )
    validate_mapping("notion_info", info, _NOTION_KEYS)
    kind = validate_choice("notion_page_type", info.get("notion_page_type", "page"), _NOTION_KINDS)
    named: dict[str, Any] = {
        _NOTION_KINDS[kind]: [validate_text("notion_obj_id", info.get("notion_obj_id"))]
    }
    base_url = info.get("base_url") or "https://api.notion.com"
    token = info.get("notion_access_token", "")
    return NotionSource(token, **named, base_url=base_url, max_pages=max_pages, **web)
