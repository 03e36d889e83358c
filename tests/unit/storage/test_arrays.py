"""Array files: what is written comes back, what is damaged is found, what does not fit leaves
nothing behind.
"""

from __future__ import annotations

import gc
import json
import os
import struct
import tempfile
import threading
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError, StoreError
from lazyrag.storage.arrays import ALIGNMENT, ArrayFiles
from tests.interpreter import let_go, python, waiting
from tests.privileges import without_privileges

ARRAYS = {
    "rows": np.arange(1000, dtype=np.int32),
    "weights": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "keys": np.array([b"a-1", b"bb-22"]),
    "nothing": np.zeros((0, 7), np.float64),
}
UNKNOWN = "0" * 32 + ".arr"
ADVICE = r"Run docs.maintenance.verify\(\) and repair\(\)\."


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where there is no folder yet."""
    return tmp_path / "store.db.d"


@pytest.fixture(params=["folder", "memory"])
def files(request, folder):
    """Array files on disk, or in memory."""
    return ArrayFiles(folder if request.param == "folder" else None)


def same(read, written) -> bool:
    """Whether arrays have equal names, types, shapes and bits, whatever the order of their bytes
    was.
    """
    return read.keys() == written.keys() and all(
        one.dtype == (wanted := written[name].astype(written[name].dtype.newbyteorder("<"))).dtype
        and one.shape == wanted.shape
        and one.tobytes() == wanted.tobytes()
        for name, one in read.items()
    )


def made(kind: str, shape: tuple[int, ...], seed: int, order: str) -> np.ndarray:
    """An array of any bits that its type allows."""
    rng, size = np.random.default_rng(seed), np.dtype(kind).itemsize
    noise = rng.integers(0, 2 if kind == "?" else 256, (*shape, size), np.uint8)
    if "U" in kind:
        # not every number is a character
        noise = rng.integers(0, 0xD800, (*shape, size // 4), np.uint32)
    return np.asarray(np.ndarray(shape, kind, buffer=noise.tobytes() or bytes(64)), order=order)


_KINDS = "? u1 >u2 <u4 >u8 i1 <i2 >i4 <i8 <f2 >f4 <f8 <c8 >c16 <M8[ns] >M8[25s] >m8[D] S3 S1 <U4 <U1".split()
_arrays = st.builds(
    made,
    st.sampled_from(_KINDS),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(0, 9),
    st.sampled_from("CF"),
)


@given(
    st.dictionaries(st.text(st.characters(codec=None), max_size=5), _arrays, max_size=4),
    st.booleans(),
)
def test_any_arrays_come_back(tmp_path_factory, arrays, in_memory):
    """Every bit, type and shape, under any names; read-only, aligned, and whole when all of it is
    checked.
    """
    files = ArrayFiles(None if in_memory else tmp_path_factory.mktemp("any") / "d")
    name = files.write(arrays)
    read = files.open(name)
    assert same(read, arrays)
    assert [one.flags.writeable for one in read.values()] == [False] * len(arrays)
    assert [one.ctypes.data % ALIGNMENT for one in read.values() if one.size] == [
        0 for one in arrays.values() if one.size
    ]
    assert files.check(name) == ""


def test_what_is_no_slice_of_memory_comes_back_too(files):
    """Every second column, backwards."""
    arrays = {"a": np.arange(60).reshape(6, 10)[::-1, ::2]}
    assert same(files.open(files.write(arrays)), arrays)


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}, None]),
        np.array(["a"], np.dtypes.StringDType()),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, "V3"),
        [1, 2],
        None,
    ],
    ids=str,
)
def test_objects_are_refused(files, array):
    """What is no array of plain values, with its name and what is allowed; nothing is written."""
    with pytest.raises(
        ConfigError,
        match=r"The array 'odd' is of type .*hold numpy arrays of truth values, numbers",
    ):
        files.write({"good": np.arange(3), "odd": array})
    assert files.names() == []


def test_a_long_double_is_refused_where_it_is_longer(files):
    """It is another type on every other machine."""
    if np.dtype(np.longdouble).itemsize == 8:
        assert same(files.open(files.write({"a": np.ones(2, np.longdouble)})), {"a": np.ones(2)})
    else:
        with pytest.raises(ConfigError, match="up to 64 bits"):
            files.write({"a": np.ones(2, np.longdouble)})


def test_the_same_content_has_the_same_name(files):
    """Whatever the order of arrays, of bytes and of memory; other names, shapes, types or bits have
    others.
    """
    name = files.write(ARRAYS)
    turned = {
        key: np.asfortranarray(one.astype(one.dtype.newbyteorder(">")))
        for key, one in reversed(ARRAYS.items())
    }
    assert files.write(turned) == name
    others = [
        {**ARRAYS, "rows": np.arange(1000, dtype=np.uint32)},
        {**ARRAYS, "rows": np.arange(1000, dtype=np.int32).reshape(10, 100)},
        {**ARRAYS, "rows": np.arange(1, 1001, dtype=np.int32)},
        {**ARRAYS, "more": np.arange(0)},
        {("lines" if key == "rows" else key): one for key, one in ARRAYS.items()},
        {},
    ]
    names = {name, *map(files.write, others)}
    assert len(names) == 7
    assert files.names() == sorted(names)


def test_the_name_is_the_same_for_ever():
    """Files of earlier releases are found by it."""
    assert (
        ArrayFiles(None).write({"a": np.arange(3, dtype=np.uint8)})
        == "7492597477f355bf4727b6a160ad8164.arr"
    )


def test_what_lies_there_is_not_written_again(folder):
    """Its time is renewed, and the file is the same one."""
    files = ArrayFiles(folder)
    name = files.write(ARRAYS)
    os.utime(folder / name, (1000, 1000))
    inode = (folder / name).stat().st_ino
    assert files.age_s(name) > 1e6
    assert files.write(ARRAYS) == name
    assert (folder / name).stat().st_ino == inode
    assert 0 <= files.age_s(name) < 600


def test_ages(files):
    """A bundle is young when it is written and when it is retired; a missing one has no age, and
    may be retired.
    """
    name = files.write(ARRAYS)
    assert 0 <= files.age_s(name) < 600
    files.postpone_deletion([name, UNKNOWN])
    assert 0 <= files.age_s(name) < 600
    with pytest.raises(StoreError, match=rf"{UNKNOWN}' is missing"):
        files.age_s(UNKNOWN)
    assert files.names() == [name]


def test_retiring_renews_the_time(folder):
    """A reader may still be about to open it."""
    files = ArrayFiles(folder)
    name = files.write(ARRAYS)
    os.utime(folder / name, (1000, 1000))
    files.postpone_deletion([name])
    assert files.age_s(name) < 600


@pytest.mark.slow
def test_a_bundle_is_mapped_once(folder):
    """As long as one of its arrays is in use, all that open it look at the same memory; then it is
    let go of.
    """
    files = ArrayFiles(folder)
    name = files.write(ARRAYS)
    rows = files.open(name)["rows"][10:20].reshape(2, 5)
    assert np.shares_memory(rows, files.open(name)["rows"])
    assert list(files._place._mapped) == [name]
    del rows
    gc.collect()
    assert list(files._place._mapped) == []


def test_what_was_opened_outlives_its_file(files):
    """Deleting takes the name, not what a reader has; deleting again, or what never was, is
    fine.
    """
    name = files.write(ARRAYS)
    read = files.open(name)
    files.delete([name, name, UNKNOWN])
    assert same(read, ARRAYS)
    assert files.names() == []
    with pytest.raises(StoreError, match=rf"array file '.*{name}' is missing\. {ADVICE}"):
        files.open(name)
    assert files.check(name) == "is missing"
    assert files.write(ARRAYS) == name
    assert same(files.open(name), ARRAYS)


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "0" * 32, "0" * 32 + ".arr.tmp", "0" * 31 + "G.arr", None, 7]
)
def test_a_name_leads_nowhere_else(files, name):
    """Names come out of files that may be damaged: what is none is refused before anything is
    looked for.
    """
    uses = [
        files.open,
        files.check,
        files.age_s,
        lambda name: files.delete([name]),
        lambda name: files.postpone_deletion([name]),
    ]
    for use in uses:
        with pytest.raises(
            StoreError, match=r"is no name of an array file, which is 32 hexadecimal digits"
        ):
            use(name)


def test_a_folder_that_is_not_there_has_no_bundles(folder):
    """Looking makes none."""
    files = ArrayFiles(folder)
    assert files.names() == []
    assert files.check(UNKNOWN) == "is missing"
    assert files.sweep() == 0
    files.delete([UNKNOWN])
    with pytest.raises(StoreError, match="is missing"):
        files.open(UNKNOWN)
    assert not folder.exists()


def test_other_files_are_left_alone(folder):
    """What is not named as a bundle is none."""
    files = ArrayFiles(folder)
    name = files.write(ARRAYS)
    (folder / "notes.txt").write_text("mine")
    assert files.names() == [name]
    files.sweep(older_than_s=0)
    assert (folder / "notes.txt").exists()


@pytest.mark.parametrize("cut", [0, 1, 15, 16, 17, 200, -64, -1])
def test_a_cut_file_is_found_when_it_is_opened(folder, cut):
    """At any place, without a look at the data; the error names it and says what to do, and so does
    a check.
    """
    files = ArrayFiles(folder)
    name = files.write(ARRAYS)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:cut])
    with pytest.raises(StoreError, match=rf"{name}' is (cut|damaged): .*\. {ADVICE}") as caught:
        files.open(name)
    assert caught.value.store == str(folder)
    assert files.check(name).startswith(("is cut", "is damaged"))


def test_damage_anywhere_is_found(folder):
    """In what stands before the data when the file is opened, in the data when all of it is read;
    writing mends it.
    """
    files = ArrayFiles(folder)
    name = files.write({"a": np.arange(40, dtype=np.int16)})
    content = (folder / name).read_bytes()
    data = len(content) - 80
    for at in range(0, len(content), 3):
        (folder / name).write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        if at < data:
            with pytest.raises(StoreError, match=rf"{name}' is damaged: its header .*\. {ADVICE}"):
                files.open(name)
        assert files.check(name).startswith("is damaged")
    assert files.write({"a": np.arange(40, dtype=np.int16)}) == name
    assert (folder / name).read_bytes() == content
    (folder / name).write_bytes(content + b"x")
    assert files.check(name) == f"is cut: it has {len(content) + 1} bytes instead of {len(content)}"


def test_another_bundles_file_is_found(folder):
    """Two files that changed their names are not what their names say."""
    files = ArrayFiles(folder)
    one, other = (files.write({"a": np.arange(n)}) for n in (3, 4))
    (folder / one).replace(folder / other)
    assert files.check(other).startswith("is damaged")
    assert files.check(one) == "is missing"
    with pytest.raises(StoreError, match="is damaged"):
        files.open(other)


def forged(folder: Path, header: object, data: bytes = bytes(64), version: int = 1) -> str:
    """A file that has the right name for its header, whatever that says."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-(16 + len(text)) % 64)
    head = b"lzArrays" + struct.pack("<II", version, len(text)) + text
    name = blake2b(head, digest_size=16).hexdigest() + ".arr"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(head + data)
    return name


