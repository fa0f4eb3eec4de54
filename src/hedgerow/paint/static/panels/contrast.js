/** Contrast and colour of the channels, with a histogram of the part of the image on the screen. */

import { find, make } from "../dom.js";
import { firstChannels } from "../layers/image.js";

const BINS = 96;
const MAX_SHOWN_CHANNELS = 8; // the server sends no more in one tile
const MIN_LISTED_CHANNELS = 4; // from this number on, each channel has its own line

export function contrastPanel({ app, stage }) {
  const root = find("#contrast");
  let chosen = 0;

  const channels = () => stage.image.shown;
  const changed = () => {
    app.emit("channels");
    drawHistogram();
  };

  function range() {
    const { image } = app;
    const flat = (value) => (Array.isArray(value) ? value : [value]);
    const top = image.type === "u2" ? Math.min(65535, Math.max(...flat(image.high ?? 65535)) * 2 || 65535) : 255;
    return [0, Math.max(top, 1)];
  }

  function slider(name, title) {
    const [low, high] = range();
    const input = make("input", { type: "range", min: String(low), max: String(high), step: "1", id: `contrast-${name}` });
    input.value = String(channels()[chosen][name]);
    const shown = make("output", { class: "number", for: input.id }, input.value);
    input.addEventListener("input", () => {
      const value = Number(input.value);
      const channel = channels()[chosen];
      // The channels of a colour image change together, so that its contrast does not tint it.
      for (const each of together() ? channels() : [channel]) {
        each[name] = value;
        if (name === "low") each.high = Math.max(each.high, value + 1);
        else each.low = Math.min(each.low, value - 1);
      }
      root.querySelector("#contrast-low").value = String(channel.low);
      root.querySelector("#contrast-high").value = String(channel.high);
      for (const output of root.querySelectorAll("output[for^=contrast]")) {
        output.textContent = root.querySelector(`#${output.htmlFor}`).value;
      }
      changed();
    });
    return make("div", { class: "line" }, make("label", { for: input.id }, title), input, shown);
  }

  const together = () => [3, 4].includes(app.image.n_channels) && app.image.type === "u1";

  function channelRow(channel, number) {
    const on = make("input", { type: "checkbox", id: `channel-${number}`, "aria-label": `Show channel ${number + 1}` });
    on.checked = channel.on;
    on.addEventListener("change", () => {
      if (on.checked && channels().filter((each) => each.on).length >= MAX_SHOWN_CHANNELS) {
        on.checked = false;
        app.notify(`At most ${MAX_SHOWN_CHANNELS} channels can be shown at once; switch another one off first.`, "warning");
        return;
      }
      channel.on = on.checked;
      changed();
    });
    const colour = make("input", { type: "color", class: "colour", "aria-label": `Colour of channel ${number + 1}` });
    colour.value = channel.colour;
    colour.addEventListener("input", () => {
      channel.colour = colour.value;
      changed();
    });
    const pick = make("button", { type: "button", class: "text-button", "aria-pressed": String(number === chosen),
      onclick: () => {
        chosen = number;
        show();
        root.querySelector(`[data-channel="${number}"]`)?.focus();
      }, "data-channel": String(number) }, `Channel ${number + 1}`);
    return make("li", { class: number === chosen ? "chosen" : "" }, on, colour, pick);
  }

  function show() {
    if (!app.image) return;
    chosen = Math.min(chosen, app.image.n_channels - 1);
    const rows = app.image.n_channels > 1 && (app.image.n_channels >= MIN_LISTED_CHANNELS || !together())
      ? [make("ul", { class: "channels", "aria-label": "Channels" }, ...channels().map(channelRow))] : [];
    root.replaceChildren(...rows, make("canvas", { class: "histogram", width: 512, height: 96, "aria-hidden": "true" }),
      slider("low", "Black"), slider("high", "White"));
    drawHistogram();
  }

  function drawHistogram() {
    const canvas = root.querySelector("canvas");
    if (!canvas) return;
    const [low, high] = range();
    const bins = new Float64Array(BINS);
    for (const values of stage.image.samples(chosen)) {
      const step = Math.max(1, Math.floor(values.length / 4096));
      for (let i = 0; i < values.length; i += step) {
        const bin = Math.floor(((values[i] - low) / (high - low + 1)) * BINS);
        if (bin >= 0 && bin < BINS) bins[bin] += 1;
      }
    }
    const tallest = Math.sqrt(Math.max(...bins, 1));
    const context = canvas.getContext("2d");
    const style = getComputedStyle(root);
    const { width, height } = canvas;
    context.clearRect(0, 0, width, height);
    const { low: black, high: white } = channels()[chosen];
    const at = (value) => ((value - low) / (high - low)) * width;
    context.fillStyle = style.getPropertyValue("--line");
    context.fillRect(at(black), 0, Math.max(at(white) - at(black), 1), height);
    context.fillStyle = style.getPropertyValue("--text-2");
    bins.forEach((value, bin) => {
      const tall = (Math.sqrt(value) / tallest) * (height - 4);
      context.fillRect((bin * width) / BINS, height - tall, width / BINS - 1, tall);
    });
  }

  find("#contrast-reset").addEventListener("click", () => {
    if (!app.image) return;
    stage.image.channels.set(app.image.id, firstChannels(app.image));
    show();
    changed();
  });
  app.on("image", show);
  stage.image.rangeKnown = show;
  let soon = 0;
  stage.image.arrived = () => {
    clearTimeout(soon);
    soon = setTimeout(drawHistogram, 150);
  };
}
