"""Embedding and rerank models that run in sentence-transformers, with torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np

from lazyrag.errors import ConfigError, EmbeddingError, RetrievalError, missing_package, sentence
from lazyrag.models.embedding import blank_error, is_blank, shown
from lazyrag.models.onnx.session import Contents
from lazyrag.models.protocols import InputType
from lazyrag.models.rerank import checked_documents, checked_query, checked_ranking
from lazyrag.validation import known_arguments, require, validate_boolean, validate_choice, validate_integer

TooLong = Literal["raise", "cut"]

_FILES = {".json", ".safetensors", ".bin", ".txt", ".model"}  # where a folder says what its model computes
_NO_LIMIT = 1_000_000  # tokens; some tokenizers say 1e30


@known_arguments
class SentenceTransformerEmbedder:
    """A model of sentence-transformers as an `Embedder`.

    Queries and documents get the model's prompts for them. The package truncates long texts silently; here they fail,
    unless ``too_long="cut"``.

    Args:
        model: A folder, an id on the hub (looked up on this machine only), or a ``SentenceTransformer``.
        download: Whether to download missing files from the hub.
        revision: A branch, tag or commit on the hub; None for the main branch.
        device: Device of torch: ``"cpu"``, ``"cuda"``; None lets the package choose.
        normalise: Whether to scale vectors to unit length.
        too_long: How to handle a text that exceeds the model's limit: ``"raise"`` fails it, ``"cut"`` truncates it.
        batch_size: Maximum number of texts in a batch.

    Raises:
        ConfigError: If the model cannot be loaded, or an argument is invalid.
        MissingDependencyError: If sentence-transformers is not installed.
    """

    def __init__(
        self,
        model: Any,
        *,
        download: bool = False,
        revision: str | None = None,
        device: str | None = None,
        normalise: bool = True,
        too_long: TooLong = "raise",
        batch_size: int = 32,
    ) -> None:
        package = _package("SentenceTransformerEmbedder")
        self._contents = _contents(model)
        self.batch_size = validate_integer("batch_size", batch_size, 1)
        self.normalised = validate_boolean("normalise", normalise)
        self._cuts = validate_choice("too_long", too_long, get_args(TooLong)) == "cut"
        self.name, self._given = _name(model), model
        self.model = _load(package.SentenceTransformer, model, revision, device, download=download)

    def __repr__(self) -> str:
        return f"SentenceTransformerEmbedder({self.name!r})"

    @cached_property
    def identity(self) -> str:
        """Name with a hash of the files, or with the commit; "" for a model that was passed as an object."""
        settings = {
            "cuts": self._cuts,
            "max_tokens": self.max_tokens,
            "normalise": self.normalised,
            "prompts": [self._prompt("query"), self._prompt("document")],
        }
        return _identity(self.model, self._given, self._contents, settings)

    @property
    def dimension(self) -> int | None:
        """Length of a vector; None if unknown."""
        # Renamed in release 5; the old name warns.
        function = getattr(self.model, "get_embedding_dimension", None) or self.model.get_sentence_embedding_dimension
        dimension: int | None = function()
        return dimension

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of input tokens; None if unknown."""
        return _limit(self.model)

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any]:
        """Embed texts.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are queries or documents.

        Returns:
            n vectors, (dimension,) float32 each; an `EmbeddingError` in place of a vector for a text that fails.

        Raises:
            EmbeddingError: If the model fails.
        """
        name, prompt = self._prompt(input_type)
        results: list[Any] = [blank_error(text) if is_blank(text) else None for text in texts]
        good = [position for position, error in enumerate(results) if error is None]
        if good and not self._cuts:
            lengths = _lengths(self.model, [prompt + texts[position] for position in good])
            for position, length in zip(good, lengths, strict=True):
                results[position] = _length_error(self, length, shown(texts[position]))
            good = [position for position in good if results[position] is None]
        try:
            vectors = self._encode([texts[position] for position in good], input_type, name) if good else []
        except Exception as exc:
            raise EmbeddingError(f"{self!r} failed: {sentence(exc)}") from exc
        for position, vector in zip(good, vectors, strict=True):
            results[position] = np.asarray(vector, np.float32)
        return results

    def _encode(self, texts: list[str], input_type: InputType, prompt_name: str | None) -> Any:
        # encode_query and encode_document, of release 5, also choose between the modules of a Router.
        encode = getattr(self.model, f"encode_{input_type}", self.model.encode)
        return encode(
            texts,
            prompt_name=prompt_name,
            batch_size=self.batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=self.normalised,
        )

    def _prompt(self, input_type: InputType) -> tuple[str | None, str]:
        """Return the name of the model's prompt for this type of text, None if there is none, and the prompt."""
        prompts = self.model.prompts or {}
        names = ("query",) if input_type == "query" else ("document", "passage", "corpus")
        name = next((one for one in (*names, self.model.default_prompt_name) if one in prompts), None)
        return name, prompts.get(name) or ""


