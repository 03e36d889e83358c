"""A restricted Document answers as a Document that holds only what it may see: to the last float,
name and message.

A world is a Document with a history and a second one, the oracle, that never held what a scope
hides. In half of the worlds lines carry labels of their own: then the oracle holds the documents
with a visible node, with other letters in hidden lines, and is restricted in the same way. All
10,000 cases, for minutes:

    LAZYRAG_CASES=10000 python -m pytest -q tests/unit/read/test_restricted_equals.py
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from lazyrag import (
    CitationManager,
    Condition,
    ContextBuilder,
    DataType,
    DocField,
    DocNode,
    Document,
    Hit,
    HybridRetriever,
    Reranker,
    RetrievalChain,
    Retriever,
    register_similarity,
)
from lazyrag.errors import ConfigError, IngestionError, IngestionWarning, LazyRAGError
from lazyrag.groups.node_group import Step
from lazyrag.read import nodes, snapshot
from lazyrag.retrieval import (
    MMR,
    AutoMerge,
    FeedbackRetriever,
    MultiQueryRetriever,
    ScoreThreshold,
    Windows,
)
from lazyrag.retrieval.base import hits_of
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.protocol import vector_stores

CASES = int(os.environ.get("LAZYRAG_CASES", "40"))
PER_WORLD = min(50, max(20, CASES // 200))
WORLDS = -(-CASES // PER_WORLD)

WORDS = "green black tea spring leaf water 绿茶 春天 the oolong pan pans steam and 茶".split()
LABELS = ("guest", "staff", "board")
FIELDS = {"label": DocField(DataType.VARCHAR), "year": DocField(DataType.INT32)}
GROUPS = ("lazyllm_root", "line", "part", "FineChunk", "image", "table")


def dense(text: str) -> list[float]:
    """A vector for a text."""
    return [text.count(one) + 0.1 for one in "aegt茶"]


def sparse(text: str) -> dict[int, float]:
    """Weights by letter."""
    return {ord(one) % 13: 0.5 + text.count(one) for one in text if one in "aeg茶绿"}


EMBED = {"dense": dense, "sparse": sparse}


def lines(node: DocNode) -> Iterator[DocNode]:
    """Lines; one that begins with a label in brackets carries it."""
    start = 0
    for line in node.text.splitlines(keepends=True):
        label = next((one for one in LABELS if line.startswith(f"[{one}]")), None)
        text = line.rstrip()
        yield DocNode(
            text=text, metadata={"label": label} if label else {}, span=(start, start + len(text))
        )
        start += len(line)


def parts(text: str) -> list[str]:
    """Stretches of three words."""
    words = text.split()
    return [" ".join(words[at : at + 3]) for at in range(0, len(words), 3)]


def make_document(name: str) -> Document:
    """A Document without documents."""
    docs = Document(embed=EMBED, doc_fields=FIELDS, name=name)
    docs.create_node_group("line", transform=lines, trans_node=True)
    docs.create_node_group("part", transform=parts, parent="line")
    return docs


def built(docs: Document) -> Document:
    """The Document with all groups and the vectors of lines: which are built, is no secret."""
    for group in GROUPS:
        docs.activate_group(group)
    Retriever(docs, "line").build()
    return docs


@dataclass
class World:
    """Documents of one seed.

    Args:
        docs: With a history of additions, changes and deletions.
        texts: What is in it.
        metadata: Of each text.
        has_labels: Whether lines carry labels.
    """

    docs: Document
    texts: dict[str, str]
    metadata: dict[str, dict[str, Any]]
    has_labels: bool

    @classmethod
    def drawn(cls, draw: random.Random) -> World:
        """Draw a world."""
        has_labels = draw.random() < 0.5
        docs = make_document("every")
        texts: dict[str, str] = {}
        metadata: dict[str, dict[str, Any]] = {}
        for _ in range(draw.randint(1, 3)):
            some = {
                f"{draw.randint(1, 12):02}.txt": some_text(draw, has_labels)
                for _ in range(draw.randint(1, 5))
            }
            given = {
                name: {
                    "label": draw.choice(LABELS),
                    "title": draw.choice(WORDS),
                    "year": draw.randint(2000, 2003),
                }
                for name in some
            }
            docs.add_texts(some, metadata=given)
            texts, metadata = texts | some, metadata | given
            for group in draw.sample(GROUPS, 2):
                docs.activate_group(group)
        for name in draw.sample(sorted(texts), draw.randint(0, len(texts) // 3)):
            if draw.random() < 0.5:
                docs.delete_files([name])
                del texts[name], metadata[name]
            else:
                changed = {"label": draw.choice(LABELS)}
                docs.update_metadata({name: changed})
                metadata[name] |= changed
        return cls(built(docs), texts, metadata, has_labels)

    def pair(
        self, scope: Condition, sees: Callable[[str], bool], draw: random.Random
    ) -> tuple[Document, Document]:
        """The restricted Document and its oracle."""
        alone = make_document("alone")
        texts: dict[str, str] = {}
        every: dict[str, dict[str, Any]] = {}
        for name in draw.sample(sorted(self.texts), len(self.texts)):
            text, metadata = self.texts[name], dict(self.metadata[name])
            rows = text.split("\n")
            if not sees(metadata["label"]):
                visible = [
                    any(row.startswith(f"[{one}]") and sees(one) for one in LABELS) for row in rows
                ]
                if not any(visible):
                    continue
                rows = [
                    row if seen else hidden(row) for row, seen in zip(rows, visible, strict=True)
                ]
                metadata |= {"title": "other"}
            texts[name], every[name] = "\n".join(rows), metadata
        alone.add_texts(texts, metadata=every)
        built(alone)
        return self.docs.restricted(scope), alone.restricted(scope) if self.has_labels else alone


def some_text(draw: random.Random, has_labels: bool) -> str:
    """Some lines."""

    def line() -> str:
        label = f"[{draw.choice(LABELS)}] " if has_labels and draw.random() < 0.5 else ""
        return label + " ".join(draw.choices(WORDS, k=draw.randint(1, 8)))

    rows = [line() for _ in range(draw.randint(1, 5))]
    if draw.random() < 0.5:
        rows += [
            "| tea | kg |",
            "|---|---|",
            *(f"| {draw.choice(WORDS)} | {draw.randint(1, 9)} |" for _ in range(2)),
        ]
    return "\n".join(rows)


def hidden(row: str) -> str:
    """A line of other words with the same label."""
    label, bracket, rest = row.partition("] ")
    return label + bracket + veil(rest) if bracket else veil(row)


def veil(text: str) -> str:
    """As many words of other letters, of the same size in bytes."""
    return "".join(one if one.isspace() else "q" if one.isascii() else "页" for one in text)


def overlap(query: str, documents: list[str], top_n: int) -> list[tuple[int, float]]:
    """A rerank model."""
    words = set(query.split())
    return [(at, float(len(words & set(text.split())))) for at, text in enumerate(documents)]


def all_words(query: str, nodes: list[DocNode]) -> list[tuple[DocNode, float]]:
    """A similarity that looks at all the nodes that it gets."""
    mean = sum(len(node.text) for node in nodes) / len(nodes)
    return [(node, len(set(query) & set(node.text)) / mean) for node in nodes]


def by_words(docs: Document, group: str = "line", **more: Any) -> Any:
    """Keyword search."""
    return Retriever(docs, group, "bm25", **{"topk": 4, **more})


def by_meaning(docs: Document, group: str = "line", **more: Any) -> Any:
    """Vector search."""
    return Retriever(docs, group, **{"topk": 4, "embed_keys": ["dense"], **more})


def hybrid(docs: Document, **more: Any) -> Any:
    """Both."""
    return HybridRetriever(
        by_meaning(docs), by_words(docs, similarity_cut_off=0.01), **{"topk": 4, **more}
    )


def rewritten(query: str) -> list[str]:
    """Other queries for a query."""
    return [query[: len(query) // 2], " ".join(reversed(query.split()))]


RETRIEVERS: dict[str, Callable[[Document], Any]] = {
    "bm25": by_words,
    "bm25 okapi": partial(by_words, variant="okapi", k1=1.2),
    "bm25 parts": partial(by_words, group="part", target="line"),
    "bm25 up": partial(by_words, target="lazyllm_root", topk=2),
    "bm25 chunks": partial(by_words, group="FineChunk", topk=1),
    "bm25 roots": partial(by_words, group="lazyllm_root"),
    "bm25_chinese": lambda docs: Retriever(docs, "line", "bm25_chinese", topk=5),
    "cosine": by_meaning,
    "cosine cut off": partial(by_meaning, similarity="cosine", similarity_cut_off=0.8),
    "sparse": partial(by_meaning, embed_keys=["sparse"]),
    "sparse as dense": partial(by_meaning, embed_keys=["sparse"], similarity="cosine"),
    "all keys": lambda docs: Retriever(docs, "line", topk=4),
    "own function": lambda docs: Retriever(docs, "line", "all_words", topk=3),
    "rrf": hybrid,
    "weighted": partial(hybrid, fusion_method="weighted", weights=[0.6, 0.4]),
    "weighted max": partial(hybrid, fusion_method="weighted", normalise="max"),
    "comb_max": partial(hybrid, fusion_method="comb_max"),
    "comb_mnz": partial(hybrid, fusion_method="comb_mnz", dedupe="text"),
    "queries": lambda docs: MultiQueryRetriever(hybrid(docs), rewritten, topk=4),
    "feedback": lambda docs: FeedbackRetriever(by_meaning(docs)),
    "feedback hybrid": lambda docs: FeedbackRetriever(hybrid(docs), nodes=1),
    "over": lambda docs: RetrievalChain.over(docs, "line", topk=3, embed_keys=["dense"]),
    "MMR": lambda docs: RetrievalChain(
        by_meaning(docs, topk=8), MMR(lam=0.5, embed_key="dense", topk=3)
    ),
    "AutoMerge": lambda docs: RetrievalChain(
        by_words(docs, group="part", topk=8), AutoMerge(ratio=0.4)
    ),
    "Windows": lambda docs: RetrievalChain(by_words(docs), Windows(before=1, after=1)),
    "Windows apart": lambda docs: RetrievalChain(by_meaning(docs), Windows(1, 0, merge=False)),
    "threshold": lambda docs: RetrievalChain(by_words(docs), ScoreThreshold(of_best=0.6)),
    "reranker": lambda docs: RetrievalChain(
        hybrid(docs), Reranker("ModuleReranker", model=overlap), topk=3
    ),
    "BM25Reranker": lambda docs: RetrievalChain(by_meaning(docs), Reranker("BM25Reranker", topk=3)),
}

FILTERS = (
    None,
    None,
    {"label": ["guest", "board"]},
    {"year": 2001},
    Condition("year", ">=", 2002) | Condition("label", "eq", "staff"),
    ~Condition("label", "in", ["guest"]),
)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or type and text of its error."""
    try:
        return call()
    except LazyRAGError as exc:
        return type(exc).__name__, str(exc)


