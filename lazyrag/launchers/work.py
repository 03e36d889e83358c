"""Launcher: what travels (loads, transforms, embeddings), and what is refused before anything
does.
"""

from __future__ import annotations

import atexit
import base64
import functools
import itertools
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NoReturn, cast

import numpy as np

from lazyrag.data.codec import decode_node, encode_node
from lazyrag.data.node import DocNode
from lazyrag.data.segment import check_metadata, digest
from lazyrag.errors import ConfigError, EmbeddingError, LazyRAGError, LoadError, TransformError
from lazyrag.groups.node_group import embed_identity
from lazyrag.ingest.indexer import Indexer
from lazyrag.ingest.load_files import Loading, as_reader, importable_loaders, matches
from lazyrag.ingest.pending import (
    MadeNodes,
    PendingSource,
    PendingVersion,
    ToDo,
    VersionReader,
    content_key,
    file_root,
    make_nodes,
)
from lazyrag.ingest.plan import BuildPlan, GroupTarget
from lazyrag.launchers.engines import make_engine
from lazyrag.launchers.executors import ModelRecipe, Processes, RemoteWork, Task, not_sent
from lazyrag.ledger.tables import BuildRow, DocumentRow
from lazyrag.loaders.base import (
    FileReader,
    LoadedFile,
    load_file,
    loaders,
    packed_file,
    unpacked_file,
)
from lazyrag.loaders.directory import FoundFile
from lazyrag.models.embedding import NON_TEXT_ERRORS, CheckedEmbedder
from lazyrag.models.embedding_cache import CachedEmbedder
from lazyrag.models.protocols import EmbeddedBatch, Embedder, InputType
from lazyrag.transforms.base import Draft, run_transforms
from lazyrag.types import JsonObject

# By size, since a batch is what a lost worker costs.
_LOAD_BYTES = 1 << 19
_FILE_BYTES = 1 << 12  # what opening a file costs, in bytes
_TRANSFORM_BYTES = 1 << 18
_EMBED_BYTES = 1 << 15  # also of transforms that call models


