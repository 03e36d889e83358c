"""Documents moved from their stores to other ones: rows as they are, so that nothing is read or embedded anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from lazyrag.data.segment import Segment, key_build
from lazyrag.document.ingest import output_digest
from lazyrag.document.lease import LedgerPlace
from lazyrag.document.ledger import (
    CopiedBuild,
    CopiedGroup,
    CopiedSpace,
    begin_copies,
    copied_builds,
    copied_groups,
    copy_array_files,
    copy_ledgers,
)
from lazyrag.document.nodes import metric_of
from lazyrag.document.report import OnProgress, ProgressMeter, pages
from lazyrag.errors import ConfigError, StoreError, UnsupportedError, known_names
from lazyrag.models.embedding_cache import EmbeddingCache
from lazyrag.stores.config import OpenStores, StoreConf
from lazyrag.stores.protocol import VectorRow, VectorSchema, collection_name
from lazyrag.stores.sqlite import read_schema
from lazyrag.types import SPARSE
from lazyrag.validation import known_keywords

R = TypeVar("R", Segment, VectorRow)

_ROWS_AT_ONCE = 200  # of whole documents' texts, too: they are in memory twice


class _Rows(Protocol[R]):
    """What segment and vector stores share, as far as rows are copied."""

    def count(self, collection: str) -> int: ...
    def get(self, collection: str, keys: Sequence[str]) -> list[R]: ...
    def scan(self, collection: str, *, after: str = "", limit: int = 1000) -> list[R]: ...
    def upsert(self, collection: str, rows: Sequence[R]) -> None: ...
    def delete(self, collection: str, *, keys: Sequence[str]) -> int: ...


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """What tells rows of a build that are whole and equal from others.

    Args:
        is_whole: Whether the source's rows are what the ledger says.
        is_equal: Whether the target's rows are those of the source.
    """

    is_whole: Callable[[CopiedBuild, list[R]], bool]
    is_equal: Callable[[CopiedBuild, list[R], list[R]], bool]


class CollectionCopy(Generic[R]):
    """A collection and its copy in another store.

    Args:
        source: The store it lies in.
        target: The one it is copied to.
        collection: Its name there.
        copy: Its copy's name, a collection that exists.
        kind: Of its rows.
    """

    def __init__(self, source: _Rows[R], target: _Rows[R], collection: str, copy: str, kind: Kind[R]) -> None:
        self._source: _Rows[R] = source
        self._target: _Rows[R] = target
        self._collection, self._copy = collection, copy
        self._kind: Kind[R] = kind
        self.rows = 0  # that the copy has
        self.present = 0  # of them from an earlier run

    def run(self, builds: Iterable[CopiedBuild]) -> Iterator[int]:
        """Make the copy equal to the builds' rows; yields how many are done.

        Raises:
            StoreError: If the source lacks some of them, or the target gives back other rows than it was given.
        """
        fresh = not self._target.count(self._copy)
        numbers: set[int] = set()
        for some in _batches(builds):
            numbers.update(one.build.number for one in some)
            keys = [key for one in some for key in one.build.keys]
            rows = self._by_build(some, self._source.get(self._collection, keys))
            for one in some:
                if not self._kind.is_whole(one, rows[one.build.number]):
                    raise self._lacking(one, len(rows[one.build.number]))
            missing = some if fresh else self._differing(some, rows)
            self.present += sum(one.build.size for one in some) - sum(one.build.size for one in missing)
            if missing:
                self._target.upsert(self._copy, [row for one in missing for row in rows[one.build.number]])
                self._check(sum(one.build.size for one in self._differing(missing, rows)))
            self.rows += len(keys)
            yield self.rows
        if not fresh:
            self._remove_others(numbers)
        self._check(abs(self._target.count(self._copy) - self.rows))

    def _differing(self, builds: Sequence[CopiedBuild], rows: dict[int, list[R]]) -> list[CopiedBuild]:
        """The builds that the copy has not, or not like that."""
        found = self._target.get(self._copy, [key for one in builds for key in one.build.keys])
        theirs = self._by_build(builds, found)
        return [one for one in builds if not self._kind.is_equal(one, rows[one.build.number], theirs[one.build.number])]

    @staticmethod
    def _by_build(builds: Sequence[CopiedBuild], rows: Sequence[R]) -> dict[int, list[R]]:
        own: dict[int, list[R]] = {one.build.number: [] for one in builds}
        for row in rows:
            own[key_build(row.key)].append(row)
        return own

    def _remove_others(self, numbers: set[int]) -> None:
        """Rows that were copied by an earlier run, and that the ledger has let go of since."""
        for page in pages(lambda **asked: self._target.scan(self._copy, **asked)):
            self._target.delete(self._copy, keys=[row.key for row in page if key_build(row.key) not in numbers])

    def _lacking(self, one: CopiedBuild, found: int) -> StoreError:
        build, store = one.build, type(self._source).__name__
        msg = (
            f"{store} in source_conf has {found} rows of group {build.group!r} of document {build.document}, and the "
            f"ledger lists {build.size}, or others. Look whether source_conf is the whole store_conf of the Document; "
            "if it is, open that, and run verify() and repair(). The target is not complete."
        )
        return StoreError(msg, store=store, collection=self._collection)

    def _check(self, wrong: int) -> None:
        if wrong:
            store = type(self._target).__name__
            msg = (
                f"{store} does not give back what was written to it: {wrong} rows of {self._copy!r} differ. The source "
                "is as it was. Look after the target, and call migrate() again."
            )
            raise StoreError(msg, store=store, collection=self._copy)


def _batches(builds: Iterable[CopiedBuild]) -> Iterator[list[CopiedBuild]]:
    some: list[CopiedBuild] = []
    rows = 0
    for one in builds:
        some.append(one)
        rows += one.build.size
        if rows >= _ROWS_AT_ONCE:
            yield some
            some, rows = [], 0
    if some:
        yield some


_WAIT_S = 30.0  # for a program that writes just now


@dataclass(frozen=True, slots=True)
class Migration:
    """What `migrate` did.

    Args:
        names: Of the Documents, sorted.
        segments: How many rows of segments were copied, and compared with what the target gives back.
        vectors: How many vectors.
        present: How many of both were there from an earlier call that did not come to its end.
    """

    names: tuple[str, ...]
    segments: int
    vectors: int
    present: int

    def __str__(self) -> str:
        told = f"{', '.join(self.names)}: {self.segments} segments, {self.vectors} vectors"
        return told + (f", {self.present} of them from an earlier call" if self.present else "")


@known_keywords
def migrate(
    source_conf: Mapping[str, Any],
    target_conf: Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Migration:
    """Copy Documents from their stores to other ones, where a Document then answers as it does here.

    Segments, vectors, ledger, lexical indexes and the embedding cache are copied as they are. What is read is compared
    with what the ledger knows of it, and what was written is read back and compared. The source stays as it is; nobody
    writes it meanwhile, and who reads is not disturbed. Documents appear in the target all at once, at the end: until
    then nobody else can write there. A call that was interrupted is made again: what is there already is compared, and
    not written a second time.

    Afterwards open the Document with ``store_conf=target_conf``, and with its other arguments as before; on a server
    one without a name is called ``name="default"``.

    Args:
        source_conf: The ``store_conf`` of the Documents, all of it.
        target_conf: Another one, whose ledger knows no documents yet. Its stores may be servers that others use.
        names: Of the Documents; None for all that the source's ledger has. One that was given none is ``"default"``.
        on_progress: Called with a `Progress` after some hundred rows; a terminal shows a bar anyhow.

    Raises:
        ConfigError: If a configuration is none, lies in memory, or is the same as the other one; if the source has no
            such Document, or the target cannot keep it.
        UnsupportedError: If there are sparse vectors, and the target's vector store keeps none.
        StoreBusyError: If another program writes the source, or the target.
        StoreError: If a store fails, the source lacks rows, the target holds documents or another copy, or gives back
            other rows than it was given.

    Example:
        >>> import pathlib, tempfile
        >>> from lazyrag import Document, migrate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     old, new = (
        ...         {"segment_store": {"type": "map", "kwargs": {"uri": pathlib.Path(folder, name)}}}
        ...         for name in ("old.db", "new.db")
        ...     )
        ...     with Document(store_conf=old) as docs:
        ...         _ = docs.add_texts({"tea.txt": "Green tea keeps for a year."})
        ...     print(migrate(old, new))
        ...     with Document(store_conf=new) as docs:
        ...         [node.text for node in docs.get_nodes()]
        default: 1 segments, 0 vectors
        ['Green tea keeps for a year.']
    """
    source, target = _parsed("source_conf", source_conf), _parsed("target_conf", target_conf)
    _check_places(source, target)
    if on_progress is not None and not callable(on_progress):
        msg = f"on_progress is {on_progress!r}; give a function that takes a Progress, or None."
        raise ConfigError(msg)
    with ExitStack() as stack:
        opened = stack.enter_context(closing(source.open()))
        places = [LedgerPlace(opened.ledger, name) for name in _asked(opened, names)]
        for here in places:
            stack.enter_context(here.lease.held(_WAIT_S))
        for here in places:
            _check_use(here, target)
        into = stack.enter_context(closing(target.open()))
        moves = [_Move(opened, into, here, on_progress) for here in places]
        for move in moves:
            stack.enter_context(move.there.lease.held(_WAIT_S))
        pairs = [(move.here, move.there) for move in moves]
        begin_copies(pairs)
        for move in moves:
            move.copy()
        copy_ledgers(pairs, {old: new for move in moves for old, new in move.renamed.items()})
        _copy_cache(opened, into)  # last: it only saves calls
    return Migration(
        tuple(here.name for here in places),
        sum(move.segments for move in moves),
        sum(move.vectors for move in moves),
        sum(move.present for move in moves),
    )


class _Move:
    """One Document on its way."""

    def __init__(
        self, source: OpenStores, target: OpenStores, here: LedgerPlace, on_progress: OnProgress | None
    ) -> None:
        self.here = here
        self.there = LedgerPlace(target.ledger, here.name, copies=True)
        self.renamed: dict[str, str] = {}
        self.segments = self.vectors = self.present = 0
        self._on_progress = on_progress
        self._source, self._target = source, target
        if "sparse" not in target.vectors.features and any(
            space.dimension == SPARSE for group in copied_groups(here) for space in group.spaces
        ):
            store = type(target.vectors).__name__
            msg = f"Document {here.name!r} has sparse vectors, and {store} keeps none. Name another vector store."
            raise UnsupportedError(msg, store=store)

    def copy(self) -> None:
        """Copy all rows, and the array files of lexical indexes; the ledger's rows come last."""
        for group in copied_groups(self.here):
            self._copy_segments(group)
            for space in group.spaces:
                if space.kind == "vectors":
                    self._copy_vectors(group, space)
        copy_array_files(self.here, self.there)

    def _copy_segments(self, group: CopiedGroup) -> None:
        copy = self._renamed(group, group.collection)
        self._target.segments.create(copy, read_schema(group.fields))
        copied = CollectionCopy(self._source.segments, self._target.segments, group.collection, copy, _SEGMENTS)
        self._run(copied, f"copy {group.name} of {self.here.name}", group)
        self.segments += copied.rows

    def _copy_vectors(self, group: CopiedGroup, space: CopiedSpace) -> None:
        copy = self._renamed(group, space.collection, space.name)
        if not space.dimension:  # nothing has been embedded yet
            return
        fields, dimension = read_schema(group.fields), space.dimension
        schema = VectorSchema(dimension, metric_of(dimension), fields, embed_key=space.name)
        self._target.vectors.create(copy, schema)
        copied = CollectionCopy(self._source.vectors, self._target.vectors, space.collection, copy, _VECTORS)
        self._run(copied, f"copy {group.name} of {self.here.name}, embedded with {space.name!r}", group, space)
        self.vectors += copied.rows

    def _run(
        self, copied: CollectionCopy[Any], what: str, group: CopiedGroup, space: CopiedSpace | None = None
    ) -> None:
        # Read twice, since builds know the uids of their nodes: all at once they would take as much as the nodes.
        total = sum(one.build.size for one in copied_builds(self.here, group, space))
        with ProgressMeter(what, total, 1, self._on_progress, unit="row") as meter:
            for done in copied.run(copied_builds(self.here, group, space)):
                meter.reach(done)
        self.present += copied.present

    def _renamed(self, group: CopiedGroup, collection: str, embed_key: str | None = None) -> str:
        """A collection's copy is called after the ledger that it is to belong to."""
        name = collection_name(self.here.name, group.name, self.there.token + collection, embed_key)
        self.renamed[collection] = name
        return name


