"""Spec 003's structures by its names: what code written for it imports.

`RetrievalResult` is one hit there, `lazyrag.Hit`; all hits of a question are `lazyrag.RetrievalResult`, a sequence of
these.
"""

from __future__ import annotations

from lazyrag.data.result import Answer, AnswerDelta, Citation, RAGContext
from lazyrag.data.result import Hit as RetrievalResult

__all__ = ["Answer", "AnswerDelta", "Citation", "RAGContext", "RetrievalResult"]
