"""Light markup: `OrgLoader` and `AsciidocLoader`.

orgparse (BSD) reads the outline of Org, but no tables, links or code; no permissive package reads
AsciiDoc.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lazyrag.data.segment import CODE_BLOCK
from lazyrag.loaders.archives import picture_text
from lazyrag.loaders.base import LoadedFile, reading
from lazyrag.loaders.detect import find_encoding
from lazyrag.loaders.latex import formula_of
from lazyrag.loaders.tables import STEPS_PER_CELL, Grid, GridCell, TextLines, read_table

_FIELDS = ("title", "author", "date")
_CHARACTERS_PER_STEP = 8
_ORG_HEADING = re.compile(
    r"(\*+)[ \t]+([A-Z]{4,10}[ \t]+)?(?:\[#\w\][ \t]*)?(.*?)(?:[ \t]+:([\w@#%:]+):)?$"
)
_ORG_KEYWORD = re.compile(r"#\+(\w+)(?:\[[^\]]*\])?:[ \t]*(.*)$")
_ORG_BLOCK = re.compile(r"#\+(?:begin|end)_(\w+)", re.IGNORECASE)
_ORG_COMMENT = re.compile(r"[ \t]*#(?:[ \t]|$)")
_ORG_RULE = re.compile(r"\|[-+|]+$")
_ORG_VERBATIM = frozenset(["src", "example", "export", "comment"])
_ORG_INLINE = re.compile(
    r"\[\[(?P<target>[^\[\]]+)\](?:\[(?P<label>[^\[\]]+)\])?\]"
    r"|\[fn:(?P<note>[\w-]*)(?::(?P<inline>[^\[\]]*))?\]"
    r"|\{\{\{\w+\((?P<arguments>[^{}]*)\)\}\}\}"
    r"|\\[(\[](?P<formula>.{1,300}?)\\[)\]]|<<<?(?P<anchor>[^<>]*)>>>?"
    r"|(?<![\w*/+_=~])(?P<mark>[*/+_=~])(?P<words>\S(?:.{0,200}?\S)?)(?P=mark)(?![\w*/+_=~])",
    re.DOTALL,
)

_ADOC_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*?)(?:[ \t]+\1)?$")
_ADOC_UNDERLINE = re.compile(r"=+|-+|~+|\^+|\++")
_ADOC_FIELD = re.compile(r":!?(\w[\w-]*)!?:(?:[ \t]+(.*))?$")
_ADOC_ATTRIBUTES = re.compile(r"\[\[?(?:[\w.#%\"'].*)?\]$")
_ADOC_LABEL = re.compile(
    r"\[(?:(NOTE|TIP|IMPORTANT|WARNING|CAUTION)|(?:quote|verse),[ \t]*(.+))\]$"
)
_ADOC_FENCE = re.compile(r"(?:-{4,}|\.{4,}|\+{4,}|/{4,}|={4,}|\*{4,}|_{4,}|--|```\w*)$")
_ADOC_AUTHOR = re.compile(r"([^\W\d_][^<>:=|]*?)[ \t]*(?:<[^<>]*>)?$")
_ADOC_DATE = re.compile(r"(?:v[\w.]+,[ \t]*)?(\w[^:]*\d[^:]*?)(?::.*)?$")
_ADOC_ITEM = re.compile(r"[ \t]*(?:([*-])\1*|(\.{1,5}))[ \t]+(?=\S)")
_ADOC_REFERENCE = re.compile(r"\{([\w-]{1,99})\}")
_ADOC_COLUMN = re.compile(r"(\d{1,2})\*|[^,;\"]+")
_ADOC_CELL = re.compile(
    r"(?<!\\)(?:(?<!\S)(?:(\d{1,2})?(?:\.(\d{1,2}))?([+*]))?[<^>]?(?:\.[<^>])?[adehlms]?)?\|"
)
_ADOC_INLINE = re.compile(
    r"<<(?P<target>[^<>,]+)(?:,(?P<label>[^<>]+))?>>|\(\(\([^()]*\)\)\)"
    r"|(?:link:)?(?P<url>(?:https?|ftp)://[^\s\[\]<>]{1,300})\[(?P<link>[^\[\]]*)\]"
    r"|(?<!\w)(?P<macro>[a-z]{2,20})::?(?P<of>[^\s\[\]]{0,300})\[(?P<text>[^\[\]]*)\]"
    r"|(?<![\w*_`#+])(?P<mark>\*\*?|__?|``?|##?|\+)(?P<words>\S(?:.{0,200}?\S)?)(?P=mark)(?!\w)",
    re.DOTALL,
)
_ADOC_UNSEEN = frozenset("anchor endif ifdef ifeval ifndef indexterm toc".split())
_ADOC_CHARACTERS = {"nbsp": " ", "sp": " ", "empty": "", "amp": "&", "lt": "<", "gt": ">"}


class OrgLoader:
    """Reads Org as text without its marks: headings become locations, tables lines with ``|``
    between the cells; code keeps its indentation.

    ``#+TITLE``, ``#+AUTHOR`` and ``#+DATE`` become metadata; the title is the first heading. Other
    keywords fill declared fields. Links are read as their text. Comments and property drawers are
    left out.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        return _OrgText().read(path)


