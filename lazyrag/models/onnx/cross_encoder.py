"""Cross-encoders in a folder with an ONNX file: models that read a query and a document together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import numpy as np

from lazyrag.errors import ConfigError, RetrievalError, known_names, sentence
from lazyrag.models.onnx.files import ModelFolder
from lazyrag.models.onnx.folder import find_model
from lazyrag.models.onnx.session import TextModel, rows_at_once
from lazyrag.models.onnx.token_rows import Row, computed, windows
from lazyrag.models.rerank import checked_documents, checked_query, checked_ranking
from lazyrag.validation import known_arguments, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

Activation = Literal["sigmoid", "softmax", "identity"]

_Logits: TypeAlias = "NDArray[np.float64]"  # (labels,)


@known_arguments
class OnnxCrossEncoder:
    """A model that reads a query and a document together and says how well they fit: a `RerankModel`.

    A pair that is longer than the model reads is never cut: the document is read window by window beside the whole
    query, and the best window counts. Equal documents get equal scores, and a score does not depend on what is scored
    beside it. Several threads may use one object at once.

    Args:
        model: A folder, or an id on the hub (``"organisation/name"``), which is looked up on this machine only.
        download: Whether to fetch from the hub what is not on this machine. Nothing else opens a connection.
        revision: A branch, tag or commit on the hub; None means its main branch.
        file: The ONNX file in the folder; None means ``model.onnx`` or ``onnx/model.onnx``, else the only one.
        activation: What makes a score of the model's numbers: ``"sigmoid"``, ``"identity"``, or, of several labels,
            ``"softmax"``. None means what the folder says; where it says nothing, sigmoid for one label, as in
            sentence-transformers, and softmax for several.
        label: The number of the label whose score counts; needed where a model has several.
        max_tokens: At most so many tokens at once, special ones included; None means the model's own limit.
        batch_size: At most so many pairs at once; None means 32, but 1 where pairs would sway each other's scores: in
            graphs with dynamically quantised activations.
        threads: Threads that share the work of one call; None means one for each core.

    Raises:
        ConfigError: If a file is missing, broken or ambiguous, or a value is out of its range.
        MissingDependencyError: If the extra ``onnx`` is not installed.

    Source:
        The best window: Dai, Callan: Deeper Text Understanding for IR with Contextual Neural Language Modeling (MaxP),
        SIGIR 2019, doi:10.1145/3331184.3331303.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        download: bool = False,
        revision: str | None = None,
        file: str | None = None,
        activation: Activation | None = None,
        label: int | None = None,
        max_tokens: int | None = None,
        batch_size: int | None = None,
        threads: int | None = None,
    ) -> None:
        folder = find_model(model, download=download, revision=revision, file=file)
        self.name = folder.name
        self._model = TextModel("OnnxCrossEncoder", folder, file=file, max_tokens=max_tokens, threads=threads)
        self.max_tokens = self._model.max_tokens
        self._output = _output(folder, self._model)
        labels = _count_labels(self._model, self._output)
        self._label = _label(folder, labels, label)
        self._activation = _activation(folder, labels, activation)
        sways = self._model.sways(self._output, self._model.two)
        self._rows_at_once = rows_at_once(batch_size, sways=sways)
        self._swayed = sways and self._rows_at_once > 1

    def __repr__(self) -> str:
        return f"OnnxCrossEncoder({self.name!r}, max_tokens={self.max_tokens})"

    @cached_property
    def identity(self) -> str:
        """The model's name, and a hash of its files and of all settings that scores depend on.

        Raises:
            ConfigError: If a file has changed since it was loaded.
        """
        own = {"activation": self._activation, "label": self._label, "output": self._output, "swayed": self._swayed}
        settings = {**own, **self._model.settings}
        return f"onnx:{self.name}:{self._model.contents.digest(settings)}"

    def __call__(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_n: At most so many, at least 1; None means all of them.

        Returns:
            min(top_n, n) pairs (index into documents, score), best first, ties by index. Scores are in [0, 1], but for
            the activation ``"identity"``; those of one model compare across queries.

        Raises:
            ConfigError: If the query is blank, or so long that it leaves no room for a document; or no texts are given.
            RetrievalError: If the model fails.
        """
        found, limit = checked_documents(documents, top_n)
        distinct = list(dict.fromkeys(found))
        rows = self._rows(query, distinct)
        scores: dict[str, float] = {}
        for batch in computed(rows, self._scores, self._rows_at_once):
            # numpy's maximum lets a nan through, to be told of; Python's would depend on the order.
            scores.update((distinct[number], float(np.max(windows))) for number, windows in batch)
        return checked_ranking(((place, scores[one]) for place, one in enumerate(found)), len(found), repr(self))[
            :limit
        ]

    def _rows(self, query: str, documents: Sequence[str]) -> list[tuple[int, Row]]:
        """The windows of each document beside the query, with its number."""
        checked_query(query)
        asked, *told = self._model.ids([query, *documents])
        room = self.max_tokens - self._model.two.size - len(asked)
        if room < 1:
            msg = (
                f"The query has {len(asked)} tokens, and {self.name!r} reads {self.max_tokens} at once, those of a "
                "document and special ones among them. Shorten the query."
            )
            raise ConfigError(msg)
        return [
            (number, self._model.two.row(asked, window))
            for number, ids in enumerate(told)
            for window in windows(ids, room, full_last=True)
        ]

    def _scores(self, rows: Sequence[Row]) -> list[float]:
        try:
            outputs = self._model.run(rows, self._output)
        except Exception as exc:
            raise RetrievalError(f"{self!r} failed: {sentence(exc)}") from exc
        activate = _ACTIVATIONS[self._activation]
        return [float(activate(output.astype(np.float64))[self._label]) for output in outputs]


def _sigmoid(logits: _Logits) -> _Logits:
    # Of the negative half, so that nothing overflows.
    powers = np.exp(-np.abs(logits))
    scores: _Logits = np.where(logits >= 0, 1.0, powers) / (1.0 + powers)
    return scores


def _softmax(logits: _Logits) -> _Logits:
    powers = np.exp(logits - logits.max())
    scores: _Logits = powers / powers.sum()
    return scores


_ACTIVATIONS: dict[Activation, Callable[[_Logits], _Logits]] = {
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "identity": lambda logits: logits,
}


def _output(folder: ModelFolder, model: TextModel) -> str:
    flat = [name for name, rank in model.ranks.items() if rank < 3]
    chosen = "logits" if "logits" in flat else flat[0] if len(model.ranks) == len(flat) == 1 else None
    others = {str(one.get("type")).rpartition(".")[2] for one in folder.modules() or []} - {"Transformer"}
    if chosen is None or others:
        has = f"the steps {', '.join(sorted(others))}" if others else f"the outputs {', '.join(model.ranks)}"
        msg = (
            f"{folder.path} has {has}; a cross-encoder is a sequence classification model with the output 'logits'. "
            "Is it an embedding model?"
        )
        raise ConfigError(msg)
    return chosen


def _count_labels(model: TextModel, output: str) -> int:
    return len(model.run([model.two.row(*model.ids(["a", "a"]))], output)[0])


def _label(folder: ModelFolder, labels: int, wanted: int | None) -> int:
    if wanted is not None:
        return whole_number("label", wanted, 0, labels - 1)
    if labels > 1:
        names = folder.described("config.json").get("id2label")
        told = f": {names}" if isinstance(names, dict) else ""
        msg = f"{folder.path} has {labels} labels{told}. Say by label=... whose score says how well a document fits."
        raise ConfigError(msg)
    return 0


def _activation(folder: ModelFolder, labels: int, wanted: Activation | None) -> Activation:
    if wanted is not None:
        if wanted not in get_args(Activation) or (wanted == "softmax" and labels == 1):
            allowed = get_args(Activation) if labels > 1 else ("sigmoid", "identity")
            msg = f"activation is {wanted!r} for {labels} labels. {known_names(str(wanted), allowed)}"
            raise ConfigError(msg)
        return wanted
    if labels > 1:
        return "softmax"
    told = _told_activation(folder)
    name = "sigmoid" if told is None else str(told).rpartition(".")[2].lower()
    if name not in {"sigmoid", "identity"}:
        msg = f"{folder.path} names the activation {told!r}, which is not known here. Pass activation='identity'."
        raise ConfigError(msg)
    return cast("Activation", name)


def _told_activation(folder: ModelFolder) -> Any:
    """The class that the folder names, in the places where releases of sentence-transformers have put it."""
    config = folder.described("config.json")
    nested = config.get("sentence_transformers")
    places: tuple[Any, ...] = (
        folder.described("config_sentence_transformers.json").get("activation_fn"),
        nested.get("activation_fn") if isinstance(nested, dict) else None,
        config.get("sbert_ce_default_activation_function"),
    )
    return next((told for told in places if told is not None), None)
