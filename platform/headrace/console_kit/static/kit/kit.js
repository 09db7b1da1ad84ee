/* What pages do by themselves: theme, drawer, menus, dialogs, toasts, copying, the search key.
   One listener for each kind of event, on the document: what htmx swaps in needs no wiring. */
"use strict";

const TOAST_MS = 6000;
const YEAR_S = 365 * 24 * 3600;

function switchTheme() {
  const root = document.documentElement;
  root.dataset.bsTheme = root.dataset.bsTheme === "dark" ? "light" : "dark";
  document.cookie = `theme=${root.dataset.bsTheme}; path=/; max-age=${YEAR_S}; samesite=lax`;
  document.dispatchEvent(new CustomEvent("kit:theme"));
}

async function copy(button) {
  const named = button.dataset.copy && document.getElementById(button.dataset.copy);
  const source = named || button.parentElement.querySelector("code");
  await navigator.clipboard.writeText(source.value || source.textContent);
  say("Copied", "success");
}

function say(text, level) {
  const note = document.createElement("div");
  note.className = `toast-note toast-${level}`;
  note.textContent = text;
  document.getElementById("toasts").append(note);
  forget(note);
}

function forget(note) {
  setTimeout(() => note.remove(), TOAST_MS);
}

function openDialog(id) {
  const dialog = document.getElementById(id);
  dialog.showModal();
  const first = dialog.querySelector(".dialog-body :is(input:not([type=hidden]), select, textarea)");
  if (first) first.focus();
}

document.addEventListener("click", (event) => {
  const at = (selector) => event.target.closest(selector);
  let found;
  if (at("[data-theme-switch]")) switchTheme();
  else if (at("[data-toggle-rail]")) document.body.classList.toggle("rail-open");
  else if ((found = at("[data-copy]"))) copy(found);
  else if ((found = at("[data-dialog]"))) openDialog(found.dataset.dialog);
  else if ((found = at("[data-close-dialog]"))) found.closest("dialog").close();
  else if ((found = at("[data-close]"))) found.closest("[data-toast]").remove();
  else if (event.target.matches("dialog")) event.target.close();
  for (const menu of document.querySelectorAll("details[data-menu][open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  const asksForSearch = (event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey));
  const search = document.querySelector("[data-search]");
  if (asksForSearch && search) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "Escape") {
    document.body.classList.remove("rail-open");
    for (const menu of document.querySelectorAll("details[data-menu][open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }
});

/* A dialog that asks for the name of what it destroys lets nobody go on before it is right. */
document.addEventListener("input", (event) => {
  const wanted = event.target.dataset.confirms;
  if (wanted === undefined) return;
  event.target.form.querySelector("[type=submit]").disabled = event.target.value !== wanted;
});

/* Enter in the search box opens the first thing found; arrows walk through what is found. */
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-search-form]")) return;
  event.preventDefault();
  const first = event.target.querySelector(".search-found a");
  if (first) first.click();
});

document.addEventListener("keydown", (event) => {
  const form = event.target.closest("[data-search-form]");
  if (!form || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
  event.preventDefault();
  const stops = [form.querySelector("[data-search]"), ...form.querySelectorAll(".search-found a")];
  const at = stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
  if (stops[at]) stops[at].focus();
});

/* A select that changes what is shown sends its form. */
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-sends]")) event.target.form.requestSubmit();
});

/* An error answered to htmx is shown, not swallowed. */
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status >= 400 && event.detail.xhr.status !== 422) {
    event.detail.shouldSwap = false;
    const page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    say(page.body.textContent.trim() || "That did not work. Try again.", "error");
  } else if (event.detail.xhr.status === 422) {
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  }
});
document.addEventListener("htmx:sendError", () => say("The server cannot be reached. Try again.", "error"));

document.querySelectorAll("[data-toast]:not(.toast-error)").forEach(forget);
