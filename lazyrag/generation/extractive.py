"""Answers without a model: the sentences, table rows and pieces of code that answer a question."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from textwrap import dedent
from typing import Any, NamedTuple

from lazyrag.data.result import GenerationResult, Hit, RAGContext
from lazyrag.generation.units import FENCE, ITEM, Unit, line_of, units_of
from lazyrag.text.analyzers import chinese_terms
from lazyrag.text.dates import is_named
from lazyrag.text.question_parts import split_question
from lazyrag.text.sentences import resolve_language, sentence_spans

# What a question asks for

_NUMBER = re.compile(
    r"\d[\d.,]*"
    r"|[一二三四五六七八九十百千万亿兩两]+(?=[个個年月日号號人名次倍岁歲米元%％])"
    r"|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand"
    r"|million|billion|dozen|half|first|second|third|fourth|fifth)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=\w\W)[A-Z][\w'’.-]+|(?<=\w\W\W)[A-Z][\w'’.-]+")
_ASKS_NUMBER = re.compile(
    r"\bwhen\b|\bhow (?:many|much|long|far|old|large|tall|big|high|often)\b"
    r"|\b(?:what|which) (?:year|date|day|decade|century|month|percent\w*|number|size|age|amount)\b"
    r"|何[时時]|什[么麼][时時][候间間]|哪一?[年天]|年份|[时時][间間]|多[少长長大高久远遠]|[几幾]|第几|人口|百分",
    re.IGNORECASE,
)
_ASKS_NAME = re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)


def _kind_of_answer(query: str) -> re.Pattern[str] | None:
    """The pattern of what a question asks for; None if it can be anything."""
    if _ASKS_NUMBER.search(query):
        return _NUMBER
    return _NAME if _ASKS_NAME.search(query) else None


# Scores


class _Passage:
    """A text with its rank, from 0, the terms of its units, and those of its document's name."""

    def __init__(self, text: str, rank: int, name: str, *, splits_code: bool = False) -> None:
        self.text = text
        self.rank = rank
        self.name_terms = frozenset(chinese_terms(name))
        self.units = units_of(text)
        if splits_code:
            parts = [_parts_of_code(text, unit) for unit in self.units]
            self.units = list(itertools.chain.from_iterable(parts))
        self.headers = [""] * len(self.units)
        self.terms = [frozenset(chinese_terms(self.words(unit))) for unit in self.units]

    def words(self, unit: Unit) -> str:
        """The text of a unit."""
        return self.text[unit.start : unit.end]

    def drop_fragments(self, others: Sequence[_Passage]) -> None:
        """Drop the first unit if it is the end of one in another passage, and the last one if it is
        the beginning of code there: passages may begin or end within one, and overlap.
        """
        for at, is_part in ((0, str.endswith), (-1, str.startswith)):
            for unit in self.units[at:][:1]:
                may_end = at == 0 or unit.kind == "code"
                if may_end and any(other.has_longer(self.words(unit), is_part) for other in others):
                    del self.units[at], self.headers[at], self.terms[at]

    def has_longer(self, part: str, is_part: Callable[[str, str], bool]) -> bool:
        """Whether some words are a part of a unit."""
        return any(is_part(words, part) and words != part for words in map(self.words, self.units))

    def read_after(self, before: _Passage | None) -> None:
        """Find the header of each row, whose terms are those of the row too, as those of what
        announces it are of the code in which the text begins.

        Args:
            before: The passage before it in its document.
        """
        if not self.units:
            return
        header = ""
        if before and before.units:
            header = before.headers[-1]
            if self.units[0].kind == "code":
                self.terms[0] |= before.terms[-1]
        end = self.units[0].start
        for number, unit in enumerate(self.units):
            between = self.text[end : unit.start].strip("|:-+= \t\n\r")  # but for a rule
            if between or unit.kind != "row":
                header = ""
            if unit.kind == "header":
                header = self.words(unit)
            self.headers[number] = header
            self.terms[number] |= frozenset(chinese_terms(header))
            end = unit.end


