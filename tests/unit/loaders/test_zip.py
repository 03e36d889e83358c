"""Zip archives of files: each member read as a file of its name is, with its place, and nothing
written elsewhere.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyrag import Document, IngestionWarning, Retriever
from lazyrag.data.segment import Location
from lazyrag.errors import LoadError
from lazyrag.loaders import LoadLimits, load_file

# two pages
PDF = (
    Path(__file__).parents[3]
    / "cookbook"
    / "corpus"
    / "reports"
    / "member-meeting-minutes-2025.pdf"
)


def zipped(entries: dict[str, bytes | str]) -> bytes:
    """A zip file of some entries."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


@pytest.fixture
def load(tmp_path):
    """A function that loads an archive of some entries, or of some bytes."""

    def load_entries(entries):
        path = tmp_path / "a.zip"
        path.write_bytes(entries if isinstance(entries, bytes) else zipped(entries))
        return load_file(path)

    return load_entries


def members(loaded):
    """The text of each member."""
    return {
        location.label: loaded.text[location.start : location.end]
        for location in loaded.locations
        if location.kind == "member"
    }


def test_members_are_read_by_the_loaders_for_them(load):
    """Text, a page, a table and a mail each give what they give as files, in the archive's order,
    as places.
    """
    mail = EmailMessage()
    mail["Subject"] = "Tea"
    mail["From"] = "li@example.org"
    mail.set_content("Steam it.")
    entries = {
        "notes/绿茶.txt": "Green tea",
        "notes/": b"",
        "page.html": "<p>Black tea</p>",
        "prices.csv": "tea,price\nSencha,12\n",
        "a.eml": mail.as_bytes(),
        "README": "read me",
    }
    loaded = load(entries)
    assert list(members(loaded).items()) == [
        ("notes/绿茶.txt", "Green tea"),
        ("page.html", "Black tea"),
        ("prices.csv", "tea: Sencha; price: 12"),
        ("a.eml", "Subject: Tea\nFrom: li@example.org\n\nSteam it."),
        ("README", "read me"),
    ]
    assert loaded.text == "\n\n".join(members(loaded).values())
    assert dict(loaded.metadata) == {"members": 5}


def test_places_within_members_are_kept(load):
    """Pages and headings of members are places, too, labelled with the member; places come in
    order.
    """
    alone = load_file(PDF)
    loaded = load(
        {"a.txt": "Green tea", "docs/paper.pdf": PDF.read_bytes(), "guide.md": "# Tea\n\nGreen.\n"}
    )
    start = len("Green tea") + 2
    end = start + len(alone.text)
    assert loaded.locations[:2] == (
        Location(0, 9, "member", "a.txt"),
        Location(start, end, "member", "docs/paper.pdf"),
    )
    assert loaded.locations[2:-2] == tuple(
        Location(start + one.start, start + one.end, one.kind, f"docs/paper.pdf > {one.label}")
        for one in alone.locations
    )
    assert [(location.kind, location.label) for location in loaded.locations[-2:]] == [
        ("member", "guide.md"),
        ("heading", "guide.md > Tea"),
    ]
    pages = [location.start for location in loaded.locations if location.kind != "heading"]
    assert pages == sorted(pages)


def test_a_hit_says_its_member_and_its_page(folder):
    """A node of an archive names the member, and the page or the heading within it; a zip file is
    one document.
    """
    entries = {
        "paper.pdf": PDF.read_bytes(),
        "b.txt": "Oolong is half oxidised.",
        "c.md": "# Tea\n\nWhite tea.\n",
    }
    path = folder({"a.zip": zipped(entries)})
    docs = Document(path)
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    [hit] = Retriever(docs, "line", similarity="bm25", topk=1)("oolong oxidised")
    assert (hit.path, hit.location) == ("a.zip", "member b.txt")
    locations = {node.location for node in docs.get_nodes("line")}
    assert {node.text: node.location for node in docs.get_nodes("line")}[
        "White tea."
    ] == "c.md > Tea"
    assert {one.partition(",")[0] for one in locations} >= {
        f"page paper.pdf > {number}" for number in (1, 2)
    }
    assert len(docs.get_nodes()) == 1


def test_what_cannot_be_read_of_an_archive_does_not_hinder_the_rest(load):
    """A broken member and one of no known format are named with what is wrong; the others are
    read.
    """
    loaded = load(
        {"a.pdf": b"%PDF-1.7 broken", "b.txt": "tea", "c.bin": bytes(range(256)), "d.txt": " "}
    )
    assert members(loaded) == {"b.txt": "tea"}
    unread = loaded.metadata["unread_members"]
    assert list(unread) == ["a.pdf", "c.bin", "d.txt"]
    assert unread["a.pdf"].startswith("PdfLoader could not read the file")
    assert unread["c.bin"].startswith("No loader reads .bin.")
    assert unread["d.txt"].startswith("The file holds no text")
    assert loaded.metadata["members"] == 4


