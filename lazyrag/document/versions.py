"""The versions of a Document's documents: `Document.versions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyrag.ingest.documents import roll_back
from lazyrag.ingest.indexer import unrestricted
from lazyrag.read.catalogue import VersionDiff, diff_versions, visible_versions
from lazyrag.read.scope import Reader
from lazyrag.read.versions import DocumentVersion, list_versions
from lazyrag.validation import known_keywords, validate_integer


class Versions:
    """The stored versions of documents, see ``Document(keep_versions=)``.

    A document is named by its path relative to the dataset, or by its id.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    if not TYPE_CHECKING:  # a checker would accept the call

        def __call__(self, *_args: object, **_kwargs: object) -> None:
            """Refuse the call of release 0.2."""
            raise TypeError("docs.versions is not a method. Use docs.versions.list(document).")

    @known_keywords
    def list(self, document: str) -> list[DocumentVersion]:
        """List the stored versions of a document, oldest first.

        A restricted Document lists those whose text is visible through it.

        Raises:
            ConfigError: If the document does not exist.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Pick it. Dry it."})
            >>> [version.number for version in docs.versions.list("tea")]
            [1]
        """
        if self._reader.scope is not None:
            return visible_versions(self._reader, document)
        return list_versions(self._reader.indexer, document)

    @known_keywords
    def diff(self, document: str, before: int, after: int | None = None) -> VersionDiff:
        """Compare two stored versions of a document: nodes that were added, removed or moved, and
        lines of its text.

        Args:
            document: Its path or id.
            before: Number of the one version.
            after: Number of the other one; None for the live version.

        Raises:
            ConfigError: If the document does not exist, or a version is not stored.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document(keep_versions=1)
            >>> _ = docs.add_texts({"tea": "Pick it. Dry it."})
            >>> _ = docs.add_texts({"tea": "Pick it. Roll it."})
            >>> print(docs.versions.diff("tea", 1))
            tea, version 1 to 2
              lazyllm_root: 1 added, 1 removed, 0 moved
        """
        return diff_versions(self._reader, document, before, after)

    @known_keywords
    def rollback(self, document: str, version: int | None = None) -> DocumentVersion:
        """Make an earlier version of a document live again, until its file changes.

        Nothing is loaded or embedded. The restored version becomes the newest one; the live one
        becomes an earlier one.

        Args:
            document: Its path or id.
            version: Its number; the one before the live one by default.

        Raises:
            ConfigError: If the document does not exist, or the version is not stored.
            StoreBusyError: If another program writes the store.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document(keep_versions=1)
            >>> _ = docs.add_texts({"tea": "Pick it."}), docs.add_texts({"tea": "Roll it."})
            >>> _ = docs.versions.rollback("tea")
            >>> docs.read("tea")
            'Pick it.'
        """
        number = None if version is None else validate_integer("version", version, 1)
        return roll_back(unrestricted(self._reader, "rollback"), document, number)
