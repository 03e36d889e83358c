"""E-books."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from lazyrag.errors import LoadError
from lazyrag.loaders.archives import Archive, Element, local_name, open_archive
from lazyrag.loaders.base import LoadedFile, join_parts
from lazyrag.loaders.encoding import decode
from lazyrag.loaders.html import read_html

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_METADATA = {"title": "title", "creator": "author", "language": "language"}
_PAGES = frozenset(["application/xhtml+xml", "text/html", "application/x-dtbook+xml"])
# HTML knows no empty elements but these: it would read all behind <title/> as the title.
_EMPTY_ELEMENT = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)([a-zA-Z][\w:-]*)([^<>]*)/>"
)


class EpubLoader:
    """Reads an e-book chapter by chapter in the order of reading, as the loader of HTML reads pages.

    Each chapter that holds text is a place of kind ``chapter``, labelled with its first heading, else its number.
    Title, author and language become metadata. Pictures and the table of contents, which repeats the headings, are
    left out.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        texts = []
        labels = []
        with open_archive(path, "e-book", ".epub") as archive:
            package = _package(archive)
            book = archive.xml(package)
            protected = _protected(archive)
            for number, name in enumerate(_chapters(book, package), start=1):
                if name in protected:
                    msg = "The e-book is protected against copying. Only a book without such protection can be read."
                    raise LoadError(msg)
                markup = decode(archive.read(name))
                page = read_html(_EMPTY_ELEMENT.sub(r"<\1\2></\1>", markup)) if markup.strip() else LoadedFile("")
                if page.text.strip():
                    heading = page.places[0].label if page.places else ""
                    texts.append(page.text.strip())
                    labels.append(("chapter", heading or str(number)))
        text, places = join_parts(texts, labels)
        return LoadedFile(text, places, _metadata(book))


def _package(archive: Archive) -> str:
    """The name of the part that lists all others."""
    for element in archive.xml(_CONTAINER).iter("{*}rootfile"):
        return element.get("full-path", "")
    msg = "The e-book is damaged: it does not say where its contents are listed. Save it again as .epub."
    raise LoadError(msg)


def _chapters(book: Element, package: str) -> Iterator[str]:
    """The names of the pages, in the order of reading, without the table of contents."""
    listed = {item.get("id"): item for item in book.iterfind("{*}manifest/{*}item")}
    for reference in book.iterfind("{*}spine/{*}itemref"):
        item = listed.get(reference.get("idref"))
        if item is not None and item.get("media-type") in _PAGES and "nav" not in item.get("properties", "").split():
            yield posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(item.get("href", ""))))


def _protected(archive: Archive) -> frozenset[str]:
    """The names of encrypted parts, which in many books are fonts only."""
    if _ENCRYPTION not in archive:
        return frozenset()
    references = archive.xml(_ENCRYPTION).iter("{*}CipherReference")
    return frozenset(unquote(reference.get("URI", "")) for reference in references)


def _metadata(book: Element) -> dict[str, str]:
    """Title, authors and language of the book."""
    said: dict[str, list[str]] = {}
    for element in book.iterfind("{*}metadata/*"):
        name = _METADATA.get(local_name(element))
        words = " ".join("".join(map(str, element.itertext())).split())
        if name and words:
            said.setdefault(name, []).append(words)
    return {name: ", ".join(values) if name == "author" else values[0] for name, values in said.items()}
