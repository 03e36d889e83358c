"""Files that are made to harm, built on the fly, and the peak memory of a process that loads
one.
"""

from __future__ import annotations

import base64
import functools
import io
import itertools
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path

import pypdf

from tests.interpreter import python
from tests.model_server import RawServer, event, head

MEBIBYTE = 1 << 20
PEAK_MEBIBYTES = 300
"""Memory that a process may take that loads any of these, its libraries included."""


def zipped(entries: dict[str, bytes]) -> bytes:
    """A zip file of some entries."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


def long_pdf(pages: int, contents: Sequence[bytes] = (), filters: bytes = b"/FlateDecode") -> bytes:
    """A PDF of so many pages, which share the same packed contents."""
    kids = b" ".join(b"%d 0 R" % (number + 3) for number in range(pages))
    streams = b" ".join(b"%d 0 R" % (number + 3 + pages) for number in range(len(contents)))
    font = b"<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents[%s]/Resources%s>>" % (
        streams,
        font,
    )
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (pages, kids),
    ]
    objects += [page] * pages
    objects += [
        b"<</Length %d/Filter %s>>stream\n%s\nendstream" % (len(one), filters, one)
        for one in contents
    ]
    return numbered(objects)


def numbered(objects: Sequence[bytes]) -> bytes:
    """A PDF of objects, numbered from 1; the first is its catalogue."""
    parts = [b"%PDF-1.4\n"]
    parts += [b"%d 0 obj%sendobj\n" % (number, one) for number, one in enumerate(objects, start=1)]
    offsets = itertools.accumulate(map(len, parts[:-1]))
    data = b"".join(parts)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    end = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(data))
    return data + head + table + end


def endless_form() -> bytes:
    """A small PDF whose form draws itself twice, which expands without end."""
    form = b"<</XObject<</F 5 0 R>>>>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources%s>>" % form,
        b"<</Length 5>>stream\n/F Do\nendstream",
        b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources%s/Length 11>>stream\n/F Do /F Do\nendstream"
        % form,
    ]
    return numbered(objects)


def costly_form() -> bytes:
    """A small PDF that draws a form of many operators, of which nothing stays, a thousand times."""
    content, states = b"/F Do " * 1000, zlib.compress(b"q Q " * 2_000_000)
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Filter/FlateDecode/Length %d" % len(states)
    page = b"/Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>>>"
    return numbered(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
            b"<<%s>>" % page,
            b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
            b"<<%s>>stream\n%s\nendstream" % (form, states),
        ]
    )


def cyclic_ole() -> bytes:
    """A compound file whose chains of sectors point to themselves."""
    header = bytearray(512)
    header[:8] = bytes.fromhex("d0cf11e0a1b11ae1")
    header[24:34] = bytes.fromhex("3e000300feff09000600")
    header[44:48] = (1).to_bytes(4, "little")  # one sector of the table
    header[48:52] = (1).to_bytes(4, "little")  # the directory begins in sector 1
    header[56:60] = (4096).to_bytes(4, "little")
    header[60:64] = header[68:72] = (0xFFFFFFFE).to_bytes(4, "little")
    header[76:512] = b"\xff" * 436
    header[76:80] = (0).to_bytes(4, "little")
    table = b"".join(number.to_bytes(4, "little") for number in (0xFFFFFFFD, 1, 2)) + b"\xff" * 500
    entry = bytearray(128)
    name = "Workbook".encode("utf-16-le")
    entry[: len(name)] = name
    entry[64:68] = (len(name) + 2).to_bytes(2, "little") + b"\x02\x01"
    entry[68:80] = b"\xff" * 12
    entry[116:124] = (2).to_bytes(4, "little") + (1 << 30).to_bytes(4, "little")
    root = bytearray(entry)
    root[:22] = "Root Entry\0".encode("utf-16-le")
    root[64:68] = (22).to_bytes(2, "little") + b"\x05\x01"
    root[76:80] = (1).to_bytes(4, "little")
    return bytes(header) + table + bytes(root) + bytes(entry) + bytes(256) + bytes(512)


def laughs(levels: int = 12) -> bytes:
    """A billion laughs and more, in XML."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, levels))
    return f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e0 "tea">{entities}]><r>&e{levels - 1};</r>'.encode()


