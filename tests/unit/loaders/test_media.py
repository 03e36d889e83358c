"""Pictures, sound and films: read by the functions that users give, and reported where there is
none.
"""

from __future__ import annotations

import pytest

from lazyrag import Document, IngestionWarning, Retriever
from lazyrag.errors import AlreadyRegisteredError, ConfigError, LoadError, NoReaderError
from lazyrag.loaders import (
    LoadedFile,
    LoadLimits,
    load_file,
    loaders,
    register_loader,
    register_media_reader,
)
from lazyrag.loaders.media import SUFFIXES, AudioLoader, ImageLoader, VideoLoader


@pytest.fixture(autouse=True)
def _own_registry():
    """What a test registers is gone afterwards."""
    with loaders.isolated():
        yield


PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
JPEG, GIF = b"\xff\xd8\xff\xe0", b"GIF89a"


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [(suffix, kind) for kind, suffixes in SUFFIXES.items() for suffix in suffixes],
)
def test_without_a_reader_a_file_is_reported(tmp_path, suffix, kind):
    """Each suffix fails with the error that says what is lacking and how to give it, where the
    suffix decides.
    """
    register_loader(suffix, replace=True)(loaders[suffix])
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PICTURE)
    with pytest.raises(
        NoReaderError, match=f'register_media_reader\\("{kind}", function\\)'
    ) as caught:
        load_file(path)
    assert caught.value.path == str(path)
    assert isinstance(caught.value, LoadError)


def test_a_folder_with_pictures_is_no_alarm(folder):
    """Pictures without a reader stand in the report, and one warning says that they are left out;
    nothing failed.
    """
    docs = Document(folder({"a.txt": "Green tea", "b.png": PICTURE, "c.jpg": JPEG}))
    with pytest.warns(IngestionWarning) as caught:
        docs.get_nodes()
    assert len(caught) == 1
    reason = "image without a media reader (register_media_reader)"
    assert str(caught[0].message).startswith(f"Skipped 2 of 3 files; the first is b.png: {reason}.")
    assert "failed to load" not in str(caught[0].message)
    assert docs.last_report.failed == ()
    assert docs.last_report.skipped == (("b.png", reason), ("c.jpg", reason))
    assert str(docs.last_report) == f"1 added, 0 failed, 2 skipped\n  2 skipped: {reason}"
    assert docs.status().failed == ()


def test_pictures_beside_files_that_fail(folder):
    """What failed is counted without the pictures, which are named after it."""
    docs = Document(folder({"a.txt": "Green tea", "b.png": PICTURE, "c.json": "{"}))
    with pytest.warns(
        IngestionWarning, match=r"^1 of 3 files failed to load.*c\.json.*Skipped 1 of 3 files"
    ):
        docs.get_nodes()


def test_a_folder_of_nothing_but_pictures(folder):
    """Where there is nothing to answer from, a warning says how to give a reader."""
    docs = Document(folder({"b.png": PICTURE}))
    with pytest.warns(IngestionWarning, match="register_media_reader"):
        assert docs.get_nodes() == []


def test_a_registered_reader_is_asked(folder):
    """A function for pictures makes them texts that are found."""
    register_media_reader("image", lambda path: f"A cup of {path.stem}")
    docs = Document(folder({"tea.png": PICTURE, "coffee.gif": GIF}))
    [hit] = Retriever(docs, "FineChunk", similarity="bm25", topk=1)("cup of tea")
    assert (hit.path, hit.text) == ("tea.png", "A cup of tea")


def test_a_picture_that_is_there_when_its_reader_comes(folder):
    """A picture that was left out is read with the next sync once a reader is given."""
    docs = Document(folder({"a.txt": "Water", "tea.png": PICTURE}))
    with pytest.warns(IngestionWarning, match="Skipped 1 of 2"):
        docs.get_nodes()
    register_media_reader("image", lambda path: "A cup")
    assert docs.sync().added == ("tea.png",)
    assert docs.last_report.failed == ()


@pytest.mark.slow
def test_processes_leave_what_only_this_one_has(folder):
    """A function of this process reads pictures here, also where others load files."""
    register_media_reader("image", lambda path: "A cup")
    docs = Document(
        folder({"a.png": PICTURE, "b.png": PICTURE, "c.txt": "Water"}),
        limits=LoadLimits(processes=1),
    )
    assert [node.text for node in docs.get_nodes()] == ["A cup", "A cup", "Water"]


def test_transcripts_have_times(tmp_path):
    """Pieces with times are lines and places."""
    (tmp_path / "a.mp3").write_bytes(b"ID3")
    pieces = [(0, 2.5, " Green tea. "), (2.5, 3, ""), (61, 3723.9, "绿茶")]
    loaded = AudioLoader(lambda _: iter(pieces)).load(tmp_path / "a.mp3")
    assert loaded.text == "Green tea.\n绿茶"
    assert [
        (one.kind, one.label, loaded.text[one.start : one.end]) for one in loaded.locations
    ] == [
        ("time", "00:00–00:02", "Green tea."),
        ("time", "01:01–1:02:03", "绿茶"),
    ]
    assert loaded.metadata == {}


def test_a_reader_of_one_loader(tmp_path):
    """A loader takes a function of its own; a LoadedFile is taken as it is."""
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    (tmp_path / "a.mkv").write_bytes(b"\x1a\x45\xdf\xa3")
    loaded = AudioLoader(lambda _: LoadedFile("tea", metadata={"language": "en"})).load(
        tmp_path / "a.wav"
    )
    assert (loaded.text, dict(loaded.metadata)) == ("tea", {"language": "en"})
    assert VideoLoader(lambda _: "a film").load(tmp_path / "a.mkv") == LoadedFile("a film")


