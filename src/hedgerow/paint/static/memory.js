/** How the page was left: the server keeps it in the project, and the browser keeps what does not depend on a project. */

const SHARED = ["theme", "hint-seen", "letters", "export"];
const REST_MS = 400; // from the last change until it is sent

class Memory {
  constructor() {
    /** @type {Record<string, any>} */
    this.values = {};
    /** @type {Record<string, any>} what the server does not have yet */
    this.unsent = {};
    /** @type {(message: object) => boolean} */
    this.send = () => false;
    this.timer = 0;
  }

  /** @param {string} name */
  get(name, otherwise = null) {
    return this.values[name] ?? (SHARED.includes(name) ? local(name) : null) ?? otherwise;
  }

  /** @param {string} name */
  set(name, value) {
    if (JSON.stringify(this.values[name]) === JSON.stringify(value)) return;
    this.values[name] = value;
    this.unsent[name] = value;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(), REST_MS);
    if (!SHARED.includes(name)) return;
    try {
      localStorage.setItem(`hedgerow-${name}`, JSON.stringify(value));
    } catch {
      return; // forbidden or full
    }
  }

  flush() {
    if (Object.keys(this.unsent).length && this.send({ do: "keep", ...this.unsent })) this.unsent = {};
  }
}

function local(name) {
  try {
    return JSON.parse(localStorage.getItem(`hedgerow-${name}`));
  } catch {
    return null;
  }
}

export const memory = new Memory();

const MAX_CONTRASTS = 100; // the limit of the server

/** Takes up the page as it was left, and keeps what is changed from then on. */
export function keepPage({ app, session, stage }) {
  memory.send = (message) => session.connection.send(message);
  let begun = false;

  function restore() {
    const { overlay, opacities } = app;
    app.image = app.images.find((each) => each.name === memory.get("image")) ?? app.image;
    app.tool = memory.get("tool", app.tool);
    if (app.classes.some((each) => each.id === memory.get("class"))) app.classId = memory.get("class");
    app.setRadius(memory.get("radius", app.radius));
    Object.assign(opacities, Object.fromEntries(memory.get("opacities", [])));
    app.setOverlay({ mode: memory.get("overlay", overlay.mode) });
    for (const { image, channels } of memory.get("contrast", [])) {
      const known = app.images.find((each) => each.name === image);
      if (known?.n_channels === channels.length) stage.image.channels.set(known.id, channels);
    }
    app.setStrokes({ opacity: memory.get("stroke-opacity", 1) });
    app.emit("tool", app.tool);
    begun = true;
  }

  app.on("project", () => begun || restore());
  const keep = (name, value) => begun && memory.set(name, value());
  app.on("image", () => keep("image", () => app.image.name));
  app.on("tool", () => keep("tool", () => app.tool));
  app.on("class", () => keep("class", () => app.classId));
  app.on("radius", () => keep("radius", () => app.radius));
  app.on("overlay-style", () => {
    keep("overlay", () => app.overlay.mode);
    keep("opacities", () => Object.entries(app.opacities));
  });
  app.on("strokes", () => keep("stroke-opacity", () => app.strokes.opacity));
  app.on("channels", () => keep("contrast", () => {
    const mine = { image: app.image.name, channels: stage.image.shown.map((each) => ({ ...each })) };
    return [...memory.get("contrast", []).filter((each) => each.image !== mine.image), mine].slice(-MAX_CONTRASTS);
  }));
  app.on("connection", ({ open }) => open && memory.flush());
}
