"""The parts of a question, by rule: `split_question`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lazyrag.text.analyzers import content_terms, term_spans
from lazyrag.text.stop_words import STOP_WORDS

MOST_PARTS = 4
"""Maximum number of parts; a question with more of them is not split."""
_LONGEST = 300  # characters; longer questions say how to answer them

_FILLERS = frozenset(
    "can could did do doe ha have i me must my our should we would you your".split()
)

# Questions joined by "and", by commas or full stops

_WH = r"(?:how|what|which|where|when|why|who)\b"
_ASKS = rf"(?:{_WH}|(?:can|could|do|does|did|is|are|was|were|should|will|would|has|have|must)\b)"
_QUESTION = re.compile(rf"(?:and\s+)?{_ASKS}", re.IGNORECASE)
_BETWEEN_QUESTIONS = re.compile(
    rf"(?<=[?？])\s*|[,;]?\s+and\s+(?={_WH})|[,;]\s+and\s+(?={_ASKS})", re.IGNORECASE
)
_QUESTION_ZH = re.compile("怎么|怎样|如何|什么|哪|谁|多少|多久|多长|为何|是否|[吗呢]$")
_BETWEEN_QUESTIONS_ZH = re.compile("[，,；;？?]\\s*(?:以及|并且|还有|另外)?")
_REFERS_BACK = re.compile(
    r"\b(?:its?|they|them|their|this|these|those|he|she)\b|\bthere\W*$"
    "|[它其此该]|[这那][个些种里样]|^[有能可会应需是要]|^.{1,4}$",
    re.IGNORECASE,
)
"""A word for something before it, or a Chinese clause without a subject."""

# Comparisons

_COMPARED = re.compile(
    r"(?:please\s+)?compare\s+(?P<compared>[^:]+)$"
    r"|(?:what(?:'s|\s+is|\s+are)\s+)?(?:the\s+)?(?:main\s+|key\s+)?"
    r"differences?\s+between\s+(?P<between>.+)"
    r"|how\s+(?:do|does|did)\s+(?P<differ>.+)\s+(?:differ|compare)$"
    rf"|(?!{_ASKS})(?:(?P<topic>[^:]+):\s+)?"
    r"(?P<versus>[^:]+\s+(?:vs\.?|versus)\s+[^:]+)(?::.*)?$",
    re.IGNORECASE,
)
_SEPARATORS = (r",?\s+(?:vs\.?|versus)\s+", r"\s+(?:with|against)\s+", r"\s+to\s+")
_NAME_BEFORE = re.compile(r"[A-Z][\w&.'-]*(?: [A-Z][\w&.'-]*)*")
_OF_EACH = re.compile(r"(?P<first>.+?\sof\s.+?),?\sand\sof\s(?P<last>.+)", re.IGNORECASE)
_AND = re.compile(r",?\s+and\s+|,\s+", re.IGNORECASE)
_TAIL = re.compile(r"\s+(?:in|for|as|at|on|when|during|under|by)\b.*", re.IGNORECASE)
_WITHOUT_THING = re.compile(r"'s(?=$| (?:in|for|at)\b)")
_COMPARED_ZH = re.compile(
    "(?:请)?(?:比较|对比)(?:一下)?(?P<compared>.+)"
    "|(?P<items>.+?)(?:分别|各自|各[是有]|(?:之间)?的?(?:主要|[一两几三]个)?"
    "(?:有(?:什么|何|哪些))?(?:区别|不同|差异|差别)|相比|哪个更)"
)
_LEADING_ZH = re.compile("^(?:请问|怎么|怎样|如何|什么是)\\s*")
_AND_ZH = re.compile(
    "\\s*(?:、|以及|(?<![共温总平缓柔饱附])和(?![平谐解睦尚服气])|(?<![参给赋])与(?![其否会众])|跟|vs)\\s*"
)
_SHARED_ZH = re.compile(r"(?:(?:19|20)\d\d财?年[^的]{0,6})?的.*")
_LATIN = re.compile(r"[!-~]+(?: [!-~]+)*")

# Questions for a number or a list

_ASKS_FOR_LIST = re.compile(
    r"\b(?:how many|which|what are (?:all|the)|name (?:all|every|the))\b"
    r"|^\W*(?:please )?list \w+ \w|有多少|(?:多少|几)[个份篇种家项条次名位]|哪[些几]|列[出举]"
    "|所有的?(?:文[档件]|资料)",
    re.IGNORECASE,
)
_LIST_FILLERS = re.compile(
    r"\b(?:how many|list|name|show|all|every|each|documents?|files?|passages?|pages?"
    r"|about|come|from|over|include[sd]?|(?:mention|contain|concern|discuss)(?:s|es|ed|ing)?)\b"
    "|有?多少[个份篇种家项条次名位]?|几[个份篇种家项条次名位]|哪[些几][个份篇种家项条次名位]?|列[出举]"
    "|所有的?|全部的?|的?(?:文[档件]|资料)|提[到及]了?|涉及|包含|包括|关于|请",
    re.IGNORECASE,
)

# Lists of names, years, and things with a word in common

_NAME = (
    r"(?:--?[a-z][\w-]+|[A-Za-z]\w+(?:[._]\w{2,})+|[A-Z][a-z]+[A-Z]\w*|[A-Z]{2,}[a-z]\w*"
    r"|(?:FY\s?)?(?:19|20)\d\d)(?![\w-])"
)
_COMMA = r"\s*[,、，]\s*"
_LAST = r"(?:,?\sand\s(?:in\s|of\s|for\s)?|\s*[、和与及]\s*)"
_NO_LIST = re.compile(r"\b(?:between|from|both)\b[^,;:]*$|[从在][^，；]*$", re.IGNORECASE)


def _list_of(first: str, other: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){first}(?:{_COMMA}{other})*{_LAST}{other}")


_LISTS = (
    _list_of(_NAME, _NAME),
    _list_of(r"(?P<same>[A-Z]\w+) \d[\d.]*", r"(?:(?P=same) )?\d[\d.]*"),
    _list_of(r"(?P<same>\w{3,}) [\w-]+", r"(?P=same) [\w-]+"),
    _list_of(r"[\w-]+ (?P<same>\w{2,}?)", r"[\w-]+ (?P=same)\b"),
)


def split_question(question: str) -> list[str]:
    """Split a question with several parts into one query for each of them.

    Parts are questions joined by "and", what a question compares, and lists of names, numbers and
    years. Where it is not certain that there are several, the question is the only part.

    Args:
        question: In English or Chinese.

    Returns:
        At most `MOST_PARTS` texts.

    Example:
        >>> split_question("How do I install it on Linux and where are the logs?")
        ['How do I install it on Linux', 'where are the logs?']
        >>> split_question("Compare 3M's and Boeing's revenue in 2018")
        ["3M's revenue in 2018", "Boeing's revenue in 2018"]
        >>> split_question("2017、2018 年的营收分别是多少")
        ['2017 年的营收', '2018 年的营收']
        >>> split_question("Where are salt and pepper?")
        ['Where are salt and pepper?']
    """
    text = " ".join(question.split())
    for split in _SPLITTERS if len(text) <= _LONGEST else ():
        parts = list(dict.fromkeys(part.strip(" ,;:，；：") for part in split(text)))
        if 1 < len(parts) <= MOST_PARTS and all(_terms(part) or part.isupper() for part in parts):
            return parts
    return [question]


def find_list_words(question: str) -> str:
    """Find the words that all members of the list have which a question asks for, for
    `Document.collect`.

    Args:
        question: In English or Chinese.

    Returns:
        Words with blanks between them; "" if it asks for neither a number nor a list.

    Example:
        >>> find_list_words("How many of the contracts mention a price adjustment?")
        'contracts price adjustment'
        >>> find_list_words("哪些合同提到了价格调整？")
        '合同 价格调整'
        >>> find_list_words("How hot is green tea brewed?")
        ''
    """
    if not _ASKS_FOR_LIST.search(question):
        return ""
    rest = _LIST_FILLERS.sub(" ", question)
    words: list[str] = []
    end_of_last = 0
    for start, end, _ in term_spans(rest, _terms(rest)):
        if start < end_of_last:  # pairs of Chinese characters overlap
            words[-1] += rest[end_of_last:end]
        else:
            words.append(rest[start:end])
        end_of_last = max(end, end_of_last)
    return " ".join(words)


def find_coverage(parts: Sequence[str], texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Find the texts that have more than half of the words by which a part differs from the others.

    Returns:
        By part the numbers of its texts, from 1.

    Example:
        >>> find_coverage(["sales of tea", "sales of milk"], ["Tea sold well.", "The sales grew."])
        {'sales of tea': (1,), 'sales of milk': ()}
    """
    terms_of_parts = list(map(_terms, parts))
    shared = frozenset.intersection(*terms_of_parts) if parts else frozenset()
    terms_of_texts = [content_terms(text) for text in texts]
    coverage = {}
    for part, terms in zip(parts, terms_of_parts, strict=True):
        specific = terms - shared or terms
        coverage[part] = tuple(
            number
            for number, others in enumerate(terms_of_texts, start=1)
            if 2 * len(specific & others) > len(specific)
        )
    return coverage


