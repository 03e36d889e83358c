"""The table of docs/formats.md: what is read of each format, by which library. Read by make_docs.py
and benchmarks.
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """A format, or several that are read alike.

    Args:
        name: Its usual name.
        suffixes: Its suffixes.
        library: The library that reads it, with its licence; "own code" for this package and Python
            alone.
        kept: What reaches the text, the locations and the metadata.
        lost: What does not.
    """

    name: str
    suffixes: tuple[str, ...]
    library: str
    kept: str
    lost: str


def _of(suffixes: str) -> tuple[str, ...]:
    return tuple(suffixes.split())


FORMATS = (
    Format(
        "Plain text",
        _of(".text .txt"),
        "own code",
        "every character and line end; a found encoding",
        "control characters, which become spaces",
    ),
    Format(
        "Markdown",
        _of(".markdown .md"),
        "own code",
        "every character; headings, simple front matter",
        "nothing",
    ),
    Format(
        "reStructuredText", _of(".rst"), "own code", "every character; section titles", "nothing"
    ),
    Format(
        "Org",
        _of(".org"),
        "own code",
        "words, tables as rows, code as it is, words of links, formulas on a line; headings, title, "
        "author, date",
        "marks, comments, property drawers, addresses of links with words",
    ),
    Format(
        "AsciiDoc",
        _of(".adoc .asciidoc"),
        "own code",
        "words, numbered lists, tables as rows, code as it is, words of links, footnotes in their "
        "place, alternative texts of pictures; headings, title, author, date",
        "marks, comments, attributes of blocks, addresses of links with words, included files",
    ),
    Format(
        "LaTeX",
        _of(".tex"),
        "own code",
        "words, own macros, lists with numbers, tables as rows, code as it is, formulas on a line, "
        "footnotes; sections, title, author, date",
        "the rest of the preamble, comments, citations, references, labels, pictures, included files",
    ),
    Format(
        "HTML",
        _of(".htm .html"),
        "lxml (BSD)",
        "blocks, numbered lists, tables as rows, code as it is, words of links, alternative "
        "texts of pictures, formulas of MathML, labels of SVG; headings, title, description, author, "
        "date, language",
        "scripts and what they write, styles, hidden parts, navigation, addresses of links, bullets; "
        "side bars, comments and footers if `main_text=True`",
    ),
    Format(
        "PDF",
        _of(".pdf"),
        "pypdfium2 (BSD, Apache)",
        "text in reading order of both directions, columns, tables as rows; form values, "
        "text boxes; pages, headings by outline or type size, title, author, subject, keywords, "
        "dates; pages left of damaged files; embedded files; scanned pages through a function that you pass",
        "pictures, comments and the files attached to them, styles",
    ),
    Format(
        "Word",
        _of(".docm .docx .dotx"),
        "lxml (BSD)",
        "body in order, numbers of lists, nested tables, text boxes, foot- and endnotes, insertions, formulas on a "
        "line, data of charts, words of diagrams, symbols, inserted files, alternative texts of pictures; headings, "
        "properties; comments, headers and footers if wanted",
        "deletions, pictures, addresses of links",
    ),
    Format(
        "Old Word and PowerPoint",
        _of(".doc .ppt"),
        "none is permissive: LibreOffice, antiword, catdoc, catppt where installed",
        "as Word and PowerPoint through LibreOffice, else words in order; Rich Text under this suffix without any",
        "without such a program everything: reported with what to install",
    ),
    Format(
        "Rich Text",
        _of(".rtf"),
        "own code",
        "paragraphs, tables as rows, footnotes, text boxes, all code pages, symbols; headings, title, author",
        "headers, comments, pictures, hidden and deleted text",
    ),
    Format(
        "PowerPoint",
        _of(".pptx"),
        "lxml (BSD)",
        "text, groups row by row, tables, data of charts, words of diagrams, alternative texts of pictures, "
        "notes, hidden "
        "slides; slides, title, author",
        "pictures, comments, footers, text of slide masters",
    ),
    Format(
        "Excel",
        _of(".xlsm .xlsx"),
        "lxml (BSD), openpyxl (MIT)",
        "values as they are shown, with their columns' names, or chosen columns, several tables on a sheet, merged "
        "cells, comments, text boxes, hidden sheets; sheets, rows, title, author",
        "formulas with a value, charts, styles",
    ),
    Format(
        "Binary Excel",
        _of(".xlsb"),
        "own code, openpyxl (MIT)",
        "values as they are shown, with their columns' names, or chosen columns, merged cells, hidden sheets; sheets, "
        "rows, title, author",
        "as Excel; comments, text boxes",
    ),
    Format(
        "Old Excel",
        _of(".xls"),
        "xlrd (BSD), extra `office`",
        "values with their columns' names, or chosen columns, merged cells, comments; sheets, rows",
        "as Excel",
    ),
    Format(
        "OpenDocument text",
        _of(".odt"),
        "lxml (BSD)",
        "body in order, numbers of lists, tables, foot- and endnotes; headings, title, author",
        "comments, headers, pictures, charts, formulas, deleted text",
    ),
    Format(
        "OpenDocument slides",
        _of(".odp"),
        "lxml (BSD)",
        "text, tables, notes; slides, title, author",
        "pictures, charts, comments, text of slide masters",
    ),
    Format(
        "OpenDocument sheets",
        _of(".ods"),
        "lxml (BSD)",
        "values with their columns' names, or chosen columns, merged cells; sheets, rows",
        "as Excel; comments",
    ),
    Format(
        "CSV and TSV",
        _of(".csv .tsv"),
        "own code",
        "each row with its columns' names, any delimiter and encoding; rows",
        "quotation marks",
    ),
    Format(
        "JSON",
        _of(".json .jsonl .ndjson"),
        "own code",
        "every value with its path, or chosen fields; records",
        "brackets and commas",
    ),
    Format("YAML", _of(".yaml .yml"), "PyYAML (MIT)", "every value with its path", "comments"),
    Format(
        "XML",
        _of(".xml"),
        "own code (expat)",
        "text, attributes; elements by XPath",
        "comments, instructions",
    ),
    Format(
        "Notebooks",
        _of(".ipynb"),
        "own code",
        "Markdown, code, text of outputs; cells, language",
        "pictures of outputs",
    ),
    Format(
        "E-books",
        _of(".epub"),
        "lxml (BSD)",
        "chapters in reading order as HTML; chapters, sections, title, author, language",
        "pictures, styles",
    ),
    Format(
        "Mail",
        _of(".eml .mbox"),
        "own code (email)",
        "headers, body, attachments that can be read; attachments or messages, headers",
        "the second form of a body, pictures in pages; PGP and S/MIME, noted in the metadata",
    ),
    Format(
        "Outlook mail",
        _of(".msg"),
        "olefile (BSD), extra `office`",
        "as mail, mails within mails",
        "as mail; flags, categories",
    ),
    Format(
        "Archives",
        _of(".zip"),
        "own code (zipfile)",
        "members, each as a file of its name is read; members, and locations within them",
        "members that cannot be read: listed in the metadata",
    ),
    Format(
        "Python", _of(".py .pyi"), "own code", "every character; functions and classes", "nothing"
    ),
    Format(
        "Source code",
        _of(
            ".bash .c .cc .cpp .cs .css .cxx .dart .go .h .hpp .java .jl .js .jsx .kt .lua .mjs .php .pl .ps1 .r .rb "
            ".rs .scala .sh .sql .swift .ts .tsx"
        ),
        "own code",
        "every character",
        "nothing",
    ),
    Format(
        "Images",
        _of(".bmp .gif .jpeg .jpg .png .tif .tiff .webp"),
        "a function that you pass",
        "what the function returns",
        "the image",
    ),
    Format(
        "Audio",
        _of(".flac .m4a .mp3 .ogg .wav"),
        "a function that you pass",
        "what the function returns; times",
        "the audio",
    ),
    Format(
        "Subtitles",
        _of(".srt .vtt"),
        "own code",
        "words, names of speakers; times",
        "notes, styles, positions",
    ),
    Format(
        "Video",
        _of(".mkv .mov .mp4 .webm"),
        "a function that you pass",
        "what the function returns; times",
        "the video",
    ),
)
"""All formats that a built-in loader reads."""
