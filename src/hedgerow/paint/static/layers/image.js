/** The image: raw planes from the server, coloured here by the contrast and colour of each channel. */

import { parse } from "../colours.js";
import { TileLayer } from "./tilelayer.js";

/** @typedef {{on: boolean, colour: string, low: number, high: number}} Channel */

/** The initial display of the channels of an image. @returns {Channel[]} */
export function firstChannels(image) {
  const n = image.n_channels;
  const colours = { 1: ["#ffffff"], 2: ["#00ff00", "#ff00ff"], 3: ["#ff0000", "#00ff00", "#0000ff"] }[n] ??
    (n === 4 ? ["#ff0000", "#00ff00", "#0000ff"] : ["#ffffff"]);
  const of = (value, k) => (Array.isArray(value) ? value[k] : value);
  const [low, high] = [image.low ?? 0, image.high ?? 65535]; // until it is known
  return Array.from({ length: n }, (_, k) => ({
    on: k < colours.length,
    colour: colours[k] ?? ["#ffff00", "#00ffff", "#ff00ff", "#ff8000"][k % 4],
    low: of(low, k),
    high: of(high, k),
  }));
}

export class ImageLayer extends TileLayer {
  constructor(canvas, view, loader) {
    super(canvas, view, loader);
    /** @type {Map<number, Channel[]>} */
    this.channels = new Map();
    /** @type {Set<number>} images whose range of values is not known yet */
    this.guessed = new Set();
    /** @type {Map<number, Uint8Array>} the brightness of each value in the current style, by channel number */
    this.tables = new Map();
    this.arrived = () => {};
    this.rangeKnown = () => {};
  }

  restyle() {
    this.tables.clear();
    super.restyle();
  }

  table(number, wide) {
    if (!this.tables.has(number)) this.tables.set(number, shades(this.shown[number], wide));
    return this.tables.get(number);
  }

  blank() {
    return { planes: "", wanted: "" };
  }

  /** @returns {Channel[]} of the image on the screen */
  get shown() {
    const { id, low } = this.image;
    if (!this.channels.has(id)) {
      this.channels.set(id, firstChannels(this.image));
      if (low === null) this.guessed.add(id);
    }
    return this.channels.get(id);
  }

  get planes() {
    const on = this.shown.flatMap((channel, k) => (channel.on ? [k] : []));
    return (on.length ? on : [0]).join(",");
  }

  open(image) {
    super.open(image);
    this.restyle();
  }

  lacks(tile) {
    return tile.planes !== this.planes;
  }

  ask(tile) {
    const { level, row, col } = tile;
    const planes = this.planes;
    tile.loading = true;
    const ranged = this.image.low === null ? "&range=1" : "";
    const address = `api/images/${tile.image}/tile/${level}/${row}/${col}?channels=${planes}${ranged}`;
    this.loader.ask(address, 2, () => this.needed(tile), (answer) => {
      tile.loading = false;
      if (answer.status !== 200) return;
      if (ranged) this.ranged(tile.image, answer.headers.get("X-Range"));
      const wide = answer.headers.get("X-Type") === "u2";
      tile.raw = wide ? new Uint16Array(answer.data) : new Uint8Array(answer.data);
      const shape = answer.headers.get("X-Shape").split(",").map(Number);
      [tile.height, tile.width] = shape.slice(1);
      tile.planes = planes;
      tile.style = 0;
      if (tile.image === this.image?.id) this.coloured(tile); // now, so that no frame has to colour many tiles
      this.arrived();
      this.redraw(this.region(tile));
    });
  }

  /** Takes the values to show as black and white from the first tile of an image, if they were unknown. */
  ranged(id, range) {
    const image = this.image;
    if (image?.id !== id || image.low !== null || !range) return;
    [image.low, image.high] = JSON.parse(range);
    if (this.guessed.delete(id)) this.channels.delete(id);
    this.rangeKnown();
    this.restyle();
  }

  colour(tile, pixels) {
    const shown = this.shown;
    const numbers = tile.planes.split(",").map(Number);
    const size = tile.height * tile.width;
    const wide = tile.raw instanceof Uint16Array;
    if (numbers.length === 1 && shown[numbers[0]].colour === "#ffffff") {
      const table = this.table(numbers[0], wide);
      for (let i = 0; i < size; i++) {
        const value = table[tile.raw[i]];
        pixels[i] = 0xff000000 | (value << 16) | (value << 8) | value;
      }
      return;
    }
    const sums = new Uint16Array(3 * size);
    numbers.forEach((number, k) => {
      const table = this.table(number, wide);
      const plane = tile.raw.subarray(k * size, (k + 1) * size);
      parse(shown[number].colour).forEach((part, channel) => {
        if (!part) return;
        const offset = channel * size;
        for (let i = 0; i < size; i++) sums[offset + i] += (table[plane[i]] * part) >> 8;
      });
    });
    const bound = (value) => (value > 254 ? 255 : value);
    for (let i = 0; i < size; i++) {
      pixels[i] = 0xff000000 | (bound(sums[2 * size + i]) << 16) | (bound(sums[size + i]) << 8) | bound(sums[i]);
    }
  }

  /** The values of a channel on the screen, for a histogram. @returns {(Uint8Array|Uint16Array)[]} */
  samples(channel) {
    const planes = [];
    for (const tile of this.cache.values()) {
      if (tile.image !== this.image?.id || !tile.raw || tile.level !== this.level) continue;
      const place = tile.planes.split(",").map(Number).indexOf(channel);
      if (place < 0) continue;
      const size = tile.height * tile.width;
      planes.push(tile.raw.subarray(place * size, (place + 1) * size));
    }
    return planes;
  }
}

/** Uint8 (256 or 65536): the brightness of each value by the contrast of a channel. */
function shades(channel, wide) {
  const table = new Uint8Array(wide ? 65536 : 256);
  const range = Math.max(channel.high - channel.low, 1e-9);
  for (let value = 0; value < table.length; value++) {
    table[value] = Math.min(Math.max(((value - channel.low) / range) * 255 + 0.5, 0), 255);
  }
  return table;
}
