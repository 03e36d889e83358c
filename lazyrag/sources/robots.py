"""What a website allows programs to read: its robots.txt."""

from __future__ import annotations

import urllib.robotparser
from http import HTTPStatus

from lazyrag.sources.addresses import WebUrl
from lazyrag.sources.client import WebClient
from lazyrag.sources.faults import FetchError

_MOST_BYTES = 512_000  # RFC 9309: at least 500 KiB are read


class Robots:
    """The rules of the hosts that are asked, each read once.

    A host without the file allows everything; one whose file cannot be had for the moment allows nothing.

    Args:
        client: Asks for the files; its user agent is whom the rules are for.

    Source:
        RFC 9309, Robots Exclusion Protocol.
    """

    def __init__(self, client: WebClient) -> None:
        self._client = client
        self._rules: dict[tuple[str, str, int], urllib.robotparser.RobotFileParser | FetchError] = {}

    def allows(self, url: WebUrl) -> bool:
        """Whether a URL may be read.

        Raises:
            FetchError: If the rules of its host cannot be had for the moment.
        """
        return self._of(url).can_fetch(self._client.user_agent, str(url))

    def delay_s(self, url: WebUrl) -> float:
        """Seconds that its host wants between two requests."""
        rules = self._of(url)
        delay = rules.crawl_delay(self._client.user_agent)
        rate = rules.request_rate(self._client.user_agent)
        return max(float(delay or 0), rate.seconds / rate.requests if rate and rate.requests else 0.0)

    def _of(self, url: WebUrl) -> urllib.robotparser.RobotFileParser:
        if url.origin not in self._rules:
            self._rules[url.origin] = self._read(WebUrl(*url.origin, "/robots.txt"))
        rules = self._rules[url.origin]
        if isinstance(rules, FetchError):
            raise rules
        return rules

    def _read(self, url: WebUrl) -> urllib.robotparser.RobotFileParser | FetchError:
        rules = urllib.robotparser.RobotFileParser()
        try:
            body = self._client.get(url, accept="text/plain").body[:_MOST_BYTES]
        except FetchError as exc:
            if HTTPStatus.BAD_REQUEST <= exc.status < HTTPStatus.INTERNAL_SERVER_ERROR and not exc.transient:
                body = b""
            else:
                return exc
        rules.parse(body.decode("utf-8-sig", "replace").splitlines())
        return rules
