"""Compare what the page marks in a document with the words that it is to mark.

    python benchmarks/page_marks.py [--check] [--spans 2000] [--show 3]

Sentences of the shared files are drawn at random, as many of PDFs as of other formats, and opened
as a search result or citation opens them: by the HTML of the document's page. The text under the
boxes of a PDF is read by pdfplumber from the file alone, see marks.py; the letters and digits of
`<mark>` are compared in their order. A PDF whose words have no boxes is shown as text.

With --check less than 98 % equal sentences, or more than 10 characters beyond one, is a failure.
"""

from __future__ import annotations

import argparse
import html
import json
import logging
import random
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi.testclient import TestClient

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from marks import DOCS, SHARED, folded, pages_of, shared_pdfs, text_under

from lazyrag import DocNode, Document
from lazyrag.document import PageBox
from lazyrag.server.app import create_app
from lazyrag.server.core.service import Service
from lazyrag.transforms import SentenceSplitter

TEXTS = (
    ".docx",
    ".txt",
    ".md",
    ".eml",
    ".xlsx",
    ".html",
    ".pptx",
    ".csv",
    ".json",
    ".rtf",
    ".odt",
    ".ipynb",
    ".epub",
)
FIGURE = re.compile(r'<figure class="sheet"[^>]* data-page="(\d+)">(.*?)</figure>', re.DOTALL)
RECT = re.compile(
    r'<rect data-mark="1".*? x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"'
)
MARK = re.compile(r"<mark [^>]*>(.*?)</mark>", re.DOTALL)


def shared_texts() -> dict[str, Path]:
    """The files of other formats that can be read, by name."""
    entries = json.loads((SHARED / "data" / "manifest.json").read_text(encoding="utf-8"))["files"]
    names = [one["file"].removeprefix("docs/") for one in entries if one["error"] is None]
    return {name: DOCS / name for name in names if name.endswith(TEXTS)}


def plain(text: str) -> str:
    """The letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def boxes_of(page: str) -> list[PageBox]:
    """The boxes in the HTML of a page."""
    found = []
    for number, figure in FIGURE.findall(page):
        for x, y, width, height in (map(float, one) for one in RECT.findall(figure)):
            found.append(PageBox(int(number), x, y, x + width, y + height))
    return found


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--spans", type=int, default=2000)
    parser.add_argument(
        "--show", type=int, default=0, help="print so many differences of each format"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pdfminer").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        conf = {"segment_store": {"type": "map", "kwargs": {"uri": f"{folder}/store.db"}}}
        with Document(doc_files=shared_pdfs() | shared_texts(), store_conf=conf) as docs:
            docs.create_node_group("Sentence", SentenceSplitter(chunk_size=40, chunk_overlap=0))
            app = create_app(Service({"shared": docs}, Path(folder) / "state"))
            with TestClient(
                app, base_url="http://127.0.0.1", client=("127.0.0.1", 50_000)
            ) as client:
                return measure(docs, client, options)


def measure(docs: Document, client: TestClient, options: argparse.Namespace) -> int:
    """Open sentences, and count those whose words are marked."""
    chance, of_format = random.Random(25), defaultdict[str, list[DocNode]](list)
    for node in docs.get_nodes("Sentence"):
        if len(plain(node.text)) > 1:
            of_format[Path(node.path).suffix].append(node)
    texts = len(of_format) - 1
    equal, total, beyond, pages = Counter[str](), Counter[str](), 0, dict[str, list[Any]]()
    for suffix, nodes in sorted(of_format.items()):
        times, as_text, shown = [], 0, 0
        wanted = options.spans // 2 if suffix == ".pdf" else -(-options.spans // 2 // texts)
        for node in chance.choices(nodes, k=wanted):
            begun = time.perf_counter()
            answer = client.get(
                f"/s/shared/files/{quote(node.path)}?uid={node.uid}",
                headers={"Accept": "text/html"},
            )
            times.append(1000 * (time.perf_counter() - begun))
            boxes, marks = (
                boxes_of(answer.text),
                [html.unescape(one) for one in MARK.findall(answer.text)],
            )
            if boxes:
                if node.path not in pages:
                    pages[node.path] = pages_of(DOCS / node.path, 0)
                expected, got = Counter(folded(node.text)), text_under(boxes, pages[node.path])
                is_equal, extra = expected == got, (got - expected).total()
            else:
                as_text += suffix == ".pdf"
                expected, got = plain(node.text), plain("".join(marks))
                is_equal, extra = expected == got, max(0, len(got) - len(expected))
            equal[suffix] += is_equal
            beyond = max(beyond, extra)
            if not is_equal and shown < options.show:
                shown += 1
                print(f"  {node.path} {node.text!r:.300}: {got!r:.300}")
        total[suffix] = len(times)
        more = f", {as_text} as text" if as_text else ""
        print(f"{suffix:<8}{len(times):>5} sentences{equal[suffix] / len(times):>8.1%} equal"
              f"{statistics.median(times):>7.1f} ms{more}")  # fmt: skip
    share = equal.total() / total.total()
    print(
        f"{'all':<8}{total.total():>5} sentences{share:>8.1%} equal, at most {beyond} characters beyond one"
    )
    return int(options.check and (share < 0.98 or beyond > 10))


if __name__ == "__main__":
    sys.exit(main())
