"""Compare retrievers on your own questions: which one is better, by how much, and is the difference significant?

You need a list of questions, each with the file that answers it; here those of the demo. No model is needed: keyword
search is compared with a small embedding of letter trigrams, which shows that a weak retriever makes a good one worse.
Set LAZYRAG_EMBED_MODEL to a folder with an ONNX embedding model to include it.
"""

import json
import os
import zlib
from pathlib import Path

from lazyrag import Document, HybridRetriever, OnnxEmbedder, RetrievalChain, Retriever
from lazyrag.evaluation import compare, evaluate

HERE = Path(__file__).resolve().parent
QUESTIONS = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))
MEASURES = ["recall@1", "recall@5", "MRR@10", "nDCG@10"]


def letters(text):
    """Count letters and trigrams in 512 buckets: no meaning, but tolerant of word endings."""
    counts = [0.0] * 512
    for size in (1, 3):
        for start in range(len(text) - size + 1):
            counts[zlib.crc32(text[start : start + size].lower().encode()) % 512] += 1.0
    return counts


# 1. The retrievers. All have the same interface: (query, topk=...) -> nodes.
model = os.environ.get("LAZYRAG_EMBED_MODEL")
docs = Document(HERE / "corpus", embed={"letters": letters, **({"model": OnnxEmbedder(model)} if model else {})})
retrievers = {
    "bm25": Retriever(docs, "FineChunk", "bm25"),
    "bm25_chinese": Retriever(docs, "FineChunk", "bm25_chinese"),
    "bm25_chinese, larger chunks": Retriever(docs, "MediumChunk", "bm25_chinese"),
    "letters": Retriever(docs, "FineChunk", embed_keys=["letters"]),
    "keywords and letters": HybridRetriever.over(docs, "FineChunk", embed_keys=["letters"]),
}
if model:
    retrievers["model"] = Retriever(docs, "FineChunk", embed_keys=["model"])
    retrievers["model, default chain"] = RetrievalChain.over(docs, "FineChunk", embed_keys=["model"])

# 2. Run them all. A file counts at the rank of its first chunk.
judgements = {one["question"]: {one["file"]: 1} for one in QUESTIONS}
evaluations = {}
for name, retriever in retrievers.items():
    run = {question: [(node.path, node.score) for node in retriever(question, topk=10)] for question in judgements}
    evaluations[name] = evaluate(run, judgements, MEASURES)

# 3. Means, and the difference from the first one with its p-value.
base = evaluations["bm25"].values["MRR@10"]
print(f"{'':28} {'  '.join(MEASURES)}   MRR@10 against bm25")
for name, evaluation in evaluations.items():
    means = "     ".join(f"{evaluation.means[measure]:.3f}" for measure in MEASURES)
    beside = compare(base, evaluation.values["MRR@10"])
    print(f"{name:28} {means}    {beside.difference:+.3f} (p {beside.p:.2f}; {beside.wins} won, {beside.losses} lost)")

# 4. Look at the misses: a mean says that something is wrong, a question says what.
found = evaluations["keywords and letters"].values["recall@5"]
for question in [question for question, value in found.items() if not value]:
    print(f"not in the top 5: {question}  ({', '.join(judgements[question])})")

assert len(judgements) == len(QUESTIONS)
assert all(evaluation.means["recall@5"] >= evaluation.means["recall@1"] for evaluation in evaluations.values())
assert evaluations["bm25_chinese"].means["recall@5"] > 0.9
assert evaluations["keywords and letters"].means["MRR@10"] > evaluations["letters"].means["MRR@10"]
