"""Your own reranker: reorder or drop hits by a plain function, by a rerank model, or by both in a
chain.

A reranker gets the best hits of a retriever. The two prototypes of a function, a model of your own,
the built-in keyword filter, and a chain that explains what each step did.
"""

from pathlib import Path

from lazyrag import DocNode, Document, Reranker, RetrievalChain, Retriever, register_reranker

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTION = "How often is the chimney of the dryer cleaned?"


@register_reranker(batch=True)
def best_of_each_file(nodes: list[DocNode], **kwargs) -> list[DocNode]:
    first = {node.path: node for node in reversed(nodes)}
    return [node for node in nodes if first[node.path] is node]


@register_reranker(batch=False)
def at_most(node: DocNode, characters: int, **kwargs) -> DocNode | None:
    return node if len(node.get_text()) <= characters else None  # None drops the node


def runs(text: str) -> set[str]:
    """All runs of five characters; white space folded, case ignored."""
    folded = " ".join(text.casefold().split())
    return {folded[start : start + 5] for start in range(len(folded) - 4)}


def overlap(query: str, documents: list[str], top_n: int) -> list[tuple[int, float]]:
    """A rerank model: pairs of a document's index and its score. OnnxCrossEncoder and
    HttpRerankModel are others.
    """
    return [(index, len(runs(query) & runs(text))) for index, text in enumerate(documents)]


docs = Document(CORPUS)
retriever = Retriever(docs, "FineChunk", similarity="bm25", topk=20)
candidates = retriever(QUESTION)
found = {
    "retrieved": candidates,
    "best_of_each_file": Reranker("best_of_each_file")(candidates, query=QUESTION),
    "at_most": Reranker("at_most", characters=400)(candidates, query=QUESTION),
    "ModuleReranker": Reranker("ModuleReranker", model=overlap, topk=3)(candidates, query=QUESTION),
    "KeywordFilter": Reranker("KeywordFilter", required_keys=["chimney"])(
        candidates, query=QUESTION
    ),
}
for name, nodes in found.items():
    print(
        f"{name:18}{len(nodes):3} nodes  "
        + "  ".join(f"{n.score:.2f} {n.path.split('/')[-1]}" for n in nodes[:3])
    )

# A chain retrieves and reranks in one call, and explains the result.
chain = RetrievalChain(
    retriever, Reranker("best_of_each_file"), Reranker("ModuleReranker", model=overlap), topk=3
)
print(f"\n{chain.explain(QUESTION)}")
dropped = next(node for node in candidates if node not in found["best_of_each_file"])
reason = chain.why_not(dropped.uid, QUESTION)
print(f"\nWhy is {dropped.path}, {dropped.location} missing?\n{reason}")

paths = [node.path for node in found["best_of_each_file"]]
assert len(paths) == len(set(paths)) == len({node.path for node in candidates})
assert all(len(node.text) <= 400 for node in found["at_most"])
assert found["ModuleReranker"][0] == found["KeywordFilter"][0] == candidates[0]
assert chain(QUESTION)[0].path == "workshop/machine-maintenance-manual.pdf"
assert "best_of_each_file" in str(reason)
