"""Flows of the pages that manage, in a browser: files, groups, evaluation."""

from __future__ import annotations

import re
import shutil
import time

import pytest

from tests.page.browsing import (
    LOOKS,
    check_accessible,
    long_tasks,
    picture,
    press,
    tab_to,
    watch_long_tasks,
)
from tests.page.conftest import CORPUS

SET = "/s/qingshan"
BROKEN = {
    "reports/2023-annual-report-scan.pdf": b"%PDF-1.4 broken",
    "office/price-list-2025.xlsx": b"PK\x03\x04 no zip",
}
WORDS = {
    "en": {
        "add": "Add files",
        "ready": "Ready",
        "delete": "Delete",
        "undo": "Undo",
        "certificate": "Certificate",
    },
    "zh": {
        "add": "添加文件",
        "ready": "就绪",
        "delete": "删除",
        "undo": "撤销",
        "certificate": "证明",
    },
}


@pytest.fixture(scope="session")
def office(start, tmp_path_factory):
    """The sample corpus, of which two files fail; tests add files of their own and delete only
    these.
    """
    folder = tmp_path_factory.mktemp("corpus") / "files"
    shutil.copytree(CORPUS, folder)
    for name, content in BROKEN.items():
        (folder / name).write_bytes(content)
    return start(folder, config='labels = {"reports/*" = ["finance"], "handbook/*" = ["staff"]}')


def row(page, name):
    """The row of a file."""
    return page.locator("#ftable tr", has=page.locator(f'input[value="{name}"]'))


def send(page, *files):
    """Choose files in the dialog of the page."""
    page.locator("a[data-dialog=add]").first.click()
    page.locator("#up-files").set_input_files(
        [{"name": name, "mimeType": "text/plain", "buffer": content} for name, content in files]
    )


def has_status(page, name, word, timeout=30_000):
    """Wait for the status of a row, without a reload."""
    row(page, name).locator(".st", has_text=word).wait_for(timeout=timeout)


@pytest.mark.parametrize(
    ("language", "theme", "device"), [("en", "light", "desktop"), ("zh", "dark", "phone")]
)
def test_an_upload_is_priced_first_by_keyboard(browse, office, language, theme, device):
    """With the box ticked nothing is added before the dialog with tokens and cost is confirmed."""
    page, name = (
        browse(office).open(f"{SET}/files", language, theme, device),
        f"priced-{language}.txt",
    )
    page.locator("a[data-dialog=add]").first.click()
    page.locator("#add input[name=dry]").focus()
    press(page, "Space")
    file = {"name": name, "mimeType": "text/plain", "buffer": f"Priced {language} tea.".encode()}
    page.locator("#up-files").set_input_files(file)
    page.locator("#ask[open] .cost").wait_for()
    check_accessible(page)
    picture(page, f"upload-priced-{language}-{theme}-{device}")
    assert row(page, name).count() == 0
    tab_to(page, "#ask .primary")
    press(page, "Enter")
    has_status(page, name, WORDS[language]["ready"])


def test_upload_of_a_folder_keeps_paths(browse, office, tmp_path):
    """A chosen folder is added with the paths of its files."""
    (tmp_path / "teas" / "green").mkdir(parents=True)
    (tmp_path / "teas" / "green" / "longjing.txt").write_text("Longjing is pan-fired.")
    page = browse(office).open(f"{SET}/files")
    page.locator("a[data-dialog=add]").first.click()
    with page.expect_file_chooser() as chooser:
        page.locator("[data-folder]").click()
    chooser.value.set_files(tmp_path / "teas")
    has_status(page, "teas/green/longjing.txt", "Ready")


def test_dropped_files_are_uploaded(browse, office):
    """Files that are dropped anywhere on the page are uploaded."""
    page = browse(office).open(f"{SET}/files")
    page.wait_for_load_state("load")
    page.wait_for_function("""() => {  // the script that takes files has come
        const drag = { dataTransfer: new DataTransfer(), bubbles: true, cancelable: true };
        drag.dataTransfer.items.add(new File([""], "x.txt"));
        document.body.dispatchEvent(new DragEvent("dragenter", drag));
        return document.body.classList.contains("dropping");
    }""")
    page.evaluate("""() => {
        const data = new DataTransfer();
        data.items.add(new File(["Puer is aged."], "puer.txt", { type: "text/plain" }));
        for (const name of ["dragenter", "dragover", "drop"])
            document.body.dispatchEvent(new DragEvent(name, { dataTransfer: data, bubbles: true, cancelable: true }));
    }""")
    has_status(page, "puer.txt", "Ready")


