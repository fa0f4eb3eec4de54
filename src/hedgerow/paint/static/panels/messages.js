/** Messages for the user, shown for a while and read aloud; and a banner while there is no connection. */

import { find, icon, make } from "../dom.js";

const SHOWN_MS = { info: 3500, good: 3500, warning: 6500, error: 9000, quiet: 1600 };
const MAX_NOTICES = 3;

export function messages({ app, session, actions }) {
  const list = find("#notices");
  const reader = find("#live-polite");
  const banner = find("#banner");
  const callout = find("#callout");

  app.on("notice", ({ text, kind }) => {
    reader.textContent = text;
    for (const old of [...list.children]) if (old.dataset.text === text || old.dataset.kind === "quiet") old.remove();
    while (list.children.length >= MAX_NOTICES) list.firstChild.remove();
    const symbol = { good: "check", warning: "warning", error: "warning" }[kind];
    const close = make("button", { type: "button", class: "icon-button small", "aria-label": "Close this message" }, icon("close"));
    const shown = make("div", { class: `notice ${kind}`, "data-no-paint": "" }, symbol ? icon(symbol) : null, make("p", {}, text),
      kind === "quiet" ? null : close);
    Object.assign(shown.dataset, { text, kind });
    close.addEventListener("click", () => shown.remove());
    list.append(shown);
    const gone = () => (shown.matches(":focus-within") ? setTimeout(gone, 1500) : shown.remove());
    setTimeout(gone, SHOWN_MS[kind] ?? 4000);
  });

  app.on("connection", ({ open, forbidden, never, silent, other }) => {
    banner.hidden = open;
    if (open) return;
    const waiting = session.outbox.waiting.length;
    const unsent = waiting ? ` ${waiting === 1 ? "One stroke waits" : `${waiting} strokes wait`} here and will be sent.` : "";
    banner.replaceChildren(icon("warning"), make("p", {}, forbidden
      ? "The server was restarted: open the address that it printed in this browser, and this page will continue."
      : other ? "Another project is open at this address now. Reload the page to work on it; to continue here, start the former one again."
        : silent ? `The server does not answer. You can continue painting.${unsent}`
          : never ? "The server does not answer. Is `hedgerow paint` still running?"
        : `The connection is lost; trying again. You can continue painting.${unsent}`));
  });

  const button = (text, run) => make("button", { type: "button", class: "text-button", onclick: run }, text);
  const leave = () => {
    callout.hidden = true;
  };
  app.on("suggested", ({ why, likely }) => {
    reader.textContent = `Paint here: ${why}${likely ? `; probably ${likely.name}` : ""}`;
    const parts = [icon("target"), make("p", {}, make("strong", {}, "Paint here"), ` ${why}`)];
    if (likely) parts.push(button(`Probably ${likely.name}`, () => app.setClass(likely.id)));
    parts.push(button("Another place", () => actions.next()));
    if (app.images.length > 1) parts.push(button("All images", () => actions.next(true)));
    callout.replaceChildren(...parts);
    callout.hidden = false;
  });
  app.on("stroke-ends image suggestion-closed", leave);
  app.on("failed", ({ job, why }) => {
    if (job !== "segment" || !app.image?.problem) app.notify(why, "error"); // else it is said over the image
  });
}
