"""What turns a file into text: our loaders, markitdown, and the readers of llama-index for its
suffix.
"""

from __future__ import annotations

import importlib.metadata
import logging
import time
import warnings
from pathlib import Path
from typing import Any


class Engine:
    """One way to read files."""

    packages: tuple[str, ...] = ()

    def __init__(self) -> None:
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)

    def versions(self) -> dict[str, str]:
        """Of what it runs."""
        return {name: importlib.metadata.version(name) for name in self.packages}

    def measure(self, path: str, least_s: float) -> dict[str, Any]:
        """Read a file again and again, for some time; the shortest time of one reading, and how
        long its text is.
        """
        file = Path(path)
        text = self.read(file)  # the first reading imports what is needed
        best = float("inf")
        spent = 0.0
        while spent < least_s:
            started = time.perf_counter()
            self.read(file)
            took = time.perf_counter() - started
            best, spent = min(best, took), spent + took
        return {"seconds": best, "characters": len(text), "text": " ".join(text.split())}

    def read(self, path: Path) -> str:
        """The text of a file."""
        raise NotImplementedError


class Lazyrag(Engine):
    """Our loaders."""

    def read(self, path: Path) -> str:
        """As a Document reads it."""
        from lazyrag.loaders import load_file

        return load_file(path).text


class Markitdown(Engine):
    """Microsoft's converter to Markdown."""

    packages = ("markitdown",)

    def __init__(self) -> None:
        super().__init__()
        from markitdown import MarkItDown

        self._converter = MarkItDown()

    def read(self, path: Path) -> str:
        """As its command line does."""
        return str(self._converter.convert(path).text_content)


class PyMuPdf(Engine):
    """PyMuPDF, for PDF alone; its licence lets it be no more than a benchmark."""

    packages = ("pymupdf",)

    def __init__(self) -> None:
        super().__init__()
        import pymupdf

        pymupdf.TOOLS.mupdf_display_errors(False)
        self._open = pymupdf.open

    def read(self, path: Path) -> str:
        """Page by page."""
        with self._open(path) as document:
            return "\n\n".join(page.get_text() for page in document)


class PdfPlumber(Engine):
    """pdfplumber, for PDF alone."""

    packages = ("pdfplumber",)

    def __init__(self) -> None:
        super().__init__()
        import pdfplumber

        self._open = pdfplumber.open

    def read(self, path: Path) -> str:
        """Page by page."""
        with self._open(path) as document:
            return "\n\n".join(page.extract_text() or "" for page in document.pages)


class LlamaIndex(Engine):
    """SimpleDirectoryReader, with the readers that it chooses by suffix."""

    packages = ("llama-index-core", "llama-index-readers-file")

    def __init__(self) -> None:
        super().__init__()
        from llama_index.core import SimpleDirectoryReader
        from llama_index.readers.file import HTMLTagReader, IPYNBReader, RTFReader

        self._reader = SimpleDirectoryReader
        # Those that are there and not chosen by themselves; without them bytes would be taken for
        # text.
        self._more = {".html": HTMLTagReader("body"), ".ipynb": IPYNBReader(), ".rtf": RTFReader()}

    def read(self, path: Path) -> str:
        """All documents of a file, one after the other."""
        documents = self._reader(
            input_files=[str(path)], file_extractor=self._more, raise_on_error=True
        ).load_data()
        return "\n\n".join(document.text for document in documents)
