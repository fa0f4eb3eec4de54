/** Thumbnails of all images, with dots for the classes that are painted in each. */

import { stateOf } from "../dialogs/images.js";
import { find, make, rove } from "../dom.js";

export function stripPanel({ app }) {
  const root = find("#strip");
  /** @type {(chosen: Element) => void} */
  let choose = () => {};
  const near = new IntersectionObserver((entries) => {
    for (const { target: element, isIntersecting } of entries) {
      const target = /** @type {HTMLImageElement} */ (element);
      if (!isIntersecting || target.src) continue;
      target.src = `api/images/${target.dataset.image}/thumbnail`;
      near.unobserve(target);
    }
  }, { root, rootMargin: "400px" });

  function thumbnail(image) {
    const picture = make("img", { alt: "", width: 64, height: 64, "data-image": String(image.id), draggable: false });
    near.observe(picture);
    return make("button", { type: "button", class: "thumb", "data-id": String(image.id), tabIndex: -1,
      onclick: () => app.show(image.id) }, picture, make("span", { class: "thumb-name" }, image.name), make("span", { class: "dots" }));
  }

  function build() {
    const known = [...root.querySelectorAll(".thumb")].map((each) => Number(each.dataset.id));
    root.hidden = app.images.length < 2;
    document.body.classList.toggle("has-strip", !root.hidden);
    if (known.join() !== app.images.map((each) => each.id).join()) {
      root.replaceChildren(...app.images.map(thumbnail));
      choose = rove(root, ".thumb");
    }
    mark();
  }

  function mark(only = null) {
    for (const button of root.querySelectorAll(".thumb")) {
      const image = app.picture(Number(button.dataset.id));
      if (only && !only.includes(image.id)) continue;
      const painted = app.classes.filter((own) => image.pixels?.[own.id]);
      const total = painted.reduce((sum, own) => sum + image.pixels[own.id], 0);
      button.setAttribute("aria-current", String(image === app.image));
      const state = stateOf(image, total);
      button.setAttribute("aria-label", `${image.name}, ${state}`);
      button.title = `${image.name}: ${state}`;
      button.classList.toggle("unreadable", Boolean(image.problem));
      const dots = painted.slice(0, 6).map((own) => {
        const dot = make("i", { class: "dot" });
        dot.style.background = own.colour;
        return dot;
      });
      button.querySelector(".dots").replaceChildren(...dots);
    }
  }

  app.on("project", build);
  app.on("classes images", () => mark());
  app.on("counts", mark);
  app.on("leave", ({ id }) => root.querySelector(`[data-id="${id}"]`)?.setAttribute("aria-current", "false"));
  app.on("image", ({ id }) => {
    mark([id]);
    const own = root.querySelector('[aria-current="true"]');
    if (!own) return;
    choose(own);
    own.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}
