"""Mails: `EmlLoader`, and `MboxLoader` for mailboxes."""

from __future__ import annotations

import codecs
import functools
import mailbox
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from lazyrag.errors import LoadError
from lazyrag.loaders.archives import (
    load_member,
    member_folder,
    unread_within,
    with_attachments,
)
from lazyrag.loaders.armour import SEALED_PARTS, without_armour
from lazyrag.loaders.base import PART_ERRORS, LoadedFile, joined_file, part_problem, reading
from lazyrag.loaders.detect import decode, decode_lossy
from lazyrag.loaders.hidden import unmarked
from lazyrag.loaders.html import read_html
from lazyrag.types import JsonObject

Attachment: TypeAlias = tuple[str, Callable[[], LoadedFile]]
"""Name and load function."""

_HEADERS = ("subject", "from", "to", "cc", "date")
_MAX_PARSED = 10_000  # characters of a header: 0.2 s at worst; one of 400,000 took minutes
_STEPS_PER_PART = 32
_MAX_REFERENCE = 300  # characters of a plain body that may only refer to the HTML
_MUCH_LONGER = 3
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


class _Bounded(policy.EmailPolicy):
    """Parses headers up to a length: the standard library's time is quadratic. Invalid ones count
    as empty.
    """

    def header_fetch_parse(self, name: str, value: str) -> Any:
        try:
            return super().header_fetch_parse(name, value[:_MAX_PARSED])
        except (
            AttributeError,
            IndexError,
            RecursionError,
        ):  # of broken addresses, of a thousand brackets
            return super().header_fetch_parse(name, "")


_POLICY = _Bounded()


class EmlLoader:
    """Reads a mail: subject, sender, recipients and date as its first lines, then its body, then
    its attachments.

    Of alternative bodies the plain text is read, else the HTML; both if the HTML is much longer
    than a short plain text, which may only refer to it. Attachments follow as places of kind
    ``attachment``, with their own places. Headers and names of attachments become metadata,
    unread ones with their reasons.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        loaded = _read_mail(path.read_bytes())
        if loaded.metadata.keys().isdisjoint(_HEADERS):
            raise LoadError(
                "The file is not a mail: no subject, sender, recipient or date. Save it as .eml."
            )
        return loaded

    load_source = load


class MboxLoader:
    """Reads a mailbox mail by mail; each is a location of kind ``message``, its attachments
    included.

    The number of mails becomes metadata, and unread ones with their reasons.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        box = mailbox.mbox(path, create=False)
        parts = []
        count = 0
        unread: dict[str, str] = {}
        try:
            for count, key in enumerate(box.keys(), start=1):
                number = str(count)
                try:
                    mail = _read_mail(_QUOTED_FROM.sub(rb"\1", box.get_bytes(key)))
                    unread |= unread_within(mail, number)
                    parts.append((mail, "message", number))
                except PART_ERRORS as exc:
                    if reading().is_over:
                        raise
                    unread[number] = part_problem(exc)
        finally:
            box.close()
        if not count:
            raise LoadError(
                "The file is no mailbox: no line begins with 'From '. Save it again as .mbox, or"
                " one mail as .eml."
            )
        metadata = {"messages": count, **({"unread_messages": unread} if unread else {})}
        return joined_file(parts, metadata)

    load_source = load


def _read_mail(data: bytes) -> LoadedFile:
    if b"\0" in data[:200]:  # UTF-16, as editors store it
        data = decode(data).encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    reading().spend(_STEPS_PER_PART * data.count(b"\n--"))
    mail = cast("EmailMessage", message_from_bytes(data, policy=_POLICY))
    headers: JsonObject = {name: value for name in _HEADERS if (value := _header(mail, name))}
    bodies: list[str] = []
    attachments = []
    is_sealed = mail.get_content_type() == "multipart/encrypted"
    notes = [SEALED_PARTS["multipart/encrypted"]] if is_sealed else []
    for part in _leaves(mail):
        if part.get_content_type() in SEALED_PARTS:
            notes.append(SEALED_PARTS[part.get_content_type()])
        elif is_sealed:
            continue
        elif (
            part.is_attachment()
            or part.get_filename()
            or part.get_content_maintype() not in {"text", "multipart"}
        ):
            attachments.append(part)
        else:  # a multipart part without parts is text as well
            with reading().tolerated(f"body {len(bodies) + 1}"):
                bodies.append(without_armour(_body(part), notes))
    noted = {"notes": list(dict.fromkeys(notes))} if notes else {}
    return whole_mail(headers, bodies, lambda folder: _attachments(attachments, folder), noted)


