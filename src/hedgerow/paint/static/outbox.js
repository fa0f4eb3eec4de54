/** Strokes on their way: kept until the server has answered, over lost connections and reloads of the page. */

const STORAGE_KEY = "hedgerow-unanswered";
const MAX_SENT_STROKES = 1000; // that may have been sent while the server answers one question

export class Outbox {
  /** @param {(message: object) => boolean} send returns whether it went out */
  constructor(send) {
    this.sendMessage = send;
    this.open = false;
    this.prefix = [...crypto.getRandomValues(new Uint8Array(6))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    this.count = 0;
    /** @type {import("./painting.js").Stroke[]} */
    this.waiting = restored();
    /** @type {import("./painting.js").Stroke[]} the last ones, answered or not, in their order */
    this.sent = this.waiting.map((stroke, number) => ({ ...stroke, number }));
    this.waiting = [...this.sent];
    this.numbers = this.sent.length;
  }

  /** The number from which on strokes may be missing in what the server answers to a question of now. */
  get mark() {
    return this.waiting[0]?.number ?? this.numbers;
  }

  /** Strokes from a number on, in their order. What is drawn twice in the same order looks the same. */
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

  /** Sends everything again that was not answered: the server knows by their ids which it has already. */
  resend() {
    for (const stroke of this.waiting) this.sendMessage(message(stroke));
  }

  /** @returns {import("./painting.js").Stroke|undefined} the stroke that was answered */
  answered(id) {
    const place = this.waiting.findIndex((stroke) => stroke.id === id);
    if (place < 0) return undefined;
    const [stroke] = this.waiting.splice(place, 1);
    this.keep();
    return stroke;
  }

  /** Where the connection is away, the next page must find what was painted; otherwise there is nothing to keep. */
  keep() {
    try {
      if (this.open || !this.waiting.length) sessionStorage.removeItem(STORAGE_KEY);
      else sessionStorage.setItem(STORAGE_KEY, JSON.stringify(this.waiting));
    } catch {
      return; // full or forbidden: the strokes are still kept by this page
    }
  }
}

function restored() {
  try {
    return JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "[]");
  } catch {
    return [];
  }
}

/** The message of a stroke: without what only the page needs. */
function message({ value, refused, number, ...rest }) {
  return { do: "paint", ...rest };
}
