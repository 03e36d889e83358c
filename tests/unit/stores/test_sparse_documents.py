"""Documents with sparse embeddings: built, asked, changed, moved, mended."""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lazyrag import Document, Retriever, register_similarity
from lazyrag.data.fields import make_schema
from lazyrag.errors import ConfigError, EmbeddingError, RetrievalError, StoreError
from lazyrag.ingest.model_identity import PROBE
from lazyrag.ranking.fusion import rrf
from lazyrag.retrieval.similarity import cosine, ip, nearest
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.stores.sqlite import StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from lazyrag.text.analyzers import chinese_terms, english_terms
from tests.interpreter import python

FILES = {
    "tea.txt": "green tea is picked in spring\nblack tea is picked later\nwater for green tea is not boiling",
    "coffee.txt": "coffee is picked by hand\nwater for coffee is hot",
    "绿茶.txt": "绿茶在春天采摘\n红茶可以用沸水冲泡\n水温不要太高",
}
QUESTIONS = ["Which water for green tea?", "采摘绿茶", "coffee", "nothing of that"]


def weights(text: str) -> dict[int, float]:
    """A sparse vector for a text: a dimension for each of its terms, a weight by how often it has
    it.
    """
    terms = Counter(term for term in english_terms(text) + chinese_terms(text))
    return {zlib.crc32(term.encode()): 0.5 + count / 3 for term, count in terms.items()}


class Weights:
    """`weights`, remembering what it was called with."""

    identity = "toy:weights"

    def __init__(self):
        """No calls yet."""
        self.calls = []

    def __call__(self, text):
        """The vector of one text."""
        self.calls.append(text)
        return weights(text)


def letters(text: str) -> list[float]:
    """A dense vector."""
    return [float(text.count(letter)) for letter in "aeiou茶水"] + [1.0]


def in_lines(*arguments, **keywords) -> Document:
    """A Document whose group ``line`` has a node for each line."""
    docs = Document(*arguments, **keywords)
    docs.create_node_group("line", transform=lambda text: text.split("\n"))
    return docs


