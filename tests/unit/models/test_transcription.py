"""Transcripts of audio and video by a real local server."""

from __future__ import annotations

import pytest

from lazyrag import Document, IngestionWarning, Retriever
from lazyrag.errors import ConfigError, LoadError
from lazyrag.loaders import loaders, register_media_reader
from lazyrag.models import HttpTranscriber
from tests.model_server import KEY, answered, everything_shown, failed

pytestmark = pytest.mark.usefixtures("quick_endpoints")

SPOKEN = [
    (0.0, 4.5, " Good morning."),
    (192.2, 196, " Tea is a shrub."),
    (196.0, 200.9, " It grows in Assam."),
]
SEGMENTS = [
    {"id": at, "start": one[0], "end": one[1], "text": one[2]} for at, one in enumerate(SPOKEN)
]
SOUND = b"RIFF\x00\xff\r\n--boundary\r\n"


@pytest.fixture
def speech(server):
    """A speech server: its requests, and what it answers, one for each request, the last one for
    all that follow.
    """
    server.clear()

    class Speech:
        url = server.url_for("/v1")
        forms: list = []
        answers: list = [answered({"text": "Good morning.", "segments": SEGMENTS})]

    def answer(request):
        file = request.files["file"]
        key = request.headers["Authorization"]
        Speech.forms.append((dict(request.form), (file.filename, file.mimetype, file.read()), key))
        return Speech.answers.pop(0) if len(Speech.answers) > 1 else Speech.answers[0]

    server.expect_request("/v1/audio/transcriptions", method="POST").respond_with_handler(answer)
    return Speech


def test_hits_have_the_times_of_what_was_said(folder, speech):
    """The form holds the bytes of the file and its kind, and not its name; pieces become locations
    with times.
    """
    with (
        loaders.isolated(),
        HttpTranscriber(speech.url, "whisper", language="en", api_key=KEY) as transcribe,
    ):
        for kind in ("audio", "video"):
            register_media_reader(kind, transcribe)
        docs = Document(folder({"secret meeting.wav": SOUND, "tea.mp4": b"\0\0\0\x18ftypmp42"}))
        retriever = Retriever(docs, "FineChunk", similarity="bm25", topk=1)
        [hit] = retriever("tea shrub", filters={"file_name": "secret meeting.wav"})
        docs.create_node_group("line", transform=str.splitlines)
        lines = docs.get_nodes("line")
    assert hit.location == "00:00–03:20"
    assert [(line.text, line.location) for line in lines[:3]] == [
        ("Good morning.", "00:00–00:04"),
        ("Tea is a shrub.", "03:12–03:16"),
        ("It grows in Assam.", "03:16–03:20"),
    ]
    form, file, key = min(speech.forms, key=lambda one: one[1])
    assert form == {
        "model": "whisper",
        "language": "en",
        "response_format": "verbose_json",
        "timestamp_granularities[]": "segment",
    }
    assert file[0] == "file.mp4"
    assert [one[1] for one in speech.forms if one[1] != file] == [
        ("file.wav", "audio/x-wav", SOUND)
    ]
    assert key == f"Bearer {KEY}"


def test_a_model_without_times(tmp_path, speech):
    """The request is sent again for the text alone, and from then on at once."""
    (tmp_path / "a.mp3").write_bytes(b"ID3")
    speech.answers[:] = [
        failed(400, "response_format verbose_json is not supported"),
        answered({"text": "Tea."}),
    ]
    with HttpTranscriber(speech.url, "gpt", api_key=KEY) as transcribe:
        assert [transcribe(tmp_path / "a.mp3") for _ in range(2)] == ["Tea.", "Tea."]
    assert [form["response_format"] for form, _, _ in speech.forms] == [
        "verbose_json",
        "json",
        "json",
    ]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (failed(401, f"no such key {KEY}"), "Check the key"),
        (failed(400, "cannot decode"), "cannot decode"),
        (failed(413, "too large"), "413"),
        (answered({"segments": [{"start": 3, "end": 1, "text": "a"}]}), "0 <= start <= end"),
        (answered({"segments": [{"start": "x", "end": 1, "text": "a"}]}), "'start', 'end', 'text'"),
        (answered({"segments": 3}), "'start', 'end', 'text'"),
        (answered({"words": []}), "'text', 'segments'"),
        (answered("no json"), "not JSON"),
    ],
)
def test_failures_of_the_server(tmp_path, speech, answer, message):
    """They are a LoadError that names the model and the server, without the key."""
    (tmp_path / "a.mp3").write_bytes(b"ID3")
    speech.answers[:] = [answer]
    with (
        HttpTranscriber(speech.url, "whisper", api_key=KEY, retries=0) as transcribe,
        pytest.raises(LoadError, match=message) as caught,
    ):
        transcribe(tmp_path / "a.mp3")
    assert "The speech model 'whisper' at http://" in str(caught.value)
    assert KEY not in everything_shown(caught.value) + repr(transcribe)


def test_a_file_that_is_too_large_is_not_sent(folder, speech):
    """It fails with the limit and the way out, and the rest is read."""
    with (
        loaders.isolated(),
        HttpTranscriber(speech.url, "whisper", api_key=KEY, max_bytes=10) as transcribe,
    ):
        register_media_reader("audio", transcribe)
        docs = Document(folder({"a.txt": "Water", "long.mp3": b"ID3" * 4}))
        with pytest.warns(IngestionWarning, match=r"12 bytes; max_bytes=10"):
            assert [node.text for node in docs.get_nodes()] == ["Water"]
    assert speech.forms == []


def test_arguments(speech):
    """They are checked, and patience is long unless it is given."""
    assert HttpTranscriber(speech.url, "w", api_key="").endpoint.timeout_s == 600
    assert HttpTranscriber(speech.url, "w", api_key="", timeout_s=3).endpoint.timeout_s == 3
    with pytest.raises(ConfigError, match="max_bytes must be an integer >= 1"):
        HttpTranscriber(speech.url, "w", max_bytes=0)
