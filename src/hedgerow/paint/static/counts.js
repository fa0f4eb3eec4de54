/** Announces the numbers of painted pixels when no stroke is being drawn: laying out the page would delay the stroke. */

/** @param {import("./app.js").App} app @param {() => boolean} drawing */
export function announceCounts(app, drawing) {
  /** @type {Set<number>} images whose counts have changed */
  const changed = new Set();
  let frame = 0; // several changes within a frame are announced once
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
