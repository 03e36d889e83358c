"""Documents in several stores answer as one store does: same uids, scores to the last bit, same order."""

from __future__ import annotations

import hashlib
import threading
import warnings

import httpx2
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lazyrag import LAZY_ROOT_NAME, DataType, DocField, Document, HybridRetriever, Retriever
from lazyrag.document import ShardedDocument, Worker, change_model, reshard, resharding, shard_of
from lazyrag.errors import ConfigError, DatasetPathError, IngestionError, IngestionWarning
from lazyrag.retrieval import (
    AutoMerge,
    FeedbackRetriever,
    MultiQueryRetriever,
    PriorityRetriever,
    RetrievalChain,
    WeightedRetriever,
    Windows,
)
from lazyrag.stores.memory import MapVectorStore
from lazyrag.stores.protocol import StoreLocation, vector_stores
from tests.crash.reshard_kills import kill

EXAMPLES = max(2, settings().max_examples // 4)  # each asks some hundred questions of both
WORDS = "green tea black coffee roast leaf water cup bean 绿茶 红茶 pick dry".split()
FIELDS = {"year": DocField(DataType.INT32), "origin": DocField(DataType.VARCHAR, max_size=20)}
QUESTIONS = ("green tea", "绿茶", "roast the bean", "water", "nothing of that")


embedded = []


def vector(text):
    """An embedding that differs between most texts, and has equal scores for some."""
    embedded.append(text)
    numbers = hashlib.sha256(text.encode()).digest()[:6]
    return [float(number % 5) - 2.0 for number in numbers] + [1.0]


def overlap(query, node):
    """A similarity of the user's own."""
    return len(set(query.split()) & set(node.text.split()))


def sparse(text):
    """A sparse embedding."""
    return {len(word): 1.0 + text.count(word) for word in text.split()}


def opened(files=None, **options):
    """A Document with two embeddings, fields and a group of its own."""
    embed = {"dense": vector, "sparse": sparse}
    docs = Document(files, embed, doc_fields=FIELDS, workers=1, **options)
    docs.create_node_group("line", transform=str.splitlines, index_fields=["path"])
    docs.create_node_group("word", transform=str.split, parent="line")
    return docs


def retrievers(docs):
    """Retrievers of every kind over a Document."""
    line = {"group_name": "line", "topk": 7}
    words, dense = Retriever(docs, similarity="bm25", **line), Retriever(docs, embed_keys=["dense"], **line)
    return {
        "bm25": words,
        "chinese": Retriever(docs, similarity="bm25_chinese", **line),
        "deep": Retriever(docs, "word", similarity="bm25", topk=50),
        "cosine": dense,
        "sparse": Retriever(docs, embed_keys=["sparse"], **line),
        "both": Retriever(docs, **line),
        "cut": Retriever(docs, embed_keys=["dense"], similarity_cut_off=0.1, **line),
        "up": Retriever(docs, similarity="bm25", target="lazyllm_root", **line),
        "down": Retriever(docs, similarity="bm25", target="word", **line),
        "hybrid": HybridRetriever.over(docs, "line", topk=6),
        "weighted": WeightedRetriever(words, dense, weights=[2, 1], topk=6),
        "priority": PriorityRetriever(words, dense, priorities=["high", "low"], topk=6),
        "own": Retriever(docs, similarity=overlap, **line),
        "feedback": dense.with_feedback(docs.get_nodes("line")[:2], weight=0.5),
        "again": FeedbackRetriever(dense),
        "several": MultiQueryRetriever(words, lambda query: [query, query + " cup"]),
        "merged": RetrievalChain(words, AutoMerge()),
        "windows": RetrievalChain(words, Windows(1, 1)),
    }


def described(nodes):
    """What two nodes are compared by."""
    return [(node.uid, node.score, node.text, node.path, node.metadata, node.location) for node in nodes]


def assert_same(one, many, questions=QUESTIONS):
    """Everything that can be asked has the same answer."""
    for where in (None, {"origin": ["asia"]}, {"year": [1, 2]}):
        views = (one, many) if where is None else (one.restricted(where), many.restricted(where))
        ours, theirs = map(retrievers, (views[1], views[0]))
        if where is None:
            for docs, some in ((many, ours), (one, theirs)):
                smart = {"embed_keys": ["dense"], "index": "smart_embedding_index"}
                some["smart"] = Retriever(docs, "line", topk=7, **smart)
        for name, retriever in theirs.items():
            for question in questions:
                found = retriever(question, filters={"year": [0, 1]} if name == "cut" else None)
                got = ours[name](question, filters={"year": [0, 1]} if name == "cut" else None)
                assert described(got) == described(found), (name, question, where)
                for node, other in zip(found[:1], got[:1], strict=True):
                    below = [described(one.children.get("word", ())) for one in (node, other)]
                    assert below[0] == below[1]
            assert hits_of(ours[name].explain(questions[0])) == hits_of(retriever.explain(questions[0]))
            for node in views[0].get_nodes("line")[-1:]:
                assert ours[name].why_not(node.uid, questions[1]) == retriever.why_not(node.uid, questions[1])
        for group in ("lazyllm_root", "line", "word"):
            assert described(views[1].get_nodes(group)) == described(views[0].get_nodes(group))
        assert [vars_of(info) for info in views[1].documents()] == [vars_of(info) for info in views[0].documents()]
        assert views[1].grep("tea") == views[0].grep("tea")
        for node in views[0].get_nodes("line", limit=2, offset=1):
            assert described(views[1].related(node.uid)) == described(views[0].related(node.uid))
            assert views[1].read(node.path) == views[0].read(node.path)
    nodes, others = one.get_nodes("line")[::3], many.get_nodes("line")[::3]
    assert described(many.window(others, 1, 2)) == described(one.window(nodes, 1, 2))
    assert described(many.find("lazyllm_root")(others)) == described(one.find("lazyllm_root")(nodes))
    assert list(many.dump()) == list(one.dump())
    assert many.verify() == ()


def hits_of(explanation):
    """The hits of an explanation with what every stage gave them, without the times of the stages."""
    return str(explanation).partition("\nstage ")[0]


def vars_of(info):
    """A document's state without times."""
    return (info.id, info.status, info.version, info.groups, info.bytes, info.labels)


texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=4)
documents = st.dictionaries(st.integers(0, 11).map("doc-{}".format), texts.map("\n".join), min_size=1, max_size=6)
steps = st.one_of(
    documents.map(lambda new: ("add_texts", new)),
    st.lists(st.integers(0, 11).map("doc-{}".format), min_size=1, max_size=3, unique=True).map(
        lambda names: ("delete_files", names)
    ),
    st.tuples(st.integers(0, 11), st.integers(0, 3)).map(
        lambda pair: ("update_metadata", {f"doc-{pair[0]}": {"year": pair[1], "origin": "asia"}})
    ),
)


