"""The cookbook's answers from a folder of Chroma."""

from __future__ import annotations

from tests.live.laptop_to_servers import check_answers


def test_a_folder_of_chroma_gives_the_answers_of_the_map_store(tmp_path):
    """The same nodes, order and scores, also from a later program, which embeds nothing."""
    check_answers(tmp_path, "--chroma", "vectors")
    assert (tmp_path / "vectors.lazyrag.db").exists()
