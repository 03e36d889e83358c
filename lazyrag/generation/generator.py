"""`Generator`: a chat model answers from a context."""

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
from typing import Any, Literal, TypeAlias, get_args

from lazyrag.data.result import GenerationDelta, GenerationResult, RAGContext
from lazyrag.errors import ConfigError, GenerationError, known_names
from lazyrag.generation.markers import scan, without_markers
from lazyrag.generation.prompts import Prompts
from lazyrag.models.chat import THOUGHTS, CallableChatModel, ChatCallable, as_chat_model
from lazyrag.models.protocols import (
    ChatChoice,
    ChatCompletion,
    ChatDelta,
    ChatModel,
    ChatOptions,
    Prompt,
    TokenLogprob,
    Usage,
)
from lazyrag.text.sentences import CJK_LETTERS, Language, Spoken, spoken
from lazyrag.validation import known_arguments, whole_number

_ABOVE_ZERO = 0.01
"""Rounding brings logarithms of sure tokens to just above 0. A larger one is of no probability."""
_NIL = -1000.0
"""A mean of logarithms from here on downwards is of a probability that floats tell as 0 (exp(-746) is)."""

# A word of any script is one token; of Chinese, Japanese and Korean each character is. The analysers of the indexes do
# not serve here: they leave out "not" and "no", and stem, so that answers that contradict each other would agree.
_LETTER = rf"[^\W_{CJK_LETTERS}]"
_TOKEN = re.compile(rf"[{CJK_LETTERS}]|{_LETTER}+(?:['’]{_LETTER}+|(?<=\d)[.,](?=\d){_LETTER}+)*")


def likelihood(logprobs: Sequence[float]) -> float | None:
    """How likely a model holds its answer to be: the geometric mean of its tokens' probabilities.

    exp(mean of log p(token)), the likelihood normalised by length, so that long answers do not count as unsure for
    being long.

    Args:
        logprobs: Natural logarithms of the tokens' probabilities, each at most 0; minus infinity is a 0.

    Returns:
        In [0, 1]; None where there is no token, or a value is no logarithm of a probability.

    Source:
        Malinin, Gales: Uncertainty Estimation in Autoregressive Structured Prediction, ICLR 2021, arXiv:2002.07650.

    Example:
        >>> likelihood([0.0, 0.0]), round(likelihood([-0.1, -0.3]), 3), likelihood([])
        (1.0, 0.819, None)
    """
    if not logprobs or any(math.isnan(one) or one > _ABOVE_ZERO for one in logprobs):
        return None
    # What a server may send, minus infinity and the largest of floats too, sums within their range: one token that
    # brings the mean to `_NIL` by itself has said all.
    lowest = _NIL * len(logprobs)
    return math.exp(math.fsum(min(max(one, lowest), 0.0) for one in logprobs) / len(logprobs))


def agreement(candidates: Sequence[str]) -> list[float]:
    """How far each candidate agrees with the others: the mean of `overlap` with each of them.

    Args:
        candidates: At least two texts.

    Returns:
        For each of them a number in [0, 1]; the order of the others does not matter.

    Source:
        Agreement of samples as a sign of being right: Wang et al.: Self-Consistency Improves Chain of Thought
        Reasoning in Language Models, ICLR 2023, arXiv:2203.11171.

    Example:
        >>> [round(one, 2) for one in agreement(["80 degrees [1].", "80 degrees [2]", "boiling"])]
        [0.5, 0.5, 0.0]
    """
    counts = [_counts(text) for text in candidates]
    return [
        math.fsum(_f1(one, other) for j, other in enumerate(counts) if j != i) / (len(counts) - 1)
        for i, one in enumerate(counts)
    ]


