"""Files within files: members of archives, attachments of mails."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lazyrag.data.segment import Place
from lazyrag.errors import LoadError
from lazyrag.loaders.base import LoadedFile, known_suffix, load_file

_SAFE_SUFFIX = re.compile(r"(?:\.\w{1,16}){1,3}$", re.ASCII)


class Members:
    """Reads files that lie within another one, each by way of a temporary file whose name is ours but for its suffix.

    They are read by the readers and loaders that read files of their names elsewhere, and share the limits of the file
    that they lie within.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str, pieces: Iterable[bytes]) -> LoadedFile:
        """Read one of them.

        Args:
            name: Its path within the other file, whatever that is; no file of this name is written.
            pieces: What it holds.

        Raises:
            LoadError: If it cannot be read.
        """
        suffix = known_suffix(Path(name.replace("\\", "/").rpartition("/")[2]))
        path = self._folder / f"member{suffix if _SAFE_SUFFIX.match(suffix) else ''}"
        try:
            with path.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            return load_file(path, name=name)
        finally:
            path.unlink(missing_ok=True)


def with_attachments(
    text: str, said: Mapping[str, Any], attachments: Iterable[tuple[str, Callable[[], LoadedFile]]]
) -> LoadedFile:
    """A mail with its attachments behind it, each a place of kind ``attachment`` with its own places within.

    Args:
        text: Of the mail.
        said: Its metadata; names of attachments are added, and why one is not read.
        attachments: The name of each, and what loads it.
    """
    texts, places = [text], list[Place]()
    names: list[str] = []
    unread: dict[str, str] = {}
    length = len(text)
    for name, load in attachments:
        names.append(name)
        try:
            loaded = load()
        except LoadError as exc:
            unread[name] = str(exc)
            continue
        unread |= unread_within(loaded, name)
        head = f"\n\nAttachment: {name}\n"
        places += nested_places(loaded, length + len(head), "attachment", name)
        texts += (head, loaded.text)
        length += len(head) + len(loaded.text)
    more = {"attachments": names, "unread_attachments": unread}
    return LoadedFile("".join(texts), tuple(places), {**said, **{key: value for key, value in more.items() if value}})


@contextmanager
def members() -> Iterator[Members]:
    """Read files within a file; the temporary folder is gone after that."""
    with tempfile.TemporaryDirectory(prefix="lazyrag-") as folder:
        yield Members(Path(folder))


def nested_places(loaded: LoadedFile, start: int, kind: str, label: str) -> list[Place]:
    """The places of a text that stands within another one: the whole of it, then what it has itself.

    Args:
        loaded: The text with its places.
        start: Where it begins in the other one.
        kind: What it is there: ``"member"``.
        label: What it is called there; the labels of its own places stand behind it.

    Example:
        >>> page = LoadedFile("Green tea", (Place(0, 9, "page", "1"),))
        >>> [(place.start, place.kind, place.label) for place in nested_places(page, 20, "member", "teas.pdf")]
        [(20, 'member', 'teas.pdf'), (20, 'page', 'teas.pdf > 1')]
    """
    own = [
        Place(start + place.start, start + place.end, place.kind, f"{label} > {place.label}") for place in loaded.places
    ]
    return [Place(start, start + len(loaded.text), kind, label), *own]


def unread_within(loaded: LoadedFile, label: str) -> dict[str, str]:
    """What a file that lies within another one says of those within itself that were not read, and why.

    Args:
        loaded: The file.
        label: What it is called in the other one; the names of those within it stand behind it.

    Example:
        >>> unread_within(LoadedFile("Tea", metadata={"unread_members": {"a.exe": "No loader."}}), "teas.zip")
        {'teas.zip > a.exe': 'No loader.'}
    """
    told = (loaded.metadata.get(f"unread_{kind}") for kind in ("members", "attachments", "messages"))
    return {f"{label} > {name}": str(why) for some in told if isinstance(some, Mapping) for name, why in some.items()}
