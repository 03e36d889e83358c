"""What a Document does on a store, beside what it does in memory: the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lazyrag import Condition, DataType, DocField, Document, Retriever, migrate
from lazyrag.types import Ranking

FIELDS = {
    "author": DocField(DataType.VARCHAR, max_size=64, default_value=" "),
    "year": DocField(DataType.INT32),
}
TEXTS = {
    "green.md": "绿茶低温存放。\nGreen tea is steamed or fired.\n绿茶不发酵。",
    "black.md": "红茶要发酵。\nBlack tea is oxidised.",
    "white.txt": "白茶晒干。\nWhite tea is dried in the sun.\n绿茶和白茶都清淡。",
    "cold.txt": "Cold brew takes a night.\n冷泡茶要一夜。",
}
METADATA = {
    "green.md": {"author": "陆羽", "year": 780},
    "black.md": {"author": 'O\'Brien "x" \\ {y}', "year": 1900},
    "white.txt": {"year": 1115},
}
QUESTIONS = ("绿茶", "how is tea dried", "一夜", "发酵 oxidised")
FILTERS: tuple[Any, ...] = (
    None,
    {"author": ["陆羽", " "]},
    Condition("year", ">=", 900),
    ~Condition("author", "eq", 'O\'Brien "x" \\ {y}'),
    Condition("file_name", "contains", "e"),
)


class Letters:
    """A model small enough for tests, which counts what it embeds."""

    identity = "letters/1"

    def __init__(self) -> None:
        self.texts = 0

    def __call__(self, text: str) -> list[float]:
        """How often characters of 32 kinds occur, and a little of each."""
        self.texts += 1
        vector = [0.1] * 32
        for character in text:
            vector[ord(character) % 32] += 1.0
        return vector


class StoreDocuments:
    """Documents on one store; subclass it as ``TestSomething`` and say how the store is
    configured.
    """

    has_native_text = False

    def conf(self, folder: Path) -> Mapping[str, Any]:
        """A ``store_conf`` whose stores are new for each folder."""
        raise NotImplementedError

    def name(self, folder: Path) -> str:
        """Tells Documents on one server apart."""
        return f"茶 {folder.parent.name}-{folder.name}"

    def open(self, folder: Path, embed: Callable[[str], list[float]], **more: Any) -> Document:
        """The Document over a folder's files, on the store."""
        return self._made(
            folder,
            embed,
            store_conf={"search": "exact", **self.conf(folder)},
            name=self.name(folder),
            **more,
        )

    @staticmethod
    def _made(folder: Path, embed: Callable[[str], list[float]], **kwargs: Any) -> Document:
        docs = Document(
            folder / "files", embed=embed, doc_fields=FIELDS, file_metadata=METADATA, **kwargs
        )
        docs.create_node_group("line", transform=str.splitlines)
        return docs

    def test_answers_are_those_in_memory(self, tmp_path: Path) -> None:
        """Uids, scores and their order are equal, with every filter; later programs embed nothing;
        changes come in.
        """
        files = tmp_path / "files"
        files.mkdir()
        for name, text in TEXTS.items():
            (files / name).write_text(text, encoding="utf-8")
        with self.open(tmp_path, Letters()) as docs:
            assert answers(docs) == self._expected(tmp_path)
            assert not docs.maintenance.verify()
        again = Letters()
        with self.open(tmp_path, again) as docs:
            assert answers(docs) == self._expected(tmp_path)
            assert again.texts == 1 + len(QUESTIONS) * len(FILTERS)  # the probe, and questions
            (files / "cold.txt").unlink()
            (files / "black.md").write_text(
                "红茶要发酵。\nIt is oxidised for hours.", encoding="utf-8"
            )
            (files / "new.txt").write_text("黄茶是轻发酵茶。", encoding="utf-8")
            report = docs.sync()
            assert (report.added, report.updated, report.deleted) == (
                ("new.txt",),
                ("black.md",),
                ("cold.txt",),
            )
            assert answers(docs) == self._expected(tmp_path)
            assert not docs.maintenance.verify()

    def test_the_stores_own_search_keeps_filters(self, tmp_path: Path) -> None:
        """What index="smart_embedding_index" finds satisfies the filter, and of so few nodes it
        finds the best.
        """
        files = tmp_path / "files"
        files.mkdir()
        for name, text in TEXTS.items():
            (files / name).write_text(text, encoding="utf-8")
        with self.open(tmp_path, Letters()) as docs:
            exact = Retriever(docs, "line", topk=3)
            own = Retriever(docs, "line", topk=3, index="smart_embedding_index")
            for question in QUESTIONS:
                for wanted in FILTERS:
                    found, best = own(question, filters=wanted), exact(question, filters=wanted)
                    assert [node.uid for node in found] == [node.uid for node in best]
            if self.has_native_text:
                by_server = Retriever(
                    docs, "line", similarity="bm25_chinese", index="native", topk=5
                )
                found = by_server("绿茶", filters={"author": ["陆羽"]})
                assert {node.path for node in found} == {"green.md"}, found
                assert "绿茶" in by_server("绿茶")[0].text

    def test_migrated_from_a_laptop_and_back(self, tmp_path: Path) -> None:
        """A Document in a file answers the same on the store, and then in another file; nothing is
        embedded for it.
        """
        files = tmp_path / "files"
        files.mkdir()
        for name, text in TEXTS.items():
            (files / name).write_text(text, encoding="utf-8")
        name = self.name(tmp_path)
        home, back = (
            {"segment_store": {"type": "map", "kwargs": {"uri": str(tmp_path / file)}}}
            for file in ("a.db", "b.db")
        )
        with self._made(tmp_path, Letters(), store_conf=home, name=name) as docs:
            before = answers(docs)
        there = {"search": "exact", **self.conf(tmp_path)}
        for source, target in ((home, there), (there, back)):
            told = migrate(source, target)
            assert told.names == (name,)
            assert told.segments > len(TEXTS)
            assert told.vectors
            again = Letters()
            with self._made(tmp_path, again, store_conf=target, name=name) as docs:
                assert answers(docs) == before
                assert again.texts == 1 + len(QUESTIONS) * len(FILTERS)  # the probe, and questions
                assert not docs.maintenance.verify()

    def test_kept_versions_shorten_no_answer(self, tmp_path: Path) -> None:
        """Beside three earlier versions of each line, which are as near as the live one, answers
        are as long as ever.

        A store's own search may miss rows, but what it gives is live, and as much as is asked for.
        """
        files = tmp_path / "files"
        files.mkdir()
        for name, text in TEXTS.items():
            (files / name).write_text(text, encoding="utf-8")
        same = [f"绿茶 {'ab'[number % 2]}" for number in range(300)]
        with self.open(tmp_path, Letters(), keep_versions=3) as docs:
            for version in range(4):
                (files / "green.md").write_text(
                    "\n".join([*same, f"版本 {version}"]), encoding="utf-8"
                )
                docs.sync()
                # so that the vectors of this version are there
                assert len(Retriever(docs, "line")("绿茶")) == 6
            live = {node.uid for node in docs.get_nodes("line")}
            for topk in (4, 200, 301):
                exact = Retriever(docs, "line", topk=topk)("绿茶 a")
                with self._made(tmp_path, Letters(), name=self.name(tmp_path)) as fresh:
                    expected = Retriever(fresh, "line", topk=topk)("绿茶 a")
                assert [(node.uid, node.score) for node in exact] == [
                    (node.uid, node.score) for node in expected
                ]
                own = Retriever(docs, "line", topk=topk, index="smart_embedding_index")("绿茶 a")
                assert len(own) == topk
                assert {node.uid for node in own} <= live
                if self.has_native_text:
                    by_server = Retriever(
                        docs, "line", similarity="bm25_chinese", index="native", topk=topk
                    )
                    assert len(by_server("绿茶")) == min(topk, 301)  # another file says it, too

    def test_nothing_of_a_purged_document_is_left(self, tmp_path: Path) -> None:
        """The stores' files have no piece of a purged document; a server's files are named as not
        checked.
        """
        files = tmp_path / "files"
        files.mkdir()
        for name, text in TEXTS.items():
            (files / name).write_text(text, encoding="utf-8")
        secret = (
            "病人欧阳夏丹的病历：罕见的木质部侵染。\nPatient Oberholzer-Quastenberg, file number 77-4193-ZX.\n"
            * 3
        )
        with self.open(tmp_path, Letters(), keep_versions=1) as docs:
            docs.add_texts({"clinic/oberholzer": secret, "other": "Nothing of interest."})
            docs.activate_group("line", embed_keys=docs.reader.embed_keys, analysers=["zh"])
            docs.add_texts({"clinic/oberholzer": secret + "A second version."})
            certificate = docs.maintenance.purge("clinic/oberholzer")
            assert certificate.is_clean, str(certificate)
            assert docs.maintenance.deletion_certificate("clinic/oberholzer", text=secret).is_clean
            assert docs.maintenance.verify() == ()
            stores = docs._indexer.nodes.segments, docs._indexer.nodes.vectors
            # store files have none
            locations = [store.location for store in stores if hasattr(store, "location")]
            has_server = any(location.is_server for location in locations)
            assert any("server" in one for one in certificate.not_checked) == has_server
            hits = Retriever(docs, "line", similarity="cosine", topk=50)("病历")
            assert len(hits) == 11
            assert {hit.path for hit in hits} == {*TEXTS, "other"}

    def test_what_is_lost_is_found_and_mended(self, tmp_path: Path) -> None:
        """Rows that vanish from the store are problems for verify(), and repair() makes them
        anew.
        """
        files = tmp_path / "files"
        files.mkdir()
        for name, text in TEXTS.items():
            (files / name).write_text(text, encoding="utf-8")
        with self.open(tmp_path, Letters()) as docs:
            before = answers(docs)
            self.lose(docs)
            assert docs.maintenance.verify()
            docs.maintenance.repair()
            assert not docs.maintenance.verify()
            assert answers(docs) == before

    @staticmethod
    def lose(docs: Document) -> None:
        """Two vectors are gone."""
        builder = docs._indexer  # behind the Document's back, as a server's trouble is
        [space] = [
            one
            for one in builder.ledger.tree.groups["line"].indexes.values()
            if one.kind == "vectors"
        ]
        rows = builder.nodes.vectors.scan(space.collection, limit=2)
        assert builder.nodes.vectors.delete(space.collection, keys=[row.key for row in rows]) == 2

    def _expected(self, folder: Path) -> list[Ranking]:
        with self._made(folder, Letters(), name=self.name(folder)) as docs:
            return answers(docs)


def answers(docs: Document) -> list[Ranking]:
    """What a Document answers by terms and by embedding to every question under every filter."""
    retrievers = [
        Retriever(docs, "line", similarity=similarity, topk=4)
        for similarity in ("bm25_chinese", "cosine")
    ]
    return [
        [(node.uid, node.score) for node in retriever(question, filters=wanted)]
        for retriever in retrievers
        for question in QUESTIONS
        for wanted in FILTERS
    ]
