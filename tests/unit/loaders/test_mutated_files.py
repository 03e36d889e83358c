"""Loaders on broken and hostile files: real ones, changed at random. Each ends as a text or as one
LoadError.
"""

from __future__ import annotations

import datetime as dt
import io
import random
import re
import resource
import signal
import socket
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from lazyrag.errors import LoadError
from lazyrag.loaders import load_file, loaders
from tests.binary_workbooks import binary_workbook
from tests.format_cases import CASES
from tests.shared import SHARED, is_required, shared

CORPUS = Path(__file__).resolve().parents[3] / "cookbook" / "corpus"
PATIENCE_S = 30
MEMORY_MIB = 400  # by which one loader may raise the peak of the process
LARGEST = 300_000  # bytes of a seed: more would be the same again, and slower

SOURCE = "def tea(leaves):\n    '''茶'''\n    return [leaf for leaf in leaves]\n\n\nclass Cup:\n    size = 3\n"
RECORDS = '{"tea": "龙井", "heat": [80, 8.5e1, null, true], "of": {"by": "Lu Yu"}}'
MAIL = (
    "From: a@example.com\nTo: =?utf-8?b?6Iy2?= <b@example.com>\nSubject: Tea\nDate: Mon, 2 Nov 2026 10:00:00 +0000\n"
    'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="x"\n\n--x\nContent-Type: text/html; charset=gbk\n\n'
    "<p>Tea</p>\n--x\nContent-Type: text/csv\nContent-Disposition: attachment; filename=a.csv\n"
    "Content-Transfer-Encoding: base64\n\ndGVhO3ByaWNlClNlbmNoYTsxMgo=\n--x--\n"
)
WRITTEN = {
    ".csv": 'tea;price\n"Sen;cha";12,50\n龙井;"30\n31"\n',
    ".tsv": "tea\tprice\nSencha\t12.5\n",
    ".json": f"[{RECORDS}, {RECORDS}]",
    ".jsonl": f"{RECORDS}\n{RECORDS}\n",
    ".ndjson": f"{RECORDS}\n",
    ".yaml": "tea: &t\n  - 龙井\n  - *t\nheat: 80\n---\n? [a, b]\n: |\n  text\n",
    ".yml": "a: {b: [1, 2]}\n",
    ".xml": '<?xml version="1.0"?><a x="1"><b>茶</b><!-- c --><![CDATA[<d>]]><e:f xmlns:e="u">g</e:f></a>',
    ".ipynb": '{"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "source": ["1 + 1"], '
    '"outputs": [{"output_type": "stream", "text": ["2"]}]}, {"cell_type": "markdown", "source": "# Tea"}]}',
    ".rst": "Tea\n===\n\n.. code:: python\n\n   x\n\nWater\n-----\n\n80 degrees\n",
    ".org": "#+TITLE: Tea\n* TODO [#A] *Hot* tea :a:b:\n:PROPERTIES:\n:ID: 1\n:END:\n[[http://a][b]] =c= [fn:1]\n"
    "| a | b |\n|---+---|\n| 1 | 2 |\n#+BEGIN_SRC python\n  x = 1\n#+END_SRC\n# no\n** 茶\n",
    ".adoc": "= Tea\nLu Yu <a@b.c>\nv1, 2024-01-05\n:a: b\n\n== *Hot* tea {a}\n\n<<x,y>> http://a[b] image:c.png[d]\n\n"
    '[cols="1,2"]\n|===\n|a |b\n\n2+|1\n.2+|2 |3\n|===\n\n----\n  x\n----\n\n////\nno\n////\n\n. 茶\n'
    ".. a\n\nOld\n---\n",
    ".tex": "\\title{Tea}\\newcommand{\\a}[2][x]{#1 \\b{#2}}\n\\begin{document}\\maketitle\n"
    "\\section[a]{Hot \\emph{tea}}% no\n"
    '\\a{1} $\\frac{a}{b}^{2}_{\\alpha}$ \\footnote{a \\cite{b}} \\verb|c| Gr\\"un \\c{c}\n\\begin{enumerate}\\item a\n'
    "\\end{enumerate}\n\\begin{tabular}{ll}a & b \\\\ \\multicolumn{2}{c}{d} \\end{tabular}\n"
    "\\begin{verbatim}\n  x\n\\end{verbatim}\n\\begin{align}a &= b\\end{align} 茶\\end{document}\n",
    ".eml": MAIL,
    ".srt": "1\n00:00:01,000 --> 00:00:02,500\n<i>Tea</i> & water\n\n2\n00:00:03 --> 00:00:04\n龙井\n",
    ".vtt": "WEBVTT\n\nNOTE tea\n\none\n00:01.000 --> 00:02.500 line:0\n<v Ann>Tea &amp; water\n",
    ".mbox": f"From a@example.com Mon Nov  2 10:00:00 2026\n{MAIL}\nFrom b\n{MAIL}",
    ".md": "# Tea\n\n```\n# no\n```\n\n| a | b |\n|---|---|\n",
    ".html": "<html><head><meta charset=gbk><title>t</title></head><body><h1>Tea<table><tr><td>1<td>2</table>",
    ".rtf": "{\\rtf1\\ansi{\\fonttbl{\\f1\\fcharset134 S;}}{\\info{\\title T}}{\\f1\\'c2\\'cc}"
    "\\u-10179?\\u-9099?\\par\\trowd \\intbl a\\cell\\row{\\pict\\bin3 abc}{\\footnote b}\\pard\\outlinelevel0 c\\par}",
    ".py": SOURCE,
    ".c": SOURCE,
    ".doc": "{\\rtf1 tea}",
    ".png": "\x89PNG",
    ".mp3": "ID3",
    ".mp4": "ftypisom",
}
"""Texts to begin with, for what no real file is at hand, or what real ones lack."""

