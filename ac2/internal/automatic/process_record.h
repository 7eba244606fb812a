// The record of what the regions of a process did, for a program that runs as a whole in regions; and its last words.
//
//   ProcessRecord record(settings_of(std::getenv));
//   record.add(scope.trace());                 // of each region, when it is opened with record.budget()
//   record.before_backward(*scope.trace());    // now and then: looks once what most is held of
//   record.note_error(text, is_about_memory, where);   // an error ends the program
//   std::cerr << record.end();                 // and writes the page
//
// The record forgets the traces of regions that are over, whose graphs are gone, and keeps their sums: a program may
// start a thread for each step. A trace counts as over when nobody but the record refers to it. For a page all are
// kept.
//
// After a fork the child has a record of its own: what was before is its parent's to tell.
//
// Threads: any. The locks are those of a fork (ForkLocks). Statistics take a tape's lock, which a fork() takes before
// the record's, so they are asked for without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ac2/internal/automatic/closing_words.h"
#include "ac2/internal/automatic/settings.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/memory_budget.h"
#include "ac2/trace.h"

namespace ac2::internal {

class ProcessRecord {
 public:
  using Language = ClosingFigures::Language;
  using Traces = std::vector<std::shared_ptr<const Trace>>;

  ProcessRecord(AutomaticSettings settings, Language language);
  ProcessRecord(const ProcessRecord&) = delete;
  ProcessRecord& operator=(const ProcessRecord&) = delete;

  const AutomaticSettings& settings() const { return settings_; }
  // Of all regions of the process. Nothing where a policy alone decides.
  const std::optional<MemoryBudget>& budget() const { return budget_; }

  void add(std::shared_ptr<const Trace> trace);
  // In the child of a fork. `own` is the trace of the thread's region, which goes on; null: it is in none.
  void forked(std::shared_ptr<const Trace> own);
  // This process was started by another one of the program.
  void note_child();

  // Looks up once what most is held of: before the first backward after something was dropped, which is where most is
  // held. True if that was now. `here` is the trace of the thread's region.
  bool before_backward(const Trace& here);
  // Modules with which a region for each makes sense: "model.layers.*".
  void note_repeated(std::string modules);
  // An error with this text ends the program. `where` is the program's own line that it came by; empty: not known.
  // Looks up what is held if the error says that memory has run out, or that the budget cannot be met.
  void note_error(std::string_view text, bool is_about_memory, std::string_view where);

  ClosingFigures figures();
  // Writes the page, if one is wanted. Returns the last words, and nothing if there are none: where they are not
  // wanted, or of a process that is not the first one and had nothing to do.
  std::string end();

 private:
  // Those figures of a trace that only grow. Bytes held at most are not among them.
  struct Counts {
    int64_t recorded_ops = 0;
    int64_t dropped_values = 0;
    int64_t dropped_bytes = 0;
    int64_t packed_values = 0;
    int64_t recomputed_ops = 0;
    int64_t recomputed_bytes = 0;
    int64_t replay_nanoseconds = 0;
  };
  struct OfBudget {
    int64_t shortages = 0;
    int64_t times_over = 0;
    int64_t most_bytes_over = 0;
    int64_t dropping_nanoseconds = 0;
  };

  static Counts counts_of(const Trace& trace);
  static void add(const Counts& counts, int64_t sign, ClosingFigures& figures);
  static void add(const Trace& trace, ClosingFigures& figures);
  OfBudget of_budget() const;
  void forget_finished();
  std::string who() const;
  // Empty, or an error's text.
  std::string write_page(const Traces& traces, ClosingFigures& figures) const;

  const AutomaticSettings settings_;
  const Language language_;
  const std::optional<MemoryBudget> budget_;
  mutable Mutex mutex_;
  Traces traces_ ABSL_GUARDED_BY(mutex_);
  ClosingFigures of_the_past_ ABSL_GUARDED_BY(mutex_);  // of traces that were forgotten
  // Counted by a parent, of the region in which the fork happened and of the budget. Written where no other thread is.
  Counts own_before_;
  OfBudget budget_before_;
  int64_t begun_ = 0;  // by the steady clock: nothing before counts
  bool is_child_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_looked_ ABSL_GUARDED_BY(mutex_) = false;
  ClosingFigures told_ ABSL_GUARDED_BY(mutex_);  // what is no sum: held, reasons, how the program ended
};

}  // namespace ac2::internal
