"""`Retriever`: search one node group by keywords or vectors. And why a node is missing from its
ranking.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, TypeAlias, TypedDict, TypeVar, Unpack, overload

from lazyrag.data.filters import And, Filter, field_names, matches
from lazyrag.data.node import DocNode
from lazyrag.data.segment import Segment
from lazyrag.errors import ConfigError, NotRegisteredError, known_names, warn_user
from lazyrag.groups.node_group import Step
from lazyrag.groups.node_group import group_name as normal_group_name
from lazyrag.indexes.bm25 import Variant
from lazyrag.models.concurrency import map_in_threads
from lazyrag.read.languages import language_means, without_languages
from lazyrag.read.scope import Collection, Documents, Reader, related
from lazyrag.read.snapshot import LocalSnapshot, NodeKey, Snapshot, read
from lazyrag.read.source import Needs
from lazyrag.retrieval.base import (
    DEFAULT_TOPK,
    BaseRetriever,
    LazyStage,
    LoadedStage,
    OutputFormat,
    Query,
    skipped_stage,
)
from lazyrag.retrieval.similarity import (
    OWN_METRIC,
    KeywordSearch,
    Search,
    SearchRequest,
    Similarity,
    TermSearch,
    TextSearch,
    VectorSearch,
    default_search,
    feedback_vector,
    indexes,
    make_similarity,
    query_vector,
    similarities,
    unread,
    validate_feedback,
)
from lazyrag.retrieval.stages import Cause, Reason
from lazyrag.text.scripts import main_language
from lazyrag.text.stop_words import plain_term
from lazyrag.types import Embedding, Fields, Keywords
from lazyrag.validation import require, validate_number, validate_texts

T_co = TypeVar("T_co", covariant=True)

_TERMS_SHOWN = 12
_SERVER_RANKS = 10_000  # that are looked at to explain why a node is missing
_PARAMETERS = (
    "doc group_name similarity similarity_cut_off index topk embed_keys target output_format join"
    " similarity_kw "
).split()


SimilarityLike: TypeAlias = "str | Callable[..., Any]"
"""Name of a registered similarity, or a function as `register_similarity` takes it."""


class BM25Keywords(TypedDict, total=False):
    """The keywords of the built-in similarities, by which a type checker notices a misspelt
    one.
    """

    k1: float
    b: float
    variant: Variant
    analyser: str


class Retriever(BaseRetriever[T_co]):
    """Finds the best nodes of a node group for a query (spec 001). It may be shared by threads.

    Args:
        doc: A Document, or several: their nodes are ranked together, with common BM25 statistics.
            One that lacks the group contributes nothing, with a warning.
        group_name: The node group to search; `LAZY_ROOT_NAME` for whole documents.
        similarity: Name of a registered similarity, or a function as `register_similarity` takes
            it. None: the metric of each embed key's vectors, ``"cosine"`` where they are dense,
            ``"ip"`` where they are sparse.
        similarity_cut_off: Drop nodes with a worse score; an equal score stays. A number, or a
            mapping from embed key to number, for each key's ranking.
        index: Name of a registered kind of index. ``"exact"``: the same nodes and scores on every
            store. ``"server"``: the store's own ranking and scores, of one Document where texts are
            ranked. ``"default"``: one of them, as ``store_conf["search"]`` says; without it exact,
            except on search servers. ``"smart_embedding_index"``: the vector store's own search,
            which for the ``map`` store is exact. ``"ann"``: approximate, for a million embeddings
            and more: some of the best nodes may be missing, the first query builds a graph. With
            the ``map`` store it needs ``pip install "lazyrag[ann]"``. On a restricted Document all
            but ``"exact"`` need ``statistics="shared"``: they depend on hidden nodes.
        topk: At most so many nodes in total, however many Documents are searched, before ``target``
            maps them.
        embed_keys: The embed keys to search by; None means all. Several rankings are fused by rank
            (RRF), and the score is the fused one.
        target: Map the hits to this group: to their ancestors or descendants, or through a common
            ancestor. Filters apply to the hits, not to the nodes they are mapped to.
        output_format: None or ``"node"``: nodes. ``"content"``: texts. ``"dict"``: the fields of a
            `lazyrag.data.result.Hit`.
        join: With ``"content"``, one text: True joins by line ends, a text by itself.
        similarity_kw: Keywords of the similarity function. Further keyword arguments are passed to
            it, too; a type checker accepts those of the built-in similarities.

    Raises:
        NotRegisteredError: If no Document has the group, or the similarity is unknown.
        ConfigError: If another argument is out of its range, or a keyword unknown.

    Example:
        >>> from lazyrag import Document
        >>> retriever = Retriever(Document(), "FineChunk", similarity="bm25_chinese", topk=3)
        >>> retriever("绿茶怎么泡？")
        []
    """

    @overload
    def __init__(
        self: Retriever[list[DocNode]],
        doc: Documents,
        group_name: str,
        similarity: SimilarityLike | None = ...,
        similarity_cut_off: float | Mapping[str, float] = ...,
        index: str = ...,
        topk: int = ...,
        embed_keys: Sequence[str] | None = ...,
        target: str | None = ...,
        output_format: Literal["node"] | None = ...,
        join: Literal[False] = ...,
        similarity_kw: Keywords | None = ...,
        **more_similarity_kw: Unpack[BM25Keywords],
    ) -> None: ...
    @overload
    def __init__(
        self: Retriever[Any],
        doc: Documents,
        group_name: str,
        similarity: SimilarityLike | None = ...,
        similarity_cut_off: float | Mapping[str, float] = ...,
        index: str = ...,
        topk: int = ...,
        embed_keys: Sequence[str] | None = ...,
        target: str | None = ...,
        output_format: OutputFormat | None = ...,
        join: bool | str = ...,
        similarity_kw: Keywords | None = ...,
        **more_similarity_kw: Unpack[BM25Keywords],
    ) -> None: ...
    def __init__(
        self,
        doc: Documents,
        group_name: str,
        similarity: SimilarityLike | None = None,
        similarity_cut_off: float | Mapping[str, float] = -math.inf,
        index: str = "default",
        topk: int = DEFAULT_TOPK,
        embed_keys: Sequence[str] | None = None,
        target: str | None = None,
        output_format: OutputFormat | None = None,
        join: bool | str = False,
        similarity_kw: Keywords | None = None,
        **more_similarity_kw: Any,
    ) -> None:
        self._documents = validate_documents(doc)
        self.group = normal_group_name(group_name)
        self.target = None if target is None else normal_group_name(target)
        self._lacking = self._without_groups()
        self._documents = [
            document for document in self._documents if document not in self._lacking
        ]
        self.similarity = _similarity(similarity)
        is_mapping = isinstance(similarity_kw, (Mapping, type(None)))
        require(is_mapping, "similarity_kw", similarity_kw, "a mapping")
        keywords = {**(similarity_kw or {}), **more_similarity_kw}
        self.similarity.check_kwargs(similarity_kw or {})
        self.similarity.check_kwargs(more_similarity_kw, _PARAMETERS)
        self.search: Search = indexes[index](self.similarity, keywords)
        if index == "default":
            readers = [document.reader for document in self._documents]
            self.search = default_search(self.search, readers)
        self._check_search(index)
        self._embed_keys = self._checked_embed_keys(embed_keys)
        self._rankings: tuple[str | None, ...] = self._embed_keys or (None,)
        self._cut_offs = _validate_cut_offs(similarity_cut_off, self._rankings)
        self._set_topk(topk)
        self._set_output(output_format, join)
        self._feedback: tuple[Sequence[DocNode], float] | None = None
        self._key_weights: Sequence[float] | None = None
        self.sources = dict.fromkeys((doc.reader for doc in self._documents), self._needs())

    def _check_search(self, index: str) -> None:
        """Check that the search suits the Documents."""
        search = self.search
        ranks_text = isinstance(search, TextSearch)
        if ranks_text and len(self._documents) > 1:
            raise ConfigError(
                f"A server cannot rank {len(self._documents)} Documents together: their scores do"
                " not compare. Search one Document, or pass index='exact'."
            )
        mode = "native" if ranks_text else getattr(search, "mode", "exact")
        self._is_ranked_by_store = mode == "native"
        if mode != "exact" and not all(
            self._may_rank(document.reader) for document in self._documents
        ):
            raise ConfigError(
                f"index={index!r} ranks by nodes that a restricted Document hides. Pass"
                " index='exact', which counts only visible nodes, or let hidden ones influence"
                " scores: restricted(..., statistics='shared'). In a service: search = 'exact' in"
                " the set's store_conf, or statistics = 'shared'."
            )

    def _may_rank(self, reader: Reader) -> bool:
        """Whether an inexact search may rank: hidden nodes influence nothing, or may do so."""
        if not self._is_ranked_by_store:
            return not reader.hides_statistics
        return reader.allows_server(vectors=isinstance(self.search, VectorSearch))

    def prepare(self, query: Query) -> None:
        """Embed the query, by several models at the same time."""
        embed_keys: Sequence[str] = self._embed_keys
        if len(embed_keys) > 1:
            unread = self._unread(query)
            embed_keys = [key for key in embed_keys if not unread.get(key)]
        models = {}
        for key in embed_keys:
            for document in self._documents:
                [embedder] = document.reader.embedders([key])
                models[id(embedder.user_object)] = embedder
        several = list(models.values())
        embed = partial(query_vector, text=query.text, memo=query.memo)
        workers = min((embedder.workers for embedder in several), default=1)
        list(map_in_threads(embed, several, workers))

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Rank by each embed key, fuse the rankings, and map the hits to the target group."""
        topk = self._limit(query)
        if len(self._rankings) == 1:
            last = self._ranked(query, snapshot, self._rankings[0], topk)
        else:
            depth = self._fused_depth(topk)
            unread = self._unread(query)
            rankings = []
            for key in self._rankings:
                if why := unread.get(str(key)):
                    rankings.append(skipped_stage(self, snapshot, why))
                else:
                    rankings.append(self._ranked(query, snapshot, key, depth))
            last = self._fused(rankings, snapshot, topk)
        return last if self.target is None else self._mapped(last, query, snapshot, self.target)

    def unread(self, query: Query) -> str:
        """See `BaseRetriever.unread`: a reason if no model of its embed keys can read the query."""
        reasons = [self._why_unread(key, query) for key in self._embed_keys]
        return reasons[0] if reasons and all(reasons) else ""

    def _unread(self, query: Query) -> dict[str, str]:
        """Of several embed keys those whose model cannot read the query, with the reason; none if
        none can.
        """
        if query.text.isascii() or self.unread(query):
            return {}
        return {key: self._why_unread(key, query) for key in self._embed_keys}

    def _why_unread(self, embed_key: str, query: Query) -> str:
        [embedder] = self._documents[0].reader.embedders([embed_key])
        return unread(embedder, query.text, query.memo)

    def language_analyser(self, keyword: Retriever[Any]) -> str:
        """The analyser whose index detects the languages of the nodes that this vector search and a
        keyword search rank; "" if they rank others, or elsewhere.
        """
        search = self.search
        terms = keyword.search
        if not isinstance(search, VectorSearch) or not isinstance(terms, TermSearch):
            return ""
        same_nodes = (self.group, None, None) == (keyword.group, self.target, keyword.target)
        tells = terms.analyser in ("en", "zh")
        return terms.analyser if tells and same_nodes and search.mode == "exact" else ""

    def agreements(self, keyword: Retriever[Any], snapshot: Snapshot) -> dict[str, float]:
        """How far the vectors of each embed key agree with the words that a keyword search ranks,
        see `lazyrag.read.agreement`; {} with several Documents.
        """
        analyser = self.language_analyser(keyword)
        if not analyser or len(snapshot.parts) != 1:
            return {}
        from lazyrag.read.agreement import agreement  # for the default hybrid alone

        measured = partial(snapshot.parts[0].measured, agreement, self.group, analyser)
        return {key: measured(key) for key in self._embed_keys}

    def with_key_weights(self, weights: Mapping[str, float]) -> Self:
        """Return a copy that weighs the rankings of its embed keys, and leaves those of weight 0
        out.
        """
        clone = copy.copy(self)
        clone._embed_keys = tuple(filter(weights.get, self._embed_keys))
        clone._rankings = clone._embed_keys
        clone._key_weights = [weights[key] for key in clone._embed_keys]
        return clone

    def has_other_languages(self, query: Query, snapshot: Snapshot, analyser: str) -> bool:
        """Whether the group of one Document has nodes in other languages than the query, whose
        script decides its language.
        """
        language = main_language(query.text)
        if not language:
            return False
        [part] = snapshot.parts
        means = [
            part.measured(language_means, self.group, analyser, key) for key in self._embed_keys
        ]
        return any(means_of_key.keys() - {language} for means_of_key in means)

    def indexed_node(self, uid: str) -> DocNode | None:
        """See `BaseRetriever.indexed_node`."""

        def find(snapshot: Snapshot) -> DocNode | None:
            for part in snapshot.parts:
                for _, segment in part.find(uid):
                    if segment.group == self.group:
                        return part.hit(segment, None)
            return None

        return read(self.sources, find)

    def _preferring(
        self, query: Query, snapshot: Snapshot, embed_key: str | None, topk: int
    ) -> LazyStage:
        """The best nodes, with those of preferred documents."""
        from lazyrag.retrieval.inferring import prefer

        plain = replace(query, preference=None)
        ranked = self._ranked(plain, snapshot, embed_key, topk)
        if query.preference is None or not self.similarity.descend or not ranked.hits:
            return ranked

        def rank_within(condition: Filter) -> LazyStage:
            return self._ranked(plain.within(condition), snapshot, embed_key, topk)

        return prefer(ranked, query.preference, rank_within, topk)

    def _ranked(
        self, query: Query, snapshot: Snapshot, embed_key: str | None, topk: int
    ) -> LazyStage:
        """The best nodes by one embed key, or by their texts."""
        if query.preference is not None:
            return self._preferring(query, snapshot, embed_key, topk)
        begun = time.perf_counter()
        query = query.with_topk(topk)
        hits = []
        if not query.is_blank:
            hits = self.search.rank(self._request(query, snapshot, embed_key, topk))
        ranked = LazyStage(
            "retriever",
            self.similarity.name,
            hits[:topk],
            snapshot,
            self.group,
            embed_key,
            seconds=time.perf_counter() - begun,
            retriever=self,
            query=query,
        )
        cut_off = self._cut_offs[embed_key]
        if cut_off == -math.inf:
            return ranked
        passing = [hit for hit in hits if not self.similarity.is_worse(hit[1], cut_off)]
        return LazyStage(
            "cut",
            "similarity_cut_off",
            passing,
            snapshot,
            inputs=(ranked,),
            settings={"similarity_cut_off": cut_off},
            query=query,
            why=partial(self.explain_missing, ranked),
        )

    def _request(
        self, query: Query, snapshot: Snapshot, embed_key: str | None, topk: int
    ) -> SearchRequest:
        vectors = () if embed_key is None else self._vectors(query, embed_key)
        if embed_key is not None and query.language_analyser:
            [part] = snapshot.parts
            means = part.measured(language_means, self.group, query.language_analyser, embed_key)
            vectors = [without_languages(vector, means) for vector in vectors]
        return SearchRequest(
            query.text, self.group, snapshot, query.parsed_filters(), topk, embed_key, vectors
        )

    def _vectors(self, query: Query, embed_key: str) -> list[Embedding]:
        """The query's vector for each Document."""
        embedders = [document.reader.embedders([embed_key])[0] for document in self._documents]
        vectors = [query_vector(embedder, query.text, query.memo) for embedder in embedders]
        feedback = query.feedback or self._feedback
        if feedback is None:
            return vectors
        trees = {id(doc.reader.document_token) for doc in self._documents}
        nodes = [
            node
            for node in feedback[0]
            if node.reader is not None and id(node.reader.document_token) in trees
        ]
        pairs = zip(vectors, embedders, strict=True)
        return [
            feedback_vector(plain, embedder, embed_key, nodes, feedback[1])
            for plain, embedder in pairs
        ]

    def _fused(self, rankings: list[LazyStage], snapshot: Snapshot, topk: int) -> LazyStage:
        """The rankings of several embed keys, fused by rank."""
        begun = time.perf_counter()
        from lazyrag.ranking.fusion import fusions, rank_by_sum  # for several embed keys alone

        contributions = fusions["rrf"].contributions(
            [ranking.hits for ranking in rankings], weights=self._key_weights
        )
        fused = LazyStage(
            "fusion",
            "rrf",
            rank_by_sum(contributions),
            snapshot,
            self.group,
            inputs=tuple(rankings),
        )
        fused.contributions = contributions
        fused.seconds = time.perf_counter() - begun
        return fused.cut(topk)

    def _mapped(self, last: LazyStage, query: Query, snapshot: Snapshot, target: str) -> LazyStage:
        """Hits mapped to another group within their Documents; each node once, at its first
        place.
        """
        begun = time.perf_counter()
        parts = {part.document_index: part for part in snapshot.parts}
        located = [
            (parts[key[1]], node) for node, (key, _) in zip(last.nodes(), last.hits, strict=True)
        ]
        pairs = related(located, target)
        origins = {node: tuple(sources) for node, sources in pairs}
        return LoadedStage(
            "mapping",
            target,
            [node for node, _ in pairs],
            snapshot,
            inputs=(last,),
            settings={"from": self.group, "to": target},
            seconds=time.perf_counter() - begun,
            origins=origins,
            query=query,
            why=partial(self._explain_unmapped, last),
        )

    def describe(self, ranked: LazyStage) -> tuple[str, Keywords]:
        """Name a ranking by the similarity, with the embed key where there are several."""
        query = ranked.query
        embed_key = ranked.embed_key
        params = {}
        if query is not None:
            params = {"query": query.text, "group": self.group, "topk": query.topk}
            if embed_key is not None:
                params["embed_key"] = embed_key
            if engine := self._engine(ranked):
                params["ranked by"] = engine
            if query.language_analyser and embed_key is not None:
                params["compared"] = "across languages"
            if self._lacking:
                lacking = ", ".join(str(document.reader) for document in self._lacking)
                params["without the group"] = lacking
            bound = ranked.snapshot.parts[0].source.bind(query.parsed_filters())
            if bound is not None:
                from lazyrag.retrieval.explain import filter_text

                params["filters"] = filter_text(bound)
        return self._ranking_name(ranked), params

    def _engine(self, ranked: LazyStage) -> str:
        """Name the store that ranked; "" for our own ranking."""
        if not self._is_ranked_by_store:
            return ""
        search = self.search
        part = ranked.snapshot.parts[0]
        key = search.analyser if isinstance(search, TextSearch) else str(ranked.embed_key)
        if (self.group, key) in part.state.unranked:
            return ""
        return part.indexer.nodes.ranking_store(vectors=isinstance(search, VectorSearch))

    def _ranking_name(self, ranked: LazyStage) -> str:
        name = self.similarity.name
        embed_key = ranked.embed_key
        is_searched = ranked.query is not None and not ranked.query.is_blank
        if self.similarity is OWN_METRIC and embed_key is not None and is_searched:
            name = min(map(str, ranked.snapshot.metrics(self.group, embed_key)), default=name)
        return name if len(self._embed_keys) < 2 else f"{name}:{embed_key}"

    @property
    def higher_is_better(self) -> bool:
        """The direction of the similarity; of fused scores a higher one is always better."""
        return self.similarity.descend or len(self._embed_keys) > 1

    @property
    def supports_feedback(self) -> bool:
        """True for a search by vectors without ``target``."""
        return bool(self._embed_keys) and self.target is None

    def with_feedback(self, nodes: Sequence[DocNode], weight: float = 0.7) -> Self:
        """Return a copy of this retriever that moves the vector of each query towards nodes.

        Use it to find more nodes of a kind: hits that a reader approved, or the first hits of
        another retriever (see `FeedbackRetriever`). Only nodes with a vector of the retriever's
        Documents and embed keys count. Keyword search and sparse vectors do not change.

        Args:
            nodes: Nodes of the Documents.
            weight: How far: 0 not at all, 1 as much as the query itself. For the formula see
                `lazyrag.retrieval.similarity.shift_query_vector`.

        Raises:
            ConfigError: If these are no nodes, or the weight is below 0 or not finite.

        Example:
            >>> vectors = {"tea": [1.0, 0.0], "green tea": [0.8, 0.6], "coffee": [0.6, -0.8]}
            >>> from lazyrag import Document
            >>> docs = Document(embed=vectors.__getitem__)
            >>> _ = docs.add_texts({"a": "green tea", "b": "coffee"})
            >>> retriever = Retriever(docs, "FineChunk")
            >>> green, coffee = retriever("tea")
            >>> [node.text for node in retriever.with_feedback([coffee], weight=1)("tea")]
            ['coffee', 'green tea']
        """
        clone = copy.copy(self)
        clone._feedback = validate_feedback(nodes, weight)
        return clone

    def __repr__(self) -> str:
        return f"Retriever({self.group!r}, similarity={self.similarity.name!r}, topk={self._topk})"

    def bind_filters(self, query: Query) -> None:
        """Bind the filters to the schema of each Document."""
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
        requested = None if embed_keys is None else validate_texts("embed_keys", embed_keys)
        if self.similarity.mode == "text":
            if requested:
                raise ConfigError(
                    f"The similarity {self.similarity.name!r} compares texts; omit embed_keys."
                )
            return ()
        expected = "a list with at least one embed key"
        require(requested != (), "embed_keys", embed_keys, expected, "Omit it for all.")
        keys = [_embed_keys_of(document, requested) for document in self._documents]
        if any(set(other) != set(keys[0]) for other in keys):
            raise ConfigError(
                f"The Documents have different embed keys: {keys}. Pass common ones as"
                " embed_keys=[...]."
            )
        for key in keys[0]:  # a bare callable does not name its model
            embedders = [document.reader.embedders([key])[0] for document in self._documents]
            models = {embedder.embedder.identity for embedder in embedders} - {""}
            if len(models) > 1:
                raise ConfigError(
                    f"The Documents have different models for the embed key {key!r}:"
                    f" {sorted(models)}. Their scores do not compare. Use a Retriever for each."
                )
        return tuple(dict.fromkeys(keys[0]))

    def _without_groups(self) -> tuple[Collection, ...]:
        """The Documents that lack the group or the target; they contribute nothing.

        Raises:
            NotRegisteredError: If all of them do.
        """
        problems = {}
        for document in self._documents:
            try:
                for name in {self.group, self.target} - {None}:
                    document.reader.line(str(name))
            except NotRegisteredError as exc:
                problems[document] = exc
        for document, problem in problems.items():
            message = f"{problem} (in {document!r})"
            if len(problems) == len(self._documents):
                raise NotRegisteredError(message) from problem
            warn_user(f"{message}. That Document contributes nothing.", UserWarning)
        return tuple(problems)

    def explain_missing(self, ranked: LazyStage, uid: str) -> Reason:
        """Explain why a node is not in a ranking; nodes outside of a restricted view do not
        exist.
        """
        return _MissingNode(self, ranked, ranked.query or Query(""), uid).reason()

    def _explain_unmapped(self, last: LazyStage, uid: str) -> Reason:
        """Explain why a node is not among those that the hits of a stage were mapped to."""
        from lazyrag.retrieval.explain import Tracks

        tracks = Tracks(last.record())
        sources = self._leading_to(last, uid)
        uids = {segment.uid for _, _, segment in sources}
        # by one embed key, and then cut
        ranked_uids: set[str] = set()
        for stage in tracks.stages:
            ranked_uids.update(node.uid for node in stage.nodes if node.uid in uids)
        if ranked_uids:
            reasons = [tracks.reason(uid) for uid in sorted(ranked_uids)]
            best = min(reasons, key=lambda reason: reason.rank or math.inf)  # ranks begin with 1
            message = unmapped_message(self.group, len(sources), best.message)
            return replace(best, uid=uid, message=message)
        reason = tracks.reason(uid)
        if reason.cause != "found":
            return reason
        target = str(self.target)
        message = (
            f"It was found with rank {reason.rank}, and leads to no node of the target group"
            f" {target!r}."
        )
        return replace(reason, stage=target, message=message, cause="dropped")

    def _leading_to(self, ranked: LazyStage, uid: str) -> list[_LocatedSegment]:
        """The nodes of the searched group that lead to a node of the target group."""
        leading = []
        for part, _, segment in _find(ranked, uid):
            if segment.group == self.target:
                [below] = part.related_nodes(
                    [DocNode.from_segment(segment, part.source)], self.group
                )
                leading += [
                    (part, (source.uid, part.document_index, source.key), source)
                    for source in below
                ]
        return leading


