/** Requests tiles from the server, a few at a time; tiles that have left the screen are skipped. */

import { Slices } from "./slices.js";

const MAX_REQUESTS = 6; // at once: a browser opens no more connections to one server

export class Loader {
  constructor() {
    /** @type {{address: string, rank: number, needed: () => boolean, take: Function}[]} */
    this.waiting = [];
    this.running = 0;
    this.slices = new Slices();
  }

  /**
   * @param {string} address
   * @param {number} rank lower ranks are fetched first
   * @param {() => boolean} needed whether the tile is still needed when its turn comes
   * @param {(answer: {status: number, data?: ArrayBuffer, headers?: Headers}) => void} take status 0: skipped or no connection
   */
  ask(address, rank, needed, take) {
    this.waiting.push({ address, rank, needed, take });
    queueMicrotask(() => this.go());
  }

  go() {
    while (this.running < MAX_REQUESTS && this.waiting.length) {
      let best = 0;
      for (let i = 1; i < this.waiting.length; i++) if (this.waiting[i].rank < this.waiting[best].rank) best = i;
      const [next] = this.waiting.splice(best, 1);
      if (!next.needed()) next.take({ status: 0 });
      else this.fetch(next);
    }
  }

  async fetch({ address, take }) {
    this.running += 1;
    let answer = { status: 0 };
    try {
      const response = await fetch(address, { cache: "no-store" });
      const data = response.status === 200 ? await response.arrayBuffer() : undefined;
      answer = { status: response.status, data, headers: response.headers };
    } catch {
      answer = { status: 0, failed: true };
    }
    this.running -= 1;
    this.slices.add(() => take(answer));
    this.go();
  }
}