def _parts_of_code(text: str, unit: Unit) -> list[Unit]:
    """The parts of code between blank lines; another unit as it is."""
    if unit.kind != "code":
        return [unit]
    parts = []
    start = unit.start
    for blank in _BLANK_LINES.finditer(text, unit.start, unit.end):
        parts.append(Unit(start, blank.start(), "code"))
        start = blank.end()
    parts.append(Unit(start, unit.end, "code"))
    return [part for part in parts if any(map(str.isalnum, text[part.start : part.end]))]


_ROWS = {"row", "record"}


class _Weights:
    """Weights of a query's terms: those in few units of the passages count more, those in none not
    at all.

    The weights of all terms add up to 1, so that `recall` is a share of the query.
    """

    def __init__(self, query: str, passages: Sequence[_Passage]) -> None:
        units = [terms | passage.name_terms for passage in passages for terms in passage.terms]
        weights = {}
        for term in chinese_terms(_ASKS_NUMBER.sub(" ", query)):
            count = sum(term in terms for terms in units)
            if count:
                weights[term] = math.log1p(len(units) / count)
        total = math.fsum(weights.values()) or 1.0
        self._of = {term: weight / total for term, weight in weights.items()}

    def recall(self, terms: frozenset[str]) -> float:
        """Share of the query in a set of terms."""
        return math.fsum(weight for term, weight in self._of.items() if term in terms)


# fitted on the even questions of XQuAD (en, zh), CMRC 2018 and the documentation trees; see
# benchmarks/answers.py
_RECALL = 11.8
_BEFORE = 6.0
_BEFORE_THAT = 2.9
_AFTER = 3.1
_FITS = 2.2
_RANK = 3.0
_CODE = 1.2


class RankedUnit(NamedTuple):
    """A unit that may be quoted.

    Args:
        score: Comparable within one question; higher is better.
        source: Number of the text, from 0.
        unit: The unit.
    """

    score: float
    source: int
    unit: Unit


def rank_units(
    query: str, texts: Sequence[str], ranks: Sequence[int] | None = None
) -> list[RankedUnit]:
    r"""Return the units of texts by how well they answer a question, the best one first.

    Args:
        query: The question.
        texts: Best first.
        ranks: The rank of each, from 0; None: 0, 1, and so on.

    Example:
        >>> texts = ["# Tea\n\nIt is old. Green tea wants water of 80 degrees.", "Coffee is hot."]
        >>> best = rank_units("How hot is the water for green tea?", texts)[0]
        >>> texts[best.source][best.unit.start : best.unit.end]
        'Green tea wants water of 80 degrees.'
    """
    return _ranked(query, _passages(texts, ranks))


def _passages(
    texts: Sequence[str],
    ranks: Sequence[int] | None = None,
    hits: Sequence[Hit] = (),
    *,
    splits_code: bool = False,
) -> list[_Passage]:
    """The passages of texts, each read after the one before it if their hits are given."""
    names = [hit.source for hit in hits] or [""] * len(texts)
    passages = [
        _Passage(text, rank, name, splits_code=splits_code)
        for text, rank, name in zip(texts, ranks or range(len(texts)), names, strict=True)
    ]
    for passage in passages:
        passage.drop_fragments(passages)
    places = [(hit.document_id, hit.chunk_id) for hit in hits] or [("", 0)] * len(passages)
    read: dict[tuple[str, int], _Passage] = {}
    for (document, number), passage in sorted(
        zip(places, passages, strict=True), key=itemgetter(0)
    ):
        passage.read_after(read.get((document, number - 1)) if document else None)
        read[document, number] = passage
    return passages


def _ranked(query: str, passages: Sequence[_Passage]) -> list[RankedUnit]:
    scorer = _Scorer(query, passages)
    units = [
        RankedUnit(scorer.score(source, number), source, unit)
        for source, passage in enumerate(passages)
        for number, unit in enumerate(passage.units)
        if unit.kind not in ("heading", "header")
    ]
    return sorted(units, key=lambda ranked: -ranked.score)


