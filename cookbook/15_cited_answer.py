"""A cited answer: retrieval, quotations, and the file and location of each cited source.

Without a chat model the pipeline quotes the sentences that answer: nothing is downloaded, nothing
leaves the machine. 16_real_answer.py uses a model.
"""

import asyncio
from pathlib import Path

from lazyrag import CitationManager, Document, RAGPipeline

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTIONS = [
    "采摘工采一公斤单芽能拿多少钱？",
    "What ratio of petrol and oil goes into a brush cutter?",
]


def show(answer):
    """Print the answer and its sources."""
    print(f"\n{answer.query}\n  {answer.text}")
    for citation in answer.citations:
        print(
            f"  [{citation.index}] {citation.source}, {citation.location}: {citation.text_snippet}"
        )


async def ask(pipeline):
    """Answer both questions concurrently, then stream one of them."""
    answers = await pipeline.batch_answer(QUESTIONS)
    for answer in answers:
        show(answer)

    print(f"\n{QUESTIONS[0]}\n  ", end="")
    deltas = []
    async for delta in pipeline.astream(QUESTIONS[0]):
        print(delta.text, end="")
        for citation in delta.citations:  # as soon as its bracket closes
            print(f" <- {citation.source}", end="")
        deltas.append(delta)
    return answers, deltas[-1].answer


with Document(CORPUS) as docs:
    # with a model: generator=HttpChatModel("http://localhost:8000/v1", ...)
    pipeline = RAGPipeline.over(docs, "FineChunk")
    answers, streamed = asyncio.run(ask(pipeline))

    # The blocking interface works in scripts, in notebooks, and inside running event loops.
    context = pipeline.sync.retrieve_with_context(QUESTIONS[1], top_k=3, max_tokens=400)
    print(
        f"\n\nContext for a model, {context.total_tokens} of at most 400 tokens:\n{context.context}"
    )

    seconds = {stage: f"{took:.4f}" for stage, took in answers[0].metadata["seconds"].items()}
    print(f"\nSeconds: {seconds}")

chinese, english = answers
assert chinese.citations[0].source == "茶园/采摘须知.txt"
assert "每公斤90元" in chinese.text
assert english.citations[0].source == "handbook/tools-and-vehicles.txt"
assert streamed.text == chinese.text
assert streamed.citations == chinese.citations
assert context.total_tokens <= 400
assert not CitationManager().validate_citations("It says so [7].", num_sources=len(context.sources))
