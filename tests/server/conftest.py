"""A service over a real Document in a temporary store, and clients for it."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import pytest

from lazyrag import Document
from lazyrag.server.app import create_app
from lazyrag.server.core.access import Access
from lazyrag.server.core.service import Service
from lazyrag.server.core.sets import SetFollower, runtime_sets

TEXTS = {
    "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees.\n\n## Storage\n\nKeep tea dry and dark.\n",
    "coffee.txt": "Coffee is ground fine for espresso and coarse for the press.",
    "茶.txt": "绿茶用八十度的水冲泡。红茶用开水。",
}


@pytest.fixture
def docs(tmp_path):
    """A synced Document over a folder of three files, in a store file."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(folder, store_conf=conf) as docs:
        docs.activate_group("MediumChunk", analysers=["en", "zh"])
        yield docs


@pytest.fixture
def service(docs, tmp_path):
    """A service of the one set ``notes``."""
    return Service({"notes": docs}, tmp_path / "state")


@pytest.fixture
def access(service):
    """Its tokens: with this fixture every request passes the guards."""
    service.access = Access(service.state)
    return service.access


@pytest.fixture
def following(service):
    """The state folder; sets that are created at run time are opened, and their jobs run."""
    stop = threading.Event()
    thread = threading.Thread(
        target=SetFollower(runtime_sets(service), service, write=True).run, args=[stop]
    )
    thread.start()
    yield service.state
    stop.set()
    thread.join()


@functools.cache
def described():
    """The OpenAPI document, made once: that takes half a second."""
    return create_app(Service({}, Path())).openapi()


@pytest.fixture
def app(service):
    """Its application."""
    app = create_app(service)
    app.openapi = described
    return app


@pytest.fixture
def client(app):
    """A client of the application, without a socket; errors of the server become responses."""
    from fastapi.testclient import TestClient

    local = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50_000)}
    headers = {"Sec-Fetch-Site": "same-origin"}  # as the service's own page sends
    with TestClient(app, raise_server_exceptions=False, headers=headers, **local) as client:
        yield client
