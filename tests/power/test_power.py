"""After a power cut the next program opens the store, and has each document as it was or as it was
to be.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.power.disk import Call, Disk, Keep, Record
from tests.power.power import Power
from tests.power.scenario import LAYOUTS, STEPS

needs_recorder = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="the recorder is preloaded, as Linux does it; it needs gcc",
)
_IN_MEMORY = "/dev/shm"  # noqa: S108  nothing is to be flushed for the tests themselves


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """An empty folder, in memory where there is such a place."""
    with tempfile.TemporaryDirectory(
        prefix="power-", dir=_IN_MEMORY if Path(_IN_MEMORY).is_dir() else None
    ) as made:
        yield Path(made)


@pytest.fixture(scope="module")
def power(folder) -> Iterator[Power]:
    """Cuts the power; what several tests need is recorded once."""
    (folder / "sound").mkdir()
    with closing(Power(folder / "sound")) as made:
        yield made


@pytest.fixture
def disk(tmp_path):
    """A disk with an empty folder, and a function that applies calls to it."""
    (tmp_path / "disk").mkdir()
    made = Disk(tmp_path / "disk")
    root = (tmp_path / "disk").stat().st_ino

    def apply(
        call: Call, inode: int = 0, path: str = "", data: bytes = b"", offset: int = 0
    ) -> None:
        names = f"{tmp_path}/disk/{data.decode()}".encode() if call is Call.RENAME else data
        made.apply(Record(call, inode or root, offset, f"{tmp_path}/disk/{path}", names))

    return made, apply


def states(disk: Disk, way: str) -> list[dict[str, bytes | None]]:
    """The states that may be left, for some seeds."""
    return [disk.state(Keep(way, str(seed), disk)) for seed in range(20)]


def test_what_was_not_flushed_may_be_lost(disk):
    """Content and name of a file are flushed one by one: the name with its folder."""
    model, apply = disk
    apply(Call.CREATE, 1000, "a")
    apply(Call.WRITE, 1000, data=b"tea")
    assert states(model, "nothing")[0] == {}
    assert states(model, "all")[0] == {"a": b"tea"}
    apply(Call.SYNC, 1000)
    assert states(model, "nothing")[0] == {}
    apply(Call.SYNC)
    assert states(model, "nothing")[0] == {"a": b"tea"}
    assert model.is_certain


def test_a_name_may_survive_without_the_content(disk):
    """A file that is renamed before it is flushed may be empty under its new name, and is never
    under both.
    """
    model, apply = disk
    apply(Call.CREATE, 1000, "a.tmp")
    apply(Call.WRITE, 1000, data=b"tea")
    apply(Call.RENAME, 1000, "a.tmp", b"a")
    apply(Call.SYNC)
    found = states(model, "some")
    assert {"a": b""} in found
    assert {"a": b"tea"} in found
    assert all(list(state) == ["a"] for state in found)


def test_a_write_may_be_torn(disk):
    """Sectors of a write survive one by one, and what was flushed before is between them."""
    model, apply = disk
    apply(Call.CREATE, 1000, "a")
    apply(Call.WRITE, 1000, data=b"1" * 2048)
    apply(Call.SYNC, 1000)
    apply(Call.SYNC)
    apply(Call.WRITE, 1000, data=b"2" * 2048)
    found = {state["a"] for state in states(model, "some")}
    assert any(content not in {b"1" * 2048, b"2" * 2048} for content in found)
    sectors = {content[at : at + 512] for content in found for at in range(0, 2048, 512)}
    assert sectors == {b"1" * 512, b"2" * 512}


def test_an_unlinked_file_may_come_back(disk):
    """Names go with the folder's flush as well."""
    model, apply = disk
    apply(Call.CREATE, 1000, "a")
    apply(Call.SYNC)
    apply(Call.UNLINK, path="a")
    assert states(model, "nothing")[0] == {"a": b""}
    apply(Call.SYNC)
    assert states(model, "nothing")[0] == {}


@needs_recorder
@pytest.mark.slow
def test_the_record_has_what_sqlite_does(power):
    """Its log, its file and their flushes are below Python; without them nothing would be tried."""
    recording = power.recording("split files", "ingest")
    calls = [(one.call, Path(one.path).name) for one in recording.log]
    for name in ("nodes.db-wal", "vectors.db-wal", "nodes.db"):
        assert (Call.CREATE, name) in calls
        [inode, *_] = [one.inode for one in recording.log if one.path.endswith(f"/{name}")]
        assert {one.call for one in recording.log if one.inode == inode} >= {Call.WRITE, Call.SYNC}


@pytest.mark.share(3)
@needs_recorder
@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        "split files",
        *(
            pytest.param(one, marks=pytest.mark.exhaustive)
            for one in LAYOUTS
            if one != "split files"
        ),
    ],
)
def test_a_sample_of_power_cuts(power, layout):
    """Files that came, changed, moved and went, at some points."""
    tally = power.cut(layout, "sync", cuts=10)
    assert tally.cuts >= 9
    assert not tally.problems, "\n".join(["", *tally.problems])


@pytest.mark.share(3)
@needs_recorder
@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "layout", "step"),
    [
        ("no durable transactions", "one file", "delete"),
        ("no flush of other files", "split files", "sync"),
        ("no flush of folders", "one file", "sync"),
    ],
)
def test_power_cuts_find_what_is_missing(folder, broken, layout, step):
    """A program that does not flush what it relies on is caught."""
    place = tempfile.mkdtemp(dir=folder)  # LD_PRELOAD takes no spaces
    with closing(Power(Path(place), broken=broken)) as power:
        assert power.cut(layout, step, cuts=14, ways=["nothing"]).problems


@needs_recorder
@pytest.mark.exhaustive
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_power_cuts(power, layout, step):
    """At every cut point the next program opens the store, sees one version of each document, and
    can go on.
    """
    tally = power.cut(layout, step)
    assert tally.cuts * len(STEPS) > 200
    assert not tally.problems, "\n".join(["", *tally.problems])
