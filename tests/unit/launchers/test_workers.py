"""The arguments of workers; what they do is in tests/live and tests/scale."""

from __future__ import annotations

import pytest

from lazyrag import Document
from lazyrag.errors import ConfigError
from lazyrag.launchers.workers import Workers, open_worker


@pytest.mark.parametrize("documents", [0, 257, True, "8"])
def test_an_entry_has_1_to_256_documents(documents):
    """Others are refused at once."""
    with pytest.raises(ConfigError, match="documents"):
        Workers(Document, documents=documents)


@pytest.mark.parametrize("num_gpus", [-1, "1", True])
def test_gpus_are_a_number_from_0(num_gpus):
    """Ray is not asked first."""
    with pytest.raises(ConfigError, match="num_gpus"):
        Workers(Document, "ray", num_gpus=num_gpus)


def test_open_document_is_a_function_that_returns_a_document():
    """What it is, or returns, is named."""
    with pytest.raises(ConfigError, match="open_document"):
        Workers("teas:open_docs")
    with pytest.raises(ConfigError, match="result of open_document"):
        open_worker({})


def test_a_store_in_memory_has_no_workers():
    """The way out is in the message."""
    with (
        Document(launcher=Workers(Document)) as docs,
        pytest.raises(ConfigError, match="PostgreSQL"),
    ):
        docs.add_texts({"a": "tea"})