def overlap(first: str, second: str) -> float:
    """Token F1 of two answers, in [0, 1].

    Tokens are words, and single characters of Chinese, Japanese and Korean, in one case; punctuation and markers of
    citations do not count. 1 means the same tokens, in any order; two answers without a token agree.

    Source:
        Rajpurkar et al.: SQuAD, EMNLP 2016, doi:10.18653/v1/D16-1264; by characters in Chinese: Cui et al.: A
        Span-Extraction Dataset for Chinese Machine Reading Comprehension, EMNLP 2019, doi:10.18653/v1/D19-1600.

    Example:
        >>> overlap("水温是80度[1]。", "水温是80度【2】"), round(overlap("可以", "不可以"), 2)
        (1.0, 0.8)
    """
    return _f1(_counts(first), _counts(second))


def _counts(text: str) -> Counter[str]:
    return Counter(_TOKEN.findall(unicodedata.normalize("NFKC", without_markers(text)).casefold()))


def _f1(first: Counter[str], second: Counter[str]) -> float:
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0


_ANY_TAG = "|".join(THOUGHTS)
_BEGINNING = re.compile(rf"\s*<({_ANY_TAG})>", re.IGNORECASE)
_OPENED = re.compile(rf"<(?:{_ANY_TAG})>", re.IGNORECASE)
_CLOSED = re.compile(rf"</(?:{_ANY_TAG})>", re.IGNORECASE)
_LONGEST_CLOSING = max(map(len, THOUGHTS)) + len("</>")


class ReasoningSplitter:
    """Splits a text that comes in pieces into the thoughts before the answer, and the answer.

    Thoughts are what stands between ``<think>`` and ``</think>`` (or ``thinking``, ``thought``, ``reasoning``) before
    anything else; several such blocks may follow each other. Tags further on are part of the answer.

    Example:
        >>> splitter = ReasoningSplitter()
        >>> [splitter.feed(piece) for piece in ("<th", "ink>Tea, so ...</thi", "nk>80 ", "degrees")], splitter.reasoning
        (['', '', '80 ', 'degrees'], 'Tea, so ...')
    """

    def __init__(self) -> None:
        self._waiting = ""  # what cannot be told to be thought or answer yet
        self._thoughts: list[str] = []
        self._closing: re.Pattern[str] | None = None  # what ends the block that has begun
        self._answering = False

    @property
    def reasoning(self) -> str:
        """The thoughts so far; "" where there are none."""
        return "".join(self._thoughts).strip()

    @property
    def found(self) -> bool:
        """Whether there is a block of thoughts, be it an empty one."""
        return bool(self._thoughts) or self.unclosed

    @property
    def unclosed(self) -> bool:
        """Whether a block of thoughts has begun and not ended."""
        return self._closing is not None

    def feed(self, text: str) -> str:
        """What of the answer this piece brings."""
        if self._answering:
            return text
        self._waiting += text
        while not self._answering and self._step():
            pass
        if not self._answering:
            return ""
        text, self._waiting = self._waiting, ""
        return text

    def end(self) -> str:
        """What was held back and turned out to be of the answer; call it once, at the end."""
        rest, self._waiting = self._waiting, ""
        if self._closing is None:
            return rest
        self._thoughts.append(rest)
        return ""

    def _step(self) -> bool:
        """Read one tag; False where more has to come first."""
        if self._closing is not None:
            end = self._closing.search(self._waiting)
            if end is None:
                # Only what may be the beginning of the end tag is looked at again.
                self._keep_thought(max(0, len(self._waiting) - _LONGEST_CLOSING))
                return False
            self._keep_thought(end.start())
            self._thoughts.append("\n")
            self._waiting = self._waiting[end.end() - end.start() :]
            self._closing = None
            return True
        if begun := _BEGINNING.match(self._waiting):
            self._closing = re.compile(f"</{begun[1]}>", re.IGNORECASE)
            self._waiting = self._waiting[begun.end() :]
            return True
        begun_so_far = self._waiting.lstrip().lower()
        self._answering = not any(f"<{tag}>".startswith(begun_so_far) for tag in THOUGHTS)
        return False

    def _keep_thought(self, end: int) -> None:
        self._thoughts.append(self._waiting[:end])
        self._waiting = self._waiting[end:]


