"""Curves of what was measured, as SVG and PNG beside the JSON files in build/bench.

    build/peers/bin/python benchmarks/plots.py

matplotlib is among the peers' packages; lazyrag does not need it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from results import FOLDER, load

OURS = ("lazyrag",)
LANGUAGES = {"en": "English", "zh": "Chinese"}
Curves = Mapping[str, Sequence[tuple[float, float]]]


def curves(rows: Sequence[Mapping[str, Any]], figure: str) -> dict[str, list[tuple[float, float]]]:
    """For each engine its points (nodes, figure), by nodes."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: row["nodes"]):
        if row.get(figure):
            found.setdefault(row.get("engine", "lazyrag"), []).append((row["nodes"], row[figure]))
    return found


def draw(name: str, lines: Curves, title: str, unit: str) -> None:
    """One picture, both axes logarithmic; ours with a heavy line."""
    figure, axes = plt.subplots(figsize=(7.2, 4.5), layout="constrained")
    for engine, points in lines.items():
        ours = engine.startswith(OURS)
        axes.plot(
            *zip(*points, strict=True), marker="o", markersize=4, label=engine,
            linewidth=2.4 if ours else 1.2, linestyle="-" if ours else "--",
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel=unit, title=title)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    for suffix in ("svg", "png"):
        figure.savefig(FOLDER / f"{name}.{suffix}", dpi=150)
    plt.close(figure)
    print(Path("build/bench") / f"{name}.svg")


