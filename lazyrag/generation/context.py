"""`ContextBuilder`: from hits to the text that a chat model reads, within a budget of tokens."""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit, RAGContext, RetrievalResult
from lazyrag.errors import ConfigError, known_names
from lazyrag.generation.markers import source_of
from lazyrag.generation.prompts import SOURCES_HEAD, TEMPLATES, ContextTemplate, as_template, harmless
from lazyrag.text.sentences import CJK_LETTERS, Language, sentence_ends, spoken
from lazyrag.text.tokens import TokenCounter, counter_for_model, token_counters
from lazyrag.validation import known_arguments, whole_number, yes_or_no

_LONG = 1000  # characters
_FULL_STOPS = (".", "!", "?", "。", "！", "？", "…", "．")
_WORD_END = re.compile(rf"\S(?=\s)|[{CJK_LETTERS}]")

Order: TypeAlias = Literal["rank", "lost_in_the_middle", "document"]
"""How sources stand in a context: best first; the best at both ends; as they stand in their documents."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What became of the hits.

    Args:
        hits: What goes in, best first, each with the text that goes in.
        cut: Ids of those among them that were shortened.
        left_out: Ids of those for which there was no room.
        blank: Ids of those without a text.
        duplicates: Ids of those that say nothing new.
    """

    hits: tuple[Hit, ...]
    cut: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


class _Chosen:
    """What stands in a context already, to tell what would say nothing new beside it."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._texts: set[str] = set()
        self._of_document: dict[str, list[str]] = {}

    def has(self, hit: Hit) -> bool:
        """Whether it has the hit's id, its text but for white space, or a text of its document that contains it."""
        if hit.id and hit.id in self._ids:
            return True
        text = _folded(hit.text)
        return text in self._texts or any(text in one for one in self._of_document.get(_named_document(hit), ()))

    def add(self, hit: Hit, kept: Hit) -> None:
        """A hit, and what of it went in: the text that was cut off is not there to contain another."""
        self._ids.add(hit.id)
        self._texts.add(_folded(hit.text))
        if document := _named_document(hit):
            self._of_document.setdefault(document, []).append(_folded(kept.text))


def _folded(text: str) -> str:
    return " ".join(text.split())


def _named_document(hit: Hit) -> str:
    return hit.document_id or hit.source


