/** Mouse, pen and fingers on the canvas: one paints, two fingers move and zoom; the middle button or the space bar moves. */

const PAN_BUTTONS = 4; // the middle one
const ERASE_BUTTONS = 2 | 32; // the right one, and the other end of a pen

export class Pointer {
  /**
   * @param {import("../app.js").App} app
   * @param {import("../stage.js").Stage} stage
   * @param {import("../tools/index.js").Toolbox} toolbox
   */
  constructor(app, stage, toolbox) {
    this.app = app;
    this.stage = stage;
    this.toolbox = toolbox;
    this.view = stage.view;
    /** @type {Map<number, {x: number, y: number}>} the pointers that touch the canvas */
    this.down = new Map();
    this.doing = null; // "paint", "pan" or "pinch"
    this.space = false;
    this.penSeen = false; // once a pen is used, fingers only move the view
    const { root } = stage;
    app.on("resizes", () => this.interrupt());
    root.addEventListener("pointerdown", (event) => this.pressed(event));
    root.addEventListener("pointermove", (event) => this.moved(event));
    root.addEventListener("pointerup", (event) => this.released(event));
    root.addEventListener("pointercancel", (event) => this.abandoned(event));
    root.addEventListener("pointerenter", () => stage.measure());
    root.addEventListener("pointerleave", () => this.left());
    root.addEventListener("contextmenu", (event) => event.preventDefault());
    root.addEventListener("wheel", (event) => this.turned(event), { passive: false });
    root.addEventListener("dblclick", (event) => event.preventDefault());
  }

  /** The position of an event on the stage. Measuring the stage at every event would make the browser lay out the page. */
  at(event) {
    const { left, top } = this.stage.corner;
    return { x: event.clientX - left, y: event.clientY - top };
  }

  pressed(event) {
    if (!this.app.image || event.target.closest?.("[data-no-paint]")) return;
    this.stage.measure();
    this.stage.root.dataset.pointed = ""; // a user with a pointer need not see the keyboard focus
    this.stage.root.focus({ preventScroll: true });
    const place = this.at(event);
    this.down.set(event.pointerId, place);
    this.stage.root.setPointerCapture(event.pointerId);
    this.stage.marks.crosshair = null;
    if (event.pointerType === "pen") this.penSeen = true;
    if (this.down.size === 2) {
      this.toolbox.used?.busy && this.toolbox.cancel();
      this.doing = "pinch";
    } else if (this.down.size === 1) this.start(event, place);
    event.preventDefault();
  }

  start(event, { x, y }) {
    const finger = event.pointerType === "touch";
    const pans = this.space || event.buttons & PAN_BUTTONS || this.app.tool === "pan" || (finger && this.penSeen);
    if (pans) {
      this.doing = "pan";
      this.stage.root.classList.add("panning");
      return;
    }
    this.doing = "paint";
    this.showPointer(event);
    this.toolbox.begin(this.view.toImage(x, y), event.buttons & ERASE_BUTTONS ? "eraser" : this.app.tool);
  }

  moved(event) {
    const place = this.at(event);
    const before = this.down.get(event.pointerId);
    if (this.stage.marks.crosshair && !before) this.stage.marks.crosshair = null;
    if (!before) {
      this.showPointer(event);
      this.toolbox.hover(this.view.toImage(place.x, place.y));
      this.app.emit("hover", this.view.toImage(place.x, place.y));
      return;
    }
    if (this.doing === "pan") this.view.panBy(place.x - before.x, place.y - before.y);
    else if (this.doing === "pinch") this.pinch(event.pointerId, place);
    else if (this.doing === "paint") this.paint(event);
    this.down.set(event.pointerId, place);
  }

  paint(event) {
    const events = event.getCoalescedEvents?.() ?? [];
    const places = (events.length ? events : [event]).map((each) => {
      const { x, y } = this.at(each);
      return this.view.toImage(x, y);
    });
    this.toolbox.move(places);
    this.showPointer(event);
    this.app.emit("hover", places.at(-1));
  }

  /** Two fingers move and zoom: the pixels under them stay under them. */
  pinch(id, place) {
    const [other] = [...this.down].filter(([key]) => key !== id).map(([, value]) => value);
    const before = this.down.get(id);
    const [was, is] = [before, place].map(({ x, y }) => Math.hypot(x - other.x, y - other.y));
    const middle = { x: (place.x + other.x) / 2, y: (place.y + other.y) / 2 };
    this.view.panBy((place.x - before.x) / 2, (place.y - before.y) / 2);
    if (was > 0 && is > 0) this.view.zoomBy(is / was, middle.x, middle.y);
  }

  released(event) {
    if (!this.down.delete(event.pointerId)) return;
    if (this.doing === "paint") this.toolbox.end();
    this.ended(event);
  }

  abandoned(event) {
    if (!this.down.delete(event.pointerId)) return;
    if (this.doing === "paint") this.toolbox.cancel();
    this.ended(event);
  }

  /** Ends a stroke where it is: the rest of the pointer's way would be a streak across the image. */
  interrupt() {
    if (this.doing !== "paint") return;
    this.toolbox.end();
    this.doing = null;
  }

  ended(event) {
    this.stage.root.classList.remove("panning");
    this.doing = this.down.size && this.doing === "pinch" ? "pan" : null;
    if (event.pointerType !== "mouse") this.left();
  }

  left() {
    if (this.down.size) return;
    this.stage.marks.pointer = null;
    this.stage.marks.redraw();
    this.app.emit("hover", null);
  }

  showPointer(event) {
    this.stage.marks.pointer = this.at(event);
    this.stage.marks.redraw();
  }

  turned(event) {
    if (event.target.closest?.("[data-no-paint]")) return;
    event.preventDefault();
    const unit = [1, 16, 400][event.deltaMode] ?? 1;
    const delta = (event.deltaY || event.deltaX) * unit;
    if (event.altKey || event.shiftKey) {
      this.app.growRadius(-Math.sign(delta));
      return;
    }
    const { x, y } = this.at(event);
    // A pinch on a trackpad arrives as a small turn of the wheel with the control key.
    this.view.zoomBy(Math.exp(-delta * (event.ctrlKey ? 0.01 : 0.0016)), x, y);
  }
}
