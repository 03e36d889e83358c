"""A cited answer: retrieval, context, a chat model, and the file and place that each sentence rests on.

The model is served by this script and can do nothing but quote (quoting_model.py): nothing is downloaded, nothing
leaves the machine. 16_real_answer.py asks a real one. Needs the extra openai.
"""

import asyncio
from pathlib import Path

from quoting_model import served

from lazyrag import CitationManager, Document, HttpChatModel, RAGPipeline

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTIONS = ["采摘工采一公斤单芽能拿多少钱？", "What ratio of petrol and oil goes into a brush cutter?"]


def show(answer):
    """The answer, and its sources as a person would look them up."""
    print(f"\n{answer.query}\n  {answer.text}")
    for citation in answer.citations:
        print(f"  [{citation.index}] {citation.source}, {citation.place}: {citation.text_snippet}")


async def ask(pipeline):
    """Both questions at once, then one of them piece by piece."""
    answers = await pipeline.batch_answer(QUESTIONS)
    for answer in answers:
        show(answer)

    print(f"\n{QUESTIONS[0]}\n  ", end="")
    streamed = None
    async for delta in pipeline.astream(QUESTIONS[0]):
        print(delta.text, end="")
        for citation in delta.citations:  # as soon as its bracket closes
            print(f" <- {citation.source}", end="")
        streamed = delta.answer or streamed
    return answers, streamed


with served() as url, HttpChatModel(url, "quoting") as model, Document(CORPUS) as docs:
    pipeline = RAGPipeline.over(docs, "FineChunk", generator=model)
    answers, streamed = asyncio.run(ask(pipeline))

    # Programs without an event loop, notebooks and running loops ask through the same pipeline.
    context = pipeline.sync.retrieve_with_context(QUESTIONS[1], top_k=3, max_tokens=400)
    print(f"\n\nWhat the model read, {context.total_tokens} tokens of 400 at most:\n{context.context}")

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
