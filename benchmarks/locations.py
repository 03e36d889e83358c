"""Compare the headings that chunks of the built-in groups name with those above their words.

    python benchmarks/locations.py [--check] [--formats md pdf]

It reads the documentation trees of the shared data as Markdown, and writes each page also as HTML,
Word and PDF with an outline; beside them, the shared web page and handbook. Headings are found
without lazyrag: those of Markdown by markdown-it, of HTML by lxml, of Word by python-docx; of the
PDF it is what was written. Printed are, for each format and group:

- under: the share of the words of chunks that are under the heading that the chunk names
- deepest: the share of the chunks that name the deepest heading above all of their words
- one: the share of the chunks that lie in one section
- fill: tokens of the median chunk that another one follows, by the group's counter, divided by the
  group's size
- cl100k: the same with tiktoken's cl100k_base, if its vocabulary is on this machine
  (``TIKTOKEN_CACHE_DIR``), of chunks that do not end before a heading

and for the questions of the trees, how many quotes are in a chunk that names their heading: of all,
and of those whose chunk lies in one section. With --check a share below 99 %, or a fill below 60 %,
is a failure.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import re
import shutil
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import docx
import lxml.etree
import lxml.html
from docx.table import Table
from markdown_it import MarkdownIt
from reportlab.lib.pagesizes import A4
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag import DocNode, Document
from lazyrag.text.tokens import counter_for_model
from lazyrag.transforms import SectionSplitter
from tests.shared import SHARED

Titles = tuple[str, ...]

TREES = SHARED / "data" / "documentation"
DOCS = SHARED / "data" / "docs"
SIZES = {"FineChunk": 128, "MediumChunk": 256, "CoarseChunk": 1024}
LINES = re.compile(r"(?:^|, )lines? \d+(?:-\d+)?$")
PAGES = re.compile(r"^pages? [\d-]+(?:, |$)")
WORD = re.compile(r"[a-z][a-z0-9]*|[^\W\d_a-z]", re.IGNORECASE)  # a Chinese character is one


class Above:
    """Titles above the present part of a text."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []

    def enter(self, level: int, title: str) -> None:
        """Begin a section."""
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, " ".join(title.replace("\u200b", "").split())))

    def titles(self) -> Titles:
        """The highest one first."""
        return tuple(title for _, title in self._path)


def markdown_parts(text: str) -> Iterator[tuple[int, int, Titles, str]]:
    """First line, level of a heading or 0, titles, text of the headings, paragraphs and code of a
    page.
    """
    above = Above()
    tokens = (
        MarkdownIt()
        .enable("table")
        .parse(
            re.sub(
                r"\A---\n.*?\n---\n", lambda one: "\n" * one[0].count("\n"), text, flags=re.DOTALL
            )
        )
    )
    for token, following in itertools.pairwise([*tokens, None]):
        if token.type == "heading_open" and token.level == 0:
            above.enter(int(token.tag[1]), following.content)
            yield token.map[0], int(token.tag[1]), above.titles(), following.content
        elif token.type in {"fence", "code_block"} or (
            token.type == "inline" and tokens[tokens.index(token) - 1].type != "heading_open"
        ):
            yield (token.map or [0])[0], 0, above.titles(), token.content


def markdown_words(text: str) -> list[tuple[str, Titles]]:
    """The words of the source of a page, with the titles above them."""
    headings = {line: titles for line, level, titles, _ in markdown_parts(text) if level}
    found, titles = [], ()
    for number, line in enumerate(text.split("\n")):
        titles = headings.get(number, titles)
        found += [(word.lower(), titles) for word in WORD.findall(line)]
    return found


def html_words(page: str) -> list[tuple[str, Titles]]:
    """The words of a web page."""
    above, found = Above(), []
    body = lxml.html.document_fromstring(page).find("body")
    for event, element in lxml.etree.iterwalk(body, events=("start", "end")):
        if (
            event == "start"
            and isinstance(element.tag, str)
            and re.fullmatch("h[1-6]", element.tag)
        ):
            above.enter(int(element.tag[1]), element.text_content())
        text = (
            element.tail if event == "end" else element.text if isinstance(element.tag, str) else ""
        )
        if event == "end" or element.tag not in {"script", "style"}:
            found += [(word.lower(), above.titles()) for word in WORD.findall(text or "")]
    return found


