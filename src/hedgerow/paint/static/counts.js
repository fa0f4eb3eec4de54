/** Announces how much is painted once the hand rests: while it draws, the page must not be laid out anew. */

/** @param {import("./app.js").App} app @param {() => boolean} drawing */
export function announceCounts(app, drawing) {
  /** @type {Set<number>} images whose counts have changed */
  const changed = new Set();
  let frame = 0; // several changes of one moment are announced once
  const announce = () => {
    frame = 0;
    if (drawing() || !changed.size) return;
    const images = [...changed];
    changed.clear();
    app.emit("counts", images);
  };
  const later = () => {
    frame ||= requestAnimationFrame(announce);
  };
  app.on("painted numbers", ({ image }) => {
    changed.add(image);
    later();
  });
  app.on("stroke-ends", later);
}
