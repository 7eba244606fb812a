// The bytes held over time, and the tiles above them.
"use strict";

const memory = (() => {
  const events = [];
  const sign = {hold: 1, release: -1, replayed: 1, drop: -1};
  for (const region of regions) {
    for (const event of region.events) if (event.change in sign) events.push({...event, region});
  }
  events.sort((a, b) => a.time - b.time);
  const isReplay = event => event.change === "replayed" || event.change === "drop";

  // The kinds with the most bytes at any one time get a colour of their own.
  const kinds = unpack(data.kinds).map(kind => ({name: shortName(kind.op), most: kind.most}));
  const names = kinds.slice(0, 7).map(kind => kind.name);
  const place = new Map(names.map((name, i) => [name, i]));
  const OTHER = 7;
  const groupIndex = (region, value) => place.get(groupOf(region, value)) ?? OTHER;
  const opColor = op => place.get(shortName(op.name)) ?? OTHER;

  const spans = regions.flatMap(r => r.timed ? r.ops.filter(op => op.end !== null) : []);
  const replays = regions.flatMap(r => r.replays.filter(p => p.op >= 0 && p.end !== null).map(p => ({...p, region: r})));
  const backwards = regions.flatMap(r => r.backwards);
  return {events, sign, isReplay, kinds, names, groupIndex, opColor, spans, replays, backwards, OTHER,
          parts: unpack(data.parts), end: data.end, shownOfBound: shownOfBound()};
})();

byId("title").textContent = data.title;
byId("subtitle").textContent = data.subtitle;
for (const each of data.tiles) tile(each.label, each.value, each.detail);
tellBudget();

// With more than one policy their names stand above the plot.
const MARGIN = {left: 74, right: 12, top: memory.parts.length > 1 ? 28 : 10};
const LANES = [["forward", memory.spans], ["replays", memory.replays]];
const LANE_HEIGHT = 22;

// For each column of pixels the moment in it at which most was held, so that no peak is lost. `at` counts events.
function sample(columns) {
  const state = new Float64Array(16);  // saved by group, then replayed by group
  const samples = [];
  let next = 0, total = 0;
  for (let column = 0; column < columns; ++column) {
    const until = (column + 1) / columns * memory.end;
    let best = {total, state: state.slice(), at: next};
    while (next < memory.events.length && (memory.events[next].time <= until || column === columns - 1)) {
      const event = memory.events[next++];
      const change = memory.sign[event.change] * event.bytes;
      state[memory.groupIndex(event.region, event.value) + (memory.isReplay(event) ? 8 : 0)] += change;
      total += change;
      if (total > best.total) best = {total, state: state.slice(), at: next};
    }
    // The last column shows how it ended.
    samples.push(column === columns - 1 ? {total, state: state.slice(), at: next} : best);
  }
  return samples;
}

// The values that are held after the first `at` events, the largest first.
function heldAfter(at) {
  const held = new Map();
  for (const event of memory.events.slice(0, at)) {
    const key = event.region.number + ":" + event.value + ":" + memory.isReplay(event);
    const entry = held.get(key) ?? {event, bytes: 0};
    entry.bytes += memory.sign[event.change] * event.bytes;
    held.set(key, entry);
  }
  return [...held.values()].filter(entry => entry.bytes > 0).sort((a, b) => b.bytes - a.bytes);
}

let samples = [];
// The canvas's context, its size, and where on it a time and a number of bytes are.
function layOutMemory() {
  const canvas = byId("canvas"), ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  g.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
  const plotWidth = width - MARGIN.left - MARGIN.right;
  const bottom = height - 24 - LANES.length * LANE_HEIGHT - 8;
  const plotHeight = bottom - MARGIN.top;
  const scale = Math.max(data.most, memory.shownOfBound, 1) * 1.06;
  return {g, width, height, plotWidth, plotHeight, bottom, scale,
          columns: Math.max(1, Math.floor(plotWidth)),
          ink: cssColor("--ink"), soft: cssColor("--soft"), line: cssColor("--line"),
          x: t => MARGIN.left + t / memory.end * plotWidth, y: b => bottom - b / scale * plotHeight};
}

function drawBackwards({g, plotHeight, x}) {
  for (const span of memory.backwards) {
    g.fillStyle = cssColor("--hover");
    g.fillRect(x(span.begin), MARGIN.top, Math.max(1, x(span.end ?? memory.end) - x(span.begin)), plotHeight);
  }
}

// Three to five round steps.
function drawScale({g, plotWidth, scale, soft, line, y}) {
  let step = 1;
  while (scale / step > 5) step *= 2;
  g.textAlign = "right";
  g.textBaseline = "middle";
  for (let b = 0; b <= scale; b += step) {
    g.fillStyle = line;
    g.fillRect(MARGIN.left, Math.round(y(b)), plotWidth, 1);
    g.fillStyle = soft;
    g.fillText(bytes(b).replace(".00", ""), MARGIN.left - 8, y(b));
  }
}

// Draws the saved bytes and, above them and paler, the replayed bytes.
function drawAreas({g, columns, y}) {
  const base = new Float64Array(columns);
  for (let layer = 0; layer < 16; ++layer) {
    if (!samples.some(s => s.state[layer] > 0)) continue;
    g.beginPath();
    for (let i = 0; i < columns; ++i) {
      const top = y(base[i] + samples[i].state[layer]);
      g.lineTo(MARGIN.left + i, top);
      g.lineTo(MARGIN.left + i + 1, top);
    }
    for (let i = columns - 1; i >= 0; --i) {
      g.lineTo(MARGIN.left + i + 1, y(base[i]));
      g.lineTo(MARGIN.left + i, y(base[i]));
      base[i] += samples[i].state[layer];
    }
    g.globalAlpha = layer < 8 ? 0.92 : 0.45;
    g.fillStyle = cssColor("--c" + layer % 8);
    g.fill();
  }
  g.globalAlpha = 1;
}

