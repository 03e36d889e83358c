"""The command lazyrag on small folders: what it prints, its exit statuses, its JSON."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

import lazyrag
from lazyrag import Document, Retriever
from lazyrag.cli import terminal
from lazyrag.cli.base import app
from lazyrag.cli.commands import run as command_line
from lazyrag.cli.output import at_command_line
from lazyrag.errors import LazyRAGError
from lazyrag.ingest.engine import IngestionEngine
from lazyrag.ingest.load_files import Loading
from lazyrag.models.onnx.hub import find_model
from lazyrag.models.openai import client
from lazyrag.project import Project, find_project
from tests.hostile import endless_form
from tests.interpreter import ROOT, python
from tests.model_server import PATIENCE_S, RawServer, answered, event, head, piece, streamed

TEA = "Green tea is steeped at 80 degrees.\n\nBlack tea takes boiling water. It keeps for two years in a closed tin.\n"
LVCHA = "绿茶用八十度的水冲泡，两分钟出汤。\n\n红茶用沸水冲泡，密封在罐子里可以放两年，开罐以后三个月内喝完。\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an English and a Chinese file, as the current folder, at 80 columns."""
    home = tmp_path / "home"
    folder = home / "tea"
    (folder / "notes").mkdir(parents=True)
    (folder / "tea.md").write_text(f"# Tea\n\n{TEA}", encoding="utf-8")
    (folder / "notes" / "绿茶.txt").write_text(LVCHA, encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    for name in ("LAZYRAG_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(capsys):
    """A function that runs the command with arguments, and returns its exit status, its output and
    its errors.
    """

    def command(*arguments: object):
        capsys.readouterr()
        return command_line([str(argument) for argument in arguments]), *capsys.readouterr()

    return command


def test_the_next_command_finds_the_index_of_another_folder(run, tmp_path, monkeypatch):
    """Outside the indexed folder, what `index` proposes names the store."""
    (tmp_path / "my teas").mkdir()
    (tmp_path / "my teas" / "tea.md").write_text("Green tea.", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    _, output, _ = run("index", "my teas")
    command = shlex.split(output.splitlines()[-1].removeprefix("Next: lazyrag "))
    assert run("search", "green", *command[2:])[0] == 0


def test_the_index_of_a_folder_is_found_from_outside(run, tmp_path, monkeypatch):
    """A command without --store names the folder below that has an index; --store takes it."""
    (tmp_path / "teas").mkdir()
    (tmp_path / "teas" / "tea.md").write_text("Green tea.", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run("index", "teas")
    problem = f"There is no index in {tmp_path}, nor in a folder above it."
    message = f"Error: {problem} The folder teas has one: add --store teas\n"
    assert run("search", "green") == (2, "", message)
    assert run("search", "green", "--store", "teas")[0] == 0
    assert run("index", "teas", "--store", "teas")[1].startswith("0 added")


@pytest.mark.usefixtures("folder")
def test_index_then_search_in_both_languages(run):
    """File, location, score, and the text with the query's words marked; no line is wider than 80
    columns.
    """
    assert run("index") == (
        0,
        '2 added, 0 failed, 0 skipped\n2 files, 2 passages.\nNext: lazyrag search "your question"\n',
        "",
    )
    status, output, errors = run("search", "How", "hot", "is", "green", "tea?")
    assert (status, errors) == (0, "")
    [head, *text] = output.splitlines()
    assert head.startswith("1. tea.md  Tea, lines 1-5 ")
    assert float(head.split()[-1]) > 0
    assert " ".join(map(str.strip, text)) == (
        "… *Green* *tea* is steeped at 80 degrees. · Black *tea* takes boiling water. It keeps for two years in a "
        "closed tin."
    )
    status, output, _ = run("search", "红茶能放多久？")
    assert output.startswith("1. notes/绿茶.txt  lines 1-3")
    assert "*红茶*" in output
    assert all(terminal.cells(line) <= 80 for line in output.splitlines())


def test_collect_lists_and_counts_all_with_pages(folder: Path, run):
    """At 80 columns in both languages; the next page continues, and files without text are
    named.
    """
    (folder / "prices.csv").write_text("茶,price\n绿茶,4\n红茶,3\n", encoding="utf-8")
    (folder / "empty.md").write_text("", encoding="utf-8")
    run("index")
    status, output, errors = run("collect", "绿茶 OR steeped", "--limit", "1")
    assert (status, errors) == (0, "")
    assert output.startswith("- notes/绿茶.txt  line 1\n  *绿茶*用八十度的水冲泡，两分钟出汤。\n\n")
    assert "\n3 documents in all, 1 shown.\nThe next ones: --after " in output
    assert output.endswith("Not looked at: 1 file.\n  empty.md: empty\n")
    assert all(terminal.cells(line) <= 80 for line in output.splitlines())
    page = json.loads(run("collect", "绿茶 OR steeped", "--limit", "1", "--json")[1])["result"]
    next_page = run("collect", "绿茶 OR steeped", "--after", page["next"])[1]
    assert [line for line in next_page.splitlines() if line.startswith("- ")] == [
        "- prices.csv  rows 2-3",
        "- tea.md  Tea, line 3",
    ]
    rows = run("collect", "--per", "row", "--json")[1]
    assert [item["snippet"] for item in json.loads(rows)["result"]["items"]] == [
        "茶: 绿茶; price: 4",
        "茶: 红茶; price: 3",
    ]
    assert run("collect", "the")[0] == 2  # only stop words
    assert run("collect", "coffee")[0] == 1


def test_search_says_what_it_inferred(folder: Path, run):
    """The values that the question names, above the passages; nothing where it is switched off."""
    for name in ("Acme 2018.md", "Bond 2018.md"):
        (folder / name).write_text("Sales of green tea grew.", encoding="utf-8")
    run("index")
    question = ("search", "Sales of Acme in FY18")
    status, output, _ = run(*question)
    assert status == 0
    assert output.splitlines()[:2] == [
        "name: Acme, year: 2018 (inferred; off: --no-infer-filters, --infer-without)",
        "",
    ]
    assert "1. Acme 2018.md" in output
    assert "inferred" not in run(*question, "--no-infer-filters")[1]
    without = ("--infer-without", "year: 2018")
    assert run(*question, *without)[1].startswith("name: Acme (inferred;")
    assert "inferred" not in run(*question, *without, "--infer-without", "name")[1]


def test_search_as_of_a_day_shows_old_and_new(folder: Path, run):
    """The version in force before the older one, which says so; a wrong day is an error."""
    texts = {"Lease 2021.md": "The rent of the house is 900.", "Lease 2024.md": "The rent is 950."}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    run("index")
    status, output, _ = run("search", "rent of the house", "--as-of", "2024-05-01")
    assert status == 0
    assert output.index("1. Lease 2024.md") < output.index("2. Lease 2021.md")
    assert "superseded by Lease 2024.md (2024 after 2021)" in output
    plain = run("search", "rent of the house")[1]
    assert "1. Lease 2021.md" in plain
    assert "superseded by Lease 2024.md (2024 after 2021)" in plain
    assert "as_of" not in output
    before = run("search", "rent of the house", "--as-of", "2023-12-31", "--json")[1]
    assert "Lease 2021.md" in before
    assert "Lease 2024.md" not in before
    status, _, errors = run("search", "rent", "--as-of", "2024-5-1")
    assert status == 2
    assert "as_of must be a day such as '2024-05-01'; got '2024-5-1'" in errors
    answer = run("ask", "What is the rent of the house?", "--as-of", "2023-12-31", "--json")[1]
    assert "900" in answer
    assert "950" not in answer


@pytest.mark.usefixtures("folder")
def test_search_says_that_its_hits_are_weak(run, monkeypatch: pytest.MonkeyPatch):
    """Before them, in the language of the locale, as `ask` does; not before others."""
    run("index")
    question = ("search", "Who sells tea in the town of Venice?")
    assert run(*question)[1].startswith(
        "The files do not seem to answer this question.\n\n1. tea.md"
    )
    assert run("search", "How hot is green tea?")[1].startswith("1. tea.md")
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert run(*question)[1].startswith("这些文件似乎没有回答这个问题。\n\n1. tea.md")


def test_search_explains_the_parts_of_a_question(folder: Path, run):
    """Which passages cover each of them; nothing where that is switched off."""
    (folder / "oven.md").write_text("The oven is cleaned with soap.", encoding="utf-8")
    run("index")
    question = ("search", "How is the oven cleaned and who repairs the hovercraft?", "--explain")
    output = run(*question)[1]
    assert "part: How is the oven cleaned (covered by 1; off: --no-parts)" in output
    assert "(covered by nothing; off: --no-parts)" in output
    assert "part: " not in run(*question, "--no-parts")[1]


def test_the_index_is_found_from_a_subfolder_and_ignored_by_git(
    folder: Path, run, monkeypatch: pytest.MonkeyPatch
):
    """As git does; outside of the folder one line says how to make an index."""
    run("index")
    assert (folder / ".lazyrag" / ".gitignore").read_text(encoding="utf-8") == "*\n"
    monkeypatch.chdir(folder / "notes")
    assert run("search", "tea")[0] == 0
    monkeypatch.chdir(folder.parent)
    status, output, errors = run("search", "tea")
    assert (status, output) == (2, "")
    assert errors.startswith("Error: There is no index in ")
    assert errors.endswith("The folder tea has one: add --store tea\n")


def test_an_index_of_another_user_is_refused(folder: Path, run, monkeypatch: pytest.MonkeyPatch):
    """Its settings could name any model and any folder."""
    run("index")
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    status, output, errors = run("search", "tea")
    assert (status, output) == (2, "")
    assert "belongs to another user" in errors


def test_one_store_is_for_one_folder(folder: Path, tmp_path: Path, run):
    """Another folder is refused, which would delete the documents of the first; a moved one is
    not.
    """
    other = folder.parent / "other"
    other.mkdir()
    (other / "a.md").write_text("tea", encoding="utf-8")
    assert run("index", folder, "--store", tmp_path / "st")[0] == 0
    status, output, errors = run("index", other, "--store", tmp_path / "st")
    assert (status, output) == (1, "")
    assert f"has the index of {folder}; got the folder {other}." in errors
    shutil.rmtree(other)
    assert run("search", "tea", "--store", tmp_path / "st")[0] == 0
    shutil.move(folder, other)
    assert run("index", other, "--store", tmp_path / "st")[0] == 0


def test_sync_ingests_changes_and_python_sees_the_same_store(folder: Path, run):
    """A new file is found after a sync; a Document opens the store that the command made."""
    run("index")
    (folder / "oolong.txt").write_text("Oolong is steeped at 95 degrees.", encoding="utf-8")
    assert "oolong.txt" not in run("search", "oolong")[1]
    assert run("sync")[1] == "1 added, 2 unchanged, 0 failed, 0 skipped\n3 files, 3 passages.\n"
    assert run("search", "oolong")[1].startswith("1. oolong.txt  line 1")
    conf = {"segment_store": {"type": "map", "kwargs": {"uri": folder / ".lazyrag" / "store.db"}}}
    with Document(folder, store_conf=conf) as docs:
        assert [node.path for node in Retriever(docs, "MediumChunk", "bm25_chinese")("oolong")] == [
            "oolong.txt"
        ]
        assert docs.last_report.unchanged == ("notes/绿茶.txt", "oolong.txt", "tea.md")


@pytest.mark.parametrize("arguments", ["search", "ask", "collect", "collect --per row"])
@pytest.mark.parametrize("syncs", [True, False])
def test_commands_find_what_python_made(folder: Path, run, arguments: str, syncs: bool):
    """A sync in Python builds no group that was not used: the first command does, once."""
    (folder / "tea.csv").write_text("tea,days\ngreen,7\n", encoding="utf-8")
    with lazyrag.open(folder) as docs:
        if syncs:
            docs.sync()
    status, output, errors = run(*arguments.split(), "green")
    assert (status, "tea" in output) == (0, True)
    assert errors == "Note: indexing the node group MediumChunk, once.\n"
    assert run(*arguments.split(), "green") == (0, output, "")


@pytest.mark.usefixtures("folder")
def test_ask_without_a_model_quotes_the_answer_and_says_how_to_set_one(run):
    """The sources are not repeated; one sentence names the option and the environment."""
    run("index")
    status, output, _ = run("ask", "How hot is green tea?")
    assert status == 0
    assert output.startswith("“Green tea is steeped at 80 degrees.” [1]\n")
    assert output.endswith(
        "\n[1] tea.md  Tea, lines 1-5\n\nQuoted without a chat model. For a written answer, set one:"
        "\n  lazyrag config set url URL\n  lazyrag config set chat NAME\n"
    )
    result = json.loads(run("ask", "Who sells tea in the town of Venice?", "--json")[1])["result"]
    assert result["weak"]
    assert result["answer"].startswith("No answer found")


@pytest.mark.usefixtures("folder")
def test_json_is_one_object_with_a_schema(run):
    """Also for an error; nothing else is printed."""
    run("index")
    status, output, errors = run("search", "green tea", "--json", "-k", 1)
    printed = json.loads(output)
    assert (status, errors, printed["schema"], printed["command"], printed["ok"]) == (
        0,
        "",
        1,
        "search",
        True,
    )
    [hit] = printed["result"]["hits"]
    assert (hit["rank"], hit["source"], hit["metadata"]["location"]) == (
        1,
        "tea.md",
        "Tea, lines 1-5",
    )
    status, output, errors = run("search", "tea", "--where", "size > 3", "--json")
    assert (status, errors) == (2, "")
    assert json.loads(output)["error"]["type"] == "ConfigError"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("file_type in .txt,.pdf", ["notes/绿茶.txt"]),
        ("file_type not in .txt", ["tea.md"]),
        ("file_name = tea.md", ["tea.md"]),
        ("file_size > 100000", []),
        ("file_name contains tea", ["tea.md"]),
    ],
)
def test_where_filters_files(condition: str, found: list[str], run):
    """Operators of filters with values of the field's type."""
    run("index")
    result = json.loads(run("search", "tea 茶", "--filters", condition, "--json")[1])["result"]
    assert [hit["source"] for hit in result["hits"]] == found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("index", "none"), 1, "There is no folder none."),
        (
            ("index", "notes/*.txt"),
            1,
            "A glob is not a folder: lazyrag index notes --include '*.txt'",
        ),
        (("index", "tea.md"), 1, "PATH must be a folder"),
        (("index", "notes", "tea.md"), 2, "index takes one folder; got 2 paths."),
        (("index", "--group", "Fine"), 1, "Did you mean 'FineChunk'?"),
        (("index", "--embed", "none/model"), 1, "'none/model' is not on this machine"),
        (("search", "tea", "--filters", "file_type"), 2, "--filters must be FIELD OPERATOR VALUE"),
        (("search", "tea", "--filters", "file_sise > 3"), 2, "Did you mean 'file_size'?"),
        (("search", "tea", "--filters", "file_size > big"), 2, "compares file_size with a number"),
        (("search", "tea", "--retriever", "vector"), 2, "needs embeddings"),
        (("search",), 2, "Missing argument"),
        (("serch", "tea"), 2, "No such command 'serch'"),
        (("import", "none"), 1, "is not an export"),
        (("search", "tea", "--store", "none"), 2, "none has no index"),
        (("config", "set", "model", "x"), 2, "is not one of"),
        (("config", "set", "url", "localhost"), 1, "Error: url must be such as"),
        (("config", "set", "embed", "openai:"), 1, "lazyrag config set embed openai:NAME"),
        (("config", "set", "key", "sk-\nsecond"), 1, "run: lazyrag config set key"),
        (("config", "set", "key", "sk-茶"), 1, "run: lazyrag config set key"),
        (("config", "set", "embed", "none/model"), 1, "Run: lazyrag model fetch none/model"),
        (("config", "set", "chat", "a", "b"), 2, "unexpected extra argument"),
        (("chat", "--retriever", "vector"), 1, "needs embeddings"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(
    arguments: tuple[str, ...], status: int, message: str, run
):
    """Exit status 1, or 2 of searches and for arguments that do not parse; never a traceback."""
    run("index")
    done, output, errors = run(*arguments)
    assert (done, output) == (status, "")
    assert message in errors
    assert "Traceback" not in errors
    if not errors.startswith("Usage:"):
        assert errors.count("\n") == 1


def test_a_failed_file_is_named_and_ends_with_1(folder: Path, run):
    """The others are indexed."""
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 broken")
    status, output, errors = run("index")
    assert (status, errors) == (1, "")
    assert "1 failed" in output
    assert "failed: broken.pdf (load)" in output
    assert "2 files, 2 passages." in output
    assert run("search", "tea")[0] == 0


def test_a_store_of_a_newer_version_is_refused(folder: Path, run):
    """The database, and the settings beside it."""
    import sqlite3
    from contextlib import closing

    run("index")
    with closing(sqlite3.connect(folder / ".lazyrag" / "store.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    status, output, errors = run("search", "tea")
    assert (status, output) == (2, "")
    assert "written by a newer release" in errors
    config = folder / ".lazyrag" / "config.json"
    config.write_text(
        json.dumps({**json.loads(config.read_text(encoding="utf-8")), "format": 9}),
        encoding="utf-8",
    )
    assert "written by a newer release" in run("status")[2]
    config.write_text("{", encoding="utf-8")
    assert "is damaged" in run("status")[2]


LIMITED = """
import ctypes, resource, sys
from lazyrag.cli.commands import run
if sys.argv[1] == "rights":  # root may read everything: not in a program that gave up CAP_DAC_OVERRIDE and the like
    ctypes.CDLL(None).syscall.restype = ctypes.c_long
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(run(sys.argv[2:]))
"""


def limited(limit: str, *arguments: str):
    """The command with its rights dropped, or with files of so many bytes at most."""
    done = python("-c", LIMITED, limit, *arguments, cwd=Path.cwd())
    return done.returncode, done.stdout, done.stderr


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="rights of Linux")
def test_what_cannot_be_read_is_one_line(folder: Path, run):
    """A file: the others are indexed, in a plan as well. A folder, a store, golden questions: exit
    status 1 or 2.
    """
    (folder / "tea.md").chmod(0)
    for command in ("index", "--plan"), ("index",):
        status, output, errors = limited("rights", *command)
        assert (status, errors) == (1, "")
        assert "1 added, 1 failed" in output
        assert "tea.md (load): The file cannot be read (Permission" in output
    (folder / "tea.md").chmod(0o600)
    assert run("index")[0] == 0
    Path("golden.json").write_text("{}", encoding="utf-8")
    for path in ("golden.json", "notes", ".lazyrag/store.db"):
        (folder / path).chmod(0)
    for command, message in {
        "index notes": "Error: Permission denied: ",
        "search tea": "store.db' cannot be opened. Check the permissions of the file, ",
        "sync": "store.db' cannot be opened. Check the permissions of the file, ",
        "eval golden.json": "Error: The golden file 'golden.json' cannot be read (Permission denied).",
    }.items():
        status, output, errors = limited("rights", *command.split())
        expected = 1 if command.startswith(("index", "sync")) else 2
        assert (status, output, errors.count("\n")) == (expected, "", 1)
        assert message in errors
    (folder / "notes").chmod(0o700)


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("limit", "message"), [("0", ".lazyrag cannot be written ("), ("40000", "store.db' cannot ")]
)
@pytest.mark.usefixtures("folder")
def test_a_full_disk_is_one_line(limit: str, message: str, run):
    """Exit status 1, with --debug a traceback; with room, the next index ends with all files."""
    status, output, errors = limited(limit, "index")
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert message in errors
    assert "space" in errors
    assert sorted(path.name for path in Path(".lazyrag").glob("*.new")) == []
    assert "Traceback" in limited(limit, "index", "--debug")[2]
    assert run("index")[1].startswith("2 added, 0 failed")
    assert limited("40000", "search", "tea")[0] == 0


def test_the_folder_of_an_index_is_missing(folder: Path, tmp_path: Path, run):
    """One line with the way out, also for a plan; what is stored can still be searched."""
    run("index", "--store", tmp_path / "st")
    folder.rename(tmp_path / "moved")
    for command in ("sync",), ("sync", "--plan"), ("repair",), ("watch",):
        status, output, errors = run(*command, "--store", tmp_path / "st")
        assert (status, output) == (1, "")
        assert errors == (
            f"Error: The indexed folder {folder} does not exist. If it was moved: "
            f"lazyrag index FOLDER --store {tmp_path / 'st'}\n"
        )
    assert run("search", "tea", "--store", tmp_path / "st")[0] == 0


@pytest.mark.usefixtures("folder")
def test_status_verify_repair_and_plan(run):
    """What is indexed; no problems; a plan writes nothing."""
    assert run("index", "--plan")[1].startswith("2 added, 0 failed, 0 skipped\nkind ")
    assert not Path(".lazyrag").exists()
    run("index")
    assert run("status")[1].splitlines() == [
        "~/tea: 2 files",
        "  group        passages  indexes",
        "  MediumChunk         2  keyword",
        "  Embedding model: none",
    ]
    assert run("verify") == (0, "No problems.\n", "")
    assert run("repair") == (0, "No problems remain.\n", "")
    assert (
        run("sync", "--plan")[1] == "0 added, 2 unchanged, 0 failed, 0 skipped\nNothing was done.\n"
    )


def test_a_file_that_fails_is_no_news(folder: Path, run):
    """The status names it as failed, not as a change that a sync would ingest; a new file is
    one.
    """
    (folder / "bad.pdf").write_bytes(b"%PDF-1.4 broken")
    assert run("index")[0] == 1
    lines = run("status")[1].splitlines()
    assert lines[-1] == "Each sync tries these files again, except quarantined ones."
    failure = " ".join(line.strip() for line in lines[-5:-1])
    assert "failed: bad.pdf (load): PdfLoader could not read the file" in failure
    assert failure.endswith("Fix the cause, then run lazyrag sync.")
    (folder / "new.txt").write_text("Water.", encoding="utf-8")
    assert run("status")[1].splitlines()[-2:] == [
        "1 added, 2 unchanged, 0 failed, 0 skipped",
        "To ingest this: lazyrag sync",
    ]


def scanned_pdf() -> bytes:
    """A PDF of one page with nothing but a picture."""
    target = io.BytesIO()
    canvas = Canvas(target)
    canvas.rect(100, 100, 200, 200, fill=1)
    canvas.showPage()
    canvas.save()
    return target.getvalue()


def test_a_failure_has_the_remedy_of_the_door(folder: Path, run, monkeypatch: pytest.MonkeyPatch):
    """The report, the status and the JSON name a command; the Python API names a call."""
    (folder / "scan.pdf").write_bytes(scanned_pdf())
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (folder / "old.xls").write_bytes(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600))
    monkeypatch.setitem(sys.modules, "xlrd", None)
    remedies = {
        "old.xls": 'Install it with: pip install -e ".[office]"',
        "scan.pdf": "Run lazyrag index --ocr, which reads them by text recognition (OCR).",
    }
    status, output, _ = run("index", "--json", "--loading", "processes=0")
    report = json.loads(output)["result"]["report"]
    assert status == 1
    assert {failure["path"]: failure["remedy"] for failure in report["failed"]} == remedies
    assert report["skipped"] == [["photo.png", "image, not read without lazyrag index --ocr"]]
    status_report = json.loads(run("status", "--json")[1])["result"]
    assert {
        failure["path"]: (failure["stage"], failure["error"], failure["remedy"])
        for failure in status_report["failed"]
    } == {path: ("load", "LoadError", remedy) for path, remedy in remedies.items()}
    assert status_report["changes"]["skipped"] == report["skipped"]
    for command in (("sync", "--loading", "processes=0"), ("status",)):
        lines = " ".join(run(*command)[1].split())
        assert all(remedy in lines for remedy in remedies.values())
        assert "add_ocr" not in lines
    with find_project().open() as docs:
        assert "Call lazyrag.loaders.scans.add_ocr(docs)" in str(docs.status())
        assert [error.remedy.split()[0] for error in docs.status().errors] == ["Install", "Call"]


@pytest.mark.slow
def test_a_quarantined_file_is_read_again_with_retry(
    folder: Path, run, monkeypatch: pytest.MonkeyPatch
):
    """A sync leaves it alone; the status names the command that reads it."""
    (folder / "form.pdf").write_bytes(endless_form())
    load_there, loads = Loading._load_there, []

    def load_and_count(loading, file, source):
        loads.append(file.identity)
        return load_there(loading, file, source)

    monkeypatch.setattr(Loading, "_load_there", load_and_count)
    limits = ("--loading", "processes=1,time_s=1")
    run("index", *limits)
    assert "form.pdf" in loads
    loads.clear()
    assert (run("sync", *limits)[0], loads) == (1, [])
    lines = " ".join(run("status")[1].split())
    assert "leave it out: lazyrag index --exclude PATTERN." in lines
    assert "Retry it with lazyrag sync --retry." in lines
    run("sync", "--retry", *limits)
    assert set(loads) == {"form.pdf"}


CALLS = re.compile(
    r"\b(Document|LoadLimits|\w*Loader|add_ocr|sync|register_\w+)\(|@register_|Document\.|follow_links"
)


def messages() -> list[str]:
    """The texts of the errors of loaders, those that are put into them by "x"."""
    texts = []
    for path in [
        *Path(ROOT, "lazyrag", "loaders").glob("*.py"),
        Path(ROOT, "lazyrag", "ingest", "load_files.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Raise, ast.Return, ast.Assign)):
                inside = [*ast.walk(node)]
                parts = {
                    id(part)
                    for inner in inside
                    if isinstance(inner, ast.JoinedStr)
                    for part in inner.values
                }
                texts += [text_of(inner) for inner in inside if id(inner) not in parts]
    return texts


def text_of(node: ast.AST) -> str:
    """The text of a constant or a formatted string; "" of what is none."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "x" for part in node.values
        )
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_no_remedy_at_the_command_line_is_python():
    """Every call that an error message of a loader names is replaced."""
    # not of a file in a folder
    others = ("is a folder", "Document.iwa", "PdfLoader(x)", "loading process")
    naming = [
        text
        for text in messages()
        if CALLS.search(text) and not any(other in text for other in others)
    ]
    assert len(naming) > 8
    assert [text for text in map(at_command_line, naming) if CALLS.search(text)] == []


def test_messages_of_models_and_indexes_name_commands(tmp_path: Path):
    """Not Python, which others need."""
    for make in (lambda: find_model("a/b"), lambda: Project(tmp_path, tmp_path).open()):
        with pytest.raises(LazyRAGError) as caught:
            make()
        assert "Python" in str(caught.value)
        message = at_command_line(str(caught.value))
        assert "Python" not in message
        assert message.endswith((" the model's folder.", "Run: lazyrag index"))


def test_status_after_an_interrupted_index_calls_no_file_missing(
    folder: Path, run, monkeypatch: pytest.MonkeyPatch
):
    """Files that were not done are new ones, or incomplete; all of them are there."""
    for number in range(600):
        (folder / f"{number}.txt").write_text(f"Tea {number}.", encoding="utf-8")
    flip, done = IngestionEngine._flip, []

    def interrupted(self, versions, plan):
        done.append(versions)
        if len(done) == 2:
            raise KeyboardInterrupt
        flip(self, versions, plan)

    monkeypatch.setattr(IngestionEngine, "_flip", interrupted)
    assert run("index")[0] == 130
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    lines = run("status")[1]
    assert re.search(r"^\d+ added, \d+ unchanged, 0 failed, 0 skipped$", lines, re.MULTILINE)
    assert "missing" not in lines
    assert "missing" not in json.dumps(json.loads(run("status", "--json")[1])["result"]["changes"])
    assert "602 files, " in run("sync")[1]


def test_status_and_plan_say_why(folder: Path, run):
    """Changed files with their reason, as lines and in the JSON; a diff of the passages; all of it
    without a write.
    """
    run("index")
    (folder / "tea.md").write_text(f"# Tea\n\n{TEA} More tea.", encoding="utf-8")
    state = (folder / ".lazyrag" / "store.db").read_bytes()
    assert run("status")[1].splitlines()[4:] == [
        "0 added, 1 updated, 1 unchanged, 0 failed, 0 skipped",
        "  tea.md: bytes",
        "To ingest this: lazyrag sync",
    ]
    assert json.loads(run("status", "--json")[1])["result"]["changes"]["reasons"] == {
        "tea.md": "bytes"
    }
    lines = run("sync", "--plan", "--diff")[1].splitlines()
    assert "  tea.md: bytes" in lines
    assert "MediumChunk: 1 chunks stay, 1 come, 1 go" in lines
    planned = json.loads(run("sync", "--diff", "--json")[1])["result"]
    assert planned["steps"][0]["reason"] == "1 bytes"
    assert planned["diffs"] == [
        {"group": "MediumChunk", "stay": 1, "come": 1, "go": 1, "embed": {}}
    ]
    assert (folder / ".lazyrag" / "store.db").read_bytes() == state


@pytest.mark.slow
def test_export_and_import_on_another_machine(
    folder: Path, tmp_path: Path, run, monkeypatch: pytest.MonkeyPatch
):
    """The new index is searched at once; importing twice is refused."""
    run("index", "--include", "*.md", "--group", "FineChunk")
    assert run("export", tmp_path / "export")[0] == 0
    shutil.rmtree(folder / ".lazyrag")
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    assert run("import", tmp_path / "export")[0] == 0
    assert run("search", "green tea")[1].startswith("1. tea.md  Tea, lines 1-")
    assert "FineChunk" in run("status")[1]
    (there / "tea.md").write_text(f"# Tea\n\n{TEA}", encoding="utf-8")
    (there / "other.txt").write_text("tea", encoding="utf-8")
    assert run("sync")[1].startswith("0 added, 1 ")
    assert "contains documents already" in run("import", tmp_path / "export")[2]


def test_a_file_cannot_control_the_terminal(folder: Path, run):
    """Escape sequences of texts and names are left out."""
    (folder / "evil\033[31m.txt").write_text("evil \033]0;title\007 tea\u202e", encoding="utf-8")
    run("index")
    status, output, _ = run("search", "evil")
    assert status == 0
    assert "evil" in output
    assert not set(output) & {"\033", "\007", "\u202e"}


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    """Without colour, words are marked by asterisks; NO_COLOR wins over a terminal."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert terminal.passage("Green teas.", "tea", indent="") == ["Green \033[1;33mteas\033[0m."]
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.passage("Green teas.", "tea", indent="") == ["Green *teas*."]


@pytest.mark.parametrize("columns", [12, 20, 41])
def test_lines_fit_in_both_languages(columns: int):
    """Wide characters count twice; no line begins with a closing mark; nothing is lost."""
    text = "绿茶用八十度的水冲泡，两分钟出汤。Green tea（毛尖）is steeped, an-extraordinarily-long-word follows；红茶。"
    lines = terminal.wrap(text, columns, first="- ", rest="  ")
    assert max(map(terminal.cells, lines)) <= columns
    assert "".join(lines).replace(" ", "").removeprefix("-") == text.replace(" ", "")
    assert not [line for line in lines if line.strip()[0] in "，。；）"]


@pytest.mark.slow
def test_a_start_is_fast():
    """`lazyrag --version`: under 120 ms of processor time, the best of five; with or without
    parsing.
    """
    import resource

    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert python("-m", "lazyrag", *arguments).stdout.startswith("lazyrag 0.")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds("--version") for _ in range(5)) < 0.12


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_shell_completes_commands_and_options(run, monkeypatch: pytest.MonkeyPatch):
    """The script for each shell, and what it asks the command for."""
    for shell in ("bash", "zsh", "fish"):
        assert "_LAZYRAG_COMPLETE" in run("completion", shell)[1]
    for name, value in (
        ("_LAZYRAG_COMPLETE", "bash_complete"),
        ("COMP_WORDS", "lazyrag sea"),
        ("COMP_CWORD", "1"),
    ):
        monkeypatch.setenv(name, value)
    assert python("-m", "lazyrag").stdout == "plain,search\n"
    monkeypatch.setenv("COMP_WORDS", "lazyrag search --ret")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert python("-m", "lazyrag").stdout == "plain,--retriever\n"


def test_help_fits_80_columns(run, monkeypatch: pytest.MonkeyPatch):
    """Of the command and of each subcommand; no summary is cut."""
    monkeypatch.setenv("COLUMNS", "80")
    listed = run("--help")[1].partition("Search and ask:")[2]
    names = re.findall(r"^  ([a-z]+)  ", listed, re.MULTILINE)
    assert sorted(names) == sorted(app.commands)
    assert names[:4] == ["index", "search", "ask", "chat"]
    assert "..." not in listed
    for name in names:
        status, output, errors = run(name, "--help")
        assert (status, errors) == (0, "")
        assert [line for line in output.splitlines() if len(line) > 80] == []


@pytest.fixture
def interruptible():
    """SIGINT interrupts programs that are started here: what a shell starts with & ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.share(3)
@pytest.mark.slow
def test_an_interrupt_leaves_everything_resumable(folder: Path, run, interruptible):
    """Ctrl-C in a long index: one line, exit status 130; the next index ends with all files."""
    for number in range(600):
        (folder / f"{number}.txt").write_text(f"Tea number {number}. " * 300, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lazyrag", "index"]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        while not (folder / ".lazyrag" / "store.db").exists():
            time.sleep(0.01)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (
        errors.decode().strip()
        == "Interrupted. What is ingested is stored; lazyrag sync continues from there."
    )
    status, output, _ = run("index")
    assert status == 0
    assert "602 files, " in output


def test_ask_with_a_model_prints_the_answer_and_its_sources(
    folder: Path, run, model, monkeypatch: pytest.MonkeyPatch
):
    """The endpoint is that of the environment; the sources of the answer's numbers follow it."""
    run("index")
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    complete = streamed(piece("At 80 "), piece("degrees [1].", finish_reason="stop"), "[DONE]")
    model.faults = [complete] * 2
    status, output, errors = run("ask", "How hot is green tea?", "--model", "m", "-k", 1)
    assert (status, errors) == (0, "")
    assert output.splitlines()[:3] == ["At 80 degrees [1].", "", "[1] tea.md  Tea, lines 1-5"]
    printed = json.loads(run("ask", "How hot is green tea?", "--model", "m", "-k", 1, "--json")[1])[
        "result"
    ]
    assert printed["answer"] == "At 80 degrees [1]."
    assert [citation["source"] for citation in printed["citations"]] == ["tea.md"]
    status, output, errors = run("ask", "tea", "--model", "m", "--filters", "file_name = none")
    assert (status, errors) == (1, "")  # nothing found: no model is called
    assert len(model.bodies) == 2
    model.faults = [streamed(piece("At 80 \x1b[31m"))]  # it breaks off
    status, output, errors = run("ask", "How hot is green tea?", "--model", "m")
    assert (status, output) == (2, "At 80 [31m (incomplete)\n")
    assert errors.startswith("Error: ")
    broken = streamed(piece("At 80 degrees [1]."), piece(" And"))
    model.faults = [broken] * 2
    status, output, errors = run("ask", "How hot is green tea?", "--model", "m", "--json")
    printed = json.loads(output)
    assert (status, errors, printed["ok"], printed["error"]["type"]) == (
        2,
        "",
        False,
        "GenerationError",
    )
    assert (printed["result"]["answer"], printed["result"]["incomplete"]) == (
        "At 80 degrees [1]. And",
        True,
    )
    assert [citation["source"] for citation in printed["result"]["citations"]] == ["tea.md"]
    status, output, errors = run("ask", "How hot is green tea?", "--model", "m")
    assert output.splitlines() == [
        "At 80 degrees [1]. And (incomplete)",
        "",
        "[1] tea.md  Tea, lines 1-5",
    ]


def test_ask_lists_twenty_doubtful_statements(
    folder: Path, run, model, monkeypatch: pytest.MonkeyPatch
):
    """And counts the rest; --json has all."""
    run("index")
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    text = " ".join(f"Green tea needs {100 + number} degrees [1]." for number in range(50))
    model.faults = [streamed(piece(text, finish_reason="stop"), "[DONE]")] * 2
    asked = ("ask", "How hot is green tea?", "--model", "m", "-k", 1)
    lines = run(*asked)[1].splitlines()
    assert len([line for line in lines if line.startswith("Contradicted: ")]) == 20
    assert lines[-1] == "and 30 more"
    assert len(json.loads(run(*asked, "--json")[1])["result"]["statements"]) == 50


def test_a_chat_model_out_of_reach_is_one_line(folder: Path, run, monkeypatch: pytest.MonkeyPatch):
    """Nothing is called incomplete where nothing came; the way out is that of the command line."""
    run("index")
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    status, output, errors = run("ask", "How hot is green tea?", "--model", "m")
    assert (status, output) == (2, "")
    assert "The chat model 'm' at http://127.0.0.1:9/v1 failed: it cannot be reached" in errors
    assert "Check the url (lazyrag config, OPENAI_BASE_URL) and the server." in errors


def test_ask_wraps_what_it_streams_and_says_what_is_weak(
    folder: Path, run, model, monkeypatch: pytest.MonkeyPatch
):
    """In both languages; a weak answer is called so above its sources."""
    run("index")
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    for text in ("The roof of the barn is old. " * 9, "谷仓的屋顶很旧，去年冬天漏过雨。" * 9):
        pieces = map(piece, re.findall(r"\s*\S{1,7}", f"{text}[1]"))
        model.faults = [streamed(*pieces, piece("", finish_reason="stop"), "[DONE]")]
        question = "Who repairs the roof of the barn, tea?"
        _, output, _ = run("ask", question, "--model", "m", "-k", 1)
        written, weak, *_ = output.split("\n\n")
        assert "".join(written.split()) == "".join(f"{text}[1]".split())
        assert all(60 < terminal.cells(line) <= 80 for line in written.splitlines()[:-1])
        assert weak == "The files do not seem to answer this question."


def test_ask_prints_the_first_word_at_once_and_ctrl_c_ends_the_request(
    folder: Path, run, interruptible
):
    """What came stays, and is called incomplete."""
    run("index")
    script = head("text/event-stream") + event(piece("At 80 ")) + event(piece("degrees [1]. "))
    command = [sys.executable, "-m", "lazyrag", "ask", "How hot is green tea?", "--model", "m"]
    with RawServer(script, hold=True) as server:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_BASE_URL": server.url}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            alarm = threading.Timer(60, process.kill)  # if the words never come
            alarm.start()
            assert process.stdout.read(18) == b"At 80 degrees [1]."  # the model still holds
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
            alarm.cancel()
        assert server.gone.wait(PATIENCE_S)
    incomplete = b" (incomplete)\n\n[1] tea.md  Tea, lines 1-5\n"
    assert (process.returncode, output) == (130, incomplete)
    assert errors.strip() == b"Interrupted."


@pytest.mark.slow
def test_watch_ingests_changes_until_it_is_interrupted(folder: Path, run, interruptible):
    """It says where it watches; Ctrl-C ends it with status 0."""
    run("index")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "lazyrag", "watch", "--poll", "0.1"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        alarm = threading.Timer(60, process.kill)  # a watcher that misses the file would never end
        alarm.start()
        assert process.stdout.readline() == "Watching ~/tea. Ctrl-C ends it.\n"
        (folder.parent / "new").write_text("Oolong is steeped at 95 degrees.", encoding="utf-8")
        (folder.parent / "new").rename(folder / "oolong.txt")  # never seen half written
        assert any(line.startswith("1 added, ") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        alarm.cancel()
    assert (process.returncode, output) == (0, "Stopped. What is ingested is stored.\n")
    assert run("search", "oolong")[1].startswith("1. oolong.txt")


def test_hybrid_search_needs_no_option_once_there_are_embeddings(
    folder: Path, run, model, monkeypatch: pytest.MonkeyPatch
):
    """The index keeps the model; keyword search still works without it."""
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    assert run("index", "--embed", "openai:m")[0] == 0
    assert "Embedding model: openai:m" in run("status")[1]
    status, output, errors = run("search", "green tea", "--explain")
    assert (status, errors) == (0, "")
    assert "bm25_chinese #1" in output
    asked = len(model.bodies)
    assert run("search", "green tea", "--retriever", "keyword")[0] == 0
    assert len(model.bodies) == asked
    assert all(terminal.cells(line) <= 80 for line in output.splitlines())


def test_status_compares_vectors_with_the_words(
    folder: Path, run, model, monkeypatch: pytest.MonkeyPatch
):
    """Those of a model that counts letters are left out; without the option none is loaded."""
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    for number in range(60):
        words = " ".join(f"word{number * step % 17}" for step in (1, 2, 3, 5))
        (folder / f"{number}.txt").write_text(f"{words} own{number}", encoding="utf-8")
    assert run("index", "--embed", "openai:m")[0] == 0
    assert "hybrid search" not in run("status")[1]
    lines = " ".join(run("status", "--vectors")[1].split())
    assert "MediumChunk: vectors are left out of hybrid search, agreement 0.0: check the" in lines
    groups = json.loads(run("status", "--vectors", "--json")[1])["result"]["groups"]
    assert {group["name"]: group["agreement"] for group in groups}["MediumChunk"] == 0
    assert run("status", "--vectors", "--store", str(folder / "none"))[0] == 1


@pytest.mark.slow
def test_an_embedding_model_stays_at_its_endpoint(
    folder: Path, run, model, monkeypatch: pytest.MonkeyPatch
):
    """Without OPENAI_BASE_URL, texts would go to another company's servers."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/")
    assert run("index", "--embed", "openai:m")[0] == 0
    assert run("sync")[0] == 0
    monkeypatch.delenv("OPENAI_BASE_URL")
    (folder / "new.md").write_text("White tea", encoding="utf-8")
    for command in (
        ("sync",),
        ("sync", "--plan"),
        ("index",),
        ("search", "tea", "--retriever", "hybrid"),
    ):
        status, output, errors = run(*command)
        assert (status, output) == (2 if "search" in command else 1, "")
        assert model.url in errors
        assert "https://api.openai.com/v1" in errors
    assert run("search", "tea", "--retriever", "keyword")[0] == 0
    status, output, errors = run("search", "tea")
    assert (status, output[:2]) == (0, "1.")
    assert errors.startswith("Note: keyword search only. ")


@pytest.mark.usefixtures("folder")
def test_a_failed_embedding_leaves_keyword_search(run, model, monkeypatch: pytest.MonkeyPatch):
    """The index says what is missing; a search says so on stderr until a sync has made the
    vectors.
    """
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    model.faults = [answered({"error": {"message": "wrong key"}}, 401)] * 8
    status, output, errors = run("index", "--embed", "openai:m")
    assert (status, errors) == (1, "")
    assert output.endswith(
        "Vectors are missing; keyword search works. To try again: lazyrag sync\n"
    )
    status, output, errors = run("search", "green tea")
    assert (status, output[:8]) == (0, "1. tea.m")
    assert errors == "Note: keyword search only, as vectors are missing. Run: lazyrag sync\n"
    model.faults = []
    assert run("sync")[0] == 0
    assert run("search", "green tea")[2] == ""
    model.faults = [answered({"error": {"message": "wrong key"}}, 401)] * 8
    assert run("index", "--embed", "openai:other")[0] == 1
    model.faults = []
    assert run("search", "green tea")[2].startswith("Note: keyword search only")


def test_a_folder_that_cannot_be_read_is_a_failure(
    folder: Path, run, monkeypatch: pytest.MonkeyPatch
):
    """Its path is shown and the exit status is 1: for a sync, and for its plan. Unreadable settings
    are not damaged.
    """
    run("index")
    scan = os.scandir

    def scandir(path):
        if str(path).endswith("notes"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for command in (("sync",), ("sync", "--plan")):
        status, output, errors = run(*command)
        assert (status, errors) == (1, "")
        assert "  failed: notes (cannot be listed: Permission denied)\n" in output
    monkeypatch.undo()
    monkeypatch.chdir(folder)

    def read_text(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", read_text)
    assert "config.json cannot be read (Permission denied)" in run("status")[2]


@pytest.mark.usefixtures("folder")
def test_usage_errors_are_json_too(run):
    """One object with the command and the message, and exit status 2."""
    for arguments, command in (
        (("search", "--json"), "search"),
        (("index", "a", "b", "--json"), "index"),
    ):
        status, output, errors = run(*arguments)
        assert (status, errors) == (2, "")
        printed = json.loads(output)
        assert (printed["command"], printed["ok"], printed["error"]["type"]) == (
            command,
            False,
            "UsageError",
        )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.usefixtures("folder")
def test_output_that_cannot_be_written_is_one_line(run):
    """As on a full disk; no traceback, also of what is buffered."""
    run("index")
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lazyrag", "search", "tea"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "Error: The output cannot be written: No space left on device\n"


@pytest.mark.usefixtures("folder")
def test_an_interrupted_search_does_not_speak_of_ingestion(run, monkeypatch: pytest.MonkeyPatch):
    """Nor is there a traceback if Ctrl-C comes during the imports."""
    run("index")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lazyrag.cli.query.find_project", interrupted)
    assert run("search", "tea") == (130, "", "\nInterrupted.\n")
    code = """
import builtins, sys
from lazyrag.cli.main import main

def stop(name, *arguments, old=builtins.__import__):
    if name == "lazyrag.cli.commands":
        raise KeyboardInterrupt
    return old(name, *arguments)

builtins.__import__ = stop
sys.argv = ["lazyrag", "status"]
main()
"""
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


@pytest.mark.slow
def test_folders_inside_of_an_indexed_folder(folder: Path, run):
    """No export is made there; a nested index is announced. A store in the home folder may be
    written with ~.
    """
    assert run("index", "--store=~/st")[0] == 0
    assert run("search", "tea", "--store=~/st")[0] == 0
    assert run("index")[2] == ""
    status, output, errors = run("export", "notes/backup")
    assert (status, output) == (1, "")
    assert (
        errors
        == f"Error: The next sync would index notes/backup: pass a folder outside of {folder}.\n"
    )
    status, _, errors = run("index", "notes")
    assert status == 0
    assert errors.startswith(f"Note: {folder} has an index already. ")
    assert run("index", "notes")[2] == ""


@pytest.mark.usefixtures("folder")
def test_messages_of_groups_and_filters(run):
    """Whole files are no passages to offer; what a filter leaves is said where nothing is found."""
    run("index")
    status, _, errors = run("search", "tea", "--group", "lazyllm_root")
    assert status == 2
    assert errors.endswith("Known: CoarseChunk, FineChunk, MediumChunk, image, table.\n")
    assert run("search", "tea", "--filters", "file_size > 9000") == (
        1,
        "Nothing found for 'tea' in those of 2 files that --filters allows.\n",
        "",
    )


def test_status_lists_files_with_nearly_the_same_text(folder, run):
    """On request, since it reads all texts."""
    run("index")
    assert "nearly" not in run("status")[1]
    assert "No two files have nearly the same text." in run("status", "--duplicates")[1]
    (folder / "copy.md").write_text(f"# Tea\n\n{TEA}\n\n", encoding="utf-8")
    run("sync")
    assert "nearly the same: copy.md, tea.md\n" in run("status", "--duplicates")[1]
    assert json.loads(run("status", "--duplicates", "--json")[1])["result"]["near_duplicates"] == [
        ["copy.md", "tea.md"]
    ]


def test_a_hit_shows_the_part_that_answers(folder: Path, run):
    """Not its first lines; code with its indentation, without signs of Markdown, and an ellipsis
    for what is left out. The first hits have most lines.
    """
    filler = "\n\n".join(f"The shop sells cups of size {number}." for number in range(40))
    code = "```python\nif hot:\n    steep(oolong, degrees=90)\n```"
    text = f"# Shop\n\n{filler}\n\nSteep **oolong** as [the guide](guide.md) says:\n\n{code}\n\n{filler}\n"
    (folder / "shop.md").write_text(text, encoding="utf-8")
    run("index", "--group", "CoarseChunk")
    _, output, _ = run("search", "how many degrees to steep oolong", "-k", "1")
    lines = output.splitlines()
    assert any("*Steep* *oolong* as the guide says:" in line for line in lines)
    at = next(number for number, line in enumerate(lines) if "if hot:" in line)
    assert lines[at] == "   if hot:"
    assert lines[at + 1].startswith("       *steep*(*oolong*, *degrees*=90)")
    assert len(lines) <= 9


def test_a_hit_is_shown_without_markup(folder: Path, run):
    """Roles, links, attributes and tags are gone; indented code keeps its lines, and long lines
    all of their words.
    """
    text = (
        'Steep <abbr title="a tea">oolong</abbr> with :meth:`~tea.steep` of '
        "[the guide](guide.md){.internal-link target=_blank} as `here <guide>`_ says:\n\n"
        "    def steep(oolong):\n"
        f"        return [{', '.join(f'degrees_of_oolong_{number}' for number in range(5))}]\n"
    )
    (folder / "guide.md").write_text(text, encoding="utf-8")
    run("index")
    output = run("search", "steep oolong guide", "-k", "1")[1].replace("*", "")
    assert "Steep oolong with tea.steep of the guide as here says:\n   def steep(oolong):" in output
    assert "\n       return [degrees_of_oolong_0," in output
    assert "degrees_of_oolong_4]" in output


def test_six_hits_fill_one_screen(folder: Path, run):
    """36 lines: a long location is one line, without its first headings."""
    headings = [f"{'#' * depth} {'A heading of a tea book ' * 3}{depth}" for depth in (1, 2, 3)]
    for number in range(6):
        words = [f"Oolong number {number} of {place} is steeped twice." for place in range(40)]
        text = "\n\n".join([*headings, *words])
        (folder / f"{'long' * 12}{number}.md").write_text(text, encoding="utf-8")
    run("index")
    lines = run("search", "How is oolong steeped?")[1].splitlines()
    assert len(lines) <= 36
    assert lines[1].startswith("   …")
    assert ", lines " in lines[1]
