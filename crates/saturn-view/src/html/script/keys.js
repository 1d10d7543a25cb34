// The parts of a chart by keyboard and screen reader. A chart is one stop of the Tab key, however many parts it has;
// arrow keys, Home and End go from part to part.
function visitByKeys(chart) {
  const parts = [...chart.querySelectorAll("g > title")].map((title) => title.parentNode);
  if (parts.length === 0) return;
  chart.setAttribute("role", "group"); // An image would hide its parts.
  for (const part of parts) {
    part.setAttribute("role", "img");
    part.setAttribute("aria-label", part.firstChild.textContent);
    part.setAttribute("tabindex", "-1");
  }
  let at = 0;
  const stopAt = (next) => {
    parts[at].setAttribute("tabindex", "-1");
    at = Math.max(0, Math.min(next, parts.length - 1));
    parts[at].setAttribute("tabindex", "0");
  };
  stopAt(0);
  chart.addEventListener("focusin", (event) => stopAt(parts.indexOf(event.target)));
  chart.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: parts.length - 1 }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    stopAt(to);
    parts[at].focus();
  });
}
