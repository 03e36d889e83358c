"""Your own fields: metadata of a catalogue, typed, filtered before ranking, and changed without
embedding anything.

A cooperative has a catalogue of its documents: who is responsible, which topics, until when they
are valid. The catalogue is joined to the files by path. Filters narrow any search; conditions
compare.
"""

from datetime import date
from pathlib import Path

from lazyrag import Condition, DataType, DocField, Document, Retriever

CORPUS = Path(__file__).resolve().parent / "corpus"
CATALOGUE = {  # from a database or a spreadsheet; a function of the path works, too
    "workshop/machine-maintenance-manual.pdf": {
        "owner": "Wei Guoqiang",
        "topics": ["machines", "safety"],
    },
    "workshop/绿茶炒制工艺.md": {
        "owner": "Wei Guoqiang",
        "topics": ["tea"],
        "valid_until": "2025-12-31",
    },
    "handbook/tools-and-vehicles.txt": {
        "owner": "Qin Ping",
        "topics": ["machines"],
        "valid_until": "2026-06-30",
    },
    "handbook/员工安全手册.docx": {
        "owner": "Qin Ping",
        "topics": ["safety", "people"],
        "valid_until": "2024-12-31",
    },
    "garden/weather-log-2024.txt": {"owner": "Shen Huaiyuan", "topics": ["weather"]},
}
FIELDS = {
    "owner": DocField(DataType.VARCHAR, max_size=64, default_value="nobody"),
    "topics": DocField(DataType.ARRAY, element_type=DataType.VARCHAR),
    "valid_until": DocField(DataType.DATE),
}

docs = Document(CORPUS, doc_fields=FIELDS, file_metadata=CATALOGUE)
search = Retriever(docs, "FineChunk", similarity="bm25_chinese", topk=100)


def show(title, filters):
    """Search with filters; print and return the files."""
    paths = list(
        dict.fromkeys(node.path for node in search("machine safety 安全", filters=filters))
    )
    print(f"{title}: {', '.join(paths) or 'nothing'}")
    return paths


# 1. A mapping lists allowed values; one element of an array is enough.
everything = show("no filter", None)
of_wei = show("of Wei", {"owner": "Wei Guoqiang"})
on_safety = show("on safety or people", {"topics": ["safety", "people"]})

# 2. A Condition compares. A missing date is neither before nor after another, so `exists` finds
# dates.
today = date(2026, 1, 15)
expired = Condition("valid_until", "<", today)
outdated = show("expired", expired)
current = show("still valid", ~expired & Condition("owner", "!=", "nobody"))
dated = show("with a date", Condition("valid_until", "exists"))

# 3. Filters read the six fields of the file, too.
short_text = show(
    "short texts", {"file_type": [".txt", ".md"], "owner": ["Qin Ping", "Wei Guoqiang"]}
)

# 4. The catalogue changes: nothing is read or embedded again, and the next query sees it.
docs.update_metadata(
    {
        "handbook/员工安全手册.docx": {
            **CATALOGUE["handbook/员工安全手册.docx"],
            "valid_until": "2027-12-31",
        }
    }
)
renewed = show("expired, after the renewal", expired)

# 5. A misspelt field or a value of another type is an error before anything is searched.
try:
    search("safety", filters={"ownr": "Qin Ping"})
    message = ""
except ValueError as error:
    message = str(error)
print(f"\n{message}")

assert set(of_wei) <= {
    path for path, entry in CATALOGUE.items() if entry["owner"] == "Wei Guoqiang"
}
assert set(on_safety) == {"workshop/machine-maintenance-manual.pdf", "handbook/员工安全手册.docx"}
assert set(outdated) == {"handbook/员工安全手册.docx", "workshop/绿茶炒制工艺.md"}
assert not set(current) & set(outdated)
assert set(dated) == {path for path, entry in CATALOGUE.items() if "valid_until" in entry} & set(
    everything
)
assert {Path(path).suffix for path in short_text} <= {".txt", ".md"}
assert renewed == ["workshop/绿茶炒制工艺.md"]
assert "Did you mean 'owner'?" in message
