"""Reading what chat models say when they are asked to judge or to rank passages. Answers come in many forms."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from lazyrag.models.protocol import ChatChoice
from lazyrag.models.rerank_verdicts import THOUGHT_TAG, plain, read_verdict

_NUMBER = r"(?<![\d.])-?\d+(?:\.\d+)?"
_FRACTION = re.compile(rf"({_NUMBER})\s*(?:/|out of)\s*(\d+(?:\.\d+)?)")
_PERCENT = re.compile(rf"({_NUMBER})\s*%")
_LABELLED = re.compile(rf"(?:score|rating|relevance|评分|分数|得分|打分|相关性)[^\d\n.-]{{0,20}}({_NUMBER})")
_SCALE = re.compile(
    r"(?<![\d.])(?:[01]\s*分?\s*(?:[-–—~]|to|至|到)|(?<=between )[01] and)\s*(5|10|100|1000)(?![\d.]*\d)\s*分?"
    r"|(?:满分|最高分|(?<![a-z])max(?:imum)?(?: score)?)[^\w\n]{0,4}[是为]?[^\w\n]{0,4}(\d{1,4})\s*分?|(\d{1,4})\s*分制"
)

_ITEM = (
    r"""(?:(?<![a-z])(?:passage|document|text|no\.?|#)\s*|第|文档|段落|文本|文段)?"""
    r"""["']?[\[【(〔]?\s*["']?\s*\d{1,6}\s*["']?\s*[\]】)〕]?["']?[段篇条]?"""
)
_ABOVE = r">=?|≥|≻|›|》|→|->|=>"
_CHAIN = re.compile(rf"{_ITEM}(?:\s*(?:{_ABOVE}|=|(?:,|、|;)(?:\s*(?:and|then|和)(?![a-z]))?)\s*{_ITEM})+")
_LISTED = re.compile(
    r"""^[ \t]*(?:[-*|"'([][ \t]*)?(\d{1,4})["']?[ \t]*(?:[.:、|]|\))(?!\d+\.)[ \t]*(.*)$""", re.MULTILINE
)
_FIRST = re.compile(r"1[.)]\s+[^\W\d]")
_BRACKETED = re.compile(r"[\[【(〔]\s*(\d{1,6})\s*[\]】)〕]")
_WHOLE = re.compile(r"(?<!\d)\d{1,6}(?!\d)")


def read_probability(choice: ChatChoice) -> float | None:
    """How sure a yes is, in [0, 1]; None where the answer says neither yes nor no.

    Where p is told, the probability of the word that says one of both, yes is (1 + p) / 2 and no is (1 - p) / 2: no
    no is ever above a yes. Elsewhere yes is 1 and no is 0. Words of a thought do not count.

    Example:
        >>> read_probability(ChatChoice("No"))
        0.0
    """
    verdict = read_verdict(choice.text)
    if verdict is None:
        return _share(plain(choice.text))
    tokens = choice.logprobs or ()
    told = "".join(one.token for one in tokens)
    spoken = THOUGHT_TAG.sub("", choice.text[_last_end(choice.text) :]).strip()
    begin, at = max(_last_end(told), told.rfind(spoken)), 0
    for one in tokens:
        at += len(one.token)
        word = re.sub(r"[\W_]", "", one.token)
        if at > begin and word and read_verdict(word) is verdict and not math.isnan(one.logprob):
            probability = math.exp(min(one.logprob, 0.0))
            return (1.0 + probability) / 2 if verdict else (1.0 - probability) / 2
    return float(verdict)


def read_score(text: str, most: int) -> float | None:
    """A number from 0 to a largest one as a number in [0, 1]; None where there is none, or another.

    ``8/10``, ``8 out of 10`` and ``80%`` bring their own scale, as ``0-5`` and 满分5分 do, which are no scores; then a
    number behind a label such as ``Score:``; then one at the beginning, else the last one; without any number yes is 1
    and no is 0.

    Example:
        >>> [read_score(text, 10) for text in ("8", "评分：８", "I give it 4 out of 5.", "No.", "11", "tea")]
        [0.8, 0.8, 0.8, 0.0, None, None]
    """
    said = plain(text)
    scale = _SCALE.search(said)
    if scale is not None:
        most, said = int(next(filter(None, scale.groups()))) or most, _SCALE.sub(" ", said)
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

    The longest chain of numbers counts, such as ``[2] > [1]``, the last one of equally long ones; before chains with
    commas such as ``【2】、【1】`` comes a list with a rank before each passage, in lines from 1 up: ``1. Passage 2``.
    Without a chain all numbers in brackets, and without those all numbers. A number that comes again, or that no
    passage has, is passed over.

    Args:
        text: The answer.
        count: How many passages there are, numbered from 1.

    Example:
        >>> read_permutation("The order is 【3】 > [1] > [3] > [9].", 3)
        [2, 0]
    """
    said = plain(text)
    chains = [chain[0] for chain in _CHAIN.finditer(said)]
    above = [chain for chain in chains if re.search(_ABOVE, chain)]
    best, listed, any_chain = _longest(above, count), _listed(said, count), _longest(chains, count)
    for given in (best, listed, any_chain):
        if len(given) > 1 or (given is listed and given and _FIRST.match(said)):
            return given
    return _places(_BRACKETED.findall(said), count) or _places(_WHOLE.findall(said), count)


def _longest(chains: Iterable[str], count: int) -> list[int]:
    """What the longest chain names, the last one of equally long ones."""
    named = [_places(_WHOLE.findall(chain), count) for chain in chains]
    return max(reversed(named), key=len, default=[])


def _listed(said: str, count: int) -> list[int]:
    """What lines numbered from 1 up name: the first number in brackets of each, else its first number."""
    found: list[str] = []
    for rank, line in _LISTED.findall(said):
        named = _BRACKETED.findall(line) or _WHOLE.findall(line)
        if named and int(rank) == len(found) + 1:
            found.append(named[0])
        elif named and found:
            break  # another list
    return _places(found, count)


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


def _last_end(text: str) -> int:
    """Where the last thought ends."""
    return max((tag.end() for tag in THOUGHT_TAG.finditer(text) if tag["end"]), default=0)
