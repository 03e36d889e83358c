"""Kill a program in the middle of its work, resume, break the store on purpose, mend it, take an edit back.

A child process ingests cookbook/corpus and is killed while it embeds. Whatever was finished by then is not done again,
and in the end the store holds what one holds that nobody disturbed, line by line of its dump.
"""

import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from lazyrag import Document, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
KILLED_AT = 200  # texts that are embedded before
state = {"texts": 0, "killed": False}


def embed(text):
    """How often each pair of letters stands in a text, in 256 places. In the child it stops for its killer to come."""
    state["texts"] += 1
    if state["killed"] and state["texts"] == KILLED_AT:
        print("kill me", flush=True)
        sys.stdin.read()
    counts = [0.0] * 256
    for place in range(len(text) - 1):
        counts[zlib.crc32(text[place : place + 2].lower().encode()) % 256] += 1
    return counts


def opened(dataset, store):
    """The Document that all programs here open: the same files, groups and embedding."""
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": store}}}
    docs = Document(dataset, embed=embed, store_conf=conf, keep_versions=2)
    docs.create_node_group("block", transform=lambda text: text.split("\n\n"))
    return docs


def build(docs):
    """Have everything that the questions below need: blocks, their terms, their vectors."""
    found = Retriever(docs, "block", similarity="bm25", topk=3)("petrol and oil for the brush cutter")
    near = Retriever(docs, "block", similarity="cosine", topk=3)("petrol and oil for the brush cutter")
    return [node.uid for node in (*found, *near)]


if sys.argv[1:]:  # the child
    state["killed"] = True
    with opened(sys.argv[1], sys.argv[2]) as docs:
        build(docs)
    sys.exit("nobody killed me")

with tempfile.TemporaryDirectory() as temporary:
    dataset, store = Path(temporary, "notes"), Path(temporary, "store.db")
    shutil.copytree(CORPUS, dataset)
    with opened(dataset, Path(temporary, "undisturbed.db")) as docs:
        answers, undisturbed, texts = build(docs), list(docs.dump()), state["texts"]

    # Kill.
    command = [sys.executable, __file__, str(dataset), str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        told = child.stdout.readline()
        child.kill()
    print(f"killed while it embedded text {KILLED_AT} of {texts}: exit status {child.returncode}")

    # Resume.
    state["texts"] = 0
    with opened(dataset, store) as docs:
        resumed = build(docs), list(docs.dump())
        print(f"resumed: {state['texts']} texts embedded, {docs.last_report}, verify: {docs.verify()}")
        left = state["texts"]
