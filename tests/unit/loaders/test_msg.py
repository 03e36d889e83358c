"""Mails of Outlook: what a reader of mail sees of them, and what is attached."""

from __future__ import annotations

import datetime as dt

import pytest

from lazyrag.errors import LoadError
from lazyrag.loaders import load_file, loaders, register_loader
from lazyrag.loaders.msg import unpack_rtf
from tests.ole_files import compound, properties

UTC = dt.UTC
SENT = int(
    (
        dt.datetime(2024, 4, 5, 6, 7, 8, 0, UTC) - dt.datetime(1601, 1, 1, 0, 0, 0, 0, UTC)
    ).total_seconds()
    * 1e7
)


def text(number: int, value: str) -> dict[str, bytes]:
    """A property that holds text."""
    return {f"__substg1.0_{number:04X}001F": value.encode("utf-16-le")}


def person(number: int, name: str, address: str, role: int = 1) -> dict[str, dict]:
    """A recipient."""
    inside = {
        "__properties_version1.0": properties({0x0C15: role}, 8),
        **text(0x3001, name),
        **text(0x39FE, address),
    }
    return {f"__recip_version1.0_#{number:08X}": inside}


def attachment(number: int, name: str, data: bytes | dict) -> dict[str, dict]:
    """An attachment: a file's bytes, or a mail."""
    inside: dict = {"__properties_version1.0": properties({}, 8), **text(0x3707, name)}
    inside["__substg1.0_3701000D" if isinstance(data, dict) else "__substg1.0_37010102"] = data
    return {f"__attach_version1.0_#{number:08X}": inside}


def mail(*parts: dict, header: int = 32) -> dict:
    """A mail from Li Wei, sent on a day in April, and more of it."""
    tree: dict = {
        "__properties_version1.0": properties({0x0039: SENT}, header),
        **text(0x0037, "Tea"),
        **text(0x0C1A, "Li Wei"),
        **text(0x5D01, "li@example.com"),
    }
    for part in parts:
        tree |= part
    return tree


HEAD = "Subject: Tea\nFrom: Li Wei <li@example.com>\nDate: 2024-04-05 06:07:08+00:00"


@pytest.fixture
def load(tmp_path):
    """A function that writes a mail, or its bytes, and loads it."""

    def written_and_loaded(tree: dict | bytes):
        path = tmp_path / "a.msg"
        path.write_bytes(tree if isinstance(tree, bytes) else compound(tree))
        return load_file(path)

    return written_and_loaded


def test_head_and_body(load):
    """The lines of the head come first, each also as metadata, then the plain body its lines ended
    by LF.
    """
    people = person(0, "王芳", "wang@example.com") | person(1, "tea@example.com", "tea@example.com")
    copied = person(2, "Ann", "ann@example.com", role=2) | person(
        3, "Unseen", "unseen@example.com", role=3
    )
    loaded = load(mail(text(0x1000, "Green tea,\r\n绿茶 \U0001f375.\r\n"), people, copied))
    assert loaded.text == (
        "Subject: Tea\nFrom: Li Wei <li@example.com>\nTo: 王芳 <wang@example.com>, tea@example.com\n"
        "Cc: Ann <ann@example.com>\nDate: 2024-04-05 06:07:08+00:00\n\nGreen tea,\n绿茶 \U0001f375."
    )
    assert loaded.metadata["to"] == "王芳 <wang@example.com>, tea@example.com"
    assert loaded.metadata["date"] == "2024-04-05 06:07:08+00:00"


def test_a_body_that_is_a_page(load):
    """A mail without plain body is read from its page, in the encoding that the mail names."""
    page = {"__substg1.0_10130102": "<p>Größe <b>zählt</b></p><script>no</script>".encode("cp1252")}
    tree = mail(page)
    tree["__properties_version1.0"] = properties({0x0039: SENT, 0x3FDE: 1252})
    assert load(tree).text == f"{HEAD}\n\nGröße zählt"


