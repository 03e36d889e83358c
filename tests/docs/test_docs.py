"""What is documented runs, and what can be named is documented.

The ``python`` blocks of a page run in order in one namespace, in a temporary working directory with
a copy of ``cookbook/corpus`` alone, as in a checkout: the first block of a page runs alone. A block
whose first line is a comment with the name of a Python file, such as ``# sqlite_store.py``, is
saved under that name and imported, so that later blocks can use it.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
import runpy
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
from pytest_httpserver import HTTPServer

import lazyrag
from lazyrag import errors
from lazyrag.stores.sqlite import StoreFile
from tests.interpreter import ROOT, python
from tests.model_server import Model
from tests.shared import shared

DOCS = ROOT / "docs"
SPECS = ROOT / "tests" / "specs"
READMES = (ROOT / "README.md", ROOT / "README.zh.md")
# The others are for CI.
QUICK = (
    "formats.md",
    "pipeline.md",
    "README.md",
    "reading-files.md",
    "which-retriever.md",
)
WITH_MODELS = (  # need a model and an endpoint
    "generation.md",
    "models.md",
    "rerankers.md",
    "tutorials/first-answer.md",
    "tutorials/first-search.md",
)
# the report of spec 003
ONLY_IN_CHINESE = ("structured-rag.md",)
WITHOUT_CODE = ("api.md", "platforms.md", "README.md", "registries.md")
IN_CHINESE = sorted(
    page.relative_to(DOCS / "zh").as_posix()
    for page in (DOCS / "zh").rglob("*.md")
    if page.name not in ONLY_IN_CHINESE
)
PAGES = [*sorted(DOCS.rglob("*.md")), *READMES]
TWINS = {"the README": READMES, **{name: (DOCS / name, DOCS / "zh" / name) for name in IN_CHINESE}}

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+-]*)")
_TEST_ID = re.compile(r"`((?:[\w.]+/)*test_\w+\.py)::(?:\w+::)?(test_\w+)`")
_FILE_NAME = re.compile(r"# (\w+)\.py[ \t]*\n")


class Block(NamedTuple):
    """A fenced block: its language, its text, the line its text begins at."""

    language: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    found = []
    fence = language = ""
    lines: list[str] = []
    start = 0
    for number, line in enumerate(
        page.read_text(encoding="utf-8").splitlines(keepends=True), start=1
    ):
        mark = _FENCE.match(line)
        if fence and mark and mark[1].startswith(fence) and not mark[2]:
            found.append(Block(language, "".join(lines), start))
            fence = ""
        elif fence:
            lines.append(line)
        elif mark:
            fence, language = mark[1], mark[2]
            lines, start = [], number + 1
    assert not fence, f"{page} leaves a code block open"
    return found


def python_of(page: Path) -> list[Block]:
    """The blocks that run."""
    return [block for block in blocks_of(page) if block.language in ("python", "py")]


def prose_of(page: Path) -> str:
    """A page without its code blocks and inline code, so that what looks like a link is one."""
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(page):
        text = text.replace(block.text, "")
    return re.sub(r"`[^`\n]+`", "", text)


def documented_code() -> str:
    """All inline code and all code blocks of the documentation, one after the other."""
    pieces = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for block in blocks_of(page):
            pieces.append(block.text)
            text = text.replace(block.text, "")
        pieces += re.findall(r"`([^`\n]+)`", text)
    return "\n".join(pieces)


def undocumented(names: list[str]) -> list[str]:
    """The names that stand nowhere in the documentation's code as words of their own."""
    code = documented_code()
    return [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code)]


