"""A program that is ended at any instant, and begun again, has what one has that was never
ended.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.crash import kills
from tests.crash.checks import State, mixtures, wrong_answers
from tests.crash.matrix import Matrix
from tests.crash.scenario import PHASES, QUESTIONS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

SAMPLE = [
    ("first", "loader: before the call"),
    ("first", "transform: after the call"),
    ("first", "embed: after the call"),
    ("first", "half of a file written"),
    ("first", "before rename"),
    ("edits", "tombstone: after COMMIT"),
    ("edits", "embed sparse: after the call"),
    ("edits", r"\.flip: in COMMIT"),
    ("edits", r"sqlite\.delete_builds: after COMMIT"),
    ("transform", r"\.switch: in COMMIT"),
    ("transform", r"sqlite\.drop: after COMMIT"),
    ("migration", "before ALTER"),
    ("batches", r"cache\.put_many: in COMMIT"),
]
SHARES = 8
"""Into so many cases the points of a phase are dealt, of which CI runs those of its slice."""

INTERRUPTS = [
    ("first", "embed: before the call"),
    ("edits", r"\.flip: before BEGIN"),
    ("transform", "transform: after the call"),
    ("batches", "loader: after the call"),
]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory) -> Iterator[Matrix]:
    """Runs cases; what several of them need is made once."""
    with closing(Matrix(tmp_path_factory.mktemp("crashes"))) as made:
        yield made


def chosen(matrix: Matrix, name: str, told: str) -> tuple[str, str]:
    """A phase, and the point in the middle of those that match."""
    points = [point for point in matrix.reference(name).points if re.search(told, point)]
    assert points, f"{name} passes no point like {told!r}"
    return name, points[len(points) // 2]


def assert_fine(problems: list[str]) -> None:
    """Nothing is wrong; else every case is told, with how to see it again."""
    assert not problems, "\n".join(["", *problems])


@pytest.mark.slow
def test_the_program_meets_all_that_can_happen_to_files(matrix):
    """What the cases are made of: files come, change, move, go and fail; and each way there ends in
    one state.
    """
    first, edits = matrix.reference("first"), matrix.reference("edits")
    assert first.result["failed"] == [["broken.crash", "load"]]
    assert edits.result["report"].startswith(
        "3 added, 3 updated, 1 moved, 1 deleted, 6 unchanged, 1 failed"
    )
    assert edits.result["failed"] == [["worse.crash", "load"]]
    before, after = edits.before.documents, edits.after.documents
    assert after["hidden.txt"]["line"].nodes == []
    assert after["worse.crash"]["piece"].nodes == before["worse.crash"]["piece"].nodes != []
    assert all(answer for answer in edits.result["answers"])
    for other in ("migration", "batches"):
        assert matrix.reference(other).result["dump"] == edits.result["dump"]
    assert matrix.reference("transform").result["dump"] != edits.result["dump"]


@pytest.mark.slow
def test_the_checks_see_what_they_are_for(matrix):
    """A group of another version, a document that is lost or there twice, an index or an answer
    that lacks one.
    """
    reference = matrix.reference("edits")
    moved = {"old.txt": "kept/old.txt"}

    def told(change: Callable[[State], object]) -> list[str]:
        seen = copy.deepcopy(reference.after)
        change(seen)
        return list(mixtures(seen, reference.before, reference.after, moved))

    before = reference.before.documents
    assert told(lambda _: None) == []
    assert told(lambda seen: seen.documents.update({"edited.txt": before["edited.txt"]})) == []
    assert told(
        lambda seen: seen.documents["edited.txt"].update(piece=before["edited.txt"]["piece"])
    ) == ["edited.txt is of no one version"]
    assert told(lambda seen: seen.documents.pop("long.txt")) == ["long.txt is missing"]
    assert told(lambda seen: seen.documents.update({"old.txt": before["old.txt"]})) == [
        "old.txt, moved to kept/old.txt, is in both"
    ]
    assert told(lambda seen: seen.documents["long.txt"]["line"].spaces.popitem()[1].popitem()) != []
    answers = copy.deepcopy(reference.result["answers"])
    fingerprints = reference.after.fingerprints
    assert list(wrong_answers(reference.after, fingerprints, QUESTIONS, answers)) == []
    answers[0].pop()
    answers[4] = "It is not there."
    assert len(list(wrong_answers(reference.after, fingerprints, QUESTIONS, answers))) == 2


@pytest.mark.slow
def test_a_definition_that_comes_back(matrix):
    """The former transform gives what was there before, whatever is still left of it."""
    assert matrix.reference("back").result["dump"] == matrix.reference("edits").result["dump"]


@pytest.mark.parametrize(
    "sample",
    [SAMPLE[7:8], pytest.param(SAMPLE, marks=[pytest.mark.slow, pytest.mark.share(3)])],
    ids=["one", "all"],
)
def test_a_sample_of_crashes(matrix, sample):
    """A SIGKILL of each sort: readers see one version or the other, the next start ends where this
    one would have.
    """
    assert_fine(matrix.cases(chosen(matrix, *one) for one in sample))


@pytest.mark.slow
def test_a_sample_of_interrupts(matrix):
    """Ctrl-C ends the program with KeyboardInterrupt, and leaves what SIGKILL does: one version or
    the other.
    """
    assert_fine(matrix.cases((chosen(matrix, *one) for one in INTERRUPTS), interrupt=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("name", PHASES)
def test_crashes_at_every_kind_of_point(matrix, name, share):
    """Wherever a program is ended: nothing is lost, nothing is there twice, nothing is left over,
    nobody sees half.
    """
    points = matrix.choose(name)
    assert len(points) * len(PHASES) > 200
    assert_fine(matrix.cases((name, point) for point in points[share::SHARES]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PHASES)
def test_crashes_upon_crashes(matrix, name):
    """The start that makes good for one crash may be ended by another, somewhere else."""
    points = matrix.choose(name)
    pairs = zip(points[::16], points[::-16], strict=True)
    assert_fine(matrix.cases((name, *pair) for pair in pairs))


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["first", "edits", "transform", "batches"])
def test_crashes_at_any_instant(matrix, name):
    """What holds between statements and calls holds in the midst of them: the program has used up
    its time there.
    """
    assert_fine(matrix.cases((name, f"after {share} % of its time") for share in range(6, 96, 9)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", range(3))
@pytest.mark.parametrize("name", ["edits", "transform", "batches"])
def test_interrupts_at_many_kinds_of_points(matrix, name, share):
    """Wherever Ctrl-C comes, the program ends, and the next start ends where it would have
    ended.
    """
    points = [point for point in matrix.choose(name) if "in COMMIT" not in point]
    assert_fine(matrix.cases(((name, point) for point in points[share::3]), interrupt=True))


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are ended through pidfd"
)
def test_kills_at_random_instants(tmp_path):
    """Every next start goes on by itself; a hundred: ``python -m tests.crash.kills``."""
    tally = kills.kill("map", 10, tmp_path)
    assert (tally.kills, tally.survived) == (10, 10), "\n".join(tally.problems)
