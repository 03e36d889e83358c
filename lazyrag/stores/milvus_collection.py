"""One loaded collection in Milvus: its rows by key, in pages, by filter and by nearness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lazyrag.data.filters import Filter, matches
from lazyrag.data.segment import EMPTY
from lazyrag.stores.candidates import Candidate
from lazyrag.stores.milvus_client import MilvusConnection, Nearest
from lazyrag.stores.milvus_filters import ALWAYS, NOT_ASIDE, all_of, divided, key_after, key_among
from lazyrag.stores.milvus_index import IndexChoice
from lazyrag.stores.milvus_schema import KEY, VECTOR, field_columns, row_columns, row_fields, row_of, window_of
from lazyrag.stores.milvus_texts import read_text
from lazyrag.stores.protocol import VectorRow, VectorSchema
from lazyrag.types import Embedding, Fields

KEYS_AT_ONCE = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the rows of an answer must meet.

    Args:
        expression: What Milvus looks at; "" for nothing.
        rest: What we look at; None for nothing.
    """

    expression: str
    rest: Filter | None

    def keeps(self, fields: Fields) -> bool:
        """Whether a row that Milvus let through meets the rest."""
        return self.rest is None or matches(self.rest, fields)


@dataclass(frozen=True, slots=True)
class MilvusCollection:
    """A collection that is there, has its index and is loaded.

    Args:
        connection: To the Milvus that has it.
        name: There.
        schema: It was made with.
        index: Over its vectors.
    """

    connection: MilvusConnection
    name: str
    schema: VectorSchema
    index: IndexChoice

    @property
    def window(self) -> int:
        """How many rows one answer may hold."""
        return window_of(self.schema)

    def asked(self, filter: Filter | None) -> Asked:  # noqa: A002  the word of the domain
        """A bound filter, divided between Milvus and us."""
        return Asked(*divided(filter, self.schema.fields))

    def get(self, keys: Sequence[str]) -> list[VectorRow]:
        """See `VectorStore.get`."""
        found: dict[str, VectorRow] = {}
        for some in pieces([*dict.fromkeys(keys)], min(self.window, KEYS_AT_ONCE)):
            rows = self._rows(key_among(some), row_columns(self.schema.fields))
            found |= {row.key: row for row in (row_of(values, self.schema) for values in rows)}
        return [found[key] for key in keys if key in found]

    def present(self, keys: Sequence[str]) -> list[str]:
        """Those of some keys that are there, each once."""
        found: list[str] = []
        for some in pieces([*dict.fromkeys(keys)], KEYS_AT_ONCE):
            rows = self._rows(key_among(some), (KEY,))
            found += [read_text(values[KEY]) for values in rows]
        return found

    def matching(self, filter: Filter) -> list[str]:  # noqa: A002  the word of the domain
        """The keys of the rows that meet a bound filter."""
        asked = self.asked(filter)
        columns = (KEY,) if asked.rest is None else (KEY, *field_columns(self.schema.fields))
        return [
            read_text(values[KEY])
            for page in self._pages(asked.expression, columns)
            for values in page
            if asked.rest is None or matches(asked.rest, row_fields(values, self.schema.fields))
        ]

    def scan(self, after: str, limit: int) -> list[VectorRow]:
        """See `VectorStore.scan`."""
        pages = self._pages("", row_columns(self.schema.fields), after=after, limit=limit)
        return [row_of(values, self.schema) for page in pages for values in page]

    def read(self, asked: Asked, *, expression: str = "") -> Iterator[list[VectorRow]]:
        """All rows that meet what is asked, and an expression besides, page by page."""
        for page in self._pages(all_of(asked.expression, expression), row_columns(self.schema.fields)):
            yield [row for row in (row_of(values, self.schema) for values in page) if asked.keeps(row.fields)]

    def nearest(self, queries: Sequence[Embedding], depth: int, asked: Asked) -> list[list[Candidate]]:
        """The nearest rows to some queries as Milvus ranks them, of those that meet what it looks at."""
        found = self._hits(queries, depth, asked, row_columns(self.schema.fields))
        return [[Candidate(row_of(values, self.schema), worth) for values, worth in one] for one in found]

    def nearest_keys(
        self, queries: Sequence[Embedding], depth: int, asked: Asked
    ) -> list[list[tuple[str, float, Fields]]]:
        """The same rows as keys, each with its worth, see `Candidate`, and with its fields if we are to look at them.

        Their vectors are not sent.
        """
        fields = None if asked.rest is None else self.schema.fields
        found = self._hits(queries, depth, asked, () if fields is None else field_columns(fields))
        return [
            [
                (read_text(values[KEY]), far, EMPTY if fields is None else row_fields(values, fields))
                for values, far in one
            ]
            for one in found
        ]

    def _hits(
        self, queries: Sequence[Embedding], depth: int, asked: Asked, columns: Sequence[str]
    ) -> list[list[tuple[dict[str, Any], float]]]:
        found: list[list[tuple[dict[str, Any], float]]] = []
        how = Nearest(depth, self.schema.metric, self.index.params_for(depth))
        sign = -1.0 if self.schema.metric == "l2" else 1.0
        for some in pieces(queries, max(1, self.window // depth)):
            hits = self.connection.nearest(self.name, some, all_of(asked.expression, NOT_ASIDE), columns, how)
            found += [[(values, sign * far) for values, far in one] for one in hits]
        return found

    def _pages(
        self, expression: str, columns: Sequence[str], *, after: str = "", limit: int | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        """Rows in the order of their keys, in answers that are not too long; at most ``limit`` in all."""
        while limit is None or limit > 0:
            size = self.window if limit is None else min(limit, self.window)
            behind = key_after(after) if after else ALWAYS
            page = self._rows(all_of(behind, expression), columns, size)
            if not page:  # a page may be short though there is more behind it
                return
            yield page
            after = read_text(page[-1][KEY])
            limit = None if limit is None else limit - len(page)

    def _rows(self, expression: str, columns: Sequence[str], limit: int | None = None) -> list[dict[str, Any]]:
        # Milvus Lite 2.5 fails to read sparse vectors where there never was a row.
        is_wary = self.schema.is_sparse and VECTOR in columns and self.connection.path is not None
        if is_wary and not self.connection.rows(self.name, expression, (KEY,), 1):
            return []
        return self.connection.rows(self.name, expression, columns, limit)


def pieces(some: Sequence[T], size: int) -> Iterator[list[T]]:
    """A sequence, cut up.

    Example:
        >>> [*pieces("abc", 2)]
        [['a', 'b'], ['c']]
    """
    for first in range(0, len(some), size):
        yield list(some[first : first + size])
