"""`BM25Retriever`: by words, over a Document or over plain texts in memory."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.document.document import Document
from lazyrag.document.snapshot import Snapshot
from lazyrag.errors import ConfigError, RetrievalError, TransformError
from lazyrag.indexes.bm25 import BM25, LexicalIndex, LexicalState, Variant
from lazyrag.retrieval.base import BaseRetriever
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.stages import LazyStage, LoadedStage, Query, Reason
from lazyrag.text.analyzers import term_function
from lazyrag.validation import known_arguments, known_keywords, whole_number

_IDS = ("id", "doc_id")
_TEXTS = ("text", "content")


@dataclass(frozen=True, slots=True)
class _Texts:
    """What is in memory at one moment; never changed.

    Args:
        index: Ranks the ids.
        nodes: By id.
    """

    index: LexicalState
    nodes: Mapping[str, DocNode]


@known_arguments
class BM25Retriever(BaseRetriever[list[DocNode]]):
    """Finds texts by the words that they share with a query (spec 003).

    Over a Document it is `Retriever` with a BM25 similarity, under the names of spec 003. Without one it keeps an index
    of its own in memory, of what `index_documents` is given.

    Args:
        doc: A Document, or several; None for an index in memory.
        group_name: The node group of the Document to search.
        topk: At most so many nodes in a call.
        analyser: Name of a registered analyser: ``"zh"`` for Chinese and English, as the similarity
            ``"bm25_chinese"`` has it; ``"en"`` as ``"bm25"`` has it, which finds Chinese by characters and pairs alone.
        k1: Saturation of term frequency, >= 0.
        b: Weight of text length, in [0, 1].
        variant: ``"lucene"`` or ``"okapi"``, see `lazyrag.indexes.bm25.BM25`.

    Raises:
        ConfigError: If only one of doc and group_name is given, or an argument is out of its range.
        NotRegisteredError: If there is no such analyser or group.

    Example:
        >>> bm25 = BM25Retriever()
        >>> bm25.index_documents([{"id": "a", "text": "绿茶用八十度的水"}, {"id": "b", "text": "咖啡要磨细"}])
        >>> [uid for uid, score in bm25.search("绿茶怎么泡？")]
        ['a']
    """

    def __init__(
        self,
        doc: Document | Sequence[Document] | None = None,
        group_name: str | None = None,
        topk: int = 6,
        *,
        analyser: str = "zh",
        k1: float = 1.5,
        b: float = 0.75,
        variant: Variant = "lucene",
    ) -> None:
        if (doc is None) != (group_name is None):
            msg = (
                f"BM25Retriever got doc={doc!r} and group_name={group_name!r}. Give both to search a Document, or "
                "neither to search what index_documents is given."
            )
            raise ConfigError(msg)
        self._topk = whole_number("topk", topk, 1)
        self._model = BM25(k1, b, variant)
        self._analyser = analyser
        self._terms = term_function(analyser)
        self._of_document: Retriever[list[DocNode]] | None = None
        if doc is not None and group_name is not None:
            self._of_document = Retriever(
                doc, group_name, "bm25", topk=topk, analyser=analyser, k1=k1, b=b, variant=variant
            )
            self._combine([self._of_document])
        self._index = LexicalIndex()
        self._texts = _Texts(self._index.state, {})
        self._writing = threading.Lock()

    def index_documents(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Add texts to the index in memory; an id that is known is replaced. All of them are added, or none.

        A question that is asked meanwhile is answered by the texts from before.

        Args:
            documents: Mappings with an ``"id"`` (or ``"doc_id"``), a ``"text"`` (or ``"content"``), and metadata: the
                mapping under ``"metadata"``, and all other names.

        Raises:
            ConfigError: If one has no id or no text, two have the same id, metadata is no mapping or has a name that
                stands beside it as well, or this retriever searches a Document.
        """
        if self._of_document is not None:
            msg = "This BM25Retriever searches a Document, which indexes its own files. Use Document.add_texts(...)."
            raise ConfigError(msg)
        nodes = [_node(document) for document in documents]
        twice = [uid for uid, count in Counter(node.uid for node in nodes).items() if count > 1]
        if twice:
            msg = f"index_documents got the id {twice[0]!r} twice. Give each text an id of its own; none was added."
            raise ConfigError(msg)
        terms = [self._terms(node.text) for node in nodes]
        with self._writing:
            self._index.add([node.uid for node in nodes], terms)
            self._texts = _Texts(self._index.state, {**self._texts.nodes, **{node.uid: node for node in nodes}})

    @known_keywords
    def search(self, query: str, top_k: int = 10) -> list[tuple[str, float]]:
        """The best texts as pairs (id, score): only those that share a term with the query.

        Args:
            query: A question or keywords. A blank one finds nothing.
            top_k: At most so many.

        Returns:
            Best first, ties by id; over a Document, the ids are the nodes' uids.
        """
        return [(node.uid, node.score or 0.0) for node in self(query, topk=whole_number("top_k", top_k, 1))]

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`; nodes of an index in memory belong to no Document."""
        limit = self._limit(query)
        if self._of_document is not None:
            return self._of_document.run(query.with_topk(limit), snapshot)
        begun = time.perf_counter()
        texts = self._texts
        nodes = self._found(texts, query, limit)
        return LoadedStage(
            "retriever",
            f"bm25 ({self._analyser})",
            nodes,
            snapshot,
            said={"topk": limit},
            seconds=time.perf_counter() - begun,
            retriever=self,
            why=lambda uid: self._missing(texts, uid, query),
        )

    def _found(self, texts: _Texts, query: Query, limit: int) -> list[DocNode]:
        """The best of the texts in memory."""
        if query.is_blank:
            return []
        try:
            terms = self._terms(query.text)
        except TransformError as exc:
            raise RetrievalError(str(exc)) from exc
        found = texts.index.search(terms, limit, model=self._model) if terms else []
        return [texts.nodes[uid].with_score(score) for uid, score in found]

    def check(self, query: Query) -> None:
        """See `BaseRetriever.check`."""
        super().check(query)
        if self._of_document is None and query.filters:
            msg = f"filters is {query.filters!r}, and what index_documents was given has no fields. Search a Document."
            raise ConfigError(msg)

    def _missing(self, texts: _Texts, uid: str, query: Query) -> Reason:
        """Why a text in memory is not among what a query found."""
        name = f"bm25 ({self._analyser})"
        if uid not in texts.nodes:
            return Reason(uid, name, f"No text was indexed with the id {uid!r}.", cause="unknown")
        everything = self._found(texts, query, max(1, texts.index.live))
        for rank, node in enumerate(everything, start=1):
            if node.uid == uid:
                told = f"Its rank is {rank} of {len(everything)}, and fewer were asked for."
                return Reason(uid, name, told, rank, node.score, cause="depth")
        return Reason(uid, name, "It shares no term with the query.", cause="terms")


def _node(document: Any) -> DocNode:
    """A mapping as a node outside of any Document."""
    held = dict(document) if isinstance(document, Mapping) else {}
    name = next((one for one in _IDS if one in held), "id")
    uid = held.pop(name, None)
    text = held.pop(next((one for one in _TEXTS if one in held), "text"), None)
    is_id = (isinstance(uid, str) and uid) or (isinstance(uid, int) and not isinstance(uid, bool))
    if not is_id or not isinstance(text, str):
        msg = f"index_documents got {document!r:.80}; give mappings with an 'id' (a text or whole number) and a 'text'."
        raise ConfigError(msg)
    more = held.pop("metadata", None)
    more = {} if more is None else more
    if not isinstance(more, Mapping):
        msg = f"index_documents got metadata={more!r:.80} for the id {uid!r}; give a mapping, or leave it out."
        raise ConfigError(msg)
    both = [name for name in held if name in more]
    if both:
        msg = f"index_documents got {both[0]!r} for the id {uid!r} twice, in metadata and beside it. Give it once."
        raise ConfigError(msg)
    return DocNode(text=text, uid=str(uid), metadata={**more, **held})
