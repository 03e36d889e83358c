"""The embedding cache and the embedder that uses it: what is kept, what is never mixed, what a
crash cannot take.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import signal
import sqlite3
import threading
import uuid
import zlib
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, Retriever
from lazyrag.errors import CacheWarning, ConfigError, EmbeddingError, StoreError
from lazyrag.models import embedding_cache as cache_module
from lazyrag.models.embedding_cache import (
    ROW_BYTES,
    CachedEmbedder,
    CacheStats,
    EmbeddingCache,
    VectorSpace,
    spec_names,
)
from lazyrag.models.protocols import BatchEmbedder
from tests.interpreter import let_go, waiting

SPACE = VectorSpace("toy:length", "document", 2, False)
ROW = ROW_BYTES + 8  # what a vector of two numbers counts


def dense(*numbers) -> np.ndarray:
    """A vector."""
    return np.array(numbers, np.float32)


def same(one, other) -> bool:
    """Whether two results hold the same vectors, bit for bit, of the same types."""
    return one.keys() == other.keys() and all(
        _bits(one[text]) == _bits(other[text]) for text in one
    )


def _bits(vector):
    if isinstance(vector, dict):
        return {key: (type(key), np.float64(weight).tobytes()) for key, weight in vector.items()}
    return vector.dtype, vector.shape, vector.tobytes()


@pytest.fixture
def path(tmp_path):
    """Where there is no cache yet."""
    return tmp_path / "cache.db"


@pytest.fixture
def cache(path):
    """An empty cache."""
    with EmbeddingCache(path) as opened:
        yield opened


def raw(path, statement, *parameters):
    """Do something to a cache's file behind its back."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(statement, parameters).fetchall()
        connection.commit()
        return rows


_float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
_dense = st.lists(_float32, min_size=3, max_size=3).map(lambda numbers: dense(*numbers))
_weights = _float32.filter(bool)
_sparse = st.dictionaries(st.integers(0, 2**64 - 1), _weights, max_size=4)
# half surrogate pairs included, as files may hold them
_texts = st.text(st.characters(), min_size=1, max_size=4)


@given(st.dictionaries(_texts, st.one_of(_dense, _sparse), max_size=6))
def test_a_vector_comes_back_bit_for_bit(tmp_path_factory, vectors):
    """Dense ones as float32, -0.0 and the smallest numbers included; sparse ones in order."""
    space = VectorSpace("toy")
    with EmbeddingCache(tmp_path_factory.mktemp("bits") / "cache.db") as cache:
        cache.put_many(space, vectors)
        found = cache.get_many(space, [*vectors, "not there", *vectors])
    assert same(found, vectors)
    assert [list(one) for one in found.values() if isinstance(one, dict)] == [
        list(vectors[text]) for text, one in found.items() if isinstance(one, dict)
    ]


def test_the_next_program_finds_what_this_one_stored(path):
    """The file is closed in one piece, and opened again."""
    vectors = {"tea": dense(1, -0.0), "coffee": dense(3, 1e-45)}
    with EmbeddingCache(path) as cache:
        cache.put_many(SPACE, vectors)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    with EmbeddingCache(path) as cache:
        assert same(cache.get_many(SPACE, vectors), vectors)


def test_a_vector_is_a_copy_of_ones_own(cache):
    """What a caller does to it changes neither the cache nor another's."""
    vector = dense(1, 2)
    cache.put_many(SPACE, {"tea": vector})
    vector[0] = 9
    cache.get_many(SPACE, ["tea"])["tea"][1] = 9
    assert same(cache.get_many(SPACE, ["tea"]), {"tea": dense(1, 2)})


@pytest.mark.slow
def test_thousands_of_texts_at_once(cache):
    """More than a statement of SQLite has variables for."""
    vectors = {f"text {number}": dense(number, -number) for number in range(3000)}
    cache.put_many(SPACE, vectors)
    assert same(cache.get_many(SPACE, [*map(str, range(40_000)), *reversed(vectors)]), vectors)
    assert len(cache) == 3000
    assert cache.size_bytes == 3000 * ROW


def test_a_text_that_is_there_gets_the_new_vector(cache):
    """One row for each text; its size is counted anew."""
    space = VectorSpace("splade")
    cache.put_many(space, {"tea": {1: 0.5, 7: 0.25}, "coffee": {2: 1.0}})
    cache.put_many(space, {"tea": {3: 2.0}})
    assert cache.get_many(space, ["tea", "coffee"]) == {"tea": {3: 2.0}, "coffee": {2: 1.0}}
    assert (len(cache), cache.size_bytes) == (2, 2 * (ROW_BYTES + 16))


OTHER_SPACES = [
    VectorSpace("toy:width", "document", 2, False),
    VectorSpace("toy:length", "query", 2, False),
    VectorSpace("toy:length", "document", 0, False),
    VectorSpace("toy:length", "document", 3, False),
    VectorSpace("toy:length", "document", 2, True),
]


@pytest.mark.parametrize("other", OTHER_SPACES, ids=str)
def test_what_differs_in_one_part_of_the_key_is_a_miss(cache, other):
    """Another model, input type, dimension or normalisation: its vectors lie beside, and neither
    sees the other's.
    """
    cache.put_many(SPACE, {"tea": dense(1, 2)})
    assert cache.get_many(other, ["tea"]) == {}
    third = dense(*range(other.dimension or 2))
    cache.put_many(other, {"tea": third})
    assert same(cache.get_many(other, ["tea"]), {"tea": third})
    assert same(cache.get_many(SPACE, ["tea"]), {"tea": dense(1, 2)})


