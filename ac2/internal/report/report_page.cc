#include "ac2/internal/report/report_page.h"

namespace ac2::internal {

namespace {

const char* const kHead = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ac2 report</title>
<style>
)html";

const char* const kBody = R"html(</style>
</head>
<body>
<main>
<header><h1 id="title"></h1><p id="subtitle"></p></header>
<section id="tiles" aria-label="Summary"></section>
<section id="memory">
<h2>Memory held for backward</h2>
<p class="note" id="memory-note"></p>
<p class="note" id="budget-note"></p>
<div class="legend" id="legend"></div>
<div id="chart"><canvas id="canvas" role="img" aria-label="Bytes held over time, by the op that computed them"></canvas></div>
</section>
<section id="effects" hidden>
<h2>Dropped, offloaded and packed</h2>
<p class="note">What a memory budget dropped or packed, what was copied to another memory, and what policies hold in a form of their own: when, and at what cost. Of what was dropped the cost is computing it again; of the others it is what backward waited for them.</p>
<div class="scroll"><table><thead><tr><th>Op</th><th>Where</th><th></th><th class="number">Values</th><th class="number">Bytes</th><th class="number">First</th><th class="number">Last</th><th class="number">Times</th><th class="number">Cost</th></tr></thead><tbody id="effects-body"></tbody></table></div>
</section>
<section id="ops">
<h2>Ops</h2>
<div class="bar">
<input id="filter" type="search" placeholder="Filter: op, policy …" aria-label="Filter ops">
<label><input type="checkbox" id="each"> one row for each op</label>
<span class="note" id="ops-note"></span>
</div>
<div class="scroll"><table><thead id="table-head"></thead><tbody id="table-body"></tbody></table></div>
</section>
<section id="modules" hidden>
<h2>Modules</h2>
<p class="note">By the modules whose parameters ops take; numbers in paths are one group. An op without parameters counts to the block around the last op that took one. Bytes of results are those held when most was held, or now.</p>
<div class="scroll"><table><thead><tr><th>Modules</th><th class="number">How many</th><th class="number">Ops</th><th class="number">Held</th><th class="number">Replays</th></tr></thead><tbody id="modules-body"></tbody></table></div>
<pre id="keeping-policy" hidden></pre>
</section>
<section id="long" hidden>
<h2>Replays that reach far back</h2>
<p class="note" id="long-note"></p>
<div class="scroll"><table><thead><tr><th>For</th><th class="number">Bytes</th><th class="number">Replayed ops</th><th>From</th></tr></thead><tbody id="long-body"></tbody></table></div>
</section>
<section id="graph">
<h2>Graph</h2>
<div class="bar">
<label>Region <select id="graph-region"></select></label>
<button id="earlier" type="button">Earlier ops</button>
<button id="later" type="button">Later ops</button>
<span class="note" id="graph-note"></span>
</div>
<div class="legend" id="graph-legend"></div>
<div class="scroll graph" id="graph-view"></div>
</section>
</main>
<div id="tip" hidden></div>
<script type="application/json" id="data">)html";

const char* const kScript = R"html(</script>
<script>
"use strict";
)html";

const char* const kEnd = R"html(</script>
</body>
</html>
)html";

}  // namespace

const char* const kReportCommon = R"js(
const data = JSON.parse(document.getElementById("data").textContent);

// Turns the rows of a table into objects.
function unpack(table) {
  return table.rows.map(row => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));
}
const regions = data.regions.map((region, number) => {
  const r = {...region, number};
  for (const name of ["scopes", "ops", "values", "replays", "events", "backwards", "long_replays", "limits", "effects", "modules"]) r[name] = unpack(region[name]);
  for (const op of r.ops) { op.region = r; op.replayNs = 0; op.evictions = 0; }
  for (const event of r.events) if (event.change === "evict" && r.values[event.value].op >= 0) ++r.ops[r.values[event.value].op].evictions;
  for (const replay of r.replays) if (replay.op >= 0) r.ops[replay.op].replayNs += replay.end - replay.begin;
  return r;
});
const timed = regions.some(r => r.timed);
const OUTSIDE = "from outside the region", KEPT = "kept by reference";

const byId = id => document.getElementById(id);
function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}
const count = (n, thing) => n.toLocaleString("en") + " " + thing + (n === 1 ? "" : "s");
function bytes(n) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(n) < 1024 || unit === "GiB") return (unit === "B" ? n : n.toFixed(2)) + " " + unit;
    n /= 1024;
  }
}
function time(ns) {
  if (ns < 1e6) return (ns / 1e3).toFixed(1) + " µs";
  return ns < 1e9 ? (ns / 1e6).toFixed(2) + " ms" : (ns / 1e9).toFixed(2) + " s";
}
const shortName = name => name.replace(/^aten::/, "");
function producer(region, value) { return value < 0 ? null : region.ops[region.values[value].op] ?? null; }
function valueName(region, value) {
  const op = producer(region, value);
  const {shape, name} = region.values[value];
  return (name ? "\"" + name + "\" " : "") + (op ? shortName(op.name) + " (" + (regions.length > 1 ? "region " + (region.number + 1) + ", " : "") + "op " + op.index + ")" : OUTSIDE) + (shape ? " " + shape : "") + (op && op.where ? " " + op.where : "");
}
function decidedBy(op) {
  if (!op.node) return "";
  const values = op.outputs.map(v => op.region.values[v]);
  const other = values.find(value => value.source !== "op");
  if (other) return other.source === "tag" ? "a tag" : "the name of a tensor";
  if (op.decision.endsWith("RECOMPUTE") && values.some(value => value.saved && value.last_held_bytes)) return "none: it cannot be computed again";
  const scope = op.region.scopes[op.scope];
  return scope ? (scope.policy || "a policy without a name") + " · depth " + scope.depth : "";
}
const savedBytes = op => op.outputs.reduce((sum, v) => sum + op.region.values[v].last_held_bytes, 0);
const decision = op => op.node ? op.decision : op.outputs.length ? KEPT : "";
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
)js";

std::string report_page(const std::string& data) {
  std::string page;
  for (const char* part : {kHead, kReportStyle, kBody}) {
    page += part;
  }
  page += data;
  for (const char* part : {kScript, kReportCommon, kReportBudget, kReportMemory, kReportTable, kReportModules,
                           kReportLongReplays, kReportGraph, kEnd}) {
    page += part;
  }
  return page;
}

}  // namespace ac2::internal
