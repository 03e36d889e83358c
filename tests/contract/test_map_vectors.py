"""The map vector store in a store file keeps the contract, and what a file is for: restarts, kills,
other processes.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lazyrag.data.filters import Condition
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError
from lazyrag.indexes.dense import DenseIndex
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.sqlite import StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from lazyrag.testing import VectorStoreContract
from tests.contract.over_store_files import InFiles, InMemory

C = "lr_vectors"
SCHEMA = VectorSchema(64, "cosine", {})
SPAWN = multiprocessing.get_context("spawn")
YEAR = Condition("year", "eq", 2001)


@pytest.mark.sample(4)
class TestMapFileVectors(InFiles, VectorStoreContract):
    """Vectors in a store file."""

    store_class = MapFileVectorStore


@pytest.mark.slow
class TestMapFileVectorsInMemory(InMemory, VectorStoreContract):
    """The same store over a store file in memory."""

    store_class = MapFileVectorStore


def _rows(count: int, *, first: int = 0, dimension: int = 64, seed: int = 3) -> list[VectorRow]:
    """Seeded rows with keys in no order, every fourth of one of four files."""
    vectors = (
        np.random.default_rng([seed, first]).standard_normal((count, dimension)).astype(np.float32)
    )
    files = [{"year": 2000 + number, "tags": ("绿茶", str(number))} for number in range(4)]
    return [
        VectorRow(f"{number * 7919 % 100_003:08d}", vector, files[number % 4])
        for number, vector in zip(range(first, first + count), vectors, strict=True)
    ]


@pytest.fixture
def path(tmp_path) -> Path:
    """Where a store file may lie."""
    return tmp_path / "store.db"


@pytest.fixture
def opened(path):
    """Opens stores over one file; every call is another program's."""
    files = []

    def open_store(**options) -> MapFileVectorStore:
        files.append(StoreFile(path, **options))
        return MapFileVectorStore(files[-1])

    yield open_store
    for file in files:
        file.close()


