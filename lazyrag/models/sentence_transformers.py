"""Models that run in the package sentence-transformers, with torch: for what has no ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np

from lazyrag.errors import ConfigError, EmbeddingError, RetrievalError, known_names, missing_package, sentence
from lazyrag.models.embedding import shown
from lazyrag.models.onnx.session import Contents
from lazyrag.models.protocols import InputType
from lazyrag.models.rerank import checked_documents, checked_query, checked_ranking
from lazyrag.validation import known_arguments, whole_number, yes_or_no

TooLong = Literal["raise", "cut"]

_FILES = {".json", ".safetensors", ".bin", ".txt", ".model"}  # where a folder says what its model computes
_NO_LIMIT = 1_000_000  # tokens; some tokenizers say 1e30


@known_arguments
class SentenceTransformerEmbedder:
    """A model of sentence-transformers as an `Embedder`.

    Queries and documents get the prompts that the model has for them. The package cuts long texts off without a word;
    here they fail, unless that is asked for.

    Args:
        model: A folder, a name on the hub, which is looked up on this machine only, or a ``SentenceTransformer``.
        download: Whether to fetch from the hub what is not on this machine.
        revision: A branch, tag or commit on the hub; None means its main branch.
        device: Where it runs, in torch's words: ``"cpu"``, ``"cuda"``; None lets the package choose.
        normalise: Whether vectors are brought to length 1.
        too_long: What becomes of a text that is longer than the model reads: ``"raise"`` fails it, ``"cut"`` drops the
            rest.
        batch_size: At most so many texts at once.

    Raises:
        ConfigError: If the model cannot be loaded, or a value is out of its range.
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
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.normalised = yes_or_no("normalise", normalise)
        self._cuts = _checked(too_long) == "cut"
        self.name, self._given = _name(model), model
        self.model = _load(package.SentenceTransformer, model, revision, device, download=download)

    def __repr__(self) -> str:
        return f"SentenceTransformerEmbedder({self.name!r})"

    @cached_property
    def identity(self) -> str:
        """The model's name with a hash of its files, or with its commit; "" for a model that was given as an object."""
        settings = {
            "cuts": self._cuts,
            "max_tokens": self.max_tokens,
            "normalise": self.normalised,
            "prompts": [self._prompt("query"), self._prompt("document")],
        }
        return _identity(self.model, self._given, self._contents, settings)

    @property
    def dimension(self) -> int | None:
        """The length of a vector; None where the model does not know it."""
        # Renamed in release 5; the old name warns.
        told = getattr(self.model, "get_embedding_dimension", None) or self.model.get_sentence_embedding_dimension
        dimension: int | None = told()
        return dimension

    @property
    def max_tokens(self) -> int | None:
        """How many tokens the model reads at once; None where it does not say."""
        return _limit(self.model)

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Sequence[Any]:
        """Embed texts.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are questions, or what is searched.

        Returns:
            n vectors, (dimension,) float32 each; an `EmbeddingError` in the place of a text that has none.

        Raises:
            EmbeddingError: If the model fails.
        """
        name, prompt = self._prompt(input_type)
        results: list[Any] = [_blank(text) for text in texts]
        good = [place for place, error in enumerate(results) if error is None]
        if good and not self._cuts:
            lengths = _lengths(self.model, [prompt + texts[place] for place in good])
            for place, length in zip(good, lengths, strict=True):
                results[place] = _long(self, length, shown(texts[place]))
            good = [place for place in good if results[place] is None]
        try:
            vectors = self._encode([texts[place] for place in good], input_type, name) if good else []
        except Exception as exc:
            raise EmbeddingError(f"{self!r} failed: {sentence(exc)}") from exc
        for place, vector in zip(good, vectors, strict=True):
            results[place] = np.asarray(vector, np.float32)
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
        """The name of the model's prompt for this type of text, None for none, and the prompt."""
        prompts = self.model.prompts or {}
        names = ("query",) if input_type == "query" else ("document", "passage", "corpus")
        name = next((one for one in (*names, self.model.default_prompt_name) if one in prompts), None)
        return name, prompts.get(name) or ""


