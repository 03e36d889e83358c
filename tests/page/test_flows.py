"""What people do with the page, from beginning to end: each flow in English and Chinese, with a
mouse and by keyboard.

`FLOWS` has them all, and README.md a table of them. CI runs a slice; all of them:

    pytest -m browser tests/page/test_flows.py
"""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import dataclass

import httpx2 as httpx
import pytest

from lazyrag.server.page.page import translate
from tests.page.browsing import Browsing, Hand, check_accessible, press
from tests.page.conftest import CORPUS
from tests.page.quoting import SLOW
from tests.server.nginx import nginx
from tests.server.running import wait_for

BROKEN = "office/price-list-2025.xlsx"
DRYER = "How is the chain dryer maintained?"
TEAS = (
    "# Teas\n\nOolong is half oxidised.\n\n"
    "## Brewing\n\nBrew oolong at ninety degrees.\n\n## Storage\n\nKeep it dry.\n"
)
FLOWS = {}
"""Every flow by its name."""


def flow(function):
    """Register a flow."""
    FLOWS[function.__name__] = function
    return function


@pytest.fixture(scope="session")
def office(start, tmp_path_factory):
    """The sample corpus with a file that fails, labels, and a chat model."""
    folder = tmp_path_factory.mktemp("corpus") / "files"
    shutil.copytree(CORPUS, folder)
    (folder / BROKEN).write_bytes(b"PK\x03\x04 no zip")
    return start(
        folder,
        config="watch = false\nlabels = ['finance', 'staff']\n[models]\nchat = 'tests.page.quoting:chat'",
    )


@dataclass
class Person:
    """Who does a flow.

    Args:
        service: The service that runs.
        browsing: Its pages.
        language: What they are read in.
        keyboard: Whether there is no mouse.
        tag: A name for what only this run of the flow makes.
        request: For fixtures that only some flows need.
    """

    service: object
    browsing: Browsing
    language: str
    keyboard: bool
    tag: str
    request: pytest.FixtureRequest
    hand: Hand = None
    name: str = "qingshan"

    def open(self, path, **more):
        """Open a page of the set; what follows is done there."""
        page = self.browsing.open(
            path if path.startswith("/") else f"/s/{self.name}/{path}", self.language, **more
        )
        self.hand = Hand(page, keyboard=self.keyboard)
        self.use, self.type, self.choose, self.attach = (
            self.hand.use, self.hand.type, self.hand.choose, self.hand.attach)  # fmt: skip
        return page

    def go(self, path):
        """Go to another page of the set."""
        self.hand.page.goto(f"{self.browsing.url}/s/{self.name}/{path}")

    def see(self, selector, key="", timeout=30_000, **slots):
        """Wait for an element, with a text of the catalogue, or any other text."""
        text = translate(self.language, key, **slots) if key else None
        found = self.hand.page.locator(selector, has_text=text).first
        found.wait_for(timeout=timeout)
        return found

    def row(self, name):
        """The row of a file."""
        return self.hand.page.locator(
            "#ftable tr", has=self.hand.page.locator(f'input[value="{name}"]')
        )

    def is_ready(self, name, timeout=60_000):
        """Wait until a file can be searched, without a reload."""
        self.row(name).locator(
            ".st", has_text=translate(self.language, "files.state.SUCCESS")
        ).wait_for(timeout=timeout)

    def upload(self, *files):
        """Add files by the dialog of the page."""
        self.use("a[data-dialog=add]")
        self.attach("#up-files", *files)

    def ask(self, question, slow=False):
        """Ask from the query bar, and wait for the whole answer, or for its begin if it is slow: a
        busy machine may show it when it is whole already.
        """
        self.type("#q", question)
        press(self.hand.page, "Enter")
        self.see("[data-events], #turn .sources" if slow else "#turn .sources")

    def text(self):
        """The text of the answer without its chips."""
        return self.hand.page.evaluate(
            """() => { const copy = document.querySelector("#turn [data-answer]").cloneNode(true);
            copy.querySelectorAll(".cite").forEach((one) => one.remove());
            return copy.textContent.replaceAll("\\u2060", "").replace(/\\s+/g, ""); }"""
        )

    def own_set(self):
        """Make a set of one file, so that this flow changes nothing for others."""
        self.name = self.tag.replace("_", "-")
        api = f"{self.service.url}/api/v1/sets"
        httpx.post(api, json={"name": self.name}).raise_for_status()
        wait_for(lambda: httpx.get(f"{api}/{self.name}").is_success, "the set", 60)
        sent = {"files": {"file": ("teas.md", TEAS)}, "headers": {"Idempotency-Key": self.name}}
        httpx.post(f"{api}/{self.name}/documents", **sent).raise_for_status()
        ready = f"{api}/{self.name}/documents?status=SUCCESS"
        wait_for(lambda: httpx.get(ready).json()["documents"], "the file", 60)


