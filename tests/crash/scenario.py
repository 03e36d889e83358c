"""The program that is ended: a Document is ingested, synced, rebuilt and migrated, each in a
process of its own.

A request stands for a fresh start of the program on a store folder; see `tests.forked`.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from lazyrag import Document, Retriever, register_loader
from lazyrag.document import open as opening
from lazyrag.errors import IngestionWarning, StoreError
from lazyrag.groups.fingerprint import fingerprint
from lazyrag.ingest import engine as bringing
from lazyrag.ingest import load_files as loading
from lazyrag.ingest import term_index
from lazyrag.loaders import load_file
from lazyrag.stores import sqlite as store_file
from lazyrag.stores import sqlite_vectors as map_vectors
from lazyrag.stores import tables as store_format
from lazyrag.transforms import base as transforms
from lazyrag.transforms.base import run_transform
from tests.crash.faults import Switch
from tests.forked import serve

# What the product imports where it is needed, which would be anew in every process.
for _name in (
    "lazyrag.indexes.bm25",
    "lazyrag.loaders.detect",
    "lazyrag.loaders.text",
    "lazyrag.loaders.text",
    "lazyrag.retrieval.similarity",
    "tqdm",
):
    import_module(_name)

LONG_S = 1e9
PATIENCE_S = 60  # a process that takes longer hangs, and is ended by its alarm
QUESTIONS = (
    ("line", "bm25", "tea"),
    ("piece", "bm25", "tea"),
    ("piece", "bm25", "茶"),
    ("line", "dense", "tea"),
    ("line", "sparse", "tea"),
)

_ENGLISH = "green black white oolong tea water leaf cup pot steam kettle garden spring picked brewed cooled".split()
_CHINESE = ("绿茶", "红茶", "白茶", "泡茶", "水温", "茶叶", "春天", "采摘", "茶壶", "清香")
_OLD_TIME = 1_700_000_000  # of all files: dates are part of what is stored


@dataclass(frozen=True, slots=True)
class Phase:
    """One start of the program.

    Args:
        name: Its name.
        files: Which state of the files it finds: ``"first"`` or ``"edited"``.
        after: The phase whose store it goes on with; "" for none.
        lines: Which definition the upper group has.
        version: Format of the store file that the program writes.
        batch: Documents that become live together.
        workers: Threads that call loaders and transforms.
        checkpoint_pages: See `Switch.install`.
        waiting: Whether the phases before it have purged nothing, so that their dead builds are
            still there.
    """

    name: str
    files: str = "edited"
    after: str = ""
    lines: int = 1
    version: int = 1
    batch: int = 256
    workers: int = 1
    checkpoint_pages: int = 1000
    waiting: bool = False


PHASES = {
    phase.name: phase
    for phase in (
        Phase("first", files="first"),
        Phase("edits", after="first"),
        Phase("transform", after="edits", lines=2),
        Phase("again", after="transform", lines=3, waiting=True),
        Phase("back", after="transform", lines=1, waiting=True),
        Phase("migration", after="edits", version=2),
        Phase("batches", after="first", batch=2, workers=2, checkpoint_pages=8),
    )
}

_LATER = """
CREATE TABLE reading (build INTEGER PRIMARY KEY, words INTEGER NOT NULL);
INSERT INTO reading SELECT number, length(counts) FROM build;
CREATE INDEX reading_by_words ON reading (words);
ALTER TABLE reading ADD COLUMN note TEXT NOT NULL DEFAULT '';
UPDATE reading SET note = 'migrated';
"""


def lines_1(text: str) -> list[str]:
    """Lines, but for those that are hidden."""
    return [line for line in text.splitlines() if not line.startswith("~")]


def lines_2(text: str) -> list[str]:
    """The same without the first."""
    return [line for line in text.splitlines() if not line.startswith("~")][1:]


def lines_3(text: str) -> list[str]:
    """The same, two and two together."""
    lines = [line for line in text.splitlines() if not line.startswith("~")]
    return ["\n".join(lines[start : start + 2]) for start in range(0, len(lines), 2)]


def pieces(text: str) -> list[str]:
    """Three words each."""
    words = text.split()
    return [" ".join(words[start : start + 3]) for start in range(0, len(words), 3)]


LINES = {1: lines_1, 2: lines_2, 3: lines_3}

for _function in (*LINES.values(), pieces):
    fingerprint(_function)  # reads this file, once for all processes


class Embedder:
    """Turns texts into vectors that follow from their characters."""

    identity = "crash:characters"
    batch_size = 8

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text."""
        return [
            [1.0 + sum(ord(letter) % 16 == position for letter in text) for position in range(16)]
            for text in texts
        ]


