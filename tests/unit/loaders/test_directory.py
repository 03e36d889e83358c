"""Which files a folder gives, and what the file system says of each."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lazyrag import Document, FileSelection
from lazyrag.errors import DatasetPathError
from lazyrag.loaders.directory import (
    FoundFile,
    Listing,
    Signature,
    built_in_metadata,
    find_files,
    hash_file,
    signature_of,
)

LONGEST_PATH = 4096  # of Linux, in bytes, its end included; longer ones are refused, whoever asks


def listed(folder, **choices) -> Listing:
    """The listing of a folder, complete."""
    listing = find_files(folder, **choices)
    return replace(listing, files=[*listing.files])


def identities(folder) -> list[str]:
    """The identities of the files that are found."""
    return [file.identity for file in listed(folder).files]


def skipped(folder) -> dict[str, str]:
    """What was passed over, with the reasons."""
    return dict(listed(folder).skipped)


@contextmanager
def inside(folder, length: int):
    """Be in a new folder far beneath another one, whose path has that length; give its identity."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        missing = length - len(os.fsencode(folder))
        while missing > 0:
            step = min(missing, 200) if missing != 201 else 100  # a slash and a name
            name = "d" * (step - 1)
            Path(name).mkdir()
            os.chdir(name)
            missing -= step
        yield Path.cwd().relative_to(folder).as_posix()
    finally:
        os.chdir(before)


def test_files_are_found_in_all_folders_sorted_by_path(folder):
    """Files of all depths come sorted by their relative path with forward slashes, each with where
    it lies.
    """
    root = folder(
        {"b.txt": "", "a/z.txt": "", "a/b/c.md": "", "a.txt": "", "中文/文 件.txt": "", "A.txt": ""}
    )
    listing = listed(root)
    names = [file.identity for file in listing.files]
    assert names == ["A.txt", "a.txt", "a/b/c.md", "a/z.txt", "b.txt", "中文/文 件.txt"]
    assert [file.path for file in listing.files] == [root / name for name in names]
    assert listing.skipped == listing.unreadable == []


def test_an_empty_folder(tmp_path):
    """A folder without files, or with empty folders only, gives none."""
    (tmp_path / "empty" / "deeper").mkdir(parents=True)
    listing = listed(tmp_path)
    assert (listing.files, listing.skipped, listing.unreadable) == ([], [], [])


def test_a_file_comes_with_its_signature(folder):
    """Size, time of last modification and inode are those of the file, or of what a link leads
    to.
    """
    root = folder({"a.txt": "tea", "sub/b.txt": ""})
    (root / "link.txt").symlink_to(root / "a.txt")
    os.utime(root / "a.txt", ns=(1, 1_234_567_890_123_456_789))
    signatures = {file.identity: file.signature for file in listed(root).files}
    inode = (root / "a.txt").stat().st_ino
    assert (
        signatures["a.txt"]
        == signatures["link.txt"]
        == Signature(3, 1_234_567_890_123_456_789, inode)
    )
    assert signatures["sub/b.txt"] == signature_of(root / "sub" / "b.txt") != signatures["a.txt"]
    assert signature_of(root / "c.txt") is None


def test_a_listing_knows_since_when_it_holds(folder):
    """It is dated before its first look, so that no file was looked at earlier than it says."""
    root = folder({"a.txt": "tea"})
    before = time.time_ns()
    seen = listed(os.fspath(root)).seen_ns
    assert before <= seen <= time.time_ns()


def test_values_with_defaults():
    """A file is made of identity and path alone, and an empty listing of nothing."""
    assert FoundFile("a.txt", Path("a.txt")).signature is None
    assert Listing() == Listing((), [], [], 0)


@pytest.mark.parametrize("name", ["missing", "a.txt"])
def test_a_folder_that_cannot_be_listed(folder, name):
    """A dataset that is gone, or no folder, is an error that names it, not a dataset without
    files.
    """
    root = folder({"a.txt": "tea"})
    with pytest.raises(DatasetPathError, match=name):
        listed(root / name)


@pytest.mark.skipif(sys.platform != "linux", reason="another system, another longest path")
def test_a_folder_beneath_that_cannot_be_listed(folder):
    """It is named, apart from being skipped, since its files may still be there; the others are
    found.
    """
    root = folder({"a.txt": "tea", "z/b.txt": "tea"})
    with inside(root, LONGEST_PATH) as deep:
        Path("unseen.txt").write_text("tea", encoding="utf-8")
    listing = listed(root)
    assert [file.identity for file in listing.files] == ["a.txt", "z/b.txt"]
    assert listing.unreadable == [deep]
    assert listing.skipped == [(deep, "cannot be listed: File name too long")]


