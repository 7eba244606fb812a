#include "ac2/internal/graph/seen_writes.h"

#include <algorithm>
#include <utility>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/locks/fork_locks.h"

namespace ac2::internal {

SeenWrites::Write::Write(at::Tensor through, const c10::StorageImpl* storage, const char* op)
    : through(std::move(through)), storage(storage), version(version_of(counter_of(this->through))), op(op) {}

void SeenWrites::note(const Write& write) {
  add(write, /*is_early=*/false);
}

void SeenWrites::note_early(const at::Tensor& tensor) {
  add(Write(tensor, nullptr, "torch.library.custom_op"), /*is_early=*/true);
}

void SeenWrites::add(const Write& write, bool is_early) {
  const c10::VariableVersion& counter = counter_of(write.through);
  if (!counter.enabled()) {
    return;
  }
  const MutexLock lock(mutex_);
  if (counted_.size() >= sweep_at_) {
    sweep();
  }
  auto& runs = counted_.try_emplace(address_of(counter), Counted{counter, {}}).first->second.runs;
  if (!runs.empty() && runs.back().end > write.version) {
    runs.back().end = write.version;  // the last write was not counted
    if (runs.back().begin == write.version) {
      runs.pop_back();
    }
  }
  if (!runs.empty() && runs.back().is_early && runs.back().end == write.version && write.storage != nullptr) {
    runs.back().storage = write.storage;  // the op that this was counted for
    runs.back().is_early = false;
  }
  const uint32_t end = std::max(counter.current_version(), write.version + 1);
  const bool goes_on = !runs.empty() && runs.back().end == write.version && runs.back().storage == write.storage;
  if (goes_on && runs.back().is_early == is_early) {
    runs.back().end = end;
    runs.back().op = write.op;
  } else {
    if (runs.size() == kMostRuns) {
      runs.erase(runs.begin(), runs.begin() + kMostRuns / 2);
    }
    runs.push_back({write.storage, write.version, end, write.op, is_early});
  }
}

bool SeenWrites::are_elsewhere(const c10::VariableVersion& counter, uint32_t version,
                               const c10::StorageImpl* storage) const {
  const MutexLock lock(mutex_);
  const auto it = counted_.find(address_of(counter));
  if (it == counted_.end()) {
    return false;
  }
  // The counts from `version` up to this one are not yet known to be elsewhere.
  uint32_t unknown = counter.current_version();
  for (auto run = it->second.runs.rbegin(); run != it->second.runs.rend() && unknown > version; ++run) {
    if (run->end < unknown || (run->storage == storage && run->begin < unknown)) {
      return false;
    }
    unknown = std::min(unknown, run->begin);
  }
  return unknown <= version;
}

const char* SeenWrites::last_op(const c10::VariableVersion& counter, const c10::StorageImpl* storage) const {
  const MutexLock lock(mutex_);
  const auto it = counted_.find(address_of(counter));
  if (it == counted_.end()) {
    return nullptr;
  }
  const auto& runs = it->second.runs;
  const auto run = std::find_if(runs.rbegin(), runs.rend(), [storage](const Run& r) { return r.storage == storage; });
  return run != runs.rend() ? run->op : nullptr;
}

void SeenWrites::sweep() {
  absl::erase_if(counted_, [](const auto& entry) { return entry.second.counter.unique(); });
  sweep_at_ = std::max(kLeastSwept, 2 * counted_.size());
}

SeenWrites& seen_writes() {
  // Never destroyed: values of graphs that outlive main() look at it.
  static SeenWrites* const writes = [] {
    auto* made = new SeenWrites;
    ForkLocks::add_last(made->mutex_);
    return made;
  }();
  return *writes;
}

}  // namespace ac2::internal
