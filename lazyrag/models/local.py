"""Rerank models on this machine by name, and the asynchronous rerankers of spec 003."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, MissingDependencyError, RetrievalError
from lazyrag.models.concurrency import in_thread
from lazyrag.models.onnx.folder import TOKENIZER, FileFingerprint
from lazyrag.models.onnx.hub import AmbiguousModelError, find_model, ways_to_download
from lazyrag.models.onnx.models import OnnxCrossEncoder
from lazyrag.models.protocols import RerankModel
from lazyrag.models.rerank import (
    RerankCallable,
    as_rerank_model,
    checked_documents,
    checked_query,
    checked_ranking,
)
from lazyrag.models.sentence_transformers import SentenceTransformerCrossEncoder
from lazyrag.types import PathLike, PlaceRanking
from lazyrag.validation import known_arguments, validate_integer

LocalModel: TypeAlias = PathLike
"""Folder of a cross-encoder, or its id on the hub."""

_MADE_OF = {".onnx", ".onnx_data", ".safetensors", ".bin", ".json", ".txt", ".model"}

_lock = threading.Lock()
_loaded: dict[tuple[Path, int | None], tuple[FileFingerprint, RerankModel]] = {}


def local_rerank_model(model: LocalModel, batch_size: int | None = None) -> RerankModel:
    """Load the cross-encoder of a folder, or of an id in the cache of the hub or of ModelScope.
    Nothing is downloaded.

    A folder with an ONNX file gives an `OnnxCrossEncoder`, one with torch weights only a
    `SentenceTransformerCrossEncoder`. A model is loaded once in a process and shared by all
    threads, until a file in its folder changes.

    Args:
        model: A folder, or an id on the hub: ``"organisation/name"``, or the name alone if only one
            model on this machine has it.
        batch_size: Number of pairs in a batch, at least 1; None leaves it to the class.

    Raises:
        ConfigError: If it is missing, or no cross-encoder with one label. For several labels or
            other settings use the classes.
        MissingDependencyError: If a package is missing; the message names the extra.
    """
    folder = _folder(model)
    with _lock:
        files = [*folder.glob("*"), *folder.glob("*/*")]
        contents = FileFingerprint.of(sorted(path for path in files if path.suffix in _MADE_OF))
        loaded = _loaded.get((folder, batch_size))
        if loaded is None or loaded[0] != contents:
            loaded = _loaded[folder, batch_size] = contents, _load(folder, batch_size)
        return loaded[1]


def _folder(model: LocalModel) -> Path:
    try:
        # The tokenizer of older torch models is in other files.
        return find_model(model, marker_files=(TOKENIZER, "config.json")).path.resolve()
    except MissingDependencyError as exc:  # huggingface_hub, for the hub's cache
        raise MissingDependencyError(
            f"There is no folder {str(model)!r}, and to find a model by name: {exc}"
        ) from exc
    except AmbiguousModelError:
        raise
    except ConfigError as exc:
        if (
            not isinstance(model, (str, os.PathLike))
            or not str(model).strip()
            or Path(model).is_file()
        ):
            raise
        raise ConfigError(
            f"There is no rerank model {str(model)!r} on this machine, neither a folder nor in the"
            " cache of the hub or of ModelScope. Nothing is downloaded by itself. Run:"
            f" {ways_to_download(str(model))}. For torch weights run hf download. Or pass a folder"
            f" or a model: OnnxCrossEncoder({str(model)!r}, download=True), HttpRerankModel."
        ) from exc


def _load(folder: Path, batch_size: int | None) -> RerankModel:
    if any(folder.glob("*.onnx")) or any(folder.glob("*/*.onnx")):
        return OnnxCrossEncoder(folder, batch_size=batch_size)
    if any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin")):
        return SentenceTransformerCrossEncoder(folder, batch_size=batch_size or 32)
    raise ConfigError(
        f"{folder} has neither an ONNX file nor torch weights. Export the model there ('optimum-cli"
        " export onnx --model NAME FOLDER'), or download all of it."
    )


class AsyncReranker:
    """Rerank model with the methods of spec 003: `rerank` for event loops, and `get_scores`.

    A model with ``arerank``, such as `lazyrag.HttpRerankModel`, is awaited: cancelling the task
    ends its call. Any other model runs in a thread; cancelling returns immediately, and the
    computation ends by itself.

    Args:
        model: A `RerankModel`; a callable ``model(query, documents=[...],
            top_n=n) -> [(index, score), ...]``; or a folder
            or a name in the hub's cache on this machine, see
            `lazyrag.models.local.local_rerank_model`.

    Raises:
        ConfigError: If the model is invalid or missing.

    Example:
        >>> import asyncio
        >>> def rank(query, documents, top_n):
        ...     return [(number, len(text)) for number, text in enumerate(documents)]
        >>> reranker = AsyncReranker(rank)
        >>> asyncio.run(reranker.rerank("tea?", ["tea", "green tea", "iced tea"], top_k=2))
        [(1, 9.0), (2, 8.0)]
        >>> reranker.get_scores("tea?", ["tea", "green tea"])
        [3.0, 9.0]
    """

    def __init__(self, model: RerankModel | RerankCallable | LocalModel) -> None:
        self.model = (
            local_rerank_model(model)
            if isinstance(model, (str, os.PathLike))
            else as_rerank_model(model)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def rerank(self, query: str, documents: Sequence[str], top_k: int = 5) -> PlaceRanking:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_k: Maximum number of results, at least 1.

        Returns:
            At most top_k pairs (index into documents, score), best first, ties by index.

        Raises:
            ConfigError: If an argument is invalid.
            RetrievalError: If the model fails.
        """
        checked_query(query)
        passages, most = checked_documents(documents, validate_integer("top_k", top_k, 1))
        if not passages:
            return []
        return checked_ranking(
            await self._arerank(query, passages, most), len(passages), repr(self.model)
        )[:most]

    def get_scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """Return the score of each document, in order. It blocks; in event loops use `aget_scores`.

        Raises:
            ConfigError: If an argument is invalid.
            RetrievalError: If the model fails, or has no score for a document.
        """
        checked_query(query)
        passages, most = checked_documents(documents, None)
        return self._in_order(self.model(query, passages, most) if passages else [], len(passages))

    async def aget_scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """Return the score of each document, in any event loop."""
        checked_query(query)
        passages, most = checked_documents(documents, None)
        return self._in_order(
            await self._arerank(query, passages, most) if passages else [], len(passages)
        )

    async def _arerank(self, query: str, documents: list[str], most: int) -> Any:
        arerank: Callable[..., Awaitable[Any]] | None = getattr(self.model, "arerank", None)
        if callable(arerank):
            return await arerank(query, documents, most)
        return await in_thread(self.model, query, documents, most)

    def _in_order(self, returned: Any, count: int) -> list[float]:
        scores = dict(checked_ranking(returned, count, repr(self.model)))
        if len(scores) < count:
            raise RetrievalError(
                f"{self.model!r} returned {len(scores)} scores for {count} documents."
            )
        return [scores[position] for position in range(count)]


@known_arguments
class CrossEncoderReranker(AsyncReranker):
    """Cross-encoder by name (spec 003); for other rerank models use `AsyncReranker`.

    The model is loaded on creation, once in a process. Nothing is downloaded: an id is looked up in
    the cache of the hub or of ModelScope; the error says how to get it.

    Args:
        model_name: A folder with an ONNX file, or with weights for torch; or an id on the hub; or a
            `RerankModel`, such as `lazyrag.models.OnnxCrossEncoder("BAAI/bge-reranker-large",
            download=True)`, which downloads.

    Raises:
        ConfigError: If there is no such model on this machine.
        MissingDependencyError: If a package is missing.

    Example::

        reranker = CrossEncoderReranker("models/bge-reranker-large")
        best = await reranker.rerank("When is tea picked?", ["In April.", "In a kettle."], top_k=1)
    """

    def __init__(self, model_name: LocalModel | RerankModel = "BAAI/bge-reranker-large") -> None:
        super().__init__(model_name)