@pytest.fixture
def _as_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A temporary working directory with the corpus; what a page imports is gone afterwards."""
    shutil.copytree(ROOT / "cookbook" / "corpus", tmp_path / "cookbook" / "corpus")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]


def run_blocks(page: Path, blocks: list[Block], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run blocks of a page, in order, in a namespace of their own."""
    module = types.ModuleType("a_page_of_the_documentation")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks:
        name = _FILE_NAME.match(block.text)
        if name:
            Path(f"{name[1]}.py").write_text(block.text, encoding="utf-8")
            source = f"import {name[1]}"
        else:
            source = block.text
        # Empty lines before the code: a traceback names the line of the page.
        code = compile("\n" * (block.line - 1) + source, str(page), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102  that is what the test is about


def read(pages: list[Path]) -> list[object]:
    """Pages as parameters, most of them slow; no Chinese page whose code is that of its English
    twin.
    """
    return [
        pytest.param(
            page,
            id=page.relative_to(ROOT).as_posix(),
            marks=[pytest.mark.slow] if page.name not in QUICK or is_chinese(page) else [],
        )
        for page in pages
        if not is_chinese(page) or page.name in ONLY_IN_CHINESE
    ]


def is_chinese(page: Path) -> bool:
    """Whether a page of docs/ is below docs/zh."""
    return DOCS / "zh" in page.parents


@pytest.mark.usefixtures("_as_a_reader")
@pytest.mark.parametrize(
    "page",
    read(
        [
            page
            for page in PAGES
            if page not in [*READMES, *map(DOCS.joinpath, WITH_MODELS)] and python_of(page)
        ]
    ),
)
def test_the_code_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch):
    """Every Python block of a page runs, top to bottom, and what it asserts is true."""
    run_blocks(page, python_of(page), monkeypatch)


@pytest.mark.share(3)
@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.usefixtures("_as_a_reader")
@pytest.mark.parametrize(
    "page",
    read([DOCS / name for name in WITH_MODELS]),
)
def test_the_code_of_the_pages_on_models_runs(page: Path, monkeypatch: pytest.MonkeyPatch):
    """With the real model in its folder and a local endpoint, every block runs and what it asserts
    is true.
    """
    monkeypatch.setenv("MODEL_FOLDER", str(shared("models", "all-minilm-l6-v2")))
    with HTTPServer(threaded=True) as server:
        monkeypatch.setenv("MODEL_URL", Model(server).url)
        run_blocks(page, python_of(page), monkeypatch)


@pytest.mark.sample(2)
@pytest.mark.usefixtures("_as_a_reader")
@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_the_readme_runs_in_a_checkout(page: Path, monkeypatch: pytest.MonkeyPatch):
    """The README's blocks run in a checkout's folder, what they assert is true, and its two
    commands are there.
    """
    blocks = python_of(page)
    assert len(blocks[0].text.split("\n\n", 1)[1].split()) < 80  # "ten lines"
    run_blocks(page, blocks, monkeypatch)
    text = page.read_text(encoding="utf-8")
    assert [
        command for command in ("make demo", "make test", "lazyrag index") if command not in text
    ] == []


def test_the_picture_of_the_readme_is_a_session_in_both_languages():
    """It is small, well-formed, and shows hits of files of the sample with marked words."""
    picture = DOCS / "session.svg"
    assert picture.stat().st_size < 100_000
    svg = ET.parse(picture)  # noqa: S314  a file of ours
    texts = [
        (one.text or "", one.get("fill")) for one in svg.iter("{http://www.w3.org/2000/svg}text")
    ]
    shown = "".join(text for text, _ in texts)
    files = [
        path.relative_to(ROOT / "cookbook" / "corpus").as_posix()
        for path in (ROOT / "cookbook").rglob("*.*")
        if "corpus" in path.parts
    ]
    assert len([file for file in files if file in shown]) >= 3
    marked = {text for text, colour in texts if colour == "#f2cc60"}
    assert {"petrol", "chimney", "医院"} <= marked


def test_the_readme_has_no_broken_links_on_a_package_index():
    """Links to files lead to the repository of setup.cfg, or are text where it names none."""
    description = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["description"]
    readme = READMES[0].read_text(encoding="utf-8")
    assert not re.search(r"\]\((?!https?:|#)", description(readme, "", "1.0"))
    assert "](https://forge.example/rag/blob/v1.0/docs/api.md)" in description(
        readme, "https://forge.example/rag", "1.0"
    )


@pytest.mark.parametrize("name", TWINS)
def test_both_languages_say_the_same(name: str):
    """An English page and its Chinese twin have the same code blocks, their comments aside, in the
    same order.
    """
    english, chinese = map(blocks_of, TWINS[name])
    assert bool(english) is (name not in WITHOUT_CODE)
    assert [block.language for block in english] == [block.language for block in chinese]
    for one, other in zip(english, chinese, strict=True):
        if one.language == "python":
            assert ast.dump(ast.parse(one.text)) == ast.dump(ast.parse(other.text)), (
                f"lines {one.line}, {other.line}"
            )


