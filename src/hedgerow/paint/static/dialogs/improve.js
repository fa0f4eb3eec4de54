/** "Make it better": slower ways to a better model, if they are installed. */

import { find, icon, make } from "../dom.js";
import { frame, runningJob } from "./dialog.js";

function ways(can) {
  const encoders = Array.isArray(can.encoder) ? can.encoder : can.encoder ? [can.encoder] : [];
  return [
    { how: "refine", here: Boolean(can.refine), title: "Refine", text: "Trains the forests end to end as a network. Takes minutes." },
    { how: "deep", here: Boolean(can.deep), title: "Add a convolutional level", text: "Trains small networks on top of the forests. Takes many minutes." },
    ...encoders.map((name) => ({ how: `encoder:${name}`, here: true, title: `Features of ${name}`,
      text: "Adds features of a pretrained network. Best for photographs." })),
  ];
}

export function improveDialog({ app, actions }) {
  const dialog = find("#improve-dialog");

  const running = () => [make("p", {}, "You can keep painting."), ...runningJob({ app, actions }, "improve", "Making it better")];

  function choices() {
    const here = ways(app.can).filter((way) => way.here);
    if (!here.length) {
      return [make("p", {}, "This needs PyTorch: run ", make("code", {}, "pip install '.[net]'"), " in the folder of Hedgerow's source.")];
    }
    return [
      make("p", {}, "The segmentation on the screen stays until the better one is ready, and you can keep painting."),
      make("ul", { class: "ways" }, ...here.map(({ how, title, text }) => make("li", {},
        make("button", { type: "button", class: "way", onclick: () => {
          if (!actions.improve(how)) return;
          app.jobs.set("improve", { part: 0, text: "Starting", left: null });
          app.emit("jobs");
        } }, icon("sparkle"), make("span", {}, make("strong", {}, title), make("span", { class: "dim" }, text)))))),
      ...(app.can.offer ? [make("p", { class: "dim" }, "Photographs? ", make("code", {}, app.can.offer),
        " downloads a larger pretrained network; then start this page again.")] : []),
    ];
  }

  function show() {
    frame(dialog, "improve-heading", "Make it better", ...(app.jobs.has("improve") ? running() : choices()));
  }
  app.on("jobs", () => dialog.open && show());
  app.on("done", ({ job }) => job === "improve" && dialog.open && dialog.close());
  return () => {
    show();
    dialog.showModal();
  };
}
