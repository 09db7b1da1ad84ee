/* What the playground's answers cost, in integers: an estimate while one comes, then its receipt's.
   Loaded before playground.js, which calls it. */
"use strict";

const about = JSON.parse(document.getElementById("play-about")?.textContent || "null");
const PICO = 10n ** 12n;
const SIGNS = { USD: "$", EUR: "€", GBP: "£" };
const CHARS_PER_TOKEN = 4;

const at = (id) => document.getElementById(`play-${id}`);

function signed(text) {
  const sign = SIGNS[about.currency];
  return sign ? sign + text : `${text} ${about.currency}`;
}

function exactly(pico) {
  const decimals = String(pico % PICO).padStart(12, "0").replace(/0+$/, "").padEnd(2, "0");
  return `${(pico / PICO).toLocaleString("en-US")}.${decimals}`;
}

/* Two decimals from one unit up, else three significant digits. */
function money(pico) {
  if (pico === 0n) return signed("0.00");
  const digits = pico >= PICO ? 10 : Math.max(0, String(pico).length - 3);
  const step = 10n ** BigInt(digits);
  return signed(exactly(((pico + step / 2n) / step) * step));
}

function show(id, text, exact = "") {
  const cell = at(id);
  cell.textContent = text;
  cell.title = exact;
}

function showUsed(used, suffix) {
  const mark = used.isEstimate ? "≈ " : "";
  show(`prompt${suffix}`, mark + used.prompt.toLocaleString("en-US"));
  show(`cached${suffix}`, used.cached.toLocaleString("en-US"));
  show(`output${suffix}`, mark + used.output.toLocaleString("en-US"));
  show(`cost${suffix}`, mark + money(used.pico), used.isEstimate ? "" : signed(exactly(used.pico)));
  at(`cost${suffix}`).dataset.pico = used.isEstimate ? "" : String(used.pico);
}

function estimate(running) {
  const price = about.models[running.model];
  const prompt = Math.ceil(running.promptChars / CHARS_PER_TOKEN);
  const pico = BigInt(prompt) * BigInt(price.input_pico) + BigInt(running.pieces) * BigInt(price.output_pico);
  return { prompt, cached: 0, output: running.pieces, pico, isEstimate: true };
}

function plus(one, other) {
  return {
    prompt: one.prompt + other.prompt,
    cached: one.cached + other.cached,
    output: one.output + other.output,
    pico: one.pico + other.pico,
    isEstimate: one.isEstimate || other.isEstimate,
  };
}
