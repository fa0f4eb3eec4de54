/** Which key does what. */

import { TOOLS } from "../tools/index.js";

export const OVERLAYS = ["classes", "outlines", "probability", "uncertainty", "none"];

/** @returns {import("./keyboard.js").Key[]} */
export function keyTable(app, { view, toolbox, actions }) {
  const tools = TOOLS.map(({ name, key, title }) => ({
    keys: key, shown: [key.toUpperCase()], what: title, group: "Tools", run: () => app.setTool(name),
  }));
  const zoom = (factor) => () => view.zoomBy(factor);
  return [
    ...tools,
    { keys: "[", shown: ["["], what: "Smaller brush", group: "Tools", run: () => app.growRadius(-1) },
    { keys: "]", shown: ["]"], what: "Larger brush", group: "Tools", run: () => app.growRadius(1) },
    { keys: "", shown: ["Alt", "wheel"], what: "Size of the brush", group: "Tools" },
    { keys: "", shown: ["right button"], what: "Erase with any tool", group: "Tools" },
    { keys: "1 2 3 4 5 6 7 8 9", shown: ["1", "…", "9"], what: "Paint with that class", group: "Classes",
      run: (event) => chooseClass(app, Number(event.key) - 1) },
    { keys: "ctrl+z", shown: ["Ctrl", "Z"], what: "Undo", group: "Classes",
      run: (event) => (event.shiftKey ? actions.redo() : actions.undo()) },
    { keys: "ctrl+y", shown: ["Ctrl", "Y"], what: "Redo", group: "Classes", run: actions.redo },
    { keys: "escape", shown: ["Esc"], what: "Cancel an unfinished shape", group: "Classes", anywhere: true,
      run: () => actions.escape() },
    { keys: "backspace", shown: ["⌫"], what: "Remove the last corner", group: "Classes",
      run: () => app.tool === "polygon" && toolbox.current.removeLast() },
    { keys: "n", shown: ["N"], what: "Where next: go where paint helps most", group: "Segmentation", run: actions.next },
    { keys: "u", shown: ["U"], what: "Live on or off", group: "Segmentation", run: actions.live },
    { keys: "t", shown: ["T"], what: "Train on all", group: "Segmentation", run: actions.train },
    { keys: "o", shown: ["O"], what: "Colours, outlines, probability, uncertainty, none", group: "Segmentation",
      run: () => app.setOverlay({ mode: OVERLAYS[(OVERLAYS.indexOf(app.overlay.mode) + 1) % OVERLAYS.length] }) },
    { keys: ", .", shown: [",", "."], what: "Less or more opacity", group: "Segmentation",
      run: (event) => actions.opacity(event.key === "." ? 0.1 : -0.1) },
    { keys: "c", shown: ["C"], what: "Hold: the image alone", group: "Segmentation", run: () => app.setComparing(true) },
    { keys: "+ =", shown: ["+"], what: "Zoom in (or the wheel)", group: "View", run: zoom(1.4) },
    { keys: "-", shown: ["−"], what: "Zoom out", group: "View", run: zoom(1 / 1.4) },
    { keys: "0", shown: ["0"], what: "The whole image", group: "View", run: () => view.fit() },
    { keys: "", shown: ["Space", "drag"], what: "Move the view", group: "View" },
    { keys: "pageup", shown: ["Page Up"], what: "Previous image", group: "View", run: () => app.showNext(-1) },
    { keys: "pagedown", shown: ["Page Down"], what: "Next image", group: "View", run: () => app.showNext(1) },
    { keys: "?", shown: ["?"], what: "Show all keys", group: "View", run: actions.help },
    { keys: "", shown: ["↑", "↓", "←", "→"], what: "Move the crosshair", group: "Without a mouse" },
    { keys: "", shown: ["Shift", "↑"], what: "Further; with Alt one pixel; with Ctrl the view", group: "Without a mouse" },
    { keys: "", shown: ["Enter"], what: "Brush down, brush up; a corner", group: "Without a mouse" },
    { keys: "", shown: ["Space"], what: "A dot; a corner; a fill", group: "Without a mouse" },
  ];
}

function chooseClass(app, place) {
  const chosen = app.classes[place];
  if (chosen) {
    app.setClass(chosen.id);
    app.tell(`Painting with ${chosen.name}.`, "quiet");
  }
}
