"""LLMParser: nodes that a chat model writes, such as summaries, keywords, questions with their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError, GenerationError, TransformError, known_names, sentence
from lazyrag.models.chat import CallableChatModel, ChatCallable, as_chat_model
from lazyrag.models.protocol import ChatModel, ChatOptions, Message
from lazyrag.transforms import llm_answers as answers
from lazyrag.transforms.base import NodeTransform
from lazyrag.transforms.llm_calls import Answered, Calls
from lazyrag.transforms.llm_prompts import (
    LANGUAGES,
    PROMPTS,
    TASKS,
    asked_again,
    filled,
    is_chinese,
    template_fields,
)
from lazyrag.validation import known_arguments, whole_number

Language: TypeAlias = Literal["auto", "en", "zh"]
TaskType: TypeAlias = Literal["summary", "keywords", "qa", "custom"]
Parse: TypeAlias = "Literal['text', 'lines', 'json'] | Callable[[str], Any]"

_READERS: Mapping[str, answers.Reader] = {
    "summary": answers.read_summary,
    "keywords": answers.read_keywords,
    "qa": answers.read_pairs,
}
_FORMATS: Mapping[str, answers.Reader] = {
    "text": answers.read_text,
    "lines": answers.read_lines,
    "json": answers.read_json,
}
_REPEATED = 4_000  # characters of an answer that its model sees again
_SHOWN = 200
_REMEMBERED = 20_000_000  # characters of answers


@known_arguments
class LLMParser(NodeTransform):
    r"""Asks a chat model for the nodes of a group (spec 001): summaries, keywords, questions with their answers.

    ``"summary"`` makes one node of each node; ``"keywords"`` one for each keyword; ``"qa"`` one for each question that
    the text answers, with the answer in its metadata: the question is what is searched, and `DocNode.get_content` gives
    both. ``"custom"`` makes what a prompt of yours asks for.

    An answer that cannot be read is asked for again, with the reason; then its file fails with a TransformError. Blank
    text is never sent. Equal settings are one definition, so that nothing is asked for twice, see
    `lazyrag.Document.create_node_group`.

    Args:
        llm: A ChatModel, or a callable that turns a text into a text.
        language: ``"zh"`` or ``"en"``: what the model is spoken to and writes in. ``"auto"``: as the text is.
        task_type: ``"summary"``, ``"keywords"``, ``"qa"`` or ``"custom"``.
        prompts: In place of the built-in prompt: a text with ``{text}`` in it, or a mapping from task to such texts.
            ``{parent}``, ``{document}`` and ``{heading}`` may stand in it as well; ``{{`` and ``}}`` are braces.
        num_workers: At most so many calls at once, over all threads.
        parse: What becomes of a custom prompt's answer: ``"text"`` makes a node of it, ``"lines"`` of each line,
            ``"json"`` of each item of a list; a callable gets the text and returns what a transform may return, and a
            ValueError asks again.
        retries: How many more times the model is asked if its answer cannot be read, at least 0.

    Raises:
        ConfigError: If a value is none of these.

    Example:
        >>> parser = LLMParser(lambda prompt: '["green tea", "water"]', "en", "keywords")
        >>> parser("Green tea wants water of 80 degrees.")
        ['green tea', 'water']
    """

    calls_per_node = 1
    """What `lazyrag.Document.plan` counts: an answer that has to be asked for again costs more."""

    def __init__(
        self,
        llm: ChatModel | ChatCallable,
        language: Language = "auto",
        task_type: TaskType = "summary",
        prompts: str | Mapping[str, str] | None = None,
        num_workers: int = 8,
        *,
        parse: Parse = "text",
        retries: int = 2,
    ) -> None:
        self.language = _known("language", language, LANGUAGES)
        self.task_type = _known("task_type", task_type, TASKS)
        self.num_workers = whole_number("num_workers", num_workers, 1)
        self.retries = whole_number("retries", retries, 0)
        self.prompt = _own_prompt(self.task_type, prompts)
        self.parse = parse
        self._read = _reader(self.task_type, parse)
        self._model = as_chat_model(llm)
        self._calls = Calls(self.num_workers)
        self._answered = Answered(_REMEMBERED)
        templates = [self.prompt] if self.prompt is not None else [PROMPTS[self.task_type, one] for one in ("en", "zh")]
        self._fields = frozenset(name for one in templates for name in template_fields("The prompt", one))
        self.reads_text_only = self._fields == {"text"} and type(self) is LLMParser

    @property
    def identity(self) -> str | None:  # type: ignore[override]  # what it rests on may change: a model's options
        """The task, its prompt and the model, as far as the model says what it is; None for a subclass."""
        if type(self) is not LLMParser:  # it may do anything, so its code has to count
            return None
        options = getattr(self._model, "options", None)
        told = {
            "model": self._model.identity,
            "options": repr(options) if isinstance(options, ChatOptions) else "",
            "task": self.task_type,
            "language": self.language,
            "prompt": self.prompt,
            "parse": self.parse if self.task_type == "custom" and isinstance(self.parse, str) else "",
        }
        return f"LLMParser/1 {json.dumps(told, ensure_ascii=False)}"

    @property
    def identity_rests_on(self) -> Mapping[str, Any]:
        """What `identity` does not tell: a model that does not say which one it is, a parse function."""
        held: dict[str, Any] = {}
        if not self._model.identity:
            held["llm"] = self._model.function if isinstance(self._model, CallableChatModel) else self._model
        if self.task_type == "custom" and not isinstance(self.parse, str):
            held["parse"] = self.parse
        return held

    def __call__(self, node: DocNode | str) -> list[Any]:
        """What the model makes of a node, or of a text, as functions on text call it."""
        return self.transform(DocNode(text=node) if isinstance(node, str) else node)

    def transform(self, node: DocNode) -> list[Any]:
        """Ask the model about one node.

        Raises:
            TransformError: If the model fails, or no answer can be read.
        """
        return next(self._together([node]))

    def transform_all(self, nodes: Sequence[DocNode]) -> Iterator[list[Any]]:
        """Ask about several nodes at once; what comes of each, in order."""
        if type(self).transform is not LLMParser.transform:  # a subclass looks at each by itself
            return map(self.transform, nodes)
        return self._together(nodes)

    def _together(self, nodes: Sequence[DocNode]) -> Iterator[list[Any]]:
        inked = [node for node in nodes if node.get_text().strip()]
        results = self._calls.in_order(self._ask, inked)
        for node in nodes:
            yield next(results) if node.get_text().strip() else []

    def _ask(self, node: DocNode) -> list[Any]:
        text = node.get_text()
        language = self.language if self.language != "auto" else ("zh" if is_chinese(text) else "en")
        template = self.prompt if self.prompt is not None else PROMPTS[self.task_type, language]
        values = {name: _value(name, node) for name in self._fields}
        writes = self.language if self.prompt is None else None
        prompt = filled(template, values, language, writes=writes)
        known = self._answered.get(prompt)
        if known is not None:
            return self._made(self._read(*known))
        first = Message("user", prompt)
        messages = [first]
        tries = 0
        while True:
            answer, is_cut = self._answer(messages, node)
            tries += 1
            try:
                made = self._made(self._read(answer, is_cut))
            except ValueError as exc:
                why = str(exc)[:_SHOWN]
                if tries > self.retries:
                    raise self._unreadable(node, answer, why) from exc
            else:
                self._answered.keep(prompt, answer, is_cut=is_cut)
                return made
            said = [Message("assistant", answer[:_REPEATED])] if answer.strip() else []
            messages = [first, *said, Message("user", asked_again(language, why))]

    def _answer(self, messages: Sequence[Message], node: DocNode) -> tuple[str, bool]:
        try:
            completion = self._model.chat(messages)
            choice = completion.choices[0]
            text = choice.text
        except GenerationError as exc:
            raise TransformError(str(exc), uid=node.uid) from exc
        except Exception as exc:
            msg = sentence(f"The chat model raised {type(exc).__name__}: {exc}")
            raise TransformError(msg, uid=node.uid) from exc
        if not isinstance(text, str):
            msg = f"The chat model answered with {type(text).__name__} ({text!r:.60}); a text is needed."
            raise TransformError(msg, uid=node.uid)
        return text, choice.finish_reason == "length"

    def _made(self, read: Any) -> list[Any]:
        """What a transform returns for what was read."""
        if self.task_type == "qa":
            return [DocNode(text=question, metadata={"answer": answer}) for question, answer in read]
        if isinstance(read, (str, Mapping, DocNode)) or read is None or not hasattr(read, "__iter__"):
            return [read]
        return list(read)

    def _unreadable(self, node: DocNode, answer: str, why: str) -> TransformError:
        shown = " ".join(answer[: 2 * _SHOWN].split())[:_SHOWN]
        times = "once" if self.retries == 0 else f"{1 + self.retries} times"
        msg = (
            f"The chat model was asked {times} for task_type={self.task_type!r}, and the last answer cannot be read: "
            f"{why}. It begins with {shown!r}. Try another model, more max_tokens, or prompts=."
        )
        return TransformError(msg, uid=node.uid)


def _known(what: str, value: Any, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        msg = f"{what} is {value!r:.80}. {known_names(str(value), allowed)}"
        raise ConfigError(msg)
    return value


def _own_prompt(task: str, prompts: Any) -> str | None:
    """The prompt that a user gave for a task; None where there is none."""
    if isinstance(prompts, Mapping):
        for name, template in prompts.items():
            _known("A task in prompts", name, TASKS)
            template_fields(f"prompts[{name!r}]", template)
        prompts = prompts.get(task)
    elif prompts is not None:
        template_fields("prompts", prompts)
    if prompts is None and task == "custom":
        msg = "task_type is 'custom' and prompts has no prompt for it; give a text with {text} in it."
        raise ConfigError(msg)
    own: str | None = prompts
    return own


def _reader(task: str, parse: Any) -> answers.Reader:
    """What reads the answers of a task."""
    if task != "custom":
        if parse != "text":
            msg = (
                f"parse is {parse!r:.80} and task_type {task!r}, whose answers have a form of their own. Leave it out."
            )
            raise ConfigError(msg)
        return _READERS[task]
    if callable(parse):
        return lambda answer, is_cut: parse(answers.read_text(answer, is_cut)[0])
    if not isinstance(parse, str) or parse not in _FORMATS:
        msg = f"parse is {parse!r:.80}. {known_names(str(parse), _FORMATS)} A callable is allowed as well."
        raise ConfigError(msg)
    return _FORMATS[parse]


def _value(name: str, node: DocNode) -> str:
    """What a field of a prompt stands for."""
    if name == "text":
        return node.get_text()
    if name == "heading":
        return str(node.metadata.get("heading", ""))
    if node.reader is None:
        return ""
    if name == "document":
        return node.root.get_text()
    return node.parent.get_text() if node.parent is not None else ""
