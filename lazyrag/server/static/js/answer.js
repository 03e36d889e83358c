// The query bar, and an answer while it is written: its events add text nodes and chips, and `done` brings the server's
// HTML of the whole turn. A stream that is cut goes on by Last-Event-ID; a page that is loaded again behind `after`.
import { load } from "./fragment.js";
import { copy, make, say } from "./main.js";

export function answer() {
  const form = document.querySelector("[data-ask]");
  const field = form.querySelector("textarea");
  for (const wait of document.querySelectorAll("form input[name=wait]")) wait.remove(); // the page follows the events
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (field.value.trim()) form.requestSubmit(form.querySelector("[data-send]"));
  });
  for (const link of form.querySelectorAll("[data-verb]")) {
    link.addEventListener("click", () => {
      const url = new URL(link.href);
      if (field.value) url.searchParams.set("q", field.value);
      link.href = url.href;
    });
  }
  const box = document.querySelector("[data-events]");
  if (box) follow(box, form);
  else opened();
}

// On a wide screen the first citation is open: its words are what the answer stands on.
function opened() {
  const root = document.querySelector("[data-source-root]");
  const chip = root?.querySelector("#turn [data-cite]");
  if (chip && !root.classList.contains("open") && matchMedia("(min-width: 62.01rem)").matches && !location.hash.startsWith("#mark")) {
    root.dispatchEvent(new CustomEvent("cite", { detail: +chip.dataset.cite }));
  }
}

function follow(box, form) {
  const caret = box.querySelector(".caret");
  const slow = document.querySelector("[data-slow-note]");
  const lost = document.querySelector("[data-lost]");
  const send = form.querySelector("[data-send]");
  const { url } = document.querySelector("[data-source-root]").dataset;
  send.hidden = true;
  caret.hidden = true;
  const timers = [
    setTimeout(() => { caret.hidden = false; }, 150),
    setTimeout(() => { if (!box.textContent) slow.textContent = box.dataset.slow; }, 3000),
    setTimeout(() => { if (!box.textContent) slow.textContent = box.dataset.slower; }, 10000),
  ];
  const events = new EventSource(box.dataset.events);
  events.addEventListener("open", () => { lost.hidden = true; });
  events.addEventListener("error", () => { lost.hidden = events.readyState === EventSource.OPEN; });
  const add = (event) => {
    for (const piece of JSON.parse(event.data)) caret.before(...(typeof piece === "string" ? [piece] : chip(box, url, piece)));
    slow.textContent = "";
  };
  events.addEventListener("text", add);
  events.addEventListener("done", async (event) => {
    add(event);
    events.close();
    timers.forEach(clearTimeout);
    await load(url, "turn");
    send.hidden = false;
    say(document.querySelector("#turn [data-answer]")?.textContent ?? "");
    opened();
  });
}

function chip(box, url, number) {
  const label = make("span", { className: "vh" }, `${box.dataset.chip} `);
  const link = make("a", { className: "cite", href: `${url}?cite=${number}#mark-${number}` }, label, String(number));
  link.dataset.cite = number;
  return ["\u2060", link];
}

// An answer with its sources as plain text.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy-answer]");
  if (!button) return;
  const turn = button.closest(".turn");
  const text = turn.querySelector("[data-answer]").cloneNode(true);
  for (const one of text.querySelectorAll(".cite")) one.replaceWith(`[${one.dataset.cite}]`);
  const sources = [...turn.querySelectorAll("[data-src]")].map((row) => {
    const file = row.closest(".srcfile").querySelector(".f").textContent;
    return `[${row.dataset.src}] ${file}, ${row.querySelector(".place").textContent}: “${row.querySelector(".q").textContent}”`;
  });
  const blocks = [...text.children].map((one) => one.textContent.replaceAll("\u2060", "").trim());
  copy([...blocks, "", ...sources].join("\n"), button, button.querySelector("span"));
});
