"""Functions that read a Document beside its methods: outlines, literal texts, related nodes, near
duplicates.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode, describe_span
from lazyrag.data.segment import LAZY_ROOT_NAME, NOT_SHOWN, Location, Segment, Span, content_text
from lazyrag.errors import ConfigError, StaleNodeError, optional_package
from lazyrag.groups.node_group import Step, group_name
from lazyrag.indexes.bm25 import BM25
from lazyrag.read.catalogue import ROOT_STEPS, find_root
from lazyrag.read.scope import Collection, reader_of
from lazyrag.read.snapshot import Hits, LocalSnapshot, Snapshot
from lazyrag.storage.database import batches_reaching
from lazyrag.text.analyzers import aligned, term_function, without_ignorable
from lazyrag.validation import (
    known_keywords,
    normal_name,
    require,
    validate_boolean,
    validate_integer,
    validate_text,
)

_GREP_TOGETHER = 32  # documents whose texts it reads together
_MAX_PATTERN = 1_000  # characters of a text to find
_MAX_MATCHES = 1_000
_MAX_LINE = 200  # characters before and after a match
_SKETCHED_TOGETHER = 1 << 20  # characters of texts
_MAX_TERMS = 64  # of a node, to find nodes with the same ones
_FIRST_MATCHES = """
SELECT number, length(regexp_extract(line, '^((?s:.*?))(?:' || $pattern || ')', 1)),
length(regexp_extract(line, $pattern))
FROM (SELECT unnest($lines::VARCHAR[]) AS line, unnest(range(1, len($lines) + 1)) AS number)
WHERE regexp_matches(line, $pattern) ORDER BY number
"""


@dataclass(frozen=True, slots=True)
class TextMatch:
    """An occurrence of a text.

    Args:
        path: The document.
        span: Its position in the text of the document, in characters; `Document.read` reads around
            it.
        line: The line with it, without the white space around it; of a long one the part near it.
        location: Its place, see `DocNode.location`.
    """

    path: str
    span: Span
    line: str
    location: str


def outline(docs: Collection, path: str) -> list[Location]:
    """Return the headings, pages or other locations of a document, with their spans in its
    text.

    Args:
        docs: The Document.
        path: Its path relative to the dataset, or its id.

    Raises:
        DatasetPathError: If the document does not exist, or is not visible here.
    """
    root = find_root(reader_of(docs), path)
    return [location for location in root.locations if location.kind not in NOT_SHOWN]


def glob(docs: Collection, pattern: str) -> list[str]:
    """List the documents whose paths match a pattern, in order.

    Args:
        docs: The Document.
        pattern: Of at most 1,000 characters: ``*`` stands for any characters, ``/`` among them,
            ``?`` for one character, ``[ab]`` for one of several; ``**/`` means ``*``.

    Raises:
        ConfigError: If the pattern is invalid.

    Example:
        >>> from lazyrag import Document
        >>> from lazyrag.read import glob
        >>> docs = Document()
        >>> _ = docs.add_texts({"a.md": "Tea", "teas/b.md": "Tea", "c.txt": "Tea"})
        >>> glob(docs, "*.md"), glob(docs, "teas/*")
        (['a.md', 'teas/b.md'], ['teas/b.md'])
    """
    reader = reader_of(docs)
    _check_pattern("pattern", pattern)
    is_match = re.compile(fnmatch.translate(pattern.replace("**/", "*"))).match

    def read(snapshot: LocalSnapshot) -> list[str]:
        tree = snapshot.state.view.tree
        return [document.identity for document in tree.documents() if is_match(document.identity)]

    paths = reader.read(read, ROOT_STEPS)
    if reader.scope is None:
        return paths
    visible = reader.visible_documents()
    return [path for path in paths if path in visible]


@known_keywords
def grep(
    docs: Collection,
    text: str,
    filters: FilterLike | None = None,
    *,
    limit: int = 100,
    ignore_case: bool = False,
    regex: bool = False,
) -> list[TextMatch]:
    r"""Find a literal text, or a regular expression, in the documents, by document in order of
    path. It takes linear time.

    Invisible characters, such as soft hyphens, and the encoding of accents do not count in a
    literal text.

    Args:
        docs: The Document.
        text: The text, of at most 1,000 characters.
        filters: Only in documents that satisfy this filter.
        limit: At most so many matches, from 1 to 1,000.
        ignore_case: Also find it in other cases.
        regex: The text is a regular expression of RE2, which has neither lookaround nor references
            to groups: the first match of each line is found. Needs lazyrag[sql], as DuckDB has RE2.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If DuckDB is not installed, and ``regex`` is set.

    Example:
        >>> from lazyrag import Document
        >>> from lazyrag.read import grep
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "Pick it. Dry it."})
        >>> grep(docs, "dry", ignore_case=True)[0].span
        (9, 12)
        >>> grep(docs, r"\b[A-Z]ick", regex=True)[0].span
        (0, 4)
    """
    reader = reader_of(docs)
    _check_pattern("text", text)
    most = validate_integer("limit", limit, 1, _MAX_MATCHES)
    fold = _lowered if validate_boolean("ignore_case", ignore_case) else str
    find: Callable[[str], Iterator[Span]] = partial(_places, literal=text, fold=fold)
    if validate_boolean("regex", regex):
        find = _pattern(f"(?i){text}" if ignore_case else text)
    reader.bind(filters)

    def read(snapshot: LocalSnapshot) -> list[TextMatch]:
        uids = [document.uid for document in snapshot.state.view.tree.documents()]
        batches = (
            {"document_id": uids[at : at + _GREP_TOGETHER]}
            for at in range(0, len(uids), _GREP_TOGETHER)
        )
        text_matches: list[TextMatch] = []
        for batch in batches:
            for node in snapshot.walk(LAZY_ROOT_NAME, filters, batch):
                root = node.segment
                spans = find(content_text(root.content))
                missing = most - len(text_matches)
                text_matches += [_match(root, span) for span in itertools.islice(spans, missing)]
                if len(text_matches) == most:
                    return text_matches
        return text_matches

    return reader.read(read, ROOT_STEPS)


def related(docs: Collection, uid: str, topk: int = 6) -> list[DocNode]:
    """Return the nodes of a node's group that are nearest to it: by its stored vector, else by
    its rarest terms.

    Args:
        docs: The Document.
        uid: Of the node.
        topk: At most so many nodes, at least 1.

    Raises:
        StaleNodeError: If there is no such node, or it is not visible here.
        ConfigError: If an argument is invalid.

    Example:
        >>> from lazyrag import Document
        >>> from lazyrag.read import related
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea", "b": "black tea", "c": "coffee"})
        >>> [node.path for node in related(docs, docs.get_nodes("FineChunk")[0].uid)]
        ['b']
    """
    reader = reader_of(docs)
    validate_text("uid", uid)
    most = validate_integer("topk", topk, 1) + 1

    def read(snapshot: Snapshot) -> list[DocNode]:
        for part in snapshot.parts:
            for key, node in part.find(uid):
                ranking, embed_key = _nearest(snapshot, part, node, most)
                hits = [hit for hit in ranking if hit[0] != key][: most - 1]
                return snapshot.nodes(node.group, hits, embed_key)
        raise StaleNodeError(f"There is no node {uid!r}. Retrieve it again.")

    return reader.read(read)


def near_duplicates(
    docs: Collection,
    group: str = LAZY_ROOT_NAME,
    *,
    threshold: float = 0.8,
    filters: FilterLike | None = None,
) -> list[list[DocNode]]:
    """Find nodes of a group with nearly the same text: copies and revisions.

    100,000 passages take about 7 s of processor time. Texts are compared without regard to case
    and white space.

    Args:
        docs: The Document.
        group: The group; whole documents by default.
        threshold: From 0.5 to 1: the least Jaccard similarity of the texts' runs of eight
            bytes. 0.8 allows about one replaced word in 20, or one Chinese letter in 40. Of
            pairs with just this similarity, one in 5,000 may be missed at 0.8, one in 80 at
            0.7, one in 3 at 0.5.
        filters: Only nodes that satisfy these filters.

    Returns:
        Clusters of at least two nodes, in the group's order, like the nodes of each. Two nodes
        of a cluster may be connected by others that are similar to both.

    Raises:
        NotRegisteredError: If the group is not defined.
        ConfigError: If the threshold is out of its range, or a filter does not fit the fields.

    Example:
        >>> from lazyrag import Document
        >>> from lazyrag.read import near_duplicates
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "Tea: 80 degrees.", "b": "Coffee.", "c": "tea:  80 degrees."})
        >>> [[node.path for node in cluster] for cluster in near_duplicates(docs)]
        [['a', 'c']]
    """
    from lazyrag.text import near_duplicates as texts

    reader = reader_of(docs)
    name = group_name(group)
    reader.line(name)  # raises for an unknown one
    texts.validate_threshold(threshold)
    reader.bind(filters)  # raises before anything is built

    def read(snapshot: LocalSnapshot) -> list[list[DocNode]]:
        batches = batches_reaching(
            (node.text for node in snapshot.walk(name, filters)), len, _SKETCHED_TOGETHER
        )
        table = np.concatenate([texts.sketches([]), *map(texts.sketches, batches)])
        pairs = texts.similar_pairs(table, threshold)
        ordinals = set(pairs.flat)
        nodes = {at: node for at, node in enumerate(snapshot.walk(name, filters)) if at in ordinals}
        clusters = texts.clusters(pairs, lambda at: nodes[at].text, threshold)
        return [list(map(nodes.__getitem__, cluster)) for cluster in clusters]

    return reader.read(read, frozenset([Step(name)]))


def _check_pattern(name: str, pattern: str) -> None:
    is_short = len(validate_text(name, pattern)) <= _MAX_PATTERN
    require(is_short, name, pattern, f"of at most {_MAX_PATTERN} characters")


def _places(text: str, literal: str, fold: Callable[[str], str]) -> Iterator[Span]:
    """Where a text occurs in another one. It takes linear time, as no regular expression that
    ignores case does.

    Neither invisible characters nor the normal form count, unless the literal has nothing else.
    """
    folded_literal = fold(_visible(literal))
    starts: Sequence[int] = range(len(text))
    ends: Sequence[int] = range(1, len(text) + 1)
    if not folded_literal:
        folded_literal = literal
        folded = text
    elif text.isascii() or _visible(text) == text:
        folded = fold(text)
    else:
        folded, starts, ends = aligned(text, lambda piece: fold(_visible(piece)))
    at = folded.find(folded_literal)
    while at >= 0:
        end = at + len(folded_literal)
        yield starts[at], ends[end - 1]
        at = folded.find(folded_literal, end)


def _pattern(pattern: str) -> Callable[[str], Iterator[Span]]:
    """A function that finds the first match of a regular expression in each line of a text.

    Raises:
        ConfigError: If RE2 does not accept it.
    """
    with optional_package("grep(regex=True)", "sql"):
        import duckdb
    connection = duckdb.connect(":memory:", config={"threads": 1})

    def find(text: str) -> Iterator[Span]:
        lines = text.encode("utf-8", "replace").decode().split("\n")  # half surrogate pairs
        try:
            rows = connection.execute(_FIRST_MATCHES, {"lines": lines, "pattern": pattern})
        except duckdb.Error as exc:
            raise ConfigError(f"text must be a regular expression of RE2. {exc}") from exc
        starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
        for number, before, length in rows.fetchall():
            start = starts[number - 1] + before
            yield start, start + length

    next(find(""), None)  # raises
    return find


def _visible(text: str) -> str:
    return normal_name(without_ignorable(text))


def _lowered(text: str) -> str:
    """A text in lower case, of the same length."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    lowered = ((character.lower(), character) for character in text)
    return "".join(lower if len(lower) == 1 else character for lower, character in lowered)


