// The graph of a region's ops, drawn by Sugiyama's method in its simplest form (Sugiyama, Tagawa, Toda 1981): a box's layer
// is the length of the longest path to it, a long edge goes through a point in each layer between, and boxes of a layer are
// ordered by the mean of their neighbours.
"use strict";

const MOST_NODES = 150;
const NODE = {width: 216, height: 40, gap: 18, layer: 66, point: 14};
const SVG = "http://www.w3.org/2000/svg";
function svg(name, attributes, ...children) {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}
let graphRegion = regions[0], graphStart = 0;

function layOut(ops) {
  const boxes = boxesOf(ops);
  const layers = [], edges = [];
  const add = box => (layers[box.layer] ??= []).push(box);
  boxes.forEach(add);
  for (const box of boxes) {
    for (const from of box.from) {
      const path = [from];
      for (let layer = from.layer + 1; layer < box.layer; ++layer) {
        const point = {width: NODE.point, layer, up: [], down: []};
        add(point);
        path.push(point);
      }
      path.push(box);
      for (let i = 1; i < path.length; ++i) { path[i - 1].down.push(path[i]); path[i].up.push(path[i - 1]); }
      edges.push({from, to: box, path});
    }
  }
  orderLayers(layers);
  return {boxes, layers, edges};
}

function boxesOf(ops) {
  const boxes = new Map(ops.map(op => [op, {op, width: NODE.width, layer: 0, up: [], down: []}]));
  for (const op of ops) {
    const box = boxes.get(op);
    box.from = [...new Set(op.inputs.map(v => producer(op.region, v)).filter(p => p !== null && p !== op))];
    box.missing = box.from.filter(p => !boxes.has(p)).length;
    box.outside = op.inputs.filter(v => producer(op.region, v) === null).length;
    box.from = box.from.filter(p => boxes.has(p)).map(p => boxes.get(p));
    box.layer = Math.max(-1, ...box.from.map(p => p.layer)) + 1;
  }
  return [...boxes.values()];
}

// Gives each box and point its x, by sweeps down and up the layers.
function orderLayers(layers) {
  const pack = layer => {
    let x = 0;
    for (const box of layer) { box.x = x + box.width / 2; x += box.width + NODE.gap; }
    for (const box of layer) box.x -= (x - NODE.gap) / 2;
  };
  const mean = boxes => boxes.reduce((sum, box) => sum + box.x, 0) / boxes.length;
  layers.forEach(pack);
  for (let round = 0; round < 8; ++round) {
    const side = round % 2 ? "down" : "up";
    const order = round % 2 ? [...layers].reverse() : layers;
    for (const layer of order) {
      for (const box of layer) box.want = box[side].length ? mean(box[side]) : box.x;
      layer.sort((a, b) => a.want - b.want);
      // Each box goes as near to where it wants to be as its neighbours allow: boxes are pushed to the right, and then the
      // layer is shifted back by the mean error.
      let edge = -Infinity;
      for (const box of layer) { box.x = Math.max(box.want, edge + box.width / 2); edge = box.x + box.width / 2 + NODE.gap; }
      const error = mean(layer) - layer.reduce((sum, box) => sum + box.want, 0) / layer.length;
      for (const box of layer) box.x -= error;
    }
  }
}

function describe(op, box) {
  const rows = [element("div", {}, element("strong", {class: "tip-name"}, op.name), " op " + op.index)];
  const row = text => rows.push(element("div", {}, text));
  const {decision, by} = decisionOf(op);
  row(decision + (by ? " by " + by : ""));
  for (const v of op.outputs) {
    const value = op.region.values[v];
    row("result " + value.shape + ", " + bytes(value.bytes) + (value.last_held_bytes ? ", held" : "") + (value.hooks ? ", saved by autograd " + value.hooks + "×" : ""));
  }
  if (op.end !== null && op.begin !== null) row("forward " + time(op.end - op.begin));
  for (const replay of op.region.replays.filter(p => op.region.ops[p.op] === op).slice(0, 3)) {
    row("replayed in " + time(replay.end - replay.begin) + (replay.value >= 0 ? " for " + valueName(op.region, replay.value) : "") + (replay.consumer ? ", asked by " + replay.consumer : ""));
  }
  if (op.evictions) row("dropped for a memory budget " + op.evictions + "×");
  if (box.outside) row(count(box.outside, "input") + " from outside the region");
  if (box.missing) row(count(box.missing, "input") + " from ops not shown");
  return rows;
}

