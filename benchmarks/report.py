"""Write the tables of docs/performance.md, quality.md and proof.md from the files in build/bench; no
figure is typed.

    python benchmarks/report.py

Between ``<!-- lexical -->`` and ``<!-- end -->`` stands what this writes, and so for every
benchmark; a benchmark that was not run here keeps what stands there.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from results import FOLDER, figure, load

DOCS = Path(__file__).resolve().parents[1] / "docs"
LANGUAGES = {"en": "English", "zh": "Chinese"}
Run: TypeAlias = Mapping[str, Any]
Reach: TypeAlias = Callable[[Mapping[str, Mapping[str, Any]]], "float | None"]

BY_HAND = "written by hand, first answer"
HYBRID, FEEDBACK = "hybrid (default)", "hybrid + feedback 2"
CHAIN = "chain: feedback 2 + MaxSim 0.4"
PARTS_SYSTEMS = (
    "vector",
    "keyword",
    "hybrid, 50 each",
    HYBRID,
    "hybrid, 200 each",
    "hybrid + best sentence",
)
PARTS_SHOWN = "recall@1 recall@5 nDCG@10 file@1 file@5 quote@1 quote@5".split()
FIFTY, ALL_FIRST = "ceiling: the best 50, put right", "ceiling: all answers first"

BEST = (
    (
        "keyword: `bm25_chinese`",
        "bm25",
        "bm25_chinese",
        "keyword: bm25_chinese",
        ["keyword: bm25_chinese"],
    ),
    ("vector: `Retriever(docs, group)`", "vector", "vector, English model", "vector", ["vector"]),
    (
        "hybrid: `HybridRetriever.over`",
        HYBRID,
        f"{HYBRID}, English model",
        "hybrid",
        ["keyword: bm25_chinese", "vector"],
    ),
    (
        "chain: `RetrievalChain.over`",
        CHAIN,
        "",
        "hybrid + MaxSimReranker",
        ["keyword: bm25_chinese", "vector"],
    ),
)
"""By line: its name, the systems of English and Chinese sets, what a query and indexing cost."""
GOALS: Sequence[tuple[str, str, str, str]] = (
    ("Ingestion to the first BM25 answer, English: CPU, x by hand", "<= 1.5", "ingest-en", BY_HAND),
    (
        "the same, durable: CPU, x haystack in memory",
        "<= 0.77",
        "ingest-en",
        "haystack, first answer",
    ),
    ("the same, Chinese: CPU, x by hand", "<= 1.5", "ingest-zh", BY_HAND),
    ("the same, Chinese: peak MB", "<= 150", "ingest-zh", "peak_mb"),
    ("Splitting by a user's counter, English: CPU, x llama-index", "<= 1.2", "splitting", "en"),
    ("the same, Chinese", "<= 1.2", "splitting", "zh"),
    *(
        (
            f"BM25 in the index, {LANGUAGES[language]}, {size:,}: x {peer}",
            "<= 1",
            f"lexical-{language}-{size:08}",
            key,
        )
        for peer, key in (("tantivy", "tantivy"), ("bm25s with numba", "numba"))
        for language in LANGUAGES
        for size in (100_000, 1_000_000)
    ),
    (
        "BM25 through Retriever, 100,000: store file, x memory",
        "<= 1.3",
        "lexical-en-00100000",
        "file",
    ),
    ("Exact vector search, 100,000: x one read of the matrix", "<= 1", "dense-00100000", "reading"),
    ("the same, 1,000,000", "<= 1", "dense-01000000", "reading"),
    (
        "1,000 nodes by uid with their parents: ms a node",
        "<= 0.05",
        "stages-00100000",
        "with_parents",
    ),
    ("Two threads, BM25 Retriever: x the queries of one", ">= 1.6", "threads", "bm25 Retriever"),
    ("the same, vector Retriever", ">= 1.6", "threads", "vector Retriever"),
    ("the same, hybrid", ">= 1.6", "threads", "hybrid, weighted"),
    ("OnnxEmbedder, texts a second: x onnxruntime, batches as given", ">= 1.3", "embed", "plain"),
    ("MaxSim over 20 passages never seen: CPU ms", "<= 150", "late", "never seen"),
    ("the same, token vectors stored at ingestion", "<= 10", "late", "stored"),
    (
        "Exact search in Chroma, 10,000 rows in a folder: x its own search",
        "<= 3",
        "stores-chroma",
        "exact",
    ),
    ("the same, a Chroma server", "<= 3", "stores-chroma-server", "exact"),
    ("the same, a file of Milvus Lite, 2,000 rows", "<= 3", "stores-milvus-lite", "exact"),
    (
        "`from lazyrag import Document, Retriever`: CPU ms",
        "<= 200",
        "start",
        "from lazyrag import Document, Retriever",
    ),
    (
        "New process to the first answer, 100,000 nodes: CPU ms",
        "<= 300",
        "growth",
        "first answer, 100000",
    ),
    (
        "Watching 2,000 files, a saved file to the query that finds it: s",
        "<= 0.4",
        "watch",
        "lone_s",
    ),
    ("the same, 200 files at once: syncs", "<= 2", "watch", "syncs"),
    ("Disk, bytes a byte of text with its vectors", "<= 2.5", "disk", "per_byte"),
)
"""By line: what, the goal, the file of its run and its name there."""
BEST_MEASURES = {
    "cranfield": "nDCG@10",
    "xquad-en": "recall@1",
    "xquad-zh": "recall@1",
    "cmrc-zh": "recall@1",
}


def markdown(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A table; the first column is text, the others are figures."""
    rows = [[figure(cell) for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(head), rule, *rows])


