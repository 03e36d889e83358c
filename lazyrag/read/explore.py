"""Functions that read a Document beside its methods: outlines, literal texts, related nodes, near
duplicates, marks on pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME, Location, Span
from lazyrag.groups.node_group import group_name
from lazyrag.read import catalogue
from lazyrag.read.catalogue import TextMatch
from lazyrag.read.scope import Collection
from lazyrag.validation import known_keywords

if TYPE_CHECKING:
    import os

    from lazyrag.read.page_marks import Marks


def outline(docs: Collection, path: str) -> list[Location]:
    """Return the headings, pages or other locations of a document, with their spans in its
    text.

    Args:
        docs: The Document.
        path: Its path relative to the dataset, or its id.

    Raises:
        DatasetPathError: If the document does not exist, or is not visible here.
    """
    return catalogue.outline(docs.reader, path)


@known_keywords
def grep(
    docs: Collection,
    text: str,
    filters: FilterLike | None = None,
    *,
    limit: int = 100,
    ignore_case: bool = False,
) -> list[TextMatch]:
    """Find a literal text in the documents, by document in order of path. No pattern: it takes
    linear time.

    Invisible characters, such as soft hyphens, and the encoding of accents do not count.

    Args:
        docs: The Document.
        text: The text, of at most 1,000 characters.
        filters: Only in documents that satisfy this filter.
        limit: At most so many matches, from 1 to 1,000.
        ignore_case: Also find it in other cases.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> from lazyrag import Document
        >>> from lazyrag.read import grep
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "Pick it. Dry it."})
        >>> grep(docs, "dry", ignore_case=True)[0].span
        (9, 12)
    """
    return catalogue.grep(docs.reader, text, filters, limit, ignore_case=ignore_case)


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
    return catalogue.related_nodes(docs.reader, uid, topk)


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
    name = group_name(group)
    docs.reader.line(name)  # raises for an unknown one
    return catalogue.near_duplicates(docs.reader, name, threshold, filters)


@known_keywords
def marks(
    docs: Collection,
    path: str,
    span: Span | Location,
    *,
    file: str | os.PathLike[str] | None = None,
) -> Marks:
    """Find where a span of a document's text is shown: for highlighting a hit or a citation.

    For a PDF, the result has boxes around exactly the characters of the span, line by line.
    Nothing is stored for it: the file is read again. For other formats, and for files in
    archives and mails, it is the range in the document's text, which is what a program can show
    of them: the text of its root node.

    Args:
        docs: The Document.
        path: The document's path relative to the dataset, or its id.
        span: Start and end in the document's text, such as `DocNode.span` of a node whose
            source is the root node; or one of `DocNode.locations`.
        file: The document's file, where this program does not know it: it was added by
            `add_files` in another one.

    Raises:
        ConfigError: If there is no such document here, the span is not in it, or its file is
            not known.
        LoadError: If the file is gone or has changed since it was ingested, or a page has no
            places of words.

    Example:
        >>> from lazyrag import Document
        >>> from lazyrag.read import marks
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea": "Green tea is not roasted."})
        >>> marks(docs, "tea", (6, 9)).text
        'tea'
    """
    from lazyrag.read.page_marks import find_marks

    return find_marks(docs.reader, path, span, file)


@known_keywords
def page_image(
    docs: Collection,
    path: str,
    page: int,
    *,
    width: int = 1000,
    file: str | os.PathLike[str] | None = None,
) -> bytes:
    """Render a page of a PDF as PNG, on which the boxes of `marks` fit.

    Args:
        docs: The Document.
        path: The document's path relative to the dataset, or its id.
        page: Number of the page, from 1.
        width: In pixels, at most 10,000; less for a page of more than 40 megapixels.
        file: As for `marks`.

    Raises:
        ConfigError: If there is no such document or page here, or it is not a PDF.
        LoadError: If the file is gone, or has changed since it was ingested.
    """
    from lazyrag.read.page_marks import render_page

    return render_page(docs.reader, path, page, width, file)
