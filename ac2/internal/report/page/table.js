// The table of ops.
"use strict";

const MOST_ROWS = 400;
const COLUMNS = [
  {name: "Op", key: "name"},
  {name: "Calls", key: "calls", number: true},
  {name: "Saved", key: "saved", number: true, text: bytes, share: true, title: "Bytes of results that were held for backward"},
  ...(timed ? [{name: "Forward", key: "forward", number: true, text: time, share: true, time: true}] : []),
  {name: "Replays", key: "replays", number: true},
  ...(timed ? [{name: "Replay time", key: "replay_time", number: true, text: time, share: true, time: true}] : []),
  ...(regions.some(r => r.stats.evicted_values) ? [{name: "Evicted", key: "evictions", number: true, title: "How often a memory budget dropped a result"}] : []),
  {name: "Decision", key: "decision", title: "Kept by reference: from outside, or written by an op that is not recomputed whatever policies say. Empty: a view"},
  ...(timed ? [{name: "Decided by", key: "by", title: "The policy, and how deep in the nesting its scope is; 0 is the outermost"}] : []),
];
let sortKey = "saved", descending = true;

// C++ has the sums of each group; a row of one op has those of the op.
const groupedRows = opGroups.map(group => ({...group, name: shortName(group.name), color: memory.opColor(group)}));
const eachRow = regions.flatMap(r => r.ops.map(op => ({
  ...op, ...decisionOf(op), name: shortName(op.name) + "  #" + (regions.length > 1 ? r.number + 1 + "." : "") + op.index,
  color: memory.opColor(op), calls: 1, forward: op.end === null ? 0 : op.end - op.begin,
}))).concat(groupedRows.filter(row => row.name === OUTSIDE));

function shownRows() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const rows = (byId("each").checked ? eachRow : groupedRows).filter(row => !wanted || [row.name, row.decision, row.by].join(" ").toLowerCase().includes(wanted));
  return rows.sort((a, b) => (typeof a[sortKey] === "number" ? a[sortKey] - b[sortKey] : a[sortKey].localeCompare(b[sortKey])) * (descending ? -1 : 1));
}

function headOf(column) {
  const arrow = column.key === sortKey ? (descending ? " ▾" : " ▴") : "";
  const head = element("th", {class: column.number ? "number" : "", title: column.title ?? "Click to sort"}, column.name + arrow);
  head.addEventListener("click", () => {
    descending = column.key === sortKey ? !descending : !!column.number;
    sortKey = column.key;
    drawTable();
  });
  return head;
}

// `most` has the largest number of each column whose cells show a share.
function cellOf(row, column, most) {
  const value = row[column.key];
  if (column.key === "name") return element("td", {class: "name", title: value, style: "--key:" + color(row.color)}, element("code", {}, value));
  const empty = column.number && value === 0;
  const cell = element("td", {class: (column.number ? "number" : "") + (column.time ? " time" : "")},
                       empty ? "–" : column.text ? column.text(value) : column.number ? value.toLocaleString("en") : value);
  if (column.share && !empty) cell.style.setProperty("--share", (100 * value / most[column.key]).toFixed(1) + "%");
  return cell;
}

function drawTable() {
  const rows = shownRows();
  const most = Object.fromEntries(COLUMNS.filter(c => c.share).map(c => [c.key, rows.reduce((m, row) => Math.max(m, row[c.key]), 1)]));
  byId("table-head").replaceChildren(element("tr", {}, ...COLUMNS.map(headOf)));
  byId("table-body").replaceChildren(...rows.slice(0, MOST_ROWS).map(row => element("tr", {}, ...COLUMNS.map(column => cellOf(row, column, most)))));
  byId("ops-note").textContent = rows.length > MOST_ROWS
      ? "The first " + MOST_ROWS + " of " + count(rows.length, "row") + ": filter to see others." : count(rows.length, "row");
}
byId("filter").addEventListener("input", drawTable);
byId("each").addEventListener("change", drawTable);
drawTable();
