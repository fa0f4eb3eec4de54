const MOST = 50000; // pixels that are filled without asking

/** Fills the area of one label, or an unpainted area, around a click, as far as it is on the screen. The server draws it. */

export class FillTool {
  constructor(painting, view) {
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
    painting.whole("fill", [[Math.floor(place.row), Math.floor(place.col)]], { within: [...rows, ...cols], most: MOST });
  }

  cancel() {
    this.place = null;
  }

  get busy() {
    return this.place !== null;
  }
}
