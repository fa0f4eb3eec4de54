/** The messages of the server, and the changes that they make. */

import { Connection } from "./connection.js";
import { memory } from "./memory.js";
import { Outbox } from "./outbox.js";

/** Another project is open at this address: the strokes of this page are not for it. */
class OtherProject extends Error {}

export class Session {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.connection = new Connection({
      opened: () => this.opened(),
      lost: (forbidden) => this.lost(forbidden),
      silent: (silent) => this.silent(silent),
      received: (message) => this.handlers[message.say]?.(message),
    });
    this.outbox = new Outbox((message) => this.connection.send(message));
    this.everOpen = false;
    this.wasLost = false;
    this.handlers = {
      painted: (message) => this.painted(message),
      refused: (message) => this.refused(message),
      overlay: (message) => app.emit("overlay-new", message),
      numbers: (message) => this.numbers(message),
      progress: (message) => this.progress(message),
      done: (message) => this.ended(message, "done"),
      failed: (message) => this.ended(message, "failed"),
      next: (message) => app.emit("next", message),
      classes: (message) => this.classes(message),
      "no-overlay": (message) => app.emit("overlay-gone", message),
      models: ({ models, current }) => {
        Object.assign(app, { models, currentModel: current });
        app.emit("models");
      },
      images: ({ problems }) => {
        for (const image of app.images) image.problem = problems[image.id] ?? "";
        app.emit("images");
      },
      windows: ({ n }) => this.windows(n),
      live: ({ on }) => {
        app.live = on;
        app.emit("live");
      },
    };
  }

  send(message) {
    if (this.connection.send(message)) return true;
    this.app.notify("The server does not answer; try again when the connection is back.", "warning");
    return false;
  }

  async start() {
    await this.fetchProject();
    this.connection.connect();
  }

  async fetchProject() {
    const response = await fetch("api/project", { cache: "no-store" });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    /** @type {import("./app.js").Project} */
    const project = await response.json();
    if (this.app.project && project.folder !== this.app.project.folder) throw new OtherProject();
    if (!this.app.project) {
      memory.values = project.page;
      this.outbox.restore(project.folder);
    }
    this.app.take(project);
  }

  async opened() {
    if (this.everOpen) {
      // It may be another server, so its state is fetched before anything is sent.
      try {
        await this.fetchProject();
      } catch (problem) {
        this.connection.leave(); // and connect again
        if (problem instanceof OtherProject) this.app.emit("connection", { open: false, other: true });
        return;
      }
      this.app.jobs.clear();
      this.app.emit("jobs");
      this.app.emit("reconnected");
    }
    const n = this.outbox.waiting.length;
    this.outbox.open = true;
    this.outbox.resend();
    if (this.wasLost) {
      const strokes = n === 1 ? "One stroke was" : `${n} strokes were`;
      this.app.notify(n ? `Connected again. ${strokes} sent again.` : "Connected again.", "good");
    }
    this.everOpen = true;
    this.wasLost = false;
    this.app.emit("connection", { open: true });
  }

  /** The server has not answered for a while, or does again: strokes wait here meanwhile. */
  silent(silent) {
    this.outbox.open = !silent;
    this.outbox.keep();
    if (!silent) this.outbox.resend();
    this.app.emit("connection", { open: !silent, silent });
  }

  lost(forbidden) {
    this.outbox.open = false;
    this.outbox.keep();
    this.wasLost = true;
    this.app.emit("connection", { open: false, forbidden });
  }

  painted(message) {
    const { app } = this;
    const stroke = message.id ? this.outbox.answered(message.id) : undefined;
    if (stroke?.tool === "smart") stroke.refused = true; // it is no longer drawn over the server's labels
    const image = app.picture(message.image);
    if (image) {
      image.labels = message.labels;
      if (message.pixels) image.pixels = message.pixels;
    }
    app.undo = message.undo ?? app.undo;
    app.redo = message.redo ?? app.redo;
    app.emit("painted", { ...message, stroke });
    app.emit("history");
  }

  refused({ id, why, asks }) {
    const stroke = id && this.outbox.answered(id);
    if (stroke) {
      stroke.refused = true;
      this.app.emit("taken-back", stroke);
    }
    if (stroke && asks) this.app.emit("asks", { stroke, pixels: asks });
    else this.app.notify(why, "error");
  }

  numbers(message) {
    const image = this.app.picture(message.image);
    if (image && message.pixels) image.pixels = message.pixels;
    this.app.numbers.set(message.image, message);
    this.app.emit("numbers", message);
  }

  progress({ job, part, text, left }) {
    this.app.jobs.set(job, { part, text, left });
    if (part >= 1 && !["train", "improve", "export"].includes(job)) this.app.jobs.delete(job);
    this.app.emit("jobs");
  }

  ended(message, how) {
    this.app.jobs.delete(message.job);
    this.app.emit("jobs");
    this.app.emit(how, message);
  }

  classes({ classes, undo, redo }) {
    Object.assign(this.app, { classes, undo, redo });
    this.app.emit("history");
    if (!this.app.paintClass) this.app.classId = classes[0]?.id ?? 0;
    this.app.emit("classes");
  }

  windows(n) {
    const before = this.app.windows;
    this.app.windows = n;
    this.app.emit("windows");
    if (n > 1 && n > before) this.app.notify("Another window has this project open; the strokes of both are saved.", "warning");
  }
}
