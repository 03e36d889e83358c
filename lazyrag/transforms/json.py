"""The splitter of JSON."""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Iterator, Sequence

from lazyrag.data.node import DocNode
from lazyrag.data.segment import Span
from lazyrag.errors import ConfigError, TransformError, known_names
from lazyrag.text.sentences import is_boundary, sentence_ends
from lazyrag.text.structure import Value, json_values, string_value
from lazyrag.text.tokens import TokenCounter
from lazyrag.transforms.base import NodeTransform, transforms
from lazyrag.transforms.packing import Packer
from lazyrag.transforms.separators import word_ends
from lazyrag.validation import known_arguments

_FORMS = ("json", "lines")
_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in (*range(32), ord('"'), ord("\\"))}
"""What JSON does not allow in a text, by its code."""


@known_arguments
class JSONSplitter(NodeTransform):
    """Splits JSON along its structure; every chunk says where it stands: ``{"path": "$.teas[2:5]"}``.

    A value that fits is one chunk. Of a larger array or object, as many members as fit make a chunk, written as an
    array or object of their own, so that every chunk is JSON again. A member that does not fit is taken apart itself;
    a text is at the ends of sentences and words. Several values in one text (JSON Lines) are split like an array.

    ``form="lines"`` writes a line for each number, text and literal instead, ``teas[2].name: Longjing``, which is
    what full-text search and embedding models read best.

    The loader of ``.json`` files writes such lines itself; this is for JSON that came as text, such as that of
    `Document.add_texts`, or read by a loader of your own.

    Args:
        chunk_size: Most tokens of a chunk, at least 1.
        form: ``"json"`` or ``"lines"``.
        counter: A TokenCounter or the name of a registered one.

    Raises:
        ConfigError: If a size is out of its range, the form is unknown or the counter is none.

    Example:
        >>> splitter = JSONSplitter(chunk_size=8)
        >>> for node in splitter(DocNode(text='{"teas": ["green", "black", "white"], "heat": 80}')):
        ...     print(node.metadata["path"], node.text)
        $.teas[0:2] ["green", "black"]
        $.teas[2:3] ["white"]
        $ {"heat": 80}
    """

    reads_text_only = True

    def __init__(self, chunk_size: int = 1024, *, form: str = "json", counter: TokenCounter | str = "utf8") -> None:
        if form not in _FORMS:
            msg = f"form is {form!r:.80}. {known_names(str(form), _FORMS)}"
            raise ConfigError(msg)
        self._packer = Packer(chunk_size, 0, counter)
        self.chunk_size, self.counter, self.form = self._packer.size, self._packer.counter, form
        if type(self) is JSONSplitter:  # a subclass may do anything, so its code has to count
            self.identity = f"JSONSplitter/1 {self._packer.told} form={form}"

    def transform(self, node: DocNode) -> Iterator[DocNode]:
        """The chunks of the node's JSON; those that stand in it as they are have their spans.

        Raises:
            TransformError: If it is no JSON.
        """
        text = node.get_text()
        try:
            values = json_values(text)
            if len(values) > 1:
                whole = Value(values[0].start, values[0].start, values[-1].end, "array", children=values)
                found = self._lines(text, whole) if self.form == "lines" else self._members(text, whole, "$")
            else:
                found = self._lines(text, *values) if self.form == "lines" else self._parts(text, values, "$")
            yield from found
        except ValueError as exc:
            msg = (
                f"The text is no JSON: {exc}. JSONSplitter takes JSON as it is written, such as that of add_texts; the "
                "loader of .json files writes lines of 'name: value' instead, which RecursiveSplitter splits."
            )
            raise TransformError(msg) from exc

    def _fits(self, text: str) -> bool:
        return self.counter.count(text) <= self.chunk_size

    def _parts(self, text: str, values: Sequence[Value], path: str) -> Iterator[DocNode]:
        for value in values:
            source = text[value.value : value.end]
            if self._fits(source):
                yield DocNode(text=source, span=(value.value, value.end), metadata={"path": path})
            elif value.children:
                yield from self._members(text, value, path)
            elif value.kind == "string":
                yield from self._pieces(source, path)
            else:  # a number of hundreds of digits, or a size below that of "null"
                for start, end in self._packer.spans(source, [array("q", [len(source)])]):
                    yield _node(source[start:end], path, (value.value + start, value.value + end))

    def _members(self, text: str, container: Value, path: str) -> Iterator[DocNode]:
        """Runs of members that fit together as a container of their own; what does not fit is taken apart."""
        is_array = container.kind == "array"
        opening, ending = "[]" if is_array else "{}"
        members = container.children
        separate = container.value == members[0].start  # several values, with no commas between them
        first = 0
        while first < len(members):
            last, wrapped, joined = first, "", ""
            while last < len(members):
                one = members[last]
                if separate:
                    joined = f"{joined}, {text[one.start : one.end]}" if last > first else text[one.start : one.end]
                inner = joined if separate else text[members[first].start : one.end]
                if not self._fits(f"{opening}{inner}{ending}"):
                    break
                last, wrapped = last + 1, f"{opening}{inner}{ending}"
            if last > first:
                yield _node(wrapped, f"{path}[{first}:{last}]" if is_array else path)
                first = last
            else:
                yield from self._parts(text, members[first : first + 1], path + members[first].step)
                first += 1

    def _pieces(self, source: str, path: str) -> Iterator[DocNode]:
        """A text's pieces, each a JSON string again; no escape is torn, and there are only those that JSON needs."""
        text = string_value(source)
        inner = text.translate(_ESCAPES)
        places = [0, *itertools.accumulate(len(_ESCAPES.get(ord(one), one)) for one in text)]
        room = Packer(max(1, self.chunk_size - self.counter.count('""')), 0, self.counter)
        whole = (at for at in range(1, len(text) + 1) if is_boundary(text, at))
        found = (sentence_ends(text), word_ends(text), whole, range(1, len(text) + 1))
        levels = [array("q", (places[end] for end in ends)) for ends in found]
        for start, end in room.spans(inner, levels):
            yield _node(f'"{inner[start:end]}"', path)

    def _lines(self, text: str, value: Value | None = None) -> Iterator[DocNode]:
        held: list[tuple[list[str], str]] = []
        for steps, told in _leaves(text, value, []) if value is not None else ():
            name = "".join(steps).removeprefix(".")
            line = f"{name}: {told}" if name else told
            if held and not self._fits("\n".join([*(one for _, one in held), line])):
                yield _of_lines(held)
                held = []
            if self._fits(line):
                held.append((steps, line))
            else:
                yield from self._of_long_line(name, told, "$" + "".join(steps))
        if held:
            yield _of_lines(held)

    def _of_long_line(self, name: str, told: str, path: str) -> Iterator[DocNode]:
        """A line that does not fit in pieces that each repeat its name, where that leaves room for more than it."""
        prefix = f"{name}: " if name and 2 * self.counter.count(f"{name}: ") <= self.chunk_size else ""
        body = told if prefix or not name else f"{name}: {told}"
        room = Packer(self.chunk_size - self.counter.count(prefix), 0, self.counter)
        for start, end in room.spans(body, [sentence_ends(body)]):
            if not body[start:end].isspace():
                yield _node(prefix + body[start:end], path)


def _node(text: str, path: str, span: Span | None = None) -> DocNode:
    return DocNode(text=text, span=span, metadata={"path": path})


def _leaves(text: str, value: Value, steps: list[str]) -> Iterator[tuple[list[str], str]]:
    for one in value.children:
        yield from _leaves(text, one, [*steps, one.step])
    if not value.children:
        source = text[value.value : value.end]
        yield steps, string_value(source) if value.kind == "string" else source


def _of_lines(held: Sequence[tuple[list[str], str]]) -> DocNode:
    shared: list[str] = []
    for together in zip(*(steps for steps, _ in held), strict=False):
        if len({*together}) > 1:
            break
        shared.append(together[0])
    return _node("\n".join(line for _, line in held), "$" + "".join(shared))


transforms.register("JSONSplitter", JSONSplitter)
