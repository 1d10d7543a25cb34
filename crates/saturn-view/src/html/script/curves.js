// Curves by step, or by another count, and the small curves of table rows. Losses are smoothed, as batches are noisy;
// values that are recorded seldom, such as evaluations, are drawn as they are, with a dot for each.
const CURVES = { left: 56, right: 14, top: 12, bottom: 36, wide: [1120, 380], small: [560, 240] };
// Values whose ratio exceeds this are drawn on a logarithmic scale.
const LOG_RATIO = 12;

function drawCurves({ size, is_noisy, axis, curves }, label) {
  const [width, height] = CURVES[size];
  const drawn = curves.map(({ points }) => (is_noisy ? smooth(points, Math.ceil(points.length / 40)) : points));
  const scale = curveScale(drawn.flat(), width, height);
  const groups = curves.map(({ key, class: look, points }, index) => {
    const dots = points.map((point) => `M${scale.at(point).join(" ")}h0`).join("");
    return svg("g", { class: `curve ${look}`, "data-task": key },
      is_noisy ? polyline("raw", points.map(scale.at)) : svg("path", { class: "dots", d: dots }),
      polyline("smooth", drawn[index].map(scale.at)));
  });
  return drawing(size === "small" ? "curves small" : "curves", label, width, height, curveAxes(scale, width, height, axis), groups);
}

function polyline(look, points) {
  return svg("polyline", { class: look, points: points.join(" ") });
}

// A small curve on a scale of its own.
function drawSpark(points) {
  const drawn = smooth(points, 1);
  const [first, last] = [drawn[0][0], drawn.at(-1)[0]];
  const [low, high] = range(drawn);
  const at = ([step, value]) => [
    px(1 + ((step - first) / Math.max(last - first, 1)) * 90),
    px(2 + ((high - value) / Math.max(high - low, 1e-12)) * 18),
  ];
  return svg("svg", { viewBox: "0 0 92 22", "aria-hidden": "true" }, polyline(undefined, drawn.map(at)));
}

// A short piece of a line, for a legend.
function drawKey() {
  return svg("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }, svg("line", { x1: 1, x2: 25, y1: 4, y2: 4 }));
}

// Each value replaced by the mean of its neighbours on both sides, which does not lag as a running mean would.
function smooth(points, reach) {
  return points.map(([step], index) => {
    const around = points.slice(Math.max(0, index - reach), index + reach + 1);
    return [step, around.reduce((sum, point) => sum + point[1], 0) / around.length];
  });
}

// The least and the greatest value.
function range(points) {
  return points.reduce(([low, high], [, value]) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

// Where steps and values stand in a chart of these points.
function curveScale(points, width, height) {
  const [least, greatest] = range(points);
  const isLog = least > 0 && greatest / least > LOG_RATIO;
  const drawn = (value) => (isLog ? Math.log10(Math.max(value, 1e-300)) : value);
  // A flat curve has room above and below it in proportion to its value.
  const span = drawn(greatest) - drawn(least);
  const slack = span > 0 ? span * 0.04 : Math.max(Math.abs(drawn(greatest)) * 0.05, 1e-9);
  const [low, high] = [drawn(least) - slack, drawn(greatest) + slack];
  const maxStep = points.reduce((most, [step]) => Math.max(most, step), 0);
  const x = (step) => CURVES.left + (step / Math.max(maxStep, 1)) * (width - CURVES.left - CURVES.right);
  const y = (value) => {
    const share = (high - drawn(value)) / (high - low);
    return CURVES.top + Math.min(Math.max(share, 0), 1) * (height - CURVES.top - CURVES.bottom);
  };
  return { isLog, low, high, maxStep, x, y, at: ([step, value]) => [px(x(step)), px(y(value))] };
}

function curveAxes(scale, width, height, axis) {
  const end = width - CURVES.right;
  const values = (scale.isLog ? logTicks(scale) : linearTicks(scale)).flatMap((value) => {
    const y = scale.y(value);
    return [
      svg("line", { class: "grid", x1: CURVES.left, x2: end, y1: y, y2: y }),
      svg("text", { class: "tick value", x: CURVES.left - 8, y: y + 4 }, tickNumber(value)),
    ];
  });
  const step = Math.max(niceStep((scale.maxStep * 140) / width), 1);
  const steps = Array.from({ length: Math.floor(scale.maxStep / step) + 1 }, (_, index) =>
    svg("text", { class: "tick", x: scale.x(index * step), y: height - CURVES.bottom + 18 }, String(index * step)));
  const kind = scale.isLog ? svg("text", { class: "kind", x: CURVES.left, y: height - 2 }, "logarithmic scale") : undefined;
  return [values, steps, kind, svg("text", { class: "axis", x: end, y: height - 2 }, axis)].flat();
}

function linearTicks({ low, high }) {
  const step = niceStep((high - low) / 6);
  const first = Math.ceil(low / step);
  const num = Math.min(Math.floor(high / step) - first, 1000);
  return Array.from({ length: num + 1 }, (_, index) => (first + index) * step);
}

// Labels must not touch. If there are many decades, only some get a label, and nothing between them does.
function logTicks({ low, high }) {
  const digits = high - low > 3 ? [1] : [1, 2, 5];
  const every = Math.max(Math.ceil((high - low) / 8), 1);
  const ticks = [];
  for (let decade = Math.floor(low); decade <= high; decade += every) {
    ticks.push(...digits.map((digit) => Number(`${digit}e${decade}`)));
  }
  return ticks.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
}

// The least of 1, 2 and 5 times a power of ten that is not below `wanted`.
function niceStep(wanted) {
  const decade = 10 ** Math.floor(Math.log10(Math.max(wanted, 1e-12)));
  return [1, 2, 5].map((digit) => digit * decade).find((step) => step >= wanted) ?? 10 * decade;
}

function tickNumber(value) {
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e5)) {
    return value.toExponential(2).replace(".00e", "e").replace("e+", "e");
  }
  return String(Number(value.toFixed(4)));
}
