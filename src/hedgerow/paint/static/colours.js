/** Colours of classes, of channels, and of the ramps of probability and uncertainty. RGBA as one little-endian number. */

/** Distinguishable by people with any kind of colour vision (Paul Tol's bright and light sets, Okabe and Ito's orange). */
const CLASS_COLOURS = [
  "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#e69f00", "#bbbbbb",
  "#44bb99", "#ee8866", "#99ddff", "#ffaabb", "#aaaa00", "#77aadd", "#dddddd", "#882255",
];

/** "#rrggbb" -> [red, green, blue] of 0 to 255 */
export function parse(colour) {
  const number = Number.parseInt(colour.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

export function rgba(red, green, blue, alpha) {
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Uint32 (256): the colour of each class index; hidden classes and indices without a class are transparent. */
export function classTable(classes, alpha = 255) {
  const table = new Uint32Array(256);
  for (const each of classes) if (!each.hidden) table[each.id] = rgba(...parse(each.colour), alpha);
  return table;
}

/** Uint32 (256): from transparent to the colour of a class. */
export function probabilityTable(colour) {
  const [red, green, blue] = parse(colour);
  return Uint32Array.from({ length: 256 }, (_, value) => rgba(red, green, blue, value));
}

/** Value, red, green, blue, alpha: the ramp of uncertainty. */
const STOPS = [[0, 60, 15, 90, 0], [64, 90, 25, 120, 70], [128, 190, 55, 85, 170], [192, 245, 140, 25, 225], [255, 252, 240, 150, 255]];

/** Uint32 (256): transparent where the model is sure, then violet and orange, and pale yellow where it is least sure. */
export function uncertaintyTable() {
  const table = new Uint32Array(256);
  for (let i = 1; i < STOPS.length; i++) {
    const [from, ...low] = STOPS[i - 1];
    const [to, ...high] = STOPS[i];
    for (let value = from; value <= to; value++) {
      const part = (value - from) / (to - from);
      table[value] = rgba(...low.map((each, k) => Math.round(each + (high[k] - each) * part)));
    }
  }
  return table;
}

/** The first colour of the list that no class has. */
export function freeColour(classes) {
  const taken = new Set(classes.map((each) => each.colour.toLowerCase()));
  return CLASS_COLOURS.find((each) => !taken.has(each)) ?? CLASS_COLOURS[classes.length % CLASS_COLOURS.length];
}

/** Black or white, whichever is easier to read on a colour. */
export function textOn(colour) {
  const [red, green, blue] = parse(colour).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}