def outcome(docs, method, argument):
    """What a call returns, or the error that it raises."""
    try:
        report = getattr(docs, method)(argument)
    except ConfigError:
        return "refused"
    return report.added, report.updated, report.unchanged, report.deleted, report.failed


class TestEqual:
    """Any corpus, any changes, any queries, with one to five shards."""

    @settings(max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate])
    @given(shards=st.integers(1, 5), first=documents, changes=st.lists(steps, max_size=5))
    def test_shards_answer_as_one_store(self, shards, first, changes):
        """Uids, scores to the last bit, order, nodes around hits, listings and dumps are equal after every change."""
        with opened() as one, opened(shards=shards) as many:
            metadata = {name: {"year": number % 3, "origin": "asia"} for number, name in enumerate(sorted(first))}
            for docs in (one, many):
                docs.add_texts(first, metadata)
                docs.activate_group("line", "word", embed_keys=["dense", "sparse"], analysers=["en", "zh"])
            for method, argument in changes:
                assert outcome(many, method, argument) == outcome(one, method, argument)
            assert_same(one, many, QUESTIONS[:3])


def conf(path):
    """The stores at a path."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(path)}}}


class TestFiles:
    """A folder of files, whose documents are in several stores."""

    FILES = {f"f{number}.txt": f"green tea {number}\nwater {number}" for number in range(12)}

    @pytest.mark.slow
    def test_a_sync_is_that_of_one_store(self, folder, tmp_path):
        """Reports of added, changed, deleted and broken files are equal, and so are queries after them."""
        path = folder({**self.FILES, "bad.pdf": b"%PDF-broken"})
        with warnings.catch_warnings(), opened(path) as one, opened(path, shards=3) as many:
            warnings.simplefilter("ignore", IngestionWarning)
            for docs in (one, many):
                docs.activate_group("line", "word", embed_keys=["dense", "sparse"], analysers=["en", "zh"])
            assert [one.path for one in many.last_report.failed] == ["bad.pdf"]
            assert str(many.last_report) == str(one.last_report)
            (path / "f1.txt").write_text("coffee is roasted", encoding="utf-8")
            (path / "f2.txt").unlink()
            (path / "new.txt").write_text("绿茶 is green", encoding="utf-8")
            assert many.sync(dry_run=True) == one.sync(dry_run=True)
            assert (many.plan().files, many.plan().calls > 0) == (one.plan().files, True)
            assert str(many.sync()) == str(one.sync())
            assert (many.last_report.updated, many.last_report.deleted) == (("f1.txt",), ("f2.txt",))
            assert_same(one, many, QUESTIONS[:2])
            assert (many.status().documents, many.status().failed) == (one.status().documents, one.status().failed)
            assert [(node.name, node.nodes, node.indexes) for node in many.status().groups] == [
                (node.name, node.nodes, node.indexes) for node in one.status().groups
            ]

    def test_the_last_file_of_a_shard_may_go(self, folder):
        """The guard against an unmounted folder counts the files of all shards, for a deletion as for a loss."""
        path = folder(self.FILES)
        with Document(path, shards=5) as docs:
            docs.sync()
            own = [name for name in self.FILES if shard_of(name, 5) == shard_of("f0.txt", 5)]
            for name in own:
                (path / name).unlink()
            assert docs.sync().deleted == tuple(sorted(own))
            for name in self.FILES.keys() - set(own):
                (path / name).unlink()
            with pytest.warns(IngestionWarning, match="missing"):
                assert docs.sync().deleted == ()
            assert len(docs.documents()) == 12 - len(own)

    def test_a_renamed_folder_is_no_loss(self, folder):
        """Files that move to other shards are known by their content."""
        path = folder({f"old/{name}": text for name, text in self.FILES.items()})
        with Document(path, shards=4) as docs:
            docs.sync()
            (path / "old").rename(path / "new")
            report = docs.sync()
            assert not report.withheld
            assert [one.id for one in docs.documents()] == sorted(f"new/{name}" for name in self.FILES)

    @pytest.mark.slow
    def test_a_shard_whose_files_all_fail_is_no_error(self, folder):
        """One index answers as long as one file could be read, and so do shards; without any both raise."""
        path = folder({"bad.pdf": b"%PDF-broken", "good.txt": "green tea"})
        with Document(path, shards=5) as docs:
            with pytest.warns(IngestionWarning, match="bad.pdf"):
                assert [node.path for node in docs.search("tea")] == ["good.txt"]
            assert docs.restricted({"file_type": [".txt"]}).search("coffee") == []
        (path / "good.txt").unlink()
        with Document(path, shards=5) as docs, pytest.raises(IngestionError, match="failed to load"):
            docs.search("tea")

    def test_the_store_in_the_folder_is_not_ingested(self, folder):
        """Store files of all shards are left out."""
        path = folder({"tea.txt": "green tea"})
        with Document(path, store_conf=conf(path / "store.db"), shards=3) as docs:
            docs.activate_group("FineChunk", analysers=["en"])
            docs.sync()
            assert [one.id for one in docs.documents()] == ["tea.txt"]

    def test_added_files_and_metadata_are_routed(self, folder, tmp_path):
        """add_files takes paths and ids, with metadata of their own; the rest are the document's shard's."""
        path = folder({"in/tea.txt": "green tea", "coffee.txt": "coffee"})
        (tmp_path / "water.txt").write_text("water\nmore water", encoding="utf-8")
        with opened(path, shards=4, keep_versions=1) as docs:
            report = docs.add_files([path / "in" / "tea.txt", tmp_path / "water.txt"], {"water.txt": {"year": 3}})
            assert report.added == ("in/tea.txt", "water.txt")
            docs.sync()
            assert [node.path for node in docs.get_nodes(filters={"year": [3]})] == ["water.txt"]
            (tmp_path / "water.txt").write_text("water\nice", encoding="utf-8")
            docs.add_files({"water.txt": tmp_path / "water.txt"})
            assert docs.diff("water.txt", 1).groups["lazyllm_root"][-1].text == "ice"
            assert docs.rollback("water.txt").number == 3
            assert docs.read("water.txt").endswith("more water")
            assert [one.number for one in docs.versions(document="water.txt")] == [2, 3]
            assert docs.marks("coffee.txt", (0, 6)).text == "coffee"
            assert docs.purge("water.txt").is_clean
            with pytest.raises(DatasetPathError, match=r"water\.txt"):
                docs.document("water.txt")

    def test_nothing_is_done_for_half_of_the_documents(self):
        """A document that is unknown, a blank text or the id of a file stops a call before any shard is changed."""
        with Document(shards=4) as docs:
            docs.add_texts({f"t{number}": "tea" for number in range(8)})
            with pytest.raises(ConfigError, match="unknown"):
                docs.delete_files([*(f"t{number}" for number in range(8)), "unknown"])
            with pytest.raises(ConfigError, match="blank"):
                docs.add_texts({**{f"n{number}": "new" for number in range(8)}, "blank": " "})
            with pytest.raises(ConfigError, match="unknown"):
                docs.update_metadata({"t1": {"origin": "asia"}, "unknown": {"origin": "asia"}})
            assert len(docs.documents()) == 8

    def test_it_is_watched_and_has_jobs(self, folder):
        """A watcher syncs every shard; a worker runs jobs on all of them."""
        path = folder({"tea.txt": "green tea"})
        with Document(path, {"a": vector, "b": vector}, shards=3) as docs:
            with docs.watch(poll_s=0.05) as watcher:
                (path / "coffee.txt").write_text("coffee", encoding="utf-8")
                watcher.wait_for_sync(timeout_s=120)
                assert [one.id for one in docs.documents()] == ["coffee.txt", "tea.txt"]
            stop = threading.Event()
            worker = threading.Thread(target=Worker(docs).run, args=[stop])
            worker.start()
            job = docs.jobs.submit("delete_files", {"documents": ["tea.txt", "coffee.txt"]})
            assert docs.jobs.wait(job.id, timeout_s=120).state == "DELETED"
            stop.set()
            worker.join()
            assert docs.documents() == []
            with pytest.raises(ConfigError, match=r"docs\.shards"):
                change_model(docs, "a", "b")


class TestStores:
    """Store files, one for each shard."""

    @pytest.mark.slow
    def test_they_are_read_by_other_programs(self, tmp_path):
        """A read-only Document has what another one wrote, with common statistics; each shard can be opened alone."""
        with opened(store_conf=conf(tmp_path / "store.db"), shards=3) as docs:
            docs.add_texts({f"doc-{number}": "green tea\nwater" for number in range(9)})
            docs.activate_group("line", embed_keys=["dense"], analysers=["en"])
            with opened(store_conf=conf(tmp_path / "store.db"), shards=3, read_only=True) as reader:
                query = Retriever(reader, "line", similarity="bm25", topk=9)
                assert described(query("water")) == described(
                    Retriever(docs, "line", similarity="bm25", topk=9)("water")
                )
        names = []
        for number in range(3):
            with Document(store_conf=conf(tmp_path / f"store-{number}-of-3.db")) as shard:
                names.append([one.id for one in shard.documents()])
        assert all(shard_of(name, 3) == number for number, own in enumerate(names) for name in own)
        assert sum(map(len, names)) == 9

    def test_another_number_is_refused(self, tmp_path):
        """A wrong number of shards, none, or shards of what is one store: the error names reshard."""
        Document(store_conf=conf(tmp_path / "store.db"), shards=3).close()
        Document(store_conf=conf(tmp_path / "one.db")).close()
        with pytest.raises(ConfigError, match="reshard"):
            Document(store_conf=conf(tmp_path / "store.db"), shards=2)
        with pytest.raises(ConfigError, match="reshard"):
            Document(store_conf=conf(tmp_path / "one.db"), shards=2)
        with pytest.raises(ConfigError, match="shards="):
            Document(store_conf=conf(tmp_path / "store.db"))
        with pytest.raises(ConfigError, match="shards"):
            Document(shards=0)

    @pytest.mark.slow
    def test_export_and_import(self, tmp_path):
        """Shards are exported as one Document, and an export is imported into any number of them."""
        with opened(shards=3) as many, opened() as one:
            many.add_texts({f"doc-{number}": f"green tea\nwater {number}" for number in range(7)})
            many.activate_group("line", "word", embed_keys=["dense", "sparse"], analysers=["en", "zh"])
            many.export(tmp_path / "many")
            assert one.import_from(tmp_path / "many") == 7
            one.export(tmp_path / "one")
            with opened(shards=2) as others:
                assert others.import_from(tmp_path / "one") == 7
                for docs in (one, others):
                    docs.activate_group("line", "word", embed_keys=["dense", "sparse"], analysers=["en", "zh"])
                assert list(one.dump()) == list(many.dump()) == list(others.dump())
                with pytest.raises(ConfigError, match="empty"):
                    others.import_from(tmp_path / "one")

    @pytest.mark.parametrize("shards", [None, 2])
    def test_a_store_may_be_named_like_a_folder(self, tmp_path, shards):
        """Files whose paths begin as that of the store does are not taken for the store's own."""
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "tea.txt").write_text("green tea", encoding="utf-8")
        given = {} if shards is None else {"shards": shards}
        with Document(tmp_path / "notes", store_conf=conf(tmp_path / "note"), **given) as docs:
            assert docs.sync().added == ("tea.txt",)


