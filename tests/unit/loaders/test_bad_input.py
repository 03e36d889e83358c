"""Damaged, disguised and odd files: each is indexed or reported, and the rest is indexed."""

from __future__ import annotations

import io
import itertools
import os
import random
import subprocess
import sys
import textwrap
import zipfile

import docx
import pypdf
import pytest
from reportlab.pdfgen.canvas import Canvas

from lazyrag import Document, IngestionWarning, Retriever, register_loader
from lazyrag.errors import DatasetPathError, IngestionError, LoadError

GOOD = {"good.txt": "Green tea is picked in April.", "gut.md": "# 茶\n\n绿茶在四月采摘。\n"}

CHINESE = "绿茶是未经发酵的茶叶，采摘之后立刻高温杀青，所以汤色清绿，味道鲜爽。"


def _docx() -> bytes:
    """A Word document."""
    document = docx.Document()
    for number in range(50):
        document.add_paragraph(f"paragraph {number} on green tea")
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()


def _pdf(text: str = "") -> bytes:
    """A PDF of one page, with a line of text or a drawing."""
    data = io.BytesIO()
    canvas = Canvas(data)
    if text:
        canvas.drawString(72, 720, text)
    else:
        canvas.rect(100, 100, 200, 200)
    canvas.showPage()
    canvas.save()
    return data.getvalue()


def _encrypted_pdf() -> bytes:
    """A PDF that needs a password."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(_pdf("secret")))
    writer.encrypt("key", algorithm="RC4-128")
    data = io.BytesIO()
    writer.write(data)
    return data.getvalue()


def _zip() -> bytes:
    """A zip archive of something else."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "readme.txt", "no document, " * 1000 + random.Random(1).randbytes(5000).hex()
        )
    return data.getvalue()


def _zip_of(files) -> bytes:
    """A zip archive of some files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


REPORTED = {
    "nul.txt": (b"\x00" * 5000, "save it again as UTF-8"),
    "random.txt": (random.Random(3).randbytes(4000), "save it again as UTF-8"),
    "random.html": (random.Random(4).randbytes(4000), "save it again as UTF-8"),
    "truncated.docx": (_docx()[:-400], "cut off"),
    "half.docx": (_docx()[:3000], "cut off"),
    "other_zip.docx": (_zip(), "another format"),
    "text.docx": (b"only text", "another format"),
    "encrypted.pdf": (_encrypted_pdf(), "password"),
    "no_text.pdf": (_pdf(), "text recognition"),
    "truncated.pdf": (_pdf("text")[:200], "damaged"),
    "text.pdf": (b"only text", "damaged"),
}
"""Files that must be reported as failed, each with words of its message."""

SKIPPED = {
    "empty.txt": (b"", "empty"),
    "empty.md": (b"", "empty"),
    "empty.html": (b"", "empty"),
    "empty.docx": (b"", "empty"),
    "empty.pdf": (b"", "empty"),
    "empty": (b"", "empty"),
    "mark.txt": (b"\xef\xbb\xbf", "no text"),
    "white.txt": (b" \n\t\r\n \n", "no text"),
    "white.md": ("\u3000\u00a0\n".encode(), "no text"),
    "white.html": (b"\n", "no text"),
    "nothing.json": (b"{}", "no text"),
    "comment.yaml": (b"# nothing\n", "no text"),
    "unknown.xyz": (b"\0\1text", "no loader reads .xyz"),
    "no_suffix": (b"\0\1text", "no loader reads files without suffix"),
    "binaries.zip": (
        _zip_of({"a.bin": b"\0\1", "b.png": b"\x89PNG\r\n\x1a\n\0"}),
        "archive without a readable file",
    ),
}
"""Files in which there is nothing to read, each with the reason why it is skipped."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(REPORTED))
def test_a_bad_file_is_reported_and_the_rest_is_in(folder, name):
    """A file that holds no text is reported with one warning that says what is wrong; the others
    are searchable.
    """
    data, words = REPORTED[name]
    docs = Document(folder({**GOOD, name: data}))
    with pytest.warns(IngestionWarning, match=words) as caught:
        hits = Retriever(docs, "FineChunk", similarity="bm25")("When is tea picked?")
    assert [hit.path for hit in hits] == ["good.txt"]
    assert len(caught) == 1
    [failure] = docs.last_report.failed
    assert (failure.path, failure.stage) == (name, "load")
    assert isinstance(failure.error, LoadError)
    assert failure.error.path.endswith(name)
    assert set(docs.last_report.added) == set(GOOD)


@pytest.mark.parametrize("name", sorted(SKIPPED))
def test_a_file_with_nothing_to_read_is_skipped(folder, name):
    """It is no failure of the folder: the report says why it is skipped, and so does a plan, before
    and after.
    """
    data, reason = SKIPPED[name]
    docs = Document(folder({**GOOD, name: data}))
    assert docs.plan().files.skipped == ((name, reason),)
    with pytest.warns(IngestionWarning, match="^Skipped 1 of 3 files"):
        report = docs.sync()
    assert (report.added, report.failed, report.skipped) == (
        tuple(sorted(GOOD)),
        (),
        ((name, reason),),
    )
    assert docs.sync(dry_run=True).skipped == ((name, reason),)
    assert docs.status().failed == ()


