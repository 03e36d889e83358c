"""The crash matrix: each start of the program, ended at each kind of point, looked at, and begun
again.

A single case: ``python -m tests.crash.matrix edits "ledger.flip: after COMMIT #1"``.
A `Matrix` is used by one thread; it runs cases in two.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from lazyrag.ingest.model_identity import PROBE
from tests.crash import checks
from tests.crash.faults import kind_of
from tests.crash.scenario import LONG_S, PHASES, QUESTIONS, Embedder, Phase, write_files
from tests.forked import Starter

_MOVED = {"old.txt": "kept/old.txt"}
_QUERIES = {query for _, _, query in QUESTIONS} | {PROBE}


@dataclass(frozen=True, slots=True)
class Reference:
    """One start of the program that nobody ends.

    Args:
        store: What it leaves.
        before: What was live when it began.
        after: What is live at its end.
        result: What it tells at its end.
        points: Those that it passed.
        again: What the next start tells, for which nothing is left to do.
        again_calls: Loaders, transforms and embeddings that this one called.
        known: What the ledger knows then.
    """

    store: Path
    before: checks.State
    after: checks.State
    result: dict[str, Any]
    points: list[str]
    again: dict[str, Any]
    again_calls: list[Any]
    known: dict[str, Any]


class Matrix:
    """Runs cases, two at a time.

    Args:
        root: An empty folder.
        keep: Leave the stores of cases there.
    """

    def __init__(self, root: Path, *, keep: bool = False) -> None:
        self._root = root
        self._files = root / "files"
        self._keep = keep
        self._references: dict[str, Reference] = {}
        self._unpurged: dict[str, Path] = {}
        self._starters = [Starter("tests.crash.scenario") for _ in range(2)]
        self._free: SimpleQueue[Starter] = SimpleQueue()
        for starter in self._starters:
            self._free.put(starter)
        write_files(self._files)

    def close(self) -> None:
        """End the processes that start others."""
        for starter in self._starters:
            starter.close()

    def reference(self, name: str) -> Reference:
        """A start that nobody ends."""
        if name not in self._references:
            phase, store = PHASES[name], self._copy(self._beginning(PHASES[name]), f"{name}-whole")
            before = self._read(self._previous(phase), store)
            result = self._run(phase, store)
            # nobody has ended it: the program itself fails
            assert "error" not in result, result["error"]
            _take_calls(store)
            again = self._run(phase, store)
            self._references[name] = Reference(
                store=store,
                before=checks.State.of(before.get("dump", [])),
                after=checks.State.of(result["dump"]),
                result=result,
                points=result.pop("points"),
                again=again,
                again_calls=_without_queries(_take_calls(store)),
                known=checks.known(store),
            )
        return self._references[name]

    def choose(self, name: str) -> list[str]:
        """One point of each kind that a phase passes: the first, the last or one between, in
        turn.
        """
        kinds: dict[str, list[str]] = {}
        for point in self.reference(name).points:
            kinds.setdefault(kind_of(point), []).append(point)
        return [
            points[(0, -1, len(points) // 2)[turn % 3]]
            for turn, points in enumerate(kinds.values())
        ]

    def cases(self, cases: Iterable[tuple[str, ...]], *, interrupt: bool = False) -> list[str]:
        """Run cases, each a phase and points; returns what is wrong, with how to see it again."""
        listed = list(cases)
        for name, *_ in listed:
            self.reference(name)
        with ThreadPoolExecutor(len(self._starters)) as threads:
            found = threads.map(lambda case: self.case(*case, interrupt=interrupt), listed)
            return [problem for problems in found for problem in problems]

    def case(self, name: str, *points: str, interrupt: bool = False) -> list[str]:
        """Run one case.

        Args:
            name: The phase.
            points: Where it is ended: a point, or ``"after 40 % of its time"``; then where the next
                start is ended, if it comes there.
            interrupt: By Ctrl-C.

        Returns:
            What is wrong.
        """
        how = (
            " ".join(["python -m tests.crash.matrix", name, *map(repr, points)])
            + " --interrupt" * interrupt
        )
        store = self._copy(self._beginning(PHASES[name]), "case")
        problems = list(self._problems(PHASES[name], points, store, interrupt=interrupt))
        if not self._keep:
            shutil.rmtree(store)
        return [f"{problem}\n    {how}" for problem in problems]

    def _problems(
        self, phase: Phase, points: Sequence[str], store: Path, *, interrupt: bool
    ) -> Iterator[str]:
        reference = self.reference(phase.name)
        for number, point in enumerate(points):
            ended, told = self._ended(
                phase, store, point, reference.result["time_s"], interrupt=interrupt
            )
            if "error" in told:
                yield told["error"]
            arrived = (
                told.get("interrupted", False)
                if interrupt
                else ended in {signal.SIGKILL, signal.SIGPROF}
            )
            if not arrived and not number and "%" not in point:
                yield f"it did not end there (signal {ended})"
            yield from self._seen(phase, store, reference)
            yield from checks.damage(store)
            yield from checks.missing_files(store)
        yield from _differences("resumed", self._run(phase, store), reference.result)
        taken = [
            (kind, text)
            for kind, texts in _take_calls(store)
            if kind.startswith("embed")
            for text in texts
        ]
        again = {
            one: count
            for one, count in Counter(taken).items()
            if count > 1 and one[1] not in _QUERIES
        }
        if len(again) > len(points) * Embedder.batch_size or any(
            count > 1 + len(points) for count in again.values()
        ):
            yield f"{len(again)} texts were embedded again"
        yield from self._once_more(phase, store, reference)

    def _once_more(self, phase: Phase, store: Path, reference: Reference) -> Iterator[str]:
        """What is wrong with a start for which nothing is left to do, and with what it leaves."""
        before = checks.changes(store)
        again = self._run(phase, store)
        yield from _differences("once more", again, reference.again)
        if again.get("report") != reference.again["report"]:
            yield f"the next start reports {again.get('report')!r}"
        calls = _without_queries(_take_calls(store))
        if calls != reference.again_calls:
            yield f"the next start calls {calls[:5]}"
        if checks.changes(store) != before:
            yield "the next start changes what is live"
        yield from checks.leftovers(store)
        for what, rows in checks.known(store).items():
            if rows != reference.known[what]:
                yield f"the ledger knows other {what}: {set(rows) ^ set(reference.known[what])}"
        unnamed = checks.unnamed_files(store)
        if unnamed:
            yield f"left over are {len(unnamed)} array files: {unnamed[:3]}"

    def _seen(self, phase: Phase, store: Path, reference: Reference) -> Iterator[str]:
        """What is wrong with what other programs see, by the old definitions or by the new ones."""
        after = reference.after
        previous = self._previous(phase)
        is_same = (previous.lines, previous.version) == (phase.lines, phase.version)
        readings = {
            one: self._read(one, store) for one in ([phase] if is_same else [previous, phase])
        }
        if checks.has_ledger(store) and all("refused" in told for told in readings.values()):
            yield f"nobody can read it: {[told['refused'] for told in readings.values()]}"
        for reader, told in readings.items():
            if "error" in told:
                yield f"a reader fails: {told['error']}"
            if "dump" not in told:
                continue
            seen = checks.State.of(told["dump"])
            yield from checks.mixtures(seen, reference.before, after, _MOVED)
            fingerprints = (after if reader == phase else reference.before).fingerprints
            yield from checks.wrong_answers(seen, fingerprints, QUESTIONS, told["answers"])

    def _previous(self, phase: Phase) -> Phase:
        return PHASES[phase.after] if phase.after else phase

    def _beginning(self, phase: Phase) -> Path | None:
        """The store that a phase goes on with."""
        if not phase.after:
            return None
        if not phase.waiting:
            return self.reference(phase.after).store
        if phase.after not in self._unpurged:
            previous = PHASES[phase.after]
            store = self._copy(
                self._beginning(replace(previous, waiting=True)), f"{previous.name}-unpurged"
            )
            self._run(previous, store, grace_s=LONG_S)
            _take_calls(store)
            self._unpurged[previous.name] = store
        return self._unpurged[phase.after]

    def _copy(self, store: Path | None, name: str) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._root))
        if store is not None:
            shutil.copytree(store, folder, dirs_exist_ok=True)
        return folder

    def _run(self, phase: Phase, store: Path, grace_s: float = 0.0) -> dict[str, Any]:
        return self._whole("run", phase, store, grace_s=grace_s)

    def _read(self, phase: Phase, store: Path) -> dict[str, Any]:
        return self._whole("read", phase, store)

    def _whole(self, do: str, phase: Phase, store: Path, **options: Any) -> dict[str, Any]:
        ended, told = self._start(do, phase, store, **options)
        return told if not ended else {"error": f"signal {ended}"}

    def _ended(
        self, phase: Phase, store: Path, point: str, time_s: float, *, interrupt: bool
    ) -> tuple[int, dict[str, Any]]:
        share = re.fullmatch(r"after (\d+) % of its time", point)
        limit = (
            {"time_s": time_s * int(share[1]) / 100}
            if share
            else {"point": point, "interrupt": interrupt}
        )
        return self._start("run", phase, store, **limit)

    def _start(
        self, do: str, phase: Phase, store: Path, **options: Any
    ) -> tuple[int, dict[str, Any]]:
        request: dict[str, Any] = {
            "do": do,
            "phase": phase.name,
            "files": str(self._files),
            "store": str(store),
        }
        request |= {"point": "", "interrupt": False, "time_s": 0.0, "grace_s": 0.0, **options}
        starter = self._free.get()
        try:
            return starter.start(request)
        finally:
            self._free.put(starter)


def _differences(what: str, told: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    if "error" in told:
        yield f"{what}: {told['error']}"
        return
    if told["dump"] != wanted["dump"]:
        lost, added = (
            set(wanted["dump"]) - set(told["dump"]),
            set(told["dump"]) - set(wanted["dump"]),
        )
        yield f"{what}: the dump lacks {len(lost)} lines and has {len(added)} others: {[*lost, *added][:2]}"
    for question, answer, wanted_answer in zip(
        QUESTIONS, told["answers"], wanted["answers"], strict=True
    ):
        if answer != wanted_answer:
            yield f"{what}: another answer to {question}"
    if told["failed"] != wanted["failed"]:
        yield f"{what}: {told['failed']} failed"


def _take_calls(store: Path) -> list[Any]:
    """The calls that were noted since the last time."""
    path = store / "calls"
    told = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return told


def _without_queries(calls: Sequence[Any]) -> list[Any]:
    return [
        [kind, said]
        for kind, said in calls
        if not kind.startswith("embed") or not set(said) <= _QUERIES
    ]


def main() -> None:
    """Run one case and say what is wrong; its store stays."""
    name, *points = (one for one in sys.argv[1:] if one != "--interrupt")
    root = Path(tempfile.mkdtemp(prefix="crash-"))
    with closing(Matrix(root, keep=True)) as matrix:
        problems = matrix.case(name, *points, interrupt="--interrupt" in sys.argv)
    print(*problems, f"{len(problems)} problems; the stores are in {root}", sep="\n")


if __name__ == "__main__":
    main()
