"""How much is asked of a server does not grow with what it has."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lazyrag import DataType, DocField, Document, Retriever

SIZES = (100, 3_000)  # documents of ten nodes

_numbers = itertools.count(20)


def keyword(docs: Any) -> list[Any]:
    """The lines of one document that have its number."""
    return list(Retriever(docs, "line", "bm25", topk=4)("n00007"))


WORK: dict[str, Callable[[Document], object]] = {
    "search": keyword,
    "docs.search": lambda docs: docs.search("n00007 water"),
    "restricted": lambda docs: keyword(docs.restricted({"year": 1}, statistics="shared")),
    "filtered": lambda docs: Retriever(docs, "line", "bm25")("n00007", filters={"year": 1}),
    "get": lambda docs: docs.get_nodes("line", document_ids=[keyword(docs)[0].document_id]),
    "find": lambda docs: docs.reader.held(keyword(docs)[0].uid),
    "window": lambda docs: docs.window(keyword(docs), 1, 1),
    "parent": lambda docs: [node.parent for node in keyword(docs)],
    "update": lambda docs: (docs.add_texts({"00009": f"water {next(_numbers)}"}), keyword(docs)),
    "delete": lambda docs: (docs.delete_files([f"{next(_numbers):05}"]), keyword(docs)),
}


@contextmanager
def counted_requests(requests: Counter[str]) -> Iterator[None]:
    """Within, requests to OpenSearch are counted by the last part of their addresses."""
    from opensearchpy import Transport

    perform = Transport.perform_request

    def noted(transport: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        requests[url.partition("?")[0].rpartition("/")[2]] += 1
        return perform(transport, method, url, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transport, "perform_request", noted)
        yield


class Counting:
    """Tests of how often a server is asked. A subclass has a store, and counts."""

    work = WORK

    def conf(self, folder: Path) -> dict[str, Any]:
        """The `store_conf`."""
        raise NotImplementedError

    def counted(self, requests: Counter[str]) -> AbstractContextManager[None]:
        """Within, requests are counted by their kind."""
        raise NotImplementedError

    def test_as_much_for_a_large_store_as_for_a_small_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Searches, reads, and the change of one document with the query after it."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        counts = []
        for size in SIZES:
            folder = tmp_path / str(size)
            folder.mkdir()
            counts.append(self._count(folder, size))
        for name in self.work:
            assert counts[0][name] == counts[1][name], name

    def _count(self, folder: Path, size: int) -> dict[str, Counter[str]]:
        counts = {}
        fields = {"year": DocField(DataType.INT32)}
        conf = self.conf(folder)
        with Document(store_conf=conf, name=f"of{size}", doc_fields=fields) as docs:
            docs.create_node_group("line", transform=str.splitlines)
            texts = {
                f"{number:05}": "\n".join(f"n{number:05} tea {line}" for line in range(10))
                for number in range(size)
            }
            docs.add_texts(texts, {name: {"year": 1} for name in texts})
            docs.activate_group("line")
            docs.activate_group("MediumChunk")
            for name, work in self.work.items():
                work(docs)  # what is opened once
                requests: Counter[str] = Counter()
                with self.counted(requests):
                    work(docs)
                counts[name] = requests
        return counts
