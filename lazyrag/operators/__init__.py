"""Specification 000 on this package's engine: steps over one dict, from a question to an evaluated answer.

from lazyrag.operators import ChromaRetriever, OpenAIGenerator, QAPromptor, RefinerOperator
"""

from lazyrag.operators.data import STAGES, RAGData, from_legacy, latest_docs, latest_results
from lazyrag.operators.evaluate import (
    AccuracyEvaluate,
    CompressionRateEvaluate,
    ContextRecallEvaluate,
    EMEvaluate,
    F1Evaluate,
    LatencyEvaluate,
    TokenCountEvaluate,
    evaluate_traces,
)
from lazyrag.operators.evaluator import EvaluateOperator
from lazyrag.operators.generate import OpenAIGenerator, QAPromptor
from lazyrag.operators.operator import FunctionOperator, Operator, OperatorChain
from lazyrag.operators.refine import RefinerOperator
from lazyrag.operators.rerank import BGEReranker, LLMbased_Reranker, RerankOperator
from lazyrag.operators.retrieve import ChromaRetriever, MilvusRetriever, RetrieveOperator, Wiki18FAISSRetriever

__all__ = [
    "STAGES",
    "AccuracyEvaluate",
    "BGEReranker",
    "ChromaRetriever",
    "CompressionRateEvaluate",
    "ContextRecallEvaluate",
    "EMEvaluate",
    "EvaluateOperator",
    "F1Evaluate",
    "FunctionOperator",
    "LLMbased_Reranker",
    "LatencyEvaluate",
    "MilvusRetriever",
    "OpenAIGenerator",
    "Operator",
    "OperatorChain",
    "QAPromptor",
    "RAGData",
    "RefinerOperator",
    "RerankOperator",
    "RetrieveOperator",
    "TokenCountEvaluate",
    "Wiki18FAISSRetriever",
    "evaluate_traces",
    "from_legacy",
    "latest_docs",
    "latest_results",
]
