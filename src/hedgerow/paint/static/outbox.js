/** Strokes on their way: kept until the server has answered, over lost connections and reloads of the page. */

const KEPT = "hedgerow-unanswered";

export class Outbox {
  /** @param {(message: object) => boolean} send tells whether it went out */
  constructor(send) {
    this.sendMessage = send;
    this.open = false;
    this.prefix = [...crypto.getRandomValues(new Uint8Array(6))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    this.count = 0;
    /** @type {import("./painting.js").Stroke[]} */
    this.waiting = restored();
  }

  newId() {
    this.count += 1;
    return `${this.prefix}-${this.count}`;
  }

  /** @param {import("./painting.js").Stroke} stroke */
  send(stroke) {
    this.waiting.push(stroke);
    this.keep();
    if (this.open) this.sendMessage(message(stroke));
  }

  /** Sends everything again that was not answered: ids tell the server what it has already. */
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
      if (this.open || !this.waiting.length) sessionStorage.removeItem(KEPT);
      else sessionStorage.setItem(KEPT, JSON.stringify(this.waiting));
    } catch {
      return; // full or forbidden: the strokes are still kept by this page
    }
  }
}

function restored() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
  } catch {
    return [];
  }
}

/** The message of a stroke: without what only the page needs. */
function message({ value, refused, ...rest }) {
  return { do: "paint", ...rest };
}
