/* The playground: a conversation over /v1/stream, with what it costs while it runs. What models and
   people write is set as text, never as HTML, and is kept in this tab only. */
"use strict";

const CLOSED = {
  1001: "The connection was idle and was closed. Send again.",
  4401: "The playground's key was revoked, or your session ended. Send again, or sign in again.",
  4403: "You may not use the playground from here.",
  4408: "Your browser did not read the answer in time.",
  4429: "Too many conversations at once in this project. Close one and send again.",
  4503: "The server is restarting or away. Send again shortly.",
};
const SIGNED_OUT = "You are signed out. Reload the page to sign in.";
const UNREACHABLE = "The server cannot be reached. Send again.";

const kept = `playground:${about?.place}`;
const state = { turns: [], socket: null, running: null, sum: null };

/* --- what is asked ----------------------------------------------------------------------------- */

function number(id) {
  const text = at(id).value.trim();
  return text === "" || Number.isNaN(Number(text)) ? undefined : Number(text);
}

function body(turns) {
  const system = at("system").value.trim();
  const stop = at("stop-at").value.split(",").map((one) => one.trim()).filter(Boolean);
  const asked = { model: at("model").value, messages: [] };
  if (system) asked.messages.push({ role: "system", content: system });
  for (const turn of turns) {
    if (turn.text) asked.messages.push({ role: turn.role, content: turn.text });
  }
  const more = {
    temperature: number("temperature"),
    top_p: number("top-p"),
    max_tokens: number("max-tokens"),
    stop: stop.length ? stop : undefined,
  };
  for (const [name, value] of Object.entries(more)) {
    if (value !== undefined) asked[name] = value;
  }
  return asked;
}

function showCode() {
  const typed = at("message").value.trim();
  const turns = state.turns.filter((turn) => turn.role !== "error");
  const asked = [...turns, { role: "user", text: typed || (turns.length ? "" : "Hello") }];
  for (const place of document.querySelectorAll("[data-play-shown]")) {
    place.querySelector("code").textContent = codeOf(place.dataset.playShown, about.base_url, body(asked));
  }
  const price = about.models[at("model").value];
  const million = (pico) => money(BigInt(pico) * 1_000_000n);
  at("prices").textContent =
    `${million(price.input_pico)} in, ${million(price.cached_pico)} cached, ${million(price.output_pico)} out, for a million tokens.`;
}

/* --- the conversation -------------------------------------------------------------------------- */

const NAMES = { user: "You", assistant: "Model", error: "Not answered" };

function draw(turn) {
  const item = document.createElement("div");
  item.className = `play-turn play-${turn.role}`;
  const name = document.createElement("div");
  name.className = "play-name";
  name.textContent = turn.role === "assistant" ? turn.model : NAMES[turn.role];
  const text = document.createElement("div");
  text.className = "play-text";
  text.textContent = turn.text;
  const note = document.createElement("div");
  note.className = "play-note";
  note.textContent = turn.note || "";
  item.append(name, text, note);
  at("turns").append(item);
  at("empty").hidden = true;
  scrollDown();
  return { turn, text, note };
}

function scrollDown() {
  at("turns").scrollTop = at("turns").scrollHeight;
}

function add(turn) {
  state.turns.push(turn);
  return draw(turn);
}

function keep() {
  const fields = [...document.querySelectorAll("#play-parameters :is(input, select, textarea)")];
  const values = Object.fromEntries(fields.map((field) => [field.id, field.value]));
  try {
    sessionStorage.setItem(kept, JSON.stringify({ turns: state.turns, values }));
  } catch {
    /* A tab that may keep nothing, or no more. */
  }
}

function restore() {
  const found = JSON.parse(sessionStorage.getItem(kept) || "null");
  if (!found) return;
  for (const [id, value] of Object.entries(found.values)) {
    const field = document.getElementById(id);
    const isThere = field && (field.tagName !== "SELECT" || [...field.options].some((one) => one.value === value));
    if (isThere) field.value = value;
  }
  found.turns.forEach(add);
}

/* --- the socket -------------------------------------------------------------------------------- */

async function ticket() {
  const answer = await fetch(location.pathname, {
    method: "POST",
    body: new FormData(at("form")),
    headers: { "HX-Request": "true" },
    redirect: "manual",
  });
  if (answer.type === "opaqueredirect") throw new Error(SIGNED_OUT);
  if (answer.ok) return (await answer.json()).ticket;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const said = page.querySelector(".alert > div");
  throw new Error(said ? said.textContent : "No conversation can be begun now. Reload the page.");
}