def test_texts_are_told_apart_to_the_last_character(cache):
    """Nothing is stripped, folded or composed."""
    texts = [
        "tea",
        "Tea",
        "tea ",
        "te\u0301a",
        "t\u00e9a",
        "tea\0",
        "茶",
        "\ud800",
        "\udc00",
        "?",
        "\ufffd",
        "",
    ]
    cache.put_many(SPACE, {text: dense(position, 1) for position, text in enumerate(texts)})
    found = cache.get_many(SPACE, texts)
    assert [found[text][0] for text in texts] == list(range(len(texts)))


@pytest.mark.parametrize(
    "vector",
    [
        [float("nan"), 1.0],
        dense(1, np.inf),
        dense(1, 2, 3),
        np.zeros((1, 2)),
        [],
        None,
        "tea",
        EmbeddingError("no"),
        {1: float("nan")},
        {-1: 1.0},
        {2**64: 1.0},
    ],
    ids=lambda one: repr(one)[:24],
)
def test_what_is_no_vector_is_refused(cache, vector):
    """The error names the text; of that call nothing is stored."""
    with pytest.raises(ConfigError, match="ext 'coffee'"):
        cache.put_many(SPACE, {"tea": dense(1, 2), "coffee": vector})
    assert len(cache) == 0


def test_vectors_of_one_space_have_one_length(cache):
    """Also where the dimension was not known before the first call: another length is another
    model, or a mistake.
    """
    space = VectorSpace("toy")
    with pytest.raises(ConfigError, match="Vectors of 2 and 3 numbers cannot be the same model's"):
        cache.put_many(space, {"tea": dense(1, 2), "coffee": dense(1, 2, 3)})
    cache.put_many(space, {"tea": dense(1, 2)})
    with pytest.raises(ConfigError, match="identity of its own"):
        cache.put_many(space, {"coffee": dense(1, 2, 3)})
    assert len(cache) == 1
    cache.clear()
    cache.put_many(space, {"coffee": dense(1, 2, 3)})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "names the model; got ''"),
        ((" ",), "names the model"),
        ((None,), "names the model"),
        (("model \ud800",), "names the model"),
        (("toy", "passage"), "Unknown input_type 'passage'. Known: document, query"),
        (("toy", "query", -1), "dimension"),
        (("toy", "query", None), "dimension"),
    ],
    ids=repr,
)
def test_a_space_is_checked(arguments, message):
    """Before anything is looked up in it."""
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        VectorSpace(*arguments)


def test_arguments_are_checked(path, cache):
    """A bound of at least 1; texts in a list, not one text, whose letters would be looked up."""
    with pytest.raises(ConfigError, match="max_bytes"):
        EmbeddingCache(path, max_bytes=0)
    with pytest.raises(ConfigError, match="Did you mean 'max_bytes'"):
        EmbeddingCache(path, max_byte=5)
    with pytest.raises(ConfigError, match="list"):
        cache.get_many(SPACE, "tea")


def test_numbers_of_numpy_will_do(cache):
    """As a dimension that was read from an array's shape."""
    cache.put_many(VectorSpace("toy", "query", np.int64(2), np.bool_(True)), {"tea": dense(1, 2)})
    assert list(cache.get_many(VectorSpace("toy", "query", 2, True), ["tea"])) == ["tea"]


def test_hits_and_misses_are_counted(path, cache):
    """By the object, each text once per call."""
    assert cache.stats == CacheStats(0, 0, 0)
    cache.put_many(SPACE, {"tea": dense(1, 2), "coffee": dense(3, 4)})
    cache.get_many(SPACE, ["tea", "tea", "coffee", "juice"])
    cache.get_many(VectorSpace("other"), ["tea"])
    cache.get_many(SPACE, [])
    assert cache.stats == CacheStats(2, 2, 0)
    with EmbeddingCache(path) as again:
        assert again.stats == CacheStats()
    assert cache
    assert repr(cache) == f"EmbeddingCache({str(path)!r}, max_bytes={cache.max_bytes})"


def _flipped(blob: bytes) -> bytes:
    return bytes([blob[0] ^ 1]) + blob[1:]


def _nan_with_its_checksum(text: str):
    blob = dense(1, np.nan).tobytes()
    return blob, zlib.crc32(blob, zlib.crc32(hashlib.sha256(text.encode()).digest()))


