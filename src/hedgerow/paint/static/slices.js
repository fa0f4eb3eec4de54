/** Work that may wait, done a few milliseconds at a time, so that the hand and the frames never wait for it. */

const SLICE = 4; // milliseconds

export class Slices {
  constructor() {
    /** @type {(() => void)[]} */
    this.waiting = [];
    // A message comes sooner than the shortest timer of a browser, and after a frame that is due.
    this.channel = new MessageChannel();
    this.channel.port1.onmessage = () => this.go();
  }

  /** @param {() => void} work should be short: it is not interrupted */
  add(work) {
    this.waiting.push(work);
    if (this.waiting.length === 1) this.channel.port2.postMessage(null);
  }

  go() {
    const start = performance.now();
    let done = 0;
    while (done < this.waiting.length && performance.now() - start < SLICE) {
      this.waiting[done]();
      done += 1;
    }
    this.waiting.splice(0, done);
    if (this.waiting.length) this.channel.port2.postMessage(null);
  }
}
