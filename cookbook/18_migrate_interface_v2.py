"""Migrate a system to the new interface, one method at a time, and see what an evaluation gets at each step.

The system is small: a retriever over the sample folder, and a "model" that quotes the first sentence of its context.
At every step both the old and the new methods work; unknown values are None.
"""

import time
from pathlib import Path

from lazyrag import Document, GenerationResult, RAGInterface, RetrievalResult, Retriever
from lazyrag.evaluation import evaluate, prepare

HERE = Path(__file__).resolve().parent
QUESTION = "How often is the chimney of the dryer cleaned?"

docs = Document(HERE / "corpus")
retriever = Retriever(docs, "FineChunk", "bm25", topk=3)
answering = next(node for node in retriever(QUESTION) if "chimney" in node.text)
records = [{"user_input": QUESTION, "reference_context_ids": [answering.uid]}]


def first_sentence(contexts):
    """Take the place of a model, so that this runs offline."""
    return contexts[0].split(". ")[0] + "."


class Step1(RAGInterface):
    """1. Unchanged: texts in, texts out. The new methods wrap it."""

    def retrieve(self, query):
        """Return texts."""
        return [node.text for node in retriever(query)]

    def generate(self, query, contexts):
        """Return one answer."""
        return first_sentence(contexts)


class Step2(RAGInterface):
    """2. Retrieval also returns ids, scores and sources. Generation does not change."""

    def retrieve_with_metadata(self, query):
        """Return texts with ids, scores and sources."""
        nodes = retriever(query)
        return RetrievalResult(
            contexts=[node.text for node in nodes],
            context_ids=[node.uid for node in nodes],
            scores=[node.score for node in nodes],
            metadata={"sources": [node.path for node in nodes]},
        )

    def generate(self, query, contexts):
        """Return one answer."""
        return first_sentence(contexts)


class Step3(Step2):
    """3. Generation returns candidates and a confidence, too."""

    generate = RAGInterface.generate  # the old method now calls the new one

    def generate_with_metadata(self, query, contexts):
        """Return an answer per context; the fraction equal to the first is the confidence."""
        began = time.perf_counter()
        candidates = [first_sentence(contexts[start:]) for start in range(len(contexts))]
        return GenerationResult(
            response=candidates[0],
            multi_responses=candidates,
            confidence=candidates.count(candidates[0]) / len(candidates),
            metadata={"candidates": len(candidates), "seconds": time.perf_counter() - began},
        )


samples = {}
for system in (Step1(), Step2(), Step3()):
    [sample] = prepare(records, system)
    samples[type(system).__name__] = sample
    print(f"{type(system).__name__}: {', '.join(sample.to_dict())}")

# Step 2 adds ids for metrics, of RAGAS as well as here.
run = {QUESTION: [(uid, 0.0) for uid in samples["Step2"].retrieved_context_ids]}
means = evaluate(run, {QUESTION: {answering.uid: 1}}, ["recall@3", "MRR"]).means
print(means)
assert samples["Step1"].retrieved_context_ids is None
assert samples["Step1"].retrieved_contexts == samples["Step2"].retrieved_contexts
assert samples["Step2"].multi_responses is None
assert len(samples["Step3"].multi_responses) == 3
assert Step3().generate(QUESTION, ["Every 90 days. Then again."]) == "Every 90 days."
assert len({sample.response for sample in samples.values()}) == 1
assert means["recall@3"] == 1.0
