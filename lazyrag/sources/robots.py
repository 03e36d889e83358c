"""What a website allows programs to read: its robots.txt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

from lazyrag.sources.addresses import WebUrl, quoted_target
from lazyrag.sources.client import WebClient
from lazyrag.sources.faults import FetchError

_MOST_BYTES = 512_000  # RFC 9309: at least 500 KiB are read
_MOST_RULES = 10_000
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_RATE = re.compile(r"([0-9]{1,9})\s*/\s*([0-9]{1,9})([smh]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(slots=True)
class _Group:
    """The rules for some programs.

    Args:
        rules: Patterns of paths, and whether what one fits is allowed.
        delay_s: Seconds between two requests.
    """

    rules: list[tuple[str, bool]] = field(default_factory=list)
    delay_s: float = 0.0


class Rules:
    """What one robots.txt says to one program: the longest rule that fits a path decides, ``*`` and ``$`` understood.

    Lines that say nothing that can be understood are passed over.

    Args:
        lines: Of the file.
        agent: The program's name, without its version; rules for it go before those for all.

    Source:
        RFC 9309, Robots Exclusion Protocol.

    Example:
        >>> rules = Rules(["User-agent: *", "Disallow: /*.pdf$", "Allow: /teas/"], "lazyrag")
        >>> rules.allows("/list.pdf"), rules.allows("/list.pdf?page=2"), rules.allows("/teas/list.pdf")
        (False, True, False)
    """

    def __init__(self, lines: Iterable[str], agent: str) -> None:
        groups = _groups(lines)
        name = agent.lower()
        self._group = groups.get(name) or groups.get("*") or _Group()

    @property
    def delay_s(self) -> float:
        """Seconds that are wanted between two requests."""
        return self._group.delay_s

    def allows(self, target: str) -> bool:
        """Whether a path with its query may be read."""
        if target.partition("?")[0] == "/robots.txt":
            return True
        fitting = ((len(pattern), allowed) for pattern, allowed in self._group.rules if _fits(pattern, target))
        return max(fitting, default=(0, True))[1]  # of two that are equally long, the one that allows


def _groups(lines: Iterable[str]) -> dict[str, _Group]:
    """The rules by name of a program, in lower case; those that stand apart for one name belong together."""
    groups: dict[str, _Group] = {}
    current: list[_Group] = []
    names_end = True
    count = 0
    for key, value in _said(lines):
        if key == "user-agent":
            if names_end:
                current = []
            name = value.partition("/")[0].strip().lower()
            current.append(groups.setdefault(name, _Group()))
            names_end = False
            continue
        if key in {"allow", "disallow"}:
            names_end = True
            count += 1
            pattern = _pattern(value)
            if pattern and count <= _MOST_RULES:
                for group in current:
                    group.rules.append((pattern, key == "allow"))
        elif key in {"crawl-delay", "request-rate"}:
            names_end = True
            for group in current:
                group.delay_s = max(group.delay_s, _delay_s(key, value))
    return groups


def _said(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _pattern(value: str) -> str:
    """A rule's path with its escapes as URLs have them here; "" for one that is none."""
    return quoted_target(value) if value.startswith(("/", "*")) else ""


def _fits(pattern: str, target: str) -> bool:
    """Whether a rule fits the beginning of a path, or with ``$`` the whole of it; in time that no rule can blow up."""
    is_whole = pattern.endswith("$")
    first, *rest = pattern.removesuffix("$").split("*")
    if not target.startswith(first):
        return False
    position = len(first)
    if is_whole and rest:
        *rest, last = rest
        end = len(target) - len(last)
    elif is_whole:
        return position == len(target)
    else:
        last, end = "", len(target)
    for piece in rest:
        found = target.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return position <= end and target.endswith(last)


def _delay_s(key: str, value: str) -> float:
    """Seconds between two requests; 0 where a line says nothing that is understood."""
    if key == "crawl-delay":
        return float(value) if _SECONDS.fullmatch(value) else 0.0
    rate = _RATE.match(value)
    return int(rate[2]) * _UNITS[rate[3]] / int(rate[1]) if rate and int(rate[1]) else 0.0


class Robots:
    """The rules of the hosts that are asked, each read once.

    A host without the file allows everything; one whose file cannot be had for the moment allows nothing.

    Args:
        client: Asks for the files; its user agent is whom the rules are for.
    """

    def __init__(self, client: WebClient) -> None:
        self._client = client
        self._agent = client.user_agent.partition("/")[0].strip()
        self._rules: dict[tuple[str, str, int], Rules | FetchError] = {}

    def allows(self, url: WebUrl) -> bool:
        """Whether a URL may be read.

        Raises:
            FetchError: If the rules of its host cannot be had for the moment.
        """
        return self._of(url).allows(url.target)

    def delay_s(self, url: WebUrl) -> float:
        """Seconds that its host wants between two requests."""
        return self._of(url).delay_s

    def _of(self, url: WebUrl) -> Rules:
        if url.origin not in self._rules:
            self._rules[url.origin] = self._read(WebUrl(*url.origin, "/robots.txt"))
        rules = self._rules[url.origin]
        if isinstance(rules, FetchError):
            raise rules
        return rules

    def _read(self, url: WebUrl) -> Rules | FetchError:
        try:
            body = self._client.get(url, accept="text/plain").body[:_MOST_BYTES]
        except FetchError as exc:
            if not HTTPStatus.BAD_REQUEST <= exc.status < HTTPStatus.INTERNAL_SERVER_ERROR or exc.transient:
                return exc
            body = b""
        return Rules(body.decode("utf-8-sig", "replace").splitlines(), self._agent)
