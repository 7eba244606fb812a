#include "ac2/internal/replay/replayed_at_once.h"

#include <c10/util/StringUtil.h>

#include <atomic>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

constexpr int64_t kEnoughToMatter = 16 << 20;

// The bytes that a region wants.
struct RegionAtOnce {
  int64_t bytes = 0;
  bool under_budget = false;
};

// The regions of one backward.
struct Backward {
  int regions = 0;  // that have not left
  int64_t wanted = 0;
  RegionAtOnce at_once;  // the most of one region, of those that had nearly all of theirs there at once
  absl::flat_hash_map<const LockedTape*, RegionAtOnce> watched;  // those that may yet have it
};

struct Backwards {
  Mutex mutex;
  absl::flat_hash_map<int, Backward> by_graph_task ABSL_GUARDED_BY(mutex);
};

Backwards& backwards() {
  static auto* state = [] {
    auto* made = new Backwards;  // leaked: the engine's threads outlive static destruction
    ForkLocks::add_last(made->mutex);
    return made;
  }();
  return *state;
}

// Relaxed where it only spares work. The flag is exchanged before a warning, so that there is a single one.
std::atomic<bool> has_warned{false};
// Relaxed, because a thread that looks has the lock of its tape, as had the thread that counted that tape.
std::atomic<int64_t> watched_regions{0};

bool is_nearly_all_of(int64_t part, int64_t whole) {
  return part >= whole / 10 * 9;
}

// The bytes of the values that hooks want and that must be replayed.
int64_t bytes_to_replay(LockedTape& tape) {
  double bytes = 0;
  for (const TapeHook* hook = tape.hooks().first(); hook != nullptr; hook = hook->next()) {
    const Value& value = *hook->value();
    if (value.waits()) {
      bytes += static_cast<double>(value.bytes()) / value.hooks();  // each value once
    }
  }
  return static_cast<int64_t>(bytes);
}

// A budget has seen to it that there is room, unless it has decided nothing and is far larger than what there is: then
// its number says nothing of the region.
bool is_bounded(LockedTape& tape, int64_t wanted) {
  const Budget* budget = tape.budget().get();
  return budget != nullptr && (tape.ledger().evicted_values() > 0 || budget->limit_now() / 2 < wanted ||
                               tape.ledger().saved_bytes() > wanted);
}

std::string for_each_block() {
  return spelled("ac2::apply_checkpointing(model, {.modules = {\"blocks.*\"}})",
                 "ac2.apply_checkpointing(model, modules=\"blocks.*\")");
}

std::string text_for(const RegionAtOnce& replayed) {
  if (replayed.under_budget) {
    return c10::str("Backward had ", replayed.bytes >> 20,
                    " MiB of one ac2 region replayed at once, which is nearly all that its regions recompute, so that "
                    "they save next to no memory. The region's memory budget has dropped nothing of it: a policy says "
                    "MUST_RECOMPUTE, which no budget overrides, and the budget is far larger than that. Give the "
                    "region the budget alone, or a policy that says PREFER_RECOMPUTE, as recompute_all does: then what "
                    "fits is kept. Or open a region for each block of the model (",
                    for_each_block(), "). This is said once.");
  }
  return c10::str(
      "Backward had ", replayed.bytes >> 20,
      " MiB of one ac2 region replayed at once, which is nearly all that its regions "
      "recompute, so that they save next to no memory. This is what one region around a whole model does under a "
      "policy that saves nothing, such as recompute_all. Open a region for each block of the model (",
      for_each_block(), "), or give the region no policy, so that it keeps what fits (",
      spelled("ac2::PolicyScope scope;", "ac2.PolicyScope()"), "), or a memory budget (",
      spelled("ac2::PolicyScope scope({.memory_budget = int64_t{2} << 30})", "ac2.PolicyScope(memory_budget=\"2GiB\")"),
      "). This is said once.");
}

}  // namespace

void backward_enters(LockedTape& tape, int graph_task) {
  tape.ledger().backward_begins();
  const int64_t wanted = has_warned.load(std::memory_order_relaxed) ? 0 : bytes_to_replay(tape);
  const MutexLock lock(backwards().mutex);
  Backward& backward = backwards().by_graph_task[graph_task];
  ++backward.regions;
  backward.wanted += wanted;
  const RegionAtOnce watched{.bytes = wanted, .under_budget = tape.budget().get() != nullptr};
  if (wanted >= kEnoughToMatter && !is_bounded(tape, wanted) && tape.autograd_span().is_followed_by_little() &&
      backward.watched.insert_or_assign(&tape, watched).second) {
    watched_regions.fetch_add(1, std::memory_order_relaxed);
  }
}

void backward_has_unpacked(LockedTape& tape, int graph_task) {
  if (watched_regions.load(std::memory_order_relaxed) == 0) {
    return;
  }
  const MutexLock lock(backwards().mutex);
  const auto found = backwards().by_graph_task.find(graph_task);
  if (found == backwards().by_graph_task.end()) {
    return;
  }
  Backward& backward = found->second;
  const auto watched = backward.watched.find(&tape);
  if (watched != backward.watched.end() &&
      is_nearly_all_of(tape.ledger().most_recomputed_bytes(), watched->second.bytes)) {
    if (watched->second.bytes > backward.at_once.bytes) {
      backward.at_once = watched->second;
    }
    backward.watched.erase(watched);
    watched_regions.fetch_sub(1, std::memory_order_relaxed);
  }
}

std::optional<std::string> backward_leaves(int graph_task) {
  RegionAtOnce at_once;
  {
    const MutexLock lock(backwards().mutex);
    const auto found = backwards().by_graph_task.find(graph_task);
    if (found == backwards().by_graph_task.end() || --found->second.regions > 0) {
      return std::nullopt;
    }
    const Backward& backward = found->second;
    if (is_nearly_all_of(backward.at_once.bytes, backward.wanted)) {
      at_once = backward.at_once;
    }
    watched_regions.fetch_sub(static_cast<int64_t>(backward.watched.size()), std::memory_order_relaxed);
    backwards().by_graph_task.erase(found);
  }
  return at_once.bytes > 0 && !has_warned.exchange(true) ? std::optional(text_for(at_once)) : std::nullopt;
}

}  // namespace ac2::internal
