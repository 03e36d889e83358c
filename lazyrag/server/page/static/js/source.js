// The source pane: a citation opens it with the cited words marked, and [ and ] step through the citations of the thread.
// A citation of the file that is open is there at once; another file comes as the fragment `source`.
import { load } from "./fragment.js";
import { say } from "./main.js";

export function source() {
  const root = document.querySelector("[data-source-root]");
  const pane = document.getElementById("source");
  const phone = matchMedia("(max-width: 62rem)");
  const ahead = new Map(); // panes by citation, which are fetched before somebody asks for them
  let loading = null;
  let opener = null;
  const address = (n) => `${root.dataset.url}?cite=${n}`;
  const header = () => pane.querySelector("header");

  async function show(n, { focus = false, keep = true } = {}) {
    loading?.abort();
    loading = new AbortController();
    const { signal } = loading;
    try {
      if (!pane.querySelector(`[data-mark="${n}"]`) && +header()?.dataset.n !== n) {
        if (ahead.has(n)) pane.replaceChildren(...ahead.get(n).cloneNode(true).childNodes);
        else await load(address(n), "source", { signal });
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      throw error;
    }
    if (signal.aborted) return;
    root.classList.add("open");
    pane.hidden = false;
    pane.setAttribute("aria-labelledby", "pane-h");
    const { count } = header().dataset;
    const label = pane.querySelector("#pane-place");
    const place = root.querySelector(`[data-src="${n}"] .place`)?.textContent ?? label.textContent;
    for (const chip of root.querySelectorAll("[data-cite]")) chip.ariaCurrent = +chip.dataset.cite === n ? "true" : null;
    for (const row of root.querySelectorAll("[data-src]")) row.classList.toggle("on", +row.dataset.src === n);
    for (const box of pane.querySelectorAll("[data-mark]")) box.classList.toggle("on", +box.dataset.mark === n);
    header().dataset.n = n;
    label.textContent = place;
    pane.querySelector("#pane-count").textContent = `${n} / ${count}`;
    for (const step of pane.querySelectorAll("[data-step]")) step.href = `${address(turned(n, +step.dataset.step, +count))}`;
    if (keep) history.replaceState(history.state, "", `${address(n)}#mark-${n}`);
    say(`${n} / ${count}: ${pane.querySelector("#pane-h").textContent}, ${place}`);
    reveal(n);
    if (focus) pane.focus({ preventScroll: true });
  }

  function reveal(n) {
    const boxes = [...pane.querySelectorAll(`[data-mark="${n}"]`)];
    const view = pane.querySelector(".view");
    if (!boxes.length) return;
    if (boxes[0] instanceof SVGElement) {
      // On phones the widest marked line fills the sheet, at most at twice its width.
      const widest = Math.max(...boxes.map((one) => one.width.baseVal.value));
      const zoom = phone.matches ? Math.min(2, Math.max(1, 0.93 / (widest || 1))) : 1;
      for (const sheet of view.querySelectorAll(".sheet")) sheet.style.width = zoom === 1 ? "" : `${Math.round(zoom * view.clientWidth)}px`;
    }
    const places = boxes.map((one) => one.getBoundingClientRect());
    const frame = view.getBoundingClientRect();
    const left = Math.min(...places.map((one) => one.left));
    view.scrollTo({ top: places[0].top - frame.top + view.scrollTop - view.clientHeight / 3, left: left - frame.left + view.scrollLeft - 12 });
  }

  // The first citation of each file, with the page images that it needs.
  async function fetchAhead() {
    for (const chip of [...root.querySelectorAll("#turn .srcfile")].slice(0, 8).map((file) => file.querySelector("[data-cite]"))) {
      const n = +chip.dataset.cite;
      if (ahead.has(n) || pane.querySelector(`[data-mark="${n}"]`)) continue;
      const answer = await fetch(address(n), { headers: { Accept: "text/html; fragment=source" }, priority: "low" });
      if (!answer.ok) return;
      const { body } = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const mark of [n, ...[...body.querySelectorAll("[data-mark]")].map((one) => +one.dataset.mark)]) ahead.set(mark, body);
      for (const { sizes, srcset } of body.querySelectorAll(".sheet:has(rect) img")) Object.assign(new Image(), { sizes, srcset });
    }
  }

  const turned = (n, by, count) => ((n - 1 + by + count) % count) + 1;
  const step = (by) => { if (header()) show(turned(+header().dataset.n, by, +header().dataset.count)); };
  function close() {
    root.classList.remove("open");
    for (const chip of root.querySelectorAll("[data-cite][aria-current]")) chip.ariaCurrent = null;
    for (const row of root.querySelectorAll("[data-src].on")) row.classList.remove("on");
    history.replaceState(history.state, "", root.dataset.url);
    (opener?.isConnected ? opener : document.getElementById("main")).focus();
  }

  root.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const chip = event.target.closest("[data-cite]");
    const by = event.target.closest("[data-step]");
    const closing = event.target.closest("[data-close]");
    if (!chip && !by && !closing) return;
    event.preventDefault();
    if (chip) { opener = chip; show(+chip.dataset.cite, { focus: phone.matches }); }
    if (by) step(+by.dataset.step);
    if (closing) close();
  });
  root.addEventListener("cite", async (event) => {
    await show(event.detail, { keep: false });
    fetchAhead();
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select, dialog")) return;
    if (event.key === "]" || event.key === "[") {
      if (header()) step(event.key === "]" ? 1 : -1);
      else root.querySelector("[data-cite]")?.click();
    }
    if (event.key === "Escape" && root.classList.contains("open")) close();
  });
  if (header()) show(+header().dataset.n, { keep: false }).then(fetchAhead);
}
