"""Turn a folder of files into a tree of named node groups, and search any level of it.

from lazyrag import Document, Retriever

docs = Document("folder")
retriever = Retriever(docs, "FineChunk", similarity="bm25")
for node in retriever("How long does opened tea keep?"):
    print(node.score, node.path, node.location, node.text)

The names of everyday use are here; the rest is in the subpackages `loaders`, `transforms`,
`models`, `retrieval`, `ranking`, `text`, `generation`, `pipeline`, `evaluation`, `operators`,
`sources`, `interop` and `testing`.
"""

from __future__ import annotations

from lazyrag._lazy import lazy_names
from lazyrag._version import __version__ as __version__
from lazyrag.registry import services as _services

# What a Document gets from layers above it.
_services.declare("http", "lazyrag.server.supervisor:HostedService", extra="server")
_services.declare("answers", "lazyrag.pipeline.pipeline:RAGPipeline")

# The same names are listed in __init__.pyi, for type checkers and editors.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag._version": "__version__",
        "lazyrag.client": "connect",
        "lazyrag.data.fields": "DataType DocField",
        "lazyrag.data.filters": "And Condition Not Or",
        "lazyrag.data.node": "DocNode",
        "lazyrag.data.result": "Answer Citation GenerationResult Hit RAGContext RetrievalResult",
        "lazyrag.data.segment": "LAZY_ROOT_NAME",
        "lazyrag.document": "Document FileSelection IngestReport Watcher migrate",
        "lazyrag.errors": "IngestionWarning LazyRAGError",
        "lazyrag.evaluation.interface": "RAGInterface",
        "lazyrag.generation": "CitationManager ContextBuilder Generator",
        "lazyrag.loaders": "register_loader",
        "lazyrag.models": (
            "CachedEmbedder EmbeddingCache HttpChatModel HttpEmbedder HttpRerankModel OnnxEmbedder"
        ),
        "lazyrag.pipeline": "RAGPipeline",
        "lazyrag.project": "open",
        "lazyrag.ranking": "register_fusion",
        "lazyrag.retrieval": (
            "BM25Retriever HybridRetriever Reranker RetrievalChain Retriever "
            "register_reranker register_similarity"
        ),
        "lazyrag.retrieval.base": "explain why_not",
        "lazyrag.transforms": "NodeTransform SentenceSplitter register_transform",
        "lazyrag.transforms.llm": "LLMParser",
    },
    packages=(
        "data document errors evaluation generation interop launchers loaders models operators"
        " pipeline ranking read retrieval server sources stores text transforms"
    ),
)
