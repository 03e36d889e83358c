"""A restricted Document on Chroma: only visible rows count, for what is exact and for what is
found.
"""

from __future__ import annotations

import numpy as np
import pytest

from lazyrag import DataType, DocField, Document, Retriever
from lazyrag.errors import ConfigError

FIELDS = {
    "label": DocField(DataType.VARCHAR, default_value=""),
    "groups": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
}


def embed(text):
    """The same vector for the same text."""
    return np.random.default_rng(list(text.encode())).normal(size=8).tolist()


embed.identity = "random"


def opened(store):
    """300 documents, of which every tenth is a guest's."""
    docs = Document(
        embed=embed, doc_fields=FIELDS, store_conf={"vector_store": store} if store else None
    )
    metadata = {
        f"t{n}": {
            "label": "staff" if n % 10 else "guest",
            "groups": ["all"] if n % 10 else ["all", "guest"],
        }
        for n in range(300)
    }
    docs.add_texts({name: f"text {name}" for name in metadata}, metadata=metadata)
    return docs


@pytest.mark.parametrize(
    "scope", [{"label": "guest"}, {"groups": "guest"}], ids=["native", "evaluated by us"]
)
@pytest.mark.parametrize("kwargs", [{}, {"dir": "vectors"}], ids=["memory", "folder"])
def test_visible_rows_count(tmp_path, monkeypatch, kwargs, scope):
    """With fewer visible rows than exact_rows the ranking is exact, however many are hidden; else
    it is refused.
    """
    monkeypatch.chdir(tmp_path)
    docs = opened({"type": "chromadb", "kwargs": {"exact_rows": 50, **kwargs}})
    view, exact = (
        Retriever(one.restricted(scope), "FineChunk", topk=40) for one in (docs, opened(None))
    )
    for query in ("one", "two", "three"):
        found = [(node.path, node.score) for node in view(query)]
        expected = [(node.path, node.score) for node in exact(query)]
        assert [path for path, _ in found] == [path for path, _ in expected]
        assert [score for _, score in found] == pytest.approx(
            [score for _, score in expected], abs=1e-5
        )
        assert len(found) == 30
        assert {node.path for node in view(query, filters={"file_name": ["t0", "t1", "t10"]})} == {
            "t0",
            "t10",
        }
    docs.add_texts({"t300": "three"}, metadata={"t300": {"label": "guest", "groups": ["guest"]}})
    assert view("three")[0].path == "t300"
    with pytest.raises(ConfigError, match="visible rows"):
        Retriever(docs.restricted({"label": "staff"}), "FineChunk")("one")
