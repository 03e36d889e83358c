"""Read transactions: each answer is a function of one state, whoever writes meanwhile and in
whichever process.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import threading
import time
from collections import defaultdict
from contextlib import contextmanager

import pytest

from lazyrag import (
    DataType,
    DocField,
    Document,
    HybridRetriever,
    Reranker,
    RetrievalChain,
    Retriever,
    register_similarity,
)
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.errors import (
    ConfigError,
    IngestionError,
    IngestionWarning,
    LazyRAGError,
    StaleNodeError,
)
from lazyrag.retrieval import AutoMerge, FeedbackRetriever, MultiQueryRetriever, Windows
from lazyrag.stores.memory import MapSegmentStore
from tests.interpreter import waiting

DOCUMENTS = 4
ALL = 1000
READ_S = 0.25
LINE = re.compile(r"tea (d\d+) (v\d+) l(\d+) of (\d+)")

WORLD = '''
from lazyrag import Document

DOCUMENTS = 4


def texts_of(version):
    """Every document of one version: three to five lines, each of which names its document and version."""
    counts = {number: 3 + (number + version) % 3 for number in range(DOCUMENTS)}
    return {
        f"d{number}": "\\n".join(f"tea d{number} v{version} l{line} of {count}" for line in range(1, count + 1))
        for number, count in counts.items()
    }


def lines(text):
    return text.splitlines()


def embed(text):
    return [1.0, float(len(text)), float(sum(map(ord, text)) % 97)]


def open_document(store=None, **arguments):
    """A Document with a group of lines, in memory or on a store file."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}} if store else None
    docs = Document(embed=embed, store_conf=conf, **arguments)
    docs.create_node_group("line", transform=lines)
    return docs
