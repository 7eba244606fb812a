#include "ac2/internal/budget/budget.h"

#include <utility>

namespace ac2::internal {

namespace {

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Budget::Budget(BudgetLimits limits, CostSource costs, std::unique_ptr<PeakBound> peak, std::shared_ptr<RankGroup> ranks)
    : limit_(limits.ruling().bytes),
      limits_(std::move(limits)),
      register_(limit_),
      costs_(costs),
      has_no_number_(limits_.has_no_number()),
      number_(next_number()),
      peak_(std::move(peak)),
      ranks_(ranks ? std::make_unique<RankAgreement>(std::move(ranks)) : nullptr) {}

std::shared_ptr<Budget> Budget::without_number(CostSource costs, std::shared_ptr<RankGroup> ranks) {
  return std::make_shared<Budget>(BudgetLimits::without_number(BudgetLimits::Bound::kMemory), costs, nullptr,
                                  std::move(ranks));
}

std::shared_ptr<Budget> Budget::for_peak(int64_t peak, CostSource costs, std::shared_ptr<RankGroup> ranks) {
  return std::make_shared<Budget>(BudgetLimits::without_number(BudgetLimits::Bound::kPeak), costs,
                                  std::make_unique<PeakBound>(peak), std::move(ranks));
}

BudgetLimit Budget::limit() const {
  const MutexLock lock(mutex_);
  return limits_.ruling();
}

int64_t Budget::times_over() const {
  const MutexLock lock(mutex_);
  return limits_.times_over();
}

int64_t Budget::most_bytes_over() const {
  const MutexLock lock(mutex_);
  return limits_.most_bytes_over();
}

int64_t Budget::held_bytes() {
  start_tracking();  // the untracked bytes are not known to the byte
  const MutexLock lock(mutex_);
  return register_.bytes();
}

int64_t Budget::most_held_bytes() const {
  const MutexLock lock(mutex_);
  return untracked_bytes_.load(std::memory_order_relaxed) + register_.droppable_bytes() + register_.last_fixed_bytes();
}

void Budget::apply_limits() {
  register_.set_limit(limits_.ruling().bytes);
  limit_.store(limits_.ruling().bytes, std::memory_order_relaxed);
}

std::shared_ptr<void> Budget::limit_to(BudgetLimit limit) {
  const MutexLock lock(mutex_);
  limits_.add(limit);
  apply_limits();
  return {nullptr, [budget = shared_from_this(), limit](void*) {
            const MutexLock unlimit(budget->mutex_);
            budget->limits_.remove(limit);
            budget->apply_limits();
          }};
}

bool Budget::add_tape(std::weak_ptr<BudgetedTape> tape) {
  std::vector<std::shared_ptr<BudgetedTape>> left_over;  // goes after the lock
  const MutexLock lock(mutex_);
  left_over.swap(left_over_);
  tapes_.add(std::move(tape));
  return tracks_new_tapes_;
}

void Budget::for_each_tape(c10::function_ref<void(BudgetedTape&)> call) {
  std::vector<std::weak_ptr<BudgetedTape>> tapes;
  {
    const MutexLock lock(mutex_);
    tapes = tapes_.all();
  }
  for (const std::weak_ptr<BudgetedTape>& weak : tapes) {
    if (const std::shared_ptr<BudgetedTape> tape = weak.lock()) {
      call(*tape);
    }
  }
}

void Budget::start_tracking() {
  if (tracking_.load(std::memory_order_acquire)) {
    return;
  }
  const MutexLock lock(start_mutex_);
  track([](BudgetedTape& tape) {
    tape.start_tracking();
    return true;
  });
}

bool Budget::track(c10::function_ref<bool(BudgetedTape&)> tell) {
  if (tracking_.load(std::memory_order_acquire)) {
    return true;
  }
  {
    const MutexLock lock(mutex_);
    tracks_new_tapes_ = true;
  }
  bool all = true;
  for_each_tape([&](BudgetedTape& tape) { all = all && tell(tape); });
  if (!all) {
    return false;
  }
  const MutexLock lock(mutex_);
  // Until now the evictor did not know what is held, and what hooks want.
  register_.note_all_needs();
  // Set last: other threads would else make room by an evictor that knows half of what is held. Pairs with the acquire
  // of those who ask without the lock whether it tracks.
  tracking_.store(true, std::memory_order_release);
  return true;
}

void Budget::replayed(const Node& node) {
  if (node.budget_node != kNoId) {
    const MutexLock lock(mutex_);
    limits_.replayed();
    register_.replayed(node);
  }
}

int64_t Budget::replays_before_easing(int64_t nodes) {
  const MutexLock lock(mutex_);
  return limits_.backward_begins(nodes, register_.graph_bytes());
}

int64_t Budget::ease() {
  const MutexLock lock(mutex_);
  // Where an accelerator's memory is cut into pieces, more than was learned may be an error.
  const bool is_cut = short_accelerator_.load(std::memory_order_relaxed) >= 0;
  const BudgetLimits::Eased eased = limits_.ease(register_.bytes(), is_cut);
  if (eased.has_many_replays) {
    is_to_tell_of_many_replays_.store(true, std::memory_order_relaxed);
  }
  if (limits_.ruling().bytes != limit_now()) {
    apply_limits();
  }
  return eased.next;
}

void Budget::backward_ended(int graph_task) {
  {
    const MutexLock lock(mutex_);
    register_.step_ended();
    limits_.step_ended();
    agreed_.erase(graph_task);
    if (!has_no_number()) {
      // A shortage where less is held counts again after some steps that have held less.
      const int64_t most = most_held_.load(std::memory_order_relaxed);
      most_held_.store(most - most / 8, std::memory_order_relaxed);
      return;
    }
    if (limits_.is_last_backward(graph_task)) {
      return;
    }
  }
  const std::optional<int64_t> spare = settle_accelerator();
  const MutexLock lock(mutex_);
  limits_.backward_ended(graph_task, spare, most_held_.load(std::memory_order_relaxed));
  apply_limits();
  most_held_.store(held_by_all_tapes(), std::memory_order_relaxed);
}

void Budget::start_limit_anew() {
  if (has_no_number()) {
    const MutexLock lock(mutex_);
    limits_.start_anew();
    apply_limits();
    most_held_.store(held_by_all_tapes(), std::memory_order_relaxed);
  }
}

}  // namespace ac2::internal