def test_a_file_that_a_user_names_is_never_skipped(folder):
    """Who adds an empty file by its name is told that it has failed."""
    place = folder({"empty.txt": b"", **GOOD})
    docs = Document()
    with pytest.warns(IngestionWarning, match="holds no text"):
        report = docs.add_files([place / "empty.txt", place / "good.txt"])
    assert [one.path.endswith("empty.txt") for one in report.failed] == [True]
    assert isinstance(report.failed[0].error, LoadError)


def test_all_bad_files_together(folder):
    """All bad files in one folder give one warning, each its own line in the report, and the good
    ones are in.
    """
    docs = Document(folder({**GOOD, **{name: data for name, (data, _) in REPORTED.items()}}))
    with pytest.warns(
        IngestionWarning, match=rf"^{len(REPORTED)} of {len(REPORTED) + len(GOOD)} files"
    ) as caught:
        assert [node.path for node in docs.get_nodes()] == sorted(GOOD)
    assert len(caught) == 1
    assert [one.path for one in docs.last_report.failed] == sorted(REPORTED)
    assert len(str(docs.last_report).splitlines()) <= 12


def test_only_bad_files(folder):
    """If no file at all can be read there is nothing to answer from, which is an error, the second
    time too.
    """
    docs = Document(folder({name: data for name, (data, _) in REPORTED.items()}))
    for _ in range(2):
        with pytest.raises(
            IngestionError, match=rf"All {len(REPORTED)} files failed to load.*pdf"
        ) as caught:
            docs.get_nodes("FineChunk")
        assert isinstance(caught.value.__cause__, LoadError)
    assert len(docs.last_report.failed) == len(REPORTED)


INDEXED = {
    "gb18030_short.txt": ("绿茶".encode("gb18030"), "绿茶"),
    "gb18030.txt": (CHINESE.encode("gb18030"), CHINESE),
    "gb18030_long.txt": ((CHINESE * 500).encode("gb18030"), CHINESE * 500),
    "utf16.txt": (CHINESE.encode("utf-16"), CHINESE),
    "nul_inside.txt": (b"green\x00tea", "green tea"),
    "broken_byte.txt": (CHINESE.encode() + b"\xff" + CHINESE.encode(), f"{CHINESE}\ufffd{CHINESE}"),
    "no_end_of_line.txt": (b"x" * 200_000, "x" * 200_000),
    "one_letter.txt": (b"a", "a"),
    "\U0001f375\U0001f469\u200d\U0001f52c.txt": (b"tea", "tea"),
    "中文 文件名 (1).txt": (b"tea", "tea"),
    " leading and trailing .txt": (b"tea", "tea"),
    "quote'\"$HOME;`ls`.txt": (b"tea", "tea"),
    "percent%20%s{}.txt": (b"tea", "tea"),
    "new\nline.txt": (b"tea", "tea"),
    "-rf.txt": (b"tea", "tea"),
    "many.dots.in.it.txt": (b"tea", "tea"),
    "x" * 250 + ".txt": (b"tea", "tea"),
    "deep/" + "folder/" * 40 + "a.txt": (b"tea", "tea"),
    "UPPER.TXT": (b"tea", "tea"),
}
"""Files that must be read, each with its text."""


def test_odd_files_are_indexed(folder):
    """Odd names, encodings and contents that are text are read as what they are, each under its own
    path.
    """
    docs = Document(folder({name: data for name, (data, _) in INDEXED.items()}))
    texts = {node.path: node.text for node in docs.get_nodes()}
    assert sorted(texts) == sorted(INDEXED)
    assert [name for name, (_, text) in INDEXED.items() if texts[name] != text] == []
    assert docs.last_report.failed == ()


@pytest.mark.parametrize(
    "name", ["\U0001f375\U0001f469\u200d\U0001f52c.txt", "中文 文件名 (1).txt"]
)
def test_hits_in_files_with_odd_names(folder, name):
    """A hit in a file whose name holds emoji, or Chinese, spaces and brackets, carries that
    name.
    """
    docs = Document(folder({**GOOD, name: "战国无双是光荣开发的系列。"}))
    [hit] = Retriever(docs, "FineChunk", similarity="bm25_chinese")("战国无双")
    assert (hit.path, hit.global_metadata["file_name"], hit.root.path) == (name, name, name)