class Launcher:
    """Loads, transforms and embeds for a Document by an engine.

    Args:
        launcher: As of `lazyrag.Document`.
    """

    def __init__(self, launcher: Any) -> None:
        self.engine = make_engine(launcher)
        self._loading: Loading | None = None  # whose processes do the work
        self._token = uuid.uuid4().hex
        self._running = ExitStack()

    @property
    def processes(self) -> int:
        """Processes of this machine, which also load files one by one; 0 for none."""
        return self.engine.processes

    @property
    def width(self) -> int:
        """The number of workers."""
        return max(1, self.engine.width())

    @property
    def is_running(self) -> bool:
        """Whether work can be sent: processes run while files are ingested."""
        return self._loading is None or self._loading.is_running

    def bind(self, indexer: Indexer) -> None:
        """Use the processes of a Document."""
        if self.processes:
            self._loading = indexer.loading
            self.engine.executor = Processes(self.engine.executor, indexer.loading.call)

    def close(self) -> None:
        """Release what was opened for the engine; an Executor that was passed stays open."""
        atexit.unregister(self.close)
        self._running.close()
        self.engine.close()

    # What can be sent

    def require_sendable(self, name: str, target: Any) -> None:
        """Refuse a callable that other processes cannot import.

        Raises:
            ConfigError: If it is one; the message names it.
        """
        try:
            self.engine.dumps(target)
        except Exception as exc:
            msg = f"{name} is {_name_of(target)}, which other processes cannot import."
            msg += " Define it in a module of its own, outside of functions, or pass launcher=None."
            raise ConfigError(msg) from exc

    def require(self, plan: BuildPlan, loading: Loading) -> None:
        """Refuse readers, loaders and transforms that cannot be sent, before anything is.

        Raises:
            ConfigError: If there is one.
        """
        for reader in loading.readers.all():
            self.require_sendable(f"The reader of {reader.pattern!r}", reader.user_reader)
        for suffix, target in importable_loaders():
            if target is None and self.engine.dumps is not not_sent:  # loaders are sent by name
                msg = (
                    f"The loader of {suffix!r} is {_name_of(loaders[suffix])}, which other"
                    " processes cannot import."
                )
                raise ConfigError(f"{msg} Register one of a module.")
        for group in plan.groups:
            self.require_sendable(f"The transform of {group.name!r}", group.transform)
        # until the Document is closed, since they start slowly
        if self.processes and not loading.is_running:
            self._running.enter_context(loading.running(1))
            atexit.register(self.close)

    def embedder(self, checked: CheckedEmbedder) -> CheckedEmbedder:
        """An embedder whose documents are embedded by the engine; queries are embedded here.

        Raises:
            ConfigError: If it cannot be sent.
        """
        cached = checked.embedder if isinstance(checked.embedder, CachedEmbedder) else None
        inner = checked.embedder if cached is None else cached.embedder
        launched: Any = LaunchedEmbedder(inner, self, checked)
        self.require_sendable(checked.name, getattr(inner, "function", launched.sent))
        if cached is not None:
            launched = CachedEmbedder(launched, cached.cache, identity=cached.identity)
        launched_embedder = CheckedEmbedder(launched, checked.name, checked.key, checked.workers)
        launched_embedder.user_object = checked.user_object
        return launched_embedder

    # What is sent

    def load(
        self, roots: Iterable[Any], loading: Loading
    ) -> dict[FoundFile, LoadedFile | LazyRAGError]:
        """Load the files of new root nodes; processes load them one by one instead, within their
        limits.
        """
        if self.processes:
            return {}
        tasks = []
        for make in roots:
            if getattr(make, "func", None) is file_root:
                file = make.args[1]
                size = _FILE_BYTES + (file.signature.size if file.signature is not None else 0)
                tasks.append(Task(file, size, (str(file.path.absolute()), file.identity)))
        call = (
            [(reader.pattern, reader.user_reader) for reader in loading.readers.all()],
            importable_loaders(),
            loading.limits,
        )
        token = uuid.uuid4().hex
        loaded_files: dict[FoundFile, LoadedFile | LazyRAGError] = {}
        work = RemoteWork(load_files, token, call, _LOAD_BYTES, LoadError)
        for some in self.engine.run(work, tasks):
            for task, result in some:
                if isinstance(result, LoadError):
                    result.path = str(task.item.path)
                is_error = isinstance(result, Exception)
                loaded_files[task.item] = result if is_error else unpacked_file(result)
        return loaded_files

    def transform(
        self, reader: VersionReader, target: GroupTarget, plan: BuildPlan, to_do: Sequence[ToDo]
    ) -> Iterator[tuple[ToDo, MadeNodes | Exception]]:
        """Transform documents; yields each with its nodes or its error, in order."""
        line = plan.sources_of(target)
        near = [
            replace(group, transform=_unused, path_key=None)
            for group in plan.groups
            if group.id in line
        ]
        sent = replace(target, path_key=None)
        names = {row: plan.names[row] for row in (*line, target.id)}
        call = sent, BuildPlan(plan.root, plan.root_collection, names, [*near, sent])
        done = {}

        def tasks() -> Iterator[Task]:
            for at, (version, _, reusable) in enumerate(to_do):
                parents = version.segments[target.parent]
                new = [
                    number
                    for number, parent in enumerate(parents)
                    if content_key(parent) not in reusable
                ]
                try:
                    root = version.segments[plan.root][0]
                    kind = target.reads_source
                    source = reader.source(version, root, kind) if kind else ()
                except LazyRAGError as exc:
                    done[at] = exc
                    continue
                rows = {group: list(map(encode_node, version.segments[group])) for group in line}
                text = json.dumps([rows, new, list(source)])
                yield Task(at, len(text), text)

        size = _EMBED_BYTES if target.reuses_texts else _TRANSFORM_BYTES
        position = 0
        token = digest([self._token, str(target.id), target.fingerprint])
        work = RemoteWork(transform_nodes, token, call, size, TransformError)
        batches = self.engine.run(work, tasks())
        for some in itertools.chain(batches, [[]]):
            done.update((task.item, result) for task, result in some)
            while position in done:
                item = to_do[position]
                version, row, reusable = item
                result = done.pop(position)
                position += 1
                try:
                    drafts = iter(_decode_drafts(result))
                    yield (
                        item,
                        make_nodes(reader, target, version, row.number, plan, reusable, drafts),
                    )
                except Exception as exc:  # noqa: BLE001  it is the item's result
                    yield item, exc

    def embed(self, embedder: LaunchedEmbedder, texts: Sequence[str]) -> Iterator[EmbeddedBatch]:
        """Embed texts; yields batches as they finish."""
        tasks = (
            Task(at, len(text.encode("utf-8", "surrogatepass")), text)
            for at, text in enumerate(texts)
        )
        function = functools.partial(embed_texts, embedder.workers)
        token = digest([self._token, embedder.key])
        work = RemoteWork(function, token, embedder.sent, _EMBED_BYTES, EmbeddingError)
        for some in self.engine.run(work, tasks):
            yield EmbeddedBatch(
                [task.item for task, _ in some], [_decode_vector(result) for _, result in some]
            )


def _no_file(*_: object) -> NoReturn:
    raise TransformError(
        "Workers have no files, so they cannot read pictures. Use launcher=None for this group."
    )


def _unused(node: object) -> NoReturn:
    raise AssertionError(node)


def _name_of(target: Any) -> str:
    while isinstance(target, functools.partial):
        target = target.args[0]
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}.{named.__qualname__}"