def provenance(runs: Sequence[Run]) -> str:
    """The machines they ran on; then for each run its command, its commit and what the machine was
    like then.
    """
    machines = {
        f"{one['cpu']}, {one['cores']} cores, {one['memory_gb']:g} GiB; Python {one['python']}, numpy {one['numpy']}, "
        f"SQLite {one['sqlite']}."
        for one in (run["machine"] for run in runs)
    }
    lines = {}
    for run in runs:
        one, read = run["machine"], run["machine"]["read_gb_per_s"]
        line = (
            f"- `{run['command']}`: {run['time'][:10]}, commit {one['commit']}; load at its end {one['load']:g}, "
            f"one thread read {read['1 thread']} GB/s, two {read['2 threads']}"
        )
        # A run of several sizes or languages has several files.
        lines.setdefault((run["command"], one["commit"]), line)
    return "\n".join([*sorted(machines), "", *lines.values()])


def versions(runs: Sequence[Run]) -> str:
    """The versions of all engines, once each."""
    found = {
        f"{package} {version}"
        for run in runs
        for one in [
            *run.get("versions", {}).values(),
            *(row.get("versions", {}) for row in run["rows"]),
        ]
        for package, version in one.items()
        if package != "python"
    }
    left_out = {
        f"{name} was left out: {reason.splitlines()[-1]}"
        for run in runs
        for name, reason in run["left_out"].items()
    }
    return (
        "Versions: "
        + ", ".join(sorted(found))
        + "."
        + "".join(f"\n{line}." for line in sorted(left_out))
    )


def goals(runs: Sequence[Run]) -> str:
    """What was reached of each goal."""
    lines = []
    for what, goal, file, name in GOALS:
        for run in load(file, exact=True):
            if spread := run.get("goals", {}).get(name):
                median, least, most = map(figure, spread)
                lines.append(
                    [
                        what,
                        goal,
                        median,
                        "" if least == most else f"{least} to {most}",
                        _met(goal, spread[0]),
                    ]
                )
    english, chinese = (
        [run for run in load(f"ingest-{one}", exact=True) if "goals" in run] for one in LANGUAGES
    )
    for a, b in zip(english, chinese, strict=False):  # as many bytes
        x = b["goals"]["cpu_s"][0] / b["bytes"] / (a["goals"]["cpu_s"][0] / a["bytes"])
        lines.insert(
            2,
            [
                "the same, Chinese: CPU per byte of text, x English",
                "<= 2",
                figure(x),
                "",
                _met("<= 2", x),
            ],
        )
    return markdown(["what", "goal", "median", "least to most of the rounds", "met"], lines)


def _met(goal: str, value: float) -> str:
    sign, bound = goal.split()
    return "yes" if (value <= float(bound) if sign == "<=" else value >= float(bound)) else "no"


def lexical(runs: Sequence[Run]) -> str:
    """For each language the medians and 95th percentiles by size, then memory and the times of
    changes.
    """
    pieces = []
    for language, title in LANGUAGES.items():
        own = by_size(run for run in runs if run["rows"][0]["language"] == language)
        if not own:
            continue
        labels = "; ".join(f"{run['rows'][0]['nodes']:,}: {run['rows'][0]['text']}" for run in own)
        pieces.append(f"{title}, p50 / p95 in ms, top 10 ({labels})")
        pieces.append(beside(own, lambda row: f"{figure(row['p50_ms'])} / {figure(row['p95_ms'])}"))
        pieces.append(f"{title}, bytes a node beyond an empty process; seconds to build from terms")
        pieces.append(
            beside(
                own,
                lambda row: (
                    f"{figure(row.get('bytes_per_node'))}; {figure(row['build_s'])}"
                    if "build_s" in row
                    else None
                ),
            )
        )
        changes = [[f"{run['rows'][0]['nodes']:,}", *run["change"].values()] for run in own]
        pieces.append(
            f"{title}, ours: ms to add 100 nodes, of the first query after it, to delete 100"
        )
        pieces.append(markdown(["nodes", "add 100", "first query", "delete 100"], changes))
    return "\n\n".join([*pieces, versions(runs), provenance(runs)])


