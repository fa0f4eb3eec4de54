/** Small helper functions for elements, texts and settings. */

/** An element: `make("button", {class: "x", "aria-pressed": true, onclick}, "text", child)`. Null children are omitted. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Puts icons.svg into the page once, so that no icon has to be fetched when it is first shown. */
export async function loadIcons() {
  const text = await (await fetch(new URL("icons.svg", import.meta.url))).text();
  const sprite = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  sprite.setAttribute("hidden", "");
  document.body.append(sprite);
  for (const use of document.querySelectorAll("use")) use.setAttribute("href", use.getAttribute("href").replace(/^.*#/, "#"));
}

/** An icon of icons.svg. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** The first element of the page that matches a selector. */
export const find = (selector) => document.querySelector(selector);

/** Makes a group one stop of the Tab key; arrow keys, Home and End move the focus within it. */
export function rove(group, selector = "button") {
  const stops = () => [...group.querySelectorAll(selector)].filter((each) => !each.disabled && each.offsetParent);
  const choose = (chosen) => {
    for (const each of stops()) each.tabIndex = each === chosen ? 0 : -1;
  };
  group.addEventListener("keydown", (event) => {
    const all = stops();
    const place = all.indexOf(document.activeElement);
    if (place < 0) return;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const ends = { Home: 0, End: all.length - 1 }[event.key];
    if (step === undefined && ends === undefined) return;
    event.preventDefault();
    const next = all[ends ?? (place + step + all.length) % all.length];
    choose(next);
    next.focus();
  });
  group.addEventListener("focusin", (event) => stops().includes(event.target) && choose(event.target));
  choose(stops()[0]);
  return choose;
}

/** 1234567 -> "1,234,567" */
export const count = (number) => number.toLocaleString("en");

/** A number of bytes as text, such as "1.5 MB". */
export function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** The seconds that a job still takes as text; empty if they are unknown. */
export const timeLeft = (seconds) => {
  if (!seconds) return "";
  return `about ${seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`} left`;
};

/** Copies a text, and confirms it on the button for a moment. */
export async function copy(text, button) {
  const label = button.querySelector("span") ?? button;
  const before = label.textContent;
  try {
    await navigator.clipboard.writeText(text);
    label.textContent = "Copied";
  } catch {
    label.textContent = "Select and copy it by hand";
  }
  setTimeout(() => (label.textContent = before), 1600);
}
