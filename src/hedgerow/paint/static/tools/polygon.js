/** A polygon: click its corners or drag around an area; a click on the first corner, a double click or Enter closes it. */

const CLOSE_PX = 10; // CSS pixels from the first corner
const CORNER_GAP_PX = 4; // CSS pixels between the corners of a dragged outline

export class PolygonTool {
  constructor(painting, view, changed) {
    this.painting = painting;
    this.view = view;
    this.changed = changed;
    /** @type {{row: number, col: number}[]} */
    this.corners = [];
    this.next = null;
    this.dragged = false;
  }

  begin(place) {
    if (!this.painting.ready("polygon")) return;
    this.dragged = false;
    if (this.corners.length > 2 && this.distance(place, this.corners[0]) < CLOSE_PX) {
      this.close();
      return;
    }
    if (this.corners.length && this.distance(place, this.corners.at(-1)) < 2) {
      this.close();
      return;
    }
    this.add(place);
  }

  add(place) {
    if (this.corners.length < this.painting.app.limits.points - 1) this.corners.push(place);
    this.next = null;
    this.changed();
  }

  move(places) {
    for (const place of places) {
      if (this.corners.length && this.distance(place, this.corners.at(-1)) >= CORNER_GAP_PX) {
        this.dragged = true;
        this.add(place);
      }
    }
  }

  hover(place) {
    if (!this.corners.length) return;
    this.next = place;
    this.changed();
  }

  end() {
    if (this.dragged && this.corners.length > 8 && this.distance(this.corners.at(-1), this.corners[0]) < 3 * CLOSE_PX) this.close();
  }

  distance(from, to) {
    return Math.hypot(from.row - to.row, from.col - to.col) * this.view.scale;
  }

  close() {
    const { painting, corners } = this;
    if (corners.length > 2) painting.whole("polygon", corners.map(({ row, col }) => painting.point(row, col)));
    this.cancel();
  }

  removeLast() {
    this.corners.pop();
    this.changed();
  }

  cancel() {
    this.corners = [];
    this.next = null;
    this.changed();
  }

  get busy() {
    return this.corners.length > 0;
  }

  shape() {
    if (!this.corners.length) return null;
    return { points: this.next ? [...this.corners, this.next] : this.corners, closed: true, width: 0 };
  }
}
