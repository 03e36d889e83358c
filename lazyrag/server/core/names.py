"""Names as parts of paths."""

from __future__ import annotations

import hashlib
from urllib.parse import quote


def file_name(name: str) -> str:
    """A file name for a set, which file systems limit to 255 bytes."""
    quoted = quote(name, safe="")
    return (
        quoted
        if len(quoted) <= 200
        else f"{quoted[:150]}~{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    )
