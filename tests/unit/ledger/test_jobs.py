"""Jobs: stored calls, run by workers of any thread or program.

All kills: ``LAZYRAG_KILLS=100 python -m pytest tests/unit/ledger/test_jobs.py -m ""``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from lazyrag import Document
from lazyrag.errors import ConfigError, DatasetPathError, NotRegisteredError, StoreError
from lazyrag.server import jobs as module
from lazyrag.server.jobs import Jobs, Worker
from tests.earlier_formats import to_format_3

TEA = {"texts": {"tea": "Green tea is not roasted."}}


def conf(path):
    return {"segment_store": {"type": "map", "kwargs": {"uri": path}}}


@pytest.fixture
def docs(tmp_path):
    """A Document in a store file."""
    with Document(store_conf=conf(tmp_path / "store.db")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    """Workers look at the rows of their jobs often, so that tests need not wait for them."""
    monkeypatch.setattr(module, "_LOOK_S", 0.02)


def execute(docs, statement, *parameters):
    """Change the store file as another program would."""
    with Jobs(docs).writing() as (connection, _):
        connection.execute(statement, parameters)


def blocking(docs):
    """A reader of files that waits: events that it has begun, and that it may go on."""
    begun, go_on = threading.Event(), threading.Event()

    def read(path):
        begun.set()
        go_on.wait(60)
        return path.read_text(encoding="utf-8")

    docs.add_reader("*.slow", read)
    return begun, go_on


@pytest.mark.parametrize("place", ["memory", "file"])
def test_a_job_is_stored_run_and_reported(place, tmp_path):
    """From WAITING to SUCCESS, with the method's report as its result."""
    with Document(store_conf=None if place == "memory" else conf(tmp_path / "store.db")) as docs:
        job = Jobs(docs).submit("add_texts", {**TEA, "metadata": {"tea": {"year": 2024}}})
        assert (job.state, job.attempts, job.heartbeat, job.is_finished) == (
            "WAITING",
            0,
            None,
            False,
        )
        assert Jobs(docs).working() == {"tea": "WAITING"}
        assert docs.get_nodes() == []
        done = Worker(docs).run_one()
        assert done == Jobs(docs).get(job.id) == Jobs(docs).wait(job.id)
        assert (done.state, done.attempts, done.error, done.is_finished) == (
            "SUCCESS",
            1,
            None,
            True,
        )
        assert done.result["added"] == ["tea"]
        assert done.result["counts"]["added"] == 1
        assert done.progress.done == done.progress.total == 1
        assert job.created == done.created < done.updated
        assert docs.get_nodes()[0].metadata["year"] == 2024
        assert Jobs(docs).working() == {}
        assert Worker(docs).run_one() is None


def test_jobs_are_listed_in_pages(docs):
    """The newest first; by state; other Documents in the file have their own."""
    ids = [Jobs(docs).submit("verify").id for _ in range(5)]
    Jobs(docs).cancel(ids[1])
    listed = Jobs(docs).list(limit=2)
    assert [one.id for one in listed] == [ids[4], ids[3]]
    assert [one.id for one in Jobs(docs).list(after=listed[-1].id)] == [ids[2], ids[1], ids[0]]
    assert [one.id for one in Jobs(docs).list(state="CANCELED")] == [ids[1]]
    with Document(store_conf=conf(Jobs(docs).file.path), name="other") as other:
        assert Jobs(other).list() == []
        with pytest.raises(NotRegisteredError, match="no job"):
            Jobs(other).get(ids[0])
        assert Worker(other).run_one() is None


def test_a_key_leads_to_its_job_for_a_day(docs, monkeypatch):
    """A second submission makes no second job; after 24 hours the key is free."""
    first = Jobs(docs).submit("add_texts", TEA, key="upload 1")
    assert Jobs(docs).submit("add_texts", TEA, key="upload 1") == first
    assert Jobs(docs).submit("add_texts", TEA, key="upload 2") != first
    later = time.time() + 24 * 3600 + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert Jobs(docs).submit("add_texts", TEA, key="upload 1").id != first.id
    assert len(Jobs(docs).list()) == 3


