/** Brush, smart brush and eraser: they paint along the path of the pointer while it moves. */

export class BrushTool {
  /** @param {"brush"|"smart"|"eraser"} name */
  constructor(painting, name) {
    this.painting = painting;
    this.name = name;
  }

  begin(place) {
    this.painting.begin(this.name, place.row, place.col);
  }

  move(places) {
    this.painting.extend(places);
  }

  end() {
    this.painting.finish();
  }

  cancel() {
    this.painting.cancel();
  }

  get busy() {
    return this.painting.current !== null;
  }
}
