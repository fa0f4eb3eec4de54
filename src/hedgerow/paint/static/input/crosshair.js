/** Painting by keyboard: arrows move a crosshair, Enter puts the brush down and lifts it, the space bar paints a dot. */

import { clamp } from "../view.js";

const STEP_PX = 8; // CSS pixels

const DIRECTIONS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Crosshair {
  constructor(app, stage, toolbox) {
    this.app = app;
    this.stage = stage;
    this.toolbox = toolbox;
    this.view = stage.view;
    this.marks = stage.marks;
    app.on("leave tool", () => this.lift());
    app.on("leave", () => this.hide());
  }

  hide() {
    this.marks.crosshair = null;
    this.marks.redraw();
  }

  /** @returns {{row: number, col: number, down: boolean}} the crosshair; a new one appears at the pointer or in the middle of the view */
  get place() {
    if (!this.marks.crosshair) {
      const { row, col } = this.marks.pointer ? this.view.toImage(this.marks.pointer.x, this.marks.pointer.y) : this.view;
      this.marks.crosshair = { row: Math.floor(row) + 0.5, col: Math.floor(col) + 0.5, down: false };
    }
    return this.marks.crosshair;
  }

  /** @returns {boolean} whether the crosshair used the key */
  key(event) {
    if (DIRECTIONS[event.key]) this.arrow(event);
    else if (event.key === "Enter") this.enter();
    else return false;
    return true;
  }

  arrow(event) {
    const direction = DIRECTIONS[event.key];
    if (event.ctrlKey || event.metaKey) {
      this.view.panBy(-direction[1] * 80, -direction[0] * 80);
      return;
    }
    const step = event.altKey ? 1 : Math.max(1, Math.round(((event.shiftKey ? 6 : 1) * STEP_PX) / this.view.scale));
    const place = this.place;
    const { height, width } = this.app.image;
    place.row = clamp(place.row + direction[0] * step, 0.5, height - 0.5);
    place.col = clamp(place.col + direction[1] * step, 0.5, width - 0.5);
    this.view.reveal(place.row, place.col);
    if (place.down) this.toolbox.move([{ row: place.row, col: place.col }]);
    else this.toolbox.hover({ row: place.row, col: place.col });
    this.app.emit("hover", place);
    this.marks.redraw();
  }

  enter() {
    const place = this.place;
    if (this.app.tool === "pan") return;
    const held = ["brush", "smart", "eraser"].includes(this.app.tool);
    if (!held) {
      this.dab();
      return;
    }
    if (place.down) this.lift();
    else {
      this.toolbox.begin({ row: place.row, col: place.col });
      place.down = true;
      this.app.notify("The brush is down: arrows paint, Enter lifts it.");
    }
    this.marks.redraw();
  }

  lift() {
    if (!this.marks.crosshair?.down) return;
    this.marks.crosshair.down = false;
    this.toolbox.end();
    this.marks.redraw();
  }

  /** One dab of the brush, one corner of a polygon, one end of a line, one fill. */
  dab() {
    const { row, col } = this.place;
    if (this.app.tool === "pan" || this.place.down) return;
    this.toolbox.begin({ row, col });
    this.toolbox.end();
    this.marks.redraw();
  }
}
