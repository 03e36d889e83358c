"""LaTeX: `LatexLoader`.

A scanner of our own: pylatexenc (MIT) has no places of headings, no tables and no user macros, and
recurses once for each nested group.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from html.entities import html5
from pathlib import Path

from lazyrag.data.segment import CODE_BLOCK, EMPTY, Span
from lazyrag.loaders.base import LoadedFile, reading
from lazyrag.loaders.detect import find_encoding
from lazyrag.loaders.formulas import bracketed, fraction, root
from lazyrag.loaders.tables import (
    STEPS_PER_CELL,
    Grid,
    GridCell,
    LineKind,
    TextLines,
    numbered_notes,
    one_line,
    read_table,
)
from lazyrag.types import Metadata

MAX_DEPTH = 60
"""Nesting of arguments; deeper ones are read as they are."""
_MAX_TABLES = 5
_MAX_EXPANDED = 1 << 18
"""Characters of all macros that a file defines, where it uses them."""

_PROTECTED = re.compile(
    r"\\begin\{(?P<block>[vV]erbatim|lstlisting|minted|comment)\*?\}(?:\[[^\]\n]*\]|\{\w*\})*"
    r"|\\(?:verb|lstinline)\*?(?P<mark>[^\w\s*{\[])(?P<code>[^\n]{0,1000}?)(?P=mark)"
    r"|\\[\s\S]|%[^\n]*(?:\n(?![ \t]*\n)[ \t]*)?"
)
"""Code and comments, in which nothing is a command."""
_TOKEN = re.compile(r"\\(?P<name>[A-Za-z@]+)\*?|\\(?P<sign>[\s\S])|\$\$?|---?|``|''|[{}^_`~&]")
_BRACE = re.compile(r"\\[\s\S]|[{}]")
_OPTION = re.compile(r"\s?\[((?:[^\[\]{}]|\{[^{}]*\})*)\]")
_DEFINED = re.compile(r"\s*\{?\s*\\([A-Za-z@]+)\s*\}?\s*(?:\[(\d)\](?:\[([^\[\]]*)\])?|((?:#\d)*))")
_PARAMETER = re.compile(r"#([1-9])")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")

_NO_WORDS = re.compile(r"\s*\[\d+\]|\s+(?=,)")

# The text of a file has no control characters: these mark what is put in at the end.
_KEPT = re.compile("\x01([0-9]+)\x02")
_HEADING = "\x03"
_BREAK = "\x04"
_BREAKS = re.compile(" ?\n?(?: ?\x04)+ ?\n?")

_FIELDS = ("title", "author", "date")
_TITLES = "part chapter section subsection subsubsection paragraph subparagraph frametitle"
_LEVELS = {name: level for level, name in enumerate(_TITLES.split(), start=2)}
_MARKS = {"---": "—", "--": "–", "``": "“", "''": "”", "`": "'", "~": " "}
_FORMULA_MARKS = {"&": " ", "~": " "}
_ACCENTS = dict(
    zip(
        "` ' ^ \" ~ = . u v H c k r d b hat bar tilde dot ddot vec".split(),
        "\u0300\u0301\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0328\u030a\u0323"
        "\u0331\u0302\u0304\u0303\u0307\u0308\u20d7",
        strict=True,
    )
)
_SYMBOL_WORDS = (
    "ss ß o ø O Ø l ł L Ł ae æ AE Æ oe œ OE Œ aa å AA Å i i j j infty ∞ partial ∂ to → neq ≠"
    " ldots … dots … cdots … S § P ¶ pounds £ euro € textbackslash \\ textasciitilde ~"
    " textasciicircum ^ textbar | textdegree ° degree ° textless < textgreater > textendash –"
    " textemdash — textregistered ® texttrademark ™ copyright © mid | land ∧ lor ∨ implies ⇒ iff ⇔"
    " ell ℓ circ ° and , LaTeX LaTeX TeX TeX BibTeX BibTeX"
).split()
_FUNCTIONS = (
    "arg cos cosh cot deg det dim exp gcd inf lim ln log max min mod sin sinh sup tan tanh".split()
)
_SYMBOLS = {
    **dict(zip(_SYMBOL_WORDS[::2], _SYMBOL_WORDS[1::2], strict=True)),
    **{name: f"{name} " for name in _FUNCTIONS},
    **dict.fromkeys("quad qquad enspace thinspace".split(), " "),
    "newline": "\n",
    "par": "\n\n",
}
_LAYOUT = (
    "Big Bigg Bigl Bigr Huge LARGE Large addlinespace ang appendix backmatter bf bfseries big"
    " bigg bigl bigr bigskip bottomrule centering clearpage displaystyle em footnotesize"
    " frontmatter hfill hline huge it itshape large left limits listoffigures listoftables"
    " mainmatter makeatletter makeatother medskip midrule newblock newpage nobreak noindent"
    " nonumber normalsize null num onecolumn pagebreak printbibliography protect raggedright"
    " relax right rm rmfamily sc scriptsize scshape sf sffamily sl small smallskip"
    " tableofcontents textstyle tiny today toprule tt ttfamily twocolumn unskip vfill xspace"
)
# How many arguments of a command are left out; those that follow are read.
_LEFT_OUT = {
    **dict.fromkeys(_LAYOUT.split(), 0),
    **dict.fromkeys(
        "addbibresource autocite autoref bibitem bibliography bibliographystyle cite citealp"
        " citeauthor citep citet citeyear cline cmidrule color colorbox Cref cref documentclass"
        " eqref footcite geometry graphicspath href hspace hyperref hypersetup includegraphics"
        " index label newcounter newlength nocite pageref pagestyle parencite ref tag textcite"
        " textcolor thispagestyle usepackage usetikzlibrary vspace".split(),
        1,
    ),
    **dict.fromkeys(
        "addtocounter addtolength fontsize multirow newtheorem parbox resizebox scalebox"
        " setcounter setlength".split(),
        2,
    ),
    **dict.fromkeys(("addcontentsline", "definecolor", "newenvironment", "renewenvironment"), 3),
}
_FORMULAS = frozenset(
    "align alignat aligned array bmatrix cases displaymath eqnarray equation flalign gather math"
    " matrix multline pmatrix split vmatrix".split()
)
_LISTS = {"itemize": -1, "description": -1, "enumerate": 0}
_TABLES = {"tabular": 1, "longtable": 1, "tabularx": 2, "tabulary": 2}
# How many arguments of an environment are left out, and an option before them.
_PLAIN = {
    **dict.fromkeys("figure table center quote quotation flushleft flushright document".split(), 0),
    **dict.fromkeys(("minipage", "multicols", "thebibliography", "subfigure"), 1),
    "wrapfigure": 2,
    **dict.fromkeys(_LISTS, 0),
    **_TABLES,
}


class LatexLoader:
    r"""Reads LaTeX as text: sections become locations, rows of tables lines with ``|`` between the
    cells, formulas lines such as ``a/(b+c)``.

    Commands are left out, and the texts in their braces are read; macros that the file defines are
    expanded. Unknown commands without braces stay as they are. Footnotes follow the text, as
    locations of kind ``footnote``. Of the preamble, title, author and date become metadata; the
    title is the first heading where the file prints it. Comments, citations, references and labels
    are left out.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        return read_latex(read.text, read.metadata)


