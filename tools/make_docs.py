"""Write docs/registries.md, the list of all registered names, docs/api.md, the list of all public
names, and the tables of docs/formats.md and docs/service.md.

python tools/make_docs.py            rewrites the pages
python tools/make_docs.py --check    exits with status 1 if that would change it
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from format_table import FORMATS, Format

from lazyrag.generation.refiners import refiners
from lazyrag.loaders import loaders
from lazyrag.ranking.fusion import fusions
from lazyrag.registry import Registry
from lazyrag.retrieval import rerankers, similarities
from lazyrag.retrieval.similarity import indexes
from lazyrag.server.app import create_app
from lazyrag.server.core.service import Service
from lazyrag.stores.chroma import ChromaVectorStore
from lazyrag.stores.memory import MapSegmentStore, MapVectorStore
from lazyrag.stores.milvus import MilvusVectorStore
from lazyrag.stores.opensearch import OpenSearchSegmentStore
from lazyrag.stores.postgres import PostgresSegmentStore
from lazyrag.stores.protocol import Feature, Store, segment_stores, vector_stores
from lazyrag.stores.sqlite import MapFileSegmentStore, StoreFile
from lazyrag.stores.sqlite_vectors import MapFileVectorStore
from lazyrag.text.analyzers import analysers
from lazyrag.text.tokens import token_counters
from lazyrag.transforms import transforms

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "registries.md"
FORMATS_PAGE = ROOT / "docs" / "formats.md"
SERVICE_PAGE = ROOT / "docs" / "service.md"
API_PAGES = {
    ROOT / "docs" / "api.md": """\
# Python API

<!-- Written by tools/make_docs.py from the docstrings: change those, then run `make docs`. -->

After this page you know which module has which public name. Signatures, parameters and errors are
in the docstrings: `help(lazyrag.Document)`, your editor, and the site (`make site`), which has a page
for each module. [中文版](zh/api.md)
""",
    ROOT / "docs" / "zh" / "api.md": """\
# Python API

<!-- Written by tools/make_docs.py from the docstrings: change those, then run `make docs`. -->

读完本页，你知道每个公开的名字在哪个模块。
签名、参数和错误写在 docstring 里（英文）：`help(lazyrag.Document)`、编辑器，
以及网站（`make site`）上每个模块的页面。[English](../api.md)
""",
}
SPEEDS = ROOT / "benchmarks" / "formats.json"

INTRODUCTION = """\
# Registries

<!-- Written by tools/make_docs.py from the registries themselves: change those, then run `make docs`. -->

After this page you know every name that you can pass to lazyrag, and how to register your own. Registering an object
returns it unchanged. A taken name raises `AlreadyRegisteredError`, unless you pass `replace=True`. An unknown name is
an error that lists the known names and the nearest one. Packages add entries with entry points in the groups
below; these are imported on first use, and built-in names take precedence.

