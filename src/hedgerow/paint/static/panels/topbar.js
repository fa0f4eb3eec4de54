/** The project's and the image's name, and the actions. */

import { one } from "../dom.js";

export function topbar({ app, actions }) {
  one("#previous").addEventListener("click", () => app.showNext(-1));
  one("#following").addEventListener("click", () => app.showNext(1));
  one("#where-next").addEventListener("click", () => actions.next());
  one("#train").addEventListener("click", () => actions.train());
  one("#improve").addEventListener("click", () => actions.improveDialog());
  one("#export").addEventListener("click", () => actions.exportDialog());
  one("#theme").addEventListener("click", () => actions.theme());
  one("#help").addEventListener("click", () => actions.help());
  const live = one("#live");
  live.addEventListener("change", () => actions.live());

  const showImage = () => {
    const place = app.images.indexOf(app.image);
    one("#image-name").textContent = app.image?.name ?? "";
    one("#image-name").title = app.image ? `${app.image.name}, ${app.image.width} × ${app.image.height}` : "";
    one("#image-place").textContent = app.images.length > 1 ? `${place + 1} of ${app.images.length}` : "";
    one("#previous").disabled = place <= 0;
    one("#following").disabled = place < 0 || place + 1 >= app.images.length;
    one(".images-nav").classList.toggle("single", app.images.length < 2);
  };
  app.on("project", () => {
    one("#title").textContent = app.project.title;
    one("#title").title = app.project.folder ?? "";
    document.title = `${app.project.title} · Hedgerow`;
    showImage();
    live.checked = app.live;
  });
  app.on("image", showImage);
  app.on("live", () => (live.checked = app.live));
  app.on("jobs", () => {
    for (const name of ["train", "improve"]) {
      const running = app.jobs.has(name);
      one(`#${name}`).toggleAttribute("data-running", running);
      if (name === "train") one("#train").disabled = running;
    }
  });
  app.on("asked", (on) => one("#where-next").toggleAttribute("data-running", on));
  app.on("connection", ({ open }) => {
    for (const name of ["where-next", "train", "improve", "export"]) one(`#${name}`).disabled = !open;
  });
}
