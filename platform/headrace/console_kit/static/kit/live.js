/* Says whether what a page shows is live, when it was last updated, and that the connection is lost.
   The htmx extension connects, swaps what comes, and comes back after a lost connection by itself. */
"use strict";

const LIVE_ENDED = { 4401: "Signed out", 4403: "Not allowed any more", 4404: "Not there any more" };

/* A narrow page has room for the first word only. */
function showLive(word, more, isLost) {
  const live = document.getElementById("live");
  const hasUpdate = document.getElementById("live-time").textContent !== "";
  live.querySelector("[data-live-text]").textContent = word;
  live.querySelector("[data-live-more]").textContent = `${more}${hasUpdate ? " · updated" : ""}`;
  live.classList.toggle("is-lost", isLost);
  live.hidden = false;
}

document.addEventListener("htmx:wsOpen", () => showLive("Live", "", false));
document.addEventListener("htmx:wsAfterMessage", () => showLive("Live", "", false));
document.addEventListener("htmx:wsClose", (event) => {
  const ended = LIVE_ENDED[event.detail.event.code];
  showLive(ended || "Connection lost", ended ? "" : ", trying again", true);
});