TEA = dense(1, 2).tobytes()
DAMAGES = {
    "truncated": ("UPDATE vector SET numbers = ? WHERE id = 1", TEA[:4]),
    "cut within a number": ("UPDATE vector SET numbers = ? WHERE id = 1", TEA[:7]),
    "longer": ("UPDATE vector SET numbers = ? WHERE id = 1", TEA + TEA),
    "empty": ("UPDATE vector SET numbers = ? WHERE id = 1", b""),
    "a text": ("UPDATE vector SET numbers = ? WHERE id = 1", "AACAPwAAAEA="),
    "one bit": ("UPDATE vector SET numbers = ? WHERE id = 1", _flipped(TEA)),
    "nan": (
        "UPDATE vector SET numbers = ?, checksum = ? WHERE id = 1",
        *_nan_with_its_checksum("tea"),
    ),
    "another text's": (
        "UPDATE vector SET (numbers, checksum) = (SELECT numbers, checksum FROM vector WHERE id = 2) WHERE id = 1",
    ),
    "taken for sparse": ("UPDATE vector SET kind = 1 WHERE id = 1",),
    "of an unknown kind": ("UPDATE vector SET kind = 2 WHERE id = 1",),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("dimension", [0, 2])
def test_a_damaged_row_is_never_returned(path, cache, damage, dimension):
    """It is deleted and counts as a miss, the rows beside it are as they were; then there is room
    for a whole one.
    """
    space = VectorSpace("toy:length", "document", dimension)
    vectors = {"tea": dense(1, 2), "coffee": dense(3, 4)}
    cache.put_many(space, vectors)
    statement, *parameters = DAMAGES[damage]
    raw(path, statement, *parameters)
    assert [row.get_embedding() for row in cache.embeddings()] == [[3.0, 4.0]]
    assert same(cache.get_many(space, ["tea", "coffee"]), {"coffee": dense(3, 4)})
    assert cache.stats == CacheStats(hits=1, misses=1, damaged=1)
    assert (len(cache), cache.size_bytes) == (1, ROW)
    cache.put_many(space, vectors)
    assert same(cache.get_many(space, vectors), vectors)


def test_a_damaged_sparse_row_is_never_returned(path, cache):
    """Also where its checksum is right: the lengths and numbers are looked at."""
    space = VectorSpace("splade")
    for blob in (b"\0" * 8, np.array([7], "<u8").tobytes() + np.array([np.inf], "<f8").tobytes()):
        cache.put_many(space, {"tea": {7: 1.0}})
        checksum = zlib.crc32(blob, zlib.crc32(hashlib.sha256(b"tea").digest(), 1))
        raw(path, "UPDATE vector SET numbers = ?, checksum = ?", blob, checksum)
        assert cache.get_many(space, ["tea"]) == {}
        assert len(cache) == 0


def test_a_damaged_kind_does_not_make_another_vector(path, cache):
    """Four float32 numbers could well be one dimension and its weight."""
    space = VectorSpace("toy")
    cache.put_many(space, {"tea": dense(1, 2, 3, 4)})
    raw(path, "UPDATE vector SET kind = 1")
    assert cache.get_many(space, ["tea"]) == {}
    cache.put_many(space, {"tea": {7: 1.5}})
    raw(path, "UPDATE vector SET kind = 0")
    assert cache.get_many(space, ["tea"]) == {}


def test_a_damaged_first_row_does_not_decide_how_long_vectors_are(path, cache):
    """In a space whose dimension was not known."""
    space = VectorSpace("toy")
    cache.put_many(space, {"tea": dense(1, 2)})
    raw(path, "UPDATE vector SET numbers = ?", TEA[:4])
    cache.put_many(space, {"coffee": dense(3, 4)})
    assert list(cache.get_many(space, ["tea", "coffee"])) == ["coffee"]


def test_a_damaged_file_is_an_error_that_says_to_delete_it(path):
    """It is never made anew behind the user's back: that there is damage is something to know."""
    with EmbeddingCache(path) as cache:
        cache.put_many(SPACE, {str(number): dense(number, 1) for number in range(500)})
    content = bytearray(path.read_bytes())
    # all pages but the first, which has the tables' names
    content[16384:] = b"\xaa" * (len(content) - 16384)
    path.write_bytes(content)
    with EmbeddingCache(path) as cache:
        with pytest.raises(
            StoreError, match=r"damaged\. It holds nothing that cannot be computed again: delete it"
        ):
            cache.get_many(SPACE, ["1"])
        with pytest.raises(StoreError, match="delete it"):
            cache.put_many(SPACE, {"1": dense(1, 2)})
    assert path.stat().st_size == len(content)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="delete it"):
        EmbeddingCache(path)
    assert path.read_bytes() == b"no database at all" * 100


def test_another_kind_of_database_is_refused(path):
    """Also a cache of a newer release, with what to do."""
    EmbeddingCache(path).close()
    raw(path, "PRAGMA user_version = 99")
    with pytest.raises(
        StoreError, match=r"The embedding cache '.*' has format 99, written by a newer release"
    ):
        EmbeddingCache(path)
    raw(path, "PRAGMA application_id = 99")
    with pytest.raises(StoreError, match="another kind"):
        EmbeddingCache(path)


def fill(cache, *texts):
    """Store one text after the other."""
    for text in texts:
        cache.put_many(SPACE, {text: dense(len(text), 1)})


def size_of(folder) -> int:
    """The bytes of all files in it."""
    return sum(file.stat().st_size for file in folder.iterdir())


def there(path) -> set[str]:
    """Which of the texts a to z a cache holds."""
    with EmbeddingCache(path) as cache:
        return set(
            cache.get_many(SPACE, "a b c d e f g h i j k l m n o p q r s t u v w x y z".split())
        )


def test_when_it_is_full_the_oldest_go(path):
    """Nothing up to the bound; beyond it, as many as are needed to get to 90 % of it."""
    with EmbeddingCache(path, max_bytes=10 * ROW) as cache:
        fill(cache, *"abcdefghij")
        assert (len(cache), cache.size_bytes) == (10, 10 * ROW)
        fill(cache, "k")
        assert (len(cache), cache.size_bytes) == (9, 9 * ROW)
    assert there(path) == set("cdefghijk")


def test_what_was_used_stays(path):
    """Reading counts as use, and so does being stored again."""
    with EmbeddingCache(path, max_bytes=10 * ROW) as cache:
        fill(cache, *"abcdefghij")
        cache.get_many(SPACE, ["a", "c"])
        fill(cache, "b", "k")
    assert there(path) == set("abcfghijk")


def test_reading_writes_nothing(path, cache):
    """The uses are remembered, and written with what is stored next."""
    fill(cache, "a", "b")
    with closing(sqlite3.connect(path)) as other:
        before = other.execute("PRAGMA data_version").fetchone()
        uses = raw(path, "SELECT used FROM vector")
        for _ in range(3):
            cache.get_many(SPACE, ["a", "b", "c"])
        assert other.execute("PRAGMA data_version").fetchone() == before
        fill(cache, "c")
        assert other.execute("PRAGMA data_version").fetchone() != before
    assert raw(path, "SELECT used FROM vector") > uses


