/** The segmentation: class indices, probabilities or uncertainty from the server, coloured here. A tile of an older result
 * stays on the screen until its successor has arrived, so that nothing flashes. */

import { classTable, probabilityTable, uncertaintyTable } from "../colours.js";
import { TILE, touches } from "../pyramid.js";
import { clamp } from "../view.js";
import { TileLayer } from "./tilelayer.js";

const MAX_RESULTS = 8; // of an image
const GATHER_MS = 160; // the longest time that tiles wait for each other
const MAX_TILES = 32; // per request, the limit of the server

/** @typedef {{stamp: number, result: number, scope: string, level: number, region: number[], model: string}} Result */

export class OverlayLayer extends TileLayer {
  constructor(app, canvas, view, loader) {
    super(canvas, view, loader);
    this.app = app;
    /** @type {Map<number, Result[]>} the results of each image, the newest first */
    this.results = new Map();
    this.stamps = 0;
    this.reached = 0; // the reach that outlines are coloured with
    this.lacking = []; // tiles that the current frame lacks
    this.staged = []; // tiles that have arrived and are not shown yet
    this.timer = 0;
    /** @type {(result: number) => void} */
    this.arrived = () => {};
  }

  blank() {
    return { result: -1, tried: 0, query: this.query };
  }

  key(level, row, col) {
    return `${this.query}/${super.key(level, row, col)}`;
  }

  /** The part of the address that selects the kind of pixels. */
  get query() {
    const { mode, classId } = this.app.overlay;
    if (mode === "probability") return `what=proba&class=${classId}`;
    return mode === "uncertainty" ? "what=uncertainty" : "what=classes";
  }

  /** The server has a new result. */
  announce({ image, result, scope, level, region, model }) {
    this.stamps += 1;
    const known = (this.results.get(image) ?? []).filter((each) => scope === "visible" || each.scope !== "visible");
    this.results.set(image, [{ stamp: this.stamps, result, scope, level, region, model }, ...known].slice(0, MAX_RESULTS));
    if (image === this.image?.id) this.redraw();
  }

  /** Removes the segmentation of an image: too little is painted to have one. */
  remove(image) {
    this.results.delete(image);
    for (const tile of this.cache.values()) {
      if (tile.image === image) Object.assign(tile, { raw: null, canvas: null, style: 0, result: -1, tried: 0 });
    }
    this.redraw();
  }

  /** Forgets all results after a reconnection; the tiles on the screen stay. */
  forget() {
    this.results.clear();
    for (const tile of this.cache.values()) Object.assign(tile, { result: -1, tried: 0 });
  }

  /** @returns {Result|undefined} the newest result that has this tile */
  newest(tile) {
    return this.results.get(tile.image)?.find((each) =>
      each.scope !== "visible" || touches(tile.level, tile.row, tile.col, each.region));
  }

  lacks(tile) {
    const newest = this.newest(tile);
    return newest !== undefined && newest.result !== tile.result && newest.stamp > tile.tried;
  }

  /** Tiles that a frame lacks are requested together: one request per tile would take longer than its pixels. */
  ask(tile) {
    tile.loading = true;
    this.lacking.push({ tile, newest: this.newest(tile) });
  }

  /** The width of an outline on either side of a border: two pixels if a pixel is no larger than one of the screen. */
  get reach() {
    return this.view.scale * this.view.ratio * 2 ** this.level > 1.5 ? 1 : 2;
  }

