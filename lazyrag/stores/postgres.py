"""Ranking in PostgreSQL: keyword search by our terms, and vector search by pgvector."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from lazyrag.data.fields import DataType, DocField, Schema, read_schema
from lazyrag.data.filters import Condition, Filter
from lazyrag.data.segment import Segment, content_text, digest
from lazyrag.errors import UnsupportedError, known_names
from lazyrag.storage.database import batches_reaching
from lazyrag.storage.postgres import literal
from lazyrag.stores.milvus_encoding import (
    Expression,
    MilvusDialect,
    columns_of,
    decode_text,
    encode_field,
    encode_text,
)
from lazyrag.stores.protocol import (
    Feature,
    RowScope,
    ScopeSize,
    VectorRow,
    VectorSchema,
    batches,
    best_first,
    check_deletion,
    check_queries,
    last_rows,
    push_down,
    unknown_collection,
)
from lazyrag.stores.sqlite import MapFileSegmentStore, StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from lazyrag.text.analyzers import analysers as registry
from lazyrag.text.analyzers import term_function
from lazyrag.text.stop_words import STOP_MARK
from lazyrag.types import Embeddings, Fields, Ranking, Vector
from lazyrag.validation import validate_choice, validate_integer, validate_texts

_STATEMENT = 1 << 20  # letters of a statement that inserts
_DIGITS = 12  # letters of a number
_LONGEST_TERM = 500  # letters; PostgreSQL takes 2,046 bytes
_MOST_POSITIONS = 255  # of a term in a tsvector
_TSVECTOR_BYTES = 900_000  # PostgreSQL takes 1 MiB
_EVERY = "true"  # the condition that all rows meet

_RANK = """
WITH query (number, term, times) AS (VALUES {query}),
part AS MATERIALIZED (
    SELECT number, times, key, length, ts_rank('{{1, 1, 1, 1}}', terms, term)::float8 AS rank,
        {hit} AS is_hit
    FROM query CROSS JOIN LATERAL (SELECT * FROM {table} WHERE terms @@ term OFFSET 0) AS row
    WHERE {condition}
),
term AS (SELECT number, count(*)::float8 AS rows FROM part GROUP BY number),
size AS (
    SELECT greatest({rows}, max(rows)) AS rows,
        coalesce(nullif({length}, 0), 1)::float8 AS length FROM term
),
weight AS (
    SELECT number, length, ln(1 + (size.rows - term.rows + 0.5) / (term.rows + 0.5)) AS weight
    FROM term CROSS JOIN size
)
SELECT key, sum((
    1e12 * times * weight * frequency
    / (frequency + 1.5 * (0.25 + 0.75 * part.length / weight.length))
)::bigint)::float8 / 1e12 AS score
FROM (SELECT *, round(1 / (1.6449340668 * (1.0000001 - rank)) - 0.5) AS frequency FROM part) AS part
JOIN weight USING (number) WHERE is_hit
GROUP BY key ORDER BY score DESC, key LIMIT {topk}
"""
"""BM25. A row has its n-th occurrence of a term at position n: `ts_rank` then sums 1 / i**2 up to
the frequency, and the frequency follows from the sum. Scores are sums of integers, so that no plan
of the server decides about their last digits."""
_ESTIMATED_ROWS = "pg_stat_get_live_tuples({}::regclass)"
_ESTIMATED_LENGTH = "(SELECT avg(length) FROM part)"
_IN_SCOPE = """({scope}) AND EXISTS (
    SELECT FROM build AS live WHERE live.number = row.build AND since <= {at} AND until > {at}
)"""
_MEASURE = "SELECT count(*), coalesce(avg(length), 0)::float8 FROM {table} AS row WHERE {scope}"

_TERM_TABLE = """
CREATE TABLE {table} (
    segment BIGINT NOT NULL REFERENCES segment (id) ON DELETE CASCADE, build BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL, length BIGINT NOT NULL, terms tsvector NOT NULL{columns}
);
CREATE INDEX ON {table} USING gin (terms);
CREATE INDEX ON {table} (segment)
"""
_WITH_IDS = """SELECT (
    SELECT id FROM segment WHERE collection = {number} AND build = column1 AND key = column2
), row.* FROM (VALUES {values}) AS row"""
"""Numbers of segments by an index scan for each, even where the planner has no statistics."""


class PostgresSegmentStore(MapFileSegmentStore):
    """Segments in PostgreSQL, which also ranks them by keywords.

    For each analyser a collection has a table with the terms of its segments: a tsvector that holds
    our terms, so that Chinese needs no parser of the server, and an index (GIN). Rows of deleted
    segments go with them.

    Args:
        file: The open store.
        analysers: Names of those whose terms new collections index. [] makes writing faster and
            disables ``index="server"``.

    Raises:
        ConfigError: If an analyser is unknown.
    """

    def __init__(self, file: StoreFile, analysers: Sequence[str]) -> None:
        super().__init__(file)
        self._server: Any = file  # its connections also run PostgreSQL's own statements
        self._analysers = validate_texts("analysers", analysers)
        for name in self._analysers:
            validate_choice("analyser in analysers", name, registry)

    @property
    def features(self) -> frozenset[Feature]:
        """It ranks texts unless there are no analysers."""
        ranking: set[Feature] = {"native text", "server"} if self._analysers else set()
        return super().features | ranking

    def create(self, collection: str, schema: Schema) -> None:
        """See `SegmentStore.create`. Collections of earlier releases stay without terms."""
        with self._server.reading_own() as connection:
            number, _, _ = _term_tables(connection, collection)
        if number is not None:
            super().create(collection, schema)
            return
        with self._server.writing() as connection:
            super().create(collection, schema)
            number, _, present = _term_tables(connection, collection)
            for analyser in {*self._analysers} - {*present}:
                table = _term_table(number, analyser)
                columns = _field_columns(schema)
                connection.run(_TERM_TABLE.format(table=table, columns=columns))

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self._server.writing() as connection:
            _, _, present = _term_tables(connection, collection)
            for table in present.values():
                connection.run(f"DROP TABLE {table}")
            super().drop(collection)

    def upsert(self, collection: str, rows: Sequence[Segment]) -> None:
        """See `SegmentStore.upsert`."""
        last = last_rows(rows)
        with self._server.reading_own() as connection:
            number, schema, tables = _term_tables(connection, collection)
        if not last or not tables:
            super().upsert(collection, rows)
            return
        # before the transaction, for which others wait
        terms = {table: _term_rows(last, name, schema) for name, table in tables.items()}
        keys = ", ".join(f"({row.build}, {literal(row.key)})" for row in last)
        with self._server.writing() as connection:
            ids = connection.run(_WITH_IDS.format(number=number, values=keys)).fetchall()
            super().upsert(collection, rows)
            for table, values in terms.items():
                query = f"DELETE FROM {table} WHERE segment = ?"  # noqa: S608
                connection.executemany(query, [row[:1] for row in ids if row[0] is not None])
                for some in batches_reaching(values, len, _STATEMENT):
                    added = _WITH_IDS.format(number=number, values=", ".join(some))
                    connection.run(f"INSERT INTO {table} {added}")

    def search_text(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None = None,
    ) -> Ranking:
        """See `NativeText.search_text`. BM25 with k1 = 1.5 and b = 0.75.

        The frequency of a term and the mean length are those of the rows that share a term with the
        query and meet the filter; the number of rows is PostgreSQL's statistic.
        """
        return self._rank(collection, analyser, terms, topk, filter)

    def measure(self, collection: str, analyser: str, scope: RowScope) -> ScopeSize:
        """See `RanksInScope.measure`; reads all rows of the collection."""
        with self._server.reading() as connection:
            table, dialect = self._ranked_table(connection, collection, analyser)
            statement = _MEASURE.format(table=table, scope=_scope_condition(scope, dialect))
            [row] = connection.run(statement)
        return ScopeSize(*row)

    def search_scope(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        scope: RowScope,
        size: ScopeSize,
        filter: Filter | None = None,
    ) -> Ranking:
        """See `RanksInScope.search_scope`."""
        return self._rank(collection, analyser, terms, topk, filter, scope, size)

    def _rank(
        self,
        collection: str,
        analyser: str,
        terms: Sequence[str],
        topk: int,
        filter: Filter | None,  # noqa: A002
        scope: RowScope | None = None,
        size: ScopeSize | None = None,
    ) -> Ranking:
        topk = validate_integer("topk", topk, 1)
        with self._server.reading() as connection:
            table, dialect = self._ranked_table(connection, collection, analyser)
            if not terms:
                return []
            condition = _sql_condition(filter, dialect)
            query = ", ".join(
                f"({place}, {literal(_lexeme(term))}::tsquery, {times})"
                for place, (term, times) in enumerate(Counter(terms).items())
            )
            rows, length = size or (_ESTIMATED_ROWS.format(literal(table)), _ESTIMATED_LENGTH)
            statement = _RANK.format(
                query=query,
                table=table,
                hit=condition,
                condition=condition if scope is None else _scope_condition(scope, dialect),
                rows=rows,
                length=length,
                topk=topk,
            )
            ranking: Ranking = connection.run(statement).fetchall()
        return ranking

    def _ranked_table(
        self, connection: Any, collection: str, analyser: str
    ) -> tuple[str, PostgresDialect]:
        number, schema, tables = _term_tables(connection, collection)
        if number is None:
            raise unknown_collection(collection, ())
        if analyser not in tables:
            raise UnsupportedError(
                f"Collection {collection!r} indexes no terms of the analyser {analyser!r}."
                f" {known_names(analyser, tables)} Name it among the store's analysers and"
                " build the group anew, or use index='exact'.",
                store="map",
                collection=collection,
            )
        return tables[analyser], PostgresDialect(schema)


def _scope_condition(scope: RowScope, dialect: PostgresDialect) -> str:
    return _IN_SCOPE.format(scope=_sql_condition(scope.filter, dialect), at=scope.changes)


def _sql_condition(
    filter: Filter | None,  # noqa: A002
    dialect: PostgresDialect,
) -> str:
    """A filter in SQL.

    Raises:
        UnsupportedError: If it cannot be said in SQL.
    """
    pushed = push_down(filter, dialect)
    if pushed.rest is not None:
        msg = f"PostgreSQL cannot evaluate {pushed.rest!r:.200}. Use index='exact'."
        raise UnsupportedError(msg, store="map")
    return _EVERY if pushed.native is None else pushed.native.text


def _term_table(number: int | None, analyser: str) -> str:
    return f'"terms_{number}_{encode_text(analyser)}"'


def _term_tables(connection: Any, collection: str) -> tuple[int | None, Schema, dict[str, str]]:
    """The number and the schema of a collection, and its tables of terms by their analysers."""
    query = (
        "SELECT id, schema, tablename FROM segment_collection LEFT JOIN pg_catalog.pg_tables ON"
        " schemaname = current_schema() AND starts_with(tablename, 'terms_' || id || '_')"
        " WHERE name = ?"
    )
    rows = connection.execute(query, (collection,)).fetchall()
    if not rows:
        return None, {}, {}
    number, schema, _ = rows[0]
    names = [decode_text(table.split("_", 2)[2]) for *_, table in rows if table is not None]
    return number, read_schema(schema), {name: _term_table(number, name) for name in names}


def _field_columns(schema: Schema) -> str:
    return "".join(
        f', {column} TEXT COLLATE "C" NOT NULL' for column in columns_of(schema).values()
    )


def _field_values(fields: Fields, schema: Schema) -> str:
    texts = (encode_field(schema[name], fields.get(name)) for name in columns_of(schema))
    return "".join(f", {literal(text)}" for text in texts)


def _term_rows(rows: Sequence[Segment], analyser: str, schema: Schema) -> list[str]:
    """Rows of a table of terms, as texts; several for a segment that is larger than a tsvector."""
    fields = {id(row.fields): _field_values(row.fields, schema) for row in rows}
    terms_of = term_function(analyser, stop_words=True)
    values = []
    for row in rows:
        terms = terms_of(content_text(row.content))
        lexemes = [_lexeme(term, count) for term, count in Counter(terms).items()]
        length = sum(not term.startswith(STOP_MARK) for term in terms)
        for some in batches(lexemes, len(lexemes), _TSVECTOR_BYTES, _size):
            place = f"{row.build}, {literal(row.key)}, {length}"
            vector = f"{literal(' '.join(some))}::tsvector"
            values.append(f"({place}, {vector}{fields[id(row.fields)]})")
    return values


@functools.lru_cache(maxsize=16_384)  # terms occur again
def _lexeme(term: str, count: int = 0) -> str:
    """A term in a tsquery, or in a tsvector at as many positions as it has occurrences."""
    text = term if len(term) <= _LONGEST_TERM else digest([term])
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    positions = ",".join(map(str, range(1, min(count, _MOST_POSITIONS) + 1)))
    return f"{quoted}:{positions}" if count else quoted


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


_MOST_DIMENSIONS = 16_000
_MOST_INDEXED = 2_000  # dimensions of a graph
_FIRST_INDEXED = 50_000  # rows: a scan of fewer takes some 20 ms
_DISTANCES = {
    "cosine": ("<=>", "vector_cosine_ops", "1 - distance"),
    "ip": ("<#>", "vector_ip_ops", "-distance"),
    "l2": ("<->", "vector_l2_ops", "1 / (1 + distance)"),
}
"""By the metric, pgvector's operator of the distance, the operators of its index, and the score."""
_LEAST_DEPTH = 100
_MOST_DEPTH = 1_000  # of pgvector


