/** Accepts the segmentation as paint where nothing is painted: of the area that is clicked, or within a line drawn around it. */

const DRAG_PX = 6; // CSS pixels that make a press a drag
const CORNER_GAP_PX = 4; // CSS pixels between the corners of the line

export class AcceptTool {
  /** @param {() => void} changed called when the line has changed */
  constructor(painting, view, changed) {
    this.painting = painting;
    this.view = view;
    this.changed = changed;
    /** @type {{row: number, col: number}[]} */
    this.corners = [];
  }

  begin(place) {
    this.corners = [place];
  }

  move(places) {
    for (const place of places) {
      const last = this.corners.at(-1);
      if (last && this.distance(place, last) >= CORNER_GAP_PX) this.corners.push(place);
    }
    this.changed();
  }

  distance(from, to) {
    return Math.hypot(from.row - to.row, from.col - to.col) * this.view.scale;
  }

  end() {
    const { painting, view, corners } = this;
    const { image } = painting.app;
    this.cancel();
    if (!corners.length) return;
    const { rows, cols } = view.region;
    const drawn = corners.length > 2 && Math.max(...corners.map((each) => this.distance(each, corners[0]))) >= DRAG_PX;
    const [{ row, col }] = corners;
    if (!drawn && (row < 0 || col < 0 || row >= image.height || col >= image.width)) return;
    const points = drawn ? corners.slice(0, painting.app.limits.points).map((each) => painting.point(each.row, each.col))
      : [[Math.floor(row), Math.floor(col)]];
    painting.whole("accept", points, { within: [...rows, ...cols] });
  }

  cancel() {
    this.corners = [];
    this.changed();
  }

  get busy() {
    return this.corners.length > 0;
  }

  shape() {
    return this.corners.length > 1 ? { points: this.corners, closed: true, width: 0 } : null;
  }
}
