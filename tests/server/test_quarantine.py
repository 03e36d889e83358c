"""A served folder with a file that would end its loader: the service goes on, and names the
file.
"""

from __future__ import annotations

import sys

import httpx2 as httpx
import pytest

from lazyrag.errors import ConfigError
from lazyrag.server.core.config import read_config
from tests.hostile import endless_form
from tests.server.running import serving, wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.mark.slow
def test_a_served_folder_outlives_a_hostile_file(tmp_path):
    """The writer lives, readiness comes, other files are found, and status, list and page name the
    file.
    """
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "tea.txt").write_text("Green tea is brewed at eighty degrees.")
    (folder / "form.pdf").write_bytes(endless_form())
    with serving(folder, "--port", "0", "--processes", "1") as running:
        running.wait_until_ready()
        writer = running.children("writer")
        assert running.get("/api/v1/sets/files/status").json()["failed"] == [["form.pdf", "load"]]
        failed = running.get("/api/v1/sets/files/documents", params={"status": "FAILED"}).json()[
            "documents"
        ]
        assert [one["id"] for one in failed] == ["form.pdf"]
        assert failed[0]["error"]["type"] == "LoaderEndedError"
        assert failed[0]["error"]["detail"].startswith("Quarantined: ")
        for language, words in (("en", "Quarantined"), ("zh", "隔离")):
            page = running.get(
                "/s/files/files", headers={"accept-language": language, "accept": "text/html"}
            )
            assert "form.pdf" in page.text
            assert words in page.text
        (folder / "coffee.txt").write_text("Coffee is ground fine.")

        def found() -> list[str]:
            asked = httpx.post(
                f"{running.url}/api/v1/sets/files/search", json={"query": "coffee"}, timeout=60
            )
            return [hit["path"] for hit in asked.json()["hits"]]

        wait_for(lambda: found() == ["coffee.txt"], "the new file")
        jobs = running.get("/api/v1/sets/files/jobs").json()["jobs"]
        assert {job["state"] for job in jobs} <= {"WAITING", "WORKING", "SUCCESS"}
        assert {job["attempts"] for job in jobs} <= {0, 1}
        assert running.children("writer") == writer


def test_loading_of_a_set_is_checked(tmp_path):
    """Wrong pairs and unknown limits are errors of the configuration that name their key."""
    (tmp_path / "notes").mkdir()
    config = tmp_path / "serve.toml"
    config.write_text('[sets.notes]\npath = "notes"\nloading = "processes=2,time_s=60"\n')
    assert read_config(config).sets["notes"].loading == "processes=2,time_s=60"
    for loading, words in (("60", "must be pairs"), ("time=60", "time_s")):
        config.write_text(f'[sets.notes]\npath = "notes"\nloading = "{loading}"\n')
        with pytest.raises(ConfigError, match=rf"sets\.notes\.loading.*{words}"):
            read_config(config)
