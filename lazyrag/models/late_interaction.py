"""Late interaction: queries and documents compared token by token."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lazyrag.errors import ConfigError, EmbeddingError, RetrievalError, sentence
from lazyrag.models.embedding import shown
from lazyrag.models.onnx.pooling import normalised
from lazyrag.models.protocol import InputType
from lazyrag.models.rerank import checked_documents, checked_query, checked_ranking
from lazyrag.types import Matrix
from lazyrag.validation import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS = 1 << 15  # tokens of documents in one product: 4 MB for 32 tokens of a query

TOKEN_CACHE_BYTES = 128 << 20
"""Of token vectors that are kept for an embedder: those of 87,000 tokens where a vector has 384 numbers."""


class TokenEmbedder(Protocol):
    """Gives a vector for each token of a text; `lazyrag.models.onnx.embedder.OnnxEmbedder` is one."""

    @property
    def identity(self) -> str:
        """What the vectors depend on; see `lazyrag.models.protocol.Embedder`."""
        ...

    def token_embeddings(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Matrix]:
        """For each of n texts, none of them blank, an array of shape (tokens, dim), at least one token."""
        ...


def max_sim(query: Matrix, document: Matrix) -> float:
    """How well a document answers a query: the sum over the query's tokens of the best cosine with a document's token.

    Args:
        query: (query tokens, dim) float32, a row for each token.
        document: (document tokens, dim) float32, at least one row.

    Returns:
        A number in [-query tokens, query tokens].

    Raises:
        ConfigError: If a shape is another.

    Source:
        Khattab, Zaharia: ColBERT, SIGIR 2020, doi:10.1145/3397271.3401075, section 3.3.

    Example:
        >>> max_sim(np.eye(2, dtype=np.float32), np.array([[3, 0], [0, -2]], np.float32))
        1.0
    """
    return float(max_sims(query, [document])[0])


def max_sims(query: Matrix, documents: Sequence[Matrix]) -> NDArray[np.float64]:
    """`max_sim` of one query with many documents, by one matrix product for many of them.

    Args:
        query: (query tokens, dim) float32.
        documents: n arrays of shape (document tokens, dim) float32, at least one row in each.

    Returns:
        (n,) float64, in the order of the documents.

    Raises:
        ConfigError: If a shape is another.
    """
    _check("The query", query, None)
    for document in documents:
        _check("A document", document, query.shape[1])
    asked = normalised(query)
    found = np.empty(len(documents))
    for first, last in _chunks([len(document) for document in documents]):
        some = documents[first:last]
        cosines = np.clip(asked @ normalised(np.concatenate(some)).T, -1.0, 1.0)
        starts = np.cumsum([0, *map(len, some[:-1])])
        found[first:last] = np.maximum.reduceat(cosines, starts, axis=1).sum(axis=0, dtype=np.float64)
    return found


class MaxSimModel:
    """A `RerankModel` that needs no model of its own: it compares the token vectors of an embedding model.

    The score is `max_sim` divided by the number of the query's tokens: a mean of cosines, in [-1, 1]. A document
    without tokens, such as a blank one, gets -1. Several threads may use one object at once.

    Embedding the documents is nearly all of the work, so their token vectors are kept in memory, by text, up to a
    number of bytes; those that were used last stay. All models over one embedder share them, as long as there is the
    embedder. Scores do not depend on it.

    Args:
        embedder: Gives the vectors, as `lazyrag.models.onnx.embedder.OnnxEmbedder` does.
        cache_bytes: How many bytes of token vectors this model keeps for itself, at least 0; 0 embeds documents in each
            call. None shares 128 MiB with the others over the embedder.

    Raises:
        ConfigError: If it cannot, or cache_bytes is out of its range.

    Source:
        Khattab, Zaharia: ColBERT, SIGIR 2020, doi:10.1145/3397271.3401075.
    """

    def __init__(self, embedder: TokenEmbedder, *, cache_bytes: int | None = None) -> None:
        if not callable(getattr(embedder, "token_embeddings", None)):
            msg = (
                f"MaxSimModel got {shown(embedder)}; give an embedder with token_embeddings, such as an OnnxEmbedder "
                "(of a CachedEmbedder, its .embedder)."
            )
            raise ConfigError(msg)
        self.embedder = embedder
        self._kept = _kept_for(embedder) if cache_bytes is None else _Kept(whole_number("cache_bytes", cache_bytes, 0))

    def __repr__(self) -> str:
        return f"MaxSimModel({self.embedder!r})"

    @property
    def identity(self) -> str:
        """The embedder's, marked as used for late interaction; "" where it says nothing."""
        return f"maxsim:{self.embedder.identity}" if self.embedder.identity else ""

    def __call__(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_n: At most so many, at least 1; None means all of them.

        Returns:
            min(top_n, n) pairs (index into documents, score), best first, ties by index.

        Raises:
            ConfigError: If the query is blank, or no texts are given.
            RetrievalError: If the embedder fails.
        """
        checked_query(query)
        found, limit = checked_documents(documents, top_n)
        try:
            [asked] = self.embedder.token_embeddings([query], "query")
            told = self._vectors(list(dict.fromkeys(found)))
        except EmbeddingError as exc:
            raise RetrievalError(f"{self!r} failed: {sentence(exc)}") from exc
        scores = dict(zip(told, max_sims(asked, list(told.values())) / len(asked), strict=True))
        return checked_ranking(
            ((place, scores.get(one, -1.0)) for place, one in enumerate(found)), len(found), repr(self)
        )[:limit]

    def _vectors(self, documents: Sequence[str]) -> dict[str, Matrix]:
        """The token vectors of those documents that have tokens: what is kept, and the others from the embedder."""
        kept = self._kept.get(documents)
        new = [document for document in documents if document not in kept and self._has_tokens(document)]
        made = dict(zip(new, self.embedder.token_embeddings(new, "document"), strict=True)) if new else {}
        self._kept.put(made)
        together = {**kept, **made}
        return {document: together[document] for document in documents if document in together}

    def _has_tokens(self, document: str) -> bool:
        """Some texts are not blank, and hold nothing that a model reads: a zero-width space, for example."""
        count = getattr(self.embedder, "count_tokens", len)
        return bool(document.strip()) and count(document) > 0


class _Kept:
    """Token vectors by text, up to a number of bytes; those that were used last stay.

    Args:
        most: So many bytes of vectors and of texts.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._rows: OrderedDict[str, Matrix] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, texts: Iterable[str]) -> dict[str, Matrix]:
        """What is kept of some texts."""
        with self._lock:
            found = {text: self._rows[text] for text in texts if text in self._rows}
            for text in found:
                self._rows.move_to_end(text)
            return found

    def put(self, made: dict[str, Matrix]) -> None:
        """Keep vectors; what was used longest ago goes."""
        with self._lock:
            for text, rows in made.items():
                size = _size(text, rows)
                if size <= self._most and text not in self._rows:
                    self._rows[text] = rows
                    self._bytes += size
            while self._bytes > self._most:
                self._bytes -= _size(*self._rows.popitem(last=False))


