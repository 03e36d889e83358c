"""The cookbook's answers from a folder of Chroma."""

from __future__ import annotations

from tests.live.laptop_to_servers import check_answers, check_script


def test_a_folder_of_chroma_gives_the_answers_of_the_map_store(tmp_path):
    """The same nodes, order and scores, also from a later program, which embeds nothing."""
    check_answers(tmp_path, "--chroma", "vectors")
    assert (tmp_path / "vectors.lazyrag.db").exists()


def test_the_script_on_chroma_runs_in_a_folder_and_on_a_server(chroma_address, tmp_path):
    """It asks a folder, which it removes, and the server of an address; the second time everything
    is there.
    """
    for added in ("20 added", "0 added, 20 unchanged"):
        said = check_script(tmp_path, "08_chroma.py", chroma_address, "ledger.db")
        assert "The next day: 0 added, 20 unchanged" in said
        assert f"On {chroma_address}: {added}" in said
    assert all(path.name.startswith("ledger.db") for path in tmp_path.iterdir())
