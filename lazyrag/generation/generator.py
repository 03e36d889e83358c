"""`Generator`: answers of a chat model from a context, with their confidence."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import math
import re
import time
import unicodedata
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lazyrag.data.result import GenerationDelta, GenerationResult, RAGContext
from lazyrag.errors import ConfigError, GenerationError
from lazyrag.generation.markers import without_markers
from lazyrag.generation.prompts import Prompts
from lazyrag.models.chat import (
    CallableChatModel,
    ChatCallable,
    ReasoningSplitter,
    as_chat_model,
    split_unopened,
)
from lazyrag.models.protocols import (
    ChatChoice,
    ChatCompletion,
    ChatDelta,
    ChatModel,
    ChatOptions,
    Prompt,
    TokenLogprob,
)
from lazyrag.text.sentences import CJK_LETTERS, Language, ResolvedLanguage, resolve_language
from lazyrag.validation import known_arguments, require, validate_choice, validate_integer

# Confidence

_ABOVE_ZERO = 0.01
"""Rounding brings logarithms of certain tokens just above 0. A larger value is not the logarithm of
a probability."""
_NIL = -1000.0
"""A mean logarithm below this is a probability of 0 as a float (exp(-746) is 0)."""

# A word is one token; each character of Chinese, Japanese and Korean is one. The analysers of the
# indexes are not used: they drop "not" and "no", and stem, so that contradictory answers would
# agree.
_LETTER = rf"[^\W_{CJK_LETTERS}]"
_TOKEN = re.compile(rf"[{CJK_LETTERS}]|{_LETTER}+(?:['’]{_LETTER}+|(?<=\d)[.,](?=\d){_LETTER}+)*")


def likelihood(logprobs: Sequence[float]) -> float | None:
    """Likelihood of an answer by its model: the geometric mean of its tokens' probabilities.

    exp(mean of log p(token)), normalised by length, so that long answers are not penalised.

    Args:
        logprobs: Natural logarithms of the tokens' probabilities, each at most 0; minus infinity is
            a 0.

    Returns:
        In [0, 1]; None without tokens, or if a value is not the logarithm of a probability.

    Source:
        Malinin, Gales: Uncertainty Estimation in Autoregressive Structured Prediction, ICLR 2021,
        arXiv:2002.07650.

    Example:
        >>> likelihood([0.0, 0.0]), round(likelihood([-0.1, -0.3]), 3), likelihood([])
        (1.0, 0.819, None)
    """
    if not logprobs or any(math.isnan(logprob) or logprob > _ABOVE_ZERO for logprob in logprobs):
        return None
    # Keep minus infinity and the largest floats within range: one token that brings the mean to
    # `_NIL` decides it.
    lowest = _NIL * len(logprobs)
    return math.exp(
        math.fsum(min(max(logprob, lowest), 0.0) for logprob in logprobs) / len(logprobs)
    )


def agreement(candidates: Sequence[str]) -> list[float]:
    """Agreement of each candidate with the others: the mean of the token F1 with each of them.

    Tokens are case-folded words, and single characters of Chinese, Japanese and Korean; punctuation
    and citation markers do not count. Two answers without tokens agree.

    Args:
        candidates: At least two texts.

    Returns:
        A number in [0, 1] for each candidate, independent of the order of the others.

    Source:
        Agreement of samples as a sign of correctness: Wang et al.: Self-Consistency Improves Chain
        of Thought Reasoning in Language Models, ICLR 2023, arXiv:2203.11171.

    Example:
        >>> [round(one, 2) for one in agreement(["80 degrees [1].", "80 degrees [2]", "boiling"])]
        [0.5, 0.5, 0.0]
    """
    counts = [Counter(words(text)) for text in candidates]
    agreements = []
    for number, count in enumerate(counts):
        others = counts[:number] + counts[number + 1 :]
        agreements.append(math.fsum(_f1(count, other) for other in others) / len(others))
    return agreements


def words(text: str) -> list[str]:
    """Split an answer into tokens; see `agreement`."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", without_markers(text)).casefold())


def _f1(first: Counter[str], second: Counter[str]) -> float:
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0


