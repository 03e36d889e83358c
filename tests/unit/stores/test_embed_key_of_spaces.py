"""A vector store is told the embed key of the vectors that it is to keep."""

from __future__ import annotations

from lazyrag import Document, Retriever
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.protocol import VectorSchema, vector_stores


def test_the_embed_key_reaches_the_store(folder) -> None:
    """Each of two embed keys gets a collection whose schema names it; schemas compare without
    it.
    """
    seen: list[VectorSchema] = []

    class Watching(MapVectorStore):
        """The map store, which remembers what it was asked for."""

        def create(self, collection: str, schema: VectorSchema) -> None:
            seen.append(schema)
            super().create(collection, schema)

    embed = {
        "vec1": lambda text: [1.0, float(len(text))],
        "vec2": lambda text: [2.0, float(len(text))],
    }
    with vector_stores.isolated():
        vector_stores.register("watching", Watching)
        docs = Document(
            folder({"a.txt": "tea"}), embed=embed, store_conf={"vector_store": {"type": "watching"}}
        )
        Retriever(docs, "lazyllm_root", embed_keys=["vec1", "vec2"])("tea")
    assert sorted(schema.embed_key for schema in seen) == ["vec1", "vec2"]
    assert seen[0] == seen[1]
