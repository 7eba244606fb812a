#include "ac2/internal/automatic/process_record.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ac2/internal/automatic/held_places.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/budget/spent_time.h"
#include "ac2/internal/libtorch/error_text.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/region/budget_access.h"
#include "ac2/internal/region/trace_access.h"
#include "ac2/internal/report/shortage_note.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/report.h"

namespace ac2::internal {

namespace {

std::optional<MemoryBudget> budget_of(const AutomaticSettings& settings) {
  if (!settings.budget) {
    return std::nullopt;
  }
  switch (settings.budget->kind) {
    case BudgetSetting::Kind::kStrict:
      return MemoryBudget(settings.budget->bytes, settings.modelled_costs);
    case BudgetSetting::Kind::kPeak:
      return MemoryBudget::peak(settings.budget->bytes, settings.modelled_costs);
    case BudgetSetting::Kind::kSoft:
      return MemoryBudget::soft(settings.budget->bytes, settings.modelled_costs);
    case BudgetSetting::Kind::kWhateverFits:
      break;
  }
  return whatever_fits(settings.modelled_costs);
}

// "page.html" of process 12: "page.process12.html"
std::string beside(const std::string& path, const std::string& who) {
  std::string name = who;
  std::erase(name, ' ');
  const size_t folder = path.rfind('/') + 1;  // npos + 1 is 0
  const size_t dot = path.rfind('.');
  const size_t end = dot == std::string::npos || dot <= folder ? path.size() : dot;
  return absl::StrCat(path.substr(0, end), ".", name, path.substr(end));
}

}  // namespace

ProcessRecord::ProcessRecord(AutomaticSettings settings, Language language)
    : settings_(std::move(settings)), language_(language), budget_(budget_of(settings_)) {
  ForkLocks::add_last(mutex_);
}

ProcessRecord::Counts ProcessRecord::counts_of(const Trace& trace) {
  const TraceStats stats = trace.stats();
  return {.recorded_ops = stats.recorded_ops,
          .dropped_values = stats.evicted_values,
          .dropped_bytes = stats.evicted_bytes,
          .packed_values = stats.packed_values,
          .recomputed_ops = stats.recomputed_ops,
          .recomputed_bytes = stats.replayed_bytes,
          .replay_nanoseconds = TraceAccess::tape(trace).replay_time().nanoseconds()};
}

void ProcessRecord::add(const Counts& counts, int64_t sign, ClosingFigures& figures) {
  figures.recorded_ops += sign * counts.recorded_ops;
  figures.dropped_values += sign * counts.dropped_values;
  figures.dropped_bytes += sign * counts.dropped_bytes;
  figures.packed_values += sign * counts.packed_values;
  figures.recomputed_ops += sign * counts.recomputed_ops;
  figures.recomputed_bytes += sign * counts.recomputed_bytes;
  figures.spent_nanoseconds += sign * counts.replay_nanoseconds;
}

void ProcessRecord::add(const Trace& trace, ClosingFigures& figures) {
  add(counts_of(trace), 1, figures);
  const SpentTime& replays = TraceAccess::tape(trace).replay_time();
  figures.peak_bytes = std::max(figures.peak_bytes, trace.stats().peak_bytes);
  figures.spent_since = std::min(figures.spent_since, replays.first());
  figures.threads += replays.first() != SpentTime::kNever ? 1 : 0;
  figures.has_queued |= replays.has_queued();
}

ProcessRecord::OfBudget ProcessRecord::of_budget() const {
  if (!budget_) {
    return {};
  }
  const Budget& budget = *BudgetAccess::budget(*budget_);
  return {.shortages = budget.hurried_drops(),
          .times_over = budget.times_over(),
          .most_bytes_over = budget.most_bytes_over(),
          .dropping_nanoseconds = budget.dropping_time().nanoseconds()};
}

void ProcessRecord::add(std::shared_ptr<const Trace> trace) {
  if (settings_.report.empty()) {
    forget_finished();
  }
  const MutexLock lock(mutex_);
  traces_.push_back(std::move(trace));
}

void ProcessRecord::forget_finished() {
  Traces over;
  {
    const MutexLock lock(mutex_);
    std::ranges::copy_if(traces_, std::back_inserter(over),
                         [](const std::shared_ptr<const Trace>& trace) { return trace.use_count() == 1; });
  }
  for (const std::shared_ptr<const Trace>& trace : over) {
    if (trace->stats().live_nodes > 0) {
      continue;
    }
    ClosingFigures of_trace;
    add(*trace, of_trace);
    const MutexLock lock(mutex_);
    // Another thread may have forgotten it.
    if (std::erase(traces_, trace) > 0) {
      of_the_past_.add(of_trace);
    }
  }
}

// Without the lock: no other thread is there.
void ProcessRecord::forked(std::shared_ptr<const Trace> own) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  // Tapes of the parent's are left alone: another thread may have had their locks.
  new Traces(std::exchange(traces_, {}));
  of_the_past_ = {};
  told_ = {};
  own_before_ = {};
  has_looked_ = false;
  budget_before_ = of_budget();
  begun_ = SpentTime::now();
  if (own != nullptr) {
    own_before_ = counts_of(*own);
    traces_.push_back(std::move(own));
  }
  is_child_ = true;
}