def test_uses_are_written_at_the_end(path):
    """The next process knows of them."""
    with EmbeddingCache(path, max_bytes=10 * ROW) as cache:
        fill(cache, *"abcdefghij")
    with EmbeddingCache(path) as cache:
        cache.get_many(SPACE, ["a"])
    with EmbeddingCache(path, max_bytes=10 * ROW) as cache:
        fill(cache, "k")
    assert "a" in there(path)


def test_many_uses_are_written_in_between(path, cache, monkeypatch):
    """So that a program that only reads does not remember them all until its end."""
    monkeypatch.setattr(cache_module, "_USES_AT_ONCE", 3)
    fill(cache, *"abc")
    cache.get_many(SPACE, ["a", "b"])
    uses = raw(path, "SELECT used FROM vector")
    assert len(set(uses)) == 3
    cache.get_many(SPACE, ["c"])
    assert len(set(raw(path, "SELECT used FROM vector"))) == 1


def test_closing_a_locked_cache_loses_the_uses_only(path):
    """They are no reason to fail: only the order in which vectors will have to go depends on
    them.
    """
    with EmbeddingCache(path, timeout_s=0.05) as cache, EmbeddingCache(path) as other:
        fill(cache, "a")
        cache.get_many(SPACE, ["a"])
        with other.reading() as connection:
            connection.execute("UPDATE vector SET used = 77")
            cache.close()
    assert raw(path, "SELECT used FROM vector") == [(77,)]


def test_a_bound_that_is_too_small_for_anything(path):
    """Holds all the same: nothing stays, and nothing fails."""
    with EmbeddingCache(path, max_bytes=5) as cache:
        fill(cache, *"ab")
        assert (len(cache), cache.size_bytes) == (0, 0)


_operations = st.lists(
    st.tuples(
        st.sampled_from(["put", "get"]),
        st.lists(st.integers(0, 9).map(str), min_size=1, max_size=4, unique=True),
    ),
    max_size=12,
)


@given(_operations, st.integers(1, 6))
def test_whatever_is_done_the_bound_holds_and_hits_are_right(tmp_path_factory, operations, room):
    """Never more than the bound; the latest vector of each text; what was just stored goes after
    all the rest.
    """
    latest = {}
    with EmbeddingCache(
        tmp_path_factory.mktemp("bound") / "cache.db", max_bytes=room * ROW
    ) as cache:
        for number, (operation, texts) in enumerate(operations):
            if operation == "put":
                vectors = {text: dense(number, int(text)) for text in texts}
                latest |= vectors
                cache.put_many(SPACE, vectors)
            found = cache.get_many(SPACE, texts)
            assert same(found, {text: latest[text] for text in found})
            assert len(cache) * ROW == cache.size_bytes <= room * ROW
            if operation == "put" and len(found) < len(texts):
                assert len(found) == len(cache)


@pytest.mark.slow
def test_clear_empties_it_and_gives_the_room_back(path, cache):
    """It can be used on."""
    cache.put_many(SPACE, {str(number): dense(number, 1) for number in range(5000)})
    before = size_of(path.parent)
    cache.clear()
    assert (len(cache), cache.size_bytes) == (0, 0)
    assert size_of(path.parent) < before / 3
    assert cache.get_many(SPACE, ["1"]) == {}
    fill(cache, "a")
    assert len(cache) == 1


def test_what_was_not_used_for_long_goes(path, monkeypatch):
    """What was looked up or stored later stays, and what is named: that counts as used now."""
    now = 1_800_000_000
    monkeypatch.setattr(cache_module.time, "time", lambda: now)
    read = []

    def texts():
        read.append(now)
        yield SPACE.identity, ["f"]

    with EmbeddingCache(path) as cache:
        fill(cache, *"abcf")
        now += 86_400
        cache.get_many(SPACE, ["a"])
        fill(cache, "b")
        now += 100_000
        cache.get_many(SPACE, ["c"])  # a use that is not written yet
        fill(cache, "d")
        cache.retain(texts(), unused_days=3)
        assert (len(cache), read) == (5, [])
        now += 80_000
        cache.retain(texts(), unused_days=2)
        assert there(path) == set("cdf")
        cache.retain(texts(), unused_days=2)
        assert read == [now]


def test_a_file_of_the_first_format_keeps_its_vectors(path):
    """Their last use counts from when they were stored."""
    with EmbeddingCache(path) as cache:
        fill(cache, *"ab")
    raw(path, "UPDATE vector SET used = 1")
    raw(path, "PRAGMA user_version = 1")
    with EmbeddingCache(path) as cache:
        cache.retain([], unused_days=1)
    assert there(path) == set("ab")


def test_only_what_is_named_is_retained(path):
    """By model and text; queries stay with their model, and what is stored meanwhile stays."""
    spaces = {name: VectorSpace(name, dimension=2) for name in ("own", "old", "shared")}
    queries = {name: VectorSpace(name, "query", 2) for name in ("own", "old")}
    with EmbeddingCache(path) as cache:
        for space in (*spaces.values(), *queries.values()):
            cache.put_many(space, {"tea": dense(1, 2), "milk": dense(3, 4)})

        def texts():
            yield "own", ["tea"]
            cache.put_many(spaces["own"], {"new": dense(5, 6)})
            yield "own", ["cocoa"]

        for _ in range(2):
            cache.retain(texts(), ["shared"])
            kept = {
                name: set(cache.get_many(space, ["tea", "milk", "new"]))
                for name, space in spaces.items()
            }
            assert kept == {"own": {"tea", "new"}, "old": set(), "shared": {"tea", "milk"}}
            assert [len(cache.get_many(space, ["tea", "milk"])) for space in queries.values()] == [
                2,
                0,
            ]


