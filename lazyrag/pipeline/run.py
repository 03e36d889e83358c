"""One run of a pipeline: each stage timed, traced, and off the event loop; rerankers as
coroutines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import (
    Answer,
    AnswerDelta,
    GenerationResult,
    Hit,
    RAGContext,
    RetrievalResult,
)
from lazyrag.errors import (
    AnswerWarning,
    ConfigError,
    GenerationError,
    RetrievalError,
    errors_of,
    sentence,
    warn_user,
)
from lazyrag.generation.answerable import WEAK_BELOW, answerable
from lazyrag.generation.citations import CitationManager, CitationStream
from lazyrag.generation.context import ContextBuilder
from lazyrag.generation.extractive import quote_answer
from lazyrag.generation.generator import Generator
from lazyrag.models.chat import UnreadableAnswerError
from lazyrag.models.concurrency import in_thread
from lazyrag.models.local import AsyncReranker
from lazyrag.models.protocols import ChatOptions, Messages
from lazyrag.models.rerank import checked_ranking
from lazyrag.pipeline.defaults import PipelineSettings
from lazyrag.pipeline.search import Finder, RetrievedItems
from lazyrag.pipeline.tracing import (
    Span,
    chat_span,
    context_span,
    pipeline_span,
    rerank_span,
    retrieval_span,
)
from lazyrag.retrieval.query_rewriting import read_queries, standalone_prompt
from lazyrag.retrieval.reranker import Reranker, rerankers
from lazyrag.text.sentences import resolve_language
from lazyrag.types import JsonObject
from lazyrag.validation import require, validate_integer

T = TypeVar("T")

Rerank: TypeAlias = Callable[[str, RetrievedItems, int], Awaitable[RetrievedItems]]
"""Reranks what was found for a query: the best ones, with the reranker's scores."""


def make_rerank(reranker: Any) -> tuple[Rerank, str]:
    """Make a coroutine function of a reranker, and return it with the reranker's name.

    Args:
        reranker: A `lazyrag.Reranker`; an object with ``async rerank(query, documents, top_k)``,
            such as `AsyncReranker` and `CrossEncoderReranker`; a rerank model, or a callable
            ``(query, documents=[...], top_n=n)``; or the folder or name of a cross-encoder on this
            machine.

    Raises:
        ConfigError: If it is none of these.
    """
    if isinstance(reranker, Reranker):
        require(
            reranker.output_format is None,
            "output_format of the reranker",
            reranker.output_format,
            "None",
        )
        return _by_nodes(reranker), reranker.name
    is_name = isinstance(reranker, str) and reranker in rerankers
    require(
        not is_name,
        "reranker",
        reranker,
        "a reranker, not a name",
        f"Pass Reranker({reranker!r:.80}, ...).",
    )
    if isinstance(reranker, (str, os.PathLike)):
        return _by_texts(AsyncReranker(reranker)), os.fspath(reranker)
    if inspect.iscoroutinefunction(getattr(reranker, "rerank", None)):
        return _by_texts(reranker), _name(getattr(reranker, "model", reranker))
    expected = (
        "a Reranker, a rerank model, a callable (query, documents=[...], top_n=n) or a"
        " cross-encoder's folder"
    )
    require(callable(reranker) and not isinstance(reranker, type), "reranker", reranker, expected)
    return _by_texts(AsyncReranker(reranker)), _name(reranker)


def _by_nodes(reranker: Reranker[list[DocNode]]) -> Rerank:
    async def rerank(query: str, retrieved: RetrievedItems, topk: int) -> RetrievedItems:
        items: Sequence[DocNode | Hit] = retrieved.items
        nodes = [
            item if isinstance(item, DocNode) else _as_node(item, at)
            for at, item in enumerate(items)
        ]
        reranked = (await in_thread(reranker, nodes, query))[:topk]
        if all(isinstance(item, DocNode) for item in retrieved.items):
            return RetrievedItems(reranked)
        of = {node.uid: at for at, node in enumerate(nodes)}
        return RetrievedItems(
            [_reranked_hit(node, retrieved, of.get(node.uid)) for node in reranked]
        )

    return rerank


