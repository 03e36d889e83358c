"""A real browser on a real service. These tests need chromium; run them with
``pytest -m browser tests/page``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.page.browsing import Browsing
from tests.server.running import Running, serving

CORPUS = Path(__file__).resolve().parents[2] / "cookbook" / "corpus"
CHROMIUM = os.environ.get("LAZYRAG_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: a test run without chromium selects none of them."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium():
    """A browser for all tests; each page has a profile of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def start(tmp_path_factory) -> Iterator[Callable[..., Running]]:
    """A function that starts ``lazyrag serve``, which runs until the end of the session.

    Arguments: ``files``, a folder to copy (the sample corpus), or a dict of names to text or bytes;
    ``config``, lines of the configuration file after those of the set; ``settings``, lines of its
    table ``[server]``; ``name`` of the set.
    """
    with ExitStack() as stack:

        def begin(
            files: Path | dict[str, str | bytes] = CORPUS,
            *,
            name: str = "qingshan",
            config: str = "",
            settings: str = "",
        ) -> Running:
            root = tmp_path_factory.mktemp("service")
            folder = root / "files"
            if isinstance(files, Path):
                shutil.copytree(files, folder)
            else:
                folder.mkdir()
                for one, content in files.items():
                    (folder / one).parent.mkdir(parents=True, exist_ok=True)
                    (folder / one).write_bytes(
                        content if isinstance(content, bytes) else content.encode()
                    )
            path = root / "serve.toml"
            lines = f"[server]\nport = 0\nprocesses = 1\n{settings}\n[sets.{name}]\npath = 'files'\n{config}\n"
            path.write_text(lines, encoding="utf-8")
            running = stack.enter_context(serving(folder, config=path))
            running.wait_until_ready()
            return running

        yield begin


@pytest.fixture(scope="session")
def shop(start) -> Running:
    """The sample corpus as the set ``qingshan``, for tests that change nothing of it."""
    return start()


@pytest.fixture
def browse(chromium) -> Iterator[Callable[[Running | str], Browsing]]:
    """A function from a service, or its URL, to its `Browsing`; what the browser reports fails the
    test.
    """
    opened: list[Browsing] = []

    def begin(service: Running | str) -> Browsing:
        opened.append(Browsing(chromium, service if isinstance(service, str) else service.url))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()
