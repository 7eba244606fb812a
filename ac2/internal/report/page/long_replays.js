// The table of replays that reach far back.
"use strict";

const MOST_LONG_REPLAYS = 20;
const longReplays = regions.flatMap(r => r.long_replays.map(replay => ({...replay, region: r}))).sort((a, b) => b.ops - a.ops);
byId("long").hidden = longReplays.length === 0;
byId("long-note").textContent = "Ops that one value needs before backward can use it. " +
    (longReplays.length > MOST_LONG_REPLAYS ? "The longest " + MOST_LONG_REPLAYS + " of " + count(longReplays.length, "value") + "." : "");
byId("long-body").replaceChildren(...longReplays.slice(0, MOST_LONG_REPLAYS).map(replay => {
  const first = replay.region.ops[replay.first];
  return element("tr", {}, element("td", {class: "name"}, element("code", {}, valueName(replay.region, replay.value))),
                 element("td", {class: "number"}, bytes(replay.region.values[replay.value].bytes)),
                 element("td", {class: "number"}, replay.ops.toLocaleString("en")),
                 element("td", {}, element("code", {}, shortName(first.name) + " (op " + first.index + ")")));
}));