@pytest.mark.skipif(sys.platform != "linux", reason="another system, another longest path")
def test_a_file_that_cannot_be_looked_at(folder):
    """It is found all the same, without a signature; a link that cannot be followed may lead to one
    and is named.
    """
    root = folder({"a.txt": "tea"})
    with inside(root, LONGEST_PATH - 2) as deep:
        Path("unseen.txt").write_text("tea", encoding="utf-8")
        for number in range(8):
            Path(f"{number}").symlink_to("unseen.txt")
    listing = listed(root)
    assert [(file.identity, file.signature is None) for file in listing.files] == [
        ("a.txt", False),
        (f"{deep}/unseen.txt", True),
    ]
    assert listing.unreadable == [f"{deep}/{number}" for number in range(8)]
    assert listing.skipped == [
        (one, "cannot be looked at: File name too long") for one in listing.unreadable
    ]
    with pytest.raises(OSError, match="too long"):
        hash_file(listing.files[1].path)


def test_hidden_files_and_folders_are_passed_over(folder):
    """Files and folders whose names begin with a dot are passed over; a hidden folder is named
    once.
    """
    root = folder(
        {".hidden.txt": "", ".git/config": "", ".git/a/b": "", "a/.DS_Store": "", "a/seen.txt": ""}
    )
    assert identities(root) == ["a/seen.txt"]
    assert skipped(root) == {".hidden.txt": "hidden", ".git": "hidden", "a/.DS_Store": "hidden"}


@pytest.mark.parametrize("parent", [".cache/data", ".a/.b", "plain/.hidden"])
def test_hidden_parents_do_not_matter(tmp_path, parent):
    """A folder that lies in a hidden one, or is hidden itself, gives its files."""
    root = tmp_path / parent
    root.mkdir(parents=True)
    (root / "a.txt").write_text("a", encoding="utf-8")
    assert identities(root) == ["a.txt"]


def test_lock_files_of_office_programs_are_passed_over(folder):
    """The files that Word lays beside an open document are passed over."""
    root = folder({"~$report.docx": "", "report.docx": "", "a/~$x.docx": "", "~kept.txt": ""})
    assert identities(root) == ["report.docx", "~kept.txt"]
    assert set(skipped(root)) == {"~$report.docx", "a/~$x.docx"}
    assert "lock file" in skipped(root)["~$report.docx"]


def test_what_is_passed_over_is_sorted(folder):
    """It comes in order of the path, whatever order the folders are read in."""
    root = folder({"~$z.docx": "", "z/.y": "", ".x": "", "a/~$w.docx": "", "a/b/.v": ""})
    assert [name for name, _ in listed(root).skipped] == [
        ".x",
        "a/b/.v",
        "a/~$w.docx",
        "z/.y",
        "~$z.docx",
    ]