GOOD = {"name": "a", "dtype": "<i4", "shape": [16], "offset": 0}


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "|O"},
        {"dtype": "O"},
        {"dtype": "<i3"},
        {"dtype": 4},
        {"dtype": "<M8[foo]"},
        {"shape": [17]},
        {"shape": [-16]},
        {"shape": [2**40, 2**40]},
        {"shape": 16},
        {"shape": ["16"]},
        {"shape": [1.5]},
        {"offset": -4},
        {"offset": 4},
        {"offset": "0"},
        {"other": 1},
    ],
    ids=str,
)
def test_a_file_from_elsewhere_reaches_nothing_else(folder, entry):
    """A header that asks for objects, or for memory outside of the file, is damaged like any
    other.
    """
    header = {"bytes": 64, "digest": blake2b(bytes(64), digest_size=16).hexdigest()}
    good = forged(folder, {"arrays": [GOOD], **header})
    assert ArrayFiles(folder).open(good)["a"].tolist() == [0] * 16
    bad = forged(folder, {"arrays": [{**GOOD, **entry}], **header})
    with pytest.raises(StoreError, match=rf"is damaged: its (header|arrays) .*\. {ADVICE}"):
        ArrayFiles(folder).open(bad)
    assert ArrayFiles(folder).check(bad).startswith("is damaged")


