// The search of the site: BM25 over sections, in the browser. Latin words lose their endings; Chinese text is indexed by
// overlapping pairs of characters, so that every Chinese word is found without a dictionary.
"use strict";

const STOP = new Set(
  ("a an and are as at be by can do does for from how i if in is it my of on or should so that the this to use using "
    + "want was we what when where which who why will with you your").split(" "),
);
// Words around the subject of a Chinese question; the pairs across them and the subject would be noise. Single characters
// that are parts of words (引用, 使用, 了解, 给定) count only where a question has them: after such a word, or at the beginning.
const FILLERS = /为什么|怎么样|(?:怎么|怎样|如何)[用把给让]?|^[用把给让](?=.{2})|什么是|是什么|什么|哪些|哪个|多少|可以|能不能|能否|这个|那个|是否|有没有|一下|我想|我要|请问|自己的?|[吗呢的被]|了(?!解)/g;
const HAN = /\p{Script=Han}+/gu;
const WEIGHTS = { title: 3.2, heading: 2.4, text: 1 };

const stems = new Map();
function stem(word) {
  if (!stems.has(word)) stems.set(word, stemmed(word));
  return stems.get(word);
}

function stemmed(word) {
  if (word.length > 4 && word.endsWith("ies")) return `${word.slice(0, -3)}y`;
  for (const end of ["ations", "ation", "ings", "ing", "ers", "ed", "es", "er", "s", "e"]) {
    if (word.length - end.length >= 3 && word.endsWith(end) && !word.endsWith("ss")) {
      const left = word.slice(0, -end.length);
      return left.at(-1) === left.at(-2) ? left.slice(0, -1) : left;
    }
  }
  return word;
}

/** The terms of a text, in order, repeated as in the text. */
function terms(text) {
  const found = [];
  const lower = text.normalize("NFKC").toLowerCase();
  for (const [name] of lower.matchAll(/[\p{Script=Latin}\p{N}_]+/gu)) {
    found.push(stem(name));
    const parts = name.split("_").filter(Boolean);
    if (parts.length > 1) found.push(...parts.map(stem));
  }
  for (const [run] of lower.matchAll(HAN)) {
    if (run.length === 1) found.push(run);
    for (let at = 0; at + 1 < run.length; at++) found.push(run.slice(at, at + 2));
  }
  return found;
}

/** The terms of a query: without the words that every question has, unless nothing else is left. */
function queryTerms(query) {
  const words = query.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter((word) => !STOP.has(word)).join(" ");
  const found = terms(words.replace(FILLERS, " "));
  return [...new Set(found.length ? found : terms(query))];
}

/** Index rows of [address, title of the page, title of the section, text, keywords]. */
function build(rows) {
  const postings = new Map();
  const lengths = [];
  rows.forEach(([address, title, heading, text, keywords = ""], number) => {
    const counts = new Map();
    const add = (value, weight) => {
      const found = terms(value);
      for (const term of found) counts.set(term, (counts.get(term) ?? 0) + weight);
      return found.length;
    };
    // The title of a page counts most where the page begins, and a little in each of its sections.
    add(title, address.includes("#") ? 1.1 : WEIGHTS.title);
    if (heading !== title) add(heading, WEIGHTS.heading);
    add(keywords, WEIGHTS.title);
    lengths.push(add(text, WEIGHTS.text) + 20);
    for (const [term, count] of counts) {
      if (!postings.has(term)) postings.set(term, []);
      postings.get(term).push([number, count]);
    }
  });
  const average = lengths.reduce((sum, length) => sum + length, 0) / (lengths.length || 1);
  return { rows, postings, lengths, average };
}

