"""The rate limit, on a clock of its own."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError
from lazyrag.models import Endpoint, RateLimit
from lazyrag.models.openai.client import WINDOW_S


class Clock:
    """Time that passes only when somebody sleeps, and a little less than asked for, as real sleeps
    may.
    """

    def __init__(self, short=0.0):
        self.now = 0.0
        self._short = short

    def __call__(self):
        """The time."""
        return self.now

    async def sleep(self, seconds):
        """Let time pass."""
        await asyncio.sleep(0)
        self.now += seconds if seconds < 1e-3 else seconds * (1 - self._short)


def starts(per_minute, pauses, short=0.0):
    """When those start that come so many seconds after each other."""
    clock = Clock(short)
    limit = RateLimit(per_minute, clock=clock, sleep=clock.sleep)
    found = []

    async def ask():
        for pause in pauses:
            clock.now += pause
            await limit.wait()
            found.append(clock.now)

    asyncio.run(ask())
    return found


_pauses = st.lists(st.floats(0, 100), max_size=40)


@given(st.integers(1, 8), _pauses, st.sampled_from([0.0, 0.1]))
def test_no_minute_holds_more_than_its_limit(per_minute, pauses, short):
    """Whenever requests come: each starts at least 60 seconds after the one that came so many
    places before it.
    """
    found = starts(per_minute, pauses, short)
    assert all(
        later - earlier >= WINDOW_S - 1e-6
        for earlier, later in zip(found, found[per_minute:], strict=False)
    )


@given(st.integers(1, 8), _pauses)
def test_nobody_waits_longer_than_needed(per_minute, pauses):
    """A start is at the moment it was asked for, or exactly 60 seconds after the one that stood in
    its way.
    """
    found = starts(per_minute, pauses)
    now = 0.0
    for position, (pause, start) in enumerate(zip(pauses, found, strict=True)):
        now += pause
        free = found[position - per_minute] + WINDOW_S if position >= per_minute else 0.0
        assert start == pytest.approx(max(now, free))
        now = start


_calls = st.lists(st.tuples(st.floats(0, 40), st.integers(0, 12)), max_size=40)


@given(st.none() | st.integers(1, 6), st.integers(1, 20), _calls, st.sampled_from([0.0, 0.1]))
def test_no_window_holds_more_than_its_requests_and_tokens(requests, tokens, calls, short):
    """Of any 60 seconds, wherever they begin; a call beyond the limit of tokens is alone in its
    window.
    """
    clock = Clock(short)
    limit = RateLimit(requests, tokens, clock=clock, sleep=clock.sleep)
    found = []

    async def one(number, own):
        await limit.wait(own)
        found.append((clock.now, own, number))

    async def all_of_them():
        for number, (pause, own) in enumerate(calls):
            clock.now += pause
            await one(number, own)

    asyncio.run(all_of_them())
    assert [number for *_, number in found] == list(range(len(calls)))
    for first, (begin, *_) in enumerate(found):
        window = [own for start, own, _ in found[first:] if start - begin < WINDOW_S - 1e-6]
        assert requests is None or len(window) <= requests
        assert sum(window) <= tokens or sum(own > 0 for own in window) == 1


def test_endpoints_share_the_limit_of_an_account():
    """Requests to two servers wait for each other, and count their texts and the longest answer."""
    clock = Clock()
    limit = RateLimit(2, 500, clock=clock, sleep=clock.sleep)
    both = [Endpoint(f"http://localhost:{port}/v1", "", rate_limit=limit) for port in (9, 10)]
    body = {"messages": [{"role": "user", "content": "green tea " * 20}], "max_tokens": 300}
    tokens = [one._tokens(body) for one in both]
    assert tokens[0] == tokens[1] > 340

    async def calls():
        for one, own in zip((*both, both[0]), (*tokens, 0), strict=True):
            await one.wait_for_turn(own)
            yield clock.now

    async def starts():
        return [start async for start in calls()]

    assert asyncio.run(starts()) == [0.0, 60.0, 60.0]


def test_a_picture_counts_as_a_picture():
    """Not as the text of its bytes, with which no call would fit an account's limit."""
    one = Endpoint("http://localhost:9/v1", "", rate_limit=RateLimit(tokens_per_minute=30_000))
    url = {"url": "data:image/png;base64," + "iVBORw0K" * 100_000}
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": url}]
    assert 1_500 < one._tokens({"messages": [{"role": "user", "content": content}]}) < 1_600


@pytest.mark.parametrize(
    "wrong", [{"rate_limit": 60}, {"rate_limit": RateLimit(1), "requests_per_minute": 2}]
)
def test_an_endpoint_takes_one_limit(wrong):
    """A number is no RateLimit, and two limits of requests would contradict each other."""
    with pytest.raises(ConfigError, match="rate_limit"):
        Endpoint("http://localhost:9/v1", **wrong)


def test_those_who_wait_start_in_the_order_they_came():
    """Also when they wait at the same time."""
    clock = Clock()
    limit = RateLimit(1, clock=clock, sleep=clock.sleep)
    order = []

    async def one(number):
        await limit.wait()
        order.append((number, clock.now))

    async def all_of_them():
        await asyncio.gather(*map(one, range(4)))

    asyncio.run(all_of_them())
    assert order == [(0, 0.0), (1, 60.0), (2, 120.0), (3, 180.0)]


def test_who_is_cancelled_while_waiting_takes_nobodys_place():
    """The next one starts as if the other had never asked."""
    clock = Clock()
    limit = RateLimit(1, clock=clock, sleep=clock.sleep)

    async def ask():
        await limit.wait()
        waiting = asyncio.ensure_future(limit.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await limit.wait()
        return clock.now

    assert asyncio.run(ask()) == 60.0


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "60"], ids=repr)
def test_a_limit_is_a_whole_number_of_at_least_1(wrong):
    """Anything else is refused by the name that users know."""
    with pytest.raises(ConfigError, match="requests_per_minute"):
        Endpoint("http://localhost:9/v1", requests_per_minute=wrong)
