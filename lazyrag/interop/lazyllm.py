"""LazyLLM's names for retrieval programs: change the import, and they run on this package.

Example::

    import lazyrag.interop.lazyllm as lazyllm
    from lazyrag.interop.lazyllm import Document, Reranker, Retriever, bind, parallel, pipeline

Specification 001 decides where the two differ. docs/coming-from.md lists what runs and what does
not exist here.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from lazyrag.data.fields import DataType, DocField
from lazyrag.data.node import DocNode as CoreNode
from lazyrag.data.segment import EMPTY, LAZY_ROOT_NAME
from lazyrag.document.document import Document as CoreDocument
from lazyrag.groups.node_group import NodeGroup
from lazyrag.models.concurrency import map_in_threads
from lazyrag.retrieval.base import DEFAULT_TOPK, NodeList, checked_output, render
from lazyrag.retrieval.reranker import Reranker, keyword_filter, register_reranker
from lazyrag.retrieval.retriever import Retriever as CoreRetriever
from lazyrag.retrieval.similarity import register_similarity
from lazyrag.text.tokens import TiktokenCounter
from lazyrag.transforms import splitters, structured
from lazyrag.transforms.base import NodeTransform, TransformArgs
from lazyrag.transforms.llm import LLMParser
from lazyrag.validation import require, validate_choice, validate_range

_INSTEAD = {
    "OnlineChatModule OnlineEmbeddingModule TrainableModule AutoModel ChatPrompter": (
        "pass any callable, or lazyrag.HttpChatModel and lazyrag.HttpEmbedder"
    ),
    "WebModule DocServer DocumentProcessor create_kb_group": (
        "use lazyrag serve, or Document(manager=True)"
    ),
    "switch loop warp diverter ifs": "write it in Python, or use lazyrag.RAGPipeline",
    "LayoutNodeParser TreeBuilderParser RichDocNode": "loaders find headings: node.locations",
    "SchemaExtractor": "ask tables: docs.tables",
    "register_index": "use register_similarity",
}
"""Names that do not exist here, and what takes their place."""


def __getattr__(name: str) -> Any:
    message = f"module {__name__!r} has no attribute {name!r}"
    for names, instead in _INSTEAD.items():
        if name in names.split():
            message = f"{name} is not in {__name__}: {instead}. See docs/coming-from.md."
    raise AttributeError(message)


__all__ = [
    "LAZY_ROOT_NAME",
    "ActionModule",
    "CharacterSplitter",
    "CodeSplitter",
    "ContextRetriever",
    "DataType",
    "DocField",
    "DocNode",
    "Document",
    "GeneralCodeSplitter",
    "HTMLSplitter",
    "JSONLSplitter",
    "JSONSplitter",
    "KeywordFilter",
    "LLMParser",
    "MarkdownSplitter",
    "MetadataMode",
    "ModuleReranker",
    "NodeGroup",
    "NodeTransform",
    "PriorityRetriever",
    "RecursiveSplitter",
    "Reranker",
    "Retriever",
    "SentenceSplitter",
    "TempDocRetriever",
    "TransformArgs",
    "WeightedRetriever",
    "XMLSplitter",
    "YAMLSplitter",
    "_0",
    "_1",
    "bind",
    "parallel",
    "pipeline",
    "register_reranker",
    "register_similarity",
    "tools",
]

tools: Any = SimpleNamespace(rag=sys.modules[__name__])
"""For programs that write ``lazyllm.tools.rag.register_similarity``."""


# Nodes


class MetadataMode(str, Enum):
    """Which metadata goes before a node's text."""

    ALL = "all"
    EMBED = "embed"
    LLM = "llm"
    NONE = "none"


