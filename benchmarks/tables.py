"""How many cells of tables with merged cells stand under the name of their column, beside
markitdown.

    python benchmarks/tables.py [--grids 40]

For each format, random grids with merged cells are written with python-docx, python-pptx, openpyxl
or as markup. A cell counts if an engine's text has its value in its row, under the name of its
column: rows with ``|`` between the cells, or ``name: value``. An engine may repeat a merged value
in each cell that it covers, or not: ``first`` counts the cells where merged cells begin, ``all``
every cell; both are 0 for a format that an engine does not read. Figures go to build/bench.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from engine import EngineError, open_engines
from results import Row, save, table

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.table_files import WRITERS, drawn_blocks, name_of

ENGINES = {"lazyrag": ("Lazyrag", None), "markitdown": ("Markitdown", "peers-formats")}
COLUMNS = ("format", "engine", "grids", "first", "all")


def parsed(text: str) -> list[dict[str, str]]:
    """The rows of the only table in a text: values by the name of their column."""
    rows: list[dict[str, str]] = []
    names: list[str] = []
    for line in text.splitlines():
        cells = [
            cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")
        ]
        if line.startswith("h") and ": " in line:
            rows.append(dict(pair.split(": ", 1) for pair in line.split("; ")))
        elif not set(line) - set("|-: "):  # Markdown's rule, or an empty header
            continue
        elif "|" in line and not names:
            names = cells
        elif "|" in line:
            rows.append(dict(zip(names, cells, strict=False)))
    return rows


def main() -> int:
    """Measure all formats, print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--grids", type=int, default=40, help="tables for each format")
    options = parser.parse_args()
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engines, left_out = open_engines(stack, "formats", ENGINES)
        for suffix, write in WRITERS.items():
            right = {name: [0, 0] for name in engines}
            sums = [0, 0]
            draw = random.Random(suffix)
            for number in range(options.grids):
                blocks = drawn_blocks(draw, draw.randint(3, 6), draw.randint(2, 5))
                path = folder / f"{number}.{suffix}"
                names, *body = write(path, blocks)
                cells = [
                    (at, name, value)
                    for at, row in enumerate(body)
                    for name, value in zip(names, row, strict=True)
                ]
                begun = {name_of(block): f"h0x{block[1]}" for block in blocks}
                first = {
                    (at, name)
                    for at, name, value in cells
                    if begun[value] == name and not (at and value in body[at - 1])
                }
                sums[0] += len(first)
                sums[1] += len(cells)
                for name, engine in engines.items():
                    try:
                        found = parsed(engine.call("read", path=str(path)))
                    except EngineError:  # it does not read this format
                        continue
                    for at, column, value in cells:
                        if at < len(found) and found[at].get(column) == value:
                            right[name][1] += 1
                            right[name][0] += (at, column) in first
            for name, (begin, every) in right.items():
                row: Row = {"format": suffix, "engine": name, "grids": options.grids}
                rows.append({**row, "first": begin / sums[0], "all": every / sums[1]})
    print(table(rows, COLUMNS))
    save("tables", rows, left_out=left_out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
