/** The names of the project and the image, and the main actions. */

import { find } from "../dom.js";

export function topbar({ app, actions }) {
  find("#previous").addEventListener("click", () => app.showNext(-1));
  find("#following").addEventListener("click", () => app.showNext(1));
  find("#where-next").addEventListener("click", () => actions.next());
  find("#train").addEventListener("click", () => actions.train());
  find("#improve").addEventListener("click", () => actions.improveDialog());
  find("#export").addEventListener("click", () => actions.exportDialog());
  find("#theme").addEventListener("click", () => actions.theme());
  find("#help").addEventListener("click", () => actions.help());
  const live = find("#live");
  live.addEventListener("change", () => actions.live());

  const showImage = () => {
    const place = app.images.indexOf(app.image);
    find("#image-name").textContent = app.image?.name ?? "";
    find("#image-name").title = app.image ? `${app.image.name}, ${app.image.width} × ${app.image.height}` : "";
    find("#image-place").textContent = app.images.length > 1 ? `${place + 1} of ${app.images.length}` : "";
    find("#previous").disabled = place <= 0;
    find("#following").disabled = place < 0 || place + 1 >= app.images.length;
    find(".images-nav").classList.toggle("single", app.images.length < 2);
  };
  app.on("project", () => {
    find("#title").textContent = app.project.title;
    find("#title").title = app.project.folder ?? "";
    document.title = `${app.project.title} · Hedgerow`;
    showImage();
    live.checked = app.live;
  });
  app.on("image", showImage);
  app.on("live", () => (live.checked = app.live));
  app.on("jobs", () => {
    for (const name of ["train", "improve"]) {
      const running = app.jobs.has(name);
      find(`#${name}`).toggleAttribute("data-running", running);
      if (name === "train") find("#train").disabled = running;
    }
  });
  app.on("searching", (on) => find("#where-next").toggleAttribute("data-running", on));
  app.on("connection", ({ open }) => {
    for (const name of ["where-next", "train", "improve", "export"]) find(`#${name}`).disabled = !open;
  });
}
