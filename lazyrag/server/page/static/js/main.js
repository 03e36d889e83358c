// Loads the modules that a page has hooks for. Every page gets dialogs, keys and the theme switch.
import { dialogs } from "./dialogs.js";
import { keys } from "./keys.js";

export const root = document.documentElement.dataset.root;
export const say = (text) => { document.getElementById("live").textContent = text; };
export const make = (tag, values, ...inside) => {
  const made = Object.assign(document.createElement(tag), values);
  made.append(...inside);
  return made;
};
const MODULES = {
  "[data-source-root]": "source",
  "[data-ask]": "answer",
  "[data-fragment]": "fragment",
  "[data-live]": "live",
  "[data-upload]": "upload",
  "#ftable": "files",
  "[data-plot]": "plot",
};
for (const [hook, name] of Object.entries(MODULES)) {
  if (document.querySelector(hook)) import(`./${name}.js`).then((module) => module[name]());
}
if (document.querySelector("[data-poll]")) import("./fragment.js").then((module) => module.poll());
dialogs();
keys();
// Enter sends a question as soon as the page is shown: the module of answers may load later.
for (const wait of document.querySelectorAll("form input[name=wait]")) wait.remove(); // the page follows the events
document.addEventListener("keydown", (event) => {
  const form = event.target.closest("[data-ask]");
  if (!form || !event.target.matches("textarea") || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (event.target.value.trim()) form.requestSubmit(form.querySelector("[data-send]"));
});
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });

// The address of `manager="ui"` has a one-time token behind the #: it becomes a session, and leaves the address.
const once = /^#token=(lrg_\w+)$/.exec(location.hash);
const login = document.querySelector("[data-login]");
if (once) {
  const form = make("form", { method: "post", action: `${root}/login`, hidden: true });
  const next = login ? login.dataset.login.slice(root.length) : "/";
  for (const [name, value] of Object.entries({ csrf: document.querySelector("meta[name=csrf]").content, token: once[1], once: 1, next })) {
    form.append(make("input", { name, value }));
  }
  history.replaceState(null, "", location.pathname + location.search);
  document.body.append(form);
  form.submit();
} else if (login && !location.search.includes("other=")) {
  // A link from another site arrives without the cookie; from here it is sent, and with a session there is nothing to ask.
  fetch(location.href).then((answer) => { if (answer.redirected) location.replace(login.dataset.login); });
}

// The theme is in a cookie, so that the server writes it into the page; here it changes without a reload. [data-copy=ID]
// copies a text, and says so for two seconds; [data-dismiss] closes the notice that it stands in.
document.addEventListener("click", async (event) => {
  const [toggle, copy, dismiss] = ["theme-toggle", "copy", "dismiss"].map((one) => event.target.closest(`[data-${one}]`));
  if (toggle || dismiss) event.preventDefault();
  if (toggle) {
    const html = document.documentElement;
    const dark = html.dataset.theme ? html.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    html.dataset.theme = dark ? "light" : "dark";
    document.querySelector("meta[name=color-scheme]").content = html.dataset.theme;
    document.cookie = `lazyrag_theme=${html.dataset.theme}; path=${root || "/"}; max-age=31536000; samesite=strict`;
  } else if (dismiss) {
    dismiss.closest(".note").remove();
    document.getElementById("main").focus();
  } else if (copy) {
    await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent.trim());
    const label = copy.querySelector("span");
    const before = label.textContent;
    label.textContent = copy.dataset.done;
    say(copy.dataset.done);
    setTimeout(() => { label.textContent = before; }, 2000);
  }
});
// A file that was chosen behind a button of ours is named beside it.
document.addEventListener("change", ({ target }) => {
  const name = target.closest(".filepick")?.querySelector("output");
  if (name) name.textContent = target.files[0]?.name ?? "";
});
// A form is sent once.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (event.defaultPrevented || event.target.method !== "post" || !button) return;
  setTimeout(() => { button.disabled = true; button.ariaBusy = "true"; });
});
addEventListener("pageshow", (event) => {
  if (event.persisted) for (const one of document.querySelectorAll("[aria-busy=true]:disabled")) { one.disabled = false; one.ariaBusy = null; }
});
