"""Mails, and mailboxes of them."""

from __future__ import annotations

import functools
import mailbox
import re
from collections.abc import Callable, Iterator, Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, cast

from lazyrag.errors import LoadError
from lazyrag.loaders.archives import Members, members, nested_places, unread_within, with_attachments
from lazyrag.loaders.base import LoadedFile, join_parts
from lazyrag.loaders.detect import decode
from lazyrag.loaders.html import read_html

_HEADERS = ("subject", "from", "to", "cc", "date")
_MOST_PARSED = 10_000  # characters of a header: 0.2 s at worst; one of 400,000 took minutes
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


class _Bounded(policy.EmailPolicy):
    """The standard library's reading of headers, but for long ones: its time grows with the square of their length.

    One that it cannot read counts as empty.
    """

    def header_fetch_parse(self, name: str, value: str) -> Any:
        try:
            return super().header_fetch_parse(name, value[:_MOST_PARSED])
        except (AttributeError, IndexError, RecursionError):  # of broken addresses, of a thousand brackets
            return super().header_fetch_parse(name, "")


_POLICY = _Bounded()


class EmlLoader:
    """Reads a mail: subject, sender, recipients and date as its first lines, then its body, then its attachments.

    Of a body that is there twice the plain text is read, else the page. Attachments that can be read follow as places
    of kind ``attachment``, and their own pages or headings as places within these. Headers and names of attachments
    become metadata, and so does why one is not read.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        loaded = _read_mail(path.read_bytes())
        if loaded.metadata.keys().isdisjoint(_HEADERS):
            msg = "The file is no mail: it has no subject, sender, recipient or date. Save it again as .eml."
            raise LoadError(msg)
        return loaded


class MboxLoader:
    """Reads a mailbox mail by mail; each is a place of kind ``message``, and its attachments are part of it.

    The number of mails becomes metadata, and so does why one is not read.
    """

    def load(self, path: Path) -> LoadedFile:
        """Read the file."""
        box = mailbox.mbox(path, create=False)
        mails = []
        unread: dict[str, str] = {}
        try:
            for number, key in enumerate(box.keys(), start=1):
                try:
                    mails.append(_read_mail(_QUOTED_FROM.sub(rb"\1", box.get_bytes(key))))
                    unread |= unread_within(mails[-1], str(number))
                except LoadError as exc:
                    unread[str(number)] = str(exc)
                    mails.append(LoadedFile(""))  # so that the others keep their numbers
        finally:
            box.close()
        if not mails:
            msg = "The file is no mailbox: no line begins with 'From '. Save it again as .mbox, or one mail as .eml."
            raise LoadError(msg)
        numbers = [("message", str(number)) for number in range(1, len(mails) + 1)]
        text, whole = join_parts([mail.text for mail in mails], numbers)
        places = [
            place
            for mail, one in zip(mails, whole, strict=True)
            for place in nested_places(mail, one.start, one.kind, one.label)
        ]
        return LoadedFile(
            text, tuple(places), {"messages": len(mails), **({"unread_messages": unread} if unread else {})}
        )


def _read_mail(data: bytes) -> LoadedFile:
    if b"\0" in data[:200]:  # stored as UTF-16, which no mail program does, but editors do
        data = decode(data).encode()
    mail = cast("EmailMessage", message_from_bytes(data, policy=_POLICY))
    said: dict[str, Any] = {name: value for name in _HEADERS if (value := _header(mail, name))}
    bodies = []
    attachments = []
    for part in _leaves(mail):
        if part.is_attachment() or part.get_filename() or part.get_content_maintype() not in {"text", "multipart"}:
            attachments.append(part)
        else:  # a part that says to have parts, and has none, is text as well
            bodies.append(_body(part))
    head = "\n".join(f"{name.capitalize()}: {value}" for name, value in said.items())
    text = "\n\n".join(text for text in (head, *bodies) if text)
    with members() as inside:
        return with_attachments(text, said, _attachments(attachments, inside))


def _header(mail: EmailMessage, name: str) -> str:
    """A header's words on one line; of the date its ISO 8601 form where it is one."""
    raw = next((str(value) for key, value in mail.raw_items() if key.lower() == name), "")
    if not raw.isascii():
        # Bytes that no header may hold: some programs write their own encoding, which is found out as a file's is.
        return " ".join(_decoded(raw.encode("utf-8", "surrogateescape")).split())
    parsed = str(mail.get(name, "")) if len(raw) <= _MOST_PARSED else ""
    value = " ".join(parsed.split()) or " ".join(raw.split())
    if name == "date":
        try:
            return parsedate_to_datetime(value).isoformat(sep=" ")
        except ValueError:
            return value
    return value


def _leaves(part: EmailMessage) -> Iterator[EmailMessage]:
    """The parts of a mail that hold something, in order; of alternatives the one to be read."""
    if not part.is_multipart() or part.get_content_maintype() != "multipart":
        yield part  # a mail in a mail is a leaf: it is read as an attachment
        return
    children = [child for child in part.iter_parts() if isinstance(child, EmailMessage)]
    if part.get_content_subtype() == "alternative":
        children = _best(children)
    for child in children:
        yield from _leaves(child)


def _best(alternatives: list[EmailMessage]) -> list[EmailMessage]:
    """The plain text if it is not blank, else the page, which may have pictures as parts of its own."""
    plain = [one for one in alternatives if one.get_content_type() == "text/plain" and _body(one)]
    pages = [one for one in alternatives if one.get_content_type() == "text/html" or one.is_multipart()]
    return plain[:1] or pages[-1:] or alternatives[-1:]


def _body(part: EmailMessage) -> str:
    """The text of a part."""
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes) or not payload.strip():
        return ""
    text = _decoded(payload, part.get_content_charset())
    return (read_html(text).text if part.get_content_subtype() == "html" else text.replace("\r\n", "\n")).strip()


def _decoded(data: bytes, declared: str | None = None) -> str:
    """Text of bytes whose encoding is tried as it is declared, not believed; what is no text shows as U+FFFD."""
    try:
        return decode(data, declared=declared)
    except LoadError:
        return data.decode("ascii", "replace")


def _attachments(parts: Sequence[EmailMessage], inside: Members) -> Iterator[tuple[str, Callable[[], LoadedFile]]]:
    """The name of each attachment, and what loads it."""
    for number, part in enumerate(parts, start=1):
        name = _file_name(part, number)
        yield name, functools.partial(inside.load, name, [_bytes_of(part)])


def _file_name(part: EmailMessage, number: int) -> str:
    """What an attachment is called, without folders."""
    given = (part.get_filename() or "").replace("\\", "/").rpartition("/")[2].strip()
    ending = {"message/rfc822": ".eml", "text/html": ".html", "text/plain": ".txt"}.get(part.get_content_type(), "")
    return given or f"attachment {number}{ending}"


def _bytes_of(part: EmailMessage) -> bytes:
    """What an attachment holds; a mail in a mail is not encoded."""
    inner = part.get_payload()
    if isinstance(inner, list):
        return b"".join(one.as_bytes() for one in inner if isinstance(one, EmailMessage))
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""
