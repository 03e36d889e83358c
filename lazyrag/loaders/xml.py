"""XML: `XmlLoader`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile
from lazyrag.loaders.detect import decode
from lazyrag.loaders.records import MAX_DEPTH, RecordWriter, Selection, too_deep
from lazyrag.validation import known_arguments, validate_boolean

_DECLARED = re.compile(rb"<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)")


@known_arguments
class XmlLoader:
    r"""Reads XML: each element with text becomes a line ``name: text`` and a location, labelled with its XPath.

    An element with text of its own is read together with all elements inside; its text is stripped. Its attributes, and
    those of other elements, are lines ``name@attribute: value``. Comments are skipped. Files that declare entities are
    refused. The root's name becomes the metadata ``root``.

    Args:
        names: Write element names before their texts; False suits books, True data.
        attributes: Read attributes.

    Raises:
        ConfigError: If an argument is not a boolean.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "teas.xml")
        ...     _ = path.write_text("<teas><tea from='Uji'>Sencha, <b>green</b></tea></teas>", encoding="utf-8")
        ...     XmlLoader().load(path).text
        ...     XmlLoader(names=False, attributes=False).load(path).text
        'tea@from: Uji\ntea: Sencha, green'
        'Sencha, green'
    """

    def __init__(self, *, names: bool = True, attributes: bool = True) -> None:
        self._names = validate_boolean("names", names)
        self._attributes = validate_boolean("attributes", attributes)

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        data = path.read_bytes()
        declared = _DECLARED.match(data)
        text = decode(data, declared=declared[1].decode() if declared else None)
        reader = _Reader()
        reader.read(text)
        writer = RecordWriter(Selection(), len(text), joined_by="", between="\n")
        for element, attribute, value in reader.found():
            if attribute and not self._attributes:
                continue
            label = element.path() + (f"/@{attribute}" if attribute else "")
            name = f"{element.name}@{attribute}" if attribute else element.name
            writer.add([(name if self._names else "", value.strip())], "element", label)
        return writer.loaded({"root": reader.root})


class _Element:
    """An element's position in the tree: its name, and its number among siblings of this name."""

    __slots__ = ("counts", "name", "number", "parent", "pieces", "present", "with_text")

    def __init__(self, name: str, parent: _Element | None, pieces: int) -> None:
        self.name = name
        self.parent = parent
        self.counts: dict[str, int] = {}
        self.number = 1
        if parent:
            self.number = parent.counts[name] = parent.counts.get(name, 0) + 1
        self.pieces = pieces  # number of pieces of text before its own
        self.present = 0  # number of findings before it, its attributes included
        self.with_text = False

    def path(self) -> str:
        """Its XPath, with numbers for several siblings of a name."""
        steps = []
        one: _Element | None = self
        while one:
            several = one.parent and one.parent.counts[one.name] > 1
            steps.append(f"/{one.name}[{one.number}]" if several else f"/{one.name}")
            one = one.parent
        return "".join(reversed(steps))


class _Reader:
    """Collects texts and attributes from expat's events, in order. Only entity declarations would be unsafe."""

    def __init__(self) -> None:
        self.root = ""
        self._pieces: list[str] = []
        self._open: list[_Element] = []
        # Element with (attribute, value), or with the range of its pieces.
        self._found: list[tuple[_Element, tuple[str, str] | tuple[int, int]]] = []

    def read(self, text: str) -> None:
        """Read a file.

        Raises:
            LoadError: If it is not XML, declares entities, or is nested too deep.
        """
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.ordered_attributes = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = _refuse
        parser.SkippedEntityHandler = self._skipped
        try:
            parser.Parse(text, True)
        except expat.ExpatError as exc:
            msg = f"The XML breaks at line {exc.lineno}, column {exc.offset + 1} ({exc}). Fix it."
            raise LoadError(msg) from exc

    def found(self) -> Iterator[tuple[_Element, str, str]]:
        """Elements with an attribute and its value, or with "" and their text."""
        for element, (what, rest) in self._found:
            if isinstance(what, str):
                yield element, what, str(rest)
            else:
                yield element, "", "".join(self._pieces[what : int(rest)])

    def _start(self, name: str, attributes: list[str]) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise too_deep()
        element = _Element(name, self._open[-1] if self._open else None, len(self._pieces))
        self.root = self.root or name
        self._found += [(element, pair) for pair in zip(attributes[::2], attributes[1::2], strict=True)]
        element.present = len(self._found)
        self._open.append(element)

    def _end(self, _name: str) -> None:
        element = self._open.pop()
        if element.with_text:
            del self._found[element.present :]  # elements inside are part of its text
            self._found.append((element, (element.pieces, len(self._pieces))))

    def _characters(self, text: str) -> None:
        self._pieces.append(text)
        if not text.isspace():
            self._open[-1].with_text = True

    def _skipped(self, name: str, is_parameter: bool) -> None:
        """A reference to an entity of an external document type; most are HTML's."""
        if not is_parameter and self._open:
            self._characters(html.unescape(f"&{name};"))


def _refuse(name: str, *_declared: object) -> None:
    msg = (
        f"The XML declares an entity ({name:.80}), which can blow up to gigabytes or name other files; such files are "
        "not read. Save it again with its entities replaced."
    )
    raise LoadError(msg)
