"""Stores and their bare clients, over the same rows, with the same index and the same consistency.

Row n has three fields: an author of 50, a year of 100 and a name of its own. A job is the number of
a query, and the filter of the filtered ones lets a tenth of the rows through. The bare clients do
what their manuals show, and hand out keys and scores; what both sides are given is made before the
clock starts.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from lexical import TOPK, version_of

COLLECTION = "lr_bench"
AUTHORS, FIRST_YEAR, YEARS = 50, 1900, 100
BEFORE = FIRST_YEAR + YEARS // 10
KEYS_OF_A_GET = 10
LINES, YEAR = 10, 3  # of a document; and of restricted searches
BATCH = 500
GRAPH_FROM = 50_000  # rows


def key_of(row: int) -> str:
    """As long as a Document's keys are."""
    return f"{row:032x}-1"


def fields_of(row: int) -> dict[str, Any]:
    """The three fields."""
    return {
        "author": f"author {row % AUTHORS}",
        "year": FIRST_YEAR + row % YEARS,
        "name": f"papers/{row}.txt",
    }


def year_of(row: int) -> int:
    """Of the document that has a line."""
    return row // LINES % 10


class Engine:
    """One collection of a store, or of a bare client."""

    packages: tuple[str, ...] = ()

    def versions(self) -> dict[str, str]:
        """Of what it runs."""
        return version_of("numpy", *self.packages)

    def load(self, position: str, **paths: str) -> None:
        """Connect, and make an empty collection; read what is going to be written and asked."""
        self.open(position)
        self.prepare(**paths)

    def open(self, position: str) -> None:
        """Connect, and make an empty collection."""
        raise NotImplementedError

    def prepare(self, vectors: str, queries: str) -> None:
        """Rows as `upsert` takes them, and queries."""
        self.queries = np.load(queries)
        self.rows = [self.row(number, vector) for number, vector in enumerate(np.load(vectors))]

    def row(self, number: int, vector: np.ndarray) -> Any:
        """A row as `upsert` takes it."""
        raise NotImplementedError

    def ingest(self, first: int, behind: int) -> float:
        """Seconds of writing some rows, until every reader sees them."""
        rows = self.rows[first:behind]
        started = time.perf_counter()
        self.upsert(rows)
        return time.perf_counter() - started

    def upsert(self, rows: Sequence[Any]) -> None:
        """Write rows."""
        raise NotImplementedError

    def search(self, job: int) -> list[str]:
        """The keys that the backend's own search finds."""
        raise NotImplementedError

    def filtered(self, job: int) -> list[str]:
        """The same among a tenth of the rows."""
        raise NotImplementedError

    def get(self, job: int) -> list[Any]:
        """Rows by their keys."""
        raise NotImplementedError

    def answers(self, of: str, jobs: list[int]) -> list[list[str]]:
        """What the method of a name finds for each job."""
        return [list(getattr(self, of)(job)) for job in jobs]

    def keys(self, job: int) -> list[str]:
        """Those that `get` asks for."""
        chance = np.random.default_rng(job)
        return [
            key_of(int(row)) for row in chance.choice(len(self.rows), KEYS_OF_A_GET, replace=False)
        ]


