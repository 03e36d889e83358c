"""The Chroma server of these tests, by its bare client."""

from __future__ import annotations

from urllib.parse import urlsplit

import chromadb


def test_it_keeps_what_is_written(chroma_address):
    """What is written is read back, with its metadata, and found; the server tells its version."""
    where = urlsplit(chroma_address)
    client = chromadb.HttpClient(host=where.hostname, port=where.port)
    collection = client.create_collection("bare-client", embedding_function=None)
    try:
        collection.upsert(
            ids=["a", "b"],
            embeddings=[[1.0, 0.0], [0.0, 1.0]],
            metadatas=[{"年": 2024}, {"年": 2025}],
        )
        read = collection.get(ids=["b"], include=["embeddings", "metadatas"])
        # A row may show lists of a collection that was dropped before (chroma-core/chroma#7594).
        assert (read["ids"], read["metadatas"][0]["年"]) == (["b"], 2025)
        assert read["embeddings"].tolist() == [[0.0, 1.0]]
        assert collection.query(query_embeddings=[[0.9, 0.1]], n_results=1)["ids"] == [["a"]]
    finally:
        client.delete_collection("bare-client")
    # The server has a number of its own: 1.5.9 of the package says 1.0.0.
    assert client.get_version() == "1.0.0"
