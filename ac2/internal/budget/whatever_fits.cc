#include "ac2/internal/budget/whatever_fits.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ac2/internal/allocator/accelerator_front.h"
#include "ac2/internal/allocator/counted_memory.h"
#include "ac2/internal/allocator/cuda_callback.h"
#include "ac2/internal/allocator/kept_blocks.h"
#include "ac2/internal/allocator/kept_limit.h"
#include "ac2/internal/allocator/retrying_allocator.h"
#include "ac2/internal/allocator/shortage.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

// Those that live to the end of the process.
class LastingBudgets {
 public:
  static LastingBudgets& get() {
    // Leaked: graphs may outlive static destruction.
    static auto* lasting = [] {
      auto* made = new LastingBudgets;
      ForkLocks::add_last(made->mutex_);
      return made;
    }();
    return *lasting;
  }

  const std::shared_ptr<Budget>& of(CostSource costs) const {
    return costs == CostSource::kMeasured ? timed_ : modelled_;
  }
  std::shared_ptr<Budget> of(const std::shared_ptr<RankGroup>& ranks) {
    const MutexLock lock(mutex_);
    for (const std::shared_ptr<Budget>& budget : of_ranks_) {
      if (budget->ranks() == ranks.get()) {
        return budget;
      }
    }
    of_ranks_.push_back(Budget::without_number(CostSource::kModelled, ranks));
    return of_ranks_.back();
  }
  std::vector<std::shared_ptr<Budget>> all() {
    const MutexLock lock(mutex_);
    std::vector<std::shared_ptr<Budget>> all = {timed_, modelled_};
    all.insert(all.end(), of_ranks_.begin(), of_ranks_.end());
    return all;
  }

 private:
  const std::shared_ptr<Budget> timed_ = Budget::without_number(CostSource::kMeasured);
  const std::shared_ptr<Budget> modelled_ = Budget::without_number(CostSource::kModelled);
  Mutex mutex_;
  std::vector<std::shared_ptr<Budget>> of_ranks_ ABSL_GUARDED_BY(mutex_);
};

// Those for a peak. A budget lives as long as the program or a tape has it.
class PeakBudgets {
 public:
  static PeakBudgets& get() {
    static auto* peaks = [] {
      auto* made = new PeakBudgets;
      ForkLocks::add_last(made->mutex_);
      return made;
    }();
    return *peaks;
  }

  void add(const std::shared_ptr<Budget>& budget) {
    const MutexLock lock(mutex_);
    budgets_.push_back(budget);
  }
  std::vector<std::shared_ptr<Budget>> living() {
    const MutexLock lock(mutex_);
    std::vector<std::shared_ptr<Budget>> living;
    std::erase_if(budgets_, [&](const std::weak_ptr<Budget>& weak) {
      std::shared_ptr<Budget> budget = weak.lock();
      if (budget == nullptr) {
        return true;
      }
      living.push_back(std::move(budget));
      return false;
    });
    return living;
  }

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<Budget>> budgets_ ABSL_GUARDED_BY(mutex_);
};

int64_t drop_of(const std::vector<std::shared_ptr<Budget>>& budgets, c10::Device device, int64_t bytes,
                Budget::Need need = Budget::Need::kMust) {
  int64_t freed = 0;
  for (const std::shared_ptr<Budget>& budget : budgets) {
    if (freed < bytes) {
      freed += budget->relieve(device, bytes - freed, need);
    }
  }
  return freed;
}

// So that no more is allocated than a peak.
int64_t keep_peaks(c10::Device device, int64_t bytes) {
  return drop_of(PeakBudgets::get().living(), device, bytes, Budget::Need::kMayExceed);
}

int64_t drop_values(c10::Device device, int64_t bytes) {
  const int64_t freed = drop_of(LastingBudgets::get().all(), device, bytes);
  return freed < bytes ? freed + drop_of(PeakBudgets::get().living(), device, bytes - freed) : freed;
}

int64_t smallest_peak() {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const std::shared_ptr<Budget>& budget : PeakBudgets::get().living()) {
    smallest = std::min(smallest, budget->peak()->bytes());
  }
  return smallest;
}

void exceeded(c10::Device device, int64_t bytes) {
  const int64_t allocated = smallest_peak() + bytes;
  for (const std::shared_ptr<Budget>& budget : PeakBudgets::get().living()) {
    if (const int64_t over = allocated - budget->peak()->bytes(); over > 0) {
      budget->exceeded(device, over);
    }
  }
}

// Those for a peak come last.
std::vector<std::shared_ptr<Budget>> all_budgets() {
  std::vector<std::shared_ptr<Budget>> all = LastingBudgets::get().all();
  std::ranges::move(PeakBudgets::get().living(), std::back_inserter(all));
  return all;
}

HeldValues values_of_budgets() {
  HeldValues held;
  for (const std::shared_ptr<Budget>& budget : all_budgets()) {
    const HeldValues more = budget->values_in_time();
    held.bytes += more.bytes;
    held.backwards = std::max(held.backwards, more.backwards);
  }
  return held;
}

std::string what_is_held(c10::Device) {
  int64_t bytes = 0;
  bool has_peak = false;
  for (const std::shared_ptr<Budget>& budget : all_budgets()) {
    bytes += budget->most_held_bytes();
    has_peak |= budget->peak() != nullptr;
  }
  return absl::StrCat("ac2's regions under whatever_fits()", has_peak ? " or MemoryBudget::peak()" : "",
                      " have dropped all that they could. They hold ", bytes,
                      " bytes: what policies say MUST be saved, what cannot be computed again, what backward is using, "
                      "and what the program has too. ac2::explain_held() lists what all regions hold.");
}

}  // namespace

void stand_in_front() {
  static constexpr ShortageHandlers kHandlers = {
      .free = &drop_values, .held = &values_of_budgets, .text = &what_is_held};
  set_shortage_handlers(&kHandlers);
  RetryingAllocator::put_in_front();
  ask_us_where_cuda_runs_out();
  accelerator_front::put_in_front();
}

const std::shared_ptr<Budget>& whatever_fits_budget(CostSource costs) {
  stand_in_front();
  return LastingBudgets::get().of(costs);
}

std::shared_ptr<Budget> whatever_fits_budget(const std::shared_ptr<RankGroup>& ranks) {
  stand_in_front();
  return LastingBudgets::get().of(ranks);
}

std::shared_ptr<Budget> peak_budget(int64_t bytes, CostSource costs, std::shared_ptr<RankGroup> ranks) {
  stand_in_front();
  KeptBlocks::get().start();  // else free pieces of malloc's heap take several times the peak
  std::shared_ptr<Budget> budget = Budget::for_peak(bytes, costs, std::move(ranks));
  PeakBudgets::get().add(budget);
  const KeptLimit::Keeper keeper = {.limit = &smallest_peak, .free_some = &keep_peaks, .exceeded = &exceeded};
  CountedMemory::get().start(keeper);
  accelerator_front::start(keeper);
  return budget;
}

}  // namespace ac2::internal
