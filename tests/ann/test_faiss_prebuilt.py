"""Specification 000's retriever over a faiss index that another program built, with the real
faiss.
"""

from __future__ import annotations

import json

import faiss
import numpy as np
import pytest

from lazyrag.errors import ConfigError
from lazyrag.operators import Wiki18FAISSRetriever

TEXTS = [
    "Green tea wants water of 80 degrees.",
    "Black tea wants boiling water.",
    "Hills are far away.",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def embed(text):
    """Counts of letters, of length 1."""
    vector = np.array([text.lower().count(letter) for letter in LETTERS], np.float32)
    return (vector / np.linalg.norm(vector)).tolist()


def written(tmp_path, index):
    """An index and its texts on the disk, as the system that the specification describes keeps
    them.
    """
    index.add(np.array([embed(text) for text in TEXTS], np.float32))
    faiss.write_index(index, str(tmp_path / "wiki.index"))
    lines = [
        json.dumps({"id": f"w{at}", "title": f"Page {at}", "contents": text})
        for at, text in enumerate(TEXTS)
    ]
    (tmp_path / "wiki.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "wiki.index", tmp_path / "wiki.jsonl"


@pytest.mark.parametrize(
    "make", [faiss.IndexFlatIP, faiss.IndexFlatL2, lambda size: faiss.IndexHNSWFlat(size, 8)]
)
def test_an_index_on_the_disk_is_asked(tmp_path, make):
    """Best first, with ids, titles and scores, by inner product, by distance and by a graph."""
    index, texts = written(tmp_path, make(len(LETTERS)))
    found = Wiki18FAISSRetriever(index, texts, embed, topk=2)({"query": TEXTS[1]})[
        "retrieval_results"
    ]
    assert (found[0]["id"], found[0]["text"], found[0]["source"]) == ("w1", TEXTS[1], "Page 1")
    assert found[0]["score"] == pytest.approx(1.0, abs=1e-5)
    assert [row["score"] for row in found] == sorted((row["score"] for row in found), reverse=True)
    assert len(found) == 2


def test_a_file_that_is_no_index_is_told(tmp_path):
    """With its path, as a ConfigError."""
    (tmp_path / "wiki.index").write_bytes(b"no index")
    with pytest.raises(ConfigError, match=r"wiki\.index"):
        Wiki18FAISSRetriever(tmp_path / "wiki.index", [], embed)
