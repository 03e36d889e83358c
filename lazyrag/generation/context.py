"""`ContextBuilder`: hits as the text that a chat model reads, within a budget of tokens."""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit, RAGContext, RetrievalResult
from lazyrag.errors import ConfigError
from lazyrag.generation.extractive import ranks_of
from lazyrag.generation.prompts import (
    SOURCES_HEAD,
    TEMPLATES,
    ContextTemplate,
    as_template,
    harmless,
)
from lazyrag.generation.selection import refine_best_first
from lazyrag.text.analyzers import query_terms, term_spans
from lazyrag.text.sentences import CJK_LETTERS, Language, resolve_language, sentence_ends
from lazyrag.text.tokens import TiktokenCounter, TokenCounter, counter_for_model, resolve_counter
from lazyrag.validation import (
    is_list_of,
    known_arguments,
    require,
    validate_boolean,
    validate_choice,
    validate_integer,
    validate_string,
    validate_text,
    without_none,
)

_LONG = 1000  # characters
_FULL_STOPS = (".", "!", "?", "。", "！", "？", "…", "．")
_WORD_END = re.compile(rf"\S(?=\s)|[{CJK_LETTERS}]")

Order: TypeAlias = Literal["rank", "lost_in_the_middle", "document"]
"""Order of sources in a context: best first; best at both ends; as in their documents."""
HiddenText: TypeAlias = Literal["drop", "keep"]
"""Whether text that readers of a file do not see is left out of a context."""


HitCost: TypeAlias = Callable[[Hit], int]
"""Tokens that a hit takes in a context."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Hits of a context, and the ids of the others.

    Args:
        hits: The hits that fit, best first, each with the text that fits.
        cut: Ids of the shortened ones among them.
        left_out: Ids of hits for which there was no room.
        blank: Ids of hits without a text.
        duplicates: Ids of hits that add nothing new.
        refined: Ids of hits of which sentences were left out, in favour of better ones of others.
    """

    hits: tuple[Hit, ...]
    cut: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    refined: tuple[str, ...] = ()


class _Seen:
    """Hits that are in a context, to detect duplicates."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._texts: set[str] = set()
        self._of_document: dict[str, list[str]] = {}

    def has(self, hit: Hit) -> bool:
        """Whether there is a hit of the same id or text, or a text of the same document that
        contains this one.
        """
        if hit.id and hit.id in self._ids:
            return True
        text = _folded(hit.text)
        return text in self._texts or any(
            text in other for other in self._of_document.get(_named_document(hit), ())
        )

    def add(self, hit: Hit, packed: Hit) -> None:
        """Add a hit with the part of it that fits: text that was cut off cannot contain another."""
        self._ids.add(hit.id)
        self._texts.add(_folded(hit.text))
        if document := _named_document(hit):
            self._of_document.setdefault(document, []).append(_folded(packed.text))


def _folded(text: str) -> str:
    return " ".join(text.split())


def _named_document(hit: Hit) -> str:
    return hit.document_id or hit.source


def pack(hits: Sequence[Hit], room: int, cost: HitCost, *, dedupe: bool) -> Packed:
    """Pack hits into a number of tokens, the best first.

    One hit that does not fit is shortened to the sentences that fit. Hits whose first sentence does
    not fit are left out, and the following ones, which may be shorter, are still tried. If nothing
    fits, the beginning of the best hit is used up to a word if it is long and has no full stop: a
    part of a table is better than nothing.

    Args:
        hits: Best first.
        room: Total tokens.
        cost: Tokens of a formatted hit.
        dedupe: Whether to drop hits that add nothing new: the same id, the same text except for
            white space, or a text within one of the same document, as of an overlapping chunk.
    """
    taken = []
    cut: list[str] = []
    left_out = []
    blank = []
    duplicates = []
    seen = _Seen()
    for hit in hits:
        if not hit.text.strip():
            blank.append(hit.id)
            continue
        if dedupe and seen.has(hit):
            duplicates.append(hit.id)
            continue
        packed = hit
        needed = cost(hit)
        if needed > room and not cut and (shorter := shortened(hit, room, cost)):
            cut.append(hit.id)
            packed = shorter
            needed = cost(shorter)
        if needed > room:
            left_out.append(hit.id)
            continue
        taken.append(packed)
        seen.add(hit, packed)
        room -= needed
    if not taken and left_out:
        best = next(hit for hit in hits if hit.text.strip())
        # Some counters count the whole as more than its parts: leave a little room.
        if _is_table(best.text) and (begun := beginning(best, room - max(8, room // 20), cost)):
            taken.append(begun)
            cut.append(best.id)
            left_out.remove(best.id)
    return Packed(tuple(taken), tuple(cut), tuple(left_out), tuple(blank), tuple(duplicates))


def shortened(hit: Hit, room: int, cost: HitCost) -> Hit | None:
    """Return a hit with as many of its first sentences as fit; None if none does, or the text is a
    single one.
    """
    ends = list(sentence_ends(hit.text))[:-1]
    count = _largest(len(ends), lambda number: cost(_truncated(hit, ends[number - 1])) <= room)
    return (
        _truncated(hit, ends[count - 1]) if count and hit.text[: ends[count - 1]].strip() else None
    )


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to a limit that fits, by binary search; 0 if none does."""
    low = 0
    high = most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _is_table(text: str) -> bool:
    """Whether a text is long and has no full stop."""
    return (
        len(text) > _LONG
        and len(list(sentence_ends(text))) == 1
        and not text.rstrip().endswith(_FULL_STOPS)
    )


