"""Endpoints: settings, secrets, retries, limits, streams, and how calls end."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from lazyrag.errors import ConfigError, MissingDependencyError, UnknownKeywordError
from lazyrag.models import Endpoint
from lazyrag.models import concurrency as background
from lazyrag.models.openai import client as endpoint
from lazyrag.models.openai import client as faults
from lazyrag.models.openai import client as limits
from lazyrag.models.openai.client import EndpointError
from tests.interpreter import ROOT, python
from tests.model_server import (
    KEY,
    PATIENCE_S,
    RawServer,
    answered,
    event,
    everything_shown,
    failed,
    head,
    item,
    piece,
    streamed,
)

pytestmark = pytest.mark.usefixtures("quick_endpoints")

BODY = {"model": "m", "input": ["tea"]}
GOOD = {"data": [item(0, "tea")], "usage": {"prompt_tokens": 5, "total_tokens": 5}}
EMPTY = head(Content_Length="2") + b"{}"


def post(url, body=BODY, **options):
    """One call of an endpoint of its own."""
    with Endpoint(url, KEY, **options) as one:
        return background.run(one.post("/embeddings", body))


def fails(url, **options):
    """The error of one call."""
    with pytest.raises(EndpointError) as caught:
        post(url, **options)
    assert KEY not in everything_shown(caught.value)
    return caught.value


def events(url, **options):
    """The events of one streamed call, and the error it ends with."""
    found, error = [], None
    with Endpoint(url, KEY, **options) as one:
        stream = background.stream(one.events("/chat/completions", BODY))
        try:
            for each in stream:
                found += [each]
        except EndpointError as exc:
            error = exc
    assert error is None or KEY not in everything_shown(error)
    return found, error


class TestSettings:
    """What an Endpoint is made of."""

    @pytest.mark.parametrize(
        "url", ["http://localhost:8000/v1", " https://models.example/v1/ ", "http://[::1]:80"]
    )
    def test_a_url_may_end_in_a_slash(self, url):
        """It is kept without."""
        assert Endpoint(url).base_url == url.strip().rstrip("/")

    @pytest.mark.parametrize(
        "url",
        [
            "localhost:8000/v1",
            "ftp://models.example/v1",
            "http://",
            "http://user:hush-hush@models.example/v1",
            "http://models.example/v1?key=hush-hush",
            "http://models.example/v1#hush-hush",
            "http://models.example:port/v1",
            "http://mod els.example",
            "",
            None,
            b"http://models.example",
        ],
        ids=repr,
    )
    def test_other_urls_are_refused_and_show_no_secret(self, url):
        """The message says what a URL looks like, and neither credentials nor a query."""
        with pytest.raises(ConfigError, match="base_url must be such as") as caught:
            Endpoint(url)
        assert "hush" not in everything_shown(caught.value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("timeout_s", 0),
            ("timeout_s", True),
            ("connect_timeout_s", -1),
            ("deadline_s", float("inf")),
            ("deadline_s", "60"),
            ("retries", -1),
            ("concurrency", 0),
            ("requests_per_minute", 0),
        ],
    )
    def test_values_out_of_range_are_refused(self, name, value):
        """The message names the keyword and the value."""
        with pytest.raises(ConfigError, match=f"{name} .*{value!r}"):
            Endpoint("http://localhost", **{name: value})

    def test_an_unknown_keyword_names_the_nearest(self):
        """As everywhere in the package."""
        with pytest.raises(UnknownKeywordError, match="Did you mean 'timeout_s'"):
            Endpoint("http://localhost", timeout=3)

    def test_a_missing_library_says_what_to_install(self, monkeypatch):
        """No httpx2, or no tenacity."""
        monkeypatch.setitem(sys.modules, "httpx2", None)
        with pytest.raises(MissingDependencyError, match=r"\.\[openai\]"):
            Endpoint("http://localhost")
        monkeypatch.undo()
        monkeypatch.setitem(sys.modules, "tenacity", None)
        with pytest.raises(MissingDependencyError, match="tenacity"):
            Endpoint("http://localhost")

    @pytest.mark.slow
    def test_making_one_starts_nothing(self):
        """Neither a thread nor a connection."""
        done = python(
            "-c",
            "import threading\n"
            "from lazyrag.models.openai.client import Endpoint\n"
            "Endpoint('http://localhost:9/v1').close()\n"
            "assert threading.active_count() == 1\n",
        )
        assert done.returncode == 0, done.stderr


class TestSecrets:
    """The key goes to the server, and nowhere else."""

    @pytest.mark.parametrize(
        ("argument", "environment", "sent"),
        [
            ("one", {}, "Bearer one"),
            ("one\n", {}, "Bearer one"),
            ("one", {"LAZYRAG_API_KEY": "two", "OPENAI_API_KEY": "three"}, "Bearer one"),
            (None, {"LAZYRAG_API_KEY": "two", "OPENAI_API_KEY": "three"}, "Bearer two"),
            (None, {"OPENAI_API_KEY": "three"}, "Bearer three"),
            (None, {}, None),
            ("", {"OPENAI_API_KEY": "three"}, None),
        ],
    )
    def test_where_the_key_comes_from(self, model, monkeypatch, argument, environment, sent):
        """The argument, else two variables, read when the endpoint is made; "" sends none."""
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with Endpoint(model.url, argument) as one:
            monkeypatch.setenv("LAZYRAG_API_KEY", "too late")
            background.run(one.post("/embeddings", BODY))
        assert model.requests[0].headers.get("Authorization") == sent

    def test_further_headers_are_sent_and_go_before_the_key(self, model):
        """However they are spelt, there is one Authorization."""
        post(model.url, headers={"authorization": "Basic abc", "X-Tenant": "tea"})
        sent = model.requests[0].headers
        assert (sent.getlist("Authorization"), sent["X-Tenant"]) == (["Basic abc"], "tea")

    @pytest.mark.parametrize("key", ["hush-hush\nmore", "hush-hush-ключ", 7])
    def test_a_key_that_cannot_be_sent_is_refused_unseen(self, key):
        """The message does not show it."""
        with pytest.raises(ConfigError, match="api_key") as caught:
            Endpoint("http://localhost", key)
        assert "hush" not in everything_shown(caught.value)
        with pytest.raises(ConfigError, match="headers") as caught:
            Endpoint("http://localhost", headers={"X": key})
        assert "hush" not in everything_shown(caught.value)

    def test_no_repr_shows_it(self):
        """Neither of the endpoint nor of what it holds."""
        one = Endpoint("http://localhost", KEY, headers={"api-key": KEY + "2"})
        assert KEY not in f"{one!r} {one} {vars(one)!r}"
        assert repr(one) == "Endpoint('http://localhost')"

    def test_what_a_server_repeats_is_hidden(self, model):
        """A message that holds the key, written in any way, shows three stars in its place."""
        escaped = KEY.replace("s", "\\u0073")
        for body in (
            f'{{"error": {{"message": "wrong key {KEY}"}}}}',
            f'{{"error": "wrong key {escaped}"}}',
            KEY,
        ):
            model.faults = [answered(body, 401)]
            assert "***" in str(fails(model.url))
        model.faults = [answered(f"<html>{KEY}")] * 2
        assert "***" in str(fails(model.url))
        model.faults = [answered({"error": {"message": KEY}})]
        assert "***" in str(fails(model.url))

    def test_a_key_that_a_message_would_cut_in_two_is_hidden(self, model):
        """Not even its beginning is seen."""
        model.faults = [answered({"error": {"message": "x" * 190 + KEY}}, 401)]
        assert KEY[:8] not in str(fails(model.url))

    def test_what_a_successful_answer_holds_is_left_alone(self, model):
        """A model may say what it likes."""
        model.faults = [answered({"text": KEY})]
        assert post(model.url) == {"text": KEY}

    def test_nothing_is_logged(self, model, caplog):
        """At no level, by any of the libraries."""
        caplog.set_level(logging.DEBUG)
        model.faults = [failed(500), failed(401)]
        fails(model.url)
        assert model.requests
        assert KEY not in caplog.text

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    def test_nothing_is_sent_to_where_a_redirect_points(self, model, status):
        """Neither key nor texts; the error says where it pointed."""
        with RawServer(EMPTY) as elsewhere:
            model.faults = [answered("", status, {"Location": elsewhere.url + "/embeddings"})]
            error = fails(model.url)
            assert elsewhere.requests == []
            assert elsewhere.url in str(error)
            assert "Set base_url" in str(error)
        assert len(model.requests) == 1


@pytest.mark.slow
class TestRetries:
    """What is tried again, and when."""

    def test_faults_of_the_connection(self, model):
        """An error, then a good answer; a silent server; no server; a stream."""
        model.faults = [failed(500)]
        assert post(model.url) == GOOD
        assert len(model.requests) == 2
        with RawServer(b"", hold=True) as silent:
            assert (
                "silent for timeout_s=0.2. Raise that for a slow model. It was tried 2 times"
                in str(fails(silent.url, timeout_s=0.2, retries=1))
            )
            assert len(silent.requests) == 2
        with RawServer(b"") as cutting:
            assert "the connection broke" in str(fails(cutting.url, retries=0))
            gone = cutting.url
        assert "it cannot be reached" in str(fails(gone, retries=0))
        model.faults = [streamed(piece("a"), "[DONE]")]
        assert events(model.url) == ([piece("a"), None], None)

    @pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
    def test_trouble_that_may_pass_is_tried_again(self, model, status):
        """Until it has passed."""
        model.faults = [failed(status), failed(status)]
        assert post(model.url) == GOOD
        assert len(model.requests) == 3

    @pytest.mark.parametrize(
        ("status", "advice"),
        [
            (400, ""),
            (401, "Check the key"),
            (403, "Check the key"),
            (404, "Check base_url"),
            (413, ""),
            (422, ""),
            (501, ""),
        ],
    )
    def test_the_rest_is_final(self, model, status, advice):
        """One try; the error has the status, the server's message, and what to do."""
        model.faults = [failed(status, "green tea is out")]
        error = fails(model.url)
        assert len(model.requests) == error.tries == 1
        assert error.status == status
        assert f"{status} " in str(error)
        assert "green tea is out. " + advice in str(error) + " "

    def test_a_used_up_quota_is_final(self, model):
        """It is a 429 that no waiting helps."""
        model.faults = [answered({"error": {"message": "pay", "code": "insufficient_quota"}}, 429)]
        assert "pay. Lower" in str(fails(model.url))
        assert len(model.requests) == 1

    @pytest.mark.parametrize("retries", [0, 2])
    def test_trouble_for_ever_ends_after_the_retries(self, model, retries):
        """The error counts the tries."""
        model.faults = [failed(500, "tea break")] * 9
        error = fails(model.url, retries=retries)
        assert len(model.requests) == error.tries == retries + 1
        assert "500 Internal Server Error: tea break." in str(error)
        assert ("It was tried 3 times." in str(error)) == (retries == 2)

    @pytest.mark.parametrize(
        ("headers", "least_s"),
        [
            ({"Retry_After": "0.3"}, 0.3),
            ({"Retry_After_Ms": "300"}, 0.3),
            ({"Retry_After": "1"}, 1.0),
        ],
    )
    def test_retry_after_is_obeyed(self, model, headers, least_s):
        """The second try comes no sooner than the server asked."""
        model.faults = [failed(429, "slow down", **headers)]
        assert post(model.url) == GOOD
        assert least_s <= model.times[1] - model.times[0] < PATIENCE_S

    def test_a_date_is_obeyed_too(self):
        """It is compared with the server's own clock, which may be another."""
        then = 1_000_000_000
        dates = f"Date: {_date(then)}\r\nRetry-After: {_date(then + 1)}"
        busy = f"HTTP/1.1 503 Busy\r\n{dates}\r\nContent-Length: 0\r\n\r\n".encode()
        with RawServer(busy, EMPTY) as server:
            begun = time.monotonic()
            assert post(server.url) == {}
            assert 1.0 <= time.monotonic() - begun < PATIENCE_S

    def test_a_wait_that_is_too_long_fails_at_once(self, model):
        """The error says how long the server asked to wait."""
        model.faults = [failed(429, "come back tomorrow", Retry_After="86400")]
        begun = time.monotonic()
        error = fails(model.url, deadline_s=60)
        assert time.monotonic() - begun < PATIENCE_S
        assert "deadline_s=60 leaves no time for another try" in str(error)
        assert "Lower concurrency" in str(error)
        assert len(model.requests) == 1

    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ({"retry-after": "-5"}, 0.0),
            ({"retry-after": "soon"}, None),
            ({"retry-after": "nan"}, None),
            ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
            ({"retry-after": "9", "retry-after-ms": "20"}, 0.02),
            ({}, None),
        ],
    )
    def test_what_retry_after_says(self, headers, expected):
        """What is past means at once; what is neither a number nor a date means nothing."""
        assert faults.retry_after_s(headers) == expected

    @pytest.mark.parametrize("body", ['{"data": [', "<html>Sign in</html>", "", "[" * 100_000])
    def test_an_answer_that_is_not_json_is_tried_once_more(self, model, body):
        """It may have been cut; the error shows its beginning."""
        model.faults = [answered(body)]
        assert post(model.url) == GOOD
        model.faults = [answered(body)] * 9
        error = fails(model.url)
        assert f"not JSON: {body[:20]!r}"[:-1] in str(error)
        assert error.tries == 2
        assert len(str(error)) < 500

    def test_an_error_in_a_successful_answer_is_an_error(self, model):
        """With the code of a status it is that status; else it is final."""
        model.faults = [answered({"error": {"message": "busy", "code": 503}})]
        assert post(model.url) == GOOD
        model.faults = [answered({"error": {"message": "broken", "code": "oops"}})]
        assert "broken" in str(fails(model.url))
        assert len(model.requests) == 3

    def test_a_cut_answer_is_tried_again(self):
        """The server closes in the middle of the body."""
        cut = head(Content_Length="100") + b'{"data'
        with RawServer(cut, b"", b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", EMPTY) as server:
            assert post(server.url) == {}
            assert len(server.requests) == 4

    def test_a_call_ends_with_its_deadline(self):
        """Even where the server is never silent for long."""
        with RawServer(b"", hold=True) as silent:
            begun = time.monotonic()
            error = fails(silent.url, deadline_s=0.3)
            assert 0.3 <= time.monotonic() - begun < PATIENCE_S
        assert "longer than deadline_s=0.3" in str(error)

    def test_a_pause_that_outlasts_the_deadline_is_not_made(self, model, monkeypatch):
        """The call fails at once with the trouble it had."""
        for name in ("FIRST_PAUSE_S", "MAX_PAUSE_S"):
            monkeypatch.setattr(endpoint, name, 1000.0)
        model.faults = [failed(500, "tea break")]
        begun = time.monotonic()
        error = fails(model.url, deadline_s=60)
        assert time.monotonic() - begun < PATIENCE_S
        assert "deadline_s=60 leaves no time for another try" in str(error)

    def test_what_cannot_be_written_as_json_is_not_sent(self, model):
        """Half a surrogate pair, nan and objects are the request's fault."""
        for wrong in ("\ud800", float("nan"), object()):
            with pytest.raises(EndpointError, match="cannot be written as JSON") as caught:
                post(model.url, {"input": wrong})
            assert caught.value.refused
        assert model.requests == []


def _date(seconds):
    """A date as HTTP writes it."""
    return email.utils.formatdate(seconds, usegmt=True)


class TestLimits:
    """One limit for all callers."""

    @pytest.mark.slow
    def test_no_more_calls_are_under_way_than_allowed(self, model):
        """From two event loops and four threads at once, on one object; all succeed."""
        model.hold_s = 0.02
        answers = []

        async def several(one):
            answers.extend(
                await asyncio.gather(
                    *(background.arun(one.post("/embeddings", BODY)) for _ in range(5))
                )
            )

        def loop(one):
            asyncio.run(several(one))

        def thread(one):
            answers.extend(background.run(one.post("/embeddings", BODY)) for _ in range(5))

        with Endpoint(model.url, concurrency=3) as one:
            threads = [
                threading.Thread(target=work, args=(one,)) for work in [loop] * 2 + [thread] * 4
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        assert answers == [GOOD] * 30
        assert 1 < model.most_at_once <= 3

    def test_connections_are_used_again(self):
        """One after the other, and from any loop, calls come on the same connection."""
        with RawServer(EMPTY, again=True) as server, Endpoint(server.url) as one:
            for _ in range(3):
                assert background.run(one.post("/embeddings", BODY)) == {}
                assert asyncio.run(background.arun(one.post("/embeddings", BODY))) == {}
            assert (server.connections, len(server.requests)) == (1, 6)

    @pytest.mark.slow
    def test_the_rate_limit_is_kept(self, model, monkeypatch):
        """Of one a window, each starts a window after the one before; retries count, waiting does
        not.
        """
        monkeypatch.setattr(limits, "WINDOW_S", 0.6)
        model.faults = [failed(500)]
        begun = time.monotonic()
        with Endpoint(model.url, requests_per_minute=1, deadline_s=3.5) as one:
            work = [one.post("/embeddings", BODY) for _ in range(6)]
            assert background.run(background.together(*work)) == [GOOD] * 6
        times = sorted(model.times)
        assert len(times) == 7
        assert all(seen - begun >= 0.6 * position for position, seen in enumerate(times))


class TestStreams:
    """Server-sent events."""

    def test_events_come_one_by_one(self, model):
        """Parsed, with None for the end that a stream should have."""
        model.faults = [streamed(piece("a"), piece("绿\u2028茶"), "[DONE]")]
        assert events(model.url) == ([piece("a"), piece("绿\u2028茶"), None], None)

    def test_only_the_beginning_is_tried_again(self, model):
        """Errors before the first event are; what comes after is told with the events that came."""
        busy = {"error": {"message": "busy", "code": 503}}
        model.faults = [failed(503), streamed(busy), streamed(piece("a"), busy)]
        found, error = events(model.url)
        assert found == [piece("a")]
        assert "busy" in str(error)
        assert len(model.requests) == 3

    def test_a_stream_that_is_cut_ends_in_an_error(self):
        """Before the first event it is tried again, after it that is the end."""
        sse = head("text/event-stream", Transfer_Encoding="chunked")
        one = event(piece("a"))
        chunk = b"%x\r\n%s\r\n" % (len(one), one)
        with RawServer(sse, sse + chunk) as server:
            found, error = events(server.url)
            assert found == [piece("a")]
            assert "the connection broke" in str(error)
            assert len(server.requests) == 2

    def test_an_event_that_is_not_json_ends_it(self, model):
        """The error shows it."""
        model.faults = [streamed(piece("a"), "{half")]
        found, error = events(model.url)
        assert found == [piece("a")]
        assert "'{half'" in str(error)

    def test_a_server_that_does_not_stream_gives_one_piece(self, model):
        """Plain JSON is taken as it comes."""
        model.faults = [answered({"choices": []})]
        assert events(model.url) == ([{"choices": []}, None], None)

    def test_empty_events_and_comments_say_nothing(self):
        """What keeps a connection open is passed over."""
        body = b": hello\n\ndata:\n\n" + event(piece("a")) + b"data: [DONE]\n\n"
        with RawServer(head("text/event-stream") + body) as server:
            assert events(server.url) == ([piece("a"), None], None)

    def test_a_stream_ends_with_its_deadline(self):
        """A server that sends comments for ever is not listened to for ever."""

        def drip(connection):
            connection.sendall(head("text/event-stream") + event(piece("a")))
            while not server.gone.wait(0.02):
                connection.sendall(b": wait\n\n")

        with RawServer(drip) as server:
            found, error = events(server.url, deadline_s=1.0)
        assert found == [piece("a")]
        assert "deadline_s=1" in str(error)

    def test_a_slow_consumer_holds_no_connection(self, model):
        """With one connection allowed, a call in the middle of a stream gets its turn."""
        model.faults = [streamed(piece("a"), piece("b"), "[DONE]")]
        with Endpoint(model.url, concurrency=1) as one:
            stream = background.stream(one.events("/chat/completions", BODY))
            assert next(stream) == piece("a")
            assert background.run(one.post("/embeddings", BODY)) == GOOD
            assert list(stream) == [piece("b"), None]


@pytest.mark.slow
class TestEndings:
    """Cancelled calls, closed endpoints, children, the end of a program."""

    def test_cancelling_a_task_ends_its_request(self):
        """The server sees the connection go, while it is still thinking."""
        with RawServer(b"", hold=True) as server:
            one = Endpoint(server.url)

            async def cancel():
                task = asyncio.ensure_future(background.arun(one.post("/embeddings", BODY)))
                await asyncio.to_thread(server.asked.wait, PATIENCE_S)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

            asyncio.run(cancel())
            assert server.gone.wait(PATIENCE_S)

    def test_a_pause_between_tries_can_be_cancelled(self, model):
        """The caller is free long before the pause is over."""
        model.faults = [failed(503, Retry_After="500")]
        with Endpoint(model.url) as one:
            begun = time.monotonic()

            async def cancel():
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(background.arun(one.post("/embeddings", BODY)), 0.5)

            asyncio.run(cancel())
            assert time.monotonic() - begun < PATIENCE_S

    @pytest.mark.parametrize("how", ["close", "drop"])
    def test_leaving_a_stream_closes_its_connection(self, how):
        """The server sees it go."""
        with RawServer(head("text/event-stream") + event(piece("a")), hold=True) as server:
            one = Endpoint(server.url)
            stream = background.stream(one.events("/chat/completions", BODY))
            assert next(stream) == piece("a")
            if how == "close":
                stream.close()
            del stream
            assert server.gone.wait(PATIENCE_S)

    def test_an_endpoint_that_nobody_closes_is_closed_when_it_is_collected(self):
        """The server sees its connection go, and no warning is given."""
        with RawServer(EMPTY, again=True) as server:
            one = Endpoint(server.url)
            assert background.run(one.post("/embeddings", BODY)) == {}
            del one
            gc.collect()
            assert server.gone.wait(PATIENCE_S)

    def test_a_closed_endpoint_says_so(self, model):
        """At once, and whether it was used or not."""
        for used in (False, True):
            one = Endpoint(model.url)
            if used:
                background.run(one.post("/embeddings", BODY))
            one.close()
            one.close()
            with pytest.raises(EndpointError, match=r"Endpoint\('http.*'\) is closed"):
                background.run(one.post("/embeddings", BODY))

    def test_closing_ends_calls_that_are_under_way(self):
        """They fail, saying that the endpoint is closed; also by an async with."""
        with RawServer(b"", hold=True) as server:

            async def close():
                async with Endpoint(server.url) as one:
                    task = asyncio.ensure_future(background.arun(one.post("/embeddings", BODY)))
                    await asyncio.to_thread(server.asked.wait, PATIENCE_S)
                with pytest.raises(EndpointError, match="is closed"):
                    await task

            asyncio.run(close())

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
    def test_parent_and_forked_child_both_go_on(self):
        """Each on its own connection, although they began with the same object."""
        with RawServer(EMPTY, again=True) as server:
            done = python(
                "-W",
                # of Python 3.12, about forking with threads: that is what is tested
                "ignore::DeprecationWarning",
                "-c",
                "import os\n"
                "from lazyrag.models import concurrency as background\n"
                "from lazyrag.models.openai.client import Endpoint\n"
                f"one = Endpoint({server.url!r}, trust_env=False)\n"
                "def call():\n"
                "    return background.run(one.post('/embeddings', {}))\n"
                "assert call() == {}\n"
                "child = os.fork()\n"
                "if not child:\n"
                "    os._exit(0 if call() == call() == {} else 1)\n"
                "_, status = os.waitpid(child, 0)\n"
                "assert status == 0\n"
                "assert call() == {}\n",
            )
            assert done.returncode == 0, done.stderr
            assert (server.connections, len(server.requests)) == (2, 4)

    def test_a_program_ends_at_once_with_a_request_under_way(self):
        """Nothing is waited for, nothing is printed."""
        with RawServer(b"", hold=True) as server:
            begun = time.monotonic()
            with _program(
                server.url, "threading.Thread(target=call, daemon=True).start(); input()"
            ) as process:
                assert server.asked.wait(PATIENCE_S)
                assert process.communicate("\n", timeout=PATIENCE_S) == ("", "")
            assert process.returncode == 0
            assert time.monotonic() - begun < PATIENCE_S
            assert server.gone.wait(PATIENCE_S)

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
    def test_keyboard_interrupt_ends_a_request(self):
        """The program is free at once, and the server sees the connection go before the program
        ends.
        """
        with RawServer(b"", hold=True) as server:
            code = "try:\n    call()\nexcept KeyboardInterrupt:\n    print('free', flush=True); input()"
            with _program(server.url, code) as process:
                assert server.asked.wait(PATIENCE_S)
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "free\n"
                assert server.gone.wait(PATIENCE_S)
                assert process.communicate("\n", timeout=PATIENCE_S) == ("", "")


def _program(url, code):
    """A fresh interpreter with a function ``call()`` that asks a server."""
    program = (
        "import signal, threading\n"
        # what a shell starts with & ignores it
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from lazyrag.models import concurrency as background\n"
        "from lazyrag.models.openai.client import Endpoint\n"
        f"one = Endpoint({url!r}, trust_env=False)\n"
        "def call():\n"
        "    return background.run(one.post('/embeddings', {}))\n"
    )
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-W", "default", "-c", program + code],
        cwd=ROOT,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
