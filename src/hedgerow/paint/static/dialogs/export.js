/** Export: what to make, the files that were made, and how to go on from the command line. */

import { copy, icon, make, memory, one, size } from "../dom.js";
import { frame } from "./dialog.js";

const CHOICES = [
  ["labels", "Labels", "What is painted, as the command line reads it; 255 is unpainted"],
  ["segmentation", "Segmentation", "One class a pixel, of every image"],
  ["probabilities", "Probabilities", "Of every class, as 32-bit TIFF"],
  ["overlays", "Overlays", "The segmentation over the image, to look at"],
  ["model", "Model", "The file that predict, refine and export read"],
  ["report", "Report", "One page with scores and pictures"],
  ["table", "Table", "Area, position and brightness of every object"],
];
const FIRST = ["labels", "segmentation", "model"];

export function exportDialog({ app, session, actions }) {
  const dialog = one("#export-dialog");
  let made = null; // the last answer of the server
  let problem = "";

  function choices() {
    const before = memory.get("export", FIRST);
    const boxes = CHOICES.map(([what, title, text]) => {
      const box = make("input", { type: "checkbox", id: `export-${what}`, value: what });
      box.checked = before.includes(what);
      return make("li", {}, box, make("label", { for: `export-${what}` }, make("strong", {}, title), make("span", { class: "dim" }, text)));
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
      made = null;
      app.jobs.set("export", { part: 0, text: "Begins", left: null });
      app.emit("jobs");
    });
    check();
    return [form];
  }

  function running() {
    const job = app.jobs.get("export");
    const meter = make("progress", { max: 1, "aria-label": "Exporting" });
    if (job.part) meter.value = job.part;
    return [meter, make("p", { class: "dim" }, job.text ?? ""), make("div", { class: "dialog-foot" },
      make("button", { type: "button", class: "button", onclick: () => actions.cancel("export") }, "Cancel"))];
  }

  function results() {
    const files = (made.files ?? []).map(({ name, address, bytes }) => make("li", {}, icon("file"),
      make("a", { href: address, download: name }, name), make("span", { class: "dim number" }, size(bytes))));
    const commands = (made.commands ?? []).map((command) => {
      const button = make("button", { type: "button", class: "text-button", "aria-label": `Copy ${command}` }, icon("copy"), make("span", {}, "Copy"));
      button.addEventListener("click", () => copy(command, button));
      return make("li", {}, make("code", { tabIndex: 0 }, command), button);
    });
    return [
      make("p", { class: "made" }, icon("check"), make("span", {}, made.text ?? "The files are there.")),
      make("ul", { class: "files", "aria-label": "Files" }, ...files),
      ...(commands.length ? [make("h3", {}, "Continue on the command line"), make("ol", { class: "commands" }, ...commands)] : []),
      make("div", { class: "dialog-foot" }, make("button", { type: "button", class: "button", onclick: () => {
        made = null;
        show();
      } }, "Export something else")),
    ];
  }

  function show() {
    const content = app.jobs.has("export") ? running() : made ? results() : choices();
    frame(dialog, "export-heading", "Export", ...content);
  }

  app.on("jobs", () => dialog.open && app.jobs.has("export") && show());
  app.on("done", (message) => {
    if (message.job !== "export") return;
    made = message;
    if (dialog.open) {
      show();
      dialog.querySelector("a, button")?.focus();
    }
    app.tell(message.text ?? "Exported.", "good");
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