def test_many_unread_members_are_counted(load):
    """A hundred are named with their reasons, the rest is a number."""
    loaded = load({"a.txt": "tea", **{f"{number}.bin": b"\0" for number in range(120)}})
    unread = loaded.metadata["unread_members"]
    assert len(unread) == 101
    assert unread["..."].startswith("20 more members")


def test_hidden_members_are_passed_over(load):
    """What a folder's walk passes over, and what a Mac adds, is neither read nor counted."""
    hidden = {
        ".DS_Store": b"\0\1",
        "__MACOSX/._a.txt": b"\0\5",
        "a/.git/config": "x",
        "~$a.docx": b"x",
    }
    loaded = load({**hidden, "a.txt": "tea"})
    assert (members(loaded), dict(loaded.metadata)) == ({"a.txt": "tea"}, {"members": 1})


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "holds no files but hidden ones"),
        ({".hidden": "x"}, "holds no files but hidden ones"),
        (
            {"a.bin": b"\0", "b.bin": b"\0"},
            r"None of the 2 members .*'a\.bin': No loader reads \.bin",
        ),
        (b"", "it is empty"),
        (b"no archive", "cut off, encrypted, or of another format"),
        (zipped({"a.txt": "tea"})[:-9], "cut off"),
    ],
)
def test_archives_without_a_text(load, entries, words):
    """An empty or broken archive, and one of which nothing can be read, fail with what is wrong."""
    with pytest.raises(LoadError, match=words):
        load(entries)


def test_encrypted_members_are_reported(load):
    """A member with a password is named; the others are read."""
    data = bytearray(zipped({"a.txt": "secret", "b.txt": "tea"}))
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        data[data.index(mark) + offset] |= 1
    loaded = load(bytes(data))
    assert members(loaded) == {"b.txt": "tea"}
    assert "encrypted and needs a password" in loaded.metadata["unread_members"]["a.txt"]


def test_a_damaged_member_is_reported(load):
    """A member whose bytes do not fit their checksum is named; the others are read."""
    data = bytearray(zipped({"a.txt": "green tea " * 50, "b.txt": "tea"}))
    data[45] ^= 255
    loaded = load(bytes(data))
    assert members(loaded) == {"b.txt": "tea"}
    assert "damaged" in loaded.metadata["unread_members"]["a.txt"]


