/** Asks before a large area is filled. */

import { count, find, make } from "../dom.js";
import { frame } from "./dialog.js";

export function confirmDialog({ app, painting }) {
  const dialog = find("#confirm-dialog");
  app.on("asks", ({ stroke, pixels }) => {
    const name = app.classes.find((own) => own.id === stroke.class)?.name ?? "";
    const fill = make("button", { type: "button", class: "button primary", onclick: () => {
      dialog.close();
      painting.fillAll(stroke);
    } }, "Fill");
    frame(dialog, "confirm-heading", "Fill a large area?", make("p", {}, `This paints ${count(pixels)} pixels with ${name}.`),
      make("div", { class: "dialog-foot" }, make("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"), fill));
    dialog.showModal();
    fill.focus();
  });
}