def shape(node: DocNode | None) -> Any:
    """Its own part of a node."""
    if node is None:
        return None
    own = (
        node.uid,
        node.score,
        node.group,
        node.path,
        node.number,
        node.text,
        node.span,
        node.merged_from,
    )
    return own, dict(node.metadata)


def surroundings(node: DocNode) -> Any:
    """All that a node leads to."""
    return (
        shape(node),
        {key: str(value) for key, value in node.embeddings.items()},
        outcome(lambda: dict(node.global_metadata)),
        outcome(lambda: (node.location, node.locations)),
        outcome(lambda: shape(node.parent)),
        outcome(lambda: shape(node.root)),
        outcome(lambda: shape(node.source)),
        outcome(lambda: {name: [*map(shape, some)] for name, some in node.children.items()}),
        # nan does not equal itself
        outcome(lambda: json.dumps(Hit.from_node(node).to_dict(), sort_keys=True)),
    )


def without_times(value: Any) -> Any:
    """A record without durations."""
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key != "seconds"}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def answers(
    docs: Document, make: Callable[[Document], Any], query: str, filters: Any, uids: list[str]
) -> Any:
    """All that a retriever says to a query."""
    retriever = make(docs)
    nodes = outcome(lambda: retriever(query, filters=filters))
    if isinstance(nodes, tuple):
        return nodes
    hits = hits_of(nodes)
    context = ContextBuilder().build(query, hits, 160)
    text = " ".join(f"It is so [{number}]." for number in range(1, len(hits) + 2))
    whole = [node for node in nodes if not node.merged_from]
    return (
        docs.reader.read(lambda _: [*map(surroundings, nodes[:3])]),
        [*map(shape, nodes)],
        outcome(lambda: without_times(retriever.explain(query, filters=filters).to_dict())),
        [
            outcome(lambda uid=uid: retriever.why_not(uid, query, filters=filters).to_dict())
            for uid in uids
        ],
        (context.context, context.total_tokens, [hit.id for hit in context.sources]),
        CitationManager().format_citations(hits),
        CitationManager().resolve(text, hits),
        outcome(lambda: [*map(shape, docs.window(whole, 1, 2))]),
        outcome(lambda: [*map(shape, docs.window(whole, 1, 1, merge=True))]),
        docs.reader.read(lambda _: [[*map(shape, docs.find(target)(whole))] for target in GROUPS]),
    )


