"""Nodes that are kept in memory for similarity functions: the same as the stores', as long as the same builds live."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import DataType, DocField, DocNode, Document, IngestionWarning, Retriever, register_similarity
from lazyrag.document.nodes import NodeCache
from lazyrag.errors import StaleNodeError
from lazyrag.retrieval.similarity import Similarity, _best

FILES = {f"{kind}/{number}.txt": f"tea {number}\nwater {number} tea\n{kind}" for kind in "ab" for number in range(4)}


def embed(text):
    """A vector for a text; none for one that cannot be embedded."""
    if "broken" in text:
        msg = "no vector today"
        raise ValueError(msg)
    return [float(len(text)), float(text.count("e")), 1.0]


def document(path, **arguments):
    """The files in lines, with a field by folder."""
    docs = Document(
        path,
        doc_fields={"kind": DocField(DataType.VARCHAR)},
        file_metadata=lambda file: {"kind": file.parent.name},
        embed=embed,
        **arguments,
    )
    docs.create_node_group("line", transform=str.splitlines)
    return docs


@pytest.fixture
def docs(folder):
    """A Document with a few files in lines."""
    return document(folder(FILES))


def pages(docs, embed_key=None, filters=None):
    """What a similarity function is given."""
    return docs.reader.read(lambda snapshot: list(snapshot.scan("line", filters, embed_key)))


def read(docs, embed_key=None, filters=None):
    """The same, read from the stores."""
    kept = docs._indexer.node_cache
    docs._indexer.node_cache = NodeCache(docs._indexer.nodes, most_bytes=0)
    try:
        return pages(docs, embed_key, filters)
    finally:
        docs._indexer.node_cache = kept


def told(pages):
    """All that can be seen of nodes, page by page."""
    return [[(one.segment, {key: v.tolist() for key, v in one.embeddings.items()}) for one in page] for page in pages]


def identities(pages):
    """Which objects stand for the nodes, by uid and build."""
    return {node.segment.key: id(node) for page in pages for node in page}


@pytest.mark.sample(3)
@pytest.mark.parametrize("embed_key", [None, "default"])
@pytest.mark.parametrize("filters", [None, {"kind": ["a"]}, {"kind": ["none"]}], ids=["all", "some", "none"])
@pytest.mark.parametrize("scope", [None, {"kind": ["a"]}], ids=["whole", "restricted"])
def test_kept_nodes_are_those_of_the_stores(docs, embed_key, filters, scope):
    """The same nodes in the same order, with the same vectors, whatever filter or scope there is."""
    key = embed_key and docs.embed_keys[0]
    seen = docs if scope is None else docs.restricted(scope)
    expected = told(read(seen, key, filters))
    for _ in range(2):
        assert told(pages(seen, key, filters)) == expected
    assert bool(expected) == (filters != {"kind": ["none"]})


def test_nodes_are_read_once_for_each_state(docs, folder):
    """What did not change stays the same object; a changed file's nodes are read, a deleted one's are gone."""
    before = identities(pages(docs))
    assert identities(pages(docs)) == before
    path = folder({"a/0.txt": "another tea"})
    (path / "b/1.txt").unlink()
    docs.sync()
    after = pages(docs)
    assert told(after) == told(read(docs))
    kept = before.keys() & identities(after).keys()
    assert all(identities(after)[key] == before[key] for key in kept)
    assert [node.text for page in after for node in page if node.path == "a/0.txt"] == ["another tea"]


def test_a_group_that_is_too_large_is_read_with_each_question(docs):
    """Where nodes do not fit into the bound, they are read anew, and the answers are the same."""
    expected = told(pages(docs))
    docs._indexer.node_cache = NodeCache(docs._indexer.nodes, most_bytes=1_000)
    first, second = pages(docs), pages(docs)
    assert told(first) == told(second) == expected
    assert not set(identities(first).values()) & set(identities(second).values())


def test_tables_share_their_bound(docs):
    """The table that was not used for the longest time makes room for another one."""
    docs.create_node_group("word", transform=str.split)
    tables = docs._indexer.node_cache = NodeCache(docs._indexer.nodes, most_bytes=40_000)
    for group in ("line", "word", "line", "word"):
        docs.reader.read(lambda snapshot, group=group: list(snapshot.scan(group, None)))
        assert len(tables._tables) == 1


def test_a_node_that_gets_its_vector_later_is_seen_then(folder):
    """A node without a vector is left out, and is there once a retry has embedded it."""
    path = folder({"a/0.txt": "good", "a/1.txt": "broken"})
    trouble = ["broken"]

    def unsteady(text):
        if text in trouble:
            msg = "no vector today"
            raise ValueError(msg)
        return [float(len(text)), 1.0]

    docs = Document(path, embed=unsteady)
    docs.create_node_group("line", transform=str.splitlines)
    key = docs.embed_keys[0]
    with pytest.warns(IngestionWarning, match="1 of 2"):
        assert [node.text for page in pages(docs, key) for node in page] == ["good"]
    trouble.clear()
    docs.retry_failed()
    assert [node.text for page in pages(docs, key) for node in page] == ["good", "broken"]


def test_nodes_in_a_scope_keep_to_it(docs):
    """What a restricted Document's function is given reaches nothing outside, though the nodes are kept for all."""
    root = docs.get_nodes("lazyllm_root")[-1]
    assert root.path.startswith("b/")
    every = [node for page in pages(docs) for node in page]
    seen = [node for page in pages(docs.restricted({"kind": ["a"]})) for node in page]
    assert {node.path[0] for node in every} == {"a", "b"}
    assert {node.path[0] for node in seen} == {"a"}
    with pytest.raises(StaleNodeError, match="hides"):
        seen[0].reader.show(root.segment)
    assert every[0].reader.show(root.segment) == root