def matched_share(stage: LazyStage) -> float:
    """How much of its query the best node of a ranking by terms has, from 0 to 1; 1 where that is
    unknown.
    """
    retriever = stage.retriever
    if not stage.hits:
        return 0.0
    if not isinstance(retriever, Retriever) or stage.query is None:
        return 1.0
    search = retriever.search
    if not isinstance(search, TermSearch):
        return 1.0
    request = retriever._request(stage.query, stage.snapshot, None, 1)
    return search.matched_share(request, stage.hits[0][1])


def _similarity(similarity: SimilarityLike | None) -> Similarity:
    """The registered similarity of a name or a function; a new one of another function."""
    if similarity is None:
        return OWN_METRIC
    if not callable(similarity):
        if similarity == "hybrid":
            msg = "Hybrid search is not a similarity. Use HybridRetriever.over(doc, group_name)."
            raise NotRegisteredError(msg)
        return similarities[similarity]
    name = getattr(similarity, "__name__", type(similarity).__name__)
    if name in similarities and similarities[name].func is similarity:
        return similarities[name]
    return make_similarity(name, similarity)


def _embed_keys_of(document: Collection, requested: tuple[str, ...] | None) -> list[str]:
    return [embedder.key for embedder in document.reader.embedders(requested)]


def validate_documents(doc: Any) -> list[Collection]:
    """Return one Document or several as a list.

    Raises:
        ConfigError: If it is something else, or names a Document twice.
    """
    documents = [doc] if _is_document(doc) else doc
    is_list = (
        isinstance(documents, Sequence) and bool(documents) and all(map(_is_document, documents))
    )
    require(is_list, "doc", doc, "a Document or a list of Documents")
    if len({id(document.reader.document_token) for document in documents}) != len(documents):
        raise ConfigError(
            "doc names the same Document twice. Name each once; join the filters of restricted()"
            " with |."
        )
    return list(documents)