@flow
def first_run(me):
    """A new library, its first file, and a suggested question: cited, a minute after the first
    look.
    """
    page = me.open("/sets")
    me.use("[data-dialog=new-set]")
    me.type("#new-set [name=name]", me.tag)
    me.use("#new-set .primary")
    page.wait_for_url(f"**/s/{me.tag}/ask")
    me.attach("#first-files", ("teas.md", TEAS.encode()))
    me.see("#first_steps .chip", timeout=60_000)
    me.use("#first_steps .chip")
    me.see("#turn .answer .cite")
    me.see("#turn [data-meta]")


@flow
def upload(me):
    """A chosen file is a row at once, becomes ready while the page stays, and is found by the
    search.
    """
    page = me.open("files")
    page.evaluate("globalThis.isSame = true")
    me.upload((f"{me.tag}.txt", f"Oolong of {me.tag} is half oxidised.".encode()))
    me.is_ready(f"{me.tag}.txt")
    assert page.evaluate("isSame")
    me.go(f"search?q=oolong+{me.tag}")
    page.get_by_text(f"Oolong of {me.tag} is half oxidised.").first.wait_for()


@flow
def refused_upload(me):
    """A file that the service refuses stays in the list with the reason, and is tried again."""
    page = me.open("files")
    body = json.dumps({"detail": "The file has more than 8 bytes.", "remedy": "Split it."})
    page.route(
        "**/documents",
        lambda route: route.fulfill(status=413, content_type="application/json", body=body),
    )
    me.upload((f"{me.tag}.txt", b"Tea."))
    page.locator(".upl", has_text="The file has more than 8 bytes. Split it.").wait_for()
    page.unroute("**/documents")
    me.use(page.locator(".upl", has_text=me.tag).locator("button"))
    me.is_ready(f"{me.tag}.txt")


@flow
def error_and_retry(me):
    """A failed file is the first row, with its stage, the exact message and what to do; Retry
    begins a job.
    """
    page = me.open("files")
    first = page.locator("#ftable tbody tr.haserr + tr.detail").first
    first.wait_for()
    assert {"en": "The file is no workbook", "zh": "内容与扩展名不符"}[
        me.language
    ] in first.inner_text()
    assert translate(me.language, "files.todo") in first.inner_text()
    with page.expect_response("**/files/retry"):
        me.use(first.locator("form button"))
    page.wait_for_url("**/files")


@flow
def live_progress(me):
    """While a job runs its progress is above the table, and goes by itself."""
    page = me.open("files")
    me.upload((f"{me.tag}.txt", f"Tea {me.tag} is brewed hot. ".encode() * 60_000))
    page.locator(".jobnote progress").wait_for()
    me.is_ready(f"{me.tag}.txt", timeout=120_000)
    page.locator(".jobnote").wait_for(state="detached", timeout=120_000)