SCRAPS = [
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b"<", b"<!--",
    b'<!DOCTYPE a [<!ENTITY b "c">]>', b"&b;", b"&#0;", b"[" * 3000, b'{"a":' * 3000, b"<a>" * 3000, b"(" * 400,
    b">>", b"-1", b"99999999999999999999", b"1e999", b"NaN", b"\r", b"\n\n", b"*a", b"&a", b"---\n", b"From ",
    b"boundary=", b"=?utf-8?q?=00?=", b"endobj", b"stream\n", b"/Length 99999999 ", b"PK\x03\x04",
    b"../../../etc/passwd",
]  # fmt: skip


class HungError(BaseException):
    """A loader takes too long; no LoadError, which loaders make of every Exception."""


class NetworkError(BaseException):
    """A loader speaks to somebody."""


def _peak_mib() -> float:
    """The most that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1 << (20 if sys.platform == "darwin" else 10)
    )


@contextmanager
def _patience():
    def ring(*_):
        raise HungError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _seeds(*suffixes):
    """Files of some suffixes: real ones that are not too large, and what is written above."""
    folders = (CORPUS, shared("data", "docs")) if SHARED.exists() or is_required() else (CORPUS,)
    found = [path for folder in folders for path in sorted(folder.rglob("*"))]
    seeds = [
        path.read_bytes()
        for path in found
        if path.suffix in suffixes and path.stat().st_size < LARGEST
    ]
    seeds += [WRITTEN[suffix].encode() for suffix in suffixes if suffix in WRITTEN]
    seeds += [case.data for make in CASES.values() if (case := make()).suffix in suffixes]
    if ".zip" in suffixes:
        members = {f"in/file{suffix}": text for suffix, text in WRITTEN.items()}
        with io.BytesIO() as packed:
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, text in members.items():
                    archive.writestr(name, text)
            seeds.append(packed.getvalue())
    if ".xlsb" in suffixes:
        rows = [["tea", "EUR", "since"], ["龙井", 12, dt.date(2024, 4, 5)], ["Sencha", 8.5, True]]
        seeds.append(binary_workbook({"Tea": rows, "_Costs": rows}, [(1, 2, 1, 1)]))
    if ".ods" in suffixes:  # the same container as a text's, with other elements in it
        seeds += [
            _repacked(data, lambda text: text.replace(b"office:text", b"office:spreadsheet"))
            for data in _seeds(".odt")
        ]
    if ".odp" in suffixes:
        seeds += [_repacked(data, _as_slides) for data in _seeds(".odt")]
    return [seed for seed in seeds if seed]


def _as_slides(text):
    """The content of a text document as that of a presentation of one slide."""
    slide = b'<draw:page xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0">'
    body = rb"<office:presentation\1>" + slide + rb"\2</draw:page></office:presentation>"
    return re.sub(rb"<office:text([^>]*)>(.*)</office:text>", body, text, flags=re.DOTALL)


def _mutated(data, rng):
    """The bytes with some damage: cut, doubled, dropped, flipped, or with a scrap in them."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice([1, 2, 16, 300, 5000]))
        kind = rng.randrange(6)
        if kind == 0:
            del data[start:]
        elif kind == 1:
            del data[start:end]
        elif kind == 2:
            data[start:start] = data[start:end] * rng.choice([1, 2, 50])
        elif kind == 3 and start < len(data):
            data[start] ^= 1 << rng.randrange(8)
        elif kind == 4:
            data[start:end] = rng.choice(SCRAPS)
        else:
            data[start:start] = rng.choice(SCRAPS)
    return bytes(data)


