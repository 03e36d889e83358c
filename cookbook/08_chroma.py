"""Vectors in Chroma: in a folder or on a server, ranked exactly or by Chroma's own search.

It needs ``pip install "lazyrag[chroma]"``; LAZYRAG_EMBED_MODEL names a folder with a real model.
Without arguments it uses a temporary folder. With the address of a server
(``chroma run --path data`` starts one) and a ledger file it also uses that, and its data stay
there:

    python cookbook/08_chroma.py localhost:8000 tea.db
"""

import sys
import tempfile
from pathlib import Path

from embedding import embedding_model

from lazyrag import Document, OnnxEmbedder, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTION = "How often is the chimney of the dryer cleaned?"
MODEL = embedding_model()
embedded = []


def embed(text):
    """Embed a text, and note it."""
    embedded.append(text)
    return MODEL.embed([text])[0] if isinstance(MODEL, OnnxEmbedder) else MODEL(text)


def ask(title, store_conf):
    """Run searches on a store; return the hits and the number of embedded texts."""
    embedded.clear()
    with Document(CORPUS, embed=embed, name="tea", store_conf=store_conf) as docs:
        exact = Retriever(docs, "FineChunk", topk=5)
        own = Retriever(docs, "FineChunk", topk=5, index="smart_embedding_index")
        found = {
            "exact": exact(QUESTION),
            "its own search": own(QUESTION),  # a graph: it may miss near nodes
            "its own search in PDFs": own(QUESTION, filters={"file_type": [".pdf"]}),
        }
        print(f"{title}: {docs.last_report}, {len(embedded)} texts embedded")
        print(
            "".join(
                f"  {nodes[0].score:.3f}  {way}: {nodes[0].path}\n" for way, nodes in found.items()
            )
        )
        return found, len(embedded)


def in_chroma(ledger=None, **kwargs):
    """Return a ``store_conf``. The ledger of a folder is beside it; a server needs a ledger
    file.
    """
    conf = {"vector_store": {"type": "chroma", "kwargs": kwargs}}
    return conf | {"ledger": ledger} if ledger else conf


def scored(nodes):
    """Reduce nodes to (uid, score)."""
    return [(node.uid, node.score) for node in nodes]


in_memory, _ = ask("In memory", None)
with tempfile.TemporaryDirectory() as temporary:
    folder = str(Path(temporary, "vectors"))
    first, texts = ask(
        "In a folder", in_chroma(dir=folder, index_kwargs={"hnsw": {"ef_construction": 200}})
    )
    again, queries = ask("The next day", in_chroma(dir=folder))
    # Up to exact_rows (default 10,000) nodes of a group are searched exactly. Beyond, near ones may
    # be missing.
    large, _ = ask("As if there were many nodes", in_chroma(dir=folder, exact_rows=20))
    assert Path(f"{folder}.lazyrag.db").exists()  # the ledger, and the nodes
answers = [first, again]
if len(sys.argv) == 3:
    address, ledger = sys.argv[1:]
    on_a_server, _ = ask(f"On {address}", in_chroma(uri=address, ledger=ledger))
    answers.append(on_a_server)

assert queries < 5 < texts  # the next day only queries were embedded
assert all(scored(found["exact"]) == scored(in_memory["exact"]) for found in answers)
assert len({*scored(large["exact"])} & {*scored(in_memory["exact"])}) >= 4  # hits have exact scores
assert all(
    {node.path[-4:] for node in found["its own search in PDFs"]} == {".pdf"}
    for found in [*answers, large]
)
