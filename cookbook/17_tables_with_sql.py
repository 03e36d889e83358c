"""Tables as data: find a table by a cell, and compute over tables of several files with SQL. No
model.

A workbook has the harvest of two years, a page the towns of the gardens. Their merged cells and
titles are read as a person reads them; each row of a result names the cells that it was computed
from.
"""

import tempfile
from pathlib import Path

import openpyxl

from lazyrag import Document, Retriever

PAGE = """<h1>Gardens</h1><table><caption>Where they are</caption>
<tr><th>garden</th><th>town</th></tr>
<tr><td>north slope</td><td rowspan="2">Uji</td></tr><tr><td>south slope</td></tr>
<tr><td>river side</td><td>Wazuka</td></tr></table>"""
HARVEST = [
    ["Harvest"],
    ["garden", "2023", None, "2024", None],
    [None, "kg", "EUR", "kg", "EUR"],
    ["north slope", 120, 4800, 135, 5900],
    ["south slope", 95, 3600, 80, 3300],
    ["river side", 210, 5250, 230, 6100],
]

with tempfile.TemporaryDirectory() as folder:
    book = openpyxl.Workbook()
    [sheet] = book.worksheets
    sheet.title = "Harvest"
    for row in HARVEST:
        sheet.append(row)
    for cells in ("A1:E1", "A2:A3", "B2:C2", "D2:E2"):
        sheet.merge_cells(cells)
    book.save(Path(folder, "harvest.xlsx"))
    Path(folder, "gardens.html").write_text(PAGE, encoding="utf-8")

    with Document(folder) as docs:
        # 1. The group "table" holds whole tables: a retriever finds one by any of its cells.
        [hit] = Retriever(docs, "table", similarity="bm25", topk=1)("Wazuka")
        print(f"{hit.path} [{hit.location}]\n{hit.text}\n")
        assert hit.path == "gardens.html"

        # 2. The tables, with the names that SQL uses: two header rows make one name of a column.
        for table in docs.tables.list():
            print(f"{table.name}({', '.join(table.columns)}): {table.caption}, {table.location}")
        assert docs.tables.list()[1].columns == (
            "garden",
            "_2023_kg",
            "_2023_eur",
            "_2024_kg",
            "_2024_eur",
        )

        # 3. Read-only SQL over both files; each row says which cells and rows it was made of.
        query = """
            SELECT town, sum(_2024_eur) AS eur, round(sum(_2024_eur) / sum(_2024_kg), 2) AS eur_per_kg
            FROM harvest JOIN gardens USING (garden) GROUP BY town ORDER BY eur DESC
        """
        rows = docs.tables.sql(query)
        for row in rows:
            cells = [place.cells for place in row.locations if place.cells]
            print(f"\n{row}\n  from {', '.join(cells)} of {row.locations[-1].path}", end="")
        assert rows == [
            {"town": "Uji", "eur": 9200, "eur_per_kg": 42.79},
            {"town": "Wazuka", "eur": 6100, "eur_per_kg": 26.52},
        ]
        assert [place.cells for place in rows[0].locations if place.cells] == ["A4:E4", "A5:E5"]

        # 4. A statement reaches these tables only.
        refused = ""
        try:
            docs.tables.sql("SELECT * FROM read_csv('/etc/passwd')")
        except ValueError as error:
            refused = str(error)
            print(f"\n\nRefused: {refused.splitlines()[0][:90]}")
assert "file system operations are disabled" in refused