def test_links(folder, tmp_path):
    """Links to files inside are followed; others, to folders or to nowhere, are passed over with
    their reason.
    """
    root = folder({"a.txt": "text", "sub/b.txt": "text"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.txt").write_text("text", encoding="utf-8")
    (root / "to_file.txt").symlink_to(outside / "c.txt")
    (root / "inside.txt").symlink_to(root / "sub" / "b.txt")
    (root / "chain.txt").symlink_to(root / "to_file.txt")
    (tmp_path / "dataset2").mkdir()  # a name that begins alike
    (tmp_path / "dataset2" / "d.txt").write_text("text", encoding="utf-8")
    (root / "alike.txt").symlink_to(tmp_path / "dataset2" / "d.txt")
    (root / "to_folder").symlink_to(outside)
    (root / "up").symlink_to(root)
    (root / "nowhere.txt").symlink_to(outside / "missing.txt")
    assert identities(root) == ["a.txt", "inside.txt", "sub/b.txt"]
    others = {
        "nowhere.txt": "link that leads nowhere",
        "to_folder": "link to a folder",
        "up": "link to a folder",
    }
    leading_out = ["alike.txt", "chain.txt", "to_file.txt"]
    out = "link to a file outside of the dataset; pass follow_links=True to read it"
    assert skipped(root) == others | dict.fromkeys(leading_out, out)
    assert listed(root).unreadable == []
    followed = listed(root, follow_links=True)
    assert dict(followed.skipped) == others
    assert {file.identity for file in followed.files} == {*leading_out, *identities(root)}


def test_a_document_follows_links_if_it_is_told_to(folder, tmp_path):
    """Without follow_links a link out of the folder is reported as skipped, also where the folder
    is a link.
    """
    root = folder({"a.txt": "text"})
    (tmp_path / "outside.txt").write_text("private", encoding="utf-8")
    (root / "out.txt").symlink_to(tmp_path / "outside.txt")
    (root / "in.txt").symlink_to("a.txt")
    (tmp_path / "link").symlink_to(root)
    docs = Document(tmp_path / "link")
    report = docs.sync()
    assert (report.added, [name for name, _ in report.skipped]) == (
        ("a.txt", "in.txt"),
        ["out.txt"],
    )
    assert Document(root, files=FileSelection(follow_links=True)).sync().added == (
        "a.txt",
        "in.txt",
        "out.txt",
    )


def test_a_link_to_itself_is_passed_over(folder):
    """A link that leads to itself hinders no other file."""
    root = folder({"a.txt": "text"})
    (root / "loop.txt").symlink_to(root / "loop.txt")
    assert identities(root) == ["a.txt"]
    assert skipped(root) == {"loop.txt": "link that leads nowhere"}
    assert listed(root).unreadable == []


def test_a_link_through_a_file(folder):
    """A link whose path takes a file for a folder leads nowhere: nothing can be behind it."""
    root = folder({"a.txt": "text"})
    (root / "through.txt").symlink_to(root / "a.txt" / "b.txt")
    assert skipped(root) == {"through.txt": "link that leads nowhere"}
    assert listed(root).unreadable == []


def test_what_is_no_regular_file_is_passed_over(folder):
    """A named pipe is passed over, not opened."""
    root = folder({"a.txt": "text"})
    os.mkfifo(root / "pipe.txt")
    assert identities(root) == ["a.txt"]
    (root / "zero.txt").symlink_to("/dev/zero")
    (root / "link.txt").symlink_to(root / "pipe.txt")
    assert skipped(root) == dict.fromkeys(
        ["pipe.txt", "zero.txt", "link.txt"], "not a regular file"
    )


def test_a_folder_that_is_a_link_itself(folder, tmp_path):
    """A dataset that is reached through a link gives its files."""
    root = folder({"a.txt": "text"})
    (tmp_path / "link").symlink_to(root)
    assert identities(tmp_path / "link") == ["a.txt"]


def test_names_that_are_no_utf8(folder):
    """A file name that is no valid UTF-8, as old archives bring them, is found and can be
    loaded.
    """
    root = folder({"a.txt": "text"})
    with open(os.fsencode(root) + b"/caf\xe9.txt", "wb") as file:  # noqa: PTH123  pathlib takes no bytes
        file.write(b"coffee")
    assert len(identities(root)) == 2
    assert sorted(node.text for node in Document(root).get_nodes()) == ["coffee", "text"]


@pytest.mark.parametrize("size", [0, 1, 262_144, 262_145, 1_000_000])
def test_a_hash_is_that_of_the_whole_content(folder, size):
    """It is BLAKE2b over all bytes, whatever the size."""
    content = bytes(range(251)) * (size // 251 + 1)
    path = folder({"a.bin": content[:size]}) / "a.bin"
    assert (
        hash_file(path)
        == hash_file(str(path))
        == hashlib.blake2b(content[:size], digest_size=16).hexdigest()
    )


def test_what_cannot_be_hashed(folder):
    """What is gone, a folder or a pipe is an error; a pipe is not waited for."""
    root = folder({"sub/a.txt": "tea"})
    os.mkfifo(root / "pipe.txt")
    with pytest.raises(FileNotFoundError):
        hash_file(root / "b.txt")
    with pytest.raises(OSError, match="directory"):
        hash_file(root / "sub")
    with pytest.raises(OSError, match="not a regular file"):
        hash_file(root / "pipe.txt")


@pytest.mark.skipif(not hasattr(os, "O_NOATIME"), reason="the system has no reading without access")
def test_hashing_does_not_count_as_access(folder):
    """The day of last access, which is metadata, is that of the last reader, not of the last look
    for changes.
    """
    path = folder({"a.txt": "tea"}) / "a.txt"
    os.utime(path, ns=(10**18, 10**18))
    hash_file(path)
    assert path.stat().st_atime_ns == 10**18


def test_built_in_metadata(folder):
    """The six built-in fields: name, MIME type, size in bytes, and three ISO days in local time."""
    path = folder({"Grüner Tee.PDF": b"12345"}) / "Grüner Tee.PDF"
    noon = dt.datetime(2021, 3, 4, 12).timestamp()  # noqa: DTZ001  local time is what is shown
    os.utime(path, (dt.datetime(2022, 5, 6, 12).timestamp(), noon))  # noqa: DTZ001
    metadata = built_in_metadata(path)
    today = dt.date.today()  # noqa: DTZ011
    assert dt.date.fromisoformat(metadata.pop("creation_date")) in {dt.date(2021, 3, 4), today}
    assert metadata == {
        "file_name": "Grüner Tee.PDF",
        "file_type": "application/pdf",
        "file_size": 5,
        "last_modified_date": "2021-03-04",
        "last_accessed_date": "2022-05-06",
    }


def test_reading_does_not_count_as_access(folder):
    """The day of last access is the one before the file was loaded."""
    root = folder({"a.txt": "text"})
    long_ago = dt.datetime(2001, 1, 2, 12).timestamp()  # noqa: DTZ001
    os.utime(root / "a.txt", (long_ago, long_ago))
    [node] = Document(root).get_nodes()
    assert node.metadata["last_accessed_date"] == "2001-01-02"


def test_nodes_of_all_groups_know_their_file_s_metadata(folder):
    """The built-in fields stand in every node's global metadata and can be filtered by."""
    docs = Document(folder({"a.txt": "one", "b.md": "three"}))
    assert {
        node.path: node.global_metadata["file_size"] for node in docs.get_nodes("FineChunk")
    } == {
        "a.txt": 3,
        "b.md": 5,
    }
    assert [node.path for node in docs.get_nodes("FineChunk", filters={"file_type": ".md"})] == [
        "b.md"
    ]
    assert [node.path for node in docs.get_nodes(filters={"file_name": ["a.txt", "x"]})] == [
        "a.txt"
    ]
