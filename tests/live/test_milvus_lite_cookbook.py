"""The cookbook's answers from a file of Milvus Lite."""

from __future__ import annotations

from tests.live.laptop_to_servers import check_answers, check_script


def test_a_file_of_milvus_gives_the_answers_of_the_map_store(tmp_path):
    """The same nodes, order and scores, also from a later program, which embeds nothing."""
    check_answers(tmp_path, "--milvus", "vectors.db")
    assert (tmp_path / "vectors.db.lazyrag.db").exists()


def test_the_script_on_milvus_runs_in_files(tmp_path):
    """Without a server named it asks files alone, dense and sparse, and leaves nothing behind."""
    assert "Opened again: 0 added, 20 unchanged" in check_script(tmp_path, "09_milvus.py")
    assert not list(tmp_path.iterdir())
