"""The part of `Document` that goes through its tree: to nodes, and from nodes to others."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.segment import LAZY_ROOT_NAME
from lazyrag.document.builder import Builder
from lazyrag.document.group import group_name
from lazyrag.document.reader import Reader
from lazyrag.document.snapshot import LocalSnapshot
from lazyrag.document.step import Step
from lazyrag.document.windows import merged_windows, windows
from lazyrag.errors import ConfigError
from lazyrag.validation import known_keywords, whole_number, yes_or_no


class NavigableDocument:
    """What a `Document` offers to reach nodes by their places in the tree: of a group, above, below, beside.

    All of it may be asked of a view that `Document.restricted` made, and shows nothing that the view does not see.
    """

    _builder: Builder
    _reader: Reader

    @known_keywords
    def get_nodes(
        self,
        group: str = LAZY_ROOT_NAME,
        *,
        uids: Iterable[str] | None = None,
        document_ids: Iterable[str] | None = None,
        numbers: Iterable[int] | None = None,
        filters: FilterLike | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[DocNode]:
        """Nodes of a group, document by document in order of path, in order of number.

        Args:
            group: The group; whole documents by default.
            uids: Only nodes with these uids.
            document_ids: Only nodes of these documents (uids of root nodes).
            numbers: Only nodes with these ordinals in their document, from 1.
            filters: Only nodes that satisfy these filters.
            limit: At most so many.
            offset: Leave out so many first.

        Raises:
            NotRegisteredError: If the group is not defined.
            ConfigError: If limit or offset is no whole number or negative, or a filter does not fit the fields.

        Example:
            >>> from lazyrag import Document
            >>> Document().get_nodes("FineChunk", limit=10)
            []
        """
        first = whole_number("offset", offset, 0)
        last = None if limit is None else first + whole_number("limit", limit, 0)
        wanted = [
            (attribute, _value_set(name, values))
            for attribute, name, values in (
                ("uid", "uids", uids),
                ("document_id", "document_ids", document_ids),
                ("number", "numbers", numbers),
            )
            if values is not None
        ]
        name = self._known(group)
        self._reader.bind(filters)  # refuses what does not fit

        def matching(snapshot: LocalSnapshot) -> list[DocNode]:
            found = (
                node
                for node in snapshot.walk(name, filters)
                if all(getattr(node, attribute) in values for attribute, values in wanted)
            )
            return list(itertools.islice(found, first, last))

        return self._reader.read(matching, frozenset([Step(name)]))

    def find(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to the related nodes of another group, through the lowest group above both.

        The result keeps the nodes' order, names each once, and carries the score of the node that led there.

        Example:
            >>> from lazyrag import Document
            >>> Document().find("CoarseChunk")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(_node_list(nodes), name)

    def find_parent(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to their ancestors in a group above theirs; see `find`.

        Example:
            >>> from lazyrag import Document
            >>> Document().find_parent("lazyllm_root")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(self._line_checked(nodes, name, above=True), name)

    def find_children(self, target: str) -> Callable[[Sequence[DocNode]], list[DocNode]]:
        """A function from nodes to their descendants in a group below theirs; see `find`.

        Example:
            >>> from lazyrag import Document
            >>> Document().find_children("FineChunk")([])
            []
        """
        name = self._known(target)
        return lambda nodes: self._reader.related(self._line_checked(nodes, name, above=False), name)

    @overload
    def window(
        self, node: DocNode, before: int = ..., after: int = ..., *, merge: Literal[False] = ...
    ) -> list[DocNode]: ...
    @overload
    def window(self, node: DocNode, before: int = ..., after: int = ..., *, merge: Literal[True]) -> DocNode: ...
    @overload
    def window(
        self, node: Sequence[DocNode], before: int = ..., after: int = ..., *, merge: bool = ...
    ) -> list[DocNode]: ...
    @known_keywords
    def window(
        self, node: DocNode | Sequence[DocNode], before: int = 1, after: int = 1, *, merge: bool = False
    ) -> DocNode | list[DocNode]:
        """A node with its neighbours: those before and behind it in its group and document, in order.

        At the document's ends there are fewer. For several nodes, such as hits, windows that overlap or touch are one;
        windows come in the order of the first node that leads to each, so that each node is named once. A node that was
        given keeps its score, its neighbours carry that of the first node which led there.

        Args:
            node: A node of this Document, or several.
            before: How many neighbours before each, at least 0.
            after: How many behind each, at least 0.
            merge: Give each window as one node: its text repeats no overlap where spans tell it, its `span` is that of
                all of it where all of it stands in the source, `merged_from` names its nodes. Where no spans are,
                texts are joined by line ends.

        Returns:
            The nodes; with ``merge``, one node for one, and a list of them for several.

        Raises:
            StaleNodeError: If a node does not stand in the live tree any more, or cannot be seen here.
            ConfigError: If it belongs to another Document, or a number is none.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Pick it. Wither it. Roll it. Dry it."})
            >>> docs.create_node_group("step", transform="SentenceWindow")
            >>> [node.text for node in docs.window(docs.get_nodes("step")[2], before=1, after=5)]
            ['Wither it. ', 'Roll it. ', 'Dry it.']
            >>> docs.window(docs.get_nodes("step")[2], merge=True).text
            'Wither it. Roll it. Dry it.'
        """
        reach = whole_number("before", before, 0), whole_number("after", after, 0)
        listed = _node_list(node)
        if not yes_or_no("merge", merge):
            return self._reader.read(lambda snapshot: windows(snapshot, listed, *reach))
        merged = self._reader.read(lambda snapshot: merged_windows(snapshot, listed, *reach))
        return merged[0] if isinstance(node, DocNode) else merged

    def get_window_nodes(
        self, node: DocNode, span: tuple[int, int] = (-5, 5), merge: bool = False
    ) -> DocNode | list[DocNode]:
        """`window` as other systems call it: from five neighbours before a node to five behind it.

        Args:
            node: A node of this Document.
            span: The first and the last neighbour, counted from the node: (-5, 5).
            merge: See `window`.

        Raises:
            ConfigError: If the span is no pair of a number up to 0 and one from 0.

        Example:
            >>> from lazyrag import Document
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "Pick it. Wither it. Roll it. Dry it."})
            >>> docs.create_node_group("step", transform="SentenceWindow")
            >>> docs.get_window_nodes(docs.get_nodes("step")[0], (0, 1), merge=True).text
            'Pick it. Wither it. '
        """
        if not isinstance(span, (tuple, list)) or len(span) != 2:
            msg = f"span is {span!r}; give the first and the last neighbour, such as (-5, 5)."
            raise ConfigError(msg)
        before = -whole_number("span[0]", span[0], -sys.maxsize, 0)
        after = whole_number("span[1]", span[1], 0)
        return self.window(node, before, after, merge=True) if merge else self.window(node, before, after)

    def _known(self, name: str) -> str:
        name = group_name(name)
        self._reader.line(name)
        return name

    def _line_checked(self, nodes: Sequence[DocNode], target: str, *, above: bool) -> list[DocNode]:
        checked = _node_list(nodes)
        for node in checked:
            lower, upper = (node.group, target) if above else (target, node.group)
            if upper not in self._reader.line(lower)[1:]:
                kind = "above" if above else "below"
                msg = f"The group {target!r} does not stand {kind} {node.group!r}. Use find({target!r})."
                raise ConfigError(msg)
        return checked


def _value_set(name: str, values: Any) -> frozenset[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        msg = f"get_nodes got {name}={values!r}; give a list of values."
        raise ConfigError(msg)
    return frozenset(values)


def _node_list(nodes: Any) -> list[DocNode]:
    if isinstance(nodes, DocNode):
        nodes = [nodes]
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        msg = f"Give a node or a list of nodes to follow, not {nodes!r:.80}."
        raise ConfigError(msg)
    listed = list(nodes)
    stray = [one for one in listed if not isinstance(one, DocNode) or not one.group]
    if stray:
        msg = f"Only nodes of a Document can be followed through its tree, not {stray[0]!r}."
        raise ConfigError(msg)
    return listed
