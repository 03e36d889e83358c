"""Launchers: what is stored is the same wherever it is loaded, transformed and embedded."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from lazyrag import Document
from lazyrag.errors import ConfigError, IngestionError, MissingDependencyError
from tests.scale import scale_work

FILES = {f"{number}.noted": f"tea {number}\ncoffee {number}\n" * 3 for number in range(12)}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A folder where each call of a test function leaves a line."""
    notes = tmp_path / "log"
    notes.mkdir()
    monkeypatch.setenv("SCALE_LOG", str(notes))
    return notes


def ingest(folder, store, launcher):
    """What is stored of a folder, as files, and the failures."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store / "store.db")}}}
    with (
        Document(folder, scale_work.embed, store_conf=conf, launcher=launcher) as docs,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        docs.add_reader("*.noted", scale_work.read_noted)
        docs.create_node_group("line", transform=scale_work.lines)
        docs.create_node_group(
            "titled", transform=scale_work.titled, parent="line", trans_node=True
        )
        docs.activate_group("titled", embed_keys=docs.reader.embed_keys)
        docs.activate_group("MediumChunk", embed_keys=docs.reader.embed_keys)
        docs.maintenance.export(store / "export")
        failed = [(one.path, one.stage, str(one.error)) for one in docs.last_report.failed]
    return {one.name: one.read_bytes() for one in (store / "export").iterdir()}, failed


def noted(log, kind):
    """The processes that did something, once for each time."""
    return [int(line.split()[0]) for line in (log / kind).read_text().splitlines()]


def test_tables_come_back(folder):
    """Those that a loader found, beside the text."""
    path = folder({"teas.html": "<table><tr><th>tea<th>price<tr><td>green<td>3</table>"})
    with (
        Document(path) as docs,
        Document(path, name="launched", launcher=ThreadPoolExecutor(1)) as launched,
    ):
        assert (
            [one.rows for one in launched.tables.list()]
            == [one.rows for one in docs.tables.list()]
            != []
        )


@pytest.mark.sample(2)
@pytest.mark.parametrize("launcher", [ThreadPoolExecutor(2), 2], ids=["an executor", "processes"])
def test_export_is_byte_equal_to_that_without_a_launcher(folder, tmp_path, log, launcher):
    """Files, metadata, nodes of a transform that sees nodes, vectors and the error of a file are
    the same.
    """
    path = folder(
        {**FILES, "bad.noted": "unreadable", "a.md": "# Tea\n\nGreen.\n\n## Leaf\n\nOolong."}
    )
    expected = ingest(path, tmp_path / "none", None)
    before = {kind: len(noted(log, kind)) for kind in ("load", "lines", "titled", "embed")}
    assert ingest(path, tmp_path / "launched", launcher) == expected
    assert len(expected[1]) == 1
    assert {kind: len(noted(log, kind)) for kind in before} == {
        kind: 2 * count for kind, count in before.items()
    }
    others = set(noted(log, "embed")) - {os.getpid()}
    assert bool(others) == isinstance(launcher, int)


@pytest.mark.slow
def test_work_that_kills_its_process_fails_alone(folder, log):
    """A transform that ends its process for one file fails that file; the others are in."""
    files = {"1.noted": "tea", "2.noted": "coffee", "end.noted": "end this process"}
    with Document(folder(files), launcher=1) as docs, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        docs.add_reader("*.noted", scale_work.read_noted)
        docs.create_node_group("fatal", transform=scale_work.fatal)
        docs.activate_group("fatal")
        assert [(one.path, one.stage) for one in docs.last_report.failed] == [
            ("end.noted", "transform fatal")
        ]
        assert "makes them crash" in str(docs.last_report.failed[0].error)
        assert {node.path for node in docs.get_nodes("fatal")} == {"1.noted", "2.noted"}


@pytest.mark.slow
def test_what_cannot_be_imported_is_refused_by_name_before_anything_is_sent(folder, log):
    """Embedders are refused when the Document is made; transforms before the first batch is
    sent.
    """
    with pytest.raises(
        ConfigError,
        match=r"embed of key 'default' is .*<lambda>, which other processes cannot import",
    ):
        Document(folder(FILES), embed=lambda text: [1.0], launcher=2)
    with Document(folder(FILES), scale_work.embed, launcher=2) as docs:
        docs.create_node_group("local", transform=lambda text: text.upper())
        with pytest.raises(ConfigError, match=r"transform of 'local' is .*<lambda>"):
            docs.activate_group("local", embed_keys=docs.reader.embed_keys)
    assert not (log / "embed").exists()


class Recorder(Executor):
    """Finishes nothing until it is waited for, and records how much is in flight."""

    _max_workers = 3

    def __init__(self):
        self.threads = ThreadPoolExecutor(1)
        self.now = self.most = 0
        self.sizes = []

    def submit(self, function, *given):
        """Call it in a thread."""
        self.now += 1
        self.most = max(self.most, self.now)
        self.sizes.append(sum(len(one) for one in given[-1] if isinstance(one, str)))
        future: Future = self.threads.submit(function, *given)
        future.add_done_callback(self.finish)
        return future

    def finish(self, _):
        """Count one less."""
        self.now -= 1


@pytest.mark.slow
def test_batches_are_bounded_by_size_and_in_number(folder, log):
    """A batch of long texts has little more than 32 KiB; at most two batches for each worker are in
    flight.
    """
    launcher = Recorder()
    lines = "\n".join(f"{number} {'tea ' * 1500}" for number in range(100))
    with Document(folder({"a.noted": lines}), scale_work.embed, launcher=launcher) as docs:
        docs.create_node_group("line", transform=scale_work.lines)
        docs.activate_group("line", embed_keys=docs.reader.embed_keys)
        assert len(docs.get_nodes("line")) == 100
    launcher.threads.shutdown()
    embedded = launcher.sizes[2:]
    assert len(embedded) == 17
    assert max(embedded) < (1 << 15) + 6010
    assert 1 < launcher.most <= 6


class Failing(ThreadPoolExecutor):
    """Refuses further work after some."""

    def __init__(self):
        super().__init__(2)
        self.left = 4

    def submit(self, *given):
        """Call it, or fail as an executor that was shut down."""
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return super().submit(*given)


def test_a_launcher_that_fails_stops_the_call_and_fails_no_file(folder, log):
    """Without workers the call raises; documents are not marked as failed, and a later call does
    the rest.
    """
    lines = {f"{number}.noted": f"{number} {'tea ' * 9000}" for number in range(6)}
    executor = Failing()
    with Document(folder(lines), scale_work.embed, launcher=executor) as docs:
        docs.create_node_group("line", transform=scale_work.lines)
        with pytest.raises(IngestionError, match="launcher failed"):
            docs.activate_group("line", embed_keys=docs.reader.embed_keys)
        assert docs.last_report.failed == ()
        executor.left = 1000
        docs.activate_group("line", embed_keys=docs.reader.embed_keys)
        assert len(docs.get_nodes("line")) == 6
    executor.shutdown()


@pytest.mark.slow
def test_engines_are_imported_when_they_are_named(folder, log, monkeypatch):
    """A Document with processes imports neither dask nor ray; naming one that is missing says what
    installs it.
    """
    program = (
        "import sys\nfrom lazyrag import Document\nimport lazyrag.launchers.work\n"
        "Document(launcher=2).close()\n"
        "assert not {'dask', 'distributed', 'ray'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    for name in ("distributed", "ray"):
        monkeypatch.setitem(sys.modules, name, None)
    for launcher, extra in (("dask://127.0.0.1:1", "dask"), ("ray", "ray")):
        with pytest.raises(MissingDependencyError, match=rf"\.\[{extra}\]"):
            Document(folder(FILES), launcher=launcher)
