"""What specification 004's `Vector` does on a real store, the same on each."""

from __future__ import annotations

from typing import Any

from lazyrag.interop.dify import Condition, Document, MetadataCondition, Vector

LETTERS = "绿红白茶水泡煮"
TEXTS = {"1": "绿茶用八十度的水。", "2": "红茶用沸水泡。", "3": "白茶可以煮。"}


def embed(text: str) -> list[float]:
    """Counts of seven characters."""
    return [0.1 + text.count(letter) for letter in LETTERS]


def documents(**texts: str) -> list[Document]:
    """Documents with ids, and a source each."""
    return [Document(text, {"doc_id": key, "source": f"{key}.txt"}) for key, text in texts.items()]


def goes_through_a_life(vector_type: str, **options: Any) -> None:
    """Filled, searched both ways, filtered, changed, opened again, emptied: equal to the same on
    the map store.
    """
    expected = Vector("teas", ["source"], embed)
    expected.create(documents(**TEXTS))
    with Vector("teas", ["source"], embed, vector_type=vector_type, **options) as vector:
        vector.create(documents(**TEXTS))
        for query in ("绿茶的水", "怎么煮"):
            same(vector.search_by_vector(query, top_k=3), expected.search_by_vector(query, top_k=3))
        same(vector.search_by_full_text("茶", top_k=3), expected.search_by_full_text("茶", top_k=3))
        only = MetadataCondition("and", [Condition("source", "is", "2.txt")])
        assert [
            one.metadata["doc_id"] for one in vector.search_by_vector("绿茶", top_k=3, filters=only)
        ] == ["2"]
        assert vector.search_by_vector("绿茶", top_k=3, score_threshold=1.0) == []
        vector.delete_by_ids(["3"])
        vector.create(documents(**{"1": "黑茶也用沸水泡。"}))
    with Vector("teas", ["source"], embed, vector_type=vector_type, **options) as again:
        found = again.search_by_vector("沸水", top_k=9)
        assert {one.metadata["doc_id"]: one.page_content for one in found} == {
            "1": "黑茶也用沸水泡。",
            "2": "红茶用沸水泡。",
        }
        again.delete()
        assert again.search_by_vector("沸水", top_k=9) == []


def same(found: list[Document], expected: list[Document]) -> None:
    """The same documents with the same scores."""
    assert [one.page_content for one in found] == [one.page_content for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert abs(one.metadata["score"] - other.metadata["score"]) < 1e-5
