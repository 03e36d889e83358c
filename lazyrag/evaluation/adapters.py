"""Our own parts as systems under evaluation."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lazyrag.data.result import GenerationResult, Hit, RetrievalResult
from lazyrag.errors import ConfigError
from lazyrag.evaluation.interface import RAGInterface
from lazyrag.models.chat import ChatCallable, as_chat_model
from lazyrag.models.protocol import ChatModel, ChatOptions, Message, Prompt
from lazyrag.pipeline.pipeline import RAGPipeline
from lazyrag.retrieval.stages import NodeRetriever, asked_nodes, callable_name, check_query
from lazyrag.text.sentences import spoken
from lazyrag.validation import known_arguments, whole_number

_INSTRUCTIONS = {
    "en": "Answer the question from the passages alone. If they do not answer it, say so.",
    "zh": "只根据下面的资料回答问题。资料中没有答案时，请直接说明。",
}
_LABELS = {"en": ("Passages", "Question"), "zh": ("资料", "问题")}


def passages_prompt(query: str, contexts: Sequence[str]) -> tuple[Message, ...]:
    r"""A plain prompt: the passages, each after its number, then the question; in the question's language.

    Example:
        >>> print(passages_prompt("How hot?", ["80 degrees."])[1].content)
        Passages:
        [1] 80 degrees.
        <BLANKLINE>
        Question: How hot?
    """
    language = spoken("auto", query)
    passages, question = _LABELS[language]
    listed = "\n".join(f"[{number}] {text}" for number, text in enumerate(contexts, start=1))
    colon = "：" if language == "zh" else ": "
    asked = f"{passages}{colon.rstrip()}\n{listed}\n\n{question}{colon}{query}"
    return Message("system", _INSTRUCTIONS[language]), Message("user", asked)


@known_arguments
class RetrieverRAG(RAGInterface[Mapping[str, Any]]):
    """A retriever and a chat model as a system under evaluation.

    Contexts carry the uids of their nodes as ids, and their scores. The metadata of a retrieval say which files the
    contexts are of (``"sources"``) and how long it took (``"retrieval_time"``, seconds); those of an answer name the
    ``"model"``, its tokens (``"prompt_tokens"``, ``"completion_tokens"``, None where it does not tell), its
    ``"finish_reason"`` and the ``"generation_time"`` in seconds.

    Args:
        retriever: A `Retriever`, a `HybridRetriever`, a `RetrievalChain`, any callable
            (query, filters=None, topk=None) -> nodes.
        model: A chat model, or a callable that turns a text into a text. None: only retrieval is evaluated, and asking
            for an answer is an error.
        topk: At most so many contexts; None: as many as the retriever gives by itself.
        options: For the model; with ``n`` above 1 all candidates are in ``multi_responses``, the first is the response.
        prompt: Makes what the model is asked from a question and its contexts.

    Raises:
        ConfigError: If an argument cannot be used as what it is.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Water of 80 degrees."})
        >>> rag = RetrieverRAG(Retriever(docs, "FineChunk", "bm25"), lambda text: "80 degrees [1].")
        >>> found = rag.retrieve_with_metadata("How hot is the water?")
        >>> found.contexts, found.metadata["sources"]
        (['Water of 80 degrees.'], ['tea.txt'])
        >>> rag.generate("How hot is the water?", found.contexts)
        '80 degrees [1].'
    """

    def __init__(
        self,
        retriever: NodeRetriever,
        model: ChatModel | ChatCallable | None = None,
        *,
        topk: int | None = None,
        options: ChatOptions | None = None,
        prompt: Callable[[str, Sequence[str]], Prompt] = passages_prompt,
    ) -> None:
        for name, value in (("retriever", retriever), ("prompt", prompt)):
            if not callable(value):
                msg = f"RetrieverRAG got {name}={value!r:.80}; give something that can be called."
                raise ConfigError(msg)
        self._retriever = retriever
        self._model = None if model is None else as_chat_model(model)
        self._topk = None if topk is None else whole_number("topk", topk, 1)
        self._options = options or ChatOptions()
        self._prompt = prompt

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[Mapping[str, Any]]:
        """Ask the retriever.

        Raises:
            RetrievalError: If it fails, or returns something else than nodes.
        """
        began = time.perf_counter()
        nodes = asked_nodes(self._retriever, query, None, self._topk) if check_query(query) else []
        took_s = time.perf_counter() - began
        metadata = {
            "sources": [node.path for node in nodes],
            "retriever": callable_name(self._retriever),
            "retrieval_time": took_s,
        }
        return RetrievalResult.from_nodes(nodes, metadata)

    def generate_with_metadata(self, query: str, contexts: list[str]) -> GenerationResult[Mapping[str, Any]]:
        """Ask the model.

        Raises:
            ConfigError: If there is no model.
            GenerationError: If it fails.
        """
        if self._model is None:
            msg = (
                "This RetrieverRAG has no model to answer with. Give one, RetrieverRAG(retriever, model), or evaluate "
                "retrieval alone: prepare(records, rag, generate=False)."
            )
            raise ConfigError(msg)
        began = time.perf_counter()
        completion = self._model.chat(self._prompt(query, contexts), self._options)
        took_s = time.perf_counter() - began
        texts = [choice.text for choice in completion.choices]
        usage = completion.usage
        metadata = {
            "model": completion.model or self._model.identity,
            "prompt_tokens": None if usage is None else usage.prompt_tokens,
            "completion_tokens": None if usage is None else usage.completion_tokens,
            "finish_reason": completion.choices[0].finish_reason,
            "generation_time": took_s,
        }
        return GenerationResult(texts[0], texts if len(texts) > 1 else None, metadata=metadata)


@known_arguments
class PipelineRAG(RAGInterface[Mapping[str, Any]]):
    """A `RAGPipeline` as a system under evaluation: what it finds, and what it answers from the contexts it is given.

    Contexts are those that `RAGPipeline.answer` would put into its context, reranked where the pipeline reranks. The
    metadata of a retrieval are the pipeline's (``"query"``, ``"seconds"`` by stage) and ``"sources"``, the files. A
    generation is the very result of the pipeline's generator.

    Args:
        pipeline: The pipeline; one without generator can be evaluated for its retrieval alone.
        top_k: How many hits are asked for; None: as the pipeline's settings say.
        max_tokens: Of the contexts that are built for answers; None: as the pipeline's settings say.

    Raises:
        ConfigError: If an argument cannot be used as what it is.

    Example:
        >>> from lazyrag import Document, RAGPipeline
        >>> docs = Document()
        >>> _ = docs.add_texts({"tea.txt": "Water of 80 degrees."})
        >>> rag = PipelineRAG(RAGPipeline.over(docs, "FineChunk", generator=lambda prompt: "80 degrees [1]."))
        >>> found = rag.retrieve_with_metadata("How hot is the water?")
        >>> rag.generate("How hot is the water?", found.contexts)
        '80 degrees [1].'
    """

    def __init__(self, pipeline: RAGPipeline, *, top_k: int | None = None, max_tokens: int | None = None) -> None:
        if not isinstance(pipeline, RAGPipeline):
            msg = f"PipelineRAG got {pipeline!r:.80}; give a RAGPipeline. For a retriever there is RetrieverRAG."
            raise ConfigError(msg)
        self._pipeline = pipeline
        self._top_k = None if top_k is None else whole_number("top_k", top_k, 1)
        self._max_tokens = None if max_tokens is None else whole_number("max_tokens", max_tokens, 1)

    def retrieve_with_metadata(self, query: str) -> RetrievalResult[Mapping[str, Any]]:
        """Ask the pipeline for its hits.

        Raises:
            RetrievalError: If the retriever or the reranker fails.
        """
        asked = self._pipeline.sync
        found = (asked.retrieve_and_rerank if self._pipeline.reranks else asked.retrieve)(query, self._top_k)
        metadata = {**(found.metadata or {}), "sources": [hit.source for hit in found]}
        return dataclasses.replace(found, metadata=metadata)  # the same lists: nothing is copied

    def generate_with_metadata(self, query: str, contexts: list[str]) -> GenerationResult[Mapping[str, Any]]:
        """Have the pipeline answer from contexts; without any it says that it found nothing.

        Raises:
            ConfigError: If the pipeline has no generator, or the question is blank.
            GenerationError: If the model fails.

        Warns:
            AnswerWarning: For each thing that is wrong with the answer.
        """
        hits = [Hit(str(number), text, math.nan) for number, text in enumerate(contexts, start=1)]
        return self._pipeline.sync.answer_from(hits, self._max_tokens, query=query).generation