PROCESS = """
import sys
import numpy as np
from lazyrag.models.embedding_cache import EmbeddingCache, VectorSpace
number = int(sys.argv[2])
space = VectorSpace("toy:length", "document", 2)
print("ready", flush=True)
sys.stdin.readline()
with EmbeddingCache(sys.argv[1], timeout_s=120) as cache:
    for batch in range(10):
        texts = [f"{number} {batch} {place}" for place in range(20)] + [f"shared {batch}"]
        cache.put_many(space, {text: np.array([len(text), batch], np.float32) for text in texts})
        assert len(cache.get_many(space, texts)) == 21
"""


@pytest.mark.slow
def test_processes_share_a_cache(path):
    """Four that begin with a new file at the same time: all that each of them stored is there in
    the end.
    """
    with ExitStack() as running:
        processes = [running.enter_context(waiting(PROCESS, path, number)) for number in range(4)]
        assert let_go(*processes) == [0] * 4
    texts = [
        f"{number} {batch} {position}"
        for number in range(4)
        for batch in range(10)
        for position in range(20)
    ]
    texts += [f"shared {batch}" for batch in range(10)]
    with EmbeddingCache(path) as cache:
        found = cache.get_many(SPACE, texts)
        assert len(cache) == len(found) == len(texts) == 810
        assert cache.size_bytes == 810 * ROW
    assert all(found[text][0] == len(text) for text in texts)


def test_threads_share_a_cache(path):
    """Eight on one object whose bound makes room all the time: what they find is right, what they
    count adds up.
    """
    wrong = []
    with EmbeddingCache(path, max_bytes=60 * ROW) as cache:

        def work(number):
            for step in range(20):
                texts = [f"{(number + step + position) % 40}" for position in range(5)]
                found = cache.get_many(SPACE, texts)
                wrong.extend(text for text in found if found[text][0] != int(text))
                cache.put_many(SPACE, {text: dense(int(text), step) for text in texts})

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert cache.stats.hits + cache.stats.misses == 8 * 20 * 5
        assert len(cache) * ROW == cache.size_bytes


KILLED = """
import os, signal, sys
from lazyrag.models.embedding_cache import CachedEmbedder
calls = []
def embed(texts):
    calls.append(texts)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return [[float(len(text)), 1.0] for text in texts]
embed.batch_size = 2
print("ready", flush=True)
sys.stdin.readline()
CachedEmbedder(embed, sys.argv[1], identity="toy:length").embed(["a", "bb", "ccc", "dddd", "eeeee", "ffffff"])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_finished_batch_survives_a_crash(path):
    """A process that is killed in its third batch leaves the first two in a whole file; a re-run
    asks for the rest.
    """
    with waiting(KILLED, path) as process:
        assert let_go(process) == [-signal.SIGKILL]
    model = Model(batch_size=2)
    with CachedEmbedder(model, path, identity="toy:length") as embedder:
        assert len(embedder.cache) == 4
        texts = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff"]
        assert embedder.embed(texts).tolist() == [[float(len(text)), 1.0] for text in texts]
    assert model.calls == [["eeeee", "ffffff"]]
    assert raw(path, "PRAGMA integrity_check") == [("ok",)]


def test_spec_004s_table_as_rows(cache):
    """Its seven columns: names from the identity, SHA-256 of the text, Base64 of float32, UTC
    times.
    """
    before = datetime.now(UTC) - timedelta(seconds=1)
    cache.put_many(
        VectorSpace("openai:text-embedding-3-small", "document", 2), {"茶": dense(0.5, -2)}
    )
    [row] = cache.embeddings()
    assert row.provider_name == "openai"
    assert row.model_name == "text-embedding-3-small (2)"
    assert row.hash == hashlib.sha256("茶".encode()).hexdigest()
    assert (
        row.embedding_vector == base64.b64encode(np.array([0.5, -2], np.float32).tobytes()).decode()
    )
    assert row.get_embedding() == [0.5, -2.0]
    assert str(uuid.UUID(row.id)) == row.id
    for told in (row.created_at, row.updated_at):
        time = datetime.strptime(told, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        assert before <= time <= datetime.now(UTC)


def test_a_new_vector_is_an_update_of_its_row(path, cache):
    """The id and the time it was made stay."""
    cache.put_many(SPACE, {"tea": dense(1, 2)})
    raw(path, "UPDATE vector SET created_at = 0, updated_at = 0")
    [old] = cache.embeddings()
    assert old.updated_at == "1970-01-01T00:00:00Z"
    cache.put_many(SPACE, {"tea": dense(3, 4)})
    [new] = cache.embeddings()
    assert (new.id, new.created_at) == (old.id, old.created_at)
    assert new.updated_at > old.updated_at
    assert new.get_embedding() == [3.0, 4.0]


def test_an_id_is_the_same_in_every_file(tmp_path):
    """So that exported rows of two caches do not collide."""
    ids = []
    for name in ("a", "b"):
        with EmbeddingCache(tmp_path / name) as cache:
            if name == "b":
                fill(cache, "something else")
            fill(cache, "tea")
            ids.append(
                {row.hash: row.id for row in cache.embeddings()}[hashlib.sha256(b"tea").hexdigest()]
            )
    assert ids[0] == ids[1]


def test_the_tables_key_is_unique(cache):
    """Also over several dimensions and normalisations of one model; questions and sparse vectors
    are no rows of it.
    """
    spaces = [SPACE, *OTHER_SPACES]
    for space in spaces:
        cache.put_many(
            space, {text: dense(*range(space.dimension or 2)) for text in ("tea", "coffee")}
        )
    cache.put_many(VectorSpace("splade"), {"tea": {1: 1.0}})
    rows = list(cache.embeddings())
    assert len(rows) == 2 * 5
    assert (
        len({(row.model_name, row.hash, row.provider_name) for row in rows})
        == len({row.id for row in rows})
        == 10
    )
    assert {row.model_name for row in rows} == {
        "length (2)",
        "width (2)",
        "length",
        "length (3)",
        "length (2, normalised)",
    }


def test_the_table_can_be_asked_in_sql(cache):
    """A view on the cache's own connection."""
    fill(cache, "tea", "coffee")
    with cache.reading() as connection:
        found = connection.execute(
            "SELECT embedding_vector FROM embeddings WHERE provider_name = 'toy' AND hash = ?",
            (hashlib.sha256(b"tea").hexdigest(),),
        ).fetchall()
    assert [
        np.frombuffer(base64.b64decode(vector), np.float32).tolist() for (vector,) in found
    ] == [[3.0, 1.0]]


