/** The list of all images and their state, and of the files that are left out. */

import { count, find, icon, make } from "../dom.js";
import { frame } from "./dialog.js";

/** The state of an image in a few words. @param {import("../app.js").Picture} image @param {number} painted pixels */
export function stateOf(image, painted) {
  if (image.problem) return "cannot be read";
  return painted ? `${count(painted)} pixels painted` : "not painted";
}

export function imagesDialog({ app }) {
  const dialog = find("#images-dialog");
  const button = find("#images");
  const shownProblem = find("#image-problem");
  const painted = (image) => Object.values(image.pixels ?? {}).reduce((sum, n) => sum + n, 0);

  function row(image) {
    const why = image.problem ? make("span", { class: "dim" }, image.problem) : null;
    return make("li", {}, make("button", { type: "button", class: "image-row", "aria-current": String(image === app.image), onclick: () => {
      app.show(image.id);
      dialog.close();
    } }, image.problem ? icon("warning") : icon(painted(image) ? "brush" : "file"), make("strong", {}, image.name),
    make("span", { class: "image-state" }, stateOf(image, painted(image)))), why);
  }

  function show() {
    const leftOut = app.project.left_out.map((why) => make("li", {}, icon("warning"), make("span", {}, why)));
    frame(dialog, "images-heading", "Images", make("ul", { class: "image-list" }, ...app.images.map(row)),
      ...(leftOut.length ? [make("h3", {}, "Left out"), make("ul", { class: "left-out" }, ...leftOut)] : []),
      make("p", { class: "dim" }, "Images that cannot be read are left out of training. Repair the file, and it is used again when it is next shown."));
  }

  app.on("images image project", () => {
    const problem = app.image?.problem ?? "";
    shownProblem.hidden = !problem;
    shownProblem.replaceChildren(icon("warning"), make("p", {}, problem));
    const bad = app.images.filter((image) => image.problem).length + (app.project?.left_out.length ?? 0);
    button.toggleAttribute("data-problems", bad > 0);
    button.title = bad ? `All images: ${bad} with problems` : "All images and their state";
    button.setAttribute("aria-label", button.title);
    if (dialog.open) show();
  });
  button.addEventListener("click", () => {
    show();
    dialog.showModal();
  });
  app.on("project", ({ left_out: all }) => {
    if (all.length) app.notify(`${all.length === 1 ? "One file is" : `${all.length} files are`} left out; see the list of images.`, "warning");
  });
}
