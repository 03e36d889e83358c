"""Nodes in OpenSearch: the same results as elsewhere, or OpenSearch's own ranking of Chinese and
English terms.

Without arguments it shows the results of a Document in memory. With
``pip install "lazyrag[opensearch]"``, the address of a cluster (``docker compose up opensearch``
starts one) and a ledger file it compares them with the cluster's. Its data stay there; the next run
reads no file again:

    python cookbook/10_opensearch.py localhost:9200 tea.db
"""

import sys
from pathlib import Path

from lazyrag import Document, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTIONS = {
    "采摘工采一公斤单芽能拿多少钱？": "bm25_chinese",
    "How much rain fell in April?": "bm25",
}


def ask(title, store_conf, index):
    """Run each query as a keyword search; return five nodes each."""
    with Document(CORPUS, name="tea", store_conf=store_conf) as docs:
        found = {
            question: Retriever(docs, "FineChunk", similarity=similarity, index=index, topk=5)(
                question
            )
            for question, similarity in QUESTIONS.items()
        }
        in_pdfs = Retriever(docs, "FineChunk", similarity="bm25", index=index)(
            "tea", filters={"file_type": [".pdf"]}
        )
        print(f"{title}: {docs.last_report}")
        print("".join(f"  {nodes[0].score:6.3f}  {nodes[0].path}\n" for nodes in found.values()))
        return found, in_pdfs


def in_opensearch(address, ledger):
    """Return a ``store_conf``."""
    kwargs = {
        "uris": [address],
        "client_kwargs": {"timeout": 60},
        # Replicas need a second machine. The terms of both analyzers are indexed, which is the
        # default.
        "index_kwargs": {"settings": {"number_of_replicas": 0}, "analysers": ["en", "zh"]},
    }
    # The ledger, a file of this machine, lists the files and what is live.
    return {"segment_store": {"type": "opensearch", "kwargs": kwargs}, "ledger": ledger}


in_memory, pdfs = ask("In memory", None, "exact")
assert {node.path[-4:] for node in pdfs} == {".pdf"}
if len(sys.argv) != 3:
    print("To compare with a cluster: python cookbook/10_opensearch.py localhost:9200 tea.db")
    sys.exit()
address, ledger = sys.argv[1:]
conf = in_opensearch(address, ledger)
there, pdfs_there = ask(f"On {address}", conf, "exact")
by_opensearch, pdfs_by_opensearch = ask("By OpenSearch itself", conf, "default")

for question, nodes in in_memory.items():
    assert [(node.uid, node.score) for node in there[question]] == [
        (node.uid, node.score) for node in nodes
    ]
    # OpenSearch computes its own scores over the terms of the same analyzer: 采摘 and 单芽 are terms.
    assert by_opensearch[question][0].uid in {node.uid for node in nodes}
assert [node.uid for node in pdfs_there] == [node.uid for node in pdfs]
assert {node.path[-4:] for node in pdfs_by_opensearch} == {".pdf"}
