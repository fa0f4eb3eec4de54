/** The list of models: the one that follows the paint, and those that were made here. One is shown and exported. */

import { find, make } from "../dom.js";

export function modelsPanel({ app, actions }) {
  const root = find("#models");

  function row(number, title, text, older) {
    const radio = make("input", { type: "radio", name: "model", value: String(number ?? "") });
    radio.checked = number === app.currentModel;
    radio.addEventListener("change", () => {
      actions.chooseModel(number);
      radio.checked = number === app.currentModel; // the server says what is shown
    });
    return make("label", { class: "model", title: text }, radio, make("span", {}, make("span", { class: "model-title" }, title),
      make("span", { class: "dim" }, older ? "older than the paint" : text)));
  }

  app.on("models", () => {
    const focused = root.contains(document.activeElement) && /** @type {HTMLInputElement} */ (document.activeElement).value;
    root.hidden = !app.models.length;
    const made = app.models.map(({ number, title, text, older }) => row(number, title, text, older)).reverse();
    root.replaceChildren(row(null, "Follow the paint", "trained again after every stroke", false), ...made);
    if (typeof focused === "string") root.querySelector(`input[value="${focused}"]`)?.focus();
  });
}