# Reading answers

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_HELD_BACK = re.compile(r"[\ud800-\udbff\r]\Z")
"""Possibly half of a character beyond U+FFFF, or of a line end, at the end of a piece."""
_MIN_ECHO_LENGTH = 40
"""Length of a prompt from which its repetition is removed; a shorter text may well begin an
answer."""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A candidate without thoughts and repeated prompt.

    Args:
        text: The answer, "" if it is blank.
        reasoning: The thoughts before it, or "".
        skipped: Number of characters of the model's output before the answer.
        problems: Problems, one sentence each.
    """

    text: str
    reasoning: str = ""
    skipped: int = 0
    problems: tuple[str, ...] = ()


class AnswerReader:
    """Reads one candidate, complete or in pieces.

    The results of `feed` and `end` are, joined, the text of the answer. Only if thoughts have no
    opening tag is the answer shorter, which is then one of its problems.

    Args:
        prompt: The message that the model answers.

    Example:
        >>> reader = AnswerReader("How hot?")
        >>> reader.feed("<think>Tea.</think> 80 "), reader.feed("degrees [1]. "), reader.end()
        ('80', ' degrees [1].', '')
        >>> reader.answer("stop").text
        '80 degrees [1].'
    """

    def __init__(self, prompt: str) -> None:
        self._characters = _Characters()
        self._echo = _Echo(prompt)
        self._splitter = ReasoningSplitter()
        self._length = 0  # of the model's output
        self._pieces: list[str] = []  # of the answer, untrimmed
        self._has_text = False  # whether anything but blanks was returned
        self._spaces = ""  # blanks after it, returned when more comes

    def feed(self, text: str) -> str:
        """Add a piece, and return the answer text that is certain now, perhaps ""."""
        self._length += len(text)
        return self._trimmed(self._splitter.feed(self._echo.feed(self._characters.feed(text))))

    def end(self) -> str:
        """Return the rest of the answer; call it once, at the end."""
        last = self._echo.feed(self._characters.end()) + self._echo.end()
        return self._trimmed(self._splitter.feed(last) + self._splitter.end())

    def answer(self, reason: str | None, *, streamed: bool = False) -> ReadAnswer:
        """Return the complete answer, after `end`.

        Args:
            reason: The model's finish reason, or None.
            streamed: Whether the pieces were returned to a user, so that thoughts among them are a
                problem.
        """
        answer = "".join(self._pieces)
        unopened, rest = (None, answer) if self._splitter.found else split_unopened(answer)
        text = rest.strip()
        problems = [*self._characters.problems(), *self._echo.problems()]
        if unopened is not None and streamed:
            problems.append(
                "The model's thinking ended without having begun, so that it was streamed as an"
                " answer."
            )
        if ended := self._ending(reason, blank=not text):
            problems.append(ended)
        before = self._splitter.found or unopened is not None or self._echo.removed
        skipped = self._length - len(rest) if before else 0
        return ReadAnswer(text, unopened or self._splitter.reasoning, skipped, tuple(problems))

    def _trimmed(self, text: str) -> str:
        self._pieces.append(text)
        text = self._spaces + text
        if not self._has_text:
            text = text.lstrip()
        visible_text = text.rstrip()
        self._spaces = text[len(visible_text) :]
        self._has_text = self._has_text or bool(visible_text)
        return visible_text

    def _ending(self, reason: str | None, *, blank: bool) -> str | None:
        """A problem with the end of the answer, or None."""
        problem = "The answer is blank" if blank else "The answer is incomplete"
        cause = "" if reason is None else f" (finish_reason {reason!r:.40})"
        if self._splitter.unclosed:
            return (
                f"{problem}: the model was still thinking when it ended{cause}; raise max_tokens."
            )
        if reason == "length":
            return f"{problem}: it was cut at the limit of tokens{cause}; raise max_tokens."
        if reason == "content_filter":
            return f"{problem}: a content filter ended it{cause}."
        return f"{problem}{cause}." if blank else None


def read_answer(text: str, prompt: str, reason: str | None = None) -> ReadAnswer:
    """Read a complete candidate.

    Args:
        text: The model's output.
        prompt: The message that it answers.
        reason: The model's finish reason, or None.

    Example:
        >>> [problem] = read_answer("80 degrees", "How hot?", "length").problems
        >>> problem.partition(";")[0]
        "The answer is incomplete: it was cut at the limit of tokens (finish_reason 'length')"
    """
    reader = AnswerReader(prompt)
    reader.feed(text)
    reader.end()
    return reader.answer(reason)


class _Characters:
    """Removes control characters, normalises line ends, and joins or replaces lone surrogates."""

    def __init__(self) -> None:
        self._withheld = ""
        self._controls = 0
        self._halves = 0

    def feed(self, text: str) -> str:
        text = self._withheld + text
        match = _HELD_BACK.search(text)
        self._withheld = match[0] if match else ""
        return self._cleaned(text[: match.start()] if match else text)

    def end(self) -> str:
        remainder = self._withheld
        self._withheld = ""
        return self._cleaned(remainder)

    def problems(self) -> list[str]:
        problems = []
        if self._controls:
            problems.append(f"Control characters were removed from the answer: {self._controls}.")
        if self._halves:
            problems.append(
                "Halves of characters (lone surrogates) in the answer became U+FFFD:"
                f" {self._halves}."
            )
        return problems

    def _cleaned(self, text: str) -> str:
        if _SURROGATE.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        self._halves += text.count("\ufffd")  # a model behind an endpoint has replaced them already
        text, controls = _CONTROLS.subn(
            "", text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "")
        )
        self._controls += controls
        return text


class _Echo:
    """Removes a prompt that the answer repeats at its beginning, as models that complete texts
    do.
    """

    def __init__(self, prompt: str) -> None:
        cleaner = _Characters()
        self._prompt = (cleaner.feed(prompt) + cleaner.end()).strip()
        self._waiting = ""
        self._decided = len(self._prompt) < _MIN_ECHO_LENGTH
        self._alone = False
        self.removed = False

    def feed(self, text: str) -> str:
        if self._decided:
            return text
        self._waiting += text
        begun = self._waiting.lstrip()
        repeats = begun.startswith(self._prompt)
        if self._prompt.startswith(begun) or (repeats and not begun[len(self._prompt) :].strip()):
            return ""
        self._decided = True
        self.removed = repeats
        return begun[len(self._prompt) :] if self.removed else self._waiting

    def end(self) -> str:
        if self._decided:
            return ""
        self._decided = True
        self._alone = self._waiting.strip() == self._prompt
        return self._waiting

    def problems(self) -> list[str]:
        if self._alone:
            return ["The answer is the prompt again and nothing else."]
        if self.removed:
            return ["The answer began with the whole prompt, which was removed."]
        return []


Confidence: TypeAlias = Literal["auto", "logprobs", "agreement"]
Generated: TypeAlias = "GenerationResult[dict[str, Any]]"


@known_arguments
class Generator:
    """Answers questions from contexts by a chat model, complete or streamed (spec 002's
    generation).

    Args:
        model: A `ChatModel`, or a callable from a text to a text.
        n: Number of candidates, at least 1. The response is the one that agrees most with the
            others (`lazyrag.generation.generator.agreement`), the first of ties; blank ones do not
            count. At temperature 0 all are the likeliest answer, so their agreement means nothing.
        options: Passed to the model, with ``n`` set; None: the model's own, if it has some.
        confidence: ``"logprobs"``: the likelihood of the response by its tokens' probabilities,
            which are requested. ``"agreement"``: the agreement of the response with the other
            candidates. ``"auto"``: by the probabilities if the model returns them unrequested or
            ``options`` request them, else by agreement. It does not request them, since some
            servers refuse. None: no confidence.
        prompts: The system messages; None: those of `Prompts`. A plain callable, which takes one
            text, gets the system message, an empty line, and the context.
        language: Of the system message; ``"auto"``: the context's if its metadata have it, else the
            question's.

    Raises:
        ConfigError: If an argument is invalid.

    Example:
        >>> from lazyrag import RAGContext, RetrievalResult
        >>> text = "[1] Water of 80 degrees. How hot?"
        >>> context = RAGContext("How hot?", text, RetrievalResult([]), 9)
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
        self.n = validate_integer("n", n, 1)
        require(
            options is None or isinstance(options, ChatOptions),
            "options",
            options,
            "ChatOptions(...) or None",
        )
        if options is not None and options.n not in (1, self.n):
            raise ConfigError(
                f"options.n is {options.n} and n is {n}; pass n={options.n} to the Generator alone."
            )
        if confidence is not None:
            validate_choice("confidence", confidence, Confidence)
        require(
            prompts is None or isinstance(prompts, Prompts),
            "prompts",
            prompts,
            "Prompts(en=..., zh=...) or None",
        )
        self.options = options
        self.confidence = confidence
        self.prompts = prompts or Prompts()
        self.language: Language = validate_choice("language", language, Language)

    def __repr__(self) -> str:
        return f"Generator({self.model!r}, n={self.n})"

    def generate(self, context: RAGContext) -> Generated:
        """Generate an answer.

        Returns:
            The response; all candidates if several were requested, in order, blank ones as ""; the
            confidence, or None. Metadata: ``model``, ``usage`` (a dict, or None), ``finish_reason``
            of the response and ``finish_reasons`` of all, ``chosen`` (the candidate, from 0),
            ``language``, ``confidence_by`` (its measure, or None), ``reasoning`` (thoughts before
            the response, or None), ``problems`` (sentences), ``seconds``.

        Raises:
            ConfigError: If the context is invalid or blank.
            GenerationError: If the model fails, or its answer is unusable. Blank or cut answers are
                returned, with a problem.
        """
        request = self._request(context)
        return self._result(request, self.model.chat(request.prompt, request.options))

    async def agenerate(self, context: RAGContext) -> Generated:
        """Run `generate` in any event loop; cancelling the task ends the model's call."""
        request = self._request(context)
        return self._result(request, await self.model.achat(request.prompt, request.options))

    def stream(self, context: RAGContext) -> Iterator[GenerationDelta]:
        """Stream an answer; closing or dropping the iterator ends the model's call.

        Returns:
            Pieces of the response, without the thoughts before it; the last one has the result.
            Joined they are the response, unless thoughts had no opening tag: then they were
            streamed, and are a problem of the result.

        Raises:
            ConfigError: If the context is invalid or blank, or ``n`` is above 1.
            GenerationError: If the model fails, or the answer is cut off; after the pieces that
                came.
        """
        return self._stream(self._request(context, streamed=True))

    def astream(self, context: RAGContext) -> AsyncIterator[GenerationDelta]:
        """Run `stream` in any event loop."""
        return self._astream(self._request(context, streamed=True))

    def _stream(self, request: _Request) -> Iterator[GenerationDelta]:
        answer = _StreamedAnswer(request)
        deltas = self.model.stream(request.prompt, request.options)
        try:
            for delta in deltas:
                if text := answer.feed(delta):
                    yield GenerationDelta(text)
        finally:
            if isinstance(deltas, collections.abc.Generator):
                deltas.close()
        yield self._last_piece(answer)

    async def _astream(self, request: _Request) -> AsyncGenerator[GenerationDelta, None]:
        answer = _StreamedAnswer(request)
        deltas = self.model.astream(request.prompt, request.options)
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(deltas, AsyncGenerator):
                await stack.enter_async_context(contextlib.aclosing(deltas))
            async for delta in deltas:
                if text := answer.feed(delta):
                    yield GenerationDelta(text)
        yield self._last_piece(answer)

    def _request(self, context: RAGContext, *, streamed: bool = False) -> _Request:
        is_valid = isinstance(context, RAGContext) and context.context.strip() != ""
        require(is_valid, "context", context, "a RAGContext whose text is not blank")
        if streamed and self.n > 1:
            raise ConfigError(f"n is {self.n}; streaming gives one answer. Use n=1, or generate.")
        language = self._language(context)
        one_text = isinstance(self.model, CallableChatModel)
        prompt: Prompt = (self.prompts.text if one_text else self.prompts.messages)(
            context, language
        )
        sent = prompt if isinstance(prompt, str) else context.context
        return _Request(prompt, sent, self._call_options(), language, time.perf_counter())

    def _language(self, context: RAGContext) -> ResolvedLanguage:
        """The language of the system message: the same as the context's."""
        language: Any = context.metadata.get("language")
        is_known = self.language == "auto" and language in ("en", "zh")
        return language if is_known else resolve_language(self.language, context.query)

    def _call_options(self) -> ChatOptions | None:
        """The given options, else the model's own, with n and logprobs set; None if all are
        defaults.
        """
        logprobs = self.confidence == "logprobs"
        options_of_model = getattr(self.model, "options", None)
        options = self.options or (
            options_of_model if isinstance(options_of_model, ChatOptions) else None
        )
        if options is None and self.n == 1 and not logprobs:
            return None
        options = options or ChatOptions()
        return dataclasses.replace(options, n=self.n, logprobs=logprobs or options.logprobs)

    def _result(self, request: _Request, completion: ChatCompletion) -> Generated:
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            name = repr(self.model.identity or type(self.model).__name__)
            raise GenerationError(
                f"The chat model {name} returned {completion!r:.80}, not a ChatCompletion."
            )
        choices = completion.choices[: self.n]
        read = [
            read_answer(choice.text, request.message, choice.finish_reason) for choice in choices
        ]
        return self._generated(request, read, choices, completion)

    def _last_piece(self, answer: _StreamedAnswer) -> GenerationDelta:
        """The rest of a streamed answer, and its result."""
        text = answer.reader.end()
        read = answer.reader.answer(answer.finish_reason, streamed=True)
        choice = ChatChoice("", answer.finish_reason, tuple(answer.logprobs) or None)
        return GenerationDelta(
            text, self._generated(answer.request, [read], [choice], ChatCompletion((choice,)))
        )

    def _generated(
        self,
        request: _Request,
        read: Sequence[ReadAnswer],
        choices: Sequence[ChatChoice],
        completion: ChatCompletion,
    ) -> Generated:
        chosen, agreed = _most_agreed([answer.text for answer in read])
        response = read[chosen]
        likely = _likelihood(response, choices[chosen].logprobs)
        measures = {"logprobs": likely, "agreement": agreed}
        measure: str | None = self.confidence
        if measure == "auto":
            measure = next((name for name in measures if measures[name] is not None), None)
        elif measure is not None and measures[measure] is None:
            measure = None
        metadata = {
            "model": completion.model or self.model.identity,
            "usage": None if completion.usage is None else dataclasses.asdict(completion.usage),
            "finish_reason": choices[chosen].finish_reason,
            "finish_reasons": [choice.finish_reason for choice in choices],
            "chosen": chosen,
            "language": request.language,
            "confidence_by": measure,
            "reasoning": response.reasoning or None,
            "problems": _problems(read, chosen, self.n),
            "seconds": time.perf_counter() - request.started,
        }
        return GenerationResult(
            response.text,
            [answer.text for answer in read] if self.n > 1 else None,
            None if measure is None else measures[measure],
            metadata,
        )


