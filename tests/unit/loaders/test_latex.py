"""LaTeX: text without commands, sections as places, tables, code, formulas and footnotes."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.data.tables import FoundTable
from lazyrag.loaders import load_file
from lazyrag.loaders.latex import formula_of, read_latex

PAPER = r"""% a comment
\documentclass[12pt]{article}
\usepackage[utf8]{inputenc}
\title{Green \emph{tea} \& water\thanks{Funded by Uji.}}
\author{Lu Yu \and Ann Bl\"ochl}
\date{2024-01-05}
\begin{document}
\maketitle
\section[Short]{Brewing\label{sec:a}}
Short, see~\ref{sec:a} and \cite[p.~5]{lu}. % no words
\subsection*{Heat}
Not boiling\footnote{At \textbf{80} degrees.}.
\end{document}
not typeset
"""


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"\textbf{bold} {\it slanted} \textcolor{red}{red}", "bold slanted red"),
        (r"100\% \& \$5 \_ \# \{x\}", "100% & $5 _ # {x}"),
        ("a~b -- c --- d ``q''", "a b – c — d “q”"),
        (r"Gr\"un, na\"\i ve, \c{c}a, Erd\H{o}s, \'{e}l\`eve, \~n, stra\ss e, \O re", None),
        (r"\href{http://a.b}{words} \url{http://c.d}", "words http://c.d"),
        (r"line\\[2pt]next", "line\nnext"),
        (r"\unknown{one}{two} \weird", r"one two \weird"),
        (r"\includegraphics[width=3cm]{a.png}b\vspace{1cm}", "b"),
        ("a % b\n  c\n\nd %\n\ne", "a c\n\nd\n\ne"),
        (r"\begin{itemize}\item a \item[b] c\end{itemize}", "- a\nb c"),
        (r"\begin{enumerate}\item a \item b\end{enumerate}", "1. a\n2. b"),
        (r"\newcommand{\tea}[2][green]{#1 tea of #2}\tea{Uji}; \tea[black]{Assam}", None),
        (r"\def\lib#1{<#1>}\lib{x}", "<x>"),
        (r"\begin{theorem}[Fermat] a\end{theorem}", "[Fermat] a"),
        (r"\begin{comment}no\end{comment}yes", "yes"),
        (r"a \verb|b % {\c| d", r"a b % {\c d"),
        ("绿茶\\textbf{很}好。", "绿茶很好。"),
        (r"\textbf{never closed", "never closed"),
        (r"\label{never closed", "never closed"),
        (r"\section{a} } \end{x} \\", "a"),
    ],
)
def test_commands_are_left_out_and_their_words_stay(source, text):
    """What a reader of the printed page sees is the text; broken commands lose no words."""
    expected = {
        "Gr": "Grün, naïve, ça, Erdős, élève, ñ, straße, Øre",
        r"\n": "green tea of Uji; black tea of Assam",
    }.get(source[:2])
    assert read_latex(source).text.strip() == (text or expected)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"\frac{a+b}{c}", "(a+b)/c"),
        (r"\sqrt{x} + \sqrt[3]{x+1}", "sqrt(x) + (x+1)^(1/3)"),
        (r"x_{ij}^2 \leq \alpha", "x_ij^2 ≤ α"),
        (r"\sum_{i=1}^{n} \sin \theta", "∑_(i=1)^n sin θ"),
        (r"80^\circ C", "80°C"),
        (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", "a b ; c d"),
    ],
)
def test_formulas_are_readable_on_a_line(source, text):
    """As formulas of Word and MathML are, alone and between words."""
    assert formula_of(source) == text
    assert text.split(" ;")[0] in read_latex(f"so ${source}$, then").text


def test_a_paper_has_sections_notes_and_metadata(tmp_path):
    """The preamble is left out but for title, author and date; the title is the first heading."""
    path = tmp_path / "paper.tex"
    path.write_text(PAPER, encoding="utf-8")
    loaded = load_file(path)
    assert loaded.metadata == {
        "title": "Green tea & water", "author": "Lu Yu, Ann Blöchl", "date": "2024-01-05",
    }  # fmt: skip
    labels = [location.label for location in loaded.locations if location.kind == "heading"]
    title = "Green tea & water"
    assert labels == [title, f"{title} > Brewing", f"{title} > Brewing > Heat"]
    notes = [
        loaded.text[location.start : location.end]
        for location in loaded.locations
        if location.kind == "footnote"
    ]
    assert notes == ["[1] Funded by Uji.", "[2] At 80 degrees."]
    assert "Short, see and ." in loaded.text
    assert "Not boiling[2]." in loaded.text
    for absent in ("comment", "no words", "typeset", "sec:a", "inputenc", "\\"):
        assert absent not in loaded.text


def test_code_keeps_its_indentation_and_its_commands():
    """Nothing in verbatim text is a command or a comment."""
    code = "  def x():\n      return '%' # \\cite{a}"
    for name, option in (("verbatim", ""), ("lstlisting", "[language=Python]"), ("minted", "{py}")):
        text = read_latex(f"a\n\\begin{{{name}}}{option}\n{code}\n\\end{{{name}}}\nb").text
        assert text.strip() == f"a\n{code}\nb"


def test_tables_are_rows_and_data():
    """Rules are no rows, a cell over several columns is in each."""
    source = (
        r"\begin{tabular}{l|rr}\hline tea & kg & \textbf{EUR} \\ \midrule green & 4 & \$5 \\"
        r"black & \multicolumn{2}{c}{none} \\ \bottomrule\end{tabular}"
    )
    loaded = read_latex(f"before {source} after")
    assert loaded.text == "before\ntea | kg | EUR\ngreen | 4 | $5\nblack | none | none\nafter"
    [place] = loaded.tables
    table = FoundTable.read(place.label)
    assert table.names == ("tea", "kg", "EUR")
    assert table.rows == (("green", "4", "$5"), ("black", "none", "none"))
    assert loaded.text[place.start : place.end].startswith("tea |")


def test_macros_that_grow_without_end_are_cut():
    """The text stays small, and nothing hangs."""
    assert len(read_latex(r"\def\a{\a\a}\a").text) < 1 << 18
    assert len(read_latex(r"\def\a#1{\a{#1#1}}\a{tea}").text) < 1 << 20


PIECES = st.sampled_from(
    ["\\", "{", "}", "[", "]", "$", "&", "%", "^", "_", "~", "\n", "\n\n", " ", "\\section", "\\item", "\\frac",
     "\\begin{tabular}", "\\end{tabular}", "\\begin{verbatim}", "\\end{verbatim}", "\\verb|", "\\\\", "\\footnote",
     "\\newcommand", "\\def\\a", "#1", "\\a", '\\"', "\\begin{align}", "\\end{align}", "\\multicolumn{2}{c}", "\\sqrt",
     "\\begin{enumerate}", "\\end{enumerate}", "\\title", "\\maketitle", "\\begin{document}", "茶"]
)  # fmt: skip


@given(st.lists(PIECES | st.text(string.ascii_letters, max_size=5), max_size=40).map("".join))
def test_any_commands_in_any_order_are_a_text(source):
    """No order of commands raises or leaves marks of ours, and places are within the text."""
    loaded = read_latex(source)
    assert not {"\x01", "\x02", "\x03", "\x04"} & {*loaded.text, *str(dict(loaded.metadata))}
    for location in (*loaded.locations, *loaded.tables):
        assert 0 <= location.start <= location.end <= len(loaded.text)


WORD = st.text(string.ascii_letters + "茶é", min_size=1, max_size=6)


@given(
    st.lists(
        st.tuples(st.sampled_from(["textbf", "emph", "section", "footnote", "foo", "item"]), WORD),
        min_size=1,
    )
)
def test_words_in_braces_are_never_lost(commands):
    """Whatever the command, the words that it shows are in the text."""
    text = read_latex(" ".join(f"\\{name}{{{word}}}" for name, word in commands)).text
    assert all(word in text for _, word in commands)
