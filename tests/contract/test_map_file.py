"""The map segment store in a store file keeps the contract, and lives through restarts, kills and
other processes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import And, Condition
from lazyrag.data.segment import Location, ReadOnly, Segment
from lazyrag.errors import ConfigError, SchemaMismatchError, StoreError
from lazyrag.stores import sqlite as map_file
from lazyrag.stores.sqlite import MapFileSegmentStore, StoreFile
from lazyrag.testing import SegmentStoreContract
from lazyrag.testing.samples import SCHEMA, make_segments
from lazyrag.testing.suites import all_rows
from tests.contract.over_store_files import InFiles, InMemory
from tests.interpreter import let_go, python, waiting

C = "lr_segments"


@pytest.mark.sample(4)
class TestMapFileSegments(InFiles, SegmentStoreContract):
    """Segments in a store file."""

    store_class = MapFileSegmentStore


@pytest.mark.slow
class TestMapFileSegmentsInMemory(InMemory, SegmentStoreContract):
    """The same store over a store file in memory, which neither lasts nor is shared."""

    store_class = MapFileSegmentStore


@pytest.fixture
def path(tmp_path) -> Path:
    """Where a store file may lie."""
    return tmp_path / "store.db"


@pytest.fixture
def file(path):
    """An open store file."""
    with StoreFile(path) as opened:
        yield opened


@pytest.fixture
def store(file) -> MapFileSegmentStore:
    """A store with one empty collection."""
    made = MapFileSegmentStore(file)
    made.create(C, SCHEMA)
    return made


def value(path: Path, statement: str):
    """What a statement answers with one value, asked behind the package's back."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchone()[0]


