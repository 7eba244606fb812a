// The history of a region for people to read: a page, some lines of text, a graph, or a trace for Perfetto.
//
//   ac2::PolicyScope scope("recompute_all", {.timeline = true});
//   std::shared_ptr<const ac2::Trace> trace = scope.trace();
//   ... forward, the end of the scope, backward ...
//   std::cout << ac2::explain(*trace);
//   ac2::write_report(*trace, "report.html");
//
// With ScopeOptions::timeline all of these know what happened from the beginning, and are best called after backward.
// Without it they know what the trace holds at that moment, and say what is missing; once the graph is gone the trace
// holds nothing.
//
// Threads: any, at any time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ac2/trace.h"

namespace ac2 {

// At most about 60 lines. The text says what is held, why, for whom, and how much of it counts against a memory budget.
// With a timeline, the text says what a budget dropped, what was offloaded or packed, when and at what cost. The text
// also says what each policy decided and for how many ops, what was recomputed and for whom, and what recomputing the
// largest saved values would save and cost. Names are those of name_tensor(), and in Python those of the modules whose
// parameters ops take.
// One op is named whose result, with what surrounds it, is more than all else that the region held, if it could run a
// few rows at a time; with the number of chunks for in_chunks().
// If nothing is held now, the text is about the moment when most was held. With a timeline costs are times of forward,
// without one they are numbers of ops. Bytes are of whole storages.
std::string explain(const Trace& trace);

// The bytes that the regions of the whole process hold at this moment, by device: how many, and the ten places of the
// program that most of them come from, some of them by the names of name_tensor(). In Python the other places have the
// names of modules. Errors that say that memory ran out, of ops that a region records, of replays, and of backwards in
// a C++ program, have this text about that memory in them. They also say which op asked, with which memory budget there
// would have been room, for how many graphs that backward may still walk values are held, and in Python what the
// program holds by itself.
std::string explain_held();

// An HTML page that refers to nothing outside itself. The page shows the memory held over time, by op, against the
// memory budget, if there is one. The page also shows what was dropped, offloaded and packed, a table of ops, and the
// graph. The page takes about 300 bytes for each op. Throws c10::Error, which names `path`, if the file cannot be
// written.
void write_report(const Trace& trace, const std::string& path);
// The regions of one step, on one time line. A storage that two regions hold counts in both. Throws c10::Error also if
// there are no traces, or if one is null.
void write_report(const std::vector<std::shared_ptr<const Trace>>& traces, const std::string& path);

// A Graphviz digraph of the ops that something still needs, and of what they need themselves. Filled boxes are saved.
// With ScopeOptions::timeline it has all ops that the region recorded, also those whose graph is gone.
std::string to_dot(const Trace& trace);

// JSON that Perfetto and chrome://tracing open. With ScopeOptions::timeline it shows forward, backwards, replays, what
// was dropped, and the bytes held as a counter, in microseconds since the region began. Without it ops have no times,
// so the JSON shows those that something still needs, one microsecond each.
std::string to_chrome_trace(const Trace& trace);

}  // namespace ac2
