"""Code written for specification 000, on this package's engine: only the imports change.

The operators, the reading order and the flow are the specification's examples, with a folder and a model around them.
"""

import time
from pathlib import Path
from typing import Dict, List  # noqa: UP035  as the specification writes them

from lazyrag import Document
from lazyrag.operators import (
    AccuracyEvaluate,
    ChromaRetriever,
    CompressionRateEvaluate,
    ContextRecallEvaluate,
    LatencyEvaluate,
    LLMbased_Reranker,
    OpenAIGenerator,
    QAPromptor,
    RAGData,
    RefinerOperator,
    TokenCountEvaluate,
    from_legacy,
)

HERE = Path(__file__).resolve().parent


def model(prompt):
    """Take the place of a chat model, so that this runs offline: yes or no for a reranker, one fact for a question."""
    if "上下文" in prompt or "Context" in prompt:
        return "Every 300 hours of firing."
    return "yes" if "chimney is" in prompt else "no"


# A custom operator, as "使用 TypedDict 进行类型检查" and "使用 data.update() 追加字段" write them.
def my_operator(data: RAGData) -> RAGData:
    # IDE 会提供自动补全和类型检查
    docs = data.get("retrieval_docs", [])
    data.update({"custom_characters": sum(map(len, docs))})
    return data


class MyReranker:
    """As "遵循读取优先级" reads: a class with execute(data), the method of which is a function over the dict."""

    def execute(self, data: dict) -> dict:
        """Put the shortest texts first."""
        began = time.monotonic()
        docs: List[str] = (  # noqa: UP006
            data.get("refining_docs")  # 优先使用精炼后的文档
            or data.get("reranking_docs")  # 其次使用重排序的文档
            or data.get("retrieval_docs", [])  # 最后使用原始检索文档
        )
        results: List[Dict] = [{"text": text, "score": -len(text)} for text in sorted(docs, key=len)]  # noqa: UP006
        data.update(
            {
                "custom_results": results,
                "custom_docs": [r["text"] for r in results],
                "custom_time": time.monotonic() - began,
            }
        )
        return data


docs = Document(HERE / "corpus", embed=lambda text: [1.0 + text.count(c) for c in "abcdefghijklmnopqrstuvwxyz茶水火电"])

# 1. 初始输入; 2. 经过 Retriever ... 6. 经过 Generator
flow = ChromaRetriever(docs, similarity="bm25", topk=4) >> my_operator >> LLMbased_Reranker(model, topk=2)
flow = flow >> MyReranker().execute >> RefinerOperator(budget=120) >> QAPromptor() >> OpenAIGenerator(model)
data = {
    "query": "How often is the chimney of the dryer swept?",
    "question": {"id": "q001", "references": ["every 300 hours"]},
    "references": ["every 300 hours"],
}
data = flow(data)

# 7. 经过 Evaluate: 各评估器读取相应字段进行评估,不修改 data
for evaluate in (AccuracyEvaluate, TokenCountEvaluate, CompressionRateEvaluate, LatencyEvaluate, ContextRecallEvaluate):
    print(evaluate.__name__, evaluate().measure(data))

assert AccuracyEvaluate().measure(data) == {"accuracy": 1.0}
assert len(data["retrieval_docs"]) == 4
assert len(data["reranking_docs"]) == len(data["custom_docs"]) == 2
assert "300 hours" in " ".join(data["refining_docs"])
assert from_legacy({"query": "q", "pred": "a"})["generated"] == "a"
