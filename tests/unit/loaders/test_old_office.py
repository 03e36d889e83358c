"""Files of old office programs are read through other programs, or reported with what to do about
them.
"""

from __future__ import annotations

import shutil

import docx
import pytest

from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from tests.ole_files import compound


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A function that makes shell scripts the only programs on the path."""
    folder = tmp_path / "programs"
    folder.mkdir()

    def installed(**scripts: str) -> None:
        for name, script in scripts.items():
            (folder / name).write_text(
                f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n", encoding="utf-8"
            )
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    installed()
    return installed


@pytest.fixture
def old(tmp_path):
    """A file with a stream of Word, or of PowerPoint."""

    def written(suffix: str = ".doc", stream: str = "WordDocument"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(compound({stream: b"x" * 5000}))
        return path

    return written


@pytest.mark.parametrize(
    ("suffix", "stream", "newer", "program"),
    [
        (".doc", "WordDocument", ".docx", "antiword or catdoc"),
        (".ppt", "PowerPoint Document", ".pptx", "catppt"),
        (".DOC", "WordDocument", ".docx", "antiword"),
        (".ppt", "WordDocument", ".docx", "antiword or catdoc"),
    ],
)
def test_old_files_are_reported(old, programs, suffix, stream, newer, program):
    """Without a program that reads it, the message names those that do, and as what to save the
    file.
    """
    with pytest.raises(
        LoadError, match=f"LibreOffice .soffice., {program}.*save the file as {newer}"
    ) as caught:
        load_file(old(suffix, stream))
    assert caught.value.loader == "OldOfficeLoader"


def test_rich_text_under_an_old_name(tmp_path):
    """A .doc that is Rich Text, as many programs write it, is read."""
    (tmp_path / "a.doc").write_bytes(rb"{\rtf1\ansi Gr\'fcner Tee}")
    assert load_file(tmp_path / "a.doc").text == "Grüner Tee"


@pytest.mark.parametrize(
    ("suffix", "stream", "program"),
    [
        (".doc", "WordDocument", "antiword"),
        (".doc", "WordDocument", "catdoc"),
        (".ppt", "PowerPoint Document", "catppt"),
    ],
)
def test_programs_that_print_a_text(old, programs, suffix, stream, program):
    """What the program prints is the text, and the metadata name the program."""
    programs(**{program: "printf 'Gr\\303\\274ner Tee\\n'"})
    loaded = load_file(old(suffix, stream))
    assert (loaded.text, loaded.metadata["read_by"]) == ("Grüner Tee", program)


def test_a_program_that_fails_gives_way_to_the_next_one(old, programs):
    """The better program is tried first; all failures are in the message."""
    programs(antiword="exit 3", catdoc="echo Tea")
    assert load_file(old()).text == "Tea"
    programs(catdoc="exit 4")
    with pytest.raises(
        LoadError, match=r"antiword could not read it \(status 3\).*catdoc .*status 4"
    ):
        load_file(old())


def test_libreoffice_keeps_headings_and_tables(old, programs, tmp_path):
    """LibreOffice saves the file as .docx, which is read as such: headings are places."""
    document = docx.Document()
    document.add_heading("Tea", 1)
    document.add_paragraph("Green.")
    document.save(tmp_path / "saved.docx")
    arguments = 'while [ "$1" != --outdir ]; do shift; done'
    programs(
        soffice=f'{arguments}; cp {tmp_path / "saved.docx"} "$2/file.docx"', antiword="echo worse"
    )
    loaded = load_file(old())
    assert (loaded.text, loaded.metadata["read_by"]) == ("Tea\nGreen.", "LibreOffice")
    assert [(one.kind, one.label) for one in loaded.locations] == [("heading", "Tea")]


def test_a_program_that_hangs_is_ended(old, programs, monkeypatch):
    """It is killed after a time, with what it started."""
    monkeypatch.setattr("lazyrag.loaders.old_office._PRINTING_SECONDS", 0.3)
    programs(antiword="sleep 60 & sleep 60")
    with pytest.raises(LoadError, match="antiword took longer than"):
        load_file(old())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("antiword") is None, reason="antiword is not installed")
def test_damaged_files_are_reported_by_real_programs(old):
    """A file that no program reads is one LoadError."""
    with pytest.raises(LoadError, match="antiword could not read it"):
        load_file(old())