@pytest.mark.parametrize(
    "header", ["", "[]", "{}", "null", "{", '{"arrays": 3, "bytes": 64, "digest": ""}']
)
def test_a_header_that_is_none_is_damage(folder, header):
    """Whoever wrote it."""
    with pytest.raises(StoreError, match=r"is damaged: its header cannot be understood"):
        ArrayFiles(folder).open(forged(folder, header))


def test_a_newer_format_is_named(folder):
    """It is not taken for damage."""
    name = forged(folder, "{}", version=2)
    assert (
        ArrayFiles(folder).check(name)
        == "has format 2, of a newer release; this one reads up to format 1"
    )


def test_read_only_changes_nothing(folder):
    """It reads, and refuses the rest with what to do."""
    name = ArrayFiles(folder).write(ARRAYS)
    reader = ArrayFiles(folder, read_only=True)
    assert same(reader.open(name), ARRAYS)
    assert (reader.names(), reader.check(name)) == ([name], "")
    uses = [
        lambda: reader.write(ARRAYS),
        lambda: reader.delete([name]),
        lambda: reader.postpone_deletion([name]),
        reader.sweep,
        lambda: reader.scratch((2**24,), np.uint8),
    ]
    for use in uses:
        with pytest.raises(StoreError, match=r"opened with read_only=True\. Open it without"):
            use()
    assert reader.names() == [name]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_folder_that_may_not_be_written():
    """The error speaks of rights and names the file; nothing half-written stays."""
    # pytest's own folders lie where only their owner can look
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "d"
        files = ArrayFiles(folder)
        kept = files.write(ARRAYS)
        Path(name).chmod(0o755)
        folder.chmod(0o555)
        uses = [
            lambda: files.write({"a": np.arange(3)}),
            lambda: files.delete([kept]),
            lambda: files.postpone_deletion([kept]),
        ]
        try:
            for use in uses:
                with (
                    without_privileges(),
                    pytest.raises(StoreError, match=r"\.arr' cannot be .* permissions of"),
                ):
                    use()
            assert [one.name for one in folder.iterdir()] == [kept]
        finally:
            folder.chmod(0o700)