'''

ON_COMMAND = """
import sys
sys.path.insert(0, sys.argv[1])
from world import open_document, texts_of
with open_document(sys.argv[2]) as docs:
    print("ready", flush=True)
    for line in sys.stdin:
        docs.add_texts(texts_of(int(line)))
        print("written", flush=True)
"""

CONSTANTLY = """
import itertools, sys
sys.path.insert(0, sys.argv[1])
from world import open_document, texts_of
with open_document(sys.argv[2]) as docs:
    print("ready", flush=True)
    for version in itertools.count(2):
        docs.add_texts(texts_of(version))
"""


class World:
    """The module that all programs of a test define their Document by, and a place for its store
    file.
    """

    def __init__(self, root):
        """Write the module and import it."""
        self.root, self.store = root, root / "store.db"
        (root / "world.py").write_text(WORLD, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("world", root / "world.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.texts_of, self.open = module.texts_of, module.open_document

    def built(self, store=None, version=1):
        """An open Document with one version of all texts, built for keyword and vector search."""
        docs = self.open(store)
        docs.add_texts(self.texts_of(version))
        for similarity in ("bm25", "bm25_chinese", "cosine"):
            Retriever(docs, "line", similarity)("tea")
        return docs


@pytest.fixture
def world(tmp_path):
    """A module for several programs, and no store yet."""
    return World(tmp_path)


@pytest.fixture(params=["memory", pytest.param("file", marks=pytest.mark.slow)])
def docs(request, world):
    """Version 1 of all texts, in memory and on a store file."""
    with world.built(world.store if request.param == "file" else None) as docs:
        yield docs


def keyword(docs):
    """Keyword search for all lines."""
    return Retriever(docs, "line", "bm25", topk=ALL)


def hybrid(docs):
    """Keyword and vector search for all lines, fused."""
    words, vectors = keyword(docs), Retriever(docs, "line", "cosine", topk=ALL)
    return HybridRetriever(vectors, words, topk=ALL, depth=ALL)


def reranked(docs):
    """A chain that reranks a hybrid's lines by their words."""
    return RetrievalChain(hybrid(docs), Reranker("BM25Reranker"), topk=ALL, fetch=ALL)


def widened(docs):
    """A chain that reads the neighbours of a hybrid's lines."""
    return RetrievalChain(hybrid(docs), Windows(1, 1), topk=ALL, fetch=ALL)


def merged(docs):
    """A chain that replaces a hybrid's lines by the documents that they fill."""
    return RetrievalChain(hybrid(docs), AutoMerge(), topk=ALL, fetch=ALL)


def parents(docs):
    """Keyword search that returns the documents of the lines."""
    return Retriever(docs, "line", "bm25", topk=ALL, target="lazyllm_root")


def rewritten(docs):
    """A hybrid that is queried in two ways."""
    return MultiQueryRetriever(hybrid(docs), lambda query: [f"{query} of"], topk=ALL, depth=ALL)


def moved(docs):
    """Vector search, and again with the query moved towards what was found first."""
    return FeedbackRetriever(Retriever(docs, "line", "cosine", topk=ALL), nodes=3)


def with_a_function(docs):
    """A hybrid with a function of a user that lists the nodes of the Document itself."""

    def every(query, filters=None, topk=None):
        return [node.with_score(1.0) for node in docs.get_nodes("line")]

    return HybridRetriever(keyword(docs), every, topk=ALL, depth=ALL)


RETRIEVERS = [
    keyword,
    hybrid,
    reranked,
    widened,
    merged,
    parents,
    rewritten,
    moved,
    with_a_function,
]


def problem(nodes):
    """What is wrong with an answer that must have each line of each document, all of one version;
    "" if nothing.
    """
    found = LINE.findall("\n".join(node.text for node in nodes))
    by_document = defaultdict(list)
    for document, version, line, count in found:
        by_document[document].append((version, int(line), int(count)))
    if len(by_document) != DOCUMENTS:
        return f"short: only {sorted(by_document)}"
    if len({version for version, _, _ in itertools.chain(*by_document.values())}) != 1:
        return f"mixed versions: {dict(by_document)}"
    for document, rows in by_document.items():
        if sorted(line for _, line, _ in rows) != list(range(1, rows[0][2] + 1)):
            return f"not each line once: {document} {rows}"
    return ""


def version_of(nodes):
    """The version that an answer is of."""
    return int(LINE.search(nodes[0].text)[2][1:])


@contextmanager
def writing(write):
    """A thread that calls a function with 2, 3, ... for as long as the block runs; its error is
    raised at the end.
    """
    ended, errors = threading.Event(), []

    def work():
        try:
            for version in itertools.count(2):
                if ended.is_set():
                    return
                write(version)
        except Exception as exc:  # noqa: BLE001  raised in the test's own thread
            errors.append(exc)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)
    assert errors == []


def read_for(seconds, retrievers, check):
    """Call retrievers in turn; returns the problems that a check found, and the versions that were
    seen.
    """
    deadline, problems, seen = time.monotonic() + seconds, [], set()
    for retrieve in itertools.cycle(retrievers):
        nodes = retrieve("tea")
        wrong = check(nodes)
        if wrong:
            problems.append(wrong)
        else:
            seen.add(version_of(nodes))
        if (
            problems
            or (time.monotonic() > deadline and len(seen) > 1)
            or time.monotonic() > deadline + 20
        ):
            return problems, seen
        # without it the writer waits up to 5 ms for the GIL at each row that it reads from SQLite
        time.sleep(0.001)
    raise AssertionError


class TestBesideAWriter:
    """Answers while another thread or process replaces all documents, version after version."""

    @pytest.mark.sample(9)
    @pytest.mark.parametrize("make", RETRIEVERS)
    def test_in_another_thread(self, world, docs, make):
        """No answer mixes versions, misses a document or is short, in memory (where nothing dead is
        kept) or a file.
        """
        with writing(lambda version: docs.add_texts(world.texts_of(version))):
            problems, seen = read_for(READ_S, [make(docs)], problem)
        assert problems == []
        assert len(seen) > 1

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("make", [hybrid, reranked, merged])
    def test_a_trace_is_of_one_state(self, world, docs, make):
        """All stages of a trace are complete and of one version, and so is an explanation."""
        retriever = make(docs)

        def traced(query):
            nodes = [stage.nodes for stage in stages_of(retriever.trace(query))]
            assert {problem(some) for some in nodes} == {""}
            return [node for some in nodes for node in some[:1]]

        def explained(query):
            return [hit.node for hit in retriever.explain(query)]

        def check(nodes):
            return (
                ""
                if len({version_of([node]) for node in nodes}) == 1
                else f"mixed versions: {nodes}"
            )

        with writing(lambda version: docs.add_texts(world.texts_of(version))):
            problems, seen = read_for(READ_S, [traced, explained], check)
        assert problems == []
        assert len(seen) > 1

    @pytest.mark.slow
    def test_in_another_process(self, world):
        """The same for a read-only Document of this process, in all ways, and for one that may
        write.
        """
        world.built(world.store).close()
        with waiting(CONSTANTLY, world.root, world.store):
            for arguments in ({"read_only": True}, {}):
                with world.open(world.store, **arguments) as docs:
                    problems, seen = read_for(READ_S, [make(docs) for make in RETRIEVERS], problem)
                assert problems == []
                assert len(seen) > 1

    @pytest.mark.slow
    def test_filters_do_not_shorten_answers(self, tmp_path):
        """A filtered answer has all that meets the filter, whatever dead rows rank before it."""
        docs = Document(embed=len_and_one, doc_fields={"kind": DocField(DataType.VARCHAR)})
        docs.create_node_group("line", transform=str.splitlines)
        metadata = {"a": {"kind": "odd"}, "b": {"kind": "even"}}

        def write(version):
            docs.add_texts(
                {"a": f"tea v{version} a\n" * 3, "b": f"tea v{version} b\n" * 3}, metadata
            )

        write(1)
        retriever = hybrid(docs)
        with writing(write):
            deadline, answers = time.monotonic() + READ_S, set()
            while time.monotonic() < deadline or (
                len(answers) == 1 and time.monotonic() < deadline + 20
            ):
                answers.add(tuple(node.text for node in retriever("tea", filters={"kind": "odd"})))
                time.sleep(0.001)  # see read_for
        assert {len(texts) for texts in answers} == {3}
        assert all(len(set(texts)) == 1 and texts[0].endswith("a") for texts in answers)
        assert len(answers) > 1


def len_and_one(text):
    """A vector of a text."""
    return [float(len(text)), 1.0]


class TestSeveralDocuments:
    """One retriever over several Documents."""

    @pytest.mark.slow
    @pytest.mark.parametrize("make", [keyword, hybrid, reranked])
    def test_each_is_read_in_one_state(self, world, make):
        """Each Document changes by itself: its part of an answer is complete and of one version."""
        with world.built(version=1) as odd, world.built(world.store, version=2) as even:

            def check(nodes):
                parts = [
                    [node for node in nodes if version_of([node]) % 2 == rest] for rest in (0, 1)
                ]
                return problem(parts[0]) or problem(parts[1])

            with writing(
                lambda number: (odd if number % 2 else even).add_texts(world.texts_of(number + 2))
            ):
                problems, seen = read_for(READ_S, [make([odd, even])], check)
        assert problems == []
        assert len(seen) > 1

    @pytest.mark.sample(2)
    @pytest.mark.parametrize("similarity", ["bm25", "bm25_chinese"])
    @pytest.mark.parametrize("filters", [None, {"kind": ["a", "b"]}], ids=["all", "filtered"])
    def test_four_of_them_rank_as_one(self, similarity, filters):
        """Uneven parts, one of them empty, one restricted to all it has, give the floats and the
        order of the whole.
        """
        words = "green tea leaf kettle spring 春天 绿茶".split()
        texts = {
            f"d{n:02}": " ".join(words[(n * k + k) % 7] for k in range(2, 3 + n % 9))
            for n in range(60)
        }
        metadata = {name: {"kind": "abc"[int(name[1:]) % 3]} for name in texts}

        def made(names):
            docs = Document(doc_fields={"kind": DocField(DataType.VARCHAR)})
            if names:
                docs.add_texts(
                    {name: texts[name] for name in names}, {name: metadata[name] for name in names}
                )
            return docs

        names = list(texts)
        parts = [made(names[:5]), made(names[5:40]), made(names[40:]), made([])]
        parts[1] = parts[1].restricted({"kind": ["a", "b", "c"]})
        one, four = (
            Retriever(some, "FineChunk", similarity, topk=40) for some in (made(names), parts)
        )
        for query in ("green tea", "春天 kettle", "绿茶", "leaf leaf spring"):
            expected = [(node.uid, node.path, node.score) for node in one(query, filters)]
            assert [(node.uid, node.path, node.score) for node in four(query, filters)] == expected
            assert expected


class TestScopes:
    """Restricted views of one Document in one retriever."""

    @pytest.fixture
    def library(self):
        """Three documents: one for staff, one for guests, one for both."""
        docs = Document(
            embed=len_and_one, doc_fields={"readers": DocField(DataType.ARRAY, DataType.VARCHAR)}
        )
        texts = {
            "staff": "green tea of staff",
            "guest": "green tea of guests",
            "both": "green tea of both",
        }
        docs.add_texts(
            texts,
            {name: {"readers": [name] if name != "both" else ["staff", "guest"]} for name in texts},
        )
        return docs

    def test_a_node_found_through_two_scopes_is_one_hit(self, library):
        """It gets the contributions of both retrievers; what one scope hides, the other one may
        show.
        """
        staff, guest = (library.restricted({"readers": name}) for name in ("staff", "guest"))
        retrievers = [Retriever(one, "FineChunk", "bm25", topk=9) for one in (staff, guest)]
        found = HybridRetriever(*retrievers, topk=9)("tea")
        expected = defaultdict(float)
        for retriever in retrievers:
            for rank, node in enumerate(retriever("tea"), start=1):
                expected[node.path] += 1 / (60 + rank)
        assert sorted(node.path for node in found) == ["both", "guest", "staff"]
        assert found[0].path == "both"
        assert [node.score for node in found] == sorted(expected.values(), reverse=True)
        assert {node.path: node.score for node in found} == pytest.approx(expected)

    def test_a_change_is_seen_by_both_scopes_or_by_none(self, library):
        """What is replaced between the retrievers of one query is found in one state."""
        staff, guest = (library.restricted({"readers": name}) for name in ("staff", "guest"))
        calls = []

        def change(query, filters=None, topk=None):
            if not calls:
                library.add_texts(
                    {"both": "green tea, replaced"}, {"both": {"readers": ["staff", "guest"]}}
                )
            calls.append(query)
            return []

        found = HybridRetriever(
            Retriever(staff, "FineChunk", "bm25"), change, Retriever(guest, "FineChunk", "bm25")
        )("tea")
        assert len([node for node in found if node.path == "both"]) == 1
        assert sorted(node.path for node in found) == ["both", "guest", "staff"]


def stages_of(stage):
    """A stage and all stages beneath it."""
    return [stage, *(one for inner in stage.inputs for one in stages_of(inner))]


class TestFollowers:
    """Programs that read what another one writes."""

    @pytest.mark.slow
    def test_the_next_answer_is_of_what_was_written(self, world):
        """Each version that another process has written is what every retriever of a follower
        answers from then on.
        """
        world.built(world.store).close()
        with (
            waiting(ON_COMMAND, world.root, world.store) as writer,
            world.open(world.store, read_only=True) as follower,
        ):
            retrievers = [make(follower) for make in RETRIEVERS]
            for version in (2, 3, 4):
                writer.stdin.write(f"{version}\n".encode())
                writer.stdin.flush()
                assert writer.stdout.readline() == b"written\n"
                for retrieve in retrievers:
                    nodes = retrieve("tea")
                    assert (problem(nodes), version_of(nodes)) == ("", version)


class TestNodesAfterTheRead:
    """What a node says when the state that it was read from is no more."""

    @pytest.fixture(params=["memory", "file"])
    def shop(self, request, folder, tmp_path):
        """Two files in blocks and lines."""
        location = folder({"a.txt": "green tea\nblack tea\n\nhot milk", "b.txt": "coffee"})
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
        docs = Document(
            location, embed=len_and_one, store_conf=conf if request.param == "file" else None
        )
        docs.create_node_group("block", transform=lambda text: text.split("\n\n"))
        docs.create_node_group("line", transform=str.splitlines, parent="block")
        docs.activate_group("line")
        with docs:
            yield docs

    def block(self, docs):
        """The first block, found by its lines."""
        return Retriever(docs, "line", "bm25", topk=1, target="block")("green")[0]

    def around(self, node):
        """What can be reached from a node."""
        return (
            node.parent.text,
            [one.text for one in node.children["line"]],
            node.source.text,
            node.root.text,
            node.location,
        )

    def test_after_other_files_changed(self, shop, folder):
        """Edits of other files, files that are added and deleted change nothing for it."""
        node = self.block(shop)
        expected = self.around(node)
        folder({"b.txt": "more coffee", "c.txt": "green cocoa"})
        shop.sync()
        shop.delete_files(["c.txt"])
        assert self.around(node) == expected

    def test_after_its_own_file_was_ingested_again(self, shop, folder):
        """An equal node in its place counts: the file was deleted, added again unchanged, or
        touched.
        """
        node = self.block(shop)
        expected = self.around(node)
        path = folder({}) / "a.txt"
        text = path.read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        shop.sync()
        assert self.around(node) == expected
        shop.delete_files(["a.txt"])
        with pytest.raises(StaleNodeError):
            _ = node.parent
        shop.add_files([str(path)])
        shop.activate_group("line")
        assert self.around(node) == expected

    @pytest.mark.sample(2)
    @pytest.mark.parametrize("way", ["parent", "root", "source", "children"])
    def test_after_an_edit(self, shop, folder, way):
        """Nothing of the new version is shown as if it belonged to the old node, which keeps its
        own text and score.
        """
        node = self.block(shop)
        text, score, metadata = node.text, node.score, dict(node.global_metadata)
        folder({"a.txt": "white tea\n\nhot milk"})
        shop.sync()
        with pytest.raises(StaleNodeError):
            getattr(node, way)
        assert (node.text, node.score, node.path) == (text, score, "a.txt")
        assert metadata["file_name"] == "a.txt"

    def test_after_close(self, shop):
        """What it holds itself stays; what would have to be read is refused, or still the same."""
        node = self.block(shop)
        text, score = node.text, node.score
        shop.close()
        assert (node.text, node.score, node.path, node.group) == (text, score, "a.txt", "block")
        assert repr(node)
        try:
            root = node.root.text
        except LazyRAGError:
            return
        assert text in root


class TestUsersFunctions:
    """Functions of users that are called in the middle of a read."""

    @pytest.mark.parametrize("batch", [False, True], ids=["one by one", "batch"])
    def test_a_similarity_that_climbs_sees_one_state(self, world, docs, batch):
        """While documents are replaced between its calls, a node's parent, siblings and root are of
        its version.
        """
        seen, calls = [], itertools.count(1)

        def look(query, node):
            number = next(calls)
            if number in {2, 5}:
                thread = threading.Thread(target=docs.add_texts, args=(world.texts_of(number),))
                thread.start()
                thread.join()
            around = [node.parent, node.root, *node.parent.children["line"]]
            seen.append({LINE.search(one.text)[2] for one in (node, *around)})
            return float(node.number)

        def look_at_all(query, nodes):
            return [(node, look(query, node)) for node in nodes]

        register_similarity(
            look_at_all if batch else look, mode="text", batch=batch, name="climbing"
        )
        nodes = Retriever(docs, "line", "climbing", topk=ALL)("tea")
        assert problem(nodes) == ""
        # Reads that were given up may have ended early, but no single look mixed two versions.
        assert {len(versions) for versions in seen} == {1}

    @pytest.mark.slow
    def test_a_similarity_beside_a_constant_writer(self, world, docs):
        """The same with a writer that never pauses: in the end a read is whole."""

        def look(query, nodes):
            return [
                (node, float(node.parent.text.count(LINE.search(node.text)[2]))) for node in nodes
            ]

        register_similarity(look, mode="text", batch=True, name="counting")
        retriever = Retriever(docs, "line", "counting", topk=ALL)

        def check(nodes):
            wrong = [node.text for node in nodes if node.score != float(LINE.search(node.text)[4])]
            return problem(nodes) or ", ".join(wrong)

        with writing(lambda version: docs.add_texts(world.texts_of(version))):
            problems, seen = read_for(READ_S, [retriever], check)
        assert problems == []
        assert len(seen) > 1


class Counting:
    """An embed callable that remembers the queries that it was called with."""

    identity = "counting"
    dimension = None
    max_tokens = None
    normalised = False

    def __init__(self):
        """None yet."""
        self.queries = []

    def embed(self, texts, input_type="document"):
        """A vector for each text."""
        if input_type == "query":
            self.queries += texts
        return [[1.0, float(len(text)), float(text.count("e"))] for text in texts]


class Replacing:
    """A retriever of nothing that replaces a document the first times that it is called, and counts
    its calls.
    """

    def __init__(self, docs, times=1):
        """Not called yet."""
        self.docs, self.times, self.calls = docs, times, 0

    def __call__(self, query, filters=None, topk=None):
        """Replace a document, so that rows are removed under the read."""
        self.calls += 1
        if self.calls <= self.times:
            self.docs.add_texts({"a": f"green tea {self.calls}"})
        return []


@pytest.fixture
def counting():
    """A new one."""
    return Counting()


@pytest.fixture
def counted(counting):
    """Two texts in memory, where what is replaced is removed at once, and everything built."""
    docs = Document(embed=counting)
    docs.add_texts({"a": "green tea", "b": "black tea"})
    HybridRetriever(Retriever(docs, "FineChunk", "bm25"), Retriever(docs, "FineChunk", "cosine"))(
        "warm"
    )
    counting.queries.clear()
    return docs


def test_a_read_is_repeated_where_rows_were_removed(counted):
    """A hybrid in memory is done again when a document is replaced under it; the answer is of the
    state after that.
    """
    replacing = Replacing(counted)
    found = HybridRetriever(Retriever(counted, "FineChunk", "bm25"), replacing)("tea")
    assert replacing.calls == 2
    assert sorted(node.text for node in found) == ["black tea", "green tea 1"]


@pytest.mark.parametrize("filters", [None, {"file_name": ["a", "b"]}], ids=["all", "filtered"])
def test_a_search_that_a_removal_made_short_is_repeated(counted, filters):
    """A store whose rows were removed before a vector search finds fewer without an error: that is
    no answer.
    """
    replacing = Replacing(counted)
    found = HybridRetriever(replacing, Retriever(counted, "FineChunk", "cosine"))("tea", filters)
    assert sorted(node.text for node in found) == ["black tea", "green tea 1"]
    assert replacing.calls == 2


def test_a_repeated_read_does_not_rewrite_the_query_again(counted):
    """A rewriting function, which most often is a chat model, is called once a call."""
    replacing, rewritten = Replacing(counted), []

    def rewrite(query):
        rewritten.append(query)
        return ["black tea"]

    found = MultiQueryRetriever(
        HybridRetriever(Retriever(counted, "FineChunk", "bm25"), replacing), rewrite
    )("tea")
    assert sorted(node.text for node in found) == ["black tea", "green tea 1"]
    assert replacing.calls > 2
    assert rewritten == ["tea"]


@pytest.mark.parametrize("ask", ["__call__", "trace", "explain"])
def test_a_hybrid_embeds_the_query_once(counted, counting, ask):
    """Two vector retrievers of one embed key share the query's vector, in answers, traces and
    explanations.
    """
    vectors = (
        Retriever(counted, "FineChunk", "cosine"),
        Retriever(counted, "FineChunk", "cosine", topk=1),
    )
    getattr(HybridRetriever(*vectors, Retriever(counted, "FineChunk", "bm25")), ask)("tea")
    assert counting.queries == ["tea"]


def test_a_repeated_read_does_not_embed_the_query_again(counted, counting):
    """The query's vector outlives the first try of a read."""
    replacing = Replacing(counted, times=2)
    HybridRetriever(Retriever(counted, "FineChunk", "cosine"), replacing)("tea")
    assert replacing.calls == 3
    assert counting.queries == ["tea"]


def test_a_repeated_search_by_a_users_similarity_does_not_embed_the_query_again(counted, counting):
    """The same for a Retriever by itself, whose similarity replaces a document."""
    replacing = Replacing(counted)

    def replace(query, nodes, **_):
        replacing("tea")
        return [(node, 1.0) for node in nodes]

    register_similarity(replace, mode="embedding", batch=True, name="replacing")
    found = Retriever(counted, "FineChunk", "replacing")("tea")
    assert sorted(node.text for node in found) == ["black tea", "green tea 1"]
    assert replacing.calls == 2
    assert counting.queries == ["tea"]


@pytest.mark.parametrize("where", ["memory", "file"])
def test_the_first_query_reads_once(tmp_path, where):
    """What a hybrid needs is built before its read begins, not found missing in the middle of
    it.
    """
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / "store.db")}}}
    counting = Counting()
    with Document(embed=counting, store_conf=conf if where == "file" else None) as docs:
        docs.add_texts({"a": "green tea", "b": "black tea"})
        replacing = Replacing(docs, times=0)
        words, vectors = (
            Retriever(docs, "FineChunk", "bm25"),
            Retriever(docs, "FineChunk", "cosine"),
        )
        chinese = Retriever(docs, "FineChunk", "bm25_chinese")
        assert len(HybridRetriever(replacing, words, chinese, vectors)("tea")) == 2
    assert replacing.calls == 1
    assert counting.queries == ["tea"]


@pytest.mark.sample(6)
@pytest.mark.parametrize("filters", [None, {"kind": "report"}], ids=["all", "filtered"])
@pytest.mark.parametrize(
    "options", [{}, {"variant": "okapi"}, {"similarity": "bm25_chinese"}], ids=str
)
def test_statistics_of_a_restricted_document_count_what_it_shows(filters, options):
    """Scores are those of a Document with the visible documents alone: nothing hidden can be
    inferred from them.
    """
    fields = {"readers": DocField(DataType.VARCHAR), "kind": DocField(DataType.VARCHAR)}
    words = "green tea leaf kettle spring 春天 绿茶".split()
    texts = {
        f"d{n:02}": " ".join(words[(n * k + k) % 7] for k in range(2, 3 + n % 9)) for n in range(60)
    }
    metadata = {
        name: {"readers": "staff" if at % 3 else "guest", "kind": "report" if at % 2 else "note"}
        for at, name in enumerate(texts)
    }
    visible = [name for name in texts if metadata[name]["readers"] == "guest"]
    every, alone = Document(doc_fields=fields), Document(doc_fields=fields)
    every.add_texts(texts, metadata)
    alone.add_texts(
        {name: texts[name] for name in visible}, {name: metadata[name] for name in visible}
    )
    restricted = every.restricted({"readers": "guest"})
    given = {"similarity": "bm25", "topk": 40, **options}
    ours, theirs = (Retriever(docs, "FineChunk", **given) for docs in (restricted, alone))
    for query in ("green tea", "kettle 春天", "绿茶 leaf"):
        expected = [(node.uid, node.score) for node in theirs(query, filters)]
        assert expected
        assert [(node.uid, node.score) for node in ours(query, filters)] == expected


def test_statistics_of_a_restricted_document_beside_another_one():
    """In a union, too, a restricted Document adds what it shows, and nothing else."""
    field = {"readers": DocField(DataType.VARCHAR)}
    hidden, shown = Document(doc_fields=field), Document(doc_fields=field)
    hidden.add_texts(
        {f"h{n}": "green tea" for n in range(20)},
        {f"h{n}": {"readers": "staff"} for n in range(20)},
    )
    for docs in (hidden, shown):
        docs.add_texts(
            {"a": "green leaf", "b": "tea"}, {"a": {"readers": "guest"}, "b": {"readers": "guest"}}
        )
    other = Document()
    other.add_texts({"c": "green kettle", "d": "black tea tea"})
    ours, theirs = (
        Retriever([one, other], "FineChunk", "bm25", topk=9)("green tea")
        for one in (hidden.restricted({"readers": "guest"}), shown)
    )
    assert [(node.uid, node.score) for node in ours] == [(node.uid, node.score) for node in theirs]
    assert len(theirs) == 4


class TestReadsInsideReads:
    """A user's function that reads in the middle of a search joins it."""

    @pytest.mark.parametrize("inner", ["parent", "merge", "retriever"])
    def test_what_is_added_meanwhile_repeats_nothing(self, inner):
        """The state is still there, and holds all that the inner read needs."""
        docs = Document()
        docs.create_node_group("line", transform=str.splitlines)
        docs.add_texts({"a": "green tea\nblack tea", "b": "white tea"})
        words = Retriever(docs, "line", "bm25")
        words("tea")
        calls = []

        def function(query, filters=None, topk=None):
            calls.append(query)
            docs.add_texts({f"new {len(calls)}": "iced tea"})
            hits = words(query)
            if inner == "parent":
                assert hits[0].parent.group == "lazyllm_root"
            elif inner == "merge":
                AutoMerge()(hits)
            return hits

        found = HybridRetriever(function, words)("tea")
        assert calls == ["tea"]
        assert {node.path for node in found} == {"a", "b"}

    def test_errors_name_no_more_than_can_be_seen(self):
        """A restricted Document that is read inside a read of the whole one hides the names of
        files.
        """
        docs = Document(doc_fields={"readers": DocField(DataType.VARCHAR)})
        docs.create_node_group("line", transform=str.splitlines)

        def broken(text):
            raise ValueError(text)

        docs.create_node_group("broken", transform=broken)
        docs.add_texts({"secret": "green tea"}, {"secret": {"readers": "staff"}})
        guest = docs.restricted({"readers": "guest"})

        def function(query, filters=None, topk=None):
            return Retriever(guest, "broken", "bm25")(query)

        both = HybridRetriever(function, Retriever(docs, "line", "bm25"))
        # nothing that the guest sees has failed
        assert [node.path for node in both("tea")] == ["secret"]
        with pytest.warns(IngestionWarning):
            docs.add_texts({"open": "black tea"}, {"open": {"readers": "guest"}})
        with pytest.raises(IngestionError) as info:
            both("tea")
        assert "secret" not in str(info.value)
        assert "green" not in str(info.value)

    def test_a_callable_may_have_any_attributes(self):
        """What it calls its own sources is its own affair."""
        docs = Document()
        docs.add_texts({"a": "green tea"})

        def function(query, filters=None, topk=None):
            return docs.get_nodes("FineChunk")

        function.sources = ["a.txt"]
        assert len(HybridRetriever(function, Retriever(docs, "FineChunk", "bm25"))("tea")) == 1


class TestSubclasses:
    """A retriever of a class that overrides ``__call__`` is asked by a call."""

    def test_in_hybrids_and_feedback(self):
        """It is called, with its query moved where that is asked for; a trace shows what it
        gave.
        """
        docs = Document(embed=lambda text: [float(len(text)), 1.0])
        docs.add_texts({"a": "green tea", "b": "black coffee", "c": "tea"})
        calls = []

        class Counted(Retriever):
            def __call__(self, query, filters=None, topk=None):
                calls.append(0 if self._feedback is None else len(self._feedback[0]))
                return super().__call__(query, filters, topk)[:1]

        counted = Counted(docs, "FineChunk")
        assert (
            len(HybridRetriever(counted)("tea"))
            == len(HybridRetriever(counted).trace("tea").nodes)
            == 1
        )
        calls.clear()
        FeedbackRetriever(counted, nodes=1)("tea")
        assert calls == [0, 1]


class TestFilters:
    """Filters are read once, before anything else is done."""

    def test_an_iterator_is_read_once(self):
        """However many Documents and retrievers ask for it."""
        one, other = Document(), Document()
        one.add_texts({"a": "green tea", "b": "black tea"})
        other.add_texts({"a": "iced tea", "c": "white tea"})
        words, chinese = (
            Retriever([one, other], "FineChunk", name) for name in ("bm25", "bm25_chinese")
        )
        for retriever in (words, HybridRetriever(words, chinese)):
            found = retriever("tea", filters={"file_name": (name for name in ["a", "c"])})
            assert sorted(node.text for node in found) == ["green tea", "iced tea", "white tea"]

    def test_a_wrong_one_costs_no_call_of_a_model(self):
        """It is refused before the query is embedded or rewritten, also for a blank query."""
        embed = Counting()
        docs = Document(embed=embed)
        docs.add_texts({"a": "green tea"})
        vectors = Retriever(docs, "FineChunk")
        hybrid = HybridRetriever(vectors, Retriever(docs, "FineChunk", "bm25"))
        rewritten = []
        retrievers = [
            vectors,
            hybrid,
            MultiQueryRetriever(hybrid, lambda query: rewritten.append(query) or []),
            FeedbackRetriever(hybrid),
            RetrievalChain(hybrid, AutoMerge()),
        ]
        for retriever in retrievers:
            for query in ("tea", ""):
                with pytest.raises(ConfigError, match="unknown"):
                    retriever(query, filters={"unknown": [1]})
        assert (embed.queries, rewritten) == ([], [])


def test_a_trace_that_is_kept_holds_no_state():
    """Why a node is missing is said during the call."""
    docs = Document()
    docs.add_texts({"a": "green tea", "b": "coffee"})
    words = Retriever(docs, "FineChunk", "bm25")
    stage = words.trace("tea")
    [coffee] = [node for node in docs.get_nodes("FineChunk") if node.path == "b"]
    with pytest.raises(StaleNodeError):
        stage.why(coffee.uid)
    assert words.why_not(coffee.uid, "tea").cause == "terms"


@pytest.fixture
def roots_read(monkeypatch: pytest.MonkeyPatch):
    """The keys of the root nodes that a store in memory has read."""
    keys_read: list[str] = []
    get = MapSegmentStore.get

    def noted(self, collection, keys):
        segments = get(self, collection, keys)
        keys_read.extend(node.key for node in segments if node.group == LAZY_ROOT_NAME)
        return segments

    monkeypatch.setattr(MapSegmentStore, "get", noted)
    return keys_read


def test_hits_share_the_root_of_their_document(roots_read):
    """It is read once for the locations of the hits in use, and again when they are gone: it is not
    held without them.
    """
    docs = Document()
    docs.create_node_group("line", transform=str.splitlines)
    docs.add_texts({"tea": "green tea\n" * 30})
    retriever = Retriever(docs, "line", similarity="bm25", topk=20)
    hits = retriever("green")
    roots_read.clear()
    assert len({hit.location for hit in hits}) == 20
    assert {hit.root.path for hit in hits} == {"tea"}
    assert len(roots_read) == 1
    others = retriever("tea")
    assert all(hit.location for hit in [*others, *hits])
    assert len(roots_read) == 1
    del hits, others
    assert all(hit.location for hit in retriever("tea"))
    assert len(roots_read) == 2


def test_a_shared_root_is_not_shown_after_its_document_has_changed():
    """Hits of the version before are stale, those of a new search have its locations."""
    docs = Document()
    docs.add_texts({"tea": "Green\n\ntea."})
    [hit] = docs.search("tea")
    assert hit.location == "lines 1-3"
    docs.add_texts({"tea": "Black\n\n\ntea."})
    with pytest.raises(StaleNodeError):
        _ = hit.location
    [hit] = docs.search("tea")
    assert hit.location == "lines 1-4"
