/** Gives the focus back to the image after a click, so that its keys work; keyboard users keep their place. */

const CONTROLS = "button, select, label, summary, input:not([type=text])";

/** @param {HTMLElement} stage */
export function giveFocusBack(stage) {
  let clicked = false; // whether the latest action was a click of a pointer, and not a key
  let opener = false; // whether a click opened the dialog
  const back = (event) => {
    if (!clicked || !event.target.closest?.(CONTROLS)) return;
    setTimeout(() => {
      opener = document.querySelector("dialog[open]") !== null;
      const typing = document.activeElement?.matches("input[type=text], select");
      if (!opener && !typing) stage.focus({ preventScroll: true });
    });
  };
  document.addEventListener("pointerdown", () => (clicked = true), true);
  document.addEventListener("keydown", () => (clicked = false), true);
  document.addEventListener("click", back);
  document.addEventListener("change", (event) => {
    if (clicked && /** @type {Element} */ (event.target).matches("select, input[type=range]")) stage.focus({ preventScroll: true });
  });
  document.addEventListener("close", () => opener && stage.focus({ preventScroll: true }), true);
}
