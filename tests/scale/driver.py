"""A program that ingests a folder by a launcher: the driver that the kill runs kill.

python tests/scale/driver.py FOLDER STORE LAUNCHER [EXPORT]
"""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import scale_work  # as workers import it

from lazyrag import Document


def open_document(folder, store, launcher):
    """The Document of the kill runs: a reader, three transforms and an embedding, each of which
    leaves notes.
    """
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
    docs = Document(folder, scale_work.embed, store_conf=conf, launcher=launcher, workers=1)
    docs.add_reader("*.noted", scale_work.read_noted)
    docs.create_node_group("line", transform=scale_work.lines)
    docs.create_node_group("titled", transform=scale_work.titled, parent="line", trans_node=True)
    return docs


def ingest(docs):
    """Build the groups and their indexes."""
    docs.activate_group("titled", embed_keys=docs.reader.embed_keys, analysers=["en"])
    docs.activate_group("MediumChunk", embed_keys=docs.reader.embed_keys)


if __name__ == "__main__":
    given = sys.argv[3]
    launcher = None if given == "none" else int(given) if given.isdecimal() else given
    with open_document(Path(sys.argv[1]), Path(sys.argv[2]), launcher) as docs:
        ingest(docs)
        if sys.argv[4:]:
            shutil.rmtree(sys.argv[4], ignore_errors=True)  # of a driver that was killed after it
            docs.maintenance.export(sys.argv[4])
