"""Milvus Lite in this process, by its bare client: the version of whichever environment runs
this.
"""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import version

from pymilvus import MilvusClient


def test_it_keeps_what_is_written(tmp_path):
    """What is written is read back after close and open, and found; it is one of the two engines
    tested here.
    """
    path = str(tmp_path / "lite.db")
    with closing(MilvusClient(path)) as client:
        client.create_collection(
            "bare_client", dimension=2, metric_type="COSINE", consistency_level="Strong"
        )
        client.upsert(
            "bare_client", [{"id": 1, "vector": [1.0, 0.0]}, {"id": 2, "vector": [0.0, 1.0]}]
        )
    with closing(MilvusClient(path)) as client:
        client.load_collection("bare_client")
        assert [
            row["id"] for row in client.query("bare_client", "id >= 0", output_fields=["id"])
        ] == [1, 2]
        assert client.search("bare_client", [[0.9, 0.1]], limit=1)[0][0].id == 1
    assert version("milvus-lite") in {"2.5.1", "3.2.2"}