def split_unopened(text: str) -> tuple[str | None, str]:
    """Thoughts and answer of a text whose thoughts end but do not begin: some templates leave that to the prompt.

    Returns:
        The thoughts, None where nothing ends or something begins; and the rest. A tag in code, or in the middle of a
        line behind a space or a quotation mark, is one that the answer speaks of.

    Example:
        >>> split_unopened("Tea, so ...</think>80 degrees")
        ('Tea, so ...', '80 degrees')
    """
    if _OPENED.search(text) or not _CLOSED.search(text):
        return None, text
    code = scan(text).code
    ends = [tag for tag in _CLOSED.finditer(text) if _ends(tag) and not any(a <= tag.start() < b for a, b in code)]
    return (text[: ends[-1].start()].strip(), text[ends[-1].end() :]) if ends else (None, text)


def _ends(tag: re.Match[str]) -> bool:
    """Whether a tag ends something, and is not spoken of: it ends its line, or stands right behind what came before."""
    rest = tag.string[tag.end() :].lstrip(" \t")
    before = tag.string[tag.start() - 1 : tag.start()]
    return not rest or rest[0] in "\r\n" or before not in (" ", "\t", '"', "'", "“", "「", "‘", "(", "（")


_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_HELD_BACK = re.compile(r"[\ud800-\udbff\r]\Z")
"""What may be half of something at the end of a piece: of a character beyond U+FFFF, or of a line end."""
_SHORTEST_ECHO = 40
"""Characters that a prompt must have for an answer to repeat it: a shorter one may well begin an answer."""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """A candidate as it is handed out.

    Args:
        text: The answer, "" where it is blank.
        reasoning: The thoughts before it; "" where there are none.
        skipped: Characters of what the model wrote that stand before the answer.
        problems: What was wrong, one sentence each.
    """

    text: str
    reasoning: str = ""
    skipped: int = 0
    problems: tuple[str, ...] = ()


