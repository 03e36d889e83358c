"""A Document that is kept on disk: ask it, end, ask it again; then edit, add, move and delete files, and sync.

Counters show what is done anew: at a restart nothing, after a change what changed. Nothing has to be configured but
where the store lies.
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
    """Reads a text file, as the built-in loader does, and counts."""

    def load(self, path):
        """The text of a file."""
        work["files read"] += 1
        return path.read_text(encoding="utf-8")


def paragraphs(text):
    """A transform that counts its calls."""
    work["texts split"] += 1
    return text.split("\n\n")


def embed(text):
    """A vector for a text: how often each of some letters stands in it. Counts its calls."""
    work["texts embedded"] += 1
    return [1 + text.lower().count(letter) for letter in "aeiounrst茶叶"]


def ask(title):
    """A program of its own, as it were: opens the Document, syncs, asks it by words and by vectors, ends."""
    work.clear()
    with Document(notes, embed=embed, store_conf={"segment_store": {"type": "map", "kwargs": {"uri": store}}}) as docs:
        docs.create_node_group("paragraph", transform=paragraphs)
        hits = Retriever(docs, "paragraph", similarity="bm25", topk=3)("millimetres of rain in April")
        nearest = Retriever(docs, "paragraph", similarity="cosine", topk=3)("tea")
        work["texts embedded"] -= 1  # the question
        told = ", ".join(f"{work[name]} {name}" for name in ("files read", "texts split", "texts embedded"))
        print(f"\n{title}\n  {docs.last_report}\n  {told}")
        return [(node.path, node.uid, node.score) for node in (*hits, *nearest)], docs.last_report, Counter(work)


with tempfile.TemporaryDirectory() as temporary:
    notes, store = Path(temporary, "notes"), Path(temporary, "store.db")
    for file in FILES:
        Path(notes, file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CORPUS / file, notes / file)

    first, _, paid = ask("The first program reads, splits and embeds everything.")
    again, nothing_new, free = ask("The second one opens the store and answers.")

    weather, tools = notes / FILES[0], notes / FILES[1]
    weather.write_text("An umbrella hangs in the hut.\n\n" + weather.read_text(encoding="utf-8"), encoding="utf-8")
    (notes / "new.txt").write_text("Rain in April 2025: 166 mm.", encoding="utf-8")
    tools.rename(notes / "tools.txt")
    (notes / FILES[2]).unlink()
    changed, report, cost = ask("One file edited, one added, one moved, one deleted: only the new texts are embedded.")

assert (paid["files read"], paid["texts split"]) == (4, 4)
assert free == Counter()
assert (again, str(nothing_new)) == (first, "0 added, 4 unchanged, 0 failed, 0 skipped")
assert cost == Counter({"files read": 2, "texts split": 2, "texts embedded": 2})
assert (report.updated, report.added) == ((FILES[0],), ("new.txt",))
assert (report.moved, report.deleted) == (((FILES[1], "tools.txt"),), (FILES[2],))
assert {path for path, _, _ in changed} <= {FILES[0], "new.txt", "tools.txt", FILES[3]}
