"""Deletion certificates: what purge leaves in the stores' files, and what the search of them
finds.
"""

from __future__ import annotations

import hashlib
import sqlite3

import numpy as np
import pytest

from lazyrag import Document, Retriever
from lazyrag.errors import ConfigError
from lazyrag.server.jobs import Jobs, Worker

SECRET = (
    "Patient Wilhelmina Oberholzer-Quastenberg was treated for a rare xylophagous infestation.\n"
    "Her file number is 77-4193-ZX and her physician noted remarkable zwitterionic findings.\n"
) * 3
OPEN = "Green tea is not fermented, and is brewed at eighty degrees for two or three minutes.\n" * 3
RARE = b"xylophag"  # the stem of a word of the secret alone


def embed(text):
    """64 numbers that only this text has."""
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng(seed).normal(size=64).astype(np.float32)


def on_file(folder, **kwargs):
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(folder / "store.db"), **kwargs}}}


def build(docs):
    docs.activate_group(
        "FineChunk", "MediumChunk", embed_keys=docs.reader.embed_keys, analysers=["en", "zh"]
    )


def stored_bytes(folder):
    """All that the store's files hold."""
    return b"\n".join(
        path.read_bytes()
        for path in sorted(folder.rglob("store.db*")) + arrays(folder)
        if path.is_file()
    )


def arrays(folder):
    return sorted((folder / "store.db.d").rglob("*"))


@pytest.fixture
def docs(tmp_path):
    with Document(embed=embed, store_conf=on_file(tmp_path), keep_versions=2) as docs:
        build(docs)
        yield docs


def test_nothing_of_a_purged_document_is_left(docs, tmp_path):
    """Versions, keyword indexes, vectors, cache and write-ahead log: no byte of its texts, keys and
    path stays.
    """
    docs.add_texts({"tea/open.txt": OPEN, "patients/oberholzer.txt": SECRET})
    docs.add_texts(
        {"patients/oberholzer.txt": SECRET + "Second version: all is well again with Quastenberg."}
    )
    docs.update_metadata(
        {"patients/oberholzer.txt": {"title": "Oberholzer-Quastenberg, the whole file"}}
    )
    search = Retriever(docs, "FineChunk", similarity="bm25")
    assert {node.path for node in search("xylophagous")} == {"patients/oberholzer.txt"}
    vector = embed(docs.get_nodes("MediumChunk")[0].text).tobytes()[32:96]
    assert {RARE in stored_bytes(tmp_path), b"Quastenberg" in stored_bytes(tmp_path)} == {True}
    certificate = docs.maintenance.purge("patients/oberholzer.txt")
    left = stored_bytes(tmp_path)
    assert certificate.is_clean, str(certificate)
    assert [
        one for one in (RARE, b"zwitterion", b"Quastenberg", b"oberholzer", vector) if one in left
    ] == []
    assert certificate.pieces > 50
    assert {"store.db", "store.db.embeddings"} <= {
        one.place.rpartition("/")[2] for one in certificate.checked
    }
    assert any("backups" in one for one in certificate.not_checked)
    assert docs.maintenance.verify() == ()
    assert [node.path for node in docs.search("how is tea brewed")] == ["tea/open.txt"]
    assert search("xylophagous") == []


def test_what_others_have_as_well_is_shared_and_stays(docs):
    """A text that a live document has too is not called left over, and is still found."""
    docs.add_texts({"a-first-copy": OPEN, "b-other-copy": OPEN})
    certificate = docs.maintenance.purge("a-first-copy")
    assert certificate.is_clean, str(certificate)
    assert certificate.shared > 0
    assert [node.path for node in docs.search("green tea")] == ["b-other-copy"]
    assert docs.maintenance.verify() == ()


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    "place", ["store.db-wal", "store.db.embeddings", "store.db.d/leftover.arrays", "store.db.bak"]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_a_planted_piece_is_found_wherever_it_is(docs, tmp_path, place, encoding):
    """63 bytes of the text at an odd offset of any file of the store are found, and named."""
    docs.add_texts({"secret": SECRET, "open": OPEN})
    assert docs.maintenance.purge("secret").is_clean
    assert docs.maintenance.deletion_certificate("secret", text=SECRET).is_clean
    docs.close()
    planted = tmp_path / place
    planted.parent.mkdir(exist_ok=True)
    with planted.open("ab") as file:
        file.write(b"\0" * 4095 + SECRET.encode(encoding)[101:164] + b"\1" * 100)
    # as if it came from before the restart: SQLite would remove what is not its own
    if place.endswith("-wal"):
        with Document(embed=embed, store_conf=on_file(tmp_path), read_only=True) as again:
            certificate = again.maintenance.deletion_certificate("secret", text=SECRET)
    else:
        with Document(embed=embed, store_conf=on_file(tmp_path)) as again:
            certificate = again.maintenance.deletion_certificate("secret", text=SECRET)
    assert not certificate.is_clean
    [found] = [one for one in certificate.checked if one.found]
    assert place.startswith(found.place.rpartition("/")[2])
    assert "found" in str(certificate)


def test_a_plain_delete_leaves_what_the_certificate_finds(docs, tmp_path):
    """delete_files alone leaves pages, index rows and cached vectors; purge of the same document
    removes them.
    """
    (tmp_path / "patient.txt").write_text(SECRET, encoding="utf-8")
    docs.add_files({"clinic/patient.txt": tmp_path / "patient.txt"})
    docs.delete_files(["clinic/patient.txt"])
    before = docs.maintenance.deletion_certificate(
        "clinic/patient.txt", file=tmp_path / "patient.txt"
    )
    assert not before.is_clean
    after = docs.maintenance.purge("clinic/patient.txt")
    assert after.is_clean, str(after)
    assert docs.maintenance.deletion_certificate(
        "clinic/patient.txt", file=tmp_path / "patient.txt"
    ).is_clean


