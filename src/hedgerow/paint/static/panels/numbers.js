/** Statistics: painted pixels of each class, the score on held-out strokes, and the time of the last update. */

import { count, find, icon, make } from "../dom.js";

export function numbersPanel({ app }) {
  const root = find("#numbers");

  const fact = (value, words, title) => make("div", { class: "fact", title }, make("dd", {}, value), make("dt", {}, words));

  function bars() {
    const here = app.image?.pixels ?? {};
    const largest = Math.max(1, ...app.classes.map((own) => here[own.id] ?? 0));
    return app.classes.map((own) => {
      const pixels = here[own.id] ?? 0;
      const fill = make("span", { class: "bar-fill" });
      fill.style.width = pixels ? `${Math.max(2, (100 * pixels) / largest)}%` : "0";
      fill.style.background = own.colour;
      return make("li", {}, make("span", { class: "bar-name" }, own.name), make("span", { class: "bar", "aria-hidden": "true" }, fill),
        make("span", { class: "number" }, count(pixels)));
    });
  }

  function show() {
    const numbers = app.numbers.get(app.image?.id);
    const held = numbers?.held_out;
    const seconds = numbers?.seconds;
    const warnings = (numbers?.warnings ?? []).map((text) => make("li", {}, icon("warning"), make("span", {}, text)));
    root.replaceChildren(
      make("dl", { class: "facts" },
        fact(typeof held === "number" ? `${held.toFixed(2)} ± ${numbers.margin.toFixed(2)}` : "–", "held-out score",
          "Mean Dice on strokes that were held out of training, at least 16 pixels from the others"),
        fact(typeof seconds === "number" ? `${seconds.toFixed(2)} s` : "–", "last update", "Time from the stroke to the segmentation"),
        fact(count(Object.values(app.image?.pixels ?? {}).reduce((sum, each) => sum + each, 0)), "pixels here",
          "Painted pixels of the image on the screen")),
      make("ul", { class: "bars", "aria-label": "Painted pixels of each class in this image" }, ...bars()),
      ...(warnings.length ? [make("ul", { class: "warnings", "aria-label": "Warnings" }, ...warnings)] : []));
  }

  let frame = 0; // several changes within a frame are shown once
  app.on("counts image classes project", () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      show();
    });
  });
  show();
}
