"""Markdown."""

from __future__ import annotations

from pathlib import Path

from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import decode
from lazyrag.text.headings import heading_places
from lazyrag.text.markdown import markdown_headings


class MarkdownLoader:
    """Reads Markdown: the text stays as it is, marks included; its headings become places."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        text = decode(path.read_bytes())
        return LoadedFile(text, heading_places(list(markdown_headings(text)), len(text)))