def _is_document(value: Any) -> bool:
    return isinstance(getattr(value, "reader", None), Reader) and hasattr(value, "get_nodes")


def _validate_cut_offs(cut_off: Any, embed_keys: Sequence[str | None]) -> dict[str | None, float]:
    """The cut-off of each ranking by its embed key, None for one by texts; minus infinity for no
    cut-off.
    """
    cut_offs = dict.fromkeys(embed_keys, -math.inf)
    by_key = cut_off if isinstance(cut_off, Mapping) else dict.fromkeys(embed_keys, cut_off)
    for key, value in by_key.items():
        if key not in embed_keys:
            names = [key for key in embed_keys if key is not None]
            raise ConfigError(
                f"Unknown embed key {key!r} in similarity_cut_off. {known_names(str(key), names)}"
            )
        expected = "a number, or a mapping from embed key to number"
        cut_offs[key] = validate_number(
            "similarity_cut_off", value, expected, lambda number: not math.isnan(number)
        )
    return cut_offs


_LocatedSegment: TypeAlias = tuple[LocalSnapshot, NodeKey, Segment]
"""A node, and the part of the snapshot that it is in."""


def _find(ranked: LazyStage, uid: str) -> list[_LocatedSegment]:
    """The nodes with a uid, of all groups."""
    located = []
    for part in ranked.snapshot.parts:
        located += [(part, key, segment) for key, segment in part.find(uid)]
    return located


