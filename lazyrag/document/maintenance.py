"""Checks, repairs and copies of a Document's stores: `Document.maintenance`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from lazyrag.document.open import with_cache
from lazyrag.groups.node_group import Step
from lazyrag.ingest.indexer import Indexer, unrestricted
from lazyrag.ingest.model_identity import next_identity
from lazyrag.ingest.report import Problem
from lazyrag.progress.calls import OnProgress, during_call
from lazyrag.read.scope import Reader
from lazyrag.types import PathLike
from lazyrag.validation import known_keywords, validate_texts

if TYPE_CHECKING:
    from lazyrag.maintain.certificate import DeletionCertificate


class Maintenance:
    """Verify, repair, compact, purge, export and import a Document. A restricted one refuses all of
    it.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def verify(self) -> tuple[Problem, ...]:
        """Compare the ledger with the actual contents of the stores and files; everything is read.

        Returns:
            The problems found. Earlier versions are not checked; `Versions.rollback` does that.

        Raises:
            StoreBusyError: If another program keeps writing.

        Example:
            >>> from lazyrag import Document
            >>> Document().maintenance.verify()
            ()
        """
        from lazyrag.ingest.verify import verify

        return tuple(verify(self._indexer("verify")).problems)

    @known_keywords
    def repair(
        self,
        *,
        embed_keys: Sequence[str] = (),
        on_progress: OnProgress | None = None,
        cancel: Event | None = None,
    ) -> tuple[Problem, ...]:
        """Fix what `verify` finds: rebuild everything that has a source, delete unknown rows.
        Idempotent.

        Args:
            embed_keys: Embed keys whose vectors are embedded again, as their model has changed.
                Other programs that have the store open must open it again.
            on_progress: As for `Document.sync`.
            cancel: As for `Document.sync`; the next repair does the rest.

        Returns:
            The problems that remain because the source is gone.

        Raises:
            StoreBusyError: If another program writes the store.
            CanceledError: If ``cancel`` is set.

        Example:
            >>> from lazyrag import Document
            >>> Document().maintenance.repair()
            ()
        """
        from lazyrag.ingest.verify import repair

        keys = validate_texts("embed_keys", embed_keys)
        indexer = self._indexer("repair")
        if keys:
            self._reader.embedders(keys)  # raises for an unknown one
        with during_call(on_progress, cancel):
            for key in keys:
                _embed_again(indexer, key)
            return repair(indexer)

    def compact(self) -> None:
        """Give back the space of what is not live any more: superseded nodes and vectors, dropped
        groups, free pages.

        A sync removes superseded rows as well, but store files keep their size, and the embedding
        cache keeps vectors of superseded texts and models until nobody used them for 90 days. What
        was superseded in the last ten seconds stays for running queries until the next sync or
        call. It may be interrupted at any point. The files are rewritten, which takes their size on
        the disk meanwhile; other programs wait with their writes.

        Raises:
            StoreBusyError: If another program writes the store.
            StoreError: If the disk is full, or a reader keeps a file locked.

        Example:
            >>> from lazyrag import Document
            >>> Document().maintenance.compact()
        """
        from lazyrag.ingest.verify import compact

        compact(self._indexer("compact"))

    @known_keywords
    def purge(self, document: str, *, folders: Sequence[PathLike] = ()) -> DeletionCertificate:
        """Delete a document so that no byte of it remains in the stores, and certify that.

        All of its versions go at once: reads of other programs that still use them are repeated.
        Then everything is done that `compact` does, keyword indexes are written anew without its
        words, and all files of the stores are searched. Takes about as long as reading and writing
        the stores. Chroma in a folder and Milvus Lite are closed for a moment, in which queries of
        other threads by vectors fail with a StoreError.

        Args:
            document: Its path relative to the dataset, or its id.
            folders: Other files and folders to search, such as uploads and logs; nothing is removed
                from them.

        Returns:
            What was searched, what was found, and what cannot be checked. It is not clean if
            something remains: a reader keeps a file locked, or its path has to stay because its
            file is still in the dataset's folder.

        Raises:
            ConfigError: If there never was such a document, or nothing is left of it.
            StoreBusyError: If another program writes the store.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"note-1": "Green tea is not roasted."})
            >>> docs.maintenance.purge("note-1").is_clean
            True
        """
        from lazyrag.maintain.certificate import purge

        return purge(self._indexer("purge"), document, folders)

    @known_keywords
    def deletion_certificate(
        self,
        document: str,
        *,
        text: str | None = None,
        file: PathLike | None = None,
        folders: Sequence[PathLike] = (),
    ) -> DeletionCertificate:
        """Search all stores for a document that is gone; nothing is changed. `purge` returns such a
        certificate, too.

        Args:
            document: The path or id that it had.
            text: Its text, or a part of it: what to search for.
            file: Its file, or a copy of it, instead.
            folders: As for `purge`.

        Raises:
            ConfigError: If the document is live, or neither text nor file is given.
            LoadError: If the file cannot be read.
        """
        from lazyrag.maintain.certificate import certify

        return certify(self._indexer("deletion_certificate"), document, text, file, folders)

    @known_keywords
    def export(self, folder: PathLike) -> Path:
        """Write the live state into a new folder: documents and nodes as JSON lines, vectors as
        arrays.

        A manifest lists the row count and SHA-256 of each file. `import_from` reads the folder on
        any machine, without loading or embedding anything.

        Args:
            folder: The folder to create.

        Returns:
            The folder.

        Raises:
            ConfigError: If the path exists already.
            StoreError: If it cannot be written, a store has other rows than were written to it, or
                documents are removed meanwhile; then no part of it remains.
        """
        from lazyrag.maintain.export import export

        return export(self._indexer("export"), folder)

    @known_keywords
    def import_from(self, folder: PathLike) -> int:
        """Import the folder that `export` wrote into an empty Document, all or nothing.

        All files are checked against the manifest before anything is written. Nothing is loaded,
        transformed or embedded. Groups whose definitions differ from the exported ones are rebuilt
        at first use. Repeat an interrupted call to continue it.

        Returns:
            The number of imported documents.

        Raises:
            ConfigError: If the folder is not an export, has other ``doc_fields``, or this Document
                is not empty.
            StoreError: If a file of the export is missing, cut short or altered, or a store returns
                other rows than were written.
            StoreBusyError: If another program writes the store.
        """
        from lazyrag.maintain.export import import_from

        return import_from(self._indexer("import_from"), folder)

    def dump(self) -> Iterator[str]:
        """Yield the live state as lines of JSON, equal for equal Documents: for tests and
        snapshots.

        See `lazyrag.maintain.export.canonical_dump`. Nothing is loaded or built.

        Raises:
            StoreError: At the end, if documents were removed meanwhile.

        Example:
            >>> from lazyrag import Document
            >>> list(Document().maintenance.dump())
            []
        """
        from lazyrag.maintain.export import canonical_dump

        return canonical_dump(self._indexer("dump"))

    def _indexer(self, method: str) -> Indexer:
        return unrestricted(self._reader, method)


def _embed_again(indexer: Indexer, key: str) -> None:
    """Embed again what is embedded with a key."""
    planner = indexer.planner
    embedder = indexer.embedders[key]
    with indexer.writing():
        view = indexer.now()
        steps = [Step(name, embed_key=key) for name in view.groups]
        steps = [step for step in steps if planner.live_index(view, step)]
        identity = planner.identities[key] = next_identity(embedder)
        if indexer.cache is not None:
            planner.embedders[key] = with_cache(embedder, indexer.cache, identity)
        for step in steps:
            indexer.build(step)