  draw() {
    if (this.app.overlay.mode === "outlines" && this.reach !== this.reached) {
      this.reached = this.reach;
      this.style += 1;
    }
    super.draw();
    const groups = new Map();
    for (const each of this.lacking.splice(0)) {
      const key = `${each.newest.result}/${each.tile.level}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(each);
    }
    for (const [key, wanted] of groups) {
      for (let i = 0; i < wanted.length; i += MAX_TILES) this.fetch(key, wanted.slice(i, i + MAX_TILES));
    }
  }

  /** @param {string} key result and level @param {{tile: any, newest: Result}[]} wanted */
  fetch(key, wanted) {
    const places = wanted.map(({ tile: { row, col } }) => `${row}.${col}`).join(",");
    const address = `api/images/${wanted[0].tile.image}/overlay/${key}?tiles=${places}&${this.query}`;
    this.loader.ask(address, 1, () => wanted.some(({ tile }) => this.needed(tile)), (answer) => this.take(answer, wanted));
  }

  take(answer, wanted) {
    let at = 0;
    wanted.forEach(({ tile, newest }, i) => {
      if (answer.status !== 0) tile.tried = newest.stamp;
      if (answer.status !== 200 || answer.headers.get("X-Known")[i] !== "1") {
        tile.loading = false;
        return;
      }
      const data = new Uint8Array(answer.data, at, tile.height * tile.width);
      at += data.length;
      this.loader.slices.add(() => {
        this.stage(tile, newest.result, this.merged(tile, data, newest));
        this.settle();
        if (this.lacks(tile)) this.redraw(this.region(tile));
      });
    });
    this.settle();
  }

  /** Colours a tile as soon as it arrives, so that the frame that shows all tiles has little to do. */
  stage(tile, result, raw) {
    tile.loading = false;
    const next = { ...tile, raw, result, canvas: null, style: 0 };
    this.coloured(next);
    this.staged.push({ tile, next });
  }

  /** New tiles are shown together when all have arrived, or after a moment, rather than one after another. */
  settle() {
    const waits = [...this.cache.values()].some((tile) => tile.loading && this.needed(tile));
    if (!waits) this.commit();
    else if (this.staged.length) this.timer ||= setTimeout(() => this.commit(), GATHER_MS);
  }

  commit() {
    clearTimeout(this.timer);
    this.timer = 0;
    const shown = this.staged.splice(0);
    for (const { tile, next: { raw, result, canvas, style } } of shown) Object.assign(tile, { raw, result, canvas, style });
    if (!shown.length) return;
    this.redraw();
    this.arrived(Math.max(...shown.map(({ next }) => next.result)));
  }

  /** The new pixels where the result has them; outside of it, the old ones stay. */
  merged(tile, data, { scope, region }) {
    if (scope !== "visible" || tile.raw?.length !== data.length) return data;
    const block = 2 ** tile.level;
    const [top, left] = [tile.row * TILE, tile.col * TILE];
    const [r0, r1, c0, c1] = region;
    const rows = [Math.floor(r0 / block), Math.ceil(r1 / block)].map((row) => clamp(row - top, 0, tile.height));
    const cols = [Math.floor(c0 / block), Math.ceil(c1 / block)].map((col) => clamp(col - left, 0, tile.width));
    const pixels = tile.raw.slice();
    for (let row = rows[0]; row < rows[1]; row++) {
      const [first, end] = cols.map((col) => row * tile.width + col);
      pixels.set(data.subarray(first, end), first);
    }
    return pixels;
  }

  visible() {
    return this.app.overlay.mode !== "none";
  }

  restyle() {
    const { mode, classId } = this.app.overlay;
    const classes = this.app.classes;
    if (mode === "probability") {
      this.table = probabilityTable(classes.find((each) => each.id === classId)?.colour ?? "#ffffff");
    } else this.table = mode === "uncertainty" ? uncertaintyTable() : classTable(classes);
    super.restyle();
  }

  colour(tile, pixels) {
    const { raw, height, width } = tile;
    const table = this.table;
    if (this.app.overlay.mode !== "outlines") {
      for (let i = 0; i < raw.length; i++) pixels[i] = table[raw[i]];
      return;
    }
    const reach = this.reach;
    for (let row = 0, i = 0; row < height; row++) {
      for (let col = 0; col < width; col++, i++) {
        const own = raw[i];
        for (let step = 1; step <= reach; step++) {
          if ((col >= step && raw[i - step] !== own) || (col + step < width && raw[i + step] !== own) ||
              (row >= step && raw[i - step * width] !== own) || (row + step < height && raw[i + step * width] !== own)) {
            pixels[i] = table[own];
            break;
          }
        }
      }
    }
  }

  /** Whether all tiles on the screen show the newest result that has them. */
  get complete() {
    return this.results.has(this.image?.id) && !this.staged.length && super.complete;
  }

  needed(tile) {
    return tile.query === this.query && super.needed(tile);
  }

  /** The class at a pixel of the image if it is on the screen, else null. */
  classAt(row, col) {
    return ["classes", "outlines"].includes(this.app.overlay.mode) ? this.valueAt(row, col) : null;
  }
}