@flow
def find_files(me):
    """The table is filtered by a part of a name while one types, and by status."""
    page = me.open("files")
    me.type("#f-q", "weather")
    page.wait_for_function("() => document.querySelectorAll('#ftable tbody tr').length === 1")
    assert "weather-log" in page.locator("#ftable tbody").inner_text()
    me.go("files")
    me.use(".chips a.chip[href*='status=failed']")
    page.locator("#ftable tr.haserr").first.wait_for()
    assert page.locator("#ftable tbody tr:not(.haserr, .detail)").count() == 0


@flow
def labels(me):
    """A file gets a label from the bar of the selection; the label is a filter."""
    page = me.open("files")
    me.upload((f"{me.tag}.txt", b"Accounts."))
    me.is_ready(f"{me.tag}.txt")
    me.use(me.row(f"{me.tag}.txt").locator("input"))
    me.use("#sel [formaction]")
    me.type("#ask [name=labels]", f"finance, {me.tag}")
    me.use("#ask .primary")
    page.wait_for_url("**/files")
    me.row(f"{me.tag}.txt").locator(".chip", has_text=me.tag).wait_for(timeout=60_000)
    me.use(me.row(f"{me.tag}.txt").locator(".chip", has_text=me.tag))
    page.wait_for_function("() => document.querySelectorAll('#ftable tbody tr').length === 1")


@flow
def dry_run(me):
    """Syncing the folder first says what will change and what it costs; then it is done."""
    file = me.service.log.parent / "files" / f"{me.tag}.txt"
    file.write_text(f"A new file of {me.tag}.")
    page = me.open("files/sync")
    assert page.locator("#ask .cost dd").nth(0).inner_text() != "0"
    assert me.tag in page.locator("#ask").inner_text()
    me.use("#ask form[method=post] .primary")
    me.is_ready(f"{me.tag}.txt")


@flow
def undo(me):
    """A chosen file is deleted, and brought back from the bar."""
    page = me.open("files")
    me.upload((f"{me.tag}.txt", f"To be undone: {me.tag}.".encode()))
    me.is_ready(f"{me.tag}.txt")
    me.use(me.row(f"{me.tag}.txt").locator("input"))
    me.use("#sel .danger")
    page.locator("#ask[open]").wait_for()
    check_accessible(page)
    me.use("#ask .danger")
    page.locator("[data-undo-key]").wait_for()
    me.use("[data-undo-key]")
    me.is_ready(f"{me.tag}.txt")


@flow
def delete_with_certificate(me):
    """After the time for undo a file is removed for good, and the page links the certificate, which
    is clean.
    """
    me.own_set()
    page = me.open("files")
    me.upload((f"{me.tag}.txt", f"The baozhong of {me.tag} leaves a trace.".encode()))
    me.is_ready(f"{me.tag}.txt")
    me.go(f"files/delete?id={me.tag}.txt")
    me.use("#ask .danger")
    page.locator("[data-undo]", has_text=me.tag).wait_for(state="detached", timeout=30_000)
    link = page.locator(".note.ok a[href*=certificates]").first
    link.wait_for(timeout=90_000)
    me.use(link)
    page.wait_for_url("**/certificates/*")
    assert page.locator("#main .st.err").count() == 0
    me.go(f"search?q=baozhong+{me.tag}")
    assert page.get_by_text("leaves a trace").count() == 0


@flow
def document(me):
    """From a file to its nodes, to one of them, and to its text in the document, marked."""
    page = me.open("files?q=brewing-guide")
    me.use("#ftable a.name")
    me.use(".tabs a[href$='/nodes']")
    me.choose("#g", "MediumChunk")
    me.use(".node .tools a >> nth=1")
    page.locator(".nodetext").first.wait_for()
    me.use(".pagehead .actions a")
    page.locator("mark, rect").first.wait_for()