_VECTOR_TABLE = """
SELECT id, dimension, metric, schema, to_regclass('pgvector_' || id)::text
FROM vector_collection WHERE name = ?
"""


_GRAPH_OF = """
SELECT pg_stat_get_live_tuples('{table}'::regclass), to_regclass('{table}_graph')::text
"""
_GRAPH = """
SET LOCAL maintenance_work_mem = '256MB';
CREATE INDEX IF NOT EXISTS {table}_graph ON {table} USING hnsw (embedding {operators})
"""
_NEAREST = """
SELECT key, {score} FROM (
    SELECT key, embedding {operator} {vector} AS distance FROM {table} WHERE {condition}
    ORDER BY embedding {operator} {vector} LIMIT {topk}
) AS row
"""


class _VectorTable(NamedTuple):
    """A collection of vectors, with the name of its table of pgvector."""

    schema: VectorSchema
    name: str | None


class PostgresVectorStore(MapFileVectorStore):
    """Vectors in PostgreSQL; where it has the extension pgvector, it also ranks them.

    Dense vectors then have a row of pgvector each beside their arrays, with an index (HNSW) from
    50,000 rows and up to 2,000 dimensions. `MapFileVectorStore.search` reads the arrays.

    Args:
        file: The open store.
    """

    def __init__(self, file: StoreFile) -> None:
        super().__init__(file)
        self._server: Any = file
        query = "SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'vector'"
        with file.reading() as connection:
            row = connection.execute(query).fetchone()
        self._namespace = "" if row is None else str(row[0])

    @property
    def features(self) -> frozenset[Feature]:
        """It ranks vectors with pgvector."""
        ranking: set[Feature] = {"native vectors", "server"} if self._namespace else set()
        return super().features | ranking

    def create(self, collection: str, schema: VectorSchema) -> None:
        """See `VectorStore.create`. Collections of earlier releases stay without pgvector."""
        with self._server.reading_own() as connection:
            is_new = connection.execute(_VECTOR_TABLE, (collection,)).fetchone() is None
        if not is_new or not self._namespace or not 1 <= schema.dimension <= _MOST_DIMENSIONS:
            super().create(collection, schema)
            return
        with self._server.writing() as connection:
            super().create(collection, schema)
            [(number, *_)] = connection.execute(_VECTOR_TABLE, (collection,))
            connection.run(
                f'CREATE TABLE IF NOT EXISTS pgvector_{number} (key TEXT COLLATE "C" PRIMARY KEY,'
                f" embedding {self._namespace}.vector({schema.dimension}) NOT NULL"
                f"{_field_columns(schema.fields)})"
            )

    def drop(self, collection: str) -> None:
        """See `Store.drop`."""
        with self._server.writing() as connection:
            for number, *_ in connection.execute(_VECTOR_TABLE, (collection,)):
                connection.run(f"DROP TABLE IF EXISTS pgvector_{number}")
            super().drop(collection)

    def upsert(self, collection: str, rows: Sequence[VectorRow]) -> None:
        """See `VectorStore.upsert`."""
        super().upsert(collection, rows)
        table = self._table(collection)
        if rows and table.name is not None:
            self._mirror(table, last_rows(rows))

    def delete(
        self, collection: str, *, keys: Sequence[str] | None = None, filter: Filter | None = None
    ) -> int:
        """See `Store.delete`."""
        check_deletion(keys, filter)
        if filter is not None:
            keys = self._now(collection).state.matching(filter)
        table = self._table(collection)
        if table.name is not None:
            with self._server.writing() as connection:
                query = f"DELETE FROM {table.name} WHERE key = ?"  # noqa: S608
                connection.executemany(query, [(key,) for key in keys or ()])
        return super().delete(collection, keys=keys)

    def search_natively(
        self, collection: str, vectors: Embeddings, topk: int, filter: Filter | None = None
    ) -> list[Ranking]:
        """See `NativeVectors.search_natively`.

        Raises:
            UnsupportedError: If the collection has no rows of pgvector, as those of earlier
                releases, or PostgreSQL cannot evaluate the filter.
        """
        with self._server.reading() as connection:
            table = self._table(collection)
            check_queries(table.schema, vectors, topk)
            condition = _sql_condition(filter, PostgresDialect(table.schema.fields))
            if table.name is None:
                msg = f"Collection {collection!r} has no vectors of pgvector. Use index='exact'."
                raise UnsupportedError(msg, store="map", collection=collection)
            return [
                self._nearest(connection, table, cast("Vector", vector), topk, condition)
                for vector in vectors
            ]

    def _table(self, collection: str) -> _VectorTable:
        with self._server.reading_own() as connection:
            row = connection.execute(_VECTOR_TABLE, (collection,)).fetchone()
        if row is None:
            raise unknown_collection(collection, ())
        _, dimension, metric, fields, name = row
        schema = VectorSchema(dimension, metric, read_schema(fields))
        return _VectorTable(schema, name if self._namespace else None)

    def _mirror(self, table: _VectorTable, rows: Sequence[VectorRow]) -> None:
        schema = table.schema
        operators = f"{self._namespace}.{_DISTANCES[schema.metric][1]}"
        # a transaction for each batch: others wait for it, and a graph takes long
        for some in batches_reaching(rows, lambda _: _DIGITS * schema.dimension, _STATEMENT):
            values = ", ".join(
                f"({literal(row.key)}, {_vector_text(row.vector)}"
                f"{_field_values(row.fields, schema.fields)})"
                for row in some
            )
            with self._server.writing() as connection:
                query = f"DELETE FROM {table.name} WHERE key = ?"  # noqa: S608
                connection.executemany(query, [(row.key,) for row in some])
                connection.run(f"INSERT INTO {table.name} VALUES {values}")  # noqa: S608
                [(present, graph)] = connection.run(_GRAPH_OF.format(table=table.name))
        is_large = present + len(rows) >= _FIRST_INDEXED
        if graph is None and is_large and schema.dimension <= _MOST_INDEXED:
            # by a connection of its own: it may take longer than a lease, which others renew
            with self._server.second_writer() as database, database.transaction("BEGIN") as second:
                second.run(_GRAPH.format(table=table.name, operators=operators))

    def _nearest(
        self, connection: Any, table: _VectorTable, vector: Vector, topk: int, condition: str
    ) -> Ranking:
        """The nearest rows that meet a condition: by a scan, so that hidden rows decide nothing."""
        operator, _, score = _DISTANCES[table.schema.metric]
        query = _NEAREST.format(
            score=score,
            operator=f"OPERATOR({self._namespace}.{operator})",
            vector=f"{_vector_text(vector)}::{self._namespace}.vector",
            table=table.name,
            condition=condition,
            topk=topk,
        )
        hits = []
        if condition == _EVERY:
            depth = min(max(_LEAST_DEPTH, topk), _MOST_DEPTH)
            hits = connection.run(f"SET LOCAL hnsw.ef_search = {depth}; {query}").fetchall()
        if len(hits) < topk:  # all near ones may be deleted, and in the graph until a vacuum
            hits = connection.run(f"SET LOCAL enable_indexscan = off; {query}").fetchall()
            connection.run("SET LOCAL enable_indexscan = on")
        # the cosine with a vector of length 0 is not a number
        ranking = [(key, score) for key, score in hits if not math.isnan(score)]
        return best_first(ranking)