def _parts(path: Path) -> list[tuple[int, int, bool]]:
    """Size, dead rows and whether it is an array file, of each part."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(
            "SELECT size, dead, content IS NULL FROM vector_part ORDER BY id"
        ).fetchall()
    finally:
        connection.close()
    return [
        (
            size,
            0 if dead is None else int(np.unpackbits(np.frombuffer(dead, np.uint8)).sum()),
            bool(in_file),
        )
        for size, dead, in_file in found
    ]


def _query(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 64)).astype(np.float32)


@pytest.mark.slow
def test_any_changes_leave_what_the_store_in_memory_has(opened):
    """Upserts of many sizes, replacing and deleting, by key and by filter: same rows, same ranking,
    bit for bit.
    """
    store, reference = opened(), MapVectorStore()
    rng = np.random.default_rng(5)
    rows = _rows(3000)
    for one in (store, reference):
        one.create(C, SCHEMA)
    for turn in range(60):
        chosen = rng.choice(3000, rng.integers(1, 400))
        vectors = rng.standard_normal((len(chosen), 64)).astype(np.float32)
        batch = [
            VectorRow(rows[at].key, vector, rows[at].fields)
            for at, vector in zip(chosen, vectors, strict=True)
        ]
        gone = [rows[at].key for at in rng.choice(3000, 60)]
        for one in (store, reference):
            one.upsert(C, batch)
        assert store.delete(C, keys=gone) == reference.delete(C, keys=gone)
        if turn % 20 == 10:
            assert store.delete(C, filter=YEAR) == reference.delete(C, filter=YEAR) > 0
        assert store.search(C, _query(turn), 9) == reference.search(C, _query(turn), 9)
        assert store.search(C, _query(turn), 9, YEAR) == reference.search(C, _query(turn), 9, YEAR)
    again = opened()
    assert again.count(C) == reference.count(C) > 1000
    found, expected = again.scan(C, limit=5000), reference.scan(C, limit=5000)
    assert [(row.key, row.vector.tobytes(), row.fields) for row in found] == [
        (row.key, row.vector.tobytes(), row.fields) for row in expected
    ]


def test_small_parts_lie_in_the_database_and_large_ones_in_files(opened, path):
    """A few rows make no file; many are one array file, which lies there whole."""
    store = opened()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(10))
    assert _parts(path) == [(10, 0, False)]
    assert not Path(f"{path}.d").exists()
    store.upsert(C, _rows(5000))
    assert _parts(path) == [(5000, 0, True)]
    names = store.file.arrays.names()
    assert [store.file.arrays.check(name) for name in names] == [""] * len(names)


@pytest.mark.slow
def test_parts_stay_few_and_rows_are_moved_a_few_times(opened, path, monkeypatch):
    """200 upserts of 5 rows leave at most 16 parts, each twice the next, and move each row less
    than ten times.
    """
    store = opened()
    store.create(C, SCHEMA)
    written = []
    kept = store.file.arrays.write_or_inline

    def spy(arrays, inline_below):
        written.append(len(arrays["keys"]))
        return kept(arrays, inline_below)

    monkeypatch.setattr(store.file.arrays, "write_or_inline", spy)
    rows = _rows(1000)
    for start in range(0, 1000, 5):
        store.upsert(C, rows[start : start + 5])
    sizes = [size for size, _, _ in _parts(path)]
    assert sum(sizes) == 1000
    assert len(sizes) <= 16
    assert all(one >= 2 * other for one, other in itertools.pairwise(sizes))
    assert sum(written) < 10 * 1000


def test_dead_rows_are_cleared_away(opened, path):
    """At most half of what lies there is dead; once no row lives, no part is left."""
    store = opened()
    store.create(C, SCHEMA)
    rows = _rows(3000)
    store.upsert(C, rows)
    for start in range(0, 3000, 100):
        store.delete(C, keys=[row.key for row in rows[start : start + 100]])
        parts = _parts(path)
        assert 2 * sum(dead for _, dead, _ in parts) <= sum(size for size, _, _ in parts)
        assert store.count(C) == sum(size - dead for size, dead, _ in parts) == 2900 - start
    assert _parts(path) == []


def test_files_of_merged_and_dropped_parts_are_left_to_readers(opened):
    """Their time is renewed and they stay, so that a program which has just read their names can
    open them.
    """
    store = opened()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(1500))
    arrays = store.file.arrays
    [first] = arrays.names()
    past = time.time() - 5000
    os.utime(arrays.folder / first, (past, past))
    assert arrays.age_s(first) > 4000
    store.upsert(C, _rows(1500, first=1500))
    assert len(arrays.names()) == 3
    assert arrays.age_s(first) < 1000
    for name in arrays.names():
        os.utime(arrays.folder / name, (past, past))
    store.drop(C)
    assert len(arrays.names()) == 3
    assert sorted(arrays.age_s(name) < 1000 for name in arrays.names()) == [False, False, True]


def test_a_restart_reads_no_vector_before_a_search_needs_it(opened):
    """Opening and counting map the file: its matrix is a view of it, aligned and read-only."""
    store = opened()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(4000))
    again = opened()
    assert again.count(C) == 4000
    [part] = again._now(C).parts
    assert part.in_file
    for array in (part.block.matrix, part.block.norms, part.block.keys):
        assert array.base is not None
        assert not array.flags.writeable
    assert again.search(C, _query(), 5) == store.search(C, _query(), 5)


def test_another_programs_commits_are_seen_by_the_next_call(opened):
    """Two programs, one file: each sees the other's rows, deletions and collections at once."""
    first, second = opened(), opened()
    first.create(C, SCHEMA)
    second.create(C, SCHEMA)
    rows = _rows(30)
    first.upsert(C, rows[:20])
    assert second.count(C) == 20
    second.upsert(C, rows[15:])
    assert first.count(C) == 30
    assert first.delete(C, keys=[rows[0].key]) == 1
    assert second.get(C, [rows[0].key, rows[1].key]) != []
    assert [row.key for row in second.get(C, [rows[0].key, rows[1].key])] == [rows[1].key]
    first.drop(C)
    with pytest.raises(StoreError, match="no collection"):
        second.count(C)
    first.create(C, VectorSchema(2, "ip", {}))
    assert second.count(C) == 0
    with pytest.raises(SchemaMismatchError, match=r"2.*64"):
        second.upsert(C, rows[:1])


def test_a_commit_to_another_table_reads_nothing_again(opened):
    """The file changes for many reasons; a collection in which nothing has changed keeps its
    state.
    """
    store = opened()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(10))
    before = store._now(C).state
    store.create("other", SCHEMA)
    assert store._now(C).state is before


