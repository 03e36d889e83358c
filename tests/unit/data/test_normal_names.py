"""Names and ids compare in NFC: one name of a Mac and of another system is one document."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import LAZY_ROOT_NAME, Document, FileSelection, Retriever
from lazyrag.data.segment import root_uid
from lazyrag.errors import ConfigError, IngestionWarning
from lazyrag.validation import normal_name, with_normal_names

MAC = unicodedata.normalize("NFD", "Prüfung/café 각.txt")
OTHER = unicodedata.normalize("NFC", MAC)


def paths(docs):
    """Of all documents."""
    return [one.path for one in docs.documents()]


@given(st.text(max_size=8))
def test_a_name_has_one_normal_form(name):
    """NFC and NFD of a name are one, and the form is stable."""
    composed, decomposed = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    assert normal_name(composed) == normal_name(decomposed) == normal_name(normal_name(name))


def test_a_file_of_a_mac_has_its_name_in_nfc(folder):
    """Listed, filtered, chosen, described and read by either spelling; the file itself is opened by
    its own.
    """
    written = folder({MAC: "green tea", "other.txt": "coffee"})
    metadata = {OTHER: {"author": "Mei"}}
    with Document(written, files=FileSelection(include=[OTHER]), file_metadata=metadata) as docs:
        docs.sync()
        assert paths(docs) == [OTHER]
        retriever = Retriever(docs, LAZY_ROOT_NAME, "bm25")
        for name in (MAC, OTHER):
            [node] = retriever("tea", filters={"file_name": name.rpartition("/")[2]})
            assert (node.path, node.metadata["author"]) == (OTHER, "Mei")
            assert docs.documents(ids=[name])[0].path == OTHER
            assert docs.read(name) == "green tea"
            assert [one.number for one in docs.versions.list(name)] == [1]


def test_files_are_added_and_deleted_by_either_spelling(folder):
    """Texts, files and metadata; a deleted file of the folder stays away."""
    written = folder({MAC: "green tea"})
    with Document(written) as docs:
        docs.sync()
        docs.delete_files([MAC])
        assert paths(docs) == []
        assert docs.sync().skipped == ((OTHER, "deleted by delete_files"),)
        assert docs.add_files([written / MAC]).added == (OTHER,)
        docs.add_texts({"é": "white tea"}, {"e\u0301": {"year": 1}})
        assert docs.add_texts({"e\u0301": "black tea"}).updated == ("é",)
        docs.update_metadata({"e\u0301": {"year": 2}})
        assert sorted(paths(docs)) == sorted([OTHER, "é"])
        docs.delete_files(["e\u0301"])
        assert paths(docs) == [OTHER]
        with pytest.raises(ConfigError, match="one name"):
            docs.add_texts({"é": "a", "e\u0301": "b"})


def test_the_second_of_two_files_of_one_name_fails(folder):
    """The first is ingested; the report, its status and the plan name the other as it is
    spelled.
    """
    written = folder({"café.txt": "green tea", "cafe\u0301.txt": "coffee", "a.txt": "milk"})
    with Document(written) as docs:
        planned = docs.plan().files
        with pytest.warns(IngestionWarning, match="normal form"):
            report = docs.sync()
        for failed in (planned.failed, report.failed):
            [failure] = failed
            assert normal_name(failure.path) == "café.txt"
            assert "Rename" in str(failure.error)
        assert sorted(report.added) == ["a.txt", "café.txt"]
        [first] = (
            one
            for one in written.iterdir()
            if one.name.endswith("fé.txt") or one.name.endswith("fe\u0301.txt")
            if one.name != failure.path
        )
        first.unlink()
        assert docs.sync().failed == ()
        assert len(paths(docs)) == 2


def test_stores_of_before_are_renamed_and_not_embedded_again(folder, tmp_path, monkeypatch):
    """A file and a text that an earlier release stored under decomposed names."""
    written = folder({MAC: "green tea"})
    store = {"segment_store": {"type": "map", "kwargs": {"uri": tmp_path / "store.db"}}}
    calls = []

    def embed(text):
        calls.append(text)
        return [float(len(text)), 1.0]

    embed.identity = "length"
    embed.probe = False
    with monkeypatch.context() as patch:
        for module in (
            "data.segment",
            "ingest.changes",
            "ingest.documents",
            "ingest.dataset",
            "loaders.directory",
            "read.versions",
        ):
            patch.setattr(f"lazyrag.{module}.normal_name", str)
        patch.setattr("lazyrag.ingest.documents.with_normal_names", lambda _, values: dict(values))
        with Document(written, embed=embed, store_conf=store) as docs:
            docs.add_texts({"e\u0301": "white tea"})
            docs.activate_group("FineChunk", embed_keys=docs.reader.embed_keys)
            assert sorted(paths(docs)) == sorted([MAC, "e\u0301"])
    calls.clear()
    with Document(written, embed=embed, store_conf=store) as docs:
        assert docs.sync().moved == ((MAC, OTHER),)
        assert sorted(paths(docs)) == sorted([OTHER, "é"])
        assert {node.document_id for node in Retriever(docs, "FineChunk")("tea")} == {
            root_uid(OTHER),
            root_uid("é"),
        }
        assert docs.read("e\u0301") == "white tea"
        assert docs.sync().unchanged == (OTHER,)
    assert calls in ([], ["tea"])


def test_two_spellings_in_one_mapping_are_an_error():
    """Neither of them wins silently."""
    assert with_normal_names("texts", {"e\u0301": 1, "b": 2}) == {"é": 1, "b": 2}
    with pytest.raises(ConfigError, match="one name"):
        with_normal_names("texts", {"e\u0301": 1, "é": 2})