def dense(runs: Sequence[Run]) -> str:
    """The medians, and beside them the time of reading, for each size."""
    own = by_size(runs)
    columns = {
        "p50_ms": "p50, ms",
        "p95_ms": "p95, ms",
        "x_reading": "x reading",
        "batch_ms": "in a batch, ms",
        "x_batch": "x alone",
        "recall": "recall",
        "share_read": "share read",
        "build_s": "build, s",
        "memory_mb": "MB",
    }
    pieces = []
    for run in own:
        pieces.append(f"{run['rows'][0]['nodes']:,} vectors ({run['rows'][0]['vectors']})")
        lines = [[row["engine"], *(row.get(name) for name in columns)] for row in run["rows"]]
        pieces.append(markdown(["engine", *columns.values()], lines))
    return "\n\n".join([*pieces, versions(own), provenance(own)])


def ingest(runs: Sequence[Run]) -> str:
    """Seconds and memory of each framework."""
    columns = {
        "seconds": "s",
        "x": "x ours",
        "cpu_s": "CPU s",
        "MB_per_s": "MB/s",
        "nodes": "nodes",
        "nodes_per_s": "nodes/s",
        "peak_mb": "peak MB",
        "imports_mb": "of imports",
        "stored_mb": "stored MB",
        "keeps": "keeps",
    }
    pieces = []
    for run in runs:
        pieces.append(f"{LANGUAGES[run['rows'][0]['language']]}, {run['bytes'] / 1e6:.1f} MB")
        lines = [
            [f"{row['engine']}, {row['files']:,} files", *(row.get(one) for one in columns)]
            for row in run["rows"]
        ]
        pieces.append(markdown(["engine", *columns.values()], lines))
    return "\n\n".join([*pieces, versions(runs), provenance(runs)])


def incremental(runs: Sequence[Run]) -> str:
    """What each step embeds again, and its processor seconds."""
    pieces = []
    for run in runs:
        of = {(row["step"], row["engine"]): row for row in run["rows"]}
        steps, engines = (list(dict.fromkeys(names)) for names in zip(*of, strict=True))
        pieces.append(
            f"{run['files']:,} files, {run['chunks']:,} chunks: texts embedded; CPU s, median (least to most), "
            f"runs of all steps: {run['repeats']}"
        )
        lines = [[step, *(_embedded(of[step, engine]) for engine in engines)] for step in steps]
        pieces.append(markdown(["step", *engines], lines))
    return "\n\n".join([*pieces, versions(runs), provenance(runs)])


def _embedded(row: Mapping[str, Any]) -> str:
    seconds = f"{row['cpu_s']:.2f} ({row['least_cpu_s']:.2f} to {row['most_cpu_s']:.2f})"
    return f"{row['texts']:,}; {seconds}" + ("" if row["right"] else ", **stale**")


def growth(runs: Sequence[Run]) -> str:
    """Each figure by size, and the exponents."""
    from growth import FIGURES  # it imports lazyrag, which the other tables do not need

    pieces = []
    for run in runs:
        lines = [[f"{row['nodes']:,}", *(row[name] for name in FIGURES)] for row in run["rows"]]
        for label, exponents in run["exponents"].items():
            lines.append([label, *exponents.values()])
        pieces.append(markdown(["nodes", *FIGURES.values()], lines))
    return "\n\n".join([*pieces, provenance(runs)])


def stores(runs: Sequence[Run]) -> str:
    """What each store takes beside its bare client."""
    columns = {
        "bare_ms": "bare client, ms",
        "ours_ms": "ours, ms",
        "x": "x bare",
        "same": "same keys",
    }
    lines = [
        [
            f"{row['store']}, {row['nodes']:,} rows: {row['what'].replace('_', ', ')}",
            *(row.get(one) for one in columns),
        ]
        for run in runs
        for row in run["rows"]
    ]
    return "\n\n".join(
        [markdown(["store", *columns.values()], lines), versions(runs), provenance(runs)]
    )


def pdf(runs: Sequence[Run]) -> str:
    """What each reader gets right of the shared PDFs, and its speed."""
    names = ["strings", "order", "rows", "words", "radicals", "errors", "silent"]
    columns = dict.fromkeys(names) | {"pages_per_s": "pages/s", "MB_per_s": "MB/s"}
    pieces = []
    for run in runs:
        lines = [[row["engine"], *(row[one] for one in columns)] for row in run["rows"]]
        pieces.append(
            markdown(["reader", *(shown or name for name, shown in columns.items())], lines)
        )
        files = run["rows"][0]["files"]
        pieces.append("Pages a second of each file")
        each = [
            [
                f"{one['file']} ({one['pages']})",
                *(row["files"][at]["pages_per_s"] for row in run["rows"]),
            ]
            for at, one in enumerate(files)
        ]
        pieces.append(markdown(["file (pages)", *(row["engine"] for row in run["rows"])], each))
    return "\n\n".join([*pieces, versions(runs), provenance(runs)])


