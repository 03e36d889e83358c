"""The Documents that goldens are computed from, on any store, with functions in the place of
models.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyrag import DocNode, Document, SentenceSplitter, register_similarity
from lazyrag.transforms import MarkdownSplitter
from tests.behaviour.corpus import FIELDS, FILE_METADATA, write_corpus

StoreConf = Mapping[str, Any] | None
ConfOf = Callable[[Path], StoreConf]


class Letters:
    """An embed callable of small integers: sums of their products are exact on every machine."""

    identity = "behaviour letters 1"

    def __call__(self, text: str) -> list[float]:
        """How often letters of 24 kinds occur, and one more of each."""
        vector = [1.0] * 24
        for letter in text.casefold():
            vector[ord(letter) % 24] += 1.0
        return vector


class Pairs:
    """Another one, asked for several texts at a time."""

    identity = "behaviour pairs 1"
    batch_size = 8

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """How often pairs of letters of 32 kinds occur."""
        return [self._vector(" ".join(text.casefold().split())) for text in texts]

    @staticmethod
    def _vector(text: str) -> list[float]:
        vector = [0.0] * 32
        vector[0] = 1.0
        for start in range(len(text) - 1):
            vector[zlib.crc32(text[start : start + 2].encode()) % 32] += 1.0
        return vector


class SparseWords:
    """An embed callable of sparse vectors."""

    identity = "behaviour words 1"

    def __call__(self, text: str) -> dict[int, float]:
        """How often each word and each Chinese character occurs."""
        words = Counter(re.findall("[a-z]{3,}|[\u4e00-\u9fff]", text.casefold()))
        return {zlib.crc32(word.encode()): float(count) for word, count in words.items()}


def lines(text: str) -> list[str]:
    """The lines of a text, blank ones too: those make no node."""
    return text.splitlines()


def words(text: str) -> list[str]:
    """What white space stands between."""
    return text.split()


def dated(node: DocNode) -> list[DocNode | None]:
    """A node for a line, with a year of its own where the line begins with one; none for a line
    without letters.
    """
    year = re.match(r"(\d{4})-", node.text)
    metadata = {"year": int(year[1]) + 1} if year else {}
    return [DocNode(text=node.text.upper(), metadata=metadata), None]


def shared_characters(query: str, node: DocNode, **_: Any) -> float:
    """A similarity of texts, node by node."""
    return float(len(set(query) & set(node.text)))


def all_words(query: str, nodes: list[DocNode], **_: Any) -> list[tuple[DocNode, float]]:
    """A similarity of texts, for all nodes at once, that leaves nodes out."""
    wanted = query.casefold().split()
    return [
        (node, 1.0 / len(node.text))
        for node in nodes
        if any(word in node.text.casefold() for word in wanted)
    ]


def distance(query: list[float], node: DocNode, **_: Any) -> float:
    """A similarity of vectors, node by node; the smaller the better."""
    return float(sum(abs(one - other) for one, other in zip(query, node.embedding, strict=True)))


def products(
    query: list[float], nodes: list[DocNode], embed_key: str
) -> list[tuple[DocNode, float]]:
    """A similarity of vectors, for all nodes at once."""
    weight = 2.0 if embed_key == "pairs" else 1.0
    return [
        (
            node,
            weight
            * float(sum(one * other for one, other in zip(query, node.embedding, strict=True))),
        )
        for node in nodes
    ]


def climbing(query: str, node: DocNode, **_: Any) -> float:
    """A similarity that reads the node above and the file's metadata."""
    above = node.parent.text if node.parent is not None else ""
    bonus = 0.5 if node.global_metadata.get("year") == 2024 else 0.0
    return float(sum(above.count(word) for word in query.split())) + bonus


def register() -> None:
    """Enter the similarities; again is no conflict."""
    register_similarity(shared_characters, mode="text", batch=False)
    register_similarity(all_words, mode="text", batch=True)
    register_similarity(distance, mode="embedding", batch=False, descend=False)
    register_similarity(products, mode="embedding", batch=True)
    register_similarity(climbing, mode="text", batch=False)


def define(docs: Document) -> Document:
    """The groups of the samples."""
    docs.create_node_group("line", transform=lines)
    docs.create_node_group("word", transform=words, parent="line")
    docs.create_node_group("section", transform=MarkdownSplitter(chunk_size=60, chunk_overlap=0))
    docs.create_node_group(
        "sentence", transform=SentenceSplitter(chunk_size=24, chunk_overlap=0), parent="section"
    )
    docs.create_node_group("dated", transform=dated, parent="line", trans_node=True)
    return docs


@dataclass(frozen=True)
class Library:
    """Open Documents over the sample corpus.

    Args:
        docs: The whole corpus, with two embed keys.
        notes: Some of its files, with the same two, for retrievers over several Documents.
        sparse: The whole corpus with a sparse embed key; None on a store that keeps no sparse
            vectors.
        is_map: Whether vectors lie in the store `map`.
    """

    docs: Document
    notes: Document
    sparse: Document | None
    is_map: bool = True


def open_document(
    folder: Path, conf: StoreConf, name: str = "docs", only: tuple[str, ...] = ("",), **options: Any
) -> Document:
    """A Document over the sample files, which are written where they are not there."""
    files = folder / f"files-{name}"
    if not files.exists():
        write_corpus(files, only)
    metadata = {path: known for path, known in FILE_METADATA.items() if path.startswith(only)}
    if name == "notes":  # so that one can tell from a result which Document a node is of
        metadata = {path: {**known, "author": "notes"} for path, known in metadata.items()}
    options = {"embed": {"letters": Letters(), "pairs": Pairs()}, **options}
    return define(
        Document(
            files,
            store_conf=conf,
            name=name,
            doc_fields=FIELDS,
            file_metadata=metadata,
            workers=1,
            **options,
        )
    )


def open_library(
    stack: ExitStack,
    folder: Path,
    conf_of: ConfOf,
    *,
    has_sparse: bool = True,
    is_map: bool = True,
    read_only: bool = False,
) -> Library:
    """Open the three Documents on a store; the stack closes them."""
    register()
    sparse = None
    if has_sparse:
        sparse = stack.enter_context(
            open_document(
                folder,
                conf_of(folder / "sparse"),
                "sparse",
                embed={"words": SparseWords()},
                read_only=read_only,
            )
        )
    return Library(
        stack.enter_context(
            open_document(folder, conf_of(folder / "docs"), "docs", read_only=read_only)
        ),
        stack.enter_context(
            open_document(
                folder,
                conf_of(folder / "notes"),
                "notes",
                ("guide/", "notes/log"),
                read_only=read_only,
            )
        ),
        sparse,
        is_map,
    )
