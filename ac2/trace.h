// What a region has recorded, to look at.
//
//   ac2::PolicyScope scope;
//   at::Tensor loss = model(x);
//   std::cout << scope.trace()->stats().saved_bytes;
//
// Threads: every function here may be called from any thread, at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ac2 {

namespace internal {
class Tape;
class TraceAccess;
}  // namespace internal

// Bytes are those of whole storages: a view counts what it views, and a storage counts once.
struct TraceStats {
  int64_t recorded_ops = 0;      // ops seen by the region, views included
  int64_t live_nodes = 0;        // op nodes still reachable
  int64_t saved_bytes = 0;       // held for backward now, inputs and parameters that ops need included
  int64_t recomputed_ops = 0;    // ops replayed so far
  int64_t recomputed_bytes = 0;  // bytes of replayed results held now
  int64_t copied_bytes = 0;      // copied so far because a value still needed was about to be overwritten
  int64_t evicted_values = 0;    // values that a memory budget dropped so far
  int64_t offloaded_bytes = 0;   // now in another memory, or on the way there; not in saved_bytes
  // Kept on the device because there was no pinned memory left to offload them to, so far. In saved_bytes while held.
  int64_t not_offloaded_bytes = 0;
};

// A handle on the recording of one outermost region. Shared by its scopes; may outlive them and backward, and keeps
// nothing alive that backward would not: tensors belong to the autograd graph, which frees them.
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

// The ops still reachable and what they need, as a Graphviz digraph. Filled boxes are saved. With
// ScopeOptions::timeline all ops that the region recorded, those whose graph is gone included, filled if they were
// saved.
std::string to_dot(const Trace& trace);

// JSON that Perfetto and chrome://tracing open. With ScopeOptions::timeline: forward, backwards, replays, releases, and
// the bytes held as a counter, in microseconds since the region began. Without it the ops still reachable, in logical
// time, one microsecond an op: ops have no times then.
std::string to_chrome_trace(const Trace& trace);

// Op nodes alive in all traces of the process: 0 when nothing is left behind.
int64_t live_node_count();

}  // namespace ac2
