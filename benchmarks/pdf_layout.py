"""Layout of PDF pages: tables of ICDAR 2013, the reading order of columns, tables found in prose.

    python benchmarks/pdf_layout.py

Tables: adjacency relations (Göbel and others, ICDAR 2013) of the group ``table`` and of the ground
truth, over all files. A relation is a pair of cells next to each other, to the right or below,
empty ones skipped, without white space and signs. Limits of the layout were chosen on the files of
even place in the list only. Order: the share of pairs of adjacent words that stay adjacent on 30
pages in two to four columns. Prose: lines with ``|`` on 100 pages of one column. The pages are
printed here, from texts of the shared data.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import random
import re
import shutil
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias
from xml.sax.saxutils import escape

from machine import ROOT
from reportlab.lib.enums import TA_JUSTIFY, TA_LEFT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph
from results import Row, save, table

from lazyrag import Document
from lazyrag.loaders.pdf import PdfLoader

DATA = Path(os.environ.get("LAZYRAG_SHARED") or ROOT.parent / "shared") / "data"
COLUMN_PAGES = 30
PROSE_PAGES = 100
Relations: TypeAlias = Counter[tuple[str, str, str]]
_SIGN = re.compile(r"[\W_]+")


def bare(text: str) -> str:
    """A cell's text without white space and signs; the signs where there is nothing else."""
    return _SIGN.sub("", text) or "".join(text.split())


def relations(grid: Sequence[Sequence[tuple[int, str]]]) -> Relations:
    """The relations of a grid of numbers and texts; a cell has one number wherever it reaches."""
    texts = {number: bare(text) for row in grid for number, text in row}
    pairs: set[tuple[int, int, str]] = set()
    for direction, lines in (("right", grid), ("below", list(zip(*grid, strict=True)))):
        for line in lines:
            filled = [number for number in dict(line) if texts[number]]
            pairs.update((a, b, direction) for a, b in itertools.pairwise(filled))
    return Counter((texts[a], texts[b], direction) for a, b, direction in pairs)


def read_relations(text: str) -> Relations:
    """The relations of a table as CSV."""
    rows = list(csv.reader(io.StringIO(text)))
    width = max(map(len, rows))
    numbers = itertools.count()
    full = [row + [""] * (width - len(row)) for row in rows]
    return relations([[(next(numbers), cell) for cell in row] for row in full])


def true_relations(path: Path) -> Relations:
    """The relations of the tables in a file of ground truth."""
    summed: Relations = Counter()
    for region in ET.parse(path).iter("region"):  # noqa: S314  of the shared data
        places: dict[tuple[int, int], tuple[int, str]] = {}
        for number, cell in enumerate(region.iter("cell"), start=1):
            left = int(cell.get("start-col", 0))
            top = int(cell.get("start-row", 0))
            rows = range(top, max(top, int(cell.get("end-row", top))) + 1)
            columns = range(left, max(left, int(cell.get("end-col", left))) + 1)
            for place in itertools.product(rows, columns):
                places[place] = (number, cell.findtext("content") or "")
        height = 1 + max(row for row, _ in places)
        width = 1 + max(column for _, column in places)
        grid = [
            [places.get((row, column), (0, "")) for column in range(width)] for row in range(height)
        ]
        summed += relations(grid)
    return summed


def table_scores(folder: Path) -> Iterator[Row]:
    """Precision, recall and F of the files of even place, of odd place, and of all."""
    paths = sorted((DATA / "icdar2013").glob("*.pdf"))
    for path in paths:
        shutil.copy(path, folder)
    read: dict[str, Relations] = {path.name: Counter() for path in paths}
    for node in Document(folder).get_nodes("table"):
        read[node.path] += read_relations(node.get_text())
    counts = {"even": [0, 0, 0], "odd": [0, 0, 0]}
    for at, path in enumerate(paths):
        stem = path.stem
        # some tables have two readings, a and b: the nearer one counts
        truths = path.parent.glob(
            f"{stem.rstrip('a')}[ab]-str.xml" if stem[-1] == "a" else f"{stem}-str.xml"
        )
        mine = read[path.name]
        truth = max(
            map(true_relations, truths), key=lambda some: (some & mine).total() / some.total()
        )
        sums = counts["odd" if at % 2 else "even"]
        for place, count in enumerate((truth.total(), mine.total(), (truth & mine).total())):
            sums[place] += count
    counts["all"] = [sum(pair) for pair in zip(*counts.values(), strict=True)]
    for name, (true, found, right) in counts.items():
        yield {
            "what": f"tables, {name} files",
            "precision": right / found,
            "recall": right / true,
            "F": 2 * right / (found + true),
        }