def whole_mail(
    headers: Mapping[str, Any],
    bodies: Iterable[str],
    attachments: Callable[[Path], Iterable[Attachment]],
    noted: Mapping[str, Any] = MappingProxyType({}),
) -> LoadedFile:
    """Headers, bodies and attachments as one text; the attachments are a function of a temporary
    folder.
    """
    head = "\n".join(f"{name.capitalize()}: {value}" for name, value in headers.items())
    text = "\n\n".join(filter(None, (head, *bodies)))
    with member_folder() as folder:
        return unmarked(with_attachments(text, {**headers, **noted}, attachments(folder)))


def _header(mail: EmailMessage, name: str) -> str:
    """A header on one line; a date as ISO 8601."""
    raw = next((str(value) for key, value in mail.raw_items() if key.lower() == name), "")
    if not raw.isascii():
        # Some programs write invalid bytes of another encoding.
        return " ".join(decode_lossy(raw.encode("utf-8", "surrogateescape")).split())
    parsed = str(mail.get(name, "")) if len(raw) <= _MAX_PARSED else ""
    value = " ".join(parsed.split()) or " ".join(raw.split())
    if name == "date":
        try:
            return parsedate_to_datetime(value).isoformat(sep=" ")
        except ValueError:
            return value
    return value


def _leaves(part: EmailMessage) -> Iterator[EmailMessage]:
    """The leaf parts of a mail, in order; of alternatives the best."""
    if not part.is_multipart() or part.get_content_maintype() != "multipart":
        yield part  # a mail in a mail is an attachment
        return
    children = [child for child in part.iter_parts() if isinstance(child, EmailMessage)]
    if part.get_content_subtype() == "alternative":
        children = _best(children)
    for child in children:
        yield from _leaves(child)


def _best(alternatives: list[EmailMessage]) -> list[EmailMessage]:
    """The plain text if it is not blank, else the HTML, which may have images as parts; both if the
    former may only refer to the latter.
    """
    plain = [
        part for part in alternatives if part.get_content_type() == "text/plain" and _body(part)
    ]
    pages = [
        part
        for part in alternatives
        if part.get_content_type() == "text/html" or part.is_multipart()
    ]
    if plain and pages and _may_refer(plain[0], pages[-1]):
        return [plain[0], pages[-1]]
    return plain[:1] or pages[-1:] or alternatives[-1:]


def _may_refer(plain: EmailMessage, page: EmailMessage) -> bool:
    """Whether a plain text may only say that the mail has to be displayed as HTML."""
    length = len(_body(plain))
    if length <= _MAX_REFERENCE:
        with reading().tolerated("HTML body"):
            parts = [part for part in page.walk() if part.get_content_type() == "text/html"]
            return sum(len(_rendered(part)) for part in parts) > _MUCH_LONGER * length
    return False


def _body(part: EmailMessage) -> str:
    if part.get_content_subtype() == "html" and not reading().source:
        return _rendered(part)
    return _decoded(part).replace("\r\n", "\n").strip()


def _rendered(part: EmailMessage) -> str:
    text = _decoded(part)
    return read_html(text, marked=True).text.strip() if text else ""


def _decoded(part: EmailMessage) -> str:
    """The text of a part; "" if it is blank."""
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes) or not payload.strip():
        return ""
    return decode_lossy(payload, part.get_content_charset())


def _attachments(parts: Iterable[EmailMessage], folder: Path) -> Iterator[Attachment]:
    endings = {"message/rfc822": ".eml", "text/html": ".html", "text/plain": ".txt"}
    for number, part in enumerate(parts, start=1):
        default = f"attachment {number}{endings.get(part.get_content_type(), '')}"
        name = base_name(part.get_filename() or "") or default
        yield name, functools.partial(load_member, folder, name, map(_bytes_of, [part]))


def base_name(name: str) -> str:
    """A file name without folders."""
    return name.replace("\\", "/").rpartition("/")[2].strip()


def _bytes_of(part: EmailMessage) -> bytes:
    """The bytes of an attachment; a mail in a mail is not encoded."""
    inner = part.get_payload()
    if isinstance(inner, list):
        return b"".join(mail.as_bytes() for mail in inner if isinstance(mail, EmailMessage))
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""