def beginning(hit: Hit, room: int, cost: HitCost) -> Hit | None:
    """Return a hit with as much of its beginning as fits, up to the end of a word; None if nothing
    does.
    """
    size = _largest(len(hit.text), lambda number: cost(_truncated(hit, number)) <= room)
    ends = [size]
    if size < len(hit.text):
        ends = [word.end() for word in _WORD_END.finditer(hit.text, 0, size)]
    while ends and cost(_truncated(hit, ends[-1])) > room:  # fewer characters may be more tokens
        ends.pop()
    return _truncated(hit, ends[-1]) if ends and hit.text[: ends[-1]].strip() else None


def _truncated(hit: Hit, end: int) -> Hit:
    return dataclasses.replace(hit, text=hit.text[:end].rstrip())


def order_hits(hits: Sequence[Hit], order: Order) -> list[Hit]:
    """Order hits for a context; they come best first.

    Source:
        The best at both ends, since models read the middle least: Liu et al.: Lost in the Middle:
        How Language Models Use Long Contexts, TACL 2024, arXiv:2307.03172.

    Example:
        >>> hits = [Hit(str(n), "", 1 / n) for n in range(1, 6)]
        >>> "".join(hit.id for hit in order_hits(hits, "lost_in_the_middle"))
        '13542'
    """
    if order == "rank":
        return list(hits)
    if order == "lost_in_the_middle":
        return [*hits[::2], *hits[1::2][::-1]]
    # Documents in the order of their best hits; in each, the order of the nodes.
    documents: dict[Any, int] = {}
    for hit in hits:
        documents.setdefault(_document(hit), len(documents))
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


