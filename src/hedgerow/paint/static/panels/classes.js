/** The list of classes: choose one to paint with, rename, recolour, hide or lock it. */

import { freeColour, textOn } from "../colours.js";
import { count, find, icon, make } from "../dom.js";

export function classesPanel({ app, actions }) {
  const root = find("#classes");
  let editing = null; // the id of the class whose name is being changed

  const painted = (id) => app.images.reduce((sum, image) => sum + (image.pixels?.[id] ?? 0), 0);

  function row(own, place) {
    const chosen = own.id === app.classId;
    if (own.id === editing) return editor(own);
    const digit = place < 9 ? String(place + 1) : "";
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" }, digit);
    swatch.style.background = own.colour;
    swatch.style.color = textOn(own.colour);
    const radio = make("input", { type: "radio", name: "class", value: String(own.id), class: "class-radio" });
    radio.checked = chosen;
    radio.addEventListener("change", () => app.setClass(own.id));
    const label = make("label", { class: "class-choose", title: digit ? `Paint with this class (${digit})` : "Paint with this class" },
      radio, swatch, make("span", { class: "class-name" }, own.name),
      make("span", { class: "class-count dim" }, ...counted(own.id)));
    const stop = chosen ? 0 : -1; // only the buttons of the chosen class are stops of the Tab key
    const button = (symbol, title, on, run) => make("button", { type: "button", class: `icon-button small${on ? " on" : ""}`,
      "aria-label": `${title} ${own.name}`, title, tabIndex: stop, onclick: run, "data-act": symbol }, icon(symbol));
    return make("div", { class: `class${chosen ? " chosen" : ""}${own.hidden ? " is-hidden" : ""}`, "data-id": String(own.id) },
      label,
      make("div", { class: "class-tools" },
        button("accept", "Accept the segmentation as paint:", false, () => actions.acceptClass(own.id)),
        button("pencil", "Rename or recolour", false, () => edit(own.id)),
        button(own.hidden ? "eye-off" : "eye", own.hidden ? "Show" : "Hide", own.hidden,
          () => actions.changeClass(own.id, { hidden: !own.hidden })),
        button(own.locked ? "lock" : "unlock", own.locked ? "Unlock" : "Lock", own.locked,
          () => actions.changeClass(own.id, { locked: !own.locked }))));
  }

  function counted(id) {
    const pixels = painted(id);
    return [pixels ? short(pixels) : "", make("span", { class: "for-readers" }, pixels ? " pixels painted" : "not painted yet")];
  }

  function recount() {
    for (const shown of root.querySelectorAll(".class-count")) {
      shown.replaceChildren(...counted(Number(shown.closest("[data-id]").dataset.id)));
    }
  }

  function editor(own) {
    const name = make("input", { type: "text", class: "field", "aria-label": "Name of the class", maxLength: 60 });
    name.value = own.name;
    const colour = make("input", { type: "color", class: "colour", "aria-label": "Colour of the class" });
    colour.value = own.colour;
    colour.addEventListener("change", () => actions.changeClass(own.id, { colour: colour.value }));
    const done = () => {
      const renamed = name.value.trim() || own.name;
      leave(own.id);
      if (renamed !== own.name) actions.changeClass(own.id, { name: renamed });
    };
    const place = app.classes.indexOf(own);
    const small = (symbol, title, run, disabled = false) => make("button", { type: "button", class: "icon-button small",
      "aria-label": `${title} ${own.name}`, title, disabled, onclick: run }, icon(symbol));
    const move = (step) => actions.changeClass(own.id, { place: place + step });
    const form = make("form", { class: "class editing", "data-id": String(own.id) }, colour, name,
      small("up", "Move up", () => move(-1), place === 0), small("down", "Move down", () => move(1), place === app.classes.length - 1),
      small("trash", "Remove or merge", () => {
        leave(own.id);
        app.emit("removes", { own, pixels: painted(own.id) });
      }),
      make("button", { type: "submit", class: "icon-button small", "aria-label": "Done", title: "Done (Enter)" }, icon("check")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      done();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      leave(own.id);
    });
    queueMicrotask(() => {
      if (form.contains(document.activeElement)) return;
      name.focus();
      name.select();
    });
    return form;
  }

  function edit(id) {
    editing = id;
    if (app.classId !== id) app.setClass(id);
    show();
  }

  function leave(id) {
    editing = null;
    show();
    root.querySelector(`[data-id="${id}"] input`)?.focus();
  }

  function show() {
    const active = /** @type {HTMLElement|null} */ (document.activeElement);
    /** @type {HTMLElement|null|undefined} */
    const focused = active?.closest?.("#classes [data-id]");
    const focus = focused && { id: focused.dataset.id, act: active.dataset.act };
    if (editing !== null && focused?.matches(".editing")) return; // the user is typing
    root.replaceChildren(...app.classes.map(row));
    if (!app.classes.length) root.append(make("p", { class: "empty" }, "There are no classes yet. Add one for each kind of area to distinguish."));
    if (focus && editing === null) {
      const again = root.querySelector(`[data-id="${focus.id}"]`);
      const acts = { eye: "eye-off", "eye-off": "eye", lock: "unlock", unlock: "lock" };
      const same = focus.act && (again?.querySelector(`[data-act="${focus.act}"]`) ??
        again?.querySelector(`[data-act="${acts[focus.act]}"]`));
      (same || again?.querySelector("input"))?.focus();
    }
  }

  root.addEventListener("dblclick", (event) => {
    const own = event.target.closest(".class:not(.editing)");
    if (own && !event.target.closest("button")) edit(Number(own.dataset.id));
  });
  find("#add-class").addEventListener("click", () => {
    if (app.classes.length >= app.limits.classes) {
      app.notify(`There are ${app.limits.classes} classes already; no more can be added.`, "warning");
      return;
    }
    const taken = new Set(app.classes.map((each) => each.name));
    let number = app.classes.length + 1;
    while (taken.has(`class ${number}`)) number += 1;
    const known = new Set(app.classes.map((each) => each.id));
    if (!actions.changeClass(null, { name: `class ${number}`, colour: freeColour(app.classes), hidden: false, locked: false })) return;
    added = known;
  });
  let added = null; // the ids before a class was added; the new class is then chosen and renamed
  app.on("classes", () => {
    const fresh = added && app.classes.find((each) => !added.has(each.id));
    if (fresh) {
      added = null;
      edit(fresh.id);
    } else show();
  });
  app.on("class project", show);
  app.on("counts", recount);
}

/** 812 -> "812", 12345 -> "12.3k" */
function short(number) {
  if (number < 10000) return count(number);
  return number < 1e6 ? `${(number / 1e3).toFixed(1)}k` : `${(number / 1e6).toFixed(1)}M`;
}
