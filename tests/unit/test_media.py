"""Pictures, sound and films: read by the functions that users give, and reported where there is none."""

from __future__ import annotations

import io
import random
import struct
import wave

import pytest
from PIL import Image

from lazyrag import Document, IngestionWarning, Retriever, register_media_reader
from lazyrag.errors import AlreadyRegisteredError, ConfigError, IngestionError, LoadError, NoReaderError
from lazyrag.loaders import LoadedFile, load_file, loaders, register_loader
from lazyrag.loaders.media import SUFFIXES, AudioLoader, ImageLoader, VideoLoader, picture_facts, recording_facts
from tests.shared import shared


@pytest.fixture(autouse=True)
def _own_registry():
    """What a test registers is gone afterwards."""
    with loaders.isolated():
        yield


def picture(form: str = "PNG", size: tuple[int, int] = (31, 17), **options: object) -> bytes:
    """A picture, written by Pillow."""
    file = io.BytesIO()
    Image.new("RGB", size, "green").save(file, form, **options)
    return file.getvalue()


def sound(seconds: float = 1.5) -> bytes:
    """Silence in a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(8000)
        written.writeframes(b"\0\0" * int(8000 * seconds))
    return file.getvalue()


def tagged_sound() -> bytes:
    """An MP3 file of a second, with title and artist."""
    frames = b""
    for name, text in ((b"TIT2", "绿茶"), (b"TPE1", "Li Wei")):
        said = b"\1" + text.encode("utf-16")
        frames += name + struct.pack(">IH", len(said), 0) + said
    tag = b"ID3\3\0\0" + struct.pack(">4B", 0, 0, len(frames) >> 7, len(frames) & 127) + frames
    return tag + (b"\xff\xfb\x90\x00" + b"\0" * 413) * 38


@pytest.mark.parametrize(
    ("suffix", "kind"), [(suffix, kind) for kind, suffixes in SUFFIXES.items() for suffix in suffixes]
)
def test_without_a_reader_a_file_is_reported(tmp_path, suffix, kind):
    """Each suffix fails with the error that says what is lacking and how to give it, where the suffix decides."""
    register_loader(suffix, replace=True)(loaders[suffix])
    path = tmp_path / f"a{suffix}"
    path.write_bytes(picture())
    with pytest.raises(NoReaderError, match=f'register_media_reader\\("{kind}", function\\)') as caught:
        load_file(path)
    assert caught.value.path == str(path)
    assert isinstance(caught.value, LoadError)


def test_a_folder_with_pictures_is_no_alarm(folder):
    """Pictures without a reader stand in the report, and one warning says that they are left out; nothing failed."""
    docs = Document(folder({"a.txt": "Green tea", "b.png": picture(), "c.jpg": picture("JPEG")}))
    with pytest.warns(IngestionWarning) as caught:
        docs.get_nodes()
    assert len(caught) == 1
    assert str(caught[0].message).startswith("2 of 3 files are pictures, sound or films, and are left out.")
    assert "failed to load" not in str(caught[0].message)
    assert [one.path for one in docs.last_report.failed] == ["b.png", "c.jpg"]
    assert {type(one.error) for one in docs.last_report.failed} == {NoReaderError}


def test_pictures_beside_files_that_fail(folder):
    """What failed is counted without the pictures, which are named after it."""
    docs = Document(folder({"a.txt": "Green tea", "b.png": picture(), "c.json": "{"}))
    with pytest.warns(IngestionWarning, match=r"^1 of 3 files failed to load.*c\.json.*1 of 3 files are pictures"):
        docs.get_nodes()


def test_a_folder_of_nothing_but_pictures(folder):
    """Where there is nothing to answer from, that is an error which says how to give a reader."""
    docs = Document(folder({"b.png": picture()}))
    with pytest.raises(IngestionError, match="register_media_reader"):
        docs.get_nodes()


def test_a_registered_reader_is_asked(folder):
    """A function for pictures makes them texts that are found, with width and height as metadata."""
    register_media_reader("image", lambda path: f"A cup of {path.stem}")
    docs = Document(folder({"tea.png": picture(), "coffee.gif": picture("GIF")}))
    [hit] = Retriever(docs, "FineChunk", similarity="bm25", topk=1)("cup of tea")
    assert (hit.path, hit.text) == ("tea.png", "A cup of tea")
    assert (hit.global_metadata["width"], hit.global_metadata["height"]) == (31, 17)


def test_a_picture_that_is_there_when_its_reader_comes(folder):
    """A picture that was left out is read with the next sync once a reader is given."""
    docs = Document(folder({"a.txt": "Water", "tea.png": picture()}))
    with pytest.warns(IngestionWarning, match="left out"):
        docs.get_nodes()
    register_media_reader("image", lambda path: "A cup")
    assert docs.sync().added == ("tea.png",)
    assert docs.last_report.failed == ()


def test_processes_leave_what_only_this_one_has(folder):
    """A function of this process reads pictures here, also where others load files."""
    register_media_reader("image", lambda path: "A cup")
    docs = Document(folder({"a.png": picture(), "b.png": picture(), "c.txt": "Water"}), processes=1)
    assert [node.text for node in docs.get_nodes()] == ["A cup", "A cup", "Water"]


def test_transcripts_have_times(tmp_path):
    """Pieces with times are lines and places; duration and tags are metadata."""
    (tmp_path / "a.mp3").write_bytes(tagged_sound())
    pieces = [(0, 2.5, " Green tea. "), (2.5, 3, ""), (61, 3723.9, "绿茶")]
    loaded = AudioLoader(lambda _: iter(pieces)).load(tmp_path / "a.mp3")
    assert loaded.text == "Green tea.\n绿茶"
    assert [(one.kind, one.label, loaded.text[one.start : one.end]) for one in loaded.places] == [
        ("time", "0:00-0:02", "Green tea."),
        ("time", "1:01-1:02:03", "绿茶"),
    ]
    assert (loaded.metadata["title"], loaded.metadata["artist"]) == ("绿茶", "Li Wei")
    assert loaded.metadata["duration_s"] == pytest.approx(1, abs=0.1)


def test_a_reader_of_one_loader(tmp_path):
    """A loader takes a function of its own; a LoadedFile is taken as it is, its metadata before the file's."""
    (tmp_path / "a.wav").write_bytes(sound())
    (tmp_path / "a.mkv").write_bytes(b"\x1a\x45\xdf\xa3")
    loaded = AudioLoader(lambda _: LoadedFile("tea", metadata={"language": "en"})).load(tmp_path / "a.wav")
    assert (loaded.text, dict(loaded.metadata)) == ("tea", {"duration_s": 1.5, "language": "en"})
    assert VideoLoader(lambda _: "a film").load(tmp_path / "a.mkv") == LoadedFile("a film")


