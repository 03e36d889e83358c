"""Compare the text under the boxes of `lazyrag.read.marks` with the words of the marked spans.

    python benchmarks/marks.py [--check] [--spans 2000] [--files made_zh.pdf]

Spans of the shared PDFs are drawn at random (Chinese and English, columns, tables, right-to-left
text), and of copies whose pages are turned by 90, 180 and 270 degrees or cropped. Each span begins
and ends with a word. The text under its boxes is read by pdfplumber, from the files alone: the
characters whose centre is in a box. (By pdfium's boxes of single characters for one file, where
pdfplumber places words beside where they are drawn.) Compared are the characters without spaces,
hyphens at line ends and the bars between cells, after NFKC. Printed are, for each file:

- equal: the share of the spans whose characters are those under the boxes
- beyond: the most characters under the boxes of one span that are not the span's; a sentence would
  be dozens
- ms: the median time of one call

With --check less than 98 % equal spans, or more than 10 characters beyond one, is a failure.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import statistics
import sys
import tempfile
import time
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pdfplumber
import pypdf
import pypdfium2
from pypdf.generic import RectangleObject

from lazyrag.read import marks as find_marks

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag import Document
from lazyrag.document import PageBox
from lazyrag.loaders.pdf_layout import letters
from tests.shared import SHARED

DOCS = SHARED / "data" / "docs"
# slow; no PDF; one glyph for a whole word
SKIPPED = {"failure-after-repair.pdf", "made_html_named.pdf", "habibi.pdf"}
TURNED = {"made_zh.pdf": 90, "multicolumn.pdf": 180, "korean-text-with-tables.pdf": 270}
CROP = (4, 3, 5, 2)  # points cut off at the left, bottom, right and top
BY_PDFIUM = {"korean-text-with-tables.pdf"}
LEFT_OUT = re.compile(r"[\s|\-\u00ad\u2010\u0002\ufffe\u200b-\u200f]")
WORD = re.compile(r"[^\W_]+")
Characters = list[tuple[str, float, float]]
"""Each with its centre, in shares of the page."""


def shared_pdfs() -> dict[str, Path]:
    """The PDFs that can be read, by name."""
    entries = json.loads((SHARED / "data" / "manifest.json").read_text(encoding="utf-8"))["files"]
    names = [one["file"].removeprefix("docs/") for one in entries if one["error"] is None]
    return {name: DOCS / name for name in names if name.endswith(".pdf") and name not in SKIPPED}


def changed_pdfs(folder: Path, of: dict[str, Path]) -> dict[str, Path]:
    """Copies of some files with turned and cropped pages."""
    made = {}
    for name, turn in TURNED.items():
        if name in of:
            made[f"{turn} {name}"] = folder / f"{turn} {name}"
            writer = pypdf.PdfWriter(clone_from=of[name])
            for page in writer.pages:
                page.rotate(turn)
                box = page.mediabox
                left, bottom, right, top = CROP
                page.cropbox = RectangleObject(
                    (box.left + left, box.bottom + bottom, box.right - right, box.top - top)
                )
            writer.write(made[f"{turn} {name}"])
    return made


def turned_characters(
    pages: list[Characters], sizes: list[tuple[float, float]], turn: int
) -> list[Characters]:
    """The characters of pages as `changed_pdfs` changes these."""
    left, bottom, right, top = CROP
    turn_once = {
        90: lambda x, y: (1 - y, x),
        180: lambda x, y: (1 - x, 1 - y),
        270: lambda x, y: (y, 1 - x),
    }[turn]
    return [
        [
            (
                text,
                *turn_once(
                    (x * width - left) / (width - left - right),
                    (y * height - top) / (height - top - bottom),
                ),
            )
            for text, x, y in page
        ]
        for page, (width, height) in zip(pages, sizes, strict=True)
    ]


def random_spans(text: str, count: int, chance: random.Random) -> list[tuple[int, int]]:
    """Stretches of words, short and long."""
    words = [one.span() for one in WORD.finditer(text)]
    spans = []
    for _ in range(count):
        start, end = words[first := chance.randrange(len(words))]
        if end - start > 12:  # a run of Chinese characters is no word
            start, end = sorted(chance.sample(range(start, end + 1), 2))
        last = min(len(words) - 1, first + int(chance.paretovariate(0.7)) - 1, first + 60)
        spans.append((start, max(end, words[last][1]) if last > first else end))
    return spans


def folded(text: str) -> str:
    """The characters of a text that are compared."""
    return LEFT_OUT.sub("", unicodedata.normalize("NFKC", letters(text)))


def pages_of(path: Path, turn: int) -> list[Characters]:
    """The characters of each page of a file, turned as by `changed_pdfs`."""
    with pypdfium2.PdfDocument(path) as pdf:
        sizes = [page.get_size() for page in pdf]
    pages = pdfium_characters(path) if path.name in BY_PDFIUM else page_characters(path)
    return turned_characters(pages, sizes, turn) if turn else pages


def page_characters(path: Path) -> list[Characters]:
    """The characters of each page; those drawn again at one place, for bold letters, are one."""
    pages = []
    with pdfplumber.open(path) as pdf:
        for page in pdf.pages:
            found: dict[tuple[str, int, int], tuple[str, float, float]] = {}
            x, y, right, bottom = page.bbox
            for one in page.chars:
                centre = (one["x0"] + one["x1"]) / 2, (one["top"] + one["bottom"]) / 2
                key = one["text"], round(centre[0] / 2), round(centre[1] / 2)
                found.setdefault(
                    key,
                    (one["text"], (centre[0] - x) / (right - x), (centre[1] - y) / (bottom - y)),
                )
            pages.append(list(found.values()))
    return pages


def pdfium_characters(path: Path) -> list[Characters]:
    """The characters of each page as pdfium draws them."""
    pages = []
    with pypdfium2.PdfDocument(path) as pdf:
        for page in pdf:
            width, height = page.get_size()
            text = page.get_textpage()
            boxes = [
                (text.get_text_range(at, 1), text.get_charbox(at))
                for at in range(text.count_chars())
            ]
            pages.append(
                [
                    (one, (x0 + x1) / 2 / width, 1 - (y0 + y1) / 2 / height)
                    for one, (x0, y0, x1, y1) in boxes
                    if x1 > x0
                ]
            )
    return pages


def text_under(boxes: Iterable[PageBox], pages: list[Characters]) -> Counter[str]:
    """The characters whose centre is in one of the boxes."""
    inside: set[tuple[int, int]] = set()
    for box in boxes:
        for at, (_, x, y) in enumerate(pages[box.page - 1]):
            if box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1:
                inside.add((box.page, at))
    return Counter(folded("".join(pages[page - 1][at][0] for page, at in sorted(inside))))


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--spans", type=int, default=2000)
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument(
        "--show", type=int, default=0, help="print so many differences of each file"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pdfminer").setLevel(logging.ERROR)
    chance = random.Random(23)
    equal, total, beyond, times = 0, 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        files = shared_pdfs()
        files |= changed_pdfs(Path(folder), files)
        files = {
            name: path for name, path in files.items() if not options.files or name in options.files
        }
        docs = Document(doc_files=files)
        roots = {node.path: node.text for node in docs.get_nodes()}
        for name, text in roots.items():
            turn, _, original = name.rpartition(" ")
            pages = pages_of(DOCS / original, int(turn or 0))
            own_equal, own_beyond, own_times, shown = 0, 0, [], 0
            spans = random_spans(text, -(-options.spans // len(roots)), chance)
            for span in spans:
                begin = time.perf_counter()
                marks = find_marks(docs, name, span)
                own_times.append(1000 * (time.perf_counter() - begin))
                wanted, got = Counter(folded(marks.text)), text_under(marks.boxes, pages)
                own_equal += wanted == got
                own_beyond = max(own_beyond, (got - wanted).total())
                if wanted != got and shown < options.show:
                    shown += 1
                    print(
                        f"  {marks.text!r:.100}: lacks {dict(wanted - got)}, has {dict(got - wanted)}"
                    )
            print(
                f"{name:<48}{len(spans):>5} spans{own_equal / len(spans):>8.1%} equal{own_beyond:>4} beyond"
                f"{statistics.median(own_times):>7.1f} ms"
            )
            equal, total, beyond = equal + own_equal, total + len(spans), max(beyond, own_beyond)
            times += own_times
    print(
        f"{'all':<48}{total:>5} spans{equal / total:>8.1%} equal{beyond:>4} beyond{statistics.median(times):>7.1f} ms"
    )
    return int(options.check and (equal / total < 0.98 or beyond > 10))


if __name__ == "__main__":
    sys.exit(main())
