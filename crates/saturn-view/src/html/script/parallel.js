// Parallel coordinates: an axis for each parameter, a last one for how well tasks did, and a line a task.
const PARALLEL = { width: 1120, height: 300, left: 70, right: 90, top: 34, bottom: 20 };

function drawParallel({ axes, lines }, label) {
  const { width, height, left, right, top, bottom } = PARALLEL;
  const x = (place) => left + (place / (axes.length - 1)) * (width - left - right);
  const y = (share) => top + (1 - share) * (height - top - bottom);
  // The better a task did, the more its line stands out. The best is drawn last, on top of the others.
  const drawn = lines.map(({ task, tip, shares }, rank) => {
    const worse = rank / Math.max(lines.length - 1, 1);
    const stroke = `color-mix(in oklab,var(--best) ${Math.round((1 - worse) * 100)}%,var(--worst))`;
    const line = polyline(undefined, shares.map((share, place) => [px(x(place)), px(y(share))]));
    line.style.stroke = stroke;
    return svg("g", { "data-task": `${task}` }, svg("title", {}, tip), line);
  });
  const drawnAxes = axes.flatMap(({ name, labels }, place) => [
    svg("line", { class: "row", x1: x(place), x2: x(place), y1: y(0), y2: y(1) }),
    svg("text", { class: "name", x: x(place), y: top - 20 }, name),
    labels.map(([share, text]) => svg("text", { class: "tick", x: x(place) + 6, y: y(share) + 4 }, text)),
  ].flat());
  return drawing("parallel", label, width, height, drawn.reverse(), drawnAxes);
}
