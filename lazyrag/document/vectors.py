"""Embedding the texts of many documents together, each document's failure its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from lazyrag.models.embedding import CheckedEmbedder
from lazyrag.models.protocol import Embedded

D = TypeVar("D", bound=Hashable)

_AT_ONCE = 1024  # texts; bounds their memory, and fills the batches of any model


def embed_documents(
    embedder: CheckedEmbedder, dimension: int, texts: Iterable[tuple[D, Sequence[str]]], known: Mapping[str, Embedded]
) -> Iterator[tuple[D, Sequence[Embedded]]]:
    """For each document what became of each of its texts, as soon as that is known.

    The texts of several documents are embedded together: a batch need not end where a file does, and models that pad
    like to choose texts of equal length among many. So documents come in any order.

    Args:
        embedder: What embeds.
        dimension: The length that vectors must have, or `SPARSE`; 0 where it is not known yet.
        texts: Documents with their texts, at least one each.
        known: Vectors of texts that need not be embedded again; read anew for every few documents.
    """
    waiting: dict[D, Sequence[str]] = {}
    count = 0
    for document, own in texts:
        waiting[document] = own
        count += len(own)
        if count >= _AT_ONCE:
            yield from _embed_together(embedder, dimension, waiting, known)
            waiting, count = {}, 0
    yield from _embed_together(embedder, dimension, waiting, known)


def _embed_together(
    embedder: CheckedEmbedder, dimension: int, texts: Mapping[D, Sequence[str]], known: Mapping[str, Embedded]
) -> Iterator[tuple[D, Sequence[Embedded]]]:
    users: dict[str, list[D]] = {}  # the documents in which a text stands, once for each time
    for document, own in texts.items():
        for text in own:
            users.setdefault(text, []).append(document)
    missing = {document: len(own) for document, own in texts.items()}
    found: dict[str, Embedded] = {}

    def enter(text: str, result: Embedded) -> Iterator[tuple[D, Sequence[Embedded]]]:
        found[text] = result
        for document in users[text]:
            missing[document] -= 1
            if not missing[document]:
                yield document, [found[one] for one in texts[document]]

    for text in users:
        if text in known:
            yield from enter(text, known[text])
    distinct = [text for text in users if text not in found]
    for batch in embedder.batches(distinct, dimension):
        for place, result in zip(batch.positions, batch.results, strict=True):
            yield from enter(distinct[place], result)
