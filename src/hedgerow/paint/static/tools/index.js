/** The tools, and the one in use. */

import { AcceptTool } from "./accept.js";
import { BrushTool } from "./brush.js";
import { FillTool } from "./fill.js";
import { LineTool } from "./line.js";
import { PolygonTool } from "./polygon.js";

/** Name, key and title of the tools, in the order of the toolbar. */
export const TOOLS = [
  { name: "brush", key: "b", title: "Brush" },
  { name: "smart", key: "s", title: "Smart brush: follows edges" },
  { name: "eraser", key: "e", title: "Eraser" },
  { name: "line", key: "l", title: "Line" },
  { name: "polygon", key: "p", title: "Polygon" },
  { name: "fill", key: "f", title: "Fill" },
  { name: "wand", key: "w", title: "Wand: area of similar brightness" },
  { name: "accept", key: "a", title: "Accept the segmentation as paint: click an area, or draw around it" },
  { name: "pan", key: "h", title: "Move the view" },
];

export class Toolbox {
  constructor(app, painting, view, marks) {
    this.app = app;
    const changed = () => marks.redraw();
    this.tools = {
      brush: new BrushTool(painting, "brush"),
      smart: new BrushTool(painting, "smart"),
      eraser: new BrushTool(painting, "eraser"),
      line: new LineTool(painting, view, changed),
      polygon: new PolygonTool(painting, view, changed),
      fill: new FillTool(painting, view),
      wand: new FillTool(painting, view, "wand"),
      accept: new AcceptTool(painting, view, changed),
      pan: null,
    };
    this.used = null; // the tool of the current press; keys do not change it
    marks.shape = () => this.current?.shape?.() ?? null;
    app.on("tool leave", () => this.cancel());
  }

  /** @returns the tool in use; null when the view is moved */
  get current() {
    return this.used ?? this.tools[this.app.tool];
  }

  begin(place, name = this.app.tool) {
    this.used = this.tools[name];
    this.used?.begin(place);
  }

  move(places) {
    this.used?.move(places);
  }

  end() {
    this.used?.end();
    this.used = null;
  }

  hover(place) {
    this.current?.hover?.(place);
  }

  /** Takes back the last step of an unfinished shape, or all of an unfinished stroke. @returns {boolean} whether there was one */
  undoStep() {
    const { polygon } = this.tools;
    if (!polygon.busy) return this.cancel();
    polygon.removeLast();
    return true;
  }

  /** Discards unfinished shapes and strokes. @returns {boolean} whether there were any */
  cancel() {
    const busy = Object.values(this.tools).filter((tool) => tool?.busy);
    for (const tool of busy) tool.cancel();
    this.used = null;
    return busy.length > 0;
  }
}