@flow
def versions(me):
    """A changed file has two versions: their words are compared, and the earlier one is
    restored.
    """
    me.own_set()
    page = me.open("files")
    me.upload(("teas.md", TEAS.replace("ninety", "eighty").encode()))
    page.locator("#ftable a", has_text="v2").wait_for(timeout=60_000)
    me.use(page.locator("#ftable a", has_text="v2"))
    assert page.locator(".diff ins").first.inner_text().endswith("eighty")
    me.use(page.locator("aside .actions .btn:not(.quiet)"))
    me.use(".card form .primary")
    page.wait_for_url("**/versions")
    me.see(".note.info", "doc.restored", version=1)


@flow
def search_with_knobs(me):
    """Another retriever and number of results change these and the address, without a reload."""
    page = me.open("search?q=tea")
    page.evaluate("globalThis.isSame = true")
    me.choose("#f-retriever", "bm25")
    page.wait_for_function("() => location.search.includes('retriever=bm25')")
    me.type("#f-topk", "2")
    press(page, "Enter")
    page.wait_for_function(
        "() => document.querySelectorAll('.hit').length === 2 && location.search.includes('topk=2')"
    )
    assert page.evaluate("isSame")


@flow
def search_with_filters(me):
    """A condition on a field narrows the results; its chip takes it back."""
    page = me.open("search?q=tea")
    me.use("#results .set-knobs summary")
    me.choose("#f-field", "file_type")
    me.choose("#f-op", "in")
    me.type("#f-value", ".md")
    me.use("#results .pop .btn")
    page.locator(".filters .chip").wait_for()
    assert {name.rpartition(".")[2] for name in page.locator(".hit .path a").all_inner_texts()} == {
        "md"
    }
    me.use(".filters .chip a")
    page.locator(".filters .chip").wait_for(state="detached")


@flow
def search_without_a_value(me):
    """A value that the question names is removed by its own button; the address keeps that, and the
    value is brought back.
    """
    page = me.open("search?q=harvest+of+the+annual+report+in+2024")
    while not page.locator(".hit").count():  # as long as groups are built
        page.wait_for_timeout(500)
        page.reload()
    shown = page.locator(".meta .chip").all_inner_texts()
    assert "year: 2024" in shown
    remove = translate(me.language, "search.inferred.remove")
    me.use(f'[aria-label="{remove}: year: 2024"]')
    restored = f'[aria-label="{translate(me.language, "search.infer_without.off")}: year: 2024"]'
    page.locator(restored).wait_for()
    assert "infer_without=year" in page.url
    me.use(restored)
    page.locator(restored).wait_for(state="detached")
    assert page.locator(".meta .chip").all_inner_texts() == shown
    assert "infer_without" not in page.url


@flow
def explain(me):
    """The explanation shows every stage, and for each result its rank and contribution."""
    page = me.open("search?q=dryer")
    me.use("[data-explain]")
    page.locator(".contrib").first.wait_for()
    assert page.locator(".stages li").count() >= 1
    assert "#1" in page.locator(".contrib").first.inner_text()
    me.use("[data-explain]")
    page.locator(".contrib").first.wait_for(state="detached")


@flow
def why_not(me):
    """A passage that was dropped: by which stage, and the one change that brings it in, which is
    made.
    """
    page = me.open("search?q=tea&topk=1")
    me.type("#why_not", "shop/brewing-guide.html")
    me.use("#results .card .btn")
    page.locator(".card .asks a, .card .note").first.wait_for()
    if page.locator(".card .asks a").count():
        me.use(page.locator(".card .asks a").last)
    page.locator(".card .note").wait_for()
    if page.locator(".card a.btn").count():
        me.use(".card a.btn")
        me.see(".card .note.ok")


@flow
def why_not_unknown(me):
    """What exists nowhere, or not for this token, is answered in the same way."""
    page = me.open("search?q=tea")
    me.type("#why_not", "zeppelin")
    me.use("#results .card .btn")
    me.see(".card .note", "whynot.unknown")
    check_accessible(page)


@flow
def api_call(me):
    """The same search as a request and as Python; Escape leads back to the button."""
    page = me.open("search?q=tea")
    me.use("[data-dialog=apicall]")
    page.locator("#apicall[open] pre").first.wait_for()
    press(page, "Escape")
    assert page.evaluate("document.activeElement.dataset.dialog") == "apicall"


