// The counts of a tape: the numbers of TraceStats that are sums over its values. Observers are told of every change
// from here, so that what they write down cannot differ from stats().
//
// Threads: guarded by the tape's lock.
#pragma once

#include <c10/macros/Macros.h>

#include <algorithm>
#include <cstdint>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/observers.h"
#include "ac2/trace_stats.h"

namespace ac2::internal {

class ByteLedger {
 public:
  explicit ByteLedger(const Observers& observers) : observers_(observers) {}

  // The value's state has changed from `old` by `what`. `before` and `now` are the bytes for which the value counted
  // and counts, of the parts of the state that the change is about. An observer hears of the end of the old state and
  // of the beginning of the new one.
  C10_ALWAYS_INLINE void changed(const Value& value, StateChange what, ValueState old, const CountedBytes& before,
                                 const CountedBytes& now) {
    saved_bytes_ += now.saved - before.saved;
    offloaded_bytes_ += now.offloaded - before.offloaded;
    recomputed_bytes_ += now.recomputed - before.recomputed;
    most_recomputed_bytes_ = std::max(most_recomputed_bytes_, recomputed_bytes_);
    peak_bytes_ = std::max(peak_bytes_, saved_bytes_ + recomputed_bytes_);
    if (!observers_.empty()) {
      tell_change(value, what, old, before, now);
    }
  }
  void copied(const Value& value) {
    copied_bytes_ += value.bytes();
    tell(value, value.bytes(), ByteChange::Kind::kCopy);
  }
  void evicted(const Value& value) {
    ++evicted_values_;
    evicted_bytes_ += value.bytes();
    tell(value, value.bytes(), ByteChange::Kind::kEvict);
  }
  void packed_for_room() { ++packed_values_; }
  // A replay has computed results of so many bytes.
  void node_replayed(int64_t bytes) {
    ++replayed_nodes_;
    replayed_bytes_ += bytes;
  }
  // Verify mode has compared a replayed result with forward's.
  void result_verified() { ++verified_results_; }

  int64_t evicted_values() const { return evicted_values_; }
  int64_t saved_bytes() const { return saved_bytes_; }
  int64_t recomputed_bytes() const { return recomputed_bytes_; }
  // From now on most_recomputed_bytes() is counted anew.
  void backward_begins() { most_recomputed_bytes_ = recomputed_bytes_; }
  int64_t most_recomputed_bytes() const { return most_recomputed_bytes_; }
  void write_to(TraceStats& stats) const;

 private:
  void tell_change(const Value& value, StateChange what, ValueState old, const CountedBytes& before,
                   const CountedBytes& now) const;
  void tell(const Value& value, int64_t bytes, ByteChange::Kind kind) const {
    observers_.tell([&](Observer& observer) {
      observer.bytes_changed({value, kind, bytes, saved_bytes_, recomputed_bytes_});
    });
  }

  const Observers& observers_;
  int64_t saved_bytes_ = 0;
  int64_t offloaded_bytes_ = 0;
  int64_t recomputed_bytes_ = 0;
  int64_t most_recomputed_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  int64_t copied_bytes_ = 0;
  int64_t evicted_values_ = 0;
  int64_t evicted_bytes_ = 0;
  int64_t packed_values_ = 0;
  int64_t replayed_nodes_ = 0;
  int64_t replayed_bytes_ = 0;
  int64_t verified_results_ = 0;
};

}  // namespace ac2::internal