def _vector_text(vector: Any) -> str:
    numbers = vector.tolist()
    # one format for all numbers takes a fifth less time than one for each
    return "'[" + ",".join(["%.9g"] * len(numbers)) % tuple(numbers) + "]'"


_SQL = str.maketrans('"[]', "'()")


class PostgresDialect(MilvusDialect):
    """SQL as a `lazyrag.stores.protocol.Dialect`, over columns as Milvus has them, but uncut.

    Example:
        >>> dialect = PostgresDialect({"year": DocField(DataType.INT32)})
        >>> dialect.condition(Condition("year", "in", [1, None])).text
        "f0 in ('b1','')"
    """

    def condition(self, condition: Condition) -> Expression | None:
        """See `Dialect.condition`."""
        column = self._columns.get(condition.field)
        field = self._fields.get(condition.field)
        value = condition.value
        if column is None or field is None:
            return None
        if field.data_type is DataType.ARRAY and condition.op in ("in", "contains", "in range"):
            return self._elements(column, field, condition)
        if condition.op == "contains":
            # one code after another: a code may end with the letters of another one
            part = encode_text(value).replace(".", "\\.")
            pattern = f"'^s([^.Axyz]|[.Axyz].)*{part}'"
            return Expression(f"{column} ~ {pattern}", f"{column} !~ {pattern}")
        if condition.op == "in range":
            low, high = (
                self.condition(Condition(condition.field, op, bound))
                for op, bound in zip(("ge", "lt"), value, strict=True)
            )
            return None if low is None or high is None else self.all_of([low, high])
        expression = super().condition(condition)
        return expression and Expression(_sql(expression.text), _sql(expression.negation))

    def never(self) -> Expression:
        """See `Dialect.never`."""
        return Expression("false", "true")

    def _elements(self, column: str, field: DocField, condition: Condition) -> Expression:
        """Whether an element is among some, or in a range: "Z" ends each and is in none."""
        values = [condition.value] if condition.op == "contains" else condition.value
        texts = [encode_field(field, (value,))[1:-1] for value in values if value is not None]
        test = f"element IN ({', '.join(map(_quoted, texts or ['-']))})"
        if condition.op == "in range":
            test = f"element >= {_quoted(texts[0])} AND element < {_quoted(texts[1])}"
        elements = f"regexp_split_to_table(substr({column}, 2), 'Z')"
        has_element = f"EXISTS (SELECT FROM {elements} AS element WHERE element <> '' AND {test})"
        if None in values:
            has_element = f"({column} = '' OR {has_element})"
        return Expression(has_element, f"NOT {has_element}")


def _quoted(encoded: str) -> str:
    return f"'{encoded}'"


def _sql(expression: str) -> str:
    """An expression of Milvus, which holds encoded texts alone, in SQL."""
    return expression.replace("==", "=").translate(_SQL)
