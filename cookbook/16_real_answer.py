"""A cited answer from a real model, behind any endpoint that speaks OpenAI's protocol.

    LAZYRAG_CHAT_URL=http://localhost:8000/v1 LAZYRAG_CHAT_MODEL=qwen3 python
    cookbook/16_real_answer.py

Set LAZYRAG_API_KEY or OPENAI_API_KEY if a key is needed. Pass questions as arguments. Without an
endpoint the answers are quotations. Needs the extra openai.
"""

import contextlib
import os
import sys
from pathlib import Path

from lazyrag import Document, Generator, HttpChatModel, RAGPipeline
from lazyrag.models import ChatOptions

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTIONS = sys.argv[1:] or [
    "采摘工采一公斤单芽能拿多少钱？",
    "How hot should water for green tea be?",
]

url = os.environ.get("LAZYRAG_CHAT_URL")
generator = None
with contextlib.ExitStack() as stack:
    docs = stack.enter_context(Document(CORPUS))
    if url:
        name = os.environ["LAZYRAG_CHAT_MODEL"]
        model = stack.enter_context(HttpChatModel(url, name, timeout_s=120))
        generator = Generator(model, n=3, options=ChatOptions(temperature=0.7, max_tokens=400))
    else:
        print("No model: set LAZYRAG_CHAT_URL and LAZYRAG_CHAT_MODEL. These are quotations.")
    pipeline = RAGPipeline.over(docs, "MediumChunk", generator=generator)
    answers = pipeline.sync.batch_answer(QUESTIONS)

for answer in answers:
    print(f"\n{answer.query}\n  {answer.text}")
    for citation in answer.citations:
        print(
            f"  [{citation.index}] {citation.source}, {citation.location}: {citation.text_snippet}"
        )
    if answer.confidence is not None:
        print(
            f"  {answer.confidence:.0%} agreement of {len(answer.generation.multi_responses)} candidates"
        )
    print(*(f"  Note: {problem}" for problem in answer.problems), sep="\n")

assert all(
    1 <= citation.index <= len(answer.context.sources)
    for answer in answers
    for citation in answer.citations
)
