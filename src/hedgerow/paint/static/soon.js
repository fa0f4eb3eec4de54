/** Work that goes on after whatever else waits, such as a frame or the hand: sooner than the shortest timer of a browser. */

const { port1, port2 } = new MessageChannel();
const waiting = [];
port1.onmessage = () => waiting.shift()?.();

/** Calls `work` soon. @returns {true} so that the caller can note that it waits */
export function soon(work) {
  waiting.push(work);
  port2.postMessage(null);
  return true;
}
