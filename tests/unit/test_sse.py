"""Server-sent events, cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag.models.openai.client import EventDecoder

_line = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
_events = st.lists(st.lists(_line, min_size=1, max_size=3), max_size=5)


def decoded(*chunks):
    """The data of a whole stream."""
    decoder = EventDecoder()
    found = [data for chunk in chunks for data in decoder.feed(chunk)]
    return found + decoder.end()


@given(_events, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 400), max_size=8))
def test_events_come_out_as_they_went_in(events, end, cuts):
    """Any texts with any line ends, cut anywhere, also inside of a character or CR LF; Unicode's line ends are text."""
    text = "".join("".join(f"data: {line}{end}" for line in event) + end for event in events)
    data = text.encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[start:stop] for start, stop in itertools.pairwise(places)]
    assert decoded(*chunks) == ["\n".join(event) for event in events]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b": a comment\n\n:\n\ndata: x\n\n", ["x"]),
        (b"event: message\nid: 7\nretry: 10\ndata: x\n\n", ["x"]),
        (b"event: ping\n\ndata: x\n\n", ["x"]),
        (b"data:x\n\ndata:  y\n\n", ["x", " y"]),
        (b"data\n\ndata:\n\n", ["", ""]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"\xef\xbb\xbfdata: x\n\n", ["x"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"data: x\n\ndata: [DONE]", ["x", "[DONE]"]),
        (b"data: x\n\ndata: [DONE]\n", ["x", "[DONE]"]),
        (b"data: x\r\n\r\ndata: y\r\n\r", ["x", "y"]),
    ],
)
def test_the_forms_that_servers_send(stream, expected):
    """Comments and other fields are passed over, one space after the colon goes, a last event needs no empty line."""
    assert decoded(stream) == expected
    assert decoded(*(bytes([byte]) for byte in stream)) == expected


def test_an_event_is_given_as_soon_as_it_is_complete():
    """Nothing waits for the next event."""
    decoder = EventDecoder()
    assert decoder.feed(b"data: x\n") == []
    assert decoder.feed(b"\n") == ["x"]
