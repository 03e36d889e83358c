"""An embedder that remembers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lazyrag.errors import CacheWarning, ConfigError, EmbeddingError, StoreError, sentence, warn_user
from lazyrag.models.cache import EmbeddingCache, VectorSpace
from lazyrag.models.callables import EmbedCallable, as_embedder
from lazyrag.models.embedding import CheckedEmbedder, blank_error, collected, is_blank, length_of, listed_texts
from lazyrag.models.protocol import Embedded, EmbeddedBatch, Embedder, InputType
from lazyrag.types import Embeddings
from lazyrag.validation import known_arguments

if TYPE_CHECKING:
    from typing import Self

_LOOKED_UP_AT_ONCE = 1024  # texts; bounds the memory of one batch of vectors that are there


@known_arguments
class CachedEmbedder:
    """A `BatchEmbedder` around any embedder or bare callable: it asks that one only for what its cache does not have.

    Each batch is stored when it is done, before it is handed over; what comes after, a crash included, cannot undo it.
    A text whose vector is none fails alone and is not stored. If the cache cannot be read, that is an error: nothing
    has been paid for yet. If it cannot be written, the vectors are handed over all the same, with a `CacheWarning`,
    and nothing more is stored in that call.

    Threads and processes may share it. Two that ask for the same new text at the same time may both ask the model for
    it; the vector stored last stays.

    Args:
        embedder: What embeds; see `lazyrag.models.callables.as_embedder`.
        cache: An `EmbeddingCache`, or the path of one, which is opened now and closed by `close`.
        identity: What the vectors depend on: model, revision, prompts ... The embedder's own where not given. It is
            read once, now, and the embedder's dimension as well: both are part of the key.

    Raises:
        ConfigError: If neither says which model it is, or the embedder is none.
        StoreError: If the cache cannot be opened.

    Example:
        >>> import pathlib, tempfile
        >>> def embed(text):
        ...     print("asked for", text)
        ...     return [float(len(text)), 1.0]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with CachedEmbedder(embed, pathlib.Path(folder, "cache.db"), identity="toy:length") as embedder:
        ...         _ = embedder.embed(["tea"])
        ...         embedder.embed(["coffee", "tea"]).tolist()
        asked for tea
        asked for coffee
        [[6.0, 1.0], [3.0, 1.0]]
    """

    batch_size: int  # only where the embedder has one

    def __init__(
        self,
        embedder: Embedder | EmbedCallable,
        cache: EmbeddingCache | str | os.PathLike[str],
        *,
        identity: str | None = None,
    ) -> None:
        self.embedder = as_embedder(embedder)
        self.identity = _identity(self.embedder, identity)
        self._space = VectorSpace(
            self.identity, dimension=self.embedder.dimension or 0, normalised=self.embedder.normalised
        )
        self._asked = CheckedEmbedder(self.embedder, f"The embedder {self.identity!r}")
        batch_size = getattr(self.embedder, "batch_size", None)
        if batch_size is not None:
            self.batch_size = batch_size
        self._owns_cache = not isinstance(cache, EmbeddingCache)
        self.cache = cache if isinstance(cache, EmbeddingCache) else EmbeddingCache(cache)

    def __repr__(self) -> str:
        return f"CachedEmbedder({self.identity!r}, {self.cache!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dimension(self) -> int | None:
        """The embedder's."""
        return self.embedder.dimension

    @property
    def max_tokens(self) -> int | None:
        """The embedder's."""
        return self.embedder.max_tokens

    @property
    def normalised(self) -> bool:
        """The embedder's."""
        return self.embedder.normalised

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Embeddings:
        """Embed texts, all or nothing; what was embedded before another text failed stays in the cache.

        Returns:
            (n, dim) float32; or a list of n dicts from dimension to weight where vectors are sparse.

        Raises:
            EmbeddingError: If a text has no vector; the error of the first one.
            StoreError: If the cache cannot be read.
        """
        found: dict[int, Embedded] = {}
        for batch in self.embed_batches(texts, input_type):
            found.update(zip(batch.positions, batch.results, strict=True))
        return collected([found[place] for place in range(len(found))], self._asked.name, self.dimension or 0)

    def embed_batches(self, texts: Sequence[str], input_type: InputType = "document") -> Iterator[EmbeddedBatch]:
        """What is in the cache, then what the embedder answers, batch by batch; equal texts are asked for once."""
        places: dict[str, list[int]] = {}
        blank: list[tuple[int, EmbeddingError]] = []
        for place, text in enumerate(listed_texts(texts)):
            if is_blank(text):
                blank.append((place, blank_error(text)))
            else:
                places.setdefault(text, []).append(place)
        if blank:
            yield EmbeddedBatch([place for place, _ in blank], [error for _, error in blank])
        space = replace(self._space, input_type=input_type)
        dimension = space.dimension
        distinct = list(places)
        missing: list[str] = []
        for start in range(0, len(distinct), _LOOKED_UP_AT_ONCE):
            some = distinct[start : start + _LOOKED_UP_AT_ONCE]
            found = self.cache.get_many(space, some)
            missing += [text for text in some if text not in found]
            if found:
                dimension = dimension or length_of(next(iter(found.values())))
                yield _batch(places, found)
        storing = True
        for batch in self._asked.batches(missing, dimension, input_type):
            results = {missing[at]: result for at, result in zip(batch.positions, batch.results, strict=True)}
            storing = storing and self._store(space, results)
            yield _batch(places, results)

    def close(self) -> None:
        """Close the cache, if it was given as a path; twice does no harm."""
        if self._owns_cache:
            self.cache.close()

    def _store(self, space: VectorSpace, results: Mapping[str, Embedded]) -> bool:
        """Keep what are vectors; returns whether that is worth another try."""
        vectors = {text: result for text, result in results.items() if not isinstance(result, EmbeddingError)}
        try:
            self.cache.put_many(space, vectors)
        except (ConfigError, StoreError) as exc:
            # Only a warning, since the model has answered, and the caller can go on with that. And no second try in
            # this call: waiting for a lock takes half a minute each time.
            warn_user(f"Vectors of {self.identity!r} are not kept: {sentence(exc)}", CacheWarning)
            return False
        return True


def _identity(embedder: Embedder, given: str | None) -> str:
    identity = embedder.identity if given is None else given
    if not identity:
        function = getattr(embedder, "function", embedder)
        name = getattr(function, "__qualname__", type(function).__qualname__)  # its repr may show keys
        msg = (
            f"CachedEmbedder got {name}, which does not say which model it is; a cache could give its vectors to "
            "another model, or another's to it. Pass identity='provider:model', or give it an attribute identity."
        )
        raise ConfigError(msg)
    return identity


def _batch(places: Mapping[str, Sequence[int]], results: Mapping[str, Embedded]) -> EmbeddedBatch:
    """Results by text as results by place; equal texts share one."""
    pairs = [(place, result) for text, result in results.items() for place in places[text]]
    return EmbeddedBatch([place for place, _ in pairs], [result for _, result in pairs])
