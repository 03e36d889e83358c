"""The part of `Document` that keeps it in step with its files and its store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from lazyrag.document.builder import Builder
from lazyrag.document.dataset import PathLike
from lazyrag.document.dump import canonical_dump
from lazyrag.document.findings import Problem
from lazyrag.document.plan import Plan, make_plan
from lazyrag.document.reader import Reader
from lazyrag.document.repair import repair
from lazyrag.document.report import IngestReport
from lazyrag.document.status import DocumentStatus, status_of
from lazyrag.document.sync import MAX_DELETED
from lazyrag.document.transfer import export, import_from
from lazyrag.document.upkeep import (
    add_files,
    add_texts,
    delete_files,
    retry_failed,
    sync,
    update_metadata,
    would_sync,
)
from lazyrag.document.verify import verified
from lazyrag.document.versions import DocumentVersion, roll_back, versions_of
from lazyrag.errors import ConfigError, known_names
from lazyrag.validation import known_keywords, whole_number, yes_or_no

OnError = Literal["collect", "raise"]


class MaintainedDocument:
    """What a `Document` offers beside reading: to sync, to take in and let go of, to look after its store.

    None of it but `retry_failed` can be asked of a view that `Document.restricted` made: it concerns what such a view
    does not see.
    """

    _builder: Builder
    _reader: Reader

    @known_keywords
    def sync(
        self,
        *,
        dry_run: bool = False,
        on_error: OnError = "collect",
        max_deleted: float = MAX_DELETED,
        max_calls: int | None = None,
        wait_s: float = 30.0,
    ) -> IngestReport:
        """Bring in what changed in the dataset, and try once more whatever failed.

        Files are known by size, time of modification and inode, and hashed where these leave a doubt. What changed is
        loaded, transformed and embedded as far as it is new, beside what is live, and becomes live document by document
        as a whole. A file that fails leaves what was live of it as it was. The first use of a Document syncs by itself.
        Groups and embeddings that nothing has asked for yet are no part of it: they are made when something asks.

        Args:
            dry_run: Only report what would be done, as far as files tell.
            on_error: ``"collect"`` reports what fails, ``"raise"`` stops after the batch in which something does.
            max_deleted: Share of the known files in [0, 1] that may be gone at once, if more than ten. Where more are
                gone, or all, they are kept and reported as withheld: a folder that is not mounted looks just like that.
                1 lets all of them go.
            max_calls: Do nothing if `plan` says that more calls of models would be made.
            wait_s: How long to wait for another program that writes, in seconds.

        Raises:
            DatasetPathError: If the dataset's folder cannot be listed.
            IngestionError: If every file failed, or if one did and ``on_error`` is ``"raise"``.
            StoreBusyError: If another program writes the store.
            ConfigError: If an argument is out of its range, or more calls are planned than ``max_calls``.

        Example:
            >>> from lazyrag import Document
            >>> print(Document().sync())
            0 added, 0 failed, 0 skipped
        """
        if on_error not in get_args(OnError):
            msg = f"on_error is {on_error!r}. {known_names(str(on_error), get_args(OnError))}"
            raise ConfigError(msg)
        builder = self._whole("sync")
        if isinstance(wait_s, bool) or not isinstance(wait_s, (int, float)) or not wait_s >= 0:
            msg = f"wait_s is {wait_s!r}; give a number of seconds, at least 0."
            raise ConfigError(msg)
        if yes_or_no("dry_run", dry_run):
            return would_sync(builder, max_deleted=max_deleted)
        if max_calls is not None:
            allowed = whole_number("max_calls", max_calls, 0)
            planned = make_plan(builder, max_deleted)
            if planned.calls > allowed:
                msg = (
                    f"A sync would make about {planned.calls} calls of models, and max_calls is {allowed}. Nothing was "
                    "done. plan() tells what they are for; call sync() with a larger max_calls, or without."
                )
                raise ConfigError(msg)
        return sync(builder, max_deleted=max_deleted, raises=on_error == "raise", wait_s=wait_s)

    @known_keywords
    def plan(self, *, max_deleted: float = MAX_DELETED) -> Plan:
        """What `sync` would do and cost. Changed files are loaded for it; no transform and no model is called.

        Example:
            >>> from lazyrag import Document
            >>> Document().plan().calls
            0
        """
        return make_plan(self._whole("plan"), max_deleted)

    def retry_failed(self) -> IngestReport:
        """Try once more whatever failed: files, transforms, embeddings. Returns the new `last_report`.

        What fails again, even for every file, stands in the report; nothing is raised.

        Example:
            >>> from lazyrag import Document
            >>> Document().retry_failed().failed
            ()
        """
        retry_failed(self._builder)
        return self._reader.report() or IngestReport()

    def status(self) -> DocumentStatus:
        """What it holds: documents, nodes, indexes, failures. Nothing is loaded or built for it.

        Example:
            >>> from lazyrag import Document
            >>> print(Document().status())
            default: 0 documents, 0 failed steps
        """
        return status_of(self._whole("status"))

    def verify(self) -> tuple[Problem, ...]:
        """Compare the ledger with what the stores and files really hold; all of it is read.

        Returns:
            What is wrong; () for nothing. Kept versions before the live ones are not looked at; `rollback` does that.

        Raises:
            StoreBusyError: If another program writes all the time.

        Example:
            >>> from lazyrag import Document
            >>> Document().verify()
            ()
        """
        return tuple(verified(self._whole("verify")).problems)

    def repair(self) -> tuple[Problem, ...]:
        """Mend what `verify` finds: what has a source is made anew, what nobody knows of is removed.

        Done once more, it changes nothing.

        Returns:
            What is still wrong, since it has no source any longer.

        Raises:
            StoreBusyError: If another program writes the store.

        Example:
            >>> from lazyrag import Document
            >>> Document().repair()
            ()
        """
        return repair(self._whole("repair"))

    @known_keywords
    def versions(self, document: str) -> list[DocumentVersion]:
        """The versions of a document that are kept, oldest first; see ``keep_versions``.

        Args:
            document: Its path relative to the dataset, or its id.

        Raises:
            ConfigError: If there is no such document.
        """
        return versions_of(self._whole("versions"), document)

    @known_keywords
    def rollback(self, document: str, version: int | None = None) -> DocumentVersion:
        """Make an earlier version of a document live again, until its file changes.

        Nothing is loaded or embedded for it. The version becomes the newest one; the one that was live is kept as an
        earlier one.

        Args:
            document: Its path relative to the dataset, or its id.
            version: Its number; the one before the live one where it is left out.

        Raises:
            ConfigError: If there is no such document, or the version is not kept.
            StoreBusyError: If another program writes the store.
        """
        number = None if version is None else whole_number("version", version, 1)
        return roll_back(self._whole("rollback"), document, number)

    @known_keywords
    def add_files(
        self,
        files: Sequence[PathLike] | Mapping[str, PathLike],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> IngestReport:
        """Take in single files; one that is known already is read again if it changed.

        A file in the dataset's folder keeps its place there. Another one is not looked after by `sync`: its document
        stays as it is until it is added again or deleted.

        Args:
            files: Paths, whose file names are their identities, or a mapping of ids of your own to paths.
            metadata: What to add to the metadata of some of them, by file name or id.

        Returns:
            What became of these files.

        Raises:
            DatasetPathError: If a path is not there.
            ConfigError: If an argument is of the wrong kind.
            StoreBusyError: If another program writes the store.
        """
        return add_files(self._whole("add_files"), files, metadata)

    @known_keywords
    def add_texts(
        self, texts: Mapping[str, str], metadata: Mapping[str, Mapping[str, Any]] | None = None
    ) -> IngestReport:
        """Take in texts that are no files; a text of a known id takes the old one's place.

        Args:
            texts: Ids of your own to texts, neither of them blank.
            metadata: Metadata of some of them, by id.

        Returns:
            What became of these texts.

        Raises:
            ConfigError: If an argument is of the wrong kind, or an id is that of a file.
            StoreBusyError: If another program writes the store.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> print(docs.add_texts({"note-1": "Green tea is not roasted."}))
            1 added, 0 failed, 0 skipped
        """
        return add_texts(self._whole("add_texts"), texts, metadata)

    @known_keywords
    def delete_files(self, documents: Iterable[str]) -> IngestReport:
        """Let go of documents: hidden at once, removed from the stores after that.

        The files themselves are not touched; those in the dataset's folder stay away until `add_files` names them.

        Args:
            documents: Their paths relative to the dataset, or their ids.

        Raises:
            ConfigError: If there is no such document; then nothing is deleted.
            StoreBusyError: If another program writes the store.
        """
        return delete_files(self._whole("delete_files"), documents)

    @known_keywords
    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]]) -> IngestReport:
        """Change documents' metadata. They go before ``file_metadata`` and what loaders find, and stay over a sync.

        Nothing is loaded or embedded; transforms that are given whole nodes, and may read metadata, run again.

        Args:
            changes: By path relative to the dataset, or id: names to values. None takes back what was changed before.

        Raises:
            ConfigError: If there is no such document, a name is built in, or a value cannot be kept.
            StoreBusyError: If another program writes the store.
        """
        return update_metadata(self._whole("update_metadata"), changes)

    @known_keywords
    def export(self, folder: PathLike) -> Path:
        """Write what is live into a new folder: documents and nodes as JSON lines, vectors as arrays.

        `import_from` reads it, on any machine, without loading or embedding anything.

        Args:
            folder: Where; nothing may be there yet.

        Returns:
            The folder.

        Raises:
            ConfigError: If something is there.
            StoreError: If it cannot be written; nothing of it is kept then.
        """
        return export(self._whole("export"), folder)

    @known_keywords
    def import_from(self, folder: PathLike) -> int:
        """Bring in what `export` wrote, into a Document that holds nothing yet.

        Nothing is loaded, transformed or embedded for it. Groups whose definitions differ from the exported ones are
        built anew when something asks for them.

        Returns:
            How many documents came in.

        Raises:
            ConfigError: If the folder holds no export, or one with other ``doc_fields``, or this Document is not empty.
            StoreBusyError: If another program writes the store.
        """
        return import_from(self._whole("import_from"), folder)

    def dump(self) -> Iterator[str]:
        """What is live, as lines of JSON that are equal wherever the Document is equal: for tests and snapshots.

        See `lazyrag.document.dump.canonical_dump`. Nothing is loaded or built for it.

        Example:
            >>> from lazyrag import Document
            >>> list(Document().dump())
            []
        """
        return canonical_dump(self._whole("dump"))

    def _whole(self, what: str) -> Builder:
        if self._reader.scope is not None:
            msg = f"{what}() concerns all of a Document, and this one is restricted. Ask the one that it is a view of."
            raise ConfigError(msg)
        return self._builder
