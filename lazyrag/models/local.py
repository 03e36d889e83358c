"""Rerank models in event loops: spec 003's face of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from lazyrag.errors import ConfigError, MissingDependencyError, RetrievalError
from lazyrag.models.concurrency import in_thread
from lazyrag.models.onnx.models import OnnxCrossEncoder
from lazyrag.models.onnx.session import TOKENIZER, Contents, find_model
from lazyrag.models.protocols import RerankModel
from lazyrag.models.rerank import RerankCallable, as_rerank_model, checked_documents, checked_query, checked_ranking
from lazyrag.models.sentence_transformers import SentenceTransformerCrossEncoder
from lazyrag.validation import known_arguments, whole_number

LocalModel: TypeAlias = "str | os.PathLike[str]"
"""A folder with a cross-encoder, or its id on the hub."""

_MADE_OF = {".onnx", ".onnx_data", ".safetensors", ".bin", ".json", ".txt", ".model"}

_lock = threading.Lock()
_loaded: dict[tuple[Path, int | None], tuple[Contents, RerankModel]] = {}


def local_rerank_model(model: LocalModel, batch_size: int | None = None) -> RerankModel:
    """The cross-encoder of a folder, or of that name in the hub's cache on this machine. Nothing is fetched.

    A folder with an ONNX file gives an `OnnxCrossEncoder`, one with weights for torch alone a
    `SentenceTransformerCrossEncoder`. Either is loaded once in a process and then shared, by all threads, until a file
    in the folder changes: then it is loaded anew.

    Args:
        model: A folder, or an id on the hub: ``"organisation/name"``.
        batch_size: How many pairs are read at once, at least 1; None leaves it to the class.

    Raises:
        ConfigError: If it is not there, or is no cross-encoder with one label. Those of several labels, and other
            settings, go through the two classes' own keywords.
        MissingDependencyError: If a package is needed that is not installed; the message says which extra brings it.
    """
    folder = _folder(model)
    with _lock:
        files = (path for depth in ("*", "*/*") for path in folder.glob(depth))
        contents = Contents.of(sorted(path for path in files if path.suffix in _MADE_OF))
        held = _loaded.get((folder, batch_size))
        if held is None or held[0] != contents:
            held = _loaded[folder, batch_size] = contents, _load(folder, batch_size)
        return held[1]


def _folder(model: LocalModel) -> Path:
    try:
        # Older models for torch have a tokenizer in other files.
        return find_model(model, known_by=(TOKENIZER, "config.json")).path.resolve()
    except MissingDependencyError as exc:  # of the package that knows the hub's cache
        msg = f"There is no folder {str(model)!r}, and to look for a model of that name: {exc}"
        raise MissingDependencyError(msg) from exc
    except ConfigError as exc:
        if not isinstance(model, (str, os.PathLike)) or not str(model).strip() or Path(model).is_file():
            raise
        msg = (
            f"There is no rerank model {str(model)!r} on this machine: no folder, and nothing of that name in the "
            "hub's cache. Give a folder, an id that was fetched ('organisation/name'), or a model: "
            f"OnnxCrossEncoder({str(model)!r}, download=True) fetches one, HttpRerankModel asks an endpoint."
        )
        raise ConfigError(msg) from exc


def _load(folder: Path, batch_size: int | None) -> RerankModel:
    if any(folder.glob("*.onnx")) or any(folder.glob("*/*.onnx")):
        return OnnxCrossEncoder(folder, batch_size=batch_size)
    if any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin")):
        return SentenceTransformerCrossEncoder(folder, batch_size=batch_size or 32)
    msg = (
        f"{folder} has neither an ONNX file nor weights for torch. Export the model there ('optimum-cli export onnx "
        "--model NAME FOLDER'), or fetch all of it."
    )
    raise ConfigError(msg)


class AsyncReranker:
    """Any rerank model with the methods of spec 003: `rerank` for event loops, and `get_scores`.

    A model that has ``arerank``, such as an `lazyrag.HttpRerankModel`, is awaited: cancelling the task ends its call.
    Another one runs in a thread and holds up no event loop. Cancelling the task leaves it at once, and what the model
    was computing ends by itself, as no thread can be stopped from outside.

    Args:
        model: A `RerankModel`; a callable ``model(query, documents=[...], top_n=n) -> [(index, score), ...]``; or a
            folder or a name in the hub's cache on this machine, see `lazyrag.models.local.local_rerank_model`.

    Raises:
        ConfigError: If it is none of these, or there is no such model.

    Example:
        >>> import asyncio
        >>> reranker = AsyncReranker(lambda query, documents, top_n: [(i, len(d)) for i, d in enumerate(documents)])
        >>> asyncio.run(reranker.rerank("tea?", ["tea", "green tea", "iced tea"], top_k=2))
        [(1, 9.0), (2, 8.0)]
        >>> reranker.get_scores("tea?", ["tea", "green tea"])
        [3.0, 9.0]
    """

    def __init__(self, model: RerankModel | RerankCallable | LocalModel) -> None:
        self.model = local_rerank_model(model) if isinstance(model, (str, os.PathLike)) else as_rerank_model(model)

    def __repr__(self) -> str:
        return f"AsyncReranker({self.model!r})"

    async def rerank(self, query: str, documents: Sequence[str], top_k: int = 5) -> list[tuple[int, float]]:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_k: At most so many, at least 1.

        Returns:
            At most top_k pairs (index into documents, score), best first, ties by index.

        Raises:
            ConfigError: If the query is blank, no texts are given, or top_k is out of its range.
            RetrievalError: If the model fails.
        """
        checked_query(query)
        found, most = checked_documents(documents, whole_number("top_k", top_k, 1))
        if not found:
            return []
        return checked_ranking(await self._asked(query, found, most), len(found), repr(self.model))[:most]

    def get_scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """The score of each document, in their order; it waits, so event loops want `aget_scores`.

        Raises:
            ConfigError: If the query is blank, or no texts are given.
            RetrievalError: If the model fails, or has no score for a document.
        """
        checked_query(query)
        found, most = checked_documents(documents, None)
        return self._in_order(self.model(query, found, most) if found else [], len(found))

    async def aget_scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """The same as `get_scores`, in any event loop."""
        checked_query(query)
        found, most = checked_documents(documents, None)
        return self._in_order(await self._asked(query, found, most) if found else [], len(found))

    async def _asked(self, query: str, documents: list[str], most: int) -> Any:
        arerank: Callable[..., Awaitable[Any]] | None = getattr(self.model, "arerank", None)
        if callable(arerank):
            return await arerank(query, documents, most)
        return await in_thread(self.model, query, documents, most)

    def _in_order(self, returned: Any, count: int) -> list[float]:
        scores = dict(checked_ranking(returned, count, repr(self.model)))
        if len(scores) < count:
            msg = f"{self.model!r} got {count} documents and has scores for {len(scores)} of them."
            raise RetrievalError(msg)
        return [scores[place] for place in range(count)]