// The most of each part, left of its moment if there is room. A part that is too narrow has none.
function drawPeaks({g, bottom, ink, x, y}) {
  g.fillStyle = ink;
  g.textBaseline = "top";
  for (const part of memory.parts) {
    const px = x(part.most_at), text = "most: " + bytes(part.most), room = g.measureText(text).width + 6;
    const left = px - x(part.begin) > room;
    if (part.most === 0 || !left && memory.parts.length > 1 && x(part.end) - px < room) continue;
    g.fillRect(px - 0.5, y(part.most), 1, bottom - y(part.most));
    g.textAlign = left ? "right" : "left";
    g.fillText(text, px + (left ? -6 : 6), y(part.most) + 1);
  }
}

// Where each policy begins, and above the plot its name, if there is room for it.
function drawPolicies({g, bottom, ink, soft, x}) {
  if (memory.parts.length < 2) return;
  g.textAlign = "left";
  g.textBaseline = "top";
  let free = 0;
  for (const part of memory.parts) {
    const left = x(part.begin);
    g.fillStyle = soft;
    g.fillRect(left, 8, 1, bottom - 8);
    if (left < free) continue;
    const name = part.policy || "a policy without a name";
    g.fillStyle = ink;
    g.fillText(name, left + 5, 8);
    free = left + 5 + g.measureText(name).width + 10;
  }
}

// When forward's ops ran, and when replays did.
function drawLanes({g, plotWidth, bottom, soft, x}) {
  LANES.forEach(([name, spans], lane) => {
    const top = bottom + 8 + lane * LANE_HEIGHT;
    g.fillStyle = soft;
    g.textAlign = "right";
    g.textBaseline = "middle";
    g.fillText(name, MARGIN.left - 8, top + LANE_HEIGHT / 2 - 2);
    g.fillStyle = cssColor("--plain");
    g.fillRect(MARGIN.left, top, plotWidth, LANE_HEIGHT - 5);
    for (const span of spans) {
      const op = span.region.ops[span.op] ?? span;
      g.fillStyle = cssColor("--c" + memory.opColor(op));
      g.fillRect(x(span.begin), top, Math.max(0.6, x(span.end) - x(span.begin)), LANE_HEIGHT - 5);
    }
  });
}

function drawTimes({g, height, plotWidth, soft, x}) {
  g.fillStyle = soft;
  g.textBaseline = "bottom";
  for (let i = 0; i <= 5; ++i) {
    g.textAlign = i === 0 ? "left" : i === 5 ? "right" : "center";
    g.fillText(time(memory.end * i / 5), MARGIN.left + plotWidth * i / 5, height - 4);
  }
  g.textAlign = "left";
  g.textBaseline = "top";
  for (const part of memory.parts) {
    if (part.backward !== null) g.fillText("backward", x(part.backward) + 5, MARGIN.top + 3);
  }
}

function drawMemory(cursor = null) {
  const plot = layOutMemory();
  if (samples.length !== plot.columns) samples = sample(plot.columns);
  drawBackwards(plot);
  drawScale(plot);
  drawAreas(plot);
  drawBound(plot);
  drawPolicies(plot);
  drawPeaks(plot);
  drawLanes(plot);
  drawTimes(plot);
  if (cursor !== null) {
    plot.g.fillStyle = plot.ink;
    plot.g.fillRect(MARGIN.left + cursor, MARGIN.top, 1, plot.bottom + 8 + LANES.length * LANE_HEIGHT - MARGIN.top - 5);
  }
}

if (timed && memory.end > 0) {
  byId("memory-note").textContent = "Bytes by the op that computed them; the legend has the most of each op at any one time. Paler areas are replayed, the others saved. Shaded: a backward is running. " +
      "Each pixel shows the moment in it when most was held. Point at a moment to see what was held then.";
  memory.kinds.slice(0, memory.names.length).forEach((kind, i) => byId("legend").append(
      element("span", {style: "--key:" + color(i)}, kind.name + " ", element("b", {}, bytes(kind.most)))));
  if (memory.kinds.length > memory.names.length) {
    byId("legend").append(element("span", {style: "--key:" + color(memory.OTHER)}, count(memory.kinds.length - memory.names.length, "other kind")));
  }
  drawMemory();
  addEventListener("resize", () => drawMemory());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawMemory());
  const canvas = byId("canvas");
  canvas.addEventListener("mousemove", event => {
    const column = Math.floor(event.offsetX - MARGIN.left);
    if (column < 0 || column >= samples.length) { hideTip(); drawMemory(); return; }
    drawMemory(column);
    const held = heldAfter(samples[column].at), shown = held.slice(0, 8);
    const rows = shown.map(({event, bytes: b}) => element("div", {}, element("span", {class: "value"}, bytes(b)),
        (memory.isReplay(event) ? "replayed: " : "") + valueName(event.region, event.value)));
    if (held.length > shown.length) rows.push(element("div", {class: "note"}, "and " + count(held.length - shown.length, "more value")));
    showTip(event.clientX, event.clientY,
            element("div", {}, element("strong", {}, bytes(samples[column].total)), " at " + time((column + 0.5) / samples.length * memory.end)),
            ...rows);
  });
  canvas.addEventListener("mouseleave", () => { hideTip(); drawMemory(); });
} else {
  byId("memory-note").textContent = timed ? "The region held nothing."
      : "Memory over time, times of ops and replays, and who decided need the region to be opened with ScopeOptions::timeline "
        + "(in Python timeline=True).";
  byId("chart").remove();
}