def stages(runs: Sequence[Run]) -> str:
    """What each stage of a question takes, at each size."""
    columns = {"p50_ms": "p50, ms", "p95_ms": "p95, ms", "p99_ms": "p99, ms"}
    pieces = []
    for run in by_size(runs):
        asked = f"{run['questions']} questions, {run['rounds']} rounds"
        pieces.append(f"{run['rows'][0]['nodes']:,} nodes ({run['vectors']}); {asked}")
        lines = [[row["stage"], *(row[one] for one in columns)] for row in run["rows"]]
        pieces.append(markdown(["stage", *columns.values()], lines))
    return "\n\n".join([*pieces, provenance(runs)])


def answer(runs: Sequence[Run]) -> str:
    """What a question takes end to end, at each size, but for the chat model; answers a second;
    memory.
    """
    columns = {"p50_ms": "p50, ms", "p95_ms": "p95, ms", "p99_ms": "p99, ms"}
    pieces = []
    for run in by_size(runs):
        asked = f"{run['questions']} questions, {run['rounds']} rounds"
        pieces.append(f"{run['rows'][0]['nodes']:,} nodes; {asked}")
        pieces.append(
            markdown(
                ["asked", *columns.values()],
                [[row["asked"], *(row[one] for one in columns)] for row in run["rows"]],
            )
        )
        pieces.append(
            f"{run['per_second']:.0f} answers a second, {run['at_once']} questions at once. A process that opens the "
            f"file and answers takes {run['most_mb']:.0f} MB, {run['imported_mb']:.0f} MB of them after the import."
        )
    return "\n\n".join([*pieces, provenance(runs)])


def start(runs: Sequence[Run]) -> str:
    """How long programs take to start."""
    head = ["program", "ms", "CPU ms"]
    lines = [
        (f"`{row['program']}`", row["ms"], row["cpu_ms"]) for run in runs for row in run["rows"]
    ]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


def late(runs: Sequence[Run]) -> str:
    """Processor time of late interaction."""
    pieces = []
    for run in runs:
        pieces.append(
            f"{run['passages']} passages, {run['tokens']:.0f} tokens each; CPU ms, {run['rounds']} rounds"
        )
        lines = [[row["what"], row["cpu_ms"], row["least"], row["most"]] for row in run["rows"]]
        pieces.append(markdown(["what", "median", "least", "most"], lines))
    return "\n\n".join([*pieces, provenance(runs)])


def threads(runs: Sequence[Run]) -> str:
    """What two threads answer beside one."""
    pieces = []
    for run in runs:
        columns = {
            "queries_s": "queries/s",
            "cpu_ms": "CPU ms a query",
            "processors": "cores used",
            "x": "x",
        }
        lines = [
            [
                f"{row['stage']}, {row['threads']} thread{'s' * (row['threads'] > 1)}",
                *(row[one] for one in columns),
            ]
            for row in run["rows"]
        ]
        pieces.append(f"{run['nodes']:,} nodes; the best of {run['rounds']} rounds")
        pieces.append(markdown(["retriever", *columns.values()], lines))
    return "\n\n".join([*pieces, provenance(runs)])


def watch(runs: Sequence[Run]) -> str:
    """How soon a watching program finds what was saved."""
    head = [
        "files",
        "a lone save, s",
        "200 files at once, s",
        "syncs for them",
        "CPU s a second without changes",
    ]
    lines = [
        [f"{row['files']:,}", row["lone_s"], row["burst_s"], row["syncs"], row["idle_s"]]
        for run in runs
        for row in run["rows"]
    ]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


def disk(runs: Sequence[Run]) -> str:
    """What lies on the disk for a byte of text."""
    pieces = []
    for run in runs:
        pieces.append(
            f"{run['raw'] / 1e6:.1f} MB of text, {run['chunks']:,} chunks; the numbers of their vectors alone are "
            f"{run['vectors']:.2f} bytes a byte of text"
        )
        lines = [[row["part"], row["bytes"], row["per_byte"]] for row in run["rows"]]
        lines.append(
            [
                "all files",
                round(run["goals"]["per_byte"][0] * run["raw"]),
                run["goals"]["per_byte"][0],
            ]
        )
        pieces.append(markdown(["part", "bytes", "a byte of text"], lines))
    return "\n\n".join([*pieces, provenance(runs)])


