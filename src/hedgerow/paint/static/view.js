/** The part of the image on the screen. Positions on the screen are in CSS pixels; positions in the image are rows and
 * columns, where pixel (r, c) covers [r, r+1) x [c, c+1). */

const MAX_SCALE = 64; // CSS pixels per pixel of the image
const MARGIN_PX = 24; // around an image that is shown whole

/** The value, or the nearest bound if it is outside of them. */
export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

export class View {
  /** @param {() => void} changed called after every change */
  constructor(changed) {
    this.changed = changed;
    this.width = 1;
    this.height = 1;
    this.ratio = 1; // device pixels per CSS pixel
    this.row = 0; // the middle of the screen
    this.col = 0;
    this.scale = 1; // CSS pixels per pixel of the image
    this.flight = 0;
    this.image = { height: 1, width: 1, n_levels: 1 };
  }

  resize(width, height, ratio) {
    Object.assign(this, { width, height, ratio });
    this.settle();
  }

  /** Shows another image: all of it, or its last view. */
  open(image, remembered) {
    this.stop();
    this.image = image;
    if (remembered) Object.assign(this, remembered);
    else this.fit();
    this.settle();
  }

  get place() {
    return { row: this.row, col: this.col, scale: this.scale };
  }

  get fitScale() {
    const rows = Math.max(this.height - 2 * MARGIN_PX, 16) / this.image.height;
    const cols = Math.max(this.width - 2 * MARGIN_PX, 16) / this.image.width;
    return Math.min(rows, cols, 16);
  }

  fit() {
    this.stop();
    this.scale = this.fitScale;
    this.row = this.image.height / 2;
    this.col = this.image.width / 2;
    this.settle();
  }

  /** Keeps the scale within bounds and the image on the screen. */
  settle() {
    this.scale = clamp(this.scale, Math.min(this.fitScale / 2, 1), MAX_SCALE);
    this.row = clamp(this.row, 0, this.image.height);
    this.col = clamp(this.col, 0, this.image.width);
    this.changed();
  }

  toImage(x, y) {
    return { row: this.row + (y - this.height / 2) / this.scale, col: this.col + (x - this.width / 2) / this.scale };
  }

  toScreen(row, col) {
    return { x: (col - this.col) * this.scale + this.width / 2, y: (row - this.row) * this.scale + this.height / 2 };
  }

  panBy(x, y) {
    this.stop();
    this.row -= y / this.scale;
    this.col -= x / this.scale;
    this.settle();
  }

  /** Zooms by `factor`; the pixel at (x, y) stays there. */
  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    this.stop();
    const before = this.toImage(x, y);
    this.scale *= factor;
    this.scale = clamp(this.scale, Math.min(this.fitScale / 2, 1), MAX_SCALE);
    const after = this.toImage(x, y);
    this.row += before.row - after.row;
    this.col += before.col - after.col;
    this.settle();
  }

  /** Moves the view just enough to show a position, away from the edges of the screen. */
  reveal(row, col, margin = 48) {
    const { x, y } = this.toScreen(row, col);
    const right = Math.max(x - (this.width - margin), 0) + Math.min(x - margin, 0);
    const down = Math.max(y - (this.height - margin), 0) + Math.min(y - margin, 0);
    if (right || down) this.panBy(-right, -down);
  }

  /** The middle of a view that shows a position and as little as possible outside the image. */
  centred(row, col, scale) {
    const within = (value, screen, size) => {
      const half = Math.min(screen / scale / 2, size / 2);
      return clamp(value, half, size - half);
    };
    return [within(row, this.height - 2 * MARGIN_PX, this.image.height), within(col, this.width - 2 * MARGIN_PX, this.image.width)];
  }

  /** Moves smoothly to a position and scale, or at once if `calm`. */
  flyTo(row, col, scale, calm) {
    this.stop();
    const from = this.place;
    if (calm) {
      Object.assign(this, { row, col, scale });
      this.settle();
      return;
    }
    const start = performance.now();
    const lasts = 600;
    const step = (now) => {
      const part = Math.min((now - start) / lasts, 1);
      const eased = part < 0.5 ? 4 * part ** 3 : 1 - (2 - 2 * part) ** 3 / 2;
      this.row = from.row + (row - from.row) * eased;
      this.col = from.col + (col - from.col) * eased;
      this.scale = from.scale * (scale / from.scale) ** eased;
      this.settle();
      this.flight = part < 1 ? requestAnimationFrame(step) : 0;
    };
    this.flight = requestAnimationFrame(step);
  }

  stop() {
    if (this.flight) cancelAnimationFrame(this.flight);
    this.flight = 0;
  }

  /** The level of the pyramid with about one pixel per device pixel. */
  get level() {
    const wanted = Math.round(-Math.log2(this.scale * this.ratio) - 0.2);
    return clamp(wanted, 0, this.image.n_levels - 1);
  }

  /** The rows and columns [first, end) of the image on the screen. */
  get region() {
    const first = this.toImage(0, 0);
    const end = this.toImage(this.width, this.height);
    const { height, width } = this.image;
    return {
      rows: [clamp(Math.floor(first.row), 0, height), clamp(Math.ceil(end.row), 0, height)],
      cols: [clamp(Math.floor(first.col), 0, width), clamp(Math.ceil(end.col), 0, width)],
    };
  }
}