def read_latex(source: str, metadata: Metadata = EMPTY) -> LoadedFile:
    r"""Read LaTeX.

    Example:
        >>> read_latex(r"\section{Tea} Gr\"uner \textbf{Tee}, $\frac{1}{2}$~l % cold").text
        'Tea\n\nGrüner Tee, 1/2 l'
    """
    document = _LatexDocument()
    text = document.protect(source.replace("\r\n", "\n").replace("\r", "\n"))
    before, begin, body = text.partition(r"\begin{document}")
    if begin:
        document.render(before)
        text = body.partition(r"\end{document}")[0]
    return document.loaded(document.render(text), metadata)


def formula_of(latex: str) -> str:
    r"""A formula of LaTeX on a line.

    Example:
        >>> formula_of(r"\sqrt{\alpha_{ij}} \leq x^2")
        'sqrt(α_ij) ≤ x^2'
    """
    document = _LatexDocument()
    return document.restored(document.render(latex, is_formula=True))


@dataclass(slots=True)
class _LatexDocument:
    """What the scopes of a file share."""

    macros: dict[str, tuple[int, str | None, str]] = field(default_factory=dict)
    kept: list[tuple[str, LineKind]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    items: list[int] = field(default_factory=list)  # numbers of open lists; -1 for bullets
    depth: int = 0
    expanded: int = 0
    is_titled: bool = False

    def keep(self, text: str, kind: LineKind = 0) -> str:
        """The mark of a text that is put in at the end, as it is."""
        self.kept.append((text, kind))
        return f"\x01{len(self.kept) - 1}\x02"

    def protect(self, text: str) -> str:
        """The text without comments, and with marks for code."""
        pieces = []
        at = 0
        while match := _PROTECTED.search(text, at):
            pieces.append(text[at : match.start()])
            at = match.end()
            if block := match["block"]:
                end = text.find(f"\\end{{{block}", at)
                code = text[at : end if end >= 0 else len(text)]
                at = text.find("}", at + len(code)) + 1 or len(text)
                if block != "comment":
                    pieces += (
                        _BREAK,
                        self.keep(code.strip("\n").rstrip(), (CODE_BLOCK, "")),
                        _BREAK,
                    )
            elif match["mark"]:
                pieces.append(self.keep(match["code"]))
            elif match[0][0] != "%":
                pieces.append(match[0])
        return "".join([*pieces, text[at:]])

    def render(self, text: str, *, is_formula: bool = False) -> str:
        ends = {}
        opened = []
        for match in _BRACE.finditer(text):
            if match[0] == "{":
                opened.append(match.start())
            elif match[0] == "}" and opened:
                ends[opened.pop()] = match.start()
        return _Scope(self, text, ends, 0, len(text), is_formula).render()

    def restored(self, text: str) -> str:
        """A line with the code that is marked in it."""
        line = " ".join(text.replace(_HEADING, " ").replace(_BREAK, " ").split())
        if "\x01" in line:
            line = _KEPT.sub(lambda match: self.kept[int(match[1])][0], line)
        return line

    def loaded(self, text: str, metadata: Metadata) -> LoadedFile:
        lines = TextLines(notes=self.notes)
        text = _BREAKS.sub("\n", re.sub("[ \t]+", " ", text))
        for line in text.strip().split("\n"):
            bare = line.strip()
            block = _KEPT.fullmatch(bare)
            if block:
                lines.add(*self.kept[int(block[1])])
            elif bare.startswith(_HEADING):
                lines.add(self.restored(bare[2:]), int(bare[1]))
            elif bare or (lines.lines and lines.lines[-1]):  # one of several empty lines
                lines.add(self.restored(bare))
        lines.add_all(numbered_notes(map(self.restored, self.notes)))
        fields = {name: self.restored(value) for name, value in self.fields.items()}
        filled = {name: value for name, value in fields.items() if value}
        return lines.loaded({**filled, **metadata})


@dataclass(slots=True)
class _TableFrame:
    """A table that is being read: where its cell begins in the output."""

    cell: int
    rows: Grid = field(default_factory=lambda: [[]])
    columns: int = 1


@dataclass(slots=True)
class _Scope:
    """Reads a text, or an argument in it, from a position to another."""

    document: _LatexDocument
    text: str
    ends: dict[int, int]
    at: int
    stop: int
    is_formula: bool = False
    out: list[str] = field(default_factory=list)
    tables: list[_TableFrame] = field(default_factory=list)

    def render(self) -> str:
        while match := _TOKEN.search(self.text, self.at, self.stop):
            self._plain(self.text[self.at : match.start()])
            self.at = match.end()
            if match["name"]:
                self._command(match["name"])
            elif match["sign"]:
                self._sign(match["sign"])
            else:
                self._mark(match[0])
        self._plain(self.text[self.at : self.stop])
        while self.tables:
            self._end_table()
        return "".join(self.out)

    def _plain(self, text: str) -> None:
        if self.is_formula and _PARAGRAPH.search(text):  # a lone dollar sign
            self.is_formula = False
        self.out.append(text)

    def _mark(self, mark: str) -> None:
        if mark[0] == "$":
            self.is_formula = not self.is_formula
        elif mark == "}" and not self.is_formula and self.text.startswith("{", self.at):
            self.out.append(" ")  # between arguments of an unknown command
        elif mark == "&" and self.tables:
            self._end_cell()
        elif mark in ("^", "_") and self.is_formula:
            text = self._argument()
            self.out.append(text if text == "°" else mark + bracketed(text))
        elif mark not in ("{", "}"):
            self.out.append((_FORMULA_MARKS if self.is_formula else _MARKS).get(mark, mark))

    def _sign(self, sign: str) -> None:
        if sign == "\\":
            self._option()
            if self.tables:
                self._end_cell()
                self.tables[-1].rows.append([])
            else:
                self.out.append("; " if self.is_formula else "\n")
        elif sign in "([":
            self.is_formula = True
        elif sign in ")]":
            self.is_formula = False
        elif sign in _ACCENTS and not self.is_formula:
            self._accent(sign)
        elif sign not in "!/-@":
            self.out.append(" " if sign in ",;:> \n" else sign)

    def _command(self, name: str) -> None:
        document = self.document
        if name in document.macros:
            self._expand(*document.macros[name])
        elif name in _COMMANDS:
            _COMMANDS[name](self)
        elif name in _LEVELS:
            self._option()
            if title := " ".join(self._argument().split()):
                self.out.append(f"\n\n{_HEADING}{_LEVELS[name]}{title}\n\n")
        elif name in _FIELDS:
            self._option()
            document.fields[name] = _NO_WORDS.sub("", self._argument())
        elif name in _LEFT_OUT:
            self._leave_out(_LEFT_OUT[name])
        elif name in _ACCENTS:
            self._accent(name)
        else:
            self._symbol(name)

    def _symbol(self, name: str) -> None:
        is_alone = not self.text.startswith("{", self.at)
        if name in _SYMBOLS:
            self.out.append(_SYMBOLS[name])
            if len(name) <= 2 and not self.is_formula:
                self._skip_spaces()  # of letters, such as \o
        elif f"{name};" in html5 and (is_alone or self.is_formula):
            self.out.append(html5[f"{name};"])
        elif is_alone:
            self.out.append(f"\\{name}")

    def _leave_out(self, count: int) -> None:
        self._option()
        for _ in range(count):
            self._option()
            self._span()

    def _skip_spaces(self) -> None:
        while self.at < self.stop and self.text[self.at].isspace():
            self.at += 1

    def _span(self) -> Span:
        """Move behind the next argument, and return where it is; an open brace is none."""
        before = self.at
        self._skip_spaces()
        start = self.at
        end = self.ends.get(start, self.stop)
        if end < self.stop:
            self.at = end + 1
            return start + 1, end
        token = _TOKEN.match(self.text, start, self.stop)
        if start < self.stop and self.text[start] not in "{}&$":
            end = self.at = token.end() if token else start + 1
            if token and token["name"]:
                self._skip_spaces()
            return start, end
        self.at = before
        return before, before

    def _source(self) -> str:
        """Move behind the next argument, and return its source."""
        start, end = self._span()
        return self.text[start:end]

    def _argument(self) -> str:
        """Move behind the next argument, and return its text."""
        return self._text_of(*self._span())

    def _text_of(self, start: int, end: int) -> str:
        document = self.document
        if document.depth >= MAX_DEPTH:
            return self.text[start:end]
        document.depth += 1
        scope = _Scope(document, self.text, self.ends, start, end, self.is_formula)
        text = scope.render()
        document.depth -= 1
        return text

    def _option(self) -> Span | None:
        """Move behind an option in brackets, and return where it is; None without one."""
        match = _OPTION.match(self.text, self.at, self.stop)
        if match is None:
            return None
        self.at = match.end()
        return match.span(1)

    def _accent(self, name: str) -> None:
        base = self._argument().strip()
        accented = base[:1] + _ACCENTS[name] + base[1:] if base else name
        self.out.append(unicodedata.normalize("NFC", accented))

    def _expand(self, count: int, default: str | None, body: str) -> None:
        document = self.document
        arguments = []
        if default is not None:
            option = self._option()
            arguments.append(self.text[slice(*option)] if option else default)
        while len(arguments) < count:
            arguments.append(self._source())
        arguments += [""] * 9
        text = _PARAMETER.sub(lambda match: arguments[int(match[1]) - 1], body)
        document.expanded += len(text) + 1
        if document.depth >= MAX_DEPTH or document.expanded > _MAX_EXPANDED:
            self.out.append(text)
            return
        document.depth += 1
        self.out.append(document.render(text, is_formula=self.is_formula))
        document.depth -= 1

    def _define(self) -> None:
        match = _DEFINED.match(self.text, self.at, self.stop)
        if match is None:
            return
        self.at = match.end()
        name, count, default, parameters = match.groups()
        body = self._source()
        if name not in _KNOWN:
            number = int(count or 0) or len(parameters or "") // len("#1")
            self.document.macros[name] = number, default, body

    def _begin(self) -> None:
        name = self._source().strip().removesuffix("*")
        self.out.append(_BREAK)
        if name in _FORMULAS:
            self.is_formula = True
            if name in ("array", "alignat"):
                self._leave_out(1)
        elif name in _PLAIN:
            self._leave_out(_PLAIN[name])
            if name in _TABLES and len(self.tables) < _MAX_TABLES:
                self.tables.append(_TableFrame(len(self.out)))
            elif name in _LISTS:
                self.document.items.append(_LISTS[name])

    def _end(self) -> None:
        name = self._source().strip().removesuffix("*")
        if name in _FORMULAS:
            self.is_formula = name in ("array", "aligned", "cases", "split") or "matrix" in name
        elif name in _TABLES and self.tables:
            self._end_table()
        elif name in _LISTS and self.document.items:
            self.document.items.pop()
        self.out.append("" if self.is_formula else _BREAK)

    def _item(self) -> None:
        items = self.document.items
        option = self._option()
        mark = "-"
        if option is not None:
            mark = self._text_of(*option)
        elif items and items[-1] >= 0:
            items[-1] += 1
            mark = f"{items[-1]}."
        self.out.append(f"{_BREAK}{mark} ")

    def _note(self) -> None:
        self._option()
        text = self._argument()
        self.document.notes.append(text)
        self.out.append(f"[{len(self.document.notes)}]")

    def _end_cell(self) -> None:
        reading().spend(STEPS_PER_CELL)
        table = self.tables[-1]
        text = self.document.restored("".join(self.out[table.cell :]))
        del self.out[table.cell :]
        table.rows[-1].append(GridCell(text, table.columns))
        table.columns = 1

    def _span_columns(self) -> None:
        count = self._source().strip()
        self._span()
        text = self._argument()
        if self.tables and re.fullmatch("[1-9][0-9]?", count):
            self.tables[-1].columns = int(count)
        self.out.append(text)

    def _end_table(self) -> None:
        self._end_cell()
        text, tables = read_table(self.tables.pop().rows)
        if self.tables:
            self.out.append(one_line(text))
        elif text:
            kept = self.document.keep(text, tables)
            self.out += (_BREAK, kept, _BREAK)

    def _fraction(self) -> None:
        above = self._argument()
        self.out.append(fraction(above, self._argument()))

    def _root(self) -> None:
        degree = self._option()
        self.out.append(root(self._argument(), self._text_of(*degree) if degree else ""))

    def _title(self) -> None:
        document = self.document
        if document.is_titled:
            return
        document.is_titled = True
        if title := " ".join(document.fields.get("title", "").split()):
            self.out.append(f"\n\n{_HEADING}1{title}{_BREAK}")


_COMMANDS: dict[str, Callable[[_Scope], None]] = {
    "begin": _Scope._begin,
    "end": _Scope._end,
    "item": _Scope._item,
    "multicolumn": _Scope._span_columns,
    "sqrt": _Scope._root,
    **dict.fromkeys(("frac", "dfrac", "tfrac"), _Scope._fraction),
    **dict.fromkeys(("footnote", "footnotetext", "thanks"), _Scope._note),
    **dict.fromkeys(("maketitle", "titlepage"), _Scope._title),
    **dict.fromkeys(
        "DeclareMathOperator DeclareRobustCommand def newcommand providecommand"
        " renewcommand".split(),
        _Scope._define,
    ),
}
_KNOWN = {*_COMMANDS, *_LEVELS, *_LEFT_OUT, *_SYMBOLS, *_FIELDS}
