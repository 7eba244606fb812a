// How the budgets of a job's ranks come to drop the same, before each backward.
#include <c10/util/ArrayRef.h>
#include <c10/util/ScopeExit.h>

#include <memory>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/warn_in_op.h"

namespace ac2::internal {

namespace {

void warn_of_other_calls() {
  static constinit SaidOnce said;
  if (said.is_to_say()) {
    warn_in_op(
        "The ranks of a memory budget's group have recorded different numbers of ops, so that their results cannot be "
        "told apart. Each result whose replay communicates is dropped on all of them. This is said once in a process.");
  }
}

}  // namespace

bool Budget::begin_agreement(int graph_task) {
  const MutexLock lock(mutex_);
  while (is_agreeing_) {
    has_agreed_.wait(mutex_);
  }
  is_agreeing_ = !agreed_.contains(graph_task);
  return is_agreeing_;
}

void Budget::end_agreement() {
  {
    const MutexLock lock(mutex_);
    is_agreeing_ = false;
  }
  has_agreed_.notify_all();
}

void Budget::agree(int graph_task) {
  if (!begin_agreement(graph_task)) {
    return;
  }
  const auto end = c10::make_scope_exit([this] { end_agreement(); });
  settle_drops();
  const MutexLock lock(mutex_);
  agreed_.insert(graph_task);
}

void Budget::agree_on_limit(int64_t taught) {
  const MutexLock lock(mutex_);
  if (limits_.agree_on(taught)) {
    apply_limits();
    if (tracking_.load(std::memory_order_relaxed)) {
      register_.note_all_needs();
    }
  }
}

void Budget::settle_drops() {
  struct Told {
    std::shared_ptr<BudgetedTape> tape;
    size_t begin;
    size_t end;
  };
  std::vector<Told> told;
  RankAgreement::Drops drops;
  std::vector<std::weak_ptr<BudgetedTape>> tapes;
  int64_t taught = 0;
  {
    const MutexLock lock(mutex_);
    tapes = tapes_.all();
    taught = limits_.taught();
  }
  for (const std::weak_ptr<BudgetedTape>& weak : tapes) {
    if (std::shared_ptr<BudgetedTape> tape = weak.lock()) {
      const size_t begin = drops.size();
      tape->add_drops(drops);
      if (drops.size() > begin) {
        told.push_back({std::move(tape), begin, drops.size()});
      }
    }
  }
  const RankAgreement::Common common = ranks_->compare({.limit = taught, .drops = drops});
  agree_on_limit(common.limit);
  if (!common.has_same_calls) {
    warn_of_other_calls();
    for (size_t call = 0; call < drops.size(); call += RankAgreement::kBytesOfCall) {
      drops[call + RankAgreement::kDropped] = 1;
      drops[call + RankAgreement::kAbsent] = 0;
    }
  } else if (!common.has_same_drops) {
    ranks_->unite(drops);
  }
  for (const Told& one : told) {
    one.tape->settle(c10::ArrayRef<uint8_t>(drops).slice(one.begin, one.end - one.begin));
  }
}

}  // namespace ac2::internal
