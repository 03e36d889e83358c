"""Mails: what a reader of mail sees of them, and what is attached."""

from __future__ import annotations

import datetime as dt
import io
import mailbox
import re
from email.message import EmailMessage

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import Document, register_loader
from lazyrag.errors import LoadError
from lazyrag.loaders import LoadedFile, load_file, loaders
from tests.shared import shared


def mail(body: str = "", subject: str = "Tea") -> EmailMessage:
    """A mail with a plain body."""
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "Li Wei <li@example.com>"
    message["To"] = "王芳 <wang@example.com>, tea@example.com"
    message["Date"] = dt.datetime(2024, 4, 5, 6, 7, 8, tzinfo=dt.timezone(dt.timedelta(hours=8)))
    if body:
        message.set_content(body)
    return message


HEAD = """\
Subject: Tea
From: Li Wei <li@example.com>
To: 王芳 <wang@example.com>, tea@example.com
Date: 2024-04-05 06:07:08+08:00"""


@pytest.fixture
def load(tmp_path):
    """A function that writes a mail, or its bytes, and loads it."""

    def written_and_loaded(message: EmailMessage | bytes, *, source: bool = False) -> LoadedFile:
        path = tmp_path / "a.eml"
        path.write_bytes(message if isinstance(message, bytes) else bytes(message))
        return load_file(path, source=source)

    return written_and_loaded


def body_of(loaded: LoadedFile) -> str:
    """What stands below the lines of the head."""
    return loaded.text.partition("\n\n")[2]


def attached(loaded: LoadedFile) -> dict[str, str]:
    """The text of each attachment, by its name."""
    assert {location.kind for location in loaded.locations} <= {"attachment"}
    return {
        location.label: loaded.text[location.start : location.end] for location in loaded.locations
    }


def test_head_and_body(load):
    """The headers that matter are the first lines and the metadata; encoded words are decoded, the
    date is ISO 8601.
    """
    loaded = load(mail("Green tea\n\nis picked in April. 绿茶\n"))
    assert loaded.text == f"{HEAD}\n\nGreen tea\n\nis picked in April. 绿茶"
    assert dict(loaded.metadata) == {
        "subject": "Tea",
        "from": "Li Wei <li@example.com>",
        "to": "王芳 <wang@example.com>, tea@example.com",
        "date": "2024-04-05 06:07:08+08:00",
    }


@pytest.mark.slow
@given(
    st.text(
        st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="\x85"),
        min_size=1,
        max_size=80,
    ),
    st.text(
        st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters="\x85"), max_size=200
    ),
)
def test_any_words_survive(tmp_path_factory, subject, body):
    """Whatever letters a subject and a body hold, they come out as they were written, white space
    aside.
    """
    path = tmp_path_factory.mktemp("mail") / "a.eml"
    path.write_bytes(bytes(mail(f"{body}.\n", subject=f"{subject}.")))
    loaded = load_file(path)
    assert "".join(str(loaded.metadata["subject"]).split()) == "".join(f"{subject}.".split())
    assert "".join(body_of(loaded).split()) == "".join(f"{body}.".split())


@pytest.mark.parametrize(
    ("plain", "read"), [("plain words", "plain words"), (" \n", "the page | its cell")]
)
def test_of_alternatives_the_plain_text(load, plain, read):
    """A body that is there as plain text and as a page is read once: the text, or the page if that
    is blank.
    """
    message = mail(plain)
    message.add_alternative(
        "<table><tr><td>the page<td>its cell</table><script>no</script>", subtype="html"
    )
    assert body_of(load(message)) == read


@pytest.mark.parametrize("has_pictures", [False, True])
@pytest.mark.parametrize("source", [False, True])
def test_a_plain_text_that_refers_to_the_page(load, has_pictures, source):
    """The page is read, too, if it says much more, also as the file's own text."""
    message = mail("This mail has to be displayed as HTML.")
    message.add_alternative(f"<p>{'Oolong wants 90 degrees. ' * 9}</p>", subtype="html")
    if has_pictures:
        page = message.get_payload(1)
        page.add_related(b"\x89PNG", "image", "png", filename="logo.png", cid="<1>")
    body = body_of(load(message, source=source))
    assert body.count("Oolong wants 90 degrees.") == 9
    assert body.startswith("This mail has to be displayed as HTML.")


def test_marks_of_a_page_do_not_count_as_its_text(load):
    """A short mail with the same words as plain text and as a page is its plain text."""
    message = mail("Yes.")
    message.add_alternative(f"<p style='{'margin:0;' * 99}'>Yes.</p>", subtype="html")
    assert body_of(load(message)) == "Yes."
    assert body_of(load(message, source=True)) == "Yes."


def test_a_page_that_cannot_be_read_beside_a_plain_text(load):
    """The plain text is read, and the report says what is left out."""
    message = mail("See the page.")
    message.add_alternative(f"{'<div>' * 50_000}the page", subtype="html")
    loaded = load(message)
    assert body_of(loaded) == "See the page."
    assert "HTML body left out" in str(loaded.metadata)


