"""From a chat model's answer to what was asked for: a summary, keywords, pairs of question and answer.

Models write thoughts before an answer, prose around it, lists in every shape. Each reader here takes what stands there,
leaves out what was cut in its middle, and raises `UnreadableAnswerError` where nothing is left. None of them makes up a
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from lazyrag.models.answers import UnreadableAnswerError, visible
from lazyrag.text.sentences import sentence_ends
from lazyrag.transforms.llm_json import find_json

_LONGEST_KEYWORD = 80
_MOST_WORDS = 5  # of a keyword in plain text; a line with more is a sentence
_MOST_ITEMS = 200

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[\w+-]*[ \t]*\n(.*?)(?:^[ \t]*(?:```|~~~)[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_HTML = re.compile(r"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
_BULLET = re.compile(
    r"[ \t]*(?:(?:[-*+•·–‣▪●]|\(?\d{1,3}[.)．])(?:[ \t]+|(?=[^\s\d*.-]))|(?:\d{1,3}、|（?\d{1,3}）|[①-⑳])[ \t]*)"
)
_SUMMARY_LABEL = re.compile(
    r"[#*_\s]*(?:summary|内容摘要|摘要|总结|概要|概述)(?:[*_\s]*[:：]|[*_ ]*\n)[*_\s]*", re.IGNORECASE
)
_KEYWORDS_LABEL = re.compile(
    r"[^\n:：]{0,60}(?:key[ -]?words?|key terms?|tags|关键词|關鍵詞|关键字)[^\n:：]{0,40}[:：][*_ \t]*", re.IGNORECASE
)
_PREAMBLE = re.compile(
    r"\s*(?:(?:sure|certainly|of course|okay|ok|here (?:is|are)|here's)\b|好的|当然|以下是|下面是)"
    r"[^\n]{0,160}[:：][*_ \t]*\n+",
    re.IGNORECASE,
)
_REFUSAL = re.compile(r"(?:i'm|i am|i can|i could|sorry|unfortunately)\b|(?:很?抱歉|对不起|我无法)", re.IGNORECASE)
_BETWEEN_KEYWORDS = re.compile(r"[,，、;；\n|]")
_BOLD_NAME = re.compile(r"(\*\*|__)(.+?)\1\s*(?:[:：—–-]|\Z)")
_EDGES = " \t\r\n*_`\"'“”‘’「」『』《》.。,，;；:：、"
_QUESTION = r"q(?:uestion)?|query|问题?|問題?|提问"
_ANSWER = r"a(?:nswer)?|答案?|回答"
_MARK = (
    r"[ \t]*(?:[-*+•#>]+[ \t]+)?(?:\d{{1,3}}[.)、．][ \t]*)?[*_]{{0,2}}(?:{})"
    r"[ \t]*(?:\d{{0,3}}[*_]{{0,2}}[ \t]*[:：]|\d{{1,3}}\.)[*_]{{0,2}}[ \t]*"
)
_ALONE = r"|[#*_ \t]*(?:{})[ \t]*\d{{0,3}}[*_ \t]*\Z"  # a heading
_QUESTION_MARK = re.compile(_MARK.format(_QUESTION) + _ALONE.format("question|问题"), re.IGNORECASE)
_ANSWER_MARK = re.compile(_MARK.format(_ANSWER) + _ALONE.format("answer|答案|回答"), re.IGNORECASE)
_ANSWER_WITHIN = re.compile(
    r"\s[*_]{0,2}(?:a(?:nswer)?|答案?|回答)[*_]{0,2}[:：][*_]{0,2}[ \t]*|(?<=[?？])(?:答案?|回答)[:：][ \t]*",
    re.IGNORECASE,
)
_QUESTION_KEYS = ("question", "query", "q", "问题", "问", "提问")
_ANSWER_KEYS = ("answer", "a", "response", "答案", "答", "回答")

Reader: TypeAlias = Callable[[str, bool], Any]
"""Takes an answer, and whether the model was stopped in the middle of it."""


def read_text(answer: str, is_cut: bool) -> list[str]:
    """The answer as it is, thoughts left out."""
    if is_cut:
        msg = "the answer was cut at the model's limit of tokens"
        raise UnreadableAnswerError(msg)
    return [visible(answer)]


def read_summary(answer: str, is_cut: bool) -> list[str]:
    """One text, without a label or a preamble; where it was cut, its whole sentences.

    Example:
        >>> read_summary("**Summary:** Tea keeps.", False)
        ['Tea keeps.']
    """
    text = _of_a_model(answer)
    told = find_json(text, lambda value: isinstance(value, Mapping)) if text.startswith(("{", "```")) else None
    if told is not None:
        named = [one for key, one in told.value.items() if key.lower() in ("summary", "摘要", "总结")]
        if not named or not isinstance(named[0], str):
            msg = "the answer is JSON without a summary"
            raise UnreadableAnswerError(msg)
        text = named[0].strip()
    else:
        fenced = _FENCE.fullmatch(text)
        text = (fenced[1] if fenced else text).strip()
        text = text[match.end() :] if (match := _PREAMBLE.match(text)) else text
        text = (text[match.end() :] if (match := _SUMMARY_LABEL.match(text)) else text).strip()
        if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
            text = text[1:-1].strip()
    if is_cut:
        text = _whole_sentences(text)
    return checked([text])


def read_keywords(answer: str, is_cut: bool) -> list[str]:
    """Keywords from a list in whatever shape: JSON, bullets, numbers, commas of all kinds; each of them once.

    Example:
        >>> read_keywords("Keywords: green tea，black tea、Green Tea", False)
        ['green tea', 'black tea']
    """
    text = _of_a_model(answer)
    found = find_json(text, _is_keywords, takes_words=True)
    if found is not None:
        given = _keywords_in(found.value)
        return _distinct([one for one in given if len(one) <= _LONGEST_KEYWORD], edges=None)
    fenced = _FENCE.search(text)
    text = (fenced[1] if fenced else text).strip()
    if _OPENING_JSON.match(text):
        msg = "the answer is no list of texts"
        raise UnreadableAnswerError(msg)
    text = text[match.end() :] if (match := _PREAMBLE.match(text)) else text
    label = _KEYWORDS_LABEL.match(text)
    text = text[label.end() :] if label else text
    bullets = bulleted(text)
    if bullets:
        return _distinct(_without_last(bullets, is_cut=is_cut), most=_LONGEST_KEYWORD)
    if _REFUSAL.match(text):
        msg = "the answer says that there are none"
        raise UnreadableAnswerError(msg)
    given = [one for one in _BETWEEN_KEYWORDS.split(text) if one.strip(_EDGES)]
    long = [one for one in given if len(one.strip()) > _LONGEST_KEYWORD or len(one.split()) > _MOST_WORDS]
    if long:
        msg = f"{long[0].strip()[:60]!r} is a sentence and no keyword"
        raise UnreadableAnswerError(msg)
    return _distinct(_without_last(given, is_cut=is_cut))


def read_pairs(answer: str, is_cut: bool) -> list[tuple[str, str]]:
    r"""Pairs of question and answer, from lines that begin with Q: and A: (问：, 答：) or from JSON.

    Example:
        >>> read_pairs("1. **问：** 茶怎么存？\n答：避光。", False)
        [('茶怎么存？', '避光。')]
    """
    text = _of_a_model(answer)
    found = find_json(text, lambda value: any(True for _ in _pairs_in(value)))
    pairs = list(_pairs_in(found.value)) if found is not None else _pairs_of_lines(text, is_cut=is_cut)
    kept = list(dict.fromkeys((question, told) for question, told in pairs if question and told))
    if not kept:
        msg = "the answer holds no question with its answer"
        raise UnreadableAnswerError(msg)
    checked(one for pair in kept for one in pair)
    return kept[:_MOST_ITEMS]


def read_lines(answer: str, is_cut: bool) -> list[str]:
    """Each line that is not blank, without the mark or number that it begins with; fences left out."""
    text = read_text(answer, is_cut)[0]
    fenced = _FENCE.fullmatch(text)
    lines = [_unbulleted(line) for line in (fenced[1] if fenced else text).splitlines()]
    return checked([line for line in lines if line])


def read_json(answer: str, is_cut: bool) -> list[Any]:
    """The items of the first list of JSON, or the first mapping, as one item."""
    text = visible(answer)
    found = find_json(text, lambda value: isinstance(value, (list, dict)))
    if found is None or found.is_cut or (is_cut and not text.endswith(("]", "}", "`"))):
        msg = "the answer holds no whole JSON list or object"
        raise UnreadableAnswerError(msg)
    try:
        json.dumps(found.value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as exc:
        msg = f"the answer's JSON cannot be kept ({exc})"
        raise UnreadableAnswerError(msg) from None
    return found.value if isinstance(found.value, list) else [found.value]


def checked(texts: Iterable[str]) -> list[str]:
    """Texts that can be kept.

    Raises:
        UnreadableAnswerError: If there is none, one is blank or holds half a character.
    """
    found = list(texts)
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        msg = "the answer holds half a character (a lone surrogate)"
        raise UnreadableAnswerError(msg) from None
    if not found or not all(one.strip() for one in found):
        msg = "the answer is empty"
        raise UnreadableAnswerError(msg)
    return found


_OPENING_JSON = re.compile(r"[\[{［｛]\s*[\[{［｛\"'\]}“\d-]")


def _of_a_model(answer: str) -> str:
    text = visible(answer)
    if _HTML.match(text):
        msg = "the answer is a page of HTML"
        raise UnreadableAnswerError(msg)
    return text


def _whole_sentences(text: str) -> str:
    if text.rstrip().endswith((".", "!", "?", "。", "！", "？")):
        return text
    ends = sentence_ends(text)
    if len(ends) < 2:
        msg = "the answer was cut in its first sentence, at the model's limit of tokens"
        raise UnreadableAnswerError(msg)
    return text[: ends[-2]].strip()


def _is_keywords(value: Any) -> bool:
    return any(len(one) <= _LONGEST_KEYWORD and any(map(str.isalnum, one)) for one in _keywords_in(value))


def _keywords_in(value: Any) -> list[str]:
    """The texts of a list, or of the only list in a mapping."""
    if isinstance(value, Mapping):
        lists = [one for one in value.values() if isinstance(one, list)]
        value = lists[0] if len(lists) == 1 else []
    if not isinstance(value, list):
        return []
    texts = [one for one in value if isinstance(one, str)]
    return texts if len(texts) * 2 > len(value) else []


def bulleted(text: str) -> list[str]:
    """What the lines with a mark or a number say; a name in bold alone, where an explanation follows it."""
    found = []
    for line in text.splitlines():
        mark = _BULLET.match(line)
        if mark:
            told = line[mark.end() :].strip()
            bold = _BOLD_NAME.match(told)
            found.append(bold[2] if bold else told)
    return found


def _unbulleted(line: str) -> str:
    mark = _BULLET.match(line)
    return (line[mark.end() :] if mark else line).strip()


def _without_last(items: list[str], *, is_cut: bool) -> list[str]:
    return items[:-1] if is_cut else items


def _distinct(given: Iterable[str], most: int | None = None, edges: str | None = _EDGES) -> list[str]:
    """Each of some keywords once, however it is written, in the order of their first places."""
    found: dict[str, str] = {}
    for one in given:
        keyword = " ".join(one.lstrip(edges and edges.replace(".", "")).rstrip(edges).split())  # .NET keeps its dot
        if any(map(str.isalnum, keyword)) and (most is None or len(keyword) <= most):
            found.setdefault(keyword.casefold(), keyword)
    if not found:
        msg = "the answer holds no keyword"
        raise UnreadableAnswerError(msg)
    return checked(list(found.values())[:_MOST_ITEMS])


def _pairs_in(value: Any) -> Iterator[tuple[str, str]]:
    """The pairs of a list of mappings or of pairs, of one mapping, or of the lists in one."""
    if isinstance(value, Mapping):
        named = {str(key).strip().lower(): one for key, one in value.items()}
        question = next((named[key] for key in _QUESTION_KEYS if key in named), None)
        answer = next((named[key] for key in _ANSWER_KEYS if key in named), None)
        if _is_told(question) and _is_told(answer):
            yield str(question).strip(), str(answer).strip()
        elif question is None and answer is None:
            for one in value.values():
                yield from _pairs_in(one) if isinstance(one, list) else ()
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, Mapping):
                yield from _pairs_in(one)
            elif (
                isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) and part.strip() for part in one)
            ):
                yield one[0].strip(), one[1].strip()


def _is_told(value: Any) -> bool:
    return (isinstance(value, str) and bool(value.strip())) or (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    )


def _pairs_of_lines(text: str, *, is_cut: bool) -> list[tuple[str, str]]:
    """Pairs from marked lines. A blank line ends an answer, unless a list or what a colon announces comes behind it."""
    fenced = _FENCE.search(text)
    if fenced and any(map(_QUESTION_MARK.match, fenced[1].splitlines())):
        text = text[: fenced.start()] + fenced[1]
    pairs: list[tuple[list[str], list[str]]] = []
    part: list[str] | None = None
    was_blank = False
    for line in text.splitlines():
        asks, answers = _QUESTION_MARK.match(line), _ANSWER_MARK.match(line)
        if asks:
            pairs.append(([line[asks.end() :]], []))
            part = pairs[-1][0]
        elif answers:
            part = pairs[-1][1] if pairs and not pairs[-1][1] else None
            if part is not None:
                part.append(line[answers.end() :])
        elif part is not None and line.strip():
            if was_blank and any(one.strip() for one in part) and not _goes_on(part, line):
                part = None
            else:
                part.append(line)
        was_blank = not line.strip()
    found = [_joined(question, answer) for question, answer in pairs]
    return found[:-1] if is_cut else found


def _goes_on(part: list[str], line: str) -> bool:
    return bool(_BULLET.match(line)) or line.startswith(("  ", "\t")) or part[-1].rstrip().endswith((":", "："))


def _joined(question: list[str], answer: list[str]) -> tuple[str, str]:
    asked, told = (_unmarked("\n".join(lines).strip()) for lines in (question, answer))
    within = _ANSWER_WITHIN.search(asked) if not told else None
    return (asked[: within.start()].strip(), asked[within.end() :].strip()) if within else (asked, told)


def _unmarked(text: str) -> str:
    """A text without the end of what began as bold before it: ``**Q: Why?**``."""
    return text.removesuffix("**").rstrip() if text.count("**") % 2 else text
