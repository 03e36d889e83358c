"""Markdown."""

from __future__ import annotations

from pathlib import Path

from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import find_encoding
from lazyrag.text.structure import front_matter, heading_places, markdown_headings


class MarkdownLoader:
    """Reads Markdown: the text stays as it is, marks included; its headings become places.

    Simple lines of its front matter (``title: Tea``, ``tags: [green, black]``) become metadata.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        places = heading_places(list(markdown_headings(read.text)), len(read.text))
        return LoadedFile(read.text, places, {**front_matter(read.text), **read.metadata})
