"""Where the real servers answer, for the tests of this folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def address_of(name: str) -> str:
    """What an environment variable says; without it the test fails: nothing is skipped here."""
    found = os.environ.get(name, "")
    if not found:
        pytest.fail(
            f"{name} is not set: this test needs a real server. Run make live, which starts it.",
            pytrace=False,
        )
    return found


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home for each worker: Milvus Lite 2.5 makes and removes a folder there, and of two at once
    one fails.

    Our store asks again, which has a test of its own; the bare client does not.
    """
    home = tmp_path_factory.mktemp("home")
    os.environ["HOME"] = str(home)
    return home


@pytest.fixture(scope="session")
def chroma_address() -> str:
    """``http://host:port`` of a Chroma server."""
    return address_of("LAZYRAG_LIVE_CHROMA")


@pytest.fixture(scope="session")
def milvus_address() -> str:
    """``http://host:port`` of a full Milvus server."""
    return address_of("LAZYRAG_LIVE_MILVUS")


@pytest.fixture(scope="session")
def opensearch_address() -> str:
    """``http://host:port`` of an OpenSearch of one node."""
    return address_of("LAZYRAG_LIVE_OPENSEARCH")