@pytest.mark.parametrize("name", TWINS)
def test_both_languages_have_the_same_sections(name: str):
    """The headings of an English page and its Chinese twin have the same levels in the same
    order.
    """
    levels = [
        [len(mark) for mark in re.findall(r"^(#+) ", prose_of(page), re.MULTILINE)]
        for page in TWINS[name]
    ]
    assert levels[0] == levels[1]


@pytest.mark.slow
def test_every_registered_name_is_documented():
    """Whatever can be chosen by name stands in the documentation as code."""
    listing = """
import json
from lazyrag.generation.refiners import refiners
from lazyrag.loaders import loaders
from lazyrag.ranking.fusion import fusions
from lazyrag.retrieval import rerankers, similarities
from lazyrag.retrieval.similarity import indexes
from lazyrag.stores.protocol import segment_stores, vector_stores
from lazyrag.stores.sqlite import StoreFile
from lazyrag.text.analyzers import analysers
from lazyrag.text.tokens import token_counters
from lazyrag.transforms import transforms
registries = (loaders, transforms, similarities, rerankers, segment_stores, vector_stores, analysers, token_counters)
print(json.dumps([name for registry in (*registries, fusions, indexes, refiners) for name in registry]))
"""
    names = json.loads(python("-c", listing).stdout)
    assert {
        ".pdf",
        "SentenceSplitter",
        "cosine",
        "KeywordFilter",
        "map",
        "zh",
        "utf8",
        "rrf",
        "native",
        "tree",
    } <= {*names}
    assert undocumented(names) == []


def test_every_public_name_is_documented():
    """Each name of the package's __all__ stands in the documentation as code."""
    assert undocumented(list(lazyrag.__all__)) == []


def test_every_error_is_documented():
    """Each error and warning class stands in the documentation as code."""
    classes = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, (Exception, Warning))
        and value.__module__ == errors.__name__
    ]
    assert "StaleNodeError" in classes
    assert undocumented(classes) == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("spec-*.md")), ids=lambda page: page.stem)
def test_the_page_of_a_specification_names_its_tests(page: Path):
    """Every test that the page names is there, and every test of the specification's suite is named
    in it.
    """
    number = page.stem.partition("-")[2]
    named = {
        (SPECS / file).resolve().relative_to(ROOT).as_posix() + f"::{test}"
        for file, test in _TEST_ID.findall(page.read_text(encoding="utf-8"))
    }
    suite = {
        f"tests/specs/{file.name}::{test}"
        for file in SPECS.glob(f"test_{number}_*.py")
        for test in names_of_tests(file)
    }
    assert len(suite) > 30
    assert suite - named == set()
    assert [
        one
        for one in sorted(named - suite)
        if one.partition("::")[2] not in names_of_tests(ROOT / one.partition("::")[0])
    ] == []


def names_of_tests(file: Path) -> set[str]:
    """Names of a file's test functions, those of classes too."""
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.exists() else ast.Module([], [])
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_make_target_is_documented():
    """Each target of the Makefile that a person would call stands in the documentation as
    ``make <target>``.
    """
    makefile = ROOT / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.exists() else ""
    targets = re.findall(r"^([a-z][\w-]*)\s*:(?!=)", text, re.MULTILINE)
    assert targets or not text
    assert undocumented([f"make {target}" for target in targets]) == []


