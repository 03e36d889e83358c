"""A copy that is ended at any instant is completed by the same call, for each pair of sides: stores
to a folder, a folder to stores, stores to stores.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.crash.copies import PAIRS
from tests.crash.faults import kind_of
from tests.forked import Starter

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


class Copies:
    """Runs the program on copies of one source."""

    def __init__(self, starter: Starter, folder: Path) -> None:
        self._starter = starter
        self._folder = folder
        self._source = folder / "source"
        self._source.mkdir()
        self.start(self._source)
        self._complete: dict[str, dict[str, Any]] = {}

    def start(self, folder: Path, **request: str) -> dict[str, Any]:
        """Run the program to its end; return its result."""
        ended_by, result = self._starter.start({"folder": str(folder), **request})
        assert ended_by == 0, ended_by
        assert "error" not in result, result["error"]
        return result

    def complete(self, pair: str) -> dict[str, Any]:
        """The points of a copy that nothing ends, and its result."""
        if pair not in self._complete:
            folder = self._fresh(pair)
            self._complete[pair] = self.start(folder, pair=pair, point="")
            shutil.rmtree(folder)
        return self._complete[pair]

    def check(self, pair: str, point: str) -> None:
        """End a copy at a point, and call it again: it gives the same."""
        folder = self._fresh(pair)
        ended_by, _ = self._starter.start({"folder": str(folder), "pair": pair, "point": point})
        assert ended_by == signal.SIGKILL, point
        again = self.start(folder, pair=pair, point="")
        assert again["copy"] == self.complete(pair)["copy"], point
        shutil.rmtree(folder)

    def _fresh(self, name: str) -> Path:
        folder = self._folder / name
        shutil.copytree(self._source, folder)
        return folder


@pytest.fixture(scope="module")
def copies(tmp_path_factory) -> Iterator[Copies]:
    """The sides, and the process that starts the program."""
    with closing(Starter("tests.crash.copies")) as starter:
        yield Copies(starter, tmp_path_factory.mktemp("copies"))


def points_by_kind(points: list[str]) -> list[str]:
    """Of each kind the point in the middle."""
    kinds: dict[str, list[str]] = {}
    for point in points:
        kinds.setdefault(kind_of(point), []).append(point)
    return [same[len(same) // 2] for same in kinds.values()]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_complete_copy(copies, pair):
    """Nothing is left of it but the target, in which nothing is wrong."""
    copy = copies.complete(pair)["copy"]
    assert copy.get("problems", []) == copy.get("left", []) == []
    assert copy.get("dump") or copy["files"]


def test_stores_have_the_same_from_a_folder_and_from_stores(copies):
    """Import and migration give the same documents, nodes and vectors; a migration also the terms
    and the versions.
    """
    imported = copies.complete("folder to stores")["copy"]["dump"]
    migrated = copies.complete("stores to stores")["copy"]
    assert imported == [line for line in migrated["dump"] if '"terms"' not in line]
    assert migrated["versions"] == [1, 2]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_copy_that_is_killed(copies, pair):
    """At a few points, far from each other."""
    points = points_by_kind(copies.complete(pair)["points"])
    for point in points[:: len(points) // 5]:
        copies.check(pair, point)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_a_copy_that_is_killed_at_every_kind_of_point(copies, pair):
    """Each statement, file and commit of each function, the one in the middle of the same."""
    for point in points_by_kind(copies.complete(pair)["points"]):
        copies.check(pair, point)
