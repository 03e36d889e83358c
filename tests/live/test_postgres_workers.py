"""Workers that write a store in PostgreSQL: the same as one process, whatever happens to them."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lazyrag import Document, IngestionWarning, Retriever
from lazyrag.errors import ConfigError, IngestionError
from lazyrag.ingest.queue import ClaimLostError, QueueWorker, WorkQueue
from lazyrag.launchers.workers import Workers
from lazyrag.ledger.lease import Program
from lazyrag.models import SharedRateLimit
from tests.live.conftest import address_of
from tests.live.test_postgres_store import Lengths
from tests.postgres_stores import copies_of_postgres, url_of  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]


class Calls(Lengths):
    """An embedder that remembers its texts."""

    def __init__(self):
        """Remember nothing yet."""
        self.texts = []

    def __call__(self, texts):
        """One vector for each text."""
        self.texts += texts
        return super().__call__(texts)


def open_lines(url, folder, launcher=None, embed=None, **options):
    """A Document of lines."""
    docs = Document(
        str(folder),
        embed or Lengths(),
        launcher=launcher,
        store_conf=str(url),
        name="teas",
        **options,
    )
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def build(docs):
    """Have the lines and both indexes."""
    docs.sync()
    docs.activate_group("line", embed_keys=docs.reader.embed_keys, analysers=["en"])
    return docs.last_report


def dump(docs, folder):
    """All that an export has."""
    docs.maintenance.export(folder)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def url(tmp_path):
    """The URL of an empty store."""
    address_of("LAZYRAG_POSTGRES")
    return url_of(tmp_path / "own")


@pytest.fixture
def folder(tmp_path):
    """Thirty small files."""
    path = tmp_path / "files"
    path.mkdir()
    for number in range(30):
        (path / f"{number:02}.txt").write_text(f"green tea {number}\nblack tea {number * 7}")
    return path


@pytest.fixture
def threads():
    """Two threads that work as workers."""
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_a_store_of_workers_is_that_of_one_process(url, folder, tmp_path, threads):
    """Equal exports, reports and answers; nothing is wrong in the store, and small parts of the
    keyword index are merged.
    """
    with open_lines(str(tmp_path / "one.db"), folder) as docs:
        report = build(docs)
        expected = dump(docs, tmp_path / "expected")
        hits = [(hit.uid, hit.score) for hit in Retriever(docs, "line", similarity="bm25")("tea 7")]
    opened = functools.partial(open_lines, url, folder)
    with open_lines(url, folder, Workers(opened, threads, documents=2)) as docs:
        assert build(docs) == report
        assert dump(docs, tmp_path / "export") == expected
        found = Retriever(docs, "line", similarity="bm25")("tea 7")
        assert [(hit.uid, hit.score) for hit in found] == hits
        assert docs.maintenance.verify() == ()
        for index in docs.reader.indexer.ledger.tree.groups["line"].indexes.values():
            assert len(index.parts) < 15  # one for each entry
        (folder / "00.txt").write_text("oolong")
        (folder / "01.txt").unlink()
        (folder / "02.txt").rename(folder / "moved.txt")
        report = docs.sync()
        assert (report.updated, report.deleted) == (("00.txt",), ("01.txt",))
        assert report.moved == (("02.txt", "moved.txt"),)


def test_failures_of_workers_are_those_of_one_process(url, folder, threads):
    """A file that cannot be read is in the report, and in that of the next program."""
    (folder / "bad.pdf").write_bytes(b"%PDF-1.7 torn")
    opened = functools.partial(open_lines, url, folder)
    with open_lines(url, folder, Workers(opened, threads)) as docs:
        with pytest.warns(IngestionWarning, match="1 of 31"):
            report = build(docs)
        assert [(failure.path, failure.stage) for failure in report.failed] == [("bad.pdf", "load")]
    with open_lines(url, folder, read_only=True) as docs:
        assert [failure[0] for failure in docs.status().failed] == ["bad.pdf"]


def test_a_worker_with_another_definition_writes_nothing(url, folder, threads):
    """The driver raises the worker's error, which names the group."""

    def opened():
        docs = Document(str(folder), Lengths(), store_conf=url, name="teas")
        docs.create_node_group("line", transform=str.split)
        return docs

    with open_lines(url, folder, Workers(opened, threads)) as docs:
        with pytest.raises(ConfigError, match="node group 'line' differently"):
            docs.activate_group("line")
        assert docs.status().groups == () or not docs.reader.indexer.ledger.tree.groups.get("line")


