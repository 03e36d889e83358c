"""Compare retrievers on your own questions: which one is better, by how much, and is the difference
significant?

You need a list of questions, each with the file that answers it; here those of the demo.
LAZYRAG_EMBED_MODEL names a folder with an ONNX embedding model. Without it vectors are pairs of
letters, which shows what a weak model is worth.
"""

import json
import warnings
from pathlib import Path

from embedding import embedding_model, letter_pairs

from lazyrag import Document, HybridRetriever, RetrievalChain, Retriever
from lazyrag.evaluation import compare, evaluate

HERE = Path(__file__).resolve().parent
QUESTIONS = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))
MEASURES = ["recall@1", "recall@5", "MRR@10", "nDCG@10"]


# 1. The retrievers. All have the same interface: (query, topk=...) -> nodes.
model = embedding_model()
docs = Document(HERE / "corpus", embed=model)
retrievers = {
    "bm25": Retriever(docs, "FineChunk", "bm25"),
    "bm25_chinese": Retriever(docs, "FineChunk", "bm25_chinese"),
    "bm25_chinese, larger chunks": Retriever(docs, "MediumChunk", "bm25_chinese"),
    "vectors": Retriever(docs, "FineChunk"),
    "hybrid": HybridRetriever.over(docs, "FineChunk"),
}
if model is not letter_pairs:
    retrievers["default chain"] = RetrievalChain.over(docs, "FineChunk")

# 2. Run them all. A file counts at the rank of its first chunk.
judgements = {one["question"]: {one["file"]: 1} for one in QUESTIONS}
evaluations = {}
with warnings.catch_warnings(record=True) as noted:  # such as a model that knows no Chinese
    warnings.simplefilter("default")
    for name, retriever in retrievers.items():
        run = {
            question: [(node.path, node.score) for node in retriever(question, topk=10)]
            for question in judgements
        }
        evaluations[name] = evaluate(run, judgements, MEASURES)
print(*sorted({f"Note: {one.message}" for one in noted}), sep="\n")

# 3. Means, and the difference from the first one with its p-value.
base = evaluations["bm25"].values["MRR@10"]
print(f"{'':28} {'  '.join(MEASURES)}   MRR@10 against bm25")
for name, evaluation in evaluations.items():
    means = "     ".join(f"{evaluation.means[measure]:.3f}" for measure in MEASURES)
    beside = compare(base, evaluation.values["MRR@10"])
    print(
        f"{name:28} {means}    {beside.difference:+.3f} (p {beside.p:.2f}; {beside.wins} won, {beside.losses} lost)"
    )

# 4. Look at the misses: a mean says that something is wrong, a question says what.
found = evaluations["hybrid"].values["recall@5"]
for question in [question for question, value in found.items() if not value]:
    print(f"not in the top 5: {question}  ({', '.join(judgements[question])})")

assert len(judgements) == len(QUESTIONS)
assert all(
    evaluation.means["recall@5"] >= evaluation.means["recall@1"]
    for evaluation in evaluations.values()
)
assert evaluations["bm25_chinese"].means["recall@5"] > 0.9
assert evaluations["hybrid"].means["MRR@10"] > evaluations["vectors"].means["MRR@10"]
