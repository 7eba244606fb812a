#include "ac2/trace.h"

#include <utility>

#include "ac2/internal/graph/live_nodes.h"
#include "ac2/internal/tape/tape.h"

namespace ac2 {

Trace::Trace(std::shared_ptr<internal::Tape> tape) : tape_(std::move(tape)) {}

Trace::~Trace() = default;

TraceStats Trace::stats() const {
  return tape_->stats();
}

int64_t live_node_count() {
  return internal::live_nodes().load(std::memory_order_relaxed);
}

}  // namespace ac2
