"""The OpenSearch store on a real server: the contract, and what goes beyond it."""

from __future__ import annotations

import json
import threading
from contextlib import closing, contextmanager
from hashlib import blake2b

import pytest
from hypothesis import HealthCheck, given, settings
from opensearchpy import OpenSearch

from lazyrag import HybridRetriever
from lazyrag.data.fields import make_schema
from lazyrag.data.filters import Condition, Not, matches
from lazyrag.data.segment import Segment
from lazyrag.errors import (
    ConfigError,
    RetrievalError,
    SchemaMismatchError,
    StoreConnectionError,
    StoreError,
    UnsupportedError,
)
from lazyrag.pipeline import OpenSearchIndex
from lazyrag.stores.opensearch import OpenSearchSegmentStore, _alias
from lazyrag.stores.opensearch_encoding import Shape, segment_encoder
from lazyrag.stores.opensearch_vectors import OpenSearchVectorStore
from lazyrag.stores.protocol import VectorSchema, segment_stores
from lazyrag.testing import SegmentStoreContract
from lazyrag.testing.samples import SCHEMA, make_segments
from lazyrag.text.analyzers import Analyser, analysers
from tests import hard_fields
from tests.live.serving import opensearch_server

C, D = "lr_rows", "lr_others"
ONE_COPY = {"settings": {"number_of_replicas": 0}}


class TestOpenSearchSegments(SegmentStoreContract):
    """Segments on a server."""

    @pytest.fixture(autouse=True)
    def _address(self, opensearch_address):
        """Where the stores of this test are; without collections before and after it."""
        self.address = opensearch_address
        with emptied(opensearch_address):
            yield

    def make_store(self):
        """A new store; the server has no collections yet."""
        return OpenSearchSegmentStore(self.address, {}, ONE_COPY)

    def reopen_store(self, store):
        """Another client of the same server."""
        return self.make_store()

    def share_store(self, store):
        """Another client of the same server at the same time."""
        return self.make_store()


@contextmanager
def emptied(address):
    """The bare client of a server whose collections are dropped afterwards."""
    with closing(OpenSearch(address)) as client:
        try:
            yield client
        finally:
            client.indices.delete(index="lr_*")


@contextmanager
def opened(address, client_kwargs=None, index_kwargs=None):
    """An open store."""
    store = OpenSearchSegmentStore(address, client_kwargs or {}, index_kwargs or ONE_COPY)
    with closing(store):
        store.open()
        yield store


@pytest.fixture
def client(opensearch_address):
    """The bare client; all collections are dropped at the end of the test."""
    with emptied(opensearch_address) as bare:
        yield bare


@pytest.fixture
def store(client, opensearch_address):
    """An open store with an empty collection."""
    with opened(opensearch_address) as made:
        made.create(C, SCHEMA)
        yield made


def segment(number, content="茶", **parts):
    """A segment of its own."""
    uid = blake2b(b"%d" % number, digest_size=16).hexdigest()
    return Segment(uid, 1, "block", "d", "a.txt", None, number, content, **parts)


@pytest.fixture(scope="module")
def hard(opensearch_address):
    """An open store with rows of hard values, all of which say 茶."""
    with emptied(opensearch_address), opened(opensearch_address) as made:
        made.create(D, hard_fields.SCHEMA)
        made.upsert(
            D, [segment(number, fields=fields) for number, fields in enumerate(hard_fields.rows())]
        )
        yield made


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(hard_fields.FILTERS)
def test_filters_say_what_the_reference_says(hard, filter):  # noqa: A002
    """Of rows that have every kind of value, a search finds those that `matches` lets through,
    whatever the filter.
    """
    expected = {
        segment(number).key
        for number, fields in enumerate(hard_fields.rows())
        if matches(filter, fields)
    }
    assert {key for key, _ in hard.search_text(D, "zh", ["茶"], 1000, filter)} == expected


def test_hard_values_come_back(hard):
    """Half a surrogate pair, NUL, -0.0, numbers at the ends of their ranges and long texts are read
    as written.
    """
    written = [segment(number, fields=fields) for number, fields in enumerate(hard_fields.rows())]
    assert hard.get(D, [one.key for one in written]) == written