@dataclass(frozen=True, slots=True)
class _MissingNode:
    """A node that is not in a ranking."""

    retriever: Retriever[Any]
    ranked: LazyStage
    query: Query
    uid: str

    def reason(self) -> Reason:
        """The first reason that applies."""
        if self.query.is_blank:
            return self._because("query", "The query is blank, and finds nothing.")
        located = _find(self.ranked, self.uid)
        if not located:
            where = "the Document" if len(self.ranked.snapshot.parts) == 1 else "the Documents"
            return self._because("unknown", f"There is no node {self.uid!r} in {where}.")
        group = self.retriever.group
        target = self.retriever.target
        searched = [part for part in located if part[2].group == group]
        if searched:
            return self._reason_of(searched)
        if target not in [segment.group for _, _, segment in located]:
            message = (
                f"It is a node of the group {located[0][2].group!r}, and this retriever searches"
                f" {group!r}."
            )
            return self._because("group", message)
        searched = self.retriever._leading_to(self.ranked, self.uid)
        if not searched:
            message = f"It is of the target group {target!r}, and no node of {group!r} leads to it."
            return self._because("group", message)
        reason = self._reason_of(searched)
        return replace(reason, message=unmapped_message(group, len(searched), reason.message))

    def _reason_of(self, located: Sequence[_LocatedSegment]) -> Reason:
        """The best reason of some nodes of the searched group."""
        matching = []
        message = "The filter excludes it."
        for place in located:
            part, _, segment = place
            bound = part.source.bind(self.query.parsed_filters())
            if bound is None or matches(bound, segment.fields):
                matching.append(place)
            else:
                message = describe_excluding_condition(bound, segment.fields)
        if matching:
            return self._too_low(matching) or self._unranked(matching)
        return Reason(self.uid, "filter", message, cause="filter")

    def _because(
        self, cause: Cause, message: str, rank: int | None = None, score: float | None = None
    ) -> Reason:
        return Reason(
            self.uid, self.retriever._ranking_name(self.ranked), message, rank, score, cause=cause
        )

    def _too_low(self, located: Sequence[_LocatedSegment]) -> Reason | None:
        """The rank of the node in the ranking of all nodes; None if it has none."""
        retriever = self.retriever
        embed_key = self.ranked.embed_key
        depth = self.query.topk or 1
        snapshot = self.ranked.snapshot
        search = retriever.search
        exact = ""
        if isinstance(search, VectorSearch) and search.mode != "exact":
            search = replace(search, mode="exact")
            exact = " in the exact ranking"
        everything = max(depth, snapshot.size(retriever.group))
        if isinstance(search, TextSearch):
            everything = max(depth, min(everything, _SERVER_RANKS))
        ranking = search.rank(retriever._request(self.query, snapshot, embed_key, everything))
        keys = {key for _, key, _ in located}
        at = next((at for at, (key, _) in enumerate(ranking) if key in keys), None)
        if at is None and isinstance(search, TextSearch) and len(ranking) == everything:
            return self._because("depth", f"Its rank is worse than {everything}, if it has one.")
        if at is None:
            return None
        rank = at + 1
        score = ranking[at][1]
        cut_off = retriever._cut_offs[embed_key]
        if cut_off != -math.inf and retriever.similarity.is_worse(score, cut_off):
            message = f"Its score {score:.4g} is worse than similarity_cut_off={cut_off:.4g}."
            return Reason(self.uid, "similarity_cut_off", message, rank, score, cause="cut-off")
        if rank <= depth:
            message = (
                f"Its rank is {rank}{exact}. The approximate index missed it. Use index='exact'"
                " for exact results."
            )
        else:
            message = f"Its rank is {rank} of {len(ranking)}{exact}, and {depth} were requested."
        return self._because("depth", message, rank, score)

    def _unranked(self, located: Sequence[_LocatedSegment]) -> Reason:
        """Why a node has no rank in the ranking of all nodes."""
        search = self.retriever.search
        embed_key = self.ranked.embed_key
        if isinstance(search, KeywordSearch):
            terms = list(dict.fromkeys(search.terms(self.query.text)))
            if not terms:
                return self._because("query", "The query has no terms that could be looked for.")
            named = [repr(plain_term(term)) for term in terms[:_TERMS_SHOWN]]
            if len(terms) > _TERMS_SHOWN:
                named.append("...")
            message = f"It shares no term with the query, whose terms are {', '.join(named)}."
            return self._because("terms", message)
        if embed_key is not None and not any(
            embed_key in part.embeddings(segment) for part, _, segment in located
        ):
            return self._because("embedding", f"It has no embedding under the key {embed_key!r}.")
        if isinstance(search, VectorSearch):
            return self._because("terms", "Its vector shares no dimension with the query's.")
        return self._because(
            "terms", f"The similarity {self.retriever.similarity.name!r} gave it no score."
        )


