"""Power cuts: record a program's calls, rebuild what each cut can leave, and start the next program
there.

A single layout and step: ``python -m tests.power.power "split files" sync``; all of them without
arguments. The layouts ``chroma`` and ``milvus`` need the environment of tests/live.
"""

from __future__ import annotations

import copy
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.checks import State, mixtures, wrong_answers
from tests.crash.scenario import QUESTIONS, write_files
from tests.forked import Starter
from tests.power.disk import Call, Disk, Keep, Record, Tree, read_log
from tests.power.scenario import FOREIGN, LAYOUTS, STEPS, Step

_MOVED = {"sync": {"old.txt": "kept/old.txt"}}  # by step
_PROGRAM = "tests.power.scenario"
CUTS = 32
"""Cut points of a step in a layout."""
FOREIGN_CUTS = 52
FOREIGN_STEPS = ("ingest", "sync", "delete", "rollback")


def start(
    starter: Starter, do: str, step: Step, layout: str, files: Path, store: Path
) -> dict[str, Any]:
    """Start the program; return its result."""
    request = {
        "do": do,
        "step": step.name,
        "layout": layout,
        "files": str(files),
        "store": str(store),
    }
    ended_by, result = starter.start(request)
    return {"error": f"signal {ended_by} ended it"} if ended_by else result


@dataclass(frozen=True, slots=True)
class Recording:
    """A step as it ran to its end.

    Args:
        disk: The store before it, all of it flushed.
        log: Its calls.
        returned: Index of the call after which it had returned.
        before: What the next program sees where the step did not run.
        after: The same after it.
        embed_keys: Of the Document.
    """

    disk: Disk
    log: list[Record]
    returned: int
    before: dict[str, Any]
    after: dict[str, Any]
    embed_keys: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """What was tried: cut points, states that were opened, cut points and states that held, and
    what is wrong.
    """

    cuts: int = 0
    cuts_held: int = 0
    states: int = 0
    held: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"cut points {self.cuts_held}/{self.cuts} held, states {self.held}/{self.states}"


class Power:
    """Records steps and cuts their power.

    Args:
        root: An empty folder.
        broken: What recorded programs lack, see `tests.power.scenario.BREAKS`.
        keep: Leave the folders of states with problems there.
        packages: What programs import beside lazyrag.
    """

    def __init__(
        self, root: Path, *, broken: str = "", keep: bool = False, packages: str = ""
    ) -> None:
        self._root = root.resolve()
        self._variables = {"POWER_BREAK": broken, "POWER_PACKAGES": packages}
        self._files = self._root / "files"
        self._keep = keep
        self._ended: dict[tuple[str, str], Path] = {}
        self._recordings: dict[tuple[str, str], Recording] = {}
        self._recorder = self._root / "recorder.so"
        source = Path(__file__).with_name("recorder.c")
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-O1",
            "-o",
            str(self._recorder),
            str(source),
            "-ldl",
            "-lpthread",
        ]
        subprocess.run(command, check=True)
        write_files(self._files)
        self._starter = Starter(_PROGRAM, POWER_PACKAGES=packages)

    def close(self) -> None:
        """End the process that starts others."""
        self._starter.close()

    def recording(self, layout: str, name: str) -> Recording:
        """A step, recorded."""
        if (layout, name) not in self._recordings:
            self._recordings[layout, name] = self._record(layout, STEPS[name])
        return self._recordings[layout, name]

    def _record(self, layout: str, step: Step) -> Recording:
        begun = self._copy(self._end_of(layout, step.after) if step.after else None, "begun")
        self._tell("prepare", step, layout, begun)
        before = self._tell(
            "look", step, layout, self._copy(begun, "look"), may_fail=step.is_damaged
        )
        running = self._copy(begun, "running")
        disk = Disk(running)
        log = self._root / f"{running.name}.log"
        recorder = {
            "LD_PRELOAD": str(self._recorder),
            "POWER_ROOT": str(running),
            "POWER_LOG": str(log),
        }
        with closing(Starter(_PROGRAM, **self._variables, **recorder)) as recorded:
            result = start(recorded, "run", step, layout, self._files, running)
        assert "error" not in result, result["error"]
        records = read_log(log)
        [returned] = [at for at, record in enumerate(records) if record.call is Call.MARK]
        self._ended[layout, step.name] = running
        after = self._tell("look", step, layout, self._copy(running, "look"))
        assert after["problems"] == []
        embed_keys = ("dense",) if layout == "chroma" else ("dense", "sparse")
        return Recording(disk, records, returned, before, after, embed_keys)

    def _end_of(self, layout: str, name: str) -> Path:
        self.recording(layout, name)
        return self._ended[layout, name]

    def cut(
        self, layout: str, name: str, cuts: int = CUTS, ways: Sequence[str] = Keep.WAYS
    ) -> Tally:
        """Cut the power at many points of a step, and start the next program in each state that is
        left.

        Args:
            layout: Of the store's files.
            name: Of the step.
            cuts: How many cut points.
            ways: Which of what was not flushed survives, see `Keep`: at each cut point one of them,
                in turn, and ``"files"``; beside a store of another kind, which takes longer to
                open, one of them alone.
        """
        step, recording = STEPS[name], self.recording(layout, name)
        tally, seen = Tally(), set[str]()
        for turn, (at, disk) in enumerate(self._disks(recording, cuts)):
            tally.cuts += 1
            problems_before = len(tally.problems)
            for number, way in enumerate(
                [ways[turn % len(ways)], "files"][: 1 if layout in FOREIGN else 2]
            ):
                tree = disk.state(Keep(way, f"{at} {number}", disk))
                key = _digest(tree) + str(at > recording.returned)
                if key in seen:
                    continue
                seen.add(key)
                tally.states += 1
                store = self._write(tree)
                problems = list(
                    self._problems(step, layout, store, recording, returned=at > recording.returned)
                )
                tally.held += not problems
                where = f"{layout}, {name}, after call {at} of {len(recording.log)}, keeping {way} ({store.name})"
                tally.problems += [f"{where}: {problem}" for problem in problems]
                if not (problems and self._keep):
                    shutil.rmtree(store)
            tally.cuts_held += len(tally.problems) == problems_before
        return tally

    def _disks(self, recording: Recording, cuts: int) -> Iterator[tuple[int, Disk]]:
        """The disk at cut points: before and after each flush, after each change of names, and
        between.
        """
        log = recording.log
        wanted = {at for at, one in enumerate(log) if one.call is Call.SYNC}
        wanted |= {
            at + 1 for at, one in enumerate(log) if one.call not in {Call.WRITE, Call.TRUNCATE}
        }
        points = sorted(wanted | {len(log)}) if len(wanted) >= cuts else range(len(log) + 1)
        chosen = {points[at * len(points) // (cuts - 1)] for at in range(cuts - 1)} | {
            recording.returned + 1
        }
        disk = copy.deepcopy(recording.disk)
        for at in range(len(log) + 1):
            if at in chosen:
                yield at, disk
            if at < len(log):
                disk.apply(log[at])

    def _problems(
        self, step: Step, layout: str, store: Path, recording: Recording, *, returned: bool
    ) -> Iterator[str]:
        """What is wrong with a state."""
        after = recording.after
        seen = self._tell("look", step, layout, store, may_fail=True)
        may_be_damaged = step.is_damaged and not returned
        if not may_be_damaged:
            if "error" in seen:
                yield f"it cannot be opened: {seen['error']}"
                return
            yield from _wrong(seen, recording, _MOVED.get(step.name, {}), returned=returned)
        if step.name in {"ingest", "sync"} or seen.get("dump") != after["dump"]:
            yield from _other_end(self._tell("finish", step, layout, store, may_fail=True), after)
        elif seen["answers"] != after["answers"]:
            yield "other answers"

    def _tell(
        self, do: str, step: Step, layout: str, store: Path, *, may_fail: bool = False
    ) -> dict[str, Any]:
        result = start(self._starter, do, step, layout, self._files, store)
        assert may_fail or "error" not in result, result["error"]
        return result

    def _copy(self, store: Path | None, name: str) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._root))
        if store is not None:
            shutil.copytree(store, folder, dirs_exist_ok=True)
        return folder

    def _write(self, tree: Tree) -> Path:
        folder = self._copy(None, "state")
        for name, content in tree.items():
            if content is None:
                (folder / name).mkdir()
            else:
                (folder / name).write_bytes(content)
        return folder


