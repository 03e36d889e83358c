"""Approximate searches by graphs: what they find beside an exact search, and what becomes of the
graphs' files.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lazyrag import Document, Retriever, register_similarity
from lazyrag.data.filters import Condition
from lazyrag.errors import CacheWarning, ConfigError, UnsupportedError
from lazyrag.indexes import hnsw
from lazyrag.indexes.dense import DenseBlock, DenseState, Graph
from lazyrag.indexes.hnsw import approximate_rankings
from lazyrag.retrieval.similarity import similarities
from lazyrag.stores import graphs as map_graphs
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.protocol import VectorRow, VectorSchema, vector_stores
from lazyrag.stores.sqlite import StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from tests.clustered import clustered
from tests.interpreter import python
from tests.shelf import conf_of

C = "lr_vectors"
COUNT, DIMENSION, TOPK = 20_000, 64, 10
FEW = 1_500  # rows, of which a graph is made at once
SCHEMA = VectorSchema(DIMENSION, "cosine", {})
WIDE = Condition("share", "ge", 5)  # 95 of 100 rows
NARROW = Condition("share", "lt", 5)
ELSEWHERE = Condition("near", "eq", 0)  # all but the rows that are nearest to the first query
VECTORS, QUERIES = clustered(COUNT, 40, DIMENSION)
NEAR = frozenset(np.argsort(-(VECTORS @ QUERIES[0]))[: COUNT // 100].tolist())
FIELDS = [[{"share": share, "near": near} for near in range(2)] for share in range(100)]


def _rows(numbers=range(COUNT)):
    return [
        VectorRow(f"k{one:05d}", VECTORS[one], FIELDS[one % 100][one in NEAR]) for one in numbers
    ]


@contextmanager
def _open(path: Path | None, **arguments) -> Iterator[MapFileVectorStore]:
    with StoreFile(path, **arguments) as file:
        store = MapFileVectorStore(file)
        store.create(C, SCHEMA)
        yield store


def graphs_pay_early() -> None:
    """Have small blocks searched by graphs, too."""
    map_graphs.MIN_ROWS = 1_000
    hnsw._ROWS_AS_DEAR = 1


@pytest.fixture
def small_graphs(monkeypatch) -> None:
    """Small blocks are searched by graphs, too, for as long as the test takes."""
    monkeypatch.setattr(map_graphs, "MIN_ROWS", map_graphs.MIN_ROWS)
    monkeypatch.setattr(hnsw, "_ROWS_AS_DEAR", hnsw._ROWS_AS_DEAR)
    graphs_pay_early()


def _made(folder: Path, count: int) -> Path:
    """A folder with a store file of so many vectors and their graph."""
    with _open(folder / "store.db") as store:
        store.upsert(C, _rows(range(count)))
        store.search_approximately(C, QUERIES[:1], 1)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A folder with a store file of many vectors and their graph, which nobody changes."""
    return _made(tmp_path_factory.mktemp("graphs"), COUNT)


@pytest.fixture
def store(kept, tmp_path) -> Iterator[MapFileVectorStore]:
    """The store over a copy."""
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    with _open(tmp_path / "store.db") as store:
        yield store


@pytest.fixture
def path(small_graphs, tmp_path) -> Path:
    """A store file of few vectors and their graph."""
    return _made(tmp_path, FEW) / "store.db"


def graphs_of(path: Path) -> list[Path]:
    """The files of the graphs beside a store file."""
    return sorted(Path(f"{path}.graphs").glob("*.faiss"))


def recall(found, exact) -> float:
    """Which share of exact rankings was found."""
    both = sum(
        len(dict(some).keys() & dict(others).keys())
        for some, others in zip(found, exact, strict=True)
    )
    return both / sum(map(len, exact))


def check_beside_exact(store, topk=TOPK, filter=None, at_least=0.95) -> None:  # noqa: A002  the word of the domain
    """Most of the nearest rows are found, there are as many as there should be, and their scores
    are the exact ones.
    """
    exact = store.search(C, QUERIES, topk, filter)
    found = store.search_approximately(C, QUERIES, topk, filter)
    assert recall(found, exact) >= at_least
    for query, ranking, best in zip(QUERIES.astype(np.float64), found, exact, strict=True):
        assert len(ranking) == len(best)
        assert ranking == sorted(ranking, key=lambda pair: (-pair[1], pair[0]))
        assert all(score == dict(best).get(key, score) for key, score in ranking)
        vectors = np.stack(
            [row.vector for row in store.get(C, [key for key, _ in ranking])]
        ).astype(np.float64)
        cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
        assert [score for _, score in ranking] == pytest.approx(cosines.tolist(), abs=1e-12)


