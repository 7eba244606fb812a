// The table of modules, and the policy that keeps what a budget kept.
"use strict";

const moduleRows = regions.flatMap(r => r.modules.map(group => [
  (regions.length > 1 ? "region " + (r.number + 1) + ": " : "") + group.pattern,
  group.modules.toLocaleString("en"), group.ops.toLocaleString("en"), bytes(group.held_bytes), group.replays.toLocaleString("en"),
]));
byId("modules").hidden = moduleRows.length === 0;
byId("modules-body").replaceChildren(...moduleRows.map(([name, ...numbers]) => element("tr", {},
  element("td", {class: "name"}, element("code", {}, name)), ...numbers.map(number => element("td", {class: "number"}, number)))));

const keepingPolicies = regions.map(r => r.keeping_policy).filter(text => text);
byId("keeping-policy").hidden = keepingPolicies.length === 0;
byId("keeping-policy").textContent = keepingPolicies.join("\n\n");