@known_arguments
class SentenceTransformerCrossEncoder:
    """A ``CrossEncoder`` of sentence-transformers, with one label, as a `RerankModel`.

    Scores are what the package gives, usually of a sigmoid, in [0, 1]. A pair that is longer than the model reads fails
    the call, unless ``too_long="cut"``; an `OnnxCrossEncoder` reads such documents whole.

    Args:
        model: A folder, a name on the hub, which is looked up on this machine only, or a ``CrossEncoder``.
        download: Whether to fetch from the hub what is not on this machine.
        revision: A branch, tag or commit on the hub; None means its main branch.
        device: Where it runs, in torch's words: ``"cpu"``, ``"cuda"``; None lets the package choose.
        too_long: What becomes of a pair that is longer than the model reads: ``"raise"`` or ``"cut"``.
        batch_size: At most so many pairs at once.

    Raises:
        ConfigError: If the model cannot be loaded or has several labels, or a value is out of its range.
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
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self._cuts = _checked(too_long) == "cut"
        self.name, self._given = _name(model), model
        self.model = _load(package.CrossEncoder, model, revision, device, download=download)
        labels = getattr(self.model, "num_labels", None) or self.model.config.num_labels
        if labels != 1:
            raise ConfigError(f"{self.name!r} has {labels} labels; a rerank model has one.")

    def __repr__(self) -> str:
        return f"SentenceTransformerCrossEncoder({self.name!r})"

    @cached_property
    def identity(self) -> str:
        """The model's name with a hash of its files, or with its commit; "" for a model that was given as an object."""
        settings = {"cuts": self._cuts, "max_tokens": _limit(self.model)}
        return _identity(self.model, self._given, self._contents, settings)

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
            RetrievalError: If the model fails, or a pair is too long for it.
        """
        checked_query(query)
        found, limit = checked_documents(documents, top_n)
        distinct = list(dict.fromkeys(found))  # equal documents get equal scores
        if distinct and not self._cuts:
            for text, length in zip(distinct, _lengths(self.model, [query] * len(distinct), distinct), strict=True):
                if error := _long(self, length, shown(text)):
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
    """The model that was given, or the one of that name."""
    if isinstance(model, make):
        return model
    if not isinstance(model, (str, Path)) or not str(model).strip():
        msg = f"The model is {model!r:.80}; give a folder, a name on the hub, or a {make.__name__}."
        raise ConfigError(msg)
    try:
        return make(str(model), revision=revision, device=device, local_files_only=not download)
    except Exception as exc:  # whatever the package and those below it raise
        more = "" if download else " It was looked for on this machine only; download=True fetches it."
        raise ConfigError(f"{str(model)!r} cannot be loaded: {sentence(exc)}{more}") from exc


def _name(model: Any) -> str:
    return str(model) if isinstance(model, (str, Path)) else type(model).__name__


def _contents(given: Any) -> Contents | None:
    """What lies in a folder before the model is loaded from it; None if no folder is given."""
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
    """How many tokens a model reads at once; cross-encoders of older releases call it otherwise."""
    told = getattr(model, "max_seq_length", None) or getattr(model, "max_length", None)
    return told if isinstance(told, int) and told < _NO_LIMIT else None


def _lengths(model: Any, *texts: list[str]) -> list[int]:
    """How many tokens texts, or pairs, have, the special ones included; 0 for all where the model cannot tell."""
    if _limit(model) is None:
        return [0] * len(texts[0])
    encoded = model.tokenizer(*texts, truncation=False, padding=False, verbose=False)
    return [len(ids) for ids in encoded["input_ids"]]


def _long(asked: Any, length: int, text: str) -> EmbeddingError | None:
    limit = _limit(asked.model)
    if limit is None or length <= limit:
        return None
    return EmbeddingError(
        f"The text {text} comes to {length} tokens, and {asked.name!r} reads {limit} at once. Make smaller chunks, or "
        "say too_long='cut'."
    )


def _blank(text: Any) -> EmbeddingError | None:
    if isinstance(text, str) and text.strip():
        return None
    return EmbeddingError(f"A text is {shown(text)}; give one that is not blank.")


def _checked(too_long: TooLong) -> TooLong:
    if too_long not in get_args(TooLong):
        raise ConfigError(f"too_long is {too_long!r}. {known_names(str(too_long), get_args(TooLong))}")
    return too_long
