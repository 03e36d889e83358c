"""Operators of specification 000: steps over one dict, from a question to an evaluated answer.

from lazyrag.operators import ChromaRetriever, OpenAIGenerator, QAPromptor, RefinerOperator
"""

from lazyrag._lazy import lazy_names

# The same names are listed in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "lazyrag.operators.data": "STAGES RAGData from_legacy latest_docs latest_results",
        "lazyrag.operators.evaluate": (
            "AccuracyEvaluate CompressionRateEvaluate ContextRecallEvaluate EMEvaluate"
            " EvaluateOperator F1Evaluate LatencyEvaluate TokenCountEvaluate evaluate_traces"
        ),
        "lazyrag.operators.operators": (
            "BGEReranker ChromaRetriever FunctionOperator LLMbased_Reranker MilvusRetriever"
            " OpenAIGenerator Operator OperatorChain QAPromptor RefinerOperator RerankOperator"
            " RetrieveOperator Wiki18FAISSRetriever"
        ),
    },
)
