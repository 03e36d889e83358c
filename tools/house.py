"""Measure the size, density, layers and imports of the package, and the calls of warm queries.

The rules are those of the project's design; `budgets.py` compares the figures with the bounds.
Tokens leave out comments, docstrings and blank lines, and count the whole package without exempt
parts.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "lazyrag"
LAYERS = """
cli
server
operators | interop
evaluation
pipeline
project | client
document
maintain | launchers
retrieval | generation | ingest
read
groups
ledger
sources | testing
loaders | transforms
stores
models | indexes
storage | ranking | text
data
progress
registry
validation
errors | types
"""
"""The packages and modules below `lazyrag`, from the top: imports point to lower rows only."""
RANKS = {
    name.strip(): rank
    for rank, row in enumerate(LAYERS.strip().split("\n"))
    for name in row.split("|")
}
ABOVE_LAYERS = {"", "__main__", "_exports", "_lazy", "_version"}
GENERIC_NAMES = frozenset(
    "one own found given known made wanted whole kept said told asked shown gone come held what".split()
)
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DECISIONS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
)
MANY_BRANCHES = 15
LONG_LINE = 100
LARGE_FILE = 700
SMALL_PACKAGE = 200  # statements, below which a package's density says little

Figures: TypeAlias = dict[str, float]
"""Measured values by the name of their bound."""
Nodes: TypeAlias = Iterator[ast.AST]


@dataclass(frozen=True)
class Module:
    """A parsed Python file: its dotted name, source and syntax tree."""

    name: str
    source: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package or module below `lazyrag` that it is in; "" for `lazyrag` itself."""
        return package_of(self.name)


def package_of(name: str) -> str:
    """The first name below `lazyrag`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def read_module(path: Path) -> Module:
    """Parse a file of the checkout."""
    source = path.read_text(encoding="utf-8")
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return Module(name, source, ast.parse(source))


def read_package() -> dict[str, Module]:
    """All modules of the package by their names."""
    modules = [read_module(path) for path in sorted(PACKAGE.rglob("*.py"))]
    return {module.name: module for module in modules}


# Size and density


def docstring_rows(tree: ast.Module) -> set[int]:
    """The numbers of the lines of docstrings."""
    rows: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) or not node.body:
            continue
        first = node.body[0]
        value = first.value if isinstance(first, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            rows.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return rows


def count_tokens(module: Module) -> tuple[int, int]:
    """The number of tokens of code, and of the lines that they are on."""
    prose = docstring_rows(module.tree)
    tokens = 0
    rows: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type in NOT_CODE:
            continue
        lines = set(range(token.start[0], token.end[0] + 1)) - prose
        if lines:
            tokens += 1
        rows |= lines
    return tokens, len(rows)


def walk_own_body(function: ast.AST) -> Nodes:
    """The nodes of a function without those of functions inside it."""
    nodes = list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        if not isinstance(node, FUNCTIONS):
            yield node
            nodes.extend(ast.iter_child_nodes(node))


def count_branches(function: ast.AST) -> int:
    """The decisions of a function, plus one."""
    count = 1
    for node in walk_own_body(function):
        if isinstance(node, DECISIONS):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def is_nested(node: ast.AST) -> bool:
    """Whether a node is a comprehension with several loops, or with another one inside."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    inner = [child for child in ast.walk(node) if isinstance(child, COMPREHENSIONS)]
    return len(node.generators) > 1 or len(inner) > 1


def is_tuple_assignment(node: ast.AST) -> bool:
    """Whether a statement assigns several values at once, other than by swapping them."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    values = {ast.unparse(value) for value in node.value.elts}
    names = {ast.unparse(name) for name in target.elts}
    return values != names


def bound_name(node: ast.AST) -> str | None:
    """The name that a node binds, without underscores around it; None if it binds none."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id.strip("_")
    if isinstance(node, ast.arg):
        return node.arg.strip("_")
    return None


