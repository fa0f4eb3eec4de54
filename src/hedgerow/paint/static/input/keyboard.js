/** Keyboard shortcuts, from one table that the help shows too. Shortcuts without Ctrl can be switched off. */

import { memory } from "../memory.js";

/**
 * @typedef {{keys: string, shown: string[], title: string, group: string, run?: (event: KeyboardEvent) => void, anywhere?: boolean}} Key
 * `keys`: the values of `event.key` in lower case, separated by spaces; "ctrl+" stands for the control or command key
 */

const TEXT_FIELDS = "input:not([type=range]):not([type=checkbox]):not([type=radio]):not([type=color]), textarea, select";

export class Keyboard {
  /**
   * @param {import("../app.js").App} app
   * @param {{stage: any, crosshair: any, pointer: any, toolbox: any}} parts
   * @param {Key[]} table
   */
  constructor(app, parts, table) {
    this.app = app;
    this.stage = parts.stage;
    this.crosshair = parts.crosshair;
    this.pointer = parts.pointer;
    this.toolbox = parts.toolbox;
    this.table = table;
    this.letters = true; // whether shortcuts without Ctrl are on
    app.on("project", () => (this.letters = memory.get("letters", true)));
    this.dabs = false;
    document.addEventListener("keydown", (event) => this.pressed(event));
    document.addEventListener("keyup", (event) => this.released(event));
    globalThis.addEventListener("blur", () => this.letGo());
  }

  setLetters(on) {
    this.letters = on;
    memory.set("letters", on);
  }

  pressed(event) {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.target.matches(TEXT_FIELDS)) return;
    if (event.key === "Tab" || event.key.startsWith("Arrow")) delete this.stage.root.dataset.pointed;
    const onStage = event.target === this.stage.root || event.target === document.body;
    if (onStage && event.key === " ") {
      event.preventDefault();
      if (!event.repeat) this.dabs = true;
      this.pointer.space = true;
      this.stage.root.classList.add("can-pan");
      return;
    }
    if (onStage && this.app.image && this.crosshair.key(event)) {
      event.preventDefault();
      return;
    }
    const pressed = (event.ctrlKey || event.metaKey ? "ctrl+" : "") + event.key.toLowerCase();
    const key = this.table.find((each) => each.run && each.keys.split(" ").includes(pressed));
    if (!key || (event.altKey && !key.anywhere)) return;
    const plain = !event.ctrlKey && !event.metaKey;
    if (plain && !key.anywhere && (!this.letters || (event.target.matches("input, button") && event.key.length > 1))) return;
    event.preventDefault();
    key.run(event);
  }

  released(event) {
    if (event.key === " " && this.pointer.space) {
      const dab = this.dabs && !this.pointer.down.size && this.stage.marks.crosshair;
      this.letGo();
      if (dab) this.crosshair.dab();
    }
    if (event.key.toLowerCase() === "c") this.app.setComparing(false);
  }

  letGo() {
    this.pointer.space = false;
    this.dabs = false;
    this.stage.root.classList.remove("can-pan");
    this.app.setComparing(false);
  }
}
