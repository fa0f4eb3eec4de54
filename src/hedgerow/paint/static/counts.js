/** Tells panels how much is painted once the hand rests: while it draws, the page must not be laid out anew. */

/** @param {import("./app.js").App} app @param {() => boolean} drawing */
export function tellCounts(app, drawing) {
  /** @type {Set<number>} images whose counts have changed */
  const changed = new Set();
  let asked = 0; // several changes of one moment are told once
  const tell = () => {
    asked = 0;
    if (drawing() || !changed.size) return;
    const images = [...changed];
    changed.clear();
    app.emit("counts", images);
  };
  const later = () => {
    asked ||= requestAnimationFrame(tell);
  };
  app.on("painted numbers", ({ image }) => {
    changed.add(image);
    later();
  });
  app.on("stroke-ends", later);
}
