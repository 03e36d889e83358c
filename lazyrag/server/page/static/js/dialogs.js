// Native dialogs. [data-dialog=ID] opens one; Escape, a click beside it and method=dialog close it; the focus returns to
// what opened it. Without scripts the same links lead to the dialog at the end of the page, or to a page of its own.
export function dialogs() {
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener) {
      event.preventDefault();
      open(document.getElementById(opener.dataset.dialog), opener);
    } else if (event.target.nodeName === "DIALOG") {
      event.target.close();
    } else if (event.target.closest("[data-dialog-close]")) {
      event.preventDefault();
      event.target.closest("dialog").close();
    }
  });
  // [data-confirm=TITLE] on a form asks before it is sent.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    const dialog = document.getElementById("confirm");
    if (!form.dataset.confirm || !dialog) return;
    event.preventDefault();
    document.getElementById("confirm-h").textContent = form.dataset.confirm;
    document.getElementById("confirm-p").textContent = form.dataset.confirmText ?? "";
    const button = dialog.querySelector("[data-confirmed]");
    button.textContent = form.dataset.confirmButton;
    button.onclick = () => form.submit();
    open(dialog, event.submitter);
  });
  const first = document.querySelector("dialog[data-open]");
  if (first) open(first, null);
}

export function open(dialog, opener) {
  if (!dialog || dialog.open) return;
  dialog.addEventListener("close", () => opener?.isConnected && opener.focus(), { once: true });
  dialog.showModal();
}
