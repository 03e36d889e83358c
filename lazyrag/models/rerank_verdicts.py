"""Whether a chat model says yes or no, in English or Chinese, whatever stands around it."""

from __future__ import annotations

import re
import unicodedata

from lazyrag.models.answers import UnreadableAnswerError, visible

THOUGHT_TAG = re.compile(r"<(?P<end>/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_LABEL = re.compile(
    r"(?<![a-z])(?:relevant|relevance|answer|verdict|judge?ment|result|score|rating)['*]*\s*[:=]"
    r"|(?:是否相关|相关性|相关|答案|回答|结论|判断|评分|分数|得分)(?:是|为)?['*”]*\s*[:=]|(?:答案|回答|结论|判断)(?:是|为)"
)
_ASKED = re.compile(r"是否(?!定)|能否|有没有|是不是|能不能|yes ?(?:/|or) ?no|是[/或]否|是非题|判断题")
_FIXED = re.compile(
    "非常|非但|非洲|不仅|不但|不只|不光|不过|不管|不论|不同|不断|无论|无线|毫无疑问|无疑|不可否认|不得不|否则|未来"
    "|没有问题|没问题|没关系|对不起|对于|针对|面对|对比"
    r"|(?<![a-z])(?:not only|not just|no doubt|without (?:a )?doubt|no problem|no question)(?![a-z])"
)
_AGREEING = frozenset("当然 当然是 当然相关 同意 肯定 sure certainly absolutely definitely correct indeed".split())
_LETTERS = {"y": True, "n": False, "1": True, "0": False}
_HEAD = re.compile(
    r"[\W_]*(?:(?P<no>(?:no|not|none)(?![a-z'’/])|(?:false|irrelevant|unrelated)(?=\s*(?:[^\w\s]|$))"
    r"|(?:否|不是|不能|不可以|不对|不|没有|没|无|不相关|无关|否定)的?(?=\W|$))"
    r"|(?P<yes>yes(?!\w|/|\s+(?:or|and)\b)|(?:true|relevant|correct)(?=\s*(?:[^\w\s]|$))"
    r"|(?:是|对|能|可以|有|相关|有关|正确|没错|不错|肯定|真)的?(?=\W|$)))"
)
_LEVEL = re.compile(
    r"[\W_]*(?:(?P<no>low|低|弱|差|0(?=\s*(?:[,}\n]|$)))|(?P<yes>high|高|强|1(?=\s*(?:[,}\n]|$))))(?=\W|$)"
)
_BAD = re.compile(  # what a yes before it cannot mean
    r"不(?:太|怎么|够|大|完全|直接)?相关|无关|(?:不能|无法|没有|未能|并未|不|未)(?:直接)?(?:回答|解答)"
    r"|(?<![a-z])(?:irrelevant|unrelated|(?:not|[a-z]+n['’]t|cannot) (?:\w+ )?(?:relevant|related|answer))"
)
_NO = (
    r"(?<![a-z])(?:no|not|none|never|neither|nor|cannot|unable|irrelevant|unrelated|false|[a-z]+n['’]t)(?![a-z])"
    r"|不|否|没|无|非|未|相关[性度]?(?:很|较|比较|非常|极|太|偏)?[低弱差]|(?<![a-z])low relevance(?![a-z])"
)
_YES = r"(?<![a-z])(?:yes|true|relevant|related)(?![a-z])|相关|有关|可以|能够|能回答|回答了|给出了|正确"
_MARK = re.compile(rf"(?P<no>{_NO})|(?P<yes>{_YES})")
_FIRST = re.compile(r"[\W_]*[是对能有]")
_SIMPLER = str.maketrans("關無沒對錯問題結論評數斷僅滿過來給確強", "关无没对错问题结论评数断仅满过来给确强")
_MARKUP = str.maketrans(dict.fromkeys('*"`「」『』“”#', " "))
_ENDS = re.compile(r"(?<=[.。!?;\n])")


def plain(text: str) -> str:
    """An answer without thoughts, in one form of letters, digits and brackets; "" where nothing else is there.

    Example:
        >>> plain("Hm, yes...</think> ＮＯ"), plain("<think>Yes, as")
        ('no', '')
    """
    try:
        said = visible(text)
    except UnreadableAnswerError:
        return ""
    tags = list(THOUGHT_TAG.finditer(said))
    if tags and not tags[-1]["end"]:  # cut in the middle of a later thought
        said = said[: next(tag.start() for tag in reversed(tags) if not tag["end"])]
    ends = [tag.end() for tag in tags if tag["end"] and tag.end() <= len(said)]
    return unicodedata.normalize("NFKC", said[max(ends, default=0) :]).casefold().translate(_SIMPLER).strip()


def read_verdict(text: str) -> bool | None:
    """Yes or no; None where it cannot be told.

    What stands behind a label such as ``"relevant":`` counts before what stands elsewhere. A yes or no at the beginning
    decides, else the first sentence that says one of both; where it says both, it is no. Questions, thoughts and words
    such as 非常 and "no doubt", which only look like a verdict, are passed over.

    Example:
        >>> [read_verdict(text) for text in ("Yes.", "答案：否", '{"relevant": false}', "Not relevant", "Perhaps")]
        [True, False, False, False, None]
        >>> [read_verdict(text) for text in ("非常相关", "该段落是关于咖啡的，不相关。", "Is it relevant? No.")]
        [True, False, False]
    """
    said = plain(text)
    bare = said.strip(" .。!\"'*`")
    if bare in _LETTERS:
        return _LETTERS[bare]
    if bare in _AGREEING:
        return True
    sentences = _ENDS.split(said.translate(_MARKUP))
    said = " ".join(one for one in sentences if not one.rstrip().endswith("?"))
    said = _ASKED.sub(" ", _FIXED.sub(" ", said))
    labels = list(_LABEL.finditer(said))
    for label in reversed(labels):
        found = _HEAD.match(said, label.end()) or _LEVEL.match(said, label.end())
        if found:
            return found["yes"] is not None
    behind = _judged(said[labels[-1].end() :]) if labels else None
    return _judged(_LABEL.sub(" ", said)) if behind is None else behind


def _judged(said: str) -> bool | None:
    head = _HEAD.match(said)
    sentences = _ENDS.split(said)
    if head and head["no"] is not None:
        return False
    if head:
        first = next(one for one in sentences if re.search(r"\w", one))
        return not _BAD.search(first)
    for number, sentence in enumerate(sentences):
        found = {mark.lastgroup for mark in _MARK.finditer(sentence)}
        if number == 0 and _FIRST.match(sentence):
            found.add("yes")
        if found:
            return "no" not in found
    return None