class OurVectors(Engine):
    """A vector store of ours."""

    def start(self, store: Any) -> None:
        """Open it, with an empty collection."""
        from lazyrag.data.fields import DataType, DocField
        from lazyrag.data.filters import Condition, bind_filter
        from lazyrag.stores.protocol import VectorSchema

        texts = DocField(DataType.VARCHAR)
        schema = VectorSchema(
            384, "cosine", {"author": texts, "year": DocField(DataType.INT64), "name": texts}
        )
        self.store = store
        self.few = bind_filter(Condition("year", "lt", BEFORE), schema.fields)
        store.open()
        store.drop(COLLECTION)
        store.create(COLLECTION, schema)

    def row(self, number: int, vector: np.ndarray) -> Any:
        """A row of the protocol."""
        from lazyrag.stores.protocol import VectorRow

        return VectorRow(key_of(number), vector, fields_of(number))

    def upsert(self, rows: Sequence[Any]) -> None:
        """As a Document does."""
        self.store.upsert(COLLECTION, rows)

    def search(self, job: int) -> list[str]:
        """For ``index="smart_embedding_index"``."""
        return self._first(self.store.search_natively, job, None)

    def filtered(self, job: int) -> list[str]:
        """The same with a filter."""
        return self._first(self.store.search_natively, job, self.few)

    def exact(self, job: int) -> list[str]:
        """What a Retriever asks for by default: rescored, and fetched beyond ties."""
        return self._first(self.store.search, job, None)

    def exact_filtered(self, job: int) -> list[str]:
        """The same with a filter."""
        return self._first(self.store.search, job, self.few)

    def get(self, job: int) -> list[Any]:
        """Rows with vectors and fields."""
        return list(self.store.get(COLLECTION, self.keys(job)))

    def _first(self, method: Any, job: int, wanted: Any) -> list[str]:
        [ranking] = method(COLLECTION, self.queries[job][None], TOPK, wanted)
        return [key for key, _ in ranking]


class LazyragChroma(OurVectors):
    """`ChromaVectorStore`."""

    packages = ("chromadb",)

    def __init__(self) -> None:
        from lazyrag.stores.chroma import ChromaVectorStore

        self.make = ChromaVectorStore

    def open(self, position: str) -> None:
        """A server's address or a folder."""
        self.start(self.make(uri=position) if "://" in position else self.make(dir=position))

    def rescored(self, job: int) -> list[str]:
        """As for a collection that is too large to be asked for all of its rows."""
        return self._by_few_rows(job, None)

    def rescored_filtered(self, job: int) -> list[str]:
        """The same with a filter."""
        return self._by_few_rows(job, self.few)

    def _by_few_rows(self, job: int, wanted: Any) -> list[str]:
        many, self.store._exact_rows = self.store._exact_rows, 0
        try:
            return self._first(self.store.search, job, wanted)
        finally:
            self.store._exact_rows = many


class BareChroma(Engine):
    """chromadb's own client."""

    packages = ("chromadb",)

    def __init__(self) -> None:
        import chromadb

        self.chromadb = chromadb

    def open(self, position: str) -> None:
        """The inner product of vectors of length 1, as our store has it."""
        settings = self.chromadb.Settings(anonymized_telemetry=False)
        if "://" in position:
            where = urlsplit(position)
            client = self.chromadb.HttpClient(
                host=where.hostname or "", port=where.port or 0, settings=settings
            )
        else:
            client = self.chromadb.PersistentClient(position, settings=settings)
        self.collection = client.create_collection(
            f"{COLLECTION}_bare", embedding_function=None, configuration={"hnsw": {"space": "ip"}}
        )

    def row(self, number: int, vector: np.ndarray) -> Any:
        """Its parts."""
        return key_of(number), vector, fields_of(number)

    def upsert(self, rows: Sequence[Any]) -> None:
        """In one call."""
        keys, vectors, metadata = zip(*rows, strict=True)
        self.collection.upsert(
            ids=list(keys), embeddings=np.stack(vectors), metadatas=list(metadata)
        )

    def search(self, job: int) -> list[str]:
        """Its keys, with their distances."""
        return self._found(job, None)

    def filtered(self, job: int) -> list[str]:
        """The same with a filter."""
        return self._found(job, {"year": {"$lt": BEFORE}})

    def get(self, job: int) -> list[Any]:
        """Rows with vectors and metadata."""
        found = self.collection.get(ids=self.keys(job), include=["embeddings", "metadatas"])
        return list(found["ids"])

    def _found(self, job: int, where: Any) -> list[str]:
        query = self.queries[job][None]
        return list(
            self.collection.query(
                query_embeddings=query, n_results=TOPK, where=where, include=["distances"]
            )["ids"][0]
        )


class LazyragMilvus(OurVectors):
    """`MilvusVectorStore`, with its default index: FLAT."""

    packages = ("pymilvus", "milvus-lite")

    def __init__(self) -> None:
        from lazyrag.stores.milvus import MilvusVectorStore

        self.make = MilvusVectorStore

    def open(self, position: str) -> None:
        """A server's address or a file."""
        self.start(self.make(position))


