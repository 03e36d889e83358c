"""`Document.ask`: an answer in one line."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lazyrag import Document, Generator
from lazyrag.errors import (
    AnswerWarning,
    ConfigError,
    GenerationError,
    NotRegisteredError,
    UnknownKeywordError,
)

TEXTS = {
    "green.txt": "Green tea wants water of 80 degrees.",
    "black.txt": "Black tea wants boiling water.",
    "绿茶.txt": "绿茶要用八十度的水。",
}
QUESTION = "How hot is the water for green tea?"


@pytest.fixture
def docs() -> Document:
    """Texts about tea, each with its file name."""
    docs = Document()
    docs.add_texts(TEXTS)
    return docs


@pytest.mark.parametrize(
    ("question", "path"), [(QUESTION, "green.txt"), ("绿茶要用多热的水？", "绿茶.txt")]
)
def test_without_a_model_it_quotes(docs: Document, question: str, path: str) -> None:
    """Every word is the file's, and each quotation names it."""
    answer = docs.ask(question, 1)
    assert TEXTS[path].rstrip(".。") in answer.text
    assert [citation.source for citation in answer.citations] == [path]
    assert {statement.verdict for statement in answer.statements} == {"supported"}


def test_a_model_writes_from_the_passages_that_search_finds(docs: Document) -> None:
    """It reads them in their order, and the conversation before."""
    prompts = []

    def model(prompt: str) -> str:
        prompts.append(prompt)
        return "Of 80 degrees [1]."

    answer = docs.ask(QUESTION, 2, generator=model)
    assert answer.text == "Of 80 degrees [1]."
    assert [hit.id for hit in answer.context.sources] == [
        node.uid for node in docs.search(QUESTION, 2)
    ]
    history = [{"role": "user", "content": "Is oolong green?"}]
    docs.ask(QUESTION, generator=Generator(model), history=history)
    assert "Is oolong green?" in "".join(map(str, prompts))


def test_filters_and_restricted_views_hide_what_they_hide(docs: Document) -> None:
    """Also from quotations."""
    only_black = {"file_name": "black.txt"}
    for answer in (
        docs.ask(QUESTION, filters=only_black),
        docs.restricted(only_black).ask(QUESTION),
    ):
        assert {hit.source for hit in answer.context.sources} == {"black.txt"}
        assert "80" not in answer.text


def test_an_event_loop_goes_on_and_cancelling_leaves_no_thread(docs: Document) -> None:
    """A task ticks while the model thinks; a cancelled question returns at once."""
    is_asked = asyncio.Event()

    async def slow_model(prompt: str) -> str:
        is_asked.set()
        await asyncio.sleep(60)
        return prompt

    async def answer_and_cancel() -> str:
        answer = await docs.aask(QUESTION, generator=lambda prompt: "80 degrees [1].")
        task = asyncio.create_task(docs.aask(QUESTION, generator=slow_model))
        await is_asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return answer.text

    threads = threading.active_count()
    assert asyncio.run(answer_and_cancel()) == "80 degrees [1]."
    assert threading.active_count() <= threads


def test_mistakes_are_named(docs: Document) -> None:
    """As those of `search`."""
    with pytest.raises(ConfigError, match="topk"):
        docs.ask(QUESTION, 0)
    with pytest.raises(ConfigError, match="chat model"):
        docs.ask(QUESTION, generator=3)  # type: ignore[arg-type]
    with pytest.raises(NotRegisteredError, match="Known"):
        docs.ask(QUESTION, group="pages")
    with pytest.raises(UnknownKeywordError, match="generator"):
        docs.ask(QUESTION, llm=print)  # type: ignore[call-arg]


def test_a_model_that_fails_or_cites_what_is_not_there(docs: Document) -> None:
    """The error keeps the context; a citation without a source is reported."""

    def broken(prompt: str) -> str:
        raise OSError("no network")

    with pytest.raises(GenerationError, match="no network") as error:
        docs.ask(QUESTION, generator=broken)
    assert error.value.context.sources
    with pytest.warns(AnswerWarning, match="99"):
        docs.ask(QUESTION, generator=lambda prompt: "It is hot [99].")