@known_arguments
class ContextBuilder:
    """Writes the context of a question: as many hits as fit, with numbers to cite them by (spec
    003).

    The budget applies to the final text: template, question, headings and texts together never take
    more tokens by ``counter``. Hits that do not fit together are refined: their best sentences for
    the question are kept, see `lazyrag.generation.selection.refine_best_first`. Without a question
    that has words in common with them, or with ``refine=False``, the best hits come first, and the
    first one that does not fit is cut at the end of a sentence.
    The context's metadata say what was left out.

    Args:
        model: The chat model whose tokens count, by OpenAI's name. Its vocabulary is used if
            tiktoken is installed and the vocabulary is on this machine; else ``"estimate"``
            estimates them, on the safe side. ``counter.name`` is the one in use.
        counter: Another `TokenCounter`, or the name of a registered one.
        template: A `ContextTemplate`, or a text with ``{sources}`` and ``{query}``. None: spec
            003's for Chinese, its counterpart for English.
        language: Of the built-in template; ``"auto"`` is the question's, and without a question the
            best hits'.
        order: Order of the sources: ``"rank"``, best first; ``"lost_in_the_middle"``, the best at
            the beginning and the end; ``"document"``, as in their documents. Hits are always
            selected by rank.
        dedupe: Whether to leave out hits that add nothing new: the same id, the same text, a text
            within a better hit's of the same document.
        refine: Whether to keep the best sentences of hits that do not fit together, instead of the
            first hits.
        hidden_text: ``"drop"``: text of hits that readers of the file do not see is left out;
            ``"keep"``: it is not.

    Raises:
        ConfigError: If an argument is invalid.
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
        refine: bool = True,
        hidden_text: HiddenText = "drop",
    ) -> None:
        self.model = validate_text("model", model)
        self.counter = resolve_counter(
            counter_for_model(model) or "estimate" if counter is None else counter
        )
        self.template = None if template is None else as_template(template)
        self.language: Language = validate_choice("language", language, Language)
        self.order: Order = validate_choice("order", order, Order)
        self.dedupe = validate_boolean("dedupe", dedupe)
        self.refine = validate_boolean("refine", refine)
        self.hidden_text = validate_choice("hidden_text", hidden_text, HiddenText)

    def __repr__(self) -> str:
        return f"ContextBuilder({self.model!r}, counter={self.counter.name!r})"

    @property
    def encoding(self) -> Any:
        """The model's ``tiktoken.Encoding``; `count_tokens` works without it.

        Raises:
            MissingDependencyError: If tiktoken is not installed.
            ConfigError: If it does not have the model, or the model's vocabulary is not on this
                machine; the message says where to save it.
        """
        counter = (
            self.counter
            if isinstance(self.counter, TiktokenCounter)
            else TiktokenCounter(self.model)
        )
        return counter.encoding

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text.

        Example:
            >>> ContextBuilder(counter="utf8").count_tokens("绿茶")
            2
        """
        validate_string("text", text)
        return self.counter.count(text)

    def build_context(
        self,
        query: str,
        results: Sequence[Hit],
        max_tokens: int = 2000,
        template: ContextTemplate | str | None = None,
    ) -> str:
        """Write the text for a chat model; `build` also returns its sources."""
        return self.build(query, results, max_tokens, template).context

    def build(
        self,
        query: str,
        results: Sequence[Hit],
        max_tokens: int = 2000,
        template: ContextTemplate | str | None = None,
    ) -> RAGContext:
        """Write the context of a question.

        Args:
            query: The question; "" for a text without one.
            results: Hits, best first: a `RetrievalResult`, or any sequence of objects with the
                fields of `Hit`.
            max_tokens: Size of the complete text, at least 1.
            template: A template for this call.

        Returns:
            The text, its tokens, and its sources in the order of their numbers, each with the text
            that fits. Metadata: ``counter``, ``language``, ``max_tokens``, and as tuples of ids
            ``cut``, ``refined`` (only their best sentences), ``left_out`` (no room),
            ``duplicates``, ``blank`` and ``hidden`` (without what readers of the file do not
            see); ``dropped``, the number of ``passages`` that are left out
            as a whole for want of room, and of ``tokens`` of all texts for which there was none;
            ``template`` if it was passed to this call.

        Raises:
            ConfigError: If template and question alone take more than ``max_tokens``, or an
                argument is invalid.
        """
        limit = validate_integer("max_tokens", max_tokens, 1)
        complete = _as_hits(results)
        hits = complete if self.hidden_text == "keep" else list(map(_visible, complete))
        page = self._page(query, template, hits)
        packed = self._packed(page, hits, limit)
        sources = order_hits(packed.hits, self.order)
        text = page.text(sources)
        # `without` needs a template that was passed to one call.
        extra = (
            {}
            if page.template is (self.template or TEMPLATES[page.language])
            else {"template": page.template}
        )
        metadata = {
            "counter": self.counter.name,
            "language": page.language,
            **extra,
            "max_tokens": limit,
            "cut": packed.cut,
            "left_out": packed.left_out,
            "duplicates": packed.duplicates,
            "refined": packed.refined,
            "blank": packed.blank,
            "dropped": self._dropped(hits, packed),
            "hidden": tuple(
                hit.id for hit, visible in zip(complete, hits, strict=True) if visible is not hit
            ),
        }
        return RAGContext(
            query, text, _result(results, sources), self.counter.count(text), metadata
        )

    def without(self, context: RAGContext, *indices: int) -> RAGContext:
        """Remove sources from a context; the others move up, and hits that were left out stay out.

        The metadata's ``removed`` has the ids of the removed sources.

        Args:
            context: A context of this builder.
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
        require(isinstance(context, RAGContext), "context", context, "a RAGContext of this builder")
        for index in indices:
            if not 1 <= validate_integer("index", index, 1) <= len(context.sources):
                raise ConfigError(
                    f"The context has no source {index}; its sources are 1 to"
                    f" {len(context.sources)}."
                )
        remaining = [
            hit for number, hit in enumerate(context.sources, start=1) if number not in indices
        ]
        template = context.metadata.get("template")
        own_template = template if isinstance(template, ContextTemplate) else None
        page = self._page(
            context.query, own_template, context.sources, context.metadata.get("language")
        )
        text = page.text(remaining)
        removed = [
            hit.id for number, hit in enumerate(context.sources, start=1) if number in indices
        ]
        cut = tuple(uid for uid in context.metadata.get("cut", ()) if uid not in removed)
        metadata = {
            **context.metadata,
            "cut": cut,
            "removed": (*context.metadata.get("removed", ()), *removed),
        }
        return RAGContext(
            context.query,
            text,
            _result(context.sources, remaining),
            self.counter.count(text),
            metadata,
        )

    def add_citations(self, context: str, results: Sequence[Hit]) -> str:
        """Append the list of sources to a context, numbered from 1 in the order of ``results``.

        Example:
            >>> hits = [Hit("1", "80", 1.0, "tea.txt")]
            >>> builder = ContextBuilder(counter="utf8")
            >>> print(builder.add_citations("Hot water.", hits))
            Hot water.
            <BLANKLINE>
            Sources:
            [1] tea.txt
        """
        hits = _as_hits(results)
        language = resolve_language(self.language, context)
        unknown = TEMPLATES[language].unknown
        lines = [f"[{number}] {hit.label or unknown}" for number, hit in enumerate(hits, start=1)]
        return "\n".join([context, "", SOURCES_HEAD[language], *lines]) if lines else context

    def _page(
        self,
        query: str,
        template: ContextTemplate | str | None,
        hits: Sequence[Hit],
        spoken_before: Any = None,
    ) -> _ContextPage:
        validate_string("query", query)
        query = query.strip()
        # Without a question the language is that of the sources.
        sample = query or " ".join(hit.text[:200] for hit in hits[:3])
        language = spoken_before or resolve_language(self.language, sample)
        chosen = self.template if template is None else as_template(template)
        return _ContextPage(chosen or TEMPLATES[language], query, language)

    def _packed(self, page: _ContextPage, hits: Sequence[Hit], limit: int) -> Packed:
        """Pack hits by the tokens of the parts, then by those of the complete text, which may
        differ.
        """
        count = self.counter.count
        least = count(page.text([]))
        frame = count(page.text([], nothing=""))
        if max(least, frame) > limit:
            taken = f"{max(least, frame)} tokens by {self.counter.name!r}"
            raise ConfigError(
                f"Template and question take {taken}, and max_tokens is {limit}; raise it."
            )
        separator = count(page.template.separator)

        def cost(hit: Hit) -> int:
            return count(page.written(len(hits), hit)) + separator

        room = limit - frame
        packed = pack(hits, room, cost, dedupe=self.dedupe)
        if self.refine and page.query and (packed.cut or packed.left_out):
            packed = self._refined(page.query, hits, room, cost) or packed
        while packed.hits and count(page.text(order_hits(packed.hits, self.order))) > limit:
            packed = self._shrunk(packed, page, limit)
        return packed

    def _refined(self, query: str, hits: Sequence[Hit], room: int, cost: HitCost) -> Packed | None:
        """The hits with their best sentences, without those that have none; None if none fits, or
        no hit has a word of the question, as where it is in another language.
        """
        terms = query_terms(query)
        if not any(term_spans(hit.text, terms) for hit in hits):
            return None
        complete = pack(hits, sys.maxsize, cost, dedupe=self.dedupe)
        refined = self._best_sentences(query, complete.hits, room, cost)
        best = len(complete.hits)
        while best > 1 and not refined:  # the headings alone take the room
            best //= 2
            refined = self._best_sentences(query, complete.hits[:best], room, cost)
        if len(refined) < len(complete.hits):  # the others have the room of their headings as well
            chosen = {hit.id for hit in refined}
            fewer = [hit for hit in complete.hits if hit.id in chosen]
            refined = self._best_sentences(query, fewer, room, cost)
        packed = pack(refined, room, cost, dedupe=False)
        if not packed.hits:
            return None
        texts: dict[str, set[str]] = {}  # an id may come twice
        for hit in complete.hits:
            texts.setdefault(hit.id, set()).add(hit.text.strip())
        left_out = Counter(hit.id for hit in complete.hits)
        left_out.subtract(hit.id for hit in packed.hits)
        return dataclasses.replace(
            packed,
            left_out=tuple(left_out.elements()),
            blank=complete.blank,
            duplicates=complete.duplicates,
            refined=tuple(hit.id for hit in packed.hits if hit.text.strip() not in texts[hit.id]),
        )

    def _best_sentences(
        self, query: str, hits: Sequence[Hit], room: int, cost: HitCost
    ) -> list[Hit]:
        headings = sum(cost(dataclasses.replace(hit, text="")) for hit in hits)
        texts = refine_best_first(
            query,
            [hit.text for hit in hits],
            budget=max(0, room - headings),
            counter=self.counter,
            ranks=ranks_of(hits),
            cuts=False,
        )
        pairs = zip(hits, texts, strict=True)
        return [dataclasses.replace(hit, text=text) for hit, text in pairs if text]

    def _dropped(self, hits: Sequence[Hit], packed: Packed) -> dict[str, int]:
        """How much of the hits is left out for want of room."""
        if not (packed.cut or packed.refined or packed.left_out):
            return {"passages": 0, "tokens": 0}
        before = pack(hits, sys.maxsize, lambda _: 0, dedupe=self.dedupe).hits
        tokens_before = sum(self.counter.count(hit.text) for hit in before)
        tokens = tokens_before - sum(self.counter.count(hit.text) for hit in packed.hits)
        return {"passages": len(before) - len(packed.hits), "tokens": tokens}

    def _shrunk(self, packed: Packed, page: _ContextPage, limit: int) -> Packed:
        """Shorten or drop the last hit, since the whole takes more tokens than its parts."""
        *before, last = packed.hits

        def cost(hit: Hit) -> int:
            return self.counter.count(page.text(order_hits([*before, hit], self.order)))

        cut = tuple(identifier for identifier in packed.cut if identifier != last.id)
        shorter = shortened(last, limit, cost)
        if shorter is not None:
            return dataclasses.replace(packed, hits=(*before, shorter), cut=(*cut, last.id))
        return dataclasses.replace(
            packed, hits=tuple(before), cut=cut, left_out=(*packed.left_out, last.id)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _ContextPage:
    """A template with a question in it."""

    template: ContextTemplate
    query: str
    language: Any

    def text(self, hits: Iterable[Hit], nothing: str | None = None) -> str:
        """The complete text with these sources, numbered from 1."""
        listed = [
            (number, hit.label, harmless(hit.text.rstrip()))
            for number, hit in enumerate(hits, start=1)
        ]
        template = (
            self.template
            if nothing is None
            else dataclasses.replace(self.template, nothing=nothing)
        )
        return template.fill(listed, self.query)

    def written(self, number: int, hit: Hit) -> str:
        """One source."""
        return self.template.write(number, hit.label, harmless(hit.text.rstrip()))


def _result(results: Any, sources: Sequence[Hit]) -> RetrievalResult[Any]:
    return RetrievalResult.from_hits(
        sources, results.metadata if isinstance(results, RetrievalResult) else None
    )


def _visible(hit: Hit) -> Hit:
    """The hit without its hidden text, whose places are of the file's own reader; hits of other
    programs may have anything under that name.
    """
    places = hit.metadata.get("hidden_text")
    if not places or not is_list_of(places, (list, tuple)) or not all(map(_is_place, places)):
        return hit
    visible = []
    end_of_last = 0
    for start, end, _ in sorted(places):
        visible.append(hit.text[end_of_last:start])
        end_of_last = max(end_of_last, end)
    visible.append(hit.text[end_of_last:])
    metadata = {name: value for name, value in hit.metadata.items() if name != "hidden_text"}
    return dataclasses.replace(hit, text="".join(visible), metadata=metadata)


def _is_place(place: Sequence[Any]) -> bool:
    """Whether this is a start, an end and a reason."""
    return len(place) == 3 and all(map(isinstance, place, (int, int, str)))


def _as_hits(results: Any) -> list[Hit]:
    is_valid = isinstance(results, Iterable) and not isinstance(results, (str, bytes, Mapping))
    require(is_valid, "results", results, "a RetrievalResult or a list of hits")
    return [_as_hit(result) for result in results]


def _as_hit(value: Any) -> Hit:
    """Make a hit of a node, or of an object with the same fields, such as spec 003's own class."""
    if isinstance(value, DocNode):
        return Hit.from_node(value)
    fields: dict[str, Any] = {name: getattr(value, name, None) for name in _FIELDS}
    present = without_none(fields)
    for name, kind in _KINDS.items():
        is_valid = (
            isinstance(present[name], kind) if name in present else name not in ("id", "text")
        )
        hint = f"The result is a {type(value).__name__}."
        require(is_valid, f"The {name} of a result", fields[name], f"a {kind.__name__}", hint)
    return (
        value
        if isinstance(value, Hit) and len(present) == len(fields)
        else Hit(**{"score": math.nan, **present})
    )
