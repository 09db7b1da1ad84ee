/* Draws every [data-chart] from the JSON beside it: stacked bars or lines, zero-based, with all
   series and their sum in the tooltip; a click on a bucket goes where the page says. */
"use strict";

const drawn = new Map();

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

function options(data) {
  const text = token("--chart-text");
  const grid = token("--chart-grid");
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
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

function draw(figure) {
  const source = document.getElementById(figure.dataset.chart);
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const canvas = figure.querySelector("canvas");
  if (drawn.has(canvas)) drawn.get(canvas).destroy();
  Chart.defaults.font.family = token("--tblr-font-sans-serif") || "sans-serif";
  drawn.set(canvas, new Chart(canvas, {
    type: data.kind === "bars" ? "bar" : "line",
    data: { labels: data.labels, datasets: data.series.map((series) => dataset(series, data)) },
    options: options(data),
  }));
}

function drawAll() {
  for (const canvas of drawn.keys()) {
    if (!canvas.isConnected) {
      drawn.get(canvas).destroy();
      drawn.delete(canvas);
    }
  }
  document.querySelectorAll("[data-chart]").forEach(draw);
}

document.addEventListener("DOMContentLoaded", drawAll);
document.addEventListener("htmx:afterSettle", drawAll);
document.addEventListener("kit:theme", drawAll);
