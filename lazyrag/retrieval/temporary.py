"""Retrievers over files and texts that come with the query: `TempDocRetriever` and `ContextRetriever`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from lazyrag.data.node import DocNode
from lazyrag.data.segment import digest
from lazyrag.document.document import Document
from lazyrag.ingest.dataset import find_named_files
from lazyrag.retrieval.base import OutputFormat, check_retrievers, checked_output, render
from lazyrag.retrieval.hybrid import OVER_SIMILARITY
from lazyrag.retrieval.retriever import Retriever
from lazyrag.validation import known_arguments, require, validate_integer, validate_texts

_CACHED = 128  # Documents in memory


class _TemporaryRetriever:
    """Searches Documents that are made of a query's own sources, and cached.

    Args:
        embed: As of a `Document`. None: keyword search.
        output_format: See `Retriever`.
        join: See `Retriever`.
        topk: At most so many nodes in total; None: as many as the searches return, 6 each by default.
    """

    def __init__(
        self,
        embed: Any = None,
        output_format: OutputFormat | None = None,
        join: bool | str = False,
        topk: int | None = None,
    ) -> None:
        self._embed = embed
        self._output = checked_output(output_format, join)
        self._topk = None if topk is None else validate_integer("topk", topk, 1)
        similarity = OVER_SIMILARITY if embed is None else None
        self._defaults = {"similarity": similarity, **({} if topk is None else {"topk": topk})}
        self._template = Document(embed=embed)  # validates definitions
        self._groups: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._searches: list[tuple[str, dict[str, Any]]] = []
        self._cache: OrderedDict[str, list[Retriever[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def create_node_group(self, name: str, *args: Any, **kwargs: Any) -> Self:
        """Define a node group; arguments are those of `Document.create_node_group`. Returns itself."""
        self._template.create_node_group(name, *args, **kwargs)
        self._groups[name] = args, kwargs
        self._cache.clear()
        return self

    def add_subretriever(self, group: str, **kwargs: Any) -> Self:
        """Search a group, with arguments of `Retriever`. Without it, the defined groups are searched, or `MediumChunk`.

        Returns itself.
        """
        check_retrievers("add_subretriever", [Retriever(self._template, group, **{**self._defaults, **kwargs})])
        self._searches.append((group, kwargs))
        self._cache.clear()
        return self

    def _retrieve(self, key: str, make: Callable[[], Document], query: str, topk: int | None) -> Any:
        """The nodes of all searches, one after the other; of equal texts the first."""
        retrievers = self._cache.get(key)
        if retrievers is None:
            docs = make()
            for name, (args, kwargs) in self._groups.items():
                docs.create_node_group(name, *args, **kwargs)
            searches = self._searches or [(group, {}) for group in self._groups or (Document.MediumChunk,)]
            retrievers = [Retriever(docs, group, **{**self._defaults, **kwargs}) for group, kwargs in searches]
        with self._lock:
            self._cache[key] = retrievers
            self._cache.move_to_end(key)
            while len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        found: dict[str, DocNode] = {}
        for node in (node for retriever in retrievers for node in retriever(query, topk=topk)):
            found.setdefault(node.text, node)
        return render(list(found.values())[: topk or self._topk], *self._output)


@known_arguments
class TempDocRetriever(_TemporaryRetriever):
    """Searches files that come with the query (spec 001's temporary documents).

    Files are loaded into memory at their first use. The last 128 combinations are cached, until a file changes.

    Args:
        embed: As of a `Document`. None: keyword search.
        output_format: See `Retriever`.
        join: See `Retriever`.
        topk: At most so many nodes in total; None: as many as the searches return, 6 each by default.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tea.txt")
        ...     _ = path.write_text("Green tea wants 80 degrees.")
        ...     TempDocRetriever(output_format="content")(path, "green tea")
        ['Green tea wants 80 degrees.']
    """

    def __call__(self, files: str | Path | Sequence[str | Path], query: str, topk: int | None = None) -> Any:
        """Return the best nodes of some files.

        Args:
            files: One path or several.
            query: A question or keywords.
            topk: Another limit for this call.

        Raises:
            DatasetPathError: If a file does not exist.
            ConfigError: If an argument is invalid.
        """
        given = [files] if isinstance(files, (str, Path)) else files
        is_valid = isinstance(given, Sequence) and all(isinstance(one, (str, Path)) for one in given) and bool(given)
        require(is_valid, "files", files, "the path of a file, or a list of them")
        paths = {str(path): path for path in (Path(one).expanduser().absolute() for one in given)}
        states = [file.path.stat() for file in find_named_files(paths, "files")]
        key = digest([*paths, *(f"{state.st_mtime_ns} {state.st_size}" for state in states)])
        return self._retrieve(key, lambda: Document(embed=self._embed, doc_files=paths), query, topk)


@known_arguments
class ContextRetriever(_TemporaryRetriever):
    r"""Searches texts that come with the query (spec 001's temporary documents).

    The 128 last used combinations of texts are cached.

    Args:
        embed: As of a `Document`. None: keyword search.
        output_format: See `Retriever`.
        join: See `Retriever`.
        topk: At most so many nodes in total; None: as many as the searches return, 6 each by default.

    Example:
        >>> retriever = ContextRetriever(output_format="content")
        >>> _ = retriever.create_node_group("line", transform=str.splitlines).add_subretriever("line", topk=1)
        >>> retriever("Green tea wants 80 degrees.\nBlack tea wants more.", "black tea")
        ['Black tea wants more.']
    """

    def __call__(self, context: str | Sequence[str], query: str, topk: int | None = None) -> Any:
        """Return the best nodes of some texts.

        Args:
            context: One text or several.
            query: A question or keywords.
            topk: Another limit for this call.

        Raises:
            ConfigError: If an argument is invalid, or a text is blank.
        """
        texts = validate_texts("context", [context] if isinstance(context, str) else context)
        require(bool(texts), "context", context, "a text, or a list of texts")
        by_id = {f"text {number}": text for number, text in enumerate(dict.fromkeys(texts), start=1)}

        def make() -> Document:
            docs = Document(embed=self._embed)
            docs.add_texts(by_id)
            return docs

        return self._retrieve(digest([*by_id.values()]), make, query, topk)
