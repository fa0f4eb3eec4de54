/** The help: a table of all keys. */

import { find, make } from "../dom.js";
import { frame } from "./dialog.js";

export function helpDialog(_parts, keyboard) {
  const dialog = find("#help-dialog");
  return () => {
    const groups = new Map();
    for (const key of keyboard.table) groups.set(key.group, [...(groups.get(key.group) ?? []), key]);
    const sections = [...groups].map(([title, keys]) => make("section", {}, make("h3", {}, title),
      make("dl", { class: "keys" }, ...keys.map(({ shown, title: text }) => make("div", {},
        make("dt", {}, ...shown.flatMap((each, i) => [i ? " " : "", make("kbd", {}, each)])), make("dd", {}, text))))));
    const letters = make("input", { type: "checkbox", id: "letters" });
    letters.checked = keyboard.letters;
    letters.addEventListener("change", () => keyboard.setLetters(letters.checked));
    frame(dialog, "help-heading", "Keys", make("div", { class: "key-groups" }, ...sections),
      make("p", { class: "line check-line" }, letters, make("label", { for: "letters" }, "Enable shortcuts without Ctrl")),
      make("p", { class: "dim" }, "One finger or a pen paints; two fingers move and zoom. After a pen was used, a single finger moves the view."));
    dialog.showModal();
  };
}
