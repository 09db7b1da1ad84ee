/* Uploads the files that are chosen, one after the other, each with a bar; the form that is sent
   afterwards names them by id. What the server says is shown as it says it. */
"use strict";

const TRIES_MAX = 10;
/* Of one file, where the server asks to come back later. */

let uploading = 0;

function uploadField(within) {
  return within.closest("[data-upload]");
}

function row(list, file) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  name.className = "upload-name";
  name.textContent = file.name;
  const bar = document.createElement("progress");
  bar.className = "progress progress-sm";
  bar.max = 100;
  bar.value = 0;
  bar.setAttribute("aria-label", `Upload of ${file.name}`);
  const drop = document.createElement("button");
  drop.type = "button";
  drop.className = "btn btn-sm";
  drop.dataset.dropUpload = "";
  drop.textContent = "Remove";
  item.append(name, bar, drop);
  list.append(item);
  return item;
}

function finish(item, text, isError) {
  const note = document.createElement("span");
  note.className = isError ? "field-error" : "text-secondary";
  note.textContent = text;
  item.querySelector("progress").replaceWith(note);
}

function size(bytes) {
  if (bytes >= 1048576) return `${(bytes / 1048576).toFixed(1)} MB`;
  return bytes >= 1024 ? `${(bytes / 1024).toFixed(1)} KB` : `${bytes} bytes`;
}

function refusal(request) {
  const page = new DOMParser().parseFromString(request.responseText, "text/html");
  const said = page.querySelector("[role=alert] > div");
  return (said || page.body).textContent.trim() || "The upload failed. Try again.";
}

/* Resolves to the seconds after which to try again, or to 0. */
function send(field, file, item, isLastTry) {
  return new Promise((done) => {
    let againS = 0;
    const form = new FormData();
    form.append("purpose", field.dataset.purpose);
    form.append("expires_after[anchor]", "created_at");
    form.append("expires_after[seconds]", field.dataset.lifeS);
    form.append("file", file);
    const request = new XMLHttpRequest();
    item.upload = request;
    request.open("POST", field.dataset.upload);
    request.setRequestHeader("X-CSRFToken", field.closest("form").elements.csrfmiddlewaretoken.value);
    request.setRequestHeader("HX-Request", "true");
    request.upload.addEventListener("progress", (event) => {
      const bar = item.querySelector("progress");
      if (bar && event.lengthComputable) bar.value = (100 * event.loaded) / event.total;
    });
    request.addEventListener("load", () => {
      const isJson = (request.getResponseHeader("content-type") || "").startsWith("application/json");
      if (request.status === 200 && isJson) {
        const kept = JSON.parse(request.responseText);
        const id = document.createElement("input");
        Object.assign(id, { type: "hidden", name: "file_ids", value: kept.id });
        item.prepend(id);
        finish(item, size(kept.bytes), false);
      } else if (request.status === 200) {
        location.reload(); // signed out meanwhile: the page of the sign-in was the answer
      } else if ([429, 503].includes(request.status) && !isLastTry) {
        againS = Number(request.getResponseHeader("retry-after")) || 1;
      } else {
        finish(item, refusal(request), true);
      }
    });
    request.addEventListener("error", () => finish(item, "The server cannot be reached. Try again.", true));
    request.addEventListener("loadend", () => done(againS));
    request.send(form);
  });
}

async function upload(field, files) {
  const buttons = field.closest("form").querySelectorAll("[data-waits-for-uploads]");
  const list = field.querySelector("[data-uploads]");
  const waiting = files.map((file) => [file, row(list, file)]);
  uploading += 1;
  for (const button of buttons) button.disabled = true;
  for (const [file, item] of waiting) {
    if (file.size > Number(field.dataset.bytesMax)) finish(item, "This file is too large.", true);
    for (let tries = 1; item.isConnected && item.querySelector("progress"); tries += 1) {
      const againS = await send(field, file, item, tries === TRIES_MAX);
      if (againS) await new Promise((done) => setTimeout(done, againS * 1000));
    }
  }
  uploading -= 1;
  for (const button of buttons) button.disabled = uploading > 0;
}

document.addEventListener("change", (event) => {
  const field = event.target.matches("[type=file]") && uploadField(event.target);
  if (!field) return;
  const files = [...event.target.files];
  event.target.value = "";
  upload(field, files);
});

document.addEventListener("click", (event) => {
  const drop = event.target.closest("[data-drop-upload]");
  if (!drop) return;
  const item = drop.closest("li");
  if (item.upload) item.upload.abort();
  item.remove();
});
