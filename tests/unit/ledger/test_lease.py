"""Who may write: one program at a time, for as long as it runs and goes on, under definitions
nobody contradicts.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from lazyrag import Document
from lazyrag.errors import StoreBusyError, StoreError
from lazyrag.ledger import lease as leases
from lazyrag.ledger.lease import Lease, LedgerConnection, Program, Turns
from lazyrag.ledger.ledger import Ledger
from lazyrag.stores.sqlite import StoreFile
from tests.interpreter import python

LONG_S = 30.0
ELSEWHERE = "another-machine"


@pytest.fixture
def file(tmp_path):
    """An open store file with one ledger."""
    with closing(StoreFile(tmp_path / "store.db")) as opened:
        Ledger(opened, "default")
        yield opened


def row(file):
    """Who holds the lease, and for how many seconds from now."""
    with file.reading() as connection:
        holder, expires = connection.execute("SELECT holder, expires_at FROM ledger").fetchone()
    return holder, expires - time.time()


def entered(file, program, seconds):
    """Enter a program as the holder."""
    with file.writing() as connection:
        connection.execute(
            "UPDATE ledger SET holder = ?, holder_told = ?, expires_at = ?",
            (program.id, program.to_json(), time.time() + seconds),
        )


def ended():
    """A program of this machine that runs no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    return Program(pid=child.pid, started=1)


def running():
    """A program of this machine that runs: the one above this one."""
    return Program(name="other", pid=os.getppid(), started=leases._started(os.getppid()))


def elsewhere():
    """A program of another machine, of which nobody here knows whether it runs."""
    return Program(name="other", host=ELSEWHERE, pid=1, started=7)


def test_a_lease_is_taken_and_given_back(file):
    """While it is held the ledger names the program; afterwards nobody."""
    lease = Lease(file, 1, Program())
    with lease.held():
        holder, seconds = row(file)
        assert holder == lease.program.id
        assert 0 < seconds <= leases.LEASE_S
    assert row(file)[0] == ""


def test_who_holds_it_goes_on(file):
    """Within one another it is one lease, which ends with the outermost block, also by an error."""
    lease = Lease(file, 1, Program())

    def fail():
        with lease.held(), lease.held():
            with lease.held():
                pass
            assert row(file)[0] == lease.program.id
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert row(file)[0] == ""
    with lease.held():
        assert row(file)[0] == lease.program.id


@pytest.mark.parametrize("program", [running, elsewhere])
def test_another_program_holds_it(file, program):
    """Then it is refused, the holder named, and what to do."""
    other = program()
    entered(file, other, LONG_S)
    with (
        pytest.raises(
            StoreBusyError,
            match=rf"is being written by 'other', process {other.pid} on .*read_only=True",
        ),
        Lease(file, 1, Program()).held(),
    ):
        pass
    assert row(file)[0] == other.id


def test_two_programs_in_one_process(file):
    """Two opened ledgers of one process are two programs: the second one waits for the first."""
    first, second = Lease(file, 1, Program()), Lease(file, 1, Program())
    with first.held():
        with pytest.raises(StoreBusyError, match=r"\(this process\)"), second.held():
            pass
        assert row(file)[0] == first.program.id
    with second.held():
        assert row(file)[0] == second.program.id


def test_several_threads_take_turns(tmp_path):
    """Opened ledgers of one process never hold it at the same time, and each gets it in the end."""
    entering, turns = threading.Lock(), []

    def work():
        with closing(StoreFile(tmp_path / "store.db")) as file:
            lease = Lease(file, Ledger(file, "default").id, Program())
            for _ in range(40):
                with lease.held(LONG_S), file.writing() as connection:
                    assert entering.acquire(blocking=False)
                    lease.ensure_held(connection)
                    entering.release()
                    turns.append(lease)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work) for _ in range(4)]:
            future.result()
    assert len(turns) == 160


class Aside:
    """A thread with an operation that has stepped aside until it is to end."""

    def __init__(self, turns):
        self.begun, self.finish = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, args=[turns])
        self.thread.start()
        assert self.begun.wait(LONG_S)

    def run(self, turns):
        """What the thread does."""
        with turns.taken(beside=True), turns.aside():
            self.begun.set()
            assert self.finish.wait(LONG_S)

    def end(self):
        """End the operation."""
        self.finish.set()
        self.thread.join()


def begins_beside(turns):
    """Whether an operation that runs beside others may begin now."""
    with turns.taken(0.0, beside=True) as has_turn:
        return has_turn


