#include "ac2/internal/automatic/own_regions.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/allocator/fork_locks.h"
#include "ac2/internal/automatic/closing_words.h"
#include "ac2/internal/automatic/settings.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/region/budget_access.h"
#include "ac2/internal/region/engine.h"
#include "ac2/internal/region/resting.h"
#include "ac2/memory_budget.h"
#include "ac2/policy.h"
#include "ac2/report.h"
#include "ac2/scope.h"
#include "ac2/trace.h"

namespace ac2::internal {

namespace {

using Traces = std::vector<std::shared_ptr<const Trace>>;

void say(const std::string& words) {
  std::fputs(words.c_str(), stderr);
}

std::string text_of(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

std::optional<MemoryBudget> budget_of(const std::optional<BudgetSetting>& setting) {
  if (!setting) {
    return std::nullopt;
  }
  switch (setting->kind) {
    case BudgetSetting::Kind::kStrict:
      return MemoryBudget(setting->bytes);
    case BudgetSetting::Kind::kPeak:
      return MemoryBudget::peak(setting->bytes);
    case BudgetSetting::Kind::kSoft:
      return MemoryBudget::soft(setting->bytes);
    case BudgetSetting::Kind::kWhateverFits:
      break;
  }
  return whatever_fits();
}

// As it was given.
std::string text_of_budget(const AutomaticSettings& settings) {
  const char* const given = settings.budget ? std::getenv("AC2_MEMORY_BUDGET") : "";
  return given == nullptr || (settings.budget && *given == '\0') ? "auto" : given;
}

void add(const TraceStats& stats, ClosingFigures& figures) {
  figures.recorded_ops += stats.recorded_ops;
  figures.dropped_values += stats.evicted_values;
  figures.narrowed_values += stats.narrowed_values;
  figures.recomputed_ops += stats.recomputed_ops;
  figures.peak_bytes = std::max(figures.peak_bytes, stats.peak_bytes);
}

class Process {
 public:
  explicit Process(AutomaticSettings settings)
      : settings_(std::move(settings)), budget_text_(text_of_budget(settings_)), budget_(budget_of(settings_.budget)) {
    ForkLocks::add_last(mutex_);
  }

  // Of all regions of this process. Null before start().
  static Process* get() { return process_.load(std::memory_order_acquire); }
  void publish() { process_.store(this, std::memory_order_release); }

  std::unique_ptr<PolicyScope> open() {
    ScopeOptions options{.verify = settings_.verify, .timeline = !settings_.report.empty()};
    options.memory_budget = budget_;
    auto scope = settings_.policy.empty() ? std::make_unique<PolicyScope>(std::move(options))
                                          : std::make_unique<PolicyScope>(Policy(settings_.policy), std::move(options));
    add(scope->trace());
    return scope;
  }

  void end() {
    ClosingFigures figures;
    const Traces traces = copy(figures);
    if (traces.empty() && figures.recorded_ops == 0 && is_child_) {
      return;
    }
    for (const std::shared_ptr<const Trace>& trace : traces) {
      internal::add(trace->stats(), figures);
    }
    figures.language = ClosingFigures::Language::kCpp;
    figures.policy = settings_.policy;
    figures.budget = budget_text_;
    if (budget_) {
      figures.shortages = shortages() - shortages_of_parent_;
      if (!is_child_) {
        figures.times_over = budget_->times_over();
        figures.most_bytes_over = budget_->most_bytes_over();
      }
    }
    write_page(traces, figures);
    if (!settings_.quiet) {
      say(closing_words(figures));
    }
  }

  // In a child. The parent's regions are not looked at: another thread may have had their locks.
  void forget_parent() {
    new Traces(std::exchange(traces_, {}));
    of_the_past_ = {};
    shortages_of_parent_ = shortages();
    is_child_ = true;
  }

 private:
  // Takes no lock.
  int64_t shortages() const { return budget_ ? BudgetAccess::budget(*budget_)->hurried_drops() : 0; }

  void add(std::shared_ptr<const Trace> trace) {
    if (settings_.report.empty()) {
      forget_finished();
    }
    const std::lock_guard lock(mutex_);
    traces_.push_back(std::move(trace));
  }

  Traces copy(ClosingFigures& of_the_past) {
    const std::lock_guard lock(mutex_);
    of_the_past = of_the_past_;
    return traces_;
  }

  // A program may start a thread for each step. A trace is finished when its thread and its graphs are gone. Statistics
  // take a tape's lock, which a fork() takes before ours: they are asked for without ours.
  void forget_finished() {
    Traces without_thread;
    {
      const std::lock_guard lock(mutex_);
      std::ranges::copy_if(traces_, std::back_inserter(without_thread),
                           [](const std::shared_ptr<const Trace>& trace) { return trace.use_count() == 1; });
    }
    for (const std::shared_ptr<const Trace>& trace : without_thread) {
      const TraceStats stats = trace->stats();
      const std::lock_guard lock(mutex_);
      // Another thread may have forgotten it.
      if (stats.live_nodes == 0 && std::erase(traces_, trace) > 0) {
        internal::add(stats, of_the_past_);
      }
    }
  }

  void write_page(const Traces& traces, ClosingFigures& figures) const {
    if (settings_.report.empty() || is_child_ || traces.empty()) {
      return;
    }
    try {
      write_report(settings_.report, traces);
      figures.report = settings_.report;
    } catch (const std::exception& error) {
      say("ac2: " + text_of(error) + "\n");
    }
  }

  static inline std::atomic<Process*> process_{nullptr};

  const AutomaticSettings settings_;
  const std::string budget_text_;
  const std::optional<MemoryBudget> budget_;
  std::mutex mutex_;
  Traces traces_;
  ClosingFigures of_the_past_;  // of traces that are over
  int64_t shortages_of_parent_ = 0;
  bool is_child_ = false;
};

// Of a thread. The flags have no destructor, so that they can be read at any time.
enum class OwnStage : uint8_t { kNone, kOpening, kOpen, kEnded };
constinit thread_local OwnStage own_stage = OwnStage::kNone;

struct OwnRegion {
  std::unique_ptr<PolicyScope> scope;

  OwnRegion() = default;
  OwnRegion(const OwnRegion&) = delete;
  OwnRegion& operator=(const OwnRegion&) = delete;
  ~OwnRegion() {
    own_stage = OwnStage::kEnded;
    try {
      scope.reset();
    } catch (const std::exception&) {
      // A scope of the program's is still open on this thread. A warning has said so.
    }
  }
};
thread_local OwnRegion own_region;

void open_own_region() {
  if (own_stage != OwnStage::kNone) {
    return;
  }
  own_stage = OwnStage::kOpening;
  try {
    own_region.scope = Process::get()->open();
    let_region_rest();
    own_stage = OwnStage::kOpen;
  } catch (const std::exception& error) {
    open_regions_by(nullptr);
    own_stage = OwnStage::kNone;
    say("ac2: no region could be opened, and the program runs as it is: " + text_of(error) + "\n");
  }
}

}  // namespace

void start_own_regions() noexcept {
  if (Process::get() != nullptr) {
    return;
  }
  try {
    const AutomaticSettings settings = settings_of([](const char* name) { return std::getenv(name); });
    if (!settings.policy.empty()) {
      const Policy checked(settings.policy);
    }
    // Leaked: regions may be opened until the process is gone.
    (new Process(settings))->publish();
    pthread_atfork(nullptr, nullptr, [] { Process::get()->forget_parent(); });
    std::atexit([] { Process::get()->end(); });
    install_engine();
    open_regions_by(&open_own_region);
  } catch (const std::exception& error) {
    say("ac2: the program runs as it is: " + text_of(error) + "\n");
  }
}

}  // namespace ac2::internal