@flow
def ask(me):
    """A question is answered with chips and sources, and a line says how many statements the sources
    support.
    """
    page = me.open("ask")
    me.ask(DRYER)
    assert page.locator("#turn .answer .cite").count() >= 1
    line = page.locator("#turn [data-meta] span").first.inner_text()
    assert {"en": "supported", "zh": "有依据"}[me.language] in line
    assert page.locator("#turn .srcfile").count() >= 1


@flow
def citation(me):
    """A citation opens its words beside the answer; Escape leads back to the chip."""
    page = me.open("ask")
    me.ask(DRYER)
    me.use("#turn .answer .cite")
    page.locator("#source .on").first.wait_for()
    assert "cite=1" in page.url
    press(page, "Escape")
    page.locator("#source").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.dataset.cite") == "1"


@flow
def next_citation_across_files(me):
    """Stepping leads through the citations of all files, and says where it is."""
    page = me.open("ask?topk=20")
    me.ask("How is green tea brewed and stored?")
    count, files = page.locator("#turn .sources .cite").count(), set()
    me.use("#turn .answer .cite")
    for number in range(1, count + 1):
        page.locator(f'#source [data-mark="{number}"].on').first.wait_for()
        files.add(page.inner_text("#pane-h"))
        press(page, "]") if me.keyboard else me.use("#source [data-step='1']")
    assert len(files) > 1
    page.locator('#source [data-mark="1"].on').first.wait_for()


@flow
def follow_up(me):
    """A second question stands below the first one, with sources that go on counting."""
    page = me.open("ask")
    me.ask(DRYER)
    first = page.locator("#turn .sources .cite").count()
    me.type("#q", "When are the machines cleaned?")
    press(page, "Enter")
    page.locator(".turn").nth(1).wait_for()
    page.locator("#turn .sources").wait_for()
    assert page.locator("#turn .sources .cite").first.inner_text().endswith(str(first + 1))


@flow
def stop(me):
    """An answer that is stopped keeps what is there, and can be asked again."""
    page = me.open("ask")
    me.ask(f"{DRYER} {SLOW}", slow=True)
    page.wait_for_function("() => document.querySelector('[data-events]')?.textContent.length > 20")
    me.use("[data-stop]")
    me.see(".note", "ask.canceled")
    assert len(me.text()) > 20


@flow
def reload_in_mid_answer(me):
    """A reload while the answer is written loses and doubles nothing."""
    page = me.open("ask")
    me.ask(f"{DRYER} {SLOW}", slow=True)
    page.wait_for_function("() => document.querySelector('[data-events]')?.textContent.length > 20")
    page.reload()
    page.locator("#turn .sources").wait_for(timeout=60_000)
    slow = me.text()
    me.go("ask")
    me.ask(DRYER)
    assert me.text() == slow


@flow
def feedback(me):
    """A helpful answer becomes a candidate, and, confirmed, a golden question."""
    me.own_set()
    page = me.open("ask")
    me.ask("How is oolong brewed?")
    me.use("[data-judge] [value='1']")
    page.locator("[data-judge] [aria-pressed=true]").wait_for()
    me.go("evaluate/golden?tab=candidates")
    me.use("form [value=confirm]")
    me.see(".empty")
    me.go("evaluate/golden")
    assert "How is oolong brewed?" in page.locator("tr.q").inner_text()


@flow
def evaluation(me):
    """Two configurations are compared by golden questions; the other one is used, and that is taken
    back.
    """
    me.own_set()
    page = me.open("evaluate/golden")
    asked = [
        {"question": f"How is oolong brewed, {n}?", "references": ["ninety degrees"]}
        for n in range(6)
    ]
    me.attach("#imp-file", ("questions.json", json.dumps(asked).encode()))
    me.use(page.locator("form:has(#imp-file) button"))
    me.see(".note.ok", timeout=60_000)
    me.go("evaluate")
    me.choose("#f-retriever", "bm25")
    me.use("form:has(#f-retriever) .primary")
    page.locator(".verdict").wait_for(timeout=60_000)
    check_accessible(page)
    me.use(page.locator("form.actions[action$=use] .btn"))
    me.use("section:has(#a-h) form .btn")
    page.locator("section:has(#a-h) form").wait_for(state="detached")


