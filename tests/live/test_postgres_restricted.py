"""Restricted Documents in PostgreSQL: the database ranks, and no hidden row influences a score."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lazyrag import DataType, DocField, Document, Retriever
from lazyrag.errors import ConfigError, UnsupportedError
from tests.live.conftest import address_of
from tests.postgres_stores import url_of

WORDS = "green black tea spring leaf water 绿茶 春天 the oolong pan steam and 茶".split()
LABELS = ("guest", "staff", "board")
GUEST = {"label": "guest"}


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of arrays lie in a folder of the test."""
    address_of("LAZYRAG_POSTGRES")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def opened(place: Path, **conf: Any) -> Document:
    """A Document of lines with a label and a year."""
    stores = {"segment_store": {"type": "map", "kwargs": {"uri": url_of(place)}}, **conf}
    fields = {"label": DocField(DataType.VARCHAR), "year": DocField(DataType.INT32)}
    docs = Document(name="teas", store_conf=stores, doc_fields=fields)
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def scores(docs: Any, query: str, index: str = "default", **options: Any) -> dict[str, float]:
    """Scores by uid, best first."""
    retriever = Retriever(docs, "line", "bm25_chinese", index=index, topk=50)
    return {hit.uid: hit.score for hit in retriever(query, **options)}


def engine(docs: Any) -> object:
    """What ranked a search."""
    return Retriever(docs, "line", "bm25").trace("tea").settings.get("ranked by")


def drop_terms(docs: Document) -> None:
    """Leave the store as earlier releases wrote it."""
    with docs.reader.indexer.ledger.file.writing() as connection:
        query = "SELECT name FROM sqlite_master WHERE name LIKE 'terms%'"
        for (name,) in connection.execute(query).fetchall():
            connection.execute(f'DROP TABLE "{name}"')


def text_of(draw: random.Random) -> str:
    """Some lines."""
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(4)]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_a_view_ranks_as_a_document_of_what_it_shows(seed: int, tmp_path: Path) -> None:
    """After additions, updates, moves to another label and deletions: to the last digit of another
    store that never held the rest, and as our own ranking of the visible nodes.
    """
    draw = random.Random(seed)
    texts: dict[str, tuple[str, dict[str, Any]]] = {}
    with opened(tmp_path / "all") as docs, opened(tmp_path / "visible") as alone:
        for _ in range(30):
            name = f"d{draw.randint(0, 9)}"
            if name in texts and draw.random() < 0.3:
                del texts[name]
                docs.delete_files([name])
                continue
            fields = {"label": draw.choice(LABELS), "year": draw.randint(0, 2)}
            texts[name] = text_of(draw), fields
            docs.add_texts({name: texts[name][0]}, {name: fields})
        for name, (text, fields) in texts.items():
            if fields["label"] == "guest":
                alone.add_texts({name: text}, {name: fields})
        view = docs.restricted(GUEST)
        assert engine(view) == "PostgresSegmentStore"
        for _ in range(8):
            query = " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))
            filters = draw.choice([None, {"year": [0, 1]}])
            ranked = scores(view, query, filters=filters)
            assert ranked == scores(alone.restricted(GUEST), query, filters=filters)
            exact = scores(view, query, "exact", filters=filters)
            assert ranked == pytest.approx(exact, rel=1e-5)


def test_hidden_changes_change_nothing(tmp_path: Path) -> None:
    """Scores, order and reasons are equal before and after them; a filter alone would tell."""
    with opened(tmp_path / "store") as docs:
        docs.add_texts({"a": "green tea\nblack tea"}, {"a": GUEST})
        view = docs.restricted(GUEST)
        before = [*scores(view, "green tea").items()]
        filtered = scores(docs, "green tea", index="exact", filters=GUEST)
        for number in range(20):
            name = f"hidden{number % 7}"
            docs.add_texts({name: "green tea merger\n" * (number + 1)}, {name: {"label": "board"}})
        docs.delete_files(["hidden1"])
        assert [*scores(view, "green tea").items()] == before
        assert scores(docs, "green tea", index="exact", filters=GUEST) != filtered
        assert scores(view, "merger") == {}


def test_groups_of_an_earlier_release_are_ranked_here(tmp_path: Path) -> None:
    """With its scores, within the bound, restricted or not; who asks for the server gets an
    error.
    """
    with opened(tmp_path / "store") as docs:
        docs.add_texts({"a": "green tea\nblack tea", "b": "oolong tea"}, {"a": GUEST})
        exact = scores(docs, "green tea", "exact")
        drop_terms(docs)
        assert scores(docs, "green tea") == exact
        assert engine(docs) is None
        view = docs.restricted(GUEST)
        assert scores(view, "green tea") == scores(view, "green tea", "exact") != {}
        with pytest.raises(UnsupportedError, match="build the group anew"):
            scores(docs, "green tea", "server")
    with opened(tmp_path / "other", exact_rows=1) as docs:
        docs.add_texts({"a": "green tea\nblack tea"})
        assert len(scores(docs, "green tea")) == 2
        drop_terms(docs)
        with pytest.raises(ConfigError, match="exact_rows"):
            scores(docs, "green tea")
    with (
        opened(tmp_path / "store", search="server") as docs,
        pytest.raises(UnsupportedError, match="build the group anew"),
    ):
        scores(docs, "green tea")


def test_a_filter_that_the_database_cannot_evaluate(tmp_path: Path) -> None:
    """A very long text is compared here."""
    label = "long" * 5_000
    with opened(tmp_path / "store") as docs:
        docs.add_texts({"a": "green tea", "b": "black tea"}, {"a": {"label": label}})
        [hit] = Retriever(docs, "line", "bm25")("tea", filters={"label": label})
        assert hit.path == "a"
        assert len(scores(docs.restricted({"label": label}), "tea")) == 1


def test_exact_stays_exact(tmp_path: Path) -> None:
    """By ``store_conf`` and by ``index=``; the scores are those of a Document in memory."""
    texts = {"a": "green tea\nblack tea", "b": "oolong tea"}
    with opened(tmp_path / "store", search="exact") as docs, Document() as plain:
        plain.create_node_group("line", transform=str.splitlines)
        for each in (docs, plain):
            each.add_texts(texts)
        assert engine(docs) is None
        assert [*scores(docs, "tea").values()] == [*scores(plain, "tea").values()]