# Texts as broken files have them: half a surrogate pair, NUL, anything.
_texts = st.text(st.characters(codec=None), max_size=8)
_numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
_json = st.recursive(
    st.none() | st.booleans() | _numbers | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_fields = st.dictionaries(
    st.sampled_from(["author", "year", "tags", "public"]),
    st.none()
    | st.booleans()
    | _texts
    | st.integers(-(2**31), 2**31 - 1)
    | st.lists(_texts, max_size=3).map(tuple),
)
_offsets = st.integers(0, 2**40)
_segments = st.builds(
    Segment,
    uid=st.text("0123456789abcdef", min_size=4, max_size=4) | _texts,
    build=st.integers(0, 2**62),
    group=_texts,
    document_id=_texts,
    path=_texts,
    parent=st.none() | _texts,
    number=st.integers(1, 2**40),
    content=_texts | _json.filter(lambda value: value is not None),
    metadata=st.dictionaries(_texts, _json, max_size=3).map(ReadOnly),
    fields=_fields,
    span=st.none() | st.tuples(_offsets, _offsets),
    locations=st.lists(st.builds(Location, _offsets, _offsets, _texts, _texts), max_size=3).map(
        tuple
    ),
)


def typed(value):
    """A value and its type, all the way down: 0, 0.0 and False are different."""
    if isinstance(value, dict):
        return {name: typed(held) for name, held in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [typed(held) for held in value]
    return type(value), value


@given(st.lists(_segments, max_size=5, unique_by=lambda one: one.key))
def test_any_segment_comes_back_equal(segments):
    """Whatever JSON it holds, with the types it was written with, and whatever its texts look
    like.
    """
    with StoreFile(None) as file:
        store = MapFileSegmentStore(file)
        store.create(C, SCHEMA)
        store.upsert(C, segments)
        read = store.get(C, [one.key for one in segments])
        assert read == segments
        for one, written in zip(read, segments, strict=True):
            for name in ("content", "metadata", "fields", "span", "locations"):
                assert typed(getattr(one, name)) == typed(getattr(written, name))
        assert sorted(one.key for one in store.scan(C)) == sorted(one.key for one in segments)
        assert store.delete(C, keys=[one.key for one in segments]) == len(segments)


@pytest.mark.parametrize("wrong", [{"a": {1, 2}}, {"a": b"x"}, {"a": object()}])
def test_what_is_no_json_is_refused(store, wrong):
    """The error names the node and its part, and nothing of that call is written."""
    good, bad = make_segments()[:2]
    for part in ("content", "metadata"):
        with pytest.raises(ConfigError, match=rf"The {part} of node '{bad.uid}' in group 'block'"):
            store.upsert(C, [good, bad._replace(**{part: wrong})])
    assert store.count(C) == 0


def test_any_mapping_is_json(store):
    """Also one that is no dict."""
    row = make_segments()[0]._replace(
        content=MappingProxyType({"a": [1]}), metadata=MappingProxyType({})
    )
    store.upsert(C, [row])
    assert store.get(C, [row.key]) == [row]


def test_segments_of_one_build_share_one_object(store, path):
    """What they have in common lies in the file once, and their fields are one object, however they
    are read.
    """
    fields = dict(make_segments()[0].fields)
    rows = [
        make_segments()[0]._replace(uid=f"{n:032x}", document_id="d", path="p", fields=fields)
        for n in range(20)
    ]
    store.upsert(C, rows[:10])
    store.upsert(C, [row._replace(fields=dict(fields)) for row in rows[10:]])
    assert value(path, "SELECT count(*) FROM segment_origin") == 1
    read = [*all_rows(store, C), *store.get(C, [rows[3].key])]
    assert len({id(row.fields) for row in read}) == 1
    assert read[0].fields == fields


def test_what_nobody_shares_any_more_is_forgotten(store, path):
    """Deleting the last segment of a build, or writing it anew, leaves nothing of it behind."""
    rows = [row._replace(path=f"{n // 2}.txt") for n, row in enumerate(make_segments()[:4])]
    rows = [
        row._replace(fields=rows[n // 2 * 2].fields, document_id=row.path)
        for n, row in enumerate(rows)
    ]
    origins = "SELECT count(*) FROM segment_origin"
    store.upsert(C, rows)
    assert value(path, origins) == 2
    store.delete(C, keys=[rows[0].key])
    assert value(path, origins) == 2
    store.delete(C, keys=[rows[1].key])
    assert value(path, origins) == 1
    moved = [row._replace(path="moved.txt") for row in rows[2:]]
    store.upsert(C, moved)
    assert value(path, origins) == 1
    assert all_rows(store, C) == moved
    store.delete(C, filter=And())
    store.upsert(C, rows)
    store.drop(C)
    assert value(path, origins) == 0


def test_a_filter_deletes_only_in_its_collection(store):
    """The same rows in another collection stay."""
    store.create("other", SCHEMA)
    for name in (C, "other"):
        store.upsert(name, make_segments())
    gone = store.delete(C, filter=Condition("author", "exists", False))
    assert 0 < gone < len(make_segments())
    assert store.count("other") == len(make_segments())


def test_an_origin_that_was_forgotten_is_read_again(store, monkeypatch):
    """The memory for them is bounded; what is read beyond it is right all the same."""
    monkeypatch.setattr(map_file, "_REMEMBERED", 2)
    store.upsert(C, make_segments())
    for _ in range(2):
        assert all_rows(store, C) == make_segments()
    assert len(store._origins._cached) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"year": DocField(DataType.INT64)},
        {"year": DocField(DataType.INT32, default_value=1)},
        {"year": DocField(DataType.ARRAY, element_type=DataType.INT32)},
        {"year": DocField(DataType.ARRAY, element_type=DataType.INT32, max_size=3)},
        {},
    ],
)
def test_a_collection_is_of_one_schema(store, other):
    """Whatever part of it differs; the order in which fields are declared is none."""
    declared = {"year": DocField(DataType.INT32), "作者": DocField(DataType.VARCHAR, max_size=9)}
    store.create("c", make_schema(declared))
    store.create("c", make_schema(dict(reversed(declared.items()))))
    with pytest.raises(
        SchemaMismatchError, match=r"Collection 'c' has other fields than requested: .*year, 作者"
    ):
        store.create("c", make_schema({**declared, **other} if other else {}))


def test_a_restart_reads_what_was_written(path):
    """A later program finds every row, text and type; and the collection's schema."""
    with StoreFile(path) as file:
        store = MapFileSegmentStore(file)
        store.create(C, SCHEMA)
        store.upsert(C, make_segments())
    with StoreFile(path) as file:
        store = MapFileSegmentStore(file)
        assert all_rows(store, C) == make_segments()
        with pytest.raises(SchemaMismatchError):
            store.create(C, make_schema(None))
    with pytest.raises(StoreError, match="is closed"):
        store.scan(C)


def test_who_only_reads_is_served(store, path):
    """With read_only a present collection can be made ready and read, and nothing can be
    written.
    """
    store.upsert(C, make_segments())
    with StoreFile(path, read_only=True) as file:
        reader = MapFileSegmentStore(file)
        reader.create(C, SCHEMA)
        assert all_rows(reader, C) == make_segments()
        uses = [
            lambda: reader.create("new", SCHEMA),
            lambda: reader.upsert(C, make_segments()),
            lambda: reader.delete(C, keys=["x"]),
            lambda: reader.drop(C),
        ]
        for use in uses:
            with pytest.raises(StoreError, match="read_only=True"):
                use()
    assert all_rows(store, C) == make_segments()


READ_ELSEWHERE = """
import sys
from lazyrag.data.filters import And
from lazyrag.stores.sqlite import MapFileSegmentStore
from lazyrag.stores.sqlite import StoreFile
from lazyrag.testing.suites import all_rows
with StoreFile(sys.argv[1]) as file:
    store = MapFileSegmentStore(file)
    print(ascii(all_rows(store, sys.argv[2])))
    print(store.delete(sys.argv[2], filter=And()))
"""


@pytest.mark.slow
def test_another_process_reads_what_is_written(store, path):
    """While this one has the file open, and this one sees at once what that one has done."""
    store.upsert(C, make_segments())
    rows = all_rows(store, C)
    run = python("-c", READ_ELSEWHERE, str(path), C)
    assert run.stderr == ""
    assert run.stdout.splitlines() == [ascii(rows), str(len(rows))]
    assert all_rows(store, C) == []


WRITE = """
import sys
from lazyrag.stores.sqlite import MapFileSegmentStore
from lazyrag.stores.sqlite import StoreFile
from lazyrag.testing.suites import make_segments
with StoreFile(sys.argv[1], timeout_s=120) as file:
    store = MapFileSegmentStore(file)
    print("ready", flush=True)
    sys.stdin.readline()
    for build in range(20):
        store.upsert(sys.argv[2], [row._replace(build=build, path=sys.argv[3]) for row in make_segments()])
"""


@pytest.mark.slow
def test_two_processes_that_write_lose_nothing(store, path):
    """They write the same keys, one after the other: every row is there once, and no origin is left
    over.
    """
    with waiting(WRITE, path, C, "a.txt") as first, waiting(WRITE, path, C, "b.txt") as second:
        assert let_go(first, second) == [0, 0]
    rows = all_rows(store, C)
    assert {row.key for row in rows} == {
        f"{n:032x}-{build}" for n in range(len(make_segments())) for build in range(20)
    }
    used = len({(row.document_id, row.path, ascii(row.fields)) for row in rows})
    assert value(path, "SELECT count(*) FROM segment_origin") == used


STOPPED = """
import sys
from lazyrag.stores.sqlite import MapFileSegmentStore
from lazyrag.stores.sqlite import StoreFile
from lazyrag.testing.suites import make_segments

def stop(statement):
    if statement.startswith(sys.argv[3]):
        print("ready", flush=True)
        sys.stdin.readline()

file = StoreFile(sys.argv[1])
file.writer._connection.set_trace_callback(stop)
MapFileSegmentStore(file).upsert(sys.argv[2], [row._replace(path="new") for row in make_segments()])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO segment_origin",
        "INSERT INTO segment ",
        "UPDATE segment",
        "DELETE FROM segment_origin",
        "COMMIT",
    ],
)
def test_a_killed_writer_leaves_nothing_of_its_transaction(store, path, statement):
    """Killed before any of its statements: all is as it was before, nobody waits for it, and the
    file is whole.
    """
    before = make_segments()[:10]
    store.upsert(C, before)
    with waiting(STOPPED, path, C, statement) as process:
        assert all_rows(store, C) == before
        process.kill()
        process.wait(60)
    assert all_rows(store, C) == before
    store.upsert(C, make_segments())
    assert all_rows(store, C) == make_segments()
    assert value(path, "PRAGMA integrity_check") == "ok"
    assert (
        value(
            path, "SELECT count(*) FROM segment_origin WHERE id NOT IN (SELECT origin FROM segment)"
        )
        == 0
    )
