#include "ac2/internal/report/report_page.h"

namespace ac2::internal {

const char* const kReportModules = R"js(
// --- Modules ------------------------------------------------------------------------------------------------------

const moduleRows = regions.flatMap(r => r.modules.map(group => [
  (regions.length > 1 ? "region " + (r.number + 1) + ": " : "") + (group.pattern || "the model itself"),
  group.modules.toLocaleString("en"), group.ops.toLocaleString("en"), bytes(group.held_bytes), group.replays.toLocaleString("en"),
]));
byId("modules").hidden = moduleRows.length === 0;
byId("modules-body").replaceChildren(...moduleRows.map(([name, ...numbers]) => element("tr", {},
  element("td", {class: "name"}, element("code", {}, name)), ...numbers.map(number => element("td", {class: "number"}, number)))));

const keepingPolicies = regions.map(r => r.keeping_policy).filter(text => text);
byId("keeping-policy").hidden = keepingPolicies.length === 0;
byId("keeping-policy").textContent = keepingPolicies.join("\n\n");
)js";

}  // namespace ac2::internal
