"""Specification 004's setting of what is extracted from where."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from lazyrag.errors import ConfigError, LoadError, known_names
from lazyrag.loaders import load_file
from lazyrag.sources.base import LoadedItem
from lazyrag.sources.notion import NotionSource
from lazyrag.sources.web import WebsiteSource
from lazyrag.validation import known_arguments

if TYPE_CHECKING:
    from typing import Unpack

    from lazyrag.sources.http import WebOptions

_REQUIRED = {"upload_file": "upload_file", "notion_import": "notion_info", "website_crawl": "url"}
_NOTION_KINDS = {"page": "pages", "database": "databases", "data_source": "data_sources"}
_NOTION_KEYS = frozenset(
    "notion_access_token notion_obj_id notion_page_type notion_workspace_id credential_id tenant_id base_url".split()
)
_UNSAFE = re.compile(r"[^\w.-]")
_PARSED_HERE = (None, "", "parse_by_server")


@known_arguments
@dataclass(frozen=True, slots=True)
class ExtractSetting:
    """What is to be extracted, and from where (specification 004, section 2).

    Args:
        datasource_type: ``"upload_file"``, ``"notion_import"`` or ``"website_crawl"``.
        upload_file: For the first: a path, or an object with ``filename`` or ``name``, and ``file`` or ``read()``.
        notion_info: For the second: ``notion_access_token``, ``notion_obj_id`` and ``notion_page_type`` (``"page"``,
            ``"database"``), and ``base_url`` where it is not Notion's. It is not shown.
        document_model: Who parses; this package does so by itself, which is the default.
        url: For the third: where the website begins.

    Raises:
        ConfigError: If the type is unknown, or what it needs is missing. It is a ValueError.

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
        if self.datasource_type not in _REQUIRED:
            known = known_names(str(self.datasource_type), _REQUIRED)
            msg = f"datasource_type is {self.datasource_type!r:.80}. {known}"
            raise ConfigError(msg)
        needed = _REQUIRED[self.datasource_type]
        if not getattr(self, needed):
            msg = f"{needed} is required for datasource_type {self.datasource_type!r}"
            raise ConfigError(msg)


def extract(setting: ExtractSetting, *, max_pages: int = 100, **web: Unpack[WebOptions]) -> list[LoadedItem]:
    """What a setting names, as text. Pages that fail are warned of, and passed over.

    To keep it, and to see changes, fill a folder from the source and make a Document of it: `lazyrag.sources.fetch`.

    Args:
        setting: The setting.
        max_pages: Pages of Notion or of a website at most.
        web: For Notion and websites, the keywords of `lazyrag.sources.http.WebClient`.

    Returns:
        The file as one item, known by its name; or the pages in the order of their source.

    Raises:
        ConfigError: If the setting is none, or holds what cannot be used.
        LoadError: If the file, or the first page, cannot be read.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tea.txt")
        ...     _ = path.write_text("Sencha", encoding="utf-8")
        ...     [item] = extract(ExtractSetting("upload_file", upload_file=path))
        >>> item.identity, item.text
        ('tea.txt', 'Sencha')
    """
    if not isinstance(setting, ExtractSetting):
        msg = f"setting is {type(setting).__name__}; give an ExtractSetting."
        raise ConfigError(msg)
    if setting.document_model not in _PARSED_HERE:
        msg = f"document_model is {setting.document_model!r:.80}; only 'parse_by_server' is there. Leave it out."
        raise ConfigError(msg)
    if setting.datasource_type == "upload_file":
        return [_uploaded(setting.upload_file)]
    if setting.datasource_type == "notion_import":
        return list(_notion(setting.notion_info, max_pages, web).load())
    return list(WebsiteSource(setting.url or "", max_pages=max_pages, **web).load())


def _uploaded(file: Any) -> LoadedItem:
    """A file that lies on the disk, or was handed over by a web framework."""
    if isinstance(file, (str, os.PathLike)):
        loaded = load_file(Path(file).expanduser())
        return LoadedItem(Path(file).name, loaded.text, loaded.places, loaded.metadata)
    held = getattr(file, "file", file)  # of Starlette's, whose own read is a coroutine
    told = getattr(file, "filename", None) or getattr(file, "name", None)
    if not isinstance(told, str) or not callable(getattr(held, "read", None)):
        msg = f"upload_file is {type(file).__name__}; give a path, or an object with filename or name and read()."
        raise ConfigError(msg)
    name = PurePath(told.replace("\\", "/")).name  # some browsers tell the whole path
    content = held.read()
    if not isinstance(content, (bytes, bytearray)):
        msg = f"upload_file gave {type(content).__name__}; open it in binary mode."
        raise ConfigError(msg)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "upload" + _UNSAFE.sub("_", "".join(PurePath(name).suffixes[-2:]))[-40:])
        path.write_bytes(content)
        try:
            loaded = load_file(path)
        except LoadError as exc:
            raise LoadError(str(exc), path=name, loader=exc.loader) from exc
    return LoadedItem(name, loaded.text, loaded.places, loaded.metadata)


def _notion(info: Any, max_pages: int, web: WebOptions) -> NotionSource:
    if not isinstance(info, Mapping):
        msg = f"notion_info is {type(info).__name__}; give a mapping with notion_access_token and notion_obj_id."
        raise ConfigError(msg)
    unknown = [name for name in info if name not in _NOTION_KEYS]
    if unknown:
        msg = f"notion_info has the key {unknown[0]!r:.80}. {known_names(str(unknown[0]), _NOTION_KEYS)}"
        raise ConfigError(msg)
    kind = info.get("notion_page_type", "page")
    if kind not in _NOTION_KINDS:
        msg = f"notion_page_type is {kind!r:.80}. {known_names(str(kind), _NOTION_KINDS)}"
        raise ConfigError(msg)
    thing = info.get("notion_obj_id")
    if not isinstance(thing, str) or not thing.strip():
        msg = f"notion_info has {thing!r:.80} as notion_obj_id; give the id or the URL of a page or database."
        raise ConfigError(msg)
    named = [thing]
    return NotionSource(
        info.get("notion_access_token", ""),
        pages=named if kind == "page" else (),
        databases=named if kind == "database" else (),
        data_sources=named if kind == "data_source" else (),
        base_url=info.get("base_url") or "https://api.notion.com",
        max_pages=max_pages,
        **web,
    )
