"""`Retriever`: the nodes of a group that suit a query."""

from __future__ import annotations

import copy
import math
import numbers
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, TypeVar, overload

from lazyrag.data.node import DocNode
from lazyrag.document.document import Document
from lazyrag.document.groups import Step
from lazyrag.document.groups import group_name as normal_group_name
from lazyrag.document.snapshot import Needs, Snapshot, related
from lazyrag.errors import ConfigError, NotRegisteredError, known_names
from lazyrag.ranking.fusion import fusions, summed
from lazyrag.retrieval.base import BaseRetriever, OutputFormat, check_output
from lazyrag.retrieval.explain import filter_text, missing, unmapped
from lazyrag.retrieval.similarity import (
    OWN_METRIC,
    Search,
    SearchRequest,
    TermSearch,
    checked_towards,
    embedded,
    indexes,
    query_vector,
    similarities,
)
from lazyrag.retrieval.stages import LazyStage, LoadedStage, Query, Reason
from lazyrag.types import Embedding
from lazyrag.validation import text_list, whole_number

T_co = TypeVar("T_co", covariant=True)

_FUSED_AT_LEAST = 50


class Retriever(BaseRetriever[T_co]):
    """Finds the nodes of a node group that suit a query (spec 001).

    The same retriever may be called by several threads.

    Args:
        doc: A Document, or several: their nodes are ranked together, with common BM25 statistics.
        group_name: The node group to search; `LAZY_ROOT_NAME` for whole documents.
        similarity: Name of a registered similarity; None: what an embed key's vectors are ranked by, ``"cosine"`` where
            they are dense, ``"ip"`` where they are sparse.
        similarity_cut_off: Drop what is worse than this; what equals it stays. A number, or a mapping from embed key
            to number, which acts on each key's ranking.
        index: Name of a registered kind of index. ``"default"``: exact. ``"smart_embedding_index"``: the vector store's
            own search, which for the ``map`` store is the same. ``"ann"``: approximate, for a million embeddings and
            more: some of the best nodes may be missing, the first question builds a graph. With the ``map`` store it
            needs ``pip install "lazyrag[ann]"``.
        topk: At most so many nodes over all Documents, before ``target`` maps them.
        embed_keys: The embed keys to search by; None means all. Several rankings are fused by rank (RRF), and the
            score is the fused one.
        target: Map the hits to this group: to their ancestors or descendants, or through an ancestor in common.
            Filters are for the hits, not for what they are mapped to.
        output_format: None: nodes. ``"content"``: texts. ``"dict"``: the fields of `lazyrag.data.result.Hit`.
        join: With ``"content"``, one text: True joins by line ends, a text by itself.
        similarity_kw: Passed through to the similarity function; further keyword arguments are, too.

    Raises:
        NotRegisteredError: If the group or the similarity is unknown.
        ConfigError: If another argument is out of its range, or a keyword unknown.

    Example:
        >>> retriever = Retriever(Document(), "FineChunk", similarity="bm25_chinese", topk=3)
        >>> retriever("绿茶怎么泡？")
        []
    """

    @overload
    def __init__(
        self: Retriever[list[DocNode]],
        doc: Document | Sequence[Document],
        group_name: str,
        similarity: str | None = ...,
        similarity_cut_off: float | Mapping[str, float] = ...,
        index: str = ...,
        topk: int = ...,
        embed_keys: Sequence[str] | None = ...,
        target: str | None = ...,
        output_format: None = ...,
        join: Literal[False] = ...,
        similarity_kw: Mapping[str, Any] | None = ...,
        **more_similarity_kw: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: Retriever[list[dict[str, Any]]],
        doc: Document | Sequence[Document],
        group_name: str,
        similarity: str | None = ...,
        similarity_cut_off: float | Mapping[str, float] = ...,
        index: str = ...,
        topk: int = ...,
        embed_keys: Sequence[str] | None = ...,
        target: str | None = ...,
        *,
        output_format: Literal["dict"],
        join: Literal[False] = ...,
        similarity_kw: Mapping[str, Any] | None = ...,
        **more_similarity_kw: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: Retriever[list[str]],
        doc: Document | Sequence[Document],
        group_name: str,
        similarity: str | None = ...,
        similarity_cut_off: float | Mapping[str, float] = ...,
        index: str = ...,
        topk: int = ...,
        embed_keys: Sequence[str] | None = ...,
        target: str | None = ...,
        *,
        output_format: Literal["content"],
        join: Literal[False] = ...,
        similarity_kw: Mapping[str, Any] | None = ...,
        **more_similarity_kw: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: Retriever[str],
        doc: Document | Sequence[Document],
        group_name: str,
        similarity: str | None = ...,
        similarity_cut_off: float | Mapping[str, float] = ...,
        index: str = ...,
        topk: int = ...,
        embed_keys: Sequence[str] | None = ...,
        target: str | None = ...,
        *,
        output_format: Literal["content"],
        join: Literal[True] | str,
        similarity_kw: Mapping[str, Any] | None = ...,
        **more_similarity_kw: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: Retriever[Any],
        doc: Document | Sequence[Document],
        group_name: str,
        similarity: str | None = ...,
        similarity_cut_off: float | Mapping[str, float] = ...,
        index: str = ...,
        topk: int = ...,
        embed_keys: Sequence[str] | None = ...,
        target: str | None = ...,
        output_format: OutputFormat | None = ...,
        join: bool | str = ...,
        similarity_kw: Mapping[str, Any] | None = ...,
        **more_similarity_kw: Any,
    ) -> None: ...
    def __init__(
        self,
        doc: Document | Sequence[Document],
        group_name: str,
        similarity: str | None = None,
        similarity_cut_off: float | Mapping[str, float] = -math.inf,
        index: str = "default",
        topk: int = 6,
        embed_keys: Sequence[str] | None = None,
        target: str | None = None,
        output_format: OutputFormat | None = None,
        join: bool | str = False,
        similarity_kw: Mapping[str, Any] | None = None,
        **more_similarity_kw: Any,
    ) -> None:
        self._documents = _document_list(doc)
        self.group = normal_group_name(group_name)
        self.target = None if target is None else normal_group_name(target)
        self.similarity = OWN_METRIC if similarity is None else similarities[similarity]
        if not isinstance(similarity_kw, (Mapping, type(None))):
            msg = f"similarity_kw is {similarity_kw!r}; give a mapping of keywords to values."
            raise ConfigError(msg)
        self._keywords = {**(similarity_kw or {}), **more_similarity_kw}
        self.similarity.check_kwargs(similarity_kw or {})
        self.similarity.check_kwargs(more_similarity_kw, _PARAMETERS)
        self.search: Search = indexes[index](self.similarity, self._keywords)
        self._embed_keys = self._checked_embed_keys(embed_keys)
        self._cut_off = _checked_cut_off(similarity_cut_off, self._embed_keys)
        self._topk = whole_number("topk", topk, 1)
        check_output(output_format, join)
        self.output_format: OutputFormat | None = output_format
        self._join = join
        self._check_groups()
        self._rankings: tuple[str | None, ...] = self._embed_keys or (None,)
        self._embedders = {key: [one.reader.embedders([key])[0] for one in self._documents] for key in self._embed_keys}
        self._towards: tuple[Sequence[DocNode], float] = ((), 0.0)
        self._trees = [one.reader.tree for one in self._documents]
        self.sources = dict.fromkeys((one.reader for one in self._documents), self._needs())

    def prepare(self, query: Query) -> None:
        """See `BaseRetriever.prepare`: embeds the query."""
        for embed_key in self._embed_keys:
            for embedder in self._embedders[embed_key]:
                embedded(embedder, query)

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """See `BaseRetriever.run`: a ranking for each embed key, their fusion, and what the hits are mapped to."""
        topk = self._limit(query)
        if len(self._rankings) == 1:
            last = self._ranked(query, snapshot, self._rankings[0], topk)
        else:
            depth = max(_FUSED_AT_LEAST, 4 * topk)
            last = self._fused([self._ranked(query, snapshot, one, depth) for one in self._rankings], snapshot, topk)
        return last if self.target is None else self._mapped(last, query, snapshot, self.target)

    def _ranked(self, query: Query, snapshot: Snapshot, embed_key: str | None, topk: int) -> LazyStage:
        """The best nodes by one embed key, or by their texts."""
        begun = time.perf_counter()
        asked = query.with_topk(topk)
        hits = [] if query.is_blank else self.search.rank(self.request(asked, snapshot, embed_key, topk))
        found = LazyStage(
            "retriever",
            self.similarity.name,
            hits[:topk],
            snapshot,
            self.group,
            embed_key,
            seconds=time.perf_counter() - begun,
            retriever=self,
            query=asked,
        )
        cut_off = self.cut_off(embed_key)
        if cut_off == -math.inf:
            return found
        kept = [hit for hit in hits if not self.similarity.is_worse(hit[1], cut_off)]
        said = {"similarity_cut_off": cut_off}
        why = partial(self.missing, found)
        return LazyStage("cut", "similarity_cut_off", kept, snapshot, inputs=(found,), said=said, query=asked, why=why)

    def request(self, query: Query, snapshot: Snapshot, embed_key: str | None, topk: int) -> SearchRequest:
        """What its search is asked."""
        vectors = () if embed_key is None else self._vectors(query, embed_key)
        return SearchRequest(query.text, self.group, snapshot, query.parsed_filters(), topk, embed_key, vectors)

    def _vectors(self, query: Query, embed_key: str) -> list[Embedding]:
        """The query's vector for each Document."""
        towards = self._towards
        if query.towards is not None:
            towards = checked_towards(*query.towards, self._trees)
        return [query_vector(one, embed_key, query, towards) for one in self._embedders[embed_key]]

    def _fused(self, rankings: list[LazyStage], snapshot: Snapshot, topk: int) -> LazyStage:
        """The rankings of several embed keys, by rank."""
        begun = time.perf_counter()
        shares = fusions["rrf"].shares([one.hits for one in rankings])
        found = LazyStage("fusion", "rrf", summed(shares), snapshot, self.group, inputs=tuple(rankings), shares=shares)
        found.seconds = time.perf_counter() - begun
        return found.cut(topk)

    def _mapped(self, last: LazyStage, query: Query, snapshot: Snapshot, target: str) -> LazyStage:
        """Hits mapped to another group within their own Documents; each node once, where it was first led to."""
        begun = time.perf_counter()
        parts = {part.part: part for part in snapshot.parts}
        found = [(parts[key[1]], node) for node, (key, _) in zip(last.nodes(), last.hits, strict=True)]
        pairs = related(found, target)
        return LoadedStage(
            "mapping",
            target,
            [node for node, _ in pairs],
            snapshot,
            inputs=(last,),
            said={"from": self.group, "to": target},
            seconds=time.perf_counter() - begun,
            origins={node: tuple(led) for node, led in pairs},
            query=query,
            why=partial(unmapped, self, last),
        )

    def described(self, ranked: LazyStage) -> tuple[str, Mapping[str, Any]]:
        """See `BaseRetriever.described`."""
        query, embed_key = ranked.query, ranked.embed_key
        said: dict[str, Any] = {}
        if query is not None:
            said = {"query": query.text, "group": self.group, "topk": query.topk}
            if embed_key is not None:
                said["embed_key"] = embed_key
            bound = ranked.snapshot.parts[0].source.bind(query.parsed_filters())
            if bound is not None:
                said["filters"] = filter_text(bound)
        return self.ranking_name(ranked), said

    def ranking_name(self, ranked: LazyStage) -> str:
        """What a ranking is called: the similarity, with the embed key where there are several."""
        name, embed_key = self.similarity.name, ranked.embed_key
        if self.similarity is OWN_METRIC and embed_key is not None and ranked.query and not ranked.query.is_blank:
            name = min(map(str, ranked.snapshot.metrics(self.group, embed_key)), default=name)
        return name if len(self._embed_keys) < 2 else f"{name}:{embed_key}"

    def missing(self, ranked: LazyStage, uid: str) -> Reason:
        """See `BaseRetriever.missing`."""
        return missing(self, ranked, uid)

    def cut_off(self, embed_key: str | None) -> float:
        """The cut-off of a ranking; minus infinity for none."""
        return self._cut_off.get(embed_key or "", self._cut_off.get("", -math.inf))

    @property
    def descends(self) -> bool:
        """Whether a higher score of its nodes is a better one; fused scores always are."""
        return self.similarity.descend or len(self._embed_keys) > 1

    @property
    def moves(self) -> bool:
        """Whether `towards` makes a difference: it does where vectors are searched and hits are not mapped."""
        return bool(self._embed_keys) and self.target is None

    def towards(self, nodes: Sequence[DocNode], weight: float = 0.7) -> Self:
        """The same retriever, which moves a query's vector towards nodes that are of the kind that is looked for.

        They may be hits that a reader approved of, or the first ones of another retriever: see `FeedbackRetriever`. Of
        the nodes those count that have a vector of the retriever's Documents and embed keys. Texts and sparse vectors
        are asked for as they are.

        Args:
            nodes: Nodes of the Documents.
            weight: How far: 0 not at all, 1 as much as the query itself counts. See
                `lazyrag.retrieval.similarity.moved` for the formula.

        Raises:
            ConfigError: If there are other things than nodes, or the weight is below 0 or not finite.

        Example:
            >>> vectors = {"tea": [1.0, 0.0], "green tea": [0.8, 0.6], "coffee": [0.6, -0.8]}
            >>> docs = Document(embed=vectors.__getitem__)
            >>> _ = docs.add_texts({"a": "green tea", "b": "coffee"})
            >>> retriever = Retriever(docs, "FineChunk")
            >>> green, coffee = retriever("tea")
            >>> [node.text for node in retriever.towards([coffee], weight=1)("tea")]
            ['coffee', 'green tea']
        """
        made = copy.copy(self)
        made._towards = checked_towards(nodes, weight, self._trees)
        return made

    def check(self, query: Query) -> None:
        """See `BaseRetriever.check`."""
        for document in self._documents:
            document.reader.bind(query.parsed_filters())

    def _needs(self) -> Needs:
        steps = [Step(self.group), *(Step(self.group, embed_key=key) for key in self._embed_keys)]
        if isinstance(self.search, TermSearch):
            steps.append(Step(self.group, analyser=self.search.analyser))
        if self.target is not None:
            steps.append(Step(self.target))
        return frozenset(steps)

    def _checked_embed_keys(self, embed_keys: Sequence[str] | None) -> tuple[str, ...]:
        wanted = None if embed_keys is None else text_list("embed_keys", embed_keys)
        if self.similarity.mode == "text":
            if wanted:
                msg = f"The similarity {self.similarity.name!r} compares texts and has no use for embed_keys."
                raise ConfigError(msg)
            return ()
        if wanted == ():
            msg = "embed_keys is an empty list; name the embed keys to search by, or leave it out for all."
            raise ConfigError(msg)
        keys = [[one.key for one in document.reader.embedders(wanted)] for document in self._documents]
        if any(set(other) != set(keys[0]) for other in keys):
            msg = f"The Documents have different embed keys: {keys}. Choose common ones with embed_keys=[...]."
            raise ConfigError(msg)
        self._check_models(keys[0])
        return tuple(dict.fromkeys(keys[0]))

    def _check_models(self, keys: Sequence[str]) -> None:
        """Scores of different models do not compare; a bare callable does not say which one it is."""
        for key in keys:
            models = {document.reader.embedders([key])[0].embedder.identity for document in self._documents}
            if len(models - {""}) > 1:
                msg = (
                    f"The Documents embed by different models under the embed key {key!r}: {sorted(models - {''})}. "
                    "Their scores do not compare. Ask each by a Retriever of its own, or give them one model."
                )
                raise ConfigError(msg)

    def _check_groups(self) -> None:
        for document in self._documents:
            for name in (self.group, self.target):
                try:
                    if name is not None:
                        document.reader.line(name)
                except NotRegisteredError as exc:
                    msg = f"{exc} (asked of {document!r})"
                    raise NotRegisteredError(msg) from exc