The tables list the built-in entries. Parameters are passed by keyword; `=` shows the default.
"""


@dataclass(frozen=True)
class Section:
    """One registry on the page.

    Args:
        title: Its heading.
        where: Module and attribute, for the reader.
        registry: The registry.
        enter: How an entry is made, as code.
        named: What it is named by and where the name is given, as Markdown.
        unwrap: From an entry to the class or function that documents it.
        skip: How many of its first parameters are not the user's to give.
        hidden: Parameters that the caller fills in.
    """

    title: str
    where: str
    registry: Registry[Any]
    enter: str
    named: str
    unwrap: Callable[[Any], Any] = lambda entry: entry
    skip: int = 0
    hidden: tuple[str, ...] = ()


SECTIONS = (
    Section(
        "Loaders",
        "lazyrag.loaders.loaders",
        loaders,
        '@register_loader(".log", ".motd")',
        "file suffixes, including the dot, ignoring case. A `Document` chooses the loader by a "
        "file's suffix. See [Write a loader](write-a-loader.md).",
    ),
    Section(
        "Transforms",
        "lazyrag.transforms.transforms",
        transforms,
        '@register_transform(name="my-splitter")',
        "`name=`, else the function's or class's own name. "
        'It goes into `create_node_group(..., transform="SentenceSplitter", **parameters)`.',
    ),
    Section(
        "Similarities",
        "lazyrag.retrieval.similarities",
        similarities,
        '@register_similarity(mode="text", batch=False, descend=True)',
        '`name=`, else the function\'s own name. It goes into `Retriever(..., similarity="bm25", **parameters)`.',
        unwrap=lambda entry: entry.func,
        skip=2,
    ),
    Section(
        "Indexes",
        "lazyrag.retrieval.similarity.indexes",
        indexes,
        'indexes.register("mine", function)',
        'the first argument. It goes into `Retriever(..., index="default")`; the function gets the similarity and its '
        "keywords and returns the search.",
        skip=2,
    ),
    Section(
        "Rerankers",
        "lazyrag.retrieval.rerankers",
        rerankers,
        "@register_reranker(batch=False)",
        '`name=`, else the function\'s own name. It goes into `Reranker("KeywordFilter", **parameters)`.',
        unwrap=lambda entry: entry.func,
        hidden=("nodes", "node", "query"),
    ),
    Section(
        "Refiners",
        "lazyrag.generation.refiners.refiners",
        refiners,
        "@register_refiner",
        '`name=`, else the function\'s own name. It goes into `Refiner("tree", **parameters)`. See '
        "[Operators](interop.md#refiners).",
        skip=2,
        hidden=("budget", "counter"),
    ),
    Section(
        "Segment stores",
        "lazyrag.stores.protocol.segment_stores",
        segment_stores,
        '@segment_stores.register("sqlite-demo")',
        'the first argument. It goes into `store_conf["segment_store"]["type"]`, the parameters into '
        "`kwargs` beside it. See [Write a store](write-a-store.md).",
    ),
    Section(
        "Vector stores",
        "lazyrag.stores.protocol.vector_stores",
        vector_stores,
        '@vector_stores.register("my-vectors")',
        'the first argument. It goes into `store_conf["vector_store"]["type"]`, the parameters into '
        "`kwargs` beside it. See [Write a store](write-a-store.md).",
    ),
    Section(
        "Analysers",
        "lazyrag.text.analyzers.analysers",
        analysers,
        'analysers.register("fr", Analyser("fr", french_terms))',
        "the first argument. An analyzer turns text into index terms: `bm25` uses `en`, `bm25_chinese` uses `zh`.",
        unwrap=lambda entry: entry.terms,
        skip=1,
    ),
    Section(
        "Token counters",
        "lazyrag.text.tokens.token_counters",
        token_counters,
        'token_counters.register("words", WordCounter())',
        'the first argument. It goes into `SentenceSplitter(counter="utf8")`.',
        unwrap=type,
    ),
    Section(
        "Fusions",
        "lazyrag.ranking.fusion.fusions",
        fusions,
        "@register_fusion",
        '`name=`, else the function\'s own name. It goes into `HybridRetriever(..., fusion_method="rrf")`; the entries '
        'can be called on your own rankings: `fusions["rrf"]([first, second], k=60)`.',
        unwrap=lambda entry: entry.func,
        skip=1,
    ),
)


MATRIX = """\
## Features of stores

The features that each store declares beyond the contract, by configuration. The contract and all features are tested on
real backends (`make test` and `make live`). `exact when small` applies up to 10,000 rows of a collection, or
`exact_rows`; Milvus with an approximate index is not `exact`; a Milvus server also declares `sparse`
from 2.4 on, and the vectors of a `map` store in a PostgreSQL with pgvector `native vectors`.

"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *map(section_text, SECTIONS), matrix()])


def matrix() -> str:
    """List which store declares which feature. Only the file of the map store is opened."""
    with tempfile.TemporaryDirectory() as folder, StoreFile(Path(folder, "store.db")) as file:
        stores: dict[str, Store] = {
            "segments: `map`": MapSegmentStore(),
            "segments: `map`, a file": MapFileSegmentStore(file),
            "segments: `map`, PostgreSQL": PostgresSegmentStore(file, ["en", "zh"]),
            "segments: `opensearch`": OpenSearchSegmentStore("localhost:9200"),
            "vectors: `map`": MapVectorStore(),
            "vectors: `map`, a file": MapFileVectorStore(file),
            "vectors: `chromadb`, a folder": ChromaVectorStore(dir="vectors"),
            "vectors: `chromadb`, a server": ChromaVectorStore("localhost:8000"),
            "vectors: `milvus`, a file": MilvusVectorStore("vectors.db"),
            "vectors: `milvus`, a server": MilvusVectorStore("localhost:19530"),
        }
        declared = {name: store.features for name, store in stores.items()}
    columns = [
        one for one in get_args(Feature) if any(one in features for features in declared.values())
    ]
    rows = [
        f"| {name} | "
        + " | ".join("yes" if column in features else "" for column in columns)
        + " |"
        for name, features in declared.items()
    ]
    return MATRIX + "\n".join(
        [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *rows, ""]
    )