@pytest.mark.parametrize(
    ("kind", "arguments", "named"),
    [
        ("ad_texts", {}, "add_texts"),
        ("add_texts", {"texts": {}, "colour": 1}, "colour"),
        ("add_texts", {}, "texts"),
        ("add_texts", {"texts": {"a": b"bytes"}}, "JSON"),
        ("activate_group", {"names": ["line"], "embed": 1}, "embed"),
        ("sync", ["dry_run"], "arguments"),
    ],
)
def test_a_job_is_checked_when_it_is_submitted(docs, kind, arguments, named):
    """An error now, not in the worker."""
    with pytest.raises(ConfigError, match=named):
        Jobs(docs).submit(kind, arguments)
    assert Jobs(docs).list() == []


def test_other_arguments_are_checked(docs, tmp_path):
    """Ids that are no ids name no job; a worker needs to write; a view has no jobs."""
    for wrong in ("7", "", "-1", "1; DROP TABLE job", "9" * 30):
        with pytest.raises(NotRegisteredError):
            Jobs(docs).get(wrong)
    with pytest.raises(ConfigError, match="limit"):
        Jobs(docs).list(limit=0)
    with pytest.raises(ConfigError, match="DELETED"):
        Jobs(docs).list(state="DONE")
    with (
        Document(store_conf=conf(Jobs(docs).file.path), read_only=True) as reader,
        pytest.raises(ConfigError, match="read-only"),
    ):
        Worker(reader)
    with pytest.raises(ConfigError, match="restricted"):
        Jobs(docs.restricted({"file_type": ".txt"}))


def test_a_read_only_document_submits_for_the_writer(docs):
    """It sees the job's state, and then the document, although it writes nothing else."""
    with Document(store_conf=conf(Jobs(docs).file.path), read_only=True) as reader:
        job = Jobs(reader).submit("add_texts", TEA)
        assert Jobs(docs).get(job.id) == job
        assert Worker(docs).run_one().id == job.id
        assert Jobs(reader).get(job.id).state == "SUCCESS"
        assert [one.path for one in reader.get_nodes()] == ["tea"]
        assert Jobs(reader).cancel(Jobs(reader).submit("verify").id).state == "CANCELED"


def test_every_kind_runs(folder, tmp_path):
    """Each with the arguments that a program would send; paths are those of the program that
    submits.
    """
    root = folder({"a.txt": "green tea\nblack tea"})
    (tmp_path / "b.txt").write_text("white tea", encoding="utf-8")
    with Document(root, store_conf=conf(tmp_path / "store.db"), keep_versions=2) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        for kind, arguments in [
            ("sync", {"on_error": "raise"}),
            (
                "add_files",
                {
                    "files": {"b": os.path.relpath(tmp_path / "b.txt")},
                    "metadata": {"b": {"year": 1}},
                },
            ),
            ("add_texts", TEA),
            ("add_texts", {"texts": {"tea": "Another text."}}),
            ("update_metadata", {"changes": {"tea": {"year": 2}}}),
            ("rollback", {"document": "tea"}),
            ("activate_group", {"names": ["line"], "analysers": ["en"]}),
            ("retry_failed", {}),
            ("verify", {}),
            ("repair", {}),
            ("compact", {}),
            ("delete_files", {"documents": ["tea"]}),
        ]:
            job = Jobs(docs).submit(kind, arguments)
            done = Worker(docs).run_one()
            assert done.id == job.id
            assert (done.state, done.error) == (
                "DELETED" if kind == "delete_files" else "SUCCESS",
                None,
            ), kind
            json.dumps([done.result, done.arguments])
        assert sorted(one.path for one in docs.get_nodes()) == ["a.txt", "b"]
        assert len(docs.get_nodes("line")) == 3


def test_files_are_named_by_what_they_will_be(folder):
    """A file of the folder by its path there, another one by its id; one that does not exist is an
    error now.
    """
    root = folder({"a/b.txt": "green tea"})
    docs = Document(root)
    with pytest.raises(DatasetPathError, match="does not exist"):
        Jobs(docs).submit("add_files", {"files": ["missing.txt"]})
    Jobs(docs).submit("add_files", {"files": [str(root / "a" / "b.txt")]})
    assert Jobs(docs).working() == {"a/b.txt": "WAITING"}
    assert Worker(docs).run_one().result["added"] == ["a/b.txt"]


def test_a_worker_of_a_closed_document_ends(tmp_path):
    """With an error, at once."""
    docs = Document(store_conf=conf(tmp_path / "store.db"))
    worker = Worker(docs)
    docs.close()
    with pytest.raises(StoreError, match="closed"):
        worker.run(threading.Event())


