/** The common parts of dialogs. */

import { icon, make, timeLeft } from "../dom.js";

/** Fills a dialog: a head with a close button, and content; a click outside closes it. @param {HTMLDialogElement} dialog */
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

/** The progress of a running job, and a button to cancel it. */
export function runningJob({ app, actions }, name, label) {
  const { part, text, left } = app.jobs.get(name);
  const meter = make("progress", { max: 1, "aria-label": label });
  if (part) meter.value = part;
  return [meter, make("p", { class: "dim" }, [text, timeLeft(left)].filter(Boolean).join(" · ")), make("div", { class: "dialog-foot" },
    make("button", { type: "button", class: "button", onclick: () => actions.cancel(name) }, "Cancel"))];
}
