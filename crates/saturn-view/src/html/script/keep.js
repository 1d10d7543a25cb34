// What the server sent for each part of a live page, before charts are drawn into it.
const served = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id, part.innerHTML]));
