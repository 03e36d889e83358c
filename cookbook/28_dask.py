"""Load, chunk and embed on a Dask cluster: the same index, byte for byte, as one program makes.

It needs ``pip install "lazyrag[dask]"``. Without arguments it starts a cluster of two workers on
this machine; with the address of a scheduler it uses that one, whose workers see the files at the
same paths:

    python cookbook/28_dask.py tcp://scheduler:8786

Queries, the ledger and the stores stay in this program. A worker that dies costs the batch that it
had in hand.
"""

import sys
import tempfile
from pathlib import Path

from embedding import embedding_model

from lazyrag import Document, HybridRetriever

try:
    from distributed import Client, LocalCluster  # pyright: ignore[reportMissingImports]
except ImportError:
    sys.exit('This script needs Dask. Install it with: pip install "lazyrag[dask]"')

HERE = Path(__file__).resolve().parent
QUESTION = "How often is the chimney of the dryer cleaned?"


def ingest(folder, launcher):
    """Ingest the sample files; return the export's lines and the hits of a hybrid search."""
    store = {"segment_store": {"type": "map", "kwargs": {"uri": str(folder / "store.db")}}}
    with Document(
        HERE / "corpus", embed=embedding_model(), store_conf=store, launcher=launcher
    ) as docs:
        hits = HybridRetriever.over(docs, "MediumChunk", topk=3)(QUESTION)
        print(f"{docs.last_report}: {hits[0].path}, {hits[0].location}")
        return list(docs.maintenance.dump()), [(hit.uid, hit.score) for hit in hits]


def main():
    """Compare a run without a cluster with one on it."""
    with tempfile.TemporaryDirectory() as temporary:
        alone, spread = Path(temporary, "alone"), Path(temporary, "spread")
        alone.mkdir()
        spread.mkdir()
        expected = ingest(alone, None)
        # Workers import what they run: modules of yours have to be on their path.
        cluster = (
            None
            if sys.argv[1:]
            else LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        )
        with Client(sys.argv[1] if sys.argv[1:] else cluster) as client:
            client.run(sys.path.append, str(HERE))
            print(f"{len(client.scheduler_info()['workers'])} workers")
            found = ingest(spread, client.get_executor())  # or launcher="dask://scheduler:8786"
        if cluster:
            cluster.close()
    assert len(expected[0]) > 100
    return expected, found


runs = main() if __name__ == "__main__" else ()
assert not runs or runs[0] == runs[1], "the same nodes, vectors and hits"