@known_arguments
class CrossEncoderReranker:
    """A cross-encoder by name, as spec 003 has it; every other rerank model gets the same methods as `AsyncReranker`.

    It is loaded when this is made, once in a process. Nothing is fetched: a name is looked up in the hub's cache on
    this machine.

    Args:
        model_name: A folder with an ONNX file, or with weights for torch; or an id on the hub; or a `RerankModel`, such
            as `lazyrag.OnnxCrossEncoder("BAAI/bge-reranker-large", download=True)`, which fetches.

    Raises:
        ConfigError: If there is no such model on this machine.
        MissingDependencyError: If a package is needed that is not installed.

    Example::

        reranker = CrossEncoderReranker("models/bge-reranker-large")
        best = await reranker.rerank("When is tea picked?", ["In April.", "In a kettle."], top_k=1)
    """

    def __init__(self, model_name: LocalModel | RerankModel = "BAAI/bge-reranker-large") -> None:
        self._asked = AsyncReranker(model_name)

    def __repr__(self) -> str:
        return f"CrossEncoderReranker({self.model!r})"

    @property
    def model(self) -> RerankModel:
        """The model behind it, which goes into ``Reranker("ModuleReranker", model=...)``, too."""
        return self._asked.model

    async def rerank(self, query: str, documents: Sequence[str], top_k: int = 5) -> list[tuple[int, float]]:
        """Rank documents; see `AsyncReranker.rerank`."""
        return await self._asked.rerank(query, documents, top_k)

    def get_scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """The score of each document, in their order; see `AsyncReranker.get_scores`."""
        return self._asked.get_scores(query, documents)

    async def aget_scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """The same, in any event loop."""
        return await self._asked.aget_scores(query, documents)