def test_read_only_programs_search_and_write_nothing(opened):
    """They find what is there; to write is a StoreError that says so."""
    store = opened()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(10))
    reader = opened(read_only=True)
    reader.create(C, SCHEMA)
    assert reader.search(C, _query(), 3) == store.search(C, _query(), 3)
    for write in (
        lambda: reader.upsert(C, _rows(1)),
        lambda: reader.delete(C, keys=["a"]),
        lambda: reader.create("other", SCHEMA),
        lambda: reader.drop(C),
    ):
        with pytest.raises(StoreError, match="read_only=True"):
            write()
    assert store.count(C) == 10


@pytest.mark.slow
def test_threads_that_write_lose_nothing(opened):
    """Four threads, two programs, upserting and deleting different rows while a fifth searches: all
    of it is there.
    """
    first, second = opened(), opened()
    first.create(C, SCHEMA)
    done = threading.Event()

    def write(number: int) -> None:
        store = (first, second)[number % 2]
        rows = _rows(300, first=1000 * number)
        for start in range(0, 300, 15):
            store.upsert(C, rows[start : start + 15])
            store.delete(C, keys=[rows[start].key])

    def read() -> int:
        searches = 0
        while not done.is_set():
            [found] = first.search(C, _query(), 10)
            assert [score for _, score in found] == sorted(
                (score for _, score in found), reverse=True
            )
            searches += 1
        return searches

    with ThreadPoolExecutor(5) as pool:
        reading = pool.submit(read)
        try:
            list(pool.map(write, range(4)))
        finally:
            done.set()
        assert reading.result() > 0
    expected = {
        row.key
        for number in range(4)
        for at, row in enumerate(_rows(300, first=1000 * number))
        if at % 15
    }
    assert {row.key for row in first.scan(C, limit=5000)} == expected
    assert second.count(C) == len(expected) == 4 * 280


def test_rows_that_die_while_parts_are_merged_stay_dead(opened, monkeypatch):
    """Deletes and replacements that another program commits between the joining and its commit are
    not undone.
    """
    # parts in files are merged while others write
    monkeypatch.setattr("lazyrag.stores.sqlite_vectors._SMALL_BYTES", 0)
    store, other = opened(), opened()
    store.create(C, SCHEMA)
    rows = _rows(600)
    monkeypatch.setattr(other, "_merge", lambda *_: None)
    store.upsert(C, rows[:300])
    kept, turns = store.file.arrays.write_or_inline, []

    def meanwhile(arrays, inline_below):
        made = kept(arrays, inline_below)
        turns.append(len(arrays["keys"]))
        if len(turns) == 2:  # the first is the upsert's own part, the second the merged one
            other.delete(C, keys=[rows[5].key, rows[310].key])
            other.upsert(C, [VectorRow(rows[6].key, -rows[6].vector, rows[6].fields)])
        return made

    monkeypatch.setattr(store.file.arrays, "write_or_inline", meanwhile)
    store.upsert(C, rows[300:])
    assert turns == [300, 600]
    assert store.count(C) == 598
    assert store.get(C, [rows[5].key, rows[310].key]) == []
    [replaced] = store.get(C, [rows[6].key])
    assert np.array_equal(replaced.vector, -rows[6].vector)
    assert [len(part.block) for part in store._now(C).parts] == [1, 600]


def _upsert_and_merge(store, meanwhile, monkeypatch) -> None:
    """Two upserts whose parts are merged; something happens when they are joined and the new part
    is not yet kept.
    """
    # parts in files are merged while others write
    monkeypatch.setattr("lazyrag.stores.sqlite_vectors._SMALL_BYTES", 0)
    store.create(C, SCHEMA)
    store.upsert(C, _rows(100))
    kept, turns = store.file.arrays.write_or_inline, []

    def interrupted(arrays, inline_below):
        turns.append(len(arrays["keys"]))
        if len(turns) == 2:  # the first is the upsert's own part, the second the merged one
            meanwhile()
        return kept(arrays, inline_below)

    monkeypatch.setattr(store.file.arrays, "write_or_inline", interrupted)
    store.upsert(C, _rows(100, first=100))
    assert turns == [100, 200]


def test_a_merge_that_another_program_has_done_is_left_alone(opened, path, monkeypatch):
    """Both join the same parts; the second finds its parts gone and changes nothing."""
    store, other = opened(), opened()
    _upsert_and_merge(store, lambda: other._merge(C), monkeypatch)
    assert _parts(path) == [(200, 0, True)]
    assert store.count(C) == 200


