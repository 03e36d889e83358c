"""Operators of specification 000: steps over one dict, from a question to an evaluated answer.

from lazyrag.operators import ChromaRetriever, OpenAIGenerator, QAPromptor, RefinerOperator
"""

from lazyrag.operators.data import STAGES, RAGData, from_legacy, latest_docs, latest_results
from lazyrag.operators.evaluate import (
    AccuracyEvaluate,
    CompressionRateEvaluate,
    ContextRecallEvaluate,
    EMEvaluate,
    EvaluateOperator,
    F1Evaluate,
    LatencyEvaluate,
    TokenCountEvaluate,
    evaluate_traces,
)
from lazyrag.operators.operators import (
    BGEReranker,
    ChromaRetriever,
    FunctionOperator,
    LLMbased_Reranker,
    MilvusRetriever,
    OpenAIGenerator,
    Operator,
    OperatorChain,
    QAPromptor,
    RefinerOperator,
    RerankOperator,
    RetrieveOperator,
    Wiki18FAISSRetriever,
)

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
