/** Export: the choice of files, the finished files, and commands to continue on the command line. */

import { copy, find, icon, make, size } from "../dom.js";
import { memory } from "../memory.js";
import { frame, runningJob } from "./dialog.js";

const KINDS = [
  ["labels", "Labels", "The paint as label maps for the command line; 255 means unpainted"],
  ["segmentation", "Segmentation", "One class per pixel, for every image"],
  ["probabilities", "Probabilities", "One channel per class, as 32-bit TIFF"],
  ["overlays", "Overlays", "Pictures of the segmentation over the image"],
  ["model", "Model", "The file for the commands predict, refine and export"],
  ["report", "Report", "One page with scores and pictures"],
  ["table", "Table", "Area, position and brightness of every object"],
];
const DEFAULT_KINDS = ["labels", "segmentation", "model"];

export function exportDialog({ app, session, actions }) {
  const dialog = find("#export-dialog");
  let result = null; // the last answer of the server
  let problem = "";

  function choices() {
    const before = memory.get("export", DEFAULT_KINDS);
    const boxes = KINDS.map(([kind, title, text]) => {
      const box = make("input", { type: "checkbox", id: `export-${kind}`, value: kind });
      box.checked = before.includes(kind);
      return make("li", {}, box, make("label", { for: `export-${kind}` }, make("strong", {}, title), make("span", { class: "dim" }, text)));
    });
    const go = make("button", { type: "submit", class: "button primary" }, icon("export"), make("span", {}, "Export"));
    const form = make("form", {}, make("fieldset", {}, make("legend", { class: "for-readers" }, "What to export"),
      make("ul", { class: "choices" }, ...boxes)),
    ...(problem ? [make("p", { class: "problem", role: "alert" }, icon("warning"), problem)] : []),
    make("div", { class: "dialog-foot" }, go));
    const wanted = () => [...form.querySelectorAll("input:checked")].map((box) => box.value);
    const check = () => (go.disabled = !wanted().length);
    form.addEventListener("change", check);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      memory.set("export", wanted());
      problem = "";
      if (!session.send({ do: "export", what: wanted() })) return;
      result = null;
      app.jobs.set("export", { part: 0, text: "Starting", left: null });
      app.emit("jobs");
    });
    check();
    return [form];
  }

  function results() {
    const files = (result.files ?? []).map(({ name, address, bytes }) => make("li", {}, icon("file"),
      make("a", { href: address, download: name }, name), make("span", { class: "dim number" }, size(bytes))));
    const commands = (result.commands ?? []).map((command) => {
      const button = make("button", { type: "button", class: "text-button", "aria-label": `Copy ${command}` }, icon("copy"), make("span", {}, "Copy"));
      button.addEventListener("click", () => copy(command, button));
      return make("li", {}, make("code", { tabIndex: 0 }, command), button);
    });
    return [
      make("p", { class: "result" }, icon("check"), make("span", {}, result.text ?? "The files are ready.")),
      make("ul", { class: "files", "aria-label": "Files" }, ...files),
      ...(commands.length ? [make("h3", {}, "Continue on the command line"), make("ol", { class: "commands" }, ...commands)] : []),
      make("div", { class: "dialog-foot" }, make("button", { type: "button", class: "button", onclick: () => {
        result = null;
        show();
      } }, "Export something else")),
    ];
  }

  function show() {
    const content = app.jobs.has("export") ? runningJob({ app, actions }, "export", "Exporting") : result ? results() : choices();
    frame(dialog, "export-heading", "Export", ...content);
  }

  app.on("jobs", () => dialog.open && app.jobs.has("export") && show());
  app.on("done", (message) => {
    if (message.job !== "export") return;
    result = message;
    if (dialog.open) {
      show();
      dialog.querySelector("a, button")?.focus();
    }
    app.notify(message.text ?? "Exported.", "good");
  });
  app.on("failed", ({ job, why }) => {
    if (job !== "export") return;
    problem = why;
    if (dialog.open) show();
  });
  return () => {
    problem = "";
    show();
    dialog.showModal();
  };
}
