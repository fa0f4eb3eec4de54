/** The stacked canvases, and the frames in which those that have changed are drawn. */

import { Loader } from "./loader.js";
import { View } from "./view.js";
import { ImageLayer } from "./layers/image.js";
import { LabelsLayer } from "./layers/labels.js";
import { MarksLayer } from "./layers/marks.js";
import { OverlayLayer } from "./layers/overlay.js";

const REST_MS = 120; // from the last change of the view until it is sent to the server

export class Stage {
  /**
   * @param {import("./app.js").App} app
   * @param {HTMLElement} root holds the four canvases
   */
  constructor(app, root) {
    this.app = app;
    this.root = root;
    this.loader = new Loader();
    this.view = new View(() => this.moved());
    const canvas = (name) => root.querySelector(`#canvas-${name}`);
    this.image = new ImageLayer(canvas("image"), this.view, this.loader);
    this.overlay = new OverlayLayer(app, canvas("overlay"), this.view, this.loader);
    this.labels = new LabelsLayer(app, canvas("labels"), this.view, this.loader);
    this.marks = new MarksLayer(app, canvas("marks"), this.view);
    this.layers = [this.image, this.overlay, this.labels];
    for (const layer of [...this.layers, this.marks]) layer.wake = () => this.wake();
    this.frame = 0; // the request for an animation frame
    this.resting = 0;
    this.places = new Map(); // the last view of each image
    this.corner = { left: 0, top: 0 };
    this.listen();
  }

  listen() {
    const { app } = this;
    new ResizeObserver(() => this.resize()).observe(this.root);
    app.on("leave", (image) => this.places.set(image.id, this.view.place));
    app.on("image", (image) => this.open(image));
    app.on("classes", () => {
      this.labels.restyle();
      this.overlay.restyle();
    });
    app.on("overlay-style", () => {
      this.overlay.restyle();
      this.showOpacity();
    });
    app.on("comparing strokes", () => this.showOpacity());
    app.on("stroke-begins", () => app.strokes.shown || app.setStrokes({ shown: true })); // what is painted is seen
    app.on("channels", () => this.image.restyle());
    app.on("radius tool class", () => this.marks.redraw());
    this.showOpacity();
  }

  open(image) {
    this.view.open(image, this.places.get(image.id));
    for (const layer of this.layers) layer.open(image);
  }

  showOpacity() {
    const { overlay, comparing, strokes } = this.app;
    this.overlay.canvas.style.opacity = String(comparing || overlay.mode === "none" ? 0 : overlay.opacity);
    this.labels.canvas.style.opacity = String(comparing || !strokes.shown ? 0 : strokes.opacity);
  }

  /** Measures the size of the stage, and notes its position in the window. */
  measure() {
    const { left, top, width, height } = this.root.getBoundingClientRect();
    this.corner = { left, top };
    return { width, height };
  }

  resize() {
    const { width, height } = this.measure();
    const ratio = Math.min(globalThis.devicePixelRatio || 1, 2);
    if (!width || !height) return;
    this.app.emit("resizes"); // the pixels under the pointer will change
    for (const { canvas } of [...this.layers, this.marks]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const fits = Math.abs(this.view.scale - this.view.fitScale) < 1e-9;
    this.view.resize(width, height, ratio);
    if (fits && this.app.image) this.view.fit();
    this.drawNow();
  }

  moved() {
    for (const layer of this.layers ?? []) layer.redraw();
    this.marks?.redraw();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.app.emit("view-rests"), REST_MS);
    this.app.emit("view");
  }

  wake() {
    this.frame ||= requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    for (const layer of this.layers) layer.draw();
    this.marks.draw();
  }
}