def _is_output(one: CopiedBuild, rows: list[Segment]) -> bool:
    return output_digest(rows) == one.output


def _have_vectors(one: CopiedBuild, rows: list[VectorRow]) -> bool:
    return len(rows) == one.build.size


def _same_vectors(_: CopiedBuild, rows: list[VectorRow], others: list[VectorRow]) -> bool:
    return len(rows) == len(others) and all(map(_same_vector, rows, others))


def _same_vector(one: VectorRow, other: VectorRow) -> bool:
    mine: Any = one.vector
    theirs: Any = other.vector
    same = mine == theirs if isinstance(mine, dict) else np.array_equal(mine, theirs)
    return bool(same) and _typed(one.fields) == _typed(other.fields)


def _typed(fields: Mapping[str, Any]) -> dict[str, tuple[type, Any]]:
    """1, 1.0 and True are equal, and not the same to a filter."""
    return {name: (type(value), value) for name, value in fields.items()}


_SEGMENTS: Kind[Segment] = Kind(_is_output, lambda one, _, others: _is_output(one, others))
_VECTORS: Kind[VectorRow] = Kind(_have_vectors, _same_vectors)


def _parsed(what: str, conf: Any) -> StoreConf:
    if not isinstance(conf, Mapping):
        msg = f"{what} is {conf!r}; give a Document's store_conf, a mapping."
        raise ConfigError(msg)
    return StoreConf.parse(conf)


