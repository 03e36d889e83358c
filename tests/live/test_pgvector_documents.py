"""Documents whose store in PostgreSQL ranks vectors by pgvector."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from lazyrag import DataType, DocField, Document, Retriever
from lazyrag.errors import ConfigError
from tests.live.conftest import address_of

_numbers = itertools.count()


class Letters:
    """An embedder without a network: how often a text has each letter."""

    identity = "letters"
    batch_size = 64

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text."""
        return [[text.count(chr(97 + number)) + 0.1 for number in range(26)] for text in texts]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store, and an empty folder for copies of its arrays."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address = address_of("LAZYRAG_POSTGRES")
    return f"{address}?schema=near{os.getpid()}_{next(_numbers)}"


def opened(url: str, **options: Any) -> Document:
    """A Document of lines with vectors, and a field for the year."""
    docs = Document(
        name="teas",
        store_conf=url,
        embed={"letters": Letters()},
        doc_fields={"year": DocField(DataType.INT32)},
        **options,
    )
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def search(docs: Document, index: str) -> Retriever:
    """A vector search."""
    return Retriever(docs, "line", "cosine", embed_keys=["letters"], index=index, topk=5)


def words(count: int) -> str:
    """Lines of different letters."""
    return "\n".join(
        f"{'tea' * (number % 7)} {number:b}".replace("1", "x") for number in range(count)
    )


def test_the_database_ranks_as_the_arrays_do(url: str) -> None:
    """With a filter too, and after an update and a deletion."""
    with opened(url) as docs:
        for year in range(4):
            name = f"d{year}"
            docs.add_texts({name: f"year {year}\n{words(20)}"}, {name: {"year": year}})
        for filters in (None, {"year": [2]}):
            near = search(docs, "smart_embedding_index")("tea tea", filters=filters)
            exact = search(docs, "exact")("tea tea", filters=filters)
            scores = [hit.score for hit in near]
            assert scores == pytest.approx([hit.score for hit in exact], abs=1e-6)
        docs.add_texts({"d2": "zzz"}, {"d2": {"year": 2}})
        docs.delete_files(["d3"])
        [hit] = search(docs, "smart_embedding_index")("zz", filters={"year": [2, 3]})
        assert hit.text == "zzz"


@pytest.mark.parametrize("is_restricted", [False, True])
def test_a_reader_downloads_no_vectors(url: str, tmp_path: Path, *, is_restricted: bool) -> None:
    """It answers from an empty folder of copies, which stays without arrays of vectors."""

    def nearest(docs: Document) -> list[str]:
        view = docs.restricted({"year": 1}) if is_restricted else docs
        return [hit.uid for hit in search(view, "default")("tea")]

    with opened(url) as docs:
        docs.add_texts({"a": words(4_000)}, {"a": {"year": 1}})
        expected = nearest(docs)
    for copy in (tmp_path / "cache").rglob("*"):
        if copy.is_file():
            copy.unlink()
    with opened(url, read_only=True) as reader:
        assert nearest(reader) == expected
    sizes = [copy.stat().st_size for copy in (tmp_path / "cache").rglob("*") if copy.is_file()]
    assert sum(sizes) < 4_000 * 26 * 4


def test_no_hidden_vector_decides_what_a_view_finds(url: str) -> None:
    """A thousand nearer ones are hidden; the scores are those of the arrays."""
    with opened(url) as docs:
        docs.add_texts({"seen": words(30)}, {"seen": {"year": 1}})
        view = docs.restricted({"year": 1})
        before = [(hit.uid, hit.score) for hit in search(view, "default")("tea tea")]
        docs.add_texts({"hidden": "tea tea\n" * 1_000}, {"hidden": {"year": 2}})
        assert [(hit.uid, hit.score) for hit in search(view, "default")("tea tea")] == before
        exact = search(view, "exact")("tea tea")
        assert [score for _, score in before] == pytest.approx([hit.score for hit in exact])


def test_vectors_of_an_earlier_release_are_ranked_here(url: str) -> None:
    """Within the bound, and without a word about the database."""
    with opened(url) as docs:
        docs.add_texts({"a": words(30)})
        assert search(docs, "default").trace("tea").settings["ranked by"] == "PostgresVectorStore"
        exact = [(hit.uid, hit.score) for hit in search(docs, "exact")("tea")]
        with docs.reader.indexer.ledger.file.writing() as connection:
            query = "SELECT name FROM sqlite_master WHERE name LIKE 'pgvector%'"
            for (name,) in connection.execute(query).fetchall():
                connection.execute(f'DROP TABLE "{name}"')
        assert [(hit.uid, hit.score) for hit in search(docs, "default")("tea")] == exact
        assert "ranked by" not in search(docs, "default").trace("tea").settings
        docs.reader.indexer.nodes.exact_rows = 5
        with pytest.raises(ConfigError, match="exact_rows"):
            search(docs, "default")("tea")
