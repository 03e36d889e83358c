"""The OpenSearch server of these tests, by its bare client."""

from __future__ import annotations

from contextlib import closing

from opensearchpy import OpenSearch

from tests.live.serving import members, opensearch_server


def written_and_read(client: OpenSearch, replicas: int) -> list[str]:
    """Write two documents, delete one of them by a query, and search for the other: the ids that
    are found.
    """
    settings = {"number_of_shards": 2, "number_of_replicas": replicas}
    client.indices.create(index="bare-client", body={"settings": settings})
    try:
        for name, text in (("a", "绿茶"), ("b", "红茶")):
            client.index(
                index="bare-client", id=name, body={"text": text}, params={"refresh": "true"}
            )
        query = {"query": {"ids": {"values": ["a"]}}}
        assert (
            client.delete_by_query(index="bare-client", body=query, params={"refresh": "true"})[
                "deleted"
            ]
            == 1
        )
        hits = client.search(index="bare-client", body={"query": {"match_all": {}}})["hits"]["hits"]
        return [hit["_id"] for hit in hits]
    finally:
        client.indices.delete(index="bare-client")


def test_it_keeps_what_is_written(opensearch_address):
    """What is written is found, what is deleted by a query is not; the server tells its version."""
    with closing(OpenSearch(opensearch_address)) as client:
        assert written_and_read(client, replicas=0) == ["b"]
        assert client.info()["version"]["number"] == "2.19.1"


def test_two_nodes_make_one_cluster(tmp_path):
    """With a replica on a second node the cluster is green, each node answers for both, and nothing
    is left running.
    """
    with opensearch_server(tmp_path, nodes=2) as server:
        first, second = server.addresses
        with closing(OpenSearch([first, second])) as client, closing(OpenSearch(second)) as other:
            assert client.cluster.health()["number_of_data_nodes"] == 2
            assert written_and_read(client, replicas=1) == ["b"]
            assert written_and_read(other, replicas=1) == ["b"]
            assert other.cluster.health()["status"] == "green"
    assert members(server.process.pid) == []
