/** The frame of all dialogs: a head with a close button; a click outside closes the dialog. */

import { icon, make } from "../dom.js";

/** @param {HTMLDialogElement} dialog */
export function frame(dialog, id, title, ...content) {
  const close = make("button", { type: "button", class: "icon-button", "aria-label": "Close", onclick: () => dialog.close() }, icon("close"));
  dialog.replaceChildren(make("div", { class: "dialog-head" }, make("h2", { id }, title), close),
    make("div", { class: "dialog-body" }, ...content));
  if (!dialog.dataset.ready) {
    dialog.dataset.ready = "true";
    dialog.addEventListener("pointerdown", (event) => {
      if (event.target === dialog) dialog.close();
    });
  }
}
