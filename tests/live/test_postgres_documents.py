"""Documents whose store in PostgreSQL ranks keyword searches."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from lazyrag import DataType, DocField, Document, Retriever
from lazyrag.errors import ConfigError, UnsupportedError
from lazyrag.read.field_values import infer_values
from tests.live.conftest import address_of

_numbers = itertools.count()
YEAR = DocField(DataType.INT32)
READERS = DocField(DataType.ARRAY, DataType.VARCHAR)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store, and an empty folder for copies of its arrays."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address = address_of("LAZYRAG_POSTGRES")
    return f"{address}?schema=words{os.getpid()}_{next(_numbers)}"


def opened(url: str, **options: Any) -> Document:
    """A Document of lines, with a field for the year and one for the readers."""
    fields = {"year": YEAR, "readers": READERS}
    kwargs = {"uri": url, **options.pop("kwargs", {})}
    conf = {"segment_store": {"type": "map", "kwargs": kwargs}}
    docs = Document(name="teas", store_conf=conf, doc_fields=fields, **options)
    docs.create_node_group("line", transform=str.splitlines)
    return docs


def texts(docs: Any, query: str, similarity: str = "bm25", **options: Any) -> list[str]:
    """The texts of the hits of the database's own ranking."""
    search = Retriever(docs, "line", similarity, index="native", topk=9)
    return [hit.text for hit in search(query, **options)]


def test_what_is_live_is_ranked(url: str) -> None:
    """After an update and a deletion; the reader of another program sees the same."""
    with opened(url) as docs:
        docs.add_texts({"a": "green tea\nblack tea", "b": "绿茶\ntea house", "c": "tea cup"})
        assert len(texts(docs, "tea")) == 4
        docs.add_texts({"a": "mint tea"})
        docs.delete_files(["c"])
        assert sorted(texts(docs, "tea")) == ["mint tea", "tea house"]
        assert texts(docs, "绿茶", "bm25_chinese") == ["绿茶"]
        with opened(url, read_only=True) as reader:
            assert sorted(texts(reader, "tea")) == ["mint tea", "tea house"]


def test_many_versions_do_not_hide_what_is_live(url: str) -> None:
    """Rows of twenty old versions, which are all better, are passed over."""
    with opened(url) as docs:
        docs.add_texts({"other": "a long line of text in which tea is one word"})
        for number in range(20):
            docs.add_texts({"a": f"tea {number}\n" * 5})
        docs.add_texts({"a": "water"})
        assert texts(docs, "tea") == ["a long line of text in which tea is one word"]


def test_the_best_hits_are_those_of_our_own_ranking(url: str) -> None:
    """Rare terms count for more, and so do short texts and frequent terms."""
    lines = [f"tea number {number} of a garden in the hills" for number in range(40)]
    lines += ["oolong", "oolong tea", "oolong oolong tea of the hills in the far north"]
    with opened(url) as docs:
        docs.add_texts({"a": "\n".join(lines)})
        ours = Retriever(docs, "line", "bm25", topk=3)("oolong tea")
        assert texts(docs, "oolong tea")[:3] == [hit.text for hit in ours]


def test_filters_apply_in_the_database(url: str) -> None:
    """Ranges, elements of arrays, and both together."""
    with opened(url) as docs:
        for year in range(2000, 2010):
            readers = ["anna", "ben"] if year % 2 else ["ben"]
            metadata = {f"d{year}": {"year": year, "readers": readers}}
            docs.add_texts({f"d{year}": f"tea of {year}"}, metadata)
        assert texts(docs, "tea", filters={"year": [2003, 2004]}) == ["tea of 2003", "tea of 2004"]
        assert len(texts(docs, "tea", filters={"readers": ["anna"]})) == 5


def test_without_analysers_there_is_no_ranking(url: str) -> None:
    """An error says so, and our own still answers."""
    with opened(url, kwargs={"analysers": []}) as docs:
        docs.add_texts({"a": "green tea"})
        with pytest.raises(UnsupportedError, match="index"):
            texts(docs, "tea")
        assert [hit.text for hit in Retriever(docs, "line", "bm25")("tea")] == ["green tea"]


def test_an_unknown_analyser_is_refused(url: str) -> None:
    """With the known ones, when the store is opened."""
    with pytest.raises(ConfigError, match="zh"):
        opened(url, kwargs={"analysers": ["ens"]})


def test_values_of_fields_are_looked_up_in_the_database(url: str) -> None:
    """As in memory: misspelt, in capitals, by year; after changes, and of visible documents."""
    names = [f"{house} {year}" for house in ("Green House", "黑茶商行") for year in (2018, 2019)]
    odd = ["Odd \ud83c 2018", "Note's 2019", f"{'Long' * 900} 2019", *map(str, range(4))]
    questions = ["Tea of Gren House in 2018", "GREE 2019", "GH in FY19", "黑茶商行2018", "Odd"]
    metadata = {name: {"readers": ["you"]} for name in names[::2]}
    metadata["Note's 2019"] = {"readers": ["it's \ud83c" + "x" * 3_000]}
    answers = []
    for docs in (opened(url), Document(doc_fields={"readers": READERS, "year": YEAR})):
        with docs:
            docs.add_texts(dict.fromkeys(names + odd, "green tea"), metadata)
            docs.delete_files([odd[-1]])
            docs.update_metadata({names[0]: {"year": 2021}})
            views = (docs, docs.restricted({"readers": ["you"]}))
            answers.append(
                [
                    [infer_values(view.reader, question) for question in questions]
                    + [view.field_values(name) for name in ("year", "name", "readers")]
                    for view in views
                ]
            )
            assert not docs.maintenance.verify()
    assert answers[0] == answers[1]
    assert answers[0][0][0] is not None
