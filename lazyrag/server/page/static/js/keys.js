// Single keys: / [ ] j k e g ? Silent while text is typed or composed, with a modifier, in dialogs, and when switched off.
const STORE = "lazyrag.keys";
const ROWS = ".hit .path a, table.rows tbody tr:not([hidden]) td a.name, .src a.f";

export function keys() {
  let [isOn, chord] = [true, false];
  try { isOn = localStorage.getItem(STORE) !== "off"; } catch { /* storage is blocked */ }
  const box = document.querySelector("[data-keys-switch]");
  if (box) box.checked = isOn;
  box?.addEventListener("change", () => {
    isOn = box.checked;
    try { localStorage.setItem(STORE, isOn ? "on" : "off"); } catch { /* for this page only */ }
  });
  addEventListener("keydown", (event) => {
    if (!isOn || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    if (event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
    const { key } = event;
    if (chord) {
      chord = false;
      const page = { a: "ask", s: "search", f: "files" }[key];
      const link = page && document.querySelector(`.nav a[href$="/${page}"]`);
      if (link) { link.click(); return; }
    }
    chord = key === "g";
    if (key === "/") {
      const field = document.querySelector("#q, [data-filter]");
      if (field) { event.preventDefault(); field.focus(); field.select?.(); }
    } else if (key === "?") {
      document.querySelector("[data-dialog=keys]")?.click();
    } else if (key === "e") {
      document.querySelector("[data-explain]")?.click();
    } else if (key === "j" || key === "k") {
      const rows = [...document.querySelectorAll(ROWS)].filter((row) => row.checkVisibility());
      const at = rows.indexOf(document.activeElement);
      rows[Math.max(0, Math.min(rows.length - 1, at + (key === "j" ? 1 : -1)))]?.focus();
    }
  });
}
