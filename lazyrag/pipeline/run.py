"""One question on its way through a pipeline: each stage timed, traced, and off the event loop."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lazyrag.data.filters import FilterLike
from lazyrag.data.node import DocNode
from lazyrag.data.result import Answer, AnswerDelta, GenerationResult, Hit, RAGContext, RetrievalResult
from lazyrag.errors import AnswerWarning, ConfigError, GenerationError, warn_user
from lazyrag.generation.citations import CitationManager
from lazyrag.generation.context import ContextBuilder
from lazyrag.generation.generator import Generator
from lazyrag.models.concurrency import in_thread
from lazyrag.models.local import AsyncReranker
from lazyrag.models.rerank import checked_ranking
from lazyrag.pipeline.search import Finder, Found, told_by
from lazyrag.pipeline.settings import PipelineSettings
from lazyrag.pipeline.tracing import Span, chat_span, context_span, pipeline_span, rerank_span, retrieval_span
from lazyrag.retrieval.reranker import Reranker, rerankers
from lazyrag.text.sentences import spoken
from lazyrag.validation import whole_number

Rerank: TypeAlias = Callable[[str, Found, int], Awaitable[Found]]
"""Of a question and what was found for it, the best, with the reranker's scores."""


def make_rerank(reranker: Any) -> tuple[Rerank, str]:
    """How to rerank, and by what, for traces.

    Args:
        reranker: A `lazyrag.Reranker`; what has ``async rerank(query, documents, top_k)``, as `AsyncReranker` and
            `CrossEncoderReranker` do; a rerank model, or a callable ``(query, documents=[...], top_n=n)``; or the
            folder or name of a cross-encoder on this machine.

    Raises:
        ConfigError: If it is none of these.
    """
    if isinstance(reranker, Reranker):
        return _by_nodes(reranker), reranker.name
    if isinstance(reranker, str) and reranker in rerankers:
        msg = f"reranker is the name {reranker!r}; give the reranker itself: Reranker({reranker!r}, ...)."
        raise ConfigError(msg)
    if isinstance(reranker, (str, os.PathLike)):
        return _by_texts(AsyncReranker(reranker)), os.fspath(reranker)
    if inspect.iscoroutinefunction(getattr(reranker, "rerank", None)):
        return _by_texts(reranker), _name(getattr(reranker, "model", reranker))
    if not callable(reranker) or isinstance(reranker, type):
        msg = (
            f"reranker is {reranker!r:.60}; give a Reranker, a rerank model, a callable (query, documents=[...], "
            "top_n=n), what has an async rerank(query, documents, top_k), or the folder of a cross-encoder."
        )
        raise ConfigError(msg)
    return _by_texts(AsyncReranker(reranker)), _name(reranker)


def _by_nodes(reranker: Reranker) -> Rerank:
    async def rerank(query: str, found: Found, topk: int) -> Found:
        items: Sequence[DocNode | Hit] = found.items
        given = [one if isinstance(one, DocNode) else _as_node(one, at) for at, one in enumerate(items)]
        kept = (await in_thread(reranker, given, query))[:topk]
        if all(isinstance(one, DocNode) for one in found.items):
            return Found(kept)
        of = {node.uid: at for at, node in enumerate(given)}
        # A reranker may give nodes that it was not given: such as it merged, for one.
        return Found([_again(node, found, of.get(node.uid)) for node in kept])

    return rerank


def _by_texts(reranker: Any) -> Rerank:
    async def rerank(query: str, found: Found, topk: int) -> Found:
        texts = found.texts()
        if not texts:
            return found
        with told_by(f"The reranker {_name(reranker)!r}"):
            given = await reranker.rerank(query, texts, topk)
        ranking = checked_ranking(given, len(texts), repr(reranker))
        return found.picked(ranking[:topk])

    return rerank


def _again(node: DocNode, found: Found, at: int | None) -> Hit:
    """The hit that a node was made of, with the node's score."""
    hit = None if at is None else found.items[at]
    if not isinstance(hit, Hit):
        return Hit.from_node(node)
    return hit if node.score is None else dataclasses.replace(hit, score=node.score)


def _as_node(hit: Hit, number: int) -> DocNode:
    """A hit without a node as one, for rerankers over nodes."""
    # Ids of others may come twice, and be missing.
    return DocNode(text=hit.text, metadata=hit.metadata, uid=f"hit {number}", score=hit.score)


def _name(reranker: Any) -> str:
    identity = getattr(reranker, "identity", None)
    return identity if isinstance(identity, str) and identity else type(reranker).__name__


