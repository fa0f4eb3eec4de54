/** The table of keys. */

import { TOOLS } from "../tools/index.js";

const OVERLAYS = ["classes", "outlines", "probability", "uncertainty", "none"];

/** @returns {import("./keyboard.js").Key[]} */
export function keyTable(app, { view, toolbox, actions }) {
  const tools = TOOLS.map(({ name, key, title }) => ({
    keys: key, shown: [key.toUpperCase()], title, group: "Tools", run: () => app.setTool(name),
  }));
  const zoom = (factor) => () => view.zoomBy(factor);
  return [
    ...tools,
    { keys: "[", shown: ["["], title: "Smaller brush", group: "Tools", run: () => app.growRadius(-1) },
    { keys: "]", shown: ["]"], title: "Larger brush", group: "Tools", run: () => app.growRadius(1) },
    { keys: "", shown: ["Alt", "wheel"], title: "Change the brush size", group: "Tools" },
    { keys: "", shown: ["right button"], title: "Erase with any tool", group: "Tools" },
    { keys: "1 2 3 4 5 6 7 8 9", shown: ["1", "…", "9"], title: "Choose the class to paint with", group: "Classes",
      run: (event) => chooseClass(app, Number(event.key) - 1) },
    { keys: "ctrl+z", shown: ["Ctrl", "Z"], title: "Undo", group: "Classes",
      run: (event) => (event.shiftKey ? actions.redo() : actions.undo()) },
    { keys: "ctrl+y", shown: ["Ctrl", "Y"], title: "Redo", group: "Classes", run: actions.redo },
    { keys: "escape", shown: ["Esc"], title: "Cancel an unfinished shape", group: "Classes", anywhere: true,
      run: () => actions.escape() },
    { keys: "backspace", shown: ["⌫"], title: "Remove the last corner", group: "Classes",
      run: () => app.tool === "polygon" && toolbox.current.removeLast() },
    { keys: "n", shown: ["N"], title: "Where next: go where paint helps most; again: another place", group: "Segmentation", run: () => actions.next() },
    { keys: "u", shown: ["U"], title: "Turn live segmentation on or off", group: "Segmentation", run: actions.live },
    { keys: "t", shown: ["T"], title: "Train on all", group: "Segmentation", run: actions.train },
    { keys: "o", shown: ["O"], title: "Colours, outlines, probability, uncertainty, none", group: "Segmentation",
      run: () => app.setOverlay({ mode: OVERLAYS[(OVERLAYS.indexOf(app.overlay.mode) + 1) % OVERLAYS.length] }) },
    { keys: ", .", shown: [",", "."], title: "Decrease or increase opacity", group: "Segmentation",
      run: (event) => actions.opacity(event.key === "." ? 0.1 : -0.1) },
    { keys: "v", shown: ["V"], title: "Show or hide the paint", group: "Segmentation", run: () => app.setStrokes({ shown: !app.strokes.shown }) },
    { keys: "c", shown: ["C"], title: "Hold to see the image alone", group: "Segmentation", run: () => app.setComparing(true) },
    { keys: "+ =", shown: ["+"], title: "Zoom in (or the wheel)", group: "View", run: zoom(1.4) },
    { keys: "-", shown: ["−"], title: "Zoom out", group: "View", run: zoom(1 / 1.4) },
    { keys: "0", shown: ["0"], title: "Show the whole image", group: "View", run: () => view.fit() },
    { keys: "", shown: ["Space", "drag"], title: "Move the view", group: "View" },
    { keys: "pageup", shown: ["Page Up"], title: "Previous image", group: "View", run: () => app.showNext(-1) },
    { keys: "pagedown", shown: ["Page Down"], title: "Next image", group: "View", run: () => app.showNext(1) },
    { keys: "?", shown: ["?"], title: "Show all keys", group: "View", run: actions.help },
    { keys: "", shown: ["↑", "↓", "←", "→"], title: "Move the crosshair", group: "Without a mouse" },
    { keys: "", shown: ["Shift", "↑"], title: "Move further; with Alt by one pixel; with Ctrl the view", group: "Without a mouse" },
    { keys: "", shown: ["Enter"], title: "Put down or lift the brush; set a corner", group: "Without a mouse" },
    { keys: "", shown: ["Space"], title: "Paint a dot; set a corner; fill", group: "Without a mouse" },
  ];
}

function chooseClass(app, place) {
  const chosen = app.classes[place];
  if (chosen) {
    app.setClass(chosen.id);
    app.notify(`Painting with ${chosen.name}.`, "quiet");
  }
}
