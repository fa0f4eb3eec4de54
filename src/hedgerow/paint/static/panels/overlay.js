/** The choice of how to show the segmentation. */

import { find, make, rove } from "../dom.js";

const MODES = [
  ["classes", "Colours", "The colour of each class"], ["outlines", "Outlines", "Where classes meet"],
  ["probability", "Probability", "The probability of one class"], ["uncertainty", "Uncertainty", "Where the model is unsure"], ["none", "Off", "The image alone"],
];

export function overlayPanel({ app, stage }) {
  const modes = MODES.map(([mode, word, title]) => make("button", { type: "button", class: "segment", role: "radio",
    "aria-checked": "false", "data-mode": mode, title, onclick: () => app.setOverlay({ mode }) }, word));
  const group = make("div", { class: "segments", role: "radiogroup", "aria-label": "Show the segmentation as" }, ...modes);
  const which = make("select", { class: "field", id: "probability-class" });
  const chosen = make("div", { class: "line", hidden: true }, make("label", { for: "probability-class" }, "Class"), which);
  const scale = make("div", { class: "line ramp-line", hidden: true }, make("span", { class: "dim" }, "sure"),
    make("span", { class: "ramp", "aria-hidden": "true" }), make("span", { class: "dim" }, "unsure"));
  const slider = make("input", { type: "range", id: "opacity", min: "5", max: "100", step: "5" });
  const shown = make("output", { for: "opacity", class: "number" });
  const opacity = make("div", { class: "line" }, make("label", { for: "opacity" }, "Opacity"), slider, shown);
  const empty = make("p", { class: "empty", hidden: true }, "The segmentation appears when two classes are painted.");
  const paint = make("input", { type: "range", id: "stroke-opacity", min: "5", max: "100", step: "5" });
  const paintShown = make("output", { for: "stroke-opacity", class: "number" });
  const toggle = make("button", { type: "button", class: "segment", "aria-pressed": "true", id: "strokes", title: "Show the paint (V)",
    onclick: () => app.setStrokes({ shown: !app.strokes.shown }) }, "Paint");
  const strokes = make("div", { class: "line" }, toggle, paint, paintShown);
  paint.setAttribute("aria-label", "Opacity of the paint");
  paint.addEventListener("input", () => app.setStrokes({ opacity: Number(paint.value) / 100, shown: true }));
  const showStrokes = () => {
    paint.value = String(Math.round(app.strokes.opacity * 100));
    paintShown.textContent = app.strokes.shown ? `${paint.value} %` : "off";
    toggle.setAttribute("aria-pressed", String(app.strokes.shown));
  };
  app.on("strokes", showStrokes);
  showStrokes();
  find("#overlay-panel").append(group, chosen, scale, opacity, strokes, empty);
  const choose = rove(group, "button");

  which.addEventListener("change", () => app.setOverlay({ classId: Number(which.value) }));
  slider.addEventListener("input", () => app.setOverlay({ opacity: Number(slider.value) / 100 }));

  const show = () => {
    const { mode, opacity: value, classId } = app.overlay;
    for (const each of modes) each.setAttribute("aria-checked", String(each.dataset.mode === mode));
    choose(modes.find((each) => each.dataset.mode === mode));
    chosen.hidden = mode !== "probability";
    scale.hidden = mode !== "uncertainty";
    slider.disabled = mode === "none";
    slider.value = String(Math.round(value * 100));
    shown.textContent = `${Math.round(value * 100)} %`;
    which.replaceChildren(...app.classes.map((own) => make("option", { value: String(own.id), selected: own.id === classId }, own.name)));
    empty.hidden = stage.overlay.results.size > 0;
  };
  app.on("overlay-style classes project", show);
  app.on("class", (id) => {
    if (app.overlay.mode !== "probability") app.overlay.classId = id;
  });
  app.on("overlay-new", () => (empty.hidden = true));
  app.on("overlay-gone", () => (empty.hidden = false));
  app.on("overlay-new overlay-gone image project", () => {
    const { model, scope } = stage.overlay.results.get(app.image?.id)?.[0] ?? {};
    find("#overlay-model").textContent = model ? `Model: ${model.replace(/^model /, "")}` : "";
    find("#overlay-model").title = { visible: "Segmentation of the part on the screen", whole: "Segmentation of the whole image",
      full: "Segmentation of the whole image by the full model" }[scope] ?? "";
  });
  show();
}