FILL = """
import resource, sys
from pathlib import Path
import numpy as np
from lazyrag.errors import StoreError
from lazyrag.storage.arrays import ArrayFiles
files = ArrayFiles(Path(sys.argv[1]))
files.write({"before": np.arange(3)})
resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, resource.RLIM_INFINITY))
for size in (2**17, 2**20):
    try:
        files.write({"large": np.zeros(size, np.uint8)})
    except StoreError as exc:
        print(exc)
try:
    files.scratch((2**24,), np.uint8)
except StoreError as exc:
    print(exc)
files.write({"after": np.arange(3)})
"""


@pytest.mark.parametrize("shape", [(0, 3), (100, 3), (2**22, 3)], ids=str)
def test_scratch_is_room_that_leaves_nothing(files, shape):
    """Of any size, in a folder or in memory: it can be written and read, and is no bundle."""
    room = files.scratch(shape, np.int16)
    assert (room.shape, room.dtype, type(room)) == (shape, np.dtype(np.int16), np.ndarray)
    room[...] = 7
    room[:1] = 8
    assert room.sum(dtype=np.int64) == 7 * room.size + room[:1].size
    assert files.names() == []
    assert files.folder is None or not files.folder.exists() or list(files.folder.iterdir()) == []
    del room
    name = files.write(ARRAYS)
    assert files.names() == [name]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_a_disk_that_is_full_keeps_nothing_half_written(folder):
    """The error says so; bundles before it and smaller ones after it are whole, and no other file
    lies there.
    """
    run = python("-c", FILL, str(folder))
    assert run.stderr == ""
    assert (
        run.stdout.count(
            ".arr' cannot be written: the disk is full, or a limit is reached. The write"
        )
        == 2
    )
    assert "The folder of array files" in run.stdout.splitlines()[-1]
    assert "cannot be written: the disk is full" in run.stdout.splitlines()[-1]
    files = ArrayFiles(folder)
    assert sorted(one.name for one in folder.iterdir()) == files.names()
    assert [files.check(name) for name in files.names()] == ["", ""]


