"""Hybrid search beside that of others, with the same texts and the same vectors.

    python benchmarks/install_peers.py --only peers-hybrids
    python benchmarks/hybrids.py [--sets cranfield ...]

LlamaIndex, Haystack, LangChain and txtai search as their documentation shows it, by the defaults of
their hybrids, each in a process of its own; the vectors are those of the shared English model. Each
text is a node: abstracts of Cranfield, paragraphs of XQuAD, chunks of nine codebases. It needs the
shared data beside the checkout; LAZYRAG_SHARED names another folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
import results
from engine import open_engines
from fields import Question, read_set

from lazyrag import LAZY_ROOT_NAME, Document, HybridRetriever, OnnxEmbedder, RetrievalChain
from lazyrag.evaluation import evaluate
from tests.shared import SHARED

SETS = ("cranfield", "xquad-en", "codebases")
TOPK = 10
FIGURES = ("recall@1", "recall@5", "nDCG@10")
PEERS = {
    name: (kind, "peers-hybrids")
    for name, kind in (
        ("LlamaIndex", "LlamaIndex"),
        ("Haystack", "Haystack"),
        ("LangChain", "LangChain"),
        ("txtai", "Txtai"),
    )
}


def figures(rankings: Sequence[Sequence[str]], questions: Sequence[Question]) -> results.Row:
    """The measures of all questions."""
    judged = {
        number: dict.fromkeys(question.documents, 1) for number, question in enumerate(questions)
    }
    run = {
        number: [(name, -float(rank)) for rank, name in enumerate(ranking)]
        for number, ranking in enumerate(rankings)
    }
    values = evaluate(run, judged, FIGURES).values
    return {name: round(sum(values[name].values()) / len(judged), 4) for name in FIGURES}


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    embedder = OnnxEmbedder(SHARED / "models" / "all-minilm-l6-v2")
    for name in parser.parse_args().sets:
        test_set = read_set(name)
        asked = [question.text for question in test_set.questions]
        names = list(test_set.texts)
        texts = list(test_set.texts.values())
        rows: list[results.Row] = []
        with Document(embed=embedder) as docs:
            docs.add_texts(test_set.texts)
            ways = {
                "lazyrag, hybrid": HybridRetriever.over(docs, LAZY_ROOT_NAME, topk=TOPK),
                "lazyrag, chain": RetrievalChain.over(docs, LAZY_ROOT_NAME, topk=TOPK),
            }
            for way, search in ways.items():
                rankings = [[str(node.path) for node in search(query)] for query in asked]
                rows.append({"system": way, "set": name} | figures(rankings, test_set.questions))
                print(rows[-1], flush=True)
        with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
            vectors = [
                *embedder.embed(texts),
                *(embedder.embed([query], "query")[0] for query in asked),
            ]
            np.save(Path(folder, "vectors.npy"), np.asarray(vectors, dtype="float32"))
            Path(folder, "texts.json").write_text(json.dumps({"texts": texts, "queries": asked}))
            engines, _ = open_engines(stack, "hybrids", PEERS)
            for peer, engine in engines.items():
                engine.call("load", folder=folder, topk=TOPK)
                numbers = engine.call("rank", queries=asked)
                rankings = [[names[number] for number in ranking] for ranking in numbers]
                version = next(
                    iter(value for key, value in engine.versions.items() if key != "python")
                )
                row = {"system": f"{peer} {version}", "set": name}
                rows.append(row | figures(rankings, test_set.questions))
                print(rows[-1], flush=True)
        results.save(f"hybrids-{name}", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
