"""Texts per second of a local ONNX model: what sorting by length does, and the size of batches.

    python benchmarks/embed.py [--model FOLDER] [--rounds 5]

The texts are paragraphs and questions of XQuAD in English, one to three, shuffled: 10 to 250 tokens
each. All candidates run one graph in one process, interleaved; only the batches differ. The last
columns are the cosines between a text's vector in its batch and alone: 1 for float32 graphs, less
where activations are quantised dynamically, which is why OnnxEmbedder runs those texts one by one
unless it is given a batch size.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from results import Row, save
from timing import interleaved, ratios

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag.models.onnx import OnnxEmbedder
from lazyrag.models.onnx.hub import find_model
from lazyrag.models.onnx.pooling import normalised
from lazyrag.models.onnx.session import PADDED_TOKENS, TextModel, batches
from tests.shared import SHARED, read_squad

import onnxruntime  # isort: skip  after ours, which keeps it from reporting to its maker

NO_BOUND = 1_000_000
JOBS = 2
PARAGRAPHS = 24  # in a job
BASE = "as given, 32"

Order = Callable[[Sequence[int]], Sequence[Sequence[int]]]


def make_jobs() -> list[list[str]]:
    """Lists of paragraphs and questions, shuffled."""
    chance = random.Random(1)
    paragraphs, questions = read_squad(SHARED / "data/retrieval/xquad/xquad.en.json")
    jobs = []
    for number in range(JOBS):
        job = paragraphs[PARAGRAPHS * number : PARAGRAPHS * (number + 1)]
        job += [question for question, _ in chance.sample(questions, 3 * PARAGRAPHS)]
        jobs.append(chance.sample(job, len(job)))
    return jobs


def make_runner(model: TextModel) -> Callable[[list[str], Order, int], np.ndarray]:
    """A function that embeds texts in given batches, by the mean of their tokens, padded to the
    longest or a width.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(
        str(model.path), options, providers=["CPUExecutionProvider"]
    )

    def run(texts: list[str], order: Order, width: int) -> np.ndarray:
        rows = [
            model.one.row(ids[: model.max_tokens - model.one.size]).ids for ids in model.ids(texts)
        ]
        vectors = [np.empty(0)] * len(rows)
        for batch in order([len(row) for row in rows]):
            longest = width or max(len(rows[number]) for number in batch)
            ids = np.array(
                [np.pad(rows[number], (0, longest - len(rows[number]))) for number in batch]
            )
            mask = np.arange(longest) < np.array([[len(rows[number])] for number in batch])
            feeds = {
                "input_ids": ids,
                "attention_mask": mask.astype(np.int64),
                "token_type_ids": np.zeros_like(ids),
            }
            [hidden] = session.run(["last_hidden_state"], feeds)
            for number, tokens in zip(batch, hidden, strict=True):
                vectors[number] = tokens[: len(rows[number])].mean(axis=0)
        return normalised(np.array(vectors))

    return run


def as_given(rows: int) -> Order:
    """Batches in the order of the texts."""
    return lambda lengths: [
        range(at, min(at + rows, len(lengths))) for at in range(0, len(lengths), rows)
    ]


def by_length(rows: int, tokens: int = NO_BOUND) -> Order:
    """Batches of about the same length."""
    return lambda lengths: list(batches(lengths, rows, tokens))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default=str(SHARED / "models/all-minilm-l6-v2"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not Path(options.model).exists() or not (SHARED / "data").exists():
        print(
            f"no {options.model}, or no data in {SHARED}: set LAZYRAG_SHARED to the folder of the shared data"
        )
        return 2
    jobs = make_jobs()
    run = make_runner(TextModel("The benchmark", find_model(options.model)))
    orders: dict[str, tuple[Order, int]] = {
        "as given, 32, to 256": (as_given(32), 256),
        **{f"as given, {rows}": (as_given(rows), 0) for rows in (8, 32)},
        **{f"by length, {rows}": (by_length(rows), 0) for rows in (1, 32)},
        "by length, 32, 512 tokens": (by_length(32, 512), 0),
    }
    candidates = {name: lambda texts, how=how: run(texts, *how) for name, how in orders.items()}
    candidates["OnnxEmbedder"] = OnnxEmbedder(options.model, too_long="cut").embed
    candidates["OnnxEmbedder, 32"] = OnnxEmbedder(
        options.model, too_long="cut", batch_size=32
    ).embed
    seconds = interleaved(
        candidates, [dict.fromkeys(candidates, job) for job in jobs], options.rounds, block=1
    )

    alone = [run(job, by_length(1), 0) for job in jobs]
    base = statistics.median(seconds[BASE])
    rows: list[Row] = []
    print(f"{len(jobs[0])} texts in a list; OnnxEmbedder bounds a batch by {PADDED_TOKENS} tokens")
    print(
        f"{'batches':28} {'texts/s':>8} {'x ' + BASE:>14} {'cosine with alone: median':>26} {'least':>7}"
    )
    for name, function in candidates.items():
        median = statistics.median(seconds[name])
        cosines = np.concatenate(
            [(function(job) * own).sum(1) for job, own in zip(jobs, alone, strict=True)]
        )
        least = float(cosines.min())
        rows.append(
            {
                "batches": name,
                "texts_s": len(jobs[0]) / median,
                "x": base / median,
                "least_cosine": least,
            }
        )
        print(
            f"{name:28} {len(jobs[0]) / median:8.0f} {base / median:14.2f} {np.median(cosines):26.5f} {least:7.4f}"
        )
    goals = {"plain": ratios(seconds[BASE], seconds["OnnxEmbedder"], options.rounds)}
    save("embed", rows, goals=goals, texts=len(jobs[0]), rounds=options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