def _terms(part: str) -> frozenset[str]:
    return content_terms(part) - _FILLERS


def _split_questions(text: str) -> list[str]:
    """Questions that are clear by themselves."""
    pieces = [piece for piece in _BETWEEN_QUESTIONS.split(text) if piece]
    if not all(map(_QUESTION.match, pieces)) or len(text.split(" ", 3)) < 4:
        pieces = [piece for piece in _BETWEEN_QUESTIONS_ZH.split(text) if piece]
        if not all(map(_QUESTION_ZH.search, pieces)):
            return []
    return [] if any(map(_REFERS_BACK.search, pieces[1:])) else pieces


def _split_compared(text: str) -> list[str]:
    match = _COMPARED.match(text.rstrip("?.！。？"))
    if match is None:
        return []
    groups = match.groupdict("")
    topic = groups.pop("topic")
    body = "".join(groups.values())
    pairs = [re.split(separator, body) for separator in _SEPARATORS if not match["between"]]
    items = next((pair for pair in pairs if len(pair) == 2), None) or _AND.split(body)
    if len(items) > 2 and body.count(" and ") > 1:  # which "and" is the one?
        return []
    *others, last = items
    measure = _NAME_BEFORE.sub("", last)  # of a thing that stands behind the last name
    if match["versus"] and last != measure and all(map(_NAME_BEFORE.fullmatch, others)):
        items = [*(other + measure for other in others), last]
    return [f"{topic} {item}" for item in _complete(items)]