NOT_FOUND: Mapping[str, str] = {
    "en": "No source was found that could answer this question.",
    "zh": "没有找到可以回答这个问题的资料。",
}
"""What is answered where nothing is found: the model is not asked then."""
NO_ROOM: Mapping[str, str] = {
    "en": "What was found does not fit into the context.",
    "zh": "找到了资料，但上下文中放不下。",
}
"""What is answered where something is found and nothing of it goes into the context."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a pipeline is made of.

    Args:
        finder: Finds hits.
        rerank: Reranks them; None where nothing does.
        reranker: Its name, for traces.
        builder: Writes contexts.
        generator: Answers; None where nothing does.
        citations: Reads answers.
        settings: What holds where a call says nothing.
        name: Of the pipeline, for traces.
        capture_content: Whether traces hold texts.
    """

    finder: Finder
    rerank: Rerank | None
    reranker: str
    builder: ContextBuilder
    generator: Generator | None
    citations: CitationManager
    settings: PipelineSettings
    name: str
    capture_content: bool

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            msg = f"name is {self.name!r:.60}; give a text that is not blank."
            raise ConfigError(msg)

    @property
    def reranks(self) -> bool:
        """Whether answers are of reranked hits."""
        return self.rerank is not None and self.settings.rag_use_reranker


