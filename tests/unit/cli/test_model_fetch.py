"""`lazyrag model fetch` against a local hub: what it downloads, verifies, keeps and says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server import HubServer, hub_server
from tests.interpreter import ROOT, python
from tests.shared import shared
from tests.tiny_models import write_embedder

TINY = "makers/tiny"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for models, where no other setting of the hub counts."""
    for name in [one for one in os.environ if one.startswith("HF_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "modelscope"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("NO_PROXY", "*")
    return tmp_path


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub with a tiny model, in the place of the mirror."""
    folder = write_embedder(
        home / "served", pooling={"pooling_mode_mean_tokens": True}, file="onnx/model.onnx"
    )
    (folder / "pytorch_model.bin").write_bytes(bytes(5_000))
    with hub_server(folder, TINY) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def fetch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, in a fresh interpreter: the hub's client reads its environment once."""
    return python("-m", "lazyrag", "model", "fetch", *arguments)


def error(*arguments: str) -> str:
    """The one line of the command when it fails."""
    done = fetch(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
    return lines[0]


def stored(home: Path) -> list[str]:
    """Every file of the cache's blobs: complete ones, and none that are half."""
    return [path.name for path in (home / "hf").rglob("blobs/*")]


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.shared
def test_a_fetched_model_is_found_by_name_and_embeds(home: Path, monkeypatch: pytest.MonkeyPatch):
    """A real model by a mirror, over a connection that is lost once: only what runs the model is
    downloaded.

    The rest of a file is asked for, not the file again; index finds the model by its id; a second
    fetch asks nothing.
    """
    served, name = shared("models", "all-minilm-l6-v2"), "sentence-transformers/all-MiniLM-L6-v2"
    with hub_server(served, name) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.cut["model.onnx"] = 1
        done = fetch(name)
        assert done.returncode == 0, done.stderr
        assert f"Fetching {name}: model.onnx and 6 more files, 23.2 MB." in done.stderr
        assert done.stdout.splitlines()[-1] == f"Next: lazyrag index --embed {name}"
        assert {one for one, _ in hub.transfers} == set(hub.files()) - {
            "README.md",
            "special_tokens_map.json",
        }
        assert [part for file, part in hub.transfers if file == "model.onnx"] == [
            None,
            "bytes=10485760-",
        ]
        asked = hub.requests
        again = json.loads(fetch(name, "--json").stdout)
        assert again["command"] == "model fetch"
        assert again["result"]["file"] == "model.onnx"
        assert hub.requests == asked
    (home / "tea").mkdir()
    (home / "tea" / "tea.txt").write_text("Steep oolong at 95 degrees.\n", encoding="utf-8")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert python("-m", "lazyrag", "index", str(home / "tea"), "--embed", name).returncode == 0
    found = python(
        "-m", "lazyrag", "search", "how hot is the water", "--retriever", "vector", cwd=home / "tea"
    )
    assert "tea.txt" in found.stdout


@pytest.mark.slow
def test_a_smaller_graph_is_offered_and_fetched_alone(
    hub: HubServer, home: Path, monkeypatch: pytest.MonkeyPatch
):
    """By --file; OnnxEmbedder then finds the only one."""
    small = hub.folder / "onnx" / "model_small.onnx"
    small.write_bytes((hub.folder / "onnx" / "model.onnx").read_bytes())
    (hub.folder / "onnx" / "model.onnx").write_bytes(bytes(3_000_000))
    done = fetch(TINY, "--file", "onnx/model_small.onnx", "--json")
    assert json.loads(done.stdout)["result"]["file"] == "onnx/model_small.onnx"
    assert "onnx/model.onnx" not in {name for name, _ in hub.transfers}
    loaded = python(
        "-c",
        f"from lazyrag import OnnxEmbedder; print(OnnxEmbedder({TINY!r}).embed(['tea']).shape)",
    )
    assert loaded.stdout.startswith("(1, "), loaded.stderr
    monkeypatch.setenv("HF_HOME", str(home / "other"))
    assert "3.0 MB. Smaller: --file onnx/model_small.onnx" in fetch(TINY).stderr


@pytest.mark.slow
def test_a_damaged_file_is_not_kept(hub: HubServer, home: Path):
    """The SHA-256 of the hub is compared; fetching again repairs it."""
    hub.damaged.add("onnx/model.onnx")
    assert "model.onnx is damaged" in error(TINY)
    assert (
        "is not on this machine"
        in python("-c", f"import lazyrag; lazyrag.OnnxEmbedder({TINY!r})").stderr
    )
    hub.damaged.clear()
    assert fetch(TINY).returncode == 0
    assert len([name for name, _ in hub.transfers if name == "onnx/model.onnx"]) == 2
    assert len([name for name, _ in hub.transfers if name == "config.json"]) == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is a signal of POSIX")
def test_ctrl_c_leaves_nothing_half(hub: HubServer, home: Path):
    """Exit status 130, no partial file, no model that looks complete; the same command fetches the
    rest.
    """
    hub.slow.add("onnx/model.onnx")
    command = [sys.executable, "-m", "lazyrag", "model", "fetch", TINY]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert hub.started.wait(60)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Interrupted. Complete files are kept; the same command fetches the rest." in errors
    assert not [name for name in stored(home) if name.endswith(".incomplete")]
    hub.slow.clear()
    assert fetch(TINY).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, "RepoNotFound", ("no such public model", "organisation/name")),
        (401, "", ("no such public model", "HF_TOKEN")),
        (403, "GatedRepo", ("access is restricted", "Accept the terms at http", "hf auth login")),
    ],
    ids=["missing", "unauthorised", "gated"],
)
def test_a_refusal_says_what_to_do(
    hub: HubServer, home: Path, status: int, code: str, words: tuple[str, ...]
):
    """A wrong id, a private model, terms to accept: one line each, with exit status 1; nothing is
    stored.
    """
    hub.status = (status, code)
    message = error(TINY)
    assert message.startswith(f"Error: {TINY!r} cannot be fetched from {hub.url}: ")
    assert all(word in message for word in words), message
    assert stored(home) == []