def test_a_collection_that_is_dropped_while_its_parts_are_merged_stays_dropped(opened, monkeypatch):
    """The upsert was acknowledged before; merging what is gone is no error."""
    store, other = opened(), opened()
    _upsert_and_merge(store, lambda: other.drop(C), monkeypatch)
    with pytest.raises(StoreError, match="no collection"):
        store.count(C)


def test_a_reader_that_comes_too_late_for_a_file_reads_again(opened, monkeypatch):
    """Its parts were merged and their file removed between reading the names and opening: it gets
    the new ones.
    """
    store, reader = opened(), opened()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(1500))
    [old] = store.file.arrays.names()
    expected = []
    first_open = reader.file.arrays.open

    def too_late(name):
        if not expected:
            store.upsert(C, _rows(1500, first=1500))
            store.file.arrays.delete([old])
            expected.append(store.count(C))
        return first_open(name)

    monkeypatch.setattr(reader.file.arrays, "open", too_late)
    assert reader.count(C) == 3000
    assert expected == [3000]


def test_a_missing_file_is_an_error_that_names_it(opened):
    """Nothing is served from half a collection."""
    store = opened()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(1500))
    [name] = store.file.arrays.names()
    store.file.arrays.delete([name])
    with pytest.raises(StoreError, match=name):
        opened().count(C)


def test_a_damaged_part_in_the_database_is_an_error(opened, path):
    """A bundle whose bytes are not those that were written says so, and what to do."""
    store = opened()
    store.create(C, SCHEMA)
    store.upsert(C, _rows(5))
    store.file.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE vector_part SET content = substr(content, 1, 100)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"Part 1 .*repair\(\)"):
        opened().count(C)


@pytest.mark.parametrize(
    "vector", [np.full(64, np.nan, np.float32), np.full(64, np.inf, np.float32)]
)
def test_numbers_that_are_not_finite_are_refused(opened, vector):
    """A ConfigError, and nothing is written."""
    store = opened()
    store.create(C, SCHEMA)
    with pytest.raises(ConfigError, match="finite"):
        store.upsert(C, [*_rows(3), VectorRow("bad", vector)])
    assert store.count(C) == 0


def _upsert_for_ever(path: str, started) -> None:
    with StoreFile(path) as file:
        store = MapFileVectorStore(file)
        number = 0
        while True:
            # Each upsert replaces one row of the last and brings 99 of its own, all with the same
            # year.
            rows = [
                VectorRow(f"{99 * number + at:06d}", row.vector, {"year": number})
                for at, row in enumerate(_rows(100))
            ]
            store.upsert(C, rows)
            number += 1
            started.set()


