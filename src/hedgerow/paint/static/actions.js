/** The actions of buttons and keys. */

import { memory } from "./memory.js";
import { clamp } from "./view.js";

const MAX_SKIPPED = 200; // the limit of the server

/** @param {import("./app.js").App} app @param {import("./session.js").Session} session */
export function makeActions(app, session, stage, toolbox, painting) {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  /** @type {Map<number, number[][]>} places of each image that were suggested since its last stroke */
  const suggested = new Map();
  let searching = false; // for the place to paint next
  const wait = (on) => {
    searching = on;
    app.emit("searching", on);
  };
  const actions = {
    undo() {
      if (toolbox.undoStep()) return;
      if (app.undo) session.send({ do: "undo" });
      else app.notify("There is nothing to undo.", "quiet");
    },
    redo() {
      if (app.redo) session.send({ do: "redo" });
      else app.notify("There is nothing to redo.", "quiet");
    },
    escape() {
      if (!toolbox.cancel()) {
        stage.marks.suggest(null);
        app.emit("suggestion-closed");
        stage.marks.crosshair = null;
        stage.marks.redraw();
      }
    },
    live() {
      if (!session.send({ do: "live", on: !app.live })) return;
      app.live = !app.live;
      app.emit("live");
      app.notify(app.live ? "Live is on: the image is segmented after every stroke." : "Live is off.", "quiet");
    },
    /** Suggests a place in this image, or in all of them; asked again, another place. */
    next(everywhere = false) {
      const image = everywhere ? null : app.image?.id;
      if (searching || !app.image || !session.send({ do: "next", image, skip: suggested.get(app.image.id) ?? [] })) return;
      wait(true);
      setTimeout(() => wait(false), 30000);
    },
    train() {
      if (session.send({ do: "train" })) app.notify("Training on all painted images.", "quiet");
    },
    improve(how) {
      return session.send({ do: "improve", how });
    },
    chooseModel(number) {
      session.send({ do: "model", number });
    },
    cancel(job) {
      session.send({ do: "cancel", job });
    },
    opacity(by) {
      const opacity = clamp(Math.round((app.overlay.opacity + by) * 20) / 20, 0.05, 1);
      app.setOverlay({ opacity });
      app.notify(`Opacity ${Math.round(opacity * 100)} %.`, "quiet");
    },
    changeClass(id, change) {
      return session.send({ do: "class", id, ...change });
    },
    /** Paints what is segmented as a class and not painted yet. */
    acceptClass(id) {
      if (app.image) painting.whole("accept-class", [[0, 0]], { class: id });
    },
    sendView() {
      if (!app.image || !session.connection.isOpen) return;
      const { rows, cols } = stage.view.region;
      if (rows[1] <= rows[0] || cols[1] <= cols[0]) return;
      session.connection.send({ do: "view", image: app.image.id, level: stage.view.level, rows, cols });
    },
    theme() {
      const { dataset } = document.documentElement;
      dataset.theme = dataset.theme === "dark" ? "light" : "dark";
      memory.set("theme", dataset.theme);
    },
  };
  app.on("next", ({ image, row, col, why, class: likely }) => {
    wait(false);
    app.show(image);
    suggested.set(image, [...(suggested.get(image) ?? []), [row, col]].slice(-MAX_SKIPPED));
    const { view } = stage;
    const close = Math.max(view.scale, clamp(view.fitScale * 2.5, 1, 4));
    view.flyTo(...view.centred(row + 0.5, col + 0.5, close), close, still.matches);
    stage.marks.suggest(row + 0.5, col + 0.5);
    app.emit("suggested", { why, likely: app.classes.find((own) => own.id === likely) });
  });
  app.on("stroke-ends", () => suggested.delete(app.image?.id)); // the model learns from it, and judges all places anew
  app.on("stroke-ends image", () => stage.marks.suggest(null));
  app.on("failed", ({ job }) => {
    if (job === "next") wait(false);
  });
  return actions;
}