def _by_texts(reranker: Any) -> Rerank:
    async def rerank(query: str, retrieved: RetrievedItems, topk: int) -> RetrievedItems:
        texts = retrieved.texts()
        if not texts:
            return retrieved
        with errors_of(f"The reranker {_name(reranker)!r}", RetrievalError):
            returned = await reranker.rerank(query, texts, topk)
        ranking = checked_ranking(returned, len(texts), repr(reranker))
        return retrieved.select(ranking[:topk])

    return rerank


def _reranked_hit(node: DocNode, retrieved: RetrievedItems, at: int | None) -> Hit:
    """The hit that a node was made of, with the node's score. Rerankers may return new nodes, such
    as merged ones.
    """
    hit = None if at is None else retrieved.items[at]
    if not isinstance(hit, Hit):
        return Hit.from_node(node)
    return hit if node.score is None else dataclasses.replace(hit, score=node.score)


def _as_node(hit: Hit, number: int) -> DocNode:
    """Make a node of a hit, for rerankers over nodes. Ids of foreign hits may be missing or
    repeated.
    """
    return DocNode(text=hit.text, metadata=hit.metadata, uid=f"hit {number}", score=hit.score)


def _name(reranker: Any) -> str:
    identity = getattr(reranker, "identity", None)
    return identity if isinstance(identity, str) and identity else type(reranker).__name__


NOT_FOUND: Mapping[str, str] = {
    "en": "No source was found that could answer this question.",
    "zh": "没有找到可以回答这个问题的资料。",
}
"""The answer if nothing is found; the model is not called."""
_TIMES_TOKENS = 4
"""Of the usual size of a context: without a model, nobody pays for its tokens."""
NO_ROOM: Mapping[str, str] = {
    "en": "What was found does not fit into the context.",
    "zh": "找到了资料，但上下文中放不下。",
}
"""The answer if nothing of what is found fits into the context."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a pipeline.

    Args:
        finder: Finds hits.
        rerank: Reranks them.
        reranker: The reranker's name.
        has_reranker: Whether the user chose it.
        builder: Writes contexts.
        generator: Answers; None: answers are quoted.
        abstain_at: The probability below which the generator is not called; None: it always is.
        citations: Reads answers.
        settings: Defaults of calls.
        name: Of the pipeline, for traces.
        capture_content: Whether traces contain texts.
    """

    finder: Finder
    rerank: Rerank
    reranker: str
    has_reranker: bool
    builder: ContextBuilder
    generator: Generator | None
    abstain_at: float | None
    citations: CitationManager
    settings: PipelineSettings
    name: str
    capture_content: bool

    @property
    def reranks(self) -> bool:
        """Whether answers use reranked hits."""
        return self.has_reranker and self.settings.rag_use_reranker