@dataclass
class Census:
    """What is counted over the package; `places` names where each counted kind is."""

    totals: Counter[str] = field(default_factory=Counter)
    packages: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    classes: Counter[str] = field(default_factory=Counter)

    def add(self, module: Module) -> None:
        """Count a module."""
        counts: Counter[str] = Counter(files=1)
        counts["tokens"], counts["code lines"] = count_tokens(module)
        counts["wide"] = sum(len(line) > LONG_LINE for line in module.source.split("\n"))
        if counts["code lines"] > LARGE_FILE:
            self.places["large"].append(f"{module.name} {counts['code lines']}")
        for node in ast.walk(module.tree):
            self._add_node(module, node, counts)
        self.classes.update(
            node.name for node in module.tree.body if isinstance(node, ast.ClassDef)
        )
        self.totals.update(counts)
        self.packages[module.package or "(root)"].update(counts)

    def _add_node(self, module: Module, node: ast.AST, counts: Counter[str]) -> None:
        place = f"{module.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.stmt):
            counts["statements"] += 1
        if is_nested(node):
            counts["nested"] += 1
            self.places["nested"].append(place)
        if is_tuple_assignment(node):
            counts["tuples"] += 1
            self.places["tuples"].append(place)
        if isinstance(node, FUNCTIONS) and count_branches(node) > MANY_BRANCHES:
            self.places["branchy"].append(f"{count_branches(node)} {module.name}.{node.name}")
        name = bound_name(node)
        if name is not None:
            counts["bound"] += 1
        if name in GENERIC_NAMES:
            counts["generic"] += 1
            self.places["generic"].append(f"{place} {name}")
        if isinstance(node, ast.Attribute) and node.attr == "_indexer":
            counts["indexer"] += module.package == "server"


def measure_density(census: Census) -> Figures:
    """The figures of size and density."""
    totals = census.totals
    densities = {
        name: counts["tokens"] / counts["statements"]
        for name, counts in census.packages.items()
        if counts["statements"] > SMALL_PACKAGE
    }
    statements = totals["statements"]
    return {
        "tokens": totals["tokens"],
        "tokens a statement": round(totals["tokens"] / statements, 2),
        "tokens a statement, densest package": round(max(densities.values()), 2),
        "lines over 100 columns": totals["wide"],
        "nested comprehensions, per 1,000 statements": round(
            1_000 * totals["nested"] / statements, 2
        ),
        "tuple assignments, per 1,000 statements": round(1_000 * totals["tuples"] / statements, 2),
        "functions over 15 branches": len(census.places["branchy"]),
        "generic names": round(totals["generic"] / totals["bound"], 4),
        "class names used twice": sum(number > 1 for number in census.classes.values()),
        "files over 700 code lines": len(census.places["large"]),
        "._indexer in server": totals["indexer"],
    }


# Imports


@dataclass
class Imports:
    """Which module needs which, and how: by an import, a string or an entry of a registry."""

    kinds: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, module: Module, modules: dict[str, Module]) -> None:
        """Note what a module needs of the package."""
        lazy = nodes_in_calls(module.tree, {"lazy_names"})
        quiet = nodes_in_calls(
            module.tree, {"getLogger", "files", "startswith", "missing_package"}
        ) | nodes_of_entry_points(module.tree)
        for node in ast.walk(module.tree):
            if id(node) in quiet:
                continue
            for target, kind in targets_of(node, modules, id(node) in lazy):
                resolved = resolve(target, modules)
                if resolved not in ("", "lazyrag", module.name):
                    self.kinds[module.name, resolved].add(kind)

    def dependencies(self) -> dict[str, set[str]]:
        """The modules that each module needs, other than by a registry."""
        needs: dict[str, set[str]] = defaultdict(set)
        for (source, target), kinds in self.kinds.items():
            if kinds & {"import", "string"}:
                needs[source].add(target)
        return needs