def word_words(path: Path) -> list[tuple[str, Titles]]:
    """The words of a Word document."""
    above, found = Above(), []
    for block in docx.Document(str(path)).iter_inner_content():
        if isinstance(block, Table):
            cells = [cell.text for row in block.rows for cell in dict.fromkeys(row.cells)]
            found += [
                (word.lower(), above.titles()) for cell in cells for word in WORD.findall(cell)
            ]
            continue
        style = re.fullmatch(r"Heading (\d)", block.style.name)
        if style and block.text.strip():
            above.enter(int(style[1]), block.text)
        found += [(word.lower(), above.titles()) for word in WORD.findall(block.text)]
    return found


def write_word(text: str, path: Path) -> list[tuple[str, Titles]]:
    """A page as a Word document."""
    written = docx.Document()
    for _, level, _, part in markdown_parts(text):
        if level:
            written.add_heading(part, level)
        else:
            written.add_paragraph(part)
    written.save(str(path))
    return word_words(path)


def write_pdf(text: str, path: Path) -> list[tuple[str, Titles]]:
    """A page as a PDF with an outline."""
    data, words, height, depth, above = io.BytesIO(), [], 60.0, -1, Above()
    canvas = Canvas(data, pagesize=A4)
    font = "Helvetica" if text.isascii() else "STSong-Light"
    canvas.setFont(font, 10)
    for number, (_, level, _, part) in enumerate(markdown_parts(text)):
        width = 200 if level else 60
        lines = [
            line[at : at + width]
            for line in part.split("\n")
            for at in range(0, max(1, len(line)), width)
        ]
        if height + 14 * (1 + (level > 0)) > 800:
            canvas.showPage()
            canvas.setFont(font, 10)
            height = 60
        if level:
            canvas.bookmarkHorizontal(str(number), 0, 842 - height + 14)
            depth = min(depth + 1, level - 1)  # an outline skips no level
            above.enter(depth, part)
            canvas.addOutlineEntry(part, str(number), level=depth)
        for line in lines:
            if height > 800:
                canvas.showPage()
                canvas.setFont(font, 10)
                height = 60
            canvas.drawString(50, 842 - height, line)
            height += 14
        height += 10
        words += [(word.lower(), above.titles()) for line in lines for word in WORD.findall(line)]
    canvas.save()
    path.write_bytes(data.getvalue())
    return words


SHARED_FILES: dict[str, dict[str, Callable[[Path], list[tuple[str, Titles]]]]] = {
    "html": {"test_blog.html": lambda path: html_words(path.read_text(encoding="utf-8"))},
    "docx": {"handbook-872p.docx": word_words},
}


def aligned(words: list[str], known: list[tuple[str, Titles]]) -> list[Titles | None]:
    """The titles above each word; None near words that the file or the loader adds: numbers of
    lists, footnotes.
    """
    found: list[Titles | None] = []
    at = 0
    plain = [word for word, _ in known]
    for number, word in enumerate(words):
        ahead = words[number : number + 6]
        if at < len(plain) and plain[at] == word:
            step = 0
        else:
            step = next(
                (step for step in range(400) if plain[at + step : at + step + 6] == ahead), -1
            )
        found.append(known[at + step][1] if step >= 0 else None)
        at += step + 1 if step >= 0 else 0
    return found


def named(node: DocNode) -> Titles:
    """The titles that a chunk names."""
    label = " ".join(PAGES.sub("", LINES.sub("", node.location)).split())
    return tuple(label.split(" > ")) if label else ()


def common(paths: list[Titles]) -> Titles:
    """The titles above all."""
    same = itertools.takewhile(lambda titles: len(set(titles)) == 1, zip(*paths, strict=False))
    return tuple(titles[0] for titles in same)


def measure(
    folder: Path, known: dict[str, list[tuple[str, Titles]]]
) -> Iterator[tuple[str, dict[str, float]]]:
    """For each group its figures over the files of a folder."""
    docs = Document(folder)
    exact, counter = counter_for_model("cl100k_base"), SectionSplitter().counter
    roots = {}
    for root in docs.get_nodes():
        matches = list(WORD.finditer(root.text))
        paths = aligned([match[0].lower() for match in matches], known[root.path])
        roots[root.path] = [
            (match.start(), path) for match, path in zip(matches, paths, strict=True)
        ]
    total = sum(map(len, roots.values()))
    lost = sum(path is None for words in roots.values() for _, path in words)
    for group, size in SIZES.items():
        under, words, deepest, one, full, packed = 0, 0, [], [], [], []
        nodes = docs.get_nodes(group)
        for node, following in itertools.pairwise([*nodes, None]):
            start, end = node.span
            paths = [
                path for at, path in roots[node.path] if start <= at < end and path is not None
            ]
            if following is not None and following.path == node.path:
                full.append(counter.count(node.text) / size)
                starts = {place.start for place in node.root.locations}
                if exact is not None and end not in starts:
                    packed.append(exact.count(node.text) / size)
            if not paths:
                continue
            label = named(node)
            words += len(paths)
            under += sum(path[: len(label)] == label for path in paths)
            deepest.append(label == common(paths))
            one.append(len(set(paths)) == 1)
        yield (
            group,
            {
                "chunks": len(nodes),
                "under": under / words,
                "deepest": statistics.fmean(deepest),
                "one": statistics.fmean(one),
                "fill": statistics.median(full or [1.0]),
                "cl100k": statistics.median(packed) if packed else float("nan"),
                "unknown": lost / total,
            },
        )