@dataclass(slots=True)
class Run:
    """One question, and how long each stage of it took.

    Args:
        parts: The pipeline's.
        query: The question.
        seconds: By stage; filled while it runs.
    """

    parts: Parts
    query: str
    seconds: dict[str, float] = field(default_factory=dict)

    def span(self, *, current: bool = True) -> contextlib.AbstractContextManager[Span]:
        """Around all of it, for traces."""
        capture = self.parts.capture_content
        return pipeline_span(self.parts.name, self.query, capture_content=capture, current=current)

    async def retrieve(self, top_k: int | None, filters: FilterLike | None) -> Found:
        """Find nodes or hits."""
        finder, topk = self.parts.finder, _limit("top_k", top_k, self.parts.settings.rag_top_k)
        with (
            self._timed("retrieve"),
            retrieval_span(finder.name, self.query, topk, capture_content=self.parts.capture_content) as asked,
        ):
            found = await finder.find(self.query, topk, filters)
            if asked.is_recording:
                asked.hits(found.brief())
        return found

    async def rerank(self, found: Found, top_k: int | None = None) -> Found:
        """The best of them by the reranker; as they are where there is none."""
        topk = _limit("rerank_top_k", top_k, self.parts.settings.rag_rerank_top_k)
        if self.parts.rerank is None or not found.items:
            return found
        capture = self.parts.capture_content
        with (
            self._timed("rerank"),
            rerank_span(self.parts.reranker, self.query, len(found.items), topk, capture_content=capture) as reranking,
        ):
            best = await self.parts.rerank(self.query, found, topk)
            if reranking.is_recording:
                reranking.hits(best.brief(), "lazyrag.rerank.documents")
        return best

    async def context(self, results: Sequence[Hit], max_tokens: int | None) -> RAGContext:
        """Write the context."""
        max_tokens = self._max_tokens(max_tokens)
        with (
            self._timed("context"),
            context_span(max_tokens, capture_content=self.parts.capture_content) as building,
        ):
            built = await in_thread(self.parts.builder.build, self.query, results, max_tokens)
            told = {"lazyrag.context.tokens": built.total_tokens, "lazyrag.context.sources": len(built.sources)}
            building.set(told)
        metadata = {**built.metadata, "seconds": self.seconds}
        return RAGContext(built.query, built.context, built.sources, built.total_tokens, metadata)

    async def whole_context(self, top_k: int | None, max_tokens: int | None, filters: FilterLike | None) -> RAGContext:
        """Retrieve, rerank where that is set, and write the context."""
        max_tokens = self._max_tokens(max_tokens)  # said before anything is asked
        return await self.context(await self.result(await self.best(top_k, filters)), max_tokens)

    async def best(self, top_k: int | None, filters: FilterLike | None) -> Found:
        """Retrieve, and rerank where that is set."""
        found = await self.retrieve(top_k, filters)
        return await self.rerank(found) if self.parts.reranks else found

    async def whole_answer(self, top_k: int | None, max_tokens: int | None, filters: FilterLike | None) -> Answer:
        """From the question to the answer; it warns of nothing."""
        self.generator()  # said before anything is asked
        with self.span() as asked:
            answer = await self.answer(await self.whole_context(top_k, max_tokens, filters))
            asked.answered(answer.text)
            return answer

    async def answer_from(self, results: Sequence[Hit], max_tokens: int | None) -> Answer:
        """From hits to the answer; it warns of nothing."""
        self.generator()
        if not self.query.strip():
            msg = "There is no question: give answer_from(results, query='...'), or results that a pipeline retrieved."
            raise ConfigError(msg)
        with self.span() as asked:
            answer = await self.answer(await self.context(results, max_tokens))
            asked.answered(answer.text)
            return answer

    async def answer(self, context: RAGContext) -> Answer:
        """Have the model answer, and read the answer's citations."""
        generator = self.generator()
        if not context.sources:
            return self.not_found(context)
        with self._timed("generate"), self._chatting(generator) as asked, _keeping(context):
            generation = await generator.agenerate(context)
            asked.generated(generation)
        return self._read(context, generation)

    async def deltas(
        self, top_k: int | None, max_tokens: int | None, filters: FilterLike | None
    ) -> AsyncGenerator[AnswerDelta, None]:
        """Answer piece by piece, from the beginning to the end."""
        generator = self.generator()
        with self.span(current=False) as whole:
            with whole.as_current():
                context = await self.whole_context(top_k, max_tokens, filters)
            if not context.sources:
                answer = self.not_found(context)
                yield AnswerDelta(answer.text)
                yield AnswerDelta("", (), answer)
                return
            reading = self.parts.citations.stream(context.sources)
            generation: GenerationResult[Any] | None = None
            given: set[int] = set()
            with self._timed("generate"), self._chatting(generator, whole) as asked, _keeping(context):
                pieces = generator.astream(context)
                async with contextlib.AsyncExitStack() as stack:
                    if isinstance(pieces, AsyncGenerator):
                        await stack.enter_async_context(contextlib.aclosing(pieces))
                    async for piece in pieces:
                        generation = piece.result or generation
                        completed = reading.feed(piece.text)
                        given.update(citation.index for citation in completed)
                        if piece.text or completed:
                            yield AnswerDelta(piece.text, completed)
                if generation is None:
                    msg = "The generator's stream ended without a result; its last piece must carry one."
                    raise GenerationError(msg)
                asked.generated(generation)
            answer = self._read(context, generation)
            whole.answered(answer.text)
            last = tuple(citation for citation in answer.citations if citation.index not in given)
            yield AnswerDelta("", last, answer)

    async def result(self, found: Found) -> RetrievalResult[dict[str, Any]]:
        """Hits with the question they are of, and the seconds so far."""
        with self._timed("hits"):
            hits = await found.hits()
        return RetrievalResult.from_hits(hits, {"query": self.query, "seconds": self.seconds})

    def generator(self) -> Generator:
        """What answers.

        Raises:
            ConfigError: If the pipeline has none.
        """
        if self.parts.generator is None:
            msg = "The pipeline has no generator: give it a chat model, RAGPipeline(..., generator=HttpChatModel(...))."
            raise ConfigError(msg)
        return self.parts.generator

    def not_found(self, context: RAGContext) -> Answer:
        """The answer where there is nothing to answer from."""
        left_out = context.metadata.get("left_out", ())
        language = context.metadata.get("language") or spoken("auto", self.query)
        text = (NO_ROOM if left_out else NOT_FOUND)[language]
        problems: tuple[str, ...] = ()
        if left_out:
            limit = context.metadata.get("max_tokens")
            problems = (f"None of {len(left_out)} hits fits into max_tokens={limit}; the model was not asked.",)
        generation: GenerationResult[Any] = GenerationResult(text, metadata={"model": None, "problems": [*problems]})
        metadata = {"seconds": self.seconds, "found": len(left_out)}
        return Answer(self.query, text, (), context, generation, problems, metadata)

    def _read(self, context: RAGContext, generation: GenerationResult[Any]) -> Answer:
        resolved = self.parts.citations.resolve(generation.response, context.sources)
        told = generation.metadata if isinstance(generation.metadata, Mapping) else {}
        problems = (*told.get("problems", ()), *resolved.problems)
        metadata = {"seconds": self.seconds, "found": len(context.sources)}
        return Answer(self.query, generation.response, resolved.citations, context, generation, problems, metadata)

    def _max_tokens(self, max_tokens: int | None) -> int:
        return _limit("max_tokens", max_tokens, self.parts.settings.rag_max_context_tokens)

    def _chatting(self, generator: Generator, parent: Span | None = None) -> contextlib.AbstractContextManager[Span]:
        return chat_span(
            str(getattr(generator.model, "model", "") or generator.model.identity),
            options=generator.options,
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


def warn_of(answer: Answer) -> None:
    """Warn of each thing that is wrong with an answer, at the user's own line."""
    for problem in answer.problems:
        warn_user(f"{answer.query!r:.60}: {problem}", AnswerWarning)


def warn_of_each(answers: list[Answer]) -> list[Answer]:
    """The answers, warned of; errors that stand among them are told by themselves."""
    for one in answers:
        if isinstance(one, Answer):
            warn_of(one)
    return answers


@contextlib.contextmanager
def _keeping(context: RAGContext) -> Iterator[None]:
    """A model's failure carries the context: what was found is not lost."""
    try:
        yield
    except GenerationError as exc:
        exc.context = context
        raise


def _limit(what: str, value: int | None, otherwise: int) -> int:
    return otherwise if value is None else whole_number(what, value, 1)
