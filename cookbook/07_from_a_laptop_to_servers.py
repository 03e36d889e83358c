"""One program, several stores: only ``store_conf`` changes between a laptop and servers, the
results do not.

Without arguments it needs nothing; LAZYRAG_EMBED_MODEL names a folder with a real model. With a
package and an option it also uses another store:

    --chroma vectors                                a folder, after pip install "lazyrag[chroma]"
    --milvus vectors.db                             a file, after pip install "lazyrag[milvus]"
    --milvus localhost:19530 --ledger tea.db        a server
    --opensearch localhost:9200 --ledger tea.db     a server, after pip install
    "lazyrag[opensearch]"

These stores persist: the next run opens them, and nothing is read or embedded again.
"""

import argparse
import tempfile
from pathlib import Path

from embedding import embedding_model

from lazyrag import Document, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
QUESTIONS = ("How much rain fell in April?", "采摘工采一公斤单芽能拿多少钱？", "dryer temperature")
EMBED = embedding_model()


def paragraphs(text):
    """Split at empty lines."""
    return text.split("\n\n")


def answers(title, store_conf):
    """Run keyword, vector and filtered searches on a store; return (uid, score) of all hits."""
    with Document(CORPUS, embed=EMBED, name="tea", store_conf=store_conf) as docs:
        docs.create_node_group("paragraph", transform=paragraphs)
        by_words = Retriever(docs, "paragraph", similarity="bm25_chinese", topk=5)
        by_vectors = Retriever(docs, "paragraph", similarity="cosine", topk=5)
        found = [ask(question) for ask in (by_words, by_vectors) for question in QUESTIONS]
        found.append(by_vectors(QUESTIONS[0], filters={"file_type": [".pdf"]}))
        print(f"{title}: {docs.last_report}")
        print(
            "".join(
                f"  {nodes[0].score:6.3f}  {nodes[0].path}, {nodes[0].location}\n"
                for nodes in found
            )
        )
        return [(node.uid, node.score) for nodes in found for node in nodes]


def in_a_file(path):
    """Configure the ``map`` store in a file: no server, no package."""
    return {"type": "map", "kwargs": {"uri": str(path)}}


def chosen(given):
    """Return the ``store_conf`` of the command line; None without options."""
    conf = {"ledger": given.ledger} if given.ledger else {}
    if given.chroma:
        conf["vector_store"] = {"type": "chromadb", "kwargs": {"dir": given.chroma}}
    if given.milvus:
        conf["vector_store"] = {"type": "milvus", "kwargs": {"uri": given.milvus}}
    if given.opensearch:
        conf["segment_store"] = {
            "type": "opensearch",
            "kwargs": {"uris": given.opensearch, "client_kwargs": {}},
        }
        # it stores nodes; vectors go to the ledger file
        conf.setdefault("vector_store", in_a_file(given.ledger))
    if conf:
        conf["search"] = "exact"  # servers would rank with scores of their own
    return conf or None


parser = argparse.ArgumentParser(description="Run the same queries on another store.")
parser.add_argument("--chroma", metavar="DIR", help="vectors in a folder of Chroma")
parser.add_argument(
    "--milvus", metavar="FILE_OR_URL", help="vectors in a file of Milvus Lite, or on a server"
)
parser.add_argument(
    "--opensearch", metavar="URL", help="nodes in an OpenSearch cluster; needs --ledger"
)
parser.add_argument("--ledger", metavar="FILE", help="file of the ledger; required for servers")
arguments = parser.parse_args()
if arguments.opensearch and not arguments.ledger:
    parser.error("--opensearch needs --ledger FILE")

in_memory = answers("In memory", None)
with tempfile.TemporaryDirectory() as temporary:
    elsewhere = [answers("In a file", {"segment_store": in_a_file(Path(temporary, "store.db"))})]
if conf := chosen(arguments):
    elsewhere.append(answers(f"On {conf}", conf))

assert len(in_memory) > 30
assert all(answer == in_memory for answer in elsewhere), (
    "the same nodes, in the same order, with the same scores"
)