class BareMilvus(Engine):
    """pymilvus's own client."""

    packages = ("pymilvus", "milvus-lite")

    def __init__(self) -> None:
        from pymilvus import DataType, MilvusClient

        self.kinds, self.make = DataType, MilvusClient

    def open(self, position: str) -> None:
        """FLAT, and bounded consistency, which is the default on both sides."""
        self.client: Any = self.make(position)
        schema = self.make.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", self.kinds.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("vector", self.kinds.FLOAT_VECTOR, dim=384)
        schema.add_field("author", self.kinds.VARCHAR, max_length=1024)
        schema.add_field("year", self.kinds.INT64)
        schema.add_field("name", self.kinds.VARCHAR, max_length=1024)
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="COSINE")
        self.name = f"{COLLECTION}_bare"
        self.client.create_collection(
            self.name, schema=schema, index_params=index, consistency_level="Bounded"
        )
        self.client.load_collection(self.name)

    def row(self, number: int, vector: np.ndarray) -> Any:
        """A dict for each row."""
        return {"key": key_of(number), "vector": vector, **fields_of(number)}

    def upsert(self, rows: Sequence[Any]) -> None:
        """In one call."""
        self.client.upsert(self.name, list(rows))

    def search(self, job: int) -> list[str]:
        """Its keys, with their distances."""
        return self._found(job, "")

    def filtered(self, job: int) -> list[str]:
        """The same with a filter."""
        return self._found(job, f"year < {BEFORE}")

    def get(self, job: int) -> list[Any]:
        """Rows with vectors and fields."""
        columns = ["key", "vector", "author", "year", "name"]
        found = self.client.query(
            self.name,
            filter=f"key in {self.keys(job)}",
            output_fields=columns,
        )
        return [row["key"] for row in found]

    def _found(self, job: int, expression: str) -> list[str]:
        [hits] = self.client.search(
            self.name,
            data=[self.queries[job]],
            filter=expression,
            limit=TOPK,
            search_params={"metric_type": "COSINE"},
            anns_field="vector",
        )
        return [hit.id for hit in hits]


class LazyragOpenSearch(Engine):
    """`OpenSearchSegmentStore` with the English terms of its rows."""

    packages = ("opensearch-py",)
    analysers: tuple[str, ...] = ("en",)

    def __init__(self) -> None:
        from lazyrag.stores.opensearch import OpenSearchSegmentStore

        self.make = OpenSearchSegmentStore

    def open(self, position: str) -> None:
        """A server's address."""
        from lazyrag.data.fields import DataType, DocField
        from lazyrag.data.filters import Condition, bind_filter

        texts = DocField(DataType.VARCHAR)
        schema = {"author": texts, "year": DocField(DataType.INT64), "name": texts}
        self.few = bind_filter(Condition("year", "lt", BEFORE), schema)
        self.name = f"{COLLECTION}_{'_'.join(self.analysers)}"
        self.store = self.make(position, index_kwargs={"analysers": [*self.analysers]})
        self.store.open()
        self.store.drop(self.name)
        self.store.create(self.name, schema)

    def prepare(self, texts: str, questions: str) -> None:
        """Segments, and the terms of questions: a Retriever makes them."""
        from lazyrag.data.segment import Segment
        from lazyrag.text.analyzers import term_function

        self.rows = [
            Segment(f"{number:032x}", 1, "block", f"{number:032x}", f"papers/{number}.txt", None, 1, text,
                    fields=fields_of(number))
            for number, text in enumerate(lines(texts))
        ]  # fmt: skip
        self.terms = [*map(term_function("en"), lines(questions))]

    def upsert(self, rows: Sequence[Any]) -> None:
        """As a Document does."""
        self.store.upsert(self.name, rows)

    def search(self, job: int) -> list[str]:
        """For ``index="native"``."""
        return [key for key, _ in self.store.search_text(self.name, "en", self.terms[job], TOPK)]

    def filtered(self, job: int) -> list[str]:
        """The same with a filter."""
        return [
            key
            for key, _ in self.store.search_text(self.name, "en", self.terms[job], TOPK, self.few)
        ]

    def get(self, job: int) -> list[Any]:
        """Whole segments."""
        return [row.key for row in self.store.get(self.name, self.keys(job))]


