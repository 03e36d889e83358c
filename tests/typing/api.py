"""The public types as type checkers see them. Never executed: mypy reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

from lazyrag import (
    BM25Retriever,
    Condition,
    DataType,
    DocField,
    DocNode,
    Document,
    GenerationResult,
    Hit,
    HybridRetriever,
    IngestReport,
    LLMParser,
    NodeTransform,
    RAGInterface,
    Reranker,
    RetrievalChain,
    RetrievalResult,
    Retriever,
    explain,
    register_fusion,
    register_loader,
    register_reranker,
    register_similarity,
    register_transform,
    why_not,
)
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import And, Not, Or
from lazyrag.evaluation import compare, evaluate
from lazyrag.models import (
    AsyncReranker,
    CrossEncoderReranker,
    ListwiseRerankModel,
    PointwiseRerankModel,
    RerankModel,
)
from lazyrag.ranking import KeywordSetting, ReciprocalRankFusion, VectorSetting, Weights
from lazyrag.ranking.fusion import fusions, rrf, weighted
from lazyrag.ranking.mmr import mmr
from lazyrag.retrieval import (
    MMR,
    AutoMerge,
    Explanation,
    MultiQueryRetriever,
    QueryRewriter,
    auto_merge,
    retriever_for,
)
from lazyrag.retrieval.base import NodeList
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.protocol import SegmentStore, VectorStore
from lazyrag.transforms import Rule, Segmentation

docs = Document(
    "folder", embed={"e": lambda text: [1.0]}, doc_fields={"year": DocField(DataType.INT32)}
)
assert_type(docs.last_report, IngestReport | Any)
assert_type(docs.get_nodes("FineChunk", numbers=[1]), list[DocNode])
assert_type(docs.search("q"), NodeList)
assert_type(docs.search("q", output_format="content"), Any)
docs.search("q", output_format="text")  # type: ignore[call-overload]
assert_type(docs.find("block")(docs.get_nodes()), list[DocNode])
assert_type(docs.restricted({"year": [2001]}), Document)
assert_type(docs.window(docs.get_nodes()[0], 1, 2), list[DocNode])
assert_type(docs.window(docs.get_nodes()[0], merge=True), DocNode)
assert_type(docs.window(docs.get_nodes(), merge=True), list[DocNode])
assert_type(auto_merge(docs.get_nodes(), ratio=0.5), list[DocNode])


def by_hand(query: str, filters: Any = None, topk: int | None = None) -> list[DocNode]:
    return []


hybrid = HybridRetriever(
    Retriever(docs, "block"), BM25Retriever(docs, "block"), by_hand, weights=[1, 2.0, 3]
)
assert_type(hybrid("tea", topk=3, weights=[1, 1, 1]), list[DocNode])
assert_type(HybridRetriever.over(docs, "block")("tea"), list[DocNode])
assert_type(MultiQueryRetriever(hybrid, QueryRewriter(lambda prompt: prompt))("tea"), list[DocNode])
assert_type(MultiQueryRetriever(hybrid, lambda query: [query]).queries("tea"), list[str])
assert_type(BM25Retriever().search("tea"), list[tuple[str, float]])
assert_type(retriever_for("hybrid_search", docs, "block")("tea"), list[DocNode])
assert_type(Rule(Segmentation(500, 50), ["remove_extra_spaces"]).create_groups(docs).child, str)
Rule(Segmentation(500)).create_groups(Document, "chunk")
assert_type(Document.create_node_group("line", transform=str.splitlines), None)
assert_type(
    docs.create_node_group("short", LLMParser(lambda prompt: prompt, "zh", "summary")), None
)
assert_type(docs.get_nodes("short")[0].get_content(), str)
assert_type(docs.create_node_group("line", str.splitlines, parent="block", replace=True), None)
docs.create_node_group("chunk", transform="SentenceSplitter", chunk_size=10)
Document("folder", embeds=None)  # type: ignore[call-arg]
Document("folder", doc_fields={"year": int})  # type: ignore[dict-item]
# names of release 0.2
docs.versions("a.md")  # type: ignore[operator]
docs.tables()  # type: ignore[operator]
docs.grep("tea")  # type: ignore[attr-defined]

node = DocNode(text="tea", metadata={"a": 1}, span=(0, 3))
assert_type(node.parent, DocNode | Any)
assert_type(node.children, dict[str, list[DocNode]])
assert_type(node.score, float | Any)
assert_type(node.get_text(), str)
node.score = 1.0  # type: ignore[misc]

assert_type(Reranker("KeywordFilter", required_keys=["a"])([node], query="q"), list[DocNode])
assert_type(AsyncReranker(PointwiseRerankModel(str.upper)).get_scores("q", ["a"]), list[float])
assert_type(CrossEncoderReranker("folder").model, RerankModel)
assert_type(ListwiseRerankModel(str.upper)("q", ["a"]), list[tuple[int, float]])


async def reranked(model: RerankModel) -> None:
    """Spec 003's asynchronous face."""
    assert_type(await AsyncReranker(model).rerank("q", ["a"], top_k=3), list[tuple[int, float]])


