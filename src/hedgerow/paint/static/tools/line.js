/** A straight line as wide as the brush: drag it, or click at both ends. */

const DRAG_PX = 6; // CSS pixels that make a press a drag

export class LineTool {
  constructor(painting, view, changed) {
    this.painting = painting;
    this.view = view;
    this.changed = changed;
    this.from = null;
    this.to = null;
    this.clicked = false; // the first end was clicked, the second is still to come
  }

  begin(place) {
    if (!this.painting.ready("line")) return;
    if (!this.clicked) this.from = place;
    this.to = place;
    this.changed();
  }

  move(places) {
    this.hover(places.at(-1));
  }

  hover(place) {
    if (!this.from) return;
    this.to = place;
    this.changed();
  }

  end() {
    if (!this.from) return;
    const length = Math.hypot(this.to.row - this.from.row, this.to.col - this.from.col) * this.view.scale;
    if (length < DRAG_PX && !this.clicked) {
      this.clicked = true;
      return;
    }
    const { painting } = this;
    painting.whole("line", [this.from, this.to].map(({ row, col }) => painting.point(row, col)));
    this.cancel();
  }

  cancel() {
    this.from = this.to = null;
    this.clicked = false;
    this.changed();
  }

  get busy() {
    return this.from !== null;
  }

  shape() {
    return this.from ? { points: [this.from, this.to], closed: false, width: 2 * this.painting.app.radius } : null;
  }
}