def test_what_cannot_be_opened_is_skipped_with_a_reason(folder):
    """Pipes, broken links, links to folders, hidden and lock files stand in report.skipped with
    their reasons.
    """
    root = folder({**GOOD, ".hidden.txt": "x", "~$good.docx": "x", "sub/a.txt": "tea"})
    os.mkfifo(root / "pipe.txt")
    (root / "nowhere.txt").symlink_to(root / "missing.txt")
    (root / "link").symlink_to(root / "sub")
    docs = Document(root)
    assert [node.path for node in docs.get_nodes()] == ["good.txt", "gut.md", "sub/a.txt"]
    assert docs.last_report.skipped == (
        (".hidden.txt", "hidden"),
        ("link", "link to a folder"),
        ("nowhere.txt", "link that leads nowhere"),
        ("pipe.txt", "not a regular file"),
        ("~$good.docx", "lock file of an office program"),
    )
    assert docs.last_report.failed == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", ["dataset_path=path", "doc_files=[path]", "doc_files={'a': path}"]
)
def test_a_pipe_that_is_named_does_not_hang(tmp_path, arguments):
    """A named pipe given as a file is refused or reported; nobody waits for someone to write into
    it.
    """
    os.mkfifo(tmp_path / "pipe.txt")
    program = textwrap.dedent(f"""
        import sys
        from lazyrag import Document, LazyRAGError
        path = sys.argv[1]
        try:
            docs = Document({arguments})
            docs.get_nodes()
            print(docs.last_report.failed, docs.last_report.skipped)
        except LazyRAGError as exc:
            print(exc)
    """)
    command = [sys.executable, "-c", program, str(tmp_path / "pipe.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "pipe.txt" in done.stdout


def test_a_file_that_is_gone_before_it_is_loaded(folder):
    """A file that is deleted between listing and loading is reported; the others are in."""
    root = folder({**GOOD, "a.first": "x", "z.txt": "soon gone"})

    @register_loader(".first")
    class Deleting:
        """Deletes another file while it loads its own."""

        def load(self, path):
            """Delete the file that comes later."""
            (root / "z.txt").unlink()
            return "deleted"

    docs = Document(root)
    with pytest.warns(IngestionWarning, match=r"z\.txt \(load\): The file cannot be looked at"):
        assert [node.path for node in docs.get_nodes()] == ["a.first", *sorted(GOOD)]
    assert [one.path for one in docs.last_report.failed] == ["z.txt"]


def test_a_file_that_becomes_a_folder_before_it_is_loaded(folder):
    """A file whose place a folder has taken before it is loaded is reported; the others are in."""
    root = folder({**GOOD, "a.first": "x", "z.txt": "soon gone"})

    @register_loader(".first")
    class Replacing:
        """Puts a folder in another file's place while it loads its own."""

        def load(self, path):
            """Replace the file that comes later."""
            (root / "z.txt").unlink()
            (root / "z.txt").mkdir()
            return "replaced"

    docs = Document(root)
    with pytest.warns(IngestionWarning, match=r"z\.txt \(load\)"):
        assert [node.path for node in docs.get_nodes()] == ["a.first", *sorted(GOOD)]


def test_a_folder_that_is_gone_before_the_first_use(tmp_path):
    """A dataset that is deleted after the Document was made is an error when it is asked, not an
    empty answer.
    """
    root = tmp_path / "dataset"
    root.mkdir()
    docs = Document(root)
    root.rmdir()
    with pytest.raises(DatasetPathError, match="cannot be listed"):
        docs.get_nodes()


@pytest.mark.parametrize("parent", [".cache/dataset", ".hidden"])
def test_a_dataset_beneath_a_hidden_folder(tmp_path, parent):
    """A dataset that lies in a hidden folder is read like any other."""
    root = tmp_path / parent
    root.mkdir(parents=True)
    (root / "a.txt").write_text("tea", encoding="utf-8")
    assert [node.path for node in Document(root).get_nodes()] == ["a.txt"]


def _long_text(characters: int) -> str:
    """About so many characters of text in lines, English and Chinese."""
    words = random.Random(5)
    vocabulary = [f"word{number}" for number in range(5000)] + ["绿茶。", "春天，", "The end.\n"]
    lines = []
    total = 0
    while total < characters:
        lines.append(" ".join(words.choices(vocabulary, k=200)))
        total += len(lines[-1]) + 1
    return "\n".join(lines)


def _check_a_large_text(folder, characters: int) -> None:
    """Load, split and search a text of about so many characters."""
    text = _long_text(characters) + "\nThe needle is at the end."
    docs = Document(folder({**GOOD, "large.txt": text}))
    [root] = [node for node in docs.get_nodes() if node.path == "large.txt"]
    assert root.text == text
    chunks = [node for node in docs.get_nodes("CoarseChunk") if node.path == "large.txt"]
    assert chunks[0].span[0] == 0
    assert chunks[-1].span[1] == len(text)
    assert all(before.span[1] >= after.span[0] for before, after in itertools.pairwise(chunks))
    [hit] = Retriever(docs, "CoarseChunk", similarity="bm25", topk=1)("needle")
    assert hit.uid == chunks[-1].uid


@pytest.mark.slow
def test_a_text_of_5_mb(folder):
    """A text of 5 MB is split without a gap, and what stands at its end is found."""
    _check_a_large_text(folder, 5_000_000)


@pytest.mark.share(3)
@pytest.mark.slow
def test_a_text_of_50_mb(folder):
    """A text of 50 MB is split without a gap, and what stands at its end is found."""
    _check_a_large_text(folder, 50_000_000)
