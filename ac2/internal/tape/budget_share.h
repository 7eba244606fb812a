// The share of a tape in a memory budget. The share tells the budget of every change of what the tape holds.
//
// Bytes that the budget may drop are told as the place of a tracked value; all others are counted. As long as
// everything fits, the budget tracks nothing and is told sums alone. Without a budget nothing here does anything.
//
// Threads: guarded by the tape's lock, but for get().
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/graph/node.h"

namespace ac2::internal {

class BudgetShare {
 public:
  // The budget, or null. Needs no lock.
  Budget* get() const { return shown_.load(std::memory_order_acquire); }
  // To be called by the recording thread, before anything is recorded that shall count.
  void set(std::shared_ptr<Budget> budget, std::weak_ptr<BudgetedTape> tape);
  // The smaller of the two rules for as long as the tape lives.
  void limit(BudgetLimit limit) {
    int64_t& smallest = limit.soft ? soft_limit_ : limit_;
    if (limit.bytes < smallest) {
      smallest = limit.bytes;
      limits_.push_back(budget_->limit_to(limit));
    }
  }

  // From now on the budget's evictor knows of the tape's values. False if it did before.
  bool start_tracking() { return !std::exchange(tracking_, true); }
  // Counts again what was counted before tracking started, and tells the place. `value` may be null.
  void recount(Value* value);

  // A finished node whose results can all be computed again.
  void add_call(Node& node) {
    if (tracking_) {
      budget_->held()->add_call(tape_, node);
    }
  }
  void add_hook(const Value& value) {
    if (value.budget().tracked) {
      budget_->held()->add_hook(value);
    }
  }
  void remove_hook(const Value& value) {
    if (value.budget().tracked) {
      budget_->held()->remove_hook(value);
    }
  }
  void took(const Value& value) {
    if (value.budget().id != kNoId) {
      budget_->held()->took(value);
    }
  }
  void set_retention(Value& value, Retention retention);
  // The budget drops the value no more.
  void settle(Value& value) { budget_->held()->settle(value); }
  // A backward begins while none is under way on the tape, which has so many nodes.
  void backward_begins(int64_t nodes) {
    nodes_ = nodes;
    replays_ = 0;
    ease_after_ = budget_ != nullptr ? budget_->replays_before_easing(nodes) : 0;
  }
  void replayed(const Node& node) {
    if (++replays_ > ease_after_) {
      ease_after_ = replays_ + budget_->ease();
    }
    budget_->replayed(node);
  }
  // Whether the backwards under way have replayed so much that they must take turns with others that share the budget.
  bool takes_turns() const { return replays_ > budget_->backward_turn().patience() * nodes_; }
  // The value dies.
  void forget(Value& value) {
    if (value.budget().id != kNoId) {
      budget_->held()->forget(value);
    }
  }

  // The value cannot be computed again from now on. The tape holds no bytes of it.
  void make_outside(Value& value) {
    if (value.budget().tracked) {
      budget_->held()->make_outside(value);
    }
    HeldRegister::set_droppable(value, false);
  }

  // The tape holds the value from now on, or it is about to hold it no more.
  void count_held(Value& value) {
    if (budget_) {
      count_held_bytes(value);
    }
  }
  void uncount_held(Value& value) {
    if (budget_) {
      uncount_held_bytes(value);
    }
  }
  // The value's bytes are there for a backward from now on, or about to be so no more.
  void count_there(Value& value) {
    if (budget_ && value.is_replayed() && !value.budget().tracked) {
      count(value.parts.budget.change().there, value.bytes());
    }
  }
  void uncount_there(Value& value) {
    if (budget_) {
      uncount(value.parts.budget.change().there, value.bytes());
    }
  }
  // Where the bytes are may have changed. Beside recount(), which tells once tracking starts, only ValueBytes calls
  // this: at each StateChange, and when an original has died or was overwritten, or a value waits for a replay.
  void update_place(const Value& value) {
    if (value.budget().tracked) {
      tell_place(value);
    }
  }

 private:
  void count(Counted& counted, int64_t bytes);
  void uncount(Counted& counted, int64_t bytes);
  void count_held_bytes(Value& value);
  void uncount_held_bytes(Value& value);
  void tell_place(const Value& value);

  std::shared_ptr<Budget> budget_;
  std::weak_ptr<BudgetedTape> tape_;
  bool tracking_ = false;
  int64_t nodes_ = 0;       // when the backwards under way began
  int64_t replays_ = 0;     // since then
  int64_t ease_after_ = 0;  // so many
  std::vector<std::shared_ptr<void>> limits_;
  int64_t limit_ = std::numeric_limits<int64_t>::max();       // the smallest strict one
  int64_t soft_limit_ = std::numeric_limits<int64_t>::max();  // the smallest soft one
  std::atomic<Budget*> shown_{nullptr};                       // budget_, for those without the lock
};

}  // namespace ac2::internal
