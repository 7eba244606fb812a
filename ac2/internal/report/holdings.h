// What a trace holds for backward at one moment, and what it would take not to: for explain().
//
//   const Holdings holdings(log);
//   for (const Holdings::Holding& held : holdings.values()) …
//
// The log must outlive it.
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

  // Of recomputing a held value instead.
  struct Saving {
    int64_t value = 0;
    int64_t bytes = 0;    // fewer held
    int64_t ops = 0;      // more replayed in a backward; 0: what it takes is replayed for another value anyway
    int64_t time = 0;     // of these ops in forward, nanoseconds; 0 if not timed
    int64_t instead = 0;  // bytes of their inputs that would have to be held; `bytes` is without them
  };

  // What is held now, or, if that is nothing and there is a timeline, when most was saved.
  explicit Holdings(const TraceLog& log);

  bool now() const { return now_; }
  int64_t bytes() const { return bytes_; }
  // Largest first.
  const std::vector<Holding>& values() const { return values_; }
  // How often autograd saved the value then.
  int64_t hooks(const TraceLog::Value& value) const { return now_ ? value.hooks : value.all_hooks; }
  // Of one value at a time, those with bytes > 0, largest first. Looks at the largest few hundred values alone.
  std::vector<Saving> savings() const;

 private:
  std::vector<int64_t> bytes_at_peak() const;
  void find_replayed();
  // Neither kept nor held: to be computed again where it is needed.
  bool is_missing(int64_t value) const { return !log_.values[value].saved && !held_.contains(value); }
  Saving saving(const Holding& holding) const;

  const TraceLog& log_;
  bool now_ = false;
  int64_t bytes_ = 0;
  std::vector<Holding> values_;
  absl::flat_hash_set<int64_t> held_;
  absl::flat_hash_set<int64_t> replayed_;  // ops that a backward replays as things are
};

}  // namespace ac2::internal
