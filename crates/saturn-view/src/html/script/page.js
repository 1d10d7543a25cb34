// Points at one task everywhere at once, and shows tips without the browser's delay. Nothing here takes
// longer the more tasks a page has, but for one look at its parts when the charts are drawn.
const tip = document.getElementById("tip");

// By task: all that speaks of it.
const parts = new Map();
// Having all others step back restyles them all.
let isLarge = false;
function gatherParts() {
  parts.clear();
  for (const part of document.querySelectorAll("[data-task]")) {
    const of = parts.get(part.dataset.task);
    if (of) of.push(part);
    else parts.set(part.dataset.task, [part]);
  }
  isLarge = parts.size > 200;
}
gatherParts();

let lit;
function light(task) {
  if (task === lit) return;
  for (const part of parts.get(lit) ?? []) part.classList.remove("on");
  for (const part of parts.get(task) ?? []) part.classList.add("on");
  if (!isLarge) document.body.classList.toggle("lit", task !== undefined);
  lit = task;
}

// A chart's title becomes a tip when it is first pointed at, so that the browser shows no second tip.
function tipAt(target) {
  const drawn = target.closest("g");
  const title = drawn?.querySelector(":scope > title");
  if (title) {
    drawn.dataset.tip = title.textContent;
    title.remove();
  }
  return target.closest("[data-tip]")?.dataset.tip;
}

// Lights the task of an element that is pointed at or has the focus, and shows the element's tip.
let size = { width: 0, height: 0 };
function tell(target) {
  light(target.closest("[data-task]")?.dataset.task);
  const told = tipAt(target);
  tip.hidden = told === undefined;
  if (tip.hidden) return;
  tip.textContent = told;
  size = { width: tip.offsetWidth, height: tip.offsetHeight };
}

// Puts the tip below a place in the window, or above the place where there is no room below.
function tipTo(x, above, below) {
  if (tip.hidden) return;
  tip.style.left = Math.max(8, Math.min(x, innerWidth - size.width - 8)) + "px";
  tip.style.top = (below + size.height > innerHeight ? above - size.height : below) + "px";
}

document.addEventListener("pointerover", (event) => tell(event.target));
document.addEventListener("pointermove", ({ clientX, clientY }) => tipTo(clientX + 14, clientY - 10, clientY + 18));
document.addEventListener("focusin", ({ target }) => {
  tell(target);
  const box = target.getBoundingClientRect();
  tipTo(box.left, box.top - 6, box.bottom + 6);
});
document.addEventListener("focusout", () => {
  light(undefined);
  tip.hidden = true;
});

// Between curves, the nearest one is meant.
function pointAtCurves(within) {
  for (const chart of within.querySelectorAll(".curves")) pointAtCurve(chart);
}

function pointAtCurve(chart) {
  let curves;
  chart.addEventListener("pointermove", (event) => {
    curves ??= [...chart.querySelectorAll(".curve")].map((curve) => ({
      task: curve.dataset.task,
      points: [...curve.lastElementChild.points].map((point) => [point.x, point.y]),
    }));
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    let nearest, least = 30;
    for (const { task, points } of curves) {
      for (const [x, y] of points) {
        const away = Math.hypot(x - at.x, y - at.y);
        if (away < least) [nearest, least] = [task, away];
      }
    }
    light(nearest);
  });
}
pointAtCurves(document);

// Paper can't be opened: what is folded is printed open.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const one of opened) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of opened) one.open = false;
});