def tables(docs: Document) -> Any:
    """Its tables, and what SQL says of them and of tables that are hidden or unknown."""
    listed = docs.tables.list()
    names = [*dict.fromkeys([*(one.name for one in listed[:2]), "_01", "_07"])]
    queries = ["SELECT * FROM {}", "SELECT tea, sum(kg) AS kg FROM {} GROUP BY tea ORDER BY ALL"]
    results = [
        outcome(lambda sql=sql: docs.tables.sql(sql))
        for name in names
        for sql in (one.format(name) for one in queries)
    ]
    return listed, [
        [(row, row.locations) for row in one] if isinstance(one, list) else one for one in results
    ]


def inventory(docs: Document) -> Any:
    """What a Document holds."""
    return tables(docs), [
        (
            docs.reader.read(lambda _, group=group: [*map(surroundings, docs.get_nodes(group))]),
            [*map(shape, docs.get_nodes(group, limit=3, offset=1))],
            [*map(shape, docs.get_nodes(group, numbers=[2], filters={"year": [2001, 2002]}))],
        )
        for group in GROUPS
    ]


def drawn_scope(draw: random.Random) -> tuple[Condition, Callable[[str], bool]]:
    """A scope, and whether it shows a label."""
    some = draw.sample(LABELS, draw.randint(0, 2))
    if draw.random() < 0.5:
        return Condition("label", "in", some), lambda label: label in some
    return Condition("label", "not in", some), lambda label: label not in some


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(WORLDS))
def test_it_equals_a_document_of_what_may_be_seen(seed, monkeypatch):
    """Hits, scores, order, neighbours, explanations, contexts, citations and errors do not depend
    on hidden nodes.
    """
    register_similarity(all_words, batch=True, replace=True)
    draw = random.Random(seed)
    if draw.random() < 0.5:  # so that a group has several pages
        monkeypatch.setattr(nodes, "PAGE", 4)
        monkeypatch.setattr(snapshot, "PAGE", 4)
    world = World.drawn(draw)
    scopes = [drawn_scope(draw) for _ in range(2)]
    for scope, sees in scopes:
        view, alone = world.pair(scope, sees, draw)
        assert inventory(view) == inventory(alone), scope
        every = [node.uid for group in GROUPS for node in world.docs.get_nodes(group)] or [""]
        for _ in range(PER_WORLD // len(scopes)):
            name, make = draw.choice([*RETRIEVERS.items()])
            query, filters = (
                " ".join(draw.choices(WORDS, k=draw.randint(1, 4))),
                draw.choice(FILTERS),
            )
            uids = [*draw.choices(every, k=3), "unknown"]
            ours, theirs = (answers(docs, make, query, filters, uids) for docs in (view, alone))
            assert ours == theirs, (name, scope, query, filters)


@pytest.fixture
def labelled():
    """A Document with one hidden document, near to which no other is, and three visible ones."""
    docs = make_document("labelled")
    texts = {"a": "green tea", "b": "black tea leaf", "c": "oolong pan", "z": "tea tea tea the tea"}
    docs.add_texts(
        texts, metadata={name: {"label": "board" if name == "z" else "guest"} for name in texts}
    )
    return docs


def test_vectors_are_filtered_inside_the_search(labelled):
    """topk hits are found though hidden rows are nearer, and no hidden row is among the keys."""
    reader = labelled.restricted({"label": "guest"}).reader
    query = np.array(dense("tea tea tea the tea"), np.float32)
    needs = frozenset([Step("line"), Step("line", embed_key="dense")])

    def ranked(filters: Any) -> Any:
        return lambda snapshot: snapshot.rank_vectors("line", "dense", [query], 3, filters)

    visible = {node.uid for node in labelled.get_nodes("line") if node.path != "z"}
    for filters in (None, Condition("label", "ne", "staff")):
        hits = reader.read(ranked(filters), needs)
        assert {uid for (uid, *_), _ in hits} == visible, filters


def test_indexes_that_depend_on_hidden_rows_are_refused(labelled):
    """The error names the index and the way out; the Document itself takes them."""
    view = labelled.restricted({"label": "guest"})
    for index, similarity in (("ann", None), ("smart_embedding_index", None), ("server", "bm25")):
        assert Retriever(labelled, "line", similarity, index=index)
        with pytest.raises(ConfigError, match=f"{index}.*index='exact'.*'shared'"):
            Retriever(view, "line", similarity, index=index)


class Graph(MapVectorStore):
    """A store whose search is approximate in large collections."""

    features = frozenset(["exact when small"])
    exact_rows = 3


def test_approximate_stores_are_refused():
    """Where hidden rows decide what an approximate search finds, a restricted Document does not ask
    it.
    """
    with vector_stores.isolated():
        vector_stores.register("graph", Graph)
        docs = Document(
            embed=dense, doc_fields=FIELDS, store_conf={"vector_store": {"type": "graph"}}
        )
    docs.add_texts(
        {name: f"tea {name}" for name in "abc"},
        metadata={name: {"label": "guest"} for name in "abc"},
    )
    ask = Retriever(docs.restricted({"label": "guest"}), "FineChunk")
    assert len(ask("tea")) == 3
    docs.add_texts({"d": "tea d"}, metadata={"d": {"label": "board"}})
    with pytest.raises(ConfigError, match="exact"):
        ask("tea")
    assert len(Retriever(docs, "FineChunk")("tea")) == 4


def test_a_step_that_fails_for_hidden_files_alone():
    """Failures are counted over the scope: what fails out of sight raises nothing, what fails in
    sight does.
    """

    def picky(text: str) -> str:
        if "tea" in text:
            raise ValueError(text)
        return text

    docs = make_document("picky")
    docs.create_node_group("picky", transform=picky)
    labels = {"a": {"label": "guest"}, "b": {"label": "board"}, "c": {"label": "staff"}}
    docs.add_texts({"a": "tea", "b": "coffee", "c": "water"}, metadata=labels)
    with pytest.warns(IngestionWarning, match="picky"):
        docs.activate_group("picky")
    with pytest.raises(IngestionError, match="Every file") as info:
        docs.restricted({"label": "guest"}).get_nodes("picky")
    assert "'a'" not in str(info.value)
    assert len(docs.restricted({"label": ["guest", "board"]}).get_nodes("picky")) == 1
    assert docs.restricted({"label": "nobody"}).get_nodes("picky") == []


def test_embedding_that_fails_for_all_visible_files():
    """It raises, as in a Document that holds only these files: no hits would say that nothing
    matches.
    """

    def picky(text: str) -> list[float]:
        if "tea" in text:
            raise ValueError(text)
        return dense(text)

    def make(texts: dict[str, str]) -> Document:
        docs = Document(embed=picky, doc_fields=FIELDS)
        docs.add_texts(
            texts, metadata={name: {"label": "board" if name == "c" else "guest"} for name in texts}
        )
        return docs

    docs = make({"a": "green tea", "b": "black tea", "c": "coffee"})
    with pytest.warns(IngestionWarning, match="2 of 3 files failed to embed"):
        assert len(Retriever(docs, "FineChunk")("water")) == 1
    for failing in (
        make({"a": "green tea", "b": "black tea"}),
        docs.restricted({"label": "guest"}),
    ):
        with pytest.raises(IngestionError, match=r"files? failed"):
            Retriever(failing, "FineChunk")("water")
    assert len(Retriever(docs.restricted({"label": ["guest", "board"]}), "FineChunk")("water")) == 1


def test_a_moved_file_does_not_tell_its_old_path(folder):
    """The old path may be out of scope: to a restricted Document the file is added."""
    root = folder({"secret/a.txt": "green tea"})
    docs = Document(root)
    view = docs.restricted({"file_type": ".txt"})
    assert len(view.get_nodes()) == 1
    (root / "secret" / "a.txt").rename(root / "b.txt")
    assert docs.sync().moved == (("secret/a.txt", "b.txt"),)
    assert (view.last_report.moved, view.last_report.added) == ((), ("b.txt",))


def test_hidden_and_deleted_nodes_give_one_error(labelled):
    """Nobody learns whether a node is hidden or gone."""
    view = labelled.restricted({"label": "guest"})
    [node] = labelled.get_nodes("line", filters={"label": "board"})
    hidden_error = outcome(lambda: view.window(node))
    labelled.delete_files(["z"])
    assert hidden_error == outcome(lambda: view.window(node))
    assert hidden_error[0] == "StaleNodeError"


def test_a_visible_node_shows_nothing_of_a_hidden_root():
    """Neither metadata nor headings of a hidden document; the fields that a node inherited are its
    own.
    """
    docs = make_document("headed")
    docs.add_texts(
        {"a": "[guest] tea\n,,\n[guest] cup"}, metadata={"a": {"label": "board", "title": "Merger"}}
    )
    for node in docs.restricted({"label": "guest"}).get_nodes("line"):
        assert (dict(node.global_metadata), node.location, node.locations, node.source) == (
            {},
            "",
            (),
            None,
        )
        assert Hit.from_node(node).to_dict()["metadata"] == {"label": "guest"}
    assert docs.get_nodes("line")[0].global_metadata["title"] == "Merger"


def test_merged_windows_take_nothing_from_a_hidden_document():
    """Signs between two visible nodes are the document's: they are shown where it is."""

    def pieces(node: DocNode) -> Iterator[DocNode]:
        yield from (
            DocNode(text=node.text[at : at + 3], span=(at, at + 3), metadata={"label": "guest"})
            for at in (0, 6)
        )

    docs = Document(doc_fields=FIELDS)
    docs.create_node_group("piece", transform=pieces, trans_node=True)
    docs.add_texts({"a": "tea!?!cup"}, metadata={"a": {"label": "board"}})
    assert docs.window(docs.get_nodes("piece")[0], merge=True).text == "tea!?!cup"
    view = docs.restricted({"label": "guest"})
    merged = view.window(view.get_nodes("piece")[0], merge=True)
    assert (merged.text, merged.span) == ("tea\ncup", None)


def test_hidden_nodes_decide_nothing_about_pages(monkeypatch):
    """A function of all nodes gets them in pages, whose borders depend on visible documents
    alone.
    """
    monkeypatch.setattr(nodes, "PAGE", 4)
    monkeypatch.setattr(snapshot, "PAGE", 4)
    pages: list[list[str]] = []

    def look(query: str, given: list[DocNode]) -> list[tuple[DocNode, float]]:
        pages.append([node.path for node in given])
        return []

    register_similarity(look, batch=True, replace=True)
    docs = make_document("pages")
    names = "abcdefgh"
    docs.add_texts(
        dict.fromkeys(names, "tea\ncup"), metadata={name: {"label": name} for name in names}
    )
    Retriever(docs.restricted({"label": [*"bdfgh"]}), "line", "look")(
        "tea", filters=Condition("label", "ne", "g")
    )
    assert pages == [["b", "b", "d", "d"], ["f", "f"], ["h", "h"]]
