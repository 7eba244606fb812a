// The values that a trace holds for backward at one moment, and the cost of recomputing them. explain() prints it.
//
//   const Holdings holdings(log);
//   for (const Holdings::Holding& held : holdings.values()) …
//
// Lifetime: the log must outlive it. Threads: any. A Holdings object does not change once it is made.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/observe/trace_log.h"

namespace ac2::internal {

class Holdings {
 public:
  struct Holding {
    int64_t value = 0;  // in the log
    int64_t bytes = 0;
  };

  // The difference that it would make to recompute a held value.
  struct Saving {
    int64_t value = 0;
    int64_t bytes = 0;    // so many fewer would be held, `instead` already taken off
    int64_t ops = 0;      // so many more would be replayed in a backward; 0: they are replayed for another value anyway
    int64_t time = 0;     // nanoseconds that these ops took in forward; 0 without a timeline
    int64_t instead = 0;  // bytes of their inputs that would have to be held
  };

  // The moment is now, or, if nothing is held now and there is a timeline, the one at which most was saved.
  explicit Holdings(const TraceLog& log);

  // Whether the moment is now.
  bool now() const { return now_; }
  int64_t bytes() const { return bytes_; }
  // The largest comes first.
  const std::vector<Holding>& values() const { return values_; }
  // How many hooks want the value at that moment.
  int64_t hooks(const TraceLog::Value& value) const { return now_ ? value.hooks : value.all_hooks; }
  // The savings of recomputing one value, for each value where there are any. The largest comes first. Only the largest
  // few hundred values are looked at.
  std::vector<Saving> savings() const;

 private:
  std::vector<int64_t> bytes_at_peak() const;
  void find_replayed();
  // Whether the value is computed again where it is needed, that is, neither saved nor held.
  bool is_missing(int64_t value) const { return !log_.values[value].saved && !held_.contains(value); }
  Saving saving(const Holding& holding) const;

  const TraceLog& log_;
  bool now_ = false;
  int64_t bytes_ = 0;
  std::vector<Holding> values_;
  absl::flat_hash_set<int64_t> held_;
  absl::flat_hash_set<int64_t> replayed_;  // ops that a backward replays if nothing is changed
};

}  // namespace ac2::internal
