"""Specification 004's `Vector` on Milvus Lite: a file."""

from __future__ import annotations

from tests.live.dify_vector import goes_through_a_life


def test_a_data_set_lives_on_milvus(tmp_path):
    """Everything that the data set does is what it does on the map store."""
    goes_through_a_life("milvus", uri=str(tmp_path / "teas.db"))