async function connected() {
  if (state.socket?.readyState === WebSocket.OPEN) return state.socket;
  const offered = ["headrace.v1", await ticket()];
  const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/v1/stream`, offered);
  socket.addEventListener("message", (event) => hear(JSON.parse(event.data)));
  socket.addEventListener("close", (event) => lost(socket, event.code));
  state.socket = socket;
  return new Promise((resolve, reject) => {
    socket.addEventListener("open", () => resolve(socket));
    socket.addEventListener("close", (event) => reject(new Error(CLOSED[event.code] || UNREACHABLE)));
  });
}

function lost(socket, code) {
  if (state.socket === socket) state.socket = null;
  if (state.running && state.running.socket === socket) failed(CLOSED[code] || UNREACHABLE);
}

async function send() {
  const text = at("message").value.trim();
  if (!text || state.running) return;
  const running = { id: crypto.randomUUID(), model: at("model").value, pieces: 0, isStopped: false };
  state.running = running;
  add({ role: "user", text });
  at("message").value = "";
  const asked = body(state.turns.filter((turn) => turn.role !== "error"));
  running.promptChars = asked.messages.reduce((sum, message) => sum + message.content.length, 0);
  running.drawn = add({ role: "assistant", text: "", model: running.model });
  running.sentAt = performance.now();
  at("receipt").hidden = true;
  show("first", "–");
  show("speed", "–");
  isBusy(true, "Waiting");
  try {
    running.socket = await connected();
    if (running.isStopped) failed("Stopped before it was sent.");
    else running.socket.send(JSON.stringify({ type: "create", id: running.id, body: asked }));
  } catch (error) {
    failed(error instanceof TypeError ? UNREACHABLE : error.message);
  }
}

function stop() {
  const running = state.running;
  if (!running) return;
  running.isStopped = true;
  if (running.socket) running.socket.send(JSON.stringify({ type: "cancel", id: running.id }));
}

function hear(message) {
  const running = state.running;
  if (!running || message.id !== running.id) return;
  if (message.event === "chunk") grow(running, message.data.choices[0]?.delta?.content);
  else if (message.event === "done") finished(running, message.data);
  else if (running.isStopped) stopped(running, message.data.request_id);
  else failed(message.data.error.message, message.data.request_id);
}

function grow(running, text) {
  if (!text) return;
  if (!running.firstAt) {
    running.firstAt = performance.now();
    show("first", `${Math.round(running.firstAt - running.sentAt)} ms`);
    at("state").textContent = "Answering";
  }
  running.pieces += 1;
  running.drawn.turn.text += text;
  running.drawn.text.textContent += text;
  showUsed(estimate(running), "");
  scrollDown();
}

function finished(running, data) {
  const used = {
    prompt: data.usage.prompt_tokens,
    cached: data.usage.prompt_tokens_details.cached_tokens,
    output: data.usage.completion_tokens,
    pico: BigInt(data.charge_pico ?? "0"),
    isEstimate: data.charge_pico === null,
  };
  const why = data.finish_reason === "length" ? "Cut at its most tokens." : "";
  ended(running, data.request_id, used, why);
}

/* The end of an answer that was stopped carries no counts: its receipt does. */
async function stopped(running, requestId) {
  let used = estimate(running);
  if (about.counted) {
    const answer = await fetch(about.counted + requestId).catch(() => null);
    const receipt = answer?.ok ? await answer.json() : null;
    if (receipt?.state === "posted") {
      const tokens = receipt.tokens;
      used = {
        prompt: tokens.uncached_input + tokens.cached_input,
        cached: tokens.cached_input,
        output: tokens.output,
        pico: BigInt(receipt.amount_pico),
        isEstimate: false,
      };
    }
  }
  ended(running, requestId, used, "Stopped.");
}

function ended(running, requestId, used, note) {
  state.sum = state.sum ? plus(state.sum, used) : used;
  showUsed(used, "");
  showUsed(state.sum, "-sum");
  const seconds = (performance.now() - (running.firstAt || running.sentAt)) / 1000;
  show("speed", seconds > 0 && used.output > 1 ? ((used.output - 1) / seconds).toFixed(1) : "–");
  linkReceipt(requestId);
  running.drawn.turn.note = note;
  running.drawn.note.textContent = note;
  leave(running.isStopped ? "Stopped" : "Answered");
}

function failed(sentence, requestId) {
  const running = state.running;
  if (!running.drawn.turn.text) {
    state.turns = state.turns.filter((turn) => turn !== running.drawn.turn);
    running.drawn.text.parentElement.remove();
  }
  add({ role: "error", text: sentence });
  if (requestId) linkReceipt(requestId);
  leave("Not answered");
}

function linkReceipt(requestId) {
  at("receipt").href = `${about.receipts}/${requestId}`;
  at("receipt").hidden = false;
}

function leave(said) {
  state.running = null;
  isBusy(false, said);
  keep();
  showCode();
}

function isBusy(busy, said) {
  at("turns").setAttribute("aria-busy", String(busy));
  at("send").hidden = busy;
  at("stop").hidden = !busy;
  at("state").textContent = said;
  if (!busy) readyToType();
}

function begin() {
  stop();
  state.turns = [];
  state.sum = null;
  at("turns").replaceChildren();
  at("empty").hidden = false;
  for (const id of ["prompt", "cached", "output", "cost"]) {
    show(id, "–");
    show(`${id}-sum`, "–");
  }
  keep();
  showCode();
  readyToType();
}

/* Where a finger types, the keyboard comes when it is asked for. */
function readyToType() {
  if (matchMedia("(pointer: fine)").matches) at("message").focus({ preventScroll: true });
}

function showLanguage(chosen) {
  for (const button of document.querySelectorAll("[data-play-code]")) {
    button.setAttribute("aria-pressed", String(button === chosen));
  }
  for (const place of document.querySelectorAll("[data-play-shown]")) {
    place.hidden = place.dataset.playShown !== chosen.dataset.playCode;
  }
}

if (about) {
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  at("message").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") stop();
  });
  at("stop").addEventListener("click", stop);
  at("new").addEventListener("click", begin);
  for (const area of [at("parameters"), at("message")]) {
    area.addEventListener("input", () => {
      showCode();
      keep();
    });
  }
  for (const button of document.querySelectorAll("[data-play-code]")) {
    button.addEventListener("click", () => showLanguage(button));
  }
  restore();
  showCode();
  readyToType();
}
