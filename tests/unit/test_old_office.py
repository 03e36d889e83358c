"""Files of old office programs are reported with what to do about them."""

from __future__ import annotations

import pytest

from lazyrag.errors import LoadError
from lazyrag.loaders import load_file
from tests.ole_files import compound


@pytest.mark.parametrize(
    ("suffix", "stream", "newer"),
    [
        (".doc", "WordDocument", ".docx"),
        (".ppt", "PowerPoint Document", ".pptx"),
        (".DOC", "WordDocument", ".docx"),
        (".ppt", "WordDocument", ".docx"),
    ],
)
def test_old_files_are_reported(tmp_path, suffix, stream, newer):
    """The message says why the file is not read, and as what to save it."""
    path = tmp_path / f"a{suffix}"
    path.write_bytes(compound({stream: b"x" * 5000}))
    with pytest.raises(LoadError, match=f"Save the file as {newer};") as caught:
        load_file(path)
    assert caught.value.loader == "OldOfficeLoader"


def test_rich_text_under_an_old_name(tmp_path):
    """A .doc that is Rich Text, as many programs write it, is read."""
    (tmp_path / "a.doc").write_bytes(rb"{\rtf1\ansi Gr\'fcner Tee}")
    assert load_file(tmp_path / "a.doc").text == "Grüner Tee"