@known_arguments
class SentenceTransformerCrossEncoder:
    """A ``CrossEncoder`` of sentence-transformers, with one label, as a `RerankModel`.

    Scores are those of the package, usually of a sigmoid, in [0, 1]. A pair that exceeds the model's limit fails the
    call, unless ``too_long="cut"``; an `OnnxCrossEncoder` reads such documents in windows.

    Args:
        model: A folder, an id on the hub (looked up on this machine only), or a ``CrossEncoder``.
        download: Whether to download missing files from the hub.
        revision: A branch, tag or commit on the hub; None for the main branch.
        device: Device of torch: ``"cpu"``, ``"cuda"``; None lets the package choose.
        too_long: How to handle a pair that exceeds the model's limit: ``"raise"`` or ``"cut"``.
        batch_size: Maximum number of pairs in a batch.

    Raises:
        ConfigError: If the model cannot be loaded or has several labels, or an argument is invalid.
        MissingDependencyError: If sentence-transformers is not installed.
    """

    def __init__(
        self,
        model: Any,
        *,
        download: bool = False,
        revision: str | None = None,
        device: str | None = None,
        too_long: TooLong = "raise",
        batch_size: int = 32,
    ) -> None:
        package = _package("SentenceTransformerCrossEncoder")
        self._contents = _contents(model)
        self.batch_size = validate_integer("batch_size", batch_size, 1)
        self._cuts = validate_choice("too_long", too_long, get_args(TooLong)) == "cut"
        self.name, self._given = _name(model), model
        self.model = _load(package.CrossEncoder, model, revision, device, download=download)
        labels = getattr(self.model, "num_labels", None) or self.model.config.num_labels
        if labels != 1:
            raise ConfigError(f"{self.name!r} has {labels} labels; a rerank model has one.")

    def __repr__(self) -> str:
        return f"SentenceTransformerCrossEncoder({self.name!r})"

    @cached_property
    def identity(self) -> str:
        """Name with a hash of the files, or with the commit; "" for a model that was passed as an object."""
        settings = {"cuts": self._cuts, "max_tokens": _limit(self.model)}
        return _identity(self.model, self._given, self._contents, settings)

    def __call__(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents; see `RerankModel`. A pair that is too long is a RetrievalError."""
        checked_query(query)
        found, limit = checked_documents(documents, top_n)
        distinct = list(dict.fromkeys(found))  # equal documents get equal scores
        if distinct and not self._cuts:
            for text, length in zip(distinct, _lengths(self.model, [query] * len(distinct), distinct), strict=True):
                if error := _length_error(self, length, shown(text)):
                    raise RetrievalError(str(error))
        try:
            pairs = [(query, document) for document in distinct]
            scores = self.model.predict(pairs, batch_size=self.batch_size, show_progress_bar=False) if pairs else []
        except Exception as exc:
            raise RetrievalError(f"{self!r} failed: {sentence(exc)}") from exc
        by_text = dict(zip(distinct, scores, strict=True))
        return checked_ranking([(at, by_text[one]) for at, one in enumerate(found)], len(found), repr(self))[:limit]


def _package(what: str) -> ModuleType:
    try:
        import sentence_transformers  # an extra's package; with torch, it takes seconds
    except ModuleNotFoundError as exc:
        raise missing_package(what, exc, "sentence-transformers") from exc
    package: ModuleType = sentence_transformers
    return package


def _load(make: Any, model: Any, revision: str | None, device: str | None, *, download: bool) -> Any:
    """Return the model that was passed, or load the one of that name."""
    if isinstance(model, make):
        return model
    is_name = isinstance(model, (str, Path)) and bool(str(model).strip())
    require(is_name, "The model", model, f"a folder, an id on the hub, or a {make.__name__}")
    try:
        return make(str(model), revision=revision, device=device, local_files_only=not download)
    except Exception as exc:  # of the package and its dependencies
        more = "" if download else " Only this machine was searched; pass download=True."
        raise ConfigError(f"{str(model)!r} cannot be loaded: {sentence(exc)}{more}") from exc


def _name(model: Any) -> str:
    return str(model) if isinstance(model, (str, Path)) else type(model).__name__


def _contents(given: Any) -> Contents | None:
    """Note the files of a folder before the model is loaded from it; None if it is no folder."""
    if not isinstance(given, (str, Path)) or not Path(given).is_dir():
        return None
    return Contents.of(sorted(path for path in Path(given).rglob("*") if path.suffix in _FILES))


def _identity(model: Any, given: Any, contents: Contents | None, settings: dict[str, Any]) -> str:
    if not isinstance(given, (str, Path)):
        return ""
    if contents is not None:
        return f"sentence-transformers:{Path(given).resolve().name}:{contents.digest(settings)}"
    inner = getattr(model, "model", None) or getattr(model[0], "auto_model", None)
    commit = getattr(getattr(inner, "config", None), "_commit_hash", None)
    if not commit:
        return ""
    return f"sentence-transformers:{given}@{commit}:{Contents.of([]).digest(settings)}"


def _limit(model: Any) -> int | None:
    """Return the maximum number of tokens; older cross-encoders have another name for it."""
    limit = getattr(model, "max_seq_length", None) or getattr(model, "max_length", None)
    return limit if isinstance(limit, int) and limit < _NO_LIMIT else None


def _lengths(model: Any, *texts: list[str]) -> list[int]:
    """Count the tokens of texts or pairs, with special tokens; 0 for all if the model has no limit."""
    if _limit(model) is None:
        return [0] * len(texts[0])
    encoded = model.tokenizer(*texts, truncation=False, padding=False, verbose=False)
    return [len(ids) for ids in encoded["input_ids"]]


def _length_error(model: Any, length: int, text: str) -> EmbeddingError | None:
    limit = _limit(model.model)
    if limit is None or length <= limit:
        return None
    return EmbeddingError(
        f"The text {text} has {length} tokens; the limit of {model.name!r} is {limit}. Make smaller chunks, or pass "
        "too_long='cut'."
    )
