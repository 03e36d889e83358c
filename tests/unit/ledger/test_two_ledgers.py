"""Two ledgers with one Document name never write to the same collections of a store that both
use.
"""

from __future__ import annotations

from lazyrag import Document
from lazyrag.stores.memory import MapSegmentStore
from lazyrag.stores.protocol import segment_stores

TEXTS = {"a.txt": "green tea", "b.txt": "black tea"}


def test_two_programs_with_their_own_ledgers(tmp_path):
    """As on one server: what one of them writes changes nothing of what the other one answers."""
    server = MapSegmentStore()  # both speak to it
    with segment_stores.isolated():
        segment_stores.register("server", lambda: server)
        found = []
        for number, texts in enumerate(
            (TEXTS, {name: text.upper() for name, text in TEXTS.items()})
        ):
            conf = {
                "segment_store": {"type": "server"},
                "vector_store": {
                    "type": "map",
                    "kwargs": {"uri": str(tmp_path / f"vectors-{number}.db")},
                },
                "ledger": str(tmp_path / f"ledger-{number}.db"),
            }
            docs = Document(store_conf=conf, name="tea")
            docs.add_texts(texts)
            found.append(docs)
        assert [sorted(node.text for node in docs.get_nodes()) for docs in found] == [
            ["black tea", "green tea"],
            ["BLACK TEA", "GREEN TEA"],
        ]
        assert not any(docs.maintenance.verify() for docs in found)
        for docs in found:
            docs.close()
