"""The forms in which retrievers hand out their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.data.result import Hit
from lazyrag.document.reader import Reader
from lazyrag.document.snapshot import NOTHING, Needs, SnapshotSource, read
from lazyrag.errors import ConfigError, known_names

OutputFormat: TypeAlias = Literal["content", "dict"]
OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("content", "dict")


def check_output(output_format: OutputFormat | None, join: bool | str) -> None:
    """Refuse an unknown form, or a join of something that is no text.

    Raises:
        ConfigError: If either value is unknown, or texts are to be joined that are not asked for.
    """
    if output_format is not None and output_format not in OUTPUT_FORMATS:
        msg = f"output_format is {output_format!r}. {known_names(str(output_format), OUTPUT_FORMATS)} None gives nodes."
        raise ConfigError(msg)
    if not isinstance(join, (bool, str)) or (join is not False and output_format != "content"):
        msg = (
            f"join is {join!r} with output_format {output_format!r}; True or a separator joins output_format='content'."
        )
        raise ConfigError(msg)


def hits_of(nodes: Sequence[DocNode]) -> list[Hit]:
    """Nodes as hits, with their files' metadata and their places: all of one state of their Documents.

    Raises:
        StaleNodeError: If a node's document was deleted meanwhile.
    """
    readers = [node.reader for node in nodes]
    sources: dict[SnapshotSource, Needs] = {reader: NOTHING for reader in readers if isinstance(reader, Reader)}
    return read(sources, lambda _: [Hit.from_node(node) for node in nodes])


def render(nodes: Sequence[DocNode], output_format: OutputFormat | None, join: bool | str) -> Any:
    """Nodes as they are, as texts, as one text, or as dicts of their seven `Hit` fields."""
    if output_format is None:
        return list(nodes)
    if output_format == "dict":
        return [hit.to_dict() for hit in hits_of(nodes)]
    texts = [node.get_content() for node in nodes]
    if join is False:
        return texts
    return ("\n" if join is True else join).join(texts)
