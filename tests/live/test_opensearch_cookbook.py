"""The cookbook's answers from an OpenSearch cluster."""

from __future__ import annotations

from tests.live.laptop_to_servers import check_answers, check_script


def test_opensearch_gives_the_answers_of_the_map_store(opensearch_address, tmp_path):
    """The same nodes, order and scores, also from a later program, which embeds nothing."""
    check_answers(tmp_path, "--opensearch", opensearch_address, "--ledger", "ledger.db")


def test_the_script_on_opensearch_runs(opensearch_address, tmp_path):
    """It finds what memory finds, and by the server's own ranking the same words; run again, it
    reads nothing.
    """
    for added in ("20 added", "0 added, 20 unchanged"):
        said = check_script(tmp_path, "10_opensearch.py", opensearch_address, "ledger.db")
        assert f"On {opensearch_address}: {added}" in said