function drawGraph() {
  const ops = graphRegion.ops.filter(op => op.node || op.outputs.length);
  graphStart = Math.max(0, Math.min(graphStart, ops.length - 1));
  const shown = ops.slice(graphStart, graphStart + MOST_NODES);
  byId("earlier").disabled = graphStart === 0;
  byId("later").disabled = graphStart + MOST_NODES >= ops.length;
  byId("earlier").hidden = byId("later").hidden = ops.length <= MOST_NODES;
  byId("graph-note").textContent = ops.length > MOST_NODES
      ? "Truncated: nodes " + (graphStart + 1) + " to " + (graphStart + shown.length) + " of " + ops.length.toLocaleString("en") + ", in the order in which they ran. Views are left out."
      : count(ops.length, "node") + ". Views are left out.";
  if (!shown.length) { byId("graph-view").replaceChildren(element("p", {class: "note", style: "padding:12px"}, "Nothing of this region is left to draw.")); return; }
  byId("graph-view").replaceChildren(drawingOf(shown));
}

const layerTop = box => 14 + box.layer * NODE.layer;

function drawingOf(shown) {
  const {boxes, layers, edges} = layOut(shown);
  const left = Math.min(...boxes.map(b => b.x - b.width / 2)) - 40, right = Math.max(...boxes.map(b => b.x + b.width / 2)) + 40;
  const height = 28 + (layers.length - 1) * NODE.layer + NODE.height;
  const drawing = svg("svg", {width: right - left, height, viewBox: `${left} 0 ${right - left} ${height}`});
  for (const edge of edges) {
    edge.line = lineOf(edge);
    drawing.append(edge.line);
  }
  for (const box of boxes) {
    const node = nodeOf(box);
    node.addEventListener("mousemove", event => {
      for (const edge of edges) edge.line.classList.toggle("lit", edge.from === box || edge.to === box);
      showTip(event.clientX, event.clientY, ...describe(box.op, box));
    });
    node.addEventListener("mouseleave", () => { hideTip(); for (const edge of edges) edge.line.classList.remove("lit"); });
    drawing.append(node);
  }
  return drawing;
}

function lineOf(edge) {
  let last = {x: edge.from.x, y: layerTop(edge.from) + NODE.height};
  let d = `M ${last.x} ${last.y}`;
  for (const point of edge.path.slice(1)) {
    const start = layerTop(point);
    const end = point === edge.to ? start : start + NODE.height;
    const middle = (last.y + start) / 2;
    d += ` C ${last.x} ${middle} ${point.x} ${middle} ${point.x} ${start}`;
    if (end !== start) d += ` L ${point.x} ${end}`;
    last = {x: point.x, y: end};
  }
  return svg("path", {d});
}

function nodeOf(box) {
  const op = box.op, held = op.saved;
  const kind = held && op.replays ? "both" : held ? "saved" : op.replays ? "again" : "plain";
  const name = shortName(op.name);
  return svg("g", {class: "node", transform: `translate(${box.x - NODE.width / 2} ${layerTop(box)})`},
      svg("rect", {class: kind, width: NODE.width, height: NODE.height, rx: 6}),
      svg("rect", {x: 0, y: 6, width: 4, height: NODE.height - 12, style: "stroke:none;fill:" + color(memory.opColor(op))}),
      svg("text", {x: 12, y: 17}, name.length > 27 ? name.slice(0, 26) + "…" : name),
      svg("text", {x: 12, y: 32, class: "small"}, op.index + " · " + bytes(op.bytes) + (op.replays ? " · replayed" + (op.replays > 1 ? " " + op.replays + "×" : "") : "")));
}

for (const region of regions) {
  byId("graph-region").append(element("option", {value: region.number}, (region.number + 1) + " of " + regions.length + ", " + count(region.stats.recorded_ops, "op")));
}
for (const [name, key] of [["saved", "saved"], ["recomputed in backward", "again"], ["neither, so far", "plain"]]) {
  byId("graph-legend").append(element("span", {style: `--key:var(--${key});--key-line:var(--${key === "plain" ? "line" : key + "-line"})`}, name));
}
byId("graph-region").addEventListener("change", event => { graphRegion = regions[event.target.value]; graphStart = 0; drawGraph(); });
byId("earlier").addEventListener("click", () => { graphStart -= MOST_NODES; drawGraph(); });
byId("later").addEventListener("click", () => { graphStart += MOST_NODES; drawGraph(); });
drawGraph();
