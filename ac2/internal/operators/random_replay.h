// Records the state of the generator that an op draws from, and gives the op's replay a generator in that state, so
// that it draws the same numbers.
//
//   DrawInForward draw(facts, arguments);      // around the call in forward
//   …run the op…
//   ReplayedDraw again(facts, draw.before()); // around the call in backward
//
// Threads: an aten op that takes a Generator is recorded, on the CPU, on a private copy of it and under the generator's
// lock. So threads that share a generator never draw between the copy and the op. An op without a Generator argument
// draws from the default generator, whose state is read just before the op runs. On other devices all ops do so,
// because LibTorch would notice a copy that is put back. Regions and replays take turns at that, but a thread outside
// all regions may draw in between.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <mutex>

#include "ac2/internal/libtorch/random_state.h"
#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

// Lives around the call that is recorded.
class DrawInForward {
 public:
  // `arguments` is the op's part of the stack. Its Generator may be replaced.
  DrawInForward(const OpFacts& facts, c10::IValue* arguments);
  ~DrawInForward();
  DrawInForward(const DrawInForward&) = delete;
  DrawInForward& operator=(const DrawInForward&) = delete;

  // The generator's state before the op. If it is undefined, the op cannot be replayed.
  const RandomState& before() const { return before_; }

 private:
  at::Generator generator_;
  RandomState before_;
  at::Generator own_;
  // Two turns, over all threads. A single region at a time draws from the CPU's default generator, and a single one
  // from the generators of other devices.
  std::unique_lock<std::mutex> turn_;
  std::unique_lock<std::mutex> lock_;
};

// Lives around the call that replays. An op that takes a Generator gets generator(). An op that draws through other ops
// has them draw from it too: they reach the interceptor on this thread. Where that is not possible, the default
// generator itself is in that state meanwhile.
class ReplayedDraw {
 public:
  ReplayedDraw(const OpFacts& facts, const RandomState& before);
  ~ReplayedDraw();
  ReplayedDraw(const ReplayedDraw&) = delete;
  ReplayedDraw& operator=(const ReplayedDraw&) = delete;

  // For the op's own Generator argument.
  const at::Generator& generator() const { return generator_; }
  // Whether the ops that the op calls must reach the interceptor.
  bool redirects() const { return redirects_; }

  // The generator of the innermost ReplayedDraw on this thread that redirects; null if there is none.
  static const at::Generator* redirected();

 private:
  at::Generator generator_;
  const at::Generator* previous_ = nullptr;  // what redirected() was before
  bool redirects_ = false;
  // Gives the default generator the state to replay from, and its own state back.
  void swap_in();
  void swap_back();
  at::Generator swapped_;
  at::Generator swapped_state_;
  bool swapped_by_reference_ = false;
  std::unique_lock<std::mutex> swap_lock_;
};

}  // namespace ac2::internal