class DocNode(CoreNode):
    r"""A node whose text may be read with its metadata before it.

    Indexes read the text alone, and what ``create_node_group(index_fields=...)`` names.

    Example:
        >>> node = DocNode(text="Pick it.", metadata={"season": "spring", "page": 3})
        >>> node.excluded_llm_metadata_keys = ["page"]
        >>> node.get_text(MetadataMode.LLM)
        'season: spring\n\nPick it.'
    """

    excluded_embed_metadata_keys: Sequence[str] = ()
    excluded_llm_metadata_keys: Sequence[str] = ()

    @classmethod
    def of(cls, node: CoreNode) -> Self:
        """Return a hit with the methods of this class."""
        copied = cls.__new__(cls)
        for name in CoreNode.__slots__:
            setattr(copied, name, getattr(node, name))
        return copied

    similarity_score = relevance_score = CoreNode.score

    def get_metadata_str(self, mode: MetadataMode = MetadataMode.ALL) -> str:
        """Return the metadata as lines ``key: value``, without the keys excluded in the mode."""
        mode = MetadataMode(mode)
        excluded: Any = ()
        if mode is MetadataMode.NONE:
            excluded = list(self.metadata)
        elif mode is not MetadataMode.ALL:
            excluded = getattr(self, f"excluded_{mode.value}_metadata_keys")
        lines = [f"{key}: {value}" for key, value in self.metadata.items() if key not in excluded]
        return "\n".join(lines)

    def get_text(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
        """Return the text, after the metadata of a mode and an empty line."""
        return f"{self.get_metadata_str(metadata_mode)}\n\n{self.text}".removeprefix("\n\n")

    get_content = get_text


# Documents


class Document(CoreDocument):
    """A `lazyrag.Document` with LazyLLM's methods.

    Example:
        >>> docs = Document(store_conf={"type": "map"}).start()
        >>> docs.find_parent("CoarseChunk")([])
        []
        >>> docs.stop()
    """

    @property
    def node_groups(self) -> dict[str, NodeGroup]:
        """The defined groups by name, with ``parent`` and ``user_transform``."""
        return {name: self._graph[name] for name in self._graph}

    def start(self) -> Self:
        """Ingest now what the first query would ingest."""
        self.sync()
        return self

    def activate_groups(self, groups: Any, **more: Any) -> None:
        """Build a group, or several, see `lazyrag.Document.activate_group`."""
        self.activate_group(groups, **more)

    stop = CoreDocument.close
    find_parent = find_children = CoreDocument.find


# Retrievers and rerankers


class Priority(str, Enum):
    """When a `PriorityRetriever` takes the nodes of one of its retrievers."""

    high = "high"
    normal = "normal"
    low = "low"
    ignore = "ignore"


class Retriever(CoreRetriever[Any]):
    """A `lazyrag.Retriever` that a `WeightedRetriever` or a `PriorityRetriever` may combine.

    Its hits are nodes of this module.
    """

    Priority = Priority

    def __init__(
        self, *args: Any, weight: float = 1.0, priority: str = "normal", **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.weight = validate_range("weight", weight, 0)
        levels = [level.value for level in Priority]
        self.priority = Priority(validate_choice("priority", priority, levels))

    def _render(self, ranked: Any) -> Any:
        shown = super()._render(ranked)
        return NodeList(map(DocNode.of, shown)) if self.output_format is None else shown


class TempDocRetriever:
    """Searches files that are passed with the query. Nothing is stored.

    Args:
        embed: As for `Document`; without it, keywords are searched.
        output_format: As for a Retriever.
        join: As for a Retriever.
    """

    def __init__(self, embed: Any = None, output_format: Any = None, join: Any = False) -> None:
        self._embed = embed
        self._output = checked_output(output_format, join)
        self._groups: list[Any] = []
        self._searches: list[Any] = []

    def create_node_group(self, name: str, **more: Any) -> Self:
        """Define a group, see `lazyrag.Document.create_node_group`."""
        self._groups.append((name, more))
        return self

    def add_subretriever(self, group: str, **more: Any) -> Self:
        """Search a group, by the arguments of a `Retriever`; without a call ``"MediumChunk"``."""
        self._searches.append((group, more))
        return self

    def __call__(self, files: Any, query: str, topk: int | None = None) -> Any:
        """Return the hits of each searched group, one group after the other."""
        similarity = None if self._embed else "bm25_chinese"
        hits: list[Any] = []
        with self._document([files] if isinstance(files, str) else files) as docs:
            for name, more in self._groups:
                docs.create_node_group(name, **more)
            for group, more in self._searches or [("MediumChunk", {})]:
                search = Retriever(docs, group, **{"similarity": similarity, **more})
                hits += search(query, topk=topk)
            return render(hits, *self._output)

    def _document(self, files: Sequence[str]) -> Document:
        return Document(embed=self._embed, doc_files=files)


class ContextRetriever(TempDocRetriever):
    """Searches texts that are passed with the query.

    Example:
        >>> ContextRetriever(output_format="content")(["Green tea.", "Coffee."], "tea")
        ['Green tea.']
    """

    def _document(self, files: Sequence[str]) -> Document:
        docs = Document(embed=self._embed)
        docs.add_texts({f"context-{number}": text for number, text in enumerate(files, 1)})
        return docs


def ModuleReranker(  # noqa: N802  specification 001 names it
    nodes: Any, model: Any, query: str, topk: int = -1, **kwargs: Any
) -> Any:
    """Order nodes by a rerank model, see `lazyrag.retrieval.reranker.module_reranker`."""
    return Reranker("ModuleReranker", model=model, topk=topk, **kwargs)(nodes, query)


KeywordFilter = keyword_filter


# Splitters


class _Tokenizer:
    """A token counter over a tokenizer of Hugging Face."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.name = f"huggingface-{getattr(tokenizer, 'name_or_path', '')}"

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))


class _Splitter:
    """What LazyLLM's splitters have beside those of this package."""

    _initial: ClassVar[Mapping[str, Any]] = {}
    _defaults: Mapping[str, Any] = {}
    _filetype = ""

    def __init__(self, *sizes: int, **more: Any) -> None:
        require(len(sizes) <= 2, "sizes", sizes, "chunk_size and chunk_overlap")
        passed = dict(zip(("chunk_size", "chunk_overlap"), sizes, strict=False)) | more
        self._arguments = _translated({**self._initial, **self._defaults}) | _translated(passed)
        self._set()

    def _set(self, **changes: Any) -> Self:
        self._arguments |= changes
        if isinstance(self, structured.JSONSplitter) and not self._arguments.get("chunk_overlap"):
            self._arguments.pop("chunk_overlap", None)  # its chunks never overlap
        super().__init__(**self._arguments)
        return self

    @classmethod
    def set_default(cls, **arguments: Any) -> None:
        """Set arguments of the splitters of this class that are made from now on."""
        cls._defaults = {**cls._defaults, **arguments}

    @classmethod
    def get_default(cls) -> dict[str, Any]:
        """Return the arguments that `set_default` has set."""
        return dict(cls._defaults)

    @classmethod
    def reset_default(cls) -> None:
        """Forget the arguments that `set_default` has set."""
        cls._defaults = {}

    def from_tiktoken_encoder(
        self, encoding_name: Any = "gpt2", model_name: str | None = None
    ) -> Self:
        """Count tokens with a vocabulary of tiktoken, see `lazyrag.text.tokens.TiktokenCounter`."""
        encoding = model_name or encoding_name
        return self._set(counter=TiktokenCounter("r50k_base" if encoding == "gpt2" else encoding))

    def from_huggingface_tokenizer(self, tokenizer: Any) -> Self:
        """Count tokens with a tokenizer of Hugging Face."""
        return self._set(counter=_Tokenizer(tokenizer))

    def split_text(self: Any, text: str, metadata_size: int = 0) -> list[Any]:
        """Return the chunks of a text; of code, JSON and markup as nodes with their file type.

        Args:
            text: The text.
            metadata_size: Tokens of each chunk that are kept free.
        """
        size = self.chunk_size - metadata_size
        splitter = type(self)(**{**self._arguments, "chunk_size": size})
        chunks = splitter.transform(DocNode(text=text))
        if not self._filetype:
            return [chunk.text for chunk in chunks]
        filetype = {"filetype": self._filetype}
        return [DocNode(chunk.content, metadata=chunk.metadata | filetype) for chunk in chunks]


def _translated(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """LazyLLM's arguments by the names of this package."""
    names = {"overlap": "chunk_overlap", "filetype": "language"}
    translated = {names.get(name, name): value for name, value in arguments.items()}
    if "separator" in translated:
        translated["separators"] = [translated.pop("separator")]
    if translated.get("keep_separator") is True:
        translated["keep_separator"] = "end"
    return translated


class _SplitFns(_Splitter):
    """Splitters at separators, in whose place functions may split."""

    def set_split_fns(self, functions: Any) -> Self:
        """Split by a function from a text to its pieces, or by several, from coarse to fine.

        A parameter ``separator`` of a function receives the first separator.
        """
        plain = self.__dict__.setdefault("_plain", self._arguments["separators"])
        several = functions if isinstance(functions, list) else [functions]
        bound = [_with_separator(function, plain[0]) for function in several]
        return self._set(separators=bound or plain)

    def clear_split_fns(self) -> Self:
        """Split at separators again."""
        return self.set_split_fns([])


def _with_separator(function: Any, separator: str) -> Any:
    takes_separator = "separator" in inspect.signature(function).parameters
    return functools.partial(function, separator=separator) if takes_separator else function


def _make_splitter(
    kind: type, base: type, filetype: str = "", name: str = "", **initial: Any
) -> Any:
    """A splitter of this package with LazyLLM's methods."""
    values = {
        "__doc__": f"See `{base.__module__}.{base.__name__}`.",
        "__module__": __name__,
        "_filetype": filetype,
        "_initial": initial,
    }
    return type(name or base.__name__, (kind, base), values)


SentenceSplitter = _make_splitter(_Splitter, splitters.SentenceSplitter)
RecursiveSplitter = _make_splitter(
    _SplitFns, splitters.RecursiveSplitter, separators=["\n\n", "\n"]
)
CharacterSplitter = _make_splitter(
    _SplitFns, splitters.RecursiveSplitter, name="CharacterSplitter", separator=" "
)
MarkdownSplitter = _make_splitter(_Splitter, structured.MarkdownSplitter, "md")
HTMLSplitter = _make_splitter(_Splitter, structured.HTMLSplitter, "html")
XMLSplitter = _make_splitter(_Splitter, structured.XMLSplitter, "xml")
YAMLSplitter = _make_splitter(_Splitter, structured.YAMLSplitter, "yaml")
JSONSplitter = _make_splitter(_Splitter, structured.JSONSplitter, "json")
JSONLSplitter = _make_splitter(_Splitter, structured.JSONSplitter, "jsonl", "JSONLSplitter")
GeneralCodeSplitter = _make_splitter(
    _Splitter, structured.CodeSplitter, "code", "GeneralCodeSplitter"
)


class CodeSplitter:
    """Makes the splitter of a file type; of a language, such as ``"py"`` or ``"python"``, and of
    none a `GeneralCodeSplitter`.

    Example:
        >>> type(CodeSplitter(filetype="htm")).__name__
        'HTMLSplitter'
    """

    _splitters: ClassVar[Any] = {
        "xml": XMLSplitter,
        "json": JSONSplitter,
        "jsonl": JSONLSplitter,
        "yaml": YAMLSplitter,
        "yml": YAMLSplitter,
        "html": HTMLSplitter,
        "htm": HTMLSplitter,
        "md": MarkdownSplitter,
    }

    def __new__(cls, *args: Any, filetype: str | None = None, **more: Any) -> Any:
        """Make the splitter."""
        if filetype in cls._splitters:
            return cls._splitters[filetype](*args, **more)
        language = structured.language_of(f"file.{filetype}") or filetype
        return GeneralCodeSplitter(*args, filetype=language, **more)


# Flows


@dataclass(frozen=True)
class Placeholder:
    """Stands for an argument of the call of a `bind`."""

    index: int


_0 = Placeholder(0)
_1 = Placeholder(1)


@dataclass(frozen=True)
class Result:
    """The input of a running pipeline, or what one of its steps returned.

    Args:
        flow: The pipeline.
        step: Name of the step; None for the input.
        keys: Keys that lead to a part of it.
    """

    flow: Any
    step: str | None = None
    keys: tuple[Any, ...] = ()

    __iter__ = None  # `__getitem__` takes any number

    def __getitem__(self, key: Any) -> Result:
        return Result(self.flow, self.step, (*self.keys, key))


class _Several(tuple[Any, ...]):
    """Results that the next step of a pipeline receives as several arguments."""

    __slots__ = ()


_results: ContextVar[Any] = ContextVar("results", default=EMPTY)


class bind:  # noqa: N801  LazyLLM's name
    """A function with arguments: ``bind(function, ...)``, or ``function | bind(...)``.

    Positional arguments take the place of those of a call, of which `_0` is the first; keyword
    arguments are added. ``pipeline.input`` and ``pipeline.output(name)`` are values of a running
    pipeline.

    Example:
        >>> subtract = (lambda first, second: first - second) | bind(_1, _0)
        >>> subtract(1, 5)
        4
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self._kwargs = kwargs

    def __ror__(self, function: Any) -> bind:
        return bind(function, *self._args, **self._kwargs)

    def __call__(self, *values: Any, **more: Any) -> Any:
        """Call the function."""
        function, *args = self._args
        arguments = [_resolved(argument, values) for argument in args] or values
        keywords = {name: _resolved(value, values) for name, value in self._kwargs.items()}
        return function(*arguments, **keywords, **more)


def _resolved(argument: Any, values: Sequence[Any]) -> Any:
    if isinstance(argument, Placeholder):
        return values[argument.index]
    if not isinstance(argument, Result):
        return argument
    running = _results.get()
    expected = "a value of a running pipeline"
    hint = "Call the pipeline that it belongs to."
    require(argument.flow in running, "An argument of bind", argument, expected, hint)
    value = running[argument.flow][argument.step]
    return functools.reduce(operator.getitem, argument.keys, value)


class pipeline:  # noqa: N801  LazyLLM's name
    """Calls one step after the other, each with the result of the one before.

    Steps are arguments, or attributes that are set in a ``with`` statement. The first step receives
    the keywords of a call.

    Example:
        >>> with pipeline() as shout:
        ...     shout.words = str.split
        ...     shout.answer = (lambda words, text: [*words, text]) | bind(text=shout.input)
        >>> shout("green tea")
        ['green', 'tea', 'green tea']
    """

    def __init__(self, *steps: Any) -> None:
        self._steps: dict[str, Any] = {str(number): step for number, step in enumerate(steps)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def __setattr__(self, name: str, step: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, step)
            return
        self._steps[name] = step
        # After `with parallel().sum as flow.both:` LazyLLM's programs write `both.first = ...`.
        namespace = sys._getframe(1).f_globals
        if isinstance(step, pipeline) and isinstance(namespace.get(name, step), pipeline):
            namespace[name] = step

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_steps", ()):
            return self._steps[name]
        raise AttributeError(f"The flow has no step {name!r}.")

    @property
    def input(self) -> Result:
        """The input of the running pipeline, for `bind`."""
        return Result(self)

    def output(self, step: Any) -> Result:
        """What a step of the running pipeline returned, for `bind`: a step, or its name."""
        names = [name for name, other in self._steps.items() if step in (name, other)]
        require(bool(names), "step", step, "a step of the pipeline, or its name")
        return Result(self, names[0])

    def start(self) -> Self:
        """Return itself: nothing needs to be started."""
        return self

    def __call__(self, *values: Any, **keywords: Any) -> Any:
        """Call the steps."""
        value = values[0] if len(values) == 1 else _Several(values)
        results: Any = {None: value}
        token = _results.set({**_results.get(), self: results})
        try:
            for name, step in self._steps.items():
                several = value if isinstance(value, _Several) else (value,)
                value = results[name] = step(*several, **keywords)
                keywords = {}
        finally:
            _results.reset(token)
        return value


ActionModule = pipeline


def _combining(combine: Any) -> Any:
    """A property that sets how a `parallel` combines its results, and returns it."""

    def combined(flow: Any) -> Any:
        flow._combine = combine
        return flow

    return property(combined)


class parallel(pipeline):  # noqa: N801  LazyLLM's name
    """Calls each step with the same arguments, in threads.

    The next step of a pipeline receives the results as several arguments. `sum` adds them, `aslist`
    and `asdict` make them one argument.

    Example:
        >>> parallel(str.upper, str.title).aslist("tea")
        ['TEA', 'Tea']
    """

    _combine: Any = staticmethod(lambda named: _Several(named.values()))
    sum = _combining(lambda named: functools.reduce(operator.add, named.values()))
    aslist = _combining(lambda named: [*named.values()])
    asdict = _combining(lambda named: named)

    def __call__(self, *values: Any, **keywords: Any) -> Any:
        """Call the steps and combine the results."""
        steps = list(self._steps.values())
        results = map_in_threads(lambda step: step(*values, **keywords), steps, len(steps))
        return self._combine(dict(zip(self._steps, results, strict=True)))


class _CombinedRetriever(parallel):
    """Retrievers in a ``with`` statement or as arguments, and how many nodes they return."""

    _select: Any

    def __init__(
        self,
        *retrievers: Any,
        topk: int = DEFAULT_TOPK,
        output_format: Any = None,
        join: Any = False,
    ) -> None:
        super().__init__(*retrievers)
        self._topk = topk
        self._output = checked_output(output_format, join)

    def __call__(self, query: str, filters: Any = None, *, topk: int | None = None) -> Any:
        """Return the nodes that are taken of the retrievers' hits."""
        return render(
            self._select(super().__call__(query, filters), topk or self._topk), *self._output
        )


class WeightedRetriever(_CombinedRetriever):
    """Takes of each retriever as many of its best nodes as its weight says, none for weight 0."""

    def _select(self, rankings: Any, topk: int) -> list[Any]:
        counts = [0] * len(rankings)
        for _ in range(topk):
            shares = {
                at: retriever.weight / (counts[at] + 1)
                for at, retriever in enumerate(self._steps.values())
                if retriever.weight > 0 and counts[at] < len(rankings[at])
            }
            if shares:
                counts[max(shares, key=shares.__getitem__)] += 1
        best: list[Any] = []
        for hits, count in zip(rankings, counts, strict=True):
            best += hits[:count]
        return best


class PriorityRetriever(_CombinedRetriever):
    """Takes all hits of the next priority until there are enough; none of retrievers to ignore."""

    def _select(self, rankings: Any, topk: int) -> list[Any]:
        best: list[Any] = []
        for level in (Priority.high, Priority.normal, Priority.low):
            if len(best) < topk:
                for hits, retriever in zip(rankings, self._steps.values(), strict=True):
                    best += hits if retriever.priority == level else []
        return best
