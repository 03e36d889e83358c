"""Prompting and generating as steps: the texts and the question as one ``prompt``, and what a chat model says to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from lazyrag.data.result import GenerationResult, RAGContext, RetrievalResult
from lazyrag.errors import ConfigError, known_names
from lazyrag.generation.generator import Generator
from lazyrag.generation.prompts import Prompts
from lazyrag.generation.templates import ContextTemplate, as_template
from lazyrag.models.chat import ChatCallable
from lazyrag.models.http.chat import HttpChatModel
from lazyrag.models.protocol import ChatModel
from lazyrag.operators.data import RAGData, latest_docs, query_of
from lazyrag.operators.operator import Operator
from lazyrag.text.sentences import Language, spoken
from lazyrag.validation import known_arguments

_PLAIN = {"item": "{text}", "separator": "\n"}  # the texts, line by line, without numbers and names
TEMPLATES: Mapping[str, ContextTemplate] = {
    "zh": ContextTemplate(
        "根据以下上下文回答问题:\n上下文: {sources}\n问题: {query}\n答案:",
        item="{text}",
        separator="\n",
        nothing="（无）",
    ),
    "en": ContextTemplate(
        "Answer the question from the following context.\nContext: {sources}\nQuestion: {query}\nAnswer:",
        **_PLAIN,
    ),
}
"""Spec 000's prompt, and the same in English."""


class QAPromptor(Operator):
    """Writes the prompt (spec 000's prompting stage).

    It reads ``refining_docs``, else ``reranking_docs``, else ``retrieval_docs``; without any, the prompt says so. Texts
    are put in as they are: braces in them mean nothing.

    Args:
        template: A `ContextTemplate`, or its frame, a text with ``{sources}`` and ``{query}``; None: `TEMPLATES`.
        language: Of the default template: ``"zh"``, ``"en"``, or ``"auto"`` for the question's.

    Raises:
        ConfigError: If the template is none.

    Example:
        >>> print(QAPromptor()({"query": "多热?", "retrieval_docs": ["80 度的水。"]})["prompt"])
        根据以下上下文回答问题:
        上下文: 80 度的水。
        问题: 多热?
        答案:
    """

    writes: ClassVar = ("prompt",)

    def __init__(self, template: ContextTemplate | str | None = None, *, language: Language = "auto") -> None:
        if language not in get_args(Language):
            msg = f"language is {language!r:.60}. {known_names(str(language), get_args(Language))}"
            raise ConfigError(msg)
        given = ContextTemplate(template, **_PLAIN) if isinstance(template, str) else template
        self._template = None if given is None else as_template(given)
        self._language: Language = language

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The prompt."""
        query = query_of(data)
        _, docs = latest_docs(data)
        template = self._template or TEMPLATES[spoken(self._language, query)]
        return {"prompt": template.fill([(at, "", text) for at, text in enumerate(docs, 1)], query)}


@known_arguments
class OpenAIGenerator(Operator):
    """Has a chat model answer the prompt (spec 000's generation stage).

    It reads ``prompt``, which is all that the model is sent, and appends ``generated`` and ``generation_time``.
    Thoughts before the answer are taken off.

    Args:
        model: The model's name at ``base_url``; or a chat model, a callable from a text to a text, or a `Generator`,
            whose own system message then goes before the prompt.
        base_url: The endpoint, which speaks OpenAI's protocol.
        api_key: Its key; None takes LAZYRAG_API_KEY or OPENAI_API_KEY where they are set.

    Raises:
        ConfigError: If a name comes without base_url, or a model with one.

    Example:
        >>> data = {"query": "How hot?", "prompt": "Answer: how hot?"}
        >>> OpenAIGenerator(lambda prompt: "80 degrees.")(data)["generated"]
        '80 degrees.'
    """

    writes: ClassVar = ("generated", "generation_time")

    def __init__(
        self,
        model: str | Generator | ChatModel | ChatCallable,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        if isinstance(model, str) != (base_url is not None):
            msg = (
                f"OpenAIGenerator got model={model!r:.60} and base_url={base_url!r:.60}; give a model's name with the "
                "base_url of its server, or a chat model alone."
            )
            raise ConfigError(msg)
        asked = HttpChatModel(str(base_url), model, api_key=api_key) if isinstance(model, str) else model
        # The prompt is whole: no system message goes before it.
        self.generator = asked if isinstance(asked, Generator) else Generator(asked, prompts=Prompts(None, None))

    def __repr__(self) -> str:
        return f"OpenAIGenerator({self.generator.model!r})"

    def process(self, data: RAGData) -> Mapping[str, Any]:
        """The answer."""
        begun = time.perf_counter()
        return _fields(self.generator.generate(_context(data)), begun)

    async def aprocess(self, data: RAGData) -> Mapping[str, Any]:
        """The answer; cancelling the task ends the model's call.

        Raises:
            ConfigError: If there is no prompt.
            GenerationError: If the model fails.
        """
        begun = time.perf_counter()
        return _fields(await self.generator.agenerate(_context(data)), begun)


def _context(data: RAGData) -> RAGContext:
    prompt = data.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        msg = f"prompt is {prompt!r:.60}; a text is needed. Put QAPromptor() before the generator."
        raise ConfigError(msg)
    return RAGContext(str(data.get("query") or ""), prompt, RetrievalResult([]), 0)


def _fields(result: GenerationResult[Any], begun: float) -> Mapping[str, Any]:
    return {"generated": result.response, "generation_time": time.perf_counter() - begun}