def test_a_function_may_do_what_it_likes_with_its_list(docs):
    """A list of nodes that a function empties is its own: the next question is asked over all of them."""

    def emptying(query, nodes):
        scored = [(node, float(len(node.text))) for node in nodes]
        nodes.clear()
        return scored

    register_similarity(emptying, batch=True)
    ask = Retriever(docs, "line", similarity="emptying", topk=3)
    assert [node.uid for node in ask("tea")] == [node.uid for node in ask("tea")]
    assert sum(map(len, pages(docs))) == 24
    for page in pages(docs):
        page.clear()
    assert sum(map(len, pages(docs))) == 24


@pytest.mark.slow
def test_questions_see_one_state_while_documents_change(docs, folder):
    """Every file always has three lines or one: whoever asks in between sees all lines of one version."""
    wrong, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            found = [node for page in pages(docs) for node in page]
            by_path = {node.path: [one.text for one in found if one.path == node.path] for node in found}
            wrong.extend(lines for lines in by_path.values() if len({line.rsplit("~", 1)[-1] for line in lines}) > 1)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    folder(dict.fromkeys(FILES, "~0\nmore ~0\nlines ~0"))
    docs.sync()
    for thread in threads:
        thread.start()
    for number in range(1, 8):
        folder({name: "\n".join(f"{i} ~{number}" for i in range(1 + number % 3)) for name in FILES})
        docs.sync()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_program_that_only_reads_keeps_nodes_too(folder, tmp_path):
    """A read-only Document answers by a function as the one that writes does, and sees what that one changes."""
    path = folder(FILES)
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    with document(path, store_conf=conf) as docs:
        expected = told(pages(docs))
        with document(path, store_conf=conf, read_only=True) as reading:
            assert told(pages(reading)) == expected
            folder({**FILES, "a/0.txt": "changed"})
            docs.sync()
            assert told(pages(reading)) == told(pages(docs)) != expected


@given(
    scores=st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, float("inf"), -3.5]), max_size=30),
    topk=st.integers(1, 12),
    descend=st.booleans(),
)
def test_the_best_are_those_of_a_whole_sort(scores, topk, descend):
    """Only what can be among the best is sorted, and that is the head of a sort of everything, ties by key."""
    nodes = [DocNode(text=str(number)) for number in range(len(scores))]
    random.Random(len(scores)).shuffle(nodes)
    sign = -1.0 if descend else 1.0
    pairs = [(node.segment.key, score) for node, score in zip(nodes, scores, strict=True)]
    expected = sorted(pairs, key=lambda pair: (sign * pair[1], pair[0]))[:topk]
    assert _best(nodes, np.array(scores, np.float64), topk, descend=descend) == expected


@given(st.lists(st.integers(0, 5), max_size=6), st.booleans())
def test_a_batch_function_may_return_its_nodes_in_any_order(order, as_list):
    """Each node gets the score that stands beside it, wherever the function put it; some may be left out."""
    nodes = [DocNode(text=str(number)) for number in range(6)]
    chosen = list(dict.fromkeys(order))

    def chosen_ones(query, nodes):
        return [[nodes[at], at] if as_list else (nodes[at], at) for at in chosen]

    found = Similarity("chosen", chosen_ones, "text", descend=True, batch=True).rank("q", nodes)
    assert found == [(nodes[at], float(at)) for at in sorted(chosen, reverse=True)]
