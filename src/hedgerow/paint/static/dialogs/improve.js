/** "Make it better": slower ways to a better model, as far as this machine has them. */

import { find, icon, make } from "../dom.js";
import { frame } from "./dialog.js";

function ways(can) {
  const encoders = Array.isArray(can.encoder) ? can.encoder : can.encoder ? [can.encoder] : [];
  return [
    { how: "refine", here: Boolean(can.refine), title: "Refine", text: "Trains the forests end to end as a network. Minutes." },
    { how: "deep", here: Boolean(can.deep), title: "Add a convolutional level", text: "A small network on top of the forests. Many minutes." },
    ...encoders.map((name) => ({ how: `encoder:${name}`, here: true, title: `Features of ${name}`,
      text: "A pretrained network looks at the image too. Best for photographs." })),
  ];
}

export function improveDialog({ app, actions }) {
  const dialog = find("#improve-dialog");

  function running() {
    const job = app.jobs.get("improve");
    const meter = make("progress", { max: 1, "aria-label": "Making it better" });
    if (job.part) meter.value = job.part;
    const left = job.left ? ` · about ${job.left < 90 ? `${Math.ceil(job.left)} s` : `${Math.ceil(job.left / 60)} min`} left` : "";
    return [make("p", {}, "You can keep painting meanwhile."), meter, make("p", { class: "dim" }, `${job.text ?? ""}${left}`),
      make("div", { class: "dialog-foot" }, make("button", { type: "button", class: "button", onclick: () => actions.cancel("improve") }, "Cancel"))];
  }

  function choices() {
    const here = ways(app.can).filter((way) => way.here);
    if (!here.length) {
      return [make("p", {}, "None of these ways is installed. ", make("code", {}, "pip install 'hedgerow[net]'"), " installs refinement.")];
    }
    return [
      make("p", {}, "The segmentation on the screen stays until the better one is ready, and you can keep painting."),
      make("ul", { class: "ways" }, ...here.map(({ how, title, text }) => make("li", {},
        make("button", { type: "button", class: "way", onclick: () => {
          if (!actions.improve(how)) return;
          app.jobs.set("improve", { part: 0, text: "Starting", left: null });
          app.emit("jobs");
        } }, icon("sparkle"), make("span", {}, make("strong", {}, title), make("span", { class: "dim" }, text)))))),
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