@flow
def groups(me):
    """A group is built after a dialog that says what it costs; a node shows its neighbours and its
    parent.
    """
    me.own_set()
    page = me.open("groups")
    me.use(".tree a.btn[href*='build=']")
    me.use("#ask .primary")
    page.wait_for_url("**/groups")
    wait_for(lambda: page.reload() and page.locator(".tree .st.ok").count() >= 3, "the group", 60)
    me.use(".tree a.name[href*='Chunk']")
    me.use(".nodelist a")
    me.use(".line a")
    page.locator(".nodetext").first.wait_for()


@flow
def activity(me):
    """A check of the store is a job that shows itself; the audit log has it, and its chain is
    intact.
    """
    me.own_set()
    page = me.open("activity/health")
    me.use("button[value=verify]")
    page.wait_for_url("**/activity")
    me.see("#jobs tbody .st.ok", timeout=60_000)
    me.go("activity/audit")
    me.use("a[href*='check=1']")
    me.see(".note.ok")


@flow
def retrieval_defaults(me):
    """How a library is searched is changed in Settings, and taken back."""
    me.own_set()
    page = me.open(f"/settings/retrieval?set={me.name}")
    me.type("#f-topk", "9")
    me.use("form .primary")
    assert page.locator("#f-topk").input_value() == "9"
    me.use("button[name=undo]")
    page.wait_for_function("() => document.querySelector('#f-topk')?.value !== '9'")


@flow
def appearance(me):
    """The theme changes without a reload and stays; the language by a link that keeps the
    address.
    """
    page = me.open("activity?x=1")
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    me.use(".side [data-theme-toggle]")
    page.wait_for_function(f"before => {colour} !== before", arg=before)
    page.reload()
    assert page.evaluate(colour) != before
    me.use(".side a[hreflang]")
    page.wait_for_function(f"() => !document.documentElement.lang.startsWith('{me.language}')")
    assert page.url.endswith("/activity?x=1")


@flow
def single_keys(me):
    """Keys lead to pages and through rows, open their own list, and are switched off there."""
    page = me.open("files")
    page.locator("#ftable").wait_for()
    press(page, "j", "j", "Enter")
    page.wait_for_url("**/files/**")
    press(page, "g", "s")
    page.wait_for_url("**/search")
    page.evaluate("document.activeElement.blur()")
    press(page, "?")
    page.locator("#keys[open]").wait_for()
    me.use("[data-keys-switch]")
    press(page, "Escape", "g", "f")
    page.wait_for_timeout(300)
    assert page.url.endswith("/search")


@flow
def token_with_labels(me):
    """The first token is created, then one with a label, who logs in and sees its files alone and
    nothing to change.
    """
    service = me.request.getfixturevalue("start")(
        {"pay.txt": "Pay is secret.", "tea.txt": "Tea is for all."},
        name="shop",
        config='labels = {"pay.txt" = ["hr"], "tea.txt" = ["staff"]}',
    )
    me.browsing, me.name = me.request.getfixturevalue("browse")(service), "shop"
    page = me.open("/settings/tokens")
    for name, scope, labels in (("admin", "admin", ""), ("kiosk", "read", "staff")):
        me.use("[data-dialog=new-token]")
        me.type("#new-token [name=name]", name)
        me.choose("#new-token [name=scope]", scope)
        me.type("#new-token [name=labels]", labels)
        me.use("#new-token .primary")
        secret = page.locator("#secret").inner_text()
        me.use("[data-dismiss]")
    page = me.open("/login?other=1")
    me.type("[name=token]", secret)
    me.use("form[action*=login] button")
    page.wait_for_url(lambda url: "login" not in url)
    me.go("files")
    assert page.locator("#ftable tbody tr").count() == 1
    assert "tea.txt" in page.locator("#ftable").inner_text()
    assert page.locator("main form[method=post], nav a[href$=evaluate]").count() == 0
    check_accessible(page)