class TestReshard:
    """Another number of shards, without loading or embedding."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("before", "after"), [(None, 3), (2, 4), (4, 1)])
    def test_answers_stay(self, tmp_path, before, after):
        """Dumps and answers are those before; what was excluded stays so; old stores are gone."""
        files = tmp_path / "files"
        files.mkdir()
        for number in range(9):
            (files / f"f{number}.txt").write_text(f"green tea\nwater {number}", encoding="utf-8")
        given = {"store_conf": conf(tmp_path / "store.db")}
        steps = {"embed_keys": ["dense", "sparse"], "analysers": ["en", "zh"]}
        with opened(files, **given, shards=before) if before else opened(files, **given) as docs:
            docs.activate_group("line", "word", **steps)
            docs.delete_files(["f3.txt"])
            docs.update_metadata({"f4.txt": {"year": 7}})
            expected = list(docs.dump())
        result = reshard(given["store_conf"], after)
        assert (result.before, result.shards, result.documents) == (before or 0, after, 8)
        assert str(reshard(given["store_conf"], after)) == f"There are {after} shards already."
        with opened(files, **given, shards=after) as docs:
            embedded.clear()
            assert not docs.sync().added
            docs.activate_group("line", "word", **steps)
            assert list(docs.dump()) == expected
            assert (docs.verify(), embedded) == ((), [])
        left = {path.name for path in tmp_path.iterdir()}
        assert {name for name in left if f"-of-{after}." not in name} == {"files", "store.db.shards"}

    def test_what_was_chosen_survives_a_crash(self, tmp_path, monkeypatch):
        """The choice of files is kept, also where a call ends after the documents were copied."""
        (tmp_path / "files").mkdir()
        for name in ("tea.txt", "draft.md"):
            (tmp_path / "files" / name).write_text("green tea", encoding="utf-8")
        store = conf(tmp_path / "store.db")
        with Document(tmp_path / "files", store_conf=store, shards=2, exclude=["*.md"]) as docs:
            assert docs.sync().added == ("tea.txt",)
        copy = resharding._Copy.run
        with monkeypatch.context() as patch:
            patch.setattr(resharding._Copy, "run", lambda self: copy(self) and 1 / 0)
            with pytest.raises(ZeroDivisionError):
                reshard(store, 1)
        assert reshard(store, 1).present == 1
        with Document(tmp_path / "files", store_conf=store, shards=1) as docs:
            assert docs.sync().added == ()

    @pytest.mark.slow
    def test_a_folder_of_several_documents_stays(self, tmp_path):
        """A folder of vectors that another Document has too loses the collections of this one alone."""
        collections = {}

        class Folder(MapVectorStore):
            def __init__(self, dir):  # noqa: A002
                super().__init__()
                self._folder = str(dir)
                self._collections = collections.setdefault(str(dir), {})

            @property
            def location(self):
                return StoreLocation(self._folder, is_server=False)

        with vector_stores.isolated():
            vector_stores.register("folder", Folder)
            (tmp_path / "vectors").mkdir()
            both = [
                {
                    **conf(tmp_path / f"{name}.db"),
                    "vector_store": {"type": "folder", "kwargs": {"dir": tmp_path / "vectors"}},
                }
                for name in ("one", "two")
            ]
            for one in both:
                with Document(None, vector, store_conf=one) as docs:
                    docs.add_texts({"tea": "green tea", "water": "water"})
                    docs.activate_group("FineChunk", embed_keys=docs.embed_keys)
            reshard(both[0], 2)
            assert (tmp_path / "vectors").is_dir()
            assert len(collections[str(tmp_path / "vectors")]) == 1
            with Document(None, vector, store_conf=both[1]) as docs:
                assert len(Retriever(docs, "FineChunk")("tea")) == 2
            with Document(None, vector, store_conf=both[0], shards=2) as docs:
                assert len(Retriever(docs, "FineChunk")("tea")) == 2

    @pytest.mark.slow
    def test_it_is_killed_and_called_again(self, tmp_path):
        """Killed at its begin, in the middle and at its end, the next call finishes; nothing is embedded or left over.

        For more kills: ``python -m tests.crash.reshard_kills --kills 20``.
        """
        assert kill(3, tmp_path) == []


class TestWhole:
    """Nothing of a Document is forgotten."""

    INHERITED = (
        "CoarseChunk FineChunk MediumChunk activate_group add_reader create_node_group embed_keys fields find "
        "find_children find_parent get_nodes get_window_nodes groups jobs last_report near_duplicates reader related "
        "search shards sql tables url watch window"
    ).split()

    def test_each_method_works_on_shards(self):
        """A method of a Document is one of the shards together, or works through `reader`, as these do."""
        members = {name for name in dir(Document) if not name.startswith("_")}
        assert members - set(vars(ShardedDocument)) == set(self.INHERITED)

    def test_near_duplicates_in_different_shards(self):
        """They are found as in one index, also in a restricted view."""
        tea = "绿茶需要八十度的水，请先让水壶冷却再加水，每次只烧一次水。"
        texts = {f"{at}": tea + "。" * at for at in range(5)} | {"salt": "Salt"}
        with Document() as one, Document(shards=3) as docs:
            one.add_texts(texts)
            docs.add_texts(texts)
            assert sum(len(shard.get_nodes(LAZY_ROOT_NAME)) > 0 for shard in docs.shards) > 1
            for group in (LAZY_ROOT_NAME, "FineChunk"):
                found = [[node.path for node in own] for own in docs.near_duplicates(group)]
                assert found == [[node.path for node in own] for own in one.near_duplicates(group)] == [[*"01234"]]
            some = docs.restricted({"file_name": ["1", "3"]})
            assert [[node.path for node in own] for own in some.near_duplicates()] == [["1", "3"]]

    @pytest.mark.slow
    def test_it_is_served(self, folder):
        """The service searches shards together, and shows each document."""
        path = folder(TestFiles.FILES)
        with Document(path, shards=3, manager=True) as docs:
            base = f"{docs.url}/api/v1/sets/default"
            hits = httpx2.post(f"{base}/search", json={"query": "water 7", "topk": 3}, timeout=120).json()["hits"]
            assert [hit["uid"] for hit in hits] == [node.uid for node in docs.search("water 7", 3)]
            assert httpx2.get(f"{base}/documents/f7.txt", timeout=120).json()["status"] == "SUCCESS"
            assert httpx2.get(f"{base}/files/f7.txt", timeout=120).text == TestFiles.FILES["f7.txt"]
            assert len(httpx2.get(f"{base}/documents", timeout=120).json()["documents"]) == 12
            assert "12 files" in httpx2.get(f"{docs.url}/s/default/files", timeout=120).text