class AnswerReader:
    """Reads one candidate, whole or in pieces.

    What `feed` and `end` give is, joined, the text of the answer; only where thoughts end that never began does the
    answer turn out to be shorter, which stands among its problems.

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
        self._came = 0  # characters, of whatever kind
        self._pieces: list[str] = []  # of the answer, untrimmed
        self._shown = False  # whether something that is not blank was handed out
        self._spaces = ""  # behind it: handed out when more comes

    def feed(self, text: str) -> str:
        """What of the answer this piece brings, perhaps "": some is held back until it can be told what it is."""
        self._came += len(text)
        return self._trimmed(self._splitter.feed(self._echo.feed(self._characters.feed(text))))

    def end(self) -> str:
        """What was held back of the answer; call it once, when all has come."""
        last = self._echo.feed(self._characters.end()) + self._echo.end()
        return self._trimmed(self._splitter.feed(last) + self._splitter.end())

    def answer(self, reason: str | None, *, streamed: bool = False) -> ReadAnswer:
        """The whole, after `end`.

        Args:
            reason: Why it ended, in the model's words; None where not told.
            streamed: Whether the pieces were handed out, so that thoughts among them are a problem.
        """
        given = "".join(self._pieces)
        unopened, rest = (None, given) if self._splitter.found else split_unopened(given)
        text = rest.strip()
        problems = [*self._characters.problems(), *self._echo.problems()]
        if unopened is not None and streamed:
            problems.append("The model's thinking ended without having begun, so that it was streamed as an answer.")
        if ended := self._ending(reason, blank=not text):
            problems.append(ended)
        before = self._splitter.found or unopened is not None or self._echo.removed
        skipped = self._came - len(rest) if before else 0
        return ReadAnswer(text, unopened or self._splitter.reasoning, skipped, tuple(problems))

    def _trimmed(self, text: str) -> str:
        self._pieces.append(text)
        text = self._spaces + text
        if not self._shown:
            text = text.lstrip()
        shown = text.rstrip()
        self._spaces = text[len(shown) :]
        self._shown = self._shown or bool(shown)
        return shown

    def _ending(self, reason: str | None, *, blank: bool) -> str | None:
        """What was wrong with how it ended."""
        what = "The answer is blank" if blank else "The answer is incomplete"
        told = "" if reason is None else f" (finish_reason {reason!r:.40})"
        if self._splitter.unclosed:
            return f"{what}: the model was still thinking when it ended{told}; raise max_tokens."
        if reason == "length":
            return f"{what}: it was cut at the limit of tokens{told}; raise max_tokens."
        if reason == "content_filter":
            return f"{what}: a content filter ended it{told}."
        return f"{what}{told}." if blank else None


def read_answer(text: str, prompt: str, reason: str | None = None) -> ReadAnswer:
    """A candidate that came whole.

    Args:
        text: What the model wrote.
        prompt: The message that it answers.
        reason: Why it ended, in the model's words; None where not told.

    Example:
        >>> read_answer("80 degrees", "How hot?", "length").problems
        ("The answer is incomplete: it was cut at the limit of tokens (finish_reason 'length'); raise max_tokens.",)
    """
    reader = AnswerReader(prompt)
    reader.feed(text)
    reader.end()
    return reader.answer(reason)


class _Characters:
    """Takes control characters out, makes line ends one, and halves of characters whole or U+FFFD."""

    def __init__(self) -> None:
        self._held = ""
        self._controls = 0
        self._halves = 0

    def feed(self, text: str) -> str:
        text = self._held + text
        held = _HELD_BACK.search(text)
        self._held = held[0] if held else ""
        return self._cleaned(text[: held.start()] if held else text)

    def end(self) -> str:
        held, self._held = self._held, ""
        return self._cleaned(held)

    def problems(self) -> list[str]:
        found = []
        if self._controls:
            found.append(f"Control characters were taken out of the answer: {self._controls}.")
        if self._halves:
            found.append(f"Halves of characters (lone surrogates) in the answer became U+FFFD: {self._halves}.")
        return found

    def _cleaned(self, text: str) -> str:
        if _SURROGATE.search(text):
            before = text.count("\ufffd")
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            self._halves += text.count("\ufffd") - before
        text, controls = _CONTROLS.subn("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", ""))
        self._controls += controls
        return text


class _Echo:
    """Takes the prompt off an answer that begins with it, as of a model that completes texts."""

    def __init__(self, prompt: str) -> None:
        cleaner = _Characters()
        self._prompt = (cleaner.feed(prompt) + cleaner.end()).strip()
        self._waiting = ""
        self._decided = len(self._prompt) < _SHORTEST_ECHO
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
        self._decided, self.removed = True, repeats
        return begun[len(self._prompt) :] if self.removed else self._waiting

    def end(self) -> str:
        if self._decided:
            return ""
        self._decided, self._alone = True, self._waiting.strip() == self._prompt
        return self._waiting

    def problems(self) -> list[str]:
        if self._alone:
            return ["The answer is the prompt again and nothing else."]
        if self.removed:
            return ["The answer began with the whole prompt, which was taken off."]
        return []


Confidence: TypeAlias = Literal["auto", "logprobs", "agreement"]
Generated: TypeAlias = "GenerationResult[dict[str, Any]]"


@known_arguments
class Generator:
    """Answers questions from contexts, by a chat model, whole or piece by piece (spec 002's generation).

    Args:
        model: A `ChatModel`, or a callable from a text to a text.
        n: How many candidates to ask for, at least 1. Of several the response is the one that agrees most with the
            others (`lazyrag.generation.generator.agreement`), the first of those that tie; blank ones do not count.
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
