// The trace of a region: its counts, and how much of it is held.
//
//   ac2::PolicyScope scope("recompute_all");
//   at::Tensor loss = model(x);
//   std::cout << scope.trace()->stats().saved_bytes;
//
// Threads: every function here may be called from any thread, at any time.
#pragma once

#include <cstdint>
#include <memory>

#include "ac2/trace_stats.h"

namespace ac2 {

namespace internal {
class Tape;
class TraceAccess;
}  // namespace internal

// The ops that one region has recorded. All scopes of the region share the Trace. A Trace may outlive them and
// backward. A Trace keeps no tensor alive: the tensors belong to the autograd graph, which frees them.
class Trace {
 public:
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  TraceStats stats() const;

 private:
  friend class internal::TraceAccess;
  explicit Trace(std::shared_ptr<internal::Tape> tape);

  std::shared_ptr<internal::Tape> tape_;
};

// The nodes (recorded calls) that are alive in all traces of the process: 0 when nothing is left behind.
int64_t live_node_count();

}  // namespace ac2