def test_a_page_with_pictures(load):
    """A page whose pictures are parts beside it is read; the pictures are named, and why they are
    not read.
    """
    message = mail()
    message.set_content("<p>The page</p>", subtype="html")
    message.add_related(b"\x89PNG", "image", "png", filename="logo.png", cid="<1>")
    loaded = load(message)
    assert body_of(loaded) == "The page"
    assert loaded.metadata["attachments"] == ["logo.png"]
    assert loaded.metadata["unread_attachments"]["logo.png"].startswith(
        "No text extractor for image files"
    )


def test_text_parts_in_order(load):
    """The lines that a mailing list adds below the body are a part of their own, and are read after
    it.
    """
    message = mail("body")
    message.make_mixed()
    footer = EmailMessage()
    footer.set_content("-- \nunsubscribe")
    message.attach(footer)
    assert body_of(load(message)) == "body\n\n-- \nunsubscribe"


def test_attachments_are_read_by_their_loaders(load):
    """An attachment is read by the loader for its suffix, and is a place under its name, Chinese
    names included.
    """
    document = docx.Document()
    document.add_paragraph("Steam the leaves.")
    data = io.BytesIO()
    document.save(data)
    message = mail("see below")
    message.add_attachment(
        data.getvalue(), maintype="application", subtype="octet-stream", filename="手册.docx"
    )
    message.add_attachment("a line\n", filename="../../notes.txt")
    loaded = load(message)
    assert attached(loaded) == {"手册.docx": "Steam the leaves.", "notes.txt": "a line\n"}
    assert body_of(loaded).startswith(
        "see below\n\nAttachment: 手册.docx\nSteam the leaves.\n\nAttachment: notes.txt\n"
    )
    assert loaded.metadata["attachments"] == ["手册.docx", "notes.txt"]
    assert "unread_attachments" not in loaded.metadata


def test_what_cannot_be_read_of_a_mail_does_not_hinder_the_rest(load):
    """A broken attachment is named with what is wrong; the mail and the other attachments are
    read.
    """
    message = mail("body")
    message.add_attachment(b"no PDF", maintype="application", subtype="pdf", filename="a.pdf")
    message.add_attachment("fine", filename="b.txt")
    message.add_attachment(b"\0\1?", maintype="application", subtype="octet-stream")
    loaded = load(message)
    assert attached(loaded).keys() == {"b.txt"}
    assert loaded.metadata["attachments"] == ["a.pdf", "b.txt", "attachment 3"]
    assert {
        name: why.partition(" (")[0] for name, why in loaded.metadata["unread_attachments"].items()
    } == {
        "a.pdf": "PdfLoader could not read the file",
        "attachment 3": "No loader reads files without suffix. Its content is of no known format. "
        f"{len(loaders)} suffixes are read, see lazyrag.loaders.loaders. "
        "Add a reader with Document.add_reader or @register_loader.",
    }


def test_a_mail_in_a_mail(load):
    """A forwarded mail is an attachment that is read as a mail, its own attachments as well."""
    inner = mail("inner body", subject="Inner")
    inner.add_attachment("innermost", filename="c.txt")
    message = mail("outer body")
    message.add_attachment(inner)
    found = attached(load(message))
    assert list(found) == ["attachment 1.eml", "attachment 1.eml > c.txt"]
    text = found["attachment 1.eml"]
    assert found["attachment 1.eml > c.txt"] == "innermost\n"
    assert text.startswith("Subject: Inner\n")
    assert text.rstrip().endswith("\n\ninner body\n\nAttachment: c.txt\ninnermost")


def test_own_loaders_read_attachments(load):
    """A loader that a user registers is used for attachments, too."""

    @register_loader(".own")
    class Own:
        """Says how long the file is."""

        def load(self, path):
            """Its length."""
            return f"{path.stat().st_size} bytes"

    message = mail("body")
    message.add_attachment(
        b"12345", maintype="application", subtype="octet-stream", filename="x.OWN"
    )
    assert attached(load(message)) == {"x.OWN": "5 bytes"}


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ('text/plain; charset="gb2312"', "绿茶在四月采摘。".encode("gb18030")),
        ('text/plain; charset="no-such-thing"', "绿茶在四月采摘。".encode()),
        ('text/plain; charset="us-ascii"', "绿茶在四月采摘。".encode()),
        ("text/plain", "绿茶在四月采摘。".encode("gb18030")),
        ("multipart/mixed", "绿茶在四月采摘。".encode()),
        ('text/html; charset="big5"', "<p>绿茶在四月采摘。</p>".encode()),
    ],
    ids=["right", "unknown", "wrong", "unsaid", "no parts", "page"],
)
def test_declared_encodings_are_not_believed(load, header, body):
    """A body is read whether its encoding is right, wrong, unknown or unsaid."""
    data = (
        f"Subject: Tea\nContent-Type: {header}\nContent-Transfer-Encoding: 8bit\n\n".encode() + body
    )
    assert body_of(load(data)) == "绿茶在四月采摘。"


