"""A stored Document: made, and opened again in a process that has nothing yet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ingest import peak_mb
from lexical import version_of


def lines(text: str) -> list[str]:
    """The transform: a node for each line."""
    return text.split("\n")


class Stored:
    """A Document on a store file; imports are part of what is measured."""

    def versions(self) -> dict[str, str]:
        """Of numpy, which does the work."""
        return version_of("numpy")

    def open(self, folder: str, store: str) -> Any:
        """The Document and a Retriever of its lines."""
        from lazyrag import Document, Retriever

        docs = Document(
            folder, store_conf={"segment_store": {"type": "map", "kwargs": {"uri": store}}}
        )
        docs.create_node_group("line", transform=lines)
        return docs, Retriever(docs, "line", similarity="bm25", topk=10)

    def ingest(self, folder: str, store: str, query: str) -> dict[str, float]:
        """Read, split, index, answer once; seconds of all of it, and memory."""
        started, cpu = time.perf_counter(), time.process_time()
        docs, retriever = self.open(folder, store)
        found = retriever(query)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        docs.close()
        assert len(found) == 10
        stored = sum(
            path.stat().st_size for path in Path(store).parent.rglob("*") if path.is_file()
        )
        return {
            "ingest_s": seconds,
            "ingest_cpu_s": cpu,
            "ingest_peak_mb": peak_mb(),
            "stored_mb": stored / 1e6,
        }

    def restart(self, folder: str, store: str, query: str) -> dict[str, float]:
        """Import, open and answer once; seconds of all of it."""
        started, cpu = time.perf_counter(), time.process_time()
        self.docs, self.retriever = self.open(folder, store)
        found = self.retriever(query)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        assert len(found) == 10
        return {
            "first_answer_s": seconds,
            "first_answer_cpu_s": cpu,
            "first_answer_peak_mb": peak_mb(),
        }

    def search(self, query: str) -> Any:
        """A question in words, answered with nodes."""
        return self.retriever(query)
