/** Strokes: drawn at once, sent to the server in parts, and kept until they are confirmed. */

import { RADIUS_STEP, UNPAINTED } from "./app.js";
import { DRAWN_BY_SERVER } from "./raster.js";
import { clamp } from "./view.js";

/**
 * @typedef {{id: string, image: number, tool: string, class?: number, radius: number, points: number[][], value: number,
 *   joins?: string, within?: number[], most?: number, tolerance?: number, refused?: boolean, number?: number}} Stroke points are [row, col], pixel centres at whole numbers
 */

const PART_MS = 450; // after which a part of a stroke is sent while it is still being drawn

const rounded = (value) => Math.round(value / RADIUS_STEP) * RADIUS_STEP;

export class Painting {
  /**
   * @param {import("./app.js").App} app
   * @param {import("./layers/labels.js").LabelsLayer} labels
   * @param {import("./outbox.js").Outbox} outbox
   */
  constructor(app, labels, outbox) {
    this.app = app;
    this.labels = labels;
    this.outbox = outbox;
    /** @type {Stroke|null} the stroke that is being drawn */
    this.current = null;
    this.began = 0;
    labels.mark = () => outbox.mark;
    labels.drawing = () => this.current !== null;
    app.on("stroke-ends", () => labels.redraw());
    labels.since = (mark, image) => {
      const sent = outbox.since(mark, image);
      return this.current?.image === image ? [...sent, this.current] : sent;
    };
  }

  /** A position in the image (pixel edges at whole numbers) as a point of a stroke, at most a radius outside the image. */
  point(row, col) {
    const { height, width } = this.app.image;
    const out = this.app.radius + 1;
    return [rounded(clamp(row - 0.5, -out, height + out)), rounded(clamp(col - 0.5, -out, width + out))];
  }

  /** Whether there is a class to paint with; notifies the user if not. */
  ready(tool) {
    if (!this.app.image) return false;
    if (this.app.image.problem) {
      this.app.notify("This image cannot be read, so it cannot be painted.", "warning");
      return false;
    }
    if (tool === "eraser" || tool === "accept") return true;
    const own = this.app.paintClass;
    if (!own) this.app.notify("Add a class first; there is none to paint with.", "warning");
    else if (own.hidden) this.app.notify(`${own.name} is hidden: show it to paint with it.`, "warning");
    else return true;
    return false;
  }

  /** Begins a stroke at a position in the image. @returns {boolean} whether it began */
  begin(tool, row, col) {
    if (!this.ready(tool)) return false;
    this.current = this.make(tool, [this.point(row, col)]);
    this.began = performance.now();
    this.labels.drawStroke(this.current);
    this.app.emit("stroke-begins");
    return true;
  }

  make(tool, points) {
    const erases = tool === "eraser";
    return {
      id: this.outbox.newId(),
      image: this.app.image.id,
      tool,
      ...(erases || tool === "accept" ? {} : { class: this.app.classId }),
      radius: this.app.radius,
      points,
      value: erases ? UNPAINTED : this.app.classId,
    };
  }

  /** Continues the stroke. @param {{row: number, col: number}[]} places */
  extend(places) {
    const stroke = this.current;
    if (!stroke) return;
    const from = stroke.points.length;
    for (const { row, col } of places) {
      const point = this.point(row, col);
      const last = stroke.points.at(-1);
      if (point[0] !== last[0] || point[1] !== last[1]) stroke.points.push(point);
    }
    if (stroke.points.length === from) return;
    this.labels.drawStroke(stroke, from);
    const full = stroke.points.length >= this.app.limits.points - 64;
    if (full || performance.now() - this.began > PART_MS) this.sendPart();
  }

  /** Sends the part drawn so far, so that it is segmented at once; the stroke continues from its last point. */
  sendPart() {
    const sent = this.current;
    if (!this.outbox.open || sent.points.length < 2 || sent.tool === "smart") return;
    this.current = { ...sent, id: this.outbox.newId(), points: [sent.points.at(-1)], joins: sent.joins ?? sent.id };
    this.began = performance.now();
    this.outbox.send(sent);
  }

  finish() {
    const stroke = this.current;
    this.current = null;
    if (!stroke) return;
    if (!stroke.joins || stroke.points.length > 1) this.outbox.send(stroke);
    this.app.emit("stroke-ends");
  }

  /** Discards the stroke that is being drawn; parts that were sent are undone. */
  cancel() {
    const stroke = this.current;
    this.current = null;
    if (!stroke) return;
    if (stroke.joins && !this.outbox.sendMessage({ do: "undo", id: stroke.joins })) {
      this.app.notify("A part of the stroke was saved already; undo it when the connection is back.", "warning");
    }
    const { height, width } = this.app.image;
    this.labels.changed(stroke.image, [0, height, 0, width]);
    this.app.emit("stroke-ends");
  }

  /** Fills an area that the server would not fill without asking. @param {Stroke} stroke */
  fillAll({ most, number, refused, ...stroke }) {
    this.outbox.send({ ...stroke, id: this.outbox.newId() });
    this.app.emit("stroke-ends");
  }

  /** Paints and sends a complete stroke: a line, a polygon or a fill. @param {number[][]} points see `point` */
  whole(tool, points, more = {}) {
    if (!this.ready(tool)) return;
    const stroke = { ...this.make(tool, points), ...more };
    if (!DRAWN_BY_SERVER.includes(tool)) this.labels.drawStroke(stroke);
    this.outbox.send(stroke);
    this.app.emit("stroke-ends");
  }
}