def splitting(runs: Sequence[Run]) -> str:
    """Splitters that count by a function of the user."""
    columns = {
        "cpu_s": "CPU s",
        "characters_s": "characters/s",
        "chunks": "chunks",
        "largest": "tokens of the largest",
    }
    lines = [[row["engine"], *(row[one] for one in columns)] for run in runs for row in run["rows"]]
    return "\n\n".join(
        [markdown(["splitter", *columns.values()], lines), versions(runs), provenance(runs)]
    )


def defaults(runs: Sequence[Run]) -> str:
    """What a question takes by the default of pipelines and by what reranks, with a real embedding
    model.
    """
    columns = {"p50_ms": "p50, ms", "p95_ms": "p95, ms", "p99_ms": "p99, ms", "cpu_s": "CPU s"}
    pieces = []
    for run in runs:
        pieces.append(f"{run['texts']:,} texts; {run['questions']} questions, each once")
        lines = [[f"`{row['asked']}`", *(row[one] for one in columns)] for row in run["rows"]]
        pieces.append(markdown(["asked", *columns.values()], lines))
    return "\n\n".join([*pieces, provenance(runs)])


def halves(runs: Sequence[Run]) -> str:
    """What is recalled of each half of the questions, and how much more than by vector search."""
    lines = []
    for run in runs:
        of = {(row["half"], row["system"]): row for row in run["rows"]}
        for measure in ("recall@5", "recall@1"):
            for half in ("even", "odd"):
                base, *others = (of[half, system][measure] for system in ("vector", HYBRID, CHAIN))
                cells = [f"{value:.4f} ({value / base - 1:+.1%})" for value in others]
                title = f"{run['rows'][0]['set']}, {measure}, {half}"
                lines.append([title, str(of[half, "vector"]["questions"]), f"{base:.4f}", *cells])
    head = ["set, measure, half", "questions", "vector", "hybrid", "chain"]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


def parts(runs: Sequence[Run]) -> str:
    """The hybrid beside what it fuses, for each half of the questions."""
    lines = []
    for run in runs:
        of = {(row["half"], row["system"]): row for row in run["rows"]}
        systems = list(dict.fromkeys(system for _, system in of))
        measures = [one for one in run["rows"][0] if one in PARTS_SHOWN]
        for measure in measures:
            for half in ("even", "odd"):
                cells = [
                    f"{of[half, one][measure]:.4f}" if one in systems else ""
                    for one in PARTS_SYSTEMS
                ]
                apart = of[half, HYBRID][measure] - max(
                    of[half, one][measure] for one in PARTS_SYSTEMS[:2]
                )
                title = f"{run['rows'][0]['set']}, {measure}, {half}"
                lines.append([title, str(of[half, HYBRID]["questions"]), *cells, f"{apart:+.4f}"])
    head = ["set, measure, half", "questions", *PARTS_SYSTEMS, "hybrid less its best part"]
    return "\n\n".join([worst(runs), markdown(head, lines), provenance(runs)])


def worst(runs: Sequence[Run]) -> str:
    """For each set the measure in which the hybrid is the farthest below the better of what it
    fuses, all questions.
    """
    lines = []
    for run in runs:
        of = {row["system"]: row for row in run["rows"] if row["half"] == "all"}
        best = {
            one: max(of[part][one] for part in PARTS_SYSTEMS[:2])
            for one in of[HYBRID]
            if one in PARTS_SHOWN
        }
        least = min(best, key=lambda one: of[HYBRID][one] - best[one])
        apart = of[HYBRID][least] - best[least]
        cells = [
            f"{best[least]:.4f}",
            f"{of[HYBRID][least]:.4f}",
            f"{apart:+.4f}",
            "yes" if apart >= -0.005 else "no",
        ]
        lines.append([run["rows"][0]["set"], str(of[HYBRID]["questions"]), least, *cells])
    head = [
        "set",
        "questions",
        "worst measure",
        "better part",
        "hybrid",
        "difference",
        "at least -.005",
    ]
    return markdown(head, lines)


def claims(runs: Sequence[Run]) -> str:
    """For each set what the hybrid and the chain gain over vector search, and the hybrid over
    keyword search.
    """
    chains = {
        run["rows"][0]["set"]: row
        for run in load("quality")
        for row in run["rows"]
        if row["system"] == CHAIN
    }
    chains |= {
        row["set"]: row
        for run in load("documentation")
        for row in run["rows"]
        if row["search"] == "chain"
    }
    lines = []
    for run in runs:
        of = {row["system"]: row for row in run["rows"] if row["half"] == "all"}
        name = run["rows"][0]["set"]
        chain = chains.get(name)
        for rank, asked in ((5, "+15 %"), (1, "+20 %")):
            measure = next(
                f"{one}@{rank}" for one in ("recall", "quote") if f"{one}@{rank}" in of[HYBRID]
            )
            vector, keyword, hybrid = (of[one][measure] for one in ("vector", "keyword", HYBRID))
            gains = [
                hybrid / vector - 1,
                None if chain is None else chain[measure] / vector - 1,
                hybrid / keyword - 1,
            ]
            cells = ["" if one is None else f"{one:+.1%}" for one in gains]
            lines.append([f"{name}, {measure}", asked, f"{vector:.4f}", f"{keyword:.4f}", *cells])
    head = [
        "set, measure",
        "expected",
        "vector",
        "keyword",
        "hybrid over vector",
        "chain over vector",
    ]
    return markdown([*head, "hybrid over keyword"], lines)


