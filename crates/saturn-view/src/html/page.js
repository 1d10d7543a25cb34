// Points at one task everywhere at once, and shows tips without the browser's delay.
"use strict";
const tip = document.getElementById("tip");

// With scripts, titles become tips; without, the browser shows them by itself.
for (const title of document.querySelectorAll("svg title")) {
  title.parentNode.dataset.tip = title.textContent;
  title.remove();
}

function light(task) {
  document.body.classList.toggle("lit", task !== undefined);
  for (const part of document.querySelectorAll("[data-task]")) {
    part.classList.toggle("on", part.dataset.task === task);
  }
}

document.addEventListener("pointerover", (event) => {
  light(event.target.closest("[data-task]")?.dataset.task);
  const told = event.target.closest("[data-tip]");
  tip.hidden = !told;
  if (told) tip.textContent = told.dataset.tip;
});

document.addEventListener("pointermove", (event) => {
  if (tip.hidden) return;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
  tip.style.top = (event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18) + "px";
});

document.addEventListener("focusin", (event) => light(event.target.dataset?.task));
document.addEventListener("focusout", () => light(undefined));

// Between curves, the nearest one is meant.
const losses = document.querySelector(".losses");
losses?.addEventListener("pointermove", (event) => {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(losses.getScreenCTM().inverse());
  let nearest, least = 30;
  for (const curve of losses.querySelectorAll(".curve")) {
    for (const point of curve.lastElementChild.points) {
      const away = Math.hypot(point.x - at.x, point.y - at.y);
      if (away < least) [nearest, least] = [curve, away];
    }
  }
  light(nearest?.dataset.task);
});
