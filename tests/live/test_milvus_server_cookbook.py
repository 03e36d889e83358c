"""The cookbook's answers from a Milvus server."""

from __future__ import annotations

from tests.live.laptop_to_servers import check_answers


def test_a_milvus_server_gives_the_answers_of_the_map_store(milvus_address, tmp_path):
    """The same nodes, order and scores, also from a later program, which embeds nothing."""
    check_answers(tmp_path, "--milvus", milvus_address, "--ledger", "ledger.db")
