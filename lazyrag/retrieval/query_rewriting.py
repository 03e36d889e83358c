"""`QueryRewriter`: a question in other words, in parts, or as a passage that would answer it, by a chat model."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from lazyrag.errors import ConfigError, GenerationError, known_names
from lazyrag.models.chat import ChatCallable, UnreadableAnswerError, as_chat_model, visible
from lazyrag.models.protocols import ChatModel, ChatOptions
from lazyrag.transforms.llm import bulleted, find_json, is_chinese, read_lines
from lazyrag.validation import known_arguments, known_keywords, whole_number

RewritingTask: TypeAlias = Literal["rephrase", "split", "passage"]
Language: TypeAlias = Literal["auto", "en", "zh"]

TASKS: tuple[RewritingTask, ...] = ("rephrase", "split", "passage")
LANGUAGES: tuple[Language, ...] = ("auto", "en", "zh")

PROMPTS: Mapping[tuple[str, str], str] = {
    ("rephrase", "en"): (
        "Write {n} other ways to ask the question below, for a search engine. Use other words where there are any, "
        "keep names and numbers as they are, and do not answer it. Write one on each line and nothing else.\n\n"
        "Question: {query}"
    ),
    ("rephrase", "zh"): (
        "请为搜索引擎把下面的问题换成 {n} 种不同的问法。尽量换用别的词语，名称和数字保持原样，不要回答问题。"
        "每行写一个，不要写别的内容。\n\n问题：{query}"
    ),
    ("split", "en"): (
        "Take the question below apart into at most {n} simpler questions that can be searched one by one and that "
        "together answer it. Each must be clear by itself. Write one on each line and nothing else; where it is "
        "simple already, repeat it.\n\nQuestion: {query}"
    ),
    ("split", "zh"): (
        "把下面的问题拆成最多 {n} 个可以分别检索的简单问题，合起来能回答原问题。每个问题都要能单独看懂。"
        "每行写一个，不要写别的内容；如果问题已经很简单，就照抄一遍。\n\n问题：{query}"
    ),
    ("passage", "en"): (
        "Write a short passage, as it might stand in a handbook, that answers the question below. Write the passage "
        "alone, in two or three sentences.\n\nQuestion: {query}"
    ),
    ("passage", "zh"): (
        "写一小段可能出现在手册中的文字来回答下面的问题。只写这段文字，两三句话即可。\n\n问题：{query}"
    ),
}
"""The built-in prompts, by task and language."""

_BEGINS_JSON = re.compile(r"(?:\A|\n|[:：])[ \t]*[\[{［｛]|[\]}］｝]`*\s*\Z")
"""Where an answer may be JSON: at the beginning of a line, behind a colon, at the end. Not in a sentence."""
_EDGES = " \t\r\n*_`\"'“”‘’「」『』"
_LABEL = re.compile(
    r"(?:(?:rephrased |sub-?)?(?:q(?:uer(?:y|ies)|uestions?)?|search)|子?问题|查询|问法|问)"
    r"[ \t]*\d{0,3}[ \t]*[:：][ \t]*",
    re.IGNORECASE,
)
"""What may stand before a question, at its beginning alone: ``FAQ: `` is part of one."""

_KEY = re.compile(
    r"(?:(?:re)?phrased|rewritten|sub)?[ _-]?(?:q|query|question|text|wording|子?问题|查询|问法|问)[ _-]?\d{0,3}"
    r"|[^\W\d_]{0,40}[ _-]?\d{1,3}",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"(?:i['’]m |i am |we['’]re |we are )?(?:very |so |deeply )?sorry[,.;:!—]|i apologi[sz]e\b|unfortunately, i\b"
    r"|(?:as an ai|as a language model)\b"
    r"|i (?:cannot|can['’]t|can not|won['’]t|am (?:unable|not able) to|['’]m (?:unable|not able) to) "
    r"(?:help|assist|answer|provide|rephrase|rewrite|comply|fulfil|do (?:that|this))"
    r"|(?:很|非常|十分)?(?:抱歉|对不起)[，,。！!；;]|我(?:无法|不能|没法)(?:回答|提供|帮|协助|改写|满足|完成)|作为一?[个名]?(?:AI|人工智能|语言模型)",
    re.IGNORECASE,
)
_CHATTER = re.compile(
    r"(?:sure|certainly|of course|absolutely|okay|ok|got it|great question|no problem|好的|当然(?:可以)?|没问题)"
    r"[ \t]*(?:[!.,。！，~～].{0,120})?"
    r"|(?:(?:i )?hope (?:this|these|that|it)\b|let me know\b|feel free\b).*"
    r"|(?:希望(?:这|以上|对[您你]|能)|如[果需有].{0,20}(?:告诉我|告知|随时)).*",
    re.IGNORECASE,
)


@known_arguments
class QueryRewriter:
    r"""Rewrites a question by a chat model, for `MultiQueryRetriever` and wherever more queries help.

    Args:
        model: A `ChatModel`, or a callable from a text to a text.
        task: ``"rephrase"``: other wordings. ``"split"``: simpler questions that together answer it. ``"passage"``: one
            passage that would answer it, to be searched for by its embedding (HyDE).
        n: At most so many texts; a passage is always one.
        prompt: Instead of the built-in one: a text with ``{query}`` in it, and perhaps ``{n}``.
        language: Of the built-in prompt; ``"auto"`` is the question's: Chinese or English.
        options: Passed to the model.

    Raises:
        ConfigError: If an argument is out of its range, or the prompt names no ``{query}``.

    Source:
        Passages: Gao, Ma, Lin, Callan: Precise Zero-Shot Dense Retrieval without Relevance Labels, ACL 2023,
        doi:10.18653/v1/2023.acl-long.99.

    Example:
        >>> rewriter = QueryRewriter(lambda prompt: "1. How warm should the water be?\n2. Water for tea?", n=2)
        >>> rewriter("How hot for tea?")
        ['How warm should the water be?', 'Water for tea?']
    """

    def __init__(
        self,
        model: ChatModel | ChatCallable,
        task: RewritingTask = "rephrase",
        n: int = 3,
        *,
        prompt: str | None = None,
        language: Language = "auto",
        options: ChatOptions | None = None,
    ) -> None:
        self._model = as_chat_model(model)
        if task not in TASKS:
            msg = f"QueryRewriter got task={task!r}. {known_names(str(task), TASKS)}"
            raise ConfigError(msg)
        if language not in LANGUAGES:
            msg = f"QueryRewriter got language={language!r}. {known_names(str(language), LANGUAGES)}"
            raise ConfigError(msg)
        if not isinstance(options, (ChatOptions, type(None))):
            msg = f"QueryRewriter got options={options!r:.80}; give a ChatOptions."
            raise ConfigError(msg)
        self._task = task
        self._n = whole_number("n", n, 1)
        self._prompt = None if prompt is None else _checked_prompt(prompt)
        self._language = language
        self._options = options

    @known_keywords
    def __call__(self, query: str) -> list[str]:
        """The texts that the model wrote for a question, at most ``n``, each once.

        Where it repeats the question among others, that takes no place; where it gives nothing else, it is what it is.

        Raises:
            GenerationError: If the model fails, or its answer holds no text.
        """
        language = self._language if self._language != "auto" else "zh" if is_chinese(query) else "en"
        template = self._prompt or PROMPTS[self._task, language]
        choice = self._model.chat(template.format(query=query, n=self._n), self._options).choices[0]
        try:
            if self._task == "passage":
                return [visible(choice.text)]
            told = read_queries(choice.text, choice.finish_reason == "length")
            return ([one for one in told if same(one) != same(query)] or told)[: self._n]
        except UnreadableAnswerError as exc:
            msg = f"The chat model's answer to the question {query!r:.60} cannot be used: {exc}. Ask again, or another."
            raise GenerationError(msg) from exc


def read_queries(answer: str, is_cut: bool = False) -> list[str]:
    r"""Queries from a list in whatever shape: JSON, numbers, bullets, lines; each of them once.

    Bare lines cannot be told from what a model says beside them but by its wording: the usual ways to refuse are an
    error, the usual politeness is left out.

    Args:
        answer: A chat model's.
        is_cut: Whether the model was stopped in the middle of it: then the last query is not whole.

    Raises:
        UnreadableAnswerError: If it holds none, refuses, or is JSON of another kind.

    Example:
        >>> read_queries("Here you are:\n\n- How hot?\n- Which *water*?")
        ['How hot?', 'Which *water*?']
        >>> read_queries('```json\n{"queries": ["怎么泡茶？", "水温多少？"]}\n```')
        ['怎么泡茶？', '水温多少？']
    """
    text = visible(answer)
    told = find_json(text, _is_json) if _BEGINS_JSON.search(text) else None
    if told is not None:
        found = find_json(text, lambda value: bool(_texts_in(value)))
        if found is None:
            msg = "it is JSON without a list of texts, or of objects with a 'query'"
            raise UnreadableAnswerError(msg)
        return _distinct(_texts_in(found.value))
    lines = bulleted(text) or _bare_lines(text)
    return _distinct(lines[:-1] if is_cut and len(lines) > 1 else lines)


def _bare_lines(text: str) -> list[str]:
    lines = [line for line in read_lines(text, is_cut=False) if not line.endswith((":", "："))]
    kept = [line for line in lines if not _CHATTER.fullmatch(line)]
    if kept and _REFUSAL.match(kept[0]):
        msg = f"it refuses: {kept[0]!r:.80}"
        raise UnreadableAnswerError(msg)
    return kept


def _is_json(value: Any) -> bool:
    """Whether JSON is more than brackets that a sentence may have, such as ``[1]``."""
    return isinstance(value, Mapping) or (
        isinstance(value, list) and any(isinstance(one, (str, list, Mapping)) for one in value)
    )


def _texts_in(value: Any) -> list[str]:
    """The texts of a list, of the only list in a mapping, or of a mapping by its keys; what is in them, likewise."""
    if isinstance(value, Mapping):
        lists = [one for one in value.values() if isinstance(one, list)]
        inner = [one for one in value.values() if isinstance(one, Mapping)]
        value = lists[0] if len(lists) == 1 else _named(value) or (inner if len(inner) == 1 else [])
    return [one for one in _flat(value) if any(map(str.isalnum, one))]


def _flat(value: Any) -> list[str]:
    """The texts in a list and the lists and mappings in it, as they come."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):  # one without the keys of questions may have one text under any key
        value = _named(value) or (list(value.values()) if len(value) == 1 else [])
    return [text for one in value for text in _flat(one)] if isinstance(value, list) else []


