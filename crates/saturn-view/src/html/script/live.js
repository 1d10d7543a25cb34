// Keeps a page as it is on the server: a stream of the run's events says when to read the page again, and the parts
// that changed are put in place of the old ones. Buttons send commands. Without this script, a page is right when it
// is read, and reading it again brings the news.
const API = "/api/v1/runs/";
const LEAST_MS = 1000; // Between two reads.
const LIST_MS = 5000; // Between two reads of a page that no stream tells of.
const page = document.querySelector("main");
const sign = document.getElementById("live");
document.documentElement.classList.add("scripted");

function say(state, words) {
  if (sign.textContent === words) return;
  sign.className = state;
  sign.textContent = words;
}

// Times that are to come, as a clock shows them.
function tellTimes(within) {
  const now = Date.now();
  for (const time of within.querySelectorAll("time[data-in]")) {
    const at = new Date(now + Number(time.dataset.in) * 1000);
    const isToday = at.toDateString() === new Date(now).toDateString();
    const day = isToday ? {} : { weekday: "short" };
    const second = time.dataset.in < 600 ? { second: "2-digit" } : {};
    time.title = time.textContent;
    time.textContent = at.toLocaleTimeString([], { ...day, hour: "2-digit", minute: "2-digit", ...second });
    time.dateTime = at.toISOString();
  }
}

// Puts a part as the server has it now in place of the old one. The place of the focus, of what is moved sideways and
// of what is unfolded stays.
function replacePart(part, html) {
  const focused = part.contains(document.activeElement) ? document.activeElement : undefined;
  const sameAs = focused && (focused.getAttribute("href") ? `[href="${CSS.escape(focused.getAttribute("href"))}"]` : focused.dataset.command ? `[data-command="${CSS.escape(focused.dataset.command)}"]` : undefined);
  const scrolled = [...part.querySelectorAll(".scroll, pre")].map((one) => [one.scrollLeft, one.scrollTop, one.scrollTop + one.clientHeight >= one.scrollHeight - 4]);
  const open = [...part.querySelectorAll("details")].map((one) => one.open);
  part.innerHTML = html;
  draw(part);
  [...part.querySelectorAll(".scroll, pre")].forEach((one, index) => {
    if (scrolled[index] === undefined) return;
    one.scrollLeft = scrolled[index][0];
    one.scrollTop = scrolled[index][2] ? one.scrollHeight : scrolled[index][1];
  });
  [...part.querySelectorAll("details")].forEach((one, index) => (one.open = open[index] ?? one.open));
  if (sameAs) part.querySelector(sameAs)?.focus({ preventScroll: true });
}

function draw(part) {
  drawCharts(part);
  pointAtCurves(part);
  tellTimes(part);
}

let readAt = 0;
let isReading = false;
let isWanted = false;
async function read() {
  isWanted = true;
  if (isReading) return;
  isReading = true;
  while (isWanted && !document.hidden) {
    isWanted = false;
    const wait = readAt + LEAST_MS - performance.now();
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    const began = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.redirected) location.reload(); // Logged out.
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      let isNew = false;
      for (const part of document.querySelectorAll("[data-live]")) {
        const html = fresh.getElementById(part.id)?.innerHTML;
        if (html === undefined || html === served.get(part.id)) continue;
        served.set(part.id, html);
        replacePart(part, html);
        isNew = true;
      }
      if (isNew) gatherParts();
      if (!page.dataset.run) say("on", "live");
    } catch (error) {
      say("off", "not connected");
      console.warn(error);
    }
    // A large page is read less often.
    readAt = performance.now() + 4 * (performance.now() - began);
  }
  isReading = false;
}

// The stream ends while nobody looks: a browser has few connections to a server.
let stream;
let event = page.dataset.event;
function listen() {
  stream?.close();
  stream = undefined;
  if (document.hidden || !page.dataset.run) return;
  stream = new EventSource(`${API}${page.dataset.run}/events?after=${event}`);
  const heard = (message) => {
    if (message.lastEventId) event = message.lastEventId;
    read();
  };
  for (const name of ["message", "progress", "resync"]) stream.addEventListener(name, heard);
  stream.onopen = () => say("on", "live");
  stream.onerror = () => {
    const isOver = stream.readyState === EventSource.CLOSED;
    say("off", isOver ? "not connected: is saturn web running?" : "connecting again");
    if (isOver) setTimeout(listen, LIST_MS);
  };
}
document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden) read();
});
if (page.dataset.run) listen();
else if (page.dataset.live !== undefined || document.querySelector("[data-live]")) {
  say("on", "live");
  setInterval(read, LIST_MS);
}

async function send(button) {
  const said = document.getElementById("said");
  if (button.dataset.confirm && !confirm(button.dataset.confirm)) return;
  button.disabled = true;
  said.textContent = "…";
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  try {
    const answer = await fetch(`${API}${page.dataset.run}/commands`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-saturn": "1", "idempotency-key": key },
      body: button.dataset.command,
    });
    const told = await answer.json();
    said.className = told.ok ? "good" : "bad";
    said.textContent = told.ok ? `done: ${button.textContent}` : told.error;
  } catch (error) {
    said.className = "bad";
    said.textContent = `not done: ${error.message}`;
  }
  button.disabled = false;
  read();
}

async function leave() {
  await fetch("/api/v1/session", { method: "DELETE", headers: { "content-type": "application/json", "x-saturn": "1" } });
  location.assign("/login");
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-command]");
  if (button) send(button);
  if (target.closest("#leave")) leave();
  // A bar leads to its task.
  const bar = target.closest(".bar[data-task]");
  if (bar) document.querySelector(`a[data-of="${bar.dataset.task}"]`)?.click();
});
document.addEventListener("keydown", ({ key, target }) => {
  if (key === "Enter" && target.matches(".bar[data-task]")) document.querySelector(`a[data-of="${target.dataset.task}"]`)?.click();
});
tellTimes(document);
// On a narrow screen, a chart is first moved to the present.
for (const place of document.querySelectorAll('[data-chart="gantt"]')) {
  const now = place.querySelector(".mark.now line");
  if (now) place.scrollLeft += now.getBoundingClientRect().left - place.getBoundingClientRect().left - place.clientWidth * 0.3;
}
for (const log of document.querySelectorAll("pre.log")) log.scrollTop = log.scrollHeight;
