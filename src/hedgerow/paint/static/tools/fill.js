const MOST = 50000; // pixels that are filled without asking

/** Fills the area of one label, or an unpainted area, or with the wand one of similar brightness, around a click, as far as
 * it is on the screen. The server draws it. */

export class FillTool {
  /** @param {"fill"|"wand"} name */
  constructor(painting, view, name = "fill") {
    this.name = name;
    this.painting = painting;
    this.view = view;
    this.place = null;
  }

  begin(place) {
    this.place = place;
  }

  move(places) {
    this.place = places.at(-1);
  }

  end() {
    const { painting, view, place } = this;
    this.place = null;
    const { image } = painting.app;
    if (!place || place.row < 0 || place.col < 0 || place.row >= image.height || place.col >= image.width) return;
    const { rows, cols } = view.region;
    const more = this.name === "fill" ? { most: MOST } : { tolerance: painting.app.tolerance };
    painting.whole(this.name, [[Math.floor(place.row), Math.floor(place.col)]], { within: [...rows, ...cols], ...more });
  }

  cancel() {
    this.place = null;
  }

  get busy() {
    return this.place !== null;
  }
}
