// What all charts are drawn with: SVG elements, coordinates, the looks of tasks, cut texts.
"use strict";

// The namespace of SVG elements, asked of the browser: a page names no address.
const SVG = Object.assign(document.createElement("div"), { innerHTML: "<svg></svg>" }).firstChild.namespaceURI;

// An SVG element. Children are elements or texts; what is undefined or null is left out.
function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(key, typeof value === "number" ? px(value) : value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null) element.append(child);
  }
  return element;
}

// A whole drawing, which the page scales to its place.
function drawing(kind, label, width, height, ...children) {
  const view = `0 0 ${px(width)} ${px(height)}`;
  return svg("svg", { class: kind, viewBox: view, role: "img", "aria-label": label }, ...children);
}

// A tenth of a pixel is precise enough.
function px(value) {
  return Math.round(value * 10) / 10;
}

// How many colours html/colours.rs has, and the lines of its textures; one texture is plain. Looks repeat after all
// of their pairs.
const NUM_COLOURS = 8;
const TEXTURE_LINES = ["M0 6L6 0", "M0 0L6 6", "M0 3H6"];
const NUM_TEXTURES = TEXTURE_LINES.length + 1;

// The CSS class that gives an element a task's look.
function lookOf(task) {
  return `t${task % (NUM_COLOURS * NUM_TEXTURES)}`;
}

// The number of a task's texture; 0 is none.
function textureOf(task) {
  return Math.floor(task / NUM_COLOURS) % NUM_TEXTURES;
}

// The text, cut to so many letters.
function fit(text, letters) {
  const all = [...text];
  return all.length <= letters ? text : all.slice(0, Math.max(0, letters - 1)).join("") + (letters > 0 ? "…" : "");
}
