// The memory budget, and its effects: functions that memory.js calls, and a table.
"use strict";

// Steps of a line, as [time, bytes]; null where there is none.
function limitSteps() {
  return regions.flatMap(r => r.limits.map(l => [l.time, l.bytes])).sort((a, b) => a[0] - b[0]);
}
const mostOf = numbers => numbers.reduce((most, n) => Math.max(most, n ?? 0), 0);

// The largest number of bytes that the picture shows of the budget. A bound far above all that is held is not shown.
function shownOfBound() {
  if (!data.bound) return 0;
  const limit = mostOf(limitSteps().map(step => step[1])), most = Math.max(data.most, data.most_allocated);
  return Math.max(data.most_allocated, limit <= 1.5 * most ? limit : 0);
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
  if (!data.bound) return;
  drawSteps(plot, limitSteps(), plot.ink, []);
  drawSteps(plot, memory.events.map(e => [e.time, data.bound === "peak" ? e.allocated : e.counted]), plot.ink, [3, 3]);
}

// The lines of the picture: what they are, and whether the limit is in it.
function tellLines() {
  if (!data.bound || !timed) return "";
  const limit = mostOf(limitSteps().map(step => step[1]));
  const isShown = limit > 0 && limit <= 1.06 * Math.max(data.most, memory.shownOfBound);
  const isPeak = data.bound === "peak", bound = isPeak ? "the bound" : "what may count";
  return " The dashed line is what " + (isPeak ? "is allocated" : "counts") +
      (limit === 0 ? "." : isShown ? ", the line " + bound + "." : "; " + bound + " is above the picture.") +
      (isPeak ? "" : " What an op makes counts once room was made for it.");
}
function tellBudget() {
  byId("budget-note").textContent = data.budget + tellLines();
}

function listEffects() {
  const effects = unpack(data.effects);
  byId("effects").hidden = effects.length === 0;
  const number = text => element("td", {class: "number"}, text);
  byId("effects-body").replaceChildren(...effects.slice(0, 60).map(effect => element("tr", {},
      element("td", {class: "name"}, element("code", {}, shortName(effect.op))), element("td", {}, effect.where), element("td", {}, effect.kind),
      number(effect.values.toLocaleString("en")), number(bytes(effect.bytes) + (effect.kind.startsWith("packed") ? " as " + bytes(effect.packed_bytes) : "")),
      number(time(effect.first)), number(time(effect.last)), number(effect.times.toLocaleString("en")), number(time(effect.time)))));
}
listEffects();
