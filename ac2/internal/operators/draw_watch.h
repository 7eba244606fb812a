// Finds out whether an op draws, where nothing says so. An op that is not LibTorch's may draw in its kernel, from a
// default generator or from one that it takes, without Tag::nondeterministic_seeded.
//
//   DrawWatch watch(facts, arguments, region.recent_states);   // around the call in forward
//   …run the op…
//   if (const std::optional<Draws> draws = watch.draws()) …
//
// The states of the CPU's default generator, of those of the devices on which the op has arguments, and of the
// generators that it takes are compared before and after the call. A state is copied only if something has drawn since
// the copy before it. Generators that are not LibTorch's (std::mt19937, Python's random) are not seen.
//
// Rejected: to take turns with other regions and with replays, as DrawInForward does. The op may run any code, and wait
// for other threads. If another thread draws meanwhile, the op is taken for one that draws, which does no harm.
//
// Threads: concerns the thread of the call.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "ac2/internal/libtorch/random_state.h"
#include "ac2/internal/operators/op_facts.h"

namespace ac2::internal {

// The last known states of default generators, which the ops of a region share.
class RecentStates {
 public:
  // The state of `generator` now. The caller holds its lock.
  RandomState of(const at::Generator& generator);

 private:
  struct Entry {
    at::Generator generator;
    RandomState state;
  };
  c10::SmallVector<Entry, 1> entries_;
};

class DrawWatch {
 public:
  DrawWatch(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, RecentStates& recent);
  DrawWatch(const DrawWatch&) = delete;
  DrawWatch& operator=(const DrawWatch&) = delete;

  // Before the op is run once more, because it has failed: it shall draw what it would have drawn.
  void put_back() const;
  // After the op: null if it has not drawn, and empty if the states that it drew from are not known.
  std::optional<Draws> draws() const;

 private:
  struct Watched {
    at::Generator generator;
    RandomState before;
    int argument;  // as DrawnFrom's
  };

  void watch_default(c10::Device device, RecentStates& recent);
  bool watches(const at::Generator& generator) const;

  const OpFacts& facts_;
  c10::SmallVector<Watched, 2> watched_;
};

}  // namespace ac2::internal
