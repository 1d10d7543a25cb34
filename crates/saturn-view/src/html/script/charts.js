// Draws each chart in its place, once, from the data that its place holds.
const DRAWN_BY = { gantt: drawGantt, curves: drawCurves, spark: drawSpark, parallel: drawParallel };

function drawCharts(within) {
  const charts = [...within.querySelectorAll("[data-chart]")].flatMap((place) => {
    const given = place.querySelector("script");
    return given ? [{ place, section: place.closest("section"), kind: place.dataset.chart, data: JSON.parse(given.textContent) }] : [];
  });
  const lefts = new Map();
  for (const { section, kind, data } of charts) {
    if (kind === "gantt") lefts.set(section, Math.max(lefts.get(section) ?? 0, ganttLeft(data)));
  }
  for (const { place, section, kind, data } of charts) {
    try {
      const chart = DRAWN_BY[kind](data, place.dataset.label, lefts.get(section));
      visitByKeys(chart);
      place.replaceChildren(chart);
    } catch (error) {
      console.error(error); // The sentence stays in this place, and all other charts are drawn.
    }
  }
  for (const key of within.querySelectorAll(".key:empty")) key.append(drawKey());
  if (within.querySelector("[fill^=url]") && !document.querySelector(".patterns")) document.body.prepend(texturePatterns());
}

drawCharts(document);
