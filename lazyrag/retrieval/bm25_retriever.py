"""`BM25Retriever`: keyword search over a Document, or over plain texts in memory."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError
from lazyrag.indexes.bm25 import BM25, LexicalIndex, LexicalState, Variant
from lazyrag.models.rerank import rank_bm25_of
from lazyrag.read.scope import Documents
from lazyrag.read.snapshot import Snapshot
from lazyrag.retrieval.base import DEFAULT_TOPK, BaseRetriever, LazyStage, LoadedStage, Query
from lazyrag.retrieval.retriever import Retriever
from lazyrag.retrieval.similarity import KeywordSearch
from lazyrag.retrieval.stages import Reason
from lazyrag.text.analyzers import term_function
from lazyrag.types import JsonMapping, JsonObject
from lazyrag.validation import known_arguments, require, validate_integer

_IDS = ("id", "doc_id")
_TEXTS = ("text", "content")


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts in memory at one moment; never changed.

    Args:
        index: Ranks the ids.
        nodes: By id.
    """

    index: LexicalState
    nodes: Mapping[str, DocNode]


@known_arguments
class BM25Retriever(BaseRetriever[list[DocNode]]):
    """Keyword search by BM25 (spec 003).

    Over a Document it is a `Retriever` with a BM25 similarity, under the names of spec 003. Without
    one it has its own index in memory, filled by `index_documents`.

    Args:
        doc: A Document, or several; None for an index in memory.
        group_name: The node group of the Document to search.
        topk: At most so many nodes in a call.
        analyser: Name of a registered analyser: ``"zh"`` for Chinese and English, as in the
            similarity ``"bm25_chinese"``; ``"en"`` as in ``"bm25"``, which finds Chinese by
            characters and pairs alone.
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
        doc: Documents | None = None,
        group_name: str | None = None,
        topk: int = DEFAULT_TOPK,
        *,
        analyser: str = "zh",
        k1: float = 1.5,
        b: float = 0.75,
        variant: Variant = "lucene",
    ) -> None:
        self._set_topk(topk)
        self._model = BM25(k1, b, variant)
        self._search = KeywordSearch(analyser)
        self._name = f"bm25 ({analyser})"
        self._of_document: Retriever[list[DocNode]] | None = None
        self._okapi: tuple[list[str], Any] | None = None
        if doc is not None and group_name is not None:
            self._of_document = Retriever(
                doc, group_name, "bm25", topk=topk, analyser=analyser, k1=k1, b=b, variant=variant
            )
            self._set_retrievers([self._of_document])
        elif doc is not None or group_name is not None:
            raise ConfigError(
                f"doc and group_name go together; got {doc!r} and {group_name!r}. Or omit both."
            )
        self._index = LexicalIndex()
        self._texts = _Texts(self._index.state, {})
        self._writing = threading.Lock()

    def index_documents(self, documents: Sequence[JsonMapping]) -> None:
        """Add texts to the index in memory; a known id is replaced. All of them are added, or none.

        A query that runs meanwhile sees the texts from before.

        Args:
            documents: Mappings with an ``"id"`` (or ``"doc_id"``), a ``"text"`` (or ``"content"``),
                and metadata: the mapping under ``"metadata"``, and all other names.

        Raises:
            ConfigError: If one has no id or no text, two have the same id, metadata is not a
                mapping or repeats a name beside it, or this retriever searches a Document.
        """
        if self._of_document is not None:
            raise ConfigError(
                "This BM25Retriever searches a Document. Add texts with Document.add_texts(...)."
            )
        nodes = [_node(document) for document in documents]
        uids = [node.uid for node in nodes]
        twice = [uid for uid, count in Counter(uids).items() if count > 1]
        if twice:
            raise ConfigError(
                f"The id {twice[0]!r} occurs twice; nothing was added. Give each text its own id."
            )
        terms_of = term_function(self._search.analyser, stop_words=True)
        terms = [terms_of(node.text) for node in nodes]
        with self._writing:
            self._index.add(uids, terms)
            by_uid = dict(zip(uids, nodes, strict=True))
            self._texts = _Texts(self._index.state, {**self._texts.nodes, **by_uid})

    @property
    def corpus(self) -> list[str]:
        """The indexed texts, in the order of `doc_ids`; over a Document those of the group."""
        return [node.text for node in self._indexed()]

    @property
    def doc_ids(self) -> list[str]:
        """The ids of the indexed texts; over a Document the nodes' uids."""
        return [node.uid for node in self._indexed()]

    @property
    def bm25(self) -> Any:
        """A ``rank_bm25.BM25Okapi`` over `corpus`, built on first use; None without texts. Searches
        do not use it.

        Its queries are lists of terms: those of the analyser, see `lazyrag.text.analyzers`.

        Raises:
            MissingDependencyError: If rank-bm25 is not installed.
        """
        corpus = self.corpus
        if self._okapi is None or self._okapi[0] != corpus:
            terms = [*map(term_function(self._search.analyser), corpus)]
            okapi = rank_bm25_of(terms, "okapi") if any(terms) else None
            self._okapi = corpus, okapi
        return self._okapi[1]

    def indexed_node(self, uid: str) -> DocNode | None:
        """See `BaseRetriever.indexed_node`."""
        return self._texts.nodes.get(uid) or super().indexed_node(uid)

    def _indexed(self) -> list[DocNode]:
        if self._of_document is None:
            return list(self._texts.nodes.values())
        nodes = []
        for document in self._of_document._documents:
            nodes += document.get_nodes(self._of_document.group)
        return nodes

    def search(self, query: str, top_k: int = 10) -> list[tuple[str, float]]:
        """Return the best texts as pairs (id, score): only those that share a term with the query.

        Args:
            query: A question or keywords. A blank one finds nothing.
            top_k: At most so many.

        Returns:
            Best first, ties by id; over a Document, the ids are the nodes' uids.
        """
        nodes = self(query, topk=validate_integer("top_k", top_k, 1))
        return [(node.uid, node.score or 0.0) for node in nodes]

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Search the Document or the texts in memory, whose nodes belong to no Document."""
        limit = self._limit(query)
        if self._of_document is not None:
            return self._of_document.run(query.with_topk(limit), snapshot)
        begun = time.perf_counter()
        texts = self._texts
        nodes = self._search_texts(texts, query, limit)
        return LoadedStage(
            "retriever",
            self._name,
            nodes,
            snapshot,
            settings={"topk": limit},
            seconds=time.perf_counter() - begun,
            retriever=self,
            why=partial(self._missing_text, texts, query),
        )

    def _search_texts(self, texts: _Texts, query: Query, limit: int) -> list[DocNode]:
        terms = [] if query.is_blank else self._search.terms(query.text)
        hits = texts.index.search(terms, limit, model=self._model) if terms else []
        return [texts.nodes[uid].with_score(score) for uid, score in hits]

    def bind_filters(self, query: Query) -> None:
        """Texts in memory have no fields."""
        super().bind_filters(query)
        if self._of_document is None and query.filters:
            raise ConfigError(
                f"Texts in memory have no fields to filter by; got {query.filters!r}."
            )

    def _missing_text(self, texts: _Texts, query: Query, uid: str) -> Reason:
        """Why a text in memory is not in the result."""
        if uid not in texts.nodes:
            return Reason(
                uid, self._name, f"No text was indexed with the id {uid!r}.", cause="unknown"
            )
        everything = self._search_texts(texts, query, max(1, texts.index.live))
        for rank, node in enumerate(everything, start=1):
            if node.uid == uid:
                message = f"Its rank is {rank} of {len(everything)}, and fewer were requested."
                return Reason(uid, self._name, message, rank, node.score, cause="depth")
        return Reason(uid, self._name, "It shares no term with the query.", cause="terms")


def _pop_first(fields: JsonObject, names: Sequence[str]) -> Any:
    """Remove the first of some fields that is there, and return its value."""
    for name in names:
        if name in fields:
            return fields.pop(name)
    return None


def _node(document: Any) -> DocNode:
    """A mapping as a node outside of any Document."""
    fields = dict(document) if isinstance(document, Mapping) else {}
    uid = _pop_first(fields, _IDS)
    text = _pop_first(fields, _TEXTS)
    is_id = isinstance(uid, (str, int)) and not isinstance(uid, bool) and uid != ""
    expected = "a mapping with an 'id' (a string or an integer) and a 'text'"
    require(is_id and isinstance(text, str), "Each document", document, expected)
    metadata = fields.pop("metadata", None)
    if metadata is None:
        metadata = {}
    require(isinstance(metadata, Mapping), f"metadata of the id {uid!r}", metadata, "a mapping")
    both = [name for name in fields if name in metadata]
    if both:
        raise ConfigError(
            f"The id {uid!r} has {both[0]!r} twice, in metadata and beside it. Pass it once."
        )
    return DocNode(text=str(text), uid=str(uid), metadata={**metadata, **fields})