_CONTINUE = re.compile(
    r"\W*(?:please )?(?:continue|go on|keep going|carry on)(?:,? please)?\W*"
    r"|\W*请?(?:继续|接着|往下)[说讲写答吧]*\W*",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Run:
    """One question, and the seconds of each stage.

    Args:
        parts: The pipeline's.
        query: The question.
        history: The messages before it.
        seconds: By stage; filled by the run.
        problems: Before the answer, one sentence each.
        failure: The error of the model that is one of them; None for none.
    """

    parts: Parts
    query: str
    history: Messages = ()
    seconds: dict[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    failure: GenerationError | None = None
    search_query: str = ""

    def __post_init__(self) -> None:
        self.search_query = self.query

    def span(self, *, current: bool = True) -> contextlib.AbstractContextManager[Span]:
        """The span of the run."""
        capture = self.parts.capture_content
        return pipeline_span(self.parts.name, self.query, capture_content=capture, current=current)

    async def condense(self) -> None:
        """Write the question as a query that is clear without the history; without a chat model it
        stays as it is. "Continue" has the query of the question that is being answered.
        """
        self.search_query, history = self._open_question()
        generator = self.parts.generator
        if generator is None or not history or not self.query.strip():
            return
        options = generator.options  # None: the model's own
        if options is not None:
            options = dataclasses.replace(options, n=1, logprobs=False, json_schema=None)
        prompt = standalone_prompt(self.search_query, history)
        try:
            with self._timed("condense"), self._chat_span(generator, options=options):
                answer = (await generator.model.achat(prompt, options)).choices[0]
            self.search_query = read_queries(answer.text, answer.finish_reason == "length")[0]
        except (UnreadableAnswerError, GenerationError) as exc:
            outcome = "failed" if isinstance(exc, GenerationError) else "wrote no standalone query"
            self.failure = exc if isinstance(exc, GenerationError) else None
            self.problems = (
                sentence(f"The question was searched as it is. The model {outcome}: {exc}"),
            )

    def _open_question(self) -> tuple[str, Messages]:
        """The question, or of "continue" the one before it, and the messages before that."""
        if _CONTINUE.fullmatch(self.query):
            for at, message in reversed([*enumerate(self.history)]):
                if message.role == "user" and not _CONTINUE.fullmatch(message.text):
                    return message.text, self.history[:at]
        return self.query, self.history

    async def retrieve(self, top_k: int | None, filters: FilterLike | None) -> RetrievedItems:
        """Find nodes or hits."""
        finder = self.parts.finder
        topk = _limit("top_k", top_k, self.parts.settings.rag_top_k)
        span = retrieval_span(
            finder.name, self.search_query, topk, capture_content=self.parts.capture_content
        )
        with self._timed("retrieve"), span as retrieving:
            is_blank = not self.search_query.strip()
            retrieved = (
                RetrievedItems([])
                if is_blank
                else await finder.find(self.search_query, topk, filters)
            )
            if retrieving.is_recording:
                retrieving.hits(retrieved.trace_hits())
        return retrieved

    async def rerank(self, retrieved: RetrievedItems, top_k: int | None = None) -> RetrievedItems:
        """Return the best ones by the reranker."""
        topk = _limit("rerank_top_k", top_k, self.parts.settings.rag_rerank_top_k)
        if not retrieved.items:
            return retrieved
        span = rerank_span(
            self.parts.reranker,
            self.search_query,
            len(retrieved.items),
            topk,
            capture_content=self.parts.capture_content,
        )
        with self._timed("rerank"), span as reranking:
            best = await self.parts.rerank(self.search_query, retrieved, topk)
            if reranking.is_recording:
                reranking.hits(best.trace_hits(), "lazyrag.rerank.documents")
        return best

    async def context(self, results: Sequence[Hit], max_tokens: int | None) -> RAGContext:
        """Write the context."""
        max_tokens = self._max_tokens(max_tokens)
        span = context_span(max_tokens, capture_content=self.parts.capture_content)
        with self._timed("context"), span as building:
            built = await in_thread(self.parts.builder.build, self.query, results, max_tokens)
            names = [hit.source for hit in built.sources]
            probability = await in_thread(
                answerable, self.search_query, built.sources.contexts, names
            )
            building.set(
                {
                    "lazyrag.context.tokens": built.total_tokens,
                    "lazyrag.context.sources": len(built.sources),
                }
            )
        weak_below = WEAK_BELOW if self.parts.abstain_at is None else self.parts.abstain_at
        metadata = {
            **built.metadata,
            "answerable": probability,
            "weak": probability < weak_below,
            "seconds": self.seconds,
            **self._conversation(),
        }
        return RAGContext(built.query, built.context, built.sources, built.total_tokens, metadata)

    async def complete_context(
        self, top_k: int | None, max_tokens: int | None, filters: FilterLike | None
    ) -> RAGContext:
        """Retrieve, rerank if that is set, and write the context."""
        max_tokens = self._max_tokens(max_tokens)  # validated before any work
        await self.condense()
        return await self.context(await self.result(await self.best(top_k, filters)), max_tokens)

    async def context_to_answer(
        self, top_k: int | None, max_tokens: int | None, filters: FilterLike | None
    ) -> RAGContext:
        """The complete context; without a generator with the neighbours of the best passages."""
        if self.parts.generator is not None:
            return await self.complete_context(top_k, max_tokens, filters)
        best = await (await self.best(top_k, filters)).with_neighbours()
        return await self.context(await self.result(best), max_tokens or self.tokens_to_quote())

    def tokens_to_quote(self) -> int:
        """Size of a context that quotations are chosen from."""
        return _TIMES_TOKENS * self._max_tokens(None)

    async def best(self, top_k: int | None, filters: FilterLike | None) -> RetrievedItems:
        """Retrieve, and rerank if that is set."""
        retrieved = await self.retrieve(top_k, filters)
        return await self.rerank(retrieved) if self.parts.reranks else retrieved

    async def complete_answer(
        self,
        top_k: int | None = None,
        max_tokens: int | None = None,
        filters: FilterLike | None = None,
    ) -> Answer:
        """Run all stages, without warnings."""
        return await self._answered(lambda: self.context_to_answer(top_k, max_tokens, filters))

    async def answer_from(self, results: Sequence[Hit], max_tokens: int | None) -> Answer:
        """Answer from hits, without warnings."""
        if not self.query.strip():
            raise ConfigError(
                "There is no question. Pass query='...', or results that a pipeline retrieved."
            )
        return await self._answered(lambda: self.context(results, max_tokens))

    async def _answered(self, build: Callable[[], Awaitable[RAGContext]]) -> Answer:
        with self.span() as span:
            answer = await self.answer(await build())
            span.answered(answer.text)
            return answer

    async def answer(self, context: RAGContext) -> Answer:
        """Answer with the model, or by quotations, and resolve the answer's citations."""
        if not context.sources:
            return self.not_found(context)
        generator = self.generator_for(context)
        if generator is None:
            with self._timed("generate"):
                quoted = await in_thread(quote_answer, context)
            return _with_quotes(self._resolved(context, quoted))
        with self._timed("generate"), self._chat_span(generator) as chat, _errors_with(context):
            generation = await generator.agenerate(context)
            chat.generated(generation)
        return await in_thread(self._resolved, context, generation)

    async def deltas(
        self,
        top_k: int | None,
        max_tokens: int | None,
        filters: FilterLike | None,
        results: Sequence[Hit] | None = None,
    ) -> AsyncGenerator[AnswerDelta, None]:
        """Run all stages, or those behind the retrieval of some hits, and stream the answer."""
        with self.span(current=False) as span:
            with span.as_current():
                pending = (
                    self.context_to_answer(top_k, max_tokens, filters) if results is None else None
                )
                context = await (pending or self.context(results or (), max_tokens))
            generator = self.generator_for(context)
            if generator is None or not context.sources:
                answer = await self.answer(context)
                span.answered(answer.text)
                yield AnswerDelta(answer.text, answer.citations, statements=answer.statements)
                yield AnswerDelta("", (), answer)
                return
            reading = self.parts.citations.stream(context.sources)
            generation: GenerationResult[Any] | None = None
            yielded: set[int] = set()
            checked = 0  # characters of the answer whose statements were yielded
            with (
                self._timed("generate"),
                self._chat_span(generator, span) as chat,
                _errors_with(context, reading),
            ):
                pieces = generator.astream(context)
                async with contextlib.AsyncExitStack() as stack:
                    if isinstance(pieces, AsyncGenerator):
                        await stack.enter_async_context(contextlib.aclosing(pieces))
                    async for piece in pieces:
                        generation = piece.result or generation
                        completed = reading.feed(piece.text)
                        yielded.update(citation.index for citation in completed)
                        statements = reading.statements()
                        checked = statements[-1].span[1] if statements else checked
                        if piece.text or completed or statements:
                            yield AnswerDelta(piece.text, completed, statements=statements)
                if generation is None:
                    raise GenerationError(
                        "The generator's stream ended without a result in its last piece."
                    )
                chat.generated(generation)
            answer = await in_thread(self._resolved, context, generation)
            span.answered(answer.text)
            last = tuple(citation for citation in answer.citations if citation.index not in yielded)
            rest = tuple(
                statement for statement in answer.statements if statement.span[0] >= checked
            )
            yield AnswerDelta("", last, answer, rest)

    async def result(self, items: RetrievedItems, **more: Any) -> RetrievalResult[JsonObject]:
        """Return hits with the query, the seconds so far, and more metadata."""
        with self._timed("hits"):
            hits = await items.hits()
        return RetrievalResult.from_hits(
            hits, {"query": self.query, "seconds": self.seconds, **more}
        )

    def generator_for(self, context: RAGContext) -> Generator | None:
        """Return the generator; None if there is none, or if it abstains: the answer is quoted."""
        abstains = self.parts.abstain_at is not None and context.metadata["weak"]
        return None if abstains else self.parts.generator

    def not_found(self, context: RAGContext) -> Answer:
        """Return the answer for a context without sources."""
        left_out = context.metadata.get("left_out", ())
        language = context.metadata.get("language") or resolve_language("auto", self.query)
        text = (NO_ROOM if left_out else NOT_FOUND)[language]
        problems = self.problems
        if left_out:
            limit = context.metadata.get("max_tokens")
            problem = (
                f"None of {len(left_out)} hits fits into max_tokens={limit}; the model was not"
                " called."
            )
            problems = (*problems, problem)
        generation: GenerationResult[Any] = GenerationResult(
            text, metadata={"model": None, "problems": [*problems]}
        )
        metadata = {"seconds": self.seconds, "found": len(left_out)}
        return Answer(self.query, text, (), context, generation, problems, metadata)

    def _resolved(self, context: RAGContext, generation: GenerationResult[Any]) -> Answer:
        resolved = self.parts.citations.resolve(generation.response, context.sources)
        details = generation.metadata if isinstance(generation.metadata, Mapping) else {}
        problems = (*self.problems, *details.get("problems", ()), *resolved.problems)
        metadata = {"seconds": self.seconds, "found": len(context.sources)}
        return Answer(
            self.query,
            generation.response,
            resolved.citations,
            context,
            generation,
            problems,
            metadata,
            resolved.statements,
        )

    def _conversation(self) -> JsonObject:
        """The metadata of a conversation; none without a history."""
        history = [{"role": message.role, "content": message.content} for message in self.history]
        problems = {"problems": [*self.problems]} if self.problems else {}
        return (
            {"history": history, "search_query": self.search_query, **problems} if history else {}
        )

    def _max_tokens(self, max_tokens: int | None) -> int:
        return _limit("max_tokens", max_tokens, self.parts.settings.rag_max_context_tokens)

    def _chat_span(
        self, generator: Generator, parent: Span | None = None, options: ChatOptions | None = None
    ) -> contextlib.AbstractContextManager[Span]:
        return chat_span(
            str(getattr(generator.model, "model", "") or generator.model.identity),
            options=options or generator.options,
            stream=parent is not None,
            capture_content=self.parts.capture_content,
            parent=parent,
        )

    @contextlib.contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = time.perf_counter() - begun


def _with_quotes(answer: Answer) -> Answer:
    """The quoted words as the snippets of an answer's citations: of several, the first."""
    words: dict[int, str] = {}
    for quote in answer.generation.metadata["quotes"]:
        words.setdefault(quote["index"], quote["text"])
    citations = tuple(
        dataclasses.replace(citation, text_snippet=words.get(citation.index, citation.text_snippet))
        for citation in answer.citations
    )
    return dataclasses.replace(answer, citations=citations)


def emit_answer_warnings(result: T) -> T:
    """Warn of the problems of an answer, or of a list of answers, at the user's own line; return
    the result.
    """
    answers: list[Any] = result if isinstance(result, list) else [result]
    for answer in answers:
        for problem in answer.problems if isinstance(answer, Answer) else ():
            warn_user(f"{answer.query!r:.60}: {problem}", AnswerWarning)
    return result


@contextlib.contextmanager
def _errors_with(context: RAGContext, reading: CitationStream | None = None) -> Iterator[None]:
    """Attach the context and the answer so far to errors of the model: they are not lost."""
    try:
        yield
    except GenerationError as exc:
        exc.context = context
        exc.text = reading.text if reading else ""
        raise


def _limit(name: str, value: int | None, default: int) -> int:
    return default if value is None else validate_integer(name, value, 1)
