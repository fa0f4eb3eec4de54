/** The paint. Strokes are drawn into the tiles on the screen at once; the server's labels replace them, and strokes that it
 * did not have yet are drawn on top again. */

import { UNPAINTED } from "../app.js";
import { classTable } from "../colours.js";
import { TILE, levelSize, touches } from "../pyramid.js";
import { atLevel, strokeRuns } from "../raster.js";
import { TileLayer, tileBuffer } from "./tilelayer.js";

export class LabelsLayer extends TileLayer {
  constructor(app, canvas, view, loader) {
    super(canvas, view, loader);
    this.app = app;
    /** @type {() => number} see Outbox.mark */
    this.mark = () => 0;
    /** @type {(mark: number, image: number) => import("../painting.js").Stroke[]} strokes that a tile may lack, in order */
    this.since = () => [];
    /** @type {() => boolean} whether a stroke is being drawn */
    this.drawing = () => false;
  }

  blank() {
    return { stale: true, dirty: null };
  }

  /** While a stroke is being drawn, the tiles on the screen stay: they show the stroke already. */
  lacks(tile) {
    return tile.stale && !(tile.raw && this.drawing());
  }

  /** The server's labels of a region have changed: its cached tiles are out of date. */
  changed(image, region) {
    for (const tile of this.cache.values()) {
      if (tile.image === image && touches(tile.level, tile.row, tile.col, region)) tile.stale = true;
    }
    if (image === this.image?.id && !this.drawing()) this.redraw(region);
  }

  forget() {
    for (const tile of this.cache.values()) tile.stale = true;
    this.redraw();
  }

  ask(tile) {
    const { level, row, col } = tile;
    const mark = this.mark(); // the answer may lack strokes from here on
    tile.loading = true;
    tile.stale = false;
    this.loader.ask(`api/images/${tile.image}/labels/${level}/${row}/${col}`, 0, () => this.needed(tile), (answer) => {
      tile.loading = false;
      if (answer.status !== 200 && answer.status !== 204) {
        tile.stale = true;
        return;
      }
      this.replace(tile, answer.status === 200 ? new Uint8Array(answer.data) : this.empty(tile), mark);
    });
  }

  /** Shows the server's labels with the strokes that they may lack; mostly that changes nothing on the screen. */
  replace(tile, raw, mark) {
    const before = tile.raw;
    const next = { ...tile, raw, dirty: null };
    for (const stroke of this.since(mark, tile.image)) this.drawInto(next, stroke);
    const isNew = !before || !same(before, raw);
    if (isNew) {
      Object.assign(tile, { raw, style: 0, dirty: null });
      if (tile.image === this.image?.id) this.coloured(tile);
    }
    if (isNew || this.lacks(tile)) this.redraw(this.region(tile));
  }

  empty(tile) {
    return new Uint8Array(tile.height * tile.width).fill(UNPAINTED);
  }

  restyle() {
    this.table = classTable(this.app.classes);
    super.restyle();
  }

  colour(tile, pixels) {
    for (let i = 0; i < pixels.length; i++) pixels[i] = this.table[tile.raw[i]];
    tile.dirty = null;
  }

  /** Colours only the part that strokes have changed since. */
  coloured(tile) {
    if (!tile.canvas || tile.style !== this.style) return super.coloured(tile);
    if (tile.dirty) {
      const [r0, r1, c0, c1] = tile.dirty;
      for (let row = r0; row < r1; row++) {
        const [from, to] = [row * tile.width, row * TILE];
        for (let col = c0; col < c1; col++) tileBuffer.pixels[to + col] = this.table[tile.raw[from + col]];
      }
      tile.canvas.getContext("2d").putImageData(tileBuffer.image, 0, 0, c0, r0, c1 - c0, r1 - r0);
      tile.dirty = null;
    }
    return tile.canvas;
  }

  get locked() {
    const locked = this.app.classes.filter((each) => each.locked).map((each) => each.id);
    return locked.length ? new Set(locked) : null;
  }

  /** Draws a stroke from its point number `from` on into the tiles of the level on the screen. */
  drawStroke(stroke, from = 0) {
    const level = this.level;
    const drawnFrom = from > 0 ? { ...stroke, points: stroke.points.slice(from - 1) } : stroke;
    const scaled = atLevel(drawnFrom, level);
    const { height, width } = levelSize(this.image, level);
    const locked = this.locked;
    const drawn = [Infinity, -Infinity, Infinity, -Infinity];
    const tiles = new Map();
    if (scaled.radius < 0) return;
    strokeRuns(scaled, [0, height, 0, width], (row, first, end) => {
      const top = Math.floor(row / TILE);
      for (let col = Math.floor(first / TILE); col * TILE < end; col++) {
        const number = top * 65536 + col;
        let tile = tiles.get(number);
        if (!tile) {
          tile = this.tile(level, top, col);
          tile.raw ??= this.empty(tile);
          tiles.set(number, tile);
        }
        const left = col * TILE;
        fillRun(tile, row - top * TILE, Math.max(first - left, 0), Math.min(end - left, tile.width), stroke.value, locked);
      }
      drawn[0] = Math.min(drawn[0], row);
      drawn[1] = Math.max(drawn[1], row + 1);
      drawn[2] = Math.min(drawn[2], first);
      drawn[3] = Math.max(drawn[3], end);
    }, Math.min(from, 1));
    if (drawn[0] < drawn[1]) this.redraw(drawn.map((value) => value * 2 ** level));
  }

  /** Draws a whole stroke into one tile. */
  drawInto(tile, stroke) {
    const scaled = atLevel(stroke, tile.level);
    if (scaled.radius < 0) return;
    const top = tile.row * TILE;
    const left = tile.col * TILE;
    const locked = this.locked;
    strokeRuns(scaled, [top, top + tile.height, left, left + tile.width], (row, first, end) =>
      fillRun(tile, row - top, first - left, end - left, stroke.value, locked));
  }

  /** The label at a pixel of the image, if it is on the screen. */
  labelAt(row, col) {
    return this.valueAt(row, col) ?? UNPAINTED;
  }
}

/** Whether two arrays hold the same bytes. */
function same(first, second) {
  if (first.length !== second.length) return false;
  for (let i = 0; i < first.length; i++) if (first[i] !== second[i]) return false;
  return true;
}

/** Writes a run of a tile's row [first, end) and notes which part of the tile has changed. */
function fillRun(tile, row, first, end, value, locked) {
  const { raw, width } = tile;
  let from = row * width + first;
  let to = row * width + end;
  // Most of a large brush covers pixels that it has just painted.
  while (from < to && raw[from] === value) from++;
  while (to > from && raw[to - 1] === value) to--;
  if (from === to) return;
  if (!locked) raw.fill(value, from, to);
  else for (let i = from; i < to; i++) if (!locked.has(raw[i])) raw[i] = value;
  const [c0, c1] = [from - row * width, to - row * width];
  const old = tile.dirty;
  if (!old) tile.dirty = [row, row + 1, c0, c1];
  else {
    old[0] = Math.min(old[0], row);
    old[1] = Math.max(old[1], row + 1);
    old[2] = Math.min(old[2], c0);
    old[3] = Math.max(old[3], c1);
  }
}
