"use strict";
// Headings of columns become buttons that sort; rows continue from the first table of a group in the next.
for (const group of document.querySelectorAll("[data-sortable]")) {
  const tables = [...group.querySelectorAll("table")];
  const bodies = tables.map(table => table.tBodies[0]);
  const sizes = bodies.map(body => body.rows.length);
  const heads = tables.map(table => [...table.tHead.rows[0].cells]);
  const compare = (a, b, column, sign) => {
    const [x, y] = [a, b].map(row => row.cells[column].dataset.value);
    if (x === undefined) return sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, {numeric: true});
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (x - y);
  };
  const sort = column => {
    const sign = heads[0][column].getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const rows = bodies.flatMap(body => [...body.rows]).sort((a, b) => compare(a, b, column, sign));
    let first = 0;
    bodies.forEach((body, k) => { body.append(...rows.slice(first, first += sizes[k])); });
    for (const cells of heads) cells.forEach((cell, k) => {
      if (k === column) cell.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  };
  for (const cells of heads) cells.forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    button.addEventListener("click", () => sort(column));
    cell.append(button);
  });
}
