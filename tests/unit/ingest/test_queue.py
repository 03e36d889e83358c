"""Documents on their way to workers, and plans that these read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError, LoadError
from lazyrag.ingest.changes import load_root
from lazyrag.ingest.pending import PendingVersion
from lazyrag.ingest.queue import decode_version, encode_version
from lazyrag.ledger.tables import DocumentRow
from lazyrag.loaders.directory import FoundFile, Signature


@pytest.fixture(scope="module")
def indexer():
    """Of an empty Document."""
    with Document() as docs:
        yield docs.reader.indexer


VALUES = st.recursive(st.text() | st.integers() | st.booleans() | st.none(), st.lists, max_leaves=4)


@given(
    name=st.text(min_size=1),
    metadata=st.dictionaries(st.text(), VALUES, max_size=3),
    signature=st.none() | st.builds(Signature, *[st.integers(0, 2**62)] * 3),
)
def test_a_document_comes_to_a_worker_as_it_was(indexer, name, metadata, signature):
    """Its row, its file and the user's metadata."""
    row = DocumentRow(7, "uid", name, signature=signature, updates='{"a": 1}')
    file = FoundFile(name, str(Path("/files/a.txt")), signature)
    encoded = encode_version(PendingVersion(row, load_root(indexer, file, row, {name: metadata})))
    version = decode_version(json.loads(json.dumps(encoded)), indexer)
    assert version.row == row
    assert version.make_root.args[1] == file
    assert version.make_root.args[3] == metadata
    assert encode_version(PendingVersion(row)) is not None


def test_what_only_the_driver_can_ingest_stays_there(indexer):
    """Texts, moved files, files with metadata that are no JSON, or that could not be had."""
    row = DocumentRow(0, "uid", "a.txt")
    file = FoundFile("a.txt", "a.txt")

    def make(metadata):
        return load_root(indexer, file, row, {"a.txt": metadata})

    assert encode_version(PendingVersion(row, make({"a": 1})))
    for version in (
        PendingVersion(row, lambda _: None),
        PendingVersion(row, make({}), moved_from=row),
        PendingVersion(row, make({}), beside=True),
        PendingVersion(row, make({}), base=DocumentRow(3, "uid", "a.txt")),
        PendingVersion(row, make({"a": (1, 2)})),
        PendingVersion(row, make({"a": object()})),
        PendingVersion(row, make(LoadError("no"))),
    ):
        assert encode_version(version) is None


def test_a_plan_is_read_by_a_program_with_the_same_definitions_alone():
    """Groups and indexes by name; another transform, analyser or embedder is named."""

    def opened(split=str.splitlines, embed=len):
        embedder = lambda text: [float(embed(text)), 1.0]  # noqa: E731
        embedder.identity = embed.__name__
        docs = Document(embed=embedder)
        docs.create_node_group("line", transform=split)
        return docs

    with opened() as docs:
        docs.add_texts({"a": "green tea"})
        docs.activate_group("line", embed_keys=docs.reader.embed_keys, analysers=["en"])
        planner = docs.reader.indexer.planner
        text = planner.describe(planner.plan_live())
        plan = planner.described(text)
        assert plan.names == planner.plan_live().names
        assert [index.id for index in plan.indexes] == [
            index.id for index in planner.plan_live().indexes
        ]
    with opened() as docs:
        assert [group.name for group in docs.reader.indexer.planner.described(text).groups] == [
            group.name for group in plan.groups
        ]
    with opened(split=str.split) as docs, pytest.raises(ConfigError, match="node group 'line'"):
        docs.reader.indexer.planner.described(text)
    with opened(embed=hash) as docs, pytest.raises(ConfigError, match="index 'default' of 'line'"):
        docs.reader.indexer.planner.described(text)


def test_small_parts_of_a_keyword_index_are_merged_later():
    """A worker leaves one part for each batch; the driver merges them, and answers are the same."""
    with Document() as docs:
        docs.create_node_group("line", transform=str.splitlines)
        indexer = docs.reader.indexer
        indexer.terms.merges = False
        retriever = Retriever(docs, "line", similarity="bm25")
        for number in range(12):
            docs.add_texts({f"{number}": f"green tea {number}\nblack tea"})
            expected = [(hit.uid, hit.score) for hit in retriever("green tea 7")]
        plan = indexer.planner.plan_live()
        [index] = indexer.ledger.tree.groups["line"].indexes.values()
        assert len(index.parts) == 12
        indexer.terms.merges = True
        with indexer.writing():
            indexer.engine.merge_terms(plan)
        [index] = indexer.ledger.tree.groups["line"].indexes.values()
        assert len(index.parts) == 1
        assert [(hit.uid, hit.score) for hit in retriever("green tea 7")] == expected
        assert docs.maintenance.verify() == ()