def word_with(part: bytes) -> bytes:
    """A Word document whose body is that."""
    types = b'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
    kind = b"http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    relations = (
        b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        b'<Relationship Id="r" Type="%s" Target="word/document.xml"/></Relationships>' % kind
    )
    return zipped(
        {"[Content_Types].xml": types, "_rels/.rels": relations, "word/document.xml": part}
    )


def strings(count: int) -> bytes:
    """The packed content of a page that shows so many strings."""
    return zlib.compress(b"BT /F 9 Tf " + b"(a) Tj " * count + b"ET")


def predicted(count: int) -> bytes:
    """The packed content of a page that draws so many rectangles, each as its difference to the one
    before.
    """
    return zlib.compress(b"\x020 0 1 1 re f " + (b"\x02" + bytes(13)) * count)


def _with_flaw(old: bytes, new: bytes) -> bytes:
    """A PDF of many strings, whose stream is described in a way that only lenient readers
    accept.
    """
    return long_pdf(1, [strings(2_000_000)]).replace(old, new, 1)


def packed(size: int) -> bytes:
    """So many MiB of blanks, deflated, without deflating them all."""
    deflating = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    blanks = b" " * MEBIBYTE
    block = deflating.compress(blanks) + deflating.flush(zlib.Z_FULL_FLUSH)
    checksum = functools.reduce(lambda value, _: zlib.adler32(blanks, value), range(size), 1)
    return b"\x78\xda" + block * size + b"\x03\x00" + checksum.to_bytes(4, "big")


