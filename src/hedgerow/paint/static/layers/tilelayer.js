/** A layer of tiles on its own canvas: it draws the tiles that it has and requests the others, in whose place it shows the
 * nearest other level meanwhile. Subclasses define where tiles come from and how they are coloured. */

import { Cache } from "../cache.js";
import { TILE, tileSize, tilesWithin } from "../pyramid.js";

const MAX_TILES = 320; // per layer; a coloured tile takes a quarter of a megabyte

function bufferOf(width, height) {
  const image = new ImageData(width, height);
  return { image, pixels: new Uint32Array(image.data.buffer) };
}

/** The pixels of a whole tile, reused: allocating a quarter of a megabyte per tile would delay painting. */
export const tileBuffer = bufferOf(TILE, TILE);

/**
 * @typedef {{image: number, level: number, row: number, col: number, height: number, width: number,
 *   raw: Uint8Array|Uint16Array|null, canvas: OffscreenCanvas|null, style: number, loading: boolean, seen: number}} Tile
 */

export class TileLayer {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("../view.js").View} view
   * @param {import("../loader.js").Loader} loader
   */
  constructor(canvas, view, loader) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.view = view;
    this.loader = loader;
    this.cache = new Cache(MAX_TILES);
    this.image = null;
    this.style = 1; // counts changes of colours; tiles of an older style are coloured again when they are drawn
    this.frame = 0;
    this.dirty = true; // draw everything
    this.patch = null; // or only this part of the screen, in device pixels [x0, y0, x1, y1]
    this.wake = () => {};
  }

  /** Requests a new frame, of everything or of a region of the image. */
  redraw(region = null) {
    if (!region) this.dirty = true;
    else {
      const ratio = this.view.ratio;
      const first = this.view.toScreen(region[0], region[2]);
      const end = this.view.toScreen(region[1], region[3]);
      const box = [Math.floor(first.x * ratio) - 2, Math.floor(first.y * ratio) - 2,
        Math.ceil(end.x * ratio) + 2, Math.ceil(end.y * ratio) + 2];
      const old = this.patch;
      this.patch = old
        ? [Math.min(old[0], box[0]), Math.min(old[1], box[1]), Math.max(old[2], box[2]), Math.max(old[3], box[3])]
        : box;
    }
    this.wake();
  }

  /** Requests a tile from the server. @param {any} _tile */
  ask(_tile) {
    throw new Error("defined by each layer");
  }

  restyle() {
    this.style += 1;
    this.redraw();
  }

  open(image) {
    this.image = image;
    this.redraw();
  }

  key(level, row, col) {
    return `${this.image.id}/${level}/${row}/${col}`;
  }

  /** @returns {Tile} the tile, which is created if it is new */
  tile(level, row, col) {
    const key = this.key(level, row, col);
    const cached = this.cache.get(key);
    if (cached) return cached;
    const size = tileSize(this.image, level, row, col);
    return this.cache.add(key, {
      image: this.image.id, level, row, col, ...size, raw: null, canvas: null, style: 0, loading: false, seen: 0,
      ...this.blank(),
    });
  }

  /** Further fields of every tile of a subclass. */
  blank() {
    return {};
  }

  /** Whether a tile should be requested from the server (again). */
  lacks(tile) {
    return !tile.raw;
  }

  /** Colours the pixels of a tile: `pixels` is Uint32 (height * width), RGBA, initially transparent. */
  colour(_tile, _pixels) {}

  /** Draws the parts that have changed since the last frame. */
  draw() {
    if (!this.image || (!this.dirty && !this.patch)) return;
    const { width, height } = this.canvas;
    // Not beyond the screen: otherwise each tile that arrives there would request its neighbours, without end.
    const [x0, y0, x1, y1] = this.dirty ? [0, 0, width, height]
      : this.patch.map((value, side) => Math.min(Math.max(value, 0), side % 2 ? height : width));
    this.dirty = false;
    this.patch = null;
    if (x0 >= x1 || y0 >= y1) return;
    this.frame += 1;
    const context = this.context;
    context.save();
    context.beginPath();
    context.rect(x0, y0, x1 - x0, y1 - y0);
    context.clip();
    context.clearRect(x0, y0, x1 - x0, y1 - y0);
    this.clipToImage(context);
    this.drawTiles(context, [x0, y0, x1, y1]);
    context.restore();
    this.cache.trim((tile) => tile.seen === this.frame || tile.loading);
  }

  clipToImage(context) {
    const [x0, y0, x1, y1] = this.box(0, 0, this.image.height, this.image.width);
    context.beginPath();
    context.rect(x0, y0, x1 - x0, y1 - y0);
    context.clip();
  }

  /** Device pixels [x0, y0, x1, y1] of rows and columns of the image, whole so that tiles meet without seams. */
  box(top, left, bottom, right) {
    const { ratio } = this.view;
    const first = this.view.toScreen(top, left);
    const end = this.view.toScreen(bottom, right);
    return [Math.round(first.x * ratio), Math.round(first.y * ratio), Math.round(end.x * ratio), Math.round(end.y * ratio)];
  }

  drawTiles(context, [x0, y0, x1, y1]) {
    const { view } = this;
    const first = view.toImage(x0 / view.ratio, y0 / view.ratio);
    const end = view.toImage(x1 / view.ratio, y1 / view.ratio);
    const level = this.level;
    context.imageSmoothingEnabled = this.smooth(level);
    for (const [row, col] of tilesWithin(this.image, level, [first.row, end.row], [first.col, end.col])) {
      const tile = this.tile(level, row, col);
      tile.seen = this.frame;
      if (!tile.loading && this.lacks(tile)) this.ask(tile);
      if (tile.raw) this.place(context, tile);
      else this.standIn(context, tile);
    }
  }

  get level() {
    return this.view.level;
  }

  /** Whether to blur: only if several pixels of the level share one of the screen. */
  smooth(level) {
    return this.view.scale * this.view.ratio * 2 ** level < 1;
  }

  /** Draws a tile, or only its part [r0, r1, c0, c1] of the image. */
  place(context, tile, part = null) {
    if (!this.visible(tile)) return;
    const source = this.coloured(tile);
    const block = 2 ** tile.level;
    const top = tile.row * TILE * block;
    const left = tile.col * TILE * block;
    const [r0, r1, c0, c1] = part ?? [top, top + tile.height * block, left, left + tile.width * block];
    const [x0, y0, x1, y1] = this.box(r0, c0, r1, c1);
    const rows = (r1 - r0) / block;
    const cols = (c1 - c0) / block;
    context.drawImage(source, (c0 - left) / block, (r0 - top) / block, cols, rows, x0, y0, x1 - x0, y1 - y0);
  }

  visible(_tile) {
    return true;
  }

  /** The canvas of a tile in the current colours. */
  coloured(tile) {
    if (tile.canvas && tile.style === this.style) return tile.canvas;
    tile.canvas ??= new OffscreenCanvas(tile.width, tile.height);
    const { image, pixels } = tile.width === TILE && tile.height === TILE ? tileBuffer : bufferOf(tile.width, tile.height);
    this.colour(tile, pixels.fill(0));
    tile.canvas.getContext("2d").putImageData(image, 0, 0);
    tile.style = this.style;
    return tile.canvas;
  }

  /** Draws a coarser level, or the next finer one, in place of a tile that has not arrived yet. */
  standIn(context, tile) {
    const block = TILE * 2 ** tile.level;
    const region = [tile.row * block, tile.row * block + tile.height * 2 ** tile.level,
      tile.col * block, tile.col * block + tile.width * 2 ** tile.level];
    for (let level = tile.level + 1; level < this.image.n_levels; level++) {
      const up = 2 ** (level - tile.level);
      const other = this.cache.peek(this.key(level, Math.floor(tile.row / up), Math.floor(tile.col / up)));
      if (!other?.raw) continue;
      other.seen = this.frame;
      this.place(context, other, region);
      return;
    }
    if (tile.level === 0) return;
    for (const [row, col] of tilesWithin(this.image, tile.level - 1, region.slice(0, 2), region.slice(2))) {
      const other = this.cache.peek(this.key(tile.level - 1, row, col));
      if (!other?.raw) continue;
      other.seen = this.frame;
      this.place(context, other);
    }
  }

  /** The value at a pixel of the image if its tile is on the screen, else null. */
  valueAt(row, col) {
    const [r, c] = [row, col].map((place) => Math.floor(place / 2 ** this.level));
    const tile = this.cache.peek(this.key(this.level, Math.floor(r / TILE), Math.floor(c / TILE)));
    return tile?.raw ? tile.raw[(r % TILE) * tile.width + (c % TILE)] : null;
  }

  /** Whether a requested tile is still to be shown. */
  needed(tile) {
    return tile.image === this.image?.id && (tile.seen === this.frame || this.onScreen(tile));
  }

  onScreen(tile) {
    const { rows, cols } = this.view.region;
    const size = TILE * 2 ** tile.level;
    return tile.level === this.level && tile.row * size < rows[1] && (tile.row + 1) * size > rows[0] &&
      tile.col * size < cols[1] && (tile.col + 1) * size > cols[0];
  }

  /** Whether all tiles on the screen have arrived and are up to date. */
  get complete() {
    const { rows, cols } = this.view.region;
    const tiles = tilesWithin(this.image, this.level, rows, cols).map(([row, col]) => this.cache.peek(this.key(this.level, row, col)));
    return tiles.every((tile) => tile && !tile.loading && !this.lacks(tile));
  }

  /** The part of the image that a tile covers, [r0, r1, c0, c1]. */
  region(tile) {
    const size = TILE * 2 ** tile.level;
    return [tile.row * size, (tile.row + 1) * size, tile.col * size, (tile.col + 1) * size];
  }
}
