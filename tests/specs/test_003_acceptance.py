"""Spec 003, 验收标准: every test quotes the line it checks and says what is expected.

What can be measured only, the share by which a reranker or a hybrid is better and how long a question takes, is
measured by benchmarks/quality.py and benchmarks/answer.py, which CI runs; docs/quality.md and docs/performance.md have
the figures. Here the same systems answer a part of the same questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lazyrag import BM25Retriever, Document, HybridRetriever, RAGPipeline, Reranker, RetrievalChain, Retriever
from lazyrag.models.onnx import OnnxEmbedder
from tests.interpreter import ROOT
from tests.judged import Judged, judged_set, write
from tests.shared import shared

QUESTIONS = 60
