/** The marks on top of everything: the ring of the brush, the keyboard's crosshair, the unfinished shape of a tool, and the
 * suggested place to paint next. */

const BEATS_MS = 2600; // how long the mark of a suggested place moves; then it stays still

export class MarksLayer {
  constructor(app, canvas, view) {
    this.app = app;
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.view = view;
    this.wake = () => {};
    /** @type {{x: number, y: number}|null} the pointer on the screen */
    this.pointer = null;
    /** @type {{row: number, col: number, down: boolean}|null} the keyboard's crosshair */
    this.crosshair = null;
    /** @type {{row: number, col: number, since: number}|null} */
    this.suggested = null;
    /** @type {() => {points: {row: number, col: number}[], closed: boolean, width: number}|null} */
    this.shape = () => null;
    this.changed = true;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
  }

  redraw() {
    this.changed = true;
    this.wake();
  }

  /** Marks a suggested place, until it is replaced or painted. @param {number|null} row null: no place */
  suggest(row, col) {
    this.suggested = row === null ? null : { row, col, since: performance.now() };
    this.redraw();
  }

  draw() {
    if (!this.changed) return;
    this.changed = false;
    const { context, view } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    this.drawShape();
    if (this.suggested) this.drawSuggested();
    if (this.crosshair) this.drawCrosshair();
    else if (this.pointer) this.drawRing(this.pointer.x, this.pointer.y);
  }

  get colour() {
    return this.app.tool === "eraser" ? "#ffffff" : this.app.paintClass?.colour ?? "#ffffff";
  }

  /** Strokes the current path twice, dark around light, so that it is visible on any image. */
  outline(colour, width = 1.5) {
    const { context } = this;
    context.lineWidth = width + 2;
    context.strokeStyle = "rgba(0, 0, 0, 0.65)";
    context.stroke();
    context.lineWidth = width;
    context.strokeStyle = colour;
    context.stroke();
  }

  drawRing(x, y) {
    const { context, view, app } = this;
    const { tool } = app;
    const sized = ["brush", "smart", "eraser", "line"].includes(tool);
    if (tool === "pan") return;
    const reach = sized ? Math.max((app.radius + 0.5) * view.scale, 2) : 4;
    context.beginPath();
    context.arc(x, y, reach, 0, 2 * Math.PI);
    if (tool === "eraser") context.setLineDash([5, 4]);
    this.outline(this.colour);
    context.setLineDash([]);
    if (reach > 7) this.dot(x, y);
  }

  dot(x, y) {
    const { context } = this;
    context.beginPath();
    context.arc(x, y, 1.5, 0, 2 * Math.PI);
    context.fillStyle = "#ffffff";
    context.fill();
  }

  drawCrosshair() {
    const { context, view, crosshair } = this;
    const { x, y } = view.toScreen(crosshair.row, crosshair.col);
    context.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      context.moveTo(x + 6 * dx, y + 6 * dy);
      context.lineTo(x + 20 * dx, y + 20 * dy);
    }
    this.outline(crosshair.down ? this.colour : "#ffffff", crosshair.down ? 3 : 1.5);
    this.drawRing(x, y);
  }

  drawShape() {
    const shape = this.shape();
    if (!shape?.points.length) return;
    const { context, view } = this;
    const places = shape.points.map(({ row, col }) => view.toScreen(row, col));
    context.beginPath();
    places.forEach(({ x, y }, i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (shape.closed) context.closePath();
    context.lineJoin = context.lineCap = "round";
    if (shape.width) {
      context.globalAlpha = 0.6;
      context.lineWidth = Math.max(shape.width * view.scale, 2);
      context.strokeStyle = this.colour;
      context.stroke();
      context.globalAlpha = 1;
      return;
    }
    context.globalAlpha = 0.25;
    context.fillStyle = this.colour;
    context.fill();
    context.globalAlpha = 1;
    this.outline(this.colour);
    const [first] = places;
    context.beginPath();
    context.arc(first.x, first.y, 5, 0, 2 * Math.PI);
    this.outline("#ffffff", 2);
  }

  drawSuggested() {
    const age = performance.now() - this.suggested.since;
    const { x, y } = this.view.toScreen(this.suggested.row, this.suggested.col);
    const { context } = this;
    const moves = age < BEATS_MS && !this.still.matches;
    const beat = moves ? (age % 1000) / 1000 : 0.4;
    context.globalAlpha = moves ? 1 - 0.7 * beat : 0.8;
    context.beginPath();
    context.arc(x, y, 14 + 30 * beat, 0, 2 * Math.PI);
    this.outline("#ffd24d", 3);
    context.globalAlpha = 1;
    context.beginPath();
    context.arc(x, y, 9, 0, 2 * Math.PI);
    this.outline("#ffd24d", 2.5);
    if (moves) this.redraw();
  }
}
