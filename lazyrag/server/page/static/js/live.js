// Keeps [data-live] as the server has it: one EventSource says that something has changed; then the fragment is loaded, at
// most once a second, and only rows and parts that differ are replaced. The focus and selections stay.
import { make, say } from "./main.js";

const parse = new DOMParser();
const LEAST_MS = 1000;
const LOST_MS = 10000;

function patch(old, next) {
  if (old.outerHTML === next.outerHTML) return;
  const active = old.contains(document.activeElement) ? document.activeElement : null;
  const again = active && (active.id ? `#${CSS.escape(active.id)}` : active.name && `[name="${active.name}"]`);
  for (const box of old.querySelectorAll("input[type=checkbox]:checked")) {
    const twin = next.querySelector(`input[value="${CSS.escape(box.value)}"]`);
    if (twin) twin.checked = true;
  }
  old.replaceWith(next);
  if (again) next.querySelector(again)?.focus();
}

function rows(old, next) {
  const known = new Map([...old.rows].map((row) => [row.id, row]));
  let at = old.firstElementChild;
  for (const row of [...next.rows]) {
    const own = known.get(row.id);
    row.asSent = row.outerHTML;
    const differs = own && (own.asSent ?? own.outerHTML) !== row.asSent;
    known.delete(row.id);
    if (own && own === at) {
      at = at.nextElementSibling;
      if (differs) { patch(own, row); row.classList.add("fresh"); }
    } else {
      old.insertBefore(row, at);
      own?.remove();
      if (own && own.querySelector("input:checked")) row.querySelector("input").checked = true;
      if (!own || differs) row.classList.add("fresh");
    }
  }
  for (const row of known.values()) row.remove();
}

export function live() {
  const part = document.querySelector("[data-live]");
  const { live: url, since, lost, back } = part.dataset;
  let waiting = 0;
  let last = 0;
  let timer = 0;
  let line = null;

  async function refresh() {
    waiting = 0;
    last = performance.now();
    if (document.querySelector("dialog[open]:not(#add)")) { changed(); return; }
    const answer = await fetch(location.href, { headers: { Accept: `text/html; fragment=${part.id}` } });
    if (!answer.ok || answer.redirected) return;
    const next = parse.parseFromString(await answer.text(), "text/html").body;
    const [table, other] = [part, next].map((one) => one.querySelector("#ftable tbody"));
    if (!table !== !other || part.childElementCount !== next.childElementCount) {
      part.replaceChildren(...next.childNodes);
      dispatchEvent(new Event("lazyrag:rows"));
      return;
    }
    for (const own of [...part.querySelectorAll("[data-part]")]) {
      const twin = next.querySelector(`#${own.id}`);
      if (twin) patch(own, twin);
    }
    if (table) rows(table, other);
    dispatchEvent(new Event("lazyrag:rows"));
  }

  function changed() {
    if (waiting) return;
    waiting = setTimeout(() => refresh().catch(() => {}), Math.max(0, LEAST_MS - (performance.now() - last)));
  }

  const source = new EventSource(since ? `${url}?since=${since}` : url);
  source.addEventListener("change", changed);
  addEventListener("lazyrag:changed", changed);
  source.onopen = () => {
    clearTimeout(timer);
    timer = 0;
    if (line) { line.remove(); line = null; say(back); }
  };
  source.onerror = () => {
    timer ||= setTimeout(() => {
      line = make("p", { className: "note warn offline" }, lost);
      part.before(line);
      say(lost);
    }, LOST_MS);
  };
  addEventListener("pagehide", () => source.close());
}
