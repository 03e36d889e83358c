"""Several programs on one store: readers during re-ingestion, writers one at a time, definitions
that do not agree.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import platform
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import pytest

from lazyrag import Document, Retriever
from lazyrag.document import open as opening
from lazyrag.errors import StaleNodeError, StoreBusyError, StoreError
from lazyrag.ingest import indexer
from tests.interpreter import ROOT, waiting

WORLD = '''
"""What all programs of a test define; every line of a file says which version of it that is."""

from collections import defaultdict

from lazyrag import Document, Retriever
from lazyrag.errors import StaleNodeError

DOCUMENTS = 6


def text_of(number, version):
    """A file: from four to six lines, in two halves."""
    count = 4 + (number + version) % 3
    lines = [f"tea d{number} v{version} l{line} of {count}" for line in range(1, count + 1)]
    return "\\n".join(lines[:2]) + "\\n\\n" + "\\n".join(lines[2:])


def halves(text):
    return text.split("\\n\\n")


def lines(text):
    return text.splitlines()


def embed(text):
    return [1.0, float(len(text)), float(sum(map(ord, text)) % 97)]


def open_documents(dataset, store, **arguments):
    """The Document on a store file."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
    docs = Document(str(dataset), embed=embed, store_conf=conf, **arguments)
    docs.create_node_group("half", transform=halves)
    docs.create_node_group("line", transform=lines, parent="half")
    return docs


def versions(text):
    """The versions that the lines of a text say they are of."""
    return {word for word in text.split() if word[0] == "v"}


def problem(texts, together):
    """What is wrong with an answer that has to have every line of every document; "" if nothing.

    All lines of a document have to be of one version, and those of all documents, where they change together.
    """
    found = defaultdict(list)
    for text in texts:
        _, number, version, line, _, count = text.split()
        found[number].append((version, int(count), int(line[1:])))
    if len(found) != DOCUMENTS:
        return f"missing documents: {sorted(found)}"
    groups = [sum(found.values(), [])] if together else found.values()
    if any(len({version for version, _, _ in rows}) != 1 for rows in groups):
        return f"mixed versions: {dict(found)}"
    for number, rows in found.items():
        if sorted(line for _, _, line in rows) != list(range(1, rows[0][1] + 1)):
            return f"not once each: {number} {rows}"
    return ""


class Asking:
    """Asks in turn in all ways there are, and finds out what is wrong with the answers."""

    def __init__(self, docs, together=True):
        self.docs, self.together = docs, together
        self.words = Retriever(docs, "line", similarity="bm25", topk=1000)
        self.vectors = Retriever(docs, "line", similarity="cosine", topk=1000)
        self.few = Retriever(docs, "line", similarity="bm25", topk=3)
        self.above = Retriever(docs, "line", similarity="bm25", topk=1000, target="half")
        self.asked = 0
        self.problems = []
        self.seen = set()
        self.stale = 0
        self.latest = 0

    def ask(self):
        """The next question."""
        ways = (self.by_words, self.by_vectors, self.all_nodes, self.beginning, self.parents, self.relatives)
        way = ways[self.asked % len(ways)]
        wrong = way()
        if wrong:
            self.problems.append(f"{way.__name__}: {wrong}")
        self.asked += 1

    def checked(self, texts):
        wrong = problem(texts, self.together)
        version = max((int(one[1:]) for text in texts for one in versions(text)), default=0)
        self.seen.add(version)
        if version < self.latest:
            wrong = wrong or f"went back from version {self.latest} to {version}"
        self.latest = version
        return wrong

    def by_words(self):
        return self.checked([hit.text for hit in self.words("tea")])

    def by_vectors(self):
        return self.checked([hit.text for hit in self.vectors("tea")])

    def all_nodes(self):
        return self.checked([node.text for node in self.docs.get_nodes("line")])

    def beginning(self):
        hits = self.few("tea")
        return "" if len(hits) == 3 and len({hit.uid for hit in hits}) == 3 else f"{len(hits)} of 3 hits"

    def parents(self):
        return self.checked([line for hit in self.above("tea") for line in hit.text.splitlines()])

    def relatives(self):
        """The nodes around one are of its version; or it says that it is of an older one than is live."""
        node = self.words("tea")[self.asked % 20]
        own = versions(node.text)
        try:
            above = node.parent
            below = above.children
            if "line" not in below:
                self.words("tea")  # raises, if the group was replaced in this moment
                return f"no lines beneath {above.text}"
            children = [one.text for one in below["line"]]
            around = [above.text, node.root.text, *children]
        except StaleNodeError:
            self.stale += 1
            return ""
        if node.text not in children:
            return f"{node.text} is not among its parent's children {children}"
        return next((f"{one} around {own}" for one in around if versions(one) != own), "")
