"""Interrupts inside of a process that goes on: after Ctrl-C the same object works, or says that it
is closed.

    python -m tests.crash.interrupts                  at every return from SQLite, files, locks and
    user functions python -m tests.crash.interrupts --every          at every place, too, where
    Python looks for signals python -m tests.crash.interrupts --signals 1000   by real signals at
    random moments python -m tests.crash.interrupts --postgres URL   over a store in PostgreSQL

Each exception is kept with its traceback, as notebooks keep the last one. An operation is written
so that it can be done over and over on one object: it leads from the state that it left the last
time to another one, and back.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import secrets
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

from lazyrag import BM25Retriever, Document, HybridRetriever, Retriever
from lazyrag.document import open as opening
from lazyrag.errors import ConfigError, IngestionWarning, StoreError
from lazyrag.models.embedding_cache import EmbeddingCache, VectorSpace
from lazyrag.read import grep, near_duplicates, outline, related
from lazyrag.server.jobs import Jobs, Worker
from lazyrag.sources import SourceItem, fetch
from lazyrag.sources.base import load_items
from lazyrag.text.analyzers import chinese_terms
from tests.crash.scenario import Embedder, _set

Operation: TypeAlias = Callable[[int], object]
"""Called with 0 and 1 in turn: the state that it leads to. A reading one returns its answer."""

State: TypeAlias = "dict[str, Any]"

_FILES = {"posix", "_io", "io", "fcntl", "mmap", "shutil", "_socket", "_ssl"}
_LOCKS = {"_thread"}
# change nothing
_PLAIN = {"fspath", "getpid", "urandom", "get_ident", "__exit__", "tell", "closed", "getvalue"}
_PATIENCE_S = 5.0


class AlarmError(Exception):
    """What the handler of another signal raises."""


def _is_point(called: Any) -> bool:
    """Whether a function of C is one of SQLite, of files or of locks."""
    owner = getattr(called, "__self__", None)
    if isinstance(owner, (sqlite3.Connection, sqlite3.Cursor)) or called is sqlite3.connect:
        return True
    module = getattr(called, "__module__", None) or type(owner).__module__
    if called.__name__ in _PLAIN:
        return False
    return module in _FILES or module in _LOCKS or type(owner).__module__ in _FILES | _LOCKS


class Interrupter:
    """Raises an exception at one of the points that a call passes, as a signal's handler does.

    Args:
        at: Number of the point, from 1.
        error: The exception.
        every: Whether the beginnings of functions and the returns of all functions of C are points.
        codes: User functions, whose returns are points.
    """

    def __init__(self, at: int, error: BaseException, *, every: bool, codes: set[CodeType]) -> None:
        self._left, self.error, self._every, self._codes = at, error, every, codes
        self.point = ""

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        """What `sys.setprofile` calls."""
        if event == "c_return":
            is_point = self._every or _is_point(called)
        else:
            is_point = (event == "return" and frame.f_code in self._codes) or (
                self._every and event == "call"
            )
        if not is_point:
            return
        self._left -= 1
        if not self._left:
            sys.setprofile(None)
            name = called.__name__ if event == "c_return" else event
            self.point = f"{name} in {Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}:{frame.f_lineno}"
            raise self.error

    def run(self, call: Callable[[], object]) -> BaseException | None:
        """Call a function; returns what it raised."""
        try:
            sys.setprofile(self)
            call()
        except BaseException as exc:  # noqa: BLE001  it is looked at
            return exc
        finally:
            sys.setprofile(None)
        return None


def _has_come_from(raised: BaseException | None, error: BaseException) -> bool:
    while raised is not None and raised is not error:
        raised = raised.__cause__ or raised.__context__
    return raised is not None


@dataclass(slots=True)
class Tally:
    """Points that were tried, and what went wrong at them."""

    tried: int = 0
    swallowed: int = 0
    problems: list[str] = field(default_factory=list)
    broken: int = 0
    by_operation: dict[str, int] = field(default_factory=dict)

    def note(self, problem: str) -> None:
        """Note that an object is broken."""
        self.broken += 1
        self.problems.append(problem)
        print(problem, file=sys.stderr, flush=True)

    def __str__(self) -> str:
        return f"points tried: {self.tried}, broken: {self.broken}"


class Case:
    """An object that is interrupted, with its operations.

    Args:
        folder: An empty folder of its own.
    """

    codes: set[CodeType]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.operations: dict[str, Operation] = {}

    def look(self) -> State:
        """What the object holds: per key, as it was before an operation or as it is after it."""
        return {}

    def probe(self, number: int) -> str:
        """Write something through the object and find it again; what is wrong."""
        del number
        return ""

    def locked(self) -> str:
        """What keeps other programs from writing."""
        return ""

    def check(self) -> str:
        """What a thorough check finds wrong, once an operation has been tried at all points."""
        return ""

    def close(self) -> None:
        """Close it."""


def lines(text: str) -> list[str]:
    """Lines."""
    return text.splitlines()


def words(text: str) -> list[str]:
    """Words."""
    return text.split()


def pairs(text: str) -> list[str]:
    """Words, two and two together."""
    found = text.split()
    return [" ".join(found[at : at + 2]) for at in range(0, len(found), 2)]


TABLE = "| tea | EUR |\n|---|---|\n| green | 4.5 |\n| black | 3.0 |\n"


class DocumentCase(Case):
    """A Document over a folder, with vectors; every method that reads or writes."""

    codes = {one.__code__ for one in (lines, words, pairs, Embedder.__call__)}

    def __init__(self, folder: Path, uri: str | None = "") -> None:
        super().__init__(folder)
        self.files = folder / "files"
        self.files.mkdir(parents=True)
        for name, text in {
            "a.txt": "green tea\nblack tea",
            "b.md": f"# Prices\n\n{TABLE}",
            "c.txt": "coffee",
        }.items():
            (self.files / name).write_text(text)
        self.uri = str(folder / "store.db") if uri == "" else uri
        kwargs = {} if self.uri is None else {"uri": self.uri}
        self.docs = docs = Document(
            str(self.files),
            embed={"dense": Embedder()},
            store_conf={"segment_store": {"type": "map", "kwargs": kwargs}},
            workers=1,
            keep_versions=3,
        )
        docs.create_node_group("line", transform=lines)
        docs.create_node_group("word", transform=words, parent="line")
        docs.activate_group("line", embed_keys=["dense"], analysers=["en"])
        self.by_word = Retriever(docs, "line", "bm25", topk=100)
        self.by_vector = Retriever(docs, "line", embed_keys=["dense"], topk=100)
        self.hybrid = HybridRetriever(self.by_word, self.by_vector, topk=50)
        self.exports = self.probes = 0
        docs.add_texts({"note": "tea 0", "gone": "tea", "old": "tea first"})
        docs.add_texts({"old": "tea second"})
        self.worker = Worker(docs)
        self.operations = {**self._reads(), **self._writes(), **self._jobs()}

    def _writes(self) -> dict[str, Operation]:
        docs = self.docs

        def sync(turn: int) -> object:
            (self.files / "a.txt").write_text(f"green tea {turn}\nblack tea")
            (self.files / "d.txt").unlink(missing_ok=True)
            if turn:
                (self.files / "d.txt").write_text("white tea")
            return docs.sync(max_deleted=1.0)

        def add_files(turn: int) -> object:
            path = self.folder / "outside.txt"
            path.write_text(f"outside tea {turn}")
            return docs.add_files({"outside": path})

        def define(turn: int) -> object:
            docs.create_node_group(
                "word", transform=pairs if turn else words, parent="line", replace=True
            )
            return docs.activate_group("word", embed_keys=["dense"], analysers=["en"])

        def export(_: int) -> object:
            self.exports += 1
            return docs.maintenance.export(self.folder / "exports" / str(self.exports))

        def rollback(turn: int) -> object:
            if docs.read("old") != ("tea first", "tea second")[turn]:
                docs.versions.rollback("old")

        (self.folder / "exports").mkdir()
        return {
            "add_texts": lambda turn: docs.add_texts(
                {"note": f"tea {turn}", "more": f"more tea {turn}"}
            ),
            "add_files": add_files,
            "delete_files": lambda turn: (
                docs.delete_files(["gone"]) if turn else docs.add_texts({"gone": "tea"})
            ),
            "update_metadata": lambda turn: docs.update_metadata(
                {"note": {"author": f"author {turn}"}}
            ),
            "sync": sync,
            "activate_group": define,
            "retry": lambda _: docs.sync(retry=True),
            "repair": lambda _: docs.maintenance.repair(),
            "compact": lambda _: docs.maintenance.compact(),
            "purge": lambda turn: (
                docs.maintenance.purge("secret")
                if turn
                else docs.add_texts({"secret": "secret tea"})
            ),
            "rollback": rollback,
            "export": export,
        }

    def _jobs(self) -> dict[str, Operation]:
        docs = self.docs

        def job(turn: int) -> object:
            Jobs(docs).submit("add_texts", {"texts": {"job": f"tea of a job {turn}"}})
            while self.worker.run_one() is not None:
                pass

        def cancel(_: int) -> object:
            made = Jobs(docs).submit("delete_files", {"documents": ["a.txt"]}, key="one")
            Jobs(docs).cancel(made.id)
            Jobs(docs).retry(made.id)
            return Jobs(docs).cancel(made.id)

        return {"jobs": job, "jobs.cancel": cancel}

    def _reads(self) -> dict[str, Operation]:
        docs = self.docs
        # it never changes
        node = next(one for one in docs.get_nodes("line") if one.path == "c.txt")

        def labels(nodes: Any) -> list[str]:
            return sorted(f"{one.path} {one.text}" for one in nodes if one.path != "probe")

        return {
            "bm25": lambda _: labels(self.by_word("green")),
            "vectors": lambda _: labels(self.by_vector("green")),
            "filters": lambda _: labels(self.by_word("tea", filters={"file_name": ["a.txt"]})),
            "hybrid": lambda _: labels(self.hybrid("green")),
            "search": lambda _: len(docs.search("coffee", 1)),
            "get_nodes": lambda _: len(docs.get_nodes("word")) > 0,
            "restricted": lambda _: labels(
                docs.restricted({"file_name": ["a.txt"]}).get_nodes("line")
            ),
            "outline": lambda _: len(outline(docs, "b.md")),
            "read": lambda _: docs.read("b.md"),
            "grep": lambda _: len(grep(docs, "coffee")),
            "tables": lambda _: [one.columns for one in docs.tables.list()],
            "related": lambda _: len(related(docs, node.uid)) > 0,
            "near_duplicates": lambda _: len(near_duplicates(docs)) >= 0,
            "find": lambda _: labels(docs.find("lazyllm_root")([node])),
            "find below": lambda _: len(docs.find("word")([node])) > 0,
            "window": lambda _: len(docs.window(node)) > 0,
            "dump": lambda _: len(list(docs.maintenance.dump())) > 0,
            "documents": lambda _: len(docs.documents()) > 0,
            "document": lambda _: docs.documents(ids=["b.md"])[0].status,
            "versions": lambda _: len(docs.versions.list("old")) > 0,
            "diff": lambda _: str(docs.versions.diff("old", docs.versions.list("old")[0].number))[
                :3
            ],
            "status": lambda _: type(docs.status()).__name__,
            "plan": lambda _: type(docs.plan()).__name__,
            "verify": lambda _: docs.maintenance.verify(),
            "jobs.list": lambda _: (
                len(Jobs(docs).list()) >= 0,
                Jobs(docs).find("none"),
                Jobs(docs).working(),
            ),
        }

    def look(self) -> State:
        """Texts and metadata of each document, and by which words and vectors they are found."""
        state: State = {}
        found = self.docs.get_nodes("line")
        for name, nodes in (
            ("lines", found),
            ("words", self.by_word("tea")),
            ("vectors", self.by_vector("tea")),
        ):
            for node in nodes:
                if node.path != "probe":
                    state.setdefault(f"{name} {node.path}", []).append(
                        (node.text, node.metadata.get("author"))
                    )
        group = self.docs.get_nodes("word")
        state["groups"] = len({node.text.count(" ") for node in group if node.path != "probe"})
        for path in (self.folder / "exports").glob("*"):
            if not (path / "manifest.json").exists():
                state[f"unfinished export {path.name}"] = True
        return {
            key: sorted(value) if isinstance(value, list) else value for key, value in state.items()
        }

    def probe(self, number: int) -> str:
        """Add a text; another thread finds it by words and by vectors."""
        self.probes += 1
        text = f"probe{self.probes}x"
        self.docs.add_texts({"probe": text})
        found: list[Any] = []

        def ask() -> None:
            found.extend(
                [
                    "probe" in {node.path for node in ask(text)}
                    for ask in (self.by_word, self.by_vector)
                ]
            )

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(_PATIENCE_S)
        if thread.is_alive():
            return "another thread waits for ever"
        return "" if found == [True, True] else f"what was added is found: {found}"

    def locked(self) -> str:
        """An open transaction, or a lease that nobody uses."""
        if self.uri is None:
            return ""
        if "://" in self.uri:
            with (
                self.docs.reader.indexer.ledger.file.second_writer() as server,
                server.writing() as connection,
            ):
                [held] = connection.execute(
                    "SELECT count(*) FROM ledger WHERE holder <> ''"
                ).fetchone()
            return "the lease is still held" if held else ""
        other = sqlite3.connect(self.uri, timeout=0.0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            [holders] = other.execute("SELECT count(*) FROM ledger WHERE holder <> ''").fetchone()
            other.execute("ROLLBACK")
        except sqlite3.OperationalError as exc:
            return str(exc)
        finally:
            other.close()
        return "the lease is still held" if holders else ""

    def check(self) -> str:
        """See `Maintenance.verify`."""
        return "; ".join(map(str, self.docs.maintenance.verify()))

    def close(self) -> None:
        """Close the Document."""
        self.docs.close()


class ClosingCase(Case):
    """Documents that are closed: a closed one says so, and the next one opens the store."""

    codes = set()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.docs = self._opened()
        self.operations = {"close": lambda _: self.docs.close(), "import_from": self.take_in}
        self.imports = 0
        self.docs.maintenance.export(folder / "export")

    def _opened(self) -> Document:
        store = {"segment_store": {"type": "map", "kwargs": {"uri": str(self.folder / "store.db")}}}
        docs = Document(embed={"dense": Embedder()}, store_conf=store)
        docs.create_node_group("line", transform=lines)
        docs.add_texts({"note": "tea"})
        return docs

    def take_in(self, _: int) -> object:
        """Import an export into an empty Document."""
        self.imports += 1
        docs = Document(embed={"dense": Embedder()})
        with suppress(ConfigError):  # it has been imported
            docs.maintenance.import_from(self.folder / "export")
        return docs.read("note")

    def look(self) -> State:
        """What is there, through the object or, where it is closed, another one."""
        try:
            return {"note": self.docs.read("note")}
        except StoreError as exc:
            if "closed" not in str(exc):
                raise
            self.docs = self._opened()
            return {"note": self.docs.read("note")}


class CacheCase(Case):
    """An embedding cache."""

    codes = set()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cache = EmbeddingCache(folder / "cache.db")
        space = VectorSpace("model", "document", 2, normalised=False)
        self.space = space
        self.cache.put_many(space, {"tea": [1.0, 2.0]})
        self.operations = {
            "cache.get_many": lambda _: {
                key: list(one) for key, one in self.cache.get_many(space, ["tea"]).items()
            },
            "cache.known": lambda _: self.cache.known(space, ["tea", "coffee"]),
            "cache.embeddings": lambda _: len(list(self.cache.embeddings())) > 0,
            "cache.put_many": lambda turn: self.cache.put_many(space, {"note": [float(turn), 1.0]}),
            "cache.copy_to": lambda _: self.cache.copy_to(folder / "copy.db"),
            "cache.stats": lambda _: self.cache.size_bytes > 0,
            "cache.clear": lambda turn: (
                self.cache.clear() if turn else self.cache.put_many(space, {"tea": [1.0, 2.0]})
            ),
        }

    def look(self) -> State:
        """The vectors by text."""
        return {
            key: list(one) for key, one in self.cache.get_many(self.space, ["tea", "note"]).items()
        }

    def probe(self, number: int) -> str:
        """Store a vector and read it again."""
        self.cache.put_many(self.space, {"probe": [float(number), 0.0]})
        found = self.cache.get_many(self.space, ["probe"])["probe"]
        return "" if list(found) == [number, 0.0] else f"what was stored is {found}"

    def locked(self) -> str:
        """An open transaction."""
        other = sqlite3.connect(self.folder / "cache.db", timeout=0.0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        except sqlite3.OperationalError as exc:
            return str(exc)
        finally:
            other.close()
        return ""

    def close(self) -> None:
        """Close it."""
        self.cache.close()


class Notes:
    """A source of three items, one of which changes, and one of which comes and goes."""

    name = "notes"
    turn = 0

    def items(self) -> Iterator[SourceItem]:
        """The items."""
        yield SourceItem("a", b"green tea")
        yield SourceItem("b", f"tea {self.turn}".encode())
        if self.turn:
            yield SourceItem("c", b"coffee")


class SourceCase(Case):
    """A source that fills a folder."""

    codes = {Notes.items.__code__}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.source = Notes()
        self.operations = {
            "fetch": self.fetch,
            "source.load": lambda _: sorted(one.identity for one in load_items(self.source))[:2],
        }

    def fetch(self, turn: int) -> object:
        """Fetch one of two states."""
        self.source.turn = turn
        return fetch(self.source, self.folder / "notes")

    def look(self) -> State:
        """The items' files."""
        return {path.name: path.read_text() for path in (self.folder / "notes").glob("*.txt")}


