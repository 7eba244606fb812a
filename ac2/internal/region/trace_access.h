// The way from the public Trace to the tape behind it.
#pragma once

#include <memory>
#include <utility>

#include "ac2/trace.h"

namespace ac2::internal {

class TraceAccess {
 public:
  static std::shared_ptr<const Trace> make(std::shared_ptr<Tape> tape) {
    return std::shared_ptr<const Trace>(new Trace(std::move(tape)));
  }
  static Tape& tape(const Trace& trace) { return *trace.tape_; }
};

}  // namespace ac2::internal