def pack(hits: Sequence[Hit], room: int, cost: Callable[[Hit], int], *, dedupe: bool) -> Packed:
    """Hits into a number of tokens, the best first.

    A hit that does not fit is shortened to the sentences that do, at most one of all hits; one of which not even the
    first sentence fits is left out, and those behind it, which may be shorter, are still tried. Where nothing at all
    would go in, the best one goes in up to a word if it is long and has no full stop: a table is better
    begun than not read.

    Args:
        hits: Best first.
        room: Tokens that they may take together.
        cost: Of a hit as it is written.
        dedupe: Whether hits are dropped that say nothing new beside those that went in: the same id, the same text but
            for white space, or a text that stands as a whole within one of the same document, as an overlapping
            chunk's does.
    """
    taken: list[Hit] = []
    cut: list[str] = []
    left_out: list[str] = []
    blank: list[str] = []
    duplicates: list[str] = []
    chosen = _Chosen()
    for hit in hits:
        if not hit.text.strip():
            blank.append(hit.id)
            continue
        if dedupe and chosen.has(hit):
            duplicates.append(hit.id)
            continue
        kept, needed = hit, cost(hit)
        if needed > room and not cut and (shorter := shortened(hit, room, cost)):
            cut.append(hit.id)
            kept, needed = shorter, cost(shorter)
        if needed > room:
            left_out.append(hit.id)
            continue
        taken.append(kept)
        chosen.add(hit, kept)
        room -= needed
    if not taken and left_out:
        best = next(hit for hit in hits if hit.text.strip())
        # Some counters count the whole as more than its parts: a little room stays.
        if _is_table(best.text) and (begun := beginning(best, room - max(8, room // 20), cost)):
            taken.append(begun)
            cut.append(best.id)
            left_out.remove(best.id)
    return Packed(tuple(taken), tuple(cut), tuple(left_out), tuple(blank), tuple(duplicates))


def shortened(hit: Hit, room: int, cost: Callable[[Hit], int]) -> Hit | None:
    """A hit with as many of its first sentences as fit; None where not one does, or its text is a single one."""
    ends = list(sentence_ends(hit.text))[:-1]
    low, high = 0, len(ends)  # so many sentences fit; so many may
    while low < high:
        middle = (low + high + 1) // 2
        if cost(_kept(hit, ends[middle - 1])) <= room:
            low = middle
        else:
            high = middle - 1
    return _kept(hit, ends[low - 1]) if low and hit.text[: ends[low - 1]].strip() else None


def _is_table(text: str) -> bool:
    """Whether a text is long and has no end of a sentence."""
    return len(text) > _LONG and len(list(sentence_ends(text))) == 1 and not text.rstrip().endswith(_FULL_STOPS)


def beginning(hit: Hit, room: int, cost: Callable[[Hit], int]) -> Hit | None:
    """A hit with as much of its beginning as fits, up to the end of a word; None where nothing does."""
    low, high = 0, len(hit.text)  # so many characters fit; so many may
    while low < high:
        middle = (low + high + 1) // 2
        if cost(_kept(hit, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    ends = [found.end() for found in _WORD_END.finditer(hit.text, 0, low)] if low < len(hit.text) else [low]
    while ends and cost(_kept(hit, ends[-1])) > room:  # fewer characters may be more tokens
        ends.pop()
    return _kept(hit, ends[-1]) if ends and hit.text[: ends[-1]].strip() else None


def _kept(hit: Hit, end: int) -> Hit:
    return dataclasses.replace(hit, text=hit.text[:end].rstrip())


def arranged(hits: Sequence[Hit], order: Order) -> list[Hit]:
    """Hits in the order in which they are to stand; they come best first.

    Source:
        The best at both ends, the least in the middle, where models read least: Liu et al.: Lost in the Middle: How
        Language Models Use Long Contexts, TACL 2024, arXiv:2307.03172.

    Example:
        >>> hits = [Hit(str(n), "", 1 / n) for n in range(1, 6)]
        >>> "".join(hit.id for hit in arranged(hits, "lost_in_the_middle"))
        '13542'
    """
    if order == "rank":
        return list(hits)
    if order == "lost_in_the_middle":
        return [*hits[::2], *hits[1::2][::-1]]
    # Documents in the order of their best hits; in each, as the nodes stand.
    documents = {key: at for at, key in reversed(list(enumerate(_document(hit) for hit in hits)))}
    return sorted(hits, key=lambda hit: (documents[_document(hit)], hit.chunk_id))


def _document(hit: Hit) -> str:
    return hit.document_id or hit.source or f"\0{hit.id}"


_FIELDS = tuple(Hit.__slots__)
_KINDS: Mapping[str, type] = {
    "id": str,
    "text": str,
    "source": str,
    "document_id": str,
    "chunk_id": numbers.Integral,
    "metadata": Mapping,
}
_MISSING: Mapping[str, Any] = {"source": "", "document_id": "", "chunk_id": 0, "metadata": {}}


@known_arguments
class ContextBuilder:
    """Writes the context of a question: as many of its hits as fit, with numbers to cite them by (spec 003).

    The budget is one of the final text: template, question, headings and texts together never take more tokens than
    asked for, by ``counter``. Hits go in best first. The one that does not fit is cut at the end of a sentence; nothing
    else is, and the context's metadata say what was cut and left out.

    Args:
        model: The chat model whose tokens count, by OpenAI's name. Its vocabulary is used if tiktoken is installed and
            the vocabulary lies on this machine; else tokens are counted as ``"utf8"`` does, which leans to the high
            side for prose. ``counter.name`` says which it is.
        counter: What counts instead: a `TokenCounter`, or the name of a registered one.
        template: A `ContextTemplate`, or a text with ``{sources}`` and ``{query}``. None: spec 003's for Chinese, its
            counterpart for English.
        language: Of the built-in template; ``"auto"`` is the question's, and without a question the best hits'.
        order: How the sources stand in the text: ``"rank"``, best first; ``"lost_in_the_middle"``, the best at the
            beginning and the end; ``"document"``, as they stand in their documents. What goes in is chosen by rank.
        dedupe: Whether hits that say nothing new are left out: the same id, the same text, a text within a better
            hit's of the same document.

    Raises:
        ConfigError: If an argument is out of its range.
        NotRegisteredError: If there is no counter of that name.

    Example:
        >>> builder = ContextBuilder(counter="utf8")
        >>> hits = [Hit("1", "绿茶用八十度的水。", 0.9, "茶.txt"), Hit("2", "红茶用沸水。", 0.5, "茶.txt")]
        >>> print(builder.build_context("绿茶用多热的水？", hits, max_tokens=200))
        基于以下参考资料回答问题：
        <BLANKLINE>
        [资料1] 来源：茶.txt
        绿茶用八十度的水。
        <BLANKLINE>
        [资料2] 来源：茶.txt
        红茶用沸水。
        <BLANKLINE>
        问题：绿茶用多热的水？
        <BLANKLINE>
        请基于上述资料回答，并在回答中标注引用来源（如[1]、[2]）。
    """

    def __init__(
        self,
        model: str = "gpt-3.5-turbo",
        *,
        counter: TokenCounter | str | None = None,
        template: ContextTemplate | str | None = None,
        language: Language = "auto",
        order: Order = "rank",
        dedupe: bool = True,
    ) -> None:
        if not isinstance(model, str) or not model.strip():
            msg = f"model is {model!r:.60}; give the name of a chat model, or counter= for another way of counting."
            raise ConfigError(msg)
        self.model = model
        self.counter = _counter(counter, model)
        self.template = None if template is None else as_template(template)
        self.language: Language = _one_of("language", language, get_args(Language))
        self.order: Order = _one_of("order", order, get_args(Order))
        self.dedupe = yes_or_no("dedupe", dedupe)

    def __repr__(self) -> str:
        return f"ContextBuilder({self.model!r}, counter={self.counter.name!r})"

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, by the counter.

        Example:
            >>> ContextBuilder(counter="utf8").count_tokens("绿茶")
            2
        """
        if not isinstance(text, str):
            msg = f"count_tokens got {text!r:.60} ({type(text).__name__}); give a text."
            raise ConfigError(msg)
        return self.counter.count(text)

    def build_context(
        self,
        query: str,
        results: Sequence[Hit] | RetrievalResult[Any],
        max_tokens: int = 2000,
        template: ContextTemplate | str | None = None,
    ) -> str:
        """The text for a chat model; see `build`, which also says what went into it."""
        return self.build(query, results, max_tokens, template).context

    def build(
        self,
        query: str,
        results: Sequence[Hit] | RetrievalResult[Any],
        max_tokens: int = 2000,
        template: ContextTemplate | str | None = None,
    ) -> RAGContext:
        """The context of a question.

        Args:
            query: The question; "" for a text without one.
            results: Hits, best first: a `RetrievalResult`, or any sequence of objects with the fields of `Hit`.
            max_tokens: Of the whole text, at least 1.
            template: Another one for this call.

        Returns:
            The text, its tokens, and the sources in it as they are numbered, each with the text that went in. Metadata:
            ``counter``, ``language``, ``max_tokens``, and as tuples of ids ``cut``, ``left_out`` (no room),
            ``duplicates`` and ``blank``; ``template`` where it was given for this call.

        Raises:
            ConfigError: If template and question alone take more than ``max_tokens``, or an argument is not of its
                kind.
        """
        limit = whole_number("max_tokens", max_tokens, 1)
        hits = _checked(results)
        page = self._page(query, template, hits)
        packed = self._packed(page, hits, limit)
        sources = arranged(packed.hits, self.order)
        text = page.text(sources)
        metadata = {
            **self._told(page),
            "max_tokens": limit,
            "cut": packed.cut,
            "left_out": packed.left_out,
            "duplicates": packed.duplicates,
            "blank": packed.blank,
        }
        return RAGContext(query, text, _result(results, sources), self.counter.count(text), metadata)

    def without(self, context: RAGContext, *indices: int) -> RAGContext:
        """A context without some of its sources; the others move up, and what was left out before stays out.

        The metadata's ``removed`` has the ids of those that were taken away.

        Args:
            context: What this builder built.
            indices: Numbers of citations, from 1.

        Raises:
            ConfigError: If the context has no source of that number.

        Example:
            >>> builder = ContextBuilder(counter="utf8", template="{sources}")
            >>> hits = [Hit(text, text, 0.5, "tea.txt") for text in ("green", "black")]
            >>> print(builder.without(builder.build("", hits), 1).context)
            [1] tea.txt
            black
        """
        if not isinstance(context, RAGContext):
            msg = f"context is {context!r:.60}; give a RAGContext that this builder built."
            raise ConfigError(msg)
        count = len(context.sources)
        for index in indices:
            if not 1 <= whole_number("index", index, 1) <= count:
                msg = f"The context has {count} sources, and none with the number {index}; count from 1."
                raise ConfigError(msg)
        kept = [hit for number, hit in enumerate(context.sources, start=1) if number not in indices]
        template = context.metadata.get("template")
        own = template if isinstance(template, ContextTemplate) else None
        page = self._page(context.query, own, context.sources, context.metadata.get("language"))
        text = page.text(kept)
        removed = [hit.id for number, hit in enumerate(context.sources, start=1) if number in indices]
        cut = tuple(one for one in context.metadata.get("cut", ()) if one not in removed)
        metadata = {**context.metadata, "cut": cut, "removed": (*context.metadata.get("removed", ()), *removed)}
        return RAGContext(context.query, text, _result(context.sources, kept), self.counter.count(text), metadata)

    def add_citations(self, context: str, results: Sequence[Hit] | RetrievalResult[Any]) -> str:
        """A context with the list of its sources behind it, numbered from 1 in the order of ``results``.

        Example:
            >>> print(ContextBuilder(counter="utf8").add_citations("Hot water.", [Hit("1", "80", 1.0, "tea.txt")]))
            Hot water.
            <BLANKLINE>
            Sources:
            [1] tea.txt
        """
        hits = _checked(results)
        language = spoken(self.language, context)
        unknown = TEMPLATES[language].unknown
        lines = [f"[{number}] {source_of(hit) or unknown}" for number, hit in enumerate(hits, start=1)]
        return "\n".join([context, "", SOURCES_HEAD[language], *lines]) if lines else context

    def _page(
        self, query: str, template: ContextTemplate | str | None, hits: Sequence[Hit], spoken_before: Any = None
    ) -> _Page:
        if not isinstance(query, str):
            msg = f"The query is {query!r:.60} ({type(query).__name__}); give a text."
            raise ConfigError(msg)
        asked = query.strip()
        # Without a question the sources say which language to speak.
        language = spoken_before or spoken(self.language, asked or " ".join(hit.text[:200] for hit in hits[:3]))
        own = self.template if template is None else as_template(template)
        return _Page(own or TEMPLATES[language], asked, language)

    def _packed(self, page: _Page, hits: Sequence[Hit], limit: int) -> Packed:
        """Hits within the limit, by the tokens of the parts; then of the whole, which counters may count otherwise."""
        count = self.counter.count
        least = count(page.text([]))
        frame = count(page.text([], nothing=""))
        if max(least, frame) > limit:
            msg = (
                f"Template and question take {max(least, frame)} tokens by {self.counter.name!r}, and max_tokens is "
                f"{limit}; give more, or a shorter template."
            )
            raise ConfigError(msg)
        separator = count(page.template.separator)

        def cost(hit: Hit) -> int:
            return count(page.written(len(hits), hit)) + separator

        packed = pack(hits, limit - frame, cost, dedupe=self.dedupe)
        while packed.hits and count(page.text(arranged(packed.hits, self.order))) > limit:
            packed = self._shrunk(packed, page, limit)
        return packed

    def _shrunk(self, packed: Packed, page: _Page, limit: int) -> Packed:
        """With less of the last hit, or without it: the whole took more tokens than its parts."""
        *before, last = packed.hits

        def cost(hit: Hit) -> int:
            return self.counter.count(page.text(arranged([*before, hit], self.order)))

        shorter = shortened(last, limit, cost)
        if shorter is not None:
            return dataclasses.replace(packed, hits=(*before, shorter), cut=_with(packed.cut, last.id))
        cut = tuple(one for one in packed.cut if one != last.id)
        return dataclasses.replace(packed, hits=tuple(before), cut=cut, left_out=(*packed.left_out, last.id))

    def _told(self, page: _Page) -> dict[str, Any]:
        # What this builder would not take by itself; `without` needs it.
        own = {} if page.template is (self.template or TEMPLATES[page.language]) else {"template": page.template}
        return {"counter": self.counter.name, "language": page.language, **own}


@dataclasses.dataclass(frozen=True, slots=True)
class _Page:
    """A template with a question in it."""

    template: ContextTemplate
    query: str
    language: Any

    def text(self, hits: Iterable[Hit], nothing: str | None = None) -> str:
        """The whole text over these sources, numbered from 1."""
        listed = [(number, source_of(hit), harmless(hit.text.rstrip())) for number, hit in enumerate(hits, start=1)]
        template = self.template if nothing is None else dataclasses.replace(self.template, nothing=nothing)
        return template.fill(listed, self.query)

    def written(self, number: int, hit: Hit) -> str:
        """One source."""
        return self.template.write(number, source_of(hit), harmless(hit.text.rstrip()))


def _with(ids: tuple[str, ...], one: str) -> tuple[str, ...]:
    return ids if one in ids else (*ids, one)


def _result(given: Any, sources: Sequence[Hit]) -> RetrievalResult[Any]:
    return RetrievalResult.from_hits(sources, given.metadata if isinstance(given, RetrievalResult) else None)


def _checked(results: Any) -> list[Hit]:
    if isinstance(results, (str, bytes, Mapping)) or not isinstance(results, Iterable):
        msg = f"results is {results!r:.60}; give a RetrievalResult, or a list of hits."
        raise ConfigError(msg)
    return [_as_hit(one) for one in results]


def _as_hit(value: Any) -> Hit:
    """A hit, of a node or of another class with the same fields, such as spec 003's own."""
    if isinstance(value, DocNode):
        return Hit.from_node(value)
    fields: dict[str, Any] = {name: getattr(value, name, None) for name in _FIELDS}
    given = {name: one for name, one in fields.items() if one is not None}
    for name, kind in _KINDS.items():
        if not isinstance(given.get(name, _MISSING.get(name)), kind):
            msg = (
                f"A result is {value!r:.60}, and its {name} is {fields[name]!r:.40}; give a Hit, a DocNode, or an "
                f"object with the fields of a Hit."
            )
            raise ConfigError(msg)
    return value if isinstance(value, Hit) and len(given) == len(fields) else Hit(**{"score": math.nan, **given})


def _counter(counter: Any, model: str) -> TokenCounter:
    if counter is None:
        return counter_for_model(model) or token_counters["utf8"]
    if isinstance(counter, str):
        return token_counters[counter]
    if not callable(getattr(counter, "count", None)) or not isinstance(getattr(counter, "name", None), str):
        msg = f"counter is {counter!r:.60}; give a name, or an object with name and count(text). " + known_names(
            "", token_counters
        )
        raise ConfigError(msg)
    found: TokenCounter = counter
    return found


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        msg = f"{name} is {value!r:.60}. {known_names(str(value), known)}"
        raise ConfigError(msg)
    return value
