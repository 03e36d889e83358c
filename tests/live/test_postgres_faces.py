"""PostgreSQL behind every face."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazyrag.cli.commands import run
from lazyrag.project import Project
from lazyrag.stores.postgres import PostgresSegmentStore
from tests.live.conftest import address_of
from tests.live.faces import QUERY, TEXTS, Faces
from tests.postgres_stores import copies_of_postgres, url_of  # noqa: F401

if TYPE_CHECKING:
    import pytest


class TestFacesOfPostgres(Faces):
    """One statement a query."""

    store = PostgresSegmentStore
    methods = ("search_text", "search_scope")

    def conf(self, folder: Path) -> dict[str, Any]:
        """All of it is in the database."""
        address_of("LAZYRAG_POSTGRES")
        return {"segment_store": {"type": "map", "kwargs": {"uri": url_of(folder / "store")}}}

    def test_tokens_with_labels_are_ranked_in_the_database(
        self, rankings: list[str], tmp_path: Path
    ) -> None:
        """By what they may see."""
        with self.opened(tmp_path) as docs:
            for name, text in self.asked(docs, tmp_path).items():
                assert "steamed" in text, name
                assert "Tea and tea" not in text, name
        assert {*rankings} == {"search_scope"}

    def test_the_command_line_too(
        self,
        rankings: list[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """It takes folders alone; a project's store is made one of the server for this."""
        files = tmp_path / "files"
        files.mkdir()
        for name, text in TEXTS.items():
            (files / f"{name}.txt").write_text(text, encoding="utf-8")
        monkeypatch.setattr(Project, "store_conf", self.conf(tmp_path))
        monkeypatch.setattr(Project, "exists", True)
        place = ["--store", str(tmp_path / "index")]
        assert run(["index", str(files), *place]) == 0
        assert run(["search", QUERY, *place]) == 0
        assert "steamed" in capsys.readouterr().out
        assert rankings