def quality(runs: Sequence[Run]) -> str:
    """Each set's systems by measure, and their difference from the first one."""
    pieces = []
    for run in runs:
        rows = run["rows"]
        measures = [name for name in rows[0] if "@" in name]
        head = f"{rows[0]['set']}: {rows[0]['questions']:,} questions, {run['texts']:,} texts"
        lines = []
        for row in rows:
            apart = [f"{row['difference']:+.4f}", f"{row['low']:+.4f} to {row['high']:+.4f}"]
            lines.append(
                [
                    row["system"],
                    *(f"{row[name]:.4f}" for name in measures),
                    *apart,
                    _probability(row["p"]),
                ]
            )
        lines[0][-3:] = ["", "", ""]
        pieces += [f"### {head}", markdown(["system", *measures, "difference", "95 %", "p"], lines)]
    return "\n\n".join([*pieces, provenance(runs)])


def targets(runs: Sequence[Run]) -> str:
    """Required values and what the default reaches; a line for each measured one."""
    of = {run["rows"][0]["set"]: {row["system"]: row for row in run["rows"]} for run in runs}
    lines = [
        [*line, f"{reached:{how}}"]
        for line, name, reach, how in (
            (
                ["Cranfield, nDCG@10", ".425 (weighted; + MaxSim)"],
                "cranfield",
                _of(CHAIN, "nDCG@10"),
                ".4f",
            ),
            (["XQuAD en, recall@1", ".957 (+ MaxSim)"], "xquad-en", _of(CHAIN, "recall@1"), ".4f"),
            (
                ["Cranfield, recall@5 of hybrid over vector", "+15 %"],
                "cranfield",
                _over(HYBRID, "recall@5"),
                "+.1%",
            ),
            (
                ["the same of hybrid + feedback", "+15 %"],
                "cranfield",
                _over(FEEDBACK, "recall@5"),
                "+.1%",
            ),
            (["the same of the chain", "+15 %"], "cranfield", _over(CHAIN, "recall@5"), "+.1%"),
            (
                ["pool, XQuAD en: recall@1 over vector", "+20 %"],
                "xquad-en, pool",
                _over(CHAIN, "recall@1"),
                "+.1%",
            ),
            (
                ["its ceiling: every answer first", ""],
                "xquad-en, pool",
                _over(ALL_FIRST, "recall@1"),
                "+.1%",
            ),
            (
                ["pool, Cranfield: recall@1 over vector", "+20 %"],
                "cranfield, pool",
                _over(CHAIN, "recall@1"),
                "+.1%",
            ),
            (
                ["its ceiling for rerankers of fifty", ""],
                "cranfield, pool",
                _over(FIFTY, "recall@1"),
                "+.1%",
            ),
        )
        if name in of and (reached := reach(of[name])) is not None
    ]
    if {"xquad-en", "xquad-zh"} <= of.keys():
        apart = 100 * (
            of["xquad-zh"]["bm25_chinese"]["recall@1"] - of["xquad-en"]["bm25"]["recall@1"]
        )
        lines.append(
            [
                "XQuAD, recall@1: bm25_chinese on zh less bm25 on en, points",
                "at least -2",
                f"{apart:+.1f}",
            ]
        )
    return markdown(["what", "required", "reached"], lines)


def documentation(runs: Sequence[Run]) -> str:
    """Choices of chunks and fields, on the questions about documentation trees."""
    rows = runs[0]["rows"]
    head = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[two_digits(row.get(name)) for name in head] for row in rows]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


def two_digits(value: Any) -> Any:
    """A share with two digits; other values as they are."""
    return f"{value:.2f}" if isinstance(value, float) else value


def best(runs: Sequence[Run]) -> str:
    """What each choice finds on each set, and what it costs."""
    [cost] = load("cost")
    found = {run["rows"][0]["set"]: {row["system"]: row for row in run["rows"]} for run in runs}
    ms = {row["query"]: row["median_cpu_ms"] for row in cost["rows"] if "query" in row}
    indexing = {row["index"]: row["cpu_s_per_1000"] for row in cost["rows"] if "index" in row}
    lines = []
    for label, english, chinese, query, steps in BEST:
        rows = [
            (found.get(name, {}).get(chinese if "zh" in name else english), BEST_MEASURES[name])
            for name in BEST_MEASURES
        ]
        cells = ["" if row is None else f"{row[measure]:.3f}" for row, measure in rows]
        lines.append([label, *cells, ms[query], sum(indexing[step] for step in steps)])
    head = ["search", *(f"{name}, {measure}" for name, measure in BEST_MEASURES.items())]
    table = markdown([*head, "CPU ms per query", "CPU s to index 1,000 chunks"], lines)
    return "\n\n".join([table, provenance([cost])])