@dataclass(frozen=True, slots=True)
class _Request:
    """A call of the model."""

    prompt: Prompt
    message: str  # the message that an answer might repeat
    options: ChatOptions | None
    language: ResolvedLanguage
    started: float  # by the performance counter


class _StreamedAnswer:
    """The part of a streamed answer that has come."""

    def __init__(self, request: _Request) -> None:
        self.request = request
        self.reader = AnswerReader(request.message)
        self.finish_reason: str | None = None
        self.logprobs: list[TokenLogprob] = []

    def feed(self, delta: ChatDelta) -> str:
        """Add a piece, and return the answer text that is certain now."""
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.logprobs += delta.logprobs or ()
        return self.reader.feed(delta.text)


def _most_agreed(texts: Sequence[str]) -> tuple[int, float | None]:
    """The candidate that agrees most with the others, and its agreement; blank ones do not
    count.
    """
    present = [at for at, text in enumerate(texts) if text]
    if len(present) < 2:
        return (present[0] if present else 0), None
    agreed = agreement([texts[at] for at in present])
    best = max(agreed)
    return present[agreed.index(best)], best


def _likelihood(answer: ReadAnswer, tokens: Sequence[TokenLogprob] | None) -> float | None:
    """Likelihood of an answer's own tokens, without those before it, such as thoughts."""
    if not tokens or not answer.text:
        return None
    begin = length = 0
    while begin < len(tokens) and length < answer.skipped:
        length += len(tokens[begin].token)
        begin += 1
    return likelihood([token.logprob for token in tokens[begin:]])


def _problems(read: Sequence[ReadAnswer], chosen: int, count: int) -> list[str]:
    """Problems of the response and of the other candidates."""
    problems = list(read[chosen].problems)
    if len(read) < count:
        problems.append(f"The model gave {len(read)} of {count} candidates.")
    blank = sum(not answer.text for answer in read)
    if 0 < blank < len(read):
        problems.append(
            f"{blank} of {len(read)} candidates are blank."
            if blank > 1
            else "One candidate is blank."
        )
    return problems