@pytest.mark.parametrize("found", [3, [("a", "b")], [("x", "y", "z")], b"tea", None])
def test_what_a_reader_may_not_return(tmp_path, found):
    """Another value is reported with what is allowed."""
    (tmp_path / "a.png").write_bytes(PICTURE)
    with pytest.raises(LoadError, match="must return a text, or pieces"):
        ImageLoader(lambda _: found).load(tmp_path / "a.png")


def test_what_a_reader_raises(tmp_path):
    """An error of the user's function is reported with its name; a LoadError is passed on."""

    def see(path):
        raise RuntimeError("no model") if path.stem == "a" else LoadError("too dark")

    register_media_reader("image", see)
    for name, said in (
        ("a", "The reader see of image files raised RuntimeError: no model"),
        ("b", "too dark"),
    ):
        (tmp_path / f"{name}.png").write_bytes(PICTURE)
        with pytest.raises(LoadError, match=said):
            load_file(tmp_path / f"{name}.png")


def test_registering():
    """A function is given back, may be registered again, and gives way to another only if that is
    said.
    """
    first, second = (lambda _: "a"), (lambda _: "b")
    assert register_media_reader("image", first) is first
    register_media_reader("image", first)
    with pytest.raises(AlreadyRegisteredError, match="replace=True"):
        register_media_reader("image", second)
    register_media_reader("image", second, replace=True)
    with pytest.raises(ConfigError, match="audio, image, video"):
        register_media_reader("pictures", first)
    with pytest.raises(ConfigError, match="function of a path"):
        register_media_reader("audio", "whisper")


def test_a_loader_of_one_s_own_goes_first(tmp_path):
    """A suffix that a user registered a loader for stays with it."""

    class Own:
        def load(self, path):
            return "own"

    loaders.register(".png", Own, replace=True)
    register_media_reader("image", lambda _: "A cup")
    for suffix, text in ((".png", "own"), (".gif", "A cup")):
        (tmp_path / f"a{suffix}").write_bytes(PICTURE)
        assert load_file(tmp_path / f"a{suffix}").text == text


def test_a_reader_that_comes_later_gets_what_was_skipped(folder):
    """A picture that was skipped is looked at again once there is a function for it, though it has
    not changed.
    """
    docs = Document(folder({"a.txt": "Green tea", "b.png": PICTURE}))
    with pytest.warns(IngestionWarning, match=r"b\.png"):
        docs.sync()
    assert docs.sync().skipped[0][0] == "b.png"
    register_media_reader("image", lambda path: f"A cup of {path.stem}")
    assert docs.sync().added == ("b.png",)


WEBVTT = """WEBVTT

NOTE nobody hears this

STYLE
::cue { color: red }

1
00:01.000 --> 00:02.500 align:left
<v.loud Roger B.>We are <i>in</i>
New York &amp; here

01:00:02.000 --> 01:00:04.000
Goodbye.
"""
SUBRIP = "1\r\n00:00:01,000 --> 00:00:02,500\r\n{\\an8}<b>Good</b> day\r\n\r\n2\r\n"
SUBRIP += "00:00:03,000 --> 00:00:04,000\r\nBye"


@pytest.mark.parametrize(
    ("name", "source", "cues"),
    [
        (
            "a.vtt",
            WEBVTT,
            {
                "00:01–00:02": "Roger B.: We are in New York & here",
                "1:00:02–1:00:04": "Goodbye.",
            },
        ),
        ("a.srt", SUBRIP, {"00:01–00:02": "Good day", "00:03–00:04": "Bye"}),
    ],
)
def test_subtitles(tmp_path, name, source, cues):
    """Each cue is a line with its time, with its speaker and without its format."""
    path = tmp_path / name
    path.write_text(source, encoding="utf-8", newline="")
    loaded = load_file(path)
    assert loaded.text == "\n".join(cues.values())
    assert {
        one.label: loaded.text[one.start : one.end]
        for one in loaded.locations
        if one.kind == "time"
    } == cues


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "1\n00:00:01 --> 00:00:02\nIf 2 < 3 and <I>5 > 4</I><00:01.500> then",
            "If 2 < 3 and 5 > 4 then",
        ),
        ("00:01.000-->00:02.000\na\n\n00:03,0 --> 00:04,0\nb\n", "a\nb"),
        ("1\n00:00:01,000 --> 00:00:02,000\na\n2\n00:00:03,000 --> 00:00:04,000\nb", "a\nb"),
        ("1\r00:00:01,000 --> 00:00:02,000\ra\r\r2\r00:00:03,000 --> 00:00:04,000\rb", "a\nb"),
        ("00:01.000 --> 00:02.000\n" + "<v" * 100_000, "<v" * 100_000),
        ("00:01.000 --> 00:02.000\n" + "<v " * 100_000, ("<v " * 100_000).strip()),
    ],
)
def test_loose_subtitles(tmp_path, source, text):
    """Times without blanks or fractions, cues in a row, any line ends; words between < and > stay.
    Long cues take no quadratic time.
    """
    path = tmp_path / "a.srt"
    path.write_text(source, encoding="utf-8", newline="")
    assert load_file(path).text == text


def test_subtitles_without_cues(tmp_path):
    """A file without times is an error."""
    path = tmp_path / "a.vtt"
    path.write_text("WEBVTT\n\nnothing", encoding="utf-8")
    with pytest.raises(LoadError, match="at least one cue"):
        load_file(path)
