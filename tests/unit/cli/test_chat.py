"""The command lazyrag chat: a conversation on standard input and output."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lazyrag.cli.commands import run as lazyrag
from tests.interpreter import ROOT
from tests.model_server import (
    PATIENCE_S,
    Model,
    RawServer,
    answered,
    event,
    failed,
    head,
    piece,
    streamed,
)

QUESTION = "How hot is the water for green tea?"


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A function that sends lines to lazyrag chat in an indexed folder, and returns its status,
    output and errors.
    """
    (tmp_path / "tea.md").write_text("Green tea is steeped at 80 degrees.", encoding="utf-8")
    (tmp_path / "snow.md").write_text("Snow fell on the roof of the barn.", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert lazyrag(["index"]) == 0

    def talk(*lines: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return lazyrag(["chat", *options]), *capsys.readouterr()

    return talk


def complete(text: str):
    """The streamed answer of a model."""
    return streamed(piece(text, finish_reason="stop"), "[DONE]")


def test_each_answer_has_the_earlier_ones_in_mind(
    chat, model: Model, monkeypatch: pytest.MonkeyPatch
):
    """The model reads the conversation, until /new; /sources shows the passage of the last answer,
    /quit ends.
    """
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    message = {"role": "assistant", "content": "green tea"}
    rewritten = answered({"choices": [{"message": message, "finish_reason": "stop"}]})
    answers = [complete("At 80 [1]."), complete("Yes [1]."), complete("No [1].")]
    model.faults = [answers[0], rewritten, *answers[1:]]
    status, output, errors = chat(
        QUESTION,
        "/sources",
        "And when?",
        "/new",
        QUESTION,
        "/quit",
        "never",
        options=("--model=m",),
    )
    assert (status, errors) == (0, "")
    assert output.startswith("At 80 [1].\n\n[1] tea.md  line 1\n\n[1] tea.md  line 1\n    *Green*")
    assert QUESTION in str(model.bodies[1])  # to rewrite the question
    assert "At 80" in str(model.bodies[2]["messages"])  # without the marker of old sources
    assert "At 80" not in str(model.bodies[-1]["messages"])  # after /new
    assert "never" not in str(model.bodies)


def test_mistakes_and_failures_end_no_conversation(
    chat, model: Model, monkeypatch: pytest.MonkeyPatch
):
    """An unknown command names the known ones; after an error the next question is answered, and
    /sources shows what the unfinished answer cites.
    """
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    broken = streamed(piece("At 80 [1]. "), piece("And"))
    model.faults = [broken, complete("At 80 [1].")]
    status, output, errors = chat(
        "/sorces", "/sources", QUESTION, "/sources", QUESTION, "", options=("--model", "m")
    )
    assert status == 0
    assert errors.startswith("Unknown command '/sorces'. Known: /new, /quit, /sources.\nError: ")
    source = "[1] tea.md  line 1\n"
    assert output.startswith(
        f"At 80 [1]. And (incomplete)\n\n{source}{source}    *Green* *tea*"  # of /sources
    )


def test_a_chat_without_any_answer_has_failed(chat, model: Model, monkeypatch: pytest.MonkeyPatch):
    """The status is 2, the error is in the output of --json; closed input ends a chat."""
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    model.faults = [failed(401)] * 2
    status, output, errors = chat(QUESTION, options=("--model", "m"))
    assert (status, output) == (2, "")
    assert "Check the key: lazyrag config set key" in errors
    status, output, _ = chat(QUESTION, options=("--model", "m", "--json"))
    failure = json.loads(output.partition("}\n{")[0] + "}")
    assert (status, failure["ok"], "401" in str(failure["error"])) == (2, False, True)
    monkeypatch.setattr(sys, "stdin", None)
    assert lazyrag(["chat"]) == 0


def test_without_a_model_answers_are_quotations(chat):
    """The hint comes once, above; with --json there is one object for each answer."""
    status, output, _ = chat(QUESTION, "What is on the barn?")
    assert status == 0
    assert output.startswith("Quoted without a chat model.")
    assert output.count("lazyrag config set chat NAME") == 1
    assert "“Green tea is steeped at 80 degrees.” [1]" in output
    _, output, _ = chat(QUESTION, "zzz", options=("--json",))
    objects = output.replace("}\n{", "}\0{").split("\0")
    first, second, last = [json.loads(text) for text in objects]
    assert first["result"]["citations"][0]["source"] == "tea.md"
    assert second["result"]["hits"] == []
    assert last["result"] == {"answers": 2}


@pytest.fixture
def _interruptible():
    """Programs that are started here end at SIGINT, even if the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("_interruptible", "chat")
def test_ctrl_c_stops_the_answer_only():
    """The model's request ends, and the next question is answered."""
    begun = head("text/event-stream") + event(piece("At 80 ")) + event(piece("degrees [1]. "))
    done = begun + event(piece("", finish_reason="stop")) + b"data: [DONE]\n\n"
    command = [sys.executable, "-m", "lazyrag", "chat", "--model", "m"]
    pipe = subprocess.PIPE
    with RawServer(begun, done, hold=True) as server:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_BASE_URL": server.url}
        with subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
        ) as process:
            alarm = threading.Timer(60, process.kill)  # if the words never come
            alarm.start()
            try:
                process.stdin.write(f"{QUESTION}\n".encode())
                process.stdin.flush()
                assert process.stdout.read(18) == b"At 80 degrees [1]."  # the model still holds
                process.send_signal(signal.SIGINT)
                assert server.gone.wait(PATIENCE_S)
                output, errors = process.communicate(f"{QUESTION}\n".encode(), timeout=60)
            finally:
                alarm.cancel()
    assert (process.returncode, errors) == (0, b"Stopped.\n")
    assert output.startswith(b" (incomplete)\n\n[1] tea.md  line 1\nAt 80 degrees [1].")