def test_who_waits_for_the_others_is_not_overtaken_for_ever():
    """Operations begin beside an older one while somebody waits for it, and then not before who
    waits.
    """
    turns, ends = Turns(), []

    def whole():
        with turns.taken():
            ends.append(len(ends))

    old = Aside(turns)
    thread = threading.Thread(target=whole)
    thread.start()
    while not turns._queue:
        time.sleep(0.001)
    young = Aside(turns)
    assert begins_beside(turns)
    old.end()
    assert not begins_beside(turns)
    young.end()
    thread.join()
    assert ends == [0]
    assert begins_beside(turns)


def test_an_interrupt_ends_the_wait_for_other_threads(monkeypatch):
    """An operation that waits until it is the only one has its turn again at once, and passes the
    interrupt on.
    """
    turns, aside, finish, waits = Turns(), threading.Event(), threading.Event(), []

    def other():
        with turns.taken(beside=True), turns.aside():
            aside.set()
            finish.wait()

    def interrupted(seconds):
        waits.append(seconds)
        raise KeyboardInterrupt

    def settle():
        with turns.aside():
            thread.start()
            assert aside.wait(LONG_S)
        monkeypatch.setattr(leases.time, "sleep", interrupted)
        turns.settle()

    thread = threading.Thread(target=other)
    with turns.taken():
        with pytest.raises(KeyboardInterrupt):
            settle()
        assert len(waits) == 1
    monkeypatch.undo()
    finish.set()
    thread.join()
    with turns.taken(0.0) as has_turn:
        assert has_turn


def test_it_is_waited_for(file):
    """Who has patience gets it as soon as it is given back."""
    first, second = Lease(file, 1, Program()), Lease(file, 1, Program())
    waiting, got = threading.Event(), threading.Event()

    def wait():
        waiting.set()
        with second.held(LONG_S):
            got.set()

    with first.held():
        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(LONG_S)
        assert not got.wait(0.1)
    assert got.wait(LONG_S)
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_patience_ends(file):
    """After the time given it is refused, and not before."""
    entered(file, running(), LONG_S)
    since = time.monotonic()
    with pytest.raises(StoreBusyError), Lease(file, 1, Program()).held(0.2):
        pass
    assert time.monotonic() - since >= 0.2


@pytest.mark.parametrize("program", [running, elsewhere])
def test_it_runs_out(file, program):
    """A lease that nobody renewed is taken over, whoever held it: its machine may be gone."""
    entered(file, program(), -0.001)
    lease = Lease(file, 1, Program())
    with lease.held():
        assert row(file)[0] == lease.program.id


def test_a_holder_that_has_ended(file):
    """Its lease is taken over at once, long before it runs out."""
    entered(file, ended(), LONG_S)
    with Lease(file, 1, Program()).held():
        pass
    assert row(file)[0] == ""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells when a process began"
)
def test_a_process_of_the_same_number(file):
    """Numbers of processes are used again: another process of the number, begun at another time, is
    not the holder.
    """
    entered(file, replace(running(), started=1), LONG_S)
    with Lease(file, 1, Program()).held():
        pass
    assert row(file)[0] == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of zombies")
def test_a_holder_that_nobody_has_waited_for(file):
    """A killed process that still stands in the list of processes, as in containers, has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # noqa: RUF100
    try:
        program = Program(pid=child.pid, started=leases._started(child.pid))
        assert not program.has_ended()
        entered(file, program, LONG_S)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        assert program.has_ended()
        with Lease(file, 1, Program()).held():
            pass
    finally:
        child.communicate()


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems have no PID namespaces"
)
@pytest.mark.parametrize("part", [1, 2])
def test_processes_of_another_namespace(file, part):
    """Process ids of another boot or container mean nothing here, not even ours: only the clock
    ends such a lease.
    """
    here = Program()
    place = here.host.split(" ")
    place[part] = "another"
    there = replace(here, id="there", host=" ".join(place))
    old = replace(here, id="old", host=platform.node())  # as earlier releases wrote it
    for program in (there, replace(there, pid=ended().pid), old):
        assert not program.is_here
        assert not program.has_ended()
        entered(file, program, LONG_S)
        with pytest.raises(StoreBusyError, match=rf"process {program.pid} on {platform.node()}\."):
            Lease(file, 1, Program()).held().__enter__()


def test_a_clock_that_was_set_back(file, monkeypatch):
    """A lease far into the future ends where nobody renews it while a program waits; renewed ones
    do not.
    """
    monkeypatch.setattr(leases, "LEASE_S", 0.3)
    lease, other = Lease(file, 1, Program()), elsewhere()
    deadline = time.monotonic() + 0.6
    while time.monotonic() < deadline:  # over several calls
        entered(file, other, 86_400)
        with pytest.raises(StoreBusyError):
            lease.held(0.1).__enter__()
    since = time.monotonic()
    with lease.held(LONG_S):
        assert 0.1 < time.monotonic() - since < LONG_S / 2


WRITER = """
import os, sys
from lazyrag import Document
conf = {"segment_store": {"type": "map", "kwargs": {"uri": sys.argv[1]}}}
with Document(store_conf=conf) as docs:
    for number in range(12):
        docs.add_texts({f"{sys.argv[2]}-{number}.txt": "Green tea keeps for a year."})
