"""Kill a program during ingestion, resume, damage the store on purpose, repair it, roll back an
edit.

A child process ingests cookbook/corpus and is killed while it embeds. Finished work is not
repeated, and in the end the dump of the store equals that of an uninterrupted run, line by line.
"""

import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

from lazyrag import Document, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
TOOLS = "handbook/tools-and-vehicles.txt"
QUESTION = "What ratio of petrol and oil goes into a brush cutter?"
KILLED_AT = 120  # the text at which the child is killed
embedded = []  # texts


def embed(text):
    """Count pairs of letters in 512 buckets. In the child, wait to be killed."""
    embedded.append(text)
    if sys.argv[1:] and len(embedded) == KILLED_AT:
        time.sleep(1)  # vectors are stored beside the work
        print("now", flush=True)
        sys.stdin.read()
    counts = [0.0] * 512
    for position in range(len(text) - 1):
        counts[zlib.crc32(text[position : position + 2].lower().encode()) % 512] += 1
    return counts


def opened(dataset, store):
    """Open the same Document in every program: same files, same embedding."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": store}}}
    return Document(dataset, embed=embed, store_conf=conf, keep_versions=2)


def ask(docs):
    """Run a keyword and a vector search. The first time this loads, splits, indexes and embeds
    everything.
    """
    retrievers = [
        Retriever(docs, "FineChunk", similarity=name, topk=3) for name in ("bm25", "cosine")
    ]
    return [node.uid for retriever in retrievers for node in retriever(QUESTION)]


if sys.argv[1:]:  # the child
    ask(opened(*sys.argv[1:]))
    sys.exit("not killed")

with tempfile.TemporaryDirectory() as temporary:
    dataset, store, undisturbed = (
        Path(temporary, name) for name in ("notes", "store.db", "undisturbed.db")
    )
    shutil.copytree(CORPUS, dataset)
    with opened(dataset, undisturbed) as docs:
        answers, dump, texts = ask(docs), list(docs.maintenance.dump()), len(embedded)

    command = [sys.executable, __file__, str(dataset), str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"now"
        child.kill()
    print(f"killed at text {KILLED_AT} of {texts}: exit status {child.returncode}")

    embedded.clear()
    with opened(dataset, store) as docs:
        assert (ask(docs), list(docs.maintenance.dump())) == (answers, dump)
    print(
        f"resumed: the dumps are equal, all {len(dump):,} lines; {len(embedded)} texts were embedded"
    )
    # vectors are stored 32 at a time, or once a second
    assert len(embedded) <= texts - KILLED_AT + 32

    with sqlite3.connect(store) as connection:  # delete nodes,
        connection.execute(
            "DELETE FROM segment WHERE content LIKE '%petrol%' AND parent IS NOT NULL"
        )
    connection.close()
    arrays = max(Path(f"{store}.d").iterdir(), key=lambda file: file.stat().st_size)
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1  # and flip a bit of a vector
    arrays.write_bytes(content)
    with opened(dataset, store) as docs:
        broken = docs.maintenance.verify()
        print("damaged:", *broken, sep="\n  ")
        assert {problem.kind for problem in broken} == {"missing", "damaged"}
        assert (
            docs.maintenance.repair(),
            docs.maintenance.verify(),
            list(docs.maintenance.dump()),
        ) == ((), (), dump)
        print("repaired: the dumps are equal")
        (dataset / TOOLS).write_text("Ask Wei.", encoding="utf-8")
        print(
            f"edited: {docs.sync()}; rolled back: version {docs.versions.rollback(TOOLS).number} is live"
        )
        kept, undone = docs.sync(), ask(docs)

assert kept.updated == ()  # the file still contains "Ask Wei."; it has to change again
assert undone == answers