def conf(path: Path):
    """A store file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(path)}}}


def rounded(vector):
    """A sparse vector as it is kept."""
    return {dimension: float(np.float32(weight)) for dimension, weight in vector.items()}


def by_hand(nodes, query, embed=weights):
    """Texts and scores of the nodes that share a dimension with a query, best first."""
    asked = rounded(embed(query))
    found = []
    for node in nodes:
        own = rounded(embed(node.text))
        if own.keys() & asked.keys():
            score = 0.0
            for dimension in sorted(own.keys() & asked.keys()):
                score += asked[dimension] * own[dimension]
            found.append((node.uid, score))
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def told(nodes):
    """Uids and scores of hits."""
    return [(node.uid, node.score) for node in nodes]


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a file"])
@pytest.mark.parametrize("similarity", [None, "ip"])
def test_questions_are_answered_by_inner_product(folder, tmp_path, kept, similarity):
    """In English and Chinese: exactly the nodes that share a dimension, in the order of plain
    Python.
    """
    with in_lines(
        folder(FILES), embed=weights, store_conf=conf(tmp_path / "tea.db") if kept else None
    ) as docs:
        retriever = Retriever(docs, "line", similarity=similarity, topk=20)
        answers = [told(retriever(question)) for question in QUESTIONS]
        assert answers == [by_hand(docs.get_nodes("line"), question) for question in QUESTIONS]
        assert [len(answer) > 0 for answer in answers] == [True, True, True, False]
        assert told(retriever(QUESTIONS[0], topk=2)) == answers[0][:2]
        of_the_store = Retriever(
            docs, "line", similarity=similarity, index="smart_embedding_index", topk=20
        )
        assert told(of_the_store(QUESTIONS[0])) == answers[0]
        [hit] = retriever("采摘绿茶", topk=1)
        assert hit.text == "绿茶在春天采摘"


def test_a_nodes_embedding_is_the_dict(folder):
    """As the model gave it, with float32 weights; of a hit and of any node of the group, each time
    another dict.
    """
    docs = in_lines(folder(FILES), embed=weights)
    hits = Retriever(docs, "line")("green tea")
    for node in (*hits, *docs.get_nodes("line")):
        assert node.embedding == node.embeddings["default"] == rounded(weights(node.text))
    hits[0].embedding.clear()
    assert hits[0].embedding != {}


def test_a_text_without_weights_is_no_failure_and_never_found(folder):
    """Its vector is an empty dict."""
    docs = in_lines(folder({"a.txt": "tea\n!!!"}), embed=weights)
    assert [hit.text for hit in Retriever(docs, "line")("tea")] == ["tea"]
    assert Retriever(docs, "line")("!?") == []
    assert docs.last_report.failed == ()
    [node] = [node for node in docs.get_nodes("line") if node.text == "!!!"]
    assert node.embedding == {}


@pytest.mark.parametrize(
    ("embed", "similarity", "message"),
    [
        (
            weights,
            "cosine",
            r"similarity='cosine'.*'default'.*are sparse.*inner product.*'ip'.*embed_keys=",
        ),
        (letters, "ip", r"similarity='ip'.*'default'.*are dense.*cosine.*'cosine'.*embed_keys="),
    ],
)
def test_another_metric_than_the_collections_is_refused(folder, embed, similarity, message):
    """A ConfigError that says what ranks the vectors and what to do."""
    docs = in_lines(folder(FILES), embed=embed)
    with pytest.raises(ConfigError, match=message):
        Retriever(docs, "line", similarity=similarity)("green tea")


def test_an_empty_document_is_asked_by_any_metric(tmp_path):
    """Where there are no vectors yet, there is no metric that another one could contradict."""
    (tmp_path / "empty").mkdir()
    docs = in_lines(tmp_path / "empty", embed=weights)
    assert [Retriever(docs, "line", similarity=name)("tea") for name in (None, "ip", "cosine")] == [
        [],
        [],
        [],
    ]


def test_dense_and_sparse_keys_are_fused(folder):
    """Each key is ranked by its own metric, and the rankings are fused by rank; alone each gives
    its own.
    """
    docs = in_lines(folder(FILES), embed={"dense": letters, "words": weights})
    dense = told(Retriever(docs, "line", "cosine", topk=50, embed_keys=["dense"])("green tea"))
    words = told(Retriever(docs, "line", "ip", topk=50, embed_keys=["words"])("green tea"))
    assert words == by_hand(docs.get_nodes("line"), "green tea")
    assert len(dense) == len(docs.get_nodes("line")) > len(words) > 0
    hits = Retriever(docs, "line", topk=50)("green tea")
    assert told(hits) == rrf([dense, words])
    assert {key: type(one).__name__ for key, one in hits[0].embeddings.items()} == {
        "dense": "ndarray",
        "words": "dict",
    }
    for similarity, wrong in (("cosine", "words"), ("ip", "dense")):
        with pytest.raises(ConfigError, match=f"'{wrong}'"):
            Retriever(docs, "line", similarity)("green tea")


def test_cut_offs_filters_and_targets(folder):
    """They work as for dense vectors: what is worse goes, equality stays, filters come before the
    best.
    """
    docs = in_lines(folder(FILES), embed=weights)
    every = Retriever(docs, "line", topk=20)("green tea")
    middle = every[1].score
    assert told(Retriever(docs, "line", similarity_cut_off=middle)("green tea")) == [
        pair for pair in told(every) if pair[1] >= middle
    ]
    only = Retriever(docs, "line", topk=1)("water picked", filters={"file_name": ["coffee.txt"]})
    assert [hit.path for hit in only] == ["coffee.txt"]
    assert Retriever(docs, "line", topk=1, target="lazyllm_root")("coffee")[0].path == "coffee.txt"


def test_registered_functions_get_dicts(folder):
    """The query, a dict of its own for each Document, and each node's embedding; the key is told to
    who asks for it.
    """
    seen = []

    @register_similarity(mode="embedding", batch=True)
    def product(query, nodes, embed_key):
        seen.append(embed_key)
        scored = [(node, ip(query, node)) for node in nodes]
        query.clear()
        return [(node, score) for node, score in scored if score]

    @register_similarity(mode="embedding")
    def count(query, node):
        return len(query.keys() & node.embedding.keys())

    docs = [in_lines(folder(FILES), embed={"words": weights}) for _ in range(2)]
    assert told(Retriever(docs[0], "line", "product", topk=20)("water for green tea")) == told(
        Retriever(docs[0], "line", topk=20)("water for green tea")
    )
    assert len(Retriever(docs, "line", "product", topk=20)("coffee")) == 4
    assert set(seen) == {"words"}
    assert Retriever(docs[0], "line", "count")("coffee water")[0].text == "water for coffee is hot"


def test_several_documents_are_ranked_together(tmp_path):
    """As one Document with all files would rank them; one of them dense is an error that says
    so.
    """
    for number, (name, text) in enumerate(FILES.items()):
        (tmp_path / f"{number % 2}").mkdir(exist_ok=True)
        (tmp_path / f"{number % 2}" / name).write_text(text, encoding="utf-8")
    docs = [in_lines(tmp_path / name, embed=weights) for name in "01"]
    together = in_lines(tmp_path, embed=weights)
    for question in QUESTIONS:
        found = Retriever(docs, "line", topk=4)(question)
        assert [(hit.text, hit.score) for hit in found] == [
            (hit.text, hit.score) for hit in sorted(found, key=lambda hit: (-hit.score, hit.uid))
        ]
        expected = Retriever(together, "line", topk=4)(question)
        assert [hit.score for hit in found] == [hit.score for hit in expected]
    other = in_lines(tmp_path / "0", embed=letters)
    with pytest.raises(ConfigError, match="dense vectors in one Document and sparse"):
        Retriever([docs[1], other], "line")("tea")


def test_a_query_of_the_other_kind_is_an_error(folder):
    """A model that answers questions by dense vectors and texts by sparse ones: the error names
    both.
    """

    def embed(text, input_type):
        return weights(text) if input_type == "document" else letters(text)

    with pytest.raises(EmbeddingError, match="of 8 numbers and the nodes' are sparse"):
        Retriever(in_lines(folder(FILES), embed=embed), "line")("tea")


@pytest.mark.slow
def test_a_restart_answers_from_the_file(folder, tmp_path):
    """The next program embeds the questions and nothing else, and gives the same answers; one that
    only reads, too.
    """
    root, path = folder(FILES), tmp_path / "tea.db"
    with in_lines(root, embed=Weights(), store_conf=conf(path)) as docs:
        expected = [told(Retriever(docs, "line")(question)) for question in QUESTIONS]
        assert docs.maintenance.verify() == ()
    for read_only in (False, True):
        embed = Weights()
        with in_lines(root, embed=embed, store_conf=conf(path), read_only=read_only) as docs:
            assert [told(Retriever(docs, "line")(question)) for question in QUESTIONS] == expected
        assert {*embed.calls} <= {*QUESTIONS, PROBE}
    script = f"""
