"""Embedding and rerank models that run in sentence-transformers, with torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lazyrag.errors import ConfigError, EmbeddingError, RetrievalError, optional_package, sentence
from lazyrag.models.embedding import blank_error, is_embeddable, shown
from lazyrag.models.onnx.folder import FileFingerprint
from lazyrag.models.onnx.session import unknown_share
from lazyrag.models.protocols import InputType
from lazyrag.models.rerank import checked_documents, checked_query, rank_scores
from lazyrag.types import JsonObject, Keywords, PlaceRanking
from lazyrag.validation import (
    known_arguments,
    require,
    sendable,
    validate_boolean,
    validate_choice,
    validate_integer,
)

TooLong = Literal["raise", "cut"]

# where a folder says what its model computes
_FILES = {".json", ".safetensors", ".bin", ".txt", ".model"}
_NO_LIMIT = 1_000_000  # tokens; some tokenizers say 1e30


class _PackageModel:
    """A model of the package, loaded with one of its classes.

    Args:
        make: Name of the class.
        model: What the user gives: a folder, an id on the hub, or an instance of the class.
        too_long: How to handle what exceeds the model's limit.
        batch_size: Maximum number of inputs in a batch.
        options: Arguments of the class.
    """

    def __init__(
        self, make: str, model: Any, too_long: TooLong, batch_size: int, **options: Any
    ) -> None:
        with optional_package(type(self).__name__, "sentence-transformers"):
            import sentence_transformers  # an extra's package; with torch, it takes seconds
        self._contents = _contents(model)  # before the model is loaded from them
        self.batch_size = validate_integer("batch_size", batch_size, 1)
        self._cuts = validate_choice("too_long", too_long, TooLong) == "cut"
        self.name = str(model) if isinstance(model, (str, Path)) else type(model).__name__
        self._source = model
        self._identity: str | None = None
        self.model = _load(getattr(sentence_transformers, make), model, options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def identity(self) -> str:
        """Name with a hash of the files, or with the commit; "" for a model that was passed as an
        object.
        """
        if self._identity is None:
            self._identity = _identity(self.model, self._source, self._contents, self._settings())
        return self._identity

    @property
    def probe(self) -> bool:
        """Whether a Document compares a vector with a stored one: the identity does not cover the
        model.
        """
        return not self.identity

    def _settings(self) -> JsonObject:
        """What results depend on beside the model's files."""
        return {"cuts": self._cuts, "max_tokens": self._limit()}

    def _limit(self) -> int | None:
        """Return the maximum number of tokens; older cross-encoders have another name for it."""
        limit = getattr(self.model, "max_seq_length", None)
        if not limit:
            limit = getattr(self.model, "max_length", None)
        return limit if isinstance(limit, int) and limit < _NO_LIMIT else None

    def _length_errors(self, names: Sequence[str], *texts: list[str]) -> list[str | None]:
        """Say for each text or pair what is wrong with its length, special tokens included; None
        where nothing is.
        """
        limit = self._limit()
        if limit is None or self._cuts or not names:
            return [None] * len(names)
        encoded = self.model.tokenizer(*texts, truncation=False, padding=False, verbose=False)
        advice = (
            f"the limit of {self.name!r} is {limit}. Make smaller chunks, or pass too_long='cut'."
        )
        return [
            f"The text {shown(name)} has {len(ids)} tokens; {advice}" if len(ids) > limit else None
            for name, ids in zip(names, encoded["input_ids"], strict=True)
        ]