def test_large_rows_come_back(store):
    """A row of some megabytes, and one of what OpenSearch could not index as one term, are read as
    written.
    """
    rows = [
        segment(1, "绿茶 🍵\ud83c" * 500_000),
        segment(2, "x" * 40_000, metadata={"y" * 40_000: "z" * 40_000}),
    ]
    store.upsert(C, rows)
    assert store.get(C, [row.key for row in rows]) == rows


def test_more_rows_than_opensearch_gives_at_once(store):
    """Of more than 10,000 rows all are counted, scanned, found and deleted: with one call, and in
    pages.
    """
    rows = [segment(number, f"茶 {number}") for number in range(10_500)]
    store.upsert(C, rows)
    keys = sorted(row.key for row in rows)
    assert store.count(C) == len(keys)
    assert [row.key for row in store.scan(C, limit=20_000)] == keys
    assert [row.key for row in store.scan(C, after=keys[4], limit=10_200)] == keys[5:10_205]
    found = store.search_text(C, "zh", ["茶"], 20_000)
    assert sorted(key for key, _ in found) == keys
    assert found == sorted(found, key=lambda hit: (-hit[1], hit[0]))
    assert store.delete(C, keys=keys[:10_001]) == 10_001
    assert store.delete(C, filter=Condition("author", "eq", None)) == 499
    assert store.count(C) == 0


def test_what_others_change_meanwhile_is_looked_at_again(store, client, monkeypatch):
    """A row that stops meeting the filter between being found and being deleted stays; one that
    still does goes.
    """
    stays, goes = (segment(number, fields={"year": 2000}) for number in (1, 2))
    store.upsert(C, [stays, goes])
    looked, meanwhile = (
        store._deletions,
        [stays._replace(fields={"year": 2001}), goes._replace(content="changed")],
    )

    def found_then_changed(*args):
        """Find both, and let another program write both before either is deleted."""
        found = list(looked(*args))
        if meanwhile:
            store.upsert(C, [meanwhile.pop(), meanwhile.pop()])
        return found

    monkeypatch.setattr(store, "_deletions", found_then_changed)
    assert store.delete(C, filter=Condition("year", "eq", 2000)) == 1
    assert [row.fields["year"] for row in store.scan(C)] == [2001]


def test_rows_that_never_stand_still(store, monkeypatch):
    """Where others change the rows whenever they are to be deleted, that is said after some
    times.
    """
    row = segment(1, fields={"year": 2000})
    store.upsert(C, [row])
    looked, contents = store._deletions, iter(range(100))

    def found_then_changed(*args):
        """Another program is always faster."""
        found = list(looked(*args))
        store.upsert(C, [row._replace(content=next(contents))])
        return found

    monkeypatch.setattr(store, "_deletions", found_then_changed)
    with pytest.raises(StoreError, match="1 rows of collection 'lr_rows' were changed by others"):
        store.delete(C, filter=Condition("year", "eq", 2000))
    assert store.count(C) == 1


def test_threads_write_read_and_delete_at_once(store):
    """Eight threads with rows of their own lose nothing and see nothing of one another."""
    failures = []

    def work(number):
        """Write, read, search, delete half."""
        try:
            rows = [segment(100 * number + one, fields={"year": number}) for one in range(40)]
            for row in rows:
                store.upsert(C, [row])
            assert store.get(C, [row.key for row in rows]) == rows
            assert (
                len(store.search_text(C, "zh", ["茶"], 1000, Condition("year", "eq", number))) == 40
            )
            assert store.delete(C, keys=[row.key for row in rows[:20]]) == 20
            assert store.delete(C, filter=Condition("year", "eq", number)) == 20
        except Exception as exc:  # noqa: BLE001  a thread's failure is the test's
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.count(C) == 0


def test_a_dropped_collection_is_not_made_by_writing(store, client):
    """Another program has dropped it: writing and deleting are errors, and OpenSearch makes no
    index by itself.
    """
    row = segment(1)
    client.indices.delete(index=C)
    for use in (lambda: store.upsert(C, [row]), lambda: store.delete(C, keys=[row.key])):
        with pytest.raises(StoreError, match="no collection 'lr_rows'"):
            use()
    assert not client.indices.exists(index=C)


def test_a_collection_that_was_made_anew_with_another_shape(store, client, opensearch_address):
    """What this program would index for the old shape is refused, not half indexed; then it sees
    the new one.
    """
    with opened(opensearch_address) as other:
        other.drop(C)
        other.create(C, make_schema(None))
        with pytest.raises(StoreError, match="no collection"):
            store.upsert(C, [segment(1)])
        assert other.count(C) == 0
        with pytest.raises(SchemaMismatchError, match="has other fields"):
            store.create(C, SCHEMA)