def test_a_place_where_no_folder_can_be(tmp_path):
    """A file lies there, or the folder above is not there: an error of ours."""
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "none" / "d"):
        with pytest.raises(StoreError, match=r"array file '.*\.arr' (cannot be used|is missing)"):
            ArrayFiles(folder).write(ARRAYS)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


STOPPED = """
import os, sys
from pathlib import Path
import numpy as np
from lazyrag.storage import arrays
def stop(descriptor):
    print("ready", flush=True)
    sys.stdin.readline()
arrays.os.fsync = stop
arrays.ArrayFiles(Path(sys.argv[1])).write({"rows": np.arange(10_000)})
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_no_bundle(folder):
    """Killed before the file was on the disk: there is none of that name; what it left is swept
    away when it is old.
    """
    files = ArrayFiles(folder)
    with waiting(STOPPED, folder) as process:
        process.kill()
        process.wait(60)
    [left] = folder.iterdir()
    assert files.names() == []
    assert files.sweep() == 0
    os.utime(left, (1000, 1000))
    assert files.sweep() == 1
    assert list(folder.iterdir()) == []
    assert same(files.open(files.write(ARRAYS)), ARRAYS)


WRITE = """
import sys
from pathlib import Path
import numpy as np
from lazyrag.storage.arrays import ArrayFiles
files = ArrayFiles(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    files.write({"rows": np.arange(number * 1000)})
"""


@pytest.mark.slow
def test_processes_that_write_the_same_do_not_disturb_each_other(folder):
    """Every bundle is there once, whole, and nothing else."""
    with waiting(WRITE, folder) as first, waiting(WRITE, folder) as second:
        assert let_go(first, second) == [0, 0]
    files = ArrayFiles(folder)
    assert [files.check(name) for name in files.names()] == [""] * 20
    assert sorted(one.name for one in folder.iterdir()) == files.names()


def test_threads_that_write_and_read_do_not_disturb_each_other(files):
    """Each finds what it wrote, whatever the others write and delete."""
    wrong = []

    def work(mine: int):
        for number in range(15):
            arrays = {"rows": np.full(100, mine * 1000 + number), "shared": np.arange(number)}
            name = files.write(arrays)
            files.write({"same": np.arange(number)})
            wrong.extend([name] * (not same(files.open(name), arrays)))
            if number % 2:
                files.delete([name])

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(files.names()) == 15 + 4 * 8


def test_a_reader_elsewhere_keeps_what_it_opened(folder):
    """Another object over the folder, as in another process, deletes and writes anew: the arrays
    stay as they are.
    """
    files, other = ArrayFiles(folder), ArrayFiles(folder)
    name = files.write(ARRAYS)
    read = files.open(name)
    other.delete([name])
    assert same(read, ARRAYS)
    if os.name != "nt":  # Windows has left the file
        assert files.check(name) == "is missing"
    other.write(ARRAYS)
    assert same(other.open(name), ARRAYS)
    assert files.check(name) == ""


def test_what_it_is_called():
    """For logs and the interpreter."""
    assert repr(ArrayFiles(None)) == "ArrayFiles(None)"
    assert repr(ArrayFiles(Path("a.d"))) == "ArrayFiles('a.d')"
