"""Specification 004's `Vector` on Chroma: a folder."""

from __future__ import annotations

from tests.live.dify_vector import goes_through_a_life


def test_a_data_set_lives_on_chroma(tmp_path):
    """Everything that the data set does is what it does on the map store."""
    goes_through_a_life("chroma", dir=str(tmp_path / "chroma"))