class RetrieverCase(Case):
    """A BM25 index of texts without a Document."""

    codes = {chinese_terms.__code__}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.retriever = BM25Retriever()
        texts = [
            [{"id": name, "text": f"tea {name}"} for name in names] for names in ("abc", "abcd")
        ]
        self.operations = {
            "index_documents": lambda turn: self.retriever.index_documents(texts[turn]),
            "BM25Retriever": lambda _: len(self.retriever.search("tea")) > 0,
        }
        self.retriever.index_documents(texts[0])

    def look(self) -> State:
        """What is found."""
        return {"found": [uid for uid, _ in self.retriever.search("tea")]}


def walk(
    make: Callable[[Path], Case],
    root: Path,
    tally: Tally,
    *,
    errors: tuple[type[BaseException], ...] = (KeyboardInterrupt, AlarmError),
    every: bool = False,
    step: int = 1,
    only: str = "",
) -> None:
    """Interrupt each operation of a case at each of its points.

    Args:
        make: Makes the case in a folder.
        root: A folder.
        tally: What to add to.
        errors: The exceptions.
        every: See `Interrupter`.
        step: Try every step-th point.
        only: Names of operations with commas between them; "" for all.
    """
    case = _made(make, root)
    for name in [name for name in case.operations if not only or name in only.split(",")]:
        before = tally.tried
        for error in errors:
            # and what is built at first use, is built
            looks = [_settled(case, name, turn) for turn in (0, 1)]
            looks = [_settled(case, name, turn) for turn in (0, 1)]
            at, turn = 1 + random.Random(name).randrange(step), 0
            while True:
                interrupter = Interrupter(at, error(), every=every, codes=case.codes)
                raised = interrupter.run(functools.partial(case.operations[name], turn))
                if not interrupter.point:
                    if raised is not None:
                        tally.note(f"{name}: {_describe(raised)}")
                    break
                tally.tried += 1
                tally.swallowed += raised is None
                problem = _problem(case, name, turn, looks, raised, interrupter, tally.tried)
                if problem:
                    tally.note(
                        f"{name}, {error.__name__}, point {at}, {interrupter.point}: {problem}"
                    )
                    with suppress(Exception):
                        case.close()
                    case = _made(make, root)
                    looks = [_settled(case, name, turn) for turn in (0, 1)]
                    looks = [_settled(case, name, turn) for turn in (0, 1)]
                    turn = 1
                at, turn = at + step, 1 - turn
        wrong = case.check()
        if wrong:
            tally.note(f"{name}: at the end: {wrong}")
            case = _made(make, root)
        print(f"{name:20} {tally.tried - before:7,}", flush=True)
    case.close()