'''

READER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from world import Asking, open_documents
with open_documents(sys.argv[2], sys.argv[3], read_only=True) as docs:
    asking = Asking(docs)
    asking.ask()
    print("ready", flush=True)
    for _ in range(int(sys.argv[4])):
        asking.ask()
    result = {"asked": asking.asked, "problems": asking.problems[:5], "versions": len(asking.seen)}
    print(json.dumps({**result, "stale": asking.stale}), flush=True)
"""


class Library:
    """A dataset of versions, its store, and the module that all programs define their groups by."""

    def __init__(self, root):
        """Write the module and the first version of all files."""
        self.root, self.dataset, self.store = root, root / "dataset", root / "store.db"
        self.dataset.mkdir()
        (root / "world.py").write_text(WORLD, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("world", root / "world.py")
        self.world = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.world)
        self.write(1)

    def write(self, version):
        """Bring all files to a version."""
        for number in range(self.world.DOCUMENTS):
            path = self.root / "being written"
            path.write_text(self.world.text_of(number, version), encoding="utf-8")
            path.replace(self.dataset / f"d{number}.txt")  # nobody finds half a file

    def open(self, **arguments):
        """The Document, in this process."""
        return self.world.open_documents(self.dataset, self.store, **arguments)

    @contextmanager
    def process(self, script, *arguments):
        """Another program on the same files, at the point where it says that it is ready."""
        with waiting(script, self.root, self.dataset, self.store, *arguments) as process:
            yield process

    def ledger(self, statement, *values):
        """Run a statement on the store file, as another program might."""
        with closing(sqlite3.connect(self.store, timeout=30)) as connection, connection:
            return connection.execute(statement, values).fetchall()


@pytest.fixture
def library(tmp_path):
    """Six files of version 1, and no store yet."""
    return Library(tmp_path)


def build(docs):
    """Have everything that is asked for."""
    docs.sync()
    for similarity in ("bm25", "cosine"):
        Retriever(docs, "line", similarity=similarity)("tea")


def hammer(library, queries, thread_count):
    """Sync version after version while a reader process, and threads of this one, ask all the
    time.
    """
    with library.open() as docs:
        build(docs)
        ended = threading.Event()
        threads = [Thread(library.world.Asking(docs), ended) for _ in range(thread_count)]
        with library.process(READER, queries) as process:
            for thread in threads:
                thread.start()
            reader = Output(process)
            try:
                for version in itertools.count(2):
                    if not reader.is_alive():
                        break
                    library.write(version)
                    docs.sync()
            finally:
                ended.set()
                for thread in threads:
                    thread.join(60)
            assert process.wait(60) == 0
    return json.loads(reader.line), [thread.asking for thread in threads], version


class Output(threading.Thread):
    """Waits for the next line that a process prints."""

    def __init__(self, process):
        """Begin to wait."""
        super().__init__(daemon=True)
        self.process, self.line = process, b""
        self.start()

    def run(self):
        """Wait."""
        self.line = self.process.stdout.readline()


class Thread(threading.Thread):
    """Asks until it is told to end; keeps what it was that ended it."""

    def __init__(self, asking, ended):
        """Do not begin yet."""
        super().__init__(daemon=True)
        self.asking, self.ended = asking, ended

    def run(self):
        """Ask."""
        try:
            while not self.ended.is_set():
                self.asking.ask()
                self.ended.wait(0.001)  # the writer is to come to something
        except Exception as exc:  # noqa: BLE001  it is asserted on in the test's own thread
            self.asking.problems.append(repr(exc))


@pytest.mark.slow
@pytest.mark.parametrize("grace_s", [10.0, 0.0], ids=["with grace", "purged at once"])
def test_readers_during_re_ingestion(library, grace_s, monkeypatch):
    """In another process and in other threads every answer is one whole version of all
    documents.
    """
    monkeypatch.setattr(opening, "_GRACE_S", grace_s)
    reader, threads, version = hammer(library, 300, 2)
    assert reader["problems"] == []
    assert reader["asked"] == 301
    assert [asking.problems for asking in threads] == [[], []]
    assert version > 3
    assert reader["versions"] > 1
    assert all(len(asking.seen) > 1 for asking in threads)


@pytest.mark.share(3)
@pytest.mark.slow
def test_ten_thousand_queries_during_re_ingestion(library, monkeypatch):
    """Ten thousand answers in another process: no mixed version, no missing document, no short
    answer.
    """
    # a hundred syncs; more dead rows would make the questions slow
    monkeypatch.setattr(opening, "_GRACE_S", 0.5)
    reader, _, version = hammer(library, 10_000, 0)
    assert reader["problems"] == []
    assert reader["asked"] == 10_001
    assert reader["versions"] > 10
    assert version > 20


UNTIL_ERROR = """
import json, sys
sys.path.insert(0, sys.argv[1])
from lazyrag.errors import StoreError
from world import Asking, open_documents
with open_documents(sys.argv[2], sys.argv[3], read_only=True) as docs:
    asking = Asking(docs)
    asking.ask()
    print("ready", flush=True)
    told = ""
    while not told:
        try:
            asking.ask()
        except StoreError as exc:
            told = str(exc)
    print(json.dumps({"problems": asking.problems[:5], "told": told}), flush=True)
"""


@pytest.mark.slow
def test_a_transform_that_the_writer_edits(library):
    """A reader that defines the group as it was answers rightly until it is replaced, and then says
    what to do.
    """
    with library.open() as docs:
        build(docs)
    with library.process(UNTIL_ERROR) as process:
        with library.open() as docs:
            edited = lambda text: [line.upper() for line in text.splitlines()]  # noqa: E731  that is how users write them
            docs.create_node_group("line", transform=edited, parent="half", replace=True)
            build(docs)
            assert all(node.text.isupper() for node in docs.get_nodes("line"))
            output = json.loads(process.stdout.readline())
        assert process.wait(60) == 0
    assert output["problems"] == []
    assert "read_only=True" in output["told"]
    assert "its definition has changed" in output["told"]


@pytest.mark.slow
def test_what_another_process_syncs_is_in_the_next_answer(library):
    """A Document that is open sees what another program made live, at its next question, without
    being told.
    """
    with library.open(read_only=False) as docs:
        build(docs)
        assert library.world.Asking(docs).by_words() == ""
        library.write(2)
        script = "import sys; sys.path.insert(0, sys.argv[1]); from world import open_documents\n"
        script += (
            "with open_documents(*sys.argv[2:4]) as docs: docs.sync()\nprint('ready', flush=True)"
        )
        with library.process(script) as process:
            assert process.wait(60) == 0
        asking = library.world.Asking(docs)
        assert [asking.by_words(), asking.by_vectors(), asking.all_nodes(), asking.parents()] == [
            ""
        ] * 4
        assert asking.seen == {2}


HOLDING = """
import sys
sys.path.insert(0, sys.argv[1])
import world
def held(text):
    print("ready", flush=True)
    sys.stdin.readline()
    return text.upper()
with world.open_documents(sys.argv[2], sys.argv[3], workers=1) as docs:
    docs.sync()
    docs.create_node_group("held", transform=held)
    docs.get_nodes("held", limit=1)
"""


def release(process):
    """Let a holder go through all its files."""
    process.stdin.write(b"\n" * 100)
    process.stdin.flush()


@pytest.mark.slow
def test_two_writers_at_once(library):
    """The second waits until the first has ended, and then finds everything as if it had been
    alone.
    """
    with library.open() as docs:
        build(docs)
        dump = list(docs.maintenance.dump())
        with library.process(HOLDING) as process:
            library.write(2)
            syncing = threading.Thread(target=docs.sync, daemon=True)
            syncing.start()
            syncing.join(0.3)
            assert syncing.is_alive()
            release(process)
            assert process.wait(60) == 0
            syncing.join(60)
            assert not syncing.is_alive()
        asking = library.world.Asking(docs)
        assert [asking.all_nodes(), asking.seen] == ["", {2}]
        library.write(1)
        docs.sync()
        assert [line for line in docs.maintenance.dump() if '"held"' not in line] == dump


SYNCING = """
import sys
sys.path.insert(0, sys.argv[1])
from world import Asking, open_documents
with open_documents(sys.argv[2], sys.argv[3]) as docs:
    asking = Asking(docs, together=False)  # the files are written one by one
    print("ready", flush=True)
    for _ in range(8):
        docs.sync()
        asking.ask()
print(asking.problems, flush=True)
"""


@pytest.mark.slow
def test_two_programs_that_sync_in_turns(library):
    """Pain 15: both bring in what changed; no answer is wrong, and the store ends as one alone
    would have made it.
    """
    with library.open() as docs:
        build(docs)
        with library.process(SYNCING) as first, library.process(SYNCING) as second:
            for version in range(2, 8):
                library.write(version)
                docs.sync()
            assert [process.stdout.read() for process in (first, second)] == [b"[]\n"] * 2
        docs.sync()
        asking = library.world.Asking(docs)
        assert [asking.by_words(), asking.by_vectors(), asking.all_nodes(), asking.seen] == [
            "",
            "",
            "",
            {7},
        ]
        dump = list(docs.maintenance.dump())
    library.store = library.root / "fresh.db"
    with library.open() as docs:
        build(docs)
        assert list(docs.maintenance.dump()) == dump


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["at first use", "later"])
def test_a_sync_that_waits_keeps_no_question_waiting(library, first):
    """While a thread waits for another program in sync(), others are answered from what is live."""
    with library.open() as docs:
        build(docs)
    with library.open() as docs:
        if not first:
            build(docs)
        with library.process(HOLDING) as process:
            library.write(2)
            syncing = threading.Thread(target=docs.sync, daemon=True)
            syncing.start()
            syncing.join(0.3)
            asking = library.world.Asking(docs)
            late = threading.Timer(20, release, [process])
            late.start()
            began = time.monotonic()
            assert asking.by_words() == ""
            took = time.monotonic() - began
            late.cancel()
            late.join()
            release(process)
            syncing.join(60)
            assert process.wait(60) == 0
        assert asking.seen == {1}
        assert took < 15


@pytest.mark.slow
def test_a_busy_store_names_who_writes(library, monkeypatch):
    """Who needs what is not built, while another program writes, learns which program that is and
    what to do.
    """
    monkeypatch.setattr(indexer, "WAIT_S", 0.2)
    with library.open() as docs:
        build(docs)
    with library.process(HOLDING) as process, library.open() as docs:
        docs.create_node_group("new", transform=str.lower)
        began = time.monotonic()
        with pytest.raises(
            StoreBusyError, match=rf"process {process.pid} on .*read_only=True"
        ) as caught:
            docs.activate_group("new")
        assert time.monotonic() - began > 0.15
        assert isinstance(caught.value, StoreError)
        release(process)
        assert process.wait(60) == 0
        assert len(docs.get_nodes("new")) == 6


@pytest.mark.slow
def test_what_is_live_is_served_while_another_program_writes(library):
    """A program that has not synced yet answers at once from what is there, and syncs when it
    can.
    """
    with library.open() as docs:
        build(docs)
    with library.process(HOLDING) as process:
        library.write(2)
        with library.open() as docs:
            asking = library.world.Asking(docs)
            assert [asking.by_words(), asking.by_vectors(), asking.all_nodes()] == [""] * 3
            assert asking.seen == {1}
            release(process)
            assert process.wait(60) == 0
            deadline = time.monotonic() + 60
            while asking.latest < 2 and time.monotonic() < deadline:
                assert asking.by_words() == ""
            assert asking.seen == {1, 2}


@pytest.mark.slow
def test_a_killed_holder_is_taken_over_at_once(library):
    """Its lease has most of a minute to go, and nobody waits for that: on one machine it is known
    that it has ended.
    """
    with library.open() as docs:
        build(docs)
        dump = list(docs.maintenance.dump())
    with library.process(HOLDING) as process:
        process.kill()
        process.wait(60)
    [(holder, expires)] = library.ledger("SELECT holder, expires_at FROM ledger")
    assert holder
    assert expires > time.time() + 10
    with library.open() as docs:
        docs.sync()
        assert time.time() < expires
        assert list(docs.maintenance.dump()) == dump


def hold_elsewhere(library, expires_at):
    """A lease of a program on another machine."""
    told = {"name": "app.py", "host": f"not-{platform.node()}", "pid": os.getpid(), "started": 1}
    library.ledger(
        "UPDATE ledger SET holder = 'other', holder_told = ?, expires_at = ?",
        json.dumps(told),
        expires_at,
    )


def test_an_expired_lease_of_another_machine(library):
    """Nobody can tell whether its program runs; it has not renewed it, so it is taken over."""
    with library.open() as docs:
        build(docs)
        library.write(2)
        hold_elsewhere(library, time.time() - 1)
        assert len(docs.sync().updated) == 6
        assert library.ledger("SELECT holder FROM ledger") == [("",)]


def test_a_lease_of_another_machine(library, monkeypatch):
    """It may be running: it is not taken over, and named by machine and program."""
    monkeypatch.setattr(indexer, "WAIT_S", 0.2)
    with library.open() as docs:
        build(docs)
        hold_elsewhere(library, time.time() + 3600)
        docs.create_node_group("new", transform=str.lower)
        with pytest.raises(StoreBusyError, match=rf"'app.py', process {os.getpid()} on not-"):
            docs.activate_group("new")
        assert library.ledger("SELECT holder FROM ledger") == [("other",)]
        assert library.world.Asking(docs).by_words() == ""
        hold_elsewhere(library, time.time() - 1)
        assert len(docs.get_nodes("new")) == 6


@pytest.mark.slow
def test_a_lease_that_was_lost_writes_nothing(library):
    """A program that stood still for too long finds its lease taken over, and stops without a trace
    in what is live.
    """
    with library.open(workers=1) as docs:
        build(docs)
        dump = [line for line in docs.maintenance.dump() if "slow" not in line]

        def slow(text):
            hold_elsewhere(library, time.time() + 3600)
            return text

        docs.create_node_group("slow", transform=slow)
        with pytest.raises(
            StoreBusyError, match=r"has run out and was taken over by 'app.py'.*do it again"
        ):
            docs.get_nodes("slow")
        assert list(docs.maintenance.dump()) == dump
        hold_elsewhere(library, time.time() - 1)
        docs.create_node_group("slow", transform=str.strip, replace=True)
        assert len(docs.get_nodes("slow")) == 6


WITH_A_DEFINITION = """
import sys
sys.path.insert(0, sys.argv[1])
import world
with world.open_documents(sys.argv[2], sys.argv[3]) as docs:
    docs.get_nodes("line")
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_two_programs_with_different_definitions(library):
    """The second is refused, naming group and program, until the first has ended; then it builds by
    its own.
    """
    with library.process(WITH_A_DEFINITION) as process, library.open() as docs:
        docs.create_node_group("line", transform=str.split, parent="half", replace=True)
        with pytest.raises(
            StoreBusyError,
            match=rf"'line' is in use under another definition, by .*process {process.pid} on",
        ):
            docs.get_nodes("line")
        with library.open() as same:
            assert library.world.Asking(same).all_nodes() == ""
        release(process)
        assert process.wait(60) == 0
        assert docs.get_nodes("line")[0].text == "tea"


@pytest.mark.slow
def test_a_killed_program_s_definitions(library):
    """What a program worked by that was killed binds nobody."""
    with library.process(WITH_A_DEFINITION) as process:
        process.kill()
        process.wait(60)
    assert len(library.ledger("SELECT id FROM program")) == 1
    with library.open() as docs:
        docs.create_node_group("line", transform=str.split, parent="half", replace=True)
        assert docs.get_nodes("line")[0].text == "tea"


@pytest.mark.slow
def test_documents_of_different_names_in_one_file(library, tmp_path):
    """They share a file and nothing else: neither nodes, nor definitions, nor the right to
    write.
    """
    other = tmp_path / "other"
    other.mkdir()
    (other / "d0.txt").write_text("coffee", encoding="utf-8")
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(library.store)}}}
    with library.open() as docs, Document(other, store_conf=conf, name="other") as others:
        build(docs)
        others.create_node_group("line", transform=str.split)
        assert [node.text for node in others.get_nodes("line")] == ["coffee"]
        assert Retriever(others, "line", similarity="bm25")("tea") == []
        assert library.world.Asking(docs).all_nodes() == ""
        (other / "d0.txt").unlink()
        assert others.sync(max_deleted=1).deleted == ("d0.txt",)
        assert len(docs.sync().unchanged) == 6
        with library.process(HOLDING) as process:
            (other / "d1.txt").write_text("milk", encoding="utf-8")
            assert others.sync().added == ("d1.txt",)
            release(process)
            assert process.wait(60) == 0


@pytest.mark.slow
def test_a_notebook_s_second_document(library):
    """A cell that is run again opens the Document a second time, defined otherwise, and both answer
    by their own.
    """
    with library.open() as first:
        build(first)
        again = library.open()
        assert again.sync().unchanged == first.sync().unchanged
        again.create_node_group("line", transform=str.split, parent="half", replace=True)
        assert again.get_nodes("line")[0].text == "tea"
        assert len(Retriever(again, "line", similarity="bm25", topk=99)("tea")) > 6
        again.close()
        build(first)
        assert library.world.Asking(first).all_nodes() == ""


def test_a_node_that_was_kept_while_its_file_changed(library):
    """It follows into the live tree where that holds the same node, and says that it is stale where
    it does not.
    """
    with library.open() as docs:
        build(docs)
        node = Retriever(docs, "line", similarity="bm25", topk=1)("d3")[0]
        path = library.dataset / "d3.txt"
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "\ntea d3 v1 l7 of 7", encoding="utf-8")
        docs.sync()
        if node.text in text.split("\n\n")[0]:
            assert node.parent.text == text.split("\n\n")[0]
        assert node.text in node.parent.text
        path.write_text("tea d3 v2 l1 of 1", encoding="utf-8")
        docs.sync()
        with pytest.raises(StaleNodeError, match="Retrieve the node again"):
            _ = node.parent


def test_reading_what_was_never_written(library):
    """A reader of a store that is not there yet, or holds nothing of that name, says so and makes
    nothing.
    """
    with pytest.raises(StoreError, match="does not exist"):
        library.open(read_only=True)
    assert not library.store.exists()
    with library.open() as docs:
        build(docs)
    with (
        library.open(read_only=True, name="unknown") as docs,
        pytest.raises(StoreError, match="never built"),
    ):
        docs.get_nodes("line")
    assert library.ledger("SELECT name FROM ledger") == [("default",)]


@pytest.mark.slow
def test_a_reader_changes_nothing(library):
    """Whatever a reader is asked, no byte of the store file becomes another."""
    with library.open() as docs:
        build(docs)
    before = library.store.read_bytes()
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from world import Asking, open_documents\n"
    )
    script += (
        "with open_documents(*sys.argv[2:4], read_only=True) as docs:\n    asking = Asking(docs)\n"
    )
    script += "    for _ in range(12): asking.ask()\n    print(asking.problems)\n"
    command = [
        sys.executable,
        "-c",
        script,
        *map(str, (library.root, library.dataset, library.store)),
    ]
    run = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.stdout, run.stderr) == ("[]\n", "")
    assert library.store.read_bytes() == before
