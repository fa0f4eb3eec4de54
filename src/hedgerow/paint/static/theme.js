/** The theme: the user's choice in this project, or elsewhere, or that of the system. This runs before the page is drawn, so that nothing flashes. */

const lightSystem = matchMedia("(prefers-color-scheme: light)");

const ofProject = document.documentElement.dataset.theme ?? null; // the server has put it there

function showTheme() {
  let chosen = ofProject;
  try {
    chosen ??= JSON.parse(localStorage.getItem("hedgerow-theme"));
  } catch {
    // forbidden or damaged: the system decides
  }
  document.documentElement.dataset.theme = chosen ?? (lightSystem.matches ? "light" : "dark");
}

lightSystem.addEventListener("change", showTheme);
showTheme();
