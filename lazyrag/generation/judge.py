"""A second opinion on statements by a chat model."""

from __future__ import annotations

import re
from typing import get_args

from lazyrag.data.result import Verdict
from lazyrag.errors import GenerationError, sentence
from lazyrag.generation.claims import Judge
from lazyrag.generation.generator import read_answer
from lazyrag.models.chat import ChatCallable, as_chat_model
from lazyrag.models.protocols import ChatModel

_PROMPT = (
    "Source:\n{source}\n\nStatement: {statement}\n\nDoes the source support the statement? Use the"
    " source alone. Answer with one word: supported, contradicted or not_found."
)
_SUBJECT_PROMPT = (
    "Source:\n{source}\n\nSubject: {statement}\n\nIs the source about this subject, or does it"
    " answer this question? Use the source alone. Answer with one word: supported or not_found."
)
_VERDICT = re.compile(r"\b(supported|contradicted|not[ _]found)\b", re.IGNORECASE)
_VERDICTS: dict[str, Verdict] = {"supported": "supported", "contradicted": "contradicted"}


def chat_judge(model: ChatModel | ChatCallable) -> Judge:
    """Make a judge of a chat model, for `CitationManager` and `RAGPipeline`.

    It is asked only about statements whose words are not in their sources, one call each. An answer
    without a verdict counts as ``"not_found"``.

    Args:
        model: A `ChatModel`, or a callable from a text to a text.

    Example:
        >>> from lazyrag.generation.claims import StatementChecker
        >>> judge = chat_judge(lambda prompt: "Supported.")
        >>> checker = StatementChecker(["The vessel sank in a storm."], judge)
        >>> checker.check("Bad weather destroyed their ship.", (1,)).verdict
        'supported'
    """
    return _judge(model, _PROMPT)


def passage_judge(model: ChatModel | ChatCallable) -> Judge:
    """Make a judge of a chat model that tells whether a source is about a subject, or answers a
    question.

    Example:
        >>> passage_judge(lambda prompt: "supported")("storms", "The vessel sank in a storm.")
        'supported'
    """
    return _judge(model, _SUBJECT_PROMPT)


def checked_judge(judge: Judge) -> Judge:
    """A judge whose errors, and answers that are no verdict, are a `GenerationError`.

    Example:
        >>> checked_judge(lambda statement, source: "maybe")("It sank.", "The vessel sank.")
        Traceback (most recent call last):
        ...
        lazyrag.errors.GenerationError: The judge must return supported, contradicted, not_found or\
 not_checkable; got 'maybe'.
    """

    def ask(statement: str, source: str) -> Verdict:
        try:
            verdict = judge(statement, source)
        except GenerationError:
            raise
        except Exception as exc:
            reason = f"{type(exc).__name__}: {sentence(exc)}"
            raise GenerationError(f"The judge raised {reason}") from exc
        if not isinstance(verdict, str) or verdict not in get_args(Verdict):
            *some, last = get_args(Verdict)
            names = f"{', '.join(some)} or {last}"
            raise GenerationError(f"The judge must return {names}; got {verdict!r:.80}.")
        return verdict

    return ask


def _judge(model: ChatModel | ChatCallable, template: str) -> Judge:
    chat = as_chat_model(model)

    def judge(statement: str, source: str) -> Verdict:
        prompt = template.format(source=source, statement=statement)
        answer = read_answer(chat.chat(prompt).choices[0].text, prompt)
        match = _VERDICT.search(answer.text)
        return _VERDICTS.get(match[1].lower(), "not_found") if match else "not_found"

    return judge