@flow
def below_a_path(me):
    """Behind nginx, which buffers, below a path: add a file, ask, follow the answer, open a
    citation.
    """
    service = me.request.getfixturevalue("start")(
        {"teas.md": TEAS},
        name="shop",
        settings="proxies = ['127.0.0.1']",
        config="[models]\nchat = 'tests.page.quoting:chat'",
    )
    with nginx(me.request.getfixturevalue("tmp_path"), service.url) as url:
        me.browsing, me.name = me.request.getfixturevalue("browse")(url), "shop"
        page = me.open("files")
        me.upload(("proxied.txt", b"Sent through a proxy."))
        me.is_ready("proxied.txt")
        me.go("ask")
        me.ask(f"How is oolong brewed? {SLOW}", slow=True)
        page.wait_for_function(
            "() => document.querySelector('[data-events], #turn .sources')?.textContent.length > 20"
        )
        page.locator("#turn .sources").wait_for()
        me.use("#turn .answer .cite")
        page.locator("#source mark.on").first.wait_for()
        assert "/rag/s/shop/ask/" in page.url
        me.browsing.close()


@flow
def scripts_off(me):
    """Without scripts: add a file, ask, open a citation, search, explain, ask why not, delete."""
    me.own_set()
    page = me.open("files", scripts=False)
    me.use("a[href$='/files/add']")
    me.attach("#up-files", ("plain.txt", b"Plain tea is dull."))
    me.use("#add button.primary")
    page.wait_for_url("**/files")
    wait_for(lambda: page.reload() and page.locator("#ftable .st.ok").count() == 2, "the file", 60)
    me.go("ask")
    me.type("#q", "How is oolong brewed?")
    me.use("[data-send]")
    page.locator("#turn .sources").wait_for()
    me.use("#turn .answer .cite")
    page.locator("#source mark.on").first.wait_for()
    me.go("search?q=oolong")
    me.use("[data-explain]")
    page.locator(".contrib").first.wait_for()
    me.type("#why_not", "zeppelin")
    me.use("#results .card .btn")
    me.see(".card .note", "whynot.unknown")
    me.go("files/delete?id=plain.txt")
    me.use("#ask .danger")
    page.locator("[data-undo-key]").wait_for()


@flow
def on_a_phone(me):
    """At 390 px: ask, a citation over the answer, and everything else under More."""
    page = me.open("ask", width=390) if me.keyboard else me.open("ask", device="phone")
    me.ask(DRYER)
    me.use("#turn .answer .cite")
    page.locator("#source .on").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    me.use("#source [data-close]")
    me.use(".tabs-phone a >> nth=-1")
    me.use("main a[href*='/activity']")
    page.locator("h1").wait_for()
    check_accessible(page)


COMBINED = list(itertools.product(("en", "zh"), (False, True)))


def cases():
    """Each flow in each language, with a mouse and by keyboard: one always runs, and a slice of the
    others.
    """
    for number, name in enumerate(FLOWS):
        for at, (language, keyboard) in enumerate(COMBINED):
            marks = () if at == number % 4 else pytest.mark.exhaustive
            yield pytest.param(name, language, keyboard, id=f"{name}-{language}-{'keyboard' if keyboard else 'mouse'}",
                               marks=marks)  # fmt: skip


@pytest.mark.parametrize(("name", "language", "keyboard"), list(cases()))
def test_flow(browse, office, request, name, language, keyboard):
    """A person does what the flow says, and sees it."""
    tag = f"{name}_{language}_{'keyboard' if keyboard else 'mouse'}"
    FLOWS[name](Person(office, browse(office), language, keyboard, tag, request))