def _match(root: Segment, span: Span) -> TextMatch:
    text = content_text(root.content)
    start = span[0]
    end = min(span[1], start + _MAX_PATTERN)  # of a regular expression it may be long
    first = max(text.rfind("\n", 0, start) + 1, start - _MAX_LINE)
    last = text.find("\n", end, end + _MAX_LINE)
    line = text[first : end + _MAX_LINE if last < 0 else last].strip()
    return TextMatch(root.path, span, line, describe_span(root, span))


def _nearest(
    snapshot: Snapshot, part: LocalSnapshot, node: Segment, topk: int
) -> tuple[Hits, str | None]:
    """Rank the group of a node by its stored vector; by its rarest terms if it has none."""
    indexes = part.group(node.group).indexes.values()
    for embed_key in part.indexer.embedders:
        [vector] = part.vectors([node], embed_key)
        if vector is not None and any(
            index.name == embed_key and index.complete for index in indexes
        ):
            vectors = [vector] * len(snapshot.parts)
            return snapshot.rank_vectors(node.group, embed_key, vectors, topk, None), embed_key
    analyser = next(
        (index.name for index in indexes if index.kind == "terms" and index.complete), "en"
    )
    terms = list(dict.fromkeys(term_function(analyser)(content_text(node.content))))
    if terms:
        statistics = snapshot.term_statistics(node.group, analyser, terms, BM25())
        rarest = sorted(zip(statistics.frequencies, terms, strict=True))[:_MAX_TERMS]
        terms = [term for _, term in rarest]
    return snapshot.rank_terms(node.group, analyser, terms, topk, None, BM25()), None