retriever = Retriever(docs, "FineChunk", "bm25", topk=3)
assert_type(retriever("q", filters={"year": [2002]}), list[DocNode])
dicts = Retriever([docs, docs], "FineChunk", similarity_cut_off={"e": 0.5}, output_format="dict")
assert_type(dicts("q"), Any)
assert_type(Retriever(docs, "FineChunk", output_format="content")("q"), Any)
assert_type(Retriever(docs, "FineChunk", output_format="content", join="\n")("q"), Any)
Retriever(docs, "FineChunk", output_format="text")  # type: ignore[call-overload]
assert_type(Retriever(docs, "FineChunk", "bm25", k1=1.2, b=0, analyser="en")("q"), list[DocNode])
Retriever(docs, "FineChunk", by_hand, similarity_kw={"alpha": 1})
Retriever(docs, "FineChunk", simlarity="bm25")  # type: ignore[call-overload]
Retriever(docs, "FineChunk", "bm25", k1="high")  # type: ignore[call-overload]


@register_similarity
def bare(query: str, node: DocNode) -> float:
    return 1.0


@register_similarity(mode="embedding", batch=True)
def batch(query: list[float], nodes: list[DocNode]) -> list[tuple[DocNode, float]]:
    return [(node, 1.0) for node in nodes]


@register_reranker(batch=True)
def reorder(nodes: list[DocNode], query: str) -> list[DocNode]:
    return nodes


@register_transform
class Lines(NodeTransform):
    def transform(self, node: DocNode) -> list[str]:
        return node.get_text().splitlines()


@register_loader(".log")
class LogLoader:
    def load(self, path: object) -> str:
        return "text"


@docs.add_reader("*.log")
def read_log(path: Path) -> str:
    return path.read_text(encoding="utf-8")


assert_type(read_log(Path("a.log")), str)
assert_type(Document.add_reader("*.log", LogLoader), type[LogLoader])
Document.add_reader("*.log", 7)  # type: ignore[call-overload]

assert_type(bare("q", node), float)
assert_type(batch([1.0], [node]), list[tuple[DocNode, float]])
assert_type(reorder([node], "q"), list[DocNode])
assert_type(LogLoader().load("x"), str)

assert_type(Condition("year", ">", 1) & Condition("year", "<", 9), And)
assert_type(Condition("year", ">", 1) | Condition("year", "<", 9), Or)
assert_type(~Condition("year", ">", 1), Not)

result: RetrievalResult[dict[str, int]] = RetrievalResult(["a"], metadata={"ms": 3})
assert_type(result[0], Hit)
assert_type(result[:1], Sequence[Hit])
assert_type(result.metadata, dict[str, int] | Any)
RetrievalResult(["a"], scores=0.5)  # type: ignore[arg-type]
answer: GenerationResult[str] = GenerationResult("a", confidence=0.5, metadata="m")
assert_type(answer.metadata, str | Any)
GenerationResult("a", confidence="high")  # type: ignore[arg-type]