def lzw(blocks: int) -> bytes:
    """So many thousand operators as LZW without gain, deflated."""
    codes = "".join(f"{code:09b}" for code in (256, *b" q" * 126)) * 8
    return zlib.compress(int(codes, 2).to_bytes(len(codes) // 8) * blocks + b"\x80\x80")


def encrypted(pdf: bytes, algorithm: str) -> bytes:
    """A PDF, encrypted without a password."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf))
    writer.encrypt("", algorithm=algorithm)
    writer.write(data := io.BytesIO())
    return data.getvalue()


def packed_pdf(content: bytes, times: int, pages: int) -> bytes:
    """A PDF whose objects are in an object stream; its pages show the same content so many times
    each.
    """
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents[%s]>>" % (b"4 0 R " * times)
    kids = b"<</Type/Pages/Count %d/Kids[%s]>>" % (pages, b"3 0 R " * pages)
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", kids, page]
    starts = [0, *itertools.accumulate(map(len, objects))]
    header = b" ".join(b"%d %d" % pair for pair in zip((1, 2, 3), starts, strict=False)) + b" "
    inner = zlib.compress(header + b"".join(objects))
    stream = b"%d 0 obj<</Length %d/Filter/FlateDecode%s>>stream\n%s\nendstream endobj\n"
    data = b"%PDF-1.5\n" + stream % (4, len(content), b"", content)
    offset = len(data)
    data += stream % (5, len(inner), b"/Type/ObjStm/N 3/First %d" % len(header), inner)
    rows = [
        (0, 0, 0),
        (2, 5, 0),
        (2, 5, 1),
        (2, 5, 2),
        (1, 9, 0),
        (1, offset, 0),
        (1, len(data), 0),
    ]
    table = zlib.compress(
        b"".join(bytes([kind]) + at.to_bytes(4, "big") + bytes([index]) for kind, at, index in rows)
    )
    end = b"startxref\n%d\n%%%%EOF" % len(data)
    return data + stream % (6, len(table), b"/Type/XRef/Size 7/Root 1 0 R/W[1 4 1]", table) + end


def many_mails(mails: int, attachments: int) -> bytes:
    """A mail with so many mails in it, each with so many small attachments."""
    outer = EmailMessage()
    outer["Subject"] = "many"
    outer.set_content("See below.")
    inner = EmailMessage()
    inner["Subject"] = "inner"
    inner.set_content("tea")
    for number in range(attachments):
        inner.add_attachment(f"{number}", filename=f"{number}.txt")
    for _ in range(mails):
        outer.add_attachment(inner)
    return outer.as_bytes()


def many_members(archives: int, members: int) -> bytes:
    """An archive of so many archives, each of so many small files."""
    inner = zipped({f"{number}.txt": b"tea" for number in range(members)})
    return zipped({f"{number}.zip": inner for number in range(archives)})


BOMB = bytes(64 * MEBIBYTE)
HOSTILE = {
    "bomb.zip": (lambda: zipped({"a.txt": BOMB}), "packed like a zip bomb"),
    "bomb.docx": (lambda: word_with(BOMB), "packed like a zip bomb"),
    "nested.zip": (
        lambda: zipped({"inner.zip": zipped({"a.txt": BOMB})}),
        "packed like a zip bomb",
    ),
    "laughs.xml": (laughs, "declares an entity"),
    "laughs.docx": (lambda: word_with(laughs()), "."),
    "outside.xml": (
        lambda: b'<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/passwd">]><r>&e;</r>',
        "declares an entity",
    ),
    "deep.json": (lambda: b"[" * 100_000, "nested deeper"),
    "deep.yaml": (lambda: b"[" * 100_000, "."),
    "deep.xml": (lambda: b"<a>" * 100_000, "nested deeper"),
    "long.pdf": (lambda: long_pdf(10_000), "10,000 pages; the limit pages=5,000 is exceeded"),
    "strings.pdf": (lambda: long_pdf(1, [strings(3_000_000)]), "took more than 24"),
    "split.pdf": (lambda: long_pdf(1, [strings(250_000)] * 12), "took more than 24"),
    "flate.pdf": (
        lambda: long_pdf(1, [zlib.compress(packed(256))], b"[/FlateDecode/FlateDecode]"),
        "took more than 24",
    ),
    "repeated.pdf": (
        lambda: long_pdf(12, [strings(250_000)]).replace(
            b"[15 0 R]", b"[%s]" % (b"15 0 R " * 10), 1
        ),
        "took more than 24",
    ),
    "repeated-by-packed-object.pdf": (
        lambda: packed_pdf(strings(250_000), 10, 12),
        "took more than 24",
    ),
    "plain.pdf": (
        lambda: long_pdf(1, [b"(a) Tj\n" * 1_000_000], b"null").replace(b"/Filter null", b""),
        "no text layer",
    ),
    "picture.pdf": (
        lambda: long_pdf(
            1, [zlib.compress(b"(a) Tj\n" * 1_000_000)], b"/FlateDecode/Subtype/Image"
        ),
        "no text layer",
    ),
    "flate85.pdf": (
        lambda: long_pdf(1, [base64.a85encode(packed(100)) + b"~>"], b"[/A85/Fl]"),
        ".",
    ),
    "hex.pdf": (
        lambda: long_pdf(
            1, [zlib.compress((b"(a) Tj\n" * 1_000_000).hex().encode() + b">")], b"[/Fl/AHx]"
        ),
        "no text layer",
    ),
    "lzw.pdf": (lambda: long_pdf(1, [lzw(700)], b"[/FlateDecode/LZWDecode]"), "no text layer"),
    "runs.pdf": (
        lambda: long_pdf(1, [zlib.compress(b"\x06(a) Tj\n" * 1_000_000 + b"\x80")], b"[/Fl/RL]"),
        "no text layer",
    ),
    "predicted.pdf": (
        lambda: long_pdf(
            1,
            [predicted(2_000_000)],
            b"/FlateDecode/DecodeParms<</Predictor 12/Columns 13>>",
        ),
        "took more than 24",
    ),
    **{
        f"{name}.pdf": (functools.partial(_with_flaw, *flaw), "took more than 24")
        for name, flaw in {
            "short-length": (b"/Length", b"/Length 10/X "),
            "no-length": (b"/Length", b"/Length 0/X "),
            "nested-length": (b"<</Length", b"<</X<</Length 5>>/Length"),
            "carriage-return": (b">>stream\n", b">>stream\r"),
            "blank": (b">>stream\n", b">>stream \n"),
            "comment": (b">>stream\n", b">>stream%\n"),
            "other-filter": (b"/Filter ", b"/X<</Filter/AHx>>/Filter "),
            "escaped-filter": (b"/Filter /Flate", b"/F#69lter /Fl#61te"),
            "far-filter": (b">>stream", b"/X(%s)>>stream" % (b"a" * 9000)),
            "second-stream": (b">>stream\n", b">>stream 9 0 obj<</Length 0>>stream\n"),
        }.items()
    },
    "flawed85.pdf": (
        lambda: long_pdf(1, [base64.a85encode(strings(2_000_000)) + b"uuuuu~>"], b"[/A85/Fl]"),
        "took more than 24",
    ),
    "flawed-hex.pdf": (
        lambda: long_pdf(1, [b"x" + strings(2_000_000).hex().encode() + b">"], b"[/AHx/Fl]"),
        "took more than 24",
    ),
    "predicted-elsewhere.pdf": (
        lambda: long_pdf(
            1,
            [predicted(2_000_000), b""],
            b"/FlateDecode/DecodeParms 5 0 R",
        ).replace(
            b"<</Length 0/Filter /FlateDecode/DecodeParms 5 0 R>>stream\n\nendstream",
            b"<</Predictor 12/Columns 13>>".ljust(69),
        ),
        "took more than 24",
    ),
    "rc4.pdf": (
        lambda: encrypted(long_pdf(1, [strings(3_000_000)]), "RC4-128"),
        "took more than 24",
    ),
    "aes.pdf": (
        lambda: encrypted(
            long_pdf(1, [zlib.compress(packed(256))], b"[/FlateDecode/FlateDecode]"), "AES-256"
        ),
        "took more than 24",
    ),
    "form.pdf": (endless_form, "took more than 24"),
    "cyclic.xls": (cyclic_ole, "."),
    "cyclic_without_suffix": (cyclic_ole, "."),
}
"""Files that are made to harm, and words of what is said of each."""

_PROGRAM = """
import json, pathlib, re, resource, sys, time
from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from lazyrag.loaders.process import end_all
began = time.monotonic()
try:
    found = f"{len(load_file(sys.argv[1]).text):,} characters"
except LoadError as exc:
    found = f"{type(exc).__name__}: {exc}"
end_all()
if sys.platform == "linux":  # ru_maxrss would count the parent, as it was when it forked
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
peak = max(peak, children / (1024 if sys.platform == "linux" else 1 << 20))
print(json.dumps([peak, time.monotonic() - began, found]))
"""


_CALLS = """
import sys
from lazyrag import HttpChatModel, HttpEmbedder, HttpRerankModel
def call(kind, url):
    if kind == "chat":
        return HttpChatModel(url, "m", trust_env=False).chat("tea?").text
    if kind == "stream":
        return "".join(delta.text for delta in HttpChatModel(url, "m", trust_env=False).stream("tea?"))
    if kind == "embed":
        return str(HttpEmbedder(url, "m", trust_env=False).embed(["tea"] * 64))
    return str(HttpRerankModel(url, "m", trust_env=False)("tea?", ["tea"]))
"""


def peak_of(path: Path) -> tuple[float, float, str]:
    """Load a file in a process of its own: its peak memory in MiB, its seconds, and the error or
    what was read.
    """
    return _measured(_PROGRAM, str(path))


def peak_of_answer(kind: str, url: str) -> tuple[float, float, str]:
    """Call a model in a process of its own, see `peak_of`."""
    call = "call(*sys.argv[1:])"
    program = _CALLS + _PROGRAM.replace("load_file(sys.argv[1]).text", call).replace(
        "LoadError as", "Exception as"
    )
    return _measured(program, kind, url)


@contextmanager
def endless_server() -> Iterator[str]:
    """The URL of a server whose answers never end."""

    def answer(connection):
        start, part = (
            head("text/event-stream"),
            event({"choices": [{"delta": {"content": "tea " * 1000}}]}) * 16,
        )
        if b'"stream":true' not in server.requests[-1][1]:
            start, part = head(), b"[" + b" " * (1 << 16)
        connection.sendall(start)
        while True:
            connection.sendall(part)

    with RawServer(answer) as server:
        yield server.url


def _measured(program: str, *arguments: str) -> tuple[float, float, str]:
    done = python("-c", program, *arguments)
    assert done.returncode == 0, done.stderr
    peak, seconds, found = json.loads(done.stdout)
    return peak, seconds, found
