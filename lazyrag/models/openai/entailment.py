"""Entailment models behind an HTTP endpoint: `HttpEntailmentModel`."""

from __future__ import annotations

from typing import Any, Unpack

from lazyrag.data.result import Verdict
from lazyrag.errors import GenerationError
from lazyrag.models import concurrency
from lazyrag.models.embedding import shown
from lazyrag.models.openai.client import Endpoint, EndpointError, EndpointOptions
from lazyrag.models.openai.models import _HttpModel
from lazyrag.validation import sendable

_VERDICTS: dict[str, Verdict] = {"entail": "supported", "contra": "contradicted"}
"""By the beginning of a label."""


@sendable
class HttpEntailmentModel(_HttpModel):
    """A judge of statements, for `CitationManager` and `RAGPipeline`: an entailment model (natural
    language inference) behind Hugging Face's text-embeddings-inference.

    Its ``/predict`` gets the source and the statement; the label with the highest score is the
    verdict: entailment, contradiction, or another one, which is ``"not_found"``. What is too long
    for the model is cut there.

    Args:
        base_url: The endpoint: ``"http://host:port"``, or an `Endpoint` to share.
        model: Name of the model, for messages: the server has one.
        api_key: See `Endpoint`, as for further keywords. Only with a URL.

    Raises:
        ConfigError: If an argument is invalid.
        MissingDependencyError: If the extra ``openai`` is not installed.

    Example, with a server that runs on this machine::

        judge = HttpEntailmentModel("http://localhost:8080", "deberta-v3-base-mnli")
        RAGPipeline(docs, retriever, model, judge=judge)
    """

    def __init__(
        self,
        base_url: str | Endpoint,
        model: str = "entailment",
        *,
        api_key: str | None = None,
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        super().__init__("entailment", base_url, model, api_key, endpoint)

    def __call__(self, statement: str, source: str) -> Verdict:
        """Return the verdict on a statement by the text of a source.

        Raises:
            GenerationError: If the server fails, or its answer cannot be used.
        """
        body = {"inputs": [[source, statement]], "truncate": True}
        try:
            return _verdict(concurrency.run(self.endpoint.post("/predict", body, 1)))
        except EndpointError as exc:
            raise GenerationError(self._message(exc)) from exc


def _verdict(answer: Any) -> Verdict:
    """The verdict of the best label.

    Raises:
        EndpointError: If there are no labels with scores.
    """
    try:
        [labels] = answer
        scores = {str(entry["label"]): float(entry["score"]) for entry in labels}
        best = max(scores, key=scores.__getitem__).lower()
    except (KeyError, TypeError, ValueError) as exc:
        msg = f"the answer must be [[{{'label', 'score'}}, ...]]; got {shown(answer)}."
        raise EndpointError(msg) from exc
    return _VERDICTS.get(best[:6], "not_found")
