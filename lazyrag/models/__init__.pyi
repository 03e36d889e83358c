# The names of the package, for type checkers and editors.

from lazyrag.models.chat import CallableChatModel as CallableChatModel
from lazyrag.models.embedding_cache import CachedEmbedder as CachedEmbedder
from lazyrag.models.embedding_cache import EmbeddingCache as EmbeddingCache
from lazyrag.models.local import AsyncReranker as AsyncReranker
from lazyrag.models.local import CrossEncoderReranker as CrossEncoderReranker
from lazyrag.models.onnx.models import MaxSimModel as MaxSimModel
from lazyrag.models.onnx.models import OnnxCrossEncoder as OnnxCrossEncoder
from lazyrag.models.onnx.models import OnnxEmbedder as OnnxEmbedder
from lazyrag.models.openai.client import Endpoint as Endpoint
from lazyrag.models.openai.client import RateLimit as RateLimit
from lazyrag.models.openai.entailment import HttpEntailmentModel as HttpEntailmentModel
from lazyrag.models.openai.models import HttpChatModel as HttpChatModel
from lazyrag.models.openai.models import HttpEmbedder as HttpEmbedder
from lazyrag.models.openai.models import HttpRerankModel as HttpRerankModel
from lazyrag.models.openai.shared_rate_limit import SharedRateLimit as SharedRateLimit
from lazyrag.models.openai.transcription import HttpTranscriber as HttpTranscriber
from lazyrag.models.protocols import ChatChoice as ChatChoice
from lazyrag.models.protocols import ChatCompletion as ChatCompletion
from lazyrag.models.protocols import ChatDelta as ChatDelta
from lazyrag.models.protocols import ChatModel as ChatModel
from lazyrag.models.protocols import ChatOptions as ChatOptions
from lazyrag.models.protocols import Embedder as Embedder
from lazyrag.models.protocols import Message as Message
from lazyrag.models.protocols import RerankModel as RerankModel
from lazyrag.models.rerank import CallableRerankModel as CallableRerankModel
from lazyrag.models.rerank import ListwiseRerankModel as ListwiseRerankModel
from lazyrag.models.rerank import PointwiseRerankModel as PointwiseRerankModel
from lazyrag.models.sentence_transformers import (
    SentenceTransformerCrossEncoder as SentenceTransformerCrossEncoder,
)
from lazyrag.models.sentence_transformers import (
    SentenceTransformerEmbedder as SentenceTransformerEmbedder,
)
