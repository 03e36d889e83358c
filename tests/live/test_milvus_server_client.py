"""The full Milvus server of these tests, by its bare client."""

from __future__ import annotations

from contextlib import closing

from pymilvus import MilvusClient


def test_it_keeps_what_is_written(milvus_address):
    """What is written is read back at once with strong consistency, and found; the server tells its
    version.
    """
    with closing(MilvusClient(milvus_address)) as client:
        client.create_collection(
            "bare_client", dimension=2, metric_type="COSINE", consistency_level="Strong"
        )
        try:
            client.upsert(
                "bare_client", [{"id": 1, "vector": [1.0, 0.0]}, {"id": 2, "vector": [0.0, 1.0]}]
            )
            assert [
                row["id"] for row in client.query("bare_client", "id >= 0", output_fields=["id"])
            ] == [1, 2]
            assert client.search("bare_client", [[0.9, 0.1]], limit=1)[0][0].id == 1
        finally:
            client.drop_collection("bare_client")
        assert client.get_server_version() == "v2.3.5-lite"