def _made(make: Callable[[Path], Case], root: Path) -> Case:
    return make(Path(tempfile.mkdtemp(dir=root)))


def _settled(case: Case, name: str, turn: int) -> tuple[Any, State]:
    """The answer of an operation, and the state after it."""
    return case.operations[name](turn), case.look()


def _problem(
    case: Case,
    name: str,
    turn: int,
    looks: list[tuple[Any, State]],
    raised: BaseException | None,
    interrupter: Interrupter,
    number: int,
) -> str:
    """What is wrong with an object after an interrupt, whose traceback is still there."""
    if raised is not None and not _has_come_from(raised, interrupter.error):
        return f"raised {_describe(raised)}"
    for thread in threading.enumerate():
        if thread.name == "lazyrag beside a job" and thread.is_alive():
            thread.join(5)  # it ends what it has begun
    states = [one for _, one in looks]

    def goes_on() -> str:
        seen = case.look()
        wrong = _mixture(seen, states) or case.probe(number)
        if wrong or (seen == states[turn] and states[0] != states[1]):
            return wrong
        answer, seen = _settled(case, name, turn)
        if seen != states[turn]:
            return f"done once more, it gives {_difference(seen, states[turn])}"
        is_same = answer == looks[turn][0] or not isinstance(answer, (list, str, int, tuple, set))
        return "" if is_same else f"done once more, it answers {answer!r:.100}"

    return case.locked() or _failure(goes_on)


