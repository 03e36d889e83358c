"""Rerank models by HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from lazyrag.errors import ConfigError, RetrievalError, known_names
from lazyrag.models import background
from lazyrag.models.embedding import shown
from lazyrag.models.http.endpoint import Endpoint, make_endpoint
from lazyrag.models.http.faults import EndpointError
from lazyrag.models.http.settings import checked_text
from lazyrag.models.rerank import checked_documents, checked_ranking
from lazyrag.validation import whole_number

if TYPE_CHECKING:
    from typing import Self, Unpack

    from lazyrag.models.http.settings import EndpointOptions

RerankApi: TypeAlias = Literal["common", "tei"]


class HttpRerankModel:
    """A rerank model behind an endpoint with the common ``/rerank``: Jina, Cohere, vLLM, Infinity and others.

    With ``api="tei"`` it is that of Hugging Face's text-embeddings-inference, which serves one model.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, for text-embeddings-inference ``"http://host:port"``; or an
            `Endpoint` to be shared.
        model: The model's name there. Text-embeddings-inference is not told it; it is what `identity` says.
        api_key: See `Endpoint`, as for the further keywords, which are for a URL only.
        api: What the endpoint speaks. ``"common"``: ``documents`` in the question, ``results`` in the answer.
            ``"tei"``: ``texts`` in the question, a list of index and score as the answer. A text that is too long for
            the model is an error there, and not cut.
        batch_size: At most so many documents in a request, at least 1; None: 512, of text-embeddings-inference 32, as
            its servers allow by default. More are asked for at the same time, and their scores compared with each
            other: they are one model's, for one query.

    Raises:
        ConfigError: If a value is out of its range.
        MissingDependencyError: If no HTTP library is installed.

    Example, with a server that runs on this machine::

        with HttpRerankModel("http://localhost:8000/v1", "bge-reranker-v2-m3") as model:
            nodes = Reranker("ModuleReranker", model=model, topk=3)(nodes, query=query)
    """

    def __init__(
        self,
        base_url: str | Endpoint,
        model: str,
        *,
        api_key: str | None = None,
        api: RerankApi = "common",
        batch_size: int | None = None,
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        self.endpoint = make_endpoint(HttpRerankModel, base_url, api_key, endpoint)
        self._owned = not isinstance(base_url, Endpoint)
        self.model = checked_text("model", model)
        if api not in get_args(RerankApi):
            raise ConfigError(f"api is {api!r}. {known_names(str(api), get_args(RerankApi))}")
        self.api: RerankApi = api
        usual = 512 if api == "common" else 32
        self.batch_size = usual if batch_size is None else whole_number("batch_size", batch_size, 1)
        self._name = f"The rerank model {self.model!r} at {self.endpoint.base_url}"

    def __repr__(self) -> str:
        return f"HttpRerankModel({self.endpoint.base_url!r}, {self.model!r})"

    @property
    def identity(self) -> str:
        """URL and model."""
        return f"http:{self.endpoint.base_url}:{self.model}"

    def __call__(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts.
            top_n: At most so many, at least 1; None means all of them.

        Returns:
            min(top_n, n) pairs (index into documents, score), best first, ties by index.

        Raises:
            RetrievalError: If the model fails, or answers with something unusable.
        """
        return background.run(self._rank(checked_text("query", query), *checked_documents(documents, top_n)))

    async def arerank(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents, in any event loop; cancelling the task ends the call."""
        return await background.arun(self._rank(checked_text("query", query), *checked_documents(documents, top_n)))

    def close(self) -> None:
        """Close the endpoint, unless it was given as one and others may use it."""
        if self._owned:
            self.endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _rank(self, query: str, documents: list[str], most: int) -> list[tuple[int, float]]:
        starts = range(0, len(documents), self.batch_size)
        batches = (documents[start : start + self.batch_size] for start in starts)
        try:
            rankings = await background.together(*(self._ask(query, batch, most) for batch in batches))
        except EndpointError as exc:
            msg = f"{self._name} failed: {self.endpoint.hide_secrets(exc)}"
            raise RetrievalError(msg) from exc
        merged = [
            (start + index, score) for start, ranking in zip(starts, rankings, strict=True) for index, score in ranking
        ]
        return sorted(merged, key=lambda pair: (-pair[1], pair[0]))[:most]

    async def _ask(self, query: str, documents: list[str], most: int) -> list[tuple[int, float]]:
        most = min(most, len(documents))
        score = "relevance_score" if self.api == "common" else "score"
        if self.api == "common":
            answer = await self.endpoint.post(
                "/rerank", {"model": self.model, "query": query, "documents": documents, "top_n": most}
            )
            results = answer.get("results") if isinstance(answer, dict) else None
            form = "{'results': [{'index', 'relevance_score'}, ...]}"
        else:
            results = answer = await self.endpoint.post("/rerank", {"query": query, "texts": documents})
            form = "[{'index', 'score'}, ...]"
        if not isinstance(results, list) or not all(_is_result(one, score) for one in results):
            msg = f"the answer is {shown(answer)}, not {form}."
            raise EndpointError(msg)
        ranking = checked_ranking([(one["index"], one[score]) for one in results], len(documents), self._name)
        if len(ranking) < most:
            msg = f"the answer holds {len(ranking)} results; {most} of {len(documents)} documents were asked for."
            raise EndpointError(msg)
        return ranking[:most]


def _is_result(one: Any, score: str) -> bool:
    return isinstance(one, dict) and type(one.get("index")) is int and type(one.get(score)) in (int, float)
