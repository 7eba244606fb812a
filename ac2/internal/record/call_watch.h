// A call in forward as the tape's observers see it. Without observers there is nothing in it.
//
//   CallWatch watch(tape, facts, index);
//   watch.takes(arguments);
//   …run the op…
//   watch.ran();
//   watch.check();
//   …record it…
//   watch.recorded(results, writes);
//
// Threads: by the recording thread.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/record/overwrite.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class CallWatch {
 public:
  CallWatch(Tape& tape, const OpFacts& facts, int64_t index)
      : observations_(tape.observers().observe<CallObservation>(
            [&](Observer& observer) { return observer.observe_call(facts, index); })) {}

  void takes(c10::ArrayRef<c10::IValue> arguments) {
    for (const auto& observation : observations_) {
      observation->takes(arguments);
    }
  }
  void ran() {
    for (const auto& observation : observations_) {
      observation->ran();
    }
  }
  void check() {
    for (const auto& observation : observations_) {
      observation->check();
    }
  }
  // `writes` may be null.
  void recorded(c10::ArrayRef<c10::IValue> results, const Overwrites* writes) {
    if (observations_.empty()) {
      return;
    }
    std::vector<at::Tensor> written;
    if (writes != nullptr) {
      for (const Overwrites::Target& target : writes->targets()) {
        written.push_back(target.tensor);
      }
    }
    for (const auto& observation : observations_) {
      observation->recorded(results, written);
    }
  }

 private:
  std::vector<std::unique_ptr<CallObservation>> observations_;
};

}  // namespace ac2::internal
