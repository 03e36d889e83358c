"""The cookbook's answers from an OpenSearch cluster."""

from __future__ import annotations

from tests.live.laptop_to_servers import check_answers


def test_opensearch_gives_the_answers_of_the_map_store(opensearch_address, tmp_path):
    """The same nodes, order and scores, also from a later program, which embeds nothing."""
    check_answers(tmp_path, "--opensearch", opensearch_address, "--ledger", "ledger.db")
