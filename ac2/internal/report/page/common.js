// The data, and the functions that all sections use. Scripts of one page share their names.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

// Turns the rows of a table into objects.
function unpack(table) {
  return table.rows.map(row => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));
}
const regions = data.regions.map((region, number) => {
  const r = {...region, number};
  for (const name of ["scopes", "ops", "values", "replays", "events", "backwards", "long_replays", "limits", "modules"]) r[name] = unpack(region[name]);
  for (const op of r.ops) op.region = r;
  return r;
});
const timed = regions.some(r => r.timed);
const opGroups = unpack(data.op_groups);
const OUTSIDE = data.outside;

const byId = id => document.getElementById(id);
function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}
const count = (n, thing) => n.toLocaleString("en") + " " + thing + (n === 1 ? "" : "s");
// As bytes_text() and time_text() of C++ write them.
function bytes(n) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(n) < 1024 || unit === "GiB") return (unit === "B" ? n : n.toFixed(2)) + " " + unit;
    n /= 1024;
  }
}
function time(ns) {
  if (ns < 1e6) return (ns / 1e3).toFixed(1) + " us";
  return ns < 1e10 ? (ns / 1e6).toFixed(2) + " ms" : (ns / 1e9).toFixed(2) + " s";
}
// The empty name is that of what has no op.
const shortName = name => name.replace(/^aten::/, "") || OUTSIDE;
function producer(region, value) { return value < 0 ? null : region.ops[region.values[value].op] ?? null; }
function valueName(region, value) {
  const op = producer(region, value);
  const {shape, name} = region.values[value];
  return (name ? "\"" + name + "\" " : "") + (op ? shortName(op.name) + " (" + (regions.length > 1 ? "region " + (region.number + 1) + ", " : "") + "op " + op.index + ")" : OUTSIDE) + (shape ? " " + shape : "") + (op && op.where ? " " + op.where : "");
}
// The decision for an op, and whose it is.
const decisionOf = op => ({decision: opGroups[op.group].decision, by: opGroups[op.group].by});
const color = i => "var(--c" + i + ")";
const cssColor = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The name under which a value's bytes are counted: that of its op, or where it comes from.
const groupOf = (region, value) => {
  const op = producer(region, value);
  return op ? shortName(op.name) : OUTSIDE;
};

const tip = byId("tip");
function showTip(x, y, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16) + "px";
  tip.style.top = Math.max(8, Math.min(y + 12, innerHeight - box.height - 8)) + "px";
}
const hideTip = () => { tip.hidden = true; };

function tile(label, value, detail = "") {
  byId("tiles").append(element("div", {class: "tile"}, element("span", {class: "label"}, label),
                               element("strong", {}, value), element("span", {class: "note"}, detail)));
}