def test_a_large_table_is_read_in_pages(cache, monkeypatch):
    """Every row once; the cache can be used meanwhile."""
    monkeypatch.setattr(cache_module, "_ROWS_AT_ONCE", 3)
    for count in (3, 7):
        cache.put_many(SPACE, {str(number): dense(number, 1) for number in range(count)})
        seen = []
        for row in cache.embeddings():
            seen.append(row.get_embedding()[0])
            assert cache.get_many(SPACE, ["1"])
        assert seen == list(range(count))


_names = st.text(alphabet="a:( )1,n", min_size=1, max_size=6) | st.sampled_from(
    ["a", "a:a", ":a", "a:", "a ()"]
)
_keys = st.tuples(_names, st.integers(0, 2), st.booleans())


@given(_keys, _keys)
def test_two_spaces_never_have_the_same_names(one, other):
    """Whatever an identity looks like; also one that looks like the names of another one."""
    names = spec_names(*one)
    twin = (":".join(filter(None, names)), 0, False)
    for key in (other, twin):
        assert (spec_names(*key) == names) == (key == one)


class Model:
    """Gets lists of texts, remembers them, answers with their lengths."""

    def __init__(self, answer=lambda text: [float(len(text)), 1.0], batch_size=100):
        self.answer = answer
        self.batch_size = batch_size
        self.calls = []

    def __call__(self, texts, input_type="document"):
        """Their vectors."""
        self.calls.append(list(texts))
        return [self.answer(text) for text in texts]

    @property
    def texts(self):
        """All texts that it was asked for."""
        return [text for call in self.calls for text in call]


class Declared:
    """An embedder that says everything of itself."""

    identity = "toy:declared"
    dimension = 2
    max_tokens = 77
    normalised = True

    def __init__(self, answer=lambda text: [float(len(text)), 1.0]):
        self.answer = answer
        self.asked = []

    def embed(self, texts, input_type="document"):
        """Lengths."""
        self.asked.append((list(texts), input_type))
        return [self.answer(text) for text in texts]


def cached(model, cache, identity="toy:length"):
    """An embedder with a cache."""
    return CachedEmbedder(model, cache, identity=identity)


def test_only_what_is_missing_is_asked_for(cache):
    """Each text once, in the order asked for; the results lie where their texts are."""
    model = Model()
    embedder = cached(model, cache)
    embedder.embed(["bb", "dddd"])
    matrix = embedder.embed(["a", "bb", "a", "ccc", "dddd", "bb", "eeeee"])
    assert matrix[:, 0].tolist() == [1, 2, 1, 3, 4, 2, 5]
    assert (matrix.dtype, matrix.shape) == (np.float32, (7, 2))
    assert model.calls == [["bb", "dddd"], ["a", "ccc", "eeeee"]]
    assert isinstance(embedder, BatchEmbedder)
    assert repr(embedder) == f"CachedEmbedder('toy:length', {cache!r})"


@pytest.mark.parametrize("kind", ["one text", "lists", "an embedder", "an embedder with batches"])
def test_a_warm_cache_asks_nothing(path, kind):
    """A second run, in a new process or not, makes no call, and gives the same bits."""
    calls = []

    def vector(text):
        calls.append(text)
        return np.random.default_rng(len(text)).standard_normal(2).astype(np.float32)

    def inner():
        model = {"one text": vector, "lists": Model(vector, batch_size=3)}.get(
            kind, Declared(vector)
        )
        return (
            CachedEmbedder(model, path.with_name("inner.db"))
            if kind == "an embedder with batches"
            else model
        )

    texts = [f"{'x' * length}" for length in range(1, 2000, 60)]
    runs = []
    for _ in range(2):
        with (
            closing(model) if hasattr(model := inner(), "close") else closing(EmbeddingCache(path)),
            cached(model, path) as embedder,
        ):
            runs.append(embedder.embed(texts))
        assert len(calls) == len(texts)
    assert runs[0].tobytes() == runs[1].tobytes()


@pytest.mark.slow
def test_more_texts_than_are_looked_up_at_once(cache):
    """Hits and misses of all stretches end in their places, and the misses are asked for
    together.
    """
    model = Model(lambda text: [float(text), 1.0], batch_size=10_000)
    embedder = cached(model, cache)
    texts = [str(number) for number in range(2500)]
    embedder.embed(texts[::3])
    assert embedder.embed(texts)[:, 0].tolist() == list(range(2500))
    assert len(model.calls) == 2