class _Scorer:
    """Scores the units of passages for one question."""

    def __init__(self, query: str, passages: Sequence[_Passage]) -> None:
        self._query = query
        self._passages = passages
        self._weights = _Weights(query, passages)
        self._kind = _kind_of_answer(query)

    def score(self, source: int, number: int) -> float:
        """Terms of the question in a unit, and those that only its neighbours have; its passage's
        rank; and what kind of text it is.
        """
        passage = self._passages[source]
        unit = passage.units[number]
        text = passage.text[unit.start : unit.end]
        terms = passage.terms[number]
        with_previous = terms | passage.terms[number - 1] if number else terms
        return math.fsum(
            (
                _RECALL * self._weights.recall(terms),
                _BEFORE * self._gain(passage, number, -1, terms),
                _BEFORE_THAT * self._gain(passage, number, -2, with_previous),
                _AFTER * self._gain(passage, number, 1, terms),
                # the name stands above all of the text
                _BEFORE * self._weights.recall(passage.name_terms - terms),
                _FITS * self._has_new(text),
                _RANK / (1 + passage.rank),
                _CODE * (unit.kind == "code"),
            )
        )

    def _gain(self, passage: _Passage, number: int, step: int, terms: frozenset[str]) -> float:
        """What a neighbour of a unit adds to the recall of some terms: rows do not explain each
        other, and a heading not what is above it.
        """
        near = number + step
        if not 0 <= near < len(passage.units):
            return 0.0
        neighbour = passage.units[near]
        is_below = step > 0 and neighbour.kind == "heading"
        if is_below or {passage.units[number].kind, neighbour.kind} <= _ROWS:
            return 0.0
        return self._weights.recall(passage.terms[near] - terms)

    def _has_new(self, text: str) -> bool:
        """Whether a text has something of the kind of the answer that the question has not."""
        if self._kind is None:
            return False
        of_query = {match.casefold() for match in self._kind.findall(self._query)}
        return any(match.casefold() not in of_query for match in self._kind.findall(text))


_BLANK_LINES = re.compile(r"\n(?:[ \t\r]*\n)+")


# Excerpts


def choose_excerpts(
    query: str, texts: Sequence[str], fits: Callable[[int, Sequence[Unit]], bool]
) -> list[list[Unit]]:
    r"""Choose what to show of each text: its units that answer best, as many as fit. Code is chosen
    by its parts between blank lines.

    Args:
        query: The question.
        texts: Best first.
        fits: Whether units of the text of a number are short enough together.

    Returns:
        Units of each text, in order: at least the best one, however large; [] if a text has none
        but headings.

    Example:
        >>> text = "It is old. It has leaves. Green tea wants water of 80 degrees."
        >>> is_short = lambda _, units: len(units) < 3
        >>> [units] = choose_excerpts("How hot is the tea?", [text], is_short)
        >>> [text[unit.start : unit.end] for unit in units]
        ['It has leaves.', 'Green tea wants water of 80 degrees.']
    """
    excerpts: list[list[Unit]] = [[] for _ in texts]
    for _, source, unit in _ranked(query, _passages(texts, splits_code=True)):
        units = sorted([*excerpts[source], unit])
        if len(units) == 1 or fits(source, units):
            excerpts[source] = units
    return excerpts


