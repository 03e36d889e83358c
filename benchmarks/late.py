"""Processor time of late interaction (MaxSim) for a question: passages never seen, in memory, and
stored at ingestion.

    python benchmarks/late.py [--model FOLDER] [--rounds 5]

The passages are English paragraphs of XQuAD. All candidates run in one process, interleaved.
"Stored" reads the token vectors of an ``OnnxEmbedder(token_cache=...)`` from disk for every
question, with nothing in memory.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from results import save
from timing import spread

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag.models import MaxSimModel
from lazyrag.models.onnx import OnnxEmbedder
from tests.shared import SHARED, read_squad

PASSAGES = 20


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default=str(SHARED / "models/all-minilm-l6-v2"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    paragraphs, pairs = read_squad(SHARED / "data/retrieval/xquad/xquad.en.json")
    passages, questions = (
        paragraphs[:PASSAGES],
        [question for question, number in pairs if number < PASSAGES],
    )
    plain = OnnxEmbedder(options.model)

    single = OnnxEmbedder(options.model, threads=1)
    memory = MaxSimModel(plain)
    memory("warm up", passages)
    seconds: dict[str, list[float]] = defaultdict(list)

    def timed(name: str, function: object, *args: object) -> object:
        started = time.process_time()
        result = function(*args)  # type: ignore[operator]
        seconds[name].append(time.process_time() - started)
        return result

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokens.db")
        storing = OnnxEmbedder(options.model, token_cache=path)
        storing.embed(passages)
        stored = MaxSimModel(storing, cache_bytes=0)
        same = []
        for number in range(options.rounds):
            question = questions[number]
            fresh = [f"{passage} {number}" for passage in passages]
            timed("embed the passages", plain.embed, fresh)
            timed("the same, storing token vectors", storing.embed, fresh)
            timed("never seen", MaxSimModel(plain, cache_bytes=0), question, passages)
            timed("never seen, one thread", MaxSimModel(single, cache_bytes=0), question, passages)

            exact = timed("in memory", memory, question, passages)
            coded = timed("stored", stored, question, passages)
            timed("the question alone", plain.token_embeddings, [question], "query")
            left, right = dict(exact), dict(coded)  # type: ignore[call-overload]
            same.append(max(abs(left[at] - right[at]) for at in left))
        tokens = sum(map(plain.count_tokens, passages))
        size = path.stat().st_size + Path(f"{path}-wal").stat().st_size
    print(
        f"{PASSAGES} passages, {tokens / PASSAGES:.0f} tokens each; milliseconds of processor time"
    )
    for name, values in seconds.items():
        print(
            f"{name:34} median {1000 * statistics.median(values):8.1f}   least {1000 * min(values):8.1f}"
        )
    taken = {name: spread([1000 * value for value in values]) for name, values in seconds.items()}
    rows = [
        {"what": name, **dict(zip(("cpu_ms", "least", "most"), own, strict=True))}
        for name, own in taken.items()
    ]
    save(
        "late",
        rows,
        goals=taken,
        passages=PASSAGES,
        tokens=tokens / PASSAGES,
        rounds=options.rounds,
    )
    print(
        f"largest difference of a score, stored and computed: {np.max(same):.5f}; {size} bytes with the log"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
