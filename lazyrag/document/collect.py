"""Complete answers: every passage, table row or document with some words, page by page."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode, describe_span
from lazyrag.data.segment import LAZY_ROOT_NAME, TABLE, Span, content_text
from lazyrag.document.tables import TableLocation, make_table
from lazyrag.generation.citations import snippet
from lazyrag.generation.claims import Judge
from lazyrag.generation.judge import checked_judge, passage_judge
from lazyrag.groups.node_group import Step
from lazyrag.models.protocols import ChatModel
from lazyrag.read.catalogue import list_documents
from lazyrag.read.rows import select_rows
from lazyrag.read.scope import Collection, Reader, reader_of
from lazyrag.read.snapshot import LocalSnapshot
from lazyrag.read.source import LiveState
from lazyrag.stores.sqlite import read_text
from lazyrag.text.analyzers import content_terms, normal_form, term_function
from lazyrag.text.question_parts import find_list_words
from lazyrag.text.tokens import resolve_counter
from lazyrag.validation import (
    require,
    validate_boolean,
    validate_choice,
    validate_integer,
)

UNITS = {"document": 1, "node": 2, "row": 3}
"""What is counted: how many parts of a place tell one from another."""
MAX_QUERY = 8_192
"""Characters."""
MAX_ITEMS = 1_000
_ANALYSER = "zh"
_MAX_UNREAD = 1_000
_FEW = 2_000  # nodes that are read by their uids
_PHRASE = re.compile('["“]([^"“”]+)["”]')
_OR = re.compile(r"\sOR\s")
_SKIPPED = (
    "SELECT identity, loaded FROM document WHERE ledger = :ledger AND status = 'skipped'"
    " ORDER BY identity LIMIT :most"
)

_Alternative = tuple[frozenset[str], list[str]]
"""Terms and phrases that a text must all have."""

_LINKS = content_terms(
    "people work live get has have belong based located 人员 工作 居住 位于 属于"
)
"""Words of questions between what is asked for and its values, which texts rarely have."""
_NO = ("", *"- no false n 否 无".split())
"""Cells that say that a row lacks what the column's name says."""


@dataclass(frozen=True, slots=True)
class CollectedItem:
    """A document, passage or table row that matches.

    Args:
        path: The document.
        location: The place of the quoted words, for people, as `DocNode.location`.
        snippet: The sentence with most of the query's words, at most 200 characters; of a table
            row its cells. For a document that of its first passage.
        uid: Of the passage, or of the table's node.
        span: Start and end of the snippet in the document's text, for `Document.read` and
            `lazyrag.read.marks`; None if unknown.
        matches: The number of passages that match: more than 1 for documents only.
    """

    path: str
    location: str
    snippet: str
    uid: str
    span: Span | None = None
    matches: int = 1


@dataclass(frozen=True, slots=True)
class CollectedPage:
    """A page of all that matches.

    Args:
        items: In order of path, then of place.
        total: How many there are on all pages, before any verdict of a judge.
        next: Pass it as ``after`` for the next page; None after the last one.
        unread: Files that were not looked at, with the reason: they failed, or have no text. At
            most 1,000 of each kind. A restricted Document names none that it does not show.
        refused: How many matches of this page the judge left out.
        calls: Calls of the judge for this page; with ``dry_run`` how many it would take at most.
        tokens: Estimated tokens of the texts in those calls.
    """

    items: tuple[CollectedItem, ...]
    total: int
    next: str | None = None
    unread: Mapping[str, str] = field(default_factory=dict)
    refused: int = 0
    calls: int = 0
    tokens: int = 0


class _Match(NamedTuple):
    """A node, or a row of a table, that matches.

    Args:
        place: Path, number of the node, and number of the row, from 1; 0 for a node.
        node: The node, or that of the table.
        text: What was compared.
        row: Where the row is; None for a node.
    """

    place: tuple[str, int, int]
    node: DocNode
    text: str
    row: TableLocation | None = None