def test_headers_in_an_encoding_of_their_own(load):
    """A subject of bytes that no header may hold is read all the same."""
    assert (
        load("Subject: 绿茶在四月采摘\n\nbody".encode("gb18030")).metadata["subject"]
        == "绿茶在四月采摘"
    )
    assert load("Subject: 绿茶在四月采摘\n\nbody".encode()).metadata["subject"] == "绿茶在四月采摘"


def test_a_date_that_is_none(load):
    """A date that cannot be understood stays as it is written."""
    assert load(b"Subject: Tea\nDate: some day\n\nbody").metadata["date"] == "some day"


@pytest.mark.parametrize("sender", ["li@", "Li <", "all: Li <li@example.com>, x:y;"])
def test_an_address_that_is_none(load, sender):
    """A broken address costs nothing else of the mail."""
    loaded = load(f"Subject: Tea\nFrom: {sender}\n\nbody".encode())
    assert loaded.text.startswith("Subject: Tea\nFrom: ")
    assert body_of(loaded) == "body"


@pytest.mark.parametrize("data", [b"\n\n", b"only text\n", b"X-Other: 1\n\nbody"], ids=range(3))
def test_what_is_no_mail(load, data):
    """A file without any header of a mail is reported as none."""
    with pytest.raises(LoadError, match="not a mail"):
        load(data)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "fake-email-attachment.eml",
            ["Hello!", "Little to no content", "Hey this is a fake attachment!"],
        ),
        ("fake-email-b64.eml", ["Roses are red", "Violets are blue"]),
        ("fake-email-utf-16.eml", ["Roses are red", "Violets are blue"]),
        ("mime-html-only.eml", ["just or sarcasm in text emails.", "This is a text/html part."]),
    ],
)
def test_real_mails(name, words):
    """Each kind of real mail gives its words, once."""
    text = load_file(shared("data", "docs", name)).text
    assert {word: text.count(word) for word in words} == dict.fromkeys(words, 1)


def boxed(path, *messages: EmailMessage) -> None:
    """Write a mailbox with the standard library."""
    box = mailbox.mbox(path)
    for message in messages:
        box.add(message)
    box.close()


def test_a_mailbox(tmp_path):
    """Each mail of a mailbox is a place, with its head, its body and its attachments."""
    with_attachment = mail("two\n", subject="Two")
    with_attachment.add_attachment("attached\n", filename="a.txt")
    boxed(tmp_path / "a.mbox", mail("one\n\nFrom here on, green tea.\n"), with_attachment)
    before = (tmp_path / "a.mbox").read_bytes()
    assert b">From here" in before
    loaded = load_file(tmp_path / "a.mbox")
    labels = [("message", "1"), ("message", "2"), ("attachment", "2 > a.txt")]
    assert [(location.kind, location.label) for location in loaded.locations] == labels
    first, second, inner = (
        loaded.text[location.start : location.end] for location in loaded.locations
    )
    assert inner.strip() == "attached"
    assert first == f"{HEAD}\n\none\n\nFrom here on, green tea."
    assert re.fullmatch(r"(?s)Subject: Two\n.*\n\ntwo\n\nAttachment: a\.txt\nattached\s*", second)
    assert dict(loaded.metadata) == {"messages": 2}
    assert (tmp_path / "a.mbox").read_bytes() == before


def test_a_line_that_looks_like_a_new_mail(tmp_path):
    """A line that begins with From and is not marked ends the mail before it, as everywhere; its
    text is kept.
    """
    (tmp_path / "a.mbox").write_bytes(b"From x\nSubject: One\n\nbody\n\nFrom here on\nmore text\n")
    assert load_file(tmp_path / "a.mbox").text == "Subject: One\n\nbody\n\nmore text"


def test_a_node_of_a_mailbox_says_its_mail(tmp_path):
    """A hit in a mailbox names the mail that it stands in."""
    boxed(tmp_path / "a.mbox", mail("green"), mail("black"))
    docs = Document(tmp_path)
    docs.create_node_group("line", transform=lambda text: text.splitlines())
    assert {node.text: node.location for node in docs.get_nodes("line")}["black"] == "message 2"


def test_what_is_no_mailbox(tmp_path):
    """A file without a line that begins a mail is reported."""
    (tmp_path / "a.mbox").write_bytes(b"only text\n")
    with pytest.raises(LoadError, match="no mailbox"):
        load_file(tmp_path / "a.mbox")


@pytest.mark.slow
@pytest.mark.parametrize("header", ["To", "Cc", "Content-Type"])
@pytest.mark.parametrize("words", ['"a b (c ', "((((", "=?utf-8?q?x?= , "])
def test_a_header_without_end_is_read_in_time(load, header, words):
    """The standard library takes the square of its length; it is kept as it stands, and the body is
    there.
    """
    loaded = load(f"Subject: Tea\n{header}: {words * 40_000}\n\nGreen tea.".encode())
    assert loaded.text.endswith("Green tea.")
    assert loaded.metadata["subject"] == "Tea"


def test_a_byte_order_mark_of_an_editor(load):
    """A mail that an editor saved has its headers."""
    loaded = load("\ufeffSubject: Offer\nFrom: a@x.y\n\nIt is 42.".encode())
    assert (loaded.metadata["subject"], body_of(loaded)) == ("Offer", "It is 42.")