class AsciidocLoader:
    """Reads AsciiDoc as text without its marks: headings become locations, tables lines with ``|``
    between the cells; code keeps its indentation.

    Title, author and date of the header become metadata, other attributes fill declared fields.
    Links are read as their text. Comments and attributes of blocks are left out.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        return _AdocText().read(path)


@dataclass(slots=True)
class _MarkupText(TextLines):
    """A text that is read line by line."""

    fields: dict[str, str] = field(default_factory=dict)
    source: list[str] = field(default_factory=list)
    last_lines: dict[str, int] = field(default_factory=dict)  # the last number of each line
    closing: str = ""  # of a block whose lines are no markup
    is_left_out: bool = False
    code: list[str] = field(default_factory=list)
    table: list[str] = field(default_factory=list)
    paragraph: list[str] = field(default_factory=list)  # lines whose marks may span them

    def read(self, path: Path) -> LoadedFile:
        read = find_encoding(path.read_bytes())
        lines = [line.rstrip() for line in read.text.splitlines()]
        self.last_lines = {line.strip().lower(): number for number, line in enumerate(lines)}
        self.source = [*lines, ""]
        for number, line in enumerate(lines):
            if not self.closing:
                self.read_line(number, line)
            elif line.strip().lower() == self.closing:
                self.end_code()
            elif not self.is_left_out:
                self.code.append(line)
        self.end_code()
        self.end_table()
        self.end_paragraph()
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        reading().fields |= self.fields
        named = {name: self.fields[name] for name in _FIELDS if self.fields.get(name)}
        return self.loaded({**named, **read.metadata})

    def read_line(self, number: int, line: str) -> None:
        raise NotImplementedError

    def end_table(self) -> None:
        raise NotImplementedError

    def begins_block(self, number: int, closing: str, *, is_left_out: bool = False) -> bool:
        """Whether a block that ends with a line begins: to leave out lines, it must have an end."""
        if is_left_out and self.last_lines.get(closing, -1) <= number:
            return False
        self.closing = closing
        self.is_left_out = is_left_out
        return True

    def end_code(self) -> None:
        if self.code:
            self.end_paragraph()
            self.add("\n".join(self.code), (CODE_BLOCK, ""))
        self.code = []
        self.closing = ""

    def inline(self, line: str) -> str:
        raise NotImplementedError

    @property
    def is_first(self) -> bool:
        """Whether a block may begin here."""
        return not self.paragraph and not (self.lines and self.lines[-1])

    def put(self, line: str, level: int = 0) -> None:
        """Add a line, after a heading an empty one; of several empty ones the first."""
        self.end_paragraph()
        if line or not self.is_first:
            self.add(line, level)
        if level:
            self.add("")

    def end_paragraph(self) -> None:
        text = self.inline("\n".join(self.paragraph))
        self.paragraph = []
        shown = [line for line in text.split("\n") if line.strip()]
        if shown:
            self.add("\n".join(shown))

    def put_words(self, line: str) -> None:
        """Add a line of a paragraph."""
        if line:
            self.paragraph.append(line)
        else:
            self.put("")

    def put_table(self, rows: Iterable[Iterable[GridCell]], header: int) -> None:
        self.table = []
        self.end_paragraph()
        text, tables = read_table(rows, header=header)
        if text:
            self.add(text, tables)


class _OrgText(_MarkupText):
    __slots__ = ()

    def read_line(self, number: int, line: str) -> None:
        bare = line.strip()
        if bare.startswith("|"):
            self.table.append(bare)
            return
        self.end_table()
        heading = _ORG_HEADING.match(line)
        if bare.startswith("#+"):
            self._directive(number, bare)
        elif bare.lower() == ":properties:" and self.begins_block(
            number, ":end:", is_left_out=True
        ):
            pass
        elif heading:
            self.put((heading[2] or "") + self.inline(heading[3]), len(heading[1]) + 1)
            if heading[4]:
                self.put(f"Tags: {', '.join(heading[4].split(':'))}")
        elif bare.startswith(": "):
            self.put(line.replace(": ", "", 1))
        elif not _ORG_COMMENT.match(line):
            self.put_words(line.removesuffix("\\\\"))

    def _directive(self, number: int, line: str) -> None:
        """Read the begin or end of a block, or a keyword."""
        block = _ORG_BLOCK.match(line)
        keyword = _ORG_KEYWORD.match(line)
        if block:
            kind = block[1].lower()
            if kind in _ORG_VERBATIM and line.lower().startswith("#+begin"):
                self.begins_block(number, f"#+end_{kind}", is_left_out=kind == "comment")
        elif keyword:
            name = keyword[1].lower()
            text = self.inline(keyword[2])
            self.fields.setdefault(name, text)
            if name in ("title", "caption"):
                self.put(text, int(name == "title"))
        else:
            self.put(line)

    def end_table(self) -> None:
        rows = [row for row in self.table if not _ORG_RULE.match(row)]
        header = next((at for at, row in enumerate(self.table) if _ORG_RULE.match(row)), 0)
        if rows:
            self.put_table(map(self._cells, rows), header)

    def _cells(self, row: str) -> Iterator[GridCell]:
        for cell in row.removesuffix("|")[1:].split("|"):
            yield GridCell(" ".join(self.inline(cell).replace("\\vert{}", "|").split()))

    def inline(self, line: str) -> str:
        return _ORG_INLINE.sub(self._shown, line)

    def _shown(self, match: re.Match[str]) -> str:
        if match["mark"]:
            return match["words"] if match["mark"] in "=~" else self.inline(match["words"])
        if match["target"]:
            return match["label"] or match["target"]
        if match["formula"]:
            return formula_of(match["formula"])
        if match["inline"]:
            return f" ({match['inline'].strip()})"
        return match["arguments"] or match["anchor"] or f"[{match['note'] or ''}]"


@dataclass(slots=True)
class _AdocText(_MarkupText):
    attributes: str = ""  # those above a block
    in_header: bool = False
    to_skip: int = 0
    numbers: list[int] = field(default_factory=list)
    fence: str = ""  # of a table

    def read_line(self, number: int, line: str) -> None:
        heading = _ADOC_HEADING.match(line)
        after = self.source[number + 1]
        field_of = _ADOC_FIELD.match(line)
        if self.fence:
            self._table_line(line)
        elif number < self.to_skip or (line.startswith("//") and not line.startswith("///")):
            return
        elif self._is_underlined(line, after):
            self.to_skip = number + 2
            self._heading(self.inline(line), "=-~^+".index(after[0]) + 1)
        elif heading:
            self._heading(self.inline(heading[2]), len(heading[1]))
        elif field_of:
            name = {"revdate": "date", "doctitle": "title"}.get(field_of[1], field_of[1])
            self.fields[name] = self.inline(field_of[2] or "")
        elif self.in_header and line:
            self._header(line)
        else:
            self.in_header = False
            self._block(number, line)

    def _heading(self, title: str, level: int) -> None:
        self.in_header = level == 1 and not self.lines
        if self.in_header:
            self.fields["title"] = title
        self.numbers = []
        self.put(title, level)

    def _is_underlined(self, line: str, after: str) -> bool:
        is_rule = _ADOC_UNDERLINE.fullmatch(after) is not None and len(after) > 1
        has_words = re.search(r"\w", line) is not None and not _ADOC_ATTRIBUTES.match(line)
        return self.is_first and is_rule and has_words and abs(len(line) - len(after)) <= 1

    def _header(self, line: str) -> None:
        """Read a line below the title: authors, then a version and its date."""
        authors = [_ADOC_AUTHOR.match(part.strip()) for part in line.split(";")]
        date = _ADOC_DATE.match(line)
        if "author" not in self.fields and all(authors):
            self.fields["author"] = ", ".join(author[1] for author in authors if author)
        elif "date" not in self.fields and date:
            self.fields["date"] = date[1]
        else:
            self.put_words(line)

    def _block(self, number: int, line: str) -> None:
        label = _ADOC_LABEL.match(line)
        if line.startswith("|==="):
            self.fence = line
        elif _ADOC_FENCE.match(line):
            if line[0] in "-.+/`" and line != "--":
                closing = line if line[0] != "`" else "```"
                self.begins_block(number, closing, is_left_out=line[0] == "/")
        elif label:
            self.put(f"{label[1] or label[2]}:")
        elif _ADOC_ATTRIBUTES.match(line):
            self.attributes = line
        elif line not in ("+", "'" * 3, "<<<"):
            self._words(line)

    def _words(self, line: str) -> None:
        item = _ADOC_ITEM.match(line)
        text = line.removesuffix(" +")
        if item:
            mark = "-"
            if depth := len(item[2] or ""):
                self.numbers = [*self.numbers[:depth], *[0] * (depth - len(self.numbers))]
                self.numbers[-1] += 1
                mark = f"{self.numbers[-1]}."
            indentation = "   " * (len(item[0].strip()) - 1)
            text = f"{indentation}{mark} {text[item.end() :]}"
        elif line[:1] == "." and line[1:2] not in ("", ".", " "):
            text = line[1:]
        elif line and self.is_first:
            self.numbers = []
        self.put_words(text)

    def _table_line(self, line: str) -> None:
        if line == self.fence:
            self.end_table()
        else:
            self.table.append(line)

    def end_table(self) -> None:
        lines = self.table
        self.fence = ""
        if not lines:
            return
        named = re.search(r"cols=(\"[^\"]*\"|[^,\]]+)", self.attributes)
        columns = sum(int(part[1] or 1) for part in _ADOC_COLUMN.finditer(named[1])) if named else 0
        first = next(filter(None, lines), "")
        is_header = "header" in self.attributes or (lines[0] and "" in lines[1:2])
        rows = _rows(list(self._cells("\n".join(lines))), columns or len(_ADOC_CELL.findall(first)))
        self.attributes = ""
        self.put_table(rows, int(is_header))

    def _cells(self, text: str) -> Iterator[GridCell]:
        marks = list(_ADOC_CELL.finditer(text))
        lead = text[: marks[0].start() if marks else len(text)].strip()
        if lead:
            yield GridCell(lead)
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        for mark, end in zip(marks, ends, strict=True):
            words = self.inline(" ".join(text[mark.end() : end].split())).replace("\\|", "|")
            count = int(mark[1] or 1)
            height = int(mark[2] or 1)
            reading().spend(STEPS_PER_CELL * count * height)
            if mark[3] == "*":
                yield from (GridCell(words) for _ in range(count))
            else:
                yield GridCell(words, max(1, count), max(1, height))

    def inline(self, line: str) -> str:
        line = _ADOC_REFERENCE.sub(self._value, line)
        return _ADOC_INLINE.sub(self._shown, line)

    def _value(self, match: re.Match[str]) -> str:
        text = self.fields.get(match[1], _ADOC_CHARACTERS.get(match[1], match[0]))
        reading().spend(len(text) // _CHARACTERS_PER_STEP)  # attributes may repeat each other
        return text

    def _shown(self, match: re.Match[str]) -> str:
        if match["mark"]:
            return match["words"] if match["mark"][0] in "`+" else self.inline(match["words"])
        if match["macro"]:
            return _macro_text(match["macro"], match["of"], match["text"], match[0])
        return match["label"] or match["target"] or match["link"] or match["url"] or ""


def _rows(cells: list[GridCell], columns: int) -> Grid:
    """The cells of a table in rows of so many columns."""
    rows: Grid = []
    covered: list[int] = []  # columns of the rows below that cells above fill
    free = 0
    for cell in cells:
        if free <= 0:
            free = columns - (covered.pop(0) if covered else 0)
            rows.append([])
        rows[-1].append(cell)
        free -= cell.columns
        covered += [0] * (cell.rows - 1 - len(covered))
        for below in range(cell.rows - 1):
            covered[below] += cell.columns
    return rows


def _macro_text(name: str, target: str, text: str, source: str) -> str:
    if name in _ADOC_UNSEEN:
        return ""
    if name == "include":
        return source
    if name == "image":
        return picture_text(text.partition(",")[0].strip('"'))
    if name in ("stem", "latexmath"):
        return formula_of(text)
    if name == "footnote":
        return f" ({text})"
    return text or target