def gates(runs: Sequence[Run]) -> str:
    """What a rule gains over the default, on the half that chose it and the other; and the same
    without the rule.
    """
    [run] = runs
    pieces = []
    for rule in dict.fromkeys(row["rule"] for row in run["rows"]):
        pieces.append(f"The rule chosen on the even halves: {rule}.")
        figures = ("even", "odd", "always_even", "always_odd")
        lines = [
            [f"{row['set']}, {row['measure']}", *(f"{row[one]:+.4f}" for one in figures)]
            for row in run["rows"]
            if row["rule"] == rule
        ]
        pieces.append(
            markdown(
                ["difference from the default", "even", "odd", "always, even", "always, odd"], lines
            )
        )
    return "\n\n".join([*pieces, provenance(runs)])


def near_duplicates(runs: Sequence[Run]) -> str:
    """What is found of edited copies, and the time."""
    [run] = runs
    found = [name for name in run["rows"][0] if name.startswith("found_")]
    head = ["edit", "copies", "median similarity", *(f"found at {one[6:]}" for one in found)]
    due = [f"of pairs above {one[6:]}" for one in found]
    others = [f"other pairs, {one[6:]}" for one in found]
    lines = [
        [
            f"{LANGUAGES[row['language']]}: {row['edit']}",
            str(row["copies"]),
            f"{row['similarity']:.3f}",
            *(f"{row[one]:.3f}" for one in found),
            *(
                "" if (of := row[one.replace("found", "of_due")]) is None else f"{of:.3f}"
                for one in found
            ),
            *(str(row[one.replace("found", "others")]) for one in found),
        ]
        for row in run["rows"]
    ]
    timed = run["timed"]
    cost = (
        f"{timed['passages']:,} passages of {timed['characters']:,} characters in memory, one in fifty a copy: "
        f"{timed['cpu_s']:.1f} s of processor time, {timed['clusters']:,} clusters."
    )
    return "\n\n".join([markdown([*head, *due, *others], lines), cost, provenance(runs)])


def hybrids(runs: Sequence[Run]) -> str:
    """Our hybrid and chain beside the hybrids of others, one column for each set."""
    names = [run["rows"][0]["set"] for run in runs]
    measures = ("recall@1", "recall@5", "nDCG@10")
    by_system: dict[str, dict[str, Any]] = {}
    for run in runs:
        for row in run["rows"]:
            by_system.setdefault(row["system"], {})[row["set"]] = row
    lines = [
        [system, *(three(of.get(name), measures) for name in names)]
        for system, of in by_system.items()
    ]
    head = ["system", *(f"{name}: {' / '.join(measures)}" for name in names)]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


def three(row: Mapping[str, Any] | None, measures: Sequence[str]) -> str:
    """Some measures of a row in one cell; nothing without a row."""
    return "" if row is None else " / ".join(f"{row[name]:.3f}" for name in measures)


def codebases(runs: Sequence[Run]) -> str:
    """Which chunks of code are found, by half."""
    measures = ("Pass@5", "Pass@10", "Pass@20")
    of = {(row["files"], row["search"], row["half"]): row for row in runs[0]["rows"]}
    lines = [
        [f"{files}, {search}", *(three(of[files, search, half], measures) for half in HALVES)]
        for files, search in dict.fromkeys((files, search) for files, search, _ in of)
    ]
    head = ["files, search", *(f"{half}: {' / '.join(measures)}" for half in HALVES)]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


HALVES = ("all", "even", "odd")


def fields(runs: Sequence[Run]) -> str:
    """Whether the right filing and its page are found."""
    rows = [row for row in runs[0]["rows"] if row["set"] == "financebench"]
    lines = [
        [
            row["infer_filters"],
            *(three(row, [name, f"{name} first", f"{name} second"]) for name in MEASURES_OF_PAGES),
        ]
        for row in rows
    ]
    head = ["infer_filters", *(f"{name}: all / first / second half" for name in MEASURES_OF_PAGES)]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


MEASURES_OF_PAGES = ("document@1", "document@5", "page@5")


def languages(runs: Sequence[Run]) -> str:
    """Questions in another language than the texts."""
    of = {(row["set"], row["system"]): row for row in runs[0]["rows"]}
    systems = list(dict.fromkeys(system for _, system in of))
    lines = [
        [name, *(three(of[name, system], ["recall@1", "recall@5"]) for system in systems)]
        for name in dict.fromkeys(name for name, _ in of)
    ]
    head = ["questions -> texts", *(f"{system}: recall@1 / @5" for system in systems)]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


