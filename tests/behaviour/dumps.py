"""What a Document holds, as rows of the golden files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lazyrag import Document, Retriever
from tests.behaviour import canonical
from tests.behaviour.corpus import copy_cookbook
from tests.behaviour.library import Letters, Library, StoreConf, define

IN_FULL = {
    ("line", "guide/mixed.md"),
    ("dated", "notes/blank-lines.txt"),
    ("line", "notes/blank-lines.txt"),
}


def build_all(docs: Document, groups: Sequence[str], terms: Sequence[str] = ()) -> None:
    """Have groups, and their indexes by words and by every embed key."""
    for group in groups:
        docs.activate_group(group)
        for similarity in terms:
            Retriever(docs, group, similarity=similarity)("tea")
        if docs.reader.embed_keys:
            Retriever(docs, group)("tea")


def dump_rows(
    docs: Document, label: str, added: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """A digest for each group and file, and of each index; some nodes in full; one digest of all,
    in order.

    Args:
        docs: The Document.
        label: Begins the keys of the rows.
        added: Days to put in place of today's: the last change of texts that were added by a call.
    """
    rows = canonical.dump(docs)
    for row in rows:
        for held in row.values():
            if (
                isinstance(held, dict)
                and "last_modified_date" in held
                and row.get("path") in (added or {})
            ):
                held["last_modified_date"] = added[row["path"]]
    homes: dict[str, str] = {}
    parts: dict[str, list[str]] = defaultdict(list)
    full: dict[str, list[Any]] = defaultdict(list)
    space = ""
    for row in rows:
        kind = row["is"]
        if kind == "node":
            home = f"{row['group']} of {row['path']}"
            homes[row["uid"]] = home
            parts[home].append(canonical.as_json(row))
            if (row["group"], row["path"]) in IN_FULL:
                full[home].append(row)
        elif kind in {"terms", "vectors"}:
            parts[f"{kind} {space} of {homes[row['uid']]}"].append(canonical.as_json(row))
        else:
            parts[kind].append(canonical.as_json(row))
            full[kind].append(row)
            space = row["name"] if kind == "space" else space
    for name, held in parts.items():
        known = {"full": full[name]} if name in full else {}
        yield {
            "key": f"{label}: {name}",
            "rows": len(held),
            "digest": canonical.digest(held),
            **known,
        }
    yield {
        "key": label,
        "rows": len(rows),
        "digest": canonical.digest(map(canonical.as_json, rows)),
    }


def library_rows(lib: Library) -> Iterator[dict[str, Any]]:
    """The rows of the sample corpus, with dense vectors and, where the store keeps them, sparse
    ones.
    """
    build_all(
        lib.docs, ["line", "dated", "section", "sentence", "FineChunk"], ["bm25", "bm25_chinese"]
    )
    lib.docs.activate_group("word")
    yield from dump_rows(lib.docs, "docs")
    if lib.sparse is not None:
        build_all(lib.sparse, ["line"])
        yield from dump_rows(lib.sparse, "sparse")


def cookbook_rows(folder: Path, conf: StoreConf) -> Iterator[dict[str, Any]]:
    """The rows of the cookbook's sample files but PDF, whose text depends on the versions of its
    libraries.
    """
    files = copy_cookbook(folder / "cookbook")
    for path in files.rglob("*.pdf"):
        path.unlink()
    with Document(
        files, store_conf=conf, name="cookbook", embed={"letters": Letters()}, workers=1
    ) as docs:
        define(docs)
        build_all(docs, ["FineChunk", "section"], ["bm25_chinese"])
        docs.activate_group("MediumChunk")
        docs.activate_group("CoarseChunk")
        yield from dump_rows(docs, "cookbook")
