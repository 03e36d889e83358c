"""Folders of object storage, here fsspec's own in memory."""

from __future__ import annotations

import uuid

import fsspec
import pytest

from lazyrag import Document
from lazyrag.errors import DatasetPathError, MissingDependencyError


@pytest.fixture
def bucket():
    """A file system with three files, and the URL of their folder."""
    name = uuid.uuid4().hex
    system = fsspec.filesystem("memory")
    for path in ("a.txt", "teas/b.md", "teas/c.txt", ".hidden/d.txt"):
        system.pipe(f"/{name}/{path}", f"text of {path}".encode())
    yield system, f"memory://{name}", f"/{name}"
    system.rm(f"/{name}", recursive=True)


def texts(docs):
    """Texts by path."""
    return {node.path: node.text for node in docs.get_nodes("MediumChunk")}


def test_a_folder_is_read_without_hidden_files(bucket):
    """A single object is a folder of one."""
    _, url, _ = bucket
    with Document(url) as docs:
        assert docs.sync().added == ("a.txt", "teas/b.md", "teas/c.txt")
    with Document(f"{url}/a.txt") as docs:
        assert docs.sync().added == ("a.txt",)
    with Document(f"{url}/none") as docs, pytest.raises(DatasetPathError, match="no files"):
        docs.sync()


def test_changes_are_ingested_and_the_rest_is_not_read_again(bucket, monkeypatch):
    """By size and date or ETag; the metadata is that of the object."""
    system, url, path = bucket
    with Document(url) as docs:
        assert len(docs.sync().added) == 3
        assert texts(docs)["teas/b.md"] == "text of teas/b.md"
        [node, *_] = docs.get_nodes("MediumChunk")
        assert (node.root.metadata["file_name"], node.root.metadata["file_size"]) == ("a.txt", 13)
        system.pipe(f"{path}/a.txt", b"new text")
        system.rm(f"{path}/teas/c.txt")
        report = docs.sync()
        assert (report.updated, report.deleted) == (("a.txt",), ("teas/c.txt",))
        assert texts(docs) == {"a.txt": "new text", "teas/b.md": "text of teas/b.md"}
        monkeypatch.setattr(fsspec.AbstractFileSystem, "get_file", None)  # nothing is read
        assert docs.sync().unchanged == ("a.txt", "teas/b.md")


def test_an_object_that_is_gone_fails_with_its_url(bucket, monkeypatch):
    """The others are ingested."""
    _, url, path = bucket
    get_file = fsspec.AbstractFileSystem.get_file
    monkeypatch.setattr(fsspec.AbstractFileSystem, "get_file", vanishing(get_file))
    with Document(url) as docs:
        with pytest.warns(UserWarning, match="1 of 3"):
            docs.sync()
        [failure] = docs.last_report.failed
        assert failure.path == "a.txt"
        assert f"{path}/a.txt" in str(failure.error)


def vanishing(get_file):
    """The method, failing for one object."""

    def get(self, path, *arguments, **options):
        if path.endswith("a.txt"):
            raise FileNotFoundError(path)
        return get_file(self, path, *arguments, **options)

    return get


def test_a_folder_of_this_machine_has_a_url_too(tmp_path):
    """Files are read where they were listed."""
    (tmp_path / "a.txt").write_text("green tea")
    with Document(f"file://{tmp_path}") as docs:
        assert docs.sync().added == ("a.txt",)
        assert texts(docs) == {"a.txt": "green tea"}


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("s3://bucket/teas", MissingDependencyError, r"\.\[s3\]"),
        ("gs://bucket/teas", MissingDependencyError, "gcsfs.*Install it with pip"),
        ("postgresql://user@host/db", DatasetPathError, "s3://bucket/folder"),
    ],
)
def test_a_url_that_cannot_be_opened_says_what_can(url, error, message):
    """A missing package, or none for the scheme."""
    with Document(url) as docs, pytest.raises(error, match=message):
        docs.sync()