def paragraphs() -> list[str]:
    """The contexts of XQuAD in English, German and Spanish."""
    texts = []
    for language in ("en", "de", "es"):
        path = DATA / "retrieval" / "xquad" / f"xquad.{language}.json"
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            texts += [part["context"] for part in article["paragraphs"]]
    return [text.encode("latin-1", "ignore").decode("latin-1") for text in texts]


def printed(path: Path, texts: Sequence[str], columns: int, draw: random.Random) -> str:
    """Print one page of a text in columns, and return as much of it as is on the page."""
    size = draw.choice([7, 8, 9, 10] if columns > 1 else [9, 10, 11, 12])
    gap = draw.choice([10, 12, 18])
    style = ParagraphStyle(
        "text",
        fontName=draw.choice(
            ["Times-Roman", "Helvetica", "Courier"] if columns < 4 else ["Times-Roman"]
        ),
        fontSize=size,
        leading=size * draw.choice([1.1, 1.2, 1.4]),
        alignment=draw.choice([TA_JUSTIFY, TA_LEFT]),
        firstLineIndent=draw.choice([0, 10]),
        spaceAfter=draw.choice([0, 5]),
    )
    width = (A4[0] - 100 - gap * (columns - 1)) / columns
    frames = [
        Frame(50 + at * (width + gap), 50, width, A4[1] - 100, 0, 0, 0, 0) for at in range(columns)
    ]
    template = BaseDocTemplate(str(path), pagesize=A4)
    template.addPageTemplates(PageTemplate(frames=frames))
    room = columns * width / (0.55 * size) * (A4[1] - 100) / style.leading * 0.7  # letters
    used = list(texts)
    while sum(map(len, used)) > room:
        used.pop()
    template.build([Paragraph(escape(text), style) for text in used])
    return "\n".join(used)


def pairs(text: str) -> Counter[tuple[str, str]]:
    """The pairs of adjacent words."""
    words = [word for word in map(bare, text.split()) if word]
    return Counter(itertools.pairwise(words))


def page_scores(folder: Path) -> Iterator[Row]:
    """The order of words on pages in columns, and the bars on pages of prose."""
    texts = paragraphs()
    draw = random.Random(7)
    kept = [0, 0]
    bars = {"columns": 0, "prose": 0}
    for number in range(COLUMN_PAGES + PROSE_PAGES):
        draw.shuffle(texts)
        columns = 2 + number % 3 if number < COLUMN_PAGES else 1
        path = folder / f"{number}.pdf"
        true = pairs(printed(path, texts, columns, draw))
        read = PdfLoader().load(path).text
        bars["columns" if columns > 1 else "prose"] += sum(
            "|" in line for line in read.splitlines()
        )
        if columns > 1:
            kept[0] += (true & pairs(read)).total()
            kept[1] += true.total()
    yield {
        "what": f"order, {COLUMN_PAGES} pages",
        "pairs": kept[0] / kept[1],
        "bars": bars["columns"],
    }
    yield {"what": f"prose, {PROSE_PAGES} pages", "bars": bars["prose"]}


def main() -> int:
    """Measure, print and save."""
    if not DATA.exists():
        print(f"no {DATA}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    with tempfile.TemporaryDirectory() as tables, tempfile.TemporaryDirectory() as pages:
        rows = [*table_scores(Path(tables)), *page_scores(Path(pages))]
    print(table(rows, ["what", "precision", "recall", "F", "pairs", "bars"]))
    save("pdf_layout", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