def test_no_texts(cache):
    """An empty array, and no call."""
    model = Model()
    assert cached(model, cache).embed([]).shape == (0, 0)
    assert CachedEmbedder(Declared(), cache).embed([]).shape == (0, 2)
    assert model.calls == []


def test_what_the_embedder_says_of_itself_is_passed_on(cache):
    """So that it makes no difference to a Document whether there is a cache."""
    embedder = CachedEmbedder(Declared(), cache)
    assert (embedder.identity, embedder.dimension, embedder.max_tokens, embedder.normalised) == (
        "toy:declared",
        2,
        77,
        True,
    )
    assert not hasattr(embedder, "batch_size")
    bare = cached(Model(batch_size=7), cache)
    assert (bare.dimension, bare.max_tokens, bare.normalised, bare.batch_size) == (
        None,
        None,
        False,
        7,
    )


def test_sparse_vectors_are_kept_too(cache):
    """As dicts, equal to what the model gave."""
    answers = {"tea": {3: 0.25, 1: 2.5}, "coffee": {}}
    model = Model(answers.__getitem__)
    embedder = cached(model, cache)
    for _ in range(2):
        assert embedder.embed(["coffee", "tea"]) == [answers["coffee"], answers["tea"]]
    assert len(model.calls) == 1


def test_a_vector_of_another_kind_than_the_cached_ones_fails(cache):
    """What the cache holds is sparse, so a dense answer is wrong, and is not kept; and the other
    way round.
    """
    for name, first, second in (("toy:sparse", {3: 1.0}, [1.0]), ("toy:dense", [1.0], {3: 1.0})):
        model = Model({"tea": first, "coffee": second}.__getitem__)
        embedder = CachedEmbedder(model, cache, identity=name)
        embedder.embed(["tea"])
        with pytest.raises(EmbeddingError, match="vectors of one embed key are of one kind"):
            embedder.embed(["tea", "coffee"])
        assert set(cache.get_many(VectorSpace(name), ["tea", "coffee"])) == {"tea"}


def test_a_vector_that_is_none_shifts_nothing(cache):
    """The fault of caches that drop a NaN and pair what is left with the texts: here the text fails
    alone.
    """
    broken = True

    def answer(text):
        return [float("nan"), 1.0] if broken and text == "a" else [float(len(text)), 1.0]

    model = Model(answer)
    embedder = cached(model, cache)
    results = {}
    for batch in embedder.embed_batches(["a", "bb", "ccc"]):
        results |= dict(zip(batch.positions, batch.results, strict=True))
    assert isinstance(results[0], EmbeddingError)
    assert [results[1].tolist(), results[2].tolist()] == [[2.0, 1.0], [3.0, 1.0]]
    assert set(cache.get_many(VectorSpace("toy:length"), ["a", "bb", "ccc"])) == {"bb", "ccc"}
    with pytest.raises(EmbeddingError, match="The embedder 'toy:length' returned"):
        embedder.embed(["bb", "a"])
    broken = False
    assert embedder.embed(["a", "bb", "ccc"])[:, 0].tolist() == [1, 2, 3]
    assert model.calls == [["a", "bb", "ccc"], ["a"], ["a"]]


def test_a_wrong_number_of_vectors_stores_nothing(cache):
    """Nobody can tell which vector belongs to which text."""

    def embed(texts):
        return [[1.0, 2.0]] * (len(texts) + 1)

    embed.batch_size = 2
    with pytest.raises(EmbeddingError):
        cached(embed, cache).embed(["a", "bb", "ccc", "dddd"])
    assert len(cache) == 0


def test_batches_before_a_failure_are_kept(cache):
    """As with a rate limit that is reached halfway: the next run pays for the rest only."""
    limit = 4

    def answer(text):
        if len(text) > limit:
            raise TimeoutError("too many requests")
        return [float(len(text)), 1.0]

    model = Model(answer, batch_size=2)
    embedder = cached(model, cache)
    texts = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff"]
    with pytest.raises(EmbeddingError, match="too many requests"):
        embedder.embed(texts)
    assert len(cache) == 4
    model.calls, limit = [], 6
    embedder.embed(texts)
    assert model.texts == ["eeeee", "ffffff"]


def test_a_reader_who_stops_keeps_what_he_got(cache):
    """Each batch is stored before it is handed over."""
    embedder = cached(Model(batch_size=2), cache)
    batches = embedder.embed_batches(["a", "bb", "ccc", "dddd"])
    assert list(next(batches).positions) == [0, 1]
    batches.close()
    assert len(cache) == 2


def test_questions_and_documents_are_kept_apart(cache):
    """Asymmetric models embed them differently; both are told which it is."""
    model = Declared()
    embedder = CachedEmbedder(model, cache)
    for _ in range(2):
        embedder.embed(["tea"])
        embedder.embed(["tea"], "query")
    assert model.asked == [(["tea"], "document"), (["tea"], "query")]
    with pytest.raises(ConfigError, match="Unknown input_type 'passage'"):
        embedder.embed(["tea"], "passage")


def test_settings_of_a_model_are_kept_apart(cache):
    """The same model cut to another dimension, normalised or not, or of another name, finds nothing
    of the first.
    """
    CachedEmbedder(Declared(), cache).embed(["tea"])
    for name, value in {"dimension": 1, "normalised": False, "identity": "toy:other"}.items():
        model = Declared(lambda text, count=value if name == "dimension" else 2: [1.0] * count)
        setattr(model, name, value)
        CachedEmbedder(model, cache).embed(["tea"])
        assert len(model.asked) == 1
    assert len(cache) == 4