print(os.getpid())
"""


def in_namespace(*command):
    """A command in a PID namespace of its own, under this host name."""
    return ["unshare", "--user", "--map-root-user", "--fork", "--pid", "--mount-proc", *command]


@pytest.mark.slow
def test_writers_in_two_containers(tmp_path):
    """Containers that share a volume and a host name take turns: nobody is taken for dead, every
    write succeeds.
    """
    if (
        not shutil.which("unshare")
        or subprocess.run(in_namespace("true"), capture_output=True, check=False).returncode
    ):
        pytest.skip("no PID namespaces can be made here")
    path = str(tmp_path / "store.db")
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    programs = [
        subprocess.Popen(
            in_namespace(
                "sh",
                "-c",
                f"{sys.executable} {script} {path} {name}a & {sys.executable} {script} {path} {name}b & wait",
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "xy"
    ]
    answers = [program.communicate(timeout=120) for program in programs]
    assert [errors for _, errors in answers] == ["", ""]
    numbers = [sorted(map(int, output.split())) for output, _ in answers]
    assert numbers[0] == numbers[1]  # the same process ids in both
    with Document(store_conf={"segment_store": {"type": "map", "kwargs": {"uri": path}}}) as docs:
        assert len(docs.get_nodes()) == 48
        assert docs.maintenance.verify() == ()


def test_a_long_operation_keeps_it(file, monkeypatch):
    """It is renewed while it is held, so that it outlasts its own length."""
    monkeypatch.setattr(leases, "LEASE_S", 2.0)
    lease = Lease(file, 1, Program())
    with lease.held():
        with file.reading() as connection:
            [first] = connection.execute("SELECT expires_at FROM ledger").fetchone()
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline:
            with file.reading() as connection:
                [now] = connection.execute("SELECT expires_at FROM ledger").fetchone()
            if now > first:
                break
            threading.Event().wait(0.02)
        assert now > first
    assert row(file)[0] == ""


def test_a_lease_that_was_lost(file):
    """A program that did not go on for too long finds that another one has taken over, and writes
    nothing.
    """
    slow = Lease(file, 1, Program())
    taker = running()
    with slow.held():
        entered(file, taker, LONG_S)
        with (
            pytest.raises(StoreBusyError, match="has run out and was taken over by 'other'"),
            file.writing() as connection,
        ):
            slow.ensure_held(connection)
    assert row(file)[0] == taker.id  # it gives back what is its own only


def test_a_lost_lease_nobody_took(file):
    """Where it was taken and given back meanwhile, it is lost as well."""
    lease = Lease(file, 1, Program())
    with lease.held():
        with file.writing() as connection:
            connection.execute("UPDATE ledger SET holder = '', holder_told = ''")
        with (
            pytest.raises(StoreBusyError, match=r"was taken over:.*do it again"),
            file.writing() as connection,
        ):
            lease.ensure_held(connection)


def test_a_zombie_writes_nothing(tmp_path):
    """A sync whose lease is taken over in the middle ends with an error; what was live stays, the
    next one goes on.
    """
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    (dataset / "a.txt").write_text("green tea")
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    taken = []

    def lines(text):
        if "white" in text and not taken:
            entered(docs.reader.indexer.ledger.file, running(), LONG_S)
            taken.append(text)
        return text.splitlines()

    with Document(dataset, store_conf=conf, workers=1) as docs:
        docs.create_node_group("line", transform=lines)
        docs.activate_group("line")
        before = list(docs.maintenance.dump())
        (dataset / "a.txt").write_text("white tea")
        with pytest.raises(StoreBusyError, match="has run out and was taken over"):
            docs.sync()
        assert list(docs.maintenance.dump()) == before
        entered(docs.reader.indexer.ledger.file, running(), -1)
        assert docs.sync().updated == ("a.txt",)
        assert [node.text for node in docs.get_nodes("line")] == ["white tea"]
        assert docs.maintenance.verify() == ()


def test_nobody_writes_without_it(file):
    """Every change of a ledger outside of a held lease is refused."""
    ledger = Ledger(file, "default")
    for work in (
        lambda: ledger.flip([]),
        lambda: ledger.builds.uncover([]),
        lambda: ledger.documents.tombstone([1], "deleted"),
        ledger.announce_removal,
    ):
        with pytest.raises(StoreBusyError):
            work()


def test_ledgers_of_one_file(file):
    """Each Document of a file has a lease of its own: two of different names do not wait for each
    other.
    """
    first, second = Ledger(file, "one"), Ledger(file, "two")
    with first.lease.held(), second.lease.held():
        assert first.writer() != ""
        assert second.writer() != ""
    assert first.writer() == second.writer() == ""


def test_a_file_that_is_closed_meanwhile(tmp_path):
    """Giving back what lies in a closed file, or on a full disk, raises nothing; its process is not
    blocked by it.
    """
    opened = StoreFile(tmp_path / "store.db")
    Ledger(opened, "default")
    lease = Lease(opened, 1, Program())
    with lease.held():
        opened.close()
    with closing(StoreFile(tmp_path / "store.db")) as again:
        assert row(again)[0] == lease.program.id
        with Lease(again, 1, Program()).held():
            pass


def test_a_program_is_told_to_others():
    """What one program writes another one reads: the same program, and a sentence about it."""
    program = Program(name="demo.py", host=ELSEWHERE, pid=4711, started=9)
    assert Program.from_json(program.to_json(), program.id) == program
    assert str(program) == "'demo.py', process 4711 on another-machine"
    assert not program.is_here
    assert not program.has_ended()


def test_this_program():
    """It knows itself, and every opened ledger has an id of its own."""
    one, other = Program(), Program()
    assert one.is_here
    assert not one.has_ended()
    assert one.id != other.id
    assert str(one).endswith(f"process {os.getpid()} on {platform.node()} (this process)")


@pytest.mark.slow
def test_a_child_is_another_program():
    """Another process sees that this one runs, and that it is not itself."""
    told = Program().to_json()
    code = (
        "from lazyrag.ledger.lease import Program\n"
        f"one = Program.from_json({told!r}, 'x')\n"
        "print(one.is_here, one.has_ended())"
    )
    assert python("-c", code).stdout.strip() == "False False"


def define(file, program, **definitions):
    """Say by which definitions a program works."""
    ledger = LedgerConnection(file, "default")
    ledger.program = program
    with file.writing() as connection:
        ledger.claim(connection, definitions)


@pytest.mark.parametrize("program", [running, elsewhere])
def test_definitions_that_contradict(file, program):
    """Two running programs do not work with different definitions of one group: the second is
    refused.
    """
    define(file, program(), line="one", word="same")
    with pytest.raises(
        StoreBusyError,
        match=r"The node group 'line' is in use under another definition, by 'other'",
    ):
        define(file, Program(), line="two", word="same")
    with file.reading() as connection:
        assert connection.execute("SELECT count(*) FROM program").fetchone() == (1,)


def test_definitions_that_do_not(file):
    """Equal ones, and such of groups that the other one does not have, go together."""
    define(file, running(), line="one")
    define(file, Program(), line="one", page="other")
    define(file, Program(), page="another")


@pytest.mark.parametrize("program", [ended, Program])
def test_definitions_of_who_is_gone(file, program):
    """A program that has ended has no say, nor has the cell of a notebook that was run before."""
    define(file, program(), line="one")
    define(file, Program(), line="two")


@pytest.mark.parametrize("ago_s", [leases.LEASE_S + 1, -86_400], ids=["long ago", "clock set back"])
def test_definitions_of_a_machine_that_is_silent(file, ago_s):
    """A program of another machine that has not worked for the length of a lease has no say any
    more.
    """
    define(file, elsewhere(), line="one")
    with file.writing() as connection:
        connection.execute("UPDATE program SET seen_at = seen_at - ?", (ago_s,))
    define(file, Program(), line="two")


def test_a_program_may_change_its_mind(file):
    """Its own earlier definitions do not hold it."""
    program = Program()
    define(file, program, line="one")
    define(file, program, line="two")
    with file.reading() as connection:
        assert connection.execute("SELECT definitions FROM program").fetchall() == [
            ('{"line": "two"}',)
        ]


def test_closing_takes_definitions_back(tmp_path):
    """After a Document is closed, nobody is bound by what it defined."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(store_conf=conf) as docs:
        docs.sync()
    with closing(StoreFile(tmp_path / "store.db")) as file, file.reading() as connection:
        assert connection.execute("SELECT count(*) FROM program").fetchone() == (0,)


def test_a_reader_takes_no_lease(tmp_path):
    """With read_only=True the right to write is refused without a wait."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with Document(store_conf=conf) as docs:
        docs.sync()
    with (
        Document(store_conf=conf, read_only=True) as docs,
        pytest.raises(StoreError, match="read_only"),
    ):
        docs.reader.indexer.ledger.lease.held(LONG_S).__enter__()
