// The query bar, and an answer while it is written: events add text nodes and chips, `done` brings the server's HTML. A
// stream that is cut goes on by Last-Event-ID; a page that is loaded again behind `after`.
import { load } from "./fragment.js";
import { make, say } from "./main.js";

export function answer() {
  const form = document.querySelector("[data-ask]");
  const field = form.querySelector("textarea");
  form.addEventListener("click", ({ target }) => { // the other verb takes the text with it
    if (!target.matches("[data-verb]") || !field.value) return;
    const url = new URL(target.href);
    url.searchParams.set("q", field.value);
    target.href = url.href;
  });
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
  const timers = [
    setTimeout(() => { if (!box.textContent) slow.textContent = box.dataset.slow; }, 3000),
    setTimeout(() => { if (!box.textContent) slow.textContent = box.dataset.slower; }, 10000),
  ];
  const events = new EventSource(box.dataset.events);
  events.addEventListener("open", () => { lost.hidden = true; });
  events.addEventListener("error", () => { lost.hidden = events.readyState === EventSource.OPEN; });
  const write = writer(box, caret, url);
  const there = [...box.childNodes].filter((one) => one !== caret);
  box.replaceChildren(caret);
  for (const one of there) write(one.dataset ? +one.dataset.cite : one.data.replace("\u2060", ""));
  const add = (event) => {
    JSON.parse(event.data).forEach(write);
    slow.textContent = "";
  };
  events.addEventListener("text", add);
  events.addEventListener("checked", ({ data }) => { document.querySelector("[data-checked]").textContent = JSON.parse(data); });
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

// Writes pieces before the caret: the rows of a table when they are whole, without the rule below its head.
function writer(box, caret, url) {
  const nodes = (piece) => (typeof piece === "string" ? [piece] : chip(box, url, piece));
  let row = null;
  let begins = true;
  return (piece) => {
    for (const part of typeof piece === "string" ? piece.split(/(?<=\n)/) : [piece]) {
      if (begins && part[0] === "|") row = [];
      begins = `${part}`.endsWith("\n");
      if (row) row.push(part);
      else caret.before(...nodes(part));
      if (!begins || !row) continue;
      if (!/^[|:\s-]+$/.test(row.join(""))) caret.before(cells(row, nodes));
      row = null;
    }
  };
}

function cells(row, nodes) {
  const line = make("span", { className: "tr" }, make("span"));
  for (const part of row) {
    const [first, ...more] = `${part}`.split("|");
    line.lastChild.append(...nodes(part === +part ? part : first));
    line.append(...more.map((text) => make("span", {}, text)));
  }
  for (const end of [line.firstChild, line.lastChild]) if (!end.textContent.trim()) end.remove();
  return line;
}

function chip(box, url, number) {
  const label = make("span", { className: "vh" }, `${box.dataset.chip} `);
  const link = make("a", { className: "cite", href: `${url}?cite=${number}#mark-${number}` }, label, String(number));
  link.dataset.cite = number;
  return ["\u2060", link];
}