def _split_of_each(text: str) -> list[str]:
    """What is asked "of" each of two things."""
    match = _OF_EACH.fullmatch(text.rstrip("?.！。？"))
    return _complete([match["first"], match["last"]]) if match else []


def _complete(items: Sequence[str]) -> list[str]:
    """Items, each with the words that the first or the last has for all of them."""
    first = items[0]
    last = items[-1]
    tail = _TAIL.search(last)
    ending = tail[0] if tail else ""
    head, of, _ = first.partition(" of ")
    owned = _TAIL.sub("", first).partition("'s ")[2] or _TAIL.sub("", last).partition("'s ")[2]
    completed = []
    for listed in [*items[:-1], last.removesuffix(ending)]:
        item = listed.removeprefix("of ")
        beginning = f"{head} of " if of and " of " not in item else ""
        rest = "" if _TAIL.search(item) else ending
        completed.append(
            beginning + _WITHOUT_THING.sub(lambda _: f"'s {owned}".rstrip(), item) + rest
        )
    return completed


def _split_compared_zh(text: str) -> list[str]:
    match = _COMPARED_ZH.match(text)
    if match is None:
        return []
    listed = _LEADING_ZH.sub("", match["compared"] or match["items"])
    *others, last = _AND_ZH.split(listed)
    if _QUESTION_ZH.search(listed):
        return []
    name = _LATIN.match(last)
    if name is not None:
        tail = last[name.end() :]
        is_shared = all(map(str.isascii, others))
    else:
        shared = _SHARED_ZH.search(last)
        tail = shared[0] if shared else ""
        is_shared = "的" not in "".join(others)
    return [*(item + tail if is_shared else item for item in others), last]


def _split_list(text: str) -> list[str]:
    for pattern in _LISTS:
        for match in pattern.finditer(text):
            before = text[: match.start()]
            same = match.groupdict().get("same", "")
            if _NO_LIST.search(before) or same.lower() in STOP_WORDS:
                continue
            items = re.split(f"{_LAST}|{_COMMA}", match[0])
            whole = [item if same in item else f"{same} {item}" for item in items]
            return [f"{before}{item}{text[match.end() :]}" for item in whole]
    return []


_SPLITTERS = (
    _split_questions,
    _split_compared,
    _split_compared_zh,
    _split_of_each,
    _split_list,
)
