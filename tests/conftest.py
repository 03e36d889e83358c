"""What every test can use."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from pytest_httpserver import HTTPServer

from lazyrag import Document
from lazyrag.document.group import built_in_groups
from lazyrag.document.readers import Readers
from lazyrag.generation.refine import refiners
from lazyrag.loaders import loaders
from lazyrag.models.http import endpoint
from lazyrag.retrieval import rerankers, similarities
from lazyrag.transforms import transforms
from tests.model_server import Model

settings.register_profile(
    "default", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=300)
settings.load_profile(os.environ.get("LAZYRAG_HYPOTHESIS", "default"))


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch):
    """What a test registers, or defines on the Document class, is gone after it."""
    monkeypatch.setattr(Document, "_graph", built_in_groups())
    monkeypatch.setattr(Document, "_file_readers", Readers())
    with (
        similarities.isolated(),
        rerankers.isolated(),
        refiners.isolated(),
        transforms.isolated(),
        loaders.isolated(),
    ):
        yield


@pytest.fixture
def folder(tmp_path):
    """A function that writes files into a folder and returns it: names (or paths) to text or bytes."""

    def write(files: dict[str, str | bytes]):
        for name, content in files.items():
            path = tmp_path / "dataset" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        (tmp_path / "dataset").mkdir(exist_ok=True)
        return tmp_path / "dataset"

    return write


@pytest.fixture(scope="module")
def server():
    """A local HTTP server; one for all tests of a module, as stopping takes half a second."""
    with HTTPServer(threaded=True) as running:
        yield running


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