import json
from tests.unit.stores.test_sparse_documents import QUESTIONS, Retriever, Weights, conf, in_lines, told
with in_lines({os.fspath(root)!r}, embed=Weights(), store_conf=conf({os.fspath(path)!r}), read_only=True) as docs:
    print(json.dumps([told(Retriever(docs, "line")(question)) for question in QUESTIONS]))
"""
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    assert [[tuple(pair) for pair in answer] for answer in json.loads(done.stdout)] == expected


def test_unchanged_texts_are_not_embedded_again(folder, tmp_path):
    """Of an edited file only new lines are embedded; what is gone leaves the store, and a rollback
    brings it back.
    """
    root, embed = folder(FILES), Weights()
    with in_lines(root, embed=embed, store_conf=conf(tmp_path / "tea.db"), keep_versions=2) as docs:
        retriever = Retriever(docs, "line", topk=20)
        before = told(retriever("green tea"))
        embed.calls.clear()
        (root / "tea.txt").write_text(
            FILES["tea.txt"].replace("later", "in autumn"), encoding="utf-8"
        )
        docs.sync()
        assert embed.calls == ["black tea is picked in autumn"]
        assert told(retriever("green tea")) == by_hand(docs.get_nodes("line"), "green tea")
        assert [hit.text for hit in retriever("autumn")] == ["black tea is picked in autumn"]
        assert docs.maintenance.verify() == ()
        docs.versions.rollback("tea.txt", docs.versions.list("tea.txt")[0].number)
        assert told(retriever("green tea")) == before
        assert retriever("autumn") == []
        docs.delete_files(["coffee.txt"])
        assert retriever("coffee") == []
        assert docs.maintenance.verify() == ()


def test_the_cache_keeps_sparse_vectors(folder, tmp_path):
    """Another Document beside the same store file is not asked for what the first one embedded."""
    path = tmp_path / "tea.db"
    answers, calls = [], []
    for name in ("one", "two"):
        embed = Weights()
        with in_lines(folder(FILES), embed=embed, store_conf=conf(path), name=name) as docs:
            answers.append([(hit.text, hit.score) for hit in Retriever(docs, "line")("green tea")])
        calls.append(len(embed.calls))
    assert answers[0] == answers[1] != []
    assert calls[0] > 8
    assert calls[1] <= 2  # the question, and the probe


@pytest.mark.slow
def test_an_export_moves_sparse_vectors(folder, tmp_path):
    """Into another Document, which embeds nothing, answers alike and has the same dump; an empty
    vector moves, too.
    """
    embed = {"dense": letters, "words": weights}
    with in_lines(
        folder({**FILES, "odd.txt": "!!!"}), embed=embed, store_conf=conf(tmp_path / "a.db")
    ) as docs:
        expected = [told(Retriever(docs, "line")(question)) for question in QUESTIONS]
        dump = list(docs.maintenance.dump())
        docs.maintenance.export(tmp_path / "out")
    with in_lines(embed=embed, store_conf=conf(tmp_path / "b.db")) as docs:
        assert docs.maintenance.import_from(tmp_path / "out") == 4
        assert list(docs.maintenance.dump()) == dump
        assert [told(Retriever(docs, "line")(question)) for question in QUESTIONS] == expected
        assert docs.maintenance.verify() == ()
    [broken] = (tmp_path / "out").glob("*.npz")
    with np.load(broken) as arrays:
        cut = {name: array[:-1] for name, array in arrays.items()}
    np.savez(broken, **cut)
    with (
        in_lines(embed=embed, store_conf=conf(tmp_path / "c.db")) as docs,
        pytest.raises(StoreError, match="npz of the export"),
    ):
        docs.maintenance.import_from(tmp_path / "out")


def test_the_dump_tells_vectors_apart(folder):
    """Equal texts and equal weights give equal lines; another weight gives another one."""
    dumps = []
    for factor in (1.0, 1.0, 2.0):

        def embed(text, factor=factor):
            return {at: factor * weight for at, weight in reversed(weights(text).items())}

        embed.identity = "toy:weights"
        docs = in_lines(folder(FILES), embed=embed)
        Retriever(docs, "line")("tea")
        dumps.append(list(docs.maintenance.dump()))
    assert dumps[0] == dumps[1]
    assert len([1 for one, other in zip(dumps[0], dumps[2], strict=True) if one != other]) == 8


@pytest.mark.parametrize(
    ("kind", "problem"), [("dense", "dimension"), ("cut", "damaged"), ("gone", "missing")]
)
def test_verify_finds_what_is_wrong_and_repair_mends_it(folder, tmp_path, kind, problem):
    """Vectors of the other kind, damaged ones and missing ones are named, and made anew from the
    cache or the model.
    """
    path = tmp_path / "tea.db"
    with in_lines(folder(FILES), embed=weights, store_conf=conf(path)) as docs:
        expected = told(Retriever(docs, "line")("green tea"))
        dump = list(docs.maintenance.dump())
    with StoreFile(path) as file:
        store = MapFileVectorStore(file)
        with file.reading() as connection:
            [(name, dimension)] = connection.execute(
                "SELECT name, dimension FROM vector_collection"
            ).fetchall()
        assert dimension == -1
        rows = store.scan(name)
        assert len(rows) == 8
        if kind == "gone":
            store.delete(name, keys=[rows[0].key])
        elif kind == "dense":
            store.drop(name)
            store.create(name, VectorSchema(2, "cosine", make_schema(None)))
            store.upsert(
                name, [VectorRow(row.key, np.ones(2, np.float32), row.fields) for row in rows]
            )
        else:
            with file.writing() as connection:
                connection.execute("UPDATE vector_part SET content = substr(content, 1, 300)")
    with in_lines(folder({}), embed=weights, store_conf=conf(path)) as docs:
        problems = docs.maintenance.verify()
        assert {one.kind for one in problems} == {
            "missing" if kind == "gone" else "dimension" if kind == "dense" else "damaged"
        }
        if kind == "dense":
            assert "the vectors have 2 numbers, and in the ledger they are sparse" in str(
                problems[0]
            )
        assert docs.maintenance.repair() == ()
        assert told(Retriever(docs, "line")("green tea")) == expected
        assert list(docs.maintenance.dump()) == dump


def test_the_functions_behind_the_names():
    """`ip` takes two dense or two sparse vectors, `cosine` dense ones; `nearest` is one or the
    other.
    """

    def node(vector):
        return type("Node", (), {"embedding": vector})()

    assert (
        ip({1: 2.0, 5: 3.0}, node({5: 0.5, 9: 1.0}))
        == nearest({1: 2.0, 5: 3.0}, node({5: 0.5}))
        == 1.5
    )
    assert ip([1.0, 2.0], node(np.array([3, 4], np.float32))) == 11.0
    assert nearest([1.0, 0.0], node(np.array([2, 0], np.float32))) == 1.0
    for function, query, vector in (
        (ip, {1: 1.0}, np.ones(2)),
        (ip, [1.0], {1: 1.0}),
        (cosine, {1: 1.0}, {1: 1.0}),
    ):
        with pytest.raises(ConfigError, match="sparse"):
            function(query, node(vector))


def test_cosine_over_nodes_with_dicts_is_a_retrieval_error(folder):
    """Ranked node by node outside of a Document the function says what is wrong."""
    from lazyrag.retrieval import similarities

    docs = in_lines(folder(FILES), embed=weights)
    hits = Retriever(docs, "line")("tea")
    nodes, scores = similarities["ip"].scored(weights("tea"), hits)
    assert scores.tolist() == pytest.approx([hit.score for hit in nodes])
    with pytest.raises(RetrievalError, match="sparse"):
        similarities["cosine"].scored(weights("tea"), hits)
