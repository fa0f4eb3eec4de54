/** Assembles the page. */

import { makeActions } from "./actions.js";
import { App } from "./app.js";
import { announceCounts } from "./counts.js";
import { find, loadIcons } from "./dom.js";
import { Crosshair } from "./input/crosshair.js";
import { Keyboard } from "./input/keyboard.js";
import { giveFocusBack } from "./input/focus.js";
import { keyTable } from "./input/keys.js";
import { Pointer } from "./input/pointer.js";
import { Painting } from "./painting.js";
import { keepPage, memory } from "./memory.js";
import { Session } from "./session.js";
import { Stage } from "./stage.js";
import { Toolbox } from "./tools/index.js";
import { confirmDialog } from "./dialogs/confirm.js";
import { exportDialog } from "./dialogs/export.js";
import { helpDialog } from "./dialogs/help.js";
import { imagesDialog } from "./dialogs/images.js";
import { improveDialog } from "./dialogs/improve.js";
import { classesPanel } from "./panels/classes.js";
import { contrastPanel } from "./panels/contrast.js";
import { hintPanel } from "./panels/hint.js";
import { messages } from "./panels/messages.js";
import { modelsPanel } from "./panels/models.js";
import { numbersPanel } from "./panels/numbers.js";
import { overlayPanel } from "./panels/overlay.js";
import { statusBar } from "./panels/status.js";
import { stripPanel } from "./panels/strip.js";
import { toolbar } from "./panels/toolbar.js";
import { topbar } from "./panels/topbar.js";

await loadIcons();

const app = new App();
const session = new Session(app);
const stage = new Stage(app, find("#stage"));
const painting = new Painting(app, stage.labels, session.outbox);
const toolbox = new Toolbox(app, painting, stage.view, stage.marks);
const crosshair = new Crosshair(app, stage, toolbox);
const pointer = new Pointer(app, stage, toolbox);
const actions = makeActions(app, session, stage, toolbox, painting);
const parts = { app, session, stage, painting, toolbox, actions };
const keyboard = new Keyboard(app, { stage, crosshair, pointer, toolbox },
  keyTable(app, { view: stage.view, toolbox, actions: { ...actions, help: () => actions.help() } }));

keepPage(parts);
giveFocusBack(stage.root);
announceCounts(app, () => painting.current !== null);
messages(parts);
toolbar(parts);
topbar(parts);
classesPanel(parts);
app.on("overlay-new", (message) => stage.overlay.announce(message)); // before the panels, which read the newest result
app.on("overlay-gone", ({ image }) => stage.overlay.remove(image));
overlayPanel(parts);
modelsPanel(parts);
numbersPanel(parts);
contrastPanel(parts);
stripPanel(parts);
statusBar(parts);
hintPanel(parts);
confirmDialog(parts);
imagesDialog(parts);
actions.help = helpDialog(parts, keyboard);
actions.improveDialog = improveDialog(parts);
actions.exportDialog = exportDialog(parts);

app.on("painted", ({ image, region, stroke }) => {
  const own = app.picture(image);
  // What the page has drawn of a stroke that follows edges is not what the server has painted.
  stage.labels.changed(image, own && stroke?.tool === "smart" ? [0, own.height, 0, own.width] : region);
});
app.on("taken-back", (stroke) => {
  const image = app.picture(stroke.image);
  if (image) stage.labels.changed(image.id, [0, image.height, 0, image.width]);
});
app.on("reconnected", () => {
  stage.overlay.forget();
  stage.labels.forget();
  if (app.image) stage.view.image = app.image;
  for (const layer of stage.layers) layer.image = app.image;
});
app.on("view-rests", actions.sendView);
app.on("connection", ({ open }) => open && actions.sendView());

export const page = { ...parts, memory, keyboard, crosshair, pointer }; // for tests and benchmarks

try {
  await session.start();
  stage.resize();
  if (app.image) app.emit("image", app.image);
} catch (problem) {
  app.emit("connection", { open: false, never: true });
  app.notify(`The project could not be opened: ${problem.message}.`, "error");
}