def recall(runs: Sequence[Run]) -> str:
    """Keyword search in each language."""
    lines = [
        [row["set"], row["similarity"], f"{row['recall@1']:.3f}", f"{row['recall@5']:.3f}"]
        for row in runs[0]["rows"]
    ]
    head = ["set", "similarity", "recall@1", "recall@5"]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


def cost(runs: Sequence[Run]) -> str:
    """What a query costs, and to index 1,000 chunks."""
    rows = runs[0]["rows"]
    queries = [[row["query"], row["median_cpu_ms"]] for row in rows if "query" in row]
    indexes = [[row["index"], row["cpu_s_per_1000"]] for row in rows if "index" in row]
    return "\n\n".join(
        [
            markdown(["query", "CPU ms"], queries),
            markdown(["index", "CPU s for 1,000 chunks"], indexes),
            provenance(runs),
        ]
    )


def compare(runs: Sequence[Run]) -> str:
    """Queries of two commits side by side."""
    lines = [
        [row["figure"], f"{row['before_ms']:.2f}", f"{row['now_ms']:.2f}", f"{row['ratio']:.2f}"]
        for row in runs[0]["rows"]
    ]
    head = ["query", "before, ms", "now, ms", "ratio"]
    return "\n\n".join([markdown(head, lines), provenance(runs)])


def _of(system: str, measure: str) -> Reach:
    return lambda rows: rows[system][measure] if system in rows else None


def _over(system: str, measure: str) -> Reach:
    return lambda rows: (
        rows[system][measure] / rows["vector"][measure] - 1 if system in rows else None
    )


def _probability(p: float | None) -> str:
    return "" if p is None else "< .001" if p < 0.001 else f"{p:.3f}"


def by_size(runs: Iterable[Run]) -> list[Run]:
    """Runs, the smallest first."""
    return sorted(runs, key=lambda run: int(run["rows"][0]["nodes"]))


def beside(runs: Sequence[Run], cell: Callable[[Run], str | None]) -> str:
    """A line for each engine, a column for each run."""
    engines = dict.fromkeys(row["engine"] for run in reversed(runs) for row in run["rows"])
    of = [{row["engine"]: cell(row) for row in run["rows"]} for run in runs]
    lines = [[engine, *(own.get(engine) for own in of)] for engine in engines]
    head = ["engine", *(f"{run['rows'][0]['nodes']:,}" for run in runs)]
    return markdown(head, [line for line in lines if any(line[1:])])


Tables: TypeAlias = dict[str, Callable[[Sequence[Run]], str]]
PERFORMANCE: Tables = {
    "goals": goals,
    "lexical": lexical,
    "dense": dense,
    "ingest": ingest,
    "incremental": incremental,
    "growth": growth,
    "stores": stores,
    "pdf": pdf,
    "stages": stages,
    "answer": answer,
    "defaults": defaults,
    "late": late,
    "threads": threads,
    "start": start,
    "watch": watch,
    "disk": disk,
    "splitting": splitting,
}
SOURCES = {"best": "quality", "targets": "quality", "claims": "parts", "goals": "*"}
"""Of tables that have no runs of their own: which they read."""
PAGES: dict[str, Tables] = {
    "performance.md": PERFORMANCE,
    "quality.md": {
        "best": best,
        "targets": targets,
        "claims": claims,
        "halves": halves,
        "parts": parts,
        "gates": gates,
        "documentation": documentation,
        "near_duplicates": near_duplicates,
        "quality": quality,
    },
    "proof.md": {
        "hybrids": hybrids,
        "codebases": codebases,
        "fields": fields,
        "languages": languages,
        "recall": recall,
        "documentation": documentation,
        "cost": cost,
        "compare": compare,
    },
}


def filled(page: str, tables: Mapping[str, str]) -> str:
    """The page with new tables between its marks.

    Raises:
        ValueError: If the page has no place for one of them.
    """
    for name, text in tables.items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, positions = mark.subn(
            lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", page
        )
        if positions != 1:
            msg = f"The page has {positions} places for {name!r}: write <!-- {name} --> and <!-- end --> once."
            raise ValueError(msg)
    return page


def main() -> int:
    """Rewrite the pages."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    for name, tables in PAGES.items():
        runs = {table: load(SOURCES.get(table, table)) for table in tables}
        for table, own in runs.items():
            if not own:
                print(
                    f"{table} was not run here: no {FOLDER}/{table}*.json; its table stays as it is"
                )
        page = DOCS / name
        text = filled(
            page.read_text(encoding="utf-8"),
            {one: tables[one](own) for one, own in runs.items() if own},
        )
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
