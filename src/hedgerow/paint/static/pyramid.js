/** Tiles of the levels of an image: level 0 is the image, each next level half its size, rounded up. */

export const TILE = 256;

/** Rows and columns of a level. */
export function levelSize(image, level) {
  const half = 2 ** level;
  return { height: Math.ceil(image.height / half), width: Math.ceil(image.width / half) };
}

/** Height and width of a tile, smaller at the edges. */
export function tileSize(image, level, row, col) {
  const { height, width } = levelSize(image, level);
  return { height: Math.min(TILE, height - row * TILE), width: Math.min(TILE, width - col * TILE) };
}

/** The tiles [[row, col], ...] of a level that touch rows and columns [first, end) of the image. */
export function tilesWithin(image, level, rows, cols) {
  const { height, width } = levelSize(image, level);
  const size = TILE * 2 ** level;
  const range = ([first, end], length) => {
    return [Math.max(Math.floor(first / size), 0), Math.min(Math.ceil(end / size), Math.ceil(length / TILE))];
  };
  const [top, bottom] = range(rows, height);
  const [left, right] = range(cols, width);
  const tiles = [];
  for (let row = top; row < bottom; row++) for (let col = left; col < right; col++) tiles.push([row, col]);
  return tiles;
}

/** Whether a tile touches a region [r0, r1, c0, c1] of the image. @param {number[]} region */
export function touches(level, row, col, region) {
  const [r0, r1, c0, c1] = region;
  const size = TILE * 2 ** level;
  return row * size < r1 && (row + 1) * size > r0 && col * size < c1 && (col + 1) * size > c0;
}
