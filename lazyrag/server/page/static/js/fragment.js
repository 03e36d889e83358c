// Replaces a part of the page by the server's HTML of it. `<form data-fragment="results">` and `<a data-fragment=...>`
// load their URL and replace the element with the id `results`; the address changes with it, and Back loads it again.
import { make, say } from "./main.js";

const parse = new DOMParser();
let running = null;

export async function load(url, name, { signal } = {}) {
  const answer = await fetch(url, { headers: { Accept: `text/html; fragment=${name}` }, signal });
  if (answer.redirected || !answer.ok) { location.assign(url); return false; }
  const part = document.getElementById(name);
  const next = parse.parseFromString(await answer.text(), "text/html").body;
  const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
  part.replaceChildren(...next.childNodes);
  if (focused) document.getElementById(focused)?.focus();
  return true;
}

async function go(url, name, push = true) {
  running?.abort();
  running = new AbortController();
  const part = document.getElementById(name);
  part.ariaBusy = "true";
  try {
    if (!(await load(url, name, running))) return;
    if (push) history.pushState({ fragment: name }, "", url);
    recent();
    part.ariaBusy = null;
    const said = part.querySelector("[data-say]");
    if (said) say(said.textContent);
  } catch (error) {
    if (error.name !== "AbortError") location.assign(url);
  }
}

// The last ten searches of a token in this browser, in its storage alone; shown while nothing is searched.
function recent() {
  const who = document.getElementById("results")?.dataset.who;
  if (!who) return;
  const store = `lazyrag.recent:${who}${location.pathname}`;
  try {
    const query = new URLSearchParams(location.search).get("q")?.trim();
    const known = (JSON.parse(localStorage.getItem(store)) ?? []).filter((one) => one !== query);
    if (query) localStorage.setItem(store, JSON.stringify([query, ...known].slice(0, 10)));
    const part = document.querySelector("[data-recent]");
    if (!part || !known.length) return;
    part.hidden = false;
    const link = (q) => make("li", {}, make("a", { href: `?${new URLSearchParams({ q })}`, dir: "auto" }, q));
    part.querySelector("ul").replaceChildren(...known.map(link));
  } catch { /* storage is blocked */ }
}

const address = (form) => {
  const pairs = [...new FormData(form)].filter(([, value]) => value !== "");
  return `${form.action.split("?")[0]}?${new URLSearchParams(pairs)}`;
};

export function fragment() {
  document.addEventListener("submit", (event) => {
    const name = event.target.dataset.fragment;
    if (!name || event.target.method !== "get") return;
    event.preventDefault();
    go(address(event.target), name);
  });
  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (form?.dataset.fragment && event.target.matches("select:not([data-no-submit]), input[type=checkbox], input[type=number]")) form.requestSubmit();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-fragment]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(link.href, link.dataset.fragment);
  });
  recent();
  const first = document.querySelector("[data-fragment]")?.dataset.fragment;
  if (first) history.replaceState({ fragment: first }, "");
  addEventListener("popstate", (event) => { if (event.state?.fragment) go(location.href, event.state.fragment, false); });
}

// [data-poll=NAME] is loaded again every two seconds while it has something [data-unfinished], and nobody is in it.
export function poll() {
  const part = document.querySelector("[data-poll]");
  const busy = () => part.contains(document.activeElement) || document.hidden;
  setInterval(async () => {
    if (!part.querySelector("[data-unfinished]") || busy()) return;
    try {
      await load(location.href, part.dataset.poll);
    } catch { /* it may come back */ }
  }, 2000);
}
