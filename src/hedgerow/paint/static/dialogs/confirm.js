/** Asks before a large area is filled, and what becomes of the paint of a class that is removed. */

import { count, find, make } from "../dom.js";
import { frame } from "./dialog.js";

export function confirmDialog({ app, painting, session }) {
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
  app.on("removes", ({ own, pixels }) => {
    const into = make("select", { class: "field", id: "merge-into" }, make("option", { value: "" }, "nothing: erase it"),
      ...app.classes.filter((each) => each.id !== own.id).map((each) => make("option", { value: String(each.id) }, each.name)));
    const remove = make("button", { type: "button", class: "button primary", onclick: () => {
      dialog.close();
      session.send({ do: "merge", id: own.id, into: into.value === "" ? null : Number(into.value) });
    } }, "Remove");
    const paint = pixels ? [make("p", {}, make("label", { for: "merge-into" }, `Its paint, ${count(pixels)} pixels on all images, becomes `), into)] : [];
    frame(dialog, "confirm-heading", `Remove ${own.name}?`, ...paint,
      make("div", { class: "dialog-foot" }, make("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"), remove));
    dialog.showModal();
    (pixels ? into : remove).focus();
  });
}
