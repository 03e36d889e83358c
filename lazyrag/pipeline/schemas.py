"""The structures of spec 003 by its names. Its `RetrievalResult` is one hit, `lazyrag.Hit`.

All hits of a query are a `lazyrag.RetrievalResult`, a sequence of these.
"""

from __future__ import annotations

from lazyrag.data.result import Answer, AnswerDelta, Citation, RAGContext
from lazyrag.data.result import Hit as RetrievalResult

__all__ = ["Answer", "AnswerDelta", "Citation", "RAGContext", "RetrievalResult"]
