// Selection of rows, the bar below them, the countdown of an undo, and the text filter.
export function files() {
  const bar = document.getElementById("sel");
  const boxes = () => [...document.querySelectorAll("#ftable tbody input[name=id]")];

  function count() {
    const all = boxes();
    const chosen = all.filter((box) => box.checked).length;
    document.getElementById("ftable")?.classList.toggle("picking", chosen > 0);
    if (!bar) return;
    bar.classList.toggle("on", chosen > 0);
    bar.querySelector("b").textContent = chosen === 1 ? bar.dataset.one : bar.dataset.many.replace("#", chosen);
    const every = document.querySelector("[data-all]");
    if (every) { every.checked = chosen > 0 && chosen === all.length; every.indeterminate = chosen > 0 && chosen < all.length; }
  }

  let last = null;
  document.addEventListener("click", (event) => {
    const box = event.target.closest?.("#ftable input[name=id]");
    if (!box) return;
    const all = boxes();
    if (event.shiftKey && last?.isConnected) {
      const [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
      for (const one of all.slice(from, to + 1)) one.checked = box.checked;
    }
    last = box;
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.matches("#ftable input")) count();
  });
  bar?.addEventListener("reset", () => { for (const box of boxes()) box.checked = false; setTimeout(count); });
  addEventListener("lazyrag:rows", count);
  count();

  // The search of names runs while one types.
  let timer = 0;
  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-filter]") || event.isComposing) return;
    clearTimeout(timer);
    timer = setTimeout(() => event.target.form?.requestSubmit(), 250);
  });

  // A deletion can be undone for some seconds.
  setInterval(() => {
    for (const note of document.querySelectorAll("[data-undo]")) {
      const until = note.until ??= performance.now() + 1000 * note.dataset.undo;
      const left = Math.ceil((until - performance.now()) / 1000);
      if (left > 0) note.querySelector("[data-left]").textContent = left;
      else { note.remove(); setTimeout(() => dispatchEvent(new Event("lazyrag:changed")), 800); }
    }
  }, 250);
}
