// Records the state of the generator that an op of LibTorch's draws from, and gives a replay generators in the states
// that its op drew from, so that it draws the same numbers. (Ops of others: draw_watch.h.)
//
//   const DrawInForward draw(facts, arguments);                  // around the call in forward
//   …run the op…
//   const ReplayedDraws again(facts, node.draws(), arguments);   // around the call in backward
//
// Threads: an aten op that takes a Generator is recorded, on the CPU, on a private copy of it and under the generator's
// lock. So threads that share a generator never draw between the copy and the op. An op without a Generator argument
// draws from the default generator, whose state is read just before the op runs. On other devices all ops do so,
// because LibTorch would notice a copy that is put back. Regions and replays take turns at that, but a thread outside
// all regions may draw in between, and so may an op of others, which may wait for any thread.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <mutex>

#include "ac2/internal/libtorch/random_state.h"
#include "ac2/internal/locks/mutex.h"
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

  // The generator's state before the op. Empty if the state is not known.
  Draws draws() const;

 private:
  at::Generator generator_;
  RandomState before_;
  int argument_ = -1;
  at::Generator own_;
  // Over all threads, a single region at a time draws from default generators.
  std::unique_lock<RecursiveMutex> turn_;
  std::unique_lock<std::mutex> lock_;
};

// Lives around the call that replays. A Generator among the op's arguments from which forward drew is replaced. An op
// of LibTorch's that draws through other ops has them draw from a generator in forward's state: they reach the
// interceptor on this thread. Where that is not possible, the default generators themselves are in that state
// meanwhile.
class ReplayedDraws {
 public:
  ReplayedDraws(const OpFacts& facts, const Draws& draws, c10::IValue* arguments);
  ~ReplayedDraws();
  ReplayedDraws(const ReplayedDraws&) = delete;
  ReplayedDraws& operator=(const ReplayedDraws&) = delete;

  // Whether the ops that the op calls must reach the interceptor.
  bool redirects() const { return redirects_; }

  // The generator of the innermost ReplayedDraws on this thread that redirects; null if there is none.
  static const at::Generator* redirected();

 private:
  // A default generator, with the state that it gets back.
  struct Swapped {
    at::Generator generator;
    at::Generator own_state;
    bool by_reference = false;
  };
  static Swapped swap_in(const at::Generator& state);
  static void swap_back(Swapped& swapped);

  bool redirects_ = false;
  at::Generator redirected_to_;
  const at::Generator* previous_ = nullptr;  // what redirected() was before
  c10::SmallVector<Swapped, 1> swapped_;
  std::unique_lock<RecursiveMutex> turn_;
};

}  // namespace ac2::internal
