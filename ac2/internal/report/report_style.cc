#include "ac2/internal/report/report_page.h"

namespace ac2::internal {

// The eight colours are Okabe and Ito's for colour-blind readers, lightened for dark pages, and a grey.
const char* const kReportStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b1f24; --soft: #5c6570; --line: #dfe3e8; --hover: #f0f3f6;
  --saved: #d7e8f7; --saved-line: #2f7fbf; --again: #fde6d0; --again-line: #c96a12; --plain: #eef0f2;
  --c0: #0072b2; --c1: #e69f00; --c2: #009e73; --c3: #cc79a7; --c4: #56b4e9; --c5: #d55e00; --c6: #b8a800; --c7: #98a1ab;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1d2126; --ink: #e6e9ed; --soft: #98a2ad; --line: #333a42; --hover: #262c33;
    --saved: #163a56; --saved-line: #5aaee8; --again: #4d3013; --again-line: #f0a050; --plain: #2a3037;
    --c0: #3d9fdc; --c1: #f0b429; --c2: #25c296; --c3: #dd94bb; --c4: #8accf2; --c5: #f07c36; --c6: #d9cb3c; --c7: #7d8792;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 14px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 22px; margin: 0; }
h2 { font-size: 16px; margin: 0 0 4px; }
header p { margin: 2px 0 16px; color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; margin: 0 0 16px; }
.note { color: var(--soft); font-size: 12.5px; }
p.note { margin: 0 0 8px; }
#tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 1px; padding: 0; overflow: hidden; background: var(--line); }
.tile { background: var(--card); padding: 12px 16px; display: flex; flex-direction: column; }
.tile strong { font-size: 20px; font-variant-numeric: tabular-nums; }
.tile .label { color: var(--soft); font-size: 12.5px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 4px 0 8px; font-size: 12.5px; }
.legend span::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; background: var(--key); border: 1px solid var(--key-line, transparent); }
#canvas { display: block; width: 100%; height: 400px; }
.bar { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 14px; margin: 6px 0 10px; }
input[type=search], select, button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 4px 9px; }
input[type=search] { width: 230px; }
button { cursor: pointer; }
button:hover:enabled { background: var(--hover); }
button:disabled { opacity: .45; cursor: default; }
.scroll { overflow: auto; max-height: 560px; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { position: sticky; top: 0; background: var(--card); text-align: left; cursor: pointer; white-space: nowrap; box-shadow: inset 0 -1px var(--line); user-select: none; }
th, td { padding: 5px 9px; }
td { border-top: 1px solid var(--line); white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { background: linear-gradient(to left, var(--saved) var(--share, 0%), transparent 0); background-size: 100% 100%; }
td.number.time { background: linear-gradient(to left, var(--again) var(--share, 0%), transparent 0); }
tbody tr:hover { background: var(--hover); }
td code, .tip-name, svg text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
td.name { max-width: 250px; overflow: hidden; text-overflow: ellipsis; }
td.name::before { content: ""; display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 7px; background: var(--key, transparent); }
.graph { max-height: 720px; }
svg { display: block; margin: 0 auto; }
svg rect.saved { fill: var(--saved); stroke: var(--saved-line); }
svg rect.again { fill: var(--again); stroke: var(--again-line); }
svg rect.plain { fill: var(--plain); stroke: var(--line); }
svg rect.both { fill: var(--saved); stroke: var(--again-line); stroke-width: 2; }
svg text { font-size: 11.5px; fill: var(--ink); }
svg text.small { font-size: 10.5px; fill: var(--soft); }
svg path { fill: none; stroke: var(--soft); stroke-width: 1; opacity: .55; }
svg path.lit { stroke: var(--ink); stroke-width: 2; opacity: 1; }
svg g.node { cursor: default; }
#tip { position: fixed; z-index: 9; max-width: 460px; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 11px; font-size: 12.5px; box-shadow: 0 6px 24px rgb(0 0 0 / .22); pointer-events: none; }
#tip div { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
#tip .value { display: inline-block; min-width: 78px; font-variant-numeric: tabular-nums; }
)css";

}  // namespace ac2::internal
