"""Compare the counter ``"estimate"`` with tiktoken's cl100k_base, on prose, documentation, code and
emoji.

    TIKTOKEN_CACHE_DIR=FOLDER python benchmarks/tokens.py [--check] [--table] [--record]

It needs tiktoken and the vocabulary in that folder, and the shared data. Each text is a window of
2,500 to 9,000 characters. With --check an estimate below the true number, or so high that less than
75 % of a budget would be used, is a failure. --table prints the table of `lazyrag.text.tokens`;
--record writes the true numbers of the sample corpus for the tests.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import random
import statistics
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lazyrag.text.tokens import EstimatedTokenCounter, TiktokenCounter
from tests.shared import SHARED, read_squad

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "unit" / "cl100k_tokens.json"
SIZES = (2500, 5000, 9000)
AT_MOST = 60  # windows of each size and set
EMOJI = "".join(
    map(chr, [*range(0x1F300, 0x1F650), *range(0x1F680, 0x1F6FF), *range(0x1F900, 0x1F9FF)])
)


def texts() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each set and its texts."""
    retrieval, trees = SHARED / "data" / "retrieval", SHARED / "data" / "documentation"
    english = read_squad(retrieval / "xquad" / "xquad.en.json")[0]
    chinese = read_squad(retrieval / "xquad" / "xquad.zh.json")[0]
    yield "XQuAD en", english
    yield "XQuAD zh", chinese
    yield "CMRC zh", read_squad(retrieval / "cmrc2018" / "cmrc2018_dev_half0.json")[0]
    for tree in sorted(path for path in trees.iterdir() if path.is_dir()):
        files = sorted(path for path in tree.rglob("*") if path.suffix in {".md", ".rst", ".txt"})
        yield (
            f"documentation {tree.name}",
            [path.read_text(encoding="utf-8", errors="replace") for path in files],
        )
    yield (
        "Python",
        [path.read_text(encoding="utf-8") for path in sorted((ROOT / "lazyrag").rglob("*.py"))],
    )
    draw = random.Random(1)
    yield (
        "emoji in English",
        [" ".join(word + _emoji(draw, 0.3) for word in text.split()) for text in english],
    )
    yield "emoji in Chinese", ["".join(one + _emoji(draw, 0.1) for one in text) for text in chinese]


def _emoji(draw: random.Random, share: float) -> str:
    return draw.choice(EMOJI) if draw.random() < share else ""


def windows(found: list[str], size: int) -> list[str]:
    """The first windows of the joined texts."""
    joined = "\n\n".join(found)
    return [joined[start : start + size] for start in range(0, len(joined) - size, size)][:AT_MOST]


def table(exact: TiktokenCounter) -> str:
    """The packed number of tokens of each code point from 0x80 to 0xffff."""
    counts = [
        3 if 0xD800 <= code < 0xE000 else exact.count(chr(code)) for code in range(0x80, 0x10000)
    ]
    packed = bytes(
        sum(count - 1 << 2 * place for place, count in enumerate(counts[at : at + 4]))
        for at in range(0, len(counts), 4)
    )
    return base64.b85encode(zlib.compress(packed, 9)).decode()


def main() -> int:
    """Print a row for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    exact, estimate = TiktokenCounter("cl100k_base"), EstimatedTokenCounter()
    if options.table:
        print(table(exact))
        return 0
    if options.record:
        rows = {}
        for path in sorted((ROOT / "cookbook" / "corpus").rglob("*")):
            if path.suffix in {".md", ".txt"}:
                text = path.read_text(encoding="gb18030" if "入住" in path.name else "utf-8")
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                rows[path.relative_to(ROOT).as_posix()] = [digest, exact.count(text)]
        RECORD.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    failed = False
    print(f"{'set':24}{'windows':>8}{'least':>8}{'median':>8}{'most':>8}  estimate / cl100k_base")
    for name, found in texts():
        ratios = [
            estimate.count(one) / exact.count(one) for size in SIZES for one in windows(found, size)
        ]
        failed |= min(ratios) < 1 or max(ratios) > 1 / 0.75
        print(
            f"{name:24}{len(ratios):8}{min(ratios):8.3f}{statistics.median(ratios):8.3f}{max(ratios):8.3f}"
        )
    return int(options.check and failed)


if __name__ == "__main__":
    sys.exit(main())
