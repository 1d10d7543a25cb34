// The Gantt chart: devices as rows, tasks as bars, time from left to right.
const GANTT = { width: 1120, top: 22, right: 14, bottom: 26, nodeGap: 8, maxName: 18 };

// The width of the labels left of the rows. The charts of a section share the greatest, so that their times line up.
function ganttLeft({ rows }) {
  const longest = (texts) => Math.max(0, ...texts.map((text) => [...text].length));
  const name = Math.min(longest(rows.map((row) => row.name)), GANTT.maxName);
  return 28 + longest(rows.map((row) => row.ids)) * 6 + name * 6.4;
}

function drawGantt({ rows, bars, marks, from_s = 0, to_s, now_s }, label, left) {
  const num = rows.length;
  const rowHeight = num <= 8 ? 30 : num <= 16 ? 24 : num <= 32 ? 18 : 14;
  const isFirst = rows.map((row, index) => index === 0 || rows[index - 1].node !== row.node);
  let bottom = GANTT.top;
  const tops = rows.map((_, index) => {
    if (index > 0 && isFirst[index]) bottom += GANTT.nodeGap;
    bottom += rowHeight;
    return bottom - rowHeight;
  });
  const end = GANTT.width - GANTT.right;
  const x = (at_s) => left + ((at_s - from_s) * (end - left)) / Math.max(to_s - from_s, 1e-9);

  const axis = (now_s === undefined ? timeTicks(to_s) : liveTicks(from_s, to_s, now_s)).flatMap(([at_s, text]) => [
    svg("line", { class: "grid", x1: x(at_s), x2: x(at_s), y1: GANTT.top - 4, y2: bottom }),
    svg("text", { class: "tick", x: x(at_s), y: bottom + 17 }, text),
  ]);
  const every = rowHeight < 16 ? 2 : 1;
  const labels = rows.flatMap(({ name, ids }, index) => {
    const y = tops[index] + rowHeight / 2 + 4;
    const line = tops[index] + rowHeight;
    return [
      svg("line", { class: "row", x1: left, x2: end, y1: line, y2: line }),
      name && isFirst[index] ? svg("text", { class: "node", x: 0, y }, fit(name, GANTT.maxName)) : undefined,
      ids.includes("-") || ids % every === 0 ? svg("text", { class: "device", x: left - 10, y }, ids) : undefined,
    ];
  });
  return drawing("gantt", label, GANTT.width, bottom + GANTT.bottom,
    axis, labels, bars.map((bar) => drawBar(bar, x, from_s, to_s, tops, rowHeight)), marks.map((mark) => drawMark(mark, x, bottom)));
}

function drawBar(bar, x, from_s, to_s, tops, rowHeight) {
  const from = x(Math.max(bar.start_s, from_s));
  const width = Math.max(x(Math.min(bar.end_s, to_s)) - from - 1, 1.5);
  const loading = bar.ready_s === undefined ? 0 : x(bar.ready_s) - from;
  const inset = rowHeight < 16 ? 1 : 2;
  const texture = textureOf(bar.task);
  const tallest = bar.blocks.reduce((one, other) => (other[1] - other[0] >= one[1] - one[0] ? other : one));
  const blocks = bar.blocks.flatMap((block) => {
    const y = tops[block[0]] + inset;
    const height = tops[block[1]] + rowHeight - inset - y;
    const box = { x: from, y, width, height, rx: Math.min(Math.max(height / 4, 1.5), 4) };
    return [
      svg("rect", { class: "fill", ...box }),
      texture > 0 ? svg("rect", { fill: `url(#x${texture})`, ...box }) : undefined,
      loading > 1 ? svg("rect", { class: "setup", ...box, width: Math.min(loading, width) }) : undefined,
      block === tallest ? barLabel(bar, from, y + height / 2, width, rowHeight) : undefined,
    ];
  });
  const group = { class: ["bar", lookOf(bar.task), bar.class ?? ""].join(" ").trim(), "data-task": `${bar.task}` };
  return svg("g", group, svg("title", {}, `${bar.label}\n${bar.tip}`), blocks);
}

function barLabel({ label, detail }, x, middle, width, rowHeight) {
  // These sizes are the style sheet's. A letter is about 0.6 of them wide.
  const [font, look] = rowHeight < 16 ? [9, "small"] : [11, undefined];
  const letters = Math.floor(Math.max(width - 10, 0) / (font * 0.6));
  if (letters < 5 && letters < [...label].length) return undefined;
  const whole = detail ? `${label} · ${detail}` : label;
  const text = [...whole].length <= letters ? whole : fit(label, letters);
  return svg("text", { class: look, x: x + 6, y: middle + font * 0.36 }, text);
}

function drawMark(mark, x, bottom) {
  const at = x(mark.at_s);
  const text = at > GANTT.width * 0.8 ? { x: at - 5, "text-anchor": "end" } : { x: at + 5, "text-anchor": "start" };
  return svg("g", { class: `mark ${mark.class}` },
    svg("title", {}, mark.tip),
    svg("line", { x1: at, x2: at, y1: 4, y2: bottom }),
    svg("text", { ...text, y: 13 }, mark.label));
}

// The textures over bars, which all charts of a page share.
function texturePatterns() {
  const lines = TEXTURE_LINES.map((line, index) =>
    svg("pattern", { id: `x${index + 1}`, width: 6, height: 6, patternUnits: "userSpaceOnUse" }, svg("path", { d: line })));
  return svg("svg", { class: "patterns", width: 0, height: 0, "aria-hidden": "true" }, lines);
}

// Round times up to the last, about eight, with their labels.
function timeTicks(to_s) {
  const step_s = tickStep(to_s);
  const num = Math.floor(to_s / step_s + 1e-6);
  return Array.from({ length: num + 1 }, (_, index) => [index * step_s, tickLabel(index * step_s, step_s)]);
}

// The same before and after now, on a live chart: `−10 min`, `now`, `+10 min`.
function liveTicks(from_s, to_s, now_s) {
  const step_s = tickStep(to_s - from_s);
  const first = Math.ceil((from_s - now_s) / step_s);
  const num = Math.floor((to_s - now_s) / step_s) - first;
  return Array.from({ length: num + 1 }, (_, index) => {
    const away = first + index;
    const label = `${away < 0 ? "−" : "+"}${tickLabel(Math.abs(away) * step_s, step_s)}`;
    return [now_s + away * step_s, away === 0 ? "now" : label];
  });
}

function tickStep(span_s) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800];
  const wanted = span_s / 9;
  return steps.find((step) => step >= wanted) ?? Math.ceil(wanted / 86400) * 86400;
}

// The label of a tick, where ticks are `step_s` apart: `45 s`, `1:15`, `3 min`, `1:30 h`, `2 d 12 h`.
function tickLabel(at_s, step_s) {
  const two = (number) => String(number).padStart(2, "0");
  const [minutes, hours] = [Math.round(at_s / 60), Math.round(at_s / 3600)];
  if (at_s < step_s / 2) return "0";
  if (step_s < 1) return `${at_s.toFixed(1)} s`;
  if (step_s >= 86400) return `${Math.round(at_s / 86400)} d`;
  if (step_s >= 60 && at_s >= 48 * 3600) return `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
  if (step_s >= 3600) return `${hours} h`;
  if (step_s >= 60) return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)}:${two(minutes % 60)} h`;
  const seconds = Math.round(at_s);
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
}
