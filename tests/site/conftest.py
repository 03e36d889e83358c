"""The documentation site in a real browser: run `make site`, then
``pytest -m browser tests/site``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.interpreter import ROOT
from tests.page.browsing import Browsing
from tests.page.conftest import chromium  # noqa: F401  a fixture

SITE = ROOT / "build" / "site"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: a test run without chromium selects none of them."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where the built site is served, below a path as on a forge's pages."""
    assert (SITE / "index.html").is_file(), "There is no build/site. Run: make site"
    handler = functools.partial(_Handler, directory=str(SITE.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/site"
        server.shutdown()


@pytest.fixture
def browsing(chromium, url) -> Iterator[Browsing]:  # noqa: F811
    """The site in a browser; a request to elsewhere, an error or a warning fails the test."""
    opened = Browsing(chromium, url)
    yield opened
    opened.close()