def collect(
    docs: Collection,
    query: str,
    filters: FilterLike | None,
    per: str,
    group: str,
    limit: int,
    after: str | None,
    judge: Judge | ChatModel | None,
    *,
    dry_run: bool,
) -> CollectedPage:
    """See `Document.collect`."""
    reader = reader_of(docs)
    is_short = isinstance(query, str) and len(query) <= MAX_QUERY
    require(is_short, "query", query, f"a text of at most {MAX_QUERY} characters")
    width = UNITS[validate_choice("per", per, UNITS)]
    name = TABLE if per == "row" else group
    reader.line(name)  # raises for an unknown one
    most = validate_integer("limit", limit, 1, MAX_ITEMS)
    first = _read_cursor(after)
    asks = passage_judge(judge) if isinstance(judge, ChatModel) else judge
    require(asks is None or callable(asks), "judge", judge, "a chat model, a Judge or None")
    validate_boolean("dry_run", dry_run)
    reader.bind(filters)
    alternatives = _read_query(query)

    def read(snapshot: LocalSnapshot) -> tuple[CollectedPage, list[list[str]]]:
        items: list[CollectedItem] = []
        texts = []  # of each item, if a judge reads them
        total = 0
        last: tuple[Any, ...] = ()
        matches = _find_matches(snapshot, alternatives, name, filters)
        for place, members in itertools.groupby(matches, lambda match: match.place[:width]):
            total += 1
            if place > first and len(items) <= most:
                match = next(members)
                others = [member.text if asks else "" for member in members]
                texts.append([match.text, *others])
                items.append(_make_item(snapshot, match, query, 1 + len(others)))
                last = place if len(items) <= most else last
        following = json.dumps(last, ensure_ascii=False) if len(items) > most else None
        return CollectedPage(tuple(items[:most]), total, following), texts

    steps = [Step(name)]
    if _has_index(reader.indexer, alternatives, name):
        steps.append(Step(name, analyser=_ANALYSER))
    page, texts = reader.read(read, frozenset(steps))
    if asks is not None:
        page = _judge_page(page, texts, query, checked_judge(asks), dry_run=dry_run)
    return replace(page, unread=_list_unread(reader))


def _read_query(query: str) -> list[_Alternative]:
    """The alternatives of a query; of a blank one an alternative that every text satisfies."""
    alternatives = []
    for part in _OR.split(query):
        phrases = list(filter(None, map(_spaced, _PHRASE.findall(part))))
        words = find_list_words(part)
        terms = content_terms(words or part)
        if words:
            terms = terms - _LINKS or terms
        if terms or phrases:
            alternatives.append((terms, phrases))
    if not query.strip():
        return [(frozenset(), [])]
    expected = (
        'a text with a word to look for, and no NOT; or "" for all that satisfies the filters'
    )
    hint = "A judge= leaves matches out."
    is_valid = alternatives and " NOT " not in _PHRASE.sub("", query)
    require(bool(is_valid), "query", query, expected, hint)
    return alternatives


def _is_match(
    alternatives: list[_Alternative], text: str, around: frozenset[str] = frozenset()
) -> bool:
    """Whether a text, with terms around it, has all that an alternative asks for."""
    terms_of_text = around.union(term_function(_ANALYSER)(text))
    of_phrases = [phrases for terms, phrases in alternatives if terms <= terms_of_text]
    spaced = _spaced(text) if any(of_phrases) else ""
    return any(all(phrase in spaced for phrase in phrases) for phrases in of_phrases)


def _spaced(text: str) -> str:
    """A text as phrases are compared: in normal form, with single spaces."""
    return " ".join(normal_form(text).split())


def _read_cursor(after: str | None) -> tuple[Any, ...]:
    """The place that a page ended with; () for the first page."""
    if after is None:
        return ()
    try:
        place = json.loads(after)
        kinds = [*map(type, place)]
    except (TypeError, ValueError, RecursionError):
        kinds = []
    is_place = bool(kinds) and kinds == [str, int, int][: len(kinds)]
    require(is_place, "after", after, "the next of an earlier page, or None")
    return tuple(place)


