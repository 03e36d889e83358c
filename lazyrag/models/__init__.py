"""Models behind one interface: embedders, chat models and rerank models; local, over HTTP, or a
callable.
"""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.models.chat": "CallableChatModel",
        "lazyrag.models.embedding_cache": "CachedEmbedder EmbeddingCache",
        "lazyrag.models.local": "AsyncReranker CrossEncoderReranker",
        "lazyrag.models.onnx.models": "MaxSimModel OnnxCrossEncoder OnnxEmbedder",
        "lazyrag.models.openai.client": "Endpoint RateLimit",
        "lazyrag.models.openai.entailment": "HttpEntailmentModel",
        "lazyrag.models.openai.models": "HttpChatModel HttpEmbedder HttpRerankModel",
        "lazyrag.models.openai.shared_rate_limit": "SharedRateLimit",
        "lazyrag.models.openai.transcription": "HttpTranscriber",
        "lazyrag.models.protocols": (
            "ChatChoice ChatCompletion ChatDelta ChatModel ChatOptions Embedder Message RerankModel"
        ),
        "lazyrag.models.rerank": "CallableRerankModel ListwiseRerankModel PointwiseRerankModel",
        "lazyrag.models.sentence_transformers": (
            "SentenceTransformerCrossEncoder SentenceTransformerEmbedder"
        ),
    },
)