def test_a_job_that_raises_has_failed(docs):
    """With the error's class, what is wrong and what to do; retried, it is run again."""
    job = Jobs(docs).submit("delete_files", {"documents": ["tea"]})
    assert Jobs(docs).working() == {"tea": "DELETING"}
    failed = Worker(docs).run_one()
    assert (failed.state, failed.error.type) == ("FAILED", "ConfigError")
    assert failed.error.detail == "There is no document 'tea'."
    assert failed.error.remedy
    assert Worker(docs).run_one() is None
    docs.add_texts(TEA["texts"])
    assert Jobs(docs).retry(job.id).state == "WAITING"
    done = Worker(docs).run_one()
    assert (done.state, done.error) == ("DELETED", None)
    with pytest.raises(ConfigError, match="succeeded"):
        Jobs(docs).retry(job.id)


def test_a_waiting_job_is_cancelled_at_once(docs):
    """It is not run, unless it is retried; a finished one stays as it is."""
    job = Jobs(docs).submit("add_texts", TEA)
    assert Jobs(docs).cancel(job.id).state == "CANCELED"
    assert Worker(docs).run_one() is None
    Jobs(docs).retry(job.id)
    assert Worker(docs).run_one().state == "SUCCESS"
    assert Jobs(docs).cancel(job.id).state == "SUCCESS"


def test_a_running_job_is_cancelled_at_a_safe_point(docs, tmp_path):
    """The worker sees the request; the other job succeeds."""
    begun, go_on = blocking(docs)
    paths = {}
    for name in "abc":
        paths[name] = str(tmp_path / f"{name}.slow")
        (tmp_path / f"{name}.slow").write_text(f"{name} tea", encoding="utf-8")
    job = Jobs(docs).submit("add_files", {"files": paths})
    following = Jobs(docs).submit("add_texts", TEA)
    stop = threading.Event()
    thread = threading.Thread(target=Worker(docs).run, args=[stop])
    thread.start()
    begun.wait(60)
    running = Jobs(docs).get(job.id)
    assert (running.state, running.attempts) == ("WORKING", 1)
    # the small one runs beside it
    assert Jobs(docs).working().items() >= dict.fromkeys("abc", "WORKING").items()
    assert Jobs(docs).cancel(job.id).state == "WORKING"
    time.sleep(0.6)  # many looks at the job's row
    go_on.set()
    assert Jobs(docs).wait(job.id, timeout_s=60).state == "CANCELED"
    assert Jobs(docs).wait(following.id, timeout_s=60).state == "SUCCESS"
    stop.set()
    thread.join()
    assert docs.maintenance.verify() == ()
    Jobs(docs).retry(job.id)
    assert Worker(docs).run_one().result["counts"]["added"] + len(docs.get_nodes()) >= 4
    assert sorted(one.path for one in docs.get_nodes()) == ["a", "b", "c", "tea"]


def test_a_stopped_worker_hands_its_job_back(docs, tmp_path):
    """It waits for the next worker, as if it had not been begun."""
    begun, go_on = blocking(docs)
    for name in "ab":
        (tmp_path / f"{name}.slow").write_text(f"{name} tea", encoding="utf-8")
    job = Jobs(docs).submit(
        "add_files", {"files": [str(tmp_path / "a.slow"), str(tmp_path / "b.slow")]}
    )
    stop = threading.Event()
    thread = threading.Thread(target=Worker(docs).run, args=[stop])
    thread.start()
    begun.wait(60)
    stop.set()
    time.sleep(0.6)  # many looks at the job's row
    go_on.set()
    thread.join()
    handed_back = Jobs(docs).get(job.id)
    assert (handed_back.state, handed_back.attempts) == ("WAITING", 0)
    assert Worker(docs).run_one().state == "SUCCESS"


def test_progress_is_written_while_a_job_runs(docs, tmp_path):
    """Others see how far it is, and that its worker lives."""
    begun, go_on = blocking(docs)
    for name in "ab":
        (tmp_path / f"{name}.slow").write_text(f"{name} tea", encoding="utf-8")
    (tmp_path / "0.txt").write_text("the first", encoding="utf-8")
    files = {name: str(tmp_path / name) for name in ("0.txt", "a.slow", "b.slow")}
    job = Jobs(docs).submit("add_files", {"files": files})
    thread = threading.Thread(target=Worker(docs).run_one)
    thread.start()
    begun.wait(60)
    deadline = time.monotonic() + 60
    while Jobs(docs).get(job.id).progress is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 0 < Jobs(docs).get(job.id).progress.done < Jobs(docs).get(job.id).progress.total == 3
    assert Jobs(docs).wait(job.id, timeout_s=0.1).state == "WORKING"
    go_on.set()
    thread.join()
    assert Jobs(docs).get(job.id).state == "SUCCESS"