def nodes_in_calls(tree: ast.Module, functions: set[str]) -> set[int]:
    """The nodes inside calls of functions of these names."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    chosen = [call for call in calls if ast.unparse(call.func).split(".")[-1] in functions]
    inside: set[int] = set()
    for call in chosen:
        inside.update(id(node) for node in ast.walk(call))
    return inside


def nodes_of_entry_points(tree: ast.Module) -> set[int]:
    """The nodes of arguments that name a group of entry points."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "entry_point_group":
            inside.update(id(child) for child in ast.walk(node.value))
    return inside


def targets_of(node: ast.AST, modules: dict[str, Module], is_lazy: bool) -> list[tuple[str, str]]:
    """The modules that a statement or string names, with the kind of dependency."""
    if isinstance(node, ast.Import):
        return [(alias.name, "import") for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        return [(name if name in modules else node.module, "import") for name in names]
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return []
    if not re.fullmatch(r"lazyrag(\.\w+)+(:[\w.]+)?", node.value):
        return []
    module, _, attribute = node.value.partition(":")
    if is_lazy:
        return [(module, "lazy")]
    return [(module, "registry" if attribute else "string")]


def resolve(name: str, modules: dict[str, Module]) -> str:
    """The module that a dotted name is or is in; "" for another package's."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def is_upward(source: str, target: str) -> bool:
    """Whether a dependency points to the same or a higher layer of another package."""
    above = package_of(source)
    below = package_of(target)
    if above == below or above in ABOVE_LAYERS:
        return False
    if above not in RANKS or below not in RANKS:
        return False
    return RANKS[below] <= RANKS[above]


def unplaced_packages(modules: dict[str, Module]) -> list[str]:
    """The packages that no layer names."""
    packages = {module.package for module in modules.values()}
    return sorted(packages - set(RANKS) - ABOVE_LAYERS)


def find_circles(needs: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that need each other, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    circles: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for target in sorted(needs.get(module, ())):
            if target not in order:
                visit(target)
            if target in path:
                lowest[module] = min(lowest[module], lowest[target])
        if lowest[module] == order[module]:
            start = path.index(module)
            circle = sorted(path[start:])
            del path[start:]
            if len(circle) > 1:
                circles.append(circle)

    for module in sorted(needs):
        if module not in order:
            visit(module)
    return circles


def measure_imports(imports: Imports) -> tuple[Figures, dict[str, list[str]]]:
    """The figures of layers and circles, and where each is."""
    upward: list[str] = []
    registered: list[str] = []
    strings: list[str] = []
    for (source, target), kinds in sorted(imports.kinds.items()):
        edge = f"{source} -> {target}"
        if "string" in kinds:
            strings.append(edge)
        if not is_upward(source, target):
            continue
        if kinds & {"import", "string"}:
            upward.append(edge)
        else:
            registered.append(edge)
    circles = find_circles(imports.dependencies())
    figures: Figures = {
        "edges upward": len(upward),
        "registry entries upward": len(registered),
        "modules imported by a string": len(strings),
        "circles among modules": len(circles),
    }
    places = {
        "upward": upward,
        "registered upward": registered,
        "strings": strings,
        "circles": [" ".join(circle) for circle in circles],
    }
    return figures, places


# Calls


def count_calls(function: Callable[[], object]) -> tuple[int, int]:
    """Call a function; return how many modules of the package it goes through, and how many calls.

    Frames whose names begin with "<" are left out: whether a comprehension has a frame of its own
    depends on the version of Python.
    """
    inside = f"{PACKAGE}/"
    files: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_own = code.co_filename.startswith(inside) and not code.co_name.startswith("<")
        if event == "call" and is_own:
            files.append(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(set(files)), len(files)


SENTENCES = "green tea {}is brewed at eighty degrees. coffee is ground fine.\n"


def write_folder(folder: Path, texts: dict[str, str]) -> Path:
    """A new folder with a text file of each name."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def embed(text: str) -> list[float]:
    """A vector without a model."""
    return [float(len(text)), 1.0, float(text.count("e"))]


def store_file(path: Path) -> dict[str, Any]:
    """The `store_conf` of a store in a file."""
    return {"segment_store": {"type": "map", "kwargs": {"uri": str(path)}}}


def measure_calls(folder: Path) -> Figures:
    """The way of warm BM25 and hybrid queries, and of the ingestion of a file."""
    from lazyrag import Document, HybridRetriever, Retriever

    figures: Figures = {}

    def note(name: str, function: Callable[[], object]) -> None:
        modules, calls = count_calls(function)
        figures[f"{name}: modules"] = modules
        figures[f"{name}: calls"] = calls

    texts = {f"d{number}.txt": SENTENCES.format(f"number {number} ") * 20 for number in range(5)}
    dataset = write_folder(folder / "queries", texts)
    for place, conf in (("in memory", None), ("on file", store_file(folder / "queries.db"))):
        with Document(dataset, embed=embed, store_conf=conf) as docs:
            keyword = Retriever(docs, "FineChunk", "bm25", topk=3)
            hybrid = HybridRetriever.over(docs, "FineChunk")
            for query in ("x", "tea", "coffee"):
                keyword(query)
                hybrid(query)
            note(f"BM25 {place}", lambda keyword=keyword: keyword("tea degrees"))
            note(f"hybrid {place}", lambda hybrid=hybrid: hybrid("tea degrees"))
    with Document(dataset, store_conf=store_file(folder / "warm.db")) as docs:
        docs.activate_group("FineChunk")
    single = write_folder(folder / "single", {"a.txt": SENTENCES.format("") * 20})
    with Document(single, store_conf=store_file(folder / "single.db")) as docs:
        note("a .txt on file", lambda: docs.activate_group("FineChunk"))
    return figures


def measure_surface() -> Figures:
    """The size of what users see."""
    import lazyrag

    names = [name for name in dir(lazyrag.Document) if not name.startswith("_")]
    return {
        "names of Document": len(names),
        "parameters of Document": len(inspect.signature(lazyrag.Document.__init__).parameters) - 1,
        "names at the top level": len(lazyrag.__all__),
    }


# Tests


def documented_modules() -> set[str]:
    """The modules that pages and example scripts import."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "how-to").glob("*.md"),
    ]
    pages += (ROOT / "cookbook").glob("*.py")
    statement = re.compile(r"^\s*(?:from|import) (lazyrag[\w.]*)", re.MULTILINE)
    names: set[str] = set()
    for page in pages:
        names.update(statement.findall(page.read_text(encoding="utf-8")))
    return names


def imported_modules(tree: ast.Module, modules: dict[str, Module]) -> set[str]:
    """The modules of the package that a file imports, wherever the statement is."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(name for name, _ in targets_of(node, modules, is_lazy=False))
    return names & set(modules)


def measure_tests(modules: dict[str, Module]) -> Figures:
    """The share of the tests' lines in files that import only public modules."""
    public = documented_modules()
    public_lines = 0
    lines = 0
    for path in (ROOT / "tests").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        lines += source.count("\n")
        if imported_modules(ast.parse(source), modules) <= public:
            public_lines += source.count("\n")
    return {"test lines with public imports only": round(public_lines / lines, 4)}


def measure() -> tuple[Figures, dict[str, list[str]]]:
    """All figures of this checkout, and the places that they count."""
    modules = read_package()
    census = Census()
    imports = Imports()
    for module in modules.values():
        census.add(module)
        imports.add(module, modules)
    import_figures, import_places = measure_imports(imports)
    with tempfile.TemporaryDirectory() as folder:
        call_figures = measure_calls(Path(folder))
    figures = {
        **measure_density(census),
        "packages without a layer": len(unplaced_packages(modules)),
        **import_figures,
        **measure_surface(),
        **call_figures,
        **measure_tests(modules),
    }
    duplicates = [name for name, number in census.classes.items() if number > 1]
    places = {**census.places, **import_places, "class names used twice": duplicates}
    return figures, places
