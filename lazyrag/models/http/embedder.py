"""Embeddings by HTTP."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lazyrag.errors import EmbeddingError
from lazyrag.models import background
from lazyrag.models.embedding import (
    CheckedEmbedder,
    as_vector,
    blank_error,
    checked_input_type,
    is_blank,
    listed_texts,
    shown,
    stacked,
)
from lazyrag.models.http.endpoint import Endpoint, make_endpoint
from lazyrag.models.http.faults import EndpointError
from lazyrag.models.http.settings import checked_text
from lazyrag.models.protocol import Embedded, EmbeddedBatch, InputType
from lazyrag.types import Matrix
from lazyrag.validation import whole_number, yes_or_no

if TYPE_CHECKING:
    from typing import Self, Unpack

    from lazyrag.models.http.settings import EndpointOptions

_WITNESSES = 3
_AHEAD = 2  # batches that are done and wait for their consumer, beside those under way


class HttpEmbedder:
    """An embedding model behind an endpoint that speaks OpenAI's protocol.

    Batches run concurrently, as far as the endpoint's limits allow. A batch that is refused is narrowed down to the
    texts at fault, often one that is too long; a batch that fails for good fails its texts and no others.

    Args:
        base_url: The endpoint: ``"http://host:port/v1"``, or an `Endpoint` to be shared.
        model: The model's name there.
        api_key: See `Endpoint`, as for the further keywords, which are for a URL only.
        dimension: The length of the vectors; the server is asked for it, so the model must be able to shorten them, or
            have it anyway. Vectors of another length fail. None takes the model's own.
        max_tokens: How many tokens of a text the model reads; None where it is not known.
        normalised: Whether the model gives vectors of length 1. They are taken as they come.
        batch_size: At most so many texts in a request, at least 1.
        query_prefix: What the model wants to stand before a question: ``"query: "``.
        document_prefix: What it wants before a text that is searched: ``"passage: "``.

    Raises:
        ConfigError: If a value is out of its range.
        MissingDependencyError: If no HTTP library is installed.

    Example, with a server that runs on this machine::

        with HttpEmbedder("http://localhost:8000/v1", "bge-m3", query_prefix="query: ") as embedder:
            document = Document("docs", embed=embedder)
    """

    def __init__(
        self,
        base_url: str | Endpoint,
        model: str,
        *,
        api_key: str | None = None,
        dimension: int | None = None,
        max_tokens: int | None = None,
        normalised: bool = False,
        batch_size: int = 64,
        query_prefix: str = "",
        document_prefix: str = "",
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        self.endpoint = make_endpoint(HttpEmbedder, base_url, api_key, endpoint)
        self._owned = not isinstance(base_url, Endpoint)
        self.model = checked_text("model", model)
        self.dimension = dimension if dimension is None else whole_number("dimension", dimension, 1)
        self.max_tokens = max_tokens if max_tokens is None else whole_number("max_tokens", max_tokens, 1)
        self.normalised = yes_or_no("normalised", normalised)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self._prefixes: dict[InputType, str] = {
            "query": checked_text("query_prefix", query_prefix, blank=True),
            "document": checked_text("document_prefix", document_prefix, blank=True),
        }
        self._name = f"The embedding model {self.model!r} at {self.endpoint.base_url}"

    def __repr__(self) -> str:
        return f"HttpEmbedder({self.endpoint.base_url!r}, {self.model!r})"

    @property
    def identity(self) -> str:
        """URL, model, and those of the settings that change vectors."""
        told = [] if self.dimension is None else [f"dimension={self.dimension}"]
        told += [f"{name}_prefix={prefix!r}" for name, prefix in self._prefixes.items() if prefix]
        return ":".join(["http", self.endpoint.base_url, self.model, *told])

    def embed(self, texts: Sequence[str], input_type: InputType = "document") -> Matrix:
        """Embed texts, all or nothing.

        Args:
            texts: n texts, none of them blank.
            input_type: Whether they are questions, or what is searched.

        Returns:
            (n, dim) float32, finite, in the order of the texts.

        Raises:
            EmbeddingError: If a text has no vector; the error of the first one.
        """
        asked = CheckedEmbedder(self, self._name)
        dimension = self.dimension or 0
        return stacked(asked.embed_each(texts, dimension, input_type), self._name, dimension)

    def embed_batches(self, texts: Sequence[str], input_type: InputType = "document") -> Iterator[EmbeddedBatch]:
        """Embed texts; every position comes exactly once, batches as they get done.

        Closing or dropping the iterator ends the calls that are under way. Where the consumer is slow, only a few
        batches are asked for ahead of it.
        """
        given = listed_texts(texts)
        return background.stream(self._batches(given, checked_input_type(input_type)), _AHEAD)

    def close(self) -> None:
        """Close the endpoint, unless it was given as one and others may use it."""
        if self._owned:
            self.endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _batches(self, given: list[Any], input_type: InputType) -> AsyncGenerator[EmbeddedBatch, None]:
        blank = [place for place, text in enumerate(given) if is_blank(text)]
        if blank:
            yield EmbeddedBatch(blank, [blank_error(given[place]) for place in blank])
        places = [place for place, text in enumerate(given) if not is_blank(text)]
        texts = [self._prefixes[input_type] + given[place] for place in places]
        judge = _Judge(texts)
        starts = iter(range(0, len(texts), self.batch_size))
        running: set[asyncio.Task[EmbeddedBatch]] = set()
        try:
            while True:
                for start in itertools.islice(starts, self.endpoint.concurrency - len(running)):
                    some = slice(start, start + self.batch_size)
                    running.add(asyncio.ensure_future(self._batch(places[some], texts[some], judge)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _batch(self, places: list[int], texts: list[str], judge: _Judge) -> EmbeddedBatch:
        return EmbeddedBatch(places, await self._results(texts, judge))

    async def _results(self, texts: list[str], judge: _Judge) -> list[Embedded]:
        """For each text its vector or its error; where several are refused together, by asking for halves and so on."""
        if judge.verdict is None:
            try:
                return await self._asked(texts, judge)
            except EndpointError as exc:
                error = self._error(exc)
                if exc.hopeless:
                    judge.verdict = error
                elif exc.refused:
                    await self._ask_witnesses(judge)
                if judge.verdict is None and exc.refused and len(texts) > 1:
                    half = len(texts) // 2
                    parts = (self._results(part, judge) for part in (texts[:half], texts[half:]))
                    return [result for part in await background.together(*parts) for result in part]
        return [judge.verdict or error] * len(texts)

    async def _ask_witnesses(self, judge: _Judge) -> None:
        """Find out, once in a call, whether it is the request that is refused."""
        async with judge.turn:
            refused = []
            asked = len(judge.witnesses)
            while judge.witnesses and not judge.accepted and judge.verdict is None:
                try:
                    await self._asked([judge.witnesses.pop()], judge)
                except EndpointError as exc:
                    refused.append(exc)
            if 1 < asked == len(refused) and all(exc.refused and exc.status == refused[0].status for exc in refused):
                judge.verdict = self._error(refused[0])

    async def _asked(self, texts: list[str], judge: _Judge) -> list[Embedded]:
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self.dimension is not None:
            body["dimensions"] = self.dimension
        answer = await self.endpoint.post("/embeddings", body)
        judge.accepted = True
        return [self._vector(value) for value in _in_order(answer, len(texts))]

    def _vector(self, value: Any) -> Embedded:
        try:
            vector = as_vector(value if isinstance(value, list) else [value])
        except ValueError as exc:
            return self._error(EndpointError(f"the answer for a text is unusable: it {exc}."))
        if self.dimension not in (None, len(vector)):
            return EmbeddingError(
                f"{self._name} returned {len(vector)} numbers instead of dimension={self.dimension}. "
                "Leave dimension out, or give the one that the model has."
            )
        return vector

    def _error(self, fault: EndpointError) -> EmbeddingError:
        error = EmbeddingError(f"{self._name} failed: {self.endpoint.hide_secrets(fault)}")
        error.__cause__ = fault
        return error


class _Judge:
    """What the calls for one list of texts have shown.

    Where everything is refused, narrowing down would take two calls for each text. So three texts are asked for alone,
    the shortest and two of middling length, as a text may be too short or too long: if they are refused alike, and
    nothing was accepted, the fault is not in the texts.
    """

    def __init__(self, texts: list[str]) -> None:
        self.accepted = False
        self.verdict: EmbeddingError | None = None  # the error of every text that is still to be asked for
        by_length = sorted(texts, key=len)
        places = {len(texts) * number // _WITNESSES for number in range(_WITNESSES)} if len(texts) > 1 else set()
        self.witnesses = [by_length[place] for place in sorted(places, reverse=True)]
        self.turn = asyncio.Lock()


def _in_order(answer: Any, count: int) -> list[Any]:
    """The embeddings of an answer in the order of the texts.

    Raises:
        EndpointError: If there is not exactly one for each.
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(one, dict) and "embedding" in one for one in data):
        msg = f"the answer to {count} texts is {shown(answer)}, not {{'data': [{{'index', 'embedding'}}, ...]}}."
        raise EndpointError(msg)
    found = {one.get("index"): one["embedding"] for one in data if type(one.get("index")) is int}
    if len(data) != count or found.keys() != set(range(count)):
        told = f"{[one.get('index') for one in data]!r:.80}"
        msg = f"{count} texts were answered with {len(data)} vectors, of the indices {told}; each must come once."
        raise EndpointError(msg)
    return [found[index] for index in range(count)]