def test_jobs_run_one_after_the_other(docs, tmp_path):
    """In their order, however many workers there are: a deletion does not overtake what it
    deletes.
    """
    begun, go_on = blocking(docs)
    (tmp_path / "a.slow").write_text("a tea", encoding="utf-8")
    Jobs(docs).submit("add_files", {"files": {"a": str(tmp_path / "a.slow")}})
    deletion = Jobs(docs).submit("delete_files", {"documents": ["a"]})
    thread = threading.Thread(target=Worker(docs).run_one)
    thread.start()
    begun.wait(60)
    with Document(store_conf=conf(Jobs(docs).file.path)) as other:
        assert Worker(other).run_one() is None
        assert Worker(docs).run_one() is None
        go_on.set()
        thread.join()  # which may have run the deletion, too
        Worker(other).run_one()
    assert Jobs(docs).wait(deletion.id, 60).state == "DELETED"
    assert docs.get_nodes() == []


def test_a_job_waits_while_another_program_writes(docs, monkeypatch):
    """It says whom it waits for, and costs no attempt."""
    monkeypatch.setattr("lazyrag.ledger.lease.WAIT_S", 0.0)
    begun, go_on = threading.Event(), threading.Event()

    def hold(progress):
        begun.set()
        go_on.wait(60)

    job = Jobs(docs).submit("sync", {"wait_s": 0.1})
    with Document(store_conf=conf(Jobs(docs).file.path)) as other:
        thread = threading.Thread(
            target=other.add_texts, args=[{"a": "tea"}], kwargs={"on_progress": hold}
        )
        thread.start()
        begun.wait(60)
        waiting = Worker(docs).run_one()
        assert (waiting.state, waiting.attempts, waiting.error.type) == (
            "WAITING",
            0,
            "StoreBusyError",
        )
        go_on.set()
        thread.join()
        done = Worker(docs).run_one()
    assert (done.id, done.state, done.error) == (job.id, "SUCCESS", None)


def taken(docs, *, host=None, pid=None, started=0, heartbeat=None, attempts=1):
    """A job that another program has claimed."""
    job = Jobs(docs).submit("add_texts", TEA)
    program = json.dumps(
        {
            "name": "other.py",
            "host": host or module.Program().host,
            "pid": pid or 2**22 + 1,
            "started": started,
        }
    )
    execute(
        docs,
        "UPDATE job SET state = 'WORKING', worker = 'another', program = ?, heartbeat = ?, attempts = ? WHERE id = ?",
        *(program, time.time() if heartbeat is None else heartbeat, attempts, int(job.id)),
    )
    return job


def test_the_job_of_an_ended_process_is_taken_over_at_once(docs):
    """However fresh its heartbeat is."""
    job = taken(docs)
    done = Worker(docs).run_one()
    assert (done.id, done.state, done.attempts) == (job.id, "SUCCESS", 2)


