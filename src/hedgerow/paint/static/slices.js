/** Work that is not urgent, done a few milliseconds at a time, so that it never delays input or frames. */

const SLICE_MS = 4;

export class Slices {
  constructor() {
    /** @type {(() => void)[]} */
    this.waiting = [];
    this.called = false;
    // A message arrives sooner than the shortest timer of a browser, but after a frame that is due.
    this.channel = new MessageChannel();
    this.channel.port1.onmessage = () => this.go();
  }

  /** @param {() => void} work should be short: it is not interrupted */
  add(work) {
    this.waiting.push(work);
    this.call();
  }

  call() {
    if (this.called || !this.waiting.length) return;
    this.called = true;
    this.channel.port2.postMessage(null);
  }

  go() {
    this.called = false;
    const start = performance.now();
    try {
      while (this.waiting.length && performance.now() - start < SLICE_MS) this.waiting.shift()();
    } finally {
      this.call(); // even if a piece of work has failed
    }
  }
}