def section_text(section: Section) -> str:
    """A registry's heading, how to add to it, and the table of what is built in."""
    # What other installed packages add through entry points is not ours to document.
    names = sorted(section.registry._entries)
    rows = [row(name, section.unwrap(section.registry[name]), section) for name in names]
    lines = [
        f"## {section.title}",
        "",
        f"- Registry: `{section.where}`, entry point group `{section.registry._entry_point_group}`",
        f"- Register your own: `{section.enter}`",
        f"- Name: {section.named}",
        "",
        "| name | what it is | parameters |",
        "|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def row(name: str, documented: Any, section: Section) -> str:
    """A built-in entry as a row of its table."""
    cells = [
        f"`{name}`",
        first_sentence(documented),
        parameters(documented, section.skip, section.hidden),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def first_sentence(documented: Any) -> str:
    """The first sentence of a docstring, its literals marked up for Markdown."""
    paragraph = " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())
    sentence = re.match(r".+?[.!?](?=\s|$)", paragraph)
    if sentence is None:
        msg = f"{documented!r} has no sentence for docs/registries.md. Write its docstring."
        raise ValueError(msg)
    return sentence[0].replace("``", "`")


def parameters(documented: Any, skip: int, hidden: tuple[str, ...]) -> str:
    """The parameters a user may give, as code, with their defaults."""
    shown = []
    for one in list(inspect.signature(documented).parameters.values())[skip:]:
        if one.name in hidden:
            continue
        if one.kind is one.VAR_KEYWORD:
            shown.append(f"`**{one.name}`")
        elif one.default is one.empty:
            shown.append(f"`{one.name}`, required")
        else:
            shown.append(f"`{one.name}={one.default!r}`")
    return "; ".join(shown) or "none"


def formats_table() -> str:
    """What is read of each format, and how fast beside others, as far as that was measured."""
    measured = (
        json.loads(SPEEDS.read_text(encoding="utf-8"))
        if SPEEDS.exists()
        else {"rows": [], "versions": {}}
    )
    figures = {(row["format"], row["engine"]): row for row in measured["rows"]}
    engines = list(dict.fromkeys(row["engine"] for row in measured["rows"]))
    heads = [
        "format",
        "suffixes",
        "library",
        "kept",
        "lost",
        *(f"{name}, MB/s" for name in engines),
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * 5 + "|---:" * len(engines) + "|"]
    for one in FORMATS:
        cells = [*described(one), *(speed(figures.get((one.name, name))) for name in engines)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if engines:
        versions = {
            f"{name} {number}"
            for found in measured["versions"].values()
            for name, number in found.items()
        }
        machine = measured["machine"]
        where = f"{machine['cpu']}, {machine['cores']} cores, {measured['time'][:10]}"
        packages = ", ".join(
            sorted(version for version in versions if not version.startswith("python "))
        )
        lines += ["", f"Measured by `{measured['command']}` on {where}; {packages}."]
    return "\n".join(lines)


def described(one: Format) -> list[str]:
    """A format's name, suffixes, library, what is kept and what is lost."""
    return [
        one.name,
        " ".join(f"`{suffix}`" for suffix in one.suffixes),
        one.library,
        one.kept,
        one.lost,
    ]


def speed(row: dict[str, Any] | None) -> str:
    """Megabytes a second, and how many of the files were read right if not all; "" where nothing
    was measured.
    """
    if row is None:
        return ""
    if not row["read"]:
        return f"none of {row['files']} read"
    shown = f"{row['MB_per_s']:.3g}"
    return (
        shown if row["read"] == row["files"] else f"{shown} ({row['read']} of {row['files']} read)"
    )


def routes_table() -> str:
    """The routes of the service by path, with the first sentence of each."""
    paths = create_app(Service({}, ROOT)).openapi()["paths"]
    lines = ["| route | does |", "|---|---|"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            does = (
                re.split(r"(?<=\.)\s", operation.get("description", ""))[0]
                .replace("``", "`")
                .replace("|", "\\|")
            )
            lines.append(f"| `{method.upper()} {path.removeprefix('/api/v1')}` | {does} |")
    return "\n".join(lines)


def api_index() -> str:
    """The public names by module, each with the first sentence of its docstring."""
    import site_api

    lines = []
    for module, names in site_api.public().items():
        there = importlib.import_module(module)
        lines += ["", f"## {module}", "", "| name | what it is |", "|---|---|"]
        for name in names:
            value = getattr(there, name)
            is_documented = inspect.isroutine(value) or inspect.isclass(value)
            about = first_sentence(value) if is_documented else f"A `{type(value).__name__}`."
            escaped = about.replace("|", "\\|")
            lines.append(f"| `{name}` | {escaped} |")
    return "\n".join([*lines, ""])


def with_table(path: Path, name: str, table: str) -> str:
    """A page with the table after a comment of that name anew."""
    before, mark, rest = path.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    return f"{before}{mark}{table}\n{end}{after}"


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit with 1 if the page is out of date",
    )
    checking = parser.parse_args().check
    pages = {PAGE: page()}
    for path, name, table in (
        (SERVICE_PAGE, "routes", routes_table),
        (FORMATS_PAGE, "formats", formats_table),
    ):
        if path.exists():
            pages[path] = with_table(path, name, table())
    if any(path.exists() for path in API_PAGES):
        index = api_index()
        pages |= {path: introduction + index for path, introduction in API_PAGES.items()}
    stale = {
        path: text
        for path, text in pages.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        if checking:
            print(f"{path.name} is out of date. Run: python tools/make_docs.py", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {path}")
    return 1 if stale and checking else 0


if __name__ == "__main__":
    sys.exit(main())
