/** The state of the page, and the events that announce its changes; all other modules share it. */

/**
 * @typedef {{id: number, name: string, height: number, width: number, n_channels: number, type: string,
 *   low: number|number[], high: number|number[], n_levels: number, labels: number, pixels: Object<string, number>,
 *   problem: string}} Picture problem: why it cannot be read; empty: it can
 * @typedef {{id: number, name: string, colour: string, hidden: boolean, locked: boolean}} Class
 * @typedef {{title: string, folder: string, windows: number, live: boolean, images: Picture[], left_out: string[], page: Record<string, any>, classes: Class[],
 *   models: {models: object[], current: number|null},
 *   can: Object<string, any>, undo: number, redo: number, limits: Object<string, number>}} Project
 */

import { clamp } from "./view.js";

export const UNPAINTED = 255;
export const RADIUS_STEP = 1 / 8; // radius and points are multiples of it, so that page and server compute the same

const OPACITIES = { classes: 0.45, outlines: 1, probability: 0.7, uncertainty: 0.7, none: 0.45 };
const LIMITS = { radius: 512, points: 4096, classes: 64, fill: 4194304 };

export class App {
  constructor() {
    /** @type {Map<string, Function[]>} */
    this.listeners = new Map();
    /** @type {Project|null} */
    this.project = null;
    /** @type {Picture|null} the image on the screen */
    this.image = null;
    /** @type {Picture[]} */
    this.images = [];
    /** @type {Map<number, Picture>} the same images, by id */
    this.pictures = new Map();
    /** @type {Class[]} */
    this.classes = [];
    this.limits = LIMITS;
    this.can = {};
    this.tool = "brush";
    this.classId = 0;
    this.radius = 6;
    this.tolerance = 10; // of the wand, percent of the range of brightness
    this.overlay = { mode: "classes", opacity: OPACITIES.classes, classId: 0 };
    this.opacities = { ...OPACITIES }; // one for each way to show the segmentation
    this.strokes = { opacity: 1, shown: true }; // how the paint is shown
    this.comparing = false; // the key that shows the image alone is held
    this.live = true;
    this.undo = 0;
    this.redo = 0;
    this.windows = 1;
    /** @type {{number: number, title: string, text: string, older: boolean}[]} the models that were made here, the oldest first */
    this.models = [];
    /** @type {number|null} the number of the model that is shown; null: the one that follows the paint */
    this.currentModel = null;
    /** @type {Map<number, {held_out: number|null, seconds: number, warnings: string[]}>} the latest statistics of each image */
    this.numbers = new Map();
    /** @type {Map<string, {part: number, text: string, left: number|null}>} running jobs, by name */
    this.jobs = new Map();
  }

  /** Calls `listener(detail)` for every event with one of these names, which are separated by spaces. */
  on(names, listener) {
    for (const name of names.split(" ")) {
      if (!this.listeners.has(name)) this.listeners.set(name, []);
      this.listeners.get(name).push(listener);
    }
  }

  emit(name, detail) {
    for (const listener of this.listeners.get(name) ?? []) listener(detail);
  }

  /** Takes over the state of the server, at the start and after every reconnection. @param {Project} project */
  take(project) {
    this.project = project;
    this.images = project.images;
    this.pictures = new Map(this.images.map((each) => [each.id, each]));
    this.classes = project.classes;
    this.limits = { ...LIMITS, ...project.limits };
    this.can = project.can ?? {};
    this.models = project.models.models;
    this.currentModel = project.models.current;
    this.live = project.live;
    this.undo = project.undo;
    this.redo = project.redo;
    this.windows = project.windows;
    const shown = this.image && this.images.find((each) => each.id === this.image.id);
    this.image = shown ?? this.images[0] ?? null;
    if (!this.classes.some((each) => each.id === this.classId)) this.classId = this.classes[0]?.id ?? 0;
    this.emit("project", project);
    for (const changed of ["classes", "models", "history", "windows", "images"]) this.emit(changed);
  }

  /** @returns {Class|undefined} the class that is painted with */
  get paintClass() {
    return this.classes.find((each) => each.id === this.classId);
  }

  picture(id) {
    return this.pictures.get(id);
  }

  show(id) {
    const next = this.picture(id);
    if (!next || next === this.image) return;
    this.emit("leave", this.image);
    this.image = next;
    this.emit("image", next);
  }

  /** Shows the image `step` places further in the strip. */
  showNext(step) {
    const place = this.images.indexOf(this.image) + step;
    if (this.images[place]) this.show(this.images[place].id);
  }

  setTool(name) {
    if (this.tool === name) return;
    this.tool = name;
    this.emit("tool", name);
  }

  setClass(id) {
    this.classId = id;
    this.emit("class", id);
    if (this.tool === "eraser" || this.tool === "pan") this.setTool("brush");
  }

  /** Sets the radius in pixels of the image, to the nearest eighth within the limits of the server. */
  setRadius(radius) {
    this.radius = Math.round(clamp(radius, 0.5, this.limits.radius) / RADIUS_STEP) * RADIUS_STEP;
    this.emit("radius", this.radius);
  }

  /** Makes the brush larger or smaller: each step is 12 %, but at least half a pixel. */
  growRadius(steps) {
    const by = Math.max(0.5, Math.abs(this.radius) * 0.12);
    this.setRadius(this.radius + steps * by);
  }

  setOverlay(change) {
    Object.assign(this.overlay, change);
    if (change.opacity !== undefined) this.opacities[this.overlay.mode] = change.opacity;
    this.overlay.opacity = this.opacities[this.overlay.mode];
    this.emit("overlay-style", this.overlay);
  }

  setStrokes(change) {
    Object.assign(this.strokes, change);
    this.emit("strokes", this.strokes);
  }

  setComparing(on) {
    if (this.comparing === on) return;
    this.comparing = on;
    this.emit("comparing", on);
  }

  /** Shows a sentence for a while, and has it read aloud. `kind`: info, good, warning, error or quiet. */
  notify(text, kind = "info") {
    this.emit("notice", { text, kind });
  }
}