@pytest.mark.parametrize("folder", [DOCS, DOCS / "zh"], ids=["english", "chinese"])
def test_the_page_of_the_storage_format_names_every_table_and_column(folder: Path):
    """Each language's storage-format.md lists the tables and columns that a new store file has, and
    no others.
    """
    listed: dict[str, set[str]] = {}
    table = ""
    for line in (folder / "storage-format.md").read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| (?:`(\w+)`)? ?\| (`.+?) \|", line)
        if row:
            table = row[1] or table
            listed.setdefault(table, set()).update(re.findall(r"`(\w+)`", row[2]))
    with StoreFile(None) as file, file.reading() as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        there = {
            name: {column[1] for column in connection.execute(f"PRAGMA table_info({name})")}
            for (name,) in names
            if not name.startswith("sqlite_")
        }
    assert {name: columns for name, columns in listed.items() if name} == there


@pytest.mark.share(3)
@pytest.mark.slow
def test_make_docs_checks_and_rewrites(tmp_path: Path):
    """With --check a stale page is an exit status of 1 and stays as it is; without, it is
    rewritten.
    """
    (tmp_path / "tools").mkdir()
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "tools" / "format_table.py", tmp_path / "tools")
    script = str(shutil.copy(ROOT / "tools" / "make_docs.py", tmp_path / "tools"))
    page = tmp_path / "docs" / "registries.md"
    page.write_text("stale", encoding="utf-8")
    assert python(script, "--check", cwd=tmp_path).returncode == 1
    assert page.read_text(encoding="utf-8") == "stale"
    assert python(script, cwd=tmp_path).returncode == 0
    assert page.read_text(encoding="utf-8") == (DOCS / "registries.md").read_text(encoding="utf-8")
    assert python(script, "--check", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page: Path):
    """A link to a file leads to one that is there, a link to a heading to one that the page has."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.relative_to(ROOT)} links to {target}"
        if anchor:
            assert anchor in anchors_of(linked), f"{page.relative_to(ROOT)} links to {target}"


@pytest.mark.parametrize(
    "page",
    [
        DOCS / "architecture.md",
        *sorted((DOCS / "internals").glob("*.md")),
        *sorted((DOCS / "decisions").glob("*.md")),
    ],
    ids=lambda page: page.relative_to(DOCS).as_posix(),
)
def test_pages_on_the_code_name_code_that_exists(page: Path):
    """Each module, function and file of the package that the pages on its inside name is there."""
    text = page.read_text(encoding="utf-8")
    names = {
        name
        for code in re.findall(r"`([^`\n]+)`", text)
        for name in re.findall(r"^lazyrag(?:\.\w+)+$", code)
    }
    assert [name for name in sorted(names) if not is_importable(name)] == []
    files = re.findall(r"\b(?:lazyrag|tests|tools|benchmarks)/[\w./]+\w", text)
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("folder", [DOCS, DOCS / "zh"], ids=["english", "chinese"])
def test_modules_that_have_moved_are_where_the_page_says(folder: Path):
    """In the table of upgrading.md no old name leads anywhere, and each new one does."""
    rows = re.findall(
        r"^\| (`lazyrag\..+) \| `(lazyrag\..+)` \|$",
        (folder / "upgrading.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert len(rows) > 10
    assert [new for _, new in rows if not is_importable(new)] == []
    assert [
        old for olds, _ in rows for old in re.findall(r"`([\w.]+)`", olds) if is_importable(old)
    ] == []


def is_importable(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one."""
    module, *attributes = name.split(".")
    found = importlib.import_module(module)
    for attribute in attributes:
        module = f"{module}.{attribute}"
        if not hasattr(found, attribute) and (
            not inspect.ismodule(found) or importlib.util.find_spec(module) is None
        ):
            return False
        found = (
            getattr(found, attribute)
            if hasattr(found, attribute)
            else importlib.import_module(module)
        )
    return True


def anchors_of(page: Path) -> list[str]:
    """The anchors that GitHub gives a page's headings."""
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(page):
        text = text.replace(block.text, "")
    headings = re.findall(r"^#+ +(.+?)\s*$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def messages_of(page: Path) -> list[str]:
    """The messages in the first cells of a page's tables, with … for what varies."""
    return [
        row.replace("\\|", "|")
        for row in re.findall(r"^\| `([^`]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def texts_of_the_package() -> str:
    """All texts in the code of the package, one in a line, with … for what they are formatted
    with.
    """
    texts = []
    for file in sorted((ROOT / "lazyrag").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append(
                    "".join(
                        str(one.value) if isinstance(one, ast.Constant) else "…"
                        for one in node.values
                    )
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(text.replace("\n", " ") for text in texts)


def test_the_messages_of_the_page_on_errors_are_those_of_the_code():
    """Each part of a message that the page explains is in the code; both languages have the same
    messages.
    """
    texts = texts_of_the_package()
    messages = messages_of(DOCS / "errors.md")
    assert len(messages) >= 35
    pieces = {
        piece.strip(" ()") for message in messages for piece in re.split(r"…|(?<=[.,;:]) ", message)
    }
    assert [piece for piece in sorted(pieces) if len(piece) > 3 and piece not in texts] == []
    assert messages_of(DOCS / "zh" / "errors.md") == messages