def test_a_dimension_that_is_learned_later_changes_no_key(path):
    """An embedder that knows it after its first call finds its vectors again, in this run and the
    next.
    """

    class Learning(Declared):
        dimension = None

        def embed(self, texts, input_type="document"):
            self.dimension = 2
            return super().embed(texts, input_type)

    for asked in (1, 0):
        model = Learning()
        with CachedEmbedder(model, path) as embedder:
            embedder.embed(["tea"])
            embedder.embed(["tea"])
        assert len(model.asked) == asked
    assert embedder.dimension is None


def test_a_model_that_changed_under_its_name_is_noticed(cache):
    """Its vectors are not mixed with the old ones: beside a hit they are errors, alone they are
    used and not kept.
    """
    cached(Model(), cache).embed(["tea"])
    changed = cached(Model(lambda text: [1.0, 2.0, 3.0]), cache)
    with pytest.raises(EmbeddingError, match="different lengths: 3 instead of 2"):
        changed.embed(["tea", "coffee"])
    with pytest.warns(
        CacheWarning,
        match="Could not cache the vectors of 'toy:length': Vectors of 2 and 3 numbers",
    ):
        assert changed.embed(["coffee"]).tolist() == [[1.0, 2.0, 3.0]]
    assert len(cache) == 1


def test_whose_identity_counts(cache):
    """The one that is given, else the embedder's or callable's own."""
    model = Model()
    model.model_name = "toy:named"
    assert CachedEmbedder(model, cache).identity == "toy:named"
    assert CachedEmbedder(model, cache, identity="mine").identity == "mine"
    assert CachedEmbedder(Declared(), cache, identity="mine").identity == "mine"


def test_an_embedder_without_identity_is_refused(path):
    """The error says why and what to do, shows no keys, and no file has been made."""

    def embed(text, api_key):
        return [1.0]

    for model in (functools.partial(embed, api_key="sk-secret"), lambda text: [1.0]):
        with pytest.raises(
            ConfigError, match=r"does not say which model it is; .* Pass identity='provider:model'"
        ) as caught:
            CachedEmbedder(model, path)
        assert "secret" not in str(caught.value)
    for identity in ("", "  ", 5):
        with pytest.raises(ConfigError, match="identity"):
            CachedEmbedder(embed, path, identity=identity)
    assert not path.exists()


def test_vectors_that_cannot_be_stored_are_handed_over(path):
    """They have been paid for; a warning says why they are not kept, once for a call, and later
    calls try again.
    """
    model = Model(batch_size=2)
    with EmbeddingCache(path) as other, EmbeddingCache(path, timeout_s=0.05) as cache:
        embedder = cached(model, cache)
        with other.reading() as connection:
            connection.execute("UPDATE total SET bytes = bytes")  # and now it is locked
            with pytest.warns(CacheWarning) as caught:
                assert embedder.embed(["a", "bb", "ccc"])[:, 0].tolist() == [1, 2, 3]
        [warning] = caught
        assert "Could not cache the vectors of 'toy:length': The embedding cache" in str(
            warning.message
        )
        assert "is locked" in str(warning.message)
        assert warning.filename == __file__
        assert len(cache) == 0
        embedder.embed(["a", "bb", "ccc"])
        assert len(cache) == 3
        assert len(model.calls) == 4


def test_a_cache_that_cannot_be_read_is_an_error(path):
    """Nothing has been paid for yet, and who gave a cache does not want to pay twice."""
    model = Model()
    embedder = cached(model, path)
    embedder.close()
    with pytest.raises(StoreError, match="is closed"):
        embedder.embed(["a"])
    assert model.calls == []


def test_who_opens_a_cache_closes_it(path, cache):
    """A cache that was given stays open, one that was given as a path is closed."""
    with cached(Model(), cache) as embedder:
        embedder.embed(["a"])
    assert len(cache) == 1
    with cached(Model(), str(path)) as embedder:
        own = embedder.cache
    with pytest.raises(StoreError, match="is closed"):
        len(own)


def test_threads_share_an_embedder(path):
    """Two that ask for the same text may both call the model; all of them get the right vectors."""
    results = []
    with cached(Model(batch_size=3), path) as embedder:

        def work(shift):
            texts = ["x" * ((shift + number) % 30 + 1) for number in range(20)]
            results.append(embedder.embed(texts)[:, 0].tolist() == [len(text) for text in texts])

        threads = [threading.Thread(target=work, args=(shift,)) for shift in range(0, 30, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 6
        assert len(embedder.cache) == 30


def test_a_document_with_a_cache_is_embedded_once(folder, path):
    """A second Document over the same files asks the model for nothing, and answers in the same
    way.
    """
    root = folder(
        {
            "tea.txt": "green tea is brewed\n\nblack tea is steeped",
            "coffee.txt": "coffee is roasted",
        }
    )
    model = Model(lambda text: [text.count("tea") + 0.5, text.count("coffee") + 0.5])
    answers = []
    for _ in range(2):
        with cached(model, path) as embedder:
            documents = Document(root, embed=embedder)
            documents.create_node_group("blocks", lambda text: text.split("\n\n"))
            found = Retriever(documents, "blocks", similarity="cosine", topk=3)("tea")
            answers.append([(node.text, node.score) for node in found])
        assert sorted(model.texts) == sorted(
            {"green tea is brewed", "black tea is steeped", "coffee is roasted", "tea"}
        )
    assert answers[0] == answers[1]
    assert len(answers[0]) == 3