def _failure(goes_on: Callable[[], str]) -> str:
    """What a function finds wrong or raises; saying that the object is closed is not wrong."""
    try:
        return goes_on()
    except StoreError as exc:
        return "" if "closed" in str(exc) else _describe(exc)
    except Exception as exc:  # noqa: BLE001  reported
        return _describe(exc)


def _mixture(seen: State, states: list[State]) -> str:
    for key in {*seen, *states[0], *states[1]}:
        if seen.get(key) not in [one.get(key) for one in states]:
            return f"{key} is neither as before nor as after: {seen.get(key)}"
    return ""


class Alarms:
    """Real signals: a timer's, or one that another thread sends, raise an exception in the midst of
    a call.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.has_come = False
        for number in (signal.SIGALRM, signal.SIGUSR1):
            signal.signal(number, self._handle)

    def _handle(self, *_: object) -> None:
        error, self.error = self.error, None
        if error is not None:
            self.has_come = True
            raise error

    def run(
        self, call: Callable[[], object], error: BaseException, delay_s: float, *, threaded: bool
    ) -> Any:
        """Call a function; returns what it raised."""
        sender = threading.Timer(delay_s, os.kill, [os.getpid(), signal.SIGUSR1])
        sender.daemon = True
        try:
            self.error, self.has_come = error, False
            if threaded:
                sender.start()
            else:
                signal.setitimer(signal.ITIMER_REAL, delay_s)
            call()
            self.error = None
        except BaseException as exc:  # noqa: BLE001  it is looked at
            return exc
        finally:
            self.error = None
            sender.cancel()
        return None


def strike(
    make: Callable[[Path], Case], root: Path, tally: Tally, count: int, seed: int = 0
) -> None:
    """Interrupt so many calls by real signals at random moments, all of one object as long as it
    works.
    """
    chance, alarms, case = random.Random(seed), Alarms(), _made(make, root)
    until, turn, times = tally.tried + count, 0, _times(case)
    while tally.tried < until:
        name, turn = chance.choice(list(case.operations)), 1 - turn
        problem = _strike(case, name, turn, alarms, chance.uniform(0, times[name]), tally)
        if problem:
            tally.note(f"{name}, a signal: {problem}")
            with suppress(Exception):
                case.close()
            case = _made(make, root)
            _times(case)
    case.close()


def _times(case: Case) -> dict[str, float]:
    """How long each operation takes."""
    times: dict[str, float] = {}
    for name in case.operations:
        for turn in (0, 1):
            begun = time.monotonic()
            case.operations[name](turn)
            times[name] = time.monotonic() - begun
    return times


def _strike(case: Case, name: str, turn: int, alarms: Alarms, delay_s: float, tally: Tally) -> str:
    """Interrupt one call, if it is not faster; what is wrong then."""
    operation = functools.partial(case.operations[name], turn)
    before, error = case.look(), (KeyboardInterrupt, AlarmError)[tally.tried % 2]()

    def goes_on() -> str:
        seen = case.look()
        with suppress(ConfigError):  # what is deleted cannot be deleted once more
            operation()
        return _mixture(seen, [before, case.look()]) or case.probe(tally.tried)

    raised = alarms.run(operation, error, delay_s, threaded=tally.tried % 4 > 1)
    if not alarms.has_come or raised is None:
        return ""
    tally.tried += 1
    tally.by_operation[name] = tally.by_operation.get(name, 0) + 1
    if not _has_come_from(raised, error):
        return f"raised {_describe(raised)}"
    return case.locked() or _failure(goes_on) or (case.check() if tally.tried % 50 == 0 else "")


def _difference(seen: State, expected: State) -> str:
    keys = [key for key in {*seen, *expected} if seen.get(key) != expected.get(key)]
    return "; ".join(
        f"{key}: {seen.get(key)!r:.80}, not {expected.get(key)!r:.80}" for key in sorted(keys)[:2]
    )


def _describe(exc: BaseException) -> str:
    where = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{type(exc).__name__}: {exc} ({Path(where.filename).stem}:{where.lineno})"


CASES: dict[str, Callable[[Path], Case]] = {
    "document": DocumentCase,
    "memory": lambda folder: DocumentCase(folder, None),
    "closing": ClosingCase,
    "cache": CacheCase,
    "source": SourceCase,
    "retriever": RetrieverCase,
}


def in_postgres(url: str, folder: Path) -> Case:
    """A Document in a schema of its own."""
    return DocumentCase(folder, f"{url}?sslmode=disable&schema=interrupts_{secrets.token_hex(6)}")


def prepare() -> None:
    """Purge at once what is dead, and warn of nothing."""
    warnings.simplefilter("ignore", IngestionWarning)
    _set(opening, "_GRACE_S", 0.0)


def main() -> int:
    """Walk, and print what was tried and what went wrong; 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", choices=[*CASES], action="append")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--signals", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", default="")
    arguments = parser.parse_args()
    prepare()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="interrupts-") as root:
        cases = dict(CASES)
        if arguments.postgres:
            cases = {"document": functools.partial(in_postgres, arguments.postgres)}
        if arguments.signals:
            strike(cases["document"], Path(root), tally, arguments.signals, arguments.seed)
        for name in [] if arguments.signals else arguments.case or cases:
            walk(
                cases[name],
                Path(root),
                tally,
                every=arguments.every,
                step=arguments.step,
                only=arguments.only,
            )
    for name, tried in tally.by_operation.items():
        print(f"{name:20} {tried:7,}")
    print(*tally.problems, f"interrupts that came to nothing: {tally.swallowed}", tally, sep="\n")
    return int(bool(tally.broken))


if __name__ == "__main__":
    sys.exit(main())
