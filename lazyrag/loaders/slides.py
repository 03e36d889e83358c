"""PowerPoint presentations: `PptxLoader`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lazyrag.data.segment import EMPTY, TITLE
from lazyrag.data.tables import FoundTable
from lazyrag.errors import LoadError
from lazyrag.loaders.archives import (
    Archive,
    Element,
    Relation,
    attribute,
    by_place,
    local_name,
    open_archive,
    picture_text,
    properties,
    related,
    relations,
)
from lazyrag.loaders.base import LoadedFile, check_pages, joined_file, reading
from lazyrag.loaders.formulas import formula_text
from lazyrag.loaders.symbols import symbol_text
from lazyrag.loaders.tables import GridCell, LineKind, TextLines, read_table
from lazyrag.types import Metadata

_TRUE = frozenset(["1", "true"])
_UNSEEN = frozenset(["Fallback", "rPr", "pPr", "endParaRPr"])
_OF_EVERY_SLIDE = frozenset(["sldNum", "ftr"])
"""Placeholders repeated on each slide: number and footer."""
TITLES = dict.fromkeys(("title", "ctrTitle"), (TITLE, ""))


class PptxLoader:
    """Reads a presentation slide by slide; each slide is a location.

    Shapes come in stored order, that of reading aloud, those of a group row by row: text, tables
    row by row with ``|`` between the cells, data of charts, text of diagrams, alternative texts of
    pictures, and then the speaker's notes. Hidden slides are read, too. Title and author become
    metadata. Comments, footers, slide numbers and slide masters are skipped.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        with open_archive(path, "presentation", ".pptx") as archive:
            main = related(archive, "officeDocument")
            presentation = archive.xml(main) if main else None
            if presentation is None or local_name(presentation) != "presentation":
                raise LoadError(
                    "The file is not a presentation, but of another format. Save it as .pptx."
                )
            slides = slide_parts(archive, main)
            check_pages(len(slides), "slides")
            pages = []
            hidden = []
            commented = 0
            for number, slide in enumerate(slides, start=1):
                pages.append(TextLines())
                with archive.tolerated(f"slide {number}"):
                    root = archive.xml(slide)
                    if root.get("show") in {"0", "false"}:
                        hidden.append(number)
                    _read_slide(archive, slide, root, pages[-1])
                    parts = relations(archive, slide).values()
                    commented += any(part.kind == "comments" for part in parts)
            metadata: dict[str, object] = {**properties(archive)}
        reading().leave_out("comments of slides", commented)
        if hidden:
            metadata["hidden_slides"] = hidden
        return slides_file(pages, metadata)


def slides_file(slides: Sequence[TextLines], metadata: Metadata) -> LoadedFile:
    """The file of some slides."""
    numbered = enumerate(slides, start=1)
    return joined_file(
        ((slide.loaded(EMPTY), "slide", str(number)) for number, slide in numbered), metadata
    )


def slide_parts(archive: Archive, main: str) -> list[str]:
    """The parts of the slides, in order."""
    targets = relations(archive, main)
    slides = archive.xml(main).iterfind("{*}sldIdLst/{*}sldId")
    keys = [attribute(slide, "id") for slide in slides]
    return [targets[key].target for key in keys if key in targets]


def _read_slide(archive: Archive, slide: str, root: Element, page: TextLines) -> None:
    """Add the lines of a slide."""
    shapes = root.iterfind("{*}cSld/{*}spTree/*")
    blocks = _shapes(archive, relations(archive, slide), shapes)
    page.add_all(block for block in blocks if block[0])
    with archive.tolerated(f"notes of {slide}"):
        for line in _notes(archive, slide):
            page.add(line)


def _shapes(
    archive: Archive, targets: dict[str, Relation], shapes: Iterable[Element]
) -> Iterator[tuple[str, LineKind]]:
    """Lines of the shapes in a group, in order."""
    for shape in shapes:
        kind = local_name(shape)
        if kind in {"sp", "txBody"}:
            role = role_of(shape)
            if role not in _OF_EVERY_SLIDE:
                yield from ((line, TITLES.get(role, 0)) for line in paragraphs(shape))
        elif kind == "tbl":
            yield _table(shape)
        elif kind in {"chart", "relIds"}:
            yield from ((line, 0) for line in drawn_lines(archive, targets, shape))
        elif kind == "pic":
            named = shape.find("{*}nvPicPr/{*}cNvPr")
            yield picture_text(None if named is None else named.get("descr")), 0
        elif kind == "grpSp":
            yield from _shapes(archive, targets, by_place(shape))
        elif kind in {"graphicFrame", "graphic", "graphicData", "AlternateContent", "Choice"}:
            yield from _shapes(archive, targets, shape)