_shared: dict[int, _Kept] = {}  # by the embedder's id, as long as there is the embedder
_sharing = threading.RLock()  # an embedder may go while it is held


def can_share(embedder: object) -> bool:
    """Whether all models over an embedder keep their vectors together; not where it has no room for weak references."""
    try:
        weakref.ref(embedder)
    except TypeError:
        return False
    return True


def _kept_for(embedder: object) -> _Kept:
    """What all models over an embedder keep together."""
    if not can_share(embedder):
        return _Kept(TOKEN_CACHE_BYTES)
    with _sharing:
        kept = _shared.get(id(embedder))
        if kept is None:
            kept = _shared[id(embedder)] = _Kept(TOKEN_CACHE_BYTES)
            weakref.finalize(embedder, _shared.pop, id(embedder), None).atexit = False
        return kept


def _size(text: str, rows: Matrix) -> int:
    return rows.nbytes + 4 * len(text)  # Python takes up to 4 bytes for a letter


def _check(what: str, tokens: Matrix, dimension: int | None) -> None:
    if tokens.ndim != 2 or not len(tokens) or dimension not in {None, tokens.shape[1]}:
        allowed = "(tokens, dim)" if dimension is None else f"(tokens, {dimension})"
        raise ConfigError(f"{what} has the shape {tokens.shape}; give {allowed}, at least one token.")


def _chunks(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of documents that have at most so many tokens together; one document may have more."""
    first, tokens = 0, 0
    for number, length in enumerate(lengths):
        if tokens + length > _ROWS and number > first:
            yield first, number
            first, tokens = number, 0
        tokens += length
    if first < len(lengths):
        yield first, len(lengths)
