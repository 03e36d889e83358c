"""File suffixes and their MIME types.

A table of our own: the operating system's tables differ between machines and Python's between its releases, and
``file_type`` is stored and filtered.
"""

from __future__ import annotations

from collections.abc import Mapping

UNKNOWN_MIME_TYPE = "application/octet-stream"

MIME_TYPES: Mapping[str, str] = {
    ".bash": "text/x-shellscript",
    ".bmp": "image/bmp",
    ".c": "text/x-c",
    ".cc": "text/x-c++",
    ".cpp": "text/x-c++",
    ".cs": "text/x-csharp",
    ".css": "text/css",
    ".csv": "text/csv",
    ".cxx": "text/x-c++",
    ".dart": "text/x-dart",
    ".doc": "application/msword",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".eml": "message/rfc822",
    ".epub": "application/epub+zip",
    ".flac": "audio/flac",
    ".gif": "image/gif",
    ".go": "text/x-go",
    ".h": "text/x-c",
    ".hpp": "text/x-c++",
    ".htm": "text/html",
    ".html": "text/html",
    ".ipynb": "application/x-ipynb+json",
    ".java": "text/x-java",
    ".jl": "text/x-julia",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".jsx": "text/javascript",
    ".kt": "text/x-kotlin",
    ".lua": "text/x-lua",
    ".m4a": "audio/mp4",
    ".markdown": "text/markdown",
    ".mbox": "application/mbox",
    ".md": "text/markdown",
    ".mjs": "text/javascript",
    ".mkv": "video/x-matroska",
    ".mov": "video/quicktime",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".msg": "application/vnd.ms-outlook",
    ".ndjson": "application/x-ndjson",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ogg": "audio/ogg",
    ".pdf": "application/pdf",
    ".php": "text/x-php",
    ".pl": "text/x-perl",
    ".png": "image/png",
    ".ppt": "application/vnd.ms-powerpoint",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".ps1": "text/x-powershell",
    ".py": "text/x-python",
    ".pyi": "text/x-python",
    ".r": "text/x-r",
    ".rb": "text/x-ruby",
    ".rs": "text/x-rust",
    ".rst": "text/x-rst",
    ".rtf": "application/rtf",
    ".scala": "text/x-scala",
    ".sh": "text/x-shellscript",
    ".sql": "text/x-sql",
    ".svg": "image/svg+xml",
    ".swift": "text/x-swift",
    ".text": "text/plain",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".toml": "application/toml",
    ".ts": "text/x-typescript",
    ".tsv": "text/tab-separated-values",
    ".tsx": "text/x-typescript",
    ".txt": "text/plain",
    ".wav": "audio/wav",
    ".webm": "video/webm",
    ".webp": "image/webp",
    ".xls": "application/vnd.ms-excel",
    ".xlsm": "application/vnd.ms-excel.sheet.macroenabled.12",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".zip": "application/zip",
}


def mime_type(suffix: str) -> str:
    """The MIME type of a file suffix, with or without its dot, in any case; `UNKNOWN_MIME_TYPE` for an unknown one.

    Example:
        >>> mime_type("PDF"), mime_type(".md"), mime_type("")
        ('application/pdf', 'text/markdown', 'application/octet-stream')
    """
    return MIME_TYPES.get("." + suffix.lower().lstrip("."), UNKNOWN_MIME_TYPE)