both = [[("a", 1.0)], [("b", 2.0)]]
weights = Weights(VectorSetting(0.7, "openai", "text-embedding-3-small"), KeywordSetting(0.3))
assert_type(rrf(both), list[tuple[str, float]])
assert_type(
    weighted(both, weights=weights.shares, normalise=["theoretical", "max"], lowest=[-1, None]),
    list[tuple[str, float]],
)
assert_type(fusions["rrf"].contributions(both), dict[str, tuple[float, ...]])
assert_type(ReciprocalRankFusion().fuse(both), list[tuple[str, float]])
assert_type(mmr(rrf(both), [[1.0, 0.0], [0.0, 1.0]]), list[tuple[str, float]])
weighted(both, normalise="minmax")  # type: ignore[arg-type]
evaluation = evaluate({"q": rrf(both)}, {"q": {"a": 1}}, ["nDCG@10"])
assert_type(evaluation.means, dict[str, float])
assert_type(compare(evaluation.values["nDCG@10"], evaluation.values["nDCG@10"]).p, float)


@register_fusion
def first_only(rankings: list[list[tuple[str, float]]]) -> dict[str, list[float]]:
    return {}


assert_type(first_only([]), dict[str, list[float]])
segments: SegmentStore = MapSegmentStore()
vectors: VectorStore = MapVectorStore()
segments.create("c", make_schema(None))

chained = Retriever(docs, "block", similarity="bm25")
assert_type(RetrievalChain(chained, AutoMerge(), MMR(topk=3), topk=2)("query"), list[DocNode])
assert_type(
    RetrievalChain(chained, Reranker(), lambda nodes, query: nodes[:1])("query"), list[DocNode]
)
assert_type(RetrievalChain(chained, output_format="dict")("query"), Any)
assert_type(RetrievalChain(RetrievalChain(chained))("query"), list[DocNode])
assert_type(explain(chained, "query"), Explanation)
assert_type(explain(chained, "query")[0].node, DocNode | Any)
assert_type(
    Retriever(docs, "block", output_format="content").explain("query")[0].contributions,
    Mapping[str, float],
)
assert_type(why_not(RetrievalChain(chained), "uid", "query").rank, int | None)


class TypedRAG(RAGInterface[dict[str, int]]):
    """Metadata of a type, in the new form of retrieving and the old one of generating."""

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[dict[str, int]]:
        return RetrievalResult([query], metadata={"ms": 3})

    def generate(self, query: str, contexts: list[str]) -> str:
        return contexts[0]


class NarrowRAG(RAGInterface[Mapping[str, object]]):
    """Each method may promise more of its metadata than the interface does."""

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[dict[str, int]]:
        return RetrievalResult([query], metadata={"ms": 3})

    def generate_with_metadata(
        self, query: str, contexts: list[str]
    ) -> GenerationResult[dict[str, str]]:
        return GenerationResult(query, metadata={"model": "m"})


class WrongRAG(RAGInterface[dict[str, int]]):
    """What a checker must refuse: metadata of another type, and an answer that is no text."""

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[dict[str, str]]:  # type: ignore[override]
        return RetrievalResult([query], metadata={"source": "tea.txt"})

    def generate(self, query: str, contexts: list[str]) -> int:  # type: ignore[override]
        return len(contexts)


typed_rag = TypedRAG()
assert_type(typed_rag.retrieve_with_metadata("q").metadata, dict[str, int] | Any)
assert_type(typed_rag.generate_with_metadata("q", []), GenerationResult[dict[str, int]])
assert_type(typed_rag.batch_retrieve_with_metadata(["q"]), list[RetrievalResult[dict[str, int]]])
assert_type(typed_rag.retrieve("q"), list[str])
assert_type(NarrowRAG().generate_with_metadata("q", []).metadata, dict[str, str] | Any)
