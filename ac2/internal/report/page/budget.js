// The memory budget, and its effects: functions that memory.js calls, and a table.
"use strict";

const NOT_COUNTED = "parameters, inputs, and what else the program or another region has too";

// The budget of the regions, if they have one and share it.
const sharedBound = (() => {
  const bounds = regions.map(r => r.bound);
  return bounds.length && bounds.every(b => b && b.budget === bounds[0].budget) ? bounds[bounds.length - 1] : null;
})();

// For each of the events, which are in order, the bytes that count against the budget after it; and the most that was
// held, with what of it did not count. An op's results count once room was made for them: before the region's next bytes
// come.
function countedAfter(events, sign) {
  const shared = new Map(), next = new Map(), settled = new Array(events.length);
  for (let i = events.length - 1; i >= 0; --i) {
    const following = next.get(events[i].region);
    settled[i] = following === undefined || sign[events[following].change] > 0;
    next.set(events[i].region, i);
  }
  let total = 0, uncounted = 0, last = 0, mostHeld = 0, uncountedThen = 0;
  const counted = events.map((event, i) => {
    total += sign[event.change] * event.bytes;
    uncounted += (event.shared ?? 0) - (shared.get(event.region) ?? 0);
    shared.set(event.region, event.shared ?? 0);
    if (settled[i]) last = total - uncounted;
    if (settled[i] && total > mostHeld) { mostHeld = total; uncountedThen = uncounted; }
    return last;
  });
  return {counted, mostHeld, uncountedThen};
}

// Steps of a line, as [time, bytes]; null where there is none.
function limitSteps() {
  return regions.flatMap(r => r.limits.map(l => [l.time, l.bytes])).sort((a, b) => a[0] - b[0]);
}
const mostOf = numbers => numbers.reduce((most, n) => Math.max(most, n ?? 0), 0);

// The largest number of bytes that the picture shows of the budget. A bound far above all that is held is not shown.
function shownOfBound(peak) {
  if (!sharedBound) return 0;
  const allocated = mostOf(regions.flatMap(r => r.events.map(e => e.allocated)));
  const limit = mostOf(limitSteps().map(step => step[1])), most = Math.max(peak, allocated);
  return Math.max(allocated, limit <= 1.5 * most ? limit : 0);
}

function drawSteps({g, x, y, bottom, scale}, steps, style, dash) {
  g.strokeStyle = style;
  g.lineWidth = 1.5;
  g.setLineDash(dash);
  g.beginPath();
  let last = null;
  for (const [t, b] of steps) {
    const shown = b === null || b > scale ? null : b;
    if (last !== null) g.lineTo(x(t), y(last));
    if (shown !== null) last === null ? g.moveTo(x(t), y(shown)) : g.lineTo(x(t), y(shown));
    last = shown;
  }
  if (last !== null) g.lineTo(x(memory.end), y(last));
  g.stroke();
  g.setLineDash([]);
  g.lineWidth = 1;
}

function drawBound(plot) {
  if (!sharedBound) return;
  drawSteps(plot, limitSteps(), plot.ink, []);
  const line = sharedBound.kind === "peak" ? memory.events.map(e => [e.time, e.allocated])
                                           : memory.events.map((e, i) => [e.time, memory.counted[i]]);
  drawSteps(plot, line, plot.ink, [3, 3]);
}

function boundText() {
  if (sharedBound.kind === "whatever fits") {
    return sharedBound.bytes === null ? "whatever fits" : bytes(sharedBound.bytes) + ", learned where memory ran out";
  }
  return bytes(sharedBound.bytes) + (sharedBound.kind === "strict" ? "" : ", " + sharedBound.kind);
}

function tellBudget() {
  const bounded = regions.filter(r => r.bound);
  if (!bounded.length) return;
  if (!sharedBound) {
    byId("budget-note").textContent = "The regions have different memory budgets, or some have none: their sum is not bounded. Make a page of one region to see it against its budget.";
    return;
  }
  if (!timed) {
    const held = regions.reduce((sum, r) => sum + r.stats.saved_bytes, 0), not = regions.reduce((sum, r) => sum + r.bound.shared_bytes, 0);
    byId("budget-note").textContent = "Memory budget: " + boundText() + ". " + bytes(held - not) + " of what is held count against it; " + bytes(not) + " do not: " + NOT_COUNTED + ".";
    return;
  }
  let text = "Memory budget: " + boundText() + ". ";
  const limit = mostOf(limitSteps().map(step => step[1]));
  const isShown = limit > 0 && limit <= 1.06 * Math.max(memory.peak, memory.shownOfBound);
  if (sharedBound.kind === "peak") {
    const most = mostOf(memory.events.map(e => e.allocated));
    tile("Most allocated at once", bytes(most), "of a memory budget: " + boundText());
    text += "It bounds all tensors of the CPU, and of each accelerator that can be bounded, also what the program holds itself, gradients and the memory of kernels: the dashed line, at most " +
        bytes(most) + " as far as the regions saw it" + (isShown ? "; the line is the bound." : "; the bound is above the picture.");
  } else {
    const most = mostOf(memory.counted);
    tile("Most counted at once", bytes(most), "of a memory budget: " + boundText());
    text += "At most " + bytes(most) + " counted. When most was held, " + bytes(memory.uncountedThen) + " of " + bytes(memory.mostHeld) + " did not count: " + NOT_COUNTED + ". The dashed line is what counts" +
        (limit === 0 ? "." : isShown ? ", the line what may count." : "; what may count is above the picture.");
  }
  byId("budget-note").textContent = text;
}

function listEffects() {
  const groups = new Map();
  for (const effect of regions.flatMap(r => r.effects)) {
    const key = [effect.kind, effect.op, effect.where].join("|"), group = groups.get(key);
    if (!group) { groups.set(key, {...effect}); continue; }
    for (const sum of ["values", "bytes", "packed_bytes", "times", "time"]) group[sum] += effect[sum];
    group.first = Math.min(group.first, effect.first);
    group.last = Math.max(group.last, effect.last);
  }
  byId("effects").hidden = groups.size === 0;
  const number = text => element("td", {class: "number"}, text);
  byId("effects-body").replaceChildren(...[...groups.values()].sort((a, b) => b.bytes - a.bytes).slice(0, 60).map(effect => element("tr", {},
      element("td", {class: "name"}, element("code", {}, effect.op ? shortName(effect.op) : OUTSIDE)), element("td", {}, effect.where), element("td", {}, effect.kind),
      number(effect.values.toLocaleString("en")), number(bytes(effect.bytes) + (effect.kind.startsWith("packed") ? " as " + bytes(effect.packed_bytes) : "")),
      number(time(effect.first)), number(time(effect.last)), number(effect.times.toLocaleString("en")), number(time(effect.time)))));
}
listEffects();
