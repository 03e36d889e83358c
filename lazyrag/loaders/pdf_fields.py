"""What is typed into a PDF page: values of form fields and text boxes, as glyphs beside its text;
what a child process does, see `pdf_pages`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pypdfium2.raw as pdfium

from lazyrag.loaders.pdf_layout import letters
from lazyrag.loaders.pdf_lines import Glyph

_MAX_ANNOTATIONS = 10_000  # of a page
_PASSWORD = 1 << 13
_SIZE = 12.0  # points
_LINE = 1.2  # font sizes
_LETTER = 0.5  # the width of a letter, in font sizes
_CHECKED = "[x]"
_FIELDS = frozenset(
    [
        pdfium.FPDF_FORMFIELD_TEXTFIELD,
        pdfium.FPDF_FORMFIELD_COMBOBOX,
        pdfium.FPDF_FORMFIELD_LISTBOX,
    ]
)
_BOXES = frozenset([pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON])


def field_glyphs(page: Any, form: Any) -> Iterator[Glyph]:
    """The values of a page's form fields, and its text boxes, one glyph for each line.

    Args:
        page: The open page.
        form: Its document's form; None without one.
    """
    for at in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, at)
        if not annotation:
            continue
        box = pdfium.FS_RECTF()
        if pdfium.FPDFAnnot_GetRect(annotation, box):
            yield from _glyphs(_text(annotation, form), box)
        pdfium.FPDFPage_CloseAnnot(annotation)


def _text(annotation: Any, form: Any) -> str:
    """What an annotation shows as text; "" for one that is hidden."""
    if pdfium.FPDFAnnot_GetFlags(annotation) & pdfium.FPDF_ANNOT_FLAG_HIDDEN:
        return ""
    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if kind == pdfium.FPDF_ANNOT_FREETEXT:
        return _written(
            lambda *buffer: pdfium.FPDFAnnot_GetStringValue(annotation, b"Contents", *buffer)
        )
    if kind != pdfium.FPDF_ANNOT_WIDGET or form is None:
        return ""
    field = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    if field in _BOXES:
        return _CHECKED if pdfium.FPDFAnnot_IsChecked(form, annotation) else ""
    flags = pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation)
    if field not in _FIELDS or (field == pdfium.FPDF_FORMFIELD_TEXTFIELD and flags & _PASSWORD):
        return ""
    return _written(lambda *buffer: pdfium.FPDFAnnot_GetFormFieldValue(form, annotation, *buffer))


def _written(write: Callable[[Any, int], int]) -> str:
    """The text that a function of pdfium writes to a buffer."""
    size = write(None, 0)
    buffer = ctypes.create_string_buffer(size)
    write(ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[: max(0, size - 2)].decode("utf-16-le", "replace")


def _glyphs(text: str, box: Any) -> Iterator[Glyph]:
    lines = [line for line in map(str.strip, map(letters, text.splitlines())) if line]
    if not lines:
        return
    high = abs(box.top - box.bottom)
    size = max(1.0, min(_SIZE, high / (_LINE * len(lines))))
    # in the middle of the box, as viewers draw it
    first = (box.top + box.bottom) / 2 + (len(lines) / 2 * _LINE - 0.85) * size
    for at, line in enumerate(lines):
        right = min(max(box.left, box.right), box.left + _LETTER * size * len(line))
        yield Glyph(line, box.left, max(right, box.left + 1.0), first - at * _LINE * size, size)
