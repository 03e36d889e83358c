"""The command lazyrag config, and who reads what it stores."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lazyrag
from lazyrag.cli.commands import run as command
from lazyrag.errors import ConfigError
from lazyrag.models import defaults
from tests.model_server import Model, answered, piece, streamed

if TYPE_CHECKING:
    from pytest_httpserver import HTTPServer

KEY = "sk-secret-and-long-0123456789"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A function that runs the command in a folder of an empty configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("LAZYRAG_MODEL", "LAZYRAG_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tea").mkdir()
    (tmp_path / "tea" / "tea.md").write_text("Green tea wants 80 degrees.", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "tea")

    def called(*arguments: str, typed: str = "") -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        return command(list(arguments)), *capsys.readouterr()

    return called


def test_defaults_are_stored_for_the_user_alone(run, tmp_path: Path):
    """Mode 600 below XDG_CONFIG_HOME, whatever the file was before; no output has the whole key."""
    file = tmp_path / "config" / "lazyrag" / "config.json"
    assert run("config", "set", "chat", "gpt") == (0, "Stored.\n", "")
    file.chmod(0o644)
    assert run("config", "set", "key", typed=f"{KEY}\n") == (0, "Stored.\n", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text(encoding="utf-8")) == {"chat": "gpt", "key": KEY}
    for options in ((), ("--json",)):
        output = run("config", "list", *options)[1]
        assert "gpt" in output
        assert "…6789" in output
        assert KEY not in output
    run("config", "set", "key", "short")
    assert "hort" not in run("config", "list")[1]
    assert run("config", "set", "key", "")[1] == "Removed.\n"
    assert run("config", "list")[1].splitlines()[:3] == ["chat   gpt", "embed  -", "key    -"]


def test_a_key_goes_to_no_other_endpoint(run):
    """Another url removes it, and says so; the same one, also with a slash, keeps it."""
    run("config", "set", "key", KEY)
    assert (
        "Removed the key of the previous endpoint." in run("config", "set", "url", "http://b/v1")[1]
    )
    assert defaults.api_key("http://b/v1") is None
    run("config", "set", "key", KEY)
    assert run("config", "set", "url", "http://b/v1/")[1] == "Stored.\n"
    assert defaults.api_key("http://b/v1/") == KEY


def test_a_damaged_file_says_the_way_out(run, tmp_path: Path):
    """The file is named."""
    run("config", "set", "chat", "gpt")
    file = tmp_path / "config" / "lazyrag" / "config.json"
    for text in ("{", "[]", "5"):
        file.write_text(text, encoding="utf-8")
        status, output, errors = run("config", "list")
        assert (status, output) == (1, "")
        assert f"{file} cannot be read" in errors
    with pytest.raises(ConfigError, match=r"set its values again: lazyrag config set"):
        lazyrag.open(tmp_path / "tea")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such user")
def test_a_configuration_out_of_reach_is_none(run, monkeypatch: pytest.MonkeyPatch):
    """Indexing goes on below a file as home, and with no home at all; storing says the way out."""
    import pwd

    def fail(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", fail)
    monkeypatch.delenv("XDG_CONFIG_HOME")
    for home in ("/dev/null", None):
        if home is None:
            monkeypatch.delenv("HOME")
        else:
            monkeypatch.setenv("HOME", home)
        assert run("index", "--store", f"store{home is None}")[0] == 0
        status, _, errors = run("config", "set", "chat", "gpt")
        assert (status, "XDG_CONFIG_HOME" in errors) == (1, True)


def test_ask_uses_the_defaults_and_the_environment_takes_precedence(
    run, model: Model, monkeypatch: pytest.MonkeyPatch
):
    """Model, endpoint and key; the key goes to its endpoint alone."""
    complete = streamed(piece("At 80 degrees [1].", finish_reason="stop"), "[DONE]")
    model.faults = [complete] * 3
    run("index")
    run("config", "set", "url", f"{model.url}/")
    run("config", "set", "chat", "small")
    run("config", "set", "key", KEY)
    assert run("ask", "How hot is green tea?")[1].startswith("At 80 degrees [1].")
    assert model.bodies[0]["model"] == "small"
    assert model.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("LAZYRAG_MODEL", "large")
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    run("ask", "How hot is green tea?")
    assert model.bodies[1]["model"] == "large"
    assert model.requests[1].headers["Authorization"] == "Bearer another"
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", model.url.replace("localhost", "127.0.0.1"))
    run("ask", "How hot is green tea?")
    assert "Authorization" not in model.requests[2].headers
    monkeypatch.delenv("LAZYRAG_MODEL")
    assert run("ask", "How hot is green tea?", "--model", "")[1].startswith("“Green tea")


def test_ask_of_an_opened_folder_uses_the_default_model(
    run, model: Model, monkeypatch: pytest.MonkeyPatch
):
    """As the command line does; not of another Document, and a generator takes precedence."""
    message = {"role": "assistant", "content": "At 80 degrees [1]."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    model.faults = [answered({"choices": [choice]})] * 2
    run("config", "set", "url", model.url)
    run("config", "set", "chat", "small")
    run("config", "set", "key", KEY)
    question = "How hot is green tea?"
    with lazyrag.open(".") as docs:
        assert docs.ask(question).text == "At 80 degrees [1]."
        assert asyncio.run(docs.aask(question)).text == "At 80 degrees [1]."
        assert docs.ask(question, generator=lambda _: "80 [1].").text == "80 [1]."
    assert [body["model"] for body in model.bodies] == ["small", "small"]
    assert model.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    with lazyrag.Document(".") as docs:
        assert docs.ask(question).text.startswith("“Green tea")
    monkeypatch.setenv("LAZYRAG_MODEL", "")
    with lazyrag.open(".") as docs:
        assert docs.ask(question).text.startswith("“Green tea")


def test_new_indexes_have_the_default_embedding_model(run, model: Model, tmp_path: Path):
    """Of the command line and of Python; indexes that exist keep theirs."""
    run("index")
    run("config", "set", "url", model.url)
    assert run("config", "set", "embed", "openai:small")[0] == 0
    assert "Embedding model: none" in run("status")[1]
    new = tmp_path / "new"
    new.mkdir()
    (new / "tea.md").write_text("Black tea boils.", encoding="utf-8")
    with lazyrag.open(new) as docs:
        assert docs.reader.embed_keys
        assert docs.search("tea")[0].path == "tea.md"
    assert model.bodies[0]["model"] == "small"
    _, _, errors = run("index", ".", "--store", str(tmp_path / "store"))
    assert errors == "Note: the embedding model is openai:small, of lazyrag config.\n"
    with lazyrag.Document(str(new), embed={"a": "openai:small"}) as docs:
        assert list(docs.reader.embed_keys) == ["a"]


def test_a_local_server_is_named_and_not_used(
    run, server: HTTPServer, monkeypatch: pytest.MonkeyPatch
):
    """With the commands that choose it; nothing but its list of models is requested."""
    models = {"data": [{"id": "llama3.2:latest"}]}
    server.expect_request("/v1/models", method="GET").respond_with_json(models)
    run("index")
    with socket.create_server(("127.0.0.1", 0)) as other:  # another program at that port

        def answer(pieces: Iterable[bytes]) -> None:
            with suppress(OSError), other.accept()[0] as connection:
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(0.01)

        monkeypatch.setattr(defaults, "_LOCAL", {"LM Studio": other.getsockname()[1]})
        header = b"HTTP/1.1 200 OK\r\n\r\n"
        for pieces in ([b"no HTTP\r\n\r\n"], [header, b"[" * 50_000], [header, *[b" "] * 1_000]):
            thread = threading.Thread(target=answer, args=(pieces,))
            thread.start()
            begun = time.monotonic()
            status, output, _ = run("ask", "How hot is green tea?")
            assert time.monotonic() - begun < 5  # the last pieces take ten seconds
            assert (status, "80 degrees" in output, "LM Studio" in output) == (0, True, False)
            thread.join()
    monkeypatch.setattr(defaults, "_LOCAL", {"Ollama": server.port, "LM Studio": 9})
    requests = len(server.log)
    output = run("ask", "How hot is green tea?")[1]
    url = f"http://127.0.0.1:{server.port}/v1"
    assert output.splitlines()[-3:] == [
        f"Ollama answers on {url}. To use it:",
        f"  lazyrag config set url {url}",
        "  lazyrag config set chat llama3.2:latest",
    ]
    assert "LM Studio" not in output
    assert [request.path for request, _ in server.log[requests:]] == ["/v1/models"]
    assert "Ollama" not in run("ask", "How hot is green tea?", "--json")[1]
    assert defaults.read_defaults() == {}


def test_an_empty_standard_input_removes_nothing(run):
    """As of a password manager that failed."""
    run("config", "set", "key", KEY)
    status, _, errors = run("config", "set", "key")
    assert (status, "standard input is empty" in errors) == (2, True)
    assert defaults.read_defaults()["key"] == KEY