def _named(item: Mapping[str, Any]) -> list[Any]:
    """What a mapping tells under the keys of questions."""
    return [one for key, one in item.items() if _KEY.fullmatch(str(key).strip())]


def _distinct(given: Iterable[str]) -> list[str]:
    found: dict[str, str] = {}
    for one in given:
        query = _unlabelled(" ".join(one.split()).strip(_EDGES)).strip(_EDGES)
        if any(map(str.isalnum, query)):
            found.setdefault(same(query), query)
    if not found:
        msg = "it holds no question"
        raise UnreadableAnswerError(msg)
    return list(found.values())


def _unlabelled(text: str) -> str:
    label = _LABEL.match(text)
    return text[label.end() :] if label else text


def same(query: str) -> str:
    """What queries have in common that are the same but for white space and case."""
    return " ".join(query.split()).casefold()


def _checked_prompt(prompt: Any) -> str:
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(prompt) if name is not None}
    except (TypeError, ValueError) as exc:
        msg = f"QueryRewriter got prompt={prompt!r:.80}, which cannot be read ({exc}); write {{{{ and }}}} for braces."
        raise ConfigError(msg) from exc
    if not {"query"} <= fields <= {"query", "n"}:
        msg = (
            f"QueryRewriter got prompt={prompt!r:.80}; it must name {{query}}, may name {{n}} and nothing else. "
            "Write {{ and }} for braces."
        )
        raise ConfigError(msg)
    return str(prompt)