void ProcessRecord::note_child() {
  const MutexLock lock(mutex_);
  is_child_ = true;
}

bool ProcessRecord::before_backward(const Trace& here) {
  {
    const MutexLock lock(mutex_);
    if (has_looked_) {
      return false;
    }
  }
  const bool has_dropped = of_budget().shortages > budget_before_.shortages || here.stats().evicted_values > 0;
  if (!has_dropped) {
    return false;
  }
  {
    // First: a signal handler may train while names are looked up.
    const MutexLock lock(mutex_);
    if (std::exchange(has_looked_, true)) {
      return false;
    }
  }
  std::vector<ClosingFigures::Place> places = places_that_hold_most();
  const MutexLock lock(mutex_);
  told_.held = std::move(places);
  return true;
}

void ProcessRecord::note_repeated(std::string modules) {
  const MutexLock lock(mutex_);
  told_.repeated = std::move(modules);
}

void ProcessRecord::note_error(std::string_view text, bool is_about_memory, std::string_view where) {
  using End = ClosingFigures::End;
  const bool is_refused = text.find("The memory budget of ") != std::string_view::npos &&
                          text.find("cannot be met") != std::string_view::npos;
  if (!is_about_memory && !is_refused) {
    return;
  }
  ClosingFigures told;
  told.end = is_about_memory ? End::kMemoryRanOut : End::kBudgetRefused;
  told.held = places_that_hold_most();
  told.reasons = reasons_for_shortage(text, where);
  const MutexLock lock(mutex_);
  told.repeated = std::move(told_.repeated);
  told_ = std::move(told);
}

std::string ProcessRecord::who() const {
  const MutexLock lock(mutex_);
  return settings_.rank > 0 ? absl::StrCat("rank ", settings_.rank)
         : is_child_        ? absl::StrCat("process ", getpid())
                            : "";
}

ClosingFigures ProcessRecord::figures() {
  Traces traces;
  ClosingFigures figures;
  {
    const MutexLock lock(mutex_);
    traces = traces_;
    figures = told_;
    figures.add(of_the_past_);
  }
  for (const std::shared_ptr<const Trace>& trace : traces) {
    add(*trace, figures);
  }
  add(own_before_, -1, figures);
  figures.who = who();
  figures.language = language_;
  figures.policy = settings_.policy;
  figures.budget = settings_.budget_text;
  if (budget_) {
    const OfBudget now = of_budget();
    figures.shortages = now.shortages - budget_before_.shortages;
    figures.times_over = now.times_over - budget_before_.times_over;
    // A child's own is known if it is more than its parent's was.
    const bool is_own = figures.times_over > 0 && now.most_bytes_over > budget_before_.most_bytes_over;
    figures.most_bytes_over = is_own ? now.most_bytes_over : 0;
    figures.spent_nanoseconds += now.dropping_nanoseconds - budget_before_.dropping_nanoseconds;
    figures.spent_since = std::min(figures.spent_since, BudgetAccess::budget(*budget_)->dropping_time().first());
  }
  if (figures.spent_since != SpentTime::kNever) {
    figures.spent_of_nanoseconds = SpentTime::now() - std::max(figures.spent_since, begun_);
  }
  return figures;
}

std::string ProcessRecord::end() {
  ClosingFigures figures = this->figures();
  if (!figures.who.empty() && !was_needed(figures)) {
    return "";
  }
  Traces traces;
  {
    const MutexLock lock(mutex_);
    traces = traces_;
  }
  const std::string error = write_page(traces, figures);
  return settings_.quiet ? error : error + closing_words(figures);
}

std::string ProcessRecord::write_page(const Traces& traces, ClosingFigures& figures) const {
  if (settings_.report.empty() || traces.empty()) {
    return "";
  }
  const std::string path = figures.who.empty() ? settings_.report : beside(settings_.report, figures.who);
  try {
    write_report(traces, path);
    figures.report = path;
  } catch (const std::exception& error) {
    return absl::StrCat("ac2: ", error_text(error), "\n");
  }
  return "";
}

}  // namespace ac2::internal