def _check_places(source: StoreConf, target: StoreConf) -> None:
    for what, conf in (("source_conf", source), ("target_conf", target)):
        if conf.ledger_file is None:
            msg = (
                f"{what} keeps a Document in memory, where migrate() finds nothing and leaves nothing. Give the "
                "store_conf of stores that keep it: the segment store 'map' with a 'uri', a folder, a server."
            )
            raise ConfigError(msg)
    if source.ledger_file == target.ledger_file:
        msg = (
            f"source_conf and target_conf have the same ledger, {target.ledger_file}. Name another one for the target."
        )
        raise ConfigError(msg)
    missing = [path for path in source.places if not path.exists()]
    if missing:
        msg = f"There is no {missing[0]}, which source_conf names. Give the store_conf of a Document, all of it."
        raise ConfigError(msg)


def _asked(source: OpenStores, names: Iterable[str] | None) -> list[str]:
    with source.ledger.reading() as connection:
        known = [name for (name,) in connection.execute("SELECT name FROM ledger ORDER BY name")]
    if names is None:
        asked = known
    else:
        given = names if isinstance(names, Sequence) and not isinstance(names, str) else [names]
        if not given or not all(isinstance(name, str) for name in given) or given is not names:
            msg = f"names is {names!r}; give a list of the names of Documents, or None for all."
            raise ConfigError(msg)
        asked = sorted({*given})
    for name in asked:
        if name not in known:
            msg = f"{source.ledger.path} knows no Document {name!r}. {known_names(name, known)}"
            raise ConfigError(msg)
    if not asked:
        msg = f"{source.ledger.path} knows no Document. Give the store_conf of one."
        raise ConfigError(msg)
    return asked


def _check_use(here: LedgerPlace, target: StoreConf) -> None:
    """Whether the target can keep a Document, as far as that is known before anything is opened there."""
    groups = copied_groups(here)
    target.check_use(here.name, embeds=any(space.kind == "vectors" for group in groups for space in group.spaces))
    for group in groups:
        if not group.fields:
            msg = (
                f"The ledger of {here.name!r} was written by an earlier release, which did not note the fields of "
                f"group {group.name!r}. Open the Document once with this one and sync() it, or export() it."
            )
            raise ConfigError(msg)


def _copy_cache(source: OpenStores, target: OpenStores) -> None:
    """What was embedded before, unless there is a cache: programs may have that open."""
    held, copy = (Path(f"{stores.ledger.path}.embeddings") for stores in (source, target))
    if held.exists() and not copy.exists():
        with EmbeddingCache(held) as cache:
            cache.copy_to(copy)
