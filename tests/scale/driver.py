"""A program that ingests a folder by a launcher: the driver that the kill runs kill.

python tests/scale/driver.py FOLDER STORE none|workers|dask://...|ray [EXPORT]
"""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import scale_work  # as workers import it


def ingest(docs):
    """Build the groups and their indexes."""
    docs.activate_group("titled", embed_keys=docs.reader.embed_keys, analysers=["en"])
    docs.activate_group("MediumChunk", embed_keys=docs.reader.embed_keys)


if __name__ == "__main__":
    folder, store, launcher = sys.argv[1:4]
    if launcher == "workers":
        os.environ |= {"SCALE_FOLDER": folder, "SCALE_STORE": store}
        opened = scale_work.open_of_worker()
    else:
        opened = scale_work.open_document(folder, store, None if launcher == "none" else launcher)
    with opened as docs:
        ingest(docs)
        if sys.argv[4:]:
            shutil.rmtree(sys.argv[4], ignore_errors=True)  # of a driver that was killed after it
            docs.maintenance.export(sys.argv[4])
