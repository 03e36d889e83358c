"""A pytest plugin: store files lie in PostgreSQL, each in a schema of its own, so that suites of
SQLite run on it.

LAZYRAG_POSTGRES=postgresql://user@host/database pytest -p tests.postgres_stores
tests/unit/ledger/test_lease.py
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lazyrag.storage.database import is_server
from lazyrag.stores.sqlite import StoreFile

open_file = StoreFile.__init__
_urls: dict[Path, str] = {}
"""By where the local copies are."""


def url_of(path: str | os.PathLike[str]) -> str:
    """The URL of the store that stands for a file."""
    schema = "t" + hashlib.sha256(os.fsencode(Path(path).absolute())).hexdigest()[:20]
    url = os.environ["LAZYRAG_POSTGRES"]
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


def _open_on_server(self: StoreFile, path: Any, **keywords: Any) -> None:
    url = path if path is None or is_server(path) else _urls.get(path) or url_of(path)
    open_file(self, url, **keywords)
    if url is not None:
        _urls[self.path] = url


@pytest.fixture(scope="session", autouse=True)
def copies_of_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Local copies in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(StoreFile, "__init__", _open_on_server)
        yield
