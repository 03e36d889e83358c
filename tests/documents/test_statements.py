"""What is asked of the ledger and of stores does not grow with the number of documents."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from functools import partial

import pytest

from lazyrag import Document, Retriever
from lazyrag.read import related
from lazyrag.retrieval import AsOfRetriever, FieldRetriever

SIZES = (100, 3_000)


def embed(text):
    """Numbers that differ between texts."""
    return [float(len(text)), float(sum(map(ord, text)) % 97), 1.0]


def open_store(path, **arguments):
    """A Document with two groups below each other, in a store file."""
    docs = Document(store_conf=str(path), embed=embed, **arguments)
    docs.create_node_group("line", transform=str.splitlines)
    docs.create_node_group("word", parent="line", transform=str.split)
    return docs


def make_store(folder, size, lines="coffee and milk"):
    """A store of so many documents; its path."""
    path = folder / "store.db"
    with open_store(path) as docs:
        texts = {f"{number:05}": f"tea {number}\n{lines}" for number in range(size - 2)}
        docs.add_texts(texts | {f"Teahouse {year}": "coffee and milk" for year in (2018, 2019)})
        Retriever(docs, "word", similarity="bm25")("tea")
        Retriever(docs, "line", similarity="bm25")("tea")
        Retriever(docs, "line")("tea")
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A small store, and a larger one with the same documents and others."""
    return [make_store(tmp_path_factory.mktemp(f"of {size}"), size) for size in SIZES]


def count_statements(docs, work, *, is_warm=True):
    """The statements of some work by their first words, which SQLite tells."""
    if is_warm:
        work()  # what is opened once, and models
    file = docs._indexer.ledger.file
    connections = {file._reader._connection, file.writer._connection}
    statements = []
    for connection in connections:
        connection.set_trace_callback(statements.append)
    try:
        work()
    finally:
        for connection in connections:
            connection.set_trace_callback(None)
    texts = (re.sub("'[^']*'", "?", statement) for statement in statements)  # names of collections
    return Counter(" ".join(text.split()[:12]) for text in texts)


def keyword(docs):
    """A keyword search for what is in one document."""
    return Retriever(docs, "line", similarity="bm25", topk=4)("tea 7")


def inferred(docs):
    """A keyword search for a name that is misspelt and a year."""
    nodes = FieldRetriever(Retriever(docs, "line", similarity="bm25"))("Milk of Tehouse in FY18")
    assert nodes[0].path == "Teahouse 2018"
    return nodes


def marked(docs):
    """A search among versions of a document."""
    search = AsOfRetriever(Retriever(docs, "line", similarity="bm25", topk=4), None)
    nodes = search("coffee milk", {"file_name": ["Teahouse 2018", "Teahouse 2019"]})
    assert {node.metadata.get("superseded_by") for node in nodes} == {None, "Teahouse 2019"}


READINGS = {
    "keyword search": keyword,
    "vector search": lambda docs: Retriever(docs, "line", topk=4)("tea 7"),
    "restricted search": lambda docs: keyword(docs.restricted({"file_name": "00007"})),
    "find by uid": lambda docs: docs.reader.held(keyword(docs)[0].uid),
    "parent": lambda docs: [node.parent for node in keyword(docs)],
    "children": lambda docs: [node.children for node in keyword(docs)],
    "window": lambda docs: docs.window(keyword(docs), 1, 1),
    "target": lambda docs: Retriever(docs, "word", similarity="bm25", target="line", topk=4)("7"),
    "related": lambda docs: related(docs, keyword(docs)[0].uid),
    "status": lambda docs: docs.status(),
    "inferred": inferred,
    "marked": marked,
}
WRITINGS = {
    "update": lambda docs: docs.add_texts({"00009": f"water {next(NUMBERS)}"}),
    "delete": lambda docs: docs.delete_files([f"{next(NUMBERS):05}"]),
}
NUMBERS = itertools.count(20)


@pytest.mark.parametrize("name", READINGS)
def test_reading(paths, name):
    """As many statements for a small store as for a larger one."""
    counts = []
    for path in paths:
        with open_store(path, read_only=True) as docs:
            counts.append(count_statements(docs, partial(READINGS[name], docs)))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", WRITINGS)
def test_writing(paths, name):
    """The same for the change of one document, and the query after it."""
    counts = []
    for path in paths:
        with open_store(path) as docs:
            keyword(docs)
            counts.append(count_statements(docs, partial(WRITINGS[name], docs)).total())
    assert counts[0] == counts[1]


def test_the_first_query_of_a_program_that_writes(paths):
    """Its look for changes reads none of the documents."""
    steps = []
    for path in paths:
        with open_store(path) as docs:
            file = docs._indexer.ledger.file
            ticks = []
            for connection in (file._reader._connection, file.writer._connection):
                connection.set_progress_handler(lambda ticks=ticks: ticks.append(1), 100)
            assert keyword(docs)
            steps.append(len(ticks))
    assert steps[1] < steps[0] + 50


@pytest.mark.slow
def test_of_a_thousand_and_a_hundred_thousand_nodes(tmp_path_factory):
    """The same for documents of 25 nodes."""
    counts = []
    for size in (40, 4_000):
        folder = tmp_path_factory.mktemp(f"of {25 * size}")
        path = make_store(folder, size, "\n".join(f"coffee {number}" for number in range(24)))
        with open_store(path, read_only=True) as docs:
            tasks = {name: partial(work, docs) for name, work in READINGS.items()}
            readings = {name: count_statements(docs, task) for name, task in tasks.items()}
        with open_store(path) as docs:
            keyword(docs)
            tasks = {name: partial(work, docs) for name, work in WRITINGS.items()}
            writings = {name: count_statements(docs, task).total() for name, task in tasks.items()}
        counts.append((readings, writings))
    assert counts[0] == counts[1]


def test_a_keyword_search_asks_the_ledger_nothing_about_builds(paths):
    """Its live rows are bits."""
    with open_store(paths[0], read_only=True) as docs:
        statements = count_statements(docs, lambda: keyword(docs))
    assert not [statement for statement in statements if "FROM build" in statement]
    assert not [statement for statement in statements if "JOIN build" in statement]


def test_the_builds_of_hits_are_read_together(paths):
    """By the first of their parents."""
    with open_store(paths[0], read_only=True) as docs:
        hits = Retriever(docs, "line", similarity="bm25", topk=50)("tea")
        statements = count_statements(docs, lambda: [hit.parent for hit in hits], is_warm=False)
    of_builds = [count for text, count in statements.items() if "build.node_group" in text]
    assert len(hits) == 50
    assert of_builds == [1]


def test_verify_names_only_documents_with_problems(paths):
    """The statements about documents do not grow with them."""
    with open_store(paths[0], read_only=True) as docs:
        statements = count_statements(docs, docs.maintenance.verify)
    of_documents = sum(count for text, count in statements.items() if "FROM document" in text)
    assert of_documents < SIZES[0] / 2
