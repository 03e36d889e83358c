"""A Document on disk: query it, exit, query it again; then edit, add, move and delete files, and
sync.

Counters show the work: none at a restart, only the changes after an edit. The path of the store is
the only configuration.
"""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from lazyrag import Document, Retriever, register_loader

CORPUS = Path(__file__).resolve().parent / "corpus"
FILES = (
    "garden/weather-log-2024.txt",
    "handbook/tools-and-vehicles.txt",
    "handbook/working-hours-and-leave.txt",
    "茶园/采摘须知.txt",
)
work = Counter()


@register_loader(".txt", replace=True)
class CountingLoader:
    """Read a text file like the built-in loader, and count."""

    def load(self, path):
        """Return the text of a file."""
        work["files read"] += 1
        return path.read_text(encoding="utf-8")


def paragraphs(text):
    """Split at empty lines, and count the calls."""
    work["texts split"] += 1
    return text.split("\n\n")


def embed(text):
    """Count some letters as a vector, and count the calls."""
    work["texts embedded"] += 1
    return [1 + text.lower().count(letter) for letter in "aeiounrst茶叶"]


embed.probe = False  # else a start embeds a text, to see whether the model is still the same


def ask(title):
    """Act like a separate program: open the Document, sync, run a keyword and a vector search,
    close.
    """
    work.clear()
    with Document(
        notes, embed=embed, store_conf={"segment_store": {"type": "map", "kwargs": {"uri": store}}}
    ) as docs:
        docs.create_node_group("paragraph", transform=paragraphs)
        hits = Retriever(docs, "paragraph", similarity="bm25", topk=3)(
            "millimetres of rain in April"
        )
        nearest = Retriever(docs, "paragraph", similarity="cosine", topk=3)("tea")
        work["texts embedded"] -= 1  # the query
        counts = ", ".join(
            f"{work[name]} {name}" for name in ("files read", "texts split", "texts embedded")
        )
        print(f"\n{title}\n  {docs.last_report}\n  {counts}")
        return (
            [(node.path, node.uid, node.score) for node in (*hits, *nearest)],
            docs.last_report,
            Counter(work),
        )


with tempfile.TemporaryDirectory() as temporary:
    notes, store = Path(temporary, "notes"), Path(temporary, "store.db")
    for file in FILES:
        Path(notes, file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CORPUS / file, notes / file)

    first, _, paid = ask("The first program reads, splits and embeds everything.")
    again, nothing_new, free = ask("The second program opens the store and answers.")

    weather, tools = notes / FILES[0], notes / FILES[1]
    weather.write_text(
        "An umbrella hangs in the hut.\n\n" + weather.read_text(encoding="utf-8"), encoding="utf-8"
    )
    (notes / "new.txt").write_text("Rain in April 2025: 166 mm.", encoding="utf-8")
    tools.rename(notes / "tools.txt")
    (notes / FILES[2]).unlink()
    changed, report, cost = ask(
        "One file edited, one added, one moved, one deleted: only the new texts are embedded."
    )

assert (paid["files read"], paid["texts split"]) == (4, 4)
assert free == Counter()
assert (again, str(nothing_new)) == (first, "0 added, 4 unchanged, 0 failed, 0 skipped")
assert cost == Counter({"files read": 2, "texts split": 2, "texts embedded": 2})
assert (report.updated, report.added) == ((FILES[0],), ("new.txt",))
assert (report.moved, report.deleted) == (((FILES[1], "tools.txt"),), (FILES[2],))
assert {path for path, _, _ in changed} <= {FILES[0], "new.txt", "tools.txt", FILES[3]}
