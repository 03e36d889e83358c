"""Models behind endpoints that speak OpenAI's protocol."""

from __future__ import annotations

from lazyrag.models.openai.client import Endpoint
from lazyrag.models.openai.models import HttpChatModel, HttpEmbedder, HttpRerankModel

__all__ = ["Endpoint", "HttpChatModel", "HttpEmbedder", "HttpRerankModel"]
