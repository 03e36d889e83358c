"""Loading in processes of its own: the same nodes, and a loader that crashes costs its file, not
the program.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lazyrag import Document, IngestionWarning, register_loader
from lazyrag.errors import ConfigError
from lazyrag.ingest.load_files import Readers, loader_identities
from lazyrag.loaders import LoadLimits
from lazyrag.loaders.directory import FoundFile

FILES = {f"{name}.txt": f"tea of {name}" for name in ("a", "b", "c", "d")}

CRASHING = '''
import os
import time

from lazyrag import register_loader
from lazyrag.loaders import LoadedFile


class OnlyThere:
    """Can be taken apart, and not put together."""

    def __reduce__(self):
        return int, ("no number",)


@register_loader(".crash")
class Crashing:
    """Ends the process that it runs in, for files that say so; else tells which process that is."""

    def load(self, path):
        text = path.read_text(encoding="utf-8")
        if text == "crash":
            os._exit(3)
        if text == "leave a child":
            if hasattr(os, "fork") and os.fork() == 0:
                time.sleep(30)
            os._exit(3)
        if text == "lambda":
            return LoadedFile(text, metadata={"call": lambda: text})
        if text == "unreadable":
            return LoadedFile(text, metadata={"call": OnlyThere()})
        return f"{text} in process {os.getpid()}"
'''


@pytest.fixture
def crashing(tmp_path, monkeypatch):
    """A loader in a module of its own, which other processes can import."""
    position = tmp_path / "modules"
    position.mkdir()
    (position / "crashing_loader.py").write_text(CRASHING, encoding="utf-8")
    monkeypatch.syspath_prepend(str(position))
    import crashing_loader  # noqa: F401  it registers itself

    yield
    sys.modules.pop("crashing_loader")


def texts(docs) -> dict[str, str]:
    """The text of each document."""
    return {node.path: node.text for node in docs.get_nodes()}


@pytest.mark.slow
def test_the_same_as_without(folder):
    """Files loaded by two processes give what they give in one, in the same order."""
    path = folder({**FILES, "page.html": "<p>Green tea</p>", "note.md": "# Tea\n\nGreen."})
    with Document(path, limits=LoadLimits(processes=2)) as docs:
        found = list(docs.maintenance.dump()) or docs.get_nodes()
    with Document(path) as docs:
        assert [node.text for node in docs.get_nodes()] == [node.text for node in found]


@pytest.mark.slow
def test_a_loader_that_crashes_fails_its_file(folder, crashing):
    """The process ends; its file is reported, and all the others are in, loaded by other processes
    than this one.
    """
    files = {
        f"{name}.crash": text
        for name, text in (("a", "tea"), ("b", "crash"), ("c", "milk"), ("d", "water"))
    }
    with Document(folder(files), limits=LoadLimits(processes=2)) as docs:
        with pytest.warns(
            IngestionWarning,
            match=r"1 of 4 files failed to load.*The process that loaded the file ended",
        ):
            found = texts(docs)
        assert sorted(found) == ["a.crash", "c.crash", "d.crash"]
        assert not any(text.endswith(f"process {os.getpid()}") for text in found.values())
        assert [failure.path for failure in docs.last_report.failed] == ["b.crash"]


@pytest.mark.slow
def test_each_crash_costs_one_file(folder, crashing):
    """However many processes end, and whatever they leave behind, all other files are in; nothing
    waits for ever.
    """
    files = {f"{number:02}.crash": "tea" for number in range(24)}
    files |= {f"{number:02}.crash": "crash" for number in range(0, 24, 3)}
    files["01.crash"] = "leave a child"
    with Document(folder(files), limits=LoadLimits(processes=3)) as docs:
        with pytest.warns(IngestionWarning, match="9 of 24 files failed to load"):
            found = texts(docs)
        assert sorted(found) == sorted(path for path, text in files.items() if text == "tea")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["lambda", "unreadable"])
def test_metadata_that_cannot_be_stored_fail_as_without(folder, crashing, what):
    """What cannot pass between processes cannot be stored either: one error for both; the process
    goes on.
    """
    with Document(
        folder({"a.crash": "tea", "b.crash": what, "c.crash": "milk"}),
        limits=LoadLimits(processes=1),
    ) as docs:
        with pytest.warns(
            IngestionWarning, match=r"b\.crash \(load\): Metadata 'call' must be .*JSON value"
        ):
            found = texts(docs)
        assert sorted(found) == ["a.crash", "c.crash"]
        assert len({text.split()[-1] for text in found.values()}) == 1


@pytest.mark.slow
def test_a_program_needs_no_guard(tmp_path, folder):
    """Processes start from a program without ``if __name__``, and from one that is not a file."""
    program = tmp_path / "program.py"
    program.write_text(
        "from lazyrag import Document\n"
        "from lazyrag.loaders import LoadLimits\n"
        f"docs = Document({str(folder(FILES))!r}, limits=LoadLimits(processes=2))\n"
        "print(len(docs.get_nodes()))\n",
        encoding="utf-8",
    )
    for arguments in ([str(program)], ["-c", program.read_text(encoding="utf-8")]):
        ran = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert (ran.stdout, ran.stderr) == ("4\n", "")


def test_a_loader_that_no_process_can_import_is_called_here(folder):
    """A class that is defined in a function works as without processes."""

    @register_loader(".here")
    class Here:
        """Tells which process it runs in."""

        def load(self, path):
            """The number of the process."""
            return f"process {os.getpid()}"

    with Document(folder({"a.here": "x", "b.here": "x"}), limits=LoadLimits(processes=2)) as docs:
        assert set(texts(docs).values()) == {f"process {os.getpid()}"}


@pytest.mark.slow
def test_a_failure_is_told_as_without(folder):
    """What a loader in another process says of a file is what the report says."""
    path = folder({**FILES, "broken.txt": b"\xff\xfe\x00\xd8", "broken.json": "{"})
    told = []
    for processes in (0, 2):
        with Document(path, limits=LoadLimits(processes=processes)) as docs:
            with pytest.warns(IngestionWarning):
                docs.get_nodes()
            told.append([(failure.path, str(failure.error)) for failure in docs.last_report.failed])
    assert told[0] == told[1]
    assert len(told[0]) == 2


@pytest.mark.parametrize("processes", [-1, 1.5, "2", True])
def test_a_number_of_processes_is_a_whole_one(processes):
    """Anything else is refused."""
    with pytest.raises(ConfigError, match="processes"):
        Document(limits=LoadLimits(processes=processes))


@pytest.mark.parametrize(
    ("suffix", "loader"),
    [
        (".csv", "delimited:CsvLoader"),
        (".docx", "docx:DocxLoader"),
        (".epub", "epub:EpubLoader"),
        (".html", "html:HtmlLoader"),
        (".ipynb", "notebook:NotebookLoader"),
        (".json", "json_records:JsonLoader"),
        (".jsonl", "json_records:JsonLinesLoader"),
        (".md", "markdown:MarkdownLoader"),
        (".pdf", "pdf:PdfLoader"),
        (".ppt", "old_office:OldOfficeLoader"),
        (".pptx", "pptx:PptxLoader"),
        (".py", "source:PythonLoader"),
        (".rs", "source:SourceLoader"),
        (".rst", "rst:RstLoader"),
        (".rtf", "rtf:RtfLoader"),
        (".txt", "plain:TextLoader"),
        (".xls", "xls:XlsLoader"),
        (".xlsx", "xlsx:XlsxLoader"),
        (".xml", "markup:XmlLoader"),
        (".yaml", "yaml_records:YamlLoader"),
    ],
)
def test_a_ledger_names_loaders_as_the_first_release_did(suffix, loader):
    """Otherwise all files of a loader that has moved would be loaded again."""
    identity = loader_identities(Readers())(FoundFile(f"tea{suffix}", f"tea{suffix}"))
    assert identity == f"{suffix} lazyrag.loaders.{loader}"


def test_a_ledger_names_the_loader_of_archives_with_the_readers_that_apply_inside():
    """The loader of the first release, too."""
    assert (
        loader_identities(Readers())(FoundFile("tea.zip", "tea.zip"))
        == ".zip lazyrag.loaders.zipped:ZipLoader"
    )
