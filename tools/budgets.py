"""Print how large the package is and how many of its own calls a query takes, beside the bounds.

    python tools/budgets.py [--json]

Run it from anywhere; it measures the checkout that it is in, in under 20 seconds. The exit status is 1 where a bound
of the column "now" is missed. The column "later" is reported only.

- Code lines leave out docstrings, comments and blank lines. Parts with an allowance of their own (`LATER_PARTS`) do
  not count.
- Own calls are frames of the package whose name does not begin with "<": whether a comprehension has a frame of its own
  depends on the version of Python.
- A guard is an `if` that only raises. Argument checks are guards, handlers that raise a ConfigError, and calls and
  bodies of the helpers of `lazyrag/validation.py` and of functions named `check_`, `validate_`.
- A public module is one that the README, a page of docs/ or a script of cookbook/ imports.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tempfile
import threading
import tokenize
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "lazyrag"

Figures: TypeAlias = dict[str, float]
"""Measured values by the name of their bound."""


@dataclass(frozen=True)
class Bound:
    """One line of the table.

    Args:
        name: What is measured.
        now: The bound that is enforced; None if there is none yet.
        later: The bound to reach; None if the figure is only reported.
        is_share: Whether the figure is a share between 0 and 1.
        at_least: Whether the bounds are lower bounds.
    """

    name: str
    now: float | None = None
    later: float | None = None
    is_share: bool = False
    at_least: bool = False

    def is_met(self, value: float, bound: float | None) -> bool:
        """Whether a value is within a bound; None bounds nothing."""
        if bound is None:
            return True
        return value >= bound if self.at_least else value <= bound

    def formatted(self, value: float | None) -> str:
        """A value or bound as the table shows it."""
        if value is None:
            return ""
        return f"{value:.1%}" if self.is_share else f"{value:,.10g}"


BOUNDS = (
    Bound("code lines", now=43_740, later=37_000),
    Bound("files", now=175, later=175),
    Bound("largest file, code lines", now=1_200, later=1_200),
    Bound("AST statements"),
    Bound("lines over 110 characters", now=0.042, later=0.041, is_share=True),
    Bound("guards: if ... raise", now=0.05, later=0.05, is_share=True),
    Bound("argument checks of every kind", now=0.083, later=0.08, is_share=True),
    Bound("modules with one importer, a sibling", now=14, later=14),
    Bound("code lines of these"),
    Bound("BM25 query, memory: modules", now=15, later=15),
    Bound("BM25 query, memory: own calls", now=90, later=90),
    Bound("BM25 query, file: modules", now=18, later=18),
    Bound("BM25 query, file: own calls", now=110, later=130),
    Bound("BM25, own calls per hit, memory", now=6, later=6),
    Bound("BM25, own calls per hit, file", now=6, later=6),
    Bound("hybrid query, memory: modules", now=23, later=22),
    Bound("hybrid query, memory: own calls", now=250, later=300),
    Bound("hybrid query, file: modules", now=25, later=25),
    Bound("hybrid query, file: own calls", now=280, later=360),
    Bound("hybrid, own calls per hit, memory", now=6, later=6),
    Bound("hybrid, own calls per hit, file", now=6, later=6),
    Bound("one .txt into a store file: modules", now=31, later=30),
    Bound("one .txt into a store file: own calls", now=1_620, later=1_600),
    Bound("names at the top level", now=50, later=50),
    Bound("test lines with public imports only", later=0.7, is_share=True, at_least=True),
    Bound("test files with public imports only"),
    Bound("test files"),
)
"""The figures of the package. Those of the later parts follow."""

LATER_PARTS = {
    "scale": (2_670, 1_500, r"(.*/)?(launchers|shards|reshard|rare_terms|remote_shards|replica|postgres)(/.*)?\.py"),
    "command line": (1_185, 1_010, r"cli(/.*)?\.py|__main__\.py|document/project\.py"),
    "protocol faces": (2_010, 1_200, r"server/(openai|mcp|dify|rerank|sets).*\.py"),
    "web page": (1_840, 1_200, r"server/(page|web).*\.py"),
    "service": (
        5_810,
        2_600,
        r"(server|service)/.*\.py|document/(catalogue|certificate|jobs|marks|remote)\.py|data/encoding\.py",
    ),
    "documents": (
        2_690,
        1_500,
        r"(.*/)?(ocr|scans|tables|sql_process|pictures|transcription|format_report|bidi|pdf_(recovery|lines)|alphabets|armour|(old_)?office)\.py",
    ),
}
"""Parts that are not counted with the rest: code lines allowed now and to reach, and files; the first match counts."""
ALL_BOUNDS = (
    *BOUNDS,
    *(Bound(f"{part}: code lines", now=now, later=later) for part, (now, later, _) in LATER_PARTS.items()),
)
CHECKING_MODULES = ("lazyrag.validation",)
CHECKING_NAMES = re.compile(r"_?(check|validate)(_|$)")
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
LONG = 110
TEXTS = [f"green tea number {number} is brewed at eighty degrees. coffee is ground fine.\n" * 20 for number in range(5)]
ONE_TEXT = "green tea is brewed at eighty degrees. coffee is ground fine.\n" * 20


@dataclass(frozen=True)
class Module:
    """A parsed Python file.

    Args:
        name: Dotted, as it is imported.
        source: Its text.
        tree: Its syntax.
    """

    name: str
    source: str
    tree: ast.Module

    @property
    def parent(self) -> str:
        """The package that it is in."""
        return self.name.rpartition(".")[0]


def read_module(path: Path) -> Module:
    """Parse a file of the checkout."""
    source = path.read_text(encoding="utf-8")
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return Module(name, source, ast.parse(source))


def part_of(path: Path) -> str | None:
    """The later part that a file belongs to; None for the rest of the package."""
    name = path.relative_to(PACKAGE).as_posix()
    return next((part for part, (*_, pattern) in LATER_PARTS.items() if re.fullmatch(pattern, name)), None)


def counted_modules() -> list[Module]:
    """The modules of the package, without the later parts."""
    return [read_module(path) for path in sorted(PACKAGE.rglob("*.py")) if part_of(path) is None]


def part_lines() -> Figures:
    """The code lines of each later part."""
    lines = dict.fromkeys((part_name(part) for part in LATER_PARTS), 0)
    for path in PACKAGE.rglob("*.py"):
        if (part := part_of(path)) is not None:
            lines[part_name(part)] += len(code_rows(read_module(path)))
    return lines


def part_name(part: str) -> str:
    """The line of the table for a later part."""
    return f"{part}: code lines"


# Mass


def code_rows(module: Module) -> set[int]:
    """The numbers of the lines that hold code."""
    rows: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type not in NOT_CODE:
            rows.update(range(token.start[0], token.end[0] + 1))
    for docstring in docstrings(module.tree):
        rows.difference_update(rows_of(docstring))
    return rows


def docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """The statements that are docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(first, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield first


def rows_of(node: ast.stmt | ast.expr) -> range:
    """The numbers of the lines that a statement or expression is on."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def guard_rows(module: Module) -> set[int]:
    """The lines of each `if` without `else` that assigns at most a message, and raises."""
    rows: set[int] = set()
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.If)
            and not node.orelse
            and isinstance(node.body[-1], ast.Raise)
            and all(isinstance(statement, (ast.Assign, ast.Raise)) for statement in node.body)
        ):
            rows.update(rows_of(node))
    return rows


def check_rows(module: Module, helpers: frozenset[str]) -> set[int]:
    """The lines of all argument checks: guards, calls of helpers, and the helpers themselves.

    Args:
        module: Where to look.
        helpers: Names of the functions in `CHECKING_MODULES`.
    """
    if module.name in CHECKING_MODULES:
        return set(range(1, module.source.count("\n") + 2))
    rows = guard_rows(module)
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if CHECKING_NAMES.match(node.name):
                rows.update(rows_of(node))
            for decorator in node.decorator_list:
                if is_check(decorator, helpers):
                    rows.update(rows_of(decorator))
        elif isinstance(node, ast.ExceptHandler) and isinstance(node.body[-1], ast.Raise):
            # A value that cannot be converted: `except TypeError: raise ConfigError(...)`.
            if "ConfigError" in ast.dump(node.body[-1]):
                rows.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Call) and is_check(node.func, helpers):
            rows.update(rows_of(node))
    return rows


def is_check(called: ast.expr, helpers: frozenset[str]) -> bool:
    """Whether an expression names a function that checks arguments."""
    if isinstance(called, ast.Call):
        called = called.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    return name in helpers or bool(CHECKING_NAMES.match(name))


def mass(modules: Sequence[Module]) -> Figures:
    """Lines, files, statements and the shares of lines."""
    helpers = frozenset(
        node.name
        for module in modules
        if module.name in CHECKING_MODULES
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef)
    )
    code = {module.name: code_rows(module) for module in modules}
    sizes = {name: len(rows) for name, rows in code.items()}
    lines = [line for module in modules for line in module.source.split("\n")]
    total = sum(sizes.values())
    lonely = lonely_modules(modules)
    return {
        "code lines": total,
        "files": len(modules),
        "largest file, code lines": max(sizes.values()),
        "AST statements": sum(isinstance(node, ast.stmt) for module in modules for node in ast.walk(module.tree)),
        "lines over 110 characters": sum(len(line) > LONG for line in lines) / len(lines),
        "guards: if ... raise": sum(len(guard_rows(one) & code[one.name]) for one in modules) / total,
        "argument checks of every kind": sum(len(check_rows(one, helpers) & code[one.name]) for one in modules) / total,
        "modules with one importer, a sibling": len(lonely),
        "code lines of these": sum(sizes[name] for name in lonely),
    }


# Imports


def imported(tree: ast.Module, known: Iterable[str]) -> set[str]:
    """The modules of the package that a file imports, wherever the statement is."""
    known = set(known)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found.update(name if name in known else node.module for name in names)
    return found & known


def lonely_modules(modules: Sequence[Module]) -> list[str]:
    """Modules that a single other one imports, which is in the same package."""
    of = {module.name: module for module in modules}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for name in imported(module.tree, of) - {module.name}:
            importers[name].add(module.name)
    return [
        name
        for name, module in of.items()
        if len(importers[name]) == 1 and of[next(iter(importers[name]))].parent == module.parent
    ]


def documented_modules() -> set[str]:
    """The modules that pages and example scripts import."""
    paths = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "zh").glob("*.md")]
    paths += list((ROOT / "cookbook").glob("*.py"))
    statement = re.compile(r"^\s*(?:from|import) (lazyrag[\w.]*)", re.MULTILINE)
    return {name for path in paths for name in statement.findall(path.read_text(encoding="utf-8"))}


def public_tests() -> Figures:
    """How much of the tests imports nothing of the package but public modules."""
    known = {read_module(path).name for path in PACKAGE.rglob("*.py")}
    public = documented_modules()
    lines = {True: 0, False: 0}
    files = {True: 0, False: 0}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        is_public = imported(ast.parse(source), known) <= public
        lines[is_public] += source.count("\n")
        files[is_public] += 1
    return {
        "test lines with public imports only": lines[True] / sum(lines.values()),
        "test files with public imports only": files[True],
        "test files": sum(files.values()),
    }


# Calls


@dataclass(frozen=True)
class Walk:
    """What a call goes through.

    Args:
        modules: How many modules of the package.
        calls: How many calls of its functions.
    """

    modules: int
    calls: int


def walk(function: Callable[..., object], *args: object, **kwargs: object) -> Walk:
    """Call a function, and count the package's frames in this thread and in those that it starts."""
    inside = f"{PACKAGE}/"
    files: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside) and not code.co_name.startswith("<"):
            files.append(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        function(*args, **kwargs)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return Walk(len(set(files)), len(files))


def write_files(folder: Path, *texts: str) -> Path:
    """A new folder with a file for each text."""
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    return folder


def embed(text: str) -> list[float]:
    """A vector without a model."""
    return [float(len(text)), 1.0, float(text.count("e"))]


def on_file(store: Path) -> dict[str, Any]:
    """The `store_conf` of a store file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(store)}}}


def query_walks(folder: Path) -> Figures:
    """Warm queries: BM25 and hybrid, in memory and on a store file; and what each further hit takes."""
    from lazyrag import Document, HybridRetriever, Retriever

    dataset = write_files(folder / "queries", *TEXTS)
    figures: Figures = {}
    for where, conf in (("memory", None), ("file", on_file(folder / "queries.db"))):
        with Document(dataset, embed=embed, store_conf=conf) as docs:
            retrievers: dict[str, Callable[..., Sequence[object]]] = {
                "BM25": Retriever(docs, "FineChunk", similarity="bm25", topk=3),
                "hybrid": HybridRetriever.over(docs, "FineChunk"),
            }
            for name, retriever in retrievers.items():
                for query in ("x", "tea", "coffee"):
                    retriever(query)
                found = walk(retriever, "tea degrees")
                figures[f"{name} query, {where}: modules"] = found.modules
                figures[f"{name} query, {where}: own calls"] = found.calls
                figures[f"{name}, own calls per hit, {where}"] = calls_per_hit(retriever)
    return figures


def calls_per_hit(retriever: Callable[..., Sequence[object]]) -> float:
    """How many own calls a hit more takes, over ten more."""
    few, many = 4, 14
    for topk in (few, many):
        if len(retriever("tea degrees", topk=topk)) != topk:
            msg = f"There are fewer than {topk} hits to count calls for."
            raise RuntimeError(msg)
    calls = [walk(retriever, "tea degrees", topk=topk).calls for topk in (few, many)]
    return (calls[1] - calls[0]) / (many - few)


def ingest_walk(folder: Path) -> Figures:
    """One .txt into a store file, in a process that has ingested others."""
    from lazyrag import Document

    with Document(write_files(folder / "warm", *TEXTS), store_conf=on_file(folder / "warm.db")) as docs:
        docs.activate_group("FineChunk")
    with Document(write_files(folder / "one", ONE_TEXT), store_conf=on_file(folder / "one.db")) as docs:
        found = walk(docs.activate_group, "FineChunk")
    return {
        "one .txt into a store file: modules": found.modules,
        "one .txt into a store file: own calls": found.calls,
    }


def measure() -> Figures:
    """All figures."""
    import lazyrag

    figures = {
        **mass(counted_modules()),
        **part_lines(),
        **public_tests(),
        "names at the top level": len(lazyrag.__all__),
    }
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures |= query_walks(Path(folder)) | ingest_walk(Path(folder))
    return figures


# Output


def missed(figures: Figures) -> list[str]:
    """The names of the bounds that are enforced and not met."""
    return [bound.name for bound in ALL_BOUNDS if not bound.is_met(figures[bound.name], bound.now)]


def table(figures: Figures) -> str:
    """A line for each figure, at most 80 columns wide."""
    lines = [f"{'':<38}{'measured':>10}{'now':>9}{'later':>9}"]
    for bound in ALL_BOUNDS:
        value = figures[bound.name]
        notes = {"MISSED": bound.now, "later": bound.later}
        note = next((name for name, limit in notes.items() if not bound.is_met(value, limit)), "")
        measured, now, later = (bound.formatted(one) for one in (value, bound.now, bound.later))
        later = f">= {later}" if bound.at_least else later
        lines.append(f"{bound.name:<38}{measured:>10}{now:>9}{later:>9}  {note}".rstrip())
    return "\n".join(lines)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the figures and bounds as JSON")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # this checkout, whichever one is installed
    figures = measure()
    failures = missed(figures)
    if options.json:
        rows = {
            bound.name: {"measured": figures[bound.name], "now": bound.now, "later": bound.later}
            for bound in ALL_BOUNDS
        }
        print(json.dumps({"figures": rows, "missed": failures}, indent=1))
    else:
        print(table(figures))
        print(f"\n{len(failures)} enforced bounds are missed." if failures else "\nAll enforced bounds are met.")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