class Weights:
    """Turns texts into sparse vectors that follow from their characters, and share a dimension."""

    identity = "crash:weights"
    batch_size = 8

    def __call__(self, texts: list[str]) -> list[dict[int, float]]:
        """One vector for each text."""
        return [
            {0: 1.0} | {1 + ord(letter) % 50: 1.0 + ord(letter) % 3 for letter in text}
            for text in texts
        ]


EMBEDDERS = {"dense": Embedder, "sparse": Weights}


class CrashLoader:
    """Reads files of this suffix, unless they are broken."""

    def load(self, path: Path) -> str:
        """The file's text."""
        text = path.read_text(encoding="utf-8")
        if text.startswith("broken"):
            msg = "It is broken."
            raise ValueError(msg)
        return text


def write_files(root: Path) -> None:
    """Write both states of the files beneath a folder; those that are not changed are the same file
    in both.
    """
    first = {
        **{
            f"guide/{name}.md": f"# {name}\n\n{_text(number, 5)}"
            for number, name in enumerate(["brew", "water"])
        },
        **{
            name: _text(number, 6)
            for number, name in enumerate(["said.txt", "old.txt", "gone.txt"], start=10)
        },
        **{
            name: _text(number, 6)
            for number, name in enumerate(["touched.txt", "edited.txt", "茶.txt"], start=20)
        },
        "hidden.txt": "~ nothing of it\n~ is shown",
        "broken.crash": "broken " + _text(30, 3),
        "worse.crash": _text(31, 3),
        "水.md": _text(32, 4),
        "long.txt": _text(33, 20),
    }
    edited = {name: text for name, text in first.items() if name not in {"gone.txt", "old.txt"}}
    edited |= {
        "kept/old.txt": first["old.txt"],
        "edited.txt": first["edited.txt"].replace("tea", "coffee and tea", 3),
        "茶.txt": _text(40, 3) + first["茶.txt"],
        "broken.crash": _text(30, 3),
        "worse.crash": "broken " + _text(31, 3),
        "added.md": _text(41, 4),
        "加.txt": _text(42, 4),
    }
    for name, text in first.items():
        _write(root / "first" / name, text, _OLD_TIME)
    sources = {"kept/old.txt": "old.txt"}
    for name, text in edited.items():
        source = sources.get(name, name)
        if name != "touched.txt" and first.get(source) == text:
            (root / "edited" / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(root / "first" / source, root / "edited" / name)
        else:
            _write(root / "edited" / name, text, _OLD_TIME + 60)


def _write(path: Path, text: str, time: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (time, time))


def _text(seed: int, lines: int) -> str:
    """Lines of words in two languages, each line another one."""
    words = [*_ENGLISH, *_CHINESE]
    made = []
    for line in range(lines):
        numbers = [
            (seed * 31 + line * 7 + position * position * 3 + seed * line) % len(words)
            for position in range(9)
        ]
        made.append(f"{seed}.{line} " + " ".join(words[number] for number in numbers))
    return "\n".join(made) + "\n"


def metadata(phase: Phase) -> dict[str, dict[str, str]]:
    """What is said of the files."""
    return {"said.txt": {"author": "Lu Yu" if phase.files == "first" else "Li Bai"}}


def opened(phase: Phase, files: Path, store: Path, *, read_only: bool = False) -> Document:
    """The Document with its groups."""
    docs = Document(
        str(files / phase.files),
        embed={key: made() for key, made in EMBEDDERS.items()},
        store_conf={"segment_store": {"type": "map", "kwargs": {"uri": str(store / "store.db")}}},
        file_metadata=metadata(phase),
        read_only=read_only,
        workers=phase.workers,
    )
    docs.create_node_group("line", transform=LINES[phase.lines])
    docs.create_node_group("piece", transform=pieces, parent="line")
    return docs


def ask(docs: Document, question: tuple[str, str, str]) -> list[tuple[str, str, float]]:
    """Uid, text and score of everything that is found."""
    group, by, query = question
    way: dict[str, Any] = {"embed_keys": [by]} if by in EMBEDDERS else {"similarity": by}
    return [
        (hit.uid, hit.text, hit.score) for hit in Retriever(docs, group, topk=1000, **way)(query)
    ]


def run(phase: Phase, files: Path, store: Path, switch: Switch, grace_s: float) -> dict[str, Any]:
    """The program: bring in what changed, ask, tell what is live. Its calls are noted in a file
    ``calls``.
    """
    _set(opening, "_GRACE_S", grace_s)
    _set(store_file, "YOUNG_S", grace_s)
    _prepare(phase)
    log = os.open(store / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(call: str) -> Callable[[Any], object]:
        return lambda said, *_: os.write(log, (json.dumps([call, _told(said)]) + "\n").encode())

    _set(loading, "load_file", switch.around("loader", load_file, note("load")))
    _set(transforms, "run_transform", switch.around("transform", run_transform, note("transform")))
    for key, made in EMBEDDERS.items():
        call = "embed" if key == "dense" else f"embed {key}"
        _set(made, "__call__", _method(switch.around(call, made().__call__, note(call))))
    switch.install(checkpoint_pages=phase.checkpoint_pages)
    with opened(phase, files, store) as docs:
        report = docs.sync()
        answers = [ask(docs, question) for question in QUESTIONS]
        dump = list(docs.maintenance.dump())
    told = [[str(failure.path), failure.stage] for failure in report.failed]
    rest = {"points": switch.points, "time_s": time.process_time()}
    return {"dump": dump, "answers": answers, "failed": told, "report": str(report), **rest}


def read(phase: Phase, files: Path, store: Path) -> dict[str, Any]:
    """Another program, which only reads: what is live, and each answer, or why there is none."""
    _prepare(phase)
    answers: list[Any] = []
    try:
        with opened(phase, files, store, read_only=True) as docs:
            for question in QUESTIONS:
                try:
                    answers.append(ask(docs, question))
                except StoreError as exc:
                    answers.append(str(exc))
            return {"dump": list(docs.maintenance.dump()), "answers": answers}
    except StoreError as exc:
        return {"refused": str(exc)}


def _prepare(phase: Phase) -> None:
    """Bring sizes down to those of a small dataset, and the format up."""
    _set(bringing, "_BATCH", phase.batch)
    _set(term_index, "_SMALL_BYTES", 2048)
    _set(map_vectors, "_SMALL_BYTES", 2048)
    if phase.version > 1:
        present = store_format.STORE_FORMAT
        _set(store_file, "STORE_FORMAT", replace(present, migrations=(*present.migrations, _LATER)))


def _set(module: Any, name: str, value: Any) -> None:
    """Set what is there under that name; nobody would miss a constant that has moved."""
    if not hasattr(module, name):
        msg = f"{module.__name__} has no {name} any more."
        raise AttributeError(msg)
    setattr(module, name, value)


def _told(said: Any) -> Any:
    if isinstance(said, Path):
        return said.name
    return said if isinstance(said, list) else getattr(said, "__name__", type(said).__name__)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _self, texts: function(texts)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    signal.alarm(PATIENCE_S)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", IngestionWarning)
    phase, files, store = PHASES[request["phase"]], Path(request["files"]), Path(request["store"])
    try:
        if request["do"] == "read":
            return read(phase, files, store)
        switch = Switch(store, request["point"], interrupt=request["interrupt"])
        switch.limit(request["time_s"])
        return run(phase, files, store, switch, request["grace_s"])
    except KeyboardInterrupt:
        return {"interrupted": True}
    except BaseException:  # noqa: BLE001  reported to the test
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    register_loader(".crash")(CrashLoader)
    serve(_answer)