def test_the_job_of_a_silent_machine_is_taken_over(docs, monkeypatch):
    """Once it has shown nothing new for ten seconds, whatever its clock says."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    job = taken(docs, host="elsewhere", heartbeat=time.time() + 20)
    worker = Worker(docs)
    assert worker.run_one() is None
    now[0] += 8
    execute(docs, "UPDATE job SET heartbeat = heartbeat + 1")
    assert worker.run_one() is None
    now[0] += 9
    assert worker.run_one() is None
    now[0] += 2
    assert worker.run_one().id == job.id


def test_a_job_that_killed_its_workers_has_failed(docs):
    """After three attempts, with an error that says so; a retry begins anew. A cancelled one is
    cancelled.
    """
    job = taken(docs, attempts=3)
    assert Worker(docs).run_one() is None
    failed = Jobs(docs).get(job.id)
    assert (failed.state, failed.error.type) == ("FAILED", "WorkerDied")
    assert "3 attempts" in failed.error.detail
    Jobs(docs).retry(job.id)
    assert Worker(docs).run_one().state == "SUCCESS"
    other = taken(docs)
    Jobs(docs).cancel(other.id)
    assert Worker(docs).run_one() is None
    assert Jobs(docs).get(other.id).state == "CANCELED"


def test_a_worker_that_lost_its_job_writes_nothing_of_it(docs, tmp_path):
    """It stops, and the result is that of the worker that took the job over."""
    begun, go_on = blocking(docs)
    for name in "ab":
        (tmp_path / f"{name}.slow").write_text(f"{name} tea", encoding="utf-8")
    files = {name: str(tmp_path / f"{name}.slow") for name in "ab"}
    job = Jobs(docs).submit("add_files", {"files": files})
    thread = threading.Thread(target=Worker(docs).run_one)
    thread.start()
    begun.wait(60)
    execute(
        docs,
        "UPDATE job SET worker = 'another', result = '{\"by\": \"another\"}', state = 'SUCCESS'",
    )
    time.sleep(0.6)  # many looks at the job's row
    go_on.set()
    thread.join()
    assert Jobs(docs).get(job.id).result == {"by": "another"}
    assert docs.maintenance.verify() == ()


def test_finished_jobs_hold_no_texts(docs):
    """A text is with its document alone."""
    Jobs(docs).submit("add_texts", TEA)
    done = Worker(docs).run_one()
    assert done.arguments == {"texts": {"tea": ""}}


def test_a_purged_document_is_in_no_job(docs):
    """Neither in those that named it, with its text, nor in the one that purges it, at whatever
    attempt.
    """
    name, text = (
        "a note with a name of more than thirty-two bytes",
        "The well is dry; ask Wei for the pump, tomorrow.",
    )
    for given in ("first " * 9, text):
        Jobs(docs).submit("add_texts", {"texts": {name: given}, "metadata": {name: {"year": 2024}}})
        Worker(docs).run_one()
    Jobs(docs).cancel(Jobs(docs).submit("add_texts", {"texts": {name: text + " And again."}}).id)
    other = Jobs(docs).submit("add_texts", TEA)
    Worker(docs).run_one()
    job = Jobs(docs).submit("purge", {"document": name})
    done = Worker(docs).run_one()
    assert (done.state, done.error) == ("DELETED", None)
    assert not any(place["found"] for place in done.result["checked"])
    assert [one.id for one in Jobs(docs).list()] == [job.id, other.id]
    assert docs.maintenance.deletion_certificate(name, text=text).is_clean
    execute(docs, "UPDATE job SET state = 'DELETING' WHERE id = ?", int(job.id))
    assert Worker(docs).run_one().state == "DELETED"


def test_a_job_that_purges_has_no_id_from_its_first_attempt_on(docs):
    """In the transaction that claims it: a worker that is killed behind that leaves none."""
    docs.add_texts({"a secret name": "Green tea."})
    execute(docs, "CREATE TEMP TABLE seen (arguments TEXT, documents TEXT)")
    execute(
        docs,
        "CREATE TEMP TRIGGER look AFTER UPDATE OF state ON job WHEN new.state = 'DELETING' "
        "BEGIN INSERT INTO seen VALUES (new.arguments, new.documents); END",
    )
    Jobs(docs).submit("purge", {"document": "a secret name"})
    assert Worker(docs).run_one().state == "DELETED"
    with Jobs(docs).writing() as (connection, _):
        [(arguments, documents)] = connection.execute("SELECT * FROM seen").fetchall()
    assert "secret" not in arguments
    assert documents == "[]"


def test_a_rollback_that_failed_is_retried_from_what_is_live_then(docs):
    """It does not take a version that came meanwhile for its own work."""
    with Document(store_conf=conf(Jobs(docs).file.path), keep_versions=2) as writer:
        writer.add_texts({"tea": "first"})
        job = Jobs(docs).submit("rollback", {"document": "tea"})
        assert Worker(writer).run_one().state == "FAILED"
        writer.add_texts({"tea": "second"})
        Jobs(docs).retry(job.id)
        assert Worker(writer).run_one().state == "SUCCESS"
        assert [node.text for node in writer.get_nodes()] == ["first"]


def test_a_job_that_is_gone_stops_its_attempt(docs, tmp_path):
    """Another worker has finished it meanwhile, and its row was removed."""
    begun, go_on = blocking(docs)
    (tmp_path / "a.slow").write_text("tea", encoding="utf-8")
    (tmp_path / "b.slow").write_text("tea", encoding="utf-8")
    Jobs(docs).submit(
        "add_files", {"files": {name: str(tmp_path / f"{name}.slow") for name in "ab"}}
    )
    ended = []
    worker = Worker(docs)
    thread = threading.Thread(target=lambda: ended.append(worker.run_one()))
    thread.start()
    begun.wait(60)
    execute(docs, "DELETE FROM job")
    time.sleep(0.3)  # many looks at the job's row
    go_on.set()
    thread.join()
    assert ended == [None]
    assert docs.maintenance.verify() == ()


def test_old_jobs_are_removed(docs, monkeypatch):
    """A month after their end; those that wait stay."""
    finished = Jobs(docs).submit("verify")
    Worker(docs).run_one()
    waiting = Jobs(docs).submit("verify")
    later = time.time() + 31 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: later)
    new = Jobs(docs).submit("verify")
    assert [one.id for one in Jobs(docs).list()] == [new.id, waiting.id]
    assert finished.id not in {new.id, waiting.id}


@pytest.mark.slow
def test_long_results_are_cut(docs):
    """A report of many files stays small, and says how many they are."""
    Jobs(docs).submit("add_texts", {"texts": {f"{number:03}": "tea" for number in range(300)}})
    result = Worker(docs).run_one().result
    assert len(result["added"]) == 200
    assert result["counts"]["added"] == 300


def test_a_store_of_an_earlier_release_gets_its_table(tmp_path):
    """Its documents stay; a release that does not know jobs says that the file is newer."""
    path = tmp_path / "store.db"
    with Document(store_conf=conf(path)) as docs:
        docs.add_texts(TEA["texts"])
    to_format_3(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE job")
        connection.execute("ALTER TABLE ledger DROP COLUMN switched")
        connection.execute("PRAGMA user_version = 2")
    with Document(store_conf=conf(path), read_only=True) as docs:  # which migrates nothing
        assert [one.path for one in docs.get_nodes()] == ["tea"]
        assert Jobs(docs).list() == []
        assert Jobs(docs).working() == {}
        with pytest.raises(NotRegisteredError):
            Jobs(docs).get("1")
        job = Jobs(docs).submit("verify")  # as a program that writes
        assert Jobs(docs).list() == [job]
    with Document(store_conf=conf(path)) as docs:
        assert Worker(docs).run_one().id == job.id


def test_a_second_attempt_repeats_nothing(docs):
    """What the first one deleted or rolled back before its worker died is done; what it did not
    is.
    """
    with Document(store_conf=conf(Jobs(docs).file.path), keep_versions=2) as writer:
        for text in ("first", "second"):
            writer.add_texts({"tea": text, "coffee": text})
        job = Jobs(docs).submit("rollback", {"document": "tea"})
        rolled_back = Worker(writer).run_one()
        assert rolled_back.result["number"] == 3
        execute(docs, "UPDATE job SET state = 'WORKING' WHERE id = ?", int(job.id))
        again = Worker(writer).run_one()
        assert (again.attempts, again.state, again.result) == (2, "SUCCESS", rolled_back.result)
        assert {one.path: one.text for one in writer.get_nodes()} == {
            "tea": "first",
            "coffee": "second",
        }
        job = Jobs(docs).submit("delete_files", {"documents": ["tea", "coffee"]})
        Worker(writer).run_one()
        execute(docs, "UPDATE job SET state = 'DELETING' WHERE id = ?", int(job.id))
        writer.maintenance.purge("tea")
        writer.add_texts({"coffee": "third"})
        assert Worker(writer).run_one().state == "DELETED"
        assert writer.get_nodes() == []


# Kills

_WORKER = """
import sys, threading
from lazyrag import Document
from lazyrag.server.jobs import Worker
from tests.earlier_formats import to_format_3

