"""A browser on the page of a running service: what it reports, axe-core, keys, pictures."""

from __future__ import annotations

import functools
import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:  # it is not installed where these tests are not run
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request

PICTURES = Path(
    os.environ.get("LAZYRAG_PICTURES") or Path(__file__).resolve().parents[2] / "build" / "page"
)
"""Where pictures are written."""
WIDTHS = {"desktop": (1440, 900), "phone": (390, 844)}
LOOKS = [
    (language, theme, device)
    for language in ("en", "zh")
    for theme in ("light", "dark")
    for device in WIDTHS
]
"""Each language in each theme on each device: arguments of `Browsing.open`."""

_REPORTS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
_AXE = """async (rules) => (await axe.run(document, {runOnly: rules})).violations.map((one) =>
  `${one.id} (${one.impact}): ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_LONG_TASKS = """
globalThis.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "longtask", buffered: true });
"""


@functools.cache
def _axe_source() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


class Browsing:
    """Pages of one service, and what the browser reported about them.

    Args:
        browser: The browser.
        url: Where the service is, with the sub-path below which it is served.
    """

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser, self.url = browser, url.rstrip("/")
        self.reports: list[str] = []
        self.contexts: list[BrowserContext] = []

    def open(
        self,
        path: str = "/",
        language: str = "en",
        theme: str = "light",
        device: str = "desktop",
        *,
        scripts: bool = True,
        token: str | None = None,
        width: int | None = None,
        **more: Any,
    ) -> Page:
        """Open a page in a browser profile of its own.

        Args:
            path: Path and query below the service's URL.
            language: Its language.
            theme: ``"light"`` or ``"dark"``.
            device: ``"desktop"`` or ``"phone"``: with a touch screen, two pixels for one.
            scripts: Whether scripts run.
            token: Log in with it first.
            width: A width in place of the device's.
            more: Arguments of Playwright's ``new_context``.
        """
        size, is_phone = WIDTHS[device], device == "phone"
        context = self.browser.new_context(
            viewport={"width": width or size[0], "height": size[1]},
            java_script_enabled=scripts,
            has_touch=is_phone,
            is_mobile=is_phone,
            device_scale_factor=2 if is_phone else 1,
            locale="zh-CN" if language == "zh" else "en-GB",
            color_scheme="dark" if theme == "dark" else "light",
            **more,
        )
        context.set_default_timeout(15_000)
        root = urlsplit(self.url).path or "/"
        host = {"domain": urlsplit(self.url).hostname, "path": root}
        context.add_cookies([{"name": "lazyrag_lang", "value": language, **host}])
        context.add_cookies([{"name": "lazyrag_theme", "value": theme, **host}])
        if scripts:
            context.add_init_script(_REPORTS)
        context.on("request", self._look_at)
        context.on("console", self._hear)
        context.on("weberror", lambda error: self.reports.append(f"script error: {error.error}"))
        self.contexts.append(context)
        page = context.new_page()
        if token is not None:
            page.goto(f"{self.url}/login")
            page.locator("input[name=token]").fill(token)
            page.locator("form[action*=login] button").click()
        page.goto(f"{self.url}{path}")
        return page

    def close(self) -> None:
        """Close every profile, and fail if the browser reported anything."""
        for context in self.contexts:
            context.close()
        self.contexts.clear()
        reports, self.reports = self.reports, []
        assert not reports, "the browser reports: " + "\n".join(reports)

    def _look_at(self, request: Request) -> None:
        found, own = urlsplit(request.url), urlsplit(self.url)
        is_own = found.netloc == own.netloc and (found.path + "/").startswith(f"{own.path}/")
        if not is_own and found.scheme not in ("blob", "about"):
            self.reports.append(f"foreign request: {request.url}")

    def _hear(self, message: ConsoleMessage) -> None:
        # A response with an error status is reported, too; tests look at what the page says about
        # it.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.reports.append(f"{message.type}: {message.text}")


_SETTLED = """() => Promise.allSettled(document.getAnimations().filter((one) =>
  one.effect.getComputedTiming().endTime !== Infinity).map((one) => one.finished))"""


def violations(page: Page) -> list[str]:
    """What axe-core finds in a page, once what moves there has come to rest: half-faded text has no
    contrast.
    """
    page.evaluate(_SETTLED)
    # the protocol of the debugger is no script of the page: its CSP stays in force
    page.evaluate(_axe_source())
    found: list[str] = page.evaluate(_AXE, _RULES)
    return found


def check_accessible(page: Page) -> None:
    """Check that axe-core finds nothing, and that the page does not scroll sideways."""
    found = violations(page)
    assert not found, f"{page.url}:\n" + "\n".join(found)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"{page.url} is {wide} px too wide"


def press(page: Page, *keys: str) -> None:
    """Press keys one after the other."""
    for key in keys:
        page.keyboard.press(key)


def tab_to(page: Page, selector: str, most: int = 80) -> None:
    """Press Tab until an element has the focus; fails after so many times."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement?.matches(selector)", selector):
            return
    raise AssertionError(f"{most} times Tab did not reach {selector} on {page.url}")