def draw_bars(name: str, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Seconds of each framework, the fastest on top."""
    ordered = sorted(rows, key=lambda row: -row["seconds"])
    figure, axes = plt.subplots(figsize=(7.2, 0.45 * len(rows) + 1.2), layout="constrained")
    colours = ["tab:blue" if row["engine"].startswith(OURS) else "silver" for row in ordered]
    bars = axes.barh(
        [row["engine"] for row in ordered], [row["seconds"] for row in ordered], color=colours
    )
    axes.bar_label(
        bars,
        [f" {row['seconds']:.1f} s" + ("" if row["durable"] else ", in memory") for row in ordered],
    )
    axes.set(xlabel="seconds", title=title, xlim=(0, 1.4 * ordered[0]["seconds"]))
    for suffix in ("svg", "png"):
        figure.savefig(FOLDER / f"{name}.{suffix}", dpi=150)
    plt.close(figure)
    print(Path("build/bench") / f"{name}.svg")


def draw_stages(name: str, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """For each stage its median as a bar, and a line from there to its 95th percentile."""
    ordered = list(reversed(rows))
    figure, axes = plt.subplots(figsize=(7.2, 0.35 * len(rows) + 1.2), layout="constrained")
    medians = [row["p50_ms"] for row in ordered]
    beyond = [[0] * len(rows), [row["p95_ms"] - row["p50_ms"] for row in ordered]]
    bars = axes.barh(
        [row["stage"] for row in ordered], medians, xerr=beyond, color="tab:blue", capsize=3
    )
    axes.bar_label(bars, [f" {row['p50_ms']:.2g} / {row['p95_ms']:.2g}" for row in ordered])
    axes.set(
        xlabel="ms, p50 and p95", title=title, xlim=(0, 1.3 * max(row["p95_ms"] for row in rows))
    )
    for suffix in ("svg", "png"):
        figure.savefig(FOLDER / f"{name}.{suffix}", dpi=150)
    plt.close(figure)
    print(Path("build/bench") / f"{name}.svg")


def draw_quality(rows: Sequence[Mapping[str, Any]]) -> None:
    """One picture of a set: a bar for each system, by nDCG@10, with the interval of its difference
    from the first.
    """
    named = [row for row in rows if not row["system"].startswith("ceiling")]
    base = named[0]["nDCG@10"]
    figure, axes = plt.subplots(figsize=(7.2, 0.24 * len(named) + 1), layout="constrained")
    reach = [
        [row["difference"] - row["low"] for row in named],
        [row["high"] - row["difference"] for row in named],
    ]
    colours = ["tab:blue" if "default" in row["system"] else "lightgrey" for row in named]
    names = [row["system"] for row in named]
    axes.barh(
        names,
        [row["nDCG@10"] for row in named],
        xerr=reach,
        color=colours,
        error_kw={"elinewidth": 0.8},
    )
    axes.axvline(base, color="grey", linewidth=0.8)
    axes.invert_yaxis()
    lowest = min(row["nDCG@10"] for row in named)
    axes.set(xlabel="nDCG@10", title=named[0]["set"], xlim=(max(0.0, lowest - 0.1), None))
    name = "quality-" + named[0]["set"].replace(", ", "-")
    for suffix in ("svg", "png"):
        figure.savefig(FOLDER / f"{name}.{suffix}", dpi=150)
    plt.close(figure)
    print(Path("build/bench") / f"{name}.svg")


SHOWN = {"keyword: bm25_chinese": "bm25", "vector": "vector", "hybrid": "hybrid (default)"}
SHOWN |= {
    "hybrid + BM25Reranker": "hybrid + BM25Reranker",
    "hybrid + MaxSimReranker": "chain: feedback 2 + MaxSim 0.4",
}


def draw_cost(
    cost: Sequence[Mapping[str, Any]], sets: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Recall of each choice against the processor time of a query, a panel for each set, into
    docs/images.
    """
    spent = {row["query"]: row["median_cpu_ms"] for row in cost if "query" in row}
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axes, (name, measure) in zip(
        panels, (("cranfield", "recall@5"), ("xquad-en", "recall@1")), strict=True
    ):
        found = {row["system"]: row[measure] for row in sets[name]}
        for query, system in SHOWN.items():
            label = "chain (MaxSim)" if system.startswith("chain") else query.partition(":")[0]
            axes.plot(
                spent[query],
                found[system],
                "o",
                color="tab:blue" if query == "hybrid" else "dimgrey",
            )
            axes.annotate(
                label,
                (spent[query], found[system]),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
            )
        axes.set(xscale="log", xlabel="CPU ms per query", ylabel=measure, title=name)
        axes.margins(x=0.2, y=0.2)
        axes.grid(visible=True, alpha=0.3)
    publish("quality-cost", figure)


def draw_latency(panels: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The median of a query against the size of the corpus, a panel for each search, into
    docs/images.
    """
    figure, all_axes = plt.subplots(1, len(panels), figsize=(11, 4.8), layout="constrained")
    for axes, (title, rows) in zip(all_axes, panels.items(), strict=True):
        for engine, points in curves(rows, "p50_ms").items():
            ours = engine.startswith(OURS)
            axes.plot(
                *zip(*points, strict=True), marker="o", markersize=3, label=engine,
                linewidth=2.4 if ours else 1.0, linestyle="-" if ours else "--",
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="nodes", title=title)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(
            fontsize="x-small",
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncol=2,
            frameon=False,
        )
    all_axes[0].set_ylabel("median of a query, ms")
    publish("latency", figure)


def publish(name: str, figure: Any) -> None:
    """Write a picture of the documentation; the same figures give the same file."""
    path = FOLDER.parents[1] / "docs" / "images" / f"{name}.svg"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "lazyrag"}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(path)


def main() -> int:
    """Draw what there is."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    lexical = [row for run in load("lexical") for row in run["rows"]]
    for language in sorted({row["language"] for row in lexical}):
        own = [row for row in lexical if row["language"] == language]
        draw(
            f"lexical-{language}",
            curves(own, "p50_ms"),
            f"BM25, {language}, top 10",
            "median of a query, ms",
        )
    dense = [row for run in load("dense") for row in run["rows"]]
    if dense:
        draw(
            "dense",
            curves(dense, "p50_ms"),
            "Nearest of 384 numbers, top 10",
            "median of a query, ms",
        )
    if lexical and dense:
        panels = {
            f"BM25, {name}": [row for row in lexical if row["language"] == code]
            for code, name in LANGUAGES.items()
        }
        draw_latency({**panels, "Vectors of 384 numbers": dense})
    for run in load("ingest"):
        rows = [row for row in run["rows"] if row["files"] == run["rows"][0]["files"]]
        title = f"{rows[0]['files']:,} files, {run['bytes'] / 1e6:.0f} MB, {rows[0]['language']}"
        draw_bars(f"ingest-{rows[0]['language']}", rows, title)
    for run in load("growth"):
        seconds = {
            "ingest": "ingest_s",
            "first answer": "first_answer_s",
            "bm25": "bm25_ms",
            "dense": "dense_ms",
        }
        lines = {
            f"lazyrag: {name}": [
                (row["nodes"], row[of] / (1000 if of.endswith("ms") else 1)) for row in run["rows"]
            ]
            for name, of in seconds.items()
        }
        draw("growth", lines, "Growth with the number of nodes", "seconds")
    for run in load("stages"):
        nodes = run["rows"][0]["nodes"]
        draw_stages(f"stages-{nodes:08}", run["rows"], f"Stages of a question, {nodes:,} nodes")
    sets = {run["rows"][0]["set"]: run["rows"] for run in load("quality")}
    for rows in sets.values():
        draw_quality(rows)
    for run in load("cost"):
        if {"cranfield", "xquad-en"} <= sets.keys():
            draw_cost(run["rows"], sets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
