#include "ac2/internal/eviction/step_store.h"

#include <algorithm>
#include <utility>

#include "ac2/internal/locks/fork_locks.h"

namespace ac2::internal {

StepStore& StepStore::process() {
  static auto* const store = [] {
    auto* made = new StepStore();  // never destroyed: budgets may outlive static objects
    ForkLocks::add_last(made->mutex_);
    return made;
  }();
  return *store;
}

size_t StepStore::index_of(const RememberedStep* step) const {
  size_t i = 0;
  while (i < entries_.size() && entries_[i].step.get() != step) {
    ++i;
  }
  return i;
}

std::shared_ptr<const RememberedStep> StepStore::find(const RememberedStep& step, uint32_t op) const {
  const MutexLock lock(mutex_);
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    if (it->step->ops() > op && it->step->prefix(op) == step.prefix(op)) {
      return it->step;
    }
  }
  return nullptr;
}

RuleTrials::Run StepStore::next_run(const RememberedStep& step, int64_t budget) const {
  const MutexLock lock(mutex_);
  const size_t i = index_of(&step);
  return i < entries_.size() ? entries_[i].trials.next(budget) : RuleTrials::Run();
}

RuleSetting StepStore::best(const RememberedStep& step) const {
  const MutexLock lock(mutex_);
  const size_t i = index_of(&step);
  return i < entries_.size() ? entries_[i].trials.best() : RuleSetting();
}

std::shared_ptr<const RememberedStep> StepStore::ended(std::unique_ptr<RememberedStep> step, const Outcome& outcome) {
  if (step->ops() == 0 || step->ops() > kMostOps) {
    return nullptr;
  }
  const uint32_t last = step->ops() - 1;
  ReleasableMutexLock lock(mutex_);
  auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.step->ops() == step->ops() && entry.step->prefix(last) == step->prefix(last);
  });
  if (known == entries_.end()) {
    lock.unlock();
    step->finish();
    lock.lock();
    Entry entry{std::move(step), {}};
    const size_t similar = index_of(outcome.similar.get());
    if (similar < entries_.size()) {
      entry.trials = entries_[similar].trials.inherited();
    }
    entries_.push_back(std::move(entry));
    drop_oldest();
  } else {
    std::rotate(known, known + 1, entries_.end());
  }
  Entry& entry = entries_.back();
  const double length = std::max(entry.step->length(), 1.0);
  if (outcome.setting) {
    entry.trials.cost(*outcome.setting, outcome.replayed_cost / length, outcome.budget);
  }
  if (outcome.given_up) {
    entry.trials.gave_up(*outcome.given_up, outcome.budget);
  }
  return entry.step;
}

void StepStore::failed(const RememberedStep& step, const RuleSetting& setting, int64_t budget) {
  const MutexLock lock(mutex_);
  const size_t i = index_of(&step);
  if (i < entries_.size()) {
    entries_[i].trials.gave_up(setting, budget);
  }
}

void StepStore::drop_oldest() {
  while (entries_.size() > 1 && (entries_.size() > kMostSteps || bytes_of_all() > kMostBytes)) {
    entries_.erase(entries_.begin());
  }
}

int64_t StepStore::bytes_of_all() const {
  int64_t bytes = 0;
  for (const Entry& entry : entries_) {
    bytes += entry.step->bytes() + entry.trials.bytes();
  }
  return bytes;
}

int64_t StepStore::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_of_all();
}

void StepStore::forget_all() {
  const MutexLock lock(mutex_);
  entries_.clear();
}

}  // namespace ac2::internal
