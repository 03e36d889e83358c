"""Spec 003, stage 2.3 「事件驱动索引更新」: every test quotes the sentence it checks and says what is
expected.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import lazyrag

PATIENCE_S = 60.0


class EventBus:
    """A bus as programs have them: topics, and handlers that are called for what is published."""

    def __init__(self):
        """No handlers."""
        self.handlers = {}

    def subscribe(self, topic, handler):
        """Have a handler called for a topic."""
        self.handlers.setdefault(topic, []).append(handler)

    def publish(self, topic, event):
        """Call the handlers of a topic."""
        for handler in self.handlers.get(topic, ()):
            handler(event)


@pytest.fixture
def dataset(tmp_path):
    """A folder with one file of two lines."""
    (tmp_path / "tea.txt").write_text("green tea\nblack tea", encoding="utf-8")
    return tmp_path


def open_document(dataset: Path, **arguments) -> lazyrag.Document:
    """A Document with a group of lines."""
    docs = lazyrag.Document(dataset, **arguments)
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    return docs


def write(path: Path, text: str) -> None:
    """Write a file at once: no sync meets it half written."""
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text, encoding="utf-8")
    hidden.replace(path)


def texts(docs) -> list[str]:
    """The lines that are live."""
    return sorted(node.text for node in docs.get_nodes("line"))


def test_event_bus_gets_reports(dataset):
    """「EventBus集成」: any bus is told of each sync, as on_report takes any callable."""
    bus, heard = EventBus(), threading.Event()
    bus.subscribe("index.updated", lambda report: "coffee.txt" in report.added and heard.set())
    with open_document(dataset) as docs:
        with docs.watch(
            debounce_s=0.05, on_report=lambda report: bus.publish("index.updated", report)
        ):
            write(dataset / "coffee.txt", "hot coffee")
            assert heard.wait(PATIENCE_S)
        assert "hot coffee" in texts(docs)


def test_event_bus_asks_for_updates(dataset):
    """「EventBus集成」: a bus that learns of changes elsewhere hands them on: notify() is a handler
    like any other.
    """
    bus, ended = EventBus(), threading.Semaphore(0)
    with open_document(dataset) as docs:
        # An hour from look to look: what is found before is found since the bus said so.
        with docs.watch(
            debounce_s=0.0, poll_s=3600, on_report=lambda _: ended.release()
        ) as watcher:
            bus.subscribe("file.changed", lambda _path: watcher.notify())
            assert ended.acquire(timeout=PATIENCE_S)
            write(dataset / "coffee.txt", "hot coffee")
            bus.publish("file.changed", "coffee.txt")
            assert ended.acquire(timeout=PATIENCE_S)
        assert "hot coffee" in texts(docs)


def test_changes_of_documents_are_listened_for(dataset):
    """「监听文档变更事件」: a file that comes, changes or goes is told by the report of a sync nobody asked
    for.
    """
    reports, something = [], threading.Condition()

    def keep(report):
        with something:
            reports.append(report)
            something.notify_all()

    def wait_for(kind, name):
        with something:
            assert something.wait_for(
                lambda: any(name in getattr(one, kind) for one in reports), PATIENCE_S
            )

    with open_document(dataset) as docs, docs.watch(debounce_s=0.05, on_report=keep):
        wait_for("added", "tea.txt")
        write(dataset / "coffee.txt", "hot coffee")
        wait_for("added", "coffee.txt")
        write(dataset / "tea.txt", "green tea")
        wait_for("updated", "tea.txt")
        (dataset / "coffee.txt").unlink()
        wait_for("deleted", "coffee.txt")


def test_only_what_changed_is_indexed(dataset):
    """「自动增量索引」: after an edit only the lines that are new are embedded; the others keep their
    vectors.
    """
    embedded = []

    def embed(text):
        embedded.append(text)
        return [float(text.count(letter)) + 0.5 for letter in "aeg"]

    with open_document(dataset, embed=embed) as docs:
        retriever = lazyrag.Retriever(docs, "line", topk=9)
        retriever("tea")
        assert sorted(set(embedded) - {"tea"}) == ["black tea", "green tea"]
        embedded.clear()
        with docs.watch(debounce_s=0.05) as watcher:
            write(dataset / "tea.txt", "green tea\nwhite tea")
            watcher.wait_for_sync(PATIENCE_S)
        assert embedded == ["white tea"]
        assert sorted(node.text for node in retriever("tea")) == ["green tea", "white tea"]


def test_versions_of_the_index_can_be_listed_and_rolled_back(dataset):
    """「索引版本控制」: each update makes a version; an earlier one is made live again without reading
    anything.
    """
    with open_document(dataset, keep_versions=3) as docs:
        docs.activate_group("line")
        with docs.watch(debounce_s=0.05) as watcher:
            watcher.wait_for_sync(PATIENCE_S)
            write(dataset / "tea.txt", "white tea")
            watcher.wait_for_sync(PATIENCE_S)
            assert texts(docs) == ["white tea"]
            assert len(docs.versions.list("tea.txt")) == 2
            docs.versions.rollback("tea.txt")
            assert texts(docs) == ["black tea", "green tea"]
            watcher.wait_for_sync(PATIENCE_S)  # until the file changes, a sync leaves it so
            assert texts(docs) == ["black tea", "green tea"]