NAMES = [
    "../../evil.txt",
    "/etc/evil.txt",
    "C:\\evil.txt",
    "a/../../evil.txt",
    "..",
    "a\0b.txt",
    "x" * 300 + ".txt",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_member_is_ever_written(folder, tmp_path, monkeypatch, name):
    """Names that lead out of a folder only label places: all that is written lies in a temporary
    folder, and goes.
    """
    path = folder({"a.zip": zipped({name: "evil", "b.txt": "tea"})})
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    written = set()
    opened = Path.open

    def watched(self, mode="r", *args, **kwargs):
        if "w" in mode:
            written.add(self)
        return opened(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", watched)
    loaded = load_file(path / "a.zip")
    assert "tea" in loaded.text
    assert {one.name for one in written} <= {"member.txt", "member"}
    assert all(temporary in one.parents for one in written)
    assert list(temporary.iterdir()) == []
    assert sorted(path.iterdir()) == [path / "a.zip"]


def test_chinese_names_of_windows(load):
    """Names that are not marked as UTF-8 are read in the encoding that they are written in."""
    raw = "茶叶价格.txt".encode("gb18030").decode("cp437")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo("x" * len(raw.encode("cp437")))
        archive.writestr(info, "tea")
    plain = data.getvalue().replace(b"x" * len(raw.encode("cp437")), raw.encode("cp437"))
    assert members(load(plain)) == {"茶叶价格.txt": "tea"}


def test_readers_read_members(folder):
    """A reader for a pattern reads files within archives and mails as well, by their own names and
    paths.
    """
    mail = EmailMessage()
    mail["Subject"] = "Tea"
    mail.set_content("body")
    mail.add_attachment("x", filename="c.log")
    docs = Document(
        folder({"a.zip": zipped({"in/b.log": "x", "b.motd": "y"}), "d.eml": mail.as_bytes()})
    )
    docs.add_reader("*.log", lambda path: "read by a reader")
    docs.add_reader("in/*", lambda path: "never: a suffix goes before a pattern")
    texts = {node.path: node.text for node in docs.get_nodes()}
    assert texts["a.zip"] == "read by a reader\n\ny"
    assert texts["d.eml"].endswith("Attachment: c.log\nread by a reader")


@pytest.mark.slow
def test_archives_in_processes(folder):
    """An archive gives the same in another process."""
    path = folder(
        {"a.zip": zipped({"b.txt": "tea", "paper.pdf": PDF.read_bytes()}), "c.txt": "milk"}
    )
    with Document(path, limits=LoadLimits(processes=1)) as docs:
        found = [(node.text, node.locations) for node in docs.get_nodes()]
    assert found == [(node.text, node.locations) for node in Document(path).get_nodes()]


def test_a_changed_archive_is_read_again(folder):
    """It is one file: a change of a member is a change of it."""
    path = folder({"a.zip": zipped({"b.txt": "tea"}), "c.txt": "milk"})
    docs = Document(path)
    assert [node.text for node in docs.get_nodes()] == ["tea", "milk"]
    (path / "a.zip").write_bytes(zipped({"b.txt": "green tea"}))
    assert docs.sync().updated == ("a.zip",)
    assert [node.text for node in docs.get_nodes()] == ["green tea", "milk"]


def test_a_broken_archive_is_one_failure(folder):
    """It is reported under its name, and the other files are in."""
    docs = Document(folder({"a.zip": b"PK\x03\x04", "c.txt": "milk"}))
    with pytest.warns(IngestionWarning, match=r"1 of 2 files failed to load.*a\.zip"):
        assert [node.text for node in docs.get_nodes()] == ["milk"]


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.dictionaries(
        st.text("abc绿茶/._ ", min_size=1, max_size=8).map(lambda name: f"n{name.strip()}n.txt"),
        st.text(min_size=1, max_size=40).filter(lambda text: text.replace("\0", "").strip()),
        min_size=1,
        max_size=6,
    )
)
def test_no_character_of_a_member_is_lost(tmp_path_factory, entries):
    """Whatever texts an archive holds, each stands in the whole at its place, character by
    character.
    """
    path = tmp_path_factory.getbasetemp() / "any.zip"
    path.write_bytes(zipped({name: text.encode() for name, text in entries.items()}))
    wanted = {
        name: read_alone(tmp_path_factory, text)
        for name, text in entries.items()
        if "/." not in name
    }
    wanted = {name: text for name, text in wanted.items() if text}
    if not wanted:
        return
    found = members(load_file(path))
    assert {name: text for name, text in found.items() if "/." not in name} == wanted


def read_alone(tmp_path_factory, text):
    """What the loader of plain text makes of a text; "" where it is none."""
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(text.encode())
    try:
        return load_file(path).text
    except LoadError:
        return ""


def test_members_of_one_name_are_all_read(tmp_path):
    """An archive that was added to may hold a name twice; neither text is lost."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tea.txt", "Sencha")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("tea.txt", "Bancha")
    assert load_file(path).text == "Sencha\n\nBancha"


def test_a_new_reader_for_members_is_seen(tmp_path):
    """An archive is read again when what reads its members is another one, and only then."""
    (tmp_path / "a.zip").write_bytes(zipped({"tea.motd": "Sencha"}))
    (tmp_path / "b.txt").write_text("Bancha", encoding="utf-8")
    docs = Document(tmp_path)
    docs.sync()
    docs.add_reader("*.motd", lambda path: path.read_text(encoding="utf-8").upper())
    assert docs.sync().updated == ("a.zip",)
    assert [node.text for node in docs.get_nodes() if node.path == "a.zip"] == ["SENCHA"]
    assert docs.sync().updated == ()


def test_what_is_not_read_within_members_is_told(tmp_path):
    """However deep it lies: in an archive in a mail in an archive."""
    mail = EmailMessage()
    mail["Subject"] = "Teas"
    mail.set_content("See the archive.")
    inner = zipped({"tea.txt": "Sencha", "tea.exe": b"MZ\0\0\0\0"})
    mail.add_attachment(inner, maintype="application", subtype="zip", filename="teas.zip")
    path = tmp_path / "a.zip"
    path.write_bytes(zipped({"mail.eml": mail.as_bytes()}))
    assert [*load_file(path).metadata["unread_members"]] == ["mail.eml > teas.zip > tea.exe"]
    box = tmp_path / "a.mbox"
    box.write_bytes(b"From a@b.example Mon Jan  1 00:00:00 2024\n" + mail.as_bytes() + b"\n")
    assert [*load_file(box).metadata["unread_messages"]] == ["1 > teas.zip > tea.exe"]