class LaunchedEmbedder:
    """Embedder whose documents are embedded by a launcher.

    Args:
        embedder: The embedder; queries are embedded by it here.
        launcher: The launcher.
        checked: What checks its vectors.
    """

    def __init__(self, embedder: Embedder, launcher: Launcher, checked: CheckedEmbedder) -> None:
        self.embedder = embedder
        self.workers = checked.workers
        self.key = embed_identity(checked.user_object, embedder.identity)
        arguments = getattr(embedder, "made_with", None)  # of a model that each worker opens itself
        self.sent = embedder if arguments is None else ModelRecipe(type(embedder), *arguments)
        self._launcher = launcher
        self._here = CheckedEmbedder(embedder, checked.name, checked.key, checked.workers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.embedder, name)

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Any:
        """Embed texts here."""
        return self.embedder.embed(texts, input_type)

    def embed_batches(
        self, texts: Sequence[str], input_type: InputType = "document"
    ) -> Iterator[EmbeddedBatch]:
        """Embed documents by the launcher, and queries here."""
        is_sent = input_type == "document" and self._launcher.is_running
        return (
            self._launcher.embed(self, texts)
            if is_sent
            else self._here.batches(texts, 0, input_type)
        )


# In the worker


def load_files(
    call: tuple[Any, ...], files: Iterable[tuple[str, str]]
) -> Iterator[list[Any] | LazyRAGError]:
    """Load files, given their paths and identities, by the sender's readers and loaders."""
    readers, table, limits = call
    for suffix, target in table:
        if target is not None and (
            suffix not in loaders or loaders.target(suffix) not in (None, target)
        ):
            loaders.declare(suffix, target, replace=True)

    def find(*names: str) -> FileReader | None:
        return next(
            (as_reader(pattern, reader) for pattern, reader in readers if matches(pattern, names)),
            None,
        )

    for path, name in files:
        try:
            yield packed_file(load_file(path, name=name, limits=limits, readers=find))
        except (LoadError, ConfigError) as exc:
            yield exc


def transform_nodes(
    call: tuple[GroupTarget, BuildPlan], payloads: Iterable[str]
) -> Iterator[list[Any] | TransformError]:
    """Transform documents, given their nodes above the group, the numbers of those to transform,
    and source texts.
    """
    target, plan = call
    for text in payloads:
        rows, new, source = json.loads(text)
        version = PendingVersion(DocumentRow(0, "", ""))
        for row, nodes in rows.items():
            version.segments[int(row)] = [decode_node(node, 0) for node in nodes]
        version.current = dict.fromkeys(version.segments, cast("BuildRow", None))
        source_texts = list(map(tuple, source))
        reader = PendingSource(
            call,
            version,
            plan,
            lambda *_: None,
            lambda *_, texts=source_texts: texts,
            _no_file,
            target,
        )
        parents = [DocNode.from_segment(version.segments[target.parent][at], reader) for at in new]
        drafts_of_parents = []
        try:
            for drafts in run_transforms(target.transform, parents):
                encoded = [_encode_draft(draft) for draft in drafts]
                drafts_of_parents.append(encoded)
        except (TransformError, ConfigError) as exc:
            uid = getattr(exc, "uid", "") or parents[len(drafts_of_parents)].uid
            yield TransformError(str(exc), group=target.name, uid=uid)
        else:
            yield drafts_of_parents


def _decode_drafts(result: list[Any] | Exception) -> list[list[Draft]]:
    if isinstance(result, Exception):
        raise result
    return [list(itertools.starmap(_decode_draft, drafts)) for drafts in result]


def _encode_draft(draft: Draft) -> tuple[Any, ...]:
    return draft.content, check_metadata(draft.metadata), draft.span


def _decode_draft(content: Any, metadata: JsonObject, span: list[int] | None) -> Draft:
    return Draft(content, metadata, None if span is None else (span[0], span[1]))


def embed_texts(
    workers: int, embedder: Any, texts: Sequence[str]
) -> Iterator[dict[int, float] | str | Exception]:
    """Embed texts by an embedder, with a number of threads; dense vectors are float32 as
    base64.
    """
    for vector in CheckedEmbedder(embedder, "", "", workers).embed_each(texts):
        if isinstance(vector, EmbeddingError):
            cause = vector.__cause__
            message = str(vector).strip(" .")
            yield cause if isinstance(cause, Exception) else EmbeddingError(message)
        elif isinstance(vector, dict):
            yield vector
        else:
            yield base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode()


def _decode_vector(result: Any) -> Any:
    """A vector, or an exception like the one that the embedder raised."""
    if isinstance(result, NON_TEXT_ERRORS):
        raise result
    return np.frombuffer(base64.b64decode(result), "<f4") if isinstance(result, str) else result
