"""Draw docs/images/film.webp and film-zh.webp: a question is typed on the web page, answered, and a
citation opened.

    python tools/make_film.py

`lazyrag serve` runs for real over the sample files, with the chat model of
cookbook/15_cited_answer.py; Chromium is driven as in tests/page. Needs lazyrag[browser] and
chromium.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "cookbook")]

import quoting_model  # noqa: E402

from tests.page.browsing import Browsing  # noqa: E402
from tests.page.conftest import CHROMIUM, CORPUS  # noqa: E402
from tests.server.running import serving  # noqa: E402

QUESTIONS = {
    "en": "How often is the chimney of the dryer swept?",
    "zh": "被毒蛇咬伤以后多久能送到医院？",
}
SIZE = {"width": 1120, "height": 700}
SHOWN = 960  # px


def frames(page: Page, question: str) -> list[tuple[bytes, int]]:
    """Screenshots of the page, each with how many ms it stays."""
    found: list[tuple[bytes, int]] = []

    def shot(stays: int) -> None:
        found.append((page.screenshot(animations="disabled", caret="hide"), stays))

    shot(1200)
    page.locator("#q").click()
    step = max(1, len(question) // 5)
    for end in range(step, len(question) + step, step):
        page.locator("#q").fill(question[:end])
        shot(160)
    found[-1] = (found[-1][0], 900)
    page.keyboard.press("Enter")
    page.locator("#turn .sources").wait_for()
    page.wait_for_load_state("networkidle")
    shot(2800)
    page.locator("#turn .answer .cite").first.click()
    page.locator("#source .on").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(3000)  # the page of the PDF is drawn after its marks
    shot(3600)
    page.goto(f"{page.url.partition('/ask')[0]}/search?q={question}&explain=1&group=FineChunk")
    page.wait_for_load_state("networkidle")
    shot(3200)
    return found


def film(pictures: list[tuple[bytes, int]], path: Path) -> None:
    """Write the screenshots as one animated picture, which runs three times."""
    images = []
    for data, _ in pictures:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        images.append(
            image.resize((SHOWN, SHOWN * image.height // image.width), Image.Resampling.LANCZOS)
        )
    images[0].save(
        path,
        save_all=True,
        append_images=images[1:],
        duration=[stays for _, stays in pictures],
        loop=3,
        quality=82,
        method=6,
        minimize_size=True,
    )
    print(f"{path.relative_to(ROOT)}: {len(images)} frames, {path.stat().st_size:,} bytes")


def main() -> None:
    """Serve the sample files and film the page in both languages."""
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        quoting_model.served() as url,
    ):
        os.environ |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
        shutil.copytree(CORPUS, Path(folder) / "files")
        config = Path(folder) / "serve.toml"
        config.write_text(
            "[server]\nport = 0\nprocesses = 1\n[sets.qingshan]\npath = 'files'\nwatch = false\n"
            "[models]\nchat = 'openai:quoting'\n",
            encoding="utf-8",
        )
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        with serving(Path(folder) / "files", config=config) as running:
            running.wait_until_ready()
            for language, question in QUESTIONS.items():
                browsing = Browsing(browser, running.url)
                page = browsing.open("/s/qingshan/ask", language)
                page.set_viewport_size(SIZE)
                name = "film.webp" if language == "en" else "film-zh.webp"
                film(frames(page, question), ROOT / "docs" / "images" / name)
                browsing.close()
        browser.close()


if __name__ == "__main__":
    main()