def test_large_upload_continues_after_a_cut(browse, office, tmp_path):
    """A file of more than 8 MiB goes in parts with their SHA-256; a lost part is sent again, the
    others are not.
    """
    page = browse(office).open(f"{SET}/files")
    sent = []

    def part(route):
        sent.append(route.request.url.rpartition("/")[2])
        assert len(route.request.headers["x-content-sha256"]) == 64
        route.abort() if sent.count("2") == 1 and sent[-1] == "2" else route.continue_()

    page.route("**/parts/*", part)
    page.evaluate("""() => {
        globalThis.said = "";
        const look = () => { said += document.getElementById("uploads").textContent; };
        new MutationObserver(look).observe(document.getElementById("uploads"), { childList: true, subtree: true });
    }""")
    (tmp_path / "large.txt").write_bytes(b"A line about tea.\n" + b"\n" * (17 << 20))
    page.locator("a[data-dialog=add]").first.click()
    page.locator("#up-files").set_input_files(tmp_path / "large.txt")
    page.locator(".upl .st.ok").wait_for(timeout=60_000)
    assert sent == ["1", "2", "2", "3"]
    assert re.search(r"Uploading \d+ %", page.evaluate("said"))


def test_evaluation_decides_in_words(browse, office):
    """Questions are imported; two configurations compared; the better one used, and that undone."""
    page = browse(office).open(f"{SET}/groups?build=CoarseChunk")
    page.locator("#ask .primary").click()
    page.locator(".tree li", has_text="CoarseChunk").first.wait_for()
    until = time.monotonic() + 60
    while page.locator(".tree .st.ok").count() < 3 and time.monotonic() < until:
        page.wait_for_timeout(300)
        page.reload()
    page.goto(f"{office.url}{SET}/evaluate")
    check_accessible(page)
    page.goto(f"{office.url}{SET}/evaluate/golden")
    page.locator("#imp-file").set_input_files(CORPUS.parent / "questions.json")
    page.get_by_role("button", name="Import").click()
    assert "24 questions were imported." in page.locator(".note").first.inner_text()
    page.goto(f"{office.url}{SET}/evaluate")
    page.locator("#f-group").select_option("CoarseChunk")
    page.get_by_role("button", name="Compare").click()
    said = page.locator(".verdict").inner_text()
    assert "Of 24 questions B ranks" in said
    assert "of 1,000 such tests" in said
    for language, theme, device in LOOKS:
        shown = browse(office).open(f"{SET}/evaluate", language, theme, device)
        check_accessible(shown)
        picture(shown, f"evaluate-{language}-{theme}-{device}", full=device == "phone")
    page.locator("#q-all").click()
    page.locator("#questions tr.q").nth(23).wait_for()
    page.get_by_role("button", name="Use B").click()
    page.get_by_role("button", name="Back to MediumChunk").click()
    assert "MediumChunk" in page.locator("#a-h + p").inner_text()


PAGES = ["files", "files/add", "files/sync", "files/delete?id=handbook/tools-and-vehicles.txt", "groups",
         "groups?group=MediumChunk", "evaluate", "evaluate/golden", "evaluate/golden?tab=candidates"]  # fmt: skip


SHOWN = (("en", "light", "desktop"), ("zh", "dark", "phone"))  # of the others CI takes a slice


@pytest.mark.parametrize(
    ("language", "theme", "device"),
    [pytest.param(*look, marks=() if look in SHOWN else pytest.mark.exhaustive) for look in LOOKS],
)
def test_pages_in_each_look(browse, office, language, theme, device):
    """No page has a violation of accessibility rules, nor scrolls sideways, down to 320 px;
    pictures of all.
    """
    browsing = browse(office)
    page = browsing.open(f"{SET}/files", language, theme, device)
    for path in PAGES:
        page.goto(f"{office.url}{SET}/{path}")
        check_accessible(page)
        name = path.partition("?")[0].replace("/", "-") + ("-nodes" if "group=" in path else "")
        picture(page, f"{name}-{language}-{theme}-{device}")
    page.locator("a.name").first  # noqa: B018  nodes have ids that only the service knows
    page.goto(f"{office.url}{SET}/groups?group=MediumChunk")
    page.locator(".nodelist a").first.click()
    check_accessible(page)
    picture(page, f"node-{language}-{theme}-{device}")
    if device == "phone":
        narrow = browsing.open(f"{SET}/files", language, theme, device, width=320)
        assert narrow.evaluate("document.documentElement.scrollWidth") <= 320


def test_fifty_row_events_a_second_load_once_a_second(browse, office):
    """While 50 rows a second change, the rows are loaded once a second; prints the tasks that took
    more than 50 ms.
    """
    page = browse(office).open(f"{SET}/files")
    page.locator("#ftable").wait_for()
    html = page.evaluate("document.getElementById('files').innerHTML")
    count = 0

    def fragment(route):
        nonlocal count
        count += 1
        text = html.replace(">Ready<", f">Ready {count}<")
        route.fulfill(status=200, content_type="text/html", body=text)

    page.route(f"**{SET}/files", fragment)
    watch_long_tasks(page)
    seconds = page.evaluate("""async () => {
        const began = performance.now();
        for (let n = 0; n < 150; n += 1) {
            dispatchEvent(new Event("lazyrag:changed"));
            await new Promise((done) => setTimeout(done, 20));
        }
        return (performance.now() - began) / 1000;
    }""")
    # not judged: other programs on the machine make them long
    print("long tasks, ms:", long_tasks(page))
    assert 2 <= count <= seconds + 2
