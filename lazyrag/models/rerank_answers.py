"""Reading what chat models say when they are asked to judge or to rank passages. Answers come in many forms."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable

from lazyrag.models.protocol import ChatChoice

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_KEY = re.compile(
    r"""["']?(?<![a-z])(?:relevant|relevance|answer|verdict|judge?ment|result|score|rating)["'*]*\s*[:=]"""
    r"""|["']?(?:是否相关|相关性|相关|答案|回答|结论|判断|评分|分数|得分)["'*”]*\s*[:=]"""
)
_ASKING = re.compile("是否|能否|有没有|是不是|能不能")
_NO = r"(?<![a-z])(?:no|not|none|cannot|irrelevant|unrelated|false|[a-z]+n['’]t)(?![a-z])|不|否|没|无|非"
_YES = r"(?<![a-z])(?:yes|true|relevant|related)(?![a-z])|是|对|相关|能|可以|有|真"
_VERDICT = re.compile(rf"(?P<no>{_NO})|(?P<yes>{_YES})")
_LETTER = {"y": True, "n": False, "1": True, "0": False}
_NUMBER = r"(?<![\d.])-?\d+(?:\.\d+)?"
_FRACTION = re.compile(rf"({_NUMBER})\s*(?:/|out of)\s*(\d+(?:\.\d+)?)")
_PERCENT = re.compile(rf"({_NUMBER})\s*%")
_LABELLED = re.compile(rf"(?:score|rating|relevance|评分|分数|得分|打分|相关性)[^\d\n.-]{{0,20}}({_NUMBER})")

_ITEM = r"""["']?[\[【(〔]?\s*["']?\s*\d{1,6}\s*["']?\s*[\]】)〕]?["']?"""
_CHAIN = re.compile(rf"{_ITEM}(?:\s*(?:>=?|≻|›|》|→|->|=>|,|、|;)\s*{_ITEM})+")
_BRACKETED = re.compile(r"[\[【(〔]\s*(\d{1,6})\s*[\]】)〕]")
_WHOLE = re.compile(r"(?<!\d)\d{1,6}(?!\d)")


def read_verdict(text: str) -> bool | None:
    """Yes or no, in English or Chinese, whatever stands around it; None where it cannot be told.

    The first word that says one of both counts, after thoughts between ``<think>`` tags, and after a label such as
    ``"relevant":``.

    Example:
        >>> [read_verdict(text) for text in ("Yes.", "答案：否", '{"relevant": false}', "Not relevant", "Perhaps")]
        [True, False, False, False, None]
    """
    said = _plain(text)
    letter = _LETTER.get(said.strip(" .。!\"'*`"))
    if letter is not None:
        return letter
    found = _VERDICT.search(_ASKING.sub(" ", _KEY.sub(" ", said)))
    return None if found is None else found["yes"] is not None


def read_probability(choice: ChatChoice) -> float | None:
    """How sure a yes is, in [0, 1]; None where the answer says neither yes nor no.

    Where p is told, the probability of the word that says one of both, yes is (1 + p) / 2 and no is (1 - p) / 2: no
    no is ever above a yes. Elsewhere yes is 1 and no is 0.

    Example:
        >>> read_probability(ChatChoice("No"))
        0.0
    """
    verdict = read_verdict(choice.text)
    if verdict is None:
        return _share(_plain(choice.text))
    for one in choice.logprobs or ():
        word = re.sub(r"[\W_]", "", one.token)
        if word and read_verdict(word) is verdict and not math.isnan(one.logprob):
            probability = math.exp(min(one.logprob, 0.0))
            return (1.0 + probability) / 2 if verdict else (1.0 - probability) / 2
    return float(verdict)


def read_score(text: str, most: int) -> float | None:
    """A number from 0 to a largest one as a number in [0, 1]; None where there is none, or another.

    ``8/10``, ``8 out of 10`` and ``80%`` bring their own scale; then a number behind a label such as ``Score:``; then
    one at the beginning, else the last one; without any number yes is 1 and no is 0.

    Example:
        >>> [read_score(text, 10) for text in ("8", "评分：８", "I give it 4 out of 5.", "No.", "11", "tea")]
        [0.8, 0.8, 0.8, 0.0, None, None]
    """
    said = _plain(text)
    share = _share(said)
    if share is not None:
        return share
    labelled = _LABELLED.search(said)
    numbers = re.findall(_NUMBER, said)
    if labelled is None and not numbers:
        verdict = read_verdict(text)
        return None if verdict is None else float(verdict)
    begins = re.match(rf"[^\w-]*({_NUMBER})", said)
    value = float((labelled or begins or [None, numbers[-1]])[1])
    return value / most if 0 <= value <= most else None


def read_permutation(text: str, count: int) -> list[int]:
    """The order that an answer gives to passages, as indexes from 0; those it does not name are missing.

    The longest chain of numbers counts, such as ``[2] > [1]``, ``【2】、【1】`` or ``[2, 1]``, the last one of equally
    long ones; without a chain all numbers in brackets, and without those all numbers. A number that comes again, or
    that no passage has, is passed over.

    Args:
        text: The answer.
        count: How many passages there are, numbered from 1.

    Example:
        >>> read_permutation("The order is 【3】 > [1] > [3] > [9].", 3)
        [2, 0]
    """
    said = _plain(text)
    chains = [_places(_WHOLE.findall(chain[0]), count) for chain in _CHAIN.finditer(said)]
    longest = max((len(chain) for chain in chains), default=0)
    if longest > 1:
        return next(chain for chain in reversed(chains) if len(chain) == longest)
    return _places(_BRACKETED.findall(said), count) or _places(_WHOLE.findall(said), count)


def _places(numbers: Iterable[str], count: int) -> list[int]:
    return list(dict.fromkeys(number - 1 for number in map(int, numbers) if 1 <= number <= count))


def _share(said: str) -> float | None:
    """What ``8/10`` or ``80%`` says."""
    for found, most in ((_FRACTION.search(said), None), (_PERCENT.search(said), 100.0)):
        if found is not None:
            whole = float(found[2]) if most is None else most
            value = float(found[1])
            if 0 <= value <= whole and 0 < whole < math.inf:
                return value / whole
    return None


def _plain(text: str) -> str:
    """Without thoughts, in one form of letters and digits; brackets of one width."""
    return unicodedata.normalize("NFKC", _THOUGHT.sub(" ", text)).casefold()
