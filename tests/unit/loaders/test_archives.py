"""Zip containers: what is damaged, locked or made to harm is one error, within memory and time."""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import docx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag.errors import LoadError
from lazyrag.loaders import LoadLimits, load_file
from lazyrag.loaders.archives import MAX_ENTRIES, local_name, open_archive
from lazyrag.loaders.base import read_within
from tests.shared import shared

OLE = bytes.fromhex("d0cf11e0a1b11ae1")
BOMB = bytes(64 << 20)


def zipped(entries: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file of some entries."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


def word(text: str, more: dict[str, bytes]) -> bytes:
    """A Word document of one paragraph, with more entries in its container."""
    data = io.BytesIO()
    document = docx.Document()
    document.add_paragraph(text)
    document.save(data)
    with zipfile.ZipFile(data, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in more.items():
            archive.writestr(name, content)
    return data.getvalue()


@pytest.fixture
def opened(tmp_path):
    """A function that opens bytes as a container and reads all of its entries."""

    def read_all(data: bytes) -> dict[str, bytes]:
        path = tmp_path / "file.zip"
        path.write_bytes(data)
        with open_archive(path, "test container", ".zip") as archive:
            return {name: archive.read(name) for name in archive.names}

    return read_all


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.text("abc/绿茶.", min_size=1, max_size=8), st.binary(max_size=300), max_size=6
    )
)
def test_entries_come_out_as_they_went_in(tmp_path_factory, entries):
    """Whatever the names and bytes of entries, they are read back, and those that are not there are
    not known.
    """
    path = tmp_path_factory.mktemp("zip") / "file.zip"
    path.write_bytes(zipped(entries))
    with open_archive(path, "test container", ".zip") as archive:
        assert {name: archive.read(name) for name in archive.names} == entries
        assert all(name in archive for name in entries)
        assert "not there" not in archive


@pytest.mark.slow
def test_a_zip_bomb_is_refused_before_it_is_unpacked(opened):
    """An entry that unpacks to more than 200 times its size is an error, with little memory used
    for finding out.
    """
    data = zipped({"a.xml": BOMB})
    tracemalloc.start()
    try:
        with pytest.raises(
            LoadError, match=r"zip bomb: its part a\.xml unpacks to more than 200 times"
        ):
            opened(data)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_header_that_lies_about_sizes_is_found_out(opened):
    """A bomb that claims to be small costs no memory, and is reported as damaged."""
    data = bytearray(zipped({"a.xml": BOMB}))
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = (1000).to_bytes(4, "little")
    with pytest.raises(
        LoadError, match=r"damaged: its part a\.xml cannot be unpacked .*Save it again as \.zip\.$"
    ):
        opened(bytes(data))


def test_too_much_in_all(opened):
    """Entries that are harmless one by one are refused together where they pass the limit."""
    content = bytes(range(256)) * 4096
    entries = {f"{number}.bin": content for number in range(4)}
    with (
        read_within(LoadLimits(unpacked_bytes=3 << 20), None),
        pytest.raises(
            LoadError,
            match=r"unpacks to more than 3 MiB; the limit unpacked_bytes=3,145,728 is exceeded",
        ),
    ):
        opened(zipped(entries, zipfile.ZIP_STORED))


@pytest.mark.slow
def test_too_many_entries(opened):
    """A container of a hundred thousand entries is refused by their number."""
    data = zipped(dict.fromkeys(map(str, range(MAX_ENTRIES + 1)), b""), zipfile.ZIP_STORED)
    with pytest.raises(
        LoadError, match=f"holds {MAX_ENTRIES + 1} entries; at most {MAX_ENTRIES} are read"
    ):
        opened(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"only text", "cut off, encrypted, or of another format"),
        (zipped({"a": b"text"})[:-10], "cut off, encrypted, or of another format"),
        (OLE + bytes(1000), "that of old office programs"),
        (OLE + bytes(1000) + "EncryptedPackage".encode("utf-16-le"), "needs a password"),
    ],
    ids=["text", "cut off", "old office", "locked office"],
)
def test_what_is_no_container_says_what_it_is(opened, data, words):
    """The error tells empty, cut off, old and locked files apart, as far as their bytes do, and
    what to do.
    """
    with pytest.raises(LoadError, match=rf"{words}.*Save it"):
        opened(data)


def test_an_encrypted_entry_asks_for_the_password_to_be_taken_off(opened):
    """A zip file with a password is an error that says so."""
    data = bytearray(zipped({"a.xml": b"text"}))
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        data[data.index(mark) + offset] |= 1
    with pytest.raises(
        LoadError, match=r"encrypted and needs a password\. Save it again without one"
    ):
        opened(bytes(data))


def test_entities_are_not_expanded(tmp_path):
    """A part that declares an entity is read without what it stands for, be it text or another
    file.
    """
    secret = tmp_path / "secret.txt"
    secret.write_text("password", encoding="utf-8")
    markup = (
        f'<!DOCTYPE r [<!ENTITY a "tea"><!ENTITY b SYSTEM "{secret.as_uri()}">]><r>green&a;&b;</r>'
    )
    path = tmp_path / "file.zip"
    path.write_bytes(zipped({"a.xml": markup.encode()}))
    with open_archive(path, "test container", ".zip") as archive:
        root = archive.xml("a.xml")
    assert local_name(root) == "r"
    assert [local_name(child) for child in root] == ["", ""]
    assert root.text == "green"


def test_a_bomb_of_entities_does_not_go_off(tmp_path):
    """Entities of entities of entities are refused, or left alone; they never grow."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE r [<!ENTITY e0 "tea">{entities}]><r>&e11;</r>'
    path = tmp_path / "file.zip"
    path.write_bytes(zipped({"a.xml": bomb.encode()}))
    with open_archive(path, "test container", ".zip") as archive:
        try:
            size = len("".join(archive.xml("a.xml").itertext()))
        except LoadError:
            size = 0
    assert size < 100


def test_a_part_that_is_no_xml(tmp_path):
    """The error names the part."""
    path = tmp_path / "file.zip"
    path.write_bytes(zipped({"a.xml": b"<r>"}))
    with (
        open_archive(path, "test container", ".zip") as archive,
        pytest.raises(LoadError, match=r"its part a\.xml is not valid XML"),
    ):
        archive.xml("a.xml")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_word_documents_are_opened_within_the_limits(tmp_path):
    """A Word document whose styles are a bomb is refused; a bomb that is no part of its text is not
    unpacked.
    """
    path = tmp_path / "a.docx"
    path.write_bytes(word("green tea", {"word/styles.xml": BOMB}))
    with pytest.raises(LoadError, match="Word document is packed like a zip bomb"):
        load_file(path)
    path.write_bytes(word("green tea", {"word/media/image1.bin": BOMB}))
    assert "green tea" in load_file(path).text


@pytest.mark.shared
def test_a_locked_file_of_office():
    """A workbook that Excel has encrypted is no zip file, and the error speaks of its password."""
    with (
        pytest.raises(LoadError, match="needs a password"),
        open_archive(shared("data", "docs", "password_protected.xlsx"), "workbook", ".xlsx"),
    ):
        pass