// Pages of names, figures and internals have every word; a guide on the subject comes first.
const PRIOR = [
  [/^(api|decisions|internals|cookbook)\//, 0.62],
  [/^(changelog|quality|performance|registries|upgrading|spec-\d+|glossary|structured-rag)\.html/, 0.6],
  [/^(guide|figures)\.html/, 0.85], // long: something of everything
];
const prior = (address) => PRIOR.find(([pattern]) => pattern.test(address))?.[1] ?? 1;

/** Pages, best first: {address, title, score, sections: [{address, heading, text, score}]}. */
function find(index, query, most = 12) {
  const wanted = queryTerms(query);
  const scores = new Map();
  const hits = new Map();
  for (const term of wanted) {
    const found = index.postings.get(term) ?? [];
    const idf = Math.log(1 + (index.rows.length - found.length + 0.5) / (found.length + 0.5));
    for (const [number, count] of found) {
      const norm = 1.2 * (0.4 + (0.6 * index.lengths[number]) / index.average);
      scores.set(number, (scores.get(number) ?? 0) + (idf * count * 2.2) / (count + norm));
      hits.set(number, (hits.get(number) ?? 0) + 1);
    }
  }
  const pages = new Map();
  for (const [number, score] of scores) {
    const [address, title, heading, text] = index.rows[number];
    const page = address.split("#")[0];
    const whole = score * (0.4 + (0.6 * hits.get(number)) / wanted.length) * prior(address);
    if (!pages.has(page)) pages.set(page, { address: page, title, score: 0, sections: [] });
    pages.get(page).sections.push({ address, heading, text, score: whole });
  }
  for (const page of pages.values()) {
    page.sections.sort((one, other) => other.score - one.score || (one.address < other.address ? -1 : 1));
    // The best section decides; others that answer, too, count less and less.
    page.score = page.sections.slice(0, 4).reduce((sum, section, at) => sum + section.score * 0.35 ** at, 0);
  }
  return [...pages.values()]
    .sort((one, other) => other.score - one.score || (one.address < other.address ? -1 : 1))
    .slice(0, most);
}

/** The part of a text around the first words of the query, as [text, isMarked] pieces. */
function excerpt(text, query, length = 150) {
  const stems = new Set(queryTerms(query));
  const spots = [];
  for (const match of text.matchAll(/[\p{Script=Latin}\p{N}_]+/gu)) {
    if (terms(match[0]).some((term) => stems.has(term))) spots.push([match.index, match.index + match[0].length]);
  }
  for (const match of text.matchAll(HAN)) {
    for (let at = 0; at + 1 < match[0].length; at++) {
      if (stems.has(match[0].slice(at, at + 2))) spots.push([match.index + at, match.index + at + 2]);
    }
  }
  spots.sort((one, other) => one[0] - other[0]);
  const begin = Math.max(0, (spots[0]?.[0] ?? 0) - 40);
  const end = Math.min(text.length, begin + length);
  const pieces = begin ? [["… ", false]] : [];
  let at = begin;
  for (const [from, to] of spots) {
    if (to > end) break;
    if (to <= at) continue;
    pieces.push([text.slice(at, Math.max(at, from)), false], [text.slice(Math.max(at, from), to), true]);
    at = to;
  }
  pieces.push([text.slice(at, end) + (end < text.length ? " …" : ""), false]);
  return pieces.filter(([piece]) => piece);
}

globalThis.siteSearch = { build, find, terms, queryTerms, excerpt };

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function start() {
  const dialog = document.querySelector("dialog.site-search");
  const input = dialog.querySelector("input");
  const status = dialog.querySelector("[role=status]");
  const list = dialog.querySelector("ol");
  const { root, none, some, one } = dialog.dataset;
  let index;

  const load = () =>
    (index ??= new Promise((resolve, reject) => {
      document.head.append(element("script", {
        src: dialog.dataset.index, onload: () => resolve(build(globalThis.siteIndex)), onerror: reject,
      }));
    }));

  const marked = (text) => excerpt(text, input.value).map(([piece, is]) => (is ? element("mark", {}, piece) : piece));

  async function show() {
    const query = input.value.trim();
    const pages = query ? find(await load(), query) : [];
    if (query !== input.value.trim()) return;
    status.textContent = !query ? "" : !pages.length ? none : pages.length === 1 ? one : some.replace("{n}", pages.length);
    list.replaceChildren(...pages.map((page) => {
      const item = element("li");
      for (const section of page.sections.slice(0, 2)) {
        const isPage = section.address === page.address;
        const title = element("span", { className: "site-search-title" }, page.title);
        if (!isPage && section.heading !== page.title) title.append(" › ", section.heading);
        item.append(element("a", { href: `${root}/${section.address}` }, title,
          element("span", { className: "site-search-text" }, ...marked(section.text))));
      }
      return item;
    }));
  }

  function open() {
    load();
    if (!dialog.open) dialog.showModal();
    input.select();
  }

  document.querySelector("[data-site-search]").addEventListener("click", open);
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
    if ((event.key === "/" && !isTyping) || (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault();
      event.stopImmediatePropagation();
      open();
    }
  }, true);
  input.addEventListener("input", show);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  list.addEventListener("click", (event) => event.target.closest("a") && dialog.close());
  dialog.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "ArrowDown" && links.length) (links[at + 1] ?? links[0]).focus();
    else if (event.key === "ArrowUp" && at >= 0) (links[at - 1] ?? input).focus();
    else if (event.key === "Escape") dialog.close(); // the field would only clear itself
    else if (event.key === "Enter" && document.activeElement === input && links.length) links[0].click();
    else return;
    event.preventDefault();
  });
}

/** The theme's script makes the copy buttons and the frames of wide tables: name them for assistive technology. */
function tidy() {
  document.querySelectorAll("nav.md-code__nav").forEach((one, number) => {
    const label = `${one.querySelector("button")?.title ?? ""} ${number + 1}`;
    if (one.ariaLabel !== label) one.ariaLabel = label;
  });
  for (const one of document.querySelectorAll(".md-typeset__scrollwrap, .highlight pre > code")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  }
  document.querySelector("nav.md-path")?.setAttribute("aria-label", document.querySelector("h1")?.innerText ?? "");
}

if (typeof document !== "undefined") {
  start();
  new MutationObserver(tidy).observe(document.querySelector("article"), { childList: true, subtree: true });
  tidy();
}
