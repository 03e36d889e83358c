"""What services read of a Document beside its nodes: rows of the ledger, files, and models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lazyrag.ledger.tables import DocumentTable
from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.read.scope import Reader


def document_table(reader: Reader) -> DocumentTable:
    """The ledger's table of documents, whatever the reader is restricted to; only to be read."""
    return reader.indexer.ledger.documents


def select_rows(reader: Reader, query: str, **values: Any) -> list[Any]:
    """Run a query of the ledger's file, in which ``:ledger`` is the number of the ledger."""
    ledger = reader.indexer.ledger
    with ledger.reading() as connection:
        number = ledger.id or ledger.find_row()
        return connection.execute(query, {"ledger": number, **values}).fetchall()


def dataset_folder(reader: Reader) -> Path | None:
    """The folder of the files; None for a Document without one."""
    return reader.indexer.dataset.folder


def dataset_file(reader: Reader, identity: str) -> Path | None:
    """The file of the dataset that a document is made of; None if there is none any more."""
    file = reader.indexer.dataset.find(identity)
    return file.path if file is not None and file.path.is_file() else None


def is_in_dataset(reader: Reader, path: Path) -> bool:
    """Whether no link leads from the dataset's folder to a file, or links are followed."""
    dataset = reader.indexer.dataset
    if dataset.folder is None or dataset.follow_links:
        return True
    return path.resolve().is_relative_to(dataset.folder.resolve())


def embedders_by_key(reader: Reader) -> Mapping[str, CheckedEmbedder]:
    """The embedding models by embed key."""
    return reader.indexer.embedders