conf = {"segment_store": {"type": "map", "kwargs": {"uri": sys.argv[1]}}}
with Document(store_conf=conf) as docs:
    docs.create_node_group("line", transform=str.splitlines)
    print("ready", flush=True)
    Worker(docs).run(threading.Event())
"""
TRACE = """
CREATE TABLE trace (job INTEGER, state TEXT, at REAL DEFAULT (unixepoch('subsec')));
CREATE TRIGGER trace AFTER UPDATE OF state ON job BEGIN INSERT INTO trace (job, state) VALUES (new.id, new.state); END;
"""


def start(path):
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, os.fspath(path)], stdout=subprocess.PIPE
    )


def kill_workers(path, kills, seed):
    """Submit jobs while workers are killed at random instants; what became of each, and which had
    to be retried.
    """
    rng = random.Random(seed)
    with Document(store_conf=conf(path)) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.activate_group("line", analysers=["en"])
        execute(docs, TRACE.partition(";\n")[0])
        execute(docs, TRACE.partition(";\n")[2])
    jobs = []
    with Document(store_conf=conf(path), read_only=True) as reader:
        for kill in range(kills):
            process = start(path)
            texts = {f"{kill} {number}": f"tea {number}\nof {kill}" for number in range(30)}
            jobs.append(Jobs(reader).submit("add_texts", {"texts": texts}, key=str(kill)))
            jobs.append(Jobs(reader).submit("delete_files", {"documents": [f"{kill} 7"]}))
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0, 0.25))
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        process = start(path)
        try:
            done = [Jobs(reader).wait(job.id, timeout_s=30) for job in jobs]
            # A job that three workers happened to be killed in has failed, and with it the deletion
            # of its document.
            texts = {
                job.key for job in done if job.error is not None and job.error.type == "WorkerDied"
            }
            failed = [job for job in done if job.state == "FAILED"]
            assert all(
                job.attempts == 3 or job.arguments["documents"][0].split()[0] in texts
                for job in failed
            )
            for job in failed:
                Jobs(reader).retry(job.id)
            return [Jobs(reader).wait(job.id, timeout_s=30) for job in jobs], texts
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def check_kills(path, kills, seed):
    """No job is lost, none is run again after its success, none is stuck, and each has done its
    work.
    """
    jobs, late = kill_workers(path, kills, seed)
    assert {(job.kind, job.state) for job in jobs} == {
        ("add_texts", "SUCCESS"),
        ("delete_files", "DELETED"),
    }
    with closing(sqlite3.connect(path)) as connection:
        trace = connection.execute("SELECT job, state FROM trace ORDER BY rowid").fetchall()
    finished = set()
    for job, state in trace:
        assert job not in finished, "run again after its end"
        if state in {"SUCCESS", "DELETED"}:
            finished.add(job)
    assert finished == {int(job.id) for job in jobs}
    with Document(store_conf=conf(path)) as docs:
        docs.create_node_group("line", transform=str.splitlines)
        docs.sync()
        assert docs.maintenance.verify() == ()
        expected = {
            f"{kill} {number}" for kill in range(kills) for number in range(30) if number != 7
        }
        # A deletion may have overtaken an addition that failed and was retried.
        found = {one.path for one in docs.get_nodes()}
        assert found - {f"{kill} 7" for kill in late} == expected
        assert len(docs.get_nodes("line")) == 2 * len(found)
    return trace


@pytest.mark.parametrize("kind", ["add_texts", "add_files"])
@pytest.mark.parametrize("left", [[], ["a"]])
def test_what_was_deleted_beside_a_first_attempt_is_not_added_by_the_second(tmp_path, kind, left):
    """Its worker died after a later deletion had ended."""
    (tmp_path / "tea.txt").write_text("tea", encoding="utf-8")
    value = "tea" if kind == "add_texts" else str(tmp_path / "tea.txt")
    documents = dict.fromkeys([*left, "b"], value)
    with Document(store_conf=conf(tmp_path / "store.db")) as docs:
        metadata = {name: {"kind": "tea"} for name in documents}
        Jobs(docs).submit(kind, {kind.removeprefix("add_"): documents, "metadata": metadata})
        Jobs(docs).submit("delete_files", {"documents": ["b"]})
        execute(docs, "UPDATE job SET begun = 0 WHERE kind LIKE 'add%'")
        execute(docs, "UPDATE job SET state = 'DELETED' WHERE kind = 'delete_files'")
        assert Worker(docs).run_one().state == "SUCCESS"
        assert [node.path for node in docs.get_nodes()] == left


@pytest.mark.slow
def test_a_killed_worker_loses_no_job(tmp_path):
    """The next one does what it has not done."""
    check_kills(tmp_path / "store.db", 2, 0)


@pytest.mark.share(3)
@pytest.mark.slow
def test_workers_killed_at_many_instants_lose_no_job(tmp_path):
    """20 of them; LAZYRAG_KILLS sets another number."""
    trace = check_kills(tmp_path / "store.db", int(os.environ.get("LAZYRAG_KILLS", "20")), 1)
    assert len([one for one in trace if one[1] == "WORKING"]) > len({one[0] for one in trace}) / 2
