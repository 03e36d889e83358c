"""Models behind endpoints that speak OpenAI's protocol."""

from __future__ import annotations

from lazyrag.models.openai.client import Endpoint
from lazyrag.models.openai.models import HttpChatModel, HttpEmbedder, HttpRerankModel
from lazyrag.models.openai.transcription import HttpTranscriber

__all__ = ["Endpoint", "HttpChatModel", "HttpEmbedder", "HttpRerankModel", "HttpTranscriber"]