def test_an_index_of_somebody_else(store, client):
    """An index that this store has not made is neither taken for a collection nor written to."""
    client.indices.create(index=D)
    for use in (lambda: store.create(D, SCHEMA), lambda: store.upsert(D, [segment(1)])):
        with pytest.raises(SchemaMismatchError, match="not made"):
            use()
    assert client.count(index=D)["count"] == 0


def test_two_programs_create_the_same_collection(opensearch_address, client):
    """Both succeed, whoever is first."""
    with opened(opensearch_address) as one, opened(opensearch_address) as other:
        barrier, failures = threading.Barrier(2), []

        def create(store):
            """At the same time as the other."""
            barrier.wait()
            try:
                store.create(C, SCHEMA)
            except StoreError as exc:
                failures.append(exc)

        threads = [threading.Thread(target=create, args=(store,)) for store in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        one.upsert(C, [segment(1)])
        assert other.count(C) == 1


@pytest.mark.parametrize(
    "name",
    ["*", "_all", "lr_*", f"{C},{D}", "LR_ROWS", "", "-lr_rows", "lr/rows", "<lr>", "lr rows"],
)
def test_names_of_collections_are_names(store, name):
    """A name that OpenSearch would read as several indexes, or as something else, is refused;
    nothing is touched.
    """
    store.upsert(C, [segment(1)])
    uses = (
        lambda: store.create(name, SCHEMA),
        lambda: store.drop(name),
        lambda: store.count(name),
        lambda: store.scan(name),
        lambda: store.get(name, ["k"]),
        lambda: store.upsert(name, [segment(1)]),
        lambda: store.delete(name, filter=Not(Condition("author", "exists"))),
        lambda: store.search_text(name, "zh", ["茶"], 1),
    )
    for use in uses:
        with pytest.raises(ConfigError, match="up to 60 characters"):
            use()
    assert store.count(C) == 1


@pytest.mark.parametrize(
    "query",
    ["t*", "te?", "tea AND cold", "/t.a/", '"tea"', "tea~", "content:tea", "(tea", "zz OR zz"],
)
def test_terms_are_not_interpreted(store, query):
    """The operators of query languages are characters of a term, which no row has."""
    store.upsert(C, [segment(1, "tea"), segment(2, "cold")])
    assert store.search_text(C, "en", [query], 5) == []
    assert len(store.search_text(C, "en", ["tea"], 5)) == 1


def test_terms_of_any_form_are_found(client, opensearch_address):
    """A registered analyser's terms with spaces, without end, or with half a surrogate pair are
    terms like others.
    """
    terms = ["green tea", "x" * 1000, "\ud83c", "a\u00a0b", "a\u3000b"]
    with analysers.isolated():
        analysers.register("odd", Analyser("odd", lambda text: text.split("|")))
        with opened(opensearch_address, {}, {**ONE_COPY, "analysers": ["odd"]}) as store:
            store.create(C, SCHEMA)
            store.upsert(C, [segment(number, f"{term}|other") for number, term in enumerate(terms)])
            for number, term in enumerate(terms):
                [(key, _)] = store.search_text(C, "odd", [term], 5)
                assert key == segment(number).key
            assert len(store.search_text(C, "odd", ["other"], 9)) == len(terms)
            assert store.search_text(C, "odd", ["green"], 5) == []
            with pytest.raises(UnsupportedError, match=r"analyser 'zh'\. Known: odd\."):
                store.search_text(C, "zh", ["茶"], 5)


def test_scores_are_those_of_bm25(store):
    """More occurrences in a shorter text are better; the statistics are those of the whole index,
    shards together.
    """
    store.upsert(
        C,
        [
            segment(1, "tea " * 4),
            segment(2, "tea and much else to be read about plants"),
            segment(3, "cold"),
        ],
    )
    assert [key for key, _ in store.search_text(C, "en", ["tea"], 5)] == [
        segment(1).key,
        segment(2).key,
    ]
    rare = store.search_text(C, "en", ["cold"], 1)[0][1]
    assert rare > store.search_text(C, "en", ["tea"], 2)[1][1]


def test_shards_share_their_statistics(client, opensearch_address):
    """Equal rows on different shards score alike, and stand in the order of their keys."""
    many = {"settings": {"number_of_shards": 5, "number_of_replicas": 0}}
    with opened(opensearch_address, {}, many) as store:
        store.create(C, SCHEMA)
        store.upsert(C, [segment(number, "tea") for number in range(30)] + [segment(99, "cold")])
        found = store.search_text(C, "en", ["tea"], 30)
        assert len({score for _, score in found}) == 1
        assert [key for key, _ in found] == sorted(segment(number).key for number in range(30))


def test_without_analysers_there_is_no_native_text(client, opensearch_address):
    """The feature is not declared, and a collection that was made so cannot be had with it."""
    with (
        opened(opensearch_address, {}, {"analysers": []}) as plain,
        opened(opensearch_address) as full,
    ):
        assert plain.features == {"persistent", "shared"}
        plain.create(C, SCHEMA)
        plain.upsert(C, make_segments())
        assert plain.count(C) == len(make_segments())
        with pytest.raises(UnsupportedError, match="indexes no terms"):
            plain.search_text(C, "zh", ["茶"], 1)
        with pytest.raises(SchemaMismatchError, match="no terms of the analysers en, zh"):
            full.create(C, SCHEMA)
        full.create(D, SCHEMA)
        plain.create(D, SCHEMA)
        plain.upsert(D, [segment(1)])  # with the terms, since the collection has them
        full.refresh(D)
        assert len(full.search_text(D, "zh", ["茶"], 5)) == 1


def test_settings_are_passed_on(client, opensearch_address):
    """What index_kwargs say of settings stands in the index, ours beside it unless they say
    otherwise.
    """
    given = {
        "index.number_of_shards": 2,
        "index.similarity.lazyrag.b": 0.5,
        "refresh_interval": "-1",
    }
    with opened(opensearch_address, {}, {"settings": given}) as store:
        store.create(C, SCHEMA)
        store.upsert(C, [segment(1)])  # acknowledged, though nothing refreshes by itself
        assert store.count(C) == 1
        kept = client.indices.get_settings(index=C, params={"flat_settings": "true"})[C]["settings"]
        assert (kept["index.number_of_shards"], kept["index.similarity.lazyrag.b"]) == ("2", "0.5")
        assert kept["index.similarity.lazyrag.k1"] == "1.5"


def test_wrong_settings_are_told(client, opensearch_address):
    """What OpenSearch refuses to make is a StoreError with its reason."""
    with (
        opened(opensearch_address, {}, {"settings": {"number_of_shards": 0}}) as store,
        pytest.raises(
            StoreError, match=r"answered 400: illegal_argument_exception: .*number_of_shards"
        ),
    ):
        store.create(C, SCHEMA)


def test_rows_that_are_refused_are_told(store, client):
    """One row that the server refuses makes the call an error that names it; nothing is lost
    silently.
    """
    client.indices.put_settings(index=C, body={"index.blocks.write": True})
    with pytest.raises(
        StoreError, match=rf"refuses row '{segment(1).key}' of collection 'lr_rows': cluster_block"
    ):
        store.upsert(C, [segment(1), segment(2)])
    client.indices.put_settings(index=C, body={"index.blocks.write": False})
    assert store.count(C) == 0


def test_vectors_need_the_plug_in(opensearch_address):
    """Without it their collections are refused, and the error says what to install."""
    with closing(OpenSearchVectorStore(opensearch_address)) as store:
        store.open()
        with pytest.raises(UnsupportedError, match="Install opensearch-knn"):
            store.create("lr_vectors", VectorSchema(4, "cosine", SCHEMA))


def test_a_store_that_is_not_open_says_so(opensearch_address):
    """Before open and after close every use is a StoreError; it can be opened again."""
    store = OpenSearchSegmentStore(opensearch_address, {})
    with pytest.raises(StoreError, match=r"not open\. Call open"):
        store.count(C)
    store.open()
    store.close()
    with pytest.raises(StoreError, match="not open"):
        store.scan(C)
    store.open()
    store.close()


def test_it_is_registered():
    """The name that spec 001 gives it leads to it."""
    assert segment_stores["opensearch"] is OpenSearchSegmentStore


def test_a_cluster_of_two_nodes(tmp_path):
    """What one node has acknowledged the other one finds at once, in its own copy; a dead address
    is passed over.
    """
    with opensearch_server(tmp_path, nodes=2) as server:
        first, second = server.addresses
        copies = {"settings": {"number_of_replicas": 1}}
        with opened(first, {}, copies) as writing, opened([second, "127.0.0.1:9"]) as reading:
            writing.create(C, SCHEMA)
            for number in range(20):
                writing.upsert(C, [segment(number)])
                assert reading.count(C) == number + 1  # which refreshes
                assert len(reading.search_text(C, "zh", ["茶"], 50)) == number + 1
            assert reading.delete(C, keys=[segment(0).key]) == 1
            assert writing.count(C) == 19


def test_a_server_that_is_killed_and_comes_back(tmp_path):
    """What was acknowledged is there after a kill; meanwhile calls are errors, and then the same
    store goes on.
    """
    with opensearch_server(tmp_path) as server:
        port = server.port
        with opened(server.address, {"wait_s": 0}) as store:
            store.create(C, SCHEMA)
            store.upsert(C, make_segments())
            server.kill()
            with pytest.raises(
                StoreConnectionError, match=f"Cannot reach OpenSearch at {server.address}"
            ):
                store.upsert(C, [segment(1)])
            with opensearch_server(tmp_path, port):
                kept = store.scan(C)
                assert kept == sorted(make_segments(), key=lambda row: row.key)
                store.upsert(C, [segment(1)])
                assert store.count(C) == len(kept) + 1


def test_a_restart_of_the_only_node_costs_a_load_time_and_no_row(tmp_path):
    """The server is killed while rows are sent and comes back: the call waits, and all are there."""
    rows = [segment(number) for number in range(4_000)]
    with opensearch_server(tmp_path) as server:
        port = server.port
        with opened(server.address) as store:
            store.create(C, SCHEMA)
            store.upsert(C, rows[:1])
            failures = []

            def load():
                """The rest."""
                try:
                    store.upsert(C, rows[1:])
                except StoreError as exc:
                    failures.append(exc)

            loading = threading.Thread(target=load)
            server.kill()
            loading.start()
            with opensearch_server(tmp_path, port):
                loading.join()
                assert failures == []
                assert store.count(C) == len(rows)


def test_a_load_refreshes_nothing(store, client):
    """Rows are readable by key at once; a search of this object, or `refresh`, makes them found."""

    def refreshes():
        """How often the index was refreshed."""
        stats = client.indices.stats(index=C, metric="refresh")
        return stats["indices"][C]["primaries"]["refresh"]["external_total"]

    before = refreshes()
    rows = [segment(number) for number in range(3_000)]
    for start in range(0, len(rows), 500):
        store.upsert(C, rows[start : start + 500])
    assert store.get(C, [rows[-1].key]) == rows[-1:]
    assert refreshes() == before
    assert len(store.search_text(C, "zh", ["茶"], 5_000)) == len(rows)
    assert len(store.search_text(C, "zh", ["茶"], 10)) == 10
    assert refreshes() == before + 1


def test_rows_come_with_their_ranking(store):
    """In the order and with the scores of `search_text`."""
    rows = [segment(number, f"茶 {number}", fields={"year": number}) for number in range(20)]
    store.upsert(C, rows)
    pairs = store.find_rows(C, "zh", ["茶"], 9, Condition("year", "<", 7))
    assert [(row.key, score) for row, score in pairs] == store.search_text(
        C, "zh", ["茶"], 9, Condition("year", "<", 7)
    )
    assert sorted((row for row, _ in pairs), key=lambda row: row.number) == rows[:7]


@pytest.mark.parametrize("content", ["coffee " * 9, "tea " * 40])
def test_writes_between_two_pages_of_a_ranking_change_nothing(
    store, opensearch_address, monkeypatch, content
):
    """They raise or lower all scores: no row is left out, and none comes twice."""
    author = {"author": "green tea"}
    rows = [segment(number, "tea " * (number % 7 + 1), fields=author) for number in range(2_500)]
    store.upsert(C, rows)
    store.refresh(C)
    search = OpenSearch.search

    def and_write(*args, **kwargs):
        answer = search(*args, **kwargs)
        monkeypatch.setattr(OpenSearch, "search", search)
        with opened(opensearch_address) as other:
            other.upsert(C, [segment(number, content) for number in range(3_000, 5_000)])
            other.refresh(C)
        return answer

    monkeypatch.setattr(OpenSearch, "search", and_write)
    contains_tea = Condition("author", "contains", "tea")
    keys = [key for key, _ in store.search_text(C, "en", ["tea"], 2_500, contains_tea)]
    assert sorted(keys) == sorted(row.key for row in rows)


def test_other_tools_read_the_documents(store, client):
    """Text, path, span and typed fields under readable names, searched and highlighted by the
    server.
    """
    tea = segment(
        1, "Green tea is steamed. 绿茶", span=(3, 25), fields={"year": 780, "author": "陆羽"}
    )
    store.upsert(C, [tea, segment(2, "Coffee", fields={"year": 1500})])
    store.refresh(C)
    body = {
        "query": {
            "bool": {
                "must": [{"match": {"text": "steamed"}}],
                "filter": [{"range": {"meta.year": {"lt": 1000}}}, {"term": {"path": "a.txt"}}],
            }
        },
        "highlight": {"fields": {"text": {}}},
        "aggs": {"authors": {"terms": {"field": "meta.author"}}},
    }
    answer = client.search(index=C, body=body)
    [hit] = answer["hits"]["hits"]
    assert (hit["_source"]["text"], hit["_source"]["span"]) == (tea.content, [3, 25])
    assert hit["highlight"]["text"] == ["Green tea is <em>steamed</em>. 绿茶"]
    assert [bucket["key"] for bucket in answer["aggregations"]["authors"]["buckets"]] == ["陆羽"]


def test_an_index_of_the_last_release_stays_readable_and_writable(client, opensearch_address):
    """Its rows come back and are found, beside new ones."""
    with opened(opensearch_address) as store:
        shape = Shape(SCHEMA, ("en", "zh"))
        body = shape.body(ONE_COPY["settings"], {})
        properties = body["mappings"]["properties"]
        for name in ("text", "path", "span", "meta"):
            del properties[name]
        body["mappings"]["_meta"]["lazyrag"]["layout"] = 2
        client.indices.create(index=C, body={**body, "aliases": {_alias(C, shape): {}}})
        old, new = segment(1, "绿茶", span=(0, 2), fields={"year": 1}), segment(2, "红茶")
        document = json.loads(segment_encoder(shape)(old))
        parts = json.loads(document["segment"])
        parts[5] = document.pop("text")
        document["segment"] = json.dumps(parts)
        for name in ("path", "span"):
            del document[name]
        client.index(index=C, id=old.key, body=document)
        store.create(C, SCHEMA)
        store.upsert(C, [new])
        assert store.scan(C) == sorted([old, new], key=lambda row: row.key)
        assert len(store.find_rows(C, "zh", ["茶"], 5)) == 2
        assert store.find_rows(C, "zh", ["茶"], 5, Condition("year", "eq", 1))[0][0] == old


def test_an_index_that_others_wrote_is_a_retriever(client, opensearch_address):
    """By naming its fields: ranked by the server, filtered, with its metadata, and never written
    to.
    """
    articles = [
        {"title": "Tea", "body": "Green tea is steamed.", "year": 780},
        {"title": "Coffee", "body": "Coffee is roasted.", "year": 1500},
        {"title": "Steam", "body": "Engines.", "year": 1800},
    ]
    for number, article in enumerate(articles):
        client.index(index="lr_articles", id=str(number), body=article, params={"refresh": "true"})
    index = OpenSearchIndex(client, "lr_articles", "body", ["title^2", "body"])
    nodes = index("steam steamed")
    assert [(node.text, node.metadata["title"]) for node in nodes] == [
        ("Engines.", "Steam"),
        ("Green tea is steamed.", "Tea"),
    ]
    assert nodes[0].score > nodes[1].score
    assert [node.uid for node in index("steamed steam", {"year": [780]})] == ["0"]
    hybrid = HybridRetriever(index, index, topk=1)
    assert [node.text for node in hybrid("coffee")] == ["Coffee is roasted."]
    with pytest.raises(RetrievalError, match=r"no text.*text_field"):
        OpenSearchIndex(client, "lr_articles", "year", ["title"])("tea")
    with pytest.raises(RetrievalError, match="lr_missing"):
        OpenSearchIndex(client, "lr_missing")("tea")
    with pytest.raises(ConfigError, match="index"):
        OpenSearchIndex(client, "")
    with pytest.raises(ConfigError, match="topk"):
        index("tea", topk=0)
