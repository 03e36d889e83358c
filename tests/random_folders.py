"""Random folders, for each of which a plan must say what the sync then reports, also after changes.

python tests/random_folders.py FIRST COUNT [MISSING_PACKAGE ...]
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

MISSING = sys.argv[3:] if __name__ == "__main__" else []
sys.modules.update(dict.fromkeys(MISSING))  # None: not to be found

from lazyrag import Document, IngestionWarning  # noqa: E402  after the packages are gone
from lazyrag.errors import IngestionError  # noqa: E402

COMPARED = ("added", "updated", "touched", "unchanged", "deleted", "moved", "withheld", "skipped")


def _zip(members: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def _pdf(drawn: str) -> bytes:
    """A PDF of one page without a table of its objects: "" for a page with nothing but a
    picture.
    """
    content = (
        f"BT /F1 12 Tf 72 700 Td ({drawn}) Tj ET".encode() if drawn else b"100 100 200 200 re f"
    )
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    objects = b"".join(
        b"%d 0 obj%s endobj\n" % (number, part) for number, part in enumerate(parts, start=1)
    )
    return b"%PDF-1.4\n" + objects + b"trailer<</Root 1 0 R/Size 6>>\n%%EOF"


_SHEET = (
    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    '<row r="1"><c r="A1" t="inlineStr"><is><t>tea</t></is></c></row></sheetData></worksheet>'
)
_OFFICE = "http://schemas.openxmlformats.org"
_XLSX = _zip(
    {
        "[Content_Types].xml": f'<Types xmlns="{_OFFICE}/package/2006/content-types"><Default Extension="xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        'spreadsheetml.sheet.main+xml"/></Types>'.encode(),
        "_rels/.rels": f'<Relationships xmlns="{_OFFICE}/package/2006/relationships"><Relationship Id="r1" '
        f'Type="{_OFFICE}/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/>'
        "</Relationships>".encode(),
        "xl/workbook.xml": f'<workbook xmlns="{_OFFICE}/spreadsheetml/2006/main" '
        f'xmlns:r="{_OFFICE}/officeDocument/2006/relationships"><sheets><sheet name="teas" sheetId="1" r:id="r1"/>'
        "</sheets></workbook>".encode(),
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_OFFICE}/package/2006/relationships"><Relationship '
        f'Id="r1" Type="{_OFFICE}/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/>'
        "</Relationships>".encode(),
        "xl/worksheets/sheet1.xml": _SHEET.encode(),
    }
)
_OLE = bytes.fromhex("d0cf11e0a1b11ae1")

MAKERS: dict[str, Callable[[random.Random], bytes]] = {
    "a.txt": lambda draw: f"green tea {draw.random()}".encode(),
    "b.md": lambda draw: f"# Tea\n\nWater of {draw.randrange(99)} degrees".encode(),
    "c.rst": lambda draw: f"Tea\n===\n\n{draw.random()}".encode(),
    "d.py": lambda draw: f"x = {draw.random()}".encode(),
    "e.csv": lambda draw: f"tea,price\ngreen,{draw.randrange(99)}".encode(),
    "f.yaml": lambda draw: f"tea: {draw.random()}".encode(),
    "broken.yml": lambda _: b"a: [1\n: :",
    "g.json": lambda draw: json.dumps({"tea": draw.random()}).encode(),
    "broken.json": lambda _: b'{"tea": ',
    "nothing.json": lambda _: b"{}",
    "h.html": lambda draw: f"<p>tea {draw.random()}</p>".encode(),
    "blank.html": lambda _: b" \n",
    "i.xml": lambda draw: f"<tea>{draw.random()}</tea>".encode(),
    "broken.xml": lambda _: b"<tea>",
    "j.eml": lambda draw: f"Subject: tea {draw.random()}\nFrom: a@b.c\n\nbody".encode(),
    "k.rtf": lambda draw: b"{\\rtf1 tea %d}" % draw.randrange(99),
    "l.ipynb": lambda _: b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": ["tea"]}]}',
    "m.pdf": lambda draw: _pdf(f"tea {draw.randrange(99)}"),
    "scan.pdf": lambda _: _pdf(""),
    "cut.pdf": lambda _: _pdf("tea")[:80],
    "n.xlsx": lambda _: _XLSX,
    "cut.xlsx": lambda _: _XLSX[:-60],
    "o.xls": lambda draw: _OLE + draw.randbytes(600),
    "p.msg": lambda draw: _OLE + draw.randbytes(600),
    "q.docx": lambda _: _zip({"word/document.xml": b"<w/>"}),
    "r.zip": lambda draw: _zip({"in.txt": f"tea {draw.random()}".encode(), "in.bin": b"\0\1\2"}),
    "binaries.zip": lambda _: _zip({"in.bin": b"\0\1\2", "in.gz": b"\x1f\x8b\x08\0\0\0"}),
    "s.png": lambda draw: b"\x89PNG\r\n\x1a\n\0" + draw.randbytes(9),
    "t.mp3": lambda _: b"ID3\x03\0\0\0",
    "unknown.bin": lambda draw: b"\0" + draw.randbytes(draw.randrange(1, 300)),
    "no_suffix": lambda draw: b"\0\xff" + draw.randbytes(90),
    "README": lambda draw: f"tea {draw.random()}".encode(),
    "packed.gz": lambda draw: b"\x1f\x8b\x08\0\0\0" + draw.randbytes(30),
    "empty.txt": lambda _: b"",
    "empty.pdf": lambda _: b"",
    "empty": lambda _: b"",
    "blank.txt": lambda _: b" \n\t",
    "rubbish.txt": lambda draw: b"\0" * 30 + draw.randbytes(300),
    "big5.txt": lambda _: "綠茶是未經發酵的茶葉".encode("big5"),
    "~$lock.docx": lambda _: b"x",
    ".hidden": lambda _: b"x",
    "x.min.js": lambda _: b"x",
    "ignored.log": lambda _: b"x",
}
_FOLDERS = ("", "", "deep/er/", ".git/", "node_modules/", "茶/")


def make_folder(place: Path, draw: random.Random) -> None:
    """Fill a folder."""
    outside = place.parent / "outside.txt"
    outside.write_text("outside", encoding="utf-8")
    for name in draw.sample(sorted(MAKERS), draw.randrange(1, 18)):
        _write(place / f"{draw.choice(_FOLDERS)}{draw.choice(['', 'x'])}{name}", MAKERS[name](draw))
    if draw.random() < 0.4:
        _write(place / ".lazyragignore", b"*.log\nno pattern [\n!x.log\n")
    for name, target in (
        ("link.txt", "a.txt"),
        ("out.txt", str(outside)),
        ("gone.txt", "nothing"),
        ("folder", "deep"),
    ):
        if draw.random() < 0.3 and not os.path.lexists(place / name):
            (place / name).symlink_to(target)


def change_folder(place: Path, draw: random.Random) -> None:
    """Change, rename, empty, remove, date and add files."""
    files = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    for path in files:
        chance = draw.random()
        if chance < 0.1:
            path.write_bytes(b"")
        elif chance < 0.2:
            path.write_bytes(MAKERS[draw.choice(sorted(MAKERS))](draw))
        elif chance < 0.3:
            path.rename(path.with_name(f"new {path.name}"))
        elif chance < 0.35:
            path.rename(path.with_suffix(draw.choice([".txt", ".png", ".json", ""])))
        elif chance < 0.4:
            path.unlink()
        elif chance < 0.45:
            os.utime(path, (1e9, 1e9))
    if draw.random() < 0.5:
        make_folder(place, draw)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.write_bytes(data)


def differences(seed: int) -> list[str]:
    """What a plan said otherwise than the report of the sync after it; after the first, two
    changes, and none.
    """
    draw = random.Random(seed)
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        place, store = Path(folder, "files"), Path(folder, "store.db")
        place.mkdir()
        make_folder(place, draw)
        for time in ("first", "changed", "changed again", "unchanged"):
            if time.startswith("changed"):
                change_folder(place, draw)
            found += [f"seed {seed}, {time}: {one}" for one in _compare(place, store)]
    return found


def _compare(place: Path, store: Path) -> list[str]:
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IngestionWarning)
        with Document(place, store_conf=conf) as docs:
            planned = docs.plan().files
            try:
                report = docs.sync()
            except IngestionError:  # every file failed
                report = docs.last_report
            expected = docs.sync(dry_run=True)
            failed = docs.status().failed
    pairs = [(name, getattr(planned, name), getattr(report, name)) for name in COMPARED]
    pairs.append(
        ("failed", [str(one) for one in planned.failed], [str(one) for one in report.failed])
    )
    pairs.append(("skipped afterwards", expected.skipped, report.skipped))
    pairs.append(("status", failed, tuple((one.path, one.stage) for one in report.failed)))
    return [f"{name}: planned {one}, done {two}" for name, one, two in pairs if one != two]


def main() -> int:
    """Print the differences; 1 if there are some."""
    first, count = map(int, sys.argv[1:3])
    found = [one for seed in range(first, first + count) for one in differences(seed)]
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
