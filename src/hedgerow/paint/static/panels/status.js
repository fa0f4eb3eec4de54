/** The status line: position and class under the pointer, running jobs, zoom and connection. */

import { UNPAINTED } from "../app.js";
import { find, make, timeLeft } from "../dom.js";

const JOB_TITLES = {
  compile: "Getting ready", pyramid: "Reading the image", features: "Computing features", segment: "Segmenting", train: "Training on all",
  improve: "Making it better", export: "Exporting",
};
const CANCELLABLE = ["train", "improve", "export"];

export function statusBar({ app, stage, actions }) {
  const where = find("#where");
  const progress = find("#progress");
  const busy = find("#busy");

  app.on("hover", (place) => {
    where.textContent = place && app.image ? described(place) : "";
  });
  const named = (id) => app.classes.find((each) => each.id === id)?.name;
  function described({ row, col }) {
    const [r, c] = [Math.floor(row), Math.floor(col)];
    if (r < 0 || c < 0 || r >= app.image.height || c >= app.image.width) return "";
    const label = stage.labels.labelAt(row, col);
    const seen = stage.overlay.classAt(row, col);
    const words = [`row ${r}, column ${c}`];
    if (label !== UNPAINTED) words.push(`painted ${named(label) ?? label}`);
    if (seen !== null && seen !== UNPAINTED) words.push(`segmented ${named(seen) ?? seen}`);
    return words.join("  ·  ");
  }

  app.on("view", () => {
    const percent = stage.view.scale * 100;
    find("#zoom").textContent = `${percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
  });
  find("#zoom").addEventListener("click", () => stage.view.zoomBy(1 / stage.view.scale));
  find("#zoom-in").addEventListener("click", () => stage.view.zoomBy(1.4));
  find("#zoom-out").addEventListener("click", () => stage.view.zoomBy(1 / 1.4));
  find("#fit").addEventListener("click", () => stage.view.fit());

  app.on("connection", ({ open, silent }) => {
    const shown = find("#connection");
    shown.dataset.open = String(open);
    shown.textContent = open ? "Saved as you paint" : silent ? "No answer" : "Not connected";
  });
  app.on("windows", () => {
    const shown = find("#windows");
    shown.hidden = app.windows < 2;
    shown.textContent = `${app.windows} windows`;
  });

  function bar(job, { part, text, left }) {
    const known = typeof part === "number" && part > 0;
    const meter = make("progress", { max: 1, "aria-label": JOB_TITLES[job] ?? job });
    if (known) meter.value = part;
    const cancel = CANCELLABLE.includes(job)
      ? make("button", { type: "button", class: "text-button", onclick: () => actions.cancel(job) }, "Cancel") : null;
    return [meter, make("span", { class: "progress-text" }, [text || JOB_TITLES[job] || job, timeLeft(left)].filter(Boolean).join(" · ")), cancel];
  }

  app.on("jobs", () => {
    // Of several jobs, the most important one is shown.
    const order = ["improve", "train", "export", "pyramid", "features", "compile", "segment"];
    const job = order.find((each) => app.jobs.has(each));
    const waits = ["compile", "pyramid", "features"].includes(job) && !stage.overlay.results.has(app.image?.id);
    progress.hidden = !job || waits;
    busy.hidden = !waits;
    if (!job) return;
    const focused = document.activeElement?.closest("#progress");
    (waits ? busy : progress).replaceChildren(...bar(job, app.jobs.get(job)).filter(Boolean));
    if (focused) progress.querySelector("button")?.focus();
  });
  app.on("done", ({ job, text, warns }) => {
    if (job === "train" || job === "improve") app.notify(text ?? `${JOB_TITLES[job]}: done.`, warns ? "warning" : "good");
  });
}
