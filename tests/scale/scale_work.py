"""What the tests send to workers, which import it by name. Each call leaves a line in a file,
across all processes.
"""

import hashlib
import os
import signal
import time
from pathlib import Path

from lazyrag import Document
from lazyrag.launchers.workers import Workers


def note(kind, text):
    """Note that a worker did something: one line, which processes write without mixing."""
    folder = os.environ.get("SCALE_LOG")
    if folder:
        with Path(folder, kind).open("ab", buffering=0) as file:
            file.write(f"{os.getpid()} {hashlib.sha256(text.encode()).hexdigest()}\n".encode())


def embed(text):
    """A vector of 8 numbers that depends on every character."""
    note("embed", text)
    time.sleep(float(os.environ.get("SCALE_EMBED_S", "0")))
    return [byte / 255 + 0.01 for byte in hashlib.sha256(text.encode()).digest()[:8]]


embed.identity = "scale-test"


def lines(text):
    """Split a document."""
    note("lines", text)
    return text.splitlines()


def titled(node):
    """A transform that sees its node's document."""
    note("titled", node.text)
    return f"{node.root.metadata['file_name']} {node.parent.text[:10]}: {node.text}"


def read_noted(path):
    """A reader of .noted files."""
    note("load", path.name)
    text = path.read_text(encoding="utf-8")
    if "unreadable" in text:
        raise ValueError(f"{path.name} is unreadable")
    return text


def fatal(text):
    """A transform that ends its process for one text."""
    if text.startswith("end"):
        os.kill(os.getpid(), signal.SIGKILL)
    return text


def open_document(folder, store, launcher):
    """The Document of the kill runs: a reader, three transforms and an embedding, each of which
    leaves notes.
    """
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
    docs = Document(folder, embed, store_conf=conf, launcher=launcher, workers=1)
    docs.add_reader("*.noted", read_noted)
    docs.create_node_group("line", transform=lines)
    docs.create_node_group("titled", transform=titled, parent="line", trans_node=True)
    return docs


def open_of_worker():
    """The same Document, of the environment, with two workers that write it."""
    launcher = Workers(open_of_worker, 2, documents=int(os.environ.get("SCALE_DOCUMENTS", "4")))
    return open_document(os.environ["SCALE_FOLDER"], os.environ["SCALE_STORE"], launcher)
