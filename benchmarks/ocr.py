"""OCR of scans: recall and precision of characters and words, seconds and memory, by language and
resolution.

Pages of the shared PDFs are rendered, and the recognized text is compared with their text layers:
characters and words as often as they are there, in any order; wide and narrow forms, and quotation
marks, are one.

python benchmarks/ocr.py [--dpi 100 150 200 300] [--threads 2] [--check]
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from pathlib import Path

import pypdfium2

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from lazyrag.loaders.ocr import RapidOcr  # noqa: E402
from lazyrag.loaders.scans import ScanLoader  # noqa: E402
from tests.shared import shared  # noqa: E402

PAGES = {
    "zh": [("made_zh.pdf", 0)],
    "en": [
        ("multicolumn.pdf", 0),
        ("pdflatex-4-pages.pdf", 0),
        ("layout-parser-paper-fast.pdf", 0),
    ],
}
_QUOTES = {0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'", 0xFFFE: None}
BOUND = 0.99


def characters(text: str) -> Counter[str]:
    """Characters as often as they are there, without hyphens, and the marks of tables."""
    return Counter(re.sub(r"[\s|-]", "", unicodedata.normalize("NFKC", text.translate(_QUOTES))))


def words(text: str) -> Counter[str]:
    """Words of two letters and more, with those parted at a line end."""
    text = re.sub(r"-\s*\n", "", unicodedata.normalize("NFKC", text.translate(_QUOTES)))
    return Counter(re.findall(r"\w{2,}", text))


def shares(truth: Counter[str], found: Counter[str]) -> tuple[float, float]:
    """Recall and precision."""
    common = (truth & found).total()
    return common / (truth.total() or 1), common / (found.total() or 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dpi", type=int, nargs="+", default=[150, 200])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--check", action="store_true", help=f"fail below {BOUND:g} of characters from 150 dpi on"
    )
    chosen = parser.parse_args()
    loader = ScanLoader(RapidOcr(threads=chosen.threads))
    missed = 0
    print(
        "language  dpi  page                          characters     words          CPU s  peak MB"
    )
    for language, pages in PAGES.items():
        for dpi in chosen.dpi:
            for name, number in pages:
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder, "scan.pdf")
                    with pypdfium2.PdfDocument(shared("data", "docs", name)) as file:
                        truth = file[number].get_textpage().get_text_range()
                        file[number].render(scale=dpi / 72).to_pil().convert("RGB").save(
                            path, resolution=dpi
                        )
                    began = time.process_time()
                    text = loader.load(path).text
                    seconds = time.process_time() - began
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                letters = shares(characters(truth), characters(text))
                of_words = shares(words(truth), words(text)) if language == "en" else None
                second = (
                    "       -     " if of_words is None else f"{of_words[0]:.4f} {of_words[1]:.4f}"
                )
                first = f"{letters[0]:.4f} {letters[1]:.4f}"
                print(
                    f"{language:8} {dpi:4}  {name:28}  {first}  {second}  {seconds:5.1f}  {peak:7.0f}",
                    flush=True,
                )
                missed += dpi >= 150 and min(letters) < BOUND
    if chosen.check and missed:
        print(f"{missed} pages are below {BOUND:g}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