def write_excerpts(query: str, texts: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """Return the units of each text that answer best, with "…" for what is left out.

    Args:
        query: The question.
        texts: Best first.
        sizes: Characters of each that the units may have; a text that is no longer stays as it is.
            Of a best unit that is too long, its beginning.

    Example:
        >>> text = "It is old. It has leaves. Green tea wants water of 80 degrees."
        >>> write_excerpts("How hot is the water for tea?", [text], [50])
        ['… It has leaves. Green tea wants water of 80 degrees.']
    """
    excerpts = choose_excerpts(
        query, texts, lambda at, units: sum(end - start for start, end, _ in units) <= sizes[at]
    )
    return [
        _excerpt(text, units, size) if len(text) > size else text
        for text, units, size in zip(texts, excerpts, sizes, strict=True)
    ]


def _excerpt(text: str, units: Sequence[Unit], size: int) -> str:
    if not units:
        return f"{text[:size]} …"
    excerpt = ""
    end = 0
    for unit in units:
        between = text[end : unit.start]
        is_cut = any(map(str.isalnum, between))
        excerpt += ("\n… " if "\n\n" in between else " … ") if is_cut else between
        excerpt += text[unit.start : unit.end]
        end = unit.end
    first = units[0]
    if len(units) == 1 and end - first.start > size:
        return f"{excerpt[: len(excerpt) - (end - first.start) + size]} …".strip()
    return f"{excerpt} …".strip() if any(map(str.isalnum, text[end:])) else excerpt.strip()


# Quotations

MAX_CHARACTERS = 600
"""Of all quotations of an answer."""
_MAX_QUOTES = 3
_ANNOUNCED = ("sentence", "item", "code")
_GOES_ON = (":", "：", ";", "；")
_SAYS_THE_SAME = 6.0  # not fitted
"""How much below a unit of an older text one of a newer text is about the same."""
_FAR = 3.0
"""How much below the best score a unit is not quoted."""
_FAR_ROW = 1.0  # not fitted
"""How much below the best row of its table a row is not quoted."""


class Quote(NamedTuple):
    """Complete units of a source that are quoted together.

    Args:
        source: Number of the source, from 0.
        units: In the order of the text. They follow each other.
        header: Of the table of a row, which may begin in another source; "" if it is not known.
    """

    source: int
    units: tuple[Unit, ...]
    header: str = ""

    @property
    def start(self) -> int:
        """Where the quotation begins in the source."""
        return self.units[0].start

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.units[-1].end

    @property
    def size(self) -> int:
        """Number of characters."""
        return len(self.header) + sum(unit.end - unit.start for unit in self.units)


def choose_quotes(query: str, hits: Sequence[Hit]) -> list[Quote]:
    r"""Choose one to three quotations that answer a question, of at most 600 characters together,
    from each part of a question in turn. What the document says that replaces another is quoted
    before the other's words of the same.

    Args:
        query: The question.
        hits: Best first.

    Returns:
        Quotations by document, that of the best quotation first, in the order of its text. [] if
        the texts have no words, or only units longer than the limit.

    Example:
        >>> text = "# Tea\n\nIt is old. Green tea wants water of 80 degrees."
        >>> [quote] = choose_quotes("How hot is the water for tea?", [Hit("n", text, 1.0)])
        >>> text[quote.start : quote.end]
        'Green tea wants water of 80 degrees.'
    """
    texts = [hit.text for hit in hits]
    passages = _passages(texts, ranks_of(hits), hits)
    chosen: list[Quote] = []
    best_of_table: dict[str, float] = {}
    room = MAX_CHARACTERS
    for below_best, ranked in _rank_by_part(query, passages, hits):
        quote = _quote_of(ranked, passages[ranked.source], room)
        if _repeats(quote, chosen, texts):  # what follows may be quoted already
            quote = quote._replace(units=quote.units[:1])
        table = f"of {ranked.source}" if ranked.unit.kind == "record" else quote.header
        below_row = below_best - best_of_table.setdefault(table, below_best)
        if table and below_row > _FAR_ROW:
            continue
        if quote.size <= room and not _repeats(quote, chosen, texts):
            chosen.append(quote)
            room -= quote.size
        if len(chosen) == _MAX_QUOTES:
            break
    ranks: dict[str | int, int] = {}  # of documents
    places = {}
    for rank, quote in enumerate(chosen):
        hit = hits[quote.source]
        of_document = ranks.setdefault(hit.document_id or quote.source, rank)
        places[quote] = (of_document, hit.chunk_id, quote.start)
    chosen.sort(key=places.__getitem__)
    return _joined(chosen, texts)


def _rank_by_part(
    query: str, passages: Sequence[_Passage], hits: Sequence[Hit]
) -> Iterator[tuple[float, RankedUnit]]:
    """The units that are not far below the best one of a part of a question, each with how far;
    parts take turns. Before a unit of a text that another replaces comes the best one of that.
    """
    newer = _newer_of(query, hits)
    rankings = []
    for part in split_question(query):
        ranking = _ranked(part, passages)
        best = {hits[ranked.source].source: ranked for ranked in reversed(ranking)}
        near: list[tuple[float, RankedUnit]] = []
        for ranked in ranking:
            below_best = ranking[0].score - ranked.score
            newest = newer.get(ranked.source)
            replacing = best.get(newest) if newest else None
            if replacing and ranked.score - replacing.score <= _SAYS_THE_SAME:
                near.append((below_best, replacing))
            near.append((below_best, ranked))
        rankings.append([pair for pair in near if pair[0] <= _FAR])
    return filter(None, itertools.chain.from_iterable(itertools.zip_longest(*rankings)))


def _quote_of(ranked: RankedUnit, passage: _Passage, limit: int) -> Quote:
    """The quotation of a unit: a row with the header of its table, a sentence with what its colon
    announces and a clause with those after its semicolon, as far as that fits.
    """
    number = passage.units.index(ranked.unit)
    quote = Quote(ranked.source, (ranked.unit,), passage.headers[number])
    for following in passage.units[number + 1 :]:
        longer = quote._replace(units=(*quote.units, following))
        goes_on = passage.text.endswith(_GOES_ON, quote.start, quote.end)
        if not goes_on or following.kind not in _ANNOUNCED or longer.size > limit:
            break
        quote = longer
    return quote


def _repeats(quote: Quote, chosen: Sequence[Quote], texts: Sequence[str]) -> bool:
    """Whether a quotation is within another one, or another one within it, as neighbouring passages
    overlap.
    """
    words = _words(quote, texts)
    others = [_words(other, texts) for other in chosen]
    return any(words in other or other in words for other in others)


def _words(quote: Quote, texts: Sequence[str]) -> str:
    return "".join(texts[quote.source][quote.start : quote.end].split())


def _joined(quotes: Sequence[Quote], texts: Sequence[str]) -> list[Quote]:
    """Join quotations of a paragraph that follow each other."""
    joined: list[Quote] = []
    for quote in quotes:
        last = joined[-1] if joined else quote
        between = texts[quote.source][last.end : quote.start]
        is_prose = last.units[-1].kind == quote.units[0].kind == "sentence"
        is_next = joined and last.source == quote.source and not between.strip()
        if is_next and is_prose and "\n\n" not in between:
            joined[-1] = Quote(last.source, last.units + quote.units)
        else:
            joined.append(quote)
    return joined


# Answers

NO_ANSWER = {
    "en": "No answer found; the closest passages:",
    "zh": "没有找到答案，最接近的段落：",
}
"""What an answer begins with if the sources do not seem to have one."""
SUPERSEDED = {
    "en": "There is a newer version{}:",
    "zh": "已有新版本{}：",
}
"""What comes before a quotation of an older version, unless the newer one is quoted before it."""
_MARKS = (("“", "”"), ("「", "」"), ("«", "»"))


def quote_answer(context: RAGContext) -> GenerationResult[dict[str, Any]]:
    """Answer a question by quotations from the sources of a context, without a model.

    Args:
        context: With sources, best first. If its metadata's ``weak`` is True, the answer says that
            none was found, and quotes the closest passages.

    Returns:
        The response: quotations, each with the number of its source. Metadata: ``quotes``, a dict
        for each with ``index`` (number of the source, from 1), ``span`` (start and end in its text)
        and ``text``; ``model`` None; ``problems``.

    Example:
        >>> from lazyrag import Hit, RAGContext, RetrievalResult
        >>> hit = Hit("n", "Tea is old. Green tea wants water of 80 degrees.", 1.0)
        >>> context = RAGContext("How hot is green tea?", "", RetrievalResult.from_hits([hit]), 0)
        >>> quote_answer(context).response
        '“Green tea wants water of 80 degrees.” [1]'
    """
    texts = [hit.text for hit in context.sources]
    quotes = choose_quotes(context.query, context.sources)
    language = resolve_language("auto", context.query)
    newer = _newer_of(context.query, context.sources)
    names = [hit.source for hit in context.sources]
    quoted = set[str]()
    blocks = []
    if context.metadata.get("weak") or not quotes:
        blocks.append(NO_ANSWER[language])
    for quote in quotes:
        name = names[quote.source]
        newest = newer.get(quote.source, name)
        quoted.add(name)
        if newest not in quoted:
            number = f" [{names.index(newest) + 1}]" if newest in names else ""
            blocks.append(SUPERSEDED[language].format(number))
            quoted.add(newest)
        blocks.append(_written(quote, texts[quote.source]))
    if not quotes:
        blocks += [f"[{number}]" for number in range(1, len(texts) + 1)]
    details = [
        {
            "index": quote.source + 1,
            "span": (quote.start, quote.end),
            "text": texts[quote.source][quote.start : quote.end],
        }
        for quote in quotes
    ]
    metadata = {"model": None, "quotes": details, "problems": []}
    return GenerationResult("\n\n".join(blocks), metadata=metadata)


def _newer_of(query: str, hits: Sequence[Hit]) -> dict[int, str]:
    """By the numbers of hits, from 0, the document that replaces theirs. Not of documents whose
    version or year the question names.
    """
    newer = {}
    for number, hit in enumerate(hits):
        name = str(hit.metadata.get("superseded_by", ""))
        if name and not is_named(hit.source, query):
            newer[number] = name
    return newer


def ranks_of(hits: Sequence[Hit]) -> list[int]:
    """The rank of each hit, from 0; neighbours have that of the best one beside them.

    Example:
        >>> hits = [Hit("", "", 1.0, document_id="a", chunk_id=number) for number in (7, 2, 3)]
        >>> ranks_of(hits)
        [0, 1, 1]
    """
    ranks = []
    rank_of: dict[tuple[str, int], int] = {}
    for number, hit in enumerate(hits):
        near = [(hit.document_id, hit.chunk_id + step) for step in (0, -1, 1)]
        rank = min(rank_of.get(place, number) for place in near) if hit.document_id else number
        rank_of[near[0]] = rank
        ranks.append(rank)
    return ranks


def _written(quote: Quote, text: str) -> str:
    """A quotation with its markers: sentences in quotation marks; tables and code as they are."""
    marker = f"[{quote.source + 1}]"
    blocks = []
    for kind, group in itertools.groupby(quote.units, key=_form):
        units = list(group)
        words = text[units[0].start : units[-1].end]
        if kind == "code":
            blocks += [_fenced(dedent(line_of(text, units[0]))), marker]
        elif kind == "row":
            rows = [f"| {row.strip('| ')} |" for row in (quote.header, words) if row]
            if quote.header:
                rows.insert(1, "|" + " - |" * (rows[0].count("|") - 1))
            blocks += ["\n".join(rows), marker]
        else:
            mark = ITEM.match(words)
            words = " ".join(words[mark.end() if mark else 0 :].split())
            spans = sentence_spans(words)
            sentences = [_in_marks(words[start:end].strip()) for start, end in spans]
            blocks.append(" ".join(f"{sentence} {marker}" for sentence in sentences))
    return "\n\n".join(blocks)


def _fenced(code: str) -> str:
    """Code between fences, of which it may have one, both or none."""
    lines = code.splitlines()
    is_open = FENCE.match(lines[0])
    is_closed = lines[1:] and FENCE.match(lines[-1])
    fence = next((match[1] for match in (is_open, is_closed) if match), "```")
    return "\n".join([*[fence] * (not is_open), *lines, *[fence] * (not is_closed)])


def _form(unit: Unit) -> str:
    return unit.kind if unit.kind in ("row", "code") else "prose"


def _in_marks(words: str) -> str:
    """Words in quotation marks that they do not have themselves."""
    unused = (marks for marks in _MARKS if not {*marks} & {*words})
    opening, closing = next(unused, ('"', '"'))
    return f"{opening}{words}{closing}"
