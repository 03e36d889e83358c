"""Fixtures for every test, and the choice of tests that a machine or a commit does without."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import zlib
from collections import Counter

import httpcore2
import pytest
from _pytest.doctest import DoctestModule
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from pytest_httpserver import HTTPServer

from lazyrag.models.openai import client as endpoint
from tests.model_server import Model
from tests.shared import SHARED, is_required

# Thousands of store files are synced to disk: in memory that takes a third of the time.
IN_MEMORY = "/dev/shm"  # noqa: S108  pytest makes a folder in it that is the user's own
if os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)

# The defaults of `lazyrag config` of who runs the tests are no part of them.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"

settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=5,
)
settings.register_profile("ci", parent=settings.get_profile("default"), max_examples=40)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=300)
settings.load_profile(os.environ.get("LAZYRAG_HYPOTHESIS", "default"))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for doctests in the package only: looking for them in every test's docstring takes
    seconds.
    """
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Make the tests without the garbage collector: they all stay, and it would go over them again
    and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(10_000)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `sample` leaves out of the default run, then deselect what this machine or commit
    does without.

    Deselected are tests marked `shared` where the shared data are missing, and `exhaustive` ones of
    other slices.

    LAZYRAG_SLICE=2/8 keeps those exhaustive tests whose id hashes to 2 modulo 8, one in n of those
    marked `share(n)`, and of the others of the web page and of real servers a quarter and a half;
    without it all are kept. With LAZYRAG_REQUIRE_SHARED=1 nothing is deselected for missing data:
    the tests fail.
    """
    missing = not (SHARED / "data" / "manifest.json").exists() and not is_required()
    number, count = _slice(os.environ.get("LAZYRAG_SLICE", "0/1"))
    cases = Counter[str]()
    for item in items:
        sample = item.get_closest_marker("sample")
        if sample and not any(
            item.get_closest_marker(name) for name in ("slow", "exhaustive", "deep")
        ):
            function = item.nodeid.partition("[")[0]
            if cases[function] % sample.args[0]:
                item.add_marker(pytest.mark.slow)
                item.add_marker(pytest.mark.share(3))
            cases[function] += 1

    def is_left_out(item: pytest.Item) -> bool:
        if missing and item.get_closest_marker("shared"):
            return True
        if not item.get_closest_marker("exhaustive"):
            share = item.get_closest_marker("share")
            parts = min(count, share.args[0] if share else _PARTS.get(item.path.parent.name, 1))
        else:
            parts = count
        return zlib.crc32(item.nodeid.encode()) % parts != number % parts

    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item)]


_PARTS = {"page": 4, "live": 2}
"""Of the tests of these folders, a slice keeps one in so many."""


def _slice(text: str) -> tuple[int, int]:
    """The number of a slice and how many there are."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        msg = f"LAZYRAG_SLICE must be NUMBER/COUNT with 0 <= NUMBER < COUNT; got {text!r}."
        raise pytest.UsageError(msg)
    return int(number), int(count)


@pytest.fixture(scope="session", autouse=True)
def _one_tls_context():
    """Read the system's certificates once: each client of an endpoint reads them anew, for 50
    ms.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            httpcore2, "default_ssl_context", functools.cache(httpcore2.default_ssl_context)
        )
        yield


@pytest.fixture
def folder(tmp_path):
    """A function that writes files into a folder and returns it: names (or paths) to text or
    bytes.
    """

    def write(files: dict[str, str | bytes]):
        for name, content in files.items():
            path = tmp_path / "dataset" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        (tmp_path / "dataset").mkdir(exist_ok=True)
        return tmp_path / "dataset"

    return write


@pytest.fixture(scope="session")
def _server():
    """A local HTTP server; one for all tests, as stopping takes half a second."""
    with HTTPServer(threaded=True) as running:
        yield running


@pytest.fixture(scope="module")
def server(_server):
    """A local HTTP server without the handlers of other modules."""
    _server.clear()
    return _server


@pytest.fixture
def model(server):
    """Models that answer behind that server; see `tests.model_server`."""
    return Model(server)


@pytest.fixture
def quick_endpoints(monkeypatch: pytest.MonkeyPatch):
    """No key from the environment, no proxy, and short pauses between tries."""
    for name in ("LAZYRAG_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_S", 0.01)


@pytest.fixture(scope="session")
def _span_exporter():
    """What collects spans, at the one provider that a process may have, whoever sets it first."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


@pytest.fixture
def spans(_span_exporter):
    """OpenTelemetry's spans that end during a test: ``spans.get_finished_spans()``."""
    _span_exporter.clear()
    yield _span_exporter
    _span_exporter.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send no reports of passed setups and teardowns between processes: nobody reads them, and they
    take seconds.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True
