"""What hostile files and answers of models cost: peak memory, seconds, and the error they end in.

    python benchmarks/limits.py [NAME ...]

Each input is read by a process of its own, whose peak includes Python and its libraries. Limits are
the default ones. Files and servers are those of tests/hostile.py and
tests/unit/loaders/test_load_limits.py; names select some of them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.hostile import HOSTILE, endless_server, many_members, peak_of, peak_of_answer

FILES: dict[str, Callable[[], bytes]] = {
    **{name: make for name, (make, _) in HOSTILE.items()},
    "many.zip": lambda: many_members(60, 1000),
    "deep-line.jsonl": lambda: b'{"tea": "Sencha"}\n' + b"[" * 1_000_000 + b"\n",
}
CALLS = ("chat", "stream", "embed", "rerank")


def main(wanted: list[str]) -> None:
    """Print the table."""
    print("| input | bytes | peak MB | s | result |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for name, make in FILES.items():
            if not wanted or name in wanted:
                path = Path(temporary, name)
                path.write_bytes(make())
                _print(name, f"{path.stat().st_size:,}", *peak_of(path))
                path.unlink()
    with endless_server() as url:
        for kind in CALLS:
            if not wanted or kind in wanted:
                _print(f"answer to {kind}", "endless", *peak_of_answer(kind, url))


def _print(name: str, size: str, peak: float, seconds: float, found: str) -> None:
    print(
        f"| {name} | {size} | {peak:.0f} | {seconds:.1f} | {found.replace('|', '/')[:160]} |",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
