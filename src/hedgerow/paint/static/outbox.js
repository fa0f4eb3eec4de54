/** Strokes that the server has not confirmed: they survive lost connections and reloads of the page. */

const STORAGE_KEY = "hedgerow-unanswered";
const MAX_SENT_STROKES = 1000; // remembered, more than are sent while the server answers one request

export class Outbox {
  /** @param {(message: object) => boolean} send returns whether the message was sent */
  constructor(send) {
    this.sendMessage = send;
    this.open = false;
    this.prefix = [...crypto.getRandomValues(new Uint8Array(6))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    this.count = 0;
    /** @type {import("./painting.js").Stroke[]} */
    this.waiting = [];
    /** @type {import("./painting.js").Stroke[]} the latest strokes, confirmed or not, in order */
    this.sent = [];
    this.numbers = 0;
    this.folder = ""; // of the project
  }

  /** Takes over the unconfirmed strokes of this project that the page had before it was reloaded. @param {string} folder */
  restore(folder) {
    this.folder = folder;
    this.sent = restored(folder).map((stroke, number) => ({ ...stroke, number }));
    this.waiting = [...this.sent];
    this.numbers = this.sent.length;
  }

  /** The number of the first stroke that an answer to a request sent now may lack. */
  get mark() {
    return this.waiting[0]?.number ?? this.numbers;
  }

  /** The strokes from a number on, in order. Drawing a stroke twice in the same order changes nothing. */
  since(mark, image) {
    return this.sent.filter((stroke) => stroke.number >= mark && stroke.image === image && !stroke.refused);
  }

  newId() {
    this.count += 1;
    return `${this.prefix}-${this.count}`;
  }

  /** @param {import("./painting.js").Stroke} stroke */
  send(stroke) {
    stroke.number = this.numbers;
    this.numbers += 1;
    this.waiting.push(stroke);
    this.sent.push(stroke);
    if (this.sent.length > MAX_SENT_STROKES) this.sent.shift();
    this.keep();
    if (this.open) this.sendMessage(message(stroke));
  }

  /** Sends all unconfirmed strokes again: the server recognises by their ids the strokes that it already has. */
  resend() {
    for (const stroke of this.waiting) this.sendMessage(message(stroke));
  }

  /** @returns {import("./painting.js").Stroke|undefined} the confirmed stroke */
  answered(id) {
    const place = this.waiting.findIndex((stroke) => stroke.id === id);
    if (place < 0) return undefined;
    const [stroke] = this.waiting.splice(place, 1);
    this.keep();
    return stroke;
  }

  /** Stores the unconfirmed strokes while there is no connection, so that they survive a reload. */
  keep() {
    try {
      if (this.open || !this.waiting.length) sessionStorage.removeItem(STORAGE_KEY);
      else sessionStorage.setItem(STORAGE_KEY, JSON.stringify({ folder: this.folder, strokes: this.waiting }));
    } catch {
      return; // full or forbidden: this page still has the strokes
    }
  }
}

function restored(folder) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORAGE_KEY));
    return kept?.folder === folder ? kept.strokes : [];
  } catch {
    return [];
  }
}

/** The message of a stroke, without the fields that only the page needs. @param {import("./painting.js").Stroke} stroke */
function message({ value, refused, number, ...rest }) {
  return { do: "paint", ...rest };
}