class Hand:
    """Acts on a page as a person does: with a mouse, or by keyboard alone.

    Args:
        page: The page.
        keyboard: Whether without a mouse: Tab leads to what is pressed, typed into or chosen.
    """

    def __init__(self, page: Page, *, keyboard: bool) -> None:
        self.page, self.keyboard = page, keyboard

    def _find(self, target: str | Locator) -> Locator:
        return (self.page.locator(target) if isinstance(target, str) else target).first

    def reach(self, target: str | Locator, most: int = 400) -> Locator:
        """Press Tab, or Shift+Tab if that is nearer, until an element has the focus; fails after so
        many times.
        """
        found = self._find(target)
        found.wait_for(state="attached")
        for _ in range(most):
            way = found.evaluate(_WAY)
            if not way:
                return found
            self.page.keyboard.press(way)
        raise AssertionError(f"{most} times Tab did not reach {target} on {self.page.url}")

    def use(self, target: str | Locator) -> None:
        """Press a button or a link, or tick a box."""
        if not self.keyboard:
            self._find(target).click()
            return
        kind = self.reach(target).evaluate("one => one.type")
        self.page.keyboard.press("Space" if kind in ("checkbox", "radio") else "Enter")

    def type(self, target: str | Locator, text: str) -> None:
        """Write into a field what it is to have."""
        if self.keyboard:
            self.reach(target)
            self.page.keyboard.press("Control+a")
        else:
            self._find(target).fill("")
        self.page.keyboard.insert_text(text)

    def choose(self, target: str | Locator, value: str) -> None:
        """Choose an option of a list by its value."""
        if not self.keyboard:
            self._find(target).select_option(value)
            return
        keys = self.reach(target).evaluate(
            "(one, value) => [...one.options].findIndex((each) => each.value === value) - one.selectedIndex",
            value,
        )
        press(self.page, *["ArrowDown" if keys > 0 else "ArrowUp"] * abs(keys))
        assert self._find(target).input_value() == value

    def attach(self, target: str | Locator, *files: tuple[str, bytes]) -> None:
        """Choose files in the browser's own dialog, which the target opens."""
        with self.page.expect_file_chooser() as chooser:
            self.use(target)
        chooser.value.set_files(
            [{"name": name, "mimeType": "text/plain", "buffer": data} for name, data in files]
        )


_WAY = """one => {
  const at = document.activeElement;
  if (at === one) return "";
  return at && at !== document.body && (one.compareDocumentPosition(at) & 4) ? "Shift+Tab" : "Tab";
}"""


def picture(page: Page, name: str, *, full: bool = False) -> Path:
    """Write a picture of a page, such as ``files-en-dark-phone``."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path, full_page=full, animations="disabled", caret="hide")
    return path


def watch_long_tasks(page: Page) -> None:
    """Collect the durations of tasks that block the page for more than 50 ms, in ms."""
    page.evaluate(_LONG_TASKS)


def long_tasks(page: Page) -> list[float]:
    """Durations of the long tasks since `watch_long_tasks`."""
    found: list[float] = page.evaluate("longTasks")
    return found
