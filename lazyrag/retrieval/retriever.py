"""`Retriever`: the nodes of a group that suit a query."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from lazyrag.arguments import known_keywords, text_list, whole_number
from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.document.builder import Builder
from lazyrag.document.document import Document
from lazyrag.document.group import group_name as normal_group_name
from lazyrag.errors import ConfigError, NotRegisteredError, known_names
from lazyrag.retrieval.asking import Asked, Plan
from lazyrag.retrieval.built_in_similarities import OWN_METRIC
from lazyrag.retrieval.explain import Explanation, explain, why_not
from lazyrag.retrieval.indexes import indexes
from lazyrag.retrieval.output import OutputFormat, check_output, render
from lazyrag.retrieval.query_vectors import QueryVectors, checked_towards
from lazyrag.retrieval.similarity import similarities
from lazyrag.retrieval.stages import Reason, Stage, check_query
from lazyrag.retrieval.tracing import traced

if TYPE_CHECKING:
    from typing_extensions import Self

T_co = TypeVar("T_co", covariant=True)


class Retriever(Generic[T_co]):
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
        self._group = normal_group_name(group_name)
        self._target = None if target is None else normal_group_name(target)
        self._similarity = OWN_METRIC if similarity is None else similarities[similarity]
        if not isinstance(similarity_kw, (Mapping, type(None))):
            msg = f"similarity_kw is {similarity_kw!r}; give a mapping of keywords to values."
            raise ConfigError(msg)
        self._keywords = {**(similarity_kw or {}), **more_similarity_kw}
        self._similarity.check_kwargs(similarity_kw or {})
        self._similarity.check_kwargs(more_similarity_kw, _PARAMETERS)
        search = indexes[index](self._similarity, self._keywords)
        self._embed_keys = self._checked_embed_keys(embed_keys)
        cut_off = _checked_cut_off(similarity_cut_off, self._embed_keys)
        self._topk = whole_number("topk", topk, 1)
        check_output(output_format, join)
        self._output_format: OutputFormat | None = output_format
        self._join = join
        self._check_groups()
        self._plan = Plan(self._group, self._target, self._similarity, search, self._embed_keys, cut_off)

    @known_keywords
    def __call__(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> T_co:
        """The best nodes for a query.

        Args:
            query: A question or keywords. A blank one finds nothing.
            filters: ``{field: [values]}``, where every field must have one of its values, or a `Condition`.
            topk: Another bound for this call.

        Returns:
            Nodes with scores, best first, ties by uid; or the form that ``output_format`` asks for.

        Raises:
            ConfigError: If the query is no text, or a filter does not fit the fields.
            EmbeddingError: If the query cannot be embedded.
            RetrievalError: If the similarity function fails.
            MissingDependencyError: If ``index="ann"`` needs a package that is not installed.
            UnsupportedError: If the vector store has no approximate search, and ``index="ann"``.
            IngestionError: If every file failed in a step that the question needs.
        """
        asked = self.asked(query, filters, topk)
        nodes = asked.read(asked.hits) if query.strip() else []
        return cast("T_co", render(nodes, self._output_format, self._join))

    @property
    def trees(self) -> list[Builder]:
        """The trees of its Documents, for reads of several retrievers that are to see one state."""
        return [document.reader.tree for document in self._documents]

    @property
    def plan(self) -> Plan:
        """How it answers any question."""
        return self._plan

    @property
    def descends(self) -> bool:
        """Whether a higher score of its nodes is a better one."""
        return self._plan.descends

    @property
    def moves(self) -> bool:
        """Whether `towards` makes a difference: it does where vectors are searched and hits are not mapped."""
        return bool(self._plan.embed_keys) and self._plan.target is None

    @property
    def output_format(self) -> OutputFormat | None:
        """The form of its results; None for nodes."""
        return self._output_format

    def prepare(self) -> None:
        """Build what a question will need, before it begins to read."""
        for document in self._documents:
            document.reader.prepare(self._plan.group, self._plan.embed_keys, self._plan.target)

    @known_keywords
    def trace(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Stage:
        """What a call does, stage by stage; see `__call__` for arguments and errors.

        Returns:
            The last stage. Its nodes are those that a call gives, whatever ``output_format`` says.

        Example:
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "green tea", "coffee": "no leaves"})
            >>> stage = Retriever(docs, "FineChunk", similarity="bm25").trace("tea")
            >>> stage.kind, stage.name, [node.path for node in stage.nodes]
            ('retriever', 'bm25', ['tea'])
        """
        asked = self.asked(query, filters, topk)
        return asked.read(lambda: traced(asked, self))

    @known_keywords
    def explain(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Explanation:
        """Why the nodes of a result stand where they stand; see `lazyrag.explain`.

        Example:
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "green tea", "coffee": "no leaves"})
            >>> [hit.standings[0].name for hit in Retriever(docs, "FineChunk", similarity="bm25").explain("tea")]
            ['bm25']
        """
        return explain(self, query, filters, topk)

    @known_keywords
    def why_not(self, uid: str, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Reason:
        """Why a node is not in a result, or at which rank it is; see `lazyrag.why_not`.

        Example:
            >>> docs = Document()
            >>> _ = docs.add_texts({"tea": "green tea", "coffee": "no leaves"})
            >>> [coffee] = [node for node in docs.get_nodes("FineChunk") if node.path == "coffee"]
            >>> Retriever(docs, "FineChunk", similarity="bm25").why_not(coffee.uid, "tea").told
            "It shares no term with the query, whose terms are 'tea'."
        """
        return why_not(self, uid, query, filters, topk)

    def towards(self, nodes: Sequence[DocNode], weight: float = 0.7) -> Self:
        """The same retriever, which moves a query's vector towards nodes that are of the kind that is looked for.

        They may be hits that a reader approved of, or the first ones of another retriever: see `FeedbackRetriever`. Of
        the nodes those count that have a vector of the retriever's Documents and embed keys. Texts and sparse vectors
        are asked for as they are.

        Args:
            nodes: Nodes of the Documents.
            weight: How far: 0 not at all, 1 as much as the query itself counts. See
                `lazyrag.retrieval.query_vectors.moved` for the formula.

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
        return self._with(self._plan.query_vectors.moving(*checked_towards(nodes, weight, self.trees)))

    def for_one_question(self) -> Self:
        """The same retriever, which embeds a query once and keeps its vector, also for what `towards` makes of it."""
        return self._with(self._plan.query_vectors.keeping())

    def _with(self, query_vectors: QueryVectors) -> Self:
        made = copy.copy(self)
        made._plan = replace(self._plan, query_vectors=query_vectors)
        return made

    def asked(self, query: str, filters: FilterLike | None = None, topk: int | None = None) -> Asked:
        """A question as this retriever asks it, for those that take rankings and not nodes."""
        check_query(query)
        limit = self._topk if topk is None else whole_number("topk", topk, 1)
        readers = [document.reader for document in self._documents]
        return Asked(self._plan, query, readers, [reader.bind(filters) for reader in readers], limit)

    def _checked_embed_keys(self, embed_keys: Sequence[str] | None) -> tuple[str, ...]:
        wanted = None if embed_keys is None else text_list("embed_keys", embed_keys)
        if self._similarity.mode == "text":
            if wanted:
                msg = f"The similarity {self._similarity.name!r} compares texts and has no use for embed_keys."
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
            for name in (self._group, self._target):
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
