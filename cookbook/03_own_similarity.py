"""Your own similarity and embedding: each is a plain function.

The four prototypes of a similarity, and a Document with two embeddings whose rankings are fused.
`hashed` is no model: it counts letters. Replace it with a real one. 19_own_reranker.py has
rerankers.
"""

import functools
import math
import zlib
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from lazyrag import DocNode, Document, Retriever, register_similarity


def grams(text: str, n: int) -> set[str]:
    """All n-grams of characters; white space folded, case ignored."""
    folded = " ".join(text.casefold().split())
    return {folded[i : i + n] for i in range(len(folded) - n + 1)}


def hashed(text: str, n: int) -> np.ndarray:
    """A unit vector over 1,024 buckets into which the n-grams of the text are hashed."""
    buckets = np.array([zlib.crc32(gram.encode()) % 1024 for gram in grams(text, n)], dtype=int)
    counts = np.bincount(buckets, minlength=1024)
    return counts / max(1.0, np.linalg.norm(counts))


@register_similarity(mode="text", batch=True)
def shared_pairs(query: str, nodes: list[DocNode], **kwargs) -> list[tuple[DocNode, float]]:
    return [(node, len(grams(query, 2) & grams(node.get_text(), 2))) for node in nodes]


@register_similarity(mode="text", batch=False)
def longest_run(query: str, node: DocNode, **kwargs) -> float:
    return SequenceMatcher(None, query, node.get_text(), autojunk=False).find_longest_match().size


@register_similarity(mode="embedding", batch=True)
def inner_product(
    query: list[float], nodes: list[DocNode], **kwargs
) -> list[tuple[DocNode, float]]:
    return list(zip(nodes, np.stack([node.embedding for node in nodes]) @ query, strict=True))


@register_similarity(mode="embedding", batch=False, descend=False)  # the smaller the better
def distance(query: list[float], node: DocNode, **kwargs) -> float:
    return math.dist(query, node.embedding)


embed = {"pairs": functools.partial(hashed, n=2), "triples": functools.partial(hashed, n=3)}
docs = Document(Path(__file__).resolve().parent / "corpus", embed=embed)
question = "How often is the chimney of the dryer cleaned?"
ask = functools.partial(Retriever, docs, "FineChunk", topk=5)
found = {name: ask(name)(question) for name in ("shared_pairs", "longest_run")}
found |= {
    name: ask(name, embed_keys=["triples"])(question) for name in ("inner_product", "distance")
}
found["cosine of pairs"] = ask(embed_keys=["pairs"])(question)  # cosine is the default similarity
found["cosine of both"] = ask()(question)  # all embed keys, their rankings fused
found["cosine, cut off"] = ask(embed_keys=["triples"], similarity_cut_off=0.275)(question)

for name, nodes in found.items():
    print(
        f"{name:16}{len(nodes):3} nodes  "
        + "  ".join(f"{n.score:.3f} {n.path.split('/')[-1]}" for n in nodes[:3])
    )

first = found["inner_product"][0]
assert (first.path, "every 300 hours" in first.text) == (
    "workshop/machine-maintenance-manual.pdf",
    True,
)
# vectors of length 1
assert found["inner_product"] == found["distance"] == ask(embed_keys=["triples"])(question)
# from both rankings; rank 1 gives 1 / (60 + 1)
assert 1 / 61 < found["cosine of both"][0].score <= 2 / 61
assert 0 < len(found["cosine, cut off"]) < 5