@pytest.mark.parametrize("found", [3, [("a", "b")], [("x", "y", "z")], b"tea", None])
def test_what_a_reader_may_not_return(tmp_path, found):
    """Another value is reported with what is allowed."""
    (tmp_path / "a.png").write_bytes(picture())
    with pytest.raises(LoadError, match="It returns a text, or pieces"):
        ImageLoader(lambda _: found).load(tmp_path / "a.png")


def test_what_a_reader_raises(tmp_path):
    """An error of the user's function is reported with its name; a LoadError is passed on."""

    def see(path):
        raise RuntimeError("no model") if path.stem == "a" else LoadError("too dark")

    register_media_reader("image", see)
    for name, said in (("a", "The reader see of image files raised RuntimeError: no model"), ("b", "too dark")):
        (tmp_path / f"{name}.png").write_bytes(picture())
        with pytest.raises(LoadError, match=said):
            load_file(tmp_path / f"{name}.png")


def test_registering():
    """A function is given back, may be registered again, and gives way to another only if that is said."""
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
        (tmp_path / f"a{suffix}").write_bytes(picture())
        assert load_file(tmp_path / f"a{suffix}").text == text


FORMS = [
    ("PNG", {}),
    ("JPEG", {}),
    ("GIF", {}),
    ("BMP", {}),
    ("TIFF", {}),
    ("WEBP", {}),
    ("WEBP", {"lossless": True}),
    ("JPEG", {"progressive": True}),
]


@pytest.mark.parametrize(("form", "options"), FORMS)
@pytest.mark.parametrize("size", [(1, 1), (31, 17), (1000, 3)])
def test_sides_of_pictures(tmp_path, form, options, size):
    """Width and height are those that Pillow wrote."""
    path = tmp_path / "picture"
    path.write_bytes(picture(form, size, **options))
    assert picture_facts(path) == {"width": size[0], "height": size[1]}


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_date_and_camera(tmp_path, form):
    """What a camera wrote is read: the date in ISO 8601, maker and model."""
    exif = Image.Exif()
    exif[0x10F], exif[0x110] = "Canon", "Canon EOS 5D"
    if form == "TIFF":  # into which Pillow does not write the other directory
        exif[0x132] = "2024:05:01 10:11:12"
    else:
        exif.get_ifd(0x8769)[0x9003] = "2024:05:01 10:11:12"
    path = tmp_path / "picture"
    path.write_bytes(picture(form, exif=exif))
    facts = {"width": 31, "height": 17, "taken": "2024-05-01 10:11:12", "camera": "Canon EOS 5D"}
    assert picture_facts(path) == facts


@pytest.mark.shared
def test_a_real_picture():
    """The shared picture has the sides that Pillow reads."""
    assert picture_facts(shared("data", "docs", "test_llm.jpg")) == {"width": 1692, "height": 948}


def test_damaged_media_have_fewer_facts(tmp_path):
    """Whatever stands in a file, reading what it says of itself ends, and raises nothing."""
    exif = Image.Exif()
    exif[0x110] = "Camera"
    seeds = [picture(form, **({} if form in {"GIF", "BMP"} else {"exif": exif}), **more) for form, more in FORMS]
    seeds += [sound(0.1), tagged_sound()]
    rng = random.Random(7)
    path = tmp_path / "a.mp3"
    for _ in range(400):
        data = bytearray(rng.choice(seeds))
        for _change in range(rng.choice([1, 3, 9])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data)
        for facts in (picture_facts(path), recording_facts(path)):
            assert all(isinstance(value, (str, int, float)) for value in facts.values())
