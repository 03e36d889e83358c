"""Files with one table of random merged cells, and its grid: each writer's own model of merged
cells is the oracle.
"""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import pptx
from pptx.util import Inches

Block = tuple[int, int, int, int]  # top, left, height, width


def drawn_blocks(draw: random.Random, rows: int, columns: int) -> list[Block]:
    """Rectangles that fill a grid below its header; none fills a row."""
    free = {(row, column) for row in range(1, rows) for column in range(columns)}
    blocks = [(0, column, 1, 1) for column in range(columns)]
    while free:
        top, left = min(free)
        width = height = 1
        while draw.random() < 0.4 and width < columns - 1 and (top, left + width) in free:
            width += 1
        while draw.random() < 0.4 and all((top + height, left + at) in free for at in range(width)):
            height += 1
        free -= {(top + down, left + right) for down in range(height) for right in range(width)}
        blocks.append((top, left, height, width))
    return sorted(blocks)


def name_of(block: Block) -> str:
    """The text of a rectangle."""
    return f"{'hv'[block[0] > 0]}{block[0]}x{block[1]}"


def html_file(path: Path, blocks: list[Block]) -> list[list[str]]:
    """Write rowspan and colspan; the grid is what they were drawn as."""
    rows: dict[int, str] = {}
    grid: dict[tuple[int, int], str] = {}
    for top, left, height, width in blocks:
        name = name_of((top, left, height, width))
        cell = f"<td rowspan={height} colspan={width}>{name}</td>" if top else f"<th>{name}</th>"
        rows[top] = rows.get(top, "") + cell
        grid |= {
            (top + down, left + right): name for down in range(height) for right in range(width)
        }
    last, right = max(grid)
    markup = "".join(f"<tr>{rows.get(at, '')}</tr>" for at in range(last + 1))
    path.write_text(f"<table>{markup}</table>", encoding="utf-8")
    return [[grid[row, column] for column in range(right + 1)] for row in range(last + 1)]


def docx_file(path: Path, blocks: list[Block]) -> list[list[str]]:
    """Merge with python-docx, which also reads the grid."""
    document = docx.Document()
    rows, columns = (max(block[at] + block[at + 2] for block in blocks) for at in (0, 1))
    table = document.add_table(rows, columns)
    for top, left, height, width in blocks:
        cell = table.cell(top, left).merge(table.cell(top + height - 1, left + width - 1))
        cell.text = name_of((top, left, height, width))
    document.save(path)
    return [[table.cell(row, column).text for column in range(columns)] for row in range(rows)]


def pptx_file(path: Path, blocks: list[Block]) -> list[list[str]]:
    """Merge with python-pptx, whose cells know their merge."""
    deck = pptx.Presentation()
    rows, columns = (max(block[at] + block[at + 2] for block in blocks) for at in (0, 1))
    shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
    table = shapes.add_table(rows, columns, Inches(1), Inches(1), Inches(6), Inches(3)).table
    for top, left, height, width in blocks:
        table.cell(top, left).text = name_of((top, left, height, width))
        if (height, width) != (1, 1):
            table.cell(top, left).merge(table.cell(top + height - 1, left + width - 1))
    grid = {}
    for row in range(rows):
        for column in range(columns):
            cell = table.cell(row, column)
            if not cell.is_spanned:
                reach = (cell.span_height, cell.span_width) if cell.is_merge_origin else (1, 1)
                grid |= {
                    (row + a, column + b): cell.text
                    for a in range(reach[0])
                    for b in range(reach[1])
                }
    deck.save(path)
    return [[grid[row, column] for column in range(columns)] for row in range(rows)]


def xlsx_file(path: Path, blocks: list[Block]) -> list[list[str]]:
    """Merge with openpyxl, which lists merged ranges."""
    book = openpyxl.Workbook()
    sheet = book.active
    for top, left, height, width in blocks:
        sheet.cell(top + 1, left + 1, name_of((top, left, height, width)))
        if (height, width) != (1, 1):
            sheet.merge_cells(None, top + 1, left + 1, top + height, left + width)
    book.save(path)
    grid = [[str(cell.value) for cell in row] for row in sheet.iter_rows()]
    filled = [at for at, row in enumerate(grid) if {*row} != {"None"}]
    for merged in sheet.merged_cells.ranges:
        for row, column in merged.cells:
            grid[row - 1][column - 1] = sheet.cell(merged.min_row, merged.min_col).value
    return [grid[at] for at in filled]


def open_document(path: Path, blocks: list[Block], kind: str) -> list[list[str]]:
    """Write spans and covered cells; the grid is what they were drawn as."""
    grid = {
        (top + down, left + right): ((top, left, height, width), down or right)
        for top, left, height, width in blocks
        for down in range(height)
        for right in range(width)
    }
    rows, columns = (at + 1 for at in max(grid))
    markup = ""
    for row in range(rows):
        markup += "<table:table-row>"
        for column in range(columns):
            block, is_covered = grid[row, column]
            spans = (
                f'table:number-rows-spanned="{block[2]}" table:number-columns-spanned="{block[3]}"'
            )
            cell = f"<table:table-cell {spans}><text:p>{name_of(block)}</text:p></table:table-cell>"
            markup += "<table:covered-table-cell/>" if is_covered else cell
        markup += "</table:table-row>"
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "content.xml",
            f"<office:document-content {names}><office:body><office:{kind}><table:table table:name='s'>{markup}"
            f"</table:table></office:{kind}></office:body></office:document-content>",
        )
    own = [
        row
        for row in range(rows)
        if kind == "text" or any(not grid[row, column][1] for column in range(columns))
    ]
    return [[name_of(grid[row, column][0]) for column in range(columns)] for row in own]


WRITERS: dict[str, Callable[[Path, list[Block]], list[list[str]]]] = {
    "docx": docx_file,
    "html": html_file,
    "ods": lambda path, blocks: open_document(path, blocks, "spreadsheet"),
    "odt": lambda path, blocks: open_document(path, blocks, "text"),
    "pptx": pptx_file,
    "xlsx": xlsx_file,
}
