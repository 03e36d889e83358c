"""Chat models as rerank models: each passage judged by itself, or all of them put in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lazyrag.errors import AnswerWarning, ConfigError, GenerationError, RetrievalError, sentence, warn_user
from lazyrag.models import background
from lazyrag.models.chat import ChatCallable, as_chat_model
from lazyrag.models.protocol import ChatModel, ChatOptions
from lazyrag.models.rerank import checked_documents, checked_query, checked_ranking
from lazyrag.models.rerank_answers import read_permutation, read_probability, read_score
from lazyrag.models.rerank_prompts import LISTWISE, POINTWISE, Scale, checked_choice, checked_template, enclosed
from lazyrag.text.sentences import Language, spoken
from lazyrag.validation import known_arguments, whole_number

_MOST = {"0-10": 10, "0-100": 100}


@known_arguments
class PointwiseRerankModel:
    """A chat model that judges each passage by itself: a `RerankModel` with scores in [0, 1].

    An answer that cannot be read counts as 0, the lowest score, and there is an `AnswerWarning`. A blank passage gets 0
    without a question. Equal passages are asked about once.

    Args:
        model: A `ChatModel`, or a callable that turns a text into a text.
        scale: What is asked for. ``"yes_no"``: whether the passage answers the query; where the model tells p, the
            probability of its word, the score is (1 + p) / 2 for yes and (1 - p) / 2 for no, else 1 and 0. ``"0-10"``
            and ``"0-100"``: a number, divided by the largest.
        language: Which language it is asked in: ``"en"``, ``"zh"``, or ``"auto"``: as the query is.
        prompt: Asked instead of the built-in prompt, with ``{query}`` and ``{passage}`` in it.
        options: How to answer; None: with temperature 0, and with ``logprobs`` for ``"yes_no"``. Endpoints that know no
            logprobs may refuse the question: give ``ChatOptions(temperature=0)``.
        concurrency: At most so many questions at once, in one call.

    Raises:
        ConfigError: If a value is out of its range.

    Source:
        After Nogueira, Jiang, Lin: Document Ranking with a Pretrained Sequence-to-Sequence Model, arXiv:2003.06713.

    Example:
        >>> model = PointwiseRerankModel(lambda text: "Yes" if "green tea" in text else "No")
        >>> model("Which tea?", ["coffee", "green tea"])
        [(1, 1.0), (0, 0.0)]
    """

    def __init__(
        self,
        model: ChatModel | ChatCallable,
        *,
        scale: Scale = "yes_no",
        language: Language = "auto",
        prompt: str | None = None,
        options: ChatOptions | None = None,
        concurrency: int = 8,
    ) -> None:
        self.model = as_chat_model(model)
        self.scale: Scale = checked_choice("scale", scale, Scale)
        self.language: Language = checked_choice("language", language, Language)
        self.prompt = checked_template(prompt, ("query", "passage"))
        self.options = _options(options, ChatOptions(temperature=0, logprobs=scale == "yes_no"))
        self.concurrency = whole_number("concurrency", concurrency, 1)

    def __repr__(self) -> str:
        return f"PointwiseRerankModel({self.model!r}, scale={self.scale!r})"

    @property
    def identity(self) -> str:
        """The chat model's, marked as used for this; "" where it says nothing."""
        return f"pointwise:{self.scale}:{self.model.identity}" if self.model.identity else ""

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
            RetrievalError: If the model fails.
        """
        found, most = checked_documents(documents, top_n)
        return self._told(found, background.run(self._judge(checked_query(query), found)))[:most]

    async def arerank(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents, in any event loop; cancelling the task ends the calls."""
        found, most = checked_documents(documents, top_n)
        return self._told(found, await background.arun(self._judge(checked_query(query), found)))[:most]

    async def _judge(self, query: str, documents: Sequence[str]) -> dict[str, float | None]:
        """What each distinct passage got; None where the answer could not be read."""
        passages = list(dict.fromkeys(one for one in documents if one.strip()))
        room = asyncio.Semaphore(self.concurrency)
        try:
            scores = await background.together(*(self._ask(query, passage, room) for passage in passages))
        except GenerationError as exc:
            raise RetrievalError(f"{self!r} failed: {sentence(exc)}") from exc
        return dict(zip(passages, scores, strict=True))

    async def _ask(self, query: str, passage: str, room: asyncio.Semaphore) -> float | None:
        template = self.prompt or POINTWISE[self.scale, spoken(self.language, query)]
        async with room:
            answer = await self.model.achat(template.format(query=query, passage=enclosed(passage)), self.options)
        if self.scale == "yes_no":
            return read_probability(answer.choices[0])
        return read_score(answer.text, _MOST[self.scale])

    def _told(self, documents: Sequence[str], scores: dict[str, float | None]) -> list[tuple[int, float]]:
        unread = sum(score is None for score in scores.values())
        if unread:
            msg = f"{unread} of {len(scores)} answers of {self.model!r} could not be read; those passages count as 0."
            warn_user(msg, AnswerWarning)
        ranked = [(place, scores.get(one) or 0.0) for place, one in enumerate(documents)]
        return checked_ranking(ranked, len(documents), repr(self))


