"""Plain text."""

from __future__ import annotations

from pathlib import Path

from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import find_encoding


class TextLoader:
    """Reads plain text in any common encoding; what it reads is the file, character by character.

    An encoding that was found out, and is not UTF-8, becomes metadata.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        return LoadedFile(read.text, metadata=read.metadata)
