"""Word and PowerPoint files of 1997 to 2003, which are reported with what to do about them."""

from __future__ import annotations

from pathlib import Path

from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.rtf import read_rtf
from lazyrag.loaders.sniffing import sniff

_SAVE_AS = {".doc": ".docx", ".ppt": ".pptx"}


class OldOfficeLoader:
    """Reports a file of old office programs, which has to be saved in the newer format to be read.

    A ``.doc`` that is Rich Text, as many programs write it, is read.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        data = path.read_bytes()
        if data.lstrip().startswith(b"{\\rtf"):
            return read_rtf(data)
        found = sniff(path)
        suffix = found.suffix if found is not None and found.suffix in _SAVE_AS else path.suffix.lower()
        newer = _SAVE_AS.get(suffix, ".docx or .pptx")
        msg = (
            f"The format of {suffix} files, that of office programs before 2007, is not read: no library under a "
            f"permissive licence reads it. Save the file as {newer}; `soffice --headless --convert-to "
            f"{newer.removeprefix('.')} FILE` does so for many files, or register a loader of your own."
        )
        raise LoadError(msg)
