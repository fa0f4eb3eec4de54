/** Tools, size of the brush, undo and redo, and the image alone. */

import { find, icon, make, rove } from "../dom.js";
import { TOOLS } from "../tools/index.js";

export function toolbar({ app, stage, actions }) {
  const root = find("#toolbar");
  const button = (name, title, key, run, more = {}) =>
    make("button", { type: "button", class: "tool", id: `tool-${name}`, "aria-label": title,
      title: key ? `${title} (${key})` : title, onclick: run, ...more }, icon(name));

  const tools = TOOLS.map(({ name, key, title }) =>
    button(name, title, key.toUpperCase(), () => app.setTool(name), { "aria-pressed": "false" }));
  const size = make("input", { type: "range", id: "radius", class: "size", min: "0", max: "100", step: "1",
    "aria-label": "Radius of the brush", title: "Brush size ([ and ])" });
  const shown = make("output", { class: "size-shown", for: "radius", title: "Radius in pixels of the image" });
  const tolerance = make("input", { type: "range", id: "tolerance", class: "size", min: "1", max: "60", step: "1",
    "aria-label": "Tolerance of the wand", title: "Tolerance of the wand, in percent of the brightness" });
  const undo = button("undo", "Undo", "Ctrl+Z", actions.undo);
  const redo = button("redo", "Redo", "Ctrl+Y", actions.redo);
  const compare = button("compare", "Hold to see the image alone", "C", () => {});
  const group = (label, ...children) => make("div", { class: "tool-group", role: "group", "aria-label": label }, ...children);
  root.append(group("Draw", ...tools), group("Size", size, tolerance, shown), group("History", undo, redo),
    group("View", compare));
  rove(root, "button");

  for (const [name, on] of [["pointerdown", true], ["pointerup", false], ["pointerleave", false], ["blur", false]]) {
    compare.addEventListener(name, () => app.setComparing(on));
  }
  compare.addEventListener("keydown", (event) => {
    if ([" ", "Enter"].includes(event.key)) app.setComparing(true);
  });
  compare.addEventListener("keyup", () => app.setComparing(false));

  // The slider is logarithmic: a radius of one pixel is as easy to set as one of a hundred.
  const maxRadius = () => Math.min(app.limits.radius, 200);
  const toRadius = (value) => 0.5 * (maxRadius() / 0.5) ** (value / 100);
  size.addEventListener("input", () => app.setRadius(toRadius(Number(size.value))));
  const showRadius = () => {
    size.value = String(Math.round((100 * Math.log(app.radius / 0.5)) / Math.log(maxRadius() / 0.5)));
    const rounded = Math.round(app.radius * 10) / 10;
    const wand = app.tool === "wand";
    size.hidden = wand;
    tolerance.hidden = !wand;
    tolerance.value = String(app.tolerance);
    shown.textContent = wand ? `${app.tolerance} %` : `${rounded} px`;
    size.setAttribute("aria-valuetext", `${rounded} pixels`);
  };
  tolerance.addEventListener("input", () => {
    app.tolerance = Number(tolerance.value);
    showRadius();
  });
  const showTool = () => {
    showRadius();
    for (const each of TOOLS) find(`#tool-${each.name}`).setAttribute("aria-pressed", String(each.name === app.tool));
    stage.root.dataset.tool = app.tool;
  };
  app.on("radius project", showRadius);
  app.on("tool", showTool);
  app.on("history", () => {
    undo.disabled = !app.undo;
    redo.disabled = !app.redo;
  });
  showRadius();
  showTool();
}