def unmapped_message(group: str, count: int, message: str) -> str:
    """The reason for a node of the target group, from the reason for the best node that leads to
    it.

    Example:
        >>> unmapped_message("line", 2, "Its rank is 3 of 9.")
        "No hit of 'line' leads to it. Of the best of the 2 nodes that would: its rank is 3 of 9."
    """
    which = "the only node" if count == 1 else f"the best of the {count} nodes"
    return (
        f"No hit of {group!r} leads to it. Of {which} that would:"
        f" {message[:1].lower()}{message[1:]}"
    )


def describe_excluding_condition(condition: Filter, fields: Fields) -> str:
    """Name the condition of a filter that excludes a node, and the node's values.

    Args:
        condition: A bound filter that the fields do not satisfy.
        fields: The node's.

    Example:
        >>> from lazyrag.data.filters import Condition
        >>> condition = And(Condition("year", "gt", 2000), Condition("author", "eq", "A"))
        >>> describe_excluding_condition(condition, {"year": 2004, "author": "B"})
        "The filter author == 'A' excludes it: its author is 'B'."
    """
    from lazyrag.retrieval.explain import filter_text, value_text

    while isinstance(condition, And):
        condition = next(part for part in condition.filters if not matches(part, fields))
    has = []
    for name in dict.fromkeys(field_names(condition)):
        value = fields.get(name)
        has.append(f"it has no {name}" if value is None else f"its {name} is {value_text(value)}")
    return f"The filter {filter_text(condition)} excludes it{': ' if has else ''}{', '.join(has)}."