@sendable
@known_arguments
class SentenceTransformerEmbedder(_PackageModel):
    """A model of sentence-transformers as an `Embedder`.

    Queries and documents get the model's prompts for them. The package truncates long texts
    silently; here they fail, unless ``too_long="cut"``.

    Args:
        model: A folder, an id on the hub (looked up on this machine only), or a
            ``SentenceTransformer``.
        download: Whether to download missing files from the hub.
        revision: A branch, tag or commit on the hub; None for the main branch.
        device: Device of torch: ``"cpu"``, ``"cuda"``; None lets the package choose.
        normalise: Whether to scale vectors to unit length.
        too_long: How to handle a text that exceeds the model's limit: ``"raise"`` fails it,
            ``"cut"`` truncates it.
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
        self.normalised = validate_boolean("normalise", normalise)
        options = {"revision": revision, "device": device, "local_files_only": not download}
        super().__init__("SentenceTransformer", model, too_long, batch_size, **options)

    def _settings(self) -> JsonObject:
        prompts = [self._prompt("query"), self._prompt("document")]
        return {**super()._settings(), "normalise": self.normalised, "prompts": prompts}

    @property
    def dimension(self) -> int | None:
        """Length of a vector; None if unknown."""
        # Renamed in release 5; the old name warns.
        function = (
            getattr(self.model, "get_embedding_dimension", None)
            or self.model.get_sentence_embedding_dimension
        )
        dimension: int | None = function()
        return dimension

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of input tokens; None if unknown."""
        return self._limit()

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any]:
        """Embed texts.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are queries or documents.

        Returns:
            n vectors, (dimension,) float32 each; an `EmbeddingError` in place of a vector for a
            text that fails.

        Raises:
            EmbeddingError: If the model fails.
        """
        name, prompt = self._prompt(input_type)
        results: list[Any] = [None if is_embeddable(text) else blank_error(text) for text in texts]
        good = [position for position, error in enumerate(results) if error is None]
        embeddable = [texts[position] for position in good]
        errors = self._length_errors(embeddable, [prompt + text for text in embeddable])
        for position, error in zip(good, errors, strict=True):
            results[position] = error and EmbeddingError(error)
        good = [position for position in good if results[position] is None]
        vectors: Sequence[Any] = []
        try:
            if good:
                vectors = self._encode([texts[position] for position in good], input_type, name)
        except Exception as exc:
            raise EmbeddingError(f"{self!r} failed: {sentence(exc)}") from exc
        for position, vector in zip(good, vectors, strict=True):
            results[position] = np.asarray(vector, np.float32)
        return results

    def unknown_share(self, text: str) -> float | None:
        """Return the share of a text's letters that the vocabulary lacks; None if the tokenizer
        cannot tell.
        """
        tokenizer = getattr(getattr(self.model, "tokenizer", None), "backend_tokenizer", None)
        return None if tokenizer is None else unknown_share(tokenizer, text)

    def _encode(self, texts: list[str], input_type: InputType, prompt_name: str | None) -> Any:
        # encode_query and encode_document, of release 5, also choose between the modules of a
        # Router.
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
        """Return the name of the model's prompt for this type of text, None if there is none, and
        the prompt.
        """
        prompts = self.model.prompts or {}
        names = ("query",) if input_type == "query" else ("document", "passage", "corpus")
        name = next(
            (name for name in (*names, self.model.default_prompt_name) if name in prompts), None
        )
        return name, prompts.get(name) or ""


@known_arguments
class SentenceTransformerCrossEncoder(_PackageModel):
    """A ``CrossEncoder`` of sentence-transformers, with one label, as a `RerankModel`.

    Scores are those of the package, usually of a sigmoid, in [0, 1]. A pair that exceeds the
    model's limit fails the call, unless ``too_long="cut"``; an `OnnxCrossEncoder` reads such
    documents in windows.

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
        options = {"revision": revision, "device": device, "local_files_only": not download}
        super().__init__("CrossEncoder", model, too_long, batch_size, **options)
        labels = getattr(self.model, "num_labels", None) or self.model.config.num_labels
        if labels != 1:
            raise ConfigError(f"{self.name!r} has {labels} labels; a rerank model has one.")

    def __call__(
        self, query: str, documents: Sequence[str], top_n: int | None = None
    ) -> PlaceRanking:
        """Rank documents; see `RerankModel`. A pair that is too long is a RetrievalError."""
        checked_query(query)
        passages, limit = checked_documents(documents, top_n)
        distinct = list(dict.fromkeys(passages))  # equal documents get equal scores
        for error in filter(None, self._length_errors(distinct, [query] * len(distinct), distinct)):
            raise RetrievalError(error)
        pairs = [(query, document) for document in distinct]
        options = {"batch_size": self.batch_size, "show_progress_bar": False}
        try:
            scores = self.model.predict(pairs, **options) if pairs else []
        except Exception as exc:
            raise RetrievalError(f"{self!r} failed: {sentence(exc)}") from exc
        by_text = dict(zip(distinct, scores, strict=True))
        return rank_scores((by_text[passage] for passage in passages), limit, repr(self))


def _load(make: Any, model: Any, options: Keywords) -> Any:
    """Return the model that was passed, or load the one of that name."""
    if isinstance(model, make):
        return model
    is_name = isinstance(model, (str, Path)) and bool(str(model).strip())
    require(is_name, "The model", model, f"a folder, an id on the hub, or a {make.__name__}")
    try:
        return make(str(model), **options)
    except Exception as exc:  # of the package and its dependencies
        more = ""
        if options["local_files_only"]:
            more = " Only this machine was searched; pass download=True."
        raise ConfigError(f"{str(model)!r} cannot be loaded: {sentence(exc)}{more}") from exc


def _contents(model_source: Any) -> FileFingerprint | None:
    """Note the files of a folder; None if it is no folder."""
    if not isinstance(model_source, (str, Path)) or not Path(model_source).is_dir():
        return None
    return FileFingerprint.of(
        sorted(path for path in Path(model_source).rglob("*") if path.suffix in _FILES)
    )


def _identity(
    model: Any, model_source: Any, contents: FileFingerprint | None, settings: JsonObject
) -> str:
    if not isinstance(model_source, (str, Path)):
        return ""
    if contents is not None:
        name = Path(model_source).resolve().name
        return f"sentence-transformers:{name}:{contents.digest(settings)}"
    inner = getattr(model, "model", None) or getattr(model[0], "auto_model", None)
    commit = getattr(getattr(inner, "config", None), "_commit_hash", None)
    if not commit:
        return ""
    digest = FileFingerprint.of([]).digest(settings)
    return f"sentence-transformers:{model_source}@{commit}:{digest}"