def role_of(shape: Element) -> str:
    """The role of a shape on its slide, such as ``"title"``; "" without one."""
    placeholder = shape.find("{*}nvSpPr/{*}nvPr/{*}ph")
    return "" if placeholder is None else placeholder.get("type", "")


def drawn_lines(archive: Archive, targets: dict[str, Relation], drawing: Element) -> Iterator[str]:
    """The lines of a chart or of a diagram, which is a part of its own.

    Args:
        archive: The file.
        targets: Relations of the part that shows it.
        drawing: The element that names it.
    """
    kind = local_name(drawing)
    relation = targets.get(attribute(drawing, "id" if kind == "chart" else "dm"))
    if relation is not None and relation.target in archive:
        with archive.tolerated(f"{kind} {relation.target}"):
            drawn = archive.xml(relation.target)
            yield from _chart(drawn) if kind == "chart" else paragraphs(drawn)


def paragraphs(parent: Element) -> Iterator[str]:
    """The filled paragraphs."""
    for paragraph in parent.iter("{*}p"):
        text = "".join(_run_text(paragraph)).strip()
        if text:
            yield text


def _run_text(parent: Element) -> Iterator[str]:
    for child in parent:
        kind = local_name(child)
        if kind == "t":
            font = _symbol_font(parent)
            yield _PRIVATE_CODES.sub(lambda match: symbol_text(match[0], font), child.text or "")  # noqa: B023
        elif kind == "br":
            yield "\n"
        elif kind == "oMath":
            yield formula_text(child)
        elif kind not in _UNSEEN:
            yield from _run_text(child)


_PRIVATE_CODES = re.compile("[\uf020-\uf0ff]+")


def _symbol_font(run: Element) -> str:
    """The font of a run for the codes of symbols; letters may have another one."""
    fonts = [*run.iterfind("{*}rPr/{*}sym"), *run.iterfind("{*}rPr/{*}latin")]
    return fonts[0].get("typeface", "") if fonts else ""


def _table(table: Element) -> tuple[str, list[FoundTable]]:
    rows = []
    for row in table.iterfind("{*}tr"):
        cells: list[GridCell] = []
        for cell in row.iterfind("{*}tc"):
            if cells and cell.get("hMerge") in _TRUE:
                cells[-1].columns += 1
            else:
                words = " ".join(" ".join(paragraphs(cell)).split())
                cells.append(GridCell(words, rows=0 if cell.get("vMerge") in _TRUE else 1))
        rows.append(cells)
    properties = table.find("{*}tblPr")
    header = properties is not None and properties.get("firstRow") in _TRUE
    return read_table(rows, header=int(header))


def _chart(chart: Element) -> Iterator[str]:
    """A chart's title, then its data as a table: a line for each category, a column for each
    series.
    """
    for title in chart.iter("{*}title"):
        yield from paragraphs(title)
    series = list(chart.iter("{*}ser"))
    names = list(map(_series_name, series))
    if any(names):
        yield " | ".join(["", *names]).strip()
    rows = {}
    for number, column in enumerate(series):
        values = _points(column, ("val", "yVal"))
        categories = {**dict.fromkeys(values, ""), **_points(column, ("cat", "xVal"))}
        for at, category in categories.items():
            if at not in rows:
                reading().spend(len(series))
                rows[at] = [category, *[""] * len(series)]
            rows[at][number + 1] = values.get(at, "")
    yield from (" | ".join(row) for row in rows.values())


def _series_name(series: Element) -> str:
    return " ".join(value.text or "" for value in series.iterfind("{*}tx//{*}v"))


def _points(series: Element, names: tuple[str, ...]) -> dict[str, str]:
    """The values of a chart's series, by index."""
    points = {}
    for name in names:
        for point in series.iterfind(f"{{*}}{name}//{{*}}pt"):
            points[point.get("idx", "")] = point.findtext("{*}v") or ""
    return points


def _notes(archive: Archive, slide: str) -> Iterator[str]:
    """The speaker's notes, the body of a page of their own."""
    part = related(archive, "notesSlide", slide)
    for shape in archive.xml(part).iter("{*}sp") if part else ():
        if role_of(shape) == "body":
            lines = list(paragraphs(shape))
            yield from [f"Notes: {lines[0]}", *lines[1:]] if lines else []