@pytest.mark.slow
def test_without_network_a_mirror_and_a_folder_are_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    """No server at HF_ENDPOINT, and HF_HUB_OFFLINE."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "set a mirror: HF_ENDPOINT=https://MIRROR, or copy the model's folder" in error(TINY)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set. Unset it, or copy the model's folder" in error(TINY)


@pytest.mark.slow
def test_a_full_disk_names_the_folder(hub: HubServer, home: Path):
    """And the setting that moves it; no partial file is left."""
    script = (
        "import errno, sys, huggingface_hub.file_download as client\n"
        "def full(*_, **__): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "client.http_get = full\n"
        "from lazyrag.cli.commands import run\n"
        f"sys.exit(run(['model', 'fetch', {TINY!r}]))"
    )
    done = python("-c", script)
    assert done.returncode == 1
    assert f"no space is left in {home / 'hf'}" in done.stderr
    assert "set HF_HOME" in done.stderr
    assert stored(home) == []


@pytest.mark.slow
def test_a_model_in_modelscopes_cache_is_on_this_machine(hub: HubServer, home: Path):
    """Nothing is asked of the hub."""
    write_embedder(
        home / "modelscope" / "models" / "makers" / "tiny",
        pooling={"pooling_mode_mean_tokens": True},
    )
    done = fetch(TINY)
    assert done.returncode == 0, done.stderr
    assert "modelscope" in done.stdout
    assert hub.requests == 0


def test_a_repository_without_onnx_says_how_to_make_one(hub: HubServer):
    """Before anything is downloaded."""
    (hub.folder / "onnx" / "model.onnx").unlink()
    assert "has no ONNX file. Export the model" in error(TINY)
    assert hub.transfers == []


@pytest.mark.slow
def test_the_extra_is_named(home: Path):
    """Without huggingface_hub the line says what to install."""
    script = "import sys; sys.modules['huggingface_hub'] = None\n"
    script += f"from lazyrag.cli.commands import run\nsys.exit(run(['model', 'fetch', {TINY!r}]))"
    done = python("-c", script)
    assert done.returncode == 1
    assert ".[onnx]" in done.stderr


@pytest.mark.slow
def test_the_shells_complete_the_command():
    """`lazyrag model f<Tab>`."""
    words = {
        "_LAZYRAG_COMPLETE": "bash_complete",
        "COMP_WORDS": "lazyrag model f",
        "COMP_CWORD": "2",
    }
    script = f"import os; os.environ.update({words!r})\nfrom lazyrag.cli.commands import app\napp(prog_name='lazyrag')"
    assert python("-c", script).stdout.strip() == "plain,fetch"