def test_a_body_in_packed_rich_text(load):
    """A body that is there in packed Rich Text alone is unpacked and read; the example is that of
    the specification.
    """
    packed = "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    assert (
        load(mail({"__substg1.0_10090102": bytes.fromhex(packed)})).text == f"{HEAD}\n\nhello world"
    )


def test_unpacking_what_repeats():
    """Copies that reach into themselves repeat: the specification's second example."""
    packed = "1a0000001c0000004c5a4675e2d44b51410004205758595a0d6e7d010eb0"
    assert unpack_rtf(bytes.fromhex(packed)) == b"{\\rtf1 WXYZWXYZWXYZWXYZWXYZ}"


def test_narrow_texts(load):
    """Texts of older programs are read in the code page that the mail names."""
    tree = mail({"__substg1.0_1000001E": "绿茶是茶".encode("gbk")})
    tree["__properties_version1.0"] = properties({0x0039: SENT, 0x3FFD: 936})
    assert load(tree).text == f"{HEAD}\n\n绿茶是茶"


def test_attachments(load):
    """What a loader reads follows as a place, what none reads is named with the reason; a large one
    is read whole.
    """
    table = b"tea;price\n" + b"".join(b"Sencha;%d\n" % number for number in range(800))
    loaded = load(
        mail(
            text(0x1000, "See there."),
            attachment(0, "C:\\mail\\prices.csv", table),
            attachment(1, "song.xyz", b"\0la"),
        )
    )
    location, *rows = loaded.locations
    assert (len(rows), rows[0].kind, rows[0].label) == (800, "row", "prices.csv > 2")
    assert (location.kind, location.label) == ("attachment", "prices.csv")
    assert loaded.text[location.start : location.end].endswith("tea: Sencha; price: 799")
    assert loaded.metadata["attachments"] == ["prices.csv", "song.xyz"]
    assert "No loader reads .xyz" in loaded.metadata["unread_attachments"]["song.xyz"]


def test_mails_in_mails(load):
    """An attached mail is read with its own head, body and attachments."""
    inner = mail(text(0x1000, "inner"), attachment(0, "a.txt", b"innermost"), header=24)
    loaded = load(mail(text(0x1000, "outer"), attachment(0, "forwarded", inner)))
    assert (
        loaded.text
        == f"{HEAD}\n\nouter\n\nAttachment: forwarded\n{HEAD}\n\ninner\n\nAttachment: a.txt\ninnermost"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"From: a@example.com\n\ntext", "no compound file"),
        (compound({"WordDocument": b"x" * 5000}), "not a mail"),
        (compound(mail(text(0x1000, "a" * 9000)))[:3000], "damaged"),
    ],
)
def test_what_is_no_mail_is_reported(load, data, message):
    """A file of another format, or cut off, fails with a LoadError that says what to do, where the
    suffix decides.
    """
    register_loader(".msg", replace=True)(loaders[".msg"])
    with pytest.raises(LoadError, match=message) as caught:
        load(data)
    assert "Save" in str(caught.value)


def test_tables_in_circles_end(load):
    """A file that names more tables than it is long fails at once; reading it would copy
    gigabytes.
    """
    data = bytearray(compound(mail(text(0x1000, "tea"))))
    data[44:48] = (1 << 30).to_bytes(4, "little")
    data[72:76] = (1 << 24).to_bytes(4, "little")
    with pytest.raises(LoadError, match="longer than itself"):
        load(bytes(data))


def test_sectors_in_circles_end(load):
    """A body whose sectors lead back to themselves and that says to be huge is left out and noted;
    the rest is read.
    """
    data = bytearray(compound(mail({"__substg1.0_1000001F": ("tea " * 3000).encode("utf-16-le")})))
    fat = int.from_bytes(data[76:80], "little")
    at = 512 + fat * 512
    data[at : at + 4] = (0).to_bytes(4, "little")
    entry = data.index("__substg1.0_1000001F".encode("utf-16-le"))
    data[entry + 120 : entry + 124] = (1 << 30).to_bytes(4, "little")
    loaded = load(bytes(data))
    assert "tea tea" not in loaded.text
    [note] = loaded.metadata["notes"]
    assert note.startswith("body left out: ")
    assert "longer than itself" in note
