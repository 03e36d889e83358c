"""A conversation: follow-up questions are understood, answers are streamed, and each cites its own
sources.

    LAZYRAG_CHAT_URL=http://localhost:8000/v1 LAZYRAG_CHAT_MODEL=qwen3 python
    cookbook/21_conversation.py --chat

With ``--chat`` it reads your questions from the terminal. Without an endpoint a model takes its
place that rewrites one follow-up from a table and only names its first source.
"""

import os
import sys
from pathlib import Path

from lazyrag import Document, HttpChatModel, RAGPipeline

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTIONS = [
    "What goes into a brush cutter?",
    "And how often is it sharpened?",
    "采摘工采一公斤单芽能拿多少钱？",
]
REWRITTEN = {QUESTIONS[1]: "How often are shears and brush cutters sharpened?"}


def stand_in(prompt):
    """Rewrite a follow-up as a query of its own, or name the first source of a question."""
    for mark in ("Last question: ", "最后一个问题："):
        if mark in prompt:
            question = prompt.rpartition(mark)[2]
            return REWRITTEN.get(question, question)
    return "This is in the first source [1]."


class Conversation:
    """Messages so far, in the form of chat endpoints. Keep one for each user."""

    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.messages = []

    def ask(self, question):
        """Stream an answer; append both to the messages."""
        print(f"\n> {question}\n  ", end="")
        deltas = []
        for delta in self.pipeline.sync.stream(
            question, history=self.messages[-6:]
        ):  # what the model should still read
            print(delta.text, end="", flush=True)
            deltas.append(delta)
        answer = deltas[-1].answer  # the last piece has the complete answer
        for citation in answer.citations:
            print(f"\n  [{citation.index}] {citation.source}, {citation.location}", end="")
        print()
        self.messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer.text},
        ]
        return answer


def typed():
    """Questions from the terminal, until an empty line."""
    while question := input("\nQuestion: ").strip():
        yield question


url = os.environ.get("LAZYRAG_CHAT_URL")
model = HttpChatModel(url, os.environ["LAZYRAG_CHAT_MODEL"], timeout_s=120) if url else stand_in
with Document(CORPUS) as docs:
    conversation = Conversation(RAGPipeline.over(docs, "FineChunk", generator=model))
    answers = [
        conversation.ask(question) for question in (typed() if "--chat" in sys.argv else QUESTIONS)
    ]

assert len(conversation.messages) == 2 * len(answers)
assert all(citation.source for answer in answers for citation in answer.citations)
if not url and "--chat" not in sys.argv:
    assert [answer.context.metadata.get("search_query") for answer in answers][1] == REWRITTEN[
        QUESTIONS[1]
    ]
    assert answers[1].citations[0].source == "handbook/tools-and-vehicles.txt"
assert all(answer.text for answer in answers)
