"""Query rewriting by a chat model: `QueryRewriter` and `MultiQueryRetriever`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from lazyrag.data.node import DocNode
from lazyrag.errors import ConfigError, GenerationError, LazyRAGError, RetrievalError, errors_of
from lazyrag.models.chat import (
    ChatCallable,
    UnreadableAnswerError,
    as_chat_model,
    conversation_text,
    visible,
)
from lazyrag.models.protocols import ChatModel, ChatOptions, Message
from lazyrag.models.structured_output import find_json
from lazyrag.read.snapshot import Snapshot
from lazyrag.retrieval.base import DEFAULT_TOPK, BaseRetriever, LazyStage, Query, check_retrievers
from lazyrag.retrieval.hybrid import BoundFusion
from lazyrag.retrieval.stages import NodeRetriever, check_query
from lazyrag.text.sentences import Language
from lazyrag.transforms.llm import is_chinese, list_items, read_lines
from lazyrag.validation import (
    is_list_of,
    known_arguments,
    require,
    validate_choice,
    validate_integer,
    validate_template,
)

RewritingTask: TypeAlias = Literal["rephrase", "split", "passage"]
PROMPTS: Mapping[tuple[str, str], str] = {
    ("rephrase", "en"): (
        "Write {n} other ways to ask the question below, for a search engine. Use other words where"
        " there are any, keep names and numbers as they are, and do not answer it. Write one on"
        " each line and nothing else.\n\nQuestion: {query}"
    ),
    ("rephrase", "zh"): (
        "请为搜索引擎把下面的问题换成 {n} 种不同的问法。尽量换用别的词语，名称和数字保持原样，"
        "不要回答问题。"
        "每行写一个，不要写别的内容。\n\n问题：{query}"
    ),
    ("split", "en"): (
        "Take the question below apart into at most {n} simpler questions that can be searched one"
        " by one and that together answer it. Each must be clear by itself. Write one on each line"
        " and nothing else; where it is simple already, repeat it.\n\nQuestion: {query}"
    ),
    ("split", "zh"): (
        "把下面的问题拆成最多 {n} 个可以分别检索的简单问题，合起来能回答原问题。每个问题都要能单独看懂。"
        "每行写一个，不要写别的内容；如果问题已经很简单，就照抄一遍。\n\n问题：{query}"
    ),
    ("passage", "en"): (
        "Write a short passage, as it might stand in a handbook, that answers the question below."
        " Write the passage alone, in two or three sentences.\n\nQuestion: {query}"
    ),
    ("passage", "zh"): (
        "写一小段可能出现在手册中的文字来回答下面的问题。只写这段文字，两三句话即可。"
        "\n\n问题：{query}"
    ),
}
"""The built-in prompts, by task and language."""
STANDALONE_PROMPTS: Mapping[str, str] = {
    "en": (
        "Rewrite the last question of the conversation below for a search engine, so that it is"
        " clear without the conversation: replace words that refer back by what they mean, add the"
        " subject where it is missing, and keep names and numbers as they are. If it is clear"
        " already, repeat it. Do not answer it. Write the question"
        " alone.\n\nConversation:\n\n{history}\n\nLast question: {query}"
    ),
    "zh": (
        "请为搜索引擎改写下面对话中的最后一个问题，"
        "使它脱离对话也能看懂：把指代前文的词换成所指的内容，补上省略的主语，"
        "名称和数字保持原样。如果它本身已经清楚，就照抄一遍。不要回答问题，只写改写后的问题。"
        "\n\n对话：\n\n{history}\n\n最后一个问题：{query}"
    ),
}
"""To condense a question and the conversation before it into one query, by language."""

_PARAMETERS = "retriever rewrite n fusion_method topk depth".split()

_BEGINS_JSON = re.compile(r"(?:\A|\n|[:：])[ \t]*[\[{［｛]|[\]}］｝]`*\s*\Z")
"""JSON in an answer: at the beginning of a line, after a colon, or at the end; not inside a
sentence."""
_EDGES = " \t\r\n*_`\"'“”‘’「」『』"
_LABEL = re.compile(
    r"(?:(?:rephrased |rewritten |standalone |last |sub-?)?(?:q(?:uer(?:y|ies)|uestions?)?|search)"
    r"|(?:改写后的|独立的?|最后一个|子)?问题|查询|问法|问)"
    r"[ \t]*\d{0,3}[ \t]*[:：][ \t]*",
    re.IGNORECASE,
)
"""A label before a question, at its beginning alone: ``FAQ: `` is part of one."""

_KEY = re.compile(
    r"(?:(?:re)?phrased|rewritten|sub)?["
    r" _-]?(?:q|query|question|text|wording|子?问题|查询|问法|问)[ _-]?\d{0,3}"
    r"|[^\W\d_]{0,40}[ _-]?\d{1,3}",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"(?:i['’]m |i am |we['’]re |we are )?(?:very |so |deeply )?sorry[,.;:!—]|i"
    r" apologi[sz]e\b|unfortunately, i\b"
    r"|(?:as an ai|as a language model)\b"
    r"|i (?:cannot|can['’]t|can not|won['’]t|am (?:unable|not able) to|['’]m (?:unable|not able)"
    r" to) "
    r"(?:help|assist|answer|provide|rephrase|rewrite|comply|fulfil|do (?:that|this))"
    r"|(?:很|非常|十分)?(?:抱歉|对不起)[，,。"
    r"！!；;]|我(?:无法|不能|没法)(?:回答|提供|帮|协助|改写|满足|完成)|作为一?[个名]?(?:AI|人工智能|语言模型)",
    re.IGNORECASE,
)
_CHATTER = re.compile(
    r"(?:sure|certainly|of course|absolutely|okay|ok|got it|great question|no"
    r" problem|好的|当然(?:可以)?|没问题)"
    r"[ \t]*(?:[!.,。！，~～].{0,120})?"
    r"|(?:(?:i )?hope (?:this|these|that|it)\b|let me know\b|feel free\b).*"
    r"|(?:希望(?:这|以上|对[您你]|能)|如[果需有].{0,20}(?:告诉我|告知|随时)).*",
    re.IGNORECASE,
)


@known_arguments
class QueryRewriter:
    r"""Rewrites a question with a chat model, for `MultiQueryRetriever` and other searches with
    several queries.

    Args:
        model: A `ChatModel`, or a callable from a text to a text.
        task: ``"rephrase"``: other wordings. ``"split"``: simpler questions that together answer
            it. ``"passage"``: one passage that would answer it, to search by its embedding (HyDE).
        n: At most so many texts; a passage is always one.
        prompt: Instead of the built-in one: a text with ``{query}`` in it, and perhaps ``{n}``.
        language: Of the built-in prompt; ``"auto"`` is the question's: Chinese or English.
        options: Passed to the model.

    Raises:
        ConfigError: If an argument is out of its range, or the prompt names no ``{query}``.

    Source:
        Passages: Gao, Ma, Lin, Callan: Precise Zero-Shot Dense Retrieval without Relevance Labels,
            ACL 2023,
        doi:10.18653/v1/2023.acl-long.99.

    Example:
        >>> answer = "1. How warm should the water be?\n2. Water for tea?"
        >>> rewriter = QueryRewriter(lambda prompt: answer, n=2)
        >>> rewriter("How hot for tea?")
        ['How warm should the water be?', 'Water for tea?']
    """

    def __init__(
        self,
        model: ChatModel | ChatCallable,
        task: RewritingTask = "rephrase",
        n: int = 3,
        *,
        prompt: str | None = None,
        language: Language = "auto",
        options: ChatOptions | None = None,
    ) -> None:
        self._model = as_chat_model(model)
        self._task: RewritingTask = validate_choice("task", task, RewritingTask)
        self._language: Language = validate_choice("language", language, Language)
        require(isinstance(options, (ChatOptions, type(None))), "options", options, "a ChatOptions")
        self._n = validate_integer("n", n, 1)
        if prompt is not None:
            validate_template("prompt", prompt, ["query"], ["n"])
        self._prompt = prompt
        self._options = options

    def __call__(self, query: str) -> list[str]:
        """Return the texts that the model wrote for a question, at most ``n``, each once.

        The question itself is left out, unless the model wrote nothing else.

        Raises:
            GenerationError: If the model fails, or its answer has no text.
        """
        language = self._language
        if language == "auto":
            language = "zh" if is_chinese(query) else "en"
        template = self._prompt or PROMPTS[self._task, language]
        choice = self._model.chat(template.format(query=query, n=self._n), self._options).choices[0]
        try:
            if self._task == "passage":
                return [visible(choice.text)]
            queries = read_queries(choice.text, choice.finish_reason == "length")
            others = [text for text in queries if _folded(text) != _folded(query)]
            return (others or queries)[: self._n]
        except UnreadableAnswerError as exc:
            raise GenerationError(
                f"The chat model's answer to the question {query!r:.60} cannot be used: {exc}. Try"
                " again, or use another model."
            ) from exc


def standalone_prompt(query: str, history: Sequence[Message]) -> str:
    """Return the prompt for a chat model to write a question as a query that is clear without the
    conversation.
    """
    template = STANDALONE_PROMPTS["zh" if is_chinese(query) else "en"]
    return template.format(history=conversation_text(history), query=query)


def read_queries(answer: str, is_cut: bool = False) -> list[str]:
    r"""Read queries from a list in any form: JSON, numbers, bullets, lines; each of them once.

    In bare lines the usual refusals raise an error, and the usual polite phrases are left out.

    Args:
        answer: A chat model's.
        is_cut: Whether the answer was cut at a limit of tokens: then the last query is incomplete.

    Raises:
        UnreadableAnswerError: If it has no queries, refuses, or is JSON of another kind.

    Example:
        >>> read_queries("Here you are:\n\n- How hot?\n- Which *water*?")
        ['How hot?', 'Which *water*?']
        >>> read_queries('```json\n{"queries": ["怎么泡茶？", "水温多少？"]}\n```')
        ['怎么泡茶？', '水温多少？']
    """
    text = visible(answer)
    if _BEGINS_JSON.search(text) and find_json(text, _is_json) is not None:
        parsed = find_json(text, lambda value: bool(_texts_in(value)))
        if parsed is None:
            raise UnreadableAnswerError(
                "it is JSON without a list of texts, or of objects with a 'query'"
            )
        return _distinct(_texts_in(parsed.value))
    lines = list_items(text) or _bare_lines(text)
    return _distinct(lines[:-1] if is_cut and len(lines) > 1 else lines)


def _bare_lines(text: str) -> list[str]:
    lines = [line for line in read_lines(text, is_cut=False) if not line.endswith((":", "："))]
    queries = [line for line in lines if not _CHATTER.fullmatch(line)]
    if queries and _REFUSAL.match(queries[0]):
        raise UnreadableAnswerError(f"it refuses: {queries[0]!r:.80}")
    return queries


def _is_json(value: Any) -> bool:
    """Whether JSON is more than brackets in a sentence, such as ``[1]``."""
    return isinstance(value, Mapping) or (
        isinstance(value, list) and any(isinstance(item, (str, list, Mapping)) for item in value)
    )


def _texts_in(value: Any) -> list[str]:
    """The texts of a list, of the only list in a mapping, or of a mapping by its keys; nested ones
    likewise.
    """
    if isinstance(value, Mapping):
        lists = [item for item in value.values() if isinstance(item, list)]
        inner = [item for item in value.values() if isinstance(item, Mapping)]
        queries = _under_keys(value) or (inner if len(inner) == 1 else [])
        value = lists[0] if len(lists) == 1 else queries
    return [text for text in _flat(value) if any(map(str.isalnum, text))]


def _flat(value: Any) -> list[str]:
    """The texts in a list and the lists and mappings in it, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):  # without the keys of questions, one text under any key
        value = _under_keys(value) or (list(value.values()) if len(value) == 1 else [])
    if not isinstance(value, list):
        return []
    texts = []
    for item in value:
        texts += _flat(item)
    return texts


