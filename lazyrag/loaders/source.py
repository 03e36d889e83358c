"""Source code."""

from __future__ import annotations

import re
from pathlib import Path

from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.encoding import find_encoding
from lazyrag.text.structure import python_definitions

_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


class SourceLoader:
    """Reads source code; what it reads is the file, character by character."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        read = find_encoding(path.read_bytes())
        return LoadedFile(read.text, metadata=read.metadata)


class PythonLoader:
    """Reads Python code as it is; each function and class at the top level is a place, decorators included."""

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        data = path.read_bytes()
        cookies = (_COOKIE.match(line) for line in data.split(b"\n", 2)[:2])
        read = find_encoding(data, declared=next((cookie[1].decode() for cookie in cookies if cookie), None))
        return LoadedFile(read.text, tuple(python_definitions(read.text)), read.metadata)