class TestAnswers:
    """What is found beside an exact search."""

    def test_almost_all_of_the_nearest_are_found(self, store):
        """At least .95 of the ten nearest, with the exact search's scores in its order."""
        check_beside_exact(store)

    def test_the_graph_is_what_answers(self, small_graphs):
        """What a graph does not lead to is missed: the answers are the graph's, not those of a
        scan.
        """
        block = DenseBlock.of_rows([f"{one:05d}" for one in range(FEW)], VECTORS[:FEW])
        blind = Graph.of_matrix(VECTORS[: FEW // 4], np.ones(FEW // 4))
        state = DenseState([block], [None], DIMENSION, "cosine")
        exact = state.search_many(QUERIES, TOPK)
        assert recall(approximate_rankings(state, [blind], QUERIES, TOPK), exact) < 0.5
        assert approximate_rankings(state, [None], QUERIES, TOPK) == exact

    @pytest.mark.parametrize("topk", [1, 40])
    def test_any_number_of_rows(self, store, topk):
        """Fewer or more than ten."""
        check_beside_exact(store, topk)

    @pytest.mark.parametrize("topk", [1_000, COUNT + 1])
    def test_many_rows_are_found_exactly(self, store, topk):
        """Where so many are wanted that a graph would not pay, all are found."""
        assert store.search_approximately(C, QUERIES[:2], topk) == store.search(
            C, QUERIES[:2], topk
        )

    def test_a_filter_that_lets_most_through(self, store):
        """What it refuses is not found, and what it lets through is found as without it."""
        check_beside_exact(store, filter=WIDE)

    def test_a_filter_that_lets_few_through(self, store):
        """Few rows are searched exactly."""
        found = store.search_approximately(C, QUERIES, TOPK, NARROW)
        assert found == store.search(C, QUERIES, TOPK, NARROW)
        assert all(found)

    def test_a_filter_that_lets_none_through(self, store):
        """Nothing is found, and nothing fails."""
        assert store.search_approximately(C, QUERIES[:1], TOPK, Condition("share", "lt", 0)) == [[]]

    def test_a_filter_that_refuses_the_nearest(self, store):
        """Where the graph leads to refused rows only, the answer is still whole, and exact."""
        found = store.search_approximately(C, QUERIES[:1], TOPK, ELSEWHERE)
        assert found == store.search(C, QUERIES[:1], TOPK, ELSEWHERE)
        check_beside_exact(store, filter=ELSEWHERE)

    def test_deleted_rows_are_not_found(self, store):
        """Those that were nearest are gone from the next answer, and others stand in their
        place.
        """
        gone = {
            key for ranking in store.search_approximately(C, QUERIES, TOPK) for key, _ in ranking
        }
        store.delete(C, keys=sorted(gone))
        found = store.search_approximately(C, QUERIES, TOPK)
        assert not gone & {key for ranking in found for key, _ in ranking}
        check_beside_exact(store)

    def test_new_rows_are_found(self, store, tmp_path):
        """Rows that were added or replaced are in the next answer, exactly, and no graph is built
        for so few.
        """
        [graph] = graphs_of(tmp_path / "store.db")
        before = graph.stat()
        store.upsert(
            C,
            [
                VectorRow("new", QUERIES[0], FIELDS[0][0]),
                VectorRow("k00000", QUERIES[1], FIELDS[0][0]),
            ],
        )
        [first, second] = store.search_approximately(C, QUERIES[:2], TOPK)
        assert (first[0][0], second[0][0]) == ("new", "k00000")
        check_beside_exact(store)
        assert graphs_of(tmp_path / "store.db") == [graph]
        assert graph.stat().st_mtime_ns == before.st_mtime_ns

    def test_a_query_without_length(self, store):
        """All scores are 0, and the smallest keys come first, as in an exact search."""
        nothing = np.zeros((1, DIMENSION), np.float32)
        assert store.search_approximately(C, nothing, TOPK) == store.search(C, nothing, TOPK)

    def test_in_memory(self, small_graphs):
        """The stores in memory answer in the same way."""
        with _open(None) as of_file:
            for store in (MapVectorStore(), of_file):
                store.create(C, SCHEMA)
                store.upsert(C, _rows(range(FEW)))
                check_beside_exact(store)

    def test_another_metric_is_refused(self):
        """The graphs know angles only; what to do is said."""
        store = MapVectorStore()
        store.create("ip", VectorSchema(DIMENSION, "ip", {}))
        with pytest.raises(UnsupportedError, match=r"cosine.*'ip'.*exactly"):
            store.search_approximately("ip", QUERIES[:1], 1)

    def test_threads_share_a_graph(self, path):
        """Several threads ask for the first time at once: each gets the answers of one alone."""
        shutil.rmtree(f"{path}.graphs")
        with _open(path) as store:
            with ThreadPoolExecutor(4) as pool:
                answers = list(
                    pool.map(lambda _: store.search_approximately(C, QUERIES, TOPK), range(8))
                )
            assert all(answer == answers[0] for answer in answers)
            assert len(graphs_of(path)) == 1
            check_beside_exact(store)


class TestFiles:
    """The graphs' files beside a store file."""

    def test_a_restart_builds_nothing(self, path):
        """The saved graph is used as it is: its file is neither written again nor replaced."""
        [graph] = graphs_of(path)
        before = graph.stat()
        with _open(path) as store:
            check_beside_exact(store)
        after = graph.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    def test_another_process_uses_it_too(self, path):
        """A graph that one process has made gives another one the same answers, bit for bit."""
        with _open(path) as store:
            expected = store.search_approximately(C, QUERIES, TOPK)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(_answers, path).result() == expected

    def test_two_processes_at_once(self, path):
        """Both build it, both answer, and one whole graph is left."""
        shutil.rmtree(f"{path}.graphs")
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            answers = list(pool.map(_answers, [path, path]))
        with _open(path) as store:
            exact = store.search(C, QUERIES, TOPK)
            assert all(recall(answer, exact) >= 0.95 for answer in answers)
            assert store.search_approximately(C, QUERIES, TOPK) in answers
        assert list(Path(f"{path}.graphs").iterdir()) == graphs_of(path)

    @pytest.mark.parametrize("damage", ["cut", "empty", "one bit", "of other rows"])
    def test_a_damaged_graph_is_built_anew(self, path, damage):
        """A warning says so; the answers are as good, and the new file is whole."""
        [graph] = graphs_of(path)
        content = bytearray(graph.read_bytes())
        content[len(content) // 2] ^= 1
        other = path.with_name("other")
        Graph.of_matrix(VECTORS[:64], np.ones(64)).write(other, "other")
        graph.write_bytes(
            {
                "cut": content[:-1],
                "empty": b"",
                "one bit": content,
                "of other rows": other.read_bytes(),
            }[damage]
        )
        with _open(path) as store, pytest.warns(CacheWarning, match="built anew"):
            check_beside_exact(store)
        with _open(path) as store:
            check_beside_exact(store)

    def test_deleting_the_folder_costs_time_only(self, path):
        """It is made again."""
        shutil.rmtree(f"{path}.graphs")
        with _open(path) as store:
            check_beside_exact(store)
        assert len(graphs_of(path)) == 1

    def test_a_reader_uses_what_is_there(self, path):
        """With read_only=True the saved graph answers."""
        with _open(path) as store:
            expected = store.search_approximately(C, QUERIES, TOPK)
        with _open(path, read_only=True) as store:
            assert store.search_approximately(C, QUERIES, TOPK) == expected

    def test_a_reader_writes_nothing(self, path):
        """Where there is none it builds one in memory."""
        shutil.rmtree(f"{path}.graphs")
        with _open(path, read_only=True) as store:
            check_beside_exact(store)
        assert not Path(f"{path}.graphs").exists()

    def test_what_cannot_be_kept_is_used(self, path):
        """Where no folder can be made, a warning says that the graph will have to be built
        again.
        """
        shutil.rmtree(f"{path}.graphs")
        Path(f"{path}.graphs").write_text("in the way")
        with _open(path) as store, pytest.warns(CacheWarning, match="built anew|not stored"):
            check_beside_exact(store)

    def test_graphs_of_rows_that_are_gone_go(self, path):
        """When a graph is written, those go whose rows are in no collection; files of other kinds
        stay.
        """
        [old] = graphs_of(path)
        stays = old.with_name("notes.txt")
        killed, young = (old.with_name(f"{old.stem}.{number:016x}.tmp") for number in range(2))
        for file in (stays, killed, young):
            file.write_text("x")
        os.utime(killed, (0, 0))
        with _open(path) as store:
            store.drop(C)
            store.create(C, SCHEMA)
            store.upsert(C, _rows(range(FEW - 1)))
            check_beside_exact(store)
        [new] = graphs_of(path)
        assert new.name != old.name
        assert set(new.parent.iterdir()) == {new, stays, young}


def _answers(path):
    graphs_pay_early()  # in a process of its own
    with _open(path) as store:
        return store.search_approximately(C, QUERIES, TOPK)


class TestGraph:
    """A graph over a matrix."""

    def test_vectors_without_length_are_in_nobodys_way(self):
        """However many there are, the others are found; of none but them, nothing is."""
        matrix = np.concatenate([np.zeros((500, 8)), np.eye(8)]).astype(np.float32)
        graph = Graph.of_matrix(matrix, np.linalg.norm(matrix, axis=1).astype(np.float64))
        assert [graph.nearest(one, 1).tolist() for one in matrix[500:]] == [
            [500 + number] for number in range(8)
        ]
        assert Graph.of_matrix(matrix[:500], np.zeros(500)).nearest(matrix[500], 3).tolist() == []

    def test_lengths_do_not_matter(self):
        """Very short and very long vectors are found by their directions."""
        lengths = 10.0 ** np.linspace(-30, 30, 200)
        matrix = (VECTORS[:200] * lengths[:, None]).astype(np.float32)
        graph = Graph.of_matrix(matrix, np.linalg.norm(matrix.astype(np.float64), axis=1))
        directions = VECTORS[:200] / np.linalg.norm(VECTORS[:200], axis=1, keepdims=True)
        assert all(number in graph.nearest(one, 50)[:3] for number, one in enumerate(directions))

    def test_building_can_be_interrupted(self):
        """A signal's KeyboardInterrupt leaves it as such."""

        def interrupt(number, frame):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with pytest.raises(KeyboardInterrupt):
                Graph.of_matrix(np.tile(VECTORS, (20, 1)), np.ones(20 * COUNT))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


class Numbered:
    """An embed callable for texts that are numbers of vectors, or of queries below 0."""

    identity = "numbered"

    def __call__(self, text):
        """The vector of that number."""
        return (VECTORS if int(text) >= 0 else QUERIES)[abs(int(text))]


class TestRetriever:
    """Through a Document."""

    @pytest.fixture
    def docs(self, small_graphs, tmp_path) -> Iterator[Document]:
        """A Document over a folder of numbers, on a store file."""
        root = tmp_path
        (root / "dataset").mkdir()
        for number, some in enumerate(np.array_split(np.arange(FEW), 10)):
            (root / "dataset" / f"{number:02d}.txt").write_text("\n".join(map(str, some)))
        with Document(
            root / "dataset", store_conf=conf_of(root / "store.db"), embed=Numbered()
        ) as docs:
            docs.create_node_group("line", transform=str.splitlines)
            yield docs

    def test_most_of_the_nodes_of_an_exact_search(self, docs, tmp_path):
        """The same nodes with the same scores, but for a few; and the graph lies beside the store
        file.
        """
        exact, near = (
            Retriever(docs, "line", topk=TOPK),
            Retriever(docs, "line", topk=TOPK, index="ann"),
        )
        found, best = (
            [{(one.uid, one.score) for one in ask(str(-n))} for n in range(1, 30)]
            for ask in (near, exact)
        )
        assert [len(nodes) for nodes in found] == [TOPK] * 29
        assert (
            sum(len(some & others) for some, others in zip(found, best, strict=True))
            >= 0.95 * TOPK * 29
        )
        assert len(graphs_of(tmp_path / "store.db")) == 1

    def test_an_edited_file(self, docs, tmp_path):
        """What a sync has changed is in the next answer, and what it has removed is not."""
        near = Retriever(docs, "line", topk=TOPK, index="ann")
        gone = near("-1")[0]
        edited = tmp_path / "dataset" / gone.path
        left = [line for line in edited.read_text().split() if line != gone.text]
        edited.write_text("\n".join(left))
        docs.sync()
        found = {node.text for node in near("-1")}
        assert len(found) == TOPK
        assert (
            len(found & {node.text for node in Retriever(docs, "line", topk=TOPK)("-1")})
            >= 0.7 * TOPK
        )
        assert gone.text not in found

    def test_filters_and_scopes(self, docs):
        """A narrow filter is answered exactly; a restricted Document refuses a graph over hidden
        nodes.
        """
        filters = {"file_name": ["03.txt"]}
        exact = Retriever(docs, "line", topk=TOPK)("-1", filters)
        assert len(exact) == TOPK
        found = Retriever(docs, "line", topk=TOPK, index="ann")("-1", filters)
        assert [(node.uid, node.score) for node in found] == [
            (node.uid, node.score) for node in exact
        ]
        with pytest.raises(ConfigError, match="index='exact'"):
            Retriever(docs.restricted(filters), "line", topk=TOPK, index="ann")

    @pytest.mark.parametrize("similarity", ["bm25", "of_a_test"])
    def test_it_is_for_what_a_vector_store_answers(self, docs, similarity):
        """Another similarity is refused when the Retriever is made; the message says what to do."""
        with similarities.isolated():
            register_similarity(lambda query, node: 0.0, mode="embedding", name="of_a_test")
            with pytest.raises(
                ConfigError, match=rf"{similarity}.*similarity='cosine', or index='exact'"
            ):
                Retriever(docs, "line", similarity=similarity, index="ann")

    def test_a_store_without_it_says_so(self, tmp_path):
        """The error names the store, and what else there is."""

        class Plain(MapVectorStore):
            features = frozenset({"exact"})

        (tmp_path / "a.txt").write_text("1")
        with vector_stores.isolated():
            vector_stores.register("plain", Plain)
            docs = Document(
                tmp_path, store_conf={"vector_store": {"type": "plain"}}, embed=Numbered()
            )
            docs.create_node_group("line", transform=str.splitlines)
            with pytest.raises(UnsupportedError, match=r"Plain does not.*index='exact'.*map store"):
                Retriever(docs, "line", index="ann")("-1")

    def test_without_the_package_the_extra_is_named(self, tmp_path):
        """However few the nodes are: it never becomes another search silently."""
        (tmp_path / "a.txt").write_text("green tea")
        script = """
import sys
sys.modules["faiss"] = None
from lazyrag import Document, Retriever
from lazyrag.errors import MissingDependencyError
docs = Document(sys.argv[1], embed=lambda text: [1.0, len(text)])
assert Retriever(docs, "FineChunk")("tea")
try:
    Retriever(docs, "FineChunk", index="ann")("tea")
except MissingDependencyError as exc:
    print(exc)
"""
        done = python("-c", script, str(tmp_path))
        assert done.stderr == ""
        assert done.stdout == (
            "index='ann' of the map store needs the package 'faiss', which is not installed. "
            'Install it with: pip install -e ".[ann]"\n'
        )


def test_a_vector_is_nearest_to_itself():
    """The row whose direction is asked for comes first."""
    matrix = np.eye(64, dtype=np.float32)
    assert Graph.of_matrix(matrix, np.ones(64)).nearest(matrix[5], 1).tolist() == [5]


def test_a_model_may_be_loaded_after_a_graph():
    """In one process: the symbols of a native library that is loaded for all to see may be those of
    another one.
    """
    script = """
import numpy as np
from lazyrag.indexes.dense import Graph
print(len(Graph.of_matrix(np.eye(64, dtype=np.float32), np.ones(64))))
import onnxruntime
print(onnxruntime.get_available_providers())
"""
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    assert "CPUExecutionProvider" in done.stdout


def test_sparse_vectors_are_searched_exactly_only(folder):
    """index="ann" refuses them and names the index to use; the exact search answers."""
    docs = Document(
        folder({"a.txt": "green tea\nblack coffee"}),
        embed=lambda text: {len(word): 1.0 for word in text.split()},
    )
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    with pytest.raises(
        ConfigError, match=r"index='ann' needs dense vectors.*sparse.*index='exact'"
    ):
        Retriever(docs, "line", index="ann")("tea")
    assert [node.text for node in Retriever(docs, "line")("tea")] == ["green tea"]
