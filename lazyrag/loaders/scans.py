"""Scans: `ScanLoader` reads pages of PDFs without a usable text layer, and image files, by OCR."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from lazyrag.errors import LoadError, NoReaderError, optional_package
from lazyrag.loaders.base import LoadedFile, check_pages
from lazyrag.loaders.media import SUFFIXES
from lazyrag.loaders.ocr import CachedOcr, Ocr, RapidOcr
from lazyrag.loaders.pdf import Pages, PdfFile, PdfLoader
from lazyrag.progress.blocks import contextmanager
from lazyrag.validation import known_arguments

IMAGES = SUFFIXES["image"]
# Pillow starts Ghostscript for EPS of any suffix
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
_MAX_PIXELS = 40_000_000
# warnings are switched off for all threads, and images take memory
_one_at_a_time = threading.Lock()
_SMALL = 1_000  # pixels of the longer side: letters of a screen are too small for the models


@known_arguments
class ScanLoader(PdfLoader):
    """Reads scanned pages of PDF files and image files by OCR; other pages by their text layer, as
    `PdfLoader`.

    Args:
        ocr: The OCR, see `lazyrag.loaders.ocr.Ocr`; None for `RapidOcr()`.
        cache: Folder in which results are stored by content, so that no page is recognized twice;
            None keeps some in memory.
        options: Those of `PdfLoader`.

    Raises:
        MissingDependencyError: If the extra ``ocr`` is not installed.
    """

    def __init__(
        self, ocr: Ocr | None = None, *, cache: Path | str | None = None, **options: Any
    ) -> None:
        ocr = RapidOcr() if ocr is None else ocr
        if isinstance(getattr(ocr, "identity", None), str):
            ocr = CachedOcr(ocr, cache)
        super().__init__(ocr=ocr, **options)

    def load(self, path: Path) -> LoadedFile:
        """Read the file.

        Raises:
            NoReaderError: If no text is found in an image: it is skipped.
        """
        if not _is_image(path):
            return super().load(path)
        with closing(self.open(path)) as file:
            check_pages(file.count)
            return self.load_pages(file)

    def open(self, path: Path, max_seconds: float = 0.0) -> Any:
        """Open a PDF, or an image as a file with pages."""
        return ImageFile(path) if _is_image(path) else super().open(path, max_seconds)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGES


def add_ocr(docs: Any, ocr: Ocr | None = None, *, cache: Path | str | None = None) -> None:
    """Read scanned PDF pages and image files of a Document, or of every one, by OCR.

    The next sync loads the affected files again.

    Args:
        docs: The Document, or the class.
        ocr: As of `ScanLoader`.
        cache: As of `ScanLoader`.

    Example:
        >>> from lazyrag import Document
        >>> docs = Document()
        >>> add_ocr(docs, lambda image: "seen")
    """
    loader = ScanLoader(ocr, cache=cache)
    for suffix in (".pdf", *IMAGES):
        docs.add_reader(suffix, loader)


class ImageFile(PdfFile):
    """An image file as a file with pages: the frames of a TIFF, one for other formats.

    Raises:
        LoadError: If it is damaged, or too large.
        MissingDependencyError: If Pillow is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as image:
            self.count = int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with optional_package("ScanLoader", "ocr"):
            from PIL import Image  # slow to import
        try:
            with (
                _one_at_a_time,
                warnings.catch_warnings(action="ignore"),
                Image.open(self._path, formats=_FORMATS) as image,
            ):
                yield image
        except (
            OSError,
            ValueError,
            SyntaxError,
            EOFError,
            ArithmeticError,
            Image.DecompressionBombError,
        ) as exc:
            msg = f"The image cannot be read ({type(exc).__name__}: {exc})."
            raise LoadError(f"{msg} It may be damaged, or of another format.") from exc

    def read(self, *, has_ocr: bool) -> Pages:  # noqa: ARG002
        """An image has no text layer."""
        return Pages([""] * self.count, [*range(1, self.count + 1)])

    def layers(self) -> set[bool]:
        """An image has no text layer."""
        return {False}

    def image(
        self,
        index: int,
        dots_per_inch: int,  # noqa: ARG002
        pixels_wide: int = 0,  # noqa: ARG002
    ) -> np.ndarray:
        """Decode a page: (height, width, 3) uint8, RGB; smaller where it is huge, larger where it
        is small.
        """
        from PIL import Image, ImageOps

        with self._opened() as image:
            image.seek(index)
            width, height = image.size
            share = min(1.0, (_MAX_PIXELS / (width * height)) ** 0.5)
            image.draft("RGB", (round(width * share), round(height * share)))
            # as any copy of a huge image takes much memory
            ImageOps.exif_transpose(image, in_place=True)
            opaque = image
            if _is_transparent(image):
                drawn = image if image.mode == "RGBA" else image.convert("RGBA")
                opaque = Image.new("RGB", drawn.size, "white")
                opaque.paste(drawn, mask=drawn)
            elif image.mode != "RGB":
                opaque = image.convert("RGB")
            width, height = opaque.size
            if pixels_wide:
                scale = pixels_wide / width
            elif max(width, height) < _SMALL:
                scale = 2.0
            else:
                scale = min(1.0, (_MAX_PIXELS / (width * height)) ** 0.5)
            size = max(1, round(width * scale)), max(1, round(height * scale))
            return np.asarray(opaque if size == opaque.size else opaque.resize(size))

    def no_text(self, read: Any) -> LoadError:  # noqa: ARG002
        """An image without words is skipped."""
        return NoReaderError(
            "OCR found no text in the image.",
            reason="image in which OCR found no text",
            loader="ScanLoader",
        )

    def close(self) -> None:
        """Nothing is open between two pages."""


def _is_transparent(image: Any) -> bool:
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
