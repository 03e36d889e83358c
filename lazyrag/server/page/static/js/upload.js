// Uploads: choose, drop (folders, too) or paste. Small files go in one request each; large ones in parts that are checked
// by SHA-256 and continue after a cut, also when the same file is chosen again after a reload.
import { make, root, say } from "./main.js";

const PART = 8 * 1024 * 1024;
const AT_ONCE = 3;
const WAITS_MS = [1000, 2000, 4000, 8000, 15000, 30000];
const hex = (buffer) => [...new Uint8Array(buffer)].map((one) => one.toString(16).padStart(2, "0")).join("");
const sha256 = async (data) => hex(await crypto.subtle.digest("SHA-256", data));
const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

class Refused extends Error {}

async function entries(entry, prefix, found) {
  if (entry.isFile) {
    found.push([prefix + entry.name, await new Promise((done, fail) => { entry.file(done, fail); })]);
  } else {
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((done, fail) => { reader.readEntries(done, fail); });
      if (!some.length) break;
      for (const one of some) await entries(one, `${prefix}${entry.name}/`, found);
    }
  }
}

export function upload() {
  const form = document.querySelector("[data-upload]");
  const input = form.querySelector("input[type=file]");
  const api = form.action.split("?")[0].replace(`${root}/s/`, `${root}/api/v1/sets/`).replace(/\/files$/, "");
  const text = (key) => form.getAttribute(`data-t-${key}`);
  let list = document.getElementById("uploads");
  if (!list) form.after(list = make("section", { id: "uploads", hidden: true }));
  const queue = [];
  let running = 0;

  function row(name) {
    const bar = make("progress", { max: 1, value: 0, ariaLabel: name });
    const state = make("span", { className: "st wait" }, text("waiting"));
    const button = make("button", { className: "btn quiet", type: "button", ariaLabel: `${text("cancel")}: ${name}` }, text("cancel"));
    const line = make("div", { className: "upl" }, make("span", { title: name }, name), bar, state, button);
    list.append(line);
    list.hidden = false;
    const show = (kind, word, share) => {
      state.className = `st ${kind}`;
      state.textContent = share > 0 && share < 1 ? `${word} ${Math.floor(100 * share)} %` : word;
      if (share !== undefined) bar.value = share;
      line.classList.toggle("err", kind === "err");
    };
    const remove = () => { line.remove(); list.hidden = !list.childElementCount; };
    return { line, show, button, remove };
  }

  function send(method, url, body, headers, progress, signal) {
    return new Promise((done, fail) => {
      const request = new XMLHttpRequest();
      request.open(method, url);
      for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
      request.upload.onprogress = (event) => progress?.(event.loaded);
      request.onerror = () => fail(new TypeError("network"));
      request.onabort = () => fail(new DOMException("", "AbortError"));
      request.onload = () => {
        let answer = {};
        try { answer = JSON.parse(request.responseText || "{}"); } catch { /* a proxy's page */ }
        if (request.status < 300) done(answer);
        else if (request.status >= 500 || request.status === 429 || request.status === 408) fail(new TypeError("server"));
        else fail(new Refused([answer.detail, answer.remedy].filter(Boolean).join(" ") || `HTTP ${request.status}`));
      };
      signal.addEventListener("abort", () => request.abort());
      request.send(body);
    });
  }

  // A lost connection is tried again; what the server refuses is not.
  async function patiently(item, work) {
    for (let turn = 0; ; turn += 1) {
      try {
        return await work();
      } catch (error) {
        if (error instanceof Refused || error.name === "AbortError" || turn === WAITS_MS.length) throw error;
        item.view.show("warn", text("retrying"));
        await sleep(WAITS_MS[turn]);
      }
    }
  }

  async function inParts(item) {
    const { file, name, view, abort, labels } = item;
    const json = { "Content-Type": "application/json" };
    const key = await sha256(new TextEncoder().encode(`${name}\n${file.size}\n${file.lastModified}\n${labels}`));
    const about = JSON.stringify({ name, size: file.size, part_size: PART, metadata: labels.length ? { labels } : {} });
    const made = await patiently(item, () => send("POST", `${api}/uploads`, about, { ...json, "Idempotency-Key": key }, null, abort.signal));
    const there = new Set(made.received);
    for (let number = 1; number <= made.parts; number += 1) {
      if (there.has(number)) continue;
      const start = (number - 1) * PART;
      const data = await file.slice(start, start + PART).arrayBuffer();
      const digest = await sha256(data);
      const progress = (loaded) => view.show("run", text("sending"), (start + loaded) / file.size);
      await patiently(item, () => send("PUT", `${api}/uploads/${made.id}/parts/${number}`, data, { "X-Content-SHA256": digest }, progress, abort.signal));
    }
    view.show("run", text("checking"), 1);
    return patiently(item, () => send("POST", `${api}/uploads/${made.id}/complete`, "{}", json, null, abort.signal));
  }

  function whole(item) {
    const { file, name, view, abort, labels } = item;
    const body = new FormData();
    body.append("file", file, name);
    if (labels.length) body.append("metadata", JSON.stringify({ [name]: { labels } }));
    const key = crypto.randomUUID?.() ?? String(Math.random());
    const progress = (loaded) => view.show("run", text("sending"), Math.min(1, loaded / (file.size || 1)));
    return patiently(item, () => send("POST", `${api}/documents`, body, { "Idempotency-Key": key }, progress, abort.signal));
  }

  async function work(item) {
    const { view, name } = item;
    try {
      view.show("run", text("sending"), 0);
      const large = item.file.size > PART && globalThis.crypto?.subtle;
      const found = await (large ? inParts(item) : whole(item));
      const problem = found.files?.find((one) => one.problem)?.problem;
      if (problem) throw new Refused(`${problem.detail} ${problem.remedy}`);
      view.show("ok", text("sent"), 1);
      view.button.remove();
      setTimeout(view.remove, 2500);
      dispatchEvent(new Event("lazyrag:changed"));
    } catch (error) {
      if (error.name === "AbortError") { view.remove(); return; }
      view.show("err", error instanceof Refused ? `${text("refused")}: ${error.message}` : text("failed"));
      Object.assign(view.button, { textContent: text("again"), ariaLabel: `${text("again")}: ${name}` });
      view.button.onclick = () => { view.remove(); add([[name, item.file]]); };
    }
  }

  async function pump() {
    while (running < AT_ONCE && queue.length) {
      const item = queue.shift();
      running += 1;
      work(item).finally(() => {
        running -= 1;
        if (queue.length) { pump(); return; }
        if (running) return;
        say(text("all_sent"));
        if (form.dataset.uploadNext && !list.querySelector(".err")) location.assign(form.dataset.uploadNext);
      });
    }
  }

  function add(files) {
    const labels = (form.elements.labels?.value ?? "").split(/[,，]/).map((one) => one.trim()).filter(Boolean);
    for (const [name, file] of files) {
      const view = row(name);
      const item = { name, file, view, labels, abort: new AbortController() };
      view.button.onclick = () => { item.abort.abort(); if (queue.includes(item)) { queue.splice(queue.indexOf(item), 1); view.remove(); } };
      queue.push(item);
    }
    form.closest("dialog")?.close();
    pump();
  }
  const named = (files) => [...files].map((file) => [file.webkitRelativePath || file.name, file]);

  const isDry = () => form.elements.dry?.checked; // the server estimates first, and shows what it would cost
  input.addEventListener("change", () => { if (isDry()) { form.requestSubmit(); return; } add(named(input.files)); input.value = ""; input.webkitdirectory = false; });
  form.querySelector("[data-folder]")?.addEventListener("click", () => { input.webkitdirectory = true; input.click(); });
  form.addEventListener("submit", (event) => { if (input.files.length && !isDry()) { event.preventDefault(); add(named(input.files)); } });
  addEventListener("paste", (event) => { if (event.clipboardData.files.length) add(named(event.clipboardData.files)); });

  const carries = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0;
  const drag = (by) => (event) => { if (carries(event)) document.body.classList.toggle("dropping", (depth += by) > 0); };
  addEventListener("dragenter", drag(1));
  addEventListener("dragleave", drag(-1));
  addEventListener("dragover", (event) => { if (carries(event)) event.preventDefault(); });
  addEventListener("drop", async (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    depth = 0;
    document.body.classList.remove("dropping");
    const items = [...event.dataTransfer.items].map((one) => one.webkitGetAsEntry?.());
    const found = [];
    const loose = items.some((one) => !one) ? named(event.dataTransfer.files) : [];
    for (const one of items) if (one) await entries(one, "", found);
    add([...found, ...loose]);
  });
  addEventListener("beforeunload", (event) => { if (running) event.preventDefault(); });
}