@pytest.mark.slow
def test_a_program_killed_while_it_upserts_leaves_whole_upserts(opened, path):
    """Whatever was in the making: each upsert is there as a whole or not at all, every array file
    whole, all in order, and writing goes on.
    """
    store = opened()
    store.create(C, SCHEMA)
    started = SPAWN.Event()
    process = SPAWN.Process(target=_upsert_for_ever, args=(os.fspath(path), started))
    process.start()
    assert started.wait(60)
    process.kill()
    process.join()

    count = store.count(C)
    upserts, rest = divmod(count - 1, 99)
    assert rest == 0
    assert upserts >= 1
    rows = store.scan(C, limit=count + 1)
    assert [int(row.key) for row in rows] == list(range(count))
    assert [row.fields["year"] for row in rows] == [
        min(at // 99, upserts - 1) for at in range(count)
    ]
    store.upsert(C, [VectorRow("zz", _rows(1)[0].vector)])
    assert opened().count(C) == count + 1
    named = {part.name for part in store._now(C).parts if part.in_file}
    assert [store.file.arrays.check(name) for name in named] == [""] * len(named)


def _upsert_and_die(path: str, moment: int) -> None:
    """Replace some rows and bring more, so that parts are merged; end without a word at a statement
    or a file.
    """
    with StoreFile(path) as file:
        store = MapFileVectorStore(file)
        store.count(C)
        passed = itertools.count(1)

        def step(*_) -> None:
            if next(passed) == moment:
                os._exit(7)

        write = file.arrays.write

        def write_between(arrays) -> str:
            step()
            name = write(arrays)
            step()
            return name

        file.arrays.write = write_between
        file.writer._connection.set_trace_callback(step)
        store.upsert(C, _changed_rows())


def _changed_rows() -> list[VectorRow]:
    """What that program upserts: 700 rows that are there, with other vectors, and 800 new ones."""
    return [VectorRow(row.key, -row.vector, row.fields) for row in _rows(1500, first=800)]


@pytest.mark.share(3)
@pytest.mark.slow
def test_a_program_that_ends_at_any_step_of_an_upsert_leaves_all_of_it_or_nothing(path):
    """Before, within and after each transaction and each array file: the rows are the old or the
    new ones, and the same upsert once more leads to the new ones.
    """
    old = {row.key: row.vector.tobytes() for row in _rows(1500)}
    new = old | {row.key: row.vector.tobytes() for row in _changed_rows()}
    assert len(new) == 2300
    outcomes = []
    for moment in itertools.count(1):
        for name in path.parent.iterdir():
            shutil.rmtree(name) if name.is_dir() else name.unlink()
        with StoreFile(path) as file:
            store = MapFileVectorStore(file)
            store.create(C, SCHEMA)
            store.upsert(C, _rows(1500))
        process = SPAWN.Process(target=_upsert_and_die, args=(os.fspath(path), moment))
        process.start()
        process.join()
        with StoreFile(path) as file:
            store = MapFileVectorStore(file)
            found = {row.key: row.vector.tobytes() for row in store.scan(C, limit=3000)}
            outcomes.append("old" if found == old else "new" if found == new else "mixed")
            store.upsert(C, _changed_rows())
            assert {row.key: row.vector.tobytes() for row in store.scan(C, limit=3000)} == new
            named = {part.name for part in store._now(C).parts if part.in_file}
            assert named
            assert [file.arrays.check(name) for name in named] == [""] * len(named)
        if process.exitcode == 0:
            break
        assert process.exitcode == 7
    first_new = outcomes.index("new")
    assert outcomes == ["old"] * first_new + ["new"] * (len(outcomes) - first_new)
    assert first_new > 3
    assert len(outcomes) - first_new > 5


def _upsert_some(path: str, first: int) -> None:
    with StoreFile(path) as file:
        store = MapFileVectorStore(file)
        rows = _rows(400, first=first)
        for start in range(0, 400, 8):
            store.upsert(C, rows[start : start + 8])


@pytest.mark.slow
def test_two_processes_that_write_lose_nothing(opened):
    """Both write to one collection, merging as they go; a third that has it open sees every row of
    both.
    """
    store = opened()
    store.create(C, SCHEMA)
    assert store.count(C) == 0
    firsts = (0, 1000)
    processes = [
        SPAWN.Process(target=_upsert_some, args=(os.fspath(store.file.path), first))
        for first in firsts
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    expected = sorted(
        (row.key, row.vector.tobytes()) for first in firsts for row in _rows(400, first=first)
    )
    assert [(row.key, row.vector.tobytes()) for row in store.scan(C, limit=1000)] == expected


@pytest.mark.slow
def test_a_large_collection_is_searched_by_codes(opened, tmp_path):
    """From 16,384 rows on a part has codes, made when parts are merged; the answers are those of an
    index in memory.
    """
    rng = np.random.default_rng(5)
    turned, _ = np.linalg.qr(rng.standard_normal((64, 64)))
    vectors = (rng.standard_normal((20_000, 64)) * 0.9 ** np.arange(64) @ turned).astype(np.float32)
    rows = [VectorRow(f"{number:05d}", vector) for number, vector in enumerate(vectors)]
    store = opened()
    store.create(C, SCHEMA)
    for start in range(0, 20_000, 5_000):
        store.upsert(C, rows[start : start + 5_000])
    store.delete(C, keys=[row.key for row in rows[:2_000:2]])
    [part] = store._now(C).parts
    assert part.block.codes is not None
    index = DenseIndex(64, "cosine")
    index.add(
        [row.key for row in rows[:2_000][1::2]] + [row.key for row in rows[2_000:]],
        np.concatenate([vectors[1:2_000:2], vectors[2_000:]]),
    )
    queries = rng.standard_normal((12, 64)).astype(np.float32)
    assert store.search(C, queries, 10) == [index.state.search(query, 10) for query in queries]
    assert [opened().search(C, query[None], 10)[0] for query in queries[:3]] == store.search(
        C, queries[:3], 10
    )