def _under_keys(item: Mapping[str, Any]) -> list[Any]:
    """The values of a mapping under the keys of questions."""
    return [value for key, value in item.items() if _KEY.fullmatch(str(key).strip())]


def _distinct(lines: Iterable[str]) -> list[str]:
    """Queries without labels and quotes, each once."""
    queries: dict[str, str] = {}
    for raw in lines:
        text = " ".join(raw.split()).strip(_EDGES)
        label = _LABEL.match(text)
        query = text[label.end() if label else 0 :].strip(_EDGES)
        if any(map(str.isalnum, query)):
            queries.setdefault(_folded(query), query)
    if not queries:
        raise UnreadableAnswerError("it holds no question")
    return list(queries.values())


def _folded(query: str) -> str:
    """A query without differences of white space and case."""
    return " ".join(query.split()).casefold()


class MultiQueryRetriever(BaseRetriever[list[DocNode]]):
    """Searches for a question in several wordings, and fuses the results into one ranking.

    The question itself always comes first. A rewriting that fails raises an error.

    Args:
        retriever: Any retriever of nodes.
        rewrite: A callable from the question to a list of queries; or a `ChatModel`, which writes
            other wordings (see `QueryRewriter` for other tasks and prompts).
        n: At most so many queries beside the question.
        fusion_method: Name of a registered fusion.
        topk: At most so many nodes.
        depth: How many nodes of each query are fused; None: 4 x topk, and at least 50. Where you
            set neither: the retriever's own ``topk``, if it has one.
        fusion_kw: Keywords of the fusion, but no weights, nor lists of a value for each ranking:
            the number of queries varies.

    Raises:
        NotRegisteredError: If there is no such fusion.
        ConfigError: If another argument is out of its range, or of the wrong kind.

    Example:
        >>> from lazyrag import Document, Retriever
        >>> docs = Document()
        >>> _ = docs.add_texts({"a": "green tea", "b": "matcha", "c": "coffee"})
        >>> words = {"tea": ["matcha", "oolong"]}
        >>> retriever = MultiQueryRetriever(
        ...     Retriever(docs, "FineChunk", similarity="bm25"), lambda query: words.get(query, [])
        ... )
        >>> sorted(node.text for node in retriever("tea"))
        ['green tea', 'matcha']
    """

    def __init__(
        self,
        retriever: NodeRetriever,
        rewrite: ChatModel | Callable[[str], Sequence[str]],
        n: int = 3,
        *,
        fusion_method: str = "rrf",
        topk: int = DEFAULT_TOPK,
        depth: int | None = None,
        **fusion_kw: Any,
    ) -> None:
        self._set_retrievers(check_retrievers("MultiQueryRetriever", [retriever]))
        [self._retriever] = self.retrievers
        self._n = validate_integer("n", n, 1)
        self._rewrite: Callable[[str], Any] = (
            QueryRewriter(rewrite, n=n) if isinstance(rewrite, ChatModel) else rewrite
        )
        expected = "a callable from a question to a list of queries, or a ChatModel"
        require(callable(self._rewrite), "rewrite", rewrite, expected)
        if "weights" in fusion_kw:
            raise ConfigError("MultiQueryRetriever takes no weights: the number of queries varies.")
        self._fusing = BoundFusion.checked(fusion_method, fusion_kw, _PARAMETERS)
        self._fusing.try_out(2)
        try:
            self._fusing.try_out(3)
        except LazyRAGError as exc:
            raise ConfigError(
                f"The keywords {fusion_kw!r:.80} fit a certain number of queries, and that number"
                " varies. Pass values for any number of queries."
            ) from exc
        self._fusing.check_directions([self._retriever.higher_is_better])
        self._set_topk(topk)
        self._depth = None if depth is None else validate_integer("depth", depth, 1)

    def queries(self, query: str) -> list[str]:
        """Return the queries for a question: itself, then at most ``n`` others, each once.

        Raises:
            ConfigError: If the question is not a string.
            GenerationError: If a chat model fails.
            RetrievalError: If the rewriting raises, or returns something else than a list of texts.
        """
        if not check_query(query):
            return []
        with errors_of(f"The rewriting of {query!r:.60}", RetrievalError):
            rewritten = self._rewrite(query)
        if not is_list_of(rewritten, str):
            raise RetrievalError(
                f"The rewriting of {query!r:.60} must return a list of texts; got"
                f" {rewritten!r:.80}."
            )
        queries = {_folded(query): query}
        for text in rewritten:
            if text.strip():
                queries.setdefault(_folded(text), text)
        return list(queries.values())[: self._n + 1]

    def prepare(self, query: Query) -> None:
        """Rewrite the query."""
        for text in self._rewritten(query)[0]:
            self._retriever.prepare(replace(query, text=text))

    def run(self, query: Query, snapshot: Snapshot) -> LazyStage:
        """Run the retriever for each query and fuse the results."""
        limit = self._limit(query)
        depth = self._fused_depth(limit)
        queries, seconds = self._rewritten(query)
        inputs = [
            self._retriever.run_part(replace(query, text=text), snapshot, depth) for text in queries
        ]
        directions = [self._retriever.higher_is_better] * len(inputs)
        fused = self._fusing.fused("queries", inputs, directions, depth, snapshot, queries=queries)
        fused.seconds += seconds
        return fused.cut(limit)

    def _rewritten(self, query: Query) -> tuple[list[str], float]:
        """The queries for a question, written once a call, and the duration of that."""
        key = id(self), query.text
        cached: tuple[list[str], float] | None = query.memo.get(key)
        if cached is None:
            begun = time.perf_counter()
            queries = self.queries(query.text)
            cached = query.memo[key] = queries, time.perf_counter() - begun
        return cached