_PARAMETERS = (
    "doc group_name similarity similarity_cut_off index topk embed_keys target output_format join similarity_kw"
).split()


def _document_list(doc: Any) -> list[Document]:
    documents = [doc] if isinstance(doc, Document) else list(doc) if isinstance(doc, (list, tuple)) else []
    if not documents or not all(isinstance(one, Document) for one in documents):
        msg = f"A Retriever searches a Document or a list of Documents, not {doc!r}."
        raise ConfigError(msg)
    if len({id(one.reader.tree) for one in documents}) != len(documents):
        msg = (
            "A Retriever got the same Document twice, as it is or restricted; its nodes would be counted twice. "
            "Name each once; Document.restricted takes filters joined with |."
        )
        raise ConfigError(msg)
    return documents


def _checked_cut_off(cut_off: Any, embed_keys: Sequence[str]) -> dict[str, float]:
    """Cut-offs by embed key; under "" the one for all."""
    given = dict(cut_off) if isinstance(cut_off, Mapping) else {"": cut_off}
    for key, value in given.items():
        if key and key not in embed_keys:
            msg = f"similarity_cut_off names {key!r}, which is no embed key here. {known_names(str(key), embed_keys)}"
            raise ConfigError(msg)
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
            msg = f"similarity_cut_off is {value!r}; give a number, or a mapping from embed key to number."
            raise ConfigError(msg)
    return {key: float(value) for key, value in given.items()}
