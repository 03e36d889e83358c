"""Your own file format and your own store: both are classes that you register by name.

The loader reads the log of a tea dryer, with a location for each line. The store is the built-in
one with a journal of every write, as an auditor may want it. docs/write-a-loader.md and
docs/write-a-store.md have both contracts, and a test suite that a store has to pass.
"""

import json
import tempfile
from pathlib import Path

from lazyrag import DataType, DocField, Document, Retriever, register_loader
from lazyrag.data.segment import Location
from lazyrag.errors import LoadError
from lazyrag.loaders import LoadedFile
from lazyrag.stores.memory import MapSegmentStore
from lazyrag.stores.protocol import segment_stores

LOG = "2024-04-05T08:10 CD-10 start 25\n2024-04-05T09:40 CD-10 alarm 131\n2024-04-05T09:55 CD-10 stop 60\n"


@register_loader(".dryer")
class DryerLoader:
    """Reads `time machine event degrees`, a line each; every line is a location, alarms are
    metadata of the file.
    """

    def load(self, path):
        """Return the text as sentences, so that a search for words finds them."""
        text, locations, hottest = "", [], 0
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                time, machine, event, degrees = line.split()
                hottest = max(hottest, int(degrees))
            except ValueError as error:
                raise LoadError(
                    f"Line {number} is not 'time machine event degrees': {line[:40]!r}."
                ) from error
            sentence = (
                f"{time.replace('T', ' ')}: {event} of dryer {machine} at {degrees} degrees.\n"
            )
            locations.append(Location(len(text), len(text) + len(sentence), "row", str(number)))
            text += sentence
        return LoadedFile(text, tuple(locations), {"hottest": hottest})


class JournalStore(MapSegmentStore):
    """The store in memory, with a line of JSON for each write and deletion."""

    def __init__(self, journal):
        super().__init__()
        self.journal = Path(journal)

    def upsert(self, collection, rows):
        """Write rows, then the line: what the journal has, is stored."""
        super().upsert(collection, rows)
        self._note("write", collection, [row.key for row in rows])

    def delete(self, collection, *, keys=None, filter=None):  # noqa: A002  the contract's name
        """Delete rows, then write the line."""
        count = super().delete(collection, keys=keys, filter=filter)
        self._note("delete", collection, list(keys or []))
        return count

    def _note(self, event, collection, keys):
        with self.journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, "collection": collection, "keys": keys}) + "\n")


segment_stores.register("journal", JournalStore)

with tempfile.TemporaryDirectory() as temporary:
    folder, journal = Path(temporary, "logs"), Path(temporary, "journal.jsonl")
    folder.mkdir()
    (folder / "2024-04-05.dryer").write_text(LOG, encoding="utf-8")
    conf = {"segment_store": {"type": "journal", "kwargs": {"journal": str(journal)}}}
    with Document(
        folder, doc_fields={"hottest": DocField(DataType.INT32)}, store_conf=conf
    ) as docs:
        docs.create_node_group("event", transform=lambda text: text.splitlines())
        [hit] = Retriever(docs, "event", similarity="bm25", topk=1)(
            "alarm of the dryer", filters={"hottest": 131}
        )
        print(f"{hit.path}, {hit.location}: {hit.text}")
        docs.delete_files(["2024-04-05.dryer"])
        left = docs.get_nodes("event")
    entries = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    print(
        *(
            f"{entry['event']} {entry['collection']}: {len(entry['keys'])} rows"
            for entry in entries
        ),
        sep="\n",
    )

assert (hit.location, "131 degrees" in hit.text) == ("row 2", True)
assert left == []
# the document and its events
assert sum(len(entry["keys"]) for entry in entries if entry["event"] == "write") >= 4
