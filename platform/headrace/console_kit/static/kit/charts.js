/* Draws every [data-chart] from the JSON beside it: stacked bars or lines, zero-based, with all
   series and their sum in the tooltip, where a click on a bucket goes where the page says; or dots.
   A chart that comes by the live socket is drawn without movement, its table open as it was. */
"use strict";

const drawn = new Map();
const openTables = new Set();
const FAINTEST = 0.3;

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function shortened(number) {
  for (const [unit, suffix] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= unit) return `${Number((number / unit).toPrecision(3))}${suffix}`;
  }
  return String(number);
}

function money(micros, sign) {
  const amount = micros / 1e6;
  if (amount === 0 || Math.abs(amount) >= 1) {
    return sign + amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  }
  return sign + amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumSignificantDigits: 3 });
}

function shown(value, data, exact) {
  if (value === null) return "–";
  if (data.unit === "money") return money(value, data.currency);
  if (data.unit === "us" && value < 1e6) return `${Number((value / 1e3).toPrecision(3))} ms`;
  if (data.unit === "us") return `${(value / 1e6).toPrecision(3)} s`;
  if (data.unit === "ms") return value < 1000 ? `${value} ms` : `${(value / 1000).toPrecision(3)} s`;
  return exact ? value.toLocaleString("en-US") : shortened(value);
}

function dataset(series, data) {
  const color = token(`--chart-${series.color}`);
  if (data.kind === "bars") {
    return { label: series.name, data: series.values, backgroundColor: color, borderWidth: 0, maxBarThickness: 36, stack: series.color === "previous" ? "previous" : "now" };
  }
  return { label: series.name, data: series.values, borderColor: color, backgroundColor: color, borderWidth: 2, pointRadius: 0, pointHitRadius: 12, tension: 0.25, spanGaps: false };
}

function mixed(color, share) {
  return color + Math.round(255 * share).toString(16).padStart(2, "0");
}

/* The older the fainter; the last one is large and ringed where it is now. */
function dotsDataset(data) {
  const color = token("--chart-series-1");
  const last = data.dots.length - 1;
  const colors = data.dots.map((_dot, index) => mixed(color, FAINTEST + (1 - FAINTEST) * (index + 1) / (last + 1)));
  const isMarked = (index) => data.isLastMarked && index === last;
  return {
    data: data.dots,
    pointRadius: data.dots.map((_dot, index) => (isMarked(index) ? 7 : 4)),
    pointBackgroundColor: colors,
    pointBorderColor: colors.map((faint, index) => (isMarked(index) ? token("--chart-series-2") : faint)),
    pointBorderWidth: data.dots.map((_dot, index) => (isMarked(index) ? 3 : 0)),
    pointHitRadius: 8,
  };
}

function dotsOptions(data, still) {
  const text = token("--chart-text");
  const grid = token("--chart-grid");
  const axis = (said) => ({
    beginAtZero: true,
    grace: "5%",
    grid: { color: grid },
    border: { display: false },
    title: { display: true, text: said.title, color: text },
    ticks: { color: text, maxRotation: 0, maxTicksLimit: 5, callback: (value) => shown(value, said, false) },
  });
  return {
    responsive: true,
    maintainAspectRatio: false,
    animation: still ? false : { duration: 200 },
    interaction: { mode: "nearest", intersect: true },
    scales: { x: axis(data.x), y: axis(data.y) },
    plugins: {
      legend: { display: false },
      tooltip: {
        padding: 10,
        displayColors: false,
        callbacks: {
          title: ([item]) => data.labels[item.dataIndex],
          label: (item) => [data.x, data.y].map((said, index) => `${said.title}: ${shown(index ? item.raw.y : item.raw.x, said, true)}`),
        },
      },
    },
  };
}

function options(data, still) {
  const text = token("--chart-text");
  const grid = token("--chart-grid");
  const stacked = data.kind === "bars";
  return {
    responsive: true,
    maintainAspectRatio: false,
    animation: still ? false : { duration: 200 },
    interaction: { mode: "index", intersect: false },
    onClick: (event, items) => {
      const href = items.length && data.hrefs[items[0].index];
      if (href) location.assign(href);
    },
    scales: {
      x: { stacked, grid: { display: false }, border: { color: grid }, ticks: { color: text, maxRotation: 0, autoSkipPadding: 16 } },
      y: { stacked, beginAtZero: true, grid: { color: grid }, border: { display: false }, ticks: { color: text, maxTicksLimit: 5, callback: (value) => shown(value, data, false) } },
    },
    plugins: {
      legend: { display: data.series.length > 1, position: "bottom", align: "start", labels: { color: text, boxWidth: 10, boxHeight: 10, useBorderRadius: true, borderRadius: 2, padding: 16 } },
      tooltip: {
        padding: 10,
        boxPadding: 4,
        callbacks: {
          label: (item) => ` ${item.dataset.label}: ${shown(item.raw, data, true)}`,
          footer: (items) => {
            const now = items.filter((item) => item.dataset.stack !== "previous");
            if (!stacked || now.length < 2) return "";
            return `Sum: ${shown(now.reduce((sum, item) => sum + (item.raw || 0), 0), data, true)}`;
          },
        },
      },
    },
  };
}

function config(data, still) {
  if (data.kind === "scatter") {
    return { type: "scatter", data: { datasets: [dotsDataset(data)] }, options: dotsOptions(data, still) };
  }
  return {
    type: data.kind === "bars" ? "bar" : "line",
    data: { labels: data.labels, datasets: data.series.map((series) => dataset(series, data)) },
    options: options(data, still),
  };
}

function draw(figure, isLive) {
  const source = document.getElementById(figure.dataset.chart);
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const canvas = figure.querySelector("canvas");
  if (drawn.has(canvas)) drawn.get(canvas).destroy();
  Chart.defaults.font.family = token("--tblr-font-sans-serif") || "sans-serif";
  const still = isLive || matchMedia("(prefers-reduced-motion: reduce)").matches;
  drawn.set(canvas, new Chart(canvas, config(data, still)));
}

function forgetGone() {
  for (const canvas of drawn.keys()) {
    if (!canvas.isConnected) {
      drawn.get(canvas).destroy();
      drawn.delete(canvas);
    }
  }
}

function drawAll() {
  forgetGone();
  document.querySelectorAll("[data-chart]").forEach((figure) => draw(figure, false));
}

function drawNew() {
  forgetGone();
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (drawn.has(figure.querySelector("canvas"))) continue;
    figure.querySelector(".chart-twin").open = openTables.has(figure.dataset.chart);
    draw(figure, true);
  }
}

function noteOpen(event) {
  const figure = event.target.matches(".chart-twin") && event.target.closest("[data-chart]");
  if (figure) openTables[event.target.open ? "add" : "delete"](figure.dataset.chart);
}

document.addEventListener("DOMContentLoaded", drawAll);
document.addEventListener("htmx:afterSettle", drawAll);
document.addEventListener("htmx:wsAfterMessage", drawNew);
document.addEventListener("kit:theme", drawAll);
document.addEventListener("toggle", noteOpen, true);