@pytest.mark.slow
def test_a_file_that_is_still_in_the_dataset_keeps_its_path(tmp_path):
    """The path of an excluded file stays, which the certificate says; once the file is gone, it
    goes, too.
    """
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "oberholzer.txt"
    file.write_text(SECRET, encoding="utf-8")
    (tmp_path / "data" / "open.txt").write_text(OPEN, encoding="utf-8")
    with Document(tmp_path / "data", store_conf=on_file(tmp_path)) as docs:
        build(docs)
        certificate = docs.maintenance.purge("oberholzer.txt")
        assert not certificate.is_clean
        assert "sync()" in certificate.notes[0]
        assert b"Quastenberg" not in stored_bytes(tmp_path)
        assert docs.sync().added == ()
        file.unlink()
        assert docs.maintenance.purge("oberholzer.txt").is_clean
        assert b"oberholzer" not in stored_bytes(tmp_path)
        file.write_text(OPEN, encoding="utf-8")
        assert docs.sync().added == ("oberholzer.txt",)


@pytest.mark.slow
def test_array_files_are_written_anew_without_the_document(tmp_path):
    """Large indexes lie in array files: those with its rows are gone at once, not after a grace
    period.
    """
    long = {
        name: "".join(f"{line} {name} {number}" for number in range(300) for line in (text[:87],))
        for name, text in (("secret-of-the-clinic", SECRET), ("open", OPEN))
    }
    with Document(
        embed=lambda text: np.tile(embed(text), 16), store_conf=on_file(tmp_path)
    ) as docs:
        docs.add_texts(long)
        build(docs)
        before = {path.name for path in arrays(tmp_path)}
        vector = embed(docs.get_nodes("FineChunk")[-1].text).tobytes()[:64]
        assert docs.get_nodes("FineChunk")[-1].path == "secret-of-the-clinic"
        assert vector in stored_bytes(tmp_path)
        certificate = docs.maintenance.purge("secret-of-the-clinic")
        assert certificate.is_clean, str(certificate)
        assert before - {path.name for path in arrays(tmp_path)}
        assert [
            one for one in (vector, b"Oberholzer", b"secret-of") if one in stored_bytes(tmp_path)
        ] == []
        assert docs.maintenance.verify() == ()


def test_a_reader_that_holds_the_log_is_no_clean_certificate(tmp_path):
    """What a reader of another program keeps in the log is found, not overlooked."""
    docs = Document(store_conf=on_file(tmp_path, timeout_s=0.2))
    docs.add_texts({"secret": SECRET})
    with sqlite3.connect(tmp_path / "store.db") as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM segment").fetchone()
        try:
            certificate = docs.maintenance.purge("secret")
        finally:
            other.rollback()
    other.close()
    assert not certificate.is_clean
    docs.maintenance.compact()
    assert docs.maintenance.deletion_certificate("secret", text=SECRET).is_clean
    docs.close()


def test_a_store_in_memory_is_checked_by_its_rows():
    """Without files, the rows are queried, and the memory is listed as not checked."""
    docs = Document(embed=embed)
    build(docs)
    docs.add_texts({"secret": SECRET, "open": OPEN})
    certificate = docs.maintenance.purge("secret")
    assert certificate.is_clean
    assert {one.place for one in certificate.checked} == {
        "rows of the segment store",
        "rows of the vector store",
    }
    assert any("memory" in one for one in certificate.not_checked)


def test_unknown_live_and_restricted_documents_are_refused(docs):
    """Only a known document is purged, only a deleted one certified, and only by the whole
    Document.
    """
    docs.add_texts({"open": OPEN})
    with pytest.raises(ConfigError, match="deletion_certificate"):
        docs.maintenance.purge("nobody")
    with pytest.raises(ConfigError, match="purge"):
        docs.maintenance.deletion_certificate("open", text=OPEN)
    with pytest.raises(ConfigError, match="text="):
        docs.maintenance.deletion_certificate("gone")
    with pytest.raises(ConfigError, match="restricted"):
        docs.restricted({"file_name": "open"}).maintenance.purge("open")


@pytest.mark.slow
def test_purge_as_a_job_leaves_no_job_that_names_the_document(docs, tmp_path):
    """Finished jobs with its text and path go, and the one that purges it has neither."""
    Jobs(docs).submit("add_texts", {"texts": {"病历/oberholzer": SECRET, "open": OPEN}})
    worker = Worker(docs)
    assert worker.run_one().state == "SUCCESS"
    Jobs(docs).submit(
        "purge", {"document": "病历/oberholzer", "folders": [str(tmp_path / "store.db")]}
    )
    job = worker.run_one()
    assert job.state == "DELETED"
    assert [place for place in job.result["checked"] if place["found"]] == []
    assert docs.maintenance.deletion_certificate("病历/oberholzer", text=SECRET).is_clean


def test_folders_beside_the_stores_are_searched_on_request(docs, tmp_path):
    """The folder of uploads still has the file, which the certificate says."""
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / "patient.txt").write_text(SECRET, encoding="utf-8")
    docs.add_files({"clinic/patient.txt": tmp_path / "uploads" / "patient.txt"})
    certificate = docs.maintenance.purge("clinic/patient.txt", folders=[tmp_path / "uploads"])
    assert [one.place for one in certificate.checked if one.found] == [str(tmp_path / "uploads")]
    with pytest.raises(ConfigError, match="folders"):
        docs.maintenance.purge("clinic/patient.txt", folders=[tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="folders must be a list of paths; got"):
        docs.maintenance.purge("clinic/patient.txt", folders=str(tmp_path))
