/** First steps; the panel disappears when they are done. */

import { find, icon, make } from "../dom.js";
import { memory } from "../memory.js";

export function hintPanel({ app, stage, actions }) {
  const root = find("#hint");
  let seen = false;
  let segmented = false;
  const touch = matchMedia("(pointer: coarse)").matches;

  const painted = () => app.classes.filter((own) => app.images.some((image) => image.pixels?.[own.id]));

  function steps() {
    const done = painted();
    const [choose, chooseNext] = touch ? ["choose it on the right", "choose it"] : ["press 1", "press 2"];
    const [first, second] = [app.classes[0]?.name ?? "a class", app.classes[1]?.name ?? "another class"];
    return [
      [done.length > 0, "Paint a little ", first, `: ${choose}, then draw on the image.`],
      [done.length > 1, "Paint a little ", second, `: ${chooseNext}. A few short strokes are enough.`],
      [segmented, "Watch the ", "segmentation", " appear, and correct it where it is wrong. “Where next” shows where paint helps most."],
    ];
  }

  function close() {
    seen = true;
    memory.set("hint-seen", true);
    root.hidden = true;
    stage.root.focus();
  }

  function show() {
    seen ||= memory.get("hint-seen", false);
    if (seen || !app.project) return;
    const all = steps();
    const next = all.findIndex(([done]) => !done);
    if (next < 0) {
      seen = true;
      memory.set("hint-seen", true);
      setTimeout(() => (root.hidden = true), 4000);
    }
    const items = all.map(([done, before, name, after], i) =>
      make("li", { class: done ? "done" : i === next ? "next" : "" },
        make("span", { class: "mark", "aria-hidden": "true" }, done ? icon("check") : String(i + 1)),
        make("p", {}, before, make("strong", {}, name), after, make("span", { class: "for-readers" }, done ? " Done." : ""))));
    root.replaceChildren(
      make("div", { class: "hint-head" }, make("h2", {}, "First steps"),
        make("button", { type: "button", class: "icon-button small", "aria-label": "Close the first steps", onclick: close }, icon("close"))),
      make("ol", {}, ...items),
      make("p", { class: "hint-foot" }, touch ? "Two fingers move and zoom. " : "The wheel zooms, Space and dragging moves the view, Alt and the wheel changes the brush size. ",
        make("button", { type: "button", class: "text-button", onclick: () => actions.help() }, "All keys")));
    root.hidden = false;
  }

  app.on("project counts classes", show);
  app.on("overlay-new", () => {
    segmented = true;
    show();
  });
}
