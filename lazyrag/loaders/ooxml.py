"""What files of Microsoft Office have in common: parts that refer to each other, and properties."""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from lazyrag.loaders.archives import Archive, local_name


class Relation(NamedTuple):
    """What a part refers to: the last word of the relation's type, and the name of the other part."""

    kind: str
    target: str


def relations(archive: Archive, part: str = "") -> dict[str, Relation]:
    """What a part refers to inside of its container, by the id that it uses for it.

    Args:
        archive: The container.
        part: A part's name; "" for the container itself.

    Raises:
        LoadError: If the list of relations cannot be read.
    """
    folder, _, name = part.rpartition("/")
    listed = posixpath.join(folder, "_rels", f"{name}.rels")
    if listed not in archive:
        return {}
    return {
        relation.get("Id", ""): Relation(
            relation.get("Type", "").rpartition("/")[2],
            posixpath.normpath(posixpath.join("/", folder, relation.get("Target", ""))).lstrip("/"),
        )
        for relation in archive.xml(listed)
        if relation.get("TargetMode") != "External"
    }


def related(archive: Archive, kind: str, part: str = "") -> str:
    """The name of the first part of a kind that a part refers to; "" where there is none in the container."""
    targets = (relation.target for relation in relations(archive, part).values() if relation.kind == kind)
    return next((target for target in targets if target in archive), "")


def properties(archive: Archive) -> dict[str, str]:
    """Title and author, where the file's properties hold them.

    Raises:
        LoadError: If the properties cannot be read.
    """
    part = related(archive, "core-properties")
    said: dict[str, str] = {}
    for element in archive.xml(part) if part else ():
        name = {"title": "title", "creator": "author"}.get(local_name(element))
        value = (element.text or "").strip()
        if name and value:
            said[name] = value
    return said