class LazyragPostgres(LazyragOpenSearch):
    """`PostgresSegmentStore` with the English terms of its rows."""

    packages = ("pg8000",)

    def __init__(self) -> None:
        pass

    def open(self, position: str) -> None:
        """A server's address."""
        from lazyrag.data.fields import DataType, DocField
        from lazyrag.data.filters import Condition, bind_filter
        from lazyrag.stores.postgres import PostgresSegmentStore
        from lazyrag.stores.sqlite import StoreFile

        texts = DocField(DataType.VARCHAR)
        schema = {"author": texts, "year": DocField(DataType.INT64), "name": texts}
        self.few = bind_filter(Condition("year", "lt", BEFORE), schema)
        self.name = COLLECTION
        self.store = PostgresSegmentStore(StoreFile(f"{position}?schema=ours"), ["en"])
        self.store.create(self.name, schema)


class BarePostgres(Engine):
    """pg8000: a generated column of the server's English terms, GIN, and ``ts_rank_cd``."""

    packages = ("pg8000",)

    def connect(self, position: str) -> None:
        """A connection."""
        import pg8000.dbapi

        where = urlsplit(position)
        self.connection = pg8000.dbapi.connect(
            user=where.username,
            password=unquote(where.password or ""),
            host=where.hostname,
            port=where.port,
            database=where.path.strip("/"),
        )
        self.connection.autocommit = True

    def open(self, position: str) -> None:
        """A table and its index."""
        self.connect(position)
        self.run("DROP TABLE IF EXISTS bare")
        self.run(
            "CREATE TABLE bare (key text PRIMARY KEY, content text, author text, year bigint, name"
            " text, terms tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED)"
        )
        self.run("CREATE INDEX ON bare USING gin (terms)")

    def run(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The rows of a statement."""
        cursor = self.connection.cursor()
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    def prepare(self, texts: str, questions: str) -> None:
        """Rows, and questions as an alternative of their words."""
        self.rows = [
            (key_of(number), text, *fields_of(number).values())
            for number, text in enumerate(lines(texts))
        ]
        self.questions = [" or ".join(question.split()) for question in lines(questions)]

    def upsert(self, rows: Sequence[Any]) -> None:
        """In one statement."""
        places = ", ".join(["(%s, %s, %s, %s, %s)"] * len(rows))
        values = [value for row in rows for value in row]
        self.run(f"INSERT INTO bare (key, content, author, year, name) VALUES {places}", values)  # noqa: S608

    def search(self, job: int) -> list[str]:
        """Its keys, with their ranks."""
        return self._found(job, "")

    def filtered(self, job: int) -> list[str]:
        """The same with a filter."""
        return self._found(job, f"AND year < {BEFORE}")

    def get(self, job: int) -> list[Any]:
        """Rows without their terms."""
        query = "SELECT key, content, author, year, name FROM bare WHERE key = ANY(%s)"
        return [row[0] for row in self.run(query, [self.keys(job)])]

    def _found(self, job: int, condition: str) -> list[str]:
        query = (
            "SELECT key, ts_rank_cd(terms, query) AS rank FROM bare,"  # noqa: S608
            f" websearch_to_tsquery('english', %s) AS query WHERE terms @@ query {condition}"
            f" ORDER BY rank DESC, key LIMIT {TOPK}"
        )
        return [row[0] for row in self.run(query, [self.questions[job]])]


class LazyragPgvector(OurVectors):
    """`PostgresVectorStore`."""

    packages = ("pg8000",)

    def open(self, position: str) -> None:
        """A server's address."""
        from lazyrag.stores.postgres import PostgresVectorStore
        from lazyrag.stores.sqlite import StoreFile

        file = StoreFile(f"{position}?schema=ours")
        with file.writing() as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        self.start(PostgresVectorStore(file))


class BarePgvector(BarePostgres):
    """pg8000 and pgvector, without a graph, as ours is below 50,000 rows."""

    def open(self, position: str) -> None:
        """A table."""
        super().open(position)
        self.run("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        self.run("DROP TABLE bare")
        self.run(
            "CREATE TABLE bare (key text PRIMARY KEY, vector public.vector(384), author text, year"
            " bigint, name text)"
        )

    def prepare(self, vectors: str, queries: str) -> None:
        """Rows, and queries."""
        Engine.prepare(self, vectors, queries)

    def row(self, number: int, vector: np.ndarray) -> Any:
        """Its values."""
        return key_of(number), str(vector.tolist()), *fields_of(number).values()

    def upsert(self, rows: Sequence[Any]) -> None:
        """In one statement."""
        places = ", ".join(["(%s, %s, %s, %s, %s)"] * len(rows))
        values = [value for row in rows for value in row]
        self.run(f"INSERT INTO bare VALUES {places}", values)  # noqa: S608

    def get(self, job: int) -> list[Any]:
        """Rows with vectors."""
        query = "SELECT key, vector, author, year, name FROM bare WHERE key = ANY(%s)"
        return [row[0] for row in self.run(query, [self.keys(job)])]

    def _found(self, job: int, condition: str) -> list[str]:
        query = (
            f"SELECT key, vector <=> %s AS distance FROM bare WHERE true {condition}"  # noqa: S608
            f" ORDER BY distance LIMIT {TOPK}"
        )
        return [row[0] for row in self.run(query, [str(self.queries[job].tolist())])]


class LazyragOpenSearchRows(LazyragOpenSearch):
    """The same without any terms: rows alone."""

    analysers = ()


class BareOpenSearch(Engine):
    """opensearch-py's own client and its helper for bulks; texts are analysed as OpenSearch does it
    for English.
    """

    packages = ("opensearch-py",)
    text: dict[str, Any] = {"type": "text", "analyzer": "english"}

    def __init__(self) -> None:
        import opensearchpy

        self.library = opensearchpy

    def open(self, position: str) -> None:
        """An index whose fields are keywords and a number, as ours are."""
        self.client = self.library.OpenSearch(position)
        self.name = f"{COLLECTION}_bare_{self.text['type']}"
        names = {name: {"type": "keyword"} for name in ("author", "name")}
        mapping = {"properties": {"content": self.text, "year": {"type": "long"}, **names}}
        self.client.indices.create(index=self.name, body={"mappings": mapping})

    def prepare(self, texts: str, questions: str) -> None:
        """Documents, and questions."""
        self.rows = [
            {"_index": self.name, "_id": key_of(number), "content": text, **fields_of(number)}
            for number, text in enumerate(lines(texts))
        ]
        self.questions = lines(questions)

    def upsert(self, rows: Sequence[Any]) -> None:
        """In bulks of its default size, which is ours; then a refresh."""
        self.library.helpers.bulk(self.client, rows)
        self.client.indices.refresh(index=self.name)

    def search(self, job: int) -> list[str]:
        """Its keys, with their scores."""
        return self._found({"must": [{"match": {"content": self.questions[job]}}]})

    def filtered(self, job: int) -> list[str]:
        """The same with a filter."""
        few = {"range": {"year": {"lt": BEFORE}}}
        return self._found({"must": [{"match": {"content": self.questions[job]}}], "filter": [few]})

    def get(self, job: int) -> list[Any]:
        """Whole documents."""
        found = self.client.mget(index=self.name, body={"ids": self.keys(job)})
        return [one["_id"] for one in found["docs"] if one["found"]]

    def _found(self, query: dict[str, Any]) -> list[str]:
        body = {"query": {"bool": query}, "size": TOPK, "_source": False}
        return [
            hit["_id"] for hit in self.client.search(index=self.name, body=body)["hits"]["hits"]
        ]


class BareOpenSearchRows(BareOpenSearch):
    """The same, its texts stored and not searched."""

    text = {"type": "keyword", "index": False, "doc_values": False}


class WholeEngine(Engine):
    """Texts, vectors and one field, written and asked together; rows are lines of documents of ten.

    Job n is question n with its vector. Restricted searches see a tenth of the documents.
    """

    def prepare(self, texts: str, questions: str, vectors: str, queries: str) -> None:
        """Texts, questions and their vectors, which stay in their file."""
        self.texts = lines(texts)
        self.questions = lines(questions)
        self.vectors = np.load(vectors, mmap_mode="r")
        self.queries = np.load(queries)

    def write(self, first: int, behind: int) -> dict[str, float]:
        """Write some lines until every reader sees them: CPU seconds, and the process's peak MB."""
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        began = time.process_time()
        self.write_lines(first, behind)
        cpu_s = time.process_time() - began
        [peak] = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
        return {"cpu_s": cpu_s, "peak_mb": int(peak) / 1024}

    def write_lines(self, first: int, behind: int) -> None:
        """Write some lines."""
        raise NotImplementedError

    def restart(self, position: str, **paths: str) -> float:
        """CPU seconds of a new process that imports, connects to what another one has written, and
        answers.
        """
        imports = time.process_time()
        self.prepare(**paths)
        began = time.process_time()
        self.connect(position)
        self.keyword(0)
        return imports + time.process_time() - began

    def answer(self, kind: str, job: int) -> list[str]:
        """The texts that a kind of search finds; hybrid search fuses ranks of 50 each, or does as
        the engine does it.
        """
        raise NotImplementedError

    def keyword(self, job: int) -> list[str]:
        """Keyword search."""
        return self.answer("keyword", job)

    def vector(self, job: int) -> list[str]:
        """Vector search."""
        return self.answer("vector", job)

    def hybrid(self, job: int) -> list[str]:
        """Both in one."""
        return self.answer("hybrid", job)

    def restricted(self, job: int) -> list[str]:
        """Keyword search in a tenth of the documents."""
        return self.answer("restricted", job)


class TableEmbedder:
    """Looks the vectors of texts and questions up."""

    identity, dimension, batch_size, max_tokens, normalised = "table", 384, 1_024, None, True

    def __init__(self, engine: WholeEngine) -> None:
        self.rows = {text: row for row, text in enumerate(engine.texts)}
        self.queries = dict(zip(engine.questions, engine.queries, strict=True))
        self.vectors = engine.vectors

    def embed(self, texts: Sequence[str], input_type: str = "document") -> np.ndarray:
        """(n, 384) float32."""
        if input_type == "query":
            return np.stack([self.queries[text] for text in texts])
        return np.asarray(self.vectors[[self.rows.get(text, 0) for text in texts]])


class LazyragDocument(WholeEngine):
    """A Document, with the ``store_conf`` of its position, as JSON."""

    def __init__(self) -> None:
        import lazyrag

        self.lazyrag = lazyrag

    def open(self, position: str) -> None:
        """Nothing: its embedder is made of the texts."""
        self.position = position

    def prepare(self, **paths: str) -> None:
        """Open the Document, with a first line."""
        super().prepare(**paths)
        self.embedder = TableEmbedder(self)
        if hasattr(self, "position"):
            self.docs = self.opened(self.position)
            self.docs.add_texts({"first": "tea"}, {"first": {"year": 0}})
            self.docs.activate_group(
                "line", analysers=["en"], embed_keys=self.docs.reader.embed_keys
            )
            self.make_retrievers()

    def connect(self, position: str) -> None:
        """A program that reads."""
        self.docs = self.opened(position, read_only=True)
        self.make_retrievers()

    def opened(self, position: str, **options: Any) -> Any:
        """The Document."""
        conf = json.loads(position)
        self.types = [part["type"] for part in conf.values() if isinstance(part, dict)]
        years = {"year": self.lazyrag.DocField(self.lazyrag.DataType.INT32)}
        options |= {"name": "bench", "doc_fields": years, "store_conf": conf}
        docs = self.lazyrag.Document(embed=self.embedder, **options)
        docs.create_node_group("line", transform=str.splitlines)
        return docs

    def make_retrievers(self) -> None:
        """One for each kind of search; OpenSearch counts hidden rows in its scores."""
        words, meaning = [
            self.lazyrag.Retriever(self.docs, "line", similarity, topk=TOPK)
            for similarity in ("bm25", "cosine")
        ]
        # OpenSearch counts hidden rows in its scores, and Milvus searches by vectors alone
        statistics = "shared" if "opensearch" in self.types else "visible"
        view = self.docs.restricted({"year": YEAR}, statistics=statistics)
        similarity = "cosine" if "milvus" in self.types else "bm25"
        self.retrievers = {
            "keyword": words,
            "vector": meaning,
            "hybrid": self.lazyrag.HybridRetriever(words, meaning, topk=TOPK),
            "restricted": self.lazyrag.Retriever(view, "line", similarity, topk=TOPK),
        }

    def write_lines(self, first: int, behind: int) -> None:
        """Documents of ten lines, in one call."""
        starts = range(first, behind, LINES)
        texts = {f"{at:08}": "\n".join(self.texts[at : at + LINES]) for at in starts}
        years = {name: {"year": year_of(int(name))} for name in texts}
        self.docs.add_texts(texts, years)
        self.keyword(0)  # refreshes

    def answer(self, kind: str, job: int) -> list[str]:
        """Texts of the nodes."""
        return [node.text for node in self.retrievers[kind](self.questions[job])]


class WholePostgres(WholeEngine, BarePostgres):
    """pg8000 with the server's English terms, and pgvector; a graph once all rows are there."""

    def open(self, position: str) -> None:
        """A table."""
        self.connect(position)
        self.run("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        self.run(
            "CREATE TABLE bare (key text PRIMARY KEY, content text, vector public.vector(384), year"
            " bigint, terms tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED)"
        )
        self.run("CREATE INDEX ON bare USING gin (terms)")

    def prepare(self, **paths: str) -> None:
        """Questions as alternatives of their words, too."""
        super().prepare(**paths)
        self.alternatives = [" or ".join(question.split()) for question in self.questions]
        self.points = [str(vector.tolist()) for vector in self.queries]

    def write_lines(self, first: int, behind: int) -> None:
        """In statements of 500 rows; a graph for those that ours makes one for."""
        places = "(%s, %s, %s, %s)"
        for start in range(first, behind, BATCH):
            rows = range(start, min(start + BATCH, behind))
            values = []
            for row in rows:
                vector = str(self.vectors[row].tolist())
                values += [key_of(row), self.texts[row], vector, year_of(row)]
            statement = "INSERT INTO bare (key, content, vector, year) VALUES "
            self.run(statement + ", ".join([places] * len(rows)), values)
        if behind >= GRAPH_FROM:
            self.run("SET maintenance_work_mem = '256MB'")
            self.run("CREATE INDEX ON bare USING hnsw (vector public.vector_cosine_ops)")

    def answer(self, kind: str, job: int) -> list[str]:
        """Texts, with their ranks or distances; one statement."""
        words = (
            "SELECT key, content, ts_rank_cd(terms, query) AS score FROM bare,"  # noqa: S608
            " websearch_to_tsquery('english', %s) AS query WHERE terms @@ query"
            f"{f' AND year = {YEAR}' * (kind == 'restricted')} ORDER BY score DESC, key LIMIT "
        )
        near = "SELECT key, content, vector <=> %s AS score FROM bare ORDER BY score LIMIT "
        if kind == "vector":
            return self._texts(f"{near}{TOPK}", self.points[job])
        if kind != "hybrid":
            return self._texts(f"{words}{TOPK}", self.alternatives[job])
        ranked = (
            "SELECT key, content, row_number() OVER (ORDER BY score {}) AS rank FROM ({}) AS {}"
        )
        return self._texts(
            f"SELECT key, content, sum(1.0 / (60 + rank)) AS score FROM"  # noqa: S608
            f" ({ranked.format('DESC', f'{words}50', 'words')} UNION ALL"
            f" {ranked.format('', f'{near}50', 'near')}) AS hits GROUP BY key, content"
            f" ORDER BY score DESC LIMIT {TOPK}",
            self.alternatives[job],
            self.points[job],
        )

    def _texts(self, statement: str, *values: str) -> list[str]:
        return [content for _, content, _ in self.run(statement, values)]


class WholeOpenSearch(WholeEngine, BareOpenSearch):
    """opensearch-py: `parallel_bulk`, the server's English analyser, and its k-NN plug-in."""

    def connect(self, position: str) -> None:
        """A client."""
        self.client = self.library.OpenSearch(position, timeout=120)  # of a busy machine
        self.name = f"{COLLECTION}_whole"

    def open(self, position: str) -> None:
        """An index whose similarity and graph are as ours."""
        self.connect(position)
        method = {"name": "hnsw", "engine": "lucene", "space_type": "innerproduct"}
        vector = {"type": "knn_vector", "dimension": 384, "method": method}
        mapping = {"content": self.text, "year": {"type": "integer"}, "vector": vector}
        settings = {"knn": True, "refresh_interval": "-1", "number_of_replicas": 0}
        body = {"settings": {"index": settings}, "mappings": {"properties": mapping}}
        self.client.indices.create(index=self.name, body=body)

    def write_lines(self, first: int, behind: int) -> None:
        """In its default batches of 500, by four threads, as ours; then a refresh."""
        rows = (
            {
                "_index": self.name,
                "_id": key_of(row),
                "content": self.texts[row],
                "year": year_of(row),
                "vector": self.vectors[row].tolist(),
            }
            for row in range(first, behind)
        )
        deque(self.library.helpers.parallel_bulk(self.client, rows), maxlen=0)
        self.client.indices.refresh(index=self.name)

    def answer(self, kind: str, job: int) -> list[str]:
        """Texts, with their scores; one request."""
        words = {"match": {"content": self.questions[job]}}
        depth = 50 if kind == "hybrid" else TOPK
        near = {"knn": {"vector": {"vector": self.queries[job].tolist(), "k": depth}}}
        few = {"must": [words], "filter": [{"term": {"year": YEAR}}]}
        queries = {
            "keyword": words,
            "vector": near,
            "hybrid": {"bool": {"should": [words, near]}},
            "restricted": {"bool": few},
        }
        body = {"query": queries[kind], "size": TOPK, "_source": ["content"]}
        hits = self.client.search(index=self.name, body=body)["hits"]["hits"]
        return [hit["_source"]["content"] for hit in hits]


class WholeMilvus(WholeEngine, BareMilvus):
    """pymilvus, with texts beside the vectors; this server has no search in texts."""

    def connect(self, position: str) -> None:
        """A client."""
        self.client = self.make(position)
        self.name = f"{COLLECTION}_whole"

    def open(self, position: str) -> None:
        """A collection with ours' default index."""
        self.connect(position)
        schema = self.make.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", self.kinds.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("vector", self.kinds.FLOAT_VECTOR, dim=384)
        schema.add_field("year", self.kinds.INT64)
        schema.add_field("content", self.kinds.VARCHAR, max_length=8192)
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type="FLAT", metric_type="COSINE")
        self.client.create_collection(
            self.name, schema=schema, index_params=index, consistency_level="Bounded"
        )
        self.client.load_collection(self.name)

    def write_lines(self, first: int, behind: int) -> None:
        """In calls of 500 rows."""
        for start in range(first, behind, BATCH):
            rows = [
                {
                    "key": key_of(row),
                    "vector": self.vectors[row],
                    "year": year_of(row),
                    "content": self.texts[row],
                }
                for row in range(start, min(start + BATCH, behind))
            ]
            self.client.upsert(self.name, rows)

    def keyword(self, job: int) -> list[str]:
        """For `restart`: it has no keyword search."""
        return self.vector(job)

    def answer(self, kind: str, job: int) -> list[str]:
        """Texts, with their distances."""
        [hits] = self.client.search(
            self.name,
            data=[self.queries[job]],
            filter=f"year == {YEAR}" if kind == "restricted" else "",
            limit=TOPK,
            output_fields=["content"],
            search_params={"metric_type": "COSINE"},
            anns_field="vector",
        )
        return [hit["entity"]["content"] for hit in hits]


def lines(path: str) -> list[str]:
    """The lines of a file."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        return file.read().splitlines()