@known_arguments
class ListwiseRerankModel:
    """A chat model that puts passages in order: a `RerankModel` whose scores are ranks, from 1 down to 1 / n.

    Many passages are ordered window by window, from the last to the first, each beginning ``step`` before the one
    behind it, so that the best ``window - step`` of all come to the front in one pass. Passages that an answer does not
    name keep their order behind those that it names. A window whose answer names none stays as it is, with an
    `AnswerWarning`. The passages should come in the order of a first ranking. They are not shortened.

    Args:
        model: A `ChatModel`, or a callable that turns a text into a text.
        window: How many passages are put in order by one question, at least 2.
        step: How far a window is from the next, from 1 to window; None: half a window.
        language: Which language it is asked in: ``"en"``, ``"zh"``, or ``"auto"``: as the query is.
        prompt: Asked instead of the built-in prompt, with ``{query}`` and ``{passages}`` in it, and ``{count}``.
        options: How to answer; None: with temperature 0.

    Raises:
        ConfigError: If a value is out of its range.

    Source:
        Sun and others: Is ChatGPT Good at Search? (RankGPT), EMNLP 2023, doi:10.18653/v1/2023.emnlp-main.923.

    Example:
        >>> model = ListwiseRerankModel(lambda text: "[2] > [1]")
        >>> model("Which tea?", ["coffee", "green tea", "snow", "ice"])
        [(1, 1.0), (0, 0.75), (2, 0.5), (3, 0.25)]
    """

    def __init__(
        self,
        model: ChatModel | ChatCallable,
        *,
        window: int = 20,
        step: int | None = None,
        language: Language = "auto",
        prompt: str | None = None,
        options: ChatOptions | None = None,
    ) -> None:
        self.model = as_chat_model(model)
        self.window = whole_number("window", window, 2)
        self.step = self.window // 2 if step is None else whole_number("step", step, 1, self.window)
        self.language: Language = checked_choice("language", language, Language)
        self.prompt = checked_template(prompt, ("query", "passages", "count"))
        self.options = _options(options, ChatOptions(temperature=0))

    def __repr__(self) -> str:
        return f"ListwiseRerankModel({self.model!r}, window={self.window}, step={self.step})"

    @property
    def identity(self) -> str:
        """The chat model's, marked as used for this; "" where it says nothing."""
        return f"listwise:{self.window}:{self.step}:{self.model.identity}" if self.model.identity else ""

    def __call__(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents.

        Args:
            query: A text that is not blank.
            documents: n texts, in the order of a first ranking.
            top_n: At most so many, at least 1; None means all of them.

        Returns:
            min(top_n, n) pairs (index into documents, score), best first: 1, (n - 1) / n, (n - 2) / n ...

        Raises:
            ConfigError: If the query is blank, or no texts are given.
            RetrievalError: If the model fails.
        """
        found, most = checked_documents(documents, top_n)
        return self._told(*background.run(self._order(checked_query(query), found)))[:most]

    async def arerank(self, query: str, documents: Sequence[str], top_n: int | None = None) -> list[tuple[int, float]]:
        """Rank documents, in any event loop; cancelling the task ends the calls."""
        found, most = checked_documents(documents, top_n)
        return self._told(*await background.arun(self._order(checked_query(query), found)))[:most]

    async def _order(self, query: str, documents: Sequence[str]) -> tuple[list[int], int, int]:
        """The documents' order, how many windows could not be read, and how many there were."""
        order = list(range(len(documents)))
        unread = asked = 0
        last = len(order)
        while last > 1:
            first = max(0, last - self.window)
            places = order[first:last]
            named = await self._ask(query, [documents[place] for place in places])
            asked += 1
            unread += not named
            rest = [number for number in range(len(places)) if number not in set(named)]
            order[first:last] = [places[number] for number in (*named, *rest)]
            if first == 0:
                break
            last -= self.step
        return order, unread, asked

    async def _ask(self, query: str, passages: Sequence[str]) -> list[int]:
        template = self.prompt or LISTWISE[spoken(self.language, query)]
        listed = "\n\n".join(f"[{number}] {enclosed(passage)}" for number, passage in enumerate(passages, start=1))
        prompt = template.format(query=query, passages=listed, count=len(passages))
        try:
            answer = await self.model.achat(prompt, self.options)
        except GenerationError as exc:
            raise RetrievalError(f"{self!r} failed: {sentence(exc)}") from exc
        return read_permutation(answer.text, len(passages))

    def _told(self, order: Sequence[int], unread: int, asked: int) -> list[tuple[int, float]]:
        if unread:
            msg = f"{unread} of {asked} answers of {self.model!r} could not be read; those passages keep their order."
            warn_user(msg, AnswerWarning)
        return [(place, (len(order) - rank) / len(order)) for rank, place in enumerate(order)]


def _options(options: ChatOptions | None, default: ChatOptions) -> ChatOptions:
    if options is None:
        return default
    if not isinstance(options, ChatOptions) or options.n != 1:
        raise ConfigError(f"options is {options!r:.80}; give ChatOptions with n=1, for example with temperature=0.")
    return options
