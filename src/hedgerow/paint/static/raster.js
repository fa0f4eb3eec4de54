/** The pixels that a stroke paints, row by row, exactly as the server computes them, see docs/paint-protocol.md. Points are
 * [row, col], pixel centres at whole numbers. `emit(row, first, end)` is called with runs of columns [first, end); runs may
 * overlap. */

/** Tools whose strokes appear when the server has drawn them. */
export const DRAWN_BY_SERVER = ["fill", "wand", "accept", "accept-class"];

/** Whether a pixel's centre is at most `radius` from the segment a to b: exact in doubles except for the last product. */
export function near(row, col, a, b, radius) {
  const dr = b[0] - a[0];
  const dc = b[1] - a[1];
  const vr = row - a[0];
  const vc = col - a[1];
  const along = vr * dr + vc * dc;
  if (along <= 0) return vr * vr + vc * vc <= radius * radius;
  const length = dr * dr + dc * dc;
  if (along >= length) {
    const er = row - b[0];
    const ec = col - b[1];
    return er * er + ec * ec <= radius * radius;
  }
  const cross = vr * dc - vc * dr;
  return cross * cross <= radius * radius * length;
}

/** The approximate columns at which rows cut the capsule around a segment. All segments share one object, so that no
 * garbage is left at every row. */
const capsule = {
  low: 0,
  high: 0,
  rows: new Float64Array(4), // corners of the rectangle between the two ends
  cols: new Float64Array(4),

  set(a, b, radius) {
    const length = Math.hypot(b[0] - a[0], b[1] - a[1]);
    const nr = length > 0 ? (-(b[1] - a[1]) / length) * radius : 0;
    const nc = length > 0 ? ((b[0] - a[0]) / length) * radius : 0;
    this.rows.set([a[0] + nr, b[0] + nr, b[0] - nr, a[0] - nr]);
    this.cols.set([a[1] + nc, b[1] + nc, b[1] - nc, a[1] - nc]);
    this.radius = radius;
    [this.a, this.b] = [a, b];
  },

  widen(col) {
    if (col < this.low) this.low = col;
    if (col > this.high) this.high = col;
  },

  end(row, end) {
    const away = row - end[0];
    const rest = this.radius * this.radius - away * away;
    if (rest < 0) return;
    const half = Math.sqrt(rest);
    this.widen(end[1] - half);
    this.widen(end[1] + half);
  },

  /** Sets low and high. @returns {boolean} whether the row cuts it */
  cut(row) {
    this.low = Infinity;
    this.high = -Infinity;
    this.end(row, this.a);
    this.end(row, this.b);
    const { rows, cols } = this;
    for (let i = 0; i < 4; i++) {
      const j = (i + 1) & 3;
      if (rows[i] <= row !== rows[j] <= row) this.widen(cols[i] + ((row - rows[i]) * (cols[j] - cols[i])) / (rows[j] - rows[i]));
    }
    return this.low <= this.high || this.touched(row);
  },

  /** A row that only touches a capsule may be missed by rounding: look next to its ends. */
  touched(row) {
    for (const end of [this.a, this.b]) if (Math.abs(Math.abs(row - end[0]) - this.radius) < 1e-6) this.widen(end[1]);
    return this.low <= this.high;
  },
};

/** Pixels of one segment of a polyline, within [r0, r1, c0, c1]. */
function pieceRuns(a, b, radius, [r0, r1, c0, c1], emit) {
  const top = Math.max(r0, Math.ceil(Math.min(a[0], b[0]) - radius) - 1);
  const bottom = Math.min(r1 - 1, Math.floor(Math.max(a[0], b[0]) + radius) + 1);
  capsule.set(a, b, radius);
  for (let row = top; row <= bottom; row++) {
    if (!capsule.cut(row)) continue;
    // One more pixel on either side is checked, so that the ends of the run are exact.
    let first = Math.floor(capsule.low) - 1;
    let last = Math.ceil(capsule.high) + 1;
    while (first <= last && !near(row, first, a, b, radius)) first++;
    while (last >= first && !near(row, last, a, b, radius)) last--;
    first = Math.max(first, c0);
    last = Math.min(last, c1 - 1);
    if (first <= last) emit(row, first, last + 1);
  }
}

/** The pixel nearest to a point is painted with any radius. */
function nearestRun(point, [r0, r1, c0, c1], emit) {
  const row = Math.floor(point[0] + 0.5);
  const col = Math.floor(point[1] + 0.5);
  if (row >= r0 && row < r1 && col >= c0 && col < c1) emit(row, col, col + 1);
}

/** Pixels of a polyline from its point number `from` on. */
function polylineRuns(points, radius, bounds, emit, from = 0) {
  if (points.length === 1) pieceRuns(points[0], points[0], radius, bounds, emit);
  for (let i = Math.max(from, 1); i < points.length; i++) pieceRuns(points[i - 1], points[i], radius, bounds, emit);
  for (let i = from; i < points.length; i++) nearestRun(points[i], bounds, emit);
}

/** Pixels whose centre lies inside a polygon by the even-odd rule, and its outline. */
function polygonRuns(points, bounds, emit) {
  const [r0, r1, c0, c1] = bounds;
  const rows = points.map((point) => point[0]);
  const top = Math.max(r0, Math.ceil(Math.min(...rows)));
  const bottom = Math.min(r1 - 1, Math.floor(Math.max(...rows)));
  for (let row = top; row <= bottom; row++) {
    const cuts = [];
    for (let i = 0; i < points.length; i++) {
      const a = points[i];
      const b = points[(i + 1) % points.length];
      if ((a[0] <= row) !== (b[0] <= row)) cuts.push(a[1] + ((row - a[0]) * (b[1] - a[1])) / (b[0] - a[0]));
    }
    cuts.sort((a, b) => a - b);
    for (let i = 0; i + 1 < cuts.length; i += 2) {
      const first = Math.max(Math.ceil(cuts[i]), c0);
      const end = Math.min(Math.floor(cuts[i + 1]) + 1, c1);
      if (first < end) emit(row, first, end);
    }
  }
  polylineRuns([...points, points[0]], 0.5, bounds, emit);
}

/** Pixels of a whole stroke as it is sent to the server: `{tool, radius, points}`. */
export function strokeRuns(stroke, bounds, emit, from = 0) {
  if (stroke.tool === "polygon") polygonRuns(stroke.points, bounds, emit);
  else if (!DRAWN_BY_SERVER.includes(stroke.tool)) polylineRuns(stroke.points, stroke.radius, bounds, emit, from);
}

/** A stroke at a level of the pyramid: it paints blocks that it touches, and erases blocks that it covers. */
export function atLevel(stroke, level) {
  if (level === 0) return stroke;
  const block = 2 ** level;
  const half = (block - 1) / 2;
  const points = stroke.points.map(([row, col]) => [(row - half) / block, (col - half) / block]);
  const radius = (stroke.tool === "eraser" ? stroke.radius - half : stroke.radius + half) / block;
  return { ...stroke, points, radius };
}
