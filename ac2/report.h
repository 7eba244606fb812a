// What a region did, for people to read: a page, some lines of text, a graph, or a trace for Perfetto.
//
//   ac2::PolicyScope scope("recompute_all", {.timeline = true});
//   std::shared_ptr<const ac2::Trace> trace = scope.trace();
//   ... forward, the end of the scope, backward ...
//   std::cout << ac2::explain(*trace);
//   ac2::write_report("report.html", *trace);
//
// With ScopeOptions::timeline both tell the whole story, and are best called after backward. Without it they know what
// the trace knows at that moment, which is nothing once the graph is gone, and say what is missing.
//
// Threads: any, at any time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ac2/trace.h"

namespace ac2 {

// At most about 40 lines: what is held, why and for whom (or was when most was held, if nothing is now); what was
// recomputed and for whom; and, for the largest saved values, what recomputing them would save and cost.
// Costs are times of forward with a timeline, else numbers of ops. Bytes are of whole storages.
std::string explain(const Trace& trace);

// One HTML page without references to anything outside it: memory held over time and by what, a table of ops, the
// graph. About 250 bytes an op. Throws c10::Error that names `path` if it cannot be written.
void write_report(const std::string& path, const Trace& trace);
// The regions of one step, on one time line. A storage that two regions hold counts in both. Throws c10::Error as well
// if there are none, or one is null.
void write_report(const std::string& path, const std::vector<std::shared_ptr<const Trace>>& traces);

// The ops still reachable and what they need, as a Graphviz digraph. Filled boxes are saved. With
// ScopeOptions::timeline all ops that the region recorded, those whose graph is gone included, filled if they were
// saved.
std::string to_dot(const Trace& trace);

// JSON that Perfetto and chrome://tracing open. With ScopeOptions::timeline: forward, backwards, replays, releases, and
// the bytes held as a counter, in microseconds since the region began. Without it the ops still reachable, in logical
// time, one microsecond an op: ops have no times then.
std::string to_chrome_trace(const Trace& trace);

}  // namespace ac2
