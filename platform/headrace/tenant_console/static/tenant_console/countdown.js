/* Counts down to the end of a rotated key, second by second. */
"use strict";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function timeLeft(seconds) {
  const first = Math.max(0, UNITS.findIndex(([unit]) => seconds >= unit));
  return UNITS.slice(first, first + 2 + (first > 0))
    .map(([unit, name], place) => `${Math.floor((place ? seconds % UNITS[first + place - 1][0] : seconds) / unit)} ${name}`)
    .join(" ");
}

function tick() {
  for (const shown of document.querySelectorAll("[data-until]")) {
    const seconds = Math.floor((new Date(shown.dataset.until) - Date.now()) / 1000);
    shown.textContent = seconds > 0 ? `in ${timeLeft(seconds)}` : "now";
  }
}

tick();
setInterval(tick, 1000);
