"""The cookbook's answers from a Milvus server."""

from __future__ import annotations

from tests.live.laptop_to_servers import check_answers, check_script


def test_a_milvus_server_gives_the_answers_of_the_map_store(milvus_address, tmp_path):
    """The same nodes, order and scores, also from a later program, which embeds nothing."""
    check_answers(tmp_path, "--milvus", milvus_address, "--ledger", "ledger.db")


def test_the_script_on_milvus_runs_on_a_server(milvus_address, tmp_path):
    """With an address it asks the server, too, for the vectors that it keeps; the second time
    everything is there.
    """
    for added in ("20 added", "0 added, 20 unchanged"):
        assert f"On {milvus_address}: {added}" in check_script(
            tmp_path, "09_milvus.py", milvus_address, "ledger.db"
        )
