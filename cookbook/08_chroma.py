"""Vectors in Chroma: in a folder or on a server, ranked exactly or by Chroma's own search.

It needs ``pip install "lazyrag[chroma]"``. Run as it is, it asks a folder that it removes. With the address of a server
(``chroma run --path data`` starts one) and a file for the ledger it asks there, too, and what it writes stays there:

    python cookbook/08_chroma.py localhost:8000 tea.db
"""

import sys
import tempfile
import zlib
from itertools import pairwise
from pathlib import Path

from lazyrag import Document, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTION = "How often is the chimney of the dryer cleaned?"
embedded = []


def pairs(text):
    """A vector for a text: its pairs of characters, counted in 256 buckets. Put your model here."""
    embedded.append(text)
    vector = [0.01] * 256
    for pair in pairwise(" ".join(text.casefold().split())):
        vector[zlib.crc32("".join(pair).encode()) % 256] += 1
    return vector


def ask(title, store_conf):
    """What a Document on a store finds, and how many texts it embedded to be there."""
    embedded.clear()
    with Document(CORPUS, embed=pairs, name="tea", store_conf=store_conf) as docs:
        exact = Retriever(docs, "FineChunk", topk=5)
        own = Retriever(docs, "FineChunk", topk=5, index="smart_embedding_index")
        found = {
            "exact": exact(QUESTION),
            "its own search": own(QUESTION),  # a graph: it may miss near nodes
            "its own search in PDFs": own(QUESTION, filters={"file_type": [".pdf"]}),
        }
        print(f"{title}: {docs.last_report}, {len(embedded)} texts embedded")
        print("".join(f"  {nodes[0].score:.3f}  {way}: {nodes[0].path}\n" for way, nodes in found.items()))
        return found, len(embedded)


def in_chroma(ledger=None, **kwargs):
    """A ``store_conf``. Beside a folder the ledger lies by itself, for a server its file is named."""
    conf = {"vector_store": {"type": "chroma", "kwargs": kwargs}}
    return conf | {"ledger": ledger} if ledger else conf


def told(nodes):
    """What is compared of nodes."""
    return [(node.uid, node.score) for node in nodes]


in_memory, _ = ask("In memory", None)
with tempfile.TemporaryDirectory() as temporary:
    folder = str(Path(temporary, "vectors"))
    first, texts = ask("In a folder", in_chroma(dir=folder, index_kwargs={"hnsw": {"ef_construction": 200}}))
    again, questions = ask("The next day", in_chroma(dir=folder))
    # Up to exact_rows nodes of a group are ranked exactly, by default 10,000. Beyond, near ones may be missing.
    large, _ = ask("As if there were many nodes", in_chroma(dir=folder, exact_rows=20))
    assert Path(f"{folder}.lazyrag.db").exists()  # the ledger, and the nodes
answers = [first, again]
if len(sys.argv) == 3:
    address, ledger = sys.argv[1:]
    on_a_server, _ = ask(f"On {address}", in_chroma(uri=address, ledger=ledger))
    answers.append(on_a_server)

assert questions < 5 < texts  # the next day only questions were embedded
assert all(told(found["exact"]) == told(in_memory["exact"]) for found in answers)
assert len({*told(large["exact"])} & {*told(in_memory["exact"])}) >= 4  # what is found has its exact score
assert all({node.path[-4:] for node in found["its own search in PDFs"]} == {".pdf"} for found in [*answers, large])
