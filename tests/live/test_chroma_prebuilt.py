"""Specification 000's ChromaRetriever over collections that another program filled, by chromadb
itself.
"""

from __future__ import annotations

from typing import Any

import chromadb
import pytest

from lazyrag.errors import RetrievalError
from lazyrag.operators import ChromaRetriever

ROWS = {
    "g": ("绿茶用八十度的水。", 2023, [1.0, 0.0]),
    "r": ("红茶用沸水。", 2024, [0.8, 0.6]),
    "c": ("咖啡。", 2024, [0.0, 1.0]),
}


class Embedding(chromadb.EmbeddingFunction[Any]):
    """The collection's own: every text is about green tea."""

    def __init__(self) -> None:
        pass

    def __call__(self, input: Any) -> Any:  # noqa: A002  chromadb's name
        """One vector for each text."""
        return [[1.0, 0.0] for _ in input]

    @staticmethod
    def name() -> str:
        """As chromadb writes it into the collection."""
        return "green"

    def get_config(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> Embedding:
        """The same again."""
        return Embedding()


def filled(tmp_path, space: str) -> Any:
    """A collection in a folder."""
    client = chromadb.PersistentClient(str(tmp_path))
    made = client.create_collection(
        f"teas-{space}", embedding_function=Embedding(), configuration={"hnsw": {"space": space}}
    )
    made.add(
        ids=[*ROWS],
        documents=[text for text, _, _ in ROWS.values()],
        metadatas=[{"year": year, "source": f"{key}.txt"} for key, (_, year, _) in ROWS.items()],
        embeddings=[vector for _, _, vector in ROWS.values()],
    )
    return made


@pytest.mark.parametrize(
    ("space", "scores"),
    [("cosine", [1.0, 0.8, 0.0]), ("ip", [1.0, 0.8, 0.0]), ("l2", [1.0, 1 / 1.4, 1 / 3])],
)
def test_rows_come_best_first_with_scores(tmp_path, space, scores):
    """By each of Chroma's ways to compare: higher is better, the same vector is 1.0."""
    rows = ChromaRetriever(filled(tmp_path, space), lambda text: [1.0, 0.0])({"query": "绿茶"})[
        "retrieval_results"
    ]
    assert [row["id"] for row in rows] == ["g", "r", "c"]
    assert [row["score"] for row in rows] == pytest.approx(scores, abs=1e-5)
    assert rows[0]["text"] == "绿茶用八十度的水。"
    assert rows[0]["source"] == "g.txt"


def test_the_collection_may_embed_itself(tmp_path):
    """Without embed its own function is asked; filters reach Chroma."""
    collection = filled(tmp_path, "cosine")
    assert ChromaRetriever(collection, topk=1)({"query": "绿茶"})["retrieval_docs"] == [
        "绿茶用八十度的水。"
    ]
    late = ChromaRetriever(collection, filters={"year": 2024})({"query": "绿茶"})
    assert [row["id"] for row in late["retrieval_results"]] == ["r", "c"]


def test_a_failure_of_chroma_is_told(tmp_path):
    """A vector of another length is an error that names the collection."""
    with pytest.raises(RetrievalError, match="teas-cosine"):
        ChromaRetriever(filled(tmp_path, "cosine"), lambda text: [1.0])({"query": "绿茶"})