def test_a_worker_that_lost_its_claim_writes_nothing_more(url, folder):
    """An entry that was given to another one, or queued by a driver that has lost its lease."""
    with open_lines(url, folder) as docs:
        ledger = docs.reader.indexer.ledger
        queue = WorkQueue(ledger)
        worker = QueueWorker(open_lines(url, folder).reader.indexer)
        lease = worker._lease
        queue.put("", [1])
        assert worker._queue.claim() is None  # its driver does not hold the lease
        with docs.reader.indexer.writing():
            entry = worker._queue.claim()
            assert worker._queue.claim() == entry  # it has it already
            lease.entry_id = entry.id
            with ledger.file.writing() as connection:
                lease.ensure_held(connection)
            queue.clear()
            with ledger.file.writing() as connection, pytest.raises(ClaimLostError):
                lease.ensure_held(connection)


def test_entries_of_workers_that_ended_are_claimed_again_and_halved(url, folder):
    """An entry whose workers end twice is halved; a document that ends three fails alone."""
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from lazyrag.ledger.lease import Program; p = Program(); print(p.id); print(p.to_json())",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    program = Program.from_json(ended[1], ended[0])
    with open_lines(url, folder) as docs:
        queue = WorkQueue(docs.reader.indexer.ledger)
        ledger = open_lines(url, folder).reader.indexer.ledger
        ledger.program = program
        ended_worker = WorkQueue(ledger)
        with docs.reader.indexer.writing():
            queue.put("", [[{"identity": "a"}], [{"identity": "b"}]])
            sizes = []
            while (entry := ended_worker.claim()) is not None:
                sizes.append(entry.documents.count("identity"))
                queue.release_lost()
        assert sizes == [2, 2, 1, 1, 1, 1, 1, 1]
        results = queue.collect()
        assert len(results) == 2
        assert all("makes them crash" in str(result["failures"]) for result in results)
        assert queue.count() == (0, 0)


def test_what_reached_the_cache_is_not_embedded_again(url, folder, threads, monkeypatch):
    """A worker fails once, before its documents are live; the next one has their vectors."""
    embed = Calls()
    opened = functools.partial(open_lines, url, folder, embed=embed)
    failing = threading.Event()
    flip = QueueWorker.step

    def fail_once(self):
        if not failing.is_set():
            monkeypatch.setattr(self._indexer.nodes.vectors_to_write, "upsert", self.fail)
        return flip(self)

    def fail(self, *_):
        failing.set()
        raise IngestionError("The disk is full.")

    monkeypatch.setattr(QueueWorker, "fail", fail, raising=False)
    with open_lines(url, folder, Workers(opened, threads, documents=8), embed=embed) as docs:
        docs.activate_group("line")
        monkeypatch.setattr(QueueWorker, "step", fail_once)
        with pytest.raises(IngestionError, match="disk is full"):
            build(docs)
        monkeypatch.undo()
        seen = len(set(embed.texts))
        assert seen
        build(docs)
        assert len(embed.texts) - len(set(embed.texts)) <= 1  # the probe
        assert len(set(embed.texts)) >= 60


def test_batches_of_an_embedder_fill_across_documents(url, folder, threads):
    """Of the 16 documents of an entry, with a line each, and not of each document."""
    for path in folder.iterdir():
        path.write_text(f"tea {path.stem}")
    sizes = []

    class Sizes(Lengths):
        def __call__(self, texts):
            sizes.append(len(texts))
            return super().__call__(texts)

    opened = functools.partial(open_lines, url, folder, embed=Sizes())
    with open_lines(url, folder, Workers(opened, threads, documents=16), embed=Sizes()) as docs:
        build(docs)
    assert sorted(sizes) == [6, 8, 8, 8]


def test_the_command_works_until_it_is_terminated(url, folder, tmp_path):
    """A worker of the command line, given a function; it ends after its entry."""
    module = tmp_path / "teas_of_worker.py"
    module.write_text(
        "from tests.live.test_postgres_workers import open_lines\n"
        f"def open_docs():\n    return open_lines({url!r}, {str(folder)!r})\n"
    )
    command = [sys.executable, "-m", "lazyrag", "worker", "teas_of_worker:open_docs"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as worker:
        try:
            with open_lines(url, folder, Workers(lambda: None, documents=10)) as docs:
                assert len(build(docs).added) == 30
            worker.send_signal(signal.SIGTERM)
            output, _ = worker.communicate(timeout=60)
        finally:
            worker.kill()
    assert output.splitlines()[-1].startswith("Entries ingested: ")
    assert worker.returncode == 0


def test_programs_of_one_store_share_a_rate_limit(url, folder, monkeypatch):
    """Three calls by two objects, where two a minute are allowed: the third one waits."""
    pauses = []

    async def skip(seconds):
        pauses.append(seconds)
        raise TimeoutError

    with open_lines(url, folder):
        first = SharedRateLimit(url, 2)
        second = SharedRateLimit(url, 2, sleep=skip)
        other = SharedRateLimit(url, 2, name="another account", sleep=skip)
        started = time.monotonic()
        asyncio.run(first.wait())
        asyncio.run(second.wait())
        with pytest.raises(TimeoutError):
            asyncio.run(second.wait())
        asyncio.run(other.wait())
        assert 60 - (time.monotonic() - started) - 1 < pauses[0] <= 60