def _has_index(indexer: LiveState, alternatives: list[_Alternative], group: str) -> bool:
    """Whether a keyword index here finds the candidates: it reads the nodes' own texts, and no more
    of them are fetched than match.
    """
    if group in (TABLE, LAZY_ROOT_NAME) or indexer.nodes.downloads_texts:
        return False
    has_terms = all(terms for terms, _ in alternatives)
    return has_terms and indexer.graph[group].index_text is None


def _find_matches(
    snapshot: LocalSnapshot,
    alternatives: list[_Alternative],
    group: str,
    filters: FilterLike | None,
) -> Iterator[_Match]:
    """What matches, in order; nodes are read page by page."""
    nodes = snapshot.walk(group, filters)
    if _has_index(snapshot.indexer, alternatives, group):
        # also nodes whose headings have the words
        candidates = set()
        for terms, _ in alternatives:
            candidates.update(snapshot.holders(group, _ANALYSER, [*terms]))
        if len(candidates) <= _FEW:
            nodes = snapshot.walk(group, filters, {"uid": candidates})
        nodes = (node for node in nodes if node.uid in candidates)
    for node in nodes:
        if group == TABLE:
            yield from _matching_rows(snapshot, alternatives, node)
        elif _is_match(alternatives, node.text):
            yield _Match((node.path, node.number, 0), node, node.text)


def _matching_rows(
    snapshot: LocalSnapshot, alternatives: list[_Alternative], node: DocNode
) -> Iterator[_Match]:
    table = make_table(node, set(), is_one_of_many=False)
    names = list(map(content_terms, table.columns))
    title = content_terms(f"{node.path} {table.caption} {table.location.sheet}")
    rows = {}
    for number, row in enumerate(table.rows):
        of_columns = (
            terms for terms, cell in zip(names, row, strict=False) if cell.casefold() not in _NO
        )
        if _is_match(alternatives, " ".join(row), title.union(*of_columns)):
            rows[number] = row
    source = content_text(snapshot.root(node.segment).content)
    for number, location in zip(rows, table.row_locations(rows, source), strict=True):
        text = "; ".join(map(": ".join, zip(table.columns, rows[number], strict=False)))
        yield _Match((node.path, node.number, number + 1), node, text, location)


def _make_item(snapshot: LocalSnapshot, match: _Match, query: str, matches: int) -> CollectedItem:
    node = match.node
    if match.row is not None:
        location = match.row
        return CollectedItem(node.path, location.location, match.text, node.uid, location.span)
    quote = snippet(match.text, query)
    source = snapshot.source_of(node.segment)
    if source is None or source.group != LAZY_ROOT_NAME:
        return CollectedItem(node.path, node.location, quote, node.uid, None, matches)
    start = (node.span or (0, 0))[0] + match.text.find(quote)
    span = (start, start + len(quote))
    return CollectedItem(node.path, describe_span(source, span), quote, node.uid, span, matches)


def _judge_page(
    page: CollectedPage, texts: list[list[str]], query: str, judge: Judge, *, dry_run: bool
) -> CollectedPage:
    """Keep the items with a text that the judge supports; the first such text decides."""
    count_tokens = resolve_counter("estimate").count
    items = []
    calls = 0
    tokens = 0
    for item, texts_of_item in zip(page.items, texts, strict=False):
        for text in texts_of_item:
            calls += 1
            tokens += count_tokens(f"{query}\n{text}")
            if not dry_run and judge(query, text) == "supported":
                items.append(item)
                break
    if dry_run:
        items = [*page.items]
    refused = len(page.items) - len(items)
    return replace(page, items=tuple(items), refused=refused, calls=calls, tokens=tokens)


def _list_unread(reader: Reader) -> dict[str, str]:
    failed = list_documents(reader, None, _MAX_UNREAD, "FAILED", None)
    unread = {document.path: f"failed: {document.stage}" for document in failed}
    if reader.scope is None:
        for identity, loaded in select_rows(reader, _SKIPPED, most=_MAX_UNREAD):
            unread[read_text(identity)] = json.loads(loaded)["skipped"]
    return unread