def plain(title: str) -> str:
    """A title without its marks."""
    return re.sub(r"[`*\\]|\{.*?\}", "", title).strip()


def quotes(tree: Path) -> Iterator[tuple[str, int, float, int, float]]:
    """For each group, the share of quotes whose heading is named: of all, and of those in a chunk
    of one section.
    """
    docs = Document(tree / "corpus")
    questions = [
        json.loads(line)
        for line in (tree / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    texts = {root.path: root for root in docs.get_nodes()}
    for group in SIZES:
        found: list[tuple[bool, bool]] = []
        nodes = docs.get_nodes(group)
        for one in questions:
            root = texts[one["file"]]
            at = root.text.index(one["quote"])
            holding = [
                node
                for node in nodes
                if node.path == root.path and node.span[0] <= at < node.span[1]
            ]
            best = max(holding, key=lambda node: node.span[1] >= at + len(one["quote"]))
            label = named(best)
            found.append(
                (
                    bool(label) and plain(label[-1]) == plain(one["heading"]),
                    len(best.locations) == 1,
                )
            )
        alone = [is_named for is_named, is_alone in found if is_alone]
        yield (
            group,
            len(found),
            statistics.fmean(one for one, _ in found),
            len(alone),
            statistics.fmean(alone or [1]),
        )


def main() -> int:
    """Print a row for each format and group, and for each tree of questions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--formats", nargs="+", default=["md", "html", "docx", "pdf"])
    options = parser.parse_args()
    if not TREES.exists():
        print(f"no {TREES}: set LAZYRAG_SHARED to the folder of the shared data")
        return 2
    warnings.simplefilter("ignore")
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    pages = {
        path: path.read_text(encoding="utf-8")
        for tree in ("md-en", "md-zh")
        for path in sorted((TREES / tree / "corpus").rglob("*.md"))
    }
    writers: dict[str, Callable[[str, Path], list[tuple[str, Titles]]]] = {
        "md": lambda text, path: (path.write_text(text, encoding="utf-8"), markdown_words(text))[1],
        "html": lambda text, path: (
            path.write_text(
                html := f"<body>{MarkdownIt().enable('table').render(text)}</body>",
                encoding="utf-8",
            ),
            html_words(html),
        )[1],
        "docx": write_word,
        "pdf": write_pdf,
    }
    failed = False
    print(
        f"{'format':14}{'group':13}{'chunks':>7}{'under':>8}{'deepest':>9}{'one':>7}{'fill':>7}{'cl100k':>8}{'unknown':>9}"
    )
    for name in options.formats:
        write = writers[name]
        with tempfile.TemporaryDirectory() as folder:
            known = {}
            for number, text in enumerate(pages.values()):
                file = f"{number:03d}.{name}"
                known[file] = write(text, Path(folder, file))
            rows = [(name, *row) for row in measure(Path(folder), known)]
        for file, read in SHARED_FILES.get(name, {}).items():
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(DOCS / file, Path(folder, file))
                rows += [
                    (f"{name}, shared", *row)
                    for row in measure(Path(folder), {file: read(DOCS / file)})
                ]
        for label, group, row in rows:
            failed |= row["under"] < 0.99 or row["fill"] < 0.6
            print(
                f"{label:14}{group:13}{row['chunks']:7.0f}{row['under']:8.4f}{row['deepest']:9.4f}{row['one']:7.2f}"
                f"{row['fill']:7.2f}{row['cl100k']:8.2f}{row['unknown']:9.4f}"
            )
    print(
        f"\n{'questions':10}{'group':13}{'quotes':>7}{'named':>7}{'in one section':>16}{'named':>7}"
    )
    for tree in ("md-en", "md-zh", "rst-en"):
        for group, count, share, alone, share_alone in quotes(TREES / tree):
            failed |= share_alone < 0.99
            print(f"{tree:10}{group:13}{count:7}{share:7.2f}{alone:16}{share_alone:7.2f}")
    return int(options.check and failed)


if __name__ == "__main__":
    sys.exit(main())