def _repacked(data, change):
    """A zip file whose parts in XML are changed: damage from without is found by its checksums."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            content = source.read(name)
            target.writestr(
                name,
                change(content)
                if name.endswith((".xml", ".rels", ".xhtml", ".opf", ".html"))
                else content,
            )
    return packed.getvalue()


def _damaged(data, rng):
    if zipfile.is_zipfile(io.BytesIO(data)) and rng.random() < 0.7:
        often = rng.choice([0.1, 0.5])
        return _repacked(
            data, lambda part: _mutated(part, rng) if part and rng.random() < often else part
        )
    return _mutated(data, rng)


BY_LOADER = {}
for _suffix in loaders:
    BY_LOADER.setdefault(loaders[_suffix].__name__, []).append(_suffix)
OWN_SEEDS = {*WRITTEN, ".zip", *(path.suffix for path in CORPUS.rglob("*"))}
LOADERS = [
    pytest.param(name, marks=[] if OWN_SEEDS & {*suffixes} else pytest.mark.shared)
    for name, suffixes in BY_LOADER.items()
]
COUNTS = [
    pytest.param(12, id="some"),
    pytest.param(300, id="many", marks=pytest.mark.slow),
    pytest.param(5_000, id="thousands", marks=pytest.mark.deep),
]


@pytest.mark.sample(30)
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no alarm")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.filterwarnings("ignore")  # what parsers think of such files
def test_damaged_files_end_as_a_text_or_as_one_error(loader, count, tmp_path, monkeypatch):
    """Nothing else is raised, nothing hangs, nobody is spoken to, memory is bounded, and no file is
    left behind.
    """

    def forbidden(*_args, **_kwargs):
        raise NetworkError

    monkeypatch.setattr(socket, "socket", forbidden)
    seeds = _seeds(*BY_LOADER[loader])
    assert seeds
    rng = random.Random(f"{loader} {count}")
    path = tmp_path / f"file{BY_LOADER[loader][-1]}"
    ends = {"text": 0, "error": 0}
    before = _peak_mib()
    for number in range(count):
        data = _damaged(rng.choice(seeds), rng)
        path.write_bytes(data)
        try:
            with _patience():
                loaded = load_file(path)
        except LoadError:
            ends["error"] += 1
        else:
            ends["text"] += 1
            loaded.text.encode()  # no store could write it otherwise
            assert all(
                0 <= location.start <= location.end <= len(loaded.text)
                for location in loaded.locations
            ), number
        assert _peak_mib() - before < MEMORY_MIB, number
    assert ends["text"] + ends["error"] == count
    assert sorted(tmp_path.iterdir()) == [path]
