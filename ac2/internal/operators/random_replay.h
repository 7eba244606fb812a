// Generators: what an op drew from, in the state before it drew, so that its replay draws the same.
//
// Threads: an aten op that takes a Generator runs, while recorded on the CPU, on a private copy under the generator's
// lock, so that threads which share a generator never see each other's draws between the copy and the op. Ops without a
// Generator argument draw from the default generator, whose state is taken just before, as on other devices all do (no
// copy could be put back there without LibTorch noticing); regions and replays take turns at that, but a thread outside
// all regions may come between.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <mutex>

#include "ac2/internal/libtorch/random_state.h"
#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

// Around the call that is recorded.
class RecordedDraw {
 public:
  // `arguments` is the op's part of the stack; its generator may be replaced.
  RecordedDraw(const OpFacts& facts, c10::IValue* arguments);
  ~RecordedDraw();
  RecordedDraw(const RecordedDraw&) = delete;
  RecordedDraw& operator=(const RecordedDraw&) = delete;

  // Undefined where nobody can know it: then the op cannot be replayed.
  const RandomState& before() const { return before_; }

 private:
  at::Generator generator_;
  RandomState before_;
  at::Generator own_;
  // Of regions that draw from the CPU's default generator, or from any of another device, in whatever thread, one at
  // a time.
  std::unique_lock<std::mutex> turn_;
  std::unique_lock<std::mutex> lock_;
};

// While one lives, ops that reach the interceptor on this thread without a Generator draw from `generator` (replays of
// ops that draw through other ops), or, where that cannot be, the default generator itself is in that state.
class ReplayedDraw {
 public:
  ReplayedDraw(const OpFacts& facts, const RandomState& before);
  ~ReplayedDraw();
  ReplayedDraw(const ReplayedDraw&) = delete;
  ReplayedDraw& operator=(const ReplayedDraw&) = delete;

  // For the op's own Generator argument.
  const at::Generator& generator() const { return generator_; }
  // Whether inner ops must reach the interceptor.
  bool redirects() const { return redirects_; }

  // That of the innermost redirecting one on this thread, or undefined.
  static const at::Generator& redirected();

 private:
  at::Generator generator_;
  at::Generator previous_;
  bool redirects_ = false;
  // Swapping the state of a default generator.
  void swap_in();
  void swap_back();
  at::Generator swapped_;
  at::Generator swapped_state_;
  bool swapped_by_reference_ = false;
  std::unique_lock<std::mutex> swap_lock_;
};

}  // namespace ac2::internal
