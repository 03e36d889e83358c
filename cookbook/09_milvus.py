"""Vectors in Milvus: in a file or on a server, dense and sparse, with an index per embed key.

It needs ``pip install "lazyrag[milvus]"``. Without arguments it uses temporary files of Milvus
Lite. With the address of a server and a ledger file it also uses that, and its data stay in the
database ``lazyrag``:

    python cookbook/09_milvus.py localhost:19530 tea.db
"""

import re
import sys
import tempfile
import zlib
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from lazyrag import Document, Retriever
from lazyrag.stores.milvus import MilvusVectorStore

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTION = "How often is the chimney of the dryer cleaned?"
# A dict per embed key; other keys get an exact index. HNSW is faster, and may miss near nodes.
INDEXES = [
    {"embed_key": "pairs", "index_type": "FLAT", "metric_type": "COSINE"},
    {"embed_key": "words", "index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP"},
]
METRICS = {"pairs": "cosine", "words": "ip"}  # sparse vectors are ranked by the inner product


def pairs(text):
    """Count pairs of characters in 256 buckets as a dense vector. Replace it with your model."""
    vector = [0.01] * 256
    for pair in pairwise(" ".join(text.casefold().split())):
        vector[zlib.crc32("".join(pair).encode()) % 256] += 1
    return vector


def words(text):
    """Return a sparse vector: a dict from dimension to weight, here by words. Replace it with
    SPLADE.
    """
    return {
        zlib.crc32(word.encode()): 1.0 + 0.1 * len(word)
        for word in Counter(re.findall(r"\w+", text.casefold()))
    }


def ask(title, embed, **store_conf):
    """Search by each embed key; return (uid, score) of five nodes each."""
    with Document(CORPUS, embed=embed, name="tea", store_conf=store_conf or None) as docs:
        found = {}
        for key in embed:
            nodes = Retriever(docs, "FineChunk", similarity=METRICS[key], embed_keys=[key], topk=5)(
                QUESTION
            )
            found[key] = [(node.uid, node.score) for node in nodes]
            print(f"{nodes[0].score:7.3f}  {key}: {nodes[0].path}")
        print(f"{title}: {docs.last_report}\n")
        return found


def in_milvus(uri, **kwargs):
    """Return the vector store of a ``store_conf``."""
    return {"type": "milvus", "kwargs": {"uri": uri, **kwargs}}


def features(uri):
    """Return the features of a Milvus: servers support sparse vectors from version 2.4 on."""
    with closing(MilvusVectorStore(uri)) as store:
        store.open()
        return store.features


EMBED = {"pairs": pairs, "words": words}
in_memory = ask("In memory", EMBED)
with tempfile.TemporaryDirectory() as temporary:
    in_a_file = in_milvus(str(Path(temporary, "vectors.db")), index_kwargs=INDEXES)
    answers = [ask(title, EMBED, vector_store=in_a_file) for title in ("In a file", "Opened again")]
if len(sys.argv) == 3:
    address, ledger = sys.argv[1:]
    kept = EMBED if "sparse" in features(address) else {"pairs": pairs}
    conf = {"vector_store": in_milvus(address), "ledger": ledger, "search": "exact"}
    answers.append(ask(f"On {address}", kept, **conf))

assert all(answer[key] == in_memory[key] for answer in answers for key in answer)
