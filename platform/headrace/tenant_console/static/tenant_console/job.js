/* The page of a job: what can be done with it changes with its state, so the page is asked for anew
   when its live part tells another one; not while somebody fills in a dialog. */
"use strict";

function catchUp() {
  const told = document.querySelector("[data-job-state]");
  const shown = document.querySelector("[data-shown-state]");
  if (!told || !shown || told.dataset.jobState === shown.dataset.shownState) return;
  if (document.querySelector("dialog[open], #content.htmx-request")) return;
  htmx.ajax("GET", location.href, { target: "#content", select: "#content", swap: "outerHTML" });
}

document.addEventListener("htmx:wsAfterMessage", catchUp);
document.addEventListener("close", catchUp, true);
document.addEventListener("htmx:beforeSwap", (event) => {
  const isWhole = event.detail.target.id === "content";
  if (isWhole && document.querySelector("dialog[open]")) event.detail.shouldSwap = false;
});
