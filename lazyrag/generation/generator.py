"""`Generator`: a chat model answers from a context."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

from lazyrag.data.result import GenerationDelta, GenerationResult, RAGContext
from lazyrag.errors import ConfigError, GenerationError, known_names
from lazyrag.generation.answers import AnswerReader, ReadAnswer, read_answer
from lazyrag.generation.confidence import agreement, likelihood
from lazyrag.generation.prompts import Prompts
from lazyrag.models.chat import CallableChatModel, ChatCallable, as_chat_model
from lazyrag.models.protocol import (
    ChatChoice,
    ChatCompletion,
    ChatDelta,
    ChatModel,
    ChatOptions,
    Prompt,
    TokenLogprob,
    Usage,
)
from lazyrag.text.sentences import Language, Spoken, spoken
from lazyrag.validation import known_arguments, whole_number

Confidence: TypeAlias = Literal["auto", "logprobs", "agreement"]
Generated: TypeAlias = "GenerationResult[dict[str, Any]]"


@known_arguments
class Generator:
    """Answers questions from contexts, by a chat model, whole or piece by piece (spec 002's generation).

    Args:
        model: A `ChatModel`, or a callable from a text to a text.
        n: How many candidates to ask for, at least 1. Of several the response is the one that agrees most with the
            others (`lazyrag.generation.confidence.agreement`), the first of those that tie; blank ones do not count.
            At temperature 0 all are the likeliest answer, and that they agree says nothing.
        options: Passed to the model, with ``n`` set; None takes the model's own where it has some.
        confidence: ``"logprobs"``: how likely the model holds the response to be, by its tokens' probabilities, which
            it is asked for. ``"agreement"``: how far the response agrees with the other candidates. ``"auto"``: by
            the probabilities where the model gives them unasked or ``options`` ask for them, else by agreement. It
            asks for none itself: some servers refuse. None: none.
        prompts: The system messages; None takes those of `Prompts`. A bare callable, which takes one text, gets the
            system message before the context, with an empty line between.
        language: Of the system message; ``"auto"`` is the context's where its metadata say so, else the question's.

    Raises:
        ConfigError: If an argument is out of its range.

    Example:
        >>> from lazyrag import RAGContext, RetrievalResult
        >>> context = RAGContext("How hot?", "[1] Water of 80 degrees. How hot?", RetrievalResult([]), 9)
        >>> generator = Generator(lambda text: "<think>Easy.</think>80 degrees [1].")
        >>> result = generator.generate(context)
        >>> result.response, result.confidence, result.metadata["reasoning"]
        ('80 degrees [1].', None, 'Easy.')
    """

    def __init__(
        self,
        model: ChatModel | ChatCallable,
        *,
        n: int = 1,
        options: ChatOptions | None = None,
        confidence: Confidence | None = "auto",
        prompts: Prompts | None = None,
        language: Language = "auto",
    ) -> None:
        self.model = as_chat_model(model)
        self.n = whole_number("n", n, 1)
        self.options = _checked_options(options, self.n)
        if confidence is not None and confidence not in get_args(Confidence):
            msg = (
                f"confidence is {confidence!r:.60}. {known_names(str(confidence), get_args(Confidence))} Or give None."
            )
            raise ConfigError(msg)
        if language not in get_args(Language):
            msg = f"language is {language!r:.60}. {known_names(str(language), get_args(Language))}"
            raise ConfigError(msg)
        if prompts is not None and not isinstance(prompts, Prompts):
            msg = f"prompts is {prompts!r:.60}; give Prompts(en=..., zh=...), or None for the built-in ones."
            raise ConfigError(msg)
        self.confidence = confidence
        self.prompts = prompts or Prompts()
        self.language = language

    def __repr__(self) -> str:
        return f"Generator({self.model!r}, n={self.n})"

    def generate(self, context: RAGContext) -> Generated:
        """Answer, and wait for it.

        Returns:
            The response; all candidates where several were asked for, in order, blank ones as ""; the confidence, None
            where it is not known. Metadata: ``model``, ``usage`` (a dict, or None), ``finish_reason`` of the response
            and ``finish_reasons`` of all, ``chosen`` (which candidate, from 0), ``language``, ``confidence_by`` (its
            measure, or None), ``reasoning`` (thoughts before the response, or None), ``problems`` (sentences),
            ``seconds`` (from the call to the end).

        Raises:
            ConfigError: If the context is none, or blank.
            GenerationError: If the model fails, or answers with something unusable. A blank or cut answer is none of
                these: it is handed out, and stands among the problems.
        """
        asked = self._asked(context)
        return self._result(asked, self.model.chat(asked.prompt, asked.options))

    async def agenerate(self, context: RAGContext) -> Generated:
        """Answer, in any event loop; cancelling the task ends the model's call."""
        asked = self._asked(context)
        return self._result(asked, await self.model.achat(asked.prompt, asked.options))

    def stream(self, context: RAGContext) -> Iterator[GenerationDelta]:
        """Answer piece by piece; closing or dropping the iterator ends the model's call.

        Returns:
            Pieces of the response, without the thoughts before it; the last one carries the result. Joined they are
            the response, unless thoughts ended that never began: those came as pieces, and stand among the problems.

        Raises:
            ConfigError: If the context is none, or blank, or ``n`` is above 1: pieces of several candidates are no
                answer.
            GenerationError: If the model fails, or the answer is cut off; after the pieces that came.
        """
        return self._stream(self._asked(context, streamed=True))

    def astream(self, context: RAGContext) -> AsyncIterator[GenerationDelta]:
        """Answer piece by piece, in any event loop."""
        return self._astream(self._asked(context, streamed=True))

    def _stream(self, asked: _Asked) -> Iterator[GenerationDelta]:
        streaming = _Streaming(asked)
        deltas = self.model.stream(asked.prompt, asked.options)
        try:
            for delta in deltas:
                if text := streaming.feed(delta):
                    yield GenerationDelta(text)
        finally:
            if isinstance(deltas, collections.abc.Generator):
                deltas.close()
        yield self._last_piece(streaming)

    async def _astream(self, asked: _Asked) -> AsyncGenerator[GenerationDelta, None]:
        streaming = _Streaming(asked)
        deltas = self.model.astream(asked.prompt, asked.options)
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(deltas, AsyncGenerator):
                await stack.enter_async_context(contextlib.aclosing(deltas))
            async for delta in deltas:
                if text := streaming.feed(delta):
                    yield GenerationDelta(text)
        yield self._last_piece(streaming)

    def _asked(self, context: RAGContext, *, streamed: bool = False) -> _Asked:
        """What the model is asked."""
        if not isinstance(context, RAGContext) or not context.context.strip():
            given = "a blank context" if isinstance(context, RAGContext) else f"{context!r:.60}"
            msg = f"The generator got {given}; give a RAGContext with a text for the model to read."
            raise ConfigError(msg)
        if streamed and self.n > 1:
            msg = f"n is {self.n}; streaming gives one answer. Use n=1, or generate, which waits for all candidates."
            raise ConfigError(msg)
        language = self._language(context)
        one_text = isinstance(self.model, CallableChatModel)
        prompt: Prompt = (self.prompts.text if one_text else self.prompts.messages)(context, language)
        sent = prompt if isinstance(prompt, str) else context.context
        return _Asked(prompt, sent, self._call_options(), language, time.perf_counter())

    def _language(self, context: RAGContext) -> Spoken:
        """That of the system message: both messages speak one language."""
        told = context.metadata.get("language")
        return told if self.language == "auto" and told in ("en", "zh") else spoken(self.language, context.query)

    def _call_options(self) -> ChatOptions | None:
        """The options given, else the model's own, with n and logprobs set; None where there is nothing to say."""
        logprobs = self.confidence == "logprobs"
        own = getattr(self.model, "options", None)
        options = self.options or (own if isinstance(own, ChatOptions) else None)
        if options is None and self.n == 1 and not logprobs:
            return None
        options = options or ChatOptions()
        return dataclasses.replace(options, n=self.n, logprobs=logprobs or options.logprobs)

    def _result(self, asked: _Asked, completion: ChatCompletion) -> Generated:
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            msg = f"The chat model {self._name()} answered with {completion!r:.80}; a ChatCompletion is needed."
            raise GenerationError(msg)
        choices = completion.choices[: self.n]
        read = [read_answer(one.text, asked.read, one.finish_reason) for one in choices]
        return self._generated(asked, read, choices, completion)

    def _last_piece(self, streaming: _Streaming) -> GenerationDelta:
        """What was held back of an answer that came in pieces, and the whole."""
        text = streaming.reader.end()
        read = streaming.reader.answer(streaming.finish_reason, streamed=True)
        choice = ChatChoice("", streaming.finish_reason, tuple(streaming.logprobs) or None)
        return GenerationDelta(text, self._generated(streaming.asked, [read], [choice], ChatCompletion((choice,))))

    def _generated(
        self, asked: _Asked, read: Sequence[ReadAnswer], choices: Sequence[ChatChoice], completion: ChatCompletion
    ) -> Generated:
        chosen, agreed = _most_agreed([one.text for one in read])
        response = read[chosen]
        likely = _likelihood(response, choices[chosen].logprobs)
        measures = {"logprobs": likely, "agreement": agreed}
        wanted = measures if self.confidence == "auto" else [self.confidence] if self.confidence else []
        measure = next((name for name in wanted if measures[name] is not None), None)
        metadata = {
            "model": completion.model or self.model.identity,
            "usage": _as_dict(completion.usage),
            "finish_reason": choices[chosen].finish_reason,
            "finish_reasons": [one.finish_reason for one in choices],
            "chosen": chosen,
            "language": asked.language,
            "confidence_by": measure,
            "reasoning": response.reasoning or None,
            "problems": _problems(read, chosen, self.n),
            "seconds": time.perf_counter() - asked.since,
        }
        return GenerationResult(
            response.text,
            [one.text for one in read] if self.n > 1 else None,
            None if measure is None else measures[measure],
            metadata,
        )

    def _name(self) -> str:
        return repr(self.model.identity or type(self.model).__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """One call of the model."""

    prompt: Prompt
    read: str  # the message that an answer might repeat
    options: ChatOptions | None
    language: Spoken
    since: float  # by the performance counter


class _Streaming:
    """What has come of one answer."""

    def __init__(self, asked: _Asked) -> None:
        self.asked = asked
        self.reader = AnswerReader(asked.read)
        self.finish_reason: str | None = None
        self.logprobs: list[TokenLogprob] = []

    def feed(self, delta: ChatDelta) -> str:
        """What of the answer it brings."""
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.logprobs += delta.logprobs or ()
        return self.reader.feed(delta.text)


def _checked_options(options: ChatOptions | None, n: int) -> ChatOptions | None:
    if options is not None and not isinstance(options, ChatOptions):
        msg = f"options is {options!r:.80}; give ChatOptions(temperature=0.3, max_tokens=500), for example."
        raise ConfigError(msg)
    if options is not None and options.n not in (1, n):
        msg = f"options.n is {options.n} and n is {n}; say n={options.n} to the Generator alone."
        raise ConfigError(msg)
    return options


def _most_agreed(texts: Sequence[str]) -> tuple[int, float | None]:
    """Which candidate agrees most with the others, and how far; blank ones do not count."""
    counting = [at for at, text in enumerate(texts) if text]
    if len(counting) < 2:
        return (counting[0] if counting else 0), None
    agreed = agreement([texts[at] for at in counting])
    best = max(agreed)
    return counting[agreed.index(best)], best


def _likelihood(answer: ReadAnswer, tokens: Sequence[TokenLogprob] | None) -> float | None:
    """The likelihood of an answer's own tokens: what stands before it, such as thoughts, does not count."""
    if not tokens or not answer.text:
        return None
    begin = came = 0
    while begin < len(tokens) and came < answer.skipped:
        came += len(tokens[begin].token)
        begin += 1
    return likelihood([one.logprob for one in tokens[begin:]])


def _as_dict(usage: Usage | None) -> dict[str, int] | None:
    return None if usage is None else dataclasses.asdict(usage)


def _problems(read: Sequence[ReadAnswer], chosen: int, wanted: int) -> list[str]:
    """What was wrong with the response, and with the candidates beside it."""
    problems = list(read[chosen].problems)
    if len(read) < wanted:
        problems.append(f"The model gave {len(read)} of {wanted} candidates.")
    blank = sum(not one.text for one in read)
    if 0 < blank < len(read):
        problems.append(f"{blank} of {len(read)} candidates are blank." if blank > 1 else "One candidate is blank.")
    return problems
