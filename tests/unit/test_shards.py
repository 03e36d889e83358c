"""Documents in several stores answer as one store does: same uids, scores to the last bit, same order."""

from __future__ import annotations

import hashlib
import threading
import warnings

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lazyrag import DataType, DocField, Document, HybridRetriever, Retriever
from lazyrag.document import Worker, reshard, shard_of
from lazyrag.errors import ConfigError, DatasetPathError, IngestionError, IngestionWarning
from lazyrag.retrieval import (
    AutoMerge,
    MultiQueryRetriever,
    PriorityRetriever,
    RetrievalChain,
    WeightedRetriever,
    Windows,
)

EXAMPLES = max(3, settings().max_examples // 2)  # each asks some hundred questions of both
WORDS = "green tea black coffee roast leaf water cup bean 绿茶 红茶 pick dry".split()
FIELDS = {"year": DocField(DataType.INT32), "origin": DocField(DataType.VARCHAR, max_size=20)}
QUESTIONS = ("green tea", "绿茶", "roast the bean", "water", "nothing of that")


def vector(text):
    """An embedding that differs between most texts, and has equal scores for some."""
    numbers = hashlib.sha256(text.encode()).digest()[:6]
    return [float(number % 5) - 2.0 for number in numbers] + [1.0]


def overlap(query, nodes, **_):
    """A similarity of the user's own: (node, score) pairs."""
    wanted = set(query.split())
    return [(node, len(wanted & set(node.text.split()))) for node in nodes]


def sparse(text):
    """A sparse embedding."""
    return {len(word): 1.0 + text.count(word) for word in text.split()}


def opened(files=None, **options):
    """A Document with two embeddings, fields and a group of its own."""
    embed = {"dense": vector, "sparse": sparse}
    docs = Document(files, embed, doc_fields=FIELDS, workers=1, **options)
    docs.create_node_group("line", transform=str.splitlines, index_fields=["path"])
    docs.create_node_group("word", transform=str.split, parent="line")
    return docs


def retrievers(docs):
    """Retrievers of every kind over a Document."""
    line = {"group_name": "line", "topk": 7}
    words, dense = Retriever(docs, similarity="bm25", **line), Retriever(docs, embed_keys=["dense"], **line)
    return {
        "bm25": words,
        "chinese": Retriever(docs, similarity="bm25_chinese", **line),
        "deep": Retriever(docs, "word", similarity="bm25", topk=50),
        "cosine": dense,
        "sparse": Retriever(docs, embed_keys=["sparse"], **line),
        "both": Retriever(docs, **line),
        "cut": Retriever(docs, embed_keys=["dense"], similarity_cut_off=0.1, **line),
        "up": Retriever(docs, similarity="bm25", target="lazyllm_root", **line),
        "down": Retriever(docs, similarity="bm25", target="word", **line),
        "hybrid": HybridRetriever.over(docs, "line", topk=6),
        "weighted": WeightedRetriever(words, dense, weights=[2, 1], topk=6),
        "priority": PriorityRetriever(words, dense, priorities=["high", "low"], topk=6),
        "several": MultiQueryRetriever(words, lambda query: [query, query + " cup"]),
        "merged": RetrievalChain(words, AutoMerge()),
        "windows": RetrievalChain(words, Windows(1, 1)),
    }


def described(nodes):
    """What two nodes are compared by."""
    return [(node.uid, node.score, node.text, node.path, node.metadata, node.location) for node in nodes]


def assert_same(one, many, questions=QUESTIONS):
    """Everything that can be asked has the same answer."""
    for where in (None, {"origin": ["asia"]}, {"year": [1, 2]}):
        views = (one, many) if where is None else (one.restricted(where), many.restricted(where))
        ours, theirs = map(retrievers, (views[1], views[0]))
        if where is None:
            for docs, some in ((many, ours), (one, theirs)):
                smart = {"embed_keys": ["dense"], "index": "smart_embedding_index"}
                some["smart"] = Retriever(docs, "line", topk=7, **smart)
        for name, retriever in theirs.items():
            for question in questions:
                found = retriever(question, filters={"year": [0, 1]} if name == "cut" else None)
                got = ours[name](question, filters={"year": [0, 1]} if name == "cut" else None)
                assert described(got) == described(found), (name, question, where)
                for node, other in zip(found[:1], got[:1], strict=True):
                    below = [described(one.children.get("word", ())) for one in (node, other)]
                    assert below[0] == below[1]
            assert hits_of(ours[name].explain(questions[0])) == hits_of(retriever.explain(questions[0]))
            for node in views[0].get_nodes("line")[-1:]:
                assert ours[name].why_not(node.uid, questions[1]) == retriever.why_not(node.uid, questions[1])
        for group in ("lazyllm_root", "line", "word"):
            assert described(views[1].get_nodes(group)) == described(views[0].get_nodes(group))
        assert [vars_of(info) for info in views[1].documents()] == [vars_of(info) for info in views[0].documents()]
        assert views[1].grep("tea") == views[0].grep("tea")
        for node in views[0].get_nodes("line", limit=2, offset=1):
            assert described(views[1].related(node.uid)) == described(views[0].related(node.uid))
            assert views[1].read(node.path) == views[0].read(node.path)
    nodes, others = one.get_nodes("line")[::3], many.get_nodes("line")[::3]
    assert described(many.window(others, 1, 2)) == described(one.window(nodes, 1, 2))
    assert described(many.find("lazyllm_root")(others)) == described(one.find("lazyllm_root")(nodes))
    assert list(many.dump()) == list(one.dump())
    assert many.verify() == ()


def hits_of(explanation):
    """The hits of an explanation with what every stage gave them, without the times of the stages."""
    return str(explanation).partition("\nstage ")[0]


def vars_of(info):
    """A document's state without times."""
    return (info.id, info.status, info.version, info.groups, info.bytes, info.labels)


texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=4)
documents = st.dictionaries(st.integers(0, 11).map("doc-{}".format), texts.map("\n".join), min_size=1, max_size=6)
steps = st.one_of(
    documents.map(lambda new: ("add_texts", new)),
    st.lists(st.integers(0, 11).map("doc-{}".format), min_size=1, max_size=3, unique=True).map(
        lambda names: ("delete_files", names)
    ),
    st.tuples(st.integers(0, 11), st.integers(0, 3)).map(
        lambda pair: ("update_metadata", {f"doc-{pair[0]}": {"year": pair[1], "origin": "asia"}})
    ),
)


def outcome(docs, method, argument):
    """What a call returns, or the error that it raises."""
    try:
        report = getattr(docs, method)(argument)
    except ConfigError:
        return "refused"
    return report.added, report.updated, report.unchanged, report.deleted, report.failed


class TestEqual:
    """Any corpus, any changes, any queries, with one to five shards."""

    @settings(max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate])
    @given(shards=st.integers(1, 5), first=documents, changes=st.lists(steps, max_size=5))
    def test_shards_answer_as_one_store(self, shards, first, changes):
        """Uids, scores to the last bit, order, nodes around hits, listings and dumps are equal after every change."""
        with opened() as one, opened(shards=shards) as many:
            metadata = {name: {"year": number % 3, "origin": "asia"} for number, name in enumerate(sorted(first))}
            for docs in (one, many):
                docs.add_texts(first, metadata)
                docs.activate_group("line", "word", embed_keys=["dense", "sparse"], analysers=["en", "zh"])
            for method, argument in changes:
                assert outcome(many, method, argument) == outcome(one, method, argument)
            assert_same(one, many, QUESTIONS[:3])