def _wrong(
    seen: dict[str, Any], recording: Recording, moved: dict[str, str], *, returned: bool
) -> Iterator[str]:
    """What is wrong with what the next program sees: each document is as before the step or as
    after it.
    """
    yield from seen["problems"]
    state, after = State.of(seen["dump"]), State.of(recording.after["dump"])
    yield from mixtures(
        state, after if returned else State.of(recording.before["dump"]), after, moved
    )
    questions = [one for one in QUESTIONS if one[1] == "bm25" or one[1] in recording.embed_keys]
    yield from wrong_answers(state, after.fingerprints, questions, seen["answers"])
    if returned and seen["dump"] != recording.after["dump"]:
        yield "it had returned, and is lost"
    for copied in ("source", "exported"):
        if seen.get(copied, recording.after.get(copied)) != recording.after.get(copied):
            yield f"{copied}: it has something else"


def _other_end(end: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the store after the step was repeated."""
    if "error" in end:
        yield f"it cannot be continued: {end['error']}"
        return
    yield from end["problems"]
    if end["dump"] != after["dump"]:
        yield "repeating it gives another state"
    for answer, expected in zip(end["answers"], after["answers"], strict=True):
        if answer != expected:
            yield f"repeating it gives {len(answer)} other hits instead of {len(expected)}"


def _digest(tree: Tree) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, content in sorted(tree.items()):
        digest.update(
            f"{name} {-1 if content is None else len(content)}\n".encode() + (content or b"")
        )
    return digest.hexdigest()


def main() -> None:
    """Cut the power of all steps in all layouts, or of those that are named, and print a table and
    the problems.
    """
    layouts = [sys.argv[1]] if len(sys.argv) > 1 else list(LAYOUTS)
    steps = list(FOREIGN_STEPS if layouts[0] in FOREIGN else STEPS)
    steps = [sys.argv[2]] if len(sys.argv) > 2 and sys.argv[2] != "all" else steps
    cuts = (
        int(sys.argv[3]) if len(sys.argv) > 3 else FOREIGN_CUTS if layouts[0] in FOREIGN else CUTS
    )
    packages = FOREIGN.get(layouts[0], "")
    with (
        tempfile.TemporaryDirectory(prefix="power-") as root,
        closing(Power(Path(root), packages=packages)) as power,
    ):
        for layout in layouts:
            for name in steps:
                tally = power.cut(layout, name, cuts)
                print(f"{layout:12} {name:18} {tally}", flush=True)
                print(
                    *(f"    {problem.strip()}" for problem in tally.problems), sep="\n", flush=True
                )


if __name__ == "__main__":
    main()
